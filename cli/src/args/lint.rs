//! Options of `lint`.

use std::path::PathBuf;

use clap::Args;
use rpcrdma_setup::costs::CostsArg;

/// Say which rules the traffic in a capture breaks, what costs needlessly, and what would cost less.
#[derive(Debug, Args)]
#[command(after_help = "\
CAPTURE is a pcap or pcapng file of anybody's traffic: RPC-over-RDMA of version 1 or 2 over iWARP
(also by siw) or RoCE version 2 (also by rxe), as tcpdump, Wireshark, or --capture of a command here
writes it. Captures that begin within a connection are read as far as possible: what depends on its
beginning is not checked. Frames have to be whole (tcpdump -s 0).

What it prints: each rule that is broken, with the first three packets, as Wireshark numbers them;
each thing that costs needlessly, with what to set instead; and what all calls of the capture took
in round trips, interrupts, registrations and RDMA operations, beside what they would have taken
with longer receives, continued messages and data placed by Sends. Those counts are of events that
replies had to wait for. Times are estimates by the cost model that --costs sets.

Exit status: 0 if no rule is broken, 1 if one is, 2 if the file cannot be read.

Examples:
  tcpdump -i eth0 -s 0 -w all.pcap 'tcp port 20049 or udp port 4791'
  rpcrdma lint all.pcap
  rpcrdma lint --all --json all.pcap
  rpcrdma lint --costs registration=9us,interrupt=20us all.pcap")]
pub(crate) struct LintArgs {
    /// The capture
    #[arg(value_name = "CAPTURE")]
    pub(crate) capture: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Name all packets, not the first three of each finding
    #[arg(long)]
    pub(crate) all: bool,

    /// Costs by which times are estimated: NAME=VALUE,… or a file that `compare --save-costs` wrote.
    /// `explain` prints all names and their values
    #[arg(long, value_name = "COSTS", value_parser = CostsArg::parse)]
    pub(crate) costs: Option<CostsArg>,
}
