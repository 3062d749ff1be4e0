//! Options of the commands that work on files of a server.

use std::path::PathBuf;

use clap::Args;
use rdma::Clock;
use rdma::middleware::{Delay, Rate};
use rpc_transport::rdma::CostModel;
use rpcrdma_host::CongestionControl;
use rpcrdma_setup::Failure;
use rpcrdma_setup::access::{Access, LinkOptions};
use rpcrdma_setup::catalog::{Catalog, Features};
use rpcrdma_setup::congestion::check_congestion;
use rpcrdma_setup::costs::CostsArg;
use rpcrdma_setup::device::DeviceName;
use rpcrdma_setup::mount_options::{self, MountOptions, Proto};

use super::tuning::{TuningArgs, features};
use super::{CaptureArgs, TraceArgs};
use crate::{interrupt, output, trace};

const URL: &str = "nfs://SERVER[:PORT]/EXPORT/PATH";

/// Options for connecting to the server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MountArgs {
    /// Mount options, as in nfs(5), separated by commas: proto=rdma|tcp, port=N, rpcrdma=VERSION, soft, ...
    /// (rpcrdma-mount-options(7) has all)
    ///
    /// proto=rdma|tcp, port=N, rpcrdma=1|2|2wg|auto,
    /// features=none|ddp|cont|ddp+cont (each also with :send or :receive; see `serve --help`),
    /// inline=SIZE|SEND:RECEIVE (longest messages without chunks, in every version: see `serve --inline`; 4k),
    /// device=iwarp|verbs|verbs:NAME, registration=auto|windows|per-call|persistent-unsafe,
    /// clientaddr=ADDR (chooses the verbs device), rsize=SIZE, wsize=SIZE, nconnect=N (connections, 1
    /// to 16), threads=N (threads that drive these connections, at most one for each; over TCP and iwarp, not
    /// with --rate),
    /// hard or soft (calls to a server that does not answer wait, or fail), timeo=N (tenths of a second until a
    /// call is repeated; 600), retrans=N (repetitions before a soft call fails; 2), ro,
    /// suid and dev (let `get` copy set-id bits and devices, which a hostile server could plant),
    /// nosuid and nodev (keep `put` from copying them), … Of two contradictory options the last one
    /// applies, and a note says so. rpcrdma-mount-options(7) has all of them
    #[arg(short, long = "options", value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,

    /// Delay everything that this side sends, as a long link would
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub(crate) delay: Delay,

    /// Limit the link to this many bits per second, as far as this side drives it
    ///
    /// Over TCP that is all this side sends. Over RDMA it is what this side posts: Sends, RDMA
    /// Writes, and the answers to its own RDMA Reads. Data of a long READ comes by RDMA Writes of
    /// the server, and data of a long WRITE is fetched by RDMA Reads of the server, so neither is
    /// limited here: use `serve --rate` as well.
    #[arg(long, value_name = "BITS")]
    pub(crate) rate: Option<Rate>,

    /// Spin for replies instead of sleeping: lower latency, one processor kept busy
    #[arg(long)]
    pub(crate) busy_poll: bool,

    /// Congestion control of this side's TCP connections (with device iwarp, also of those under
    /// RDMA): cubic, reno, bbr, ... It affects only what this side sends; `serve` has the same
    /// option. Default: the system's
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<CongestionControl>,

    /// The cost model of this connection, by which transfer modes are chosen: NAME=VALUE,… or a
    /// file that `compare --save-costs` wrote. `explain` prints all names and their values
    #[arg(long, value_name = "COSTS", value_parser = CostsArg::parse)]
    pub(crate) costs: Option<CostsArg>,

    /// Features for fewer round trips that this end uses in version 2, as `-o features=`
    #[arg(long, value_name = "FEATURES", value_parser = features)]
    pub(crate) features: Option<Features>,

    #[command(flatten)]
    pub(crate) tuning: TuningArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,
}

impl MountArgs {
    /// Converts the arguments to the parameters of a connection, and begins the trace that they ask for.
    /// Prints a note for each mount option that a later one overrides, or that does something else here.
    ///
    /// # Errors
    /// A mount option that is unknown or cannot be used here, costs that cannot be read, or a trace that
    /// cannot be written.
    pub(crate) fn access(&self, catalog: &Catalog) -> Result<Access, Failure> {
        let access = self.access_of_mount(catalog)?;
        if access.trace.is_some() {
            // The trace is completed before the process ends.
            interrupt::handle()?;
        }
        Ok(access)
    }

    /// Does the same for a command that handles signals itself.
    ///
    /// # Errors
    /// The errors of [`MountArgs::access`].
    pub(crate) fn access_of_mount(&self, catalog: &Catalog) -> Result<Access, Failure> {
        let mut access = self.planned(catalog)?;
        access.trace = trace::open(&self.trace, Clock::monotonic())?;
        if self.rate.is_some() && access.mount.proto == Proto::Rdma {
            output::remark(
                "over RDMA, --rate limits what this end posts; what the server reads and writes by RDMA \
                 is limited by `serve --rate`",
            );
        }
        Ok(access)
    }

    /// Does the same for a command that sends nothing, where a rate is that of the whole link.
    ///
    /// # Errors
    /// The errors of [`MountArgs::access`].
    pub(crate) fn planned(&self, catalog: &Catalog) -> Result<Access, Failure> {
        let (access, overridden) = self.access_and_overridden(catalog)?;
        if access.mount.remount {
            let only = "mount option remount: only `rpcrdma mount` has something to change";
            return Err(Failure::Usage(only.to_owned()));
        }
        for note in overridden {
            output::remark(format_args!("mount {note}"));
        }
        for (option, what) in mount_options::different_here(&self.options.join(",")) {
            output::remark(format_args!("mount option {option}: {what}"));
        }
        note_other_delay(self.delay, &access.rdma.common.costs);
        Ok(access)
    }

    /// Checks the arguments, without notes.
    ///
    /// # Errors
    /// The errors of [`MountArgs::access`].
    pub(crate) fn check(&self, catalog: &Catalog) -> Result<(), Failure> {
        self.access_and_overridden(catalog).map(drop)
    }

    fn access_and_overridden(
        &self,
        catalog: &Catalog,
    ) -> Result<(Access, Vec<nfs_binding::overrides::Overridden>), Failure> {
        let options = self.options.join(",");
        let (mut mount, overridden) = MountOptions::parse_and_note(catalog, &options)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        if let Some(features) = &self.features {
            if let Some(other) = mount.features.take_if(|other| other != features) {
                let text =
                    format!("--features {features}: mount option features={other} says otherwise");
                return Err(Failure::Usage(text));
            }
            mount.features = Some(features.clone());
        }
        let link = LinkOptions {
            delay: self.delay.0,
            rate: self.rate.map(|rate| rate.0),
            busy_poll: self.busy_poll,
            // The server decides.
            crc: false,
            congestion: self.congestion.clone(),
        };
        let tuning = self.tuning.tuning(catalog)?;
        let access = Access::tuned(mount, link, self.costs.as_ref(), &tuning)?;
        if let Some(congestion) = &self.congestion {
            let is_tcp =
                access.mount.proto == Proto::Tcp || access.device.name == DeviceName::Iwarp;
            if !is_tcp {
                let text = format!(
                    "--congestion: device {} has no TCP connections",
                    access.device.name
                );
                return Err(Failure::Usage(text));
            }
            check_congestion(congestion)?;
        }
        Ok((access, overridden))
    }
}

/// Prints a note if `--costs` gives another delay of the link than `--delay`: transfers are planned by that of
/// `--costs`.
pub(crate) fn note_other_delay(delay: Delay, costs: &CostModel) {
    if !delay.0.is_zero() && costs.link_delay != delay.0 {
        output::remark(format_args!(
            "transfers are planned by the link-delay of --costs, {}, which --delay does not change",
            Delay(costs.link_delay)
        ));
    }
}

/// List what a server exports. The options mountport=, mountproto= and mounthost= say where its
/// MOUNT service is, if not at the address of NFS.
#[derive(Debug, Args)]
pub(crate) struct ExportsArgs {
    /// The server
    #[arg(value_name = "SERVER[:PORT]")]
    pub(crate) server: String,
    /// Print JSON: path and groups of each export (no groups: everyone)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// List a directory. As with ls(1), names that begin with a dot are left out unless -a is given.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Also list names that begin with a dot (except . and .. themselves)
    #[arg(short, long, visible_short_alias = 'A')]
    pub(crate) all: bool,
    /// Show type, mode, links, owner, size and time (UTC) of each entry
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Print JSON: for each URL its entries, with name, URL and attributes
    #[arg(long, conflicts_with = "long")]
    pub(crate) json: bool,
    /// Directories or files
    #[arg(value_name = URL, required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Show the attributes of a file. Times are in UTC.
#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    /// Print JSON: the attributes of each file
    #[arg(long)]
    pub(crate) json: bool,
    /// Files of any type
    #[arg(value_name = URL, required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Write files to standard output.
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// Regular files
    #[arg(value_name = URL, required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Copy files from a server.
///
/// Each file is synced to the local disk before it gets its name, so that no name refers to an
/// incomplete file after a power cut. On a slow disk, a tree of small files takes most of its time
/// for that; the target can be in a memory file system (/dev/shm), and cp(1) from a `rpcrdma mount`
/// does not sync.
///
/// A hostile server could plant programs that run as root, and devices. So files get no set-id bits
/// unless -o suid is given; a note counts the files that had some. Devices are copied only with -o
/// dev. If a device is left out, the exit status is 1, unless -o nodev is given.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Copy directories with everything in them. A symbolic link that is named is then copied as a
    /// link; without this, the file that it leads to is copied
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// The file or directory to copy
    #[arg(value_name = URL)]
    pub(crate) source: String,
    /// The target: a new name, or an existing directory to copy into; - writes a file to standard
    /// output (a file of that name is ./-)
    #[arg(value_name = "LOCAL", default_value = ".")]
    pub(crate) target: PathBuf,
    /// Further names, which cp(1) would take: not supported
    #[arg(hide = true)]
    pub(crate) more: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Copy files to a server.
///
/// A file that exists there is overwritten in place, as by cp(1). If the server has no room for the new
/// content, the incomplete file is removed there, and the earlier content is lost.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// Copy directories with everything in them. A symbolic link that is named is then copied as a
    /// link; without this, the file that it leads to is copied
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// The files or directories to copy; - is standard input, which goes to the file that the URL
    /// names (a file of that name is ./-)
    #[arg(value_name = "LOCAL", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// The target: a new name, or an existing directory to copy into. Several files go into a directory
    #[arg(value_name = URL)]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Remove files.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Remove directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The files to remove
    #[arg(value_name = URL, required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

/// Make directories.
#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    /// Make missing parents too, and accept a directory that is there already
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// The directories to create
    #[arg(value_name = URL, required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}
