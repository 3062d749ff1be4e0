//! The handling of each received operation (section 4).

use rpcrdma_extension::{Calls, Outbox, Property, ReceivedMessage, Refusal};
use rpcrdma_v2::{Direction, Malformed};

use crate::exchange::Support;
use crate::receive_size::Disposition;
use crate::{
    Characteristic, Exchange, INITXCH, Init, REQXCH, RESPXCH, ReceiveBufferSize, Request, Response,
    UPDXCH, Update,
};

impl Exchange {
    pub(crate) fn operation(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        match op.number {
            INITXCH => self.init_received(op, out),
            REQXCH => self.request_received(op, out),
            RESPXCH => self.response_received(op, out),
            UPDXCH => self.update_received(op, out),
            _ => Err(Refusal::Unsupported),
        }
    }

    fn check(&self, properties: &[Property]) -> Result<(), Malformed> {
        let mut properties = properties.iter();
        properties.try_for_each(|property| self.config.registry.check(property))
    }

    fn init_received(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        let init = Init::decode(op.delimited()?.0)?;
        self.check(&init.start)?;
        if self.support == Support::Yes {
            return Err(Refusal::Discard("a second ROPT_INITXCH"));
        }
        self.support = Support::Yes;
        if op.direction == Direction::Reply {
            out.answered(op.xid);
        }
        self.peer.begin(&init);
        for property in init.start {
            out.share_property(property);
        }
        out.limits_changed();
        Ok(())
    }

    fn request_received(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        if op.direction == Direction::Reply {
            return Err(Refusal::Discard("a ROPT_REQXCH that is a reply"));
        }
        let request = Request::decode(op.delimited()?.0)?;
        self.check(&request.want)?;
        // A peer that sends requests must support updates (section 4), so it understands an
        // announced size.
        self.takes_updates = true;
        if self.size_update.take().is_some() {
            self.size.understood();
        }
        let mut response = Response::default();
        let mut todo = None;
        for (element, property) in request.want.iter().enumerate() {
            let size = match property.id {
                ReceiveBufferSize::ID => ReceiveBufferSize::from_bytes(&property.value).ok(),
                _ => None,
            };
            match size.map(|size| self.size.requested(size)) {
                Some(Disposition::Done) => response.done.add(element),
                Some(under_way @ (Disposition::Raise(_) | Disposition::Lower)) => {
                    response.pending.add(element);
                    todo = Some(under_way);
                }
                Some(Disposition::Rejected) | None => response.rejected.add(element),
            }
        }
        // The response must be sent first, because its consequences may be sent at once.
        out.reply(op.xid, RESPXCH, response.encode());
        match todo {
            Some(Disposition::Raise(size)) => out.replace_receives(size),
            Some(Disposition::Lower) => out.await_replies(Calls::Earlier),
            _ => {}
        }
        out.limits_changed();
        Ok(())
    }

    fn response_received(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        if op.direction == Direction::Call {
            let wrong = Malformed::Enumeration("direction of ROPT_RESPXCH", 0);
            return Err(Refusal::Malformed(wrong));
        }
        let (fields, _) = op.delimited()?;
        let response = Response::decode(fields);
        let Some(changed) = self.requests.answered(op.xid, response.as_ref().ok()) else {
            return Err(Refusal::Discard(
                "ROPT_RESPXCH without an outstanding request",
            ));
        };
        out.answered(op.xid);
        for property in changed {
            self.peer.update(&property);
            out.share_property(property);
        }
        out.limits_changed();
        match response {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Discard("a malformed ROPT_RESPXCH")),
        }
    }

    fn update_received(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        let update = Update::decode(op.delimited()?.0)?;
        self.config.registry.check(&update.now)?;
        self.peer.update(&update.now);
        self.requests.updated(&update);
        out.share_property(update.now);
        out.limits_changed();
        Ok(())
    }
}
