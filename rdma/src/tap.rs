//! Showing an observer, such as a capture, what passes between a device and its peers.
//!
//! Middleware sees what its owner posts and is told; it does not see what peers do to registered
//! memory. A device that is given a [`Tap`] shows both directions, peers' RDMA Writes and Reads
//! included. Devices in hardware have nothing to show.

use crate::{Carrier, QpId, Stag, Time};

/// What passed over a connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Bytes of the TCP stream beneath the connection, in the order of the stream, from set-up on and
    /// with all framing. One `Frame` can hold several FPDUs, or a part of one.
    Stream {
        /// The addresses of both ends.
        carrier: Carrier,
        /// The bytes, in one piece or several.
        pieces: &'a [&'a [u8]],
    },
    /// A whole Send.
    Send {
        /// Its message.
        payload: &'a [u8],
        /// The receiver's handle that it invalidates.
        invalidate: Option<Stag>,
    },
    /// A whole RDMA Write.
    Write {
        /// The bytes that are placed.
        payload: &'a [u8],
        /// Handle of the receiver's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// The request of an RDMA Read.
    ReadRequest {
        /// Bytes that are asked for.
        length: usize,
        /// Handle of the receiver's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// The response to the connection's oldest unanswered RDMA Read.
    ReadResponse {
        /// The bytes that were read.
        payload: &'a [u8],
    },
}

/// An observer of what passes. It is called in the midst of the device's work, from any thread of the
/// device's, so it must return soon and must not call the device.
pub trait Tap: Send {
    /// `frame` left the device at this time.
    fn sent(&mut self, at: Time, qp: QpId, frame: Frame<'_>);

    /// `frame` arrived at this time. It is not checked yet: the device may still refuse it.
    fn received(&mut self, at: Time, qp: QpId, frame: Frame<'_>);
}
