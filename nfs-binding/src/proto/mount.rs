//! MOUNT version 3 (RFC 1813, section 5), which returns the file handle for an export's path.

use std::fmt;

use onc_rpc::{DecodeError, Decoder, Encoder};

use super::types::FileHandle;
use super::xdr::{debug_bytes, xdr_opaque, xdr_struct};
use super::{NfsResult, Xdr};

/// The maximum length of a path, bytes (MNTPATHLEN).
pub const MAX_MOUNT_PATH: u32 = 1024;
/// The maximum length of a host or group name, bytes (MNTNAMLEN).
pub const MAX_MOUNT_NAME: u32 = 255;
/// The maximum number of authentication flavors that are decoded. RFC 1813 gives no limit; 13
/// flavors exist.
pub const MAX_FLAVORS: u32 = 32;

xdr_opaque! {
    /// The path of a directory on the server (`dirpath`).
    pub struct MountPath(opaque, MAX_MOUNT_PATH, 4 + MAX_MOUNT_PATH);
    /// The name of a host or a group (`name`).
    pub struct MountName(opaque, MAX_MOUNT_NAME, 4 + MAX_MOUNT_NAME.next_multiple_of(4));
}

impl fmt::Debug for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_bytes("MountPath", &self.0, f)
    }
}

impl fmt::Debug for MountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_bytes("MountName", &self.0, f)
    }
}

/// RPC authentication flavors (`auth_flavors`), preferred ones first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flavors(pub Vec<u32>);

impl Flavors {
    /// AUTH_NONE (RFC 5531, section 8.2).
    pub const NONE: u32 = 0;
    /// AUTH_SYS.
    pub const SYS: u32 = 1;
}

impl Xdr for Flavors {
    const MAX_LEN: u32 = 4 + 4 * MAX_FLAVORS;

    fn encode(&self, out: &mut Encoder) {
        // The receiver would reject a longer list, so it is truncated.
        let flavors = &self.0[..self.0.len().min(MAX_FLAVORS as usize)];
        out.u32(flavors.len() as u32);
        for flavor in flavors {
            out.u32(*flavor);
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let len = input.u32()?;
        if len > MAX_FLAVORS {
            return Err(DecodeError::TooLong {
                len: u64::from(len),
                max: u64::from(MAX_FLAVORS),
            });
        }
        (0..len)
            .map(|_| input.u32())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

xdr_struct! {
    /// The arguments of MNT and UMNT (sections 5.2.1 and 5.2.3).
    pub struct MountArgs {
        /// The directory.
        pub path: MountPath,
    }
    /// The result of a successful MNT (`mountres3_ok`).
    pub struct MountOk {
        /// The directory's file handle.
        pub handle: FileHandle,
        /// The accepted authentication flavors.
        pub flavors: Flavors,
    }
    /// A client and a directory that it has mounted (`mountbody`).
    pub struct MountEntry {
        /// The client.
        pub host: MountName,
        /// The directory.
        pub path: MountPath,
    }
    /// The result of DUMP (section 5.2.2).
    #[derive(Default)]
    pub struct MountList {
        /// All mounts.
        pub mounts: Vec<MountEntry>,
    }
    /// An exported directory (`exportnode`).
    pub struct Export {
        /// The directory.
        pub path: MountPath,
        /// The clients that may mount it; all clients if empty.
        pub groups: Vec<MountName>,
    }
    /// The result of EXPORT (section 5.2.5).
    #[derive(Default)]
    pub struct ExportList {
        /// The exported directories.
        pub exports: Vec<Export>,
    }
}

/// Results of MNT. Its statuses (`mountstat3`) are some of those of NFS, with the same values.
pub type MountResult = NfsResult<MountOk, ()>;

#[cfg(test)]
impl quickcheck::Arbitrary for Flavors {
    fn arbitrary(g: &mut quickcheck::Gen) -> Self {
        let mut flavors = Vec::<u32>::arbitrary(g);
        flavors.truncate(MAX_FLAVORS as usize);
        Self(flavors)
    }
}
