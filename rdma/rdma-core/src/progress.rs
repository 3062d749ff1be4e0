//! Polling, arming, and what time brings.

use std::time::Duration;

use super::conn::{Conn, End, Mark, Out, Phase};
use super::context::AsyncEvent;
use super::device::{Target, Verbs};
use super::post::REAP_AFTER;
use super::queue::{Posted, Request};
use super::sys;
use rdma::{ConnectError, Disconnect, Event, QpId};

/// When busy-polling, nobody waits for descriptors; those of events that are no completions are
/// looked at this often.
const LOOK_AT_ALL: Duration = Duration::from_millis(1);
/// How long a peer may take to confirm that it knows of a connection's end.
const PARTING: Duration = Duration::from_secs(1);
/// How long a queue pair in error may be without that the connection manager says why.
const IN_ERROR: Duration = Duration::from_secs(1);
/// How long a peer may be silent, up to twice this, before it is asked whether it is there.
const PROBE_AFTER: Duration = Duration::from_secs(20);

impl Verbs {
    /// Everything that can be done now.
    pub(super) fn progress(&mut self) {
        if self.busy && self.now >= self.look_at_all {
            self.look_at_all = self.now + LOOK_AT_ALL;
            (self.ready.cm, self.ready.asynchronous) = (true, true);
            // Nobody arms, which is when those that are gone are forgotten otherwise.
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
        } else {
            for at in 0..self.hot.len() {
                self.reap(self.hot[at]);
            }
        }
        // An interrupt is a wake-up that brought a completion.
        let woken = std::mem::take(&mut self.woken);
        self.counters.interrupts += u64::from(woken && self.events.len() > before);
        self.give_up();
    }

    /// Takes the completions of a connection, and ends it when they say so.
    fn reap(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let cause = conn.reap(&mut out);
        if let Some(cause) = cause {
            let end = match conn.phase {
                Phase::Connecting { .. } | Phase::Accepting => {
                    End::NotMade(ConnectError::Protocol(cause.to_string()))
                }
                _ => End::Disconnected(cause),
            };
            conn.end(end, false, self.now);
            self.timer(qp);
        } else if conn.in_error && conn.deadline.is_none() && !conn.is_ending() {
            conn.deadline = Some(self.now + IN_ERROR);
            self.timer(qp);
        }
        self.advance(qp);
    }

    /// Takes a connection that is ending one step further, if it is time for that.
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

    /// Ends a connection that is ending, for good.
    pub(super) fn finish(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let not_made = matches!(conn.phase, Phase::Ending(End::NotMade(_)));
        let told = match &conn.phase {
            Phase::Ending(End::Disconnected(reason)) => *reason == Disconnect::Remote,
            _ => true,
        };
        let mut out = Out {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let id = conn.finish(&mut out);
        if not_made {
            // The queue pair is gone, says the model.
            self.conns.remove(&qp.0);
        }
        let Some(id) = id else {
            return;
        };
        let key = id.key();
        self.targets.remove(&key);
        // The peer's answer shows that it knows; TCP sees to that by itself.
        if !told && !self.gone && !self.capabilities.kind.is_iwarp() {
            self.targets.insert(key, Target::Parting);
            self.parting.push_back((self.now + PARTING, id));
        }
    }

    /// Has requests looked at whose completions wake nobody, so that their memory does not stay
    /// away while nothing else happens.
    fn reap_silent(&mut self) {
        if self.reap_at.is_none_or(|at| at > self.now) {
            return;
        }
        let silent = self.conns.values().filter(|conn| !conn.sends.is_empty());
        let silent: Vec<QpId> = silent.map(|conn| conn.qp).collect();
        self.reap_at = (!silent.is_empty()).then(|| self.now + REAP_AFTER);
        silent.into_iter().for_each(|qp| self.look_at(qp));
    }

    /// Asks peers that have been silent whether they are there: a RoCE or InfiniBand peer that vanished
    /// without a word is only noticed when it is sent to. On iWARP it is TCP that asks.
    ///
    /// The question is an RDMA Write of nothing, which any peer's device acknowledges by itself: a
    /// handle is not looked at (InfiniBand specification, C9-88), no receive is used, and the peer's
    /// program does not see it. Without an answer the queue pair fails after its retries.
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
            tracing::debug!(qp = qp.0, "asking a silent peer whether it is there");
            self.batch.clear();
            let request = Request {
                opcode: sys::IBV_WR_RDMA_WRITE,
                ..Request::default()
            };
            self.hand_over(qp, Posted::probe(), request);
        }
    }

    fn take_channel_events(&mut self) {
        while let Some(mark) = self.channel.next() {
            let mark = Mark(mark);
            if let Some(conn) = self.conns.get_mut(&mark.qp().0) {
                conn.fired(mark.is_receive());
                self.look_at(mark.qp());
            }
        }
    }

    fn take_async_events(&mut self) {
        while let Some(event) = self.context.next_async_event() {
            tracing::debug!(?event, "asynchronous event");
            match event {
                AsyncEvent::QueuePair(number, kind) => self.queue_pair_event(number, kind),
                AsyncEvent::DeviceFatal => {
                    self.device_gone();
                    // The descriptor tells nothing new of a device that is gone.
                    return;
                }
                AsyncEvent::CompletionQueue(mark) => self.completion_queue_failed(Mark(mark).qp()),
                AsyncEvent::Port(port, up) => {
                    tracing::warn!(port, up, "port of the device changed");
                }
                AsyncEvent::Other(_) => {}
            }
        }
    }

    fn queue_pair_event(&mut self, number: u32, kind: i32) {
        let has = |conn: &&mut Conn| {
            let id = conn.id.as_ref();
            id.and_then(|id| id.queue_pair_number()) == Some(number)
        };
        let Some(conn) = self.conns.values_mut().find(has) else {
            return;
        };
        let reason = match kind {
            sys::IBV_EVENT_COMM_EST => {
                if let Some(id) = &conn.id {
                    id.communicating();
                }
                return;
            }
            sys::IBV_EVENT_QP_ACCESS_ERR => {
                Disconnect::PeerError("it reached for memory it may not reach".to_owned())
            }
            sys::IBV_EVENT_QP_REQ_ERR => {
                Disconnect::PeerError("a request that is not valid".to_owned())
            }
            _ => Disconnect::Lost("the queue pair failed".to_owned()),
        };
        let qp = conn.qp;
        self.look_at(qp);
        self.reap(qp);
        if let Some(conn) = self.conns.get_mut(&qp.0) {
            conn.end(End::Disconnected(reason), false, self.now);
            self.timer(qp);
        }
    }

    /// A completion queue serves one connection, which cannot go on without it.
    fn completion_queue_failed(&mut self, qp: QpId) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return;
        };
        let reason = "a completion queue failed".to_owned();
        let end = match conn.phase {
            Phase::Connecting { .. } | Phase::Accepting => {
                End::NotMade(ConnectError::Protocol(reason))
            }
            _ => End::Disconnected(Disconnect::Lost(reason)),
        };
        conn.end(end, false, self.now);
        self.timer(qp);
    }

    /// Nothing works any more, and nothing comes back by itself.
    pub(super) fn device_gone(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        tracing::error!(device = self.attributes.name, "the device is gone");
        for (_, waiting) in self.requests.drain() {
            self.targets.remove(&waiting.id.key());
        }
        for (_, listener) in self.listeners.drain() {
            self.targets.remove(&listener.key());
        }
        let all: Vec<QpId> = self.conns.values().map(|conn| conn.qp).collect();
        for qp in all {
            self.lose(qp);
        }
        self.events.push_back(Event::Removed);
    }

    /// The device took a connection with it.
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

    /// Gives up what takes too long.
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
                    tracing::warn!(qp, "the device does not give back what was posted");
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

    /// Arms every queue that was looked at, and looks once more: what came between the last look
    /// and the arming makes no event.
    pub(super) fn arm_all(&mut self) -> bool {
        self.bind_waiting();
        if !self.events.is_empty() || self.busy {
            return false;
        }
        let may_have_fired = |conn: Option<&Conn>| conn.is_some_and(Conn::may_have_fired);
        let mut hot = self.hot.iter();
        if hot.any(|qp| may_have_fired(self.conns.get(&qp.0))) {
            self.take_channel_events();
        }
        let hot = std::mem::take(&mut self.hot);
        for qp in &hot {
            if let Some(conn) = self.conns.get_mut(&qp.0) {
                conn.hot = false;
                conn.arm();
            }
        }
        for qp in hot {
            self.reap(qp);
            // Then there is an event to take before it is armed again.
            if may_have_fired(self.conns.get(&qp.0)) {
                self.look_at(qp);
            }
        }
        if !self.events.is_empty() {
            return false;
        }
        // Ending is not waited for by anybody but us: what is flushed makes an event, as
        // completions of such a connection wake somebody (`Conn::awaits_sends`).
        !(self.ready.cm || self.ready.completion || self.ready.asynchronous)
    }

    /// Posts windows that wait for a request to go before, lest a program that registers memory
    /// and tells of it by other means finds it unreachable.
    fn bind_waiting(&mut self) {
        for at in 0..self.hot.len() {
            let qp = self.hot[at];
            let Some(conn) = self.conns.get_mut(&qp.0) else {
                continue;
            };
            if conn.regions.waiting() == 0 || !matches!(conn.phase, Phase::Up) {
                continue;
            }
            self.batch.clear();
            conn.wants_room = conn.room() < conn.regions.waiting();
            if let Err(error) = conn.post(&mut self.batch, None) {
                self.broken(qp, "a window was not bound", &error);
            }
        }
    }
}
