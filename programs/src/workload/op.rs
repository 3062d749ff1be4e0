//! The operations that `rpcrdma compare` measures.

use std::fmt;

use bytes::Bytes;
use nfs_binding::proto::FileHandle;
use nfs_binding::server::MAX_TRANSFER;
use rpc_transport::{Call, Reply};

use super::nfs::{Made, folder, written};
use super::{Calls, Direction, Failed, Prepare, Prepared, Server, Workload};
use crate::Long;

/// The usual length of long calls and replies, in bytes.
pub const LONG: u32 = 64 << 10;
/// One XDR word: the shortest reply with content.
const SHORT: u32 = 4;

/// A standard operation: a [`Workload`] of NFS version 3, or with long messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// NULL.
    Null,
    /// GETATTR of a file.
    Getattr,
    /// A read of this many bytes from the start of a file: one READ, or several in flight for more
    /// than [`MAX_TRANSFER`] bytes.
    Read(u32),
    /// An unstable write of this many bytes to the start of a file: one WRITE, or several in flight
    /// for more than [`MAX_TRANSFER`] bytes.
    Write(u32),
    /// A READDIRPLUS of this many bytes, of a larger directory.
    Readdirplus(u32),
    /// A call with this many bytes that are not DDP-eligible.
    LongCall(u32),
    /// A call with this many bytes that are not DDP-eligible, and a reply of the same length.
    LongBoth(u32),
}

impl Op {
    /// Returns the first call that a client makes for this operation if it reads at most `rsize`
    /// and writes at most `wsize` bytes at a time.
    #[must_use]
    pub fn limited(self, rsize: Option<u32>, wsize: Option<u32>) -> Self {
        let least = |size: u32, limit: Option<u32>| limit.map_or(size, |limit| size.min(limit));
        match self {
            Self::Read(size) => Self::Read(least(size, rsize)),
            Self::Write(size) => Self::Write(least(size, wsize)),
            other => other,
        }
    }

    /// Returns this operation on a file that exists and is long enough: NULL, which needs none,
    /// GETATTR, and READ and WRITE of one call. `None` for others, which have to be prepared.
    #[must_use]
    pub fn on(self, file: Option<FileHandle>) -> Option<Prepared> {
        let made = match self {
            Self::Null => Made::Null,
            Self::Getattr => Made::Getattr(file?),
            Self::Read(size) if self.calls() == 1 => Made::Read(file?, size),
            Self::Write(size) if self.calls() == 1 => Made::Write(file?, data(size)),
            _ => return None,
        };
        Some(Prepared::of(Box::new(made)))
    }
}

impl Workload for Op {
    fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Getattr => "getattr",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Readdirplus(_) => "readdirplus",
            Self::LongCall(_) => "long-call",
            Self::LongBoth(_) => "long-both",
        }
    }

    fn size(&self) -> Option<u32> {
        match *self {
            Self::Null | Self::Getattr => None,
            Self::Read(size)
            | Self::Write(size)
            | Self::Readdirplus(size)
            | Self::LongCall(size)
            | Self::LongBoth(size) => Some(size),
        }
    }

    fn direction(&self) -> Option<Direction> {
        match self {
            Self::Null | Self::Getattr | Self::LongBoth(_) => None,
            Self::Read(_) | Self::Readdirplus(_) => Some(Direction::FromServer),
            Self::Write(_) | Self::LongCall(_) => Some(Direction::ToServer),
        }
    }

    fn calls(&self) -> u32 {
        match self {
            // A transfer of no bytes is a call, too.
            Self::Read(size) | Self::Write(size) => size.div_ceil(MAX_TRANSFER).max(1),
            _ => 1,
        }
    }

    fn prepare<'a>(&'a self, server: Server<'a>) -> Prepare<'a> {
        Box::pin(async move {
            let calls: Box<dyn Calls> = match *self {
                Self::Null => Box::new(Made::Null),
                // GETATTR is of a file with content, as any other.
                Self::Getattr => Box::new(Made::Getattr(written(self, server, data(SHORT)).await?)),
                Self::Read(size) => {
                    let file = written(self, server, data(size)).await?;
                    Box::new(Made::Read(file, size))
                }
                Self::Write(size) => {
                    let file = written(self, server, data(size)).await?;
                    Box::new(Made::Write(file, data(size)))
                }
                Self::Readdirplus(size) => {
                    Box::new(Made::Readdirplus(folder(self, server, size).await?, size))
                }
                Self::LongCall(size) => Box::new(Prolonged("long-call", Long::new(size, SHORT))),
                Self::LongBoth(size) => Box::new(Prolonged("long-both", Long::new(size, size))),
            };
            Ok(calls)
        })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self as &dyn Workload, f)
    }
}

/// Returns the data of a file. They are not all zeroes, so that no layer can treat them specially.
fn data(size: u32) -> Bytes {
    let bytes: Vec<u8> = (0..size).map(|n| (n ^ n >> 8) as u8).collect();
    bytes.into()
}

/// A long call, with the name of the operation. It is encoded once, because encoding is not part of
/// the transfer.
struct Prolonged(&'static str, Long);

impl Calls for Prolonged {
    fn name(&self) -> &'static str {
        self.0
    }

    fn call(&self, _: u64) -> Call {
        self.1.call()
    }

    fn check(&self, _: u64, reply: &Reply) -> Result<(), Failed> {
        match self.1.is_answered(reply) {
            true => Ok(()),
            false => Err(Failed::new(self.0, "a wrong answer")),
        }
    }
}
