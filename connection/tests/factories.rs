//! Tests of what a factory of extensions is told of a connection, and of what it can ask for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::{Arc, Mutex};

use rpcrdma_connection::{CallbackOptions, Options, Protocols, ReceiveStructure};
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
        (self.placed > 0).then(|| ReceiveStructure::placing(plain, self.placed))
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
    assert_eq!(none.receives(true), none.plain_receives(true));
    assert_eq!(none.protocols.held_by_a_call(64), 0);
    for (placed, max_send) in [(16 << 10, 0), (32 << 10, 64 << 10), (0, 8 << 10)] {
        protocols.add(Version::TWO, Arc::new(demanding(placed, max_send)));
    }
    let options = Options::server(protocols);
    let receives = options.receives(true);
    assert_eq!(receives.size(), 1024 + (32 << 10));
    assert!(receives.segments()[1].ddp);
    assert_eq!(options.protocols.max_send(), 64 << 10);
    assert_eq!(options.protocols.held_by_a_call(64), 32);
    assert_eq!(options.protocols.held_by_a_call(8), 8);
    // A connection that can speak version 1 alone has none of it.
    assert_eq!(options.receives(false), options.plain_receives(false));
    assert_eq!(options.protocols.to_string(), "test");
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
                least_placement: 4096,
            });
            options.protocols.add(Version::TWO, placing);
            options
                .protocols
                .add(Version::TWO, Arc::new(factory.clone()));
        }
    });
    configs.1.may_place = false;
    configs.1.receives = configs.1.options.plain_receives(true);
    let mut pair = Pair::echoing(configs);
    pair.call(message(1, 100, &[data(1, 5000)]), &room(100, &[]))
        .unwrap();
    // The server could place nothing, so the item was not sent with the call.
    assert!(pair.client.registrations > 0);
}
