//! A report of what was done with each kind of call.

use std::collections::HashMap;
use std::fmt;

use onc_rpc::Message;
use rpc_transport::ReplyRoom;

use crate::reduction::{CallKind, Direction, WholeReason};

/// The maximum number of kinds of which a report is kept. A client could make up any number.
const MOST: usize = 256;

/// The treatment of the calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// The number of calls.
    pub calls: u64,
    /// Why nothing is reduced, or `None` if the binding was applied.
    pub whole: Option<WholeReason>,
    /// The lengths of the items of the first call of which the plan is known, that were apart when it was passed on.
    pub items: Vec<usize>,
    /// Length in bytes of the first call, without the items.
    pub payload: u64,
    /// The room for the reply to the first call.
    pub room: ReplyRoom,
    /// The way in which the first call was transferred, in words, as soon as that is known.
    pub plan: Option<String>,
    /// Length in bytes of the longest reply, without its items.
    pub longest_reply: u64,
    /// The total length of the items of that reply with the longest ones.
    pub longest_items: u64,
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { items, room, .. } = self;
        match (self.whole, items.len()) {
            (Some(reason), _) => write!(f, "whole ({reason}), {} bytes", self.payload)?,
            (None, 0) => write!(f, "call {} bytes, nothing apart", self.payload)?,
            (None, _) => write!(f, "call {} bytes, apart {items:?}", self.payload)?,
        }
        match &self.plan {
            Some(plan) => write!(f, "; {plan}")?,
            None => write!(f, "; sent before the version was known")?,
        }
        write!(f, "; results at most {} bytes", room.payload)?;
        if !room.items.is_empty() {
            write!(f, ", apart at most {:?}", &room.items[..])?;
        }
        Ok(())
    }
}

/// A function that is told of a kind.
pub type OnKind = Box<dyn FnMut(Direction, &CallKind, &Treatment)>;

/// The kinds of calls that were seen, and what was done with each.
pub struct Kinds {
    told: OnKind,
    seen: HashMap<(Direction, CallKind), Treatment>,
    /// Calls of further kinds.
    others: u64,
}

impl Kinds {
    pub(crate) fn new(told: OnKind) -> Self {
        Self {
            told,
            seen: HashMap::new(),
            others: 0,
        }
    }

    /// Counts a call that is about to be passed on. `plan` returns how it is transferred, if that is known.
    pub(crate) fn called(
        &mut self,
        direction: Direction,
        kind: &CallKind,
        (call, room): (&Message, &ReplyRoom),
        plan: impl FnOnce() -> Option<String>,
    ) {
        let key = (direction, kind.clone());
        if self.seen.len() >= MOST && !self.seen.contains_key(&key) {
            self.others += 1;
            return;
        }
        let treatment = self.seen.entry(key).or_default();
        treatment.calls += 1;
        if treatment.plan.is_some() {
            return;
        }
        treatment.items = call.items().iter().map(|item| item.data.len()).collect();
        treatment.payload = call.payload_len();
        treatment.whole = kind.whole;
        treatment.room = room.clone();
        treatment.plan = plan();
        if treatment.plan.is_some() {
            (self.told)(direction, kind, treatment);
        }
    }

    /// Records the reply to a call.
    pub(crate) fn replied(&mut self, direction: Direction, kind: &CallKind, reply: &Message) {
        if let Some(treatment) = self.seen.get_mut(&(direction, kind.clone())) {
            let items = reply.items().iter().map(|item| item.data.len() as u64);
            treatment.longest_reply = treatment.longest_reply.max(reply.payload_len());
            treatment.longest_items = treatment.longest_items.max(items.sum());
        }
    }

    /// Returns the kinds with their treatment, those with most calls first.
    #[must_use]
    pub fn by_calls(&self) -> Vec<(Direction, &CallKind, &Treatment)> {
        let seen = self.seen.iter();
        let mut all: Vec<_> = seen.map(|((to, kind), what)| (*to, kind, what)).collect();
        all.sort_by_key(|(_, kind, what)| (std::cmp::Reverse(what.calls), kind.to_string()));
        all
    }

    /// Returns the number of calls of which no report is kept, because there were too many kinds.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.seen).finish()
    }
}
