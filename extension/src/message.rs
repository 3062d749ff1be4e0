//! Messages as extensions see them: those of their own, and what every version can say of any other.

use bytes::{Bytes, BytesMut};
use onc_rpc::Segments;
use rpcrdma_chunks::{Direction, Malformed, Reader};

use crate::PeerError;

/// Maximum number of bytes that are copied to join fields that exceed the first piece of a message.
/// No longer header is accepted.
const LONGEST_HEADER: usize = 256 << 10;

/// Facts known of a received message in every version, whoever owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// XID of the message.
    pub xid: u32,
    /// Direction of the message.
    pub direction: Direction,
    /// Credit value of the message. Its meaning depends on the version.
    pub credits: u32,
    /// The type of the message.
    pub kind: Kind,
}

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of an extension, with its number.
    Extension(u32),
    /// A message of the version itself, with the number of its header type (`rdma_proc`,
    /// `rdma_htype`).
    Base(u32),
}

/// A message of an extension that was received.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedMessage<'a> {
    /// Number of the message (`rdma_opttype`, `rdma_htype`), one of those that the extension owns.
    pub number: u32,
    /// XID of the message.
    pub xid: u32,
    /// Direction of the message.
    pub direction: Direction,
    /// Credit value of the message: in a version that counts calls, requested or granted, depending
    /// on the direction.
    pub credits: u32,
    /// The whole message, header included, as slices of the receive segments in which it was
    /// placed. There is one slice unless this side posts receives of several segments.
    pub message: &'a [Bytes],
    /// The fields of the extension in the header.
    pub fields: Fields<'a>,
}

/// The fields of an extension in the header of a message, as XDR.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// The header says how long they are (version-two-01, section 3.1: `rdma_optinfo`).
    Delimited {
        /// The fields.
        fields: &'a [u8],
        /// Offset of the payload in the message in bytes, counted across all slices.
        payload_at: usize,
    },
    /// The fields begin at this offset and end where the extension's decoder stops; the payload
    /// follows (version-two-07, section 6.2).
    Open {
        /// Offset of the fields in the message in bytes.
        at: usize,
    },
}

impl<'a> ReceivedMessage<'a> {
    /// Returns what other extensions may know of the message.
    #[must_use]
    pub fn heard(&self) -> Heard {
        Heard {
            xid: self.xid,
            direction: self.direction,
            credits: self.credits,
            kind: Kind::Extension(self.number),
        }
    }

    /// Decodes the fields. Returns them with the offset of the payload in the message in bytes,
    /// counted across all slices. `decode` may be called twice.
    ///
    /// # Errors
    /// [`Malformed`]: the error of `decode`, or fields whose length is known have more bytes.
    pub fn read<T>(
        &self,
        decode: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<(T, usize), Malformed> {
        let at = match self.fields {
            Fields::Delimited { fields, payload_at } => {
                return Ok((Reader::whole(fields, decode)?, payload_at));
            }
            Fields::Open { at } => at,
        };
        let read = |bytes: &[u8]| {
            let fields = bytes.get(at..).ok_or(Malformed::Truncated)?;
            let mut from = Reader::new(fields);
            let value = decode(&mut from)?;
            Ok((value, bytes.len() - from.left()))
        };
        match self.message {
            [only] => read(only),
            // Nearly all headers lie in the first piece.
            [first, ..] => read(first).or_else(|_| read(&joined(self.message))),
            [] => Err(Malformed::Truncated),
        }
    }

    /// Returns the fields and the offset of the payload, for an extension of a version whose headers
    /// say how long the fields are.
    ///
    /// # Errors
    /// [`Malformed`]: this version's headers do not, so that only [`ReceivedMessage::read`] finds
    /// the end of the fields.
    pub fn delimited(&self) -> Result<(&'a [u8], usize), Malformed> {
        match self.fields {
            Fields::Delimited { fields, payload_at } => Ok((fields, payload_at)),
            Fields::Open { .. } => Err(Malformed::Rule("fields without a length")),
        }
    }

    /// Returns what follows the first `at` bytes of the message, such as the payload
    /// ([`ReceivedMessage::read`]). Nothing is copied.
    #[must_use]
    pub fn payload(&self, mut at: usize) -> Segments {
        let rest = self.message.iter().map(|piece| {
            let before = at.min(piece.len());
            at -= before;
            piece.slice(before..)
        });
        rest.filter(|piece| !piece.is_empty()).collect()
    }

    /// Returns [`ReceivedMessage::payload`] in one piece. It is copied if this end posts receives of
    /// several segments.
    #[must_use]
    pub fn rest(&self, at: usize) -> Bytes {
        match &*self.payload(at) {
            [one] => one.clone(),
            several => several.concat().into(),
        }
    }

    /// Returns the length of the whole message in bytes.
    #[must_use]
    pub fn message_len(&self) -> usize {
        self.message.iter().map(Bytes::len).sum()
    }
}

/// Returns a copy of the beginning of a message, in one piece.
#[cold]
fn joined(message: &[Bytes]) -> Bytes {
    let mut head = BytesMut::new();
    for piece in message {
        let room = LONGEST_HEADER - head.len();
        head.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    head.freeze()
}

/// The reason why a message of an extension is not executed, and whether the peer learns of it. The
/// version makes the error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The fields do not match their XDR definition. The answer is [`PeerError::Chunk`].
    #[error("malformed message: {0}")]
    Malformed(#[from] Malformed),
    /// The extension knows the message but does not support it. The answer is [`PeerError::UnsupportedType`].
    #[error("messages of this type are not supported")]
    Unsupported,
    /// The message is answered with this error, for this reason.
    #[error("{1}: {0}")]
    Answer(PeerError, &'static str),
    /// The message is a reply, or a part of one, that cannot be used. It is not answered: its call,
    /// which has been executed, fails for this reason. A call that is refused so is discarded.
    #[error("{0}")]
    Unusable(&'static str),
    /// The message is discarded, and the engine sends no answer, as for invalid replies (RFC 8166,
    /// section 4.5). The extension may have sent one of its own.
    #[error("message discarded: {0}")]
    Discard(&'static str),
}

impl Refusal {
    /// Returns the error that the peer is told, if any.
    #[must_use]
    pub fn answer(&self) -> Option<PeerError> {
        match self {
            Self::Malformed(_) => Some(PeerError::Chunk),
            Self::Unsupported => Some(PeerError::UnsupportedType),
            Self::Answer(error, _) => Some(*error),
            Self::Unusable(_) | Self::Discard(_) => None,
        }
    }
}
