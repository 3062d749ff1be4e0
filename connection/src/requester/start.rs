//! Planning of calls, and allocation of their memory.

use std::sync::Arc;

use rdma::PoolExhausted;
use rdma::trace::{Event, Wait};
use rpcrdma_chunks::Direction;
use rpcrdma_extension::{CallCandidate, CallToPlan};
use transfer_plan::{CallError, CallPlan, Shape, needs_no_chunks, plan_call};

use super::outstanding::Outstanding;
use super::pending::PendingCall;
use super::prepared::{Prepared, prepare, prepare_candidate};
use super::remembered::ExtensionStates;
use super::{Requester, finish_unsent};
use crate::Action;
use crate::action::{ReceivesFor, ReceivesId, RegistrationId};
use crate::flow::MaySend;
use crate::plan::{CallChoice, choose_call, is_possible};
use crate::shared::Shared;

/// Whether the next pending call may be planned at once, after a call was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// The next call may be planned.
    GoOn,
    /// The next call may be planned only after this call's memory is registered and its receives
    /// are posted, because free credits and receives decide between the candidates of extensions.
    First,
}

impl Requester {
    /// Plans a call and allocates its memory. A plain call is sent at once, unless another is ready
    /// before it or the send queue, which has `room` free entries, is full. A credit must be free.
    pub(super) fn start_call(
        &mut self,
        shared: &mut Shared,
        call: PendingCall,
        room: usize,
    ) -> Started {
        match self.claimed_small_calls && !call.base_only {
            false => self.start_unclaimed(shared, call, room),
            true => self.start_claimed(shared, call, room),
        }
    }

    #[inline]
    fn start_unclaimed(&mut self, shared: &mut Shared, call: PendingCall, room: usize) -> Started {
        // Most calls are sent from here, without a plan and with nothing to register. The
        // conditions are those under which `plan_call` plans a plain call with a plain reply.
        if self.sends_at_once(shared, room)
            && call.message.items().is_empty()
            && needs_no_chunks(call.message.payload_len(), &call.need, &shared.limits)
        {
            self.send_plain(shared, call);
            return Started::GoOn;
        }
        self.plan(shared, call, room)
    }

    /// Starts a call with the candidate of an extension that claims it if it is small, and otherwise
    /// like any other call.
    #[cold]
    fn start_claimed(&mut self, shared: &mut Shared, call: PendingCall, room: usize) -> Started {
        let small = call.message.items().is_empty()
            && needs_no_chunks(call.message.payload_len(), &call.need, &shared.limits);
        let Some(shape) = Shape::of(&call.message).ok().filter(|_| small) else {
            return self.start_unclaimed(shared, call, room);
        };
        let limits = call.limits(&shared.limits, self.chunks);
        let to_plan = CallToPlan {
            shape: &shape,
            need: &call.need,
            extras: call.message.extras(),
            limits: &limits,
            credits: shared.flow.unreserved(),
            reply_credits: shared.flow.receivable_in_reply(),
            reservable: self.reservable(shared),
        };
        let claimed = shared.session.modes().all().find_map(|(by, mode)| {
            let claims = mode.claims_small_calls();
            let mut candidates = claims.then(|| mode.plan_call(&to_plan))?.into_iter();
            let candidate = candidates.find(|candidate| is_possible(candidate, &to_plan))?;
            Some((by, candidate))
        });
        match claimed {
            Some((by, candidate)) => self.start_candidate(shared, call, by, &candidate, room),
            None => self.start_unclaimed(shared, call, room),
        }
    }

    #[inline(never)]
    fn plan(&mut self, shared: &mut Shared, call: PendingCall, room: usize) -> Started {
        let shape = match Shape::of(&call.message) {
            Ok(shape) => shape,
            Err(error) => {
                finish_unsent(shared, call.xid, error.to_string());
                return Started::GoOn;
            }
        };
        if self.extensible && !call.base_only {
            return self.plan_with_extensions(shared, call, &shape, room);
        }
        // Planned as if chunks were taken, so that the error of a call that needs some shows the
        // plan. `start_base` checks that there are none if the responder takes none.
        match plan_call(&shape, &call.need, &call.limits(&shared.limits, true)) {
            Ok(plan) => self.start_base(shared, call, &plan, room),
            Err(error) => finish_unsent(shared, call.xid, error.to_string()),
        }
        Started::GoOn
    }

    /// Starts a call with the cheapest plan, of the base protocol or of an extension. Nothing is
    /// cheaper than a plain call with a plain reply, so extensions are not asked about those.
    fn plan_with_extensions(
        &mut self,
        shared: &mut Shared,
        call: PendingCall,
        shape: &Shape,
        room: usize,
    ) -> Started {
        let limits = call.limits(&shared.limits, self.chunks);
        let to_plan = CallToPlan {
            shape,
            need: &call.need,
            extras: call.message.extras(),
            limits: &limits,
            credits: shared.flow.unreserved(),
            reply_credits: shared.flow.receivable_in_reply(),
            reservable: self.reservable(shared),
        };
        // A plan may depend on what accompanies this call, which others do not have.
        let states = match call.message.extras().is_empty() {
            true => plan_states(shared),
            false => None,
        };
        let remembered = match &states {
            Some(states) => self
                .remembered
                .find(&to_plan, self.may_be_invalidated, states),
            None => None,
        };
        match remembered.map_or_else(|| self.choose(shared, &to_plan, states), Ok) {
            Ok(choice) => self.start_chosen(shared, call, &choice, room),
            Err(error) => {
                finish_unsent(shared, call.xid, error.to_string());
                Started::First
            }
        }
    }

    /// Chooses the cheapest plan for a call. It is remembered if the `states` on which it depends are known.
    #[inline(never)]
    fn choose(
        &mut self,
        shared: &mut Shared,
        call: &CallToPlan<'_>,
        states: Option<ExtensionStates>,
    ) -> Result<Arc<CallChoice>, CallError> {
        let may_invalidate = self.may_be_invalidated;
        let choice = match plan_call(call.shape, call.need, call.limits) {
            // One Send for the call and one for the reply, nothing registered and nothing to copy:
            // no mode is cheaper.
            Ok(plan) if plan.is_plain(call.need) => CallChoice::Base(plan),
            base => {
                let options = &shared.config.options;
                choose_call(
                    base,
                    call,
                    may_invalidate,
                    shared.session.modes(),
                    &options.costs,
                    options.short_items,
                )?
            }
        };
        let choice = Arc::new(choice);
        if let Some(states) = states {
            self.remembered
                .remember(call, may_invalidate, states, choice.clone());
        }
        Ok(choice)
    }

    /// Starts a call with the plan that was chosen for it.
    fn start_chosen(
        &mut self,
        shared: &mut Shared,
        call: PendingCall,
        choice: &CallChoice,
        room: usize,
    ) -> Started {
        match choice {
            CallChoice::Extension(by, candidate) => {
                self.start_candidate(shared, call, *by, candidate, room)
            }
            CallChoice::Base(plan) => {
                let plain = plan.is_plain(&call.need);
                self.start_base(shared, call, plan, room);
                if plain { Started::GoOn } else { Started::First }
            }
        }
    }

    fn send_plain(&mut self, shared: &mut Shared, call: PendingCall) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            log_plan(&call, shared);
        }
        let xid = call.xid;
        let key = self.calls.insert(Outstanding::plain(xid));
        self.by_xid.insert(xid, key);
        self.take_credits(shared, key);
        let header = shared.encode_plain(Direction::Call, xid);
        shared.send(Direction::Call, header, call.message.into_payload(), None);
        shared.trace_queued(Direction::Call, xid);
    }

    /// Allocates the memory of a call that the base protocol transfers.
    fn start_base(&mut self, shared: &mut Shared, call: PendingCall, plan: &CallPlan, room: usize) {
        // A client takes calls with chunks if it has said so (version-two-07, section 5.2.5), or in
        // version 1, which cannot say it, if this server is configured so (RFC 8167, section 6).
        if !self.chunks && plan.has_chunks() {
            let reason = format!("the responder takes no chunks, and the call has some: {plan}");
            return finish_unsent(shared, call.xid, reason);
        }
        let (limits, pool) = (&shared.limits, &shared.config.pool);
        let copied = &mut self.counters.copied_bytes;
        let mut prepared = match prepare(&call.message, plan, limits, pool, copied) {
            Ok(prepared) => prepared,
            Err(error) => return self.wait_for_memory(shared, call, error),
        };
        let xid = call.xid;
        tracing::debug!(xid, %plan, "call");
        let at_once = prepared.regions.is_empty() && self.sends_at_once(shared, room);
        // Where the limits can change before it is sent, or the responder can refuse its chunks, it
        // may have to be planned again.
        if shared.session.extensions().is_some() && !at_once {
            prepared.keep(call);
        }
        self.register(shared, xid, prepared, room);
    }

    /// Sends a call that the extension with number `by` carries, if nothing is to be prepared for it and
    /// it can be sent at once. Otherwise allocates its memory. If there is none, the base protocol is used.
    fn start_candidate(
        &mut self,
        shared: &mut Shared,
        call: PendingCall,
        by: usize,
        candidate: &CallCandidate,
        room: usize,
    ) -> Started {
        let xid = call.xid;
        tracing::debug!(xid, plan = %candidate.plan, "call");
        let (sends, may_wait) = (candidate.messages(), candidate.cost.may_wait);
        if candidate.needs_no_preparation()
            && self.sends_at_once(shared, room)
            && shared.flow.may_send_call(sends, may_wait) == MaySend::Now
        {
            return self.send_unprepared(shared, call, by, candidate);
        }
        let state = shared.plan_state(by);
        let (limits, pool) = (&shared.limits, &shared.config.pool);
        let copied = &mut self.counters.copied_bytes;
        match prepare_candidate(call, (by, state), candidate, limits, pool, copied) {
            Ok(prepared) => {
                self.register(shared, xid, prepared, room);
                Started::First
            }
            // Nothing but this extension may be able to carry the call.
            Err((error, call)) if !limits.chunks.position_zero => {
                self.wait_for_memory(shared, *call, error);
                Started::GoOn
            }
            Err((error, call)) => {
                tracing::debug!(xid, %error, "no memory for this plan");
                self.pending.push_front(call.base_only());
                Started::GoOn
            }
        }
    }

    /// Makes a call wait until there is memory for it, or ends it if there never is so much.
    fn wait_for_memory(&mut self, shared: &mut Shared, call: PendingCall, error: PoolExhausted) {
        // More than the pool ever has: waiting would not end.
        if error.wanted > error.limit {
            return finish_unsent(shared, call.xid, error.to_string());
        }
        tracing::debug!(xid = call.xid, %error, "call waits for memory");
        self.no_memory = Some(error);
        self.pending.push_front(call);
    }

    /// Returns whether a ready call is sent at once: no other precedes it, and the send queue has a
    /// free entry after all queued actions, each of which takes at most one.
    fn sends_at_once(&self, shared: &Shared, room: usize) -> bool {
        self.ready.is_empty() && room > shared.actions.len()
    }

    /// Registers the memory of a call, and requests further receives for its reply.
    fn register(&mut self, shared: &mut Shared, xid: u32, prepared: Prepared, room: usize) {
        let (call, regions) = Outstanding::new(xid, prepared);
        // Calls that are prepared at the same time must not count on the same credits.
        shared.flow.reserve(call.sends());
        let receives = call.reply_messages() - 1;
        let carried = call.carrier.is_some();
        let key = self.calls.insert(call);
        self.by_xid.insert(xid, key);
        if regions.is_empty() && receives == 0 {
            // `start_calls` has seen one free credit before it started this call, so one Send may go out
            // at once. A call that an extension carries may need several credits, which are counted
            // when it is at the head of the ready calls.
            if carried || !self.sends_at_once(shared, room) {
                return self.ready.push_back(key);
            }
            return self.send_base(shared, key);
        }
        match u32::try_from(regions.len()) {
            Ok(0) => shared.trace(xid, Event::Waits(Wait::Receives)),
            count => {
                let regions = count.unwrap_or(u32::MAX);
                shared.trace(xid, Event::Registering { regions });
            }
        }
        if receives > 0 {
            self.further_receives += receives;
            shared.actions.push_back(Action::PostReceives {
                id: ReceivesId(ReceivesFor::Reply(key)),
                count: receives,
            });
        }
        for (index, (_, region)) in regions.into_iter().enumerate() {
            let id = RegistrationId { call: key, index };
            shared.actions.push_back(Action::Register { id, region });
        }
    }
}

/// Returns the states on which the plans of all transfer modes depend. `None` if one of the modes cannot say
/// when its plans change: then none is remembered.
fn plan_states(shared: &mut Shared) -> Option<ExtensionStates> {
    let mut states = ExtensionStates::new();
    for (_, mode) in shared.session.modes().all() {
        states.push(mode.plan_state()?);
    }
    Some(states)
}

/// Logs the plan of a plain call, which was sent without computing it.
#[cold]
fn log_plan(call: &PendingCall, shared: &Shared) {
    if let Ok(shape) = Shape::of(&call.message)
        && let Ok(plan) = plan_call(&shape, &call.need, &shared.limits)
    {
        tracing::debug!(xid = call.xid, %plan, "call");
    }
}
