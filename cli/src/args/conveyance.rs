//! The ways of carrying NFS that are measured against each other.

use clap::ValueEnum;
use rpc_transport::rdma::{RdmaOptions, Version};

/// A way of carrying NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conveyance {
    /// ONC RPC over TCP
    Tcp,
    /// RPC-over-RDMA version 1; the client invalidates what it registered
    V1,
    /// Version 1 with remote invalidation, where the server asks for it in its reply's Send
    V1Inv,
    /// Version 2 without what moves messages in other ways than version 1; like all of version 2
    /// here with remote invalidation
    V2,
}

impl Conveyance {
    /// Its name in options, tables and rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::V1 => "v1",
            Self::V1Inv => "v1-inv",
            Self::V2 => "v2",
        }
    }

    /// The version of RPC-over-RDMA, if it is that.
    pub(crate) fn version(self) -> Option<Version> {
        match self {
            Self::Tcp => None,
            Self::V1 | Self::V1Inv => Some(Version::One),
            Self::V2 => Some(Version::Two),
        }
    }

    /// Bytes of receives, when version 2 is to have `inline`.
    pub(crate) fn inline(self, inline: u32) -> Option<u32> {
        match self.version()? {
            Version::One => Some(RdmaOptions::DEFAULT_INLINE),
            Version::Two => Some(inline),
        }
    }

    /// Sets the options of either end. All that makes one conveyance of RPC-over-RDMA another is
    /// here; version 2 has receives of `inline` bytes.
    pub(crate) fn configure(self, options: &mut RdmaOptions, inline: u32) {
        if let Some(inline) = self.inline(inline) {
            options.inline_send = inline;
            options.inline_receive = inline;
        }
        options.remote_invalidation = self != Self::V1;
    }
}

/// What a process that `compare` starts serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Raw TCP exchanges.
    Floor,
    /// NFS.
    Nfs(Conveyance),
}

impl Serves {
    /// The floor's name.
    pub(crate) const FLOOR: &'static str = "floor";

    /// From its name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            Self::FLOOR => Ok(Self::Floor),
            _ => Conveyance::from_str(text, false).map(Self::Nfs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_option() {
        for &conveyance in Conveyance::value_variants() {
            let value = conveyance.to_possible_value().unwrap();
            assert_eq!(value.get_name(), conveyance.name());
            assert_eq!(
                Serves::parse(conveyance.name()),
                Ok(Serves::Nfs(conveyance))
            );
        }
        assert_eq!(Serves::parse("floor"), Ok(Serves::Floor));
        assert!(Serves::parse("v9").is_err());
    }
}
