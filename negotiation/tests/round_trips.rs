//! Tests of the use of rtrext-00 and its reasons, for pairs of configurations.

use rpcrdma_ext_continuation::{Config, RequestReceiveLimit, ResponseSendLimit};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::{BackwardSupport, INITXCH};
use rpcrdma_ext_xchar::{Characteristic, Config as Exchanged, Exchange, Init, Registry, Subset};
use rpcrdma_extension::layout::BufferStructure;
use rpcrdma_extension::{Extensions, Property};
use rpcrdma_negotiation::{FeatureReason, PeerProperties, decide_round_trips};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Direction, Header, Optional, Side};

fn config(features: &str, limit: u32) -> Config {
    Config {
        features: features.parse().expect("features"),
        takes_calls: true,
        structure: BufferStructure::with_placement(1024, 1, 65_536),
        request_limit: limit,
        response_limit: limit,
        min_placed: 256,
        max_message: 1 << 20,
        max_send: 1 << 20,
    }
}

/// Returns an end that received these characteristics from its peer.
fn told(start: Vec<Property>) -> Extensions {
    let mut registry = Registry::default();
    rpcrdma_ext_continuation::register(&mut registry).expect("numbers of their own");
    let exchange = Exchange::new(Exchanged {
        registry,
        receive_size: 4096,
        max_receive_size: 4096,
        max_send: 4096,
        accept_invalidation: false,
        can_invalidate: false,
        backward: BackwardSupport::None,
    });
    let mut end = Extensions::new(Side::Client, 1, vec![Box::new(exchange)]).expect("one");
    end.connected(None);
    let no_change = Subset::default();
    let info = Init { start, no_change }.encode();
    let header = Header {
        xid: 9,
        credits: 8,
        body: Body::Optional(Optional {
            direction: Direction::Call,
            opttype: INITXCH,
            info,
        }),
    };
    let bytes = header.encode();
    let at = bytes.len();
    assert_eq!(
        operations::route(&mut end, &header, &[bytes], at),
        Routed::Taken
    );
    end
}

fn all(peer: &Config) -> Vec<Property> {
    let mut said = vec![
        RoundTripSupport::property(&peer.support()),
        RequestReceiveLimit::property(&peer.max_call_transmissions()),
        ResponseSendLimit::property(&peer.max_reply_transmissions()),
    ];
    if peer.features.ddp.receive {
        said.push(ReceiveBufferStructure::property(&peer.structure));
    }
    said
}

fn printed(side: Side, own: &str, said: Vec<Property>) -> String {
    let end = told(said);
    let exchange: &Exchange = end.find().expect("it is there");
    let peer = PeerProperties::Characteristics(exchange.peer());
    let decided = decide_round_trips(side, &config(own, 16), peer);
    decided.expect("version 2").to_string()
}

#[test]
fn both_ends_have_everything() {
    assert_eq!(
        printed(Side::Client, "ddp+cont", all(&config("ddp+cont", 20))),
        "bulk data placed by Sends, to the peer: yes (both ends have it)\n\
         bulk data placed by Sends, from the peer: yes (both ends have it)\n\
         transmissions of a call: up to 20 (the peer's choice)\n\
         transmissions of a reply: up to 20 (the peer's choice)"
    );
    assert_eq!(
        printed(Side::Server, "ddp+cont", all(&config("ddp+cont", 20))),
        "bulk data placed by Sends, to the peer: yes (both ends have it)\n\
         bulk data placed by Sends, from the peer: yes (this end's choice)\n\
         transmissions of a call: up to 16 (this end's choice)\n\
         transmissions of a reply: up to 16 (this end's choice)"
    );
}

#[test]
fn a_feature_missing_at_one_end_is_not_used_and_the_reason_names_the_end() {
    assert_eq!(
        printed(
            Side::Client,
            "ddp:send+cont:receive",
            all(&config("cont:receive", 20))
        ),
        "bulk data placed by Sends, to the peer: no (the peer said nothing of it, which means this)\n\
         bulk data placed by Sends, from the peer: no (this end's choice)\n\
         transmissions of a call: up to 1 (this end's choice)\n\
         transmissions of a reply: up to 1 (the peer's choice)"
    );
    assert_eq!(
        printed(Side::Client, "ddp+cont", Vec::new()),
        "bulk data placed by Sends, to the peer: no (the peer said nothing of it, which means this)\n\
         bulk data placed by Sends, from the peer: no (the peer said nothing of it, which means this)\n\
         transmissions of a call: up to 1 (the peer said nothing of it, which means this)\n\
         transmissions of a reply: up to 1 (the peer said nothing of it, which means this)"
    );
}

#[test]
fn unannounced_features_are_not_used() {
    let own = config("ddp+cont", 16);
    for (peer, why) in [
        (PeerProperties::NotSaidYet, FeatureReason::NotSaidYet),
        (
            PeerProperties::NoCharacteristics,
            FeatureReason::NotExchanged,
        ),
    ] {
        let decided = decide_round_trips(Side::Client, &own, peer).expect("version 2");
        assert_eq!(
            (decided.placed_there.value, decided.placed_there.reason),
            (false, why)
        );
        assert_eq!(decided.call_transmissions.value, 1);
        assert_eq!(decided.reply_transmissions.value, 1);
    }
    let none = decide_round_trips(Side::Client, &own, PeerProperties::PrivateData(None));
    assert_eq!(none, None);
}
