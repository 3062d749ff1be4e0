//! The one place that knows what a bulk item's bytes are kept in.

use bytes::Bytes;
use onc_rpc::{Bulk, Segments};

/// Their pieces.
pub(crate) fn pieces(data: &Bulk) -> &[Bytes] {
    data.pieces()
}

/// From pieces.
pub(crate) fn from_pieces(pieces: Segments) -> Bulk {
    pieces.into_iter().collect()
}
