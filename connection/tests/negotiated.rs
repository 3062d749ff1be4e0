//! Versions that are defined outside the crate, and negotiated: version 2 of 2016 with another
//! number, in which a client begins by a message that says hello, and that of the working group with
//! another number. Each is one entry in the list of versions.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use rpcrdma_chunks::Fixed;
use rpcrdma_connection::dialect::{
    Derived, Dialect, Negotiable, VersionOne, VersionTwo, VersionTwoWg,
};
use rpcrdma_connection::{Config, Direction, Event, Options, Protocols, Side};
use rpcrdma_extension::{EndConfig, Extension, Outbox, ReceivedMessage, Refusal, Start};
use rpcrdma_negotiation::{
    Choice, Evidence, Shown, Version, VersionAction, VersionDecision, VersionReason, Versions,
};
use support::{Endpoint, Pair, data, message, open, room};

const THIRD: Version = Version::new(3, "third");
const FOURTH: Version = Version::new(4, "fourth");
/// The message that says hello: from the range that nobody has assigned.
const HELLO: u32 = 0x7fff_0003;

#[derive(Clone, Debug)]
struct Third;

impl Negotiable for Third {
    fn version(&self) -> Version {
        THIRD
    }

    fn is_asked_for(&self) -> bool {
        true
    }
}

impl Derived for Third {
    fn base(&self) -> &'static dyn Dialect {
        &VersionTwo
    }

    fn own_extensions(&self, _: &EndConfig<'_>) -> Vec<Box<dyn Extension>> {
        vec![Box::new(Hello)]
    }
}

#[derive(Debug)]
struct Hello;

impl Extension for Hello {
    fn name(&self) -> &'static str {
        "hello"
    }

    fn numbers(&self) -> &[u32] {
        &[HELLO]
    }

    fn connected(&mut self, start: &Start, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(HELLO, Bytes::new());
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        match it.direction {
            Direction::Call => out.reply(it.xid, HELLO, Bytes::new()),
            Direction::Reply => out.answered(it.xid),
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Fourth;

impl Negotiable for Fourth {
    fn version(&self) -> Version {
        FOURTH
    }

    fn is_asked_for(&self) -> bool {
        true
    }
}

impl Derived for Fourth {
    fn base(&self) -> &'static dyn Dialect {
        &VersionTwoWg
    }
}

/// Returns the protocols that prefer the third version to all others.
fn protocols() -> Protocols {
    rpcrdma_protocols::base().preferring(&Third)
}

fn client(choice: Choice, protocols: Protocols) -> Config {
    support::client(choice, Options::client(protocols))
}

/// Joins a client with a server that knows these versions, and lets them agree.
fn joined(client: Config, protocols: Protocols) -> Pair {
    let options = Options::server(protocols);
    Pair::echoing((client, support::server(Versions::default(), options)))
}

#[test]
fn both_ends_find_the_best_version_that_they_have_in_common() {
    let answered = |version: &str| format!("version {version}: the server answered in it");
    let refused = "version 1: the server refused version 3 and speaks 1".to_owned();
    let (base, one) = (rpcrdma_protocols::base, [&VersionOne as &dyn Dialect]);
    let fourth = || base().preferring(&Fourth);
    for (ours, theirs, version, decision) in [
        (protocols(), protocols(), THIRD, answered("third")),
        // The server refuses version 3, and is asked for the next one.
        (protocols(), base(), Version::TWO_WG, answered("2wg")),
        (protocols(), base().speaking(one), Version::ONE, refused),
        (base(), protocols(), Version::TWO_WG, answered("2wg")),
        (fourth(), fourth(), FOURTH, answered("fourth")),
        (fourth(), base(), Version::TWO_WG, answered("2wg")),
        (base(), fourth(), Version::TWO_WG, answered("2wg")),
    ] {
        let mut pair = joined(client(Choice::Auto, ours), theirs);
        let decided = pair.client.connection.decision().unwrap();
        assert_eq!(decided.action, VersionAction::Use(version));
        assert_eq!(decided.to_string(), decision);
        // More calls than a client may send before it has got credits, with chunks and without.
        for (xid, len) in (1..40).zip([8, 9000, 100_000].into_iter().cycle()) {
            let sent = data(xid, len);
            let call = message(xid, 4, std::slice::from_ref(&sent));
            let reply = pair.call(call, &room(4, &[len])).unwrap();
            assert_eq!(open(&reply).2.concat(), sent);
        }
        let served = pair.server.connection.decision().unwrap();
        assert_eq!(served, VersionDecision::by_client(version));
        let (last, _) = pair.client.sent.last().unwrap();
        assert_eq!(Fixed::peek(last).unwrap().version, version.number());
        assert_eq!(pair.client.closed.or(pair.server.closed), None);
    }
}

#[test]
fn a_server_that_drops_the_connection_is_called_in_the_version_that_needs_no_question() {
    let mut client = Endpoint::new(client(Choice::Auto, protocols()));
    client.establish(None);
    client.handle(Event::Closed);
    client.run();
    let evidence = Evidence {
        asked: THIRD,
        speaks: Some(Version::ONE),
        shown: Shown::Dropped,
    };
    let expected = VersionDecision {
        action: VersionAction::Reconnect(Version::ONE),
        reason: VersionReason::ShownNow(evidence),
    };
    assert_eq!(client.decisions, [expected]);
}

#[test]
fn a_client_that_may_speak_this_version_only_gives_up_without_it() {
    let choice = protocols().known().parse_choice("third").unwrap();
    assert_eq!(choice, Choice::Only(THIRD));
    let pair = joined(client(choice, protocols()), rpcrdma_protocols::base());
    let decided = pair.client.decisions[0].to_string();
    let expected = "no version in common: the server refused version 3 and speaks 1";
    assert_eq!(decided, expected);
}

/// The server has received a message, and the client its refusal, before both speak version 2 of the
/// working group.
#[test]
fn wg_s4_2_1_messages_of_a_refused_version_count_at_both_ends() {
    let sent_credit = |end: &Endpoint, at: usize| Fixed::peek(&end.sent[at].0).unwrap().credits;
    let base = rpcrdma_protocols::base;
    let direct = joined(client(Choice::Auto, base()), base());
    let after_a_refusal = joined(client(Choice::Auto, protocols()), base());
    for (refused, direct) in [
        (&after_a_refusal.client, &direct.client),
        (&after_a_refusal.server, &direct.server),
    ] {
        assert_eq!(sent_credit(refused, 1), sent_credit(direct, 0) + 1);
    }
}
