//! Contents of a capture: connections, and calls with their messages and RDMA operations.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nfs_binding::proto::{MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION, mnt, nfs};
use rpcrdma_chunks::Side;
use rpcrdma_v1::PrivateData;

/// The version of NFS whose procedures are NULL and COMPOUND.
const NFS_VERSION_4: u32 = 4;

/// A packet of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// Number of the packet in its file, from 1, as Wireshark counts.
    pub packet: u64,
    /// Time of the packet since the epoch of its clock (mostly 1970).
    pub time: Duration,
}

/// The number of a connection in a capture, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

/// Transport below RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// iWARP: MPA over TCP.
    Iwarp,
    /// RoCE version 2: InfiniBand's transport over UDP.
    Roce,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndName {
    /// An end of a TCP connection.
    Tcp(SocketAddr),
    /// A queue pair, as far as its number was seen.
    QueuePair(IpAddr, Option<u32>),
}

impl fmt::Display for EndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(end) => end.fmt(f),
            Self::QueuePair(ip, Some(number)) => write!(f, "{ip} QP {number:#x}"),
            Self::QueuePair(ip, None) => write!(f, "{ip}"),
        }
    }
}

/// A connection. Arrays have the client first.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The number of the connection.
    pub id: ConnectionId,
    /// Transport of its messages.
    pub carrier: Carrier,
    /// Its ends.
    pub ends: [EndName; 2],
    /// Its first packet.
    pub began: At,
    /// Whether the capture has its set-up. Without it, thresholds and what was agreed before are not
    /// known.
    pub is_set_up: bool,
    /// Private data that each end sent for version 1 (RFC 8797), if the set-up is in the capture.
    pub private_data: [Option<PrivateData>; 2],
    /// Longest message that each end receives, in bytes: announced, or the default of the version.
    /// `None` if that is not known.
    pub receive_size: [Option<u32>; 2],
    /// The version of its messages, once there is one.
    pub version: Option<Version>,
}

/// The version of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Version 1 (RFC 8166).
    One,
    /// Version 2 of 2016 (version-two-01).
    Two,
    /// Version 2 of the working group (version-two-07).
    TwoWg,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "1",
            Self::Two => "2",
            Self::TwoWg => "2wg",
        })
    }
}

/// A call with its reply.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its connection.
    pub connection: ConnectionId,
    /// The end that sent it: the server in the reverse direction (RFC 8167).
    pub caller: Side,
    /// Its XID.
    pub xid: u32,
    /// The version of its header.
    pub version: Version,
    /// The procedure, if the RPC message is in the capture.
    pub procedure: Option<Procedure>,
    /// The first packet of its first message.
    pub started: At,
    /// The last packet of the last message of the reply.
    pub replied: Option<At>,
    /// Outcome of the call.
    pub outcome: Outcome,
    /// Messages of the call and of its reply, in the order of the capture.
    pub messages: Vec<Message>,
    /// RDMA Reads and Writes of the call's memory, in the order in which they began.
    pub operations: Vec<Operation>,
    /// The memory that the call offers, in the order of its header.
    pub segments: Vec<Segment>,
    /// Length in bytes of the call's RPC message, bulk items included, as far as it is known.
    pub call_length: Option<u64>,
    /// Length in bytes of the reply's RPC message, bulk items included, as far as it is known.
    pub reply_length: Option<u64>,
    /// Bytes of bulk items of call and reply that were placed by Sends.
    pub placed: u64,
    /// Number of other calls of the same end that were outstanding when it began.
    pub outstanding: u32,
    /// Credits that its sender had then, if they are known and count calls, as they do not in
    /// version-two-07.
    pub granted: Option<u32>,
    /// Whether packets of it are missing in the capture, so that counts may be too low.
    pub is_incomplete: bool,
}

impl Call {
    /// Returns the number of round trips of the call: one for call and reply, one for each time that
    /// the responder waited for RDMA Reads (those that overlap count once), and one for each time
    /// that a sender waited for a grant between parts of a message (version-two-07, section 4.2.1).
    #[must_use]
    pub fn round_trips(&self) -> u32 {
        1 + self.read_turns() + self.grant_waits()
    }

    /// Returns how often the responder waited for RDMA Reads of the call. Those that overlap count once.
    #[must_use]
    pub fn read_turns(&self) -> u32 {
        let mut reads: Vec<(At, At)> = self
            .operations
            .iter()
            .filter(|operation| operation.kind == OperationKind::Read)
            .map(|read| (read.request.unwrap_or(read.first), read.last))
            .collect();
        reads.sort();
        let (mut turns, mut until) = (0, None);
        for (request, last) in reads {
            if until.is_none_or(|until| request > until) {
                turns += 1;
            }
            until = until.max(Some(last));
        }
        turns
    }

    fn grant_waits(&self) -> u32 {
        let waits = self.messages.iter().filter(|message| message.waited);
        waits.count() as u32
    }

    /// Returns the number of registrations that its caller made: the handles that it offered.
    #[must_use]
    pub fn registrations(&self) -> u32 {
        let mut handles: Vec<u32> = self.segments.iter().map(|it| it.handle).collect();
        handles.sort_unstable();
        handles.dedup();
        handles.len() as u32
    }

    /// Returns the time from its first packet to the last one of its reply.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        Some(self.replied?.time.saturating_sub(self.started.time))
    }

    /// Returns its first message.
    #[must_use]
    pub fn first_message(&self) -> Option<&Message> {
        self.messages.first()
    }
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By a reply.
    Replied,
    /// By an error of the transport, with its name.
    Failed(String),
    /// The capture or the connection ends before a reply.
    Unanswered,
    /// Another call with the same XID followed.
    Replaced,
}

/// The procedure that a call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Procedure {
    /// Number of the program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Number of the procedure.
    pub number: u32,
}

/// A message: one Send.
#[derive(Clone, Debug)]
pub struct Message {
    /// The end that sent it.
    pub from: Side,
    /// Its first packet.
    pub first: At,
    /// Its last packet.
    pub last: At,
    /// Number of its packets.
    pub packets: u32,
    /// Length in bytes, transport header included.
    pub octets: u64,
    /// Length of the transport header in bytes.
    pub header: u64,
    /// Its kind.
    pub kind: MessageKind,
    /// The type of its header by its name in the documents, such as `RDMA_MSG`.
    pub name: &'static str,
    /// Its header in a few words: chunks, parts, properties.
    pub summary: String,
    /// The credits that its header requests or grants (in version-two-07, the total that the peer may
    /// have sent).
    pub credits: u32,
    /// The handle that it invalidates (Send With Invalidate).
    pub invalidates: Option<u32>,
    /// Whether it waited for a grant of its receiver that came after the message before it.
    pub waited: bool,
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A call, or the first part of one.
    Call,
    /// A further part of a call.
    CallPart,
    /// A reply, or the first part of one.
    Reply,
    /// A further part of a reply.
    ReplyPart,
    /// An error of the transport.
    Error,
    /// A message about the connection: grant, properties.
    Control,
    /// A message that cannot be decoded.
    Unknown,
}

/// The list of a header that names memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// A read chunk at this position; position zero is the RPC message itself.
    Read(u32),
    /// The write chunk with this index, from 0.
    Write(u32),
    /// The reply chunk.
    Reply,
}

/// A segment of memory that a call offers.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The list that names it.
    pub list: List,
    /// Its handle.
    pub handle: u32,
    /// Its offset.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u32,
    /// Bytes that were moved, in the capture.
    pub moved: u64,
    /// Length that the reply returns for it; `None` for read chunks and without such a reply.
    pub returned: Option<u32>,
}

/// The kind of an RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
}

/// An RDMA Read or Write.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its kind.
    pub kind: OperationKind,
    /// The end that began it.
    pub by: Side,
    /// The request of an RDMA Read, if it is in the capture.
    pub request: Option<At>,
    /// The first packet with data.
    pub first: At,
    /// The last packet with data.
    pub last: At,
    /// Number of packets with data.
    pub packets: u32,
    /// The handle of the call's memory.
    pub handle: u32,
    /// The offset in that memory.
    pub offset: u64,
    /// Length in bytes: of an RDMA Read what it asks for.
    pub octets: u64,
    /// The chunk of the call that it belongs to.
    pub list: List,
    /// Whether all of its data was seen.
    pub is_complete: bool,
}

impl Procedure {
    /// Returns the name of the procedure, such as `WRITE`, if it is known here.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        let names: &[&'static str] = match (self.program, self.version) {
            (NFS_PROGRAM, NFS_VERSION) => nfs::NAMES,
            (MOUNT_PROGRAM, MOUNT_VERSION) => mnt::NAMES,
            (NFS_PROGRAM, NFS_VERSION_4) => &["NULL", "COMPOUND"],
            _ => return (self.number == 0).then_some("NULL"),
        };
        names.get(self.number as usize).copied()
    }
}

/// `NFS3 WRITE`, or the numbers of what is not known here.
impl fmt::Display for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.program {
            NFS_PROGRAM => write!(f, "NFS{}", self.version)?,
            MOUNT_PROGRAM => write!(f, "MOUNT{}", self.version)?,
            program => write!(f, "program {program} version {}", self.version)?,
        }
        match self.name() {
            Some(name) => write!(f, " {name}"),
            None => write!(f, " procedure {}", self.number),
        }
    }
}
