//! Sending calls.

use onc_rpc::Message;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::NotTransferred;

use super::outstanding::{Outcome, Stage};
use super::start::Started;
use super::{ReplyReceives, Requester};
use crate::flow::MaySend;
use crate::group::Group;
use crate::shared::Shared;

impl Requester {
    /// Sends ready calls and starts pending ones, in order, as far as credits and the `room` free
    /// send-queue entries allow. A call without a free entry is not queued: the grant may be
    /// lowered meanwhile, and calls sent after that must respect it (RFC 8166, section 3.3.1).
    pub(crate) fn start_calls(&mut self, shared: &mut Shared, room: usize) {
        if self.ready.is_empty() && self.pending.is_empty() {
            return;
        }
        // A server asks for the receives of its callbacks with the first of them. A reply that came
        // before they are posted would find none (RFC 8167, section 4.3.2).
        if self.receives != ReplyReceives::Posted {
            return;
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
                    return;
                }
            }
            // Calls start in the order in which they were made, so the first one that lacks memory
            // holds up the others. Without a credit, a call is not even planned: its plan depends
            // on the credits, and its registrations would take memory while it waits.
            if self.waits_for_memory() || shared.flow.unreserved() == 0 {
                return;
            }
            if self.batches && alone == 0 {
                if room <= shared.actions.len() {
                    // Calls that are not started yet can go together when there is room.
                    return;
                }
                alone = self.send_batch(shared);
                if alone == 0 {
                    continue;
                }
            }
            let Some(call) = self.pending.pop_front() else {
                return;
            };
            alone = alone.saturating_sub(1);
            let started = self.start_call(shared, call, room);
            // The driver first executes what this call needs. What is left then decides how the
            // next one may be transferred.
            if started == Started::First && !shared.actions.is_empty() {
                return;
            }
        }
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

    /// Sends a call that the base protocol transfers.
    pub(super) fn send_base(&mut self, shared: &mut Shared, key: usize) {
        // The reserved credit becomes one in use.
        shared.flow.release_reserved(1);
        self.take_credits(shared, key);
        if let Some(gather) = self.calls[key].encode(shared, self.may_be_invalidated) {
            shared.queue_send(Direction::Call, gather, None, false);
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
            Ok(group) => return self.send_group(shared, key, group),
            Err(error) => {
                let xid = self.calls[key].xid;
                tracing::debug!(xid, %error, "call is planned again without extensions");
                self.plan_without_extensions(shared, key);
            }
        }
        false
    }

    /// Lets the extension divide a call into the messages that carry it.
    fn lay_out_call(&mut self, shared: &mut Shared, key: usize) -> Result<Group, NotTransferred> {
        let call = &mut self.calls[key];
        let chunks = call.offered_chunks();
        let xid = call.xid;
        let gone = || NotTransferred("its extension is gone".to_owned());
        let carrier = call.carrier.as_mut().ok_or_else(gone)?;
        // A call without its plan has been laid out: `Requester::finish_call` then tells the extension
        // that it has ended.
        let (by, plan) = (carrier.by, carrier.plan.take().ok_or_else(gone)?);
        let message: &Message = &call.original().ok_or_else(gone)?.message;
        let mode = shared.session.modes().get(by).ok_or_else(gone)?;
        let messages = mode.send_call(xid, &*plan, message, &chunks)?;
        Ok(Group::new(messages))
    }

    /// Sends the messages that carry a call, one after the other. Returns false if their number
    /// differs from the plan.
    fn send_group(&mut self, shared: &mut Shared, key: usize, group: Group) -> bool {
        let call = &mut self.calls[key];
        let planned = call.sends();
        let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
        // The peer has no receives, and the call no credits, for more messages than were planned.
        if count == 0 || count > planned {
            tracing::error!(count, planned, "an extension did not keep to its plan");
            self.plan_without_extensions(shared, key);
            return false;
        }
        // The extension may need fewer messages than it planned. Only those that are sent take
        // credits.
        shared.flow.release_reserved(planned);
        if let Some(carrier) = &mut call.carrier {
            carrier.sends = count;
            carrier.first_type = group.first_type();
        }
        call.stage = Stage::Sent(call.offered_chunks());
        let xid = call.xid;
        self.take_credits(shared, key);
        group.send(shared, Direction::Call, xid, None);
        true
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
