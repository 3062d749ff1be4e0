//! Messages of version-two-07 that a client discards, refuses or answers (sections 4.6, 6 and 7).

use crate::client::case::StrayWg;
use crate::wire::wg::{self, CALL_INLINE, REPLY_EXTERNAL, REPLY_INLINE};
use crate::wire::{rpc, v1};

/// SYSTEM_ERR: a client that takes the reply fails.
const SYSTEM_ERR: u32 = 5;
/// Bits of an XID that make it one that no call has.
const OTHER: u32 = 0x5a5a_0000;
/// The XID of the server's call.
const BACKWARD: u32 = 0x0bad_0bad;
/// A header type that there is not.
const NO_TYPE: u32 = 99;

/// Returns the message that is sent while the call with this XID waits for its reply. Its credits are set when it is
/// sent.
pub(in crate::client) fn message(stray: StrayWg, xid: u32) -> Vec<u8> {
    let other = xid ^ OTHER;
    let reply = |xid| wg::reply(xid, &rpc::accepted(xid, SYSTEM_ERR, &[]));
    match stray {
        StrayWg::UnknownXid => reply(other),
        StrayWg::NoReplyChunk => {
            // No Write chunk, and a Reply chunk of one segment.
            let fields = [0, 1, 1, 0x5151_5151, 64, 0, 0];
            wg::message(other, REPLY_EXTERNAL, &fields, &[])
        }
        StrayWg::CutList => {
            let rest = rpc::accepted(other, SYSTEM_ERR, &[]);
            wg::message(other, REPLY_INLINE, &[1, u32::MAX], &rest)
        }
        StrayWg::Short => reply(xid)[..15].to_vec(),
        StrayWg::OtherVersion => v1::header(xid).with(&rpc::accepted(xid, SYSTEM_ERR, &[])),
        StrayWg::OtherType => {
            let rest = rpc::accepted(xid, SYSTEM_ERR, &[]);
            wg::message(xid, NO_TYPE, &[0], &rest)
        }
        StrayWg::UnknownError => wg::error(other, &[wg::ERR_BAD_XDR]),
        StrayWg::UnknownCode => wg::error(xid, &[NO_TYPE]),
        StrayWg::GrantWithXid => wg::message(xid, wg::GRANT, &[], &[]),
        StrayWg::Properties => wg::introduction(&wg::plain_properties()),
        StrayWg::Call => {
            let call = rpc::null(BACKWARD).bytes();
            wg::message(BACKWARD, CALL_INLINE, &[0, 0, 0, 0], &call)
        }
    }
}

/// Returns the XID and the codes of the error with which a client must answer, if it must.
pub(in crate::client) fn report(stray: StrayWg, xid: u32) -> Option<(u32, &'static [u32])> {
    match stray {
        StrayWg::OtherType => Some((xid, &[wg::ERR_INVAL_HTYPE])),
        StrayWg::Properties => Some((wg::INTRODUCTION, &[wg::ERR_INVAL_CONT])),
        _ => None,
    }
}
