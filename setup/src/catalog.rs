//! The names that options resolve: versions, features, policies of granting, settings, programs.
//!
//! [`Catalog::standard`] has those of this project. A program adds its own, which every option and
//! every command of it then knows as well: the core has no other list of names.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rpcrdma_setup::catalog::{Catalog, Tuning};
//! use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};
//! use rpc_transport::rdma::Version;
//!
//! #[derive(Debug)]
//! struct Mine;
//!
//! impl ExtensionFactory for Mine {
//!     fn make(&self, _: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
//!         None
//!     }
//! }
//!
//! let catalog = Catalog::standard().with_feature("mine", "does nothing", |protocols, _| {
//!     protocols.with(Version::TWO_WG, Arc::new(Mine))
//! });
//! let features = catalog.parse_features("ddp+mine")?;
//! let tuning = Tuning::of(catalog);
//! assert_eq!(tuning.protocols(&features).to_string(), "ddp+mine");
//! let unknown = tuning.catalog.parse_features("yours").unwrap_err();
//! assert!(unknown.starts_with("no feature \"yours\": write none, ddp, cont, mine, or several"));
//! # Ok::<(), String>(())
//! ```

use std::fmt;
use std::sync::Arc;

use rpc_transport::rdma::{
    GrantAll, KnownVersions, MakeGrantPolicy, RdmaClientOptions, RdmaOptions, RdmaServerOptions,
    Version,
};
use rpcrdma_programs::workload::Workload;
use rpcrdma_protocols::{Dialect, Protocols, RoundTripFeatures, Side, UnknownFeature};

use crate::Failure;
use crate::settings::{self, Setting, Settings};

/// A function that adds a feature to protocols. It is given the settings of the end, for those of
/// its own.
type Add = dyn Fn(Protocols, &Settings) -> Protocols + Send + Sync;

/// A feature that a program adds to those of this project.
#[derive(Clone)]
pub struct AddedFeature {
    name: &'static str,
    help: &'static str,
    add: Arc<Add>,
}

impl fmt::Debug for AddedFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The features of one end: those of this project for fewer round trips, and a program's own.
/// Formatted as in options, `ddp+cont+mine`.
#[derive(Clone, Debug, Default)]
pub struct Features {
    round_trips: RoundTripFeatures,
    added: Vec<AddedFeature>,
}

impl Features {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.round_trips.is_none() && self.added.is_empty()
    }

    /// Returns those of this project.
    #[must_use]
    pub fn round_trips(&self) -> RoundTripFeatures {
        self.round_trips
    }

    /// Returns those of the program, with these of this project.
    #[must_use]
    pub fn with_round_trips(&self, round_trips: RoundTripFeatures) -> Self {
        let added = self.added.clone();
        Self { round_trips, added }
    }
}

impl From<RoundTripFeatures> for Features {
    fn from(round_trips: RoundTripFeatures) -> Self {
        let added = Vec::new();
        Self { round_trips, added }
    }
}

impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Features {}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.round_trips.is_none() || self.added.is_empty() {
            words.push(self.round_trips.to_string());
        }
        words.extend(self.added.iter().map(|added| added.name.to_owned()));
        f.write_str(&words.join("+"))
    }
}

/// A function that returns the policy of an end, which is given the settings of that end.
type PolicyOf = dyn Fn(&Settings) -> Arc<dyn MakeGrantPolicy> + Send + Sync;

/// A policy by which ends grant credits, with its name in `--credits`.
#[derive(Clone)]
pub struct Grants {
    name: &'static str,
    help: &'static str,
    policy: Arc<PolicyOf>,
}

impl Grants {
    /// Has an end with these settings grant by this policy. It shares nothing with that of another end.
    pub fn apply(&self, options: &mut RdmaOptions, settings: &Settings) {
        options.grants = (self.policy)(settings);
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One `NAME=VALUE` of `--set`, checked.
#[derive(Clone, Debug)]
pub struct Assignment {
    setting: &'static Setting,
    value: String,
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.setting.name, self.value)
    }
}

/// The meanings of the names in options. Cloning is cheap enough for once in a command.
#[derive(Clone, Debug)]
pub struct Catalog {
    versions: Vec<&'static dyn Dialect>,
    features: Vec<AddedFeature>,
    grants: Vec<Grants>,
    settings: Vec<&'static Setting>,
    workloads: Vec<Arc<dyn Workload>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::standard()
    }
}

impl Catalog {
    /// Returns what there is in this project.
    #[must_use]
    pub fn standard() -> Self {
        let all = Grants {
            name: "all",
            help: "all for which there are receives",
            policy: Arc::new(|_| Arc::new(GrantAll)),
        };
        Self {
            versions: Vec::new(),
            features: Vec::new(),
            grants: vec![all],
            settings: settings::STANDARD.iter().collect(),
            workloads: Vec::new(),
        }
    }

    /// Adds a version, which clients prefer to those that were there before.
    #[must_use]
    pub fn with_version(mut self, version: &'static dyn Dialect) -> Self {
        self.versions.push(version);
        self
    }

    /// Adds a feature, which `add` adds to protocols: an extension of one or of several versions. It
    /// is on where options name it.
    #[must_use]
    pub fn with_feature(
        mut self,
        name: &'static str,
        help: &'static str,
        add: impl Fn(Protocols, &Settings) -> Protocols + Send + Sync + 'static,
    ) -> Self {
        let add = Arc::new(add);
        self.features.push(AddedFeature { name, help, add });
        self
    }

    /// Adds a policy of granting credits. `policy` is called for each end that an option selects it for.
    #[must_use]
    pub fn with_grants<P: MakeGrantPolicy + 'static>(
        mut self,
        name: &'static str,
        help: &'static str,
        policy: impl Fn(&Settings) -> P + Send + Sync + 'static,
    ) -> Self {
        let policy: Arc<PolicyOf> = Arc::new(move |settings| Arc::new(policy(settings)));
        self.grants.push(Grants { name, help, policy });
        self
    }

    /// Adds a setting, mostly one of [`Effect::Own`](settings::Effect::Own).
    #[must_use]
    pub fn with_setting(mut self, setting: &'static Setting) -> Self {
        self.settings.push(setting);
        self
    }

    /// Adds a workload: a kind of calls to measure, and if they are of a program of its own, the service
    /// of that.
    #[must_use]
    pub fn with_workload(mut self, workload: Arc<dyn Workload>) -> Self {
        self.workloads.push(workload);
        self
    }

    /// Checks that no two things of one kind have the same name, that each name can be written in its
    /// option, and that the defaults of settings are possible values.
    ///
    /// # Errors
    /// The name, and what is wrong with it.
    pub fn check(&self) -> Result<(), Failure> {
        let versions = ["auto"].into_iter();
        let known = self.versions();
        let versions = versions.chain(known.iter().map(|it| it.version().name()));
        let standard = ["none", "ddp", "cont"];
        let features = standard
            .into_iter()
            .chain(self.features.iter().map(|it| it.name));
        for (kind, names) in [
            ("versions", versions.collect()),
            ("features", features.collect()),
            ("policies", self.grants.iter().map(|it| it.name).collect()),
            ("settings", self.settings.iter().map(|it| it.name).collect()),
            (
                "workloads",
                self.workloads.iter().map(|it| it.name()).collect(),
            ),
        ] {
            let names: Vec<&str> = names;
            for (at, name) in names.iter().enumerate() {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if name.is_empty() || !name.chars().all(is_plain) {
                    let text =
                        format!("{name:?} cannot be a name: letters, digits, -, _ and . can");
                    return Err(Failure::Usage(text));
                }
                if names[..at].contains(name) {
                    return Err(Failure::Usage(format!("two {kind} are called {name}")));
                }
            }
        }
        let wrong = self.settings.iter().find_map(|it| it.check().err());
        wrong.map_or(Ok(()), |error| Err(Failure::Usage(error)))
    }

    /// Returns the versions.
    #[must_use]
    pub fn versions(&self) -> KnownVersions {
        self.extend(rpcrdma_protocols::base()).known().clone()
    }

    /// Returns the versions that are not of this project.
    pub fn added_versions(&self) -> impl Iterator<Item = Version> {
        self.versions.iter().map(|it| it.version())
    }

    /// Returns the workloads that a program adds.
    #[must_use]
    pub fn workloads(&self) -> &[Arc<dyn Workload>] {
        &self.workloads
    }

    /// Finds a workload that a program adds by its name.
    ///
    /// # Errors
    /// All that there are.
    pub fn workload(&self, name: &str) -> Result<&Arc<dyn Workload>, String> {
        let known = self.workloads.iter().find(|known| known.name() == name);
        known.ok_or_else(|| {
            let names: Vec<&str> = self.workloads.iter().map(|it| it.name()).collect();
            match names.is_empty() {
                true => format!("no program {name:?}: this command has none beside NFS"),
                false => format!("no program {name:?}; there are: {}", names.join(", ")),
            }
        })
    }

    /// Returns the names and explanations of the features that are not of this project.
    pub fn added_features(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.features.iter().map(|it| (it.name, it.help))
    }

    /// Returns the names and explanations of all policies of granting.
    pub fn policies(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.grants.iter().map(|it| (it.name, it.help))
    }

    /// Returns all settings.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter().copied()
    }

    /// Says what can be written for features.
    #[must_use]
    pub fn feature_names(&self) -> String {
        let added = self.features.iter().map(|it| format!("{}, ", it.name));
        let added: String = added.collect();
        format!(
            "none, ddp, cont, {added}or several with + between them as ddp:send+cont (:send, :receive: one way only)"
        )
    }

    /// Reads features as options have them, `ddp:send+mine`.
    ///
    /// # Errors
    /// A word that is none, with all that there are.
    pub fn parse_features(&self, text: &str) -> Result<Features, String> {
        let mut features = Features::default();
        let mut others = Vec::new();
        for word in text.split('+') {
            match self.features.iter().find(|known| known.name == word) {
                Some(known) if features.added.iter().any(|it| it.name == word) => {
                    return Err(format!("{} is there twice", known.name));
                }
                Some(known) => features.added.push(known.clone()),
                None => others.push(word),
            }
        }
        if !others.is_empty() {
            let known: Result<RoundTripFeatures, _> = others.join("+").parse();
            let unknown = |unknown: UnknownFeature| {
                format!("no feature {:?}: write {}", unknown.0, self.feature_names())
            };
            features.round_trips = known.map_err(unknown)?;
        }
        Ok(features)
    }

    /// Reads the name of a policy of granting.
    ///
    /// # Errors
    /// All that there are.
    pub fn parse_grants(&self, text: &str) -> Result<Grants, String> {
        let known = self.grants.iter().find(|known| known.name == text);
        known.cloned().ok_or_else(|| {
            let names: Vec<&str> = self.grants.iter().map(|it| it.name).collect();
            let names = names.join(", ");
            let number = match text.parse::<u32>() {
                Ok(_) => format!(" (their number is set by --set credits={text})"),
                Err(_) => String::new(),
            };
            format!("no policy {text:?} of granting credits; there are: {names}{number}")
        })
    }

    /// Reads a setting with its value, `NAME=VALUE`.
    ///
    /// # Errors
    /// The setting is unknown, or the value is impossible.
    pub fn parse_assignment(&self, text: &str) -> Result<Assignment, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let Some(setting) = self.settings().find(|known| known.name == name) else {
            let distance = |known: &&Setting| strsim::osa_distance(known.name, name);
            let near = self.settings().min_by_key(|known| distance(known));
            let near = near.filter(|near| distance(near) <= 1 + name.len() / 5);
            let near =
                near.map_or_else(String::new, |near| format!("; did you mean {}?", near.name));
            return Err(format!(
                "no setting {name:?}{near} (`--set help` lists all)"
            ));
        };
        if !text.contains('=') {
            return Err(format!("write {name}=VALUE"));
        }
        setting.parse(value)?;
        Ok(Assignment {
            setting,
            value: value.to_owned(),
        })
    }

    /// Returns what `--set help` says: all settings with their units, bounds and defaults.
    #[must_use]
    pub fn settings_help(&self) -> String {
        let (simulated, each): (Vec<_>, Vec<_>) =
            self.settings().partition(|it| it.is_of_simulations());
        let lines = |settings: Vec<&Setting>| {
            let lines = settings.into_iter().map(|setting| format!("{setting}\n"));
            lines.collect::<String>()
        };
        format!(
            "Settings of connections over RDMA, each as --set NAME=VALUE, with defaults in brackets:\n\n{}\n\
             Settings of simulations, for compare --device sim, and sim, where each seed chooses what is not set:\n\n{}",
            lines(each),
            lines(simulated)
        )
    }

    /// Returns the protocols with these features of this project, versions and features that were
    /// added.
    fn protocols(&self, features: &Features, settings: &Settings) -> Protocols {
        let protocols = rpcrdma_protocols::placing(&features.round_trips, settings.placing());
        self.with_added(protocols, features, settings)
    }

    /// Adds versions, and features that are not of this project, to protocols that somebody else has
    /// assembled. Their name becomes that of all features.
    #[must_use]
    pub fn with_added(
        &self,
        protocols: Protocols,
        features: &Features,
        settings: &Settings,
    ) -> Protocols {
        let mut protocols = self.extend(protocols);
        if features.added.is_empty() {
            return protocols;
        }
        protocols = protocols.called(features.to_string());
        let added = features.added.iter();
        added.fold(protocols, |protocols, it| (it.add)(protocols, settings))
    }

    fn extend(&self, protocols: Protocols) -> Protocols {
        let versions = self.versions.iter().copied();
        versions.fold(protocols, Protocols::preferring)
    }
}

/// The selection that options make of a catalog for one end, besides its features.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// All that there is.
    pub catalog: Catalog,
    /// The policy of granting, if one was selected.
    pub grants: Option<Grants>,
    /// The settings.
    pub settings: Settings,
}

impl Tuning {
    /// Selects nothing in particular.
    #[must_use]
    pub fn of(catalog: Catalog) -> Self {
        Self {
            catalog,
            ..Self::default()
        }
    }

    /// Selects a policy and settings.
    ///
    /// # Errors
    /// A setting has two values.
    pub fn new(
        catalog: Catalog,
        grants: Option<Grants>,
        assignments: &[Assignment],
    ) -> Result<Self, Failure> {
        let mut settings = Settings::default();
        for Assignment { setting, value } in assignments {
            let set = settings.set(setting, value);
            set.map_err(|error| Failure::Usage(format!("--set {error}")))?;
        }
        Ok(Self {
            catalog,
            grants,
            settings,
        })
    }

    /// Reads what [`Tuning::words`] wrote, in another process of the same program.
    ///
    /// # Errors
    /// A name is unknown, or a value is impossible.
    pub fn parse(catalog: Catalog, words: &(String, String)) -> Result<Self, Failure> {
        let (credits, settings) = words;
        let grants = (!credits.is_empty()).then(|| catalog.parse_grants(credits));
        let grants = grants.transpose().map_err(Failure::Usage)?;
        let assignments = settings.split_whitespace();
        let assignments = assignments.map(|text| catalog.parse_assignment(text));
        let assignments: Result<Vec<_>, String> = assignments.collect();
        Self::new(catalog, grants, &assignments.map_err(Failure::Usage)?)
    }

    /// Returns the name of the policy and the settings as text; both are empty if nothing is
    /// selected.
    #[must_use]
    pub fn words(&self) -> (String, String) {
        let grants = self.grants.as_ref().map(Grants::to_string);
        (grants.unwrap_or_default(), self.settings.to_string())
    }

    /// Returns the option that selects something, if one does.
    #[must_use]
    pub fn given(&self) -> Option<&'static str> {
        match (&self.grants, self.settings.is_empty()) {
            (Some(_), _) => Some("--credits"),
            (None, false) => Some("--set"),
            (None, true) => None,
        }
    }

    /// Checks that nothing sets again what inline sizes set, which this option gives.
    ///
    /// # Errors
    /// The setting.
    pub fn check_beside_inline(&self, option: &str) -> Result<(), Failure> {
        match self.settings.beside_inline() {
            Some(name) => Err(Failure::Usage(format!(
                "{option}: --set {name} is for the same: use one of them"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the protocols with these features.
    #[must_use]
    pub fn protocols(&self, features: &Features) -> Protocols {
        self.catalog.protocols(features, &self.settings)
    }

    /// Changes the options of either end, all but the protocols.
    pub fn apply(&self, options: &mut RdmaOptions) {
        self.settings.apply(options);
        if let Some(grants) = &self.grants {
            grants.apply(options, &self.settings);
        }
    }

    /// Changes the options of a client, all but the protocols.
    pub fn apply_to_client(&self, options: &mut RdmaClientOptions) {
        self.apply(&mut options.common);
        self.settings.apply_to_client(options);
    }

    /// Changes the options of a server, all but the protocols.
    pub fn apply_to_server(&self, options: &mut RdmaServerOptions) {
        self.apply(&mut options.common);
        self.settings.apply_to_server(options);
    }

    /// Checks that each setting has an effect on this end.
    ///
    /// # Errors
    /// A setting is for the other end only, or for simulations.
    pub fn check_for(&self, side: Side) -> Result<(), Failure> {
        self.check_side(side)?;
        self.check_measured()
    }

    /// Checks that no setting is for simulations only.
    ///
    /// # Errors
    /// The setting.
    pub fn check_measured(&self) -> Result<(), Failure> {
        match self.settings.of_simulations() {
            Some(name) => Err(Failure::Usage(format!(
                "--set {name}: only for simulations: compare --device sim, and sim"
            ))),
            None => Ok(()),
        }
    }

    /// Checks that no setting is for one end only.
    ///
    /// # Errors
    /// The setting.
    pub fn check_for_both(&self) -> Result<(), Failure> {
        self.check_side(Side::Client)?;
        self.check_side(Side::Server)
    }

    fn check_side(&self, side: Side) -> Result<(), Failure> {
        let (other, name) = match side {
            Side::Client => ("servers", self.settings.of_servers()),
            Side::Server => ("clients", self.settings.of_clients()),
        };
        match name {
            Some(name) => Err(Failure::Usage(format!("--set {name}: only for {other}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rpc_transport::rdma::{Demand, GrantEvent, GrantPolicy};
    use rpcrdma_extension::{EndConfig, Extension, ExtensionFactory};

    use super::*;
    use crate::settings::{Effect, Unit};

    /// A factory that makes nothing, and tells how long the messages are that it is asked for.
    #[derive(Debug)]
    struct Mine {
        longest: u32,
    }

    impl ExtensionFactory for Mine {
        fn make(&self, _: &EndConfig<'_>) -> Option<Box<dyn Extension>> {
            None
        }

        fn max_send(&self) -> u32 {
            self.longest
        }
    }

    /// Grants what it is given.
    #[derive(Clone, Debug)]
    struct Stingy(u64);

    impl GrantPolicy for Stingy {
        fn credits(&mut self, _: GrantEvent, _: &Demand) -> u32 {
            self.0 as u32
        }
    }

    impl MakeGrantPolicy for Stingy {
        fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
            Box::new(self.clone())
        }
    }

    static LONGEST: Setting = Setting {
        name: "longest",
        unit: Unit::Bytes,
        bounds: (1 << 20, 1 << 22),
        step: 1,
        help: "Length of the longest message",
        effect: Effect::Own { default: 1 << 21 },
    };

    static ODD: Setting = Setting {
        name: "odd",
        unit: Unit::Number,
        bounds: (2, 8),
        step: 2,
        help: "A number whose default is none of its values",
        effect: Effect::Own { default: 5 },
    };

    static CREDITS: Setting = Setting {
        name: "stingy-credits",
        unit: Unit::Number,
        bounds: (0, 9),
        step: 1,
        help: "What stingy grants",
        effect: Effect::Own { default: 0 },
    };

    fn catalog() -> Catalog {
        Catalog::standard()
            .with_setting(&LONGEST)
            .with_setting(&CREDITS)
            .with_grants("stingy", "few", |settings| Stingy(settings.value(&CREDITS)))
            .with_feature("mine", "long messages", |protocols, settings| {
                let longest = settings.value(&LONGEST) as u32;
                protocols.with(Version::TWO_WG, Arc::new(Mine { longest }))
            })
    }

    #[test]
    fn features_of_a_program_are_read_and_written_like_the_others() {
        let catalog = catalog();
        for (text, standard) in [
            ("ddp+mine", "ddp"),
            ("mine", "none"),
            ("none", "none"),
            ("ddp:send+cont+mine", "ddp:send+cont"),
        ] {
            let features = catalog.parse_features(text).unwrap();
            assert_eq!(features.to_string(), text);
            assert_eq!(features.round_trips().to_string(), standard);
            assert_eq!(features.is_none(), text == "none");
        }
        let swapped = catalog.parse_features("mine+ddp").unwrap();
        assert_eq!(swapped, catalog.parse_features("ddp+mine").unwrap());
        for wrong in [
            "yours",
            "mine+yours",
            "mine:send",
            "mine+none+ddp",
            "",
            "mine+",
        ] {
            let said = catalog.parse_features(wrong).unwrap_err();
            assert!(
                said.contains("write none, ddp, cont, mine, or several"),
                "{wrong}: {said}"
            );
        }
        let twice = catalog.parse_features("mine+mine").unwrap_err();
        assert_eq!(twice, "mine is there twice");
        assert!(Catalog::standard().parse_features("mine").is_err());
    }

    /// A feature's factory is in the protocols, after those of the project, with its settings.
    #[test]
    fn features_have_their_factory_and_its_settings() {
        let none = Tuning::of(catalog());
        let features = none.catalog.parse_features("mine").unwrap();
        assert_eq!(none.protocols(&Features::default()).max_send(|_| true), 0);
        assert_eq!(none.protocols(&features).max_send(|_| true), 1 << 21);
        let set = [none.catalog.parse_assignment("longest=3M").unwrap()];
        let three = Tuning::new(catalog(), None, &set).unwrap();
        assert_eq!(three.protocols(&features).max_send(|_| true), 3 << 20);
        assert_eq!(three.protocols(&features).to_string(), "mine");
        let again = [set[0].clone(), set[0].clone()];
        let refused = Tuning::new(catalog(), None, &again).unwrap_err();
        assert_eq!(refused.to_string(), "--set longest is set to 3 MiB already");
    }

    #[test]
    fn the_policy_of_an_end_is_the_one_that_was_selected() {
        let granted = |tuning: &Tuning| {
            let mut options = RdmaServerOptions::new(rpcrdma_protocols::base());
            tuning.apply_to_server(&mut options);
            format!("{:?}", options.common.grants)
        };
        let catalog = catalog();
        let stingy = Some(catalog.parse_grants("stingy").unwrap());
        assert_eq!(granted(&Tuning::of(catalog.clone())), "GrantAll");
        let tuning = Tuning::new(catalog.clone(), stingy, &[]).unwrap();
        assert_eq!(granted(&tuning), "Stingy(0)");
        let (policy, _) = tuning.words();
        let words = (policy, "stingy-credits=3".to_owned());
        let tuning = Tuning::parse(catalog.clone(), &words).unwrap();
        assert_eq!(granted(&tuning), "Stingy(3)", "it reads the settings");
        let again = Tuning::parse(catalog.clone(), &tuning.words()).unwrap();
        assert_eq!(granted(&again), "Stingy(3)");
        let wrong = catalog.parse_grants("generous").unwrap_err();
        assert!(wrong.ends_with("there are: all, stingy"), "{wrong}");
        let number = catalog.parse_grants("32").unwrap_err();
        assert!(number.contains("--set credits=32"), "{number}");
    }

    #[test]
    fn settings_are_found_by_name() {
        let catalog = catalog();
        let refused = |text| catalog.parse_assignment(text).unwrap_err();
        assert_eq!(
            refused("credit=8"),
            "no setting \"credit\"; did you mean credits? (`--set help` lists all)"
        );
        assert!(refused("frobnicate=1").contains("`--set help`"));
        assert_eq!(refused("longest"), "write longest=VALUE");
        assert!(refused("longest=1").ends_with("write 1 MiB to 4 MiB"));
        let help = catalog.settings_help();
        for setting in catalog.settings() {
            assert!(
                help.contains(&format!("\n{}=", setting.name)),
                "{}",
                setting.name
            );
        }
    }

    #[test]
    fn names_that_are_taken_or_cannot_be_written_are_refused() {
        let same = |protocols: Protocols, _: &Settings| protocols;
        catalog().check().unwrap();
        for (catalog, said) in [
            (
                catalog().with_feature("mine", "", same),
                "two features are called mine",
            ),
            (
                catalog().with_feature("ddp", "", same),
                "two features are called ddp",
            ),
            (
                catalog().with_feature("a+b", "", same),
                "\"a+b\" cannot be a name",
            ),
            (
                catalog().with_grants("all", "", |_| Stingy(0)),
                "two policies are called all",
            ),
            (
                catalog().with_setting(&LONGEST),
                "two settings are called longest",
            ),
            (
                catalog().with_setting(&ODD),
                "odd: the default 5 is not possible: 2 to 8 in steps of 2",
            ),
        ] {
            let refused = catalog.check().unwrap_err().to_string();
            assert!(refused.starts_with(said), "{refused}");
        }
    }
}
