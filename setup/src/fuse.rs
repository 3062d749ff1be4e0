//! The options of a mount through FUSE.

use nfs_mount::{AttributeTimes, Options};

use crate::mount_options::MountOptions;

/// Returns the options of a mount of `source` through FUSE.
#[must_use]
pub fn fuse_options(source: &str, mount: &MountOptions) -> Options {
    let it = &mount.mounted;
    let root = rustix::process::geteuid().is_root();
    let times = AttributeTimes {
        file_min: it.file_min,
        file_max: it.file_max,
        directory_min: it.directory_min,
        directory_max: it.directory_max,
    };
    Options {
        hard: mount.hard,
        softerr: it.softerr,
        readdirplus: mount.attach.readdirplus,
        attributes: match it.attribute_cache {
            true => times,
            false => AttributeTimes::NONE,
        },
        close_to_open: it.close_to_open,
        lookup_cache: it.lookup_cache,
        // nfs(5): noac implies sync.
        sync: it.sync || !it.attribute_cache,
        read_only: mount.attach.read_only,
        // As with mount(8): what root mounts is for everybody.
        allow_other: it.allow_other.unwrap_or(root),
        default_permissions: it.default_permissions,
        set_id: it.set_id.unwrap_or(false),
        devices: it.devices.unwrap_or(false),
        execute: it.execute,
        follow_symlinks: it.follow_symlinks,
        ..Options::new(source)
    }
}
