//! What can go wrong, with the path it went wrong at.

use std::fmt;

use rpc_transport::CallError;

use crate::escape::escape;
use crate::proto::{Failed, NfsResult, Status};

/// Why something on a mounted export failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NfsError {
    /// The server answered that it cannot.
    #[error("{}: {} {path}", status, op.verb())]
    Status {
        /// What was tried.
        op: Op,
        /// At which path.
        path: DisplayPath,
        /// What the server said.
        status: Status,
    },
    /// The call got no answer.
    #[error("{source}: {} {path}", op.verb())]
    Call {
        /// What was tried.
        op: Op,
        /// At which path.
        path: DisplayPath,
        /// Why.
        source: CallError,
    },
    /// The server answered something that makes no sense.
    #[error("the server's answer makes no sense, {what}: {} {path}", op.verb())]
    Nonsense {
        /// What was tried.
        op: Op,
        /// At which path.
        path: DisplayPath,
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// A directory has more entries than can be kept, or than any has.
    #[error(
        "more than {entries} entries, which is more than this program takes (the server may be at \
         fault; another program may list it piecemeal): listing {path}"
    )]
    TooManyEntries {
        /// The directory.
        path: DisplayPath,
        /// Entries so far.
        entries: u64,
    },
    /// No export holds the path.
    #[error("the server does not export {path} ({})", exports_text(.exports))]
    NotExported {
        /// The path asked for.
        path: DisplayPath,
        /// What it does export, as far as it says.
        exports: Vec<DisplayPath>,
    },
    /// The export cannot be used with AUTH_SYS or AUTH_NONE credentials.
    #[error("export {path} wants authentication flavors {flavors:?}; only sys and none are had")]
    Security {
        /// The export.
        path: DisplayPath,
        /// What it wants.
        flavors: Vec<u32>,
    },
    /// Too many symbolic links on the way.
    #[error("too many symbolic links: {path}")]
    LinkLoop {
        /// The path that was followed.
        path: DisplayPath,
    },
    /// A symbolic link on the way leads to somewhere the export does not hold.
    #[error("symbolic link {path} leads out of the export, to {target}")]
    LinkOutside {
        /// The link.
        path: DisplayPath,
        /// What it says.
        target: DisplayPath,
    },
    /// What is to be made or removed has no name in a directory.
    #[error("{why}, which is neither made nor removed: {path}")]
    NoName {
        /// The path.
        path: DisplayPath,
        /// What it is.
        why: &'static str,
    },
    /// The mount options say `ro`.
    #[error("mounted read-only (-o ro): {} {path}", op.verb())]
    ReadOnly {
        /// What was tried.
        op: Op,
        /// At which path.
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
    /// The server's status, if it answered with one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the server cannot be reached any more, so that further calls will fail as well.
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

/// A path as it is shown: bytes, with [`escape`]d what is no plain text.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct DisplayPath(Box<[u8]>);

impl DisplayPath {
    /// Its bytes.
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
        // A name may hold terminal control sequences: they are shown, not obeyed.
        escape(&self.0).fmt(f)
    }
}

impl fmt::Debug for DisplayPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What was tried, for messages.
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
    /// The word before the path.
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

/// Somewhere on the server that an error can name. Only looked at when there is an error.
pub trait Place {
    /// The path.
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

/// Gives both layers of a raw call's error their context.
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
