//! Several replies in one message (rtissues-01, section 4).
//!
//! If an extension sends several together, short replies are kept until the driver asks for actions, which it
//! does after the upper layer has answered what it could. Until then their calls are in progress.

use onc_rpc::Message;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::Transmissions;
use smallvec::SmallVec;

use super::answer::is_short;
use super::{InCall, Responder};
use crate::group::Group;
use crate::shared::Shared;

impl Responder {
    /// Sets whether short replies are offered to an extension that sends several together.
    pub(crate) fn with_batches(self, batches: bool) -> Self {
        Self { batches, ..self }
    }

    /// Returns whether replies are kept to be sent together.
    #[inline]
    pub(crate) fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Returns whether a batch may carry this reply: it is short, nothing of its call's memory is used,
    /// no handle is invalidated with it, and nothing accompanies it, which would be for an extension
    /// that carries it alone.
    pub(super) fn may_gather(&self, shared: &Shared, call: &InCall, message: &Message) -> bool {
        call.writes.is_empty()
            && call.reply.is_none()
            && !(call.handle.is_some() && self.terms.may_invalidate)
            && message.extras().is_empty()
            && message.items().is_empty()
            && is_short(message.payload_len(), &shared.limits)
    }

    /// Sends the replies that were kept, as many together as an extension wants.
    #[inline(never)]
    pub(crate) fn send_gathered(&mut self, shared: &mut Shared) {
        while !self.gathered.is_empty() {
            // The limits may have changed since a reply was kept.
            let gathered = self.gathered.iter();
            let small =
                gathered.take_while(|(call, message)| self.may_gather(shared, call, message));
            let messages: SmallVec<[&Message; 16]> = small.map(|(_, message)| message).collect();
            let offered = messages.len();
            let batch = match offered {
                0 | 1 => None,
                _ => shared.batch(Direction::Reply, &messages),
            };
            drop(messages);
            let Some((_, batch)) = batch else {
                for _ in 0..offered.max(1) {
                    if let Some((call, message)) = self.gathered.pop_front() {
                        self.answer_alone(shared, call, message);
                    }
                }
                continue;
            };
            // The credits of its calls are returned by the message itself.
            let mut xid = None;
            let mut traced = Vec::new();
            for (call, _) in self.gathered.drain(..batch.count) {
                shared.flow.call_ended(call.messages);
                if shared.config.trace.is_some() {
                    traced.push(call.xid);
                }
                xid.get_or_insert(call.xid);
            }
            let messages = Transmissions::from_iter([batch.transmission]);
            let xid = xid.unwrap_or_default();
            Group::new(messages).send(shared, Direction::Reply, xid, None);
            for xid in traced {
                shared.trace_queued(Direction::Reply, xid);
            }
        }
    }
}
