//! Tests of version negotiation.

use std::borrow::Borrow;
use std::time::Duration;

use bytes::Bytes;
use quickcheck::quickcheck;
use rpcrdma_connection::Protocols;
use rpcrdma_connection::dialect::{Dialect, STANDARD};
use rpcrdma_negotiation::{
    Choice, Evidence, FirstMessage, FirstStep, KnownServers, KnownVersions, Negotiable,
    ProbeAnswer, Refusal, RefusalError, Shown, Version, VersionAction, VersionDecision,
    VersionProbe, VersionReason, Versions, decide_first_step,
};

const XID: u32 = 0x1234_5678;
const PATIENCE: Duration = Duration::from_secs(2);
const START: Duration = Duration::from_secs(100);

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A version that is known by its number alone.
#[derive(Debug)]
struct Nine;

const NINE: Version = Version::new(9, "9");

impl Negotiable for Nine {
    fn version(&self) -> Version {
        NINE
    }
}

/// Returns the versions of this project.
fn known() -> KnownVersions {
    Protocols::default().known().clone()
}

/// Returns the versions of this project, and version 9.
fn known_with_nine() -> KnownVersions {
    let known = STANDARD
        .iter()
        .map(|&known: &&'static dyn Dialect| known as &dyn Negotiable);
    known.chain([&Nine as &dyn Negotiable]).collect()
}

fn decide_first_message(accepts: impl Borrow<Versions>, message: &[u8]) -> FirstMessage {
    rpcrdma_negotiation::decide_first_message(&known(), accepts.borrow(), message)
}

/// Returns the decision that a client can make before it sends anything.
fn decide_without_probe(choice: Choice, remembered: Option<Evidence>) -> Option<VersionDecision> {
    match decide_first_step(&known_with_nine(), choice, remembered) {
        Some(FirstStep::Decided(decision)) => Some(decision),
        _ => None,
    }
}

/// Returns the version that a client asks a server for, of which it knows nothing.
fn asked_for(choice: Choice) -> Version {
    match decide_first_step(&known(), choice, None) {
        Some(FirstStep::Ask(version)) => version,
        step => panic!("{choice}: {step:?}"),
    }
}

/// Returns the probe of a client that knows nothing of its server.
fn probe(choice: Choice) -> VersionProbe {
    VersionProbe::new(known(), choice, asked_for(choice), XID, START + PATIENCE)
}

/// Returns what a server showed that is asked for version 2 of the working group, and speaks
/// version 1 or is assumed to.
fn evidence(shown: Shown) -> Evidence {
    evidence_against(Version::TWO_WG, shown)
}

fn evidence_against(asked: Version, shown: Shown) -> Evidence {
    Evidence {
        asked,
        speaks: Some(Version::ONE),
        shown,
    }
}

/// Returns the probe of a client that may use all versions, after the server has shown that it
/// speaks version 2 of 2016.
fn asked_again() -> VersionProbe {
    let again = probe(Choice::Auto).again(Version::TWO);
    assert_eq!((again.asked(), again.xid()), (Version::TWO, XID + 1));
    assert_eq!(again.deadline(), START + PATIENCE);
    again
}

fn speak(version: Version, reason: VersionReason) -> VersionDecision {
    VersionDecision {
        action: VersionAction::Use(version),
        reason,
    }
}

const ONLY_TWO: Choice = Choice::Only(Version::TWO);

#[test]
fn v2_s5_1_a_server_that_answers_in_version_2_speaks_it() {
    for answer in [
        // An optional operation, a reply and an error for the first message are all version 2.
        &[XID, 2, 32, 5, 1, 1, 0][..],
        &[7, 2, 32, 0, 0, 0, 0, 0],
        &[XID, 2, 32, 4, 3],
        &[XID, 2, 32, 4, 2],
    ] {
        for probe in [probe(ONLY_TWO), asked_again()] {
            let expected = ProbeAnswer::Message(speak(Version::TWO, VersionReason::Answered));
            let answer = [&[answer[0].max(probe.xid())], &answer[1..]].concat();
            let answered = probe.received(&words(&answer));
            assert_eq!(answered, expected, "{answer:?}");
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
        let shown = VersionReason::ShownNow(evidence(Shown::Refused));
        let decision = speak(Version::ONE, shown);
        let answered = probe(Choice::Auto).received(&error);
        assert_eq!(answered, ProbeAnswer::VersionError(decision));
        let shown = evidence_against(Version::TWO, Shown::Refused);
        let decision = VersionDecision {
            action: VersionAction::GiveUp,
            reason: VersionReason::OtherOnly(shown),
        };
        let answered = probe(ONLY_TWO).received(&error);
        assert_eq!(answered, ProbeAnswer::VersionError(decision));
    }
}

#[test]
fn v2_s5_2_a_version_is_selected_from_the_range_of_the_error() {
    for (low, high, version) in [
        (1, 1, Some(Version::ONE)),
        (0, 9, Some(Version::ONE)),
        (3, 4, None),
        (0, 0, None),
        (2, 1, None),
        (u32::MAX, 0, None),
    ] {
        let error = words(&[XID, 2, 1, 4, 1, low, high]);
        let ProbeAnswer::VersionError(decision) = probe(Choice::Auto).received(&error) else {
            panic!("it decides");
        };
        match version {
            Some(version) => assert_eq!(decision.action, VersionAction::Use(version)),
            None => {
                assert_eq!(decision.action, VersionAction::GiveUp);
                let asked = 2;
                let none = VersionReason::NoneInCommon { asked, low, high };
                assert_eq!(decision.reason, none);
            }
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
        let decision = speak(
            Version::ONE,
            VersionReason::ShownNow(evidence(Shown::Answered)),
        );
        let answered = probe(Choice::Auto).received(&words(answer));
        assert_eq!(answered, ProbeAnswer::Message(decision));
    }
}

/// Of the versions that a server may speak beside the one it was asked for, a client goes on in the
/// first that it may use.
#[test]
fn an_answer_in_a_version_of_the_programs_own_is_one_if_the_client_knows_it() {
    let answer = words(&[XID, 9, 32, 0, 0, 0, 0]);
    let asked = Version::TWO_WG;
    let probe = |choice| VersionProbe::new(known_with_nine(), choice, asked, XID, START);
    let shown = Evidence {
        asked,
        speaks: Some(NINE),
        shown: Shown::Answered,
    };
    let used = speak(NINE, VersionReason::ShownNow(shown));
    let answered = probe(Choice::Auto).received(&answer);
    assert_eq!(answered, ProbeAnswer::Message(used));
    let only = VersionDecision {
        action: VersionAction::GiveUp,
        reason: VersionReason::OtherOnly(shown),
    };
    let answered = probe(Choice::Only(asked)).received(&answer);
    assert_eq!(answered, ProbeAnswer::Message(only));
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
        let answered = probe(Choice::Auto).received(&words(message));
        assert_eq!(answered, ProbeAnswer::Unrelated, "{message:?}");
    }
}

#[test]
fn v2_s5_2_a_lost_connection_or_silence_means_version_1_on_a_new_one() {
    let reconnect = |shown| VersionDecision {
        action: VersionAction::Reconnect(Version::ONE),
        reason: VersionReason::ShownNow(evidence(shown)),
    };
    let client = probe(Choice::Auto);
    assert_eq!(client.lost(), reconnect(Shown::Dropped));
    assert_eq!(client.deadline(), START + PATIENCE);
    let almost = START + PATIENCE - Duration::from_nanos(1);
    assert_eq!(client.expired(almost), None);
    let decision = reconnect(Shown::NoAnswer);
    assert_eq!(client.expired(START + PATIENCE), Some(decision));
    assert_eq!(probe(ONLY_TWO).lost().action, VersionAction::GiveUp);
}

#[test]
fn a_client_of_one_version_other_than_2_does_not_ask() {
    for version in [Version::ONE, NINE] {
        let decision = speak(version, VersionReason::Configured);
        let known = decide_without_probe(Choice::Only(version), None);
        assert_eq!(known, Some(decision));
    }
}

#[test]
fn v2_s5_2_what_was_learnt_is_remembered_until_a_connection_that_used_it_has_ended() {
    let mut memory = KnownServers::default();
    let client = probe(Choice::Auto);
    let message = |words_of: &[u32]| match client.received(&words(words_of)) {
        ProbeAnswer::Message(decision) | ProbeAnswer::VersionError(decision) => decision,
        answer => panic!("{answer:?}"),
    };
    for decision in [
        message(&[XID, 2, 64, 4, 1, 1, 1]),
        message(&[XID, 1, 32, 0, 0, 0, 0]),
        client.lost(),
        client.expired(START + PATIENCE).expect("it has expired"),
    ] {
        memory.decided("server", &decision);
        // The connection was lost at once, and the evidence stays: there is no reconnect loop.
        memory.ended(&"server", &decision, false);
        let evidence = memory.evidence(&"server").expect("it is known");
        assert_eq!(memory.evidence(&"another"), None);
        let known = decide_without_probe(Choice::Auto, Some(evidence));
        let decision = known.expect("it is not asked again");
        assert_eq!(
            decision,
            speak(Version::ONE, VersionReason::Remembered(evidence))
        );
        memory.decided("server", &decision);
        memory.ended(&"server", &decision, false);
        assert_eq!(memory.evidence(&"server"), Some(evidence));
        // A reply came over the connection, so the next connection asks again.
        memory.ended(&"server", &decision, true);
        assert_eq!(memory.evidence(&"server"), None);
    }
    // A server that was replaced by a newer one.
    memory.decided("server", &client.lost());
    memory.decided("server", &message(&CONNPROP_FINAL));
    assert_eq!(memory.evidence(&"server"), None);
}

#[test]
fn only_so_many_servers_are_remembered() {
    let mut memory = KnownServers::default();
    let decision = probe(Choice::Auto).lost();
    for server in 0..300 {
        memory.decided(server, &decision);
    }
    assert_eq!(memory.evidence(&43), None);
    assert_eq!(memory.evidence(&44), Some(evidence(Shown::Dropped)));
}

#[test]
fn v2_s5_2_the_memory_does_not_change_what_the_user_asked_for() {
    let known = decide_without_probe(ONLY_TWO, Some(evidence(Shown::Dropped)));
    assert_eq!(known, None);
}

#[test]
fn v2_s5_3_a_server_answers_in_the_version_of_the_first_message() {
    for (version, number) in [(Version::ONE, 1), (Version::TWO, 2)] {
        let first = words(&[XID, number, 32, 0, 0, 0, 0]);
        let first = decide_first_message(Versions::default(), &first);
        assert_eq!(first, FirstMessage::Use(version));
        let decision = VersionDecision::by_client(version).to_string();
        assert_eq!(
            decision,
            format!("version {number}: the client began with it")
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
        let accepts = known().parse_versions(accepts).expect("versions");
        let first = words(&[XID, number, 32, 0, 0, 0, 0]);
        let FirstMessage::Refuse(answer) = decide_first_message(accepts, &first) else {
            panic!("refused");
        };
        // The XID and version are those of the refused message; a version 1 peer decodes the same
        // fields.
        assert_eq!(answer.encode(9), words(&[XID, number, 9, 4, 1, low, high]));
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
fn errors_and_short_messages_do_not_settle_the_version() {
    for message in [
        &[][..],
        &[XID, 2, 32],
        &[XID, 2, 32, 0, 0, 0],
        &[XID, 1, 32, 4, 2],
        &[XID, 2, 32, 4, 1, 1, 1],
        &[XID, 7, 32, 4, 2],
    ] {
        let first = decide_first_message(Versions::default(), &words(message));
        assert_eq!(first, FirstMessage::Discard, "{message:?}");
    }
    // Messages of another version have the lengths and error codes of their own dialect.
    let of_nine = |message: &[u32]| {
        let (known, nine) = (known_with_nine(), Versions::only(NINE));
        rpcrdma_negotiation::decide_first_message(&known, &nine, &words(message))
    };
    for message in [&[XID, 9, 32, 4][..], &[XID, 9, 32, 0, 0]] {
        assert_eq!(of_nine(message), FirstMessage::Use(NINE), "{message:?}");
    }
    let short = of_nine(&[XID, 9, 32]);
    assert_eq!(short, FirstMessage::Discard);
}

/// Returns the answer of a server that accepts these versions to the message of a probe. It answers
/// a header type that its version does not have with an error of that version.
fn answer_to(probe: &VersionProbe, accepts: &Versions) -> Bytes {
    let xid = probe.xid();
    let first = match probe.asked() {
        Version::TWO_WG => [xid, 2, 32, 7, 1, 1, 4, 4096],
        _ => [xid, 2, 32, 5, 0, 1, 0, 0],
    };
    match decide_first_message(accepts, &words(&first)) {
        FirstMessage::Use(used) => match (used, used == probe.asked()) {
            (Version::TWO_WG, true) => words(&[xid, 2, 32, 7, 0]),
            (Version::TWO_WG, false) => words(&[xid, 2, 32, 4, 4]),
            (_, true) => words(&[xid, 2, 32, 5, 1, 1, 0]),
            (_, false) => words(&[xid, 2, 32, 4, 2]),
        },
        FirstMessage::Refuse(answer) => answer.encode(32),
        FirstMessage::Discard => panic!("an answer"),
    }
}

#[test]
fn all_pairings_find_the_version_and_say_why() {
    let refused = "version 1: the server refused version 2 and speaks 1";
    let answered = "version 2: the server answered in it";
    let configured = "version 1: as asked for";
    let working_group = "version 2wg: the server answered in it";
    let nothing = "no version in common: the server refused version 2 and speaks 1";
    let other = "no version in common: the server answered in version 2";
    // The client's choice, what the server accepts, the client's decision, and the version of the
    // connection. A client that is to speak version 1 only learns from its first call that the
    // server does not.
    for (choice, accepts, decided, spoken) in [
        ("auto", "1", refused, Some(Version::ONE)),
        ("auto", "2", answered, Some(Version::TWO)),
        ("auto", "1,2", answered, Some(Version::TWO)),
        ("auto", "2wg", working_group, Some(Version::TWO_WG)),
        ("auto", "1,2wg", working_group, Some(Version::TWO_WG)),
        ("auto", "2,2wg", working_group, Some(Version::TWO_WG)),
        ("auto", "1,2,2wg", working_group, Some(Version::TWO_WG)),
        ("2wg", "1", nothing, None),
        ("2wg", "1,2", other, None),
        ("2wg", "1,2wg", working_group, Some(Version::TWO_WG)),
        ("2", "1,2,2wg", answered, Some(Version::TWO)),
        ("1", "1,2,2wg", configured, Some(Version::ONE)),
        ("1", "1", configured, Some(Version::ONE)),
        ("1", "2", configured, None),
        ("1", "1,2", configured, Some(Version::ONE)),
        ("2", "1", nothing, None),
        ("2", "2", answered, Some(Version::TWO)),
        ("2", "1,2", answered, Some(Version::TWO)),
    ] {
        let pairing = format!("client {choice}, server {accepts}");
        let choice = known().parse_choice(choice).expect("a choice");
        let accepts = known().parse_versions(accepts).expect("versions");
        let decision = decide_without_probe(choice, None).unwrap_or_else(|| {
            let probe = probe(choice);
            match probe.received(&answer_to(&probe, &accepts)) {
                ProbeAnswer::Message(decision) | ProbeAnswer::VersionError(decision) => decision,
                ProbeAnswer::AskFor(version) => {
                    let probe = probe.again(version);
                    match probe.received(&answer_to(&probe, &accepts)) {
                        ProbeAnswer::Message(decision) => decision,
                        answer => panic!("{answer:?}"),
                    }
                }
                ProbeAnswer::Unrelated => panic!("it decides"),
            }
        });
        assert_eq!(decision.to_string(), decided, "{pairing}");
        let used = match decision.action {
            VersionAction::Use(version) => {
                let kind = match version {
                    Version::TWO_WG => CALL_INLINE,
                    _ => 0,
                };
                let call = words(&[XID, version.number(), 32, kind, 0, 0, 0]);
                match decide_first_message(&accepts, &call) {
                    FirstMessage::Use(version) => Some(version),
                    FirstMessage::Refuse(_) => None,
                    FirstMessage::Discard => panic!("{pairing}: an answer"),
                }
            }
            VersionAction::Reconnect(_) => panic!("{pairing}: the connection is kept"),
            VersionAction::GiveUp => None,
        };
        assert_eq!(used, spoken, "{pairing}");
    }
}

#[test]
fn choices_are_parsed_and_printed() {
    for name in ["auto", "1", "2", "2wg"] {
        let choice = known().parse_choice(name).expect("a choice");
        assert_eq!(choice.to_string(), name);
    }
    for (name, printed) in [
        ("1", "1"),
        ("2", "2"),
        ("1,2", "1,2"),
        ("2, 1", "1,2"),
        ("2wg,1", "1,2wg"),
        ("2wg,2,1", "1,2,2wg"),
    ] {
        let versions = known().parse_versions(name).expect("versions");
        assert_eq!(versions.to_string(), printed);
    }
    for name in ["", "3", "1-2", "auto,1", "1,,2", "1,2,3", "wg", "2WG"] {
        assert!(known().parse_versions(name).is_err(), "{name}");
    }
    let error = known().parse_choice("two").unwrap_err();
    assert_eq!(error.to_string(), "\"two\" is not 1, 2, 2wg or auto");
    let error = known().parse_versions("1,,2").unwrap_err();
    let expected = "\"1,,2\" is not some of 1, 2 and 2wg, as in 1,2";
    assert_eq!(error.to_string(), expected);
    assert_eq!(known().names(), "1,2,2wg");
}

/// RDMA2_CALL_INLINE of the working group's version 2.
const CALL_INLINE: u32 = 10;
/// RDMA2_GRANT, RDMA2_CONNPROP_MIDDLE and RDMA2_CONNPROP_FINAL of the working group's version 2.
const GRANT: [u32; 4] = [0, 2, 9, 5];
const CONNPROP_MIDDLE: [u32; 5] = [XID, 2, 9, 6, 0];
const CONNPROP_FINAL: [u32; 5] = [XID, 2, 9, 7, 0];
/// RDMA2_OPTIONAL of 2016: its first words are those of a grant.
const OPTIONAL: [u32; 7] = [XID, 2, 9, 5, 0, 1, 0];

#[test]
fn wg_s4_3_3_the_first_message_tells_the_two_versions_2_apart() {
    for (message, version) in [
        (&CONNPROP_MIDDLE[..], Version::TWO_WG),
        (&CONNPROP_FINAL, Version::TWO_WG),
        (&GRANT, Version::TWO_WG),
        (&[XID, 2, 9, 10, 0, 0, 0, 0, XID, 0], Version::TWO_WG),
        (&[XID, 2, 9, 0xffff_ff00, 0, 0, 0], Version::TWO_WG),
        (&OPTIONAL, Version::TWO),
        (&[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0], Version::TWO),
        (&[XID, 1, 9, 0, 0, 0, 0, XID, 0], Version::ONE),
    ] {
        let first = |accepts: Versions| decide_first_message(accepts, &words(message));
        assert_eq!(
            first(Versions::default()),
            FirstMessage::Use(version),
            "{message:?}"
        );
        // A server with one of them answers in that one. The client of the working group's version
        // may begin again.
        let used = first(Versions::only(Version::TWO_WG)) == FirstMessage::Use(Version::TWO_WG);
        assert_eq!(used, version != Version::ONE, "{message:?}");
        let of_2016 = first(Versions::only(Version::TWO));
        let expected = match version {
            _ if message.len() < 7 => FirstMessage::Discard,
            Version::TWO => FirstMessage::Use(version),
            Version::TWO_WG => FirstMessage::Refuse(Refusal {
                xid: message[0],
                version: 2,
                error: RefusalError::Code(2),
            }),
            _ => continue,
        };
        assert_eq!(of_2016, expected, "{message:?}");
    }
    // A client that knows nothing of the working group's version may know version 1.
    let accepts = Versions::only(Version::ONE).with(Version::TWO_WG);
    let probe = words(&[XID, 2, 9, 5, 0, 0, 0, 0]);
    let FirstMessage::Refuse(answer) = decide_first_message(accepts, &probe) else {
        panic!("accepted");
    };
    let (low, high) = (1, 1);
    assert_eq!(answer.error, RefusalError::Version { low, high });
    // An error settles nothing.
    let error = words(&[XID, 2, 9, 4, 2]);
    let first = decide_first_message(Versions::default(), &error);
    assert_eq!(first, FirstMessage::Discard);
}

#[test]
fn wg_s4_3_a_client_finds_which_version_2_the_server_speaks() {
    let only = Choice::Only(Version::TWO_WG);
    for (choice, message, version) in [
        (only, &CONNPROP_FINAL[..], Version::TWO_WG),
        (only, &CONNPROP_MIDDLE, Version::TWO_WG),
        (only, &GRANT, Version::TWO_WG),
        // RDMA2_ERR_BAD_PROPVAL for the client's properties.
        (only, &[XID, 2, 9, 4, 3], Version::TWO_WG),
        (only, &OPTIONAL, Version::TWO),
        (only, &[XID, 2, 9, 4, 2], Version::TWO),
        (ONLY_TWO, &OPTIONAL, Version::TWO),
        (ONLY_TWO, &[XID, 2, 9, 4, 3], Version::TWO),
        (ONLY_TWO, &[XID, 2, 9, 4, 4], Version::TWO_WG),
        (ONLY_TWO, &CONNPROP_FINAL, Version::TWO_WG),
    ] {
        let asked = asked_for(choice);
        let decision = match version == asked {
            true => speak(version, VersionReason::Answered),
            false => VersionDecision {
                action: VersionAction::GiveUp,
                reason: VersionReason::AnsweredInOther(version),
            },
        };
        let answer = probe(choice).received(&words(message));
        assert_eq!(
            answer,
            ProbeAnswer::Message(decision),
            "{choice} {message:?}"
        );
    }
    // A client that may use both is told to ask for the other one, but only once.
    for message in [&OPTIONAL[..], &[XID, 2, 9, 4, 2]] {
        let answer = probe(Choice::Auto).received(&words(message));
        assert_eq!(answer, ProbeAnswer::AskFor(Version::TWO), "{message:?}");
    }
    let answer = asked_again().received(&words(&CONNPROP_FINAL));
    let reason = VersionReason::AnsweredInOther(Version::TWO_WG);
    let action = VersionAction::GiveUp;
    let decision = VersionDecision { action, reason };
    assert_eq!(answer, ProbeAnswer::Message(decision));
    let text = VersionReason::AnsweredInOther(Version::TWO_WG).to_string();
    assert_eq!(text, "the server answered in version 2wg");
}

quickcheck! {
    /// Only a message that has all fixed fields, and for a server those of the shortest header,
    /// decides anything. Half of the messages are of a version that is spoken.
    fn arbitrary_messages_do_not_panic(
        message: Vec<u8>,
        known: Option<bool>,
        choose_two: bool
    ) -> bool {
        let mut message = message;
        if let (Some(two), Some(version)) = (known, message.get_mut(4..8)) {
            version.copy_from_slice(&[0, 0, 0, if two { 2 } else { 1 }]);
        }
        let client = probe(if choose_two { ONLY_TWO } else { Choice::Auto });
        let decides = client.received(&message) != ProbeAnswer::Unrelated;
        let accepts = Versions::only(Version::ONE).with(Version::TWO);
        let used = decide_first_message(accepts, &message) != FirstMessage::Discard;
        // An arbitrary message is no error for this client's message.
        let expected = known.is_some() && message.len() >= 16;
        let error = message.get(12..16) == Some(&[0, 0, 0, 4]);
        (decides == expected || error) && (!used || message.len() >= 28)
    }

    fn decisions_name_versions_that_may_be_used(version: u32, proc: u32, rest: Vec<u32>) -> bool {
        let message = words(&[&[XID, version % 4, 1, proc % 6], &rest[..]].concat());
        let two = match probe(ONLY_TWO).received(&message) {
            ProbeAnswer::Message(decision) | ProbeAnswer::VersionError(decision) => {
                decision.action == VersionAction::GiveUp
                    || decision.action == VersionAction::Use(Version::TWO)
            }
            ProbeAnswer::AskFor(_) => false,
            ProbeAnswer::Unrelated => true,
        };
        let accepts = Versions::only(Version::ONE);
        let used = decide_first_message(accepts, &message);
        two && match used {
            FirstMessage::Use(version) => version == Version::ONE,
            FirstMessage::Refuse(answer) => answer.version != 1,
            FirstMessage::Discard => true,
        }
    }
}
