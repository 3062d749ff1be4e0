//! Options of an export in use.

/// Least `rsize` and `wsize`, bytes, as nfs(5) has it.
pub const MIN_IO: u32 = 1024;
/// The default `rsize` and `wsize`, bytes, for servers that prefer no size.
pub const DEFAULT_IO: u32 = 1 << 20;

/// The options of an export in use, independent of its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Maximum length of a READ, in bytes (`rsize=` in nfs(5)). `None` or 0: the size that the server
    /// prefers (`rtpref`), or [`DEFAULT_IO`] if it prefers none. The server may support less.
    pub rsize: Option<u32>,
    /// Maximum length of a WRITE, in bytes (`wsize=` in nfs(5)). `None` or 0: as for READ (`wtpref`).
    pub wsize: Option<u32>,
    /// Whether READDIRPLUS is used.
    pub readdirplus: bool,
    /// Whether changes are refused before they are sent.
    pub read_only: bool,
}

impl Default for AttachOptions {
    /// Returns the defaults: the sizes that the server prefers, READDIRPLUS, and a writable mount.
    fn default() -> Self {
        Self {
            rsize: None,
            wsize: None,
            readdirplus: true,
            read_only: false,
        }
    }
}
