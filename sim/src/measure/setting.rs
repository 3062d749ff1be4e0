//! The settings of a measurement.

use std::time::Duration;

use rdma_sim::Costs;
use rpc_transport::rdma::{CostModel, RdmaClientOptions, RdmaOptions, RdmaServerOptions, Version};

use super::copies::CopyCosts;

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The simulated costs.
    pub costs: Costs,
    /// The time from an interrupt to the host's turn.
    pub interrupt: Duration,
    /// The costs of copies.
    pub copies: CopyCosts,
    /// The client's options.
    pub requester: RdmaOptions,
    /// The server's options.
    pub responder: RdmaOptions,
    /// The version that both ends use.
    pub version: Version,
    /// The cost model by which the ends choose transfer modes, if it differs from the simulated
    /// costs, to keep a mode when costs change.
    pub chosen_by: Option<CostModel>,
}

impl Setting {
    /// Returns the cost model by which the ends choose transfer modes.
    #[must_use]
    pub fn model(&self) -> CostModel {
        if let Some(model) = self.chosen_by {
            return model;
        }
        let costs = &self.costs;
        CostModel {
            link_delay: costs.delay,
            rate: costs.rate,
            read_rate: costs.rate,
            write_rate: costs.rate,
            // One end posts messages while the other handles the completions of earlier ones. What
            // a message takes alone is counted with the call.
            per_message: costs.post.max(costs.completion),
            call: 2 * costs.post.min(costs.completion),
            registration: costs.register,
            registration_page: costs.register_page,
            invalidation: costs.invalidate,
            invalidation_wait: self.interrupt,
            interrupt: self.interrupt,
            read_turnaround: costs.read_response,
            copy_rate: self.copies.receiver_rate(),
            ..CostModel::default()
        }
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            interrupt: Duration::from_micros(2),
            copies: CopyCosts::default(),
            requester: RdmaClientOptions::new(rpcrdma_protocols::base()).common,
            responder: RdmaServerOptions::new(rpcrdma_protocols::base()).common,
            version: Version::ONE,
            chosen_by: None,
        }
    }
}
