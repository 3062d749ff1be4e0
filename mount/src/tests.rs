//! Tests of the file system with a server in this process, which loses data and replies as it is told.
//! They need no FUSE.

mod appends;
mod counted;
mod direct_writes;
mod end;
mod first_contact;
mod hidden;
mod interrupted;
mod listings;
mod other_clients;
mod read_ahead;
mod resent;
mod set_id;
mod write_behind;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{LocalBoxFuture, join, join3, select};
use futures_util::{FutureExt, poll};
use nfs_binding::client::{AttachOptions, Mount};
use nfs_binding::fs::directory::DirectoryOptions;
use nfs_binding::fs::{DirectoryFs, FileSystem, MemoryFs};
use nfs_binding::proto::{
    Attributes, FileHandle, FileType, NfsTime, Procedure, SetAttributes, SetTime, Status, nfs,
};
use nfs_binding::server::{Export, ExportOptions, HandleKey, NfsServer};
use onc_rpc::AuthSys;
use rdma::Clock;
use rpc_transport::Runtime;
use rustix::io::Errno;

use crate::copies::Copies;
use crate::core::files::OpenMode;
use crate::core::transfer::WriteMode;
use crate::core::{Connect, Core, Parts, UserOf};
use crate::engine::{Queue, drive, run};
use crate::in_process::{Fault, InProcess};
use crate::inodes::ROOT;
use crate::kernel::Kernel;
use crate::options::{AttributeTimes, LookupCache, Options};
use crate::read_memory::ReadMemory;
use crate::users::Requester;

impl Connect for InProcess {
    type As = Self;

    fn of(&self, credential: &AuthSys) -> Self {
        self.with_credential(credential)
    }
}

/// A kernel that records which files it was told to forget the pages of. It does that at once, except for the
/// files in the second field. The third one has the file of each invalidation of pages, and the object
/// of each one of attributes; these are not done at once for the objects in the fourth.
#[derive(Clone, Default)]
struct Told(
    Rc<RefCell<Vec<u64>>>,
    Rc<RefCell<BTreeSet<u64>>>,
    Rc<RefCell<Vec<u64>>>,
    Rc<RefCell<BTreeSet<u64>>>,
);

impl Told {
    fn is_done(&self, number: u64, stuck: &RefCell<BTreeSet<u64>>) -> bool {
        let (stuck, begun) = (stuck.borrow(), self.2.borrow());
        let ino = number.checked_sub(1).map(|index| begun[index as usize]);
        ino.is_none_or(|ino| !stuck.contains(&ino))
    }
}

impl Kernel for Told {
    fn invalidate_pages(&self, ino: u64, _: Range<u64>) -> u64 {
        self.0.borrow_mut().push(ino);
        self.invalidate_attributes(ino)
    }

    fn has_invalidated_pages(&self, number: u64) -> bool {
        self.is_done(number, &self.1)
    }

    fn invalidate_attributes(&self, ino: u64) -> u64 {
        let mut begun = self.2.borrow_mut();
        begun.push(ino);
        begun.len() as u64
    }

    fn has_invalidated_attributes(&self, number: u64) -> bool {
        self.is_done(number, &self.3)
    }
}

const WRITE: OpenMode = OpenMode {
    read: true,
    write: true,
    execute: false,
    direct: false,
    sync: false,
    exclusive: false,
    truncate: false,
};

struct Fixture {
    runtime: Runtime,
    server: InProcess,
    core: Rc<Core<InProcess>>,
    user: UserOf<InProcess>,
    told: Told,
}

/// A server, and the export that two clients of it have mounted.
fn server() -> (Runtime, InProcess, Mount<InProcess>) {
    serve(Arc::new(MemoryFs::new(64 << 20).unwrap()))
}

fn serve(backend: Arc<dyn FileSystem>) -> (Runtime, InProcess, Mount<InProcess>) {
    let export = Export {
        path: "/data".into(),
        backend,
        options: ExportOptions::for_server(false),
    };
    let key = HandleKey::from_bytes([7; 16]);
    let server = InProcess::new(Box::new(NfsServer::new(vec![export], key).unwrap()));
    let runtime = Runtime::new().unwrap();
    let attach = AttachOptions {
        rsize: Some(64 << 10),
        wsize: Some(64 << 10),
        ..AttachOptions::default()
    };
    let attached = Mount::attach(server.clone(), &server, b"/data", &attach);
    let (mount, _) = runtime.block_on(attached).unwrap();
    (runtime, server, mount)
}

fn client(runtime: &Runtime, server: &InProcess, mount: &Mount<InProcess>, random: u32) -> Fixture {
    let root = runtime.block_on(mount.getattr(mount.root(), b"".as_slice()));
    let told = Told::default();
    let core = Core::new(Parts {
        connect: server.clone(),
        options: Options::new("test"),
        limits: mount.limits(),
        readdirplus: true,
        kernel: Box::new(told.clone()),
        pool: server.pool.clone(),
        copies: Copies::default(),
        root: mount.root(),
        root_attributes: root.unwrap(),
        random,
    });
    let user = core.user(Requester {
        uid: 0,
        gid: 0,
        pid: 0,
    });
    Fixture {
        runtime: runtime.clone(),
        server: server.clone(),
        core,
        user,
        told,
    }
}

fn fixture() -> Fixture {
    let (runtime, server, mount) = server();
    client(&runtime, &server, &mount, 1)
}

/// Returns two clients of one server.
fn clients() -> [Fixture; 2] {
    let (runtime, server, mount) = server();
    [1, 2].map(|random| client(&runtime, &server, &mount, random))
}

/// A client of a server that exports a directory, which is returned too. A file system in memory has
/// nothing to commit.
fn on_disk() -> (Fixture, tempfile::TempDir) {
    let exported = tempfile::tempdir().unwrap();
    let options = DirectoryOptions {
        sync: false,
        ..DirectoryOptions::default()
    };
    let backend = DirectoryFs::open(exported.path(), options).unwrap();
    let (runtime, server, mount) = serve(Arc::new(backend));
    (client(&runtime, &server, &mount, 1), exported)
}

impl Fixture {
    /// Returns the mount options, which a test changes while no request is under way.
    fn options(&mut self) -> &mut Options {
        &mut Rc::get_mut(&mut self.core).unwrap().options
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(drive(&self.core, future))
    }

    /// Creates a file in the root. Returns its number and that of the open file.
    fn create(&self, name: &[u8]) -> (u64, u64) {
        let making = self.core.create(&self.user, 1, ROOT, name, 0o644, WRITE);
        let (found, opened) = self.run(making).unwrap();
        (found.stat.unwrap().ino, opened.file)
    }

    fn write(&self, file: u64, offset: u64, data: Vec<u8>) {
        let len = data.len() as u32;
        let mode = WriteMode::default();
        let writing = self.core.write(file, offset, Bytes::from(data), mode);
        assert_eq!(self.run(writing), Ok(len));
    }

    /// Appends, as a kernel does that takes `offset` for the end of the file.
    fn append(&self, file: u64, offset: u64, data: Vec<u8>) {
        let len = data.len() as u32;
        let mode = WriteMode {
            append: true,
            ..WriteMode::default()
        };
        let writing = self.core.write(file, offset, Bytes::from(data), mode);
        assert_eq!(self.run(writing), Ok(len));
    }

    fn read(&self, file: u64, offset: u64, len: u32) -> Bytes {
        self.run(self.core.read(file, offset, len, false)).unwrap()
    }

    fn open(&self, ino: u64) -> u64 {
        let opening = self.core.open(&self.user, 1, ino, WRITE);
        self.run(opening).unwrap().file
    }

    fn close(&self, file: u64) -> Result<(), Errno> {
        let outcome = self.run(self.core.close(file));
        self.run(async { self.core.release(file) });
        self.run(async {});
        outcome
    }

    fn find(&self, name: &[u8]) -> Option<u64> {
        let looking = self.core.lookup(&self.user, 1, ROOT, name);
        let found = self.run(looking).unwrap();
        found.stat.map(|stat| stat.ino)
    }

    /// Lists a directory with objects. Returns the names, and how long the kernel may use those that it
    /// need not look up.
    fn list_plus(&self, ino: u64) -> Vec<(Bytes, Option<Duration>)> {
        let opening = self.core.opendir(&self.user, 1, ino);
        let directory = self.run(opening).unwrap().number;
        let mut entries = Vec::new();
        let listing = self.core.readdir(directory, 0, true, |listed| {
            let trust = listed.stat.as_ref().map(|stat| stat.trust);
            entries.push((Bytes::copy_from_slice(&listed.name.0), trust));
            true
        });
        self.run(listing).unwrap();
        self.core.releasedir(directory);
        entries.retain(|(name, _)| name != "." && name != "..");
        entries
    }

    fn names(&self) -> Vec<Bytes> {
        let directory = self
            .run(self.core.opendir(&self.user, 1, ROOT))
            .unwrap()
            .number;
        let mut names = Vec::new();
        let listing = self.core.readdir(directory, 0, false, |listed| {
            names.push(Bytes::copy_from_slice(&listed.name.0));
            true
        });
        self.run(listing).unwrap();
        self.core.releasedir(directory);
        names.retain(|name| name != "." && name != "..");
        names
    }

    fn calls<P: Procedure>(&self) -> u64 {
        self.server.calls::<P>()
    }
}

/// Lets all other tasks go on once.
async fn turn() {
    let mut others = true;
    poll_fn(|context| match std::mem::take(&mut others) {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

impl Fixture {
    fn rename(&self, old: &[u8], new: &[u8]) -> Result<(), Errno> {
        self.run(self.core.rename(&self.user, (ROOT, old), (ROOT, new)))
    }

    fn unlink(&self, name: &[u8]) -> Result<(), Errno> {
        self.run(self.core.unlink(&self.user, ROOT, name))
    }

    /// Makes a file with 100 bytes that is on the server, and leaves it open.
    fn open_file(&self, name: &[u8]) -> u64 {
        let (_, file) = self.create(name);
        self.write(file, 0, vec![5; 100]);
        self.run(self.core.fsync(file)).unwrap();
        file
    }

    /// Removes the name of an open file, which has to work until it is closed.
    fn removes_while_open(&self, name: &[u8], file: u64) {
        self.unlink(name).unwrap();
        let hidden = |name: &Bytes| name.starts_with(b".nfs");
        assert_eq!(self.names().iter().filter(|name| hidden(name)).count(), 1);
        self.write(file, 100, vec![6; 10]);
        assert_eq!(self.run(self.core.fsync(file)), Ok(()));
        assert_eq!(self.read(file, 0, 200).len(), 110);
        self.close(file).unwrap();
        assert!(!self.names().iter().any(hidden));
    }

    /// Makes the server answer a procedure with this status.
    fn fails(&self, procedure: u32, status: Status) {
        self.server.plan(move |proc, _| match proc == procedure {
            true => Fault::Status(status),
            false => Fault::None,
        });
    }
}

impl Fixture {
    /// Creates a file of 100 bytes, which `other` opens, and appends 900 bytes of which the kernel of `other` does
    /// not know. Returns the file's inode here and at `other`, and the open file there.
    fn appends_to_what_is_open_at(&self, other: &Self) -> (u64, u64, u64) {
        let (ino, file) = self.create(b"f");
        self.write(file, 0, vec![1; 100]);
        self.close(file).unwrap();
        let seen = other.find(b"f").unwrap();
        let open = other.open(seen);
        let file = self.open(ino);
        self.write(file, 100, vec![1; 900]);
        self.close(file).unwrap();
        (ino, seen, open)
    }

    /// Writes a part with O_DIRECT.
    fn write_direct(&self, file: u64, offset: u64, len: u32) -> Result<u32, Errno> {
        let mode = WriteMode {
            through: true,
            direct: true,
            ..WriteMode::default()
        };
        let data = Bytes::from(vec![2; len as usize]);
        self.run(self.core.write(file, offset, data, mode))
    }

    /// Truncates a file through an open file, and returns its size afterwards.
    fn truncate(&self, ino: u64, file: u64, size: u64) -> u64 {
        let attributes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        let setting = self.core.setattr(&self.user, ino, Some(file), attributes);
        self.run(setting).unwrap().attributes.size
    }
}

impl Fixture {
    /// Reads a file through a new open file.
    fn read_anew(&self, ino: u64) -> Bytes {
        let file = self.open(ino);
        let data = self.read(file, 0, 8 << 20);
        self.close(file).unwrap();
        data
    }
}

/// Begins a request, and drops it as soon as `begun` holds, as if its process were killed.
async fn cut_off<T>(request: impl Future<Output = T>, begun: impl Fn() -> bool) {
    let mut request = Box::pin(request);
    for _ in 0..1000 {
        assert!(poll!(&mut request).is_pending(), "it has ended");
        if begun() {
            return;
        }
        turn().await;
    }
    panic!("it did not begin");
}
