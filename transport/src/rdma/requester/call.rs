//! One call of a requester: its memory, and how far it has come.

use bytes::BytesMut;
use conveyance::{CallPayload, ReplyNeed};
use onc_rpc::{Bulk, BulkItem, Message, Position, Segments};
use rdma::{Region, Stag};
use rpcrdma_chunks::{Chunks, ReadSegment, WriteChunk};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::Written;
use smallvec::SmallVec;

use super::super::{memory, wire};
use super::prepared::{ByExtension, Prepared};
use super::registration::{Registration, Role};
use crate::CallError;

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
    /// A reply in operations, and what was written to each write chunk.
    Conveyed(Message, SmallVec<[Option<Written>; 1]>),
    Failed(CallError),
    /// Nobody waits for it.
    Dropped,
    /// It was not sent, for it was planned with limits that do not hold any more.
    Again(Box<Waiting>),
}

/// A call that has not been looked at yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) xid: u32,
    pub(super) message: Message,
    pub(super) need: ReplyNeed,
    /// Extensions are not to be asked for ways to convey it: one did not work.
    pub(super) barred: bool,
}

impl Waiting {
    /// The same, to go without extensions.
    pub(super) fn barred(self) -> Self {
        let barred = true;
        Self { barred, ..self }
    }
}

/// A call whose memory is being registered.
#[derive(Debug)]
pub(super) struct Registering {
    /// How the payload travels, and the payload itself if it is inline.
    payload: CallPayload,
    gather: Segments,
    /// Registrations, and receives, that have no answer yet.
    pub(super) left: usize,
    /// There are no receives for its reply.
    pub(super) unreserved: bool,
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
    /// Its place among all calls in the order in which they were sent, from 1.
    pub(super) place: u64,
    pub(super) cancelled: bool,
    /// It goes in operations of an extension.
    pub(super) by_extension: Option<Box<ByExtension>>,
    /// It went in operations before, and more errors for those may come.
    pub(super) barred: bool,
}

impl Registering {
    /// The call as it was, if it cannot be sent within `inline_send` bytes any more.
    pub(super) fn outgrown(&mut self, inline_send: u64) -> Option<Box<Waiting>> {
        self.source.take_if(|_| self.send_len > inline_send)
    }
}

impl Outstanding {
    /// The call, and the memory to register for it.
    pub(super) fn new(xid: u32, prepared: Prepared) -> (Self, Vec<(Role, Region)>) {
        let roles = prepared.regions.iter();
        let registrations: Vec<_> = roles.map(|(role, _)| Registration::new(*role)).collect();
        let by_extension = prepared.by_extension;
        let receives = by_extension.as_ref().map_or(0, |how| how.receives);
        let registering = Registering {
            payload: prepared.payload,
            gather: prepared.gather,
            left: registrations.len() + usize::from(receives > 0),
            unreserved: false,
            failed: None,
            send_len: prepared.send_len,
            source: prepared.source,
        };
        let phase = match registering.left == 0 {
            true => Phase::Ready(registering),
            false => Phase::Registering(registering),
        };
        let call = Self {
            xid,
            phase,
            registrations,
            place: 0,
            cancelled: false,
            by_extension,
            barred: prepared.barred,
        };
        (call, prepared.regions)
    }

    /// A call that is sent with nothing but itself.
    pub(super) fn plain(xid: u32, barred: bool) -> Self {
        Self {
            xid,
            phase: Phase::Sent(Chunks::default()),
            registrations: Vec::new(),
            place: 0,
            cancelled: false,
            by_extension: None,
            barred,
        }
    }

    /// Whether it is sent, and its reply can be told as it comes: it offered nothing, and somebody
    /// waits for it.
    pub(super) fn is_plain(&self) -> bool {
        matches!(&self.phase, Phase::Sent(offered) if offered.is_empty())
            && self.registrations.is_empty()
            && self.by_extension.is_none()
            && !self.cancelled
    }

    /// The call as it was, of one that goes in operations of an extension.
    pub(super) fn source(&self) -> Option<Waiting> {
        let how = self.by_extension.as_ref()?;
        Some(how.source.clone())
    }

    /// Credits that it takes.
    pub(super) fn transmissions(&self) -> u32 {
        self.by_extension
            .as_ref()
            .map_or(1, |how| how.transmissions)
    }

    /// Messages that its reply may come in.
    pub(super) fn replies(&self) -> u32 {
        1 + self.by_extension.as_ref().map_or(0, |how| how.receives)
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
    pub(super) fn offered(&self) -> Chunks {
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
    ) -> Option<Result<Message, CallError>> {
        let (message, writes, long) = match ended {
            Ended::Dropped | Ended::Again(_) => return None,
            Ended::Failed(error) => return Some(Err(error)),
            Ended::Conveyed(message, writes) => {
                return Some(Ok(self.with_written(message, &writes)));
            }
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
            Some(len) => self.placed(Role::Reply, len).into_segments(),
        };
        let items = writes.iter().enumerate().map(|(chunk, &len)| BulkItem {
            position: Position::InOrder,
            data: self.placed(Role::Write(chunk), len),
        });
        let message = Message::new(payload, items.collect::<SmallVec<[_; 1]>>());
        // What came inline was checked on arrival; a reply chunk can be looked into only now.
        let checked = wire::belongs(version, self.xid, Direction::Reply, &message);
        Some(match checked {
            Ok(()) => Ok(message),
            Err(error) => Err(CallError::Protocol(error.to_string())),
        })
    }

    /// A reply in operations, with the items that were written beside it.
    fn with_written(&mut self, message: Message, writes: &[Option<Written>]) -> Message {
        if writes.iter().all(Option::is_none) {
            return message;
        }
        let mut items = message.items().to_vec();
        for (chunk, written) in writes.iter().enumerate() {
            if let Some(Written { position, len }) = *written {
                items.push(BulkItem {
                    position: Position::At(position),
                    data: self.placed(Role::Write(chunk), len),
                });
            }
        }
        items.sort_by_key(|item| match item.position {
            Position::At(position) => position,
            Position::InOrder => u32::MAX,
        });
        Message::new(message.payload().clone(), items)
    }

    /// Bytes of the memory for this.
    pub(super) fn room(&self, role: Role) -> u64 {
        let pieces = self.registrations.iter();
        let pieces = pieces.filter(|registration| registration.role == role);
        pieces.map(|piece| u64::from(piece.segment.length)).sum()
    }

    /// The `len` bytes that the responder wrote to a chunk.
    fn placed(&mut self, role: Role, len: u64) -> Bulk {
        let pieces = self.registrations.iter_mut();
        let pieces = pieces.filter(|registration| registration.role == role);
        let pieces = pieces.filter_map(Registration::take_written);
        memory::gathered(pieces, len)
    }
}
