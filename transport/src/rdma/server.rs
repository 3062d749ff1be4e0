//! The server's port: responders, driven by a device.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma::{
    AcceptOptions, Account, Carrier, Completion, ConnectRequest, Counters, Device, DeviceError,
    Event, Poller, Pool, QpId, SendWr, Success, Time, WorkError,
};
use rpcrdma_negotiation::{Decision, Features, ServerNegotiation, Version};
use rpcrdma_v1::{Agreed, PrivateData};
use rpcrdma_v2::Side;

use super::RoundTripFeatures;
use super::backward::{run_caller, submit};
use super::conversation::{ServerConversation, Setup, Wanted};
use super::driver::{LINGER, Mark, RETRY, end_reason, max_segment, work_done};
use super::link::{BEYOND_CREDITS, EXTRA_RECEIVES, Link};
use super::options::RdmaServerOptions;
use super::receive_memory::{Wish, share};
use super::requester::{RequesterConfig, RequesterCounters};
use super::responder::{Responder, ResponderAction, ResponderConfig, ResponderCounters};
use super::stalled::{Progress, Stalled};
use super::unfinished::Unfinished;
use crate::id_map::IdMap;
use crate::{CallError, ConnId, ReplyRoom, ServerEvent, ServerPort, Source};

/// A connection, being accepted or made.
pub(super) struct Connection {
    peer: SocketAddr,
    /// Calls that it may have outstanding, at most.
    credits: u32,
    /// Bytes of the pool that are counted for its receives.
    memory: usize,
    /// Memory account of its calls and replies.
    account: Account,
    progress: Progress,
    pub(super) link: Link<Mark>,
    pub(super) talk: ServerConversation,
    /// Receives that were posted for the replies to callbacks.
    pub(super) callback_receives: u32,
    up: bool,
    /// It is in the list of those that wait for memory.
    retrying: bool,
    /// The first work request that failed for a reason of its own.
    failure: Option<WorkError>,
    /// Since when a message has been incomplete that comes in several transmissions.
    collecting: Option<Time>,
    /// Why this side ends it.
    pub(super) closed: Option<String>,
}

impl Connection {
    fn copied(&self) -> u64 {
        let backward = self.talk.backward.as_ref();
        self.link.copied() + backward.map_or(0, |requester| requester.counters().copied_bytes)
    }

    /// Callbacks outstanding.
    fn callbacks(&self) -> u32 {
        let backward = self.talk.backward.as_ref();
        backward.map_or(0, |requester| requester.in_flight())
    }

    /// Messages that may come and take credits: calls, and replies to callbacks.
    pub(super) fn expected(&self) -> u32 {
        self.credits + self.callbacks()
    }
}

/// Listeners and connections of an RPC-over-RDMA server, all over one device.
pub struct RdmaServer {
    device: Box<dyn Device>,
    options: RdmaServerOptions,
    connections: IdMap<QpId, Connection>,
    inbox: VecDeque<Event>,
    events: VecDeque<ServerEvent>,
    /// Connections on which used receives wait to be replaced.
    owing: Vec<QpId>,
    /// Calls that come in several transmissions.
    groups: Unfinished,
    /// Connections whose peers do nothing.
    stalled: Stalled,
    /// Connections on which something waits for memory, and when to try again.
    retry: Vec<QpId>,
    retry_at: Option<Time>,
    /// Connections that are ending, and when to end them without the peer.
    ending: VecDeque<(Time, QpId)>,
    /// Bytes copied for connections that have ended.
    copied: u64,
    now: Time,
}

/// A queue pair is not used twice while its device lives, so its number can name the connection.
fn conn_of(qp: QpId) -> ConnId {
    ConnId(qp.0)
}

fn qp_of(conn: ConnId) -> QpId {
    QpId(conn.0)
}

impl RdmaServer {
    /// A server that does not listen yet.
    #[must_use]
    pub fn new(device: Box<dyn Device>, options: RdmaServerOptions) -> Self {
        let groups = Unfinished::new(options.common.group_timeout);
        let stalled = Stalled::new(options.progress_timeout);
        Self {
            stalled,
            device,
            options,
            connections: IdMap::default(),
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            owing: Vec::new(),
            groups,
            retry: Vec::new(),
            retry_at: None,
            ending: VecDeque::new(),
            copied: 0,
            now: Time::ZERO,
        }
    }

    /// Listens on `address`, besides others it may listen on. Returns the address with the port
    /// that was found, when 0 was asked for.
    ///
    /// # Errors
    /// What the device refused.
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, DeviceError> {
        let listener = self.device.listen(address)?;
        self.device.local_address(listener)
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
        let connections = self.connections.values().map(Connection::copied);
        self.copied + connections.sum::<u64>()
    }

    /// Counts of a connection's responder.
    #[must_use]
    pub fn responder_counters(&self, conn: ConnId) -> Option<ResponderCounters> {
        Some(
            self.connections
                .get(&qp_of(conn))?
                .talk
                .responder
                .counters(),
        )
    }

    /// Counts of the requester of a connection that callbacks may go over.
    #[must_use]
    pub fn callback_counters(&self, conn: ConnId) -> Option<RequesterCounters> {
        let connection = self.connections.get(&qp_of(conn))?;
        Some(connection.talk.backward.as_ref()?.counters())
    }

    /// The version that a connection speaks, and why, once its client has begun.
    #[must_use]
    pub fn decision(&self, conn: ConnId) -> Option<Decision> {
        self.connections.get(&qp_of(conn))?.talk.decision()
    }

    /// What may be used on a connection at present, and why.
    #[must_use]
    pub fn features(&self, conn: ConnId) -> Option<Features> {
        self.connections.get(&qp_of(conn))?.talk.features()
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
            Event::ConnectRequest(request) => {
                let peer = request.peer;
                if let Err(error) = self.requested(request) {
                    rdma::limited!(warn, %peer, %error, "connection not accepted");
                }
            }
            Event::Established { qp, .. } => {
                if let Some(connection) = self.connections.get_mut(&qp) {
                    connection.up = true;
                    let (conn, peer) = (conn_of(qp), connection.peer);
                    self.events.push_back(ServerEvent::Up { conn, peer });
                    self.run(qp);
                }
            }
            Event::ConnectFailed { qp, error } => {
                if let Some(gone) = self.connections.remove(&qp) {
                    tracing::debug!(peer = %gone.peer, %error, "connection not made");
                }
            }
            Event::Disconnected { qp, reason } => {
                let Some(gone) = self.connections.remove(&qp) else {
                    return;
                };
                self.copied += gone.copied();
                self.device.destroy(qp);
                if gone.up {
                    let conn = conn_of(qp);
                    let reason = gone
                        .closed
                        .unwrap_or_else(|| end_reason(&reason, gone.failure));
                    self.events.push_back(ServerEvent::Down { conn, reason });
                }
            }
            Event::Removed => {
                let reason = format!("device {} was removed", self.device.attributes().name);
                self.events.push_back(ServerEvent::Lost { reason });
            }
        }
    }

    /// A client wants to connect.
    fn requested(&mut self, request: ConnectRequest) -> Result<(), DeviceError> {
        if self.connections.len() >= self.options.max_connections {
            self.device.reject(request.request, &[])?;
            return Err(DeviceError::Limit("connections"));
        }
        let common = &self.options.common;
        let ours = common.private_data();
        let agreed = Agreed::new(PrivateData::find(&request.private_data), ours);
        let attributes = self.device.attributes();
        let receives = u32::try_from(attributes.max_recv_wr).unwrap_or(u32::MAX);
        // Where there is not enough for all, half are for callbacks.
        let most = receives.saturating_sub(BEYOND_CREDITS);
        let callbacks = common.callbacks.credits.min(most / 2);
        let credits = common.credits.min(most - callbacks).max(1);
        let versions = self.options.versions;
        let receives = common.receives(versions.contains(Version::Two));
        let Some(share) = share(
            self.options.max_receive_memory,
            self.connections.values().map(|other| other.memory).sum(),
            &receives,
            common.max_receive_size,
            Wish {
                credits,
                callbacks,
                features: match versions.contains(Version::Two) {
                    true => common.features,
                    false => RoundTripFeatures::default(),
                },
            },
        ) else {
            self.device.reject(request.request, &[])?;
            return Err(DeviceError::Limit("memory for receives"));
        };
        let credits = share.credits;
        let account = self.options.budget.account();
        let pool = self.device.pool().charged_to(&account);
        let callbacks = RequesterConfig {
            credits: share.callbacks,
            pool: pool.clone(),
        };
        let mut common = common.clone();
        // Groups of transmissions are announced to be no longer than the receives there are.
        common.credits = credits;
        common.features.cont.receive &= share.groups;
        if !share.longer {
            let size = u32::try_from(receives.size()).unwrap_or(u32::MAX);
            common.max_receive_size = common.max_receive_size.min(size);
        }
        let outbound_reads = common.outbound_reads.min(attributes.max_outbound_reads);
        let (max_segment, inbound_reads) = (
            max_segment(&*self.device, common.max_segment),
            common.inbound_reads,
        );
        let setup = Setup {
            side: Side::Server,
            options: common,
            max_segment,
            receives,
            spare_receives: 0,
            peer: PrivateData::find(&request.private_data),
        };
        // Until the first message shows that it is another version.
        let limits = setup.limits(Version::One, agreed.reply_inline, agreed.call_inline);
        let capacity = attributes.max_send_wr;
        let options = AcceptOptions {
            private_data: ours
                .map_or_else(Bytes::new, |data| Bytes::copy_from_slice(&data.encode())),
            inbound_reads,
            outbound_reads,
        };
        let qp = self.device.prepare_accept(request.request)?;
        let link = Link::new(qp, capacity, setup.receives.clone());
        let mut link = link.with_pool(pool.clone());
        // Before the client can send anything: it may use its first credit at once.
        let receives = link.post_receives(&mut *self.device, credits + BEYOND_CREDITS);
        if receives.is_err() {
            self.device.destroy(qp);
            return Err(DeviceError::Limit("memory for receive buffers"));
        }
        if let Err(error) = self.device.accept(qp, &options) {
            self.device.destroy(qp);
            return Err(error);
        }
        tracing::debug!(peer = %request.peer, ?agreed, credits, "accepted");
        let responder = Responder::new(ResponderConfig {
            version: Version::One,
            credits,
            max_fetched: self.options.max_fetched,
            outbound_reads,
            remote_invalidation: agreed.remote_invalidation,
            limits,
            pool,
        });
        let connection = Connection {
            peer: request.peer,
            credits,
            memory: share.memory,
            account,
            progress: Progress::default(),
            link,
            talk: ServerConversation::new(
                ServerNegotiation::new(versions),
                responder,
                setup,
                callbacks,
            ),
            callback_receives: 0,
            up: false,
            retrying: false,
            failure: None,
            collecting: None,
            closed: None,
        };
        self.connections.insert(qp, connection);
        Ok(())
    }

    fn completed(&mut self, completion: Completion) {
        let Some(connection) = self.connections.get_mut(&completion.qp) else {
            return;
        };
        let done = connection.link.complete(completion.id);
        match completion.result {
            // Nothing more is taken from a peer that is being disconnected.
            Ok(_) if connection.closed.is_some() => return,
            Ok(Success::Receive { buf, invalidated }) => {
                if !connection.link.owes() {
                    self.owing.push(completion.qp);
                }
                let message = connection.link.received(&mut *self.device, buf);
                // A client that has not got the answer to a call still holds that call's credit.
                // One that goes on sending all the same is stopped here: answers that wait for it
                // to take them must not fill the memory of everybody.
                // In version 2, messages that are no calls need answers as well.
                let others = if connection.talk.is_second() {
                    EXTRA_RECEIVES
                } else {
                    0
                };
                let most = (connection.expected() + others) as usize;
                if connection.link.queued_messages() >= most {
                    let reason = "more messages than granted, and their answers are not taken";
                    close(&mut *self.device, connection, reason.to_owned());
                } else if let Err(error) = connection.talk.received(message, invalidated) {
                    close(&mut *self.device, connection, error.to_string());
                } else {
                    let collecting = connection.talk.is_collecting();
                    self.groups
                        .seen(&mut connection.collecting, collecting, self.now);
                }
            }
            other => {
                let Connection { talk, failure, .. } = connection;
                let ends = (talk.backward.as_deref_mut(), Some(&mut talk.responder));
                let device = &mut *self.device;
                work_done(device, completion.qp, ends, failure, (other, done));
            }
        }
        self.run(completion.qp);
    }

    /// Does what a responder wants done.
    fn run(&mut self, qp: QpId) {
        let device = &mut *self.device;
        let Some(connection) = self.connections.get_mut(&qp) else {
            return;
        };
        connection.link.flush(device);
        // A connection that holds more than its guaranteed memory signals every work request, so that the
        // completions show whether its peer makes progress.
        connection.link.watch(connection.account.over() > 0);
        converse(device, connection);
        loop {
            while connection.closed.is_none()
                && let Some(action) = next_action(device, connection)
            {
                match action {
                    ResponderAction::Read {
                        id,
                        sink,
                        stag,
                        offset,
                    } => {
                        let wr = SendWr::Read { sink, stag, offset };
                        connection.link.post(device, wr, Some(Mark::Read(id)));
                    }
                    ResponderAction::Write {
                        gather,
                        stag,
                        offset,
                    } => connection.link.write(device, gather, stag, offset),
                    ResponderAction::Send {
                        gather,
                        invalidate,
                        more,
                    } => {
                        debug_assert!(
                            connection.link.can_receive(connection.expected()),
                            "every call that is granted, and every callback's reply, finds a receive"
                        );
                        let link = &mut connection.link;
                        if let Err(error) = link.send_part(device, gather, invalidate, more) {
                            // The requester must learn that a reply was lost (RFC 8166, 4.5.4).
                            close(device, connection, format!("reply not sent: {error}"));
                        }
                    }
                    ResponderAction::Deliver { token, message } => {
                        let conn = conn_of(qp);
                        self.events.push_back(ServerEvent::Call {
                            conn,
                            token,
                            message,
                        });
                    }
                    ResponderAction::Close { reason } => close(device, connection, reason),
                }
            }
            if connection.talk.backward.is_none()
                || !run_caller(device, conn_of(qp), connection, &mut self.events)
            {
                break;
            }
        }
        if connection.link.is_awaited() {
            self.stalled.expect(self.now);
        }
        let waits = connection.talk.starved() || connection.link.wants_retry();
        if waits && !connection.retrying && connection.closed.is_none() {
            connection.retrying = true;
            self.retry.push(qp);
            self.retry_at.get_or_insert(self.now + RETRY);
        }
    }

    /// Closes connections on which a message has been incomplete for too long.
    #[cold]
    fn close_unfinished(&mut self) {
        let connections = self.connections.values_mut();
        let open = connections.filter(|connection| connection.closed.is_none());
        let device = &mut *self.device;
        self.groups.look(
            self.now,
            open,
            |connection| connection.collecting,
            |connection, limit| {
                let reason = format!("a message that was begun and not finished within {limit:?}");
                close(device, connection, reason);
            },
        );
    }

    /// Closes connections whose peers answer no RDMA Read, or take nothing, for too long.
    #[cold]
    fn close_stalled(&mut self) {
        let connections = self.connections.values_mut();
        let open = connections.filter(|connection| connection.closed.is_none());
        let device = &mut *self.device;
        self.stalled.look(
            self.now,
            open,
            |connection, now| {
                let Connection {
                    link,
                    account,
                    progress,
                    ..
                } = connection;
                progress.look(link.is_awaited(), link.completed(), account, now)
            },
            |connection, limit| {
                let reason =
                    format!("RDMA Reads not answered, or replies not taken, for {limit:?}");
                close(device, connection, reason);
            },
        );
    }

    /// Replaces used receives, now that the calls that came in them have been acted upon.
    fn replenish(&mut self) {
        let Self {
            owing,
            connections,
            device,
            ..
        } = self;
        owing.retain(|qp| {
            connections.get_mut(qp).is_some_and(|connection| {
                connection.link.replenish(&mut **device);
                connection.link.owes()
            })
        });
    }

    #[cold]
    fn retry(&mut self) {
        self.retry_at = None;
        for qp in std::mem::take(&mut self.retry) {
            if let Some(connection) = self.connections.get_mut(&qp) {
                connection.retrying = false;
                connection.talk.retry();
                self.run(qp);
            }
        }
    }
}

/// The next thing to do. When there is none, the conversation may go on, and answers what the responder
/// asks.
fn next_action(device: &mut dyn Device, connection: &mut Connection) -> Option<ResponderAction> {
    let next = connection.talk.responder.next_action();
    next.or_else(|| {
        converse(device, connection);
        connection.talk.responder.next_action()
    })
}

/// Does what the conversation wants done. Nothing in version 1.
#[inline]
fn converse(device: &mut dyn Device, connection: &mut Connection) {
    if !connection.talk.is_silent() {
        talk(device, connection);
    }
}

#[inline(never)]
fn talk(device: &mut dyn Device, connection: &mut Connection) {
    loop {
        if let Some(receives) = connection.link.receives_replaced() {
            connection.talk.receives_replaced(receives);
        }
        match connection.talk.next() {
            None => return,
            Some(Wanted::Send(message)) => {
                let gather = Segments::from_iter([message]);
                if let Err(error) = connection.link.send(device, gather, None) {
                    return close(device, connection, format!("message not sent: {error}"));
                }
            }
            Some(Wanted::ReplaceReceives(receives)) => connection.link.set_receives(receives),
        }
    }
}

/// Ends a connection with a peer that broke a rule, or that cannot be answered.
#[cold]
pub(super) fn close(device: &mut dyn Device, connection: &mut Connection, reason: String) {
    rdma::limited!(warn, peer = %connection.peer, reason, "closing the connection");
    connection.closed = Some(reason);
    device.abort(connection.link.qp());
}

impl Source for RdmaServer {
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
        if self.groups.is_due(now) {
            self.close_unfinished();
        }
        if self.stalled.is_due(now) {
            self.close_stalled();
        }
        while let Some(&(_, qp)) = self.ending.front().filter(|(at, _)| *at <= now) {
            self.ending.pop_front();
            if self.connections.contains_key(&qp) {
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
            self.groups.next_look(),
            self.stalled.next_look(),
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

impl ServerPort for RdmaServer {
    fn reply(&mut self, conn: ConnId, token: u64, message: Option<Message>, now: Time) {
        self.now = now;
        let qp = qp_of(conn);
        if let Some(connection) = self.connections.get_mut(&qp) {
            connection.talk.responder.reply(token, message);
            self.run(qp);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let qp = qp_of(conn);
        if let Some(connection) = self.connections.get_mut(&qp) {
            connection
                .closed
                .get_or_insert_with(|| "closed by this side".to_owned());
            let backward = connection.talk.backward.as_ref();
            if backward.is_some_and(|requester| requester.unfinished() > 0) {
                // The client must not reach the memory of callbacks any longer.
                self.device.abort(qp);
            } else {
                self.device.disconnect(qp);
                self.ending.push_back((self.now + LINGER, qp));
            }
        }
    }

    fn call(
        &mut self,
        conn: ConnId,
        xid: u32,
        message: Message,
        room: &ReplyRoom,
        now: Time,
    ) -> Result<(), CallError> {
        self.now = now;
        let qp = qp_of(conn);
        let connections = self.connections.get_mut(&qp);
        let Some(connection) = connections.filter(|connection| connection.closed.is_none()) else {
            let reason = "the connection is ending".to_owned();
            return Err(CallError::Disconnected { reason });
        };
        submit(&mut *self.device, connection, xid, message, room)?;
        self.run(qp);
        Ok(())
    }

    fn cancel_call(&mut self, conn: ConnId, xid: u32) {
        let qp = qp_of(conn);
        if let Some(connection) = self.connections.get_mut(&qp)
            && let Some(requester) = &mut connection.talk.backward
        {
            requester.cancel(xid);
            self.run(qp);
        }
    }

    fn pool(&self, conn: ConnId) -> Pool {
        let pool = self.device.pool();
        match self.connections.get(&qp_of(conn)) {
            Some(connection) => pool.charged_to(&connection.account),
            None => pool.clone(),
        }
    }

    fn carrier(&self, conn: ConnId) -> Carrier {
        self.device.carrier(qp_of(conn))
    }

    fn is_rdma(&self) -> bool {
        true
    }

    fn next_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }
}
