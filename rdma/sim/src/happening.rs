//! What a fabric tells those who watch it.

use std::fmt;

use bytes::Bytes;

use super::End;
use rdma::{Event, SendWr, Stag, Success, Time};

/// Something that happened in a fabric.
#[derive(Debug)]
#[non_exhaustive]
pub enum Happening<'a> {
    /// A host wants to connect, with this private data.
    Connecting(End, &'a Bytes),
    /// A request was posted to a send queue.
    Posted(End, &'a SendWr),
    /// A message arrived in a receive buffer, of which so many are left.
    Arrived(End, usize, usize),
    /// A message arrived, so long, that the receive it fell into could not hold.
    TooLong(End, usize),
    /// A message arrived and there was no receive for it.
    Overrun(End),
    /// A tagged access of the peer's was carried out: bytes placed or taken.
    Accessed(End, Access),
    /// One was refused, and the connection ended.
    Refused(End, Access),
    /// The response to an RDMA Read arrived.
    Fetched(End, usize),
    /// Memory was registered.
    Registered(End, Stag, usize),
    /// A registration failed, as a fault.
    NotRegistered(End),
    /// A handle was made invalid; by the peer's Send, or here.
    Invalidated(End, Stag, bool),
    /// The owner took an event.
    Taken(End, &'a Event),
    /// A sleeping owner was woken.
    Interrupt(super::NodeId),
    /// The network lost the connection, as a fault.
    Lost(End),
    /// The end is over: what was registered for it is out of reach.
    Over(End),
    /// The owner ends the connection at once.
    Aborted(End),
    /// The owner ends the connection in order.
    Closed(End),
    /// The host is gone with everything it had.
    Crashed(super::NodeId),
}

/// An access to memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Write, or read.
    pub write: bool,
    /// The handle.
    pub stag: Stag,
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

/// Watches a fabric. It must not use the fabric from within.
pub trait Observer {
    /// Something happened.
    fn happened(&mut self, at: Time, what: &Happening<'_>);
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

impl fmt::Display for Happening<'_> {
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
