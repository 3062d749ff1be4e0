//! The identity on whose behalf the server accesses files.

use smallvec::SmallVec;

/// The identity that an operation is done for, after squashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user id.
    pub uid: u32,
    /// The primary group id, which new files get.
    pub gid: u32,
    /// The supplementary group ids.
    pub gids: SmallVec<[u32; 16]>,
}

impl Caller {
    /// Returns the superuser.
    #[must_use]
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// Returns a user with one group.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            gids: SmallVec::new(),
        }
    }

    /// Returns whether this is the superuser, to whom permission checks do not apply.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Returns whether the caller belongs to a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }
}
