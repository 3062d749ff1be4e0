//! One queue pair: its send queue, requests that wait for room in it, and its receives.

use std::collections::VecDeque;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Buf, Device, Pool, PoolExhausted, PostError, QpId, Scatter, SendWr, Stag, WrId};

use rpcrdma_connection::{REPOST_LATER, ReceiveStructure};

use super::gather;
use super::receives::{SparePieces, alloc, restore};

/// The `wr_id` of every receive. The completion returns the buffer, so receives need no distinct
/// identifiers. The `wr_id` of a request in the send queue is its sequence number, which stays far
/// below.
const RECEIVE: WrId = WrId(u64::MAX);

/// The state of a request in the send queue. `T` is the context that the completion returns to the
/// poster.
#[derive(Debug)]
enum Work<T> {
    /// The request is done. Its entry is removed when it is the oldest.
    Done,
    /// The request has no completion of its own. As requests start in order, the completion of a
    /// later one says that it is done.
    Silent,
    /// The request is signaled. Its completion brings this context back.
    Signaled(T),
}

/// What has completed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done<T> {
    /// A receive.
    Receive,
    /// A signaled request, with its context.
    Work(T),
    /// A request that was signaled only to learn how full the queue is, or an unknown one.
    Nothing,
}

/// A request that waits for room in the send queue.
#[derive(Debug)]
struct Queued<T> {
    wr: SendWr,
    context: Option<T>,
    /// Whether the request is the last or only Send of a message.
    ends_message: bool,
}

/// One queue pair: its send queue, requests that wait for room in it, and its receives. `T` is the
/// context that posters of signaled requests get back with the completion.
#[derive(Debug)]
pub(crate) struct QueuePair<T> {
    qp: QpId,
    /// The posted requests, oldest first. The sequence number of the oldest is `first`.
    work: VecDeque<Work<Option<T>>>,
    first: u64,
    /// Number of posted requests that are not known to be done.
    busy: usize,
    /// Number of unsignaled requests since the last signaled one.
    silent: usize,
    /// Number of signaled requests that have not completed, and of those that have.
    awaited: usize,
    completed: u64,
    /// Whether every request is signaled, to see whether the peer makes progress.
    watched: bool,
    /// The pool into which gather lists that are too long for the device are copied.
    pool: Pool,
    /// Requests that wait for room, in order.
    backlog: VecDeque<Queued<T>>,
    /// Number of messages whose last or only Send is among those.
    backlog_messages: usize,
    capacity: usize,
    /// The structure of the receives that are posted from now on.
    structure: ReceiveStructure,
    /// Number of posted receives.
    receives: u32,
    /// The structures of the posted receives, oldest first, each with the number of receives that
    /// have it. Empty while all have `structure`.
    mixed: VecDeque<(u32, ReceiveStructure)>,
    /// Whether to report when the last receive of an earlier structure has been consumed.
    replacing: bool,
    /// Pieces of consumed receives that can be posted again.
    spare: SparePieces,
    /// Number of consumed receives that have not been posted again yet.
    to_repost: u32,
    /// Number of receives that are posted and not needed any more.
    unneeded: u32,
    /// Whether the device has refused a receive: the connection is ending.
    ending: bool,
    /// Number of bytes copied from long gather lists, and out of receives that were needed at once.
    copied: u64,
}

impl<T> QueuePair<T> {
    /// Returns a queue pair whose send queue has `capacity` entries, and whose receives have this
    /// structure. Long gather lists are copied into `pool`.
    pub(crate) fn new(qp: QpId, capacity: usize, structure: ReceiveStructure, pool: Pool) -> Self {
        Self {
            qp,
            work: VecDeque::new(),
            first: 0,
            busy: 0,
            silent: 0,
            awaited: 0,
            completed: 0,
            watched: false,
            pool,
            backlog: VecDeque::new(),
            backlog_messages: 0,
            capacity: capacity.max(1),
            structure,
            receives: 0,
            mixed: VecDeque::new(),
            replacing: false,
            spare: SparePieces::default(),
            to_repost: 0,
            unneeded: 0,
            ending: false,
            copied: 0,
        }
    }

    /// Sets whether every request is signaled from now on.
    pub(crate) fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// Returns whether signaled requests are outstanding. They complete unless the peer or the
    /// network fails.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Returns how many signaled requests have completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    pub(crate) fn qp(&self) -> QpId {
        self.qp
    }

    /// Posts a request, now or as soon as there is room. A request with a context is signaled.
    pub(crate) fn post(&mut self, device: &mut dyn Device, wr: SendWr, context: Option<T>) {
        let ends_message = matches!(wr, SendWr::Send { .. });
        self.post_or_queue(device, wr, context, ends_message);
    }

    fn post_or_queue(
        &mut self,
        device: &mut dyn Device,
        wr: SendWr,
        context: Option<T>,
        ends_message: bool,
    ) {
        let waits = match self.backlog.is_empty() && self.busy < self.capacity {
            true => self.try_post(device, wr, context).err(),
            false => Some((wr, context)),
        };
        if let Some((wr, context)) = waits {
            self.backlog_messages += usize::from(ends_message);
            self.backlog.push_back(Queued {
                wr,
                context,
                ends_message,
            });
        }
    }

    /// Posts an unsignaled Send. More Sends of the same message follow if `more` is true.
    ///
    /// # Errors
    /// [`PoolExhausted`]: the gather list is too long for the device, and there is no memory to copy it.
    pub(crate) fn send(
        &mut self,
        device: &mut dyn Device,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) -> Result<(), PoolExhausted> {
        let max = device.attributes().max_gather;
        let gather = match gather.len() > max {
            true => gather::shorten(gather, max, &self.pool, &mut self.copied)?,
            false => gather,
        };
        self.post_or_queue(device, SendWr::Send { gather, invalidate }, None, !more);
        Ok(())
    }

    /// Posts an RDMA Write, or several if the gather list is too long for one.
    pub(crate) fn write(
        &mut self,
        device: &mut dyn Device,
        mut gather: Segments,
        stag: Stag,
        mut offset: u64,
    ) {
        let max = device.attributes().max_gather.max(1);
        while !gather.is_empty() {
            let rest = gather.drain(max.min(gather.len())..).collect();
            let len: u64 = gather.iter().map(|piece| piece.len() as u64).sum();
            self.post(
                device,
                SendWr::Write {
                    gather,
                    stag,
                    offset,
                },
                None,
            );
            // A segment that passes the end of the address space was refused with its call.
            offset += len;
            gather = rest;
        }
    }

    /// Posts requests that wait, as far as there is room.
    #[inline]
    pub(crate) fn flush(&mut self, device: &mut dyn Device) {
        if !self.backlog.is_empty() {
            self.post_waiting(device);
        }
    }

    fn post_waiting(&mut self, device: &mut dyn Device) {
        while self.busy < self.capacity
            && let Some(Queued {
                wr,
                context,
                ends_message,
            }) = self.backlog.pop_front()
        {
            if let Err((wr, context)) = self.try_post(device, wr, context) {
                self.backlog.push_front(Queued {
                    wr,
                    context,
                    ends_message,
                });
                return;
            }
            // None is left where the connection turned out to be ending.
            let left = self.backlog_messages;
            self.backlog_messages = left.saturating_sub(usize::from(ends_message));
        }
    }

    /// Posts a request.
    ///
    /// # Errors
    /// The device has no room. The request and its context are returned.
    fn try_post(
        &mut self,
        device: &mut dyn Device,
        wr: SendWr,
        context: Option<T>,
    ) -> Result<(), (SendWr, Option<T>)> {
        // At least one of any queue-full of requests is signaled, so there always is a completion
        // to wait for when there is no room.
        let signaled =
            context.is_some() || self.watched || self.silent + 1 >= self.capacity.div_ceil(2);
        let id = WrId(self.first + self.work.len() as u64);
        match device.post_send(self.qp, id, wr, signaled) {
            Ok(()) => {
                self.busy += 1;
                self.awaited += usize::from(signaled);
                self.silent = if signaled { 0 } else { self.silent + 1 };
                self.work.push_back(match signaled {
                    true => Work::Signaled(context),
                    false => Work::Silent,
                });
                Ok(())
            }
            Err((PostError::QueueFull, wr)) => Err((wr, context)),
            Err((error, _)) => {
                // The connection is ending, and its end will be reported.
                tracing::debug!(qp = self.qp.0, %error, "not posted");
                self.backlog.clear();
                self.backlog_messages = 0;
                Ok(())
            }
        }
    }

    /// Records a completion, and returns what has completed. [`QueuePair::flush`] may have room
    /// now.
    pub(crate) fn complete(&mut self, id: WrId) -> Done<T> {
        if id == RECEIVE {
            return Done::Receive;
        }
        let index = id.0.checked_sub(self.first);
        let Some(index) = index.and_then(|index| usize::try_from(index).ok()) else {
            return Done::Nothing;
        };
        let Some(entry) = self.work.get_mut(index) else {
            return Done::Nothing;
        };
        let context = match std::mem::replace(entry, Work::Done) {
            Work::Signaled(context) => {
                self.busy -= 1;
                self.awaited -= 1;
                self.completed += 1;
                context
            }
            // An unsignaled request that failed.
            Work::Silent => {
                self.busy -= 1;
                None
            }
            Work::Done => None,
        };
        for earlier in self.work.iter_mut().take(index) {
            if matches!(earlier, Work::Silent) {
                *earlier = Work::Done;
                self.busy -= 1;
            }
        }
        while matches!(self.work.front(), Some(Work::Done)) {
            self.work.pop_front();
            self.first += 1;
        }
        context.map_or(Done::Nothing, Done::Work)
    }

    /// Posts a receive that has the current structure, or `other`.
    fn post_receive(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        other: Option<ReceiveStructure>,
    ) {
        match device.post_receive(self.qp, RECEIVE, receive) {
            Ok(()) => {
                if other.is_some() || !self.mixed.is_empty() {
                    self.note_mixed(other);
                }
                self.receives += 1;
            }
            // The connection is ending, so no message will need the receive.
            Err((error @ (PostError::NotConnected | PostError::Unknown), _)) => {
                tracing::debug!(qp = self.qp.0, %error, "receive not posted");
                self.ending = true;
            }
            // The peer's credits promise the receive, and a message could find none.
            Err((error, _)) => {
                if !std::mem::replace(&mut self.ending, true) {
                    rdma::limited!(error, qp = self.qp.0, %error, "no receive can be posted: ending the connection");
                    device.abort(self.qp);
                }
            }
        }
    }

    /// Records a receive that was posted while not all receives have the current structure.
    #[cold]
    fn note_mixed(&mut self, other: Option<ReceiveStructure>) {
        if self.mixed.is_empty() && self.receives > 0 {
            self.mixed
                .push_back((self.receives, self.structure.clone()));
        }
        let structure = other.unwrap_or_else(|| self.structure.clone());
        match self.mixed.back_mut() {
            Some((count, last)) if *last == structure => *count += 1,
            _ => self.mixed.push_back((1, structure)),
        }
    }

    /// Records that the oldest receive was consumed. Returns its structure while not all receives
    /// have the current one.
    fn used(&mut self) -> Option<ReceiveStructure> {
        self.receives = self.receives.saturating_sub(1);
        let (count, structure) = self.mixed.front_mut()?;
        *count = count.saturating_sub(1);
        let used = match *count {
            0 => self.mixed.pop_front().map(|(_, structure)| structure),
            _ => Some(structure.clone()),
        };
        self.forget_mixed();
        used
    }

    fn forget_mixed(&mut self) {
        let current = &self.structure;
        if self.mixed.iter().all(|(_, structure)| structure == current) {
            self.mixed.clear();
        }
    }

    /// Returns the message in a consumed receive, in a piece for each segment that it reached.
    /// Another receive is posted in its place, now or by [`QueuePair::repost`].
    ///
    /// The peer's credits promise the receives, so one is posted even if the pool has no memory:
    /// then the message is copied out of its buffers, and those are posted again.
    pub(crate) fn received(&mut self, device: &mut dyn Device, receive: Scatter) -> Segments {
        let structure = self.used();
        let keep = structure.is_none();
        if self.unneeded > 0 {
            self.unneeded -= 1;
            // No receive takes its place, so none needs its pieces.
            return self.spare.message(receive, false);
        }
        if self.to_repost < REPOST_LATER {
            self.to_repost += 1;
            return self.spare.message(receive, keep);
        }
        match alloc(&self.structure, device.pool(), &mut self.spare) {
            Ok(next) => {
                self.post_receive(device, next, None);
                self.spare.message(receive, keep)
            }
            Err(_) => {
                let message = receive.to_vec();
                self.copied += message.len() as u64;
                self.repost_buffers(device, receive, structure);
                Segments::from_iter([Bytes::from(message)])
            }
        }
    }

    /// Posts the buffers of a consumed receive again, which has the current structure or `other`.
    #[cold]
    fn repost_buffers(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        other: Option<ReceiveStructure>,
    ) {
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        let other = if restore(&self.structure, &mut pieces) {
            None
        } else if let Some(other) = other.filter(|other| restore(other, &mut pieces)) {
            // It has the old structure, so receives are being replaced for longer.
            Some(other)
        } else {
            // Only a device that does not return the buffers that it was given comes here.
            rdma::limited!(error, qp = self.qp.0, "no memory for a receive");
            return device.abort(self.qp);
        };
        let first = pieces.remove(0);
        self.post_receive(device, Scatter::new(first, pieces), other);
    }

    /// Posts `count` further receives, or none. Returns whether there was memory for all.
    pub(crate) fn post_receives(&mut self, device: &mut dyn Device, count: u32) -> bool {
        let there = self.unneeded.min(count);
        let receives = (there..count)
            .map(|_| alloc(&self.structure, device.pool(), &mut SparePieces::default()));
        // All or none: a call that is planned again must not be short of memory for that.
        let Ok(receives) = receives.collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        self.unneeded -= there;
        for receive in receives {
            self.post_receive(device, receive, None);
        }
        true
    }

    /// Stops the reposting of the next `count` consumed receives.
    pub(crate) fn release(&mut self, count: u32) {
        self.unneeded += count;
    }

    /// Replaces every receive, after it has been consumed, by one of another structure.
    pub(crate) fn set_receives(&mut self, structure: ReceiveStructure) {
        let old = std::mem::replace(&mut self.structure, structure);
        if self.mixed.is_empty() && self.receives > 0 {
            self.mixed.push_back((self.receives, old));
        }
        self.forget_mixed();
        self.spare.clear();
        self.replacing = true;
    }

    /// Returns the new structure set by [`QueuePair::set_receives`], once, as soon as no posted
    /// receive has an older one.
    pub(crate) fn receives_replaced(&mut self) -> Option<ReceiveStructure> {
        let replaced = self.mixed.is_empty() && std::mem::take(&mut self.replacing);
        replaced.then(|| self.structure.clone())
    }

    /// Returns whether consumed receives have not been posted again yet.
    pub(crate) fn has_to_repost(&self) -> bool {
        self.to_repost > 0
    }

    /// Posts receives in place of consumed ones, as far as there is memory.
    pub(crate) fn repost(&mut self, device: &mut dyn Device) {
        while self.to_repost > 0 {
            let receive = alloc(&self.structure, device.pool(), &mut self.spare);
            let Ok(receive) = receive else { return };
            self.to_repost -= 1;
            self.post_receive(device, receive, None);
        }
    }

    /// Returns whether at least `messages` receives are posted, or the connection is ending anyway.
    pub(crate) fn can_receive(&self, messages: u32) -> bool {
        self.ending || self.receives >= messages
    }

    /// Returns the number of entries that are free in the send queue.
    pub(crate) fn room(&self) -> usize {
        match self.backlog.is_empty() {
            true => self.capacity.saturating_sub(self.busy),
            false => 0,
        }
    }

    /// Returns the number of bytes copied: short messages, gather lists that are too long for the
    /// device, and messages whose receives had to be posted again at once.
    pub(crate) fn copied(&self) -> u64 {
        self.copied + self.spare.copied()
    }

    /// Returns the number of messages whose last Send waits for room in the send queue.
    pub(crate) fn queued_messages(&self) -> usize {
        self.backlog_messages
    }

    /// Returns whether requests wait for room that no completion will announce.
    pub(crate) fn wants_retry(&self) -> bool {
        !self.backlog.is_empty() && self.busy == 0
    }
}
