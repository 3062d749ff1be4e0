//! Calls by ROPT_XMTREQ and ROPT_XMTCONT (rtrext-00, 7, 9.2 and 9.4).

use crate::client::call::Call;
use crate::client::placed::{Part, Target, eligible, insert, located, padding};
use crate::client::rules::{Findings, Rule};
use crate::wire::v1::{self, Header, Segment};
use crate::wire::v2::{OPERATION, Operation, XMTREQ};
use crate::wire::{Reader, v2};

/// The values of `xmddp_type`.
pub(super) const EXRW: u32 = 1;
pub(super) const TBSN: u32 = 2;
const CHOICE: u32 = 3;
pub(super) const BYSIZE: u32 = 4;
/// The most transmissions, and the most bytes of them, that are kept. Each call of this server's export is shorter.
const MOST: u32 = 64;
const MOST_BYTES: usize = 2 << 20;

/// A way in which an item of the reply may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct Direction {
    /// The length from which on it is to be used, bytes.
    pub(in crate::client) least: u32,
    /// The value of `xmddp_type`.
    pub(in crate::client) kind: u32,
    /// `xmdrsdl_dsdov`, if the type is XMDTYPE_BYSIZE.
    pub(in crate::client) longest_placed: u32,
    /// The memory, if it has any.
    pub(in crate::client) chunk: Vec<Segment>,
}

/// The place of an item of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Memory(Vec<Segment>),
    Targets(u32, Vec<u32>),
}

/// The header of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct Request {
    items: Vec<(u32, u32, Place)>,
    /// The directions for the items of the reply.
    pub(in crate::client) directions: Vec<Direction>,
    count: u32,
    /// `optxrq_rsbuf`.
    pub(super) reserved: u32,
    /// `optxrq_pslen`.
    length: u32,
}

impl Request {
    /// Decodes ROPT_XMTREQ. Returns `None` if it cannot be decoded.
    pub(super) fn decoded(info: &[u32]) -> Option<Self> {
        let info = v2::bytes(info);
        let mut from = Reader(&info);
        let mut items = Vec::new();
        for _ in 0..from.word()? {
            let (at, length) = (from.word()?, from.word()?);
            let place = match from.word()? {
                EXRW => Place::Memory(v1::take_chunk(&mut from)?),
                TBSN => {
                    let offset = from.word()?;
                    let count = from.word()?;
                    let numbers: Option<_> = (0..count).map(|_| from.word()).collect();
                    Place::Targets(offset, numbers?)
                }
                _ => return None,
            };
            items.push((at, length, place));
        }
        let mut directions = Vec::new();
        for _ in 0..from.word()? {
            let (_, _, count) = (from.word()?, from.word()?, from.word()?);
            for _ in 0..count {
                let (least, kind) = (from.word()?, from.word()?);
                let longest_placed = match kind {
                    BYSIZE => from.word()?,
                    _ => 0,
                };
                let chunk = match kind {
                    EXRW | CHOICE | BYSIZE => v1::take_chunk(&mut from)?,
                    TBSN => Vec::new(),
                    _ => return None,
                };
                directions.push(Direction {
                    least,
                    kind,
                    longest_placed,
                    chunk,
                });
            }
        }
        let request = Self {
            items,
            directions,
            count: from.word()?,
            reserved: from.word()?,
            length: from.word()?,
        };
        from.0.is_empty().then_some(request)
    }
}

/// A call that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) struct Transmitted {
    pub(in crate::client) header: Header,
    /// The RPC message, with the placed items in it.
    pub(in crate::client) payload: Vec<u8>,
    pub(in crate::client) request: Request,
}

/// The transmissions so far of a call.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) xid: u32,
    request: Request,
    parts: Vec<Part>,
    payload: Vec<u8>,
}

impl Group {
    /// Begins a group with ROPT_XMTREQ. `most` transmissions are taken. Returns `None` if nothing can be made of it.
    pub(super) fn begun(
        findings: &mut Findings,
        operation: &Operation,
        message: &[u8],
        most: u32,
    ) -> Option<Self> {
        let request = Request::decoded(&operation.info);
        findings.look(Rule::Header, request.is_some(), || {
            "ROPT_XMTREQ that cannot be decoded".to_owned()
        });
        let request = request?;
        let count = request.count;
        findings.look(
            Rule::Transmissions,
            (1..=most.max(1)).contains(&count),
            || format!("a call in {count} transmissions, and {most} are taken"),
        );
        if !(1..=MOST).contains(&count) {
            return None;
        }
        let length = request.length;
        let mut group = Self {
            xid: operation.xid,
            request,
            parts: Vec::new(),
            payload: Vec::new(),
        };
        group
            .part(findings, operation, message, length)
            .then_some(group)
    }

    /// Takes ROPT_XMTCONT, and returns whether the group goes on.
    pub(super) fn continued(
        &mut self,
        findings: &mut Findings,
        operation: &Operation,
        message: &[u8],
    ) -> bool {
        let (xid, expected) = (operation.xid, self.parts.len() as u32);
        let [number, kind, length] = operation.info[..] else {
            findings.look(Rule::Header, false, || {
                "ROPT_XMTCONT that cannot be decoded".to_owned()
            });
            return false;
        };
        let kept = (xid, number, kind) == (self.xid, expected, XMTREQ);
        let first = self.xid;
        findings.look(Rule::Group, kept, || {
            format!(
                "ROPT_XMTCONT of {xid:#x} with number {number} and operation {kind}, and number {expected} of {first:#x} is due"
            )
        });
        kept && self.part(findings, operation, message, length)
    }

    fn part(
        &mut self,
        findings: &mut Findings,
        operation: &Operation,
        message: &[u8],
        length: u32,
    ) -> bool {
        let payload = operation.rest.get(..length as usize);
        findings.look(Rule::PlacedLayout, payload.is_some(), || {
            let rest = operation.rest.len();
            format!(
                "{length} bytes of the Payload stream in a message with {rest} behind its header"
            )
        });
        let Some(payload) = payload else {
            return false;
        };
        self.payload.extend(payload);
        let head = OPERATION + 4 * operation.info.len() + payload.len();
        self.parts.push(Part::new(message, head));
        let bytes: usize = self.parts.iter().map(|it| it.message.len()).sum();
        bytes <= MOST_BYTES
    }

    /// Returns whether all transmissions have come.
    pub(super) fn is_complete(&self) -> bool {
        self.parts.len() as u64 >= u64::from(self.request.count)
    }

    /// Returns the call, or `None` if none comes of it.
    pub(super) fn call(
        mut self,
        findings: &mut Findings,
        targets: &[Target],
    ) -> Option<Transmitted> {
        let mut header = v1::header(self.xid);
        // Those that the first transmission asks for.
        let credits = self.parts.first().and_then(|it| it.message.get(8..));
        header.credits = credits.and_then(|it| Reader(it).word()).unwrap_or_default();
        let mut payload = std::mem::take(&mut self.payload);
        let mut placed = Vec::new();
        for (at, length, place) in &self.request.items {
            let (offset, numbers) = match place {
                Place::Memory(segments) => {
                    header.reads.extend(segments.iter().map(|it| (*at, *it)));
                    continue;
                }
                Place::Targets(offset, numbers) => (*offset as usize, numbers),
            };
            let numbers = numbers.iter().map(|it| *it as usize);
            let extent = (*length as usize, offset);
            insert(findings, &mut payload, (*at, *length, 0), || {
                located(&mut self.parts, targets, extent, numbers)
            })?;
            placed.push((*at, *length));
        }
        for part in &mut self.parts {
            padding(findings, part);
        }
        let call = Call::new(header.clone(), payload.clone());
        findings.look(Rule::Header, call.is_some(), || {
            "ROPT_XMTREQ with no RPC call".to_owned()
        });
        let call = call?;
        findings.look(Rule::Xid, call.xid() == self.xid, || {
            format!(
                "rdma_xid is {:#x}, and that of the RPC message {:#x}",
                self.xid,
                call.xid()
            )
        });
        eligible(findings, &call, &placed);
        Some(Transmitted {
            header,
            payload,
            request: self.request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::call::WRITE;
    use crate::wire::rpc;
    use crate::wire::v2::{CALL, XMTCONT, operation, parse};

    const TARGET: Target = Target {
        start: 1024,
        length: 4096,
    };

    /// Returns a WRITE of 6001 bytes in two transmissions, with this number of the second.
    fn transmissions(number: u32) -> [Vec<u8>; 2] {
        let payload = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, 6001)).bytes();
        let length = payload.len() as u32;
        let info = [1, length, 6001, TBSN, 0, 2, 0, 1, 0, 2, 0, length];
        let mut first = operation(7, CALL, XMTREQ, &info, &payload);
        let mut last = operation(7, CALL, XMTCONT, &[number, XMTREQ, 0], &[]);
        for (message, length) in [(&mut first, 4096), (&mut last, 6001 - 4096)] {
            message.resize(1024, 0);
            message.extend(vec![9; length]);
        }
        [first, last]
    }

    #[test]
    fn transmissions_are_joined() {
        let mut findings = Findings::default();
        let [mut first, last] = transmissions(1);
        first[8..12].copy_from_slice(&5_u32.to_be_bytes());
        let mut group = Group::begun(&mut findings, &parse(&first).unwrap(), &first, 2).unwrap();
        assert!(!group.is_complete());
        assert!(group.continued(&mut findings, &parse(&last).unwrap(), &last));
        assert!(group.is_complete());
        let call = group.call(&mut findings, &[TARGET]).unwrap();
        assert_eq!((call.payload.len() % 4, call.header.credits), (0, 5));
        for rule in [
            Rule::PlacedItem,
            Rule::PlacedLayout,
            Rule::PlacedEligible,
            Rule::PlacedPadding,
            Rule::Transmissions,
            Rule::Group,
        ] {
            assert_eq!(findings.broken(rule), None, "{rule:?}");
            assert!(findings.looked(rule), "{rule:?}");
        }
    }

    #[test]
    fn each_rule_of_a_group_is_broken_alone() {
        let mut findings = Findings::default();
        let [first, last] = transmissions(2);
        let mut group = Group::begun(&mut findings, &parse(&first).unwrap(), &first, 1).unwrap();
        assert!(findings.broken(Rule::Transmissions).is_some());
        assert!(findings.broken(Rule::Group).is_none());
        assert!(!group.continued(&mut findings, &parse(&last).unwrap(), &last));
        assert!(findings.broken(Rule::Group).is_some());
        assert!(findings.broken(Rule::PlacedLayout).is_none());
        assert!(group.call(&mut findings, &[TARGET]).is_none());
        assert!(findings.broken(Rule::PlacedLayout).is_some());
    }

    #[test]
    fn a_request_is_decoded_whole() {
        assert!(Request::decoded(&[0, 0, 1, 0, 40]).is_some());
        for wrong in [
            &[0, 0, 1, 0][..],
            &[0, 0, 1, 0, 40, 0],
            &[u32::MAX],
            &[1, 0, 0, 9],
        ] {
            assert_eq!(Request::decoded(wrong), None, "{wrong:?}");
        }
    }
}
