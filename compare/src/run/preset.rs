//! Presets of `--run` that need no other program. Each does the same in every run, and checks all
//! that it reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Work that this program does itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Preset {
    /// Many small files are read, copied and removed.
    Tree,
    /// Blocks of a file are read and written in random order, with `fsync` in between.
    Random,
    /// A log of transactions, each of which is synced, beside a table that is written at times.
    Log,
}

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// The preparation, which is not timed.
    Prepare,
    /// The timed part.
    Run,
}

impl Preset {
    /// All presets.
    pub(crate) const ALL: [Self; 3] = [Self::Tree, Self::Random, Self::Log];

    /// Returns the name in options and rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Random => "random",
            Self::Log => "log",
        }
    }

    /// Does a part of the work in the directory `at`.
    ///
    /// # Errors
    /// The error of the operating system, or data that is not what was written.
    pub(crate) fn perform(self, phase: Phase, at: &Path) -> io::Result<()> {
        match (self, phase) {
            (Self::Tree, Phase::Prepare) => tree::prepare(at),
            (Self::Tree, Phase::Run) => tree::run(at),
            (Self::Random, Phase::Prepare) => random::prepare(at),
            (Self::Random, Phase::Run) => random::run(at),
            (Self::Log, Phase::Prepare) => log::prepare(at),
            (Self::Log, Phase::Run) => log::run(at),
        }
    }
}

/// A generator of numbers that are the same in every run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Returns `len` bytes that depend on a seed.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| numbers.next().to_le_bytes());
    words.take(len).collect()
}

fn differs(what: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("{what} is not what was written"),
    )
}

mod tree {
    use super::*;

    const DIRECTORIES: usize = 4;
    const FILES: usize = 15;

    fn size(file: usize) -> usize {
        // Most are small, as in a tree of source text.
        300 + file * file * 90
    }

    fn content(directory: usize, file: usize) -> Vec<u8> {
        bytes((directory * 100 + file) as u64, size(file))
    }

    pub(super) fn prepare(at: &Path) -> io::Result<()> {
        for directory in 0..DIRECTORIES {
            let folder = at.join(format!("from/d{directory}"));
            fs::create_dir_all(&folder)?;
            for file in 0..FILES {
                fs::write(folder.join(format!("f{file}")), content(directory, file))?;
            }
        }
        Ok(())
    }

    /// Copies a tree as `cp -r` does, and removes it.
    pub(super) fn run(at: &Path) -> io::Result<()> {
        let (from, to) = (at.join("from"), at.join("to"));
        fs::create_dir(&to)?;
        let mut copied = 0;
        for directory in fs::read_dir(&from)? {
            let name = directory?.file_name();
            let (from, to) = (from.join(&name), to.join(&name));
            fs::create_dir(&to)?;
            for entry in fs::read_dir(&from)? {
                let entry = entry?;
                let data = fs::read(entry.path())?;
                if entry.metadata()?.len() != data.len() as u64 {
                    return Err(differs("the size of a file"));
                }
                let copy = to.join(entry.file_name());
                fs::write(&copy, &data)?;
                fs::set_permissions(&copy, entry.metadata()?.permissions())?;
                copied += 1;
            }
        }
        if copied != DIRECTORIES * FILES {
            return Err(differs("the number of files"));
        }
        check(&to)?;
        fs::remove_dir_all(from)
    }

    fn check(tree: &Path) -> io::Result<()> {
        for directory in 0..DIRECTORIES {
            for file in 0..FILES {
                let path = tree.join(format!("d{directory}/f{file}"));
                if fs::read(&path)? != content(directory, file) {
                    return Err(differs(&path.display().to_string()));
                }
            }
        }
        Ok(())
    }
}

mod random {
    use super::*;

    const BLOCK: usize = 4096;
    const BLOCKS: usize = 2048;
    const COUNT: usize = 320;
    /// The number of writes between two `fsync`.
    const SYNC_EVERY: usize = 4;

    pub(super) fn prepare(at: &Path) -> io::Result<()> {
        let mut file = File::create(at.join("blocks"))?;
        for block in 0..BLOCKS {
            file.write_all(&bytes(block as u64, BLOCK))?;
        }
        file.sync_all()
    }

    pub(super) fn run(at: &Path) -> io::Result<()> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(at.join("blocks"))?;
        let mut seeds: Vec<u64> = (0..BLOCKS as u64).collect();
        let mut numbers = Numbers::new(1);
        let mut written = 0;
        let mut found = vec![0; BLOCK];
        for _ in 0..COUNT {
            let block = numbers.below(BLOCKS);
            let offset = (block * BLOCK) as u64;
            if numbers.below(2) == 0 {
                file.read_exact_at(&mut found, offset)?;
                if found != bytes(seeds[block], BLOCK) {
                    return Err(differs(&format!("block {block}")));
                }
                continue;
            }
            seeds[block] = numbers.next();
            file.write_all_at(&bytes(seeds[block], BLOCK), offset)?;
            written += 1;
            if written % SYNC_EVERY == 0 {
                file.sync_all()?;
            }
        }
        file.sync_all()
    }
}

mod log {
    use super::*;

    const TRANSACTIONS: usize = 150;
    /// The number of transactions after which the table is written and the log begins anew.
    const CHECKPOINT: usize = 30;
    const PAGE: usize = 4096;
    const PAGES: usize = 256;

    pub(super) fn prepare(at: &Path) -> io::Result<()> {
        let table = File::create(at.join("table"))?;
        table.write_all_at(&vec![0; PAGE * PAGES], 0)?;
        table.sync_all()
    }

    pub(super) fn run(at: &Path) -> io::Result<()> {
        let (log_path, old) = (at.join("log"), at.join("log.old"));
        let table = OpenOptions::new()
            .read(true)
            .write(true)
            .open(at.join("table"))?;
        let mut numbers = Numbers::new(2);
        let mut log = File::create(&log_path)?;
        // The pages that were changed since the last checkpoint, with the seeds of their content.
        let mut changed: Vec<(usize, u64)> = Vec::new();
        for transaction in 1..=TRANSACTIONS {
            let page = numbers.below(PAGES);
            let seed = numbers.next();
            changed.retain(|(other, _)| *other != page);
            changed.push((page, seed));
            // As large as the change is, and not aligned.
            log.write_all(&bytes(seed, 120 + numbers.below(900)))?;
            log.sync_data()?;
            if transaction % CHECKPOINT > 0 {
                continue;
            }
            for &(page, seed) in &changed {
                table.write_all_at(&bytes(seed, PAGE), (page * PAGE) as u64)?;
            }
            table.sync_data()?;
            let mut found = vec![0; PAGE];
            for (page, seed) in changed.drain(..) {
                table.read_exact_at(&mut found, (page * PAGE) as u64)?;
                if found != bytes(seed, PAGE) {
                    return Err(differs(&format!("page {page}")));
                }
            }
            fs::rename(&log_path, &old)?;
            log = File::create(&log_path)?;
            fs::remove_file(&old)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_work_in_any_directory_and_notice_what_is_wrong() {
        for preset in Preset::ALL {
            let dir = tempfile::tempdir().unwrap();
            let perform = |phase| preset.perform(phase, dir.path());
            assert!(
                perform(Phase::Run).is_err(),
                "{preset:?} needs what it prepares"
            );
            fs::remove_dir_all(dir.path().join("to")).ok();
            perform(Phase::Prepare).unwrap();
            perform(Phase::Run).unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        Preset::Random.perform(Phase::Prepare, dir.path()).unwrap();
        fs::write(dir.path().join("blocks"), vec![0; 8 << 20]).unwrap();
        let wrong = Preset::Random.perform(Phase::Run, dir.path()).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidData);
        Preset::Tree.perform(Phase::Prepare, dir.path()).unwrap();
        fs::write(dir.path().join("from/d3/f5"), "else").unwrap();
        let wrong = Preset::Tree.perform(Phase::Run, dir.path()).unwrap_err();
        assert!(wrong.to_string().contains("d3/f5"), "{wrong}");
    }
}
