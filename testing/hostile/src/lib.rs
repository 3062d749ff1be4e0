//! A scripted hostile peer: it speaks correct MPA, DDP, RDMAP and RPC-over-RDMA up to a point, and
//! then violates the protocol.
//!
//! A *case* is data: a name, the section of the specification that determines the result, a script,
//! and the expected end of the connection. [`cases`] has the tables. [`client`] runs cases in which
//! a hostile client talks to the real server, [`server`] cases in which a hostile server talks to
//! the real client. [`wire`] encodes the messages of both, and [`rig`] is the test fixture: a real
//! server with an honest client (the bystander), which must not be affected.
//!
//! A case fails if an unexpected message comes or an expected one does not, if the bystander's
//! connection, which was established before, does not continue to transfer the right data, if
//! memory or sockets are not all released, or if more memory was used than the case allows.
//!
//! ```
//! use hostile::End;
//! use hostile::client::{Step, case, run};
//! use hostile::rig::{Fixture, Form, Timeouts};
//!
//! let request = b"GET / HTTP/1.1\r\n\r\n".to_vec();
//! let script = vec![Step::Connect, Step::Bytes(request)];
//! let case = case("another protocol", "RFC 5044, 7.1.1", script, End::Closed);
//! run(&case, &mut Fixture::start(Timeouts::LONG, Form::First)?)?;
//! # Ok::<_, hostile::Wrong>(())
//! ```

#![forbid(unsafe_code)]

pub mod cases;
pub mod client;
pub mod process;
pub mod rig;
pub mod server;

pub use rpcrdma_conform::{peer, stream, wire};

use std::fmt::Display;

/// The expected end of a case's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The connection must not end: the next call on it is answered as usual.
    Lives,
    /// The connection ends by a Terminate with this code, followed by a graceful close.
    Terminate(wire::ddp::Code),
    /// FIN, without a message before it.
    Closed,
    /// RST, which may come before or after messages that were on the way.
    Reset,
    /// An end by the script itself, or at a time when the script does not read.
    Left,
}

/// A deviation from the expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

/// Creates the description of a deviation.
pub fn wrong(what: impl Display) -> Wrong {
    Wrong(what.to_string())
}

/// The default maximum memory growth of a case in bytes: less than any lie that is believed would
/// cost, and more than the first receives that all connections of a host share, which come with its
/// first connection.
pub const GROWTH: usize = 1 << 20;
