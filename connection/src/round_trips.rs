//! The features by which an end saves round trips (rtrext-00): the
//! configuration of its extensions.

use rpcrdma_ext_continuation::{Config, Features};
use rpcrdma_ext_wg_ddp::Config as PlacementConfig;
use rpcrdma_extension::layout::{BufferStructure, HEAD};
use rpcrdma_v2::Side;

use crate::Config as ConnectionConfig;
use crate::dialect::MAX_SEGMENTS;

/// The maximum number of transmissions of a message: enough for 4 MiB of bulk data.
const MAX_TRANSMISSIONS: u32 = 64;
/// Maximum length of a transmission to send, in bytes, even if the peer's receives are longer.
const MAX_TRANSMISSION: u32 = 1 << 20;

/// Returns the length of the longest message to send, in bytes: `inline`, or
/// [`MAX_TRANSMISSION`] if that is longer and this end places bulk data.
pub(crate) fn max_send(features: Features, inline: u32) -> u32 {
    match features.ddp.send {
        true => inline.max(MAX_TRANSMISSION),
        false => inline,
    }
}

/// Returns the maximum number of receives that the transmissions of one incomplete call can hold if
/// `credits` are granted.
#[must_use]
pub fn held_by_a_call(features: Features, credits: u32) -> u32 {
    match features.cont.receive {
        true => credits.clamp(1, MAX_TRANSMISSIONS),
        false => 0,
    }
}

/// Returns the configuration of send-based data placement in the working group's version 2, or
/// `None` if this end has none.
pub(crate) fn placement(config: &ConnectionConfig) -> Option<PlacementConfig> {
    let options = &config.options;
    let ddp = options.features.ddp;
    let (side, callbacks) = (config.role.side(), options.callbacks);
    (ddp.send || ddp.receive).then(|| PlacementConfig {
        makes_calls: side == Side::Client || config.callbacks > 0,
        takes_calls: side == Side::Server || config.callbacks > 0 && callbacks.chunks,
        send: ddp.send,
        receive: ddp.receive,
        offer_invalidation: options.remote_invalidation,
        structure: BufferStructure::from(&config.receives),
        min_placed: options.costs.min_placed_len(HEAD),
        max_message: u64::from(options.max_message),
        max_segments: MAX_SEGMENTS,
    })
}

/// Returns the configuration of the extension, or `None` if this end has none of its features.
pub(crate) fn config(config: &ConnectionConfig) -> Option<Config> {
    let options = &config.options;
    let features = options.features;
    (!features.is_none()).then(|| Config {
        features,
        // Calls from server to client come by the base protocol alone.
        takes_calls: config.role.side() == Side::Server,
        structure: BufferStructure::from(&config.receives),
        // A continued call takes a credit, and a posted receive, for each transmission.
        request_limit: config.credits.clamp(1, MAX_TRANSMISSIONS),
        response_limit: MAX_TRANSMISSIONS,
        min_placed: options.costs.min_placed_len(HEAD),
        max_message: u64::from(options.max_message),
        max_send: config.max_send(),
    })
}
