//! Cases of a hostile client against the real server.

mod hear;
mod run;

pub use hear::{Reply, denied, refused, status, success};
pub use run::run;

use std::borrow::Cow;

use crate::wire::ddp::ReadRequest;
use crate::wire::mpa::Frame;
use crate::wire::v1::Segment;
use crate::{End, GROWTH};

/// A case: its script, and the expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// The description.
    pub name: String,
    /// The section of the specification that determines the result.
    pub section: Cow<'static, str>,
    /// The steps, in order.
    pub script: Vec<Step>,
    /// The expected end of the connection.
    pub end: End,
    /// The maximum memory growth while it runs, bytes.
    pub growth: usize,
}

/// Creates a case with a memory growth of at most [`GROWTH`].
#[must_use]
pub fn case(
    name: impl Into<String>,
    section: impl Into<Cow<'static, str>>,
    script: Vec<Step>,
    end: End,
) -> Case {
    Case {
        name: name.into(),
        section: section.into(),
        script,
        end,
        growth: GROWTH,
    }
}

impl Case {
    /// Sets the maximum memory growth.
    #[must_use]
    pub fn costing(self, growth: usize) -> Self {
        Self { growth, ..self }
    }
}

/// An action of the hostile client, or a message that it must receive.
#[derive(Clone, Debug)]
pub enum Step {
    /// Connects over TCP. The previous connection, if any, stays open and is silent.
    Connect,
    /// Connects to the server's port for RPC over TCP.
    ConnectTcp,
    /// Sends bytes repeatedly without reading until the server ends the connection. The bystander
    /// writes and reads in between.
    BytesUntilEnd(Vec<u8>),
    /// Waits until the server has closed all connections of the script, which read nothing
    /// meanwhile.
    LetsGo,
    /// Sends raw bytes.
    Bytes(Vec<u8>),
    /// Sends bytes one at a time, each after a round trip of the bystander.
    Trickle(Vec<u8>),
    /// Expects this setup frame.
    HearFrame(Frame),
    /// Uses CRCs from here on.
    Crc,
    /// Sends a ULPDU in a correct FPDU.
    Segment(Vec<u8>),
    /// Sends a message.
    Send(Vec<u8>),
    /// Sends a message with this opcode and this RDMAP-specific word.
    SendAs(u8, u32, Vec<u8>),
    /// Sends a message in segments of this many bytes.
    SendCut(usize, Vec<u8>),
    /// Sends a message this many times with one write.
    Burst(usize, Vec<u8>),
    /// Sends a message this many times, a few at a time, or until the connection ends. Nothing is
    /// read meanwhile.
    Flood(usize, Vec<u8>),
    /// Accounts for this many Sends that were sent as raw bytes or segments.
    Said(u32),
    /// Expects an empty Read Response to this handle.
    HearNothingRead(u32),
    /// Expects an RDMA_ERROR with ERR_VERS, with this XID and this version in its header.
    ErrVers(u32, u32),
    /// Expects an RDMA_ERROR with ERR_CHUNK and this XID.
    ErrChunk(u32),
    /// Expects this reply.
    Hear(Reply),
    /// Expects any reply with this XID.
    HearAnyReply(u32),
    /// Uses version 2 from here on, also for the call that shows that the connection lives.
    Second,
    /// Uses the working group's version 2 from here on, also for the call that shows that the
    /// connection lives. RDMA2_GRANT is received at any time from here on, and each credit limit
    /// is checked.
    Wg,
    /// Checks that the credits that the server told last allow another message, in the working
    /// group's version 2.
    HasCredit,
    /// Expects a message of version 2 with these words, except for credits. The flag allows further
    /// words.
    HearWords(Vec<u32>, bool),
    /// Expects a reply with this XID in one or more parts of the working group's version 2:
    /// MSG_ACCEPTED, SUCCESS, and results that begin with zero. These words follow the prefix of
    /// the last part.
    HearParts(u32, Vec<u32>),
    /// Expects a message of the working group's version 2 with this header type.
    HearType(u32),
    /// Expects nothing until the response to a Read Request, which follows all that was sent
    /// before.
    HearNothing,
    /// Expects this operation of an extension of version 2, with any content.
    HearOperation(u32),
    /// Expects a Read Request for exactly this segment, and answers it with these bytes.
    Serve(Segment, Vec<u8>),
    /// Expects a Read Request for exactly this segment, and sends these ULPDUs instead of an
    /// answer.
    Cheat(Segment, fn(&ReadRequest) -> Vec<Vec<u8>>),
    /// Checks that the server has placed exactly these bytes there since the last check.
    Placed(u32, u64, Vec<u8>),
    /// Checks that the server has placed exactly this many bytes there since the last check.
    PlacedLength(u32, u64, usize),
    /// Makes a round trip of the bystander, after which the server has received what was sent.
    Turn,
    /// Lets the bystander write and read while all connections of the script are still open.
    Works,
    /// Sends FIN.
    Shut,
    /// Sends RST.
    Abort,
    /// Repeats steps this many times.
    Repeat(usize, Vec<Step>),
    /// Performs steps on each connection that the script has made.
    OnAll(Vec<Step>),
}
