//! The way to an object of which only its inode number is known: an index of the whole export.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::host::{self, OpenFiles};
use crate::fs::FsResult;

/// Entries that are indexed: 16 bytes each. In a larger export, what comes after them is not found
/// by its number alone.
const MAX_ENTRIES: usize = 4 << 20;
/// Directories within each other that are indexed; each holds a descriptor during the scan.
const MAX_DEPTH: usize = 128;
/// An index is used for at least so long before another is made.
const MIN_AGE: Duration = Duration::from_secs(10);
/// And for at least so many times as long as it took to make.
const AGE_FACTOR: u32 = 20;

/// Which directory each inode number was in.
pub(super) struct Index {
    /// Inode numbers and the directories (by their place in `directories`) they were in, sorted.
    entries: Vec<(u64, u32)>,
    /// Inode number and parent of each directory. The first is the root, its own parent.
    directories: Vec<(u64, u32)>,
    made: Instant,
    took: Duration,
}

impl Index {
    /// Reads every directory of the export, but looks at no file.
    pub(super) fn new(files: &OpenFiles, root: BorrowedFd<'_>, ino: u64) -> FsResult<Self> {
        let started = Instant::now();
        let mut index = Self {
            entries: Vec::new(),
            directories: vec![(ino, 0)],
            made: started,
            took: Duration::ZERO,
        };
        index.read(files, root, 0, 0)?;
        index.entries.sort_unstable();
        index.made = Instant::now();
        index.took = index.made - started;
        tracing::info!(
            entries = index.entries.len(),
            directories = index.directories.len(),
            took = ?index.took,
            "indexed an export to find a file by its handle",
        );
        Ok(index)
    }

    fn read(
        &mut self,
        files: &OpenFiles,
        dir: BorrowedFd<'_>,
        at: u32,
        depth: usize,
    ) -> FsResult<()> {
        let opened = files.reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut below = Vec::new();
        host::list(&opened, 0, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return Ok(true);
            }
            self.entries.push((entry.ino, at));
            if entry.maybe_directory {
                below.push((entry.name.to_vec(), entry.ino));
            }
            Ok(self.entries.len() < MAX_ENTRIES)
        })?;
        drop(opened);
        if depth == MAX_DEPTH {
            return Ok(());
        }
        for (name, ino) in below {
            if self.entries.len() >= MAX_ENTRIES {
                break;
            }
            // What vanished meanwhile, is no directory after all, or a mount point, is left out.
            let Ok(child) = host::open_child(dir, &name) else {
                continue;
            };
            let own = self.directories.len() as u32;
            self.directories.push((ino, at));
            if let Err(error) = self.read(files, child.as_fd(), own, depth + 1) {
                tracing::debug!(?name, %error, "not indexed");
            }
        }
        Ok(())
    }

    /// Whether it may be replaced by a newer one.
    pub(super) fn is_old(&self) -> bool {
        self.made.elapsed() > MIN_AGE.max(self.took.saturating_mul(AGE_FACTOR))
    }

    /// The directories (their inode numbers, from below the root down) that lead to each place
    /// where `ino` was seen.
    pub(super) fn ways(&self, ino: u64) -> impl Iterator<Item = Vec<u64>> {
        let from = self.entries.partition_point(|&(entry, _)| entry < ino);
        self.entries[from..]
            .iter()
            .take_while(move |&&(entry, _)| entry == ino)
            .map(|&(_, mut at)| {
                let mut way = Vec::new();
                while at != 0 {
                    let (ino, parent) = self.directories[at as usize];
                    way.push(ino);
                    at = parent;
                }
                way.reverse();
                way
            })
    }
}
