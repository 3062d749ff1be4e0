//! One connection: its socket, and its way from TCP's handshake over MPA's to the end.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpStream;
use rustix::event::PollFlags;

use super::Options;
use super::endpoint::{Agreement, Blame, Endpoint, Limits, Out, Stop};
use super::fault::{Ending, Fault};
use super::mpa::{FRAME_HEADER, Frame, FrameView, Kind, MAX_PRIVATE_DATA};
use super::setup::{self, Failure, Unacceptable, Wants};
use super::socket;
use super::terminate::{Code, Terminate};
use super::transmit::Slices;
use crate::{
    AcceptOptions, ConnectError, ConnectOptions, ConnectRequest, Counters, Disconnect, Event,
    ListenerId, QpId, RequestId, Time,
};

/// Bytes received from one connection before others get their turn.
const RECEIVE_TURN: usize = 4 << 20;
/// A write of so many bytes is worth another look at the path's MSS.
const LONG_WRITE: usize = 64 << 10;
/// How long a closed connection is kept to hand its last bytes over and to see the peer's FIN.
/// Closing at once could make TCP reset it, and a Terminate would be lost with that (RFC 5040,
/// section 6.2.2 wants a graceful close after one).
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Initiator: waiting for TCP.
    Connecting,
    /// Initiator: waiting for the Reply Frame.
    AwaitReply,
    /// Responder: waiting for the Request Frame.
    AwaitRequest,
    /// Responder: waiting for the program.
    Requested,
    /// Responder, accepted: waiting for the peer's ready-to-receive message.
    AwaitFirst,
    /// In use.
    Established,
    /// The program closed it; what it posted goes out first.
    Disconnecting,
    /// Over; the last bytes go out and the peer's are dropped.
    Draining,
    /// Over; there is no socket any more.
    Closed,
}

/// What a connection needs from its device.
pub(super) struct Cx<'a> {
    pub(super) options: &'a Options,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    pub(super) now: Time,
}

impl Cx<'_> {
    fn out(&mut self) -> Out<'_> {
        Out {
            events: self.events,
            counters: self.counters,
        }
    }
}

/// Why a stream is over.
enum Over {
    Fault(Fault),
    Terminated(Terminate),
    /// A request of our own is impossible.
    Local(crate::WorkError),
    /// The peer's FIN.
    Eof,
    Lost(String),
}

impl From<Fault> for Over {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Ending> for Over {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Fault(fault) => Self::Fault(fault),
            Ending::Terminated(terminate) => Self::Terminated(terminate),
        }
    }
}

impl From<Stop> for Over {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => Self::Fault(fault),
            Stop::Local(error) => Self::Local(error),
        }
    }
}

/// A connection.
pub(super) struct Conn {
    pub(super) id: u64,
    pub(super) phase: Phase,
    /// The program knows a queue pair of it.
    pub(super) owned: bool,
    /// The socket may have bytes, or room for bytes, that nobody has looked for since.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer's FIN is there, behind what bytes there are.
    pub(super) peer_closed: bool,
    /// When the phase is given up.
    pub(super) deadline: Option<Time>,
    pub(super) endpoint: Endpoint,
    socket: Option<Arc<TcpStream>>,
    peer: SocketAddr,
    listener: Option<ListenerId>,
    wants: Wants,
    /// Private data of the Request Frame to send.
    private_data: Bytes,
    /// Set-up bytes received.
    frame: Vec<u8>,
    /// The initiator's frame.
    request: Option<Frame>,
    write_shut: bool,
}

impl Conn {
    fn new(id: u64, phase: Phase, socket: TcpStream, peer: SocketAddr, limits: Limits) -> Self {
        Self {
            id,
            phase,
            owned: false,
            readable: true,
            writable: true,
            peer_closed: false,
            deadline: None,
            endpoint: Endpoint::new(QpId(id), limits),
            socket: Some(Arc::new(socket)),
            peer,
            listener: None,
            wants: Wants {
                crc: false,
                inbound_reads: 1,
                outbound_reads: 1,
            },
            private_data: Bytes::new(),
            frame: Vec::new(),
            request: None,
            write_shut: false,
        }
    }

    /// A connection that this side starts.
    pub(super) fn initiator(
        id: u64,
        socket: TcpStream,
        peer: SocketAddr,
        limits: Limits,
        wants: Wants,
        options: &ConnectOptions,
        now: Time,
    ) -> Self {
        let mut conn = Self::new(id, Phase::Connecting, socket, peer, limits);
        conn.owned = true;
        conn.wants = wants;
        conn.private_data = options.private_data.clone();
        conn.deadline = Some(now + options.timeout);
        conn
    }

    /// A connection that a peer starts.
    pub(super) fn responder(
        id: u64,
        socket: TcpStream,
        peer: SocketAddr,
        limits: Limits,
        listener: ListenerId,
        deadline: Time,
    ) -> Self {
        let mut conn = Self::new(id, Phase::AwaitRequest, socket, peer, limits);
        conn.listener = Some(listener);
        conn.deadline = Some(deadline);
        conn
    }

    pub(super) fn qp(&self) -> QpId {
        QpId(self.id)
    }

    pub(super) fn socket(&self) -> Option<&Arc<TcpStream>> {
        self.socket.as_ref()
    }

    /// Whether a peer may reach memory through it, so that it must make progress even while the
    /// program is away.
    pub(super) fn is_live(&self) -> bool {
        matches!(
            self.phase,
            Phase::AwaitFirst | Phase::Established | Phase::Disconnecting
        )
    }

    /// Whether requests can be posted.
    pub(super) fn can_send(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Whether receives can be posted.
    pub(super) fn can_receive(&self) -> bool {
        self.owned && !matches!(self.phase, Phase::Draining | Phase::Closed)
    }

    /// What to wait for when it is waited for from outside the owner's poll loop.
    pub(super) fn interest(&self) -> PollFlags {
        let mut interest = PollFlags::IN;
        interest.set(PollFlags::OUT, !self.writable);
        interest
    }

    /// Goes on as far as the socket lets it.
    pub(super) fn progress(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Connecting {
            self.finish_tcp(cx);
        }
        if matches!(self.phase, Phase::AwaitReply | Phase::AwaitRequest) {
            self.receive_frame(cx);
        }
        if self.is_live() {
            self.stream(cx);
        }
        if self.phase == Phase::AwaitReply {
            self.flush_setup(cx);
        }
        if self.phase == Phase::Draining {
            self.drain(cx);
        }
    }

    /// The phase took too long.
    pub(super) fn time_out(&mut self, cx: &mut Cx<'_>) {
        self.deadline = None;
        match self.phase {
            Phase::Connecting | Phase::AwaitReply | Phase::AwaitFirst => {
                self.fail(ConnectError::TimedOut, cx);
            }
            Phase::Disconnecting => self.abort(cx),
            Phase::AwaitRequest | Phase::Requested | Phase::Draining => self.close(),
            Phase::Established | Phase::Closed => {}
        }
    }

    // ---- set-up ----

    fn finish_tcp(&mut self, cx: &mut Cx<'_>) {
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
            return self.fail(socket::connect_error(&error), cx);
        }
        socket::prepare(&socket);
        let frame = setup::request(&self.wants, std::mem::take(&mut self.private_data));
        self.send_frame(&frame);
        self.phase = Phase::AwaitReply;
        (self.readable, self.writable) = (true, true);
    }

    fn send_frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::with_capacity(FRAME_HEADER + MAX_PRIVATE_DATA);
        frame.emit(&mut bytes);
        self.endpoint.send_setup_frame(bytes.into());
    }

    fn flush_setup(&mut self, cx: &mut Cx<'_>) {
        if let Err(over) = self.flush(cx) {
            let text = match over {
                Over::Lost(text) => text,
                _ => "the connection ended during set-up".into(),
            };
            self.fail(ConnectError::Protocol(text), cx);
        }
    }

    /// Receives the peer's set-up frame, as much of it as is there.
    fn receive_frame(&mut self, cx: &mut Cx<'_>) {
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
                Ok(0) => return self.refuse("the peer closed the connection during set-up", cx),
                Ok(n) => {
                    cx.counters.wire_bytes_received += n as u64;
                    self.frame.extend_from_slice(&chunk[..n]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return self.refuse(&error.to_string(), cx),
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

    /// Set-up failed on the peer's side.
    fn refuse(&mut self, why: &str, cx: &mut Cx<'_>) {
        if self.owned {
            self.fail(ConnectError::Protocol(why.into()), cx);
        } else {
            tracing::debug!(peer = %self.peer, why, "MPA set-up refused");
            self.close();
        }
    }

    fn requested(&mut self, request: Frame, rest: &[u8], cx: &mut Cx<'_>) {
        if !rest.is_empty() {
            // The initiator waits for our frame before it sends FPDUs.
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

    /// The program accepts. A peer that went away meanwhile, or broke the rules by sending
    /// already, is found now: nothing was read since its Request Frame.
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

    /// The program, or the device, says no.
    pub(super) fn reject(&mut self, private_data: Bytes, cx: &mut Cx<'_>) {
        if let Some(request) = self.request.take() {
            self.send_frame(&setup::rejection(&request, private_data));
        }
        self.begin_drain(cx);
    }

    fn start(&mut self, agreement: &Agreement, cx: &Cx<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        let max_ulpdu = socket::max_ulpdu(socket, cx.options.mss_limit);
        self.endpoint.start(agreement, max_ulpdu);
    }

    fn establish(&mut self, private_data: Bytes, cx: &mut Cx<'_>) {
        self.phase = Phase::Established;
        self.deadline = None;
        cx.events.push_back(Event::Established {
            qp: self.qp(),
            private_data,
        });
    }

    fn replied(&mut self, reply: &Frame, rest: &[u8], cx: &mut Cx<'_>) {
        let most = super::depth(cx.options.inbound_reads);
        match setup::conclude(reply, &self.wants, most) {
            Ok((agreement, rtr)) => {
                self.start(&agreement, cx);
                if rtr {
                    self.endpoint.send_ready_to_receive();
                }
                self.establish(reply.private_data.clone(), cx);
                if let Err(over) = self.feed(rest, cx) {
                    self.over(over, cx);
                }
            }
            Err(Failure::Rejected(private_data)) => {
                self.fail(ConnectError::Rejected { private_data }, cx);
            }
            Err(Failure::Protocol(why)) => self.fail(ConnectError::Protocol(why), cx),
            Err(Failure::Terminate(code)) => {
                self.report(ConnectError::Protocol(code.to_string()), cx);
                self.endpoint.send_terminate(&Fault::bare(code).terminate());
                self.begin_drain(cx);
            }
        }
    }

    /// Bytes of the stream that came with the Reply Frame.
    fn feed(&mut self, mut bytes: &[u8], cx: &mut Cx<'_>) -> Result<(), Over> {
        while !bytes.is_empty() {
            let mut n = 0;
            for buffer in &mut self.endpoint.buffers()? {
                let (now, later) = bytes.split_at(bytes.len().min(buffer.len()));
                buffer[..now.len()].copy_from_slice(now);
                n += now.len();
                bytes = later;
            }
            self.endpoint.received(n, &mut cx.out())?;
        }
        Ok(())
    }

    /// Set-up failed: the queue pair is gone.
    fn fail(&mut self, error: ConnectError, cx: &mut Cx<'_>) {
        self.report(error, cx);
        self.close();
    }

    fn report(&mut self, error: ConnectError, cx: &mut Cx<'_>) {
        if self.owned {
            self.endpoint.end(&Blame::Nobody, &mut cx.out());
            let qp = self.qp();
            cx.events.push_back(Event::ConnectFailed { qp, error });
            self.owned = false;
        }
    }

    // ---- the stream ----

    /// Receives and sends.
    fn stream(&mut self, cx: &mut Cx<'_>) {
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

    fn receive(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let mut turn = 0;
        while self.readable && turn < RECEIVE_TURN {
            let mut buffers = self.endpoint.buffers()?;
            let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let received = match &mut buffers[..] {
                // Cheaper than a vector of one.
                [one] => (&**socket).read(one),
                several => (&**socket).read_vectored(several),
            };
            drop(buffers);
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
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Over::Lost(error.to_string())),
            }
        }
        Ok(())
    }

    fn flush(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
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
    fn flush_or_listen(&mut self, cx: &mut Cx<'_>) -> Result<(), Over> {
        self.flush(cx).map_err(|over| {
            self.readable = true;
            match (&over, self.receive(cx)) {
                (Over::Lost(_), Err(first @ Over::Terminated(_))) => first,
                _ => over,
            }
        })
    }

    /// The stream is over.
    fn over(&mut self, over: Over, cx: &mut Cx<'_>) {
        let (blame, mut reason, terminate) = match over {
            Over::Fault(fault) => {
                let blame = match fault.code {
                    Code::TOO_LONG => Blame::Receive,
                    _ => Blame::Nobody,
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
    fn ended(&mut self, reason: Disconnect, cx: &mut Cx<'_>) {
        let qp = self.qp();
        if self.phase == Phase::AwaitFirst {
            let error = ConnectError::Protocol(reason.to_string());
            cx.events.push_back(Event::ConnectFailed { qp, error });
            self.owned = false;
        } else {
            cx.events.push_back(Event::Disconnected { qp, reason });
        }
    }

    // ---- the end ----

    /// The program closes it in order.
    pub(super) fn disconnect(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Established => {
                self.phase = Phase::Disconnecting;
                self.deadline = Some(cx.now + cx.options.setup_timeout);
                self.stream(cx);
            }
            Phase::Disconnecting | Phase::Draining | Phase::Closed => {}
            _ => self.abort(cx),
        }
    }

    fn finish_disconnect(&mut self, cx: &mut Cx<'_>) {
        // What must wait for a peer that has sent nothing yet is not waited for.
        if !self.endpoint.is_flushed() && self.endpoint.is_open() {
            return;
        }
        self.endpoint.end(&Blame::Nobody, &mut cx.out());
        self.ended(Disconnect::Local, cx);
        self.begin_drain(cx);
    }

    /// The program ends it at once.
    pub(super) fn abort(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Draining | Phase::Closed) {
            return;
        }
        self.endpoint.end(&Blame::Nobody, &mut cx.out());
        let qp = self.qp();
        let reason = Disconnect::Local;
        cx.events.push_back(Event::Disconnected { qp, reason });
        self.reset();
    }

    /// The program lets go of it.
    pub(super) fn destroy(&mut self) {
        self.owned = false;
        if !matches!(self.phase, Phase::Draining | Phase::Closed) {
            self.reset();
        }
        self.endpoint.release();
    }

    fn reset(&mut self) {
        if let Some(socket) = &self.socket {
            socket::set_reset_on_close(socket);
        }
        self.close();
    }

    /// Closes the socket.
    pub(super) fn close(&mut self) {
        self.socket = None;
        self.deadline = None;
        self.phase = Phase::Closed;
    }

    fn begin_drain(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Draining;
        self.deadline = Some(cx.now + DRAIN_TIME);
        self.readable = true;
        self.drain(cx);
    }

    /// Hands the last bytes over, then waits for the peer's FIN.
    fn drain(&mut self, cx: &mut Cx<'_>) {
        if self.flush(cx).is_err() {
            return self.close();
        }
        let Some(socket) = self.socket.clone() else {
            return;
        };
        if !self.write_shut && self.endpoint.is_sent() {
            self.write_shut = true;
            // An error means that there is nothing left to shut.
            if socket.shutdown(Shutdown::Write).is_err() {
                return self.close();
            }
        }
        let mut turn = 0;
        let mut scratch = [0; 4096];
        while self.readable && turn < RECEIVE_TURN {
            match (&*socket).read(&mut scratch) {
                Ok(0) => return self.close(),
                Ok(n) => turn += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(),
            }
        }
    }
}

/// A connection attempt that the system refused at once.
pub(super) fn refused_at_once(error: &io::Error) -> Option<ConnectError> {
    match socket::connect_error(error) {
        ConnectError::Protocol(_) => None,
        known => Some(known),
    }
}
