//! Encoding and decoding of operations, and an end's handling of arbitrary operations.

mod common;

use bytes::Bytes;
use common::{End, operation, pair_of, words};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_ext_continuation::{
    Continuation, Fault, OutOfRange, Report, Request, RequestReceiveLimit, Response,
    ResponseSendLimit, TransmissionId, register,
};
use rpcrdma_ext_send_ddp::{
    DirectedItem, DirectedSet, Direction as Directed, Location, PlacedItem,
};
use rpcrdma_ext_xchar::{Characteristic, Peer, Registry};
use rpcrdma_extension::layout::Spot;
use rpcrdma_v2::{Direction, Segment};

fn few<T>(g: &mut Gen, max: usize, mut one: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    let count = usize::arbitrary(g) % (max + 1);
    (0..count).map(|_| one(g)).collect()
}

fn segment(g: &mut Gen) -> Segment {
    Segment {
        handle: u32::arbitrary(g),
        length: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
        offset: u64::arbitrary(g),
    }
}

/// Returns a number that is usually small, so that it is often valid.
fn number(g: &mut Gen) -> u32 {
    u32::arbitrary(g) >> (u8::arbitrary(g) % 32)
}

fn items(g: &mut Gen) -> Vec<PlacedItem> {
    few(g, 3, |g| PlacedItem {
        position: number(g) & !3,
        length: number(g),
        location: match u8::arbitrary(g) % 6 {
            0 => Location::Explicit(few(g, 3, segment).into()),
            1 => Location::TooShort,
            2 => Location::NoItem,
            _ => Location::Placed(Spot {
                offset: number(g) & !3,
                segments: few(g, 3, |g| number(g) % 8).into(),
            }),
        },
    })
}

#[derive(Clone, Debug)]
enum Any {
    Request(Request),
    Response(Response),
    Continuation(Continuation),
    Report(Report),
}

impl Any {
    fn encode(&self) -> (u32, Bytes) {
        match self {
            Self::Request(request) => (5, request.encode()),
            Self::Response(response) => (6, response.encode()),
            Self::Continuation(continuation) => (7, continuation.encode()),
            Self::Report(report) => (8, report.encode()),
        }
    }

    fn round_trips(&self) -> bool {
        let (_, bytes) = self.encode();
        match self {
            Self::Request(request) => {
                request.header_len() == 28 + bytes.len() as u64
                    && Request::decode(&bytes).as_ref() == Ok(request)
            }
            Self::Response(response) => {
                response.header_len() == 28 + bytes.len() as u64
                    && Response::decode(&bytes).as_ref() == Ok(response)
            }
            Self::Continuation(continuation) => {
                Continuation::HEADER_LEN == 28 + bytes.len() as u64
                    && Continuation::decode(&bytes).as_ref() == Ok(continuation)
            }
            Self::Report(report) => Report::decode(&bytes).as_ref() == Ok(report),
        }
    }
}

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        match u8::arbitrary(g) % 4 {
            0 => Self::Request(Request {
                items: items(g).into(),
                directions: few(g, 2, |g| DirectedSet {
                    begin: number(g),
                    end: number(g),
                    items: few(g, 3, |g| DirectedItem {
                        min_len: number(g),
                        to: match u8::arbitrary(g) % 4 {
                            0 => Directed::Explicit(few(g, 3, segment).into()),
                            1 => Directed::Placed,
                            2 => Directed::Choice(few(g, 3, segment).into()),
                            _ => Directed::BySize {
                                longest_placed: number(g),
                                chunk: few(g, 3, segment).into(),
                            },
                        },
                    })
                    .into(),
                })
                .into(),
                count: number(g) % 5,
                reserved: number(g),
                payload: number(g) & !3,
            }),
            1 => Self::Response(Response {
                items: items(g).into(),
                count: number(g) % 5,
                payload: number(g) & !3,
            }),
            2 => Self::Continuation(Continuation {
                number: number(g) % 5,
                initial: 5 + u32::from(bool::arbitrary(g)),
                payload: number(g) & !3,
            }),
            _ => {
                let range = OutOfRange {
                    value: number(g),
                    min: number(g),
                    max: number(g),
                };
                let (expected, found) = (number(g), number(g));
                let id = |g: &mut Gen| TransmissionId {
                    xid: number(g),
                    direction: match bool::arbitrary(g) {
                        true => Direction::Call,
                        false => Direction::Reply,
                    },
                    number: number(g),
                };
                Self::Report(Report {
                    bad: id(g),
                    lead: bool::arbitrary(g).then(|| id(g)),
                    fault: match u8::arbitrary(g) % 8 {
                        0 => Fault::HeaderType { expected, found },
                        1 => Fault::OperationType { expected, found },
                        2 => Fault::Continuation,
                        3 => Fault::Sequence { expected, found },
                        4 => Fault::Xid { expected, found },
                        5 => Fault::Offset(range),
                        6 => Fault::Segment(range),
                        _ => Fault::Payload(range),
                    },
                })
            }
        }
    }
}

/// Checks that decoding does not panic and that decoded values are encoded to the same bytes.
fn decodes_to_the_same_bytes(bytes: &[u8]) -> bool {
    Request::decode(bytes).is_ok_and(|v| v.encode() != bytes)
        || Response::decode(bytes).is_ok_and(|v| v.encode() != bytes)
        || Continuation::decode(bytes).is_ok_and(|v| v.encode() != bytes)
        || Report::decode(bytes).is_ok_and(|v| v.encode() != bytes)
}

fn flip(bytes: &[u8], flips: &[usize]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    bytes
}

/// Checks that each message has at most one answer, and a report has none.
fn survives(end: &mut End, sent: &[(Any, bool, u8)]) -> bool {
    for (any, reply, len) in sent {
        let (opttype, info) = any.encode();
        let direction = match reply {
            true => Direction::Reply,
            false => Direction::Call,
        };
        let header = operation(1, direction, opttype, info).encode();
        let mut message = [&header[..], &[0; 8]].concat();
        message.resize(message.len() + 12 * usize::from(*len), 0);
        message.truncate(66_560);
        let _ = end.receive(&message.into());
        let answers = end.operations.len();
        end.operations.clear();
        if answers > 1 {
            // The previous group was interrupted, and this one is bad as well.
            let both = answers == 2 && opttype != 7 && opttype != 8;
            if !both {
                return false;
            }
        }
    }
    true
}

quickcheck! {
    fn operations_round_trip(any: Any) -> bool {
        any.round_trips()
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        !decodes_to_the_same_bytes(&bytes)
    }

    fn arbitrary_words_do_not_panic(any: Vec<u8>) -> bool {
        let any: Vec<u32> = any.into_iter().map(|word| u32::from(word % 7)).collect();
        !decodes_to_the_same_bytes(&words(&any))
    }

    fn flipped_bits_do_not_panic(any: Any, flips: Vec<usize>) -> bool {
        !decodes_to_the_same_bytes(&flip(&any.encode().1, &flips))
    }

    fn an_operation_cut_short_is_an_error(any: Any, at: usize) -> bool {
        let (opttype, bytes) = any.encode();
        let bytes = &bytes[..at % bytes.len()];
        match opttype {
            5 => Request::decode(bytes).is_err(),
            6 => Response::decode(bytes).is_err(),
            7 => Continuation::decode(bytes).is_err(),
            _ => Report::decode(bytes).is_err(),
        }
    }

    fn an_end_survives_any_operations(sent: Vec<(Any, bool, u8)>) -> bool {
        let (mut client, mut server) = pair_of("ddp+cont", "ddp+cont");
        survives(&mut server, &sent) && survives(&mut client, &sent)
    }
}

#[test]
fn rtr_s9_operations_have_these_bytes() {
    let request = Request {
        count: 3,
        reserved: 4,
        payload: 8,
        ..Request::default()
    };
    assert_eq!(request.encode(), words(&[0, 0, 3, 4, 8]));
    let response = Response {
        count: 3,
        payload: 8,
        ..Response::default()
    };
    assert_eq!(response.encode(), words(&[0, 3, 8]));
    let continuation = Continuation {
        number: 2,
        initial: 5,
        payload: 8,
    };
    assert_eq!(continuation.encode(), words(&[2, 5, 8]));
    let report = |fault| Report {
        bad: TransmissionId {
            xid: 7,
            direction: Direction::Reply,
            number: 2,
        },
        lead: None,
        fault,
    };
    let range = OutOfRange {
        value: 3,
        min: 1,
        max: 2,
    };
    let nothing = report(Fault::Continuation).encode();
    assert_eq!(nothing, words(&[7, 1, 2, 0, 3]));
    let three = report(Fault::Payload(range)).encode();
    assert_eq!(three, words(&[7, 1, 2, 0, 8, 3, 1, 2]));
}

#[test]
fn rtr_s8_1_characteristics_have_their_numbers_and_defaults() {
    assert_eq!((RequestReceiveLimit::ID, ResponseSendLimit::ID), (6, 7));
    let peer = Peer::default();
    assert_eq!(peer.get::<RequestReceiveLimit>(), 1);
    assert_eq!(peer.get::<ResponseSendLimit>(), 1);
    let mut registry = Registry::default();
    register(&mut registry).expect("numbers of their own");
    for id in 4..=7 {
        assert!(registry.knows(id));
    }
    assert!(register(&mut registry).is_err());
    for id in [4, 6, 7] {
        let property = |value| rpcrdma_extension::Property { id, value };
        assert!(registry.check(&property(words(&[9]))).is_ok());
        assert!(registry.check(&property(words(&[]))).is_err());
        assert!(registry.check(&property(words(&[9, 9]))).is_err());
    }
}
