//! Transfer modes in several parts: the continued format (section 6.6.2), with and without chunks.
//!
//! The base plan of the engine has the simple and the special format. Continuation adds calls with
//! items inline beyond the inline threshold, calls that offer no reply chunk because the reply may be
//! continued, and, as a last resort, continued replies that do not fit the chunks offered (section
//! 6.6.4).

use std::fmt;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use onc_rpc::{Message, padded, total_len};
use rpcrdma_chunks::{Chunks, WriteChunk, chunk_len, fill, unused};
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Cost, NotTransferred, PeerError, Planned, ReplyCandidate,
    ReplyCandidates, ReplyToPlan, TransferMode, Transmission, Transmissions,
};
use smallvec::SmallVec;
use transfer_plan::Limits;

use super::Base;
use super::parts::Division;
use crate::header::header_type;
use crate::limits::{CALL_INLINE_LEN, PREFIX_LEN, REPLY_INLINE_LEN};
use crate::{Body, Header};

/// Length in bytes of a segment of a write chunk, and of the two words before the segments: the
/// discriminant of the list and the number of segments.
const SEGMENT_LEN: u64 = 16;
const WRITE_CHUNK_LEN: u64 = 8;
/// Length in bytes of a segment in a read list, with its position and what announces it.
const READ_SEGMENT_LEN: u64 = 24;

/// The transfer plan of a call.
#[derive(Clone, Debug)]
struct CallPlan {
    /// Whether each item stays in the payload; the others are in read chunks.
    in_payload: SmallVec<[bool; 4]>,
    inline: u64,
    count: u32,
    replies: u32,
}

/// A transfer mode of the reply.
struct ReplyMode {
    write_chunks: SmallVec<[u64; 1]>,
    division: Division,
    unplaced: u64,
}

/// The transfer plan of a reply.
#[derive(Clone, Debug)]
struct ReplyPlan {
    /// Whether each item stays in the payload; the others are written to write chunks.
    in_payload: SmallVec<[bool; 4]>,
    /// The write list to return.
    writes: Vec<WriteChunk>,
    inline: u64,
    count: u32,
}

impl TransferMode for Base {
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let (shape, limits) = (call.shape, call.limits);
        let longest = shape.stream_len().max(call.need.stream_len());
        if longest > limits.max_message || !shape.payload().is_multiple_of(4) {
            return Vec::new();
        }
        let mut replies = reply_modes(call);
        if !self.may_have_continued_replies() {
            replies.retain(|reply| reply.division.count == 1);
        }
        let mut candidates = Vec::new();
        for in_payload in [true, false] {
            if !in_payload && shape.items().iter().all(|item| item.len == 0) {
                continue;
            }
            for reply in &replies {
                candidates.extend(candidate(call, in_payload, reply));
            }
        }
        if !self.may_continue_calls() {
            candidates.retain(|candidate| candidate.cost.transmissions == 1);
        }
        candidates
    }

    fn plan_state(&self) -> Option<u64> {
        // Nothing else that plans depend on is this end's own state.
        let calls = u64::from(self.may_continue_calls());
        Some(calls | u64::from(self.may_have_continued_replies()) << 1)
    }

    fn call_refused(&mut self, _: u32, error: PeerError) {
        self.no_continued_calls |= error == PeerError::UnsupportedType;
    }

    fn reply_refused(&mut self) {
        self.no_continued_replies = true;
    }

    fn send_call(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        let plan = plan.of::<CallPlan>()?;
        if plan.count > 1 && !self.may_continue_calls() {
            // The peer has refused the header type since.
            let reason = "the peer takes no continued calls";
            return Err(NotTransferred(reason.to_owned()));
        }
        let inv_handle = match self.config.offer_invalidation {
            true => preferred_handle(chunks).unwrap_or_default(),
            false => 0,
        };
        let body = Body::Call {
            external: false,
            inv_handle,
            chunks: chunks.clone(),
        };
        let kept = |index: usize| plan.in_payload.get(index).copied().unwrap_or_default();
        let types = (header_type::CALL_MIDDLE, header_type::CALL_INLINE);
        divide(xid, message, kept, body, plan.inline, plan.count, types)
    }

    /// Returns none: a reply is planned by the engine, and continued only if that is necessary.
    fn plan_reply(&mut self, _: &ReplyToPlan<'_>) -> ReplyCandidates {
        ReplyCandidates::new()
    }

    fn plan_last_resort(
        &self,
        reply: &ReplyToPlan<'_>,
        offered: &[WriteChunk],
    ) -> Option<ReplyCandidate> {
        let shape = reply.shape;
        let mut payload = shape.payload();
        if !payload.is_multiple_of(4) || shape.stream_len() > reply.limits.max_message {
            return None;
        }
        let mut left = offered.iter().enumerate();
        let mut list: Vec<WriteChunk> = offered.iter().map(|chunk| unused(chunk)).collect();
        let (mut writes, mut in_payload) = (SmallVec::new(), SmallVec::new());
        for (index, item) in shape.items().iter().enumerate() {
            // Each item that has bytes uses up a chunk, in order (RFC 8166, section 4.3.2.2). An item
            // that its chunk is too short for stays in the payload (section 6.6.4).
            let chunk = match item.len {
                0 => None,
                _ => left.next(),
            };
            let fits = chunk.filter(|(_, chunk)| item.len <= chunk_len(chunk));
            let filled = fits.and_then(|(at, chunk)| Some((at, fill(chunk, item.len).ok()?)));
            in_payload.push(filled.is_none());
            match filled {
                Some((at, filled)) => {
                    list[at] = filled;
                    writes.push((index, at));
                }
                None => payload += padded(item.len),
            }
        }
        let segments: u64 = list.iter().map(|chunk| chunk.len() as u64).sum();
        let header =
            REPLY_INLINE_LEN as u64 + WRITE_CHUNK_LEN * list.len() as u64 + SEGMENT_LEN * segments;
        let inline = reply.limits.inline_send;
        let division = Division::new(payload, inline, header)?;
        let cost = Cost {
            transmissions: division.count,
            wire_bytes: division.wire_bytes,
            unplaced: payload - shape.payload(),
            ..Cost::default()
        };
        let plan = ReplyPlan {
            in_payload,
            writes: list,
            inline,
            count: division.count,
        };
        Some(ReplyCandidate {
            cost,
            writes,
            plan: Arc::new(plan),
        })
    }

    fn send_reply(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        let plan = plan.of::<ReplyPlan>()?;
        let body = Body::Reply {
            external: false,
            chunks: Chunks {
                writes: plan.writes.clone(),
                ..Chunks::default()
            },
        };
        let kept = |index: usize| plan.in_payload.get(index).copied().unwrap_or_default();
        let types = (header_type::REPLY_MIDDLE, header_type::REPLY_INLINE);
        divide(xid, message, kept, body, plan.inline, plan.count, types)
    }
}

/// Returns the handle that a call should offer to be invalidated: preferably one of a write or
/// reply chunk, because the requester waits for that memory.
#[must_use]
pub fn preferred_handle(chunks: &Chunks) -> Option<u32> {
    let written = chunks.writes.iter().chain(&chunks.reply).flatten();
    let read = chunks.reads.iter().map(|read| read.segment.handle);
    written.map(|segment| segment.handle).chain(read).next()
}

/// Returns the transfer modes of the reply: without chunks, and with write chunks for its items.
fn reply_modes(call: &CallToPlan<'_>) -> Vec<ReplyMode> {
    let (need, limits) = (call.need, call.limits);
    let header = REPLY_INLINE_LEN as u64;
    let inline = limits.inline_receive;
    let all = Division::new(need.stream_len(), inline, header);
    let mut modes: Vec<ReplyMode> = all
        .map(|division| ReplyMode {
            write_chunks: SmallVec::new(),
            division,
            unplaced: need.items.iter().sum(),
        })
        .into_iter()
        .collect();
    // If the reply lacks an item, the next one takes its chunk. So each chunk has room for the
    // longest of its own item and all later ones (RFC 8166, section 4.3.2.2).
    let (mut write_chunks, mut longest) = (SmallVec::new(), 0);
    for &len in need.items.iter().rev() {
        longest = len.max(longest);
        if longest > 0 {
            write_chunks.insert(0, longest);
        }
    }
    let header = header + write_list_len(&write_chunks, limits);
    if !write_chunks.is_empty()
        && let Some(division) = Division::new(need.payload, inline, header)
    {
        modes.push(ReplyMode {
            write_chunks,
            division,
            unplaced: 0,
        });
    }
    modes
}

/// Returns the bytes that write chunks of these lengths add to a header.
fn write_list_len(chunks: &[u64], limits: &Limits) -> u64 {
    let segments: u64 = chunks.iter().map(|&len| limits.segments(len)).sum();
    WRITE_CHUNK_LEN * chunks.len() as u64 + SEGMENT_LEN * segments
}

fn candidate(call: &CallToPlan<'_>, in_payload: bool, reply: &ReplyMode) -> Option<CallCandidate> {
    let (shape, limits) = (call.shape, call.limits);
    let (mut payload, mut unplaced) = (shape.payload(), reply.unplaced);
    let mut header = CALL_INLINE_LEN as u64 + write_list_len(&reply.write_chunks, limits);
    let mut reads = SmallVec::new();
    for (index, item) in shape.items().iter().enumerate() {
        if in_payload || item.len == 0 {
            payload += item.in_stream();
            unplaced += item.len;
        } else {
            header += READ_SEGMENT_LEN * limits.segments(item.len);
            reads.push(index);
        }
    }
    let division = Division::new(payload, limits.inline_send, header)?;
    let replies = reply.division;
    if division.count == 1 && replies.count == 1 {
        // The base plan has it as well.
        return None;
    }
    let items = shape.items().iter();
    let plan = CallPlan {
        in_payload: items.map(|item| in_payload || item.len == 0).collect(),
        inline: limits.inline_send,
        count: division.count,
        replies: replies.count,
    };
    Some(CallCandidate {
        cost: Cost {
            transmissions: division.count,
            may_wait: true,
            wire_bytes: division.wire_bytes,
            unplaced,
            reply_transmissions: replies.count,
            reply_wire_bytes: replies.wire_bytes,
            ..Cost::default()
        },
        reads,
        write_chunks: reply.write_chunks.clone(),
        reply_chunk: None,
        plan: Arc::new(plan),
    })
}

/// Divides a message into parts of up to `inline` bytes. The last part has the header fields of
/// `body`. `types` are the header type of all parts but the last, and that of the last. `kept` says
/// whether an item stays in the payload.
///
/// # Errors
/// There would be more parts than `count`, the number that was planned.
fn divide(
    xid: u32,
    message: &Message,
    kept: impl FnMut(usize) -> bool,
    body: Body,
    inline: u64,
    count: u32,
    (middle, last): (u32, u32),
) -> Result<Transmissions, NotTransferred> {
    let header = Header {
        xid,
        credit: 0,
        body,
    };
    let payload = message.gather(kept);
    let len = total_len(&payload);
    let division = Division::new(len, inline, header.encoded_len() as u64);
    let division = division.filter(|division| division.count <= count);
    let parts = division.and_then(|division| division.cut(&payload));
    let parts = parts.ok_or_else(|| {
        NotTransferred("the chunk lists are longer than was planned with".to_owned())
    })?;
    let mut fields = header.encode();
    fields.advance(PREFIX_LEN);
    let transmission = |(payload, left): (_, u64)| match left {
        0 => Transmission::new(last, fields.clone(), payload),
        // Part of an RPC message, whose length has 32 bits.
        left => Transmission::new(middle, word(left as u32), payload),
    };
    Ok(parts.into_iter().map(transmission).collect())
}

fn word(value: u32) -> Bytes {
    let mut out = BytesMut::with_capacity(4);
    bytes::BufMut::put_u32(&mut out, value);
    out.freeze()
}

/// Returns the number of messages as text, and each item that is not `in_payload` with the work request that
/// transfers it.
fn described(count: u32, in_payload: &[bool], operation: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    let mut text = format!("{count} message{ending}");
    for (index, _) in in_payload.iter().enumerate().filter(|(_, kept)| !**kept) {
        text += &format!(", item {index} by {operation}");
    }
    text
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = described(self.count, &self.in_payload, "RDMA Read");
        let replies = described(self.replies, &[], "");
        write!(f, "call: {call}; reply: up to {replies}")
    }
}

impl fmt::Display for ReplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reply = described(self.count, &self.in_payload, "RDMA Write");
        write!(f, "reply: {reply}")
    }
}
