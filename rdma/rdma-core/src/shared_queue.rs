//! One shared receive queue: its receives, and how many of them the device has left. The documentation of
//! `shared` describes its use, and when its memory is released.

use std::io;
use std::ptr;
use std::sync::Arc;

use super::memory::{Arenas, Domain};
use super::objects::{Cq, Srq};
use super::queue::Receive;
use super::sys;
use rdma::{IdMap, QpId, Scatter};

/// The receives of a queue that have not completed, by their numbers. They are numbered from 0 in
/// the order in which they are posted.
pub(super) struct Outstanding<R> {
    pub(super) receives: IdMap<u64, R>,
    /// Number of the next receive.
    pub(super) next: u64,
    /// Number of the first receive that may not have been taken, according to completions: one that
    /// completed proves that all before it were taken.
    pub(super) proven: u64,
    /// Number of the first receive that may not have been taken, according to completions and the device's
    /// events. An event can be an old one, so no memory is freed because of it.
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
    pub(super) fn add(&mut self, receive: R) -> u64 {
        let number = self.next;
        self.receives.insert(number, receive);
        self.next += 1;
        number
    }

    /// Removes a receive that has completed, if there is one with this number.
    pub(super) fn complete(&mut self, number: u64) -> Option<R> {
        let receive = self.receives.remove(&number)?;
        self.proven = self.proven.max(number + 1);
        self.taken = self.taken.max(self.proven);
        Some(receive)
    }

    /// Records that at most `left` of the receives before number `next` have not been taken.
    pub(super) fn at_most(&mut self, left: usize, next: u64) {
        self.taken = self.taken.max(next.saturating_sub(left as u64));
    }

    /// Returns the number of receives that have not been taken.
    pub(super) fn posted(&self) -> usize {
        usize::try_from(self.next - self.taken).unwrap_or(usize::MAX)
    }

    /// Removes the receives that were taken by queue pairs that no longer exist, in order. All that
    /// exist have completed what they took before number `floor`.
    pub(super) fn forgotten(&mut self, floor: u64) -> Vec<R> {
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
pub(super) struct Armed {
    pub(super) below: usize,
    /// Number of the next receive when the request was made.
    pub(super) next: u64,
}

/// A shared receive queue.
pub(super) struct SharedQueue {
    /// `None` only while the queue is dropped.
    pub(super) srq: Option<Srq>,
    pub(super) completions: Cq,
    pub(super) receives: Outstanding<Receive>,
    pub(super) domain: Arc<Domain>,
    /// Whether the domain is the queue's own.
    pub(super) own_domain: bool,
    pub(super) arenas: Arc<Arenas>,
    pub(super) max_wr: usize,
    /// Lengths of the buffers of every receive, once one was posted.
    pub(super) structure: Option<Box<[usize]>>,
    pub(super) armed: Option<Armed>,
    /// Whether the device may still report that its limit was reached.
    pub(super) limited: bool,
    /// Bound queue pairs by the device's number.
    pub(super) by_number: IdMap<u32, QpId>,
    /// Whether a queue pair could not be destroyed. It may have taken a receive, and nobody knows which.
    pub(super) is_held: bool,
    pub(super) failed: bool,
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

    /// Records a new queue pair that is bound to this queue, with the device's number. Returns the number of
    /// the first receive that it may take.
    pub(super) fn bind(&mut self, number: u32, qp: QpId) -> u64 {
        self.by_number.insert(number, qp);
        self.receives.proven
    }

    /// Records that an event of the completion queue was read from the completion channel.
    pub(super) fn fired(&mut self) {
        self.completions.told();
    }

    /// Returns whether the completion channel may hold an event that has not been read.
    pub(super) fn may_have_fired(&self) -> bool {
        self.completions.may_have_fired()
    }

    pub(super) fn is_full(&self) -> bool {
        // Some libraries keep the place of a receive until its completion is polled.
        self.receives.receives.len() >= self.max_wr
    }

    /// Returns whether a receive has the structure of those before it, or is the first.
    pub(super) fn fits(&mut self, receive: &Scatter) -> bool {
        let lengths = || receive.pieces().map(|piece| piece.len());
        let structure = self.structure.get_or_insert_with(|| lengths().collect());
        lengths().eq(structure.iter().copied())
    }

    pub(super) fn post(&mut self, receive: Receive) -> io::Result<()> {
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
        // and they stay in `receives` as long as the documentation of `shared` says. The memory is
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
