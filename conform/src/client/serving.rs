//! Serving the calls of one connection.

use std::time::{Duration, Instant};

use super::answer::{Answer, Place, answer};
use super::arrival;
use super::call::{Call, READ, READDIR, READDIRPLUS, WRITE};
use super::case::{Act, Operation, Parts, Placing, Transmitting};
use super::connection::{Connection, Over};
use super::nfs::{self, Results};
use super::rules::Rule;
use super::second::Reply;
use super::sizes::data_room;
use super::stage::Report;
use super::strays;
use super::waiting::Waiting;
use super::wg::{self, Answers};
use crate::dialect::Dialect;
use crate::wire::v1::{self, Segment};
use crate::wire::wg::{REPLY_EXTERNAL, htype};
use crate::wire::{ddp, rpc};

/// The credits that are granted without another act.
pub(super) const CREDITS: u32 = 8;
/// The credits that are granted before fewer are.
pub(super) const FOUR: u32 = 4;
/// Time before the first reply on a connection: a second call that comes meanwhile did not wait for it.
const FIRST: Duration = Duration::from_millis(60);
/// Time before each reply where credits are looked at.
const LATER: Duration = Duration::from_millis(15);
/// The longest wait for more calls at once, of which there is one in a performance.
const MORE: Duration = Duration::from_secs(3);
/// SYSTEM_ERR: a client that takes the reply fails.
const SYSTEM_ERR: u32 = 5;

/// A reply as it is sent.
struct Encoded {
    /// The RDMA Writes before it.
    places: Vec<Place>,
    /// The messages.
    messages: Vec<Vec<u8>>,
    /// Whether it is longer than one message.
    is_long: bool,
}

impl Connection<'_> {
    /// Answers calls until the connection ends.
    pub(super) fn serve(&mut self) {
        // The reason was noted where it was found.
        let _over = self.serve_all();
    }

    fn serve_all(&mut self) -> Result<(), Over> {
        loop {
            // Calls that wait would be answered also when nobody is left who looks at that.
            if self.stage.has_ended() || self.peer.has_failed() {
                return Err(Over);
            }
            self.settle()?;
            if self.waiting.is_empty() {
                self.next(None)?;
                continue;
            }
            self.hold()?;
            let next = match self.stage.act {
                Act::Reverse => self.waiting.pop_back(),
                _ => self.waiting.pop_front(),
            };
            if let Some(next) = next {
                self.perform(next)?;
            }
        }
    }

    /// Lets calls come before the next reply, where the case looks at how many do.
    fn hold(&mut self) -> Result<(), Over> {
        // In version-two-07, the answer to the properties has come before the first call.
        let is_first = self.granted.is_none() && self.stage.dialect != Dialect::Wg;
        let (time, count) = match self.stage.act {
            Act::Honest | Act::Close if is_first => (FIRST, usize::MAX),
            Act::Honest | Act::Grant(_) if self.stage.shared().reading => (LATER, usize::MAX),
            Act::Reverse if self.stage.shared().awaits_more() => (MORE, 2),
            _ => return Ok(()),
        };
        self.await_calls(Instant::now() + time, count)?;
        if self.stage.act == Act::Reverse {
            let mut shared = self.stage.shared();
            shared.acted |= self.waiting.len() > 1;
            shared.has_waited = true;
        }
        Ok(())
    }

    /// Performs a call and answers it.
    fn perform(&mut self, waiting: Waiting) -> Result<(), Over> {
        let Waiting {
            header,
            behind,
            handle,
            is_placed,
            request,
            ..
        } = waiting;
        let payload = match header.procedure == v1::NOMSG {
            true => {
                let message = header.reads.iter().filter(|(position, _)| *position == 0);
                let message: Vec<Segment> = message.map(|(_, segment)| *segment).collect();
                self.fetched(&message)?
            }
            false => Some(behind),
        };
        let xid = header.xid;
        let call = payload.and_then(|payload| Call::new(header, payload));
        let Some(call) = call else {
            return self.send(ddp::SEND, 0, &self.refusal(xid));
        };
        // The room for the reply to a call by ROPT_XMTREQ is not that of chunks.
        if request.is_none() {
            arrival::chunks(&mut self.stage.shared().findings, &call, self.thresholds);
        }
        self.request = request;
        self.sent_again(&call);
        self.stage.shared().reading |= call.is(READ);
        if self.refuses_placed(&call, is_placed)? || self.refuses_request(&call)? {
            return Ok(());
        }
        if let Some(segment) = self.done_with.take() {
            return self.read_again(segment);
        }
        let is_subject = self.is_subject(&call);
        if is_subject {
            self.before_data(&call)?;
        }
        match self.data(&call)? {
            Some(data) => self.reply(&call, &data, handle, is_subject),
            None => self.send(ddp::SEND, 0, &self.refusal(xid)),
        }
    }

    /// Returns whether this is the call that the act is about.
    fn is_subject(&self, call: &Call) -> bool {
        let is_of_operation = self.is_of_operation(call);
        is_of_operation && !self.stage.shared().acted
    }

    fn is_of_operation(&self, call: &Call) -> bool {
        match self.stage.operation {
            Operation::Ping => true,
            Operation::Read => call.is(READ),
            Operation::Write => call.is(WRITE),
            Operation::List => call.is(READDIR) || call.is(READDIRPLUS),
        }
    }

    /// Does what comes before the data of a call is fetched.
    fn before_data(&mut self, call: &Call) -> Result<(), Over> {
        match self.stage.act {
            Act::Stray(stray) => {
                let Some(message) = strays::message(stray, call, CREDITS) else {
                    return Ok(());
                };
                let mut shared = self.stage.shared();
                shared.acted = true;
                shared.disturbed = Some(call.clone());
                shared.findings.look(Rule::Discarded, true, String::new);
                drop(shared);
                self.post(ddp::SEND, 0, &message)?;
            }
            Act::StrayWg(stray) => {
                let mut shared = self.stage.shared();
                shared.acted = true;
                shared.disturbed = Some(call.clone());
                shared.findings.look(Rule::Discarded, true, String::new);
                let report = wg::report(stray, call.xid());
                shared.report = report.map(|(xid, codes)| Report {
                    xid,
                    codes,
                    text: None,
                    came: false,
                });
                drop(shared);
                self.post(ddp::SEND, 0, &wg::stray(stray, call.xid()))?;
            }
            act @ (Act::Close | Act::Reset) => {
                let mut shared = self.stage.shared();
                shared.acted = true;
                shared.lost = Some((self.number, call.clone()));
                shared.exchange.text("closes the connection".into());
                if act == Act::Reset {
                    self.peer.reset_on_close();
                }
                return Err(Over);
            }
            Act::ReadBeyond | Act::WriteToRead => {
                if let Some((_, segment)) = call.reduced().last().copied() {
                    return self.misuse(segment);
                }
            }
            Act::WriteBeyond => {
                let chunk = call.header.writes.first();
                if let Some(segment) = chunk.and_then(|it| it.last()).copied() {
                    return self.misuse(segment);
                }
            }
            Act::Lower if self.stage.shared().awaits_more() => {
                let others = FOUR.saturating_sub(1) as usize;
                self.await_calls(Instant::now() + MORE, others)?;
                self.stage.shared().has_waited = true;
                if self.outstanding >= FOUR {
                    let mut shared = self.stage.shared();
                    shared.acted = true;
                    shared
                        .exchange
                        .text("grants one credit from here on".into());
                }
            }
            Act::Place(_) => self.unasked(call)?,
            Act::StrayTwo(stray) => self.stray_of_2016(call, stray)?,
            _ => {}
        }
        Ok(())
    }

    /// Answers a call, whose reply may invalidate `handle` in version-two-07.
    fn reply(
        &mut self,
        call: &Call,
        data: &[u8],
        handle: u32,
        is_subject: bool,
    ) -> Result<(), Over> {
        let act = self.stage.act;
        if let (Act::Error(words), true) = (act, is_subject) {
            return self.refuse(call, words);
        }
        // Only a Write chunk says twice how long the data is.
        let half = act == Act::Half && call.is(READ) && data_room(call).is_some();
        let status = match act {
            Act::Status(status) if is_subject => Some(status),
            _ => None,
        };
        let mut shared = self.stage.shared();
        let results = nfs::results(call, &mut shared.export, data, half, status);
        let lowered = act == Act::Lower && shared.acted;
        let credits = match act {
            Act::Grant(credits) => credits,
            Act::Lower if lowered => 1,
            Act::Lower => FOUR,
            _ => CREDITS,
        };
        drop(shared);
        self.note_placing(call, &results);
        self.wrong_reply(call, &results)?;
        self.wrong_transmission(call, &results)?;
        let Encoded {
            places,
            mut messages,
            is_long,
        } = self.encoded(call, &results, credits);
        let is_again = is_subject && act == Act::Twice;
        let handle = match self.stage.dialect {
            Dialect::Wg => Some(handle).filter(|it| *it != 0),
            Dialect::One | Dialect::Two => call.handle().filter(|_| self.invalidates),
        };
        let handle = handle.filter(|_| act == Act::Invalidate);
        let is_continued = matches!(act, Act::Continue(_)) && messages.len() > 1;
        let mut shared = self.stage.shared();
        shared.acted |= is_again
            || half
            || status.is_some()
            || handle.is_some()
            || is_continued
            || act == Act::Crowd && is_long;
        if is_again {
            shared.disturbed = Some(call.clone());
            shared.findings.look(Rule::Discarded, true, String::new);
        }
        shared.answered = true;
        drop(shared);
        for (stag, offset, bytes) in &places {
            self.note(format!("RDMA Write: {} bytes to {stag:#x}", bytes.len()));
            self.peer.write(*stag, *offset, bytes);
        }
        let last = messages.pop().unwrap_or_default();
        self.before_last(call, messages)?;
        match handle {
            Some(handle) => self.send(ddp::SEND_INVALIDATE, handle, &last)?,
            None => self.send(ddp::SEND, 0, &last)?,
        }
        self.granted = Some(credits);
        if is_again {
            self.note("once more".into());
            self.post(ddp::SEND, 0, &last)?;
        }
        if act == Act::ReadAgain && is_subject && self.outstanding == 0 {
            self.done_with = call.reduced().last().map(|(_, segment)| *segment);
        }
        Ok(())
    }

    /// Answers a call with an error.
    fn refuse(&mut self, call: &Call, words: &[u32]) -> Result<(), Over> {
        let is_wg = self.stage.dialect == Dialect::Wg;
        let mut shared = self.stage.shared();
        shared.acted = true;
        shared.refused = Some(call.clone());
        shared.refused_form = is_wg.then(|| wg::form(&call.header));
        shared.findings.look(Rule::Ended, true, String::new);
        drop(shared);
        let error = match is_wg {
            true => crate::wire::wg::error(call.xid(), words),
            false => v1::error(call.xid(), 1, words),
        };
        self.send(ddp::SEND, 0, &error)
    }

    /// Returns the reply to a call.
    fn encoded(&self, call: &Call, results: &Results, credits: u32) -> Encoded {
        if let Some(messages) = self.placed_reply(call, results) {
            return Encoded {
                places: Vec::new(),
                is_long: messages.len() > 1,
                messages,
            };
        }
        if let Some(transmitted) = self.transmission(call, results) {
            let Reply {
                places,
                message,
                rest,
                is_placed,
                ..
            } = transmitted;
            let is_plain = self.stage.act == Act::Transmit(Transmitting::Plain);
            self.stage.shared().acted |= is_plain && is_placed;
            return Encoded {
                places,
                is_long: !rest.is_empty(),
                messages: [vec![message], rest].concat(),
            };
        }
        if self.stage.dialect == Dialect::Wg {
            let inline = matches!(self.stage.act, Act::Continue(_)) && call.is(READ);
            let answers = wg::answers(call, results, self.wg.longest(), inline);
            let Answers { places, messages } = answers;
            let is_external = messages.iter().any(|it| htype(it) == Some(REPLY_EXTERNAL));
            return Encoded {
                places,
                is_long: is_external || messages.len() > 1,
                messages,
            };
        }
        let Answer { places, message } = answer(call, results, credits, self.thresholds.replies);
        Encoded {
            places,
            is_long: procedure_of(&message) == Some(v1::NOMSG),
            messages: vec![message],
        }
    }

    /// Sends the messages of a reply before its last one.
    fn before_last(&mut self, call: &Call, messages: Vec<Vec<u8>>) -> Result<(), Over> {
        let parts = match self.stage.act {
            Act::Continue(parts) => parts,
            Act::Place(Placing::Granting) => Parts::Granting,
            _ => Parts::Plain,
        };
        for (at, mut message) in messages.into_iter().enumerate() {
            if parts == Parts::Miscounted
                && at == 0
                && let Some(octet) = message.get_mut(19)
            {
                // The last octet of `rdma_remaining`.
                *octet ^= 4;
            }
            self.post(ddp::SEND, 0, &message)?;
            match parts {
                Parts::Granting => self.grant()?,
                Parts::Interrupted if at == 0 => {
                    let xid = !call.xid();
                    let other = rpc::accepted(xid, SYSTEM_ERR, &[]);
                    self.post(ddp::SEND, 0, &crate::wire::wg::reply(xid, &other))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares a call with those that must not come again, and with one whose connection ended before it was answered.
    fn sent_again(&self, call: &Call) {
        let mut shared = self.stage.shared();
        let shared = &mut *shared;
        let xid = call.xid();
        let is_again = |before: &Option<Call>| before.as_ref().is_some_and(|it| call.is_again(it));
        // In version-two-07, only the same form of it must not come again.
        if self.stage.dialect != Dialect::Wg && is_again(&shared.refused) {
            let text =
                || format!("the call with XID {xid:#x}, which RDMA_ERROR answered, comes again");
            shared.findings.look(Rule::Ended, false, text);
        }
        if is_again(&shared.disturbed) {
            let text = || format!("the call with XID {xid:#x} comes again");
            shared.findings.look(Rule::Discarded, false, text);
        }
        let Some((number, lost)) = &shared.lost else {
            return;
        };
        let (same_xid, same_rest) = (
            lost.xid() == call.xid(),
            lost.behind_xid() == call.behind_xid(),
        );
        if *number == self.number || !same_xid && !same_rest {
            return;
        }
        let (before, after) = (lost.xid(), call.xid());
        shared
            .findings
            .look(Rule::Again, same_xid && same_rest, || match same_rest {
                true => format!("the call with XID {before:#x} comes again with XID {after:#x}"),
                false => {
                    format!("another call comes with XID {before:#x}, whose call was not answered")
                }
            });
        shared.lost = None;
    }
}

/// Returns the procedure of a message.
fn procedure_of(message: &[u8]) -> Option<u32> {
    let word = message.get(12..16)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_takes_more_reads_than_there_are_credits() {
        let length = u32::try_from(super::super::export::file().len()).unwrap();
        let reads = length.div_ceil(nfs::LONGEST_READ);
        assert!(reads > CREDITS, "{reads}");
        // The last READ needs round-up.
        assert_ne!(length % nfs::LONGEST_READ % 4, 0);
    }
}
