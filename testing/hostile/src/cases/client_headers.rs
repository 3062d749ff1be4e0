//! Invalid transport headers (RFC 8166, sections 4.2 and 4.5): those of `rpcrdma conform`, and those that
//! depend on this server's limits and versions.

use super::judged::judged;
use super::{null, on};
use crate::End::Lives;
use crate::client::{Case, Step::*, case, success};
use crate::wire::Xdr;
use crate::wire::rpc;
use crate::wire::v1::{self, DONE, Header, MSGP};

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
    let mut cases = judged(rpcrdma_conform::cases::headers);
    cases.extend([
        version("version 2", 2),
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
            "27 bytes of version 2",
            "RFC 8166, 4.5",
            of_version_2.with(&[])[..27].to_vec(),
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
    ]);
    cases
}
