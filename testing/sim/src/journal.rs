//! The log of a run, and the checks of every single thing that happens.

use std::fmt::{self, Write};

use bytes::Bytes;
use rdma::{Event, SendWr, Success, Time};
use rdma_sim::{End, Happening, NodeId, Observer};
use rpc_transport::Retry;

use crate::credits::Credits;
use crate::exposure::{Exposing, Exposure};
use crate::message::{self, Meaning, read};
use crate::plan::Plan;
use crate::report::Violation;

/// Violations kept; a run that went wrong goes wrong again and again.
const KEEP: usize = 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The log, if somebody wants it.
    text: Option<String>,
    server: NodeId,
    credits: Credits,
    exposure: Exposure,
    pub(crate) violations: Vec<Violation>,
    pub(crate) happenings: u64,
    pub(crate) faults: u64,
    /// Nothing is planned that can end a connection before its owner does.
    calm: bool,
    /// The server's calls to clients may have chunks.
    offers: bool,
    /// Calls are given up while the server may work on them: it then reaches for memory that is
    /// not there any more.
    impatient: bool,
}

impl Journal {
    pub(crate) fn new(explain: bool, server: NodeId, plan: &Plan) -> Self {
        Self {
            text: explain.then(String::new),
            server,
            credits: Credits::default(),
            exposure: Exposure::default(),
            violations: Vec::new(),
            happenings: 0,
            faults: 0,
            calm: plan.is_calm(),
            offers: plan.callbacks && plan.requester.callbacks.chunks,
            impatient: (plan.callbacks && !plan.is_calm()) || plan.retry != Retry::Hard,
        }
    }

    /// A line of the log.
    pub(crate) fn line(&mut self, at: Time, what: fmt::Arguments<'_>) {
        if let Some(text) = &mut self.text {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{at} {what}");
        }
    }

    /// Something must not have happened.
    pub(crate) fn violation(&mut self, at: Time, what: String) {
        self.line(at, format_args!("VIOLATION: {what}"));
        if self.violations.len() < KEEP {
            self.violations.push(Violation { at, what });
        }
    }

    pub(crate) fn take_text(&mut self) -> String {
        self.text.take().unwrap_or_default()
    }

    fn check(&mut self, what: &Happening<'_>) -> Option<String> {
        match what {
            Happening::Overrun(end) => Some(format!("{end} was overrun: no receive was left")),
            Happening::TooLong(end, len) => {
                Some(format!("{end} got {len} bytes, longer than its receive"))
            }
            Happening::Refused(end, access) if !self.impatient => {
                Some(format!("{end} had to refuse the peer's {access}"))
            }
            Happening::Aborted(end) if self.calm => Some(format!(
                "{end} dropped a connection although nothing had failed"
            )),
            Happening::Taken(end, Event::Disconnected { reason, .. })
                if self.calm
                    && !matches!(reason, rdma::Disconnect::Local | rdma::Disconnect::Remote) =>
            {
                Some(format!(
                    "{end} lost its connection although nothing had failed: {reason}"
                ))
            }
            Happening::Registered(end, ..) if end.node == self.server && !self.offers => {
                Some(format!("{end} of the server offers memory to a client"))
            }
            Happening::Registered(end, stag, len) => {
                self.exposure.registered(*end, *stag, *len);
                None
            }
            Happening::Accessed(end, access) => self.exposure.accessed(*end, access),
            Happening::Invalidated(end, stag, by_the_peer) => {
                self.exposure.invalidated(*end, *stag, *by_the_peer);
                None
            }
            Happening::Crashed(node) => {
                self.exposure.crashed(*node);
                None
            }
            Happening::Posted(end, SendWr::Send { gather, .. }) => {
                self.sent(*end, &message::sent(gather)?)
            }
            Happening::Taken(end, event) => self.taken(*end, event),
            Happening::Over(end) => {
                self.exposure.over(*end);
                None
            }
            _ => None,
        }
    }

    /// An end sends a message.
    fn sent(&mut self, end: End, message: &Bytes) -> Option<String> {
        match read(message) {
            Ok((xid, Meaning::Call(offers))) => {
                let offered = self.exposure.offered(end, xid, &offers);
                self.credits.called(end, xid).or(offered)
            }
            Ok((xid, Meaning::Continued)) => self.credits.continued(end, xid),
            Ok(_) => None,
            Err(error) => Some(format!("{end} sends a header that cannot be read: {error}")),
        }
    }

    /// An end takes an event.
    fn taken(&mut self, end: End, event: &Event) -> Option<String> {
        match event {
            Event::Established { .. } => self.credits.opened(end),
            Event::Disconnected { .. } | Event::ConnectFailed { .. } => self.credits.over(end),
            Event::Completion(completion) => {
                let Ok(Success::Receive { buf, invalidated }) = &completion.result else {
                    return None;
                };
                let answered = match read(&message::taken(buf)) {
                    Ok((xid, Meaning::Answer(credits))) => {
                        self.credits.answered(end, xid, credits);
                        Some(xid)
                    }
                    _ => None,
                };
                return self.exposure.taken(end, answered, *invalidated);
            }
            _ => {}
        }
        None
    }

    /// Calls that `node` has memory registered for.
    pub(crate) fn exposing(&self, node: NodeId) -> Exposing {
        self.exposure.calls(node)
    }
}

impl Observer for Journal {
    fn happened(&mut self, at: Time, what: &Happening<'_>) {
        self.happenings += 1;
        self.faults += u64::from(matches!(
            what,
            Happening::Lost(_) | Happening::Crashed(_) | Happening::NotRegistered(_)
        ));
        self.line(at, format_args!("{what}"));
        if let Some(violation) = self.check(what) {
            self.violation(at, violation);
        }
    }
}
