//! The layout of a message, and its parts.

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rpcrdma_extension::layout::{Frame, Headers, Layout, Rest, lay_out};
use rpcrdma_extension::{NotTransferred, Transmission, Transmissions};

use crate::codec::limits::MIDDLE_LEN;
use crate::{PlacedItem, PlacedMiddle};

/// A message laid out for the buffers of its receiver.
#[derive(Debug)]
pub(crate) struct Arranged {
    layout: Layout,
    /// Bytes of the payload stream.
    payload: u64,
    /// Length in bytes of the header of the last part. All parts are laid out for it, because those
    /// of the others are not longer. The layout also keeps 4 bytes free in the first part for each
    /// segment that data is placed in, which this format does not need: its entries name only the
    /// first segment of an item.
    header: u64,
}

impl Arranged {
    /// Lays out a payload of `payload` bytes and items of these lengths, in at most `max` parts of
    /// which the last has a header of `header` bytes. Returns `None` if there is no room.
    pub(crate) fn new(
        frame: &Frame,
        header: u64,
        payload: u64,
        items: &[u64],
        max: u32,
    ) -> Option<Self> {
        let headers = Headers {
            first: header.max(MIDDLE_LEN),
            next: header.max(MIDDLE_LEN),
        };
        let layout = lay_out(frame, &headers, payload, items, max).ok()?;
        let consecutive = |pair: &[u32]| pair[0].checked_add(1) == Some(pair[1]);
        let spots = layout.spots.iter();
        let in_order = spots
            .clone()
            .all(|spot| spot.segments.windows(2).all(consecutive));
        in_order.then_some(Self {
            layout,
            payload,
            header,
        })
    }

    /// Returns the number of parts.
    pub(crate) fn count(&self) -> u32 {
        // Not more than the maximum, which is a `u32`.
        self.layout.parts.len() as u32
    }

    /// Returns the length in bytes of all parts.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let last = self.layout.parts.len().saturating_sub(1);
        let parts = self.layout.parts.iter().enumerate();
        let header = |at| if at == last { self.header } else { MIDDLE_LEN };
        parts.map(|(at, part)| part.len(header(at))).sum()
    }

    /// Returns the entry in the header for an item with this position and length in bytes, or
    /// `None` if the layout has no such item.
    pub(crate) fn entry(&self, item: usize, position: u32, length: u32) -> Option<PlacedItem> {
        let spot = self.layout.spots.get(item)?;
        Some(PlacedItem {
            position,
            length,
            segment: *spot.segments.first()?,
            offset: spot.offset,
        })
    }

    /// Returns the number of payload bytes in the last part.
    pub(crate) fn last_payload(&self) -> u32 {
        let last = self.layout.parts.last().map(|part| &part.payload);
        // Within a buffer, whose length is 32 bits.
        last.map_or(0, |payload| (payload.end - payload.start) as u32)
    }

    /// Makes the messages that carry the parts. `fields` are those of the last part's header, after
    /// its prefix; `types` are the header types of the last part and of the others. `placed` are
    /// the indexes of the placed items in the message; `stream` is its payload without them.
    pub(crate) fn emit(
        &self,
        fields: Bytes,
        types: (u32, u32),
        message: &Message,
        placed: &[usize],
        stream: &Segments,
    ) -> Result<Transmissions, NotTransferred> {
        let other = || NotTransferred("the message is not that which was planned".to_owned());
        let len: u64 = stream.iter().map(|piece| piece.len() as u64).sum();
        if len != self.payload {
            return Err(other());
        }
        let count = self.layout.parts.len();
        let mut rest = Rest::new(stream);
        let mut transmissions = Transmissions::new();
        for (at, part) in self.layout.parts.iter().enumerate() {
            let payload_len = part.payload.end - part.payload.start;
            let following = count - 1 - at;
            let (opttype, info) = match following {
                0 => (types.0, fields.clone()),
                _ => {
                    let middle = PlacedMiddle {
                        messages: following as u32,
                        // Parts of an RPC message, whose length has 32 bits.
                        remaining: (self.payload - part.payload.end) as u32,
                        payload: payload_len as u32,
                    };
                    (types.1, middle.encode())
                }
            };
            let mut payload = Segments::new();
            if !rest.take(payload_len, &mut payload) {
                return Err(other());
            }
            let header = rpcrdma_v2_wg::limits::PREFIX_LEN + info.len();
            let data = |item: usize| {
                let item = message.items().get(*placed.get(item)?)?;
                Some(item.data.pieces())
            };
            let (padding, placed) = part.placed(header as u64, data).ok_or_else(other)?;
            transmissions.push(Transmission {
                padding,
                placed,
                ..Transmission::new(opttype, info, payload)
            });
        }
        Ok(transmissions)
    }
}
