//! An example extension of both versions 2 of RPC-over-RDMA, built step by step in docs/tutorial.md:
//! several small RPC messages in one transmission (rtissues-01, section 4), so that one Send suffices
//! for all of them.
//!
//! The messages follow one header, back to back. The header lists their lengths. By a property, the
//! receiver announces how many messages it accepts in one transmission. What becomes of credits, XIDs
//! and invalidation is said in [`rpcrdma_extension::Batch`]'s module: the engine does it.
//!
//! [`extend`] adds the extension to what a client or a server speaks:
//!
//! ```
//! use rpcrdma_connection::{Config, Connection};
//!
//! let protocols = batch::extend(rpcrdma_protocols::base(), 64);
//! let client = Connection::new(Config::client(rdma::Pool::new(1 << 20), protocols));
//!
//! // The header lists the lengths of the messages.
//! let fields = batch::encode(&[40, 40]);
//! assert_eq!(batch::decode(&fields, 8)?, [40, 40]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

use std::iter;

use bytes::{Bytes, BytesMut};
use onc_rpc::Message;
use rpcrdma_chunks::{CallChunks, Direction, Malformed, Reader};
use rpcrdma_connection::{Protocols, Version};
use rpcrdma_extension::{
    Batch, Batching, Extension, Fields, IncomingCall, IncomingReply, Outbox, PeerError, Property,
    ReceivedMessage, Refusal, SmallMessages, Transferred, Transmission, made_by,
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
    let versions = [(Version::TWO, true), (Version::TWO_WG, false)];
    versions
        .into_iter()
        .fold(protocols, |protocols, (version, counts_calls)| {
            let batches = Batches::new(takes, counts_calls);
            protocols.with(version, made_by(move |_| Box::new(batches)))
        })
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
    fn parts(&self, it: &ReceivedMessage<'_>) -> Result<(u32, Vec<(u32, Bytes)>), Malformed> {
        let (lengths, at) = it.read(|fields| read(fields, self.takes))?;
        let mut payload = rest(it.message, at);
        let direction = word(&payload, 1).ok_or(Malformed::Truncated)?;
        if direction > Direction::Reply.number() {
            return Err(Malformed::Rule("a batch has neither calls nor replies"));
        }
        let mut parts = Vec::new();
        for length in lengths {
            let length = length as usize;
            if length < SHORTEST || !length.is_multiple_of(4) || length > payload.len() {
                return Err(Malformed::Rule("a message of a batch has a wrong length"));
            }
            let message = payload.split_to(length);
            if word(&message, 1) != Some(direction) {
                return Err(Malformed::Rule("a batch has calls and replies"));
            }
            parts.extend(word(&message, 0).map(|xid| (xid, message)));
        }
        // Headers of the working group's version have no direction.
        let told = matches!(it.fields, Fields::Delimited { .. }).then_some(it.direction.number());
        if !payload.is_empty() || parts.is_empty() || told.is_some_and(|told| told != direction) {
            return Err(Malformed::Rule("a batch is not what follows it"));
        }
        Ok((direction, parts))
    }
}

fn word(message: &Bytes, index: usize) -> Option<u32> {
    let bytes = message.get(4 * index..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Returns the bytes after the header. They are in one piece, unless this end has receive buffers
/// of several segments.
fn rest(message: &[Bytes], at: usize) -> Bytes {
    if let [message] = message {
        return message.slice(at.min(message.len())..);
    }
    let mut joined: BytesMut = message.iter().flatten().copied().collect();
    joined.split_off(at.min(joined.len())).freeze()
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
        if let (XCHAR_BATCHMAX, Some(takes)) = (property.id, word(&property.value, 0)) {
            self.peer_takes = takes.clamp(DEFAULT_MAX, MOST);
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let (direction, parts) = self.parts(it)?;
        for (at, (xid, message)) in parts.into_iter().enumerate() {
            let (credits, message) = (it.credits, Message::from_payload(message));
            out.transferred(match direction == Direction::Call.number() {
                true => Transferred::BaseCall {
                    call: IncomingCall {
                        xid,
                        requested: credits,
                        transmissions: u32::from(self.counts_calls || at == 0),
                        message,
                        chunks: CallChunks::default(),
                        context: Box::new(()),
                    },
                    handle: None,
                },
                false => Transferred::AnyReply(IncomingReply {
                    xid,
                    granted: credits,
                    transmissions: 1,
                    message,
                    writes: Default::default(),
                }),
            });
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
            message
                .payload()
                .iter()
                .for_each(|piece| payload.extend_from_slice(piece));
        }
        let count = lengths.len();
        let payload = iter::once(payload.freeze()).collect();
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
