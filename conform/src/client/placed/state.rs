//! Placement on one connection: what both ends have announced, and the placed call that is not complete.

use super::calls::{Joined, Sequence, joined};
use super::layout::Target;
use super::told::Told;
use crate::client::rules::{Findings, Rule};
use crate::wire::wg::{CALL_PLACED, CALL_PLACED_MIDDLE, ERR_BAD_XDR, ERR_INVAL_HTYPE};

/// The consequence of a message of a placed call.
#[derive(Debug)]
pub(in crate::client) enum Came {
    /// Nothing yet: others follow.
    Nothing,
    /// A call.
    Call(Joined),
    /// An error with this code.
    Refused(u32),
    /// No way to go on.
    Unusable,
}

/// The state of one connection.
#[derive(Debug)]
pub(in crate::client) struct Placement {
    client: Told,
    own: Told,
    sequence: Option<Sequence>,
    /// The last credit limit of the client.
    limit: Option<u32>,
}

/// Returns whether a header type is one of placed calls.
fn is_placed(htype: u32) -> bool {
    matches!(htype, CALL_PLACED_MIDDLE | CALL_PLACED)
}

impl Placement {
    /// Returns the state before any property.
    pub(in crate::client) fn new() -> Self {
        Self {
            client: Told::nothing(),
            own: Told::nothing(),
            sequence: None,
            limit: None,
        }
    }

    /// Takes properties of this end.
    pub(in crate::client) fn announce(&mut self, properties: &[(u32, Vec<u8>)]) {
        self.own.take(properties);
    }

    /// Takes properties of the client, and looks at all of them when they are the last.
    pub(in crate::client) fn properties(
        &mut self,
        findings: &mut Findings,
        properties: &[(u32, Vec<u8>)],
        are_last: bool,
    ) {
        self.client.take(properties);
        if are_last {
            self.client.looked_at(findings);
        }
    }

    /// Looks at the credit limit of a client that has announced a structure (send-placement-00, 5.4).
    pub(in crate::client) fn credit_limit(&mut self, findings: &mut Findings, credit: u32) {
        let before = self.limit.replace(credit);
        if let Some(before) = before.filter(|_| self.client.has_structure()) {
            let is_lower = credit.wrapping_sub(before).cast_signed() < 0;
            findings.look(Rule::NoLowerLimit, !is_lower, || {
                format!("rdma_credit is {credit} after {before}")
            });
        }
    }

    /// Looks whether a call has a header type that this end takes. Returns whether it has, and is a placed one.
    pub(in crate::client) fn takes(&self, findings: &mut Findings, htype: u32) -> bool {
        let is_open = self.own.takes_calls(&self.client);
        let is_placed = is_placed(htype);
        let concerns = self.own.has_placement() || self.client.has_placement();
        if is_placed || concerns && !is_open {
            findings.look(Rule::Placeable, is_open || !is_placed, || {
                format!("header type {htype:#x}, and this server takes no placed calls")
            });
        }
        is_open && is_placed
    }

    /// Looks whether a message may stand in the middle of a placed call, if one has begun.
    pub(in crate::client) fn is_next(
        &self,
        findings: &mut Findings,
        xid: u32,
        htype: u32,
    ) -> Option<bool> {
        let first = self.sequence.as_ref()?.xid;
        let kept = first == xid && is_placed(htype);
        findings.look(Rule::PlacedSequence, kept, || {
            format!(
                "header type {htype:#x} with XID {xid:#x} between the messages of call {first:#x}"
            )
        });
        Some(kept)
    }

    /// Takes a message of a placed call. `left` is the number of messages for which the client had credits before it.
    pub(in crate::client) fn message(
        &mut self,
        findings: &mut Findings,
        (xid, htype): (u32, u32),
        message: &[u8],
        left: i32,
    ) -> Came {
        if !self.own.takes_calls(&self.client) {
            return Came::Refused(ERR_INVAL_HTYPE);
        }
        let (length, most) = (message.len(), self.client.longest_sent());
        findings.look(Rule::SendSize, length <= most, || {
            format!("a message of {length} bytes, and a Maximum Send Size of {most}")
        });
        let sequence = self.sequence.take();
        let mut sequence = sequence.unwrap_or_else(|| Sequence::new(xid));
        if htype == CALL_PLACED_MIDDLE {
            if !sequence.middle(findings, message, left) {
                return Came::Unusable;
            }
            self.sequence = Some(sequence);
            return Came::Nothing;
        }
        let targets = self.own.targets(&self.client);
        joined(findings, sequence, message, &targets).map_or(Came::Refused(ERR_BAD_XDR), Came::Call)
    }

    /// Returns the targets for a reply with placed data of this length, if the client wants it placed.
    pub(in crate::client) fn reply_targets(&self, length: usize) -> Vec<Target> {
        match self.client.wants_placed(length) {
            true => self.client.targets(&self.own),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;
    use crate::wire::wg::{
        CALL_INLINE, REPLY_PLACED, SMALLEST_RESULT, introduction, message, parse_properties,
        placing_properties,
    };

    #[test]
    fn placed_calls_are_taken_as_announced() {
        let properties = parse_properties(&introduction(&placing_properties())).unwrap();
        let (mut placement, mut findings) = (Placement::new(), Findings::default());
        let payload = rpc::null(7).bytes();
        let fields = [0, 0, 0, 0, 0, payload.len() as u32];
        let call = message(7, CALL_PLACED, &fields, &payload);
        assert!(!placement.takes(&mut findings, CALL_PLACED));
        assert!(findings.broken(Rule::Placeable).is_some());
        let mut findings = Findings::default();
        placement.announce(&properties);
        placement.properties(&mut findings, &properties, true);
        assert!(placement.takes(&mut findings, CALL_PLACED));
        assert!(!placement.takes(&mut findings, CALL_INLINE));
        let came = placement.message(&mut findings, (7, CALL_PLACED), &call, 1);
        assert!(matches!(came, Came::Call(it) if it.payload == payload));
        assert_eq!(placement.reply_targets(1024).len(), 1);
        assert_eq!(placement.reply_targets(8).len(), 0);
        let first = message(8, CALL_PLACED_MIDDLE, &[1, 0, 4], &[0; 4]);
        placement.message(&mut findings, (8, CALL_PLACED_MIDDLE), &first, 2);
        assert_eq!(placement.is_next(&mut findings, 8, CALL_PLACED), Some(true));
        assert_eq!(findings.broken(Rule::PlacedSequence), None);
        let other = placement.is_next(&mut findings, 8, REPLY_PLACED);
        assert_eq!(other, Some(false));
        assert!(findings.broken(Rule::PlacedSequence).is_some());
    }

    #[test]
    fn a_limit_of_a_client_with_a_structure_is_not_lowered() {
        let (mut placement, mut findings) = (Placement::new(), Findings::default());
        placement.credit_limit(&mut findings, 9);
        placement.credit_limit(&mut findings, 8);
        let none = [(SMALLEST_RESULT, u32::MAX.to_be_bytes().to_vec())];
        placement.properties(&mut findings, &none, false);
        placement.credit_limit(&mut findings, 7);
        assert!(!findings.looked(Rule::NoLowerLimit));
        let properties = parse_properties(&introduction(&placing_properties())).unwrap();
        placement.properties(&mut findings, &properties, true);
        placement.credit_limit(&mut findings, 8);
        assert_eq!(findings.broken(Rule::NoLowerLimit), None);
        placement.credit_limit(&mut findings, 7);
        assert!(findings.broken(Rule::NoLowerLimit).is_some());
    }
}
