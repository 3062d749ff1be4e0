//! Expected messages, and the comparison of received ones with them.

use std::ops::RangeInclusive;

use crate::dialect::Dialect;
use crate::difference::{difference, difference_at_end};
use crate::operation::Operation;
use crate::pattern::Pattern;
use crate::wire::v1::{self, Header, Message, Segment};
use crate::wire::{Reader, Xdr, v2, wg};

/// A received message in the terms that all versions share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message with an RPC message: its chunk lists, and its payload, of which all parts have come.
    Rpc(Header, Vec<u8>),
    /// Any other message.
    Other(Vec<u8>),
}

impl Received {
    /// Decodes a message of version 1.
    #[must_use]
    pub fn of_first(message: &[u8]) -> Self {
        match v1::parse(message) {
            Some(Message::Rpc(header, payload)) => Self::Rpc(header, payload),
            Some(Message::Error(..)) | None => Self::Other(message.to_vec()),
        }
    }

    /// Decodes a message of version 2 of 2016. Returns `None` for characteristics, which a client without that
    /// extension passes over.
    #[must_use]
    pub fn of_second(message: &[u8]) -> Option<Self> {
        let other = || Some(Self::Other(message.to_vec()));
        match v2::parse(message).map(|operation| operation.opttype) {
            Some(v2::INITXCH | v2::UPDXCH) => return None,
            Some(_) => return other(),
            None => {}
        }
        let first = v2::to_first(message, v2::REPLY);
        match first.map(|first| Self::of_first(&first)) {
            Some(Self::Rpc(header, payload)) => {
                let version = v2::VERSION;
                Some(Self::Rpc(Header { version, ..header }, payload))
            }
            Some(Self::Other(_)) | None => other(),
        }
    }

    /// Returns whether this is an error by which a server says that it does not speak this version: ERR_VERS with a
    /// range of others; to an end of version-two-07, the errors of version 2 of 2016 about headers, which have the
    /// numbers of BAD_XDR and INVAL_HTYPE; and to an end of 2016, whose first message is a plain call,
    /// any error, and what only ends of version-two-07 send.
    #[must_use]
    pub fn refuses(&self, dialect: Dialect) -> bool {
        let Self::Other(message) = self else {
            return false;
        };
        let mut from = Reader(message);
        let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
        match (&words[..], dialect) {
            ([_, _, _, v1::ERROR, v1::ERR_VERS, low, high], _) => {
                low <= high && !(low..=high).contains(&&dialect.version())
            }
            ([_, v2::VERSION, _, v1::ERROR | wg::CONNPROP_MIDDLE.., ..], Dialect::Two) => true,
            ([_, wg::VERSION, _, v1::ERROR, code], Dialect::Wg) => {
                matches!(*code, wg::ERR_BAD_XDR | wg::ERR_INVAL_HTYPE)
            }
            _ => false,
        }
    }

    /// Describes a message.
    #[must_use]
    pub fn brief(&self, dialect: Dialect) -> String {
        match self {
            Self::Rpc(header, payload) => format!(
                "an RPC message with XID {:#x} and {} bytes",
                header.xid,
                payload.len()
            ),
            Self::Other(message) => {
                if dialect == Dialect::Two
                    && let Some(operation) = v2::parse(message)
                {
                    let name = v2::operation_name(operation.opttype);
                    let words = &operation.info[..operation.info.len().min(16)];
                    return format!("{name} with the words {words:?}");
                }
                let mut from = Reader(message);
                let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
                match &words[..] {
                    [_, _, _, v1::ERROR, rest @ ..] => {
                        let kind = dialect.error_kind();
                        format!("an {kind} of {}", dialect.error_name(rest))
                    }
                    _ => format!(
                        "a message of {} bytes that is none of {dialect}",
                        message.len()
                    ),
                }
            }
        }
    }
}

/// Something that may come next on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// RDMA_ERROR with ERR_VERS, this XID and this version in its header, and a range of versions without it.
    ErrVers(u32, u32),
    /// RDMA_ERROR with ERR_CHUNK and this XID.
    ErrChunk(u32),
    /// RDMA2_ERROR with this XID, this version in its header, and these words behind the header type. Words that
    /// are `None` may have any value.
    Error(u32, u32, Vec<Option<u32>>),
    /// A reply.
    Reply(Reply),
    /// A message by its fields.
    Fields(Box<Pattern>),
    /// An operation of an extension of version 2 of 2016.
    Operation(Box<Operation>),
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

    fn check(&self, received: &Received, dialect: Dialect) -> Result<(), String> {
        let Received::Rpc(header, payload) = received else {
            return Err(received.brief(dialect));
        };
        let (version, procedure) = (
            dialect.version(),
            if self.long { v1::NOMSG } else { v1::MSG },
        );
        if (header.xid, header.version, header.procedure) != (self.xid, version, procedure) {
            let form = |procedure| match procedure {
                v1::NOMSG => "in the Reply chunk",
                _ => "inline",
            };
            return Err(format!(
                "XID {:#x}, version {}, payload {}; not {:#x}, {version}, {}",
                header.xid,
                header.version,
                form(header.procedure),
                self.xid,
                form(procedure)
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
                    "{} bytes after a header without a payload",
                    payload.len()
                )),
            };
        }
        self.check_payload(payload)
    }

    /// Compares an RPC message with the words of the reply.
    ///
    /// # Errors
    /// The difference.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), String> {
        let begins = Xdr::new().word(self.xid).words(&self.words).done();
        let ends = Xdr::new().words(&self.ends).done();
        let differs = difference(payload, &begins, self.more);
        match differs.or_else(|| difference_at_end(payload, &ends)) {
            None => Ok(()),
            Some(difference) => Err(difference),
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
    /// Compares a message with the expectation. `message` has the octets of its last part. An error says what it is
    /// instead.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(
        &self,
        received: &Received,
        message: &[u8],
        dialect: Dialect,
    ) -> Result<(), String> {
        match self {
            Self::Fields(pattern) => {
                let rpc = match received {
                    Received::Rpc(_, payload) => Some(payload.as_slice()),
                    Received::Other(_) => None,
                };
                pattern.check(rpc, message)
            }
            Self::Operation(operation) => match v2::parse(message) {
                Some(is) => operation.check(&is, message.len()),
                None => Err(received.brief(dialect)),
            },
            Self::Reply(reply) => reply.check(received, dialect),
            Self::Closed => Err(received.brief(dialect)),
            Self::ErrChunk(xid) => {
                error(received, dialect, *xid, 1, |words| words == [v1::ERR_CHUNK])
            }
            Self::ErrVers(xid, version) => {
                error(received, dialect, *xid, *version, |words| match words {
                    [v1::ERR_VERS, low, high] => low <= high && !(low..=high).contains(&version),
                    _ => false,
                })
            }
            Self::Error(xid, version, expected) => {
                error(received, dialect, *xid, *version, |words| {
                    let mut pairs = words.iter().zip(expected);
                    words.len() == expected.len()
                        && pairs.all(|(word, expected)| expected.is_none_or(|it| it == *word))
                })
            }
        }
    }
}

/// Compares a message with RDMA_ERROR.
fn error(
    received: &Received,
    dialect: Dialect,
    xid: u32,
    version: u32,
    is_it: impl Fn(&[u32]) -> bool,
) -> Result<(), String> {
    let Received::Other(message) = received else {
        return Err(received.brief(dialect));
    };
    let mut from = Reader(message);
    let fixed = [from.word(), from.word(), from.word(), from.word()];
    let words: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
    let [got, its_version, _, procedure] = fixed.map(Option::unwrap_or_default);
    if procedure != v1::ERROR {
        return Err(received.brief(dialect));
    }
    if (got, its_version) != (xid, version) {
        return Err(format!(
            "{} with XID {got:#x} and version {its_version}, not {xid:#x} and {version}",
            dialect.error_kind()
        ));
    }
    match is_it(&words) && from.0.is_empty() {
        true => Ok(()),
        false => Err(received.brief(dialect)),
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
