//! The server side of version negotiation: the first message on a connection (version-two-01,
//! section 5; RFC 8166, section 4.5.1; RFC 8167, section 5.1).

use bytes::{Bytes, BytesMut};
use onc_rpc::put_words;
use rpcrdma_chunks::limits::MIN_HEADER_LEN;
use rpcrdma_chunks::{Fixed, proc};

use crate::known::Recognition;
use crate::{Beginning, KnownVersions, Negotiable, Version, Versions};

/// `rdma_err` of a version error, the same in all versions.
pub(crate) const ERR_VERS: u32 = 1;

/// The server's reaction to a message that arrives before the version of the connection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// The message must be handled in this version, which the connection uses from now on for calls
    /// in both directions ([`VersionDecision::by_client`](crate::VersionDecision::by_client)).
    Use(Version),
    /// The version of the message is not accepted, and this error must be sent. The version of the
    /// connection stays unknown.
    Refuse(Refusal),
    /// The message is discarded silently, because it is too short or an error, which is never
    /// answered. The version of the connection stays unknown.
    Discard,
}

/// An error that refuses the version of a first message. Its fields are the same in all versions,
/// and its header has the version of the message it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The XID of the message.
    pub xid: u32,
    /// The number of the version of the message.
    pub version: u32,
    /// The error.
    pub error: RefusalError,
}

/// The error in a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalError {
    /// ERR_VERS, with the lowest and the highest number of a version that is accepted.
    Version {
        /// Lowest accepted version.
        low: u32,
        /// Highest accepted version.
        high: u32,
    },
    /// Another code, without fields ([`Negotiable::refusal`]).
    Code(u32),
}

impl Refusal {
    /// Returns the error message, which grants `credits`.
    #[must_use]
    pub fn encode(&self, credits: u32) -> Bytes {
        let mut out = BytesMut::with_capacity(MIN_HEADER_LEN);
        let fixed = Fixed {
            xid: self.xid,
            version: self.version,
            credits,
            procedure: proc::ERROR,
        };
        fixed.encode_into(&mut out);
        match self.error {
            RefusalError::Version { low, high } => put_words(&mut out, [ERR_VERS, low, high]),
            RefusalError::Code(code) => put_words(&mut out, [code]),
        }
        out.freeze()
    }
}

/// Decides what a server that accepts these of the `known` versions does with `message`, which
/// arrives before the version of the connection is known.
///
/// The first accepted version that recognizes the message as its own is used. A message that might
/// as well be of an accepted version, but is of another one with the same number, is handled in the
/// accepted one, unless the client can go on in an accepted version with another number: a version
/// error then names that.
#[must_use]
pub fn decide_first_message(
    known: &KnownVersions,
    accepts: &Versions,
    message: &[u8],
) -> FirstMessage {
    let Some(first) = Beginning::of(message) else {
        return FirstMessage::Discard;
    };
    let fixed = *first.fixed();
    let recognizes = |version: &dyn Negotiable| version.recognize_first(&first);
    let accepted = known.accepted(accepts);
    let mut mine = accepted.clone();
    if let Some(mine) = mine.find(|&version| recognizes(version) == Recognition::Mine) {
        return FirstMessage::Use(mine.version());
    }
    let range = |versions: &mut dyn Iterator<Item = u32>| {
        versions.fold(None, |range, number| match range {
            None => Some((number, number)),
            Some((low, high)) => Some((number.min(low), number.max(high))),
        })
    };
    let refuse = |error| {
        FirstMessage::Refuse(Refusal {
            xid: fixed.xid,
            version: fixed.version,
            error,
        })
    };
    let is_of_another = known.owner(recognizes).is_some();
    let answerable = !first.is_error() && (is_of_another || first.len() >= MIN_HEADER_LEN);
    let numbers = accepted.clone().map(|version| version.version().number());
    let has_number = |version: &&dyn Negotiable| version.version().number() == fixed.version;
    let mut maybe = accepted.clone();
    if let Some(maybe) = maybe.find(|&version| recognizes(version) == Recognition::Maybe) {
        let mut others = numbers.filter(|&number| number != fixed.version);
        return match range(&mut others) {
            None => FirstMessage::Use(maybe.version()),
            Some((low, high)) if answerable => refuse(RefusalError::Version { low, high }),
            Some(_) => FirstMessage::Discard,
        };
    }
    if let Some(version) = accepted.clone().find(has_number) {
        return match version.refusal(&first) {
            Some(code) => refuse(RefusalError::Code(code)),
            None => FirstMessage::Discard,
        };
    }
    match range(&mut { numbers }) {
        Some((low, high)) if answerable => refuse(RefusalError::Version { low, high }),
        _ => FirstMessage::Discard,
    }
}
