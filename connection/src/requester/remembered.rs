//! Transfer modes of earlier calls.
//!
//! Most calls of a connection are alike, such as the READs of a file, and to choose among the
//! transfer modes of extensions takes longer than the rest of a short call. The choice depends on
//! nothing but the lengths of the call and its reply, the limits and free credits of the
//! connection, and the state of the extensions. So it is made again only if one of these differs.
//! Choices are remembered only if every extension that carries RPC messages has a
//! [`plan_state`](rpcrdma_v2::extension::TransferMode::plan_state).

use rpcrdma_v2::extension::{CallCandidate, CallToPlan};
use smallvec::SmallVec;
use transfer_plan::{ChunkLimits, Limits, ReplyNeed, Shape};

/// The number of choices that are remembered.
const MOST: usize = 4;

/// The states of all extensions that carry RPC messages, if each of them has one.
pub(super) type ExtensionStates = SmallVec<[u64; 2]>;

/// The last few transfer plans of extensions, each with the conditions under which it was chosen.
/// No two have the same conditions.
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
    by: usize,
    candidate: CallCandidate,
}

/// What a plan depends on, besides the call.
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
        // The length of headers follows from the version, which a connection keeps.
        let Limits {
            inline_send,
            inline_receive,
            max_segment,
            max_message,
            chunks,
            header_len: _,
        } = *call.limits;
        Self {
            inline_send,
            inline_receive,
            max_segment,
            max_message,
            chunks,
            credits: call.credits,
            reply_credits: call.reply_credits,
            reservable: call.reservable,
            may_invalidate,
        }
    }
}

impl RememberedPlans {
    /// Returns the transfer mode that was chosen for a call like this one, and the number of its
    /// extension.
    pub(super) fn find(
        &self,
        call: &CallToPlan<'_>,
        may_invalidate: bool,
        states: &ExtensionStates,
    ) -> Option<(usize, CallCandidate)> {
        let terms = Terms::of(call, may_invalidate);
        let alike = |plan: &&RememberedPlan| {
            plan.shape == *call.shape
                && plan.need == *call.need
                && plan.terms == terms
                && plan.states == *states
        };
        let plan = self.plans.iter().find(alike)?;
        Some((plan.by, plan.candidate.clone()))
    }

    /// Remembers a choice in place of the oldest one.
    pub(super) fn remember(
        &mut self,
        call: &CallToPlan<'_>,
        may_invalidate: bool,
        states: ExtensionStates,
        (by, candidate): (usize, &CallCandidate),
    ) {
        let plan = RememberedPlan {
            shape: call.shape.clone(),
            need: call.need.clone(),
            terms: Terms::of(call, may_invalidate),
            states,
            by,
            candidate: candidate.clone(),
        };
        match self.plans.get_mut(self.next) {
            Some(oldest) => *oldest = plan,
            None => self.plans.push(plan),
        }
        self.next = (self.next + 1) % MOST;
    }
}
