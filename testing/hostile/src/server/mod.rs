//! A hostile server against the real client.

mod honest;
mod perform;
mod run;
mod second;
mod victim;

pub use honest::{Answer, Call, DATA_SEED, LEN};
pub use run::run;
pub use second::response;

use crate::wire::mpa::Frame;
use crate::wire::v2;
use crate::{End, GROWTH};

/// What is done and expected, and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub name: String,
    /// What decides the outcome.
    pub section: &'static str,
    /// What the client is made to do.
    pub ask: Ask,
    /// Until when the hostile server is honest.
    pub honest: Until,
    /// What happens from there on.
    pub script: Vec<Step>,
    /// How the connection must end then.
    pub end: End,
    /// How what the client was made to do must end.
    pub outcome: Outcome,
    /// Bytes that it may cost at most while it runs.
    pub growth: usize,
    /// The client takes callbacks, without chunks.
    pub called: bool,
    /// Version 2: what the hostile server says of itself, in words of ROPT_INITXCH.
    pub said: Vec<u32>,
}

/// A case that begins with the client's call, costs [`GROWTH`] at most, and whose lies are made good:
/// once they are told, the hostile server answers every call rightly, on the same connection or on
/// the next. So the call ends well.
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
        growth: GROWTH,
        called: false,
        said: v2::everything(),
    }
}

impl Case {
    /// The same, with another outcome, which no amends can change.
    #[must_use]
    pub fn ending(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// The same, against a client that takes callbacks.
    #[must_use]
    pub fn called(self) -> Self {
        Self {
            called: true,
            ..self
        }
    }

    /// The same, saying something else of itself.
    #[must_use]
    pub fn saying(self, said: Vec<u32>) -> Self {
        Self { said, ..self }
    }

    /// The same, lying from another place on.
    #[must_use]
    pub fn honest(self, honest: Until) -> Self {
        Self { honest, ..self }
    }

    /// The same, costing more.
    #[must_use]
    pub fn costing(self, growth: usize) -> Self {
        Self { growth, ..self }
    }
}

/// What the client is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// NULL: no chunks.
    Null,
    /// So many of them at once.
    Nulls(usize),
    /// READ: a write chunk of two segments.
    Read,
    /// WRITE: a read chunk of two segments.
    Write,
    /// WRITE of so many bytes.
    LongWrite(u32),
    /// READ of so many bytes.
    LongRead(u32),
    /// READDIR: a reply chunk.
    List,
}

/// Until when the hostile server is honest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is not: the script begins with the client's TCP connection.
    Start,
    /// It sets the connection up and lets itself be mounted. The script begins with the call.
    Call,
    /// The same, with CRCs.
    CallWithCrc,
    /// The same, and every reply grants so many credits.
    Granting(u32),
}

/// How what the client was made to do ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the right data.
    Right,
    /// There was no connection: [`rpc_transport::CallError::Connect`].
    NoConnection,
    /// The same, after a short while.
    NoAnswer,
    /// [`rpc_transport::CallError::TimedOut`], after a short while.
    TimedOut,
    /// [`rpc_transport::CallError::Unanswered`].
    Unanswered,
    /// [`rpc_transport::CallError::Chunk`].
    Chunk,
    /// [`rpc_transport::CallError::Protocol`].
    Protocol,
    /// [`rpc_transport::CallError::Refused`].
    Refused,
    /// [`nfs_binding::client::NfsError::Nonsense`].
    Nonsense,
    /// [`nfs_binding::client::NfsError::Status`], with that number.
    Status(u32),
}

/// Something that the hostile server does, or must hear.
#[derive(Clone, Debug)]
pub enum Step {
    /// Hears the client's set-up frame.
    HearFrame,
    /// Says a set-up frame.
    Frame(Frame),
    /// Says bytes as they are.
    Bytes(Vec<u8>),
    /// Says them one at a time.
    Trickle(Vec<u8>),
    /// Hears the next call.
    Hear,
    /// Hears a reply to a callback with this XID.
    HearReply(u32),
    /// The same, with the XID of the last call.
    HearReplyToCall,
    /// Hears an RDMA_ERROR to that XID, with these words.
    HearError(u32, Vec<u32>),
    /// Sends a message so many times, a few at a time, unless that is not possible any more, and hears
    /// nothing meanwhile.
    Flood(usize, fn(&Call) -> Vec<u8>),
    /// Hears a message of version 2 that is these words but for its credits.
    HearWords(Vec<u32>),
    /// Hears ROPT_XMTERR about a transmission of the reply, with that number, naming the first one as
    /// well or not, and with these words behind.
    HearReport(u32, bool, Vec<u32>),
    /// Hears ROPT_XMTERR with OPTXERR_BADXID about a transmission that said it was of a call with the
    /// XID of the last, in the middle of the reply to that.
    HearBadXid(u32),
    /// The calls that were heard before the last are answered, or never will be.
    Settled,
    /// Sends a message as it is.
    Say(Vec<u8>),
    /// Sends ROPT_XMTERR about the last call, with these words behind its direction.
    Reject(Vec<u32>),
    /// Answers the last call by ROPT_XMTRESP, rightly but for these: words of the information of a
    /// transmission. Its data is wrong, and its status SYSTEM_ERR.
    Patched(Vec<(usize, usize, u32)>),
    /// The same, with this done to all transmissions.
    Transmissions(fn(&Call, &mut Vec<Vec<u8>>)),
    /// Hears no other call while a round trip of the bystander's takes place.
    HearNothing,
    /// Answers the last call: rightly, but for what this changes.
    Answer(fn(&mut Answer)),
    /// The same, and whoever believes it comes to harm: data that is placed is wrong, and what comes
    /// inline says SYSTEM_ERR.
    Mislead(fn(&mut Answer)),
    /// Answers the last call rightly, one byte at a time.
    TrickleAnswer,
    /// Says a ULPDU about the last call.
    Segment(fn(&Call) -> Vec<u8>),
    /// Sends a message about the last call.
    Send(fn(&Call) -> Vec<u8>),
    /// The same, so many times in one go.
    Burst(usize, fn(&Call) -> Vec<u8>),
    /// Reads the memory of the last call's first segment, so many times, without waiting for answers.
    ReadAhead(usize),
    /// The same, one after the other.
    ReadAgain(usize),
    /// CRCs from here on.
    Crc,
    /// Takes note of so many Sends that were said as bytes or segments.
    Said(u32),
    /// Says a ULPDU about the call before the last.
    SegmentOfEarlier(fn(&Call) -> Vec<u8>),
    /// FIN.
    Shut,
    /// RST.
    Abort,
}
