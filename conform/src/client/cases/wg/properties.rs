//! Cases of properties, and of the sizes that they tell (version-two-07, sections 4.2.2, 5 and 6.3.3).

use super::super::sends;
use super::keeps;
use crate::client::case::{Act, Case, Operation::*};
use crate::client::rules::Rule;
use crate::wire::wg::{ERR_BAD_PROPVAL, ERR_BAD_XDR};

/// Receives of 1 KiB.
const SHORT: &[u32] = &[
    5, 1, 4, 4096, 2, 4, 1024, 3, 4, 0x10_0000, 4, 4, 16, 5, 4, 0,
];
/// Receives of 64 KiB.
const LONG: &[u32] = &[
    5, 1, 4, 4096, 2, 4, 0x1_0000, 3, 4, 0x10_0000, 4, 4, 16, 5, 4, 0,
];
/// Segments of 4 KiB.
const SHORT_SEGMENTS: &[u32] = &[5, 1, 4, 4096, 2, 4, 4096, 3, 4, 4096, 4, 4, 16, 5, 4, 0];
/// One segment.
const ONE_SEGMENT: &[u32] = &[5, 1, 4, 4096, 2, 4, 4096, 3, 4, 0x10_0000, 4, 4, 1, 5, 4, 0];
/// Properties that there are not, of 4, 0 and 7 bytes, around the size of receives.
const UNKNOWN: &[u32] = &[
    4,
    99,
    4,
    1,
    0xffff_ff80,
    0,
    2,
    4,
    4096,
    98,
    7,
    0x6162_6364,
    0x6566_6700,
];
/// Empty values, which stand for the defaults.
const EMPTY: &[u32] = &[5, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0];
/// No property.
const NONE: &[u32] = &[0];
/// A host's name.
const HOST: &[u32] = &[2, 2, 4, 4096, 6, 12, 5, 0x686f_7374, 0x3100_0000];
/// Receives of 1 MiB, and then a segment size of 8 bytes.
const BAD_LENGTH: &[u32] = &[2, 2, 4, 0x10_0000, 3, 8, 0, 4096];
/// Receives of 1 MiB, and then a value that ends behind the message.
const BEYOND: &[u32] = &[2, 2, 4, 0x10_0000, 3, 64, 4096];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [told(), sizes(), exchanges(), refused()].concat()
}

/// Properties of the client.
fn told() -> Vec<Case> {
    vec![
        sends(
            "version-two-07, 5.1",
            1001,
            Ping,
            "properties of the client",
            "values of the types of their properties",
            &[Rule::Properties],
        ),
        sends(
            "version-two-07, 6.3.4",
            1001,
            Ping,
            "properties of the client",
            "nothing else before the last of them, and none after it",
            &[Rule::PropertiesOnce],
        ),
    ]
}

/// Sizes that the client keeps to.
fn sizes() -> Vec<Case> {
    let within = |section, number, announced, does, expects, rules| {
        let case = sends(section, number, Write, does, expects, rules);
        case.while_server(Act::Announce(announced))
    };
    vec![
        sends(
            "version-two-07, 4.2.2",
            1001,
            Write,
            "calls to a server whose receives have 4096 bytes",
            "none longer than the call inline threshold",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 5.2.2",
            1001,
            SHORT,
            "receives of 1024 bytes",
            "success, and no message of more than 1024 bytes",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 5.2.2",
            1002,
            LONG,
            "receives of 65536 bytes",
            "success, and no message of more than 65536 bytes",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 5.2.3",
            1001,
            SHORT_SEGMENTS,
            "segments of at most 4096 bytes",
            "success, and no longer segment",
            &[Rule::Segments],
        ),
        within(
            "version-two-07, 5.2.4",
            1001,
            ONE_SEGMENT,
            "one segment in a header",
            "success, and no header with more",
            &[Rule::Segments],
        ),
        within(
            "version-two-07, 5.1",
            1002,
            EMPTY,
            "properties with empty values",
            "success, and no message longer than the default of 4096 bytes",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 6.3.4",
            1002,
            NONE,
            "an empty set of properties",
            "success, and no message longer than the default of 4096 bytes",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 6.3.4",
            1003,
            UNKNOWN,
            "properties that there are not, among others",
            "success, and no message of more than 4096 bytes",
            &[Rule::Threshold],
        ),
        within(
            "version-two-07, 5.2.6",
            1001,
            HOST,
            "a property with authentication material of the host",
            "success",
            &[],
        ),
    ]
}

/// Other ways to tell properties.
fn exchanges() -> Vec<Case> {
    vec![
        sends(
            "version-two-07, 6.3.3",
            1001,
            Write,
            "properties in RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL",
            "success, and no message of more than 4096 bytes",
            &[Rule::Threshold],
        )
        .while_server(Act::AnnounceInParts),
        sends(
            "version-two-07, 4.2.2",
            1002,
            Write,
            "RDMA2_GRANT, and no properties",
            "success, and no message longer than the default of 4096 bytes",
            &[Rule::Threshold],
        )
        .while_server(Act::AnnounceNothing)
        .robustness(),
    ]
}

/// Values that the client must refuse.
fn refused() -> Vec<Case> {
    const SECTION: &str = "version-two-07, 7.2.2";
    let (length, beyond) = (
        Act::AnnounceBad(BAD_LENGTH, &[ERR_BAD_PROPVAL]),
        Act::AnnounceBad(BEYOND, &[ERR_BAD_PROPVAL, ERR_BAD_XDR]),
    );
    let none = "success, and none of the properties applied: no message of more than 4096 bytes";
    vec![
        keeps(
            SECTION,
            1001,
            (Write, length),
            "a segment size of 8 bytes behind a valid property",
            "RDMA2_ERROR with BAD_PROPVAL",
            &[Rule::Reported],
        ),
        sends(
            SECTION,
            1002,
            Write,
            "a segment size of 8 bytes behind a valid property",
            none,
            &[Rule::Threshold],
        )
        .while_server(length),
        keeps(
            "version-two-07, 5.1",
            1003,
            (Write, beyond),
            "a property that is longer than the message, behind a valid one",
            "RDMA2_ERROR with BAD_PROPVAL (or BAD_XDR)",
            &[Rule::Reported],
        ),
        sends(
            SECTION,
            1003,
            Write,
            "a property that is longer than the message, behind a valid one",
            none,
            &[Rule::Threshold],
        )
        .while_server(beyond),
    ]
}
