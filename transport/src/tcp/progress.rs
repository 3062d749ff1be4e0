//! Measures how long a connection has waited for its peer.

use rdma::Time;

/// The number of bytes that a peer has to transfer to restart its time-out. They add up until the
/// time-out expires. A peer that transfers fewer in that time is treated like one that transfers
/// none.
const ENOUGH: u64 = 16 << 10;

/// The progress of something that depends on the peer: receiving the rest of a record, or sending
/// replies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    since: Option<Time>,
    moved: u64,
}

impl Progress {
    /// Updates the state: whether something `waits` for the peer now, and how many bytes have
    /// `moved` since the last call.
    pub(super) fn note(&mut self, waits: bool, moved: u64, now: Time) {
        if !waits {
            *self = Self::default();
            return;
        }
        self.moved += moved;
        if self.since.is_none() || self.moved >= ENOUGH {
            self.since = Some(now);
            self.moved = 0;
        }
    }

    /// Returns since when the peer has made too little progress, or `None` if nothing waits.
    pub(super) fn since(&self) -> Option<Time> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_trickle_is_no_progress_and_a_stream_is() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        progress.note(true, 100, at(1));
        for second in 2..100 {
            progress.note(true, 100, at(second));
            assert_eq!(progress.since(), Some(at(1)));
        }
        progress.note(true, ENOUGH, at(100));
        assert_eq!(progress.since(), Some(at(100)));
        progress.note(false, 0, at(101));
        assert_eq!(progress.since(), None);
        progress.note(true, 0, at(102));
        assert_eq!(progress.since(), Some(at(102)));
    }
}
