//! Procedures on a file system: FSSTAT, FSINFO, PATHCONF.

use super::NfsResult;
use super::types::{Attributes, NfsTime, Properties};
use super::xdr::xdr_struct;

xdr_struct! {
    /// The result of a successful FSSTAT (RFC 1813, section 3.3.18).
    pub struct FsstatOk {
        /// The root's attributes.
        pub attributes: Option<Attributes>,
        /// The size of the file system, bytes.
        pub total_bytes: u64,
        /// The free space, bytes.
        pub free_bytes: u64,
        /// The free space available to the caller, bytes.
        pub available_bytes: u64,
        /// The maximum number of files.
        pub total_files: u64,
        /// The number of files that can still be created.
        pub free_files: u64,
        /// The number of files that the caller can still create.
        pub available_files: u64,
        /// The time in seconds for which these values will not change.
        pub invariant_seconds: u32,
    }
    /// The result of a successful FSINFO (section 3.3.19).
    #[derive(Default)]
    pub struct FsinfoOk {
        /// The root's attributes.
        pub attributes: Option<Attributes>,
        /// The maximum READ, bytes.
        pub read_max: u32,
        /// The preferred READ, bytes.
        pub read_preferred: u32,
        /// READ lengths should be a multiple of this.
        pub read_multiple: u32,
        /// The maximum WRITE, bytes.
        pub write_max: u32,
        /// The preferred WRITE, bytes.
        pub write_preferred: u32,
        /// WRITE lengths should be a multiple of this.
        pub write_multiple: u32,
        /// The preferred READDIR, bytes.
        pub readdir_preferred: u32,
        /// The maximum file size, bytes.
        pub max_file_size: u64,
        /// The resolution of the server's times.
        pub time_delta: NfsTime,
        /// The supported features.
        pub properties: Properties,
    }
    /// The result of a successful PATHCONF (section 3.3.20).
    pub struct PathconfOk {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// The maximum number of hard links to an object.
        pub link_max: u32,
        /// The maximum length of a name, bytes.
        pub name_max: u32,
        /// Whether longer names are rejected rather than truncated.
        pub no_trunc: bool,
        /// Whether only a privileged user can change the owner of a file.
        pub chown_restricted: bool,
        /// Whether names that differ only in case are the same.
        pub case_insensitive: bool,
        /// Whether names keep their case.
        pub case_preserving: bool,
    }
}

impl Default for Properties {
    /// Returns the empty set.
    fn default() -> Self {
        Self::empty()
    }
}

/// Results of FSSTAT.
pub type FsstatResult = NfsResult<FsstatOk, Option<Attributes>>;
/// Results of FSINFO.
pub type FsinfoResult = NfsResult<FsinfoOk, Option<Attributes>>;
/// Results of PATHCONF.
pub type PathconfResult = NfsResult<PathconfOk, Option<Attributes>>;
