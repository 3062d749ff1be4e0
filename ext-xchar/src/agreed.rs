//! The features that follow from the characteristics of both ends (section 3), and the reasons.

use rpcrdma_chunks::Side;
use rpcrdma_extension::agreed::{
    BACKWARD_CALLS, CHARACTERISTICS, INLINE_RECEIVE, INLINE_SEND, INVALIDATED_HERE,
    INVALIDATED_THERE, both, smaller,
};
use rpcrdma_extension::{AgreedFeatures, FeatureReason, FeatureValue};
use rpcrdma_v2::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX};

use crate::{BackwardRequestSupport, Config, Peer, ReceiveBufferSize, RequesterRemoteInvalidation};

/// Lists the features. `receive_size` is the length in bytes of this end's receives of which the peer
/// has been told, and `peer` its characteristics, or the reason why they are not known.
pub(crate) fn decide(
    side: Side,
    own: &Config,
    receive_size: u32,
    peer: Result<&Peer, FeatureReason>,
    agreed: &mut AgreedFeatures,
) {
    let defaults = Peer::default();
    let (unknown, peer) = (peer.err(), peer.unwrap_or(&defaults));
    let reason = |is_announced: bool| {
        unknown.unwrap_or(match is_announced {
            true => FeatureReason::Peer,
            false => FeatureReason::NotAnnounced,
        })
    };
    let size = peer.said::<ReceiveBufferSize>();
    let said = reason(size.is_some());
    // An announced size below what every message may have is not usable.
    let limit = peer.get::<ReceiveBufferSize>().max(FIRST_MESSAGE_MAX);
    agreed.set(INLINE_SEND, smaller(own.max_send, limit, said));
    // A peer that does not announce its own receive size may not have understood this end's.
    let receive = match size {
        Some(_) => (FeatureValue::Bytes(receive_size), FeatureReason::Here),
        None => (FeatureValue::Bytes(DEFAULT_INLINE), said),
    };
    agreed.set(INLINE_RECEIVE, receive);
    let exchanged = (unknown.is_none(), unknown.unwrap_or(FeatureReason::Both));
    agreed.set(CHARACTERISTICS, exchanged);
    let invalidation = peer.said::<RequesterRemoteInvalidation>();
    let (here, there) = match unknown {
        Some(why) => ((false, why), (false, why)),
        None => (
            // The peer does not announce whether it will invalidate.
            (own.accept_invalidation, FeatureReason::Here),
            both(
                own.can_invalidate,
                peer.get::<RequesterRemoteInvalidation>(),
                reason(invalidation.is_some()),
            ),
        ),
    };
    agreed.set(INVALIDATED_HERE, here);
    agreed.set(INVALIDATED_THERE, there);
    if side == Side::Server {
        let backward = peer.said::<BackwardRequestSupport>();
        let limit = peer.get::<BackwardRequestSupport>().limit();
        agreed.set(BACKWARD_CALLS, (limit, reason(backward.is_some())));
    }
}
