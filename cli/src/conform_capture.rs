//! The capture of the connections of `conform`'s cases.

use std::net::SocketAddr;

use rdma::{Carrier, Frame, QpId, Tap, Time};
use rdma_capture::{Capture, CaptureTap, Origin};
use rpcrdma_conform::watch::Watch;

/// An observer that adds what it sees to a capture.
pub(crate) struct CaptureOfCases {
    capture: Capture,
    tap: CaptureTap,
}

impl CaptureOfCases {
    pub(crate) fn new(capture: Capture) -> Self {
        let tap = capture.tap("conform", Origin::Stream);
        Self { capture, tap }
    }
}

impl Watch for CaptureOfCases {
    fn bytes(&mut self, connection: u64, ends: [SocketAddr; 2], sent: bool, bytes: &[u8]) {
        let [local, peer] = ends;
        let frame = Frame::Stream {
            carrier: Carrier::Tcp { local, peer },
            pieces: &[bytes],
        };
        match sent {
            true => self.tap.sent(Time::now(), QpId(connection), frame),
            false => self.tap.received(Time::now(), QpId(connection), frame),
        }
    }

    fn ended(&mut self, connection: u64) {
        self.tap.ended(Time::now(), QpId(connection));
    }

    fn packets(&self) -> u64 {
        self.capture.packets()
    }
}
