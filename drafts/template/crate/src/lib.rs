//! @Name@: an extension of RPC-over-RDMA version 2 (`@rpcrdma@` in options). No I/O and no clock.
//!
//! A sketch to begin with: a client sends small calls in a message of the extension's own, which has fields
//! beside the call. The caller attaches them to the call (`rpc_transport::Call::with_extra`), and the service
//! sees them (`rpc_transport::Request::extra`). A server announces by a property that it accepts them. The
//! document is draft-maintainers-nfsv4-rpcrdma-@name@-00, whose source is `drafts/text/rpcrdma-@name@.xml`.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use onc_rpc::{Message, peek_start};
use rpcrdma_chunks::{Chunks, Direction, Malformed, Side};
use rpcrdma_extension::xdr::{Structure as _, Xdr as _};
use rpcrdma_extension::{
    AgreedFeatures, CallCandidate, CallToPlan, EndConfig, Extension, ExtensionFactory,
    FeatureReason, IncomingCall, NotTransferred, Outbox, PeerError, Planned, Property,
    ReceivedMessage, Refusal, TransferMode, Transferred, Transmission, Transmissions, xdr_struct,
};

/// The number of the messages: `@number_field@`.
pub const @CODE@: u32 = @rust@;
/// The number of the property.
pub const @PROP@: u32 = @rust@;
/// Length in bytes of the header in front of the fields.
const HEADER: u64 = @fields_at@;
/// The largest count that a server accepts.
pub const MOST: u32 = 1 << 20;

xdr_struct! {
    /// The fields of [`@CODE@`], which a call follows.
    pub struct @Name@ = "@struct@" {
        /// A count that the caller gives, from 1 to the largest that the server accepts. A call with
        /// another one goes by the base protocol, without the fields.
        pub count: u32 = "@field@_count",
    }
}

impl @Name@ {
    /// Makes the fields of a call with this count. Any other field has the value of its type's `Default`.
    #[must_use]
    #[allow(clippy::needless_update, reason = "there may be other fields")]
    pub fn new(count: u32) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }
}

/// Formats what logs and `explain` say of a call that has the fields.
impl fmt::Display for @Name@ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with a count of {}", self.count)
    }
}

xdr_struct! {
    /// The value of [`@PROP@`].
    pub struct Accepts = "@prop_struct@" {
        /// The largest count that the end accepts; 0 if it does not know these messages.
        pub most: u32 = "@field@_most",
    }
}

impl Accepts {
    /// Makes the value that an end announces. Any other field has the value of its type's `Default`.
    #[must_use]
    #[allow(clippy::needless_update, reason = "there may be other fields")]
    pub fn new(most: u32) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }
}

/// Makes the state of each connection.
#[derive(Clone, Debug, Default)]
pub struct Factory {
    /// The fields of calls whose caller gives none.
    pub default: @Name@,
}

impl ExtensionFactory for Factory {
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        Some(Box::new(End::new(end.side, self.default.clone())))
    }
}

/// The state of one end of a connection.
#[derive(Debug)]
pub struct End {
    side: Side,
    /// The value that the peer accepts. It announces it when the connection begins.
    peer: Accepts,
    /// The fields of calls whose caller gives none.
    default: @Name@,
}

impl End {
    /// Returns the state at the beginning of a connection.
    #[must_use]
    pub fn new(side: Side, default: @Name@) -> Self {
        Self {
            side,
            peer: Accepts::default(),
            default,
        }
    }
}

impl Extension for End {
    fn name(&self) -> &'static str {
        "@name@"
    }

    fn numbers(&self) -> &[u32] {
        &[@CODE@]
    }

    fn direction(&self, _: u32) -> Option<Direction> {
        Some(Direction::Call)
    }

    fn properties(&self) -> Vec<Property> {
        let accepts = Property {
            id: @PROP@,
            value: Accepts::new(MOST).encode(),
        };
        let is_server = self.side == Side::Server;
        is_server.then_some(accepts).into_iter().collect()
    }

    fn is_valid(&self, property: &Property) -> bool {
        let value = &property.value;
        property.id != @PROP@ || value.is_empty() || Accepts::decode(value).is_ok()
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        if property.id == @PROP@ {
            self.peer = Accepts::decode(&property.value).unwrap_or_default();
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let (fields, at) = it.read(@Name@::decode_from)?;
        if self.side == Side::Client {
            return Err(Refusal::Unsupported);
        }
        if !(1..=MOST).contains(&fields.count) {
            return Err(Malformed::Rule("a count that is not accepted").into());
        }
        let mut message = Message::without_items(it.payload(at));
        if peek_start(&message) != Some((it.xid, Direction::Call.number())) {
            return Err(Malformed::Rule("no call behind a count").into());
        }
        tracing::debug!(xid = it.xid, count = fields.count, "a call with a count");
        // The service finds them with `Request::extra`.
        message.extras_mut().insert(fields);
        let call = IncomingCall::in_one_message(it, message);
        out.transferred(Transferred::BaseCall { call, handle: None });
        Ok(())
    }

    /// Lists what `ping -v` shows.
    fn agreed(&self, side: Side, agreed: &mut AgreedFeatures) {
        let reason = match self.peer.most {
            0 => FeatureReason::NotAnnounced,
            _ => FeatureReason::Peer,
        };
        if side == Side::Client {
            agreed.set("@name@", (self.peer.most > 0, reason));
        }
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }
}

impl TransferMode for End {
    fn claims_small_calls(&self) -> bool {
        true
    }

    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let fields = call.extras.get().unwrap_or(&self.default);
        if !(1..=self.peer.most).contains(&fields.count) {
            return Vec::new();
        }
        let header = HEADER + fields.encode().len() as u64;
        let candidate = call.in_one_message(header, Arc::new(fields.clone()));
        candidate.into_iter().collect()
    }

    fn plan_state(&self) -> Option<u64> {
        Some(self.peer.most.into())
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        if self.peer.most == 0 {
            return Err(NotTransferred("the server accepts no counts".to_owned()));
        }
        let fields = plan.of::<@Name@>()?.encode();
        let call = Transmission::new(@CODE@, fields, message.payload().clone());
        Ok([call].into_iter().collect())
    }

    fn call_refused(&mut self, _: u32, error: PeerError) {
        tracing::debug!(?error, "the server refuses a call with a count");
        self.peer = Accepts::default();
    }
}
