//! Transfer plans: for each part of an RPC message, whether it is sent inline or through a chunk.
//!
//! A plan is made for each message, from the message's [`Shape`], from the bounds of the reply or
//! the chunks that the requester offered, and from the connection's [`Limits`]. It is a value that
//! can be compared and printed in one line. This crate touches no device, buffer or clock and does
//! not encode headers; the protocol version only provides the length of a header
//! ([`Limits::header_len`]).
//!
//! ```
//! use transfer_plan::{ChunkCounts, ChunkLimits, Item, Limits, ReplyNeed, Shape, plan_call};
//!
//! let limits = Limits {
//!     inline_send: 4096,
//!     inline_receive: 4096,
//!     max_segment: 1 << 30,
//!     max_message: 1 << 22,
//!     chunks: ChunkLimits::default(),
//!     call_chunk: false,
//!     header_len: |chunks: &ChunkCounts| 28 + 24 * chunks.read_segments,
//! };
//! let write = Shape::new(156, [Item { position: 152, len: 8192 }]);
//! let plan = plan_call(&write, &ReplyNeed::new(240, []), &limits)?;
//! assert_eq!(
//!     plan.to_string(),
//!     "call: payload inline (156 B), item 0 by read chunk at 152 (8192 B), \
//!      as all inline is 8376 B of 4096 B; reply: inline (<= 240 B)"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod call;
mod cost;
mod explain;
mod limits;
mod parameter;
mod reply;
mod shape;

pub use call::{CallError, CallItem, CallPayload, CallPlan, needs_no_chunks, plan_call};
pub use cost::{CostModel, Effort};
pub use limits::{ChunkCounts, ChunkLimits, Limits};
pub use parameter::{CostParameter, Figure};
pub use reply::{Offer, Offers, ReplyError, ReplyItem, ReplyPayload, ReplyPlan, plan_reply};
pub use shape::{Item, ReplyNeed, Shape, UnpositionedItem};
