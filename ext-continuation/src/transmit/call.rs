//! Transfer modes of calls, and the directions for their replies (sections 4.3, 5.2, 5.3 and 9.2).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use onc_rpc::padded;
use rpcrdma_ext_send_ddp::limits::MAX_ITEMS;
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedItems, DirectedSet, DirectedSets, Direction, Items, Location, PlacedItem,
};
use rpcrdma_extension::layout::{Frame, Headers};
use rpcrdma_extension::{CallCandidate, CallToPlan, Cost, NotTransferred, Transmissions};
use rpcrdma_v2::{Chunks, Segment};
use smallvec::SmallVec;

use crate::emit::{Arranged, PlacedItems};
use crate::operation::{EXPLICIT_LEN, PLACED_LEN, SEGMENT_LEN, request_header};
use crate::transmit::replies::{Directing, ReplyMode, plural};
use crate::{Continuation, Request, Transmit, Usable, XMTREQ};

/// The place of an item of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemMode {
    /// The item stays inside the payload stream.
    InStream,
    /// The item is placed in target buffer segments, carried by the transmissions.
    Placed,
    /// The item is in registered memory and fetched by RDMA Read.
    Read,
}

/// The transfer plan of a call.
#[derive(Debug)]
pub(crate) struct CallPlan {
    /// Place, position and length in bytes of each item.
    items: SmallVec<[(ItemMode, u32, u64); 1]>,
    reply: ReplyMode,
    /// Length in bytes of the call's stream, to which the directions refer.
    stream_len: u32,
    planned: Arranged,
    /// The number of announcements that the peer had made when the call was planned.
    announced: u64,
    /// The encoded operation (`rdma_optinfo`), cached when the first call with this plan is sent. It is not
    /// cached if the call offers memory, whose handles differ from call to call, or if the length of the
    /// header required another layout.
    info: OnceLock<Bytes>,
}

/// A call that was sent by ROPT_XMTREQ and has not ended.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The directions for the items of the call's reply, in order.
    pub(crate) directions: DirectedItems,
    /// Number of additional receives posted for the call's reply.
    pub(crate) reserved: u32,
    /// Number of transmissions of the call.
    pub(crate) count: u32,
}

/// The calls that were sent by ROPT_XMTREQ and have not ended. Credits bound their number, so the XIDs are
/// searched one by one, which takes less than hashing.
#[derive(Debug, Default)]
pub(crate) struct SentCalls {
    xids: Vec<u32>,
    /// The calls with these XIDs, in the same order.
    calls: Vec<Sent>,
}

impl SentCalls {
    fn find(&self, xid: u32) -> Option<usize> {
        self.xids.iter().position(|&sent| sent == xid)
    }

    /// Returns the call with this XID.
    pub(crate) fn get(&self, xid: u32) -> Option<&Sent> {
        self.calls.get(self.find(xid)?)
    }

    /// Adds a call, in place of one with the same XID.
    fn insert(&mut self, xid: u32, call: Sent) {
        match self.find(xid) {
            Some(at) => self.calls[at] = call,
            None => {
                self.xids.push(xid);
                self.calls.push(call);
            }
        }
    }

    /// Removes the call with this XID. Returns whether there was one.
    pub(crate) fn remove(&mut self, xid: u32) -> bool {
        let Some(at) = self.find(xid) else {
            return false;
        };
        self.xids.swap_remove(at);
        self.calls.swap_remove(at);
        true
    }
}

impl Transmit {
    /// Returns every transfer mode for a call, combined with each transfer mode for its reply.
    pub(crate) fn call_candidates(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let usable = self.usable();
        let (shape, max) = (call.shape, self.config.max_message);
        let too_long = shape.stream_len() > max || call.need.stream_len() > max;
        let odd = !shape.payload().is_multiple_of(4);
        if !usable.requests || too_long || odd || shape.items().len() > MAX_ITEMS {
            return Vec::new();
        }
        let replies = self.reply_modes(call, &usable);
        let frame = self.send_frame(call.limits.inline_send);
        let mut candidates = Vec::new();
        let min = u64::from(self.config.min_placed);
        for mode in [ItemMode::Placed, ItemMode::InStream, ItemMode::Read] {
            let items: SmallVec<[(ItemMode, u32, u64); 1]> = shape
                .items()
                .iter()
                .map(|item| match item.len > 0 && item.len >= min {
                    true => (mode, item.position, item.len),
                    false => (ItemMode::InStream, item.position, item.len),
                })
                .collect();
            let same = mode != ItemMode::InStream
                && items.iter().all(|&(mode, ..)| mode == ItemMode::InStream);
            if same || (mode == ItemMode::Placed && !usable.place) {
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
        items: &SmallVec<[(ItemMode, u32, u64); 1]>,
        reply: &ReplyMode,
    ) -> Option<CallCandidate> {
        let (mut payload, mut items_len, mut unplaced) = (call.shape.payload(), 4, 0);
        let (mut placed, mut reads) = (PlacedItems::new(), SmallVec::new());
        let segments = |len| call.limits.segments(len);
        let mut listed: u64 = reply.chunks().map(segments).sum();
        for (index, &(mode, _, len)) in items.iter().enumerate() {
            match mode {
                ItemMode::InStream => {
                    payload += padded(len);
                    unplaced += len;
                }
                ItemMode::Placed => {
                    items_len += PLACED_LEN;
                    placed.push((index, len));
                }
                ItemMode::Read => {
                    items_len += EXPLICIT_LEN + SEGMENT_LEN * segments(len);
                    listed += segments(len);
                    reads.push(index);
                }
            }
        }
        // The engine checks what is registered for a call against the same limit, all together.
        if listed > u64::from(call.limits.chunks.segments) {
            return None;
        }
        let directions_len = reply.directions_len(segments);
        let headers = Headers {
            first: request_header(items_len as usize, directions_len as usize),
            next: Continuation::HEADER_LEN,
        };
        let max = usable.call_transmissions.min(call.credits);
        let planned = Arranged::new(frame.clone(), headers, payload, placed, max)?;
        let places = !planned.placed.is_empty();
        let nothing_gained = !places && reads.is_empty();
        if nothing_gained && planned.count() == 1 && reply.is_plain() {
            // The plan equals the base protocol's single Send, but with a longer header.
            return None;
        }
        Some(CallCandidate {
            cost: Cost {
                transmissions: planned.count(),
                may_wait: false,
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
            plan: Arc::new(CallPlan {
                items: SmallVec::from_slice(items),
                reply: reply.clone(),
                stream_len: u32::try_from(call.shape.stream_len()).ok()?,
                planned,
                announced: self.announced,
                info: OnceLock::new(),
            }),
        })
    }

    /// Divides a call into transmissions, and records what its reply may contain.
    pub(crate) fn transmit_call(
        &mut self,
        xid: u32,
        plan: &CallPlan,
        message: &onc_rpc::Message,
        chunks: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        if !self.usable().requests {
            return Err(NotTransferred("the peer refused such calls".to_owned()));
        }
        // The call is laid out for the receives that the peer had, and in as many transmissions as it took.
        if self.announced != plan.announced {
            let reason = "the peer has announced other receives or operations meanwhile";
            return Err(NotTransferred(reason.to_owned()));
        }
        let directions = plan.reply.directions(&chunks.writes).ok_or_else(missing)?;
        let (info, planned) = match plan.info.get() {
            Some(info) => (info.clone(), Cow::Borrowed(&plan.planned)),
            None => plan.operation(&directions, chunks)?,
        };
        let in_stream = |index: usize| {
            let item = plan.items.get(index);
            item.is_none_or(|&(mode, ..)| mode == ItemMode::InStream)
        };
        let transmissions = planned.emit(XMTREQ, info, message, in_stream);
        if transmissions.is_ok() {
            let sent = Sent {
                directions,
                reserved: plan.reply.reserved,
                count: planned.count(),
            };
            self.outstanding.insert(xid, sent);
        }
        transmissions
    }
}

fn missing() -> NotTransferred {
    NotTransferred("memory that was planned is not registered".to_owned())
}

impl CallPlan {
    /// Returns the operation of a call with these directions and this memory as XDR, and the layout of the
    /// call.
    fn operation(
        &self,
        directions: &DirectedItems,
        chunks: &Chunks,
    ) -> Result<(Bytes, Cow<'_, Arranged>), NotTransferred> {
        let mut items = Items::new();
        for &(mode, position, len) in &self.items {
            let location = match mode {
                ItemMode::InStream => continue,
                ItemMode::Placed => Location::Placed(Default::default()),
                ItemMode::Read => {
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
                // A position behind the item is 32 bits, so the length is, too.
                length: len as u32,
                location,
            });
        }
        let sets = match directions.is_empty() {
            true => DirectedSets::new(),
            false => DirectedSets::from_buf([DirectedSet {
                begin: 0,
                end: self.stream_len,
                items: directions.clone(),
            }]),
        };
        let mut request = Request {
            items,
            directions: sets,
            reserved: self.reply.reserved,
            ..Request::default()
        };
        let planned = self.planned.with_header(request.header_len())?;
        place(&mut request.items, &planned);
        request.count = planned.count();
        request.payload = planned.first_payload();
        let info = request.encode();
        if let (true, Cow::Borrowed(_)) = (chunks.is_empty(), &planned) {
            let _ = self.info.set(info.clone());
        }
        Ok((info, planned))
    }
}

/// Fills in the places of the placed items.
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

impl ReplyMode {
    /// Returns the directions with the registered memory, or `None` if too few chunks were
    /// registered.
    fn directions(&self, writes: &[rpcrdma_v2::WriteChunk]) -> Option<DirectedItems> {
        let mut writes = writes.iter();
        let mut directions = DirectedItems::new();
        for &(min_len, directing) in &self.items {
            let to = match directing {
                Directing::Placed => Direction::Placed,
                Directing::Written(_) => Direction::Explicit(writes.next()?.clone()),
                Directing::BySize { longest_placed, .. } => Direction::BySize {
                    longest_placed,
                    chunk: writes.next()?.clone(),
                },
            };
            directions.push(DirectedItem { min_len, to });
        }
        Some(directions)
    }
}

impl fmt::Display for CallPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.planned.count();
        write!(f, "call: {count} transmission{}", plural(count))?;
        write!(f, " ({} B)", self.planned.wire_bytes())?;
        write!(f, ", payload {} B", self.planned.payload)?;
        for (index, (mode, position, len)) in self.items.iter().enumerate() {
            let how = match mode {
                ItemMode::InStream => "in it",
                ItemMode::Placed => "placed",
                ItemMode::Read => "by RDMA Read",
            };
            write!(f, ", item {index} {how} at {position} ({len} B)")?;
        }
        write!(f, "; {}", self.reply)
    }
}
