//! The client's port: requesters, driven by a device.

mod stuck;
mod version;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use onc_rpc::Message;
use rdma::{
    Completion, ConnectOptions, Counters, Device, Event, Poller, Pool, QpId, Success, Time,
    WorkError,
};
use rpcrdma_negotiation::{ClientNegotiation, Memory, Version};
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::Side;

use self::stuck::Stuck;
use self::version::{at_time, converse, since_start};
use super::backward::run_callee;
use super::conversation::{ClientConversation, Setup};
use super::driver::{
    LINGER, Mark, RETRY, act_on_memory, ended, max_segment, not_connected, work_done,
};
use super::link::{BEYOND_CREDITS, EXTRA_RECEIVES, Link};
use super::options::RdmaClientOptions;
use super::receives::ReceiveStructure;
use super::requester::{Requester, RequesterAction, RequesterConfig, RequesterCounters};
use super::responder::{Responder, ResponderConfig, ResponderCounters};
use super::unfinished::Unfinished;
use crate::poll_loop::earlier;
use crate::{ClientEvent, ClientPort, ConnId, Down, ReplyRoom, Source};

/// A connection, being made or made.
pub(super) struct Connection {
    pub(super) id: ConnId,
    remote: SocketAddr,
    pub(super) link: Link<Mark>,
    pub(super) talk: ClientConversation,
    /// Calls that the server may have outstanding, at most.
    callbacks: u32,
    /// It is made; whether its user knows depends on the version's being known.
    up: bool,
    /// A reply came over it.
    worked: bool,
    /// The user has let go of it.
    pub(super) closing: bool,
    /// The first work request that failed for a reason of its own.
    failure: Option<WorkError>,
    /// Since when a message has been incomplete that comes in several transmissions.
    collecting: Option<Time>,
}

impl Connection {
    fn copied(&self) -> u64 {
        self.link.copied() + self.talk.requester.counters().copied_bytes
    }

    /// Messages that may come and take credits: replies, and calls of the server's.
    pub(super) fn expected(&self) -> u32 {
        self.talk.requester.expected() + self.callbacks
    }
}

/// Connections to RPC-over-RDMA servers, all over one device.
pub struct RdmaClient {
    device: Box<dyn Device>,
    options: RdmaClientOptions,
    /// A handful: looked through one by one.
    connections: Vec<Connection>,
    next_id: u64,
    /// Servers that a connection was made to.
    met: HashSet<SocketAddr>,
    inbox: VecDeque<Event>,
    events: VecDeque<ClientEvent>,
    /// The device is gone, for good.
    removed: bool,
    /// On some connection, used receives wait to be replaced.
    owing: bool,
    /// When to try again what waits for memory.
    retry_at: Option<Time>,
    /// Calls have waited for memory while no call had any to give back.
    stuck: Option<Stuck>,
    /// Servers that spoke version 2 on some connection.
    speak_two: HashSet<SocketAddr>,
    /// What is known of servers' versions.
    memory: Memory<SocketAddr>,
    /// Replies that come in several transmissions.
    groups: Unfinished,
    /// When patience with a server that was asked for its version ends, at the earliest.
    expires_at: Option<Time>,
    /// XID of the last call.
    last_xid: u32,
    /// Connections that are ending, and when to end them without the peer.
    ending: VecDeque<(Time, QpId)>,
    /// Bytes copied for connections that have ended.
    copied: u64,
    now: Time,
}

impl RdmaClient {
    /// A client without connections.
    #[must_use]
    pub fn new(device: Box<dyn Device>, mut options: RdmaClientOptions) -> Self {
        // It is the device that a responder's Send With Invalidate would do it to.
        options.common.remote_invalidation &= device.attributes().remote_invalidation;
        let groups = Unfinished::new(options.common.group_timeout);
        Self {
            device,
            options,
            connections: Vec::new(),
            next_id: 0,
            met: HashSet::new(),
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            removed: false,
            owing: false,
            retry_at: None,
            stuck: None,
            groups,
            speak_two: HashSet::new(),
            memory: Memory::default(),
            expires_at: None,
            last_xid: 0,
            ending: VecDeque::new(),
            copied: 0,
            now: Time::ZERO,
        }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Counts of the device, with the bytes that were copied on the way to and from it added.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.device.counters();
        counters.copied_bytes += self.copied_bytes();
        counters
    }

    /// Bytes that were copied on the way to and from the device, beside those that the device counts
    /// ([`rdma::Counters::copied_bytes`]). Only grows.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let connections = self.connections.iter().map(Connection::copied);
        self.copied + connections.sum::<u64>()
    }

    /// Counts of a connection's requester.
    #[must_use]
    pub fn requester_counters(&self, conn: ConnId) -> Option<RequesterCounters> {
        let mut connections = self.connections.iter();
        let found = connections.find(|connection| connection.id == conn)?;
        Some(found.talk.requester.counters())
    }

    /// Counts of the responder of a connection that callbacks may come over.
    #[must_use]
    pub fn callback_counters(&self, conn: ConnId) -> Option<ResponderCounters> {
        let mut connections = self.connections.iter();
        let found = connections.find(|connection| connection.id == conn)?;
        Some(found.talk.backward.as_ref()?.counters())
    }

    /// Calls outstanding at most: the replies to all of them must find a receive.
    fn credits(&self) -> u32 {
        let most = self.most_receives().saturating_sub(self.callbacks());
        self.options.common.credits.min(most).max(1)
    }

    /// Receives that can be posted beyond those for credits, for replies in several transmissions.
    fn spare_receives(&self) -> u32 {
        let spare = self
            .most_receives()
            .saturating_sub(self.credits() + self.callbacks());
        self.options.common.spare_receives.min(spare)
    }

    /// Calls of the server's outstanding at most: all of them must find a receive.
    fn callbacks(&self) -> u32 {
        let most = self.most_receives().saturating_sub(1);
        self.options.common.callbacks.credits.min(most)
    }

    /// Receives that messages with credits can have.
    fn most_receives(&self) -> u32 {
        let receives = u32::try_from(self.device.attributes().max_recv_wr).unwrap_or(u32::MAX);
        receives.saturating_sub(BEYOND_CREDITS)
    }

    /// The responder of a new connection's backward direction.
    fn new_callee(&self, pool: &Pool) -> Option<Box<Responder>> {
        let common = &self.options.common;
        let credits = self.callbacks();
        (credits > 0).then(|| {
            let setup = self.setup(None);
            let mut responder = Responder::new(ResponderConfig {
                version: Version::One,
                credits,
                max_fetched: u64::from(common.max_message),
                outbound_reads: common.outbound_reads,
                // Servers do not take it (xcharext-02, section 3.2).
                remote_invalidation: false,
                // Others come when the version is known.
                limits: setup.limits(Version::One, common.inline_send, common.inline_receive),
                pool: pool.clone(),
            });
            if !common.callbacks.chunks {
                responder.refuse_chunks();
            }
            Box::new(responder)
        })
    }

    /// What this end has, for a connection whose peer said this in private data.
    fn setup(&self, peer: Option<PrivateData>) -> Setup {
        let common = &self.options.common;
        Setup {
            side: Side::Client,
            options: common.clone(),
            max_segment: max_segment(&*self.device, common.max_segment),
            receives: self.receives(),
            spare_receives: self.spare_receives(),
            peer,
        }
    }

    /// What receives are made of at the beginning.
    fn receives(&self) -> ReceiveStructure {
        let two = self.options.version.allows(Version::Two);
        self.options.common.receives(two)
    }

    /// Its connections, made or being made.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.connections.iter().map(|connection| connection.id)
    }

    fn find(&self, id: ConnId) -> Option<usize> {
        let mut connections = self.connections.iter();
        connections.position(|connection| connection.id == id)
    }

    fn remove(&mut self, at: usize) -> Connection {
        let gone = self.connections.swap_remove(at);
        self.copied += gone.copied();
        gone
    }

    fn find_qp(&self, qp: QpId) -> Option<usize> {
        let mut connections = self.connections.iter();
        connections.position(|connection| connection.link.qp() == qp)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Completion(completion) => self.completed(completion),
            other => self.connection_changed(other),
        }
    }

    /// What happens rarely is kept apart: a call's way is then through less code, of which hardly any
    /// is in the processor's first cache after a system call.
    #[cold]
    fn connection_changed(&mut self, event: Event) {
        match event {
            Event::Completion(_) => {}
            Event::Established { qp, private_data } => self.established(qp, &private_data),
            Event::ConnectFailed { qp, error } => {
                if let Some(at) = self.find_qp(qp) {
                    let gone = self.remove(at);
                    let met = self.met.contains(&gone.remote);
                    self.down(&gone, not_connected(&error, met));
                }
            }
            Event::Disconnected { qp, reason } => {
                if let Some(at) = self.find_qp(qp) {
                    let connection = &mut self.connections[at];
                    if let Some(decision) = connection.talk.lost()
                        && !connection.closing
                    {
                        return self.decided(at, &decision);
                    }
                    let gone = self.remove(at);
                    if let Some(decision) = gone.talk.decision() {
                        self.memory.ended(&gone.remote, &decision, gone.worked);
                    }
                    // All memory registered for its calls goes back to the pool with it.
                    self.device.destroy(qp);
                    self.down(&gone, ended(&reason, gone.failure));
                }
            }
            Event::ConnectRequest(request) => {
                // A client does not listen; if its device does, nobody asked it to.
                if let Err(error) = self.device.reject(request.request, &[]) {
                    tracing::debug!(%error, "connection request not rejected");
                }
            }
            Event::Removed => self.removed = true,
        }
    }

    /// Starts a connection.
    fn make(&mut self, id: ConnId, remote: SocketAddr) {
        let common = &self.options.common;
        let private_data = common.private_data().map(|data| data.encode());
        let options = ConnectOptions {
            private_data: private_data
                .map_or_else(Bytes::new, |data| Bytes::copy_from_slice(&data)),
            inbound_reads: common.inbound_reads,
            outbound_reads: common.outbound_reads,
            timeout: self.options.connect_timeout,
        };
        let qp = match self.device.connect(remote, &options) {
            Ok(qp) => qp,
            Err(error) => {
                return self.not_opened(id, &error);
            }
        };
        let (credits, callbacks) = (self.credits(), self.callbacks());
        let capacity = self.device.attributes().max_send_wr;
        let mut link = Link::new(qp, capacity, self.receives());
        let receives = credits + callbacks + BEYOND_CREDITS;
        if let Err(error) = link.post_receives(&mut *self.device, receives) {
            self.device.destroy(qp);
            return self.not_opened(id, &error);
        }
        let pool = self.device.pool().clone();
        let backward = self.new_callee(&pool);
        let requester = Requester::new(RequesterConfig { credits, pool });
        let lesson = self.memory.lesson(&remote);
        let negotiation =
            ClientNegotiation::new(self.options.version, lesson, self.options.patience);
        self.connections.push(Connection {
            id,
            remote,
            link,
            talk: ClientConversation::new(negotiation, requester, backward),
            callbacks,
            up: false,
            worked: false,
            closing: false,
            failure: None,
            collecting: None,
        });
        self.run(self.connections.len() - 1);
    }

    /// A connection was not even tried to make.
    fn not_opened(&mut self, conn: ConnId, error: &dyn std::error::Error) {
        let down = Down {
            reason: error.to_string(),
            retry: !self.removed,
            was_up: false,
        };
        self.events.push_back(ClientEvent::Down { conn, down });
    }

    fn down(&mut self, gone: &Connection, down: Down) {
        if !gone.closing {
            let conn = gone.id;
            self.events.push_back(ClientEvent::Down { conn, down });
        }
    }

    fn established(&mut self, qp: QpId, private_data: &Bytes) {
        let Some(at) = self.find_qp(qp) else {
            return;
        };
        let setup = self.setup(PrivateData::find(private_data));
        tracing::debug!(qp = qp.0, peer = ?setup.peer, "connected");
        let connection = &mut self.connections[at];
        connection.up = true;
        self.met.insert(connection.remote);
        // Calls are counted upwards from where they are now, operations downwards from far away.
        let xid = self.last_xid.wrapping_add(1 << 31);
        match connection.talk.connected(setup, xid, since_start(self.now)) {
            Ok(Some(decision)) => return self.decided(at, &decision),
            Ok(None) => {
                let deadline = connection.talk.deadline().map(at_time);
                self.expires_at = earlier(self.expires_at, deadline);
            }
            Err(error) => {
                let gone = self.remove(at);
                self.device.destroy(qp);
                let (reason, retry) = (error.to_string(), false);
                let was_up = false;
                let down = Down {
                    reason,
                    retry,
                    was_up,
                };
                return self.down(&gone, down);
            }
        }
        self.run(at);
    }

    fn completed(&mut self, completion: Completion) {
        let Some(at) = self.find_qp(completion.qp) else {
            return;
        };
        let most_queued = (self.credits() + self.callbacks() + EXTRA_RECEIVES) as usize;
        let connection = &mut self.connections[at];
        let done = connection.link.complete(completion.id);
        match completion.result {
            // Nobody waits for anything any more, and waiting calls are not sent.
            Ok(_) if connection.closing => return,
            Ok(Success::Receive { buf, invalidated }) => {
                // Messages that are no replies need answers in version 2. A server that goes on sending
                // them and does not take the answers must not fill this side's memory.
                if connection.link.queued_messages() > most_queued {
                    tracing::warn!("the server does not take answers, closing the connection");
                    return self.device.abort(completion.qp);
                }
                let message = connection.link.received(&mut *self.device, buf);
                self.owing |= connection.link.owes();
                let decision = connection.talk.received(message, invalidated);
                let collecting = connection.talk.is_collecting();
                self.groups
                    .seen(&mut connection.collecting, collecting, self.now);
                if let Some(decision) = decision {
                    return self.decided(at, &decision);
                }
                if connection.talk.was_misjudged() {
                    return self.misjudged(at);
                }
            }
            other => {
                let Connection { talk, failure, .. } = connection;
                let ends = (Some(&mut talk.requester), talk.backward.as_deref_mut());
                let device = &mut *self.device;
                work_done(device, completion.qp, ends, failure, (other, done));
            }
        }
        self.run(at);
    }

    /// Ends connections on which a reply has been incomplete for too long: its call is made again on
    /// another.
    #[cold]
    fn end_unfinished(&mut self) {
        let device = &mut *self.device;
        let open = self
            .connections
            .iter()
            .filter(|connection| !connection.closing);
        self.groups.look(
            self.now,
            open,
            |connection| connection.collecting,
            |connection, limit| {
                tracing::warn!(
                    server = %connection.remote,
                    ?limit,
                    "a message that was begun and not finished, closing the connection"
                );
                device.abort(connection.link.qp());
            },
        );
    }

    /// Does what the requester wants done.
    fn run(&mut self, at: usize) {
        let device = &mut *self.device;
        let connection = &mut self.connections[at];
        let (conn, qp) = (connection.id, connection.link.qp());
        connection.link.flush(device);
        loop {
            while let Some(action) = next_action(device, connection) {
                match action {
                    RequesterAction::Send { gather } => {
                        debug_assert!(
                            connection.link.can_receive(connection.expected()),
                            "every reply, and every callback that is granted, finds a receive"
                        );
                        if let Err(error) = connection.link.send(device, gather, None) {
                            // The call counts as sent; only the connection's end can end it now.
                            tracing::warn!(%error, "call not sent, closing the connection");
                            device.abort(qp);
                        }
                    }
                    RequesterAction::Deliver { xid, message } if !connection.closing => {
                        connection.worked = true;
                        self.stuck = None;
                        self.events
                            .push_back(ClientEvent::Reply { conn, xid, message });
                    }
                    RequesterAction::Fail { xid, error } if !connection.closing => {
                        self.events
                            .push_back(ClientEvent::Failed { conn, xid, error });
                    }
                    // On a connection that is closing, nobody waits for anything any more.
                    RequesterAction::Deliver { .. } | RequesterAction::Fail { .. } => {}
                    other => {
                        let Connection { link, talk, .. } = &mut *connection;
                        act_on_memory(device, link, &mut talk.requester, other);
                    }
                }
            }
            if connection.talk.backward.is_none()
                || !run_callee(device, connection, &mut self.events)
            {
                break;
            }
        }
        if connection.talk.starved() || connection.link.wants_retry() {
            self.retry_at.get_or_insert(self.now + RETRY);
        }
    }

    /// Replaces used receives, now that what came in them has been acted upon.
    fn replenish(&mut self) {
        if std::mem::take(&mut self.owing) {
            for connection in &mut self.connections {
                connection.link.replenish(&mut *self.device);
                self.owing |= connection.link.owes();
            }
        }
    }
}

/// The next thing to do: what the requester has decided; then what the conversation has to say, as it may
/// be what further calls rely on; then those, of which the requester asks the conversation some.
fn next_action(device: &mut dyn Device, connection: &mut Connection) -> Option<RequesterAction> {
    loop {
        if let Some(decided) = connection.talk.requester.next_decided() {
            return Some(decided);
        }
        converse(device, connection);
        let requester = &mut connection.talk.requester;
        requester.set_room(connection.link.room());
        let next = requester.next_action();
        if next.is_some() || !requester.wants_answer() {
            return next;
        }
    }
}

impl Source for RdmaClient {
    fn attach(&mut self, poller: Poller) -> io::Result<()> {
        self.device.attach(poller)
    }

    fn ready(&mut self, local: usize, closed: bool) {
        self.device.ready(local, closed);
    }

    fn poll(&mut self, now: Time) -> bool {
        self.now = now;
        self.device.poll(now, &mut self.inbox);
        if self.inbox.is_empty() {
            self.replenish();
        }
        while let Some(event) = self.inbox.pop_front() {
            self.handle(event);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry();
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            self.expire();
        }
        if self.groups.is_due(now) {
            self.end_unfinished();
        }
        while let Some(&(_, qp)) = self.ending.front().filter(|(at, _)| *at <= now) {
            self.ending.pop_front();
            if self.find_qp(qp).is_some() {
                self.device.abort(qp);
            }
        }
        !self.events.is_empty()
    }

    fn arm(&mut self) -> bool {
        self.replenish();
        self.events.is_empty() && self.device.arm()
    }

    fn next_deadline(&self) -> Option<Time> {
        let ending = self.ending.front().map(|(at, _)| *at);
        [
            self.device.next_deadline(),
            self.retry_at,
            self.expires_at,
            self.groups.next_look(),
            ending,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn set_busy_poll(&mut self, on: bool) {
        self.device.set_busy_poll(on);
    }
}

impl ClientPort for RdmaClient {
    fn open(&mut self, remote: SocketAddr, now: Time) -> ConnId {
        self.now = now;
        let id = ConnId(self.next_id);
        self.next_id += 1;
        self.make(id, remote);
        id
    }

    fn submit(&mut self, conn: ConnId, xid: u32, message: Message, room: &ReplyRoom, now: Time) {
        self.now = now;
        // A connection that is not here has ended, and the event that says so ends this call too.
        self.last_xid = xid;
        if let Some(at) = self.find(conn) {
            let Connection { link, talk, .. } = &mut self.connections[at];
            talk.requester.set_room(link.room());
            talk.requester.submit(xid, message, room);
            self.run(at);
        }
    }

    fn cancel(&mut self, conn: ConnId, xid: u32) {
        if let Some(at) = self.find(conn) {
            self.connections[at].talk.requester.cancel(xid);
            self.run(at);
        }
    }

    fn reply(&mut self, conn: ConnId, token: u64, message: Option<Message>, now: Time) {
        self.now = now;
        // A connection that is not here has ended, and its server has been told so.
        if let Some(at) = self.find(conn)
            && let Some(responder) = &mut self.connections[at].talk.backward
        {
            responder.reply(token, message);
            self.run(at);
        }
    }

    fn pool(&self) -> &Pool {
        self.device.pool()
    }

    fn close(&mut self, conn: ConnId) {
        self.events.retain(|event| event_conn(event) != conn);
        let Some(at) = self.find(conn) else {
            return;
        };
        let connection = &mut self.connections[at];
        let qp = connection.link.qp();
        if connection.up {
            connection.closing = true;
            if connection.talk.requester.unfinished() > 0 {
                // Calls end with this, and the peer must not reach their memory any longer.
                self.device.abort(qp);
            } else {
                self.device.disconnect(qp);
                self.ending.push_back((self.now + LINGER, qp));
            }
        } else {
            self.remove(at);
            self.device.destroy(qp);
        }
    }

    fn next_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }
}

fn event_conn(event: &ClientEvent) -> ConnId {
    match event {
        ClientEvent::Up(conn)
        | ClientEvent::Reply { conn, .. }
        | ClientEvent::Call { conn, .. }
        | ClientEvent::Failed { conn, .. }
        | ClientEvent::Down { conn, .. } => *conn,
    }
}
