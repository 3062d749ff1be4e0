//! The versions of RPC-over-RDMA that cases speak.

use crate::wire::{v1, wg};

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Version 1 (RFC 8166).
    One,
    /// The working group's version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).
    Wg,
}

impl Dialect {
    /// All versions, in the order in which a server is judged.
    pub const ALL: [Self; 2] = [Self::One, Self::Wg];

    /// Returns the value of `rdma_vers`.
    #[must_use]
    pub fn version(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Wg => wg::VERSION,
        }
    }

    /// Returns the document, as sections name it.
    #[must_use]
    pub fn document(self) -> &'static str {
        match self {
            Self::One => "RFC 8166",
            Self::Wg => "version-two-07",
        }
    }

    /// Returns the beginning of the addresses of its cases, or, for version 1, the one that stands for all of its
    /// documents.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::One => "rpcrdma1",
            Self::Wg => "rpcrdma2-07",
        }
    }

    /// Describes an error by the words that follow its header type.
    #[must_use]
    pub fn error_name(self, words: &[u32]) -> String {
        let code = words.first().copied();
        let name = match (self, code) {
            (_, Some(v1::ERR_VERS)) => Some("VERS"),
            (Self::One, Some(v1::ERR_CHUNK)) => Some("CHUNK"),
            (Self::One, _) | (_, None) => None,
            (Self::Wg, Some(code)) => wg::error_name(code),
        };
        match (name, words) {
            (Some(name), [_, low, high]) if name == "VERS" => {
                format!("ERR_{name}, versions {low} to {high}")
            }
            (Some(name), [_]) => format!("ERR_{name}"),
            (Some(name), [_, rest @ ..]) => {
                format!("ERR_{name}, {:?}", &rest[..rest.len().min(8)])
            }
            _ => format!("words {:x?}", &words[..words.len().min(8)]),
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::One => "RPC-over-RDMA version 1",
            Self::Wg => "RPC-over-RDMA version 2 of version-two-07",
        })
    }
}
