//! A group of transmissions that is being received (sections 4.2, 6.2, 7.3 and 9.2 to 9.4).

use bytes::Bytes;
use onc_rpc::{BulkItem, Message, Position, Segments, padded};
use rpcrdma_ext_send_ddp::{BadPlacement, Frame, Location, Place, PlacedItem, locate, twice};
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::Operation;
use smallvec::SmallVec;

use crate::cut::cut;
use crate::report::OutOfRange;
use crate::{Continuation, Fault, Request, Response, TransmissionId, XMTREQ, XMTRESP};

/// The first operation of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lead {
    Request(Request),
    Response(Response),
}

impl Lead {
    pub(crate) fn opttype(&self) -> u32 {
        match self {
            Self::Request(_) => XMTREQ,
            Self::Response(_) => XMTRESP,
        }
    }

    fn items(&self) -> &[PlacedItem] {
        match self {
            Self::Request(request) => &request.items,
            Self::Response(response) => &response.items,
        }
    }
}

/// One transmission.
#[derive(Debug)]
struct Received {
    pieces: SmallVec<[Bytes; 2]>,
    len: u64,
    /// Where its payload is, in all of it.
    payload: (u64, u64),
}

/// A group that is not complete, or has just become so.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) xid: u32,
    pub(crate) direction: Direction,
    /// `rdma_credit` of its last transmission: the latest word on credits counts (RFC 8166, section
    /// 3.3.1).
    pub(crate) credits: u32,
    pub(crate) lead: Lead,
    /// Transmissions that it has.
    pub(crate) count: u32,
    parts: Vec<Received>,
}

/// A transmission cannot be used: its number in the group, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) number: u32,
    pub(crate) fault: Fault,
}

/// An item that is placed, and where.
type Located<'a> = (&'a PlacedItem, SmallVec<[Place; 2]>);

impl Group {
    /// Begins with its first transmission, which says that there are `count`: that number is
    /// checked already.
    pub(crate) fn new(
        op: &Operation<'_>,
        lead: Lead,
        count: u32,
        payload: u32,
    ) -> Result<Self, Fault> {
        let mut group = Self {
            xid: op.xid,
            direction: op.direction,
            credits: op.credits,
            lead,
            count,
            parts: Vec::new(),
        };
        group.add(op, payload)?;
        Ok(group)
    }

    /// Its first transmission.
    pub(crate) fn lead_id(&self) -> TransmissionId {
        TransmissionId {
            xid: self.xid,
            direction: self.direction,
            number: 0,
        }
    }

    /// The number of the transmission that comes next.
    pub(crate) fn next_number(&self) -> u32 {
        // Never more than `count`.
        self.parts.len() as u32
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next_number() >= self.count
    }

    /// A further transmission arrived.
    pub(crate) fn continued(
        &mut self,
        op: &Operation<'_>,
        cont: Continuation,
    ) -> Result<(), Fault> {
        let expected = self.lead.opttype();
        if op.xid != self.xid || op.direction != self.direction {
            // The direction is a part of what a transaction is known by (section 6.1).
            return Err(Fault::Xid {
                expected: self.xid,
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
        self.add(op, cont.payload)?;
        self.credits = op.credits;
        Ok(())
    }

    /// Section 9.5: the payload is a subset of the transmission; and XDR has units of four bytes.
    fn add(&mut self, op: &Operation<'_>, payload: u32) -> Result<(), Fault> {
        let len: u64 = op.message.iter().map(|piece| piece.len() as u64).sum();
        let at = op.payload_at as u64;
        let room = len.saturating_sub(at);
        if u64::from(payload) > room || !payload.is_multiple_of(4) {
            return Err(Fault::Payload(OutOfRange {
                value: payload,
                min: 0,
                max: u32::try_from(room).unwrap_or(u32::MAX),
            }));
        }
        self.parts.push(Received {
            pieces: op.message.iter().cloned().collect(),
            len,
            payload: (at, at + u64::from(payload)),
        });
        Ok(())
    }

    /// The RPC message of a complete group, with the items that came in it, by their positions. The
    /// receiver's buffers are like `frame`, and it takes messages of up to `max` bytes.
    pub(crate) fn message(&self, frame: &Frame, max: u64) -> Result<Message, Bad> {
        let payload_len: u64 = self
            .parts
            .iter()
            .map(|part| part.payload.1 - part.payload.0)
            .sum();
        check_positions(self.lead.items(), payload_len, max).map_err(first)?;
        let located = self.locate(frame)?;
        let mut payload = Segments::new();
        for part in &self.parts {
            let (from, to) = part.payload;
            payload.extend(cut(&part.pieces, from, to - from));
        }
        let bulk = |(item, places): &Located<'_>| {
            let mut data = Segments::new();
            for place in places {
                if let Some(part) = self.parts.get(place.transmission) {
                    data.extend(cut(&part.pieces, place.at, place.len));
                }
            }
            BulkItem {
                position: Position::At(item.position),
                data: data.into_iter().collect(),
            }
        };
        Ok(Message::new(payload, located.iter().map(bulk)))
    }

    /// Where all items are that are placed, each in bytes that were sent and are nothing else's.
    fn locate(&self, frame: &Frame) -> Result<Vec<Located<'_>>, Bad> {
        let mut located = Vec::new();
        let mut all = SmallVec::<[Place; 2]>::new();
        for item in self.lead.items() {
            let Location::Placed(spot) = &item.location else {
                continue;
            };
            let places = locate(frame, self.count, spot, item.length);
            let places = places.map_err(|bad| first(bad.into()))?;
            for place in &places {
                let part = self.parts.get(place.transmission);
                let there = part.is_some_and(|p| p.payload.1 <= place.at && place.end() <= p.len);
                if !there {
                    return Err(self.bad_segment(frame, place.number, place.transmission));
                }
            }
            all.extend(places.iter().copied());
            located.push((item, places));
        }
        match twice(&all) {
            Some(number) => Err(self.bad_segment(frame, number, 0)),
            None => Ok(located),
        }
    }

    fn bad_segment(&self, frame: &Frame, value: u32, transmission: usize) -> Bad {
        let numbers = u64::from(self.count) * frame.targets().len() as u64;
        let max = u32::try_from(numbers.saturating_sub(1)).unwrap_or(u32::MAX);
        let range = OutOfRange { value, min: 0, max };
        Bad {
            number: transmission as u32,
            fault: Fault::Segment(range),
        }
    }
}

/// Bytes of XID and `msg_type`.
const RPC_START: u64 = 8;

/// What the first transmission says is wrong.
fn first(fault: Fault) -> Bad {
    Bad { number: 0, fault }
}

/// Positions count the whole stream, as those of read chunks do (section 6.2; RFC 8166, section
/// 3.4.5): items are in order, and each one's place in the payload is its position less what the
/// items before it took out, round-up included. Items that stay in the payload take nothing out. No
/// item comes before the XID and the type of the RPC message.
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
