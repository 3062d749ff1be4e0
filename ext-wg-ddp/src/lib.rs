//! Send-based direct data placement as an extension of the working group's RPC-over-RDMA version 2
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, appendix B). No I/O and no clock.
//!
//! A receiver announces, once, of which segments each of its receive buffers consists, and into
//! which of them bulk data may be placed. A sender puts a bulk item behind padding, so that it
//! arrives in such a segment: no memory is registered, and no RDMA Read takes a round trip. The
//! last message that carries the RPC message lists the items that were placed. A requester
//! announces a minimum length. The responder places results of at least this length for which the
//! call provides no write chunk. So calls carry no instructions for placing results.
//!
//! # Protocol
//!
//! | property | number | value |
//! |---|---|---|
//! | receive buffer structure | 0xffffff01 | groups of segments: count, length, alignment, flags |
//! | placement support | 0xffffff02 | 1: takes placed calls; 2: places results |
//! | smallest placed result | 0xffffff03 | length in bytes; 0xffffffff: none |
//!
//! | header type | number | carries |
//! |---|---|---|
//! | RDMA2_CALL_PLACED_MIDDLE | 0xffffff01 | a part of a call; others follow |
//! | RDMA2_CALL_PLACED | 0xffffff02 | the last or only part of a call |
//! | RDMA2_REPLY_PLACED_MIDDLE | 0xffffff03 | a part of a reply; others follow |
//! | RDMA2_REPLY_PLACED | 0xffffff04 | the last or only part of a reply |
//!
//! The segments for bulk data are called targets. They are numbered from 0, across the receive
//! buffers of all parts. Targets that the longest message of the sender does not cover completely
//! have no number. The entry of an item names the first target of the item and the offset in it;
//! the item continues in the next targets.
//!
//! Differences from rtrext-00, on which the 2016 version of this feature is based: properties are
//! sent once, so structures never change; credits count Sends, so nothing is reserved for replies;
//! chunk lists are those of the base protocol; errors are those of the base protocol.
//!
//! Both directions of calls can have placed messages. A client announces what it supports as a
//! responder only if it takes calls with chunks (version-two-07, section 5.2.5). This end refuses
//! an RDMA2_CALL_PLACED that has read chunks.
//!
//! A client's state at the beginning of a connection, and the properties that it announces:
//!
//! ```
//! use rpcrdma_extension::layout::BufferStructure;
//! use rpcrdma_ext_wg_ddp::{Config, Placement};
//! use rpcrdma_extension::Extension as _;
//!
//! let client = Placement::new(Config {
//!     makes_calls: true,
//!     takes_calls: false,
//!     send: true,
//!     receive: true,
//!     offer_invalidation: true,
//!     structure: BufferStructure::with_placement(1024, 1, 65536),
//!     min_placed: 512,
//!     max_message: 1 << 22,
//!     max_segments: 256,
//! });
//! let announced: Vec<u32> = client.properties().iter().map(|property| property.id).collect();
//! assert_eq!(announced, [0xffff_ff01, 0xffff_ff03]);
//! ```

#![forbid(unsafe_code)]

mod codec;
mod emit;
mod factory;
mod group;
mod last_reply;
mod placement;
mod property;
mod transfer;

pub use codec::{CallPlaced, PlacedItem, PlacedMiddle, ReplyPlaced, header_type, limits};
pub use factory::Factory;
pub use placement::{Config, Placement};
pub use property::{
    NO_RESULTS, Support, property_id, smallest_result_from, smallest_result_value, structure_from,
    structure_value, support_from, support_value,
};
