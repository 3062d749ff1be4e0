//! Options whose values a program can add to: features, policies of granting, settings.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Error, ValueEnum};
use rpc_transport::rdma::{ParseVersionError, Versions};
use rpcrdma_compare::Variant;
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::{Assignment, Catalog, Features, Grants, Tuning};

/// The value of `--set` that lists the settings.
const HELP: &str = "help";

/// Options of one end of connections over RDMA.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TuningArgs {
    /// Policy by which this end grants credits to its peer, at most those for which there are receives
    /// (their number is `--set credits=`). Default: all. `compare` takes several, separated by commas, and
    /// has rows for each, as for the variant wg:POLICY of --via
    #[arg(long, value_name = "POLICY", value_parser = grants, value_delimiter = ',')]
    pub(crate) credits: Vec<Grants>,

    /// Set a setting of connections over RDMA (repeatable): credits, inline thresholds, layout of receives,
    /// time-outs, ... `--set help` lists all, with units, bounds and defaults
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = SetParser(rpcrdma_compare::catalog()))]
    pub(crate) settings: Vec<Assignment>,
}

impl TuningArgs {
    /// Returns what is selected of the catalog.
    ///
    /// # Errors
    /// A setting is set twice, or there are several policies.
    pub(crate) fn tuning(&self, catalog: &Catalog) -> Result<Tuning, Failure> {
        if self.credits.len() > 1 {
            let text = "--credits: one policy, except with `compare`";
            return Err(Failure::usage(text));
        }
        self.tuning_without_variants(catalog)
    }

    /// Returns what is selected of the catalog. Several policies are not: each is for variants of its
    /// own ([`TuningArgs::variants`]).
    ///
    /// # Errors
    /// A setting is set twice.
    pub(crate) fn tuning_without_variants(&self, catalog: &Catalog) -> Result<Tuning, Failure> {
        let grants = match &*self.credits {
            [one] => Some(one.clone()),
            _ => None,
        };
        Tuning::new(catalog.clone(), grants, &self.settings)
    }

    /// Returns the variants of a comparison: if there are several policies, each over RDMA with each of
    /// them.
    pub(crate) fn variants(&self, via: Vec<Variant>) -> Vec<Variant> {
        if self.credits.len() < 2 {
            return via;
        }
        let mut variants = Vec::new();
        for variant in via {
            let with = self
                .credits
                .iter()
                .filter_map(|grants| variant.with_grants(grants));
            let before = variants.len();
            variants.extend(with);
            if variants.len() == before {
                variants.push(variant);
            }
        }
        variants
    }
}

/// Parses features of this project. Another parser takes its place where a program has more
/// ([`known`](super::known)).
pub(crate) fn features(text: &str) -> Result<Features, String> {
    Catalog::standard().parse_features(text)
}

fn grants(text: &str) -> Result<Grants, String> {
    Catalog::standard().parse_grants(text)
}

/// Parses versions of this project, separated by commas.
pub(crate) fn versions(names: &str) -> Result<Versions, ParseVersionError> {
    Catalog::standard().versions().parse_versions(names)
}

/// Parses a transport or variant of `--via`, which may be one that a program adds.
#[derive(Clone)]
pub(crate) struct ViaParser(pub(crate) Catalog);

impl TypedValueParser for ViaParser {
    type Value = Variant;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Variant, Error> {
        let text = value.to_string_lossy();
        let is_own = Variant::of_versions(&self.0).contains(&&*text);
        if is_own || text.contains(['+', ':']) {
            let catalog = self.0.clone();
            let parse = move |text: &str| Variant::parse(&catalog, text);
            return parse.parse_ref(command, arg, value);
        }
        EnumValueParser::<Variant>::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let standard = Variant::value_variants().iter();
        let standard = standard.filter_map(ValueEnum::to_possible_value);
        let own = Variant::of_versions(&self.0).into_iter();
        let own = own.map(|name| PossibleValue::new(name).help("A version of this program"));
        Some(Box::new(standard.chain(own)))
    }
}

/// Parses `--set`, where `help` ends the command as `--help` does.
#[derive(Clone)]
pub(super) struct SetParser(pub(super) Catalog);

impl TypedValueParser for SetParser {
    type Value = Assignment;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Assignment, Error> {
        if value == HELP {
            let settings = Command::new(HELP).override_help(self.0.settings_help());
            let shown = settings.try_get_matches_from([HELP, "--help"]).err();
            return Err(shown.unwrap_or_else(|| Error::new(ErrorKind::DisplayHelp)));
        }
        let catalog = self.0.clone();
        let parse = move |text: &str| catalog.parse_assignment(text);
        parse.parse_ref(command, arg, value)
    }
}
