//! Connections over TCP with as little work for each call as possible.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mio::{Events, Interest, Poll, Token};
use nfs_binding::proto::FileHandle;
use rpcrdma_setup::{Context, Failure};

use super::PATIENCE;
use super::figures::Latency;
use super::op::Op;
use super::wire::{CallTemplate, check_reply, reply_xid};

/// The room for replies that arrive together, bytes.
const INPUT: usize = 256 << 10;
/// The longest reply, bytes. That of a READ of 4 KiB is the longest one that is asked for.
const MAX_REPLY: usize = 16 << 10;
/// The top bit of a record mark: the last fragment of a record (RFC 5531, section 11).
const LAST: u32 = 0x8000_0000;
/// The time that a server has to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The interval at which a server that does not answer is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Connections of one thread to one server.
pub(super) struct TcpConnections {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    /// A call of each operation.
    templates: [CallTemplate; 3],
}

impl TcpConnections {
    /// Connects `count` times to `server`, for `in_flight` calls at a time on each connection.
    ///
    /// `first_xids` are the first XIDs of each connection. They are far apart, so that a server whose
    /// reply cache tells clients by their addresses takes no call for the retransmission of another
    /// connection's.
    pub(super) fn new(
        server: SocketAddr,
        first_xids: &[u32],
        in_flight: usize,
        file: FileHandle,
        data: &Bytes,
    ) -> Result<Self, Failure> {
        let credential = rpcrdma_setup::access::credential();
        let template = |op| CallTemplate::new(op, file, &credential, data);
        let templates = [
            template(Op::Getattr)?,
            template(Op::Read)?,
            template(Op::Write)?,
        ];
        let poll = Poll::new().context("cannot set up polling")?;
        let mut connections = Vec::new();
        for (index, &xid) in first_xids.iter().enumerate() {
            let what = || format!("cannot connect to {server}");
            let stream = TcpStream::connect_timeout(&server, CONNECT).context(what())?;
            stream.set_nodelay(true).context(what())?;
            stream.set_nonblocking(true).context(what())?;
            let mut stream = mio::net::TcpStream::from_std(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = poll.registry().register(&mut stream, Token(index), both);
            registered.context("cannot set up polling")?;
            connections.push(Connection::new(stream, xid, in_flight));
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(256),
            connections,
            templates,
        })
    }

    /// Makes calls of `op` until `until`, and waits for the last replies. Returns the number of
    /// calls.
    ///
    /// # Errors
    /// A call failed, the connection was lost, or the server does not answer.
    pub(super) fn run(
        &mut self,
        op: Op,
        until: Instant,
        latency: &mut Latency,
    ) -> Result<u64, Failure> {
        let Some(template) = self.templates.iter().find(|template| template.op() == op) else {
            return Err(Failure::Work(format!("no call of {op} is encoded")));
        };
        let mut calls = 0;
        let mut outstanding = 0;
        let now = Instant::now();
        for connection in &mut self.connections {
            outstanding += connection.start_all(template, now);
            connection.send().context(op.procedure())?;
        }
        while outstanding > 0 {
            match self.poll.poll(&mut self.events, Some(LOOK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(Failure::Work(format!("cannot poll: {error}")));
                }
                _ => {}
            }
            for event in &self.events {
                let Some(connection) = self.connections.get_mut(event.token().0) else {
                    continue;
                };
                let (ended, started) = connection.turn(template, until, latency)?;
                calls += ended;
                outstanding = outstanding + started - ended;
            }
            if Instant::now() > until + PATIENCE {
                let text = format!("{}: no reply for {PATIENCE:?}", op.procedure());
                return Err(Failure::Work(text));
            }
        }
        Ok(calls)
    }
}

/// A call that may be outstanding.
#[derive(Clone, Copy)]
struct Slot {
    xid: u32,
    started: Instant,
    outstanding: bool,
}

/// One connection.
struct Connection {
    stream: mio::net::TcpStream,
    /// Calls that are being sent.
    output: Vec<u8>,
    /// The bytes of `output` that were sent.
    sent: usize,
    input: Vec<u8>,
    /// The bytes of `input` that were received and not examined yet.
    filled: usize,
    /// The earlier fragments of a record in several.
    fragments: Vec<u8>,
    /// The calls that can be outstanding. The low bits of an XID are the index of its slot.
    slots: Vec<Slot>,
    slot_bits: u32,
    next_xid: u32,
    serial: u64,
}

impl Connection {
    fn new(stream: mio::net::TcpStream, first_xid: u32, in_flight: usize) -> Self {
        let slot = Slot {
            xid: 0,
            started: Instant::now(),
            outstanding: false,
        };
        let slot_bits = in_flight.next_power_of_two().trailing_zeros();
        Self {
            stream,
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT],
            filled: 0,
            fragments: Vec::new(),
            slots: vec![slot; in_flight],
            slot_bits,
            next_xid: first_xid >> slot_bits << slot_bits,
            serial: 0,
        }
    }

    /// Starts as many calls as can be in flight. Returns their number.
    fn start_all(&mut self, template: &CallTemplate, now: Instant) -> u64 {
        for slot in 0..self.slots.len() {
            self.start(slot, template, now);
        }
        self.slots.len() as u64
    }

    fn start(&mut self, slot: usize, template: &CallTemplate, now: Instant) {
        let xid = self.next_xid | slot as u32;
        self.next_xid = self.next_xid.wrapping_add(1 << self.slot_bits);
        self.slots[slot] = Slot {
            xid,
            started: now,
            outstanding: true,
        };
        let offset = template.op().offset(self.serial);
        self.serial += 1;
        template.append(&mut self.output, xid, offset);
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives replies, starts a call for each until `until`, and sends these. Returns the number
    /// of calls that ended, and of those that were started.
    fn turn(
        &mut self,
        template: &CallTemplate,
        until: Instant,
        latency: &mut Latency,
    ) -> Result<(u64, u64), Failure> {
        let (mut ended, mut started) = (0, 0);
        loop {
            let room = self.input.len() - self.filled;
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(Failure::work("the server closed the connection")),
                Ok(read) => {
                    self.filled += read;
                    let now = Instant::now();
                    let replies = self.replies(template, now, now < until, latency)?;
                    ended += replies;
                    started += if now < until { replies } else { 0 };
                    self.send().context(template.op().procedure())?;
                    // Nothing is left in the socket, and what comes later is another event.
                    if read < room {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Failure::Work(format!("the connection was lost: {error}")));
                }
            }
        }
        self.send().context(template.op().procedure())?;
        Ok((ended, started))
    }

    /// Examines the replies that are complete. With `again`, starts a call for each. Returns their
    /// number.
    fn replies(
        &mut self,
        template: &CallTemplate,
        now: Instant,
        again: bool,
        latency: &mut Latency,
    ) -> Result<u64, Failure> {
        let (mut at, mut replies) = (0, 0);
        while let Some(mark) = self.input[at..self.filled].first_chunk() {
            let mark = u32::from_be_bytes(*mark);
            let len = (mark & !LAST) as usize;
            if len + self.fragments.len() > MAX_REPLY {
                let text = format!("a reply of {len} bytes, which is longer than any expected");
                return Err(Failure::Work(text));
            }
            let body = at + 4..at + 4 + len;
            if body.end > self.filled {
                break;
            }
            at = body.end;
            if mark & LAST == 0 {
                self.fragments.extend_from_slice(&self.input[body]);
                continue;
            }
            let slot = match self.fragments.is_empty() {
                true => self.check(template.op(), &self.input[body])?,
                false => {
                    self.fragments.extend_from_slice(&self.input[body]);
                    let slot = self.check(template.op(), &self.fragments)?;
                    self.fragments.clear();
                    slot
                }
            };
            self.slots[slot].outstanding = false;
            latency.record(now - self.slots[slot].started);
            replies += 1;
            if again {
                self.start(slot, template, now);
            }
        }
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(replies)
    }

    /// Checks a reply. Returns the slot of its call.
    fn check(&self, op: Op, reply: &[u8]) -> Result<usize, Failure> {
        let wrong = |text| Failure::Work(format!("{}: {text}", op.procedure()));
        let xid = reply_xid(reply).ok_or_else(|| wrong("a reply without an XID".to_owned()))?;
        let slot = (xid & ((1 << self.slot_bits) - 1)) as usize;
        match self.slots.get(slot) {
            Some(known) if known.outstanding && known.xid == xid => {}
            _ => return Err(wrong(format!("a reply to no call (XID {xid:#010x})"))),
        }
        check_reply(op, reply).map_err(wrong)?;
        Ok(slot)
    }
}
