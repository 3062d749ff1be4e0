//! Flags of open files: those that a program gives, and those that the kernel gets back.

use fuser::{FopenFlags, OpenAccMode, OpenFlags};
use rustix::fs::OFlags;

use crate::core::files::{OpenMode, Opened};

/// The kernel's flag of an `open` in order to execute a file (`FMODE_EXEC`).
const OPEN_TO_EXECUTE: i32 = 0x20;

/// Returns what a program wants to do with a file, from the flags of its `open`.
pub(super) fn open_mode(flags: i32) -> OpenMode {
    let accepted = OpenFlags(flags).acc_mode();
    let has = |flag: OFlags| flags as u32 & flag.bits() == flag.bits();
    OpenMode {
        read: accepted != OpenAccMode::O_WRONLY,
        write: accepted != OpenAccMode::O_RDONLY,
        execute: flags & OPEN_TO_EXECUTE != 0,
        direct: has(OFlags::DIRECT),
        sync: has(OFlags::DSYNC),
        exclusive: has(OFlags::EXCL),
        truncate: has(OFlags::TRUNC),
    }
}

/// Returns whether the flags of a write request say that its data goes to the end of the file. They
/// are those of the open file at that time: a program may set O_APPEND later.
pub(super) fn appends(flags: i32) -> bool {
    flags as u32 & OFlags::APPEND.bits() != 0
}

/// Returns what the kernel may do with an open file.
pub(super) fn open_flags(mode: OpenMode, opened: Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    if opened.keep {
        flags |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if !mode.write {
        // There is nothing to wait for when it is closed.
        flags |= FopenFlags::FOPEN_NOFLUSH;
    }
    flags
}
