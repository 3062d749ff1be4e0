//! An established connection: transfers bytes between its socket and its endpoint.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use rustix::io::Errno;

use super::conn::{Conn, Cx, Phase, RECEIVE_TURN, StreamEnd};
use super::endpoint::FailedRequest;
use super::fault::Fault;
use super::reading::Buffers;
use super::socket;
use super::tap::{self, Direction};
use super::terminate::Code;
use super::transmit::Slices;
use rdma::{ConnectError, Disconnect, Event, QpId};

/// After a write of this many bytes the path's MSS is queried again.
const LONG_WRITE: usize = 64 << 10;
/// The maximum number of such writes between two queries. There are more between them each time that the MSS is what it
/// was.
const MOST_UNQUERIED: u32 = 31;

impl Conn {
    /// Receives and sends as much as possible, and completes or ends the connection accordingly.
    pub(super) fn stream(&mut self, cx: &mut Cx<'_>) {
        let before = cx.events.len();
        let mut result = self.receive(cx);
        if result.is_ok() && !self.endpoint.is_flushed() {
            result = self.flush_or_listen(cx);
        }
        if self.phase == Phase::AwaitFirst && self.endpoint.is_open() {
            self.establish(Bytes::new(), cx);
            // Events of messages that came in the same read follow the establishment.
            cx.events.make_contiguous()[before..].rotate_right(1);
        }
        match result {
            Err(over) => self.over(over, cx),
            Ok(()) if self.phase == Phase::Disconnecting => self.finish_disconnect(cx),
            Ok(()) => {}
        }
    }

    pub(super) fn receive(&mut self, cx: &mut Cx<'_>) -> Result<(), StreamEnd> {
        if self.endpoint.is_waiting() && !self.goes_on(cx)? {
            return Ok(());
        }
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let tapped = (QpId(self.id), &**socket);
        let mut turn = 0;
        while self.readable && turn < RECEIVE_TURN {
            cx.counters.system_calls += 1;
            let (received, room) = match self.endpoint.between_segments() {
                Some(staging) => {
                    let received = socket::receive(socket, staging);
                    if let Ok(n) = received {
                        cx.show(Direction::Received, tapped, n, [&*staging]);
                    }
                    (received, staging.len())
                }
                None => {
                    let Cx {
                        shared, tap, now, ..
                    } = cx;
                    let mut buffers = Buffers::new();
                    self.endpoint.buffers(shared, &mut buffers)?;
                    let room = buffers.iter().map(|buffer| buffer.len()).sum();
                    let received = socket::receive_scattered(socket, &mut buffers);
                    if let Ok(n) = received {
                        let pieces = buffers.iter().map(|bytes| &**bytes);
                        tap::show(tap, *now, Direction::Received, tapped, n, pieces);
                    }
                    (received, room)
                }
            };
            match received {
                Ok(0) => return Err(StreamEnd::Eof),
                Ok(n) => {
                    cx.counters.wire_bytes_received += n as u64;
                    turn += n;
                    // A read that did not fill its buffers took all available bytes, and later ones
                    // are announced again. But a FIN is announced together with the bytes before
                    // it.
                    self.readable = n == room || self.peer_closed;
                    self.endpoint.received(n, &mut cx.out())?;
                    if self.endpoint.is_waiting() {
                        break;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    self.endpoint.wait_for_more();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(StreamEnd::Lost(io::Error::from(error).to_string())),
            }
        }
        Ok(())
    }

    /// Goes on with a message that waits for a receive, if there is one now. Returns false if the
    /// connection waits still, or again.
    #[cold]
    fn goes_on(&mut self, cx: &mut Cx<'_>) -> Result<bool, StreamEnd> {
        self.endpoint.resume(&mut cx.out())?;
        if !self.endpoint.is_waiting() {
            return Ok(true);
        }
        // The peer's data stays in the socket. That the connection is lost must be found without
        // reading.
        match self.socket.as_ref().map(|socket| socket.take_error()) {
            None | Some(Ok(None)) => Ok(false),
            Some(Ok(Some(error)) | Err(error)) => Err(StreamEnd::Lost(error.to_string())),
        }
    }

    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) -> Result<(), StreamEnd> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        if self.endpoint.is_flushed() {
            return Ok(());
        }
        self.endpoint.invalidate(&mut cx.out())?;
        while self.writable {
            let mut slices = Slices::new();
            let gathered = self.endpoint.gather(&mut slices, &mut cx.out())?;
            if gathered == 0 {
                break;
            }
            cx.counters.system_calls += 1;
            let sent = if gathered <= socket::SHORT {
                socket::send_short(socket, &slices)
            } else {
                socket::send(socket, &slices)
            };
            if let Ok(n) = sent {
                let pieces = slices.iter().map(|bytes| &**bytes);
                cx.show(Direction::Sent, (QpId(self.id), socket), n, pieces);
            }
            drop(slices);
            match sent {
                Ok(n) => {
                    cx.counters.wire_bytes_sent += n as u64;
                    let is_copied = gathered <= socket::SHORT;
                    let before = is_copied.then(|| self.endpoint.framed_payload());
                    self.endpoint.sent(n, &mut cx.out());
                    if let Some(before) = before {
                        // What TCP did not take is copied again, and counted when TCP takes it.
                        let copied = before - self.endpoint.framed_payload();
                        cx.counters.copied_bytes += copied as u64;
                    }
                    self.writable = n == gathered;
                    if n >= LONG_WRITE {
                        if self.unqueried < self.query_after {
                            self.unqueried += 1;
                        } else {
                            // The MSS grows with the window, and MULPDU with it (RFC 5044, section
                            // 4.5).
                            cx.counters.system_calls += 1;
                            let max_ulpdu = socket::max_ulpdu(socket, cx.options.mss_limit);
                            let changed = self.endpoint.set_max_ulpdu(max_ulpdu);
                            self.unqueried = 0;
                            self.query_after = match changed {
                                true => 0,
                                false => MOST_UNQUERIED.min(2 * self.query_after + 1),
                            };
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(StreamEnd::Lost(error.to_string())),
            }
        }
        Ok(())
    }

    /// Sends posted requests.
    pub(super) fn flush_posted(&mut self, cx: &mut Cx<'_>) {
        if let Err(over) = self.flush_or_listen(cx) {
            self.over(over, cx);
        }
    }

    /// Sends queued data. If the connection turns out to be broken, first receives, because the
    /// peer may have sent the reason.
    pub(super) fn flush_or_listen(&mut self, cx: &mut Cx<'_>) -> Result<(), StreamEnd> {
        self.flush(cx).map_err(|over| {
            self.readable = true;
            match (&over, self.receive(cx)) {
                (StreamEnd::Lost(_), Err(first @ StreamEnd::Terminated(_))) => first,
                _ => over,
            }
        })
    }

    /// Ends the stream.
    pub(super) fn over(&mut self, over: StreamEnd, cx: &mut Cx<'_>) {
        let (blame, mut reason, terminate) = match over {
            StreamEnd::Fault(fault) => {
                let blame = match fault.overran_receive() {
                    true => FailedRequest::Receive,
                    false => FailedRequest::Nobody,
                };
                let reason = Disconnect::PeerError(fault.code.to_string());
                (blame, reason, Some(fault.terminate()))
            }
            StreamEnd::Terminated(terminate) => {
                let reason = Disconnect::Terminated(terminate.code.to_string());
                (FailedRequest::of(&terminate), reason, None)
            }
            StreamEnd::Local(error) => {
                let terminate = Fault::bare(Code::LOCAL_CATASTROPHIC).terminate();
                (
                    FailedRequest::Head(error),
                    Disconnect::Local,
                    Some(terminate),
                )
            }
            StreamEnd::Eof if self.endpoint.is_between_segments() => {
                (FailedRequest::Nobody, Disconnect::Remote, None)
            }
            StreamEnd::Eof => {
                let text = "the peer closed it in the middle of an FPDU".into();
                (FailedRequest::Nobody, Disconnect::Lost(text), None)
            }
            StreamEnd::Lost(text) => (FailedRequest::Nobody, Disconnect::Lost(text), None),
        };
        let alive = terminate.is_some() || matches!(reason, Disconnect::Terminated(_));
        if self.phase == Phase::Disconnecting {
            reason = Disconnect::Local;
        }
        self.endpoint.end(&blame, &mut cx.out());
        if let Some(terminate) = &terminate {
            self.endpoint.send_terminate(terminate);
        }
        self.ended(reason, cx);
        if alive {
            self.begin_drain(cx);
        } else {
            self.close();
        }
    }

    /// Reports the end to the program. A connection whose set-up did not finish is reported as
    /// failed instead.
    pub(super) fn ended(&mut self, reason: Disconnect, cx: &mut Cx<'_>) {
        let qp = self.qp();
        if self.phase == Phase::AwaitFirst {
            let error = ConnectError::Protocol(reason.to_string());
            cx.events.push_back(Event::ConnectFailed { qp, error });
            self.owned = false;
        } else {
            cx.events.push_back(Event::Disconnected { qp, reason });
        }
    }
}
