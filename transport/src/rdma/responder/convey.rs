//! Calls that came in operations of an extension, and replies that may go in them.
//!
//! A reply without items that one plain Send carries goes like that. For any other the extension
//! that brought the call is asked.

use std::any::Any;

use conveyance::{Limits, ReplyPlan, Shape, Unplaced};
use onc_rpc::Message;
use rdma::Stag;
use rpcrdma_chunks::fill;
use rpcrdma_v2::extension::{IncomingCall, NotConveyed, ReplyToPlan, Transmissions};
use rpcrdma_v2::{Body, Direction, Header, Optional};
use smallvec::SmallVec;

use super::fetch::Fetch;
use super::{InCall, Responder, ResponderAction, place};

/// How a call came.
#[derive(Debug)]
pub(super) struct Brought {
    by: usize,
    pub(super) transmissions: u32,
    context: Box<dyn Any + Send>,
}

/// A reply to look for ways for; [`Responder::laid_out`] answers.
#[derive(Debug)]
pub(crate) struct AskedReply<'a> {
    /// Which extension brought its call.
    pub(crate) by: usize,
    pub(crate) xid: u32,
    pub(crate) message: &'a Message,
    pub(crate) reply: ReplyToPlan<'a>,
    /// The base's way, if it has one: a plain Send.
    pub(crate) base: Option<&'a ReplyPlan>,
}

/// How a reply goes.
#[derive(Debug)]
pub(crate) enum LaidOut {
    /// As the base has it.
    Base,
    /// In operations, with items that are written beside them: each with its write chunk.
    InOperations(SmallVec<[(usize, usize); 1]>, Transmissions),
    /// The extension says that it does not.
    Not(NotConveyed),
}

impl Responder {
    /// A call arrived in operations of this extension.
    pub(crate) fn conveyed(&mut self, by: usize, call: IncomingCall) {
        let reply = call.chunks.writes.iter().chain(&call.chunks.reply);
        let reply = reply.flatten();
        let read = call.chunks.items.iter().flat_map(|read| &read.segments);
        let handle = reply.chain(read).next().map(|segment| segment.handle);
        let chunks = call.chunks;
        let brought = Brought {
            by,
            transmissions: call.transmissions.max(1),
            context: call.context,
        };
        let call_in = InCall {
            xid: call.xid,
            generation: 0,
            fetch: Some(Box::new(Fetch::new(
                call.message,
                chunks.payload,
                chunks.items,
            ))),
            writes: chunks.writes,
            reply: chunks.reply,
            handle: handle.map(Stag),
            fetched: 0,
            brought: Some(Box::new(brought)),
        };
        self.admit_to_fetch(call_in, call.requested);
    }

    /// The requester could not use the reply that was sent for this call. It learns that there will
    /// be no other, so that it can make the call in another way.
    pub(crate) fn rejected(&mut self, xid: u32, reason: &str) {
        let credits = self.credits.grant();
        self.chunk_error(xid, credits, &reason);
    }

    /// The next reply to look for ways for, with its lengths and the base's way.
    pub(crate) fn next_asked(&mut self) -> Option<(Shape, Option<ReplyPlan>)> {
        loop {
            let (_, message) = self.asked.front()?;
            match self.without_chunks(message) {
                Ok(found) => return Some(found),
                Err(error) => {
                    let (call, _) = self.asked.pop_front()?;
                    let credits = self.credits.answered_group(call.transmissions());
                    self.chunk_error(call.xid, credits, &error);
                }
            }
        }
    }

    /// A reply's lengths, and the plan by which the base sends it without chunks, if it can.
    pub(super) fn without_chunks(
        &self,
        message: &Message,
    ) -> Result<(Shape, Option<ReplyPlan>), Unplaced> {
        let shape = Shape::of(message)?;
        let none = conveyance::Offers::default();
        let plan = conveyance::plan_reply(&shape, &none, &self.limits()).ok();
        Ok((shape, plan))
    }

    /// That reply.
    pub(crate) fn asked_reply<'a>(
        &'a self,
        shape: &'a Shape,
        base: Option<&'a ReplyPlan>,
        limits: &'a Limits,
    ) -> Option<AskedReply<'a>> {
        let (call, message) = self.asked.front()?;
        let brought = call.brought.as_ref()?;
        Some(AskedReply {
            by: brought.by,
            xid: call.xid,
            message,
            reply: ReplyToPlan {
                shape,
                limits,
                context: &*brought.context,
            },
            base,
        })
    }

    /// The limits for replies to such calls: as much as the requester has room for, as it may have
    /// left no other way.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.config.limits;
        let most = self.last_resort.unwrap_or(0);
        Limits {
            inline_send: limits.inline_send.max(most),
            ..limits
        }
    }

    /// How that reply is to go.
    pub(crate) fn laid_out(&mut self, base: Option<ReplyPlan>, laid_out: LaidOut) {
        let Some((call, message)) = self.asked.pop_front() else {
            return;
        };
        let nothing = base.is_none() && !matches!(laid_out, LaidOut::InOperations(..));
        if nothing && self.last_resort.is_none() {
            tracing::debug!(
                xid = call.xid,
                "reply waits until it is known what may be sent"
            );
            return self.held.push((call, message));
        }
        let credits = self.credits.answered_group(call.transmissions());
        match (laid_out, base) {
            (LaidOut::InOperations(writes, transmissions), _) => {
                self.send_group(&call, &message, credits, &writes, transmissions);
            }
            (LaidOut::Base | LaidOut::Not(_), Some(plan)) => {
                self.send_plain(&call, &message, credits, &plan);
            }
            (LaidOut::Not(error), None) => self.chunk_error(call.xid, credits, &error),
            (LaidOut::Base, None) => {
                self.chunk_error(call.xid, credits, &"there is no room for the reply");
            }
        }
    }

    /// A reply to a call of an extension's, as the base has it: without chunks.
    pub(super) fn send_plain(
        &mut self,
        call: &InCall,
        message: &Message,
        credits: u32,
        plan: &ReplyPlan,
    ) {
        match place::place(plan, message, &[], None) {
            Ok(placed) => self.send_placed(call, credits, plan, placed),
            Err(error) => self.chunk_error(call.xid, credits, &error),
        }
    }

    fn send_group(
        &mut self,
        call: &InCall,
        message: &Message,
        credits: u32,
        writes: &[(usize, usize)],
        transmissions: Transmissions,
    ) {
        for &(item, chunk) in writes {
            let (Some(bulk), Some(offered)) = (message.items().get(item), call.writes.get(chunk))
            else {
                return self.chunk_error(call.xid, credits, &"no such item or chunk");
            };
            let filled = match fill(offered, bulk.data.len() as u64) {
                Ok(filled) => filled,
                Err(error) => return self.chunk_error(call.xid, credits, &error),
            };
            let mut placed = SmallVec::new();
            let bytes = bulk.data.clone().into_segments();
            place::write_all(&filled, bytes, &mut placed);
            self.actions.extend(placed);
        }
        let mut invalidate = call.handle.filter(|_| self.config.remote_invalidation);
        let last = transmissions.len().saturating_sub(1);
        for (index, transmission) in transmissions.into_iter().enumerate() {
            let body = Body::Optional(Optional {
                direction: Direction::Reply,
                opttype: transmission.opttype,
                info: transmission.info,
            });
            let xid = call.xid;
            let mut gather = transmission.payload;
            gather.insert(0, Header { xid, credits, body }.encode());
            let invalidate = invalidate.take_if(|_| index == last);
            let action = ResponderAction::Send {
                gather,
                invalidate,
                more: index < last,
            };
            self.actions.push_back(action);
        }
    }
}
