//! Tests of the list of agreed features, for pairs of configurations.

mod common;

use common::{End, config as with_features};
use rpcrdma_ext_continuation::{Config, RequestReceiveLimit, ResponseSendLimit};
use rpcrdma_ext_send_ddp::{ReceiveBufferStructure, RoundTripSupport};
use rpcrdma_ext_xchar::{Characteristic, INITXCH, Init, Subset};
use rpcrdma_extension::agreed::{
    CALL_TRANSMISSIONS, PLACED_HERE, PLACED_THERE, REPLY_TRANSMISSIONS,
};
use rpcrdma_extension::{AgreedFeatures, FeatureReason, FeatureValue, Property};
use rpcrdma_v2::operations::Routed;
use rpcrdma_v2::{Body, Direction, ErrorBody, Header, Optional, Side};

fn config(features: &str, limit: u32) -> Config {
    Config {
        request_limit: limit,
        response_limit: limit,
        ..with_features(features)
    }
}

fn end(side: Side, own: &str) -> End {
    let mut end = End::new(side, &config(own, 16));
    end.extensions.connected(None);
    end
}

/// Returns the message in which a peer announces these characteristics.
fn announcement(start: Vec<Property>) -> Header {
    let no_change = Subset::default();
    let info = Init { start, no_change }.encode();
    Header {
        xid: 9,
        credits: 8,
        body: Body::Optional(Optional {
            direction: Direction::Call,
            opttype: INITXCH,
            info,
        }),
    }
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

fn agreed(end: &End) -> AgreedFeatures {
    let mut agreed = AgreedFeatures::default();
    end.extensions.agreed(&mut agreed);
    agreed
}

/// Returns what an end lists beside the features of the exchange of characteristics.
fn printed(side: Side, own: &str, said: Vec<Property>) -> String {
    let mut end = end(side, own);
    let announcement = announcement(said).encode();
    assert_eq!(end.receive(&announcement), Routed::Taken);
    let names = [
        PLACED_THERE,
        PLACED_HERE,
        CALL_TRANSMISSIONS,
        REPLY_TRANSMISSIONS,
    ];
    let agreed = agreed(&end);
    let listed = agreed
        .iter()
        .filter(|feature| names.contains(&feature.name));
    let lines: Vec<String> = listed.map(ToString::to_string).collect();
    lines.join("\n")
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
    let mut end = end(Side::Client, "ddp+cont");
    let nothing_for = |end: &End, why| {
        let agreed = agreed(end);
        for name in [PLACED_THERE, PLACED_HERE] {
            assert_eq!(agreed.get(name), Some((FeatureValue::InUse(false), why)));
        }
        for name in [CALL_TRANSMISSIONS, REPLY_TRANSMISSIONS] {
            assert_eq!(agreed.get(name), Some((FeatureValue::UpTo(1), why)));
        }
    };
    nothing_for(&end, FeatureReason::NotSaidYet);
    // The peer does not know the exchange of characteristics.
    let refused = Header {
        xid: 1000,
        credits: 8,
        body: Body::Error(ErrorBody::InvalidOption),
    };
    assert_eq!(end.receive(&refused.encode()), Routed::Taken);
    nothing_for(&end, FeatureReason::NotExchanged);
}
