//! The connections of one transport, and the list of those that need attention.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use mio::net::TcpStream;
use onc_rpc::Message;
use onc_rpc::record::RecordError;
use rdma::{Interest, Poller, Pool, Time};
use slab::Slab;

use super::stream::{Credit, Stream, StreamEnd};
use super::{TcpCounters, TcpOptions};
use crate::ConnectionId;
use crate::poll_loop::earlier;

/// The pause before asking an exhausted pool again.
const POOL_RETRY: Duration = Duration::from_millis(1);

/// The maximum interval between searches for connections that wait for their peers.
const STALL_CHECK: Duration = Duration::from_secs(1);
/// The maximum time without progress of a peer that holds memory which others need.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// The pool's size divided by this number may be allocated in advance for peers that have announced
/// long records. Further memory is allocated as they send.
const PROMISED_PART: usize = 4;

/// A connection of the set.
pub(super) struct Member<X> {
    pub(super) id: ConnectionId,
    pub(super) stream: Stream,
    /// The transport's state of the connection.
    pub(super) extra: X,
    marked: bool,
}

/// The reason why a peer counts as stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// The peer has not sent the rest of a record for this time.
    Record(Duration),
    /// The peer has not read data that waits for it for this time.
    Reply(Duration),
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(limit) => write!(f, "a record that stood still for {limit:?}"),
            Self::Reply(limit) => write!(f, "replies that the peer did not take for {limit:?}"),
        }
    }
}

/// The readiness events that sockets are watched for.
const INTEREST: Interest = Interest::ReadableAndWritable;

/// The connections of one transport, and which of them need attention: a socket is ready, or memory
/// is free again.
pub(super) struct StreamSet<X> {
    pub(super) options: TcpOptions,
    pub(super) counters: TcpCounters,
    /// The poll loop, with the tokens of the connections.
    poller: Option<Poller>,
    members: Slab<Member<X>>,
    serial: u32,
    /// Connections to visit at the next poll.
    marked: Vec<usize>,
    /// Connections whose records are put on the link at the next poll: one entry for each record,
    /// in order.
    leaving: Vec<usize>,
    busy: bool,
    armed: bool,
    pool_retry_at: Option<Time>,
    /// The memory of all connections, in bytes, that is allocated for announced data and not filled
    /// yet.
    promised: usize,
    /// The time of the next search for stalled records.
    stalled_at: Option<Time>,
    /// The time of the last visit.
    visited: Time,
}

impl<X> StreamSet<X> {
    pub(super) fn new(options: TcpOptions) -> Self {
        Self {
            options,
            counters: TcpCounters::default(),
            poller: None,
            members: Slab::new(),
            serial: 0,
            marked: Vec::new(),
            leaving: Vec::new(),
            busy: false,
            armed: false,
            pool_retry_at: None,
            promised: 0,
            stalled_at: None,
            visited: Time::ZERO,
        }
    }

    /// Joins a poll loop. The connections' tokens start `offset` after the transport's first.
    pub(super) fn attach(&mut self, poller: Poller, offset: usize) {
        self.poller = Some(Poller {
            first_token: poller.first_token + offset,
            ..poller
        });
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Turns busy polling on or off. With busy polling, sockets are not watched: a sender on the
    /// same host would pay for each notification of a watched socket.
    pub(super) fn set_busy_poll(&mut self, on: bool) {
        let changed = std::mem::replace(&mut self.busy, on) != on;
        let Self {
            members, marked, ..
        } = self;
        for (index, member) in members {
            if let Some(poller) = self.poller.as_ref().filter(|_| changed) {
                let socket = member.stream.socket.as_fd();
                let done = match on {
                    true => poller.unwatch(socket),
                    false => poller.watch(socket, index, INTEREST),
                };
                if let Err(error) = done {
                    rpcrdma_host::limited!(error, %error, "cannot change how a connection is watched, closing it");
                    // The next visit, which comes soon, sees that the connection has ended.
                    if let Err(error) = member.stream.socket.shutdown(Shutdown::Both) {
                        tracing::debug!(%error, "a socket was not shut down");
                    }
                }
            }
            // Visiting once finds what became ready while the socket was not watched.
            mark(index, member, marked);
        }
    }

    /// Adds a socket, connected or connecting. Long records are received into memory of `pool`.
    pub(super) fn insert(
        &mut self,
        socket: TcpStream,
        extra: X,
        pool: Pool,
    ) -> io::Result<ConnectionId> {
        let poller = self
            .poller
            .as_ref()
            .ok_or_else(|| io::Error::other("the transport is in no poll loop"))?;
        let entry = self.members.vacant_entry();
        if !self.busy {
            poller.watch(socket.as_fd(), entry.key(), INTEREST)?;
        }
        self.serial = self.serial.wrapping_add(1);
        let id = ConnectionId(u64::from(self.serial) << 32 | entry.key() as u64);
        let stream = Stream::new(socket, self.options.max_record, pool);
        entry.insert(Member {
            id,
            stream,
            extra,
            marked: false,
        });
        Ok(id)
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut Member<X>> {
        self.members.get_mut(index)
    }

    /// Returns a connection by its id, or `None` if it has ended.
    pub(super) fn find(&mut self, conn: ConnectionId) -> Option<(usize, &mut Member<X>)> {
        let index = conn.0 as u32 as usize;
        let member = self.members.get_mut(index)?;
        (member.id == conn).then_some((index, member))
    }

    /// Returns a shared reference to a connection by its id, or `None` if it has ended.
    pub(super) fn peek(&self, conn: ConnectionId) -> Option<&Member<X>> {
        let member = self.members.get(conn.0 as u32 as usize)?;
        (member.id == conn).then_some(member)
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, index: usize) -> Option<Member<X>> {
        let member = self.members.try_remove(index)?;
        self.promised -= member.stream.promised();
        if let Some(poller) = self.poller.as_ref().filter(|_| !self.busy)
            && let Err(error) = poller.unwatch(member.stream.socket.as_fd())
        {
            tracing::debug!(%error, "deregistering a socket");
        }
        Some(member)
    }

    /// Makes the next poll visit a connection.
    pub(super) fn mark(&mut self, index: usize) {
        if let Some(member) = self.members.get_mut(index) {
            mark(index, member, &mut self.marked);
        }
    }

    /// Handles a readiness event: counts it if the set was armed, and marks the connection.
    pub(super) fn ready(&mut self, index: usize, closed: bool) {
        self.interrupted();
        if let Some(member) = self.members.get_mut(index) {
            member.stream.set_ready(closed);
            mark(index, member, &mut self.marked);
        }
    }

    pub(super) fn interrupted(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.counters.interrupts += 1;
        }
    }

    pub(super) fn arm(&mut self) -> bool {
        self.armed = self.marked.is_empty();
        self.armed
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let releases = || {
            let streams = self.members.iter().map(|(_, member)| &member.stream);
            streams.filter_map(Stream::next_release)
        };
        let release = match self.options.link {
            // Records whose release time has passed wait for room in the socket, not for a time.
            Some(_) => releases().filter(|release| *release > self.visited).min(),
            None => None,
        };
        earlier(release, self.pool_retry_at)
    }

    /// Starts a round of visits: puts the connections to visit into `visits`.
    pub(super) fn start(&mut self, now: Time, visits: &mut Vec<usize>) {
        self.armed = false;
        self.visited = now;
        self.leave(now);
        let due = |at: &mut Option<Time>| at.take_if(|at| *at <= now).is_some();
        let pool_retry_due = due(&mut self.pool_retry_at);
        let shaped = self.options.link.is_some();
        if pool_retry_due || shaped || self.busy {
            for (index, member) in &mut self.members {
                let stream = &member.stream;
                let released = || stream.next_release().is_some_and(|at| at <= now);
                let visit = self.busy
                    || (pool_retry_due && stream.waits_for_memory())
                    || (shaped && released());
                if visit {
                    mark(index, member, &mut self.marked);
                }
            }
        }
        std::mem::swap(&mut self.marked, visits);
        for index in visits {
            if let Some(member) = self.members.get_mut(*index) {
                member.marked = false;
            }
        }
    }

    /// Puts the records queued since the last poll on the link, as [`rdma::middleware::Linked`] does
    /// with the requests of a device. The time that a record is queued with is that of the last poll:
    /// from then on, the link would carry it before it was made.
    fn leave(&mut self, now: Time) {
        if let Some(link) = &mut self.options.link {
            for index in self.leaving.drain(..) {
                if let Some(member) = self.members.get_mut(index) {
                    member.stream.put_on(link, now);
                }
            }
        }
    }

    /// Queues a call on a connection. Does nothing if it has ended.
    pub(super) fn send(
        &mut self,
        index: usize,
        xid: u32,
        message: &Message,
        now: Time,
    ) -> Result<(), RecordError> {
        self.queue(index, Some(xid), message, now)
    }

    /// Queues a reply on a connection. Does nothing if it has ended. A reply cannot be taken back.
    pub(super) fn reply(
        &mut self,
        index: usize,
        message: &Message,
        now: Time,
    ) -> Result<(), RecordError> {
        self.queue(index, None, message, now)
    }

    fn queue(
        &mut self,
        index: usize,
        xid: Option<u32>,
        message: &Message,
        now: Time,
    ) -> Result<(), RecordError> {
        let Some(member) = self.members.get_mut(index) else {
            return Ok(());
        };
        let shaped = self.options.link.is_some();
        member
            .stream
            .queue(xid, message, (!shaped).then_some(now))?;
        if shaped {
            self.leaving.push(index);
        }
        self.counters.sends += 1;
        mark(index, member, &mut self.marked);
        Ok(())
    }

    /// Visits a connection: sends and receives as much as possible. Records go to `deliver`, until
    /// it returns false; the connection is then not read from until it is marked.
    pub(super) fn transfer(
        &mut self,
        index: usize,
        now: Time,
        mut deliver: impl FnMut(&mut X, Message) -> bool,
        may_receive: impl FnOnce(&X, usize) -> bool,
    ) -> Result<(), StreamEnd> {
        let Some(member) = self.members.get_mut(index) else {
            return Ok(());
        };
        let Member { stream, extra, .. } = member;
        stream.flush(self.busy, now, &mut self.counters)?;
        let look = now + look_every(&self.options);
        if stream.sending().since().is_some() {
            self.stalled_at.get_or_insert(look);
        }
        if !may_receive(extra, stream.reply_bytes()) {
            stream.note_wait(0, true, now);
            return Ok(());
        }
        let mut more = true;
        let TcpOptions {
            pool, max_record, ..
        } = &self.options;
        let reserve = *max_record as usize;
        let limit = reserve.max(pool.limit() / PROMISED_PART);
        let credit = Credit {
            unfilled: limit.saturating_sub(self.promised),
            reserve,
        };
        let (before, promised) = (self.counters.wire_bytes_received, stream.promised());
        let result = stream.receive(self.busy, credit, &mut self.counters, |message| {
            more = deliver(extra, message);
            more
        });
        self.promised = self.promised - promised + stream.promised();
        result?;
        let came = self.counters.wire_bytes_received - before;
        stream.note_wait(came, !more, now);
        if stream.receiving().since().is_some() {
            self.stalled_at.get_or_insert(look);
        }
        if stream.waits_for_memory() {
            self.pool_retry_at.get_or_insert(now + POOL_RETRY);
        } else if more && stream.readable() {
            mark(index, member, &mut self.marked);
        }
        Ok(())
    }

    /// Returns when to call [`StreamSet::stalled`].
    pub(super) fn stalled_at(&self) -> Option<Time> {
        self.stalled_at
    }

    /// Returns the connections whose peers have made too little progress for too long, in sending a
    /// record or in reading replies.
    pub(super) fn stalled(&mut self, now: Time) -> Vec<(usize, Stalled)> {
        let mut stalled = Vec::new();
        if self.stalled_at.take_if(|at| *at <= now).is_none() {
            return stalled;
        }
        let (record, reply) = (self.options.record_timeout, self.options.reply_timeout);
        for (index, Member { stream, .. }) in &self.members {
            let (receiving, sending) = (stream.receiving().since(), stream.sending().since());
            if receiving.is_none() && sending.is_none() {
                continue;
            }
            let most = match stream.holds_scarce_memory() {
                true => STALL_LIMIT,
                false => Duration::MAX,
            };
            let is_late = |since: Option<Time>, limit: Duration| {
                since.is_some_and(|since| now.since(since) >= limit)
            };
            let (record, reply) = (record.min(most), reply.min(most));
            if is_late(sending, reply) {
                stalled.push((index, Stalled::Reply(reply)));
            } else if is_late(receiving, record) {
                stalled.push((index, Stalled::Record(record)));
            } else {
                self.stalled_at = Some(now + look_every(&self.options));
            }
        }
        stalled
    }
}

/// Returns the interval between searches for connections that wait for their peers.
fn look_every(options: &TcpOptions) -> Duration {
    let shortest = options.record_timeout.min(options.reply_timeout);
    STALL_CHECK.min(shortest / 4)
}

fn mark<X>(index: usize, member: &mut Member<X>, marked: &mut Vec<usize>) {
    if !std::mem::replace(&mut member.marked, true) {
        marked.push(index);
    }
}
