//! Messages of the server that a client discards, refuses or answers (RFC 8166, 4.5 and 4.6; RFC 8167).

use super::case::Stray;
use crate::wire::rpc;
use crate::wire::v1::{self, Header, segment};

/// SYSTEM_ERR: a client that takes the reply fails.
const SYSTEM_ERR: u32 = 5;
/// Bits of an XID that make it one that no call has.
const OTHER: u32 = 0x5a5a_0000;
/// The XID of the server's call.
const BACKWARD: u32 = 0x0bad_0bad;

/// Returns the message that is sent while the call with this XID waits for its reply.
pub(super) fn message(stray: Stray, xid: u32, credits: u32) -> Vec<u8> {
    let plain = Header {
        credits,
        ..v1::header(xid)
    };
    let reply = |header: Header| header.with(&rpc::accepted(header.xid, SYSTEM_ERR, &[]));
    match stray {
        Stray::UnknownXid => reply(Header {
            xid: xid ^ OTHER,
            ..plain
        }),
        Stray::Short => reply(plain)[..24].to_vec(),
        Stray::OtherVersion => reply(Header {
            version: 2,
            ..plain
        }),
        Stray::Msgp => {
            // The alignment and the threshold that such messages had follow the fixed fields.
            let mut message = reply(Header {
                procedure: v1::MSGP,
                ..plain
            });
            message.splice(16..16, [0; 8]);
            message
        }
        Stray::Done => Header {
            procedure: v1::DONE,
            ..plain
        }
        .with(&[]),
        Stray::OtherProcedure => reply(Header {
            procedure: 99,
            ..plain
        }),
        Stray::CutList => {
            let mut message = reply(Header {
                writes: vec![vec![]],
                ..plain
            });
            // The number of segments of the Write chunk.
            message[24..28].fill(0xff);
            message
        }
        Stray::UnknownError => v1::error(xid ^ OTHER, 1, &[v1::ERR_CHUNK]),
        Stray::NoReplyChunk => Header {
            procedure: v1::NOMSG,
            reply: Some(vec![segment(0x5151_5151, 64, 0)]),
            ..plain
        }
        .with(&[]),
        Stray::Call => Header {
            xid: BACKWARD,
            ..plain
        }
        .with(&rpc::null(BACKWARD).bytes()),
    }
}
