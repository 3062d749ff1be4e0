//! The layout of a message, and its parts.

use std::borrow::Cow;

use bytes::Bytes;
use onc_rpc::{Message, Segments, total_len};
use rpcrdma_extension::layout::{Frame, Headers, Layout, Rest, Spot, lay_out};
use rpcrdma_extension::{NotTransferred, Transmission, Transmissions};
use smallvec::SmallVec;
use transfer_plan::{Item, Shape};

use crate::codec::limits::MIDDLE_LEN;
use crate::{PlacedItem, PlacedMiddle};

/// A message divided into parts for the buffers of its receiver.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    frame: Frame,
    layout: Layout,
    /// Bytes of the payload stream.
    payload: u64,
    /// Length in bytes of the header of the last part. All parts are laid out for it, because those
    /// of the others are not longer. The layout also keeps 4 bytes free in the first part for each
    /// segment that data is placed in, which this format does not need: its entries name only the
    /// first segment of an item.
    header: u64,
}

/// A message with its placed items, divided into parts.
#[derive(Clone, Debug)]
pub(crate) struct Arranged {
    parts: Parts,
    /// The indexes of the placed items in the message.
    placed: SmallVec<[usize; 1]>,
    /// The entries of the placed items.
    items: SmallVec<[PlacedItem; 1]>,
}

impl Parts {
    /// Lays out a payload of `payload` bytes and items of these lengths, in at most `max` parts of
    /// which the last has a header of `header` bytes. Returns `None` if there is no room.
    pub(crate) fn new(
        frame: Frame,
        header: u64,
        payload: u64,
        items: &[u64],
        max: u32,
    ) -> Option<Self> {
        let headers = Headers {
            first: header.max(MIDDLE_LEN),
            next: header.max(MIDDLE_LEN),
        };
        let layout = lay_out(&frame, &headers, payload, items, max).ok()?;
        let consecutive = |pair: &[u32]| pair[0].checked_add(1) == Some(pair[1]);
        let spots = layout.spots.iter();
        let in_order = spots
            .clone()
            .all(|spot| spot.segments.windows(2).all(consecutive));
        in_order.then_some(Self {
            frame,
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
}

impl Arranged {
    /// Lays out a message of this shape, whose items with the indexes `placed` are placed, in at most
    /// `max` parts of which the last has a header of `header` bytes. Returns `None` if there is no
    /// room.
    pub(crate) fn new(
        frame: &Frame,
        header: u64,
        shape: &Shape,
        placed: &[usize],
        max: u32,
    ) -> Option<Self> {
        let items = shape.items().iter().enumerate();
        let kept = items.filter(|(index, _)| !placed.contains(index));
        let payload = shape.payload() + kept.map(|(_, item)| item.in_stream()).sum::<u64>();
        let items = || placed.iter().filter_map(|&index| shape.items().get(index));
        let lens: SmallVec<[u64; 1]> = items().map(|item| item.len).collect();
        let parts = Parts::new(frame.clone(), header, payload, &lens, max)?;
        let entry = |(item, spot): (&Item, &Spot)| {
            Some(PlacedItem {
                position: item.position,
                length: u32::try_from(item.len).ok()?,
                segment: *spot.segments.first()?,
                offset: spot.offset,
            })
        };
        let entries = items().zip(&parts.layout.spots).map(entry);
        Some(Self {
            items: entries.collect::<Option<_>>()?,
            placed: SmallVec::from_slice(placed),
            parts,
        })
    }

    /// Returns this layout if the header of the last part has this length in bytes, or one for that
    /// length in no more parts.
    ///
    /// # Errors
    /// [`NotTransferred`]: there is no room for the longer header.
    pub(crate) fn with_header(&self, header: u64) -> Result<Cow<'_, Self>, NotTransferred> {
        let parts = &self.parts;
        if header == parts.header {
            return Ok(Cow::Borrowed(self));
        }
        let lens: SmallVec<[u64; 1]> = self.items.iter().map(|item| item.length.into()).collect();
        let frame = parts.frame.clone();
        let parts = Parts::new(frame, header, parts.payload, &lens, parts.count());
        let parts = parts.ok_or_else(|| {
            NotTransferred("the message does not fit as it was planned".to_owned())
        })?;
        let mut items = self.items.clone();
        for (item, spot) in items.iter_mut().zip(&parts.layout.spots) {
            if let Some(&first) = spot.segments.first() {
                (item.segment, item.offset) = (first, spot.offset);
            }
        }
        Ok(Cow::Owned(Self {
            parts,
            placed: self.placed.clone(),
            items,
        }))
    }

    /// Returns the number of parts.
    pub(crate) fn count(&self) -> u32 {
        self.parts.count()
    }

    /// Returns the length in bytes of all parts.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.parts.wire_bytes()
    }

    /// Returns the indexes of the placed items in the message.
    pub(crate) fn placed(&self) -> &[usize] {
        &self.placed
    }

    /// Returns the entries of the placed items.
    pub(crate) fn items(&self) -> &[PlacedItem] {
        &self.items
    }

    /// Returns the number of payload bytes in the last part.
    pub(crate) fn last_payload(&self) -> u32 {
        let last = self.parts.layout.parts.last().map(|part| &part.payload);
        // Within a buffer, whose length is 32 bits.
        last.map_or(0, |payload| (payload.end - payload.start) as u32)
    }

    /// Makes the messages that carry the parts. `fields` are those of the last part's header, after
    /// its prefix; `types` are the header types of the last part and of the others.
    pub(crate) fn emit(
        &self,
        mut fields: Bytes,
        types: (u32, u32),
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        let other = || NotTransferred("the message is not that which was planned".to_owned());
        let Parts {
            layout, payload, ..
        } = &self.parts;
        let mut stream = message.gather(|index| !self.placed.contains(&index));
        let len = total_len(&stream);
        let data = |item: usize| {
            let (index, entry) = (*self.placed.get(item)?, self.items.get(item)?);
            let item = message.items().get(index)?;
            (item.data.len() == entry.length as usize).then(|| item.data.pieces())
        };
        if len != *payload || (0..self.placed.len()).any(|item| data(item).is_none()) {
            return Err(other());
        }
        let count = layout.parts.len();
        // The only part of a message has the whole stream as its payload.
        let mut whole = (count == 1).then(|| std::mem::take(&mut stream));
        let mut rest = Rest::new(&stream);
        let mut transmissions = Transmissions::new();
        for (at, part) in layout.parts.iter().enumerate() {
            let payload_len = part.payload.end - part.payload.start;
            let following = count - 1 - at;
            let (number, fields) = match following {
                0 => (types.0, std::mem::take(&mut fields)),
                _ => {
                    let middle = PlacedMiddle {
                        messages: following as u32,
                        // Parts of an RPC message, whose length has 32 bits.
                        remaining: (payload - part.payload.end) as u32,
                        payload: payload_len as u32,
                    };
                    (types.1, middle.encode())
                }
            };
            let payload = match whole.take() {
                Some(stream) => stream,
                None => {
                    let mut payload = Segments::new();
                    if !rest.take(payload_len, &mut payload) {
                        return Err(other());
                    }
                    payload
                }
            };
            let header = rpcrdma_v2_wg::limits::PREFIX_LEN + fields.len();
            let (padding, placed) = part.placed(header as u64, data).ok_or_else(other)?;
            transmissions.push(Transmission {
                padding,
                placed,
                ..Transmission::new(number, fields, payload)
            });
        }
        Ok(transmissions)
    }
}
