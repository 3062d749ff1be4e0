//! Fuzzes an RDMA client transport and a server transport against each other over fake devices: all
//! features, calls in both directions. Forged messages may be injected. [`run`] has versions 1 and
//! 2, [`run_wg`] the working group's version 2 with and without data placement.
//!
//! With honest peers every call ends once, with its own reply, except calls that wait for the
//! credit of a call that is never answered; every message finds a posted receive; and a connection
//! ends only when it is lost or closed, or when the peer accesses memory of a cancelled call. With
//! any peers, no call ends twice, all memory is released when the connections end, and nothing
//! panics. The same script gives the same run.

#[path = "../../../../transport/tests/rdma_support/fabric.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]
mod fabric;
mod lies;
mod lies_wg;
mod script;
mod turns;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{CALL, Decoder, Encoder, Message, REPLY};
use rdma::{Buf, Pool, Stag, Time};
use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClient, RdmaClientOptions, RdmaOptions, RdmaServer,
    RdmaServerOptions, Version, VersionAction, Versions,
};
use rpc_transport::{ClientTransport, ConnectionId, ReplyRoom, ServerTransport};
use rpcrdma_protocols::{Directions, RoundTripFeatures};

use fabric::{FakeDevice, Traffic, World, address, attributes};
pub use script::Script;
use script::{Answer, End, Event, Length, Lies};

/// The first XID of the client's calls; later ones count upwards. `CALLS_BACK`: the same of the
/// server's calls.
const CALLS: u32 = 1;
const CALLS_BACK: u32 = 0x1000;
/// The maximum number of calls that a script can make in each direction.
const MOST_CALLS: usize = 24;
const MAX_MESSAGE: u32 = 1 << 19;
/// The size of each end's pool, in bytes.
const POOL: usize = 32 << 20;
/// The index of each end's device.
const CLIENT: usize = 0;
const SERVER: usize = 1;

thread_local! {
    /// The pools of both ends, which are reused by all runs to save allocations.
    static POOLS: [Pool; 2] = [Pool::new(POOL), Pool::new(POOL)];
}

/// A call that was made.
struct Made {
    conn: ConnectionId,
    words: usize,
    items: Vec<Bytes>,
    /// Whether the call has ended or been cancelled.
    over: bool,
    /// Whether the call may end in another way than with its own reply.
    may_fail: bool,
    /// Whether the call was cancelled. Its end may already have been queued then, so one is still
    /// accepted.
    given_up: bool,
}

/// Calls in one direction.
#[derive(Default)]
struct Calls {
    made: BTreeMap<u32, Made>,
    /// Calls that were delivered and not answered.
    held: Vec<(ConnectionId, u64, Message)>,
    /// The connections of calls that will never be answered, one entry for each call. These calls
    /// keep their credits.
    neglected: Vec<ConnectionId>,
    /// The number of credits that a reply grants.
    credits: usize,
    /// The minimum number of concurrent calls that a connection allows, once more than one credit
    /// was granted.
    granted: BTreeMap<ConnectionId, usize>,
}

struct Run {
    protocol: Protocol,
    world: Rc<RefCell<World>>,
    client: RdmaClient,
    server: RdmaServer,
    now: Time,
    /// The client's newest connection, and whether it is up. `server_conn` is the server's
    /// identifier of it.
    conn: Option<(ConnectionId, bool)>,
    server_conn: Option<ConnectionId>,
    forward: Calls,
    back: Calls,
    ballast: [Vec<Buf>; 2],
    lies: Lies,
    /// Whether the script did something that may end connections and fail calls.
    troubled: bool,
    /// Whether the server may invalidate a call's handles. The memory of a cancelled call then
    /// stays registered until the reply.
    kept: bool,
    /// Whether calls may be sent in several transmissions (version 2), each of which uses a credit.
    groups: bool,
    /// The handles that were valid when a call was cancelled. If the peer uses one of a cancelled
    /// call, the connection ends.
    fenced: Vec<Stag>,
}

/// Executes a script with versions 1 and 2, and checks the result.
///
/// # Panics
/// A check failed, which is a finding.
pub fn run(script: Script) {
    run_by(Protocol::OneAndTwo, script);
}

/// Executes a script with the working group's version 2, and checks the result.
///
/// # Panics
/// A check failed, which is a finding.
pub fn run_wg(script: Script) {
    run_by(Protocol::Wg, script);
}

/// The versions that the ends of a run have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// Version 1, version 2 of 2016, or both, as the script says.
    OneAndTwo,
    /// The working group's version 2 (version-two-07).
    Wg,
}

fn run_by(protocol: Protocol, script: Script) {
    POOLS.with(|pools| {
        let [client, server] = pools;
        assert_eq!((client.in_use(), server.in_use()), (0, 0));
        let mut run = Run::new(protocol, &script, client, server);
        for event in script.events {
            run.happen(event);
            run.check();
        }
        run.finish();
        assert_eq!((client.in_use(), server.in_use()), (0, 0), "memory is kept");
    });
}

fn versions(protocol: Protocol, end: &End) -> (Choice, Versions) {
    match end.versions % 4 {
        _ if protocol == Protocol::Wg => {
            let wg = Version::TWO_WG;
            (Choice::Only(wg), Versions::only(wg))
        }
        0 => (Choice::Only(Version::ONE), Versions::only(Version::ONE)),
        1 => (Choice::Only(Version::TWO), Versions::only(Version::TWO)),
        // Such a client asks for the working group's version first.
        _ => (
            Choice::Auto,
            Versions::only(Version::ONE).with(Version::TWO),
        ),
    }
}

fn features(end: &End) -> RoundTripFeatures {
    let bit = |at: u8| end.features >> at & 1 == 1;
    let ways = |at: u8| Directions {
        send: bit(at),
        receive: bit(at + 1),
    };
    RoundTripFeatures {
        ddp: ways(0),
        cont: ways(2),
    }
}

/// Returns whether an end has messages in several transmissions, in either direction.
fn continued(end: &End) -> bool {
    features(end).cont != Directions::default()
}

fn configure(end: &End, common: &mut RdmaOptions) {
    common.credits = u32::from(end.credits % 8) + 1;
    common.protocols = rpcrdma_protocols::standard(&features(end));
    common.callbacks = CallbackOptions {
        credits: u32::from(end.callbacks % 4),
        chunks: end.chunks,
    };
    common.remote_invalidation = end.invalidation;
    common.inline_send = 1024 * (u32::from(end.inline % 5) + 1);
    common.inline_receive = 1024 * (u32::from(end.inline / 5 % 5) + 1);
    common.max_message = MAX_MESSAGE;
    common.max_segment = 1 << 14;
    common.max_receive_size = 8 << 10;
    common.spare_receives = 8;
}

impl Run {
    fn new(protocol: Protocol, script: &Script, client_pool: &Pool, server_pool: &Pool) -> Self {
        let world = World::new();
        let device = |pool: &Pool| Box::new(FakeDevice::new(&world, attributes(), pool.clone()));
        let (client_device, server_device) = (device(client_pool), device(server_pool));
        let mut options = RdmaClientOptions::new(rpcrdma_protocols::base());
        let mut server_options = RdmaServerOptions::new(rpcrdma_protocols::base());
        (options.version, _) = versions(protocol, &script.client);
        (_, server_options.versions) = versions(protocol, &script.server);
        configure(&script.client, &mut options.common);
        configure(&script.server, &mut server_options.common);
        // One has only what the other has not.
        let strangers = protocol == Protocol::OneAndTwo
            && script.client.versions % 4 + script.server.versions % 4 == 1;
        server_options.max_fetched = u64::from(MAX_MESSAGE);
        server_options.max_receive_memory = POOL / 2;
        let credits = options.common.credits.min(server_options.common.credits);
        let groups = continued(&script.client) || continued(&script.server);
        let mut server = RdmaServer::new(server_device, server_options);
        server.listen(address()).expect("a fake listens anywhere");
        let mut run = Self {
            protocol,
            world,
            client: RdmaClient::new(client_device, options),
            server,
            now: Time::ZERO,
            conn: None,
            server_conn: None,
            forward: Calls::with(credits as usize),
            back: Calls::with(1),
            groups,
            ballast: [Vec::new(), Vec::new()],
            lies: script.lies,
            troubled: script.lies != Lies::Nobody || strangers,
            kept: script.client.invalidation && script.server.invalidation,
            fenced: Vec::new(),
        };
        run.open();
        run
    }

    fn open(&mut self) {
        if self.conn.is_none() {
            self.conn = Some((self.client.open(address(), 0, self.now), false));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call {
                back,
                words,
                items,
                small_room,
            } => self.call(back, usize::from(words), &items, small_room > 200),
            Event::Cancel { back, which } => self.cancel(back, which),
            Event::Answer { back, which, how } => self.answer(back, usize::from(which), how),
            Event::Turn { server: true } => drop(self.server_turn()),
            Event::Turn { server: false } => drop(self.client_turn()),
            Event::Settle => self.settle(),
            Event::Wait(millis) => self.now = self.now + Duration::from_millis(millis.into()),
            Event::Stall { server, on } => {
                self.world.borrow_mut().stalled = on.then_some(usize::from(server));
            }
            Event::Lose => {
                self.troubled = true;
                self.world.borrow_mut().lose_all();
            }
            Event::Close => self.close(),
            Event::Open => self.open(),
            Event::Ballast { server, kib } => {
                self.troubled = true;
                let pool = match server {
                    true => self.server.device().pool(),
                    false => self.client.pool(),
                };
                // As many pieces as there are, the rest of the pool but so much.
                let mut held = Vec::new();
                let keep = usize::from(kib) << 8;
                while pool.limit() - pool.in_use() > keep
                    && held.len() < 64
                    && let Ok(piece) =
                        pool.alloc((pool.limit() - pool.in_use() - keep).min(1 << 20))
                {
                    held.push(piece);
                }
                self.ballast[usize::from(server)] = held;
            }
            Event::Tamper {
                by_server,
                at,
                bits,
            } => {
                if self.lies.are_heard(!by_server) {
                    let tamper = (usize::from(by_server), usize::from(at), bits);
                    self.world.borrow_mut().tamper = Some(tamper);
                }
            }
            Event::Repeat { to_server } => {
                if self.lies.are_heard(to_server) {
                    let mut world = self.world.borrow_mut();
                    let last = world
                        .traffic
                        .iter()
                        .rev()
                        .find_map(|(from, what)| match what {
                            Traffic::Send(bytes, _) if *from == usize::from(!to_server) => {
                                Some(bytes.clone())
                            }
                            _ => None,
                        });
                    if let Some(last) = last {
                        world.inject(usize::from(to_server), &last, None);
                    }
                }
            }
            Event::Lie {
                to_server,
                invalidate,
                lie,
            } => {
                if self.lies.are_heard(to_server) {
                    let last = [&self.forward, &self.back].map(|calls| calls.made.len() as u32);
                    let mut world = self.world.borrow_mut();
                    // Of the end that has called if this is what it says.
                    let caller = match to_server == lie.reply {
                        true => SERVER,
                        false => CLIENT,
                    };
                    let memory = world.reachable(caller);
                    let message = match self.protocol {
                        Protocol::OneAndTwo => lies::encode(&lie, last, &memory),
                        Protocol::Wg => lies_wg::encode(&lie, last, &memory),
                    };
                    let own = world.reachable(usize::from(to_server));
                    let handle = own.get(usize::from(invalidate)).map(|(stag, ..)| *stag);
                    world.inject(usize::from(to_server), &message, handle);
                }
            }
        }
    }

    /// Returns whether connections may end and calls may fail.
    fn is_troubled(&self) -> bool {
        let world = self.world.borrow();
        self.troubled || world.refused.iter().any(|stag| self.fenced.contains(stag))
    }

    /// Checks the invariants after each event.
    fn check(&self) {
        let world = self.world.borrow();
        if self.lies == Lies::Nobody {
            assert_eq!(world.overruns, 0, "a peer was overrun");
        }
    }

    fn call(&mut self, back: bool, words: usize, items: &[Length], small_room: bool) {
        let conn = match back {
            true => self.server_conn,
            false => self.conn.map(|(conn, _)| conn),
        };
        let calls = if back {
            &mut self.back
        } else {
            &mut self.forward
        };
        let (Some(conn), true) = (conn, calls.made.len() < MOST_CALLS) else {
            return;
        };
        let first = if back { CALLS_BACK } else { CALLS };
        let xid = first + calls.made.len() as u32;
        let lengths = items.iter().filter_map(|length| length.bytes());
        let items: Vec<Bytes> = lengths.map(|len| vec![xid as u8; len].into()).collect();
        let room = match small_room {
            true => ReplyRoom::default(),
            false => room(words, &items),
        };
        let message = message(CALL, xid, words, &items);
        let too_long = message.stream_len() + 4096 > u64::from(MAX_MESSAGE);
        let made = Made {
            conn,
            words,
            items,
            over: false,
            // Whether a callback is taken, and may have chunks, is the client's to say.
            may_fail: back || small_room || too_long,
            given_up: false,
        };
        calls.made.insert(xid, made);
        if !back {
            self.client.submit(conn, xid, message, &room, self.now);
        } else if self
            .server
            .call(conn, xid, message, &room, self.now)
            .is_err()
        {
            self.back.over(xid);
        }
    }

    fn cancel(&mut self, back: bool, which: u8) {
        let calls = if back {
            &mut self.back
        } else {
            &mut self.forward
        };
        let mut open = calls.made.iter_mut().filter(|(_, made)| !made.over);
        let Some((xid, made)) = open.nth(usize::from(which)) else {
            return;
        };
        (made.over, made.given_up) = (true, true);
        if back || !self.kept {
            let caller = if back { SERVER } else { CLIENT };
            let reachable = self.world.borrow().reachable(caller);
            self.fenced.extend(reachable.iter().map(|(stag, ..)| *stag));
        }
        match back {
            true => self.server.cancel_call(made.conn, *xid),
            false => self.client.cancel(made.conn, *xid),
        }
    }

    fn answer(&mut self, back: bool, which: usize, how: Answer) {
        let calls = if back {
            &mut self.back
        } else {
            &mut self.forward
        };
        let Some(at) = which.checked_rem(calls.held.len()) else {
            return;
        };
        let (conn, token, call) = calls.held.swap_remove(at);
        let reply = calls.reply(&call, how, self.lies == Lies::Nobody);
        match back {
            true => self.client.reply(conn, token, reply, self.now),
            false => self.server.reply(conn, token, reply, self.now),
        }
    }
}

impl Calls {
    /// Returns an empty list for a connection whose replies grant `credits`.
    fn with(credits: usize) -> Self {
        Self {
            credits,
            ..Self::default()
        }
    }

    /// Returns the XIDs of calls that have not ended but must end.
    fn waiting(&self) -> impl Iterator<Item = u32> {
        let made = self.made.iter();
        made.filter(|(_, made)| !made.over && !made.may_fail && self.may_go(made.conn))
            .map(|(xid, _)| *xid)
    }

    /// Returns whether this connection has credits beyond those of calls that are never answered.
    fn may_go(&self, conn: ConnectionId) -> bool {
        let kept = self.neglected.iter().filter(|at| **at == conn);
        kept.count() < self.granted.get(&conn).copied().unwrap_or(1)
    }

    fn over(&mut self, xid: u32) {
        if let Some(made) = self.made.get_mut(&xid) {
            let given_up = std::mem::take(&mut made.given_up);
            assert!(!made.over || given_up, "call {xid:#x} ended twice");
            made.over = true;
        }
    }

    fn reply(&mut self, call: &Message, how: Answer, honest: bool) -> Option<Message> {
        let xid = onc_rpc::peek_xid(call).expect("what is delivered has an XID");
        let made = self.made.get_mut(&xid);
        if honest {
            let made = made.as_ref().expect("a call that was made");
            assert!(is_message(call, CALL, xid, made.words, &made.items));
        }
        let (words, items) = match &made {
            Some(made) => (made.words, made.items.clone()),
            None => (1, Vec::new()),
        };
        let more = match how {
            Answer::Echo => 0,
            Answer::Longer(words) => usize::from(words) * 16,
            Answer::Nothing => {
                // No reply ever: its caller waits in vain.
                if let Some(made) = made {
                    made.may_fail = true;
                    self.neglected.push(made.conn);
                }
                return None;
            }
        };
        if let Some(made) = made {
            made.may_fail |= more > 0;
            // What its caller hears of it grants, also that there was no room for it.
            self.granted.entry(made.conn).or_insert(self.credits);
        }
        Some(message(REPLY, xid, words + more, &items))
    }
}

/// Returns a message with this type, XID, number of words and items.
fn message(msg_type: u32, xid: u32, words: usize, items: &[Bytes]) -> Message {
    let mut encoder = Encoder::new();
    for word in [xid, msg_type, words as u32, items.len() as u32] {
        encoder.u32(word);
    }
    for word in 0..words {
        encoder.u32(word as u32);
    }
    for item in items {
        encoder.bulk(item.clone());
    }
    encoder.u32(0xe0f);
    encoder.finish()
}

/// Returns the room for the reply to a call with this number of words and these items, less the 24
/// bytes of an RPC reply header.
fn room(words: usize, items: &[Bytes]) -> ReplyRoom {
    ReplyRoom {
        payload: (20 + 4 * words + 4 * items.len()).saturating_sub(24) as u32,
        items: items.iter().map(|item| item.len() as u32).collect(),
        idempotent: false,
    }
}

fn is_message(message: &Message, msg_type: u32, xid: u32, words: usize, items: &[Bytes]) -> bool {
    let mut from = Decoder::new(message);
    let head = [xid, msg_type, words as u32, items.len() as u32];
    head.into_iter().all(|word| from.u32() == Ok(word))
        && (0..words).all(|word| from.u32() == Ok(word as u32))
        && items
            .iter()
            .all(|item| from.bulk(u32::MAX) == Ok(item.clone().into()))
        && from.u32() == Ok(0xe0f)
        && from.finish() == Ok(())
}
