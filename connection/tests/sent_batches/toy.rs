//! An extension of both versions 2, defined outside the crate, that sends several calls or replies in
//! one message.

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, put_words};
use rpcrdma_chunks::{CallChunks, Malformed};
use rpcrdma_connection::Options;
use rpcrdma_extension::{
    Batch, Batching, Extension, IncomingCall, IncomingReply, Outbox, PeerError, ReceivedMessage,
    Refusal, SmallMessages, Transferred, Transmission, made_by,
};
use rpcrdma_negotiation::Version;

/// The header type: the number of messages and their lengths in bytes, and the messages.
pub(crate) const BATCH: u32 = 0xffff_ff93;

/// The extension at one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toy {
    /// The maximum number of messages that it sends together.
    pub(crate) sends: usize,
    /// The maximum number of messages that it takes together.
    pub(crate) takes: u32,
    /// The number of messages of a batch that it delivers before it refuses the batch.
    pub(crate) refuses_after: Option<usize>,
    /// Whether it says of batches that it does not support them.
    pub(crate) unsupported: bool,
    /// Whether credits count messages and not calls.
    pub(crate) counts_messages: bool,
}

impl Toy {
    /// Adds the extension to those of an end in a version.
    pub(crate) fn add(mut self, version: Version, options: &mut Options) {
        self.counts_messages = version == Version::TWO_WG;
        options
            .protocols
            .add(version, made_by(move |_| Box::new(self)));
    }
}

impl Default for Toy {
    fn default() -> Self {
        Self {
            sends: usize::MAX,
            takes: 1000,
            refuses_after: None,
            unsupported: false,
            counts_messages: false,
        }
    }
}

impl Extension for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn numbers(&self) -> &[u32] {
        &[BATCH]
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        if self.unsupported {
            return Err(Refusal::Unsupported);
        }
        let takes = self.takes;
        let (lengths, at) = it.read(|fields| {
            let count = fields.u32()?;
            if count > takes {
                return Err(Malformed::TooMany("messages in a batch"));
            }
            let lengths = (0..count).map(|_| fields.u32());
            lengths.collect::<Result<Vec<_>, _>>()
        })?;
        let mut rest = Bytes::from(it.message.concat()).slice(at..);
        for (at, length) in lengths.into_iter().enumerate() {
            if self.refuses_after == Some(at) {
                return Err(Refusal::Unsupported);
            }
            let part = rest.split_to(length as usize);
            let word = |at: usize| u32::from_be_bytes(part[at..at + 4].try_into().unwrap());
            let (xid, is_reply) = (word(0), word(4) == onc_rpc::REPLY);
            let message = Message::from_payload(part.clone());
            out.transferred(match is_reply {
                false => Transferred::BaseCall {
                    call: IncomingCall {
                        xid,
                        requested: it.credits,
                        transmissions: u32::from(at == 0 || !self.counts_messages),
                        message,
                        chunks: CallChunks::default(),
                        context: Box::new(()),
                    },
                    handle: None,
                },
                true => Transferred::AnyReply(IncomingReply {
                    xid,
                    granted: it.credits,
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

impl Batching for Toy {
    fn send_batch(&mut self, small: &SmallMessages<'_>) -> Option<Batch> {
        let (mut lengths, mut payload) = (Vec::new(), BytesMut::new());
        for message in small.messages.iter().take(self.sends) {
            let with_it = 4 * (lengths.len() + 2) + payload.len();
            if with_it as u64 + message.payload_len() > small.room {
                break;
            }
            lengths.push(message.payload_len() as u32);
            payload.extend_from_slice(&message.payload().concat());
        }
        let mut fields = BytesMut::new();
        put_words(&mut fields, [lengths.len() as u32]);
        lengths
            .iter()
            .for_each(|&length| put_words(&mut fields, [length]));
        let payload = [payload.freeze()].into_iter().collect();
        (lengths.len() > 1).then(|| Batch {
            count: lengths.len(),
            transmission: Transmission::new(BATCH, fields.freeze(), payload),
        })
    }

    fn batch_refused(&mut self, _: PeerError) {
        self.sends = 0;
    }
}
