//! Planning of a call: its transfer mode, and the chunks to offer for the reply.

use smallvec::SmallVec;

use crate::{ChunkCounts, Item, Limits, ReplyNeed, Shape};

/// The place of a call's payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPayload {
    /// The payload is in the Send, after the transport header (RDMA_MSG).
    Inline,
    /// The payload is in a position-zero read chunk (RDMA_NOMSG): a Long Call (RFC 8166, section
    /// 3.5.3).
    PositionZero,
}

/// The place of a bulk item of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallItem {
    /// The item stays inside the payload stream.
    InPayload,
    /// The item is in a read chunk of its own, which the responder fetches.
    ReadChunk,
}

/// The reason why a call cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The call is longer than [`Limits::max_message`].
    #[error("the call is {len} bytes long, the limit is {max}")]
    CallTooLong {
        /// Length of the call's XDR stream in bytes.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The reply could be longer than [`Limits::max_message`].
    #[error("its reply can be {len} bytes long, the limit is {max}")]
    ReplyTooLong {
        /// Length of the longest possible reply's XDR stream in bytes.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The chunk lists alone exceed an inline threshold.
    #[error("its chunk lists take {len} bytes, the inline threshold is {max}")]
    TooManySegments {
        /// Length of the transport header in bytes.
        len: u64,
        /// The inline threshold in bytes.
        max: u64,
    },
    /// The call does not fit inline, and the responder takes no payload in a chunk: no call chunk, or no
    /// position-zero read chunk ([`ChunkLimits::position_zero`]).
    ///
    /// [`ChunkLimits::position_zero`]: crate::ChunkLimits::position_zero
    #[error(
        "its payload of {len} bytes does not fit inline, and the responder takes no call chunk"
    )]
    NoPositionZero {
        /// Length of the payload in bytes, without the items that have read chunks.
        len: u64,
    },
    /// The chunks have more segments than the responder takes ([`ChunkLimits::segments`]).
    ///
    /// [`ChunkLimits::segments`]: crate::ChunkLimits::segments
    #[error("its chunks have {count} segments, the responder takes {max}")]
    SegmentCount {
        /// Number of segments.
        count: u64,
        /// The limit.
        max: u32,
    },
}

/// The transfer plan of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Place of the payload stream.
    pub payload: CallPayload,
    /// Whether a chunk with the payload is called a call chunk: see [`Limits::call_chunk`].
    pub call_chunk: bool,
    /// Length in bytes of the payload stream, with the items that stay in it.
    pub payload_len: u64,
    /// Place of each item, in stream order.
    pub items: SmallVec<[(Item, CallItem); 1]>,
    /// Length in bytes of each write chunk to offer, in list order. Empty if every possible reply fits
    /// inline, has no items, or goes whole into the reply chunk because the responder takes too few
    /// write chunks or segments.
    pub write_chunks: SmallVec<[u64; 1]>,
    /// Length in bytes of the reply chunk to offer, if one is needed.
    pub reply_chunk: Option<u64>,
    /// Length in bytes of the transport header.
    pub header_len: u64,
    /// Why this mode was chosen for the call: the length in bytes of a Send with everything inline,
    /// and the inline threshold that applies to it.
    pub call_inline: (u64, u64),
    /// Why reply chunks are offered or not: the length in bytes of the longest reply with
    /// everything inline, and the inline threshold that applies to it.
    pub reply_inline: (u64, u64),
    /// Maximum length in bytes of the payload stream of the reply, as planned.
    pub reply_payload: u64,
}

impl CallPlan {
    /// Returns whether the call has chunks, for itself or for its reply.
    #[must_use]
    pub fn has_chunks(&self) -> bool {
        let read = |(_, how): &(Item, CallItem)| *how == CallItem::ReadChunk;
        self.payload == CallPayload::PositionZero
            || self.items.iter().any(read)
            || !self.write_chunks.is_empty()
            || self.reply_chunk.is_some()
    }

    /// Returns the length in bytes of the Send, which never exceeds [`Limits::inline_send`].
    #[must_use]
    pub fn send_len(&self) -> u64 {
        match self.payload {
            CallPayload::Inline => self.header_len + self.payload_len,
            CallPayload::PositionZero => self.header_len,
        }
    }
}

/// Returns whether a call of `len` bytes without items and its reply each are one Send without
/// chunks. This decides most calls without [`plan_call`] and its plan.
#[must_use]
pub fn needs_no_chunks(len: u64, need: &ReplyNeed, limits: &Limits) -> bool {
    let header = (limits.header_len)(&ChunkCounts::default());
    let fits = |len: u64, inline: u64| {
        len <= limits.max_message && header.checked_add(len).is_some_and(|len| len <= inline)
    };
    need.items.is_empty()
        && fits(len, limits.inline_send)
        && fits(need.payload, limits.inline_receive)
}

/// The chunks that a requester offers for the reply.
struct Offered {
    write_chunks: SmallVec<[u64; 1]>,
    reply_chunk: Option<u64>,
    counts: ChunkCounts,
    /// `all_inline` is the length in bytes of the longest reply with everything inline; `payload`
    /// is the length of its payload stream as planned.
    all_inline: u64,
    payload: u64,
}

/// Chooses the transfer mode of a call. `need` holds the upper bounds for its reply.
///
/// Data that fits inline goes inline, DDP-eligible or not: RFC 8166 leaves that to the sender
/// (section 3.5.2), and a Send is the cheapest operation. Otherwise the longest items are moved to
/// read chunks until the rest fits. If that is not enough, the payload goes into a position-zero
/// read chunk, and items that are longer than the inline threshold into read chunks of their own.
/// Where the responder takes fewer read chunks, items stay in the payload; where it takes fewer
/// write chunks or segments, the whole reply is given a reply chunk (version-two-07, sections 7.3.1,
/// 7.3.2 and 5.2.4).
///
/// # Errors
/// [`CallError`] if no transfer mode of the base protocol can send this call or return its reply.
pub fn plan_call(shape: &Shape, need: &ReplyNeed, limits: &Limits) -> Result<CallPlan, CallError> {
    let (len, max) = (shape.stream_len(), limits.max_message);
    if len > max {
        return Err(CallError::CallTooLong { len, max });
    }
    let apart = offer(need, limits).and_then(|offered| plan_offering(shape, offered, limits));
    match apart {
        Err(error)
            if !need.items.is_empty() && has_too_many_segments(shape, need, limits, error) =>
        {
            // One chunk for the whole reply has the fewest segments.
            let together = offer_one(need, limits);
            let together = together.and_then(|offered| plan_offering(shape, offered, limits));
            // A limit of the responder explains more than the length of a header.
            together.map_err(|also| match also {
                CallError::TooManySegments { .. } => error,
                _ => also,
            })
        }
        apart => apart,
    }
}

/// Returns whether a call that cannot be planned with write chunks has too many segments, also if its
/// payload were in a chunk.
fn has_too_many_segments(
    shape: &Shape,
    need: &ReplyNeed,
    limits: &Limits,
    error: CallError,
) -> bool {
    let too_many = |error: &CallError| {
        matches!(
            error,
            CallError::TooManySegments { .. } | CallError::SegmentCount { .. }
        )
    };
    if !matches!(error, CallError::NoPositionZero { .. }) {
        return too_many(&error);
    }
    // A payload that is too long is refused before chunk lists that are.
    let mut limits = *limits;
    limits.chunks.position_zero = true;
    let long = offer(need, &limits).and_then(|offered| plan_offering(shape, offered, &limits));
    long.is_err_and(|error| too_many(&error))
}

/// Chooses the transfer mode of a call that offers these chunks.
fn plan_offering(shape: &Shape, offered: Offered, limits: &Limits) -> Result<CallPlan, CallError> {
    let mut counts = offered.counts;
    let mut items: SmallVec<[(Item, CallItem); 1]> = shape
        .items()
        .iter()
        .map(|&item| (item, CallItem::InPayload))
        .collect();
    let mut payload_len = shape.stream_len();
    let call_inline = (
        (limits.header_len)(&counts) + payload_len,
        limits.inline_send,
    );
    let mut read_chunks = 0;
    while !limits.fits(&counts, payload_len) && read_chunks < limits.chunks.read_chunks {
        let Some(longest) = longest_worth_reducing(&items, limits) else {
            break;
        };
        let (item, how) = &mut items[longest];
        *how = CallItem::ReadChunk;
        read_chunks += 1;
        payload_len -= item.in_stream();
        counts.read_segments += limits.segments(item.len);
    }

    let mut payload = CallPayload::Inline;
    let len = (limits.header_len)(&counts).saturating_add(payload_len);
    if !limits.chunks.position_zero && len > limits.inline_send {
        return Err(CallError::NoPositionZero { len: payload_len });
    }
    if limits.chunks.position_zero && !limits.fits(&counts, payload_len) {
        payload = CallPayload::PositionZero;
        // The payload needs a chunk anyway, so short items are no longer worth one of their own.
        for (item, how) in &mut items {
            if *how == CallItem::ReadChunk && item.in_stream() <= limits.inline_send {
                *how = CallItem::InPayload;
                payload_len += item.in_stream();
                counts.read_segments -= limits.segments(item.len);
            }
        }
        let zero = |len: u64, counts: &ChunkCounts| ChunkCounts {
            read_segments: counts.read_segments + limits.segments(len),
            position_zero: true,
            ..*counts
        };
        let apart = zero(payload_len, &counts);
        counts = if limits.fits(&apart, 0) {
            apart
        } else {
            // The header has too many segments. One chunk for everything has the fewest.
            items
                .iter_mut()
                .for_each(|(_, how)| *how = CallItem::InPayload);
            payload_len = shape.stream_len();
            zero(payload_len, &offered.counts)
        };
    }
    let header_len = (limits.header_len)(&counts);
    if header_len > limits.inline_send {
        let (len, max) = (header_len, limits.inline_send);
        return Err(CallError::TooManySegments { len, max });
    }
    let (count, max) = (counts.segments(), limits.chunks.segments);
    if count > u64::from(max) {
        return Err(CallError::SegmentCount { count, max });
    }
    Ok(CallPlan {
        payload,
        call_chunk: limits.call_chunk,
        payload_len,
        items,
        write_chunks: offered.write_chunks,
        reply_chunk: offered.reply_chunk,
        header_len,
        call_inline,
        reply_inline: (offered.all_inline, limits.inline_receive),
        reply_payload: offered.payload,
    })
}

/// Returns the index of the longest item that is still in the payload and takes more bytes there
/// than a read chunk would add to the header.
fn longest_worth_reducing(items: &[(Item, CallItem)], limits: &Limits) -> Option<usize> {
    let cost = |item: &Item| {
        let with = ChunkCounts {
            read_segments: limits.segments(item.len),
            ..ChunkCounts::default()
        };
        (limits.header_len)(&with).saturating_sub((limits.header_len)(&ChunkCounts::default()))
    };
    items
        .iter()
        .enumerate()
        .filter(|(_, (item, how))| *how == CallItem::InPayload && item.in_stream() > cost(item))
        .max_by_key(|(_, (item, _))| item.len)
        .map(|(index, _)| index)
}

/// Returns the chunks to offer so that every reply within `need` can be returned (RFC 8166,
/// sections 4.3.2 and 4.3.3): a write chunk for each item that can be long.
fn offer(need: &ReplyNeed, limits: &Limits) -> Result<Offered, CallError> {
    let mut offered = Offered::new(need, limits)?;
    if offered.all_inline <= limits.inline_receive {
        return Ok(offered);
    }
    offered.payload = need.payload;
    // If the reply lacks an item, the next item takes its chunk. So each chunk has room for the
    // longest of its own item and all later ones (section 4.3.2.2).
    let mut longest = 0;
    for &len in need.items.iter().rev() {
        longest = len.max(longest);
        if longest > 0 {
            offered.write_chunks.insert(0, longest);
            offered.counts.write_chunks += 1;
            offered.counts.write_segments += limits.segments(longest);
        }
    }
    if offered.write_chunks.len() > limits.chunks.write_chunks as usize {
        offered.write_chunks.clear();
        offered.counts = ChunkCounts::default();
        offered.payload = need.stream_len();
    }
    offered.with_reply_chunk(limits)
}

/// Returns the chunks to offer so that every reply within `need` can be returned without write chunks.
fn offer_one(need: &ReplyNeed, limits: &Limits) -> Result<Offered, CallError> {
    Offered::new(need, limits)?.with_reply_chunk(limits)
}

impl Offered {
    /// Returns an offer of no chunks.
    fn new(need: &ReplyNeed, limits: &Limits) -> Result<Self, CallError> {
        let (len, max) = (need.stream_len(), limits.max_message);
        if len > max {
            return Err(CallError::ReplyTooLong { len, max });
        }
        Ok(Self {
            write_chunks: SmallVec::new(),
            reply_chunk: None,
            counts: ChunkCounts::default(),
            all_inline: (limits.header_len)(&ChunkCounts::default()) + len,
            payload: len,
        })
    }

    /// Adds a reply chunk if the payload of the reply needs one.
    fn with_reply_chunk(mut self, limits: &Limits) -> Result<Self, CallError> {
        let payload = self.payload;
        if (limits.header_len)(&self.counts) + payload > limits.inline_receive {
            self.reply_chunk = Some(payload);
            self.counts.reply_segments = Some(limits.segments(payload));
        }
        // The reply's header repeats all offered chunks (sections 3.4.6 and 4.3.3).
        let len = (limits.header_len)(&self.counts);
        if len > limits.inline_receive {
            let max = limits.inline_receive;
            return Err(CallError::TooManySegments { len, max });
        }
        Ok(self)
    }
}
