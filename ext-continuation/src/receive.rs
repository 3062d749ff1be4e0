//! The handling of received operations: groups begun, continued, completed and abandoned, and error
//! reports (sections 4.2, 5.4 and 9).

use std::any::Any;

use bytes::Bytes;
use onc_rpc::Message;
use rpcrdma_ext_send_ddp::{DirectedItem, DirectedSet, Location, PlacedItem, check_ranges};
use rpcrdma_extension::{
    IncomingCall, IncomingReply, Outbox, Part, ReceivedMessage, Refusal, Transferred, Whole,
    Written,
};
use rpcrdma_v2::limits::{MAX_CHUNK_SEGMENTS, MAX_READ_SEGMENTS};
use rpcrdma_v2::{
    CallChunks, Direction, Malformed, ReadChunk, Segment, WriteChunk, check_payload,
    check_write_list, chunk_len, unused,
};
use smallvec::SmallVec;

use crate::group::{Group, GroupHeader, Lead, WrittenItems, fault, part};
use crate::report::OutOfRange;
use crate::transmit::call::Sent;
use crate::transmit::reply::{NoDirections, ReplyContext};
use crate::{
    Continuation, Fault, Report, Request, Response, TransmissionId, Transmit, XMTCONT, XMTERR,
    XMTREQ, XMTRESP,
};

/// The error for a call for which there is no memory. The draft has no code for that; one that says which lengths
/// of the payload are valid, namely 0 alone, stands for it.
const NO_MEMORY: Fault = Fault::Payload(OutOfRange {
    value: u32::MAX,
    min: 0,
    max: 0,
});

/// An error in a received operation, classified by how it is reported.
enum OperationError {
    /// An error of the base protocol, or a silent discard.
    Refused(Refusal),
    /// ROPT_XMTERR.
    Reported(Report),
}

impl From<Malformed> for OperationError {
    fn from(reason: Malformed) -> Self {
        Self::Refused(Refusal::Malformed(reason))
    }
}

impl Transmit {
    /// Handles one of the extension's operations.
    pub(crate) fn operation(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        if op.number != XMTCONT {
            self.interrupted(out, |_| Fault::OperationType {
                expected: XMTCONT,
                found: op.number,
            });
        }
        let done = match op.number {
            XMTREQ if !self.config.takes_calls => {
                Err(OperationError::Refused(Refusal::Unsupported))
            }
            XMTREQ => self.request(op, out),
            XMTRESP => self.response(op, out),
            XMTCONT => self.continuation(op, out),
            _ => return self.reported(op, out),
        };
        match done {
            Ok(()) => Ok(()),
            Err(OperationError::Refused(refusal)) => {
                self.abandon(op.xid, op.direction);
                Err(refusal)
            }
            Err(OperationError::Reported(report)) => {
                self.report(&report, out);
                Err(Refusal::Discard("reported with ROPT_XMTERR"))
            }
        }
    }

    /// Abandons an incomplete group, because a message that is not its continuation has arrived. No
    /// message may come between the transmissions of a group (section 4.2), so the group can no
    /// longer be completed.
    pub(crate) fn interrupted(
        &mut self,
        out: &mut Outbox<'_>,
        fault: impl FnOnce(&Group) -> Fault,
    ) {
        if self.incoming.is_some() {
            self.break_group(out, fault);
        }
    }

    #[cold]
    fn break_group(&mut self, out: &mut Outbox<'_>, fault: impl FnOnce(&Group) -> Fault) {
        if let Some(group) = self.incoming.take() {
            out.parts_displaced();
            self.report_incomplete(&group, group.next_number(), fault(&group), out);
        }
    }

    /// Reports an error to the sender of an incomplete group, of which it names the transmission with this number.
    fn report_incomplete(
        &mut self,
        group: &Group,
        number: u32,
        fault: Fault,
        out: &mut Outbox<'_>,
    ) {
        let lead = group.id.lead();
        let report = Report {
            bad: TransmissionId { number, ..lead },
            lead: Some(lead),
            fault,
        };
        self.report(&report, out);
    }

    /// Reports an error to the sender of the message (section 9.5). The remaining transmissions of
    /// its group are not reported, nor are those of the group that it interrupted.
    fn report(&mut self, report: &Report, out: &mut Outbox<'_>) {
        let TransmissionId { xid, direction, .. } = report.bad;
        if let Some(lead) = &report.lead {
            self.abandon(lead.xid, lead.direction);
        }
        self.abandon(xid, direction);
        let back = match direction {
            Direction::Call => Direction::Reply,
            Direction::Reply => Direction::Call,
        };
        out.about(xid, back, XMTERR, report.encode());
    }

    /// Refuses the call of which some transmissions have arrived, because there is no memory for the others, like
    /// [`Transmit::refuse_truncated_call`]. Returns false if there is no such call.
    pub(crate) fn refuse_begun_call(&mut self, out: &mut Outbox<'_>) -> bool {
        let begun = (self.incoming).take_if(|group| group.id.direction == Direction::Call);
        let Some(group) = begun else { return false };
        let last = group.next_number().saturating_sub(1);
        self.report_incomplete(&group, last, NO_MEMORY, out);
        true
    }

    /// Refuses the call that a transmission begins or continues, because there is no memory for the rest of
    /// the transmission ([`NO_MEMORY`]). The requester then sends the call again by the base protocol, and its
    /// data stays there until an RDMA Read fetches it. Returns false if this is no transmission of a call,
    /// or if its header cannot be decoded.
    pub(crate) fn refuse_truncated_call(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> bool {
        let found = match (op.direction, op.number) {
            (Direction::Call, XMTREQ) => op
                .delimited()
                .and_then(|(info, _)| Request::decode(info))
                .map(|_| 0),
            (Direction::Call, XMTCONT) => op
                .delimited()
                .and_then(|(info, _)| Continuation::decode(info))
                .map(|cont| cont.number),
            _ => return false,
        };
        let Ok(number) = found else {
            return false;
        };
        if op.number == XMTCONT
            && self.incoming.is_none()
            && self.is_abandoned(op.xid, op.direction)
        {
            // The rest of a group that was refused already, which was reported then.
            return true;
        }
        if op.number == XMTREQ {
            self.interrupted(out, |_| Fault::OperationType {
                expected: XMTCONT,
                found: XMTREQ,
            });
        }
        let lead = self.incoming.take().map(|group| group.id.lead());
        let bad = TransmissionId {
            xid: op.xid,
            direction: op.direction,
            number,
        };
        let fault = NO_MEMORY;
        self.report(&Report { bad, lead, fault }, out);
        true
    }

    fn request(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        let request = Request::decode(op.delimited()?.0)?;
        if op.direction != Direction::Call {
            return Err(Malformed::Rule("ROPT_XMTREQ that is not a CALL").into());
        }
        check_request(&request)?;
        let count = check_count(op, request.count, self.config.max_call_transmissions())?;
        let part = self.first_part(op, request.payload)?;
        let id = GroupHeader::new(op, count);
        if count > 1 {
            return self.begin(op, Group::new(id, Lead::Request(request)), part, out);
        }
        let message = self.joined(&id, &request.items, &Whole::One(part))?;
        deliver_call(&id, request, message, out)
    }

    fn response(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        // Errors in the form of a reply are not reported (RFC 8166, section 4.5).
        let discard = |reason| OperationError::Refused(Refusal::Discard(reason));
        let response = op
            .delimited()
            .and_then(|(info, _)| Response::decode(info))
            .map_err(|_| discard("malformed ROPT_XMTRESP"))?;
        if op.direction != Direction::Reply {
            return Err(discard("ROPT_XMTRESP that is not a REPLY"));
        }
        let Some(sent) = self.outstanding.get(op.xid) else {
            return Err(discard("ROPT_XMTRESP without a call sent by ROPT_XMTREQ"));
        };
        let writes = returned(sent, &response.items).map_err(discard)?;
        let most = sent.reserved.saturating_add(1);
        let count = check_count(op, response.count, most)?;
        let part = self.first_part(op, response.payload)?;
        let id = GroupHeader::new(op, count);
        if count > 1 {
            let lead = Lead::Response(response, writes);
            return self.begin(op, Group::new(id, lead), part, out);
        }
        let message = self.joined(&id, &response.items, &Whole::One(part))?;
        self.deliver_reply(&id, writes, message, out)
    }

    /// Returns the first transmission of a message, which can begin again after errors.
    fn first_part<'a>(
        &mut self,
        op: &ReceivedMessage<'a>,
        payload: u32,
    ) -> Result<Part<&'a [Bytes]>, OperationError> {
        self.resume(op.xid, op.direction);
        part(op, payload).map_err(|fault| fault_in(op, 0, fault))
    }

    /// Keeps the first transmission of a group of several.
    fn begin(
        &mut self,
        op: &ReceivedMessage<'_>,
        mut group: Group,
        part: Part<&[Bytes]>,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        let added = group.add(part, 0, self.held(&part));
        added.map_err(|fault| fault_in(op, 0, fault))?;
        self.incoming = Some(group);
        out.parts_follow();
        Ok(())
    }

    fn continuation(
        &mut self,
        op: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        if self.incoming.is_none() && self.is_abandoned(op.xid, op.direction) {
            return Err(OperationError::Refused(Refusal::Discard(
                "rest of an abandoned group",
            )));
        }
        let group = self.incoming.take();
        let cont = op
            .delimited()
            .and_then(|(info, _)| Continuation::decode(info))
            .map_err(|reason| match op.direction {
                Direction::Call => OperationError::from(reason),
                Direction::Reply => {
                    OperationError::Refused(Refusal::Discard("malformed ROPT_XMTCONT"))
                }
            })?;
        let Some(mut group) = group else {
            return Err(fault_in(op, cont.number, Fault::Continuation));
        };
        let lead = Some(group.id.lead());
        let bad = TransmissionId {
            xid: op.xid,
            direction: op.direction,
            number: cont.number,
        };
        let reported = |fault| OperationError::Reported(Report { bad, lead, fault });
        let part = group.continued(op, cont).map_err(reported)?;
        group.id.credits = op.credits;
        if !group.ends_with(cont.number) {
            let held = self.held(&part);
            group.add(part, cont.number, held).map_err(reported)?;
            self.incoming = Some(group);
            out.parts_follow();
            return Ok(());
        }
        let Group { id, lead, parts } = group;
        let whole = parts.finish(part);
        let whole = whole.map_err(|_| fault_in(op, cont.number, Fault::Continuation))?;
        self.complete(&id, lead, &whole, out)
    }

    /// Returns the bytes of receive memory that a transmission holds while the rest of its group is
    /// awaited: a receive of one segment is held as a whole.
    fn held(&self, part: &Part<&[Bytes]>) -> usize {
        let receive = usize::try_from(self.config.structure.sum()).unwrap_or(usize::MAX);
        match self.config.structure.has_targets() {
            true => part.held(receive),
            false => receive,
        }
    }

    /// Delivers the message of a complete group.
    fn complete(
        &mut self,
        id: &GroupHeader,
        lead: Lead,
        whole: &Whole<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        let message = self.joined(id, lead.items(), whole)?;
        match lead {
            Lead::Request(request) => deliver_call(id, request, message, out),
            Lead::Response(_, writes) => self.deliver_reply(id, writes, message, out),
        }
    }

    /// Returns the RPC message of a complete group with these items.
    fn joined(
        &self,
        id: &GroupHeader,
        items: &[PlacedItem],
        whole: &Whole<'_>,
    ) -> Result<Message, OperationError> {
        let message = whole.message(&self.frame, items, self.config.max_message);
        message.map_err(|bad| {
            let (number, fault) = fault(bad, whole.last_number(&self.frame));
            let lead = id.lead();
            let bad = TransmissionId { number, ..lead };
            let lead = (number > 0).then_some(lead);
            OperationError::Reported(Report { bad, lead, fault })
        })
    }

    fn deliver_reply(
        &self,
        id: &GroupHeader,
        writes: WrittenItems,
        message: Message,
        out: &mut Outbox<'_>,
    ) -> Result<(), OperationError> {
        let discard = |reason| OperationError::Refused(Refusal::Discard(reason));
        if check_payload(id.xid, id.direction, &message).is_err() {
            return Err(discard("header and RPC message do not agree"));
        }
        // The call can end while its reply arrives.
        if id.count > 1 && self.outstanding.get(id.xid).is_none() {
            return Err(discard("reply without an outstanding call"));
        }
        out.transferred(Transferred::Reply(IncomingReply {
            xid: id.xid,
            granted: id.credits,
            transmissions: id.count,
            message,
            writes,
        }));
        Ok(())
    }

    /// Handles a ROPT_XMTERR, which is never answered with another. The bad transmission that it
    /// names may be one that this end never sent. The group that it interrupted is lost
    /// nevertheless, if this end sent such a group and it can have been incomplete then.
    fn reported(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let report = op.delimited().and_then(|(info, _)| Report::decode(info));
        let report = report.map_err(|_| Refusal::Discard("malformed ROPT_XMTERR"))?;
        let bad = Some(report.bad).filter(|bad| self.sent_as(bad).is_some());
        let group = report.broken_into().filter(|group| {
            let count = self.sent_as(group);
            count.is_some_and(|count| group.number < count - 1)
        });
        if bad.or(group).is_none() {
            return Err(Refusal::Discard(
                "ROPT_XMTERR about a message that was not sent",
            ));
        }
        // A peer that had no memory may have some for the next call.
        if report.fault != NO_MEMORY {
            self.faults = self.faults.saturating_add(1);
        }
        let reason = report.to_string();
        for id in bad.into_iter().chain(group) {
            if self.forget(&id) {
                let TransmissionId { xid, direction, .. } = id;
                let reason = reason.clone();
                out.transferred(Transferred::Rejected {
                    xid,
                    direction,
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Returns the number of transmissions in which a message was sent, if it was sent and can
    /// still be reported.
    fn sent_as(&self, id: &TransmissionId) -> Option<u32> {
        match id.direction {
            Direction::Call => self.outstanding.get(id.xid).map(|sent| sent.count),
            Direction::Reply => self.reply_sent(id.xid),
        }
    }

    /// Forgets a sent message. Returns whether it could still be reported.
    fn forget(&mut self, id: &TransmissionId) -> bool {
        match id.direction {
            Direction::Call => self.outstanding.remove(id.xid),
            Direction::Reply => self.forget_reply(id.xid),
        }
    }
}

fn fault_in(op: &ReceivedMessage<'_>, number: u32, fault: Fault) -> OperationError {
    let bad = TransmissionId {
        xid: op.xid,
        direction: op.direction,
        number,
    };
    OperationError::Reported(Report {
        bad,
        lead: None,
        fault,
    })
}

/// Checks the number of transmissions that a group announces. The draft has no error for a number
/// that is too high (section 5.2); this implementation reports BADSEQ.
fn check_count(op: &ReceivedMessage<'_>, found: u32, most: u32) -> Result<u32, OperationError> {
    match (1..=most).contains(&found) {
        true => Ok(found),
        false => {
            let expected = if found == 0 { 1 } else { most };
            let fault = Fault::Sequence { expected, found };
            Err(fault_in(op, 0, fault))
        }
    }
}

/// Checks the values of a well-formed request (tables 1 and 2; section 7.4).
fn check_request(request: &Request) -> Result<(), Malformed> {
    let mut read = 0;
    for item in &request.items {
        match &item.location {
            Location::Explicit(segments) => {
                let len = u64::from(item.length);
                let sum = chunk_len(segments);
                if sum != len && sum != onc_rpc::padded(len) {
                    return Err(Malformed::Rule(
                        "segments that are not as long as their item",
                    ));
                }
                read += segments.len();
                segments.iter().try_for_each(check_segment)?;
            }
            Location::Placed(_) => {}
            Location::TooShort | Location::NoItem => {
                return Err(Malformed::Rule("result of a direction in a request"));
            }
        }
    }
    if read > MAX_READ_SEGMENTS {
        return Err(Malformed::TooMany("segments of items"));
    }
    check_ranges(&request.directions)?;
    let chunks = directed(&request.directions).filter_map(|item| item.to.chunk());
    let mut segments = 0;
    for chunk in chunks {
        segments += chunk.len();
        chunk.iter().try_for_each(check_segment)?;
    }
    match segments > MAX_CHUNK_SEGMENTS {
        true => Err(Malformed::TooMany("segments for a reply")),
        false => Ok(()),
    }
}

fn check_segment(segment: &Segment) -> Result<(), Malformed> {
    match segment.offset.checked_add(u64::from(segment.length)) {
        Some(_) => Ok(()),
        None => Err(Malformed::Rule("segment beyond the 64-bit address space")),
    }
}

/// Returns the directions of all sets, one after the other. An upper layer with one operation in a
/// call needs no more; for several operations, a responder that cannot tell them apart uses the
/// directions in order.
fn directed(sets: &[DirectedSet]) -> impl Iterator<Item = &DirectedItem> {
    sets.iter().flat_map(|set| &set.items)
}

fn deliver_call(
    id: &GroupHeader,
    request: Request,
    message: Message,
    out: &mut Outbox<'_>,
) -> Result<(), OperationError> {
    if check_payload(id.xid, id.direction, &message).is_err() {
        return Err(Malformed::Rule("header and RPC message do not agree").into());
    }
    let (chunks, context) = incoming(request);
    out.transferred(Transferred::Call(IncomingCall {
        xid: id.xid,
        requested: id.credits,
        transmissions: id.count,
        message,
        chunks,
        context,
    }));
    Ok(())
}

/// Returns the chunks of a request, and the context for planning its reply.
fn incoming(request: Request) -> (CallChunks, Box<dyn Any + Send>) {
    let explicit = |item: PlacedItem| match item.location {
        Location::Explicit(segments) => Some(ReadChunk {
            position: item.position,
            length: chunk_len(&segments) as u32,
            segments: segments.into_iter().filter(|s| s.length > 0).collect(),
        }),
        _ => None,
    };
    let mut chunks = CallChunks {
        payload: None,
        items: request.items.into_iter().filter_map(explicit).collect(),
        writes: Vec::new(),
        reply: None,
    };
    let reserved = request.reserved;
    if request.directions.is_empty() && reserved == 0 {
        return (chunks, Box::new(NoDirections));
    }
    let mut sets = request.directions.into_iter();
    let mut directions = sets.next().map(|set| set.items).unwrap_or_default();
    directions.extend(sets.flat_map(|set| set.items));
    let writes = directions
        .iter()
        .filter_map(|item| item.to.chunk().cloned());
    chunks.writes = writes.collect();
    let context = ReplyContext {
        directions,
        reserved,
    };
    (chunks, Box::new(context))
}

/// Returns what was placed in the memory that a call offered (table 2; for written items also the
/// rules for write chunks in RFC 8166, section 4.3).
fn returned(sent: &Sent, results: &[PlacedItem]) -> Result<WrittenItems, &'static str> {
    if results.len() != sent.directions.len() {
        return Err("reply with more or fewer results than directions");
    }
    let mut writes = SmallVec::new();
    let (mut offered, mut filled) = (Vec::new(), Vec::new());
    for (DirectedItem { to, .. }, result) in sent.directions.iter().zip(results) {
        if !to.allows(&result.location) {
            return Err("reply with an item where it was not wanted");
        }
        let Some(chunk) = to.chunk() else {
            continue;
        };
        let (written, back): (_, WriteChunk) = match &result.location {
            Location::Explicit(segments) => {
                if chunk_len(segments) != u64::from(result.length) {
                    return Err("reply with a chunk that is not as long as its item");
                }
                let written = Written {
                    position: result.position,
                    len: u64::from(result.length),
                };
                (Some(written), segments.iter().copied().collect())
            }
            _ => (None, unused(chunk)),
        };
        offered.push(chunk.clone());
        filled.push(back);
        writes.push(written);
    }
    match check_write_list(&offered, &filled) {
        Ok(_) => Ok(writes),
        Err(_) => Err("reply with memory that was not offered"),
    }
}
