//! A client's calls and connections, without I/O and without a clock of its own.
//!
//! [`ClientState`] decides which call is sent on which connection and when, and how each call ends.
//! Its driver passes in the time and events. The client state acts through a [`ClientTransport`]
//! and puts ended calls into a queue.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use onc_rpc::{
    AcceptStatus, CALL, Decoder, Message, RPC_VERSION, ReplyBody, ReplyHeader, put_words,
};
use rdma::trace::{End, Event, Tracer, Wait};
use rdma::{IdMap, Time};

use crate::call_counts::CallCounts;
use crate::credential::{CREDENTIAL_AT, EncodedCredential};
use crate::dispatch::error_of;
use crate::options::{HEADER_ROOM, MAX_NCONNECT};
use crate::poll_loop::earlier;
use crate::{
    Call, CallError, ClientCounts, ClientOptions, ClientStats, ClientTransport,
    ClientTransportEvent, ConnectionId, ProcedureCounts, Reply, ReplyRoom, Retry, StatusOf,
};

mod connection;
mod reconnect;
mod server_probe;
#[cfg(test)]
mod tests;

use connection::{Connection, ConnectionState};
use reconnect::{Reminder, no_answer};
use server_probe::ServerProbe;

/// Entries of ended calls are removed from the queue of tries when it has this many entries more
/// than twice the number of pending calls.
const SLACK: usize = 64;

/// A call that has not ended.
struct Pending {
    /// The caller's id of the call.
    user: usize,
    /// The index in [`ClientState::connections`] of the connection that the call is assigned to.
    index: usize,
    message: Message,
    room: ReplyRoom,
    started: Time,
    /// The connection that the call was last sent on, and the time.
    sent: Option<(ConnectionId, Time)>,
    /// The number of its transmissions.
    transmissions: u32,
    /// The deadline of the present try. The call's entry in `tries` has the same time.
    due: Time,
    /// The number of tries that timed out.
    overdue: u32,
    /// The number of times that the call moved to another connection.
    times_moved: usize,
}

/// An ended call: the caller's id, and the result.
pub(crate) type EndedCall = (usize, Result<Reply, CallError>);

/// The state of an RPC client: its calls and connections; see the module documentation.
pub(crate) struct ClientState {
    remote: SocketAddr,
    options: ClientOptions,
    /// The credential of calls that bring none of their own.
    credential: EncodedCredential,
    /// Memory for the headers of further calls, with their arguments if these are short: one allocation serves
    /// many. Empty between calls.
    headers: BytesMut,
    connections: Vec<Connection>,
    pending: IdMap<u32, Pending>,
    /// The deadlines of the present tries, in ascending order, as all tries take equally long.
    /// Entries of ended calls stay until they reach the front or become too many.
    tries: VecDeque<(Time, u32)>,
    next_xid: u32,
    next_connection: usize,
    /// The result of the first attempt to connect, once there is one.
    first_connect: Option<Result<(), CallError>>,
    /// The time until which the first attempt is repeated if the server has no room for a connection.
    first_until: Time,
    /// Detects that the peer is no RPC server for this transport.
    probe: ServerProbe,
    /// When to tell the user that there is no connection.
    reminder: Reminder,
    /// Whether the user was told that the server does not admit all connections.
    shortfall_told: bool,
    ended: VecDeque<EndedCall>,
    stats: ClientStats,
    /// The calls, if they are counted.
    counts: Option<Box<CallCounts>>,
    tracer: Option<Tracer>,
}

impl ClientState {
    /// Creates the state and starts its first connection at once. `first_xid` should be random, so
    /// that a server does not mistake this client's calls for an earlier one's.
    pub(crate) fn new(
        remote: SocketAddr,
        options: ClientOptions,
        first_xid: u32,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) -> Self {
        let count = options.nconnect.clamp(1, MAX_NCONNECT);
        let mut state = Self {
            remote,
            credential: EncodedCredential::encode(&options.credential),
            headers: BytesMut::with_capacity(HEADER_ROOM),
            connections: (0..count).map(|_| Connection::new(now)).collect(),
            first_until: now + options.connect_timeout,
            tracer: (options.trace.as_ref()).map(|trace| trace.open(End::Requester, remote)),
            options,
            pending: IdMap::default(),
            tries: VecDeque::new(),
            next_xid: first_xid,
            next_connection: 0,
            first_connect: None,
            probe: ServerProbe::default(),
            reminder: Reminder::default(),
            shortfall_told: false,
            ended: VecDeque::new(),
            stats: ClientStats::default(),
            counts: None,
        };
        state.open(0, transport, now);
        state
    }

    /// Keeps connections up and re-establishes them when they are lost, even if there is nothing to
    /// send, because the server may call (RFC 8167, section 5.4).
    pub(crate) fn keep_connections(&mut self) {
        for connection in &mut self.connections {
            connection.keep = true;
        }
    }

    /// Returns the result of the first attempt to connect, once there is one. After a failure the
    /// client is of no further use.
    pub(crate) fn first_connect(&self) -> Option<&Result<(), CallError>> {
        self.first_connect.as_ref()
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> ClientStats {
        self.stats
    }

    /// Returns the next ended call.
    pub(crate) fn next_ended(&mut self) -> Option<EndedCall> {
        self.ended.pop_front()
    }

    /// Counts the calls that end from now on.
    pub(crate) fn count_calls(&mut self, status: StatusOf) {
        self.counts
            .get_or_insert_with(|| Box::new(CallCounts::new(status)));
    }

    /// Returns the counts of calls, if they are counted.
    pub(crate) fn procedures(&self) -> Vec<ProcedureCounts> {
        self.counts
            .as_deref()
            .map_or_else(Vec::new, CallCounts::procedures)
    }

    /// Returns the number of calls that have not ended.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Counts a call that has ended. Its reply had `received` bytes.
    #[inline]
    fn count(
        &mut self,
        pending: &Pending,
        result: &Result<Reply, CallError>,
        received: u64,
        now: Time,
    ) {
        if let Some(counts) = &mut self.counts {
            count(counts, pending, result, received, now);
        }
    }

    /// Starts a call with its own credential, or that of the options.
    /// [`ClientState::next_ended`] later returns its result with `user`. Returns the call's XID.
    pub(crate) fn start(
        &mut self,
        call: Call,
        credential: Option<&EncodedCredential>,
        user: usize,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) -> u32 {
        let xid = self.new_xid();
        if let Some(tracer) = &self.tracer {
            tracer.record(xid, called(&call));
        }
        let words = [xid, CALL, RPC_VERSION, call.prog, call.vers, call.proc];
        self.put_header(words, credential);
        let mut message = call.args;
        message.prepend_in(&mut self.headers);
        let index = self.choose_connection(transport, now);
        self.connections[index].assign(now);
        let due = now + self.options.timeout;
        self.tries.push_back((due, xid));
        self.stats.calls += 1;
        let mut pending = Pending {
            user,
            index,
            message,
            room: call.reply,
            started: now,
            sent: None,
            transmissions: 0,
            due,
            overdue: 0,
            times_moved: 0,
        };
        match self.connections[index].up() {
            Some(conn) => self.transmit(xid, &mut pending, conn, transport, now),
            None => {
                self.trace(xid, Event::Waits(Wait::Connection));
                self.open_if_due(index, transport, now);
            }
        }
        self.pending.insert(xid, pending);
        xid
    }

    /// Cancels a call: the caller no longer waits, and no result is reported.
    pub(crate) fn cancel(&mut self, xid: u32, transport: &mut dyn ClientTransport) {
        if let Some(pending) = self.remove(xid) {
            self.withdraw(xid, &pending, transport);
        }
    }

    /// Handles an event of the transport.
    pub(crate) fn handle(
        &mut self,
        event: ClientTransportEvent,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        match event {
            ClientTransportEvent::Connected(conn) => self.connected(conn, transport, now),
            ClientTransportEvent::Reply { conn, xid, message } => {
                self.reply(conn, xid, message, now)
            }
            ClientTransportEvent::Failed { conn, xid, error } => {
                if self.is_on(conn, xid) {
                    self.end(xid, Err(error), now);
                }
            }
            // The client handles calls from the server; the client state only tracks the calls of
            // this side. Without a service, the call is dropped.
            ClientTransportEvent::Call { conn, token, .. } => {
                transport.reply(conn, token, None, now)
            }
            ClientTransportEvent::Disconnected { conn, lost } => {
                if let Some(index) = self.index_of(conn) {
                    self.broken(index, lost, transport, now);
                }
            }
        }
    }

    /// Does what is due: ends tries that have timed out and establishes connections.
    pub(crate) fn poll(&mut self, transport: &mut dyn ClientTransport, now: Time) {
        // Time-outs that may end connections come before reconnecting.
        while let Some(&(due, xid)) = self.tries.front() {
            if due > now {
                break;
            }
            self.tries.pop_front();
            if self.is_current(due, xid) {
                self.overdue(xid, transport, now);
            }
        }
        if self
            .probe
            .deadline(&self.options)
            .is_some_and(|at| at <= now)
        {
            let reason = format!("silent for {:?}", self.options.first_reply_within);
            self.unanswered(&reason, transport, now);
        }
        self.poll_connections(transport, now);
    }

    /// Returns when [`ClientState::poll`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let connections = self.connections.iter();
        let connections =
            connections.filter_map(|connection| connection.next_deadline(&self.options));
        let tries = self.tries.front().map(|(due, _)| *due);
        earlier(
            earlier(connections.min(), tries),
            self.probe.deadline(&self.options),
        )
    }

    /// Closes all connections and ends all calls.
    pub(crate) fn close(&mut self, transport: &mut dyn ClientTransport, now: Time) {
        for connection in &mut self.connections {
            if let Some(conn) = connection.conn() {
                transport.close(conn);
                connection.state = ConnectionState::Disconnected { retry_at: now };
            }
        }
        for xid in self.xids_of(None) {
            self.end(xid, Err(CallError::Closed), now);
        }
    }

    /// Records an event of a call, if calls are traced.
    #[inline]
    fn trace(&self, xid: u32, event: Event) {
        if let Some(tracer) = &self.tracer {
            tracer.record(xid, event);
        }
    }

    fn new_xid(&mut self) -> u32 {
        loop {
            let xid = self.next_xid;
            self.next_xid = xid.wrapping_add(1);
            if !self.pending.contains_key(&xid) {
                return xid;
            }
        }
    }

    /// Encodes the header of a call into `headers`.
    fn put_header(
        &mut self,
        words: [u32; CREDENTIAL_AT / 4],
        credential: Option<&EncodedCredential>,
    ) {
        debug_assert!(self.headers.is_empty(), "another header is in the buffer");
        let credential = credential.unwrap_or(&self.credential).as_bytes();
        self.headers.reserve(CREDENTIAL_AT + credential.len());
        put_words(&mut self.headers, words);
        self.headers.extend_from_slice(credential);
    }

    /// Returns the XIDs of the calls of one connection, or of all, oldest first.
    fn xids_of(&self, index: Option<usize>) -> Vec<u32> {
        let mut found: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| index.is_none_or(|index| pending.index == index))
            // Calls that were started at the same time are ordered by XID, which may have wrapped.
            .map(|(xid, pending)| {
                let age = self.next_xid.wrapping_sub(*xid);
                (pending.started, std::cmp::Reverse(age), *xid)
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, xid)| xid).collect()
    }

    fn send(
        &mut self,
        xid: u32,
        conn: ConnectionId,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        if let Some(mut pending) = self.pending.remove(&xid) {
            self.trace(xid, Event::Submitted);
            self.transmit(xid, &mut pending, conn, transport, now);
            self.pending.insert(xid, pending);
        }
    }

    fn transmit(
        &mut self,
        xid: u32,
        pending: &mut Pending,
        conn: ConnectionId,
        transport: &mut dyn ClientTransport,
        now: Time,
    ) {
        if pending.sent.replace((conn, now)).is_some() {
            self.stats.retransmissions += 1;
        }
        pending.transmissions += 1;
        self.stats.bytes_sent += pending.message.stream_len();
        self.probe.sent(now);
        transport.submit(conn, xid, pending.message.clone(), &pending.room, now);
    }

    /// Returns whether a call is pending on this connection. Calls can move to another connection, and
    /// what the earlier one reports later is not about them any more.
    fn is_on(&self, conn: ConnectionId, xid: u32) -> bool {
        let pending = self.pending.get(&xid);
        pending.is_some_and(|pending| self.connections[pending.index].conn() == Some(conn))
    }

    fn reply(&mut self, conn: ConnectionId, xid: u32, message: Message, now: Time) {
        let awaited = match self.pending.entry(xid) {
            Entry::Occupied(awaited)
                if self.connections[awaited.get().index].up() == Some(conn) =>
            {
                awaited
            }
            _ => return self.stray(xid),
        };
        let pending = awaited.remove();
        self.probe.answered();
        if self.reminder.answered() {
            self.tell_end_of_outage();
        }
        if self.connections[pending.index].answered() {
            // The server is back, so the other connections need not wait either.
            for other in &mut self.connections {
                other.hurry(now);
            }
        }
        self.stats.replies += 1;
        let received = message.stream_len();
        self.stats.bytes_received += received;
        self.removed(xid, &pending);
        let mut result = open_reply(message, now - pending.started);
        if let Ok(reply) = &mut result {
            reply.set_retransmitted(pending.transmissions > 1);
        }
        self.count(&pending, &result, received, now);
        let failed = result.is_err();
        self.trace(xid, Event::Ended { failed });
        self.ended.push_back((pending.user, result));
    }

    #[cold]
    fn stray(&mut self, xid: u32) {
        self.stats.stray_replies += 1;
        tracing::debug!(xid, "dropped a reply that nobody waits for");
    }

    /// Handles the time-out of a try.
    #[cold]
    fn overdue(&mut self, xid: u32, transport: &mut dyn ClientTransport, now: Time) {
        let Some(pending) = self.pending.get_mut(&xid) else {
            return;
        };
        pending.overdue += 1;
        let after = now - pending.started;
        let (index, sent) = (pending.index, pending.sent);
        if let Retry::Soft { retransmissions } = self.options.retry
            && pending.overdue > retransmissions
        {
            let server = self.remote.to_string();
            if let Some(pending) = self.remove(xid) {
                self.withdraw(xid, &pending, transport);
                let result = Err(CallError::TimedOut { server, after });
                self.count(&pending, &result, 0, now);
                self.ended.push_back((pending.user, result));
            }
            // The connection is closed nevertheless. Over RDMA the call still holds its credit,
            // which only its reply returns; on a dead connection, every later call would wait too.
        } else {
            pending.due = now + self.options.timeout;
            self.tries.push_back((pending.due, xid));
        }
        // A call that waited for its connection during most of the try keeps the connection and
        // gets another try.
        if let Some((conn, at)) = sent
            && self.connections[index].up() == Some(conn)
            && now - at >= self.options.timeout / 2
        {
            tracing::warn!(server = %self.remote, xid, "no reply in {after:.1?}: connecting anew");
            self.stats.overdue += 1;
            transport.close(conn);
            let reason = format!("no reply in {:?}", self.options.timeout);
            self.broken(index, no_answer(reason, true), transport, now);
        }
    }

    /// Ends a call. Does nothing if the call has already ended.
    fn end(&mut self, xid: u32, result: Result<Reply, CallError>, now: Time) {
        if let Some(pending) = self.remove(xid) {
            self.count(&pending, &result, 0, now);
            self.ended.push_back((pending.user, result));
        }
    }

    fn remove(&mut self, xid: u32) -> Option<Pending> {
        let pending = self.pending.remove(&xid)?;
        self.trace(xid, Event::Ended { failed: true });
        self.removed(xid, &pending);
        Some(pending)
    }

    /// Updates the bookkeeping for a call that is no longer pending.
    fn removed(&mut self, xid: u32, pending: &Pending) {
        self.connections[pending.index].release();
        if self.pending.is_empty() {
            self.probe.none_pending();
        }
        // The front is kept current, so that no wake-up is requested on behalf of an ended call.
        while let Some(&(due, first)) = self.tries.front()
            && (first == xid || !self.is_current(due, first))
        {
            self.tries.pop_front();
        }
        if self.tries.len() > 2 * self.pending.len() + SLACK {
            self.forget_ended_tries();
        }
    }

    #[cold]
    fn forget_ended_tries(&mut self) {
        let calls = &self.pending;
        self.tries
            .retain(|(due, xid)| calls.get(xid).is_some_and(|call| call.due == *due));
    }

    fn is_current(&self, due: Time, xid: u32) -> bool {
        self.pending.get(&xid).is_some_and(|call| call.due == due)
    }

    /// Cancels a call at the transport.
    fn withdraw(&self, xid: u32, pending: &Pending, transport: &mut dyn ClientTransport) {
        if let Some((conn, _)) = pending.sent
            && self.connections[pending.index].up() == Some(conn)
        {
            transport.cancel(conn, xid);
        }
    }
}

/// Counts a call that has ended. Its program, version and procedure are in the header that
/// [`ClientState::start`] has put before it.
#[inline(never)]
fn count(
    counts: &mut CallCounts,
    pending: &Pending,
    result: &Result<Reply, CallError>,
    received: u64,
    now: Time,
) {
    let header = pending.message.payload().first();
    let word = |at: usize| {
        let word = header.and_then(|header| header.get(4 * at..)?.first_chunk::<4>());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    };
    let nanos = |from: Time, to: Time| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
    let sent = pending.sent.map_or(now, |(_, at)| at);
    let transmissions = u64::from(pending.transmissions.max(1));
    let own = ClientCounts {
        transmissions,
        timeouts: u64::from(pending.overdue),
        sent_bytes: pending.message.stream_len() * u64::from(pending.transmissions),
        received_bytes: received,
        queue_nanos: nanos(pending.started, sent),
        round_trip_nanos: nanos(sent, now),
    };
    counts.ended(
        (word(3), word(4), word(5)),
        result,
        (pending.started, now),
        own,
    );
}

/// Returns the event with which a trace of a call begins.
#[cold]
fn called(call: &Call) -> Event {
    Event::Called {
        program: call.prog,
        version: u16::try_from(call.vers).unwrap_or(u16::MAX),
        procedure: call.proc,
        bytes: u32::try_from(call.args.stream_len()).unwrap_or(u32::MAX),
    }
}

/// Decodes a reply: the results, or the error.
pub(crate) fn open_reply(message: Message, round_trip: Duration) -> Result<Reply, CallError> {
    let mut decoder = Decoder::new(&message);
    let header = ReplyHeader::decode(&mut decoder)
        .map_err(|error| CallError::Protocol(format!("malformed RPC reply: {error}")))?;
    let results = decoder.cursor();
    match header.body {
        ReplyBody::Accepted {
            status: AcceptStatus::Success,
            ..
        } => Ok(Reply::new(message, results, round_trip)),
        other => Err(CallError::Refused(error_of(&other))),
    }
}
