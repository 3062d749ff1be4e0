//! An end of a connection that makes the octets of iWARP itself, over TCP, and sees those of the other end.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::endpoint::{Answer, Dial, Endpoint, Incoming, Listen, Opened, SetUp, Wanted};
use crate::peer::{Heard, Peer, Placed};
use crate::stream::{Gone, Meanwhile, Stream};
use crate::wire::ddp::{self, ReadRequest};
use crate::wire::mpa::{self, Frame};
use crate::wire::v1::Segment;

impl Endpoint for Peer {
    fn send(&mut self, message: &[u8]) {
        Peer::send(self, message);
    }

    fn send_invalidating(&mut self, handle: u32, message: &[u8]) {
        self.send_as(ddp::SEND_INVALIDATE, handle, message);
    }

    fn sent(&self) -> u32 {
        self.next_msn().wrapping_sub(1)
    }

    fn offer(&mut self, _: Segment, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn room(&mut self, _: Segment) -> Result<(), String> {
        Ok(())
    }

    fn written(&mut self, _: u32, _: usize) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn placed(&mut self) -> Vec<Placed> {
        std::mem::take(&mut self.placed)
    }

    fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]) {
        Peer::write(self, handle, offset, bytes);
    }

    fn read(&mut self, request: &ReadRequest) {
        Peer::read(self, request);
    }

    fn respond(&mut self, request: &ReadRequest, bytes: &[u8]) {
        Peer::respond(self, request, bytes);
    }

    fn hear(&mut self, meanwhile: Meanwhile<'_>) -> Result<Heard, Gone> {
        Peer::hear(self, meanwhile)
    }

    fn has_arrived(&mut self) -> bool {
        self.stream.has_arrived()
    }

    fn is_readable(&mut self, goes_on: Meanwhile<'_>) -> bool {
        self.stream.is_readable(goes_on)
    }

    fn has_failed(&self) -> bool {
        self.stream.has_failed()
    }

    fn is_invalidated_by_peers(&self) -> bool {
        true
    }

    fn set_patience(&mut self, patience: Duration) {
        self.stream.set_patience(patience);
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.stream.set_deadline(deadline);
    }

    fn end(&mut self) {
        self.stream.end();
    }

    fn reset_on_close(&mut self) {
        self.stream.reset_on_close();
    }
}

/// The maker of connections to servers.
#[derive(Clone, Copy, Debug)]
pub struct Octets;

impl Dial for Octets {
    fn connect(&self, wanted: &Wanted<'_>) -> Result<Opened, SetUp> {
        let unreachable = |what: &dyn std::fmt::Display| SetUp::Unreachable(what.to_string());
        let stream = Stream::connect_within(wanted.address, wanted.patience);
        let mut stream = stream.map_err(|error| unreachable(&error))?;
        if let Some(watcher) = wanted.watcher {
            let watched = stream.watch(watcher);
            watched.map_err(|error| unreachable(&error))?;
        }
        let mut peer = Peer::new(stream);
        let request = Frame {
            private: wanted.private.to_vec(),
            ..Frame::request()
        };
        peer.stream.write(&request.bytes());
        let frame = peer.hear_frame(mpa::REPLY_KEY, &mut || true);
        let frame = frame.map_err(|gone| unreachable(&format_args!("MPA set-up: {gone}")))?;
        if frame.flags & mpa::REJECT != 0 {
            let text = "MPA set-up: the connection is rejected";
            return Err(SetUp::Unreachable(text.into()));
        }
        if frame.flags & mpa::MARKERS != 0 {
            let text = "the server requires MPA markers, which this command does not send";
            return Err(SetUp::NotApplicable(text.into()));
        }
        peer.set_crc(frame.flags & mpa::CRC != 0);
        Ok((Box::new(peer), frame.private))
    }
}

impl Incoming for TcpStream {
    fn accept(self: Box<Self>, answer: &Answer<'_>) -> Result<Opened, String> {
        let failed = |error: &dyn std::fmt::Display| format!("a connection: {error}");
        self.set_nonblocking(false).map_err(|it| failed(&it))?;
        let mut stream = Stream::new(*self).map_err(|it| failed(&it))?;
        let stop = &answer.stop;
        stream.stop_by(stop.clone()).map_err(|it| failed(&it))?;
        if let Some(watcher) = answer.watcher {
            stream.watch(watcher).map_err(|it| failed(&it))?;
        }
        let mut peer = Peer::new(stream);
        // Clients make no RDMA Writes. One is kept, so that it can be reported; a second one is an error.
        peer.keep_placed(1);
        let frame = peer.hear_frame(mpa::REQUEST_KEY, &mut || !stop.load(Ordering::Acquire));
        let frame = frame.map_err(|gone| failed(&format_args!("MPA set-up: {gone}")))?;
        let reply = reply_frame(&frame, answer.private);
        peer.stream.write(&reply.bytes());
        if reply.flags & mpa::REJECT != 0 {
            return Err("the client requires MPA markers, which this command does not send".into());
        }
        peer.set_crc(frame.flags & mpa::CRC != 0);
        Ok((Box::new(peer), frame.private))
    }
}

impl Listen for TcpListener {
    fn begin(&self) -> std::io::Result<()> {
        self.set_nonblocking(true)
    }

    fn address(&self) -> std::io::Result<SocketAddr> {
        self.local_addr()
    }

    fn request(&self) -> std::io::Result<Option<Box<dyn Incoming>>> {
        match self.accept() {
            Ok((socket, _)) => Ok(Some(Box::new(socket))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn hides_headers(&self) -> Option<String> {
        None
    }

    fn refuses_private_data(&self, _: usize) -> Option<String> {
        None
    }
}

/// Returns the answer to an initiator's frame (RFC 5044, 7; RFC 6581).
fn reply_frame(request: &Frame, private: &[u8]) -> Frame {
    let asks_for_markers = request.flags & mpa::MARKERS != 0;
    let mut flags = request.flags & (mpa::CRC | mpa::ENHANCED);
    if asks_for_markers {
        flags |= mpa::REJECT;
    }
    // A client that begins peer-to-peer says which first message it can send (RFC 6581, section 9).
    let depths = request.depths.map(|(inbound, outbound)| {
        let begins = match () {
            () if inbound & mpa::PEER_TO_PEER == 0 => (0, 0),
            () if outbound & mpa::RTR_WRITE != 0 => (mpa::PEER_TO_PEER, mpa::RTR_WRITE),
            () => (mpa::PEER_TO_PEER, mpa::RTR_READ),
        };
        (16 | begins.0, 16 | begins.1)
    });
    Frame {
        key: mpa::REPLY_KEY,
        flags,
        revision: request.revision,
        length: None,
        depths,
        private: private.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_up_is_answered_as_it_was_asked_for() {
        let plain = Frame {
            flags: mpa::CRC,
            revision: 1,
            depths: None,
            ..Frame::request()
        };
        let reply = reply_frame(&plain, &[]);
        assert_eq!(
            (reply.flags, reply.revision, reply.depths),
            (mpa::CRC, 1, None)
        );
        let peer_to_peer = Frame {
            depths: Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ)),
            ..Frame::request()
        };
        let reply = reply_frame(&peer_to_peer, &[]);
        let depths = Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ));
        assert_eq!((reply.flags, reply.depths), (mpa::ENHANCED, depths));
        let markers = Frame {
            flags: mpa::MARKERS,
            ..Frame::request()
        };
        assert_ne!(reply_frame(&markers, &[]).flags & mpa::REJECT, 0);
    }
}
