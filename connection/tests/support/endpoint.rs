//! One end of a connection, with a device in memory.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma::{Buf, Pool, Region, RemoteSegment, Stag, Time};
use rpcrdma_connection::{
    Action, CallError, CallId, Config, Connection, Event, ReadId, ReceiveStructure, ReceivesId,
    RegistrationId, ReplyRoom, Role,
};
use rpcrdma_negotiation::VersionDecision;
use rpcrdma_v1::PrivateData;

use super::Seen;

/// A posted work request with an effect on the peer. Work requests take effect in the order in
/// which they are posted.
#[derive(Clone, Debug)]
pub enum Posted {
    /// A Send, with the handle that it invalidates.
    Send(Bytes, Option<Stag>),
    /// An RDMA Write.
    Write(Bytes, Stag, u64),
}

/// An RDMA Read that was posted and has not completed.
#[derive(Debug)]
pub struct PendingRead {
    pub id: ReadId,
    pub sink: Buf,
    pub stag: Stag,
    pub offset: u64,
}

/// Registered memory.
#[derive(Debug)]
pub struct Registered {
    pub region: Region,
    /// The tagged offset of its first byte.
    pub base: u64,
}

/// One end of a connection, with a device that carries out its actions. The device collects work
/// requests, and the test decides when they are done.
pub struct Endpoint {
    pub connection: Connection,
    pub config: Config,
    pub pool: Pool,
    pub now: Time,
    /// The number of free send-queue entries. Each work request takes one, unless it is
    /// `usize::MAX`.
    pub room: usize,
    /// Whether requests for further receives fail.
    pub no_further_receives: bool,
    /// The receives that are posted, oldest first.
    pub receives: VecDeque<ReceiveStructure>,
    structure: ReceiveStructure,
    replacing: bool,
    /// The number of consumed receives that must not be reposted.
    release: u32,
    /// Memory that the peer can reach.
    pub registered: HashMap<Stag, Registered>,
    /// Memory whose handles the peer, or the end of the connection, has invalidated, until the connection reclaims it.
    pub invalidated_remotely: HashMap<Stag, Region>,
    last_stag: u32,
    pub posting: Vec<(ReceivesId, u32)>,
    pub registering: Vec<(RegistrationId, Region)>,
    pub invalidating: Vec<(RegistrationId, Stag)>,
    pub reads: Vec<PendingRead>,
    /// The maximum number of RDMA Reads that were outstanding at the same time.
    pub most_reads: usize,
    pub posted: VecDeque<Posted>,
    /// Every Send, in order.
    pub sent: Vec<(Bytes, Option<Stag>)>,
    /// Length of every RDMA Write, in order.
    pub written: Vec<usize>,
    /// Every handle that was invalidated by a Local Invalidate.
    pub invalidated: Vec<Stag>,
    /// The number of registrations requested.
    pub registrations: usize,
    pub delivered: VecDeque<(CallId, Message)>,
    pub finished: Vec<(u32, Result<Message, CallError>)>,
    pub decisions: Vec<VersionDecision>,
    pub misjudged: bool,
    /// The reason of [`Action::Close`], if there was one.
    pub closed: Option<String>,
    /// The handles that each call offered.
    offered: HashMap<u32, Vec<Stag>>,
    /// Whether more Sends of the same message follow the last one.
    more_follow: bool,
}

impl Endpoint {
    /// Returns an end that is not connected, with its receives posted.
    pub fn new(config: Config) -> Self {
        // Both ends have different handles, so that a test can tell them apart.
        let last_stag = match config.role {
            Role::Client { .. } => 0,
            Role::Server { .. } => 1 << 28,
        };
        let mut endpoint = Self {
            connection: Connection::new(config.clone()),
            pool: config.pool.clone(),
            now: Time::ZERO,
            room: usize::MAX,
            no_further_receives: false,
            receives: VecDeque::new(),
            structure: config.receives.clone(),
            config,
            replacing: false,
            release: 0,
            registered: HashMap::new(),
            invalidated_remotely: HashMap::new(),
            last_stag,
            posting: Vec::new(),
            registering: Vec::new(),
            invalidating: Vec::new(),
            reads: Vec::new(),
            most_reads: 0,
            posted: VecDeque::new(),
            sent: Vec::new(),
            written: Vec::new(),
            invalidated: Vec::new(),
            registrations: 0,
            delivered: VecDeque::new(),
            finished: Vec::new(),
            decisions: Vec::new(),
            misjudged: false,
            closed: None,
            offered: HashMap::new(),
            more_follow: false,
        };
        endpoint.run();
        endpoint
    }

    /// Establishes the connection. `peer` is the peer's private data.
    pub fn establish(&mut self, peer: Option<PrivateData>) {
        self.handle(Event::Established { peer });
        self.run();
    }

    /// Passes an event to the connection.
    pub fn handle(&mut self, event: Event) {
        self.connection.handle(self.now, event);
    }

    /// Makes a call. If the peer accepts no calls, it ends at once with an error.
    pub fn call(&mut self, call: Message, room: &ReplyRoom) {
        let xid = u32::from_be_bytes(call.payload().concat()[..4].try_into().unwrap());
        if let Err(error) = self.connection.call(xid, call, room) {
            self.finished.push((xid, Err(error)));
        }
    }

    /// Collects the actions of the connection.
    pub fn poll(&mut self) {
        while let Some(action) = self.connection.poll_action(self.room) {
            self.act(action);
        }
    }

    /// Collects the actions of the connection and executes at once those that do not involve the
    /// peer.
    pub fn run(&mut self) {
        loop {
            self.poll();
            if !self.posting.is_empty() {
                self.post(0);
            } else if !self.registering.is_empty() {
                self.register(0);
            } else if !self.invalidating.is_empty() {
                self.invalidate(0);
            } else {
                return;
            }
        }
    }

    fn entry(&mut self) {
        if self.room != usize::MAX {
            self.room = self.room.saturating_sub(1);
        }
    }

    fn act(&mut self, action: Action) {
        assert!(
            !self.more_follow || matches!(action, Action::Send { .. }),
            "between Sends of one message: {action:?}"
        );
        match action {
            Action::PostReceives { id, count } => self.posting.push((id, count)),
            Action::ReleaseReceives { count } => self.release_receives(count),
            Action::ReplaceReceives(structure) => {
                self.structure = structure;
                self.replacing = true;
                self.report_replaced();
            }
            Action::Register { id, region } => {
                self.registrations += 1;
                self.registering.push((id, region));
            }
            Action::Invalidate { id, stag } => {
                assert!(self.registered.contains_key(&stag), "invalidated twice");
                self.entry();
                self.invalidated.push(stag);
                self.invalidating.push((id, stag));
            }
            Action::Reclaim { id, stag } => {
                let region = self.invalidated_remotely.remove(&stag);
                let region = region.expect("the peer, or the end, invalidated it");
                self.handle(Event::Reclaimed { id, region });
            }
            Action::Send {
                gather,
                invalidate,
                more,
            } => {
                self.more_follow = more;
                self.entry();
                self.send(gather.concat().into(), invalidate);
                self.connection.sends_wait(0);
            }
            Action::Read {
                id,
                sink,
                stag,
                offset,
            } => {
                self.entry();
                self.reads.push(PendingRead {
                    id,
                    sink,
                    stag,
                    offset,
                });
                self.most_reads = self.most_reads.max(self.reads.len());
            }
            Action::Write {
                gather,
                stag,
                offset,
            } => {
                self.entry();
                let bytes = Bytes::from(gather.concat());
                self.written.push(bytes.len());
                self.posted.push_back(Posted::Write(bytes, stag, offset));
            }
            Action::Deliver { id, message } => self.delivered.push_back((id, message)),
            Action::Finished { xid, result } => self.finish(xid, result),
            Action::Decided(decision) => self.decisions.push(decision),
            Action::Misjudged => self.misjudged = true,
            Action::Close { reason } => {
                self.closed.get_or_insert(reason);
            }
        }
    }

    fn send(&mut self, bytes: Bytes, invalidate: Option<Stag>) {
        if let Some(seen) = Seen::new(&bytes)
            && let Some(chunks) = &seen.chunks
        {
            let stags: Vec<Stag> = chunks.handles().map(Stag).collect();
            // A reply lists the handles of its call, which are the peer's.
            let own = |stag: &Stag| self.registered.contains_key(stag);
            if stags.iter().all(own) {
                self.offered.insert(seen.xid, stags);
            }
        }
        self.sent.push((bytes.clone(), invalidate));
        self.posted.push_back(Posted::Send(bytes, invalidate));
    }

    fn finish(&mut self, xid: u32, result: Result<Message, CallError>) {
        for stag in self.offered.remove(&xid).into_iter().flatten() {
            assert!(
                !self.registered.contains_key(&stag),
                "call {xid} ended while the peer can reach its memory"
            );
        }
        let ended = self.finished.iter().any(|(other, _)| *other == xid);
        assert!(!ended, "call {xid} ended twice");
        self.finished.push((xid, result));
    }

    /// Ends the connection, and with it what the device was to do. Invalidates all handles, as a device does.
    pub fn close(&mut self) {
        self.invalidating.clear();
        let registered = self.registered.drain();
        let invalidated = registered.map(|(stag, registered)| (stag, registered.region));
        self.invalidated_remotely.extend(invalidated);
        self.handle(Event::Closed);
    }

    /// Posts the further receives with this index, unless they are refused.
    pub fn post(&mut self, index: usize) {
        let (id, count) = self.posting.remove(index);
        let posted = !self.no_further_receives;
        if posted {
            let new = std::iter::repeat_n(self.structure.clone(), count as usize);
            self.receives.extend(new);
        }
        self.handle(Event::ReceivesPosted { id, posted });
    }

    /// Executes the registration with this index.
    pub fn register(&mut self, index: usize) {
        let (id, region) = self.registering.remove(index);
        self.last_stag += 1;
        let stag = Stag(self.last_stag);
        let (length, offset) = (region.len() as u32, u64::from(stag.0) << 32);
        let base = offset;
        self.registered.insert(stag, Registered { region, base });
        let result = Ok(RemoteSegment {
            stag,
            length,
            offset,
        });
        self.handle(Event::Registered { id, result });
    }

    /// Executes the invalidation with this index.
    pub fn invalidate(&mut self, index: usize) {
        let (id, stag) = self.invalidating.remove(index);
        // The peer's Send With Invalidate may have been faster: the work request of a real device
        // fails then, so that the connection must not have asked for it.
        let registered = self.registered.remove(&stag).expect("invalidated twice");
        let region = registered.region;
        self.handle(Event::Reclaimed { id, region });
    }

    /// Reports the completion of an RDMA Read to the connection.
    pub fn read_done(&mut self, read: PendingRead) {
        let PendingRead { id, sink, .. } = read;
        self.handle(Event::ReadDone { id, sink });
    }

    /// Returns `len` bytes at this place of registered memory, if the peer may read them.
    pub fn remote_read(&self, stag: Stag, offset: u64, len: usize) -> Option<Bytes> {
        let Registered { region, base } = self.registered.get(&stag)?;
        let start = usize::try_from(offset.checked_sub(*base)?).ok()?;
        match region {
            Region::RemoteRead(bytes) if start + len <= bytes.len() => {
                Some(bytes.slice(start..start + len))
            }
            _ => None,
        }
    }

    /// Writes to this place of registered memory, if the peer may.
    pub fn remote_write(&mut self, stag: Stag, offset: u64, bytes: &[u8]) -> Option<()> {
        let Registered { region, base } = self.registered.get_mut(&stag)?;
        let start = usize::try_from(offset.checked_sub(*base)?).ok()?;
        match region {
            Region::RemoteWrite(buf) if start + bytes.len() <= buf.len() => {
                buf[start..start + bytes.len()].copy_from_slice(bytes);
                Some(())
            }
            _ => None,
        }
    }

    /// Delivers a message of the peer, which consumes the oldest receive. Returns `None` if the
    /// message invalidates an invalid handle, which ends the connection.
    pub fn receive(&mut self, message: &Bytes, invalidate: Option<Stag>) -> Option<()> {
        let receive = self.receives.pop_front().expect("there is no receive");
        let (len, room) = (message.len(), receive.size());
        assert!(
            len <= room,
            "a message of {len} bytes for a receive of {room}"
        );
        if let Some(stag) = invalidate {
            // The work request that invalidates it here as well would fail.
            if self.invalidating.iter().any(|(_, other)| *other == stag) {
                return None;
            }
            let registered = self.registered.remove(&stag)?;
            self.invalidated_remotely.insert(stag, registered.region);
        }
        self.handle(Event::Received {
            message: cut(message, &receive),
            invalidated: invalidate,
        });
        match self.release.checked_sub(1) {
            Some(left) => self.release = left,
            None => self.receives.push_back(self.structure.clone()),
        }
        self.report_replaced();
        Some(())
    }

    /// Delivers the beginning of a message of the peer, as if there were no memory for the rest.
    pub fn receive_truncated(&mut self, message: &Bytes) {
        self.receives.pop_front().expect("there is no receive");
        self.handle(Event::ReceivedTruncated {
            beginning: message.slice(..message.len().min(1024)),
            invalidated: None,
        });
        self.receives.push_back(self.structure.clone());
    }

    fn release_receives(&mut self, count: u32) {
        self.release += count;
    }

    fn report_replaced(&mut self) {
        let is_new = |receive: &ReceiveStructure| *receive == self.structure;
        if self.replacing && self.receives.iter().all(is_new) {
            self.replacing = false;
            self.handle(Event::ReceivesReplaced(self.structure.clone()));
        }
    }

    /// Answers a call that was delivered.
    pub fn reply(&mut self, id: CallId, message: Option<Message>) {
        self.connection.reply(self.now, id, message);
    }

    /// Returns the number of Sends that the peer has not received yet.
    pub fn sends_under_way(&self) -> usize {
        let is_send = |posted: &&Posted| matches!(posted, Posted::Send(..));
        self.posted.iter().filter(is_send).count()
    }
}

/// Cuts a message into the segments of the receive in which it arrived.
fn cut(message: &Bytes, receive: &ReceiveStructure) -> Segments {
    let mut rest = message.clone();
    let mut pieces = Segments::new();
    for len in receive.lengths() {
        if rest.is_empty() {
            break;
        }
        pieces.push(rest.split_to(len.min(rest.len())));
    }
    pieces
}
