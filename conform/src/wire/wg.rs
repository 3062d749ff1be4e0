//! Messages of the working group's version 2 (version-two-07, sections 5 to 7), and of its extension
//! for data placement, word by word.

use super::v1::{self, Header, NOMSG, Segment};
use super::{Reader, Xdr};
use crate::wire::v2;

/// `rdma_vers`.
pub const VERSION: u32 = 2;
/// `rdma_htype` RDMA2_ERROR.
pub const ERROR: u32 = 4;
/// `rdma_htype` RDMA2_GRANT.
pub const GRANT: u32 = 5;
/// `rdma_htype` RDMA2_CONNPROP_MIDDLE.
pub const CONNPROP_MIDDLE: u32 = 6;
/// `rdma_htype` RDMA2_CONNPROP_FINAL.
pub const CONNPROP_FINAL: u32 = 7;
/// `rdma_htype` RDMA2_CALL_EXTERNAL.
pub const CALL_EXTERNAL: u32 = 8;
/// `rdma_htype` RDMA2_CALL_MIDDLE.
pub const CALL_MIDDLE: u32 = 9;
/// `rdma_htype` RDMA2_CALL_INLINE.
pub const CALL_INLINE: u32 = 10;
/// `rdma_htype` RDMA2_REPLY_EXTERNAL.
pub const REPLY_EXTERNAL: u32 = 11;
/// `rdma_htype` RDMA2_REPLY_MIDDLE.
pub const REPLY_MIDDLE: u32 = 12;
/// `rdma_htype` RDMA2_REPLY_INLINE.
pub const REPLY_INLINE: u32 = 13;

/// The header type of a part of a call with placed items.
pub const CALL_PLACED_MIDDLE: u32 = 0xffff_ff01;
/// The header type of the last or only part of a call with placed items.
pub const CALL_PLACED: u32 = 0xffff_ff02;
/// The header type of a part of a reply with placed items.
pub const REPLY_PLACED_MIDDLE: u32 = 0xffff_ff03;
/// The header type of the last or only part of a reply with placed items.
pub const REPLY_PLACED: u32 = 0xffff_ff04;

/// `rdma_err` RDMA2_ERR_VERS.
pub const ERR_VERS: u32 = 1;
/// `rdma_err` RDMA2_ERR_BAD_XDR.
pub const ERR_BAD_XDR: u32 = 2;
/// `rdma_err` RDMA2_ERR_BAD_PROPVAL.
pub const ERR_BAD_PROPVAL: u32 = 3;
/// `rdma_err` RDMA2_ERR_INVAL_HTYPE.
pub const ERR_INVAL_HTYPE: u32 = 4;
/// `rdma_err` RDMA2_ERR_INVAL_CONT.
pub const ERR_INVAL_CONT: u32 = 5;
/// `rdma_err` RDMA2_ERR_READ_CHUNKS.
pub const ERR_READ_CHUNKS: u32 = 6;
/// `rdma_err` RDMA2_ERR_WRITE_CHUNKS.
pub const ERR_WRITE_CHUNKS: u32 = 7;
/// `rdma_err` RDMA2_ERR_SEGMENTS.
pub const ERR_SEGMENTS: u32 = 8;
/// `rdma_err` RDMA2_ERR_WRITE_RESOURCE.
pub const ERR_WRITE_RESOURCE: u32 = 9;
/// `rdma_err` RDMA2_ERR_REPLY_RESOURCE.
pub const ERR_REPLY_RESOURCE: u32 = 10;
/// `rdma_err` RDMA2_ERR_VERS_MISMATCH.
pub const ERR_VERS_MISMATCH: u32 = 11;
/// `rdma_err` RDMA2_ERR_SYSTEM.
pub const ERR_SYSTEM: u32 = 100;

/// The properties SBSIZ, RBSIZ, RSSIZ, RCSIZ, BRS and HOSTAUTH, in this order.
pub const PROPERTIES: [u32; 6] = [1, 2, 3, 4, 5, 6];
/// The structure of receive buffers (data placement).
pub const STRUCTURE: u32 = 0xffff_ff01;
/// A responder's support for placed calls and placed results (data placement).
pub const SUPPORT: u32 = 0xffff_ff02;
/// The length from which on results are to be placed (data placement).
pub const SMALLEST_RESULT: u32 = 0xffff_ff03;

/// The credit limit that hostile ends tell: far ahead of what any case receives.
pub const CREDIT: u32 = 0x10_0000;
/// The bytes of the prefix.
pub const PREFIX: usize = 16;
/// The inline threshold of hostile ends, bytes.
pub const INLINE: usize = 4096;
/// The XID of the properties of hostile ends.
pub const INTRODUCTION: u32 = 0x0f00_0001;

/// Encodes a message with the words that follow the prefix, and `rest`.
#[must_use]
pub fn message(xid: u32, htype: u32, fields: &[u32], rest: &[u8]) -> Vec<u8> {
    let out = Xdr::new().words(&[xid, VERSION, CREDIT, htype]);
    out.words(fields).raw(rest).done()
}

/// Encodes an RDMA2_CALL_INLINE without chunks.
#[must_use]
pub fn call(xid: u32, payload: &[u8]) -> Vec<u8> {
    message(xid, CALL_INLINE, &[0, 0, 0, 0], payload)
}

/// Encodes an RDMA2_REPLY_INLINE without chunks.
#[must_use]
pub fn reply(xid: u32, payload: &[u8]) -> Vec<u8> {
    message(xid, REPLY_INLINE, &[0], payload)
}

/// Encodes an RDMA2_ERROR with these words.
#[must_use]
pub fn error(xid: u32, words: &[u32]) -> Vec<u8> {
    message(xid, ERROR, words, &[])
}

/// Encodes an RDMA2_GRANT with this credit limit.
#[must_use]
pub fn grant(credit: u32) -> Vec<u8> {
    v2::bytes(&[0, VERSION, credit, GRANT])
}

/// Returns a message with another credit limit.
#[must_use]
pub fn with_credit(mut message: Vec<u8>, credit: u32) -> Vec<u8> {
    message[8..12].copy_from_slice(&credit.to_be_bytes());
    message
}

/// Returns the words of a set of properties of one word each.
#[must_use]
pub fn set(properties: &[(u32, u32)]) -> Vec<u32> {
    let values = properties.iter().flat_map(|(id, value)| [*id, 4, *value]);
    let count = properties.len() as u32;
    std::iter::once(count).chain(values).collect()
}

/// The words of the properties of an end of the base protocol: those of the defaults.
#[must_use]
pub fn plain_properties() -> Vec<u32> {
    set(&[(1, 4096), (2, 4096), (3, 1 << 20), (4, 16), (5, 0)])
}

/// The words of the properties of an end that places data and takes it placed, with the product's
/// receive buffers.
#[must_use]
pub fn placing_properties() -> Vec<u32> {
    let (head, target) = (v2::HEAD as u32, v2::TARGET as u32);
    let mut words = set(&[
        (1, 1 << 20),
        (2, head + target),
        (3, 1 << 20),
        (4, 16),
        (5, 0),
        (SUPPORT, 3),
        (SMALLEST_RESULT, 1024),
    ]);
    words[0] += 1;
    words.extend([STRUCTURE, 36, 2, 1, head, 1, 0, 1, target, 4096, 1]);
    words
}

/// Encodes the last properties of a hostile end.
#[must_use]
pub fn introduction(properties: &[u32]) -> Vec<u8> {
    message(INTRODUCTION, CONNPROP_FINAL, properties, &[])
}

/// Returns the header type of a message of this version, or `None` if it is none.
#[must_use]
pub fn htype(message: &[u8]) -> Option<u32> {
    let mut from = Reader(message);
    let (_, version, _, htype) = (from.word()?, from.word()?, from.word()?, from.word()?);
    (version == VERSION).then_some(htype)
}

/// Returns the credit limit in a message.
#[must_use]
pub fn credit(message: &[u8]) -> Option<u32> {
    Reader(message.get(8..12)?).word()
}

/// Compares a message with these words, except for its credit limit. `more` allows further words.
#[must_use]
pub fn is(message: &[u8], words: &[u32], more: bool) -> bool {
    let mut expected = v2::bytes(words);
    let Some(credit) = message.get(8..12) else {
        return false;
    };
    expected[8..12].copy_from_slice(credit);
    message == expected || more && message.starts_with(&expected)
}

/// Returns the words of an RDMA2_ERROR with these words behind the header type.
#[must_use]
pub fn answer(xid: u32, error: &[u32]) -> Vec<u32> {
    [&[xid, VERSION, 0, ERROR], error].concat()
}

/// Returns the words of an inline reply without chunks: MSG_ACCEPTED, SUCCESS, and results that
/// begin with `results`.
#[must_use]
pub fn success(xid: u32, results: &[u32]) -> Vec<u32> {
    let header = [xid, VERSION, 0, REPLY_INLINE, 0];
    [&header[..], &[xid, 1, 0, 0, 0, 0], results].concat()
}

/// Encodes a reply of version 1 as a message of this version, in one or more parts that fit the
/// inline threshold.
#[must_use]
pub fn reply_parts(header: &Header, payload: &[u8]) -> Vec<Vec<u8>> {
    reply_within(header, payload, INLINE)
}

/// Encodes a reply of version 1 as a message of this version, in one or more parts of at most `most` bytes. There are
/// none if the header is too long for that.
#[must_use]
pub fn reply_within(header: &Header, payload: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut fields = Xdr::new();
    for chunk in &header.writes {
        fields = put_chunk(fields.word(1), chunk);
    }
    fields = fields.word(0);
    if header.procedure == NOMSG {
        fields = match &header.reply {
            Some(chunk) => put_chunk(fields.word(1), chunk),
            None => fields.word(0),
        };
        let message = message(header.xid, REPLY_EXTERNAL, &[], &fields.done());
        return if message.len() <= most {
            vec![message]
        } else {
            Vec::new()
        };
    }
    let fields = fields.done();
    // A part has a word of its payload at least.
    let Some(last) = most
        .checked_sub(PREFIX + fields.len())
        .filter(|last| *last >= 8)
    else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    let mut rest = payload;
    while rest.len() > last {
        let len = (most - PREFIX - 4).min(rest.len() - 4) & !3;
        let (now, later) = rest.split_at(len);
        parts.push(message(
            header.xid,
            REPLY_MIDDLE,
            &[later.len() as u32],
            now,
        ));
        rest = later;
    }
    let end = [&fields, rest].concat();
    parts.push(message(header.xid, REPLY_INLINE, &[], &end));
    parts
}

/// Appends a chunk: the number of its segments, and these.
#[must_use]
pub fn put_chunk(out: Xdr, chunk: &[Segment]) -> Xdr {
    let put = |out: Xdr, segment: &Segment| {
        let out = out.word(segment.handle).word(segment.length);
        out.long(segment.offset)
    };
    chunk.iter().fold(out.word(chunk.len() as u32), put)
}

/// A call, or a part of one, that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A part that others follow: the bytes that follow, and those of this one.
    Middle(u32, Vec<u8>),
    /// The last or only part: `rdma_inv_handle`, the rest of the header, and the payload.
    Last(u32, Header, Vec<u8>),
    /// The last or only part of a call with placed items.
    Placed(PlacedCall),
    /// A part of a call with placed items that others follow: its payload.
    PlacedMiddle(Vec<u8>),
}

/// An RDMA2_CALL_PLACED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedCall {
    /// The header without the items.
    pub header: Header,
    /// Position, length, segment and offset of each item.
    pub items: Vec<[u32; 4]>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Decodes a call. Returns `None` if no honest client would send the message.
#[must_use]
pub fn parse_call(bytes: &[u8]) -> Option<Arrived> {
    let mut from = Reader(bytes);
    let (xid, version) = (from.word()?, from.word()?);
    let (_, htype) = (from.word()?, from.word()?);
    if version != VERSION {
        return None;
    }
    if htype == CALL_MIDDLE {
        return Some(Arrived::Middle(from.word()?, from.0.to_vec()));
    }
    if htype == CALL_PLACED_MIDDLE {
        let (_, _, len) = (from.word()?, from.word()?, from.word()? as usize);
        return Some(Arrived::PlacedMiddle(from.take(len)?.to_vec()));
    }
    if !matches!(htype, CALL_EXTERNAL | CALL_INLINE | CALL_PLACED) {
        return None;
    }
    let handle = from.word()?;
    let mut header = v1::header(xid);
    let lists = if htype == CALL_EXTERNAL { 2 } else { 1 };
    for _ in 0..lists {
        while from.word()? == 1 {
            let position = from.word()?;
            header.reads.push((position, v1::take(&mut from)?));
        }
    }
    while from.word()? == 1 {
        header.writes.push(v1::take_chunk(&mut from)?);
    }
    if from.word()? == 1 {
        header.reply = Some(v1::take_chunk(&mut from)?);
    }
    if htype == CALL_EXTERNAL {
        header.procedure = NOMSG;
    }
    if htype == CALL_PLACED {
        let count = from.word()?;
        let item =
            |from: &mut Reader<'_>| Some([from.word()?, from.word()?, from.word()?, from.word()?]);
        let items: Option<Vec<[u32; 4]>> = (0..count).map(|_| item(&mut from)).collect();
        let (items, len) = (items?, from.word()? as usize);
        let payload = from.take(len)?.to_vec();
        return Some(Arrived::Placed(PlacedCall {
            header,
            items,
            payload,
        }));
    }
    Some(Arrived::Last(handle, header, from.0.to_vec()))
}

/// Encodes a call with these chunk lists. A Position-zero chunk of [`NOMSG`] is the Call chunk. `handle` is
/// `rdma_inv_handle`.
#[must_use]
pub fn call_with(header: &Header, handle: u32, payload: &[u8]) -> Vec<u8> {
    let put_reads = |out: Xdr, reads: &[(u32, Segment)]| {
        let out = reads.iter().fold(out, |out, (position, segment)| {
            let out = out.word(1).word(*position);
            let out = out.word(segment.handle).word(segment.length);
            out.long(segment.offset)
        });
        out.word(0)
    };
    let mut out = Xdr::new().word(handle);
    let mut htype = CALL_INLINE;
    if header.procedure == NOMSG {
        htype = CALL_EXTERNAL;
        let (call, items): (Vec<_>, Vec<_>) = header
            .reads
            .iter()
            .partition(|(position, _)| *position == 0);
        out = put_reads(put_reads(out, &call), &items);
    } else {
        out = put_reads(out, &header.reads);
    }
    for chunk in &header.writes {
        out = put_chunk(out.word(1), chunk);
    }
    out = out.word(0);
    out = match &header.reply {
        Some(chunk) => put_chunk(out.word(1), chunk),
        None => out.word(0),
    };
    message(header.xid, htype, &[], &out.raw(payload).done())
}

/// Translates a call of version 1. Any other message is returned unchanged.
#[must_use]
pub fn from_first(message: &[u8]) -> Vec<u8> {
    match v1::parse(message) {
        Some(v1::Message::Rpc(header, payload)) if header.version == 1 => {
            call_with(&header, 0, &payload)
        }
        _ => message.to_vec(),
    }
}

/// Decodes an RDMA2_REPLY_INLINE or RDMA2_REPLY_EXTERNAL: its header and its payload. Returns `None` if the
/// message is neither.
#[must_use]
pub fn parse_reply(bytes: &[u8]) -> Option<(Header, Vec<u8>)> {
    let mut from = Reader(bytes);
    let (xid, version) = (from.word()?, from.word()?);
    let (credits, htype) = (from.word()?, from.word()?);
    if version != VERSION || !matches!(htype, REPLY_INLINE | REPLY_EXTERNAL) {
        return None;
    }
    let mut header = Header {
        version,
        credits,
        ..v1::header(xid)
    };
    while next_entry(&mut from)? {
        header.writes.push(v1::take_chunk(&mut from)?);
    }
    if htype == REPLY_EXTERNAL {
        header.procedure = NOMSG;
        if next_entry(&mut from)? {
            header.reply = Some(v1::take_chunk(&mut from)?);
        }
    }
    Some((header, from.0.to_vec()))
}

/// Reads whether an optional item follows. Returns `None` if the word is neither 0 nor 1.
fn next_entry(from: &mut Reader<'_>) -> Option<bool> {
    match from.word()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Decodes the properties of an RDMA2_CONNPROP_MIDDLE or RDMA2_CONNPROP_FINAL: their numbers and values. Returns
/// `None` if they cannot be decoded.
#[must_use]
pub fn parse_properties(bytes: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut from = Reader(bytes.get(PREFIX..)?);
    let count = from.word()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let (which, len) = (from.word()?, from.word()? as usize);
        let value = from.take(len)?.to_vec();
        from.take(len.wrapping_neg() % 4)?;
        all.push((which, value));
    }
    from.0.is_empty().then_some(all)
}

/// Returns the error, with its fields, for a version that the receiver does not support.
pub fn unsupported() -> Vec<u32> {
    vec![ERR_VERS, VERSION, VERSION]
}

/// Returns the name of an error code without its prefix.
#[must_use]
pub fn error_name(code: u32) -> Option<&'static str> {
    Some(match code {
        ERR_VERS => "VERS",
        ERR_BAD_XDR => "BAD_XDR",
        ERR_BAD_PROPVAL => "BAD_PROPVAL",
        ERR_INVAL_HTYPE => "INVAL_HTYPE",
        ERR_INVAL_CONT => "INVAL_CONT",
        ERR_READ_CHUNKS => "READ_CHUNKS",
        ERR_WRITE_CHUNKS => "WRITE_CHUNKS",
        ERR_SEGMENTS => "SEGMENTS",
        ERR_WRITE_RESOURCE => "WRITE_RESOURCE",
        ERR_REPLY_RESOURCE => "REPLY_RESOURCE",
        ERR_VERS_MISMATCH => "VERS_MISMATCH",
        ERR_SYSTEM => "SYSTEM",
        _ => return None,
    })
}
