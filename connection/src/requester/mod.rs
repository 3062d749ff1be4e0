//! The requester of a connection: it sends calls and receives their replies.
//!
//! A call waits until a credit is free. Then it is planned, its memory is registered and it is
//! sent. When its reply has arrived, every registration that the responder has not ended with its
//! Send With Invalidate is ended locally, and only then the call is finished (RFC 8166, section
//! 4.4.1): no memory is read that the responder can still reach, and none stays registered after
//! its call. The end of the connection ends all of them, so that replies that had arrived are reported
//! after it (`last_replies.rs`).
//!
//! A cancelled call keeps its registrations until its reply arrives if the responder may invalidate
//! them, because a device ends the connection if a Send invalidates an invalid handle. Otherwise
//! they end at once.
//!
//! A call is *carried* if a transfer mode sends it in its own messages: an extension, or the version
//! itself where a message may be continued in several Sends (version-two-07, section 6.6.2). Both
//! have the same interface ([`TransferMode`](rpcrdma_extension::TransferMode)). All other calls are
//! sent by the *base protocol*, in one Send with chunks. The parts of received messages are joined
//! by the dialect.

mod batch;
mod earlier_errors;
mod last_replies;
mod memory;
mod outcome;
mod outstanding;
mod pending;
mod prepared;
mod registration;
mod remembered;
mod repeat;
mod send;
mod start;
mod watch;

use std::collections::VecDeque;
use std::ops::AddAssign;

use onc_rpc::Extras;
use rdma::{IdMap, PoolExhausted};
use rpcrdma_extension::{CallToPlan, Calls};
use slab::Slab;
use transfer_plan::ReplyNeed;

use self::earlier_errors::EarlierErrors;
pub(crate) use self::last_replies::LastReplies;
use self::outstanding::{Outcome, Outstanding, Stage};
pub(crate) use self::pending::PendingCall;
use self::remembered::RememberedPlans;
use self::watch::AnswerWatch;
use crate::action::{ReceivesFor, ReceivesId};
use crate::dialect::Modes;
use crate::plan::{ConsideredMode, consider_call};
use crate::shared::{Shared, shrink_slab};
use crate::{Action, CallError};

/// Calls that were made and not started yet. They can be moved to another connection.
#[derive(Debug, Default)]
pub struct PendingCalls(VecDeque<PendingCall>);

impl PendingCalls {
    /// Adds a call.
    pub(crate) fn push(&mut self, call: PendingCall) {
        self.0.push_back(call);
    }

    /// Removes the call with this XID.
    pub(crate) fn remove(&mut self, xid: u32) {
        self.0.retain(|call| call.xid != xid);
    }

    /// Adds the calls of `others` after its own.
    pub(crate) fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counters of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounters {
    /// Replies whose XID is that of no outstanding call.
    pub unknown_xid: u64,
    /// Messages that were discarded silently (RFC 8166, section 4.5).
    pub discarded: u64,
    /// Replies to calls that had been cancelled.
    pub cancelled_replies: u64,
    /// The maximum number of credits taken at the same time: one for each outstanding call, or in
    /// version 2 of 2016 one for each Send of a call.
    pub most_in_flight: u32,
    /// Bytes copied because the payload of a Long Call lay in several pieces.
    pub copied_bytes: u64,
    /// Segments of the read chunks that calls offered.
    pub read_segments: u64,
    /// Segments of the write chunks that calls offered.
    pub write_segments: u64,
    /// Segments of the reply chunks that calls offered.
    pub reply_segments: u64,
    /// Bytes of all these segments, whether or not the responder used them.
    pub registered_bytes: u64,
    /// The part of these in write and reply chunks.
    pub offered_bytes: u64,
    /// Calls whose payload was in a read chunk (Long Calls).
    pub long_calls: u64,
}

impl AddAssign for RequesterCounters {
    /// Adds the counters of another connection. The greatest number of credits is that of one connection.
    fn add_assign(&mut self, other: Self) {
        self.unknown_xid += other.unknown_xid;
        self.discarded += other.discarded;
        self.cancelled_replies += other.cancelled_replies;
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
        self.copied_bytes += other.copied_bytes;
        self.read_segments += other.read_segments;
        self.write_segments += other.write_segments;
        self.reply_segments += other.reply_segments;
        self.registered_bytes += other.registered_bytes;
        self.offered_bytes += other.offered_bytes;
        self.long_calls += other.long_calls;
    }
}

/// The state of the receives for replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyReceives {
    /// The receives are posted.
    Posted,
    /// The receives have been requested.
    Requested,
    /// The receives must be requested before the first call. This is the case for calls in the
    /// reverse direction (RFC 8167, section 4.3.2).
    NotPosted,
}

/// The requester of a connection.
#[derive(Debug)]
pub(crate) struct Requester {
    receives: ReplyReceives,
    /// Calls that have a registration or a credit, by key.
    calls: Slab<Outstanding>,
    /// The keys of calls that the upper layer waits for, by XID.
    by_xid: IdMap<u32, usize>,
    /// The keys of calls that were cancelled after they were sent, until their replies arrive.
    cancelled: Vec<usize>,
    /// Calls that are not planned yet.
    pending: VecDeque<PendingCall>,
    /// Calls that are registered and not sent yet.
    ready: VecDeque<usize>,
    /// The error because of which the first pending call waits for memory.
    no_memory: Option<PoolExhausted>,
    /// Whether calls and their replies may have chunks.
    pub(crate) chunks: bool,
    /// Whether extensions may carry calls: those from client to server, and where
    /// [`extensions_carry_callbacks`](crate::dialect::Dialect::extensions_carry_callbacks) says so, those
    /// from server to client.
    extensible: bool,
    /// Whether an extension is offered small calls
    /// ([`claims_small_calls`](rpcrdma_extension::TransferMode::claims_small_calls)).
    claimed_small_calls: bool,
    /// Whether an extension is offered small calls to send together
    /// ([`Batching`](rpcrdma_extension::Batching)).
    batches: bool,
    /// Further receives that are posted for replies in several messages.
    further_receives: u32,
    watch: AnswerWatch,
    earlier_errors: EarlierErrors,
    /// The lowest and highest version that the responder reported when it rejected the version of a
    /// call.
    pub(crate) version_refused: Option<(u32, u32)>,
    /// Whether the responder may invalidate a handle of a call with its reply (RFC 8797, section
    /// 4.1; xcharext-02, section 3.2). If so, a cancelled call keeps its registrations until its
    /// reply arrives: a device ends the connection over a handle that is not valid any more.
    may_be_invalidated: bool,
    /// Whether the connection is ending, so that no further call is sent: neither a new one nor one once more.
    is_ending: bool,
    pub(crate) counters: RequesterCounters,
    remembered: RememberedPlans,
}

impl Requester {
    /// Returns a client's requester. Receives for replies are posted. Extensions may carry calls if
    /// it is `extensible`; the responder may invalidate handles if both ends have agreed so
    /// (`may_be_invalidated`).
    pub(crate) fn forward(extensible: bool, may_be_invalidated: bool) -> Self {
        Self {
            extensible,
            may_be_invalidated,
            ..Self::new()
        }
    }

    /// Sets whether an extension claims small calls. It has no effect where extensions may not
    /// carry calls.
    pub(crate) fn with_claimed_small_calls(self, claimed: bool) -> Self {
        Self {
            claimed_small_calls: claimed && self.extensible,
            ..self
        }
    }

    /// Sets whether small calls are offered to an extension that sends several together.
    pub(crate) fn with_batches(self, batches: bool) -> Self {
        Self { batches, ..self }
    }

    /// Shrinks queues and tables to the calls that are unfinished now. Returns the number of bytes
    /// freed.
    pub(crate) fn shrink(&mut self) -> usize {
        self.by_xid.shrink_to_fit();
        shrink_slab(&mut self.calls)
            + rdma::shrink(&mut self.pending)
            + rdma::shrink(&mut self.ready)
    }

    fn new() -> Self {
        Self {
            receives: ReplyReceives::Posted,
            calls: Slab::new(),
            by_xid: IdMap::default(),
            cancelled: Vec::new(),
            pending: VecDeque::new(),
            ready: VecDeque::new(),
            no_memory: None,
            chunks: true,
            extensible: false,
            claimed_small_calls: false,
            batches: false,
            further_receives: 0,
            watch: AnswerWatch::default(),
            earlier_errors: EarlierErrors::default(),
            version_refused: None,
            may_be_invalidated: false,
            is_ending: false,
            counters: RequesterCounters::default(),
            remembered: RememberedPlans::default(),
        }
    }

    /// Returns a server's requester, for calls in the reverse direction. Before the first call, it
    /// requests the receives for its replies. Extensions may carry calls if it is `extensible`.
    pub(crate) fn reverse(extensible: bool, may_be_invalidated: bool) -> Self {
        Self {
            extensible,
            receives: ReplyReceives::NotPosted,
            may_be_invalidated,
            ..Self::new()
        }
    }

    /// Records the answer to the request for the receives of a server's requester. Without them,
    /// its calls fail.
    pub(crate) fn callback_receives_posted(&mut self, shared: &mut Shared, posted: bool) {
        if posted {
            self.receives = ReplyReceives::Posted;
            return;
        }
        self.receives = ReplyReceives::NotPosted;
        // Nothing would start them before this end makes another call, which may be never.
        for call in std::mem::take(&mut self.pending) {
            let reason = "no memory for the receives of replies".to_owned();
            finish_unsent(shared, call.xid, reason);
        }
    }

    /// Takes a call. It is sent when a credit is free and there is room in the send queue.
    #[inline]
    pub(crate) fn call(&mut self, shared: &mut Shared, call: PendingCall) {
        self.ask_for_receives(shared);
        // The upper layer may use an XID again, after which errors for it are about the new call.
        self.earlier_errors.forget(call.xid);
        self.pending.push_back(call);
    }

    /// Adds calls that were made while the version was not known.
    pub(crate) fn add_pending(&mut self, shared: &mut Shared, calls: PendingCalls) {
        if !calls.is_empty() {
            self.ask_for_receives(shared);
            self.pending.extend(calls.0);
        }
    }

    /// Asks for the receives of the reverse direction before its first call.
    fn ask_for_receives(&mut self, shared: &mut Shared) {
        // As many as calls may be outstanding, since each may get its reply at the same time.
        if self.receives == ReplyReceives::NotPosted {
            self.receives = ReplyReceives::Requested;
            shared.actions.push_back(Action::PostReceives {
                id: ReceivesId(ReceivesFor::Callbacks),
                count: shared.flow.requested(),
            });
        }
    }

    /// Applies changed limits (version-two-01, section 5.2). Calls that wait to be sent and are too
    /// long now are planned again. An extension that lowers a limit waits until those that were
    /// sent have been answered ([`Requester::watch`]).
    pub(crate) fn limits_changed(&mut self, shared: &mut Shared) {
        let mut outgrown = Vec::new();
        for (key, call) in &self.calls {
            // A call whose memory is still being registered is checked when that is done.
            if matches!(call.stage, Stage::Ready(_))
                && let Some(source) = call.original_if_outgrown(&shared.limits)
            {
                outgrown.push((key, source));
            }
        }
        for (key, source) in outgrown {
            self.withdraw_ready(shared, key, Outcome::Again(source));
        }
    }

    /// Watches calls until they are answered; [`Requester::next_answered_group`] reports that.
    pub(crate) fn watch(&mut self, calls: Calls) {
        let unanswered = self.calls.iter();
        let unanswered = unanswered.filter(|(_, call)| !matches!(call.stage, Stage::Ended(_)));
        self.watch.start(calls, unanswered.map(|(key, _)| key));
    }

    /// Returns whether there is a group of watched calls that are all answered.
    pub(crate) fn has_answered_group(&self) -> bool {
        self.watch.has_answered_group()
    }

    /// Returns the next group of watched calls that are all answered. Each group is returned once.
    pub(crate) fn next_answered_group(&mut self) -> Option<Calls> {
        self.watch.next_answered_group()
    }

    /// Returns the number of calls that have not ended, cancelled ones that still hold a credit
    /// included.
    pub(crate) fn unfinished_calls(&self) -> usize {
        self.calls.len() + self.pending.len()
    }

    /// Returns whether a call has memory that is registered, or is being registered or invalidated. The responder may
    /// still access it, so that an RDMA Write or Read could fail if the connection ended now.
    pub(crate) fn has_registered_memory(&self) -> bool {
        let mut registrations = self.calls.iter().flat_map(|(_, call)| &call.registrations);
        registrations.any(|registration| !registration.is_ended())
    }

    /// Returns whether a call waits for memory.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.no_memory.is_some()
    }

    /// Returns whether a call is in progress, which may release memory when it ends.
    pub(crate) fn has_calls_under_way(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Retries the first pending call if it waits for memory.
    pub(crate) fn retry(&mut self) {
        self.no_memory = None;
    }

    /// Fails the first pending call if it waits for memory, because no other call will release any.
    pub(crate) fn give_up_waiting(&mut self, shared: &mut Shared) {
        if let Some(error) = self.no_memory.take()
            && let Some(call) = self.pending.pop_front()
        {
            let reason = format!("{error}, and no call under way gives any back");
            finish_unsent(shared, call.xid, reason);
        }
    }

    /// Cancels a call. Its memory is invalidated at once, unless the responder may do that with its
    /// reply; its credit stays taken until the reply arrives, because the responder still processes
    /// it.
    pub(crate) fn cancel(&mut self, shared: &mut Shared, xid: u32) {
        if let Some(at) = self.pending.iter().position(|call| call.xid == xid) {
            self.pending.remove(at);
            // Only the first pending call waits for memory. The next one may need less.
            if at == 0 {
                self.retry();
            }
            return;
        }
        let Some(key) = self.by_xid.remove(&xid) else {
            return;
        };
        match &self.calls[key].stage {
            // The device still answers its registrations. The last answer ends the call
            // (`preparation_answered`).
            Stage::Registering(_) => self.calls[key].cancelled = true,
            Stage::Ready(_) => self.withdraw_ready(shared, key, Outcome::Dropped),
            Stage::Sent(_) => {
                self.calls[key].cancelled = true;
                self.cancelled.push(key);
                // The last part of a continued call offers its memory, and is sent although the
                // call is cancelled: a message that was begun has to be finished.
                let to_be_offered = shared.flow.has_queued_message(xid);
                if !self.may_be_invalidated && !to_be_offered {
                    self.invalidate_all(shared, key);
                }
            }
            // Its memory is on the way back already; only the report is left out.
            Stage::Ended(_) => self.calls[key].stage = Stage::Ended(Outcome::Dropped),
        }
    }

    /// Returns whether calls are taken: no longer once those that were not sent have been cancelled.
    pub(crate) fn takes_calls(&self) -> bool {
        !self.is_ending
    }

    /// Cancels every call that was not sent, and from now on each that would have to be sent again. Returns whether
    /// there were any.
    pub(crate) fn cancel_unsent(&mut self, shared: &mut Shared) -> bool {
        self.is_ending = true;
        let planned = self.calls.iter().filter(|(_, call)| {
            !call.cancelled && matches!(call.stage, Stage::Registering(_) | Stage::Ready(_))
        });
        let planned = planned.map(|(_, call)| call.xid);
        let pending = self.pending.iter().map(|call| call.xid);
        let unsent: Vec<u32> = pending.chain(planned).collect();
        for &xid in &unsent {
            self.cancel(shared, xid);
        }
        !unsent.is_empty()
    }

    /// Returns every transfer mode that is possible at present for a call of these lengths.
    pub(crate) fn considered_modes(
        &self,
        shared: &mut Shared,
        shape: &transfer_plan::Shape,
        need: &ReplyNeed,
    ) -> Vec<ConsideredMode> {
        let call = CallToPlan {
            shape,
            need,
            extras: &Extras::NONE,
            limits: &shared.limits,
            credits: shared.flow.unreserved(),
            reply_credits: shared.flow.receivable_in_reply(),
            reservable: self.reservable(shared),
        };
        // Where extensions may not carry calls of this end, the version's own mode may not either.
        let modes = match self.extensible {
            true => shared.session.modes(),
            false => Modes::default(),
        };
        let costs = &shared.config.options.costs;
        let short = shared.config.options.short_items;
        consider_call(&call, self.may_be_invalidated, modes, costs, short)
    }

    /// Returns the maximum number of further receives that can be posted for one more reply.
    fn reservable(&self, shared: &Shared) -> u32 {
        let most = match self.extensible {
            true => shared.config.spare_receives,
            false => 0,
        };
        most.saturating_sub(self.further_receives)
    }

    /// Takes a call back that is ready and has not been sent, with this outcome.
    fn withdraw_ready(&mut self, shared: &mut Shared, key: usize, outcome: Outcome) {
        self.ready.retain(|&ready| ready != key);
        self.end_call(shared, key, outcome);
    }
}

/// Ends a call that was not sent, because it is too long or there is no memory for it.
fn finish_unsent(shared: &mut Shared, xid: u32, reason: String) {
    let result = Err(CallError::TooLarge(reason));
    shared.actions.push_back(Action::Finished { xid, result });
}
