//! Rules for clients, and what was found of them during one performance.

use std::collections::HashMap;

/// A rule that is looked at while a client performs an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Private data has the format of RFC 8797, 4, and no reserved flag.
    PrivateData,
    /// FPDUs, DDP segments and RDMAP messages are valid (RFC 5044, 4; RFC 5041, 4; RFC 5040, 4).
    Framing,
    /// Headers can be parsed (RFC 8166, 4).
    Header,
    /// `rdma_vers` is one, after the first message of the connection that has it (RFC 8166, 4.2.2).
    Version,
    /// A client that comes back after its connection was closed speaks version one again (RFC 8166, 4.2.2).
    VersionAgain,
    /// A client whose first version is refused goes on with the one that is spoken (RFC 8166, 4.5.1).
    OtherVersion,
    /// `rdma_xid` is the XID of the RPC message (RFC 8166, 4.2.1).
    Xid,
    /// No two outstanding calls of a connection have the same XID (RFC 5531, 9).
    DistinctXids,
    /// No RDMA_MSGP (RFC 8166, 4.6.1) and no RDMA_DONE (4.6.2).
    Obsolete,
    /// No RDMA_ERROR (RFC 8166, 4.2.4).
    Error,
    /// No Send is longer than the inline threshold (RFC 8166, 4.2.4).
    Threshold,
    /// One call before the first reply on a connection (RFC 8166, 3.3.3).
    FirstCall,
    /// No more calls outstanding than granted (RFC 8166, 3.3.1).
    Credits,
    /// No more calls outstanding than the last one asks for (RFC 8166, 3.3.1).
    Asked,
    /// No more calls outstanding than granted, after a grant that is lower than the one before (RFC 8166, 3.3.1).
    LoweredCredits,
    /// RDMA_NOMSG has a position-zero Read chunk, and nothing behind the header (RFC 8166, 4.2.4).
    NoMsg,
    /// A position-zero Read chunk includes the round-up of the payload (RFC 8166, 3.5.3).
    LongRoundUp,
    /// Positions are multiples of four (RFC 8166, 3.4.5).
    Aligned,
    /// The position is that of the data in the unreduced stream (RFC 8166, 3.4.5).
    Position,
    /// A Read chunk is as long as its item, or as its item and its round-up (RFC 8166, 3.4.5.2).
    ReadLength,
    /// A Read chunk is not longer than its item (RFC 8166, 3.4.5.2).
    ReadRoundUp,
    /// Only items that are eligible are reduced (RFC 8166, 3.4.2).
    Eligible,
    /// A Write chunk has room for the longest result (RFC 8166, 3.4.6).
    WriteRoom,
    /// A Write chunk for data that needs round-up has not just the room for it (RFC 8166, 3.4.6.2).
    WriteRoundUp,
    /// A Reply chunk is offered where the reply may be too long, and takes the longest (RFC 8166, 4.3.3).
    ReplyRoom,
    /// The responder alone makes RDMA Reads and RDMA Writes (RFC 8166, 4.5.3).
    Passive,
    /// The client shows the right content of the file (RFC 8166, 3.4.6.1).
    Content,
    /// All of the file is read, by as many calls as it takes (RFC 1813, 3.3.6).
    Covered,
    /// A call that was answered with RDMA_ERROR is not sent again (RFC 8166, 4.5).
    Ended,
    /// A message that is discarded has no effect: the call is not sent again (RFC 8166, 4.5).
    Discarded,
    /// A call that is sent again on another connection is the same (RFC 5531, 5).
    Again,
    /// Memory is out of reach after its call (RFC 8166, 4.4.1).
    OutOfReach,
    /// Nothing is read or written beyond what was offered (RFC 8166, 8.1).
    Bounds,
    /// The first message has 1024 bytes at most (version-two-07, 4.3).
    FirstLength,
    /// One message before the first of the server (version-two-07, 4.3).
    FirstMessage,
    /// No message beyond the credit limit, with the message more that the letter of version-two-07, 4.2.1 allows.
    CountedCredits,
    /// No message but RDMA2_GRANT beyond the number for which receives were told (version-two-07, 4.2.1).
    NoSurplus,
    /// Credit limits are less than 2^31 - 1 (version-two-07, 4.2.1).
    CreditLimit,
    /// RDMA2_GRANT has XID zero (version-two-07, 6.3.2).
    GrantXid,
    /// The client sends only header types of version-two-07 that a requester sends (version-two-07, 6.1).
    HeaderType,
    /// Values of properties have the types of their properties (version-two-07, 5.1 and 5.2).
    Properties,
    /// Only properties follow RDMA2_CONNPROP_MIDDLE, and none RDMA2_CONNPROP_FINAL (version-two-07, 6.3.3 and 6.3.4).
    PropertiesOnce,
    /// Nothing but its other messages follows the first of a continued call, and the counts of what remains are right
    /// (version-two-07, 6.3.6).
    Continued,
    /// A Call chunk has position zero, and other Read chunks have not (version-two-07, 4.5.1 and 6.3.7).
    CallChunk,
    /// The handle that may be invalidated is zero or one of the header (version-two-07, 6.5).
    InvalidHandle,
    /// No segment is longer, and no header has more of them, than the server takes (version-two-07, 5.2.3 and 5.2.4).
    Segments,
    /// A message that cannot be used is answered with the error that the text names (version-two-07, 7).
    Reported,
    /// No property of placement is announced twice (send-placement-00, 3).
    PlacementOnce,
    /// The segments of receive buffers add up to their size (send-placement-00, 3.1).
    StructureSize,
    /// Values have the types of their properties (send-placement-00, 3.1 to 3.3; version-two-07, 5.1).
    PlacementValues,
    /// An end that takes placed items has a target (send-placement-00, 3.2 and 3.3).
    StructureTarget,
    /// No message is longer than the client has announced (send-placement-00, 3.4).
    SendSize,
    /// No placed call goes to a server that does not take any (send-placement-00, 4.5).
    Placeable,
    /// A placed item has a position and a length that fit its argument (send-placement-00, 4.2; rtrext-00, 7.3).
    PlacedItem,
    /// Only items that are eligible are placed (send-placement-00, 5.3; rtrext-00, 3.3).
    PlacedEligible,
    /// A placed item is where its entry says, alone (send-placement-00, 5.3 and 5.5; rtrext-00, 7.3).
    PlacedLayout,
    /// Octets that belong to nothing are zero (send-placement-00, 5.2; rtrext-00, 7.2).
    PlacedPadding,
    /// A message ends with its data (send-placement-00, 5.2).
    PlacedEnd,
    /// The messages of a placed call come in a row, and count what follows (send-placement-00, 4.1 and 5.4).
    PlacedSequence,
    /// A placed call begins with credits for all of its messages (send-placement-00, 5.4).
    PlacedCredits,
    /// A client that has announced a structure takes back no credits (send-placement-00, 5.4).
    NoLowerLimit,
    /// A placed call that was refused does not come again, nor any after RDMA2_ERR_INVAL_HTYPE (send-placement-00, 7;
    /// rtrext-00, 5.1 and 5.4).
    PlacedRefused,
    /// The data of a reply that cannot be processed is not taken (send-placement-00, 7; rtrext-00, 9.3).
    Untaken,
    /// Replies are not answered with an error (send-placement-00, 8).
    RepliesUnreported,
    /// ROPT_INITXCH is the first message of a connection, and the only one (xcharext-02, 4.1).
    InitialOnce,
    /// Values have the types of their characteristics (xcharext-02, 2.1).
    Characteristics,
    /// No operation of rtrext-00 goes to a server that does not take any (rtrext-00, 5.1).
    Unsupported,
    /// A call has no more transmissions than the server takes (rtrext-00, 5.2).
    Transmissions,
    /// The transmissions of a call come in a row, with their numbers (rtrext-00, 4.2 and 9.4).
    Group,
}

/// Findings about one rule.
#[derive(Clone, Debug, Default)]
struct Finding {
    /// The number of times that something was looked at.
    looked: u64,
    /// The first break.
    broken: Option<String>,
}

/// Findings about all rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings(HashMap<Rule, Finding>);

impl Findings {
    /// Looks at a rule once.
    pub(super) fn look(&mut self, rule: Rule, kept: bool, text: impl FnOnce() -> String) {
        let finding = self.0.entry(rule).or_default();
        finding.looked += 1;
        if !kept && finding.broken.is_none() {
            finding.broken = Some(text());
        }
    }

    /// Returns whether anything was looked at for this rule.
    pub(super) fn looked(&self, rule: Rule) -> bool {
        self.0.get(&rule).is_some_and(|it| it.looked > 0)
    }

    /// Returns how the rule was broken first.
    pub(super) fn broken(&self, rule: Rule) -> Option<&str> {
        self.0.get(&rule)?.broken.as_deref()
    }
}
