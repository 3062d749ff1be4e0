//! The RPC server: a poll loop with its transports, its service, and worker threads. Several form a
//! [`ServerGroup`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use onc_rpc::{AcceptStatus, CallHeader, Message};
use rdma::trace::Trace;
use rdma::{Clock, IdMap, Time};
use slab::Slab;

use crate::backchannel::ConnKey;
use crate::call_counts::{CallCounts, Counted};
use crate::dispatch::{Disposition, answer, dispatch, error_of};
use crate::options::HEADER_ROOM;
use crate::poll_loop::{Armed, PollLoop, Wake, earlier};
use crate::reply_cache::{CallKey, DEFAULT_BYTES, DEFAULT_ENTRIES, JobId, Known};
use crate::workers::{Workers, catch};
use crate::{
    Attempted, ConnectionId, ErrorReply, PeerOrigin, Request, ServerTransport,
    ServerTransportEvent, Service, ServiceOutcome, ServiceReply, StatusOf, Stop,
};

mod admission;
mod attempts;
mod callbacks;
mod draining;
mod group;
mod idle;
mod places;
mod statistics;
#[cfg(test)]
mod tests;
mod traced;

pub use admission::{Admission, Place, SPARE};
pub use attempts::after_attempts;
pub use group::ServerGroup;
pub(crate) use places::Use;
pub use statistics::{LoopStatistics, ReplyCacheStatistics};

use attempts::Attempt;
use callbacks::Callbacks;
use group::Member;
use idle::{DEFAULT_IDLE, Peer};

/// The options of a [`Server`].
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The number of worker threads, which execute [`ServiceOutcome::Later`] jobs: of each loop, in a
    /// [`ServerGroup`].
    pub workers: usize,
    /// The maximum number of jobs of each loop, waiting or running. When it is reached, the loop takes no
    /// further calls from its transports, which then hold their clients back.
    pub max_jobs: usize,
    /// The maximum number of cached replies. The default is twice the number of calls that can be
    /// outstanding with the default connections and credits. With fewer, a retransmission after a
    /// long reconnect may be executed a second time.
    pub reply_cache_entries: usize,
    /// The memory limit of the reply cache, bytes.
    pub reply_cache_bytes: usize,
    /// The maximum number of connections of all transports together. A further one takes the place
    /// of another one, or is refused ([`Request::count_as_use`]). Transports and devices should
    /// take [`SPARE`] connections more: those that are being set up, and those that are being
    /// closed to make room.
    pub max_connections: usize,
    /// How long a connection without calls in progress may go without a new call before it is
    /// closed. Its client reconnects with its next call.
    pub idle_timeout: Duration,
    /// Whether the loop polls all the time instead of sleeping.
    pub busy_poll: bool,
    /// The way in which results begin, if the calls to the service are to be counted by procedure and
    /// result ([`ServerGroup::statistics`]).
    pub count_calls: Option<StatusOf>,
    /// Whether services may call clients ([`Request::backchannel`]). The transports must allow that
    /// too ([`crate::rdma::CallbackOptions`], [`crate::TcpOptions::callbacks`]).
    pub callbacks: bool,
    /// The observer of calls, if they are traced.
    pub trace: Option<Trace>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            workers: 4,
            max_jobs: 1024,
            reply_cache_entries: DEFAULT_ENTRIES,
            reply_cache_bytes: DEFAULT_BYTES,
            // Transports and devices take 1,024 by default. Beyond the limit, some must get in to take
            // the place of others.
            max_connections: 1024 - SPARE,
            idle_timeout: DEFAULT_IDLE,
            busy_poll: false,
            count_calls: None,
            callbacks: false,
            trace: None,
        }
    }
}

/// Counters of a server since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Calls that arrived, of all kinds.
    pub calls: u64,
    /// Calls answered without the service: unknown program, bad credential and so on.
    pub refused: u64,
    /// Retransmissions answered from the reply cache.
    pub replayed: u64,
    /// Retransmissions of calls that were in progress.
    pub joined: u64,
    /// Calls passed to workers.
    pub jobs: u64,
    /// Connections closed because a message on them was not a call.
    pub garbage: u64,
    /// Connections closed for idleness.
    pub idle: u64,
    /// Connections closed to make room for others.
    pub made_room: u64,
    /// Calls to clients that were started.
    pub callbacks: u64,
    /// Calls to clients that were answered with results.
    pub callback_replies: u64,
}

/// A transport of a server failed for good, for example because its device was removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a transport failed: {reason}")]
pub struct TransportFailed {
    /// The reason.
    pub reason: String,
}

/// The maximum number of events of a transport that are handled before those of the others have their turn.
const TURN: usize = 16;

/// The transmission that a reply answers: connection and call id.
#[derive(Clone, Copy, Debug)]
struct Origin {
    transport: usize,
    conn: ConnectionId,
    token: u64,
}

/// A call that is executed: by its service at once, by a worker, or by its attempt.
#[derive(Clone, Copy)]
struct Running {
    origin: Origin,
    xid: u32,
    key: Option<CallKey>,
    counted: Counted,
}

struct ServedTransport {
    transport: Rc<RefCell<dyn ServerTransport>>,
    admission: Admission,
    peers: IdMap<ConnectionId, Peer>,
}

/// An RPC server, or one loop of several ([`ServerGroup`]): executes the calls that arrive on its
/// transports with its service.
pub struct Server {
    service: Box<dyn Service>,
    options: ServerOptions,
    poll_loop: PollLoop,
    wake: Arc<Wake>,
    transports: Vec<ServedTransport>,
    /// Whether a transport needs this thread to keep its credentials.
    keeps_credentials: bool,
    /// The transport whose events are taken first in the next step.
    next_transport: usize,
    workers: Workers,
    running: Slab<Running>,
    /// The attempts of this turn; empty between steps.
    attempts: Vec<Attempt>,
    /// The state that this loop shares with the others of its group.
    member: Member,
    /// Retransmissions of calls that other loops of the group execute, which wait for the reply.
    waiting: Slab<Origin>,
    stats: ServerStats,
    /// The calls to the service, if they are counted.
    counts: Option<Box<CallCounts>>,
    /// A failed transport that [`Server::run`] has not reported yet.
    lost: Option<TransportFailed>,
    /// Memory for the headers of further replies, with their results if these are short: one allocation
    /// serves many. Empty between replies.
    headers: BytesMut,
    /// The time of the next search for idle connections.
    idle_at: Option<Time>,
    /// Outstanding calls to clients, if callbacks are enabled.
    callbacks: Option<Callbacks>,
    /// Calls that were taken from their transports although the job limit was reached. Jobs may
    /// wait for replies to callbacks, which arrive behind these calls. With the times of their arrival.
    held: VecDeque<(Origin, Message, Time)>,
    /// Whether no further calls begin ([`Server::drain`]).
    draining: bool,
    /// Reused to save allocations; empty between steps.
    done: VecDeque<(usize, ServiceReply)>,
}

impl Server {
    /// Creates a server without transports and starts its worker threads.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(service: Box<dyn Service>, options: ServerOptions) -> io::Result<Self> {
        let group = ServerGroup::new(1, &options);
        Self::in_group(&group, 0, service, options)
    }

    /// Creates loop `index` of a group, without transports, and starts its worker threads. The
    /// loops of a group must have equal options.
    ///
    /// # Errors
    /// The error of the operating system.
    ///
    /// # Panics
    /// If the group has no such loop, or that was already created.
    pub fn in_group(
        group: &ServerGroup,
        index: usize,
        service: Box<dyn Service>,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let poll_loop = PollLoop::new()?;
        let workers = Workers::new(options.workers, Arc::clone(poll_loop.wake()))?;
        Ok(Self::with(
            group, index, service, options, poll_loop, workers,
        ))
    }

    /// Creates a server for a simulation: it has no threads and never sleeps. The code that sets
    /// `clock` calls [`Server::step`], [`Server::arm`] and [`Server::run_job`].
    #[must_use]
    pub fn simulated(service: Box<dyn Service>, options: ServerOptions, clock: Clock) -> Self {
        let group = ServerGroup::new(1, &options);
        Self::simulated_in_group(&group, 0, service, options, clock)
    }

    /// Creates loop `index` of a group for a simulation; see [`Server::simulated`].
    ///
    /// # Panics
    /// If the group has no such loop, or that was already created.
    #[must_use]
    pub fn simulated_in_group(
        group: &ServerGroup,
        index: usize,
        service: Box<dyn Service>,
        options: ServerOptions,
        clock: Clock,
    ) -> Self {
        let poll_loop = PollLoop::simulated(clock);
        let workers = Workers::without_threads(Arc::clone(poll_loop.wake()));
        Self::with(group, index, service, options, poll_loop, workers)
    }

    fn with(
        group: &ServerGroup,
        index: usize,
        service: Box<dyn Service>,
        options: ServerOptions,
        mut poll_loop: PollLoop,
        workers: Workers,
    ) -> Self {
        poll_loop.set_busy_poll(options.busy_poll);
        let wake = Arc::clone(poll_loop.wake());
        let callbacks = options.callbacks.then(|| Callbacks::new(Arc::clone(&wake)));
        let counts = options.count_calls.map(CallCounts::new).map(Box::new);
        Self {
            callbacks,
            held: VecDeque::new(),
            workers,
            member: Member::join(group, index, &wake),
            waiting: Slab::new(),
            service,
            options,
            poll_loop,
            wake,
            transports: Vec::new(),
            keeps_credentials: false,
            next_transport: 0,
            running: Slab::new(),
            attempts: Vec::new(),
            stats: ServerStats::default(),
            counts,
            lost: None,
            headers: BytesMut::with_capacity(HEADER_ROOM),
            idle_at: None,
            draining: false,
            done: VecDeque::new(),
        }
    }

    /// Adds a transport. The caller may keep a handle to the transport to read its counters.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn add_transport(&mut self, transport: Rc<RefCell<dyn ServerTransport>>) -> io::Result<()> {
        self.poll_loop
            .add(Rc::clone(&transport) as Rc<RefCell<_>>)?;
        let at = self.transports.len();
        let admission = Admission::new(&self.member.shared, self.member.index, at);
        let reduced = self.service.reduced_arguments();
        let mut added = transport.borrow_mut();
        added.set_admission(admission.clone());
        added.set_reduced_arguments(reduced);
        added.set_trace(self.options.trace.clone());
        self.keeps_credentials |= added.keeps_credentials();
        drop(added);
        self.transports.push(ServedTransport {
            transport,
            admission,
            peers: IdMap::default(),
        });
        Ok(())
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Returns the number of system calls by which its loop has waited for events. Those of transports are in
    /// their counters.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.poll_loop.system_calls()
    }

    /// Serves until `stop` is used. Calls in progress at that time are not answered, unless
    /// [`Server::drain`] follows; their clients retransmit them to the next server.
    ///
    /// # Errors
    /// [`TransportFailed`] if a transport fails for good. The server does not continue without it.
    pub fn run(&mut self, stop: &Stop) -> Result<(), TransportFailed> {
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

    /// Does all work that needs no waiting. Returns whether there was any.
    pub fn step(&mut self) -> bool {
        let now = self.poll_loop.clock().now();
        self.poll_loop.turn(now);
        if let Some(counts) = &mut self.counts {
            // The last turn has ended, and its replies have left.
            counts.end_turn(now);
        }
        let mut progress = false;
        if self.wake.take() {
            // Progress even if no job ended: the wake-up may come from a Stop, which must be
            // checked before sleeping.
            progress = true;
            self.answer_questions();
            self.finish_jobs(now);
            self.take_handed(now);
            self.make_room();
            self.start_callbacks(now);
        }
        if self.callbacks.is_some() {
            self.end_overdue(now);
        }
        while !self.is_full()
            && let Some((origin, message, arrived)) = self.held.pop_front()
        {
            progress = true;
            self.call_ended(origin, now);
            self.call(origin, message, arrived, now);
            self.run_full_batch(now);
        }
        progress |= self.take_events(now);
        if !self.attempts.is_empty() {
            self.run_attempts(now);
        }
        if progress {
            // All replies of this step leave together.
            self.poll_loop.flush();
        }
        // Last, so that no connection counts as idle whose calls had to wait.
        if self.idle_at.is_some_and(|at| at <= now) {
            self.close_idle(now);
        }
        progress
    }

    /// Handles the events of the transports until there are no more, or the job limit is reached. The
    /// transports have turns of at most [`TURN`] events, and the one after the last goes first in the next
    /// step: otherwise one whose clients always have calls would take every job that becomes free. Returns
    /// whether there was an event.
    fn take_events(&mut self, now: Time) -> bool {
        let count = self.transports.len();
        let (mut progress, mut empty) = (false, 0);
        while empty < count && !self.takes_nothing() {
            let at = self.next_transport;
            self.next_transport = (at + 1) % count;
            empty += 1;
            for handled in 1..=TURN {
                if self.takes_nothing() {
                    break;
                }
                let Some(event) = self.next_event(at) else {
                    break;
                };
                progress = true;
                self.handle(at, event, now);
                self.run_full_batch(now);
                if handled == TURN {
                    // There may be more.
                    empty = 0;
                }
            }
        }
        progress
    }

    /// Arms the transports after [`Server::step`] had no work to do. Returns how long to wait.
    pub fn arm(&mut self) -> Armed {
        match self.takes_nothing() && !self.wake.is_woken() {
            // Events of the transports wait until a job has ended.
            true => self.poll_loop.arm_without_owner(),
            false => self.poll_loop.arm(self.next_deadline()),
        }
    }

    /// Runs the oldest waiting job on the calling thread, for a server without worker threads. Its
    /// reply is sent in the next step. Returns false if no job waits.
    pub fn run_job(&mut self) -> bool {
        self.workers.run_one()
    }

    /// Returns whether something outside of the loop has made work for [`Server::step`] since the
    /// last one: a job has ended, another loop of the group has handed over a reply, or a service
    /// calls a client. For a simulation, which decides when a woken loop has its turn.
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.wake.is_woken()
    }

    /// Returns the number of retransmissions that wait for the replies of calls that other loops of
    /// the group execute.
    #[must_use]
    pub fn waiting_for_others(&self) -> usize {
        self.waiting.len()
    }

    fn is_full(&self) -> bool {
        self.running.len() >= self.options.max_jobs.max(1)
    }

    /// Returns whether the server must not poll events of its transports, because it has too many
    /// jobs. While callbacks are outstanding, jobs may wait for their replies, so events are still
    /// taken and new calls are held.
    fn takes_nothing(&self) -> bool {
        self.is_full()
            && !self.draining
            && self
                .callbacks
                .as_ref()
                .is_none_or(|calls| calls.pending() == 0)
    }

    fn next_deadline(&self) -> Option<Time> {
        let callbacks = self.callbacks.as_ref();
        earlier(self.idle_at, callbacks.and_then(Callbacks::next_deadline))
    }

    fn next_event(&self, transport: usize) -> Option<ServerTransportEvent> {
        self.transports[transport]
            .transport
            .borrow_mut()
            .next_event()
    }

    fn handle(&mut self, transport: usize, event: ServerTransportEvent, now: Time) {
        match event {
            ServerTransportEvent::Connected { conn, peer } => self.up(transport, conn, peer, now),
            ServerTransportEvent::Disconnected { conn, reason } => {
                if let Some(peer) = self.forget((transport, conn), &reason) {
                    tracing::info!(peer = %peer.address, reason, "client gone");
                }
            }
            ServerTransportEvent::Reply { conn, xid, message } => {
                self.callback_ended((transport, conn), xid, Ok(message), now);
            }
            ServerTransportEvent::Failed { conn, xid, error } => {
                self.callback_ended((transport, conn), xid, Err(error), now);
            }
            ServerTransportEvent::Call {
                conn,
                token,
                message,
            } => {
                let origin = Origin {
                    transport,
                    conn,
                    token,
                };
                match self.is_full() {
                    _ if self.draining => self.drop_call(origin, now),
                    true => {
                        self.call_begins(origin);
                        self.held.push_back((origin, message, now));
                    }
                    false => self.call(origin, message, now, now),
                }
            }
            ServerTransportEvent::Lost { reason } => self.lost = Some(TransportFailed { reason }),
        }
    }

    #[cold]
    fn up(&mut self, transport: usize, conn: ConnectionId, peer: SocketAddr, now: Time) {
        let served = &self.transports[transport];
        // A connection that was accepted before the server began to end has its place.
        let place = served.transport.borrow_mut().take_place(conn);
        let Some(place) = place.or_else(|| served.admission.admit(peer.ip(), now)) else {
            match served.admission.is_closed() {
                true => tracing::debug!(%peer, "this server is ending: closing a new connection"),
                false => {
                    rpcrdma_host::limited!(warn, %peer, "too many connections: one more was closed");
                }
            }
            served.transport.borrow_mut().close(conn);
            return;
        };
        place.belongs_to(conn);
        let listener = served.transport.borrow();
        let carrier = || listener.carrier(conn);
        let origin = PeerOrigin::find(listener.is_rdma(), carrier);
        let traced = traced::connection(&*listener, conn, peer, self.options.trace.as_ref());
        drop(listener);
        tracing::info!(%peer, %origin, "client connected");
        let known = Peer {
            address: peer,
            origin,
            last_call: now,
            callee: self.callee((transport, conn), peer),
            traced,
            place,
        };
        self.transports[transport].peers.insert(conn, known);
        self.expect_idle(now);
        // At once, so that the next connection of a crowd finds room as well.
        self.make_room();
    }

    /// Closes the connections of this loop that were told to make room for others.
    #[cold]
    fn make_room(&mut self) {
        for (transport, conn) in self.member.making_room() {
            let served = &self.transports[transport];
            if let Some(peer) = served.peers.get(&conn) {
                if peer.place.standing().is_busy() {
                    served.admission.tell_another(&peer.place);
                    continue;
                }
                let peer = peer.address;
                rpcrdma_host::limited!(info, %peer, "at the limit on connections: closing one to make room");
                self.stats.made_room += 1;
            }
            self.close((transport, conn), "closed to make room for another client");
        }
    }

    /// Removes a connection that has ended or is about to.
    #[cold]
    fn forget(&mut self, place: ConnKey, reason: &str) -> Option<Peer> {
        let (transport, conn) = place;
        // Its calls would be ignored when there is a job for them. Until then, they would fill the memory if a
        // client connects again and again.
        self.held
            .retain(|(origin, ..)| (origin.transport, origin.conn) != place);
        let peer = self.transports[transport].peers.remove(&conn)?;
        if let Some(callee) = &peer.callee {
            callee.disconnected();
            self.end_callbacks(place, reason);
        }
        Some(peer)
    }

    /// Closes a connection.
    fn close(&mut self, place: ConnKey, reason: &str) {
        let (transport, conn) = place;
        self.forget(place, reason);
        self.transports[transport]
            .transport
            .borrow_mut()
            .close(conn);
    }

    /// Executes or refuses a call that the loop took at `arrived`.
    fn call(&mut self, origin: Origin, message: Message, arrived: Time, now: Time) {
        let Some(peer) = self.transports[origin.transport]
            .peers
            .get_mut(&origin.conn)
        else {
            return;
        };
        peer.last_call = now;
        let used = Use::new(peer.place.standing(), now);
        let traced = peer.traced.clone();
        let (peer, from, callee) = (peer.address, peer.origin, peer.callee.clone());
        self.stats.calls += 1;
        match dispatch(&message, self.service.programs()) {
            Disposition::Execute {
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
                    let xid = header.xid;
                    let counted = match &mut self.counts {
                        Some(counts) => counts.begin((prog, vers, proc), arrived),
                        None => Counted::NOT,
                    };
                    let pool = self.transports[origin.transport]
                        .transport
                        .borrow()
                        .pool(origin.conn);
                    let mut request = Request::new(peer, header, pool, message, args);
                    request.origin = from;
                    request.set_server(used, callee, self.keeps_credentials);
                    let call = Running {
                        origin,
                        xid,
                        key,
                        counted,
                    };
                    match traced {
                        None => self.execute(&call, request, now),
                        Some(traced) => self.execute_traced(&call, request, &traced, now),
                    }
                }
            }
            other => self.refuse(origin, peer, other, now),
        }
    }

    /// Answers or drops a call that is not executed.
    #[cold]
    fn refuse(&mut self, origin: Origin, peer: SocketAddr, disposition: Disposition, now: Time) {
        match disposition {
            Disposition::Execute { .. } => {}
            Disposition::Answer(header) => {
                let error = error_of(&header.body);
                tracing::debug!(%peer, xid = header.xid, answer = %error, "call refused");
                self.stats.refused += 1;
                if let Some(counts) = &mut self.counts {
                    counts.refused(&error);
                }
                self.reply(origin, Some(Message::from_payload(header.encode())), now);
            }
            Disposition::Disconnect(reason) => {
                rpcrdma_host::limited!(warn, %peer, reason, "not an RPC call: closing the connection");
                self.stats.garbage += 1;
                self.close(
                    (origin.transport, origin.conn),
                    "a message on it was not a call",
                );
            }
        }
    }

    /// Returns whether a call must be executed. A retransmission is answered from the reply cache.
    /// If the call is still in progress, its reply will go to the retransmission instead of the
    /// first transmission: the retransmission came over a newer connection, and the earlier one may
    /// be dead.
    #[inline(never)]
    fn is_new(&mut self, key: CallKey, origin: Origin, now: Time) -> bool {
        let asking = JobId {
            member: self.member.index,
            job: self.running.vacant_key(),
        };
        let ticket = self.waiting.vacant_key();
        match self.member.shared.cache.look_up(key, asking, ticket, now) {
            Known::New => true,
            Known::Done(reply) => {
                self.stats.replayed += 1;
                self.reply(origin, Some(reply), now);
                false
            }
            Known::Elsewhere(earlier) => {
                self.stats.joined += 1;
                // First of all, because the cache was told the vacant key: answering the earlier transmission
                // makes another key vacant.
                self.waiting.insert(origin);
                self.call_begins(origin);
                if let Some(earlier) = earlier {
                    self.answer_waiter(earlier, None, now);
                }
                false
            }
            Known::InProgress(job, earlier) => {
                self.stats.joined += 1;
                if let Some(earlier) = earlier {
                    self.answer_waiter(earlier, None, now);
                }
                if let Some(running) = self.running.get_mut(job) {
                    let earlier = std::mem::replace(&mut running.origin, origin);
                    self.call_begins(origin);
                    self.call_ended(earlier, now);
                    self.reply(earlier, None, now);
                }
                false
            }
        }
    }

    /// Executes a call: at once, at the end of this turn, or on a worker thread.
    fn execute(&mut self, call: &Running, request: Request, now: Time) {
        let outcome = self.ask_service(request);
        self.act_on(outcome, call, now);
    }

    fn ask_service(&mut self, request: Request) -> ServiceOutcome {
        let service = &mut self.service;
        catch(|| Ok(service.call(request)))
            .unwrap_or_else(|denial| ServiceOutcome::Done(Err(denial)))
    }

    /// Answers a call, or has the rest of its work done, as its service wants.
    #[inline]
    fn act_on(&mut self, outcome: ServiceOutcome, call: &Running, now: Time) {
        match outcome {
            ServiceOutcome::Done(reply) => self.finish(call, reply, now),
            ServiceOutcome::Later(job) => {
                self.stats.jobs += 1;
                let id = self.begin(*call);
                self.workers.submit(id, job);
            }
            ServiceOutcome::Attempt(attempt) => {
                let id = self.begin(*call);
                self.attempts.push((id, attempt));
            }
        }
    }

    /// Records a call that is answered later. Returns its index.
    fn begin(&mut self, call: Running) -> usize {
        self.call_begins(call.origin);
        self.running.insert(call)
    }

    #[inline(never)]
    fn finish_jobs(&mut self, now: Time) {
        let mut done = std::mem::take(&mut self.done);
        self.workers.take_done(&mut done);
        self.finish_all(&mut done, now);
        self.done = done;
    }

    /// Answers calls that have ended, and leaves `done` empty.
    fn finish_all(&mut self, done: &mut VecDeque<(usize, ServiceReply)>, now: Time) {
        for (id, reply) in done.drain(..) {
            if let Some(call) = self.running.try_remove(id) {
                self.call_ended(call.origin, now);
                self.finish(&call, reply, now);
            }
        }
    }

    fn peer_of(&mut self, origin: Origin) -> Option<&mut Peer> {
        let peers = &mut self.transports[origin.transport].peers;
        peers.get_mut(&origin.conn)
    }

    /// Counts a call in progress of a connection, which does not have to make room, and is not idle,
    /// until it has ended.
    fn call_begins(&mut self, origin: Origin) {
        if let Some(peer) = self.peer_of(origin) {
            peer.place.standing().call_begins();
        }
    }

    fn call_ended(&mut self, origin: Origin, now: Time) {
        if let Some(peer) = self.peer_of(origin) {
            peer.last_call = now;
            peer.place.standing().call_ended();
        }
    }

    fn finish(&mut self, call: &Running, reply: ServiceReply, now: Time) {
        let Running {
            origin,
            xid,
            key,
            counted,
        } = call;
        let (origin, xid) = (*origin, *xid);
        if self.options.trace.is_some() {
            self.trace_end(origin, xid);
        }
        if let Some(counts) = &mut self.counts {
            counts.answered(*counted, &reply);
        }
        let Some(key) = *key else {
            let message = answer(xid, reply, &mut self.headers);
            return self.reply(origin, Some(message), now);
        };
        let changed = has_changed(&*self.service, &key, &reply);
        // A cached reply must not keep alive the memory that it would share with the headers of
        // other replies.
        let message = answer(xid, reply, &mut BytesMut::new());
        let cache = &self.member.shared.cache;
        match cache.finish(key, message.clone(), changed, now) {
            None => self.reply(origin, Some(message), now),
            Some(waiter) => {
                self.reply(origin, None, now);
                self.answer_waiter(waiter, Some(message), now);
            }
        }
    }

    fn reply(&self, origin: Origin, message: Option<Message>, now: Time) {
        let mut transport = self.transports[origin.transport].transport.borrow_mut();
        transport.reply(origin.conn, origin.token, message, now);
    }
}

/// Returns whether a call that ended with this reply has changed anything, as far as is known.
fn has_changed(service: &dyn Service, key: &CallKey, reply: &ServiceReply) -> bool {
    match reply {
        Ok(results) => {
            let (prog, vers, proc) = key.procedure();
            service.has_changed(prog, vers, proc, results)
        }
        Err(error) => matches!(error, ErrorReply::Accepted(AcceptStatus::SystemErr)),
    }
}

impl Drop for Server {
    /// Leaves no call in the reply cache that is in progress: a retransmission at another loop would
    /// wait for its reply for ever.
    fn drop(&mut self) {
        // Ends the callbacks that jobs wait for: the jobs are waited for next.
        self.callbacks = None;
        self.leave_calls();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("transports", &self.transports.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
