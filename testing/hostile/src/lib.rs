//! A scripted hostile peer: it speaks correct MPA, DDP, RDMAP and RPC-over-RDMA, and then lies.
//!
//! A *case* is data: a name, the section of the document that says what must come of it, a script,
//! and the expected end. [`cases`] has the tables. [`client`] runs those in which a hostile client
//! talks to the real server, [`server`] those in which a hostile server talks to the real client;
//! [`wire`] is what both say, [`rig`] is the honest company that must not notice.
//!
//! A case fails if anything comes that the script does not expect, or does not come; if a bystander's
//! connection, made before, does not go on moving the right data; if memory or sockets do not all
//! come back; or if more memory was taken than the case may cost its victim.

#![forbid(unsafe_code)]

pub mod cases;
pub mod client;
pub mod peer;
pub mod rig;
pub mod server;
pub mod stream;
pub mod wire;

use std::fmt::Display;

/// How a connection that was lied on must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not at all: the next call on it is answered as any other.
    Lives,
    /// By this Terminate, and a close in order behind it.
    Terminate(wire::ddp::Code),
    /// By FIN, with nothing before it.
    Closed,
    /// By RST, which may come before or behind what was on its way.
    Reset,
    /// By the script itself, or in the middle of what nobody listens to.
    Left,
}

/// What is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

/// Says what is wrong.
pub fn wrong(what: impl Display) -> Wrong {
    Wrong(what.to_string())
}

/// Bytes that a case may cost its victim, unless it says otherwise: less than any lie that is
/// believed.
pub const GROWTH: usize = 512 << 10;
