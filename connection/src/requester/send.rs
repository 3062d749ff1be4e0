//! Sending calls.

use onc_rpc::Message;
use rdma::trace::{Event, Wait};
use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_extension::{CallCandidate, NotTransferred, Planned};

use super::outstanding::{Outcome, Outstanding, Stage};
use super::pending::PendingCall;
use super::prepared::Carrier;
use super::start::Started;
use super::{ReplyReceives, Requester};
use crate::flow::MaySend;
use crate::group::Group;
use crate::shared::Shared;

impl Requester {
    /// Sends ready calls and starts pending ones, in order, as far as credits and the `room` free
    /// send-queue entries allow. A call without a free entry is not queued: the grant may be
    /// lowered meanwhile, and calls sent after that must respect it (RFC 8166, section 3.3.1).
    #[inline]
    pub(crate) fn start_calls(&mut self, shared: &mut Shared, room: usize) {
        // The connection asks after each action, and mostly there is no call.
        if !(self.ready.is_empty() && self.pending.is_empty()) {
            self.start_some(shared, room);
        }
    }

    /// Does what [`Requester::start_calls`] does, with at least one call.
    #[inline(never)]
    fn start_some(&mut self, shared: &mut Shared, room: usize) {
        let waits = self.start_all(shared, room);
        if shared.config.trace.is_some() {
            self.trace_waits(shared, waits, room);
        }
    }

    /// Does what [`Requester::start_calls`] does. Returns what the first pending call waits for, unless it is
    /// only this end's next turn.
    fn start_all(&mut self, shared: &mut Shared, room: usize) -> Option<Wait> {
        // A server asks for the receives of its callbacks with the first of them. A reply that came
        // before they are posted would find none (RFC 8167, section 4.3.2).
        if self.receives != ReplyReceives::Posted {
            return Some(Wait::Receives);
        }
        // The number of calls to start one by one.
        let mut alone = 0_usize;
        loop {
            // Ready calls go before pending ones: their memory is registered and their Sends are
            // reserved. Each queued action may need an entry of the send queue.
            while shared.flow.may_begin_call()
                && room > shared.actions.len()
                && let Some(&key) = self.ready.front()
            {
                if self.calls[key].carrier.is_none() {
                    self.ready.pop_front();
                    self.send_base(shared, key);
                } else if self.send_carried(shared, key) {
                    let still_ready = self.ready.front() == Some(&key);
                    return still_ready.then_some(Wait::Credit);
                }
            }
            // Calls start in the order in which they were made, so the first one that lacks memory
            // holds up the others. Without a credit, a call is not even planned: its plan depends
            // on the credits, and its registrations would take memory while it waits.
            if self.waits_for_memory() {
                return Some(Wait::Memory);
            }
            if shared.flow.unreserved() == 0 {
                return Some(Wait::Credit);
            }
            if self.batches && alone == 0 {
                if room <= shared.actions.len() {
                    // Calls that are not started yet can go together when there is room.
                    return Some(Wait::SendQueue);
                }
                alone = self.send_batch(shared);
                if alone == 0 {
                    continue;
                }
            }
            let call = self.pending.pop_front()?;
            alone = alone.saturating_sub(1);
            let started = self.start_call(shared, call, room);
            // The driver first executes what this call needs. What is left then decides how the
            // next one may be transferred.
            if started == Started::First && !shared.actions.is_empty() {
                return None;
            }
        }
    }

    /// Records what calls wait for that are not sent yet, if it has not been recorded. The first pending one
    /// waits for `pending`, and the others behind it for the same.
    #[cold]
    fn trace_waits(&mut self, shared: &Shared, pending: Option<Wait>, room: usize) {
        let ready = match shared.flow.may_begin_call() {
            true if room > shared.actions.len() => None,
            true => Some(Wait::SendQueue),
            false => Some(Wait::Credit),
        };
        if let Some(ready) = ready {
            for &key in &self.ready {
                let call = &mut self.calls[key];
                if call.waits.replace(ready) != Some(ready) {
                    shared.trace(call.xid, Event::Waits(ready));
                }
            }
        }
        let Some(pending) = pending else {
            return;
        };
        // Those that were told this are together: calls are added behind them and put back before them.
        let told = |call: &PendingCall| call.waits == Some(pending);
        let tell = |call: &mut PendingCall| {
            call.waits = Some(pending);
            shared.trace(call.xid, Event::Waits(pending));
        };
        let calls = self.pending.iter_mut();
        calls.take_while(|call| !told(call)).for_each(tell);
        let calls = self.pending.iter_mut().rev();
        calls.take_while(|call| !told(call)).for_each(tell);
    }

    /// Counts a call that is sent now: it takes a credit for each of its Sends.
    pub(super) fn take_credits(&mut self, shared: &mut Shared, key: usize) {
        let call = &self.calls[key];
        let (sends, replies) = (call.sends(), call.reply_messages());
        // The number stays with the call: by it, the answer tells which earlier Sends have arrived.
        self.calls[key].number = shared.flow.call_sent(sends, replies);
        let most = &mut self.counters.most_in_flight;
        *most = shared.flow.in_flight().max(*most);
        self.watch.call_sent(key);
    }

    /// Counts the chunks that a call offers, which is sent now.
    fn count_chunks(&mut self, shared: &mut Shared, key: usize) {
        let Stage::Sent(chunks) = &self.calls[key].stage else {
            return;
        };
        let counters = &mut self.counters;
        let reads = chunks.reads.iter().map(|read| &read.segment);
        let read: u64 = reads.map(|segment| u64::from(segment.length)).sum();
        shared.moved.sent.chunk += read;
        let writes = || chunks.writes.iter().chain(&chunks.reply).flatten();
        let written: u64 = writes().map(|segment| u64::from(segment.length)).sum();
        counters.registered_bytes += read + written;
        counters.offered_bytes += written;
        counters.read_segments += chunks.reads.len() as u64;
        let reply = chunks.reply.as_ref().map_or(0, |chunk| chunk.len() as u64);
        counters.reply_segments += reply;
        counters.write_segments += writes().count() as u64 - reply;
        let long = chunks.reads.first().is_some_and(|read| read.position == 0);
        counters.long_calls += u64::from(long);
    }

    /// Sends a call that the base protocol transfers.
    pub(super) fn send_base(&mut self, shared: &mut Shared, key: usize) {
        // The reserved credit becomes one in use.
        shared.flow.release_reserved(1);
        self.take_credits(shared, key);
        if let Some(gather) = self.calls[key].encode(shared, self.may_be_invalidated) {
            let payload = gather.iter().skip(1).map(|piece| piece.len() as u64);
            shared.moved.sent.inline += payload.sum::<u64>();
            self.count_chunks(shared, key);
            shared.queue_send(Direction::Call, gather, None, false);
            shared.trace_queued(Direction::Call, self.calls[key].xid);
        }
    }

    /// Sends the first ready call, which an extension carries, or keeps it at the head of the queue
    /// until there are enough credits for it. Returns false if it can no longer be sent as planned;
    /// it is then planned again.
    fn send_carried(&mut self, shared: &mut Shared, key: usize) -> bool {
        let call = &self.calls[key];
        let carrier = call.carrier.as_ref();
        let is_outdated = carrier.is_some_and(|c| shared.plan_state(c.by) != c.state);
        let may_send = match is_outdated {
            // The extension would lay it out otherwise now, such as for other receives of the peer.
            true => MaySend::Never,
            false => shared.flow.may_send_call(call.sends(), call.may_wait()),
        };
        match may_send {
            MaySend::Now => {}
            // The call keeps its place at the head. Otherwise later calls, which need fewer
            // credits, could pass it for ever.
            MaySend::Later => return true,
            MaySend::Never => {
                // Its registrations and reserved Sends need not be those of the next plan.
                if let Some(source) = self.calls[key].original() {
                    let again = Outcome::Again(Box::new(source.clone()));
                    self.withdraw_ready(shared, key, again);
                }
                return false;
            }
        }
        self.ready.pop_front();
        match self.lay_out_call(shared, key) {
            Ok(group) => {
                self.send_group(shared, key, group);
                return true;
            }
            Err(error) => {
                let xid = self.calls[key].xid;
                tracing::debug!(xid, %error, "call is planned again without extensions");
                self.plan_without_extensions(shared, key);
            }
        }
        false
    }

    /// Lets the extension divide a ready call into the messages that carry it.
    fn lay_out_call(&mut self, shared: &mut Shared, key: usize) -> Result<Group, NotTransferred> {
        let call = &mut self.calls[key];
        let (chunks, planned) = (call.offered_chunks(), call.sends());
        let xid = call.xid;
        let carrier = call.carrier.as_mut().ok_or_else(gone)?;
        // A call without its plan has been laid out: `Requester::finish_call` then tells the extension
        // that it has ended.
        let (by, plan) = (carrier.by, carrier.plan.take().ok_or_else(gone)?);
        let message: &Message = &call.original().ok_or_else(gone)?.message;
        lay_out(shared, by, xid, &*plan, planned, message, &chunks)
    }

    /// Sends the messages that carry a ready call, one after the other.
    fn send_group(&mut self, shared: &mut Shared, key: usize, group: Group) {
        let call = &mut self.calls[key];
        // The extension may need fewer messages than it planned. Only those that are sent take
        // credits.
        shared.flow.release_reserved(call.sends());
        if let Some(carrier) = &mut call.carrier {
            carrier.sends = group.count();
            carrier.first_type = group.first_type();
        }
        call.stage = Stage::Sent(call.offered_chunks());
        let xid = call.xid;
        self.count_chunks(shared, key);
        self.take_credits(shared, key);
        group.send(shared, Direction::Call, xid, None);
        shared.trace_queued(Direction::Call, xid);
    }

    /// Sends a call as the extension with number `by` has planned it, in one step. The plan needs
    /// nothing to be prepared, no call is ready before this one, and there are credits for it.
    pub(super) fn send_unprepared(
        &mut self,
        shared: &mut Shared,
        call: PendingCall,
        by: usize,
        candidate: &CallCandidate,
    ) -> Started {
        let (xid, planned) = (call.xid, candidate.messages());
        let (plan, none) = (&*candidate.plan, Chunks::default());
        let group = match lay_out(shared, by, xid, plan, planned, &call.message, &none) {
            Ok(group) => group,
            Err(error) => {
                tracing::debug!(xid, %error, "call is planned again without extensions");
                if let Some(mode) = shared.session.modes().get(by) {
                    mode.call_ended(xid);
                }
                self.pending.push_front(call.base_only());
                return Started::GoOn;
            }
        };
        let carrier = Carrier {
            by,
            plan: None,
            state: None,
            first_type: group.first_type(),
            sends: group.count(),
            may_wait: candidate.cost.may_wait,
            receives: 0,
        };
        let key = self.calls.insert(Outstanding::carried(call, carrier));
        self.by_xid.insert(xid, key);
        self.take_credits(shared, key);
        group.send(shared, Direction::Call, xid, None);
        shared.trace_queued(Direction::Call, xid);
        Started::First
    }

    /// Plans a call again, without extensions.
    pub(super) fn plan_without_extensions(&mut self, shared: &mut Shared, key: usize) {
        let outcome = match self.calls[key].original() {
            Some(source) => Outcome::Again(Box::new(source.clone().base_only())),
            None => Outcome::Dropped,
        };
        self.end_call(shared, key, outcome);
    }
}

fn gone() -> NotTransferred {
    NotTransferred("its extension is gone".to_owned())
}

/// Lets the extension with number `by` divide a call into at most the `planned` number of messages.
///
/// # Errors
/// [`NotTransferred`]: the extension cannot send the call as planned, or does not keep to its plan. The peer
/// has no receives, and the call no credits, for more messages.
fn lay_out(
    shared: &mut Shared,
    by: usize,
    xid: u32,
    plan: &dyn Planned,
    planned: u32,
    message: &Message,
    chunks: &Chunks,
) -> Result<Group, NotTransferred> {
    let mode = shared.session.modes().get(by).ok_or_else(gone)?;
    let group = Group::new(mode.send_call(xid, plan, message, chunks)?);
    let count = group.count();
    if count == 0 || count > planned {
        tracing::error!(count, planned, "an extension did not keep to its plan");
        let reason = format!("{count} messages instead of {planned}");
        return Err(NotTransferred(reason));
    }
    Ok(group)
}
