//! Options of `ladder`.

use std::path::PathBuf;

use clap::Args;

/// Draw calls of a capture as ladders: what each waited for, step by step.
#[derive(Debug, Args)]
#[command(after_help = "\
CAPTURE is a pcap or pcapng file of anybody's traffic: RPC-over-RDMA of version 1 or 2 over iWARP
(also by siw) or RoCE version 2 (also by rxe), as tcpdump, Wireshark, or --capture of a command here
writes it. Frames have to be whole (tcpdump -s 0).

Times are those of the capture, which sees each packet once, at its own end of the link: an arrow
begins at the first packet and ends at the last one, so that of a single packet is level. Interrupts
and registrations are not in captures; registrations show as handles that a call offers.

Examples:
  rpcrdma ladder all.pcap
  rpcrdma ladder --slowest --count 1 all.pcap
  rpcrdma ladder --procedure WRITE --svg all.pcap >writes.svg
  rpcrdma ladder --packet 1234 all.pcap")]
pub(crate) struct LadderArgs {
    /// The capture
    #[arg(value_name = "CAPTURE")]
    pub(crate) capture: PathBuf,

    /// Number of calls
    #[arg(long, short = 'c', value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) count: u32,

    /// The slowest calls, slowest first, and not the first ones
    #[arg(long)]
    pub(crate) slowest: bool,

    /// Only calls of this procedure, such as WRITE or COMPOUND
    #[arg(long, value_name = "NAME")]
    pub(crate) procedure: Option<String>,

    /// Only the call with this packet, as Wireshark numbers them
    #[arg(long, value_name = "N")]
    pub(crate) packet: Option<u64>,

    /// Only calls with this XID: 0x and hexadecimal digits, or a number
    #[arg(long, value_name = "XID", value_parser = xid)]
    pub(crate) xid: Option<u32>,

    /// Print an SVG file, and nothing else
    #[arg(long)]
    pub(crate) svg: bool,
}

fn xid(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is no XID: write one like 0x1a2b3c4d"))
}
