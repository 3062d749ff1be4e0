//! How calls are conveyed, and what is said of their replies (sections 4.3, 5.2, 5.3 and 9.2).

use std::fmt;

use onc_rpc::padded;
use rpcrdma_ext_send_ddp::limits::MAX_ITEMS;
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedSet, Direction, Frame, Headers, Location, PlacedItem,
};
use rpcrdma_v2::extension::{CallCandidate, CallToPlan, Cost, NotConveyed, Transmissions};
use rpcrdma_v2::{Chunks, Segment};
use smallvec::SmallVec;

use crate::emit::Arranged;
use crate::operation::{EXPLICIT_LEN, PLACED_LEN, SEGMENT_LEN, request_header};
use crate::replies::{Directing, ReplyWay, plural};
use crate::{Continuation, Request, Transmit, Usable, XMTREQ};

/// How an item of a call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the payload stream.
    InStream,
    /// Placed in the transmissions.
    Placed,
    /// Fetched by RDMA Read.
    Read,
}

/// A call's plan.
#[derive(Debug)]
pub(crate) struct CallPlan {
    /// Of each item: its way, its position and its bytes.
    items: SmallVec<[(Way, u32, u64); 1]>,
    reply: ReplyWay,
    /// Bytes of the call's stream: what the directions are about.
    stream_len: u32,
    planned: Arranged,
}

/// A call that was sent by ROPT_XMTREQ and has not ended.
#[derive(Debug)]
pub(crate) struct Sent {
    /// What was said of its reply, in order.
    pub(crate) directions: Vec<DirectedItem>,
    /// Further receives that were posted for it.
    pub(crate) reserved: u32,
    /// Its own transmissions.
    pub(crate) count: u32,
}

impl Transmit {
    /// Every way to convey a call, with each way that its reply can come.
    pub(crate) fn call_candidates(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let usable = self.usable();
        let (shape, max) = (call.shape, self.config.max_message);
        let too_long = shape.stream_len() > max || call.need.stream_len() > max;
        let odd = !shape.payload().is_multiple_of(4);
        if !usable.requests || too_long || odd || shape.items().len() > MAX_ITEMS {
            return Vec::new();
        }
        let replies = self.reply_ways(call, &usable);
        let frame = self.send_frame(call.limits.inline_send);
        let mut candidates = Vec::new();
        let min = u64::from(self.config.min_placed);
        for way in [Way::Placed, Way::InStream, Way::Read] {
            let items: SmallVec<[(Way, u32, u64); 1]> = shape
                .items()
                .iter()
                .map(|item| match item.len > 0 && item.len >= min {
                    true => (way, item.position, item.len),
                    false => (Way::InStream, item.position, item.len),
                })
                .collect();
            let same = way != Way::InStream && items.iter().all(|&(way, ..)| way == Way::InStream);
            if same || (way == Way::Placed && !usable.place) {
                continue;
            }
            for reply in &replies {
                candidates.extend(self.candidate(call, &usable, &frame, &items, reply));
            }
        }
        candidates
    }

    fn candidate(
        &self,
        call: &CallToPlan<'_>,
        usable: &Usable,
        frame: &Frame,
        items: &SmallVec<[(Way, u32, u64); 1]>,
        reply: &ReplyWay,
    ) -> Option<CallCandidate> {
        let (mut payload, mut items_len, mut unplaced) = (call.shape.payload(), 4, 0);
        let (mut placed, mut reads) = (Vec::new(), SmallVec::new());
        for (index, &(way, _, len)) in items.iter().enumerate() {
            match way {
                Way::InStream => {
                    payload += padded(len);
                    unplaced += len;
                }
                Way::Placed => {
                    items_len += PLACED_LEN;
                    placed.push((index, len));
                }
                Way::Read => {
                    items_len += EXPLICIT_LEN + SEGMENT_LEN * call.limits.segments(len);
                    reads.push(index);
                }
            }
        }
        let directions_len = reply.directions_len(|len| call.limits.segments(len));
        let headers = Headers {
            first: request_header(items_len as usize, directions_len as usize),
            next: Continuation::HEADER_LEN,
        };
        let max = usable.call_transmissions.min(call.credits);
        let planned = Arranged::new(frame.clone(), headers, payload, placed, max)?;
        let places = !planned.placed.is_empty();
        let nothing_gained = !places && reads.is_empty();
        if nothing_gained && planned.count() == 1 && reply.is_plain() {
            // The same as the base's plain transmission, with a longer header.
            return None;
        }
        Some(CallCandidate {
            cost: Cost {
                transmissions: planned.count(),
                wire_bytes: planned.wire_bytes(),
                unplaced: unplaced + reply.unplaced,
                placed: u32::from(places) + u32::from(reply.placed),
                receives: reply.reserved,
                reply_transmissions: reply.reserved + 1,
                reply_wire_bytes: reply.wire_bytes,
            },
            reads,
            write_chunks: reply.chunks().collect(),
            reply_chunk: None,
            plan: Box::new(CallPlan {
                items: items.clone(),
                reply: reply.clone(),
                stream_len: u32::try_from(call.shape.stream_len()).ok()?,
                planned,
            }),
        })
    }

    /// Lays a call out, and remembers what its reply may be like.
    pub(crate) fn transmit_call(
        &mut self,
        xid: u32,
        mut plan: CallPlan,
        message: &onc_rpc::Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotConveyed> {
        let missing = || NotConveyed("memory that was planned is not registered".to_owned());
        if !self.usable().requests {
            return Err(NotConveyed("the peer refused such calls".to_owned()));
        }
        let directions = plan.reply.directions(&chunks.writes).ok_or_else(missing)?;
        let mut items = Vec::new();
        for &(way, position, len) in &plan.items {
            let location = match way {
                Way::InStream => continue,
                Way::Placed => Location::Placed(Default::default()),
                Way::Read => {
                    let segments: SmallVec<[Segment; 1]> = chunks
                        .reads
                        .iter()
                        .filter(|read| read.position == position)
                        .map(|read| read.segment)
                        .collect();
                    if segments.is_empty() {
                        return Err(missing());
                    }
                    Location::Explicit(segments)
                }
            };
            items.push(PlacedItem {
                position,
                // A position behind it is 32 bits.
                length: len as u32,
                location,
            });
        }
        let sets = match directions.is_empty() {
            true => Vec::new(),
            false => vec![DirectedSet {
                begin: 0,
                end: plan.stream_len,
                items: directions.clone(),
            }],
        };
        let mut request = Request {
            items,
            directions: sets,
            reserved: plan.reply.reserved,
            ..Request::default()
        };
        plan.planned.adjust(request.header_len())?;
        place(&mut request.items, &plan.planned);
        request.count = plan.planned.count();
        request.payload = plan.planned.first_payload();
        let in_stream = |index: usize| {
            let item = plan.items.get(index);
            item.is_none_or(|&(way, ..)| way == Way::InStream)
        };
        let info = request.encode();
        let transmissions = plan.planned.emit(XMTREQ, info, message, in_stream)?;
        let (reserved, count) = (request.reserved, request.count);
        self.outstanding.insert(
            xid,
            Sent {
                directions,
                reserved,
                count,
            },
        );
        Ok(transmissions)
    }
}

/// Says of the items that are placed where they are.
pub(crate) fn place(items: &mut [PlacedItem], planned: &Arranged) {
    let mut spots = planned.layout.spots.iter();
    for item in items {
        if let Location::Placed(spot) = &mut item.location
            && let Some(found) = spots.next()
        {
            spot.clone_from(found);
        }
    }
}

impl ReplyWay {
    /// The directions, with the memory that was registered; nothing if there is too little.
    fn directions(&self, writes: &[rpcrdma_v2::WriteChunk]) -> Option<Vec<DirectedItem>> {
        let mut writes = writes.iter();
        let one = |item: &(u32, Directing)| {
            let (min_len, directing) = *item;
            let to = match directing {
                Directing::Placed => Direction::Placed,
                Directing::Written(_) => Direction::Explicit(writes.next()?.clone()),
                Directing::BySize { longest_placed, .. } => Direction::BySize {
                    longest_placed,
                    chunk: writes.next()?.clone(),
                },
            };
            Some(DirectedItem { min_len, to })
        };
        self.items.iter().map(one).collect()
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.planned.count();
        write!(f, "call: {count} transmission{}", plural(count))?;
        write!(f, " ({} B)", self.planned.wire_bytes())?;
        write!(f, ", payload {} B", self.planned.payload)?;
        for (index, (way, position, len)) in self.items.iter().enumerate() {
            let how = match way {
                Way::InStream => "in it",
                Way::Placed => "placed",
                Way::Read => "by RDMA Read",
            };
            write!(f, ", item {index} {how} at {position} ({len} B)")?;
        }
        write!(f, "; {}", self.reply)
    }
}
