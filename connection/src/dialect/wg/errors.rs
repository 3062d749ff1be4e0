//! The errors of version 2 of the working group, and what is refused with them (section 7).

use rpcrdma_chunks::Direction;
use rpcrdma_extension::Refusal;
use rpcrdma_v2_wg::{Answer, ErrorBody};

use super::super::{BadMessage, ErrorMessage, Incoming, PeerError};

/// Returns a message that is discarded, and answered with an error if there is one.
pub(super) fn bad_message(
    direction: Direction,
    answer: Option<Answer>,
    reason: impl ToString,
) -> Incoming {
    let answer = answer.map(|answer| ErrorMessage {
        xid: answer.xid,
        version: answer.version,
        error: peer_error(answer.error).unwrap_or(PeerError::System),
    });
    let reason = reason.to_string();
    Incoming::Bad(direction, BadMessage { answer, reason })
}

/// Refuses a message or a part of one. A part of a call is answered with an error. A part of a reply is
/// not answered, although section 6.3.9 requires it, because an error has no direction. The refusal fails the
/// call at this end instead (drafts/errata-07.md, 54).
pub(super) fn refuse(direction: Direction, xid: u32, refusal: Refusal) -> Incoming {
    let answer = match (refusal, direction) {
        (Refusal::Discard(_), _) => None,
        (Refusal::Answer(_, reason) | Refusal::Unusable(reason), Direction::Reply) => {
            let reason = reason.to_owned();
            return Incoming::Unusable { xid, reason };
        }
        _ => refusal.answer(),
    };
    let answer = answer.map(|error| Answer::new(xid, error_body(error)));
    bad_message(direction, answer, refusal)
}

/// Lowers the maximum in RDMA2_ERR_SEGMENTS to the number of segments that this end has announced.
/// The limit of the decoder may be higher.
pub(super) fn as_announced(error: ErrorBody, announced: u32) -> ErrorBody {
    match error {
        ErrorBody::Segments { max } => ErrorBody::Segments {
            max: max.min(announced),
        },
        error => error,
    }
}

/// Returns an error in the terms that all versions share, or `None` if its code is not known.
pub(super) fn peer_error(error: ErrorBody) -> Option<PeerError> {
    Some(match error {
        ErrorBody::Version { low, high } => PeerError::Version { low, high },
        ErrorBody::BadXdr => PeerError::Chunk,
        ErrorBody::BadPropertyValue => PeerError::PropertyValue,
        ErrorBody::InvalidHeaderType => PeerError::UnsupportedType,
        ErrorBody::InvalidContinuation => PeerError::Continuation,
        ErrorBody::ReadChunks { max } => PeerError::ReadChunks { max },
        ErrorBody::WriteChunks { max } => PeerError::WriteChunks { max },
        ErrorBody::Segments { max } => PeerError::Segments { max },
        ErrorBody::WriteResource { chunk, needed } => PeerError::WriteResource { chunk, needed },
        ErrorBody::ReplyResource { needed } => PeerError::ReplyResource { needed },
        ErrorBody::VersionMismatch => PeerError::VersionMismatch,
        ErrorBody::System => PeerError::System,
        ErrorBody::Other(_) => return None,
    })
}

pub(super) fn error_body(error: PeerError) -> ErrorBody {
    match error {
        PeerError::Version { low, high } => ErrorBody::Version { low, high },
        PeerError::Chunk => ErrorBody::BadXdr,
        PeerError::PropertyValue => ErrorBody::BadPropertyValue,
        PeerError::UnsupportedType => ErrorBody::InvalidHeaderType,
        PeerError::Continuation => ErrorBody::InvalidContinuation,
        PeerError::ReadChunks { max } => ErrorBody::ReadChunks { max },
        PeerError::WriteChunks { max } => ErrorBody::WriteChunks { max },
        PeerError::Segments { max } => ErrorBody::Segments { max },
        PeerError::WriteResource { chunk, needed } => ErrorBody::WriteResource { chunk, needed },
        PeerError::ReplyResource { needed } => ErrorBody::ReplyResource { needed },
        PeerError::VersionMismatch => ErrorBody::VersionMismatch,
        PeerError::System => ErrorBody::System,
    }
}
