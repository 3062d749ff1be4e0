//! Options of `mount` and `umount`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{CaptureArgs, MetricsArgs, MountArgs};

/// Options of `mount`.
#[derive(Debug, Args)]
pub(crate) struct MountCommandArgs {
    #[command(flatten)]
    pub(crate) mount: MountArgs,

    /// The export to mount, or a directory below one; SERVER:/EXPORT, as in fstab, is understood as
    /// well
    #[arg(value_name = "nfs://SERVER[:PORT]/EXPORT")]
    pub(crate) url: String,

    /// The directory of this machine to mount it at
    #[arg(value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub(crate) mount_point: PathBuf,

    /// Stay in the foreground, and unmount when interrupted. Otherwise the command returns when the
    /// export is mounted
    #[arg(short, long)]
    pub(crate) foreground: bool,

    /// Append the messages of the process in the background to this file. Without this, they are lost
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    pub(crate) log: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,

    #[command(flatten)]
    pub(crate) capture: CaptureArgs,

    /// This process is the one in the background
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

/// Options of `umount`.
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Where something is mounted
    #[arg(required = true, value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub(crate) mount_points: Vec<PathBuf>,

    /// Detach the mount from the tree of directories now, and unmount it when nothing uses it any more
    #[arg(short, long)]
    pub(crate) lazy: bool,

    /// Make requests fail that wait for a server. With --lazy, also detach a mount that programs still use
    #[arg(short, long)]
    pub(crate) force: bool,
}
