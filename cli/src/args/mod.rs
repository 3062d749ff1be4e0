//! The command line.

mod accepting;
mod arranged;
mod capture;
mod color;
mod compare;
mod conform;
mod devices;
mod explain;
mod files;
mod gateway;
mod known;
mod ladder;
mod lint;
mod load;
mod manual;
mod metrics;
mod mount;
mod ping;
mod serve;
mod sim;
mod trace;
mod tuning;

use std::ffi::OsString;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use rpcrdma_setup::catalog::Catalog;

pub(crate) use accepting::AcceptingArgs;
pub(crate) use capture::CaptureArgs;
pub(crate) use compare::CHILD;
pub(crate) use compare::{ChildArgs, CompareArgs, CompareServerArgs, Crc};
pub(crate) use conform::{ConformArgs, Run};
pub(crate) use devices::DevicesArgs;
pub(crate) use explain::{ExplainArgs, LadderForm};
pub(crate) use files::{
    CatArgs, ExportsArgs, GetArgs, LsArgs, MkdirArgs, MountArgs, PutArgs, RmArgs, StatArgs,
    note_other_delay,
};
pub(crate) use gateway::{Endpoint, GatewayArgs};
pub(crate) use ladder::LadderArgs;
pub(crate) use lint::LintArgs;
pub(crate) use load::LoadArgs;
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use metrics::{MetricsArgs, MountstatsArgs};
pub(crate) use mount::{MountCommandArgs, UmountArgs};
pub(crate) use ping::{PingArgs, PingOp};
pub(crate) use serve::{RpcbindUse, ServeArgs, Threads};
pub(crate) use sim::{ALL, ANY, SimArgs};
pub(crate) use trace::TraceArgs;

const EXAMPLES: &str = "\
Examples:
  rpcrdma compare                                   what NFS costs over TCP and over RDMA, here
  rpcrdma compare --delay 1ms --json rows.json      the same over a link of 1 ms each way
  rpcrdma serve --export /srv/data --export pub=/srv/pub
  rpcrdma gateway --listen tcp:127.0.0.1 --to rdma:server   for a client that knows TCP alone
  rpcrdma devices                                   RDMA devices, and what is missing
  rpcrdma exports localhost                         what a server exports
  rpcrdma ping -c 1000 -H localhost                 latency of NULL, with a histogram
  rpcrdma put -r src/ nfs://localhost/pub/src       copy a tree to the server, and back:
  rpcrdma get -r nfs://localhost/pub/src copy/
  rpcrdma put *.c nfs://localhost/pub/src/
  rpcrdma ls -l -o proto=tcp nfs://localhost/pub
  rpcrdma mount nfs://localhost/pub /mnt            for any program, until `rpcrdma umount /mnt`

The server is reached over RDMA by a software iWARP device, which needs no driver and no
privilege; `-o device=verbs` takes an RDMA device of this machine (`rpcrdma devices`), and
`-o proto=tcp` uses ONC RPC over TCP instead. For nfs://SERVER/PATH, SERVER:/PATH is understood
as well, as by mount(8).
";

/// NFS over RPC-over-RDMA, on any machine.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma", version = env!("RPCRDMA_VERSION"), after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log more on standard error: -v logs connections, -vv every call, -vvv the arguments of calls to a
    /// server and much else. RUST_LOG has precedence
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print results and errors alone: no notes, progress, summaries or warnings
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Color help, errors, notes and log lines. By default, only on a terminal, and not if NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value_t)]
    pub(crate) color: ColorChoice,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Returns the command line of a program whose options know what is in the catalog.
    pub(crate) fn known_command(catalog: &Catalog) -> clap::Command {
        known::known(arranged::arranged(Self::command()), catalog)
    }

    /// Reads the arguments of a program whose options know what is in the catalog. An error in them
    /// ends the process, and so does help.
    pub(crate) fn parse_with(catalog: &Catalog, words: &[OsString]) -> Self {
        let mut command = Self::known_command(catalog);
        // Errors in the arguments are printed before these are known.
        color::choose(color::asked(words));
        let matches = command.try_get_matches_from_mut(words);
        let matches = matches.unwrap_or_else(|error| error.exit());
        let parsed = Self::from_arg_matches(&matches);
        parsed.unwrap_or_else(|error| error.format(&mut command).exit())
    }
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what NFS operations cost over TCP and over RDMA, and print it as tables
    Compare(CompareArgs),
    /// Serve `compare --server` of another host, until interrupted
    CompareServer(CompareServerArgs),
    /// Say how operations would be transferred: all possible modes, what each costs, and the one
    /// that is chosen
    Explain(ExplainArgs),
    /// Draw calls of a capture as ladders: what each waited for, step by step
    Ladder(LadderArgs),
    /// Say which rules the traffic in a capture breaks, what costs needlessly, and what would cost
    /// less
    Lint(LintArgs),
    /// Judge a server or a client of any make: say which rules of RPC-over-RDMA it breaks
    Conform(ConformArgs),
    /// Run clients and servers in a simulation, with faults derived from a seed
    Sim(SimArgs),
    /// Export directories over RDMA and TCP, until interrupted
    Serve(ServeArgs),
    /// Pass RPC between clients and a server, over TCP and RDMA, until interrupted
    Gateway(GatewayArgs),
    /// List RDMA devices and their capabilities, and report missing prerequisites
    Devices(DevicesArgs),
    /// Mount an export through FUSE, so that any program can use it
    Mount(MountCommandArgs),
    /// Unmount what `mount` has mounted, also if its process is gone
    Umount(UmountArgs),
    /// Print what mounts have done, in the format of /proc/self/mountstats
    Mountstats(MountstatsArgs),
    /// Call a server repeatedly, and print the latency
    Ping(PingArgs),
    /// Make calls to servers that run already, and print calls per second, latency and processor time
    Load(LoadArgs),
    /// List what a server exports
    Exports(ExportsArgs),
    /// List a directory
    Ls(LsArgs),
    /// Show the attributes of a file
    Stat(StatArgs),
    /// Write files to standard output
    Cat(CatArgs),
    /// Copy files from a server
    Get(GetArgs),
    /// Copy files to a server
    Put(PutArgs),
    /// Remove files
    Rm(RmArgs),
    /// Make directories
    Mkdir(MkdirArgs),
    /// Print a completion script for bash, zsh, fish or another shell
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands and of the mount options
    Man(ManArgs),
    /// Serve one transport for `compare` until standard input ends
    // The name differs much from all others, because clap would suggest it for a misspelt one.
    #[command(name = CHILD, hide = true)]
    CompareChild(ChildArgs),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_option_is_documented() {
        let command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments() {
                let name = (sub.get_name(), arg.get_id());
                assert!(arg.get_help().is_some(), "{name:?} has no help");
            }
        }
    }

    #[test]
    fn what_is_laid_out_by_hand_fits_its_lines() {
        for sub in Cli::command().get_subcommands() {
            let text = sub.get_after_help().map(ToString::to_string);
            for line in text.unwrap_or_default().lines() {
                let width = line.chars().count();
                assert!(width <= 100, "{}: {width}: {line}", sub.get_name());
            }
        }
    }

    #[test]
    fn a_slip_of_the_pen_never_suggests_what_is_hidden() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut suggested = 0;
        for name in visible.map(clap::Command::get_name) {
            for at in 1..name.len() {
                let (head, tail) = name.split_at(at);
                let mut swapped: Vec<char> = name.chars().collect();
                swapped.swap(at - 1, at);
                let swapped = swapped.into_iter().collect();
                for slip in [
                    swapped,
                    format!("{head}x{tail}"),
                    format!("{head}{}", &tail[1..]),
                ] {
                    let Err(error) = Cli::try_parse_from(["rpcrdma", &slip]) else {
                        continue;
                    };
                    let text = error.to_string();
                    assert!(!text.contains(CHILD), "{slip}: {text}");
                    suggested += usize::from(text.contains("similar") && text.contains(name));
                }
            }
        }
        assert!(suggested > 50, "only {suggested} slips had a suggestion");
    }

    /// The documents, relative to the workspace's root, whose example commands are checked, beside
    /// all pages of `docs/`.
    const DOCUMENTS: [&str; 5] = [
        "README.md",
        "CONTRIBUTING.md",
        "cli/packaging/rpcrdma.service",
        "cli/packaging/rpcrdma-unprivileged.service",
        "cli/packaging/rpcrdma-gateway.service",
    ];

    fn documents() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = fs::read_dir(root.join("docs")).unwrap();
        let pages = pages.map(|page| page.unwrap().path());
        let pages = pages.filter(|page| page.extension().is_some_and(|kind| kind == "md"));
        let others = DOCUMENTS.iter().map(|name| root.join(name));
        others.chain(pages).collect()
    }

    /// Splits a line into words like a shell, as far as the documents use that.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for letter in line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                // A comment, another command, or a redirection follows.
                '#' | '|' | '&' | '>' | ';' if !quoted => break,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn documents_only_show_commands_that_there_are() {
        let mut seen = 0;
        for document in documents() {
            let text = fs::read_to_string(&document).unwrap().replace("\\\n", " ");
            for line in text.lines() {
                let line = line.strip_prefix("ExecStart=").unwrap_or(line);
                let line = line
                    .strip_prefix("taskset -c ")
                    .and_then(|pinned| pinned.split_once(' '))
                    .map_or(line, |(_processor, command)| command);
                let line = line.strip_prefix("cargo run --release -- ").map_or_else(
                    || {
                        line.strip_prefix("/usr/local/bin/")
                            .unwrap_or(line)
                            .to_owned()
                    },
                    |rest| format!("rpcrdma {rest}"),
                );
                if line.starts_with("rpcrdma ") {
                    seen += 1;
                    // `--set help` is no error.
                    if let Err(error) = Cli::try_parse_from(words(&line))
                        && error.kind() != ErrorKind::DisplayHelp
                    {
                        panic!("{}: {line}\n{error}", document.display());
                    }
                }
            }
        }
        assert!(seen >= 25, "only {seen} commands were found");
    }

    /// The folder of what `testing/fuzz/run` finds, which is made only then.
    const MADE_BY_RUNS: &str = "testing/fuzz/artifacts";

    /// Returns whether a name in code style is that of a file or a folder of the workspace. Words in
    /// capitals stand for a name.
    fn is_path(name: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
        name.chars().all(is_plain)
            && !name.starts_with('/')
            && name != MADE_BY_RUNS
            && (name.contains('/') || name.ends_with(".rs"))
    }

    /// The documents whose names of files are checked.
    const FOR_CONTRIBUTORS: [&str; 3] = ["CONTRIBUTING.md", "docs/adding.md", "docs/change.md"];

    #[test]
    fn files_that_contributors_are_told_of_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let texts = FOR_CONTRIBUTORS.map(|name| fs::read_to_string(root.join(name)).unwrap());
        let text = texts.join("\n\n");
        let mut seen = 0;
        for paragraph in text.split("\n\n").filter(|text| !text.contains("```")) {
            // A short name is of a file beside or below one that the paragraph names before.
            let mut folders = vec![root.clone()];
            let quoted = paragraph.split('`').skip(1).step_by(2);
            for name in quoted.filter(|name| is_path(name)) {
                let mut paths = folders.iter().map(|folder| folder.join(name));
                let Some(path) = paths.find(|path| path.exists()) else {
                    panic!("{name} does not exist: {paragraph}");
                };
                if name.contains('/') {
                    folders.extend(path.parent().map(Path::to_owned));
                    folders.push(path);
                }
                seen += 1;
            }
        }
        assert!(seen >= 45, "only {seen} names were found");
    }
}
