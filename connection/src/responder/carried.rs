//! Calls that arrived in messages of an extension, and their replies.
//!
//! A reply without items that fits one plain Send is sent by the base protocol. For any other, the
//! extension that carried the call offers candidates.
//!
//! In the working group's version 2, calls of extensions are treated like calls of the base protocol
//! (`joined_call_received`): an extension may offer a cheaper reply (`cheaper_extension_reply`), and a reply that fits
//! nothing that the call provides is continued (`last_resort_reply`).

use std::any::Any;

use onc_rpc::Message;
use rdma::Stag;
use rpcrdma_chunks::{Direction, fill};
use rpcrdma_extension::{IncomingCall, NotTransferred, ReplyToPlan};
use smallvec::SmallVec;
use transfer_plan::{Offers, ReplyPlan, Shape, UnpositionedItem, plan_reply};

use super::{InCall, Responder, place};
use crate::group::Group;
use crate::plan::{choose_reply, is_cheaper};
use crate::shared::Shared;

/// The extension that received a call and also plans its reply, with its data about the call.
#[derive(Debug)]
pub(super) struct CarriedCall {
    /// The number of the extension.
    by: usize,
    /// The data that the extension needs to plan the reply.
    context: Box<dyn Any + Send>,
}

/// The items of a reply that are placed by RDMA Write, each with the index of its write chunk.
pub(super) type Writes = SmallVec<[(usize, usize); 1]>;

impl Responder {
    /// Handles a call that arrived in messages of the extension with number `by`, which also plans
    /// the reply.
    pub(crate) fn carried_call_received(
        &mut self,
        shared: &mut Shared,
        by: usize,
        call: IncomingCall,
    ) {
        // Preferably a handle of memory that the reply writes: the requester needs that back before
        // it can use the results.
        let reply = call.chunks.writes.iter().chain(&call.chunks.reply);
        let reply = reply.flatten();
        let read = call.chunks.items.iter().flat_map(|read| &read.segments);
        let handle = reply.chain(read).next().map(|segment| segment.handle);
        let chunks = call.chunks;
        let carried = CarriedCall {
            by,
            context: call.context,
        };
        let in_call = InCall {
            writes: chunks.writes,
            reply: chunks.reply,
            handle: handle.map(Stag),
            messages: call.transmissions,
            carried: Some(carried),
            ..InCall::plain(call.xid)
        };
        shared.moved.carried(&call.message, call.transmissions);
        let reads = (chunks.payload, chunks.items);
        self.admit_to_fetch(shared, in_call, call.requested, call.message, reads);
    }

    /// Handles a call that arrived in messages of an extension, and whose reply is planned like
    /// that of a call of the base protocol. The reply may invalidate `handle`.
    pub(crate) fn joined_call_received(
        &mut self,
        shared: &mut Shared,
        call: IncomingCall,
        handle: Option<u32>,
    ) {
        let chunks = call.chunks;
        let in_call = InCall {
            writes: chunks.writes,
            reply: chunks.reply,
            handle: handle.map(Stag),
            messages: call.transmissions,
            ..InCall::plain(call.xid)
        };
        shared.moved.carried(&call.message, call.transmissions);
        let reads = (chunks.payload, chunks.items);
        self.admit_to_fetch(shared, in_call, call.requested, call.message, reads);
    }

    /// Lets an extension lay out the reply to a call of the base protocol, if that is cheaper than
    /// the plan of the base protocol.
    pub(super) fn cheaper_extension_reply(
        &mut self,
        shared: &mut Shared,
        call: &InCall,
        message: &Message,
        shape: &Shape,
        base: Option<&ReplyPlan>,
    ) -> Option<(Writes, Group)> {
        let credits = shared.flow.sendable_in_reply();
        let limits = self.last_resort_limits(shared);
        let peer = shared.peer();
        let reply = ReplyToPlan {
            shape,
            credits,
            limits: &limits,
            context: &(),
        };
        let mut modes = shared.session.modes().all();
        let (by, best) = modes.find_map(|(by, mode)| {
            let candidate = mode.plan_base_reply(&reply, &call.writes)?;
            Some((by, candidate))
        })?;
        drop(modes);
        let costs = &shared.config.options.costs;
        is_cheaper(&best, &reply, base, costs, &mut self.last_reply).then_some(())?;
        let xid = call.xid;
        tracing::debug!(peer, xid, plan = %best.plan, "reply");
        let messages = shared.session.modes().get(by)?;
        let messages = messages.send_reply(xid, &*best.plan, message);
        match messages {
            Ok(messages) => Some((best.writes, Group::new(messages))),
            Err(error) => {
                tracing::debug!(xid, %error, "reply is sent by the base protocol");
                None
            }
        }
    }

    /// Sends an error to a requester that could not use the reply to a call: there will be no other
    /// reply. The requester can make the call again in another transfer mode.
    pub(crate) fn reply_rejected(&mut self, shared: &mut Shared, xid: u32, reason: &str) {
        self.chunk_error(shared, xid, &reason);
    }

    /// Plans the reply to a call whose extension also plans replies, and sends it unless it has to
    /// wait.
    #[inline(never)]
    pub(super) fn answer_carried(&mut self, shared: &mut Shared, call: InCall, message: Message) {
        let (shape, base) = match self.plan_without_chunks(shared, &message) {
            Ok(planned) => planned,
            Err(error) => {
                shared.flow.call_ended(call.messages);
                return self.chunk_error(shared, call.xid, &error);
            }
        };
        // One Send with nothing to place is the cheapest reply, whatever the extension offers.
        if let Some(plan) = &base
            && shape.items().is_empty()
        {
            shared.flow.call_ended(call.messages);
            tracing::debug!(peer = shared.peer(), xid = call.xid, %plan, "reply");
            return self.send_without_chunks(shared, &call, &message, plan);
        }
        let laid_out = self.lay_out_reply(shared, &call, &message, &shape, base.as_ref());
        // As in `answer_planned`. The call has not ended yet, and keeps its credit.
        if base.is_none() && !matches!(laid_out, Ok(Some(_))) && self.terms.last_resort.is_none() {
            return self.hold_reply(shared, call, message);
        }
        shared.flow.call_ended(call.messages);
        match (laid_out, base) {
            (Ok(Some((writes, group))), _) => {
                self.send_group(shared, &call, &message, &writes, group);
            }
            // An extension that could not lay out its own plan is no reason to fail the call.
            (Ok(None) | Err(_), Some(plan)) => {
                self.send_without_chunks(shared, &call, &message, &plan);
            }
            (Err(error), None) => self.chunk_error(shared, call.xid, &error),
            (Ok(None), None) => {
                self.chunk_error(shared, call.xid, &"there is no room for the reply");
            }
        }
    }

    /// Returns the lengths of a reply, and the plan by which the base protocol transfers it without
    /// chunks, if it can.
    pub(super) fn plan_without_chunks(
        &self,
        shared: &Shared,
        message: &Message,
    ) -> Result<(Shape, Option<ReplyPlan>), UnpositionedItem> {
        let shape = Shape::of(message)?;
        let limits = self.last_resort_limits(shared);
        let plan = plan_reply(&shape, &Offers::default(), &limits).ok();
        Ok((shape, plan))
    }

    /// Lets the extension that carried the call lay out its reply, if that is cheaper than `base` or the
    /// extension does not take `base` for a reply. Returns `None` if it is not.
    ///
    /// # Errors
    /// The extension cannot lay out its own plan, or divides the reply into more messages than it
    /// planned, for which the requester has posted no receives.
    fn lay_out_reply(
        &mut self,
        shared: &mut Shared,
        call: &InCall,
        message: &Message,
        shape: &Shape,
        base: Option<&ReplyPlan>,
    ) -> Result<Option<(Writes, Group)>, NotTransferred> {
        let limits = self.last_resort_limits(shared);
        let credits = shared.flow.sendable_in_reply();
        let costs = &shared.config.options.costs;
        let Some(carried) = &call.carried else {
            return Ok(None);
        };
        let peer = shared.peer();
        let Some(mode) = shared.session.modes().get(carried.by) else {
            return Ok(None);
        };
        let reply = ReplyToPlan {
            shape,
            credits,
            limits: &limits,
            context: &*carried.context,
        };
        let base = base.filter(|_| mode.takes_base_reply(reply.context));
        let Some(best) = choose_reply(&reply, base, mode, costs, &mut self.last_reply) else {
            return Ok(None);
        };
        tracing::debug!(peer, xid = call.xid, plan = %best.plan, "reply");
        let planned = best.cost.transmissions;
        let messages = mode.send_reply(call.xid, &*best.plan, message)?;
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        // The requester has posted receives for so many messages as the plan says.
        if count == 0 || count > planned {
            tracing::error!(count, planned, "an extension did not keep to its plan");
            let reason = format!("{count} messages instead of {planned}");
            return Err(NotTransferred(reason));
        }
        Ok(Some((best.writes, Group::new(messages))))
    }

    /// Lets an extension lay out the reply to a call of the base protocol, which has no plan for it.
    /// Returns `None` if none can.
    pub(super) fn last_resort_reply(
        &self,
        shared: &mut Shared,
        call: &InCall,
        message: &Message,
        shape: &Shape,
    ) -> Option<(Writes, Group)> {
        let limits = self.last_resort_limits(shared);
        let credits = shared.flow.sendable_in_reply();
        let peer = shared.peer();
        let reply = ReplyToPlan {
            shape,
            credits,
            limits: &limits,
            context: &(),
        };
        let mut modes = shared.session.modes().all();
        let (by, best) = modes.find_map(|(by, mode)| {
            let candidate = mode.plan_last_resort(&reply, &call.writes)?;
            Some((by, candidate))
        })?;
        drop(modes);
        let xid = call.xid;
        tracing::debug!(peer, xid, plan = %best.plan, "reply");
        let mode = shared.session.modes().get(by)?;
        match mode.send_reply(xid, &*best.plan, message) {
            Ok(messages) => Some((best.writes, Group::new(messages))),
            Err(error) => {
                tracing::debug!(xid, %error, "reply cannot be sent in several messages");
                None
            }
        }
    }

    /// Sends a reply by the base protocol, without chunks.
    fn send_without_chunks(
        &mut self,
        shared: &mut Shared,
        call: &InCall,
        message: &Message,
        plan: &ReplyPlan,
    ) {
        match place::place(plan, message, &[], None) {
            Ok(placed) => self.send_placed(shared, call, plan, placed),
            Err(error) => self.chunk_error(shared, call.xid, &error),
        }
    }

    /// Writes the items in `writes` to their chunks, and sends the messages that carry the reply.
    pub(super) fn send_group(
        &mut self,
        shared: &mut Shared,
        call: &InCall,
        message: &Message,
        writes: &Writes,
        group: Group,
    ) {
        let xid = call.xid;
        for &(item, chunk) in writes {
            let (Some(bulk), Some(offered)) = (message.items().get(item), call.writes.get(chunk))
            else {
                return self.chunk_error(shared, xid, &"no such item or chunk");
            };
            let filled = match fill(offered, bulk.data.len() as u64) {
                Ok(filled) => filled,
                Err(error) => return self.chunk_error(shared, xid, &error),
            };
            let mut placed = SmallVec::new();
            let bytes = bulk.data.clone().into_segments();
            place::write_all(&filled, bytes, &mut placed);
            shared.write(placed);
        }
        let invalidate = call.handle.filter(|_| self.terms.may_invalidate);
        group.send(shared, Direction::Reply, xid, invalidate);
        shared.trace_queued(Direction::Reply, xid);
    }
}
