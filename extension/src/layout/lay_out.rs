//! The sender's arithmetic: it distributes the bytes of a message over transmissions, so that bulk
//! data arrives in target segments (rtrext-00, sections 4.2, 6.2, 7.2 and 7.3).
//!
//! The payload stream starts right after the header of the first transmission, and continues after
//! those of further ones. Bulk data begins in the next free target: one that begins behind the
//! header and the payload of its transmission (drafts/errata.md). An item that does not fit it
//! continues in the next target, in this transmission or the next. An item that follows another
//! begins at the next aligned byte of the target in which the other one ended.

use std::ops::Range;

use bytes::Bytes;
use onc_rpc::Segments;
use smallvec::SmallVec;

use super::limits::MAX_SPAN;
use super::{Frame, Spot, cut, pad};

/// Maximum length of a message to send with placed data, in bytes, even if the peer's receives are longer.
pub const MAX_TRANSMISSION: u32 = 1 << 20;
/// Number of bytes of each segment number in the first header.
const NUMBER_LEN: u64 = 4;
/// Maximum number of attempts. The header of the first transmission grows with the number of
/// segments listed in it, which may take room from the data. Each attempt assumes the header length
/// that the previous one needed.
const ROUNDS: usize = 8;

/// Lengths of transport headers in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Header of the first transmission, without segment numbers.
    pub first: u64,
    /// Header of each further transmission.
    pub next: u64,
}

/// The reason why a message cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// A header and four bytes of payload exceed the receiver's buffer.
    #[error("header of {header} bytes in buffers of {buffer}")]
    Header {
        /// Length of the header in bytes.
        header: u64,
        /// Length of the buffer in bytes.
        buffer: u64,
    },
    /// The message takes more transmissions than allowed.
    #[error("more than {0} transmissions")]
    Transmissions(u32),
    /// No target begins behind the header and within the longest message, so bulk data cannot be
    /// placed.
    #[error("no buffer segment for bulk data")]
    NoTarget,
    /// An item would have to be divided into too many pieces.
    #[error("bulk item in more than {MAX_SPAN} buffer segments")]
    Span,
}

/// A piece of an item that is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset in the transmission, header included, in bytes.
    pub at: u32,
    /// Index of the item.
    pub item: usize,
    /// Offset in the item, in bytes.
    pub from: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The contents of one transmission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Range of the payload stream that follows the header.
    pub payload: Range<u64>,
    /// Pieces of bulk data behind the payload, in order.
    pub runs: SmallVec<[Run; 1]>,
}

impl Part {
    /// Returns the length of the transmission in bytes, with a header of `header` bytes.
    #[must_use]
    pub fn len(&self, header: u64) -> u64 {
        match self.runs.last() {
            Some(run) => u64::from(run.at) + run.len,
            None => header + (self.payload.end - self.payload.start),
        }
    }

    /// Returns the number of zero bytes between the payload and the bulk data of the transmission, and
    /// the bulk data, with the padding that it contains, without copying. The header has `header` bytes;
    /// `data` returns the bytes of an item. Returns `None` if the items are not those of the layout, or
    /// if the header is longer.
    pub fn placed<'a>(
        &self,
        header: u64,
        data: impl Fn(usize) -> Option<&'a [Bytes]>,
    ) -> Option<(u32, Segments)> {
        let (mut padding, mut placed) = (0, Segments::new());
        let mut end = header + (self.payload.end - self.payload.start);
        for (number, run) in self.runs.iter().enumerate() {
            let gap = u64::from(run.at).checked_sub(end)?;
            match number {
                // Less than a buffer, whose length is 32 bits.
                0 => padding = gap as u32,
                _ => pad(&mut placed, gap),
            }
            let mut found = 0;
            cut(data(run.item)?, run.from, run.len, |piece| {
                found += piece.len() as u64;
                placed.push(piece);
            });
            (found == run.len).then_some(())?;
            end = u64::from(run.at) + run.len;
        }
        Some((padding, placed))
    }
}

/// The layout of a message: which bytes each transmission carries, and at which places the receiver
/// finds the items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The transmissions, in order; at least one.
    pub parts: SmallVec<[Part; 2]>,
    /// Place of each item, in the order of the items.
    pub spots: SmallVec<[Spot; 1]>,
}

impl Layout {
    /// Returns how many segment numbers the first header lists, in a protocol that lists those of
    /// each item.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        let spots = self.spots.iter();
        spots.map(|spot| spot.segments.len() as u64).sum()
    }

    /// Returns the length in bytes of the first header, from the `headers` for which the layout was
    /// made.
    #[must_use]
    pub fn first_header(&self, headers: &Headers) -> u64 {
        headers.first + NUMBER_LEN * self.numbers()
    }

    /// Returns the total length in bytes of all transmissions.
    #[must_use]
    pub fn wire_bytes(&self, headers: &Headers) -> u64 {
        let first = self.first_header(headers);
        let header = |at| if at == 0 { first } else { headers.next };
        let parts = self.parts.iter().enumerate();
        parts.map(|(at, part)| part.len(header(at))).sum()
    }
}

/// Lays out a message with a payload stream of `payload` bytes and items of these lengths in bytes,
/// for buffers like `frame`, in at most `max` transmissions.
///
/// # Errors
/// [`NoRoom`], with the reason.
pub fn lay_out(
    frame: &Frame,
    headers: &Headers,
    payload: u64,
    items: &[u64],
    max: u32,
) -> Result<Layout, NoRoom> {
    let mut numbers = 0;
    for _ in 0..ROUNDS {
        let headers = Headers {
            first: headers.first + NUMBER_LEN * numbers,
            ..*headers
        };
        let mut builder = Builder {
            frame,
            headers,
            max,
            layout: Layout::default(),
            target: 0,
            offset: 0,
        };
        builder.payload(payload)?;
        for (item, &len) in items.iter().enumerate() {
            builder.item(item, len)?;
        }
        let needed = builder.layout.numbers();
        if needed <= numbers {
            return Ok(builder.layout);
        }
        numbers = needed;
    }
    Err(NoRoom::Span)
}

struct Builder<'a> {
    frame: &'a Frame,
    headers: Headers,
    max: u32,
    layout: Layout,
    /// The next free place: the index of a target of the last transmission, and an offset in it.
    target: usize,
    offset: u64,
}

impl Builder<'_> {
    /// Begins another transmission, and returns the number of bytes left behind its header.
    fn part(&mut self) -> Result<u64, NoRoom> {
        let made = self.layout.parts.len();
        if made as u64 >= u64::from(self.max) {
            return Err(NoRoom::Transmissions(self.max));
        }
        let header = match made {
            0 => self.headers.first,
            _ => self.headers.next,
        };
        let buffer = self.frame.len();
        let room = buffer.checked_sub(header);
        let room = room.ok_or(NoRoom::Header { header, buffer })?;
        let sent = self.layout.parts.last().map_or(0, |part| part.payload.end);
        self.layout.parts.push(Part {
            payload: sent..sent,
            ..Part::default()
        });
        self.free_from(header);
        Ok(room)
    }

    /// Makes the first target at or behind `end` the next free place.
    fn free_from(&mut self, end: u64) {
        let mut targets = self.frame.targets().iter();
        let first = targets.position(|target| u64::from(target.at) >= end);
        self.target = first.unwrap_or(usize::MAX);
        self.offset = 0;
    }

    fn payload(&mut self, len: u64) -> Result<(), NoRoom> {
        let mut sent = 0;
        loop {
            let room = self.part()?;
            // XDR has units of four bytes, and no unit is divided.
            let take = (room & !3).min(len - sent);
            if let Some(part) = self.layout.parts.last_mut() {
                part.payload = sent..sent + take;
            }
            sent += take;
            let buffer = self.frame.len();
            if sent == len {
                self.free_from(buffer - (room - take));
                return Ok(());
            }
            // The first header may leave no room. If a further header does, no transmission has
            // any.
            if take == 0 && self.layout.parts.len() > 1 {
                let header = self.headers.next;
                return Err(NoRoom::Header { header, buffer });
            }
        }
    }

    fn item(&mut self, item: usize, len: u64) -> Result<(), NoRoom> {
        let mut spot = Spot::default();
        let mut from = 0;
        while from < len {
            let (at, room) = self.free()?;
            if spot.segments.len() == MAX_SPAN {
                return Err(NoRoom::Span);
            }
            let transmission = self.layout.parts.len() - 1;
            let number = self.frame.number(transmission, self.target);
            let number = number.ok_or(NoRoom::Transmissions(self.max))?;
            if spot.segments.is_empty() {
                // An offset in a segment, whose length is 32 bits.
                spot.offset = self.offset as u32;
            }
            spot.segments.push(number);
            let run = Run {
                at,
                item,
                from,
                len: room.min(len - from),
            };
            from += run.len;
            self.offset += run.len;
            if let Some(part) = self.layout.parts.last_mut() {
                part.runs.push(run);
            }
        }
        // The next item is aligned like the segment itself.
        if let Some(target) = self.frame.targets().get(self.target) {
            self.offset = self.offset.next_multiple_of(u64::from(target.align));
        }
        self.layout.spots.push(spot);
        Ok(())
    }

    /// Returns the offset of the next free place in its transmission, and its length in bytes.
    /// Begins another transmission if needed.
    fn free(&mut self) -> Result<(u32, u64), NoRoom> {
        let mut begun = false;
        loop {
            while let Some(target) = self.frame.targets().get(self.target) {
                let room = self.frame.usable(target).saturating_sub(self.offset);
                if room > 0 {
                    // An offset in the buffer, whose length is 32 bits.
                    return Ok((target.at + self.offset as u32, room));
                }
                self.target += 1;
                self.offset = 0;
            }
            if begun {
                // A transmission with nothing but a header has no room for data either.
                return Err(NoRoom::NoTarget);
            }
            self.part()?;
            begun = true;
        }
    }
}
