//! A file system of the server's host with several directory trees, each of which can be exported.
//!
//! An identity of an object is valid in the whole file system, as a handle of the Linux kernel is. So
//! nothing but the server keeps a client within the export that its handle was issued for, and every
//! access that goes beyond is recorded here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nfs_binding::fs::{
    Abilities, Caller, Change, DirEntry, FileId, FileSystem, Found, FsResult, HowToCreate, Listing,
    MemoryFs, NameRules, Object, ObjectRef, Read, Renamed, Space, Special, Written,
};
use nfs_binding::proto::{Access, Attributes, NfsTime, SetAttributes, Stable, Verifier};
use onc_rpc::Bulk;
use rdma::Clock;

use crate::plan::TREES;

/// The capacity in bytes.
const SIZE: u64 = 16 << 20;

#[derive(Debug, Default)]
struct Seen {
    /// The tree of each object, by its inode number.
    trees: BTreeMap<u64, usize>,
    /// Accesses that no server may make.
    trespasses: Vec<String>,
}

/// The directory trees; see the module documentation. They survive restarts of the server.
#[derive(Debug)]
pub(crate) struct Trees {
    inner: MemoryFs,
    blocks: bool,
    /// The root directories.
    roots: Vec<FileId>,
    seen: Mutex<Seen>,
}

/// An exported tree.
#[derive(Debug)]
struct Exported {
    trees: Arc<Trees>,
    tree: usize,
    read_only: bool,
}

impl Trees {
    pub(crate) fn new(instance: u64, clock: Clock, blocks: bool) -> Self {
        let inner = MemoryFs::simulated(SIZE, instance, clock);
        let (root, mut seen) = (Caller::new(0, 0), Seen::default());
        let mut roots = Vec::new();
        for tree in 0..TREES {
            let name = format!("tree{tree}");
            let set = SetAttributes::default();
            let made = inner.mkdir(&root, &inner.root(), name.as_bytes(), &set);
            if let Ok(object) = made.result {
                seen.trees.insert(object.attributes.fileid, tree);
                roots.push(object.id);
            }
        }
        debug_assert_eq!(roots.len(), TREES);
        Self {
            inner,
            blocks,
            roots,
            seen: Mutex::new(seen),
        }
    }

    /// Returns the file system of a tree as it is exported.
    pub(crate) fn export(self: &Arc<Self>, tree: usize, read_only: bool) -> Arc<dyn FileSystem> {
        Arc::new(Exported {
            trees: Arc::clone(self),
            tree,
            read_only,
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tree of the object with this inode number.
    pub(crate) fn tree_of(&self, fileid: u64) -> Option<usize> {
        self.seen().trees.get(&fileid).copied()
    }

    /// Takes the list of accesses that no server may make.
    pub(crate) fn take_trespasses(&self) -> Vec<String> {
        std::mem::take(&mut self.seen().trespasses)
    }
}

impl Exported {
    /// Records an access to an object that is not of this tree.
    fn enter(&self, what: &str, id: &FileId) {
        // An object that does not exist any more belongs to nothing.
        let Ok(attributes) = self.trees.inner.getattr(id) else {
            return;
        };
        let mut seen = self.trees.seen();
        let tree = seen.trees.get(&attributes.fileid).copied();
        if tree != Some(self.tree) {
            let of = tree.map_or("none".to_owned(), |tree| format!("tree {tree}"));
            let here = self.tree;
            let text = format!("{what} of an object of {of}, by way of the export of tree {here}");
            seen.trespasses.push(text);
        }
    }

    /// Records an access that changes an object, if the export is read-only or of another tree.
    fn change(&self, what: &str, id: &FileId) {
        self.enter(what, id);
        if self.read_only {
            let text = format!("{what} by way of a read-only export");
            self.trees.seen().trespasses.push(text);
        }
    }

    /// Records that a new object is of this tree.
    fn made(&self, change: Change<Object>) -> Change<Object> {
        if let Ok(object) = &change.result {
            let fileid = object.attributes.fileid;
            self.trees.seen().trees.insert(fileid, self.tree);
        }
        change
    }

    fn fs(&self) -> &MemoryFs {
        &self.trees.inner
    }
}

impl FileSystem for Exported {
    fn blocks(&self) -> bool {
        self.trees.blocks
    }

    fn root(&self) -> FileId {
        self.trees.roots[self.tree]
    }

    fn write_verifier(&self) -> Verifier {
        self.fs().write_verifier()
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        self.enter("GETATTR", file);
        self.fs().getattr(file)
    }

    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.change("SETATTR", file);
        self.fs().setattr(who, file, set, guard)
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        self.enter("LOOKUP", dir);
        // Nothing above the root is shown.
        let name = match *dir == self.root() && name == b".." {
            true => b".",
            false => name,
        };
        self.fs().lookup(who, dir, name)
    }

    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        self.enter("ACCESS", file);
        self.fs().access(who, file, wanted)
    }

    fn readlink(&self, who: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        self.enter("READLINK", link);
        self.fs().readlink(who, link)
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.enter("READ", file);
        self.fs().read(who, file, offset, buf)
    }

    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        self.change("WRITE", file);
        self.fs().write(who, file, offset, data, stable)
    }

    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.change("CREATE", dir);
        self.made(self.fs().create(who, dir, name, how))
    }

    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.change("MKDIR", dir);
        self.made(self.fs().mkdir(who, dir, name, set))
    }

    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.change("SYMLINK", dir);
        self.made(self.fs().symlink(who, dir, name, target, set))
    }

    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.change("MKNOD", dir);
        self.made(self.fs().mknod(who, dir, name, what, set))
    }

    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.change("REMOVE", dir);
        self.fs().remove(who, dir, name)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.change("RMDIR", dir);
        self.fs().rmdir(who, dir, name)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.change("RENAME", from_dir);
        self.change("RENAME", to_dir);
        self.fs().rename(who, from_dir, from, to_dir, to)
    }

    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.change("LINK", file);
        self.change("LINK", dir);
        self.fs().link(who, file, dir, name)
    }

    fn readdir(
        &self,
        who: &Caller,
        dir: &FileId,
        cookie: u64,
        verifier: Verifier,
        objects: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> FsResult<Listing> {
        self.enter("READDIR", dir);
        let own = match *dir == self.root() {
            true => Some(self.fs().getattr(dir)?),
            false => None,
        };
        let mut take = |entry: &DirEntry<'_>| match &own {
            // The parent of the root is the root itself.
            Some(attributes) if entry.name == b".." => take(&DirEntry {
                fileid: attributes.fileid,
                object: entry.object.map(|_| ObjectRef {
                    id: *dir,
                    attributes,
                    mounted: None,
                    mac: None,
                }),
                ..*entry
            }),
            _ => take(entry),
        };
        self.fs()
            .readdir(who, dir, cookie, verifier, objects, &mut take)
    }

    fn space(&self, who: &Caller, file: &FileId) -> FsResult<Space> {
        self.enter("FSSTAT", file);
        self.fs().space(who, file)
    }

    fn abilities(&self, file: &FileId) -> FsResult<Abilities> {
        self.enter("FSINFO", file);
        self.fs().abilities(file)
    }

    fn name_rules(&self, file: &FileId) -> FsResult<NameRules> {
        self.enter("PATHCONF", file);
        self.fs().name_rules(file)
    }

    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()> {
        self.enter("COMMIT", file);
        self.fs().commit(who, file, offset, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees() -> Arc<Trees> {
        Arc::new(Trees::new(1, Clock::monotonic(), false))
    }

    fn file(fs: &dyn FileSystem, name: &str) -> FileId {
        let how = HowToCreate::Guarded(SetAttributes::default());
        let made = fs.create(&Caller::new(0, 0), &fs.root(), name.as_bytes(), &how);
        made.result.unwrap().id
    }

    #[test]
    fn an_access_to_an_object_of_another_tree_is_recorded() {
        let trees = trees();
        let [one, other] = [0, 1].map(|tree| trees.export(tree, false));
        let root = Caller::new(0, 0);
        let (here, there) = (file(&*one, "file"), file(&*other, "file"));
        one.read(&root, &here, 0, &mut [0; 8]).unwrap();
        one.link(&root, &here, &one.root(), b"link").result.unwrap();
        assert_eq!(trees.take_trespasses(), [""; 0]);
        one.read(&root, &there, 0, &mut [0; 8]).unwrap();
        let read = "READ of an object of tree 1, by way of the export of tree 0";
        assert_eq!(trees.take_trespasses(), [read]);
        other.rename(&root, &one.root(), b"file", &other.root(), b"moved");
        one.link(&root, &here, &other.root(), b"linked");
        let rename = "RENAME of an object of tree 0, by way of the export of tree 1";
        let link = "LINK of an object of tree 1, by way of the export of tree 0";
        assert_eq!(trees.take_trespasses(), [rename, link]);
    }

    #[test]
    fn a_change_of_a_read_only_export_is_recorded() {
        let trees = trees();
        let id = file(&*trees.export(2, false), "file");
        let export = trees.export(2, true);
        export.getattr(&id).unwrap();
        assert_eq!(trees.take_trespasses(), [""; 0]);
        file(&*export, "another");
        let create = "CREATE by way of a read-only export";
        assert_eq!(trees.take_trespasses(), [create]);
    }

    #[test]
    fn nothing_above_a_tree_is_shown() {
        let export = trees().export(1, false);
        let (caller, root) = (Caller::new(0, 0), export.root());
        let above = export.lookup(&caller, &root, b"..").unwrap();
        assert_eq!(above.object.id, root);
        let mut seen = Vec::new();
        let mut take = |entry: &DirEntry<'_>| {
            seen.push((entry.name.to_vec(), entry.object.unwrap().id));
            true
        };
        export
            .readdir(&caller, &root, 0, [0; 8], true, &mut take)
            .unwrap();
        assert_eq!(seen, [(b".".to_vec(), root), (b"..".to_vec(), root)]);
    }
}
