//! READDIR, LOOKUP, and the way up.

use linux_file_handle::may_access;
use rustix::fs::Access as Wanted;

use super::*;

/// Directories above each other that are gone through at most to find the root of the export.
const MAX_STEPS: usize = 1 << 16;

impl Served {
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
        let attributes = dir.attributes()?;
        permission::require_directory(&attributes)?;
        let _as_caller = self.authority.assume(who)?;
        let opened = self.open_for_listing(&dir)?;
        // The host's cookies stay valid, so there is one verifier for all time.
        if cookie != 0 && verifier != Verifier::default() {
            return Err(FsError::BadCookie);
        }
        let objects = objects && may_access(&*dir, Wanted::EXEC_OK).is_ok();
        let at_root = dir.id == self.root.id;
        let eof = host::list(&opened, cookie, |entry| {
            let object = objects
                .then(|| self.listed_object(&dir, &attributes, entry.name))
                .flatten();
            // What is above the root is nobody's business.
            let fileid = match (&object, entry.name) {
                (Some(object), _) => object.attributes.fileid,
                (None, b"..") if at_root => attributes.fileid,
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
    fn listed_object(&self, dir: &Node, own: &Attributes, name: &[u8]) -> Option<Object> {
        match name {
            b"." => Some(Object {
                id: dir.id,
                attributes: own.clone(),
                mounted: None,
            }),
            // The client knows the way it came.
            b".." => None,
            _ => self.entry(dir, name, false).ok(),
        }
    }

    /// LOOKUP.
    pub(super) fn look_up(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        let dir = self.find(dir)?;
        let directory = dir.attributes()?;
        permission::require_directory(&directory)?;
        name::check(name)?;
        let _as_caller = self.authority.assume(who)?;
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

    /// The entry `name` of a directory, kept open if it is to be `used`. (Most that are only
    /// listed are not.)
    fn entry(&self, dir: &Node, name: &[u8], used: bool) -> FsResult<Object> {
        match self.open_child(dir, name)? {
            Child::Here(node) if used => object(&self.keep_child(dir, name, node)),
            Child::Here(node) => {
                self.saw(dir, name, &node);
                object(&node)
            }
            Child::Elsewhere(mounted) => covered::object(dir, mounted),
        }
    }

    /// The directory above, which is in the export too: above the root is the root itself.
    fn parent(&self, dir: &Arc<Node>) -> FsResult<Object> {
        // Whoever may search a directory may know what is above it; the way from there up to the
        // root is no concern of its permissions.
        self.authority.as_server(|| {
            let Some(parent) = self.above(dir)? else {
                return match dir.id == self.root.id {
                    true => object(dir),
                    false => Err(FsError::Access),
                };
            };
            // A directory that was moved out of the export has a parent that is not in it.
            let mut at = Arc::clone(&parent);
            for _ in 0..MAX_STEPS {
                if at.id == self.root.id {
                    return object(&parent);
                }
                match self.above(&at)? {
                    Some(above) if above.id != at.id => at = above,
                    _ => break,
                }
            }
            Err(FsError::Access)
        })
    }
}

/// An open object, for a reply.
pub(super) fn object(node: &Node) -> FsResult<Object> {
    Ok(Object {
        id: node.id,
        attributes: node.attributes()?,
        mounted: None,
    })
}
