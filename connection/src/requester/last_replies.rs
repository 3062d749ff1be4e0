//! Replies that had arrived when the connection ended, and whose calls still had registered memory.
//!
//! While a connection lives, a call is finished only after each of its handles was invalidated. The end of the
//! connection invalidates all of them at once: a queue pair that has ended lets its peer reach nothing. So
//! no work request is needed then. The memory is taken back, and the reply is reported. A device that
//! cannot take it back leaves the call to end with the connection.

use std::collections::VecDeque;

use rdma::trace::{Event, Tracer};
use rdma::{Region, Stag};
use slab::Slab;

use super::Requester;
use super::outstanding::{Outcome, Outstanding, Stage};
use super::registration::Registration;
use crate::Action;
use crate::action::RegistrationId;
use crate::dialect::Dialect;

/// The calls of a connection that has ended whose outcomes are known, until their memory is taken back.
#[derive(Debug)]
pub(crate) struct LastReplies {
    calls: Slab<Outstanding>,
    /// Handles whose memory has not been asked for yet.
    handles: VecDeque<(RegistrationId, Stag)>,
    dialect: &'static dyn Dialect,
    tracer: Option<Tracer>,
    /// Bytes of the reported replies that the peer wrote to chunks.
    written: u64,
}

impl Requester {
    /// Returns the calls whose outcomes are known, or `None` if there are none, when the connection has ended.
    pub(crate) fn last_replies(
        &mut self,
        dialect: &'static dyn Dialect,
        tracer: Option<Tracer>,
    ) -> Option<LastReplies> {
        let mut calls = std::mem::take(&mut self.calls);
        // Nobody waits for a cancelled call, and one that was to be sent again had no reply.
        calls.retain(|_, call| match &call.stage {
            Stage::Ended(Outcome::Dropped | Outcome::Again(_)) => false,
            Stage::Ended(_) => true,
            Stage::Registering(_) | Stage::Ready(_) | Stage::Sent(_) => false,
        });
        if calls.is_empty() {
            return None;
        }
        let handles = calls.iter().flat_map(|(call, outstanding)| {
            let registrations = outstanding.registrations.iter().enumerate();
            registrations.filter_map(move |(index, registration)| {
                let id = RegistrationId { call, index };
                (!registration.is_ended()).then_some((id, registration.stag()))
            })
        });
        Some(LastReplies {
            handles: handles.collect(),
            calls,
            dialect,
            tracer,
            written: 0,
        })
    }
}

impl LastReplies {
    /// Returns the next action: to take back memory that the end of the connection has put out of the peer's
    /// reach.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        while let Some((id, stag)) = self.handles.pop_front() {
            if !self.is_ended(id) {
                return Some(Action::Reclaim { id, stag });
            }
        }
        None
    }

    fn is_ended(&self, id: RegistrationId) -> bool {
        let call = self.calls.get(id.call);
        call.is_none_or(|call| call.registrations[id.index].is_ended())
    }

    /// Records that memory was taken back. Returns the end of its call if that was the last of it.
    pub(crate) fn memory_reclaimed(
        &mut self,
        id: RegistrationId,
        region: Region,
    ) -> Option<Action> {
        let call = self.calls.get_mut(id.call)?;
        call.registrations[id.index].set_ended(Some(region));
        if !call.registrations.iter().all(Registration::is_ended) {
            return None;
        }
        let mut call = self.calls.remove(id.call);
        let xid = call.xid;
        let Stage::Ended(outcome) =
            std::mem::replace(&mut call.stage, Stage::Ended(Outcome::Dropped))
        else {
            return None;
        };
        if let Some(tracer) = &self.tracer {
            tracer.record(xid, Event::Invalidated);
        }
        self.written += outcome.written();
        let result = call.take_result(self.dialect, outcome)?;
        Some(Action::Finished { xid, result })
    }

    /// Drops the call with this XID.
    pub(crate) fn cancel(&mut self, xid: u32) {
        self.calls.retain(|_, call| call.xid != xid);
    }

    /// Returns the number of calls that are not reported yet.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of bytes of the reported replies that the peer wrote to chunks.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }
}
