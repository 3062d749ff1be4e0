//! Counts messages that only grant credits, and the interrupts that they cause (version-two-07,
//! section 6.3.2).

use std::collections::BTreeMap;

use rdma::{Event, SendWr, Success, Time};
use rdma_sim::{FabricEvent, NodeId, Observer};

use crate::message;
use crate::sends::is_grant;

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
#[derive(Debug, Default)]
pub(super) struct GrantCounter {
    messages: u32,
    interrupts: u32,
    woken: BTreeMap<NodeId, Woken>,
}

impl GrantCounter {
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
        } = std::mem::take(self);
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
                self.messages += u32::from(message.is_some_and(|message| is_grant(&message)));
            }
            FabricEvent::Interrupt(node) => {
                let before = self.woken.insert(*node, Woken::default());
                self.interrupts += before.unwrap_or_default().by_grants();
            }
            FabricEvent::Taken(end, Event::Completion(completion)) => {
                let Some(woken) = self.woken.get_mut(&end.node) else {
                    return;
                };
                match &completion.result {
                    // Completions of a Send or RDMA Write wake nobody alone.
                    Ok(Success::Send | Success::Write) => {}
                    Ok(Success::Receive { buf, .. }) if is_grant(&message::taken(buf)) => {
                        woken.grants = true;
                    }
                    _ => woken.others = true,
                }
            }
            _ => {}
        }
    }
}
