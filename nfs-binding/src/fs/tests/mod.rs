//! Conformance tests that run over each file system. In test code, `unwrap` is an assertion.

use std::sync::Arc;

use super::directory::{DirectoryFs, DirectoryOptions};
use super::*;
use crate::proto::{FileType, SetTime};

mod changes;
mod direct;
mod files;
mod host;
mod identity;
mod listing;
mod names;
mod rights;

/// The memory limit of the file systems under test, bytes.
const LIMIT: u64 = 64 << 20;
/// The maximum number of objects that a directory under test keeps open. By default it is a quarter
/// of the descriptors that the process may have, each with two: the directories of tests that run
/// at the same time would take them all, and calls be answered [`FsError::Later`].
pub(crate) const MOST_OPEN: Option<usize> = Some(16);

/// A file system under test.
struct Fixture {
    fs: Arc<dyn FileSystem>,
    /// The exported directory of the host, if there is one.
    host: Option<tempfile::TempDir>,
    /// The options of the directory from the next restart on.
    options: DirectoryOptions,
}

impl Fixture {
    fn memory() -> Self {
        Self {
            fs: Arc::new(MemoryFs::new(LIMIT).unwrap()),
            host: None,
            options: asynchronous(),
        }
    }

    fn directory() -> Self {
        let host = tempfile::tempdir().unwrap();
        let fs = DirectoryFs::open(host.path(), asynchronous()).unwrap();
        let rig = Self {
            fs: Arc::new(fs),
            host: Some(host),
            options: asynchronous(),
        };
        rig.set(&rig.root(), mode(0o1777));
        rig
    }

    /// Restarts the file system. Only a directory of the host survives that.
    fn restart(&mut self) {
        let host = self.host.as_ref().expect("a directory of the host");
        let fs = DirectoryFs::open(host.path(), self.options).unwrap();
        self.fs = Arc::new(fs);
    }

    fn root(&self) -> FileId {
        self.fs.root()
    }

    fn set(&self, file: &FileId, set: SetAttributes) {
        self.fs.setattr(&root(), file, &set, None).result.unwrap();
    }

    fn attributes(&self, file: &FileId) -> Attributes {
        self.fs.getattr(file).unwrap()
    }

    fn find(&self, dir: &FileId, name: &[u8]) -> FsResult<FileId> {
        let found = self.fs.lookup(&root(), dir, name)?;
        assert_eq!(found.object.attributes, self.attributes(&found.object.id));
        Ok(found.object.id)
    }

    fn create(&self, dir: &FileId, name: &[u8]) -> FileId {
        let how = HowToCreate::Guarded(SetAttributes::default());
        let made = self.fs.create(&root(), dir, name, &how);
        made.result.unwrap().id
    }

    fn mkdir(&self, dir: &FileId, name: &[u8]) -> FileId {
        let made = self.fs.mkdir(&root(), dir, name, &mode(0o755));
        made.result.unwrap().id
    }

    fn write(&self, file: &FileId, offset: u64, data: &[u8]) {
        let written = self
            .fs
            .write(
                &root(),
                file,
                offset,
                &Bulk::copy_from(data),
                Stable::Unstable,
            )
            .result
            .unwrap();
        assert_eq!(written.count as usize, data.len());
    }

    /// Reads up to `len` bytes. Returns them, and whether they reach the end.
    fn read(&self, file: &FileId, offset: u64, len: usize) -> (Vec<u8>, bool) {
        let mut buf = vec![0xee; len];
        let read = self.fs.read(&root(), file, offset, &mut buf).unwrap();
        buf.truncate(read.count as usize);
        (buf, read.eof)
    }

    /// Returns all names in a directory except `.` and `..`, sorted.
    fn names(&self, dir: &FileId) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        let listing = self
            .fs
            .readdir(&root(), dir, 0, [0; 8], false, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            })
            .unwrap();
        assert!(listing.eof);
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        names
    }
}

fn root() -> Caller {
    Caller::root()
}

/// Returns a user that owns nothing yet.
fn user() -> Caller {
    Caller::new(1001, 2001)
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    }
}

/// Returns options for directories whose content need not survive a power failure.
fn asynchronous() -> DirectoryOptions {
    DirectoryOptions {
        sync: false,
        most_open: MOST_OPEN,
        ..DirectoryOptions::default()
    }
}

/// Returns whether the process can change owners. Otherwise half of the tests cannot run on a
/// directory of the host. A message that they are skipped goes directly to stderr, because the test
/// harness hides the output of passing tests.
pub(crate) fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        left_out("root");
    }
    root
}

/// Returns whether the process is an ordinary user, which serves all callers with its own rights.
/// Root has no such rights that modes restrict.
pub(in crate::fs) fn ordinary() -> bool {
    let root = rustix::process::geteuid().is_root();
    if root {
        left_out("an ordinary user");
    }
    !root
}

fn left_out(needed: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test").to_owned();
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("left out, for it needs {needed}: {test}\n").as_bytes(),
    );
}

/// Defines one test of each function for each file system. Those after `as root:` need other users
/// than the one that runs them: on a directory of the host, only the superuser can run them.
macro_rules! on_both {
    ($($test:ident),*; as root: $($as_root:ident),*) => {
        mod memory {
            $(#[test]
            fn $test() {
                super::$test(&super::super::Fixture::memory());
            })*
            $(#[test]
            fn $as_root() {
                super::$as_root(&super::super::Fixture::memory());
            })*
        }

        mod directory {
            $(#[test]
            fn $test() {
                super::$test(&super::super::Fixture::directory());
            })*
            $(#[test]
            fn $as_root() {
                if super::super::privileged() {
                    super::$as_root(&super::super::Fixture::directory());
                }
            })*
        }
    };
}

use on_both;
