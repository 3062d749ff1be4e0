//! Requests of processes that are killed while a server does not answer.
//!
//! The kernel lets a process whose request has reached a file system wait until there is a reply.
//! FUSE_INTERRUPT, which would say that the process got a signal, does not reach a user of `fuser`, and
//! comes for harmless signals as well. So the processes of requests that take long are looked at in
//! `/proc` from time to time. A killed one gets EINTR, as with a hard mount of Linux's own client. Data
//! that it has written is still sent.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use slab::Slab;

/// The time after which the process of a request is looked at for the first time.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Waiting {
    pid: u32,
    since: Instant,
    killed: bool,
    waker: Option<Waker>,
}

/// Requests in progress.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    waiting: RefCell<Slab<Waiting>>,
}

/// Removes a request when it ends.
struct Entry<'i> {
    interrupts: &'i Interrupts,
    key: usize,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.interrupts.waiting.borrow_mut().remove(self.key);
    }
}

impl Interrupts {
    /// Does the work of a request of the thread `pid`, unless that is found killed.
    ///
    /// # Errors
    /// EINTR for a killed thread, else the error of the work.
    pub(crate) async fn unless_killed<T>(
        &self,
        pid: u32,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let key = self.waiting.borrow_mut().insert(Waiting {
            pid,
            since: Instant::now(),
            killed: false,
            waker: None,
        });
        let entry = Entry {
            interrupts: self,
            key,
        };
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(outcome) = work.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
            let mut waiting = self.waiting.borrow_mut();
            let waiting = &mut waiting[entry.key];
            if waiting.killed {
                return Poll::Ready(Err(Errno::INTR));
            }
            match &mut waiting.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    /// Looks for requests whose thread was killed.
    pub(crate) fn look(&self, now: Instant, is_killed: impl Fn(u32) -> bool) {
        let mut wakers = Vec::new();
        for (_, waiting) in self.waiting.borrow_mut().iter_mut() {
            let long = now.saturating_duration_since(waiting.since) >= PATIENCE;
            if long && waiting.pid != 0 && !waiting.killed && is_killed(waiting.pid) {
                waiting.killed = true;
                wakers.extend(waiting.waker.take());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Returns whether a thread was killed: whether SIGKILL is pending, into which the kernel turns every
/// deadly signal for each thread of a process, or it is already on its way out because of a signal.
pub(crate) fn is_killed(pid: u32) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    read("status").is_ok_and(|status| has_kill_pending(&status))
        || read("stat").is_ok_and(|stat| is_dying(&stat))
}

fn has_kill_pending(status: &str) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let pending = |name: &str| {
        let set = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(set.unwrap_or_default().trim(), 16).unwrap_or(0)
    };
    (pending("SigPnd:") | pending("ShdPnd:")) & KILL != 0
}

/// Returns whether a thread is exiting because of a signal, from its `/proc/PID/stat`. A thread that
/// exits by itself waits for its data, as one that closes its files does.
fn is_dying(stat: &str) -> bool {
    const EXITING: u64 = 4;
    // The name, in parentheses, may contain anything.
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    // proc_pid_stat(5) counts from 1, and the state, which comes first here, is field 3.
    let field = |number: usize| fields.get(number - 3).and_then(|it| it.parse::<u64>().ok());
    let (flags, exit_code) = (field(9).unwrap_or(0), field(52).unwrap_or(0));
    flags & EXITING != 0 && exit_code & 0x7f != 0
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};

    use super::*;

    #[test]
    fn only_a_pending_kill_counts_as_one() {
        let status = |own: &str, shared: &str| format!("SigPnd:\t{own}\nShdPnd:\t{shared}\n");
        let none = "0000000000000000";
        assert!(!has_kill_pending(&status(none, none)));
        assert!(has_kill_pending(&status("0000000000000100", none)));
        assert!(has_kill_pending(&status(none, "0000000000000102")));
        // SIGINT that the program handles, and SIGUSR1.
        assert!(!has_kill_pending(&status("0000000000000002", none)));
        assert!(!has_kill_pending(&status(none, "0000000000000200")));
        assert!(!is_killed(std::process::id()));
        assert!(!is_killed(0));
    }

    #[test]
    fn a_thread_that_a_signal_ends_is_told_from_one_that_exits() {
        let stat = |flags: u32, code: u32| {
            let between = "0 ".repeat(42);
            format!("12 (a b) c) R 1 2 3 4 5 {flags} {between}{code}\n")
        };
        assert!(is_dying(&stat(4, 9)));
        assert!(is_dying(&stat(0x40_0004, 15)));
        assert!(!is_dying(&stat(4, 256)));
        assert!(!is_dying(&stat(0, 0)));
        assert!(!is_dying("nonsense"));
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields = own.rsplit_once(')').unwrap().1;
        assert_eq!(fields.split_ascii_whitespace().count(), 50);
    }

    #[test]
    fn a_killed_process_gets_its_error_and_others_go_on() {
        let outcome = async {
            let interrupts = Interrupts::default();
            let never = std::future::pending::<Result<(), Errno>>;
            let mut one = Box::pin(interrupts.unless_killed(1, never()));
            let mut two = Box::pin(interrupts.unless_killed(2, never()));
            let mut kernel = Box::pin(interrupts.unless_killed(0, never()));
            assert!(poll!(&mut one).is_pending() && poll!(&mut two).is_pending());
            assert!(poll!(&mut kernel).is_pending());
            // Not looked at before it has waited for a while.
            interrupts.look(Instant::now(), |_| true);
            assert!(poll!(&mut one).is_pending());
            interrupts.look(Instant::now() + PATIENCE, |pid| pid != 2);
            assert_eq!(poll!(&mut one), Poll::Ready(Err(Errno::INTR)));
            assert!(poll!(&mut two).is_pending() && poll!(&mut kernel).is_pending());
            drop((one, two, kernel));
            assert!(interrupts.waiting.borrow().is_empty());
        };
        outcome.now_or_never().expect("nothing waits");
    }
}
