//! The state of a connection: what each message means, given those before it.
//!
//! Ends are 0 and 1 as their carrier counts them; which of them is the client follows from the set-up,
//! or else from the first call.

mod control;
mod memory;
mod one;
mod rpc;
mod two;
mod two_wg;

use std::collections::HashMap;

use bytes::Bytes;
use rpcrdma_chunks::{Chunks, Direction, Fixed, Side};
use rpcrdma_v1::PrivateData;

use crate::call::{
    At, Call, Carrier, Connection, ConnectionId, EndName, Message, MessageKind, Outcome, Version,
};
use crate::limits::MAX_LISTED;
use crate::rules::{self, Breach, Rule};
use crate::sink::{Lost, Sink};
use crate::span::Span;
use memory::{Reading, Regions};

/// Maximum number of places that are reported of what a connection lacks.
const MAX_LOST: u32 = 100;
/// Maximum number of broken rules that are kept until a connection turns out to be of RPC-over-RDMA.
const MAX_EARLY: usize = 16;

/// Where what is read goes to.
pub(crate) struct Out<'a> {
    pub(crate) sink: &'a mut dyn Sink,
    /// Number of connections so far.
    pub(crate) connections: u32,
}

/// A complete Send.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Bytes,
    /// Number of bytes in front of the first that the capture lacks.
    pub(crate) known: usize,
    /// Length in bytes.
    pub(crate) length: u64,
    pub(crate) invalidates: Option<u32>,
    pub(crate) span: Span,
}

impl Sent {
    /// Returns the bytes in front of the first that the capture lacks.
    fn known(&self) -> Bytes {
        self.bytes.slice(..self.known)
    }

    fn is_cut(&self) -> bool {
        (self.known as u64) < self.length
    }
}

/// Data of an RDMA operation.
pub(crate) struct Data<'a> {
    /// The data, with zeros for what the capture lacks.
    pub(crate) bytes: &'a [u8],
    /// Number of bytes in front of the first that the capture lacks.
    pub(crate) known: usize,
    /// Whether the message ends with them.
    pub(crate) is_last: bool,
}

/// A call that has not ended.
#[derive(Debug)]
struct Pending {
    call: Call,
    /// The chunks that the call offers.
    offered: Chunks,
    /// Whether the RPC message of the call is in a chunk.
    is_long: bool,
    /// The handle that the reply may invalidate, where the header names one; zero if there is none.
    inv_handle: Option<u32>,
    /// The beginning of the RPC messages of call and reply.
    heads: [Vec<u8>; 2],
    /// Credits that the call takes.
    credits: u32,
}

/// The state of one end.
#[derive(Debug, Default)]
struct End {
    /// The calls that it sent, by XID.
    calls: HashMap<u32, Pending>,
    regions: Regions,
    /// The RDMA Reads that it requested.
    reads: HashMap<u64, Reading>,
    credits: control::Credits,
    two: two::State,
    two_wg: two_wg::State,
    /// Number of messages that it sent.
    sent: u64,
    /// The version of its last message that is no error.
    speaks: Option<Version>,
}

/// A connection that is read.
#[derive(Debug)]
pub(crate) struct Conversation {
    connection: Connection,
    /// The end that is the client, once that is known.
    client: Option<usize>,
    /// The names and the private data of the ends as their carrier counts them.
    names: [EndName; 2],
    private_data: [Option<PrivateData>; 2],
    ends: [End; 2],
    is_announced: bool,
    is_foreign: bool,
    /// Whether something is missing since the beginning.
    is_lossy: bool,
    /// Whether an end has acknowledged what the capture has not shown yet.
    is_behind: bool,
    losses: u32,
    early: Vec<Breach>,
    /// The version 2 that is spoken: that of 2016 or that of the working group.
    two: Option<Version>,
    /// The version that both ends have sent messages of.
    settled: Option<Version>,
}

/// Returns whether a message may be one of RPC-over-RDMA.
pub(crate) fn speaks(message: &[u8]) -> bool {
    let Some(fixed) = Fixed::peek(message) else {
        return false;
    };
    match fixed.version {
        rpcrdma_v1::VERSION => fixed.procedure <= 4,
        rpcrdma_v2::VERSION => fixed.procedure <= 13 || fixed.procedure >= 0xffff_ff00,
        _ => false,
    }
}

impl Conversation {
    pub(crate) fn new(carrier: Carrier, names: [EndName; 2], began: At) -> Self {
        Self {
            connection: Connection {
                id: ConnectionId::default(),
                carrier,
                ends: names,
                began,
                is_set_up: false,
                private_data: [None; 2],
                receive_size: [None; 2],
                version: None,
            },
            client: None,
            names,
            private_data: [None; 2],
            ends: Default::default(),
            is_announced: false,
            is_foreign: false,
            is_lossy: false,
            is_behind: false,
            losses: 0,
            early: Vec::new(),
            two: None,
            settled: None,
        }
    }

    /// Returns whether the messages are of another protocol.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns whether the capture has all of the connection so far, so that what is missing in it is
    /// missing on the wire.
    pub(crate) fn is_whole(&self) -> bool {
        self.connection.is_set_up && !self.is_lossy && !self.is_behind
    }

    /// Says whether an end has acknowledged what the capture has not shown yet.
    pub(crate) fn set_behind(&mut self, is_behind: bool) {
        self.is_behind = is_behind;
    }

    pub(crate) fn set_client(&mut self, end: usize) {
        if self.client.is_none() {
            self.client = Some(end);
        }
        self.arrange();
    }

    pub(crate) fn name_end(&mut self, end: usize, name: EndName) {
        self.names[end] = name;
        self.arrange();
    }

    /// Puts what is known of the ends in the order client, server.
    fn arrange(&mut self) {
        let client = self.client.unwrap_or(0);
        let order = [client, 1 - client];
        self.connection.ends = order.map(|end| self.names[end]);
        self.connection.private_data = order.map(|end| self.private_data[end]);
        self.connection.receive_size = order.map(|end| self.receive_size(end));
    }

    /// Returns the longest message in bytes that an end takes, if that is known.
    fn receive_size(&self, end: usize) -> Option<u32> {
        match self.connection.version {
            Some(Version::TwoWg) => self.ends[end].two_wg.receive_size(),
            Some(Version::Two) => self.ends[end].two.receive_size(),
            Some(Version::One) | None => {
                let is_known = self.connection.is_set_up;
                let size = self.private_data[end].unwrap_or_default().receive_size();
                is_known.then_some(size)
            }
        }
    }

    /// Returns the side of an end.
    fn side(&self, end: usize) -> Side {
        match self.client.unwrap_or(0) == end {
            true => Side::Client,
            false => Side::Server,
        }
    }

    /// Takes one of the two messages of the connection's set-up.
    pub(crate) fn set_up(
        &mut self,
        from: usize,
        is_request: bool,
        private_data: &[u8],
        out: &mut Out<'_>,
    ) {
        self.client = Some(if is_request { from } else { 1 - from });
        self.private_data[from] = PrivateData::find(private_data);
        if !is_request {
            self.connection.is_set_up = true;
            self.ends.iter_mut().for_each(|end| end.credits.begin());
        }
        self.arrange();
        if self.private_data[from].is_some() || self.is_announced {
            self.announce(out);
        }
    }

    /// Tells the sink of the connection, or that more is known of it.
    fn announce(&mut self, out: &mut Out<'_>) {
        if !self.is_announced {
            self.is_announced = true;
            self.connection.id = ConnectionId(out.connections);
            out.connections += 1;
        }
        self.arrange();
        out.sink.connection(&self.connection);
        for mut breach in std::mem::take(&mut self.early) {
            breach.connection = self.connection.id;
            out.sink.breach(&self.connection, breach);
        }
    }

    pub(crate) fn breach(
        &mut self,
        rule: &'static Rule,
        at: At,
        xid: Option<u32>,
        detail: String,
        out: &mut Out<'_>,
    ) {
        let breach = Breach {
            rule,
            connection: self.connection.id,
            at,
            xid,
            detail,
        };
        if self.is_announced {
            out.sink.breach(&self.connection, breach);
        } else if self.early.len() < MAX_EARLY {
            self.early.push(breach);
        }
    }

    /// Notes that something is missing in the capture.
    pub(crate) fn lose(&mut self, reason: &str, at: At, out: &mut Out<'_>) {
        self.is_lossy |= self.is_announced || self.connection.is_set_up;
        for end in &mut self.ends {
            end.calls
                .values_mut()
                .for_each(|it| it.call.is_incomplete = true);
            end.two.group = None;
            end.two_wg.parts = None;
        }
        self.losses += 1;
        if self.is_announced && self.losses <= MAX_LOST {
            let reason = reason.to_owned();
            out.sink.lost(&self.connection, Lost { at, reason });
        }
    }

    /// Handles a Send.
    pub(crate) fn send(&mut self, from: usize, sent: Sent, out: &mut Out<'_>) {
        let fixed = Fixed::peek(&sent.known());
        if !self.is_announced {
            if !speaks(&sent.known()) {
                self.is_foreign = true;
                return;
            }
            self.announce(out);
        }
        self.ends[from].sent += 1;
        let version = fixed.and_then(|fixed| self.version_of(&fixed, sent.length));
        let (Some(fixed), Some(version)) = (fixed, version) else {
            self.unknown(from, &sent, fixed, out);
            return;
        };
        self.check_version(from, version, &fixed, sent.span.last, out);
        if self.connection.version != Some(version) && fixed.procedure != 4 {
            self.connection.version = Some(version);
            self.announce(out);
        }
        match version {
            Version::One => self.one(from, &sent, out),
            Version::Two => self.two(from, &sent, out),
            Version::TwoWg => self.two_wg(from, &sent, out),
        }
        if !sent.is_cut() {
            let (from, at) = (self.side(from), sent.span.last);
            out.sink.sent(&self.connection, from, at, &sent.bytes);
        }
    }

    /// Returns the version of a message. There are two versions 2: both have type 4 for errors, and 5,
    /// which has 28 bytes at least in 2016 and 16 otherwise; the others tell them apart.
    fn version_of(&mut self, fixed: &Fixed, length: u64) -> Option<Version> {
        match fixed.version {
            rpcrdma_v1::VERSION => Some(Version::One),
            rpcrdma_v2::VERSION => {
                let guess = match fixed.procedure {
                    5 if length < 28 => Version::TwoWg,
                    0..=5 => Version::Two,
                    _ => Version::TwoWg,
                };
                let version = self.two.unwrap_or(guess);
                if fixed.procedure != 4 {
                    self.two = Some(version);
                }
                Some(version)
            }
            _ => None,
        }
    }

    /// Checks that a connection keeps its version. It has one when both ends have sent a message of it
    /// that is no error.
    fn check_version(
        &mut self,
        from: usize,
        version: Version,
        fixed: &Fixed,
        at: At,
        out: &mut Out<'_>,
    ) {
        if fixed.procedure == 4 {
            return;
        }
        self.ends[from].speaks = Some(version);
        match self.settled {
            Some(settled) if settled != version => {
                let detail = format!("version {version} after {settled}");
                self.breach(&rules::VERSION_CHANGED, at, Some(fixed.xid), detail, out);
            }
            _ if self.ends[1 - from].speaks == Some(version) => self.settled = Some(version),
            _ => {}
        }
    }

    fn unknown(&mut self, from: usize, sent: &Sent, fixed: Option<Fixed>, out: &mut Out<'_>) {
        let at = sent.span.last;
        match fixed {
            None if sent.is_cut() => {
                self.lose("a message is cut off", at, out);
                return;
            }
            None => {
                let detail = format!("{} bytes", sent.length);
                self.breach(&rules::SHORT, at, None, detail, out);
            }
            Some(fixed) => {
                let detail = format!("version {}", fixed.version);
                self.breach(&rules::VERSION, at, Some(fixed.xid), detail, out);
            }
        }
        let credits = fixed.map_or(0, |fixed| fixed.credits);
        let message = self.message(from, sent, MessageKind::Unknown, "unknown", credits);
        out.sink.other(&self.connection, message);
    }

    /// Returns a message, without what its header says.
    fn message(
        &self,
        from: usize,
        sent: &Sent,
        kind: MessageKind,
        name: &'static str,
        credits: u32,
    ) -> Message {
        Message {
            from: self.side(from),
            first: sent.span.first,
            last: sent.span.last,
            packets: sent.span.packets,
            octets: sent.length,
            header: 0,
            kind,
            name,
            summary: String::new(),
            credits,
            invalidates: sent.invalidates,
            waited: false,
        }
    }

    /// Adds a message to a call of an end.
    fn list(&mut self, caller: usize, xid: u32, message: Message) {
        if let Some(pending) = self.ends[caller].calls.get_mut(&xid)
            && pending.call.messages.len() < MAX_LISTED
        {
            pending.call.messages.push(message);
        }
    }

    pub(crate) fn has_call(&self, end: usize, xid: u32) -> bool {
        self.ends[end].calls.contains_key(&xid)
    }

    pub(crate) fn offers(&self, end: usize, handle: u32) -> bool {
        self.ends[end].regions.knows(handle)
    }

    /// Ends the connection, or the capture.
    pub(crate) fn finish(&mut self, out: &mut Out<'_>) {
        let mut left: Vec<Pending> = Vec::new();
        for end in &mut self.ends {
            left.extend(end.calls.drain().map(|(_, pending)| pending));
            *end = End::default();
        }
        left.sort_by_key(|pending| (pending.call.started, pending.call.xid));
        for pending in left {
            self.deliver(pending, Outcome::Unanswered, out);
        }
    }
}

/// Returns the direction of an RPC message, if its beginning is there and valid.
fn rpc_direction(payload: &[u8]) -> Option<Direction> {
    let word = payload.get(4..)?.first_chunk()?;
    Direction::from_number(u32::from_be_bytes(*word))
}
