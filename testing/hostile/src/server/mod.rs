//! Cases of a hostile server against the real client.

mod honest;
mod perform;
mod run;
mod victim;
mod wg;

pub use honest::{Answer, Call, DATA_SEED, LEN, response};
pub use run::run;

use crate::wire::mpa::Frame;
use crate::wire::v2;
use crate::{End, GROWTH};

/// A case: its script, and the expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// The description.
    pub name: String,
    /// The section of the specification that determines the result.
    pub section: &'static str,
    /// The operation that the client performs.
    pub ask: Ask,
    /// The point until which the hostile server is honest.
    pub honest: Until,
    /// The steps from there on.
    pub script: Vec<Step>,
    /// The expected end of the connection.
    pub end: End,
    /// The expected outcome of the client's operation.
    pub outcome: Outcome,
    /// Outcome at a client behind a gateway, where it differs from the default (`by_gateway`).
    pub relayed: Option<Outcome>,
    /// The maximum memory growth while it runs, bytes.
    pub growth: usize,
    /// Whether the client accepts callbacks (without chunks).
    pub called: bool,
    /// Whether the client has no features, which it has otherwise if the table's version has any.
    pub plain: bool,
    /// Whether the client's device connects a second time by itself.
    pub tries_again: bool,
    /// In version 2, the hostile server's characteristics, in words of ROPT_INITXCH. In the working
    /// group's version 2, the words of its properties.
    pub said: Vec<u32>,
}

/// Creates a case that begins with the client's call and has a memory growth of at most [`GROWTH`].
/// After the script, the hostile server answers every call correctly, on the same connection or the
/// next one, so the call succeeds.
#[must_use]
pub fn case(
    name: impl Into<String>,
    section: &'static str,
    ask: Ask,
    script: Vec<Step>,
    end: End,
) -> Case {
    Case {
        name: name.into(),
        section,
        ask,
        honest: Until::Call,
        script,
        end,
        outcome: Outcome::Right,
        relayed: None,
        growth: GROWTH,
        called: false,
        plain: false,
        tries_again: false,
        said: v2::everything(),
    }
}

impl Case {
    /// Sets another outcome, which correct replies cannot change.
    #[must_use]
    pub fn ending(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// Sets the outcome at a client behind a gateway, where it differs from the default (`by_gateway`).
    #[must_use]
    pub fn relayed(self, outcome: Outcome) -> Self {
        Self {
            relayed: Some(outcome),
            ..self
        }
    }

    /// Makes the client accept callbacks.
    #[must_use]
    pub fn called(self) -> Self {
        Self {
            called: true,
            ..self
        }
    }

    /// Says that the client's device connects again by itself, which is no reconnection of the client.
    #[must_use]
    pub fn tries_again(self) -> Self {
        Self {
            tries_again: true,
            ..self
        }
    }

    /// Makes the client one without features.
    #[must_use]
    pub fn plain(self) -> Self {
        Self {
            plain: true,
            ..self
        }
    }

    /// Sets the hostile server's characteristics.
    #[must_use]
    pub fn saying(self, said: Vec<u32>) -> Self {
        Self { said, ..self }
    }

    /// Sets the point until which the server is honest.
    #[must_use]
    pub fn honest(self, honest: Until) -> Self {
        Self { honest, ..self }
    }

    /// Sets the maximum memory growth.
    #[must_use]
    pub fn costing(self, growth: usize) -> Self {
        Self { growth, ..self }
    }
}

/// The operation that the client performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// NULL, which has no chunks.
    Null,
    /// This number of NULL calls at the same time.
    Nulls(usize),
    /// READ with a Write chunk of two segments.
    Read,
    /// WRITE with a Read chunk of two segments.
    Write,
    /// WRITE of this many bytes.
    LongWrite(u32),
    /// READ of this many bytes.
    LongRead(u32),
    /// READDIR with a Reply chunk.
    List,
    /// NULL with room for a reply of this many bytes.
    Room(u32),
}

/// The form of a reply of the working group's version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// With the chunks that the call provides, in as few parts as possible.
    Plain,
    /// Without chunks, in three parts or more.
    Continued,
    /// With the data of a READ placed, without chunks.
    Placed,
}

/// The point until which the hostile server is honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The script begins with the client's TCP connection.
    Start,
    /// The server sets up the connection and answers the calls for mounting. The script begins with
    /// the next call.
    Call,
    /// Like [`Until::Call`], with CRCs.
    CallWithCrc,
    /// Like [`Until::Call`], and every reply grants this many credits.
    Granting(u32),
}

/// The outcome of the client's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success with the right data.
    Right,
    /// The error [`rpc_transport::CallError::Connect`]: there was no connection.
    NoConnection,
    /// The error [`rpc_transport::CallError::Connect`] after a short time-out.
    NoAnswer,
    /// The error [`rpc_transport::CallError::TimedOut`] after a short time-out.
    TimedOut,
    /// The error [`rpc_transport::CallError::Unanswered`].
    Unanswered,
    /// The error [`rpc_transport::CallError::Chunk`].
    Chunk,
    /// The error [`rpc_transport::CallError::Protocol`].
    Protocol,
    /// The error [`rpc_transport::CallError::Refused`].
    Refused,
    /// The error [`nfs_binding::client::NfsError::Nonsense`].
    Nonsense,
    /// The error [`nfs_binding::client::NfsError::Status`] and this number.
    Status(u32),
}

/// An action of the hostile server, or a message that it must receive.
#[derive(Clone, Debug)]
pub enum Step {
    /// Expects the client's setup frame.
    HearFrame,
    /// Sends a setup frame.
    Frame(Frame),
    /// Sends raw bytes.
    Bytes(Vec<u8>),
    /// Sends bytes one at a time.
    Trickle(Vec<u8>),
    /// Expects the next call.
    Hear,
    /// Expects a reply to a callback with this XID.
    HearReply(u32),
    /// Expects a reply to a callback with the XID of the last call.
    HearReplyToCall,
    /// Expects an RDMA_ERROR with this XID and these words.
    HearError(u32, Vec<u32>),
    /// Sends a message this many times, a few at a time, or until the connection ends. Nothing is
    /// read meanwhile.
    Flood(usize, fn(&Call) -> Vec<u8>),
    /// Expects a message of version 2 with these words, except for credits.
    HearWords(Vec<u32>),
    /// Expects ROPT_XMTERR about the transmission of the reply with this number. The flag tells
    /// whether it also names the first one; the words follow.
    HearReport(u32, bool, Vec<u32>),
    /// Expects ROPT_XMTERR with OPTXERR_BADXID about a transmission with the XID of the last call
    /// that interrupted the reply to that call.
    HearBadXid(u32),
    /// Declares that the calls before the last were answered, or never will be.
    Settled,
    /// Sends a message unchanged.
    Say(Vec<u8>),
    /// Sends ROPT_XMTERR about the last call, with these words after its direction.
    Reject(Vec<u32>),
    /// Sends RDMA2_ERROR of the working group's version 2 about the last call, with these words.
    Refuse(Vec<u32>),
    /// Answers the last call by ROPT_XMTRESP with these words of a transmission's information
    /// changed. Its data is wrong and its status is SYSTEM_ERR, so accepting it is detected.
    Patched(Vec<(usize, usize, u32)>),
    /// Answers the last call by ROPT_XMTRESP after this change of its transmissions. Its data is
    /// wrong and its status is SYSTEM_ERR.
    Transmissions(fn(&Call, &mut Vec<Vec<u8>>)),
    /// In the working group's version 2, answers the last call in this form with some words
    /// changed: part, word, and new value. Its data is wrong and its status is SYSTEM_ERR.
    Part(Parts, Vec<(usize, usize, u32)>),
    /// In the working group's version 2, answers the last call in this form after this change of
    /// its parts. Its data is wrong and its status is SYSTEM_ERR.
    Parts(Parts, fn(&Call, &mut Vec<Vec<u8>>)),
    /// In the working group's version 2, answers the last call correctly in this form.
    AnswerIn(Parts),
    /// Expects the client's properties of the working group's version 2.
    HearProperties,
    /// Expects an RDMA2_ERROR about the last call with these words behind the header type.
    HearRefusal(Vec<u32>),
    /// Expects no call during a round trip of the bystander.
    HearNothing,
    /// Answers the last call correctly except for this change.
    Answer(fn(&mut Answer)),
    /// Answers the last call with this change; placed data is wrong and inline data says
    /// SYSTEM_ERR, so accepting the reply is detected.
    Mislead(fn(&mut Answer)),
    /// Answers the last call correctly, one byte at a time.
    TrickleAnswer,
    /// Sends a ULPDU about the last call.
    Segment(fn(&Call) -> Vec<u8>),
    /// Sends a message about the last call.
    Send(fn(&Call) -> Vec<u8>),
    /// Sends a message about the last call this many times with one write.
    Burst(usize, fn(&Call) -> Vec<u8>),
    /// Reads the memory of the last call's first segment this many times, without waiting for the
    /// responses.
    ReadAhead(usize),
    /// Reads the memory of the last call's first segment this many times, one after the other.
    ReadAgain(usize),
    /// Uses CRCs from here on.
    Crc,
    /// Accounts for this many Sends that were sent as raw bytes or segments.
    Said(u32),
    /// Sends a ULPDU about the call before the last.
    SegmentOfEarlier(fn(&Call) -> Vec<u8>),
    /// Sends FIN.
    Shut,
    /// Sends RST.
    Abort,
}
