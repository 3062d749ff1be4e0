//! A device model for RDMA, for programs and protocols to be written against.
//!
//! [`Device`] resembles verbs: reliable-connected queue pairs, a connection manager with private
//! data, memory registered with exact bounds and rights, Send, Send With Invalidate, RDMA Read,
//! RDMA Write, local invalidate. A device is owned by one thread and never blocks: its owner polls
//! it, and the device reports through the owner's poll loop ([`Readiness`]) when polling is
//! worthwhile.
//!
//! Devices are separate crates: `rdma-iwarp` is a software RNIC over TCP, `rdma-core-device` uses
//! the RDMA devices of the machine, and `rdma-sim` is a fabric in one process on a virtual clock.
//! [`middleware`] wraps any of them. This crate opens no socket and depends on no poll loop.
//!
//! Memory is passed by value. While a work request or a registration holds a [`Buf`], the program
//! cannot access it until the device returns it, so code above the device cannot use memory that
//! the device may be writing.
//!
//! ```
//! use rdma::{Pool, Region, SendWr};
//!
//! let pool = Pool::new(1 << 20);
//! let mut buf = pool.alloc(5)?;
//! buf.copy_from_slice(b"hello");
//! // Frozen, the bytes are shared and read-only: they can be sent, and offered for RDMA Reads.
//! let bytes = buf.freeze();
//! let offered = Region::RemoteRead(bytes.clone());
//! assert_eq!(offered.len(), 5);
//! let send = SendWr::Send {
//!     gather: [bytes].into_iter().collect(),
//!     invalidate: None,
//! };
//! # drop(send);
//! // Memory for the peer's RDMA Writes belongs to the device until it returns it.
//! let offered = Region::RemoteWrite(pool.alloc(4096)?);
//! # drop(offered);
//! # Ok::<_, rdma::PoolExhausted>(())
//! ```

mod carrier;
mod class_costs;
mod device;
mod id_map;
mod mem;
mod readiness;
mod scatter;
mod shared_receives;
mod shrink;
mod tap;
mod time;

pub mod middleware;
pub mod trace;

pub use carrier::Carrier;
pub use class_costs::ClassCosts;
pub use device::{
    AcceptOptions, Attributes, Completion, ConnectError, ConnectOptions, ConnectRequest, Counters,
    Device, DeviceError, Disconnect, Ending, Event, Failed, Gather, ListenerId, PostError, QpId,
    Region, RemoteSegment, RequestId, SendWr, SharedReceives, SharedReceivesId, Stag, Success,
    WhenEmpty, WorkError, WrId,
};
pub use id_map::{IdHasher, IdMap};
pub use mem::{ALIGNMENT, Buf, Pool, PoolExhausted, Registrar};
pub use readiness::{Interest, Poller, Readiness};
pub use scatter::{OtherBuffers, Places, Scatter};
pub use shared_receives::SharedReceiveQueue;
pub use shrink::shrink;
pub use tap::{Frame, Setup, Tap};
pub use time::{Clock, Time};
