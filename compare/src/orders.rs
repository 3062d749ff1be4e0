//! The requests of the measuring process to a process that it has started to serve or to pass messages on.

use std::io::{self, BufRead};
use std::sync::{Arc, Mutex, PoisonError};

use rpc_transport::Stop;

use crate::served::{PROCEDURES, TRIPS, USAGE};

/// A request of the parent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Usage,
    Procedures,
    Trips,
    End,
}

/// The state that the thread which reads requests shares with the one that serves. A request
/// interrupts serving; the parent sends none before it has the answer to the previous one.
#[derive(Clone, Default)]
pub(crate) struct Control {
    shared: Arc<Mutex<(Stop, Option<Order>)>>,
}

impl Control {
    pub(crate) fn give(&self, order: Order) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.1 = Some(order);
        shared.0.stop();
    }

    /// Returns the request that interrupted serving, and the handle by which the next one will
    /// interrupt it.
    pub(crate) fn take(&self) -> (Option<Order>, Stop) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let order = shared.1.take();
        shared.0 = Stop::new();
        (order, shared.0.clone())
    }
}

/// Passes requests to `give` until standard input ends, which also happens if the parent dies.
pub(crate) fn read_orders(give: impl Fn(Order)) {
    for line in io::stdin().lock().lines() {
        match line.as_deref() {
            Ok(USAGE) => give(Order::Usage),
            Ok(PROCEDURES) => give(Order::Procedures),
            Ok(TRIPS) => give(Order::Trips),
            Ok(other) => tracing::warn!(other, "unknown order"),
            Err(_) => break,
        }
    }
    give(Order::End);
}
