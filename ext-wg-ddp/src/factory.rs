//! The extension for each new connection.

use rpcrdma_extension::layout::{BufferStructure, HEAD, MAX_TRANSMISSION, ReceiveStructure};
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};

use crate::{Config, Placement};

/// Makes the [`Placement`] of each connection.
#[derive(Clone, Copy, Debug)]
pub struct Factory {
    /// Whether connections place items in what they send.
    pub send: bool,
    /// Whether peers may place items in what connections receive.
    pub receive: bool,
    /// The least length, in bytes, of the segment of each receive that bulk data is placed in.
    pub least_placement: u32,
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
            min_placed: end.costs.min_placed_len(HEAD),
            max_message: u64::from(end.max_message),
            max_segments: end.max_segments,
        })))
    }

    fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let placing = || ReceiveStructure::placing(plain, self.least_placement);
        self.receive.then(placing)
    }

    fn max_send(&self) -> u32 {
        match self.send {
            true => MAX_TRANSMISSION,
            false => 0,
        }
    }
}
