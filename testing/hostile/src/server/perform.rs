//! Performs the script of a hostile server.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::wg::Begun;
use super::{Answer, Call, Case, DATA_SEED, Outcome, Step, Until};
use crate::peer::{Heard, Peer};
use crate::rig::{Form, content};
use crate::stream::{Gone, Stream};
use crate::wire::Reader;
use crate::wire::ddp::{self, ReadRequest, Untagged};
use crate::wire::mpa::{self, Frame};
use crate::wire::v1::{self, Segment};
use crate::wire::{rpc, v2, wg};
use crate::{End, Wrong, wrong};

/// The number of calls for mounting: EXPORT, MNT, FSINFO.
const GREETING: usize = 3;
/// The credits that an honest server grants.
const CREDITS: u32 = 8;
/// The maximum number of credits that a client requests or grants.
const MOST_ASKED: u32 = 128;
/// The number of messages of a flood that are written at a time.
const IN_ONE_GO: usize = 4;

/// The hostile server, between or during connections.
pub(super) struct Performer<'a> {
    pub(super) listener: &'a TcpListener,
    pub(super) case: &'a Case,
    /// Whether the client's operation has ended.
    pub(super) done: &'a AtomicBool,
    /// Set when the connection of the script has ended as it should.
    pub(super) ended: &'a AtomicBool,
    /// The protocol version.
    pub(super) form: Form,
}

/// A connection with its calls.
struct Scene<'a> {
    peer: Peer,
    done: &'a AtomicBool,
    credits: u32,
    earlier: Option<Call>,
    last: Option<Call>,
    /// Calls that have not been answered correctly.
    owed: Vec<Call>,
    /// In version 2, the characteristics of this end, or its properties.
    said: Option<&'a [u32]>,
    /// The version of the working group, if it is used.
    wg: Option<Continued>,
}

/// The state of a connection of the working group's version 2.
#[derive(Default)]
struct Continued {
    /// The parts of a call that others follow.
    begun: Begun,
    /// The highest credit limit that the client has told.
    limit: u32,
}

impl Performer<'_> {
    /// Performs the script with the first client that connects, and is honest to later ones.
    pub(super) fn perform(&self) -> Result<(), Wrong> {
        let Some(mut scene) = self.accept()? else {
            return Ok(());
        };
        let case = self.case;
        if case.honest != Until::Start {
            scene.set_up(case.honest == Until::CallWithCrc)?;
            for _ in 0..GREETING {
                scene.hear()?;
                scene.answer(|_| {})?;
            }
        }
        for (at, step) in case.script.iter().enumerate() {
            let done = scene.step(step);
            done.map_err(|what| wrong(format!("step {at}: {what}")))?;
        }
        if case.end == End::Lives {
            if case.outcome == Outcome::Right {
                scene.make_amends()?;
            }
            return scene.serve();
        }
        scene.end(case.end)?;
        self.ended.store(true, Ordering::Release);
        drop(scene);
        while let Some(mut scene) = self.accept()? {
            scene.set_up(false)?;
            scene.serve()?;
        }
        Ok(())
    }

    fn accept(&self) -> Result<Option<Scene<'_>>, Wrong> {
        let (socket, _): (TcpStream, _) = self.listener.accept().map_err(wrong)?;
        // The end of the case is signalled by a connection.
        if self.done.load(Ordering::Acquire) {
            return Ok(None);
        }
        let stream = Stream::new(socket).map_err(wrong)?;
        let peer = Peer::new(stream);
        Ok(Some(Scene {
            peer: match self.form {
                Form::Translated => peer.translated(v2::REPLY),
                Form::First | Form::Second | Form::Wg => peer,
            },
            said: matches!(self.form, Form::Second | Form::Wg).then_some(&self.case.said[..]),
            wg: (self.form == Form::Wg).then(Continued::default),
            done: self.done,
            credits: match self.case.honest {
                Until::Granting(credits) => credits,
                _ => CREDITS,
            },
            earlier: None,
            last: None,
            owed: Vec::new(),
        }))
    }
}

impl Scene<'_> {
    fn set_up(&mut self, crc: bool) -> Result<(), Wrong> {
        self.hear_frame()?;
        let mut reply = Frame::reply();
        if crc {
            reply.flags |= mpa::CRC;
            self.peer.set_crc(true);
        }
        self.peer.stream.write(&reply.bytes());
        Ok(())
    }

    fn hear_frame(&mut self) -> Result<(), Wrong> {
        let going_on = || !self.done.load(Ordering::Acquire);
        let heard = self.peer.hear_frame(mpa::REQUEST_KEY, &mut { going_on });
        let frame = heard.map_err(wrong)?;
        match (frame.flags, frame.revision) {
            // Revision 1 is tried when a responder has refused revision 2.
            (mpa::ENHANCED, 2) | (0, 1) => Ok(()),
            _ => Err(wrong(format!("the client's frame is {frame:x?}"))),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::HearFrame => self.hear_frame()?,
            Step::Frame(frame) => drop(self.peer.stream.write(&frame.bytes())),
            Step::Bytes(bytes) => drop(self.peer.stream.write(bytes)),
            Step::Trickle(bytes) => self.trickle(bytes),
            Step::Hear => self.hear()?,
            Step::HearNothing => {
                // Its response follows everything that the client has sent before.
                self.peer.read(&ReadRequest {
                    sink: 0x51,
                    sink_offset: 0,
                    length: 0,
                    source: 0,
                    source_offset: 0,
                });
                self.response(0)?;
            }
            Step::Answer(lie) => self.answer(lie)?,
            Step::Mislead(lie) => self.answer(|answer| {
                lie(answer);
                answer.poison();
            })?,
            Step::TrickleAnswer => {
                let answer = self.call()?.answer(self.credits);
                let message = answer.header.with(&answer.payload);
                let message = self.peer.form(&message);
                let ulpdu = Untagged::send(self.peer.next_msn(), &message).ulpdu();
                self.trickle(&mpa::fpdu(&ulpdu, false));
                self.peer.said(1);
                self.owed.pop();
            }
            Step::Segment(ulpdu) => {
                let ulpdu = ulpdu(self.call()?);
                self.peer.say(&ulpdu);
            }
            Step::Send(message) => {
                let message = message(self.call()?);
                self.peer.send(&message);
            }
            Step::Burst(count, message) => {
                let message = self.peer.form(&message(self.call()?));
                let (first, mut all) = (self.peer.next_msn(), Vec::new());
                for n in 0..*count as u32 {
                    let ulpdu = Untagged::send(first.wrapping_add(n), &message).ulpdu();
                    all.extend(mpa::fpdu(&ulpdu, false));
                }
                self.peer.stream.write(&all);
                self.peer.said(*count as u32);
            }
            Step::Flood(count, message) => {
                let message = self.peer.form(&message(self.call()?));
                for _ in 0..count.div_ceil(IN_ONE_GO) {
                    let mut all = Vec::new();
                    for n in 0..IN_ONE_GO as u32 {
                        let msn = self.peer.next_msn().wrapping_add(n);
                        let ulpdu = Untagged::send(msn, &message).ulpdu();
                        all.extend(mpa::fpdu(&ulpdu, false));
                    }
                    self.peer.said(IN_ONE_GO as u32);
                    if !self.peer.stream.write(&all) {
                        break;
                    }
                }
            }
            Step::HearWords(words) => self.hear_words(words)?,
            Step::HearReport(number, lead, fault) => {
                let xid = self.call()?.header.xid;
                let lead = match lead {
                    true => vec![1, xid, v2::REPLY, 0],
                    false => vec![0],
                };
                let bad = [xid, v2::REPLY, *number];
                let info = [&bad[..], &lead, fault].concat();
                self.hear_words(&v2::report(xid, v2::REPLY, &info))?;
            }
            Step::HearBadXid(number) => {
                let xid = self.call()?.header.xid;
                let lead = [1, xid, v2::REPLY, 0];
                let info = [&[xid, v2::CALL, *number][..], &lead, &[5, xid, xid]].concat();
                self.hear_words(&v2::report(xid, v2::CALL, &info))?;
            }
            Step::Settled => drop(self.owed.drain(..self.owed.len().saturating_sub(1))),
            Step::Say(message) => self.peer.send(message),
            Step::Reject(words) => {
                let xid = self.call()?.header.xid;
                let info = [&[xid, v2::CALL][..], words].concat();
                let message = v2::operation(xid, v2::REPLY, v2::XMTERR, &info, &[]);
                self.peer.send(&message);
            }
            Step::Refuse(words) => {
                let message = wg::error(self.call()?.header.xid, words);
                self.peer.send(&message);
            }
            Step::Patched(patches) => {
                let mut transmissions = self.call()?.transmissions(true)?;
                for (part, word, value) in patches {
                    let at = v2::OPERATION + 4 * word;
                    transmissions[*part][at..at + 4].copy_from_slice(&value.to_be_bytes());
                }
                transmissions.iter().for_each(|part| self.peer.send(part));
            }
            Step::Transmissions(change) => {
                let call = self.call()?.clone();
                let mut transmissions = call.transmissions(true)?;
                change(&call, &mut transmissions);
                transmissions.iter().for_each(|part| self.peer.send(part));
            }
            Step::Part(form, patches) => {
                let call = self.call()?;
                let parts = patched(call.parts(*form, true), patches);
                self.send_parts(&parts)?;
            }
            Step::Parts(form, change) => {
                let call = self.call()?.clone();
                let mut parts = call.parts(*form, true);
                change(&call, &mut parts);
                self.send_parts(&parts)?;
            }
            Step::AnswerIn(form) => {
                let call = self.call()?.clone();
                let parts = call.parts(*form, false);
                self.send_parts(&parts)?;
                self.owed.retain(|owed| *owed != call);
            }
            Step::HearProperties => match self.hear_any().map_err(wrong)? {
                Heard::Message { bytes, .. } if wg::htype(&bytes) == Some(wg::CONNPROP_FINAL) => {}
                other => return Err(wrong(format!("heard {other:x?}"))),
            },
            Step::HearRefusal(error) => {
                let xid = self.call()?.header.xid;
                self.hear_words(&wg::answer(xid, error))?;
            }
            Step::HearReply(xid) => self.hear_reply(*xid)?,
            Step::HearReplyToCall => self.hear_reply(self.call()?.header.xid)?,
            Step::HearError(xid, words) => match self.hear_any().map_err(wrong)? {
                Heard::Message { bytes, .. }
                    if matches!(v1::parse(&bytes), Some(v1::Message::Error(to, _, said))
                        if to == *xid && said == *words) => {}
                other => return Err(wrong(format!("no error but {other:x?}"))),
            },
            Step::ReadAhead(times) => {
                let request = request(self.call()?.segment());
                for _ in 0..*times {
                    self.peer.read(&request);
                }
            }
            Step::ReadAgain(times) => {
                let request = request(self.call()?.segment());
                for _ in 0..*times {
                    self.peer.read(&request);
                    self.response(request.length as usize)?;
                }
            }
            Step::Crc => self.peer.set_crc(true),
            Step::Said(count) => self.peer.said(*count),
            Step::SegmentOfEarlier(ulpdu) => {
                let earlier = self.earlier.as_ref();
                let ulpdu = ulpdu(earlier.ok_or_else(|| wrong("the script has heard one call"))?);
                self.peer.say(&ulpdu);
            }
            Step::Shut => self.peer.stream.shut(),
            Step::Abort => self.peer.stream.reset_on_close(),
        }
        Ok(())
    }

    fn trickle(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.peer.stream.write(&[*byte]);
            std::thread::yield_now();
        }
    }

    fn call(&self) -> Result<&Call, Wrong> {
        self.last
            .as_ref()
            .ok_or_else(|| wrong("the script has heard no call"))
    }

    /// Sends parts of a message, as the client has credits for them.
    fn send_parts(&mut self, parts: &[Vec<u8>]) -> Result<(), Wrong> {
        for part in parts {
            self.await_credit()?;
            self.peer.send(part);
        }
        Ok(())
    }

    /// Waits until the client allows another message.
    fn await_credit(&mut self) -> Result<(), Wrong> {
        let done = self.done;
        while let Some(state) = &mut self.wg
            && state.limit < self.peer.next_msn()
        {
            let heard = self.peer.hear(&mut || !done.load(Ordering::Acquire));
            match heard.map_err(wrong)? {
                Heard::Message { bytes, .. } if wg::htype(&bytes) == Some(wg::GRANT) => {
                    state.limit = wg::credit(&bytes).unwrap_or_default();
                }
                other => return Err(wrong(format!("no credits but {other:x?}"))),
            }
        }
        Ok(())
    }

    fn hear_any(&mut self) -> Result<Heard, Gone> {
        let done = self.done;
        loop {
            let heard = self.peer.hear(&mut || !done.load(Ordering::Acquire))?;
            let (Some(state), Heard::Message { bytes, .. }) = (&mut self.wg, &heard) else {
                return Ok(heard);
            };
            let (limit, sent) = (state.limit, self.peer.next_msn() - 1);
            state.limit = wg::credit(bytes).unwrap_or_default();
            if state.limit < limit || state.limit > sent + MOST_ASKED {
                let told = state.limit;
                let text = format!("credit limit {told} after {limit}, with {sent} sent");
                return Err(Gone::Nonsense(text));
            }
            if wg::htype(bytes) != Some(wg::GRANT) {
                return Ok(heard);
            }
        }
    }

    /// Receives a call. Before the first, an honest client sends its characteristics.
    fn hear(&mut self) -> Result<(), Wrong> {
        loop {
            let Heard::Message { bytes, .. } = self.hear_any().map_err(wrong)? else {
                return Err(wrong("no call"));
            };
            if !self.introduced(&bytes) && self.take_note(&bytes)? {
                return Ok(());
            }
        }
    }

    /// Returns whether this is the first message of a client of version 2, and answers it with the
    /// characteristics of this end.
    fn introduced(&mut self, message: &[u8]) -> bool {
        if let (Some(_), Some(said)) = (&self.wg, self.said) {
            let first = wg::htype(message) == Some(wg::CONNPROP_FINAL);
            if first {
                self.peer.send(&wg::introduction(said));
            }
            return first;
        }
        let operation = v2::parse(message).filter(|heard| heard.opttype == v2::INITXCH);
        let (Some(_), Some(said)) = (operation, self.said) else {
            return false;
        };
        let init = v2::operation(0x0f00_0001, v2::CALL, v2::INITXCH, said, &[]);
        self.peer.send(&init);
        true
    }

    fn hear_words(&mut self, words: &[u32]) -> Result<(), Wrong> {
        match self.hear_any().map_err(wrong)? {
            Heard::Message { bytes, .. } if self.is(&bytes, words) => Ok(()),
            Heard::Message { bytes, .. } => {
                let heard = bytes
                    .chunks_exact(4)
                    .take(30)
                    .map(|word| Reader(word).word());
                let heard: Vec<u32> = heard.flatten().collect();
                Err(wrong(format!("heard {heard:x?}, not {words:x?}")))
            }
            other => Err(wrong(format!("heard {other:x?}, not {words:x?}"))),
        }
    }

    fn is(&self, message: &[u8], words: &[u32]) -> bool {
        match self.wg {
            Some(_) => wg::is(message, words, false),
            None => v2::is(message, words, false, MOST_ASKED),
        }
    }

    /// Expects any reply with this XID.
    fn hear_reply(&mut self, xid: u32) -> Result<(), Wrong> {
        let heard = self.hear_any().map_err(wrong)?;
        let Heard::Message { bytes, .. } = &heard else {
            return Err(wrong(format!("no reply but {heard:x?}")));
        };
        if self.said.is_some() {
            let expected = match self.wg {
                Some(_) => wg::success(xid, &[]),
                None => v2::success(xid, &[]),
            };
            return match self.is(bytes, &expected) {
                true => Ok(()),
                false => Err(wrong(format!("no reply but {bytes:x?}"))),
            };
        }
        let start = [xid.to_be_bytes(), rpc::REPLY.to_be_bytes()].concat();
        match v1::parse(bytes) {
            Some(v1::Message::Rpc(header, payload))
                if (header.xid, header.version) == (xid, 1) && payload.starts_with(&start) =>
            {
                Ok(())
            }
            _ => Err(wrong(format!("no reply but {bytes:x?}"))),
        }
    }

    /// Takes a call, or a part of one. Returns whether it is complete.
    fn take_note(&mut self, message: &[u8]) -> Result<bool, Wrong> {
        let call = match (&mut self.wg, self.said) {
            (Some(state), _) => match Call::parse_wg(message, &mut state.begun)? {
                Some(call) => call,
                None => return Ok(false),
            },
            (None, Some(_)) => Call::parse_second(message)?,
            (None, None) => Call::parse(message)?,
        };
        self.owed.push(call.clone());
        self.earlier = self.last.replace(call);
        Ok(true)
    }

    /// Answers correctly the calls that have not been answered.
    fn make_amends(&mut self) -> Result<(), Wrong> {
        for call in std::mem::take(&mut self.owed) {
            self.last = Some(call);
            self.answer(|_| {})?;
        }
        Ok(())
    }

    /// Answers the last call after reading its data.
    fn answer(&mut self, lie: impl Fn(&mut Answer)) -> Result<(), Wrong> {
        let call = self.call()?.clone();
        if call.request.is_some() {
            for part in call.transmissions(false)? {
                self.peer.send(&part);
            }
            self.owed.retain(|owed| *owed != call);
            return Ok(());
        }
        if let Some(placed) = call.placed.as_ref().filter(|_| call.is_write()) {
            if *placed != content(DATA_SEED, placed.len()) {
                return Err(wrong("the client placed other data than it was to"));
            }
        } else if call.is_write() {
            let mut data = Vec::new();
            for (_, segment) in &call.header.reads {
                self.peer.read(&request(*segment));
                data.extend(self.response(segment.length as usize)?);
            }
            if data != content(DATA_SEED, data.len()) {
                return Err(wrong("the client wrote other data than it was to"));
            }
        }
        let mut answer = call.answer(self.credits);
        let right = answer.clone();
        lie(&mut answer);
        // Such a reply still answers the call, whatever else is wrong with it.
        let told = |answer: &Answer| (answer.header.clone(), answer.payload.clone());
        if answer.places == right.places && told(&answer) == told(&right) {
            self.owed.retain(|owed| *owed != call);
        }
        for (stag, offset, bytes) in &answer.places {
            self.peer.write(*stag, *offset, bytes);
        }
        if self.wg.is_some() {
            let mut parts = wg::reply_parts(&answer.header, &answer.payload);
            let last = parts.pop().unwrap_or_default();
            for _ in 0..answer.repeat {
                self.send_parts(&parts)?;
                self.await_credit()?;
                match answer.invalidate {
                    Some(stag) => self.peer.send_as(ddp::SEND_INVALIDATE, stag, &last),
                    None => self.peer.send(&last),
                }
            }
            return Ok(());
        }
        let message = match self.said {
            Some(_) => v2::with(&answer.header, v2::REPLY, &answer.payload),
            None => answer.header.with(&answer.payload),
        };
        for _ in 0..answer.repeat {
            match answer.invalidate {
                Some(stag) => self.peer.send_as(ddp::SEND_INVALIDATE, stag, &message),
                None => self.peer.send(&message),
            }
        }
        Ok(())
    }

    /// Receives the Read Response of `len` bytes.
    fn response(&mut self, len: usize) -> Result<Vec<u8>, Wrong> {
        let mut data = Vec::new();
        loop {
            match self.hear_any().map_err(wrong)? {
                Heard::Response { payload, last, .. } => {
                    data.extend(payload);
                    if last && data.len() == len {
                        return Ok(data);
                    }
                    if last {
                        return Err(wrong(format!("{} of {len} bytes came", data.len())));
                    }
                }
                other => return Err(wrong(format!("no response but {other:x?}"))),
            }
        }
    }

    /// Answers calls honestly until the client closes the connection.
    fn serve(&mut self) -> Result<(), Wrong> {
        loop {
            match self.hear_any() {
                Ok(Heard::Message { bytes, .. }) => {
                    if !self.introduced(&bytes) && self.take_note(&bytes)? {
                        self.answer(|_| {})?;
                    }
                }
                Ok(other) => return Err(wrong(format!("heard {other:x?}"))),
                Err(Gone::Nonsense(what)) => return Err(wrong(what)),
                Err(_) => return Ok(()),
            }
        }
    }

    fn end(&mut self, end: End) -> Result<(), Wrong> {
        let expected = match end {
            End::Left | End::Lives => return Ok(()),
            End::Closed => Gone::Closed,
            End::Reset => Gone::Reset,
            End::Terminate(code) => loop {
                match self.hear_any() {
                    // Messages that were already on the way.
                    Ok(Heard::Response { .. } | Heard::Message { .. }) => {}
                    Ok(Heard::Terminate(heard)) if heard == code => break Gone::Closed,
                    other => return Err(wrong(format!("not {code:?} but {other:x?}"))),
                }
            },
        };
        match self.hear_any() {
            Err(gone) if gone == expected => Ok(()),
            other => Err(wrong(format!("not {expected:?} but {other:x?}"))),
        }
    }
}

/// Returns the parts of a message with some words changed: part, word, and new value.
fn patched(mut parts: Vec<Vec<u8>>, patches: &[(usize, usize, u32)]) -> Vec<Vec<u8>> {
    for (part, word, value) in patches {
        let at = 4 * word;
        parts[*part][at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    parts
}

/// Returns the Read Request for a whole segment.
fn request(segment: Segment) -> ReadRequest {
    ReadRequest {
        sink: 0x51,
        sink_offset: 0,
        length: segment.length,
        source: segment.handle,
        source_offset: segment.offset,
    }
}
