//! The history of writes, from which the values that a read may return follow.
//!
//! The model is per slot: a range of a file that only one worker writes, always completely, one
//! write at a time. The content of a slot is one of its *versions*.

use std::collections::BTreeMap;

use nfs_binding::proto::{Stable, Verifier};

/// A slot: the number of its file, and its index in the file.
pub(crate) type SlotId = (u64, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The version is on stable storage, or cannot be lost for another reason.
    Stable,
    /// The write was acknowledged but is not stable: the server's verifier, and the number of the
    /// acknowledgement.
    Unstable(Verifier, u64),
    /// The write was not acknowledged, so its effect is unknown.
    Unknown,
}

#[derive(Debug)]
struct Slot {
    /// The versions that the slot may contain, oldest first. The first one is the content if no
    /// later one is.
    versions: Vec<(u64, Standing)>,
    /// The version that the slot is known to contain now.
    live: Option<u64>,
    /// The number of versions at the last power failure, or `None` if a later version is known to
    /// have been written.
    lost_at: Option<usize>,
    /// Whether a write was not acknowledged, so that it may still be executed at any time.
    doubtful: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            versions: vec![(0, Standing::Stable)],
            live: Some(0),
            lost_at: None,
            doubtful: false,
        }
    }
}

/// The history of all slots; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct History {
    slots: BTreeMap<SlotId, Slot>,
    next: u64,
    told: u64,
    /// The number of starts of the server.
    pub(crate) lives: u64,
    /// The number of power failures.
    pub(crate) losses: u64,
}

impl History {
    /// Returns a number that no file, write or name has.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn slot(&mut self, id: SlotId) -> &mut Slot {
        self.slots.entry(id).or_default()
    }

    /// Records the start of a write. Returns its number.
    pub(crate) fn write(&mut self, id: SlotId) -> u64 {
        let number = self.number();
        let slot = self.slot(id);
        slot.versions.push((number, Standing::Unknown));
        slot.live = None;
        // In doubt until the acknowledgement, because the client may crash before that.
        slot.doubtful = true;
        number
    }

    /// Records the acknowledgement of the last write. `losses` is the number of power failures when
    /// it began.
    pub(crate) fn written(&mut self, id: SlotId, stable: Stable, verifier: Verifier, losses: u64) {
        self.told += 1;
        let (told, same) = (self.told, self.losses == losses);
        let slot = self.slot(id);
        slot.doubtful = false;
        slot.lost_at = None;
        let Some(last) = slot.versions.last_mut() else {
            return;
        };
        let number = last.0;
        if stable == Stable::Unstable {
            last.1 = Standing::Unstable(verifier, told);
            // If the power failed meanwhile, it may have failed after the write.
            slot.live = same.then_some(number);
        } else {
            slot.versions = vec![(number, Standing::Stable)];
            slot.live = Some(number);
        }
    }

    /// Returns the number of acknowledgements so far, for [`History::committed`].
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// Records the acknowledgement of a COMMIT. Writes of the file that were acknowledged with the
    /// same verifier before it began are on stable storage.
    pub(crate) fn committed(&mut self, file: u64, verifier: Verifier, began: u64) {
        let of_file = self.slots.range_mut((file, 0)..(file + 1, 0));
        for slot in of_file.map(|(_, slot)| slot) {
            let covered = |standing: &Standing| {
                matches!(standing, Standing::Unstable(with, told)
                    if *with == verifier && *told <= began)
            };
            let last = slot.versions.iter().rposition(|(_, s)| covered(s));
            if let Some(last) = last {
                slot.versions.drain(..last);
                slot.versions[0].1 = Standing::Stable;
            }
        }
    }

    /// Returns whether the last write of a slot is on stable storage, so that it need not be
    /// repeated.
    pub(crate) fn is_stable(&self, id: SlotId) -> bool {
        let last = self.slots.get(&id).and_then(|slot| slot.versions.last());
        last.is_none_or(|(_, standing)| *standing == Standing::Stable)
    }

    /// Returns whether a write of the slot may still be executed at any time.
    pub(crate) fn is_doubtful(&self, id: SlotId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.doubtful)
    }

    /// Records a power failure.
    pub(crate) fn power_failed(&mut self) {
        self.losses += 1;
        for slot in self.slots.values_mut() {
            if slot.versions.len() > 1 {
                slot.live = None;
                slot.lost_at = Some(slot.versions.len());
            }
        }
    }

    /// Checks the result of reading a slot while no write of it is outstanding. `losses` is the
    /// number of power failures when the read began.
    ///
    /// # Errors
    /// The slot cannot contain this version.
    pub(crate) fn read(&mut self, id: SlotId, got: Option<u64>, losses: u64) -> Result<(), String> {
        let same = self.losses == losses;
        let slot = self.slot(id);
        let found = got.filter(|got| slot.versions.iter().any(|(number, _)| number == got));
        let Some(found) = found else {
            let may: Vec<u64> = slot.versions.iter().map(|version| version.0).collect();
            let got = got.map_or("a mixture".to_owned(), |got| format!("write {got}"));
            return Err(format!("slot {id:?} holds {got}; it may hold {may:?}"));
        };
        match slot.live {
            Some(live) if live != found && same => {
                Err(format!("slot {id:?} holds write {found}, and not {live}"))
            }
            None if same && !slot.doubtful => {
                slot.live = Some(found);
                if slot.lost_at == Some(slot.versions.len()) {
                    // The content after a power failure is on stable storage.
                    slot.versions = vec![(found, Standing::Stable)];
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns all slots, for the final check.
    pub(crate) fn slots(&self) -> Vec<SlotId> {
        self.slots.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: SlotId = (1, 0);
    const FIRST: Verifier = [1; 8];
    const SECOND: Verifier = [2; 8];

    fn written(history: &mut History, stable: Stable) -> u64 {
        let number = history.write(SLOT);
        history.written(SLOT, stable, FIRST, history.losses);
        number
    }

    #[test]
    fn a_stable_write_survives_and_an_unstable_one_may() {
        let mut history = History::default();
        let stable = written(&mut history, Stable::FileSync);
        let unstable = written(&mut history, Stable::Unstable);
        assert!(history.read(SLOT, Some(stable), 0).is_err());
        assert!(history.read(SLOT, Some(unstable), 0).is_ok());
        history.power_failed();
        assert!(history.read(SLOT, Some(0), 1).is_err(), "it was stable");
        assert!(history.read(SLOT, None, 1).is_err());
        assert!(history.read(SLOT, Some(stable), 1).is_ok());
        assert!(
            history.read(SLOT, Some(unstable), 1).is_err(),
            "it was gone"
        );
    }

    #[test]
    fn a_commit_covers_what_was_told_before_it_with_its_verifier() {
        for (verifier, before, survives) in [
            (FIRST, true, true),
            (SECOND, true, false),
            (FIRST, false, false),
        ] {
            let mut history = History::default();
            let began = history.told();
            written(&mut history, Stable::Unstable);
            let began = if before { history.told() } else { began };
            history.committed(1, verifier, began);
            assert_eq!(history.is_stable(SLOT), survives);
            history.power_failed();
            assert_eq!(history.read(SLOT, Some(0), 1).is_err(), survives);
        }
    }

    #[test]
    fn a_write_that_was_not_acknowledged_may_be_there_or_not() {
        let mut history = History::default();
        let stable = written(&mut history, Stable::FileSync);
        let lost = history.write(SLOT);
        assert!(history.is_doubtful(SLOT));
        assert!(history.read(SLOT, Some(stable), 0).is_ok());
        assert!(history.read(SLOT, Some(lost), 0).is_ok());
        assert!(history.read(SLOT, Some(stable), 0).is_ok(), "not yet");
        assert!(history.read(SLOT, Some(0), 0).is_err());
    }
}
