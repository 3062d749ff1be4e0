//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use nfs_binding::client::NfsError;

/// The mount point of FUSE's control file system, which has a directory for each mount.
pub(crate) const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// FUSE's device.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// The reason why an export could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is no FUSE in this kernel, or its device is not there.
    #[error(
        "there is no {DEVICE}: load the kernel module (`modprobe fuse`), or let the container have the device"
    )]
    NoDevice,
    /// The user may not open FUSE's device.
    #[error(
        "{DEVICE} is not for this user: mount as root, or let users open it (`chmod 666 {DEVICE}`, as most systems have it)"
    )]
    DeviceRefused,
    /// An ordinary user needs a helper with privilege, which is missing.
    #[error(
        "to mount without being root, `fusermount3` is needed: install it (Debian's package fuse3)"
    )]
    NoHelper,
    /// The mount point, or what is to be mounted, is not a directory.
    #[error("{}: is not a directory", .0.display())]
    NotDirectory(PathBuf),
    /// There is no mount point.
    #[error("{}: there is no such directory (`mkdir -p {}` makes it)", .0.display(), .0.display())]
    NoMountPoint(PathBuf),
    /// The mount point cannot be used.
    #[error("{}: {source}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// This export is already mounted at this directory.
    #[error("{}: {} is mounted there already", path.display(), source_name)]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// The export, as the table of mounts has it.
        source_name: String,
    },
    /// Nothing, or something else, is mounted there.
    #[error("{}: {what}", path.display())]
    NotMounted {
        /// The directory.
        path: PathBuf,
        /// A description of the mount that is there instead, if there is one.
        what: String,
    },
    /// A program uses the mount.
    #[error("{}: is in use (`fuser -vm {}` shows by whom; --lazy unmounts it as soon as it is not, and --force makes calls to a server fail that does not answer)", path.display(), path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The requests that wait could not be made to fail; nothing was unmounted.
    #[error("{}: cannot make requests fail that wait: {source} (it needs fusectl at {CONNECTIONS}; --lazy takes the mount out of the tree of directories)", path.display())]
    NoAbort {
        /// The mount point.
        path: PathBuf,
        /// The error of the operating system. That there is no such file means that `fusectl` is not
        /// mounted.
        source: io::Error,
    },
    /// Mounting failed.
    #[error("cannot mount at {}: {source}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The error of the operating system, or of `fusermount3`.
        source: io::Error,
    },
    /// The flags of a mount cannot be changed.
    #[error("cannot remount {}: {source}", path.display())]
    Remount {
        /// The mount point.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server's root cannot be looked at.
    #[error(transparent)]
    Server(#[from] NfsError),
}
