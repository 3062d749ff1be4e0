//! The optional features that may be used on a connection, and why.

use rpcrdma_ext_continuation::Transmit;
use rpcrdma_ext_wg_ddp::Placement;
use rpcrdma_ext_xchar::Exchange;
use rpcrdma_extension::ConnectionLimits;
use rpcrdma_negotiation::{
    FeatureReason, Features, OwnProperties, PeerProperties, RoundTrips, Version, WithReason,
    decide_features, decide_round_trips,
};
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::Side;

use crate::Config;
use crate::dialect::Session;

/// Returns the optional features that may be used in `version` at present, and why.
pub(crate) fn features(
    config: &Config,
    version: Version,
    peer: Option<PrivateData>,
    session: &dyn Session,
) -> Features {
    let side = config.role.side();
    let invalidation = config.options.remote_invalidation;
    let have = OwnProperties {
        side,
        max_send: config.max_send(),
        // The receives may have been replaced since the beginning.
        receive_size: match session.limits() {
            Some(limits) => limits.inline_receive,
            None => config.receives.len(),
        },
        accept_invalidation: invalidation && side == Side::Client,
        can_invalidate: invalidation && side == Side::Server,
        private_data: config.options.private_data(),
        characteristics: true,
    };
    let extensions = session.extensions();
    let exchange = extensions.and_then(|extensions| extensions.find::<Exchange>());
    let peer = match (extensions, exchange) {
        (None, _) => PeerProperties::PrivateData(peer),
        (Some(_), None) => PeerProperties::NoCharacteristics,
        (Some(_), Some(exchange)) => match exchange.supported() {
            None => PeerProperties::NotSaidYet,
            Some(false) => PeerProperties::NoCharacteristics,
            Some(true) => PeerProperties::Characteristics(exchange.peer()),
        },
    };
    let transmit = extensions.and_then(|extensions| extensions.find::<Transmit>());
    let round_trips = transmit.map(|own| decide_round_trips(side, own.config(), peer));
    let features = decide_features(&have, peer).with_round_trips(round_trips.flatten());
    let features = Features {
        version,
        ..features
    };
    match (session.limits(), exchange) {
        (Some(limits), None) => {
            let features = by_extensions(features, side, config.max_send(), &limits);
            match session.announced() {
                Some((_, peer)) => of_working_group(features, config, peer.is_some(), session),
                None => features,
            }
        }
        _ => features,
    }
}

/// Returns the features of a version whose peers have other operations than the exchange of
/// transport characteristics to settle their limits.
fn by_extensions(
    features: Features,
    side: Side,
    max_send: u32,
    limits: &ConnectionLimits,
) -> Features {
    fn said<T>(value: T) -> WithReason<T> {
        let reason = FeatureReason::Extensions;
        WithReason { value, reason }
    }
    Features {
        inline_send: said(limits.inline_send.min(max_send)),
        inline_receive: said(limits.inline_receive),
        invalidated_there: said(limits.may_invalidate),
        backward: match side {
            Side::Client => features.backward,
            Side::Server => said(limits.reverse_direction),
        },
        ..features
    }
}

/// Returns the features in version 2 of the working group. Continued messages belong to the
/// version, and each call says whether its reply may invalidate a handle.
fn of_working_group(
    features: Features,
    config: &Config,
    known: bool,
    session: &dyn Session,
) -> Features {
    type Says = fn(&Placement) -> bool;
    fn decided<T>(value: T, reason: FeatureReason) -> WithReason<T> {
        WithReason { value, reason }
    }
    let offers = config.options.remote_invalidation;
    let placement = session
        .extensions()
        .and_then(|extensions| extensions.find::<Placement>());
    let placed = |of: Says| match placement {
        None => decided(false, FeatureReason::Here),
        Some(placement) if of(placement) => decided(true, FeatureReason::Both),
        Some(_) if known => decided(false, FeatureReason::NotAnnounced),
        Some(_) => decided(false, FeatureReason::NotSaidYet),
    };
    let (there, here): (Says, Says) = match config.role.side() {
        Side::Client => (Placement::places_calls, Placement::has_results_placed),
        Side::Server => (Placement::places_results, Placement::has_calls_placed),
    };
    Features {
        characteristics: match known {
            true => decided(true, FeatureReason::Both),
            false => decided(false, FeatureReason::NotSaidYet),
        },
        invalidated_here: match offers {
            true => decided(true, FeatureReason::EachCall),
            false => decided(false, FeatureReason::Here),
        },
        invalidated_there: match features.invalidated_there.value {
            true => decided(true, FeatureReason::EachCall),
            false => decided(false, FeatureReason::Here),
        },
        round_trips: Some(RoundTrips {
            placed_there: placed(there),
            placed_here: placed(here),
            call_transmissions: decided(u32::MAX, FeatureReason::Version),
            reply_transmissions: decided(u32::MAX, FeatureReason::Version),
        }),
        ..features
    }
}
