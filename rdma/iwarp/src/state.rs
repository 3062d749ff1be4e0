//! The state of a device that its threads share: connections, listeners, events.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use mio::net::{TcpListener, TcpStream};
use slab::Slab;

use super::Options;
use super::conn::{Conn, Cx, Phase};
use super::endpoint::Limits;
use super::shared_queue::SharedQueues;
use rdma::{
    Counters, Ending, Event, Interest, ListenerId, Poller, PostError, QpId, SendWr, Tap, Time, WrId,
};

/// Maximum number of connections that have ended without the program's request and are draining. The oldest is
/// closed to make room. Peers can make as many of them as they want.
const MAX_DRAINING: usize = 64;
/// Number of busy-polls between two checks of the listeners.
const POLLS_PER_ACCEPT: u32 = 64;
/// Local token of the background thread's wake-up; slot `n` has token `n + 1`.
pub(super) const WAKE_TOKEN: usize = 0;

pub(super) struct Listener {
    pub(super) id: ListenerId,
    pub(super) socket: TcpListener,
}

pub(super) enum Slot {
    Listener(Listener),
    Conn(Box<Conn>),
}

/// The state of a device that the owner's thread and the background thread share.
pub(super) struct State {
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) slots: Slab<Slot>,
    /// Makes identifiers unique although slots are reused.
    pub(super) serial: u32,
    pub(super) poller: Option<Poller>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) tap: Option<Box<dyn Tap>>,
    pub(super) shared: SharedQueues,
    /// Number of the last shared receive queue that was made.
    pub(super) last_shared: u64,
    /// Slots to process.
    pub(super) ready: VecDeque<usize>,
    /// Slots of connections with requests that were posted in this turn of the owner, in the order of their first ones.
    pub(super) posted: Vec<usize>,
    /// Deadlines by slot.
    pub(super) timers: BTreeSet<(Time, usize)>,
    pub(super) accept_again: Option<Time>,
    /// Connections of peers that have not sent a Request Frame yet, the oldest first.
    pub(super) half_open: VecDeque<u64>,
    pub(super) connections: usize,
    /// Connections that have ended without the program's request and are draining, the oldest first.
    pub(super) draining: VecDeque<u64>,
    /// Connections that the program has disconnected and that are draining, the oldest first. Their last bytes may
    /// be messages of the program.
    pub(super) leaving: VecDeque<u64>,
    pub(super) live: usize,
    /// Whether the owner waits for events.
    pub(super) armed: bool,
    /// Whether something has happened since the device was armed that ends the wait: readiness of a
    /// socket, a deadline with an event, a request of another loop to accept, or an event from the background thread.
    /// Events that follow from requests which the owner has posted since then wake nobody.
    pub(super) woken: bool,
    pub(super) busy: bool,
    pub(super) polls: u32,
    /// Time of the owner's last poll.
    pub(super) now: Time,
    /// The value of [`rpcrdma_host::LoopSeat::turns_within`] at the last poll.
    pub(super) turns: usize,
    /// Activity of the background thread.
    pub(super) progress: Progress,
}

/// The state of the background thread that the device's owner needs to know.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the thread is parked, or about to park.
    pub(super) idle: bool,
    /// Whether the thread does the owner's work.
    pub(super) taken: bool,
}

/// The state of a connection that the device has recorded, with which that after an operation is
/// compared.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Recorded {
    phase: Phase,
    deadline: Option<Time>,
}

impl Recorded {
    #[inline]
    fn of(conn: &Conn) -> Self {
        Self {
            phase: conn.phase,
            deadline: conn.deadline,
        }
    }
}

impl State {
    pub(super) fn new(options: Options, limits: Limits) -> Self {
        Self {
            options,
            limits,
            slots: Slab::new(),
            serial: 0,
            poller: None,
            events: VecDeque::new(),
            counters: Counters::default(),
            tap: None,
            shared: SharedQueues::default(),
            last_shared: 0,
            ready: VecDeque::new(),
            posted: Vec::new(),
            timers: BTreeSet::new(),
            accept_again: None,
            half_open: VecDeque::new(),
            connections: 0,
            draining: VecDeque::new(),
            leaving: VecDeque::new(),
            live: 0,
            armed: false,
            woken: false,
            busy: false,
            polls: 0,
            now: Time::ZERO,
            turns: 0,
            progress: Progress::default(),
        }
    }

    /// Returns the number of connections that must make progress even while the owner does not
    /// poll.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Switches busy-polling. While it is on, connections are not watched, because a sender to a
    /// watched socket of the same host pays for the notification (0.4 µs on each side of a
    /// ping-pong over loopback).
    pub(super) fn set_busy_poll(&mut self, on: bool) {
        if std::mem::replace(&mut self.busy, on) == on {
            return;
        }
        let mut unwatched = Vec::new();
        if let Some(poller) = &self.poller {
            for (index, slot) in &self.slots {
                let Slot::Conn(conn) = slot else {
                    continue;
                };
                if on {
                    if let Some(socket) = conn.socket() {
                        unwatch(poller, socket.as_fd());
                    }
                } else if let Err(error) = register(poller, index, slot) {
                    rpcrdma_host::limited!(error, %error, "cannot watch a connection, closing it");
                    unwatched.push(index);
                }
            }
        }
        for index in unwatched {
            self.with(index, self.now, Conn::abort);
        }
        // Events that were not reported during busy-polling are looked for once.
        self.mark_all(true);
    }

    // ---- the poll loop ----

    pub(super) fn attach(&mut self, poller: Poller) -> io::Result<()> {
        for (index, slot) in &self.slots {
            self.watch(&poller, index, slot)?;
        }
        self.poller = Some(poller);
        self.mark_all(true);
        Ok(())
    }

    /// Handles readiness of the slot with this token.
    pub(super) fn ready(&mut self, local: usize, closed: bool) {
        let Some(index) = local.checked_sub(1) else {
            return;
        };
        self.woken = true;
        if let Some(Slot::Conn(conn)) = self.slots.get_mut(index) {
            conn.readable = true;
            conn.writable = true;
            conn.peer_closed |= closed;
        }
        self.enqueue(index);
    }

    /// Schedules a slot to be processed by the next poll or before the next sleep.
    pub(super) fn enqueue(&mut self, index: usize) {
        match self.slots.get_mut(index) {
            Some(Slot::Conn(conn)) if conn.queued => return,
            Some(Slot::Conn(conn)) => conn.queued = true,
            Some(Slot::Listener(_)) => {}
            None => return,
        }
        self.ready.push_back(index);
    }

    pub(super) fn mark_all(&mut self, listeners: bool) {
        for (index, slot) in &mut self.slots {
            match slot {
                Slot::Conn(conn) => {
                    conn.readable = true;
                    conn.writable = true;
                    if std::mem::replace(&mut conn.queued, true) {
                        continue;
                    }
                }
                Slot::Listener(_) if listeners => {}
                Slot::Listener(_) => continue,
            }
            self.ready.push_back(index);
        }
    }

    /// Polls for the owner.
    pub(super) fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.now = now;
        self.flush();
        if self.busy || self.poller.is_none() {
            self.polls = self.polls.wrapping_add(1);
            self.mark_all(self.poller.is_none() || self.polls.is_multiple_of(POLLS_PER_ACCEPT));
        }
        self.take_turn();
        self.run_timers(now);
        self.run_ready(now);
        if self.armed {
            self.armed = false;
            self.counters.interrupts += u64::from(self.woken && !self.events.is_empty());
        }
        if events.is_empty() {
            std::mem::swap(events, &mut self.events);
        } else {
            events.append(&mut self.events);
        }
    }

    /// Writes posted requests to TCP. Returns true if nothing is left to do or to report, so that
    /// the owner may sleep.
    pub(super) fn arm(&mut self) -> bool {
        self.flush();
        self.run_ready(self.now);
        let done = self.ready.is_empty() && self.next_waiting().is_none();
        self.armed = self.events.is_empty() && done;
        self.woken = false;
        self.armed
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(time, _)| *time);
        timer.into_iter().chain(self.accept_again).min()
    }

    pub(super) fn run_timers(&mut self, now: Time) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            self.woken = true;
            self.enqueue_listeners();
        }
        while let Some((at, index)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let events = self.events.len();
            self.with(index, now, Conn::time_out);
            self.woken |= self.events.len() > events;
        }
    }

    /// Processes every slot that was scheduled before the call. A slot that could continue stays
    /// scheduled.
    pub(super) fn run_ready(&mut self, now: Time) {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            match self.slots.get_mut(index) {
                Some(Slot::Conn(conn)) => {
                    conn.queued = false;
                    self.with(index, now, Conn::progress);
                }
                Some(Slot::Listener(_)) => self.accept_all(index, now),
                None => {}
            }
        }
        self.serve_waiting(now);
    }

    // ---- in the owner's place ----

    /// Makes progress on live connections: those in `ready`, or all.
    pub(super) fn run_live(&mut self, ready: Option<&[usize]>) {
        let now = Time::now();
        let live = |(index, slot): (usize, &Slot)| match slot {
            Slot::Conn(conn) if conn.is_live() => Some(index),
            _ => None,
        };
        let all: Vec<usize> = match ready {
            Some(ready) => ready.to_vec(),
            None => self.slots.iter().filter_map(live).collect(),
        };
        for index in all {
            if let Some(Slot::Conn(conn)) = self.slots.get_mut(index)
                && conn.is_live()
            {
                conn.readable = true;
                conn.writable = true;
                self.with(index, now, Conn::progress);
            }
        }
        self.serve_waiting(now);
    }

    /// Returns the sockets of live connections, and the events to wait for on each.
    pub(super) fn live_sockets(&self) -> Vec<(usize, Arc<TcpStream>, rustix::event::PollFlags)> {
        let socket = |(index, slot): (usize, &Slot)| match slot {
            Slot::Conn(conn) if conn.is_live() => {
                Some((index, Arc::clone(conn.socket()?), conn.interest()))
            }
            _ => None,
        };
        self.slots.iter().filter_map(socket).collect()
    }

    // ---- slots ----

    /// Executes an operation on a connection and updates the device's records of it.
    pub(super) fn with<R>(
        &mut self,
        index: usize,
        now: Time,
        act: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
            return None;
        };
        let before = Recorded::of(conn);
        let mut cx = Cx {
            options: &self.options,
            events: &mut self.events,
            counters: &mut self.counters,
            shared: &mut self.shared,
            tap: self.tap.as_deref_mut().map(|tap| tap as &mut dyn Tap),
            now,
        };
        let result = act(conn, &mut cx);
        if Recorded::of(conn) != before || conn.phase == Phase::Closed || conn.is_unwatched {
            self.record(index, before);
        } else if conn.wants_turn() && !std::mem::replace(&mut conn.queued, true) {
            self.ready.push_back(index);
        }
        Some(result)
    }

    /// Updates the device's records of a connection whose state has changed since `before`.
    #[inline(never)]
    fn record(&mut self, index: usize, before: Recorded) {
        let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
            return;
        };
        if std::mem::take(&mut conn.is_unwatched) && !self.busy {
            self.watch_again(index);
        }
        let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
            return;
        };
        let is_draining = |phase| phase == Phase::Draining;
        if conn.deadline != before.deadline {
            if let Some(at) = before.deadline {
                self.timers.remove(&(at, index));
            }
            if let Some(at) = conn.deadline {
                self.timers.insert((at, index));
            }
        }
        let (live, was_live) = (conn.phase.is_live(), before.phase.is_live());
        self.live = self.live + usize::from(live) - usize::from(was_live);
        if before.phase == Phase::AwaitRequest && conn.phase != Phase::AwaitRequest {
            let id = conn.id;
            self.half_open.retain(|half_open| *half_open != id);
            if let Some(claim) = &mut conn.claim {
                claim.set_expendable(false);
            }
        }
        let (draining, was_draining) = (is_draining(conn.phase), is_draining(before.phase));
        let (id, disconnects) = (conn.id, conn.disconnects);
        if draining
            && !was_draining
            && let Some(claim) = &mut conn.claim
        {
            claim.set_expendable(true);
        }
        if was_draining && !draining {
            self.draining.retain(|draining| *draining != id);
            self.leaving.retain(|leaving| *leaving != id);
        }
        if conn.phase == Phase::Closed {
            if before.phase != Phase::Closed
                && let Some(tap) = &mut self.tap
            {
                tap.ended(self.now.max(Time::now()), conn.qp());
            }
            if !conn.owned {
                self.remove(index);
            }
            return;
        }
        if conn.wants_turn() {
            self.enqueue(index);
        }
        if draining && !was_draining && disconnects {
            self.leaving.push_back(id);
        } else if draining && !was_draining {
            self.draining.push_back(id);
            if self.draining.len() > MAX_DRAINING {
                self.close_oldest_draining();
            }
        }
    }

    /// Watches the new socket of a connection. If that is not possible, the connection ends with
    /// its time-out.
    fn watch_again(&self, index: usize) {
        if let (Some(poller), Some(slot)) = (&self.poller, self.slots.get(index))
            && let Err(error) = register(poller, index, slot)
        {
            rpcrdma_host::limited!(error, %error, "cannot watch a connection");
        }
    }

    /// Returns whether a connection drains.
    pub(super) fn has_draining(&self) -> bool {
        !self.draining.is_empty() || !self.leaving.is_empty()
    }

    /// Closes the connection that has drained for longest: its last bytes, such as a Terminate, have had
    /// the most time to arrive. One that the program has disconnected is closed only if there is no other. Returns
    /// false if none drains.
    pub(super) fn close_oldest_draining(&mut self) -> bool {
        let oldest = self.draining.pop_front();
        let oldest = oldest.or_else(|| self.leaving.pop_front());
        let Some(index) = oldest.and_then(|oldest| self.find(oldest)) else {
            return false;
        };
        self.with(index, self.now, |conn, _| conn.close());
        true
    }

    /// Returns what the connections that the program has disconnected still do.
    pub(super) fn ending(&self) -> Ending {
        let sends = |(_, slot): (usize, &Slot)| match slot {
            Slot::Conn(conn) => conn.disconnects && conn.is_sending(),
            Slot::Listener(_) => false,
        };
        match self.leaving.is_empty() {
            _ if self.slots.iter().any(sends) => Ending::Sending,
            false => Ending::WaitsForPeers,
            true => Ending::Ended,
        }
    }

    /// Reports to the tap that all connections end, because the device is dropped.
    pub(super) fn end_tap(&mut self) {
        if let Some(mut tap) = self.tap.take() {
            let at = self.now.max(Time::now());
            for (_, slot) in &self.slots {
                match slot {
                    Slot::Conn(conn) if conn.phase != Phase::Closed => tap.ended(at, conn.qp()),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.slots.remove(index);
        self.connections -= 1;
    }

    pub(super) fn insert(&mut self, make: impl FnOnce(u64) -> Slot) -> io::Result<usize> {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let index = entry.key();
        entry.insert(make(u64::from(self.serial) << 32 | index as u64));
        if let (Some(poller), Some(slot)) = (&self.poller, self.slots.get(index))
            && let Err(error) = self.watch(poller, index, slot)
        {
            self.slots.remove(index);
            return Err(error);
        }
        if matches!(self.slots.get(index), Some(Slot::Conn(_))) {
            self.connections += 1;
        }
        Ok(index)
    }

    /// Watches a slot in the owner's poll loop, unless it is processed by every poll.
    fn watch(&self, poller: &Poller, index: usize, slot: &Slot) -> io::Result<()> {
        match slot {
            Slot::Conn(_) if self.busy => Ok(()),
            _ => register(poller, index, slot),
        }
    }

    /// Returns the slot of the connection with this identifier.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let index = index_of(id);
        match self.slots.get(index) {
            Some(Slot::Conn(conn)) if conn.id == id => Some(index),
            _ => None,
        }
    }

    pub(super) fn owned(&self, qp: QpId) -> Option<usize> {
        let index = self.find(qp.0)?;
        self.conn(index).filter(|conn| conn.owned).map(|_| index)
    }

    pub(super) fn conn(&self, index: usize) -> Option<&Conn> {
        match self.slots.get(index) {
            Some(Slot::Conn(conn)) => Some(conn),
            _ => None,
        }
    }

    /// Returns the connection of a queue pair.
    #[inline]
    pub(super) fn qp_mut(&mut self, qp: QpId) -> Option<(&mut Conn, &mut Counters)> {
        match self.slots.get_mut(index_of(qp.0)) {
            Some(Slot::Conn(conn)) if conn.id == qp.0 && conn.owned => {
                Some((conn, &mut self.counters))
            }
            _ => None,
        }
    }

    /// Frees memory of queues that earlier traffic needed: those of these queue pairs, and those that all have in
    /// common. Returns the number of bytes freed.
    pub(super) fn give_back(&mut self, quiet: &[QpId]) -> usize {
        let mut freed = rdma::shrink(&mut self.events) + rdma::shrink(&mut self.ready);
        for qp in quiet {
            if let Some((conn, _)) = self.qp_mut(*qp) {
                freed += conn.endpoint.give_back();
            }
        }
        freed
    }

    /// Posts to a queue pair's send queue.
    pub(super) fn post_send(
        &mut self,
        qp: QpId,
        id: WrId,
        wr: SendWr,
        signaled: bool,
    ) -> Result<(), (PostError, SendWr)> {
        let Some((conn, counters)) = self.qp_mut(qp) else {
            return Err((PostError::Unknown, wr));
        };
        if !conn.can_send() {
            return Err((PostError::NotConnected, wr));
        }
        if !conn.endpoint.post_short(id, &wr, signaled, counters) {
            conn.endpoint.post_send(id, wr, signaled, counters)?;
        }
        if !std::mem::replace(&mut conn.posted, true) {
            self.posted.push(index_of(qp.0));
        }
        if self.progress.taken {
            // The owner has been computing for long, and the background thread waits for sockets meanwhile.
            self.flush();
        }
        Ok(())
    }

    /// Writes the posted requests to TCP, those of a connection with one system call.
    #[inline]
    pub(super) fn flush(&mut self) {
        if !self.posted.is_empty() {
            self.flush_all();
        }
    }

    #[inline(never)]
    fn flush_all(&mut self) {
        for at in 0..self.posted.len() {
            let index = self.posted[at];
            let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
                continue;
            };
            // A connection that is ending has sent everything, or dropped it.
            if !std::mem::take(&mut conn.posted) || !conn.can_send() {
                continue;
            }
            let mut cx = Cx {
                options: &self.options,
                events: &mut self.events,
                counters: &mut self.counters,
                shared: &mut self.shared,
                tap: self.tap.as_deref_mut().map(|tap| tap as &mut dyn Tap),
                now: self.now,
            };
            if !conn.flush_short(&mut cx) {
                self.with(index, self.now, Conn::flush_posted);
            }
        }
        self.posted.clear();
    }
}

/// Returns the slot of a connection or listener with this identifier, if it still exists.
#[inline]
pub(super) fn index_of(id: u64) -> usize {
    (id & u64::from(u32::MAX)) as usize
}

/// Stops watching a socket in the owner's poll loop.
pub(super) fn unwatch(poller: &Poller, socket: BorrowedFd<'_>) {
    if let Err(error) = poller.unwatch(socket) {
        tracing::debug!(%error, "a socket was not registered with the poll loop");
    }
}

/// Watches a slot in the owner's poll loop.
fn register(poller: &Poller, index: usize, slot: &Slot) -> io::Result<()> {
    let local = index + 1;
    match slot {
        Slot::Listener(listener) => {
            poller.watch(listener.socket.as_fd(), local, Interest::Readable)
        }
        Slot::Conn(conn) => match conn.socket() {
            Some(socket) => poller.watch(socket.as_fd(), local, Interest::ReadableAndWritable),
            None => Ok(()),
        },
    }
}
