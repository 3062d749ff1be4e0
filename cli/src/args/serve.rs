//! Options of `serve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nfs_binding::fs::MemoryFs;
use nfs_binding::overrides::Overridden;
use nfs_binding::server::{ExportOptions, overridden};
use rpcrdma_setup::catalog::Catalog;
use rpcrdma_setup::units;

use super::{AcceptingArgs, MetricsArgs, TraceArgs};

/// Export directories over RDMA and TCP, until interrupted.
///
/// Prints one `export` line for each export and one `listening` line for each transport when it is
/// ready, and with --metrics where they are. SIGINT, SIGTERM and SIGHUP end it gracefully (`--drain`).
#[derive(Debug, Args)]
#[command(after_help = "\
Export options are those of exports(5): ro, rw (the default), root_squash, no_root_squash,
all_squash, anonuid=, anongid=, secure, insecure, sync (the default), async, crossmnt, nohide,
fsid=, and client=ADDRESS[/PREFIX] to allow only those clients (repeatable); inode_reuse exports a
file system in which a later file cannot be distinguished from a removed one. A server that runs
as root has root_squash and secure by default. Any other server has no_root_squash and insecure,
because it can only act as its own user. Of two options that contradict each other the last one
applies, and a note says so.

An export's path is its directory, or /NAME. By default only this machine can connect. For local
users, the kernel's information decides who calls, and local root is root. Other machines are
trusted: there is no authentication beyond AUTH_SYS, in which a client can claim any identity. Use
`--listen 0.0.0.0` or `--listen ::` to serve them, and secure and client= to restrict which.")]
pub(crate) struct ServeArgs {
    /// A directory to export as its own path, or as /NAME (repeatable)
    #[arg(
        short,
        long = "export",
        value_name = "DIR[:OPTIONS] | NAME=DIR[:OPTIONS]"
    )]
    pub(crate) exports: Vec<String>,

    /// Also export an empty file system in memory, as /memory, of at most SIZE bytes (1G)
    #[arg(long, value_name = "[SIZE][:OPTIONS]", num_args = 0..=1, default_missing_value = "1G",
          value_parser = MemoryExport::parse)]
    pub(crate) memory: Option<MemoryExport>,

    /// Read and write files of --export without the page cache (O_DIRECT). Whole pages of what clients
    /// write go to the storage from the memory in which they arrived if that is aligned, as it is for
    /// data that was placed by Sends (`ddp`) or fetched by RDMA Reads. Other data is copied into aligned
    /// memory first, and parts of a page go through the page cache. A file system that refuses O_DIRECT
    /// is served through the page cache, with a warning. The server ends with the numbers of bytes. See
    /// docs/direct-io.md
    #[arg(long)]
    pub(crate) direct_io: bool,

    /// Also let this local user act for other users, such as the user of a gateway or proxy
    /// (repeatable). A server that does not run as root serves this user, too
    #[arg(long = "trust-uid", value_name = "UID", value_parser = uid)]
    pub(crate) trusted: Vec<u32>,

    /// File with the key that authenticates file handles; it is created if missing. Handles stay
    /// valid as long as the file exists. By default rpcrdma/handle-key in $XDG_STATE_HOME or
    /// ~/.local/state
    #[arg(long, value_name = "FILE")]
    pub(crate) handle_key: Option<PathBuf>,

    /// Address to listen on, or a host name; all addresses of the name are used
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) listen: String,

    /// Memory for the receive buffers of all RDMA connections together, at most about 30 % of
    /// `--memory-limit`. On iwarp and on RoCE and InfiniBand adapters, connections share the buffers
    /// that traffic needs, up to this, and senders wait for buffers beyond it. On rxe, there is a buffer
    /// for each message that clients may send; if they would take more than this, connections may be
    /// lost and re-established. On other devices, new connections get fewer
    /// credits when it runs short, and finally they are told to try again: 64 credits take 280 KiB, or
    /// 4.7 MiB with `ddp:receive`; `cont:receive` takes as much again for incomplete messages. Neither is
    /// offered to new connections once half of this memory is taken. Default: 512M, or
    /// about 30 % of `--memory-limit` if that is less
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub(crate) receive_memory: Option<u64>,

    /// Maximum number of connections, of all clients over RDMA and TCP together
    ///
    /// At the limit, a new connection replaces one that has made no successful call to an export, or
    /// else the one whose last such call is the longest ago. The remaining descriptors (`ulimit -n`)
    /// are for files. Default: half of the descriptors less 64, but no more than half of `--memory-limit`
    /// allows at 64 KiB each
    #[arg(long, value_name = "N", value_parser = connections)]
    pub(crate) connections: Option<usize>,

    /// Also serve this project's test programs, and call clients that ask for it, as `ping
    /// --callbacks` does
    #[arg(long)]
    pub(crate) callbacks: bool,

    /// Also serve an RPC program that was added to this command (repeatable). Each thread has a service
    /// of its own for it
    #[arg(long = "program", value_name = "NAME", value_parser = workload)]
    pub(crate) programs: Vec<String>,

    /// Port for RDMA; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 20049)]
    pub(crate) port: u16,

    /// Port for NFS and MOUNT over TCP; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 2049)]
    pub(crate) tcp_port: u16,

    /// Whether to register NFS, MOUNT and each --program with the rpcbind of this machine, so that clients
    /// need not name ports and `showmount` and `rpcinfo` find the server. auto: if it listens on --tcp-port
    /// 2049 for other hosts and rpcbind runs. An ordinary user may register, too. The registration ends
    /// with the server; one that a killed server has left behind is replaced, and one of another server
    /// is an error
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = RpcbindUse::Auto)]
    pub(crate) rpcbind: RpcbindUse,

    #[command(flatten)]
    pub(crate) accepting: AcceptingArgs,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) trace: TraceArgs,

    /// Threads that serve connections: 1 to 64, or auto for as many as there are processors that the
    /// server may use
    ///
    /// Connections, over TCP and over RDMA, are spread evenly over them;
    /// receive memory is divided among them, and auto makes fewer threads if each would have less
    /// than 16 MiB of it or 64 descriptors, or if there would be descriptors (`ulimit -n`) for fewer
    /// than 64 connections. With --rate or --busy-poll, auto is one thread
    #[arg(long, value_name = "N", default_value = "auto", value_parser = Threads::parse)]
    pub(crate) threads: Threads,

    /// Threads for work that may block on a disk, for each of --threads
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
}

impl ServeArgs {
    /// The default of `--receive-memory`, bytes.
    pub(crate) const RECEIVE_MEMORY: u64 = 512 << 20;
}

/// When a server is registered with rpcbind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RpcbindUse {
    /// Where clients would look for it, and rpcbind runs
    Auto,
    /// Always; without rpcbind, the server does not start
    Yes,
    /// Never
    No,
}

/// The number of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One for each processor.
    Auto,
    Number(u16),
}

impl Threads {
    /// The maximum number. Of the memory for calls, at most a quarter lies unused in this many
    /// loops ([`rpcrdma_host::Budget`]).
    pub(crate) const MOST: u16 = 64;

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().ok().filter(|n| (1..=Self::MOST).contains(n));
        number
            .map(Self::Number)
            .ok_or_else(|| format!("write auto, or a number from 1 to {}", Self::MOST))
    }
}

/// Parses the maximum number of connections.
pub(super) fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number from 1".to_owned())
}

/// The default size of a file system in memory, bytes.
const MEMORY_SIZE: u64 = 1 << 30;

/// An export of a file system in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryExport {
    /// The maximum size of its content, bytes, checked to be useful.
    pub(crate) size: u64,
    pub(crate) options: ExportOptions,
    /// The options that a later one overrides.
    pub(crate) overridden: Vec<Overridden>,
}

impl MemoryExport {
    fn parse(text: &str) -> Result<Self, String> {
        let (size, options) = text.split_once(':').unwrap_or((text, ""));
        let size = match size {
            "" => MEMORY_SIZE,
            size => units::size(size)?,
        };
        if size < MemoryFs::LEAST {
            return Err(format!(
                "nothing fits into that: at least {} are wanted",
                units::show_size(MemoryFs::LEAST)
            ));
        }
        let overridden = overridden(options);
        let options = ExportOptions::parse(options).map_err(|error| error.to_string())?;
        // Nothing is mounted in it, it is mounted nowhere, and its handles end with the server.
        let idle = [
            ("crossmnt", options.crossmnt),
            ("nohide", options.nohide),
            ("inode_reuse", options.inode_reuse),
            ("fsid", options.fsid.is_some()),
        ];
        if let Some((name, _)) = idle.into_iter().find(|(_, given)| *given) {
            return Err(format!(
                "export option {name}: it is for directories, and has no effect on a file system in memory"
            ));
        }
        Ok(Self {
            size,
            options,
            overridden,
        })
    }
}

/// Parses the name of a program. The command itself has none; those that programs add are known where
/// [`known`](super::known) has replaced this.
fn workload(text: &str) -> Result<String, String> {
    let known = Catalog::standard();
    known.workload(text).map(|known| known.name().to_owned())
}

/// Parses a user id.
fn uid(text: &str) -> Result<u32, String> {
    // All ones means "no user" to the host.
    let uid = text.parse().ok().filter(|&uid| uid != u32::MAX);
    uid.ok_or_else(|| format!("`{text}` is not the number of a user: `id -u NAME` tells it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_holds_nothing_is_refused() {
        let refused = |text| MemoryExport::parse(text).unwrap_err();
        assert_eq!(MemoryExport::parse("4k").unwrap().size, 4096);
        for wrong in ["0", "4095"] {
            assert!(refused(wrong).contains("at least 4 KiB"), "{wrong}");
        }
        assert!(refused("8q").contains("not a size"));
    }

    #[test]
    fn a_file_system_in_memory_has_export_options() {
        let memory = MemoryExport::parse("64k:ro,all_squash").unwrap();
        assert_eq!(memory.size, 64 << 10);
        assert_eq!(
            memory.options,
            ExportOptions::parse("ro,all_squash").unwrap()
        );
        let plain = MemoryExport::parse(":insecure").unwrap();
        assert_eq!(plain.size, MEMORY_SIZE);
        assert!(!plain.options.secure);
        for idle in ["crossmnt", "ro,nohide", "inode_reuse", "fsid=7"] {
            let refused = MemoryExport::parse(&format!("1M:{idle}")).unwrap_err();
            assert!(refused.contains("no effect"), "{refused}");
        }
        let wrong = MemoryExport::parse("1M:frobnicate").unwrap_err();
        assert!(wrong.contains("unknown export option"), "{wrong}");
    }

    #[test]
    fn threads_are_a_number_or_auto() {
        assert_eq!(Threads::parse("auto"), Ok(Threads::Auto));
        assert_eq!(Threads::parse("64"), Ok(Threads::Number(64)));
        for wrong in ["0", "65", "-1", "many", ""] {
            assert!(
                Threads::parse(wrong).unwrap_err().contains("auto"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn users_have_numbers() {
        assert_eq!(uid("0"), Ok(0));
        assert_eq!(uid("4294967294"), Ok(u32::MAX - 1));
        for wrong in ["root", "-1", "4294967295", ""] {
            assert!(uid(wrong).unwrap_err().contains("id -u"), "{wrong}");
        }
    }
}
