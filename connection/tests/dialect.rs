//! A test of a dialect that is defined outside the crate: version 1 with another number and one
//! more word in each header. Calls with chunks work over it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use bytes::{Buf as _, Bytes, BytesMut};
use onc_rpc::{Message, Segments};
use rpcrdma_chunks::Chunks;
use rpcrdma_connection::Protocols;
use rpcrdma_connection::dialect::{
    BadMessage, BadReply, Dialect, ErrorMessage, Incoming, Negotiable, Outgoing, Plain, Receiver,
    Session, VersionOne,
};
use rpcrdma_extension::{DuplicateNumber, EndConfig, Extension};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Direction;
use support::{Pair, data, message, open, room};
use transfer_plan::ChunkCounts;

/// The number of the version, and the word that each of its headers has after the fixed ones.
const NUMBER: u32 = 9;
const NINE: Version = Version::new(NUMBER, "nine");
const WORD: u32 = 0x6f6d_6f74;
/// The offset of that word, in bytes.
const WORD_AT: usize = 16;

#[derive(Debug)]
struct Nine;

/// Converts a header of version 1 to this version.
fn ours(header: &[u8]) -> Bytes {
    let mut out = BytesMut::from(&header[..WORD_AT]);
    out[4..8].copy_from_slice(&NUMBER.to_be_bytes());
    out.extend_from_slice(&WORD.to_be_bytes());
    out.extend_from_slice(&header[WORD_AT..]);
    out.freeze()
}

impl Negotiable for Nine {
    fn version(&self) -> Version {
        NINE
    }
}

impl Dialect for Nine {
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        |chunks| VersionOne.header_len()(chunks) + 4
    }

    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let mut one = BytesMut::new();
        VersionOne.encode_plain(&mut one, direction, header);
        out.extend_from_slice(&ours(&one));
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let mut one = BytesMut::new();
        let chunks = VersionOne.encode(&mut one, header);
        out.extend_from_slice(&ours(&one));
        chunks
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        ours(&VersionOne.encode_error(error, credits))
    }

    fn session(
        &self,
        _: &EndConfig<'_>,
        _: Vec<Box<dyn Extension>>,
        _: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        Ok(Box::new(Self))
    }

    fn check_payload(&self, xid: u32, to: Direction, message: &Message) -> Result<(), BadReply> {
        VersionOne.check_payload(xid, to, message)
    }
}

impl Session for Nine {
    fn decode(&mut self, mut message: Segments, to: &Receiver) -> Incoming {
        let first = &mut message[0];
        let word = |at: usize| first.get(at..at + 4).map(|mut word| word.get_u32());
        if word(4) != Some(NUMBER) || word(WORD_AT) != Some(WORD) {
            let (answer, reason) = (None, "not of this version".to_owned());
            return Incoming::Bad(Direction::Call, BadMessage { answer, reason });
        }
        let mut one = BytesMut::from(&first[..WORD_AT]);
        one[4..8].copy_from_slice(&1_u32.to_be_bytes());
        one.extend_from_slice(&first[WORD_AT + 4..]);
        *first = one.freeze();
        VersionOne.decode(message, to)
    }
}

#[test]
fn a_dialect_of_the_programs_own_carries_calls_with_chunks_and_without() {
    let configs = support::configs_with(NINE, |client, server| {
        for options in [client, server] {
            options.protocols = Protocols::default().speaking([&VersionOne as _, &Nine as _]);
        }
    });
    let mut pair = Pair::echoing(configs);
    for (xid, len) in [(1, 8), (2, 9000), (3, 100_000)] {
        let sent = data(xid, len);
        let call = message(xid, 4, std::slice::from_ref(&sent));
        let reply = pair.call(call, &room(4, &[len])).unwrap();
        assert_eq!(open(&reply).2.concat(), sent);
    }
    assert!(pair.client.registrations > 0);
    let headers = pair.client.sent.iter().chain(&pair.server.sent);
    for (header, _) in headers {
        assert_eq!(header[4..8], NUMBER.to_be_bytes());
    }
}
