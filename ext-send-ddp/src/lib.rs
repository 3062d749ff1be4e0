//! Send-based direct data placement: the Sends that carry an RPC message also carry its bulk data,
//! and the structure of the receive buffers, with padding, makes it arrive where the receiver wants
//! it (draft-dnoveck-nfsv4-rpcrdma-rtrext-00, sections 3, 7 and 8). No I/O and no clock.
//!
//! This crate has the encodings of the draft, and what only the draft has. The arithmetic is
//! [`rpcrdma_extension::layout`]. A receiver announces the structure of its buffers
//! ([`ReceiveBufferStructure`]). The sender describes where it placed bulk data in [`PlacedItem`]s. A
//! requester that expects bulk data gives directions for it in [`DirectedSet`]s, from which the responder
//! chooses ([`choose`]).
//!
//! The operations that carry all this are in the crate `rpcrdma-ext-continuation`: a message may
//! take one transmission or several, and the arithmetic is the same.
//!
//! Section numbers are those of rtrext-00. MUSTS.md beside the manifest of
//! `rpcrdma-ext-continuation` lists its requirements, and drafts/errata.md lists what the draft
//! leaves open.

#![forbid(unsafe_code)]

mod characteristic;
mod choose;
mod direction;
pub mod limits;
mod placement;
mod structure;

pub use characteristic::{ReceiveBufferStructure, RoundTripSupport, Support};
pub use choose::{Ability, DoesNotFit, Handling, choose};
pub use direction::{
    DirectedItem, DirectedItems, DirectedSet, DirectedSets, Direction, check_ranges, get_sets,
    put_sets, sets_len,
};
pub use placement::{Items, Location, PlacedItem, get_items, items_len, put_items};
pub use structure::{get_structure, put_structure};

/// `xmddp_type`: the types of locations and directions (section 6.2).
pub mod kind {
    /// XMDTYPE_EXRW: in registered memory, by explicit RDMA.
    pub const EXRW: u32 = 1;
    /// XMDTYPE_TBSN: in target buffer segments, by Sends.
    pub const TBSN: u32 = 2;
    /// XMDTYPE_CHOICE (called XMDTYPE_CHOOSE in the enumeration): either, as the responder prefers.
    pub const CHOICE: u32 = 3;
    /// XMDTYPE_BYSIZE: either, depending on the item's length.
    pub const BYSIZE: u32 = 4;
    /// XMDTYPE_TOOSHORT: the item is shorter than the minimum in its direction.
    pub const TOOSHORT: u32 = 5;
    /// XMDTYPE_NOITEM: there is no item for the direction.
    pub const NOITEM: u32 = 6;
}
