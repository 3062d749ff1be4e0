//! Fuzzes a client's and a server's [`Connection`] against each other, over devices that complete
//! work requests late and in any order. Either end may also send invalid messages. Both speak
//! version 1.
//!
//! With an honest peer every call ends once, with its own reply. With any peer, credits are
//! respected, a call ends only when the peer can no longer reach its memory, RDMA Reads and fetched
//! chunks stay within their limits, and no memory is left at the end, however the connection ended.

mod callers;
mod devices;
mod dialect;
mod lies;
mod script;
mod wants;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use onc_rpc::{CALL, Decoder, Encoder, Message, REPLY, Segments};
use rdma::{Buf, Pool, Region, RemoteSegment, Stag, Time};
use rpc_transport::rdma::{Choice, Version, Versions};
use rpcrdma_connection::{
    Action, CallError, CallId, Config, Connection, Event, Options, ReadId, RegistrationId,
    ReplyRoom, RequesterCounters, Role,
};
use rpcrdma_v1::{Body, Chunks, Header, ReadSegment, Segment};

use self::dialect::{SHORTEST_INLINE, protocols};
use self::lies::flip;
pub use self::script::Script;
use self::script::{Answer, Length, LyingCall, LyingReply, Room, Step};

/// Inline thresholds, bytes.
const INLINE: u64 = 256;
/// Length of the longest message, bytes.
const MAX_MESSAGE: u32 = 4096;
/// Maximum length of a segment, in bytes: long enough that the header of any call of these scripts
/// fits inline.
const MAX_SEGMENT: u64 = 1200;
/// Maximum number of bytes that a server fetches for all unanswered calls.
const MAX_FETCHED: u64 = 6000;
/// Maximum number of outstanding RDMA Reads.
const READS: u32 = 3;
/// Maximum number of calls in one run.
const MAX_CALLS: u32 = 24;
/// The memory of one end, in bytes: 16 pages of 4 KiB, so that it can run out.
const POOL: usize = 16 << 12;
/// The length of an RPC reply header, in bytes, for which a requester adds room by itself.
const REPLY_HEADER: u32 = 24;
/// The number of free send-queue entries: unlimited.
const SEND_QUEUE: usize = usize::MAX;
/// The constant time of all events: version 1 has no time-outs.
const NOW: Time = Time::ZERO;

enum Posted {
    Write(Bytes, Stag, u64),
    Send(Bytes, Option<Stag>),
}

/// A call, as its caller sees it.
struct Made {
    words: usize,
    items: Vec<Bytes>,
    room: ReplyRoom,
    ended: bool,
    cancelled: bool,
    /// Whether the call may fail because of the script.
    may_fail: bool,
}

struct Run {
    client_lies: bool,
    server_lies: bool,
    /// Whether both ends announced remote invalidation.
    remote_invalidation: bool,
    /// Whether the connection is lost.
    lost: bool,
    client: Connection,
    server: Connection,
    client_pool: Pool,
    server_pool: Pool,
    ballast: [Vec<Buf>; 2],
    /// The memory that the server can reach, by handle, with the offset of its first byte.
    memory: BTreeMap<u32, (Region, u64)>,
    /// Memory that the server has invalidated and the client has not reclaimed yet.
    invalid: BTreeMap<u32, Region>,
    next_stag: u32,
    registering: Vec<(RegistrationId, Region)>,
    invalidating: Vec<(RegistrationId, Stag)>,
    calls: VecDeque<Bytes>,
    replies: VecDeque<Posted>,
    reads: Vec<(ReadId, Buf, Stag, u64)>,
    held: Vec<(CallId, Message)>,
    made: BTreeMap<u32, Made>,
    /// The chunks that calls offered when they were sent, by XID.
    offered: BTreeMap<u32, Chunks>,
    last_call: Option<Bytes>,
    last_reply: Option<Bytes>,
    /// The XIDs of calls that were sent and not answered: each uses one credit.
    awaited: BTreeSet<u32>,
    /// The maximum number of entries that `awaited` has had.
    most_awaited: u32,
    granted: u32,
    client_credits: u32,
    server_credits: u32,
    /// Whether the server has received a message that it can answer only by closing the connection.
    overrun: bool,
}

/// Returns the configuration of one end.
fn config(role: Role, options: Options, credits: u32, script: &Script, pool: &Pool) -> Config {
    let options = Options {
        protocols: protocols(),
        credits,
        inline_send: SHORTEST_INLINE,
        inline_receive: SHORTEST_INLINE,
        remote_invalidation: script.remote_invalidation,
        outbound_reads: READS,
        max_message: MAX_MESSAGE,
        ..options
    };
    Config {
        max_fetched: MAX_FETCHED,
        max_segment: MAX_SEGMENT,
        ..Config::new(role, options, pool.clone())
    }
}

impl Run {
    fn new(script: &Script, client_pool: &Pool, server_pool: &Pool) -> Self {
        let client_credits = 1 + u32::from(script.client_credits % 8);
        let server_credits = 1 + u32::from(script.server_credits % 8);
        let as_client = Role::Client {
            versions: Choice::Only(Version::ONE),
            evidence: None,
            patience: Config::DEFAULT_PATIENCE,
            last_xid: 0,
        };
        let as_server = Role::Server {
            versions: Versions::only(Version::ONE),
        };
        let (of_client, of_server) = (
            Options::client(rpcrdma_protocols::base()),
            Options::server(rpcrdma_protocols::base()),
        );
        let client = config(as_client, of_client, client_credits, script, client_pool);
        let server = config(as_server, of_server, server_credits, script, server_pool);
        let said = client.options.private_data();
        let mut run = Self {
            client_lies: script.client_lies,
            server_lies: script.server_lies,
            remote_invalidation: script.remote_invalidation,
            lost: false,
            client: Connection::new(client),
            server: Connection::new(server),
            client_pool: client_pool.clone(),
            server_pool: server_pool.clone(),
            ballast: [Vec::new(), Vec::new()],
            memory: BTreeMap::new(),
            invalid: BTreeMap::new(),
            next_stag: 1,
            registering: Vec::new(),
            invalidating: Vec::new(),
            calls: VecDeque::new(),
            replies: VecDeque::new(),
            reads: Vec::new(),
            held: Vec::new(),
            made: BTreeMap::new(),
            offered: BTreeMap::new(),
            last_call: None,
            last_reply: None,
            awaited: BTreeSet::new(),
            most_awaited: 0,
            granted: 1,
            client_credits,
            server_credits,
            overrun: false,
        };
        run.settle();
        run.server.handle(NOW, Event::Established { peer: said });
        run
    }

    /// Tells the client that the connection is established, unless it has been told.
    fn established(&mut self) {
        let options = Options {
            inline_send: SHORTEST_INLINE,
            inline_receive: SHORTEST_INLINE,
            remote_invalidation: self.remote_invalidation,
            ..Options::server(rpcrdma_protocols::base())
        };
        let peer = options.private_data();
        self.client.handle(NOW, Event::Established { peer });
    }
}

/// Executes a script and checks the result.
pub fn run(script: Script) {
    let (client_pool, server_pool) = (Pool::new(POOL), Pool::new(POOL));
    let mut run = Run::new(&script, &client_pool, &server_pool);
    let cut = script.steps.len().is_multiple_of(3);
    for (n, step) in script.steps.into_iter().enumerate() {
        if run.lost {
            break;
        }
        if n == 1 {
            // One call may be made before the connection is established.
            run.established();
            run.settle();
        }
        run.take(step);
        run.settle();
    }
    if !run.lost && !cut {
        run.established();
        run.finish();
    }
    let ended = run.closed();
    assert_eq!(
        (client_pool.in_use(), server_pool.in_use()),
        (0, 0),
        "memory is lost"
    );
    drop(ended);
}

/// Returns a call or reply with this XID, message type, number of words and items.
fn message(xid: u32, kind: u32, words: usize, items: &[Bytes]) -> Message {
    let mut out = Encoder::with_capacity(12 + 4 * words + 4 * items.len());
    out.u32(xid).u32(kind);
    for word in 0..words {
        out.u32(word as u32);
    }
    out.u32(items.len() as u32);
    for item in items {
        out.bulk(item.clone());
    }
    out.finish()
}

/// Returns whether `message` has this XID, message type, number of words and bulk items. Items may
/// have arrived inline or in chunks.
fn is_message(message: &Message, xid: u32, kind: u32, words: usize, items: &[Bytes]) -> bool {
    let mut from = Decoder::new(message);
    from.u32() == Ok(xid)
        && from.u32() == Ok(kind)
        && (0..words).all(|word| from.u32() == Ok(word as u32))
        && from.u32() == Ok(items.len() as u32)
        && items
            .iter()
            .all(|item| from.bulk(u32::MAX) == Ok(item.clone().into()))
        && from.finish() == Ok(())
}

fn pick<T>(from: &mut Vec<T>, which: u8) -> Option<T> {
    let at = usize::from(which).checked_rem(from.len())?;
    Some(from.remove(at))
}

impl Run {
    fn take(&mut self, step: Step) {
        match step {
            Step::Submit { words, items, room } => self.submit(words, &items, &room),
            Step::Cancel(which) => self.cancel(which),
            Step::Registered { which, fails } => {
                if let Some((id, region)) = pick(&mut self.registering, which) {
                    self.registered(id, region, fails == 1);
                }
            }
            Step::Invalidated(which) => {
                if let Some((id, stag)) = pick(&mut self.invalidating, which) {
                    self.invalidated(id, stag);
                }
            }
            Step::ReadDone(which) => {
                if let Some(read) = pick(&mut self.reads, which) {
                    self.read(read);
                }
            }
            Step::ToServer => {
                if let Some(call) = self.calls.pop_front() {
                    self.last_call = Some(call.clone());
                    self.call_arrives(call);
                }
            }
            Step::ToClient => self.next_reply(),
            Step::Answer { which, how } => {
                if let Some((id, call)) = pick(&mut self.held, which) {
                    self.answer(id, &call, &how);
                }
            }
            Step::Ballast { client, kib } => {
                let pool = if client {
                    &self.client_pool
                } else {
                    &self.server_pool
                };
                let ballast = &mut self.ballast[usize::from(client)];
                ballast.clear();
                ballast.extend(pool.alloc(usize::from(kib) << 10));
            }
            Step::Retry => {
                self.client.retry();
                self.server.retry();
            }
            Step::Tamper {
                to_server: true,
                at,
                bits,
            } if self.client_lies => {
                if let Some(call) = self.calls.front_mut() {
                    flip(call, at, bits);
                }
            }
            Step::Tamper {
                to_server: false,
                at,
                bits,
            } if self.server_lies => {
                let sends = self.replies.iter_mut().find_map(|posted| match posted {
                    Posted::Send(bytes, _) => Some(bytes),
                    Posted::Write(..) => None,
                });
                if let Some(reply) = sends {
                    flip(reply, at, bits);
                }
            }
            Step::Repeat { to_server: true } if self.client_lies => {
                self.calls.extend(self.last_call.clone());
            }
            Step::Repeat { to_server: false } if self.server_lies => {
                if let Some(reply) = self.last_reply.clone() {
                    self.replies.push_back(Posted::Send(reply, None));
                }
            }
            Step::Call(call) if self.client_lies => self.lying_call(&call),
            Step::Reply(reply) if self.server_lies => self.lying_reply(&reply),
            Step::Noise {
                to_server,
                bytes,
                len,
            } => {
                let bytes = Bytes::copy_from_slice(&bytes[..bytes.len().min(usize::from(len))]);
                if to_server && self.client_lies {
                    self.calls.push_back(bytes);
                } else if !to_server && self.server_lies {
                    self.replies.push_back(Posted::Send(bytes, None));
                }
            }
            Step::Tamper { .. } | Step::Repeat { .. } | Step::Call(_) | Step::Reply(_) => {}
        }
    }
}
