//! The sender's arithmetic: which bytes of a message go where in which transmission, so that bulk
//! data lands in segments that are meant for it (sections 4.2, 6.2, 7.2 and 7.3).
//!
//! The payload stream starts right after the header of the first transmission, and goes on after
//! those of further ones. Bulk data begins in the next segment for placement that is free: one that
//! begins behind the header and the payload of its transmission (drafts/errata.md). An item that
//! does not fit it goes on in the next one, in this transmission or the next. An item that follows
//! another begins at the next aligned byte of the segment that the other one ended in.

use std::ops::Range;

use smallvec::SmallVec;

use crate::limits::MAX_SPAN;
use crate::{Frame, Spot};

/// Bytes that each number of a segment takes in the first header.
const NUMBER_LEN: u64 = 4;
/// The header of the first transmission grows with the numbers of segments in it, and what it
/// takes may be missing for data. Each round reckons with those of the round before.
const ROUNDS: usize = 8;

/// Lengths of transport headers, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Of the first transmission, without the numbers of segments.
    pub first: u64,
    /// Of each further one.
    pub next: u64,
}

/// Why a message cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// A header and four bytes of payload are over the receiver's buffer.
    #[error("header of {header} bytes in buffers of {buffer}")]
    Header {
        /// Bytes of the header.
        header: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// It takes more transmissions than there may be.
    #[error("more than {0} transmissions")]
    Transmissions(u32),
    /// There is no segment for placement that a message could reach.
    #[error("no buffer segment for bulk data")]
    NoTarget,
    /// An item would have to be cut into too many pieces.
    #[error("bulk item in more than {MAX_SPAN} buffer segments")]
    Span,
}

/// A piece of an item that is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where in the transmission it begins, header included, bytes.
    pub at: u32,
    /// Which item.
    pub item: usize,
    /// Where in the item it begins, bytes.
    pub from: u64,
    /// Bytes.
    pub len: u64,
}

/// One transmission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Which bytes of the payload stream follow its header.
    pub payload: Range<u64>,
    /// Bulk data behind that, in order.
    pub runs: SmallVec<[Run; 1]>,
}

impl Part {
    /// Its bytes, when its header takes `header`.
    #[must_use]
    pub fn len(&self, header: u64) -> u64 {
        match self.runs.last() {
            Some(run) => u64::from(run.at) + run.len,
            None => header + (self.payload.end - self.payload.start),
        }
    }
}

/// What goes where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The transmissions, in order: one at least.
    pub parts: SmallVec<[Part; 2]>,
    /// Where each item is, in the order of the items.
    pub spots: SmallVec<[Spot; 1]>,
}

impl Layout {
    /// Numbers of segments in its first header.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        let spots = self.spots.iter();
        spots.map(|spot| spot.segments.len() as u64).sum()
    }

    /// Bytes of its first header, where `headers` went into making it.
    #[must_use]
    pub fn first_header(&self, headers: &Headers) -> u64 {
        headers.first + NUMBER_LEN * self.numbers()
    }

    /// Bytes of all transmissions.
    #[must_use]
    pub fn wire_bytes(&self, headers: &Headers) -> u64 {
        let first = self.first_header(headers);
        let header = |at| if at == 0 { first } else { headers.next };
        let parts = self.parts.iter().enumerate();
        parts.map(|(at, part)| part.len(header(at))).sum()
    }
}

/// Lays out a message with `payload` bytes of payload stream and these items, each its bytes, for
/// buffers like `frame`, in `max` transmissions at most.
///
/// # Errors
/// [`NoRoom`].
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
    /// The next free place: a target of the last transmission, and bytes into it.
    target: usize,
    offset: u64,
}

impl Builder<'_> {
    /// Begins another transmission, and gives the bytes that are left behind its header.
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

    /// The next free place is the first target from `end` on.
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
            // XDR comes in units of four bytes: no unit is torn.
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
            // The first header may leave nothing; if a further one does, none ever will.
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
                // A place within a segment, whose length is 32 bits.
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
        // What follows is aligned like the segment itself.
        if let Some(target) = self.frame.targets().get(self.target) {
            self.offset = self.offset.next_multiple_of(u64::from(target.align));
        }
        self.layout.spots.push(spot);
        Ok(())
    }

    /// Where the next free place is in its transmission, and bytes that it has.
    fn free(&mut self) -> Result<(u32, u64), NoRoom> {
        let mut begun = false;
        loop {
            while let Some(target) = self.frame.targets().get(self.target) {
                let room = self.frame.usable(target).saturating_sub(self.offset);
                if room > 0 {
                    // Within the buffer, whose length is 32 bits.
                    return Ok((target.at + self.offset as u32, room));
                }
                self.target += 1;
                self.offset = 0;
            }
            if begun {
                // A transmission that has nothing but a header, and no room for data all the same.
                return Err(NoRoom::NoTarget);
            }
            self.part()?;
            begun = true;
        }
    }
}
