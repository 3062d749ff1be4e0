//! A policy for granting credits that servers of some seeds have.

use rpc_transport::rdma::{Demand, GrantEvent, GrantPolicy, MakeGrantPolicy};
use rpcrdma_chunks::Side;

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
