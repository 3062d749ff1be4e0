//! READDIR, LOOKUP, and resolution of `..`.

use linux_file_handle::may_access;
use rustix::fs::Access as Wanted;

use super::*;

/// The maximum number of steps upwards to find the root of the export.
const MAX_STEPS: usize = 1 << 16;

impl Served {
    /// Executes READDIR.
    pub(super) fn list(
        &self,
        who: &Caller,
        dir: &FileId,
        (cookie, verifier): (u64, Verifier),
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        let dir = self.find(dir)?;
        let attributes = dir.attributes()?;
        permission::require_directory(&attributes)?;
        let _as_caller = self.authority.impersonate(who)?;
        let opened = self.open_for_listing(&dir)?;
        // Cookies stay valid, so the cookie verifier never changes.
        if cookie != 0 && verifier != Verifier::default() {
            return Err(FsError::BadCookie);
        }
        let objects = objects && may_access(&*dir, Wanted::EXEC_OK).is_ok();
        let at_root = dir.id == self.root.id;
        let eof = dir.volume.list(&opened, cookie, |entry| {
            let object = objects
                .then(|| self.listed_object(&dir, &attributes, entry.name))
                .flatten();
            // Nothing above the root is shown.
            let fileid = match (&object, entry.name) {
                (Some(object), _) => object.attributes.fileid,
                (None, b"..") if at_root => attributes.fileid,
                (None, _) => entry.ino,
            };
            Ok(take(&DirEntry {
                fileid,
                name: entry.name,
                cookie: entry.cookie,
                object: object.as_ref().map(Object::borrowed),
            }))
        })?;
        Ok(Listing {
            verifier: Verifier::default(),
            eof,
            attributes,
        })
    }

    /// Returns the object of a listed entry, or `None` if it cannot be opened.
    fn listed_object(&self, dir: &Node, own: &Attributes, name: &[u8]) -> Option<Object> {
        match name {
            b"." => Some(Object {
                id: dir.id,
                attributes: own.clone(),
                mounted: None,
            }),
            // The client knows the parent already.
            b".." => None,
            _ => self.entry(dir, name, false).ok(),
        }
    }

    /// Executes LOOKUP.
    pub(super) fn look_up(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        let dir = self.find(dir)?;
        let directory = dir.attributes()?;
        permission::require_directory(&directory)?;
        name::check(name)?;
        let _as_caller = self.authority.impersonate(who)?;
        let object = match name {
            b"." | b".." => {
                may_access(&*dir, Wanted::EXEC_OK)?;
                match name {
                    b"." => object(&dir)?,
                    _ => self.parent(&dir)?,
                }
            }
            _ => self.entry(&dir, name, true)?,
        };
        Ok(Found { object, directory })
    }

    /// Returns the entry `name` of a directory. With `used`, the object is kept open. (Most listed
    /// entries are not used afterwards.)
    fn entry(&self, dir: &Node, name: &[u8], used: bool) -> FsResult<Object> {
        match self.open_linked(dir, name)? {
            Child::Here(node, attributes) => {
                // The metadata that told what the entry is need not be read a second time.
                let object = Object {
                    id: node.id,
                    attributes,
                    mounted: None,
                };
                match used {
                    true => drop(self.keep_child(dir, name, node)),
                    false => self.record_place(dir, name, &node),
                }
                Ok(object)
            }
            Child::Elsewhere(mounted) => placeholder::object(&self.root.volume, dir, name, mounted),
        }
    }

    /// Returns the parent directory within the export. The parent of the root is the root itself.
    fn parent(&self, dir: &Arc<Node>) -> FsResult<Object> {
        // A caller that may search a directory may know its parent. The permissions of the
        // directories between there and the root do not matter.
        self.authority.as_server(|| {
            let Some(parent) = self.parent_of(dir)? else {
                return match dir.id == self.root.id {
                    true => object(dir),
                    false => Err(FsError::Access),
                };
            };
            // A directory that was moved out of the export has a parent outside it.
            let mut at = Arc::clone(&parent);
            for _ in 0..MAX_STEPS {
                if at.id == self.root.id {
                    return object(&parent);
                }
                match self.parent_of(&at)? {
                    Some(above) if above.id != at.id => at = above,
                    _ => break,
                }
            }
            Err(FsError::Access)
        })
    }
}

/// Returns an open object in the form of a reply.
pub(super) fn object(node: &Node) -> FsResult<Object> {
    Ok(Object {
        id: node.id,
        attributes: node.attributes()?,
        mounted: None,
    })
}
