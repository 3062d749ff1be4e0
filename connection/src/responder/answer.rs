//! Sending of replies by the base protocol.

use onc_rpc::Message;
use rdma::trace::{Event, Wait};
use rpcrdma_chunks::{Chunks, Direction, WriteChunk, chunk_len};
use transfer_plan::{
    ChunkCounts, Limits, Offer, Offers, ReplyError, ReplyPayload, ReplyPlan, Shape,
    UnpositionedItem, plan_reply,
};

use super::place::{self, Placed};
use super::{InCall, Responder};
use crate::dialect::{Outgoing, PeerError};
use crate::plan;
use crate::shared::Shared;

impl Responder {
    /// Plans a reply and sends it, unless it has to wait.
    pub(super) fn answer(&mut self, shared: &mut Shared, call: InCall, message: Message) {
        if self.batches && self.may_gather(shared, &call, &message) {
            return self.gathered.push_back((call, message));
        }
        self.answer_alone(shared, call, message);
    }

    /// Plans a reply and sends it by itself, unless it has to wait.
    #[inline]
    pub(super) fn answer_alone(&mut self, shared: &mut Shared, call: InCall, message: Message) {
        // The chunks of a call in messages of an extension are not listed in a reply of the base
        // protocol.
        let carried = call.carried.is_some();
        // Most replies are sent from here. `plan_reply` would plan the same.
        let no_chunks = carried || (call.writes.is_empty() && call.reply.is_none());
        if no_chunks
            && message.items().is_empty()
            && is_short(message.payload_len(), &shared.limits)
        {
            return self.answer_plain(shared, &call, message);
        }
        match carried {
            true => self.answer_carried(shared, call, message),
            false => self.answer_planned(shared, call, message),
        }
    }

    #[inline(never)]
    fn answer_planned(&mut self, shared: &mut Shared, call: InCall, message: Message) {
        let shape = Shape::of(&message);
        let planned = match &shape {
            Ok(shape) => self.plan(shared, &call, shape).map_err(NoPlan::from),
            Err(error) => Err((*error).into()),
        };
        let planned = match planned {
            // The requester's receives are being changed in size. The reply may fit when that is
            // settled.
            Err(_) if self.terms.last_resort.is_none() => {
                return self.hold_reply(shared, call, message);
            }
            planned => planned,
        };
        let base = planned.as_ref().ok();
        let short = shared.config.options.short_items;
        let is_short = base.is_some_and(|plan| plan::is_short(plan, short));
        // Extensions place bulk data. A reply without any, or with little, costs least in the base
        // protocol.
        let other = match &shape {
            Ok(shape) if !is_short && !shape.items().is_empty() => {
                self.cheaper_extension_reply(shared, &call, &message, shape, base)
            }
            _ => None,
        };
        let last_resort = match (&planned, &shape) {
            _ if other.is_some() => other,
            (Err(_), Ok(shape)) => self.last_resort_reply(shared, &call, &message, shape),
            _ => None,
        };
        // Before the reply is encoded, so that the reply itself grants the credit of its call
        // again.
        shared.flow.call_ended(call.messages);
        if let Some((writes, group)) = last_resort {
            return self.send_group(shared, &call, &message, &writes, group);
        }
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) => {
                return self.refuse_call(shared, call.xid, error.answer(), &error);
            }
        };
        tracing::debug!(peer = shared.peer(), xid = call.xid, %plan, "reply");
        let placed = match place::place(&plan, &message, &call.writes, call.reply.as_ref()) {
            Ok(placed) => placed,
            Err(error) => return self.chunk_error(shared, call.xid, &error),
        };
        self.send_placed(shared, &call, &plan, placed);
    }

    /// Keeps a reply until its maximum length is settled with the requester.
    pub(super) fn hold_reply(&mut self, shared: &Shared, call: InCall, message: Message) {
        shared.trace(call.xid, Event::Held(Wait::Limit));
        tracing::debug!(
            xid = call.xid,
            "reply waits until its longest length is settled"
        );
        self.held.push((call, message));
    }

    fn answer_plain(&mut self, shared: &mut Shared, call: &InCall, message: Message) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_plan(shared, call, &message);
        }
        shared.flow.call_ended(call.messages);
        let header = shared.encode_plain(Direction::Reply, call.xid);
        let invalidate = call.handle.filter(|_| self.terms.may_invalidate);
        shared.send(Direction::Reply, header, message.into_payload(), invalidate);
        shared.trace_queued(Direction::Reply, call.xid);
    }

    #[cold]
    fn log_plan(&self, shared: &Shared, call: &InCall, message: &Message) {
        let plan = match call.carried {
            Some(_) => (self.plan_without_chunks(shared, message).ok()).and_then(|(_, plan)| plan),
            None => (Shape::of(message).ok()).and_then(|one| self.plan(shared, call, &one).ok()),
        };
        if let Some(plan) = plan {
            tracing::debug!(peer = shared.peer(), xid = call.xid, %plan, "reply");
        }
    }

    /// Sends a reply whose items are placed.
    pub(super) fn send_placed(
        &mut self,
        shared: &mut Shared,
        call: &InCall,
        plan: &ReplyPlan,
        placed: Placed,
    ) {
        // The queue pair keeps the order of requests, so the requester gets the data before the
        // reply that lists it. Nothing waits for the Writes to complete.
        shared.write(placed.writes);
        let invalidate = call.handle.filter(|_| self.terms.may_invalidate);
        let (header, _) = shared.encode(Outgoing {
            xid: call.xid,
            credits: shared.flow.credit_field(Direction::Reply),
            direction: Direction::Reply,
            inline: plan.payload == ReplyPayload::Inline,
            chunks: Chunks {
                reads: Vec::new(),
                writes: placed.list,
                reply: placed.reply,
            },
            may_be_invalidated: false,
        });
        shared.send(Direction::Reply, header, placed.payload, invalidate);
        shared.trace_queued(Direction::Reply, call.xid);
    }

    fn plan(&self, shared: &Shared, call: &InCall, shape: &Shape) -> Result<ReplyPlan, ReplyError> {
        let offer = |chunk: &WriteChunk| Offer {
            segments: chunk.len() as u64,
            capacity: chunk_len(chunk),
        };
        let offers = Offers {
            writes: call.writes.iter().map(offer).collect(),
            reply: call.reply.as_ref().map(offer),
        };
        let limits = &shared.limits;
        match (plan_reply(shape, &offers, limits), self.terms.last_resort) {
            // The requester relied on the longer receives that it had when it sent the call, so
            // that the call offers no chunk for this reply.
            (Err(_), Some(last)) if last > limits.inline_send => {
                let longer = Limits {
                    inline_send: last,
                    ..*limits
                };
                plan_reply(shape, &offers, &longer)
            }
            (planned, _) => planned,
        }
    }
}

/// Returns whether a reply of `len` bytes without items can be one plain Send, as [`plan_reply`]
/// would plan it.
pub(super) fn is_short(len: u64, limits: &Limits) -> bool {
    let header = (limits.header_len)(&ChunkCounts::default());
    header
        .checked_add(len)
        .is_some_and(|len| len <= limits.inline_send)
}

/// The reason why a reply cannot be transferred.
#[derive(Debug, thiserror::Error)]
enum NoPlan {
    #[error(transparent)]
    Shape(#[from] UnpositionedItem),
    #[error(transparent)]
    Plan(#[from] ReplyError),
}

impl NoPlan {
    /// Returns the error by which the call is answered. Numbers that do not fit 32 bits are left
    /// out: zero says that a longer chunk would not help (version-two-07, sections 7.3.4 and
    /// 7.3.5).
    fn answer(&self) -> PeerError {
        let word = |value: u64| u32::try_from(value).unwrap_or(0);
        match *self {
            Self::Shape(_) => PeerError::System,
            Self::Plan(ReplyError::WriteChunkTooShort { len, chunk, .. }) => {
                PeerError::WriteResource {
                    chunk: word(chunk as u64 + 1),
                    needed: word(len),
                }
            }
            Self::Plan(ReplyError::DoesNotFit { len, .. }) => {
                PeerError::ReplyResource { needed: word(len) }
            }
            Self::Plan(_) => PeerError::ReplyResource { needed: 0 },
        }
    }
}
