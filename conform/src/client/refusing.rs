//! Calls in a form that this server refuses: with placed items in version-two-07, by ROPT_XMTREQ in version-two-01.

use super::rules::{Findings, Rule};

/// The first call in a form that is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// The number of its connection.
    pub(super) connection: usize,
    xid: u32,
    /// Whether it has come again, in whatever form: what comes behind that was sent when the client had the error.
    is_known: bool,
}

impl Refused {
    /// Returns the state when the call is refused.
    pub(super) fn new(connection: usize, xid: u32) -> Self {
        Self {
            connection,
            xid,
            is_known: false,
        }
    }

    /// Looks at another call on the same connection. `all` says that the error is about all calls in the form, and not
    /// about the first alone. Others may have been on the way when the error was sent.
    pub(super) fn look(&mut self, findings: &mut Findings, xid: u32, has_form: bool, all: bool) {
        let is_same = xid == self.xid;
        self.is_known |= is_same;
        if !has_form {
            return;
        }
        let is_again = is_same || all && self.is_known;
        let first = self.xid;
        findings.look(Rule::PlacedRefused, !is_again, || {
            format!("a call with XID {xid:#x} in the form that was refused for the one with XID {first:#x}")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether these calls, with an XID and whether they have the form, break the rule behind call 7.
    fn is_broken(all: bool, calls: &[(u32, bool)]) -> bool {
        let mut findings = Findings::default();
        let mut refused = Refused::new(0, 7);
        for (xid, has_form) in calls {
            refused.look(&mut findings, *xid, *has_form, all);
        }
        findings.broken(Rule::PlacedRefused).is_some()
    }

    #[test]
    fn calls_that_were_on_the_way_are_none_that_come_again() {
        assert!(!is_broken(true, &[(8, true), (9, true), (7, false)]));
        assert!(is_broken(true, &[(8, true), (7, false), (9, true)]));
        assert!(is_broken(true, &[(7, true)]));
        assert!(!is_broken(false, &[(8, true), (7, false), (9, true)]));
        assert!(is_broken(false, &[(8, true), (7, true)]));
    }
}
