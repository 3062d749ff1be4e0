//! Private data of servers, and thresholds (RFC 8797; RFC 8166, 3.3.3 and 3.5.3).

use super::sends;
use crate::client::case::{Act, Case, Operation::*};
use crate::client::rules::Rule;

/// Sizes of 1 KiB.
const SHORT: &[u8] = &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 0, 0];
/// Sizes of 256 KiB.
const LONG: &[u8] = &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 255, 255];
/// All flags.
const FLAGS: &[u8] = &[0xf6, 0xab, 0x0e, 0x18, 1, 0xff, 3, 3];
/// Another identifier.
const UNKNOWN: &[u8] = &[0xf7, 0xab, 0x0e, 0x18, 1, 1, 255, 255];
/// Version 2 of the format.
const NEXT: &[u8] = &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 255, 255];
/// The format behind five other bytes.
const MOVED: &[u8] = &[1, 2, 3, 4, 5, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 0, 0];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let within = |section, number, private, does, expects| {
        let case = sends(section, number, Write, does, expects, &[Rule::Threshold]);
        case.while_server(Act::Private(private))
    };
    let short = "success, and no message of more than 1024 bytes";
    vec![
        sends(
            "RFC 8797, 4",
            1001,
            Ping,
            "private data of the client",
            "the format of version 1, without reserved flags",
            &[Rule::PrivateData],
        ),
        within(
            "RFC 8797, 4",
            1002,
            FLAGS,
            "all reserved flags",
            "success, and no message of more than 4096 bytes",
        ),
        within("RFC 8797, 4.2", 1001, SHORT, "sizes of 1 KiB", short),
        // A client that says no size of its own is bound by the receives of the server alone.
        within(
            "RFC 8166, 3.5.3",
            1002,
            LONG,
            "sizes of 256 KiB",
            "success, and no message longer than that, or than the client said",
        ),
        within(
            "RFC 8797, 5.1",
            1001,
            &[],
            "no private data",
            "success, and no message of more than 1024 bytes",
        ),
        within(
            "RFC 8797, 5.2",
            1001,
            UNKNOWN,
            "another format identifier",
            short,
        ),
        within(
            "RFC 8797, 5.2",
            1002,
            NEXT,
            "version 2 of the format",
            short,
        ),
        within(
            "RFC 8797, 5.2",
            1003,
            MOVED,
            "the format behind five other bytes",
            short,
        ),
        sends(
            "RFC 8166, 3.3.3",
            1003,
            Read,
            "no private data, so that longer replies than 1024 bytes come in chunks",
            "success",
            &[],
        )
        .while_server(Act::Private(&[])),
    ]
}
