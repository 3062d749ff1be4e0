//! One queue pair: what is posted to it and what waits for room.

use std::collections::VecDeque;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Buf, Device, Pool, PoolExhausted, PostError, QpId, Scatter, SendWr, Stag, WrId};

use super::memory;
use super::receives::{ReceiveStructure, Spare};

/// Receives posted beyond the credits, for messages that take no credit.
pub(crate) const EXTRA_RECEIVES: u32 = 4;

/// Receives posted beyond the credits, together: [`EXTRA_RECEIVES`], and as many as may be missing
/// ([`PUT_OFF`]).
pub(crate) const BEYOND_CREDITS: u32 = EXTRA_RECEIVES + PUT_OFF;

/// Used receives that may wait to be replaced, until what came in them has been acted upon: a call's
/// answer is not to wait for them.
const PUT_OFF: u32 = EXTRA_RECEIVES / 2;

/// Mark of every receive. The buffer comes back with the completion, so nothing need be told
/// apart; send-queue marks are sequence numbers and stay far below.
const RECEIVE: WrId = WrId(u64::MAX);

/// A request in the send queue, as far as is known here.
#[derive(Debug)]
enum Work<T> {
    /// It is done: its slot is free as soon as it is the oldest.
    Done,
    /// It has no completion of its own. A later one's completion says that it is done, as requests
    /// start in order.
    Silent,
    /// Its completion brings this back.
    Signaled(T),
}

/// What a completion was for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done<T> {
    /// A receive.
    Receive,
    /// A request whose poster waits for it.
    Work(T),
    /// A request that was signaled only to know how full the queue is, or one that is unknown.
    Nothing,
}

/// A request that waits for room.
#[derive(Debug)]
struct Queued<T> {
    wr: SendWr,
    wanted: Option<T>,
    /// It is the last Send of a message, or the only one.
    ends_message: bool,
}

/// A queue pair's accounts. `T` is what the owner wants to have back with a completion.
#[derive(Debug)]
pub(crate) struct Link<T> {
    qp: QpId,
    /// Posted, oldest first; the sequence number of the oldest is `first`.
    work: VecDeque<Work<Option<T>>>,
    first: u64,
    /// Posted and not known to be done.
    busy: usize,
    /// Silent requests since the last signaled one.
    silent: usize,
    /// Signaled requests that are not complete, and how many ever were completed.
    awaited: usize,
    completed: u64,
    /// Every request is signaled, so that it shows whether the peer takes them.
    watched: bool,
    /// Where copies of long gather lists go, if not into the device's pool.
    pool: Option<Pool>,
    /// Waiting for room, in order.
    backlog: VecDeque<Queued<T>>,
    /// Messages whose last, or only, Send is among those.
    backlog_messages: usize,
    capacity: usize,
    /// What receives are made of when they are posted now.
    structure: ReceiveStructure,
    /// Receives posted that no message has used, the oldest of which is used first.
    receives: u32,
    /// Their structures, oldest first, while there are others than the one wanted.
    mixed: VecDeque<(u32, ReceiveStructure)>,
    /// It is to be told when these are gone.
    replacing: bool,
    /// Pieces of used receives, to be used again.
    spare: Spare,
    /// Used receives that wait to be replaced.
    owed: u32,
    /// So many more are posted than anybody needs.
    surplus: u32,
    /// The device took no receive: the connection is ending.
    ending: bool,
    /// Bytes copied here.
    copied: u64,
}

impl<T> Link<T> {
    /// For a queue pair with room for `capacity` requests, whose receives are of this structure.
    pub(crate) fn new(qp: QpId, capacity: usize, structure: ReceiveStructure) -> Self {
        Self {
            qp,
            work: VecDeque::new(),
            first: 0,
            busy: 0,
            silent: 0,
            awaited: 0,
            completed: 0,
            watched: false,
            pool: None,
            backlog: VecDeque::new(),
            backlog_messages: 0,
            capacity: capacity.max(1),
            structure,
            receives: 0,
            mixed: VecDeque::new(),
            replacing: false,
            spare: Spare::default(),
            owed: 0,
            surplus: 0,
            ending: false,
            copied: 0,
        }
    }

    /// Copies count for the account of this pool.
    pub(crate) fn with_pool(self, pool: Pool) -> Self {
        Self {
            pool: Some(pool),
            ..self
        }
    }

    /// Whether every request from now on is signaled.
    pub(crate) fn watch(&mut self, watched: bool) {
        self.watched = watched;
    }

    /// Whether there are requests whose completions will come if the peer, or the network, does its part.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// How many signaled requests were completed.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    pub(crate) fn qp(&self) -> QpId {
        self.qp
    }

    /// Posts a request, now or as soon as there is room. Something in `wanted` makes it signaled.
    pub(crate) fn post(&mut self, device: &mut dyn Device, wr: SendWr, wanted: Option<T>) {
        let ends_message = matches!(wr, SendWr::Send { .. });
        self.post_or_queue(device, wr, wanted, ends_message);
    }

    fn post_or_queue(
        &mut self,
        device: &mut dyn Device,
        wr: SendWr,
        wanted: Option<T>,
        ends_message: bool,
    ) {
        let waits = match self.backlog.is_empty() && self.busy < self.capacity {
            true => self.try_post(device, wr, wanted).err(),
            false => Some((wr, wanted)),
        };
        if let Some((wr, wanted)) = waits {
            self.backlog_messages += usize::from(ends_message);
            self.backlog.push_back(Queued {
                wr,
                wanted,
                ends_message,
            });
        }
    }

    /// Posts a Send whose completion nobody waits for: a message.
    ///
    /// # Errors
    /// The gather list is too long for the device, and there is no memory to copy it together.
    pub(crate) fn send(
        &mut self,
        device: &mut dyn Device,
        gather: Segments,
        invalidate: Option<Stag>,
    ) -> Result<(), PoolExhausted> {
        self.send_part(device, gather, invalidate, false)
    }

    /// The same of a message that takes several Sends, if `more` of them follow.
    ///
    /// # Errors
    /// Likewise.
    pub(crate) fn send_part(
        &mut self,
        device: &mut dyn Device,
        gather: Segments,
        invalidate: Option<Stag>,
        more: bool,
    ) -> Result<(), PoolExhausted> {
        let max = device.attributes().max_gather;
        let gather = match gather.len() > max {
            true => {
                let pool = self.pool.as_ref().unwrap_or(device.pool());
                memory::shorten(gather, max, pool, &mut self.copied)?
            }
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

    /// Posts what waits, as far as there is room.
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
                wanted,
                ends_message,
            }) = self.backlog.pop_front()
        {
            if let Err((wr, wanted)) = self.try_post(device, wr, wanted) {
                self.backlog.push_front(Queued {
                    wr,
                    wanted,
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
    /// The device has no room. Gives the request back.
    fn try_post(
        &mut self,
        device: &mut dyn Device,
        wr: SendWr,
        wanted: Option<T>,
    ) -> Result<(), (SendWr, Option<T>)> {
        // At least one of any queue-full of requests is signaled, so there always is a completion
        // to wait for when there is no room.
        let signaled =
            wanted.is_some() || self.watched || self.silent + 1 >= self.capacity.div_ceil(2);
        let id = WrId(self.first + self.work.len() as u64);
        match device.post_send(self.qp, id, wr, signaled) {
            Ok(()) => {
                self.busy += 1;
                self.awaited += usize::from(signaled);
                self.silent = if signaled { 0 } else { self.silent + 1 };
                self.work.push_back(match signaled {
                    true => Work::Signaled(wanted),
                    false => Work::Silent,
                });
                Ok(())
            }
            Err((PostError::QueueFull, wr)) => Err((wr, wanted)),
            Err((error, _)) => {
                // The connection is ending, and its end will be reported.
                tracing::debug!(qp = self.qp.0, %error, "not posted");
                self.backlog.clear();
                self.backlog_messages = 0;
                Ok(())
            }
        }
    }

    /// A completion arrived. [`Link::flush`] may have room now.
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
        let wanted = match std::mem::replace(entry, Work::Done) {
            Work::Signaled(wanted) => {
                self.busy -= 1;
                self.awaited -= 1;
                self.completed += 1;
                wanted
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
        wanted.map_or(Done::Nothing, Done::Work)
    }

    /// Posts `count` more receives, or as many of them as there is memory for.
    ///
    /// # Errors
    /// There is not enough for all.
    pub(crate) fn post_receives(
        &mut self,
        device: &mut dyn Device,
        count: u32,
    ) -> Result<(), PoolExhausted> {
        for _ in 0..count {
            let receive = self.structure.alloc(device.pool())?;
            self.post_receive(device, receive, None);
        }
        Ok(())
    }

    /// Posts a receive of the structure that is wanted, or of `other`.
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
            // The connection is ending: no message will look for it.
            Err((error @ (PostError::NotConnected | PostError::Unknown), _)) => {
                tracing::debug!(qp = self.qp.0, %error, "receive not posted");
                self.ending = true;
            }
            // The peer was promised it, and would send a message that finds none.
            Err((error, _)) => {
                if !std::mem::replace(&mut self.ending, true) {
                    rdma::limited!(error, qp = self.qp.0, %error, "no receive can be posted: ending the connection");
                    device.abort(self.qp);
                }
            }
        }
    }

    /// A receive was posted that is, or others are, of another structure than the one wanted.
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

    /// The oldest receive is used. Gives its structure, if it is or may be another than the one
    /// wanted.
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
        let wanted = &self.structure;
        if self.mixed.iter().all(|(_, structure)| structure == wanted) {
            self.mixed.clear();
        }
    }

    /// A message arrived: gives it, in a piece for each segment that it reached, and puts another
    /// receive in its place, or does so when it is asked to [replenish](Link::replenish).
    ///
    /// The peer was promised these receives, so one is posted whatever the pool has to give: when
    /// that is nothing, the message is copied out of its buffers, and they are used again.
    pub(crate) fn received(&mut self, device: &mut dyn Device, receive: Scatter) -> Segments {
        let structure = self.used();
        let keep = structure.is_none();
        if self.surplus > 0 {
            self.surplus -= 1;
            // No receive takes its place, so that none would ever need its pieces.
            return self.spare.message(receive, false);
        }
        if self.owed < PUT_OFF {
            self.owed += 1;
            return self.spare.message(receive, keep);
        }
        match self.structure.alloc_with(device.pool(), &mut self.spare) {
            Ok(next) => {
                self.post_receive(device, next, None);
                self.spare.message(receive, keep)
            }
            Err(_) => {
                let message = receive.to_vec();
                self.copied += message.len() as u64;
                self.use_again(device, receive, structure);
                Segments::from_iter([Bytes::from(message)])
            }
        }
    }

    /// Posts the buffers of a used receive, which was of the structure wanted or of `other`.
    #[cold]
    fn use_again(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        other: Option<ReceiveStructure>,
    ) {
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        let other = if self.structure.restore(&mut pieces) {
            None
        } else if let Some(other) = other.filter(|other| other.restore(&mut pieces)) {
            // One of the old structure again, and all before it must go first.
            Some(other)
        } else {
            // Only a device that does not give back the buffers it is given.
            rdma::limited!(error, qp = self.qp.0, "no memory for a receive");
            return device.abort(self.qp);
        };
        let first = pieces.remove(0);
        self.post_receive(device, Scatter::new(first, pieces), other);
    }

    /// Makes sure of so many receives beyond those that somebody needs already. False: there is no
    /// memory for them.
    pub(crate) fn reserve(&mut self, device: &mut dyn Device, count: u32) -> bool {
        let there = self.surplus.min(count);
        let wanted = (there..count).map(|_| self.structure.alloc(device.pool()));
        // All or none: those of a call that goes another way must not keep memory from it.
        let Ok(receives) = wanted.collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        self.surplus -= there;
        for receive in receives {
            self.post_receive(device, receive, None);
        }
        true
    }

    /// So many receives are needed no longer: as many are not replaced when they are used.
    pub(crate) fn release(&mut self, count: u32) {
        self.surplus += count;
    }

    /// Replaces every receive, as it is used, by one of another structure.
    pub(crate) fn set_receives(&mut self, structure: ReceiveStructure) {
        let old = std::mem::replace(&mut self.structure, structure);
        if self.mixed.is_empty() && self.receives > 0 {
            self.mixed.push_back((self.receives, old));
        }
        self.forget_mixed();
        self.spare.clear();
        self.replacing = true;
    }

    /// The structure of every receive, once after [`Link::set_receives`] when no other is left.
    pub(crate) fn receives_replaced(&mut self) -> Option<&ReceiveStructure> {
        if !self.replacing || !self.mixed.is_empty() {
            return None;
        }
        self.replacing = false;
        Some(&self.structure)
    }

    /// Whether used receives wait to be replaced.
    pub(crate) fn owes(&self) -> bool {
        self.owed > 0
    }

    /// Replaces used receives, as far as there is memory.
    pub(crate) fn replenish(&mut self, device: &mut dyn Device) {
        while self.owed > 0 {
            let receive = self.structure.alloc_with(device.pool(), &mut self.spare);
            let Ok(receive) = receive else { return };
            self.owed -= 1;
            self.post_receive(device, receive, None);
        }
    }

    /// Whether so many messages would each find a receive, as far as that still matters.
    pub(crate) fn can_receive(&self, messages: u32) -> bool {
        self.ending || self.receives >= messages
    }

    /// Requests that can be posted at once.
    pub(crate) fn room(&self) -> usize {
        match self.backlog.is_empty() {
            true => self.capacity.saturating_sub(self.busy),
            false => 0,
        }
    }

    /// Bytes copied here: short messages, gather lists too long for the device, messages whose
    /// receives were needed again at once.
    pub(crate) fn copied(&self) -> u64 {
        self.copied + self.spare.copied()
    }

    /// Messages that wait, with their last Send at least, for room in the send queue.
    pub(crate) fn queued_messages(&self) -> usize {
        self.backlog_messages
    }

    /// Whether something waits for room that no completion will announce.
    pub(crate) fn wants_retry(&self) -> bool {
        !self.backlog.is_empty() && self.busy == 0
    }
}
