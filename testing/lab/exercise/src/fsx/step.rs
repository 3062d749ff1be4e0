//! Chooses the next operation.

use std::fmt;

use super::Order;
use crate::content;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// read(2) at an offset.
    Read,
    /// write(2) at an offset.
    Write,
    /// read(2) with `O_DIRECT`.
    DirectRead,
    /// write(2) with `O_DIRECT`.
    DirectWrite,
    /// A read through a mapping.
    MapRead,
    /// A write through a mapping, after extending the file if necessary.
    MapWrite,
    /// ftruncate(2).
    Truncate,
    /// fsync(2).
    Sync,
    /// close(2) and open(2), after which a client asks for attributes again.
    Reopen,
    /// fsync(2), and dropping cached pages, so that the next read asks the server.
    Forget,
}

/// The page size, in which a client caches and maps, bytes.
const PAGE: usize = 4096;

/// The kinds of operations, with their percentages.
const OFTEN: [(Kind, u64); 10] = [
    (Kind::Read, 26),
    (Kind::Write, 26),
    (Kind::DirectRead, 4),
    (Kind::DirectWrite, 4),
    (Kind::MapRead, 12),
    (Kind::MapWrite, 12),
    (Kind::Truncate, 10),
    (Kind::Sync, 2),
    (Kind::Reopen, 2),
    (Kind::Forget, 2),
];

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the operation, from 1.
    pub number: u64,
    /// The kind.
    pub kind: Kind,
    /// The offset; for a truncation, the new size.
    pub offset: usize,
    /// The number of bytes.
    pub len: usize,
    seed: u64,
}

impl Step {
    /// Chooses an operation for a file of `size` bytes. The choices do not depend on the results of
    /// earlier operations.
    pub fn choose(rng: &mut fastrand::Rng, order: &Order, number: u64, size: usize) -> Self {
        let mut kind = Self::kind(rng.u64(0..100));
        let (place, want) = (rng.usize(..), rng.usize(1..=order.max_len));
        // Errors are likely at page boundaries, so some operations begin or end there, or both.
        let (starts, ends) = (rng.u8(0..8) == 0, rng.u8(0..8) == 0);
        let seed = rng.u64(..);
        if !order.direct {
            kind = match kind {
                Kind::DirectRead => Kind::Read,
                Kind::DirectWrite => Kind::Write,
                other => other,
            };
        }
        // An access to a mapping beyond the end of the file is a signal, not an error.
        if kind == Kind::MapRead && size == 0 {
            kind = Kind::MapWrite;
        }
        let align = |value: usize| if starts { value & !(PAGE - 1) } else { value };
        let (offset, len) = match kind {
            Kind::Read | Kind::DirectRead => (align(place % (size + 1)), want),
            Kind::MapRead => {
                let offset = align(place % size);
                (offset, want.min(size - offset))
            }
            Kind::Write | Kind::DirectWrite | Kind::MapWrite => {
                let offset = align(place % order.max_size);
                (offset, want.min(order.max_size - offset))
            }
            Kind::Truncate => (align(place % (order.max_size + 1)), 0),
            Kind::Sync | Kind::Reopen | Kind::Forget => (0, 0),
        };
        let end = (offset + len) & !(PAGE - 1);
        let len = if ends && end > offset {
            end - offset
        } else {
            len
        };
        Self {
            number,
            kind,
            offset,
            len,
            seed,
        }
    }

    fn kind(hundredth: u64) -> Kind {
        let mut before = 0;
        for (kind, often) in OFTEN {
            before += often;
            if hundredth < before {
                return kind;
            }
        }
        Kind::Read
    }

    /// Returns the bytes that it writes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        content::bytes(self.seed, self.len)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Sync | Kind::Reopen | Kind::Forget => write!(f, "{:?}", self.kind),
            Kind::Truncate => write!(f, "Truncate to {}", self.offset),
            kind => write!(f, "{kind:?} {} from {}", self.len, self.offset),
        }
    }
}
