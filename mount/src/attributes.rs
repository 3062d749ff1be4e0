//! Cached attributes: how long they are trusted, and what a change of them means.

use std::time::{Duration, Instant};

use nfs_binding::proto::{Attributes, NfsTime, WccAttributes};

/// The attributes that tell whether the content of an object has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) size: u64,
    pub(crate) mtime: NfsTime,
    pub(crate) ctime: NfsTime,
}

impl Version {
    /// Returns whether the data may differ. A new ctime alone comes from a change of attributes.
    pub(crate) fn data_differs(&self, other: &Self) -> bool {
        (self.size, self.mtime) != (other.size, other.mtime)
    }
}

impl From<&Attributes> for Version {
    fn from(it: &Attributes) -> Self {
        Self {
            size: it.size,
            mtime: it.mtime,
            ctime: it.ctime,
        }
    }
}

impl From<&WccAttributes> for Version {
    fn from(it: &WccAttributes) -> Self {
        Self {
            size: it.size,
            mtime: it.mtime,
            ctime: it.ctime,
        }
    }
}

/// The outcome of comparing new attributes of an object with those in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    /// The new attributes were ignored: they are older than the cached ones, or their order is unknown.
    /// In the second case the cached ones were expired.
    Older,
    /// Nothing of [`Version`] has changed.
    Same,
    /// Something has changed.
    Changed {
        /// The former version.
        from: Version,
    },
}

/// The attributes of an object, as the server sent them last.
#[derive(Debug)]
pub(crate) struct Cached {
    attributes: Attributes,
    /// The serial number of the call that brought them. Replies arrive in any order.
    call: u64,
    /// When they were fetched; `None` once they are known to be out of date.
    fetched: Option<Instant>,
    /// When they were last found changed, or the trust was last extended.
    since: Instant,
    trust: Duration,
}

impl Cached {
    /// Creates an entry from the first attributes, which `call` brought.
    pub(crate) fn new(attributes: Attributes, call: u64, now: Instant, min: Duration) -> Self {
        Self {
            attributes,
            call,
            fetched: Some(now),
            since: now,
            trust: min,
        }
    }

    /// Returns the attributes, which may be out of date.
    pub(crate) fn get(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the present version.
    pub(crate) fn version(&self) -> Version {
        Version::from(&self.attributes)
    }

    /// Returns how much longer the attributes are trusted: zero if they have to be fetched again.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        let Some(fetched) = self.fetched else {
            return Duration::ZERO;
        };
        (fetched + self.trust).saturating_duration_since(now)
    }

    /// Returns how long ago the attributes were fetched: for ever if they are known to be out of
    /// date.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        let since = |fetched| now.saturating_duration_since(fetched);
        self.fetched.map_or(Duration::MAX, since)
    }

    /// Returns how long the attributes are known not to have changed.
    pub(crate) fn unchanged_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Moves the time at which the attributes were fetched into the past.
    #[cfg(test)]
    pub(crate) fn age_by(&mut self, time: Duration) {
        self.fetched = self.fetched.and_then(|fetched| fetched.checked_sub(time));
    }

    /// Moves the time of the last change into the past.
    #[cfg(test)]
    pub(crate) fn unchanged_since_by(&mut self, time: Duration) {
        self.since = self.since.checked_sub(time).unwrap();
    }

    /// Makes the next use fetch the attributes.
    pub(crate) fn expire(&mut self) {
        self.fetched = None;
    }

    /// Returns whether the attributes are known to be out of date.
    pub(crate) fn is_expired(&self) -> bool {
        self.fetched.is_none()
    }

    /// Stores the attributes that `call` brought. Their order relative to the cached ones is unknown if
    /// a modification of the object overlapped the call (`ordered` is false), or if a later call has
    /// already brought attributes. Then the later ctime decides. If the ctimes are equal (clocks tick
    /// slowly) and the attributes differ, the new ones are ignored and the cached ones expire. If they are
    /// the same, cached ones that were expired stay so.
    ///
    /// The trust starts at `min`, and doubles up to `max` whenever it has passed without a change.
    pub(crate) fn learn(
        &mut self,
        attributes: Attributes,
        (call, ordered): (u64, bool),
        now: Instant,
        (min, max): (Duration, Duration),
    ) -> Learnt {
        if !ordered || call < self.call {
            if attributes.ctime < self.attributes.ctime {
                return Learnt::Older;
            }
            let same = Version::from(&attributes) == self.version();
            // Expired ones may be from before a modification. The same attributes once more are no newer.
            if attributes.ctime == self.attributes.ctime && (!same || self.is_expired()) {
                self.expire();
                return Learnt::Older;
            }
        }
        let from = self.version();
        let changed = from != Version::from(&attributes);
        if changed {
            self.trust = min;
            self.since = now;
        } else if now.saturating_duration_since(self.since) >= self.trust {
            self.trust = (self.trust * 2).clamp(min, max);
            self.since = now;
        }
        self.attributes = attributes;
        self.call = self.call.max(call);
        self.fetched = Some(now);
        match changed {
            true => Learnt::Changed { from },
            false => Learnt::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(10));

    fn attributes(size: u64, ctime: u32) -> Attributes {
        Attributes {
            size,
            ctime: NfsTime {
                seconds: ctime,
                nanos: 0,
            },
            ..Attributes::default()
        }
    }

    #[test]
    fn trust_doubles_while_nothing_changes_and_falls_back_with_a_change() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let mut cached = Cached::new(attributes(1, 1), 1, begin, TIMES.0);
        assert_eq!(cached.remaining(at(2)), Duration::from_secs(1));
        assert_eq!(cached.remaining(at(4)), Duration::ZERO);
        assert_eq!(
            cached.learn(attributes(1, 1), (2, true), at(4), TIMES),
            Learnt::Same
        );
        assert_eq!(cached.remaining(at(4)), Duration::from_secs(6));
        // Fetched again too soon to say more about how often it changes.
        cached.learn(attributes(1, 1), (3, true), at(5), TIMES);
        assert_eq!(cached.remaining(at(5)), Duration::from_secs(6));
        cached.learn(attributes(1, 1), (4, true), at(30), TIMES);
        assert_eq!(cached.remaining(at(30)), Duration::from_secs(10));
        let learnt = cached.learn(attributes(2, 2), (5, true), at(31), TIMES);
        assert!(matches!(learnt, Learnt::Changed { from } if from.size == 1));
        assert_eq!(cached.remaining(at(31)), Duration::from_secs(3));
        cached.expire();
        assert_eq!(cached.remaining(at(31)), Duration::ZERO);
    }

    #[test]
    fn a_late_reply_does_not_bring_old_attributes_back() {
        let now = Instant::now();
        let mut cached = Cached::new(attributes(5, 5), 7, now, TIMES.0);
        assert_eq!(
            cached.learn(attributes(4, 4), (6, true), now, TIMES),
            Learnt::Older
        );
        assert_eq!(cached.get().size, 5);
        // The server may have executed the earlier call later; its clock says so.
        let learnt = cached.learn(attributes(6, 6), (6, true), now, TIMES);
        assert!(matches!(learnt, Learnt::Changed { .. }));
        assert_eq!(cached.get().size, 6);
    }

    /// A GETATTR is in flight with a WRITE; both replies have the same ctime.
    #[test]
    fn attributes_whose_order_is_unknown_are_fetched_again() {
        let now = Instant::now();
        let mut cached = Cached::new(attributes(5, 5), 7, now, TIMES.0);
        let learnt = cached.learn(attributes(4, 5), (8, false), now, TIMES);
        assert_eq!((learnt, cached.get().size), (Learnt::Older, 5));
        assert_eq!(cached.remaining(now), Duration::ZERO);
        cached.learn(attributes(6, 5), (9, true), now, TIMES);
        assert_eq!((cached.get().size, cached.remaining(now)), (6, TIMES.0));
        // The same once more says nothing else.
        cached.learn(attributes(6, 5), (8, false), now, TIMES);
        assert_eq!(cached.remaining(now), TIMES.0);
    }

    /// A RENAME, whose reply has no attributes of what it moves, is answered before a GETATTR that the server
    /// executed earlier.
    #[test]
    fn a_late_reply_does_not_renew_what_a_modification_has_expired() {
        let now = Instant::now();
        let mut cached = Cached::new(attributes(5, 5), 7, now, TIMES.0);
        cached.expire();
        let learnt = cached.learn(attributes(5, 5), (8, false), now, TIMES);
        assert_eq!(
            (learnt, cached.remaining(now)),
            (Learnt::Older, Duration::ZERO)
        );
        // With a later ctime it is from after some modification, and tells more than is known.
        cached.learn(attributes(5, 6), (9, false), now, TIMES);
        assert_eq!(cached.remaining(now), TIMES.0);
    }
}
