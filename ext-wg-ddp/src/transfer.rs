//! Transfer modes with items placed by Sends.
//!
//! There are two transfer modes for calls. The first places the long items of the call. The second
//! is an RDMA2_CALL_INLINE without write chunks, for which the responder places the results. A
//! message is planned only if there are credits for all of its parts, because the receiver may keep
//! the receive buffers of all parts until the last one has arrived.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{Buf as _, Bytes};
use onc_rpc::Message;
use rpcrdma_chunks::{Chunks, WriteChunk, unused};
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Cost, NotTransferred, PeerError, Planned, ReplyCandidate,
    ReplyCandidates, ReplyToPlan, TransferMode, Transmission, Transmissions,
};
use rpcrdma_v2_wg::base::preferred_handle;
use rpcrdma_v2_wg::limits::{CALL_INLINE_LEN, PREFIX_LEN, REPLY_INLINE_LEN};
use rpcrdma_v2_wg::{Body, Header, header_type as base};
use smallvec::SmallVec;
use transfer_plan::Shape;

use crate::codec::limits::{CALL_LEN, ITEM_LEN, MAX_ITEMS, MAX_PARTS, REPLY_LEN};
use crate::emit::{Arranged, Parts};
use crate::header_type::{CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE};
use crate::last_reply::LastReply;
use crate::{CallPlaced, Placement, ReplyPlaced};

/// Length in bytes of a segment of a write chunk, and of the two words before the segments: the
/// discriminant of the list and the number of segments.
const SEGMENT_LEN: u64 = 16;
const WRITE_CHUNK_LEN: u64 = 8;

/// The transfer plan of a call.
#[derive(Debug)]
struct CallPlan {
    /// The layout, if items of the call are placed.
    arranged: Option<Arranged>,
    /// The number of messages in which the reply arrives, at most.
    replies: u32,
    /// Whether results are placed.
    results: bool,
    /// The encoded header fields, cached when the first call with this plan is sent. They are not cached if
    /// the call offers memory, whose handles differ from call to call.
    fields: OnceLock<Bytes>,
}

/// The transfer plan of a reply.
#[derive(Debug)]
struct ReplyPlan {
    arranged: Arranged,
    /// The encoded header fields.
    fields: Bytes,
}

/// A way to return the reply.
struct ReplyMode {
    write_chunks: SmallVec<[u64; 1]>,
    reply_chunk: Option<u64>,
    count: u32,
    wire_bytes: u64,
    unplaced: u64,
    placed: bool,
}

impl TransferMode for Placement {
    fn plan_state(&self) -> Option<u64> {
        // All that plans depend on are what the peer announces and what it has refused.
        let refused = u64::from(self.calls_refused) | u64::from(self.replies_refused) << 1;
        Some(self.announced << 2 | refused)
    }

    fn call_refused(&mut self, _: u32, error: PeerError) {
        self.calls_refused |= error == PeerError::UnsupportedType;
    }

    fn reply_refused(&mut self) {
        self.replies_refused = true;
    }

    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let shape = call.shape;
        let longest = shape.stream_len().max(call.need.stream_len());
        let known = shape.items().len() <= MAX_ITEMS && call.need.items.len() <= MAX_ITEMS;
        if longest > call.limits.max_message || !shape.payload().is_multiple_of(4) || !known {
            return Vec::new();
        }
        let replies = self.reply_modes(call);
        let mut candidates = Vec::new();
        for reply in &replies {
            candidates.extend(self.placed_call(call, reply));
            if reply.placed {
                candidates.extend(plain_call(call, reply));
            }
        }
        candidates
    }

    fn send_call(
        &mut self,
        xid: u32,
        plan: &dyn Planned,
        message: &Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        let plan = plan.of::<CallPlan>()?;
        if plan.arranged.is_some() && !self.places_calls() {
            let reason = "the peer has refused placed calls meanwhile, or properties of this end";
            return Err(NotTransferred(reason.to_owned()));
        }
        let Some(arranged) = &plan.arranged else {
            let stream = message.gather(|_| true);
            let info = plan.fields(chunks, || {
                let body = Body::Call {
                    external: false,
                    inv_handle: self.offered_handle(chunks),
                    chunks: chunks.clone(),
                };
                let header = Header {
                    xid,
                    credit: 0,
                    body,
                };
                let mut info = header.encode();
                info.advance(PREFIX_LEN);
                info
            });
            let call = Transmission::new(base::CALL_INLINE, info, stream);
            return Ok(Transmissions::from_iter([call]));
        };
        let lists = chunks.encoded_len() as u64 - Chunks::default().encoded_len() as u64;
        let header = CALL_LEN + lists + ITEM_LEN * arranged.items().len() as u64;
        let arranged = arranged.with_header(header)?;
        let fields = plan.fields(chunks, || {
            let fields = CallPlaced {
                inv_handle: self.offered_handle(chunks),
                chunks: chunks.clone(),
                items: SmallVec::from_slice(arranged.items()),
                payload: arranged.last_payload(),
            };
            fields.encode()
        });
        arranged.emit(fields, (CALL_PLACED, CALL_PLACED_MIDDLE), message)
    }

    /// Returns none: a placed call is treated like a call of the base protocol, so its reply is
    /// planned by [`TransferMode::plan_base_reply`], which may place the results.
    fn plan_reply(&mut self, _: &ReplyToPlan<'_>) -> ReplyCandidates {
        ReplyCandidates::new()
    }

    fn plan_base_reply(
        &mut self,
        reply: &ReplyToPlan<'_>,
        offered: &[WriteChunk],
    ) -> Option<ReplyCandidate> {
        if let Some(last) = &self.last_reply
            && offered.is_empty()
            && last.holds(reply)
        {
            return Some(last.candidate.clone());
        }
        let candidate = self.placed_reply(reply, offered)?;
        if offered.is_empty() {
            self.last_reply = Some(LastReply {
                shape: reply.shape.clone(),
                inline_send: reply.limits.inline_send,
                max_message: reply.limits.max_message,
                candidate: candidate.clone(),
            });
        }
        Some(candidate)
    }

    fn send_reply(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        let plan = plan.of::<ReplyPlan>()?;
        let types = (REPLY_PLACED, REPLY_PLACED_MIDDLE);
        plan.arranged.emit(plan.fields.clone(), types, message)
    }
}

impl Placement {
    /// Returns the handle that a call with these chunks offers to be invalidated, or zero.
    fn offered_handle(&self, chunks: &Chunks) -> u32 {
        let offered = preferred_handle(chunks).filter(|_| self.config.offer_invalidation);
        offered.unwrap_or_default()
    }

    /// Returns the transfer mode of a reply with its long items placed, to a call that offered these
    /// write chunks.
    fn placed_reply(
        &self,
        reply: &ReplyToPlan<'_>,
        offered: &[WriteChunk],
    ) -> Option<ReplyCandidate> {
        let shape = reply.shape;
        self.places_results().then_some(())?;
        let frame = self.peer_frame(reply.limits.inline_send)?;
        let least = u64::from(self.peer.smallest_result);
        let mut placed = SmallVec::<[usize; 1]>::new();
        let mut left = offered.iter();
        let with_bytes = shape.items().iter().enumerate();
        for (index, item) in with_bytes.filter(|(_, item)| item.len > 0) {
            match left.next() {
                // The requester wants the item where the base protocol puts it.
                Some(chunk) if !chunk.is_empty() => return None,
                Some(_) => {}
                None if item.len >= least => placed.push(index),
                None => {}
            }
        }
        let too_many = placed.len() > MAX_ITEMS;
        let too_long = shape.stream_len() > reply.limits.max_message;
        if placed.is_empty() || too_many || too_long || !shape.payload().is_multiple_of(4) {
            return None;
        }
        let writes: Vec<WriteChunk> = offered.iter().map(|chunk| unused(chunk)).collect();
        let header = ReplyPlaced::header_len(&writes, placed.len());
        let unplaced = unplaced(shape, &placed);
        let max = reply.credits.min(MAX_PARTS);
        let arranged = Arranged::new(&frame, header, shape, &placed, max)?;
        let cost = Cost {
            transmissions: arranged.count(),
            wire_bytes: arranged.wire_bytes(),
            unplaced,
            placed: 1,
            ..Cost::default()
        };
        let fields = ReplyPlaced {
            writes,
            items: SmallVec::from_slice(arranged.items()),
            payload: arranged.last_payload(),
        };
        let fields = fields.encode();
        Some(ReplyCandidate {
            cost,
            writes: SmallVec::new(),
            plan: Arc::new(ReplyPlan { arranged, fields }),
        })
    }

    /// Returns the transfer modes of the reply. One has the results placed. The other is inline
    /// without chunks, or, if that does not fit, has write chunks and, if needed, a reply chunk.
    fn reply_modes(&self, call: &CallToPlan<'_>) -> Vec<ReplyMode> {
        let (need, limits) = (call.need, call.limits);
        let least = u64::from(self.smallest_result());
        let long = |len: &&u64| **len > 0 && **len >= least;
        let lens: SmallVec<[u64; 1]> = need.items.iter().filter(long).copied().collect();
        let stream = need.stream_len();
        let mut modes = Vec::new();
        // The longest reply of which no result is placed, because all are shorter than asked for.
        let shortened = |len: &u64| onc_rpc::padded((*len).min(least.saturating_sub(1)));
        let unplaced = need.payload + need.items.iter().map(shortened).sum::<u64>();
        let fits = REPLY_INLINE_LEN as u64 + unplaced <= limits.inline_receive;
        if self.has_results_placed()
            && (fits || !self.replies_refused)
            && !lens.is_empty()
            && let Some(frame) = self.own_frame()
        {
            let short: u64 = need.items.iter().filter(|len| !long(len)).sum();
            let placed: u64 = lens.iter().map(|&len| onc_rpc::padded(len)).sum();
            let header = REPLY_LEN + ITEM_LEN * lens.len() as u64;
            let parts = Parts::new(frame.clone(), header, stream - placed, &lens, MAX_PARTS);
            modes.extend(parts.map(|parts| ReplyMode {
                write_chunks: SmallVec::new(),
                reply_chunk: None,
                count: parts.count(),
                wire_bytes: parts.wire_bytes(),
                unplaced: short,
                placed: true,
            }));
        }
        let header = REPLY_INLINE_LEN as u64;
        if header + stream <= limits.inline_receive {
            modes.push(ReplyMode {
                write_chunks: SmallVec::new(),
                reply_chunk: None,
                count: 1,
                wire_bytes: header + stream,
                unplaced: need.items.iter().sum(),
                placed: false,
            });
            return modes;
        }
        // Each write chunk has room for the longest of its own item and all later ones
        // (RFC 8166, section 4.3.2.2).
        let (mut write_chunks, mut longest) = (SmallVec::new(), 0);
        for &len in need.items.iter().rev() {
            longest = len.max(longest);
            if longest > 0 {
                write_chunks.insert(0, longest);
            }
        }
        let segments: u64 = write_chunks.iter().map(|&len| limits.segments(len)).sum();
        let lists = WRITE_CHUNK_LEN * write_chunks.len() as u64 + SEGMENT_LEN * segments;
        let fits = header + lists + need.payload <= limits.inline_receive;
        modes.push(ReplyMode {
            write_chunks,
            reply_chunk: (!fits).then_some(need.payload),
            count: 1,
            wire_bytes: header + lists + if fits { need.payload } else { 0 },
            unplaced: 0,
            placed: false,
        });
        modes
    }

    /// Returns the transfer mode with the call's long items placed.
    fn placed_call(&self, call: &CallToPlan<'_>, reply: &ReplyMode) -> Option<CallCandidate> {
        let least = u64::from(self.config.min_placed.max(1));
        let items = call.shape.items().iter().enumerate();
        let placed = items.filter(|(_, item)| item.len >= least);
        let placed: SmallVec<[usize; 1]> = placed.map(|(index, _)| index).collect();
        if placed.is_empty() || !self.places_calls() {
            return None;
        }
        let frame = self.peer_frame(call.limits.inline_send)?;
        let header = CALL_LEN + reply.lists_len(call) + ITEM_LEN * placed.len() as u64;
        let max = call.credits.min(MAX_PARTS);
        let arranged = Arranged::new(&frame, header, call.shape, &placed, max)?;
        let cost = Cost {
            transmissions: arranged.count(),
            wire_bytes: arranged.wire_bytes(),
            unplaced: unplaced(call.shape, &placed) + reply.unplaced,
            placed: 1 + u32::from(reply.placed),
            reply_transmissions: reply.count,
            reply_wire_bytes: reply.wire_bytes,
            ..Cost::default()
        };
        let plan = CallPlan {
            arranged: Some(arranged),
            replies: reply.count,
            results: reply.placed,
            fields: OnceLock::new(),
        };
        Some(reply.candidate(cost, plan))
    }
}

/// Returns the transfer mode of a call in one message without chunks, whose results are placed.
fn plain_call(call: &CallToPlan<'_>, reply: &ReplyMode) -> Option<CallCandidate> {
    let len = CALL_INLINE_LEN as u64 + call.shape.stream_len();
    (len <= call.limits.inline_send).then_some(())?;
    let unplaced: u64 = call.shape.items().iter().map(|item| item.len).sum();
    let cost = Cost {
        transmissions: 1,
        wire_bytes: len,
        unplaced: unplaced + reply.unplaced,
        placed: 1,
        reply_transmissions: reply.count,
        reply_wire_bytes: reply.wire_bytes,
        ..Cost::default()
    };
    let plan = CallPlan {
        arranged: None,
        replies: reply.count,
        results: true,
        fields: OnceLock::new(),
    };
    Some(reply.candidate(cost, plan))
}

impl ReplyMode {
    /// Returns the bytes that the chunks for the reply add to the call's header.
    fn lists_len(&self, call: &CallToPlan<'_>) -> u64 {
        let segments = |len: &u64| SEGMENT_LEN * call.limits.segments(*len);
        let writes = self.write_chunks.iter();
        let reply = self.reply_chunk.iter().map(|len| 4 + segments(len));
        writes
            .map(|len| WRITE_CHUNK_LEN + segments(len))
            .sum::<u64>()
            + reply.sum::<u64>()
    }

    fn candidate(&self, cost: Cost, plan: CallPlan) -> CallCandidate {
        CallCandidate {
            cost,
            reads: SmallVec::new(),
            write_chunks: self.write_chunks.clone(),
            reply_chunk: self.reply_chunk,
            plan: Arc::new(plan),
        }
    }
}

impl CallPlan {
    /// Returns the encoded header fields of a call with these chunks, which are the same for each call
    /// without chunks.
    fn fields(&self, chunks: &Chunks, encode: impl FnOnce() -> Bytes) -> Bytes {
        match chunks.is_empty() {
            true => self.fields.get_or_init(encode).clone(),
            false => encode(),
        }
    }
}

/// Returns the bytes of items that stay in the payload.
fn unplaced(shape: &Shape, placed: &[usize]) -> u64 {
    let items = shape.items().iter().enumerate();
    let kept = items.filter(|(index, _)| !placed.contains(index));
    kept.map(|(_, item)| item.len).sum()
}

/// Returns the number of messages as text, and each item that Sends place.
fn described(count: u32, arranged: Option<&Arranged>) -> String {
    let ending = if count == 1 { "" } else { "s" };
    let mut text = format!("{count} message{ending}");
    for index in arranged.map_or(&[][..], Arranged::placed) {
        text += &format!(", item {index} placed");
    }
    text
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.arranged.as_ref().map_or(1, Arranged::count);
        let call = described(count, self.arranged.as_ref());
        let replies = described(self.replies, None);
        write!(f, "call: {call}; reply: up to {replies}")?;
        match self.results {
            true => f.write_str(", its items placed"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for ReplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reply = described(self.arranged.count(), Some(&self.arranged));
        write!(f, "reply: {reply}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
