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
    BadMessage, BadReply, Dialect, ErrorMessage, ExtensionHeader, Incoming, Negotiable, Outgoing,
    PeerError, Plain, Receiver, Session, VersionTwo, VersionTwoSession,
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

fn is_of_version(error: &ErrorMessage) -> bool {
    matches!(error.error, PeerError::Version { .. })
}

/// The bytes of a message that are copied to change its number: as many as most headers have.
/// Version 2 decodes longer ones from several pieces.
const COPIED: usize = 256;

/// Gives a message the number of version 2, without a copy of what follows its header.
///
/// # Errors
/// The answer to a message of another version.
fn as_two(message: &mut Segments) -> Result<(), ErrorMessage> {
    // Version 2 refuses a message that is too short to have a number.
    let Some((first, fixed)) = message
        .first_mut()
        .and_then(|first| Fixed::peek(first).map(|fixed| (first, fixed)))
    else {
        return Ok(());
    };
    if fixed.version != THIRD.number() {
        let (low, high) = (THIRD.number(), THIRD.number());
        return Err(ErrorMessage {
            xid: fixed.xid,
            version: fixed.version,
            error: PeerError::Version { low, high },
        });
    }
    let rest = first.split_off(first.len().min(COPIED));
    let mut head = BytesMut::from(&first[..]);
    number(&mut head, 0, Version::TWO.number());
    *first = head.freeze();
    if !rest.is_empty() {
        message.insert(1, rest);
    }
    Ok(())
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
        // That a version is not supported is said in the version of the message that it answers.
        let version = match error.version == Version::TWO.number() && !is_of_version(error) {
            true => THIRD.number(),
            false => error.version,
        };
        VersionTwo.encode_error(&ErrorMessage { version, ..*error }, credits)
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
        match as_two(&mut message) {
            Ok(()) => self.0.decode(message, receiver),
            Err(refused) => {
                let direction = match receiver.side {
                    Side::Server => Direction::Call,
                    Side::Client => Direction::Reply,
                };
                // Errors are sent to clients alone.
                let answer = (receiver.side == Side::Server).then_some(refused);
                let reason = format!("a message of version {}", refused.version);
                Incoming::Bad(direction, BadMessage { answer, reason })
            }
        }
    }

    fn refuse_truncated(&mut self, beginning: &Segments) -> bool {
        let mut beginning = beginning.clone();
        as_two(&mut beginning).is_ok() && self.0.refuse_truncated(&beginning)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> ThirdSession {
        let extensions = Extensions::new(Side::Server, 9, Vec::new()).unwrap_or_else(|_| panic!());
        ThirdSession(VersionTwoSession { extensions })
    }

    const SERVER: Receiver = Receiver {
        side: Side::Server,
        takes_calls: true,
        makes_calls: false,
        max_call: 1 << 20,
    };

    /// A call of NULL with this many bytes of arguments.
    fn call(version: u32, args: usize) -> Segments {
        let mut out = BytesMut::new();
        let plain = Plain { xid: 7, credits: 3 };
        Third.encode_plain(&mut out, Direction::Call, plain);
        number(&mut out, 0, version);
        out.extend_from_slice(&[7_u32, 0].map(u32::to_be_bytes).concat());
        out.extend_from_slice(&vec![5; args]);
        [out.freeze()].into_iter().collect()
    }

    #[test]
    fn messages_of_other_versions_are_refused() {
        for version in [1, 2, 4] {
            let incoming = session().decode(call(version, 8), &SERVER);
            let Incoming::Bad(Direction::Call, BadMessage { answer, .. }) = incoming else {
                panic!("{version}: {incoming:?}");
            };
            let answer = answer.map(|it| (it.xid, it.version, it.error));
            let range = PeerError::Version { low: 3, high: 3 };
            assert_eq!(answer, Some((7, version, range)));
        }
    }

    #[test]
    fn errors_have_its_number() {
        let version = Version::TWO.number();
        let error = PeerError::Chunk;
        let xid = 7;
        let sent = Third.encode_error(
            &ErrorMessage {
                xid,
                version,
                error,
            },
            1,
        );
        assert_eq!(sent[4..8], 3_u32.to_be_bytes());
    }

    #[test]
    fn only_the_header_is_copied() {
        let message = call(3, 4096);
        let end = message[0].as_ptr_range().end;
        let Incoming::Plain(Direction::Call, plain, payload) = session().decode(message, &SERVER)
        else {
            panic!("not a call");
        };
        assert_eq!((plain.xid, plain.credits), (7, 3));
        assert_eq!(payload.iter().map(Bytes::len).sum::<usize>(), 4096 + 8);
        assert_eq!(payload.last().map(|it| it.as_ptr_range().end), Some(end));
    }
}
