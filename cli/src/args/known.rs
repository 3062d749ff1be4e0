//! Options that know what is in a catalog: what a program adds is a value of theirs, and in their help.

use clap::{Arg, Command};
use rpcrdma_setup::catalog::Catalog;

use super::compare::OpParser;
use super::sim;
use super::tuning::{SetParser, ViaParser};

/// Returns the command line with options that know what is in the catalog, and say so in their help.
pub(super) fn known(command: Command, catalog: &Catalog) -> Command {
    command.mut_subcommands(|sub| {
        // Its features are pairs of those of both ends.
        let is_simulation = sub.get_name() == "sim";
        let has_workloads = ["compare", "load"].contains(&sub.get_name());
        sub.mut_args(|arg| match arg.get_id().as_str() {
            "features" | "server_features" | "with" if arg.get_id() == "with" || !is_simulation => {
                let added: Vec<_> = catalog.added_features().collect();
                let arg = listing(arg, "Features of this program", &added);
                let catalog = catalog.clone();
                arg.value_parser(move |text: &str| catalog.parse_features(text))
            }
            "credits" => {
                let policies: Vec<_> = catalog.policies().collect();
                let arg = listing(arg, "Policies", &policies);
                let catalog = catalog.clone();
                arg.value_parser(move |text: &str| catalog.parse_grants(text))
            }
            "programs" => {
                let names = catalog.workloads().iter();
                let names = names.map(|it| (it.name(), ""));
                let arg = listing(arg, "Programs", &names.collect::<Vec<_>>());
                let catalog = catalog.clone();
                arg.hide(catalog.workloads().is_empty())
                    .value_parser(move |text: &str| {
                        let known = catalog.workload(text)?;
                        Ok::<_, String>(known.name().to_owned())
                    })
            }
            "settings" => arg.value_parser(SetParser(catalog.clone())),
            "via" => {
                let added: Vec<_> = catalog.added_features().collect();
                let arg = listing(
                    arg,
                    "Each but tcp also with + and features of this program",
                    &added,
                );
                arg.value_parser(ViaParser(catalog.clone()))
            }
            "ops" if has_workloads => {
                let names = catalog.workloads().iter().map(|it| it.name());
                arg.value_parser(OpParser(names.collect()))
            }
            "rpcrdma" if is_simulation => {
                let added: Vec<_> = catalog.added_versions().collect();
                let names: Vec<_> = added.iter().map(|it| (it.name(), "")).collect();
                let arg = listing(arg, "Versions of this program", &names);
                arg.value_parser(move |text: &str| sim::versions(text, &added))
            }
            "rpcrdma" => {
                let versions = catalog.versions();
                let names = catalog.added_versions().map(|it| (it.name(), ""));
                let arg = listing(arg, "Versions of this program", &names.collect::<Vec<_>>());
                arg.value_parser(move |names: &str| versions.parse_versions(names))
            }
            _ => arg,
        })
    })
}

/// Adds a list of names, each with what it is if that is known, to the help of an option.
fn listing(arg: Arg, what: &str, names: &[(&str, &str)]) -> Arg {
    if names.is_empty() {
        return arg;
    }
    let names = names.iter().map(|&(name, help)| match help {
        "" => name.to_owned(),
        help => format!("{name} ({help})"),
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    arg.help(format!("{help}. {what}: {names}"))
}
