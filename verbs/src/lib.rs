//! The device model every transport here is written against, and its devices.
//!
//! [`Device`] is verbs-shaped: reliable-connected queue pairs, a connection manager with private
//! data, memory registered with exact bounds and rights, Send, Send With Invalidate, RDMA Read,
//! RDMA Write, local invalidate. A device is owned by one thread and never blocks: it is polled,
//! and says through its owner's poll loop ([`Readiness`]) when polling is worth while.
//!
//! Memory is handed over by value. A [`Buf`] that a work request or a registration holds is out of
//! the program's reach until the device gives it back, so "the device may write here now" is not
//! something code above can get wrong.

mod budget;
mod carrier;
mod device;
mod keep_alive;
mod log_limit;
mod mem;
mod readiness;
mod scatter;
mod send_buffer;
mod time;

pub mod iwarp;
pub mod middleware;
pub mod rdma_core;
pub mod sim;

pub use budget::{Account, Budget, Charge, GUARANTEED, PER_CALL};
pub use carrier::Carrier;
pub use device::{
    AcceptOptions, Attributes, Completion, ConnectError, ConnectOptions, ConnectRequest, Counters,
    Device, DeviceError, Disconnect, Event, Failed, Gather, ListenerId, PostError, QpId, Region,
    RemoteSegment, RequestId, SendWr, Stag, Success, WorkError, WrId,
};
pub use keep_alive::keep_alive;
pub use log_limit::LogLimit;
pub use mem::{ALIGNMENT, Buf, Pool, PoolExhausted, Registrar};
pub use readiness::{Interest, Poller, Readiness};
pub use scatter::Scatter;
pub use send_buffer::bound_send_buffer;
pub use time::{Clock, Time};
