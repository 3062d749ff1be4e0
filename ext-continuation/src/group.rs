//! A group of transmissions that is being received (sections 4.2, 6.2, 7.3 and 9.2 to 9.4).

use bytes::Bytes;
use onc_rpc::{Bulk, BulkItem, Message, Position, Segments, padded};
use rpcrdma_ext_send_ddp::{Location, PlacedItem};
use rpcrdma_extension::layout::{BadPlacement, Frame, Place, cut, locate, twice};
use rpcrdma_extension::{ReceivedMessage, Written};
use rpcrdma_v2::Direction;
use smallvec::SmallVec;

use crate::report::OutOfRange;
use crate::{Continuation, Fault, Request, Response, TransmissionId, XMTREQ, XMTRESP};

/// For each write chunk of a call, the item that was placed in it.
pub(crate) type WrittenItems = SmallVec<[Option<Written>; 1]>;

/// The first operation of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    Request(Request),
    /// With what was placed in the memory that the call offered.
    Response(Response, WrittenItems),
}

impl Lead {
    pub(crate) fn opttype(&self) -> u32 {
        match self {
            Self::Request(_) => XMTREQ,
            Self::Response(..) => XMTRESP,
        }
    }

    pub(crate) fn items(&self) -> &[PlacedItem] {
        match self {
            Self::Request(request) => &request.items,
            Self::Response(response, _) => &response.items,
        }
    }
}

/// A received transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pieces: &'a [Bytes],
    len: u64,
    /// Start and end of its payload as byte offsets in the message, counted over all pieces.
    payload: (u64, u64),
}

impl<'a> Part<'a> {
    /// Returns the transmission of this operation. Its payload must lie within it (section 9.5) and be a
    /// multiple of four bytes.
    pub(crate) fn new(op: &ReceivedMessage<'a>, payload: u32) -> Result<Self, Fault> {
        let len = op.message_len() as u64;
        // Every version that this extension is for says how long its fields are.
        let at = op.delimited().map_or(len, |(_, at)| at as u64);
        let room = len.saturating_sub(at);
        if u64::from(payload) > room || !payload.is_multiple_of(4) {
            return Err(Fault::Payload(OutOfRange {
                value: payload,
                min: 0,
                max: u32::try_from(room).unwrap_or(u32::MAX),
            }));
        }
        Ok(Self {
            pieces: op.message,
            len,
            payload: (at, at + u64::from(payload)),
        })
    }
}

/// A transmission of an incomplete group, which is kept.
#[derive(Debug)]
pub(crate) struct KeptPart {
    pieces: SmallVec<[Bytes; 2]>,
    len: u64,
    payload: (u64, u64),
}

impl KeptPart {
    fn new(part: Part<'_>) -> Self {
        Self {
            pieces: part.pieces.iter().cloned().collect(),
            len: part.len,
            payload: part.payload,
        }
    }

    pub(crate) fn part(&self) -> Part<'_> {
        Part {
            pieces: &self.pieces,
            len: self.len,
            payload: self.payload,
        }
    }
}

/// The header fields of a group: XID and direction, which all its transmissions share, their number, and
/// the latest credit value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupHeader {
    pub(crate) xid: u32,
    pub(crate) direction: Direction,
    /// `rdma_credit` of the last transmission. The most recent value applies (RFC 8166, section
    /// 3.3.1).
    pub(crate) credits: u32,
    /// Number of transmissions in the group.
    pub(crate) count: u32,
}

impl GroupHeader {
    /// Returns the group that begins with an operation, whose number of transmissions has been checked.
    pub(crate) fn new(op: &ReceivedMessage<'_>, count: u32) -> Self {
        Self {
            xid: op.xid,
            direction: op.direction,
            credits: op.credits,
            count,
        }
    }

    /// Returns the identification of the first transmission.
    pub(crate) fn lead(&self) -> TransmissionId {
        TransmissionId {
            xid: self.xid,
            direction: self.direction,
            number: 0,
        }
    }
}

/// A group that is incomplete or has just been completed.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupHeader,
    pub(crate) lead: Lead,
    /// The transmissions that have arrived.
    pub(crate) parts: Vec<KeptPart>,
}

/// An unusable transmission: its number in the group, and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) number: u32,
    pub(crate) fault: Fault,
}

/// A placed item and its places.
type Located<'a> = (&'a PlacedItem, SmallVec<[Place; 2]>);

impl Group {
    /// Starts a group with its first transmission.
    pub(crate) fn new(id: GroupHeader, lead: Lead, first: Part<'_>) -> Self {
        let parts = vec![KeptPart::new(first)];
        Self { id, lead, parts }
    }

    /// Returns the number of the next transmission.
    pub(crate) fn next_number(&self) -> u32 {
        // Never more than `count`.
        self.parts.len() as u32
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next_number() >= self.id.count
    }

    /// Adds a further transmission.
    pub(crate) fn continued(
        &mut self,
        op: &ReceivedMessage<'_>,
        cont: Continuation,
    ) -> Result<(), Fault> {
        let expected = self.lead.opttype();
        if op.xid != self.id.xid || op.direction != self.id.direction {
            // The direction is part of a transaction's identity (section 6.1).
            return Err(Fault::Xid {
                expected: self.id.xid,
                found: op.xid,
            });
        }
        if cont.initial != expected {
            let found = cont.initial;
            return Err(Fault::OperationType { expected, found });
        }
        let expected = self.next_number();
        if cont.number != expected {
            let found = cont.number;
            return Err(Fault::Sequence { expected, found });
        }
        self.parts.push(KeptPart::new(Part::new(op, cont.payload)?));
        self.id.credits = op.credits;
        Ok(())
    }
}

/// All transmissions of a group, of which the first has these items.
pub(crate) struct Whole<'a> {
    pub(crate) items: &'a [PlacedItem],
    pub(crate) parts: &'a [Part<'a>],
    /// The receiver's buffers.
    pub(crate) frame: &'a Frame,
}

impl Whole<'_> {
    /// Returns the RPC message, with the items that the transmissions carry at their positions. `max`
    /// is the maximum length in bytes of a message.
    pub(crate) fn message(&self, max: u64) -> Result<Message, Bad> {
        let lens = self.parts.iter().map(|part| part.payload);
        let payload_len: u64 = lens.map(|(from, to)| to - from).sum();
        check_positions(self.items, payload_len, max).map_err(first)?;
        let located = self.locate()?;
        let mut payload = Segments::new();
        for part in self.parts {
            let (from, to) = part.payload;
            cut(part.pieces, from, to - from, |piece| payload.push(piece));
        }
        let bulk = |(item, places): &Located<'_>| {
            let mut data = Bulk::new();
            for place in places {
                if let Some(part) = self.parts.get(place.transmission) {
                    cut(part.pieces, place.at, place.len, |piece| data.push(piece));
                }
            }
            BulkItem {
                position: Position::At(item.position),
                data,
            }
        };
        Ok(Message::new(payload, located.iter().map(bulk)))
    }

    /// Returns the places of all placed items. The places must lie within the bytes that were sent,
    /// and must not overlap.
    fn locate(&self) -> Result<SmallVec<[Located<'_>; 1]>, Bad> {
        let mut located = SmallVec::new();
        let mut all = SmallVec::<[Place; 2]>::new();
        for item in self.items {
            let Location::Placed(spot) = &item.location else {
                continue;
            };
            let places = locate(self.frame, self.count(), spot, item.length);
            let places = places.map_err(|bad| first(bad.into()))?;
            for place in &places {
                let part = self.parts.get(place.transmission);
                let there = part.is_some_and(|p| p.payload.1 <= place.at && place.end() <= p.len);
                if !there {
                    return Err(self.bad_segment(place.number, place.transmission));
                }
            }
            all.extend_from_slice(&places);
            located.push((item, places));
        }
        match twice(&all) {
            Some(number) => Err(self.bad_segment(number, 0)),
            None => Ok(located),
        }
    }

    fn count(&self) -> u32 {
        // No more than the peer may send, which is a `u32`.
        self.parts.len() as u32
    }

    fn bad_segment(&self, value: u32, transmission: usize) -> Bad {
        let numbers = u64::from(self.count()) * self.frame.targets().len() as u64;
        let max = u32::try_from(numbers.saturating_sub(1)).unwrap_or(u32::MAX);
        let range = OutOfRange { value, min: 0, max };
        Bad {
            number: transmission as u32,
            fault: Fault::Segment(range),
        }
    }
}

/// Length in bytes of XID and `msg_type`.
const RPC_START: u64 = 8;

/// Attributes an error to the first transmission.
fn first(fault: Fault) -> Bad {
    Bad { number: 0, fault }
}

/// Checks the positions of the items. As with read chunks, positions count the whole stream
/// (section 6.2; RFC 8166, section 3.4.5): items must be in order, and an item's offset in the
/// payload is its position minus the bytes that earlier items took out, round-up included. Items
/// that stay in the payload take out nothing. No item may come before the end of the RPC message's
/// XID and type.
fn check_positions(items: &[PlacedItem], payload_len: u64, max: u64) -> Result<(), Fault> {
    let (mut end, mut reduced) = (RPC_START, 0);
    for item in items {
        match item.location {
            Location::Explicit(_) | Location::Placed(_) => {}
            Location::TooShort | Location::NoItem => continue,
        }
        let position = u64::from(item.position);
        let highest = payload_len + reduced;
        if position < end || position > highest || !position.is_multiple_of(4) {
            return Err(Fault::Offset(OutOfRange {
                value: item.position,
                min: u32::try_from(end).unwrap_or(u32::MAX),
                max: u32::try_from(highest).unwrap_or(u32::MAX),
            }));
        }
        let len = padded(u64::from(item.length));
        (end, reduced) = (position + len, reduced + len);
    }
    let len = payload_len + reduced;
    if len > max {
        return Err(Fault::Payload(OutOfRange {
            value: u32::try_from(len).unwrap_or(u32::MAX),
            min: 0,
            max: u32::try_from(max).unwrap_or(u32::MAX),
        }));
    }
    Ok(())
}

impl From<BadPlacement> for Fault {
    fn from(bad: BadPlacement) -> Self {
        match bad {
            BadPlacement::Segment { value, min, max } => {
                Self::Segment(OutOfRange { value, min, max })
            }
            BadPlacement::Offset { value, min, max } => {
                Self::Offset(OutOfRange { value, min, max })
            }
        }
    }
}
