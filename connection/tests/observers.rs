//! Tests of what extensions see of messages that are not theirs, in both versions 2.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::{Arc, Mutex};

use rpcrdma_chunks::proc;
use rpcrdma_extension::{Extension, Heard, Kind, Outbox, ReceivedMessage, Refusal, Start, made_by};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::{Direction, Side};
use rpcrdma_v2_wg::header_type::{CALL_INLINE, CONNPROP_FINAL, GRANT, REPLY_INLINE};
use support::{Pair, configs_with, message, room};

/// The message that opened the connection at each end, and the messages that each end has heard.
#[derive(Debug, Default)]
struct Seen {
    opened_by: Vec<(Side, Option<Kind>)>,
    heard: Vec<(Side, Kind, Direction)>,
}

/// An extension without messages, which records what it sees.
#[derive(Debug)]
struct Observer {
    side: Side,
    observes: bool,
    seen: Arc<Mutex<Seen>>,
}

impl Extension for Observer {
    fn name(&self) -> &'static str {
        "observer"
    }

    fn numbers(&self) -> &[u32] {
        &[]
    }

    fn observes(&self) -> bool {
        self.observes
    }

    fn connected(&mut self, start: &Start<'_>, _: &mut Outbox<'_>) {
        let opened_by = start.opened_by.map(|heard| heard.kind);
        let mut seen = self.seen.lock().unwrap();
        seen.opened_by.push((start.side, opened_by));
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Err(Refusal::Unsupported)
    }

    fn observed(&mut self, heard: &Heard, _: &mut Outbox<'_>) {
        let heard = (self.side, heard.kind, heard.direction);
        self.seen.lock().unwrap().heard.push(heard);
    }
}

/// Returns what is seen of a call and its reply.
fn seen(version: Version, observes: bool) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let configs = configs_with(version, |client, server| {
        for options in [client, server] {
            let seen = Arc::clone(&seen);
            let observer = made_by(move |end| {
                Box::new(Observer {
                    side: end.side,
                    observes,
                    seen: Arc::clone(&seen),
                })
            });
            options.protocols.add(version, observer);
        }
    });
    let mut pair = Pair::echoing(configs);
    pair.call(message(1, 0, &[]), &room(0, &[])).unwrap();
    drop(pair);
    let mut seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
    // Grants come as flow control wants them.
    seen.heard.retain(|(_, kind, _)| *kind != Kind::Base(GRANT));
    seen
}

#[test]
fn extensions_see_the_messages_of_the_version_and_what_opened_the_connection() {
    let (call, reply) = (Direction::Call, Direction::Reply);
    let base = Kind::Base;
    let of_2016 = seen(Version::TWO, true);
    let opened_by = rpcrdma_ext_xchar::INITXCH;
    assert_eq!(
        of_2016.opened_by,
        [
            (Side::Client, None),
            (Side::Server, Some(Kind::Extension(opened_by)))
        ]
    );
    let messages = of_2016.heard.iter().copied();
    let messages: Vec<_> = messages.filter(|it| it.1 == base(proc::MSG)).collect();
    assert_eq!(
        messages,
        [
            (Side::Server, base(proc::MSG), call),
            (Side::Client, base(proc::MSG), reply)
        ]
    );
    let of_the_group = seen(Version::TWO_WG, true);
    assert_eq!(
        of_the_group.opened_by,
        [
            (Side::Client, None),
            (Side::Server, Some(base(CONNPROP_FINAL)))
        ]
    );
    let of = |side| {
        let heard = of_the_group.heard.iter();
        let heard = heard.filter(move |it| it.0 == side);
        heard.map(|it| (it.1, it.2)).collect::<Vec<_>>()
    };
    let properties = (base(CONNPROP_FINAL), call);
    assert_eq!(of(Side::Server), [properties, (base(CALL_INLINE), call)]);
    assert_eq!(of(Side::Client), [properties, (base(REPLY_INLINE), reply)]);
}

#[test]
fn an_extension_alone_that_does_not_observe_sees_nothing() {
    assert_eq!(seen(Version::TWO_WG, false).heard, []);
}
