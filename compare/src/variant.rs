//! The transports and protocol variants that are compared with each other.

use serde::{Deserialize, Serialize};

use rpc_transport::rdma::{RdmaClientOptions, RdmaOptions, Version};
use rpcrdma_protocols::{Directions, RoundTripFeatures, TARGET, placing_from};
use rpcrdma_setup::inline::InlineSizes;

/// A transport or protocol variant that carries NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Variant {
    /// ONC RPC over TCP
    Tcp,
    /// RPC-over-RDMA version 1; the client invalidates its registrations
    V1,
    /// Version 1 with remote invalidation (Send With Invalidate), where the server supports it in
    /// its replies
    V1Inv,
    /// Version 1 with remote invalidation, and receives as long as those of version 2 with placement
    V1Long,
    /// Version 2 without features for fewer round trips; like all of version 2 here with remote
    /// invalidation
    V2,
    /// Version 2 with send-based direct data placement
    V2Ddp,
    /// Version 2 with message continuation
    V2Cont,
    /// Version 2 with both of them
    V2DdpCont,
    /// Version 2 of the working group (version-two-07), where message continuation and remote
    /// invalidation belong to the protocol
    Wg,
    /// The working group's version 2 with send-based data placement as an extension
    WgDdp,
}

impl Variant {
    /// All variants, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::Tcp,
        Self::V1,
        Self::V1Inv,
        Self::V1Long,
        Self::V2,
        Self::V2Ddp,
        Self::V2Cont,
        Self::V2DdpCont,
        Self::Wg,
        Self::WgDdp,
    ];

    /// The variants that are compared with receives of equal length, unless others are asked for.
    pub(crate) const EQUAL: [Self; 7] = [
        Self::V1Inv,
        Self::V2,
        Self::V2Ddp,
        Self::V2Cont,
        Self::V2DdpCont,
        Self::Wg,
        Self::WgDdp,
    ];

    /// Returns whether receives can have this length. Those of version 2 have at least 4096 bytes
    /// (version-two-01, section 2.3).
    pub(crate) fn can_have(self, size: u32) -> bool {
        self.version().is_some_and(|version| {
            let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
            self.configure(&mut options, Receives::Equal(size));
            receive_size(&options, version) == size
        })
    }

    /// Returns the name in options, tables and rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::V1 => "v1",
            Self::V1Inv => "v1-inv",
            Self::V1Long => "v1-long",
            Self::V2 => "v2",
            Self::V2Ddp => "v2-ddp",
            Self::V2Cont => "v2-cont",
            Self::V2DdpCont => "v2-ddp-cont",
            Self::Wg => "wg",
            Self::WgDdp => "wg-ddp",
        }
    }

    /// Returns the baseline among some variants: the one that all are compared with. It is version 1
    /// as Linux uses it, or else without remote invalidation.
    #[must_use]
    pub fn baseline(among: &[Self]) -> Option<Self> {
        let measured = |variant: &Self| among.contains(variant);
        [Self::V1Inv, Self::V1].into_iter().find(measured)
    }

    /// Returns the version of RPC-over-RDMA, or `None` for TCP.
    pub(crate) fn version(self) -> Option<Version> {
        match self {
            Self::Tcp => None,
            Self::V1 | Self::V1Inv | Self::V1Long => Some(Version::ONE),
            Self::V2 | Self::V2Ddp | Self::V2Cont | Self::V2DdpCont => Some(Version::TWO),
            Self::Wg | Self::WgDdp => Some(Version::TWO_WG),
        }
    }

    /// Returns whether the version has messages that only grant credits.
    pub(crate) fn has_grants(self) -> bool {
        self.version() == Some(Version::TWO_WG)
    }

    /// Sets the options of either end. All differences between the variants of RPC-over-RDMA are
    /// here.
    pub(crate) fn configure(self, options: &mut RdmaOptions, receives: Receives) {
        options.remote_invalidation = self != Self::V1;
        let mut least_placement = TARGET;
        let size = match (receives, self) {
            (Receives::Equal(size), _) => {
                // Placement does not make receives longer.
                least_placement = 0;
                size
            }
            (Receives::Usual(inline), Self::V1Long) => placing_receives(inline),
            (Receives::Usual(_), Self::Tcp | Self::V1 | Self::V1Inv) => RdmaOptions::DEFAULT_INLINE,
            (Receives::Usual(inline), _) => inline,
        };
        options.protocols = placing_from(&self.features(), least_placement);
        InlineSizes::both(size).apply(options);
    }

    /// Returns the length of the longest message without chunks in bytes, including the data placed
    /// by Sends.
    pub(crate) fn longest_inline(self, receives: Receives) -> Option<u32> {
        let version = self.version()?;
        let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
        self.configure(&mut options, receives);
        Some(longest_inline(&options, version))
    }

    /// Returns the features for fewer round trips that both ends use.
    pub(crate) fn features(self) -> RoundTripFeatures {
        let mut features = RoundTripFeatures::default();
        if matches!(self, Self::V2Ddp | Self::V2DdpCont | Self::WgDdp) {
            features.ddp = Directions::BOTH;
        }
        if matches!(self, Self::V2Cont | Self::V2DdpCont) {
            features.cont = Directions::BOTH;
        }
        features
    }
}

/// The lengths of receives in a comparison, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Receives {
    /// The usual ones of each variant: those of Linux in version 1, this inline threshold in
    /// version 2, and at least 65 KiB with placement.
    Usual(u32),
    /// One length in all variants. Receives of version 2 have at least 4096 bytes.
    Equal(u32),
}

/// Returns the length of receives of version 2 with placement and this inline threshold, in bytes.
fn placing_receives(inline: u32) -> u32 {
    let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
    Variant::V2Ddp.configure(&mut options, Receives::Usual(inline));
    options.receives(|_| true).len()
}

/// Returns the length in bytes of each receive of a connection that may speak only this version.
fn receive_size(options: &RdmaOptions, version: Version) -> u32 {
    options.receives(|known| known == version).len()
}

/// Returns the length in bytes of the longest message without chunks if both ends have these
/// options. It fills a receive, unless this end sends less: receives of version 2 are never shorter
/// than 4096 bytes. With placement, a Send is as long as the peer's receives.
pub(crate) fn longest_inline(options: &RdmaOptions, version: Version) -> u32 {
    let receive = receive_size(options, version);
    match options.protocols.max_send(|known| known == version) > 0 {
        true => receive,
        false => receive.min(options.inline_send),
    }
}

/// The service of a process that `compare` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Raw TCP exchanges, the baseline.
    Baseline,
    /// NFS over this transport or variant.
    Nfs(Variant),
}

impl Serves {
    /// The baseline's name on the command line.
    pub(crate) const FLOOR: &'static str = "floor";

    /// Parses the name on the command line, or returns `None` for an unknown one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            Self::FLOOR => Some(Self::Baseline),
            _ => {
                let named = |variant: &Variant| variant.name() == text;
                Variant::ALL.into_iter().find(named).map(Self::Nfs)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_version_1_as_linux_uses_it_if_that_is_measured() {
        assert_eq!(Variant::baseline(&Variant::ALL), Some(Variant::V1Inv));
        assert_eq!(
            Variant::baseline(&[Variant::V2, Variant::V1]),
            Some(Variant::V1)
        );
        assert_eq!(Variant::baseline(&[Variant::Tcp, Variant::V2]), None);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for variant in Variant::ALL {
            let read = Serves::parse(variant.name());
            assert_eq!(read, Some(Serves::Nfs(variant)));
        }
        assert_eq!(Serves::parse("floor"), Some(Serves::Baseline));
    }

    #[test]
    fn receives_that_bulk_data_is_placed_in_are_longer() {
        let sizes = |inline| {
            let receives = Receives::Usual(inline);
            let of = [Variant::Tcp, Variant::V1, Variant::V2, Variant::V2DdpCont];
            assert_eq!(Variant::Wg.longest_inline(receives), Some(inline));
            of.map(|variant| variant.longest_inline(receives))
        };
        assert_eq!(sizes(8192), [None, Some(4096), Some(8192), Some(65 << 10)]);
        // The receives have 4096 bytes, of which messages without placement take a quarter.
        assert_eq!(sizes(1024), [None, Some(4096), Some(1024), Some(65 << 10)]);
    }

    #[test]
    fn version_1_can_have_receives_as_long_as_those_for_placement() {
        for inline in [1024, 4096, 128 << 10] {
            let length = |variant: Variant| variant.longest_inline(Receives::Usual(inline));
            assert_eq!(length(Variant::V1Long), length(Variant::V2DdpCont));
            assert_eq!(length(Variant::V1Inv), Some(4096));
        }
    }

    #[test]
    fn receives_of_one_length_are_equal_in_all_variants_and_take_as_much_memory() {
        for size in [4096, 16 << 10, 65 << 10, 256 << 10] {
            for variant in Variant::ALL.into_iter().skip(1) {
                assert_eq!(variant.longest_inline(Receives::Equal(size)), Some(size));
                let mut options = RdmaOptions::server(rpcrdma_protocols::base());
                variant.configure(&mut options, Receives::Equal(size));
                let longest = options.longest_receives(variant.version() != Some(Version::ONE));
                assert_eq!(longest.size(), size as usize, "{variant:?}");
            }
        }
        let short = |variant: Variant| variant.longest_inline(Receives::Equal(1024));
        assert_eq!(short(Variant::V1Inv), Some(1024));
    }

    #[test]
    fn an_unknown_variant_is_not_served() {
        assert!(Serves::parse("v9").is_none());
    }
}
