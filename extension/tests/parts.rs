//! The parts of messages that an extension holds while it waits for the rest: when they are given up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use bytes::Bytes;
use rpcrdma_chunks::{Direction, Side};
use rpcrdma_extension::{
    Extension, Extensions, Fields, InProgress, Outbox, PeerError, Property, ReceivedMessage,
    Refusal,
};

/// A part that others follow, a part that is refused, and a message without further parts.
const PART: u32 = 1;
const BAD: u32 = 2;
const SINGLE: u32 = 3;
/// A message of another extension.
const OTHER: u32 = 4;
/// The first part of a message, which displaces the parts of any other.
const AGAIN: u32 = 5;

/// The message of the tests whose parts are held.
const X: u32 = 10;
/// Another message.
const Y: u32 = 11;

/// The number of the property that [`Collecting`] passes on when it refuses a message.
const REFUSED: u32 = 20;

/// Collects the parts of any number of messages.
#[derive(Debug, Default)]
struct Collecting {
    /// The XID of each part that is held, with its length in bytes.
    held: Vec<(u32, usize)>,
    /// The messages whose parts were given up.
    lost: Vec<(Direction, u32)>,
}

impl Extension for Collecting {
    fn name(&self) -> &'static str {
        "collecting"
    }

    fn numbers(&self) -> &[u32] {
        &[PART, BAD, SINGLE, AGAIN]
    }

    fn received(
        &mut self,
        message: &ReceivedMessage<'_>,
        out: &mut Outbox<'_>,
    ) -> Result<(), Refusal> {
        match message.number {
            PART => {
                self.held.push((message.xid, message.message_len()));
                out.parts_follow();
            }
            AGAIN => {
                if !self.held.is_empty() {
                    out.parts_displaced();
                }
                self.held = vec![(message.xid, message.message_len())];
                out.parts_follow();
            }
            SINGLE => self.held.retain(|(xid, _)| *xid != message.xid),
            _ => return Err(Refusal::Answer(PeerError::System, "a bad part")),
        }
        Ok(())
    }

    fn refuse_parts(&mut self, out: &mut Outbox<'_>) -> bool {
        out.share_property(Property {
            id: REFUSED,
            value: Bytes::new(),
        });
        true
    }

    fn parts_lost(&mut self, direction: Direction, xid: u32) {
        self.held.retain(|(held, _)| *held != xid);
        self.lost.push((direction, xid));
    }

    fn collected_bytes(&self) -> usize {
        self.held.iter().map(|(_, len)| len).sum()
    }
}

/// Holds no parts.
#[derive(Debug, Default)]
struct Other {
    /// The numbers of the properties that other extensions have passed on.
    properties: Vec<u32>,
}

impl Extension for Other {
    fn name(&self) -> &'static str {
        "other"
    }

    fn numbers(&self) -> &[u32] {
        &[OTHER]
    }

    fn received(&mut self, _: &ReceivedMessage<'_>, _: &mut Outbox<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn property_received(&mut self, property: &Property, _: &mut Outbox<'_>) {
        self.properties.push(property.id);
    }
}

struct Receiving(Extensions);

impl Receiving {
    fn new() -> Self {
        let list: Vec<Box<dyn Extension>> =
            vec![Box::<Other>::default(), Box::<Collecting>::default()];
        let mut extensions = Extensions::new(Side::Server, 900, list).unwrap();
        extensions.connected(None);
        Self(extensions)
    }

    /// Receives a call with this number and XID, of `len` bytes.
    fn receive(&mut self, number: u32, xid: u32, len: usize) -> Result<(), Refusal> {
        let message = [Bytes::from(vec![0; len])];
        self.0.received(&ReceivedMessage {
            number,
            xid,
            direction: Direction::Call,
            credits: 1,
            message: &message,
            fields: Fields::Open { at: 0 },
        })
    }

    /// Returns the XID of the message in progress.
    fn in_progress(&self) -> Option<u32> {
        let begun: Option<InProgress> = self.0.in_progress();
        begun.map(|begun| begun.xid)
    }

    /// Returns the XIDs of the messages that were given up.
    fn lost(&self) -> Vec<u32> {
        let lost = &self.0.find::<Collecting>().unwrap().lost;
        assert!(
            lost.iter()
                .all(|(direction, _)| *direction == Direction::Call)
        );
        lost.iter().map(|(_, xid)| *xid).collect()
    }
}

#[test]
fn parts_are_held_and_counted_until_the_rest_is_here() {
    let mut receiving = Receiving::new();
    for (number, in_progress, bytes) in [
        (PART, Some(X), 100),
        (PART, Some(X), 200),
        (SINGLE, None, 0),
    ] {
        receiving.receive(number, X, 100).unwrap();
        assert_eq!(receiving.in_progress(), in_progress);
        assert_eq!(receiving.0.collected_bytes(), bytes);
    }
    assert_eq!(receiving.lost(), []);
}

/// Regression test: parts of one message stayed with the extension when another message of the same
/// extension came, and were neither counted nor timed.
#[test]
fn another_message_of_the_same_extension_gives_up_the_parts() {
    // What of the other message is held then.
    for (number, in_progress, bytes) in [(PART, Some(Y), 30), (SINGLE, None, 0), (BAD, None, 0)] {
        let mut receiving = Receiving::new();
        receiving.receive(PART, X, 100).unwrap();
        let done = receiving.receive(number, Y, 30);
        assert_eq!(done.is_err(), number == BAD);
        assert_eq!(receiving.lost(), [X], "{number}");
        assert_eq!(receiving.in_progress(), in_progress, "{number}");
        assert_eq!(receiving.0.collected_bytes(), bytes, "{number}");
        let held = &receiving.0.find::<Collecting>().unwrap().held;
        assert!(held.iter().all(|(xid, _)| *xid == Y), "{number}: {held:?}");
    }
}

/// The engine tells by the number whether a message that is complete is that whose parts were here.
#[test]
fn messages_that_are_given_up_are_counted() {
    let mut receiving = Receiving::new();
    let expected = [
        (PART, X, 0),
        (PART, X, 0),
        (SINGLE, X, 0),
        (SINGLE, Y, 0),
        (PART, X, 0),
        // With the same XID, only the extension knows that the parts before are gone.
        (AGAIN, X, 1),
        (PART, X, 1),
        (PART, Y, 2),
        (BAD, Y, 3),
        (AGAIN, X, 3),
        (OTHER, X, 4),
        (OTHER, X, 4),
    ];
    for (at, (number, xid, given_up)) in expected.into_iter().enumerate() {
        let _ = receiving.receive(number, xid, 30);
        assert_eq!(receiving.0.given_up(), given_up, "{at}");
    }
    let again = receiving.0.find::<Collecting>().unwrap();
    assert_eq!(again.held, []);
}

#[test]
fn a_refused_part_and_a_message_of_another_extension_give_up_the_parts() {
    for (number, xid) in [(BAD, X), (OTHER, X), (OTHER, Y), (99, Y)] {
        let mut receiving = Receiving::new();
        receiving.receive(PART, X, 100).unwrap();
        let _ = receiving.receive(number, xid, 30);
        assert_eq!(receiving.lost(), [X], "{number} {xid}");
        assert_eq!(receiving.in_progress(), None, "{number} {xid}");
        assert_eq!(receiving.0.collected_bytes(), 0, "{number} {xid}");
    }
}

/// The extension may do on this occasion all that it may do when a message arrives.
#[test]
fn the_owner_of_the_parts_refuses_them_and_they_are_given_up() {
    let mut receiving = Receiving::new();
    assert!(!receiving.0.refuse_parts(), "nothing has begun");
    receiving.receive(PART, X, 100).unwrap();
    assert!(receiving.0.refuse_parts());
    assert_eq!(receiving.lost(), [X]);
    assert_eq!(receiving.in_progress(), None);
    assert_eq!(receiving.0.collected_bytes(), 0);
    let other = receiving.0.find::<Other>().unwrap();
    assert_eq!(other.properties, [REFUSED], "without another message");
}

/// Another direction is another message.
#[test]
fn the_same_xid_in_the_other_direction_gives_up_the_parts() {
    let mut receiving = Receiving::new();
    receiving.receive(PART, X, 100).unwrap();
    let message = [Bytes::from_static(&[0; 8])];
    let reply = ReceivedMessage {
        number: SINGLE,
        xid: X,
        direction: Direction::Reply,
        credits: 1,
        message: &message,
        fields: Fields::Open { at: 0 },
    };
    receiving.0.received(&reply).unwrap();
    assert_eq!(receiving.lost(), [X]);
    assert_eq!(receiving.in_progress(), None);
}
