//! The destination of received payload: checks a segment's header against registrations, posted
//! receives and outstanding reads (RFC 5041, section 7.1; RFC 5040, section 7.2).

use std::collections::VecDeque;

use super::ddp::{Header, Placement};
use super::rdmap::{self, ControlError, Opcode};
use super::regions::{Refused, Regions};
use super::shared_queue::{Binding, SharedQueues};
use super::terminate::{Code, MAX_TERMINATE};
use rdma::Places;
use rdma::{Buf, Scatter, WrId};

/// Number of bytes of the next receive to prefetch, enough for a short message.
const PREFETCHED: usize = 256;

/// A posted receive.
pub(super) struct Receive {
    pub(super) id: WrId,
    pub(super) buf: Scatter,
}

/// An RDMA Read whose request was sent.
pub(super) struct OutboundRead {
    pub(super) id: WrId,
    pub(super) sink: Buf,
    /// Handle of the sink in the request, which the response must name.
    pub(super) stag: u32,
    /// Number of bytes that have arrived.
    pub(super) done: usize,
}

/// The destination of a segment's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The receive at the head of the queue, from this offset.
    Receive { at: usize },
    /// The RDMA Read at the head of the queue, from this offset.
    Read { at: usize },
    /// Registered memory.
    Region { stag: u32, offset: u64 },
    /// The device itself: a Read Request or a Terminate.
    Control,
    /// No destination: there is no payload, or it only counts for the CRC.
    Nowhere,
}

impl Target {
    /// Returns the destination `by` bytes further on.
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

/// The reason why a segment has no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// The peer may not send it.
    Fault(Code),
    /// It begins a message, for which a receive must be taken from the shared receive queue.
    NoReceive,
}

impl From<Code> for Unplaced {
    fn from(code: Code) -> Self {
        Self::Fault(code)
    }
}

/// The memory in which the peer of one connection can place payload, and the state that determines
/// which segments it may send next.
pub(super) struct Memory {
    pub(super) regions: Regions,
    /// The receives, the current message's first. With a shared receive queue, only that one.
    pub(super) receives: VecDeque<Receive>,
    /// The shared receive queue to which the queue pair is bound, if there is one.
    pub(super) binding: Option<Binding>,
    /// Number of bytes of the current message in the first receive.
    pub(super) received: usize,
    /// Message type of the current message.
    pub(super) receiving: Option<Opcode>,
    pub(super) reads: VecDeque<OutboundRead>,
    /// Next MSN of each queue (RFC 5041, section 4.3).
    pub(super) msn: [u32; 3],
    /// Number of the peer's unanswered Read Requests, and their maximum.
    pub(super) inbound_reads: usize,
    pub(super) inbound_limit: usize,
    /// Whether the peer may start with an FPDU or a Send without payload (RFC 6581, section 9.2).
    pub(super) empty_rtr: bool,
    /// MSN of the Send whose receive was prefetched.
    prefetched: u32,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            regions: Regions::default(),
            receives: VecDeque::new(),
            binding: None,
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

    /// Loads the beginning of the next receive into the processor's cache, once, while there is
    /// nothing else to do. Each receive lies in a page of its own and they are used in turn, so the
    /// next one is usually not in the cache.
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

    /// Returns whether the next Send begins a message and is not a ready-to-receive message.
    #[inline]
    pub(super) fn is_between_messages(&self) -> bool {
        self.received == 0 && self.receiving.is_none() && !self.empty_rtr
    }

    /// Returns the receive that the next message will take, if there is one now.
    pub(super) fn next_receive<'a>(
        &'a mut self,
        shared: &'a mut SharedQueues,
    ) -> Option<&'a mut Scatter> {
        match &self.binding {
            None => self.receives.front_mut().map(|receive| &mut receive.buf),
            Some(binding) => shared.get_mut(binding.queue)?.front_mut(),
        }
    }

    /// Returns the receives that the next messages will take, if they come from a shared receive queue.
    pub(super) fn upcoming<'a>(
        &self,
        shared: &'a mut SharedQueues,
    ) -> impl Iterator<Item = &'a mut Scatter> + use<'a> {
        let binding = self.binding.as_ref();
        let queue = binding.and_then(|binding| shared.get_mut(binding.queue));
        queue.into_iter().flat_map(|queue| queue.upcoming())
    }

    /// Checks a segment with `len` bytes of payload, and returns its destination.
    pub(super) fn place(&self, header: &Header, len: usize) -> Result<(Opcode, Target), Unplaced> {
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
            // STag and TO of a segment without payload are not checked (RFC 5041, section 5.2).
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
                // Responses must arrive in order and completely; the length of the request
                // determines where this one ends.
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
    ) -> Result<Target, Unplaced> {
        let expected = self.msn.get(queue as usize).ok_or(Code::QUEUE)?;
        if opcode.queue() != Some(queue) {
            return Err(Code::OPCODE.into());
        }
        if msn != *expected {
            return Err(Code::MSN_RANGE.into());
        }
        if queue == rdmap::SEND_QUEUE {
            return self.place_send(opcode, last, offset as usize, len);
        }
        if offset != 0 {
            return Err(Code::MESSAGE_OFFSET.into());
        }
        let (limit, exact) = match opcode {
            Opcode::ReadRequest if self.inbound_reads >= self.inbound_limit => {
                return Err(Code::NO_BUFFER.into());
            }
            Opcode::ReadRequest => (rdmap::READ_REQUEST, true),
            _ => (MAX_TERMINATE, false),
        };
        if len > limit {
            return Err(Code::TOO_LONG.into());
        }
        // No RFC defines a code for a message that is shorter than its own header.
        if !last || (exact && len < limit) {
            return Err(Code::STREAM_CATASTROPHIC.into());
        }
        Ok(Target::Control)
    }

    fn place_send(
        &self,
        opcode: Opcode,
        last: bool,
        offset: usize,
        len: usize,
    ) -> Result<Target, Unplaced> {
        if self.empty_rtr && last && offset == 0 && len == 0 && opcode == Opcode::Send {
            return Ok(Target::Nowhere);
        }
        let Some(receive) = self.receives.front() else {
            // Only the first segment of a message takes a receive from a shared receive queue.
            return Err(match &self.binding {
                Some(_) if offset == 0 => Unplaced::NoReceive,
                Some(_) => Code::MESSAGE_OFFSET.into(),
                None => Code::NO_BUFFER.into(),
            });
        };
        if offset != self.received {
            return Err(Code::MESSAGE_OFFSET.into());
        }
        if self.receiving.is_some_and(|before| before != opcode) {
            return Err(Code::OPCODE.into());
        }
        if len > receive.buf.len() - self.received {
            return Err(Code::TOO_LONG.into());
        }
        Ok(Target::Receive { at: offset })
    }

    /// Returns the number of bytes from `target` to the end of its buffer if the peer has written
    /// none of them, and zero otherwise.
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

    /// Returns how many bytes of the next Send's segment may be received elsewhere and copied, if
    /// there is a limit. Little data goes into the first buffer of a receive with several, and data
    /// for the others must not be copied. `behind` says that the current message is at its end.
    pub(super) fn copyable(&self, behind: bool) -> Option<usize> {
        let next = match &self.binding {
            None => self.receives.get(usize::from(behind))?.buf.head()?,
            // The receive is not taken yet, but all have the same structure.
            Some(binding) => binding.head?,
        };
        let received = if behind { 0 } else { self.received };
        Some(next.saturating_sub(received))
    }

    /// Records that a segment of `len` bytes was accepted for a destination. If that is the beginning of a region to
    /// which the peer had written nothing, returns what [`Regions::touch`] returns.
    pub(super) fn touch(&mut self, target: Target, len: usize) -> Option<(u64, usize)> {
        match target {
            Target::Region { stag, offset } => self.regions.touch(stag, offset, len as u64),
            _ => None,
        }
    }

    /// Returns the memory of a target that bytes were read ahead into, from `skip` bytes on: `len` bytes.
    pub(super) fn read_ahead(
        &mut self,
        target: Target,
        skip: usize,
        len: usize,
    ) -> Result<Places<'_>, Code> {
        match target.shifted(skip) {
            Target::Region { stag, offset } => {
                let memory = self.regions.read_ahead(stag, offset, len as u64);
                memory.map(Places::one).ok_or(Code::STREAM_CATASTROPHIC)
            }
            target => self.places(target, 0, len),
        }
    }

    /// Returns the memory of a target, from `skip` bytes into the segment's payload, for at least
    /// `len` bytes, which may lie in several buffers of a receive. Called for every piece that
    /// arrives, because a region can be invalidated in the middle of a segment.
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
