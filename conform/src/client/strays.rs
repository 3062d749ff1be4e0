//! Messages of the server that a client discards, refuses or answers (RFC 8166, 4.5 and 4.6; RFC 8167).

use super::call::Call;
use super::case::Stray;
use crate::wire::rpc;
use crate::wire::v1::{self, Header, Segment, segment};

/// SYSTEM_ERR: a client that takes the reply fails.
const SYSTEM_ERR: u32 = 5;
/// Bits of an XID that make it one that no call has.
const OTHER: u32 = 0x5a5a_0000;
/// The XID of the server's call.
const BACKWARD: u32 = 0x0bad_0bad;

/// Returns the message that is sent while this call waits for its reply. Returns `None` if the call leaves no room for
/// what is wrong with the message.
pub(super) fn message(stray: Stray, call: &Call, credits: u32) -> Option<Vec<u8>> {
    let xid = call.xid();
    let plain = Header {
        credits,
        ..v1::header(xid)
    };
    // Replies to the call return its chunks (RFC 8166, 4.3.2.2 and 4.3.3), so that nothing else is wrong with them.
    let unused = |chunk: &Vec<Segment>| -> Vec<Segment> {
        let empty = chunk.iter().map(|it| Segment { length: 0, ..*it });
        empty.collect()
    };
    let returning = Header {
        writes: call.header.writes.iter().map(unused).collect(),
        reply: call.header.reply.as_ref().map(unused),
        ..plain.clone()
    };
    let reply = |header: Header| header.with(&rpc::accepted(header.xid, SYSTEM_ERR, &[]));
    Some(match stray {
        Stray::UnknownXid => reply(Header {
            xid: xid ^ OTHER,
            ..plain
        }),
        Stray::Short => reply(plain)[..24].to_vec(),
        Stray::OtherVersion => reply(Header {
            version: 2,
            ..returning
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
            ..returning
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
        Stray::NoReplyChunk if call.header.reply.is_some() => return None,
        Stray::NoReplyChunk => Header {
            procedure: v1::NOMSG,
            reply: Some(vec![segment(0x5151_5151, 64, 0)]),
            ..returning
        }
        .with(&[]),
        Stray::Call => Header {
            xid: BACKWARD,
            ..plain
        }
        .with(&rpc::null(BACKWARD).bytes()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::call::READ;
    use crate::wire::v1::{Message, parse};

    #[test]
    fn one_thing_alone_is_wrong_with_a_reply() {
        let chunk = vec![segment(1, 4096, 0)];
        let call = |reply| {
            let header = Header {
                writes: vec![chunk.clone()],
                reply,
                ..v1::header(7)
            };
            let read = rpc::nfs(7, READ, rpc::read_args(&[1; 8], 0, 4096));
            Call::new(header, read.bytes()).unwrap()
        };
        let returned = vec![vec![segment(1, 0, 0)]];
        for stray in [
            Stray::OtherVersion,
            Stray::OtherProcedure,
            Stray::NoReplyChunk,
        ] {
            let mut message = message(stray, &call(None), 8).unwrap();
            if stray == Stray::OtherProcedure {
                message[12..16].fill(0);
            }
            let Some(Message::Rpc(header, _)) = parse(&message) else {
                panic!("{stray:?}");
            };
            assert_eq!(header.writes, returned, "{stray:?}");
        }
        let offers = call(Some(chunk.clone()));
        assert_eq!(message(Stray::NoReplyChunk, &offers, 8), None);
        assert!(message(Stray::OtherVersion, &offers, 8).is_some());
    }
}
