//! The command line.

mod compare;
mod files;
mod ping;
mod serve;
pub(crate) mod units;

use clap::{Parser, Subcommand};

pub(crate) use compare::{ChildArgs, CompareArgs, Crc, OpName, Serves};
pub(crate) use files::{
    CatArgs, ExportsArgs, GetArgs, LsArgs, MkdirArgs, MountArgs, PutArgs, RmArgs, StatArgs,
};
pub(crate) use ping::{PingArgs, PingOp};
pub(crate) use serve::ServeArgs;

const EXAMPLES: &str = "\
Examples:
  rpcrdma compare                                   what NFS costs over TCP and over RDMA, here
  rpcrdma compare --delay 1ms --json rows.json      the same over a link of 1 ms each way
  rpcrdma serve --export /srv/data --export pub=/srv/pub:ro
  rpcrdma exports localhost                         what a server exports
  rpcrdma ping -c 1000 -H localhost                 latency of NULL, with a histogram
  rpcrdma put -r src/ nfs://localhost/srv/data/src  copy a tree to the server, and back:
  rpcrdma get -r nfs://localhost/srv/data/src copy/
  rpcrdma ls -l -o proto=tcp nfs://localhost/pub

The server is reached over RDMA by a software iWARP device, which needs no driver and no
privilege; `-o proto=tcp` uses ONC RPC over TCP instead.
";

/// NFS over RPC-over-RDMA, on any machine.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more on standard error: -v for what happens to connections, -vv for every call.
    /// RUST_LOG, when set, decides instead
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what NFS operations cost over TCP and over RDMA, and print it as tables
    Compare(CompareArgs),
    /// Export directories over RDMA and TCP, until interrupted
    Serve(ServeArgs),
    /// Call a server again and again, and print how long it took
    Ping(PingArgs),
    /// List what a server exports
    Exports(ExportsArgs),
    /// List a directory
    Ls(LsArgs),
    /// Show what is known about a file
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
    /// What `compare` starts: serves one thing until standard input ends
    #[command(hide = true)]
    CompareChild(ChildArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
}
