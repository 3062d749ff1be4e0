//! Replies as the base has them.

use conveyance::{
    ChunkCounts, Limits, Offer, Offers, ReplyError, ReplyPlan, Shape, Unplaced, plan_reply,
};
use onc_rpc::Message;
use rpcrdma_chunks::{WriteChunk, chunk_len};
use rpcrdma_v2::Direction;

use super::super::wire::{self, Plain};
use super::place::{self, Placed};
use super::{InCall, Responder};

impl Responder {
    /// Plans a reply and sends it, unless it has to wait.
    pub(super) fn answer(&mut self, call: InCall, message: Message) {
        if call.brought.is_some() {
            return self.answer_brought(call, message);
        }
        let no_chunks = call.writes.is_empty() && call.reply.is_none();
        if no_chunks && message.items().is_empty() && self.is_short(message.payload_len()) {
            return self.answer_plain(&call, message);
        }
        self.answer_planned(call, message);
    }

    #[inline(never)]
    fn answer_planned(&mut self, call: InCall, message: Message) {
        let planned = match self.plan(&call, &message) {
            Err(_) if self.last_resort.is_none() => {
                tracing::debug!(
                    xid = call.xid,
                    "reply waits until it is known what may be sent"
                );
                return self.held.push((call, message));
            }
            planned => planned,
        };
        let credits = self.credits.answered();
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) => return self.chunk_error(call.xid, credits, &error),
        };
        tracing::debug!(xid = call.xid, %plan, "reply");
        let placed = match place::place(&plan, &message, &call.writes, call.reply.as_ref()) {
            Ok(placed) => placed,
            Err(error) => return self.chunk_error(call.xid, credits, &error),
        };
        self.send_placed(&call, credits, &plan, placed);
    }

    /// Whether a reply without items can be one plain Send, as [`plan_reply`] would have it.
    fn is_short(&self, len: u64) -> bool {
        let limits = &self.config.limits;
        let header = (limits.header_len)(&ChunkCounts::default());
        header
            .checked_add(len)
            .is_some_and(|len| len <= limits.inline_send)
    }

    fn answer_plain(&mut self, call: &InCall, message: Message) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.tell_plan(call, &message);
        }
        let plain = Plain {
            xid: call.xid,
            credits: self.credits.answered(),
        };
        let header = plain.encode(self.config.version, Direction::Reply, &mut self.headers);
        let invalidate = call.handle.filter(|_| self.config.remote_invalidation);
        self.send(header, message.into_payload(), invalidate);
    }

    #[cold]
    fn tell_plan(&self, call: &InCall, message: &Message) {
        if let Ok(plan) = self.plan(call, message) {
            tracing::debug!(xid = call.xid, %plan, "reply");
        }
    }

    /// The same for a call that came in operations: an extension may have to be asked first.
    #[inline(never)]
    fn answer_brought(&mut self, call: InCall, message: Message) {
        match self.without_chunks(&message) {
            Ok((shape, Some(plan))) if shape.items().is_empty() => {
                let credits = self.credits.answered_group(call.transmissions());
                tracing::debug!(xid = call.xid, %plan, "reply");
                self.send_plain(&call, &message, credits, &plan);
            }
            _ => self.asked.push_back((call, message)),
        }
    }

    pub(super) fn send_placed(
        &mut self,
        call: &InCall,
        credits: u32,
        plan: &ReplyPlan,
        placed: Placed,
    ) {
        self.actions.extend(placed.writes);
        let invalidate = call.handle.filter(|_| self.config.remote_invalidation);
        let header = wire::encode_reply(
            self.config.version,
            &mut self.headers,
            call.xid,
            credits,
            plan.payload,
            wire::returned_chunks(placed.list, placed.reply),
        );
        self.send(header, placed.payload, invalidate);
    }

    fn plan(&self, call: &InCall, message: &Message) -> Result<ReplyPlan, NoPlan> {
        let shape = Shape::of(message)?;
        let offer = |chunk: &WriteChunk| Offer {
            segments: chunk.len() as u64,
            capacity: chunk_len(chunk),
        };
        let offers = Offers {
            writes: call.writes.iter().map(offer).collect(),
            reply: call.reply.as_ref().map(offer),
        };
        let limits = &self.config.limits;
        match (plan_reply(&shape, &offers, limits), self.last_resort) {
            (Err(_), Some(last)) if last > limits.inline_send => {
                let longer = Limits {
                    inline_send: last,
                    ..*limits
                };
                Ok(plan_reply(&shape, &offers, &longer)?)
            }
            (planned, _) => Ok(planned?),
        }
    }
}

/// Why a reply cannot be conveyed.
#[derive(Debug, thiserror::Error)]
enum NoPlan {
    #[error(transparent)]
    Shape(#[from] Unplaced),
    #[error(transparent)]
    Plan(#[from] ReplyError),
}
