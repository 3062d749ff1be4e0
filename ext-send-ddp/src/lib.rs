//! Send-based direct data placement: the Sends that carry an RPC message also carry its bulk data,
//! and the structure of the receive buffers, with padding, makes it arrive where the receiver wants
//! it (draft-dnoveck-nfsv4-rpcrdma-rtrext-00, sections 3, 7 and 8). No I/O and no clock.
//!
//! A receiver announces the structure of its buffers ([`ReceiveBufferStructure`]). The sender keeps
//! the segments for bulk data in a [`Frame`], and [`lay_out`] distributes a message over them. The
//! sender describes the result in [`PlacedItem`]s, from which the receiver finds the data
//! ([`locate`]). A requester that expects bulk data gives directions for it in [`DirectedSet`]s,
//! from which the responder chooses ([`choose`]).
//!
//! The operations that carry all this are in the crate `rpcrdma-ext-continuation`: a message may
//! take one transmission or several, and the arithmetic is the same.
//!
//! Section numbers are those of rtrext-00. MUSTS.md beside the manifest of
//! `rpcrdma-ext-continuation` lists its requirements, and drafts/errata.md lists what the draft
//! leaves open.
//!
//! A message with 8192 bytes of bulk data, laid out for the receiver's buffers:
//!
//! ```
//! use rpcrdma_ext_send_ddp::{BufferStructure, Frame, Headers, lay_out};
//!
//! // Each receive buffer has 1 KiB for header and payload, then 64 KiB for bulk data.
//! let frame = Frame::new(&BufferStructure::with_placement(1024, 1, 65_536))?;
//! let headers = Headers { first: 60, next: 32 };
//! let layout = lay_out(&frame, &headers, 156, &[8192], 1)?;
//! // One transmission is enough. The data begins where the segment for bulk data begins.
//! let [part] = &layout.parts[..] else { panic!("{layout:?}") };
//! assert_eq!(part.payload, 0..156);
//! assert_eq!((part.runs[0].at, part.runs[0].len), (1024, 8192));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod characteristic;
mod choose;
mod cut;
mod direction;
mod frame;
mod layout;
pub mod limits;
mod locate;
mod placement;
mod structure;

pub use characteristic::{ReceiveBufferStructure, RoundTripSupport, Support};
pub use choose::{Ability, DoesNotFit, Handling, choose};
pub use cut::{Rest, cut, pad};
pub use direction::{
    DirectedItem, DirectedItems, DirectedSet, DirectedSets, Direction, check_ranges, get_sets,
    put_sets, sets_len,
};
pub use frame::{Frame, Target, Unusable};
pub use layout::{Headers, Layout, NoRoom, Part, Run, lay_out};
pub use locate::{BadPlacement, Place, locate, twice};
pub use placement::{Items, Location, PlacedItem, Spot, get_items, items_len, put_items};
pub use structure::{BufferSegment, BufferStructure, PAGE, SegmentFlags, SegmentGroup};

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
