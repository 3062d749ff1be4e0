//! The versions of RPC-over-RDMA that cases speak.

use crate::wire::{Reader, v1, v2, wg};

/// A version of RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Version 1 (RFC 8166).
    One,
    /// Version 2 of 2016 (draft-cel-nfsv4-rpcrdma-version-two-01), with xcharext-02 and rtrext-00.
    Two,
    /// The working group's version 2 (draft-ietf-nfsv4-rpcrdma-version-two-07).
    Wg,
}

impl Dialect {
    /// All versions, in the order in which a server is judged.
    pub const ALL: [Self; 3] = [Self::One, Self::Wg, Self::Two];

    /// Returns the value of `rdma_vers`.
    #[must_use]
    pub fn version(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => v2::VERSION,
            Self::Wg => wg::VERSION,
        }
    }

    /// Returns the document, as sections name it.
    #[must_use]
    pub fn document(self) -> &'static str {
        match self {
            Self::One => "RFC 8166",
            Self::Two => "version-two-01",
            Self::Wg => "version-two-07",
        }
    }

    /// Returns the name in reports, which for version 1 covers several RFCs.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::One => "rpcrdma1",
            Self::Two => "rpcrdma2-01",
            Self::Wg => "rpcrdma2-07",
        }
    }

    /// Returns the name in commands that are told a version, as this project's `rpcrdma=` has it.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::One => "1",
            Self::Two => "2",
            Self::Wg => "2wg",
        }
    }

    /// Returns the version of a message that begins a connection. Both versions 2 have the same number, so that the
    /// header type decides. Returns `None` if that is one of both, or of neither.
    #[must_use]
    pub fn of_first(message: &[u8]) -> Option<Self> {
        let mut from = Reader(message);
        let (_, version, _, htype) = (from.word()?, from.word()?, from.word()?, from.word()?);
        match (version, htype) {
            (1, _) => Some(Self::One),
            (2, wg::GRANT) if message.len() == wg::PREFIX => Some(Self::Wg),
            (2, v1::MSG | v1::NOMSG | v2::OPTIONAL) => Some(Self::Two),
            (2, wg::CONNPROP_MIDDLE..=wg::REPLY_INLINE) => Some(Self::Wg),
            _ => None,
        }
    }

    /// Returns the name of the header type of errors.
    #[must_use]
    pub fn error_kind(self) -> &'static str {
        match self {
            Self::One => "RDMA_ERROR",
            Self::Two | Self::Wg => "RDMA2_ERROR",
        }
    }

    /// Describes an error by the words that follow its header type.
    #[must_use]
    pub fn error_name(self, words: &[u32]) -> String {
        let code = words.first().copied();
        let name = match (self, code) {
            (_, Some(v1::ERR_VERS)) => Some("VERS"),
            (Self::One, Some(v1::ERR_CHUNK)) => Some("CHUNK"),
            (Self::Two, Some(v2::ERR_BAD_HEADER)) => Some("BAD_HEADER"),
            (Self::Two, Some(v2::ERR_INVAL_OPTION)) => Some("INVAL_OPTION"),
            (Self::One | Self::Two, _) | (_, None) => None,
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
            Self::Two => "RPC-over-RDMA version 2 of version-two-01",
            Self::Wg => "RPC-over-RDMA version 2 of version-two-07",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;

    #[test]
    fn the_first_message_tells_the_version() {
        let call = rpc::null(7).bytes();
        let first = |message: &[u8]| Dialect::of_first(message);
        assert_eq!(first(&v1::header(7).with(&call)), Some(Dialect::One));
        assert_eq!(first(&v2::plain(7, v2::CALL, &call)), Some(Dialect::Two));
        let exchange = v2::operation(7, v2::CALL, v2::INITXCH, &[0, 0], &[]);
        assert_eq!(first(&exchange), Some(Dialect::Two));
        assert_eq!(first(&wg::call(7, &call)), Some(Dialect::Wg));
        assert_eq!(first(&wg::introduction(&[0])), Some(Dialect::Wg));
        assert_eq!(first(&wg::grant(9)), Some(Dialect::Wg));
        assert_eq!(first(&wg::error(7, &[1])), None);
        assert_eq!(first(&call[..12]), None);
    }
}
