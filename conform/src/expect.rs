//! Expected messages, and the comparison of received ones with them.

use std::ops::RangeInclusive;

use crate::wire::v1::{self, Message, Segment};
use crate::wire::{Reader, Xdr};

/// Something that may come next on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// RDMA_ERROR with ERR_VERS, this XID and this version in its header, and a range of versions without it.
    ErrVers(u32, u32),
    /// RDMA_ERROR with ERR_CHUNK and this XID.
    ErrChunk(u32),
    /// A reply.
    Reply(Reply),
    /// The end of the connection.
    Closed,
}

/// An expected RPC reply with its transport header. What is `None` is not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The XID, in the transport header and in the RPC message.
    pub xid: u32,
    /// Whether the payload is in the Reply chunk (RDMA_NOMSG).
    pub long: bool,
    /// The words of the RPC message after its XID.
    pub words: Vec<u32>,
    /// Whether more may follow these words.
    pub more: bool,
    /// The last words of the RPC message.
    pub ends: Vec<u32>,
    /// The returned Write list.
    pub writes: Option<Vec<Vec<Segment>>>,
    /// The returned Reply chunk.
    pub chunk: Option<Vec<Segment>>,
    /// The credits granted.
    pub grant: Option<RangeInclusive<u32>>,
}

impl Reply {
    fn new(xid: u32, words: Vec<u32>, more: bool) -> Self {
        Self {
            xid,
            long: false,
            words,
            more,
            ends: Vec::new(),
            writes: None,
            chunk: None,
            grant: None,
        }
    }

    /// Sets the last words of the message.
    #[must_use]
    pub fn ends(self, words: &[u32]) -> Self {
        let ends = words.to_vec();
        Self { ends, ..self }
    }

    /// Sets the returned Write list.
    #[must_use]
    pub fn returning(self, writes: &[&[Segment]]) -> Self {
        let writes = writes.iter().map(|chunk| chunk.to_vec()).collect();
        Self {
            writes: Some(writes),
            ..self
        }
    }

    /// Sets the returned Reply chunk.
    #[must_use]
    pub fn with_chunk(self, chunk: &[Segment]) -> Self {
        let chunk = Some(chunk.to_vec());
        Self { chunk, ..self }
    }

    /// Sets the credits that may be granted.
    #[must_use]
    pub fn granting(self, grant: RangeInclusive<u32>) -> Self {
        let grant = Some(grant);
        Self { grant, ..self }
    }

    /// Changes the reply to RDMA_NOMSG: the whole message is in the Reply chunk.
    #[must_use]
    pub fn long(self) -> Self {
        Self { long: true, ..self }
    }

    fn check(&self, message: &[u8]) -> Result<(), String> {
        let (header, payload) = match v1::parse(message) {
            Some(Message::Rpc(header, payload)) => (header, payload),
            Some(Message::Error(_, _, words)) => {
                return Err(format!("an RDMA_ERROR of {}", named(&words)));
            }
            None => return Err("a message that is none of version 1".into()),
        };
        let procedure = if self.long { v1::NOMSG } else { v1::MSG };
        if (header.xid, header.version, header.procedure) != (self.xid, 1, procedure) {
            return Err(format!(
                "XID {:#x}, version {}, procedure {}; not {:#x}, 1, {procedure}",
                header.xid, header.version, header.procedure, self.xid
            ));
        }
        if !header.reads.is_empty() {
            return Err("a reply with a Read list".into());
        }
        if let Some(grant) = self
            .grant
            .as_ref()
            .filter(|it| !it.contains(&header.credits))
        {
            let (least, most) = (grant.start(), grant.end());
            return Err(format!(
                "{} credits granted, not {least} to {most}",
                header.credits
            ));
        }
        if let Some(writes) = self.writes.as_ref().filter(|it| **it != header.writes) {
            return Err(format!(
                "Write list {}, not {}",
                lists(&header.writes),
                lists(writes)
            ));
        }
        if self.chunk.is_some() && self.chunk != header.reply {
            let shown = |chunk: &Option<Vec<Segment>>| lists(chunk.as_slice());
            return Err(format!(
                "Reply chunk {}, not {}",
                shown(&header.reply),
                shown(&self.chunk)
            ));
        }
        if self.long {
            return match payload.is_empty() {
                true => Ok(()),
                false => Err(format!(
                    "{} bytes after an RDMA_NOMSG header",
                    payload.len()
                )),
            };
        }
        self.check_payload(&payload)
    }

    /// Compares an RPC message with the words of the reply.
    ///
    /// # Errors
    /// The difference.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), String> {
        let begins = Xdr::new().word(self.xid).words(&self.words).done();
        let ends = Xdr::new().words(&self.ends).done();
        let whole = self.more || payload.len() == begins.len();
        match payload.starts_with(&begins) && payload.ends_with(&ends) && whole {
            true => Ok(()),
            false => Err(format!(
                "the RPC message {:x?}, which must begin with {begins:x?} and end with {ends:x?}",
                &payload[..payload.len().min(160)]
            )),
        }
    }
}

/// Expects MSG_ACCEPTED and SUCCESS, with results that begin with these words.
#[must_use]
pub fn success(xid: u32, results: &[u32]) -> Reply {
    let words = [&[1, 0, 0, 0, 0], results].concat();
    Reply::new(xid, words, !results.is_empty())
}

/// Expects MSG_ACCEPTED with another status than SUCCESS, and the words that follow it.
#[must_use]
pub fn refused(xid: u32, status: &[u32]) -> Reply {
    Reply::new(xid, [&[1, 0, 0, 0], status].concat(), false)
}

/// Expects MSG_DENIED, and the words that follow.
#[must_use]
pub fn denied(xid: u32, words: &[u32]) -> Reply {
    Reply::new(xid, [&[1, 1], words].concat(), false)
}

impl Expect {
    /// Compares a message with the expectation. An error says what it is instead.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, message: &[u8]) -> Result<(), String> {
        match self {
            Self::Reply(reply) => reply.check(message),
            Self::Closed => Err("a message".into()),
            Self::ErrChunk(xid) => error(message, *xid, 1, |words| words == [v1::ERR_CHUNK]),
            Self::ErrVers(xid, version) => error(message, *xid, *version, |words| match words {
                [v1::ERR_VERS, low, high] => low <= high && !(low..=high).contains(&version),
                _ => false,
            }),
        }
    }
}

/// Compares a message with RDMA_ERROR.
fn error(
    message: &[u8],
    xid: u32,
    version: u32,
    is_it: impl Fn(&[u32]) -> bool,
) -> Result<(), String> {
    let mut from = Reader(message);
    let fixed = [from.word(), from.word(), from.word(), from.word()];
    let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
    let [got, its_version, _, procedure] = fixed.map(Option::unwrap_or_default);
    if procedure != v1::ERROR {
        return Err(format!("a message with procedure {procedure}"));
    }
    if (got, its_version) != (xid, version) {
        return Err(format!(
            "RDMA_ERROR with XID {got:#x} and version {its_version}, not {xid:#x} and {version}"
        ));
    }
    match is_it(&words) && from.0.is_empty() {
        true => Ok(()),
        false => Err(format!("an RDMA_ERROR of {}", named(&words))),
    }
}

/// Returns the words after the procedure of an RDMA_ERROR in words.
fn named(words: &[u32]) -> String {
    match words {
        [v1::ERR_VERS, low, high] => format!("ERR_VERS, versions {low} to {high}"),
        [v1::ERR_CHUNK] => "ERR_CHUNK".into(),
        other => format!("words {:x?}", &other[..other.len().min(8)]),
    }
}

fn lists(chunks: &[Vec<Segment>]) -> String {
    let segment = |it: &Segment| format!("{:#x}: {}", it.handle, it.length);
    let chunk = |it: &Vec<Segment>| {
        let segments: Vec<String> = it.iter().take(8).map(segment).collect();
        format!("[{}]", segments.join(", "))
    };
    let chunks: Vec<String> = chunks.iter().take(8).map(chunk).collect();
    if chunks.is_empty() {
        "none".into()
    } else {
        chunks.join(" ")
    }
}
