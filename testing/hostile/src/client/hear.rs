//! The replies that the server must send.

use crate::rig::SERVER;
use crate::wire::v1::{self, Header, Message, Segment};
use crate::wire::{Reader, Xdr};
use crate::{Wrong, wrong};

/// An expected RPC reply and its transport header. Credits are only checked for validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The transport header.
    header: Header,
    /// The words of the RPC message after its XID, or as many as matter.
    words: Vec<u32>,
    /// Whether more words may follow.
    more: bool,
}

impl Reply {
    fn new(xid: u32, words: &[u32], more: bool) -> Self {
        Self {
            header: v1::header(xid),
            words: words.to_vec(),
            more,
        }
    }

    /// Returns a reply that `rpcrdma conform` expects, of which a case here compares the words.
    pub(crate) fn of(reply: &rpcrdma_conform::expect::Reply) -> Self {
        Self::new(reply.xid, &reply.words, reply.more)
    }

    /// Adds returned Write chunks.
    #[must_use]
    pub fn returning(mut self, writes: &[&[Segment]]) -> Self {
        self.header.writes = writes.iter().map(|chunk| chunk.to_vec()).collect();
        self
    }

    /// Adds a returned Reply chunk.
    #[must_use]
    pub fn with_reply_chunk(mut self, chunk: &[Segment]) -> Self {
        self.header.reply = Some(chunk.to_vec());
        self
    }

    /// Changes the reply to RDMA_NOMSG: the whole message is in the Reply chunk.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.header.procedure = v1::NOMSG;
        (self.words, self.more) = (Vec::new(), false);
        self
    }

    /// Compares a message with the expected reply.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Wrong> {
        let Some(Message::Rpc(header, payload)) = v1::parse(bytes) else {
            return Err(wrong(format!("no reply but {bytes:x?}")));
        };
        if !(1..=SERVER.credits).contains(&header.credits) {
            return Err(wrong(format!("{} credits granted", header.credits)));
        }
        let credits = header.credits;
        let expected = Header {
            credits,
            ..self.header.clone()
        };
        if header != expected {
            return Err(wrong(format!("header {header:x?}, not {expected:x?}")));
        }
        if self.header.procedure == v1::NOMSG && payload.is_empty() {
            return Ok(());
        }
        let expected = Xdr::new().word(header.xid).words(&self.words).done();
        let as_it_must = match self.more {
            true => payload.starts_with(&expected),
            false => payload == expected,
        };
        match as_it_must {
            true => Ok(()),
            false => Err(wrong(format!("payload {payload:x?}, not {expected:x?}"))),
        }
    }
}

/// Expects MSG_ACCEPTED and SUCCESS with results that begin with these words.
#[must_use]
pub fn success(xid: u32, results: &[u32]) -> Reply {
    Reply::new(
        xid,
        &[&[1, 0, 0, 0, 0], results].concat(),
        !results.is_empty(),
    )
}

/// Expects an NFS error status.
#[must_use]
pub fn status(xid: u32, status: u32) -> Reply {
    success(xid, &[status])
}

/// Expects MSG_ACCEPTED with another status than SUCCESS, and the words that follow it.
#[must_use]
pub fn refused(xid: u32, status: &[u32]) -> Reply {
    Reply::new(xid, &[&[1, 0, 0, 0], status].concat(), false)
}

/// Expects MSG_DENIED, and the words that follow.
#[must_use]
pub fn denied(xid: u32, words: &[u32]) -> Reply {
    Reply::new(xid, &[&[1, 1], words].concat(), false)
}

/// Compares a message with an RDMA_ERROR, byte for byte except for the credits.
pub(super) fn check_error(
    bytes: &[u8],
    xid: u32,
    version: u32,
    words: &[u32],
) -> Result<(), Wrong> {
    let mut from = Reader(bytes);
    let fixed = [from.word(), from.word(), from.word(), from.word()];
    let rest: Vec<u32> = std::iter::from_fn(|| from.word()).collect();
    let [got_xid, got_version, credits, procedure] = fixed.map(Option::unwrap_or_default);
    let right = (got_xid, got_version, procedure) == (xid, version, v1::ERROR)
        && (1..=SERVER.credits).contains(&credits)
        && rest == words
        && from.0.is_empty();
    match right {
        true => Ok(()),
        false => {
            let text = format!("{bytes:x?} is no RDMA_ERROR {words:?} to {xid:#x}");
            Err(wrong(text))
        }
    }
}
