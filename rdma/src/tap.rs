//! An interface for observers, such as a packet capture, of the traffic between a device and its
//! peers.
//!
//! Middleware sees the requests of the device's owner and the events for it, but not the accesses
//! of peers to registered memory. A device with a [`Tap`] shows both directions, including peers'
//! RDMA Writes and Reads. Hardware devices cannot show their traffic; `Reconstructed` of the crate
//! `rdma-capture` derives it from their requests and completions.

use std::net::SocketAddr;

use crate::{Carrier, QpId, Stag, Time};

/// A unit of traffic on a connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Bytes of the TCP stream under the connection, in stream order, from connection set-up on and
    /// with all framing. One `Frame` can hold several FPDUs or a part of one.
    Stream {
        /// The TCP connection, with the addresses of both ends.
        carrier: Carrier,
        /// The bytes, in one or several pieces.
        pieces: &'a [&'a [u8]],
    },
    /// A complete Send.
    Send {
        /// The message.
        payload: &'a [u8],
        /// The receiver's handle that the Send invalidates.
        invalidate: Option<Stag>,
    },
    /// A complete RDMA Write.
    Write {
        /// The bytes that are written.
        payload: &'a [u8],
        /// Handle of the receiver's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// An RDMA Read Request.
    ReadRequest {
        /// Number of bytes requested.
        length: usize,
        /// Handle of the receiver's memory.
        stag: Stag,
        /// Tagged offset of the first byte.
        offset: u64,
    },
    /// The response to the connection's oldest outstanding RDMA Read.
    ReadResponse {
        /// The bytes that were read.
        payload: &'a [u8],
    },
}

/// The set-up of a connection, for observers of a device that does not show it as a
/// [`Frame::Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup<'a> {
    /// Whether this side asked for the connection.
    pub initiator: bool,
    /// Address of this side.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Private data of the request.
    pub request: &'a [u8],
    /// Private data of the reply.
    pub reply: &'a [u8],
}

/// An observer of a device's traffic. Called while the device works, from any of the device's
/// threads, so it must return soon and must not call the device.
pub trait Tap: Send {
    /// Reports that a connection was set up: at time `at`, the accepting side sent its reply, or
    /// the connecting side received it. Precedes all frames of the connection. A device that shows
    /// the [`Frame::Stream`] does not call this, as the stream contains the set-up.
    fn established(&mut self, at: Time, qp: QpId, setup: &Setup<'_>) {
        let _ = (at, qp, setup);
    }

    /// Reports that a connection ended at time `at`. No frame of it follows.
    fn ended(&mut self, at: Time, qp: QpId) {
        let _ = (at, qp);
    }

    /// Reports that `frame` left the device at time `at`.
    fn sent(&mut self, at: Time, qp: QpId, frame: Frame<'_>);

    /// Reports that `frame` arrived at time `at`. It has not been checked yet, and the device may
    /// still refuse it.
    fn received(&mut self, at: Time, qp: QpId, frame: Frame<'_>);
}
