//! Placed sequences of calls: their order, the places of their items, and the call that they make
//! (send-placement-00, 4.1, 4.2 and 5).

use super::layout::Target;
use super::places::{Part, located, padding};
use crate::client::call::{Call, SYMLINK, WRITE};
use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::v1::{Header, Segment};
use crate::wire::wg::{self, Arrived, PREFIX, PlacedCall};

/// The header of RDMA2_CALL_PLACED_MIDDLE, bytes.
const MIDDLE: usize = PREFIX + 12;
/// The most messages of a sequence, and its most bytes, that are kept. Each call of this server's export is shorter.
const MOST_MESSAGES: usize = 64;
const MOST_BYTES: usize = 2 << 20;

/// The messages of a call that is not complete.
#[derive(Debug)]
pub(in crate::client) struct Sequence {
    pub(in crate::client) xid: u32,
    /// `rdma_messages` of the last message.
    follow: u32,
    /// `rdma_remaining` of the last message.
    remaining: u32,
    payload: Vec<u8>,
    parts: Vec<Part>,
}

impl Sequence {
    /// Begins a sequence before its first message.
    pub(in crate::client) fn new(xid: u32) -> Self {
        Self {
            xid,
            follow: 0,
            remaining: 0,
            payload: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Takes RDMA2_CALL_PLACED_MIDDLE. `left` is the number of messages for which the client had credits before it.
    /// Returns false if nothing can be made of the message, or more is said to follow than is kept.
    pub(in crate::client) fn middle(
        &mut self,
        findings: &mut Findings,
        message: &[u8],
        left: i32,
    ) -> bool {
        let mut from = Reader(message.get(PREFIX..).unwrap_or_default());
        let words = [(); 3].map(|()| from.word());
        let [Some(follow), Some(remaining), Some(length)] = words else {
            findings.look(Rule::Header, false, || {
                "RDMA2_CALL_PLACED_MIDDLE that is cut off".to_owned()
            });
            return false;
        };
        let is_aligned = length % 4 == 0;
        let payload = from.take(length as usize).filter(|_| is_aligned);
        findings.look(Rule::PlacedLayout, payload.is_some(), || {
            let rest = message.len();
            format!("rdma_payload_length is {length} in a message of {rest} bytes")
        });
        let Some(payload) = payload else {
            return false;
        };
        let here = u64::from(length) + u64::from(remaining);
        let is_first = self.parts.is_empty();
        let kept = match is_first {
            true => follow > 0,
            false => {
                follow > 0
                    && follow.checked_add(1) == Some(self.follow)
                    && here == u64::from(self.remaining)
            }
        };
        let (before, remained) = (self.follow, self.remaining);
        findings.look(Rule::PlacedSequence, kept, || match is_first {
            true => "rdma_messages is 0 in RDMA2_CALL_PLACED_MIDDLE".to_owned(),
            false => format!(
                "rdma_messages is {follow} after {before}, and {here} bytes of the Payload stream come of {remained}"
            ),
        });
        if is_first {
            let needed = i64::from(follow) + 1;
            findings.look(Rule::PlacedCredits, needed <= i64::from(left), || {
                format!("a call in {needed} messages, with credits for {left}")
            });
        }
        (self.follow, self.remaining) = (follow, remaining);
        self.payload.extend(payload);
        self.parts.push(Part::new(message, MIDDLE + payload.len()));
        let bytes: usize = self.parts.iter().map(|it| it.message.len()).sum();
        self.parts.len() < MOST_MESSAGES && bytes <= MOST_BYTES && kept
    }

    /// Takes the last message, whose header has `head` bytes with its Payload stream.
    fn last(&mut self, findings: &mut Findings, message: &[u8], head: usize, payload: &[u8]) {
        if !self.parts.is_empty() {
            let (follow, remaining, here) = (self.follow, self.remaining, payload.len());
            let kept = follow == 1 && remaining as usize == here;
            findings.look(Rule::PlacedSequence, kept, || {
                format!(
                    "RDMA2_CALL_PLACED with {here} bytes of the Payload stream, and {follow} messages with {remaining} bytes are to follow"
                )
            });
        }
        self.payload.extend(payload);
        self.parts.push(Part::new(message, head));
    }
}

/// A call that is complete.
#[derive(Debug)]
pub(in crate::client) struct Joined {
    /// `rdma_inv_handle`.
    pub(in crate::client) handle: u32,
    pub(in crate::client) header: Header,
    /// The RPC message, with the items in it.
    pub(in crate::client) payload: Vec<u8>,
}

/// Completes a call by RDMA2_CALL_PLACED, and looks at its items. Returns `None` if no call comes of it.
pub(in crate::client) fn joined(
    findings: &mut Findings,
    mut sequence: Sequence,
    message: &[u8],
    targets: &[Target],
) -> Option<Joined> {
    let Some(Arrived::Placed(placed)) = wg::parse_call(message) else {
        findings.look(Rule::Header, false, || {
            "RDMA2_CALL_PLACED that cannot be decoded".to_owned()
        });
        return None;
    };
    let handle = Reader(message.get(PREFIX..)?).word()?;
    let head = header_length(&placed).checked_add(placed.payload.len())?;
    let is_aligned = placed.payload.len() % 4 == 0;
    findings.look(Rule::PlacedLayout, is_aligned, || {
        "rdma_payload_length is no multiple of four".to_owned()
    });
    sequence.last(findings, message, head, &placed.payload);
    let mut payload = std::mem::take(&mut sequence.payload);
    let mut end = 8_u64;
    for item in &placed.items {
        let [position, length, segment, offset] = *item;
        let extent = (length as usize, offset as usize);
        let numbers = segment as usize..=usize::MAX;
        let place = (position, length, end);
        insert(findings, &mut payload, place, || {
            located(&mut sequence.parts, targets, extent, numbers)
        })?;
        end = u64::from(position) + u64::from(length).next_multiple_of(4);
    }
    for part in &mut sequence.parts {
        padding(findings, part);
    }
    let call = Call::new(placed.header.clone(), payload.clone());
    findings.look(Rule::Header, call.is_some(), || {
        "RDMA2_CALL_PLACED with no RPC call".to_owned()
    });
    let call = call?;
    findings.look(Rule::Xid, call.xid() == sequence.xid, || {
        format!(
            "rdma_xid is {:#x}, and that of the RPC message {:#x}",
            sequence.xid,
            call.xid()
        )
    });
    let items: Vec<(u32, u32)> = placed.items.iter().map(|it| (it[0], it[1])).collect();
    eligible(findings, &call, &items);
    Some(Joined {
        handle,
        header: placed.header,
        payload,
    })
}

/// Puts an item and its round-up into a Payload stream, and looks at its place: the position, the length, and the least
/// position that it may have. `data` finds its bytes. Returns `None` if no call comes of it.
pub(in crate::client) fn insert(
    findings: &mut Findings,
    payload: &mut Vec<u8>,
    (position, length, least): (u32, u32, u64),
    data: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Option<()> {
    let at = position as usize;
    let kept =
        length > 0 && position % 4 == 0 && u64::from(position) >= least && at <= payload.len();
    findings.look(Rule::PlacedItem, kept, || {
        format!("an item of {length} bytes at position {position}")
    });
    if !kept {
        return None;
    }
    let data = data();
    findings.look(Rule::PlacedLayout, data.is_ok(), || {
        data.clone().err().unwrap_or_default()
    });
    let mut data = data.ok()?;
    data.resize(data.len().next_multiple_of(4), 0);
    payload.splice(at..at, data);
    Some(())
}

/// Returns the bytes of the header of RDMA2_CALL_PLACED.
fn header_length(placed: &PlacedCall) -> usize {
    let header = &placed.header;
    let chunk = |it: &Vec<Segment>| 8 + 16 * it.len();
    let writes: usize = header.writes.iter().map(chunk).sum();
    let reply = header.reply.as_ref().map_or(4, chunk);
    PREFIX + 4 + 24 * header.reads.len() + 4 + writes + 4 + reply + 4 + 16 * placed.items.len() + 4
}

/// Looks at what is placed in a call: the positions and the lengths of its items.
pub(in crate::client) fn eligible(findings: &mut Findings, call: &Call, items: &[(u32, u32)]) {
    if items.is_empty() {
        return;
    }
    let (program, version, procedure) = call.procedure;
    let is_eligible = items.len() == 1 && (call.is(WRITE) || call.is(SYMLINK));
    findings.look(Rule::PlacedEligible, is_eligible, || {
        let count = items.len();
        format!(
            "{count} placed items in a call of program {program}, version {version}, procedure {procedure}"
        )
    });
    if let Some((at, length)) = call.data() {
        let (position, placed) = items[0];
        findings.look(Rule::PlacedItem, position as usize == at && placed == length, || {
            format!("an item of {placed} bytes at position {position}, and the data has {length} at {at}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::wg::{CALL_PLACED, CALL_PLACED_MIDDLE};
    use crate::wire::{rpc, v1};

    const TARGET: Target = Target {
        start: 1024,
        length: 4096,
    };
    /// The data of the WRITE, bytes.
    const DATA: u32 = 6001;

    /// A WRITE in two messages: the item, and the words that are changed in the last one.
    fn messages(item: [u32; 4]) -> [Vec<u8>; 2] {
        let payload = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, DATA)).bytes();
        let count = payload.len() as u32;
        let mut first = wg::message(7, CALL_PLACED_MIDDLE, &[1, 0, count], &payload);
        let fields = [&[0, 0, 0, 0, 1], &item[..], &[0]].concat();
        let mut last = wg::message(7, CALL_PLACED, &fields, &[]);
        for (message, length) in [(&mut first, 4096), (&mut last, DATA as usize - 4096)] {
            message.resize(1024, 0);
            message.extend(vec![9; length]);
        }
        [first, last]
    }

    fn position() -> u32 {
        let payload = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, DATA));
        payload.bytes().len() as u32
    }

    /// Returns the rules that these messages break, and whether a call comes of them.
    fn broken([first, last]: &[Vec<u8>; 2], left: i32) -> (Vec<Rule>, bool) {
        let mut findings = Findings::default();
        let mut sequence = Sequence::new(7);
        let goes_on = sequence.middle(&mut findings, first, left);
        let call = joined(&mut findings, sequence, last, &[TARGET]);
        if let Some(call) = &call {
            let call = Call::new(v1::header(7), call.payload.clone()).unwrap();
            assert!(call.data().is_some() && goes_on);
        }
        let rules = [
            Rule::Header,
            Rule::PlacedSequence,
            Rule::PlacedCredits,
            Rule::PlacedLayout,
            Rule::PlacedItem,
            Rule::PlacedEligible,
            Rule::PlacedPadding,
            Rule::PlacedEnd,
        ];
        let is_broken = |rule: &Rule| findings.broken(*rule).is_some();
        (
            rules.into_iter().filter(is_broken).collect(),
            call.is_some(),
        )
    }

    #[test]
    fn each_rule_of_a_sequence_is_broken_alone() {
        let right = [position(), DATA, 0, 0];
        assert_eq!(broken(&messages(right), 2), (vec![], true));
        assert_eq!(
            broken(&messages(right), 1),
            (vec![Rule::PlacedCredits], true)
        );
        let changed = |part: usize, at: usize, value: u8| {
            let mut messages = messages(right);
            messages[part][at] = value;
            // Enough credits for a message more than there are.
            broken(&messages, 3)
        };
        // The last octet of rdma_messages.
        assert_eq!(changed(0, 19, 2).0, [Rule::PlacedSequence]);
        assert_eq!(changed(1, 900, 1), (vec![Rule::PlacedPadding], true));
        let mut long = messages(right);
        long[1].push(0);
        assert_eq!(broken(&long, 2), (vec![Rule::PlacedEnd], true));
        let item = |item| broken(&messages(item), 2);
        let layout = (vec![Rule::PlacedLayout], false);
        assert_eq!(item([position(), DATA, 1, 0]), layout);
        assert_eq!(item([position(), DATA, 0, 2]), layout);
        assert_eq!(item([position(), DATA, 0, 4096]), layout);
        assert_eq!(item([position(), DATA, u32::MAX, 0]), layout);
        assert_eq!(
            item([position() + 2, DATA, 0, 0]),
            (vec![Rule::PlacedItem], false)
        );
        let shorter = item([position(), DATA - 4, 0, 0]);
        assert!(shorter.0.contains(&Rule::PlacedItem), "{shorter:?}");
    }

    #[test]
    fn without_targets_nothing_is_placed() {
        let mut findings = Findings::default();
        let [_, last] = messages([position(), DATA, 0, 0]);
        assert!(joined(&mut findings, Sequence::new(7), &last, &[]).is_none());
        assert!(findings.broken(Rule::PlacedItem).is_some());
    }
}
