//! The log of a run, and the checks of every event.

use std::fmt::{self, Write};

use bytes::Bytes;
use rdma::{Event, SendWr, Success, Time};
use rdma_sim::{End, FabricEvent, NodeId, Observer};
use rpc_transport::Retry;

use crate::credits::Credits;
use crate::exposure::{Exposing, Exposure};
use crate::message::{self, Meaning, Rules, read};
use crate::plan::Plan;
use crate::receives::Receives;
use crate::report::Violation;
use crate::sends::{Sends, asks_for_wg};

/// The maximum number of stored violations, because a failed run usually has many.
const KEEP: usize = 20;

/// The log and checks of a run; see the module documentation.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The log, if it was requested.
    text: Option<String>,
    credits: Credits,
    sends: Sends,
    exposure: Exposure,
    receives: Receives,
    pub(crate) violations: Vec<Violation>,
    pub(crate) happenings: u64,
    pub(crate) faults: u64,
    conditions: Conditions,
}

/// The conditions of a run on which checks depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// The number of the server's loops. Their hosts are the first ones.
    pub(crate) loops: usize,
    /// Whether no fault is planned that could end a connection.
    pub(crate) calm: bool,
    /// Whether the server's calls to clients may have chunks.
    pub(crate) offers: bool,
    /// Whether clients cancel calls that the server may still process, so that it may access memory
    /// that is no longer registered.
    pub(crate) impatient: bool,
    /// The count at which connections of the working group's version 2 begin.
    pub(crate) first_message: u32,
    /// Whether connections may have that version.
    pub(crate) speaks_wg: bool,
}

impl Conditions {
    /// Returns the conditions of a run of clients and a server.
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            loops: plan.loops,
            calm: plan.is_calm(),
            offers: plan.callbacks && plan.requester.callbacks.chunks,
            impatient: (plan.callbacks && !plan.is_calm()) || plan.retry != Retry::Hard,
            first_message: plan.requester.initial_message_count,
            speaks_wg: plan.speaks_wg(),
        }
    }
}

impl Journal {
    pub(crate) fn new(explain: bool, conditions: Conditions) -> Self {
        Self {
            text: explain.then(String::new),
            credits: Credits::default(),
            sends: Sends::new(conditions.first_message, conditions.speaks_wg),
            exposure: Exposure::default(),
            receives: Receives::default(),
            violations: Vec::new(),
            happenings: 0,
            faults: 0,
            conditions,
        }
    }

    /// Adds a line to the log.
    pub(crate) fn line(&mut self, at: Time, what: fmt::Arguments<'_>) {
        if let Some(text) = &mut self.text {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{at} {what}");
        }
    }

    /// Records a violation.
    pub(crate) fn violation(&mut self, at: Time, what: String) {
        self.line(at, format_args!("VIOLATION: {what}"));
        if self.violations.len() < KEEP {
            self.violations.push(Violation { at, what });
        }
    }

    pub(crate) fn take_text(&mut self) -> String {
        self.text.take().unwrap_or_default()
    }

    fn check(&mut self, what: &FabricEvent<'_>) -> Option<String> {
        match what {
            FabricEvent::Overrun(end) => Some(format!("{end} was overrun: no receive was left")),
            FabricEvent::TooLong(end, len) => {
                Some(format!("{end} got {len} bytes, longer than its receive"))
            }
            FabricEvent::Refused(end, access) if !self.conditions.impatient => {
                Some(format!("{end} had to refuse the peer's {access}"))
            }
            FabricEvent::Aborted(end) if self.conditions.calm => Some(format!(
                "{end} dropped a connection although nothing had failed"
            )),
            FabricEvent::Taken(end, Event::Disconnected { reason, .. })
                if self.conditions.calm
                    && !matches!(reason, rdma::Disconnect::Local | rdma::Disconnect::Remote) =>
            {
                Some(format!(
                    "{end} lost its connection although nothing had failed: {reason}"
                ))
            }
            FabricEvent::Registered(end, ..)
                if end.node.0 < self.conditions.loops && !self.conditions.offers =>
            {
                Some(format!("{end} of the server offers memory to a client"))
            }
            FabricEvent::Registered(end, stag, len) => {
                self.exposure.registered(*end, *stag, *len);
                None
            }
            FabricEvent::Accessed(end, access) => self.exposure.accessed(*end, access),
            FabricEvent::Invalidated(end, stag, by_the_peer) => {
                self.exposure.invalidated(*end, *stag, *by_the_peer);
                None
            }
            FabricEvent::ReceivePosted(node, queue, id) => self.receives.posted(*node, *queue, *id),
            FabricEvent::ReceiveWithdrawn(node, queue, id) => {
                self.receives.withdrawn(*node, *queue, *id);
                None
            }
            FabricEvent::ReceiveTaken(end, queue, id) => self.receives.taken(*end, *queue, *id),
            FabricEvent::Crashed(node) => {
                self.exposure.crashed(*node);
                self.receives.crashed(*node);
                None
            }
            FabricEvent::Posted(end, SendWr::Send { gather, .. }) => {
                let len = gather.iter().map(Bytes::len).sum();
                self.sent(*end, &message::sent(gather)?, len)
            }
            FabricEvent::Taken(end, event) => self.taken(*end, event),
            FabricEvent::Over(end) => {
                self.exposure.over(*end);
                None
            }
            _ => None,
        }
    }

    /// Checks a message of `len` bytes that an end sends, of which the beginning is known.
    fn sent(&mut self, end: End, message: &Bytes, len: usize) -> Option<String> {
        if let Some(counted) = self.sends.sent(end, message, len) {
            return match (counted, read(message, Rules::Sends)) {
                (Err(violation), _) => Some(violation),
                (_, Ok((xid, Meaning::Call(offers)))) => self.exposure.offered(end, xid, &offers),
                (_, Ok((_, Meaning::Unknown))) => {
                    self.exposure.unknown(end);
                    None
                }
                (_, Ok(_)) => None,
                (_, Err(error)) => Some(unreadable(end, &error)),
            };
        }
        if asks_for_wg(message) {
            return None;
        }
        match read(message, Rules::Calls) {
            Ok((xid, Meaning::Call(offers))) => {
                let offered = self.exposure.offered(end, xid, &offers);
                self.credits.called(end, xid).or(offered)
            }
            Ok((xid, Meaning::Continued)) => self.credits.continued(end, xid),
            Ok((_, Meaning::Unknown)) => {
                self.credits.unknown(end);
                self.exposure.unknown(end);
                None
            }
            Ok(_) => None,
            Err(error) => Some(unreadable(end, &error)),
        }
    }

    /// Checks an event that an end takes.
    fn taken(&mut self, end: End, event: &Event) -> Option<String> {
        match event {
            Event::Established { .. } => {
                self.credits.opened(end);
                self.sends.opened(end);
            }
            Event::Disconnected { .. } | Event::ConnectFailed { .. } => {
                self.credits.over(end);
                self.sends.over(end);
                return self.receives.over(end);
            }
            Event::Completion(completion) => {
                let misplaced = self.receives.completed(end, completion);
                if misplaced.is_some() {
                    return misplaced;
                }
                let Ok(Success::Receive { buf, invalidated }) = &completion.result else {
                    return None;
                };
                let message = message::taken(buf);
                if let Some(counted) = self.sends.taken(end, &message) {
                    let answered = match read(&message, Rules::Sends) {
                        Ok((xid, Meaning::Answer(_))) => Some(xid),
                        _ => None,
                    };
                    let taken = self.exposure.taken(end, answered, *invalidated);
                    return counted.err().or(taken);
                }
                let answered = match read(&message, Rules::Calls) {
                    Ok((xid, Meaning::Answer(credits))) => {
                        self.credits.answered(end, xid, credits);
                        Some(xid)
                    }
                    Ok((_, Meaning::Unknown)) => {
                        self.credits.unknown(end);
                        None
                    }
                    _ => None,
                };
                return self.exposure.taken(end, answered, *invalidated);
            }
            _ => {}
        }
        None
    }

    /// Returns the numbers of calls of `node` that have registered memory.
    pub(crate) fn exposing(&self, node: NodeId) -> Exposing {
        self.exposure.calls(node)
    }
}

fn unreadable(end: End, error: &str) -> String {
    format!("{end} sends a header that cannot be read: {error}")
}

impl Observer for Journal {
    fn event(&mut self, at: Time, what: &FabricEvent<'_>) {
        self.happenings += 1;
        self.faults += u64::from(matches!(
            what,
            FabricEvent::Lost(_) | FabricEvent::Crashed(_) | FabricEvent::NotRegistered(_)
        ));
        self.line(at, format_args!("{what}"));
        if let Some(violation) = self.check(what) {
            self.violation(at, violation);
        }
    }
}
