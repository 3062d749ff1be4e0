//! One connection: its socket, and its states from the TCP handshake over the MPA handshake to the
//! end.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpStream;
use rustix::event::PollFlags;

use super::Options;
use super::endpoint::{Endpoint, FailedRequest, Limits, Out, Stop};
use super::fault::{Ending, Fault};
use super::mpa::{Frame, REVISION_2};
use super::setup::Wants;
use super::shared_queue::SharedQueues;
use super::socket;
use super::terminate::Terminate;
use rdma::{
    ConnectError, ConnectOptions, Counters, Disconnect, Event, ListenerId, QpId, Tap, Time,
};
use rpcrdma_host::LoopClaim;

/// Number of bytes received from one connection before others get their turn.
pub(super) const RECEIVE_TURN: usize = 4 << 20;
/// Time for which a closed connection is kept, to send its last bytes and to receive the peer's
/// FIN. Closing at once could make TCP reset the connection, which would lose a Terminate (RFC
/// 5040, section 6.2.2 requires a graceful close after one).
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Initiator: waiting for TCP.
    Connecting,
    /// Initiator: waiting for the Reply Frame.
    AwaitReply,
    /// Responder: waiting for the Request Frame.
    AwaitRequest,
    /// Responder: waiting for the program to accept or reject.
    Requested,
    /// Responder, accepted: waiting for the peer's ready-to-receive message.
    AwaitFirst,
    /// Established.
    Established,
    /// Closed by the program; the posted requests are sent first.
    Disconnecting,
    /// The connection is over; the last bytes are being sent, and those of the peer are dropped.
    Draining,
    /// The connection has ended, and its socket is closed.
    Closed,
}

impl Phase {
    /// Returns whether a peer may access memory through the connection.
    #[inline]
    pub(super) fn is_live(self) -> bool {
        matches!(
            self,
            Self::AwaitFirst | Self::Established | Self::Disconnecting
        )
    }
}

/// The parts of the device that a connection uses.
pub(super) struct Cx<'a> {
    pub(super) options: &'a Options,
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
    pub(super) shared: &'a mut SharedQueues,
    /// Observer of every byte of the stream.
    pub(super) tap: Option<&'a mut dyn Tap>,
    pub(super) now: Time,
}

impl Cx<'_> {
    pub(super) fn out(&mut self) -> Out<'_> {
        Out {
            events: self.events,
            counters: self.counters,
            shared: self.shared,
        }
    }
}

/// The reason for the end of a stream.
pub(super) enum StreamEnd {
    Fault(Fault),
    Terminated(Terminate),
    /// A request of this side cannot be executed.
    Local(rdma::WorkError),
    /// The peer sent a FIN.
    Eof,
    Lost(String),
}

impl From<Fault> for StreamEnd {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Ending> for StreamEnd {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Fault(fault) => Self::Fault(fault),
            Ending::Terminated(terminate) => Self::Terminated(terminate),
        }
    }
}

impl From<Stop> for StreamEnd {
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
    /// Whether the program has a queue pair for it.
    pub(super) owned: bool,
    /// Whether the socket may be readable or writable, because it has not been tried since the last
    /// readiness event.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether the peer's FIN has arrived. Bytes before it may still have to be read.
    pub(super) peer_closed: bool,
    /// Whether the connection is in the device's list of connections to process.
    pub(super) queued: bool,
    /// Whether the connection is in the device's list of those with posted requests to send.
    pub(super) posted: bool,
    /// Time at which the connection fails unless it has left the present state.
    pub(super) deadline: Option<Time>,
    pub(super) endpoint: Endpoint,
    pub(super) socket: Option<Arc<TcpStream>>,
    pub(super) peer: SocketAddr,
    pub(super) listener: Option<ListenerId>,
    /// Counts the connection for this loop.
    pub(super) claim: Option<LoopClaim>,
    pub(super) wants: Wants,
    /// Private data for the Request Frame.
    pub(super) private_data: Bytes,
    /// The MPA revision of this side's Request Frame.
    pub(super) revision: u8,
    /// Whether the socket is a new one, which is not watched yet.
    pub(super) is_unwatched: bool,
    /// Set-up bytes received so far.
    pub(super) frame: Vec<u8>,
    /// The initiator's frame.
    pub(super) request: Option<Frame>,
    pub(super) write_shut: bool,
    /// Whether this side's program has ended the connection in order.
    pub(super) disconnects: bool,
    /// Number of long writes since the path's MSS was queried, and that from which on it is queried again.
    pub(super) unqueried: u32,
    pub(super) query_after: u32,
    /// Initiator: number of repeated ready-to-receive messages that were sent or are scheduled.
    pub(super) reminders: usize,
}

impl Conn {
    pub(super) fn new(
        id: u64,
        phase: Phase,
        socket: TcpStream,
        peer: SocketAddr,
        limits: Limits,
    ) -> Self {
        Self {
            id,
            phase,
            owned: false,
            readable: true,
            writable: true,
            peer_closed: false,
            queued: false,
            posted: false,
            deadline: None,
            endpoint: Endpoint::new(QpId(id), limits),
            socket: Some(Arc::new(socket)),
            peer,
            listener: None,
            claim: None,
            wants: Wants {
                crc: false,
                inbound_reads: 1,
                outbound_reads: 1,
            },
            private_data: Bytes::new(),
            revision: REVISION_2,
            is_unwatched: false,
            frame: Vec::new(),
            request: None,
            write_shut: false,
            disconnects: false,
            unqueried: 0,
            query_after: 0,
            reminders: 0,
        }
    }

    /// Creates a connection that this side initiates.
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

    /// Creates a connection that a peer initiates.
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

    /// Returns whether a peer may access memory through the connection, which must therefore make
    /// progress even while the program does not poll.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.phase.is_live()
    }

    /// Returns whether the connection used up its turn, so that it needs another one although no event announces it.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        self.readable
            && (self.is_live() || self.phase == Phase::Draining)
            && !self.endpoint.is_waiting()
    }

    /// Returns whether requests can be posted.
    pub(super) fn can_send(&self) -> bool {
        self.phase == Phase::Established
    }

    /// Returns whether receives can be posted.
    pub(super) fn can_receive(&self) -> bool {
        self.owned && !matches!(self.phase, Phase::Draining | Phase::Closed)
    }

    /// Returns the events to wait for when the background thread waits for the socket.
    pub(super) fn interest(&self) -> PollFlags {
        // A connection that waits for a receive does not read, and would be found readable forever.
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, !self.endpoint.is_waiting());
        interest.set(PollFlags::OUT, !self.writable);
        interest
    }

    /// Makes progress as far as the socket allows.
    pub(super) fn progress(&mut self, cx: &mut Cx<'_>) {
        if self.phase == Phase::Established {
            self.stream(cx);
            if self.phase == Phase::Established {
                return;
            }
        } else {
            self.make_progress(cx);
        }
        if self.phase == Phase::Draining {
            self.drain(cx);
        }
    }

    /// Makes progress in the states other than established.
    fn make_progress(&mut self, cx: &mut Cx<'_>) {
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
    }

    /// Handles the time-out of the present state.
    pub(super) fn time_out(&mut self, cx: &mut Cx<'_>) {
        self.deadline = None;
        match self.phase {
            Phase::Connecting | Phase::AwaitReply | Phase::AwaitFirst => {
                self.fail(ConnectError::TimedOut, cx);
            }
            Phase::AwaitRequest => {
                // The owner of the device may have been away while the Request Frame arrived.
                self.readable = true;
                self.receive_frame(cx);
                if self.phase == Phase::AwaitRequest {
                    self.close();
                }
            }
            Phase::Requested | Phase::Draining => self.close(),
            Phase::Established => self.remind(cx),
            // The program limits the time.
            Phase::Disconnecting | Phase::Closed => {}
        }
    }

    // ---- the end ----

    /// Closes the connection gracefully at the program's request, which knows how long the peer may take to
    /// accept what is left, and aborts it then.
    pub(super) fn disconnect(&mut self, cx: &mut Cx<'_>) {
        match self.phase {
            Phase::Established => {
                self.phase = Phase::Disconnecting;
                self.disconnects = true;
                self.deadline = None;
                self.stream(cx);
            }
            Phase::Disconnecting | Phase::Draining | Phase::Closed => {}
            _ => self.abort(cx),
        }
    }

    pub(super) fn finish_disconnect(&mut self, cx: &mut Cx<'_>) {
        // Requests that must wait for a peer that has not sent anything yet are given up.
        if !self.endpoint.is_flushed() && self.endpoint.is_open() {
            return;
        }
        self.endpoint.end(&FailedRequest::Nobody, &mut cx.out());
        self.ended(Disconnect::Local, cx);
        self.begin_drain(cx);
    }

    /// Ends the connection at once at the program's request.
    pub(super) fn abort(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.phase, Phase::Draining | Phase::Closed) {
            return;
        }
        self.endpoint.end(&FailedRequest::Nobody, &mut cx.out());
        let qp = self.qp();
        let reason = Disconnect::Local;
        cx.events.push_back(Event::Disconnected { qp, reason });
        self.reset();
    }

    /// Releases the connection at the program's request.
    pub(super) fn destroy(&mut self, cx: &mut Cx<'_>) {
        self.owned = false;
        if !matches!(self.phase, Phase::Draining | Phase::Closed) {
            self.reset();
        }
        self.endpoint.release(&mut cx.out());
    }

    pub(super) fn reset(&mut self) {
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

    pub(super) fn begin_drain(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Draining;
        self.deadline = Some(cx.now + DRAIN_TIME);
        self.readable = true;
        self.drain(cx);
    }

    /// Returns whether the connection is ending and has bytes that TCP has not taken.
    pub(super) fn is_sending(&self) -> bool {
        match self.phase {
            Phase::Disconnecting => true,
            Phase::Draining => !self.write_shut,
            _ => false,
        }
    }

    /// Sends the last bytes, then waits for the peer's FIN.
    pub(super) fn drain(&mut self, cx: &mut Cx<'_>) {
        if self.flush(cx).is_err() {
            return self.close();
        }
        let Some(socket) = self.socket.clone() else {
            return;
        };
        if !self.write_shut && self.endpoint.is_sent() {
            self.write_shut = true;
            // An error means that the socket cannot be shut down any more.
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
