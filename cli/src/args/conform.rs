//! Options of `conform`.

use std::path::PathBuf;

use clap::Args;
use rdma::middleware::Delay;

use super::CaptureArgs;
use super::files::MountArgs;

/// Judge a server of any make by RFC 8166, 8797, 8267 and both drafts: say which rules it breaks.
#[derive(Debug, Args)]
#[command(after_help = "\
Each case has an address (rfc8166/4.5.2/3: document, section, number), a level (MUST, SHOULD or
robustness), one sentence of what is sent, and one of what must come. It has a connection of its
own, over iWARP. The server is tested in version 1, and in draft -07 (rpcrdma2-07) and the version 2
of 2016 (rpcrdma2-01) if it speaks these. The export must be writable: a folder is made in it, and
removed at the end. A case whose rule a simpler one found broken already is skipped.

Exit status: 0 if the server passes, 1 if it deviates, 2 if it could not be tested.

  rpcrdma conform nfs://server/export                       all cases
  rpcrdma conform --list --only rfc8166/4.5                 what those of a section send and expect
  rpcrdma conform --only rpcrdma2-07 --json report.json nfs://server/export")]
pub(crate) struct ConformArgs {
    /// Export of the server under test, or a folder in it, as nfs://SERVER[:PORT]/PATH
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) url: Option<String>,

    /// List the cases, and connect to nothing
    #[arg(long, conflicts_with_all = ["strict", "junit", "json", "capture"])]
    pub(crate) list: bool,

    /// Only cases whose address begins with this: rfc8166, rfc8166/4.5, rfc8166/4.5.2/3. It can be given
    /// several times
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) only: Vec<String>,

    /// Count deviations from a SHOULD as well
    #[arg(long)]
    pub(crate) strict: bool,

    /// Longest wait for each message that must come
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) timeout: Delay,

    /// Also perform cases that can exhaust a server
    #[arg(long)]
    pub(crate) hostile: bool,

    /// Write the results to this file in the XML of JUnit
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Write the results to this file as JSON, with the octets of failed cases
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    #[command(flatten)]
    pub(crate) mount: MountArgs,
}
