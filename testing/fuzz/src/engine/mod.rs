//! A requester and a responder face each other, or liars, over devices that complete what they
//! were asked for in any order and late.
//!
//! With an honest peer every call ends once, with its own reply. With any peer: credits are kept
//! to, a call ends only when its memory is out of the peer's reach, what is read and held stays
//! within limits, and nothing is left in the end, however the connection ended.

mod callers;
mod devices;
mod lies;
mod script;
mod wants;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use conveyance::Limits;
use onc_rpc::{Decoder, Encoder, Message, Segments};
use rdma::{Buf, Pool, Region, RemoteSegment, Stag};
use rpc_transport::rdma::{
    ReadId, RegId, Requester, RequesterAction, RequesterConfig, RequesterCounters, Responder,
    ResponderAction, ResponderConfig, Version, header_len,
};
use rpc_transport::{CallError, ReplyRoom};
use rpcrdma_v1::{Body, Chunks, Header, ReadSegment, Segment};

use self::lies::flip;
pub use self::script::Script;
use self::script::{Answer, Event, Length, LyingCall, LyingReply, Room};

/// Inline thresholds, bytes.
const INLINE: u64 = 256;
/// The longest message, bytes.
const MAX_MESSAGE: u64 = 4096;
/// Bytes that a responder fetches for unanswered calls together.
const MAX_FETCHED: u64 = 6000;
/// RDMA Reads outstanding.
const READS: u32 = 3;
/// Calls of one run.
const MAX_CALLS: u32 = 24;
/// What one side's memory is good for: small enough to be short of, in pages of 4 KiB.
const POOL: usize = 16 << 12;
/// Room around results that no call's own reply takes.
const REPLY_HEADER: u32 = 24;

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
    /// A failure is nobody's fault but the script's.
    may_fail: bool,
}

struct Run {
    client_lies: bool,
    server_lies: bool,
    lost: bool,
    requester: Requester,
    responder: Responder,
    client_pool: Pool,
    server_pool: Pool,
    ballast: [Vec<Buf>; 2],
    memory: BTreeMap<u32, (Region, u64)>,
    invalid: BTreeMap<u32, Region>,
    next_stag: u32,
    registering: Vec<(RegId, Region)>,
    invalidating: Vec<(RegId, Stag)>,
    calls: VecDeque<Bytes>,
    replies: VecDeque<Posted>,
    reads: Vec<(ReadId, Buf, Stag, u64)>,
    held: Vec<(u64, Message)>,
    made: BTreeMap<u32, Made>,
    /// What was sent: by XID, with the chunks that it offered.
    offered: BTreeMap<u32, Chunks>,
    last_call: Option<Bytes>,
    last_reply: Option<Bytes>,
    in_flight: u32,
    granted: u32,
    client_credits: u32,
    server_credits: u32,
}

/// Whose headers both ends write and read; the liars' are of version 1.
const VERSION: Version = Version::One;

fn limits() -> Limits {
    Limits {
        inline_send: INLINE,
        inline_receive: INLINE,
        // So long that the header of any call that is made here fits inline.
        max_segment: 1200,
        max_message: MAX_MESSAGE,
        header_len: header_len(VERSION),
    }
}

/// Carries a script out and checks what it came to.
pub fn run(script: Script) {
    let (client_pool, server_pool) = (Pool::new(POOL), Pool::new(POOL));
    let client_credits = 1 + u32::from(script.client_credits % 8);
    let server_credits = 1 + u32::from(script.server_credits % 8);
    let mut run = Run {
        client_lies: script.client_lies,
        server_lies: script.server_lies,
        lost: false,
        requester: Requester::new(RequesterConfig {
            credits: client_credits,
            pool: client_pool.clone(),
        }),
        responder: Responder::new(ResponderConfig {
            version: VERSION,
            credits: server_credits,
            max_fetched: MAX_FETCHED,
            outbound_reads: READS,
            remote_invalidation: script.remote_invalidation,
            limits: limits(),
            pool: server_pool.clone(),
        }),
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
        in_flight: 0,
        granted: 1,
        client_credits,
        server_credits,
    };
    let cut = script.events.len().is_multiple_of(3);
    for (n, event) in script.events.into_iter().enumerate() {
        if run.lost {
            break;
        }
        if n == 1 {
            // One call may be made before the connection is.
            run.requester.connected(VERSION, limits());
            run.settle();
        }
        run.happen(event);
        run.settle();
    }
    if !run.lost && !cut {
        run.requester.connected(VERSION, limits());
        run.finish();
    }
    // The connection is lost: its driver lets go of both.
    drop(run);
    assert_eq!(
        (client_pool.in_use(), server_pool.in_use()),
        (0, 0),
        "memory is lost"
    );
}

/// Bytes of a call or reply: XID, words, items.
fn message(xid: u32, words: usize, items: &[Bytes]) -> Message {
    let mut out = Encoder::with_capacity(12 + 4 * words + 4 * items.len());
    out.u32(xid).u32(words as u32);
    for word in 0..words {
        out.u32(word as u32);
    }
    out.u32(items.len() as u32);
    for item in items {
        out.bulk(item.clone());
    }
    out.finish()
}

/// Whether it is that message, however it travelled.
fn is_message(message: &Message, xid: u32, words: usize, items: &[Bytes]) -> bool {
    let mut from = Decoder::new(message);
    from.u32() == Ok(xid)
        && from.u32() == Ok(words as u32)
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
    fn happen(&mut self, event: Event) {
        match event {
            Event::Submit { words, items, room } => self.submit(words, &items, &room),
            Event::Cancel(which) => self.cancel(which),
            Event::Registered { which, fails } => {
                if let Some((id, region)) = pick(&mut self.registering, which) {
                    self.registered(id, region, fails == 1);
                }
            }
            Event::Invalidated(which) => {
                if let Some((id, stag)) = pick(&mut self.invalidating, which) {
                    self.invalidated(id, stag);
                }
            }
            Event::ReadDone(which) => {
                if let Some(read) = pick(&mut self.reads, which) {
                    self.read(read);
                }
            }
            Event::ToResponder => {
                if let Some(call) = self.calls.pop_front() {
                    self.last_call = Some(call.clone());
                    self.responder.received(call);
                }
            }
            Event::ToRequester => self.next_reply(),
            Event::Answer { which, how } => {
                if let Some((token, call)) = pick(&mut self.held, which) {
                    self.answer(token, &call, &how);
                }
            }
            Event::Ballast { client, kib } => {
                let pool = if client {
                    &self.client_pool
                } else {
                    &self.server_pool
                };
                let ballast = &mut self.ballast[usize::from(client)];
                ballast.clear();
                ballast.extend(pool.alloc(usize::from(kib) << 10));
            }
            Event::Retry => {
                self.requester.retry();
                self.responder.retry();
            }
            Event::Tamper {
                to_responder: true,
                at,
                bits,
            } if self.client_lies => {
                if let Some(call) = self.calls.front_mut() {
                    flip(call, at, bits);
                }
            }
            Event::Tamper {
                to_responder: false,
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
            Event::Repeat { to_responder: true } if self.client_lies => {
                self.calls.extend(self.last_call.clone());
            }
            Event::Repeat {
                to_responder: false,
            } if self.server_lies => {
                if let Some(reply) = self.last_reply.clone() {
                    self.replies.push_back(Posted::Send(reply, None));
                }
            }
            Event::Call(call) if self.client_lies => self.lying_call(&call),
            Event::Reply(reply) if self.server_lies => self.lying_reply(&reply),
            Event::Noise {
                to_responder,
                bytes,
                len,
            } => {
                let bytes = Bytes::copy_from_slice(&bytes[..bytes.len().min(usize::from(len))]);
                if to_responder && self.client_lies {
                    self.calls.push_back(bytes);
                } else if !to_responder && self.server_lies {
                    self.replies.push_back(Posted::Send(bytes, None));
                }
            }
            Event::Tamper { .. } | Event::Repeat { .. } | Event::Call(_) | Event::Reply(_) => {}
        }
    }
}
