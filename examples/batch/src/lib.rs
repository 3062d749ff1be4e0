//! An example extension of both versions 2 of RPC-over-RDMA: several small RPC messages in one
//! transmission (rtissues-01, section 4), so that one Send suffices for all of them.
//!
//! The messages follow one header, back to back. The header lists their lengths. By a property, the
//! receiver announces how many messages it accepts in one transmission. What becomes of credits, XIDs
//! and invalidation is said in [`rpcrdma_extension::Batch`]'s module: the engine does it.

#![forbid(unsafe_code)]

use std::iter;

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, peek_start};
use rpcrdma_chunks::{Direction, Malformed, Reader};
use rpcrdma_connection::{Protocols, Version};
use rpcrdma_extension::{
    Batch, Batching, Extension, Fields, Outbox, PeerError, Property, ReceivedMessage, Refusal,
    SmallMessages, Transferred, Transmission, made_by,
};

/// The operation of version 2 of 2016, and the header type of that of the working group: from the range
/// for experiments. (In 2016's it is the range of characteristics; operations have none.)
pub const ROPT_BATCH: u32 = 0xffff_ff00;
/// The property: the maximum number of messages that its sender accepts in one transmission.
pub const XCHAR_BATCHMAX: u32 = 0xffff_ff00;
/// The number of messages that a peer accepts if it announces nothing.
const DEFAULT_MAX: u32 = 1;
/// The maximum number of messages in one transmission, even if the peer accepts more.
const MOST: u32 = 256;
/// The minimum length of an RPC message in bytes: its XID and message type (RFC 5531, section 9).
const SHORTEST: usize = 8;

/// Encodes the fields of the header as XDR: the lengths of the messages in bytes, in order
/// (drafts/xdr/batch.x).
#[must_use]
pub fn encode(lengths: &[u32]) -> Bytes {
    let words = iter::once(lengths.len() as u32).chain(lengths.iter().copied());
    words.flat_map(u32::to_be_bytes).collect()
}

/// Decodes the lengths, at most `most` of them.
///
/// # Errors
/// [`Malformed`] if the XDR is invalid or there are too many.
pub fn decode(fields: &[u8], most: u32) -> Result<Vec<u32>, Malformed> {
    Reader::whole(fields, |fields| read(fields, most))
}

fn read(fields: &mut Reader<'_>, most: u32) -> Result<Vec<u32>, Malformed> {
    let count = fields.u32()?;
    // Checked before memory is allocated.
    if count > most {
        return Err(Malformed::TooMany("messages in a batch"));
    }
    (0..count).map(|_| fields.u32()).collect()
}

/// Returns protocols that accept up to `takes` messages in one transmission, in both versions 2.
#[must_use]
pub fn extend(protocols: Protocols, takes: u32) -> Protocols {
    // The first counts calls, and the second messages.
    let make = |counts_calls| made_by(move |_| Box::new(Batches::new(takes, counts_calls)));
    let protocols = protocols.with(Version::TWO, make(true));
    protocols.with(Version::TWO_WG, make(false))
}

/// One end's state on one connection.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    takes: u32,
    peer_takes: u32,
    counts_calls: bool,
}

impl Batches {
    /// Returns an end that accepts up to `takes` messages in one transmission. Credits count calls, so
    /// that each takes one, or messages.
    #[must_use]
    pub fn new(takes: u32, counts_calls: bool) -> Self {
        Self {
            takes: takes.clamp(DEFAULT_MAX, MOST),
            peer_takes: DEFAULT_MAX,
            counts_calls,
        }
    }

    /// Returns the messages that arrived: the direction of all, and each with its XID.
    fn parts(
        &self,
        it: &ReceivedMessage<'_>,
    ) -> Result<(Direction, Vec<(u32, Message)>), Malformed> {
        let (lengths, at) = it.read(|fields| read(fields, self.takes))?;
        // Headers of the working group's version have no direction.
        let told = matches!(it.fields, Fields::Delimited { .. }).then_some(it.direction.number());
        let (mut payload, mut parts, mut direction) = (it.rest(at), Vec::new(), told);
        for length in lengths {
            let length = length as usize;
            if length < SHORTEST || !length.is_multiple_of(4) || length > payload.len() {
                return Err(Malformed::Rule("a message of a batch has a wrong length"));
            }
            let message = Message::from_payload(payload.split_to(length));
            let (xid, kind) = peek_start(&message).ok_or(Malformed::Truncated)?;
            if *direction.get_or_insert(kind) != kind {
                return Err(Malformed::Rule("a batch has calls and replies"));
            }
            parts.push((xid, message));
        }
        let mut directions = [Direction::Call, Direction::Reply].into_iter();
        match directions.find(|it| direction == Some(it.number())) {
            Some(direction) if payload.is_empty() && !parts.is_empty() => Ok((direction, parts)),
            _ => Err(Malformed::Rule("a batch is not what follows it")),
        }
    }
}

impl Extension for Batches {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn numbers(&self) -> &[u32] {
        &[ROPT_BATCH]
    }

    fn properties(&self) -> Vec<Property> {
        let value = Bytes::copy_from_slice(&self.takes.to_be_bytes());
        vec![Property {
            id: XCHAR_BATCHMAX,
            value,
        }]
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        let takes = property.value.first_chunk();
        if let (XCHAR_BATCHMAX, Some(takes)) = (property.id, takes) {
            self.peer_takes = u32::from_be_bytes(*takes).clamp(DEFAULT_MAX, MOST);
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let (direction, parts) = self.parts(it)?;
        for (at, (xid, message)) in parts.into_iter().enumerate() {
            let credits = u32::from(self.counts_calls || at == 0);
            let part = Transferred::plain(direction, xid, it.credits, credits, message);
            out.transferred(part);
        }
        Ok(())
    }

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(self)
    }
}

impl Batching for Batches {
    fn send_batch(&mut self, small: &SmallMessages<'_>) -> Option<Batch> {
        let (mut lengths, mut payload) = (Vec::new(), BytesMut::new());
        for message in small.messages.iter().take(self.peer_takes as usize) {
            let length = u32::try_from(message.payload_len()).ok()?;
            // With the count of the lengths and this one.
            let fields = 4 * (lengths.len() as u64 + 2);
            if fields + payload.len() as u64 + u64::from(length) > small.room {
                break;
            }
            lengths.push(length);
            let pieces = message.payload().iter();
            pieces.for_each(|piece| payload.extend_from_slice(piece));
        }
        let (count, payload) = (lengths.len(), iter::once(payload.freeze()).collect());
        // A single message needs no batch.
        (count > 1).then(|| Batch {
            count,
            transmission: Transmission::new(ROPT_BATCH, encode(&lengths), payload),
        })
    }

    fn batch_refused(&mut self, _: PeerError) {
        self.peer_takes = DEFAULT_MAX;
    }
}
