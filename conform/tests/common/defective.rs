//! Defects as other implementations had them in 2026, planted between a client and this project's server.
//!
//! The relay passes FPDUs without CRC, and changes or drops some of them. Message sequence numbers are
//! renumbered after a dropped Send.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rpcrdma_conform::wire::ddp::{Tagged, Untagged};
use rpcrdma_conform::wire::v1::{self, Header, Message, Segment};
use rpcrdma_conform::wire::{mpa, rpc, wg};

use super::relay::{UNTAGGED, is_send, next_ulpdu, pass_opening};

/// Calls in progress that are served; one more ends the connection.
const BACKED: u32 = 4;
/// The time that a call is in progress with [`Defect::WgUnbackedGrant`].
const SERVICE: Duration = Duration::from_millis(5);
/// The time between messages that come without end.
const PAUSE: Duration = Duration::from_micros(200);

/// `accept_stat` GARBAGE_ARGS, and SYSTEM_ERR.
const GARBAGE_ARGS: u32 = 4;
const SYSTEM_ERR: u32 = 5;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Replies grant no credit (libevpl 76).
    ZeroGrant,
    /// A Reply chunk of more than 1 MiB ends the connection (ntirpc 390).
    LongReplyChunk,
    /// Data of an inline WRITE is lost from its 8193rd byte on (ntirpc 387).
    InlineCut,
    /// A call that was seen before is not answered (chimera 1368).
    LostReply,
    /// Every request for credits is granted whole.
    UnclampedGrant,
    /// Returned Write chunks have the lengths that were offered.
    OfferedLengths,
    /// RDMA Writes are rounded up to a multiple of four.
    Padding,
    /// ERR_CHUNK is never sent.
    NoErrChunk,
    /// Every word but zero says that an item of a list is present.
    AnyPresent,
    /// Chunks that a reply does not use are not looked at, a Read list of which no call can be made is
    /// GARBAGE_ARGS, the reply to NULL is written into its Reply chunk, and a READ whose chunk is too short is
    /// SYSTEM_ERR. All are allowed: this is no defect.
    OtherChoices,
    /// The reply to NULL is written into its Reply chunk, and comes back with the lengths that were offered.
    LongNull,
    /// Version-two-07: no message has a credit for another one.
    WgZeroGrant,
    /// Version-two-07: five calls at once are granted, and end the connection.
    WgUnbackedGrant,
    /// Version-two-07: RDMA2_GRANT of the client changes nothing.
    WgDeafToGrants,
    /// Version-two-07: the client's credit limits are not kept.
    WgLimitIgnored,
    /// Version-two-07: RDMA2_ERROR is never sent for messages of this version.
    WgNoError,
    /// Version-two-07: RDMA2_ERROR says SYSTEM where it should say INVAL_CONT.
    WgWrongError,
    /// Version-two-07: never a credit for more than one message, which is no defect.
    WgOneCredit,
    /// Version-two-07: RDMA2_GRANT without end.
    WgEndlessGrants,
    /// Version-two-07: RDMA2_CONNPROP_MIDDLE without end.
    WgEndlessProperties,
    /// Version-two-07: RDMA2_REPLY_MIDDLE without end.
    WgEndlessParts,
    /// Version-two-07: a reply without end to a call of which there is none.
    WgEndlessReplies,
    /// Version 1: no call is answered.
    Mute,
}

impl Defect {
    /// Returns the message that is sent without end, if there is one.
    fn endless(self) -> Option<Vec<u8>> {
        let message = match self {
            // With credits, the client calls and waits for the reply.
            Self::WgEndlessGrants => return Some(wg::grant(wg::CREDIT)),
            Self::WgEndlessProperties => wg::message(1, wg::CONNPROP_MIDDLE, &[0], &[]),
            Self::WgEndlessParts => wg::message(1, wg::REPLY_MIDDLE, &[0], &[0; 64]),
            Self::WgEndlessReplies => wg::reply(1, &[0; 64]),
            _ => return None,
        };
        // Without any, it waits for a credit.
        Some(wg::with_credit(message, 0))
    }
}

/// State of all connections.
#[derive(Default)]
struct Shared {
    /// The XIDs of RPC calls with credentials and their first words, which were seen.
    seen: HashSet<Vec<u8>>,
    /// The last call's credits and Write list, by which its reply is changed.
    calls: Vec<Header>,
}

/// Starts a relay to `server` with this defect, and returns its address. It lives as long as the process.
pub fn start(server: SocketAddr, defect: Defect) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Mutex::new(Shared::default()));
    std::thread::spawn(move || {
        while let Ok((client, _)) = listener.accept() {
            let upstream = TcpStream::connect(server).unwrap();
            for stream in [&client, &upstream] {
                stream.set_nodelay(true).unwrap();
            }
            let in_progress = Arc::new(AtomicU32::new(0));
            let is_wg = Arc::new(AtomicBool::new(false));
            let passed = Arc::new(AtomicU32::new(0));
            let directions = [
                (
                    client.try_clone().unwrap(),
                    upstream.try_clone().unwrap(),
                    true,
                ),
                (upstream, client, false),
            ];
            for (from, to, is_call) in directions {
                let relay = Relay {
                    defect,
                    is_call,
                    dropped: 0,
                    writes: Vec::new(),
                    shared: Arc::clone(&shared),
                    in_progress: Arc::clone(&in_progress),
                    is_wg: Arc::clone(&is_wg),
                    passed: Arc::clone(&passed),
                };
                std::thread::spawn(move || relay.pass(from, to));
            }
        }
    });
    address
}

/// One direction of one connection.
struct Relay {
    defect: Defect,
    is_call: bool,
    /// Sends that were dropped.
    dropped: u32,
    /// RDMA Writes that come before the next Send.
    writes: Vec<Tagged>,
    shared: Arc<Mutex<Shared>>,
    /// Calls of this connection without a reply, in version-two-07.
    in_progress: Arc<AtomicU32>,
    /// Whether this connection is of version-two-07.
    is_wg: Arc<AtomicBool>,
    /// Messages of the client, in version-two-07.
    passed: Arc<AtomicU32>,
}

impl Relay {
    fn pass(mut self, mut from: TcpStream, mut to: TcpStream) {
        // An error is the end of one of the two connections, and ends the other one.
        drop(self.pass_all(&mut from, &mut to));
        for stream in [from, to] {
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
    }

    fn pass_all(&mut self, from: &mut TcpStream, to: &mut TcpStream) -> std::io::Result<()> {
        pass_opening(&mut *from, &mut *to, |_| {})?;
        loop {
            let ulpdu = next_ulpdu(&mut *from)?;
            if let Some(message) = self.defect.endless().filter(|_| !self.is_call) {
                for msn in 1.. {
                    to.write_all(&mpa::fpdu(&Untagged::send(msn, &message).ulpdu(), false))?;
                    std::thread::sleep(PAUSE);
                }
            }
            let changed = self.changed(ulpdu);
            for write in std::mem::take(&mut self.writes) {
                to.write_all(&mpa::fpdu(&write.ulpdu(), false))?;
            }
            match changed {
                Some(ulpdu) => to.write_all(&mpa::fpdu(&ulpdu, false))?,
                None if matches!(
                    self.defect,
                    Defect::LongReplyChunk | Defect::WgUnbackedGrant
                ) =>
                {
                    return Ok(());
                }
                None => self.dropped += 1,
            }
        }
    }

    /// Returns the ULPDU that is passed on, if any.
    fn changed(&mut self, mut ulpdu: Vec<u8>) -> Option<Vec<u8>> {
        let (is_tagged, opcode) = (ulpdu[0] & 0x80 != 0, ulpdu[1] & 0x0f);
        if is_tagged {
            if self.defect == Defect::Padding && opcode == 0 {
                ulpdu.resize(14 + (ulpdu.len() - 14).next_multiple_of(4), 0);
            }
            return Some(ulpdu);
        }
        if !is_send(&ulpdu) {
            return Some(ulpdu);
        }
        let msn = u32::from_be_bytes(ulpdu[10..14].try_into().unwrap());
        ulpdu[10..14].copy_from_slice(&(msn - self.dropped).to_be_bytes());
        let message = ulpdu.split_off(UNTAGGED);
        let message = match (wg::htype(&message), self.is_call) {
            (Some(htype), _) => self.of_wg(htype, message)?,
            (None, true) => self.call(message)?,
            (None, false) => self.reply(message)?,
        };
        ulpdu.extend(message);
        Some(ulpdu)
    }

    /// Returns the message of version-two-07 that is passed on, if any.
    fn of_wg(&self, htype: u32, mut message: Vec<u8>) -> Option<Vec<u8>> {
        // The client's first message tells the two versions 2 apart.
        if self.is_call && (wg::CONNPROP_MIDDLE..=wg::CALL_INLINE).contains(&htype) {
            self.is_wg.store(true, Ordering::SeqCst);
        }
        if !self.is_wg.load(Ordering::SeqCst) {
            return Some(message);
        }
        let is_error = !self.is_call && htype == wg::ERROR;
        match self.defect {
            Defect::WgOneCredit if self.is_call => {
                self.passed.fetch_add(1, Ordering::SeqCst);
            }
            Defect::WgOneCredit => {
                let limit = self.passed.load(Ordering::SeqCst).wrapping_add(1);
                message = wg::with_credit(message, limit);
            }
            Defect::WgZeroGrant if !self.is_call => message[8..12].fill(0),
            Defect::WgDeafToGrants if self.is_call && htype == wg::GRANT => return None,
            Defect::WgLimitIgnored if self.is_call => {
                message = wg::with_credit(message, wg::CREDIT);
            }
            Defect::WgNoError if is_error => return None,
            Defect::WgWrongError if is_error && message.get(19) == Some(&5) => message[19] = 100,
            Defect::WgUnbackedGrant if self.is_call && htype == wg::CALL_INLINE => {
                let before = self.in_progress.fetch_add(1, Ordering::SeqCst);
                return (before < BACKED).then_some(message);
            }
            Defect::WgUnbackedGrant if !self.is_call && (is_error || htype > wg::CALL_INLINE) => {
                // Calls at once are in progress at once, however fast the server is.
                std::thread::sleep(SERVICE);
                let less = |calls: u32| calls.checked_sub(1);
                let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
                // An error may be about something else than a call.
                let _ = self.in_progress.fetch_update(set, fetch, less);
            }
            _ => {}
        }
        Some(message)
    }

    fn call(&self, mut message: Vec<u8>) -> Option<Vec<u8>> {
        if self.defect == Defect::Mute {
            return None;
        }
        if self.defect == Defect::AnyPresent && message.get(4..8) == Some(&[0, 0, 0, 1]) {
            message = with_present_items(&message).unwrap_or(message);
        }
        let Some(Message::Rpc(header, payload)) = v1::parse(&message) else {
            return Some(message);
        };
        let mut shared = self.shared.lock().unwrap();
        shared.calls.push(header.clone());
        let reply_room: u64 = header
            .reply
            .iter()
            .flatten()
            .map(|it| u64::from(it.length))
            .sum();
        match self.defect {
            Defect::LongReplyChunk if reply_room > 1 << 20 => None,
            // Every procedure but NULL, which the judge repeats with the same XID on each connection.
            Defect::LostReply if payload.get(20..24).is_some_and(|it| it != [0; 4]) => {
                shared.seen.insert(message.clone()).then_some(message)
            }
            Defect::InlineCut
                if header.reads.is_empty() && payload.get(20..24) == Some(&[0, 0, 0, 7]) =>
            {
                let before_data = message.len() - payload.len() + args_end(&payload);
                if let Some(lost) = message.get_mut(before_data + 8192..) {
                    lost.fill(0);
                }
                Some(message)
            }
            Defect::OtherChoices
                if header.version == 1 && header.reads.is_empty() && is_null(&payload) =>
            {
                let (writes, reply) = (Vec::new(), None);
                let header = Header {
                    writes,
                    reply,
                    ..header
                };
                Some(header.with(&payload))
            }
            _ => Some(message),
        }
    }

    fn reply(&mut self, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let parsed = v1::parse(&message)?;
        let shared = self.shared.lock().unwrap();
        let xid = u32::from_be_bytes(message[..4].try_into().unwrap());
        let call = shared.calls.iter().rev().find(|call| call.xid == xid);
        match (self.defect, parsed) {
            (Defect::ZeroGrant, _) => message[8..12].fill(0),
            (Defect::UnclampedGrant, Message::Rpc(..)) => {
                message[8..12].copy_from_slice(&call?.credits.to_be_bytes());
            }
            (Defect::NoErrChunk, Message::Error(_, _, words)) if words == [v1::ERR_CHUNK] => {
                return None;
            }
            (Defect::OfferedLengths, Message::Rpc(header, payload)) => {
                let writes = call?.writes.clone();
                message = Header { writes, ..header }.with(&payload);
            }
            (Defect::OtherChoices | Defect::LongNull, Message::Rpc(header, payload))
                if header.version == 1
                    && payload.len() == NULL_REPLY
                    && call.is_some_and(|it| has_room(it, payload.len())) =>
            {
                let mut chunk = call?.reply.clone()?;
                let first = *chunk.first()?;
                self.writes
                    .push(Tagged::write(first.handle, first.offset, &payload));
                if self.defect == Defect::OtherChoices {
                    chunk = empty(&chunk);
                    chunk[0].length = payload.len() as u32;
                }
                let long = Header {
                    procedure: v1::NOMSG,
                    writes: call?.writes.iter().map(|it| empty(it)).collect(),
                    reply: Some(chunk),
                    ..header
                };
                message = long.with(&[]);
            }
            (Defect::OtherChoices, Message::Rpc(header, payload))
                if header.version == 1 && header.writes.is_empty() =>
            {
                let whole = Header {
                    writes: call?.writes.iter().map(|it| empty(it)).collect(),
                    reply: header.reply.or_else(|| call?.reply.as_deref().map(empty)),
                    ..header
                };
                message = whole.with(&payload);
            }
            (Defect::OtherChoices, Message::Error(_, 1, _)) if call.is_some_and(is_unfit) => {
                message = v1::header(xid).with(&rpc::accepted(xid, GARBAGE_ARGS, &[]));
            }
            // A READ whose only mistake is a chunk that is too short.
            (Defect::OtherChoices, Message::Error(_, 1, _))
                if call.is_some_and(|it| it.reads.is_empty() && is_too_short(it)) =>
            {
                let refused = Header {
                    writes: call?.writes.iter().map(|it| empty(it)).collect(),
                    reply: call?.reply.as_deref().map(empty),
                    ..v1::header(xid)
                };
                message = refused.with(&rpc::accepted(xid, SYSTEM_ERR, &[]));
            }
            _ => {}
        }
        Some(message)
    }
}

/// The bytes of a reply without results.
const NULL_REPLY: usize = 24;

/// Returns a chunk none of which is used.
fn empty(chunk: &[Segment]) -> Vec<Segment> {
    let empty = chunk.iter().map(|it| Segment { length: 0, ..*it });
    empty.collect()
}

/// Returns whether the first segment of a call's Reply chunk has room for a reply.
fn has_room(call: &Header, length: usize) -> bool {
    let first = call.reply.as_ref().and_then(|it| it.first());
    first.is_some_and(|it| it.length as usize >= length)
}

/// Returns whether a call has Read chunks that could be those of some payload, but not of this call's, for which the
/// server has no other reason to answer ERR_CHUNK.
fn is_unfit(call: &Header) -> bool {
    let is_possible = |(position, segment): &(u32, Segment)| {
        let end = segment.offset.checked_add(segment.length.into());
        *position > 0 && position % 4 == 0 && end.is_some()
    };
    call.procedure == v1::MSG && !call.reads.is_empty() && call.reads.iter().all(is_possible)
}

/// Returns whether a call has the only chunk of a READ that is one byte too short, or has no room at all.
fn is_too_short(call: &Header) -> bool {
    let chunks: Vec<&Vec<Segment>> = call.writes.iter().chain(&call.reply).collect();
    let [chunk] = chunks[..] else {
        return false;
    };
    let room: u64 = chunk.iter().map(|it| u64::from(it.length)).sum();
    call.procedure == v1::MSG && !chunk.is_empty() && matches!(room, 0 | 8191)
}

/// Returns whether this is a call of NULL.
fn is_null(payload: &[u8]) -> bool {
    payload.get(20..24) == Some(&[0; 4])
}

/// Returns a call all of whose items are present with 1, if its lists are whole.
fn with_present_items(message: &[u8]) -> Option<Vec<u8>> {
    const FIXED: usize = 16;
    const SEGMENT: usize = 16;
    let mut out = message.to_vec();
    let mut at = FIXED;
    let word = |out: &[u8], at: usize| {
        let word = out.get(at..at + 4)?;
        Some(u32::from_be_bytes(word.try_into().ok()?))
    };
    for list in 0..3 {
        while word(&out, at)? != 0 {
            out[at..at + 4].copy_from_slice(&1_u32.to_be_bytes());
            at += 4;
            at += match list {
                0 => 4 + SEGMENT,
                _ => 4 + SEGMENT.checked_mul(word(&out, at)? as usize)?,
            };
            // There is at most one Reply chunk.
            if list == 2 {
                at -= 4;
                break;
            }
        }
        at += 4;
    }
    (at <= out.len()).then_some(out)
}

/// Returns where the data of a WRITE begins in its RPC message.
fn args_end(payload: &[u8]) -> usize {
    let word = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap()) as usize;
    // Credential, verifier, file handle; then offset, count, stable and the length of the data.
    let mut at = 24;
    for _ in 0..2 {
        at += 8 + word(at + 4).next_multiple_of(4);
    }
    at + 4 + word(at).next_multiple_of(4) + 20
}
