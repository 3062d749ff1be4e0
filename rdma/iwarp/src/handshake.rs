//! Connection set-up: the TCP handshake, then the MPA handshake.
//!
//! The device does not ask for the peer-to-peer set-up of RFC 6581, because Linux's siw loses
//! messages with it, and its kernel can crash. It still sends that mode's first message, so that
//! either side may begin, and sends it again to a peer from which nothing has arrived.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpStream;

use super::conn::{Conn, Cx, Phase, StreamEnd};
use super::endpoint::FailedRequest;
use super::fault::Fault;
use super::mpa::{FRAME_HEADER, Frame, FrameView, Kind, MAX_PRIVATE_DATA, REVISION_1, REVISION_2};
use super::reading::Buffers;
use super::setup::{self, Agreement, Failure, Unacceptable, Wants};
use super::socket;
use super::tap::Direction;
use rdma::{AcceptOptions, ConnectError, ConnectRequest, Event, RequestId};

/// Intervals without an answer after which an initiator repeats its ready-to-receive message.
/// Linux's siw does not notice data that arrives while it leaves set-up, until more data arrives;
/// its side would wait for the first call, and this side for the reply.
const REMINDERS: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_millis(750),
    Duration::from_secs(3),
];

/// The reason for a failure when the peer ends the connection instead of answering.
const CLOSED: &str = "the peer closed the connection during set-up";

impl Conn {
    pub(super) fn finish_tcp(&mut self, cx: &mut Cx<'_>) {
        let Some(socket) = self.socket.clone() else {
            return;
        };
        let error = match socket.take_error() {
            Ok(None) => match socket.peer_addr() {
                Ok(_) => None,
                Err(error) if error.kind() == ErrorKind::NotConnected => return,
                Err(error) => Some(error),
            },
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = error {
            if self.revision == REVISION_1 {
                // The first answer of the peer is what counts.
                return self.refuse(CLOSED, cx);
            }
            return self.fail(socket::connect_error(&error), cx);
        }
        socket::prepare(&socket);
        let frame = setup::request(&self.wants, self.revision, self.private_data.clone());
        self.send_frame(&frame);
        self.phase = Phase::AwaitReply;
        (self.readable, self.writable) = (true, true);
    }

    pub(super) fn send_frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::with_capacity(FRAME_HEADER + MAX_PRIVATE_DATA);
        frame.emit(&mut bytes);
        self.endpoint.send_setup_frame(bytes.into());
    }

    pub(super) fn flush_setup(&mut self, cx: &mut Cx<'_>) {
        if let Err(over) = self.flush(cx) {
            let is_lost = matches!(over, StreamEnd::Lost(_));
            if is_lost && self.frame.is_empty() && self.try_revision_1(cx) {
                return;
            }
            let text = match over {
                StreamEnd::Lost(text) => text,
                _ => "the connection ended during set-up".into(),
            };
            self.fail(ConnectError::Protocol(text), cx);
        }
    }

    /// Receives the available part of the peer's set-up frame.
    pub(super) fn receive_frame(&mut self, cx: &mut Cx<'_>) {
        let kind = match self.phase {
            Phase::AwaitReply => Kind::Reply,
            _ => Kind::Request,
        };
        while self.readable {
            let Some(socket) = self.socket.clone() else {
                return;
            };
            let mut chunk = [0; FRAME_HEADER + MAX_PRIVATE_DATA];
            match (&*socket).read(&mut chunk) {
                Ok(0) => {
                    if self.frame.is_empty() && self.try_revision_1(cx) {
                        return;
                    }
                    return self.refuse(CLOSED, cx);
                }
                Ok(n) => {
                    cx.counters.wire_bytes_received += n as u64;
                    cx.show(Direction::Received, (self.qp(), &socket), n, [&chunk[..]]);
                    self.frame.extend_from_slice(&chunk[..n]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    let is_reset = error.kind() == ErrorKind::ConnectionReset;
                    if is_reset && self.frame.is_empty() && self.try_revision_1(cx) {
                        return;
                    }
                    return self.refuse(&error.to_string(), cx);
                }
            }
            match FrameView::new(kind, &self.frame) {
                Ok(None) => {}
                Ok(Some(view)) => {
                    let (frame, len) = (view.to_frame(kind), view.frame_len());
                    let rest = self.frame.split_off(len);
                    self.frame = Vec::new();
                    match kind {
                        Kind::Reply => self.replied(&frame, &rest, cx),
                        Kind::Request => self.requested(frame, &rest, cx),
                    }
                    return;
                }
                Err(error) => return self.refuse(&error.to_string(), cx),
            }
        }
    }

    /// Connects again with a Request Frame of revision 1, if this side initiated the connection
    /// with one of revision 2, which the peer refused without an answer, or in revision 1. Returns
    /// false if the connection must fail instead. Receives that were posted stay, and so does the
    /// time-out.
    fn try_revision_1(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_first = self.phase == Phase::AwaitReply && self.revision == REVISION_2;
        if !(is_first && self.owned) {
            return false;
        }
        let Ok(stream) = rpcrdma_host::begin_connect(self.peer, cx.options.congestion.as_ref())
        else {
            return false;
        };
        tracing::debug!(peer = %self.peer, "MPA revision 2 refused, revision 1 is tried");
        if let Some(tap) = &mut cx.tap {
            tap.ended(cx.now, self.qp());
        }
        self.socket = Some(Arc::new(TcpStream::from_std(stream)));
        self.frame = Vec::new();
        // A peer that closed at once may have left the frame, or a part of it, with this side.
        self.endpoint.discard_setup_frame();
        self.revision = REVISION_1;
        self.is_unwatched = true;
        self.phase = Phase::Connecting;
        (self.readable, self.writable, self.peer_closed) = (true, true, false);
        true
    }

    /// Ends a connection whose set-up failed because of the peer.
    pub(super) fn refuse(&mut self, why: &str, cx: &mut Cx<'_>) {
        if self.owned {
            self.fail(ConnectError::Protocol(why.into()), cx);
        } else {
            tracing::debug!(peer = %self.peer, why, "MPA set-up refused");
            self.close();
        }
    }

    pub(super) fn requested(&mut self, request: Frame, rest: &[u8], cx: &mut Cx<'_>) {
        if !rest.is_empty() {
            // The initiator must wait for this side's frame before it sends FPDUs.
            return self.refuse("bytes after the MPA Request Frame", cx);
        }
        match setup::check_request(&request) {
            Err(Unacceptable::Close(why)) => self.refuse(&why, cx),
            Err(Unacceptable::Reject(why)) => {
                tracing::debug!(peer = %self.peer, why, "MPA set-up rejected");
                self.request = Some(request);
                self.reject(Bytes::new(), cx);
            }
            Ok(()) => {
                let Some(listener) = self.listener else {
                    return self.close();
                };
                self.phase = Phase::Requested;
                self.deadline = None;
                cx.events.push_back(Event::ConnectRequest(ConnectRequest {
                    listener,
                    request: RequestId(self.id),
                    peer: self.peer,
                    private_data: request.private_data.clone(),
                }));
                self.request = Some(request);
            }
        }
    }

    /// Accepts the connection at the program's request. Finds out now whether the peer has gone
    /// meanwhile, because nothing was read since its Request Frame.
    pub(super) fn accept(&mut self, options: &AcceptOptions, wants: &Wants, cx: &mut Cx<'_>) {
        let Some(request) = self.request.take() else {
            return;
        };
        let (reply, agreement, rtr) = setup::accept(&request, wants, options.private_data.clone());
        self.send_frame(&reply);
        self.start(&agreement, cx);
        if rtr {
            self.phase = Phase::AwaitFirst;
            self.deadline = Some(cx.now + cx.options.setup_timeout);
        } else {
            self.establish(Bytes::new(), cx);
        }
        (self.readable, self.writable) = (true, true);
        self.stream(cx);
    }

    /// Rejects the connection at the request of the program or the device.
    pub(super) fn reject(&mut self, private_data: Bytes, cx: &mut Cx<'_>) {
        if let Some(request) = self.request.take() {
            self.send_frame(&setup::rejection(&request, private_data));
        }
        self.begin_drain(cx);
    }

    pub(super) fn start(&mut self, agreement: &Agreement, cx: &Cx<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        let max_ulpdu = socket::max_ulpdu(socket, cx.options.mss_limit);
        self.endpoint.start(agreement, max_ulpdu);
    }

    pub(super) fn establish(&mut self, private_data: Bytes, cx: &mut Cx<'_>) {
        self.phase = Phase::Established;
        self.deadline = None;
        cx.events.push_back(Event::Established {
            qp: self.qp(),
            private_data,
        });
    }

    pub(super) fn replied(&mut self, reply: &Frame, rest: &[u8], cx: &mut Cx<'_>) {
        if reply.rejected && reply.revision == REVISION_1 && self.try_revision_1(cx) {
            return;
        }
        let most = super::depth(cx.options.inbound_reads);
        match setup::conclude(reply, &self.wants, most) {
            Ok(agreement) => {
                self.start(&agreement, cx);
                self.endpoint.send_ready_to_receive();
                self.establish(reply.private_data.clone(), cx);
                self.remind_later(cx);
                if let Err(over) = self.feed(rest, cx) {
                    self.over(over, cx);
                }
            }
            Err(Failure::Rejected(private_data)) => {
                self.fail(ConnectError::Rejected { private_data }, cx);
            }
            Err(Failure::Protocol(why)) => self.fail(ConnectError::Protocol(why), cx),
            Err(Failure::Terminate { code, crc }) => {
                self.report(ConnectError::Protocol(code.to_string()), cx);
                self.endpoint.set_crc(crc);
                self.endpoint.send_terminate(&Fault::bare(code).terminate());
                self.begin_drain(cx);
            }
        }
    }

    /// Schedules the next repetition of the ready-to-receive message, if there is one.
    fn remind_later(&mut self, cx: &Cx<'_>) {
        self.deadline = REMINDERS.get(self.reminders).map(|wait| cx.now + *wait);
        self.reminders += 1;
    }

    /// Repeats the ready-to-receive message, an RDMA Write without payload, if the peer has not
    /// sent anything yet. It makes the peer notice data that it may have missed.
    pub(super) fn remind(&mut self, cx: &mut Cx<'_>) {
        if self.endpoint.has_heard() {
            return;
        }
        self.remind_later(cx);
        if self.endpoint.is_flushed() {
            self.endpoint.send_ready_to_receive();
            self.flush_posted(cx);
        }
    }

    /// Handles bytes of the stream that arrived with the Reply Frame.
    pub(super) fn feed(&mut self, mut bytes: &[u8], cx: &mut Cx<'_>) -> Result<(), StreamEnd> {
        while !bytes.is_empty() {
            let mut n = 0;
            let mut buffers = Buffers::new();
            self.endpoint.buffers(cx.shared, &mut buffers)?;
            for buffer in &mut buffers {
                let (now, later) = bytes.split_at(bytes.len().min(buffer.len()));
                buffer[..now.len()].copy_from_slice(now);
                n += now.len();
                bytes = later;
            }
            drop(buffers);
            self.endpoint.received(n, &mut cx.out())?;
        }
        Ok(())
    }

    /// Reports a failed set-up. The queue pair no longer exists.
    pub(super) fn fail(&mut self, error: ConnectError, cx: &mut Cx<'_>) {
        self.report(error, cx);
        self.close();
    }

    pub(super) fn report(&mut self, error: ConnectError, cx: &mut Cx<'_>) {
        if self.owned {
            self.endpoint.end(&FailedRequest::Nobody, &mut cx.out());
            let qp = self.qp();
            cx.events.push_back(Event::ConnectFailed { qp, error });
            self.owned = false;
        }
    }
}
