//! Messages of version-two-01 and its extensions that a client discards, refuses or answers, and its answers.

use crate::client::case::StrayTwo;
use crate::wire::v2::{
    self, CALL, ERR_BAD_HEADER, ERR_INVAL_OPTION, INITXCH, REPLY, REQXCH, RESPXCH, UPDXCH, XMTCONT,
    XMTERR,
};
use crate::wire::{Reader, v1};

/// The XID of messages that belong to no call.
const XID: u32 = 0x0bad_0bad;
/// The codes of answers that are operations: an operation, or ROPT_XMTERR with its error.
const OPERATION: u32 = 0x100;
const REPORT: u32 = 0x200;
/// OPTXERR_BADCONT.
const BADCONT: u32 = 3;

/// An answer that must come: the XID, the codes that it may have, and its description.
type Expected = (u32, &'static [u32], &'static str);

/// Returns a message that comes before the reply to a call, and the answer to it that must come, if one must.
pub(in crate::client) fn message(stray: StrayTwo) -> (Vec<u8>, Option<Expected>) {
    let operation =
        |direction, opttype, info: &[u32]| v2::operation(XID, direction, opttype, info, &[]);
    let bad: Expected = (XID, &[ERR_BAD_HEADER], "RDMA2_ERROR with BAD_HEADER");
    let unknown: Expected = (XID, &[ERR_INVAL_OPTION], "RDMA2_ERROR with INVAL_OPTION");
    match stray {
        StrayTwo::Again => (operation(CALL, INITXCH, &[0, 0]), None),
        StrayTwo::UnknownUpdate => (operation(CALL, UPDXCH, &[99, 4, 9, 0]), None),
        StrayTwo::BadUpdate => (operation(CALL, UPDXCH, &[2, 4, 9, 0]), Some(bad)),
        StrayTwo::Response => (operation(REPLY, RESPXCH, &[0, 1, 1, 0]), None),
        StrayTwo::Request => (
            operation(CALL, REQXCH, &[2, 99, 0, 0xffff_ff00, 0]),
            Some((
                XID,
                &[OPERATION | RESPXCH, ERR_INVAL_OPTION],
                "ROPT_RESPXCH, or RDMA2_ERROR with INVAL_OPTION",
            )),
        ),
        StrayTwo::UnknownOperation => (operation(CALL, 99, &[1, 2, 3]), Some(unknown)),
        StrayTwo::Continuation => (
            operation(REPLY, XMTCONT, &[1, 6, 0]),
            Some((
                XID,
                &[REPORT | BADCONT, ERR_INVAL_OPTION],
                "ROPT_XMTERR with BADCONT, or RDMA2_ERROR with INVAL_OPTION",
            )),
        ),
        StrayTwo::Report => (operation(REPLY, XMTERR, &[XID, CALL, 0, 0, 3]), None),
    }
}

/// Returns the XID and the code of a message that answers one of this server: the number of RDMA2_ERROR, or one of
/// ROPT_RESPXCH or of ROPT_XMTERR.
pub(in crate::client) fn answered(message: &[u8]) -> Option<(u32, u32)> {
    if let Some(operation) = v2::parse(message) {
        let code = match operation.opttype {
            RESPXCH => OPERATION | RESPXCH,
            XMTERR => {
                // The number of words of `optxe_lead` depends on whether it is there.
                let [_, _, _, has_lead, rest @ ..] = &operation.info[..] else {
                    return None;
                };
                let at = if *has_lead == 0 { 0 } else { 3 };
                REPORT | rest.get(at)?
            }
            _ => return None,
        };
        return Some((operation.xid, code));
    }
    let mut from = Reader(message);
    let (xid, version) = (from.word()?, from.word()?);
    let (_, procedure) = (from.word()?, from.word()?);
    let is_error = version == v2::VERSION && procedure == v1::ERROR;
    is_error
        .then(|| from.word())
        .flatten()
        .map(|code| (xid, code))
}

/// Returns RDMA2_ERROR with INVAL_OPTION about the message with this XID.
pub(in crate::client) fn refusal(xid: u32) -> Vec<u8> {
    v2::bytes(&v2::invalid_option(xid))
}

/// Returns ROPT_XMTERR about the call with this XID: an item in a target that there is not.
pub(in crate::client) fn report(xid: u32) -> Vec<u8> {
    const BADTBSN: u32 = 7;
    let info = [xid, CALL, 0, 0, BADTBSN, 9, 0, 0];
    v2::operation(xid, REPLY, XMTERR, &info, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_codes() {
        let words = |words: &[u32]| answered(&v2::bytes(words));
        assert_eq!(words(&v2::bad_header(7)), Some((7, ERR_BAD_HEADER)));
        assert_eq!(words(&v2::invalid_option(7)), Some((7, ERR_INVAL_OPTION)));
        let response = v2::operation(7, REPLY, RESPXCH, &[0, 0, 0], &[]);
        assert_eq!(answered(&response), Some((7, OPERATION | RESPXCH)));
        let alone = v2::report(7, REPLY, &[7, REPLY, 1, 0, 3]);
        assert_eq!(words(&alone), Some((7, REPORT | BADCONT)));
        let lead = v2::report(7, REPLY, &[7, REPLY, 1, 1, 7, REPLY, 0, 3]);
        assert_eq!(words(&lead), Some((7, REPORT | BADCONT)));
        assert_eq!(words(&v2::report(7, REPLY, &[7, REPLY, 1])), None);
        assert_eq!(answered(&message(StrayTwo::Again).0), None);
    }
}
