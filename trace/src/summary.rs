//! The sums of a trace.

use std::fmt;
use std::time::Duration;

use rdma::trace::End;

use crate::part::Part;

/// Time that the calls of a trace spent with each part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    ends: [EndSummary; 2],
    /// The number of records that were dropped because the writer could not keep up.
    pub lost: u64,
}

/// The sums of the calls of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndSummary {
    /// The number of calls.
    pub calls: u64,
    nanos: [u64; Part::ALL.len()],
    longest: [u64; Part::ALL.len()],
}

impl EndSummary {
    /// Returns the time that all calls together spent with a part.
    #[must_use]
    pub const fn time(&self, part: Part) -> Duration {
        Duration::from_nanos(self.nanos[part.index()])
    }

    /// Returns the number of calls whose longest part it was.
    #[must_use]
    pub const fn blamed(&self, part: Part) -> u64 {
        self.longest[part.index()]
    }

    /// Returns the time of all calls together.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.iter().sum())
    }
}

impl Summary {
    /// Returns the sums of one end of calls.
    #[must_use]
    pub const fn of(&self, end: End) -> &EndSummary {
        &self.ends[end as usize]
    }

    /// Adds a call. Returns its longest part.
    pub(crate) fn add(&mut self, end: End, parts: impl Iterator<Item = (Part, u64, u64)>) -> Part {
        let sums = &mut self.ends[end as usize];
        sums.calls += 1;
        let mut of_call = [0_u64; Part::ALL.len()];
        for (part, since, until) in parts {
            of_call[part.index()] += until - since;
        }
        for (sum, nanos) in sums.nanos.iter_mut().zip(of_call) {
            *sum += nanos;
        }
        // Of parts that took as long as others, the last one.
        let longest = Part::ALL
            .into_iter()
            .max_by_key(|part| of_call[part.index()]);
        let longest = longest.unwrap_or(Part::Other);
        sums.longest[longest.index()] += 1;
        longest
    }
}

impl fmt::Display for Summary {
    /// Writes a line for each part that took time, the longest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (end, name) in [(End::Requester, "made"), (End::Responder, "served")] {
            let sums = self.of(end);
            if sums.calls == 0 {
                continue;
            }
            if !std::mem::take(&mut first) {
                writeln!(f)?;
            }
            let each = |time: Duration| time.as_secs_f64() * 1e6 / sums.calls as f64;
            let total = sums.total();
            write!(f, "{} calls {name}, {:.2} us each", sums.calls, each(total))?;
            let mut parts = Part::ALL;
            parts.sort_by_key(|part| std::cmp::Reverse(sums.time(*part)));
            for part in parts.into_iter().filter(|part| !sums.time(*part).is_zero()) {
                let share = 100.0 * sums.time(part).as_secs_f64() / total.as_secs_f64();
                write!(
                    f,
                    "\n{share:5.1} %  {:<26} {:.2} us",
                    part.name(),
                    each(sums.time(part))
                )?;
                let blamed = sums.blamed(part);
                if blamed > 0 {
                    let calls = if blamed == 1 { "call" } else { "calls" };
                    write!(f, ", longest part of {blamed} {calls}")?;
                }
            }
        }
        if self.lost > 0 {
            write!(
                f,
                "\n{} events are missing: they came faster than they were written",
                self.lost
            )?;
        }
        Ok(())
    }
}
