//! A group of transmissions that is being received (sections 4.2, 6.2, 7.3 and 9.2 to 9.4).

use bytes::Bytes;
use rpcrdma_ext_send_ddp::PlacedItem;
use rpcrdma_extension::layout::BadPlacement;
use rpcrdma_extension::{
    BadItem, BadPayload, Following, Part, Reassembly, ReceivedMessage, Written,
};
use rpcrdma_v2::Direction;
use smallvec::SmallVec;

use crate::report::OutOfRange;
use crate::{Continuation, Fault, Request, Response, TransmissionId, XMTREQ, XMTRESP};

/// For each write chunk of a call, the item that was placed in it.
pub(crate) type WrittenItems = SmallVec<[Option<Written>; 1]>;

/// The operation of the first transmission, which says whether the group is a call or a reply.
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

/// Returns the transmission of this operation. Its payload must lie within it (section 9.5) and be a
/// multiple of four bytes.
pub(crate) fn part<'a>(op: &ReceivedMessage<'a>, payload: u32) -> Result<Part<&'a [Bytes]>, Fault> {
    // Every version that this extension is for says how long its fields are.
    let header = op.delimited().map_or(u64::MAX, |(_, at)| at as u64);
    let part = Part::new(op.message, header, u64::from(payload));
    part.map_err(|BadPayload { room }| {
        Fault::Payload(OutOfRange {
            value: payload,
            min: 0,
            max: u32::try_from(room).unwrap_or(u32::MAX),
        })
    })
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

/// The transmissions of one RPC message that have arrived while others are still to come.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupHeader,
    pub(crate) lead: Lead,
    /// The transmissions.
    pub(crate) parts: Reassembly,
}

impl Group {
    /// Starts a group, whose first transmission is to be added.
    pub(crate) fn new(id: GroupHeader, lead: Lead) -> Self {
        let parts = Reassembly::new(id.direction, id.xid);
        Self { id, lead, parts }
    }

    /// Returns the number of the next transmission.
    pub(crate) fn next_number(&self) -> u32 {
        self.parts.count()
    }

    /// Returns whether the transmission with this number is the last one.
    pub(crate) fn ends_with(&self, number: u32) -> bool {
        number.saturating_add(1) >= self.id.count
    }

    /// Adds the transmission with this number, which is not the last one. It holds `held` bytes of
    /// receive memory.
    pub(crate) fn add(
        &mut self,
        part: Part<&[Bytes]>,
        number: u32,
        held: usize,
    ) -> Result<(), Fault> {
        let following = Following {
            messages: self
                .id
                .count
                .checked_sub(1)
                .and_then(|last| last.checked_sub(number)),
            bytes: None,
        };
        let added = self.parts.add(part.kept(), following, held);
        added.map(|_| ()).map_err(|_| Fault::Sequence {
            expected: self.next_number(),
            found: number,
        })
    }

    /// Returns a further transmission, if it is the next one.
    pub(crate) fn continued<'a>(
        &self,
        op: &ReceivedMessage<'a>,
        cont: Continuation,
    ) -> Result<Part<&'a [Bytes]>, Fault> {
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
        part(op, cont.payload)
    }
}

/// Returns the error for a wrong item, with the number of the transmission that is bad. The group's
/// segments have numbers up to `last`.
pub(crate) fn fault(bad: BadItem, last: u32) -> (u32, Fault) {
    let segment = |value| {
        Fault::Segment(OutOfRange {
            value,
            min: 0,
            max: last,
        })
    };
    match bad {
        BadItem::Position { value, min, max } => (0, Fault::Offset(OutOfRange { value, min, max })),
        BadItem::TooLong { len, max } => {
            let range = OutOfRange {
                value: u32::try_from(len).unwrap_or(u32::MAX),
                min: 0,
                max: u32::try_from(max).unwrap_or(u32::MAX),
            };
            (0, Fault::Payload(range))
        }
        BadItem::Place(BadPlacement::Segment { value, min, max }) => {
            (0, Fault::Segment(OutOfRange { value, min, max }))
        }
        BadItem::Place(BadPlacement::Offset { value, min, max }) => {
            (0, Fault::Offset(OutOfRange { value, min, max }))
        }
        BadItem::NotSent { part, number } => (part, segment(number)),
        BadItem::Outside { number } | BadItem::Overlap { number } => (0, segment(number)),
    }
}
