//! Polling, arming and time-outs.
//!
//! A connection without traffic posts empty RDMA Writes now and then: hardware retransmits them,
//! and a peer that has vanished makes them fail.

use std::time::Duration;

use super::conn::{Conn, End, EventSink, Phase};
use super::context::{AsyncEvent, CqContext};
use super::device::{CmIdOwner, RdmaCore};
use super::post::REAP_AFTER;
use super::queue::{Posted, Request};
use super::shared_queue::SharedQueue;
use super::sys;
use rdma::{ConnectError, Disconnect, Event, ListenerId, QpId, SharedReceivesId};

/// Interval at which a busy-polling owner checks the descriptors of events other than completions.
const LOOK_AT_ALL: Duration = Duration::from_millis(1);
/// Time for a peer to confirm the end of a connection.
const PARTING: Duration = Duration::from_secs(1);
/// Maximum time that a queue pair may be in the error state without a reason from the connection
/// manager.
const IN_ERROR: Duration = Duration::from_secs(1);
/// Time after which a silent peer is probed; at most twice this time passes.
const PROBE_AFTER: Duration = Duration::from_secs(20);

impl RdmaCore {
    /// Does everything that can be done now.
    pub(super) fn progress(&mut self) {
        self.ring_all();
        if self.busy && self.now >= self.look_at_all {
            self.look_at_all = self.now + LOOK_AT_ALL;
            (self.ready.cm, self.ready.asynchronous) = (true, true);
            // Without calls of `arm`, connections that no longer exist are removed from the list
            // here.
            self.hot.retain(|qp| self.conns.contains_key(&qp.0));
        }
        self.bind_waiting();
        if std::mem::take(&mut self.ready.cm) {
            self.take_cm_events();
        }
        if std::mem::take(&mut self.ready.asynchronous) {
            self.take_async_events();
        }
        if std::mem::take(&mut self.ready.completion) {
            self.take_channel_events();
        }
        self.reap_silent();
        self.probe_silent();
        let before = self.events.len();
        if self.busy {
            let all: Vec<QpId> = self.conns.values().map(|conn| conn.qp).collect();
            all.into_iter().for_each(|qp| self.reap(qp));
            self.reap_all_shared();
        } else {
            for at in 0..self.hot.len() {
                self.reap(self.hot[at]);
            }
            let before = self.hot.len();
            self.reap_all_shared();
            // Connections that end because of what was just received.
            for at in before..self.hot.len() {
                self.reap(self.hot[at]);
            }
        }
        // An interrupt is a wake-up with a completion.
        let woken = std::mem::take(&mut self.woken);
        self.counters.interrupts += u64::from(woken && self.events.len() > before);
        self.give_up();
    }

    /// Polls and handles the completions of a connection, and ends the connection if they require
    /// it.
    fn reap(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let mut out = EventSink {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let cause = conn.reap(&mut out);
        self.end_if(qp, cause);
        self.advance(qp);
    }

    /// Ends a connection if its completions require that.
    pub(super) fn end_if(&mut self, qp: QpId, cause: Option<Disconnect>) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        if let Some(cause) = cause {
            conn.lose(cause, self.now);
            self.timer(qp);
        } else if conn.in_error && conn.deadline.is_none() && !conn.is_ending() {
            conn.deadline = Some(self.now + IN_ERROR);
            self.timer(qp);
        }
    }

    /// Moves a connection that is ending one step further, if it is time.
    pub(super) fn advance(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        if matches!(conn.phase, Phase::Draining) && conn.sends.is_empty() {
            conn.end(End::Disconnected(Disconnect::Local), true, self.now);
            self.timer(qp);
        }
        let ending = |conn: &Conn| matches!(conn.phase, Phase::Ending(_)) && conn.is_flushed();
        if self.conns.get(&qp.0).is_some_and(ending) {
            self.finish(qp);
        }
    }

    /// Completes the end of a connection.
    pub(super) fn finish(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        if !matches!(conn.phase, Phase::Ending(_)) {
            return;
        }
        let not_made = matches!(conn.phase, Phase::Ending(End::NotMade(_)));
        let told = match &conn.phase {
            Phase::Ending(End::Disconnected(reason)) => *reason == Disconnect::Remote,
            _ => true,
        };
        let (id, taken) = self.take_down(qp);
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let mut out = EventSink {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        conn.finish(taken, &mut out);
        if not_made {
            // After a failed attempt, the queue pair no longer exists in the device model.
            self.conns.remove(&qp.0);
        }
        let Some(id) = id else {
            return;
        };
        let key = id.key();
        self.targets.remove(&key);
        // The peer's answer shows that it has been notified; TCP ensures that by itself.
        if !told && !self.gone && !self.capabilities.kind.is_iwarp() {
            self.targets.insert(key, CmIdOwner::Parting);
            self.parting.push_back((self.now + PARTING, id));
        }
    }

    /// Polls for requests whose completions wake nobody, so that their memory is released even if
    /// nothing else happens.
    fn reap_silent(&mut self) {
        if self.reap_at.is_none_or(|at| at > self.now) {
            return;
        }
        let silent = self.conns.values().filter(|conn| !conn.sends.is_empty());
        let silent: Vec<QpId> = silent.map(|conn| conn.qp).collect();
        self.reap_at = (!silent.is_empty()).then(|| self.now + REAP_AFTER);
        silent.into_iter().for_each(|qp| self.look_at(qp));
    }

    /// Probes silent peers: a RoCE or InfiniBand peer that vanished is only noticed when something
    /// is sent to it. On iWARP TCP probes the peer.
    ///
    /// The probe is an RDMA Write of zero bytes, which any peer's device acknowledges by itself:
    /// the handle is not checked (InfiniBand specification, C9-88), no receive is consumed, and the
    /// peer's program does not notice. Without an acknowledgement the queue pair fails after its
    /// retries.
    fn probe_silent(&mut self) {
        if self.capabilities.kind.is_iwarp() || self.probe_at.is_some_and(|at| at > self.now) {
            return;
        }
        let made = self
            .conns
            .values()
            .any(|conn| matches!(conn.phase, Phase::Up));
        let began = self.probe_at.is_some();
        self.probe_at = made.then(|| self.now + PROBE_AFTER);
        if !began {
            return;
        }
        let silent = self
            .conns
            .values_mut()
            .filter_map(|conn| conn.is_silent().then_some(conn.qp));
        for qp in silent.collect::<Vec<_>>() {
            tracing::debug!(qp = qp.0, "probing a silent peer");
            let request = Request {
                opcode: sys::IBV_WR_RDMA_WRITE,
                ..Request::default()
            };
            self.hand_over(qp, Posted::probe(), request, false);
        }
    }

    fn take_channel_events(&mut self) {
        while let Some(mark) = self.channel.next() {
            let mark = CqContext(mark);
            if let Some(conn) = self.conns.get_mut(&mark.qp().0) {
                conn.fired(mark.is_receive());
                self.look_at(mark.qp());
            } else if let Some(queue) = self.shared.get_mut(&SharedReceivesId(mark.qp().0)) {
                queue.fired();
            }
        }
    }

    pub(super) fn take_async_events(&mut self) {
        for event in self.membership.take_async_events(&self.context) {
            match event {
                AsyncEvent::QueuePair(qp, kind) => self.queue_pair_event(QpId(qp), kind),
                AsyncEvent::DeviceFatal => self.device_gone(),
                AsyncEvent::CompletionQueue(id) => {
                    // The ids of both are from one sequence.
                    self.completion_queue_failed(QpId(id));
                    let why = "its completion queue failed";
                    self.shared_queue_failed(SharedReceivesId(id), why);
                }
                AsyncEvent::SharedReceivesLow(id) => {
                    self.shared_limit_reached(SharedReceivesId(id));
                }
                AsyncEvent::SharedReceivesFailed(id) => {
                    self.shared_queue_failed(SharedReceivesId(id), "it failed");
                }
                // The device that reads them logs them.
                AsyncEvent::Port(..) | AsyncEvent::Other(_) => {}
            }
        }
    }

    /// Handles an event of a queue pair.
    fn queue_pair_event(&mut self, qp: QpId, kind: i32) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let reason = match kind {
            sys::IBV_EVENT_QP_LAST_WQE_REACHED => return self.queue_pair_drained(qp),
            sys::IBV_EVENT_COMM_EST => {
                if let Some(id) = &conn.id {
                    id.communicating();
                }
                return;
            }
            sys::IBV_EVENT_QP_ACCESS_ERR => {
                Disconnect::PeerError("it accessed memory without permission".to_owned())
            }
            sys::IBV_EVENT_QP_REQ_ERR => {
                Disconnect::PeerError("a request that is not valid".to_owned())
            }
            _ => Disconnect::Lost("the queue pair failed".to_owned()),
        };
        if let Some(queue) = conn.binding.as_ref().map(|binding| binding.queue) {
            self.reap_shared(queue);
        }
        self.look_at(qp);
        self.reap(qp);
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            conn.lose(reason, self.now);
            self.timer(qp);
        }
    }

    /// Handles the event that a bound queue pair is in the error state, and has completed what it
    /// took from its shared receive queue.
    fn queue_pair_drained(&mut self, qp: QpId) {
        if let Some(conn) = self.conns.get_mut(&qp.0)
            && let Some(binding) = &mut conn.binding
        {
            binding.drained = true;
            conn.in_error = true;
            self.look_at(qp);
        }
    }

    /// Ends the connection of a failed completion queue, unless the queue is that of a shared
    /// receive queue.
    fn completion_queue_failed(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let reason = Disconnect::Lost("a completion queue failed".to_owned());
        conn.lose(reason, self.now);
        self.timer(qp);
    }

    /// Handles the removal of the device: nothing works any more, and no request completes by
    /// itself.
    pub(super) fn device_gone(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        tracing::error!(device = self.attributes.name, "the device was removed");
        self.context.set_removed();
        self.membership.device_gone();
        for (_, waiting) in self.requests.drain() {
            self.targets.remove(&waiting.id.key());
        }
        let listeners: Vec<u64> = self.listeners.keys().copied().collect();
        for listener in listeners {
            self.end_listening(ListenerId(listener));
        }
        let all: Vec<QpId> = self.conns.values().map(|conn| conn.qp).collect();
        for qp in all {
            self.lose(qp);
        }
        self.events.push_back(Event::Removed);
    }

    /// Ends a connection whose device was removed.
    fn lose(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let reason = "the device was removed".to_owned();
        let end = match conn.phase {
            Phase::Up | Phase::Draining => End::Disconnected(Disconnect::Lost(reason)),
            _ => End::NotMade(ConnectError::Unreachable(reason)),
        };
        conn.end(end, false, self.now);
        self.finish(qp);
    }

    /// Ends connections whose deadline has passed (set-up, a queue pair in error, or the flush of
    /// posted requests), and drops the rdma_cm ids whose retention time is over.
    fn give_up(&mut self) {
        while let Some(&(at, qp)) = self.timers.first().filter(|(at, _)| *at <= self.now) {
            self.timers.pop_first();
            let Some(conn) = self.conns.get_mut(&qp) else {
                continue;
            };
            if conn.deadline != Some(at) {
                continue;
            }
            conn.deadline = None;
            let end = match conn.phase {
                Phase::Connecting { .. } | Phase::Accepting => End::NotMade(ConnectError::TimedOut),
                Phase::Up | Phase::Draining => {
                    let reason = "the queue pair is in error".to_owned();
                    End::Disconnected(Disconnect::Lost(reason))
                }
                Phase::Ending(_) => {
                    tracing::warn!(qp, "the device does not flush posted requests");
                    self.finish(QpId(qp));
                    continue;
                }
                Phase::Prepared(_) | Phase::Over => continue,
            };
            conn.end(end, false, self.now);
            self.timer(QpId(qp));
            self.advance(QpId(qp));
        }
        while self.parting.front().is_some_and(|(at, _)| *at <= self.now) {
            if let Some((_, id)) = self.parting.pop_front() {
                self.targets.remove(&id.key());
            }
        }
    }

    /// Arms every queue that was polled, and polls once more, because a completion between the last
    /// poll and the arming generates no event.
    pub(super) fn arm_all(&mut self) -> bool {
        self.ring_all();
        self.bind_waiting();
        if !self.events.is_empty() || self.busy {
            return false;
        }
        let may_have_fired = |conn: Option<&Conn>| conn.is_some_and(Conn::may_have_fired);
        let mut hot = self.hot.iter();
        let mut shared = self.shared.values();
        if hot.any(|qp| may_have_fired(self.conns.get(&qp.0)))
            || shared.any(SharedQueue::may_have_fired)
        {
            self.take_channel_events();
        }
        // Connections that end because of what is received here are among the following.
        self.arm_shared();
        let hot = std::mem::take(&mut self.hot);
        for qp in &hot {
            if let Some(conn) = self.conns.get_mut(&qp.0) {
                conn.hot = false;
                conn.arm();
            }
        }
        for qp in hot {
            self.reap(qp);
            // The event must be taken before the queue is armed again.
            if may_have_fired(self.conns.get(&qp.0)) {
                self.look_at(qp);
            }
        }
        if !self.events.is_empty() {
            return false;
        }
        // An ending connection needs no deadline of its own here: its flushed requests generate an
        // event, because completions of such a connection wake the owner (`Conn::awaits_sends`).
        !(self.ready.cm || self.ready.completion || self.ready.asynchronous)
    }

    /// Posts window bindings that wait for a request to precede. Otherwise a program that registers
    /// memory and announces it by other means would find it inaccessible.
    fn bind_waiting(&mut self) {
        for at in 0..self.hot.len() {
            let qp = self.hot[at];
            let Some(conn) = self.conns.get_mut(&qp.0) else {
                continue;
            };
            if conn.regions.waiting() == 0 || !matches!(conn.phase, Phase::Up) {
                continue;
            }
            conn.wants_room = conn.room() < conn.regions.waiting();
            if let Err(error) = conn.post(None, false) {
                self.broken(qp, "a window was not bound", &error);
            }
        }
    }
}
