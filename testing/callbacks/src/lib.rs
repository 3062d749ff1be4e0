//! A test program with calls in both directions on one connection (RFC 8167): two small RPC programs,
//! and both ends of each.
//!
//! A client orders callbacks ([`Order`]) with the *forward* program, which the server implements
//! ([`Orders`]); the server makes them with the *backward* program, which the client implements
//! ([`Answers`]). That the client orders any is how its upper layer says that it takes them (RFC 8167,
//! section 6). Every callback carries data that both ends can check, as an item that may travel in a
//! chunk, and both ends count ([`Tally`]). [`run`] does it all.
//!
//! The numbers of the programs are from the range that is nobody's (RFC 5531, section 8.4.2).

#![forbid(unsafe_code)]

mod answers;
mod client;
mod orders;
mod wire;

use rpc_transport::Programs;

pub use answers::{Answers, Seen};
pub use client::{echo, null, run};
pub use orders::{Orders, Totals};
pub use wire::{MAX_AT_A_TIME, MAX_BYTES_AT_A_TIME, MAX_LEN, MAX_ORDERED, Order, Tally};

/// The forward program: a client orders callbacks and asks what became of them.
pub const FORWARD: Programs = Programs {
    prog: 0x4000_8167,
    low: 1,
    high: 1,
};

/// The backward program: what a server calls at a client.
pub const BACKWARD: Programs = Programs {
    prog: 0x4000_8168,
    low: 1,
    high: 1,
};

/// Procedures of both programs: nothing, and data there and back.
pub(crate) const NULL: u32 = 0;
pub(crate) const ECHO: u32 = 1;
/// Procedures of the forward program alone: begin with an order, and tell what became of it so far.
pub(crate) const ORDER: u32 = 2;
pub(crate) const STATE: u32 = 3;
