//! Calls and replies, in what all versions have in common.

use onc_rpc::padded;
use rpcrdma_chunks::{
    CallChunks, Chunks, Direction, ReplyViolation, Violation, WriteChunk, check_returned,
};

use super::{Conversation, Out, Pending, Sent, rpc_direction};
use crate::call::{At, Call, List, Message, MessageKind, Outcome, Procedure, Version};
use crate::limits::{HEAD, MAX_CALLS};
use crate::rules::{self, Rule};

/// A call or a reply whose parts are all there.
pub(super) struct Whole<'a> {
    pub(super) version: Version,
    pub(super) xid: u32,
    pub(super) credits: u32,
    /// Whether the RPC message is in a chunk.
    pub(super) is_long: bool,
    pub(super) chunks: &'a Chunks,
    /// The beginning of the payload, as far as it is kept and in the capture.
    pub(super) head: &'a [u8],
    /// Length of the payload in bytes, of all parts.
    pub(super) inline: u64,
    /// The lengths of items that were placed by Sends.
    pub(super) placed: &'a [u32],
    /// The handle that the reply may invalidate, where the header names one.
    pub(super) inv_handle: Option<u32>,
}

impl Conversation {
    /// Begins a call with its first message. Its XID must be free.
    pub(super) fn begin_call(
        &mut self,
        from: usize,
        xid: u32,
        version: Version,
        at: (At, At),
        out: &mut Out<'_>,
    ) {
        if self.client.is_none() {
            self.set_client(from);
            self.announce(out);
        }
        if let Some(before) = self.remove_call(from, xid) {
            let detail = format!("called in packet {}", before.call.started.packet);
            self.breach(&rules::DUPLICATE_XID, at.1, Some(xid), detail, out);
            self.deliver(before, Outcome::Replaced, out);
        }
        let caller = self.side(from);
        let end = &mut self.ends[from];
        if end.calls.len() >= MAX_CALLS {
            return;
        }
        let call = Call {
            connection: self.connection.id,
            caller,
            xid,
            version,
            procedure: None,
            started: at.0,
            replied: None,
            outcome: Outcome::Unanswered,
            messages: Vec::new(),
            operations: Vec::new(),
            segments: Vec::new(),
            call_length: None,
            reply_length: None,
            placed: 0,
            outstanding: end.calls.len() as u32,
            // A grant of version-two-07 counts messages of all kinds and not calls.
            granted: (version != Version::TwoWg)
                .then(|| end.credits.granted())
                .flatten(),
            is_incomplete: false,
        };
        let pending = Pending {
            call,
            offered: Chunks::default(),
            is_long: false,
            inv_handle: None,
            heads: Default::default(),
            credits: 0,
        };
        end.calls.insert(xid, pending);
    }

    /// Removes a call, with its memory and its credits.
    pub(super) fn remove_call(&mut self, from: usize, xid: u32) -> Option<Pending> {
        let end = &mut self.ends[from];
        let pending = end.calls.remove(&xid)?;
        end.regions.withdraw(xid, &pending.call.segments);
        end.credits.give_back(pending.credits);
        Some(pending)
    }

    /// Passes a call that has ended to the sink.
    pub(super) fn deliver(&mut self, pending: Pending, outcome: Outcome, out: &mut Out<'_>) {
        let Pending {
            mut call,
            heads: [head, _],
            ..
        } = pending;
        call.procedure = procedure(&head);
        call.outcome = outcome;
        out.sink.call(&self.connection, call);
    }

    /// Checks that header and RPC message agree on the XID.
    fn check_xid(&mut self, xid: u32, head: &[u8], at: At, out: &mut Out<'_>) {
        let Some(word) = head.first_chunk() else {
            return;
        };
        let found = u32::from_be_bytes(*word);
        if found != xid {
            let detail = format!("{xid:#010x} in the header, {found:#010x} in the RPC message");
            self.breach(&rules::XID, at, Some(xid), detail, out);
        }
    }

    /// Checks that header and RPC message agree on XID and direction.
    fn check_head(
        &mut self,
        direction: Direction,
        whole: &Whole<'_>,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let at = sent.span.last;
        if whole.is_long {
            return;
        }
        if whole.inline < 8 {
            let detail = format!("{} bytes", whole.inline);
            self.breach(&rules::NO_PAYLOAD, at, Some(whole.xid), detail, out);
            return;
        }
        self.check_xid(whole.xid, whole.head, at, out);
        if whole.head.len() >= 8 && rpc_direction(whole.head) != Some(direction) {
            let detail = format!("{direction} in the header");
            self.breach(&rules::DIRECTION, at, Some(whole.xid), detail, out);
        }
    }

    /// Handles a call whose parts are all there. [`Conversation::begin_call`] has begun it.
    pub(super) fn call(&mut self, from: usize, whole: &Whole<'_>, sent: &Sent, out: &mut Out<'_>) {
        let (xid, at, chunks) = (whole.xid, sent.span.last, whole.chunks);
        self.check_head(Direction::Call, whole, sent, out);
        let placed: u64 = whole.placed.iter().map(|&len| padded(len.into())).sum();
        // Positions count the items before them, those that Sends place included. Where they are mixed,
        // only the receiver's arithmetic tells.
        let inline = whole.inline + placed;
        let checked = CallChunks::new(chunks.clone(), whole.is_long, inline, u64::MAX);
        let items: u64 = match &checked {
            Ok(checked) => checked
                .items
                .iter()
                .map(|it| padded(it.length.into()))
                .sum(),
            Err(violation) => {
                let rule = call_rule(violation);
                self.breach(rule, at, Some(xid), violation.to_string(), out);
                0
            }
        };
        let long = checked
            .ok()
            .and_then(|it| it.payload)
            .map(|it| u64::from(it.length));
        for read in &chunks.reads {
            self.offer(from, xid, List::Read(read.position), &read.segment);
        }
        for (index, chunk) in chunks.writes.iter().enumerate() {
            for segment in chunk {
                self.offer(from, xid, List::Write(index as u32), segment);
            }
        }
        for segment in chunks.reply.iter().flatten() {
            self.offer(from, xid, List::Reply, segment);
        }
        let Some(pending) = self.ends[from].calls.get_mut(&xid) else {
            return;
        };
        pending.offered = chunks.clone();
        pending.is_long = whole.is_long;
        pending.inv_handle = whole.inv_handle;
        pending.call.placed += whole.placed.iter().map(|&len| u64::from(len)).sum::<u64>();
        pending.call.call_length = Some(long.unwrap_or(inline) + items);
        if !whole.is_long {
            pending.heads[0] = whole.head[..whole.head.len().min(HEAD)].to_vec();
        }
    }

    /// Handles a reply whose parts are all there, or an answer with such chunks. `message` is its last
    /// message.
    pub(super) fn reply(
        &mut self,
        from: usize,
        whole: &Whole<'_>,
        sent: &Sent,
        message: Message,
        out: &mut Out<'_>,
    ) {
        let (xid, at) = (whole.xid, sent.span.last);
        self.check_head(Direction::Reply, whole, sent, out);
        self.list(1 - from, xid, message.clone());
        let Some(mut pending) = self.answered(from, xid, sent, out) else {
            if !whole.chunks.reads.is_empty() {
                let detail = format!("{} segments", whole.chunks.reads.len());
                self.breach(&rules::REPLY_READS, at, Some(xid), detail, out);
            }
            out.sink.other(&self.connection, message);
            return;
        };
        let (chunks, inline) = (whole.chunks, whole.inline);
        let offered = std::mem::take(&mut pending.offered);
        let mut long = None;
        match check_returned(chunks, whole.is_long, inline, &offered) {
            Ok(returned) => long = returned.long,
            Err(violation) => {
                let rule = reply_rule(&violation);
                self.breach(rule, at, Some(xid), violation.to_string(), out);
            }
        }
        let placed: u64 = whole.placed.iter().map(|&len| padded(len.into())).sum();
        let mut length = long.unwrap_or(inline) + placed;
        for (index, chunk) in chunks.writes.iter().enumerate() {
            let list = List::Write(index as u32);
            length += padded(self.returned(&mut pending, list, chunk, at, out));
        }
        if let Some(chunk) = &chunks.reply {
            self.returned(&mut pending, List::Reply, chunk, at, out);
        }
        if whole.is_long {
            let head = std::mem::take(&mut pending.heads[1]);
            self.check_xid(xid, &head, at, out);
        }
        if pending.is_long {
            let head = std::mem::take(&mut pending.heads[0]);
            self.check_xid(xid, &head, pending.call.started, out);
            pending.heads[0] = head;
        }
        pending.call.placed += whole.placed.iter().map(|&len| u64::from(len)).sum::<u64>();
        pending.call.reply_length = Some(length);
        pending.call.replied = Some(at);
        self.deliver(pending, Outcome::Replied, out);
    }

    /// Returns the call that a reply or an error answers, without its memory, and checks what the
    /// message invalidates.
    pub(super) fn answered(
        &mut self,
        from: usize,
        xid: u32,
        sent: &Sent,
        out: &mut Out<'_>,
    ) -> Option<Pending> {
        let at = sent.span.last;
        let Some(pending) = self.remove_call(1 - from, xid) else {
            if self.is_whole() {
                self.breach(&rules::UNMATCHED, at, Some(xid), String::new(), out);
            }
            return None;
        };
        if let Some(handle) = sent.invalidates {
            let detail = format!("handle {handle:#010x}");
            let known = match pending.inv_handle {
                Some(0) => {
                    self.breach(&rules::NO_INVALIDATION, at, Some(xid), detail, out);
                    return Some(pending);
                }
                Some(named) => named == handle,
                None => pending.call.segments.iter().any(|it| it.handle == handle),
            };
            if !known {
                self.breach(&rules::INVALIDATED, at, Some(xid), detail, out);
            }
        }
        Some(pending)
    }

    /// Notes the lengths that a reply returns for a chunk. Returns their sum.
    fn returned(
        &mut self,
        pending: &mut Pending,
        list: List,
        chunk: &WriteChunk,
        at: At,
        out: &mut Out<'_>,
    ) -> u64 {
        let segments = pending
            .call
            .segments
            .iter_mut()
            .filter(|it| it.list == list);
        let mut lacking = None;
        let mut sum = 0;
        for (segment, returned) in segments.zip(chunk) {
            segment.returned = Some(returned.length);
            sum += u64::from(returned.length);
            if segment.moved < returned.length.into() {
                lacking.get_or_insert((segment.moved, returned.length));
            }
        }
        if let Some((moved, length)) = lacking
            && self.is_whole()
            && !pending.call.is_incomplete
        {
            let detail = format!("{length} bytes are returned, and {moved} were written");
            self.breach(
                &rules::WRONG_LENGTH,
                at,
                Some(pending.call.xid),
                detail,
                out,
            );
        }
        sum
    }

    /// Handles an error of the transport.
    pub(super) fn error(
        &mut self,
        from: usize,
        (xid, credits): (u32, Option<u32>),
        what: String,
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let at = sent.span.last;
        message.kind = MessageKind::Error;
        message.summary.clone_from(&what);
        self.breach(&rules::ERROR_REPORTED, at, Some(xid), what.clone(), out);
        if let Some(credits) = credits {
            self.ends[1 - from].credits.grant(credits, true, at.time);
        }
        self.list(1 - from, xid, message.clone());
        match self.remove_call(1 - from, xid) {
            Some(mut pending) => {
                pending.call.replied = Some(at);
                self.deliver(pending, Outcome::Failed(what), out);
            }
            None => out.sink.other(&self.connection, message),
        }
    }
}

/// Returns the procedure of a call.
fn procedure(head: &[u8]) -> Option<Procedure> {
    let word = |index: usize| {
        let word = head.get(4 * index..)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    };
    (word(1)? == onc_rpc::CALL).then_some(())?;
    Some(Procedure {
        program: word(3)?,
        version: word(4)?,
        number: word(5)?,
    })
}

/// Returns the rule of which a codec found a violation in a call.
fn call_rule(violation: &Violation) -> &'static Rule {
    match violation {
        Violation::ErrorProcedure => &rules::DIRECTION,
        Violation::Xid { .. } => &rules::XID,
        Violation::UnalignedPosition(_) | Violation::Overlap(_) | Violation::BeyondPayload(_) => {
            &rules::POSITION
        }
        Violation::NoPayload => &rules::NO_PAYLOAD,
        Violation::TwoPayloads | Violation::PayloadAfterNoMsg(_) => &rules::TWO_PAYLOADS,
        Violation::UnpaddedPayload(_) | Violation::TooLong { .. } => &rules::WRONG_LENGTH,
        Violation::SegmentWraps(_) => &rules::SEGMENT_WRAPS,
    }
}

/// Returns the rule of which a codec found a violation in a reply.
fn reply_rule(violation: &ReplyViolation) -> &'static Rule {
    match violation {
        ReplyViolation::ReadList => &rules::REPLY_READS,
        ReplyViolation::WriteCount { .. }
        | ReplyViolation::ReplyChunkNotOffered
        | ReplyViolation::SegmentCount { .. }
        | ReplyViolation::OtherSegment
        | ReplyViolation::Gap => &rules::RETURNED_CHUNKS,
        ReplyViolation::SegmentTooLong { .. } | ReplyViolation::UnpaddedPayload(_) => {
            &rules::WRONG_LENGTH
        }
        ReplyViolation::NoPayload => &rules::NO_PAYLOAD,
        ReplyViolation::TwoPayloads | ReplyViolation::PayloadAfterNoMsg(_) => &rules::TWO_PAYLOADS,
    }
}
