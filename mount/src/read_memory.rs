//! The memory that what was read ahead takes, in all open files.
//!
//! Each open file reads ahead as far as the options allow, and keeps what has arrived until the kernel
//! has its pages. With many open files that would be any amount. So the sum is limited: the files that
//! were not read for the longest time give theirs up, and all do that after a while without reads, or when there
//! is no memory for a call. What is given up is read again when it is needed.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use crate::core::files::OpenFile;

/// The duration without reads after which a file keeps nothing that was read ahead.
const IDLE: Duration = Duration::from_secs(5);

/// The open files that have read ahead.
#[derive(Debug)]
pub(crate) struct ReadMemory<A> {
    /// The maximum number of bytes of all of them.
    limit: usize,
    /// The number of bytes.
    bytes: usize,
    /// The file that was read last is the last one.
    files: VecDeque<Reader<A>>,
}

/// An open file that has read ahead.
#[derive(Debug)]
struct Reader<A> {
    file: Weak<OpenFile<A>>,
    /// The number of bytes that were read ahead when it was last read.
    bytes: usize,
    /// The time of that.
    at: Instant,
}

impl<A> ReadMemory<A> {
    /// Creates the list, in which nothing has been read. All files together may keep `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: 0,
            files: VecDeque::new(),
        }
    }

    /// Records that an open file was read. Others give up what they have while all have too much.
    pub(crate) fn used(&mut self, file: &Rc<OpenFile<A>>, now: Instant) {
        let is_it = |reader: &Reader<A>| std::ptr::eq(reader.file.as_ptr(), Rc::as_ptr(file));
        // Mostly one of those that were read last.
        if let Some(at) = self.files.iter().rposition(is_it)
            && let Some(before) = self.files.remove(at)
        {
            self.bytes -= before.bytes;
        }
        let bytes = file.read_ahead.borrow().bytes();
        if bytes > 0 {
            self.bytes += bytes;
            self.files.push_back(Reader {
                file: Rc::downgrade(file),
                bytes,
                at: now,
            });
        }
        while self.bytes > self.limit && self.files.len() > 1 {
            self.drop_first();
        }
    }

    /// Makes files that were not read for a while give up what they have.
    pub(crate) fn drop_idle(&mut self, now: Instant) {
        let idle = |reader: &Reader<A>| now.saturating_duration_since(reader.at) >= IDLE;
        while self.files.front().is_some_and(idle) {
            self.drop_first();
        }
    }

    /// Makes all files give up what they have. Returns whether that was anything.
    pub(crate) fn drop_all(&mut self) -> bool {
        let any = self.bytes > 0;
        while !self.files.is_empty() {
            self.drop_first();
        }
        any
    }

    fn drop_first(&mut self) {
        let Some(reader) = self.files.pop_front() else {
            return;
        };
        self.bytes -= reader.bytes;
        // One that was closed has given it up already.
        if let Some(file) = reader.file.upgrade() {
            file.read_ahead.borrow_mut().give_up();
        }
    }
}
