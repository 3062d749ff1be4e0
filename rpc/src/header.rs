//! ONC RPC call and reply headers (RFC 5531, section 9).

use std::fmt;

/// Status of an accepted call (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// The procedure ran; results follow.
    Success,
    /// The program is not here.
    ProgUnavail,
    /// The program is here, in other versions.
    ProgMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments could not be decoded.
    GarbageArgs,
    /// Memory allocation failure and the like.
    SystemErr,
}

impl fmt::Display for AcceptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => write!(f, "success"),
            Self::ProgUnavail => write!(f, "program unavailable"),
            Self::ProgMismatch { low, high } => {
                write!(
                    f,
                    "program version mismatch: the server has {low} to {high}"
                )
            }
            Self::ProcUnavail => write!(f, "procedure unavailable"),
            Self::GarbageArgs => write!(f, "arguments could not be decoded"),
            Self::SystemErr => write!(f, "system error on the server"),
        }
    }
}
