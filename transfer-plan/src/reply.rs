//! Planning of a reply: its transfer mode, given the chunks that the requester offered.

use onc_rpc::padded;
use smallvec::SmallVec;

use crate::{ChunkCounts, Item, Limits, Shape};

/// A write chunk or reply chunk that a requester offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of segments. A chunk with none is an *empty* chunk: the requester wants the item
    /// inline (RFC 8166, section 4.3.2.3).
    pub segments: u64,
    /// Total length of the segments in bytes.
    pub capacity: u64,
}

/// All chunks that a requester offered for one reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Write chunks, in list order.
    pub writes: SmallVec<[Offer; 1]>,
    /// The reply chunk.
    pub reply: Option<Offer>,
}

/// The place of a reply's payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPayload {
    /// The payload is in the Send, after the transport header (RDMA_MSG).
    Inline,
    /// The payload is in the reply chunk (RDMA_NOMSG): a Long Reply (RFC 8166, section 3.5.3).
    ReplyChunk,
}

/// The place of a bulk item of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyItem {
    /// The item stays inside the payload stream.
    InPayload,
    /// The item is in the write chunk with this index, counted from 0 in list order.
    WriteChunk(usize),
}

/// The reason why a reply cannot be sent. The responder answers with ERR_CHUNK instead (RFC 8166,
/// section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The item does not fit the next write chunk. It must not be sent in any other way, which a
    /// requester would treat as a protocol violation (section 6.1).
    #[error("result item {item} of {len} bytes does not fit write chunk {chunk} of {capacity}")]
    WriteChunkTooShort {
        /// Index of the item.
        item: usize,
        /// Length of the item in bytes.
        len: u64,
        /// Index of the write chunk.
        chunk: usize,
        /// Length of the write chunk in bytes.
        capacity: u64,
    },
    /// The payload fits neither inline nor the reply chunk.
    #[error("reply payload of {len} bytes fits neither inline ({inline}) nor {}", chunk(.capacity))]
    DoesNotFit {
        /// Length of the payload stream in bytes.
        len: u64,
        /// Bytes of payload that would fit inline.
        inline: u64,
        /// Length of the reply chunk in bytes, if one was offered.
        capacity: Option<u64>,
    },
    /// The header, which repeats all offered chunks, exceeds the inline threshold.
    #[error("the offered chunk lists take {len} bytes, the inline threshold is {max}")]
    TooManySegments {
        /// Length of the transport header in bytes.
        len: u64,
        /// The inline threshold in bytes.
        max: u64,
    },
}

fn chunk(capacity: &Option<u64>) -> String {
    match capacity {
        Some(bytes) => format!("the reply chunk ({bytes})"),
        None => "a reply chunk (none was offered)".to_owned(),
    }
}

/// The transfer plan of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// Place of the payload stream.
    pub payload: ReplyPayload,
    /// Length in bytes of the payload stream, with the items that stay in it.
    pub payload_len: u64,
    /// Place of each item, in stream order.
    pub items: SmallVec<[(Item, ReplyItem); 1]>,
    /// Number of write chunks that were offered and stay unused. They are returned with all lengths
    /// zero (section 4.3.2.2).
    pub unused_writes: usize,
    /// Length in bytes of the transport header.
    pub header_len: u64,
    /// The inline threshold in bytes for which the plan was made.
    pub inline_send: u64,
}

impl ReplyPlan {
    /// Returns the length in bytes of the Send, which never exceeds [`Limits::inline_send`].
    #[must_use]
    pub fn send_len(&self) -> u64 {
        match self.payload {
            ReplyPayload::Inline => self.header_len + self.payload_len,
            ReplyPayload::ReplyChunk => self.header_len,
        }
    }

    /// Returns the number of bytes to write to write chunk `index`.
    #[must_use]
    pub fn written(&self, index: usize) -> u64 {
        self.items
            .iter()
            .find(|(_, how)| *how == ReplyItem::WriteChunk(index))
            .map_or(0, |(item, _)| item.len)
    }
}

/// Chooses the transfer mode of a reply.
///
/// The items take the write chunks in order, one each, even if they would fit inline: a requester
/// that offered a chunk wants the item in it (RFC 8166, section 4.3.2). The rest goes inline if it
/// fits, and into the reply chunk otherwise.
///
/// # Errors
/// [`ReplyError`] if the offered chunks are too short.
pub fn plan_reply(
    shape: &Shape,
    offers: &Offers,
    limits: &Limits,
) -> Result<ReplyPlan, ReplyError> {
    let counts = ChunkCounts {
        read_segments: 0,
        write_chunks: offers.writes.len() as u64,
        write_segments: offers.writes.iter().map(|offer| offer.segments).sum(),
        reply_segments: offers.reply.map(|offer| offer.segments),
        position_zero: false,
    };
    let header_len = (limits.header_len)(&counts);
    if header_len > limits.inline_send {
        let (len, max) = (header_len, limits.inline_send);
        return Err(ReplyError::TooManySegments { len, max });
    }

    let mut payload_len = shape.payload();
    let mut items = SmallVec::with_capacity(shape.items().len());
    let (mut turn, mut used) = (0, 0);
    for (index, &item) in shape.items().iter().enumerate() {
        let mut how = ReplyItem::InPayload;
        if item.len > 0
            && let Some(offer) = offers.writes.get(turn)
        {
            if offer.segments > 0 {
                if item.len > offer.capacity {
                    return Err(ReplyError::WriteChunkTooShort {
                        item: index,
                        len: item.len,
                        chunk: turn,
                        capacity: offer.capacity,
                    });
                }
                how = ReplyItem::WriteChunk(turn);
                used += 1;
            }
            turn += 1;
        }
        if how == ReplyItem::InPayload {
            payload_len += padded(item.len);
        }
        items.push((item, how));
    }

    let payload = if header_len + payload_len <= limits.inline_send {
        ReplyPayload::Inline
    } else if offers
        .reply
        .is_some_and(|offer| payload_len <= offer.capacity)
    {
        ReplyPayload::ReplyChunk
    } else {
        return Err(ReplyError::DoesNotFit {
            len: payload_len,
            inline: limits.inline_send - header_len,
            capacity: offers.reply.map(|offer| offer.capacity),
        });
    };
    Ok(ReplyPlan {
        payload,
        payload_len,
        items,
        unused_writes: offers.writes.len() - used,
        header_len,
        inline_send: limits.inline_send,
    })
}
