//! Calls and replies in one or several parts (sections 6.3.6, 6.3.9 and 7.1.4), and external ones.

use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_ext_wg_ddp::PlacedItem;
use rpcrdma_v2_wg::Prefix;
use smallvec::SmallVec;

use super::super::rpc::Whole;
use super::super::{Conversation, Out, Sent};
use crate::call::{Message, MessageKind, Version};
use crate::limits::{HEAD, MAX_PARTS};
use crate::rules;

/// The parts of a message so far.
#[derive(Debug)]
pub(in crate::conversation) struct Parts {
    pub(super) direction: Direction,
    pub(super) xid: u32,
    pub(super) is_placed: bool,
    /// Bytes of the payload, and messages of a placed message, that are to come.
    pub(super) remaining: u64,
    pub(super) messages: u32,
    pub(super) lengths: Vec<u64>,
    pub(super) head: Vec<u8>,
    pub(super) inline: u64,
    pub(super) is_refused: bool,
}

/// A part of a call or reply.
pub(super) struct Part<'a> {
    pub(super) direction: Direction,
    pub(super) is_placed: bool,
    /// Bytes of the payload that follow, and messages; `None` in the last part.
    pub(super) following: Option<(u32, u32)>,
    /// The beginning of the payload, and its length in bytes.
    pub(super) head: &'a [u8],
    pub(super) payload: u64,
    pub(super) chunks: &'a Chunks,
    pub(super) items: &'a [PlacedItem],
    pub(super) inv_handle: Option<u32>,
}

impl Conversation {
    /// Checks that a message may stand here, which is a part of this message or none. Only a grant or
    /// an error may stand between the parts of a message or of the properties.
    pub(super) fn check_place(
        &mut self,
        from: usize,
        part: Option<(Direction, u32, bool)>,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let state = &mut self.ends[from].two_wg;
        let at = sent.span.last;
        if state.properties_begun && part.is_some() {
            state.properties_begun = false;
            self.breach(&rules::PROPERTIES_INTERRUPTED, at, None, String::new(), out);
            return;
        }
        let continues = |parts: &Parts| part == Some((parts.direction, parts.xid, parts.is_placed));
        if let Some(parts) = state.parts.take_if(|parts| !continues(parts))
            && !parts.is_refused
        {
            let detail = format!("XID {:#010x}", parts.xid);
            self.breach(&rules::PART_INTERRUPTED, at, None, detail, out);
        }
    }

    pub(super) fn external(
        &mut self,
        from: usize,
        prefix: &Prefix,
        (chunks, inv_handle): (&Chunks, Option<u32>),
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        self.check_place(from, Some((Direction::Call, prefix.xid, false)), sent, out);
        let whole = Whole {
            version: Version::TwoWg,
            xid: prefix.xid,
            credits: prefix.credit,
            is_long: true,
            chunks,
            head: &[],
            inline: 0,
            placed: &[],
            inv_handle,
        };
        let at = (sent.span.first, sent.span.last);
        if inv_handle.is_some() {
            message.kind = MessageKind::Call;
            self.check_announced(from, prefix.xid, chunks, (false, false), sent, out);
            self.begin_call(from, prefix.xid, Version::TwoWg, at, out);
            message.from = self.side(from);
            self.list(from, prefix.xid, message);
            self.call(from, &whole, sent, out);
        } else {
            message.kind = MessageKind::Reply;
            self.reply(from, &whole, sent, message, out);
        }
        self.note_limit(from);
    }

    pub(super) fn part(
        &mut self,
        from: usize,
        prefix: &Prefix,
        part: &Part<'_>,
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, is_call) = (prefix.xid, part.direction == Direction::Call);
        self.check_place(from, Some((part.direction, xid, part.is_placed)), sent, out);
        let begun = self.ends[from].two_wg.parts.take();
        let is_first = begun.is_none();
        message.waited = !is_first && self.ends[from].two_wg.is_exhausted && self.is_whole();
        self.note_limit(from);
        message.kind = match (is_call, is_first) {
            (true, true) => MessageKind::Call,
            (true, false) => MessageKind::CallPart,
            (false, true) => MessageKind::Reply,
            (false, false) => MessageKind::ReplyPart,
        };
        if is_call {
            let is_several = part.following.is_some() || !is_first;
            let reduced = !part.items.is_empty();
            self.check_announced(from, xid, part.chunks, (is_several, reduced), sent, out);
            if is_first {
                let at = (sent.span.first, sent.span.last);
                self.begin_call(from, xid, Version::TwoWg, at, out);
                message.from = self.side(from);
            }
        }
        let mut parts = begun.unwrap_or_else(|| Parts {
            direction: part.direction,
            xid,
            is_placed: part.is_placed,
            remaining: 0,
            messages: 0,
            lengths: Vec::new(),
            head: Vec::new(),
            inline: 0,
            is_refused: false,
        });
        let caller = if is_call { from } else { 1 - from };
        if !self.collect(&mut parts, is_first, part, sent, out) {
            parts.is_refused = true;
        }
        parts.lengths.push(sent.length);
        parts.inline += part.payload;
        let more = HEAD.saturating_sub(parts.head.len()).min(part.head.len());
        parts.head.extend_from_slice(&part.head[..more]);
        if let Some((remaining, _)) = part.following {
            message.summary = format!("part {}, {remaining} B to come", parts.lengths.len());
            self.list(caller, xid, message);
            if parts.lengths.len() < MAX_PARTS {
                self.ends[from].two_wg.parts = Some(parts);
            }
            return;
        }
        if parts.is_refused {
            self.list(caller, xid, message);
            return;
        }
        let placed: SmallVec<[u32; 1]> = part.items.iter().map(|item| item.length).collect();
        if !part.items.is_empty() {
            self.check_items(from, &parts, part, sent, out);
        }
        let whole = Whole {
            version: Version::TwoWg,
            xid,
            credits: prefix.credit,
            is_long: false,
            chunks: part.chunks,
            head: &parts.head,
            inline: parts.inline,
            placed: &placed,
            inv_handle: part.inv_handle,
        };
        if is_call {
            self.list(from, xid, message);
            self.call(from, &whole, sent, out);
        } else {
            self.reply(from, &whole, sent, message, out);
        }
    }

    /// Checks what a part says of those that follow. Returns whether it belongs to the message.
    fn collect(
        &mut self,
        parts: &mut Parts,
        is_first: bool,
        part: &Part<'_>,
        sent: &Sent,
        out: &mut Out<'_>,
    ) -> bool {
        let (xid, at, payload) = (Some(parts.xid), sent.span.last, part.payload);
        let (rest, left) = part.following.unwrap_or((0, 0));
        let rest = u64::from(rest);
        let mut is_good = true;
        if part.is_placed {
            let wrong = match part.following {
                Some(_) if left == 0 => true,
                _ => !is_first && left.checked_add(1) != Some(parts.messages),
            };
            if wrong {
                let detail = format!("{left} to come, after {}", parts.messages);
                self.breach(&rules::PLACED_COUNT, at, xid, detail, out);
                is_good = false;
            }
        }
        // The last part has a word of payload at least, so that something remains before it.
        let is_empty = part.following.is_some() && rest == 0;
        if !is_first && parts.remaining != payload + rest || is_empty && !part.is_placed {
            let detail = format!("{payload} bytes and {rest} to come, of {}", parts.remaining);
            self.breach(&rules::REMAINING, at, xid, detail, out);
            is_good = false;
        }
        if payload > sent.length || part.is_placed && payload % 4 != 0 {
            let detail = format!("{payload} of {} bytes", sent.length);
            self.breach(&rules::PAYLOAD_LENGTH, at, xid, detail, out);
            is_good = false;
        }
        parts.remaining = rest;
        parts.messages = left;
        is_good
    }
}
