//! Message continuation: RPC messages in one or several transmissions, with bulk data placed by
//! them or transferred separately (draft-dnoveck-nfsv4-rpcrdma-rtrext-00, sections 4, 5, 8 and 9).
//! No I/O and no clock.
//!
//! [`Transmit`] is the state of one end of a connection: an
//! [`Extension`](rpcrdma_extension::Extension) of version 2 that owns the draft's four
//! operations, announces what it accepts ([`Config`]), and carries RPC messages if both ends
//! support it ([`decide`]) and the connection engine finds it cheapest. The crate
//! `rpcrdma-ext-send-ddp` computes where bulk data goes; this crate divides messages into groups,
//! receives and reassembles groups, abandons broken ones and reports errors.
//!
//! Either feature works without the other: a message of one transmission can have placed bulk data,
//! and a message of several can have none. An end that supports a feature in one direction only
//! uses it in that direction only.
//!
//! ```
//! use rpcrdma_ext_continuation::{Config, Features, Transmit};
//! use rpcrdma_extension::layout::BufferStructure;
//!
//! let features: Features = "ddp+cont:receive".parse()?;
//! assert_eq!(features.to_string(), "ddp+cont:receive");
//! let transmit = Transmit::new(Config {
//!     features,
//!     takes_calls: true,
//!     structure: BufferStructure::with_placement(1024, 1, 65_536),
//!     request_limit: 16,
//!     response_limit: 16,
//!     min_placed: 512,
//!     max_message: 1 << 22,
//!     max_send: 1 << 20,
//! });
//! // The peer is told that calls of up to 16 transmissions are accepted, and replies have 1.
//! assert_eq!(transmit.config().max_call_transmissions(), 16);
//! assert_eq!(transmit.config().max_reply_transmissions(), 1);
//! // Nothing may be used before the peer has announced what it supports.
//! assert!(!transmit.usable().requests);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Section numbers are those of rtrext-00. MUSTS.md beside the manifest lists its requirements with
//! the name of the test for each; drafts/errata.md lists what the draft leaves open.
//!
//! Both features of round-trip reduction are one extension because they share their operations. It
//! offers several candidates for a call, because a placed reply and a written one cost different
//! things. Nothing of a message is delivered before its whole group has arrived and is consistent;
//! an error is reported once for a group, and the rest of that group is dropped without a report.

#![forbid(unsafe_code)]

mod agreed;
mod characteristic;
mod config;
mod emit;
mod factory;
mod group;
mod operation;
mod receive;
mod report;
mod transmit;

pub use characteristic::{RequestReceiveLimit, ResponseSendLimit, register};
pub use config::{Config, Directions, Features, PeerAnnouncements, UnknownFeature, Usable, decide};
pub use factory::Factory;
pub use operation::{Continuation, Request, Response, XMTCONT, XMTERR, XMTREQ, XMTRESP};
pub use report::{Fault, OutOfRange, Report, TransmissionId};
pub use transmit::Transmit;
