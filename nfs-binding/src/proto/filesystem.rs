//! Procedures on a file system: FSSTAT, FSINFO, PATHCONF.

use super::NfsResult;
use super::types::{Attributes, NfsTime, Properties};
use super::xdr::xdr_struct;

xdr_struct! {
    /// Successful FSSTAT (RFC 1813, section 3.3.18).
    pub struct FsstatOk {
        /// The root's attributes.
        pub attributes: Option<Attributes>,
        /// Size, bytes.
        pub total_bytes: u64,
        /// Free, bytes.
        pub free_bytes: u64,
        /// Free to the caller, bytes.
        pub available_bytes: u64,
        /// Files it can hold.
        pub total_files: u64,
        /// Files it can hold further.
        pub free_files: u64,
        /// Files it can hold further for the caller.
        pub available_files: u64,
        /// Seconds for which these figures will stay as they are.
        pub invariant_seconds: u32,
    }
    /// Successful FSINFO (section 3.3.19).
    #[derive(Default)]
    pub struct FsinfoOk {
        /// The root's attributes.
        pub attributes: Option<Attributes>,
        /// Longest READ, bytes.
        pub read_max: u32,
        /// Preferred READ, bytes.
        pub read_preferred: u32,
        /// READ lengths should be a multiple of this.
        pub read_multiple: u32,
        /// Longest WRITE, bytes.
        pub write_max: u32,
        /// Preferred WRITE, bytes.
        pub write_preferred: u32,
        /// WRITE lengths should be a multiple of this.
        pub write_multiple: u32,
        /// Preferred READDIR, bytes.
        pub readdir_preferred: u32,
        /// Longest file, bytes.
        pub max_file_size: u64,
        /// How exactly the server keeps times.
        pub time_delta: NfsTime,
        /// What the file system can do.
        pub properties: Properties,
    }
    /// Successful PATHCONF (section 3.3.20).
    pub struct PathconfOk {
        /// The object's attributes.
        pub attributes: Option<Attributes>,
        /// Most hard links to an object.
        pub link_max: u32,
        /// Longest name, bytes.
        pub name_max: u32,
        /// Whether longer names are an error rather than cut.
        pub no_trunc: bool,
        /// Whether only a privileged user can give a file away.
        pub chown_restricted: bool,
        /// Whether names that differ in case only are the same.
        pub case_insensitive: bool,
        /// Whether names keep their case.
        pub case_preserving: bool,
    }
}

impl Default for Properties {
    /// None.
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
