//! Runs a case of a hostile client.

use std::net::SocketAddr;
use std::time::Instant;

use super::hear::check_error;
use super::{Case, Step, success};
use crate::peer::{Heard, Peer};
use crate::rig::{Fixture, Form, SERVER};
use crate::stream::{Gone, PATIENCE, Stream};
use crate::wire::Reader;
use crate::wire::ddp::{self, ReadRequest, Untagged};
use crate::wire::v1::{self, Segment};
use crate::wire::{mpa, rpc, v2, wg};
use crate::{End, Wrong, wrong};

/// The XID of the call that shows that a connection lives.
const LAST: u32 = 0x600d_600d;
/// The number of messages of a flood that are written at a time: fewer than the server's receives.
const IN_ONE_GO: usize = 10;

/// Runs a case against the server of `rig`, and checks that no other client was harmed.
///
/// # Errors
/// The first deviation from the expectation.
pub fn run(case: &Case, fixture: &mut Fixture) -> Result<(), Wrong> {
    let mut play = Play {
        server: fixture.address(),
        fixture,
        peer: None,
        silent: Vec::new(),
        second: false,
        wg: None,
    };
    play.steps(&case.script)?;
    play.end(case.end)?;
    drop(play);
    fixture.unharmed()
}

struct Play<'a> {
    fixture: &'a mut Fixture,
    server: SocketAddr,
    peer: Option<Peer>,
    /// Connections that stay open and silent.
    silent: Vec<Peer>,
    /// Whether version 2 is used, not just messages of version 1 translated to it.
    second: bool,
    /// In the working group's version 2, the highest credit limit that the server has told.
    wg: Option<u32>,
}

impl Play<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), Wrong> {
        for (at, step) in steps.iter().enumerate() {
            self.step(step)
                .map_err(|what| wrong(format!("step {at}, {}: {what}", brief(step))))?;
        }
        Ok(())
    }

    fn peer(&mut self) -> Result<&mut Peer, Wrong> {
        self.peer
            .as_mut()
            .ok_or_else(|| wrong("the script says nothing of a connection"))
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::Connect => {
                let stream = Stream::connect(self.server).map_err(wrong)?;
                let peer = match self.fixture.form {
                    Form::Translated => Peer::new(stream).translated(v2::CALL),
                    Form::First | Form::Second | Form::Wg => Peer::new(stream),
                };
                // Every connection begins with one credit (version-two-07, section 4.3).
                self.wg = self.wg.map(|_| 1);
                self.silent.extend(self.peer.replace(peer));
            }
            Step::ConnectTcp => {
                let stream = Stream::connect(self.fixture.tcp()).map_err(wrong)?;
                self.silent.extend(self.peer.replace(Peer::new(stream)));
            }
            Step::BytesUntilEnd(bytes) => {
                let start = Instant::now();
                while self.peer()?.stream.write(bytes) {
                    self.fixture.bystander.works()?;
                    if start.elapsed() > PATIENCE {
                        return Err(wrong("the connection is not ended"));
                    }
                }
            }
            Step::LetsGo => self.fixture.lets_go()?,
            Step::Bytes(bytes) => drop(self.peer()?.stream.write(bytes)),
            Step::Trickle(bytes) => {
                for byte in bytes {
                    self.peer()?.stream.write(&[*byte]);
                    self.fixture.bystander.null()?;
                }
            }
            Step::HearFrame(frame) => {
                let heard = self.hear_frame()?;
                if heard != *frame {
                    return Err(wrong(format!("heard {heard:x?}")));
                }
            }
            Step::Crc => self.peer()?.set_crc(true),
            Step::Segment(ulpdu) => self.peer()?.say(ulpdu),
            Step::Send(message) => self.peer()?.send(message),
            Step::SendAs(opcode, word, message) => self.peer()?.send_as(*opcode, *word, message),
            Step::SendCut(most, message) => {
                self.peer()?.send_cut(ddp::SEND, 0, message, *most);
            }
            Step::Burst(count, message) => {
                let message = self.peer()?.form(message);
                let bytes = sends(self.peer()?.next_msn(), *count, &message);
                self.peer()?.stream.write(&bytes);
                self.peer()?.said(*count as u32);
            }
            Step::Flood(count, message) => {
                for _ in 0..count.div_ceil(IN_ONE_GO) {
                    let peer = self.peer()?;
                    let bytes = sends(peer.next_msn(), IN_ONE_GO, &peer.form(message));
                    peer.said(IN_ONE_GO as u32);
                    if !peer.stream.write(&bytes) {
                        break;
                    }
                    self.fixture.bystander.null()?;
                }
            }
            Step::Said(count) => self.peer()?.said(*count),
            Step::HearNothingRead(sink) => match self.hear().map_err(wrong)? {
                Heard::Response {
                    stag,
                    payload,
                    last: true,
                } if stag == *sink && payload.is_empty() => {}
                other => return Err(wrong(format!("heard {other:x?}"))),
            },
            Step::ErrVers(xid, version) => {
                let words = [v1::ERR_VERS, 1, 1];
                check_error(&self.message()?, *xid, *version, &words)?;
            }
            Step::ErrChunk(xid) => check_error(&self.message()?, *xid, 1, &[v1::ERR_CHUNK])?,
            Step::Hear(reply) => reply.check(&self.message()?)?,
            Step::HearAnyReply(xid) => {
                let message = self.message()?;
                if !matches!(v1::parse(&message), Some(v1::Message::Rpc(h, _)) if h.xid == *xid) {
                    return Err(wrong(format!("heard {message:x?}")));
                }
            }
            Step::Second => self.second = true,
            Step::Wg => self.wg = Some(1),
            Step::HasCredit => {
                let sent = self.peer()?.next_msn() - 1;
                if self.wg.is_none_or(|limit| limit <= sent) {
                    let limit = self.wg.unwrap_or_default();
                    return Err(wrong(format!("{sent} messages sent, {limit} are allowed")));
                }
            }
            Step::HearParts(xid, writes) => self.parts(*xid, writes)?,
            Step::HearType(htype) => {
                let heard = self.message()?;
                if wg::htype(&heard) != Some(*htype) {
                    return Err(wrong(format!("heard {}", in_words(&heard))));
                }
            }
            Step::HearNothing => {
                let nothing = ReadRequest {
                    sink: 0x51,
                    sink_offset: 0,
                    length: 0,
                    source: 0,
                    source_offset: 0,
                };
                self.peer()?.read(&nothing);
                match self.hear().map_err(wrong)? {
                    Heard::Response { last: true, .. } => {}
                    other => return Err(wrong(format!("heard {other:x?}"))),
                }
            }
            Step::HearWords(words, more) => {
                let heard = self.message()?;
                let is_it = match self.wg {
                    Some(_) => wg::is(&heard, words, *more),
                    None => v2::is(&heard, words, *more, SERVER.credits),
                };
                if !is_it {
                    let text = format!("heard {}, not {words:x?}", in_words(&heard));
                    return Err(wrong(text));
                }
            }
            Step::HearOperation(opttype) => {
                let heard = self.message()?;
                if v2::parse(&heard).is_none_or(|heard| heard.opttype != *opttype) {
                    return Err(wrong(format!("heard {}", in_words(&heard))));
                }
            }
            Step::Serve(segment, bytes) => {
                let request = self.read_request(segment)?;
                self.peer()?.respond(&request, bytes);
            }
            Step::Cheat(segment, ulpdus) => {
                let request = self.read_request(segment)?;
                for ulpdu in ulpdus(&request) {
                    self.peer()?.say(&ulpdu);
                }
            }
            Step::Placed(stag, offset, bytes) => self.placed(*stag, *offset, bytes)?,
            Step::PlacedLength(stag, offset, len) => self.placed_length(*stag, *offset, *len)?,
            Step::Turn => self.fixture.bystander.null()?,
            Step::Works => self.fixture.bystander.works()?,
            Step::Shut => self.peer()?.stream.shut(),
            Step::Abort => {
                self.peer()?.stream.reset_on_close();
                self.peer = None;
            }
            Step::OnAll(steps) => {
                self.steps(steps)?;
                for at in 0..self.silent.len() {
                    self.take_turns(at);
                    let done = self.steps(steps);
                    self.take_turns(at);
                    done?;
                }
            }
            Step::Repeat(times, steps) => {
                for _ in 0..*times {
                    self.steps(steps)?;
                }
            }
        }
        Ok(())
    }

    /// Swaps the current connection with a silent one.
    fn take_turns(&mut self, at: usize) {
        if let Some(peer) = &mut self.peer {
            std::mem::swap(peer, &mut self.silent[at]);
        }
    }

    /// Returns the next thing that the peer receives, without messages that only grant credits. The
    /// bystander makes calls meanwhile.
    fn hear(&mut self) -> Result<Heard, Gone> {
        loop {
            let heard = self.hear_any()?;
            let (Some(limit), Heard::Message { bytes, .. }) = (self.wg, &heard) else {
                return Ok(heard);
            };
            let sent = self.peer.as_ref().map_or(0, |peer| peer.next_msn() - 1);
            self.wg = wg::credit(bytes);
            // A limit is never lowered, and never beyond what was received by more than the server
            // has credits.
            let told = self.wg.unwrap_or_default();
            if told < limit || told > sent + SERVER.credits {
                let text = format!("credit limit {told} after {limit}, with {sent} sent");
                return Err(Gone::Nonsense(text));
            }
            if wg::htype(bytes) != Some(wg::GRANT) {
                return Ok(heard);
            }
        }
    }

    fn hear_any(&mut self) -> Result<Heard, Gone> {
        let Some(peer) = &mut self.peer else {
            return Err(Gone::Nonsense("there is no connection".into()));
        };
        let bystander = &self.fixture.bystander;
        // The bystander's own connection is checked after the case.
        peer.hear(&mut || bystander.null().is_ok())
    }

    fn hear_frame(&mut self) -> Result<mpa::Frame, Wrong> {
        let bystander = &self.fixture.bystander;
        let peer = self
            .peer
            .as_mut()
            .ok_or_else(|| wrong("there is no connection"))?;
        let heard = peer.hear_frame(mpa::REPLY_KEY, &mut || bystander.null().is_ok());
        heard.map_err(wrong)
    }

    fn message(&mut self) -> Result<Vec<u8>, Wrong> {
        match self.hear().map_err(wrong)? {
            Heard::Message {
                bytes,
                invalidate: None,
            } => Ok(bytes),
            // It must be one that was offered, and the scripts offer only these.
            Heard::Message {
                bytes,
                invalidate: Some(stag),
            } if offered(stag) => Ok(bytes),
            other => Err(wrong(format!("heard {other:x?}"))),
        }
    }

    /// Receives a reply in parts.
    fn parts(&mut self, xid: u32, writes: &[u32]) -> Result<(), Wrong> {
        let mut payload = Vec::new();
        let mut left = None;
        loop {
            let heard = self.message()?;
            let strange = || wrong(format!("heard {} in a reply in parts", in_words(&heard)));
            let (prefix, rest) = heard.split_at_checked(wg::PREFIX).ok_or_else(strange)?;
            if Reader(prefix).word() != Some(xid) {
                return Err(strange());
            }
            let mut rest = Reader(rest);
            match wg::htype(&heard) {
                Some(wg::REPLY_MIDDLE) => {
                    let remaining = rest.word().ok_or_else(strange)?;
                    payload.extend(rest.0);
                    let here = remaining + rest.0.len() as u32;
                    if rest.0.is_empty() || left.replace(remaining).is_some_and(|left| left != here)
                    {
                        return Err(wrong("rdma_remaining does not count what follows"));
                    }
                }
                Some(wg::REPLY_INLINE) => {
                    let list = rest.take(4 * writes.len()).ok_or_else(strange)?;
                    payload.extend(rest.0);
                    let whole = left.is_none_or(|left| left as usize == rest.0.len());
                    let start = v2::bytes(&[xid, 1, 0, 0, 0, 0, 0]);
                    return match whole && list == v2::bytes(writes) && payload.starts_with(&start) {
                        true => Ok(()),
                        false => Err(strange()),
                    };
                }
                _ => return Err(strange()),
            }
        }
    }

    fn read_request(&mut self, segment: &Segment) -> Result<ReadRequest, Wrong> {
        match self.hear().map_err(wrong)? {
            Heard::Read(request)
                if (request.source, request.length, request.source_offset)
                    == (segment.handle, segment.length, segment.offset) =>
            {
                Ok(request)
            }
            other => Err(wrong(format!("heard {other:x?}"))),
        }
    }

    fn placed(&mut self, stag: u32, offset: u64, bytes: &[u8]) -> Result<(), Wrong> {
        match self.all_placed(stag, offset)? == bytes {
            true => Ok(()),
            false => Err(wrong("other bytes were placed")),
        }
    }

    fn placed_length(&mut self, stag: u32, offset: u64, len: usize) -> Result<(), Wrong> {
        match self.all_placed(stag, offset)?.len() {
            placed if placed == len => Ok(()),
            placed => Err(wrong(format!("{placed} bytes were placed"))),
        }
    }

    /// Returns the bytes that were placed from an offset on, in consecutive pieces.
    fn all_placed(&mut self, stag: u32, offset: u64) -> Result<Vec<u8>, Wrong> {
        let mut at = offset;
        let mut all = Vec::new();
        for placed in std::mem::take(&mut self.peer()?.placed) {
            if (placed.stag, placed.offset) != (stag, at) {
                return Err(wrong(format!("a write to {:#x}", placed.stag)));
            }
            at += placed.bytes.len() as u64;
            all.extend(placed.bytes);
        }
        Ok(all)
    }

    fn end(&mut self, end: End) -> Result<(), Wrong> {
        match end {
            End::Left => return Ok(()),
            End::Lives if self.wg.is_some() => {
                let call = wg::call(LAST, &rpc::null(LAST).bytes());
                self.peer()?.send(&call);
                let heard = self.message();
                let heard = heard.map_err(|what| wrong(format!("it does not live: {what}")))?;
                return match wg::is(&heard, &wg::success(LAST, &[]), false) {
                    true => Ok(()),
                    false => Err(wrong(format!("heard {} at last", in_words(&heard)))),
                };
            }
            End::Lives if self.second => {
                let call = v2::plain(LAST, v2::CALL, &rpc::null(LAST).bytes());
                self.peer()?.send(&call);
                let heard = self.message();
                let heard = heard.map_err(|what| wrong(format!("it does not live: {what}")))?;
                return match v2::is(&heard, &v2::success(LAST, &[]), false, SERVER.credits) {
                    true => Ok(()),
                    false => Err(wrong(format!("heard {} at last", in_words(&heard)))),
                };
            }
            End::Lives => {
                let call = v1::header(LAST).with(&rpc::null(LAST).bytes());
                self.peer()?.send(&call);
                let answer = self.message();
                let answer = answer.map_err(|what| wrong(format!("it does not live: {what}")))?;
                return success(LAST, &[]).check(&answer);
            }
            End::Terminate(code) => match self.hear() {
                Ok(Heard::Terminate(heard)) if heard == code => {}
                other => return Err(wrong(format!("not {code:?} but {other:x?}"))),
            },
            End::Closed | End::Reset => {}
        }
        let expected = match end {
            End::Reset => Gone::Reset,
            _ => Gone::Closed,
        };
        loop {
            match self.hear() {
                Err(gone) if gone == expected => return Ok(()),
                // Messages that were already on the way.
                Ok(Heard::Message { .. } | Heard::Read(_)) if end == End::Reset => {}
                other => return Err(wrong(format!("not {expected:?} but {other:x?}"))),
            }
        }
    }
}

/// Returns whether the handle is one of those that scripts offer to the server.
fn offered(stag: u32) -> bool {
    (0x51..=0x5f).contains(&(stag >> 24))
}

/// Returns `count` Sends of one message as FPDUs.
fn sends(msn: u32, count: usize, message: &[u8]) -> Vec<u8> {
    let fpdu = |n| {
        let ulpdu = Untagged::send(msn.wrapping_add(n), message).ulpdu();
        mpa::fpdu(&ulpdu, false)
    };
    (0..count as u32).flat_map(fpdu).collect()
}

/// Formats the beginning of a message as words.
fn in_words(message: &[u8]) -> String {
    let words = message.chunks_exact(4).take(40);
    let words = words.map(|word| Reader(word).word().unwrap_or_default());
    let words: Vec<u32> = words.collect();
    format!("{} bytes, {words:x?}", message.len())
}

/// Returns a step's name.
fn brief(step: &Step) -> String {
    let text = format!("{step:?}");
    text.chars().take(60).collect()
}
