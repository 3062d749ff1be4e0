//! Chooses the transfer mode of messages. The plans of the base protocol and of extensions are
//! candidates, of which the cheapest by the cost model is chosen.
//!
//! The functions take lengths, limits and costs, and return a plan. The only state is the last choice for a
//! reply, which is remembered.
//!
//! A call in several transmissions takes one credit for each of them, and only credits that are
//! free. A call for which they are not enough uses RDMA Reads and Writes instead. Where it may
//! begin without the credits for all of them, and where a reply in several messages needs more than
//! this end can receive at a time, the round trips in which it waits are a part of its cost. But no
//! mode is taken that has more round trips than the base protocol, as the cost model may not know
//! how long the link is.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_extension::{
    CallCandidate, CallToPlan, Planned, ReplyCandidate, ReplyToPlan, TransferMode,
};
use smallvec::SmallVec;
use transfer_plan::{
    CallError, CallPlan, CostModel, Effort, Limits, ReplyItem, ReplyPayload, ReplyPlan, Shape,
    plan_call,
};

use crate::dialect::Modes;

/// A transfer mode that is possible for a call, with its cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsideredMode {
    /// The plan in words.
    pub plan: String,
    /// The work that it takes, with the longest reply that the call may have.
    pub effort: Effort,
    /// The cost of that work by the cost model.
    pub cost: Duration,
    /// Whether this mode would be chosen.
    pub chosen: bool,
}

/// The chosen transfer mode of a call.
#[derive(Clone, Debug)]
pub(crate) enum CallChoice {
    /// By the base protocol.
    Base(CallPlan),
    /// In the transfer mode with this number.
    Extension(usize, CallCandidate),
}

impl CallChoice {
    /// Returns whether the credits and receives for `call` are enough for this mode, which was chosen
    /// for another call with the same lengths.
    pub(crate) fn is_possible(&self, call: &CallToPlan<'_>) -> bool {
        match self {
            Self::Base(_) => true,
            Self::Extension(_, candidate) => is_possible(candidate, call),
        }
    }
}

/// Returns whether the credits and receives for `call` are enough for a candidate.
pub(crate) fn is_possible(candidate: &CallCandidate, call: &CallToPlan<'_>) -> bool {
    let needs = &candidate.cost;
    (needs.may_wait || needs.transmissions <= call.credits) && needs.receives <= call.reservable
}

/// A transfer mode with its cost.
struct Candidate<T> {
    plan: T,
    effort: Effort,
    cost: Duration,
}

/// All transfer modes of a call.
struct CallModes {
    base: Result<Candidate<CallPlan>, CallError>,
    candidates: Vec<(usize, Candidate<CallCandidate>)>,
    /// The index of the cheapest candidate; `None` is the base protocol.
    best: Option<usize>,
}

impl CallModes {
    fn find(
        base: Result<CallPlan, CallError>,
        call: &CallToPlan<'_>,
        may_invalidate: bool,
        modes: Modes<'_>,
        costs: &CostModel,
        short: u32,
    ) -> Self {
        let base = base.map(|plan| {
            let effort = plan.effort(call.need, call.limits, may_invalidate);
            let cost = costs.estimate(&effort);
            Candidate { plan, effort, cost }
        });
        // Nothing is gained by placing what is short: both ends spend more on it than on a copy.
        let is_short = base.as_ref().is_ok_and(|base| {
            let effort = &base.effort;
            effort.sends == 2 && effort.explicit == 0 && effort.unplaced <= u64::from(short)
        });
        // The possible transfer modes at present: the base protocol if it has a plan, and candidates.
        let mut possible: SmallVec<[Option<usize>; 8]> = base.iter().map(|_| None).collect();
        let mut prices: SmallVec<[(Effort, Duration); 8]> =
            base.iter().map(|base| (base.effort, base.cost)).collect();
        let mut candidates = Vec::new();
        for (by, mode) in modes.all() {
            for candidate in mode.plan_call(call) {
                let mut effort = call_effort(&candidate, call, may_invalidate);
                if candidate.cost.may_wait {
                    effort.wait_for_credits(candidate.cost.transmissions, call.credits);
                }
                effort.wait_for_credits(candidate.cost.reply_transmissions, call.reply_credits);
                let cost = costs.estimate(&effort);
                let offered = candidate.write_chunks.len();
                // Every segment of a chunk is a registration.
                let chunks = call.limits.chunks;
                // The responder has said that it refuses such a call.
                if !chunks.allow(candidate.reads.len(), offered, effort.registrations) {
                    continue;
                }
                let most = base.as_ref().map(|base| base.effort.round_trips());
                // The cost model may not know how long the link is, so bytes that are saved cannot
                // be weighed against one more round trip.
                let few = most.is_ok_and(|most| effort.round_trips() <= most) || base.is_err();
                if is_possible(&candidate, call) && few && !is_short {
                    possible.push(Some(candidates.len()));
                    prices.push((effort, cost));
                }
                let plan = candidate;
                candidates.push((by, Candidate { plan, effort, cost }));
            }
        }
        let best = CostModel::cheapest(&prices).and_then(|best| possible[best]);
        Self {
            base,
            candidates,
            best,
        }
    }
}

/// Chooses the cheapest transfer mode of a call. `base` is the plan of the base protocol,
/// `may_invalidate` says whether the responder may invalidate a handle with its reply, and `short` is
/// [`Options::short_items`](crate::Options::short_items).
///
/// # Errors
/// [`CallError`]: neither the base protocol nor an extension can transfer it.
pub(crate) fn choose_call(
    base: Result<CallPlan, CallError>,
    call: &CallToPlan<'_>,
    may_invalidate: bool,
    modes: Modes<'_>,
    costs: &CostModel,
    short: u32,
) -> Result<CallChoice, CallError> {
    let mut ways = CallModes::find(base, call, may_invalidate, modes, costs, short);
    match ways.best {
        Some(best) => {
            let (by, candidate) = ways.candidates.swap_remove(best);
            Ok(CallChoice::Extension(by, candidate.plan))
        }
        None => ways.base.map(|base| CallChoice::Base(base.plan)),
    }
}

/// Returns every transfer mode of a call with its cost and whether it would be chosen; that of the
/// base protocol comes first.
pub(crate) fn consider_call(
    call: &CallToPlan<'_>,
    may_invalidate: bool,
    modes: Modes<'_>,
    costs: &CostModel,
    short: u32,
) -> Vec<ConsideredMode> {
    let base = plan_call(call.shape, call.need, call.limits);
    let ways = CallModes::find(base, call, may_invalidate, modes, costs, short);
    let best = ways.best;
    let base = ways.base.into_iter().map(|base| ConsideredMode {
        plan: base.plan.to_string(),
        effort: base.effort,
        cost: base.cost,
        chosen: best.is_none(),
    });
    let candidates = ways.candidates.into_iter().enumerate();
    let candidates = candidates.map(|(index, (_, candidate))| ConsideredMode {
        plan: candidate.plan.plan.to_string(),
        effort: candidate.effort,
        cost: candidate.cost,
        chosen: best == Some(index),
    });
    base.chain(candidates).collect()
}

/// Returns the work that a candidate takes, with the longest reply that the call may have.
fn call_effort(candidate: &CallCandidate, call: &CallToPlan<'_>, may_invalidate: bool) -> Effort {
    let cost = candidate.cost;
    let mut effort = Effort::of(
        (u64::from(cost.transmissions), cost.wire_bytes),
        (u64::from(cost.reply_transmissions), cost.reply_wire_bytes),
    );
    (effort.unplaced, effort.placed) = (cost.unplaced, u64::from(cost.placed));
    for &index in &candidate.reads {
        if let Some(item) = call.shape.items().get(index) {
            effort.bytes += item.len;
            effort.read(item.len, call.limits);
        }
    }
    for &len in candidate.write_chunks.iter().chain(&candidate.reply_chunk) {
        effort.bytes += len;
        effort.write(len, call.limits);
    }
    if may_invalidate {
        effort.remotely_invalidated();
    }
    effort
}

/// The transfer mode that was chosen for the last reply. The choice is repeated while the extension
/// offers the same plans, as it does for replies of the same shape, and the base protocol's reply,
/// without write chunks, is as long as the last one.
#[derive(Debug, Default)]
pub(crate) struct LastReply {
    /// Length in bytes of the reply in one Send of the base protocol, if it has such a plan.
    base: Option<u64>,
    plans: SmallVec<[Arc<dyn Planned>; 2]>,
    chosen: Option<usize>,
}

impl LastReply {
    fn still_holds(&self, base: Option<u64>, candidates: &[ReplyCandidate]) -> bool {
        let mut pairs = self.plans.iter().zip(candidates);
        self.base == base
            && self.plans.len() == candidates.len()
            && pairs.all(|(plan, candidate)| Arc::ptr_eq(plan, &candidate.plan))
    }
}

/// Chooses the cheapest transfer mode of a reply to a call that arrived in messages of an
/// extension. `base` is the plan of the base protocol, without chunks, if there is one. Returns
/// `None` if that is the cheapest, or if there is no candidate.
pub(crate) fn choose_reply(
    reply: &ReplyToPlan<'_>,
    base: Option<&ReplyPlan>,
    mode: &mut dyn TransferMode,
    costs: &CostModel,
    last: &mut LastReply,
) -> Option<ReplyCandidate> {
    // Choices are compared only if the extension has made new plans: for alike replies, it offers
    // the same ones.
    let mut candidates = mode.plan_reply(reply);
    let base_len = base.map(ReplyPlan::send_len);
    if !last.still_holds(base_len, &candidates) {
        *last = LastReply {
            base: base_len,
            plans: candidates.iter().map(|one| one.plan.clone()).collect(),
            chosen: cheapest_reply(reply, base, &candidates, costs),
        };
    }
    Some(candidates.swap_remove(last.chosen?))
}

/// Returns the index of the cheapest transfer mode of a reply, or `None` if that is `base`.
fn cheapest_reply(
    reply: &ReplyToPlan<'_>,
    base: Option<&ReplyPlan>,
    candidates: &[ReplyCandidate],
    costs: &CostModel,
) -> Option<usize> {
    let mut prices: SmallVec<[(Effort, Duration); 4]> = SmallVec::new();
    if let Some(plan) = base {
        let mut effort = Effort::of((1, plan.send_len()), (0, 0));
        effort.unplaced = reply.shape.items().iter().map(|item| item.len).sum();
        prices.push((effort, costs.estimate(&effort)));
    }
    // The base protocol's plan, if there is one, is the first.
    let before = prices.len();
    for candidate in candidates {
        let effort = reply_effort(candidate, reply.shape, reply.limits);
        prices.push((effort, costs.estimate(&effort)));
    }
    CostModel::cheapest(&prices)?.checked_sub(before)
}

/// Returns whether `plan` sends a whole reply inline, with at most `short` bytes of items. Other
/// transfer modes are not considered then: both ends spend more on placing so little than on a copy.
pub(crate) fn is_short(plan: &ReplyPlan, short: u32) -> bool {
    let inline = |&(_, how): &(_, ReplyItem)| how == ReplyItem::InPayload;
    plan.payload == ReplyPayload::Inline
        && plan.items.iter().all(inline)
        && plan.items.iter().map(|(item, _)| item.len).sum::<u64>() <= u64::from(short)
}

/// Returns whether the transfer mode `candidate` of a reply to a call of the base protocol is cheaper
/// than `base`, the plan of the base protocol, or there is no such plan.
pub(crate) fn is_cheaper(
    candidate: &ReplyCandidate,
    reply: &ReplyToPlan<'_>,
    base: Option<&ReplyPlan>,
    costs: &CostModel,
    last: &mut LastReply,
) -> bool {
    let Some(plan) = base else {
        return true;
    };
    // The choice is remembered where the lengths tell all of the plan.
    let in_payload = |(_, how): &(_, _)| *how == ReplyItem::InPayload;
    let base_len = plan.items.iter().all(in_payload).then(|| plan.send_len());
    if base_len.is_some() && last.still_holds(base_len, std::slice::from_ref(candidate)) {
        return last.chosen.is_some();
    }
    let is_cheaper = costs_less(candidate, reply, plan, costs);
    if base_len.is_some() {
        *last = LastReply {
            base: base_len,
            plans: SmallVec::from_iter([candidate.plan.clone()]),
            chosen: is_cheaper.then_some(0),
        };
    }
    is_cheaper
}

fn costs_less(
    candidate: &ReplyCandidate,
    reply: &ReplyToPlan<'_>,
    plan: &ReplyPlan,
    costs: &CostModel,
) -> bool {
    let mut base = Effort::of((1, plan.send_len()), (0, 0));
    for (item, how) in &plan.items {
        match how {
            ReplyItem::InPayload => base.unplaced += item.len,
            ReplyItem::WriteChunk(_) => {
                base.explicit += reply.limits.segments(item.len);
                base.bytes += item.len;
                base.write_bytes += item.len;
            }
        }
    }
    let other = reply_effort(candidate, reply.shape, reply.limits);
    let prices = [base, other].map(|effort| (effort, costs.estimate(&effort)));
    CostModel::cheapest(&prices) == Some(1)
}

fn reply_effort(candidate: &ReplyCandidate, shape: &Shape, limits: &Limits) -> Effort {
    let cost = candidate.cost;
    let mut effort = Effort::of((u64::from(cost.transmissions), cost.wire_bytes), (0, 0));
    (effort.unplaced, effort.placed) = (cost.unplaced, u64::from(cost.placed));
    for &(index, _) in &candidate.writes {
        let len = shape.items().get(index).map_or(0, |item| item.len);
        effort.explicit += limits.segments(len);
        effort.bytes += len;
        effort.write_bytes += len;
    }
    effort
}
