//! The one place that knows what a bulk item's bytes are kept in.

use bytes::Bytes;
use onc_rpc::Segments;

/// Their pieces.
pub(crate) fn pieces(data: &Bytes) -> &[Bytes] {
    std::slice::from_ref(data)
}

/// From pieces.
pub(crate) fn from_pieces(pieces: Segments) -> Bytes {
    match &pieces[..] {
        [one] => one.clone(),
        _ => pieces.concat().into(),
    }
}
