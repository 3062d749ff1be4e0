//! Messages of version 1 (RFC 8166).

use rpcrdma_chunks::{Chunks, Direction, Malformed, ReadSegment, WriteChunk};
use rpcrdma_v1::{Body, ErrorBody, Header, HeaderError};

use super::rpc::Whole;
use super::{Conversation, Out, Sent, rpc_direction};
use crate::call::{MessageKind, Version};
use crate::rules::{self, Rule};

impl Conversation {
    pub(super) fn one(&mut self, from: usize, sent: &Sent, out: &mut Out<'_>) {
        let (at, bytes) = (sent.span.last, sent.known());
        let (header, len) = match Header::decode(&bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                let (rule, name) = match &error {
                    HeaderError::TooShort(_) => (&rules::SHORT, "RDMA_MSG"),
                    HeaderError::Version { .. } => (&rules::VERSION, "unknown"),
                    HeaderError::Malformed { reason, .. }
                    | HeaderError::BadError { reason, .. } => (form_rule(reason), "malformed"),
                    HeaderError::Msgp { .. } => (&rules::RETIRED, "RDMA_MSGP"),
                    HeaderError::Done { .. } => (&rules::RETIRED, "RDMA_DONE"),
                };
                self.refused(
                    from,
                    (rule, name),
                    error.xid(),
                    error.to_string(),
                    sent,
                    out,
                );
                return;
            }
        };
        self.check_size(from, header.xid, sent, out);
        let (chunks, is_long) = match &header.body {
            Body::Msg(chunks) => (chunks, false),
            Body::NoMsg(chunks) => (chunks, true),
            Body::Error(error) => {
                let what = match error {
                    ErrorBody::Version { low, high } => format!("ERR_VERS ({low} to {high})"),
                    ErrorBody::Chunk => "ERR_CHUNK".into(),
                };
                let kind = MessageKind::Error;
                let message = self.message(from, sent, kind, "RDMA_ERROR", header.credits);
                let about = (header.xid, Some(header.credits));
                self.error(from, about, what, message, sent, out);
                return;
            }
        };
        let head = &bytes[len..];
        let has_call = self.has_call(1 - from, header.xid);
        let direction = match is_long {
            // Only a reply returns a reply chunk, and only a call has a read list.
            true if chunks.reads.is_empty() && (has_call || self.client != Some(from)) => {
                Direction::Reply
            }
            true => Direction::Call,
            false => rpc_direction(head).unwrap_or(match has_call {
                true => Direction::Reply,
                false => Direction::Call,
            }),
        };
        let name = if is_long { "RDMA_NOMSG" } else { "RDMA_MSG" };
        let whole = Whole {
            version: Version::One,
            xid: header.xid,
            credits: header.credits,
            is_long,
            chunks,
            head,
            inline: sent.length - len as u64,
            placed: &[],
            inv_handle: None,
        };
        if sent.invalidates.is_some() && self.is_whole() {
            let requester = self.private_data[1 - from].unwrap_or_default();
            if !requester.remote_invalidation() {
                let detail = String::new();
                self.breach(&rules::NO_INVALIDATION, at, Some(header.xid), detail, out);
            }
        }
        self.plain(from, (direction, name, len), &whole, sent, out);
    }

    /// Handles a call or a reply of one message, of a version that counts credits by calls.
    pub(super) fn plain(
        &mut self,
        from: usize,
        (direction, name, len): (Direction, &'static str, usize),
        whole: &Whole<'_>,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let at = sent.span.last;
        if whole.credits == 0 {
            self.breach(
                &rules::ZERO_CREDITS,
                at,
                Some(whole.xid),
                String::new(),
                out,
            );
        }
        let kind = match direction {
            Direction::Call => MessageKind::Call,
            Direction::Reply => MessageKind::Reply,
        };
        let mut message = self.message(from, sent, kind, name, whole.credits);
        message.header = len as u64;
        message.summary = shown(whole.chunks);
        match direction {
            Direction::Call => {
                let span = (sent.span.first, at);
                self.begin_call(from, whole.xid, whole.version, span, out);
                message.from = self.side(from);
                self.take_credit(from, whole.xid, at, out);
                self.list(from, whole.xid, message);
                self.call(from, whole, sent, out);
            }
            Direction::Reply => {
                self.ends[1 - from]
                    .credits
                    .grant(whole.credits, false, at.time);
                self.reply(from, whole, sent, message, out);
            }
        }
    }

    /// Handles a message whose header cannot be decoded.
    pub(super) fn refused(
        &mut self,
        from: usize,
        (rule, name): (&'static Rule, &'static str),
        xid: Option<u32>,
        detail: String,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let at = sent.span.last;
        if sent.is_cut() {
            self.lose("the header of a message is cut off", at, out);
            return;
        }
        self.breach(rule, at, xid, detail, out);
        // The messages that belong to it are not known any more.
        self.is_lossy = true;
        let message = self.message(from, sent, MessageKind::Unknown, name, 0);
        out.sink.other(&self.connection, message);
    }

    /// Checks that a message is not longer than its receiver takes.
    pub(super) fn check_size(&mut self, from: usize, xid: u32, sent: &Sent, out: &mut Out<'_>) {
        let Some(most) = self.receive_size(1 - from).map(u64::from) else {
            return;
        };
        if sent.length > most {
            let detail = format!("{} bytes, where {most} are taken", sent.length);
            self.breach(&rules::TOO_LONG, sent.span.last, Some(xid), detail, out);
        }
    }
}

/// Returns the rule that a malformed header breaks.
pub(super) fn form_rule(reason: &Malformed) -> &'static Rule {
    match reason {
        Malformed::RoundUp => &rules::ROUND_UP,
        _ => &rules::FORM,
    }
}

/// Describes the chunks of a header.
pub(super) fn shown(chunks: &Chunks) -> String {
    let mut parts = Vec::new();
    let mut reads: Vec<(u32, usize, u64)> = Vec::new();
    for ReadSegment { position, segment } in &chunks.reads {
        match reads.last_mut().filter(|(before, ..)| before == position) {
            Some((_, count, len)) => {
                *count += 1;
                *len += u64::from(segment.length);
            }
            None => reads.push((*position, 1, segment.length.into())),
        }
    }
    for (position, count, len) in reads {
        parts.push(format!(
            "read chunk of {len} B at {position}{}",
            segments(count)
        ));
    }
    let sum = |chunk: &WriteChunk| chunk.iter().map(|it| u64::from(it.length)).sum::<u64>();
    for chunk in &chunks.writes {
        parts.push(format!(
            "write chunk of {} B{}",
            sum(chunk),
            segments(chunk.len())
        ));
    }
    if let Some(chunk) = &chunks.reply {
        parts.push(format!(
            "reply chunk of {} B{}",
            sum(chunk),
            segments(chunk.len())
        ));
    }
    parts.join(", ")
}

fn segments(count: usize) -> String {
    match count {
        1 => String::new(),
        _ => format!(" in {count} segments"),
    }
}
