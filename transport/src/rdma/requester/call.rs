//! One call of a requester: its memory, and how far it has come.

use bytes::{Bytes, BytesMut};
use conveyance::{CallItem, CallPayload, CallPlan, ReplyNeed};
use onc_rpc::{BulkItem, Message, Position, Segments};
use rpcrdma_chunks::{Chunks, ReadSegment, Segment, WriteChunk};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Direction;
use smallvec::SmallVec;
use verbs::{Pool, PoolExhausted, Region, RemoteSegment, Stag};

use super::super::{memory, wire};
use crate::CallError;

/// What registered memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A segment of the read chunk at this position; 0 for the position-zero read chunk.
    Read(u32),
    /// A segment of this write chunk.
    Write(usize),
    /// A segment of the reply chunk.
    Reply,
}

/// How far a registration has come.
#[derive(Debug)]
enum State {
    Registering,
    /// The peer can reach it.
    Valid,
    /// Being invalidated here, or invalidated by the peer and being reclaimed.
    Leaving,
    /// The peer cannot reach it, and the memory is here (or, if it is of no use, let go of).
    Gone(Option<Region>),
}

/// A registration of a call's.
#[derive(Debug)]
pub(super) struct Registration {
    role: Role,
    segment: Segment,
    state: State,
}

impl Registration {
    fn new(role: Role) -> Self {
        let segment = Segment {
            handle: 0,
            length: 0,
            offset: 0,
        };
        Self {
            role,
            segment,
            state: State::Registering,
        }
    }

    pub(super) fn valid(&mut self, registered: RemoteSegment) {
        self.segment = Segment {
            handle: registered.stag.0,
            length: registered.length,
            offset: registered.offset,
        };
        self.state = State::Valid;
    }

    pub(super) fn leaving(&mut self) {
        self.state = State::Leaving;
    }

    pub(super) fn gone(&mut self, region: Option<Region>) {
        self.state = State::Gone(region);
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone(_))
    }

    /// Its handle, while the peer can reach it.
    pub(super) fn stag(&self) -> Option<Stag> {
        matches!(self.state, State::Valid).then_some(Stag(self.segment.handle))
    }
}

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    Reply {
        /// The inline payload; empty when the payload is in the reply chunk.
        message: Message,
        /// Bytes in each write chunk.
        writes: SmallVec<[u64; 1]>,
        /// Bytes of payload in the reply chunk.
        long: Option<u64>,
    },
    Failed(CallError),
    /// Nobody waits for it.
    Dropped,
    /// It was not sent, for it was planned with limits that do not hold any more.
    Again(Box<Waiting>),
}

/// A call that has not been looked at yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) xid: u32,
    pub(super) message: Message,
    pub(super) need: ReplyNeed,
}

/// A call whose memory is being registered.
#[derive(Debug)]
pub(super) struct Registering {
    /// How the payload travels, and the payload itself if it is inline.
    payload: CallPayload,
    gather: Segments,
    /// Registrations that have no answer yet.
    pub(super) left: usize,
    /// Why one of them failed.
    pub(super) failed: Option<String>,
    /// Bytes of its Send.
    send_len: u64,
    /// The call as it was, where limits can change before it is sent.
    source: Option<Box<Waiting>>,
}

/// How far a call has come.
#[derive(Debug)]
pub(super) enum Phase {
    Registering(Registering),
    /// Everything is registered; it waits for a credit.
    Ready(Registering),
    /// It was sent, and offered these chunks.
    Sent(Chunks),
    /// Its outcome is known; its memory is not back yet.
    Ended(Ended),
}

/// A call that has registrations, or a credit.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) xid: u32,
    pub(super) phase: Phase,
    pub(super) registrations: Vec<Registration>,
    pub(super) cancelled: bool,
}

/// A call as planned, with its memory.
pub(super) struct Prepared {
    payload: CallPayload,
    gather: Segments,
    regions: Vec<(Role, Region)>,
    send_len: u64,
    source: Option<Box<Waiting>>,
}

impl Prepared {
    /// Keeps the call as it was if it is not going to be sent at once.
    pub(super) fn keep(&mut self, source: Waiting) {
        if !self.regions.is_empty() {
            self.source = Some(Box::new(source));
        }
    }
}

impl Registering {
    /// The call as it was, if it cannot be sent within `inline_send` bytes any more.
    pub(super) fn outgrown(&mut self, inline_send: u64) -> Option<Box<Waiting>> {
        self.source.take_if(|_| self.send_len > inline_send)
    }
}

/// Takes apart a message as planned, and takes memory for its results.
pub(super) fn prepare(
    message: &Message,
    plan: &CallPlan,
    max_segment: u64,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Prepared, PoolExhausted> {
    let mut regions: Vec<(Role, Region)> = Vec::new();
    let mut read = |position: u32, bytes: &Bytes| {
        for slice in memory::slices(bytes, max_segment) {
            regions.push((Role::Read(position), Region::RemoteRead(slice)));
        }
    };
    let mut gather = message.gather(|index| plan.items[index].1 == CallItem::InPayload);
    if plan.payload == CallPayload::PositionZero {
        read(0, &memory::flatten(&gather, pool, copied)?);
        gather.clear();
    }
    for ((item, how), bulk) in plan.items.iter().zip(message.items()) {
        if *how == CallItem::ReadChunk {
            read(item.position, &bulk.data);
        }
    }
    let mut write = |role: Role, len: u64| -> Result<(), PoolExhausted> {
        let buf = pool.alloc(usize::try_from(len).unwrap_or(usize::MAX))?;
        for piece in memory::cut(buf, max_segment) {
            regions.push((role, Region::RemoteWrite(piece)));
        }
        Ok(())
    };
    for (chunk, &len) in plan.write_chunks.iter().enumerate() {
        write(Role::Write(chunk), len)?;
    }
    if let Some(len) = plan.reply_chunk {
        write(Role::Reply, len)?;
    }
    Ok(Prepared {
        payload: plan.payload,
        gather,
        regions,
        send_len: plan.send_len(),
        source: None,
    })
}

impl Outstanding {
    /// The call, and the memory to register for it.
    pub(super) fn new(xid: u32, prepared: Prepared) -> (Self, Vec<(Role, Region)>) {
        let roles = prepared.regions.iter();
        let registrations: Vec<_> = roles.map(|(role, _)| Registration::new(*role)).collect();
        let registering = Registering {
            payload: prepared.payload,
            gather: prepared.gather,
            left: registrations.len(),
            failed: None,
            send_len: prepared.send_len,
            source: prepared.source,
        };
        let phase = match registrations.is_empty() {
            true => Phase::Ready(registering),
            false => Phase::Registering(registering),
        };
        let call = Self {
            xid,
            phase,
            registrations,
            cancelled: false,
        };
        (call, prepared.regions)
    }

    /// The registration with this handle, if the peer could reach it so far.
    pub(super) fn find(&self, stag: Stag) -> Option<usize> {
        let registrations = self.registrations.iter();
        registrations
            .map(Registration::stag)
            .position(|valid| valid == Some(stag))
    }

    /// Everything is registered.
    pub(super) fn ready(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Ended(Ended::Dropped)) {
            Phase::Registering(registering) => Phase::Ready(registering),
            other => other,
        };
    }

    /// Makes the message to send, asking for `credits`; its header is made in `room`.
    pub(super) fn send(
        &mut self,
        version: Version,
        credits: u32,
        room: &mut BytesMut,
    ) -> Option<Segments> {
        let chunks = self.offered();
        let Phase::Ready(Registering {
            payload, gather, ..
        }) = &mut self.phase
        else {
            return None;
        };
        let mut message = std::mem::take(gather);
        let (header, chunks) =
            wire::encode_call(version, room, self.xid, credits, *payload, chunks);
        message.insert(0, header);
        self.phase = Phase::Sent(chunks);
        Some(message)
    }

    /// The chunk lists: registrations are in the order in which they are listed.
    fn offered(&self) -> Chunks {
        let mut chunks = Chunks::default();
        for registration in &self.registrations {
            let segment = registration.segment;
            match registration.role {
                Role::Read(position) => chunks.reads.push(ReadSegment { position, segment }),
                Role::Write(chunk) => {
                    if chunks.writes.len() <= chunk {
                        chunks.writes.push(WriteChunk::new());
                    }
                    chunks.writes[chunk].push(segment);
                }
                Role::Reply => chunks.reply.get_or_insert_default().push(segment),
            }
        }
        chunks
    }

    /// What to tell the upper layer, if it waits: all memory is back.
    pub(super) fn finish(
        &mut self,
        version: Version,
        ended: Ended,
        copied: &mut u64,
    ) -> Option<Result<Message, CallError>> {
        let (message, writes, long) = match ended {
            Ended::Dropped | Ended::Again(_) => return None,
            Ended::Failed(error) => return Some(Err(error)),
            Ended::Reply {
                message,
                writes,
                long,
            } => (message, writes, long),
        };
        if writes.is_empty() && long.is_none() {
            return Some(Ok(message));
        }
        let payload = match long {
            None => message.payload().clone(),
            Some(len) => SmallVec::from_iter([self.placed(Role::Reply, len, copied)]),
        };
        let items = writes.iter().enumerate().map(|(chunk, &len)| BulkItem {
            position: Position::InOrder,
            data: self.placed(Role::Write(chunk), len, copied),
        });
        let message = Message::new(payload, items.collect::<SmallVec<[_; 1]>>());
        // What came inline was checked on arrival; a reply chunk can be looked into only now.
        let checked = wire::belongs(version, self.xid, Direction::Reply, &message);
        Some(match checked {
            Ok(()) => Ok(message),
            Err(error) => Err(CallError::Protocol(error.to_string())),
        })
    }

    /// The `len` bytes that the responder wrote to a chunk.
    fn placed(&mut self, role: Role, len: u64, copied: &mut u64) -> Bytes {
        let pieces = self.registrations.iter_mut().filter_map(|registration| {
            if registration.role != role {
                return None;
            }
            match &mut registration.state {
                State::Gone(region) => match region.take() {
                    Some(Region::RemoteWrite(buf)) => Some(buf),
                    _ => None,
                },
                _ => None,
            }
        });
        memory::join(pieces, len, copied)
    }
}
