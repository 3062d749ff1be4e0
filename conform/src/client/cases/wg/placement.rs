//! Cases of send-based data placement (send-placement-00), the extension of version-two-07.

use super::super::sends;
use super::keeps;
use crate::case::Level;
use crate::client::case::{Act, Case, Operation::*, Placing};
use crate::client::rules::Rule;
use crate::wire::wg;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    [told(), calls(), announced(), refused(), replies(), wrong()].concat()
}

/// Cases of the client's announcements, and of a server without placement.
fn told() -> Vec<Case> {
    vec![
        sends(
            "send-placement-00, 3",
            1001,
            Ping,
            "the client's properties of placement",
            "each of them once, with a value of its type",
            &[Rule::PlacementOnce, Rule::PlacementValues],
        ),
        sends(
            "send-placement-00, 3.1",
            1001,
            Ping,
            "the structure of the client's receive buffers",
            "segments that add up to the Receive Buffer Size",
            &[Rule::StructureSize],
        ),
        sends(
            "send-placement-00, 3.3",
            1001,
            Ping,
            "a Smallest Placed Result, or support for placed calls",
            "a structure with a target",
            &[Rule::StructureTarget],
        ),
        sends(
            "send-placement-00, 4.5",
            1001,
            Write,
            "calls to a server that announces no placement",
            "no placed call",
            &[Rule::Placeable],
        ),
        sends(
            "send-placement-00, 5.4",
            1001,
            Read,
            "rdma_credit of a client with a structure of its receive buffers",
            "no lower value than before",
            &[Rule::NoLowerLimit],
        ),
    ]
}

/// Announcements by which the server takes no placed call, or with bits that mean nothing.
fn announced() -> Vec<Case> {
    let row = |section, number, placing, does, expects, rules| {
        let case = sends(section, number, Write, does, expects, rules);
        case.while_server(Act::Place(placing))
    };
    let none = "success, and no placed call";
    vec![
        row(
            "send-placement-00, 3",
            1002,
            Placing::Withdrawn,
            "support for placed calls, and then none, before RDMA2_CONNPROP_FINAL",
            "success, and no placed call, as the last value counts",
            &[Rule::Placeable],
        ),
        row(
            "send-placement-00, 3.1",
            1002,
            Placing::OtherLength,
            "a structure that is four bytes shorter than the receive buffers",
            "success, and no placed call, as the structure counts as not announced",
            &[Rule::Placeable],
        ),
        row(
            "send-placement-00, 3.1",
            1003,
            Placing::OtherBits,
            "rdma_flags and support with bits that have no meaning",
            "success, and items where they are without these bits",
            &[Rule::PlacedLayout],
        ),
        row(
            "send-placement-00, 3.2",
            1001,
            Placing::ResultsAlone,
            "support for placed results alone",
            none,
            &[Rule::Placeable],
        ),
    ]
}

/// Calls with placed items.
fn calls() -> Vec<Case> {
    let row = |section, number, placing, does, expects, rules| {
        keeps(
            section,
            number,
            (Write, Act::Place(placing)),
            does,
            expects,
            rules,
        )
    };
    let item = "the placed data of a WRITE of 6001 bytes";
    vec![
        sends(
            "send-placement-00, 6.1",
            1001,
            Write,
            "support for placed calls",
            "success",
            &[],
        )
        .while_server(Act::Place(Placing::Plain))
        .robustness(),
        row(
            "send-placement-00, 3.4",
            1001,
            Placing::Plain,
            "messages of placed calls",
            "none longer than the client's Maximum Send Size",
            &[Rule::SendSize],
        ),
        row(
            "send-placement-00, 4.2",
            1001,
            Placing::Plain,
            item,
            "its position in the unreduced message, and its length without round-up",
            &[Rule::PlacedItem],
        ),
        row(
            "send-placement-00, 5.3",
            1001,
            Placing::Plain,
            "placed items",
            "the data of WRITE and SYMLINK alone",
            &[Rule::PlacedEligible],
        ),
        row(
            "send-placement-00, 5.3",
            1002,
            Placing::Plain,
            item,
            "its octets in the target and at the offset of its entry, behind header and Payload stream",
            &[Rule::PlacedLayout],
        ),
        row(
            "send-placement-00, 5.3",
            1003,
            Placing::ShortTargets,
            "receive buffers with eight targets of 1024 bytes",
            "data that fills one after the other",
            &[Rule::PlacedLayout],
        ),
        row(
            "send-placement-00, 5.2",
            1001,
            Placing::Plain,
            "octets that are neither header, Payload stream nor data",
            "zeroes",
            &[Rule::PlacedPadding],
        ),
        row(
            "send-placement-00, 5.2",
            1002,
            Placing::Plain,
            "the end of a message with placed data",
            "the last octet of the data",
            &[Rule::PlacedEnd],
        )
        .level(Level::Should),
        row(
            "send-placement-00, 4.1",
            1001,
            Placing::OneShortTarget,
            "a WRITE of 6001 bytes to receive buffers with one target of 4096",
            "messages in a row, with the counts of what follows",
            &[Rule::PlacedSequence],
        ),
        row(
            "send-placement-00, 5.4",
            1002,
            Placing::OneShortTarget,
            "a placed call in several messages",
            "credits for all of them before the first",
            &[Rule::PlacedCredits],
        ),
    ]
}

/// Placed calls that the server refuses.
fn refused() -> Vec<Case> {
    const SECTION: &str = "send-placement-00, 7";
    let row = |number, words, does, expects| {
        let case = sends(
            SECTION,
            number,
            Write,
            does,
            expects,
            &[Rule::PlacedRefused],
        );
        case.may_fail(Act::Place(Placing::Error(words)))
    };
    vec![
        row(
            1001,
            &[wg::ERR_INVAL_HTYPE],
            "RDMA2_ERR_INVAL_HTYPE in answer to a placed call",
            "no placed call again on the connection",
        ),
        row(
            1002,
            &[wg::ERR_BAD_XDR],
            "RDMA2_ERR_BAD_XDR in answer to a placed call",
            "this call does not come placed again",
        ),
    ]
}

/// Replies with placed data that the client must take.
fn replies() -> Vec<Case> {
    let row = |section, number, placing, does, expects| {
        let case = sends(section, number, Read, does, expects, &[]);
        case.while_server(Act::Place(placing))
    };
    let right = "success, and the data is right";
    vec![
        row(
            "send-placement-00, 6.2",
            1001,
            Placing::Plain,
            "the placed data of READs",
            right,
        ),
        row(
            "send-placement-00, 6.2",
            1002,
            Placing::Inline,
            "the data of READs in the Payload stream, although it was to be placed",
            right,
        ),
        row(
            "send-placement-00, 5.3",
            1004,
            Placing::Offset,
            "placed data that begins four bytes behind the first octet of its target",
            right,
        ),
        row(
            "send-placement-00, 5.4",
            1003,
            Placing::Parts,
            "replies in several messages, the first with a part of the Payload stream alone",
            right,
        ),
        row(
            "send-placement-00, 5.4",
            1004,
            Placing::Granting,
            "RDMA2_GRANT between the messages of a placed reply",
            right,
        ),
        row(
            "send-placement-00, 5.2",
            1003,
            Placing::Padded,
            "octets other than zero between the Payload stream and the data",
            "they are ignored: success, and the data is right",
        ),
        sends(
            "send-placement-00, 7",
            1003,
            Read,
            "a placed reply with an XID that no call has",
            "it is discarded, and the reply that follows is taken",
            &[Rule::Discarded],
        )
        .while_server(Act::Place(Placing::Unasked)),
    ]
}

/// Replies with placed data that the client must not take.
fn wrong() -> Vec<Case> {
    const SECTION: &str = "send-placement-00, 7";
    let row = |number, placing, does| {
        let expects = "its data is not taken: the call fails, or the right reply behind it counts";
        let case = sends(SECTION, number, Read, does, expects, &[Rule::Untaken]);
        case.may_fail(Act::Place(placing))
    };
    vec![
        row(
            1004,
            Placing::Field("rdma_writes"),
            "placed replies with a Write list that was not asked for",
        ),
        row(
            1005,
            Placing::Field("rdma_placed"),
            "placed replies with another number of items",
        ),
        row(
            1006,
            Placing::Field("rdma_position"),
            "placed replies whose item has another position",
        ),
        row(
            1007,
            Placing::Field("rdma_length"),
            "placed replies whose item has no octet, or more than came",
        ),
        row(
            1008,
            Placing::Field("rdma_segment"),
            "placed replies whose item is in a target that there is not",
        ),
        row(
            1009,
            Placing::Field("rdma_offset"),
            "placed replies whose item begins where its octets do not all fit",
        ),
        row(
            1010,
            Placing::Field("rdma_payload_length"),
            "placed replies with another length of the Payload stream",
        ),
        row(
            1011,
            Placing::SequenceField("rdma_messages"),
            "placed sequences of another number of messages than announced",
        ),
        row(
            1012,
            Placing::SequenceField("rdma_remaining"),
            "placed sequences with less of the Payload stream than announced",
        ),
        row(
            1013,
            Placing::SequenceField("rdma_payload_length"),
            "placed sequences with another length of a part of the Payload stream",
        ),
        row(
            1014,
            Placing::SequenceField("rdma_segment"),
            "placed sequences whose item is in a target behind the last one",
        ),
        keeps(
            "send-placement-00, 8",
            1001,
            (Read, Act::Place(Placing::Field("rdma_length"))),
            "placed replies that cannot be processed",
            "no RDMA2_ERROR about them",
            &[Rule::RepliesUnreported],
        ),
    ]
}
