//! One stream's RDMAP state without its socket: work queues, receive queue, registrations, RDMA
//! Reads in both directions. Bytes in, bytes out, completions; no I/O and no clock.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use smallvec::SmallVec;

use super::ddp::{self, Header, Placement};
use super::fault::{Ending, Fault};
use super::memory::{Memory, OutboundRead, Receive, Target};
use super::random::Random;
use super::rdmap::{self, Opcode, ReadRequest};
use super::receive::{Buffers, Receiver, Segment, Step};
use super::regions::{NotReclaimed, Refused};
use super::terminate::{Code, Culprit, Terminate};
use super::transmit::{Finishes, Outgoing, Slices, Transmitter};
use crate::{
    Buf, Completion, Counters, Event, Failed, PostError, QpId, Region, RemoteSegment, SendWr, Stag,
    Success, WorkError, WrId,
};

/// Where an endpoint's events and counts go.
pub(super) struct Out<'a> {
    pub(super) events: &'a mut VecDeque<Event>,
    pub(super) counters: &'a mut Counters,
}

/// Lengths of the queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) send_wr: usize,
    pub(super) recv_wr: usize,
    pub(super) gather: usize,
}

/// What set-up agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    pub(super) crc: bool,
    /// RDMA Reads the peer may have outstanding here (IRD).
    pub(super) inbound_reads: usize,
    /// RDMA Reads we may have outstanding there (ORD).
    pub(super) outbound_reads: usize,
    /// The peer may begin with an FPDU or a Send without payload.
    pub(super) empty_rtr: bool,
    /// Nothing may be sent before the peer's first FPDU (RFC 5044, section 7.1.2, rule 4).
    pub(super) wait_for_peer: bool,
}

/// A request in the send queue that has not started.
struct Work {
    id: WrId,
    wr: SendWr,
    signaled: bool,
}

/// A Read Request of the peer's that is not answered yet.
struct Response {
    request: ReadRequest,
    done: u32,
    /// Payload of one segment, from when it starts; as in [`Outgoing`].
    most: u32,
    culprit: Culprit,
}

/// What is being cut into segments.
#[expect(clippy::large_enum_variant, reason = "each connection has one, and moves it seldom")]
enum Current {
    Nothing,
    Message(Outgoing),
    Response,
}

/// One stream.
pub(super) struct Endpoint {
    qp: QpId,
    limits: Limits,
    memory: Memory,
    receiver: Receiver,
    transmitter: Transmitter,
    work: VecDeque<Work>,
    /// Requests in the send queue: waiting, being sent, or Reads without their answer.
    outstanding: usize,
    current: Current,
    responses: VecDeque<Response>,
    /// The last message was a response, so a request is next if there is one.
    request_next: bool,
    /// Next MSN by queue.
    msn: [u32; 3],
    outbound_reads: usize,
    /// False while the peer must send first.
    open: bool,
    random: Random,
}

impl Endpoint {
    pub(super) fn new(qp: QpId, limits: Limits) -> Self {
        Self {
            qp,
            limits,
            memory: Memory::new(),
            receiver: Receiver::new(),
            transmitter: Transmitter::new(),
            work: VecDeque::new(),
            outstanding: 0,
            current: Current::Nothing,
            responses: VecDeque::new(),
            request_next: false,
            msn: [1; 3],
            outbound_reads: 0,
            open: false,
            random: Random::new(),
        }
    }

    /// Set-up is over: from here on the stream consists of FPDUs.
    pub(super) fn start(&mut self, agreement: &Agreement, max_ulpdu: usize) {
        self.receiver.set_check_crc(agreement.crc);
        self.transmitter.set_crc(agreement.crc);
        self.transmitter.set_max_ulpdu(max_ulpdu);
        self.memory.inbound_limit = agreement.inbound_reads;
        self.memory.empty_rtr = agreement.empty_rtr;
        self.outbound_reads = agreement.outbound_reads;
        self.open = !agreement.wait_for_peer;
    }

    /// The path's MULPDU changed.
    pub(super) fn set_max_ulpdu(&mut self, max: usize) {
        self.transmitter.set_max_ulpdu(max);
    }

    /// Whether the peer's first FPDU, if it had to come first, has come.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Queues a set-up frame.
    pub(super) fn send_setup_frame(&mut self, frame: Bytes) {
        self.transmitter.raw(frame);
    }

    /// Queues an RDMA Write of nothing: our ready-to-receive message (RFC 6581, section 5).
    pub(super) fn send_ready_to_receive(&mut self) {
        let header = tagged(Opcode::Write, 0, 0);
        self.transmitter
            .frame(&header, &[], SmallVec::new(), Finishes::Nothing);
    }

    // ---- registration ----

    pub(super) fn register(
        &mut self,
        region: Region,
    ) -> Result<RemoteSegment, (io::Error, Region)> {
        self.memory.regions.register(&mut self.random, region)
    }

    pub(super) fn reclaim(&mut self, stag: Stag) -> Result<Region, NotReclaimed> {
        self.memory.regions.reclaim(stag.0)
    }

    // ---- posting ----

    pub(super) fn post_receive(&mut self, id: WrId, buf: Buf) -> Result<(), (PostError, Buf)> {
        if self.memory.receives.len() >= self.limits.recv_wr {
            return Err((PostError::QueueFull, buf));
        }
        self.memory.receives.push_back(Receive { id, buf });
        Ok(())
    }

    #[expect(clippy::result_large_err, reason = "as in the trait")]
    pub(super) fn post_send(
        &mut self,
        id: WrId,
        wr: SendWr,
        signaled: bool,
        counters: &mut Counters,
    ) -> Result<(), (PostError, SendWr)> {
        if self.outstanding >= self.limits.send_wr {
            return Err((PostError::QueueFull, wr));
        }
        if let SendWr::Send { gather, .. } | SendWr::Write { gather, .. } = &wr
            && gather.len() > self.limits.gather
        {
            return Err((PostError::TooManyElements, wr));
        }
        match &wr {
            SendWr::Send { invalidate, .. } => {
                counters.sends += 1;
                counters.sends_with_invalidate += u64::from(invalidate.is_some());
            }
            SendWr::Write { .. } => counters.rdma_writes += 1,
            SendWr::Read { .. } => counters.rdma_reads += 1,
            SendWr::Invalidate { .. } => counters.local_invalidations += 1,
        }
        self.outstanding += 1;
        self.work.push_back(Work { id, wr, signaled });
        Ok(())
    }

    // ---- sending ----

    /// Whether everything posted has gone out, as far as it can without the peer.
    pub(super) fn is_flushed(&self) -> bool {
        self.transmitter.is_empty()
            && self.work.is_empty()
            && self.responses.is_empty()
            && matches!(self.current, Current::Nothing)
    }

    /// Whether everything framed has gone out.
    pub(super) fn is_sent(&self) -> bool {
        self.transmitter.is_empty()
    }

    /// Frames what can be framed now and gathers it for a write. Returns its length.
    ///
    /// # Errors
    /// A Read in the middle of being answered lost its memory.
    pub(super) fn gather<'a>(
        &'a mut self,
        slices: &mut Slices<'a>,
        out: &mut Out<'_>,
    ) -> Result<usize, Stop> {
        while self.open && self.transmitter.has_room() {
            if !self.frame_next(out)? {
                break;
            }
        }
        Ok(self.transmitter.gather(slices))
    }

    /// Payload bytes among what is framed.
    pub(super) fn framed_payload(&self) -> usize {
        self.transmitter.payload()
    }

    /// `n` bytes of what was gathered are with TCP.
    pub(super) fn sent(&mut self, n: usize, out: &mut Out<'_>) {
        let Self {
            qp,
            transmitter,
            outstanding,
            memory,
            ..
        } = self;
        transmitter.sent(n, |finishes| match finishes {
            Finishes::Work {
                id,
                signaled,
                write,
            } => {
                *outstanding -= 1;
                if signaled {
                    let success = if write { Success::Write } else { Success::Send };
                    out.complete(*qp, id, Ok(success));
                }
            }
            Finishes::Response => memory.inbound_reads -= 1,
            Finishes::Nothing => {}
        });
    }

    /// Frames one segment, or does one request that needs none. False: nothing can go on.
    fn frame_next(&mut self, out: &mut Out<'_>) -> Result<bool, Stop> {
        match &mut self.current {
            Current::Message(message) => {
                if message.frame_next(&mut self.transmitter) {
                    self.current = Current::Nothing;
                }
                Ok(true)
            }
            Current::Response => {
                self.frame_response()?;
                Ok(true)
            }
            // Requests and responses take turns, whole messages each: a peer may not accept
            // segments of two tagged messages mixed.
            Current::Nothing if !self.responses.is_empty() && !self.request_next => {
                self.current = Current::Response;
                self.request_next = true;
                Ok(true)
            }
            Current::Nothing => {
                self.request_next = false;
                Ok(self.start_request(out)? || !self.responses.is_empty())
            }
        }
    }

    fn frame_response(&mut self) -> Result<(), Fault> {
        let Some(response) = self.responses.front_mut() else {
            self.current = Current::Nothing;
            return Ok(());
        };
        let request = response.request;
        let left = request.length - response.done;
        if response.done == 0 {
            let most = self.transmitter.max_payload(ddp::TAGGED);
            response.most = u32::try_from(most).unwrap_or(u32::MAX);
        }
        let len = left.min(response.most);
        let mut payload = SmallVec::new();
        if len > 0 {
            // Looked up again for each segment: the program may have invalidated it since.
            let offset = request.source_offset + u64::from(response.done);
            let bytes = self
                .memory
                .regions
                .readable(request.source_stag, offset, len);
            let bytes = bytes.map_err(|refused| {
                // Segments that wait to be sent will not be.
                let dropped = self.transmitter.would_cut(response.done as usize);
                response.done -= u32::try_from(dropped).unwrap_or(response.done);
                response.fault(refused)
            })?;
            payload.push(bytes);
        }
        let last = len == left;
        let header = tagged(Opcode::ReadResponse, request.sink_stag, request.sink_offset)
            .at(response.done as usize, last);
        let finishes = if last {
            Finishes::Response
        } else {
            Finishes::Nothing
        };
        self.transmitter.frame(&header, &[], payload, finishes);
        response.done += len;
        if last {
            self.responses.pop_front();
            self.current = Current::Nothing;
        }
        Ok(())
    }

    /// Starts the request at the head of the send queue, unless it must wait. One that is
    /// impossible stays there, for [`Endpoint::end`] to complete.
    fn start_request(&mut self, out: &mut Out<'_>) -> Result<bool, Stop> {
        match self.work.front() {
            None => return Ok(false),
            Some(work) => {
                if matches!(work.wr, SendWr::Read { .. }) && !self.may_read() {
                    return Ok(false);
                }
                self.check_request(&work.wr).map_err(Stop::Local)?;
            }
        }
        let Some(Work { id, wr, signaled }) = self.work.pop_front() else {
            return Ok(false);
        };
        match wr {
            SendWr::Send { gather, invalidate } => {
                let opcode = match invalidate {
                    Some(_) => Opcode::SendInvalidate,
                    None => Opcode::Send,
                };
                let word = invalidate.map_or(0, |stag| stag.0);
                let header = self.untagged(opcode, word);
                self.start_message(header, gather, finishes(id, signaled, false));
            }
            SendWr::Write {
                gather,
                stag,
                offset,
            } => {
                let header = tagged(Opcode::Write, stag.0, offset);
                self.start_message(header, gather, finishes(id, signaled, true));
            }
            SendWr::Read { sink, stag, offset } => {
                // Not a secret: a response is matched with its request, not looked up by handle.
                let sink_stag = self.msn[rdmap::READ_QUEUE as usize];
                let request = ReadRequest {
                    sink_stag,
                    sink_offset: 0,
                    length: sink.len() as u32,
                    source_stag: stag.0,
                    source_offset: offset,
                };
                self.memory.reads.push_back(OutboundRead {
                    id,
                    sink,
                    stag: sink_stag,
                    done: 0,
                });
                let header = self.untagged(Opcode::ReadRequest, 0);
                let nothing = SmallVec::new();
                self.transmitter
                    .frame(&header, &request.to_bytes(), nothing, Finishes::Nothing);
            }
            SendWr::Invalidate { stag } => {
                self.memory.regions.invalidate(stag.0);
                self.outstanding -= 1;
                out.complete(self.qp, id, Ok(Success::Invalidate));
            }
        }
        Ok(true)
    }

    /// Does the invalidations at the head of the send queue. They need nothing of the peer, so
    /// neither a full socket nor a long answer on its way out delays them.
    pub(super) fn invalidate(&mut self, out: &mut Out<'_>) -> Result<(), Stop> {
        while matches!(
            self.work.front(),
            Some(Work {
                wr: SendWr::Invalidate { .. },
                ..
            })
        ) && !matches!(self.current, Current::Message(_))
        {
            self.start_request(out)?;
        }
        Ok(())
    }

    /// Whether another RDMA Read can be outstanding. With a peer that answers none at all the
    /// Read goes on to fail.
    fn may_read(&self) -> bool {
        self.outbound_reads == 0 || self.memory.reads.len() < self.outbound_reads
    }

    /// Whether a request is possible at all.
    fn check_request(&self, wr: &SendWr) -> Result<(), WorkError> {
        // A ULP message is shorter than 2^32 (RFC 5041, section 5.2).
        let fits = |len: usize| match u32::try_from(len) {
            Ok(_) => Ok(()),
            Err(_) => Err(WorkError::LocalLength),
        };
        match wr {
            SendWr::Send { gather, .. } | SendWr::Write { gather, .. } => {
                fits(gather.iter().map(Bytes::len).sum())
            }
            SendWr::Read { .. } if self.outbound_reads == 0 => Err(WorkError::RemoteOperation),
            SendWr::Read { sink, .. } => fits(sink.len()),
            SendWr::Invalidate { stag } if !self.memory.regions.is_known(stag.0) => {
                Err(WorkError::LocalProtection)
            }
            SendWr::Invalidate { .. } => Ok(()),
        }
    }

    fn start_message(&mut self, header: Header, payload: SmallVec<[Bytes; 4]>, finishes: Finishes) {
        let left = payload.iter().map(Bytes::len).sum();
        let mut message = Outgoing {
            header,
            payload,
            most: self.transmitter.max_payload(header.header_len()),
            left,
            done: 0,
            finishes,
        };
        if !message.frame_next(&mut self.transmitter) {
            self.current = Current::Message(message);
        }
    }

    /// The header of the next message of a queue.
    fn untagged(&mut self, opcode: Opcode, ulp_word: u32) -> Header {
        let queue = opcode.queue().unwrap_or(rdmap::SEND_QUEUE);
        let msn = &mut self.msn[queue as usize];
        let header = Header {
            last: true,
            ulp_control: opcode.control(),
            placement: Placement::Untagged {
                ulp_word,
                queue,
                msn: *msn,
                offset: 0,
            },
        };
        *msn = msn.wrapping_add(1);
        header
    }

    /// Queues a Terminate at the next FPDU boundary, and nothing after it.
    pub(super) fn send_terminate(&mut self, terminate: &Terminate) {
        self.transmitter.cut(|_| {});
        let header = self.untagged(Opcode::Terminate, 0);
        self.transmitter.frame(
            &header,
            &terminate.to_bytes(),
            SmallVec::new(),
            Finishes::Nothing,
        );
    }

    // ---- receiving ----

    /// Where the next bytes of the stream are to be put.
    pub(super) fn buffers(&mut self) -> Result<Buffers<'_>, Fault> {
        self.receiver.buffers(&mut self.memory)
    }

    /// Whether the stream may end here.
    pub(super) fn is_between_segments(&self) -> bool {
        self.receiver.is_between()
    }

    /// `n` bytes of the stream were put into [`Endpoint::buffers`].
    pub(super) fn received(&mut self, n: usize, out: &mut Out<'_>) -> Result<(), Ending> {
        self.receiver.filled(n, &mut self.memory)?;
        loop {
            let copied = &mut out.counters.copied_bytes;
            match self.receiver.step(&mut self.memory, copied)? {
                Step::More => return Ok(()),
                Step::Empty => {}
                Step::Segment(segment) => self.deliver(segment, out)?,
            }
            // Whatever it was, it was the peer's first.
            self.open = true;
            self.memory.empty_rtr = false;
        }
    }

    fn deliver(&mut self, segment: Segment, out: &mut Out<'_>) -> Result<(), Ending> {
        if let Placement::Untagged { queue, .. } = segment.header.placement
            && segment.header.last
        {
            let msn = &mut self.memory.msn[queue as usize];
            *msn = msn.wrapping_add(1);
        }
        match segment.opcode {
            Opcode::Write => Ok(()),
            Opcode::ReadResponse => {
                self.deliver_read(&segment, out);
                Ok(())
            }
            Opcode::ReadRequest => Ok(self.deliver_request(segment)?),
            Opcode::Terminate => {
                let terminate = self.receiver.terminate();
                Err(terminate.map_or(
                    Ending::Fault(Fault::bare(Code::STREAM_CATASTROPHIC)),
                    Ending::Terminated,
                ))
            }
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate => Ok(self.deliver_send(&segment, out)?),
        }
    }

    fn deliver_read(&mut self, segment: &Segment, out: &mut Out<'_>) {
        let Some(read) = self.memory.reads.front_mut() else {
            return;
        };
        read.done += segment.payload;
        if segment.header.last
            && let Some(OutboundRead { id, sink, .. }) = self.memory.reads.pop_front()
        {
            self.outstanding -= 1;
            out.complete(self.qp, id, Ok(Success::Read { sink }));
        }
    }

    fn deliver_request(&mut self, segment: Segment) -> Result<(), Fault> {
        let Some(request) = self.receiver.read_request() else {
            return Err(Fault::bare(Code::STREAM_CATASTROPHIC));
        };
        let response = Response {
            request,
            done: 0,
            most: 0,
            culprit: segment.culprit,
        };
        // The source of a Read of nothing is not looked at (RFC 5040, section 5.2.1).
        if request.length > 0 {
            self.memory
                .regions
                .readable(request.source_stag, request.source_offset, request.length)
                .map_err(|refused| response.fault(refused))?;
        }
        self.memory.inbound_reads += 1;
        self.responses.push_back(response);
        Ok(())
    }

    fn deliver_send(&mut self, segment: &Segment, out: &mut Out<'_>) -> Result<(), Fault> {
        if segment.target == Target::Nowhere {
            return Ok(());
        }
        self.memory.received += segment.payload;
        self.memory.receiving = Some(segment.opcode);
        if !segment.header.last {
            return Ok(());
        }
        let mut invalidated = None;
        if segment.opcode.invalidates()
            && let Placement::Untagged { ulp_word, .. } = segment.header.placement
        {
            // The handle must be one of this stream's and valid (RFC 5040, section 7.2).
            if !self.memory.regions.is_valid(ulp_word) {
                return Err(Fault {
                    code: Code::CANNOT_INVALIDATE,
                    culprit: Some(segment.culprit.clone()),
                });
            }
            self.memory.regions.invalidate(ulp_word);
            out.counters.remote_invalidations += 1;
            invalidated = Some(Stag(ulp_word));
        }
        if let Some(Receive { id, mut buf }) = self.memory.receives.pop_front() {
            buf.truncate(self.memory.received);
            out.counters.receives += 1;
            out.complete(self.qp, id, Ok(Success::Receive { buf, invalidated }));
        }
        self.memory.received = 0;
        self.memory.receiving = None;
        Ok(())
    }

    // ---- the end ----

    /// Lets go of all memory; only bytes on their way out stay.
    pub(super) fn release(&mut self) {
        self.memory = Memory::new();
        self.work.clear();
        self.responses.clear();
        self.current = Current::Nothing;
    }

    /// Completes everything that has not, and ends every registration. `blame` says of which
    /// request another error than "flushed" is reported.
    pub(super) fn end(&mut self, blame: &Blame, out: &mut Out<'_>) {
        let qp = self.qp;
        self.transmitter.cut(|finishes| {
            if let Finishes::Work { id, .. } = finishes {
                out.fail(qp, id, WorkError::Flushed, None);
            }
        });
        if let Current::Message(Outgoing {
            finishes: Finishes::Work { id, .. },
            ..
        }) = self.current
        {
            out.fail(qp, id, WorkError::Flushed, None);
        }
        self.current = Current::Nothing;
        self.responses.clear();
        for read in self.memory.reads.drain(..) {
            let error = match blame {
                Blame::Read(stag, error) if *stag == read.stag => *error,
                _ => WorkError::Flushed,
            };
            out.fail(qp, read.id, error, Some(read.sink));
        }
        let mut head = match blame {
            Blame::Head(error) => Some(*error),
            _ => None,
        };
        for Work { id, wr, .. } in self.work.drain(..) {
            let error = head.take().unwrap_or(WorkError::Flushed);
            let buf = match wr {
                SendWr::Read { sink, .. } => Some(sink),
                _ => None,
            };
            out.fail(qp, id, error, buf);
        }
        let mut too_long = *blame == Blame::Receive;
        for Receive { id, buf } in self.memory.receives.drain(..) {
            let first = std::mem::take(&mut too_long);
            let error = if first {
                WorkError::LocalLength
            } else {
                WorkError::Flushed
            };
            out.fail(qp, id, error, Some(buf));
        }
        self.outstanding = 0;
        self.memory.regions.invalidate_all();
    }
}

/// Which request an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// None in particular.
    Nobody,
    /// The request at the head of the send queue.
    Head(WorkError),
    /// The RDMA Read whose sink has this handle.
    Read(u32, WorkError),
    /// The receive that a message was too long for.
    Receive,
}

impl Blame {
    /// Whom a Terminate of the peer's is about: it carries the header of a Read Request that it
    /// refused.
    pub(super) fn of(terminate: &Terminate) -> Self {
        let read = terminate.culprit.as_ref().and_then(|culprit| culprit.read);
        match read {
            Some(read) if (terminate.code.layer, terminate.code.kind) == (0, 1) => {
                Self::Read(read.sink_stag, WorkError::RemoteAccess)
            }
            Some(read) => Self::Read(read.sink_stag, WorkError::RemoteOperation),
            None => Self::Nobody,
        }
    }
}

/// Why nothing more can be sent.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The peer's Read Request cannot be answered any more.
    Fault(Fault),
    /// The request at the head of the send queue is impossible.
    Local(WorkError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Response {
    /// The Terminate's header shows how far the Read got (RFC 5040, section 4.8).
    fn fault(&self, refused: Refused) -> Fault {
        let done = u64::from(self.done);
        let mut culprit = self.culprit.clone();
        culprit.read = Some(ReadRequest {
            sink_offset: self.request.sink_offset.wrapping_add(done),
            length: self.request.length - self.done,
            source_offset: self.request.source_offset.wrapping_add(done),
            ..self.request
        });
        Fault {
            code: refused.for_read(),
            culprit: Some(culprit),
        }
    }
}

impl Out<'_> {
    fn complete(&mut self, qp: QpId, id: WrId, result: Result<Success, Failed>) {
        let completion = Completion { qp, id, result };
        self.events.push_back(Event::Completion(completion));
    }

    fn fail(&mut self, qp: QpId, id: WrId, error: WorkError, buf: Option<Buf>) {
        self.complete(qp, id, Err(Failed { error, buf }));
    }
}

fn finishes(id: WrId, signaled: bool, write: bool) -> Finishes {
    Finishes::Work {
        id,
        signaled,
        write,
    }
}

fn tagged(opcode: Opcode, stag: u32, offset: u64) -> Header {
    Header {
        last: true,
        ulp_control: opcode.control(),
        placement: Placement::Tagged { stag, offset },
    }
}
