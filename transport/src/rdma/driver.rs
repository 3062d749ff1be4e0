//! The driver of connections: it executes their actions on a device and passes the device's events
//! to them.
//!
//! Clients and servers have the same driver. It knows queue pairs, memory and deadlines; the
//! protocol is in [`Connection`].

mod give_back;
mod receives;
mod statistics;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use onc_rpc::Message;
use rdma::trace::Tracer;
use rdma::{
    Completion, Device, DeviceError, Disconnect, Event as DeviceEvent, Failed, IdMap, QpId, Region,
    SendWr, Stag, Success, Time, WorkError,
};
use rpcrdma_connection::{Action, Connection, Event, ReadId, RegistrationId};
use rpcrdma_host::Account;
use rpcrdma_negotiation::VersionDecision;

use self::give_back::{Look, Traffic};
use self::receives::{Receivable, ignore};
use self::statistics::EndedConnections;
use super::asked::Asked;
use super::link_phase::{Closing, LinkPhase, Reached};
use super::queue_pair::{Done, QueuePair};
use super::receive_pool::{Arrived, ReceivePool};
use super::receives::Receives;
use super::slow_senders::SlowSenders;
use super::stalled::{Progress, ProgressChecks};
use super::timers::{Timer, Timers};
use crate::{CallError, ClientTransportEvent, ConnectionId, Place, ServerTransportEvent};

/// The interval at which work that waits for memory is retried.
const RETRY: Duration = Duration::from_millis(1);
/// The maximum duration of a graceful disconnect, after which the connection is aborted. Until then
/// memory stays registered, and a peer that is gone would never answer.
const LINGER: Duration = Duration::from_secs(2);

/// The events that clients and servers have in common.
pub(super) trait CallEvent {
    /// Returns the event of a call by the peer.
    fn call(conn: ConnectionId, token: u64, message: Message) -> Self;
    /// Returns the event of a reply by the peer.
    fn reply(conn: ConnectionId, xid: u32, message: Message) -> Self;
    /// Returns the event of a failed call.
    fn failed(conn: ConnectionId, xid: u32, error: CallError) -> Self;
}

impl CallEvent for ClientTransportEvent {
    fn call(conn: ConnectionId, token: u64, message: Message) -> Self {
        Self::Call {
            conn,
            token,
            message,
        }
    }

    fn reply(conn: ConnectionId, xid: u32, message: Message) -> Self {
        Self::Reply { conn, xid, message }
    }

    fn failed(conn: ConnectionId, xid: u32, error: CallError) -> Self {
        Self::Failed { conn, xid, error }
    }
}

impl CallEvent for ServerTransportEvent {
    fn call(conn: ConnectionId, token: u64, message: Message) -> Self {
        Self::Call {
            conn,
            token,
            message,
        }
    }

    fn reply(conn: ConnectionId, xid: u32, message: Message) -> Self {
        Self::Reply { conn, xid, message }
    }

    fn failed(conn: ConnectionId, xid: u32, error: CallError) -> Self {
        Self::Failed { conn, xid, error }
    }
}

/// The context of a signaled work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkContext {
    /// A handle is being invalidated.
    Invalidation(RegistrationId, Stag),
    /// An RDMA Read.
    Read(ReadId),
}

/// A connection, being established or established, with its queue pair.
#[derive(Debug)]
pub(super) struct Link {
    /// The id by which the user knows the connection.
    pub(super) conn: ConnectionId,
    pub(super) peer: SocketAddr,
    pub(super) queue: QueuePair<WorkContext>,
    pub(super) connection: Connection,
    /// The memory account of calls and replies, at a server.
    pub(super) account: Option<Account>,
    /// Bytes of the pool that are counted for receives, at a server.
    pub(super) receive_memory: usize,
    /// The place among the connections of a server, until the connection is reported.
    pub(super) place: Option<Place>,
    /// The observer of its calls, if they are traced.
    pub(super) tracer: Option<Tracer>,
    pub(super) phase: LinkPhase,
    /// Whether the connection replaces one that was lost before its version was found, at a client.
    pub(super) asked_again: bool,
    /// The first error of a work request other than "flushed".
    pub(super) failure: Option<WorkError>,
    /// Whether an invalidation has failed, so that the memory of calls may be in reach of the peer.
    unfenced: bool,
    progress: Progress,
    traffic: Traffic,
    /// The time at which the earliest timer for the connection's time-outs expires.
    timer: Option<Time>,
    /// Whether the connection is in the list of those on which something waits for memory.
    waits: bool,
    /// The number of receives that the peer may use, and the most that it ever could.
    receivable: Receivable,
}

impl Link {
    /// Has it recorded which calls and replies have left, and which wait for room in the send queue, if calls
    /// are traced.
    #[inline]
    fn trace_sends(&mut self) {
        if self.tracer.is_some() {
            self.connection.sends_wait(self.queue.queued_messages());
        }
    }

    /// Returns a connection that is being established.
    pub(super) fn new(
        conn: ConnectionId,
        peer: SocketAddr,
        queue: QueuePair<WorkContext>,
        connection: Connection,
    ) -> Self {
        Self {
            conn,
            peer,
            queue,
            connection,
            account: None,
            receive_memory: 0,
            place: None,
            tracer: None,
            phase: LinkPhase::Active(Reached::Connecting),
            asked_again: false,
            failure: None,
            unfenced: false,
            progress: Progress::default(),
            traffic: Traffic::default(),
            timer: None,
            waits: false,
            receivable: Receivable::default(),
        }
    }

    fn copied(&self) -> u64 {
        self.queue.copied() + self.connection.copied_bytes()
    }

    /// Returns whether all replies are posted.
    fn has_sent(&self) -> bool {
        !self.queue.has_backlog() && !self.connection.has_unsent_replies()
    }

    /// Returns why the connection ended, in words: why this end closed it, or else `reason`, which
    /// the device reports, with the failure that led to it.
    pub(super) fn end_reason(&self, reason: &Disconnect) -> String {
        match (self.phase.closing(), self.failure) {
            (Some(Closing::Failed(reason)), _) => reason.clone(),
            (Some(Closing::ByUser), _) => "closed by this side".to_owned(),
            (None, Some(failure)) => format!("{reason} ({failure})"),
            (None, None) => reason.to_string(),
        }
    }

    /// Ends the connection at once, for this reason.
    #[cold]
    fn fail(&mut self, device: &mut dyn Device, reason: String) {
        rpcrdma_host::limited!(warn, peer = %self.peer, reason, "closing the connection");
        self.phase.close(Closing::Failed(reason));
        device.abort(self.queue.qp());
    }
}

/// An event of a connection that its client or server has to handle.
#[derive(Debug)]
pub(super) enum Notice {
    /// Version negotiation has ended.
    Decided(VersionDecision),
    /// See [`Action::Misjudged`].
    Misjudged,
}

/// The connections of a client or a server over one device.
pub(super) struct Driver<E> {
    pub(super) device: Box<dyn Device>,
    pub(super) links: IdMap<QpId, Link>,
    /// Events for the user of the client or server, oldest first.
    pub(super) events: VecDeque<E>,
    inbox: VecDeque<DeviceEvent>,
    timers: Timers,
    /// The receives that connections share, if the device allows that and there is a connection.
    pool: Option<ReceivePool>,
    slow_senders: SlowSenders,
    /// Connections with consumed receives of their own that are not posted again yet.
    reposting: Vec<QpId>,
    /// Connections whose actions are executed at the end of the owner's turn.
    turn: VecDeque<QpId>,
    /// Connections on which something waits for memory.
    waiting: Vec<QpId>,
    /// Connections whose policies of granting are to be asked again.
    pub(super) asked: Asked,
    /// Checks for peers that make no progress, at a server.
    progress: Option<ProgressChecks>,
    /// The interval at which memory is given back that was needed only for earlier traffic, and whether the timer
    /// for that is set.
    pub(super) give_back_after: Option<Duration>,
    gives_back: bool,
    look: Look,
    /// Bytes freed since free memory was returned to the system.
    freed: usize,
    /// Replies delivered.
    pub(super) replies: u64,
    /// Bytes copied for connections that have ended.
    copied: u64,
    ended: EndedConnections,
    /// The most bytes that shared receives took at a time before the present pool.
    taken: usize,
    pub(super) now: Time,
}

impl<E: CallEvent> Driver<E> {
    /// Returns a driver without connections. With `progress_timeout`, peers that make no progress
    /// for longer are disconnected.
    pub(super) fn new(device: Box<dyn Device>, progress_timeout: Option<Duration>) -> Self {
        Self {
            device,
            links: IdMap::default(),
            events: VecDeque::new(),
            inbox: VecDeque::new(),
            timers: Timers::default(),
            pool: None,
            slow_senders: SlowSenders::default(),
            reposting: Vec::new(),
            turn: VecDeque::new(),
            waiting: Vec::new(),
            asked: Asked::default(),
            progress: progress_timeout.map(ProgressChecks::new),
            give_back_after: None,
            gives_back: false,
            look: Look::default(),
            freed: 0,
            replies: 0,
            copied: 0,
            ended: EndedConnections::default(),
            taken: 0,
            now: Time::ZERO,
        }
    }

    /// Returns the number of bytes copied, without those that the device counts. The number never
    /// decreases.
    pub(super) fn copied_bytes(&self) -> u64 {
        let links = self.links.values().map(Link::copied).sum::<u64>();
        self.copied + links + self.pool.as_ref().map_or(0, ReceivePool::copied)
    }

    /// Returns how many of the copied bytes were copied to send a message, on the connections that
    /// exist now.
    pub(super) fn assembled_bytes(&self) -> u64 {
        let links = self.links.values();
        links.map(|link| link.connection.copied_bytes()).sum()
    }

    /// Returns the number of messages that only granted credits, sent on the connections that exist
    /// now.
    pub(super) fn grants_sent(&self) -> u64 {
        let links = self.links.values();
        links.map(|link| link.connection.grants_sent()).sum()
    }

    /// Adds a connection whose queue pair has just been made, and executes its first actions.
    pub(super) fn add(&mut self, link: Link) {
        let qp = link.queue.qp();
        self.links.insert(qp, link);
        // Nothing is decided before the connection is established.
        let _ = self.run(qp);
    }

    /// Destroys the queue pair of a connection that was removed. With the last one, shared receives
    /// are given back.
    pub(super) fn destroy(&mut self, qp: QpId) {
        self.device.destroy(qp);
        if self.links.is_empty() {
            self.fill();
        }
    }

    /// Removes a connection. The caller destroys its queue pair.
    pub(super) fn remove(&mut self, qp: QpId) -> Option<Link> {
        let gone = self.links.remove(&qp)?;
        self.copied += gone.copied();
        self.ended.add(&gone.connection);
        if let Some(pool) = &mut self.pool {
            pool.promise_fewer(gone.queue.receives.promised());
            pool.connection_ended();
        }
        self.note_freed(usize::MAX);
        Some(gone)
    }

    /// Polls the device for events. If there are none, reposts consumed receives.
    pub(super) fn poll(&mut self, now: Time) {
        self.now = now;
        self.device.poll(now, &mut self.inbox);
        if self.inbox.is_empty() {
            self.repost();
        } else if !self.gives_back {
            self.plan_give_back();
        }
    }

    /// Returns the next event of the device.
    #[inline]
    pub(super) fn next_device_event(&mut self) -> Option<DeviceEvent> {
        self.inbox.pop_front()
    }

    /// Returns a timer that has expired.
    #[inline]
    pub(super) fn expired(&mut self) -> Option<Timer> {
        self.timers.expired(self.now)
    }

    /// Returns the time at which the driver has to be polled next.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let timers = self.timers.next();
        self.device.next_deadline().into_iter().chain(timers).min()
    }

    /// Prepares for sleeping. Returns false if there is work to do first.
    pub(super) fn arm(&mut self) -> bool {
        self.repost();
        let is_idle = self.turn.is_empty() && self.events.is_empty() && !self.asked.any();
        is_idle && self.device.arm()
    }

    /// Prepares for sleeping while the owner takes no events. Returns false if the device has work.
    pub(super) fn arm_without_owner(&mut self) -> bool {
        self.repost();
        self.turn.is_empty() && !self.asked.any() && self.device.arm()
    }

    /// Has the actions of a connection, for which its owner has just done something, executed at the
    /// end of the owner's turn: what else the owner does in it may leave in the same message.
    pub(super) fn wait_for_turn(&mut self, qp: QpId) {
        if !self.turn.contains(&qp) {
            self.turn.push_back(qp);
        }
    }

    /// Returns whether there are connections whose actions are executed at the end of the turn.
    #[inline]
    pub(super) fn is_in_turn(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Removes and returns a connection whose actions are executed now, at the end of the turn.
    pub(super) fn next_of_turn(&mut self) -> Option<QpId> {
        self.turn.pop_front()
    }

    /// Passes an event to a connection.
    pub(super) fn handle(&mut self, qp: QpId, event: Event) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(&qp) {
            link.connection.handle(now, event);
        }
    }

    /// Tells a connection that its queue pair has ended. The caller runs it, to have the replies reported that had
    /// arrived. A connection that this end has failed is not run any more, so its replies are reported here.
    pub(super) fn closed(&mut self, qp: QpId) {
        self.handle(qp, Event::Closed);
        let Some(link) = self.links.get_mut(&qp) else {
            return;
        };
        if link.unfenced {
            // The calls are over without replies (RFC 8166, section 4.5.4): a device that cannot invalidate a
            // handle is not believed to have invalidated it with the connection.
            while link.connection.poll_action(link.queue.room()).is_some() {}
            return;
        }
        if !matches!(link.phase.closing(), Some(Closing::Failed(_))) {
            return;
        }
        while let Some(action) = link.connection.poll_action(link.queue.room()) {
            match action {
                Action::Reclaim { .. } => act_on_memory(&mut *self.device, link, self.now, action),
                Action::Finished { xid, result } => {
                    self.replies += u64::from(result.is_ok());
                    self.events.push_back(finished(link, xid, result));
                }
                // It cannot be done on a connection that has ended.
                _ => {}
            }
        }
    }

    /// Handles a completion. Returns the connection that may have actions now.
    pub(super) fn completed(&mut self, completion: Completion) -> Option<QpId> {
        let qp = completion.qp;
        let device = &mut *self.device;
        let Some(link) = self.links.get_mut(&qp) else {
            ignore(device, self.pool.as_mut(), completion.result);
            return None;
        };
        let done = link.queue.complete(completion.id);
        match completion.result {
            // Messages of a peer that is being disconnected are ignored.
            result @ Ok(_) if link.phase.is_closing() => {
                ignore(device, self.pool.as_mut(), result);
                return None;
            }
            Ok(Success::Receive { buf, invalidated }) => {
                let arrived = match (&mut link.queue.receives, &mut self.pool) {
                    (Receives::Shared(shared), Some(pool)) => {
                        let fits = shared.arrived(buf.len());
                        let arrived = pool.received(device, buf, shared);
                        if !fits {
                            link.failure.get_or_insert(WorkError::LocalLength);
                            link.fail(device, WorkError::LocalLength.to_string());
                            return None;
                        }
                        arrived
                    }
                    (Receives::Own(own), _) => {
                        if !own.has_to_repost() {
                            self.reposting.push(qp);
                        }
                        Arrived::Whole(own.received(device, buf))
                    }
                    // The pool lasts as long as any connection.
                    (Receives::Shared(_), None) => return None,
                };
                let unsent = link.queue.queued_messages();
                if unsent > 0 && unsent > link.connection.most_unsent_messages() as usize {
                    let reason = "more messages than granted, and their answers are not taken";
                    link.fail(device, reason.to_owned());
                    return None;
                }
                let event = match arrived {
                    Arrived::Whole(message) => Event::Received {
                        message,
                        invalidated,
                    },
                    Arrived::Truncated(beginning) => {
                        let peer = link.peer;
                        rpcrdma_host::limited!(info, %peer, "no memory for a message");
                        Event::ReceivedTruncated {
                            beginning,
                            invalidated,
                        }
                    }
                };
                link.connection.handle(self.now, event);
            }
            Err(mut failed) => {
                if done == Done::Receive
                    && let Some(receive) = failed.buf.take()
                    && let (Receives::Shared(_), Some(pool)) =
                        (&link.queue.receives, &mut self.pool)
                {
                    pool.ignore(device, receive);
                }
                work_done(device, link, self.now, Err(failed), done);
            }
            other => work_done(device, link, self.now, other, done),
        }
        Some(qp)
    }

    /// Executes the actions of a connection until there are none. If there is a notice for its
    /// user, returns it early; the caller handles it and calls again.
    pub(super) fn run(&mut self, qp: QpId) -> Option<Notice> {
        let connections = self.links.len();
        let link = self.links.get_mut(&qp)?;
        let device = &mut *self.device;
        link.queue.flush(device);
        link.trace_sends();
        if let Some(account) = &link.account {
            // While a connection holds more than its guaranteed memory, every work request is
            // signaled, so that completions show whether its peer makes progress.
            link.queue.watch(account.beyond_guaranteed() > 0);
            if let Some(pool) = &self.pool {
                link.connection.limit_grant(pool.credits(connections));
            }
        }
        while !link.phase.is_closing() {
            if let Some(receives) = link.queue.receives.replaced() {
                let event = Event::ReceivesReplaced(receives);
                link.connection.handle(self.now, event);
            }
            let Some(action) = link.connection.poll_action(link.queue.room()) else {
                break;
            };
            match action {
                Action::Send {
                    gather,
                    invalidate,
                    more,
                } => {
                    debug_assert!(
                        link.queue
                            .receives
                            .can_take(link.connection.expected_messages()),
                        "every message that takes a credit finds a receive"
                    );
                    if let Err(error) = link.queue.send(device, gather, invalidate, more) {
                        // The peer must learn that a message was lost (RFC 8166, section 4.5.4).
                        link.fail(device, format!("message not sent: {error}"));
                    }
                    link.trace_sends();
                }
                Action::Deliver { id, message } => {
                    self.events.push_back(E::call(link.conn, id.0, message));
                }
                Action::Finished { xid, result } => {
                    self.replies += u64::from(result.is_ok());
                    self.events.push_back(finished(link, xid, result));
                }
                Action::PostReceives { id, count } => {
                    let pool = self.pool.as_mut();
                    let posted = link.queue.receives.post(device, pool, count);
                    link.receivable.add(count);
                    let event = Event::ReceivesPosted { id, posted };
                    link.connection.handle(self.now, event);
                }
                Action::ReleaseReceives { count } => {
                    link.queue.receives.release(self.pool.as_mut(), count);
                    link.receivable.subtract(count);
                }
                Action::Decided(decision) => return Some(Notice::Decided(decision)),
                Action::Misjudged => return Some(Notice::Misjudged),
                other => act_on_memory(device, link, self.now, other),
            }
        }
        // Set the timers that the connection needs now.
        if let Some(at) = link.connection.poll_timeout()
            && link.timer.is_none_or(|set| at < set)
        {
            link.timer = Some(at);
            self.timers.set(at, Timer::Connection(qp));
        }
        if let Some(progress) = &mut self.progress
            && (link.queue.is_awaited()
                || link.connection.waits_for_memory()
                || link.connection.replies_wait_for_credits())
            && let Some(at) = progress.expect(self.now)
        {
            self.timers.set(at, Timer::Progress);
        }
        let waits = link.connection.waits_for_memory() || link.queue.wants_retry();
        if waits && !link.waits && !link.phase.is_closing() {
            link.waits = true;
            if self.waiting.is_empty() {
                self.timers.set(self.now + RETRY, Timer::Memory);
            }
            self.waiting.push(qp);
        }
        None
    }

    /// Asks the policies of granting again that wanted it. Returns their connections, which the caller
    /// runs.
    #[cold]
    pub(super) fn ask_policies_again(&mut self) -> Vec<QpId> {
        let mut asked = self.asked.take();
        asked.retain(|qp| {
            let link = self.links.get_mut(qp);
            let Some(link) = link.filter(|link| !link.phase.is_closing()) else {
                return false;
            };
            link.connection.ask_policy_again(self.now);
            true
        });
        asked
    }

    /// Handles the time-outs of a connection.
    pub(super) fn timed_out(&mut self, qp: QpId) {
        if let Some(link) = self.links.get_mut(&qp)
            && link.timer.is_some_and(|at| at <= self.now)
        {
            link.timer = None;
            link.connection.handle_timeout(self.now);
        }
    }

    /// Removes and returns the connections on which something waits for memory. The caller retries
    /// and runs each.
    pub(super) fn take_waiting(&mut self) -> Vec<QpId> {
        let waiting = std::mem::take(&mut self.waiting);
        for qp in &waiting {
            if let Some(link) = self.links.get_mut(qp) {
                link.waits = false;
            }
        }
        waiting
    }

    /// Aborts a connection whose graceful disconnect took too long.
    #[cold]
    pub(super) fn lingered(&mut self, qp: QpId) {
        if self.links.contains_key(&qp) {
            self.device.abort(qp);
        }
    }

    /// Disconnects peers that have made no progress for too long.
    #[cold]
    pub(super) fn check_progress(&mut self) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        let device = &mut *self.device;
        let open = self.links.values_mut();
        let open = open.filter(|link| !link.phase.is_closing());
        let next = progress.check(
            self.now,
            open,
            |link, now| {
                let Link {
                    queue, progress, ..
                } = link;
                let account = link.account.as_ref()?;
                // The connection waits for memory, while copies of its messages hold memory that other
                // connections wait for.
                let obstructs =
                    link.connection.waits_for_memory() && queue.receives.blocks_others();
                let connection = &link.connection;
                let awaited =
                    queue.is_awaited() || obstructs || connection.replies_wait_for_credits();
                // A reply that credits let go is progress, also if its Send is not signaled.
                let done = queue.completed() + connection.released_by_credits();
                let (since, in_the_way) = progress.check(awaited, done, account, now)?;
                Some((since, in_the_way || obstructs))
            },
            |link, limit| {
                let reason = format!(
                    "RDMA Reads not answered, replies not taken, or calls in the way, for {limit:?}"
                );
                link.fail(device, reason);
            },
        );
        if let Some(at) = next {
            self.timers.set(at, Timer::Progress);
        }
    }

    /// Ends a connection gracefully as soon as its replies are posted and no memory of its own calls is in the peer's
    /// reach: to end it before that, it would have to be aborted, together with the replies. Calls without memory end
    /// with the connection. Its user limits the time. Returns whether the replies are posted.
    pub(super) fn finish(&mut self, qp: QpId) -> bool {
        let Some(link) = self.links.get_mut(&qp) else {
            return true;
        };
        if link.phase.is_closing() {
            return true;
        }
        let has_sent = link.has_sent();
        if has_sent && !link.connection.has_registered_memory() {
            link.phase.close(Closing::ByUser);
            // No timer: what was posted may take long to send.
            self.device.disconnect(qp);
        }
        has_sent
    }

    /// Ends a connection that its user closed: gracefully, unless the peer could still reach the
    /// memory of a call.
    pub(super) fn close(&mut self, qp: QpId) {
        let Some(link) = self.links.get_mut(&qp) else {
            return;
        };
        link.phase.close(Closing::ByUser);
        if link.connection.unfinished_calls() > 0 {
            self.device.abort(qp);
        } else {
            self.device.disconnect(qp);
            self.timers.set(self.now + LINGER, Timer::Linger(qp));
        }
    }
}

/// Returns the event of a call that has ended.
fn finished<E: CallEvent>(
    link: &mut Link,
    xid: u32,
    result: Result<Message, rpcrdma_connection::CallError>,
) -> E {
    match result {
        Ok(message) => {
            link.phase.reach(Reached::Replied);
            E::reply(link.conn, xid, message)
        }
        Err(error) => E::failed(link.conn, xid, error.into()),
    }
}

/// Handles the completion of a send-queue request, or the failure of any work request.
#[inline(never)]
fn work_done(
    device: &mut dyn Device,
    link: &mut Link,
    now: Time,
    result: Result<Success, Failed>,
    done: Done<WorkContext>,
) {
    match (result, done) {
        (Ok(Success::Invalidate), Done::Work(WorkContext::Invalidation(id, stag))) => {
            reclaim(device, link, now, id, stag);
        }
        (Ok(Success::Read { sink }), Done::Work(WorkContext::Read(id))) => {
            link.connection.handle(now, Event::ReadDone { id, sink });
        }
        (Ok(_), _) => {}
        (Err(failed), done) => {
            tracing::debug!(qp = link.queue.qp().0, error = %failed.error, "work failed");
            // Flushed requests are a consequence, not a cause.
            if failed.error != WorkError::Flushed {
                link.failure.get_or_insert(failed.error);
                link.unfenced |= matches!(done, Done::Work(WorkContext::Invalidation(..)));
            }
        }
    }
}

/// Reclaims memory that the peer can no longer reach. If that fails, only closing the connection
/// keeps the peer from it (RFC 8166, section 4.5.4).
fn reclaim(device: &mut dyn Device, link: &mut Link, now: Time, id: RegistrationId, stag: Stag) {
    match device.reclaim(link.queue.qp(), stag) {
        Ok(region) => link.connection.handle(now, Event::Reclaimed { id, region }),
        Err(error) => link.fail(device, format!("memory of {stag} not reclaimed: {error}")),
    }
}

/// Executes an action on memory (`Register`, `Invalidate`, `Reclaim`, `Read`, `Write`), `ReplaceReceives`, or `Close`.
#[inline(never)]
fn act_on_memory(device: &mut dyn Device, link: &mut Link, now: Time, action: Action) {
    let qp = link.queue.qp();
    match action {
        Action::ReplaceReceives(structure) => link.queue.receives.set(structure),
        Action::Register { id, region } => register(device, link, now, id, region),
        Action::Invalidate { id, stag } => {
            let context = WorkContext::Invalidation(id, stag);
            let wr = SendWr::Invalidate { stag };
            link.queue.post(device, wr, Some(context));
        }
        Action::Reclaim { id, stag } => reclaim(device, link, now, id, stag),
        Action::Read {
            id,
            sink,
            stag,
            offset,
        } => {
            let wr = SendWr::Read { sink, stag, offset };
            link.queue.post(device, wr, Some(WorkContext::Read(id)));
        }
        Action::Write {
            gather,
            stag,
            offset,
        } => link.queue.write(device, gather, stag, offset),
        Action::Close { reason } => {
            tracing::debug!(qp = qp.0, "the connection asks to be closed");
            link.fail(device, reason);
        }
        // Executed by `Driver::run`.
        Action::Send { .. }
        | Action::PostReceives { .. }
        | Action::ReleaseReceives { .. }
        | Action::Deliver { .. }
        | Action::Finished { .. }
        | Action::Decided(_)
        | Action::Misjudged => {}
    }
}

fn register(
    device: &mut dyn Device,
    link: &mut Link,
    now: Time,
    id: RegistrationId,
    region: Region,
) {
    let result = match device.register(link.queue.qp(), region) {
        Ok(segment) => Ok(segment),
        // The connection has ended, and the event that reports it is still queued. That event ends
        // the call, which is then made again over another connection.
        Err((DeviceError::Unknown(_), _)) => return,
        Err((error, _)) => Err(error.to_string()),
    };
    link.connection
        .handle(now, Event::Registered { id, result });
}

/// Returns the length in bytes of the longest segment that the device and the options allow.
pub(super) fn max_segment(device: &dyn Device, option: u32) -> u64 {
    let region = device.attributes().max_region as u64;
    region.min(u64::from(option)).max(1)
}
