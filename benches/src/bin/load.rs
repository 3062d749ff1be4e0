//! Measures servers of NFS version 3: calls per second, latency, and processor time for each call.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nfs_binding::client::NfsUrl;
use rdma::middleware::Delay;
use rpcrdma_benches::load::{self, Op, Plan, Target};
use rpcrdma_setup::{Context, Failure};

/// Make calls of NFS version 3 to servers, in rounds in which these take turns, and print calls per
/// second, latency and the processor time that each server needs for a call.
///
/// Each server gets a test file of 1 MiB, which is removed at the end.
#[derive(Debug, Parser)]
#[command(
    name = "load",
    after_help = "\
Examples:

  load -o proto=tcp nfs://server/export
  load -o proto=tcp --server-pid 71 nfs://localhost/memory --ops getattr --calls 32
  load --name tcp --server-pid 71 -o proto=tcp nfs://localhost/memory \\
       --beside 'v1 71 rpcrdma=1 nfs://localhost/memory'

benches/ganesha measures `rpcrdma serve` beside nfs-ganesha."
)]
struct Options {
    /// The directory for the test file, on the first server
    #[arg(value_name = "nfs://SERVER[:PORT]/EXPORT/PATH")]
    url: NfsUrl,

    /// Mount options of the first server, as of the `rpcrdma` command: proto=rdma|tcp, port=N,
    /// mountport=N, rpcrdma=1|2|2wg|auto, features=…
    #[arg(short, long = "options", value_name = "OPTIONS")]
    options: Vec<String>,

    /// The first server's process on this machine, whose processor time is measured
    #[arg(long, value_name = "PID", value_parser = load::parse_pid)]
    server_pid: Option<u32>,

    /// The first server's name in the tables
    #[arg(long, default_value = "server", value_parser = name)]
    name: String,

    /// Another server or another way to it, measured in turns with the first one and compared with
    /// it (repeatable). `-` stands for no PID and for no options
    #[arg(long, value_name = "NAME PID OPTIONS URL", value_parser = target)]
    beside: Vec<Target>,

    /// Connections to each server
    #[arg(short, long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,

    /// Calls in flight on each connection
    #[arg(short = 'n', long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    calls: u16,

    /// Threads of this program, among which the connections are divided
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,

    /// Time of one operation on one server in one round
    #[arg(short, long, value_name = "TIME", default_value = "500ms")]
    time: Delay,

    /// Rounds. Medians over them are printed; intervals take six or more
    #[arg(short, long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,

    /// Operations: some of getattr, read (4 KiB) and write (8 KiB, unstable)
    #[arg(
        long,
        value_name = "OPS",
        value_delimiter = ',',
        default_value = "getattr,read,write"
    )]
    ops: Vec<Op>,

    /// Also write the figures to a file as JSON; `-` writes them to standard output instead of the
    /// tables
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            // There is nobody to tell if standard error is closed.
            drop(writeln!(io::stderr(), "load: {failure}"));
            ExitCode::from(failure.exit_status())
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let first = Target {
        name: options.name.clone(),
        pid: options.server_pid,
        options: options.options.join(","),
        url: options.url.clone(),
    };
    for (index, op) in options.ops.iter().enumerate() {
        if options.ops[..index].contains(op) {
            return Err(Failure::Usage(format!(
                "--ops: {} is there twice",
                op.name()
            )));
        }
    }
    let plan = Plan {
        targets: [first].into_iter().chain(options.beside.clone()).collect(),
        ops: options.ops.clone(),
        connections: usize::from(options.connections),
        in_flight: usize::from(options.calls),
        threads: usize::from(options.threads),
        time: options.time.0,
        rounds: options.rounds,
    };
    plan.check()?;
    // Each connection takes a descriptor. Where there are too few, connecting fails and says so.
    drop(rpc_transport::limits::raise_descriptors());
    let outcome = load::run(&plan)?;
    let json = match &options.json {
        Some(file) => Some((file, load::json(&plan, &outcome)?)),
        None => None,
    };
    let text = match &json {
        Some((file, json)) if file.as_os_str() == "-" => json.clone(),
        _ => load::text(&plan, &outcome),
    };
    if let Some((file, json)) = json.filter(|(file, _)| file.as_os_str() != "-") {
        fs::write(file, json).context(file.display())?;
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::output(&error))
}
