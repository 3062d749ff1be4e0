//! Counts of calls by procedure and result, with their latency.
//!
//! One thread counts, without locks or atomic operations: a loop of a server, or the thread of a
//! client. Others get copies of the counts from that thread ([`crate::ServerGroup::statistics`]). Nothing is
//! counted unless its owner was told how to read results ([`StatusOf`]).

use std::ops::AddAssign;
use std::time::Duration;

use onc_rpc::{AcceptStatus, Decoder, Message};
use rdma::Time;

use crate::{CallError, ErrorReply};

/// Returns the status with which the results of a procedure begin (program, version, procedure,
/// results), or `None` if they have none. 0 means success.
pub type StatusOf = fn(u32, u32, u32, &mut Decoder<'_>) -> Option<u32>;

/// The upper bounds of the buckets of [`Latency`], in nanoseconds: 1, 2 and 5 of each power of ten
/// from 10 µs to 10 s.
pub const LATENCY_BOUNDS: [u64; 19] = {
    let mut bounds = [0; 19];
    let (mut at, mut power) = (0, 10_000);
    while at < bounds.len() {
        bounds[at] = power * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            power *= 10;
        }
        at += 1;
    }
    bounds
};

/// The number of procedures of a program that are counted each by itself. The others, of which most
/// do not exist, are counted together.
const PROCEDURES: usize = 64;
/// The number of programs whose procedures are counted.
const PROGRAMS: usize = 32;
/// The number of results of a procedure that are counted each by itself.
const RESULTS: usize = 64;
/// The entry of procedures that have none of their own.
const OTHERS: u32 = 0;
/// The entry of a procedure that has not been called.
const NONE: u32 = u32::MAX;

/// A histogram of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The number of latencies in each bucket: those up to the bound of the same index in
    /// [`LATENCY_BOUNDS`] and above the one before, and at the end those above all.
    pub buckets: [u64; LATENCY_BOUNDS.len() + 1],
    /// The sum, nanoseconds.
    pub nanos: u64,
}

impl Latency {
    fn observe(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.nanos = self.nanos.saturating_add(nanos);
        self.buckets[LATENCY_BOUNDS.partition_point(|bound| *bound < nanos)] += 1;
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl AddAssign for Latency {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += more;
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }
}

/// The result of a call other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallResult {
    /// Results with this status.
    Status(u32),
    /// An RPC-level error ([`ErrorReply::name`]).
    Refused(&'static str),
    /// No reply. Only clients count this.
    NoReply,
    /// Any of further statuses: a server that invents them does not take memory for each.
    Other,
}

/// The counts that only a client has, in the terms of Linux's `mountstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Transmissions of calls that have ended, at least one for each.
    pub transmissions: u64,
    /// Tries that timed out.
    pub timeouts: u64,
    /// Bytes of the RPC messages of calls.
    pub sent_bytes: u64,
    /// Bytes of the RPC messages of replies.
    pub received_bytes: u64,
    /// The time from the start of calls to their last transmission, nanoseconds.
    pub queue_nanos: u64,
    /// The time from the last transmission to the reply, nanoseconds.
    pub round_trip_nanos: u64,
}

/// The counts of one procedure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcedureCounts {
    /// Program and version, 0 for the entry of all procedures that have none of their own.
    pub program: (u32, u32),
    /// The number of the procedure, or `None` for all those without an entry of their own.
    pub procedure: Option<u32>,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls with other results.
    pub failed: Vec<(CallResult, u64)>,
    /// The durations of calls. At a server, from when the loop took the whole call to the end of the turn in
    /// which it replied; at a client, from the start of the call to its end.
    pub latency: Latency,
    /// The rest of what a client counts; zeros at a server.
    pub client: ClientCounts,
}

impl ProcedureCounts {
    /// Returns the number of calls that have ended.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.succeeded + self.failed()
    }

    /// Returns the number of calls that have not succeeded.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.iter().map(|(_, count)| count).sum()
    }

    fn count(&mut self, result: Option<CallResult>) {
        match result {
            None => self.succeeded += 1,
            Some(result) => add(&mut self.failed, result, CallResult::Other),
        }
    }
}

/// Adds one to the count of `what`, or to that of `other` if there are too many.
#[cold]
fn add<T: Copy + PartialEq>(counts: &mut Vec<(T, u64)>, what: T, other: T) {
    let known = counts.iter().any(|(known, _)| *known == what);
    let what = if known || counts.len() < RESULTS {
        what
    } else {
        other
    };
    match counts.iter_mut().find(|(known, _)| *known == what) {
        Some((_, count)) => *count += 1,
        None => counts.push((what, 1)),
    }
}

/// The entries of the procedures of a program.
#[derive(Debug)]
struct Program {
    number: (u32, u32),
    entries: [u32; PROCEDURES],
    /// The entry of all other procedures.
    others: u32,
}

/// A call that is being counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    entry: u32,
    began: Time,
}

impl Counted {
    /// A call of an owner that counts none.
    pub(crate) const NOT: Self = Self {
        entry: NONE,
        began: Time::ZERO,
    };
}

/// The counts of one thread.
#[derive(Debug)]
pub(crate) struct CallCounts {
    status: StatusOf,
    programs: Vec<Program>,
    procedures: Vec<ProcedureCounts>,
    /// Calls that were refused before a service saw them, by reason.
    refused: Vec<(&'static str, u64)>,
    /// Calls that ended in this turn of the loop, whose latency is known at its end.
    ended: Vec<Counted>,
}

impl CallCounts {
    pub(crate) fn new(status: StatusOf) -> Self {
        Self {
            status,
            programs: Vec::new(),
            procedures: vec![ProcedureCounts::default()],
            refused: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Returns a call that began at this time.
    pub(crate) fn begin(&mut self, (prog, vers, proc): (u32, u32, u32), began: Time) -> Counted {
        let number = (prog, vers);
        let known = self.programs.iter().position(|it| it.number == number);
        let entry = match known {
            Some(at) => {
                let program = &self.programs[at];
                match program.entries.get(proc as usize) {
                    Some(&NONE) => self.add_procedure(at, proc),
                    Some(&entry) => entry,
                    None => program.others,
                }
            }
            None => self.add_program(number, proc),
        };
        Counted { entry, began }
    }

    #[cold]
    fn add_program(&mut self, number: (u32, u32), proc: u32) -> u32 {
        if self.programs.len() >= PROGRAMS {
            return OTHERS;
        }
        let others = self.add_entry(number, None);
        self.programs.push(Program {
            number,
            entries: [NONE; PROCEDURES],
            others,
        });
        match (proc as usize) < PROCEDURES {
            true => self.add_procedure(self.programs.len() - 1, proc),
            false => others,
        }
    }

    #[cold]
    fn add_procedure(&mut self, program: usize, proc: u32) -> u32 {
        let entry = self.add_entry(self.programs[program].number, Some(proc));
        self.programs[program].entries[proc as usize] = entry;
        entry
    }

    fn add_entry(&mut self, program: (u32, u32), procedure: Option<u32>) -> u32 {
        self.procedures.push(ProcedureCounts {
            program,
            procedure,
            ..ProcedureCounts::default()
        });
        self.procedures.len() as u32 - 1
    }

    /// Counts a call that has ended with this reply of a service. Its latency is counted by
    /// [`CallCounts::end_turn`].
    pub(crate) fn answered(&mut self, call: Counted, reply: &Result<Message, ErrorReply>) {
        let Some(counts) = self.procedures.get_mut(call.entry as usize) else {
            return;
        };
        let result = match reply {
            Ok(results) => {
                let ((prog, vers), proc) = (counts.program, counts.procedure);
                let status = self.status;
                let status =
                    proc.and_then(|proc| status(prog, vers, proc, &mut Decoder::new(results)));
                status.filter(|status| *status != 0).map(CallResult::Status)
            }
            Err(error) => Some(CallResult::Refused(error.name())),
        };
        counts.count(result);
        self.ended.push(call);
    }

    /// Counts the latency of the calls that ended in the turn of the loop that has ended now.
    #[inline]
    pub(crate) fn end_turn(&mut self, now: Time) {
        for Counted { entry, began } in self.ended.drain(..) {
            if let Some(counts) = self.procedures.get_mut(entry as usize) {
                counts.latency.observe(now.since(began));
            }
        }
    }

    /// Counts a call that a service does not see.
    #[cold]
    pub(crate) fn refused(&mut self, error: &ErrorReply) {
        add(&mut self.refused, error.name(), "other");
    }

    /// Counts a call of a client that has ended at `now`, with results or without.
    pub(crate) fn ended(
        &mut self,
        call: (u32, u32, u32),
        result: &Result<crate::Reply, CallError>,
        (began, now): (Time, Time),
        own: ClientCounts,
    ) {
        let entry = self.begin(call, began).entry as usize;
        let (prog, vers, proc) = call;
        let result = match result {
            Ok(reply) => {
                let status = (self.status)(prog, vers, proc, &mut reply.results());
                status.filter(|status| *status != 0).map(CallResult::Status)
            }
            Err(CallError::Refused(error)) => Some(CallResult::Refused(error.name())),
            Err(_) => Some(CallResult::NoReply),
        };
        let Some(counts) = self.procedures.get_mut(entry) else {
            return;
        };
        counts.count(result);
        counts.latency.observe(now.since(began));
        let all = &mut counts.client;
        all.transmissions += own.transmissions;
        all.timeouts += own.timeouts;
        all.sent_bytes += own.sent_bytes;
        all.received_bytes += own.received_bytes;
        all.queue_nanos += own.queue_nanos;
        all.round_trip_nanos += own.round_trip_nanos;
    }

    /// Returns the counts of all procedures that were called.
    pub(crate) fn procedures(&self) -> Vec<ProcedureCounts> {
        let called = self.procedures.iter().filter(|counts| counts.calls() > 0);
        called.cloned().collect()
    }

    /// Returns the number of calls that were refused before a service saw them, by reason.
    pub(crate) fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refused.clone()
    }
}

impl ErrorReply {
    /// Returns a short name of the error, without its details.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Accepted(status) => match status {
                AcceptStatus::Success => "success",
                AcceptStatus::ProgUnavail => "prog_unavail",
                AcceptStatus::ProgMismatch { .. } => "prog_mismatch",
                AcceptStatus::ProcUnavail => "proc_unavail",
                AcceptStatus::GarbageArgs => "garbage_args",
                AcceptStatus::SystemErr => "system_err",
            },
            Self::Auth(_) => "auth_error",
            Self::RpcMismatch { .. } => "rpc_mismatch",
        }
    }
}

#[cfg(test)]
mod tests {
    use onc_rpc::Encoder;

    use super::*;

    /// Results begin with a status, except those of procedure 0.
    fn status(_: u32, _: u32, proc: u32, results: &mut Decoder<'_>) -> Option<u32> {
        (proc != 0).then(|| results.u32().ok())?
    }

    fn results(status: u32) -> Result<Message, ErrorReply> {
        let mut results = Encoder::new();
        results.u32(status);
        Ok(results.finish())
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn calls_are_counted_by_procedure_and_result_with_the_time_to_the_end_of_the_turn() {
        let mut counts = CallCounts::new(status);
        let read = counts.begin((7, 3, 6), at(0));
        let null = counts.begin((7, 3, 0), at(5));
        counts.answered(read, &results(0));
        counts.answered(null, &Ok(Message::default()));
        counts.end_turn(at(10));
        let denied = counts.begin((7, 3, 6), at(10));
        counts.answered(denied, &results(13));
        let garbage = counts.begin((7, 3, 6), at(10));
        counts.answered(
            garbage,
            &Err(ErrorReply::Accepted(AcceptStatus::GarbageArgs)),
        );
        counts.end_turn(at(10_000_000 + 11));
        let all = counts.procedures();
        let [read, null] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!((read.program, read.procedure), ((7, 3), Some(6)));
        assert_eq!((read.succeeded, read.calls()), (1, 3));
        let failed = [
            (CallResult::Status(13), 1),
            (CallResult::Refused("garbage_args"), 1),
        ];
        assert_eq!(read.failed, failed);
        // A bound belongs to the bucket below it.
        assert_eq!(read.latency.buckets[0], 1);
        assert_eq!(read.latency.buckets[LATENCY_BOUNDS.len()], 2);
        assert_eq!(read.latency.nanos, 10_000 + 2 * 10_000_001_000);
        assert_eq!((null.succeeded, null.latency.nanos), (1, 5_000));
    }

    #[test]
    fn a_peer_cannot_make_the_counts_grow_without_end() {
        let mut counts = CallCounts::new(status);
        for number in 0..10_000 {
            let call = counts.begin((1, 1, number), at(0));
            counts.answered(call, &results(0));
            let call = counts.begin((1, 1, 1), at(0));
            counts.answered(call, &results(number));
            let call = counts.begin((1000 + number, 1, 1), at(0));
            counts.answered(call, &results(0));
        }
        counts.end_turn(at(1));
        let all = counts.procedures();
        assert!(all.len() <= PROCEDURES + PROGRAMS + 2, "{}", all.len());
        let calls: u64 = all.iter().map(ProcedureCounts::calls).sum();
        let latencies: u64 = all.iter().map(|it| it.latency.count()).sum();
        assert_eq!((calls, latencies), (30_000, 30_000));
        let most = all.iter().map(|it| it.failed.len()).max();
        assert_eq!(most, Some(RESULTS + 1));
    }

    #[test]
    fn the_bounds_go_from_ten_microseconds_to_ten_seconds() {
        assert_eq!(LATENCY_BOUNDS[..4], [10_000, 20_000, 50_000, 100_000]);
        assert_eq!(LATENCY_BOUNDS[18], 10_000_000_000);
    }
}
