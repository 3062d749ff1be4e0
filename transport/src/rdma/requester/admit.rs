//! Planning calls, and taking their memory.

use conveyance::{CallPlan, Limits, Shape, plan_call};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::extension::CallCandidate;

use super::call::{Outstanding, Waiting};
use super::prepared::{Prepared, prepare, prepare_candidate};
use super::{RegId, Requester, RequesterAction, ReservationId};
use crate::CallError;

impl Requester {
    /// Plans a call and takes its memory, or has extensions asked first.
    pub(super) fn admit(&mut self, call: Waiting, limits: &Limits) {
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
        if self.version == Version::Two {
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

    fn start(&mut self, xid: u32, prepared: Prepared) {
        let (call, regions) = Outstanding::new(xid, prepared);
        self.preparing += call.transmissions();
        let receives = call.replies() - 1;
        let by_extension = call.by_extension.is_some();
        let key = self.calls.insert(call);
        self.by_xid.insert(xid, key);
        if regions.is_empty() && receives == 0 {
            if by_extension {
                return self.ready.push_back(key);
            }
            // Its credit was looked for before it was taken, and nothing is ready before it.
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
