//! One outstanding call: its memory and its progress.

use onc_rpc::{Bulk, BulkItem, Message, Position, Segments};
use rdma::trace::Wait;
use rdma::{Region, Stag};
use rpcrdma_chunks::{Chunks, Direction, ReadSegment, WriteChunk};
use rpcrdma_extension::Written;
use smallvec::SmallVec;
use transfer_plan::{CallPayload, Limits};

use super::pending::PendingCall;
use super::prepared::{Carrier, Prepared};
use super::registration::{Purpose, Registration};
use crate::dialect::{Dialect, Outgoing};
use crate::flow::SentCall;
use crate::shared::Shared;
use crate::{CallError, memory};

/// The outcome of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The reply arrived.
    Reply {
        /// The inline payload, which is empty if the payload is in the reply chunk.
        message: Message,
        /// Bytes placed in each write chunk.
        writes: SmallVec<[u64; 1]>,
        /// Bytes of payload in the reply chunk, if the payload is there.
        long: Option<u64>,
    },
    /// The reply arrived in messages of an extension, with the item that was placed in each write
    /// chunk.
    CarriedReply(Message, SmallVec<[Option<Written>; 1]>),
    /// The call failed.
    Failed(CallError),
    /// The call was cancelled.
    Dropped,
    /// The call must be planned again: the limits have changed, or its transfer mode failed.
    Again(Box<PendingCall>),
}

impl Outcome {
    /// Returns the number of bytes that the responder wrote to chunks.
    pub(super) fn written(&self) -> u64 {
        match self {
            Self::Reply { writes, long, .. } => writes.iter().chain(long).sum(),
            Self::CarriedReply(_, writes) => writes.iter().flatten().map(|it| it.len).sum(),
            Self::Failed(_) | Self::Dropped | Self::Again(_) => 0,
        }
    }
}

/// A planned call that is not sent yet.
#[derive(Debug)]
pub(super) struct Unsent {
    /// The inline payload, or the information that it is in a chunk.
    payload: CallPayload,
    gather: Segments,
    /// Registrations, and requests for receives, that have no answer yet.
    pub(super) unanswered: usize,
    /// Whether the receives for its reply could not be posted.
    pub(super) no_receives: bool,
    /// The reason why a registration failed, if one did.
    pub(super) failed: Option<String>,
    /// Length of its longest Send, bytes. An extension may use the whole limit that it planned
    /// with, so for its calls this is that limit.
    send_len: u64,
}

/// The progress of a call.
#[derive(Debug)]
pub(super) enum Stage {
    /// The call's memory is being registered.
    Registering(Unsent),
    /// The call's memory is registered, and the call waits for a credit.
    Ready(Unsent),
    /// The call was sent and offered these chunks.
    Sent(Chunks),
    /// The call's outcome is known, and its memory has not been reclaimed yet.
    Ended(Outcome),
}

/// A call that has registrations or a credit.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub(super) xid: u32,
    pub(super) stage: Stage,
    pub(super) registrations: Vec<Registration>,
    /// The number of the call in the order of sending, from 1.
    pub(super) number: u64,
    pub(super) cancelled: bool,
    /// The reason why the planned call waits, as far as a trace has been told.
    pub(super) waits: Option<Wait>,
    /// The extension that carries the call, if one does.
    pub(super) carrier: Option<Carrier>,
    /// The message with other calls in which the call was sent, if it was.
    pub(super) batch: Option<SentBatch>,
    /// The original call, kept if it may have to be planned again: while the limits can change, or
    /// because the responder may refuse its chunks. An extension's call always has it, and so has one
    /// that was sent with others.
    source: Option<PendingCall>,
}

/// A message with several calls that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentBatch {
    /// The XID of the message, which is that of no call.
    pub(super) xid: u32,
    /// The number of the extension that made it.
    pub(super) by: usize,
}

impl Outstanding {
    /// Returns the state of a prepared call, and the memory to register for it.
    pub(super) fn new(xid: u32, prepared: Prepared) -> (Self, Vec<(Purpose, Region)>) {
        let purposes = prepared.regions.iter().map(|(purpose, _)| *purpose);
        let registrations: Vec<_> = purposes.map(Registration::new).collect();
        let carrier = prepared.carrier;
        let receives = carrier.as_ref().map_or(0, |carrier| carrier.receives);
        let unsent = Unsent {
            payload: prepared.payload,
            gather: prepared.gather,
            unanswered: registrations.len() + usize::from(receives > 0),
            no_receives: false,
            failed: None,
            send_len: prepared.send_len,
        };
        // A call with nothing to register can be sent as soon as it is at the head of the ready
        // calls.
        let stage = match unsent.unanswered == 0 {
            true => Stage::Ready(unsent),
            false => Stage::Registering(unsent),
        };
        let call = Self {
            xid,
            stage,
            registrations,
            number: 0,
            cancelled: false,
            waits: None,
            carrier,
            batch: None,
            source: prepared.source,
        };
        (call, prepared.regions)
    }

    /// Returns the state of a plain call that is sent at once.
    pub(super) fn plain(xid: u32) -> Self {
        Self {
            xid,
            stage: Stage::Sent(Chunks::default()),
            registrations: Vec::new(),
            number: 0,
            cancelled: false,
            waits: None,
            carrier: None,
            batch: None,
            source: None,
        }
    }

    /// Returns the state of a call that an extension carries and that is sent now, without chunks.
    pub(super) fn carried(call: PendingCall, carrier: Carrier) -> Self {
        let plain = Self::plain(call.xid);
        Self {
            carrier: Some(carrier),
            source: Some(call),
            ..plain
        }
    }

    /// Returns the state of a call that is sent now with others.
    pub(super) fn batched(call: PendingCall, batch: SentBatch) -> Self {
        let plain = Self::plain(call.xid);
        Self {
            batch: Some(batch),
            source: Some(call),
            ..plain
        }
    }

    /// Returns whether the call was sent, offered no chunks, and was not cancelled. A reply without
    /// chunks can then be delivered at once.
    pub(super) fn is_plain(&self) -> bool {
        matches!(&self.stage, Stage::Sent(offered) if offered.is_empty())
            && self.registrations.is_empty()
            && !self.cancelled
    }

    /// Returns the call as the upper layer made it, if it is planned and not sent, and breaks these
    /// limits: a Send of it may be too long, its header may list too many segments, or its payload
    /// may not be in a chunk.
    pub(super) fn original_if_outgrown(&self, limits: &Limits) -> Option<Box<PendingCall>> {
        let (Stage::Registering(unsent) | Stage::Ready(unsent)) = &self.stage else {
            return None;
        };
        let listed = self.registrations.len() as u64;
        let outgrown =
            unsent.send_len > limits.inline_send || listed > u64::from(limits.chunks.segments);
        // The peer has refused calls of this kind since (`Requester::external_calls_refused`).
        let long = unsent.payload == CallPayload::PositionZero;
        let outgrown = outgrown || long && !limits.chunks.position_zero;
        let source = self.source.as_ref().filter(|_| outgrown)?;
        Some(Box::new(source.clone()))
    }

    /// Returns the call as the upper layer made it, if that is kept so that the call can be planned
    /// again.
    pub(super) fn original(&self) -> Option<&PendingCall> {
        self.source.as_ref()
    }

    /// Returns the number of Sends of the call, each of which takes a credit.
    pub(super) fn sends(&self) -> u32 {
        self.carrier.as_ref().map_or(1, |carrier| carrier.sends)
    }

    /// Returns the messages of the call, which was sent.
    pub(super) fn sent_messages(&self) -> SentCall {
        SentCall {
            number: self.number,
            sends: self.sends(),
            replies: self.reply_messages(),
        }
    }

    /// Returns whether the call may be begun before the peer can receive all of its Sends.
    pub(super) fn may_wait(&self) -> bool {
        self.carrier.as_ref().is_none_or(|carrier| carrier.may_wait)
    }

    /// Returns the number of receives that are kept for the reply where credits count calls. Where
    /// they count Sends it is one, and has no effect.
    pub(super) fn reply_messages(&self) -> u32 {
        1 + self.carrier.as_ref().map_or(0, |carrier| carrier.receives)
    }

    /// Returns the index of the registration with this handle, if the handle is still valid.
    pub(super) fn registration_of(&self, stag: Stag) -> Option<usize> {
        let registrations = self.registrations.iter();
        registrations
            .map(Registration::valid_stag)
            .position(|valid| valid == Some(stag))
    }

    /// Records that all memory of the call is registered.
    pub(super) fn set_ready(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Ended(Outcome::Dropped)) {
            Stage::Registering(unsent) => Stage::Ready(unsent),
            other => other,
        };
    }

    /// Returns the message of a ready call.
    pub(super) fn encode(
        &mut self,
        shared: &mut Shared,
        may_be_invalidated: bool,
    ) -> Option<Segments> {
        let chunks = self.offered_chunks();
        let Stage::Ready(Unsent {
            payload, gather, ..
        }) = &mut self.stage
        else {
            return None;
        };
        let mut message = std::mem::take(gather);
        let credits = shared.flow.credit_field(Direction::Call);
        let (header, chunks) = shared.encode(Outgoing {
            xid: self.xid,
            credits,
            direction: Direction::Call,
            inline: *payload == CallPayload::Inline,
            chunks,
            may_be_invalidated,
        });
        message.insert(0, header);
        // The reply is checked against the lists as they were encoded. A dialect may have put them
        // into another order.
        self.stage = Stage::Sent(chunks);
        Some(message)
    }

    /// Returns the chunk lists: registrations are in the order in which they are listed.
    pub(super) fn offered_chunks(&self) -> Chunks {
        let mut chunks = Chunks::default();
        for registration in &self.registrations {
            let segment = registration.segment;
            match registration.purpose {
                Purpose::Read(position) => chunks.reads.push(ReadSegment { position, segment }),
                Purpose::Write(chunk) => {
                    // The segments of a chunk follow each other in `registrations`, so this one
                    // begins the next chunk.
                    if chunks.writes.len() <= chunk {
                        chunks.writes.push(WriteChunk::new());
                    }
                    chunks.writes[chunk].push(segment);
                }
                Purpose::Reply => chunks.reply.get_or_insert_default().push(segment),
            }
        }
        chunks
    }

    /// Returns the result for the upper layer, after all memory has been reclaimed, or `None` if
    /// the call is cancelled or planned again.
    pub(super) fn take_result(
        &mut self,
        dialect: &dyn Dialect,
        outcome: Outcome,
    ) -> Option<Result<Message, CallError>> {
        let (message, writes, long) = match outcome {
            Outcome::Dropped | Outcome::Again(_) => return None,
            Outcome::Failed(error) => return Some(Err(error)),
            Outcome::CarriedReply(message, writes) => {
                return Some(Ok(self.with_written(message, &writes)));
            }
            Outcome::Reply {
                message,
                writes,
                long,
            } => (message, writes, long),
        };
        if writes.is_empty() && long.is_none() {
            return Some(Ok(message));
        }
        // The payload of a long reply is in the reply chunk, and the inline payload is empty then.
        let payload = match long {
            None => message.payload().clone(),
            Some(len) => self.take_placed(Purpose::Reply, len).into_segments(),
        };
        let items = writes.iter().enumerate().map(|(chunk, &len)| BulkItem {
            position: dialect.result_position(),
            data: self.take_placed(Purpose::Write(chunk), len),
        });
        let whole = Message::new(payload, items.collect::<SmallVec<[_; 1]>>());
        let message = whole.with_extras(message.extras().clone());
        // An inline payload was checked on arrival; a reply chunk can be looked into only now.
        let checked = dialect.check_payload(self.xid, Direction::Reply, &message);
        Some(match checked {
            Ok(()) => Ok(message),
            Err(error) => Err(CallError::Protocol(error.to_string())),
        })
    }

    /// Adds the items that were placed by RDMA Writes to a reply that arrived in messages of an
    /// extension.
    fn with_written(&mut self, message: Message, writes: &[Option<Written>]) -> Message {
        if writes.iter().all(Option::is_none) {
            return message;
        }
        let mut items = message.items().to_vec();
        for (chunk, written) in writes.iter().enumerate() {
            if let Some(Written { position, len }) = *written {
                items.push(BulkItem {
                    position: Position::At(position),
                    data: self.take_placed(Purpose::Write(chunk), len),
                });
            }
        }
        // An upper layer finds items in the order of their positions, whichever way they came.
        items.sort_by_key(|item| match item.position {
            Position::At(position) => position,
            Position::InOrder | Position::InOrderOrInline => u32::MAX,
        });
        Message::new(message.payload().clone(), items).with_extras(message.extras().clone())
    }

    /// Returns the number of bytes that are registered for this purpose.
    pub(super) fn registered_bytes(&self, purpose: Purpose) -> u64 {
        let pieces = self.registrations.iter();
        let pieces = pieces.filter(|registration| registration.purpose == purpose);
        pieces.map(|piece| u64::from(piece.segment.length)).sum()
    }

    /// Removes and returns the `len` bytes that the responder wrote to a chunk.
    fn take_placed(&mut self, purpose: Purpose, len: u64) -> Bulk {
        let pieces = self.registrations.iter_mut();
        let pieces = pieces.filter(|registration| registration.purpose == purpose);
        let pieces = pieces.filter_map(Registration::take_written);
        memory::gathered(pieces, len)
    }
}
