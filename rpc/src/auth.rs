//! Credentials and verifiers (RFC 5531, sections 8 and 10, appendix A).

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

/// AUTH_SYS credentials (RFC 5531, appendix A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthSys {
    /// Arbitrary, by the client.
    pub stamp: u32,
    /// The client's host name, at most 255 bytes.
    pub machine_name: Bytes,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Further groups, at most 16.
    pub gids: SmallVec<[u32; 16]>,
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
    /// A flavor that is not implemented here, as it came.
    Other {
        /// Flavor number.
        flavor: u32,
        /// Its body, at most 400 bytes.
        body: Bytes,
    },
}

/// Why authentication failed (`auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// Bad credential (seal broken).
    pub const BAD_CRED: Self = Self(1);
    /// The client must begin a new session.
    pub const REJECTED_CRED: Self = Self(2);
    /// Bad verifier.
    pub const BAD_VERF: Self = Self(3);
    /// Verifier expired or replayed.
    pub const REJECTED_VERF: Self = Self(4);
    /// Rejected for security reasons.
    pub const TOO_WEAK: Self = Self(5);
}

impl fmt::Display for AuthStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BAD_CRED => write!(f, "bad credential"),
            Self::REJECTED_CRED => write!(f, "credential rejected"),
            Self::BAD_VERF => write!(f, "bad verifier"),
            Self::REJECTED_VERF => write!(f, "verifier rejected"),
            Self::TOO_WEAK => write!(f, "credential too weak"),
            Self(other) => write!(f, "auth_stat {other}"),
        }
    }
}
