//! The status of NFS operations (RFC 1813, section 2.6), and the common form of results.

use std::fmt;

use onc_rpc::{DecodeError, Decoder, Encoder};

use super::Xdr;

/// An `nfsstat3` or `mountstat3`, whose values are a subset. An unknown value is kept: it is an
/// error with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = $value:literal, $rfc:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$meta])* pub const $name: Self = Self($value);)*

            /// Returns the name in RFC 1813.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($rfc),)*
                    _ => None,
                }
            }

            /// Returns a description for users.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    _ => "unknown error",
                }
            }
        }

        /// All statuses that have a name.
        #[cfg(test)]
        pub(super) const KNOWN: &[Status] = &[$(Status::$name),*];
    };
}

statuses! {
    /// The operation succeeded.
    OK = 0, "NFS3_OK", "success";
    /// The caller is neither privileged nor the owner.
    PERM = 1, "NFS3ERR_PERM", "operation not permitted";
    /// The name does not exist.
    NOENT = 2, "NFS3ERR_NOENT", "no such file or directory";
    /// The device returned an error.
    IO = 5, "NFS3ERR_IO", "I/O error on the server";
    /// The device or address does not exist.
    NXIO = 6, "NFS3ERR_NXIO", "no such device or address";
    /// The caller lacks the permission.
    ACCES = 13, "NFS3ERR_ACCES", "permission denied";
    /// The name exists.
    EXIST = 17, "NFS3ERR_EXIST", "file exists";
    /// A RENAME or LINK would cross file systems.
    XDEV = 18, "NFS3ERR_XDEV", "link between different file systems";
    /// The device does not exist.
    NODEV = 19, "NFS3ERR_NODEV", "no such device";
    /// The object is not a directory.
    NOTDIR = 20, "NFS3ERR_NOTDIR", "not a directory";
    /// The object is a directory.
    ISDIR = 21, "NFS3ERR_ISDIR", "is a directory";
    /// The argument is invalid or not supported.
    INVAL = 22, "NFS3ERR_INVAL", "invalid argument";
    /// The file would exceed the server's maximum size.
    FBIG = 27, "NFS3ERR_FBIG", "file too large for the server";
    /// The file system is full.
    NOSPC = 28, "NFS3ERR_NOSPC", "no space left on the server";
    /// The export is read-only.
    ROFS = 30, "NFS3ERR_ROFS", "read-only file system";
    /// The object has too many hard links.
    MLINK = 31, "NFS3ERR_MLINK", "too many hard links";
    /// The name is too long.
    NAMETOOLONG = 63, "NFS3ERR_NAMETOOLONG", "file name too long";
    /// The directory is not empty.
    NOTEMPTY = 66, "NFS3ERR_NOTEMPTY", "directory not empty";
    /// The owner's quota is exceeded.
    DQUOT = 69, "NFS3ERR_DQUOT", "disk quota exceeded";
    /// The object no longer exists or is no longer exported.
    STALE = 70, "NFS3ERR_STALE", "stale file handle";
    /// The path leads to another server.
    REMOTE = 71, "NFS3ERR_REMOTE", "too many levels of remote in path";
    /// The file handle is not one of this server's.
    BADHANDLE = 10001, "NFS3ERR_BADHANDLE", "not a file handle of this server";
    /// The ctime differs from the guard of SETATTR.
    NOT_SYNC = 10002, "NFS3ERR_NOT_SYNC", "the object has changed meanwhile";
    /// The directory cookie is no longer valid.
    BAD_COOKIE = 10003, "NFS3ERR_BAD_COOKIE", "the directory has changed while it was read";
    /// The server does not support the operation.
    NOTSUPP = 10004, "NFS3ERR_NOTSUPP", "operation not supported";
    /// The result does not fit the requested count.
    TOOSMALL = 10005, "NFS3ERR_TOOSMALL", "buffer or request too small";
    /// The server failed for a reason that no other status describes.
    SERVERFAULT = 10006, "NFS3ERR_SERVERFAULT", "fault in the server";
    /// The server does not support this type of object.
    BADTYPE = 10007, "NFS3ERR_BADTYPE", "type of file not supported";
    /// The client should try again later.
    JUKEBOX = 10008, "NFS3ERR_JUKEBOX", "the server asks to try again later";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.text()),
            None => write!(f, "unknown error (NFS status {})", self.0),
        }
    }
}

impl Xdr for Status {
    const MAX_LEN: u32 = 4;

    fn encode(&self, out: &mut Encoder) {
        out.u32(self.0);
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        input.u32().map(Self)
    }
}

/// The failure result of a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed<F> {
    /// The status, never [`Status::OK`].
    pub status: Status,
    /// The attributes that the server sends in a failure.
    pub attributes: F,
}

impl<F: Default> From<Status> for Failed<F> {
    fn from(status: Status) -> Self {
        Self {
            status,
            attributes: F::default(),
        }
    }
}

/// The result of an NFS procedure: a union that switches on the status.
pub type NfsResult<T, F> = Result<T, Failed<F>>;

impl<T: Xdr, F: Xdr> Xdr for NfsResult<T, F> {
    const MAX_LEN: u32 = Status::MAX_LEN
        + if T::MAX_LEN > F::MAX_LEN {
            T::MAX_LEN
        } else {
            F::MAX_LEN
        };

    fn encode(&self, out: &mut Encoder) {
        match self {
            Ok(value) => {
                Status::OK.encode(out);
                value.encode(out);
            }
            Err(failed) => {
                failed.status.encode(out);
                failed.attributes.encode(out);
            }
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match Status::decode(input)? {
            Status::OK => Ok(T::decode(input)?),
            status => Err(Failed {
                status,
                attributes: F::decode(input)?,
            }),
        })
    }
}

#[cfg(test)]
impl<F: quickcheck::Arbitrary> quickcheck::Arbitrary for Failed<F> {
    fn arbitrary(g: &mut quickcheck::Gen) -> Self {
        Self {
            status: *g.choose(&KNOWN[1..]).expect("there are errors"),
            attributes: F::arbitrary(g),
        }
    }
}
