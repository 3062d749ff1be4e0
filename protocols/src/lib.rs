//! What RPC-over-RDMA connections speak: the extensions of each version, assembled with their
//! defaults.
//!
//! A program passes [`Protocols`] to connections and transports, to which it may add extensions of its
//! own.
//!
//! ```
//! use rpcrdma_connection::Options;
//! use rpcrdma_protocols::{RoundTripFeatures, standard};
//!
//! let features: RoundTripFeatures = "ddp+cont:receive".parse()?;
//! let options = Options::server(standard(&features));
//! assert_eq!(options.protocols.to_string(), "ddp+cont:receive");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

use std::sync::Arc;

use rpcrdma_connection::Version;
use rpcrdma_ext_xchar::Registry;

pub use rpcrdma_connection::dialect::Dialect;
pub use rpcrdma_connection::{Protocols, Side};
pub use rpcrdma_ext_continuation::{Directions, Features as RoundTripFeatures, UnknownFeature};
pub use rpcrdma_extension::layout::{Placing, TARGET};

/// Returns the protocols without the features that save round trips: version 2 of 2016 has the exchange
/// of transport characteristics (xcharext-02) alone.
#[must_use]
pub fn base() -> Protocols {
    standard(&RoundTripFeatures::default())
}

/// Returns the protocols with these features: in version 2 of 2016 as rtrext-00 has them, in that of the
/// working group by the placement extension and its own continued messages.
#[must_use]
pub fn standard(features: &RoundTripFeatures) -> Protocols {
    placing(features, Placing::default())
}

/// Returns the protocols of [`standard`], with receives in whose segment for bulk data at least
/// `least_placement` bytes can be placed, if this end receives such data. The receives are at least
/// 1 KiB longer.
#[must_use]
pub fn placing_from(features: &RoundTripFeatures, least_placement: u32) -> Protocols {
    let lengths = Placing {
        target: least_placement,
        ..Placing::default()
    };
    placing(features, lengths)
}

/// Returns the protocols of [`standard`], with receives in whose segments data is placed of these
/// lengths, if this end receives such data.
#[must_use]
pub fn placing(features: &RoundTripFeatures, placing: Placing) -> Protocols {
    let mut registry = Registry::default();
    if !features.is_none()
        && let Err(taken) = rpcrdma_ext_continuation::register(&mut registry)
    {
        tracing::error!(%taken, "two characteristics have the same number");
    }
    let exchange = rpcrdma_ext_xchar::Factory { registry };
    let continuation = rpcrdma_ext_continuation::Factory {
        features: *features,
        placing,
    };
    let placement = rpcrdma_ext_wg_ddp::Factory {
        send: features.ddp.send,
        receive: features.ddp.receive,
        placing,
    };
    Protocols::named(features.to_string())
        .with(Version::TWO, Arc::new(exchange))
        .with(Version::TWO, Arc::new(continuation))
        .with(Version::TWO_WG, Arc::new(placement))
}
