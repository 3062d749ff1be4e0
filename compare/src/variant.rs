//! The transports and protocol variants that are compared with each other.

use serde::{Deserialize, Serialize};

use rpc_transport::rdma::{Accounting, Protocols, RdmaClientOptions, RdmaOptions, Version};
use rpcrdma_protocols::{Directions, Placing, RoundTripFeatures, placing};
use rpcrdma_setup::catalog::{Catalog, Features, Grants, Tuning};
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
    /// One that a program adds
    #[cfg_attr(feature = "clap", value(skip))]
    Added(&'static AddedVariant),
}

/// A variant of a program's own: one of this project whose ends have features of the program as well
/// (`wg+mine`), a version of the program, or either with a policy of granting credits (`wg:mine`).
#[derive(Debug)]
pub struct AddedVariant {
    name: String,
    /// The variant that it is otherwise like.
    like: Variant,
    /// The version, if it is not that of `like`.
    version: Option<Version>,
    features: Features,
    /// The policy by which both ends grant credits, if it is not that of all variants.
    grants: Option<Grants>,
}

impl PartialEq for AddedVariant {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for AddedVariant {}

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
    pub const EQUAL: [Self; 7] = [
        Self::V1Inv,
        Self::V2,
        Self::V2Ddp,
        Self::V2Cont,
        Self::V2DdpCont,
        Self::Wg,
        Self::WgDdp,
    ];

    /// Finds a variant by its name: one of this project, also with features that the catalog adds to
    /// those (`wg+mine`), or a version that it adds; any of them also with a policy of granting (`wg:all`).
    ///
    /// # Errors
    /// There is no such variant.
    pub fn parse(catalog: &Catalog, text: &str) -> Result<Self, String> {
        let Some((name, policy)) = text.split_once(':') else {
            return Self::parse_mode(catalog, text);
        };
        let variant = Self::parse_mode(catalog, name)?;
        let with = variant.with_grants(&catalog.parse_grants(policy)?);
        with.ok_or_else(|| format!("{text}: credits are of RPC-over-RDMA"))
    }

    /// Returns this variant with a policy by which both ends grant credits, in place of the one that all
    /// variants have; `None` for TCP.
    #[must_use]
    pub fn with_grants(self, grants: &Grants) -> Option<Self> {
        self.version()?;
        let (like, version, features) = match self {
            Self::Added(added) => (added.like, added.version, added.features.clone()),
            standard => (standard, None, Features::default()),
        };
        // Rows and reports have names for as long as the program runs.
        Some(Self::Added(Box::leak(Box::new(AddedVariant {
            name: format!("{}:{grants}", self.name()),
            like,
            version,
            features,
            grants: Some(grants.clone()),
        }))))
    }

    /// Returns whether the variant names a policy by which both ends grant credits.
    #[must_use]
    pub fn names_grants(self) -> bool {
        matches!(self, Self::Added(added) if added.grants.is_some())
    }

    /// Returns whether this is the given variant of this project, with whatever policy of granting.
    pub(crate) fn is_like(self, standard: Self) -> bool {
        match self {
            Self::Added(added) if added.version.is_none() && added.features.is_none() => {
                added.like == standard
            }
            own => own == standard,
        }
    }

    /// Finds a variant by its name without a policy of granting.
    fn parse_mode(catalog: &Catalog, text: &str) -> Result<Self, String> {
        let (name, added) = text.split_once('+').unwrap_or((text, ""));
        let standard = Self::ALL.into_iter().find(|known| known.name() == name);
        let version = catalog
            .added_versions()
            .find(|version| version.name() == name);
        let version = version.filter(|_| standard.is_none());
        let Some(like) = standard.or(version.map(|_| Self::V2)) else {
            let names = Self::ALL.iter().map(|known| known.name());
            let names = names.chain(Self::of_versions(catalog));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(format!("no variant {name:?}; there are: {names}"));
        };
        if added.is_empty() && version.is_none() && name == text {
            return Ok(like);
        }
        let features = match name == text {
            true => Features::default(),
            false => catalog.parse_features(added)?,
        };
        if features.round_trips() != RoundTripFeatures::default() || added == "none" {
            let ddp = "the features of this project make variants of their own, such as wg-ddp";
            return Err(format!("{text}: {ddp}"));
        }
        if like == Self::Tcp {
            return Err(format!("{text}: features are of RPC-over-RDMA"));
        }
        Ok(Self::Added(Box::leak(Box::new(AddedVariant {
            name: text.to_owned(),
            like,
            version,
            features,
            grants: None,
        }))))
    }

    /// Returns the names of the variants that are versions which the catalog adds.
    #[must_use]
    pub fn of_versions(catalog: &Catalog) -> Vec<&'static str> {
        catalog.added_versions().map(Version::name).collect()
    }

    /// Returns whether receives can have this length. Those of version 2 have at least 4096 bytes
    /// (version-two-01, section 2.3).
    pub(crate) fn can_have(self, size: u32) -> bool {
        self.version().is_some_and(|version| {
            let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
            self.configure(&mut options, Receives::Equal(size), &Tuning::default());
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
            Self::Added(added) => &added.name,
        }
    }

    /// Returns the baseline among some variants: the one that all are compared with. It is version 1
    /// as Linux uses it, or else without remote invalidation; with several policies of granting, by the
    /// first of them. Without version 1, it is the first variant.
    #[must_use]
    pub fn baseline(among: &[Self]) -> Option<Self> {
        let first = |wanted| among.iter().find(|of| of.is_like(wanted));
        let found = [Self::V1Inv, Self::V1].into_iter().find_map(first);
        found.or(among.first()).copied()
    }

    /// Returns the version of RPC-over-RDMA, or `None` for TCP.
    pub(crate) fn version(self) -> Option<Version> {
        match self {
            Self::Tcp => None,
            Self::V1 | Self::V1Inv | Self::V1Long => Some(Version::ONE),
            Self::V2 | Self::V2Ddp | Self::V2Cont | Self::V2DdpCont => Some(Version::TWO),
            Self::Wg | Self::WgDdp => Some(Version::TWO_WG),
            Self::Added(added) => added.version.or_else(|| added.like.version()),
        }
    }

    /// Returns whether the version has messages that only grant credits, as it counts messages.
    pub(crate) fn has_grants(self, tuning: &Tuning) -> bool {
        let protocols = self.protocols(tuning.settings.placing(), tuning);
        let accounting = self
            .version()
            .and_then(|version| protocols.accounting(version));
        matches!(accounting, Some(Accounting::Messages(_)))
    }

    /// Sets the options of either end, with those that all variants have in common. All differences
    /// between the variants of RPC-over-RDMA are here.
    pub(crate) fn configure(self, options: &mut RdmaOptions, receives: Receives, tuning: &Tuning) {
        let like = match self {
            Self::Added(added) => added.like,
            standard => standard,
        };
        options.remote_invalidation = like != Self::V1;
        let mut lengths = tuning.settings.placing();
        let size = match (receives, like) {
            (Receives::Equal(size), _) => {
                // Placement does not make receives longer.
                lengths.target = 0;
                size
            }
            (Receives::Usual(inline), Self::V1Long) => placing_receives(inline, tuning),
            (Receives::Usual(_), Self::Tcp | Self::V1 | Self::V1Inv) => RdmaOptions::DEFAULT_INLINE,
            (Receives::Usual(inline), _) => inline,
        };
        options.protocols = self.protocols(lengths, tuning);
        InlineSizes::both(size).apply(options);
        tuning.apply(options);
        if let Self::Added(AddedVariant {
            grants: Some(grants),
            ..
        }) = self
        {
            grants.apply(options, &tuning.settings);
        }
        if let Receives::Equal(size) = receives {
            // A setting must not change the length that is being tried.
            InlineSizes::both(size).apply(options);
        }
    }

    /// Returns the protocols of both ends: those of the variant, and the versions that a program adds.
    fn protocols(self, lengths: Placing, tuning: &Tuning) -> Protocols {
        let features = match self {
            Self::Added(added) => added.features.with_round_trips(self.features()),
            standard => Features::from(standard.features()),
        };
        let protocols = placing(&features.round_trips(), lengths);
        (tuning.catalog).with_added(protocols, &features, &tuning.settings)
    }

    /// Returns the length of the longest message without chunks in bytes, including the data placed
    /// by Sends.
    pub(crate) fn longest_inline(self, receives: Receives, tuning: &Tuning) -> Option<u32> {
        let version = self.version()?;
        let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
        self.configure(&mut options, receives, tuning);
        Some(longest_inline(&options, version))
    }

    /// Returns the features for fewer round trips that both ends use.
    pub(crate) fn features(self) -> RoundTripFeatures {
        if let Self::Added(added) = self {
            return added.like.features();
        }
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
fn placing_receives(inline: u32, tuning: &Tuning) -> u32 {
    let mut options = RdmaClientOptions::new(rpcrdma_protocols::base()).common;
    Variant::V2Ddp.configure(&mut options, Receives::Usual(inline), tuning);
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
    pub(crate) fn parse(catalog: &Catalog, text: &str) -> Option<Self> {
        match text {
            Self::FLOOR => Some(Self::Baseline),
            _ => Variant::parse(catalog, text).ok().map(Self::Nfs),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rpc_transport::rdma::{GrantAll, GrantPolicy, MakeGrantPolicy};
    use rpcrdma_connection::dialect::{Derived, Dialect, Negotiable, VersionTwo, VersionTwoWg};
    use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};
    use rpcrdma_protocols::Side;

    use super::*;

    #[test]
    fn the_baseline_is_version_1_as_linux_uses_it_if_that_is_measured() {
        assert_eq!(Variant::baseline(&Variant::ALL), Some(Variant::V1Inv));
        assert_eq!(
            Variant::baseline(&[Variant::V2, Variant::V1]),
            Some(Variant::V1)
        );
        let first = Variant::baseline(&[Variant::V2, Variant::Tcp]);
        assert_eq!(first, Some(Variant::V2));
        assert_eq!(Variant::baseline(&[]), None);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for variant in Variant::ALL {
            let read = Serves::parse(&Catalog::standard(), variant.name());
            assert_eq!(read, Some(Serves::Nfs(variant)));
        }
        assert_eq!(
            Serves::parse(&Catalog::standard(), "floor"),
            Some(Serves::Baseline)
        );
    }

    #[test]
    fn receives_that_bulk_data_is_placed_in_are_longer() {
        let sizes = |inline| {
            let receives = Receives::Usual(inline);
            let of = [Variant::Tcp, Variant::V1, Variant::V2, Variant::V2DdpCont];
            let usual = Tuning::default();
            assert_eq!(Variant::Wg.longest_inline(receives, &usual), Some(inline));
            of.map(|variant| variant.longest_inline(receives, &usual))
        };
        assert_eq!(sizes(8192), [None, Some(4096), Some(8192), Some(65 << 10)]);
        // The receives have 4096 bytes, of which messages without placement take a quarter.
        assert_eq!(sizes(1024), [None, Some(4096), Some(1024), Some(65 << 10)]);
    }

    #[test]
    fn version_1_can_have_receives_as_long_as_those_for_placement() {
        for inline in [1024, 4096, 128 << 10] {
            let usual = Tuning::default();
            let length = |variant: Variant| variant.longest_inline(Receives::Usual(inline), &usual);
            assert_eq!(length(Variant::V1Long), length(Variant::V2DdpCont));
            assert_eq!(length(Variant::V1Inv), Some(4096));
        }
    }

    #[test]
    fn receives_of_one_length_are_equal_in_all_variants_and_take_as_much_memory() {
        let usual = Tuning::default();
        for size in [4096, 16 << 10, 65 << 10, 256 << 10] {
            for variant in Variant::ALL.into_iter().skip(1) {
                let longest = variant.longest_inline(Receives::Equal(size), &usual);
                assert_eq!(longest, Some(size));
                let mut options = RdmaOptions::server(rpcrdma_protocols::base());
                variant.configure(&mut options, Receives::Equal(size), &usual);
                let longest = options.longest_receives(|known| Some(known) == variant.version());
                assert_eq!(longest.size(), size as usize, "{variant:?}");
            }
        }
        let short = |variant: Variant| variant.longest_inline(Receives::Equal(1024), &usual);
        assert_eq!(short(Variant::V1Inv), Some(1024));
    }

    #[test]
    fn settings_do_not_change_receives_of_one_length() {
        let catalog = Catalog::standard();
        let set = ["inline-send=16k", "inline-receive=16k", "max-receive=64k"];
        let set = set.map(|text| catalog.parse_assignment(text).unwrap());
        let tuning = Tuning::new(catalog, None, &set).unwrap();
        for variant in Variant::EQUAL {
            let longest = |receives| variant.longest_inline(receives, &tuning);
            assert_eq!(longest(Receives::Equal(4096)), Some(4096), "{variant:?}");
        }
        let usual = Variant::V1Inv.longest_inline(Receives::Usual(4096), &tuning);
        assert_eq!(usual, Some(16 << 10));
    }

    #[test]
    fn an_unknown_variant_is_not_served() {
        assert!(Serves::parse(&Catalog::standard(), "v9").is_none());
    }

    /// A factory that makes nothing, and asks for long messages.
    #[derive(Debug)]
    struct Mine;

    impl ExtensionFactory for Mine {
        fn make(&self, _: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
            None
        }

        fn max_send(&self) -> u32 {
            7 << 20
        }
    }

    #[test]
    fn features_of_a_program_make_variants() {
        let catalog = Catalog::standard().with_feature("mine", "", |protocols, _| {
            protocols.with(Version::TWO_WG, Arc::new(Mine))
        });
        let mine = Variant::parse(&catalog, "wg-ddp+mine").unwrap();
        assert_eq!(
            (mine.name(), mine.version()),
            ("wg-ddp+mine", Some(Version::TWO_WG))
        );
        assert_eq!(mine.features(), Variant::WgDdp.features());
        assert_eq!(
            Serves::parse(&catalog, "wg-ddp+mine"),
            Some(Serves::Nfs(mine))
        );
        let tuning = Tuning::of(catalog.clone());
        let longest = |variant: Variant| {
            let mut options = RdmaOptions::server(rpcrdma_protocols::base());
            variant.configure(&mut options, Receives::Usual(4096), &tuning);
            options.protocols.max_send(|_| true)
        };
        assert_eq!((longest(mine), longest(Variant::Wg)), (7 << 20, 0));
        for (wrong, said) in [
            ("v9+mine", "no variant \"v9\"; there are: tcp, v1,"),
            ("wg+yours", "no feature \"yours\""),
            ("wg+", "no feature \"\""),
            ("wg+ddp", "such as wg-ddp"),
            ("tcp+mine", "of RPC-over-RDMA"),
        ] {
            let refused = Variant::parse(&catalog, wrong).unwrap_err();
            assert!(refused.contains(said), "{wrong}: {refused}");
        }
    }

    /// Another version with a number of its own.
    #[derive(Clone, Debug)]
    struct Like(Version, &'static dyn Dialect);

    impl Negotiable for Like {
        fn version(&self) -> Version {
            self.0
        }
    }

    impl Derived for Like {
        fn base(&self) -> &'static dyn Dialect {
            self.1
        }
    }

    #[test]
    fn versions_that_count_messages_have_grants() {
        static THIRD: Like = Like(Version::new(3, "third"), &VersionTwo);
        static FOURTH: Like = Like(Version::new(4, "fourth"), &VersionTwoWg);
        let catalog = Catalog::standard().with_version(&THIRD);
        let tuning = Tuning::of(catalog.with_version(&FOURTH));
        for (name, has_grants) in [
            ("tcp", false),
            ("v2-ddp-cont", false),
            ("third", false),
            ("wg-ddp", true),
            ("fourth", true),
        ] {
            let variant = Variant::parse(&tuning.catalog, name).unwrap();
            assert_eq!(variant.has_grants(&tuning), has_grants, "{name}");
        }
    }

    #[test]
    fn variants_have_policies_of_granting_of_their_own() {
        let catalog = Catalog::standard().with_grants("half", "", |_| Half);
        let parsed = |text: &str| Variant::parse(&catalog, text);
        let (all, own) = (
            parsed("v1-inv:all").unwrap(),
            parsed("v1-inv:half").unwrap(),
        );
        assert_eq!((all.name(), own.name()), ("v1-inv:all", "v1-inv:half"));
        assert_eq!(own.version(), Some(Version::ONE));
        let served = Serves::parse(&catalog, "wg-ddp:half").unwrap();
        assert!(matches!(served, Serves::Nfs(wg) if wg.features() == Variant::WgDdp.features()));
        let grants = |variant: Variant| {
            let mut options = RdmaOptions::server(rpcrdma_protocols::base());
            let tuning = Tuning::of(catalog.clone());
            variant.configure(&mut options, Receives::Usual(4096), &tuning);
            format!("{:?}", options.grants)
        };
        assert_eq!((&*grants(all), &*grants(own)), ("GrantAll", "Half"));
        assert_eq!(grants(Variant::V1Inv), "GrantAll");
        let baseline = |among: &[Variant]| Variant::baseline(among).map(Variant::name);
        assert_eq!(baseline(&[Variant::Wg, own, all]), Some("v1-inv:half"));
        assert_eq!(baseline(&[own, Variant::V1Inv]), Some("v1-inv:half"));
        assert_eq!(baseline(&[Variant::Wg]), Some("wg"));
        let of_wg = ["wg:half", "wg:all"].map(|text| parsed(text).unwrap());
        assert_eq!(baseline(&of_wg), Some("wg:half"));
        for (wrong, said) in [
            ("wg:quarter", "there are: all, half"),
            ("tcp:half", "of RPC-over-RDMA"),
            ("v9:half", "no variant \"v9\""),
        ] {
            let refused = parsed(wrong).unwrap_err();
            assert!(refused.contains(said), "{wrong}: {refused}");
        }
    }

    #[derive(Debug)]
    struct Half;

    impl MakeGrantPolicy for Half {
        fn make(&self, side: Side) -> Box<dyn GrantPolicy> {
            GrantAll.make(side)
        }
    }

    #[test]
    fn settings_hold_for_all_variants() {
        let catalog = Catalog::standard();
        let set = ["credits=3", "head=2k", "target=128k"];
        let set = set.map(|text| catalog.parse_assignment(text).unwrap());
        let tuning = Tuning::new(catalog, None, &set).unwrap();
        for variant in Variant::ALL.into_iter().skip(1) {
            let mut options = RdmaOptions::server(rpcrdma_protocols::base());
            variant.configure(&mut options, Receives::Usual(4096), &tuning);
            assert_eq!(options.credits, 3);
            let lengths: Vec<usize> = options.receives(|_| true).lengths().collect();
            match variant {
                Variant::V1Long => assert_eq!(lengths, [130 << 10]),
                _ if variant.features().ddp.receive => assert_eq!(lengths, [2048, 128 << 10]),
                _ => assert_eq!(lengths, [4096]),
            }
        }
    }
}
