//! The memory of calls. It is registered before they are sent, and invalidated before they are
//! finished.

use rdma::trace::Event;
use rdma::{Region, RemoteSegment, Stag};

use super::Requester;
use super::outstanding::{Outcome, Stage};
use super::registration::Registration;
use crate::action::RegistrationId;
use crate::shared::Shared;
use crate::{Action, CallError};

impl Requester {
    /// Records the answer to [`Action::Register`].
    pub(crate) fn registration_answered(
        &mut self,
        shared: &mut Shared,
        id: RegistrationId,
        result: Result<RemoteSegment, String>,
    ) {
        // A call stays until all of its registrations are answered, so only a driver that answers
        // one twice gets here without a call.
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        let Stage::Registering(unsent) = &mut call.stage else {
            return;
        };
        match result {
            Ok(segment) => call.registrations[id.index].set_valid(segment),
            Err(reason) => {
                // The call ends only when the other registrations are answered, too: each may have
                // made memory reachable for the peer.
                call.registrations[id.index].set_ended(None);
                unsent.failed = Some(reason);
            }
        }
        self.preparation_answered(shared, id.call);
    }

    /// Records the answer to the request for further receives for a call's reply.
    pub(crate) fn reply_receives_posted(&mut self, shared: &mut Shared, key: usize, posted: bool) {
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Stage::Registering(unsent) = &mut call.stage else {
            return;
        };
        if !posted && let Some(carrier) = &mut call.carrier {
            unsent.no_receives = true;
            let receives = std::mem::take(&mut carrier.receives);
            self.release_receives(receives);
        }
        self.preparation_answered(shared, key);
    }

    /// Counts fewer receives that are posted beyond the credits, because a call does not need them
    /// any longer or they were never posted.
    pub(super) fn release_receives(&mut self, receives: u32) {
        self.further_receives = self.further_receives.saturating_sub(receives);
    }

    /// Records the answer to one of the requests (registrations, further receives) that a call
    /// waits for before it can be sent. After the last one, the call is ready, or ends.
    fn preparation_answered(&mut self, shared: &mut Shared, key: usize) {
        let call = &mut self.calls[key];
        let Stage::Registering(unsent) = &mut call.stage else {
            return;
        };
        unsent.unanswered -= 1;
        if unsent.unanswered > 0 {
            return;
        }
        let (failed, no_receives) = (unsent.failed.take(), unsent.no_receives);
        let outgrown = call.original_if_outgrown(&shared.limits);
        // The order matters. Nobody waits for a cancelled call. Without receives for its reply, the
        // call gets another plan, so it is of no interest whether a registration of this one
        // failed. Limits that were lowered meanwhile concern only a call that could be sent.
        match (failed, outgrown) {
            _ if call.cancelled => self.end_call(shared, key, Outcome::Dropped),
            _ if no_receives => self.plan_without_extensions(shared, key),
            (Some(reason), _) => {
                self.end_call(shared, key, Outcome::Failed(CallError::TooLarge(reason)))
            }
            (None, Some(source)) => self.end_call(shared, key, Outcome::Again(source)),
            (None, None) => {
                call.set_ready();
                shared.trace(call.xid, Event::Registered);
                self.ready.push_back(key);
            }
        }
    }

    /// Records the answer to [`Action::Invalidate`] or [`Action::Reclaim`]: the peer can no longer
    /// reach the memory.
    pub(crate) fn memory_reclaimed(
        &mut self,
        shared: &mut Shared,
        id: RegistrationId,
        region: Region,
    ) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        // Nobody wants the results of a cancelled call: their memory goes back to the pool here.
        let region = (!call.cancelled).then_some(region);
        call.registrations[id.index].set_ended(region);
        self.finish_if_reclaimed(shared, id.call);
    }

    /// Records that the responder invalidated a handle with a message, which replies to the call
    /// `replied` if it is a reply. The handle should be one of that call (RFC 8797, section 4.1);
    /// whichever it is, it is invalid now.
    pub(crate) fn handle_invalidated(
        &mut self,
        shared: &mut Shared,
        replied: Option<usize>,
        stag: Option<Stag>,
    ) {
        let Some(stag) = stag else {
            return;
        };
        let in_reply = replied.and_then(|key| Some((key, self.calls[key].registration_of(stag)?)));
        let anywhere = || {
            let mut calls = self.calls.iter();
            calls.find_map(|(key, call)| Some((key, call.registration_of(stag)?)))
        };
        // It is nearly always in the call that was replied to; the other calls are searched for the
        // sake of responders that choose another one.
        if let Some((call, index)) = in_reply.or_else(anywhere) {
            self.calls[call].registrations[index].set_invalidating();
            let id = RegistrationId { call, index };
            shared.actions.push_back(Action::Reclaim { id, stag });
        }
    }

    /// Ends a call: its memory is invalidated, and then the outcome is reported.
    pub(super) fn end_call(&mut self, shared: &mut Shared, key: usize, outcome: Outcome) {
        self.watch.call_answered(key);
        let call = &self.calls[key];
        // A call that was not sent gives back what it reserved. The credits of a sent one come back
        // with its answer, in `end_answered`.
        if matches!(call.stage, Stage::Registering(_) | Stage::Ready(_)) {
            shared.flow.release_reserved(call.sends());
        }
        // With registrations, the outcome has to wait: while a handle is valid, the responder can
        // still write to what the upper layer would read.
        if self.calls[key].registrations.is_empty() {
            return self.finish_call(shared, key, outcome);
        }
        self.calls[key].stage = Stage::Ended(outcome);
        shared.trace(self.calls[key].xid, Event::Invalidating);
        self.invalidate_all(shared, key);
        self.finish_if_reclaimed(shared, key);
    }

    /// Invalidates every handle of a call that the peer can still reach.
    pub(super) fn invalidate_all(&mut self, shared: &mut Shared, key: usize) {
        let registrations = &mut self.calls[key].registrations;
        for (index, registration) in registrations.iter_mut().enumerate() {
            if let Some(stag) = registration.valid_stag() {
                registration.set_invalidating();
                let id = RegistrationId { call: key, index };
                shared.actions.push_back(Action::Invalidate { id, stag });
            }
        }
    }

    /// Finishes a call if its outcome is known and all its memory has been reclaimed.
    fn finish_if_reclaimed(&mut self, shared: &mut Shared, key: usize) {
        let call = &mut self.calls[key];
        let Stage::Ended(outcome) = &mut call.stage else {
            return;
        };
        if call.registrations.iter().all(Registration::is_ended) {
            let outcome = std::mem::replace(outcome, Outcome::Dropped);
            shared.trace(call.xid, Event::Invalidated);
            self.finish_call(shared, key, outcome);
        }
    }
}
