//! A connection whose version is known: its requester, its responder and its extensions.
//!
//! Calls from server to client (RFC 8167) are made by the same requester and responder as those of
//! the forward direction, with the ends exchanged: a client that takes calls has a responder beside
//! its requester, and a server that makes calls has a requester beside its responder. Each has its
//! own XIDs and credits, and receives are posted for both. Calls do not outlive their connection,
//! because only the client can make another.
//!
//! Limits change only while nothing relies on the old ones: a planned call that is now too long is
//! planned again before it is sent. A reply that exceeds the inline limit and fits no chunk waits
//! while that limit is being changed.

use bytes::Bytes;
use onc_rpc::{Message, Segments, total_len};
use rdma::{Stag, Time};
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_extension::{
    Action as ExtensionAction, DuplicateNumber, IncomingCall, IncomingReply, ReverseDirection,
    Transferred,
};
use rpcrdma_v1::{Agreed, PrivateData};
use transfer_plan::{ChunkLimits, Limits};

use crate::collected::Collected;
use crate::dialect::{BadMessage, Dialect, ErrorMessage, Incoming, Receiver, Session};
use crate::requester::{PendingCall, PendingCalls, Requester};
use crate::responder::{ReplyTerms, Responder};
use crate::shared::Shared;
use crate::{Action, CallError, Config, ReceiveStructure};

/// A connection whose version is known.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) shared: Shared,
    /// Makes calls: always at a client, and at a server that makes calls in the reverse direction.
    pub(crate) requester: Option<Requester>,
    /// Accepts calls: always at a server, and at a client that accepts calls in the reverse
    /// direction.
    pub(crate) responder: Option<Responder>,
    /// The peer's private data.
    pub(crate) peer: Option<PrivateData>,
    /// The time since which a message in several transmissions has been incomplete.
    pub(crate) incomplete_since: Option<Time>,
    /// Whether an extension sends several calls or replies of this end together.
    pub(crate) batches: bool,
    /// Whether a message has arrived, so that the session knows that the connection has begun.
    begun: bool,
    /// The memory of its parts, charged to the connection's account.
    collected: Collected,
    /// The value of [`Session::given_up`] after the last received message.
    given_up: u64,
}

/// The limits of a connection, and the terms of its responder.
struct Terms {
    limits: Limits,
    reply: ReplyTerms,
    /// Whether the peer may invalidate handles of this end's calls.
    may_be_invalidated: bool,
}

impl Terms {
    fn new(
        config: &Config,
        dialect: &dyn Dialect,
        peer: Option<PrivateData>,
        session: &dyn Session,
    ) -> Self {
        let (options, side) = (&config.options, config.role.side());
        let chunks = side == Side::Server || options.callbacks.chunks;
        if let Some(now) = session.limits() {
            // The default of version 2 may exceed what this end wants to send.
            let send = now.inline_send.min(config.max_send());
            let limits = config.limits(dialect, send, now.inline_receive);
            let accepted = now.max_segment.map_or(u64::MAX, u64::from);
            let own_segments = limits.chunks.segments;
            return Self {
                limits: Limits {
                    max_segment: limits.max_segment.min(accepted).max(1),
                    chunks: ChunkLimits {
                        // What this end offers comes back in replies, which it decodes.
                        segments: now
                            .max_segments
                            .map_or(own_segments, |most| most.min(own_segments)),
                        ..limits.chunks
                    },
                    ..limits
                },
                reply: ReplyTerms {
                    may_invalidate: now.may_invalidate,
                    last_resort: now.reply_last_resort.map(u64::from),
                    chunks,
                },
                may_be_invalidated: options.remote_invalidation
                    && (side == Side::Client || dialect.calls_offer_handles()),
            };
        }
        let own = options.private_data();
        let (agreed, send, receive) = match side {
            Side::Client => {
                let agreed = Agreed::new(own, peer);
                (agreed, agreed.call_inline, agreed.reply_inline)
            }
            Side::Server => {
                let agreed = Agreed::new(peer, own);
                (agreed, agreed.reply_inline, agreed.call_inline)
            }
        };
        Self {
            limits: config.limits(dialect, send, receive),
            reply: ReplyTerms {
                // Servers do not accept it in the reverse direction (xcharext-02, section 3.2).
                may_invalidate: side == Side::Server && agreed.remote_invalidation,
                last_resort: Some(u64::from(send)),
                chunks,
            },
            may_be_invalidated: side == Side::Client && agreed.remote_invalidation,
        }
    }
}

impl Open {
    /// Returns a connection that speaks this dialect. Messages that its extensions begin have XIDs
    /// from `first_xid` downwards.
    ///
    /// # Errors
    /// [`DuplicateNumber`]: two extensions own the same number.
    pub(crate) fn new(
        config: Config,
        dialect: &'static dyn Dialect,
        peer: Option<PrivateData>,
        first_xid: u32,
    ) -> Result<Self, DuplicateNumber> {
        let end = config.end();
        let extensions = config.options.protocols.make(dialect.version(), &end);
        let mut session = dialect.session(&end, extensions, first_xid)?;
        let terms = Terms::new(&config, dialect, peer, &*session);
        let account = config.pool.account().cloned();
        let extensible = session.modes().all().next().is_some();
        let claimed = session
            .modes()
            .all()
            .any(|(_, mode)| mode.claims_small_calls());
        let extensions = session.extensions_mut();
        let batches = extensions.is_some_and(|all| all.all_batching().next().is_some());
        let back = batches && dialect.extensions_carry_callbacks();
        let (requester, responder) = match config.role.side() {
            Side::Client => {
                let invalidated = terms.may_be_invalidated;
                let requester = Requester::forward(extensible, invalidated).with_batches(batches);
                let responder = (config.callbacks > 0)
                    .then(|| Responder::new(terms.reply, account).with_batches(back));
                (Some(requester), responder)
            }
            Side::Server => {
                let invalidated = terms.may_be_invalidated;
                let extensible = extensible && dialect.extensions_carry_callbacks();
                let requester = (config.callbacks > 0)
                    .then(|| Requester::reverse(extensible, invalidated).with_batches(back));
                let responder = Responder::new(terms.reply, account).with_batches(batches);
                (requester, Some(responder))
            }
        };
        let requester = requester.map(|requester| requester.with_claimed_small_calls(claimed));
        Ok(Self {
            collected: Collected::new(config.pool.account().cloned()),
            given_up: 0,
            shared: Shared::new(config, dialect, terms.limits, session),
            requester,
            responder,
            peer,
            incomplete_since: None,
            batches,
            begun: false,
        })
    }

    /// Returns the configuration, to open the connection in another version.
    pub(crate) fn into_config(self) -> Config {
        self.shared.config
    }

    /// Tells the extensions that the connection begins, at the end that sends the first message.
    pub(crate) fn begin(&mut self) {
        self.shared.session.begin();
    }

    /// Handles a message that arrived.
    pub(crate) fn received(&mut self, now: Time, message: Segments, invalidated: Option<Stag>) {
        let shared = &mut self.shared;
        shared.flow.set_now(now);
        // A peer that sends without credits may use up receives that were promised for other
        // messages. Its connection ends, whatever the message says.
        if let Err(overrun) = shared.flow.received(&message) {
            let reason = overrun.to_string();
            return shared.actions.push_back(Action::Close { reason });
        }
        let len = total_len(&message);
        let receiver = Receiver {
            side: shared.config.role.side(),
            takes_calls: self.responder.is_some(),
            makes_calls: self.requester.is_some(),
            max_call: shared.limits.max_message,
        };
        let incoming = shared.session.decode(message, &receiver);
        if !self.begun {
            // A first message whose header cannot be read begins the connection as well.
            self.begun = true;
            shared.session.begin();
        }
        let is_reply = matches!(
            incoming,
            Incoming::Plain(Direction::Reply, ..) | Incoming::Reply(_)
        );
        // The handle that came with a reply is handled together with its call. The handle that came
        // with any other message can belong to any call.
        if !is_reply && let Some(requester) = &mut self.requester {
            requester.handle_invalidated(shared, None, invalidated);
        }
        // Nothing else arrives between the parts of a message.
        let continued = self.incomplete_since.is_some();
        if self.shared.has_extensions {
            // Before the message is handled: a complete call must not wait for memory that its own parts are charged
            // for.
            self.note_incomplete(now, len);
        }
        self.dispatch(incoming, invalidated, continued);
        if self.shared.has_extensions {
            // Messages of extensions go before the actions just queued, because an end's first
            // message carries its properties, and new limits precede what relies on them.
            let decided = self.shared.actions.len();
            if self.run_extensions() && decided > 0 {
                self.shared.actions.rotate_left(decided);
            }
        }
        // What waited for credits leaves last: it may be the rest of a message in several parts, of
        // which the last actions were a part.
        self.shared.release_queued();
    }

    /// Handles a message of which only the beginning is here, because there is no memory for the
    /// rest: refuses the call that it begins or continues. Returns false if that is not possible,
    /// so that the connection has to be closed.
    pub(crate) fn received_truncated(
        &mut self,
        now: Time,
        beginning: Bytes,
        invalidated: Option<Stag>,
    ) -> bool {
        let shared = &mut self.shared;
        let beginning = Segments::from_iter([beginning]);
        if !shared.session.refuse_truncated(&beginning) {
            return false;
        }
        if let Some(requester) = &mut self.requester {
            requester.handle_invalidated(shared, None, invalidated);
        }
        self.note_incomplete(now, 0);
        // Messages of extensions go first, as in `received`.
        let decided = self.shared.actions.len();
        self.run_extensions();
        self.shared.actions.rotate_left(decided);
        true
    }

    /// Handles a message. `continued` says that it was the last part of one in several.
    fn dispatch(&mut self, incoming: Incoming, invalidated: Option<Stag>, continued: bool) {
        let Self {
            shared,
            requester,
            responder,
            ..
        } = self;
        // A dialect decodes only what the receiver can take, so the half that a message is for exists. The
        // message is matched alone: in a tuple with the halves, it would be moved once more.
        match incoming {
            Incoming::Plain(Direction::Call, header, payload) => {
                let Some(responder) = responder else { return };
                shared.moved.arrived(total_len(&payload), continued);
                responder.plain_call_received(shared, header, payload);
            }
            Incoming::Plain(Direction::Reply, header, payload) => {
                let Some(requester) = requester else { return };
                shared.moved.arrived(total_len(&payload), continued);
                requester.plain_reply_received(shared, header, payload, invalidated);
            }
            Incoming::Call(call) => {
                let Some(responder) = responder else { return };
                shared.moved.arrived(total_len(&call.payload), continued);
                responder.call_received(shared, call);
            }
            Incoming::Reply(reply) => {
                let Some(requester) = requester else { return };
                shared.moved.arrived(total_len(&reply.payload), continued);
                requester.reply_received(shared, reply, invalidated);
            }
            Incoming::Handled(Direction::Call, Some(credits)) if responder.is_some() => {
                shared.flow.credits_requested(credits);
            }
            Incoming::Handled(Direction::Reply, Some(credits)) if requester.is_some() => {
                shared.flow.apply_grant(credits);
            }
            Incoming::Handled(..) => {}
            Incoming::Unusable { xid, reason } => {
                if let Some(requester) = requester {
                    requester.reply_unusable(shared, xid, reason);
                }
            }
            Incoming::Bad(direction, bad) => self.refuse_message(direction, &bad),
        }
    }

    /// Discards a bad message, and sends the error message that it calls for, if any.
    fn refuse_message(&mut self, direction: Direction, bad: &BadMessage) {
        let is_server = self.shared.config.role.side() == Side::Server;
        match (&mut self.requester, &mut self.responder) {
            (_, Some(responder)) if is_server || direction == Direction::Call => {
                responder.refuse_message(&mut self.shared, bad);
            }
            (Some(requester), _) => {
                requester.count_discarded(&bad.reason);
                if let Some(answer) = &bad.answer {
                    self.shared.send_error(answer);
                }
            }
            (None, _) => {}
        }
    }

    /// Records the time since which a message in several transmissions has been incomplete, and the
    /// memory of its parts. `len` is the length in bytes of the message that was received last.
    fn note_incomplete(&mut self, now: Time, len: u64) {
        self.shared.uncounted_parts = 0;
        let given_up = self.shared.session.given_up();
        if std::mem::replace(&mut self.given_up, given_up) != given_up {
            // The message whose parts were charged so far was given up, and its parts are gone. Parts from here on
            // belong to another message.
            self.collected.release();
        }
        let Some(bytes) = self.shared.session.in_progress() else {
            self.incomplete_since = None;
            self.shared.uncounted_parts = self.collected.release();
            return;
        };
        self.incomplete_since.get_or_insert(now);
        let uncounted = self.shared.config.longest_uncounted;
        let counts = uncounted.is_some_and(|longest| len > longest as u64);
        let copies = self.shared.session.copied_parts();
        if !self.collected.set(bytes, copies, counts) {
            if self.shared.session.refuse_parts() {
                self.incomplete_since = None;
                self.collected.release();
                return;
            }
            let reason = "no memory for the rest of a message in several parts".to_owned();
            self.shared.actions.push_back(Action::Close { reason });
        }
    }

    /// Returns the next action. The send queue has `room` entries free.
    #[inline]
    pub(crate) fn poll_action(&mut self, room: usize) -> Option<Action> {
        loop {
            if let Some(next) = self.shared.actions.front() {
                if self.shared.config.trace.is_some() {
                    self.shared.given.take(next);
                }
                return self.shared.actions.pop_front();
            }
            // Further calls may depend on limits that extensions are about to announce.
            if self.run_extensions() {
                continue;
            }
            if let Some(responder) = &mut self.responder
                && responder.has_gathered()
            {
                responder.send_gathered(&mut self.shared);
            }
            if let Some(requester) = &mut self.requester {
                requester.start_calls(&mut self.shared, room);
            }
            if self.shared.actions.is_empty() && !self.run_extensions() {
                // Other messages carry credits, too.
                let grant = self.shared.flow.due_grant()?;
                self.shared.actions.push_back(grant);
            }
        }
    }

    /// Executes the actions of the extensions. Returns whether there were any.
    #[inline]
    fn run_extensions(&mut self) -> bool {
        if !self.shared.has_extensions {
            return false;
        }
        let Some(extensions) = self.shared.session.extensions() else {
            return false;
        };
        let answered = self
            .requester
            .as_ref()
            .is_some_and(Requester::has_answered_group);
        (extensions.has_action() || answered) && self.run_all_extensions()
    }

    #[inline(never)]
    fn run_all_extensions(&mut self) -> bool {
        let mut any = false;
        while let Some(action) = self.next_extension_action() {
            any = true;
            self.execute_extension_action(action);
        }
        any
    }

    fn next_extension_action(&mut self) -> Option<ExtensionAction> {
        let extensions = self.shared.session.extensions_mut()?;
        if let Some(requester) = &mut self.requester {
            while let Some(calls) = requester.next_answered_group() {
                extensions.replies_arrived(calls);
            }
        }
        extensions.next_action()
    }

    fn execute_extension_action(&mut self, action: ExtensionAction) {
        match action {
            ExtensionAction::Send(message) => self.shared.send_extension_message(message),
            ExtensionAction::ReplaceReceives { size } => {
                // The first segments keep their places, of which the peer has been told.
                let receives = self.shared.config.receives.resized(size);
                let action = Action::ReplaceReceives(receives);
                self.shared.actions.push_back(action);
            }
            ExtensionAction::AwaitReplies(calls) => {
                let extensions = self.shared.session.extensions_mut();
                match (&mut self.requester, extensions) {
                    (Some(requester), _) => requester.watch(calls),
                    // An end without a requester has no calls outstanding and makes no other, so that
                    // no plan of a call relies on the change that waits.
                    (None, Some(extensions)) => extensions.replies_arrived(calls),
                    (None, None) => {}
                }
            }
            ExtensionAction::LimitsChanged => self.limits_changed(),
            ExtensionAction::Transferred { by, transferred } => self.transferred(by, transferred),
        }
    }

    /// Applies the current limits of the extensions.
    fn limits_changed(&mut self) {
        let shared = &mut self.shared;
        let session = &*shared.session;
        let terms = Terms::new(&shared.config, shared.dialect, self.peer, session);
        let position_zero = shared.limits.chunks.position_zero;
        shared.limits = terms.limits;
        // A header type that the peer has refused stays refused.
        shared.limits.chunks.position_zero &= position_zero;
        if let Some(requester) = &mut self.requester {
            requester.limits_changed(shared);
        }
        if let Some(responder) = &mut self.responder {
            responder.limits_changed(shared, terms.reply);
        }
    }

    /// Handles an RPC message, or a report about one, that arrived in messages of the extension
    /// with number `by`.
    fn transferred(&mut self, by: usize, carried: Transferred) {
        let shared = &mut self.shared;
        let both = shared.dialect.extensions_carry_callbacks();
        let (requester, responder) = match shared.config.role.side() {
            _ if both => (self.requester.as_mut(), self.responder.as_mut()),
            Side::Client => (self.requester.as_mut(), None),
            Side::Server => (None, self.responder.as_mut()),
        };
        match (carried, requester, responder) {
            (Transferred::Reply(reply), Some(requester), _) => {
                requester.carried_reply_received(shared, Some(by), reply);
            }
            (Transferred::AnyReply(reply), Some(requester), _) => {
                requester.carried_reply_received(shared, None, reply);
            }
            (
                Transferred::Rejected {
                    xid,
                    direction: Direction::Call,
                    reason,
                },
                Some(requester),
                _,
            ) => requester.carried_call_rejected(shared, xid, &reason),
            (Transferred::Unusable { xid, reason }, Some(requester), _) => {
                requester.reply_unusable(shared, xid, reason);
            }
            (Transferred::Call(call), _, Some(responder)) => {
                responder.carried_call_received(shared, by, call);
            }
            (Transferred::BaseCall { call, handle }, _, Some(responder)) => {
                responder.joined_call_received(shared, call, handle);
            }
            (
                Transferred::Rejected {
                    xid,
                    direction: Direction::Reply,
                    reason,
                },
                _,
                Some(responder),
            ) => responder.reply_rejected(shared, xid, &reason),
            // The server that made it has to learn that it has ended.
            (
                Transferred::Call(IncomingCall { xid, .. })
                | Transferred::BaseCall {
                    call: IncomingCall { xid, .. },
                    ..
                },
                ..,
            ) => {
                rpcrdma_host::limited!(
                    warn,
                    xid,
                    "a call in messages of an extension to a client, which takes none"
                );
                shared.send_error(&ErrorMessage::chunk(shared.dialect, xid));
            }
            // The message itself is not logged, as it can have any length.
            (
                Transferred::Reply(IncomingReply { xid, .. })
                | Transferred::AnyReply(IncomingReply { xid, .. })
                | Transferred::Rejected { xid, .. }
                | Transferred::Unusable { xid, .. },
                ..,
            ) => {
                rpcrdma_host::limited!(
                    warn,
                    xid,
                    "an RPC message of an extension, which this end cannot take"
                );
            }
        }
    }

    /// Records that every receive has this structure.
    pub(crate) fn receives_replaced(&mut self, receives: &ReceiveStructure) {
        if let Some(extensions) = self.shared.session.extensions_mut() {
            extensions.receives_replaced(receives.len());
        }
    }

    /// Accepts a call of this end, to be sent to the peer.
    ///
    /// # Errors
    /// [`CallError::NoCallbacks`]: this end is a server that makes no calls, or the client takes none.
    /// [`CallError::Ending`]: this end is ending the connection.
    pub(crate) fn call(&mut self, call: PendingCall) -> Result<(), CallError> {
        let takes = self.peer_takes_calls();
        let why = match &mut self.requester {
            Some(requester) if !requester.takes_calls() => return Err(CallError::Ending),
            Some(requester) if takes != ReverseDirection::None => {
                requester.chunks = takes == ReverseDirection::General;
                requester.call(&mut self.shared, call);
                return Ok(());
            }
            Some(_) => "the client says so",
            None => "this server makes none",
        };
        Err(CallError::NoCallbacks(why.to_owned()))
    }

    /// Takes the calls that a client's upper layer made before the version was known.
    pub(crate) fn add_pending(&mut self, calls: PendingCalls) {
        if let Some(requester) = &mut self.requester {
            requester.add_pending(&mut self.shared, calls);
        }
    }

    /// Returns which calls the peer accepts: none, only without chunks, or all. Servers accept all.
    /// A client announces it in version 2; in version 1 the upper layer has to find out (RFC 8167,
    /// section 6).
    fn peer_takes_calls(&self) -> ReverseDirection {
        let config = &self.shared.config;
        if config.role.side() == Side::Client {
            return ReverseDirection::General;
        }
        match self.shared.session.limits() {
            Some(limits) => limits.reverse_direction,
            None if config.options.callbacks.chunks => ReverseDirection::General,
            None => ReverseDirection::Inline,
        }
    }

    /// Accepts this end's reply to a call that the peer made, and sends it.
    pub(crate) fn reply(&mut self, id: crate::CallId, message: Option<Message>) {
        if let Some(responder) = &mut self.responder {
            responder.reply(&mut self.shared, id, message);
        }
    }
}
