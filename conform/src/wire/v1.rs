//! RPC-over-RDMA version 1 headers (RFC 8166, section 4).

use super::{Reader, Xdr};

/// `rdma_proc` RDMA_MSG.
pub const MSG: u32 = 0;
/// `rdma_proc` RDMA_NOMSG.
pub const NOMSG: u32 = 1;
/// `rdma_proc` RDMA_MSGP.
pub const MSGP: u32 = 2;
/// `rdma_proc` RDMA_DONE.
pub const DONE: u32 = 3;
/// `rdma_proc` RDMA_ERROR.
pub const ERROR: u32 = 4;
/// `rdma_err` ERR_VERS.
pub const ERR_VERS: u32 = 1;
/// `rdma_err` ERR_CHUNK.
pub const ERR_CHUNK: u32 = 2;

/// A segment (`xdr_rdma_segment`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The handle.
    pub handle: u32,
    /// The length in bytes.
    pub length: u32,
    /// The offset.
    pub offset: u64,
}

/// Returns a segment.
#[must_use]
pub fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment {
        handle,
        length,
        offset,
    }
}

/// A transport header with chunk lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_vers`.
    pub version: u32,
    /// `rdma_credit`.
    pub credits: u32,
    /// `rdma_proc`.
    pub procedure: u32,
    /// The Read list: positions and segments.
    pub reads: Vec<(u32, Segment)>,
    /// The Write list.
    pub writes: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub reply: Option<Vec<Segment>>,
}

/// Returns the header of an RDMA_MSG without chunks.
#[must_use]
pub fn header(xid: u32) -> Header {
    Header {
        xid,
        version: 1,
        credits: 8,
        procedure: MSG,
        reads: Vec::new(),
        writes: Vec::new(),
        reply: None,
    }
}

fn put(out: Xdr, segment: &Segment) -> Xdr {
    let out = out.word(segment.handle).word(segment.length);
    out.long(segment.offset)
}

fn put_chunk(out: Xdr, chunk: &[Segment]) -> Xdr {
    chunk.iter().fold(out.word(chunk.len() as u32), put)
}

impl Header {
    /// Encodes the header, followed by `payload`.
    #[must_use]
    pub fn with(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Xdr::new().words(&[self.xid, self.version, self.credits, self.procedure]);
        for (position, segment) in &self.reads {
            out = put(out.word(1).word(*position), segment);
        }
        out = out.word(0);
        for chunk in &self.writes {
            out = put_chunk(out.word(1), chunk);
        }
        out = out.word(0);
        out = match &self.reply {
            None => out.word(0),
            Some(chunk) => put_chunk(out.word(1), chunk),
        };
        out.raw(payload).done()
    }
}

/// Returns RDMA_ERROR with the words that follow the procedure.
#[must_use]
pub fn error(xid: u32, version: u32, words: &[u32]) -> Vec<u8> {
    let out = Xdr::new().words(&[xid, version, 8, ERROR]);
    out.words(words).done()
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A message with chunk lists.
    Rpc(Header, Vec<u8>),
    /// RDMA_ERROR: XID, version, and the words that follow the procedure.
    Error(u32, u32, Vec<u32>),
}

/// Decodes a message. Returns `None` if no honest peer would send it.
#[must_use]
pub fn parse(message: &[u8]) -> Option<Message> {
    let mut from = Reader(message);
    let (xid, version) = (from.word()?, from.word()?);
    let (credits, procedure) = (from.word()?, from.word()?);
    if procedure == ERROR {
        let words = std::iter::from_fn(|| from.word()).collect();
        return Some(Message::Error(xid, version, words));
    }
    let mut header = Header {
        version,
        credits,
        procedure,
        ..header(xid)
    };
    while follows(&mut from)? {
        let position = from.word()?;
        header.reads.push((position, take(&mut from)?));
    }
    while follows(&mut from)? {
        header.writes.push(take_chunk(&mut from)?);
    }
    if follows(&mut from)? {
        header.reply = Some(take_chunk(&mut from)?);
    }
    (procedure <= NOMSG).then(|| Message::Rpc(header, from.0.to_vec()))
}

/// Reads whether an optional item follows (RFC 4506, section 4.19). Returns `None` if the word is neither 0 nor 1.
fn follows(from: &mut Reader<'_>) -> Option<bool> {
    match from.word()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

pub(crate) fn take(from: &mut Reader<'_>) -> Option<Segment> {
    Some(Segment {
        handle: from.word()?,
        length: from.word()?,
        offset: from.long()?,
    })
}

pub(crate) fn take_chunk(from: &mut Reader<'_>) -> Option<Vec<Segment>> {
    let count = from.word()?;
    (0..count).map(|_| take(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_item_follows_or_does_not() {
        let whole = Header {
            reads: vec![(0, segment(1, 2, 3))],
            writes: vec![vec![segment(4, 5, 6)]],
            reply: Some(vec![segment(7, 8, 9)]),
            ..header(1)
        };
        let message = whole.with(&[]);
        assert_eq!(parse(&message), Some(Message::Rpc(whole, Vec::new())));
        // The discriminators of a Read list, a Write list and a Reply chunk of one entry each.
        for at in [4, 10, 11, 17, 18].map(|word| 4 * word) {
            let mut changed = message.clone();
            changed[at..at + 4].copy_from_slice(&2_u32.to_be_bytes());
            assert_eq!(parse(&changed), None, "octet {at}");
        }
    }
}
