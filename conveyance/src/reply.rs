//! How a responder conveys a reply with what the requester offered.

use onc_rpc::padded;
use smallvec::SmallVec;

use crate::{ChunkCounts, Item, Limits, Shape};

/// A write chunk, or a reply chunk, that a requester offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its segments. A chunk with none is an *empty* chunk: the requester wants the item inline
    /// (RFC 8166, section 4.3.2.3).
    pub segments: u64,
    /// Its bytes, of all segments together.
    pub capacity: u64,
}

/// Everything that a requester offered for one reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Write chunks, in list order.
    pub writes: SmallVec<[Offer; 1]>,
    /// Reply chunk.
    pub reply: Option<Offer>,
}

/// How a reply's payload stream travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPayload {
    /// In the Send, after the transport header (RDMA_MSG).
    Inline,
    /// Written into the reply chunk (RDMA_NOMSG): a Long Reply (RFC 8166, section 3.5.3).
    ReplyChunk,
}

/// How an item of a reply travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyItem {
    /// As part of the payload stream.
    InPayload,
    /// Written into this write chunk, counted from 0 in list order.
    WriteChunk(usize),
}

/// Why a reply cannot be conveyed. The answer to the requester is ERR_CHUNK (RFC 8166, section
/// 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The write chunk whose turn it is is shorter than the item. It may not go elsewhere: a
    /// requester treats that as a violation (section 6.1).
    #[error("result item {item} of {len} bytes does not fit write chunk {chunk} of {capacity}")]
    WriteChunkTooShort {
        /// Which item.
        item: usize,
        /// Its bytes.
        len: u64,
        /// Which chunk.
        chunk: usize,
        /// The chunk's bytes.
        capacity: u64,
    },
    /// The payload fits neither inline nor the reply chunk.
    #[error("reply payload of {len} bytes fits neither inline ({inline}) nor {}", chunk(.capacity))]
    DoesNotFit {
        /// Bytes of the payload stream.
        len: u64,
        /// Bytes that would have fitted inline.
        inline: u64,
        /// Bytes of the reply chunk, if there was one.
        capacity: Option<u64>,
    },
    /// The header, which repeats all offered chunks, is over the inline threshold by itself.
    #[error("the offered chunk lists take {len} bytes, the inline threshold is {max}")]
    TooManySegments {
        /// Bytes of the transport header.
        len: u64,
        /// The threshold.
        max: u64,
    },
}

fn chunk(capacity: &Option<u64>) -> String {
    match capacity {
        Some(bytes) => format!("the reply chunk ({bytes})"),
        None => "a reply chunk (none was offered)".to_owned(),
    }
}

/// A reply's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    /// How the payload stream travels.
    pub payload: ReplyPayload,
    /// Bytes of the payload stream as it travels: the items that stay in it included.
    pub payload_len: u64,
    /// What becomes of each item, in stream order.
    pub items: SmallVec<[(Item, ReplyItem); 1]>,
    /// Write chunks that were offered and carry nothing: returned with all lengths zero (section
    /// 4.3.2.2).
    pub unused_writes: usize,
    /// Bytes of the transport header.
    pub header_len: u64,
    /// The inline threshold that the plan went by, bytes.
    pub inline_send: u64,
}

impl ReplyPlan {
    /// Bytes of the Send: never over [`Limits::inline_send`].
    #[must_use]
    pub fn send_len(&self) -> u64 {
        match self.payload {
            ReplyPayload::Inline => self.header_len + self.payload_len,
            ReplyPayload::ReplyChunk => self.header_len,
        }
    }

    /// Bytes that go into write chunk `index`.
    #[must_use]
    pub fn written(&self, index: usize) -> u64 {
        self.items
            .iter()
            .find(|(_, how)| *how == ReplyItem::WriteChunk(index))
            .map_or(0, |(item, _)| item.len)
    }
}

/// Decides how a reply is conveyed.
///
/// The items take the write chunks in order, one each, whether or not they would fit inline: what
/// the requester made room for it wants there (RFC 8166, section 4.3.2). The rest goes inline if it
/// fits, into the reply chunk otherwise.
///
/// # Errors
/// [`ReplyError`]: the requester offered too little.
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
