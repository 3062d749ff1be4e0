//! One queue pair: its send queue, requests that wait for room in it, and its receives.

use std::collections::VecDeque;

use onc_rpc::{Segments, total_len};
use rdma::{Device, Pool, PoolExhausted, PostError, QpId, SendWr, Stag, WrId};

use super::gather;
use super::receives::Receives;
use super::send_queue::SendQueue;
use super::wr_id::RECEIVES;

/// The work request that a completion is about.
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
    /// The posted requests that are not known to be done, with the contexts of signaled ones.
    sends: SendQueue<Option<T>>,
    /// Whether every request is signaled, to see whether the peer makes progress.
    watched: bool,
    /// The pool into which gather lists that are too long for the device are copied.
    pool: Pool,
    /// Requests that wait for room, in order.
    backlog: VecDeque<Queued<T>>,
    /// Number of messages whose last or only Send is among those.
    backlog_messages: usize,
    capacity: usize,
    /// Where its receives come from.
    pub(super) receives: Receives,
    /// Number of bytes copied from long gather lists.
    copied: u64,
}

impl<T> QueuePair<T> {
    /// Returns a queue pair with `capacity` entries in its send queue, which takes its receives
    /// from `receives`. Gather lists that are too long for the device are copied into `pool`.
    pub(crate) fn new(qp: QpId, capacity: usize, receives: Receives, pool: Pool) -> Self {
        Self {
            qp,
            sends: SendQueue::default(),
            watched: false,
            pool,
            backlog: VecDeque::new(),
            backlog_messages: 0,
            capacity: capacity.max(1),
            receives,
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
        self.sends.awaited() > 0
    }

    /// Returns whether requests wait for room in the send queue.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns how many requests have been posted.
    pub(crate) fn posted(&self) -> u64 {
        self.sends.next()
    }

    /// Frees memory that more requests needed than wait or are posted now, and returns the number of bytes freed.
    pub(crate) fn give_back(&mut self) -> usize {
        rdma::shrink(&mut self.backlog) + self.sends.give_back()
    }

    /// Returns how many signaled requests have completed.
    pub(crate) fn completed(&self) -> u64 {
        self.sends.completed()
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
        let waits = match self.backlog.is_empty() && self.sends.busy() < self.capacity {
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
            let len = total_len(&gather);
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
        while self.sends.busy() < self.capacity
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
            // `try_post` sets the number to 0 if the connection ends.
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
        // One in every half queue is signaled, so a queue that is full by this count has a completion to wait
        // for. A device may also refuse for lack of memory, or of room for the bindings of windows; then
        // perhaps none is signaled, and a timer tries again (`wants_retry`).
        let signaled = context.is_some()
            || self.watched
            || self.sends.silent() + 1 >= self.capacity.div_ceil(2);
        let id = WrId(self.sends.next());
        match device.post_send(self.qp, id, wr, signaled) {
            Ok(()) => {
                self.sends.push(signaled.then_some(context));
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
        if id.0 >= RECEIVES {
            return Done::Receive;
        }
        let context = self.sends.complete(id.0).flatten();
        context.map_or(Done::Nothing, Done::Work)
    }

    /// Returns the number of entries that are free in the send queue.
    pub(crate) fn room(&self) -> usize {
        match self.backlog.is_empty() {
            true => self.capacity.saturating_sub(self.sends.busy()),
            false => 0,
        }
    }

    /// Returns the number of bytes copied: short messages, gather lists that are too long for the
    /// device, and messages whose receives had to be posted again at once.
    pub(crate) fn copied(&self) -> u64 {
        self.copied + self.receives.copied()
    }

    /// Returns the number of messages whose last Send waits for room in the send queue.
    pub(crate) fn queued_messages(&self) -> usize {
        self.backlog_messages
    }

    /// Returns whether requests wait for room that no completion will announce. Only signaled requests
    /// complete.
    pub(crate) fn wants_retry(&self) -> bool {
        !self.backlog.is_empty() && self.sends.awaited() == 0
    }
}
