//! Message continuation: RPC messages in one transmission or several, with their bulk data placed in
//! them or apart (draft-dnoveck-nfsv4-rpcrdma-rtrext-00, sections 4, 5, 8 and 9). No I/O and no clock.
//!
//! [`Transmit`] is an end's state on one connection: an
//! [`Extension`](rpcrdma_v2::extension::Extension) of version 2 that owns the document's four
//! operations, tells the peer what it takes ([`Config`]), and carries RPC messages where that is
//! what both ends can do ([`decide`]) and the connection engine finds it cheapest. Where bulk data
//! goes is the arithmetic of the crate `rpcrdma-ext-send-ddp`; here are the groups: cut, sent,
//! received, put together, abandoned, reported.
//!
//! Either feature works without the other: messages of one transmission with bulk data placed in
//! it, and messages of several without anything placed. What an end only sends or only receives, it
//! does only so far.
//!
//! ```
//! use rpcrdma_ext_continuation::{Config, Features, Transmit};
//! use rpcrdma_ext_send_ddp::BufferStructure;
//!
//! let features: Features = "ddp+cont:receive".parse()?;
//! assert_eq!(features.to_string(), "ddp+cont:receive");
//! let transmit = Transmit::new(Config {
//!     features,
//!     structure: BufferStructure::with_placement(1024, 1, 65_536),
//!     request_limit: 16,
//!     response_limit: 16,
//!     min_placed: 512,
//!     max_message: 1 << 22,
//!     max_send: 1 << 20,
//! });
//! // It is told to the peer that calls of 16 transmissions are taken, and replies of 1 are sent.
//! assert_eq!((transmit.config().takes(), transmit.config().sends()), (16, 1));
//! // Nothing may be used before the peer has said what it can do.
//! assert!(!transmit.usable().requests);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Section numbers are those of rtrext-00. MUSTS.md beside the manifest lists its requirements and
//! the test that is named after each; what it leaves open is in drafts/errata.md.

#![forbid(unsafe_code)]

mod call;
mod characteristic;
mod config;
mod cut;
mod emit;
mod group;
mod operation;
mod receive;
mod replies;
mod reply;
mod report;
mod transmit;

pub use characteristic::{RequestReceiveLimit, ResponseSendLimit, register};
pub use config::{Config, Features, PeerSaid, UnknownFeature, Usable, Ways, decide};
pub use operation::{Continuation, Request, Response, XMTCONT, XMTERR, XMTREQ, XMTRESP};
pub use report::{Fault, OutOfRange, Report, TransmissionId};
pub use transmit::Transmit;
