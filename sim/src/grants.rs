//! Policies for granting credits that servers of some seeds have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpc_transport::rdma::{AskAgain, Demand, GrantEvent, GrantPolicy, MakeGrantPolicy};
use rpcrdma_chunks::Side;

/// The credits that the clients of a server with [`Shared`] share.
const SHARED: u32 = 12;

/// Grants fewer credits the more calls are in progress, and tells the peer of new ones late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByQueueDepth;

impl GrantPolicy for ByQueueDepth {
    fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
        demand.most.saturating_sub(demand.calls.saturating_mul(2))
    }

    fn refreshes(&self, left: u32, _: u32) -> bool {
        left <= 1
    }
}

impl MakeGrantPolicy for ByQueueDepth {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        Box::new(*self)
    }
}

/// Grants each connection with calls in progress the same part of some credits, and those that have less
/// more when another one has no calls left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    busy: Arc<Mutex<Busy>>,
}

/// The connections with calls in progress.
#[derive(Debug, Default)]
struct Busy {
    made: u64,
    /// The answer of each, and the handle to ask it again.
    connections: BTreeMap<u64, (u32, Option<AskAgain>)>,
}

/// The policy of one connection.
#[derive(Debug)]
struct Part {
    all: Shared,
    number: u64,
    again: Option<AskAgain>,
}

impl Shared {
    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrantPolicy for Part {
    fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
        let Busy { connections, .. } = &mut *self.all.busy();
        if demand.calls == 0 && connections.remove(&self.number).is_some() {
            ask_again(connections);
        }
        let others = connections.len() - usize::from(connections.contains_key(&self.number));
        let credits = part(others + 1);
        if demand.calls > 0 {
            connections.insert(self.number, (credits, self.again.clone()));
        }
        credits
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        self.again = Some(again);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Busy { connections, .. } = &mut *self.all.busy();
        if connections.remove(&self.number).is_some() {
            ask_again(connections);
        }
    }
}

impl MakeGrantPolicy for Shared {
    fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
        let mut busy = self.busy();
        busy.made += 1;
        Box::new(Part {
            all: self.clone(),
            number: busy.made,
            again: None,
        })
    }

    fn for_another_end(&self) -> Option<Arc<dyn MakeGrantPolicy>> {
        Some(Arc::new(Self::default()))
    }
}

/// Returns the credits of each of so many connections.
fn part(connections: usize) -> u32 {
    SHARED / u32::try_from(connections).unwrap_or(u32::MAX).max(1)
}

/// Has those asked again that could have more now.
fn ask_again(connections: &BTreeMap<u64, (u32, Option<AskAgain>)>) {
    let part = part(connections.len());
    let fewer = connections.values().filter(|(credits, _)| *credits < part);
    fewer
        .filter_map(|(_, again)| again.as_ref())
        .for_each(AskAgain::ask);
}
