//! Events that a fabric reports to its observer.

use std::fmt;

use bytes::Bytes;

use super::{End, NodeId};
use rdma::{Event, SendWr, SharedReceivesId, Stag, Success, Time, WrId};

/// An event in a fabric.
#[derive(Debug)]
#[non_exhaustive]
pub enum FabricEvent<'a> {
    /// A host sent a connection request with this private data.
    Connecting(End, &'a Bytes),
    /// A request was posted to a send queue.
    Posted(End, &'a SendWr),
    /// A message was received. The numbers are its length in bytes and the number of receives left.
    Arrived(End, usize, usize),
    /// A message of this length in bytes was longer than its receive.
    TooLong(End, usize),
    /// A message arrived without a posted receive.
    Overrun(End),
    /// A message of this length in bytes arrived, and waits for a receive of the shared receive
    /// queue, because there is none or others wait already.
    Waits(End, usize),
    /// A receive was posted to a shared receive queue.
    ReceivePosted(NodeId, SharedReceivesId, WrId),
    /// The owner has withdrawn a receive from a shared receive queue.
    ReceiveWithdrawn(NodeId, SharedReceivesId, WrId),
    /// A message has taken a receive from the shared receive queue.
    ReceiveTaken(End, SharedReceivesId, WrId),
    /// A tagged access of the peer was executed.
    Accessed(End, Access),
    /// A tagged access of the peer was refused, and the connection ended.
    Refused(End, Access),
    /// The response to an RDMA Read arrived, with this length in bytes.
    Fetched(End, usize),
    /// Memory of this length in bytes was registered.
    Registered(End, Stag, usize),
    /// A registration failed because of an injected fault.
    NotRegistered(End),
    /// A handle was invalidated; the flag tells whether a Send of the peer did it.
    Invalidated(End, Stag, bool),
    /// The owner's poll returned an event.
    Taken(End, &'a Event),
    /// A sleeping owner was woken by an interrupt.
    Interrupt(NodeId),
    /// A device sent this number of packets again, because the link had lost them.
    SentAgain(End, usize),
    /// The network lost the connection because of an injected fault.
    Lost(End),
    /// The end of the connection is over, and its registrations are invalid.
    Over(End),
    /// The owner aborted the connection.
    Aborted(End),
    /// The owner closed the connection gracefully.
    Closed(End),
    /// The host crashed.
    Crashed(NodeId),
}

/// An access to the other side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether the access is an RDMA Write; otherwise it is an RDMA Read.
    pub write: bool,
    /// Handle of the memory.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
}

/// An observer of a fabric. It must not call the fabric.
pub trait Observer {
    /// Reports an event at time `at`.
    fn event(&mut self, at: Time, what: &FabricEvent<'_>);
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.write { "write" } else { "read" };
        let Self {
            stag, offset, len, ..
        } = self;
        write!(f, "{what} of {len} bytes at {stag}+{offset:#x}")
    }
}

impl fmt::Display for FabricEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting(end, _) => write!(f, "{end} connects"),
            Self::Posted(end, wr) => {
                write!(f, "{end} posts ")?;
                posted(f, wr)
            }
            Self::Arrived(end, len, left) => {
                write!(f, "{end} receives {len} bytes, {left} receives left")
            }
            Self::TooLong(end, len) => write!(f, "{end} {len} bytes are TOO LONG for a receive"),
            Self::Overrun(end) => write!(f, "{end} OVERRUN: a message found no receive"),
            Self::Waits(end, len) => {
                write!(f, "{end} a message of {len} bytes WAITS for a receive")
            }
            Self::ReceivePosted(node, queue, id) => {
                write!(f, "{node} posts receive {:#x} to queue {}", id.0, queue.0)
            }
            Self::ReceiveWithdrawn(node, queue, id) => {
                write!(
                    f,
                    "{node} withdraws receive {:#x} from queue {}",
                    id.0, queue.0
                )
            }
            Self::ReceiveTaken(end, queue, id) => {
                write!(f, "{end} takes receive {:#x} of queue {}", id.0, queue.0)
            }
            Self::Accessed(end, access) => write!(f, "{end} serves a {access}"),
            Self::Refused(end, access) => write!(f, "{end} REFUSES a {access}"),
            Self::Fetched(end, len) => write!(f, "{end} has {len} bytes read"),
            Self::Registered(end, stag, len) => write!(f, "{end} registers {len} bytes as {stag}"),
            Self::NotRegistered(end) => write!(f, "{end} fault: a registration fails"),
            Self::Invalidated(end, stag, remote) => {
                let by = if *remote { "the peer" } else { "its owner" };
                write!(f, "{end} {stag} invalidated by {by}")
            }
            Self::Taken(end, event) => {
                write!(f, "{end} is told: ")?;
                taken(f, event)
            }
            Self::Interrupt(node) => write!(f, "{node} interrupt"),
            Self::SentAgain(end, packets) => write!(f, "{end} sends {packets} lost packets again"),
            Self::Lost(end) => write!(f, "{end} fault: connection lost"),
            Self::Over(end) => write!(f, "{end} is over"),
            Self::Aborted(end) => write!(f, "{end} aborts"),
            Self::Closed(end) => write!(f, "{end} closes"),
            Self::Crashed(node) => write!(f, "{node} fault: crash"),
        }
    }
}

fn posted(f: &mut fmt::Formatter<'_>, wr: &SendWr) -> fmt::Result {
    match wr {
        SendWr::Send { gather, invalidate } => {
            let len: usize = gather.iter().map(Bytes::len).sum();
            write!(f, "Send of {len} bytes")?;
            match invalidate {
                Some(stag) => write!(f, ", invalidating {stag}"),
                None => Ok(()),
            }
        }
        SendWr::Write {
            gather,
            stag,
            offset,
        } => {
            let len: usize = gather.iter().map(Bytes::len).sum();
            write!(f, "Write of {len} bytes to {stag}+{offset:#x}")
        }
        SendWr::Read { sink, stag, offset } => {
            write!(f, "Read of {} bytes at {stag}+{offset:#x}", sink.len())
        }
        SendWr::Invalidate { stag } => write!(f, "Invalidate of {stag}"),
    }
}

fn taken(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    match event {
        Event::ConnectRequest(request) => write!(f, "connection request from {}", request.peer),
        Event::SharedReceivesLow { .. } => write!(f, "few shared receives left"),
        Event::Removed => write!(f, "device removed"),
        Event::Established { .. } => write!(f, "established"),
        Event::ConnectFailed { error, .. } => write!(f, "not connected: {}", error),
        Event::Disconnected { reason, .. } => write!(f, "disconnected: {}", reason),
        Event::Completion(completion) => match &completion.result {
            Ok(Success::Send) => write!(f, "Send done"),
            Ok(Success::Write) => write!(f, "Write done"),
            Ok(Success::Read { sink }) => write!(f, "Read of {} bytes done", sink.len()),
            Ok(Success::Invalidate) => write!(f, "Invalidate done"),
            Ok(Success::Receive { buf, .. }) => write!(f, "message of {} bytes", buf.len()),
            Err(failed) => write!(f, "work failed: {}", failed.error),
        },
    }
}
