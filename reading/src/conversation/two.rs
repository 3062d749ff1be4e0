//! Messages of the version 2 of 2016 (version-two-01), its characteristics (xcharext-02), and messages
//! in several transmissions or with data placed by Sends (rtrext-00).

use onc_rpc::padded;
use rpcrdma_chunks::{Chunks, Direction, ReadSegment};
use rpcrdma_ext_continuation::{
    Continuation, Report, Request, RequestReceiveLimit, Response, ResponseSendLimit, XMTCONT,
    XMTERR, XMTREQ, XMTRESP,
};
use rpcrdma_ext_send_ddp::{Items, Location, ReceiveBufferStructure, RoundTripSupport, Support};
use rpcrdma_ext_xchar::{
    BackwardRequestSupport, Characteristic, INITXCH, Init, REQXCH, RESPXCH, ReceiveBufferSize,
    RequesterRemoteInvalidation, UPDXCH, Update,
};
use rpcrdma_extension::Property;
use rpcrdma_extension::layout::{BadPlacement, Frame, Unusable, locate};
use rpcrdma_v2::limits::DEFAULT_INLINE;
use rpcrdma_v2::{Body, Header, HeaderError, Malformed, Optional};

use super::one::{form_rule, shown};
use super::rpc::Whole;
use super::{Conversation, Out, Sent};
use crate::call::{List, Message, MessageKind, Version};
use crate::limits::{HEAD, MAX_PARTS};
use crate::rules::{self, Rule};

/// Properties that an end has announced, and the group of transmissions that it is sending.
#[derive(Debug, Default)]
pub(super) struct State {
    size: Option<u32>,
    invalidation: bool,
    support: Option<Support>,
    frame: Option<Frame>,
    /// Whether it has sent ROPT_INITXCH.
    has_announced: bool,
    pub(super) group: Option<Group>,
}

impl State {
    pub(super) fn receive_size(&self) -> Option<u32> {
        Some(self.size.unwrap_or(DEFAULT_INLINE))
    }

    /// Takes a characteristic of the end.
    fn learn(&mut self, id: u32, value: &[u8]) -> Result<(), (&'static Rule, String)> {
        let bad = |reason: Malformed| {
            let detail = format!("characteristic {id}: {reason}");
            (&rules::FORM, detail)
        };
        match id {
            ReceiveBufferSize::ID => {
                self.size = Some(ReceiveBufferSize::from_bytes(value).map_err(bad)?);
            }
            RequesterRemoteInvalidation::ID => {
                self.invalidation = RequesterRemoteInvalidation::from_bytes(value).map_err(bad)?;
            }
            RoundTripSupport::ID => {
                self.support = Some(RoundTripSupport::from_bytes(value).map_err(bad)?);
            }
            ReceiveBufferStructure::ID => {
                let structure = ReceiveBufferStructure::from_bytes(value).map_err(bad)?;
                let frame = Frame::new(&structure);
                let unusable = |reason: Unusable| (&rules::BUFFER_STRUCTURE, reason.to_string());
                self.frame = Some(frame.map_err(unusable)?);
            }
            BackwardRequestSupport::ID | RequestReceiveLimit::ID | ResponseSendLimit::ID => {}
            other => {
                let detail = format!("characteristic {other}");
                return Err((&rules::UNKNOWN_PROPERTY, detail));
            }
        }
        Ok(())
    }

    fn frame(&self) -> Frame {
        let plain = || Frame::plain(self.size.unwrap_or(DEFAULT_INLINE).into());
        self.frame.clone().unwrap_or_else(plain)
    }
}

/// A group of transmissions that has begun.
#[derive(Debug)]
pub(super) struct Group {
    xid: u32,
    operation: u32,
    credits: u32,
    items: Items,
    count: u32,
    /// The lengths of the transmissions so far.
    lengths: Vec<u64>,
    head: Vec<u8>,
    inline: u64,
}

/// A transmission of a group.
struct Transmission<'a> {
    xid: u32,
    /// Length of the header in bytes.
    header: usize,
    payload: u32,
    bytes: &'a [u8],
}

impl Conversation {
    pub(super) fn two(&mut self, from: usize, sent: &Sent, out: &mut Out<'_>) {
        let bytes = sent.known();
        let (header, len) = match Header::decode(&bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                let (rule, xid) = match &error {
                    HeaderError::TooShort(_) => (&rules::SHORT, None),
                    HeaderError::Version { xid, .. } => (&rules::VERSION, Some(*xid)),
                    HeaderError::Malformed { xid, reason, .. }
                    | HeaderError::BadError { xid, reason } => (form_rule(reason), Some(*xid)),
                };
                self.refused(from, (rule, "malformed"), xid, error.to_string(), sent, out);
                return;
            }
        };
        let (xid, at) = (header.xid, sent.span.last);
        self.check_size(from, xid, sent, out);
        if sent.invalidates.is_some() && self.is_whole() && !self.ends[1 - from].two.invalidation {
            self.breach(&rules::NO_INVALIDATION, at, Some(xid), String::new(), out);
        }
        let continues = matches!(&header.body, Body::Optional(it) if it.opttype == XMTCONT);
        if !continues && let Some(group) = self.ends[from].two.group.take() {
            let detail = format!("XID {:#010x}", group.xid);
            self.breach(&rules::INTERRUPTED, at, Some(xid), detail, out);
        }
        let direction = header.direction();
        let whole = |chunks, is_long| Whole {
            version: Version::Two,
            xid,
            credits: header.credits,
            is_long,
            chunks,
            head: &bytes[len..],
            inline: sent.length - len as u64,
            placed: &[],
            inv_handle: None,
        };
        match &header.body {
            Body::Msg(_, chunks) => {
                let kind = (direction, "RDMA2_MSG", len);
                self.plain(from, kind, &whole(chunks, false), sent, out);
            }
            Body::NoMsg(_, chunks) => {
                let kind = (direction, "RDMA2_NOMSG", len);
                self.plain(from, kind, &whole(chunks, true), sent, out);
            }
            Body::Error(error) => {
                let kind = MessageKind::Error;
                let message = self.message(from, sent, kind, "RDMA2_ERROR", header.credits);
                let about = (xid, Some(header.credits));
                self.error(from, about, error.to_string(), message, sent, out);
            }
            Body::Optional(optional) => {
                // An operation grants credits, or asks for them, as its direction says (section 4.2.2).
                if direction == Direction::Reply {
                    let credits = &mut self.ends[1 - from].credits;
                    credits.grant(header.credits, false, at.time);
                }
                self.operation(from, &header, optional, (&bytes, len), sent, out);
            }
        }
    }

    fn operation(
        &mut self,
        from: usize,
        header: &Header,
        optional: &Optional,
        (bytes, len): (&[u8], usize),
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, info) = (header.xid, &optional.info[..]);
        let part = |payload| Transmission {
            xid,
            header: len,
            payload,
            bytes,
        };
        let mut message = self.message(from, sent, MessageKind::Control, "", header.credits);
        message.header = len as u64;
        let result = match optional.opttype {
            INITXCH => {
                message.name = "ROPT_INITXCH";
                self.characteristics(from, info, message, sent, out)
            }
            UPDXCH => {
                message.name = "ROPT_UPDXCH";
                Update::decode(info).map(|update| {
                    self.announced(from, &[update.now], sent, out);
                    out.sink.other(&self.connection, message);
                })
            }
            REQXCH | RESPXCH => {
                message.name = match optional.opttype {
                    REQXCH => "ROPT_REQXCH",
                    _ => "ROPT_RESPXCH",
                };
                out.sink.other(&self.connection, message);
                Ok(())
            }
            XMTREQ => Request::decode(info).map(|request| {
                message.name = "ROPT_XMTREQ";
                self.request(from, &request, part(request.payload), message, sent, out);
            }),
            XMTRESP => Response::decode(info).map(|response| {
                message.name = "ROPT_XMTRESP";
                self.response(
                    from,
                    response.clone(),
                    part(response.payload),
                    message,
                    sent,
                    out,
                );
            }),
            XMTCONT => Continuation::decode(info).map(|next| {
                message.name = "ROPT_XMTCONT";
                self.continuation(from, next, part(next.payload), message, sent, out);
            }),
            XMTERR => Report::decode(info).map(|report| {
                message.name = "ROPT_XMTERR";
                self.error(from, (xid, None), report.to_string(), message, sent, out);
            }),
            other => {
                let detail = format!("operation {other}");
                let at = sent.span.last;
                self.breach(&rules::UNKNOWN_OPERATION, at, Some(xid), detail, out);
                // What it means for calls is not known.
                self.is_lossy = true;
                message.name = "unknown operation";
                message.kind = MessageKind::Unknown;
                out.sink.other(&self.connection, message);
                Ok(())
            }
        };
        if let Err(reason) = result {
            let rule = (form_rule(&reason), "malformed");
            self.refused(from, rule, Some(xid), reason.to_string(), sent, out);
        }
    }

    // ---------------------------------------------------------------------------------------------
    // Characteristics

    fn characteristics(
        &mut self,
        from: usize,
        info: &[u8],
        message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) -> Result<(), Malformed> {
        let init = Init::decode(info)?;
        let is_first = self.ends[from].sent == 1 || !self.is_whole();
        if self.ends[from].two.has_announced || !is_first {
            let detail = format!("message {}", self.ends[from].sent);
            self.breach(&rules::INITXCH, sent.span.last, None, detail, out);
        }
        self.ends[from].two.has_announced = true;
        self.announced(from, &init.start, sent, out);
        out.sink.other(&self.connection, message);
        Ok(())
    }

    fn announced(&mut self, from: usize, list: &[Property], sent: &Sent, out: &mut Out<'_>) {
        for Property { id, value } in list {
            if let Err((rule, detail)) = self.ends[from].two.learn(*id, value) {
                self.breach(rule, sent.span.last, None, detail, out);
            }
        }
        self.announce(out);
    }

    // ---------------------------------------------------------------------------------------------
    // Groups of transmissions

    fn check_support(&mut self, from: usize, needed: Support, sent: &Sent, out: &mut Out<'_>) {
        let support = self.ends[1 - from].two.support.unwrap_or_default();
        if !support.contains(needed) && self.is_whole() {
            let detail = format!("{needed} of {support}");
            self.breach(&rules::UNSUPPORTED, sent.span.last, None, detail, out);
        }
    }

    fn request(
        &mut self,
        from: usize,
        request: &Request,
        part: Transmission<'_>,
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        self.check_support(from, Support::XREQ, sent, out);
        message.kind = MessageKind::Call;
        message.summary = described(&request.items, request.count);
        let (xid, at) = (part.xid, (sent.span.first, sent.span.last));
        self.begin_call(from, xid, Version::Two, at, out);
        message.from = self.side(from);
        let directions = request.directions.iter().flat_map(|set| &set.items);
        let chunks = directions.filter_map(|item| item.to.chunk());
        for (index, chunk) in chunks.enumerate() {
            for segment in chunk {
                self.offer(from, xid, List::Write(index as u32), segment);
            }
        }
        self.start(
            from,
            XMTREQ,
            (request.items.clone(), request.count),
            part,
            message,
            sent,
            out,
        );
    }

    fn response(
        &mut self,
        from: usize,
        response: Response,
        part: Transmission<'_>,
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        self.check_support(from, Support::XRESP, sent, out);
        message.kind = MessageKind::Reply;
        message.summary = described(&response.items, response.count);
        let first = (response.items, response.count);
        self.start(from, XMTRESP, first, part, message, sent, out);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a transmission and what it begins"
    )]
    fn start(
        &mut self,
        from: usize,
        operation: u32,
        (items, count): (Items, u32),
        part: Transmission<'_>,
        message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, at) = (part.xid, sent.span.last);
        if count == 0 {
            self.breach(&rules::GROUP_COUNT, at, Some(xid), String::new(), out);
            out.sink.other(&self.connection, message);
            return;
        }
        let group = Group {
            xid,
            operation,
            credits: message.credits,
            items,
            count,
            lengths: Vec::new(),
            head: Vec::new(),
            inline: 0,
        };
        self.add(from, group, part, message, sent, out);
    }

    fn continuation(
        &mut self,
        from: usize,
        next: Continuation,
        part: Transmission<'_>,
        mut message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, at) = (part.xid, sent.span.last);
        self.check_support(from, Support::XCONT, sent, out);
        let Some(group) = self.ends[from].two.group.take() else {
            if self.is_whole() {
                self.breach(&rules::NO_GROUP, at, Some(xid), String::new(), out);
            }
            out.sink.other(&self.connection, message);
            return;
        };
        let found = [xid, next.initial, next.number];
        let expected = [group.xid, group.operation, group.lengths.len() as u32];
        let all = [&rules::GROUP_XID, &rules::GROUP_TYPE, &rules::SEQUENCE];
        let mut is_good = true;
        for ((found, expected), rule) in found.into_iter().zip(expected).zip(all) {
            if found != expected {
                let detail = format!("{found:#x} instead of {expected:#x}");
                self.breach(rule, at, Some(xid), detail, out);
                is_good = false;
            }
        }
        if !is_good {
            out.sink.other(&self.connection, message);
            return;
        }
        message.kind = match group.operation {
            XMTREQ => MessageKind::CallPart,
            _ => MessageKind::ReplyPart,
        };
        message.summary = format!("part {} of {}", next.number + 1, group.count);
        self.add(from, group, part, message, sent, out);
    }

    /// Adds a transmission to its group, and handles the message if it is complete.
    fn add(
        &mut self,
        from: usize,
        mut group: Group,
        part: Transmission<'_>,
        message: Message,
        sent: &Sent,
        out: &mut Out<'_>,
    ) {
        let (xid, at) = (part.xid, sent.span.last);
        let is_call = group.operation == XMTREQ;
        if is_call {
            self.take_credit(from, xid, at, out);
        }
        let room = sent.length - part.header as u64;
        let payload = u64::from(part.payload);
        if payload > room || payload % 4 != 0 {
            let detail = format!("{payload} of {room} bytes");
            self.breach(&rules::PAYLOAD_LENGTH, at, Some(xid), detail, out);
            out.sink.other(&self.connection, message);
            return;
        }
        // Not longer than the transmission.
        let there = &part.bytes[part.header..];
        let there = &there[..there.len().min(payload as usize)];
        let more = HEAD.saturating_sub(group.head.len()).min(there.len());
        group.head.extend_from_slice(&there[..more]);
        group.inline += payload;
        group.lengths.push(sent.length);
        let is_last = group.lengths.len() >= group.count as usize;
        if !is_last {
            if group.lengths.len() < MAX_PARTS {
                self.ends[from].two.group = Some(group);
            }
            let caller = if is_call { from } else { 1 - from };
            self.list(caller, xid, message);
            return;
        }
        let placed = self.placed(from, &group, sent, out);
        let mut chunks = Chunks::default();
        if is_call {
            for item in &group.items {
                if let Location::Explicit(segments) = &item.location {
                    let position = item.position;
                    let reads = segments
                        .iter()
                        .map(|&segment| ReadSegment { position, segment });
                    chunks.reads.extend(reads);
                }
            }
        }
        let whole = Whole {
            version: Version::Two,
            xid,
            credits: group.credits,
            is_long: false,
            chunks: &chunks,
            head: &group.head,
            inline: group.inline,
            placed: &placed,
            inv_handle: None,
        };
        if is_call {
            self.list(from, xid, message);
            self.call(from, &whole, sent, out);
        } else {
            self.written(from, &group);
            self.reply(from, &whole, sent, message, out);
        }
    }

    /// Returns the lengths of the items that were placed, after a check of their places.
    fn placed(&mut self, from: usize, group: &Group, sent: &Sent, out: &mut Out<'_>) -> Vec<u32> {
        let frame = self.ends[1 - from].two.frame();
        let mut lengths = Vec::new();
        for item in &group.items {
            let Location::Placed(spot) = &item.location else {
                continue;
            };
            lengths.push(item.length);
            if !self.is_whole() {
                continue;
            }
            let broken = match locate(&frame, group.count, spot, item.length) {
                Err(bad @ BadPlacement::Segment { .. }) => {
                    Some((&rules::SEGMENT_NUMBER, bad.to_string()))
                }
                Err(bad @ BadPlacement::Offset { .. }) => {
                    Some((&rules::SEGMENT_OFFSET, bad.to_string()))
                }
                Ok(places) => places.iter().find_map(|place| {
                    let length = group.lengths.get(place.transmission).copied().unwrap_or(0);
                    let detail = || format!("data up to {} of {length} bytes", place.end());
                    (place.end() > length).then(|| (&rules::NOT_PLACED, detail()))
                }),
            };
            if let Some((rule, detail)) = broken {
                self.breach(rule, sent.span.last, Some(group.xid), detail, out);
            }
        }
        lengths
    }

    /// Notes what a reply has written into the memory that the call's directions offer.
    fn written(&mut self, from: usize, group: &Group) {
        let Some(pending) = self.ends[1 - from].calls.get_mut(&group.xid) else {
            return;
        };
        for item in &group.items {
            let Location::Explicit(segments) = &item.location else {
                continue;
            };
            let mut left = padded(item.length.into());
            for returned in segments {
                let mut segments = pending.call.segments.iter_mut();
                let found = segments
                    .find(|it| (it.handle, it.offset) == (returned.handle, returned.offset));
                if let Some(segment) = found {
                    let length = left.min(returned.length.into()) as u32;
                    segment.returned = Some(length.min(item.length));
                    left -= u64::from(length);
                }
            }
        }
    }
}

/// Describes the first transmission of a group.
fn described(items: &Items, count: u32) -> String {
    let mut parts = Vec::new();
    if count > 1 {
        parts.push(format!("part 1 of {count}"));
    }
    for item in items {
        let (length, position) = (item.length, item.position);
        match &item.location {
            Location::Placed(_) => parts.push(format!("{length} B placed, at {position}")),
            Location::Explicit(segments) => {
                let reads = segments
                    .iter()
                    .map(|&segment| ReadSegment { position, segment });
                let reads = reads.collect();
                parts.push(shown(&Chunks {
                    reads,
                    ..Chunks::default()
                }));
            }
            Location::TooShort | Location::NoItem => {}
        }
    }
    parts.join(", ")
}
