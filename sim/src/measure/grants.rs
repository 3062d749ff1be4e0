//! Counts messages that only grant credits, in versions that count messages, and the interrupts that they
//! cause (version-two-07, section 6.3.2).

use std::collections::BTreeMap;

use bytes::Bytes;
use rdma::{Event, SendWr, Success, Time};
use rdma_sim::{FabricEvent, NodeId, Observer};
use rpc_transport::rdma::CreditFields;

use crate::message;

/// The messages of both ends that only grant credits, for each call. They are averages over many
/// calls, because a grant is due only once in many messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grants {
    /// The number of these messages.
    pub messages: f64,
    /// The number of interrupts at which nothing but such messages had arrived.
    pub interrupts: f64,
}

/// The kinds of messages that a host has taken since it was woken.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    grants: bool,
    others: bool,
}

/// Counts grants from the bytes of messages.
#[derive(Debug)]
pub(super) struct GrantCounter {
    /// Where a message says that it only grants credits.
    fields: &'static dyn CreditFields,
    messages: u32,
    interrupts: u32,
    woken: BTreeMap<NodeId, Woken>,
}

impl GrantCounter {
    pub(super) fn new(fields: &'static dyn CreditFields) -> Self {
        Self {
            fields,
            messages: 0,
            interrupts: 0,
            woken: BTreeMap::new(),
        }
    }

    fn is_grant(&self, message: Bytes) -> bool {
        let credit = self.fields.credit(&[message].into_iter().collect());
        credit.is_some_and(|credit| credit.only_grants)
    }

    /// Returns the averages over so many calls, and starts to count anew.
    pub(super) fn take(&mut self, calls: u64) -> Grants {
        for woken in std::mem::take(&mut self.woken).into_values() {
            self.interrupts += woken.by_grants();
        }
        let each = |count: u32| f64::from(count) / calls.max(1) as f64;
        let Self {
            messages,
            interrupts,
            ..
        } = std::mem::replace(self, Self::new(self.fields));
        Grants {
            messages: each(messages),
            interrupts: each(interrupts),
        }
    }
}

impl Woken {
    fn by_grants(self) -> u32 {
        u32::from(self.grants && !self.others)
    }
}

impl Observer for GrantCounter {
    fn event(&mut self, _: Time, what: &FabricEvent<'_>) {
        match what {
            FabricEvent::Posted(_, SendWr::Send { gather, .. }) => {
                let message = message::sent(gather);
                self.messages += u32::from(message.is_some_and(|message| self.is_grant(message)));
            }
            FabricEvent::Interrupt(node) => {
                let before = self.woken.insert(*node, Woken::default());
                self.interrupts += before.unwrap_or_default().by_grants();
            }
            FabricEvent::Taken(end, Event::Completion(completion)) => {
                let is_grant = match &completion.result {
                    // Completions of a Send or RDMA Write wake nobody alone.
                    Ok(Success::Send | Success::Write) => return,
                    Ok(Success::Receive { buf, .. }) => self.is_grant(message::taken(buf)),
                    _ => false,
                };
                match self.woken.get_mut(&end.node) {
                    Some(woken) if is_grant => woken.grants = true,
                    Some(woken) => woken.others = true,
                    None => {}
                }
            }
            _ => {}
        }
    }
}
