//! Workloads: kinds of calls whose cost is measured, by the clock and in a simulation.
//!
//! A [`Workload`] is a shape of calls of any RPC program. It creates what the calls need
//! ([`Workload::prepare`]), and then makes one call after the other and checks the replies
//! ([`Calls`]). Those that `rpcrdma compare` measures are [`Op`]. If the program is one of its own,
//! the workload has the service as well ([`Workload::service`]), which servers of measurements add
//! to theirs. [`drive`] performs its operations, with several in flight, or at a rate.
//!
//! ```
//! use onc_rpc::Encoder;
//! use rpc_transport::{
//!     Call, Procedures, ProgramVersions, Reply, ReplyRoom, Service, ServiceOutcome,
//! };
//! use rpcrdma_programs::workload::{Calls, Failed, Prepare, Server, Workload};
//!
//! /// The program number, from the range that needs no assignment (RFC 5531, section 8.3).
//! const COUNTER: ProgramVersions = ProgramVersions::only(0x2000_7777, 1);
//! const ADD: u32 = 1;
//!
//! /// Calls that add a number to a counter of the server, and return the sum.
//! #[derive(Debug)]
//! struct Add(u32);
//!
//! impl Workload for Add {
//!     fn name(&self) -> &'static str {
//!         "add"
//!     }
//!
//!     fn service(&self) -> Option<Box<dyn Service>> {
//!         let mut sum = 0u32;
//!         // It has one procedure, whatever number the call has.
//!         let counter = Procedures::new(COUNTER, move |request| {
//!             let mut args = request.args();
//!             let number = args.u32()?;
//!             args.finish()?;
//!             sum = sum.saturating_add(number);
//!             let mut results = Encoder::new();
//!             results.u32(sum);
//!             Ok(ServiceOutcome::Done(Ok(results.finish())))
//!         });
//!         Some(Box::new(counter.remembering(&[ADD])))
//!     }
//!
//!     fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
//!         Box::pin(async { Ok(Box::new(Add(self.0)) as Box<dyn Calls>) })
//!     }
//! }
//!
//! impl Calls for Add {
//!     fn name(&self) -> &'static str {
//!         "ADD"
//!     }
//!
//!     fn call(&self, _: u64) -> Call {
//!         let mut args = Encoder::new();
//!         args.u32(self.0);
//!         Call::new(COUNTER, ADD, args.finish(), ReplyRoom::new(4, []))
//!     }
//!
//!     fn check(&self, _: u64, reply: &Reply) -> Result<(), Failed> {
//!         match reply.results().u32() {
//!             Ok(sum) if sum >= self.0 => Ok(()),
//!             other => Err(Failed::new("ADD", format!("{other:?} is no sum"))),
//!         }
//!     }
//! }
//!
//! let add: &dyn Workload = &Add(7);
//! assert_eq!(add.to_string(), "add");
//! ```

mod drive;
mod nfs;
mod op;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use nfs_binding::proto::FileHandle;
use rpc_transport::{Call, CallError, Reply, Service};

pub use drive::{MOST_WAITING, Pace, Until, drive};
pub use nfs_binding::client::RpcClient;
pub use op::{LONG, Op};

/// A future of this module's traits.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The preparation of calls.
pub type Prepare<'a> = Work<'a, Result<Box<dyn Calls>, Failed>>;

/// The direction in which an operation moves its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    FromServer,
}

/// A kind of calls whose cost is measured.
///
/// A measurement counts *operations*: each is one call, or [`Workload::calls`] that are in flight
/// together.
pub trait Workload: fmt::Debug + Send + Sync {
    /// Returns the name in options, tables and rows.
    fn name(&self) -> &'static str;

    /// Returns the bytes of data that an operation moves, if it moves data.
    fn size(&self) -> Option<u32> {
        None
    }

    /// Returns the same calls with this number of bytes of data, of which `compare --sizes` makes rows.
    /// `None` if they cannot have that many; by default, calls are what they are.
    fn sized(&self, size: u32) -> Option<Arc<dyn Workload>> {
        let _ = size;
        None
    }

    /// Returns the direction of these data, or `None` if there are none, or as many in both.
    fn direction(&self) -> Option<Direction> {
        None
    }

    /// Returns the number of calls in flight that make up an operation. It is at least 1.
    fn calls(&self) -> u32 {
        1
    }

    /// Returns the service of the calls' program, a new one for each server. `None`: the program is
    /// NFS version 3, MOUNT, or that of [`Probe`](crate::Probe), which all servers of measurements
    /// have.
    fn service(&self) -> Option<Box<dyn Service>> {
        None
    }

    /// Creates what the calls of one client need on a server. Returns the calls.
    ///
    /// # Errors
    /// The future fails if a call fails, or the server refuses it.
    fn prepare<'a>(&'a self, server: Server<'a>) -> Prepare<'a>;
}

impl dyn Workload + '_ {
    /// Returns whether its data can have other lengths ([`Workload::sized`]).
    #[must_use]
    pub fn has_sizes(&self) -> bool {
        self.size().is_some_and(|size| self.sized(size).is_some())
    }
}

impl fmt::Display for dyn Workload + '_ {
    /// Writes the name, with the size if there is one: `read 8 KiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.size() {
            Some(size) if size >= 1 << 20 && size.trailing_zeros() >= 20 => {
                write!(f, " {} MiB", size >> 20)
            }
            Some(size) if size >= 1 << 10 && size.trailing_zeros() >= 10 => {
                write!(f, " {} KiB", size >> 10)
            }
            Some(size) => write!(f, " {size} B"),
            None => Ok(()),
        }
    }
}

/// The calls of a workload, for one client on one server.
pub trait Calls {
    /// Returns the name of the procedure, for errors.
    fn name(&self) -> &'static str;

    /// Returns the call with this number. Calls are numbered from 0. An operation of several calls
    /// has consecutive numbers, the first of which is a multiple of [`Workload::calls`].
    fn call(&self, number: u64) -> Call;

    /// Checks the reply to the call with this number.
    ///
    /// # Errors
    /// The reply is not that of a call that did all of its work.
    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed>;
}

/// The error of a call of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failed {
    /// The procedure.
    pub what: &'static str,
    /// The reason.
    pub why: String,
}

impl Failed {
    /// Creates the error of a procedure.
    pub fn new(what: &'static str, why: impl fmt::Display) -> Self {
        Self {
            what,
            why: why.to_string(),
        }
    }
}

/// A client of any kind, which makes calls.
trait Caller {
    fn make(&self, call: Call) -> Work<'_, Result<Reply, CallError>>;

    fn pause(&self, duration: Duration) -> Work<'_, ()>;
}

impl<C: RpcClient> Caller for C {
    fn make(&self, call: Call) -> Work<'_, Result<Reply, CallError>> {
        Box::pin(self.call(call))
    }

    fn pause(&self, duration: Duration) -> Work<'_, ()> {
        Box::pin(self.sleep(duration))
    }
}

/// The server on which a workload prepares its calls. It makes calls as an [`RpcClient`].
#[derive(Clone, Copy)]
pub struct Server<'a> {
    caller: &'a dyn Caller,
    directory: Option<FileHandle>,
    client: u32,
}

impl<'a> Server<'a> {
    /// Creates the view of a server over `client`, a connection to it. In `directory`, workloads may
    /// create files; `None` if the server has no NFS. `number` is that of this client, among those
    /// that make the same calls.
    #[must_use]
    pub fn new(client: &'a impl RpcClient, directory: Option<FileHandle>, number: u32) -> Self {
        Self {
            caller: client,
            directory,
            client: number,
        }
    }

    /// Returns the directory in which a workload may create files.
    ///
    /// # Errors
    /// The server has no NFS.
    pub fn directory(&self) -> Result<FileHandle, Failed> {
        let none = || Failed::new("a directory", "this server has no file system");
        self.directory.ok_or_else(none)
    }

    /// Returns the number of this client, which makes names unique.
    #[must_use]
    pub fn client(&self) -> u32 {
        self.client
    }
}

impl fmt::Debug for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("directory", &self.directory)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl RpcClient for Server<'_> {
    fn call(&self, call: Call) -> impl Future<Output = Result<Reply, CallError>> {
        self.caller.make(call)
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.caller.pause(duration)
    }
}

/// A workload that is ready to be performed by one client.
pub struct Prepared {
    calls: Box<dyn Calls>,
    /// The number of calls of an operation.
    each: u32,
}

impl Prepared {
    /// Prepares a workload.
    ///
    /// # Errors
    /// A call fails, or the server refuses it.
    pub async fn new(workload: &dyn Workload, server: Server<'_>) -> Result<Self, Failed> {
        Ok(Self {
            calls: workload.prepare(server).await?,
            each: workload.calls().max(1),
        })
    }

    /// Returns calls that need no preparation, of which each is an operation.
    #[must_use]
    pub fn of(calls: Box<dyn Calls>) -> Self {
        Self { calls, each: 1 }
    }

    /// Performs the operation with this number, and checks its replies.
    ///
    /// # Errors
    /// A call fails, or did not do all of its work.
    pub async fn perform(&self, rpc: &impl RpcClient, number: u64) -> Result<(), Failed> {
        if self.each == 1 {
            return self.make(rpc, number).await;
        }
        let first = number.wrapping_mul(u64::from(self.each));
        let calls = (0..u64::from(self.each)).map(|call| self.make(rpc, first.wrapping_add(call)));
        try_join_all(calls).await.map(drop)
    }

    async fn make(&self, rpc: &impl RpcClient, number: u64) -> Result<(), Failed> {
        let reply = rpc.call(self.calls.call(number)).await;
        let reply = reply.map_err(|error| Failed::new(self.calls.name(), error))?;
        self.calls.check(number, &reply)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("name", &self.calls.name())
            .field("each", &self.each)
            .finish()
    }
}
