//! The processor time of a process and of a thread, as Linux counts it (proc(5)).
//!
//! `/proc/PID/stat` counts in ticks of 10 ms, which is a percent of a round of a second. The files
//! `/proc/PID/task/TID/schedstat` count nanoseconds, but a thread that ends takes its file with it.
//! So a process is measured by these files, and by ticks over a time in which one of its threads
//! ended; such a time is marked.
//!
//! Over the loopback interface, the kernel does a part of the receiver's work on the processor of
//! the sender, in the sender's time.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use rpcrdma_setup::{Context, Failure};

/// The processor time of a process, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessTime {
    /// Nanoseconds of each of its threads.
    threads: BTreeMap<u32, u64>,
    /// Of the whole process with the threads that have ended, to a tick.
    whole: Duration,
}

/// The processor time of a process between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) time: Duration,
    /// Whether it was counted in ticks, because a thread ended.
    pub(super) in_ticks: bool,
}

impl ProcessTime {
    /// Returns the time since an earlier moment.
    pub(super) fn since(&self, before: &Self) -> Used {
        let mut ids = before.threads.keys();
        let in_ticks = ids.any(|id| !self.threads.contains_key(id));
        let new = self.threads.iter().map(|(id, now)| {
            let then = before.threads.get(id).copied().unwrap_or(0);
            now.saturating_sub(then)
        });
        let mut time = Duration::from_nanos(new.sum());
        if in_ticks {
            // The threads that are left used less, but in a short round that is more than no tick.
            time = time.max(self.whole.saturating_sub(before.whole));
        }
        Used { time, in_ticks }
    }
}

/// Returns the processor time of a process.
///
/// # Errors
/// There is no such process, or the kernel does not count (`CONFIG_SCHED_INFO`).
pub(super) fn of_process(pid: u32) -> io::Result<ProcessTime> {
    let folder = format!("/proc/{pid}");
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("{folder}/task"))? {
        let name = entry?.file_name();
        let id: u32 = name.to_string_lossy().parse().map_err(io::Error::other)?;
        match fs::read_to_string(format!("{folder}/task/{id}/schedstat")) {
            Ok(text) => {
                threads.insert(id, numbers(&text)?.0);
            }
            // The thread ended meanwhile, unless the kernel has no such file at all.
            Err(_) if fs::exists(format!("{folder}/schedstat"))? => {}
            Err(error) => return Err(error),
        }
    }
    let stat = fs::read_to_string(format!("{folder}/stat"))?;
    let ticks = ticks(&stat).ok_or_else(|| io::Error::other("a stat file without times"))?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let whole = Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / per_second));
    Ok(ProcessTime { threads, whole })
}

/// Returns the sum of user and system time in a stat file. The name of the program, which stands in
/// parentheses, may contain any characters.
fn ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(')')?;
    // The state, which comes first after the name, is field 3; the times are fields 14 and 15.
    let mut fields = after.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// How a thread spent its time, up to one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadTime {
    /// On a processor.
    pub(super) running: Duration,
    /// Waiting for a processor while others used it.
    pub(super) waiting: Duration,
}

impl ThreadTime {
    /// Returns the time since an earlier moment.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            running: self.running.saturating_sub(before.running),
            waiting: self.waiting.saturating_sub(before.waiting),
        }
    }
}

impl std::ops::AddAssign for ThreadTime {
    fn add_assign(&mut self, other: Self) {
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

/// Returns how the calling thread spent its time.
///
/// # Errors
/// The kernel does not count (`CONFIG_SCHED_INFO`).
pub(super) fn of_this_thread() -> Result<ThreadTime, Failure> {
    let file = "/proc/thread-self/schedstat";
    let (running, waiting) = fs::read_to_string(file)
        .and_then(|text| numbers(&text))
        .context(file)?;
    Ok(ThreadTime {
        running: Duration::from_nanos(running),
        waiting: Duration::from_nanos(waiting),
    })
}

/// Returns the nanoseconds on a processor, and those waiting for one, in a schedstat file.
fn numbers(text: &str) -> io::Result<(u64, u64)> {
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(running)), Some(Ok(waiting))) => Ok((running, waiting)),
        _ => Err(io::Error::other("a schedstat file without times")),
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;

    fn process(threads: &[(u32, u64)], whole: u64) -> ProcessTime {
        ProcessTime {
            threads: threads.iter().copied().collect(),
            whole: Duration::from_millis(whole),
        }
    }

    #[test]
    fn threads_that_end_are_counted_by_ticks() {
        let before = process(&[(1, 100), (2, 50)], 10);
        let grown = process(&[(1, 150), (2, 50), (3, 7)], 20);
        let used = |time, in_ticks| Used { time, in_ticks };
        let nanos = Duration::from_nanos(57);
        assert_eq!(grown.since(&before), used(nanos, false));
        let shrunk = |whole| process(&[(1, 150), (3, 7)], whole).since(&before);
        assert_eq!(shrunk(30), used(Duration::from_millis(20), true));
        assert_eq!(shrunk(10), used(nanos, true));
    }

    #[test]
    fn names_of_programs_do_not_confuse() {
        let stat = "7 (a) 3 4 (b)) R 1 7 7 0 -1 4194304 99 0 0 0 40 2 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) R 1"), None);
    }

    /// A thread that works counts about the time that it worked, in both ways to count it.
    #[test]
    fn work_is_counted() {
        let pid = std::process::id();
        let (before, thread) = (of_process(pid).unwrap(), of_this_thread().unwrap());
        let mut number = 1u64;
        loop {
            for _ in 0..100_000 {
                number = black_box(number.wrapping_mul(31) + 1);
            }
            let used = of_this_thread().unwrap().since(thread).running;
            if used >= Duration::from_millis(60) {
                let process = of_process(pid).unwrap();
                // Threads of other tests may end meanwhile, and then ticks of 10 ms are counted.
                let since = process.since(&before).time;
                assert!(since >= Duration::from_millis(40), "{since:?} for {used:?}");
                let ticks = process.whole - before.whole;
                assert!(ticks >= Duration::from_millis(40), "{ticks:?} for {used:?}");
                break;
            }
        }
        let start = Instant::now();
        let before = of_this_thread().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let slept = of_this_thread().unwrap().since(before);
        assert!(slept.running < start.elapsed() / 2, "{slept:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // The number is above the kernel's limit (PID_MAX_LIMIT).
        assert!(of_process(1 << 23).is_err());
    }
}
