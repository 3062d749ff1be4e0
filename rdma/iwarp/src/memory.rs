//! Where arriving payload goes: the check of a segment's header against what is registered,
//! posted and outstanding (RFC 5041, section 7.1; RFC 5040, section 7.2).

use std::collections::VecDeque;

use super::ddp::{Header, Placement};
use super::rdmap::{self, ControlError, Opcode};
use super::regions::{Refused, Regions};
use super::terminate::{Code, MAX_TERMINATE};
use rdma::Places;
use rdma::{Buf, Scatter, WrId};

/// Bytes of the next receive that are prefetched: what a short message fills.
const PREFETCHED: usize = 256;

/// A posted receive.
pub(super) struct Receive {
    pub(super) id: WrId,
    pub(super) buf: Scatter,
}

/// An RDMA Read whose request went out.
pub(super) struct OutboundRead {
    pub(super) id: WrId,
    pub(super) sink: Buf,
    /// Names the sink in the request; the response must name it too.
    pub(super) stag: u32,
    /// Bytes that have arrived.
    pub(super) done: usize,
}

/// Where a segment's payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The receive at the head of the queue, from this offset on.
    Receive { at: usize },
    /// The RDMA Read at the head of the queue, from this offset on.
    Read { at: usize },
    /// Registered memory.
    Region { stag: u32, offset: u64 },
    /// The device itself: a Read Request or a Terminate.
    Control,
    /// Nowhere: there is none, or it is only looked at for its CRC.
    Nowhere,
}

impl Target {
    /// The place `by` bytes further on.
    pub(super) fn shifted(self, by: usize) -> Self {
        match self {
            Self::Receive { at } => Self::Receive { at: at + by },
            Self::Read { at } => Self::Read { at: at + by },
            Self::Region { stag, offset } => Self::Region {
                stag,
                offset: offset.wrapping_add(by as u64),
            },
            Self::Control | Self::Nowhere => self,
        }
    }
}

/// What one connection's peer can place payload into, and what it may send next.
pub(super) struct Memory {
    pub(super) regions: Regions,
    pub(super) receives: VecDeque<Receive>,
    /// Bytes of the message in the first receive.
    pub(super) received: usize,
    /// That message's type.
    pub(super) receiving: Option<Opcode>,
    pub(super) reads: VecDeque<OutboundRead>,
    /// MSN that comes next, by queue (RFC 5041, section 4.3).
    pub(super) msn: [u32; 3],
    /// The peer's Read Requests that are not answered yet, and how many it may have.
    pub(super) inbound_reads: usize,
    pub(super) inbound_limit: usize,
    /// The peer may start with an FPDU or a Send that carries nothing (RFC 6581, section 5).
    pub(super) empty_rtr: bool,
    /// The Send, by its MSN, whose receive was prefetched.
    prefetched: u32,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            regions: Regions::default(),
            receives: VecDeque::new(),
            received: 0,
            receiving: None,
            reads: VecDeque::new(),
            msn: [1; 3],
            inbound_reads: 0,
            inbound_limit: 0,
            empty_rtr: false,
            prefetched: 0,
        }
    }

    /// Brings the beginning of the receive that comes next into the processor's cache, once, while
    /// there is nothing else to do. Receives lie in a page each and are used in turn, so that the next
    /// one is in no cache as a rule.
    pub(super) fn prefetch(&mut self) {
        let next = self.msn[rdmap::SEND_QUEUE as usize];
        if self.prefetched == next || !self.is_between_messages() {
            return;
        }
        if let Some(receive) = self.receives.front_mut() {
            receive.buf.prefetch(PREFETCHED);
            self.prefetched = next;
        }
    }

    /// Whether the next Send begins a message, and is no message that only set-up wants.
    #[inline]
    pub(super) fn is_between_messages(&self) -> bool {
        self.received == 0 && self.receiving.is_none() && !self.empty_rtr
    }

    /// Checks a segment with `len` bytes of payload.
    pub(super) fn place(&self, header: &Header, len: usize) -> Result<(Opcode, Target), Code> {
        let opcode = Opcode::from_control(header.ulp_control).map_err(|error| match error {
            ControlError::Version(_) => Code::RDMAP_VERSION,
            ControlError::Opcode(_) => Code::OPCODE,
        })?;
        let target = match header.placement {
            Placement::Tagged { stag, offset } => {
                self.place_tagged(opcode, header.last, stag, offset, len)?
            }
            Placement::Untagged {
                queue, msn, offset, ..
            } => self.place_untagged(opcode, header.last, (queue, msn, offset), len)?,
        };
        Ok((opcode, target))
    }

    fn place_tagged(
        &self,
        opcode: Opcode,
        last: bool,
        stag: u32,
        offset: u64,
        len: usize,
    ) -> Result<Target, Code> {
        match opcode {
            // STag and TO of a segment without payload are not looked at (RFC 5041, section 5.2).
            Opcode::Write if len == 0 => Ok(Target::Nowhere),
            Opcode::Write => {
                self.regions
                    .check_write(stag, offset, len as u64)
                    .map_err(Refused::for_write)?;
                Ok(Target::Region { stag, offset })
            }
            Opcode::ReadResponse => {
                let read = self.reads.front().ok_or(Code::OPCODE)?;
                if len > 0 && stag != read.stag {
                    return Err(Code::TAGGED_STAG);
                }
                // Responses come in order and whole: what we asked for says where this one ends.
                let end = read.done + len;
                let in_order = len == 0 || offset == read.done as u64;
                if !in_order || end > read.sink.len() || last != (end == read.sink.len()) {
                    return Err(Code::TAGGED_BOUNDS);
                }
                Ok(Target::Read { at: read.done })
            }
            _ => Err(Code::OPCODE),
        }
    }

    fn place_untagged(
        &self,
        opcode: Opcode,
        last: bool,
        (queue, msn, offset): (u32, u32, u32),
        len: usize,
    ) -> Result<Target, Code> {
        let expected = self.msn.get(queue as usize).ok_or(Code::QUEUE)?;
        if opcode.queue() != Some(queue) {
            return Err(Code::OPCODE);
        }
        if msn != *expected {
            return Err(Code::MSN_RANGE);
        }
        if queue == rdmap::SEND_QUEUE {
            return self.place_send(opcode, last, offset as usize, len);
        }
        if offset != 0 {
            return Err(Code::MESSAGE_OFFSET);
        }
        let (limit, exact) = match opcode {
            Opcode::ReadRequest if self.inbound_reads >= self.inbound_limit => {
                return Err(Code::NO_BUFFER);
            }
            Opcode::ReadRequest => (rdmap::READ_REQUEST, true),
            _ => (MAX_TERMINATE, false),
        };
        if len > limit {
            return Err(Code::TOO_LONG);
        }
        // No document has a code for a message that is shorter than its own header.
        if !last || (exact && len < limit) {
            return Err(Code::STREAM_CATASTROPHIC);
        }
        Ok(Target::Control)
    }

    fn place_send(
        &self,
        opcode: Opcode,
        last: bool,
        offset: usize,
        len: usize,
    ) -> Result<Target, Code> {
        if self.empty_rtr && last && offset == 0 && len == 0 && opcode == Opcode::Send {
            return Ok(Target::Nowhere);
        }
        let receive = self.receives.front().ok_or(Code::NO_BUFFER)?;
        if offset != self.received {
            return Err(Code::MESSAGE_OFFSET);
        }
        if self.receiving.is_some_and(|before| before != opcode) {
            return Err(Code::OPCODE);
        }
        if len > receive.buf.len() - self.received {
            return Err(Code::TOO_LONG);
        }
        Ok(Target::Receive { at: offset })
    }

    /// Bytes from a place on whose content does not matter yet.
    pub(super) fn room_at(&self, target: Target) -> usize {
        match target {
            Target::Receive { at } => {
                let receive = self.receives.front();
                receive.map_or(0, |receive| receive.buf.len().saturating_sub(at))
            }
            Target::Read { at } => {
                let read = self.reads.front();
                read.map_or(0, |read| read.sink.len().saturating_sub(at))
            }
            Target::Region { stag, offset } => self.regions.untouched_at(stag, offset),
            Target::Control | Target::Nowhere => 0,
        }
    }

    /// Bytes of the next Send's segment that may be received elsewhere and copied: what comes into the
    /// first piece of a receive in several is little, and what comes into the others is not to be
    /// copied. `behind`: the message at hand is at its end.
    pub(super) fn copyable(&self, behind: bool) -> Option<usize> {
        let next = self.receives.get(usize::from(behind))?.buf.head()?;
        let received = if behind { 0 } else { self.received };
        Some(next.saturating_sub(received))
    }

    /// A segment of `len` bytes was accepted for a place.
    pub(super) fn touch(&mut self, target: Target, len: usize) {
        if let Target::Region { stag, offset } = target {
            self.regions.touch(stag, offset, len as u64);
        }
    }

    /// The memory of a target, from `skip` bytes into the segment's payload on: `len` bytes at
    /// least, which may lie in several pieces of a receive. Looked up for every piece that arrives, because a region can be invalidated in the middle of a segment.
    pub(super) fn places(
        &mut self,
        target: Target,
        skip: usize,
        len: usize,
    ) -> Result<Places<'_>, Code> {
        let gone = Code::STREAM_CATASTROPHIC;
        match target {
            Target::Receive { at } => {
                let receive = self.receives.front_mut().ok_or(gone)?;
                match at + skip + len <= receive.buf.len() {
                    true => Ok(receive.buf.places(at + skip)),
                    false => Err(gone),
                }
            }
            Target::Read { at } => {
                let read = self.reads.front_mut().ok_or(gone)?;
                let sink = read.sink.get_mut(at + skip..at + skip + len);
                sink.map(Places::one).ok_or(gone)
            }
            Target::Region { stag, offset } => self
                .regions
                .writable(stag, offset + skip as u64, len as u64)
                .map(Places::one)
                .map_err(Refused::for_write),
            Target::Control | Target::Nowhere => Ok(Places::default()),
        }
    }
}
