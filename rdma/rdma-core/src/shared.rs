//! Shared receive queues.
//!
//! A queue has one completion queue, at which the receives of all queue pairs arrive that are bound
//! to it; the number of the queue pair in a completion tells the connection. Its size is that of
//! the shared receive queue, so that it cannot overflow: there is at most one completion for each
//! receive.
//!
//! # Which receives are left
//!
//! No device tells how many receives it has left. Devices take them in the order in which they were
//! posted, so all that are older than one that has completed have been taken; and the event of the
//! device's limit says that fewer than the limit are left. `Outstanding::taken` follows from both.
//! A receive that was taken stays here until its message is complete.
//!
//! # The end of a queue pair
//!
//! A queue pair that ends in the middle of a message completes the receive that it took, as
//! flushed. It reports then that there will be no more (`IBV_EVENT_QP_LAST_WQE_REACHED`); siw does
//! not, but completes it before the queue pair is in the error state. The connection is over after
//! that, and after a last look at the completion queue (`RdmaCore::take_down`).
//!
//! rxe (kernel 6.12) forgets a receive of which a part has arrived. A queue pair of rxe
//! completes one receive before it takes the next. So a receive below every `Binding::floor` was taken by a
//! queue pair that no longer exists. It is then completed as flushed, or freed if the connection is over already.
//!
//! # Protection
//!
//! The device checks the memory of receives against the protection domain of the shared receive
//! queue, whichever domain a queue pair has. rxe checks it against that of the queue pair; its
//! queues can be used where all connections have one domain, and not otherwise (`open.rs`).
//!
//! # Memory
//!
//! The device may write to a receive's memory from `Srq::post` on. The memory is released when the
//! receive has completed; or when the queue has been destroyed, which follows the end of all queue
//! pairs that are bound to it (`RdmaCore::destroy_shared`, or the order of `RdmaCore`'s fields);
//! or, on rxe, when the queue pair that took it has been destroyed.

use std::io;
use std::sync::Arc;

use smallvec::SmallVec;

use super::caps::Kind;
use super::cm::Id;
use super::conn::{Conn, EventSink, Phase};
use super::context::CqContext;
use super::device::RdmaCore;
use super::manager::system;
use super::memory::{Domain, memory_hint};
use super::objects::{Cq, Pd, Srq};
use super::queue::{NotBuilt, Receive};
use super::shared_queue::{Armed, Outstanding, SharedQueue};
use super::sys;
use rdma::{
    DeviceError, Disconnect, Event, IdMap, PostError, QpId, Scatter, SharedReceivesId, WrId,
};

/// Maximum number of completions polled at once.
const AT_ONCE: usize = 16;
const UNKNOWN: DeviceError = DeviceError::Unknown("shared receive queue");

impl RdmaCore {
    /// Checks that a queue pair can be bound to a shared receive queue.
    pub(super) fn check_shared(
        &self,
        receives: Option<SharedReceivesId>,
    ) -> Result<(), DeviceError> {
        match receives.map(|receives| self.shared.get(&receives)) {
            None => Ok(()),
            Some(None) => Err(UNKNOWN),
            Some(Some(queue)) if queue.failed => {
                let error = io::Error::other("the device reported that it failed");
                Err(system("the shared receive queue cannot be used", error))
            }
            Some(Some(_)) => Ok(()),
        }
    }

    pub(super) fn create_shared(&mut self) -> Result<SharedReceivesId, DeviceError> {
        let Some(limits) = self.attributes.shared_receives else {
            return Err(DeviceError::Limit(
                "the device has no shared receive queues",
            ));
        };
        if self.shared.len() >= self.capabilities.max_srq as usize {
            return Err(DeviceError::Limit("shared receive queues"));
        }
        let cannot = |error| system("cannot make a shared receive queue", error);
        let (domain, own_domain) = match &self.domain {
            Some(domain) => (Arc::clone(domain), false),
            None => {
                let pd = Pd::new(&self.context).map_err(cannot)?;
                (Arc::new(Domain::new(pd)), true)
            }
        };
        // One sequence of numbers for queue pairs and these queues, because a completion queue's
        // context may name either.
        let id = SharedReceivesId(self.membership.new_id());
        let (max_wr, pieces) = (limits.max_wr as u32, self.attributes.max_scatter as u32);
        let mark = CqContext::new(QpId(id.0), true).0;
        let completions = Cq::new(&self.channel, max_wr, mark).map_err(cannot)?;
        let srq = Srq::new(&domain.pd, max_wr, pieces, id.0 as usize).map_err(cannot)?;
        let queue = SharedQueue {
            srq: Some(srq),
            completions,
            receives: Outstanding::default(),
            domain,
            own_domain,
            arenas: Arc::clone(&self.policy.arenas),
            max_wr: limits.max_wr,
            structure: None,
            armed: None,
            limited: false,
            by_number: IdMap::default(),
            is_held: false,
            failed: false,
        };
        self.shared.insert(id, queue);
        Ok(id)
    }

    pub(super) fn post_shared(
        &mut self,
        receives: SharedReceivesId,
        id: WrId,
        receive: Scatter,
    ) -> Result<(), (PostError, Scatter)> {
        let Some(queue) = self.shared.get_mut(&receives) else {
            return Err((PostError::Unknown, receive));
        };
        if queue.failed {
            return Err((PostError::NotConnected, receive));
        }
        if queue.is_full() {
            return Err((PostError::QueueFull, receive));
        }
        if receive.count() > self.attributes.max_scatter {
            return Err((PostError::TooManyElements, receive));
        }
        if !queue.fits(&receive) {
            return Err((PostError::Structure, receive));
        }
        let policy = &self.policy;
        match Receive::new(id, receive, &policy.arenas, &queue.domain, &policy.pool) {
            Ok(receive) => {
                if let Err(error) = queue.post(receive) {
                    // The device may have accepted the receive, so it stays where it is.
                    let why = format!("a receive was not posted: {error}");
                    self.shared_queue_failed(receives, &why);
                }
                Ok(())
            }
            Err((NotBuilt::NoMemory, receive)) => Err((PostError::QueueFull, receive)),
            Err((NotBuilt::Registration(error), receive)) => {
                let hint = memory_hint(&error);
                rpcrdma_host::limited!(error, %error, "memory of a receive cannot be registered{hint}");
                Err((PostError::QueueFull, receive))
            }
        }
    }

    /// Implements [`rdma::Device::arm_shared_receives`]. The device's limit covers what it takes
    /// from now on, also for messages that are not complete; what it has taken before is counted
    /// here.
    pub(super) fn arm_shared_limit(
        &mut self,
        receives: SharedReceivesId,
        below: usize,
    ) -> Result<(), DeviceError> {
        if !self.shared.contains_key(&receives) {
            return Err(UNKNOWN);
        }
        // An event of an earlier request must not be taken for one of this request.
        self.take_async_events();
        self.reap_shared(receives);
        drop(self.forgotten(receives));
        let Some(queue) = self.shared.get_mut(&receives) else {
            return Err(UNKNOWN);
        };
        queue.armed = (below > 0).then_some(Armed {
            below,
            next: queue.receives.next,
        });
        let limit = match queue.posted() < below {
            true => 0,
            false => u32::try_from(below).unwrap_or(u32::MAX),
        };
        if (limit > 0 || queue.limited)
            && let Some(srq) = &queue.srq
        {
            let set = srq.set_limit(limit);
            set.map_err(|error| system("cannot limit a shared receive queue", error))?;
            queue.limited = limit > 0;
        }
        self.tell_if_low(receives);
        Ok(())
    }

    pub(super) fn destroy_shared(&mut self, receives: SharedReceivesId) -> Result<(), DeviceError> {
        if !self.shared.contains_key(&receives) {
            return Err(UNKNOWN);
        }
        if self.bound_to(receives).next().is_some() {
            return Err(DeviceError::Bound);
        }
        self.shared.remove(&receives);
        self.events
            .retain(|event| !matches!(event, Event::SharedReceivesLow { id } if *id == receives));
        Ok(())
    }

    fn bound_to(&self, receives: SharedReceivesId) -> impl Iterator<Item = &Conn> {
        let bound = move |conn: &&Conn| {
            let binding = conn.binding.as_ref();
            binding.is_some_and(|binding| binding.queue == receives)
        };
        self.conns.values().filter(bound)
    }

    /// Returns the number of the first receive that a queue pair may have taken and not completed.
    fn floor(&self, receives: SharedReceivesId) -> u64 {
        let bound = self.bound_to(receives);
        let existing = bound.filter(|conn| {
            let number = conn.id.as_ref().and_then(Id::queue_pair_number);
            number.is_some()
        });
        let floors = existing.filter_map(|conn| conn.binding.as_ref().map(|one| one.floor));
        floors.min().unwrap_or(u64::MAX)
    }

    /// Ends all connections of a shared receive queue that cannot be used any more.
    pub(super) fn shared_queue_failed(&mut self, receives: SharedReceivesId, why: &str) {
        let Some(queue) = self.shared.get_mut(&receives) else {
            return;
        };
        if !std::mem::replace(&mut queue.failed, true) {
            tracing::error!("a shared receive queue cannot be used: {why}");
        }
        let bound: Vec<QpId> = self.bound_to(receives).map(|conn| conn.qp).collect();
        for qp in bound {
            if let Some(conn) = self.conns.get_mut(&qp.0) {
                let reason = format!("the shared receive queue cannot be used: {why}");
                let reason = Disconnect::Lost(reason);
                conn.lose(reason, self.now);
                self.timer(qp);
            }
        }
    }

    // ---- completions ----

    pub(super) fn reap_all_shared(&mut self) {
        if !self.shared.is_empty() {
            let all: SmallVec<[SharedReceivesId; 4]> = self.shared.keys().copied().collect();
            all.into_iter()
                .for_each(|receives| self.reap_shared(receives));
        }
    }

    /// Polls the completions of a queue, and hands each receive to the connection of its queue
    /// pair. Connections that have to end because of that are looked at later.
    pub(super) fn reap_shared(&mut self, receives: SharedReceivesId) {
        let mut room = [sys::ibv_wc::default(); AT_ONCE];
        while let Some(queue) = self.shared.get_mut(&receives) {
            let done = match queue.completions.poll(&mut room) {
                Ok(done) => done,
                Err(error) => {
                    let why = format!("its completion queue cannot be used: {error}");
                    return self.shared_queue_failed(receives, &why);
                }
            };
            let more = done.len() == AT_ONCE;
            done.iter().for_each(|wc| self.shared_done(receives, wc));
            if !more {
                break;
            }
        }
        self.tell_if_low(receives);
    }

    fn shared_done(&mut self, receives: SharedReceivesId, wc: &sys::ibv_wc) {
        let Some(queue) = self.shared.get_mut(&receives) else {
            return;
        };
        let Some(receive) = queue.receives.complete(wc.wr_id) else {
            return;
        };
        let conn = queue.by_number.get(&wc.qp_num);
        let conn = conn.and_then(|qp| self.conns.get_mut(&qp.0));
        // A receive of a queue pair that was destroyed is freed.
        let Some(conn) = conn.filter(|conn| !matches!(conn.phase, Phase::Over)) else {
            return;
        };
        let mut out = EventSink {
            events: &mut self.events,
            counters: &mut self.counters,
        };
        let (qp, mut cause) = (conn.qp, None);
        conn.shared_receive_done(receive, wc, &mut out, &mut cause);
        self.end_if(qp, cause);
    }

    /// Handles the device's event that fewer receives are left than its limit.
    pub(super) fn shared_limit_reached(&mut self, receives: SharedReceivesId) {
        let Some(queue) = self.shared.get_mut(&receives) else {
            return;
        };
        queue.limited = false;
        // None if the program was told because of completions.
        if let Some(armed) = queue.armed.take() {
            queue
                .receives
                .at_most(armed.below.saturating_sub(1), armed.next);
            let low = Event::SharedReceivesLow { id: receives };
            self.events.push_back(low);
        }
    }

    fn tell_if_low(&mut self, receives: SharedReceivesId) {
        if let Some(queue) = self.shared.get_mut(&receives)
            && queue
                .armed
                .is_some_and(|armed| queue.posted() < armed.below)
        {
            queue.armed = None;
            let low = Event::SharedReceivesLow { id: receives };
            self.events.push_back(low);
        }
    }

    /// Arms the completion queues that are not armed, and polls all once more, because a completion
    /// between the last poll and the arming generates no event.
    pub(super) fn arm_shared(&mut self) {
        for queue in self.shared.values_mut() {
            if !queue.completions.is_armed() {
                queue.completions.arm();
            }
        }
        self.reap_all_shared();
    }

    // ---- the end of a queue pair ----

    /// Takes down a connection's queue pair. Returns its identifier, and the receives that the
    /// queue pair took from a shared receive queue and that the device has forgotten.
    pub(super) fn take_down(&mut self, qp: QpId) -> (Option<Id>, Vec<Receive>) {
        let Some(conn) = self.conns.get_mut(&qp.0) else {
            return (None, Vec::new());
        };
        let number = conn.id.as_ref().and_then(Id::queue_pair_number);
        let queue = conn.binding.as_ref().map(|binding| binding.queue);
        let (Some(receives), Some(number)) = (queue, number) else {
            return (conn.take_down(), Vec::new());
        };
        // Libraries may drop the completions of a queue pair when it is destroyed, and others keep
        // them. The number may be used again after that.
        conn.fail();
        self.reap_shared(receives);
        let id = self.conns.get_mut(&qp.0).and_then(Conn::take_down);
        let remains = self.conns.get(&qp.0).is_some_and(|conn| conn.remains);
        self.reap_shared(receives);
        if let Some(queue) = self.shared.get_mut(&receives) {
            queue.by_number.remove(&number);
            queue.is_held |= remains;
        }
        (id, self.forgotten(receives))
    }

    /// Removes the receives that rxe has forgotten, as far as that is certain.
    fn forgotten(&mut self, receives: SharedReceivesId) -> Vec<Receive> {
        if self.capabilities.kind != Kind::Rxe {
            return Vec::new();
        }
        let floor = self.floor(receives);
        let queue = self
            .shared
            .get_mut(&receives)
            .filter(|queue| !queue.is_held);
        queue.map_or_else(Vec::new, |queue| queue.receives.forgotten(floor))
    }
}
