//! The exchange for each new connection.

use rpcrdma_chunks::Side;
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};

use crate::{BackwardSupport, Config, Exchange, Registry};

/// Makes the [`Exchange`] of each connection.
#[derive(Clone, Debug, Default)]
pub struct Factory {
    /// The characteristics that both ends may announce.
    pub registry: Registry,
}

impl ExtensionFactory for Factory {
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        Some(Box::new(Exchange::new(self.config(end))))
    }
}

impl Factory {
    /// Returns the configuration of the exchange at this end.
    #[must_use]
    pub fn config(&self, end: &EndConfig<'_>) -> Config {
        let is_client = end.side == Side::Client;
        Config {
            registry: self.registry.clone(),
            receive_size: end.receives.len(),
            max_receive_size: end.max_receive_size,
            max_send: end.max_send,
            accept_invalidation: end.remote_invalidation && is_client,
            can_invalidate: end.remote_invalidation && !is_client,
            backward: match (is_client && end.callbacks > 0, end.callback_chunks) {
                (false, _) => BackwardSupport::None,
                (true, false) => BackwardSupport::Inline,
                (true, true) => BackwardSupport::General,
            },
        }
    }
}
