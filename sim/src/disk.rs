//! The server's disk: the memory file system with a write cache that a power failure empties.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nfs_binding::fs::{
    Abilities, Caller, Change, DirEntry, FileId, FileSystem, Found, FsResult, HowToCreate, Listing,
    MemoryFs, NameRules, Object, Read, Renamed, Space, Special, Written,
};
use nfs_binding::proto::{Access, Attributes, NfsTime, SetAttributes, Stable, Verifier};
use onc_rpc::Bulk;
use rdma::Clock;
use rdma_sim::Random;
use rpcrdma_programs::pattern;

/// The capacity in bytes.
const SIZE: u64 = 64 << 20;

/// The content of the write cache, and the writes since the server started.
#[derive(Debug, Default)]
struct State {
    /// For each file and offset, the previous contents before each write that is not on stable
    /// storage, oldest first.
    cached: BTreeMap<(Vec<u8>, u64), Vec<Vec<u8>>>,
    /// The number of executions of each write since the server started.
    executed: BTreeMap<u64, u32>,
    /// Writes that were executed more than once.
    repeated: Vec<u64>,
    /// The write verifier, which changes with every start of the server.
    verifier: u64,
}

/// The server's disk. It survives restarts of the server.
///
/// Names and attributes are on stable storage at once, as NFS requires; UNSTABLE writes wait in the
/// cache. Writes to one file must cover equal or disjoint ranges; ranges must not overlap partly.
#[derive(Debug)]
pub(crate) struct Disk {
    inner: MemoryFs,
    blocks: bool,
    write_back: bool,
    state: Mutex<State>,
}

impl Disk {
    pub(crate) fn new(seed: u64, clock: Clock, blocks: bool, write_back: bool) -> Self {
        let mut random = Random::new(seed).split(2);
        let state = State {
            verifier: random.next(),
            ..State::default()
        };
        Self {
            inner: MemoryFs::simulated(SIZE, random.next(), clock),
            blocks,
            write_back,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server process restarts.
    pub(crate) fn restarted(&self) {
        let mut state = self.state();
        state.verifier = state.verifier.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        state.executed.clear();
    }

    /// Simulates a power failure: any part of the cache may be on the disk.
    pub(crate) fn power_failed(&self, random: &mut Random) {
        let cached = std::mem::take(&mut self.state().cached);
        let root = Caller::new(0, 0);
        for ((file, offset), versions) in cached {
            let kept = random.below(versions.len() as u64 + 1) as usize;
            // The index after the last old version stands for the last write.
            if let (Some(old), Some(file)) = (versions.get(kept), FileId::new(&file)) {
                // A file that was removed meanwhile has nothing to lose.
                let _: Change<Written> = self.inner.write(
                    &root,
                    &file,
                    offset,
                    &Bulk::copy_from(old),
                    Stable::FileSync,
                );
            }
        }
    }

    /// Takes the list of writes that were executed more than once while the server had its reply
    /// cache.
    pub(crate) fn take_repeated(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().repeated)
    }

    /// Reads a file that a client created, from the disk.
    pub(crate) fn read_file(
        &self,
        dir: u64,
        file: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<usize> {
        let root = Caller::new(0, 0);
        let (dir, file) = (format!("dir{dir}"), format!("file{file}"));
        let dir = self
            .inner
            .lookup(&root, &self.inner.root(), dir.as_bytes())?;
        let file = self.inner.lookup(&root, &dir.object.id, file.as_bytes())?;
        let read = self.inner.read(&root, &file.object.id, offset, buf)?;
        Ok(read.count as usize)
    }

    fn note_executed(&self, data: &[u8]) {
        let Some(number) = pattern::number(data, data.len()) else {
            return;
        };
        let mut state = self.state();
        let count = state.executed.entry(number).or_default();
        *count += 1;
        if *count > 1 {
            state.repeated.push(number);
        }
    }

    fn read_old(&self, who: &Caller, id: &FileId, offset: u64, len: usize) -> Vec<u8> {
        let mut old = vec![0; len];
        // Content that cannot be read counts as absent.
        let count = self.inner.read(who, id, offset, &mut old);
        let count = count.map_or(0, |read| read.count as usize);
        old[count..].fill(0);
        old
    }
}

impl FileSystem for Disk {
    fn blocks(&self) -> bool {
        self.blocks
    }

    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn write_verifier(&self) -> Verifier {
        self.state().verifier.to_be_bytes()
    }

    fn getattr(&self, file: &FileId) -> FsResult<Attributes> {
        self.inner.getattr(file)
    }

    fn setattr(
        &self,
        who: &Caller,
        file: &FileId,
        set: &SetAttributes,
        guard: Option<NfsTime>,
    ) -> Change<()> {
        self.inner.setattr(who, file, set, guard)
    }

    fn lookup(&self, who: &Caller, dir: &FileId, name: &[u8]) -> FsResult<Found> {
        self.inner.lookup(who, dir, name)
    }

    fn access(
        &self,
        who: &Caller,
        file: &FileId,
        wanted: Access,
    ) -> FsResult<(Access, Attributes)> {
        self.inner.access(who, file, wanted)
    }

    fn readlink(&self, who: &Caller, link: &FileId) -> FsResult<(Vec<u8>, Attributes)> {
        self.inner.readlink(who, link)
    }

    fn read(&self, who: &Caller, file: &FileId, offset: u64, buf: &mut [u8]) -> FsResult<Read> {
        self.inner.read(who, file, offset, buf)
    }

    fn read_shared(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        count: u32,
    ) -> FsResult<Option<(Read, Bulk)>> {
        self.inner.read_shared(who, file, offset, count)
    }

    fn write(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        let cached = self.write_back && stable == Stable::Unstable;
        let old = cached.then(|| self.read_old(who, file, offset, data.len()));
        let mut change = self.inner.write(who, file, offset, data, stable);
        if let Ok(written) = &mut change.result {
            self.note_executed(&data.to_bytes());
            let mut state = self.state();
            let key = (file.as_bytes().to_vec(), offset);
            match old {
                Some(old) => {
                    state.cached.entry(key).or_default().push(old);
                    written.committed = Stable::Unstable;
                }
                None => {
                    state.cached.remove(&key);
                }
            }
        }
        change
    }

    fn create(&self, who: &Caller, dir: &FileId, name: &[u8], how: &HowToCreate) -> Change<Object> {
        self.inner.create(who, dir, name, how)
    }

    fn mkdir(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.inner.mkdir(who, dir, name, set)
    }

    fn symlink(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Change<Object> {
        self.inner.symlink(who, dir, name, target, set)
    }

    fn mknod(
        &self,
        who: &Caller,
        dir: &FileId,
        name: &[u8],
        what: Special,
        set: &SetAttributes,
    ) -> Change<Object> {
        self.inner.mknod(who, dir, name, what, set)
    }

    fn remove(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.inner.remove(who, dir, name)
    }

    fn rmdir(&self, who: &Caller, dir: &FileId, name: &[u8]) -> Change<()> {
        self.inner.rmdir(who, dir, name)
    }

    fn rename(
        &self,
        who: &Caller,
        from_dir: &FileId,
        from: &[u8],
        to_dir: &FileId,
        to: &[u8],
    ) -> Renamed {
        self.inner.rename(who, from_dir, from, to_dir, to)
    }

    fn link(&self, who: &Caller, file: &FileId, dir: &FileId, name: &[u8]) -> Change<Attributes> {
        self.inner.link(who, file, dir, name)
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
        self.inner
            .readdir(who, dir, cookie, verifier, objects, take)
    }

    fn space(&self, who: &Caller, file: &FileId) -> FsResult<Space> {
        self.inner.space(who, file)
    }

    fn abilities(&self, file: &FileId) -> FsResult<Abilities> {
        self.inner.abilities(file)
    }

    fn name_rules(&self, file: &FileId) -> FsResult<NameRules> {
        self.inner.name_rules(file)
    }

    fn commit(&self, who: &Caller, file: &FileId, offset: u64, count: u32) -> Change<()> {
        let change = self.inner.commit(who, file, offset, count);
        if change.result.is_ok() {
            let end = match count {
                0 => u64::MAX,
                count => offset.saturating_add(u64::from(count)),
            };
            let id = file.as_bytes();
            let mut state = self.state();
            state
                .cached
                .retain(|(file, at), _| file != id || !(offset..end).contains(at));
        }
        change
    }
}
