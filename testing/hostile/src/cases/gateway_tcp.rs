//! Hostile clients that come to a gateway by TCP. Each is closed, and what it sent reaches neither the server nor
//! other clients.

use super::client_progress::record;
use crate::End::{Closed, Left};
use crate::client::{Case, Step::*, case};
use crate::wire::rpc;

/// The bit of a fragment header that marks the last fragment (RFC 5531, section 11).
const LAST: u32 = 0x8000_0000;

/// Returns a record of these words.
fn words(words: &[u32]) -> Vec<u8> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    record(&bytes)
}

pub(super) fn cases(_file: &[u8]) -> Vec<Case> {
    let sends = |bytes: Vec<u8>| vec![ConnectTcp, Bytes(bytes)];
    let call = rpc::null(7).bytes();
    vec![
        case(
            "another protocol",
            "RFC 5531, 11",
            sends(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
            Closed,
        ),
        case(
            "a record of 2 GiB",
            "RFC 5531, 11",
            sends((LAST | 0x7fff_ffff).to_be_bytes().to_vec()),
            Closed,
        ),
        case(
            "an empty record",
            "RFC 5531, 11",
            sends(LAST.to_be_bytes().to_vec()),
            Closed,
        ),
        case(
            "fragments without content",
            "RFC 5531, 11",
            vec![ConnectTcp, BytesUntilEnd(vec![0; 4096])],
            Left,
        ),
        case(
            "an XID and no more",
            "RFC 5531, 9",
            sends(words(&[7])),
            Closed,
        ),
        case(
            "a message that is neither call nor reply",
            "RFC 5531, 9",
            sends(words(&[7, 2, 2])),
            Closed,
        ),
        case(
            "a reply to a call never made",
            "RFC 5531, 9",
            sends(words(&[7, rpc::REPLY, 0, 0, 0, 0])),
            Closed,
        ),
        case(
            "a call whose length is not one of XDR",
            "RFC 4506, 3",
            sends(record(&[&call[..], b"x"].concat())),
            Closed,
        ),
        case(
            "half a call, and then the end",
            "RFC 5531, 11",
            sends(record(&call)[..20].to_vec()),
            Left,
        ),
        case(
            "a flood of calls with one XID whose replies nobody takes",
            "RFC 5531, 9",
            vec![ConnectTcp, Bytes(record(&call).repeat(5_000))],
            Left,
        )
        .costing(6 << 20),
    ]
}
