//! Divides the file descriptors that the process may have among the uses of a copy.
//!
//! A directory stays in progress until everything in it has been copied. A descriptor for each such
//! directory of a deep or wide tree would exceed the limit of most processes. So only some of them
//! are open, and others are reopened when they are needed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The maximum number of directories that are open, and of those that are being listed, however
/// many descriptors there are.
const MOST_DIRECTORIES: u64 = 1024;
const MOST_LISTINGS: u64 = 64;

/// How many descriptors a copy may hold for each use. What remains is for connections, and for the
/// rest of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// For files in progress.
    pub(super) files: usize,
    /// For directories in progress.
    pub(super) directories: usize,
    /// For large directories that are partly listed.
    pub(super) listings: usize,
}

impl Descriptors {
    /// Divides the descriptors that the process can still open under its current limit.
    pub(super) fn left(files_in_flight: usize) -> Self {
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let used = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        Self::of(most.saturating_sub(used), files_in_flight)
    }

    fn of(left: u64, files_in_flight: usize) -> Self {
        let at_most = |part: u64, most: u64| usize::try_from(part.min(most)).unwrap_or(usize::MAX);
        Self {
            files: at_most(left / 4, files_in_flight as u64).max(1),
            directories: at_most(left / 4, MOST_DIRECTORIES).max(2),
            listings: at_most(left / 16, MOST_LISTINGS),
        }
    }
}

/// The open directories. If there are more than `most`, one that was not used recently is closed.
#[derive(Debug)]
pub(super) struct OpenDirs {
    most: usize,
    open: RefCell<VecDeque<Weak<OpenDir>>>,
}

/// The descriptor of a directory, while it is open.
#[derive(Debug, Default)]
pub(super) struct OpenDir {
    fd: RefCell<Option<Rc<OwnedFd>>>,
    /// Whether it was used since it was last considered for closing.
    used: Cell<bool>,
}

impl OpenDir {
    /// Returns the descriptor if the directory is open.
    pub(super) fn get(&self) -> Option<Rc<OwnedFd>> {
        let fd = self.fd.borrow().clone();
        self.used.set(fd.is_some());
        fd
    }
}

impl OpenDirs {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self {
            most,
            open: RefCell::default(),
        })
    }

    /// Keeps a directory open that was just opened.
    pub(super) fn keep(&self, dir: &Rc<OpenDir>, fd: OwnedFd) -> Rc<OwnedFd> {
        while self.open.borrow().len() >= self.most {
            self.close_one();
        }
        let fd = Rc::new(fd);
        *dir.fd.borrow_mut() = Some(Rc::clone(&fd));
        self.open.borrow_mut().push_back(Rc::downgrade(dir));
        fd
    }

    /// Closes the directory that was opened first of those that were not used since the last time.
    /// Returns whether there was one that was open.
    fn close_one(&self) -> bool {
        let mut open = self.open.borrow_mut();
        while let Some(first) = open.pop_front() {
            // A directory that is done has closed its descriptor.
            let Some(dir) = first.upgrade() else {
                continue;
            };
            if dir.used.take() {
                open.push_back(first);
                continue;
            }
            return dir.fd.take().is_some();
        }
        false
    }

    /// Opens something. If the process has too many open files, closes directories and tries again:
    /// others in the process use descriptors as well.
    pub(super) fn make_room<T>(&self, open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            match open() {
                Err(Errno::MFILE | Errno::NFILE) if self.close_one() => {}
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_divided_and_everything_gets_some() {
        let divided = |left| {
            let Descriptors {
                files,
                directories,
                listings,
            } = Descriptors::of(left, 64);
            (files, directories, listings)
        };
        assert_eq!(divided(1 << 20), (64, 1024, 64));
        assert_eq!(divided(1000), (64, 250, 62));
        assert_eq!(divided(240), (60, 60, 15));
        assert_eq!(divided(0), (1, 2, 0));
        let (files, directories, listings) = divided(240);
        assert!(files + directories + listings < 240 * 2 / 3);
    }
}
