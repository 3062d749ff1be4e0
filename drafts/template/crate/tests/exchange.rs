//! Tests of notes on the wire, and of their exchange between two ends.

use bytes::Bytes;
use quickcheck::quickcheck;
use rpcrdma_ext_@name@::{@Name@, MAX_TEXT, Note};
use rpcrdma_extension::{Action, Extensions, PeerError};
use rpcrdma_v2::operations::{self, Routed};
use rpcrdma_v2::{Body, Header, Side};

fn note(number: u32, text: &[u8]) -> Note {
    let text = Bytes::copy_from_slice(text);
    Note { number, text }
}

quickcheck! {
    fn notes_round_trip(number: u32, text: Vec<u8>) -> bool {
        let note = note(number, &text[..text.len().min(MAX_TEXT)]);
        Note::decode(&note.encode()) == Ok(note)
    }

    fn a_note_cut_short_is_an_error(number: u32, text: Vec<u8>, at: usize) -> bool {
        let bytes = note(number, &text[..text.len().min(MAX_TEXT)]).encode();
        Note::decode(&bytes[..at % bytes.len()]).is_err()
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        Note::decode(&bytes).is_err() || Note::decode(&bytes).is_ok_and(|note| note.encode() == bytes)
    }
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    assert!(Note::decode(&note(1, &[7; MAX_TEXT]).encode()).is_ok());
    assert!(Note::decode(&note(1, &[7; MAX_TEXT + 1]).encode()).is_err());
}

/// Returns an end with the extension, or without.
fn end(side: Side, with: Option<Note>) -> Extensions {
    let list = with.map(|note| Box::new(@Name@::new(note)) as Box<_>);
    Extensions::new(side, 100, list.into_iter().collect()).expect("one extension")
}

/// Returns the only message that an end sends.
fn sent(from: &mut Extensions) -> Bytes {
    let Some(Action::Send(operation)) = from.next_action() else {
        panic!("nothing is sent");
    };
    operations::header(operation, 32).encode()
}

#[test]
fn both_ends_learn_the_others_note() {
    let mut client = end(Side::Client, Some(note(1, b"client")));
    let mut server = end(Side::Server, Some(note(2, b"server")));
    client.connected(None);
    let call = sent(&mut client);
    let (header, at) = Header::decode(&call).expect("a header");
    server.connected(Some(operations::heard(&header)));
    assert_eq!(operations::route(&mut server, &header, &[call], at), Routed::Taken);
    let reply = sent(&mut server);
    let (header, at) = Header::decode(&reply).expect("a header");
    assert_eq!(operations::route(&mut client, &header, &[reply], at), Routed::Taken);
}

#[test]
fn a_peer_without_the_extension_refuses_it() {
    let mut client = end(Side::Client, Some(note(1, b"client")));
    let mut server = end(Side::Server, None);
    client.connected(None);
    let call = sent(&mut client);
    let (header, at) = Header::decode(&call).expect("a header");
    server.connected(Some(operations::heard(&header)));
    assert!(matches!(&header.body, Body::Optional(op) if op.opttype == @number@));
    let routed = operations::route(&mut server, &header, &[call], at);
    assert_eq!(routed, Routed::Refused(PeerError::UnsupportedType));
}
