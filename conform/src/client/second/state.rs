//! The state of one connection of version-two-01 with extensions.

use super::characteristics::Characteristics;
use super::group::{Group, Transmitted};
use super::strays::answered;
use crate::client::placed::Target;
use crate::client::rules::{Findings, Rule};
use crate::wire::v2::{self, INITXCH, Operation, XMTCONT, XMTREQ};

/// The consequence of a message.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum Came {
    /// Nothing yet: others follow.
    Nothing,
    /// A call.
    Call(Transmitted),
    /// An answer to a message of this server, with its XID and its code, as [`answered`] has it.
    Answer(u32, u32),
    /// No way to go on.
    Unusable,
    /// Something that this end takes without extensions.
    Plain,
}

/// The state.
#[derive(Debug)]
pub(in crate::client) struct Second {
    /// The messages that have come.
    messages: u64,
    client: Characteristics,
    own: Characteristics,
    group: Option<Group>,
}

impl Second {
    /// Returns the state before any message.
    pub(in crate::client) fn new() -> Self {
        Self {
            messages: 0,
            client: Characteristics::nothing(),
            own: Characteristics::nothing(),
            group: None,
        }
    }

    /// Takes the characteristics of this end, in words of ROPT_INITXCH. Returns the size of its receives, bytes.
    pub(in crate::client) fn tell(&mut self, info: &[u32]) -> usize {
        self.own.take(&mut Findings::default(), info);
        usize::try_from(self.own.receive).unwrap_or(usize::MAX)
    }

    /// Returns the size of the client's receives, bytes.
    pub(in crate::client) fn client_receive(&self) -> usize {
        usize::try_from(self.client.receive).unwrap_or(usize::MAX)
    }

    /// Returns the targets of the client's receives.
    pub(in crate::client) fn client_targets(&self) -> Vec<Target> {
        self.client.targets()
    }

    /// Looks at a message, and takes it if it belongs to an extension that this end has told.
    pub(in crate::client) fn take(&mut self, findings: &mut Findings, message: &[u8]) -> Came {
        self.messages += 1;
        let operation = v2::parse(message);
        if let Some(group) = &self.group {
            let kept = operation.as_ref().is_some_and(|it| it.opttype == XMTCONT);
            let first = group.xid;
            findings.look(Rule::Group, kept, || {
                format!("another message between the transmissions of call {first:#x}")
            });
            if !kept {
                self.group = None;
            }
        }
        // Errors and reports break a group off as well (`drafts/errata.md`).
        if let Some((xid, code)) = answered(message) {
            return Came::Answer(xid, code);
        }
        let Some(operation) = operation else {
            self.concerns(findings, true);
            if self.own.takes_requests() {
                findings.look(Rule::Transmissions, true, String::new);
            }
            return Came::Plain;
        };
        match operation.opttype {
            INITXCH => {
                let number = self.messages;
                findings.look(Rule::InitialOnce, number == 1, || {
                    format!("ROPT_INITXCH as message {number} of the connection")
                });
                findings.look(Rule::FirstLength, message.len() <= 1024, || {
                    format!("ROPT_INITXCH of {} bytes", message.len())
                });
                self.client.take(findings, &operation.info);
                Came::Plain
            }
            XMTREQ | XMTCONT => {
                self.concerns(findings, false);
                match self.own.takes_requests() {
                    true => self.transmission(findings, &operation, message),
                    false => Came::Plain,
                }
            }
            _ => Came::Plain,
        }
    }

    /// Looks whether a call comes by operations of which this end has not told that it takes them.
    fn concerns(&self, findings: &mut Findings, is_plain: bool) {
        let is_open = self.own.takes_requests();
        if !is_plain || self.client.knows_transmissions() && !is_open {
            findings.look(Rule::Unsupported, is_plain || is_open, || {
                "an operation of rtrext-00, which this server does not take".to_owned()
            });
        }
    }

    fn transmission(
        &mut self,
        findings: &mut Findings,
        operation: &Operation,
        message: &[u8],
    ) -> Came {
        let (length, most) = (message.len(), self.own.receive);
        findings.look(Rule::Threshold, length as u64 <= u64::from(most), || {
            format!("a message of {length} bytes, and receives of {most}")
        });
        let group = match (self.group.take(), operation.opttype) {
            (None, XMTREQ) => Group::begun(findings, operation, message, self.own.most),
            (Some(mut group), XMTCONT) => group
                .continued(findings, operation, message)
                .then_some(group),
            _ => {
                findings.look(Rule::Group, false, || {
                    "ROPT_XMTCONT without ROPT_XMTREQ".to_owned()
                });
                None
            }
        };
        let Some(group) = group else {
            return Came::Unusable;
        };
        if !group.is_complete() {
            self.group = Some(group);
            return Came::Nothing;
        }
        let call = group.call(findings, &self.own.targets());
        call.map_or(Came::Unusable, Came::Call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;
    use crate::wire::v2::{CALL, everything, operation, plain};

    fn request() -> Vec<u8> {
        let payload = rpc::null(7).bytes();
        let info = [0, 0, 1, 0, payload.len() as u32];
        operation(7, CALL, XMTREQ, &info, &payload)
    }

    #[test]
    fn requests_are_taken_where_this_end_has_told_so() {
        let (mut second, mut findings) = (Second::new(), Findings::default());
        let first = operation(1, CALL, INITXCH, &everything(), &[]);
        assert_eq!(second.take(&mut findings, &first), Came::Plain);
        let call = plain(7, CALL, &rpc::null(7).bytes());
        assert_eq!(second.take(&mut findings, &call), Came::Plain);
        assert!(findings.looked(Rule::Unsupported));
        assert_eq!(findings.broken(Rule::Unsupported), None);
        assert_eq!(second.take(&mut findings, &request()), Came::Plain);
        assert!(findings.broken(Rule::Unsupported).is_some());
        let mut findings = Findings::default();
        assert_eq!(second.tell(&everything()), 66_560);
        let came = second.take(&mut findings, &request());
        assert!(matches!(came, Came::Call(it) if it.payload == rpc::null(7).bytes()));
        assert_eq!(findings.broken(Rule::Unsupported), None);
        assert_eq!(second.take(&mut findings, &first), Came::Plain);
        assert!(findings.broken(Rule::InitialOnce).is_some());
    }

    #[test]
    fn nothing_stands_between_transmissions() {
        let (mut second, mut findings) = (Second::new(), Findings::default());
        second.tell(&everything());
        let payload = rpc::null(7).bytes();
        let info = [0, 0, 2, 0, 20];
        let first = operation(7, CALL, XMTREQ, &info, &payload[..20]);
        let last = operation(7, CALL, XMTCONT, &[1, XMTREQ, 20], &payload[20..]);
        assert_eq!(second.take(&mut findings, &first), Came::Nothing);
        assert!(matches!(second.take(&mut findings, &last), Came::Call(_)));
        assert_eq!(findings.broken(Rule::Group), None);
        let error = v2::bytes(&v2::invalid_option(8));
        let others = [
            (plain(8, CALL, &payload), Came::Plain),
            (error, Came::Answer(8, v2::ERR_INVAL_OPTION)),
        ];
        for (other, came) in others {
            let mut findings = Findings::default();
            assert_eq!(second.take(&mut findings, &first), Came::Nothing);
            assert_eq!(second.take(&mut findings, &other), came);
            assert!(findings.broken(Rule::Group).is_some(), "{came:?}");
        }
    }
}
