//! Calls with reduced arguments that are not DDP-eligible are not fetched (RFC 8166, section 6.1;
//! version-two-07, appendix A.1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use bytes::Bytes;
use onc_rpc::Segments;
use rpcrdma_chunks::{Chunks, ReadSegment, Segment};
use rpcrdma_connection::{Config, Event, ReducedArguments};
use rpcrdma_negotiation::Version;
use rpcrdma_v1::PrivateData;
use rpcrdma_v2::Direction;
use rpcrdma_v2_wg::{ErrorBody, Properties};
use support::{Endpoint, WgPeer, configs_with, inline_call};

const XID: u32 = 7;
const PROGRAM: u32 = 100_003;
/// One argument may be reduced, and none in other procedures below 22.
const WRITE: u32 = 7;
const LOOKUP: u32 = 3;
/// Nobody knows this procedure.
const UNKNOWN: u32 = 22;

const REDUCED: ReducedArguments = ReducedArguments::new(|program, version, procedure| {
    let known = (program, version) == (PROGRAM, 3) && procedure < UNKNOWN;
    known.then_some(u32::from(procedure == WRITE))
})
.with_most_of_any(1);

/// Returns the words of a call without credentials. Items may be behind them.
fn call(procedure: u32) -> Vec<u8> {
    let words = [XID, 0, 2, PROGRAM, 3, procedure, 0, 0, 0, 0];
    words.map(u32::to_be_bytes).concat()
}

/// Returns chunk lists with so many read chunks behind the payload of [`call`].
fn reads(count: u32) -> Chunks {
    let read = |at: u32| ReadSegment {
        position: 40 + 8 * at,
        segment: Segment {
            handle: 1 + at,
            length: 8,
            offset: 0,
        },
    };
    Chunks {
        reads: (0..count).map(read).collect(),
        ..Chunks::default()
    }
}

/// Returns chunk lists with a chunk that holds the payload, and so many others.
fn long_reads(count: u32) -> Chunks {
    let mut chunks = reads(count + 1);
    chunks.reads[0].position = 0;
    // The positions of the others are within it.
    chunks.reads[0].segment.length = 200;
    chunks
}

fn limited(mut config: Config) -> Config {
    config.reduced_arguments = REDUCED;
    config
}

/// The procedures, with the numbers of chunks of their calls, and whether these are fetched.
const CASES: [(u32, u32, bool); 6] = [
    (LOOKUP, 1, false),
    (LOOKUP, 9, false),
    (WRITE, 1, true),
    (WRITE, 2, false),
    (UNKNOWN, 1, true),
    (0, 1, false),
];

#[test]
fn s6_1_what_is_not_eligible_is_not_fetched_and_answered_with_garbage_args() {
    // MSG_ACCEPTED, no verifier, GARBAGE_ARGS.
    let garbage = [XID, 1, 0, 0, 0, 4].map(u32::to_be_bytes).concat();
    for version in [Version::ONE, Version::TWO] {
        for (procedure, count, is_fetched) in CASES {
            let (_, config) = configs_with(version, |_, _| {});
            let mut server = Endpoint::new(limited(config));
            server.establish(Some(PrivateData::new(4096, 4096, false)));
            let header = match version {
                Version::ONE => rpcrdma_v1::Header {
                    xid: XID,
                    credits: 9,
                    body: rpcrdma_v1::Body::Msg(reads(count)),
                }
                .encode(),
                _ => rpcrdma_v2::Header {
                    xid: XID,
                    credits: 9,
                    body: rpcrdma_v2::Body::Msg(Direction::Call, reads(count)),
                }
                .encode(),
            };
            let message = Bytes::from([&header[..], &call(procedure)].concat());
            server.receive(&message, None).unwrap();
            server.run();
            assert_eq!(server.reads.len(), if is_fetched { 1 } else { 0 });
            assert!(server.delivered.is_empty());
            match is_fetched {
                true => {}
                // A server of version 2 begins with its characteristics.
                false => assert!(server.sent.last().unwrap().0.ends_with(&garbage)),
            }
            assert_eq!(server.closed, None);
            // The call has ended, and its credit has come back.
            assert_eq!(server.connection.unanswered_calls(), server.reads.len());
        }
    }
}

#[test]
fn wg_a_1_what_is_not_eligible_is_not_fetched_and_answered_with_read_chunks() {
    for (procedure, count, is_fetched) in CASES {
        let (_, config) = configs_with(Version::TWO_WG, |_, _| {});
        let mut peer = WgPeer::new(limited(config)).exchanged(&Properties::default());
        peer.send(XID, inline_call(reads(count)), &call(procedure));
        let max = u32::from(procedure == WRITE);
        let expected = match is_fetched {
            true => vec![],
            false => vec![(XID, ErrorBody::ReadChunks { max })],
        };
        assert_eq!(peer.errors(), expected, "{procedure}");
        assert_eq!(peer.end.reads.len(), usize::from(is_fetched));
        assert_eq!(peer.end.connection.unanswered_calls(), peer.end.reads.len());
    }
}

/// The procedure of a call whose payload is in a chunk is not known. Such a call was fetched whatever it had.
#[test]
fn s6_1_a_call_in_a_chunk_with_more_others_than_any_procedure_may_have_is_not_fetched() {
    let garbage = [XID, 1, 0, 0, 0, 4].map(u32::to_be_bytes).concat();
    for (version, count) in [Version::ONE, Version::TWO]
        .into_iter()
        .flat_map(|version| [0, 1, 2, 9].map(|count| (version, count)))
    {
        let (_, config) = configs_with(version, |_, _| {});
        let mut server = Endpoint::new(limited(config));
        server.establish(Some(PrivateData::new(4096, 4096, false)));
        let header = match version {
            Version::ONE => rpcrdma_v1::Header {
                xid: XID,
                credits: 9,
                body: rpcrdma_v1::Body::NoMsg(long_reads(count)),
            }
            .encode(),
            _ => rpcrdma_v2::Header {
                xid: XID,
                credits: 9,
                body: rpcrdma_v2::Body::NoMsg(Direction::Call, long_reads(count)),
            }
            .encode(),
        };
        server.receive(&Bytes::from(header.to_vec()), None).unwrap();
        server.run();
        let fetched = if count <= 1 { count as usize + 1 } else { 0 };
        assert_eq!(server.reads.len(), fetched, "{version}, {count}");
        if fetched == 0 {
            assert!(server.sent.last().unwrap().0.ends_with(&garbage));
        }
        let unanswered = server.connection.unanswered_calls();
        assert_eq!(
            (server.closed, unanswered),
            (None, usize::from(fetched > 0))
        );
    }
}

#[test]
fn wg_a_1_a_call_in_a_chunk_with_more_others_than_any_procedure_may_have_is_not_fetched() {
    for count in [0, 1, 2, 9] {
        let (_, config) = configs_with(Version::TWO_WG, |_, _| {});
        let mut peer = WgPeer::new(limited(config)).exchanged(&Properties::default());
        let mut call = inline_call(long_reads(count));
        let rpcrdma_v2_wg::Body::Call { external, .. } = &mut call else {
            panic!("{call:?}");
        };
        *external = true;
        peer.send(XID, call, &[]);
        let (fetched, expected) = match count {
            0 | 1 => (count as usize + 1, vec![]),
            _ => (0, vec![(XID, ErrorBody::ReadChunks { max: 1 })]),
        };
        assert_eq!(peer.errors(), expected, "{count}");
        assert_eq!(peer.end.reads.len(), fetched, "{count}");
    }
}

/// The host may divide a message anywhere, also within the words that tell the procedure.
#[test]
fn the_procedure_is_found_wherever_the_message_is_divided() {
    let header = rpcrdma_v1::Header {
        xid: XID,
        credits: 9,
        body: rpcrdma_v1::Body::Msg(reads(1)),
    }
    .encode();
    let message = Bytes::from([&header[..], &call(LOOKUP)].concat());
    for at in header.len()..message.len() {
        let (_, config) = configs_with(Version::ONE, |_, _| {});
        let mut server = Endpoint::new(limited(config));
        server.establish(Some(PrivateData::new(4096, 4096, false)));
        let pieces = [message.slice(..at), message.slice(at..)];
        server.handle(Event::Received {
            message: pieces.into_iter().collect::<Segments>(),
            invalidated: None,
        });
        server.run();
        assert_eq!((server.reads.len(), server.sent.len()), (0, 1), "{at}");
    }
}
