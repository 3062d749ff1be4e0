//! The transfer modes that a requester can allow for the reply to a call (sections 4.3, 5.2, 5.3
//! and 7.4).

use std::fmt;

use onc_rpc::padded;
use rpcrdma_ext_send_ddp::limits::MAX_ITEMS;
use rpcrdma_extension::CallToPlan;
use rpcrdma_extension::layout::{Frame, Headers, lay_out};
use smallvec::SmallVec;

use crate::operation::{EXPLICIT_LEN, PLACED_LEN, SEGMENT_LEN, response_header};
use crate::{Continuation, Transmit, Usable};

/// The direction for an item of the reply, with the length of the memory that it may be written to,
/// which is not registered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directing {
    Placed,
    /// The item is written to a chunk of this length in bytes.
    Written(u64),
    BySize {
        longest_placed: u32,
        /// Length in bytes of the item's chunk.
        chunk: u64,
    },
}

impl Directing {
    fn chunk(self) -> Option<u64> {
        match self {
            Self::Placed => None,
            Self::Written(chunk) | Self::BySize { chunk, .. } => Some(chunk),
        }
    }
}

/// One way in which the reply to a call may be transferred.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyMode {
    /// Minimum length in bytes and direction for each item, in order.
    pub(crate) items: SmallVec<[(u32, Directing); 1]>,
    /// Number of additional receives.
    pub(crate) reserved: u32,
    /// Maximum length in bytes of all transmissions.
    pub(crate) wire_bytes: u64,
    /// Maximum number of bytes of items in the payload stream.
    pub(crate) unplaced: u64,
    /// Whether the transmissions of the longest reply place items.
    pub(crate) placed: bool,
}

impl ReplyMode {
    /// Returns whether the base protocol could transfer the reply in this way: no directions, and
    /// no additional receives.
    pub(crate) fn is_plain(&self) -> bool {
        self.items.is_empty() && self.reserved == 0
    }

    /// Returns the length in bytes of each chunk to register.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> {
        self.items.iter().filter_map(|(_, to)| to.chunk())
    }

    /// Returns the encoded length in bytes of `xmddp_rsdgroup` with these directions in one set.
    /// `segments` returns the number of segments of a chunk.
    pub(crate) fn directions_len(&self, segments: impl Fn(u64) -> u64) -> u64 {
        if self.items.is_empty() {
            return 4;
        }
        let item = |to: Directing| match to {
            Directing::Placed => 8,
            Directing::Written(chunk) => 12 + SEGMENT_LEN * segments(chunk),
            Directing::BySize { chunk, .. } => 16 + SEGMENT_LEN * segments(chunk),
        };
        16 + self.items.iter().map(|&(_, to)| item(to)).sum::<u64>()
    }
}

/// The inputs common to all transfer modes of a reply.
struct Planning<'a> {
    call: &'a CallToPlan<'a>,
    /// This side's receive buffers.
    frame: Frame,
    /// Minimum length in bytes of an item to place.
    min: u32,
    /// Maximum number of transmissions.
    max: u32,
}

impl Transmit {
    /// Returns the ways in which the reply to a call may be transferred. In the first, the items
    /// stay in the payload stream. In the second, they are placed in the transmissions; if there
    /// are not enough receives for the longest reply, each item is placed or written depending on
    /// its length. In the third, they are written. Only written items need registered memory.
    pub(crate) fn reply_modes(
        &self,
        call: &CallToPlan<'_>,
        usable: &Usable,
    ) -> SmallVec<[ReplyMode; 3]> {
        let reservable = call.reservable.min(usable.reply_transmissions - 1);
        let planning = Planning {
            call,
            frame: self.frame.within(call.limits.inline_receive),
            min: self.config.min_placed.max(1),
            max: reservable.saturating_add(1),
        };
        let mut modes = SmallVec::new();
        modes.extend(planning.in_stream(usable));
        let bulky = call.need.items.iter().any(|&len| planning.is_bulky(len));
        if !bulky || !usable.responses || call.need.items.len() > MAX_ITEMS {
            return modes;
        }
        if usable.placed_replies {
            let placed = planning.placed();
            if placed.is_none() {
                modes.extend(planning.by_size());
            }
            modes.extend(placed);
        }
        modes.extend(planning.written());
        modes
    }
}

impl Planning<'_> {
    fn is_bulky(&self, len: u64) -> bool {
        len >= u64::from(self.min)
    }

    /// Returns the mode in which all items stay in the payload stream. In a single transmission
    /// this needs no feature of rtrext-00.
    fn in_stream(&self, usable: &Usable) -> Option<ReplyMode> {
        let max = match usable.responses {
            true => self.max,
            false => 1,
        };
        let need = self.call.need;
        let (reserved, wire_bytes) = self.lay_out(4, need.stream_len(), &[], max)?;
        Some(ReplyMode {
            items: SmallVec::new(),
            reserved,
            wire_bytes,
            unplaced: need.items.iter().sum(),
            placed: false,
        })
    }

    /// Returns the maximum length in bytes of the payload stream without the items that are long
    /// enough to place.
    fn payload(&self) -> u64 {
        let need = self.call.need;
        let short = |&len: &u64| padded(len.min(u64::from(self.min)));
        need.payload + need.items.iter().map(short).sum::<u64>()
    }

    fn placed(&self) -> Option<ReplyMode> {
        let need = &self.call.need.items;
        let bulky: SmallVec<[u64; 1]> =
            need.iter().copied().filter(|&l| self.is_bulky(l)).collect();
        let items_len = 4 + PLACED_LEN * need.len() as u64;
        let (reserved, wire_bytes) = self.lay_out(items_len, self.payload(), &bulky, self.max)?;
        Some(ReplyMode {
            items: need.iter().map(|_| (self.min, Directing::Placed)).collect(),
            reserved,
            wire_bytes,
            unplaced: 0,
            placed: true,
        })
    }

    fn written(&self) -> Option<ReplyMode> {
        let need = &self.call.need.items;
        let segments = |&len: &u64| SEGMENT_LEN * self.call.limits.segments(len);
        let items_len = 4 + need.iter().map(|l| EXPLICIT_LEN + segments(l)).sum::<u64>();
        let (reserved, wire_bytes) = self.lay_out(items_len, self.payload(), &[], self.max)?;
        let direct = |&len: &u64| match self.is_bulky(len) {
            true => (self.min, Directing::Written(len)),
            // The item is too short to be written, but must use up a direction.
            false => (self.min, Directing::Placed),
        };
        Some(ReplyMode {
            items: need.iter().map(direct).collect(),
            reserved,
            wire_bytes,
            unplaced: 0,
            placed: false,
        })
    }

    /// Returns the mode in which the item is placed if it fits the available receives, and written
    /// to registered memory otherwise. Only for a single item, because with several items it is not
    /// known which of them takes how much room.
    fn by_size(&self) -> Option<ReplyMode> {
        let [len] = self.call.need.items[..] else {
            return None;
        };
        let segments = self.call.limits.segments(len);
        let items_len = 4 + PLACED_LEN.max(EXPLICIT_LEN + SEGMENT_LEN * segments);
        let fits = |len| self.lay_out(items_len, self.payload(), &[len], self.max);
        let (mut low, mut high) = (u64::from(self.min), len);
        fits(low)?;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                Some(_) => low = middle,
                None => high = middle,
            }
        }
        let (reserved, wire_bytes) = fits(low)?;
        let direct = Directing::BySize {
            longest_placed: u32::try_from(low).ok()?,
            chunk: len,
        };
        Some(ReplyMode {
            items: SmallVec::from_iter([(self.min, direct)]),
            reserved,
            wire_bytes,
            unplaced: 0,
            placed: false,
        })
    }

    /// Returns the number of additional receives and the length in bytes of all transmissions.
    fn lay_out(&self, items_len: u64, payload: u64, items: &[u64], max: u32) -> Option<(u32, u64)> {
        let headers = Headers {
            first: response_header(items_len as usize),
            next: Continuation::HEADER_LEN,
        };
        let payload = padded(payload);
        let layout = lay_out(&self.frame, &headers, payload, items, max).ok()?;
        Some((layout.parts.len() as u32 - 1, layout.wire_bytes(&headers)))
    }
}

impl fmt::Display for ReplyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.reserved + 1;
        write!(f, "reply: up to {count} transmission{}", plural(count))?;
        write!(f, " (<= {} B)", self.wire_bytes)?;
        for (index, (_, to)) in self.items.iter().enumerate() {
            match to {
                Directing::Placed => write!(f, ", item {index} placed")?,
                Directing::Written(chunk) => {
                    write!(f, ", item {index} by RDMA Write (<= {chunk} B)")?;
                }
                Directing::BySize {
                    longest_placed,
                    chunk,
                } => write!(
                    f,
                    ", item {index} placed up to {longest_placed} B, by RDMA Write up to {chunk} B"
                )?,
            }
        }
        Ok(())
    }
}

/// Returns the plural ending for `count` things.
pub(crate) fn plural(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}
