//! The server's end: accepts orders for callbacks, makes them, and counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onc_rpc::{AcceptStatus, Encoder, Message};
use rpc_transport::{
    Backchannel, Call, CallError, ErrorReply, ProgramVersions, Reply, ReplyRoom, Request, Service,
    ServiceOutcome, ServiceReply,
};

use super::wire::{Ask, BACK, MAX_LEN, Order, Pattern, THERE, Tally};
use super::{BACKWARD, ECHO, FORWARD, NULL, ORDER, STATE};

/// The maximum number of stored orders. Beyond it, the oldest one is dropped and abandoned.
const MAX_ORDERS: usize = 64;

/// The results of the callbacks of all orders that share this value.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    sum: Arc<Mutex<Tally>>,
}

impl Totals {
    /// Returns the results so far. All orders are done when no callback is outstanding.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = *lock(&self.sum);
        tally.done = tally.ended() == tally.made;
        tally
    }
}

/// The forward program. Clones share their orders, for the loops of a server: an order is found by its
/// ticket, whichever connection and loop the query comes over.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    totals: Totals,
    book: Arc<Mutex<Book>>,
}

/// The orders of a server.
#[derive(Debug, Default)]
struct Book {
    /// The orders by number.
    orders: BTreeMap<u64, Arc<Job>>,
    /// The numbers of the orders, by ticket.
    tickets: BTreeMap<u32, u64>,
    serial: u64,
}

/// An order in progress.
#[derive(Debug)]
struct Job {
    ticket: u32,
    order: Order,
    client: Backchannel,
    state: Mutex<State>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    /// Whether no more callbacks are to be made.
    stopped: bool,
}

impl Orders {
    /// Creates a service without orders.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a service without orders that adds its results to `totals`.
    #[must_use]
    pub fn counting(totals: Totals) -> Self {
        Self {
            totals,
            ..Self::default()
        }
    }

    fn order(&self, request: &Request) -> ServiceReply {
        let garbage = ErrorReply::Accepted(AcceptStatus::GarbageArgs);
        let (ticket, order) = Order::decode(&mut request.args()).map_err(|_| garbage)?;
        if !order.is_possible() {
            return Err(garbage);
        }
        let mut book = lock(&self.book);
        if book.tickets.contains_key(&ticket) {
            // A retransmission of the order over another connection.
            return Ok(Message::default());
        }
        // The server makes no callbacks.
        let unavailable = ErrorReply::Accepted(AcceptStatus::ProcUnavail);
        let client = request.backchannel().ok_or(unavailable)?.clone();
        let job = Arc::new(Job {
            ticket,
            order,
            client,
            state: Mutex::default(),
            totals: self.totals.clone(),
        });
        if book.orders.len() >= MAX_ORDERS
            && let Some((_, oldest)) = book.orders.pop_first()
        {
            book.tickets.remove(&oldest.ticket);
            oldest.state().stopped = true;
        }
        book.serial += 1;
        let serial = book.serial;
        book.orders.insert(serial, Arc::clone(&job));
        book.tickets.insert(ticket, serial);
        drop(book);
        go_on(&job);
        Ok(Message::default())
    }

    fn state(&self, request: &Request) -> ServiceReply {
        let garbage = ErrorReply::Accepted(AcceptStatus::GarbageArgs);
        let ticket = request.args().u32().map_err(|_| garbage)?;
        let book = lock(&self.book);
        let serial = book.tickets.get(&ticket);
        let job = serial.and_then(|serial| book.orders.get(serial)).cloned();
        drop(book);
        Ok(job.ok_or(garbage)?.tally().encode())
    }
}

impl Service for Orders {
    fn programs(&self) -> &[ProgramVersions] {
        &[FORWARD]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        ServiceOutcome::Done(match request.proc {
            NULL => Ok(Message::default()),
            ECHO => echo(&request),
            ORDER => self.order(&request),
            STATE => self.state(&request),
            _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        })
    }

    fn remember_reply(&self, _: u32, _: u32, proc: u32) -> bool {
        proc == ORDER
    }
}

fn echo(request: &Request) -> ServiceReply {
    let garbage = ErrorReply::Accepted(AcceptStatus::GarbageArgs);
    let data = request.args().bulk(MAX_LEN).map_err(|_| garbage)?;
    let mut results = Encoder::new();
    results.bulk(data);
    Ok(results.finish())
}

impl Job {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn tally(&self) -> Tally {
        let state = self.state();
        let mut tally = state.tally;
        let no_more = state.stopped || tally.made == self.order.count;
        tally.done = no_more && tally.ended() == tally.made;
        tally
    }

    /// Returns whether a callback's reply has the right data.
    fn is_right(&self, number: u32, reply: &Reply) -> bool {
        let mut results = reply.results();
        let (Ok(answered), Ok(data)) = (results.u32(), results.bulk(MAX_LEN)) else {
            return false;
        };
        let data = data.to_bytes();
        answered == number
            && data.len() == self.order.reply_len as usize
            && Pattern::new(self.ticket, number, BACK).begins_with(&data)
    }

    fn ended(&self, number: u32, ending: &Result<Reply, CallError>) {
        let (mut state, mut sum) = (self.state(), lock(&self.totals.sum));
        for tally in [&mut state.tally, &mut *sum] {
            match ending {
                Ok(reply) if self.is_right(number, reply) => tally.answered += 1,
                Ok(_) => tally.wrong += 1,
                Err(_) => tally.failed += 1,
            }
        }
        // The client is gone or accepts no calls.
        state.stopped |= matches!(
            ending,
            Err(CallError::Disconnected { .. } | CallError::Closed)
        );
    }
}

/// Locks `mutex` and ignores poisoning: no code that can panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts callbacks up to the maximum number of outstanding ones.
fn go_on(job: &Arc<Job>) {
    loop {
        let number = {
            let mut state = job.state();
            let tally = &state.tally;
            let outstanding = tally.made - tally.ended();
            let more = tally.made < job.order.count && outstanding < job.order.at_a_time.max(1);
            if state.stopped || !more {
                return;
            }
            state.tally.made += 1;
            lock(&job.totals.sum).made += 1;
            state.tally.made
        };
        let mut data = vec![0; job.order.call_len as usize];
        Pattern::new(job.ticket, number, THERE).fill(&mut data);
        let ask = Ask {
            ticket: job.ticket,
            number,
            reply_len: job.order.reply_len,
            data: data.into(),
        };
        let call = Call {
            prog: BACKWARD.prog,
            vers: BACKWARD.low,
            proc: ECHO,
            args: ask.encode(),
            reply: ReplyRoom {
                payload: 8,
                items: [job.order.reply_len].into_iter().collect(),
                idempotent: false,
            },
        };
        let again = Arc::clone(job);
        job.client.call(call, job.order.limit, move |ending| {
            again.ended(number, &ending);
            go_on(&again);
        });
    }
}
