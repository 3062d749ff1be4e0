//! A client's connections, driven by several threads.
//!
//! A [`Runtime`](crate::Runtime) drives connections on the thread of its user: one processor, however
//! many connections there are. [`ClientLoops`] is a transport that contains several others, each with a
//! poll loop on a thread of its own. The connections of a client (`nconnect`) are spread over them.
//! Encoding, retransmission and the user's futures stay on the user's thread; what moves is the work on
//! the connections: headers, transfer plans, memory registration, system calls, and the software device.
//!
//! The user's thread and a loop exchange commands and events through two lists, each with a lock that
//! is held to append to the list or to take all of it. A thread that sleeps is woken, one that works is
//! not. [`ClientTransport::submit`], `cancel` and `close`, which other transports execute at once, are
//! queued as commands here. The interface allows it: a command for a connection that has
//! ended is ignored, as the event that says so is on its way, and events of a connection that its user
//! has closed are dropped.

mod driver;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use onc_rpc::Message;
use rdma::trace::Tracer;
use rdma::{Interest, Poller, Pool, Time};
use rpcrdma_host::{CountedMutex, LockCounter};
use rustix::event::{EventfdFlags, eventfd};

use self::driver::run;
use crate::poll_loop::Wake;
use crate::{
    ClientTransport, ClientTransportEvent, ConnectionId, ConnectionLost, PollSource, ReplyRoom,
};

/// Counts how often the user's thread and a loop contended for the lock of a list.
static CONTENDED: LockCounter = LockCounter::new("lists of a client's loops");

/// A command of the user's thread to a loop.
enum Command<T> {
    Open {
        conn: ConnectionId,
        remote: SocketAddr,
        next_xid: u32,
        tracer: Option<Tracer>,
    },
    Submit {
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: ReplyRoom,
    },
    Cancel {
        conn: ConnectionId,
        xid: u32,
    },
    Reply {
        conn: ConnectionId,
        token: u64,
        message: Option<Message>,
    },
    Close {
        conn: ConnectionId,
    },
    BusyPoll(bool),
    Ask(Box<dyn FnOnce(&T) + Send>),
    Stop,
}

/// The user's thread, as the loops see it.
struct Owner {
    /// Whether the thread sleeps or is about to.
    sleeps: AtomicBool,
    /// Wakes the thread's poll loop. It is edge-triggered, so that it need not be read.
    wake: OwnedFd,
}

impl Owner {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self {
            sleeps: AtomicBool::new(false),
            wake: eventfd(0, flags)?,
        })
    }

    /// Wakes the user's thread if it sleeps. Called after its events were put into their list.
    fn wake(&self) {
        // Sequentially consistent, like the loop's own: either this sees that the thread is about to
        // sleep, or the thread, which looks for events after it has announced that, sees them.
        if self.sleeps.swap(false, Ordering::SeqCst)
            && let Err(error) = rustix::io::write(&self.wake, &1u64.to_ne_bytes())
        {
            tracing::error!(%error, "cannot wake the thread of a client");
        }
    }
}

/// The result of starting a loop: its wake-up handle and its transport's pool, or the error.
type Begun<E> = Result<(Arc<Wake>, Pool), E>;

/// The state that the user's thread and one loop share.
struct Shared<T> {
    /// `None` once the loop has ended: nothing executes commands any more.
    commands: CountedMutex<Option<Vec<Command<T>>>>,
    events: CountedMutex<VecDeque<ClientTransportEvent>>,
    ended: AtomicBool,
    owner: Arc<Owner>,
}

/// One of the loops, as the user's thread sees it.
struct Loop<T> {
    shared: Arc<Shared<T>>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
    /// The number of its connections, established or being established.
    connections: usize,
    /// Whether the connections have been reported as lost because the loop has ended.
    given_up: bool,
}

impl<T> Loop<T> {
    fn is_ended(&self) -> bool {
        self.shared.ended.load(Ordering::SeqCst)
    }

    /// Has the loop execute a command. A loop that has ended drops it.
    fn order(&self, command: Command<T>) {
        if let Some(commands) = &mut *self.shared.commands.lock() {
            commands.push(command);
        }
        self.wake.wake();
    }

    /// Returns whether there is something that [`ClientLoops::poll`] would take.
    fn has_news(&self) -> bool {
        !self.shared.events.lock().is_empty() || (self.is_ended() && !self.given_up)
    }
}

impl<T> Drop for Loop<T> {
    fn drop(&mut self) {
        self.order(Command::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread of a client panicked");
        }
    }
}

/// Where a connection is, and whether it has been established.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    established: bool,
}

/// The connections of a client, spread over transports of which each is driven by a thread of its own.
///
/// The threads end when this is dropped.
pub struct ClientLoops<T> {
    owner: Arc<Owner>,
    loops: Vec<Loop<T>>,
    pool: Pool,
    connections: HashMap<ConnectionId, Place>,
    next_id: u64,
    events: VecDeque<ClientTransportEvent>,
    /// The observer of calls on further connections.
    tracer: Option<Tracer>,
}

impl<T: ClientTransport + 'static> ClientLoops<T> {
    /// Starts `count` threads, at least one, each with the transport that `make` returns there. All
    /// these transports must be able to send from the memory of the first one's pool
    /// ([`ClientTransport::pool`]), which is the case if they share it.
    ///
    /// # Errors
    /// The first error of the operating system or of `make`.
    pub fn start<E>(
        count: usize,
        make: impl Fn() -> Result<T, E> + Clone + Send + 'static,
    ) -> Result<Self, E>
    where
        E: From<io::Error> + Send + 'static,
    {
        let owner = Arc::new(Owner::new()?);
        let mut loops = Vec::new();
        let mut first_pool = None;
        for index in 0..count.max(1) {
            let (started, pool) = start_one(index, make.clone(), &owner)?;
            first_pool.get_or_insert(pool);
            loops.push(started);
        }
        Ok(Self {
            owner,
            pool: first_pool.ok_or_else(|| io::Error::other("a client without loops"))?,
            loops,
            connections: HashMap::new(),
            next_id: 0,
            events: VecDeque::new(),
            tracer: None,
        })
    }

    /// Has each loop answer a question about its transport, on its own thread, and waits for the
    /// answers. A loop that has ended gives none.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(&T) -> R + Clone + Send + 'static,
    ) -> Vec<R> {
        let ask = |asked: &Loop<T>| {
            let (answer, answered) = mpsc::channel();
            let question = question.clone();
            asked.order(Command::Ask(Box::new(move |transport| {
                // Fails only if the thread that asked has panicked.
                drop(answer.send(question(transport)));
            })));
            answered
        };
        // All are asked before the first answer is awaited.
        let answers: Vec<_> = self.loops.iter().map(ask).collect();
        let answers = answers.into_iter();
        answers.filter_map(|answer| answer.recv().ok()).collect()
    }

    /// Returns the number of connections of each loop, established or being established.
    #[must_use]
    pub fn connections(&self) -> Vec<usize> {
        self.loops.iter().map(|each| each.connections).collect()
    }

    fn order(&self, conn: ConnectionId, command: Command<T>) {
        if let Some(place) = self.connections.get(&conn) {
            self.loops[place.index].order(command);
        }
    }

    /// Removes a connection that has ended. Returns whether it was there.
    fn forget(&mut self, conn: ConnectionId) -> bool {
        let place = self.connections.remove(&conn);
        if let Some(place) = place {
            self.loops[place.index].connections -= 1;
        }
        place.is_some()
    }

    /// Reports the connections of a loop that has ended as lost.
    #[cold]
    fn give_up(&mut self, index: usize) {
        self.loops[index].given_up = true;
        let lost = self.connections.iter();
        let lost = lost.filter(|(_, place)| place.index == index);
        let lost: Vec<_> = lost.map(|(conn, at)| (*conn, at.established)).collect();
        for (conn, established) in lost {
            self.lose(conn, established);
        }
    }

    fn lose(&mut self, conn: ConnectionId, was_established: bool) {
        let lost = ConnectionLost {
            reason: "the thread that drives the connection has ended".to_owned(),
            // Another loop can take the next connection.
            retry: self.loops.iter().any(|each| !each.is_ended()),
            busy: false,
            was_established,
        };
        self.events
            .push_back(ClientTransportEvent::Disconnected { conn, lost });
    }
}

/// Starts a loop. Also returns the pool of its transport.
fn start_one<T, E>(
    index: usize,
    make: impl FnOnce() -> Result<T, E> + Send + 'static,
    owner: &Arc<Owner>,
) -> Result<(Loop<T>, Pool), E>
where
    T: ClientTransport + 'static,
    E: From<io::Error> + Send + 'static,
{
    let shared = Arc::new(Shared {
        commands: CountedMutex::new(&CONTENDED, Some(Vec::new())),
        events: CountedMutex::new(&CONTENDED, VecDeque::new()),
        ended: AtomicBool::new(false),
        owner: Arc::clone(owner),
    });
    let (report, started) = mpsc::channel::<Begun<E>>();
    let theirs = Arc::clone(&shared);
    let builder = thread::Builder::new().name(format!("rpc-client-{index}"));
    let thread = builder.spawn(move || run(&theirs, make, &report))?;
    let (wake, pool) = started
        .recv()
        .map_err(|_| io::Error::other("a thread of a client ended as it started"))??;
    let started = Loop {
        shared,
        wake,
        thread: Some(thread),
        connections: 0,
        given_up: false,
    };
    Ok((started, pool))
}

impl<T: ClientTransport + 'static> PollSource for ClientLoops<T> {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        poller.watch(self.owner.wake.as_fd(), 0, Interest::Readable)
    }

    fn ready(&mut self, _local: usize, _closed: bool) {}

    fn poll(&mut self, _now: Time) -> bool {
        self.owner.sleeps.store(false, Ordering::SeqCst);
        for index in 0..self.loops.len() {
            let each = &self.loops[index];
            let ended = each.is_ended() && !each.given_up;
            self.events.append(&mut each.shared.events.lock());
            if ended {
                self.give_up(index);
            }
        }
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.owner.sleeps.store(true, Ordering::SeqCst);
        self.events.is_empty() && !self.loops.iter().any(Loop::has_news)
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, on: bool) {
        for each in &self.loops {
            each.order(Command::BusyPoll(on));
        }
    }
}

impl<T: ClientTransport + 'static> ClientTransport for ClientLoops<T> {
    fn open(&mut self, remote: SocketAddr, next_xid: u32, _now: Time) -> ConnectionId {
        let conn = ConnectionId(self.next_id);
        self.next_id += 1;
        let working = (0..self.loops.len()).filter(|&index| !self.loops[index].is_ended());
        let chosen = working.min_by_key(|&index| self.loops[index].connections);
        let index = chosen.unwrap_or_default();
        self.loops[index].connections += 1;
        let place = Place {
            index,
            established: false,
        };
        self.connections.insert(conn, place);
        match chosen {
            Some(index) => self.loops[index].order(Command::Open {
                conn,
                remote,
                next_xid,
                tracer: self.tracer.clone(),
            }),
            // All have ended.
            None => self.lose(conn, false),
        }
        conn
    }

    fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
    }

    fn submit(
        &mut self,
        conn: ConnectionId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        _now: Time,
    ) {
        let room = room.clone();
        let command = Command::Submit {
            conn,
            xid,
            message,
            room,
        };
        self.order(conn, command);
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        self.order(conn, Command::Cancel { conn, xid });
    }

    fn reply(&mut self, conn: ConnectionId, token: u64, message: Option<Message>, _now: Time) {
        let command = Command::Reply {
            conn,
            token,
            message,
        };
        self.order(conn, command);
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn close(&mut self, conn: ConnectionId) {
        self.order(conn, Command::Close { conn });
        // Its events that are on their way are dropped when they come.
        self.forget(conn);
        self.events.retain(|event| event.conn() != conn);
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        loop {
            let event = self.events.pop_front()?;
            let conn = event.conn();
            let known = match event {
                ClientTransportEvent::Disconnected { .. } => self.forget(conn),
                ClientTransportEvent::Connected(_) => match self.connections.get_mut(&conn) {
                    Some(place) => {
                        place.established = true;
                        true
                    }
                    None => false,
                },
                _ => self.connections.contains_key(&conn),
            };
            if known {
                return Some(event);
            }
        }
    }
}

impl<T> fmt::Debug for ClientLoops<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientLoops")
            .field("loops", &self.loops.len())
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
