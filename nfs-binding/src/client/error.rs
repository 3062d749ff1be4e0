//! Errors of the NFS client, with the path that they occurred at.

use std::fmt;

use rpc_transport::CallError;

use crate::escape::escape;
use crate::proto::{Failed, NfsResult, Status};

/// The reason why an operation on a mounted export failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// The server answered with an error status.
    #[error("{}: {} {path}", status, op.verb())]
    Status {
        /// The operation.
        op: Op,
        /// The path.
        path: DisplayPath,
        /// The status.
        status: Status,
    },
    /// The call got no reply.
    #[error("{source}: {} {path}", op.verb())]
    Call {
        /// The operation.
        op: Op,
        /// The path.
        path: DisplayPath,
        /// The error of the call.
        source: CallError,
    },
    /// The server sent a reply that violates the protocol.
    #[error("invalid reply of the server, {what}: {} {path}", op.verb())]
    Nonsense {
        /// The operation.
        op: Op,
        /// The path.
        path: DisplayPath,
        /// The violation.
        what: &'static str,
    },
    /// A directory has more entries than the client can hold, or than any real directory has.
    #[error(
        "more than {entries} entries, which is more than this program takes (the server may be at \
         fault; another program may list it piecemeal): listing {path}"
    )]
    TooManyEntries {
        /// The directory.
        path: DisplayPath,
        /// The number of entries received so far.
        entries: u64,
    },
    /// No export contains the path.
    #[error("the server does not export {path} ({})", exports_text(.exports))]
    NotExported {
        /// The requested path.
        path: DisplayPath,
        /// The paths that the server exports, as far as it lists them.
        exports: Vec<DisplayPath>,
    },
    /// The export accepts neither AUTH_SYS nor AUTH_NONE credentials.
    #[error(
        "export {path} accepts only authentication flavors {flavors:?}; this client supports sys and none"
    )]
    Security {
        /// The export.
        path: DisplayPath,
        /// The authentication flavors that it accepts.
        flavors: Vec<u32>,
    },
    /// The path leads through too many symbolic links.
    #[error("too many symbolic links: {path}")]
    LinkLoop {
        /// The path that was followed.
        path: DisplayPath,
    },
    /// A symbolic link leads out of the export.
    #[error("symbolic link {path} leads out of the export, to {target}")]
    LinkOutside {
        /// The link.
        path: DisplayPath,
        /// The link's target.
        target: DisplayPath,
    },
    /// The path of an object to create or remove does not end with a name.
    #[error("{why}, which is neither made nor removed: {path}")]
    NoName {
        /// The path.
        path: DisplayPath,
        /// The reason.
        why: &'static str,
    },
    /// The mount is read-only (mount option `ro`).
    #[error("mounted read-only (-o ro): {} {path}", op.verb())]
    ReadOnly {
        /// The operation.
        op: Op,
        /// The path.
        path: DisplayPath,
    },
}

fn exports_text(exports: &[DisplayPath]) -> String {
    if exports.is_empty() {
        return "and names no export that it has".to_owned();
    }
    let names: Vec<String> = exports.iter().map(ToString::to_string).collect();
    format!("it exports {}", names.join(", "))
}

impl NfsError {
    /// Returns the server's status, if it answered with one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether the server is unreachable, so that further calls will fail as well.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::Call {
                source: CallError::TimedOut { .. }
                    | CallError::Connect { .. }
                    | CallError::Unanswered { .. }
                    | CallError::Closed,
                ..
            }
        )
    }
}

/// A path for display. Its bytes are [`escape`]d when they are printed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct DisplayPath(Box<[u8]>);

impl DisplayPath {
    /// Returns the unescaped bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for DisplayPath {
    fn from(path: &[u8]) -> Self {
        Self(path.into())
    }
}

impl fmt::Display for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "/");
        }
        // A name may contain terminal control sequences: they must be shown, not interpreted.
        escape(&self.0).fmt(f)
    }
}

impl fmt::Debug for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// An operation, for error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// MNT.
    Mount,
    /// LOOKUP or GETATTR.
    Find,
    /// SETATTR.
    SetAttributes,
    /// READLINK.
    ReadLink,
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// COMMIT.
    Commit,
    /// CREATE, MKNOD or LINK.
    Create,
    /// MKDIR.
    MakeDirectory,
    /// SYMLINK.
    MakeLink,
    /// REMOVE or RMDIR.
    Remove,
    /// RENAME.
    Rename,
    /// READDIR or READDIRPLUS.
    List,
    /// FSINFO, FSSTAT or PATHCONF.
    FsInfo,
}

impl Op {
    /// Returns the verb that precedes the path in a message.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Mount => "mounting",
            Self::Find => "looking up",
            Self::SetAttributes => "setting attributes of",
            Self::ReadLink => "reading link",
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Commit => "committing",
            Self::Create => "creating",
            Self::MakeDirectory => "making directory",
            Self::MakeLink => "making link",
            Self::Remove => "removing",
            Self::Rename => "renaming",
            Self::List => "listing",
            Self::FsInfo => "asking about",
        }
    }
}

/// A location on the server that an error can name. The path is built only if there is an error.
pub trait Place {
    /// Returns the path.
    fn display(&self) -> DisplayPath;
}

impl Place for [u8] {
    fn display(&self) -> DisplayPath {
        self.into()
    }
}

impl Place for Vec<u8> {
    fn display(&self) -> DisplayPath {
        self.as_slice().into()
    }
}

/// Adds the operation and the path to an error of the call or of the server.
pub(crate) fn checked<T, F>(
    outcome: Result<NfsResult<T, F>, CallError>,
    op: Op,
    at: &(impl Place + ?Sized),
) -> Result<T, NfsError> {
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failed { status, .. })) => Err(NfsError::Status {
            op,
            path: at.display(),
            status,
        }),
        Err(source) => Err(NfsError::Call {
            op,
            path: at.display(),
            source,
        }),
    }
}
