//! Tests of the list of agreed features.

mod common;

use common::{call, deliver, end, error, init, property};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_ext_xchar::{BackwardSupport, Config, INITXCH, Registry};
use rpcrdma_extension::agreed::{
    BACKWARD_CALLS, CHARACTERISTICS, INLINE_RECEIVE, INLINE_SEND, INVALIDATED_HERE,
    INVALIDATED_THERE,
};
use rpcrdma_extension::{AgreedFeatures, Extensions, FeatureReason, FeatureValue};
use rpcrdma_v2::operations::Routed;
use rpcrdma_v2::{ErrorBody, Side};

fn agreed(end: &Extensions) -> AgreedFeatures {
    let mut agreed = AgreedFeatures::default();
    end.agreed(&mut agreed);
    agreed
}

/// Returns whether the extension uses what it lists.
fn agrees(side: Side, end: &Extensions) -> bool {
    let (agreed, limits) = (agreed(end), end.limits());
    let backward = match side {
        Side::Client => None,
        Side::Server => Some(limits.reverse_direction.into()),
    };
    agreed.value(INLINE_SEND) == Some(FeatureValue::Bytes(limits.inline_send))
        && agreed.value(INLINE_RECEIVE) == Some(FeatureValue::Bytes(limits.inline_receive))
        && agreed.value(INVALIDATED_THERE) == Some(limits.may_invalidate.into())
        && agreed.value(BACKWARD_CALLS) == backward
}

fn config() -> Config {
    Config {
        registry: Registry::default(),
        receive_size: 32_768,
        max_receive_size: 32_768,
        max_send: 65_536,
        accept_invalidation: true,
        can_invalidate: true,
        backward: BackwardSupport::Inline,
    }
}

#[derive(Clone, Debug)]
struct AnyEnd(Side, Config);

impl Arbitrary for AnyEnd {
    fn arbitrary(g: &mut Gen) -> Self {
        let size = |g: &mut Gen| 4096 + (u32::arbitrary(g) >> (12 + u32::arbitrary(g) % 16));
        let receive_size = size(g);
        let config = Config {
            receive_size,
            max_receive_size: receive_size,
            max_send: size(g),
            accept_invalidation: bool::arbitrary(g),
            can_invalidate: bool::arbitrary(g),
            ..config()
        };
        Self(
            *g.choose(&[Side::Client, Side::Server]).expect("two"),
            config,
        )
    }
}

quickcheck! {
    fn the_extension_does_what_it_lists(any: AnyEnd, size: Option<u32>, inv: Option<bool>, brs: Option<u8>) -> bool {
        let AnyEnd(side, config) = any;
        let mut end = end(side, config);
        let before = agrees(side, &end);
        let start = [
            size.map(|size| property(1, &[size])),
            inv.map(|inv| property(2, &[u32::from(inv)])),
            brs.map(|brs| property(3, &[u32::from(brs % 3)])),
        ];
        let said = init(&start.into_iter().flatten().collect::<Vec<_>>());
        let taken = deliver(&mut end, &call(INITXCH, said.encode())) == Routed::Taken;
        before && taken && agrees(side, &end)
    }
}

#[test]
fn a_peer_without_characteristics_has_the_defaults() {
    let mut end = end(Side::Client, config());
    end.connected(None);
    let before = agreed(&end);
    assert_eq!(before.peer_unknown(), Some(FeatureReason::NotSaidYet));
    let refused = error(1000, ErrorBody::InvalidOption);
    assert_eq!(deliver(&mut end, &refused), Routed::Taken);
    assert!(agrees(Side::Client, &end));
    let agreed = agreed(&end);
    let (why, no) = (FeatureReason::NotExchanged, FeatureValue::InUse(false));
    for name in [INLINE_SEND, INLINE_RECEIVE] {
        assert_eq!(agreed.get(name), Some((FeatureValue::Bytes(4096), why)));
        let before = before.get(name);
        assert_eq!(
            before,
            Some((FeatureValue::Bytes(4096), FeatureReason::NotSaidYet))
        );
    }
    for name in [CHARACTERISTICS, INVALIDATED_HERE, INVALIDATED_THERE] {
        assert_eq!(agreed.get(name), Some((no, why)));
    }
}

#[test]
fn what_is_agreed_is_printed_with_its_reasons() {
    let mut end = end(Side::Server, config());
    let said = init(&[property(1, &[16_384])]);
    deliver(&mut end, &call(INITXCH, said.encode()));
    let expected = "inline, to the peer: 16384 B (the peer's choice)\n\
        inline, from the peer: 32768 B (this end's choice)\n\
        transport characteristics: yes (both ends have it)\n\
        remote invalidation, by the peer: yes (this end's choice)\n\
        remote invalidation, by this end: no (the peer said nothing of it, which means this)\n\
        backward calls: without chunks (the peer said nothing of it, which means this)";
    assert_eq!(agreed(&end).to_string(), expected);
}
