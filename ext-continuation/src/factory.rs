//! The extension for each new connection.

use rpcrdma_chunks::Side;
use rpcrdma_extension::layout::{BufferStructure, MAX_TRANSMISSION, Placing, ReceiveStructure};
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};

use crate::{Config, Features, Transmit};

/// The maximum number of transmissions of a message: enough for 4 MiB of bulk data.
const MAX_TRANSMISSIONS: u32 = 64;

/// Makes the [`Transmit`] of each connection.
#[derive(Clone, Copy, Debug)]
pub struct Factory {
    /// The features that this end supports. Without any, connections do not get the extension.
    pub features: Features,
    /// The lengths of the segments of receives that bulk data is placed in.
    pub placing: Placing,
}

impl ExtensionFactory for Factory {
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        let config = self.config(end);
        if config.features.is_none() {
            return None;
        }
        Some(Box::new(Transmit::new(config)))
    }

    fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let placing = || ReceiveStructure::placing(plain, self.placing);
        self.features.ddp.receive.then(placing)
    }

    fn max_send(&self) -> u32 {
        match self.features.ddp.send {
            true => MAX_TRANSMISSION,
            false => 0,
        }
    }

    fn held_by_a_call(&self, credits: u32) -> u32 {
        match self.features.cont.receive {
            true => credits.clamp(1, MAX_TRANSMISSIONS),
            false => 0,
        }
    }
}

impl Factory {
    /// Returns the configuration of the extension at this end.
    #[must_use]
    pub fn config(&self, end: &EndConfig<'_>) -> Config {
        let mut features = self.features;
        features.ddp.receive &= end.may_place;
        features.cont.receive &= end.may_hold_calls;
        Config {
            features,
            // Calls from server to client come by the base protocol alone.
            takes_calls: end.side == Side::Server,
            structure: BufferStructure::from(end.receives),
            // A continued call takes a credit, and a posted receive, for each transmission.
            request_limit: end.credits.clamp(1, MAX_TRANSMISSIONS),
            response_limit: MAX_TRANSMISSIONS,
            min_placed: end.costs.min_placed_len(self.placing.head),
            max_message: u64::from(end.max_message),
            max_send: end.max_send,
        }
    }
}
