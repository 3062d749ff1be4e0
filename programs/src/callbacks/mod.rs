//! A test program with calls in both directions on one connection (RFC 8167): two small RPC
//! programs, with both ends of each.
//!
//! A client orders callbacks ([`Order`]) with the *forward* program, which the server implements
//! ([`Orders`]). The server makes them with the *backward* program, which the client implements
//! ([`Answers`]). By ordering callbacks, the client's upper layer announces that it accepts them
//! (RFC 8167, section 6). Every callback carries data that both ends can check, as an item that may
//! be sent in a chunk, and both ends count ([`Tally`]). [`run`] does all of this.
//!
//! The program numbers are from the unassigned range (RFC 5531, section 8.3).
//!
//! A client over TCP, of a server that has [`Orders`] as its service and allows callbacks:
//!
//! ```no_run
//! use std::cell::RefCell;
//! use std::rc::Rc;
//!
//! use rpc_transport::{Client, ClientOptions, Runtime, TcpClient, TcpOptions};
//! use rpcrdma_programs::callbacks::{Answers, Order, run};
//!
//! let runtime = Runtime::new()?;
//! let (answers, options) = (Answers::new(), TcpOptions { callbacks: true, ..TcpOptions::default() });
//! let client = runtime.block_on(Client::connect_with_callbacks(
//!     &runtime,
//!     "127.0.0.1:2049".parse()?,
//!     Rc::new(RefCell::new(TcpClient::new(options))),
//!     ClientOptions::default(),
//!     Box::new(answers.clone()),
//! ))?;
//! let order = Order { count: 100, at_a_time: 10, call_len: 200, ..Order::default() };
//! // The ticket is 1.
//! let tally = runtime.block_on(run(&client, 1, order))?;
//! assert_eq!(tally.answered, 100);
//! assert_eq!(answers.seen().count(), 100);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod answers;
mod client;
mod orders;
mod wire;

use rpc_transport::ProgramVersions;

pub use answers::{Answers, Seen};
pub use client::{echo, null, run};
pub use orders::{Orders, Totals};
pub use wire::{MAX_AT_A_TIME, MAX_BYTES_AT_A_TIME, MAX_LEN, MAX_ORDERED, Order, Tally};

/// The forward program, with which a client orders callbacks and queries their results.
pub const FORWARD: ProgramVersions = ProgramVersions {
    prog: 0x4000_8167,
    low: 1,
    high: 1,
};

/// The backward program, which a server calls at a client.
pub const BACKWARD: ProgramVersions = ProgramVersions {
    prog: 0x4000_8168,
    low: 1,
    high: 1,
};

/// The procedures of both programs: do nothing, and return the data.
const NULL: u32 = 0;
const ECHO: u32 = 1;
/// The procedures of the forward program only: start an order, and return its results so far.
const ORDER: u32 = 2;
const STATE: u32 = 3;
