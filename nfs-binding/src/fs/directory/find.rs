//! Finds an object by its identity: among the open objects, by the kernel's handle, at its last
//! known place, or by an index.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::Served;
use super::host;
use super::index::{self, Index};
use super::key;
use super::node::{Child, Node};
use super::table::Wanted;
use crate::fs::lock::locked;
use crate::fs::{FileId, FsError, FsResult};

/// The maximum depth of a remembered path. Objects at a greater depth are found by the index.
const MAX_DEPTH: usize = 4096;
/// The time that a call waits for the index before its client is told to try again.
const WAIT: Duration = Duration::from_millis(100);
/// The minimum wait for a scan that may not begin yet.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// The number of complete indexes without an object that prove that it no longer exists.
const COMPLETE_SCANS: u32 = 2;
/// The number of incomplete indexes without an object that prove that it no longer exists, in an
/// export that keeps changing.
const INCOMPLETE_SCANS: u32 = 8;
/// The pause between two scans, as a multiple of the duration of the last scan.
const PAUSE: u32 = 4;

/// The index, and who makes it.
#[derive(Default)]
pub(super) struct Finder {
    state: Mutex<State>,
    /// Signalled when an index was completed or failed.
    done: Condvar,
    /// Held by the one call that waits for an index. Other calls do not wait, because they could
    /// occupy all workers.
    waiting: Mutex<()>,
    /// Set when the file system is being dropped.
    pub(super) closing: AtomicBool,
}

#[derive(Default)]
struct State {
    latest: Option<Arc<Index>>,
    /// Whether a thread is building another index.
    running: bool,
    /// The earliest time to begin the next scan.
    next: Option<Instant>,
}

impl Served {
    /// Returns the object with an identity.
    pub(super) fn find(&self, id: &FileId) -> FsResult<Arc<Node>> {
        if *id == self.root.id {
            return Ok(Arc::clone(&self.root));
        }
        {
            let mut table = self.tables.of(id);
            if let Some(node) = table.open(id) {
                return Ok(node);
            }
            if table.is_gone(id) {
                return Err(FsError::Stale);
            }
        }
        let decoded = key::decode(id)?;
        if decoded.is_placeholder {
            // The operations that a placeholder supports are in `placeholder.rs`; all others end here.
            return Err(FsError::ReadOnly);
        }
        self.authority
            .as_server(|| self.find_closed(id, decoded.fsid))
    }

    fn find_closed(&self, id: &FileId, fsid: u64) -> FsResult<Arc<Node>> {
        let volume = self.volume_by_number(id, fsid)?;
        if let Some(path) = volume.open_by_handle(id)? {
            let stat = host::stat(&path)?;
            let node = Node::new(*id, volume, path, &stat);
            node.stat()?;
            return Ok(self.keep_open(node));
        }
        // If the file system's root had to be searched for, it is open by now.
        let open = self.tables.of(id).open(id);
        match open.map_or_else(|| self.find_at_last_place(id), |node| Ok(Some(node)))? {
            Some(node) => Ok(node),
            None => self.find_by_index(id),
        }
    }

    /// Opens the entry `name` of a directory with `O_PATH`.
    pub(super) fn open_child(&self, dir: &Node, name: &[u8]) -> FsResult<Child> {
        let Some(path) = host::open_child(dir, name, false)? else {
            return self.open_mounted(dir, name);
        };
        let stat = host::stat(&path)?;
        if dir.volume.is_subvolume_root(&stat) {
            return self.open_root(path);
        }
        let id = dir.volume.identify(&path, &stat)?;
        let node = Node::new(id, Arc::clone(&dir.volume), path, &stat);
        let attributes = node.to_client(&stat);
        Ok(Child::Here(node, attributes))
    }

    /// Opens the entry `name` of a directory. If the opened object has no link by then, another one may
    /// have been renamed over it, and the name is opened again, because a client must not see a name
    /// vanish that exists all the time. After ten attempts the last object is returned: it had the name
    /// when it was opened.
    pub(super) fn open_linked(&self, dir: &Node, name: &[u8]) -> FsResult<Child> {
        const ATTEMPTS: u32 = 10;
        let mut child = self.open_child(dir, name)?;
        for _ in 1..ATTEMPTS {
            match &child {
                Child::Here(_, attributes) if attributes.nlink == 0 => {}
                _ => break,
            }
            child = self.open_child(dir, name)?;
        }
        Ok(child)
    }

    /// Opens the entry `name` of a directory and keeps it open.
    pub(super) fn child(&self, dir: &Node, name: &[u8]) -> FsResult<Arc<Node>> {
        match self.open_linked(dir, name)? {
            Child::Here(node, _) => Ok(self.keep_child(dir, name, node)),
            Child::Elsewhere(_) => Err(FsError::Access),
        }
    }

    /// Keeps an object open that was opened as the entry `name` of `dir`.
    pub(super) fn keep_child(&self, dir: &Node, name: &[u8], node: Node) -> Arc<Node> {
        self.record_place(dir, name, &node);
        self.keep_open(node)
    }

    /// Records that an object is the entry `name` of `dir`, if the index is in use for it.
    pub(super) fn record_place(&self, dir: &Node, name: &[u8], node: &Node) {
        if self.is_indexed(node) && node.id != self.root.id {
            self.tables.of(&node.id).record_place(node.id, dir.id, name);
        }
    }

    /// Returns whether an object is found by its place instead of the kernel's handle.
    pub(super) fn is_indexed(&self, node: &Node) -> bool {
        node.volume.is_indexed() || key::decode(&node.id).is_ok_and(|id| id.handle.is_none())
    }

    /// Keeps an object open. Returns the one to use: another thread may have opened it before.
    pub(super) fn keep_open(&self, node: Node) -> Arc<Node> {
        if node.id == self.root.id {
            return Arc::clone(&self.root);
        }
        let keeps = |node: &Node| self.must_stay_open(node);
        let (node, closed) = self.tables.of(&node.id).keep_open(node, keeps);
        self.closer_signal.opened();
        if let Some(same) = closed.as_ref().filter(|closed| closed.id == node.id) {
            // Another call may have looked a new file up before its creator got here. Only the
            // creator's descriptor can write to it if the mode does not allow that.
            node.take_writable(same);
        }
        // Closing can take time, so it happens without the lock.
        self.handle_evicted(closed);
        node
    }

    /// Opens the parent of a directory. Returns `None` for the root of the export, and for the root
    /// of a mount unless `crossmnt` is set. The parent lies outside the export if the directory was
    /// moved out of it: the caller has to check that.
    pub(super) fn parent_of(&self, dir: &Node) -> FsResult<Option<Arc<Node>>> {
        if dir.id == self.root.id {
            return Ok(None);
        }
        let Some(path) = host::open_parent(dir, self.options.crossmnt)? else {
            return Ok(None);
        };
        let stat = host::stat(&path)?;
        let left = dir.volume.is_subvolume_root(&stat) || !dir.volume.is_mounted_as(&stat);
        let volume = match left {
            false => Arc::clone(&dir.volume),
            true => match self.volume_of(&path, &stat)? {
                Some(volume) => volume,
                None => return Ok(None),
            },
        };
        let id = volume.identify(&path, &stat)?;
        Ok(Some(Arc::new(Node::new(id, volume, path, &stat))))
    }

    /// Opens a directory for listing, with the rights of this thread.
    pub(super) fn open_for_listing(&self, dir: &Node) -> FsResult<OwnedFd> {
        Ok(self
            .files
            .reopen(dir.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    /// Returns the object if it is still at its last known place.
    fn find_at_last_place(&self, id: &FileId) -> FsResult<Option<Arc<Node>>> {
        let mut names = Vec::new();
        let mut at = *id;
        let mut node = loop {
            if at == self.root.id {
                break Arc::clone(&self.root);
            }
            let mut table = self.tables.of(&at);
            if let Some(open) = table.open(&at) {
                break open;
            }
            let Some(place) = table.place(&at).filter(|_| names.len() < MAX_DEPTH) else {
                return Ok(None);
            };
            names.push((at, place.name));
            at = place.parent;
        };
        for (id, name) in names.into_iter().rev() {
            let Some(found) = self.open_if(&node, &name, &id)? else {
                self.tables.of(&id).forget_place(&id, &node.id, &name);
                return Ok(None);
            };
            node = found;
        }
        Ok(Some(node))
    }

    /// Returns the entry `name` of `dir` if it is the object `id`.
    fn open_if(&self, dir: &Node, name: &[u8], id: &FileId) -> FsResult<Option<Arc<Node>>> {
        match self.open_child(dir, name) {
            Ok(Child::Here(node, _)) if node.id == *id => {
                Ok(Some(self.keep_child(dir, name, node)))
            }
            Ok(_) | Err(FsError::NotFound | FsError::NotDirectory | FsError::Access) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Searches for the object in the index.
    ///
    /// An object no longer exists if it is missing in [`COMPLETE_SCANS`] complete indexes whose
    /// scans began after the object was first asked for: a single scan can miss a file that the
    /// host moves meanwhile. Until then, the call waits for up to [`WAIT`] if no other call waits,
    /// and then the client is told to try again (NFS3ERR_JUKEBOX). One scan serves all searches.
    fn find_by_index(&self, id: &FileId) -> FsResult<Arc<Node>> {
        let begun = Instant::now();
        self.tables.of(id).wanted(*id, begun);
        let waiting = self.finder.waiting.try_lock();
        let mut seen = None;
        loop {
            let latest = self.finder.latest();
            if let Some(index) = latest.filter(|index| seen != Some(index.begun)) {
                seen = Some(index.begun);
                if let Some(node) = self.find_indexed(&index, id)? {
                    return Ok(node);
                }
                let mut table = self.tables.of(id);
                let wanted = table.record_missing(id, index.begun, index.complete);
                let enough = |wanted: Wanted| {
                    wanted.complete >= COMPLETE_SCANS || wanted.incomplete >= INCOMPLETE_SCANS
                };
                if wanted.is_some_and(enough) {
                    let closed = table.remove(id);
                    table.remember_gone(*id);
                    drop(table);
                    drop(closed);
                    return Err(FsError::Stale);
                }
            }
            self.begin_index();
            let left = WAIT.saturating_sub(begun.elapsed());
            if waiting.is_err() || left.is_zero() {
                return Err(FsError::Later);
            }
            self.finder.wait(seen, left);
        }
    }

    /// Starts another scan, unless one is running or the pause has not ended.
    fn begin_index(&self) {
        let mut state = locked(&self.finder.state);
        let early = state.next.is_some_and(|next| Instant::now() < next);
        if state.running || early {
            return;
        }
        let Some(served) = self.myself.upgrade() else {
            return;
        };
        let made = move || {
            let index = Index::new(&served, &served.finder.closing);
            served.finder.finish(index);
        };
        // This code runs under the server's identity, which a new thread inherits.
        let thread = std::thread::Builder::new().name("nfs-index".to_owned());
        match thread.spawn(made) {
            Ok(_) => state.running = true,
            Err(error) => tracing::warn!(%error, "cannot start a thread to index an export"),
        }
    }

    /// Returns the object if it is where the index says.
    fn find_indexed(&self, index: &Index, id: &FileId) -> FsResult<Option<Arc<Node>>> {
        'ways: for (way, ino) in index.ways(id) {
            let mut dir = Arc::clone(&self.root);
            for name in way {
                let Ok(below) = self.child(&dir, name) else {
                    continue 'ways;
                };
                dir = below;
            }
            if let Some(node) = self.in_directory(&dir, id, ino)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Returns the object if it is in `dir`, in an entry with these low 32 bits of the inode
    /// number.
    fn in_directory(&self, dir: &Node, id: &FileId, ino: u32) -> FsResult<Option<Arc<Node>>> {
        let Ok(opened) = self.open_for_listing(dir) else {
            return Ok(None);
        };
        let mut found = None;
        host::list(&opened, 0, |entry| {
            let dots = matches!(entry.name, b"." | b"..");
            if !dots && index::short(entry.ino) == ino {
                found = self.open_if(dir, entry.name, id)?;
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }
}

impl Finder {
    fn latest(&self) -> Option<Arc<Index>> {
        locked(&self.state).latest.clone()
    }

    fn finish(&self, made: FsResult<Index>) {
        let mut state = locked(&self.state);
        state.running = false;
        match made {
            Ok(index) => {
                state.next = Some(Instant::now() + index.took.saturating_mul(PAUSE));
                state.latest = Some(Arc::new(index));
            }
            Err(error) => {
                tracing::warn!(%error, "an export could not be indexed");
                state.next = Some(Instant::now() + WAIT.saturating_mul(PAUSE));
            }
        }
        self.done.notify_all();
    }

    /// Waits for an index newer than that of `seen`, or until a scan may begin, but no longer than
    /// `limit`.
    fn wait(&self, seen: Option<Instant>, limit: Duration) {
        let state = locked(&self.state);
        if !state.running {
            let next = state
                .next
                .map(|next| next.saturating_duration_since(Instant::now()));
            drop(state);
            return std::thread::sleep(
                next.unwrap_or_default()
                    .clamp(LEAST_WAIT, limit.max(LEAST_WAIT)),
            );
        }
        let made = |state: &State| {
            let latest = state.latest.as_ref().map(|index| index.begun);
            latest.is_some() && latest != seen
        };
        let waited = self
            .done
            .wait_timeout_while(state, limit, |state| state.running && !made(state));
        drop(waited);
    }
}
