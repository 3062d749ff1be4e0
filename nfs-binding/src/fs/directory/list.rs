//! READDIR, LOOKUP, and the way up.

use super::*;

impl DirectoryFs {
    /// READDIR.
    pub(super) fn list(
        &self,
        who: &Caller,
        dir: &FileId,
        (cookie, verifier): (u64, Verifier),
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        let dir = self.find(dir)?;
        let attributes = dir.node.attributes()?;
        permission::require_directory(&attributes)?;
        permission::require(&attributes, who, permission::READ)?;
        // The host's cookies stay valid, so there is one verifier for all time.
        if cookie != 0 && verifier != Verifier::default() {
            return Err(FsError::BadCookie);
        }
        let objects = objects && permission::require_search(&attributes, who).is_ok();
        let opened = self
            .files
            .reopen(dir.node.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?;
        let at_root = dir.node.key == self.root.key;
        let eof = host::list(&opened, cookie, |entry| {
            let object = objects
                .then(|| self.listed_object(&dir, &attributes, entry.name))
                .flatten();
            // What is above the root is nobody's business.
            let fileid = match (&object, entry.name) {
                (Some(object), _) => object.attributes.fileid,
                (None, b"..") if at_root => dir.node.key.ino,
                (None, _) => entry.ino,
            };
            Ok(take(&DirEntry {
                fileid,
                name: entry.name,
                cookie: entry.cookie,
                object,
            }))
        })?;
        Ok(Listing {
            verifier: Verifier::default(),
            eof,
            attributes,
        })
    }

    /// Lists a directory; `None` instead of an object where it cannot be had.
    fn listed_object(&self, dir: &Handle, own: &Attributes, name: &[u8]) -> Option<Object> {
        if name == b"." {
            let id = key::encode(dir.node.key, &dir.trail);
            let attributes = own.clone();
            return Some(Object { id, attributes });
        }
        // The client knows the way it came.
        if name == b".." {
            return None;
        }
        self.entry(dir, name).ok()
    }

    /// The entry `name` of a directory. It is looked at, not opened: most are never read.
    pub(super) fn entry(&self, dir: &Handle, name: &[u8]) -> FsResult<Object> {
        let stat = host::stat_child(&dir.node, name)?;
        if stat.stx_mnt_id != self.mount {
            return Err(FsError::Access);
        }
        let key = Key::of(&stat, self.births);
        let below = self.trail_below(&dir.node, dir.trail);
        let trail = locked(&self.table).saw(key, dir.node.key, name, below);
        Ok(Object {
            id: key::encode(key, &trail),
            attributes: host::attributes(&stat),
        })
    }

    /// The directory above, which is in the export too.
    pub(super) fn parent(&self, dir: &Handle) -> FsResult<Object> {
        if dir.node.key == self.root.key {
            return Err(FsError::Access);
        }
        let path = host::open_parent(&dir.node)?;
        let stat = host::stat(&path)?;
        let key = Key::of(&stat, self.births);
        let mut above = Vec::new();
        // Up to the root: a directory that was moved out of the export has another.
        let mut at = (path, stat);
        while Key::of(&at.1, self.births) != self.root.key {
            let next = host::open_parent(&at.0)?;
            let stat = host::stat(&next)?;
            if stat.stx_ino == at.1.stx_ino {
                return Err(FsError::Access);
            }
            above.push(stat.stx_ino);
            at = (next, stat);
        }
        // The last one pushed is the root, which trails leave out.
        above.pop();
        let trail = above
            .iter()
            .rev()
            .fold(Trail::default(), |trail, &ino| trail.below(ino));
        let trail = locked(&self.table)
            .place(&key)
            .map_or(trail, |place| place.trail);
        Ok(Object {
            id: key::encode(key, &trail),
            attributes: host::attributes(&stat),
        })
    }
}
