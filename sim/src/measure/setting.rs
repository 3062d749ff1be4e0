//! The settings of a measurement.

use std::time::Duration;

use rdma::trace::Trace;
use rdma_sim::Costs;
use rpc_transport::rdma::{CostModel, RdmaClientOptions, RdmaOptions, RdmaServerOptions, Version};

use super::copies::{CopyCosts, CopyRate};

/// The settings of a measurement.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The simulated costs.
    pub costs: Costs,
    /// The time from an interrupt to the host's turn.
    pub interrupt: Duration,
    /// The costs of copies.
    pub copies: CopyCosts,
    /// The seed of the noise of the link.
    pub seed: u64,
    /// The client's options.
    pub requester: RdmaOptions,
    /// The server's options.
    pub responder: RdmaOptions,
    /// The version that both ends use.
    pub version: Version,
    /// The cost model by which the ends choose transfer modes, if it differs from the simulated
    /// costs, to keep a mode when costs change.
    pub chosen_by: Option<CostModel>,
    /// The observer of calls at all hosts, if they are traced. Its clock is not used.
    pub trace: Option<Trace>,
}

impl Setting {
    /// Returns the cost model by which the ends choose transfer modes.
    #[must_use]
    pub fn model(&self) -> CostModel {
        if let Some(model) = self.chosen_by {
            return model;
        }
        let costs = &self.costs;
        // The model has one direction: every message takes half of a round trip, at the lower rate. So
        // no mode looks cheaper because it sends the same bytes the other way.
        let rate = costs.up.rate.min(costs.down.rate);
        CostModel {
            link_delay: costs.round_trip() / 2,
            rate,
            read_rate: rate,
            write_rate: rate,
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

    /// Returns the setting with the costs of a model, so that calls take about as long as it estimates.
    ///
    /// RDMA Reads and Writes have the rate of Sends, as the simulation has one link, and a message takes
    /// one end the time of a post and the other that of a completion.
    #[must_use]
    pub fn priced(&self, model: &CostModel) -> Self {
        let mut setting = self.clone();
        let costs = &mut setting.costs;
        costs.set_delay(model.link_delay);
        costs.set_rate(model.rate);
        costs.completion = model.per_message;
        costs.post = (model.call / 2).min(model.per_message);
        costs.register = model.registration;
        costs.register_page = model.registration_page;
        costs.invalidate = model.invalidation;
        costs.invalidate_page = Duration::ZERO;
        costs.read_response = model.read_turnaround;
        setting.interrupt = model.interrupt;
        let rate = CopyRate {
            warm: model.copy_rate,
            cold: model.copy_rate,
        };
        (setting.copies.sender, setting.copies.receiver) = (rate, rate);
        setting.chosen_by = Some(*model);
        setting
    }
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            interrupt: Duration::from_micros(2),
            copies: CopyCosts::default(),
            seed: 1,
            requester: RdmaClientOptions::new(rpcrdma_protocols::base()).common,
            responder: RdmaServerOptions::new(rpcrdma_protocols::base()).common,
            version: Version::ONE,
            chosen_by: None,
            trace: None,
        }
    }
}
