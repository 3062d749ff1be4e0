//! The planned faults: hosts that crash or stop, and what is lost or taken away.

use rdma::Time;
use rdma_sim::NodeId;

use super::{Alarm, World};
use crate::plan::Victim;

/// The block sizes in which a server's memory is taken away.
const GREED: [usize; 3] = [1 << 20, 1 << 16, 4096];

impl World<'_> {
    pub(super) fn crash(&mut self, number: usize) {
        let crash = self.plan.crashes[number];
        let now = self.fabric.now();
        let line = format_args!("fault: {:?} for {:?}", crash.victim, crash.lasts);
        self.journal.borrow_mut().line(now, line);
        let until = now + crash.lasts;
        if let Victim::Administrator(change) = crash.victim {
            self.shared.exports.served.borrow_mut().change(change);
        }
        match crash.victim {
            Victim::ServerProcess | Victim::ServerPower | Victim::Administrator(_) => {
                if self.server.is_none() {
                    return;
                }
                for at in 0..self.plan.loops {
                    self.fabric.crash(NodeId(at));
                }
                self.server = None;
                self.handed.fill(None);
                self.greedy.clear();
                if crash.victim == Victim::ServerPower {
                    self.disk.power_failed(&mut self.random);
                    self.history.borrow_mut().power_failed();
                }
                self.disk.restarted();
            }
            Victim::Client(client) => {
                let Some(gone) = self.clients[client].take() else {
                    return;
                };
                self.fabric.crash(gone.node);
            }
            Victim::ClientPause(client) => {
                return self.pause(NodeId(self.plan.loops + client), until);
            }
            Victim::ServerPause => {
                for at in 0..self.plan.loops {
                    self.pause(NodeId(at), until);
                }
                return;
            }
            Victim::LoopPause(at) => return self.pause(NodeId(at), until),
            Victim::ServerMemory => {
                let Some(server) = &self.server else { return };
                for block in GREED {
                    while let Ok(buf) = server.pool.alloc(block) {
                        self.greedy.push(buf);
                    }
                }
            }
            Victim::Connection => return self.fabric.lose_one(),
        }
        self.alarm(until, Alarm::Over(number));
    }

    /// Stops a host until this time.
    fn pause(&mut self, node: NodeId, until: Time) {
        self.paused[node.0] = self.paused[node.0].max(until);
    }

    pub(super) fn recover(&mut self, number: usize) {
        match self.plan.crashes[number].victim {
            Victim::ServerProcess | Victim::ServerPower | Victim::Administrator(_)
                if self.server.is_none() =>
            {
                self.start_server();
            }
            Victim::Client(client) if self.clients[client].is_none() => self.start_client(client),
            Victim::ServerMemory => self.greedy.clear(),
            _ => {}
        }
    }
}
