//! The features that both ends of a connection have agreed on, and why.

use rpcrdma_chunks::Side;
use rpcrdma_extension::agreed::{
    BACKWARD_CALLS, CHARACTERISTICS, INLINE_RECEIVE, INLINE_SEND, INVALIDATED_HERE,
    INVALIDATED_THERE, both, smaller,
};
use rpcrdma_extension::{
    AgreedFeatures, ConnectionLimits, FeatureReason, FeatureValue, ReverseDirection,
};
use rpcrdma_v1::PrivateData;

use crate::Config;
use crate::dialect::Session;

/// Returns the features that may be used at present. `peer` is the peer's private data.
pub(crate) fn features(
    config: &Config,
    peer: Option<PrivateData>,
    session: &dyn Session,
) -> AgreedFeatures {
    let side = config.role.side();
    let mut agreed = match session.limits() {
        Some(limits) => by_limits(side, config.max_send(), &limits),
        None => by_private_data(side, config.options.private_data(), peer),
    };
    session.agreed(&mut agreed);
    agreed
}

/// Returns the features that private data settles (RFC 8797, sections 4.1 and 4.2).
fn by_private_data(
    side: Side,
    own: Option<PrivateData>,
    peer: Option<PrivateData>,
) -> AgreedFeatures {
    let why = match peer {
        Some(_) => FeatureReason::Peer,
        None => FeatureReason::NotAnnounced,
    };
    let (here, peer) = (own.unwrap_or_default(), peer.unwrap_or_default());
    let mut agreed = AgreedFeatures::default();
    agreed.set(
        INLINE_SEND,
        smaller(here.send_size(), peer.receive_size(), why),
    );
    agreed.set(
        INLINE_RECEIVE,
        smaller(here.receive_size(), peer.send_size(), why),
    );
    agreed.set(CHARACTERISTICS, (false, FeatureReason::NotExchanged));
    let invalidation = both(here.remote_invalidation(), peer.remote_invalidation(), why);
    // Only the client makes calls and so registers memory.
    match side {
        Side::Client => agreed.set(INVALIDATED_HERE, invalidation),
        Side::Server => {
            agreed.set(INVALIDATED_THERE, invalidation);
            let backward = (ReverseDirection::Inline, FeatureReason::UpperLayer);
            agreed.set(BACKWARD_CALLS, backward);
        }
    }
    agreed
}

/// Returns the features of a version with extensions that say no more than these limits. The end
/// sends messages of up to `max_send` bytes.
fn by_limits(side: Side, max_send: u32, limits: &ConnectionLimits) -> AgreedFeatures {
    let why = FeatureReason::Extensions;
    let send = limits.inline_send.min(max_send);
    let mut agreed = AgreedFeatures::default();
    agreed.set(INLINE_SEND, (FeatureValue::Bytes(send), why));
    agreed.set(
        INLINE_RECEIVE,
        (FeatureValue::Bytes(limits.inline_receive), why),
    );
    agreed.set(CHARACTERISTICS, (false, FeatureReason::NotExchanged));
    agreed.set(INVALIDATED_HERE, (false, FeatureReason::NotExchanged));
    agreed.set(INVALIDATED_THERE, (limits.may_invalidate, why));
    if side == Side::Server {
        agreed.set(BACKWARD_CALLS, (limits.reverse_direction, why));
    }
    agreed
}

#[cfg(test)]
mod tests {
    use rpcrdma_v1::Agreed;

    use super::*;

    fn data(send: u32, receive: u32, invalidation: bool) -> Option<PrivateData> {
        Some(PrivateData::new(send, receive, invalidation))
    }

    fn bytes(bytes: u32, why: FeatureReason) -> Option<(FeatureValue, FeatureReason)> {
        Some((FeatureValue::Bytes(bytes), why))
    }

    const YES: Option<FeatureValue> = Some(FeatureValue::InUse(true));

    #[test]
    fn rfc8797_private_data_decides_for_version_1() {
        let (own, peer) = (data(65_536, 32_768, true), data(16_384, 8192, true));
        let client = by_private_data(Side::Client, own, peer);
        assert_eq!(client.get(INLINE_SEND), bytes(8192, FeatureReason::Peer));
        assert_eq!(
            client.get(INLINE_RECEIVE),
            bytes(16_384, FeatureReason::Peer)
        );
        assert_eq!(client.value(INVALIDATED_HERE), YES);
        // Only servers make replies that invalidate, and calls in the backward direction.
        assert_eq!(client.value(INVALIDATED_THERE), None);
        assert_eq!(client.value(BACKWARD_CALLS), None);
        let server = by_private_data(Side::Server, own, peer);
        assert_eq!(server.value(INVALIDATED_THERE), YES);
        assert_eq!(server.value(INVALIDATED_HERE), None);
        let backward = (ReverseDirection::Inline.into(), FeatureReason::UpperLayer);
        assert_eq!(server.get(BACKWARD_CALLS), Some(backward));
        // If both ends have the same limit, the peer is given as the reason.
        let same = by_private_data(Side::Client, data(8192, 16_384, true), peer);
        assert_eq!(same.get(INLINE_SEND), bytes(8192, FeatureReason::Peer));
        assert_eq!(same.get(INLINE_RECEIVE), bytes(16_384, FeatureReason::Peer));
        // The decision matches what RFC 8797 has both ends compute.
        let agreed = Agreed::new(own, peer);
        assert_eq!(
            client.value(INLINE_SEND),
            Some(FeatureValue::Bytes(agreed.call_inline))
        );
        assert_eq!(
            client.value(INLINE_RECEIVE),
            Some(FeatureValue::Bytes(agreed.reply_inline))
        );
        let silent = by_private_data(Side::Client, own, None);
        let why = FeatureReason::NotAnnounced;
        assert_eq!(silent.get(INLINE_SEND), bytes(1024, why));
        assert_eq!(
            silent.get(INVALIDATED_HERE),
            Some((FeatureValue::InUse(false), why))
        );
        let small = by_private_data(Side::Client, data(4096, 4096, false), peer);
        assert_eq!(small.get(INLINE_SEND), bytes(4096, FeatureReason::Here));
        let refused = (FeatureValue::InUse(false), FeatureReason::Here);
        assert_eq!(small.get(INVALIDATED_HERE), Some(refused));
    }

    #[test]
    fn what_private_data_decides_is_printed_with_its_reasons() {
        let agreed = by_private_data(
            Side::Server,
            data(4096, 8192, true),
            data(4096, 4096, false),
        );
        let expected = "inline, to the peer: 4096 B (the peer's choice)\n\
            inline, from the peer: 4096 B (the peer's choice)\n\
            transport characteristics: no (the peer cannot say)\n\
            remote invalidation, by this end: no (the peer's choice)\n\
            backward calls: without chunks (for the upper layer to find out)";
        assert_eq!(agreed.to_string(), expected);
    }

    #[test]
    fn a_version_with_extensions_that_say_nothing_has_the_default_limits() {
        let agreed = by_limits(Side::Client, 65_536, &ConnectionLimits::default());
        let expected = "inline, to the peer: 4096 B (the extensions say so)\n\
            inline, from the peer: 4096 B (the extensions say so)\n\
            transport characteristics: no (the peer cannot say)\n\
            remote invalidation, by the peer: no (the peer cannot say)\n\
            remote invalidation, by this end: no (the extensions say so)";
        assert_eq!(agreed.to_string(), expected);
    }
}
