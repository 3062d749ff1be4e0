//! Tests of version negotiation.

use std::time::Duration;

use bytes::Bytes;
use quickcheck::quickcheck;
use rpcrdma_negotiation::{
    Asked, Choice, ClientNegotiation, Evidence, FirstHeard, Heard, KnownServers, ServerNegotiation,
    ServerReaction, Version, VersionAction, VersionDecision, VersionReason, Versions,
    decide_version,
};

const XID: u32 = 0x1234_5678;
const PATIENCE: Duration = Duration::from_secs(2);
const START: Duration = Duration::from_secs(100);

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a client that has sent its first message.
fn asking(choice: Choice) -> ClientNegotiation {
    let mut client = ClientNegotiation::new(choice, None, PATIENCE);
    assert_eq!(client.connected(XID, START), Asked::Ask);
    assert_eq!(client.version(), None);
    client
}

fn speak(version: Version, reason: VersionReason) -> VersionDecision {
    VersionDecision {
        action: VersionAction::Use(version),
        reason,
    }
}

const ONLY_TWO: Choice = Choice::Only(Version::Two);

#[test]
fn v2_s5_1_a_server_that_answers_in_version_2_speaks_it() {
    for answer in [
        // An optional operation, a reply and an error for the first message are all version 2.
        &[XID, 2, 32, 5, 1, 1, 0][..],
        &[7, 2, 32, 0, 0, 0, 0, 0],
        &[XID, 2, 32, 4, 3],
        &[XID, 2, 32, 4, 2],
    ] {
        for choice in [Choice::Auto, ONLY_TWO] {
            let mut client = asking(choice);
            let expected = Heard::Decides(speak(Version::Two, VersionReason::Answered));
            assert_eq!(client.received(&words(answer)), expected, "{answer:?}");
            assert_eq!(client.version(), Some(Version::Two));
            assert_eq!(client.deadline(), None);
            let next = client.received(&words(answer));
            assert_eq!(next, Heard::Known(Version::Two));
            // The loss of the connection does not change the decision.
            assert_eq!(client.lost(), None);
        }
    }
}

#[test]
fn v2_s5_2_a_version_error_means_version_1_on_the_same_connection() {
    for version in [
        // Linux uses the version of the message it answers, as RFC 8166 says; others use their own.
        2, 1,
    ] {
        let error = words(&[XID, version, 64, 4, 1, 1, 1]);
        let mut client = asking(Choice::Auto);
        let decision = speak(Version::One, VersionReason::ShownNow(Evidence::Refused));
        assert_eq!(client.received(&error), Heard::DecidesOnly(decision));
        assert_eq!(client.version(), Some(Version::One));
        assert_eq!(client.received(&error), Heard::Known(Version::One));
        let mut client = asking(ONLY_TWO);
        let decision = VersionDecision {
            action: VersionAction::GiveUp,
            reason: VersionReason::VersionOneOnly(Evidence::Refused),
        };
        assert_eq!(client.received(&error), Heard::DecidesOnly(decision));
        assert_eq!(client.version(), None);
        assert_eq!(client.received(&error), Heard::Nothing);
    }
}

#[test]
fn v2_s5_2_a_version_is_selected_from_the_range_of_the_error() {
    for (low, high, version) in [
        (1, 1, Some(Version::One)),
        (0, 9, Some(Version::One)),
        (3, 4, None),
        (0, 0, None),
        (2, 1, None),
        (u32::MAX, 0, None),
    ] {
        let mut client = asking(Choice::Auto);
        let error = words(&[XID, 2, 1, 4, 1, low, high]);
        let Heard::DecidesOnly(decision) = client.received(&error) else {
            panic!("it decides");
        };
        assert_eq!(client.version(), version, "{decision}");
        if version.is_none() {
            assert_eq!(decision.reason, VersionReason::NoneInCommon { low, high });
        }
    }
}

#[test]
fn an_answer_in_version_1_means_version_1() {
    for answer in [
        &[XID, 1, 32, 0, 0, 0, 0][..],
        &[7, 1, 32, 1, 0, 0, 0],
        &[XID, 1, 32, 4, 2],
    ] {
        let mut client = asking(Choice::Auto);
        let decision = speak(
            Version::One,
            VersionReason::ShownNow(Evidence::AnsweredVersion1),
        );
        let heard = client.received(&words(answer));
        assert_eq!(heard, Heard::Decides(decision));
    }
}

#[test]
fn unrelated_messages_do_not_end_the_wait() {
    for message in [
        &[][..],
        &[XID, 2, 1],
        // A version error for a message that was never sent, and an unknown version.
        &[7, 2, 1, 4, 1, 1, 1],
        &[XID, 3, 1, 0, 0, 0, 0],
    ] {
        let mut client = asking(Choice::Auto);
        assert_eq!(client.received(&words(message)), Heard::Nothing);
        assert_eq!(
            (client.decision(), client.deadline()),
            (None, Some(START + PATIENCE))
        );
    }
}

#[test]
fn v2_s5_2_a_lost_connection_or_silence_means_version_1_on_a_new_one() {
    let reconnect = |evidence| VersionDecision {
        action: VersionAction::Reconnect(Version::One),
        reason: VersionReason::ShownNow(evidence),
    };
    let mut client = asking(Choice::Auto);
    assert_eq!(client.lost(), Some(reconnect(Evidence::Dropped)));
    assert_eq!(client.version(), None);
    let mut client = asking(Choice::Auto);
    let almost = START + PATIENCE - Duration::from_nanos(1);
    assert_eq!(client.expired(almost), None);
    let decision = reconnect(Evidence::NoAnswer);
    assert_eq!(client.expired(START + PATIENCE), Some(decision));
    assert_eq!(client.expired(START + PATIENCE), None);
    assert_eq!(client.lost(), None);
    // A late answer does not count.
    let late = words(&[XID, 2, 32, 4, 3]);
    assert_eq!(client.received(&late), Heard::Nothing);
    let gives_up = asking(ONLY_TWO).lost().expect("a decision");
    assert_eq!(gives_up.action, VersionAction::GiveUp);
}

#[test]
fn a_client_of_version_1_does_not_ask() {
    let mut client = ClientNegotiation::new(Choice::Only(Version::One), None, PATIENCE);
    let decision = speak(Version::One, VersionReason::Configured);
    assert_eq!(client.connected(XID, START), Asked::Speak(decision));
    assert_eq!(client.version(), Some(Version::One));
    assert_eq!(client.deadline(), None);
}

#[test]
fn v2_s5_2_what_was_learnt_is_remembered_until_a_connection_that_used_it_has_ended() {
    let mut memory = KnownServers::default();
    let learnt = |memory: &mut KnownServers<&str>, did: &ServerReaction| {
        let decision = decide_version(Choice::Auto, did);
        memory.decided("server", &decision);
        decision
    };
    for did in [
        ServerReaction::RefusedVersion { low: 1, high: 1 },
        ServerReaction::Answered(Version::One),
        ServerReaction::Dropped,
        ServerReaction::NoAnswer,
    ] {
        let decision = learnt(&mut memory, &did);
        // The connection was lost at once, and the evidence stays: there is no reconnect loop.
        memory.ended(&"server", &decision, false);
        let evidence = memory.evidence(&"server").expect("it is known");
        assert_eq!(memory.evidence(&"another"), None);
        let mut client = ClientNegotiation::new(Choice::Auto, Some(evidence), PATIENCE);
        let Asked::Speak(decision) = client.connected(XID, START) else {
            panic!("it is not asked again");
        };
        assert_eq!(
            decision,
            speak(Version::One, VersionReason::Remembered(evidence))
        );
        memory.decided("server", &decision);
        memory.ended(&"server", &decision, false);
        assert_eq!(memory.evidence(&"server"), Some(evidence));
        // A reply came over the connection, so the next connection asks again.
        memory.ended(&"server", &decision, true);
        assert_eq!(memory.evidence(&"server"), None);
    }
    // A server that was replaced by a newer one.
    learnt(&mut memory, &ServerReaction::Dropped);
    learnt(&mut memory, &ServerReaction::Answered(Version::Two));
    assert_eq!(memory.evidence(&"server"), None);
}

#[test]
fn only_so_many_servers_are_remembered() {
    let mut memory = KnownServers::default();
    let decision = decide_version(Choice::Auto, &ServerReaction::Dropped);
    for server in 0..300 {
        memory.decided(server, &decision);
    }
    assert_eq!(memory.evidence(&43), None);
    assert_eq!(memory.evidence(&44), Some(Evidence::Dropped));
}

#[test]
fn v2_s5_2_the_memory_does_not_change_what_the_user_asked_for() {
    let mut client = ClientNegotiation::new(ONLY_TWO, Some(Evidence::Dropped), PATIENCE);
    assert_eq!(client.connected(XID, START), Asked::Ask);
}

#[test]
fn v2_s5_3_a_server_answers_in_the_version_of_the_first_message() {
    for (version, number) in [(Version::One, 1), (Version::Two, 2)] {
        let mut server = ServerNegotiation::new(Versions::default());
        assert_eq!(server.decision(), None);
        let heard = server.received(&words(&[XID, number, 32, 0, 0, 0, 0]));
        assert_eq!(heard, FirstHeard::Speak(version));
        assert_eq!(server.version(), Some(version));
        assert_eq!(
            server.decision(),
            Some(speak(version, VersionReason::ClientBegan))
        );
    }
}

#[test]
fn v2_s5_2_versions_that_are_not_accepted_are_refused_with_those_that_are() {
    for (accepts, number, low, high) in [
        ("1", 2, 1, 1),
        ("2", 1, 2, 2),
        ("1,2", 3, 1, 2),
        ("2,1", 0, 1, 2),
    ] {
        let accepts: Versions = accepts.parse().expect("versions");
        let mut server = ServerNegotiation::new(accepts);
        let FirstHeard::Refused(answer) = server.received(&words(&[XID, number, 32, 0, 0, 0, 0]))
        else {
            panic!("refused");
        };
        // The XID and version are those of the refused message; a version 1 peer decodes the same
        // fields.
        assert_eq!(answer.encode(9), words(&[XID, number, 9, 4, 1, low, high]));
        // The connection survives, and no version is settled.
        assert_eq!(server.version(), None);
        let spoken = accepts.high();
        let heard = server.received(&words(&[XID, spoken.number(), 32, 0, 0, 0, 0]));
        assert_eq!(heard, FirstHeard::Speak(spoken));
    }
    let v1 = rpcrdma_v1::Answer {
        xid: XID,
        version: 2,
        error: rpcrdma_v1::ErrorBody::Version { low: 1, high: 1 },
    };
    let v2 = rpcrdma_v2::Answer {
        xid: XID,
        version: 2,
        error: rpcrdma_v2::ErrorBody::Version { low: 1, high: 1 },
    };
    assert_eq!(v1.encode(9), v2.encode(9));
}

#[test]
fn rfc8167_s5_1_the_version_stays_what_it_is() {
    let mut server = ServerNegotiation::new(Versions::default());
    server.received(&words(&[XID, 2, 32, 0, 0, 0, 0, 0]));
    for number in [1, 3] {
        let FirstHeard::Refused(answer) = server.received(&words(&[XID, number, 32, 0, 0, 0, 0]))
        else {
            panic!("refused");
        };
        // The error names the only version of this connection.
        assert_eq!(answer.encode(9), words(&[XID, number, 9, 4, 1, 2, 2]));
    }
    let heard = server.received(&words(&[XID, 2, 32]));
    assert_eq!(heard, FirstHeard::Discarded);
    let short = words(&[XID, 2, 32, 0]);
    assert_eq!(server.received(&short), FirstHeard::Speak(Version::Two));
}

#[test]
fn errors_and_short_messages_do_not_settle_the_version() {
    for message in [
        &[][..],
        &[XID, 2, 32],
        &[XID, 2, 32, 0, 0, 0],
        &[XID, 1, 32, 4, 2],
        &[XID, 2, 32, 4, 1, 1, 1],
        &[XID, 7, 32, 4, 2],
    ] {
        let mut server = ServerNegotiation::new(Versions::default());
        assert_eq!(server.received(&words(message)), FirstHeard::Discarded);
        assert_eq!(server.version(), None, "{message:?}");
    }
}

#[test]
fn all_pairings_find_the_version_and_say_why() {
    let choices = [Choice::Auto, Choice::Only(Version::One), ONLY_TWO];
    for choice in choices {
        for (accepts, auto) in [
            ("1", "version 1: the server refused version 2 and speaks 1"),
            ("2", "version 2: the server answered in it"),
            ("1,2", "version 2: the server answered in it"),
        ] {
            let accepts: Versions = accepts.parse().expect("versions");
            let mut client = ClientNegotiation::new(choice, None, PATIENCE);
            let mut server = ServerNegotiation::new(accepts);
            if client.connected(XID, START) == Asked::Ask {
                let answer = match server.received(&words(&[XID, 2, 32, 5, 0, 1, 0])) {
                    FirstHeard::Speak(version) => words(&[XID, version.number(), 32, 5, 1, 1, 0]),
                    FirstHeard::Refused(answer) => answer.encode(32),
                    FirstHeard::Discarded => panic!("an answer"),
                };
                client.received(&answer);
            }
            let decision = client.decision().expect("it is decided");
            let Some(version) = client.version() else {
                let expected = "no version in common: the server refused version 2 and speaks 1";
                assert_eq!(decision.to_string(), expected);
                continue;
            };
            let heard = server.received(&words(&[XID, version.number(), 32, 0, 0, 0, 0]));
            match accepts.contains(version) {
                true => assert_eq!(heard, FirstHeard::Speak(version)),
                false => assert!(matches!(heard, FirstHeard::Refused(_))),
            }
            if choice == Choice::Auto {
                assert_eq!(decision.to_string(), auto);
            }
        }
    }
}

#[test]
fn choices_are_parsed_and_printed() {
    for name in ["auto", "1", "2"] {
        let choice: Choice = name.parse().expect("a choice");
        assert_eq!(choice.to_string(), name);
    }
    for (name, printed) in [("1", "1"), ("2", "2"), ("1,2", "1,2"), ("2, 1", "1,2")] {
        let versions: Versions = name.parse().expect("versions");
        assert_eq!(versions.to_string(), printed);
    }
    for name in ["", "3", "1-2", "auto,1", "1,,2", "1,2,3"] {
        assert!(name.parse::<Versions>().is_err(), "{name}");
    }
    let error = "two".parse::<Choice>().unwrap_err();
    assert_eq!(error.to_string(), "\"two\" is not 1, 2 or auto");
}

quickcheck! {
    fn arbitrary_messages_do_not_panic(messages: Vec<Vec<u8>>, choose_two: bool) -> bool {
        let mut client = asking(if choose_two { ONLY_TWO } else { Choice::Auto });
        let mut server = ServerNegotiation::new(Versions::default());
        messages.iter().all(|message| {
            let before = (client.decision(), server.version());
            client.received(message);
            server.received(message);
            // A decision never changes.
            before.0.is_none_or(|decision| client.decision() == Some(decision))
                && before.1.is_none_or(|version| server.version() == Some(version))
        })
    }

    fn arbitrary_words_do_not_panic(version: u32, procedure: u32, rest: Vec<u32>) -> bool {
        let message = words(&[&[XID, version % 4, 1, procedure % 6], &rest[..]].concat());
        let mut client = asking(Choice::Auto);
        let heard = client.received(&message);
        let mut server = ServerNegotiation::new(Versions::default());
        let spoken = server.received(&message);
        let decided = !matches!(heard, Heard::Nothing);
        decided == client.decision().is_some()
            && matches!(spoken, FirstHeard::Speak(_)) == server.version().is_some()
    }
}
