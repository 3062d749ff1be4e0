//! Planning calls, and taking their memory.

use conveyance::{CallPlan, Limits, Shape, goes_plain, plan_call};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Direction;
use rpcrdma_v2::extension::CallCandidate;

use super::super::wire::Plain;
use super::call::{Outstanding, Waiting};
use super::prepared::{Prepared, prepare, prepare_candidate};
use super::{RegId, Requester, RequesterAction, ReservationId};
use crate::CallError;

impl Requester {
    /// Plans a call and takes its memory, or has extensions asked first. What goes as a plain Send goes
    /// at once, unless something is ready before it or the send queue is full: there must be a credit
    /// for it.
    pub(super) fn admit(&mut self, call: Waiting, limits: &Limits) {
        if self.sends_at_once()
            && call.message.items().is_empty()
            && goes_plain(call.message.payload_len(), &call.need, limits)
        {
            return self.send_plain(call, limits);
        }
        self.plan(call, limits);
    }

    #[inline(never)]
    fn plan(&mut self, call: Waiting, limits: &Limits) {
        let shape = match Shape::of(&call.message) {
            Ok(shape) => shape,
            Err(error) => return self.fail(call.xid, error.to_string()),
        };
        let plan = plan_call(&shape, &call.need, limits);
        if self.conveying.is_some()
            && !call.barred
            && plan
                .as_ref()
                .map_or(true, |plan| !plan.is_plain(&call.need))
        {
            return self.ask(call, shape, plan.ok());
        }
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return self.fail(call.xid, error.to_string()),
        };
        self.admit_planned(call, &plan, limits);
    }

    fn send_plain(&mut self, call: Waiting, limits: &Limits) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            tell_plan(&call, limits);
        }
        let xid = call.xid;
        let plain = Plain {
            xid,
            credits: self.credits.requested(),
        };
        let key = self.calls.insert(Outstanding::plain(xid, call.barred));
        self.by_xid.insert(xid, key);
        self.go(key);
        let mut gather = call.message.into_payload();
        gather.insert(
            0,
            plain.encode(self.version, Direction::Call, &mut self.headers),
        );
        self.actions.push_back(RequesterAction::Send { gather });
    }

    /// Takes the memory of a call that goes as the base has it.
    pub(super) fn admit_planned(&mut self, call: Waiting, plan: &CallPlan, limits: &Limits) {
        if !self.chunks && plan.has_chunks() {
            let reason = format!("the responder takes no chunks, and it has some: {plan}");
            return self.fail(call.xid, reason);
        }
        let (max, pool) = (limits.max_segment, &self.config.pool);
        let copied = &mut self.counters.copied_bytes;
        let mut prepared = match prepare(&call.message, plan, max, pool, copied) {
            Ok(prepared) => prepared,
            Err(error) if error.wanted > error.limit => {
                return self.fail(call.xid, error.to_string());
            }
            Err(error) => {
                tracing::debug!(xid = call.xid, %error, "call waits for memory");
                self.starved = Some(error);
                return self.waiting.push_front(call);
            }
        };
        let xid = call.xid;
        prepared.barred = call.barred;
        tracing::debug!(xid, %plan, "call");
        let at_once = prepared.regions.is_empty() && self.sends_at_once();
        if self.version == Version::Two && !at_once {
            prepared.keep(call);
        }
        self.start(xid, prepared);
    }

    /// The same of a call that goes in operations of an extension.
    pub(super) fn admit_candidate(&mut self, call: Waiting, by: usize, candidate: CallCandidate) {
        let Some(limits) = self.limits else {
            return self.waiting.push_front(call);
        };
        let xid = call.xid;
        tracing::debug!(xid, plan = %candidate.plan, "call");
        let (max, pool) = (limits.max_segment, &self.config.pool);
        match prepare_candidate(call, by, candidate, max, pool) {
            Ok(prepared) => self.start(xid, prepared),
            Err((error, call)) => {
                tracing::debug!(xid, %error, "no memory for that");
                self.waiting.push_front((*call).barred());
            }
        }
    }

    fn fail(&mut self, xid: u32, reason: String) {
        let error = CallError::TooLarge(reason);
        self.actions.push_back(RequesterAction::Fail { xid, error });
    }

    /// Whether a call that is ready is sent at once: nothing is before it, and there is room.
    fn sends_at_once(&self) -> bool {
        self.ready.is_empty() && self.has_room()
    }

    fn start(&mut self, xid: u32, prepared: Prepared) {
        let (call, regions) = Outstanding::new(xid, prepared);
        self.preparing += call.transmissions();
        let receives = call.replies() - 1;
        let by_extension = call.by_extension.is_some();
        let key = self.calls.insert(call);
        self.by_xid.insert(xid, key);
        if regions.is_empty() && receives == 0 {
            // Its credit was looked for before it was taken.
            if by_extension || !self.sends_at_once() {
                return self.ready.push_back(key);
            }
            return self.send(key);
        }
        if receives > 0 {
            self.reserved_receives(receives);
            let id = ReservationId { call: key };
            self.actions
                .push_back(RequesterAction::Reserve { id, receives });
        }
        for (index, (_, region)) in regions.into_iter().enumerate() {
            let id = RegId { call: key, index };
            self.actions
                .push_back(RequesterAction::Register { id, region });
        }
    }
}

/// Logs the plan of a call that was sent without one.
#[cold]
fn tell_plan(call: &Waiting, limits: &Limits) {
    if let Ok(shape) = Shape::of(&call.message)
        && let Ok(plan) = plan_call(&shape, &call.need, limits)
    {
        tracing::debug!(xid = call.xid, %plan, "call");
    }
}
