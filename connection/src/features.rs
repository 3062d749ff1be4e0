//! The optional features that may be used on a connection, and why.

use rpcrdma_ext_xchar::Exchange;
use rpcrdma_negotiation::{
    Features, OwnProperties, PeerProperties, decide_features, decide_round_trips,
};
use rpcrdma_v1::PrivateData;

use crate::dialect::{self, OperationRouter};
use crate::{Config, round_trips};

/// Returns the optional features that may be used at present, and why.
pub(crate) fn features(
    config: &Config,
    peer: Option<PrivateData>,
    operations: Option<&OperationRouter>,
) -> Features {
    let own = dialect::exchange(config);
    let side = config.role.side();
    let have = OwnProperties {
        side,
        max_send: own.max_send,
        // The receives may have been replaced since the beginning.
        receive_size: match operations {
            Some(operations) => operations.extensions.limits().inline_receive,
            None => own.receive_size,
        },
        accept_invalidation: own.accept_invalidation,
        can_invalidate: own.can_invalidate,
        private_data: config.options.private_data(),
        characteristics: true,
    };
    let exchange = operations.and_then(|operations| operations.extensions.find::<Exchange>());
    let peer = match (operations, exchange) {
        (None, _) => PeerProperties::PrivateData(peer),
        (Some(_), None) => PeerProperties::NotSaidYet,
        (Some(_), Some(exchange)) => match exchange.supported() {
            None => PeerProperties::NotSaidYet,
            Some(false) => PeerProperties::NoCharacteristics,
            Some(true) => PeerProperties::Characteristics(exchange.peer()),
        },
    };
    let round_trips = round_trips::config(config);
    let round_trips = round_trips.map(|own| decide_round_trips(side, &own, peer));
    decide_features(&have, peer).with_round_trips(round_trips.flatten())
}
