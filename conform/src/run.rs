//! Performance of one case on connections of its own.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::case::{Case, End, Step};
use crate::expect::{Expect, Reply, success};
use crate::memory::Memory;
use crate::peer::{Heard, Peer};
use crate::stream::{Gone, Stream};
use crate::wire::mpa::{self, Frame};
use crate::wire::rpc;
use crate::wire::v1::{self, Message};

/// The XID of the call that shows that a connection lives.
const LAST: u32 = 0x600d_600d;
/// The XID of the first call of a burst.
const FIRST_OF_BURST: u32 = 0x600e_0000;
/// The inline threshold of a peer that says none (RFC 8166, section 3.3.3), bytes.
const DEFAULT_RECEIVE: usize = 1024;

/// The server under test.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// The only address that is connected to.
    pub address: SocketAddr,
    /// The longest wait for each message.
    pub patience: Duration,
}

/// The reason why a case was not passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The server deviates from the expectation.
    #[error("{0}")]
    Deviation(String),
    /// The server cannot be tested by this case.
    #[error("{0}")]
    NotApplicable(String),
    /// No connection was established.
    #[error("{0}")]
    Unreachable(String),
}

/// A case as it was performed: its result, and the messages for whoever wants to know why.
#[derive(Clone, Debug)]
pub struct Performed {
    /// The result.
    pub result: Result<(), Failed>,
    /// The messages, in order, with the first of their octets.
    pub exchange: Vec<String>,
}

/// Performs a case.
#[must_use]
pub fn perform(case: &Case, server: &Server) -> Performed {
    let mut play = Play::new(server);
    let result = play.whole(&case.script, case.end);
    let exchange = play.exchange;
    Performed { result, exchange }
}

/// Returns whether the server accepts a connection and answers a NULL call.
///
/// # Errors
/// The server does otherwise, or is not there.
pub fn alive(server: &Server) -> Result<(), Failed> {
    let script = [Step::Connect(mpa::PRIVATE_DATA.to_vec())];
    Play::new(server).whole(&script, End::Lives)
}

struct Play<'a> {
    server: &'a Server,
    peer: Option<Peer>,
    memory: Memory,
    /// The longest message that the server receives, bytes.
    receive: usize,
    /// Whether this client said that it supports remote invalidation.
    invalidates: bool,
    /// The handles in the chunk lists of messages that were sent on this connection.
    named: HashSet<u32>,
    /// The last RPC message with its transport header.
    last: Option<v1::Header>,
    exchange: Vec<String>,
}

fn deviation(what: impl std::fmt::Display) -> Failed {
    Failed::Deviation(what.to_string())
}

impl<'a> Play<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            server,
            peer: None,
            memory: Memory::default(),
            receive: DEFAULT_RECEIVE,
            invalidates: false,
            named: HashSet::new(),
            last: None,
            exchange: Vec::new(),
        }
    }

    fn whole(&mut self, script: &[Step], end: End) -> Result<(), Failed> {
        for step in script {
            self.step(step)?;
        }
        self.send(&v1::header(LAST).with(&rpc::null(LAST).bytes()))?;
        let mut allowed = vec![Expect::Reply(success(LAST, &[]))];
        if end == End::LivesOrCloses {
            allowed.push(Expect::Closed);
        }
        self.expect(&allowed).map_err(|failed| match failed {
            Failed::Deviation(what) => deviation(format!("at the NULL call at the end: {what}")),
            other => other,
        })
    }

    fn step(&mut self, step: &Step) -> Result<(), Failed> {
        match step {
            Step::Connect(private) => self.connect(private)?,
            Step::Offer(segment, content) => self.memory.offer(*segment, content.clone()),
            Step::Room(segment) => self.memory.room(*segment),
            Step::Send(message) => self.send(message)?,
            Step::Expect(allowed) => self.expect(allowed)?,
            Step::Message(handles, reply) => self.message(handles, reply).map_err(deviation)?,
            Step::Burst(most) => self.burst(*most)?,
            Step::Holds(handle, bytes) => self.memory.holds(*handle, bytes).map_err(deviation)?,
        }
        Ok(())
    }

    fn connect(&mut self, private: &[u8]) -> Result<(), Failed> {
        self.peer = None;
        self.memory = Memory::default();
        self.named.clear();
        let unreachable = |what: &dyn std::fmt::Display| Failed::Unreachable(what.to_string());
        let stream = Stream::connect_within(self.server.address, self.server.patience);
        let mut peer = Peer::new(stream.map_err(|error| unreachable(&error))?);
        self.invalidates = settings(private).is_some_and(|[flags, ..]| flags & 1 != 0);
        let request = Frame {
            private: private.to_vec(),
            ..Frame::request()
        };
        peer.stream.write(&request.bytes());
        let frame = peer.hear_frame(mpa::REPLY_KEY, &mut || true);
        let frame = frame.map_err(|gone| unreachable(&format_args!("MPA set-up: {gone}")))?;
        if frame.flags & mpa::REJECT != 0 {
            return Err(Failed::Unreachable(
                "MPA set-up: the connection is rejected".into(),
            ));
        }
        if frame.flags & mpa::MARKERS != 0 {
            let text = "the server requires MPA markers, which this command does not send";
            return Err(Failed::NotApplicable(text.into()));
        }
        peer.set_crc(frame.flags & mpa::CRC != 0);
        // The threshold of a direction is the smaller of the sender's and the receiver's (RFC 8797, 4.2).
        self.receive = receive_size(&frame.private).min(send_size(private));
        self.peer = Some(peer);
        Ok(())
    }

    fn peer(&mut self) -> Result<&mut Peer, Failed> {
        let none = || Failed::NotApplicable("the script makes no connection".into());
        self.peer.as_mut().ok_or_else(none)
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Failed> {
        if message.len() > self.receive {
            return Err(Failed::NotApplicable(format!(
                "the server receives messages of at most {} bytes (RFC 8797), and this one has {}",
                self.receive,
                message.len()
            )));
        }
        self.note("sent", message);
        if let Some(Message::Rpc(header, _)) = v1::parse(message) {
            let reads = header.reads.iter().map(|(_, segment)| segment);
            let writes = header.writes.iter().chain(&header.reply).flatten();
            self.named
                .extend(reads.chain(writes).map(|segment| segment.handle));
        }
        self.peer()?.send(message);
        Ok(())
    }

    /// Receives the next message, answers Read Requests before it, and compares it.
    fn expect(&mut self, allowed: &[Expect]) -> Result<(), Failed> {
        loop {
            let heard = self.peer()?.hear(&mut || true);
            for placed in std::mem::take(&mut self.peer()?.placed) {
                self.note_text(format!(
                    "RDMA Write: {} bytes to {:#x}",
                    placed.bytes.len(),
                    placed.stag
                ));
                self.memory.write(&placed).map_err(deviation)?;
            }
            match heard {
                Ok(Heard::Read(request)) => {
                    self.note_text(format!(
                        "RDMA Read: {} bytes of {:#x}",
                        request.length, request.source
                    ));
                    let bytes = self.memory.read(&request).map_err(deviation)?.to_vec();
                    self.peer()?.respond(&request, &bytes);
                }
                Ok(Heard::Message { bytes, invalidate }) => {
                    self.note("received", &bytes);
                    self.invalidated(invalidate)?;
                    if let Some(Message::Rpc(header, _)) = v1::parse(&bytes) {
                        self.last = Some(header);
                    }
                    let Some(first) = allowed.first() else {
                        return Ok(());
                    };
                    if allowed.iter().any(|it| it.check(&bytes).is_ok()) {
                        return Ok(());
                    }
                    let what = first.check(&bytes).err().unwrap_or_default();
                    return Err(deviation(format!("received {what}")));
                }
                Ok(Heard::Response { .. }) => {
                    return Err(deviation("an RDMA Read Response to no request"));
                }
                Ok(Heard::Terminate(code)) => {
                    self.note_text(format!("Terminate: {code:x?}"));
                    return match allowed.contains(&Expect::Closed) {
                        true => Ok(()),
                        false => Err(deviation(format!(
                            "the connection is terminated: {code:x?}"
                        ))),
                    };
                }
                Err(gone @ (Gone::Closed | Gone::Reset | Gone::CutShort)) => {
                    self.note_text(format!("the connection ended: {gone}"));
                    return match allowed.contains(&Expect::Closed) {
                        true => Ok(()),
                        false => Err(deviation(format!("the connection ended: {gone}"))),
                    };
                }
                Err(gone) => return Err(deviation(gone)),
            }
        }
    }

    /// Compares a message that was written into rooms, and the lengths that its Reply chunk returns.
    fn message(&self, handles: &[u32], reply: &Reply) -> Result<(), String> {
        let returned = self.last.as_ref().and_then(|it| it.reply.as_ref());
        let returned = returned.ok_or("the reply returns no Reply chunk")?;
        let mut whole = Vec::new();
        if returned.len() != handles.len() {
            return Err(format!(
                "{} segments are returned of {}",
                returned.len(),
                handles.len()
            ));
        }
        for (handle, segment) in handles.iter().zip(returned) {
            let written = self.memory.written(*handle);
            if (segment.handle, segment.length as usize) != (*handle, written.len()) {
                return Err(format!(
                    "{} bytes at handle {:#x} are returned, and {} were written to {handle:#x}",
                    segment.length,
                    segment.handle,
                    written.len()
                ));
            }
            whole.extend(written);
        }
        reply.check_payload(&whole)
    }

    /// Makes as many calls at once as were granted, and receives their replies.
    fn burst(&mut self, most: u32) -> Result<(), Failed> {
        let granted = self.last.as_ref().map_or(1, |it| it.credits);
        let mut waiting: Vec<u32> = (0..granted.min(most)).map(|n| FIRST_OF_BURST + n).collect();
        for xid in &waiting {
            self.send(&v1::header(*xid).with(&rpc::null(*xid).bytes()))?;
        }
        while !waiting.is_empty() {
            let allowed = waiting.iter().map(|xid| Expect::Reply(success(*xid, &[])));
            self.expect(&allowed.collect::<Vec<_>>())?;
            let answered = self.last.as_ref().map(|it| it.xid);
            waiting.retain(|xid| Some(*xid) != answered);
        }
        Ok(())
    }

    /// Checks the handle that a message invalidates (RFC 8797, section 4.1).
    fn invalidated(&mut self, handle: Option<u32>) -> Result<(), Failed> {
        let Some(handle) = handle else {
            return Ok(());
        };
        self.note_text(format!("which invalidates {handle:#x}"));
        if !self.invalidates {
            let text = "a Send With Invalidate, which this client does not support (RFC 8797, 4.1)";
            return Err(deviation(text));
        }
        match self.named.contains(&handle) {
            true => Ok(()),
            false => Err(deviation(format!(
                "handle {handle:#x} is invalidated, which was not offered (RFC 8797, 4.1)"
            ))),
        }
    }

    fn note(&mut self, what: &str, message: &[u8]) {
        /// Octets of a message that are shown.
        const SHOWN: usize = 256;
        let shown = &message[..message.len().min(SHOWN)];
        let words = shown.chunks(4).map(|word| {
            let hex = word.iter().map(|byte| format!("{byte:02x}"));
            hex.collect::<String>()
        });
        let words: Vec<String> = words.collect();
        let rest = if shown.len() < message.len() {
            " ..."
        } else {
            ""
        };
        self.note_text(format!(
            "{what} {} bytes: {}{rest}",
            message.len(),
            words.join(" ")
        ));
    }

    fn note_text(&mut self, text: String) {
        /// Messages that are kept.
        const KEPT: usize = 64;
        if self.exchange.len() < KEPT {
            self.exchange.push(text);
        }
    }
}

/// Returns the flags, the send size and the receive size that private data tells (RFC 8797, section 5.2).
fn settings(private: &[u8]) -> Option<[u8; 3]> {
    const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
    let found = private.windows(8).find(|it| it.starts_with(&MAGIC));
    match found {
        Some(&[_, _, _, _, 1, flags, send, receive]) => Some([flags, send, receive]),
        _ => None,
    }
}

/// Returns the send size that private data tells (RFC 8797, section 4.2), bytes.
fn send_size(private: &[u8]) -> usize {
    settings(private).map_or(DEFAULT_RECEIVE, |[_, send, _]| {
        (usize::from(send) + 1) * 1024
    })
}

/// Returns the receive size that private data tells (RFC 8797, section 4.2), bytes.
fn receive_size(private: &[u8]) -> usize {
    // In units of 1024 bytes, less one.
    settings(private).map_or(DEFAULT_RECEIVE, |[.., receive]| {
        (usize::from(receive) + 1) * 1024
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receive_size_is_found_at_any_offset_of_private_data() {
        assert_eq!(receive_size(&[]), 1024);
        assert_eq!(receive_size(&mpa::PRIVATE_DATA), 4096);
        let shifted = [&[9, 0xf6][..], &[0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 15]].concat();
        assert_eq!(receive_size(&shifted), 16384);
        assert_eq!(receive_size(&[0xf6, 0xab, 0x0e, 0x18, 2, 0, 0, 15]), 1024);
    }
}
