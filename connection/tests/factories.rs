//! Tests of what a factory of extensions is told of a connection, and of what it can ask for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::{Arc, Mutex};

use rpcrdma_connection::dialect::VersionTwoWg;
use rpcrdma_connection::{CallbackOptions, Config, Options, Protocols, ReceiveStructure};
use rpcrdma_extension::layout::Placing;
use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory, Outbox, ReceivedMessage, Refusal};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Side;
use support::{Pair, configs_with, data, message, room};

/// An extension without messages.
#[derive(Debug)]
struct Quiet;

impl Extension for Quiet {
    fn name(&self) -> &'static str {
        "quiet"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }
}

/// The facts that a factory was told: side, maximum numbers of calls in both directions, and lengths of a
/// receive and of a message to send, in bytes.
type Told = (Side, u32, u32, usize, u32);

/// A factory of an extension that wants so many bytes of bulk data placed, and sends messages of this
/// length.
#[derive(Clone, Debug, Default)]
struct Demanding {
    placed: u32,
    max_send: u32,
    told: Arc<Mutex<Vec<Told>>>,
}

impl ExtensionFactory for Demanding {
    fn make(&self, end: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
        let told = (
            end.side,
            end.credits,
            end.callbacks,
            end.receives.size(),
            end.max_send,
        );
        self.told.lock().unwrap().push(told);
        let is_of_use = end.may_place;
        is_of_use.then(|| Box::new(Quiet) as Box<dyn Extension>)
    }

    fn receives(&self, plain: u32) -> Option<ReceiveStructure> {
        let placing = Placing {
            target: self.placed,
            ..Placing::default()
        };
        (self.placed > 0).then(|| ReceiveStructure::placing(plain, placing))
    }

    fn max_send(&self) -> u32 {
        self.max_send
    }

    fn held_by_a_call(&self, credits: u32) -> u32 {
        credits.min(self.placed >> 10)
    }
}

fn demanding(placed: u32, max_send: u32) -> Demanding {
    Demanding {
        placed,
        max_send,
        ..Demanding::default()
    }
}

#[test]
fn the_most_that_extensions_ask_for_is_provided() {
    let mut protocols = Protocols::named("test");
    let none = Options::server(protocols.clone());
    let all = |_| true;
    assert_eq!(none.receives(all), none.plain_receives(all));
    assert_eq!(none.protocols.held_by_a_call(all, 64), 0);
    for (placed, max_send) in [(16 << 10, 0), (32 << 10, 64 << 10), (0, 8 << 10)] {
        protocols.add(Version::TWO, Arc::new(demanding(placed, max_send)));
    }
    let options = Options::server(protocols);
    let receives = options.receives(all);
    assert_eq!(receives.size(), 1024 + (32 << 10));
    assert!(receives.segments()[1].ddp);
    assert_eq!(options.protocols.max_send(all), 64 << 10);
    assert_eq!(options.protocols.held_by_a_call(all, 64), 32);
    assert_eq!(options.protocols.held_by_a_call(all, 8), 8);
    assert_eq!(options.protocols.to_string(), "test");
}

/// A connection pays for what the extensions of the versions need that it may speak, and for no other.
#[test]
fn only_the_extensions_of_versions_that_may_be_spoken_are_asked() {
    let placing = Arc::new(demanding(16 << 10, 64 << 10));
    // Version 1 has no extensions, whatever a program adds to it.
    let versions = [Version::ONE, Version::TWO];
    let add = |all: Protocols, version| all.with(version, Arc::clone(&placing) as _);
    let protocols = versions.into_iter().fold(Protocols::named("test"), add);
    let pool = || rdma::Pool::new(1 << 20);
    let client = Config::client(pool(), protocols.clone());
    assert!(client.receives.segments()[1].ddp);
    assert_eq!(announced(client.clone()), Some(64 << 10));
    let (only, options) = (client.clone().with_version(Version::ONE), &client.options);
    assert_eq!(
        only.receives,
        options.plain_receives(|it| it == Version::ONE)
    );
    let only = client.clone().with_version(Version::TWO_WG);
    assert_eq!(only.receives, ReceiveStructure::plain(4096));
    assert_eq!(announced(only), Some(4096));
    for version in [Version::ONE, Version::TWO_WG] {
        let allows = |it| it == version;
        assert_eq!(protocols.receives(allows, 4096), None);
        assert_eq!(protocols.max_send(allows), 0);
        assert_eq!(protocols.held_by_a_call(allows, 64), 0);
    }
    // A program that does not speak a version needs nothing for its extensions either.
    let without = protocols.speaking([&VersionTwoWg as _]);
    assert_eq!(without.max_send(|_| true), 0);
}

/// Returns the maximum length of a message that a client announces in version-two-07, in bytes.
fn announced(client: Config) -> Option<u32> {
    let mut client = support::Endpoint::new(client);
    client.establish(None);
    client.run();
    let (own, _) = client.connection.properties()?;
    Some(own.send_size)
}

/// Each connection has the extensions of its version, which know its configuration.
#[test]
fn a_factory_knows_the_connection_that_it_makes_an_extension_for() {
    let (two, other) = (demanding(16 << 10, 64 << 10), demanding(0, 0));
    let mut configs = configs_with(Version::TWO, |client, server| {
        for options in [&mut *client, server] {
            options.credits = 12;
            options.protocols.add(Version::TWO, Arc::new(two.clone()));
            options
                .protocols
                .add(Version::TWO_WG, Arc::new(other.clone()));
        }
        client.callbacks = CallbackOptions {
            credits: 3,
            chunks: true,
        };
    });
    configs.1.credits = 7;
    let mut pair = Pair::echoing(configs);
    pair.call(message(1, 100, &[]), &room(100, &[])).unwrap();
    let (receive, send) = (1024 + (16 << 10), 64 << 10);
    let mut told = two.told.lock().unwrap().clone();
    told.sort_by_key(|(side, ..)| *side == Side::Server);
    let client = (Side::Client, 12, 3, receive, send);
    let server = (Side::Server, 7, 0, receive, send);
    assert_eq!(told, [client, server]);
    assert!(other.told.lock().unwrap().is_empty());
}

/// A factory that makes no extension for a connection leaves its messages to nobody.
#[test]
fn a_factory_makes_nothing_where_there_is_no_memory_for_placement() {
    let factory = demanding(16 << 10, 0);
    let mut configs = configs_with(Version::TWO, |client, server| {
        for options in [client, server] {
            let placing = Arc::new(rpcrdma_ext_continuation::Factory {
                features: "ddp".parse().unwrap(),
                placing: Placing {
                    target: 4096,
                    ..Placing::default()
                },
            });
            options.protocols.add(Version::TWO, placing);
            options
                .protocols
                .add(Version::TWO, Arc::new(factory.clone()));
        }
    });
    configs.1.may_place = false;
    configs.1.receives = configs.1.options.plain_receives(|_| true);
    let mut pair = Pair::echoing(configs);
    pair.call(message(1, 100, &[data(1, 5000)]), &room(100, &[]))
        .unwrap();
    // The server could place nothing, so the item was not sent with the call.
    assert!(pair.client.registrations > 0);
}
