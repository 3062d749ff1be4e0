//! @Name@: an extension of RPC-over-RDMA version 2. No I/O and no clock.
//!
//! A sketch to begin with: each end sends the other a [`Note`] when a connection begins.
//! Section numbers are those of draft-maintainers-nfsv4-rpcrdma-@name@-00, whose source is
//! `drafts/text/rpcrdma-@name@.xml`.

#![forbid(unsafe_code)]

use bytes::{BufMut, Bytes, BytesMut};
use rpcrdma_extension::{Extension, Outbox, ReceivedMessage, Refusal, Start};
use rpcrdma_v2::{Direction, Malformed, Reader, Side};

/// `rdma_opttype` of ROPT_@NAME@.
pub const @NAME@: u32 = @number@;

/// The maximum length of the text, in bytes.
pub const MAX_TEXT: usize = 256;

/// `optinfo_@name@`: the content of the operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// `opt@name@_number`.
    pub number: u32,
    /// `opt@name@_text`.
    pub text: Bytes,
}

impl Note {
    /// Encodes the note as XDR, for `rdma_optinfo`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u32(self.number);
        out.put_u32(self.text.len() as u32);
        out.put_slice(&self.text);
        out.put_bytes(0, onc_rpc::pad(self.text.len() as u64) as usize);
        out.freeze()
    }

    /// Decodes the note from `rdma_optinfo`.
    ///
    /// # Errors
    /// The XDR is invalid, or the text is longer than [`MAX_TEXT`].
    pub fn decode(info: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(info);
        let number = from.u32()?;
        let text = from.opaque()?;
        from.end()?;
        if text.len() > MAX_TEXT {
            return Err(Malformed::TooMany("bytes of text"));
        }
        let text = Bytes::copy_from_slice(text);
        Ok(Self { number, text })
    }
}

/// The state of the extension at one end of a connection.
#[derive(Debug, Default)]
pub struct @Name@ {
    ours: Note,
    peers: Option<Note>,
}

impl @Name@ {
    /// Returns the extension of one end, which announces `ours` to the peer.
    #[must_use]
    pub fn new(ours: Note) -> Self {
        Self { ours, peers: None }
    }

    /// Returns the peer's note, if it has arrived.
    #[must_use]
    pub fn peers(&self) -> Option<&Note> {
        self.peers.as_ref()
    }
}

impl Extension for @Name@ {
    fn name(&self) -> &'static str {
        "@name@"
    }

    fn numbers(&self) -> &[u32] {
        &[@NAME@]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(@NAME@, self.ours.encode());
        }
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        self.peers = Some(Note::decode(op.delimited()?.0)?);
        if op.direction == Direction::Call {
            out.reply(op.xid, @NAME@, self.ours.encode());
        }
        Ok(())
    }
}
