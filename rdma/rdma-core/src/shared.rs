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
use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::caps::Kind;
use super::cm::Id;
use super::conn::{Conn, EventSink, Phase};
use super::context::CqContext;
use super::device::RdmaCore;
use super::manager::system;
use super::memory::{Arenas, Domain, memory_hint};
use super::objects::{Cq, Pd, Srq};
use super::queue::{NotBuilt, Receive};
use super::sys;
use rdma::{
    DeviceError, Disconnect, Event, IdMap, PostError, QpId, Scatter, SharedReceivesId, WrId,
};

/// Maximum number of completions polled at once.
const AT_ONCE: usize = 16;
const UNKNOWN: DeviceError = DeviceError::Unknown("shared receive queue");

/// The receives of a queue that have not completed, by their numbers. They are numbered from 0 in
/// the order in which they are posted.
struct Outstanding<R> {
    receives: IdMap<u64, R>,
    /// Number of the next receive.
    next: u64,
    /// Number of the first receive that may not have been taken, according to completions: one that
    /// completed proves that all before it were taken.
    proven: u64,
    /// The same, according to the device's events as well. An event can be an old one, so no memory
    /// is freed because of it.
    taken: u64,
}

impl<R> Default for Outstanding<R> {
    fn default() -> Self {
        Self {
            receives: IdMap::default(),
            next: 0,
            proven: 0,
            taken: 0,
        }
    }
}

impl<R> Outstanding<R> {
    /// Adds a receive, and returns its number.
    fn add(&mut self, receive: R) -> u64 {
        let number = self.next;
        self.receives.insert(number, receive);
        self.next += 1;
        number
    }

    /// Removes a receive that has completed, if there is one with this number.
    fn complete(&mut self, number: u64) -> Option<R> {
        let receive = self.receives.remove(&number)?;
        self.proven = self.proven.max(number + 1);
        self.taken = self.taken.max(self.proven);
        Some(receive)
    }

    /// Records that at most `left` of the receives before number `next` have not been taken.
    fn at_most(&mut self, left: usize, next: u64) {
        self.taken = self.taken.max(next.saturating_sub(left as u64));
    }

    /// Returns the number of receives that have not been taken.
    fn posted(&self) -> usize {
        usize::try_from(self.next - self.taken).unwrap_or(usize::MAX)
    }

    /// Removes the receives that were taken by queue pairs that no longer exist, in order. All that
    /// exist have completed what they took before number `floor`.
    fn forgotten(&mut self, floor: u64) -> Vec<R> {
        if self.receives.len() == self.posted() {
            return Vec::new();
        }
        let end = self.proven.min(floor);
        let mut numbers: Vec<u64> = self.receives.keys().copied().collect();
        numbers.retain(|number| *number < end);
        numbers.sort_unstable();
        let removed = numbers.iter().filter_map(|n| self.receives.remove(n));
        removed.collect()
    }
}

/// A request of [`rdma::Device::arm_shared_receives`].
#[derive(Clone, Copy)]
struct Armed {
    below: usize,
    /// Number of the next receive when the request was made.
    next: u64,
}

/// A shared receive queue.
pub(super) struct SharedQueue {
    /// `None` only while the queue is dropped.
    srq: Option<Srq>,
    completions: Cq,
    receives: Outstanding<Receive>,
    domain: Arc<Domain>,
    /// Whether the domain is the queue's own.
    own_domain: bool,
    arenas: Arc<Arenas>,
    max_wr: usize,
    /// Lengths of the buffers of every receive, once one was posted.
    structure: Option<Box<[usize]>>,
    armed: Option<Armed>,
    /// Whether the device may still report that its limit was reached.
    limited: bool,
    /// Bound queue pairs by the device's number.
    by_number: IdMap<u32, QpId>,
    /// Whether a queue pair could not be destroyed. It may have taken a receive, and nobody knows which.
    is_held: bool,
    failed: bool,
}

impl SharedQueue {
    pub(super) fn srq(&self) -> Option<&Srq> {
        self.srq.as_ref()
    }

    /// Returns the completion queue for the receives of bound queue pairs.
    pub(super) fn completions(&self) -> &Cq {
        &self.completions
    }

    /// Returns the number of receives that no message has taken.
    pub(super) fn posted(&self) -> usize {
        self.receives.posted()
    }

    /// Records a new queue pair that is bound to this queue.
    pub(super) fn bind(&mut self, conn: &mut Conn) {
        let number = conn.id.as_ref().and_then(Id::queue_pair_number);
        if let (Some(number), Some(binding)) = (number, &mut conn.binding) {
            self.by_number.insert(number, conn.qp);
            binding.floor = self.receives.proven;
        }
    }

    /// Records that an event of the completion queue was read from the completion channel.
    pub(super) fn fired(&mut self) {
        self.completions.told();
    }

    /// Returns whether the completion channel may hold an event that has not been read.
    pub(super) fn may_have_fired(&self) -> bool {
        self.completions.may_have_fired()
    }

    fn is_full(&self) -> bool {
        // Some libraries keep the place of a receive until its completion is polled.
        self.receives.receives.len() >= self.max_wr
    }

    /// Returns whether a receive has the structure of those before it, or is the first.
    fn fits(&mut self, receive: &Scatter) -> bool {
        let lengths = || receive.pieces().map(|piece| piece.len());
        let structure = self.structure.get_or_insert_with(|| lengths().collect());
        lengths().eq(structure.iter().copied())
    }

    fn post(&mut self, receive: Receive) -> io::Result<()> {
        let number = self.receives.add(receive);
        let receive = self.receives.receives.get_mut(&number);
        let (Some(receive), Some(srq)) = (receive, &self.srq) else {
            return Ok(());
        };
        let mut request = sys::ibv_recv_wr {
            wr_id: number,
            next: ptr::null_mut(),
            sg_list: receive.pieces.as_mut_ptr(),
            num_sge: receive.pieces.len() as i32,
        };
        // SAFETY: the memory belongs to the receive's `LocalBuffer`s. Nobody else can access them,
        // and they stay in `receives` as long as the module's documentation says. The memory is
        // registered in the queue's domain until its arena is released, which is after that.
        unsafe { srq.post(&mut request) }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // The queue pairs are gone (`RdmaCore::destroy_shared`, or the order of its fields).
        let destroyed = self.srq.take().map_or(Ok(()), Srq::destroy);
        if let Err(error) = destroyed {
            tracing::error!(%error, "a shared receive queue remains; its memory is never freed");
            std::mem::forget(std::mem::take(&mut self.receives));
        }
        self.receives = Outstanding::default();
        if self.own_domain {
            self.arenas.leave(&self.domain);
        }
    }
}

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
                rdma::limited!(error, %error, "memory of a receive cannot be registered{hint}");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(count: u64) -> Outstanding<u64> {
        let mut all = Outstanding::default();
        for number in 0..count {
            assert_eq!(all.add(number), number);
        }
        all
    }

    #[test]
    fn a_receive_that_completes_proves_that_those_before_it_were_taken() {
        let mut all = posted(8);
        assert_eq!(all.posted(), 8);
        assert_eq!(all.complete(2), Some(2), "0 and 1 are being filled");
        assert_eq!(all.posted(), 5);
        assert_eq!(all.complete(0), Some(0));
        assert_eq!(all.complete(0), None, "the same completion again");
        assert_eq!(all.complete(8), None, "no such receive");
        assert_eq!((all.posted(), all.receives.len()), (5, 6));
    }

    #[test]
    fn the_device_can_tell_that_fewer_are_left() {
        let mut all = posted(8);
        all.at_most(3, 8);
        assert_eq!(all.posted(), 3);
        assert_eq!(all.add(8), 8);
        assert_eq!(all.posted(), 4);
        // An event that came late says less than is known already.
        all.at_most(7, 8);
        assert_eq!(all.posted(), 4);
        all.at_most(9, 8);
        assert_eq!(all.posted(), 4);
    }

    #[test]
    fn only_what_nobody_can_have_taken_is_forgotten() {
        let mut all = posted(8);
        assert_eq!(all.forgotten(u64::MAX), [], "all may be posted");
        all.at_most(0, 8);
        assert_eq!(all.forgotten(u64::MAX), [], "an event proves nothing");
        assert_eq!(all.complete(5), Some(5));
        assert_eq!(all.forgotten(0), [], "a queue pair may hold any");
        assert_eq!(all.forgotten(2), [0, 1]);
        assert_eq!(all.forgotten(u64::MAX), [2, 3, 4]);
        assert_eq!(all.receives.len(), 2, "6 and 7 may be posted");
    }
}
