//! The reasons that an end lists for placement, or for none.

use super::*;

/// Returns an end with these choices, in sending and in receiving.
fn end(side: Side, (send, receive): (bool, bool)) -> Placement {
    Placement::new(Config {
        makes_calls: side == Side::Client,
        takes_calls: side == Side::Server,
        send,
        receive,
        offer_invalidation: false,
        structure: BufferStructure::plain(4096),
        min_placed: 512,
        max_message: 1 << 20,
        max_segments: 16,
    })
}

/// Returns an end whose peer has announced everything.
fn announced(side: Side, choices: (bool, bool)) -> Placement {
    let mut end = end(side, choices);
    end.peer.support = Support::all();
    end.peer.structure = Some(BufferStructure::plain(4096));
    end.peer.smallest_result = 512;
    end
}

/// Checks what an end lists of placement to its peer and from it.
#[track_caller]
fn assert_listed(end: &Placement, side: Side, expected: [&str; 2]) {
    let mut agreed = AgreedFeatures::default();
    end.agreed(side, &mut agreed);
    let listed = [PLACED_THERE, PLACED_HERE].map(|name| {
        let feature = agreed.iter().find(|feature| feature.name == name);
        feature.map_or(String::new(), ToString::to_string)
    });
    let names = [PLACED_THERE, PLACED_HERE].into_iter().zip(expected);
    let expected: Vec<String> = names
        .map(|(name, text)| format!("{name}: {text}"))
        .collect();
    assert_eq!(listed, *expected);
}

const BOTH: &str = "yes (both ends have it)";
const OWN: &str = "no (this end's choice)";
const OWN_YES: &str = "yes (this end's choice)";

#[test]
fn the_reason_of_a_feature_names_the_end_that_lacks_it() {
    let [send, receive, all] = [(true, false), (false, true), (true, true)];
    let side = Side::Client;
    assert_listed(&announced(side, all), side, [BOTH, BOTH]);
    assert_listed(&announced(side, send), side, [BOTH, OWN]);
    assert_listed(&announced(side, receive), side, [OWN, BOTH]);
    let side = Side::Server;
    assert_listed(&announced(side, all), side, [BOTH, OWN_YES]);
    assert_listed(&announced(side, send), side, [BOTH, OWN]);
    assert_listed(&announced(side, receive), side, [OWN, OWN_YES]);
}

/// The reason is neither that the peer said nothing nor that it has not said anything yet.
#[test]
fn the_end_that_refused_properties_is_the_reason() {
    const PEER: &str = "no (the peer's choice)";
    let all = (true, true);
    for (side, here) in [(Side::Client, PEER), (Side::Server, OWN_YES)] {
        let mut end = announced(side, all);
        end.properties_refused = true;
        assert_listed(&end, side, [PEER, here]);
    }
    for side in [Side::Client, Side::Server] {
        let mut end = announced(side, all);
        end.peer_refused = true;
        assert_listed(&end, side, [OWN, OWN]);
    }
}

#[test]
fn a_peer_that_has_refused_placed_calls_does_not_have_them() {
    let mut end = announced(Side::Client, (true, true));
    end.calls_refused = true;
    assert_listed(&end, Side::Client, ["no (the peer's choice)", BOTH]);
}
