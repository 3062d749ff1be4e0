//! The export: a file, a folder of some names, and what a client writes.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cases::content;

/// The length of the file, bytes: more READs than the usual credits, the last of them not a multiple of four and longer
/// than the usual inline threshold.
const FILE: usize = 16 * 8192 + 6001;
/// The length of what is written, bytes: not a multiple of four, longer than the usual inline threshold, and one WRITE.
const WRITTEN: usize = 6_001;
/// The names in a usual folder.
const FEW: usize = 3;
/// The names in a folder of several long replies.
const MANY: usize = 150;
/// The most bytes that a client may write into a file.
const LONGEST: u64 = 1 << 20;
/// The most files that a client may make.
const MOST_FILES: usize = 64;

/// The path of the export.
pub(super) const PATH: &[u8] = b"/conform";
/// The folder of the file and of what is written.
pub(super) const ROOT: u32 = 1;
/// The file.
pub(super) const READ: u32 = 2;
/// The folder to be listed.
pub(super) const FOLDER: u32 = 3;
/// The first number of a file that a client makes.
const FIRST_MADE: u32 = 1000;

/// Returns the content of the file that is read.
pub(super) fn file() -> Vec<u8> {
    content(21, FILE)
}

/// Returns the content that is to be written.
pub(super) fn to_write() -> Vec<u8> {
    content(22, WRITTEN)
}

/// Returns the names in the folder.
fn names(crowd: bool) -> Vec<String> {
    let count = if crowd { MANY } else { FEW };
    let name = |n| format!("name-{n:03}-{}", "x".repeat(60));
    (0..count).map(name).collect()
}

/// The objects of one performance.
#[derive(Debug)]
pub(super) struct Export {
    /// The names in the folder.
    pub(super) names: Vec<String>,
    /// The content of the file that is read.
    pub(super) content: Vec<u8>,
    made: BTreeMap<u32, Vec<u8>>,
    called: BTreeMap<Vec<u8>, u32>,
    /// The parts of the file that READs returned, in order and apart.
    read: Vec<Range<u64>>,
    /// Whether the last name of the folder was returned.
    pub(super) listed: bool,
}

impl Export {
    pub(super) fn new(crowd: bool) -> Self {
        Self {
            names: names(crowd),
            content: file(),
            made: BTreeMap::new(),
            called: BTreeMap::new(),
            read: Vec::new(),
            listed: false,
        }
    }

    /// Returns the object with this name in a folder.
    pub(super) fn lookup(&self, folder: u32, name: &[u8]) -> Option<u32> {
        match (folder, name) {
            (_, b".") => Some(folder),
            (ROOT | FOLDER, b"..") => Some(ROOT),
            (ROOT, b"file") => Some(READ),
            (ROOT, b"folder") => Some(FOLDER),
            (ROOT, name) => self.called.get(name).copied(),
            _ => {
                let at = self.names.iter().position(|it| it.as_bytes() == name)?;
                (folder == FOLDER).then_some(FOLDER + 1 + at as u32)
            }
        }
    }

    /// Returns whether there is such an object.
    pub(super) fn has(&self, object: u32) -> bool {
        let named = FOLDER + 1..FOLDER + 1 + self.names.len() as u32;
        matches!(object, ROOT | READ | FOLDER)
            || named.contains(&object)
            || self.made.contains_key(&object)
    }

    /// Returns whether the object is a folder.
    pub(super) fn is_folder(object: u32) -> bool {
        matches!(object, ROOT | FOLDER)
    }

    /// Returns the length of a file.
    pub(super) fn size(&self, object: u32) -> u64 {
        match object {
            READ => self.content.len() as u64,
            _ => self.made.get(&object).map_or(0, |it| it.len() as u64),
        }
    }

    /// Makes an empty file in the root. Returns `None` if there are too many.
    pub(super) fn make(&mut self, name: &[u8]) -> Option<u32> {
        if let Some(old) = self.called.get(name) {
            return Some(*old);
        }
        if self.made.len() >= MOST_FILES {
            return None;
        }
        let object = FIRST_MADE + self.made.len() as u32;
        self.made.insert(object, Vec::new());
        self.called.insert(name.to_vec(), object);
        Some(object)
    }

    /// Gives a file another name.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> bool {
        let object = self.called.remove(from);
        let Some(object) = object else {
            return false;
        };
        self.called.insert(to.to_vec(), object);
        true
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        self.called.remove(name).is_some()
    }

    /// Sets the length of a file.
    pub(super) fn resize(&mut self, object: u32, length: u64) -> bool {
        let file = self.made.get_mut(&object);
        match (file, usize::try_from(length)) {
            (Some(file), Ok(to)) if length <= LONGEST => {
                file.resize(to, 0);
                true
            }
            _ => false,
        }
    }

    /// Writes into a file that a client made.
    pub(super) fn write(&mut self, object: u32, offset: u64, data: &[u8]) -> bool {
        let end = offset.checked_add(data.len() as u64);
        let Some(end) = end.filter(|end| *end <= LONGEST) else {
            return false;
        };
        let Some(file) = self.made.get_mut(&object) else {
            return false;
        };
        let (start, end) = (offset as usize, end as usize);
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(data);
        true
    }

    /// Returns a part of the file that is read, and whether it is the last.
    pub(super) fn read(&mut self, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let length = self.content.len() as u64;
        let start = offset.min(length);
        let end = start.saturating_add(u64::from(count)).min(length);
        self.add(start..end);
        let part = self.content[start as usize..end as usize].to_vec();
        (part, end == length)
    }

    /// Adds a part to those that were read, in one with those that it touches.
    fn add(&mut self, mut part: Range<u64>) {
        if part.is_empty() {
            return;
        }
        let from = self.read.partition_point(|it| it.end < part.start);
        let to = self.read.partition_point(|it| it.start <= part.end);
        for touched in self.read.drain(from..to) {
            part = part.start.min(touched.start)..part.end.max(touched.end);
        }
        self.read.insert(from, part);
    }

    /// Returns the first byte of the file that no READ returned.
    pub(super) fn unread(&self) -> Option<u64> {
        let first = self.read.first().filter(|part| part.start == 0);
        let so_far = first.map_or(0, |part| part.end);
        (so_far < self.content.len() as u64).then_some(so_far)
    }

    /// Returns whether a file has the content that was to be written.
    pub(super) fn is_written(&self) -> bool {
        let expected = to_write();
        self.made.values().any(|it| *it == expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_what_was_read_is_found() {
        let mut export = Export::new(false);
        assert_eq!(export.unread(), Some(0));
        export.read(8192, 8192);
        export.read(0, 4096);
        assert_eq!(export.unread(), Some(4096));
        export.read(4000, 5000);
        assert_eq!(export.unread(), Some(16384));
        export.read(16384, u32::MAX);
        assert_eq!(export.unread(), None);
    }

    #[test]
    fn what_was_read_is_kept_once() {
        let mut export = Export::new(false);
        for (offset, count) in [(8, 2), (0, 2), (4, 2), (0, 0), (u64::MAX, 9), (4, 1)] {
            export.read(offset, count);
        }
        assert_eq!(export.read, [0..2, 4..6, 8..10]);
        // Parts that touch, and one that takes in others.
        export.read(2, 2);
        assert_eq!(export.read, [0..6, 8..10]);
        export.read(1, 8);
        assert_eq!(export.read, std::slice::from_ref(&(0..10)));
        export.read(0, u32::MAX);
        assert_eq!(export.unread(), None);
        assert_eq!(export.read.len(), 1);
    }

    #[test]
    fn writes_are_bounded() {
        let mut export = Export::new(false);
        let made = export.make(b"new").unwrap();
        assert!(!export.write(made, u64::MAX, &[1]));
        assert!(!export.write(made, LONGEST, &[1]));
        assert!(!export.write(READ, 0, &[1]));
        assert!(export.write(made, 0, &to_write()));
        assert!(export.is_written());
    }
}
