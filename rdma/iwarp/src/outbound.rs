//! The sending half of an endpoint: from requests to framed segments.

use std::io::IoSlice;

use bytes::Bytes;
use smallvec::SmallVec;

use super::ddp::{self, Header, Placement};
use super::endpoint::{Current, Endpoint, Out, Response, Stop, Work};
use super::fault::Fault;
use super::memory::OutboundRead;
use super::rdmap::{self, Opcode, ReadRequest};
use super::regions::Refused;
use super::terminate::Terminate;
use super::transmit::{Finishes, Outgoing, Slices};
use rdma::{Gather, SendWr, Success, WorkError, WrId};

/// STag of the ready-to-receive message. Chelsio's adapters fail a tagged segment with STag 0 even
/// if it has no payload, and the connection ends (zrlio/softiwarp, issue 21). Linux's siw sends 1
/// for the same reason.
const READY_TO_RECEIVE_STAG: u32 = 1;

impl Endpoint {
    /// Queues an RDMA Write without payload, which is this side's ready-to-receive message (RFC
    /// 6581, section 9.2). STag and offset of a segment without payload are not checked (RFC 5041,
    /// section 5.2), except by some hardware ([`READY_TO_RECEIVE_STAG`]).
    pub(super) fn send_ready_to_receive(&mut self) {
        let header = tagged(Opcode::Write, READY_TO_RECEIVE_STAG, 0);
        self.transmitter
            .frame(&header, &[], SmallVec::new(), Finishes::Nothing);
    }

    /// Returns whether all posted requests have been sent, as far as is possible without the peer.
    #[inline]
    pub(super) fn is_flushed(&self) -> bool {
        self.short.is_empty() && self.has_only_short()
    }

    /// Returns whether nothing is to be sent but short Sends that are framed.
    #[inline]
    pub(super) fn has_only_short(&self) -> bool {
        self.transmitter.is_empty()
            && self.work.is_empty()
            && self.responses.is_empty()
            && matches!(self.current, Current::Nothing)
    }

    /// Returns whether all framed bytes have been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.short.is_empty() && self.transmitter.is_empty()
    }

    /// Frames the segments that can be framed now, and gathers them for a write. Returns their
    /// length in bytes.
    ///
    /// # Errors
    /// [`Stop`] if the memory of a Read that is being answered was invalidated, or a request cannot
    /// be executed.
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
        let short = self.short.unsent();
        if !short.is_empty() {
            slices.push(IoSlice::new(short));
        }
        Ok(short.len() + self.transmitter.gather(slices))
    }

    /// Returns the number of payload bytes in the framed segments that have not been written to TCP.
    pub(super) fn framed_payload(&self) -> usize {
        self.transmitter.payload()
    }

    /// Records that `n` of the gathered bytes were written to TCP.
    pub(super) fn sent(&mut self, n: usize, out: &mut Out<'_>) {
        let behind = self.short_sent(n, out);
        let Self {
            qp,
            transmitter,
            outstanding,
            memory,
            ..
        } = self;
        transmitter.sent(behind, |finishes| match finishes {
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

    /// Frames one segment, or executes one request that needs none. Returns false if nothing can be
    /// done now.
    pub(super) fn frame_next(&mut self, out: &mut Out<'_>) -> Result<bool, Stop> {
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
            // Requests and responses alternate, with whole messages, because a peer may not accept
            // interleaved segments of two tagged messages.
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

    pub(super) fn frame_response(&mut self) -> Result<(), Fault> {
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
            // The memory is looked up for each segment, because the program may have invalidated
            // it.
            let offset = request.source_offset + u64::from(response.done);
            let bytes = self
                .memory
                .regions
                .readable(request.source_stag, offset, len);
            let bytes = bytes.map_err(|refused| {
                // Framed segments that have not been sent are dropped.
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

    /// Starts the request at the head of the send queue, unless it must wait. A request that cannot
    /// be executed stays there, so that [`Endpoint::end`] completes it.
    pub(super) fn start_request(&mut self, out: &mut Out<'_>) -> Result<bool, Stop> {
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
                // This handle need not be secret: a response is matched with the oldest request and
                // not looked up by handle.
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

    /// Executes the invalidations at the head of the send queue. They do not involve the peer, so
    /// neither a full socket nor a long response in progress delays them.
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

    /// Returns whether another RDMA Read can be outstanding. If the peer accepts none at all, the
    /// Read is started and fails.
    pub(super) fn may_read(&self) -> bool {
        self.outbound_reads == 0 || self.memory.reads.len() < self.outbound_reads
    }

    /// Checks whether a request can be executed at all.
    pub(super) fn check_request(&self, wr: &SendWr) -> Result<(), WorkError> {
        // A ULP message is shorter than 2^32 bytes (RFC 5041, section 5.2).
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

    pub(super) fn start_message(&mut self, header: Header, payload: Gather, finishes: Finishes) {
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

    /// Returns the header of the next message of a queue.
    pub(super) fn untagged(&mut self, opcode: Opcode, ulp_word: u32) -> Header {
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

    /// Queues a Terminate at the next FPDU boundary, with nothing after it.
    pub(super) fn send_terminate(&mut self, terminate: &Terminate) {
        self.short.cut(|_| {});
        self.transmitter.cut(|_| {});
        let header = self.untagged(Opcode::Terminate, 0);
        let bytes = terminate.to_bytes();
        self.transmitter
            .frame(&header, &bytes, SmallVec::new(), Finishes::Nothing);
    }
}

impl Response {
    /// Makes the error of a Read whose memory was refused. The header in the Terminate shows how
    /// far the Read got (RFC 5040, section 4.8).
    pub(super) fn fault(&self, refused: Refused) -> Fault {
        let done = u64::from(self.done);
        let mut faulty_segment = self.faulty_segment.clone();
        faulty_segment.read = Some(ReadRequest {
            sink_offset: self.request.sink_offset.wrapping_add(done),
            length: self.request.length - self.done,
            source_offset: self.request.source_offset.wrapping_add(done),
            ..self.request
        });
        Fault {
            code: refused.for_read(),
            faulty_segment: Some(faulty_segment),
        }
    }
}

pub(super) fn finishes(id: WrId, signaled: bool, write: bool) -> Finishes {
    Finishes::Work {
        id,
        signaled,
        write,
    }
}

pub(super) fn tagged(opcode: Opcode, stag: u32, offset: u64) -> Header {
    Header {
        last: true,
        ulp_control: opcode.control(),
        placement: Placement::Tagged { stag, offset },
    }
}
