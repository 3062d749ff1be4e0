//! Registrations that the system has refused, so that it is not asked again at once.
//!
//! Connections that wait for memory of the pool try again every millisecond. As long as the process may lock
//! no more memory, each attempt would be another system call that fails.

use std::io;
use std::time::Duration;

use rdma::Time;

/// Time after a first refusal in which the system is not asked again. It doubles with each further one.
const FIRST: Duration = Duration::from_millis(1);
/// Maximum of that time.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Length in bytes of the shortest registration that was refused.
    len: usize,
    pause: Duration,
    until: Time,
}

/// The registrations that were refused since memory was deregistered last, or since one as long succeeded.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<Refusal>,
}

impl Refusals {
    /// Returns whether a registration of `len` bytes would only be refused again.
    pub(super) fn cover(&self, len: usize, now: Time) -> bool {
        self.last
            .is_some_and(|last| len >= last.len && now < last.until)
    }

    /// Records that a registration of `len` bytes was refused. Has no effect unless the error says that
    /// memory is short.
    pub(super) fn refused(&mut self, len: usize, error: &io::Error, now: Time) {
        use io::ErrorKind::{OutOfMemory, WouldBlock};
        if !matches!(error.kind(), OutOfMemory | WouldBlock) {
            return;
        }
        let (len, pause) = match self.last {
            None => (len, FIRST),
            Some(last) => (len.min(last.len), (last.pause * 2).min(LONGEST)),
        };
        let until = now + pause;
        self.last = Some(Refusal { len, pause, until });
    }

    /// Records that a registration of `len` bytes succeeded.
    pub(super) fn succeeded(&mut self, len: usize) {
        if self.last.is_some_and(|last| len >= last.len) {
            self.last = None;
        }
    }

    /// Records that memory was deregistered.
    pub(super) fn freed(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_system_is_asked_again_after_ever_longer_pauses() {
        let (mut refusals, mut now) = (Refusals::default(), Time::ZERO);
        let short = io::Error::from(Errno::NOMEM);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            refusals.refused(100, &short, now);
            let pause = refusals.last.unwrap().pause;
            assert!(refusals.cover(100, now) && refusals.cover(101, now));
            assert!(!refusals.cover(99, now), "there may be room for less");
            now = now + pause;
            assert!(!refusals.cover(100, now));
            pauses.push(pause.as_millis());
        }
        assert_eq!(pauses[..3], [1, 2, 4]);
        assert_eq!(pauses[10..], [1000, 1000]);
    }

    #[test]
    fn a_refusal_is_forgotten_when_there_may_be_room() {
        let (mut refusals, now) = (Refusals::default(), Time::ZERO);
        refusals.refused(100, &Errno::AGAIN.into(), now);
        refusals.refused(50, &Errno::NOMEM.into(), now);
        refusals.refused(200, &Errno::NOMEM.into(), now);
        refusals.succeeded(49);
        assert!(refusals.cover(50, now) && !refusals.cover(49, now));
        refusals.succeeded(50);
        assert!(!refusals.cover(usize::MAX, now));
        refusals.refused(100, &Errno::NOMEM.into(), now);
        refusals.freed();
        assert!(!refusals.cover(100, now));
        refusals.refused(100, &Errno::INVAL.into(), now);
        assert!(!refusals.cover(100, now), "more memory would not help");
    }
}
