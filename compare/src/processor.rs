//! One processor for the client and another for the server, as on two machines. Left to the
//! scheduler, both sides sometimes share one and sometimes do not, which changes latencies by half
//! from one round to the next.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use rpcrdma_setup::{Context, Failure};

/// The first two processors that this process may use: for the client, and for servers. None when
/// there is only one.
pub(crate) fn pair() -> Option<(usize, usize)> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    usable.next().zip(usable.next())
}

/// Keeps this thread, and those that it will start, on one processor.
///
/// # Errors
/// What the operating system refused.
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
