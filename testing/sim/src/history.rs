//! What clients were told of their writes, and what may therefore be read.
//!
//! The model is per slot: a place in a file that one worker alone writes, whole, one write at a
//! time. What it holds is one of the slot's *versions*.

use std::collections::BTreeMap;

use nfs_binding::proto::{Stable, Verifier};

/// A slot: its file's number, and its number in the file.
pub(crate) type SlotId = (u64, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// On stable storage, or as good as.
    Stable,
    /// Acknowledged, not stable, in a server that had this verifier, as the `n`th thing that was
    /// told.
    Unstable(Verifier, u64),
    /// Not acknowledged.
    Unknown,
}

#[derive(Debug)]
struct Slot {
    /// What it may hold, the oldest first. The first is what it holds if nothing after that is.
    versions: Vec<(u64, Standing)>,
    /// What it is known to hold now.
    live: Option<u64>,
    /// Versions there were when the power failed, and nothing is known to have come since.
    lost_at: Option<usize>,
    /// A write of it was not acknowledged, and may be executed at any time to come.
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct History {
    slots: BTreeMap<SlotId, Slot>,
    next: u64,
    told: u64,
    /// Starts of the server.
    pub(crate) lives: u64,
    /// Power failures.
    pub(crate) losses: u64,
}

impl History {
    /// A number that no file, write or name has.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn slot(&mut self, id: SlotId) -> &mut Slot {
        self.slots.entry(id).or_default()
    }

    /// A write begins. Returns its number.
    pub(crate) fn write(&mut self, id: SlotId) -> u64 {
        let number = self.number();
        let slot = self.slot(id);
        slot.versions.push((number, Standing::Unknown));
        slot.live = None;
        // Until it is acknowledged: its client may not live to see that.
        slot.doubtful = true;
        number
    }

    /// The write that began last is acknowledged. `losses`: power failures when it began.
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
            // If the power failed meanwhile, it may have done so after the write.
            slot.live = same.then_some(number);
        } else {
            slot.versions = vec![(number, Standing::Stable)];
            slot.live = Some(number);
        }
    }

    /// What was told up to now; for [`History::committed`].
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// A COMMIT of a file is acknowledged. What was acknowledged before it began, with the same
    /// verifier, is on stable storage.
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

    /// Whether the last write of a slot needs to be written again before it can be relied upon.
    pub(crate) fn is_stable(&self, id: SlotId) -> bool {
        let last = self.slots.get(&id).and_then(|slot| slot.versions.last());
        last.is_none_or(|(_, standing)| *standing == Standing::Stable)
    }

    /// Whether a write of it may be executed at any time to come.
    pub(crate) fn is_doubtful(&self, id: SlotId) -> bool {
        self.slots.get(&id).is_some_and(|slot| slot.doubtful)
    }

    /// The power failed.
    pub(crate) fn power_failed(&mut self) {
        self.losses += 1;
        for slot in self.slots.values_mut() {
            if slot.versions.len() > 1 {
                slot.live = None;
                slot.lost_at = Some(slot.versions.len());
            }
        }
    }

    /// A slot was read, with no write of it under way. `losses`: power failures when the read
    /// began.
    ///
    /// # Errors
    /// It cannot hold that.
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
                    // What a power failure left is what is on stable storage.
                    slot.versions = vec![(found, Standing::Stable)];
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Every slot, for the last look.
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
