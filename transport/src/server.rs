//! A server: one poll loop, its ports, its service, and workers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use onc_rpc::{CallHeader, Cursor, Message};
use rdma::{Clock, Time};
use rpcrdma_connection::IdMap;
use slab::Slab;

use crate::callee::Place;
use crate::dispatch::{Verdict, answer, judge};
use crate::options::HEADER_ROOM;
use crate::poll_loop::{Armed, PollLoop, Wake, earlier};
use crate::reply_cache::{CallKey, DEFAULT_BYTES, DEFAULT_ENTRIES, Known, ReplyCache};
use crate::workers::{Workers, catch};
use crate::{
    Callee, ConnId, Outcome, PeerOrigin, Request, ServerEvent, ServerPort, Service, ServiceReply,
    Stop,
};

mod callbacks;
mod idle;

use callbacks::Callbacks;
use idle::{DEFAULT_IDLE, Peer};

/// Options of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Worker threads, for what a service leaves to [`Outcome::Later`].
    pub workers: usize,
    /// Calls that wait for a worker or run on one, at most. With as many, no further calls are
    /// taken from the ports, which then hold their clients back.
    pub max_jobs: usize,
    /// Replies kept for retransmissions, at most. By default twice as many as there can be calls
    /// outstanding with the default connections and credits; when fewer are kept, a client that
    /// comes back late may have a call executed twice.
    pub reply_cache_entries: usize,
    /// Memory for them, bytes, at most.
    pub reply_cache_bytes: usize,
    /// Connections of all ports together, at most. Further ones are closed at once.
    pub max_connections: usize,
    /// How long a connection may go without a call before it is closed, calls that are being
    /// worked on not counted. Its client connects again with its next call.
    pub idle_timeout: Duration,
    /// Whether to look for arrivals all the time instead of sleeping.
    pub busy_poll: bool,
    /// Whether services may call clients ([`Request::client`]). The ports must be able to as well
    /// ([`crate::rdma::CallbackOptions`], [`crate::TcpOptions::callbacks`]).
    pub callbacks: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 4,
            max_jobs: 1024,
            reply_cache_entries: DEFAULT_ENTRIES,
            reply_cache_bytes: DEFAULT_BYTES,
            max_connections: 1024,
            idle_timeout: DEFAULT_IDLE,
            busy_poll: false,
            callbacks: false,
        }
    }
}

/// Counts of a server since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Calls that arrived, of all kinds.
    pub calls: u64,
    /// Calls answered without the service's part: unknown program, bad credential and the like.
    pub refused: u64,
    /// Retransmissions answered from the reply cache.
    pub replayed: u64,
    /// Retransmissions of calls that were in progress.
    pub joined: u64,
    /// Calls handed to workers.
    pub jobs: u64,
    /// Connections closed because what came over them were no calls.
    pub garbage: u64,
    /// Connections closed because nothing came over them.
    pub idle: u64,
    /// Calls to clients that were begun.
    pub callbacks: u64,
    /// Of them, those that clients answered with results.
    pub callback_replies: u64,
}

/// One of a server's ports hears of nobody any more, as when its device was removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a port was lost: {reason}")]
pub struct PortLost {
    /// Why.
    pub reason: String,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
struct Origin {
    port: usize,
    conn: ConnId,
    token: u64,
}

/// A call that a worker has.
struct Running {
    origin: Origin,
    xid: u32,
    key: Option<CallKey>,
}

struct Port {
    port: Rc<RefCell<dyn ServerPort>>,
    peers: IdMap<ConnId, Peer>,
}

/// Answers calls that arrive at its ports from its service.
pub struct Server {
    service: Box<dyn Service>,
    options: ServerOptions,
    poll_loop: PollLoop,
    wake: Arc<Wake>,
    ports: Vec<Port>,
    workers: Workers,
    running: Slab<Running>,
    cache: ReplyCache,
    stats: ServerStats,
    /// A port that was lost, until that was told.
    lost: Option<PortLost>,
    /// Room for the headers of further replies: one allocation for many.
    headers: BytesMut,
    /// When to look for idle connections.
    idle_at: Option<Time>,
    /// Calls to clients, if any are made.
    callbacks: Option<Callbacks>,
    /// Calls that were taken from their ports while there were too many jobs, because replies to
    /// callbacks, for which jobs may wait, come behind them.
    held: VecDeque<(Origin, Message)>,
    /// Kept for its memory; empty between steps.
    done: VecDeque<(usize, ServiceReply)>,
}

impl Server {
    /// A server without ports. Starts its workers.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn new(service: Box<dyn Service>, options: ServerOptions) -> io::Result<Self> {
        let poll_loop = PollLoop::new()?;
        let workers = Workers::new(options.workers, Arc::clone(poll_loop.wake()))?;
        Ok(Self::with(service, options, poll_loop, workers))
    }

    /// A server in a simulation: it has no threads and never sleeps. Whoever sets `clock` calls
    /// [`Server::step`], [`Server::arm`] and [`Server::run_job`].
    #[must_use]
    pub fn simulated(service: Box<dyn Service>, options: ServerOptions, clock: Clock) -> Self {
        let poll_loop = PollLoop::simulated(clock);
        let workers = Workers::without_threads(Arc::clone(poll_loop.wake()));
        Self::with(service, options, poll_loop, workers)
    }

    fn with(
        service: Box<dyn Service>,
        options: ServerOptions,
        mut poll_loop: PollLoop,
        workers: Workers,
    ) -> Self {
        poll_loop.set_busy_poll(options.busy_poll);
        let wake = Arc::clone(poll_loop.wake());
        let callbacks = options.callbacks.then(|| Callbacks::new(Arc::clone(&wake)));
        Self {
            callbacks,
            held: VecDeque::new(),
            workers,
            cache: ReplyCache::new(options.reply_cache_entries, options.reply_cache_bytes),
            service,
            options,
            poll_loop,
            wake,
            ports: Vec::new(),
            running: Slab::new(),
            stats: ServerStats::default(),
            lost: None,
            headers: BytesMut::with_capacity(HEADER_ROOM),
            idle_at: None,
            done: VecDeque::new(),
        }
    }

    /// Takes a port in. The caller may keep a handle to it, for its counters.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn add_port(&mut self, port: Rc<RefCell<dyn ServerPort>>) -> io::Result<()> {
        self.poll_loop.add(Rc::clone(&port) as Rc<RefCell<_>>)?;
        let peers = IdMap::default();
        self.ports.push(Port { port, peers });
        Ok(())
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Serves until stopped. Calls that are in progress then are not answered; their clients
    /// retransmit to whatever serves next.
    ///
    /// # Errors
    /// [`PortLost`]: going on without it, while nobody knows, would be no service.
    pub fn run(&mut self, stop: &Stop) -> Result<(), PortLost> {
        stop.register(&self.wake);
        while !stop.is_stopped() {
            let progress = self.step();
            if let Some(lost) = self.lost.take() {
                return Err(lost);
            }
            if progress {
                continue;
            }
            if self.takes_nothing() {
                self.poll_loop.wait_for_wake();
            } else {
                self.poll_loop.wait(self.next_deadline());
            }
        }
        Ok(())
    }

    /// Does what can be done without waiting. Returns whether there was anything.
    pub fn step(&mut self) -> bool {
        let now = self.poll_loop.clock().now();
        self.poll_loop.turn(now);
        let mut progress = false;
        if self.wake.take() {
            // Even if no job ended: it may have been a Stop, which must be looked at before sleeping.
            progress = true;
            self.finish_jobs(now);
            self.start_callbacks(now);
        }
        if self.callbacks.is_some() {
            self.end_overdue(now);
        }
        if self.idle_at.is_some_and(|at| at <= now) {
            self.close_idle(now);
        }
        while !self.is_full()
            && let Some((origin, message)) = self.held.pop_front()
        {
            progress = true;
            self.call(origin, message, now);
        }
        for port in 0..self.ports.len() {
            while !self.takes_nothing()
                && let Some(event) = self.next_event(port)
            {
                progress = true;
                self.handle(port, event, now);
            }
        }
        progress
    }

    /// What there is to wait for when [`Server::step`] had nothing to do.
    pub fn arm(&mut self) -> Armed {
        match self.takes_nothing() && !self.wake.is_woken() {
            // Whatever the ports have to tell waits until a job is done.
            true => Armed::Until(self.poll_loop.next_deadline()),
            false => self.poll_loop.arm(self.next_deadline()),
        }
    }

    /// Runs the oldest job that waits for a worker, on this thread: for a server without threads.
    /// Its reply goes out in the next step. False when no job waits.
    pub fn run_job(&mut self) -> bool {
        self.workers.run_one()
    }

    fn is_full(&self) -> bool {
        self.running.len() >= self.options.max_jobs.max(1)
    }

    /// Whether what the ports have to tell must wait. While callbacks are outstanding, jobs may wait
    /// for them, and what clients say is listened to: their calls are held.
    fn takes_nothing(&self) -> bool {
        self.is_full()
            && self
                .callbacks
                .as_ref()
                .is_none_or(|calls| calls.pending() == 0)
    }

    fn next_deadline(&self) -> Option<Time> {
        let callbacks = self.callbacks.as_ref();
        earlier(self.idle_at, callbacks.and_then(Callbacks::next_deadline))
    }

    fn next_event(&self, port: usize) -> Option<ServerEvent> {
        self.ports[port].port.borrow_mut().next_event()
    }

    fn handle(&mut self, port: usize, event: ServerEvent, now: Time) {
        match event {
            ServerEvent::Up { conn, peer } => self.up(port, conn, peer, now),
            ServerEvent::Down { conn, reason } => {
                if let Some(peer) = self.forget((port, conn), &reason) {
                    tracing::debug!(peer = %peer.address, reason, "client gone");
                }
            }
            ServerEvent::Reply { conn, xid, message } => {
                self.callback_ended((port, conn), xid, Ok(message), now);
            }
            ServerEvent::Failed { conn, xid, error } => {
                self.callback_ended((port, conn), xid, Err(error), now);
            }
            ServerEvent::Call {
                conn,
                token,
                message,
            } => {
                let origin = Origin { port, conn, token };
                match self.is_full() {
                    true => self.held.push_back((origin, message)),
                    false => self.call(origin, message, now),
                }
            }
            ServerEvent::Lost { reason } => self.lost = Some(PortLost { reason }),
        }
    }

    #[cold]
    fn up(&mut self, port: usize, conn: ConnId, peer: SocketAddr, now: Time) {
        let count: usize = self.ports.iter().map(|port| port.peers.len()).sum();
        if count >= self.options.max_connections {
            rdma::limited!(warn, %peer, "too many connections: one more was closed");
            self.ports[port].port.borrow_mut().close(conn);
            return;
        }
        let listener = self.ports[port].port.borrow();
        let carrier = || listener.carrier(conn);
        let origin = PeerOrigin::find(listener.is_rdma(), carrier);
        drop(listener);
        tracing::debug!(%peer, ?origin, "client connected");
        let known = Peer {
            address: peer,
            origin,
            last_call: now,
            callee: self.callee((port, conn), peer),
        };
        self.ports[port].peers.insert(conn, known);
        self.expect_idle(now);
    }

    /// A connection has ended, or is about to.
    #[cold]
    fn forget(&mut self, place: Place, reason: &str) -> Option<Peer> {
        let (port, conn) = place;
        let peer = self.ports[port].peers.remove(&conn)?;
        if let Some(callee) = &peer.callee {
            callee.disconnected();
            self.end_callbacks(place, reason);
        }
        Some(peer)
    }

    /// Ends a connection.
    fn close(&mut self, place: Place, reason: &str) {
        let (port, conn) = place;
        self.forget(place, reason);
        self.ports[port].port.borrow_mut().close(conn);
    }

    fn call(&mut self, origin: Origin, message: Message, now: Time) {
        let Some(peer) = self.ports[origin.port].peers.get_mut(&origin.conn) else {
            return;
        };
        peer.last_call = now;
        let (peer, from, callee) = (peer.address, peer.origin, peer.callee.clone());
        self.stats.calls += 1;
        match judge(&message, self.service.programs()) {
            Verdict::Execute {
                header,
                args,
                args_at,
            } => {
                let CallHeader {
                    prog, vers, proc, ..
                } = header;
                tracing::trace!(%peer, xid = header.xid, prog, vers, proc, "call");
                let remember = self.service.remember_reply(prog, vers, proc);
                let key = remember
                    .then(|| CallKey::new(peer.ip(), &header, &message, args_at).with_origin(from));
                if key.is_none_or(|key| self.is_new(key, origin, now)) {
                    self.execute(
                        origin,
                        (peer, from),
                        callee,
                        header,
                        message,
                        args,
                        key,
                        now,
                    );
                }
            }
            other => self.refuse(origin, peer, other, now),
        }
    }

    /// A call that is not executed.
    #[cold]
    fn refuse(&mut self, origin: Origin, peer: SocketAddr, verdict: Verdict, now: Time) {
        match verdict {
            Verdict::Execute { .. } => {}
            Verdict::Answer(header) => {
                tracing::debug!(%peer, xid = header.xid, answer = ?header.body, "call refused");
                self.stats.refused += 1;
                self.reply(origin, Some(Message::from_payload(header.encode())), now);
            }
            Verdict::Disconnect(reason) => {
                rdma::limited!(warn, %peer, reason, "garbage: closing the connection");
                self.stats.garbage += 1;
                self.close((origin.port, origin.conn), "what came over it was no call");
            }
        }
    }

    /// Whether a call must be executed. A retransmission is answered from memory or, while the
    /// call is in progress, takes the earlier transmission's place: it came over a newer
    /// connection, and the earlier one may be dead.
    #[inline(never)]
    fn is_new(&mut self, key: CallKey, origin: Origin, now: Time) -> bool {
        match self.cache.look_up(key, self.running.vacant_key(), now) {
            Known::New => true,
            Known::Done(reply) => {
                self.stats.replayed += 1;
                self.reply(origin, Some(reply), now);
                false
            }
            Known::InProgress(job) => {
                self.stats.joined += 1;
                if let Some(running) = self.running.get_mut(job) {
                    let earlier = std::mem::replace(&mut running.origin, origin);
                    self.reply(earlier, None, now);
                }
                false
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one per part of a judged call")]
    fn execute(
        &mut self,
        origin: Origin,
        (peer, from): (SocketAddr, PeerOrigin),
        callee: Option<Callee>,
        header: CallHeader,
        message: Message,
        args: Cursor,
        key: Option<CallKey>,
        now: Time,
    ) {
        let CallHeader {
            xid,
            prog,
            vers,
            proc,
            cred,
            ..
        } = header;
        let pool = self.ports[origin.port].port.borrow().pool(origin.conn);
        let request = Request::new(peer, prog, vers, proc, cred, pool, message, args)
            .from_origin(from)
            .from_client(callee);
        let service = &mut self.service;
        match catch(|| Ok(service.call(request)))
            .unwrap_or_else(|denial| Outcome::Done(Err(denial)))
        {
            Outcome::Done(reply) => self.finish(origin, xid, key, reply, now),
            Outcome::Later(job) => {
                self.stats.jobs += 1;
                let id = self.running.insert(Running { origin, xid, key });
                self.workers.submit(id, job);
            }
        }
    }

    #[inline(never)]
    fn finish_jobs(&mut self, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.workers.take_done(&mut done);
        for (id, reply) in done.drain(..) {
            if let Some(Running { origin, xid, key }) = self.running.try_remove(id) {
                self.finish(origin, xid, key, reply, now);
            }
        }
        self.done = done;
    }

    fn finish(
        &mut self,
        origin: Origin,
        xid: u32,
        key: Option<CallKey>,
        reply: ServiceReply,
        now: Time,
    ) {
        // A reply that is kept must not keep the room that others' headers are in.
        let mut own = BytesMut::new();
        let room = if key.is_some() {
            &mut own
        } else {
            &mut self.headers
        };
        let message = answer(xid, reply, room);
        if let Some(key) = key {
            self.cache.finish(key, message.clone(), now);
        }
        self.reply(origin, Some(message), now);
    }

    fn reply(&self, origin: Origin, message: Option<Message>, now: Time) {
        let mut port = self.ports[origin.port].port.borrow_mut();
        port.reply(origin.conn, origin.token, message, now);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("ports", &self.ports.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Outcome, Programs, Request};

    struct Nothing;

    impl Service for Nothing {
        fn programs(&self) -> &[Programs] {
            &[]
        }

        fn call(&mut self, _: Request) -> Outcome {
            Outcome::Done(Ok(Message::default()))
        }

        fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
            false
        }
    }

    /// A stop that comes during a step wakes the loop, and the step takes the wake-up. Falling
    /// asleep after that, without a look at the stop, would be for ever.
    #[test]
    fn a_stop_during_a_step_is_looked_at_before_sleeping() {
        let mut server = Server::new(Box::new(Nothing), ServerOptions::default()).unwrap();
        let stop = Stop::new();
        stop.register(&server.wake);
        assert!(!server.step());
        stop.stop();
        assert!(server.step());
        assert!(!server.step());
    }
}
