//! Options of `load`.

use std::path::PathBuf;

use clap::Args;
use nfs_binding::client::NfsUrl;
use rdma::middleware::Delay;
use rpcrdma_compare::OpName;
use rpcrdma_setup::units;

use super::TraceArgs;
use super::compare::OpParser;
use super::tuning::TuningArgs;
use crate::load::{Target, parse_pid};

/// Make calls to servers that run already, in rounds in which these take turns, and print calls per
/// second, latency and the processor time that each server needs for a call.
///
/// The files for the calls are in a directory of their own on each server, which is removed at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:

  rpcrdma load -o proto=tcp nfs://server/export
  rpcrdma load -o proto=tcp --server-pid 71 nfs://localhost/memory --ops getattr --calls 32
  rpcrdma load --name tcp --server-pid 71 -o proto=tcp nfs://localhost/memory \\
       --beside 'v1 71 rpcrdma=1 nfs://localhost/memory'

benches/ganesha measures `rpcrdma serve` beside nfs-ganesha.")]
pub(crate) struct LoadArgs {
    /// The directory for what the calls need, on the first server
    #[arg(value_name = "nfs://SERVER[:PORT]/EXPORT/PATH")]
    pub(crate) url: NfsUrl,

    /// Mount options of the first server, as of `ping`: proto=rdma|tcp, port=N, mountport=N,
    /// rpcrdma=1|2|2wg|auto, features=…
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,

    /// The first server's process on this machine, whose processor time is measured
    #[arg(long, value_name = "PID", value_parser = parse_pid)]
    pub(crate) server_pid: Option<u32>,

    /// The first server's name in the tables
    #[arg(long, default_value = "server", value_parser = name)]
    pub(crate) name: String,

    /// Another server or another way to it, measured in turns with the first one and compared with
    /// it (repeatable). `-` stands for no PID and for no options
    #[arg(long, value_name = "NAME PID OPTIONS URL", value_parser = target)]
    pub(crate) beside: Vec<Target>,

    /// Connections to each server
    #[arg(short, long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) connections: u16,

    /// Calls in flight on each connection
    #[arg(short = 'n', long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) calls: u16,

    /// Threads of this program, among which the connections are divided
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,

    /// Time of one operation on one server in one round
    #[arg(short, long, value_name = "TIME", default_value = "500ms")]
    pub(crate) time: Delay,

    /// Rounds. Medians over them are printed; intervals take six or more
    #[arg(short, long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(5..=1000))]
    pub(crate) rounds: u32,

    /// Operations, separated by commas
    #[arg(long, value_parser = OpParser(Vec::new()), value_delimiter = ',', value_name = "OP,…",
          default_value = "getattr,read,write")]
    pub(crate) ops: Vec<OpName>,

    /// Sizes of READ and WRITE, separated by commas. Default: READs of 4k, and WRITEs of 8k
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = units::size)]
    pub(crate) sizes: Vec<u64>,

    /// Also write the figures to a file as JSON; `-` writes them to standard output instead of the
    /// tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

/// Parses a name that tables have room for.
fn name(text: &str) -> Result<String, String> {
    const ROOM: usize = 20;
    match (1..=ROOM).contains(&text.chars().count()) && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name has 1 to {ROOM} characters")),
    }
}

fn target(text: &str) -> Result<Target, String> {
    let target: Target = text.parse()?;
    name(&target.name)?;
    Ok(target)
}
