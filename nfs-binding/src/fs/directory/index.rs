//! An index of the places of objects that the kernel cannot open by their handles. It covers the
//! whole export, is built in the background, and is shared by all calls that wait for it.

use std::hash::Hasher;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use super::Served;
use super::host;
use super::node::{Child, Node};
use crate::fs::{FileId, FsError, FsResult};
use crate::proto::FileType;

/// The maximum number of indexed entries, at 16 bytes each. Objects of a larger export beyond these
/// are not found until they are looked up by name.
const MAX_ENTRIES: usize = 4 << 20;

/// The directory of each object of an export, at the time of one scan.
pub(super) struct Index {
    /// For each object: the hash of its identity, its directory (index into `directories`), and the
    /// low 32 bits of its entry's inode number; sorted.
    entries: Vec<(u64, u32, u32)>,
    /// The name and parent of each directory. The first is the root, which is its own parent.
    directories: Vec<(Box<[u8]>, u32)>,
    /// The start of the scan. An object that was already being searched for at that time, and that
    /// a complete index does not contain, no longer exists.
    pub(super) begun: Instant,
    /// The duration of the scan.
    pub(super) took: Duration,
    /// Whether the scan covered everything.
    pub(super) complete: bool,
}

/// A directory that is being read.
struct Level {
    /// The index of the directory in `directories`.
    at: u32,
    /// The subdirectories that have not been read yet.
    below: Vec<Box<[u8]>>,
    /// The device number (major, minor) and inode number of the directory.
    number: (u32, u32, u64),
}

fn hash(id: &FileId) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.finish()
}

/// Returns the low 32 bits of the inode number of a directory entry, which preselect entries.
pub(super) fn short(ino: u64) -> u32 {
    ino as u32
}

impl Index {
    /// Reads every directory of the export and determines the identity of each entry.
    ///
    /// Only one directory is open at a time, however deep the export is. The way back up is the
    /// directory's `..`, which is used only if it leads to the directory that the way down came
    /// from.
    pub(super) fn new(served: &Served, closing: &AtomicBool) -> FsResult<Self> {
        let begun = Instant::now();
        let mut index = Self {
            entries: Vec::new(),
            directories: vec![(Box::default(), 0)],
            begun,
            took: Duration::ZERO,
            complete: true,
        };
        index.read_all(served, closing)?;
        index.entries.sort_unstable();
        index.took = begun.elapsed();
        tracing::info!(
            entries = index.entries.len(),
            directories = index.directories.len(),
            complete = index.complete,
            took = ?index.took,
            "indexed an export to find files by their handles",
        );
        Ok(index)
    }

    fn read_all(&mut self, served: &Served, closing: &AtomicBool) -> FsResult<()> {
        let mut here = Arc::clone(&served.root);
        let mut way = vec![self.read(served, &here, 0)?];
        while let Some(level) = way.last_mut() {
            if closing.load(Ordering::Relaxed) {
                self.complete = false;
                return Ok(());
            }
            if self.entries.len() >= MAX_ENTRIES {
                rpcrdma_host::limited!(
                    warn,
                    entries = MAX_ENTRIES,
                    "an export has more files than are indexed: clients lose some of them with a restart, \
                     unless the server runs as root"
                );
                return Ok(());
            }
            let Some(name) = level.below.pop() else {
                way.pop();
                let Some(above) = way.last() else { break };
                here = match served.parent_of(&here) {
                    Ok(Some(parent)) if number(&parent) == Ok(above.number) => parent,
                    // The directory was moved meanwhile: go down again from the root.
                    _ => self.go_down(served, &mut way),
                };
                continue;
            };
            match served.open_child(&here, &name) {
                Ok(Child::Here(below, _)) => {
                    let at = u32::try_from(self.directories.len()).unwrap_or(u32::MAX);
                    let parent = level.at;
                    self.directories.push((name, parent));
                    match self.read(served, &below, at) {
                        Ok(level) => {
                            way.push(level);
                            here = Arc::new(below);
                        }
                        Err(error) => self.left_out(error),
                    }
                }
                Ok(Child::Elsewhere(_)) => {}
                Err(error) => self.left_out(error),
            }
        }
        Ok(())
    }

    /// Handles an object that could not be read. An object that has vanished or may not be read is
    /// left out for good. Other errors make the index incomplete, and the next index may have the
    /// object.
    fn left_out(&mut self, error: FsError) {
        tracing::debug!(%error, "not indexed");
        self.complete &= matches!(
            error,
            FsError::NotFound | FsError::NotDirectory | FsError::Access | FsError::Stale
        );
    }

    /// Returns the innermost directory of `way` that is still in its place, going down from the
    /// root. The others are left to the next index.
    fn go_down(&mut self, served: &Served, way: &mut Vec<Level>) -> Arc<Node> {
        self.complete = false;
        let mut here = Arc::clone(&served.root);
        for depth in 1..way.len() {
            let name = &self.directories[way[depth].at as usize].0;
            match served.open_child(&here, name) {
                Ok(Child::Here(below, _)) if number(&below) == Ok(way[depth].number) => {
                    here = Arc::new(below);
                }
                _ => {
                    way.truncate(depth);
                    break;
                }
            }
        }
        here
    }

    /// Reads one directory.
    fn read(&mut self, served: &Served, dir: &Node, at: u32) -> FsResult<Level> {
        let number = number(dir)?;
        let opened: OwnedFd = served.open_for_listing(dir)?;
        let mut below = Vec::new();
        host::list(&opened, 0, |entry| {
            if matches!(entry.name, b"." | b"..") {
                return Ok(true);
            }
            match served.open_child(dir, entry.name) {
                Ok(Child::Here(node, _)) => {
                    self.entries.push((hash(&node.id), at, short(entry.ino)));
                    if node.file_type == FileType::Directory {
                        below.push(entry.name.into());
                    }
                }
                Ok(Child::Elsewhere(_)) => {}
                Err(error) => self.left_out(error),
            }
            Ok(self.entries.len() < MAX_ENTRIES)
        })?;
        Ok(Level { at, below, number })
    }

    /// Returns the paths (names of directories below the root) to each place where an object with
    /// the hash of `id` was seen, each with the low 32 bits of the entry's inode number.
    pub(super) fn ways(&self, id: &FileId) -> impl Iterator<Item = (Vec<&[u8]>, u32)> {
        let wanted = hash(id);
        let from = self.entries.partition_point(|&(entry, ..)| entry < wanted);
        self.entries[from..]
            .iter()
            .take_while(move |&&(entry, ..)| entry == wanted)
            .map(|&(_, mut at, ino)| {
                let mut way = Vec::new();
                while at != 0 {
                    let (name, parent) = &self.directories[at as usize];
                    way.push(&**name);
                    at = *parent;
                }
                way.reverse();
                (way, ino)
            })
    }
}

fn number(node: &Node) -> FsResult<(u32, u32, u64)> {
    let stat = node.stat()?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}
