//! The samples of a mount.

use std::fmt;
use std::time::{Duration, Instant};

use nfs_mount::{MountStatistics, RequestKind};

use crate::families::{
    CLIENT_CALLS, CLIENT_MESSAGES, CLIENT_OVERDUE, CLIENT_PENDING, CLIENT_RECONNECTS,
    CLIENT_RETRANSMISSIONS, CLIENT_STRAY, CLIENT_TIMES, LOCK_WAITS, MOUNT_ATTRIBUTES, MOUNT_COPIED,
    MOUNT_NAMES, MOUNT_OBJECTS, MOUNT_OPEN, MOUNT_READ, MOUNT_REQUESTS, MOUNT_SILENT,
    MOUNT_UNSAVED, MOUNT_UNSAVED_FILES, MOUNT_UNSAVED_LIMIT, MOUNT_WRITTEN, START,
};
use crate::samples::Samples;
use crate::{calls, transport};

/// The time that a mount has to answer.
const WITHIN: Duration = Duration::from_secs(1);
/// The minimum age of statistics at which the mount is asked again.
const FRESH: Duration = Duration::from_millis(100);

/// The statistics of a mount, which is asked for them.
pub struct Asking {
    /// Returns the answer of the mount, if there is one within a time.
    ask: Box<dyn FnMut(Duration) -> Option<MountStatistics> + Send>,
    asked: Option<Instant>,
    last: Option<MountStatistics>,
    silent: bool,
}

impl Asking {
    /// Returns the statistics of a mount, which `ask` asks for an answer within a time
    /// ([`nfs_mount::StatisticsHandle::ask`]).
    #[must_use]
    pub fn new(ask: impl FnMut(Duration) -> Option<MountStatistics> + Send + 'static) -> Self {
        Self {
            ask: Box::new(ask),
            asked: None,
            last: None,
            silent: false,
        }
    }

    /// Returns the statistics at present, or those of a moment ago, and false. If the mount does not answer in
    /// time, those of its last answer, and true; or `None` if it has never answered.
    pub fn get(&mut self) -> Option<(&MountStatistics, bool)> {
        if self.asked.is_none_or(|at| at.elapsed() >= FRESH) {
            let answer = (self.ask)(WITHIN);
            self.silent = answer.is_none();
            self.last = answer.or_else(|| self.last.take());
            self.asked = Some(Instant::now());
        }
        Some((self.last.as_ref()?, self.silent))
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

/// Returns the samples of a mount that was made at `started`, in seconds since 1970. `silent` says that it has
/// not answered in time, so that `found` is of earlier.
#[must_use]
pub fn samples(found: &MountStatistics, silent: bool, started: u64) -> Samples {
    let mut samples = Samples::default();
    samples.add(&START, &[], started);
    samples.add(&MOUNT_SILENT, &[], silent.into());
    calls::add(
        &mut samples,
        (&CLIENT_CALLS, &CLIENT_TIMES),
        &found.procedures,
    );
    let client = &found.client;
    samples.add(&CLIENT_PENDING, &[], found.pending_calls);
    samples.add(&CLIENT_RETRANSMISSIONS, &[], client.retransmissions);
    samples.add(&CLIENT_RECONNECTS, &[], client.reconnects);
    samples.add(&CLIENT_OVERDUE, &[], client.overdue);
    samples.add(&CLIENT_STRAY, &[], client.stray_replies);
    samples.add(&CLIENT_MESSAGES, &["sent"], client.bytes_sent);
    samples.add(&CLIENT_MESSAGES, &["received"], client.bytes_received);
    transport::add(&mut samples, &found.transport);
    for kind in RequestKind::ALL {
        samples.add(&MOUNT_REQUESTS, &[kind.name()], found.requests(*kind));
    }
    samples.add(&MOUNT_NAMES, &["memory"], found.names_known);
    samples.add(&MOUNT_NAMES, &["server"], found.names_asked);
    samples.add(&MOUNT_ATTRIBUTES, &["memory"], found.attributes_known);
    samples.add(&MOUNT_ATTRIBUTES, &["server"], found.attributes_asked);
    samples.add(&MOUNT_READ, &["read_ahead"], found.read_ahead);
    samples.add(&MOUNT_READ, &["written"], found.read_back);
    samples.add(&MOUNT_READ, &["server"], found.read_fetched);
    samples.add(&MOUNT_WRITTEN, &[], found.written);
    samples.add(&MOUNT_UNSAVED, &[], found.unsaved.0);
    samples.add(&MOUNT_UNSAVED_LIMIT, &[], found.unsaved.1);
    samples.add(&MOUNT_UNSAVED_FILES, &[], found.unsaved_files);
    samples.add(&MOUNT_OBJECTS, &[], found.objects);
    samples.add(&MOUNT_OPEN, &[], found.open_files);
    samples.add(&MOUNT_COPIED, &[], found.copied);
    for (lock, times) in rpcrdma_host::contended_locks() {
        samples.add(&LOCK_WAITS, &[lock], times);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a mount that did not answer was shown as zeros, or as it had been.
    #[test]
    fn statistics_of_a_mount_that_does_not_answer_are_none_or_marked_as_old() {
        let answer = |objects| MountStatistics {
            objects,
            ..MountStatistics::default()
        };
        let mut answers = [None, Some(answer(7)), None].into_iter();
        let mut asking = Asking::new(move |_| answers.next().flatten());
        let mut next = || {
            asking.asked = None;
            asking.get().map(|(found, silent)| (found.objects, silent))
        };
        assert_eq!(next(), None);
        assert_eq!(next(), Some((7, false)));
        assert_eq!(next(), Some((7, true)));
        for (silent, shown) in [(false, 0), (true, 1)] {
            let samples = samples(&answer(7), silent, 1);
            assert_eq!(samples.number(&MOUNT_SILENT, &[]), Some(shown));
        }
    }

    #[test]
    fn a_mount_is_asked_ten_times_a_second_at_most_also_if_it_is_silent() {
        let mut asking = Asking::new(|_| None);
        assert!(asking.get().is_none());
        let first = asking.asked;
        asking.asked = Some(Instant::now() + FRESH);
        let later = asking.asked;
        assert!(asking.get().is_none());
        assert!(first.is_some() && asking.asked == later);
    }
}
