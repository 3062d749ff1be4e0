//! A hostile client against the real server.

mod hear;
mod run;

pub use hear::{Reply, denied, refused, status, success};
pub use run::run;

use crate::wire::ddp::ReadRequest;
use crate::wire::mpa::Frame;
use crate::wire::v1::Segment;
use crate::{End, GROWTH};

/// What is done and expected, and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is about.
    pub name: String,
    /// What decides the outcome.
    pub section: &'static str,
    /// What happens, in order.
    pub script: Vec<Step>,
    /// How the connection must end then.
    pub end: End,
    /// Bytes that it may cost at most while it runs.
    pub growth: usize,
}

/// A case that may cost [`GROWTH`].
#[must_use]
pub fn case(name: impl Into<String>, section: &'static str, script: Vec<Step>, end: End) -> Case {
    Case {
        name: name.into(),
        section,
        script,
        end,
        growth: GROWTH,
    }
}

impl Case {
    /// The same, costing more.
    #[must_use]
    pub fn costing(self, growth: usize) -> Self {
        Self { growth, ..self }
    }
}

/// Something that the hostile client does, or must hear.
#[derive(Clone, Debug)]
pub enum Step {
    /// Connects over TCP. The connection before, if any, stays and is silent.
    Connect,
    /// The same to the server's port for TCP.
    ConnectTcp,
    /// Says bytes again and again, and hears nothing, until the server ends the connection. The bystander
    /// writes and reads in between.
    BytesUntilEnd(Vec<u8>),
    /// The server lets go of all connections of the script, which hear nothing meanwhile.
    LetsGo,
    /// Says bytes as they are.
    Bytes(Vec<u8>),
    /// Says them one at a time, each after a round trip of the bystander's.
    Trickle(Vec<u8>),
    /// Hears this set-up frame.
    HearFrame(Frame),
    /// CRCs from here on.
    Crc,
    /// Says a ULPDU, in a right FPDU.
    Segment(Vec<u8>),
    /// Sends a message.
    Send(Vec<u8>),
    /// Sends a message as that opcode, with that word for RDMAP.
    SendAs(u8, u32, Vec<u8>),
    /// Sends a message in segments of so many bytes.
    SendCut(usize, Vec<u8>),
    /// Sends a message so many times, in one go.
    Burst(usize, Vec<u8>),
    /// Sends it so many times, a few at a time, unless that is not possible any more. Meanwhile
    /// nothing is heard.
    Flood(usize, Vec<u8>),
    /// Takes note of so many Sends that were said as bytes or segments.
    Said(u32),
    /// Hears an empty Read Response to this handle.
    HearNothingRead(u32),
    /// Hears an RDMA_ERROR with ERR_VERS: to this XID, with this version in its header.
    ErrVers(u32, u32),
    /// Hears an RDMA_ERROR with ERR_CHUNK.
    ErrChunk(u32),
    /// Hears a reply.
    Hear(Reply),
    /// Hears a reply to this XID, whatever it says.
    HearAnyReply(u32),
    /// Version 2 from here on: what shows that the connection lives is said in it.
    Second,
    /// Hears a message of version 2 that is these words but for its credits, with more behind them
    /// if it says so.
    HearWords(Vec<u32>, bool),
    /// Hears an operation of an extension of version 2, whatever it says.
    HearOperation(u32),
    /// Hears a Read Request for exactly this segment, and answers it with these bytes.
    Serve(Segment, Vec<u8>),
    /// The same, and says these ULPDUs instead.
    Cheat(Segment, fn(&ReadRequest) -> Vec<Vec<u8>>),
    /// The server has placed these bytes there, and nothing else since the last look.
    Placed(u32, u64, Vec<u8>),
    /// The server has placed so many bytes there, and nothing else since the last look.
    PlacedLength(u32, u64, usize),
    /// What was said is with the server: a round trip of the bystander's.
    Turn,
    /// The bystander writes and reads, while all connections of the script are still there.
    Works,
    /// FIN.
    Shut,
    /// RST.
    Abort,
    /// All of it so many times.
    Repeat(usize, Vec<Step>),
    /// All of it on each connection that the script has made.
    OnAll(Vec<Step>),
}
