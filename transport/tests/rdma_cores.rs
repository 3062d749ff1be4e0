//! The state machines, without any device: every order of completions, and peers that misbehave.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rdma_support;

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::{Bytes, BytesMut};
use conveyance::{ChunkCounts, Limits};
use onc_rpc::{Message, Segments};
use quickcheck::{TestResult, quickcheck};
use rdma::{Buf, Pool, Region, RemoteSegment, Stag};
use rdma_support::{data, message, open, reply, room};
use rpc_transport::rdma::{
    ReadId, RegId, Requester, RequesterAction, RequesterConfig, Responder, ResponderAction,
    ResponderConfig, Version, header_len,
};
use rpcrdma_chunks::{Chunks, ReadSegment, Segment, WriteChunk};
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::Calls;

/// XID, credits and chunks of a message, of whichever version.
fn decode(version: Version, bytes: &Bytes) -> (u32, u32, Option<Chunks>) {
    match version {
        Version::One => {
            let (header, _) = rpcrdma_v1::Header::decode(bytes).unwrap();
            let chunks = match header.body {
                rpcrdma_v1::Body::Msg(chunks) | rpcrdma_v1::Body::NoMsg(chunks) => Some(chunks),
                rpcrdma_v1::Body::Error(_) => None,
            };
            (header.xid, header.credits, chunks)
        }
        Version::Two => {
            let (header, _) = rpcrdma_v2::Header::decode(bytes).unwrap();
            (header.xid, header.credits, header.chunks().cloned())
        }
    }
}

fn version(two: bool) -> Version {
    match two {
        true => Version::Two,
        false => Version::One,
    }
}

fn limits(version: Version) -> Limits {
    sized(version, 1024, 1024)
}

fn sized(version: Version, inline_send: u64, inline_receive: u64) -> Limits {
    Limits {
        inline_send,
        inline_receive,
        max_segment: 3000,
        max_message: 1 << 20,
        header_len: header_len(version),
    }
}

/// What the responder has posted, in the order in which it takes effect.
enum Posted {
    Write(Bytes, Stag, u64),
    Send(Bytes, Option<Stag>),
    /// It asks for receives of this size, and keeps to it.
    Wants(u64),
}

/// What the requester has sent.
enum Sent {
    Call(Bytes),
    /// It will have receives of the size that was asked for.
    Pending,
    /// It has receives of this size.
    Has(u64),
}

/// A change of the requester's receives that is under way (xcharext-02, section 3.1).
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Raising(u64),
    Lowering(u64),
}

/// A requester and a responder, and a network and two devices that do what they were asked to at
/// any time that they like.
struct Sim {
    version: Version,
    random: u64,
    requester: Requester,
    responder: Responder,
    memory: HashMap<Stag, (Region, u64)>,
    invalid: HashMap<Stag, Region>,
    next_stag: u32,
    registering: Vec<(RegId, Region)>,
    invalidating: Vec<(RegId, Stag)>,
    calls: VecDeque<Sent>,
    /// Longest call at present.
    call_limit: u64,
    /// Bytes of the requester's receives, and what its calls count on.
    receive_size: u64,
    told: u64,
    change: Option<Change>,
    /// Changes that came to their end.
    changes: usize,
    replies: VecDeque<Posted>,
    reads: Vec<(ReadId, Buf, Stag, u64)>,
    held: Vec<(u64, Message)>,
    /// Handles that a call offered.
    offered: HashMap<u32, Vec<Stag>>,
    in_flight: u32,
    granted: u32,
    ended: HashMap<u32, Result<Message, String>>,
    lost: bool,
    /// Grants are replaced by small ones, zero among them.
    tamper: bool,
}

impl Sim {
    fn new(version: Version, seed: u64, pool: &Pool, tamper: bool) -> Self {
        let credits = 16;
        let pool = pool.clone();
        Self {
            version,
            random: seed | 1,
            requester: Requester::new(RequesterConfig {
                credits,
                pool: pool.clone(),
            }),
            responder: Responder::new(ResponderConfig {
                version,
                credits: 8,
                max_fetched: 20_000,
                outbound_reads: 3,
                remote_invalidation: seed.is_multiple_of(2),
                limits: limits(version),
                pool,
            }),
            memory: HashMap::new(),
            invalid: HashMap::new(),
            next_stag: 1,
            registering: Vec::new(),
            invalidating: Vec::new(),
            calls: VecDeque::new(),
            call_limit: 1024,
            receive_size: 1024,
            told: 1024,
            change: None,
            changes: 0,
            replies: VecDeque::new(),
            reads: Vec::new(),
            held: Vec::new(),
            offered: HashMap::new(),
            in_flight: 0,
            granted: 1,
            ended: HashMap::new(),
            lost: false,
            tamper,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % n.max(1)
    }

    fn pick<T>(&mut self, from: impl Fn(&mut Self) -> &mut Vec<T>) -> Option<T> {
        let len = from(self).len();
        let at = self.below(len);
        (len > 0).then(|| from(self).swap_remove(at))
    }

    fn drain(&mut self) {
        while let Some(action) = self.requester.next_action() {
            match action {
                RequesterAction::Register { id, region } => self.registering.push((id, region)),
                RequesterAction::Reserve { .. } | RequesterAction::Release { .. } => {
                    panic!("nobody conveys")
                }
                RequesterAction::Send { gather } => self.sent(gather),
                RequesterAction::Invalidate { id, stag } => self.invalidating.push((id, stag)),
                RequesterAction::Reclaim { id, stag } => {
                    let region = self.invalid.remove(&stag).expect("the peer invalidated it");
                    self.requester.reclaimed(id, region);
                }
                RequesterAction::Deliver { xid, message } => self.end(xid, Ok(message)),
                RequesterAction::Fail { xid, error } => self.end(xid, Err(error.to_string())),
            }
        }
        while let Some(action) = self.responder.next_action() {
            match action {
                ResponderAction::Read {
                    id,
                    sink,
                    stag,
                    offset,
                } => {
                    self.reads.push((id, sink, stag, offset));
                    assert!(self.reads.len() <= 3, "more Reads than ORD");
                }
                ResponderAction::Write {
                    gather,
                    stag,
                    offset,
                } => {
                    let bytes = Bytes::from(gather.concat());
                    self.replies.push_back(Posted::Write(bytes, stag, offset));
                }
                ResponderAction::Send {
                    gather, invalidate, ..
                } => {
                    let bytes = Bytes::from(gather.concat());
                    self.replies.push_back(Posted::Send(bytes, invalidate));
                }
                ResponderAction::Deliver { token, message } => self.held.push((token, message)),
                ResponderAction::Close { reason } => panic!("closed: {reason}"),
            }
        }
    }

    fn sent(&mut self, gather: Segments) {
        let bytes = Bytes::from(gather.concat());
        let len = bytes.len() as u64;
        assert!(len <= self.call_limit, "over the call inline threshold");
        let (xid, _, chunks) = decode(self.version, &bytes);
        let chunks = chunks.expect("a requester sends no error");
        let stags: Vec<Stag> = chunks.handles().map(Stag).collect();
        assert!(
            stags.iter().all(|stag| self.memory.contains_key(stag)),
            "offered, not registered"
        );
        self.offered.insert(xid, stags);
        self.in_flight += 1;
        assert!(
            self.in_flight <= self.granted.max(1),
            "more calls than granted"
        );
        self.calls.push_back(Sent::Call(bytes));
    }

    fn requester_limits(&mut self) {
        let limits = sized(self.version, self.call_limit, self.told);
        self.requester.limits_changed(limits);
        self.drain();
    }

    fn responder_limits(&mut self, size: u64, last_resort: Option<u64>) {
        let limits = sized(self.version, size, self.call_limit);
        self.responder.limits_changed(limits, true, last_resort);
        self.drain();
    }

    /// The requester's send queue takes a few Sends, or none, until this is said again.
    fn some_room(&mut self) {
        let room = self.below(3);
        self.requester.set_room(room);
    }

    /// Another size in one of the directions.
    fn resize(&mut self) {
        let sizes = [1024, 1200, 2000, 4096, 9000];
        let size = sizes[self.below(sizes.len())];
        if self.below(3) == 0 {
            self.call_limit = size;
            self.requester_limits();
            return;
        }
        // The responder asks for nothing before it knows what became of what it asked for last.
        let is_told = |sent: &Sent| !matches!(sent, Sent::Has(_));
        if self.change.is_some() || !self.calls.iter().all(is_told) {
            return;
        }
        if size > self.receive_size {
            // All receives have it before it is told.
            self.receive_size = size;
            self.change = Some(Change::Raising(size));
            self.calls.push_back(Sent::Has(size));
            self.requester.await_replies(Calls::Next);
        } else if size < self.receive_size {
            self.change = Some(Change::Lowering(size));
            self.responder_limits(size, None);
            self.replies.push_back(Posted::Wants(size));
        }
    }

    /// The calls that a change waits for are answered.
    fn answered(&mut self) {
        while let Some(calls) = self.requester.next_answered() {
            match (calls, self.change.take()) {
                (Calls::Next, Some(Change::Raising(size))) => {
                    self.told = size;
                    self.requester_limits();
                }
                (Calls::Earlier, Some(Change::Lowering(size))) => {
                    self.receive_size = size;
                    self.calls.push_back(Sent::Has(size));
                }
                (_, _) => panic!("nobody waits for that"),
            }
            self.changes += 1;
        }
    }

    fn end(&mut self, xid: u32, result: Result<Message, String>) {
        for stag in self.offered.get(&xid).into_iter().flatten() {
            assert!(
                !self.memory.contains_key(stag),
                "ended while memory is within reach"
            );
        }
        assert!(self.ended.insert(xid, result).is_none(), "ended twice");
    }

    /// Memory that the peer names, or the end of the connection.
    fn reach(&mut self, stag: Stag, offset: u64) -> Option<(&mut Region, usize)> {
        let found = self.memory.get_mut(&stag);
        self.lost |= found.is_none();
        let (region, base) = found?;
        Some((region, (offset - *base) as usize))
    }

    /// One thing happens. False: nothing can.
    fn step(&mut self) -> bool {
        if self.lost {
            return false;
        }
        self.drain();
        let first = self.below(6);
        let happened = (0..6).any(|n| self.happen((first + n) % 6));
        self.drain();
        self.answered();
        happened && !self.lost
    }

    fn happen(&mut self, what: usize) -> bool {
        match what {
            0 => {
                let Some((id, region)) = self.pick(|sim| &mut sim.registering) else {
                    return false;
                };
                let stag = Stag(self.next_stag);
                self.next_stag += 1;
                let (length, offset) = (region.len() as u32, u64::from(stag.0) << 32);
                self.memory.insert(stag, (region, offset));
                let segment = RemoteSegment {
                    stag,
                    length,
                    offset,
                };
                self.requester.registered(id, Ok(segment));
            }
            1 => {
                let Some((id, stag)) = self.pick(|sim| &mut sim.invalidating) else {
                    return false;
                };
                // The peer's Send With Invalidate may have been faster: a real device fails then,
                // so the requester must not have asked for both.
                let (region, _) = self.memory.remove(&stag).expect("invalidated twice");
                self.requester.reclaimed(id, region);
            }
            2 => match self.calls.pop_front() {
                None => return false,
                Some(Sent::Call(call)) => self.responder.received(call),
                Some(Sent::Pending) => {
                    let Some(Change::Lowering(size)) = self.change else {
                        return true;
                    };
                    self.responder_limits(size, Some(self.receive_size));
                }
                Some(Sent::Has(size)) => self.responder_limits(size, Some(size)),
            },
            3 => {
                let Some((id, mut sink, stag, offset)) = self.pick(|sim| &mut sim.reads) else {
                    return false;
                };
                if let Some((Region::RemoteRead(bytes), start)) = self.reach(stag, offset) {
                    let len = sink.len();
                    sink.copy_from_slice(&bytes[start..start + len]);
                    self.responder.read_done(id, sink);
                }
            }
            4 => match self.replies.pop_front() {
                None => return false,
                Some(Posted::Write(bytes, stag, offset)) => {
                    if let Some((Region::RemoteWrite(buf), start)) = self.reach(stag, offset) {
                        buf[start..start + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                Some(Posted::Send(bytes, invalidate)) => self.reply(bytes, invalidate),
                Some(Posted::Wants(size)) => {
                    self.told = size;
                    self.requester_limits();
                    self.calls.push_back(Sent::Pending);
                    self.requester.await_replies(Calls::Earlier);
                }
            },
            _ => {
                let Some((token, call)) = self.pick(|sim| &mut sim.held) else {
                    return false;
                };
                let (xid, words, items) = open(&call);
                self.responder.reply(token, Some(reply(xid, words, &items)));
            }
        }
        true
    }

    fn reply(&mut self, bytes: Bytes, invalidate: Option<Stag>) {
        let len = bytes.len() as u64;
        assert!(len <= self.receive_size, "longer than its receive");
        if let Some(stag) = invalidate {
            let Some((region, _)) = self.memory.remove(&stag) else {
                self.lost = true;
                return;
            };
            // A cancelled call's reply: the local invalidation will fail now.
            if self.invalidating.iter().any(|(_, other)| *other == stag) {
                self.lost = true;
                return;
            }
            self.invalid.insert(stag, region);
        }
        let mut bytes = BytesMut::from(&bytes[..]);
        if self.tamper {
            let grant = self.below(5) as u32;
            bytes[8..12].copy_from_slice(&grant.to_be_bytes());
        }
        (_, self.granted, _) = decode(self.version, &bytes.clone().freeze());
        self.in_flight -= 1;
        self.requester.received(bytes.freeze(), invalidate);
    }
}

/// What calls hold, and their replies must: XID, words and items.
type Expected = HashMap<u32, (u32, usize, Vec<Bytes>)>;

impl Sim {
    /// Makes a call with so many words, or others, and items of any kind.
    fn submit(&mut self, xid: u32, words: &[usize], expected: &mut Expected) {
        let lens = lengths(self);
        let words = words[self.below(words.len())];
        let items: Vec<Bytes> = lens.iter().map(|&len| data(xid, len)).collect();
        let call = message(xid, words, &items);
        self.requester.submit(xid, call, &room(words, &lens));
        expected.insert(xid, (xid, words, items));
    }

    /// Lets everything happen that can. What is wrong then, if not all calls ended with their replies.
    fn finish(&mut self, expected: &Expected) -> Result<(), String> {
        while self.step() {}
        if self.lost {
            return Err("a peer reached for memory that was gone".to_owned());
        }
        for (xid, want) in expected {
            match self.ended.get(xid) {
                Some(Ok(reply)) if open(reply) == *want => {}
                other => return Err(format!("call {xid}: {other:?}")),
            }
        }
        Ok(())
    }
}

/// Item lengths of a call: a few of all kinds.
fn lengths(sim: &mut Sim) -> Vec<usize> {
    let count = [0, 0, 1, 1, 2][sim.below(5)];
    let kinds = [0, 1, 7, 500, 1000, 3000, 7001];
    (0..count).map(|_| kinds[sim.below(kinds.len())]).collect()
}

quickcheck! {
    /// Whatever order things complete in: credits hold, every call ends once with its own reply,
    /// after its memory is out of reach, and nothing is left over.
    fn every_call_ends_once_in_any_order(two: bool, seed: u64, tamper: bool) -> TestResult {
        let pool = Pool::new(1 << 26);
        let mut sim = Sim::new(version(two), seed, &pool, tamper);
        sim.requester.connected(sim.version, limits(sim.version));
        let mut expected = Expected::new();
        for xid in 1..=40 {
            for _ in 0..sim.below(8) {
                sim.step();
            }
            sim.submit(xid, &[0, 3, 200, 1000], &mut expected);
        }
        if let Err(error) = sim.finish(&expected) {
            return TestResult::error(error);
        }
        let left = (sim.requester.unfinished(), sim.responder.outstanding(), sim.memory.len());
        let in_flight = (sim.in_flight, sim.requester.in_flight());
        expected.clear();
        sim.ended.clear();
        let in_use = pool.in_use();
        if (left, in_flight, in_use) != ((0, 0, 0), (0, 0), 0) {
            return TestResult::error(format!("left over: {left:?} {in_flight:?} {in_use} bytes"));
        }
        TestResult::passed()
    }

    /// Receives of the requester become longer and shorter, and so do the calls that may be sent,
    /// while calls are waiting, for room in the send queue as well, registered, sent and answered: no
    /// message is longer than the receive that it meets, every call ends with its reply, and changes
    /// come to their end.
    fn limits_change_at_any_time_and_nothing_is_lost(seed: u64) -> TestResult {
        let pool = Pool::new(1 << 26);
        let mut sim = Sim::new(Version::Two, seed, &pool, false);
        sim.requester.connected(sim.version, limits(sim.version));
        let mut expected = Expected::new();
        for xid in 1..=60 {
            for _ in 0..sim.below(8) {
                sim.step();
                if sim.below(4) == 0 {
                    sim.some_room();
                    sim.drain();
                    sim.resize();
                }
            }
            sim.some_room();
            sim.submit(xid, &[0, 3, 200, 240, 400, 1000], &mut expected);
        }
        sim.requester.set_room(usize::MAX);
        if let Err(error) = sim.finish(&expected) {
            return TestResult::error(error);
        }
        // One that is raised waits for a further call.
        if matches!(sim.change, Some(Change::Lowering(_))) || sim.changes < 2 {
            return TestResult::error(format!("{} changes ended", sim.changes));
        }
        TestResult::from_bool((sim.requester.unfinished(), sim.in_flight) == (0, 0))
    }

    /// Calls are cancelled at any time, and in the end the connection is lost at any time: no
    /// cancelled call is delivered, no credit is used twice, no memory is lost.
    fn cancelling_and_losing_the_connection_leave_nothing(
        two: bool,
        seed: u64,
        stop: u16
    ) -> TestResult {
        let pool = Pool::new(1 << 26);
        let mut sim = Sim::new(version(two), seed, &pool, false);
        sim.requester.connected(sim.version, limits(sim.version));
        let mut cancelled = HashSet::new();
        for xid in 1..=30 {
            for _ in 0..sim.below(10) {
                sim.step();
            }
            sim.submit(xid, &[2], &mut Expected::new());
            if sim.below(3) == 0 {
                let victim = 1 + sim.below(xid as usize) as u32;
                if !sim.ended.contains_key(&victim) {
                    sim.requester.cancel(victim);
                    cancelled.insert(victim);
                }
            }
        }
        let mut steps = usize::from(stop % 600);
        while steps > 0 && sim.step() {
            steps -= 1;
        }
        if let Some(xid) = cancelled.iter().find(|xid| sim.ended.contains_key(xid)) {
            return TestResult::error(format!("cancelled call {xid} ended"));
        }
        if !sim.lost && steps > 0 && (sim.requester.unfinished(), sim.in_flight) != (0, 0) {
            return TestResult::error("calls are left though everything has happened");
        }
        drop(sim);
        TestResult::from_bool(pool.in_use() == 0)
    }

    /// Bytes from a peer, arbitrary or nearly right, neither break the machines nor make them take
    /// memory.
    fn arbitrary_messages_do_no_harm(
        two: bool,
        noise: Vec<u8>,
        flips: Vec<(u16, u8)>
    ) -> bool {
        let pool = Pool::new(1 << 20);
        let mut sim = Sim::new(version(two), 4, &pool, false);
        sim.requester.connected(sim.version, limits(sim.version));
        let items = [data(1, 4000)];
        sim.requester.submit(1, message(1, 2, &items), &room(2, &[4000]));
        while sim.calls.is_empty() {
            sim.step();
        }
        let Sent::Call(call) = &sim.calls[0] else {
            return false;
        };
        let mut call = call.to_vec();
        for (at, bits) in flips {
            let at = usize::from(at) % call.len();
            call[at] ^= bits;
        }
        for bytes in [Bytes::from(noise), Bytes::from(call)] {
            sim.responder.received(bytes.clone());
            while let Some(action) = sim.responder.next_action() {
                if let ResponderAction::Close { .. } = action {
                    return false;
                }
            }
            sim.requester.received(bytes, None);
            sim.requester.next_action();
        }
        true
    }

    /// Plans count headers with the length that headers then have: neither a word too few nor a
    /// word too many, whichever lists are present.
    fn header_lengths_are_those_of_the_encoder(
        reads: u8,
        writes: Vec<u8>,
        reply: Option<u8>
    ) -> bool {
        let segment = Segment { handle: 1, length: 2, offset: 3 };
        let chunk = |len: u8| -> WriteChunk { (0..len).map(|_| segment).collect() };
        let counts = ChunkCounts {
            read_segments: u64::from(reads),
            write_chunks: writes.len() as u64,
            write_segments: writes.iter().map(|&len| u64::from(len)).sum(),
            reply_segments: reply.map(u64::from),
        };
        let chunks = Chunks {
            reads: (0..reads).map(|_| ReadSegment { position: 8, segment }).collect(),
            writes: writes.into_iter().map(chunk).collect(),
            reply: reply.map(chunk),
        };
        let two = rpcrdma_v2::Header {
            xid: 1,
            credits: 1,
            body: rpcrdma_v2::Body::Msg(Direction::Call, chunks.clone()),
        };
        let body = rpcrdma_v1::Body::Msg(chunks);
        let one = rpcrdma_v1::Header { xid: 1, credits: 1, body };
        one.encode().len() as u64 == header_len(Version::One)(&counts)
            && two.encode().len() as u64 == header_len(Version::Two)(&counts)
    }
}
