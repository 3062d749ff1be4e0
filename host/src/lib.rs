//! What the connections of one process share, whatever their transport.
//!
//! * [`Budget`]: the memory of all connections together; each has an [`Account`].
//! * [`LoopSeat`]: the spread of connections over the loops of a server.
//! * [`CountedMutex`] and [`CountedRwLock`]: locks that count how often a thread had to wait.
//! * [`limited!`]: log messages that a peer can cause, of which a few per minute are shown.
//! * [`CongestionControl`], [`begin_connect`], [`begin_connect_from`], [`keep_alive()`],
//!   [`lengthen_backlog`] and [`bound_send_buffer`]: options of TCP sockets.
//!
//! ```
//! use rpcrdma_host::Budget;
//!
//! let budget = Budget::new(256 << 20, 100);
//! let (first, second) = (budget.account(), budget.account());
//! first.charge(100 << 20);
//! // What the others hold leaves each connection at least what it is guaranteed.
//! assert!(second.room() >= budget.guaranteed());
//! ```

#![forbid(unsafe_code)]

mod backlog;
mod budget;
mod congestion;
mod contention;
mod keep_alive;
mod log_limit;
mod loop_seat;
mod send_buffer;

pub use backlog::lengthen_backlog;
pub use budget::{Account, Budget, Charge, GUARANTEED, PER_CALL};
pub use congestion::{CongestionControl, begin_connect, begin_connect_from};
pub use contention::{CountedMutex, CountedRwLock, LockCounter, contended_locks};
pub use keep_alive::keep_alive;
pub use log_limit::LogLimit;
pub use loop_seat::{LoopClaim, LoopSeat};
pub use send_buffer::bound_send_buffer;
