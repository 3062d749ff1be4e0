//! First messages of another version than the server's, and messages of version-two-01 in the form of version 1.

use super::rules::{Findings, Rule};
use crate::dialect::Dialect;
use crate::wire::v2::{self, ERR_BAD_HEADER, ERR_INVAL_OPTION, INITXCH};
use crate::wire::{Reader, v1, wg};

/// The XID of the server's characteristics (xcharext-02).
pub(super) const INTRODUCTION: u32 = 0x0f00_0001;

/// Returns the answer of a server of `own`, a version 2, to a first message of `other`.
pub(super) fn refusal(own: Dialect, other: Dialect, message: &[u8]) -> Vec<u8> {
    let xid = Reader(message).word().unwrap_or_default();
    let version = own.version();
    match (own, other) {
        // The two versions 2 have the same number. Only the header type is unknown.
        (Dialect::Two, Dialect::Wg) => error_of_2016(xid, ERR_BAD_HEADER),
        (Dialect::Wg, Dialect::Two) => wg::error(xid, &[wg::ERR_INVAL_HTYPE]),
        _ => v1::error(xid, other.version(), &[v1::ERR_VERS, version, version]),
    }
}

fn error_of_2016(xid: u32, code: u32) -> Vec<u8> {
    v2::bytes(&[xid, v2::VERSION, v2::CREDITS, v1::ERROR, code])
}

/// A message of version-two-01.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// A call, in the form of version 1.
    Call(Vec<u8>),
    /// The client's characteristics, which this message answers, if nothing has yet.
    ByCharacteristics(Vec<u8>),
    /// A message that this one answers.
    By(Vec<u8>),
    /// A message that nothing answers.
    Nothing,
}

/// Looks at the version and the kind of a message of a client of version-two-01.
pub(super) fn of_2016(findings: &mut Findings, message: &[u8]) -> Answered {
    let mut from = Reader(message);
    let (Some(xid), Some(version)) = (from.word(), from.word()) else {
        let text = || format!("a message of {} bytes", message.len());
        findings.look(Rule::Header, false, text);
        return Answered::Nothing;
    };
    findings.look(Rule::Version, version == v2::VERSION, || {
        format!("rdma_vers is {version} in a message with XID {xid:#x}")
    });
    if version != v2::VERSION {
        let words = [v1::ERR_VERS, v2::VERSION, v2::VERSION];
        return Answered::By(v1::error(xid, version, &words));
    }
    if let Some(operation) = v2::parse(message) {
        return match operation.opttype {
            // This server has no characteristics to tell.
            INITXCH => {
                let answer = v2::operation(INTRODUCTION, v2::CALL, INITXCH, &[0, 0], &[]);
                Answered::ByCharacteristics(answer)
            }
            v2::RESPXCH | v2::UPDXCH => Answered::Nothing,
            _ => Answered::By(error_of_2016(xid, ERR_INVAL_OPTION)),
        };
    }
    match v2::to_first(message, v2::CALL) {
        Some(first) => Answered::Call(first),
        // A reply to a call of this server, which makes none that matter.
        None if v2::to_first(message, v2::REPLY).is_some() => Answered::Nothing,
        None => {
            findings.look(Rule::Header, false, || {
                format!(
                    "a message of {} bytes with XID {xid:#x} that cannot be parsed",
                    message.len()
                )
            });
            Answered::By(error_of_2016(xid, ERR_BAD_HEADER))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;

    #[test]
    fn calls_of_2016_are_calls_of_version_1_but_for_their_direction() {
        let mut findings = Findings::default();
        let null = rpc::null(7).bytes();
        let mut taken = |message: &[u8]| of_2016(&mut findings, message);
        let call = v1::header(7).with(&null);
        assert_eq!(
            taken(&v2::plain(7, v2::CALL, &null)),
            Answered::Call(call.clone())
        );
        assert_eq!(taken(&v2::plain(7, v2::REPLY, &null)), Answered::Nothing);
        let exchange = v2::operation(7, v2::CALL, INITXCH, &v2::everything(), &[]);
        assert!(matches!(taken(&exchange), Answered::ByCharacteristics(_)));
        let option = v2::operation(7, v2::CALL, v2::XMTREQ, &[0], &[]);
        assert_eq!(
            taken(&option),
            Answered::By(error_of_2016(7, ERR_INVAL_OPTION))
        );
        let refused = v1::error(7, 1, &[v1::ERR_VERS, 2, 2]);
        assert_eq!(taken(&call), Answered::By(refused));
        assert!(findings.broken(Rule::Version).is_some());
        assert!(findings.broken(Rule::Header).is_none());
    }

    #[test]
    fn a_server_of_a_version_2_says_so_to_others() {
        let call = v1::header(7).with(&rpc::null(7).bytes());
        for own in [Dialect::Two, Dialect::Wg] {
            let refused = v1::error(7, 1, &[v1::ERR_VERS, 2, 2]);
            assert_eq!(refusal(own, Dialect::One, &call), refused);
        }
        let unknown = wg::error(7, &[wg::ERR_INVAL_HTYPE]);
        assert_eq!(refusal(Dialect::Wg, Dialect::Two, &call), unknown);
    }
}
