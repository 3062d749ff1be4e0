//! RPC messages in operations of extensions: asking for ways, choosing the cheapest, handing over.

use std::time::Duration;

use conveyance::{CallPlan, CostModel, Effort, Limits, ReplyNeed, Shape, plan_call};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::extension::{CallCandidate, Conveyed, Extensions, IncomingCall, IncomingReply};
use rpcrdma_v2::{Direction, Side};
use smallvec::SmallVec;

use super::{ClientConversation, Extended, Parts};
use crate::rdma::requester::{Asked, Chosen, Notice};
use crate::rdma::responder::{AskedReply, LaidOut};
use crate::rdma::wire::Answer;
use crate::rdma::{Requester, Responder};

/// A way to convey a call, beside others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// In words.
    pub plan: String,
    /// What it takes, with the longest reply that there can be.
    pub effort: Effort,
    /// What that costs.
    pub cost: Duration,
    /// It is the one that is taken.
    pub chosen: bool,
}

impl ClientConversation {
    /// All ways in which such a call could go at present, the base's first.
    pub(crate) fn considered(&mut self, shape: &Shape, need: &ReplyNeed) -> Vec<Considered> {
        let (Some(limits), Some(model)) = (self.requester.limits(), self.costs()) else {
            return Vec::new();
        };
        let base = plan_call(shape, need, &limits).ok();
        let asked = self.requester.what_if(shape, need, base.as_ref(), &limits);
        match &mut self.second {
            Some(second) => Ways::look(&asked, &mut second.extensions, &model).considered(&base),
            None => Ways::base_only(&asked, &model).considered(&base),
        }
    }
}

/// What a candidate takes, with the longest reply that the call can have.
fn effort(
    candidate: &CallCandidate,
    shape: &Shape,
    limits: &Limits,
    may_invalidate: bool,
) -> Effort {
    let cost = candidate.cost;
    let mut effort = Effort::of(
        (u64::from(cost.transmissions), cost.wire_bytes),
        (u64::from(cost.reply_transmissions), cost.reply_wire_bytes),
    );
    (effort.unplaced, effort.placed) = (cost.unplaced, u64::from(cost.placed));
    for &index in &candidate.reads {
        if let Some(item) = shape.items().get(index) {
            effort.bytes += item.len;
            effort.read(item.len, limits);
        }
    }
    for &len in candidate.write_chunks.iter().chain(&candidate.reply_chunk) {
        effort.bytes += len;
        effort.write(len, limits);
    }
    if may_invalidate {
        effort.remotely_invalidated();
    }
    effort
}

/// All ways to convey a call, the base's first; which one is the cheapest of those that can be
/// taken at present.
struct Ways {
    base: Option<(Effort, Duration)>,
    candidates: Vec<(usize, CallCandidate, Effort, Duration)>,
    /// One of the candidates.
    best: Option<usize>,
}

impl Ways {
    fn base_only(asked: &Asked<'_>, model: &CostModel) -> Self {
        let priced = |plan: &CallPlan| {
            let call = &asked.call;
            let effort = plan.effort(call.need, call.limits, asked.may_invalidate);
            (effort, model.price(&effort))
        };
        Self {
            base: asked.base.map(priced),
            candidates: Vec::new(),
            best: None,
        }
    }

    fn look(asked: &Asked<'_>, extensions: &mut Extensions, model: &CostModel) -> Self {
        let call = &asked.call;
        let (shape, limits) = (call.shape, call.limits);
        let mut ways = Self::base_only(asked, model);
        // Those that can be taken: the base's, if there is one, and candidates by their index.
        let mut possible: SmallVec<[Option<usize>; 8]> = ways.base.iter().map(|_| None).collect();
        let mut costs: SmallVec<[(Effort, Duration); 8]> = ways.base.into_iter().collect();
        for (by, conveyor) in extensions.conveyors() {
            for candidate in conveyor.plan_call(call) {
                let effort = effort(&candidate, shape, limits, asked.may_invalidate);
                let cost = model.price(&effort);
                let needs = &candidate.cost;
                if needs.transmissions <= call.credits && needs.receives <= call.reservable {
                    possible.push(Some(ways.candidates.len()));
                    costs.push((effort, cost));
                }
                ways.candidates.push((by, candidate, effort, cost));
            }
        }
        ways.best = CostModel::cheapest(&costs).and_then(|best| possible[best]);
        ways
    }

    fn considered(self, base: &Option<CallPlan>) -> Vec<Considered> {
        let best = self.best;
        let base = self.base.zip(base.as_ref());
        let base = base.map(|((effort, cost), plan)| Considered {
            plan: plan.to_string(),
            effort,
            cost,
            chosen: best.is_none(),
        });
        let candidates = self.candidates.into_iter().enumerate();
        let candidates = candidates.map(|(index, (_, candidate, effort, cost))| Considered {
            plan: candidate.plan.to_string(),
            effort,
            cost,
            chosen: best == Some(index),
        });
        base.into_iter().chain(candidates).collect()
    }

    fn choose(mut self) -> Chosen {
        match self.best {
            None => Chosen::Base,
            Some(best) => {
                let (by, candidate, ..) = self.candidates.swap_remove(best);
                Chosen::Extension(by, candidate)
            }
        }
    }
}

/// Chooses the cheapest way for a reply, and lays it out.
fn lay_out(asked: &AskedReply<'_>, extensions: &mut Extensions, model: &CostModel) -> LaidOut {
    let reply = &asked.reply;
    let Some(conveyor) = extensions.conveyor(asked.by) else {
        return LaidOut::Base;
    };
    let mut costs: SmallVec<[(Effort, Duration); 4]> = SmallVec::new();
    let base = asked.base.map(|plan| {
        let mut effort = Effort::of((1, plan.send_len()), (0, 0));
        effort.unplaced = reply.shape.items().iter().map(|item| item.len).sum();
        costs.push((effort, model.price(&effort)));
    });
    let mut candidates = conveyor.plan_reply(reply);
    for candidate in &candidates {
        let cost = candidate.cost;
        let mut effort = Effort::of((u64::from(cost.transmissions), cost.wire_bytes), (0, 0));
        (effort.unplaced, effort.placed) = (cost.unplaced, u64::from(cost.placed));
        for &(index, _) in &candidate.writes {
            let len = reply.shape.items().get(index).map_or(0, |item| item.len);
            effort.explicit += reply.limits.segments(len);
            effort.bytes += len;
            effort.write_bytes += len;
        }
        costs.push((effort, model.price(&effort)));
    }
    // The base's, if there is one, is the first.
    let before = usize::from(base.is_some());
    let best = CostModel::cheapest(&costs).and_then(|best| best.checked_sub(before));
    let best = best.map(|best| candidates.swap_remove(best));
    let Some(best) = best else {
        return LaidOut::Base;
    };
    tracing::debug!(xid = asked.xid, plan = %best.plan, "reply");
    match conveyor.send_reply(asked.xid, best.plan, asked.message) {
        Ok(transmissions) => LaidOut::InOperations(best.writes, transmissions),
        Err(error) => LaidOut::Not(error),
    }
}

impl Extended {
    /// Answers what the base asks, in the forward direction: calls from server to client and their
    /// replies go as the base has it. Returns whether extensions may have something to say now: not before
    /// what the requester has decided is posted, which was given its room in the send queue.
    pub(super) fn convey(&mut self, parts: &mut Parts<'_>) -> bool {
        let mut any = false;
        match (self.setup.side, &mut parts.requester, &mut parts.responder) {
            (Side::Client, Some(requester), _) => {
                while self.convey_calls(requester) {
                    any = true;
                }
                any && !requester.has_decided()
            }
            (Side::Server, _, Some(responder)) => {
                while self.convey_replies(responder) {
                    any = true;
                }
                any
            }
            _ => false,
        }
    }

    /// Answers one thing that a responder asks, if there is any.
    fn convey_replies(&mut self, responder: &mut Responder) -> bool {
        let Some((shape, base)) = responder.next_asked() else {
            return false;
        };
        let limits = responder.limits();
        let model = self.setup.options.costs;
        let laid_out = match responder.asked_reply(&shape, base.as_ref(), &limits) {
            Some(asked) => lay_out(&asked, &mut self.extensions, &model),
            None => LaidOut::Base,
        };
        responder.laid_out(base, laid_out);
        true
    }

    /// Answers one thing that a requester asks, if there is any.
    fn convey_calls(&mut self, requester: &mut Requester) -> bool {
        if let Some(notice) = requester.next_notice() {
            self.notice(notice);
            return true;
        }
        let Some(limits) = requester.limits() else {
            return false;
        };
        let model = self.setup.options.costs;
        if let Some(asked) = requester.asked(&limits) {
            let chosen = Ways::look(&asked, &mut self.extensions, &model).choose();
            requester.planned(chosen);
            return true;
        }
        let Some(layout) = requester.layout() else {
            return false;
        };
        if let Some(conveyor) = self.extensions.conveyor(layout.by) {
            let (xid, message) = (layout.xid, layout.message);
            let laid_out = conveyor.send_call(xid, layout.plan, message, &layout.chunks);
            requester.laid_out(laid_out);
        }
        true
    }

    fn notice(&mut self, notice: Notice) {
        let (Notice::Ended { by, .. } | Notice::Refused { by, .. }) = notice;
        let Some(conveyor) = self.extensions.conveyor(by) else {
            return;
        };
        match notice {
            Notice::Ended { xid, .. } => conveyor.call_ended(xid),
            Notice::Refused { xid, error, .. } => conveyor.call_refused(xid, error),
        }
    }

    /// An extension brought a message, or word of one.
    pub(super) fn conveyed(&mut self, by: usize, conveyed: Conveyed, parts: &mut Parts<'_>) {
        let (requester, responder) = (&mut parts.requester, &mut parts.responder);
        let (requester, responder) = match self.setup.side {
            Side::Client => (requester.as_mut(), None),
            Side::Server => (None, responder.as_mut()),
        };
        match (conveyed, requester, responder) {
            (Conveyed::Reply(reply), Some(requester), _) => requester.conveyed(by, reply),
            (
                Conveyed::Rejected {
                    xid,
                    direction: Direction::Call,
                    reason,
                },
                Some(requester),
                _,
            ) => requester.rejected(xid, &reason),
            (Conveyed::Call(call), _, Some(responder)) => responder.conveyed(by, call),
            (
                Conveyed::Rejected {
                    xid,
                    direction: Direction::Reply,
                    reason,
                },
                _,
                Some(responder),
            ) => responder.rejected(xid, &reason),
            // As no call of the server's goes in operations, none is taken in them; but whoever made
            // one has to learn that it has ended.
            (Conveyed::Call(IncomingCall { xid, .. }), ..) => {
                rdma::limited!(
                    warn,
                    xid,
                    "a call in operations to a client, which takes none"
                );
                let credits = parts.credits(Direction::Reply);
                let answer = Answer::chunk(Version::Two, xid);
                self.errors.push_back(answer.encode(credits));
            }
            // Not the message itself: it can be as long as the peer likes.
            (Conveyed::Reply(IncomingReply { xid, .. }) | Conveyed::Rejected { xid, .. }, ..) => {
                rdma::limited!(warn, xid, "a message in operations that is for nobody here");
            }
        }
    }
}
