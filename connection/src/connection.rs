//! The connection: its phases, and the events and timers that lead from one to the next.
//!
//! Each connection of a client holds its calls until the version is known, unless it is known without
//! a question (version 1 if that is the only one). Until a server has granted more, one message may be under way
//! (RFC 8166, section 3.3.3), and that is the message with the client's properties. A call sent beside
//! it would need a credit that is not there, could use no more than 1024 bytes, and would come back
//! as a version error from a server of version 1. This costs one round trip for each connection,
//! not for each call. The server's answer carries its grant and its receive size, so the first
//! calls use both.
//!
//! A message in several transmissions that is begun and not finished ends its connection after a
//! minute, because it holds the receives in which its parts arrived.

mod inspect;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma::{Region, Stag, Time};
use rpcrdma_chunks::limits::MIN_HEADER_LEN;
use rpcrdma_negotiation::{
    FirstMessage, FirstStep, ProbeAnswer, Version, VersionAction, VersionDecision, VersionProbe,
    Versions, decide_first_message, decide_first_step,
};
use rpcrdma_v1::PrivateData;
use smallvec::SmallVec;

use crate::action::{ReceivesFor, ReceivesId, RegistrationId};
use crate::flow::Accounting;
use crate::open::Open;
use crate::requester::{LastReplies, PendingCall, PendingCalls, Requester, RequesterCounters};
use crate::responder::{Responder, ResponderCounters};
use crate::{Action, CallError, CallId, Config, Event, Moved, ReplyRoom, Role};

/// The XID of the first message that a server's extensions begin; later ones count downwards. The
/// XIDs of its calls count upwards from low numbers.
const SERVER_FIRST_XID: u32 = u32::MAX;
/// The distance between the XIDs of messages that a client's extensions begin and those of its
/// calls.
const XID_DISTANCE: u32 = 1 << 31;

/// The protocol state of one RPC-over-RDMA connection: at a client or a server, for calls in both
/// directions, in every version. See the [crate documentation](crate) for how to drive it.
#[derive(Debug)]
pub struct Connection {
    phase: Phase,
    /// Actions that the connection emits itself: its first receives, decisions and closing.
    actions: VecDeque<Action>,
    /// The version that the connection speaks, and why, once that is decided.
    decision: Option<VersionDecision>,
}

/// The phase of a connection, with the data that exists only in it.
#[derive(Debug)]
enum Phase {
    /// The connection is being established.
    Connecting(Box<Connecting>),
    /// A client has sent the first message of the version that it asks for, and waits for the answer.
    Probing(Box<Probing>),
    /// A server waits for the first message.
    Listening(Box<Listening>),
    /// The version is known.
    Open(Box<Open>),
    /// The connection has ended, or has to be made again in another version.
    Ended(Box<Ended>),
}

#[derive(Debug)]
struct Connecting {
    config: Config,
    pending: PendingCalls,
}

#[derive(Debug)]
struct Probing {
    /// The connection as it is if the server speaks the version that it was asked for.
    open: Open,
    probe: VersionProbe,
    /// Whether the first message has been sent. Until the server has answered it, no other may
    /// follow: the server may have one receive (RFC 8166, section 3.3.3).
    asked: bool,
    /// The messages of versions that the server refused.
    earlier: Earlier,
    pending: PendingCalls,
}

/// The numbers of messages that went over a connection before its version was known. A version whose
/// credits count messages counts them too (version-two-07, section 4.2.1).
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    sent: u32,
    received: u32,
}

impl Probing {
    /// Returns what went over the connection until the server refused the present version.
    fn earlier_counts(&self) -> Earlier {
        let Earlier { sent, received } = self.earlier;
        let sent = sent.wrapping_add(u32::from(self.asked));
        Earlier { sent, received }
    }

    /// Returns the next action up to the Send of the first message. All later actions wait until
    /// the version is known.
    fn poll_action(&mut self, room: usize) -> Option<Action> {
        if self.asked {
            return None;
        }
        // The requester has no calls yet, so only extensions have something to do.
        let action = self.open.poll_action(room);
        self.asked = matches!(action, Some(Action::Send { .. }));
        action
    }
}

#[derive(Debug)]
struct Listening {
    config: Config,
    /// The versions that the server accepts.
    accepts: Versions,
    peer: Option<PrivateData>,
    counters: ResponderCounters,
    /// The number of messages that have arrived, all of which were refused or discarded.
    received: u32,
    /// The number of them that were answered with an error.
    sent: u32,
}

impl Listening {
    /// Returns the credit value of an error that refuses the version of a message. The client may
    /// continue in any version that the error names. In a version whose credits count all messages
    /// of the connection, the value must allow one more message (version-two-07, sections 4.2.1,
    /// 4.3.2 and 7). In the other versions, it is a number of calls.
    fn refusal_credit(&self) -> u32 {
        let protocols = &self.config.options.protocols;
        let mut accepted = protocols.dialects(|version| self.accepts.contains(version));
        match accepted.any(|dialect| matches!(dialect.accounting(), Accounting::Messages(_))) {
            true => {
                let first = self.config.options.initial_message_count;
                first.wrapping_add(self.received).wrapping_add(1)
            }
            // Nobody has asked for more than one credit yet.
            false => 1,
        }
    }
}

#[derive(Debug, Default)]
struct Ended {
    /// Calls that were not started, which the next connection can take over.
    pending: PendingCalls,
    /// Calls whose replies had arrived, until their memory is back.
    last: Option<LastReplies>,
    requester: Option<RequesterCounters>,
    responder: Option<ResponderCounters>,
    copied: u64,
    moved: Moved,
    grants_sent: u64,
}

impl Ended {
    fn moved(&self) -> Moved {
        let mut moved = self.moved;
        moved.received.chunk += self.last.as_ref().map_or(0, LastReplies::written);
        moved
    }
}

impl Phase {
    fn take(&mut self) -> Self {
        mem::replace(self, Self::ended(PendingCalls::default()))
    }

    fn ended(pending: PendingCalls) -> Self {
        Self::Ended(Box::new(Ended {
            pending,
            ..Ended::default()
        }))
    }
}

impl Connection {
    /// Returns a connection that is not established yet. Its first action requests receives, which
    /// must be posted before it is established.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let receives = Action::PostReceives {
            id: ReceivesId(ReceivesFor::Connection),
            count: config.first_receives(),
        };
        let pending = PendingCalls::default();
        Self {
            phase: Phase::Connecting(Box::new(Connecting { config, pending })),
            actions: VecDeque::from([receives]),
            decision: None,
        }
    }

    /// Handles an event that happened at `now`.
    pub fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Received {
                message,
                invalidated,
            } => self.received(now, message, invalidated),
            other => self.handle_other(now, other),
        }
    }

    fn handle_other(&mut self, now: Time, event: Event) {
        match event {
            Event::Established { peer } => self.established(now, peer),
            Event::Closed => self.closed(),
            Event::ReceivedTruncated {
                beginning,
                invalidated,
            } => self.received_truncated(now, beginning, invalidated),
            Event::ReceivesPosted {
                id: ReceivesId(ReceivesFor::Connection),
                posted,
            } => {
                // The first credits promise these receives to the peer.
                if !posted {
                    self.close("no memory for receives".to_owned());
                }
            }
            Event::Reclaimed { id, region } if matches!(self.phase, Phase::Ended(_)) => {
                self.last_memory_reclaimed(id, region);
            }
            other => {
                if let Some(open) = self.open_mut() {
                    open.shared.flow.set_now(now);
                    pass_answer(open, other);
                }
            }
        }
    }

    /// Makes a call to the peer, which ends with [`Action::Finished`], or with the connection.
    /// `xid`, with which the message starts, must differ from the XIDs of this end's other
    /// outstanding calls on this connection. `room` is the room that the reply needs.
    ///
    /// A server can call a client after any message of the client has arrived (RFC 8167): in
    /// version 2 the first one that negotiates, in version 1 the first call.
    ///
    /// # Errors
    /// [`CallError::NoCallbacks`]: this end is a server that makes no calls, or the client announced
    /// that it accepts none, or nothing has arrived from the client yet. [`CallError::Ending`]: this end has called
    /// [`Connection::cancel_unsent`]. The call has ended, and no [`Action::Finished`] follows. Calls of a client fail
    /// only with [`CallError::Ending`].
    pub fn call(&mut self, xid: u32, message: Message, room: &ReplyRoom) -> Result<(), CallError> {
        let no_callbacks = || {
            let reason = "nothing has come from it yet, or this server makes none";
            Err(CallError::NoCallbacks(reason.to_owned()))
        };
        let pending = match &mut self.phase {
            Phase::Open(open) => return open.call(PendingCall::new(xid, message, room)),
            Phase::Connecting(connecting) => match &mut connecting.config.role {
                Role::Client { last_xid, .. } => {
                    // Messages of extensions get XIDs far from this one.
                    *last_xid = xid;
                    &mut connecting.pending
                }
                Role::Server { .. } => return no_callbacks(),
            },
            Phase::Listening(_) => return no_callbacks(),
            Phase::Probing(probing) => &mut probing.pending,
            // A connection that has to be made again, in another version, keeps calls for the next
            // one.
            Phase::Ended(ended) => &mut ended.pending,
        };
        pending.push(PendingCall::new(xid, message, room));
        Ok(())
    }

    /// Cancels a call, so that no [`Action::Finished`] follows. Its memory is invalidated, and a
    /// late reply is dropped.
    pub fn cancel(&mut self, xid: u32) {
        match &mut self.phase {
            Phase::Open(open) => {
                if let Some(requester) = &mut open.requester {
                    requester.cancel(&mut open.shared, xid);
                }
            }
            Phase::Connecting(connecting) => connecting.pending.remove(xid),
            Phase::Probing(probing) => probing.pending.remove(xid),
            Phase::Ended(ended) => {
                ended.pending.remove(xid);
                if let Some(last) = &mut ended.last {
                    last.cancel(xid);
                }
            }
            Phase::Listening(_) => {}
        }
    }

    /// Cancels the calls that were not sent, so that no [`Action::Finished`] follows for them, and that none of them
    /// offers memory to the peer. Returns whether there were any. From now on, this end sends no call: no further one
    /// is taken, and one that an error of the peer would have sent again ends as if it were cancelled. Before the
    /// connection is established, and after its end, nothing is cancelled.
    pub fn cancel_unsent(&mut self) -> bool {
        let open = self.open_mut();
        open.is_some_and(|open| match &mut open.requester {
            Some(requester) => requester.cancel_unsent(&mut open.shared),
            None => false,
        })
    }

    /// Sends the reply to a call that [`Action::Deliver`] brought, at `now`; with `None`, there is
    /// no reply. The message starts with the XID of the call. Call this function exactly once for
    /// each delivered call.
    pub fn reply(&mut self, now: Time, id: CallId, message: Option<Message>) {
        if let Phase::Open(open) = &mut self.phase {
            open.shared.flow.set_now(now);
            open.reply(id, message);
        }
    }

    /// Returns the next action. `room` is the number of entries that are free in the send queue
    /// now. [`Action::Send`], [`Action::Read`], [`Action::Write`] and [`Action::Invalidate`] take
    /// an entry each. New calls wait while no entry is free, because the grant may be lower by the
    /// time that one is. All other actions are returned at once, and the driver queues them until
    /// there is room.
    #[inline]
    pub fn poll_action(&mut self, room: usize) -> Option<Action> {
        // What the connection itself decides goes before what its requester and responder want.
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        match &mut self.phase {
            Phase::Open(open) => open.poll_action(room),
            Phase::Probing(probing) => probing.poll_action(room),
            Phase::Ended(ended) => ended.last.as_mut()?.poll_action(),
            Phase::Connecting(_) | Phase::Listening(_) => None,
        }
    }

    /// Tells how many messages that were taken as [`Action::Send`] wait for room in the send queue, if calls are
    /// traced ([`Config::trace`]): after each such action, and when fewer wait. Otherwise it has no effect.
    pub fn sends_wait(&mut self, messages: usize) {
        if let Some(open) = self.open_mut() {
            open.shared.sends_wait(messages);
        }
    }

    /// Limits the credits that the peer is granted from now on: to one call at least, or, where credits count
    /// messages (version-two-07), to three messages. The peer may still use what it was granted before.
    pub fn limit_grant(&mut self, credits: u32) {
        if let Phase::Open(open) = &mut self.phase {
            open.shared.flow.limit_grants(credits);
        }
    }

    /// Asks the policy of granting again, at `now`, as it wanted by
    /// [`AskAgain::ask`](crate::flow::AskAgain::ask). Take actions after it as after an event: where the
    /// version has a message for that, the peer is told what it may send now.
    pub fn ask_policy_again(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.shared.flow.set_now(now);
            open.shared.flow.ask_policy_again();
        }
    }

    /// Returns the time at which [`Connection::handle_timeout`] must be called, unless the time
    /// changes before that.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Probing(probing) => Some(time_at(probing.probe.deadline())),
            Phase::Open(open) => {
                let since = open.incomplete_since?;
                Some(since + open.shared.config.options.group_timeout)
            }
            Phase::Connecting(_) | Phase::Listening(_) | Phase::Ended(_) => None,
        }
    }

    /// Handles the time-outs that have expired by `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        match &mut self.phase {
            Phase::Probing(probing) => {
                if let Some(decision) = probing.probe.expired(since_start(now)) {
                    self.decided(decision);
                }
            }
            Phase::Open(open) => {
                // The time-out is reported once, even if the driver does not close at once.
                open.incomplete_since = None;
                let limit = open.shared.config.options.group_timeout;
                self.close(format!(
                    "a message that was begun and not finished within {limit:?}"
                ));
            }
            Phase::Connecting(_) | Phase::Listening(_) | Phase::Ended(_) => {}
        }
    }

    /// Takes the calls that were handed in before the version was known, for another connection to
    /// the same server ([`Connection::resume`]).
    #[must_use]
    pub fn into_pending_calls(self) -> PendingCalls {
        match self.phase {
            Phase::Connecting(connecting) => connecting.pending,
            Phase::Probing(probing) => probing.pending,
            Phase::Ended(ended) => ended.pending,
            Phase::Listening(_) | Phase::Open(_) => PendingCalls::default(),
        }
    }

    /// Accepts calls that an earlier connection to the same server had not started. Call it before
    /// this connection is established.
    pub fn resume(&mut self, calls: PendingCalls) {
        match &mut self.phase {
            Phase::Connecting(connecting) => connecting.pending.append(calls),
            Phase::Probing(probing) => probing.pending.append(calls),
            Phase::Ended(ended) => ended.pending.append(calls),
            Phase::Open(open) => open.add_pending(calls),
            Phase::Listening(_) => {}
        }
    }

    /// Returns the open connection, also while a client waits for the answer to its first message.
    fn open_mut(&mut self) -> Option<&mut Open> {
        match &mut self.phase {
            Phase::Open(open) => Some(open),
            Phase::Probing(probing) => Some(&mut probing.open),
            Phase::Connecting(_) | Phase::Listening(_) | Phase::Ended(_) => None,
        }
    }

    fn close(&mut self, reason: String) {
        self.actions.push_back(Action::Close { reason });
    }

    /// Handles establishment: a client begins to speak or asks for the version, a server waits for
    /// the first message.
    fn established(&mut self, now: Time, peer: Option<PrivateData>) {
        let Connecting { config, pending } = match self.phase.take() {
            Phase::Connecting(connecting) => *connecting,
            other => return self.phase = other,
        };
        match config.role {
            Role::Server { ref versions } => {
                // A server learns the version from the first message of its client.
                let accepts = versions.clone();
                self.phase = Phase::Listening(Box::new(Listening {
                    config,
                    accepts,
                    peer,
                    counters: ResponderCounters::default(),
                    received: 0,
                    sent: 0,
                }));
            }
            Role::Client {
                versions,
                evidence,
                patience,
                last_xid,
            } => {
                let first_xid = last_xid.wrapping_add(XID_DISTANCE);
                let known = config.options.protocols.known();
                let decision = match decide_first_step(known, versions, evidence) {
                    Some(FirstStep::Decided(decision)) => decision,
                    Some(FirstStep::Ask(version)) => {
                        let (known, xid) = (known.clone(), first_xid);
                        let deadline = since_start(now).saturating_add(patience);
                        let probe = VersionProbe::new(known, versions, version, xid, deadline);
                        let opened = open(config, version, peer, xid);
                        return self.start_probe(opened, probe, Earlier::default(), pending);
                    }
                    None => {
                        let reason = format!("version {versions} is not implemented");
                        return self.end_unopened(reason, pending);
                    }
                };
                self.decision = Some(decision);
                self.actions.push_back(Action::Decided(decision));
                let VersionAction::Use(version) = decision.action else {
                    self.phase = Phase::ended(pending);
                    return;
                };
                match open(config, version, peer, first_xid) {
                    Ok(mut open) => {
                        // The first messages of the extensions go before all calls, whose limits
                        // they may settle.
                        open.begin();
                        open.add_pending(pending);
                        self.phase = Phase::Open(Box::new(open));
                    }
                    Err(reason) => self.end_unopened(reason, pending),
                }
            }
        }
    }

    /// Asks the server for a version, by the first message of the version's extensions.
    fn start_probe(
        &mut self,
        opened: Result<Open, String>,
        probe: VersionProbe,
        earlier: Earlier,
        pending: PendingCalls,
    ) {
        match opened {
            Ok(mut open) => {
                open.begin();
                self.phase = Phase::Probing(Box::new(Probing {
                    open,
                    probe,
                    asked: false,
                    earlier,
                    pending,
                }));
            }
            Err(reason) => self.end_unopened(reason, pending),
        }
    }

    /// Closes a connection that cannot speak the version that was decided.
    fn end_unopened(&mut self, reason: String, pending: PendingCalls) {
        self.decision = None;
        self.phase = Phase::ended(pending);
        self.close(reason);
    }

    /// Takes a message that arrived.
    fn received(&mut self, now: Time, message: Segments, invalidated: Option<Stag>) {
        match &mut self.phase {
            Phase::Open(open) => {
                open.received(now, message, invalidated);
                if self.was_misjudged() {
                    // The same calls are made over the next connection.
                    self.end();
                    self.actions.clear();
                    self.actions.push_back(Action::Misjudged);
                }
            }
            Phase::Probing(probing) => {
                let answer = probing.probe.received(&start_of(&message));
                // A message in the version that was asked for is counted by the open connection,
                // any other here.
                if !matches!(answer, ProbeAnswer::Message(_)) {
                    let received = &mut probing.earlier.received;
                    *received = received.wrapping_add(1);
                }
                match answer {
                    ProbeAnswer::Message(decision) => {
                        self.decided(decision);
                        // The first call must obey its limits.
                        if let Phase::Open(open) = &mut self.phase {
                            open.received(now, message, invalidated);
                        }
                    }
                    ProbeAnswer::VersionError(decision) => self.decided(decision),
                    ProbeAnswer::AskFor(version) => self.ask_again(version),
                    ProbeAnswer::Unrelated => {
                        if let Some(requester) = &mut probing.open.requester {
                            requester.count_discarded(&"no answer to the first message");
                        }
                    }
                }
            }
            Phase::Listening(listening) => {
                let known = listening.config.options.protocols.known();
                let start = start_of(&message);
                let first = decide_first_message(known, &listening.accepts, &start);
                self.first_message(first);
                if let Phase::Open(open) = &mut self.phase {
                    open.received(now, message, invalidated);
                }
            }
            Phase::Connecting(_) | Phase::Ended(_) => {}
        }
    }

    /// Refuses the call that a truncated message begins or continues, or closes the connection.
    #[cold]
    fn received_truncated(&mut self, now: Time, beginning: Bytes, invalidated: Option<Stag>) {
        let is_refused = match &mut self.phase {
            Phase::Open(open) => open.received_truncated(now, beginning, invalidated),
            _ => false,
        };
        if !is_refused {
            self.close("its messages hold more than its share of memory".to_owned());
        }
    }

    /// Handles the outcome of the first message to a server: the version that it opens, an error to
    /// answer it with, or nothing.
    fn first_message(&mut self, first: FirstMessage) {
        let Phase::Listening(listening) = &mut self.phase else {
            return;
        };
        match first {
            FirstMessage::Use(version) => {
                let decision = VersionDecision::by_client(version);
                let Phase::Listening(listening) = self.phase.take() else {
                    return;
                };
                let Listening {
                    config,
                    peer,
                    counters,
                    received,
                    sent,
                    ..
                } = *listening;
                match open(config, version, peer, SERVER_FIRST_XID) {
                    Ok(mut open) => {
                        open.shared.flow.count_earlier(sent, received);
                        if let Some(responder) = &mut open.responder {
                            responder.counters = counters;
                        }
                        self.decision = Some(decision);
                        self.actions.push_back(Action::Decided(decision));
                        self.phase = Phase::Open(Box::new(open));
                    }
                    Err(reason) => self.close(reason),
                }
            }
            FirstMessage::Refuse(answer) => {
                tracing::info!(
                    version = answer.version,
                    "the requester is told which versions there are"
                );
                listening.counters.errors_sent += 1;
                listening.received = listening.received.wrapping_add(1);
                listening.sent = listening.sent.wrapping_add(1);
                let message: Bytes = answer.encode(listening.refusal_credit());
                self.actions.push_back(Action::plain_send(message));
            }
            FirstMessage::Discard => {
                let reason = "the first message is too short, or an error";
                rpcrdma_host::limited!(warn, reason, "bad message from the requester");
                // It has used up a receive, which a version that counts messages has to know.
                listening.counters.discarded += 1;
                listening.received = listening.received.wrapping_add(1);
            }
        }
    }

    /// Asks the server for another version, which it has shown to speak.
    fn ask_again(&mut self, version: Version) {
        let Phase::Probing(probing) = self.phase.take() else {
            return;
        };
        let earlier = probing.earlier_counts();
        let probe = probing.probe.again(version);
        let opened = reopen(probing.open, version, probe.xid(), earlier);
        self.start_probe(opened, probe, earlier, probing.pending);
    }

    /// Handles the outcome of a client's version negotiation.
    fn decided(&mut self, decision: VersionDecision) {
        let Phase::Probing(probing) = self.phase.take() else {
            return;
        };
        self.decision = Some(decision);
        self.actions.push_back(Action::Decided(decision));
        let earlier = probing.earlier_counts();
        let Probing {
            open: mut opened,
            pending,
            ..
        } = *probing;
        let VersionAction::Use(version) = decision.action else {
            self.phase = Phase::ended(pending);
            return;
        };
        // Of what was prepared for the version that was asked for, only the counts are of use in
        // another one.
        if version != opened.shared.dialect.version() {
            opened = match reopen(opened, version, 0, earlier) {
                Ok(open) => open,
                Err(reason) => return self.end_unopened(reason, pending),
            };
        }
        opened.add_pending(pending);
        self.phase = Phase::Open(Box::new(opened));
    }

    /// Returns whether the version was chosen because the server did not answer, or dropped the
    /// connection, in another one, and the server now reports that it supports that one and not this
    /// one.
    fn was_misjudged(&self) -> bool {
        let Phase::Open(open) = &self.phase else {
            return false;
        };
        // Only a server that answers calls of this version with a version error can show that it
        // was misjudged.
        let refused = open.requester.as_ref().and_then(|r| r.version_refused);
        let Some((low, high)) = refused else {
            return false;
        };
        let speaks = |version: Version| (low..=high).contains(&version.number());
        let evidence = self.decision.and_then(|it| it.reason.evidence());
        evidence
            .is_some_and(|it| it.is_loss() && speaks(it.asked) && !it.speaks.is_some_and(speaks))
    }

    /// Ends an open connection, and with it its calls.
    fn end(&mut self) {
        let ended = Ended {
            pending: PendingCalls::default(),
            last: None,
            requester: self.requester_counters(),
            responder: self.responder_counters(),
            copied: self.copied_bytes(),
            moved: self.moved(),
            grants_sent: self.grants_sent(),
        };
        self.phase = Phase::Ended(Box::new(ended));
    }

    /// Frees memory of queues that earlier traffic needed, because the connection has been quiet for a while.
    /// Returns the number of bytes freed.
    pub fn give_back(&mut self) -> usize {
        let mut freed = rdma::shrink(&mut self.actions);
        if let Phase::Open(open) = &mut self.phase {
            freed += rdma::shrink(&mut open.shared.actions);
            freed += open.requester.as_mut().map_or(0, Requester::shrink);
            freed += open.responder.as_mut().map_or(0, Responder::shrink);
        }
        freed
    }

    fn closed(&mut self) {
        match &mut self.phase {
            Phase::Probing(probing) => {
                // Some servers drop a connection on which they get a version that they do not know.
                // So the loss is an answer.
                let decision = probing.probe.lost();
                self.decided(decision);
            }
            Phase::Open(open) => {
                open.shared.session.closed();
                let (dialect, tracer) = (open.shared.dialect, open.shared.config.trace.clone());
                let requester = open.requester.as_mut();
                let last = requester.and_then(|it| it.last_replies(dialect, tracer));
                // What the driver has not taken yet can have no effect any more, except on the upper layer.
                let untaken = mem::take(&mut open.shared.actions).into_iter();
                let is_end = |action: &Action| matches!(action, Action::Finished { .. });
                self.actions.extend(untaken.filter(is_end));
                self.end();
                if let Phase::Ended(ended) = &mut self.phase {
                    ended.last = last;
                }
            }
            Phase::Connecting(_) | Phase::Listening(_) | Phase::Ended(_) => {}
        }
    }

    /// Records that memory of a call whose reply had arrived when the connection ended is back.
    fn last_memory_reclaimed(&mut self, id: RegistrationId, region: Region) {
        if let Phase::Ended(ended) = &mut self.phase
            && let Some(last) = &mut ended.last
        {
            self.actions.extend(last.memory_reclaimed(id, region));
        }
    }
}

/// Passes the answer to an action to the requester or the responder, whichever emitted the action.
fn pass_answer(open: &mut Open, event: Event) {
    let shared = &mut open.shared;
    match (event, &mut open.requester, &mut open.responder) {
        (Event::Registered { id, result }, Some(requester), _) => {
            requester.registration_answered(shared, id, result);
        }
        (Event::Reclaimed { id, region }, Some(requester), _) => {
            requester.memory_reclaimed(shared, id, region);
        }
        (Event::ReceivesPosted { id, posted }, Some(requester), _) => match id.0 {
            ReceivesFor::Callbacks => requester.callback_receives_posted(shared, posted),
            ReceivesFor::Reply(call) => requester.reply_receives_posted(shared, call, posted),
            // Handled before, in every phase.
            ReceivesFor::Connection => {}
        },
        (Event::ReadDone { id, sink }, _, Some(responder)) => {
            responder.read_done(shared, id, sink);
        }
        (Event::ReceivesReplaced(receives), ..) => open.receives_replaced(&receives),
        // Answers to actions of a half that there is not.
        _ => {}
    }
}

/// Returns the state of a connection that speaks `version`.
///
/// # Errors
/// The version has no dialect, or two extensions own the same number. The text is for the log.
fn open(
    config: Config,
    version: Version,
    peer: Option<PrivateData>,
    first_xid: u32,
) -> Result<Open, String> {
    let dialect = config
        .dialect(version)
        .ok_or_else(|| format!("version {version} is not implemented"))?;
    Open::new(config, dialect, peer, first_xid).map_err(|error| error.to_string())
}

/// Returns the first bytes of a message, in which negotiation finds the fixed fields and the
/// versions of an error. The message may be divided anywhere, so they are copied.
fn start_of(message: &Segments) -> SmallVec<[u8; MIN_HEADER_LEN]> {
    let bytes = message.iter().flatten().copied();
    bytes.take(MIN_HEADER_LEN).collect()
}

fn since_start(now: Time) -> Duration {
    now.since(Time::ZERO)
}

fn time_at(since_start: Duration) -> Time {
    Time::ZERO + since_start
}

/// Returns the state of a connection that spoke another version before. What it has counted stays.
///
/// # Errors
/// The version has no dialect, or two extensions own the same number.
fn reopen(
    opened: Open,
    version: Version,
    first_xid: u32,
    earlier: Earlier,
) -> Result<Open, String> {
    let counters = opened.requester.as_ref().map(|old| old.counters);
    let (peer, moved) = (opened.peer, opened.shared.moved);
    let mut opened = open(opened.into_config(), version, peer, first_xid)?;
    opened.shared.moved = moved;
    let Earlier { sent, received } = earlier;
    opened.shared.flow.count_earlier(sent, received);
    if let (Some(requester), Some(counters)) = (&mut opened.requester, counters) {
        requester.counters = counters;
    }
    Ok(opened)
}
