//! The extension for each new connection.

use rpcrdma_extension::layout::{BufferStructure, MAX_TRANSMISSION, Placing, ReceiveStructure};
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};

use crate::{Config, Placement};

/// Makes the [`Placement`] of each connection.
#[derive(Clone, Copy, Debug)]
pub struct Factory {
    /// Whether connections place items in what they send.
    pub send: bool,
    /// Whether peers may place items in what connections receive.
    pub receive: bool,
    /// The lengths of the segments of receives that bulk data is placed in.
    pub placing: Placing,
}

impl ExtensionFactory for Factory {
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        let receive = self.receive && end.may_place;
        if !(self.send || receive) {
            return None;
        }
        Some(Box::new(Placement::new(Config {
            makes_calls: end.makes_calls(),
            takes_calls: end.takes_chunks(),
            send: self.send,
            receive,
            offer_invalidation: end.remote_invalidation,
            structure: BufferStructure::from(end.receives),
            min_placed: end.costs.min_placed_len(self.placing.head),
            max_message: u64::from(end.max_message),
            max_segments: end.max_segments,
        })))
    }

    fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let placing = || ReceiveStructure::placing(plain, self.placing);
        self.receive.then(placing)
    }

    fn max_send(&self) -> u32 {
        match self.send {
            true => MAX_TRANSMISSION,
            false => 0,
        }
    }
}
