//! Everything of a device that its threads share: connections, listeners, events.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use slab::Slab;

use super::Options;
use super::conn::{Conn, Cx, Phase, refused_at_once};
use super::endpoint::Limits;
use super::mpa::{ENHANCED, MAX_PRIVATE_DATA};
use super::setup::Wants;
use super::socket;
use crate::{
    AcceptOptions, ConnectOptions, Counters, DeviceError, Event, ListenerId, Poller, QpId,
    RequestId, Time,
};

/// Connections whose Request Frame is awaited, at most; the oldest makes room (RFC 5044,
/// section 7.1.2, rule 10 speaks of such peers).
const MAX_HALF_OPEN: usize = 256;
/// Connections that are over and drain, at most.
const MAX_DRAINING: usize = 64;
/// When busy-polling, listeners are looked at once in this many polls.
const POLLS_PER_ACCEPT: u32 = 64;
/// When the system cannot give us another socket, accepting is tried again after this.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Local token of the background thread's wake-up; slot `n` has token `n + 1`.
pub(super) const WAKE_TOKEN: usize = 0;

struct Listener {
    id: ListenerId,
    socket: TcpListener,
}

enum Slot {
    Listener(Listener),
    Conn(Box<Conn>),
}

/// The state.
pub(super) struct State {
    pub(super) options: Options,
    limits: Limits,
    slots: Slab<Slot>,
    /// Makes identifiers unique although slots are used again.
    serial: u32,
    poller: Option<Poller>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    /// Slots to look at.
    ready: VecDeque<usize>,
    /// Deadlines by slot.
    timers: BTreeSet<(Time, usize)>,
    accept_again: Option<Time>,
    half_open: VecDeque<u64>,
    connections: usize,
    draining: usize,
    live: usize,
    /// The owner waits to be told of events.
    pub(super) armed: bool,
    busy: bool,
    polls: u32,
    /// The last poll gave the owner several events: the Sends it posts now are likely to be
    /// several too, and go out together at its next poll or wait.
    batching: bool,
    /// The time of the owner's last poll.
    now: Time,
}

/// What a slot's index and what the state knew of it before something was done to it.
struct Before {
    deadline: Option<Time>,
    live: bool,
    draining: bool,
}

impl State {
    pub(super) fn new(options: Options, limits: Limits) -> Self {
        Self {
            options,
            limits,
            slots: Slab::new(),
            serial: 0,
            poller: None,
            events: VecDeque::new(),
            counters: Counters::default(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            accept_again: None,
            half_open: VecDeque::new(),
            connections: 0,
            draining: 0,
            live: 0,
            armed: false,
            busy: false,
            polls: 0,
            batching: false,
            now: Time::ZERO,
        }
    }

    /// Connections that must make progress even while the owner is away.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn set_busy_poll(&mut self, on: bool) {
        self.busy = on;
        if !on {
            // What nobody was told of while busy-polling is looked for once more.
            self.mark_all(true);
        }
    }

    // ---- the poll loop ----

    pub(super) fn attach(&mut self, poller: Poller) -> io::Result<()> {
        for (index, slot) in &self.slots {
            register(&poller, index, slot)?;
        }
        self.poller = Some(poller);
        self.mark_all(true);
        Ok(())
    }

    /// The owner's loop found the slot of a token ready.
    pub(super) fn ready(&mut self, local: usize, closed: bool) {
        let Some(index) = local.checked_sub(1) else {
            return;
        };
        if let Some(Slot::Conn(conn)) = self.slots.get_mut(index) {
            conn.readable = true;
            conn.writable = true;
            conn.peer_closed |= closed;
        }
        self.ready.push_back(index);
    }

    fn mark_all(&mut self, listeners: bool) {
        for (index, slot) in &mut self.slots {
            match slot {
                Slot::Conn(conn) => conn.readable = true,
                Slot::Listener(_) if listeners => {}
                Slot::Listener(_) => continue,
            }
            self.ready.push_back(index);
        }
    }

    /// The owner polls.
    pub(super) fn poll(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.now = now;
        if self.busy || self.poller.is_none() {
            self.polls = self.polls.wrapping_add(1);
            self.mark_all(self.poller.is_none() || self.polls.is_multiple_of(POLLS_PER_ACCEPT));
        }
        self.run_timers(now);
        self.run_ready(now);
        if self.armed {
            self.armed = false;
            self.counters.interrupts += u64::from(!self.events.is_empty());
        }
        self.batching = self.events.len() > 1;
        events.append(&mut self.events);
    }

    /// Hands what was posted to TCP. True: nothing is left to do or to tell, the owner may sleep.
    pub(super) fn arm(&mut self) -> bool {
        self.batching = false;
        self.run_ready(self.now);
        self.armed = self.events.is_empty() && self.ready.is_empty();
        self.armed
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(time, _)| *time);
        timer.into_iter().chain(self.accept_again).min()
    }

    fn run_timers(&mut self, now: Time) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            let listeners = self
                .slots
                .iter()
                .filter(|(_, slot)| matches!(slot, Slot::Listener(_)));
            self.ready.extend(listeners.map(|(index, _)| index));
        }
        while let Some((at, index)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.with(index, now, Conn::time_out);
        }
    }

    /// Looks at every slot that was marked before the call; one that could go on stays marked.
    fn run_ready(&mut self, now: Time) {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            match self.slots.get(index) {
                Some(Slot::Conn(_)) => {
                    self.with(index, now, Conn::progress);
                }
                Some(Slot::Listener(_)) => self.accept_all(index, now),
                None => {}
            }
        }
    }

    // ---- in the owner's place ----

    /// Makes progress on live connections, those in `ready` or all.
    pub(super) fn run_live(&mut self, ready: Option<&[usize]>) {
        let now = Time::now();
        let live = |(index, slot): (usize, &Slot)| match slot {
            Slot::Conn(conn) if conn.is_live() => Some(index),
            _ => None,
        };
        let all: Vec<usize> = match ready {
            Some(ready) => ready.to_vec(),
            None => self.slots.iter().filter_map(live).collect(),
        };
        for index in all {
            if let Some(Slot::Conn(conn)) = self.slots.get_mut(index)
                && conn.is_live()
            {
                conn.readable = true;
                conn.writable = true;
                self.with(index, now, Conn::progress);
            }
        }
    }

    /// The sockets of live connections, and what to wait for on each.
    pub(super) fn live_sockets(&self) -> Vec<(usize, Arc<TcpStream>, rustix::event::PollFlags)> {
        let socket = |(index, slot): (usize, &Slot)| match slot {
            Slot::Conn(conn) if conn.is_live() => {
                Some((index, Arc::clone(conn.socket()?), conn.interest()))
            }
            _ => None,
        };
        self.slots.iter().filter_map(socket).collect()
    }

    // ---- slots ----

    /// Does something to a connection and keeps the books.
    fn with<R>(
        &mut self,
        index: usize,
        now: Time,
        act: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
            return None;
        };
        let before = Before {
            deadline: conn.deadline,
            live: conn.is_live(),
            draining: conn.phase == Phase::Draining,
        };
        let mut cx = Cx {
            options: &self.options,
            events: &mut self.events,
            counters: &mut self.counters,
            now,
        };
        let result = act(conn, &mut cx);
        self.after(index, &before);
        Some(result)
    }

    fn after(&mut self, index: usize, before: &Before) {
        let Some(Slot::Conn(conn)) = self.slots.get_mut(index) else {
            return;
        };
        if conn.deadline != before.deadline {
            if let Some(at) = before.deadline {
                self.timers.remove(&(at, index));
            }
            if let Some(at) = conn.deadline {
                self.timers.insert((at, index));
            }
        }
        let live = conn.is_live();
        self.live = self.live + usize::from(live) - usize::from(before.live);
        let draining = conn.phase == Phase::Draining;
        self.draining = self.draining + usize::from(draining) - usize::from(before.draining);
        if conn.phase == Phase::Closed {
            if !conn.owned {
                self.remove(index);
            }
            return;
        }
        if draining && !before.draining && self.draining > MAX_DRAINING {
            self.with(index, self.now, |conn, _| conn.close());
            return;
        }
        if live && conn.readable {
            // It used up its turn.
            self.ready.push_back(index);
        }
    }

    fn remove(&mut self, index: usize) {
        self.slots.remove(index);
        self.connections -= 1;
    }

    fn insert(&mut self, make: impl FnOnce(u64) -> Slot) -> io::Result<usize> {
        self.serial = self.serial.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let index = entry.key();
        entry.insert(make(u64::from(self.serial) << 32 | index as u64));
        if let (Some(poller), Some(slot)) = (&self.poller, self.slots.get(index))
            && let Err(error) = register(poller, index, slot)
        {
            self.slots.remove(index);
            return Err(error);
        }
        if matches!(self.slots.get(index), Some(Slot::Conn(_))) {
            self.connections += 1;
        }
        Ok(index)
    }

    /// The slot of a connection that the program knows by this identifier.
    fn find(&self, id: u64) -> Option<usize> {
        let index = (id & u64::from(u32::MAX)) as usize;
        match self.slots.get(index) {
            Some(Slot::Conn(conn)) if conn.id == id => Some(index),
            _ => None,
        }
    }

    fn owned(&self, qp: QpId) -> Option<usize> {
        let index = self.find(qp.0)?;
        self.conn(index).filter(|conn| conn.owned).map(|_| index)
    }

    fn conn(&self, index: usize) -> Option<&Conn> {
        match self.slots.get(index) {
            Some(Slot::Conn(conn)) => Some(conn),
            _ => None,
        }
    }

    /// A queue pair's connection.
    pub(super) fn qp_mut(&mut self, qp: QpId) -> Option<(&mut Conn, &mut Counters)> {
        let index = self.owned(qp)?;
        match self.slots.get_mut(index) {
            Some(Slot::Conn(conn)) => Some((conn, &mut self.counters)),
            _ => None,
        }
    }

    /// Something was posted to a send queue. What ends a batch goes out now.
    pub(super) fn posted(&mut self, qp: QpId, ends_batch: bool) {
        let Some(index) = self.owned(qp) else {
            return;
        };
        if ends_batch && !self.batching {
            self.with(index, self.now, Conn::flush_posted);
        } else {
            self.ready.push_back(index);
        }
    }

    // ---- listening ----

    pub(super) fn listen(&mut self, address: SocketAddr) -> io::Result<ListenerId> {
        let socket = TcpListener::bind(address)?;
        let make = |id| {
            let id = ListenerId(id);
            Slot::Listener(Listener { id, socket })
        };
        let index = self.insert(make)?;
        self.ready.push_back(index);
        match self.slots.get(index) {
            Some(Slot::Listener(listener)) => Ok(listener.id),
            _ => Err(io::Error::other("the listener is gone")),
        }
    }

    fn listener(&self, id: ListenerId) -> Option<(usize, &Listener)> {
        let index = (id.0 & u64::from(u32::MAX)) as usize;
        match self.slots.get(index) {
            Some(Slot::Listener(listener)) if listener.id == id => Some((index, listener)),
            _ => None,
        }
    }

    pub(super) fn local_address(&self, id: ListenerId) -> Result<SocketAddr, DeviceError> {
        let (_, listener) = self.listener(id).ok_or(DeviceError::Unknown("listener"))?;
        let address = listener.socket.local_addr();
        address.map_err(|source| system("cannot tell the listener's address", source))
    }

    pub(super) fn close_listener(&mut self, id: ListenerId) {
        if let Some((index, _)) = self.listener(id) {
            self.slots.remove(index);
        }
    }

    fn accept_all(&mut self, index: usize, now: Time) {
        while let Some(Slot::Listener(listener)) = self.slots.get(index) {
            let id = listener.id;
            match listener.socket.accept() {
                Ok((stream, peer)) => self.accepted(id, stream, peer, now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                            | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.accept_again = Some(now + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    fn accepted(&mut self, listener: ListenerId, stream: TcpStream, peer: SocketAddr, now: Time) {
        if self.connections >= self.options.max_connections {
            tracing::warn!(%peer, "refused: too many connections");
            return;
        }
        socket::prepare(&stream);
        self.bound_half_open();
        let (limits, deadline) = (self.limits, now + self.options.setup_timeout);
        let make = |id| {
            let conn = Conn::responder(id, stream, peer, limits, listener, deadline);
            Slot::Conn(Box::new(conn))
        };
        match self.insert(make) {
            Ok(index) => {
                self.timers.insert((deadline, index));
                if let Some(conn) = self.conn(index) {
                    self.half_open.push_back(conn.id);
                }
                self.with(index, now, Conn::progress);
            }
            Err(error) => tracing::warn!(%error, "cannot watch a connection"),
        }
    }

    /// Makes room for one more peer that has said nothing yet.
    fn bound_half_open(&mut self) {
        if self.half_open.len() < MAX_HALF_OPEN {
            return;
        }
        let mut half_open = std::mem::take(&mut self.half_open);
        half_open.retain(|id| {
            let conn = self.find(*id).and_then(|index| self.conn(index));
            conn.is_some_and(|conn| conn.phase == Phase::AwaitRequest)
        });
        if half_open.len() >= MAX_HALF_OPEN
            && let Some(index) = half_open.pop_front().and_then(|id| self.find(id))
        {
            self.with(index, self.now, |conn, _| conn.close());
        }
        self.half_open = half_open;
    }

    // ---- connecting ----

    /// What to ask the peer for, within the device's limits. Never nothing: Linux refuses a
    /// connection without IRD or ORD.
    fn wants(&self, inbound: u32, outbound: u32) -> Wants {
        let within = |asked: u32, limit: u32| super::depth(asked.min(limit));
        Wants {
            crc: self.options.crc == super::CrcPolicy::Request,
            inbound_reads: within(inbound, self.options.inbound_reads),
            outbound_reads: within(outbound, self.options.outbound_reads),
        }
    }

    pub(super) fn connect(
        &mut self,
        remote: SocketAddr,
        options: &ConnectOptions,
    ) -> Result<QpId, DeviceError> {
        check_private_data(&options.private_data)?;
        if self.connections >= self.options.max_connections {
            return Err(DeviceError::Limit("connections"));
        }
        let stream = match TcpStream::connect(remote) {
            Ok(stream) => stream,
            Err(error) => {
                let Some(failure) = refused_at_once(&error) else {
                    return Err(system(&format!("cannot connect to {remote}"), error));
                };
                // The peer's answer, only faster than usual: told as any other.
                self.serial = self.serial.wrapping_add(1);
                let qp = QpId(u64::from(self.serial) << 32 | u64::from(u32::MAX));
                self.events
                    .push_back(Event::ConnectFailed { qp, error: failure });
                return Ok(qp);
            }
        };
        let wants = self.wants(options.inbound_reads, options.outbound_reads);
        let limits = self.limits;
        let make = |id| {
            let now = Time::now();
            let conn = Conn::initiator(id, stream, remote, limits, wants, options, now);
            Slot::Conn(Box::new(conn))
        };
        let index = self
            .insert(make)
            .map_err(|source| system("cannot watch a connection", source))?;
        self.ready.push_back(index);
        let Some(conn) = self.conn(index) else {
            return Err(DeviceError::Unknown("connection"));
        };
        let (qp, deadline) = (conn.qp(), conn.deadline);
        self.timers.extend(deadline.map(|at| (at, index)));
        Ok(qp)
    }

    pub(super) fn prepare_accept(&mut self, request: RequestId) -> Result<QpId, DeviceError> {
        let index = self.requested(request.0)?;
        if let Some(Slot::Conn(conn)) = self.slots.get_mut(index) {
            conn.owned = true;
        }
        Ok(QpId(request.0))
    }

    fn requested(&self, id: u64) -> Result<usize, DeviceError> {
        let unknown = DeviceError::Unknown("connection request");
        let index = self.find(id).ok_or(unknown)?;
        match self.conn(index) {
            Some(conn) if conn.phase == Phase::Requested && !conn.owned => Ok(index),
            _ => Err(DeviceError::Unknown("connection request")),
        }
    }

    pub(super) fn accept(&mut self, qp: QpId, options: &AcceptOptions) -> Result<(), DeviceError> {
        check_private_data(&options.private_data)?;
        let index = self.owned(qp).ok_or(DeviceError::Unknown("queue pair"))?;
        if self
            .conn(index)
            .is_none_or(|conn| conn.phase != Phase::Requested)
        {
            return Err(DeviceError::Unknown("connection request"));
        }
        let wants = self.wants(options.inbound_reads, options.outbound_reads);
        self.with(index, Time::now(), |conn, cx| {
            conn.accept(options, &wants, cx)
        });
        Ok(())
    }

    pub(super) fn reject(&mut self, id: RequestId, private_data: &[u8]) -> Result<(), DeviceError> {
        check_private_data(private_data)?;
        let index = self.requested(id.0)?;
        let private_data = Bytes::copy_from_slice(private_data);
        self.with(index, Time::now(), |conn, cx| conn.reject(private_data, cx));
        Ok(())
    }

    // ---- ending ----

    pub(super) fn disconnect(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), Conn::disconnect);
        }
    }

    pub(super) fn abort(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), Conn::abort);
        }
    }

    pub(super) fn destroy(&mut self, qp: QpId) {
        if let Some(index) = self.owned(qp) {
            self.with(index, Time::now(), |conn, _| conn.destroy());
        }
        self.events.retain(|event| match event {
            Event::Established { qp: of, .. }
            | Event::ConnectFailed { qp: of, .. }
            | Event::Disconnected { qp: of, .. } => *of != qp,
            Event::Completion(completion) => completion.qp != qp,
            Event::ConnectRequest(_) => true,
        });
    }
}

/// Makes the owner's loop watch a slot.
fn register(poller: &Poller, index: usize, slot: &Slot) -> io::Result<()> {
    let token = Token(poller.first_token + 1 + index);
    let watch =
        |registry: &Registry, fd, interest| registry.register(&mut SourceFd(&fd), token, interest);
    match slot {
        Slot::Listener(listener) => watch(
            &poller.registry,
            listener.socket.as_raw_fd(),
            Interest::READABLE,
        ),
        Slot::Conn(conn) => match conn.socket() {
            Some(socket) => watch(
                &poller.registry,
                socket.as_raw_fd(),
                Interest::READABLE | Interest::WRITABLE,
            ),
            None => Ok(()),
        },
    }
}

fn check_private_data(data: &[u8]) -> Result<(), DeviceError> {
    let (len, max) = (data.len(), MAX_PRIVATE_DATA - ENHANCED);
    if len > max {
        return Err(DeviceError::PrivateDataTooLong { len, max });
    }
    Ok(())
}

pub(super) fn system(what: &str, source: io::Error) -> DeviceError {
    DeviceError::System {
        what: what.to_owned(),
        source,
    }
}
