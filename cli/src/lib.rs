//! The `rpcrdma` command as a library, for programs that add something of their own to it: an
//! extension, a version, a policy of granting credits, settings.
//!
//! The command itself is [`Program::standard`] and no more. A program that adds something has the same
//! commands, all of which know it: `serve`, `ping`, `load`, `put`, `get` and the others that reach a server,
//! `mount`, `compare` by the clock and in the simulation, `explain`, `sim`. What options do with it:
//!
//! | added | option |
//! |---|---|
//! | [`Program::feature`] | `--features ddp+mine`, `-o features=ddp+mine`, `compare --via wg+mine` |
//! | [`Program::grants`] | `--credits mine` |
//! | [`Program::version`] | `-o rpcrdma=mine`, `serve --rpcrdma mine` |
//! | [`Program::setting`] | `--set mine=VALUE`, beside those that `--set help` lists |
//! | [`Program::workload`] | `compare --ops mine`, `load --ops mine`, `serve --program mine` |
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use rpcrdma::{Demand, GrantEvent, GrantPolicy, MakeGrantPolicy, Program, Side};
//!
//! /// Grants half of what could be granted.
//! #[derive(Clone, Debug)]
//! struct Half;
//!
//! impl GrantPolicy for Half {
//!     fn credits(&mut self, _: GrantEvent, demand: &Demand) -> u32 {
//!         demand.most / 2
//!     }
//! }
//!
//! impl MakeGrantPolicy for Half {
//!     fn make(&self, _: Side) -> Box<dyn GrantPolicy> {
//!         Box::new(Half)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Program::standard()
//!         .grants("half", "half of that", |_| Half)
//!         .run(std::env::args_os())
//! }
//! ```
//!
//! A program starts itself again for some commands (the servers of `compare`, a mount in the
//! background), so its `main` has to call [`Program::run`] with the arguments that it was given.

#![forbid(unsafe_code)]

mod args;
mod capture;
mod client_capture;
mod compare;
mod conform;
mod conform_capture;
mod conform_cases;
mod conform_client;
mod conform_device;
mod conform_listen;
mod conform_loopback;
mod conform_read_only;
mod conform_report;
mod conform_selection;
mod devices;
mod explain;
mod files;
mod gateway;
mod granted;
mod interrupt;
mod ladder;
mod lint;
mod listening;
mod load;
mod logging;
mod manual;
mod metrics;
mod mount;
mod output;
mod ping;
mod progress;
mod serve;
mod sim;
mod trace;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub use rdma::Time;
pub use rpc_transport::Service;
pub use rpc_transport::rdma::{
    AskAgain, Demand, GrantEvent, GrantPolicy, MakeGrantPolicy, Version,
};
pub use rpcrdma_programs::workload::Workload;
pub use rpcrdma_protocols::{Dialect, Protocols, Side};
pub use rpcrdma_setup::settings::{Effect, Setting, Settings, Unit};

use args::{Cli, Command};
use clap::ValueEnum;
use rpcrdma_compare::{OpName, Variant};
use rpcrdma_setup::Failure;
use rpcrdma_setup::catalog::Catalog;

/// The commands of `rpcrdma`, with what a program adds to the names that their options know.
#[derive(Clone, Debug)]
pub struct Program {
    catalog: Catalog,
}

impl Default for Program {
    fn default() -> Self {
        Self::standard()
    }
}

impl Program {
    /// Returns the command as it is.
    #[must_use]
    pub fn standard() -> Self {
        let catalog = rpcrdma_compare::catalog();
        Self { catalog }
    }

    /// Adds a feature with this name. Connections whose options name it have the protocols that `add`
    /// returns: mostly those that it is given, with an extension of one of their versions
    /// ([`Protocols::with`]). `help` says in a few words what it does.
    #[must_use]
    pub fn feature(
        self,
        name: &'static str,
        help: &'static str,
        add: impl Fn(Protocols, &Settings) -> Protocols + Send + Sync + 'static,
    ) -> Self {
        let catalog = self.catalog.with_feature(name, help, add);
        Self { catalog }
    }

    /// Adds a policy of granting credits with this name. `policy` returns it for one end whose options
    /// name it, with the settings of that end.
    #[must_use]
    pub fn grants<P: MakeGrantPolicy + 'static>(
        self,
        name: &'static str,
        help: &'static str,
        policy: impl Fn(&Settings) -> P + Send + Sync + 'static,
    ) -> Self {
        let catalog = self.catalog.with_grants(name, help, policy);
        Self { catalog }
    }

    /// Adds a version, which clients prefer to those that were there before unless an option selects
    /// one. Options know it by its own name.
    #[must_use]
    pub fn version(self, version: &'static dyn Dialect) -> Self {
        let catalog = self.catalog.with_version(version);
        Self { catalog }
    }

    /// Adds a setting. A feature or a policy reads its value from the [`Settings`] that it is given.
    #[must_use]
    pub fn setting(self, setting: &'static Setting) -> Self {
        let catalog = self.catalog.with_setting(setting);
        Self { catalog }
    }

    /// Adds a workload: calls of any RPC program, which `compare` measures by the clock and in the
    /// simulation. Servers serve that program ([`Workload::service`]) where an option names it.
    #[must_use]
    pub fn workload(self, workload: impl Workload + 'static) -> Self {
        let catalog = self.catalog.with_workload(Arc::new(workload));
        Self { catalog }
    }

    /// Runs the command that the arguments say, the first of which is the name of the program, and
    /// returns its exit status. Errors in the arguments, `--help` and `--version` end the process.
    #[must_use]
    pub fn run(self, args: impl IntoIterator<Item = OsString>) -> ExitCode {
        let checked = self.catalog.check().and_then(|()| self.check_names());
        let words = mount::arguments(args.into_iter());
        let cli = Cli::parse_with(&self.catalog, &words);
        if cli.quiet {
            output::be_quiet();
        }
        // Before anything is written: the log of a server or of a mount may itself be beyond the limit.
        let survives = interrupt::survive_file_size_limit();
        // Warnings of simulated hosts are not warnings to the user.
        if cli.verbose > 0 || !matches!(cli.command, Command::Sim(_)) {
            // The log of a server or of a background mount may be read days later.
            let timed = match &cli.command {
                Command::Serve(_) | Command::Gateway(_) => true,
                Command::Mount(args) => args.background && args.log.is_some(),
                _ => false,
            };
            logging::start(cli.verbose, timed);
        }
        let ready = checked.and(survives);
        let result = ready.and_then(|()| self.perform(&cli, &words));
        let captured = capture::finish();
        let captured = trace::finish() && captured;
        match result {
            Ok(()) if captured => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
            Err(failure) => {
                capture::remove_empty();
                trace::remove_empty();
                if !matches!(failure, Failure::OutputClosed | Failure::Told(_)) {
                    output::complain(&failure);
                }
                if let Failure::Interrupted(_) = failure {
                    interrupt::die_of_caught();
                }
                ExitCode::from(failure.exit_status())
            }
        }
    }

    /// Checks that `compare` knows nothing of its own by the name of a workload or a version that is
    /// added.
    fn check_names(&self) -> Result<(), Failure> {
        let taken = |kind, name| Failure::Usage(format!("two {kind} are called {name}"));
        let operations = OpName::value_variants().iter();
        let operations = operations.filter_map(ValueEnum::to_possible_value);
        let mut operations = operations.flat_map(|it| {
            let names = it.get_name_and_aliases();
            names.map(str::to_owned).collect::<Vec<_>>()
        });
        let is_own = |name: &String| self.catalog.workloads().iter().any(|it| it.name() == name);
        if let Some(name) = operations.find(is_own) {
            return Err(taken("workloads", name));
        }
        let modes = Variant::ALL.into_iter().map(Variant::name);
        let mut modes = modes.chain(["floor"]);
        match modes.find(|name| self.catalog.added_versions().any(|it| it.name() == *name)) {
            Some(name) => Err(taken("versions", name.to_owned())),
            None => Ok(()),
        }
    }

    fn perform(&self, cli: &Cli, words: &[OsString]) -> Result<(), Failure> {
        let (catalog, verbose) = (&self.catalog, cli.verbose > 0);
        match &cli.command {
            Command::Compare(args) => compare::run(args, catalog),
            Command::CompareServer(args) => compare::server::run(args),
            Command::Explain(args) => explain::run(args, catalog),
            Command::Ladder(args) => ladder::run(args),
            Command::Lint(args) => lint::run(args),
            Command::Conform(args) => conform::run(args, catalog),
            Command::Sim(args) => sim::run(args, catalog, &program_name(words)),
            Command::Serve(args) => serve::run(args, catalog),
            Command::Gateway(args) => gateway::run(args, catalog),
            Command::Devices(args) => devices::run(args),
            Command::Mount(args) => mount::mount(args, catalog, words, verbose),
            Command::Umount(args) => mount::umount(args),
            Command::Mountstats(args) => metrics::mountstats(args),
            Command::Ping(args) => ping::run(args, catalog, verbose),
            Command::Load(args) => load::run(args, catalog),
            Command::Exports(args) => files::exports(args, catalog),
            Command::Ls(args) => files::ls(args, catalog),
            Command::Stat(args) => files::stat(args, catalog),
            Command::Cat(args) => files::cat(args, catalog),
            Command::Get(args) => files::get(args, catalog),
            Command::Put(args) => files::put(args, catalog),
            Command::Rm(args) => files::rm(args, catalog),
            Command::Mkdir(args) => files::mkdir(args, catalog),
            Command::Completions(args) => manual::completions(args, catalog, &program_name(words)),
            Command::Man(args) => manual::man(args, catalog, &program_name(words)),
            Command::CompareChild(args) => rpcrdma_compare::serve_child(&args.served, catalog),
        }
    }
}

/// Returns the name of the program, as it was called.
fn program_name(words: &[OsString]) -> String {
    let file = words.first().and_then(|word| Path::new(word).file_name());
    file.map_or_else(
        || "rpcrdma".into(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::future;

    use rpcrdma_programs::workload::{Prepare, Server};

    use super::*;

    /// A workload of this name without calls.
    #[derive(Debug)]
    struct Named(&'static str);

    impl Workload for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
            Box::pin(future::pending())
        }
    }

    #[test]
    fn a_workload_cannot_have_the_name_of_an_operation() {
        for name in ["write", "null", "long-call"] {
            let refused = Program::standard().workload(Named(name)).check_names();
            let refused = refused.unwrap_err().to_string();
            assert_eq!(refused, format!("two workloads are called {name}"));
        }
        let other = Program::standard().workload(Named("writes"));
        other.check_names().unwrap();
    }

    /// The second command finds the subscriber of the first one.
    #[test]
    fn a_process_runs_several_commands() {
        for words in [
            "rpcrdma compare --device sim --ops null --via wg",
            "rpcrdma explain null",
        ] {
            let words = words.split(' ').map(OsString::from);
            let status = Program::standard().run(words);
            assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::SUCCESS));
        }
    }

    #[test]
    fn a_program_is_called_as_its_file() {
        let name = |word: &str| program_name(&[word.into()]);
        assert_eq!(name("target/debug/batch"), "batch");
        assert_eq!(program_name(&[]), "rpcrdma");
    }
}
