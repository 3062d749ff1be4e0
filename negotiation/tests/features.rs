//! Tests of the choice of features.

use bytes::Bytes;
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_ext_xchar::{BackwardSupport, Config, Exchange, INITXCH, Init, Registry, Subset};
use rpcrdma_extension::{Extensions, Property, ReverseDirection};
use rpcrdma_negotiation::{
    FeatureReason, OwnProperties, PeerProperties, Version, WithReason, decide_features,
};
use rpcrdma_v1::{Agreed, PrivateData};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Direction, ErrorBody, Header, Optional, Side};

fn have(side: Side) -> OwnProperties {
    OwnProperties {
        side,
        max_send: 65536,
        receive_size: 32768,
        accept_invalidation: true,
        can_invalidate: true,
        private_data: Some(PrivateData::new(65536, 32768, true)),
        characteristics: true,
    }
}

fn exchange(have: &OwnProperties) -> Extensions {
    let config = Config {
        registry: Registry::default(),
        receive_size: have.receive_size,
        max_receive_size: have.receive_size,
        max_send: have.max_send,
        accept_invalidation: have.accept_invalidation,
        can_invalidate: have.can_invalidate,
        backward: BackwardSupport::Inline,
    };
    Extensions::new(have.side, 9, vec![Box::new(Exchange::new(config))]).expect("one extension")
}

fn init(start: Vec<Property>) -> Header {
    let no_change = Subset::default();
    Header {
        xid: 1,
        credits: 1,
        body: Body::Optional(Optional {
            direction: Direction::Call,
            opttype: INITXCH,
            info: Init { start, no_change }.encode(),
        }),
    }
}

fn receive(end: &mut Extensions, header: &Header) -> Routed {
    operations::route(end, header, &[], header.encoded_len())
}

/// Checks that the extension uses what the pure function decides.
fn agrees(have: &OwnProperties, end: &Extensions) -> bool {
    let exchange: &Exchange = end.find().expect("it is there");
    let peer = match exchange.supported() {
        None => PeerProperties::NotSaidYet,
        Some(false) => PeerProperties::NoCharacteristics,
        Some(true) => PeerProperties::Characteristics(exchange.peer()),
    };
    let features = decide_features(have, peer);
    let limits = end.limits();
    let backward = match have.side {
        Side::Client => {
            let backward = (features.backward.value, features.backward.reason);
            backward == (ReverseDirection::None, FeatureReason::NotApplicable)
        }
        Side::Server => features.backward.value == limits.reverse_direction,
    };
    features.version == Version::TWO
        && features.inline_send.value == limits.inline_send
        && features.inline_receive.value == limits.inline_receive
        && features.invalidated_there.value == limits.may_invalidate
        && backward
}

#[derive(Clone, Debug)]
struct AnyHave(OwnProperties);

impl Arbitrary for AnyHave {
    fn arbitrary(g: &mut Gen) -> Self {
        let size = |g: &mut Gen| 4096 + (u32::arbitrary(g) >> (12 + u32::arbitrary(g) % 16));
        Self(OwnProperties {
            side: *g.choose(&[Side::Client, Side::Server]).expect("two"),
            max_send: size(g),
            receive_size: size(g),
            accept_invalidation: bool::arbitrary(g),
            can_invalidate: bool::arbitrary(g),
            private_data: None,
            characteristics: true,
        })
    }
}

quickcheck! {
    fn the_extension_does_what_is_decided(any: AnyHave, size: Option<u32>, inv: Option<bool>, brs: Option<u8>) -> bool {
        let have = any.0;
        let mut end = exchange(&have);
        let before = agrees(&have, &end);
        let property = |id: u32, value: u32| Property { id, value: Bytes::copy_from_slice(&value.to_be_bytes()) };
        let start = [
            size.map(|size| property(1, size)),
            inv.map(|inv| property(2, u32::from(inv))),
            brs.map(|brs| property(3, u32::from(brs % 3))),
        ];
        let said = init(start.into_iter().flatten().collect());
        before && receive(&mut end, &said) == Routed::Taken && agrees(&have, &end)
    }
}

#[test]
fn a_peer_without_characteristics_has_the_defaults() {
    let have = have(Side::Client);
    let mut end = exchange(&have);
    end.connected(None);
    let refused = Header {
        xid: 9,
        credits: 1,
        body: Body::Error(ErrorBody::InvalidOption),
    };
    assert_eq!(receive(&mut end, &refused), Routed::Taken);
    assert!(agrees(&have, &end));
    let features = decide_features(&have, PeerProperties::NoCharacteristics);
    let four = WithReason {
        value: 4096,
        reason: FeatureReason::NotExchanged,
    };
    assert_eq!(
        (features.inline_send, features.inline_receive),
        (four, four)
    );
    assert!(!features.invalidated_here.value);
}

#[test]
fn an_end_without_characteristics_also_has_the_defaults() {
    let without = OwnProperties {
        characteristics: false,
        ..have(Side::Client)
    };
    let peer = rpcrdma_ext_xchar::Peer::default();
    let features = decide_features(&without, PeerProperties::Characteristics(&peer));
    let no = WithReason {
        value: false,
        reason: FeatureReason::Here,
    };
    assert_eq!(features.characteristics, no);
    assert_eq!(features.inline_send.value, 4096);
}

#[test]
fn rfc8797_private_data_decides_for_version_1() {
    let peers = Some(PrivateData::new(16384, 8192, true));
    let client = decide_features(&have(Side::Client), PeerProperties::PrivateData(peers));
    assert_eq!(client.version, Version::ONE);
    let limit = |value, why| WithReason { value, reason: why };
    assert_eq!(client.inline_send, limit(8192, FeatureReason::Peer));
    assert_eq!(client.inline_receive, limit(16384, FeatureReason::Peer));
    assert!(client.invalidated_here.value && !client.invalidated_there.value);
    let server = decide_features(&have(Side::Server), PeerProperties::PrivateData(peers));
    assert!(server.invalidated_there.value && !server.invalidated_here.value);
    assert_eq!(server.backward.value, ReverseDirection::Inline);
    // If both ends have the same limit, the peer is given as the reason.
    let same = OwnProperties {
        private_data: Some(PrivateData::new(8192, 16384, true)),
        ..have(Side::Client)
    };
    let same = decide_features(&same, PeerProperties::PrivateData(peers));
    assert_eq!(same.inline_send, limit(8192, FeatureReason::Peer));
    assert_eq!(same.inline_receive, limit(16384, FeatureReason::Peer));
    // The decision matches what RFC 8797 has both ends compute.
    let agreed = Agreed::new(have(Side::Client).private_data, peers);
    assert_eq!(agreed.call_inline, client.inline_send.value);
    assert_eq!(agreed.reply_inline, client.inline_receive.value);
    let silent = decide_features(&have(Side::Client), PeerProperties::PrivateData(None));
    assert_eq!(silent.inline_send, limit(1024, FeatureReason::NotAnnounced));
    let no = WithReason {
        value: false,
        reason: FeatureReason::NotAnnounced,
    };
    assert_eq!(silent.invalidated_here, no);
    let small = OwnProperties {
        private_data: Some(PrivateData::new(4096, 4096, false)),
        ..have(Side::Client)
    };
    let small = decide_features(&small, PeerProperties::PrivateData(peers));
    assert_eq!(small.inline_send, limit(4096, FeatureReason::Here));
    assert_eq!(small.invalidated_here.reason, FeatureReason::Here);
}

#[test]
fn what_is_decided_is_printed_with_its_reasons() {
    let mut end = exchange(&have(Side::Server));
    let size = Property {
        id: 1,
        value: Bytes::from_static(&[0, 0, 64, 0]),
    };
    receive(&mut end, &init(vec![size]));
    let exchange: &Exchange = end.find().expect("it is there");
    let peer = PeerProperties::Characteristics(exchange.peer());
    let features = decide_features(&have(Side::Server), peer);
    let expected = "inline, to the peer: 16384 B (the peer's choice)\n\
        inline, from the peer: 32768 B (this end's choice)\n\
        transport characteristics: yes (both ends have it)\n\
        remote invalidation, by the peer: yes (this end's choice)\n\
        remote invalidation, by this end: no (the peer said nothing of it, which means this)\n\
        backward calls: without chunks (the peer said nothing of it, which means this)";
    assert_eq!(features.to_string(), expected);
}
