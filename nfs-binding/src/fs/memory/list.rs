//! LOOKUP and READDIR.

use super::*;

impl MemoryFs {
    /// Executes LOOKUP.
    pub(super) fn find(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        let dir = self.node(dir)?;
        let (directory, ino) = {
            let state = live(&dir)?;
            permission::require_search(&state.attributes, who)?;
            name::check(name)?;
            let entries = state.entries()?;
            let ino = match name {
                b"." => dir.ino,
                // The parent of the root is the root.
                b".." => entries.parent,
                _ => entries.get(name).ok_or(FsError::NotFound)?,
            };
            (state.attributes.clone(), ino)
        };
        // The object may have been removed meanwhile. The directory is not stale then.
        let node = self.by_ino(ino).map_err(|_| FsError::NotFound)?;
        let object = self.found(&node).ok_or(FsError::NotFound)?;
        Ok(Found { object, directory })
    }

    /// Returns an object that an entry refers to, unless it was removed meanwhile.
    fn found(&self, node: &Node) -> Option<Object> {
        let attributes = live(node).ok()?.attributes.clone();
        Some(Object {
            id: self.id(node.ino),
            attributes,
            mounted: None,
        })
    }

    /// Executes READDIR.
    pub(super) fn list(
        &self,
        who: &Caller,
        dir: &FileId,
        (cookie, verifier): (u64, Verifier),
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        let node = self.node(dir)?;
        let (attributes, mut batch) = {
            let state = live(&node)?;
            permission::require_directory(&state.attributes)?;
            permission::require(&state.attributes, who, permission::READ)?;
            let entries = state.entries()?;
            // Cookies stay valid as long as the directory lives, so the verifier never changes.
            if cookie != 0 && (verifier != self.verifier || !entries.is_issued(cookie)) {
                return Err(FsError::BadCookie);
            }
            (state.attributes.clone(), entries.after(node.ino, cookie))
        };
        let objects = objects && permission::require_search(&attributes, who).is_ok();
        let mut eof = true;
        // The directory's lock is not held while its objects are read; see the module
        // documentation.
        'batches: while let Some(last) = batch.last().map(|&(cookie, ..)| cookie) {
            for (cookie, name, ino) in &batch {
                let entry = DirEntry {
                    fileid: *ino,
                    name,
                    cookie: *cookie,
                    object: objects
                        .then(|| self.by_ino(*ino).ok())
                        .flatten()
                        .and_then(|node| self.found(&node)),
                };
                if !take(&entry) {
                    eof = false;
                    break 'batches;
                }
            }
            batch = shared(&node.state).entries()?.after(node.ino, last);
        }
        Ok(Listing {
            verifier: self.verifier,
            eof,
            attributes,
        })
    }
}
