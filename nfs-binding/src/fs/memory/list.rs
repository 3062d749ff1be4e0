//! LOOKUP and READDIR.

use super::*;

impl MemoryFs {
    /// Executes LOOKUP.
    pub(super) fn find(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        let dir = self.node(dir)?;
        let state = live(&dir)?;
        permission::require_search(&state.attributes, who)?;
        name::check(name)?;
        let entries = state.entries()?;
        let directory = state.attributes.clone();
        let object = match name {
            b"." => Object {
                id: self.id(dir.ino),
                attributes: directory.clone(),
                mounted: None,
            },
            b".." => {
                // The parent of the root is the root. Its lock must not be taken while that of the directory
                // is held, and so it may have been removed meanwhile. The directory is not stale then.
                let parent = entries.parent;
                drop(state);
                let parent = self.by_ino(parent).and_then(|parent| self.found(&parent));
                parent.map_err(|_| FsError::NotFound)?
            }
            // The directory stays locked, so that what has the name is not replaced meanwhile.
            _ => self.found(entries.get(name).ok_or(FsError::NotFound)?)?,
        };
        Ok(Found { object, directory })
    }

    /// Returns an object that an entry refers to, unless it was removed meanwhile.
    pub(super) fn found(&self, node: &Node) -> FsResult<Object> {
        let attributes = node.live_attributes()?;
        Ok(Object {
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
        let parent = live(&node)?.entries()?.parent;
        // The parent's lock must not be taken while that of the directory is held; see the module
        // documentation.
        let dots = match cookie < COOKIE_PARENT {
            true => [
                self.found(&node).ok(),
                self.by_ino(parent)
                    .and_then(|parent| self.found(&parent))
                    .ok(),
            ],
            false => [None, None],
        };
        let state = live(&node)?;
        let attributes = &state.attributes;
        permission::require_directory(attributes)?;
        permission::require(attributes, who, permission::READ)?;
        let entries = state.entries()?;
        // Cookies stay valid as long as the directory lives, so the verifier never changes.
        if cookie != 0 && (verifier != self.verifier || !entries.is_issued(cookie)) {
            return Err(FsError::BadCookie);
        }
        let objects = objects && permission::require_search(attributes, who).is_ok();
        let [own, above] = dots;
        let dots = [
            (COOKIE_SELF, &b"."[..], node.ino, own),
            (COOKIE_PARENT, &b".."[..], parent, above),
        ];
        let mut dots = dots.iter().filter(|(at, ..)| *at > cookie);
        let dots_fit = dots.all(|(cookie, name, fileid, object)| {
            let object = object.as_ref().filter(|_| objects);
            take(&DirEntry {
                fileid: *fileid,
                name,
                cookie: *cookie,
                object: object.map(Object::borrowed),
            })
        });
        let mut named = entries.after(cookie);
        let eof = dots_fit
            && named.all(|(cookie, name, child)| {
                let attributes = objects.then(|| child.live_attributes().ok()).flatten();
                take(&DirEntry {
                    fileid: child.ino,
                    name,
                    cookie,
                    object: attributes.as_ref().map(|attributes| ObjectRef {
                        id: self.id(child.ino),
                        attributes,
                        mounted: None,
                        mac: Some(&child.mac),
                    }),
                })
            });
        Ok(Listing {
            verifier: self.verifier,
            eof,
            attributes: attributes.clone(),
        })
    }
}
