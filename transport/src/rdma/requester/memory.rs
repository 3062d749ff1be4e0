//! The memory of calls: registered before they are sent, fenced off before their outcome is told.

use rdma::{Region, RemoteSegment, Stag};

use super::call::{Ended, Phase};
use super::registration::Registration;
use super::{RegId, Requester, RequesterAction, ReservationId};
use crate::CallError;

impl Requester {
    /// Answers [`RequesterAction::Register`].
    pub fn registered(&mut self, id: RegId, result: Result<RemoteSegment, String>) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        let Phase::Registering(prepared) = &mut call.phase else {
            return;
        };
        match result {
            Ok(segment) => call.registrations[id.index].valid(segment),
            Err(reason) => {
                call.registrations[id.index].gone(None);
                prepared.failed = Some(reason);
            }
        }
        self.prepared_part(id.call);
    }

    /// Answers [`RequesterAction::Reserve`]: whether there are so many further receives now.
    pub fn reserved(&mut self, id: ReservationId, done: bool) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        let Phase::Registering(prepared) = &mut call.phase else {
            return;
        };
        if !done && let Some(how) = &mut call.by_extension {
            prepared.unreserved = true;
            let receives = std::mem::take(&mut how.receives);
            self.released_receives(receives);
        }
        self.prepared_part(id.call);
    }

    /// One of the things that a call needs before it can be sent is settled.
    fn prepared_part(&mut self, key: usize) {
        let call = &mut self.calls[key];
        let Phase::Registering(prepared) = &mut call.phase else {
            return;
        };
        prepared.left -= 1;
        if prepared.left > 0 {
            return;
        }
        let inline_send = self.limits.map_or(u64::MAX, |limits| limits.inline_send);
        let outgrown = prepared.outgrown(inline_send);
        match (prepared.failed.take(), outgrown) {
            _ if call.cancelled => self.end(key, Ended::Dropped),
            _ if prepared.unreserved => self.otherwise(key),
            (Some(reason), _) => self.end(key, Ended::Failed(CallError::TooLarge(reason))),
            (None, Some(source)) => self.end(key, Ended::Again(source)),
            (None, None) => {
                call.ready();
                self.ready.push_back(key);
            }
        }
    }

    /// Answers [`RequesterAction::Invalidate`] and [`RequesterAction::Reclaim`]: the peer can no
    /// longer reach the memory.
    pub fn reclaimed(&mut self, id: RegId, region: Region) {
        let Some(call) = self.calls.get_mut(id.call) else {
            return;
        };
        // Nobody wants what a cancelled call brought: the memory goes back to the pool here.
        let region = (!call.cancelled).then_some(region);
        call.registrations[id.index].gone(region);
        self.settle(id.call);
    }

    /// The responder invalidated a handle. It should be one of the call it replies to (RFC 8797,
    /// section 4.1); whichever it is, it is invalid now.
    pub(super) fn invalidated(&mut self, replied: Option<usize>, stag: Option<Stag>) {
        let Some(stag) = stag else {
            return;
        };
        let in_reply = replied.and_then(|key| Some((key, self.calls[key].find(stag)?)));
        let anywhere = || {
            let mut calls = self.calls.iter();
            calls.find_map(|(key, call)| Some((key, call.find(stag)?)))
        };
        if let Some((call, index)) = in_reply.or_else(anywhere) {
            self.calls[call].registrations[index].leaving();
            let id = RegId { call, index };
            self.actions
                .push_back(RequesterAction::Reclaim { id, stag });
        }
    }

    /// The call's outcome is known: fence off its memory, then tell.
    pub(super) fn end(&mut self, key: usize, ended: Ended) {
        self.awaited.answered(key);
        let call = &self.calls[key];
        if matches!(call.phase, Phase::Registering(_) | Phase::Ready(_)) {
            self.preparing -= call.transmissions();
        }
        if self.calls[key].registrations.is_empty() {
            return self.tell(key, ended);
        }
        self.calls[key].phase = Phase::Ended(ended);
        self.invalidate_all(key);
        self.settle(key);
    }

    pub(super) fn invalidate_all(&mut self, key: usize) {
        let registrations = &mut self.calls[key].registrations;
        for (index, registration) in registrations.iter_mut().enumerate() {
            if let Some(stag) = registration.stag() {
                registration.leaving();
                let id = RegId { call: key, index };
                self.actions
                    .push_back(RequesterAction::Invalidate { id, stag });
            }
        }
    }

    /// Tells a call's outcome if it has one and all its memory is back.
    fn settle(&mut self, key: usize) {
        let call = &mut self.calls[key];
        let Phase::Ended(ended) = &mut call.phase else {
            return;
        };
        if call.registrations.iter().all(Registration::is_gone) {
            let ended = std::mem::replace(ended, Ended::Dropped);
            self.tell(key, ended);
        }
    }
}
