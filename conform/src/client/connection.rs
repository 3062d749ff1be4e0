//! One connection of a client under test.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Instant;

use super::arrival::{self, Thresholds};
use super::call::{Call, total};
use super::case::Act;
use super::rules::Rule;
use super::stage::Stage;
use crate::peer::{Heard, Peer};
use crate::stream::{Gone, Stream};
use crate::wire::ddp::{self, ReadRequest};
use crate::wire::mpa::{self, Frame};
use crate::wire::v1::{self, Header, Segment};

/// The handle of the sink of Read Requests.
const SINK: u32 = 0x51;
/// The longest call or data that is fetched, bytes.
const LONGEST: u64 = 1 << 20;
/// The most calls that wait for a reply.
const MOST_WAITING: usize = 1024;
/// The most bytes of calls that wait for a reply: eight calls of the longest inline threshold.
const MOST_BYTES: usize = 8 * (256 << 10);

/// A call that has arrived and is not answered.
pub(super) struct Waiting {
    pub(super) header: Header,
    /// The bytes behind the header.
    pub(super) behind: Vec<u8>,
    /// The length of the message, bytes.
    pub(super) length: usize,
}

/// Returns whether another call of this length may wait.
fn has_room(waiting: &VecDeque<Waiting>, length: usize) -> bool {
    let bytes: usize = waiting.iter().map(|it| it.length).sum();
    waiting.len() < MOST_WAITING && bytes.saturating_add(length) <= MOST_BYTES
}

/// Something that has happened.
pub(super) enum Event {
    /// A message came, and was looked at.
    Message,
    /// The next piece of a Read Response, and whether it is the last.
    Response(Vec<u8>, bool),
    /// Nothing came until then.
    Nothing,
}

/// The connection has ended, or is to end.
pub(super) struct Over;

/// An end of a connection that the client has caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Whether the client has said why, by a Terminate.
    pub(super) is_terminated: bool,
    /// The end in words.
    pub(super) how: String,
}

/// A connection.
pub(super) struct Connection<'a> {
    pub(super) stage: &'a Stage,
    pub(super) peer: Peer,
    pub(super) number: usize,
    pub(super) thresholds: Thresholds,
    /// Whether a message of version 1 has come.
    spoken_one: bool,
    /// Whether the server had closed a connection before this one was set up.
    is_later: bool,
    /// The end of the connection, once it has one that the client has caused.
    pub(super) end: Option<End>,
    /// Whether the client supports remote invalidation.
    pub(super) invalidates: bool,
    pub(super) waiting: VecDeque<Waiting>,
    /// Calls without a reply, those in [`Connection::waiting`] and the one that is being answered.
    pub(super) outstanding: u32,
    /// The credits of the last reply.
    pub(super) granted: Option<u32>,
    /// The last WRITE that was answered with nothing outstanding, if its memory is to be read again.
    pub(super) done_with: Option<Segment>,
}

impl<'a> Connection<'a> {
    /// Performs MPA's set-up.
    pub(super) fn set_up(stage: &'a Stage, socket: TcpStream) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("a connection: {error}");
        socket.set_nonblocking(false).map_err(|it| failed(&it))?;
        let mut stream = Stream::new(socket).map_err(|it| failed(&it))?;
        stream.stop_by(stage.stop()).map_err(|it| failed(&it))?;
        if let Some(watcher) = &stage.watcher {
            stream.watch(watcher).map_err(|it| failed(&it))?;
        }
        let mut peer = Peer::new(stream);
        // A client makes none, and those of a peer that does are not kept.
        peer.keep_placed(1);
        let frame = peer.hear_frame(mpa::REQUEST_KEY, &mut || !stage.has_ended());
        let frame = frame.map_err(|gone| failed(&format_args!("MPA set-up: {gone}")))?;
        let private = match stage.act {
            Act::Private(private) => private,
            _ => arrival::USUAL,
        };
        let reply = reply_frame(&frame, private);
        peer.stream.write(&reply.bytes());
        if reply.flags & mpa::REJECT != 0 {
            return Err("the client requires MPA markers, which this command does not send".into());
        }
        peer.set_crc(frame.flags & mpa::CRC != 0);
        let number = stage.count();
        let is_later = {
            let mut shared = stage.shared();
            shared.exchange.text(format!("connection {}", number + 1));
            arrival::private_data(&mut shared.findings, &frame.private);
            matches!(stage.act, Act::Close | Act::Reset) && shared.acted
        };
        Ok(Self {
            stage,
            peer,
            number,
            spoken_one: false,
            is_later,
            end: None,
            thresholds: arrival::thresholds(&frame.private, private),
            invalidates: arrival::invalidates(&frame.private) && arrival::invalidates(private),
            waiting: VecDeque::new(),
            outstanding: 0,
            granted: None,
            done_with: None,
        })
    }

    /// Waits until this many calls have come, or until then.
    pub(super) fn await_calls(&mut self, until: Instant, count: usize) -> Result<(), Over> {
        while self.waiting.len() < count {
            if let Event::Nothing = self.next(Some(until))? {
                break;
            }
        }
        Ok(())
    }

    /// Returns the next thing that happens.
    pub(super) fn next(&mut self, until: Option<Instant>) -> Result<Event, Over> {
        let stage = self.stage;
        if stage.has_ended() {
            return Err(Over);
        }
        if self.peer.stream.has_failed() {
            return Err(self.ended(false, "the connection ends: nothing can be sent".into()));
        }
        let goes_on = || !stage.has_ended() && until.is_none_or(|it| Instant::now() < it);
        if !self.peer.stream.is_readable(&mut { goes_on }) {
            return match stage.has_ended() {
                true => Err(Over),
                false => Ok(Event::Nothing),
            };
        }
        let heard = self.peer.hear(&mut || !stage.has_ended());
        if !self.peer.placed.is_empty() {
            self.active("an RDMA Write");
            return Err(Over);
        }
        if heard.is_ok() {
            let mut shared = self.stage.shared();
            shared.findings.look(Rule::Framing, true, String::new);
        }
        match heard {
            Ok(Heard::Message { bytes, .. }) => {
                self.arrived(&bytes)?;
                Ok(Event::Message)
            }
            Ok(Heard::Response { payload, last, .. }) => Ok(Event::Response(payload, last)),
            // The ready-to-receive message of an initiator (RFC 6581, section 9).
            Ok(Heard::Read(request)) if request.length == 0 => {
                self.peer.respond(&request, &[]);
                Ok(Event::Message)
            }
            Ok(Heard::Read(_)) => {
                self.active("an RDMA Read");
                Err(Over)
            }
            Ok(Heard::Terminate(code)) => {
                let how = format!("the client terminates the connection: {code:x?}");
                Err(self.ended(true, how))
            }
            Err(Gone::Nonsense(what)) => {
                let mut shared = self.stage.shared();
                shared.findings.look(Rule::Framing, false, || what);
                Err(Over)
            }
            Err(gone) => Err(self.ended(false, format!("the connection ends: {gone}"))),
        }
    }

    fn active(&self, what: &str) {
        let text = format!("{what} of the requester");
        self.note(text.clone());
        let mut shared = self.stage.shared();
        shared.findings.look(Rule::Passive, false, || text);
    }

    /// Notes an end that the client has caused.
    fn ended(&mut self, is_terminated: bool, how: String) -> Over {
        self.note(how.clone());
        self.end = Some(End { is_terminated, how });
        Over
    }

    pub(super) fn note(&self, text: String) {
        self.stage.shared().exchange.text(text);
    }

    /// Looks at a message, and keeps it if it is a call.
    fn arrived(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let mut shared = self.stage.shared();
        let shared = &mut *shared;
        shared.exchange.message("received", bytes);
        let findings = &mut shared.findings;
        findings.look(Rule::Passive, true, String::new);
        let heard = arrival::fixed_fields(findings, bytes, self.thresholds, self.spoken_one);
        let (header, behind) = match heard {
            Ok(heard) => heard,
            Err(None) => return Ok(()),
            Err(Some(error)) => {
                shared.other_version |= !self.spoken_one;
                shared.exchange.message("sent", &error);
                self.peer.send(&error);
                return Ok(());
            }
        };
        self.spoken_one = true;
        if std::mem::take(&mut shared.other_version) {
            findings.look(Rule::OtherVersion, true, String::new);
        }
        if self.is_later {
            findings.look(Rule::VersionAgain, true, String::new);
        }
        if header.procedure == v1::NOMSG {
            arrival::long_call(findings, &header, &behind);
        } else if Call::new(header.clone(), behind.clone()).is_none() {
            // A reply to a call of this server, or nothing that anybody understands.
            return Ok(());
        }
        let xid = header.xid;
        let is_new = self.waiting.iter().all(|it| it.header.xid != xid);
        findings.look(Rule::DistinctXids, is_new, || {
            format!("two outstanding calls with XID {xid:#x}")
        });
        self.outstanding = self.outstanding.saturating_add(1);
        let (calls, asked) = (self.outstanding, header.credits);
        match self.granted {
            None => findings.look(Rule::FirstCall, calls == 1, || {
                format!("{calls} calls before the first reply of the connection")
            }),
            Some(granted) => {
                let rule = match self.stage.act == Act::Lower && shared.acted {
                    true => Rule::LoweredCredits,
                    false => Rule::Credits,
                };
                let text =
                    || format!("{calls} calls outstanding; {granted} granted, {asked} asked for");
                // Every client has the one of the first call.
                findings.look(rule, calls <= granted.max(1), text);
                findings.look(Rule::Asked, calls <= asked.max(1), text);
            }
        }
        let length = bytes.len();
        if !has_room(&self.waiting, length) {
            shared.exchange.text(format!(
                "more than {MOST_WAITING} calls or {MOST_BYTES} bytes of calls wait"
            ));
            return Err(Over);
        }
        self.waiting.push_back(Waiting {
            header,
            behind,
            length,
        });
        Ok(())
    }

    /// Returns the data of a WRITE. Returns an inner `None` if it cannot be had.
    pub(super) fn data(&mut self, call: &Call) -> Result<Option<Vec<u8>>, Over> {
        let Some((at, length)) = call.data() else {
            return Ok(Some(Vec::new()));
        };
        let reduced = call.reduced();
        if reduced.is_empty() {
            let end = at.checked_add(length as usize);
            let inline = end.and_then(|end| call.payload.get(at..end));
            return Ok(inline.map(<[u8]>::to_vec));
        }
        let segments: Vec<Segment> = reduced.iter().map(|(_, segment)| *segment).collect();
        let mut fetched = self.fetched(&segments)?;
        if let Some(data) = &mut fetched {
            data.truncate(length as usize);
        }
        Ok(fetched)
    }

    /// Reads segments. Returns an inner `None` if they are too long.
    pub(super) fn fetched(&mut self, segments: &[Segment]) -> Result<Option<Vec<u8>>, Over> {
        if total(segments) > LONGEST {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        for segment in segments.iter().filter(|it| it.length > 0) {
            self.read(*segment);
            let whole = bytes.len() + segment.length as usize;
            loop {
                let until = Instant::now() + self.stage.patience;
                match self.next(Some(until))? {
                    Event::Response(payload, last) => {
                        bytes.extend(payload);
                        if bytes.len() == whole && last {
                            break;
                        }
                        if last || bytes.len() > whole {
                            self.note("a Read Response of another length".into());
                            return Err(Over);
                        }
                    }
                    Event::Message => {}
                    Event::Nothing => {
                        self.note("no Read Response came in time".into());
                        return Err(Over);
                    }
                }
            }
        }
        Ok(Some(bytes))
    }

    /// Sends a Read Request.
    pub(super) fn read(&mut self, segment: Segment) {
        self.note(format!(
            "RDMA Read: {} bytes of {:#x}",
            segment.length, segment.handle
        ));
        self.peer.read(&ReadRequest {
            sink: SINK,
            sink_offset: 0,
            length: segment.length,
            source: segment.handle,
            source_offset: segment.offset,
        });
    }

    /// Sends the answer to a call.
    pub(super) fn send(&mut self, opcode: u8, word: u32, message: &[u8]) {
        self.outstanding = self.outstanding.saturating_sub(1);
        let mut shared = self.stage.shared();
        shared.exchange.message("sent", message);
        if opcode == ddp::SEND_INVALIDATE {
            shared.exchange.text(format!("which invalidates {word:#x}"));
        }
        drop(shared);
        self.peer.send_as(opcode, word, message);
    }
}

/// Returns the answer to an initiator's frame.
fn reply_frame(request: &Frame, private: &[u8]) -> Frame {
    let asks_for_markers = request.flags & mpa::MARKERS != 0;
    let mut flags = request.flags & (mpa::CRC | mpa::ENHANCED);
    if asks_for_markers {
        flags |= mpa::REJECT;
    }
    // A client that begins peer-to-peer says which first message it can send (RFC 6581, section 9).
    let depths = request.depths.map(|(inbound, outbound)| {
        let begins = match () {
            () if inbound & mpa::PEER_TO_PEER == 0 => (0, 0),
            () if outbound & mpa::RTR_WRITE != 0 => (mpa::PEER_TO_PEER, mpa::RTR_WRITE),
            () => (mpa::PEER_TO_PEER, mpa::RTR_READ),
        };
        (16 | begins.0, 16 | begins.1)
    });
    Frame {
        key: mpa::REPLY_KEY,
        flags,
        revision: request.revision,
        length: None,
        depths,
        private: private.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_up_is_answered_as_it_was_asked_for() {
        let plain = Frame {
            flags: mpa::CRC,
            revision: 1,
            depths: None,
            ..Frame::request()
        };
        let reply = reply_frame(&plain, &[]);
        assert_eq!(
            (reply.flags, reply.revision, reply.depths),
            (mpa::CRC, 1, None)
        );
        let peer_to_peer = Frame {
            depths: Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ)),
            ..Frame::request()
        };
        let reply = reply_frame(&peer_to_peer, &[]);
        let depths = Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ));
        assert_eq!((reply.flags, reply.depths), (mpa::ENHANCED, depths));
        let markers = Frame {
            flags: mpa::MARKERS,
            ..Frame::request()
        };
        assert_ne!(reply_frame(&markers, &[]).flags & mpa::REJECT, 0);
    }

    #[test]
    fn calls_that_wait_are_bounded() {
        let most = |length: usize| {
            let mut waiting = VecDeque::new();
            while has_room(&waiting, length) {
                waiting.push_back(Waiting {
                    header: v1::header(7),
                    behind: Vec::new(),
                    length,
                });
            }
            waiting.len()
        };
        assert_eq!([256 << 10, 1 << 20].map(most), [8, 2]);
        assert_eq!(most(100), MOST_WAITING);
        assert_eq!(most(usize::MAX), 0);
    }
}
