//! One connection of a client under test.

use std::collections::VecDeque;
use std::time::Instant;

use super::arrival::{self, Thresholds};
use super::call::Call;
use super::case::Act;
use super::rules::Rule;
use super::second::{Came, Request, Second};
use super::stage::Stage;
use super::versions::{Answered, of_2016, refusal};
use super::waiting::{Waiting, overflow};
use super::wg::{Taken, Wg, form};
use crate::dialect::Dialect;
use crate::endpoint::{Answer, Endpoint, Incoming};
use crate::peer::Heard;
use crate::stream::Gone;
use crate::wire::v1::{self, Segment};
use crate::wire::{Reader, v2};

/// The most errors that wait to be sent.
const MOST_OWED: usize = 16;

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
    pub(super) peer: Box<dyn Endpoint>,
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
    /// State of a connection of version-two-07.
    pub(super) wg: Wg,
    /// The XID of the first message, in version-two-07.
    pub(super) first_xid: Option<u32>,
    /// Whether that message is not answered yet.
    pub(super) owes_first: bool,
    /// Errors to be sent, in version-two-07.
    pub(super) owed: VecDeque<Vec<u8>>,
    /// The replies with a wrong value so far.
    pub(super) spoilt: usize,
    /// The request of the call that is being answered, if it came by ROPT_XMTREQ, in version-two-01.
    pub(super) request: Option<Request>,
    /// Characteristics and transmissions, in version-two-01.
    pub(super) second: Second,
    /// Whether the client's characteristics were answered, in version-two-01.
    pub(super) is_introduced: bool,
}

impl<'a> Connection<'a> {
    /// Accepts a connection.
    pub(super) fn set_up(stage: &'a Stage, request: Box<dyn Incoming>) -> Result<Self, String> {
        let private = match stage.act {
            Act::Private(private) => private,
            _ => arrival::USUAL,
        };
        let (peer, its) = request.accept(&Answer {
            private,
            stop: stage.stop(),
            watcher: stage.watcher.as_ref(),
        })?;
        let number = stage.count();
        let is_later = {
            let mut shared = stage.shared();
            shared.exchange.text(format!("connection {}", number + 1));
            arrival::private_data(&mut shared.findings, &its);
            matches!(stage.act, Act::Close | Act::Reset) && shared.acted
        };
        let thresholds = match stage.dialect {
            Dialect::One => arrival::thresholds(&its, private),
            // Without the direction, which messages of version 1 have not.
            Dialect::Two => Thresholds::of(v2::INLINE - 4),
            Dialect::Wg => Thresholds::of(v2::INLINE),
        };
        Ok(Self {
            stage,
            peer,
            number,
            spoken_one: false,
            is_later,
            end: None,
            thresholds,
            invalidates: arrival::invalidates(&its) && arrival::invalidates(private),
            waiting: VecDeque::new(),
            outstanding: 0,
            granted: None,
            done_with: None,
            wg: Wg::new(),
            first_xid: None,
            owes_first: false,
            owed: VecDeque::new(),
            spoilt: 0,
            request: None,
            second: Second::new(),
            is_introduced: false,
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
        if self.peer.has_failed() {
            return Err(self.ended(false, "the connection ends: nothing can be sent".into()));
        }
        let goes_on = || !stage.has_ended() && until.is_none_or(|it| Instant::now() < it);
        if !self.peer.is_readable(&mut { goes_on }) {
            return match stage.has_ended() {
                true => Err(Over),
                false => Ok(Event::Nothing),
            };
        }
        let heard = self.peer.hear(&mut || !stage.has_ended());
        if !self.peer.placed().is_empty() {
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
            Err(Gone::Terminated(why)) => {
                let how = format!("the client terminates the connection: {why}");
                Err(self.ended(true, how))
            }
            Err(Gone::Refused(why)) => {
                self.active(&format!("an operation that the device refuses ({why})"));
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
        let stage = self.stage;
        let mut shared = stage.shared();
        shared.exchange.message("received", bytes);
        shared.findings.look(Rule::Passive, true, String::new);
        let first = Dialect::of_first(bytes);
        shared.first.get_or_insert(first);
        if stage.dialect != Dialect::One && !shared.spoken {
            if let Some(other) = first.filter(|it| *it != stage.dialect) {
                shared.other_version = true;
                drop(shared);
                self.wg.count();
                let answer = refusal(stage.dialect, other, bytes);
                let answer = self.wg.stamped(&answer, 1);
                self.say(&answer);
                return Ok(());
            }
            shared.spoken = true;
        }
        drop(shared);
        match stage.dialect {
            Dialect::One => self.arrived_as_first(bytes),
            Dialect::Two => self.arrived_of_2016(bytes),
            Dialect::Wg if stage.act == Act::RefuseVersion && first == Some(Dialect::One) => {
                self.note("the client has taken another version".into());
                Err(Over)
            }
            Dialect::Wg => self.arrived_counted(bytes),
        }
    }

    /// Looks at a message of version-two-01, and keeps it if it is a call.
    fn arrived_of_2016(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let came = self.second.take(&mut self.stage.shared().findings, bytes);
        match came {
            Came::Plain => {}
            Came::Nothing => return Ok(()),
            Came::Answer(xid, code) => return self.reported(xid, code),
            Came::Call(call) => return self.transmitted(call, bytes.len()),
            Came::Unusable => {
                self.note("transmissions that are no call".into());
                return Err(Over);
            }
        }
        let answered = of_2016(&mut self.stage.shared().findings, bytes);
        match answered {
            Answered::Nothing => {}
            Answered::Call(first) => return self.arrived_as_first(&first),
            Answered::By(answer) => self.say(&answer),
            Answered::ByCharacteristics(_) if self.is_introduced => {}
            Answered::ByCharacteristics(answer) => {
                self.is_introduced = true;
                let answer = self.told().unwrap_or(answer);
                let answer = self.granting(answer);
                self.say(&answer);
            }
        }
        Ok(())
    }

    /// Looks at a message in the form of version 1, and keeps it if it is a call.
    fn arrived_as_first(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let stage = self.stage;
        let mut guard = stage.shared();
        let shared = &mut *guard;
        let findings = &mut shared.findings;
        let heard = arrival::fixed_fields(findings, bytes, self.thresholds, self.spoken_one);
        let (header, behind) = match heard {
            Ok(heard) => heard,
            Err(None) => return Ok(()),
            Err(Some(error)) => {
                shared.other_version |= !self.spoken_one;
                let error = match stage.dialect {
                    Dialect::Two => v2::from_first(&error, v2::REPLY),
                    Dialect::One | Dialect::Wg => error,
                };
                shared.exchange.message("sent", &error);
                self.peer.send(&error);
                return Ok(());
            }
        };
        shared.spoken = true;
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
        drop(guard);
        self.count_call(header.credits);
        self.wait(Waiting {
            header,
            behind,
            length: bytes.len(),
            handle: 0,
            is_placed: false,
            request: None,
        })
    }

    /// Looks at a message of version-two-07, and keeps the call that it completes.
    fn arrived_counted(&mut self, bytes: &[u8]) -> Result<(), Over> {
        let stage = self.stage;
        if self.first_xid.is_none() {
            self.first_xid = Some(Reader(bytes).word().unwrap_or_default());
            self.owes_first = true;
        }
        let mut shared = stage.shared();
        let is_plain = stage.act == Act::Honest;
        let taken = self.wg.take(&mut shared.findings, bytes, is_plain);
        if let (Taken::Error(xid, code), Some(report)) = (&taken, &mut shared.report) {
            report.came |= report.xid == *xid && report.codes.contains(code);
        }
        if matches!(taken, Taken::Error(..)) && self.spoilt > 0 {
            let rule = Rule::RepliesUnreported;
            shared.findings.look(rule, false, || {
                "RDMA2_ERROR after a reply that cannot be processed".to_owned()
            });
        }
        drop(shared);
        let is_placed = matches!(taken, Taken::Placed(..));
        match taken {
            Taken::Nothing | Taken::Error(..) => Ok(()),
            Taken::Call(handle, header, behind) | Taken::Placed(handle, header, behind) => {
                self.outstanding = self.outstanding.saturating_add(1);
                self.wait(Waiting {
                    length: behind.len().max(bytes.len()),
                    header,
                    behind,
                    handle,
                    is_placed,
                    request: None,
                })
            }
            Taken::Refused(error) if self.owed.len() < MOST_OWED => {
                self.owed.push_back(error);
                Ok(())
            }
            Taken::Refused(_) => {
                self.note(format!("more than {MOST_OWED} messages are refused"));
                Err(Over)
            }
            Taken::Unusable(why) => {
                self.note(why);
                Err(Over)
            }
        }
    }

    /// Keeps a call until it is answered.
    pub(super) fn wait(&mut self, call: Waiting) -> Result<(), Over> {
        let mut shared = self.stage.shared();
        let shared = &mut *shared;
        let findings = &mut shared.findings;
        let xid = call.header.xid;
        let is_new = self.waiting.iter().all(|it| it.header.xid != xid);
        findings.look(Rule::DistinctXids, is_new, || {
            format!("two outstanding calls with XID {xid:#x}")
        });
        if let Some(refused) = &shared.refused_form
            && shared.refused.as_ref().is_some_and(|it| it.xid() == xid)
        {
            let is_other = *refused != form(&call.header);
            findings.look(Rule::Ended, is_other, || {
                format!("the call with XID {xid:#x}, which an error answered, comes again")
            });
        }
        if let Some(why) = overflow(&self.waiting, call.length) {
            shared.exchange.text(why);
            return Err(Over);
        }
        self.waiting.push_back(call);
        Ok(())
    }

    /// Sends octets as they are.
    pub(super) fn say(&mut self, message: &[u8]) {
        self.stage.shared().exchange.message("sent", message);
        self.peer.send(message);
    }
}
