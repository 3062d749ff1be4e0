//! The loop that passes messages on.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rdma::trace::Trace;
use rdma::{Clock, Ending, IdMap, Time};
use rpc_transport::{
    Armed, ClientTransportEvent, ConnectionId, PollLoop, ServerTransport, ServerTransportEvent,
    Stop, TransportFailed, Wake,
};
use slab::Slab;

use crate::kinds::{Kinds, OnKind};
use crate::outgoing::Outgoing;
use crate::pair::{Ends, Pair};
use crate::reduction::{RELAYED_ARGUMENTS, ReducerOptions};

mod backward;
mod ends;
mod forward;

/// The maximum number of events of a transport that are handled before those of the others have their turn.
const TURN: usize = 64;
/// The maximum time that clients have to close their connections after the last reply.
const CLOSING: Duration = Duration::from_secs(1);

/// The options of a [`Relay`].
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The address of the server.
    pub server: SocketAddr,
    /// The limits of calls.
    pub reducer: ReducerOptions,
    /// The time for which the rest of a pair is kept when one side has ended: for the answers to calls that were
    /// passed on, or for replies to leave.
    pub linger: Duration,
    /// The time for which a repeated call is held back because the same call before is not answered. Then
    /// the pair ends, so that the client makes its calls anew over another connection.
    pub repeated_after: Duration,
    /// The maximum number of calls of a server to one client that are not answered. With more, the pair
    /// ends.
    pub max_backward: usize,
    /// The maximum number of pairs of all transports. Beyond it, a client that connects replaces the one that
    /// has been longest without a call, so that idle clients do not keep others out: first of those that
    /// have made none, then of the others. One with calls in progress is not replaced; if all are such,
    /// the new one is closed.
    pub max_pairs: usize,
    /// The time after its last call in which a client is not replaced by one from its own host: otherwise one
    /// that wants more connections than there can be would close its own in turn.
    pub fresh: Duration,
    /// Whether connections to a server over TCP come from reserved ports where clients may have these: a server
    /// can ask for that. Without the permission to bind such ports, each attempt is a warning.
    pub reserved_ports: bool,
    /// The observer of calls, at both connections of each pair.
    pub trace: Option<Trace>,
}

impl RelayOptions {
    /// Returns the defaults for a relay to this server.
    #[must_use]
    pub fn new(server: SocketAddr) -> Self {
        Self {
            server,
            reducer: ReducerOptions::default(),
            linger: Duration::from_secs(10),
            repeated_after: Duration::from_secs(60),
            max_backward: 256,
            max_pairs: usize::MAX,
            fresh: Duration::from_millis(500),
            reserved_ports: true,
            trace: None,
        }
    }
}

/// Counters of a relay since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// Clients that connected.
    pub clients: u64,
    /// Calls of clients that were passed on.
    pub calls: u64,
    /// Replies to clients that were passed on.
    pub replies: u64,
    /// Calls of servers that were passed on.
    pub backward_calls: u64,
    /// Replies to servers that were passed on.
    pub backward_replies: u64,
    /// Calls of clients that waited because there was no memory for the reply. Calls queued behind one are not counted.
    pub waited: u64,
    /// Transmissions that were held back because their XID was in use.
    pub repeated: u64,
    /// Calls that could not be passed on, or their replies, and were answered with SYSTEM_ERR.
    pub failed: u64,
    /// Calls that were answered with GARBAGE_ARGS: a chunk of theirs held what no chunk may hold.
    pub misplaced: u64,
    /// Replies that nobody waited for.
    pub stray: u64,
    /// Clients whose connections were closed to make room for others.
    pub replaced: u64,
    /// Clients that were closed at once because there was no room.
    pub full: u64,
    /// Connections closed because a message on them was not a call.
    pub garbage: u64,
}

/// A relay: each client that connects to one of its transports has a connection of its own to the server,
/// and every message that arrives on one of the two is sent on the other.
pub struct Relay {
    options: RelayOptions,
    poll_loop: PollLoop,
    wake: Arc<Wake>,
    incoming: Vec<Rc<RefCell<dyn ServerTransport>>>,
    outgoing: Rc<RefCell<dyn Outgoing>>,
    pairs: Slab<Pair>,
    by_client: Vec<IdMap<ConnectionId, usize>>,
    by_server: IdMap<ConnectionId, usize>,
    /// The pair of each client over TCP, for those that return.
    by_ends: HashMap<Ends, usize>,
    /// Deadlines of pairs.
    timers: BTreeSet<(Time, usize)>,
    /// Pairs whose server is gone and whose client's replies have to leave.
    finishing: Vec<usize>,
    draining: bool,
    stats: RelayStats,
    kinds: Option<Kinds>,
    lost: Option<TransportFailed>,
}

impl Relay {
    /// Creates a relay without transports for clients. Both transports of a message should have the same
    /// memory pool, so that nothing is copied.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(options: RelayOptions, outgoing: Rc<RefCell<dyn Outgoing>>) -> io::Result<Self> {
        Self::with(options, outgoing, PollLoop::new()?)
    }

    /// Creates a relay for a simulation, which never sleeps. The code that sets `clock` calls
    /// [`Relay::step`] and [`Relay::arm`].
    ///
    /// # Errors
    /// The error of the transport.
    pub fn simulated(
        options: RelayOptions,
        outgoing: Rc<RefCell<dyn Outgoing>>,
        clock: Clock,
    ) -> io::Result<Self> {
        Self::with(options, outgoing, PollLoop::simulated(clock))
    }

    fn with(
        options: RelayOptions,
        outgoing: Rc<RefCell<dyn Outgoing>>,
        mut poll_loop: PollLoop,
    ) -> io::Result<Self> {
        poll_loop.add(Rc::clone(&outgoing) as Rc<RefCell<_>>)?;
        Ok(Self {
            wake: Arc::clone(poll_loop.wake()),
            poll_loop,
            incoming: Vec::new(),
            outgoing,
            pairs: Slab::new(),
            by_client: Vec::new(),
            by_server: IdMap::default(),
            by_ends: HashMap::new(),
            timers: BTreeSet::new(),
            finishing: Vec::new(),
            draining: false,
            stats: RelayStats::default(),
            kinds: None,
            lost: None,
            options,
        })
    }

    /// Adds a transport that clients connect to. Calls from server to client pass if it and the transport
    /// to the server allow them.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn listen(&mut self, transport: Rc<RefCell<dyn ServerTransport>>) -> io::Result<()> {
        self.poll_loop
            .add(Rc::clone(&transport) as Rc<RefCell<_>>)?;
        let reduced = RELAYED_ARGUMENTS;
        let mut added = transport.borrow_mut();
        added.set_reduced_arguments(reduced);
        added.set_trace(self.options.trace.clone());
        drop(added);
        self.incoming.push(transport);
        self.by_client.push(IdMap::default());
        Ok(())
    }

    /// Turns busy polling on or off.
    pub fn set_busy_poll(&mut self, on: bool) {
        self.poll_loop.set_busy_poll(on);
    }

    /// Keeps a report on kinds of calls from now on ([`Relay::kinds`]). `told` is called for each kind when it
    /// is first known how a call of it is transferred.
    pub fn explain(&mut self, told: OnKind) {
        self.kinds = Some(Kinds::new(told));
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> RelayStats {
        self.stats
    }

    /// Returns the report on kinds of calls, if one is kept.
    #[must_use]
    pub fn kinds(&self) -> Option<&Kinds> {
        self.kinds.as_ref()
    }

    /// Returns the number of pairs of which a side is connected.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the number of system calls by which its loop has waited for events. Those of transports are in
    /// their counters.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.poll_loop.system_calls()
    }

    /// Passes messages on until `stop` is used.
    ///
    /// # Errors
    /// [`TransportFailed`] if a transport for clients fails for good.
    pub fn run(&mut self, stop: &Stop) -> Result<(), TransportFailed> {
        stop.register(&self.wake);
        while !stop.is_stopped() {
            self.turn()?;
        }
        Ok(())
    }

    /// Ends in order, after [`Relay::run`] has returned: calls that were passed on are answered, no others
    /// are taken, and each client's connection is closed when its last reply has left. Takes at most
    /// `within`. Returns whether all calls were answered.
    ///
    /// # Errors
    /// [`TransportFailed`] if a transport for clients fails for good.
    pub fn drain(&mut self, within: Duration) -> Result<bool, TransportFailed> {
        let mut until = self.poll_loop.clock().now() + within;
        self.begin_drain();
        loop {
            let done = self.pairs.iter().all(|(_, pair)| pair.has_answered());
            let now = self.poll_loop.clock().now();
            if done {
                until = until.min(now + CLOSING);
            }
            let mut devices = self.incoming.iter().map(|each| each.borrow().ending());
            let ended = self.pairs.is_empty() && devices.all(|rest| rest == Ending::Ended);
            if now >= until || ended {
                return Ok(done);
            }
            self.timers.insert((until, usize::MAX));
            self.turn()?;
            self.timers.remove(&(until, usize::MAX));
        }
    }

    fn turn(&mut self) -> Result<(), TransportFailed> {
        let progress = self.step();
        if let Some(lost) = self.lost.take() {
            return Err(lost);
        }
        if !progress {
            let deadline = self.next_deadline();
            self.poll_loop.wait(deadline);
        }
        Ok(())
    }

    /// Does all work that needs no waiting. Returns whether there was any.
    pub fn step(&mut self) -> bool {
        let now = self.poll_loop.clock().now();
        self.poll_loop.turn(now);
        let mut progress = self.wake.take();
        for transport in 0..self.incoming.len() {
            for _ in 0..TURN {
                let Some(event) = self.incoming[transport].borrow_mut().next_event() else {
                    break;
                };
                progress = true;
                self.client_event(transport, event, now);
            }
        }
        for _ in 0..TURN {
            let Some(event) = self.outgoing.borrow_mut().next_event() else {
                break;
            };
            progress = true;
            self.server_event(event, now);
        }
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
            && key != usize::MAX
        {
            self.timers.remove(&(at, key));
            progress = true;
            self.due(key, now);
        }
        if progress {
            self.finish_clients(now);
            self.poll_loop.flush();
        }
        progress
    }

    /// Arms the transports after [`Relay::step`] had no work to do. Returns how long to wait.
    pub fn arm(&mut self) -> Armed {
        let deadline = self.next_deadline();
        self.poll_loop.arm(deadline)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn client_event(&mut self, transport: usize, event: ServerTransportEvent, now: Time) {
        let at = |conn| (transport, conn);
        match event {
            ServerTransportEvent::Connected { conn, peer } => {
                self.connected(at(conn), peer, now);
            }
            ServerTransportEvent::Call {
                conn,
                token,
                message,
            } => self.called(at(conn), token, message, now),
            ServerTransportEvent::Reply { conn, xid, message } => {
                self.client_replied(at(conn), xid, Ok(message), now);
            }
            ServerTransportEvent::Failed { conn, xid, error } => {
                self.client_replied(at(conn), xid, Err(error), now);
            }
            ServerTransportEvent::Disconnected { conn, reason } => {
                self.client_gone(at(conn), &reason, now);
            }
            ServerTransportEvent::Lost { reason } => self.lost = Some(TransportFailed { reason }),
        }
    }

    fn server_event(&mut self, event: ClientTransportEvent, now: Time) {
        match event {
            ClientTransportEvent::Connected(conn) => self.reached(conn),
            ClientTransportEvent::Reply { conn, xid, message } => {
                self.replied(conn, xid, Ok(message), now);
            }
            ClientTransportEvent::Failed { conn, xid, error } => {
                self.replied(conn, xid, Err(error), now);
            }
            ClientTransportEvent::Call {
                conn,
                token,
                message,
            } => self.server_called(conn, token, message, now),
            ClientTransportEvent::Disconnected { conn, lost } => {
                self.server_gone(conn, &lost.reason, now);
            }
        }
    }

    fn key_of(&self, (transport, conn): (usize, ConnectionId)) -> Option<usize> {
        self.by_client.get(transport)?.get(&conn).copied()
    }

    /// Sets the timer of a pair to what it waits for.
    fn set_timer(&mut self, key: usize) {
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let held = [&pair.forward, &pair.backward];
        let held = held.into_iter().filter_map(|calls| calls.held_since());
        let held = held.map(|since| since + self.options.repeated_after);
        let wanted = held.chain(pair.until).min();
        if wanted == pair.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut pair.timer, wanted) {
            self.timers.remove(&(old, key));
        }
        if let Some(at) = wanted {
            self.timers.insert((at, key));
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("pairs", &self.pairs.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
