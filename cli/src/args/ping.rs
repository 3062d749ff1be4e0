//! Options of `ping`.

use clap::{Args, ValueEnum};
use rdma::middleware::Delay;
use rpcrdma_setup::units;

use super::CaptureArgs;
use super::files::MountArgs;

/// The procedure to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PingOp {
    /// The NULL procedure: the round trip alone
    Null,
    /// GETATTR of the file or directory that the URL names
    Getattr,
    /// READ of the first bytes of the file that the URL names
    Read,
    /// WRITE to a scratch file in the directory that the URL names; the file is removed afterwards
    Write,
}

impl PingOp {
    /// Returns the name in options.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Getattr => "getattr",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Call a server repeatedly, and print the latency.
#[derive(Debug, Args)]
#[command(after_help = "\
Each call has a line as soon as it is answered, if there are few (at most 20) or if -D sets them
apart; otherwise there is a line every second, since a line for each would slow them down. -q has
the summary alone. With -v, also prints the version of RPC-over-RDMA and its features in use, and
the reasons. --json has one object instead, at the end: server, op, size (bytes), count, min_us,
median_us, mean_us, p99_us, max_us, histogram (below_us and count of each bucket), connections.

`ping` does not pin itself to a CPU. On one machine, the scheduler often puts client and server on
the same one, which can halve the latency, while `rpcrdma compare` pins each to its own. For the
same conditions here, start both with taskset(1), and turn off CRCs as `compare` does:

  taskset -c 1 rpcrdma serve --memory --crc off
  taskset -c 0 rpcrdma ping localhost")]
pub(crate) struct PingArgs {
    /// The server as HOST or HOST:PORT, or an nfs:// URL for operations on a file
    #[arg(value_name = "SERVER")]
    pub(crate) target: String,

    /// Procedure to call
    #[arg(long, value_enum, default_value_t = PingOp::Null)]
    pub(crate) op: PingOp,

    /// Number of calls to time, after as many (at most 100) for warming up. Ctrl-C ends it early,
    /// with the figures so far
    #[arg(short, long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,

    /// Bytes of data per call, for read, write and --callbacks (NULL and GETATTR carry none)
    #[arg(short, long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) size: Option<u64>,

    /// Wait this long between calls
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0")]
    pub(crate) interval: Delay,

    /// Have the server call this client --count times over the same connection, and report the results.
    /// The server must have been started with `serve --callbacks`. -s is the size of the data in
    /// each call and each reply
    #[arg(long, conflicts_with_all = ["op", "histogram", "interval", "json"])]
    pub(crate) callbacks: bool,

    /// Also print a histogram
    #[arg(short = 'H', long)]
    pub(crate) histogram: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    #[command(flatten)]
    pub(crate) mount: MountArgs,
}
