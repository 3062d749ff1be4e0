//! Headers of the working group's version 2 (version-two-07, section 6).
//!
//! In the XDR, headers before which a payload begins end with its first word. Values here have that
//! word beside the header.

use bytes::{BufMut, Bytes, BytesMut};
use quickcheck::{Arbitrary, Gen};
use rpcrdma_v2_wg::limits::MAX_PROPERTY_LEN;
use rpcrdma_v2_wg::{
    Body, Chunks, Direction, ErrorBody, Header, HeaderError, Property, ReadSegment, Segment,
    VERSION, WriteChunk, check_call,
};

use super::any::{few, number, one_of, opaque};
use super::chunks::{any_chunk, any_segment, show_chunk, show_reads, show_versions, show_writes};
use super::{Codec, Kind, Refused, kind};
use crate::show::{Fields, Json};

/// The XDR type of all headers.
pub(super) const MESSAGE: &str = "rpcrdma2wg_msg";

pub(crate) const KINDS: &[Kind] = &[
    kind!("wg-error", Wg, |g| header(g, any_error), payload: true),
    kind!("wg-grant", Wg, |g| header(g, |_| Body::Grant), payload: false),
    kind!("wg-connprop-middle", Wg, |g| header(g, |g| any_properties(g, false)), payload: false),
    kind!("wg-connprop-final", Wg, |g| header(g, |g| any_properties(g, true)), payload: false),
    kind!("wg-call-external", Wg, |g| header(g, |g| any_call(g, true)), payload: false),
    kind!("wg-call-middle", Wg, |g| header(g, |g| any_middle(g, Direction::Call)), payload: true),
    kind!("wg-call-inline", Wg, |g| header(g, |g| any_call(g, false)), payload: true),
    kind!("wg-reply-external", Wg, |g| header(g, |g| any_reply(g, true)), payload: false),
    kind!("wg-reply-middle", Wg, |g| header(g, |g| any_middle(g, Direction::Reply)), payload: true),
    kind!("wg-reply-inline", Wg, |g| header(g, |g| any_reply(g, false)), payload: true),
];

/// A header, and the payload's first word if payload belongs to it.
#[derive(PartialEq)]
struct Whole {
    header: Header,
    first_word: Option<u32>,
}

/// The type [`MESSAGE`].
enum Wg {}

fn header(g: &mut Gen, body: fn(&mut Gen) -> Body) -> Whole {
    let header = Header {
        xid: u32::arbitrary(g),
        credit: u32::arbitrary(g),
        body: body(g),
    };
    let first_word = header.body.has_payload().then(|| u32::arbitrary(g));
    Whole { header, first_word }
}

fn any_error(g: &mut Gen) -> Body {
    let max = number(g);
    let all = [
        ErrorBody::Version {
            low: max,
            high: number(g),
        },
        ErrorBody::BadXdr,
        ErrorBody::BadPropertyValue,
        ErrorBody::InvalidHeaderType,
        ErrorBody::InvalidContinuation,
        ErrorBody::ReadChunks { max },
        ErrorBody::WriteChunks { max },
        ErrorBody::Segments { max },
        ErrorBody::WriteResource {
            chunk: max,
            needed: number(g),
        },
        ErrorBody::ReplyResource { needed: max },
        ErrorBody::VersionMismatch,
        ErrorBody::System,
        // Codes up to 11 and 100 are those above.
        ErrorBody::Other(max.max(101)),
        ErrorBody::Other(12 + max % 88),
        ErrorBody::Other(0),
    ];
    Body::Error(one_of(g, &all).unwrap_or(ErrorBody::System))
}

fn any_properties(g: &mut Gen, last: bool) -> Body {
    let property = |g: &mut Gen| Property {
        id: number(g),
        value: opaque(g),
    };
    Body::Properties {
        last,
        properties: few(g, 6, property),
    }
}

fn any_middle(g: &mut Gen, direction: Direction) -> Body {
    Body::Middle {
        direction,
        remaining: number(g),
    }
}

/// Returns a segment of some length that does not reach the end of the address space.
fn segment_of(g: &mut Gen, length: u32) -> Segment {
    let segment = any_segment(g);
    Segment {
        length,
        offset: segment.offset >> 1,
        ..segment
    }
}

/// Returns a chunk of a call. None of its segments extends beyond the address space.
fn call_chunk(g: &mut Gen) -> WriteChunk {
    let segment = |g: &mut Gen| {
        let length = number(g);
        segment_of(g, length)
    };
    few(g, 4, segment).into()
}

/// Returns a call that keeps to the rules for chunks: positions are multiples of four, items do not
/// overlap, and the payload in a call chunk reaches the last of them.
fn any_call(g: &mut Gen, external: bool) -> Body {
    let (mut items, mut at, mut reduced) = (Vec::new(), 0, 0);
    for gap in few(g, 3, number) {
        at += 4 + 4 * (gap % 1024);
        let position = at;
        for length in few(g, 3, number) {
            let length = length % 0x1000_0000;
            at += length;
            items.push((position, length));
        }
        at = at.next_multiple_of(4);
        reduced += at - position;
    }
    let payload = (at - reduced).max(4);
    let mut reads = Vec::new();
    if external {
        let first = number(g) % payload;
        reads.extend([(0, first), (0, payload - first)]);
    }
    let reads = reads.into_iter().chain(items);
    let reads: Vec<_> = reads
        .map(|(position, length)| ReadSegment {
            position,
            segment: segment_of(g, length),
        })
        .collect();
    let chunks = Chunks {
        reads,
        writes: few(g, 3, call_chunk),
        reply: bool::arbitrary(g).then(|| call_chunk(g)),
    };
    let handles: Vec<_> = chunks.handles().chain([0]).collect();
    Body::Call {
        external,
        inv_handle: one_of(g, &handles).unwrap_or(0),
        chunks,
    }
}

/// The assumed length of the payload after the header of an inline call, bytes. It exceeds every
/// position, because the vectors cover only what a receiver decides by the header alone.
const MUCH_PAYLOAD: u64 = 1 << 33;

/// Checks the rules for the chunks of a call that its receiver checks, as far as the header alone
/// can break them.
fn check_chunks(body: &Body) -> Result<(), Refused> {
    let payload = match body {
        Body::Call { external: true, .. } => 0,
        Body::Call { .. } => MUCH_PAYLOAD,
        _ => return Ok(()),
    };
    match check_call(body.clone(), payload, u64::MAX) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refused::Rule),
    }
}

fn any_reply(g: &mut Gen, external: bool) -> Body {
    let chunks = Chunks {
        reads: vec![],
        writes: few(g, 3, any_chunk),
        reply: external.then(|| any_chunk(g)),
    };
    Body::Reply { external, chunks }
}

impl Codec for Wg {
    type Value = Whole;
    const XDR: &'static str = MESSAGE;

    fn encode(value: &Whole) -> Bytes {
        let mut out = BytesMut::new();
        value.header.encode_into(&mut out);
        if let Some(word) = value.first_word {
            out.put_u32(word);
        }
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Result<(Whole, usize), Refused> {
        let (header, at) = Header::decode(bytes).map_err(|error| match error.error {
            HeaderError::Version { .. } => Refused::Version,
            HeaderError::Malformed { reason, .. } | HeaderError::BadError(reason) => reason.into(),
            HeaderError::Limit { .. } => Refused::Limit,
            HeaderError::Property { len, .. }
                if (MAX_PROPERTY_LEN + 1..bytes.len()).contains(&(len as usize)) =>
            {
                Refused::Limit
            }
            HeaderError::TooShort(_)
            | HeaderError::HeaderType(_)
            | HeaderError::Property { .. } => Refused::Form,
        })?;
        check_chunks(&header.body)?;
        let payload = bytes.get(at..).and_then(|payload| payload.first_chunk());
        let first_word = match header.body.has_payload() {
            true => Some(u32::from_be_bytes(*payload.ok_or(Refused::Form)?)),
            false => None,
        };
        let used = at + first_word.map_or(0, |_| 4);
        Ok((Whole { header, first_word }, used))
    }

    fn show(value: &Whole, json: &mut Json) {
        let Whole { header, first_word } = value;
        json.object(|to| {
            to.number("rdma_xid", header.xid)
                .number("rdma_vers", VERSION)
                .number("rdma_credit", header.credit)
                .field("rdma_hdr", |json| {
                    json.object(|to| {
                        to.number("rdma_htype", header.body.header_type());
                        show_body(to, &header.body, first_word.unwrap_or(0));
                    });
                });
        });
    }
}

fn show_body(to: &mut Fields<'_>, body: &Body, first_word: u32) {
    match body {
        Body::Error(error) => {
            to.field("rdma_error", |json| {
                json.object(|to| show_error(to, *error));
            });
        }
        Body::Grant => {}
        Body::Properties { last, properties } => {
            let name = match last {
                false => "rdma_connprop_middle",
                true => "rdma_connprop_final",
            };
            to.field(name, |json| {
                json.object(|to| {
                    to.field("rdma_props", |json| json.list(properties, show_property));
                });
            });
        }
        Body::Call {
            external: true,
            inv_handle,
            chunks,
        } => {
            to.field("rdma_call_external", |json| {
                json.object(|to| show_call(to, *inv_handle, chunks, true));
            });
        }
        Body::Call {
            inv_handle, chunks, ..
        } => {
            to.field("rdma_call_inline", |json| {
                json.object(|to| {
                    show_call(to, *inv_handle, chunks, false);
                    to.number("rdma_rpc_first_word", first_word);
                });
            });
        }
        Body::Reply { external, chunks } => {
            let name = match external {
                true => "rdma_reply_external",
                false => "rdma_reply_inline",
            };
            to.field(name, |json| {
                json.object(|to| {
                    to.field("rdma_writes", |json| show_writes(json, &chunks.writes));
                    match external {
                        true => to.field("rdma_reply", |json| {
                            json.option(chunks.reply.as_ref(), show_chunk);
                        }),
                        false => to.number("rdma_rpc_first_word", first_word),
                    };
                });
            });
        }
        Body::Middle {
            direction,
            remaining,
        } => {
            let name = match direction {
                Direction::Call => "rdma_call_middle",
                Direction::Reply => "rdma_reply_middle",
            };
            to.field(name, |json| {
                json.object(|to| {
                    to.number("rdma_remaining", *remaining)
                        .number("rdma_rpc_first_word", first_word);
                });
            });
        }
    }
}

fn show_call(to: &mut Fields<'_>, inv_handle: u32, chunks: &Chunks, external: bool) {
    let call_chunk = chunks.reads.iter().filter(|read| read.position == 0);
    let others = chunks.reads.iter().filter(|read| read.position != 0);
    to.number("rdma_inv_handle", inv_handle);
    if external {
        to.field("rdma_call", |json| show_reads(json, call_chunk));
    }
    to.field("rdma_reads", |json| show_reads(json, others))
        .field("rdma_provisional_writes", |json| {
            show_writes(json, &chunks.writes);
        })
        .field("rdma_provisional_reply", |json| {
            json.option(chunks.reply.as_ref(), show_chunk);
        });
}

fn show_property(json: &mut Json, property: &Property) {
    json.object(|to| {
        to.number("rdma_which", property.id)
            .field("rdma_data", |json| json.hex(&property.value));
    });
}

fn show_error(to: &mut Fields<'_>, error: ErrorBody) {
    to.number("rdma_err", error.code());
    match error {
        ErrorBody::Version { low, high } => show_versions(to, low, high),
        ErrorBody::ReadChunks { max } => {
            to.number("rdma_max_read_chunks", max);
        }
        ErrorBody::WriteChunks { max } => {
            to.number("rdma_max_write_chunks", max);
        }
        ErrorBody::Segments { max } => {
            to.number("rdma_max_segments", max);
        }
        ErrorBody::WriteResource { chunk, needed } => {
            to.field("rdma_writeres", |json| {
                json.object(|to| {
                    to.number("rdma_chunk_index", chunk)
                        .number("rdma_length_needed", needed);
                });
            });
        }
        ErrorBody::ReplyResource { needed } => {
            to.number("rdma_length_needed", needed);
        }
        ErrorBody::BadXdr
        | ErrorBody::BadPropertyValue
        | ErrorBody::InvalidHeaderType
        | ErrorBody::InvalidContinuation
        | ErrorBody::VersionMismatch
        | ErrorBody::System
        | ErrorBody::Other(_) => {}
    }
}
