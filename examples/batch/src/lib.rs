//! An example extension of RPC-over-RDMA version 2, built step by step in docs/tutorial.md: several
//! small RPC messages in one transmission (rtissues-01, section 4), so that one Send suffices for
//! all of them.
//!
//! The messages follow one header, back to back. The header is an operation that lists their
//! lengths. By a characteristic, the receiver announces how many messages it accepts in one
//! transmission. Each message takes the same credit as it would alone.
//!
//! An end has this extension in its [`Extensions`](rpcrdma_extension::Extensions), and asks it
//! before it sends:
//!
//! ```
//! use std::collections::VecDeque;
//!
//! use batch::Batch;
//! use bytes::Bytes;
//! use rpcrdma_extension::Extensions;
//! use rpcrdma_v2::{Direction, Side};
//!
//! // XIDs of messages without RPC count down from the second argument.
//! let mut extensions = Extensions::new(Side::Client, u32::MAX, vec![Box::new(Batch::new(8))])?;
//! extensions.connected(None);
//! let mut waiting = VecDeque::from([Bytes::from_static(&[0; 40]), Bytes::from_static(&[0; 40])]);
//! let together = extensions
//!     .with(|batch: &mut Batch, _| batch.gather(Direction::Call, &mut waiting, 4096))
//!     .flatten();
//! // The peer has not announced that it accepts batches, so the calls are sent one by one.
//! assert!(together.is_none());
//! assert_eq!(waiting.len(), 2);
//!
//! // The operation lists the lengths of the messages.
//! let fields = batch::encode(&[40, 40]);
//! assert_eq!(batch::decode(&fields, 8)?, [40, 40]);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::iter;

use bytes::{Bytes, BytesMut};
use onc_rpc::Message;
use rpcrdma_extension::{
    Extension, IncomingCall, IncomingReply, Outbox, OutgoingMessage, Property, ReceivedMessage,
    Refusal, Transferred,
};
use rpcrdma_v2::limits::OPTIONAL_LEN;
use rpcrdma_v2::{CallChunks, Direction, Malformed, Reader};

/// The operation: from the range of experimental characteristics; the base has none for operations.
pub const ROPT_BATCH: u32 = 0xffff_ff00;
/// The characteristic: the maximum number of messages that its sender accepts in one transmission.
pub const XCHAR_BATCHMAX: u32 = 0xffff_ff00;
/// The number of messages that a peer accepts if it announces nothing.
const DEFAULT_MAX: u32 = 1;
/// The maximum number of messages in one transmission, even if the peer accepts more.
const MOST: u32 = 256;
/// The minimum length of an RPC message in bytes: its XID and message type (RFC 5531, section 9).
const SHORTEST: usize = 8;

/// Encodes the fields of the operation as XDR: the lengths of the messages in bytes, in order
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
pub fn decode(info: &Bytes, most: u32) -> Result<Vec<u32>, Malformed> {
    let mut info = Reader::new(info);
    let count = info.u32()?;
    // Checked before memory is allocated.
    if count > most {
        return Err(Malformed::TooMany("messages in a batch"));
    }
    let lengths = (0..count).map(|_| info.u32()).collect::<Result<_, _>>()?;
    info.end()?;
    Ok(lengths)
}

/// One end's state on one connection.
#[derive(Debug)]
pub struct Batch {
    takes: u32,
    peer_takes: u32,
}

impl Batch {
    /// Creates an end that accepts up to `takes` messages in one transmission.
    #[must_use]
    pub fn new(takes: u32) -> Self {
        Self {
            takes: takes.clamp(DEFAULT_MAX, MOST),
            peer_takes: DEFAULT_MAX,
        }
    }

    /// Takes messages from the front of `waiting`, which must be all calls or all replies: as many
    /// as the peer accepts and as fit in `room` bytes with their header. They follow the
    /// operation's header. Returns `None` for fewer than two, because a single message needs no
    /// batch.
    pub fn gather(
        &self,
        direction: Direction,
        waiting: &mut VecDeque<Bytes>,
        room: usize,
    ) -> Option<(OutgoingMessage, Bytes)> {
        let (mut lengths, mut bytes) = (Vec::new(), 0);
        for message in waiting.iter().take(self.peer_takes as usize) {
            lengths.push(u32::try_from(message.len()).ok()?);
            bytes += message.len();
            if header_len(&lengths) + bytes > room {
                lengths.pop();
                break;
            }
        }
        if lengths.len() < 2 {
            return None;
        }
        let payload: Bytes = waiting.drain(..lengths.len()).flatten().collect();
        let xid = word(&payload, 0)?;
        let message = OutgoingMessage {
            xid,
            direction,
            number: ROPT_BATCH,
            fields: encode(&lengths),
        };
        Some((message, payload))
    }

    /// Returns the messages that arrived, each with its XID.
    fn parts(&self, op: &ReceivedMessage<'_>) -> Result<Vec<(u32, Bytes)>, Malformed> {
        let (fields, at) = op.delimited()?;
        let mut payload = rest(op.message, at);
        let mut parts = Vec::new();
        for length in decode(fields, self.takes)? {
            let length = length as usize;
            if length < SHORTEST || !length.is_multiple_of(4) || length > payload.len() {
                return Err(Malformed::Rule("a message of a batch has a wrong length"));
            }
            let message = payload.split_to(length);
            if word(&message, 1) != Some(op.direction.number()) {
                return Err(Malformed::Rule("a batch has calls and replies"));
            }
            parts.extend(word(&message, 0).map(|xid| (xid, message)));
        }
        if !payload.is_empty() || parts.first().map(|(xid, _)| *xid) != Some(op.xid) {
            return Err(Malformed::Rule("a batch is not what follows it"));
        }
        Ok(parts)
    }
}

fn header_len(lengths: &[u32]) -> usize {
    OPTIONAL_LEN + encode(lengths).len()
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

impl Extension for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn numbers(&self) -> &[u32] {
        &[ROPT_BATCH]
    }

    fn properties(&self) -> Vec<Property> {
        let (id, value) = (
            XCHAR_BATCHMAX,
            Bytes::copy_from_slice(&self.takes.to_be_bytes()),
        );
        vec![Property { id, value }]
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        if let (XCHAR_BATCHMAX, Some(takes)) = (property.id, word(&property.value, 0)) {
            self.peer_takes = takes.clamp(DEFAULT_MAX, MOST);
        }
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        for (xid, message) in self.parts(op)? {
            let (credits, message) = (op.credits, Message::from_payload(message));
            out.transferred(match op.direction {
                Direction::Call => Transferred::Call(IncomingCall {
                    xid,
                    requested: credits,
                    transmissions: 1,
                    message,
                    chunks: CallChunks::default(),
                    context: Box::new(()),
                }),
                Direction::Reply => Transferred::Reply(IncomingReply {
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
}
