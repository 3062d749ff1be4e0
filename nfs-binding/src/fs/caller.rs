//! For whom an operation is done.

use smallvec::SmallVec;

/// The identity an operation is done for, after squashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group: that of new files.
    pub gid: u32,
    /// Further groups.
    pub gids: SmallVec<[u32; 16]>,
}

impl Caller {
    /// The superuser.
    #[must_use]
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// A user with one group.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            gids: SmallVec::new(),
        }
    }

    /// Whether permission checks do not apply.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it belongs to a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }
}
