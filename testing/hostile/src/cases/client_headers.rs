//! Invalid transport headers (RFC 8166, sections 4.2 and 4.5).

use super::{null, on};
use crate::End::Lives;
use crate::client::{Case, Step::*, case, success};
use crate::wire::Xdr;
use crate::wire::rpc;
use crate::wire::v1::{self, DONE, ERR_CHUNK, ERR_VERS, Header, MSG, MSGP, NOMSG};

/// The XID of the invalid header.
const XID: u32 = 0x0bad;

/// Returns a case with a message that is silently discarded.
fn discarded(name: &'static str, section: &'static str, message: Vec<u8>) -> Case {
    case(name, section, on(vec![Send(message)]), Lives)
}

/// Returns a case with a message that is answered with ERR_CHUNK.
fn err_chunk(name: &'static str, section: &'static str, message: Vec<u8>) -> Case {
    case(name, section, on(vec![Send(message), ErrChunk(XID)]), Lives)
}

fn version(name: &'static str, version: u32) -> Case {
    let header = Header {
        version,
        ..v1::header(XID)
    };
    let message = header.with(&rpc::null(XID).bytes());
    case(
        name,
        "RFC 8166, 4.5.1",
        on(vec![Send(message), ErrVers(XID, version)]),
        Lives,
    )
}

/// Encodes the four fixed fields, followed by these words.
fn words(procedure: u32, words: &[u32]) -> Vec<u8> {
    Xdr::new()
        .words(&[XID, 1, 8, procedure])
        .words(words)
        .done()
}

pub(super) fn cases() -> Vec<Case> {
    let honest = null(XID);
    let procedure = |procedure| {
        let header = Header {
            procedure,
            ..v1::header(XID)
        };
        header.with(&rpc::null(XID).bytes())
    };
    let of_version_2 = Header {
        version: 2,
        ..v1::header(XID)
    };
    vec![
        version("version 0", 0),
        version("version 2", 2),
        version("version 3", 3),
        version("version 4294967295", u32::MAX),
        case(
            "other versions in mid-stream",
            "RFC 8166, 4.5.1",
            on(vec![
                Send(null(1)),
                Hear(success(1, &[])),
                Repeat(
                    20,
                    vec![
                        Send(of_version_2.with(&[])),
                        ErrVers(XID, 2),
                        Send(null(2)),
                        Hear(success(2, &[])),
                    ],
                ),
            ]),
            Lives,
        ),
        discarded(
            "an error of version 2",
            "RFC 8166, 4.5",
            v1::error(XID, 2, &[ERR_VERS, 1, 1]),
        ),
        err_chunk("RDMA_MSGP", "RFC 8166, 4.6.1", procedure(MSGP)),
        discarded("RDMA_DONE", "RFC 8166, 4.6.2", procedure(DONE)),
        err_chunk("procedure 5", "RFC 8166, 4.5.2", procedure(5)),
        err_chunk(
            "procedure 4294967295",
            "RFC 8166, 4.5.2",
            procedure(u32::MAX),
        ),
        discarded(
            "ERR_VERS from a requester",
            "RFC 8166, 4.2.4",
            v1::error(XID, 1, &[ERR_VERS, 1, 1]),
        ),
        discarded(
            "ERR_CHUNK from a requester",
            "RFC 8166, 4.2.4",
            v1::error(XID, 1, &[ERR_CHUNK]),
        ),
        discarded(
            "an error that there is not",
            "RFC 8166, 4.5",
            v1::error(XID, 1, &[77, 0, 0]),
        ),
        discarded(
            "ERR_VERS without its versions",
            "RFC 8166, 4.5",
            v1::error(XID, 1, &[ERR_VERS]),
        ),
        discarded(
            "an error without a code",
            "RFC 8166, 4.5",
            v1::error(XID, 1, &[]),
        ),
        discarded("one byte", "RFC 8166, 4.5", honest[..1].to_vec()),
        discarded("an XID alone", "RFC 8166, 4.5", honest[..4].to_vec()),
        discarded("15 bytes", "RFC 8166, 4.5", honest[..15].to_vec()),
        discarded("16 bytes", "RFC 8166, 4.5", honest[..16].to_vec()),
        discarded("27 bytes", "RFC 8166, 4.5", honest[..27].to_vec()),
        discarded(
            "27 bytes of version 2",
            "RFC 8166, 4.5",
            of_version_2.with(&[])[..27].to_vec(),
        ),
        err_chunk("a header alone", "RFC 8166, 4.5.2", honest[..28].to_vec()),
        err_chunk(
            "a header and half an XID",
            "RFC 8166, 4.2.1",
            honest[..30].to_vec(),
        ),
        err_chunk("the XID of another call", "RFC 8166, 4.2.1", {
            v1::header(XID).with(&rpc::null(XID + 1).bytes())
        }),
        err_chunk(
            "a read list that goes on with 2",
            "RFC 8166, 4.5.2",
            words(MSG, &[2, 0, 0]),
        ),
        err_chunk(
            "a read list that goes on with 4294967295",
            "RFC 8166, 4.5.2",
            words(MSG, &[u32::MAX, 0, 0]),
        ),
        err_chunk(
            "a write list that goes on with 2",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 2, 0]),
        ),
        err_chunk(
            "a reply chunk that is there twice over",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 0, 2]),
        ),
        err_chunk(
            "a read list that ends in a segment",
            "RFC 8166, 4.5.2",
            words(MSG, &[1, 40, 0x51, 8]),
        ),
        err_chunk(
            "a read list that does not end",
            "RFC 8166, 4.5.2",
            words(MSG, &[1, 40, 0x51, 8, 0, 0]),
        ),
        err_chunk(
            "a write list that does not end",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 1, 1, 0x51, 8, 0, 0]),
        ),
        err_chunk(
            "a write chunk of 4294967295 segments",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 1, u32::MAX, 0]),
        ),
        err_chunk(
            "a write chunk of 2^28 segments",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 1, 1 << 28, 0]),
        ),
        err_chunk(
            "a write chunk of 512 segments that are not there",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 1, 512, 0]),
        ),
        err_chunk(
            "a reply chunk of 4294967295 segments",
            "RFC 8166, 4.5.2",
            words(MSG, &[0, 0, 1, u32::MAX]),
        ),
        err_chunk(
            "a reply chunk of 2^28 segments",
            "RFC 8166, 4.5.2",
            words(NOMSG, &[0, 0, 1, 1 << 28]),
        ),
        err_chunk(
            "a header of ones",
            "RFC 8166, 4.5.2",
            words(MSG, &[1; 1000]),
        ),
        err_chunk(
            "write chunks of nothing, without end",
            "RFC 8166, 4.5.2",
            words(MSG, &{
                let mut list = vec![0];
                list.extend([1, 0].repeat(400));
                list
            }),
        ),
        err_chunk("17 write chunks", "RFC 8166, 3.4.4", {
            let writes = vec![vec![super::memory(0, 4)]; 17];
            Header {
                writes,
                ..v1::header(XID)
            }
            .with(&rpc::null(XID).bytes())
        }),
        case(
            "16 empty write chunks",
            "RFC 8166, 4.3.2.3",
            on(vec![
                Send({
                    let writes = vec![Vec::new(); 16];
                    Header {
                        writes,
                        ..v1::header(1)
                    }
                    .with(&rpc::null(1).bytes())
                }),
                Hear(success(1, &[]).returning(&[&[][..]; 16])),
            ]),
            Lives,
        ),
        case(
            "random bytes in a Send, a hundred times",
            "RFC 8166, 4.5",
            on({
                (1..=100)
                    .flat_map(|n| {
                        // Headers of another version, with random content.
                        let mut bytes = crate::rig::content(n, 28 + n as usize);
                        bytes[..16].copy_from_slice(&Xdr::new().words(&[n, 0x6172, 8, 0]).done());
                        [Send(bytes), ErrVers(n, 0x6172)]
                    })
                    .collect()
            }),
            Lives,
        ),
        case(
            "a call behind each kind of error",
            "RFC 8166, 4.5",
            on(vec![
                Send(honest[..27].to_vec()),
                Send(procedure(DONE)),
                Send(procedure(MSGP)),
                ErrChunk(XID),
                Send(of_version_2.with(&[])),
                ErrVers(XID, 2),
                Send(null(3)),
                Hear(success(3, &[])),
            ]),
            Lives,
        ),
    ]
}
