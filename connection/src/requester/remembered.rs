//! Transfer modes of earlier calls.
//!
//! Most calls of a connection are alike, such as the READs of a file, and to choose among the
//! transfer modes of extensions takes longer than the rest of a short call. The choice depends on
//! nothing but the lengths of the call and its reply, the limits and free credits of the
//! connection, and the state of the extensions. So it is made again only if one of these differs.
//! Credits beyond those that a message of this length can use make no difference.
//! Choices are remembered only if every extension that carries RPC messages has a
//! [`plan_state`](rpcrdma_extension::TransferMode::plan_state).

use std::sync::Arc;

use rpcrdma_extension::CallToPlan;
use smallvec::SmallVec;
use transfer_plan::{ChunkLimits, Limits, ReplyNeed, Shape};

use crate::plan::CallChoice;

/// The number of choices that are remembered.
const MOST: usize = 4;
/// The number of bytes that each Send of a message in several Sends carries at least: the shortest
/// inline threshold is 1024 bytes, and headers take a part of it.
const LEAST_CARRIED: u64 = 512;

/// The [`plan_state`](rpcrdma_extension::TransferMode::plan_state) of each transfer mode, by which
/// a remembered plan is known to be valid still.
pub(super) type ExtensionStates = SmallVec<[u64; 2]>;

/// The last few transfer plans, each with the conditions under which it was chosen. Two of them can have
/// the same conditions, if there were not enough credits for the first when the second was chosen.
#[derive(Debug, Default)]
pub(super) struct RememberedPlans {
    plans: Vec<RememberedPlan>,
    /// The index of the plan that the next one replaces.
    next: usize,
}

#[derive(Debug)]
struct RememberedPlan {
    shape: Shape,
    need: ReplyNeed,
    terms: Terms,
    states: ExtensionStates,
    choice: Arc<CallChoice>,
}

/// The state on which a plan depends, besides the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Terms {
    inline_send: u64,
    inline_receive: u64,
    max_segment: u64,
    max_message: u64,
    chunks: ChunkLimits,
    credits: u32,
    reply_credits: u32,
    reservable: u32,
    may_invalidate: bool,
}

impl Terms {
    fn of(call: &CallToPlan<'_>, may_invalidate: bool) -> Self {
        let enough = |stream: u64, there: u32| {
            // One for the rest of the message, and one because its header may take a Send of its own.
            let most = stream / LEAST_CARRIED + 2;
            u32::try_from(most).map_or(there, |most| there.min(most))
        };
        let reply = call.need.stream_len();
        // The length of headers and the name of a chunk follow from the version, which a connection keeps.
        let Limits {
            inline_send,
            inline_receive,
            max_segment,
            max_message,
            chunks,
            header_len: _,
            call_chunk: _,
        } = *call.limits;
        Self {
            inline_send,
            inline_receive,
            max_segment,
            max_message,
            chunks,
            credits: enough(call.shape.stream_len(), call.credits),
            reply_credits: enough(reply, call.reply_credits),
            reservable: enough(reply, call.reservable),
            may_invalidate,
        }
    }
}

impl RememberedPlans {
    /// Returns the transfer mode that was chosen for a call like this one, if there are enough
    /// credits and receives for it.
    pub(super) fn find(
        &self,
        call: &CallToPlan<'_>,
        may_invalidate: bool,
        states: &ExtensionStates,
    ) -> Option<Arc<CallChoice>> {
        let terms = Terms::of(call, may_invalidate);
        // Equal terms do not say that there are enough credits for the plan that was chosen, only
        // that both calls had the same number of useful ones. So the plan itself is asked as well.
        let alike = |plan: &&RememberedPlan| {
            plan.shape == *call.shape
                && plan.need == *call.need
                && plan.terms == terms
                && plan.states == *states
                && plan.choice.is_possible(call)
        };
        let plan = self.plans.iter().find(alike)?;
        Some(plan.choice.clone())
    }

    /// Remembers a choice in place of the oldest one.
    pub(super) fn remember(
        &mut self,
        call: &CallToPlan<'_>,
        may_invalidate: bool,
        states: ExtensionStates,
        choice: Arc<CallChoice>,
    ) {
        let plan = RememberedPlan {
            shape: call.shape.clone(),
            need: call.need.clone(),
            terms: Terms::of(call, may_invalidate),
            states,
            choice,
        };
        match self.plans.get_mut(self.next) {
            Some(oldest) => *oldest = plan,
            None => self.plans.push(plan),
        }
        self.next = (self.next + 1) % MOST;
    }
}

#[cfg(test)]
mod tests {
    use onc_rpc::Extras;
    use transfer_plan::{ChunkCounts, plan_call};

    use super::*;

    /// Calls in flight take credits, but a short call does not care about most of them.
    #[test]
    fn a_choice_holds_for_other_numbers_of_credits_that_are_enough() {
        let limits = Limits {
            inline_send: 4096,
            inline_receive: 4096,
            max_segment: 1 << 30,
            max_message: 1 << 22,
            chunks: ChunkLimits::default(),
            header_len: |_: &ChunkCounts| 28,
            call_chunk: false,
        };
        let (shape, need) = (Shape::new(160, []), ReplyNeed::new(240, [8192]));
        let with = |credits, reservable| CallToPlan {
            shape: &shape,
            need: &need,
            extras: &Extras::NONE,
            limits: &limits,
            credits,
            reply_credits: 64,
            reservable,
        };
        let plan = plan_call(&shape, &need, &limits).unwrap();
        let mut plans = RememberedPlans::default();
        let choice = Arc::new(CallChoice::Base(plan));
        plans.remember(&with(64, 256), false, ExtensionStates::new(), choice);
        let found = |call: &CallToPlan<'_>, invalidate| {
            plans
                .find(call, invalidate, &ExtensionStates::new())
                .is_some()
        };
        assert!(found(&with(56, 200), false));
        assert!(found(&with(2, 18), false));
        assert!(!found(&with(1, 200), false), "a Send may need two");
        assert!(!found(&with(64, 17), false), "the reply may need more");
        assert!(!found(&with(64, 256), true));
    }
}
