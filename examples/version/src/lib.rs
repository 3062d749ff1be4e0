//! An example of a version of RPC-over-RDMA: version 2 of 2016 with another number and none of its
//! extensions, in which a client begins by a message that says hello. `src/main.rs` is the `rpcrdma`
//! command with it.
//!
//! A client asks a server for it first, since that is what [`Negotiable::is_asked_for`] says, and uses
//! another version at a server that lacks it.

#![forbid(unsafe_code)]

use bytes::{Bytes, BytesMut};
use onc_rpc::{Message, Segments};
use rpcrdma::Version;
use rpcrdma_chunks::{Chunks, Direction, Fixed, Side};
use rpcrdma_connection::dialect::{
    BadReply, Dialect, ErrorMessage, ExtensionHeader, Incoming, Negotiable, Outgoing, Plain,
    Receiver, Session, VersionTwo, VersionTwoSession,
};
use rpcrdma_extension::{
    DuplicateNumber, EndConfig, Extension, Extensions, Outbox, ReceivedMessage, Refusal, Start,
};
use transfer_plan::ChunkCounts;

/// Its number on the wire, and its name in options.
pub const THIRD: Version = Version::new(3, "third");
/// The message that says hello: from the range that nobody has assigned.
pub const HELLO: u32 = 0x7fff_0003;

/// The version.
#[derive(Debug)]
pub struct Third;

impl Negotiable for Third {
    fn version(&self) -> Version {
        THIRD
    }

    fn is_asked_for(&self) -> bool {
        true
    }
}

/// Gives a header that begins at `at` this version number, which is its second word in every version.
fn number(out: &mut [u8], at: usize, number: u32) {
    out[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
}

impl Dialect for Third {
    fn header_len(&self) -> fn(&ChunkCounts) -> u64 {
        VersionTwo.header_len()
    }

    fn encode_plain(&self, out: &mut BytesMut, direction: Direction, header: Plain) {
        let at = out.len();
        VersionTwo.encode_plain(out, direction, header);
        number(out, at, THIRD.number());
    }

    fn encode(&self, out: &mut BytesMut, header: Outgoing) -> Chunks {
        let at = out.len();
        let chunks = VersionTwo.encode(out, header);
        number(out, at, THIRD.number());
        chunks
    }

    fn encode_error(&self, error: &ErrorMessage, credits: u32) -> Bytes {
        VersionTwo.encode_error(error, credits)
    }

    fn session(
        &self,
        end: &EndConfig<'_>,
        extensions: Vec<Box<dyn Extension>>,
        first_xid: u32,
    ) -> Result<Box<dyn Session>, DuplicateNumber> {
        let hello: Box<dyn Extension> = Box::new(Hello);
        let all = [hello].into_iter().chain(extensions).collect();
        let extensions = Extensions::new(end.side, first_xid, all)?;
        Ok(Box::new(ThirdSession(VersionTwoSession { extensions })))
    }

    fn has_extensions(&self) -> bool {
        true
    }

    fn encode_extension(&self, out: &mut BytesMut, header: ExtensionHeader) {
        let at = out.len();
        VersionTwo.encode_extension(out, header);
        number(out, at, THIRD.number());
    }

    fn check_payload(&self, xid: u32, to: Direction, message: &Message) -> Result<(), BadReply> {
        VersionTwo.check_payload(xid, to, message)
    }
}

/// The state of the version at one end of a connection.
#[derive(Debug)]
struct ThirdSession(VersionTwoSession);

impl Session for ThirdSession {
    fn decode(&mut self, mut message: Segments, receiver: &Receiver) -> Incoming {
        let Some(first) = message.first_mut() else {
            return self.0.decode(message, receiver);
        };
        if Fixed::peek(first).is_some_and(|fixed| fixed.version == THIRD.number()) {
            let mut two = BytesMut::from(&first[..]);
            number(&mut two, 0, Version::TWO.number());
            *first = two.freeze();
        }
        self.0.decode(message, receiver)
    }

    fn begin(&mut self) {
        self.0.begin();
    }

    fn extensions(&self) -> Option<&Extensions> {
        self.0.extensions()
    }

    fn extensions_mut(&mut self) -> Option<&mut Extensions> {
        self.0.extensions_mut()
    }
}

/// Says hello, by which a client asks for the version, and a server answers in it.
#[derive(Debug)]
struct Hello;

impl Extension for Hello {
    fn name(&self) -> &'static str {
        "hello"
    }

    fn numbers(&self) -> &[u32] {
        &[HELLO]
    }

    fn connected(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        if start.side == Side::Client {
            out.call(HELLO, Bytes::new());
        }
    }

    fn received(&mut self, it: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        match it.direction {
            Direction::Call => out.reply(it.xid, HELLO, Bytes::new()),
            Direction::Reply => out.answered(it.xid),
        }
        Ok(())
    }
}
