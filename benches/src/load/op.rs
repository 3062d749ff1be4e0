//! The measured operations.

use std::fmt;
use std::str::FromStr;

use nfs_binding::proto::{Procedure, nfs};
use rpcrdma_setup::units::show_size;
use serde::Serialize;

/// The bytes of a READ.
pub const READ_SIZE: u32 = 4 << 10;
/// The bytes of a WRITE.
pub const WRITE_SIZE: u32 = 8 << 10;
/// The bytes of the test file. All of it stays in the processor's caches, so that the servers'
/// own work is measured and not that of the memory.
pub const FILE_SIZE: u64 = 1 << 20;

/// A measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// GETATTR of the test file (RFC 1813, section 3.3.1).
    Getattr,
    /// READ of [`READ_SIZE`] bytes of the test file (section 3.3.6).
    Read,
    /// Unstable WRITE of [`WRITE_SIZE`] bytes to the test file (section 3.3.7).
    Write,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Getattr, Self::Read, Self::Write];

    /// Returns the name in options and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Getattr => "getattr",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Returns the name of the procedure in RFC 1813.
    #[must_use]
    pub fn procedure(self) -> &'static str {
        match self {
            Self::Getattr => nfs::Getattr::NAME,
            Self::Read => nfs::Read::NAME,
            Self::Write => nfs::Write::NAME,
        }
    }

    /// Returns the number of the procedure.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Getattr => nfs::Getattr::NUMBER,
            Self::Read => nfs::Read::NUMBER,
            Self::Write => nfs::Write::NUMBER,
        }
    }

    /// Returns the bytes of file data that one call moves.
    #[must_use]
    pub fn size(self) -> u32 {
        match self {
            Self::Getattr => 0,
            Self::Read => READ_SIZE,
            Self::Write => WRITE_SIZE,
        }
    }

    /// Returns the offset in the file for the call with this serial number: one call after the
    /// other through the whole file.
    #[must_use]
    pub fn offset(self, serial: u64) -> u64 {
        match u64::from(self.size()) {
            0 => 0,
            size => serial % (FILE_SIZE / size) * size,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size() {
            0 => f.write_str(self.name()),
            size => write!(f, "{} {}", self.name(), show_size(u64::from(size))),
        }
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|op| op.name() == text);
        found.ok_or_else(|| format!("`{text}` is not getattr, read or write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_through_the_whole_file_and_stay_in_it() {
        for op in [Op::Read, Op::Write] {
            let size = u64::from(op.size());
            let calls = FILE_SIZE / size;
            let offsets: Vec<u64> = (0..=calls).map(|serial| op.offset(serial)).collect();
            assert_eq!(offsets[0], 0);
            assert_eq!(offsets[1], size);
            assert_eq!(offsets[calls as usize - 1], FILE_SIZE - size);
            assert_eq!(offsets[calls as usize], 0);
        }
        assert_eq!(Op::Getattr.offset(7), 0);
    }
}
