//! Cases of clients as data: addresses, levels, operations, acts.

use super::rules::Rule;
use crate::case::{Level, address_of};
use crate::dialect::Dialect;

/// The operation that a client under test performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Connects and makes any call, such as NULL.
    Ping,
    /// Mounts, and reads the whole file `file` of the export.
    Read,
    /// Mounts, and creates or overwrites the file `new` of the export with given content.
    Write,
    /// Mounts, and lists the folder `folder` of the export.
    List,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Ping, Self::Read, Self::Write, Self::List];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A message that no call asked for, or that cannot be used, sent before the reply to the operation's first call.
/// Messages that look like a reply say SYSTEM_ERR, so that a client that takes them fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// A reply with an XID that no call has.
    UnknownXid,
    /// The first 24 bytes of a reply.
    Short,
    /// A reply of version 2.
    OtherVersion,
    /// RDMA_MSGP.
    Msgp,
    /// RDMA_DONE.
    Done,
    /// A procedure that there is not.
    OtherProcedure,
    /// A reply whose list of chunks goes on beyond the message.
    CutList,
    /// ERR_CHUNK with an XID that no call has.
    UnknownError,
    /// A reply in a Reply chunk that the call did not offer.
    NoReplyChunk,
    /// A call of the server.
    Call,
}

/// A message of version-two-07 that no call asked for, or that cannot be used, sent before the reply to the operation's
/// first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayWg {
    /// RDMA2_REPLY_INLINE with an XID that no call has.
    UnknownXid,
    /// RDMA2_REPLY_EXTERNAL with an XID that no call has, and a Reply chunk that was not offered.
    NoReplyChunk,
    /// RDMA2_REPLY_INLINE with an XID that no call has, and a Write list that goes on beyond the message.
    CutList,
    /// The first 15 bytes of a reply.
    Short,
    /// A reply of version 1 with the XID of the call.
    OtherVersion,
    /// A header type that there is not, with the XID of the call.
    OtherType,
    /// RDMA2_ERROR with an XID that no call has.
    UnknownError,
    /// RDMA2_ERROR with the XID of the call, and a code that there is not.
    UnknownCode,
    /// RDMA2_GRANT with the XID of the call.
    GrantWithXid,
    /// RDMA2_CONNPROP_FINAL once more.
    Properties,
    /// A call of the server.
    Call,
}

/// The messages of a continued reply (version-two-07, 6.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All, in order.
    Plain,
    /// All, with RDMA2_GRANT after each but the last.
    Granting,
    /// The first with a wrong count of what remains.
    Miscounted,
    /// All, with a reply to no call after the first message.
    Interrupted,
}

/// A message of version-two-01 and its extensions that no call asked for, sent before the reply to the operation's first
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayTwo {
    /// ROPT_INITXCH once more.
    Again,
    /// ROPT_UPDXCH of a characteristic that there is not.
    UnknownUpdate,
    /// ROPT_UPDXCH with a value that is not of its type.
    BadUpdate,
    /// ROPT_RESPXCH to no request.
    Response,
    /// ROPT_REQXCH for characteristics that there are not.
    Request,
    /// An operation that there is not.
    UnknownOperation,
    /// ROPT_XMTCONT of nothing.
    Continuation,
    /// ROPT_XMTERR about a call that was never made.
    Report,
}

/// Characteristics of a server of version-two-01 with the operations of rtrext-00, and ways in which it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmitting {
    /// Receives with one target of 65536 bytes, and all operations.
    Plain,
    /// Receives with one target of 4096 bytes.
    OneShortTarget,
    /// Receives with one target of 4096 bytes, and calls in one transmission alone.
    OneTransmission,
    /// RDMA2_ERR_INVAL_OPTION in answer to the first ROPT_XMTREQ.
    Refuse,
    /// ROPT_XMTERR about the first ROPT_XMTREQ.
    Report,
    /// ROPT_XMTRESP with wrong values of this field before the right ones.
    Field(&'static str),
}

/// Announcements of a server of version-two-07 about placement, and ways in which it places data (send-placement-00).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Receive buffers with one target of 65536 bytes, and support for calls and results.
    Plain,
    /// Receive buffers with eight targets of 1024 bytes.
    ShortTargets,
    /// Receive buffers with one target of 4096 bytes.
    OneShortTarget,
    /// All bits of flags and of the support, also those without a meaning.
    OtherBits,
    /// Segments that are four bytes shorter than the receive buffers.
    OtherLength,
    /// No support for placed calls.
    ResultsAlone,
    /// Support for placed calls, and then none, before RDMA2_CONNPROP_FINAL ends.
    Withdrawn,
    /// Data behind the first octet of its target.
    Offset,
    /// The Payload stream in two messages of a sequence.
    Parts,
    /// The Payload stream in two messages, with RDMA2_GRANT between them.
    Granting,
    /// Octets that belong to nothing are not zero.
    Padded,
    /// The data of READs in the Payload stream, although the client wants it placed.
    Inline,
    /// RDMA2_ERROR with these words in answer to the first placed call.
    Error(&'static [u32]),
    /// A placed reply with an XID that no call has, before the reply to the first call of the operation.
    Unasked,
    /// Replies with wrong values of this field before the right ones.
    Field(&'static str),
    /// Replies of several messages with wrong values of this field before the right ones.
    SequenceField(&'static str),
}

impl Placing {
    /// Returns whether what the server announces is all that is unusual.
    #[must_use]
    pub(super) fn is_of_announcement(self) -> bool {
        matches!(
            self,
            Self::ShortTargets
                | Self::OneShortTarget
                | Self::OtherBits
                | Self::OtherLength
                | Self::ResultsAlone
                | Self::Withdrawn
        )
    }

    /// Returns whether replies come with wrong values before the right ones.
    #[must_use]
    pub(super) fn is_wrong(self) -> bool {
        matches!(self, Self::Field(_) | Self::SequenceField(_))
    }
}

/// An unusual behaviour of the server, or `Honest` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing: the usual private data, 8 credits, the usual replies.
    Honest,
    /// Accepts connections with this private data.
    Private(&'static [u8]),
    /// Grants this many credits in every reply.
    Grant(u32),
    /// Grants four credits, and one from the moment on at which four calls are outstanding.
    Lower,
    /// Sends a message before the reply to the operation's first call.
    Stray(Stray),
    /// Answers the operation's first call with RDMA_ERROR and these words.
    Error(&'static [u32]),
    /// Sends the reply to the operation's first call twice.
    Twice,
    /// Answers the operation's first call with this status of NFS.
    Status(u32),
    /// Returns half of the data that a READ asks for.
    Half,
    /// Lists a folder that needs several long replies.
    Crowd,
    /// Invalidates a handle of each call that has one, if the client supports that.
    Invalidate,
    /// Answers the last of the outstanding calls first.
    Reverse,
    /// Closes the connection instead of answering the operation's first call.
    Close,
    /// Resets the connection instead of answering the operation's first call.
    Reset,
    /// Reads the memory of a WRITE after the reply to it, when another call has come.
    ReadAgain,
    /// Reads behind the end of the memory of a WRITE.
    ReadBeyond,
    /// Writes behind the end of the memory of a READ.
    WriteBeyond,
    /// Writes to the memory of a WRITE.
    WriteToRead,
    /// Sends a message of version-two-07 before the reply to the operation's first call.
    StrayWg(StrayWg),
    /// Announces these properties: the words of RDMA2_CONNPROP_FINAL.
    Announce(&'static [u32]),
    /// Announces the usual properties, all but the last in RDMA2_CONNPROP_MIDDLE.
    AnnounceInParts,
    /// Announces properties that the client must refuse with one of these errors, and goes on without any.
    AnnounceBad(&'static [u32], &'static [u32]),
    /// Answers properties with RDMA2_GRANT alone.
    AnnounceNothing,
    /// Answers the first message with RDMA2_ERR_VERS.
    RefuseVersion,
    /// Takes back all credits in every reply, and grants one by RDMA2_GRANT later.
    Starve,
    /// Returns the data of READs inline, in several messages.
    Continue(Parts),
    /// Announces placement, and places data.
    Place(Placing),
    /// Tells these characteristics: the words of ROPT_INITXCH.
    Tell(&'static [u32]),
    /// Sends a message of version-two-01 before the reply to the operation's first call.
    StrayTwo(StrayTwo),
    /// Tells that it takes the operations of rtrext-00, and answers by them.
    Transmit(Transmitting),
}

impl Act {
    /// Returns whether replies come with wrong values before the right ones.
    pub(super) fn answers_wrong(self) -> bool {
        match self {
            Self::Place(placing) => placing.is_wrong(),
            Self::Transmit(transmitting) => matches!(transmitting, Transmitting::Field(_)),
            _ => false,
        }
    }
}

/// The end that the client's operation must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success, with the right data.
    Succeeds,
    /// Success or failure, but no crash.
    Ends,
}

/// One performance of a client with its judgement.
#[derive(Clone, Debug)]
pub struct Case {
    /// The version that the server speaks.
    pub dialect: Dialect,
    /// The section that decides, as `RFC 8166, 4.5.2`.
    pub section: &'static str,
    /// The number within the section. Numbers are never given again; those of clients begin at 1001.
    pub number: u32,
    /// Force of the section.
    pub level: Level,
    /// The operation that the client performs.
    pub operation: Operation,
    /// The behaviour of the server.
    pub act: Act,
    /// The behaviour under test, as a noun phrase: of the server, or of the client if the server is `Honest`.
    pub does: &'static str,
    /// The behaviour that the client must show, as a noun phrase.
    pub expects: &'static str,
    /// The rules that decide.
    pub rules: &'static [Rule],
    /// The end that the operation must have, if this case looks at it.
    pub outcome: Option<Outcome>,
}

impl Case {
    /// Returns the address: specification, section, number.
    #[must_use]
    pub fn address(&self) -> String {
        address_of(self.section, self.number)
    }

    /// Sets the level.
    #[must_use]
    pub(super) fn level(self, level: Level) -> Self {
        Self { level, ..self }
    }
}
