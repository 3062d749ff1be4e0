//! The options of a mount.

use std::time::Duration;

/// The times for which attributes are taken to be true, as in nfs(5). A file or directory that was
/// found unchanged is trusted for longer, up to the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeTimes {
    /// The minimum for files (`acregmin`).
    pub file_min: Duration,
    /// The maximum for files (`acregmax`).
    pub file_max: Duration,
    /// The minimum for directories (`acdirmin`).
    pub directory_min: Duration,
    /// The maximum for directories (`acdirmax`).
    pub directory_max: Duration,
}

impl AttributeTimes {
    /// No caching of attributes (`noac`).
    pub const NONE: Self = Self {
        file_min: Duration::ZERO,
        file_max: Duration::ZERO,
        directory_min: Duration::ZERO,
        directory_max: Duration::ZERO,
    };
}

impl Default for AttributeTimes {
    /// Returns the defaults of nfs(5): 3 to 60 seconds for files, 30 to 60 for directories.
    fn default() -> Self {
        Self {
            file_min: Duration::from_secs(3),
            file_max: Duration::from_secs(60),
            directory_min: Duration::from_secs(30),
            directory_max: Duration::from_secs(60),
        }
    }
}

/// The results of lookups that are remembered (`lookupcache=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupCache {
    /// Names that exist and names that do not (`all`).
    #[default]
    All,
    /// Names that exist (`pos`).
    Positive,
    /// None (`none`).
    None,
}

/// The options of a mount. Those of the connection and of the export are elsewhere
/// (`ClientOptions` of `rpc_transport`, and `AttachOptions` of `nfs_binding`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The name of what is mounted, as in the first column of the mount table.
    pub source: String,
    /// Whether READDIRPLUS is used (`rdirplus`).
    pub readdirplus: bool,
    /// Whether requests wait for a server for as long as it takes (`hard`), or fail in the end.
    pub hard: bool,
    /// Whether requests that are given up fail with ETIMEDOUT (`softerr`) instead of EIO (`soft`).
    pub softerr: bool,
    /// How long attributes are cached.
    pub attributes: AttributeTimes,
    /// Whether an `open` fetches the attributes of the file (`cto`). Without it, changes by other
    /// clients are noticed only when cached attributes expire (`nocto`).
    pub close_to_open: bool,
    /// The lookups that are remembered.
    pub lookup_cache: LookupCache,
    /// Whether each write is on the server's stable storage when it returns (`sync`).
    pub sync: bool,
    /// Whether the mount refuses all changes (`ro`).
    pub read_only: bool,
    /// Whether users other than the one who mounts may use the mount (`allow_other`).
    pub allow_other: bool,
    /// Whether the kernel checks permissions by owner and mode as well (`default_permissions`). The
    /// server checks them in any case, and knows more, such as access control lists.
    pub default_permissions: bool,
    /// Whether set-id bits have an effect (`suid`).
    pub set_id: bool,
    /// Whether device files work (`dev`).
    pub devices: bool,
    /// Whether programs can be executed (`exec`).
    pub execute: bool,
    /// Whether symbolic links are followed (`symfollow`). Only root can mount without.
    pub follow_symlinks: bool,
    /// The maximum number of bytes that were written and are not on the server's stable storage.
    /// Programs that write more wait.
    pub unwritten: usize,
    /// The maximum number of bytes that are read ahead of a program, for each open file. 0: none.
    pub read_ahead: usize,
}

impl Options {
    /// Returns the defaults for a mount of `source`.
    #[must_use]
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            readdirplus: true,
            hard: true,
            softerr: false,
            attributes: AttributeTimes::default(),
            close_to_open: true,
            lookup_cache: LookupCache::All,
            sync: false,
            read_only: false,
            allow_other: false,
            default_permissions: false,
            set_id: false,
            devices: false,
            execute: true,
            follow_symlinks: true,
            unwritten: 64 << 20,
            read_ahead: 8 << 20,
        }
    }
}
