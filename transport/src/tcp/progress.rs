//! How long something has waited for a peer.

use rdma::Time;

/// Bytes that a peer has to move to restart its timeout. They add up until the timeout expires. A peer
/// that moves fewer in that time is treated like one that moves none.
const ENOUGH: u64 = 16 << 10;

/// Something that waits for a peer: the rest of a record, or replies to be taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    since: Option<Time>,
    moved: u64,
}

impl Progress {
    /// Whether something `waits` now that so many bytes have `moved`.
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

    /// Since when something has waited, and the peer has done too little.
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
