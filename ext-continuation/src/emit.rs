//! The transmissions of a group, made from a layout.

use std::borrow::Cow;

use bytes::Bytes;
use onc_rpc::{Message, Segments, total_len};
use rpcrdma_extension::layout::{Frame, Headers, Layout, Rest, lay_out};
use rpcrdma_extension::{NotTransferred, Transmission, Transmissions};
use smallvec::SmallVec;

use crate::{Continuation, XMTCONT};

/// Index in the message and length in bytes of each placed item.
pub(crate) type PlacedItems = SmallVec<[(usize, u64); 1]>;

/// The layout of a message in transmissions, with the inputs that it was made from. It is made
/// again if the header turns out longer or shorter than assumed.
#[derive(Clone, Debug)]
pub(crate) struct Arranged {
    pub(crate) layout: Layout,
    pub(crate) headers: Headers,
    pub(crate) payload: u64,
    pub(crate) placed: PlacedItems,
    pub(crate) frame: Frame,
}

impl Arranged {
    pub(crate) fn new(
        frame: Frame,
        headers: Headers,
        payload: u64,
        placed: PlacedItems,
        max: u32,
    ) -> Option<Self> {
        let lens: SmallVec<[u64; 1]> = placed.iter().map(|&(_, len)| len).collect();
        let layout = lay_out(&frame, &headers, payload, &lens, max).ok()?;
        Some(Self {
            layout,
            headers,
            payload,
            placed,
            frame,
        })
    }

    /// Returns the number of transmissions.
    pub(crate) fn count(&self) -> u32 {
        // Not more than the maximum, which is a `u32`.
        self.layout.parts.len() as u32
    }

    pub(crate) fn wire_bytes(&self) -> u64 {
        self.layout.wire_bytes(&self.headers)
    }

    /// Returns the number of payload bytes in the first transmission.
    pub(crate) fn first_payload(&self) -> u32 {
        let payload = self.layout.parts.first().map(|part| &part.payload);
        // The payload lies within a buffer, whose length is 32 bits.
        payload.map_or(0, |payload| (payload.end - payload.start) as u32)
    }

    /// Returns the layout for a first header that is `first` bytes long without segment numbers. If this
    /// layout assumed the same length, it is returned unchanged. A new layout may not take more transmissions, because there are no credits or
    /// receives for more.
    pub(crate) fn with_header(&self, first: u64) -> Result<Cow<'_, Self>, NotTransferred> {
        if first == self.headers.first {
            return Ok(Cow::Borrowed(self));
        }
        let headers = Headers {
            first,
            ..self.headers
        };
        let lens: SmallVec<[u64; 1]> = self.placed.iter().map(|&(_, len)| len).collect();
        let layout = lay_out(&self.frame, &headers, self.payload, &lens, self.count());
        Ok(Cow::Owned(Self {
            layout: layout.map_err(|error| NotTransferred(error.to_string()))?,
            headers,
            ..self.clone()
        }))
    }

    /// Makes the transmissions, of which the first has this operation. `in_stream` are the items
    /// that stay in the payload stream.
    pub(crate) fn emit(
        &self,
        opttype: u32,
        mut info: Bytes,
        message: &Message,
        in_stream: impl FnMut(usize) -> bool,
    ) -> Result<Transmissions, NotTransferred> {
        let other = || NotTransferred("the message is not that which was planned".to_owned());
        let stream = message.gather(in_stream);
        let stream_len = total_len(&stream);
        let data = |item: usize| {
            let (index, len) = *self.placed.get(item)?;
            let item = message.items().get(index)?;
            (item.data.len() as u64 == len).then(|| item.data.pieces())
        };
        if stream_len != self.payload || (0..self.placed.len()).any(|item| data(item).is_none()) {
            return Err(other());
        }
        let first_header = self.layout.first_header(&self.headers);
        // A group of one transmission has the whole stream as its payload.
        if let [only] = &self.layout.parts[..] {
            let (padding, placed) = only.placed(first_header, data).ok_or_else(other)?;
            return Ok(Transmissions::from_buf([Transmission {
                padding,
                placed,
                ..Transmission::new(opttype, info, stream)
            }]));
        }
        let mut rest = Rest::new(&stream);
        let mut transmissions = Transmissions::new();
        for (number, part) in self.layout.parts.iter().enumerate() {
            let payload_len = part.payload.end - part.payload.start;
            let (opttype_here, info, header) = match number {
                0 => (opttype, std::mem::take(&mut info), first_header),
                _ => {
                    let cont = Continuation {
                        number: number as u32,
                        initial: opttype,
                        payload: payload_len as u32,
                    };
                    (XMTCONT, cont.encode(), Continuation::HEADER_LEN)
                }
            };
            let mut payload = Segments::new();
            if !rest.take(payload_len, &mut payload) {
                return Err(other());
            }
            let (padding, placed) = part.placed(header, data).ok_or_else(other)?;
            transmissions.push(Transmission {
                padding,
                placed,
                ..Transmission::new(opttype_here, info, payload)
            });
        }
        Ok(transmissions)
    }
}
