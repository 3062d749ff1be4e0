//! The requests of the measuring process to a process that it has started to serve or to pass messages on.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rpc_transport::{Stop, TransportFailed};
use rpcrdma_setup::Failure;

use crate::served::{Listening, PROCEDURES, TRIPS, USAGE, answer};

/// A question of the parent process, which gets one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Usage,
    Procedures,
    Trips,
}

/// A request of the parent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Answer(Question),
    End,
}

/// The state that the thread which reads requests shares with the one that serves. A request
/// interrupts serving; the parent sends none before it has the answer to the previous one.
#[derive(Clone, Default)]
struct Control {
    shared: Arc<Mutex<(Stop, Option<Order>)>>,
}

impl Control {
    fn give(&self, order: Order) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.1 = Some(order);
        shared.0.stop();
    }

    /// Returns the request that interrupted serving, and the handle by which the next one will
    /// interrupt it.
    fn take(&self) -> (Option<Order>, Stop) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let order = shared.1.take();
        shared.0 = Stop::new();
        (order, shared.0.clone())
    }
}

/// Tells the parent process that this one listens at `address`, and serves by `run` until standard input ends. `run`
/// returns when its [`Stop`] says so: for each question, which `answers` then answers.
///
/// # Errors
/// `run` or `answers` failed, or the parent process cannot be told.
pub(crate) fn serve_between_questions(
    address: SocketAddr,
    mut run: impl FnMut(&Stop) -> Result<(), TransportFailed>,
    mut answers: impl FnMut(Question) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let control = Control::default();
    let (_, mut stop) = control.take();
    let orders = control.clone();
    thread::spawn(move || read_orders(|order| orders.give(order)));
    answer(&Listening { address })?;
    loop {
        run(&stop).map_err(Failure::work)?;
        // The next Stop is in place before the answer is sent, after which the parent may send another request.
        let (order, next) = control.take();
        stop = next;
        match order {
            Some(Order::Answer(question)) => answers(question)?,
            Some(Order::End) => return Ok(()),
            None => {}
        }
    }
}

/// Passes requests to `give` until standard input ends, which also happens if the parent dies.
pub(crate) fn read_orders(give: impl Fn(Order)) {
    for line in io::stdin().lock().lines() {
        match line.as_deref() {
            Ok(USAGE) => give(Order::Answer(Question::Usage)),
            Ok(PROCEDURES) => give(Order::Answer(Question::Procedures)),
            Ok(TRIPS) => give(Order::Answer(Question::Trips)),
            Ok(other) => tracing::warn!(other, "unknown order"),
            Err(_) => break,
        }
    }
    give(Order::End);
}
