//! CPU pinning: one processor for the client and another for the server, as on two machines.
//! Otherwise the scheduler sometimes puts both on one processor, which changes latencies by half
//! from one round to the next.

use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use rpcrdma_setup::{Context, Failure};

/// Returns two processors that this process may use, for the client and for servers: of two cores,
/// if it may use several. Returns `None` if there is only one processor.
pub(crate) fn pair() -> Option<(usize, usize)> {
    choose(&usable(), core)
}

/// Returns the numbers of the processors that this thread may use; none if the system does not say.
pub(crate) fn usable() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else {
        return Vec::new();
    };
    let usable = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number));
    usable.collect()
}

/// Returns whether two processors are threads of one core, if Linux says.
pub(crate) fn share_a_core((one, other): (usize, usize)) -> Option<bool> {
    Some(core(one)? == core(other)?)
}

/// Returns whether this system runs in a virtual machine, as far as it shows that to its programs:
/// x86 processors have a flag for it. `description` is a text like `/proc/cpuinfo`.
pub(crate) fn is_virtual(description: &str) -> bool {
    let mut lines = description.lines().filter_map(|line| line.split_once(':'));
    let flags = lines.find(|(key, _)| key.trim() == "flags");
    let flagged = flags.is_some_and(|(_, flags)| flags.split(' ').any(|it| it == "hypervisor"));
    let shown = ["/sys/hypervisor/type", "/proc/device-tree/hypervisor"];
    flagged || shown.into_iter().any(|path| Path::new(path).exists())
}

/// The time of all processors since the system started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The time that the host gave to others while there was work here.
    stolen: u64,
    all: u64,
}

impl Ticks {
    /// Returns the times until now, if the system says.
    pub(crate) fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line of a text like `/proc/stat`.
    fn read(text: &str) -> Option<Self> {
        let words = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace();
        let ticks: Vec<u64> = words
            .take(8)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let &[.., stolen] = &ticks[..] else {
            return None;
        };
        (ticks.len() == 8).then(|| Self {
            stolen,
            all: ticks.iter().sum(),
        })
    }

    /// Returns the part of the time since `before` that was stolen.
    pub(crate) fn stolen_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|&all| all > 0)?;
        Some(self.stolen.checked_sub(before.stolen)? as f64 / all as f64)
    }
}

/// Returns the list of the threads of a processor's core, which is the same for all of them.
fn core(number: usize) -> Option<String> {
    let folder = format!("/sys/devices/system/cpu/cpu{number}/topology");
    fs::read_to_string(format!("{folder}/thread_siblings_list")).ok()
}

/// Returns the first processor, and the first one of another core or else the second one.
fn choose(usable: &[usize], core: impl Fn(usize) -> Option<String>) -> Option<(usize, usize)> {
    let (&client, others) = usable.split_first()?;
    let own = core(client);
    let apart = others.iter().find(|&&other| core(other) != own);
    Some((client, *apart.or(others.first())?))
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
    fn client_and_server_have_cores_of_their_own_where_there_are_several() {
        let threads = |number: usize| Some(format!("{}-{}", number & !1, number | 1));
        assert_eq!(choose(&[0, 1, 2, 3], threads), Some((0, 2)));
        assert_eq!(choose(&[1, 4, 5], threads), Some((1, 4)));
        assert_eq!(choose(&[2, 3], threads), Some((2, 3)));
        assert_eq!(choose(&[0, 1, 2], |_| None), Some((0, 1)));
        assert_eq!(choose(&[7], threads), None);
        assert_eq!(choose(&[], threads), None);
    }

    #[test]
    fn a_virtual_machine_and_what_it_was_robbed_of_are_known() {
        assert!(is_virtual(
            "processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n"
        ));
        let ticks = |text: &str| Ticks::read(text);
        let before = ticks("cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1\n").unwrap();
        let after = ticks("cpu  60 0 20 100 0 0 0 20 3 0\n").unwrap();
        assert_eq!(after.stolen_since(before), Some(0.1));
        assert_eq!(before.stolen_since(after), None);
        assert_eq!(before.stolen_since(before), None);
        assert_eq!(ticks("cpu  10 0 10\n"), None);
        assert_eq!(ticks(""), None);
    }

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
