//! Checks of messages by what their receiver has announced: its limit on messages, its sizes and its other
//! properties (sections 4.2.1, 4.2.2, 4.3 and 5).

use rpcrdma_chunks::Chunks;
use rpcrdma_ext_wg_ddp::property_id;
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_v2_wg::{Property, ReverseSupport};

use super::super::{Conversation, Out, Sent};
use crate::call::Message;
use crate::rules;

/// Longest message in bytes before any property is known (section 4.2.2).
const THRESHOLD: u64 = 4096;
/// Longest first message of a client in bytes (section 4.3).
const FIRST_MESSAGE: u64 = 1024;

impl Conversation {
    /// Takes the credit field of a message: the number of messages that the other end may have sent.
    pub(super) fn take_limit(&mut self, from: usize, credit: u32, sent: &Sent, out: &mut Out<'_>) {
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

    pub(super) fn check_limit(
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

    pub(super) fn check_sizes(
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

    /// Notes whether a message has used up what its sender may send.
    pub(super) fn note_limit(&mut self, from: usize) {
        let end = &mut self.ends[from];
        end.two_wg.is_exhausted = end.sent >= end.two_wg.limit;
    }

    pub(super) fn properties(
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

    /// Checks a call by what its receiver has announced (sections 5.2.3 to 5.2.5).
    pub(super) fn check_announced(
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
