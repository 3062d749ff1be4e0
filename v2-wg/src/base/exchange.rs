//! The exchange of properties (sections 5, 6.3.3 and 6.3.4). Each end sends its properties once,
//! before its first RPC message, in as many messages as they take.

use bytes::{BufMut as _, Bytes, BytesMut};
use onc_rpc::padded;
use rpcrdma_chunks::Direction;
use rpcrdma_chunks::Side;
use rpcrdma_extension::{Outbox, Property as Announced};

use super::Base;
use crate::header::header_type::{CONNPROP_FINAL, CONNPROP_MIDDLE};
use crate::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX, MAX_PROPERTIES, PREFIX_LEN};
use crate::{ErrorBody, Properties, Property};

/// The properties of the peer.
#[derive(Debug)]
pub(super) enum PeerProperties {
    /// Nothing has arrived, or further messages follow. The properties are those of the messages
    /// that have arrived.
    Awaited {
        begun: bool,
        so_far: Properties,
        raw: Vec<Property>,
    },
    /// All have arrived.
    Known(Properties),
}

impl Default for PeerProperties {
    fn default() -> Self {
        Self::Awaited {
            begun: false,
            so_far: Properties::default(),
            raw: Vec::new(),
        }
    }
}

impl PeerProperties {
    pub(super) fn known(&self) -> Option<&Properties> {
        match self {
            Self::Known(properties) => Some(properties),
            Self::Awaited { .. } => None,
        }
    }

    /// Returns whether some of the peer's properties have arrived, and RDMA2_CONNPROP_FINAL has
    /// not.
    pub(super) fn is_incomplete(&self) -> bool {
        matches!(self, Self::Awaited { begun: true, .. })
    }
}

impl Base {
    /// Takes the properties of a message that was received; `last` says that it was
    /// RDMA2_CONNPROP_FINAL.
    ///
    /// # Errors
    /// The error to answer with: also if there are more than [`MAX_PROPERTIES`] in all. Nothing of
    /// the message has been applied then (section 7.2.2).
    pub fn take_properties(
        &mut self,
        last: bool,
        properties: Vec<Property>,
        out: &mut Outbox<'_>,
    ) -> Result<(), ErrorBody> {
        // Section 6.3.4: none may follow the last one.
        let PeerProperties::Awaited { begun, so_far, raw } = &mut self.peer else {
            return Err(ErrorBody::InvalidContinuation);
        };
        // The peer sends a handful; without a limit it could send them for ever.
        if raw.len() + properties.len() > MAX_PROPERTIES {
            self.lost_properties(last, false, out);
            return Err(ErrorBody::InvalidContinuation);
        }
        // A message with a bad value counts as a part of the exchange, but none of its properties
        // are applied.
        let applied = so_far.apply(&properties);
        *begun = true;
        if applied.is_ok() {
            raw.extend(properties);
        }
        if last {
            self.exchange_ended(out);
        }
        applied.map_err(|_| ErrorBody::BadPropertyValue)
    }

    /// Records that a message with properties was received that cannot be used, and of which
    /// nothing is applied. `last` says that it was RDMA2_CONNPROP_FINAL: it ends the exchange, because
    /// its sender may not send another one (section 6.3.4). Any other begins the exchange, unless it
    /// stands `between_parts` of another message, which go on (drafts/errata-07.md, 38).
    pub fn lost_properties(&mut self, last: bool, between_parts: bool, out: &mut Outbox<'_>) {
        if last {
            self.exchange_ended(out);
        } else if !between_parts && let PeerProperties::Awaited { begun, .. } = &mut self.peer {
            *begun = true;
        }
    }

    fn exchange_ended(&mut self, out: &mut Outbox<'_>) {
        let PeerProperties::Awaited { so_far, raw, .. } = &mut self.peer else {
            return;
        };
        let (known, raw) = (so_far.clone(), std::mem::take(raw));
        self.peer = PeerProperties::Known(known);
        for Property { id, value } in raw {
            out.share_property(Announced { id, value });
        }
        out.limits_changed();
    }
}

/// Sends this end's properties, and those of its extensions.
pub(super) fn announce(
    own: &Properties,
    side: Side,
    of_extensions: &[Announced],
    out: &mut Outbox<'_>,
) {
    let extensions = of_extensions.iter().map(|announced| Property {
        id: announced.id,
        value: announced.value.clone(),
    });
    let mut all = own.encode().into_iter().chain(extensions).peekable();
    let mut longest = match side {
        Side::Client => FIRST_MESSAGE_MAX,
        Side::Server => DEFAULT_INLINE,
    };
    let mut exchange = None;
    loop {
        // A message has one property at least: one that does not fit alone cannot be divided.
        let mut room = (longest as usize).saturating_sub(PREFIX_LEN + 4);
        let mut set = Vec::new();
        while let Some(property) = all.next_if(|next| set.is_empty() || len(next) <= room) {
            room = room.saturating_sub(len(&property));
            set.push(property);
        }
        let header_type = match all.peek() {
            Some(_) => CONNPROP_MIDDLE,
            None => CONNPROP_FINAL,
        };
        let info = encode(&set);
        match exchange {
            None => exchange = Some(out.call(header_type, info)),
            Some(xid) => out.about(xid, Direction::Call, header_type, info),
        }
        if header_type == CONNPROP_FINAL {
            return;
        }
        longest = DEFAULT_INLINE;
    }
}

/// Returns the encoded length of a property in bytes.
fn len(property: &Property) -> usize {
    8 + padded(property.value.len() as u64) as usize
}

/// Encodes `rpcrdma2_hdr_connprop`.
fn encode(set: &[Property]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u32(set.len() as u32);
    for property in set {
        out.put_u32(property.id);
        out.put_u32(property.value.len() as u32);
        out.put_slice(&property.value);
        out.put_bytes(0, onc_rpc::pad(property.value.len() as u64) as usize);
    }
    out.freeze()
}
