//! Messages of the working group's version 2 (version-two-07), and of its placement extension
//! (ext-wg-ddp).

mod placed;

use rpcrdma_chunks::{Chunks, Direction};
use rpcrdma_ext_wg_ddp::{NO_RESULTS, PlacedItem, Support, header_type, property_id};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2_wg::{
    Body, EXPERIMENTAL, ErrorBody, Header, HeaderError, Prefix, Properties, Property,
    ReverseSupport,
};
use smallvec::SmallVec;

use super::one::{form_rule, shown};
use super::rpc::Whole;
use super::{Conversation, Out, Sent};
use crate::call::{Message, MessageKind, Version};
use crate::limits::{HEAD, MAX_PARTS};
use crate::rules::{self, Rule};

/// Longest message in bytes before any property is known (section 4.2.2).
const THRESHOLD: u64 = 4096;
/// Longest first message of a client in bytes (section 4.3).
const FIRST_MESSAGE: u64 = 1024;

/// Properties that an end has announced, and the message in parts that it is sending.
#[derive(Debug)]
pub(super) struct State {
    properties: Properties,
    /// Whether messages with properties have begun, and whether the last one was sent.
    properties_begun: bool,
    properties_done: bool,
    structure: Option<BufferStructure>,
    support: Support,
    smallest_result: u32,
    /// The number of messages that it may have sent.
    limit: u64,
    /// Whether its last message has used the limit up.
    is_exhausted: bool,
    pub(super) parts: Option<Parts>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            properties: Properties::default(),
            properties_begun: false,
            properties_done: false,
            structure: None,
            support: Support::empty(),
            smallest_result: NO_RESULTS,
            limit: 1,
            is_exhausted: false,
            parts: None,
        }
    }
}

impl State {
    pub(super) fn receive_size(&self) -> Option<u32> {
        Some(self.properties.receive_size)
    }
}

/// The parts of a message so far.
#[derive(Debug)]
pub(super) struct Parts {
    direction: Direction,
    xid: u32,
    is_placed: bool,
    /// Bytes of the payload, and messages of a placed message, that are to come.
    remaining: u64,
    messages: u32,
    lengths: Vec<u64>,
    head: Vec<u8>,
    inline: u64,
    is_refused: bool,
}

/// A part of a call or reply.
struct Part<'a> {
    direction: Direction,
    is_placed: bool,
    /// Bytes of the payload that follow, and messages; `None` in the last part.
    following: Option<(u32, u32)>,
    /// The beginning of the payload, and its length in bytes.
    head: &'a [u8],
    payload: u64,
    chunks: &'a Chunks,
    items: &'a [PlacedItem],
    inv_handle: Option<u32>,
}

impl Conversation {
    pub(super) fn two_wg(&mut self, from: usize, sent: &Sent, out: &mut Out<'_>) {
        let (at, bytes) = (sent.span.last, sent.known());
        let Some(prefix) = Prefix::peek(&bytes) else {
            return;
        };
        let xid = prefix.xid;
        let decoded = Header::decode(&bytes);
        let is_grant = matches!(&decoded, Ok((header, _)) if header.body == Body::Grant);
        self.check_limit(from, is_grant, prefix.xid, sent, out);
        let is_version_error = matches!(
            &decoded,
            Ok((
                Header {
                    body: Body::Error(ErrorBody::Version { .. }),
                    ..
                },
                _
            ))
        );
        if !is_version_error {
            self.take_limit(from, prefix.credit, sent, out);
        }
        let (header, len) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                let known = match error.error {
                    HeaderError::HeaderType(number) => placed::placed_header(number, &bytes),
                    _ => None,
                };
                match known {
                    Some(Ok((fields, len))) => {
                        self.check_sizes(from, false, xid, sent, out);
                        self.placed_part(from, &prefix, &fields, (&bytes, len), sent, out);
                    }
                    Some(Err(reason)) => {
                        let rule = (form_rule(&reason), "malformed");
                        self.refused(from, rule, Some(xid), reason.to_string(), sent, out);
                    }
                    None => {
                        let rule = header_rule(&error.error);
                        let detail = error.error.to_string();
                        self.refused(from, (rule, "malformed"), error.xid, detail, sent, out);
                    }
                }
                return;
            }
        };
        let is_properties = matches!(header.body, Body::Properties { .. });
        self.check_sizes(from, is_properties, xid, sent, out);
        let name = name(header.body.header_type());
        let mut message = self.message(from, sent, MessageKind::Control, name, header.credit);
        message.header = len as u64;
        let none = Chunks::default();
        let direction = header.body.direction();
        let is_inline_reply = matches!(header.body, Body::Reply { .. });
        if sent.invalidates.is_some() && !is_inline_reply {
            self.breach(
                &rules::INVALIDATED,
                at,
                Some(xid),
                format!("by {name}"),
                out,
            );
        }
        match &header.body {
            Body::Error(error) => {
                let what = error.to_string();
                if let Some(parts) = &mut self.ends[1 - from].two_wg.parts
                    && parts.xid == xid
                {
                    parts.is_refused = true;
                }
                self.error(from, (xid, None), what, message, sent, out);
            }
            Body::Grant => {
                if xid != 0 {
                    let detail = format!("{xid:#010x}");
                    self.breach(&rules::GRANT_XID, at, Some(xid), detail, out);
                }
                out.sink.other(&self.connection, message);
            }
            Body::Properties { last, properties } => {
                let properties = properties.clone();
                self.properties(from, *last, &properties, message, sent, out);
            }
            Body::Middle { remaining, .. } => {
                let part = Part {
                    direction: direction.unwrap_or(Direction::Call),
                    is_placed: false,
                    following: Some((*remaining, 0)),
                    head: &bytes[len..],
                    payload: sent.length - len as u64,
                    chunks: &none,
                    items: &[],
                    inv_handle: None,
                };
                self.part(from, &prefix, &part, message, sent, out);
            }
            Body::Call {
                external: false,
                chunks,
                ..
            }
            | Body::Reply {
                external: false,
                chunks,
            } => {
                let inv_handle = match &header.body {
                    Body::Call { inv_handle, .. } => Some(*inv_handle),
                    _ => None,
                };
                message.summary = shown(chunks);
                let part = Part {
                    direction: direction.unwrap_or(Direction::Call),
                    is_placed: false,
                    following: None,
                    head: &bytes[len..],
                    payload: sent.length - len as u64,
                    chunks,
                    items: &[],
                    inv_handle,
                };
                self.part(from, &prefix, &part, message, sent, out);
            }
            Body::Call {
                inv_handle, chunks, ..
            } => {
                message.summary = shown(chunks);
                self.external(
                    from,
                    &prefix,
                    (chunks, Some(*inv_handle)),
                    message,
                    sent,
                    out,
                );
            }
            Body::Reply { chunks, .. } => {
                message.summary = shown(chunks);
                self.external(from, &prefix, (chunks, None), message, sent, out);
            }
        }
    }

    // ---------------------------------------------------------------------------------------------
    // Flow control and sizes (sections 4.2.1, 4.2.2 and 4.3)

    /// Takes the credit field of a message: the number of messages that the other end may have sent.
    fn take_limit(&mut self, from: usize, credit: u32, sent: &Sent, out: &mut Out<'_>) {
        if !self.is_whole() {
            return;
        }
        let peer = &mut self.ends[1 - from];
        // Messages of the peer may be on their way, so that a valid field can be behind their count.
        // The field is the low half of the count.
        let ahead = credit.wrapping_sub(peer.sent as u32).cast_signed();
        match peer.sent.checked_add_signed(ahead.into()) {
            Some(limit) if ahead < i32::MAX => {
                peer.two_wg.limit = peer.two_wg.limit.max(limit);
            }
            _ => {
                let detail = format!("{credit}, and the peer has sent {}", peer.sent);
                self.breach(&rules::CREDIT_RANGE, sent.span.last, None, detail, out);
            }
        }
    }

    fn check_limit(
        &mut self,
        from: usize,
        is_grant: bool,
        xid: u32,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let end = &mut self.ends[from];
        let (count, limit) = (end.sent, end.two_wg.limit);
        // The receiver keeps one more receive for a grant.
        if count > limit + u64::from(is_grant) && self.is_whole() {
            let detail = format!("message {count}, the limit is {limit}");
            self.breach(
                &rules::LIMIT_EXCEEDED,
                sent.span.last,
                Some(xid),
                detail,
                out,
            );
        }
    }

    fn check_sizes(
        &mut self,
        from: usize,
        is_properties: bool,
        xid: u32,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        if !self.is_whole() {
            return;
        }
        let (at, length) = (sent.span.last, sent.length);
        let own = &self.ends[from].two_wg.properties;
        let peer = &self.ends[1 - from].two_wg.properties;
        let (own, most) = match is_properties {
            true => (THRESHOLD, THRESHOLD),
            false => (own.send_size.into(), peer.receive_size.into()),
        };
        if length > most {
            let detail = format!("{length} bytes, where {most} are taken");
            self.breach(&rules::TOO_LONG, at, Some(xid), detail, out);
        }
        if self.client == Some(from) && self.ends[from].sent == 1 && length > FIRST_MESSAGE {
            let detail = format!("{length} bytes");
            self.breach(&rules::FIRST_TOO_LONG, at, Some(xid), detail, out);
        }
        if length > own {
            let detail = format!("{length} of {own} bytes");
            self.breach(&rules::SEND_SIZE, at, Some(xid), detail, out);
        }
    }

    // ---------------------------------------------------------------------------------------------
    // Properties (section 5)

    fn properties(
        &mut self,
        from: usize,
        is_last: bool,
        list: &[Property],
        message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let at = sent.span.last;
        if self.client.is_none() && self.ends[1 - from].sent == 0 {
            self.set_client(from);
        }
        self.check_place(from, None, sent, out);
        if self.ends[from].two_wg.properties_done {
            self.breach(&rules::PROPERTIES_AGAIN, at, None, String::new(), out);
        }
        for property in list {
            let known = matches!(
                property.id,
                1..=6
                    | property_id::STRUCTURE
                    | property_id::SUPPORT
                    | property_id::SMALLEST_RESULT
            );
            if !known {
                let detail = format!("property {}", property.id);
                self.breach(&rules::UNKNOWN_PROPERTY, at, None, detail, out);
            }
        }
        let state = &mut self.ends[from].two_wg;
        let bad = match state.properties.apply(list) {
            Err(bad) => Some(bad.to_string()),
            Ok(()) => state.apply_placement(list).err(),
        };
        state.properties_begun = !is_last;
        state.properties_done |= is_last;
        if let Some(detail) = bad {
            self.breach(&rules::PROPERTY_VALUE, at, None, detail, out);
        } else if is_last {
            let state = &mut self.ends[from].two_wg;
            let size = u64::from(state.properties.receive_size);
            let sum = state.structure.as_ref().map(BufferStructure::sum);
            if let Some(sum) = sum.filter(|sum| *sum != size) {
                state.structure = None;
                let detail = format!("{sum} bytes in a buffer of {size}");
                self.breach(&rules::BUFFER_STRUCTURE, at, None, detail, out);
            }
        }
        self.announce(out);
        out.sink.other(&self.connection, message);
    }

    // ---------------------------------------------------------------------------------------------
    // Messages in one or several parts (sections 6.3.6, 6.3.9 and 7.1.4)

    /// Checks that a message may stand here, which is a part of this message or none. Only a grant or
    /// an error may stand between the parts of a message or of the properties.
    fn check_place(
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

    fn external(
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

    /// Notes whether a message has used up what its sender may send.
    fn note_limit(&mut self, from: usize) {
        let end = &mut self.ends[from];
        end.two_wg.is_exhausted = end.sent >= end.two_wg.limit;
    }

    fn part(
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

    /// Checks a call by what its receiver has announced (sections 5.2.3 to 5.2.5).
    fn check_announced(
        &mut self,
        from: usize,
        xid: u32,
        chunks: &Chunks,
        (is_several, has_placed): (bool, bool),
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        if !self.is_whole() {
            return;
        }
        let at = sent.span.last;
        let peer = &self.ends[1 - from].two_wg.properties;
        let (most, count, reverse) = (peer.segment_size, peer.segment_count, peer.reverse);
        let reads = chunks.reads.iter().map(|read| &read.segment);
        let segments = || {
            reads
                .clone()
                .chain(chunks.writes.iter().chain(&chunks.reply).flatten())
        };
        if let Some(long) = segments().find(|segment| segment.length > most) {
            let detail = format!("{} of {most} bytes", long.length);
            self.breach(&rules::SEGMENT_SIZE, at, Some(xid), detail, out);
        }
        let found = segments().count();
        if found > count as usize {
            let detail = format!("{found} of {count}");
            self.breach(&rules::SEGMENT_COUNT, at, Some(xid), detail, out);
        }
        if self.client != Some(1 - from) {
            return;
        }
        // A call in reverse direction.
        let has_items = !chunks.reads.is_empty() || !chunks.writes.is_empty() || has_placed;
        let refused = match reverse {
            ReverseSupport::None => Some("none are taken"),
            ReverseSupport::Simple if is_several => Some("no calls in several parts are taken"),
            ReverseSupport::Simple | ReverseSupport::Continued if has_items => {
                Some("no items outside of the payload are taken")
            }
            _ => None,
        };
        if let Some(reason) = refused {
            self.breach(&rules::REVERSE, at, Some(xid), reason.into(), out);
        }
    }
}

/// Returns the rule that a header breaks.
fn header_rule(error: &HeaderError) -> &'static Rule {
    match error {
        HeaderError::TooShort(_) => &rules::SHORT,
        HeaderError::Version { .. } => &rules::VERSION,
        HeaderError::HeaderType(number) if EXPERIMENTAL.contains(number) => {
            &rules::UNKNOWN_OPERATION
        }
        HeaderError::HeaderType(_) => &rules::HEADER_TYPE,
        HeaderError::Malformed { reason, .. } | HeaderError::BadError(reason) => form_rule(reason),
        HeaderError::Property { .. } => &rules::PROPERTY_VALUE,
        HeaderError::Limit { .. } => &rules::FORM,
    }
}

/// Returns the name of a header type.
fn name(number: u32) -> &'static str {
    match number {
        4 => "RDMA2_ERROR",
        5 => "RDMA2_GRANT",
        6 => "RDMA2_CONNPROP_MIDDLE",
        7 => "RDMA2_CONNPROP_FINAL",
        8 => "RDMA2_CALL_EXTERNAL",
        9 => "RDMA2_CALL_MIDDLE",
        10 => "RDMA2_CALL_INLINE",
        11 => "RDMA2_REPLY_EXTERNAL",
        12 => "RDMA2_REPLY_MIDDLE",
        13 => "RDMA2_REPLY_INLINE",
        header_type::CALL_PLACED_MIDDLE => "RDMA2_CALL_PLACED_MIDDLE",
        header_type::CALL_PLACED => "RDMA2_CALL_PLACED",
        header_type::REPLY_PLACED_MIDDLE => "RDMA2_REPLY_PLACED_MIDDLE",
        header_type::REPLY_PLACED => "RDMA2_REPLY_PLACED",
        _ => "unknown",
    }
}
