//! Receive layouts: the segments of which receives consist, and the arithmetic by which a sender pads its
//! messages so that bulk data arrives in the segments for it (placement by Sends).
//!
//! An end announces the structure of its receives ([`BufferStructure`]). The sender keeps the segments for
//! bulk data in a [`Frame`], and [`lay_out`] distributes a message over them. The receiver finds the data
//! again from the description of each item's place ([`locate`]). How structures and places are encoded is
//! each protocol's own.
//!
//! The arithmetic is that of draft-dnoveck-nfsv4-rpcrdma-rtrext-00; drafts/errata.md lists what it leaves
//! open.
//!
//! A message with 8192 bytes of bulk data, laid out for the receiver's buffers:
//!
//! ```
//! use rpcrdma_extension::layout::{BufferStructure, Frame, Headers, lay_out};
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

mod cut;
mod frame;
mod lay_out;
pub mod limits;
mod locate;
mod receives;
mod structure;

pub use cut::{Rest, cut, pad};
pub use frame::{Frame, Spot, Target, Unusable};
pub use lay_out::{Headers, Layout, MAX_TRANSMISSION, NoRoom, Part, Run, lay_out};
pub use locate::{BadPlacement, Place, locate, overlapping_segment};
pub use receives::{BadStructure, HEAD, PAGE, Placing, ReceiveSegment, ReceiveStructure, TARGET};
pub use structure::{BufferSegment, BufferStructure, SegmentFlags, SegmentGroup};
