//! A record of the credits that policies granted in a simulation.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rpc_transport::rdma::{
    AskAgain, Demand, GrantEvent, GrantPolicy, MakeGrantPolicy, for_another_end,
};
use rpcrdma_protocols::Side;

/// The credits that servers of all seeds granted.
#[derive(Debug)]
pub(crate) struct Granted {
    least: AtomicU32,
    most: AtomicU32,
    raised: AtomicU64,
    lowered: AtomicU64,
}

impl Default for Granted {
    fn default() -> Self {
        Self {
            least: AtomicU32::new(u32::MAX),
            most: AtomicU32::new(0),
            raised: AtomicU64::new(0),
            lowered: AtomicU64::new(0),
        }
    }
}

impl Granted {
    fn record(&self, before: Option<u32>, credits: u32) {
        self.least.fetch_min(credits, Relaxed);
        self.most.fetch_max(credits, Relaxed);
        match before {
            Some(before) if before < credits => self.raised.fetch_add(1, Relaxed),
            Some(before) if before > credits => self.lowered.fetch_add(1, Relaxed),
            _ => 0,
        };
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.most.load(Relaxed);
        if most == 0 {
            return f.write_str("servers granted nothing, because no connection was opened");
        }
        write!(
            f,
            "servers granted {} to {most} credits, raised {} times and lowered {} times",
            self.least.load(Relaxed),
            self.raised.load(Relaxed),
            self.lowered.load(Relaxed)
        )
    }
}

/// Makes the policies of another maker, and records what those of servers choose.
pub(crate) struct Recorded {
    pub(crate) maker: Arc<dyn MakeGrantPolicy>,
    pub(crate) granted: Arc<Granted>,
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.maker.fmt(f)
    }
}

impl MakeGrantPolicy for Recorded {
    fn make(&self, side: Side) -> Box<dyn GrantPolicy> {
        let policy = self.maker.make(side);
        match side {
            Side::Client => policy,
            Side::Server => Box::new(RecordedPolicy {
                policy,
                granted: Arc::clone(&self.granted),
                last: None,
            }),
        }
    }

    fn for_another_end(&self) -> Option<Arc<dyn MakeGrantPolicy>> {
        Some(Arc::new(Self {
            maker: for_another_end(&self.maker),
            granted: Arc::clone(&self.granted),
        }))
    }
}

/// The policy of one connection of a server.
struct RecordedPolicy {
    policy: Box<dyn GrantPolicy>,
    granted: Arc<Granted>,
    /// The credits that were granted last.
    last: Option<u32>,
}

impl fmt::Debug for RecordedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

impl GrantPolicy for RecordedPolicy {
    fn credits(&mut self, event: GrantEvent, demand: &Demand) -> u32 {
        let credits = self.policy.credits(event, demand);
        let granted = credits.max(demand.least).min(demand.most);
        self.granted.record(self.last.replace(granted), granted);
        credits
    }

    fn set_ask_again(&mut self, again: AskAgain) {
        self.policy.set_ask_again(again);
    }

    fn refreshes(&self, left: u32, advertised: u32) -> bool {
        self.policy.refreshes(left, advertised)
    }
}
