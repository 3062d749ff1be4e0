//! Fuzzes the RPC client over a scripted transport: connections are established late, break or are
//! refused, replies are missing, duplicated, invalid or for other calls, and the server makes
//! calls.
//!
//! Every call ends once, and if with results, with its own. Nothing is sent on a connection that is
//! not up, no XID is sent twice on one connection, deadlines are in the future, and nothing is left
//! at the end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use onc_rpc::{Decoder, Encoder, Message, REPLY};
use rdma::{Clock, Poller, Pool, Time};
use rpc_transport::{
    Call, CallError, CallFuture, Client, ClientOptions, ClientTransport, ClientTransportEvent,
    ConnectionId, ConnectionLost, PollSource, ProgramVersions, Reply, ReplyRoom, Request, Retry,
    Runtime, Service, ServiceOutcome, Stepped,
};

/// The maximum number of calls in a script.
const MOST_CALLS: usize = 32;
/// The maximum number of turns after which a client must be idle.
const TURNS: u32 = 1000;
/// The maximum number of deadlines until every call has ended if the server answers all of them.
const ROUNDS: usize = 600;
/// The number of the program that the client serves.
const PROGRAM: u32 = 0x4000_8168;

/// The input of one run.
#[derive(Arbitrary, Debug)]
pub struct Script {
    connections: u8,
    hard: bool,
    retransmissions: u8,
    timeout: u8,
    callbacks: bool,
    events: Vec<Event>,
}

#[derive(Arbitrary, Debug)]
enum Event {
    Call,
    /// The caller drops the future of a call.
    Drop(u8),
    Up(u8),
    Down {
        which: u8,
        retry: bool,
    },
    Reply {
        which: u8,
        how: Answer,
    },
    Failed(u8),
    Called {
        which: u8,
        words: [u8; 7],
        len: u8,
    },
    Wait(u16),
    /// Time passes until the next deadline.
    Due,
}

#[derive(Arbitrary, Debug)]
enum Answer {
    Right,
    Twice,
    /// A reply with the results of one call and the XID of another.
    Other,
    Denied(u8),
    Words([u8; 6]),
    Nothing,
}

/// A connection of the scripted transport.
#[derive(Default)]
struct Connection {
    /// Whether the RPC client has been told that the connection is up.
    up: bool,
    /// The outstanding calls by XID, each with its number.
    calls: BTreeMap<u32, u32>,
    /// All XIDs that were sent on it.
    sent: BTreeSet<u32>,
    /// The tokens of the server's outstanding calls.
    callbacks: BTreeSet<u64>,
}

struct Port {
    connections: BTreeMap<ConnectionId, Connection>,
    events: VecDeque<ClientTransportEvent>,
    next: u64,
    pool: Pool,
}

fn conn_of(event: &ClientTransportEvent) -> ConnectionId {
    match event {
        ClientTransportEvent::Connected(conn)
        | ClientTransportEvent::Reply { conn, .. }
        | ClientTransportEvent::Failed { conn, .. }
        | ClientTransportEvent::Call { conn, .. }
        | ClientTransportEvent::Disconnected { conn, .. } => *conn,
    }
}

impl PollSource for Port {
    fn attach(&mut self, _: Poller) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _: usize, _: bool) {}

    fn poll(&mut self, _: Time) -> bool {
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.events.is_empty()
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn set_busy_poll(&mut self, _: bool) {}
}

impl ClientTransport for Port {
    fn open(&mut self, _: SocketAddr, _: u32, _: Time) -> ConnectionId {
        let conn = ConnectionId(self.next);
        self.next += 1;
        self.connections.insert(conn, Connection::default());
        conn
    }

    fn submit(&mut self, conn: ConnectionId, xid: u32, message: Message, _: &ReplyRoom, _: Time) {
        let connection = self.connections.get_mut(&conn).expect("one that there is");
        assert!(connection.up, "sent before it was up");
        assert_eq!(onc_rpc::peek_xid(&message), Some(xid));
        assert!(
            connection.sent.insert(xid),
            "sent twice over one connection"
        );
        let mut words = Decoder::new(&message);
        let word = std::iter::from_fn(|| words.u32().ok()).last();
        connection.calls.insert(xid, word.unwrap_or_default());
    }

    fn cancel(&mut self, conn: ConnectionId, xid: u32) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.calls.remove(&xid);
        }
    }

    fn reply(&mut self, conn: ConnectionId, token: u64, _: Option<Message>, _: Time) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            assert!(connection.callbacks.remove(&token), "answered twice");
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn close(&mut self, conn: ConnectionId) {
        self.events.retain(|event| conn_of(event) != conn);
        assert!(self.connections.remove(&conn).is_some(), "closed twice");
    }

    fn next_event(&mut self) -> Option<ClientTransportEvent> {
        let event = self.events.pop_front()?;
        match &event {
            ClientTransportEvent::Connected(conn) => {
                if let Some(connection) = self.connections.get_mut(conn) {
                    connection.up = true;
                }
            }
            ClientTransportEvent::Disconnected { conn, .. } => drop(self.connections.remove(conn)),
            _ => {}
        }
        Some(event)
    }
}

/// The client's service for calls of the server.
struct Nothing;

impl Service for Nothing {
    fn programs(&self) -> &[ProgramVersions] {
        &[ProgramVersions {
            prog: PROGRAM,
            low: 1,
            high: 1,
        }]
    }

    fn call(&mut self, _: Request) -> ServiceOutcome {
        ServiceOutcome::Done(Ok(Message::default()))
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Client, CallError>>>>;

/// The client's user, which connects and waits for its calls, each identified by a number.
struct User {
    connecting: Option<Connecting>,
    client: Option<Client>,
    refused: bool,
    calls: BTreeMap<u32, CallFuture>,
    made: u32,
    /// Whether replies may have carried results of other calls.
    misled: bool,
}

impl Future for User {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(connecting) = &mut self.connecting
            && let Poll::Ready(result) = connecting.as_mut().poll(context)
        {
            self.connecting = None;
            self.refused = result.is_err();
            self.client = result.ok();
        }
        let misled = self.misled;
        self.calls.retain(|number, call| {
            let Poll::Ready(result) = Pin::new(call).poll(context) else {
                return true;
            };
            if let Ok(reply) = result {
                let own = is_own(&reply, *number);
                assert!(own || misled, "call {number} got another's results");
            }
            false
        });
        Poll::Pending
    }
}

fn is_own(reply: &Reply, number: u32) -> bool {
    reply.results().u32() == Ok(number)
}

struct Run {
    clock: Clock,
    runtime: Runtime,
    port: Rc<RefCell<Port>>,
    user: Pin<Box<User>>,
    due: Option<Time>,
}

/// Executes a script and checks the result.
///
/// # Panics
/// A check failed, which is a finding.
pub fn run(script: Script) {
    let clock = Clock::simulated();
    let runtime = Runtime::simulated(clock.clone(), 1);
    let port = Rc::new(RefCell::new(Port {
        connections: BTreeMap::new(),
        events: VecDeque::new(),
        next: 1,
        pool: Pool::new(1 << 20),
    }));
    let millis = |n: u64| Duration::from_millis(n);
    let options = ClientOptions {
        nconnect: usize::from(script.connections % 4) + 1,
        timeout: millis(u64::from(script.timeout) * 4 + 10),
        retry: match script.hard {
            true => Retry::Hard,
            false => Retry::Soft {
                retransmissions: u32::from(script.retransmissions % 4),
            },
        },
        give_up_after: millis(2000),
        first_reply_within: millis(900),
        connect_timeout: millis(300),
        backoff_min: millis(10),
        backoff_max: millis(80),
        ..ClientOptions::default()
    };
    let connecting: Connecting = {
        let (runtime, port) = (runtime.clone(), Rc::clone(&port));
        let remote = SocketAddr::from(([10, 0, 0, 1], 2049));
        Box::pin(async move {
            match script.callbacks {
                false => Client::connect(&runtime, remote, port, options).await,
                true => {
                    let service = Box::new(Nothing);
                    Client::connect_with_callbacks(&runtime, remote, port, options, service).await
                }
            }
        })
    };
    let mut run = Run {
        clock,
        runtime,
        port,
        user: Box::pin(User {
            connecting: Some(connecting),
            client: None,
            refused: false,
            calls: BTreeMap::new(),
            made: 0,
            misled: false,
        }),
        due: None,
    };
    run.runtime.wake();
    run.step();
    for event in script.events {
        run.happen(event);
        run.step();
    }
    run.finish();
}

impl Run {
    /// Runs the client until it is idle.
    fn step(&mut self) {
        match self.runtime.step(self.user.as_mut(), TURNS) {
            Stepped::Idle(due) => {
                assert!(
                    due.is_none_or(|due| due > self.clock.now()),
                    "due in the past"
                );
                let waits = self.user.connecting.is_some() || !self.user.calls.is_empty();
                assert!(due.is_some() || !waits, "it waits, and nothing is due");
                self.due = due;
            }
            Stepped::Busy => panic!("it never rests"),
            Stepped::Done(()) => unreachable!("the user stays"),
        }
    }

    fn conn(&self, which: u8) -> Option<ConnectionId> {
        let port = self.port.borrow();
        let at = usize::from(which).checked_rem(port.connections.len())?;
        port.connections.keys().nth(at).copied()
    }

    /// Chooses a sent call and, unless `keep`, removes it from its connection. Returns the
    /// connection, its XID and its number.
    fn sent(&self, which: u8, keep: bool) -> Option<(ConnectionId, u32, u32)> {
        let mut port = self.port.borrow_mut();
        let all = port.connections.iter().flat_map(|(conn, connection)| {
            let calls = connection.calls.iter();
            calls.map(|(xid, number)| (*conn, *xid, *number))
        });
        let all: Vec<_> = all.collect();
        let found = *all.get(usize::from(which).checked_rem(all.len())?)?;
        if !keep && let Some(connection) = port.connections.get_mut(&found.0) {
            connection.calls.remove(&found.1);
        }
        Some(found)
    }

    fn tell(&mut self, event: ClientTransportEvent) {
        self.port.borrow_mut().events.push_back(event);
        // As a device would.
        self.runtime.wake();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call => self.call(),
            Event::Drop(which) => {
                let user = &mut *self.user;
                let at = usize::from(which).checked_rem(user.calls.len());
                let number = at.and_then(|at| user.calls.keys().nth(at).copied());
                drop(number.and_then(|number| user.calls.remove(&number)));
            }
            Event::Up(which) => {
                let conn = self.conn(which);
                let is_new = |conn: &ConnectionId| {
                    let port = self.port.borrow();
                    let told = port.events.iter().any(|event| conn_of(event) == *conn);
                    !told && port.connections.get(conn).is_some_and(|known| !known.up)
                };
                if let Some(conn) = conn.filter(is_new) {
                    self.tell(ClientTransportEvent::Connected(conn));
                }
            }
            Event::Down { which, retry } => {
                if let Some(conn) = self.conn(which) {
                    let was_established = self.port.borrow().connections[&conn].up;
                    let lost = ConnectionLost {
                        reason: "the script says so".to_owned(),
                        retry,
                        busy: false,
                        was_established,
                    };
                    self.tell(ClientTransportEvent::Disconnected { conn, lost });
                    self.step();
                }
            }
            Event::Reply { which, how } => self.reply(which, &how),
            Event::Failed(which) => {
                if let Some((conn, xid, _)) = self.sent(which, false) {
                    let error = CallError::Chunk("the script says so".to_owned());
                    self.tell(ClientTransportEvent::Failed { conn, xid, error });
                }
            }
            Event::Called { which, words, len } => {
                if let Some(conn) = self.conn(which)
                    && self.port.borrow().connections[&conn].up
                {
                    let mut port = self.port.borrow_mut();
                    let token = port.next;
                    port.next += 1;
                    if let Some(connection) = port.connections.get_mut(&conn) {
                        connection.callbacks.insert(token);
                    }
                    drop(port);
                    let message = called(&words, usize::from(len));
                    self.tell(ClientTransportEvent::Call {
                        conn,
                        token,
                        message,
                    });
                }
            }
            Event::Wait(time) => {
                let later = self.clock.now() + Duration::from_millis(u64::from(time) % 4000);
                self.clock.advance_to(later);
            }
            Event::Due => {
                if let Some(due) = self.due {
                    self.clock.advance_to(due);
                }
            }
        }
    }

    fn call(&mut self) {
        let user = &mut *self.user;
        if let Some(client) = &user.client
            && (user.made as usize) < MOST_CALLS
        {
            let number = user.made;
            user.made += 1;
            let mut args = Encoder::new();
            args.u32(number);
            let call = client.call(Call {
                prog: 1,
                vers: 1,
                proc: 1,
                args: args.finish(),
                reply: ReplyRoom::default(),
            });
            user.calls.insert(number, call);
            self.runtime.wake();
        }
    }

    fn reply(&mut self, which: u8, how: &Answer) {
        let Some((conn, xid, number)) = self.sent(which, matches!(how, Answer::Other)) else {
            return;
        };
        let words: Vec<u32> = match how {
            Answer::Right | Answer::Twice => vec![xid, REPLY, 0, 0, 0, 0, number],
            Answer::Other => {
                self.user.misled = true;
                vec![xid.wrapping_add(1), REPLY, 0, 0, 0, 0, number]
            }
            Answer::Denied(status) => vec![xid, REPLY, 0, 0, 0, u32::from(status % 7) + 1, 1, 1],
            Answer::Words(words) => {
                self.user.misled = true;
                let words = words.iter().map(|word| u32::from(*word));
                std::iter::once(xid).chain(words).collect()
            }
            Answer::Nothing => vec![xid],
        };
        let times = if matches!(how, Answer::Twice) { 2 } else { 1 };
        for _ in 0..times {
            let message = message(&words);
            let xid = words[0];
            self.tell(ClientTransportEvent::Reply { conn, xid, message });
        }
    }

    /// Answers all calls, and checks that no further call is sent.
    fn finish(&mut self) {
        for _ in 0..ROUNDS {
            for which in 0..8 {
                self.happen(Event::Up(which));
            }
            self.step();
            while let Some((conn, xid, number)) = self.sent(0, false) {
                let message = message(&[xid, REPLY, 0, 0, 0, 0, number]);
                self.tell(ClientTransportEvent::Reply { conn, xid, message });
            }
            self.step();
            let user = &self.user;
            if user.connecting.is_none() && user.calls.is_empty() {
                break;
            }
            self.happen(Event::Due);
        }
        let user = &self.user;
        assert!(
            user.connecting.is_none(),
            "it neither connects nor gives up"
        );
        let left: Vec<&u32> = user.calls.keys().collect();
        assert!(left.is_empty(), "calls {left:?} never end");
        let unanswered = |connection: &Connection| connection.callbacks.len();
        let left: usize = {
            let port = self.port.borrow();
            port.connections.values().map(unanswered).sum()
        };
        assert_eq!(left, 0, "callbacks without an answer");
        let client = self.user.client.take();
        drop(client);
        let left = self.port.borrow().connections.len();
        assert_eq!(left, 0, "connections are left");
    }
}

fn message(words: &[u32]) -> Message {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Message::from_payload(Bytes::from(bytes))
}

/// Returns a call of the server, with some words of its header replaced.
fn called(words: &[u8; 7], len: usize) -> Message {
    let right = [7, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0];
    let mut all: Vec<u32> = right.to_vec();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| **word > 127) {
        all[at + 1] ^= u32::from(word - 127);
    }
    all.truncate(len.max(1));
    message(&all)
}
