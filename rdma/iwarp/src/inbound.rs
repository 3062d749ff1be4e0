//! The receiving half of an endpoint: the effects of segments that have been placed.

use super::ddp::Placement;
use super::endpoint::{Endpoint, Out, Response};
use super::fault::{Ending, Fault};
use super::memory::{OutboundRead, Receive, Target};
use super::rdmap::Opcode;
use super::reading::Buffers;
use super::receive::{Segment, Step};
use super::shared_queue::SharedQueues;
use super::terminate::Code;
use rdma::{Stag, Success};

impl Endpoint {
    /// Returns the place for the next bytes of the stream if there is only one and no payload is
    /// expected. A shortcut for [`Endpoint::buffers`].
    pub(super) fn between_segments(&mut self) -> Option<&mut [u8]> {
        self.receiver.between_segments(&self.memory)
    }

    /// Adds the places for the next bytes of the stream to `buffers`.
    pub(super) fn buffers<'a>(
        &'a mut self,
        shared: &'a mut SharedQueues,
        buffers: &mut Buffers<'a>,
    ) -> Result<(), Fault> {
        self.receiver.buffers(&mut self.memory, shared, buffers)
    }

    /// Prepares for the next message, when nothing more can be received at present.
    pub(super) fn wait_for_more(&mut self) {
        if self.receiver.is_between() {
            self.memory.prefetch();
        }
    }

    /// Returns whether the stream may end here.
    pub(super) fn is_between_segments(&self) -> bool {
        self.receiver.is_between()
    }

    /// Handles `n` bytes of the stream that were received into [`Endpoint::buffers`].
    pub(super) fn received(&mut self, n: usize, out: &mut Out<'_>) -> Result<(), Ending> {
        let begins = self.receiver.filled(n, &mut self.memory, out.shared)?;
        if begins {
            if self.memory.receives.is_empty() {
                // The receive into which the bytes were received. If it were taken only when the header has been
                // parsed and finds none, the header would be parsed twice.
                self.memory.take_shared(out);
            }
            if self.take_predicted(out) {
                return Ok(());
            }
        }
        loop {
            while self.take_send(out) {}
            if self.receiver.is_used_up() {
                return Ok(());
            }
            let copied = &mut out.counters.copied_bytes;
            match self.receiver.step(&mut self.memory, copied)? {
                Step::More => return Ok(()),
                Step::Empty => {}
                Step::Segment(segment) => self.deliver(&segment, out)?,
                Step::NoReceive if self.memory.take_shared(out) => continue,
                Step::NoReceive => {
                    self.receiver.pause(&mut self.memory)?;
                    // The peer has sent something, which set-up may be waiting for.
                    (self.open, self.heard) = (true, true);
                    return Ok(());
                }
            }
            // This was the first segment from the peer.
            self.open = true;
            self.heard = true;
            self.memory.empty_rtr = false;
        }
    }

    #[inline(never)]
    pub(super) fn deliver(&mut self, segment: &Segment, out: &mut Out<'_>) -> Result<(), Ending> {
        if let Placement::Untagged { queue, .. } = segment.header.placement
            && segment.header.last
        {
            let msn = &mut self.memory.msn[queue as usize];
            *msn = msn.wrapping_add(1);
        }
        match segment.opcode {
            Opcode::Write => {
                self.receiver.note_other();
                Ok(())
            }
            Opcode::ReadResponse => {
                self.receiver.note_other();
                self.deliver_read(segment, out);
                Ok(())
            }
            Opcode::ReadRequest => Ok(self.deliver_request()?),
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
            | Opcode::SendSolicitedInvalidate => Ok(self.deliver_send(segment, out)?),
        }
    }

    pub(super) fn deliver_read(&mut self, segment: &Segment, out: &mut Out<'_>) {
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

    pub(super) fn deliver_request(&mut self) -> Result<(), Fault> {
        let Some(request) = self.receiver.read_request() else {
            return Err(Fault::bare(Code::STREAM_CATASTROPHIC));
        };
        let response = Response {
            request,
            done: 0,
            most: 0,
            faulty_segment: self.receiver.faulty_segment(),
        };
        // The source of a Read without payload is not checked (RFC 5040, section 5.2.1).
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

    pub(super) fn deliver_send(
        &mut self,
        segment: &Segment,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
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
            // The handle must belong to this stream and be valid (RFC 5040, section 7.2).
            if !self.memory.regions.is_valid(ulp_word) {
                return Err(Fault {
                    code: Code::CANNOT_INVALIDATE,
                    faulty_segment: Some(self.receiver.faulty_segment()),
                });
            }
            self.memory.regions.invalidate(ulp_word);
            out.counters.remote_invalidations += 1;
            invalidated = Some(Stag(ulp_word));
        }
        if let Some(Receive { id, mut buf }) = self.memory.receives.pop_front() {
            let beyond = buf.beyond_head(self.memory.received);
            self.receiver.note_send(self.memory.received, beyond);
            buf.truncate(self.memory.received);
            out.counters.receives += 1;
            out.complete(self.qp, id, Ok(Success::Receive { buf, invalidated }));
        }
        self.memory.received = 0;
        self.memory.receiving = None;
        Ok(())
    }
}
