//! The client's end: answers callbacks, and records them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use onc_rpc::{AcceptStatus, Encoder, Message};
use rpc_transport::{ErrorReply, ProgramVersions, Request, Service, ServiceOutcome, ServiceReply};

use super::wire::{Ask, BACK, MAX_LEN, Pattern, THERE};
use super::{BACKWARD, ECHO, NULL};

/// The callbacks that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of arrivals of each callback, by its ticket and number.
    pub times: BTreeMap<(u32, u32), u32>,
    /// The number of callbacks with wrong data.
    pub wrong: u32,
}

impl Seen {
    /// Returns the number of distinct callbacks.
    #[must_use]
    pub fn count(&self) -> usize {
        self.times.len()
    }

    /// Returns the number of callbacks that arrived more than once.
    #[must_use]
    pub fn repeated(&self) -> usize {
        self.times.values().filter(|times| **times > 1).count()
    }
}

/// The backward program. Clones share their record.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    seen: Rc<RefCell<Seen>>,
}

impl Answers {
    /// Creates a service with an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the record.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    fn echo(&self, request: &Request) -> ServiceReply {
        let garbage = ErrorReply::Accepted(AcceptStatus::GarbageArgs);
        let ask = Ask::decode(&mut request.args()).map_err(|_| garbage)?;
        if ask.reply_len > MAX_LEN {
            return Err(garbage);
        }
        let (ticket, number) = (ask.ticket, ask.number);
        let mut seen = self.seen.borrow_mut();
        *seen.times.entry((ticket, number)).or_default() += 1;
        let right = Pattern::new(ticket, number, THERE).begins_with(&ask.data);
        seen.wrong += u32::from(!right);
        let memory = request.pool.alloc(ask.reply_len as usize);
        let mut data = memory.map_err(|_| ErrorReply::Accepted(AcceptStatus::SystemErr))?;
        Pattern::new(ticket, number, BACK).fill(&mut data);
        let mut results = Encoder::new();
        results.u32(number).bulk(data.freeze());
        Ok(results.finish())
    }
}

impl Service for Answers {
    fn programs(&self) -> &[ProgramVersions] {
        &[BACKWARD]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        ServiceOutcome::Done(match request.proc {
            NULL => Ok(Message::default()),
            ECHO => self.echo(&request),
            _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        })
    }

    fn remember_reply(&self, _: u32, _: u32, _: u32) -> bool {
        false
    }
}
