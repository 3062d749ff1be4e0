//! The end of a run and the final checks.

use std::time::Duration;

use rpcrdma_programs::pattern;

use super::{MOST_TURNS, World};
use crate::history::SlotId;
use crate::report::Report;
use crate::server::ServerHost;

/// The maximum time for connections to end after the clients are done.
const SETTLE: Duration = Duration::from_secs(30);
/// The maximum duration of a call beside clients that are not honest, if nothing fails but
/// connections.
const DISTURBED: Duration = Duration::from_secs(3);

impl World<'_> {
    /// Performs the final checks.
    pub(super) fn finish(mut self) -> Report {
        let done = self.is_done();
        self.end_guests();
        let until = self.fabric.now() + SETTLE;
        while let Some(turn) = self.fabric.next(until) {
            self.turns += 1;
            if self.turns > MOST_TURNS {
                break;
            }
            self.take(turn);
        }
        if done {
            self.check_durations();
            self.check_callbacks();
            self.check_resources();
            self.check_disk();
        }
        let took = self.fabric.now();
        let mut journal = self.journal.borrow_mut();
        Report {
            seed: self.plan.seed,
            pairing: self.plan.pairing().and_then(|pairing| pairing.number()),
            violations: std::mem::take(&mut journal.violations),
            happenings: journal.happenings,
            calls: self.shared.tally.ended.get() + self.shared.guests.ended.get(),
            failures: self.shared.tally.failed.get() + self.shared.guests.failed.get(),
            faults: journal.faults,
            waits: 0,
            callbacks: u64::from(self.callbacks.tally().made),
            took,
            log: journal.take_text(),
        }
    }

    /// Ends the clients that nobody waits for. The server has to notice.
    fn end_guests(&mut self) {
        for (client, role) in self.roles.iter().enumerate() {
            if !role.is_honest()
                && let Some(gone) = self.clients[client].take()
            {
                self.fabric.crash(gone.node);
            }
        }
    }

    /// Checks that no call of an honest client took long, if others disturb it and nothing fails.
    fn check_durations(&self) {
        let longest = self.shared.tally.longest.get();
        if self.plan.is_spared() && longest > DISTURBED {
            self.violation(format!(
                "an honest client waited {longest:?} for a reply, beside clients that are not"
            ));
        }
    }

    /// Checks that every callback has ended, and that none was answered with data of another.
    fn check_callbacks(&self) {
        let tally = self.callbacks.tally();
        if !tally.done || tally.wrong > 0 {
            self.violation(format!(
                "callbacks have not all ended, or not well: {tally:?}"
            ));
        }
    }

    fn check_resources(&self) {
        let loops = self.server.iter().flat_map(|server| {
            let nodes = server.loops.iter().map(|at| at.node);
            nodes.map(|node| (node, &server.pool))
        });
        let waiting = self
            .server
            .as_ref()
            .map_or(0, ServerHost::waiting_for_others);
        if waiting > 0 {
            self.violation(format!(
                "{waiting} retransmissions still wait for replies of other loops"
            ));
        }
        let handed = self.server.iter().flat_map(ServerHost::handed_replies);
        if handed.sum::<usize>() > 0 {
            self.violation("replies of other loops were never taken".to_owned());
        }
        let clients = self.clients.iter().flatten();
        let clients = clients.map(|client| (client.node, &client.pool));
        for (node, pool) in loops.chain(clients) {
            let (pairs, bytes) = (self.fabric.queue_pairs(node), pool.in_use());
            if pairs > 0 || bytes > 0 {
                let text = format!("{node} is left with {pairs} queue pairs and {bytes} bytes");
                self.violation(text);
            }
        }
    }

    /// Simulates a final power failure, and checks that every slot contains what its clients rely
    /// on.
    fn check_disk(&mut self) {
        self.disk.power_failed(&mut self.random);
        let (slots, losses) = {
            let mut history = self.history.borrow_mut();
            history.power_failed();
            (history.slots(), history.losses)
        };
        for id in slots {
            let got = self.read_slot(id);
            let checked = self.history.borrow_mut().read(id, got, losses);
            if let Err(what) = checked {
                self.violation(format!("at the end, {what}"));
            }
        }
    }

    /// Returns the version that a slot on the disk contains, or `None` if it is not the content of
    /// a single write.
    fn read_slot(&self, (number, slot): SlotId) -> Option<u64> {
        let len = self.plan.slot;
        let files = self.shared.files.borrow();
        let file = files.iter().find(|file| file.number == number)?;
        let mut data = vec![0; len];
        let offset = slot as u64 * len as u64;
        let count = self.disk.read_file(file.dir, number, offset, &mut data);
        match count {
            Ok(count) => pattern::number(&data[..count], len),
            Err(error) => {
                self.violation(format!("file {number} cannot be read: {error}"));
                None
            }
        }
    }
}
