//! The thread of one loop.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rdma::Time;

use super::{Begun, Command, Shared};
use crate::poll_loop::PollLoop;
use crate::{ClientTransport, ClientTransportEvent, ConnectionId};

/// The loop reads no more from its connections while the user's thread has left this many events in its
/// list. Flow control then makes the server wait, as for a client of one thread; otherwise a server could
/// fill the client's memory.
const MAX_EVENTS: usize = 1024;
/// How long the loop waits before it looks again whether events were taken.
const PAUSE: Duration = Duration::from_millis(1);

/// Marks the loop as ended and wakes the user's thread when this is dropped, also by a panic.
struct Guard<'s, T>(&'s Shared<T>);

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // Questions among the commands are dropped with them, which ends the wait for answers.
        let unexecuted = self.0.commands.lock().take();
        drop(unexecuted);
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.owner.wake();
    }
}

/// Runs a loop with the transport that `make` returns. Reports how it can be woken, and the
/// transport's pool, or the reason why it could not begin.
pub(super) fn run<T, E>(
    shared: &Shared<T>,
    make: impl FnOnce() -> Result<T, E>,
    report: &Sender<Begun<E>>,
) where
    T: ClientTransport + 'static,
    E: From<io::Error>,
{
    let _guard = Guard(shared);
    let begun = make().and_then(|transport| Ok(Driver::new(transport)?));
    let (begun, told) = match begun {
        Ok(driver) => {
            let wake = Arc::clone(driver.poll_loop.wake());
            let pool = driver.transport.borrow().pool().clone();
            (Some(driver), Ok((wake, pool)))
        }
        Err(error) => (None, Err(error)),
    };
    // Nobody waits for it if the user's thread has panicked.
    if report.send(told).is_ok()
        && let Some(mut driver) = begun
    {
        driver.drive(shared);
    }
}

struct Driver<T> {
    poll_loop: PollLoop,
    transport: Rc<RefCell<T>>,
    /// The transport's connection ids, by the ids that the user's thread uses.
    inner: HashMap<ConnectionId, ConnectionId>,
    /// The reverse of `inner`.
    outer: HashMap<ConnectionId, ConnectionId>,
    /// Reused to save allocations; empty between turns.
    events: VecDeque<ClientTransportEvent>,
    /// Whether the list of the user's thread had [`MAX_EVENTS`] when the loop last added to it.
    full: bool,
}

impl<T: ClientTransport + 'static> Driver<T> {
    fn new(transport: T) -> io::Result<Self> {
        let mut poll_loop = PollLoop::new()?;
        let transport = Rc::new(RefCell::new(transport));
        poll_loop.add(Rc::clone(&transport) as Rc<RefCell<_>>)?;
        Ok(Self {
            poll_loop,
            transport,
            inner: HashMap::new(),
            outer: HashMap::new(),
            events: VecDeque::new(),
            full: false,
        })
    }

    /// Works until it is told to stop.
    fn drive(&mut self, shared: &Shared<T>) {
        let wake = Arc::clone(self.poll_loop.wake());
        loop {
            let mut progress = false;
            if wake.take() {
                progress = true;
                let commands = shared.commands.lock().as_mut().map(mem::take);
                for command in commands.into_iter().flatten() {
                    if let Command::Stop = command {
                        return;
                    }
                    let now = self.poll_loop.clock().now();
                    self.execute(command, now);
                }
            }
            if self.full {
                self.full = shared.events.lock().len() >= MAX_EVENTS;
                if self.full {
                    thread::sleep(PAUSE);
                    continue;
                }
            }
            let now = self.poll_loop.clock().now();
            progress |= self.poll_loop.turn(now);
            progress |= self.report(shared);
            if !progress {
                self.poll_loop.wait(None);
            }
        }
    }

    fn execute(&mut self, command: Command<T>, now: Time) {
        if let Command::BusyPoll(on) = command {
            return self.poll_loop.set_busy_poll(on);
        }
        let mut transport = self.transport.borrow_mut();
        let inner = |conn| self.inner.get(&conn).copied();
        match command {
            Command::Open {
                conn,
                remote,
                next_xid,
                tracer,
            } => {
                transport.set_tracer(tracer);
                let opened = transport.open(remote, next_xid, now);
                self.inner.insert(conn, opened);
                self.outer.insert(opened, conn);
            }
            Command::Submit {
                conn,
                xid,
                message,
                room,
            } => {
                // A connection that is not here has ended, and the event that says so ends this call.
                if let Some(conn) = inner(conn) {
                    transport.submit(conn, xid, message, &room, now);
                }
            }
            Command::Cancel { conn, xid } => {
                if let Some(conn) = inner(conn) {
                    transport.cancel(conn, xid);
                }
            }
            Command::Reply {
                conn,
                token,
                message,
            } => {
                if let Some(conn) = inner(conn) {
                    transport.reply(conn, token, message, now);
                }
            }
            Command::Close { conn } => {
                if let Some(closed) = self.inner.remove(&conn) {
                    self.outer.remove(&closed);
                    transport.close(closed);
                }
            }
            Command::Ask(question) => question(&*transport),
            // Handled before.
            Command::BusyPoll(_) | Command::Stop => {}
        }
    }

    /// Passes events to the user's thread. Returns whether there were any.
    fn report(&mut self, shared: &Shared<T>) -> bool {
        let mut transport = self.transport.borrow_mut();
        while let Some(mut event) = transport.next_event() {
            // Events of a connection that was closed are dropped.
            if let Some(conn) = self.outer.get(&event.conn()).copied() {
                if let ClientTransportEvent::Disconnected { conn: gone, .. } = &event {
                    self.outer.remove(gone);
                    self.inner.remove(&conn);
                }
                event.set_conn(conn);
                self.events.push_back(event);
            }
        }
        if self.events.is_empty() {
            return false;
        }
        let mut events = shared.events.lock();
        events.append(&mut self.events);
        self.full = events.len() >= MAX_EVENTS;
        drop(events);
        shared.owner.wake();
        true
    }
}
