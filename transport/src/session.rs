//! A client's calls and connections, without I/O and without a clock.
//!
//! The session decides what is sent where and when, and how each call ends. It is told the time
//! and what happened, acts through a [`ClientPort`], and leaves ended calls in a queue.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use onc_rpc::{
    AcceptStatus, CALL, CallHeader, Decoder, Message, RPC_VERSION, ReplyBody, ReplyHeader,
    Verifier, put_words,
};
use rdma::Time;
use rpcrdma_connection::IdMap;

use crate::options::{HEADER_ROOM, MAX_NCONNECT};
use crate::poll_loop::earlier;
use crate::{
    Call, CallError, ClientEvent, ClientOptions, ClientPort, ClientStats, ConnId, Denial, Reply,
    ReplyRoom, Retry,
};

mod lane;
mod lanes;
#[cfg(test)]
mod tests;
mod trust;

use lane::{Lane, State};
use lanes::no_answer;
use trust::Trust;

/// Offset of the credential in a call's header, after XID, type, RPC version, program, version and
/// procedure (RFC 5531, section 9).
const CREDENTIAL_AT: usize = 24;
/// The queue of tries is cleared of ended calls when it has this many entries beyond twice the
/// pending calls.
const SLACK: usize = 64;

/// A call that has not ended.
struct Pending {
    /// The caller's mark.
    user: usize,
    lane: usize,
    message: Message,
    room: ReplyRoom,
    started: Time,
    /// The connection that it was last sent on, and when.
    sent: Option<(ConnId, Time)>,
    /// When the present try is over. Its entry in `tries` has the same time.
    due: Time,
    /// Tries that are over.
    overdue: u32,
}

/// A call's end: the caller's mark, and how.
pub(crate) type Ended = (usize, Result<Reply, CallError>);

/// See the module.
pub(crate) struct Session {
    remote: SocketAddr,
    options: ClientOptions,
    /// A call's header from the credential on: the same in every call.
    credentials: Bytes,
    /// Room for the headers of further calls: one allocation for many.
    headers: BytesMut,
    lanes: Vec<Lane>,
    pending: IdMap<u32, Pending>,
    /// When each call's present try is over, in that order, for all tries take equally long.
    /// Entries of calls that ended stay until they come to the front, or are too many.
    tries: VecDeque<(Time, u32)>,
    next_xid: u32,
    next_lane: usize,
    /// How the first attempt to connect ended.
    founded: Option<Result<(), CallError>>,
    /// Whether there is an RPC server at all.
    trust: Trust,
    ended: VecDeque<Ended>,
    stats: ClientStats,
}

impl Session {
    /// A session that starts its first connection at once. `first_xid` should be random, so that
    /// a server does not take this client's calls for an earlier one's.
    pub(crate) fn new(
        remote: SocketAddr,
        options: ClientOptions,
        first_xid: u32,
        port: &mut dyn ClientPort,
        now: Time,
    ) -> Self {
        let header = CallHeader {
            xid: 0,
            prog: 0,
            vers: 0,
            proc: 0,
            cred: options.credential.clone(),
            verf: Verifier::default(),
        };
        let lanes = options.nconnect.clamp(1, MAX_NCONNECT);
        let mut session = Self {
            remote,
            credentials: header.encode().slice(CREDENTIAL_AT..),
            headers: BytesMut::with_capacity(HEADER_ROOM),
            lanes: (0..lanes).map(|_| Lane::new(now)).collect(),
            options,
            pending: IdMap::default(),
            tries: VecDeque::new(),
            next_xid: first_xid,
            next_lane: 0,
            founded: None,
            trust: Trust::default(),
            ended: VecDeque::new(),
            stats: ClientStats::default(),
        };
        session.open(0, port, now);
        session
    }

    /// Connections are kept, and made again when they are lost, although nothing is to be sent: the
    /// server may call (RFC 8167, section 5.4).
    pub(crate) fn keep_connections(&mut self) {
        for lane in &mut self.lanes {
            lane.keep = true;
        }
    }

    /// How the first attempt to connect ended, once it has. After a failure the session is over.
    pub(crate) fn founded(&self) -> Option<&Result<(), CallError>> {
        self.founded.as_ref()
    }

    /// Counts so far.
    pub(crate) fn stats(&self) -> ClientStats {
        self.stats
    }

    /// The next call that ended.
    pub(crate) fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Takes a call; its end comes out of [`Session::next_ended`] with `user`. Returns its XID.
    pub(crate) fn start(
        &mut self,
        call: Call,
        user: usize,
        port: &mut dyn ClientPort,
        now: Time,
    ) -> u32 {
        let xid = self.new_xid();
        let header = self.header([xid, CALL, RPC_VERSION, call.prog, call.vers, call.proc]);
        let mut message = call.args;
        message.prepend(header);
        let lane = self.choose_lane(port, now);
        self.lanes[lane].assign(now);
        let due = now + self.options.timeout;
        self.tries.push_back((due, xid));
        self.stats.calls += 1;
        let mut pending = Pending {
            user,
            lane,
            message,
            room: call.reply,
            started: now,
            sent: None,
            due,
            overdue: 0,
        };
        match self.lanes[lane].up() {
            Some(conn) => self.transmit(xid, &mut pending, conn, port, now),
            None => self.open_if_due(lane, port, now),
        }
        self.pending.insert(xid, pending);
        xid
    }

    /// The caller no longer waits. No end comes out.
    pub(crate) fn cancel(&mut self, xid: u32, port: &mut dyn ClientPort) {
        if let Some(pending) = self.remove(xid) {
            self.withdraw(xid, &pending, port);
        }
    }

    /// Takes in what happened on the port.
    pub(crate) fn handle(&mut self, event: ClientEvent, port: &mut dyn ClientPort, now: Time) {
        match event {
            ClientEvent::Up(conn) => self.up(conn, port, now),
            ClientEvent::Reply { conn, xid, message } => self.reply(conn, xid, message, now),
            ClientEvent::Failed { xid, error, .. } => self.end(xid, Err(error)),
            // The client's affair: it has no part in what this side calls.
            ClientEvent::Call { conn, token, .. } => port.reply(conn, token, None, now),
            ClientEvent::Down { conn, down } => {
                if let Some(lane) = self.lane_of(conn) {
                    self.broken(lane, down, port, now);
                }
            }
        }
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, port: &mut dyn ClientPort, now: Time) {
        // First what may end connections, then what makes them.
        while let Some(&(due, xid)) = self.tries.front() {
            if due > now {
                break;
            }
            self.tries.pop_front();
            if self.is_current(due, xid) {
                self.overdue(xid, port, now);
            }
        }
        if self
            .trust
            .deadline(&self.options)
            .is_some_and(|at| at <= now)
        {
            let reason = format!("silent for {:?}", self.options.first_reply_within);
            self.unanswered(&reason, port, now);
        }
        self.poll_lanes(port, now);
    }

    /// When [`Session::poll`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let lanes = self.lanes.iter();
        let lanes = lanes.filter_map(|lane| lane.next_deadline(&self.options));
        let tries = self.tries.front().map(|(due, _)| *due);
        earlier(
            earlier(lanes.min(), tries),
            self.trust.deadline(&self.options),
        )
    }

    /// Ends everything.
    pub(crate) fn close(&mut self, port: &mut dyn ClientPort, now: Time) {
        for lane in &mut self.lanes {
            if let Some(conn) = lane.conn() {
                port.close(conn);
                lane.state = State::Down { retry_at: now };
            }
        }
        for xid in self.xids_of(None) {
            self.end(xid, Err(CallError::Closed));
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

    fn header(&mut self, words: [u32; CREDENTIAL_AT / 4]) -> Bytes {
        self.headers.reserve(CREDENTIAL_AT + self.credentials.len());
        put_words(&mut self.headers, words);
        self.headers.extend_from_slice(&self.credentials);
        self.headers.split().freeze()
    }

    /// XIDs of a lane's calls, or of all, the oldest first.
    fn xids_of(&self, lane: Option<usize>) -> Vec<u32> {
        let mut found: Vec<_> = self
            .pending
            .iter()
            .filter(|(_, pending)| lane.is_none_or(|lane| pending.lane == lane))
            // Calls of the same moment are told apart by their XIDs, which may have wrapped.
            .map(|(xid, pending)| {
                let age = self.next_xid.wrapping_sub(*xid);
                (pending.started, std::cmp::Reverse(age), *xid)
            })
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, xid)| xid).collect()
    }

    fn send(&mut self, xid: u32, conn: ConnId, port: &mut dyn ClientPort, now: Time) {
        if let Some(mut pending) = self.pending.remove(&xid) {
            self.transmit(xid, &mut pending, conn, port, now);
            self.pending.insert(xid, pending);
        }
    }

    fn transmit(
        &mut self,
        xid: u32,
        pending: &mut Pending,
        conn: ConnId,
        port: &mut dyn ClientPort,
        now: Time,
    ) {
        if pending.sent.replace((conn, now)).is_some() {
            self.stats.retransmissions += 1;
        }
        self.stats.bytes_sent += pending.message.stream_len();
        self.trust.asked(now);
        port.submit(conn, xid, pending.message.clone(), &pending.room, now);
    }

    fn reply(&mut self, conn: ConnId, xid: u32, message: Message, now: Time) {
        let awaited = match self.pending.entry(xid) {
            Entry::Occupied(awaited) if self.lanes[awaited.get().lane].up() == Some(conn) => {
                awaited
            }
            _ => return self.stray(xid),
        };
        let pending = awaited.remove();
        self.trust.answered();
        if self.lanes[pending.lane].answered() {
            // The server is back: no reason for other lanes to wait.
            for other in &mut self.lanes {
                other.hurry(now);
            }
        }
        self.stats.replies += 1;
        self.stats.bytes_received += message.stream_len();
        self.removed(xid, &pending);
        let result = open_reply(message, now - pending.started);
        self.ended.push_back((pending.user, result));
    }

    #[cold]
    fn stray(&mut self, xid: u32) {
        self.stats.stray_replies += 1;
        tracing::debug!(xid, "dropped a reply that nobody waits for");
    }

    /// A try is over without a reply.
    #[cold]
    fn overdue(&mut self, xid: u32, port: &mut dyn ClientPort, now: Time) {
        let Some(pending) = self.pending.get_mut(&xid) else {
            return;
        };
        pending.overdue += 1;
        let after = now - pending.started;
        let (lane, sent) = (pending.lane, pending.sent);
        if let Retry::Soft { retransmissions } = self.options.retry
            && pending.overdue > retransmissions
        {
            let server = self.remote.to_string();
            if let Some(pending) = self.remove(xid) {
                self.withdraw(xid, &pending, port);
                let error = CallError::TimedOut { server, after };
                self.ended.push_back((pending.user, Err(error)));
            }
            // Its connection goes all the same. Over RDMA the call still has its credit, which only
            // its reply gives back; on a connection that is dead, every later call would wait too.
        } else {
            pending.due = now + self.options.timeout;
            self.tries.push_back((pending.due, xid));
        }
        // Unless the call waited for its connection for most of the try: then it has the next one.
        if let Some((conn, at)) = sent
            && self.lanes[lane].up() == Some(conn)
            && now - at >= self.options.timeout / 2
        {
            tracing::warn!(server = %self.remote, xid, ?after, "no reply: connecting anew");
            self.stats.overdue += 1;
            port.close(conn);
            let reason = format!("no reply in {:?}", self.options.timeout);
            self.broken(lane, no_answer(reason, true), port, now);
        }
    }

    /// Ends a call. Nothing happens when it has ended already.
    fn end(&mut self, xid: u32, result: Result<Reply, CallError>) {
        if let Some(pending) = self.remove(xid) {
            self.ended.push_back((pending.user, result));
        }
    }

    fn remove(&mut self, xid: u32) -> Option<Pending> {
        let pending = self.pending.remove(&xid)?;
        self.removed(xid, &pending);
        Some(pending)
    }

    /// Keeps the books of a call that is no longer pending.
    fn removed(&mut self, xid: u32, pending: &Pending) {
        self.lanes[pending.lane].release();
        if self.pending.is_empty() {
            self.trust.nothing_asked();
        }
        // Keep the front current, so that no wake-up is asked for on behalf of an ended call.
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

    /// Tells the port that a call is no longer waited for.
    fn withdraw(&self, xid: u32, pending: &Pending, port: &mut dyn ClientPort) {
        if let Some((conn, _)) = pending.sent
            && self.lanes[pending.lane].up() == Some(conn)
        {
            port.cancel(conn, xid);
        }
    }
}

/// Results, or why there are none.
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
        other => Err(CallError::Refused(denial(other))),
    }
}

/// Why there are no results.
#[cold]
fn denial(body: ReplyBody) -> Denial {
    match body {
        ReplyBody::Accepted { status, .. } => Denial::Accepted(status),
        ReplyBody::AuthError(stat) => Denial::Auth(stat),
        ReplyBody::RpcMismatch { low, high } => Denial::RpcMismatch { low, high },
    }
}
