//! The server side of version negotiation: the first message on a connection (version-two-01,
//! section 5; RFC 8166, section 4.5.1; RFC 8167, section 5.1).

use rpcrdma_chunks::limits::{MIN_ERROR_LEN, MIN_HEADER_LEN};
use rpcrdma_chunks::{FIXED_LEN, Fixed, proc};
use rpcrdma_v2::{Answer, ErrorBody};

use crate::{Version, Versions};

/// The server's reaction to a message that arrives before the version of the connection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// The message must be handled in this version, which the connection uses from now on for calls
    /// in both directions ([`VersionDecision::by_client`](crate::VersionDecision::by_client)).
    Use(Version),
    /// The version of the message is not accepted, and this error must be sent. Its fields are the
    /// same in all versions, and its header has the version of the message it answers. The version
    /// of the connection stays unknown.
    Refuse(Answer),
    /// The message is discarded silently, because it is too short or an error, which is never
    /// answered. The version of the connection stays unknown.
    Discard,
}

/// Decides what a server that accepts these versions does with `message`, which arrives before the
/// version of the connection is known.
#[must_use]
pub fn decide_first_message(accepts: Versions, message: &[u8]) -> FirstMessage {
    let Some(fixed) = Fixed::peek(message) else {
        return FirstMessage::Discard;
    };
    let version = version_of(accepts, &fixed, message.len());
    let accepted = accepts.contains(version);
    if accepted && let Version::Other(_) = version {
        // Only its dialect knows which messages are errors, and how long headers are.
        return FirstMessage::Use(version);
    }
    let is_error = fixed.procedure == proc::ERROR;
    let min = match version {
        _ if is_error => MIN_ERROR_LEN,
        // RDMA2_GRANT has the prefix alone.
        Version::TwoWg => FIXED_LEN,
        _ => MIN_HEADER_LEN,
    };
    if message.len() < min || is_error {
        return FirstMessage::Discard;
    }
    if version == Version::Two && Version::of(&fixed, message.len()) == Version::TwoWg {
        // After this error, a client of the working group's version may send a message of 2016 on
        // the same connection, which then counts as the first.
        return FirstMessage::Refuse(Answer {
            xid: fixed.xid,
            version: fixed.version,
            error: ErrorBody::BadHeader,
        });
    }
    match accepted {
        true => FirstMessage::Use(version),
        false => {
            let (low, high) = match version {
                // The range would contain the number 2, which is another version here.
                Version::Two if accepts.contains(Version::TwoWg) => {
                    (Version::One.number(), Version::One.number())
                }
                _ => accepts.range(),
            };
            FirstMessage::Refuse(Answer {
                xid: fixed.xid,
                version: fixed.version,
                error: ErrorBody::Version { low, high },
            })
        }
    }
}

/// Returns the version of a message. If the server accepts only one of the two versions with the
/// number 2, every message with that number is handled as that version, and a message of the other
/// is answered with an error other than a version error, which could only say "2". There is one
/// exception: a client of 2016 may not know the working group's version; a server that accepts that
/// and version 1 answers it with a version error that names version 1.
fn version_of(accepts: Versions, fixed: &Fixed, known: usize) -> Version {
    let version = Version::of(fixed, known);
    if version == Version::Two && !accepts.contains(version) && accepts.contains(Version::One) {
        return version;
    }
    let both = [Version::Two, Version::TwoWg];
    let mut accepted = both.into_iter().filter(|&two| accepts.contains(two));
    match (both.contains(&version), accepted.next(), accepted.next()) {
        (true, Some(only), None) => only,
        _ => version,
    }
}
