//! A connection in use: between its socket and its endpoint.

use std::io::{self, ErrorKind};

use bytes::Bytes;
use rustix::io::Errno;

use super::conn::{Conn, Cx, Over, Phase, RECEIVE_TURN};
use super::endpoint::Blame;
use super::fault::Fault;
use super::socket;
use super::tap::Way;
use super::terminate::Code;
use super::transmit::Slices;
use rdma::{ConnectError, Disconnect, Event, QpId};

/// A write of so many bytes is worth another look at the path's MSS.
const LONG_WRITE: usize = 64 << 10;

impl Conn {
    /// Receives and sends.
    pub(super) fn stream(&mut self, cx: &mut Cx<'_>) {
        let before = cx.events.len();
        let result = self.receive(cx).and_then(|()| self.flush_or_listen(cx));
        if self.phase == Phase::AwaitFirst && self.endpoint.is_open() {
            self.establish(Bytes::new(), cx);
            // Messages that came in the same read are told of after that.
            cx.events.make_contiguous()[before..].rotate_right(1);
        }
        match result {
            Err(over) => self.over(over, cx),
            Ok(()) if self.phase == Phase::Disconnecting => self.finish_disconnect(cx),
            Ok(()) => {}
        }
    }

    pub(super) fn receive(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let tapped = (QpId(self.id), &**socket);
        let mut turn = 0;
        while self.readable && turn < RECEIVE_TURN {
            let (received, room) = match self.endpoint.between_segments() {
                Some(staging) => {
                    let received = socket::receive(socket, staging);
                    if let Ok(n) = received {
                        cx.show(Way::Received, tapped, n, [&*staging]);
                    }
                    (received, staging.len())
                }
                None => {
                    let mut buffers = self.endpoint.buffers()?;
                    let room = buffers.iter().map(|buffer| buffer.len()).sum();
                    let received = socket::receive_scattered(socket, &mut buffers);
                    if let Ok(n) = received {
                        cx.show(
                            Way::Received,
                            tapped,
                            n,
                            buffers.iter().map(|bytes| &**bytes),
                        );
                    }
                    (received, room)
                }
            };
            match received {
                Ok(0) => return Err(Over::Eof),
                Ok(n) => {
                    cx.counters.wire_bytes_received += n as u64;
                    turn += n;
                    // A read that did not fill its buffers took all there was; what comes later
                    // is announced anew; but a FIN was announced together with what came before it.
                    self.readable = n == room || self.peer_closed;
                    self.endpoint.received(n, &mut cx.out())?;
                }
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    self.endpoint.wait_for_more();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(Over::Lost(io::Error::from(error).to_string())),
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
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
            let sent = if gathered <= socket::SHORT {
                socket::send_short(socket, &slices)
            } else {
                socket::send(socket, &slices)
            };
            if let Ok(n) = sent {
                let pieces = slices.iter().map(|bytes| &**bytes);
                cx.show(Way::Sent, (QpId(self.id), socket), n, pieces);
            }
            drop(slices);
            match sent {
                Ok(n) => {
                    cx.counters.wire_bytes_sent += n as u64;
                    if gathered <= socket::SHORT {
                        cx.counters.copied_bytes += self.endpoint.framed_payload() as u64;
                    }
                    self.endpoint.sent(n, &mut cx.out());
                    self.writable = n == gathered;
                    if n >= LONG_WRITE {
                        // The MSS grows with the window (RFC 5044, section 4.5: so does MULPDU).
                        let max_ulpdu = socket::max_ulpdu(socket, cx.options.mss_limit);
                        self.endpoint.set_max_ulpdu(max_ulpdu);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Over::Lost(error.to_string())),
            }
        }
        Ok(())
    }

    /// Sends what was posted.
    pub(super) fn flush_posted(&mut self, cx: &mut Cx<'_>) {
        if let Err(over) = self.flush_or_listen(cx) {
            self.over(over, cx);
        }
    }

    /// Sends; if the connection turns out to be broken, first hears what the peer had to say.
    pub(super) fn flush_or_listen(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
        self.flush(cx).map_err(|over| {
            self.readable = true;
            match (&over, self.receive(cx)) {
                (Over::Lost(_), Err(first @ Over::Terminated(_))) => first,
                _ => over,
            }
        })
    }

    /// The stream is over.
    pub(super) fn over(&mut self, over: Over, cx: &mut Cx<'_>) {
        let (blame, mut reason, terminate) = match over {
            Over::Fault(fault) => {
                let blame = match fault.overran_receive() {
                    true => Blame::Receive,
                    false => Blame::Nobody,
                };
                let reason = Disconnect::PeerError(fault.code.to_string());
                (blame, reason, Some(fault.terminate()))
            }
            Over::Terminated(terminate) => {
                let reason = Disconnect::Terminated(terminate.code.to_string());
                (Blame::of(&terminate), reason, None)
            }
            Over::Local(error) => {
                let terminate = Fault::bare(Code::LOCAL_CATASTROPHIC).terminate();
                (Blame::Head(error), Disconnect::Local, Some(terminate))
            }
            Over::Eof if self.endpoint.is_between_segments() => {
                (Blame::Nobody, Disconnect::Remote, None)
            }
            Over::Eof => {
                let text = "the peer closed it in the middle of an FPDU".into();
                (Blame::Nobody, Disconnect::Lost(text), None)
            }
            Over::Lost(text) => (Blame::Nobody, Disconnect::Lost(text), None),
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

    /// Tells the program. A connection whose set-up did not finish failed instead.
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
