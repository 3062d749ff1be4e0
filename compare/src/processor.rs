//! CPU pinning: one processor for the client and another for the server, as on two machines.
//! Otherwise the scheduler sometimes puts both on one processor, which changes latencies by half
//! from one round to the next.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use rpcrdma_setup::{Context, Failure};

/// Returns the first two processors that this process may use: for the client, and for servers.
/// Returns `None` if there is only one.
pub(crate) fn pair() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    usable.next().zip(usable.next())
}

/// Pins this thread, and those that it will start, to one processor.
///
/// # Errors
/// The error of the operating system, or an invalid number.
pub(crate) fn pin(number: usize) -> Result<(), Failure> {
    if number >= CpuSet::MAX_CPU {
        return Err(Failure::Usage(format!("there is no processor {number}")));
    }
    let mut only = CpuSet::new();
    only.set(number);
    sched_setaffinity(None, &only).context(format_args!("cannot use processor {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_processor_and_others_keep_theirs() {
        let before = pair();
        std::thread::spawn(move || {
            let allowed = sched_getaffinity(None).unwrap();
            let last = (0..CpuSet::MAX_CPU)
                .rfind(|&number| allowed.is_set(number))
                .unwrap();
            pin(last).unwrap();
            assert_eq!(pair(), None);
        })
        .join()
        .unwrap();
        assert_eq!(pair(), before);
        assert!(pin(usize::MAX).is_err());
    }
}
