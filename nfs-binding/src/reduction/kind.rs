//! The kinds of calls, for reports.

use std::fmt;

use smallvec::SmallVec;

use super::legacy;
use super::{COMPOUND, Direction, NFS_V4};
use crate::proto::NFS_PROGRAM;
use crate::v4::operations;

/// The program, version and procedure of a call, and of an NFSv4 COMPOUND its operations. Calls of
/// one kind are treated alike, so that a relay can report on each kind once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallKind {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// The side that it came from. `None` if it is no call.
    pub direction: Option<Direction>,
    /// Minor version of a COMPOUND or CB_COMPOUND that was read.
    pub minor: Option<u32>,
    /// The first operations of a COMPOUND or CB_COMPOUND, up to one that is not known, and no more
    /// than 32.
    pub operations: SmallVec<[u8; 16]>,
    /// Why no item was held apart, or `None` if the binding was applied.
    pub whole: Option<WholeReason>,
}

/// The reason why a message is carried whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WholeReason {
    /// There is no upper-layer binding of this program, version or procedure.
    NoBinding,
    /// RPCSEC_GSS protects the arguments, which must not be reduced then (RFC 8166, section 8.2.2).
    Protected,
    /// A COMPOUND has an operation with this number, of which the arguments are not known.
    UnknownOperation(u32),
    /// The message ends early, or a value is not one of its type.
    Malformed,
    /// The requester reduced something that is not DDP-eligible, which a responder must refuse (RFC
    /// 8166, section 6.1).
    Misplaced,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            version,
            procedure,
            ..
        } = *self;
        let Some(minor) = self.minor else {
            match legacy::name(program, version, procedure) {
                Some((program, name)) => write!(f, "{program} {name}")?,
                None => write!(f, "program {program} v{version} procedure {procedure}")?,
            }
            // With integrity alone, the operations could be read.
            let is_compound = (program, version, procedure) == (NFS_PROGRAM, NFS_V4, COMPOUND);
            return match self.whole {
                Some(WholeReason::Protected) if is_compound => f.write_str(" (encrypted)"),
                _ => Ok(()),
            };
        };
        let callback = self.direction == Some(Direction::Backward);
        write!(f, "NFSv4.{minor}")?;
        for &number in &self.operations {
            let operation = match callback {
                true => operations::callback(number.into()),
                false => operations::forward(number.into()),
            };
            write!(f, " {}", operation.map_or("?", |operation| operation.name))?;
        }
        Ok(())
    }
}

impl fmt::Display for WholeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBinding => f.write_str("no upper-layer binding"),
            Self::Protected => f.write_str("protected by RPCSEC_GSS"),
            Self::UnknownOperation(number) => write!(f, "unknown operation {number}"),
            Self::Malformed => f.write_str("malformed"),
            Self::Misplaced => f.write_str("a chunk holds what is not DDP-eligible"),
        }
    }
}
