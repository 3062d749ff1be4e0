//! Optional operations (version-two-01, section 3): the headers of the messages of extensions
//! ([`rpcrdma_extension`]).

use bytes::{Bytes, BytesMut};
use rpcrdma_chunks::{FIXED_LEN, Fixed};
use rpcrdma_extension::{
    ErrorAbout, Extensions, Fields, Heard, Kind, OutgoingMessage, PeerError, ReceivedMessage,
    Refusal,
};

use crate::codec::put_operation;
use crate::{Body, Direction, ErrorBody, Header, OPTIONAL, Optional, Reader, VERSION};

/// Returns the header of a message of an extension, with these credits.
#[must_use]
pub fn header(message: OutgoingMessage, credits: u32) -> Header {
    let optional = Optional {
        direction: message.direction,
        opttype: message.number,
        info: message.fields,
    };
    Header {
        xid: message.xid,
        credits,
        body: Body::Optional(optional),
    }
}

/// Appends the header of a message of an extension, with these credits, as [`header`] returns it.
pub fn encode_header(message: &OutgoingMessage, credits: u32, out: &mut BytesMut) {
    let start = (message.xid, credits);
    put_operation(
        out,
        start,
        message.direction,
        message.number,
        &message.fields,
    );
}

/// Returns what extensions may know of a received message that is not theirs: XID, direction,
/// credits and type.
#[must_use]
pub fn heard(header: &Header) -> Heard {
    Heard {
        xid: header.xid,
        direction: header.direction(),
        credits: header.credits,
        kind: match &header.body {
            Body::Optional(optional) => Kind::Extension(optional.opttype),
            body => Kind::Base(body.procedure()),
        },
    }
}

/// Returns an operation for its extension, without the effort of [`Header::decode`]. `message` is the whole
/// message in slices. `None` if the message is no valid RDMA2_OPTIONAL whose header lies in the first
/// slice; [`Header::decode`] then says what it is.
#[must_use]
pub fn peek(message: &[Bytes]) -> Option<ReceivedMessage<'_>> {
    let first = message.first()?;
    let fixed = Fixed::peek(first)?;
    if fixed.version != VERSION || fixed.procedure != OPTIONAL {
        return None;
    }
    let mut from = Reader::new(&first[FIXED_LEN..]);
    let direction = Direction::from_number(from.u32().ok()?)?;
    let number = from.u32().ok()?;
    let fields = from.opaque().ok()?;
    Some(ReceivedMessage {
        number,
        xid: fixed.xid,
        direction,
        credits: fixed.credits,
        message,
        fields: Fields::Delimited {
            fields,
            payload_at: first.len() - from.left(),
        },
    })
}

/// Returns an operation for its extension, or `None` if the header is not RDMA2_OPTIONAL. `message`
/// is the whole message in slices, and `payload_at` the offset of its payload in bytes.
#[must_use]
pub fn received<'a>(
    header: &'a Header,
    message: &'a [Bytes],
    payload_at: usize,
) -> Option<ReceivedMessage<'a>> {
    let Body::Optional(optional) = &header.body else {
        return None;
    };
    Some(ReceivedMessage {
        number: optional.opttype,
        xid: header.xid,
        direction: optional.direction,
        credits: header.credits,
        message,
        fields: Fields::Delimited {
            fields: &optional.info,
            payload_at,
        },
    })
}

/// The outcome of routing a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The base protocol must handle the message: it is an RPC message, or an error about a call.
    Base,
    /// An extension has handled the message.
    Taken,
    /// The message is not handled, and this error must be sent.
    Refused(PeerError),
    /// The message is not handled, for this reason, and no error is sent.
    Discarded(Refusal),
}

/// Passes a received message to the extensions. The parameters are those of [`received`].
pub fn route(
    extensions: &mut Extensions,
    header: &Header,
    message: &[Bytes],
    payload_at: usize,
) -> Routed {
    if let Some(operation) = received(header, message, payload_at) {
        return match extensions.received(&operation) {
            Ok(()) => Routed::Taken,
            Err(refusal) => match refusal.answer() {
                Some(error) => Routed::Refused(error),
                None => Routed::Discarded(refusal),
            },
        };
    }
    let heard = heard(header);
    let routed = match header.body {
        Body::Error(error) => match extensions.failed(&heard, error.into()) {
            ErrorAbout::Extension | ErrorAbout::Version => Routed::Taken,
            ErrorAbout::Call => Routed::Base,
        },
        _ => {
            route_base(extensions, &heard);
            return Routed::Base;
        }
    };
    extensions.give_up_parts();
    routed
}

/// Shows an RPC message of the base protocol to the extensions. Nothing comes between the parts of a
/// message of theirs (rtrext-00, section 4.2).
pub fn route_base(extensions: &mut Extensions, heard: &Heard) {
    extensions.heard(heard);
    extensions.give_up_parts();
}

impl From<ErrorBody> for PeerError {
    fn from(error: ErrorBody) -> Self {
        match error {
            ErrorBody::Version { low, high } => Self::Version { low, high },
            ErrorBody::BadHeader => Self::Chunk,
            ErrorBody::InvalidOption => Self::UnsupportedType,
        }
    }
}

/// The error of this version that is nearest to an error: RDMA2_ERR_BAD_HEADER if it has no other.
impl From<PeerError> for ErrorBody {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Version { low, high } => Self::Version { low, high },
            PeerError::UnsupportedType => Self::InvalidOption,
            _ => Self::BadHeader,
        }
    }
}
