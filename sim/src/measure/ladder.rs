//! A call as a ladder: each step of both ends at its time, and which of them the results had to wait
//! for.

use std::time::Duration;

use bytes::Bytes;
use rdma::Time;
use rdma_sim::{Step, StepKind, on_path};
use rpc_transport::rdma::Accounting;
use rpcrdma_ladder::{Arrow, ArrowKind, Ladder, Mark, MarkKind, Side};
use rpcrdma_programs::workload::Workload;

use super::copies::Copied;
use super::setting::Setting;
use super::single::{CLIENT, Measured, Performed, perform};
use super::stage::CannotMeasure;

/// The least part of a call's time that a copy takes to be named.
const NAMED: u32 = 50;

/// Performs an operation of a workload in a simulation of its own. Returns its cost, and the ladder of
/// its last call, which has the same times and counts. The ladder's name is left to the caller.
///
/// # Errors
/// The options do not allow the call.
pub fn ladder(
    setting: &Setting,
    workload: &dyn Workload,
) -> Result<(Measured, Ladder), CannotMeasure> {
    let performed = perform(setting, workload)?;
    let mut drawing = Drawing::new(setting, &performed);
    drawing.draw();
    let ladder = Ladder {
        arrows: drawing.arrows,
        marks: drawing.marks,
        took: performed.measured.latency,
        totals: totals(&performed.measured),
        ..Ladder::default()
    };
    Ok((performed.measured, ladder))
}

/// Formats the counts of a call.
fn totals(measured: &Measured) -> Vec<String> {
    let Measured {
        requester,
        responder,
        ..
    } = measured;
    let some = |count: u64, one: &str, many: &str| match count {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let trips = match measured.round_trips {
        1.0 => "1 round trip".to_owned(),
        trips => format!("{trips} round trips"),
    };
    let interrupts = format!(
        "interrupts: client {}, server {}",
        measured.requester_interrupts, measured.responder_interrupts
    );
    let registrations = u64::from(measured.registrations);
    let mut memory = some(registrations, "registration", "registrations");
    for (count, one, many) in [
        (
            requester.rdma_reads + responder.rdma_reads,
            "RDMA Read",
            "RDMA Reads",
        ),
        (
            requester.rdma_writes + responder.rdma_writes,
            "RDMA Write",
            "RDMA Writes",
        ),
    ] {
        if count > 0 {
            memory = format!("{memory}, {}", some(count, one, many));
        }
    }
    vec![trips, interrupts, memory]
}

fn side(step: &Step) -> Side {
    match step.node {
        CLIENT => Side::Left,
        _ => Side::Right,
    }
}

struct Drawing<'a> {
    setting: &'a Setting,
    performed: &'a Performed,
    /// The steps that begin before the results are there, each with whether these wait for it.
    steps: Vec<(&'a Step, bool)>,
    arrows: Vec<Arrow>,
    marks: Vec<Mark>,
}

impl<'a> Drawing<'a> {
    fn new(setting: &'a Setting, performed: &'a Performed) -> Self {
        let waited = on_path(&performed.steps, performed.last);
        let mut steps: Vec<(&Step, bool)> = performed.steps.iter().zip(waited).collect();
        // The work requests of a queue are executed in order: what was posted before a message, for
        // the same reason, is waited for as well.
        for at in 0..steps.len() {
            let is_ahead = |&(step, waited): &(&Step, bool)| {
                let own = steps[at].0;
                let message = matches!(step.what, StepKind::Send { .. });
                waited
                    && message
                    && step.node == own.node
                    && step.after == own.after
                    && own.start < step.start
            };
            let moves = matches!(steps[at].0.what, StepKind::Send { .. } | StepKind::Write(_));
            steps[at].1 |= moves && steps.iter().any(is_ahead);
        }
        let end = steps.iter().filter(|(_, waited)| *waited);
        let end = end.map(|(step, _)| step.end).max();
        steps.retain(|(step, _)| end.is_some_and(|end| step.start < end));
        Self {
            setting,
            performed,
            steps,
            arrows: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn since(&self, time: Time) -> Duration {
        time.since(self.performed.began)
    }

    fn draw(&mut self) {
        for at in 0..self.steps.len() {
            let (step, waited) = self.steps[at];
            match self.arrow(step, waited) {
                Some(arrow) => self.arrows.push(arrow),
                // Other interrupts are not counted either.
                None if !self.is_joined(step) => {}
                None => self.mark(step),
            }
        }
        self.round_trips();
        self.copies();
    }

    /// Returns the arrow of a packet; `None` for other steps.
    fn arrow(&self, step: &Step, waited: bool) -> Option<Arrow> {
        let (kind, octets) = match &step.what {
            StepKind::Send {
                bytes,
                invalidates: false,
            } => (ArrowKind::Send, bytes.len()),
            StepKind::Send { bytes, .. } => (ArrowKind::SendWithInvalidate, bytes.len()),
            StepKind::Write(len) => (ArrowKind::Write, *len),
            StepKind::ReadRequest(len) => (ArrowKind::ReadRequest, *len),
            StepKind::ReadResponse(len) => (ArrowKind::ReadResponse, *len),
            StepKind::Interrupt | StepKind::Registration { .. } | StepKind::Invalidation(_) => {
                return None;
            }
        };
        Some(Arrow {
            from: side(step),
            start: self.since(step.start),
            end: self.since(step.end),
            octets: octets as u64,
            kind,
            name: self.name(step, waited),
            critical: waited,
        })
    }

    fn name(&self, step: &Step, waited: bool) -> String {
        let steps = || self.steps.iter().map(|(step, _)| &step.what);
        let registered = |it: &StepKind| match it {
            StepKind::Registration { for_writes, .. } => Some(*for_writes),
            _ => None,
        };
        let (of_call, of_reply) = self.performed.bulk;
        let name = match (&step.what, side(step)) {
            (StepKind::Write(_), _) => "RDMA Write",
            (StepKind::ReadRequest(_), _) => "RDMA Read",
            (StepKind::ReadResponse(_), _) => "data of the Read",
            (StepKind::Send { bytes, .. }, _) if !waited => match self.only_grants(bytes) {
                true => "grant of credits",
                false => "message",
            },
            (_, Side::Left) => {
                let has = |wanted| steps().any(|it| registered(it) == Some(wanted));
                match (has(false), has(true)) {
                    (true, true) => "call, chunks",
                    (true, false) => "call, read chunk",
                    (false, true) => "call, write chunk",
                    (false, false) if of_call > 0 => "call with data",
                    (false, false) => "call",
                }
            }
            (_, Side::Right) => match steps().any(|it| matches!(it, StepKind::Write(_))) {
                false if of_reply > 0 => "reply with data",
                _ => "reply",
            },
        };
        name.to_owned()
    }

    /// Returns whether a message only grants credits.
    fn only_grants(&self, message: &Bytes) -> bool {
        let protocols = &self.setting.responder.protocols;
        let Some(Accounting::Messages(fields)) = protocols.accounting(self.setting.version) else {
            return false;
        };
        let credit = fields.credit(&[message.clone()].into_iter().collect());
        credit.is_some_and(|credit| credit.only_grants)
    }

    /// Returns whether a step is no interrupt, or the results wait for the turn that it leads to.
    fn is_joined(&self, step: &Step) -> bool {
        let is_interrupt = |step: &Step| matches!(step.what, StepKind::Interrupt);
        let same = |&(other, waited): &(&Step, bool)| {
            waited && is_interrupt(other) && (other.node, other.end) == (step.node, step.end)
        };
        !is_interrupt(step) || self.steps.iter().any(same)
    }

    fn mark(&mut self, step: &Step) {
        let (kind, name) = match step.what {
            StepKind::Interrupt => (MarkKind::Interrupt, "interrupt".to_owned()),
            StepKind::Registration { .. } => (MarkKind::Registration, "register".to_owned()),
            StepKind::Invalidation(_) => (MarkKind::Invalidation, "invalidate".to_owned()),
            _ => return,
        };
        let mark = Mark {
            at: side(step),
            start: self.since(step.start),
            end: self.since(step.end),
            kind,
            name,
        };
        // What arrives before the host has its turn waits for the same interrupt. Registrations that
        // follow one another are one mark.
        let same = self.marks.iter_mut().find(|known| {
            let joined = match kind {
                MarkKind::Interrupt => known.end == mark.end,
                _ => known.end == mark.start,
            };
            known.at == mark.at && known.kind == kind && joined
        });
        match same {
            Some(known) => known.end = known.end.max(mark.end),
            None => self.marks.push(mark),
        }
    }

    /// Marks the round trips of RDMA Reads for which the results wait.
    fn round_trips(&mut self) {
        let mut trips: Vec<Mark> = Vec::new();
        let reads = self.steps.iter().filter(|(step, waited)| {
            *waited
                && matches!(
                    step.what,
                    StepKind::ReadRequest(_) | StepKind::ReadResponse(_)
                )
        });
        let mut request: Option<&Step> = None;
        for (step, _) in reads {
            match (&step.what, request) {
                (StepKind::ReadRequest(_), _) => request = Some(step),
                (_, Some(asked)) => trips.push(Mark {
                    at: side(asked),
                    start: self.since(asked.start),
                    end: self.since(step.end),
                    kind: MarkKind::RoundTrip,
                    name: "one more round trip".to_owned(),
                }),
                _ => {}
            }
        }
        self.marks.extend(trips);
    }

    /// Inserts the copies of both ends, whose time is not that of the network: before the call leaves,
    /// before the server answers, and before the results are there.
    fn copies(&mut self) {
        let costs = self.setting.copies;
        let Measured {
            latency, copied, ..
        } = self.performed.measured;
        let [client, server] = self.performed.copied;
        let before = Copied {
            after_receiving: 0,
            unplaced: 0,
            ..client
        };
        // The rest is the client's, so that all of the time is there.
        let (all, first, second) = (costs.time(copied), costs.time(before), costs.time(server));
        let third = all.saturating_sub(first + second);
        let of = |from: Side| {
            self.arrows
                .iter()
                .filter(move |it| it.critical && it.from == from)
        };
        let asked = of(Side::Left)
            .map(|arrow| arrow.end)
            .max()
            .unwrap_or_default();
        let answers = of(Side::Right)
            .map(|arrow| arrow.start)
            .filter(|start| *start >= asked);
        let answered = answers.min().unwrap_or(asked);
        let shift = |time: Duration| match time {
            time if time >= answered => time + first + second,
            time => time + first,
        };
        for arrow in &mut self.arrows {
            (arrow.start, arrow.end) = (shift(arrow.start), shift(arrow.end));
        }
        for mark in &mut self.marks {
            (mark.start, mark.end) = (shift(mark.start), shift(mark.end));
        }
        let long = |time: Duration| time >= latency / NAMED;
        for (at, end, took, of_end) in [
            (Side::Left, first, first, before),
            (Side::Right, answered + first + second, second, server),
            (Side::Left, latency, third, client),
        ] {
            if !took.is_zero() {
                let name = match of_end.unplaced > 0 {
                    _ if !long(took) => "",
                    true => "copy data",
                    false => "copy",
                };
                self.marks.push(Mark {
                    at,
                    start: end.saturating_sub(took),
                    end,
                    kind: MarkKind::Work,
                    name: name.to_owned(),
                });
            }
        }
    }
}
