//! Shows the bytes of a connection's stream to a [`Tap`](rdma::Tap).

use mio::net::TcpStream;
use rdma::{Carrier, Frame, QpId, Tap, Time};
use smallvec::SmallVec;

use super::conn::Cx;

/// Direction of the bytes, as seen by this device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Sent,
    Received,
}

impl Cx<'_> {
    /// Shows the first `n` bytes of `pieces`, if there is a tap.
    #[inline]
    pub(super) fn show<'a>(
        &mut self,
        way: Direction,
        (qp, socket): (QpId, &TcpStream),
        n: usize,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) {
        show(&mut self.tap, self.now, way, (qp, socket), n, pieces);
    }
}

/// Shows the first `n` bytes of `pieces`, if there is a tap. `now` is the time of the owner's last
/// poll.
#[inline]
pub(super) fn show<'a>(
    tap: &mut Option<&mut dyn Tap>,
    now: Time,
    way: Direction,
    (qp, socket): (QpId, &TcpStream),
    n: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) {
    if let Some(tap) = tap
        && n > 0
    {
        show_to_tap(*tap, now, way, (qp, socket), n, pieces);
    }
}

#[cold]
fn show_to_tap<'a>(
    tap: &mut dyn Tap,
    now: Time,
    way: Direction,
    (qp, socket): (QpId, &TcpStream),
    mut n: usize,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) {
    let mut shown = SmallVec::<[&[u8]; 64]>::new();
    for piece in pieces {
        let len = n.min(piece.len());
        if len > 0 {
            shown.push(&piece[..len]);
        }
        n -= len;
    }
    let frame = Frame::Stream {
        carrier: Carrier::tcp(socket.local_addr(), socket.peer_addr()),
        pieces: &shown,
    };
    // That poll can be earlier than the last work of the background thread.
    let at = now.max(Time::now());
    match way {
        Direction::Sent => tap.sent(at, qp, frame),
        Direction::Received => tap.received(at, qp, frame),
    }
}
