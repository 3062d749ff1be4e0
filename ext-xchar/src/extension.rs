//! The implementation of [`Extension`] for [`Exchange`].

use rpcrdma_chunks::Side;
use rpcrdma_extension::{
    AgreedFeatures, Calls, ConnectionLimits, Extension, FeatureReason, Heard, NotChanged, Outbox,
    PeerError, Property, ReceiveChange, ReceivedMessage, Refusal, Start,
};
use rpcrdma_v2::limits::FIRST_MESSAGE_MAX;

use crate::agreed::decide;
use crate::exchange::Support;
use crate::{
    BackwardRequestSupport, Characteristic, Exchange, INITXCH, REQXCH, RESPXCH, ReceiveBufferSize,
    RequesterRemoteInvalidation, UPDXCH,
};

impl Extension for Exchange {
    fn name(&self) -> &'static str {
        "transport characteristics"
    }

    fn numbers(&self) -> &[u32] {
        &[INITXCH, REQXCH, RESPXCH, UPDXCH]
    }

    fn properties(&self) -> Vec<Property> {
        vec![
            ReceiveBufferSize::property(&self.size.current()),
            RequesterRemoteInvalidation::property(&self.config.accept_invalidation),
            BackwardRequestSupport::property(&self.config.backward),
        ]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        self.send_init(start, out);
    }

    fn change_receives(
        &mut self,
        change: ReceiveChange,
        out: &mut Outbox<'_>,
    ) -> Result<(), NotChanged> {
        match change {
            ReceiveChange::Raise(size) => self.raise_receive_size(size, out),
            ReceiveChange::Request(size) => {
                self.request(vec![ReceiveBufferSize::property(&size)], out)
            }
        }
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let done = self.operation(op, out);
        self.message_received(out);
        done
    }

    fn observed(&mut self, _: &Heard, out: &mut Outbox<'_>) {
        self.message_received(out);
    }

    fn refused(&mut self, xid: u32, error: PeerError, out: &mut Outbox<'_>) {
        // Any other error is about this one operation.
        let unsupported = error == PeerError::UnsupportedType;
        if self.init.take_if(|init| *init == xid).is_some() {
            if self.support == Support::Unknown {
                self.support = Support::No;
            }
        } else if self.requests.refused(xid) {
            self.no_requests |= unsupported;
        } else {
            self.no_updates |= unsupported;
            if self.size_update.take_if(|update| *update == xid).is_some() {
                self.size.not_understood();
            }
        }
        out.limits_changed();
    }

    fn receives_replaced(&mut self, size: u32, out: &mut Outbox<'_>) {
        if let Some((size, requested)) = self.size.replaced(size) {
            self.tell_size(size, requested, out);
        }
    }

    fn replies_arrived(&mut self, calls: Calls, out: &mut Outbox<'_>) {
        match calls {
            Calls::Earlier => {
                if let Some(size) = self.size.earlier_answered() {
                    self.tell_size(size, true, out);
                    out.replace_receives(size);
                }
            }
            Calls::Next => {
                if self.size_update.take().is_some() && self.size.understood() {
                    out.limits_changed();
                }
            }
        }
    }

    fn limits(&self, limits: &mut ConnectionLimits) {
        if self.support != Support::Yes {
            return;
        }
        let max = self.config.max_send;
        // An announced size below what every message may have is not usable.
        let usable = |size: u32| size.max(FIRST_MESSAGE_MAX);
        let last_resort = self.requests.last_resort(&self.peer);
        limits.inline_send = usable(self.requests.send_limit(&self.peer)).min(max);
        // The peer does not know this end's own limit on sends: its calls rely on the size that the
        // peer itself can receive.
        limits.reply_last_resort = last_resort.map(usable);
        // A peer that announces its own receive size also understands this side's. Otherwise that
        // is not certain, because each characteristic is optional (section 4.1).
        if self.peer.said::<ReceiveBufferSize>().is_some() {
            limits.inline_receive = self.size.told();
        }
        limits.may_invalidate =
            self.config.can_invalidate && self.peer.get::<RequesterRemoteInvalidation>();
        limits.reverse_direction = self.peer.get::<BackwardRequestSupport>().limit();
    }

    fn agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        let peer = match self.support {
            Support::Unknown => Err(FeatureReason::NotSaidYet),
            Support::Yes => Ok(&self.peer),
            Support::No => Err(FeatureReason::NotExchanged),
        };
        decide(side, &self.config, self.size.told(), peer, agreed);
    }

    fn knows_peer(&self) -> bool {
        self.support != Support::Unknown
    }
}
