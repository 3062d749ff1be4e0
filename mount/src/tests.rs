//! Tests of the file system with a server in this process, which loses data and replies as it is told.
//! They need no FUSE.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
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
use crate::core::{Connect, Core, Kernel, Parts, UserOf};
use crate::engine::{Queue, drive, run};
use crate::files::OpenMode;
use crate::in_process::{Fault, InProcess};
use crate::inodes::ROOT;
use crate::options::{AttributeTimes, LookupCache, Options};
use crate::read_memory::ReadMemory;
use crate::transfer::WriteMode;
use crate::users::Requester;

impl Connect for InProcess {
    type As = Self;

    fn of(&self, _: &AuthSys) -> Self {
        self.clone()
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
    fn invalidate_pages(&self, ino: u64) -> u64 {
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

/// The server restarts before each of the first COMMITs, and loses what was not committed.
#[test]
fn what_the_server_loses_before_a_commit_is_written_again() {
    let (fixture, exported) = on_disk();
    let (_, file) = fixture.create(b"f");
    let data: Vec<u8> = (0..400_000u32).map(|n| n as u8).collect();
    for (index, piece) in data.chunks(50_000).enumerate() {
        fixture.write(file, index as u64 * 50_000, piece.to_vec());
    }
    fixture.server.plan(
        |procedure, count| match procedure == nfs::Commit::NUMBER && count < 3 {
            true => Fault::Restart,
            false => Fault::None,
        },
    );
    fixture.run(fixture.core.fsync(file)).unwrap();
    assert!(fixture.calls::<nfs::Commit>() >= 4);
    assert_eq!(fixture.core.unwritten.get(), 0);
    assert_eq!(std::fs::read(exported.path().join("f")).unwrap(), data);
    fixture.server.plan(|_, _| Fault::None);
    fixture.close(file).unwrap();
}

/// Data that a restarted server has lost is written again, which sets the time to that of the WRITE.
#[test]
fn a_time_that_was_set_stays_if_the_server_restarts_before_the_file_is_closed() {
    let (fixture, _exported) = on_disk();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 400_000]);
    let time = NfsTime {
        seconds: 5,
        nanos: 0,
    };
    let mtime = SetAttributes {
        mtime: SetTime::To(time),
        ..SetAttributes::default()
    };
    let setting = fixture.core.setattr(&fixture.user, ino, None, mtime);
    let stat = fixture.run(setting).unwrap();
    assert_eq!(stat.attributes.mtime, time);
    let mut up = true;
    fixture.server.plan(move |proc, _| match proc {
        nfs::Commit::NUMBER if std::mem::take(&mut up) => Fault::Restart,
        _ => Fault::None,
    });
    fixture.close(file).unwrap();
    let node = fixture.core.node(ino).unwrap();
    let asked = fixture.core.attributes_of(&fixture.user, node.handle);
    assert_eq!(fixture.run(asked).unwrap().mtime, time);
}

/// The server restarts, which a COMMIT notices, while it does not answer the SETATTR.
#[test]
fn nothing_is_written_again_once_a_truncation_is_under_way() {
    let (fixture, exported) = on_disk();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 400_000]);
    let silent = Rc::new(Cell::new(true));
    let still = Rc::clone(&silent);
    let mut restarts = false;
    fixture.server.plan(move |proc, made| match proc {
        nfs::Setattr::NUMBER if still.get() => {
            restarts |= made == 0;
            Fault::Status(Status::JUKEBOX)
        }
        nfs::Commit::NUMBER if std::mem::take(&mut restarts) => Fault::Restart,
        _ => Fault::None,
    });
    let empty = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    let core = &fixture.core;
    fixture.run(async {
        let mut truncate = Box::pin(core.setattr(&fixture.user, ino, None, empty));
        while fixture.calls::<nfs::Setattr>() == 0 {
            assert!(poll!(&mut truncate).is_pending());
            turn().await;
        }
        let writes = fixture.calls::<nfs::Write>();
        core.fsync(file).await.unwrap();
        silent.set(false);
        assert_eq!(truncate.await.unwrap().attributes.size, 0);
        assert_eq!(fixture.calls::<nfs::Write>(), writes);
    });
    fixture.close(file).unwrap();
    assert_eq!(std::fs::read(exported.path().join("f")).unwrap(), b"");
}

#[test]
fn a_small_file_is_written_with_one_call_and_no_commit() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    fixture.write(file, 1000, vec![2; 1000]);
    fixture.close(file).unwrap();
    assert_eq!(fixture.calls::<nfs::Write>(), 1);
    assert_eq!(fixture.calls::<nfs::Commit>(), 0);
    let stat = fixture
        .run(fixture.core.getattr(&fixture.user, ino))
        .unwrap();
    assert_eq!(stat.attributes.size, 2000);
}

/// What a program sees before its data is sent is what it has written, holes included: a short reply
/// would be the end of the file to the kernel.
#[test]
fn a_read_sees_written_data_and_the_holes_before_it() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    fixture.write(file, 10_000, vec![7; 10]);
    assert_eq!(fixture.calls::<nfs::Write>(), 0);
    assert_eq!(&fixture.read(file, 0, 4096)[..], &[0; 4096][..]);
    let end = fixture.read(file, 9_990, 4096);
    assert_eq!(&end[..], &[[0; 10], [7; 10]].concat()[..]);
    fixture.close(file).unwrap();
}

#[test]
fn an_error_of_a_write_is_reported_once_to_each_open_file() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    let other = fixture.open(ino);
    fixture.write(file, 0, vec![1; 1000]);
    fixture
        .server
        .plan(|procedure, _| match procedure == nfs::Write::NUMBER {
            true => Fault::Status(Status::NOSPC),
            false => Fault::None,
        });
    let sync = |file| fixture.run(fixture.core.fsync(file));
    assert!(!fixture.told.0.borrow().contains(&ino));
    assert_eq!(sync(file), Err(Errno::NOSPC));
    // The kernel must not show what is lost: neither now, nor to whoever opens the file next.
    assert!(fixture.told.0.borrow().contains(&ino));
    let mode = OpenMode {
        read: true,
        ..WRITE
    };
    let next = fixture.run(fixture.core.open(&fixture.user, 1, ino, mode));
    let next = next.unwrap();
    assert!(!next.keep);
    fixture.core.release(next.file);
    assert_eq!(sync(file), Ok(()));
    assert_eq!(fixture.close(other), Err(Errno::NOSPC));
    // Not to one that was opened later.
    assert_eq!(fixture.close(fixture.open(ino)), Ok(()));
    assert_eq!(fixture.close(file), Ok(()));
}

#[test]
fn a_file_that_is_removed_while_open_stays_until_it_is_closed() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![5; 100]);
    fixture
        .run(fixture.core.unlink(&fixture.user, ROOT, b"f"))
        .unwrap();
    assert_eq!(fixture.find(b"f"), None);
    let names = fixture.names();
    assert!(
        names.len() == 1 && names[0].starts_with(b".nfs"),
        "{names:?}"
    );
    let again = fixture.core.unlink(&fixture.user, ROOT, &names[0]);
    assert_eq!(fixture.run(again), Err(Errno::BUSY));
    let stat = fixture
        .run(fixture.core.getattr(&fixture.user, ino))
        .unwrap();
    assert_eq!((stat.attributes.nlink, stat.attributes.size), (0, 100));
    assert_eq!(fixture.read(file, 0, 200).len(), 100);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

#[test]
fn a_file_that_is_closed_while_it_gets_its_hidden_name_leaves_none() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let core = &fixture.core;
    let unlink = core.unlink(&fixture.user, ROOT, b"f");
    let (removed, ()) = fixture.run(join(unlink, async {
        // The removal has begun, and waits for the server.
        poll_fn(|context| match core.hidden.get() {
            0 => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
        core.release(file);
    }));
    assert_eq!(removed, Ok(()));
    assert_eq!(fixture.names(), [""; 0]);
}

/// A program lists a directory right after it has closed a removed file, as `rm -r` does. The kernel sends the
/// READDIR before the removal of the hidden name has begun.
#[test]
fn a_listing_right_after_a_close_waits_for_the_hidden_name_to_go() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    fixture.unlink(b"f").unwrap();
    assert_eq!(fixture.names().len(), 1);
    let silent = Rc::new(Cell::new(true));
    let still = Rc::clone(&silent);
    fixture.server.plan(move |proc, _| match proc {
        nfs::Remove::NUMBER if still.get() => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    let core = &fixture.core;
    let opening = core.opendir(&fixture.user, 1, ROOT);
    let directory = fixture.run(opening).unwrap().number;
    let mut names = Vec::new();
    fixture.run(async {
        core.release(file);
        let mut listing = Box::pin(core.readdir(directory, 0, false, |listed| {
            names.push(Bytes::copy_from_slice(&listed.name.0));
            true
        }));
        let listed = fixture.calls::<nfs::Readdirplus>();
        for _ in 0..50 {
            assert!(poll!(&mut listing).is_pending());
            turn().await;
        }
        assert_eq!(fixture.calls::<nfs::Readdirplus>(), listed);
        silent.set(false);
        listing.await.unwrap();
    });
    core.releasedir(directory);
    names.retain(|name| name != "." && name != "..");
    assert_eq!(names, [""; 0]);
}

/// A program has found the hidden name in a listing. The removal has been begun, but not been sent.
#[test]
fn a_hidden_file_that_is_opened_by_its_name_stays_until_it_is_closed_again() {
    let mut fixture = fixture();
    fixture.options().close_to_open = false;
    let file = fixture.open_file(b"f");
    fixture.unlink(b"f").unwrap();
    let names = fixture.names();
    let ino = fixture.find(&names[0]).unwrap();
    // The next open needs no call.
    let other = fixture.open(ino);
    fixture.close(other).unwrap();
    let again = fixture.run(async {
        fixture.core.release(file);
        let opening = fixture.core.open(&fixture.user, 1, ino, WRITE);
        opening.await.unwrap().file
    });
    assert_eq!(fixture.read(again, 0, 200).len(), 100);
    fixture.close(again).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

/// A SETATTR brings the data of a closed file to stable storage before the file system itself does, also if the
/// server refuses the SETATTR.
#[test]
fn a_change_of_attributes_leaves_no_hidden_name() {
    for refused in [false, true] {
        let (fixture, _exported) = on_disk();
        let (ino, file) = fixture.create(b"f");
        fixture.unlink(b"f").unwrap();
        fixture.write(file, 0, vec![1; 128 << 10]);
        fixture.run(async { fixture.core.release(file) });
        assert_eq!(fixture.names().len(), 1);
        if refused {
            fixture.fails(nfs::Setattr::NUMBER, Status::ACCES);
        }
        let mode = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        let setting = fixture.core.setattr(&fixture.user, ino, None, mode);
        assert_eq!(fixture.run(setting).is_err(), refused);
        assert_eq!(fixture.names(), [""; 0]);
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

/// The process that removes an open file is killed while the server renames it.
#[test]
fn a_removal_that_is_cut_off_leaves_no_hidden_name() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let core = &fixture.core;
    let unlink = core.unlink(&fixture.user, ROOT, b"f");
    fixture.run(cut_off(unlink, || fixture.calls::<nfs::Rename>() > 0));
    assert_eq!(fixture.names().len(), 1);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), [""; 0]);
}

/// The process that renames onto an open file is killed while the server gives that its hidden name.
#[test]
fn a_rename_that_is_cut_off_is_done_all_the_same() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let (ino, other) = fixture.create(b"g");
    fixture.close(other).unwrap();
    let core = &fixture.core;
    let rename = core.rename(&fixture.user, (ROOT, b"g"), (ROOT, b"f"));
    fixture.run(cut_off(rename, || fixture.calls::<nfs::Link>() > 0));
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), ["f"]);
    assert_eq!(fixture.find(b"f"), Some(ino));
}

/// The process that truncates a file is killed while the server is silent. Then the kernel lets others write.
#[test]
fn a_truncation_that_is_cut_off_leaves_later_writes_alone() {
    for append in [false, true] {
        let fixture = fixture();
        let (ino, file) = fixture.create(b"f");
        let other = fixture.open(ino);
        fixture.write(file, 0, vec![1; 100]);
        fixture.close(file).unwrap();
        let silent = Rc::new(Cell::new(true));
        let still = Rc::clone(&silent);
        fixture.server.plan(move |proc, _| match proc {
            nfs::Setattr::NUMBER if still.get() => Fault::Status(Status::JUKEBOX),
            _ => Fault::None,
        });
        let empty = SetAttributes {
            size: Some(0),
            ..SetAttributes::default()
        };
        let core = &fixture.core;
        let mode = WriteMode {
            append,
            ..WriteMode::default()
        };
        let data = Bytes::from(vec![2; 50]);
        fixture.run(async {
            let truncate = core.setattr(&fixture.user, ino, None, empty);
            cut_off(truncate, || fixture.calls::<nfs::Setattr>() > 0).await;
            let answers = async {
                for _ in 0..50 {
                    turn().await;
                }
                silent.set(false);
            };
            let (written, ()) = join(core.write(other, 0, data, mode), answers).await;
            assert_eq!(written, Ok(50));
        });
        fixture.close(other).unwrap();
        assert_eq!(&fixture.read_anew(ino)[..], &[2; 50]);
        assert_eq!(
            fixture.told.0.borrow()[..],
            [ino],
            "the kernel has the old size"
        );
    }
}

/// The bytes that each of the open files has read ahead.
fn read_ahead(fixture: &Fixture, files: &[u64]) -> Vec<usize> {
    let bytes = |&file| fixture.core.file(file).unwrap().read_ahead.borrow().bytes();
    files.iter().map(bytes).collect()
}

#[test]
fn what_all_files_have_read_ahead_is_limited_and_given_up_when_nobody_reads() {
    let fixture = fixture();
    let limit = 1 << 20;
    fixture.core.read_memory.replace(ReadMemory::new(limit));
    let files: Vec<u64> = (0..6u8)
        .map(|n| {
            let (ino, file) = fixture.create(&[b'a' + n]);
            fixture.write(file, 0, vec![n; 2 << 20]);
            fixture.close(file).unwrap();
            fixture.open(ino)
        })
        .collect();
    for file in &files {
        for part in 0..8 {
            let at = part * (16 << 10);
            assert_eq!(fixture.read(*file, at, 16 << 10).len(), 16 << 10);
        }
        let sum: usize = read_ahead(&fixture, &files).iter().sum();
        assert!(sum <= limit, "{sum}");
    }
    let kept = read_ahead(&fixture, &files);
    assert!(kept[0] == 0 && kept[5] > 0, "{kept:?}");
    // The first one goes on where it was.
    let more = fixture.read(files[0], 8 * (16 << 10), 16 << 10);
    assert_eq!(&more[..], &[0; 16 << 10][..]);
    assert!(read_ahead(&fixture, &files)[0] > 0);
    let later = Instant::now() + Duration::from_secs(6);
    fixture.core.read_memory.borrow_mut().drop_idle(later);
    assert_eq!(read_ahead(&fixture, &files), [0; 6]);
}

/// If a call finds no memory, data that was read ahead is dropped, and the call is made again.
#[test]
fn a_call_without_memory_makes_files_give_up_what_they_have_read_ahead() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 2 << 20]);
    fixture.close(file).unwrap();
    let file = fixture.open(ino);
    for part in 0..4 {
        fixture.read(file, part * (16 << 10), 16 << 10);
    }
    assert!(read_ahead(&fixture, &[file])[0] > 0);
    let core = &fixture.core;
    let make = |name: &'static [u8]| core.mkdir(&fixture.user, ROOT, name, 0o755);
    let failures = Rc::new(Cell::new(1));
    let left = Rc::clone(&failures);
    fixture.server.plan(move |proc, _| match left.get() {
        1.. if proc == nfs::Mkdir::NUMBER => {
            left.set(left.get() - 1);
            Fault::NoMemory
        }
        _ => Fault::None,
    });
    fixture.run(make(b"d")).unwrap();
    assert_eq!(read_ahead(&fixture, &[file]), [0]);
    // With nothing to give up, it fails.
    failures.set(1);
    let error = fixture.run(make(b"e")).map(|_| ());
    assert_eq!(error, Err(Errno::MSGSIZE));
}

/// A shortage of memory loses no data, however long it lasts; in a soft mount, the program learns of the loss.
#[test]
fn written_data_waits_for_memory_in_a_hard_mount() {
    for (procedure, hard) in [
        (nfs::Write::NUMBER, true),
        (nfs::Commit::NUMBER, true),
        (nfs::Write::NUMBER, false),
    ] {
        let (mut fixture, exported) = on_disk();
        fixture.options().hard = hard;
        let (_, file) = fixture.create(b"f");
        let failures = Rc::new(Cell::new(40));
        let left = Rc::clone(&failures);
        fixture.server.plan(move |proc, _| match left.get() {
            1.. if proc == procedure => {
                left.set(left.get() - 1);
                Fault::NoMemory
            }
            _ => Fault::None,
        });
        // Two WRITEs, so that a COMMIT follows.
        fixture.write(file, 0, vec![1; 128 << 10]);
        let synced = fixture.run(fixture.core.fsync(file));
        let expected = if hard { Ok(()) } else { Err(Errno::MSGSIZE) };
        assert_eq!(synced, expected, "{procedure}");
        if hard {
            assert_eq!(failures.get(), 0, "{procedure}");
            let data = std::fs::read(exported.path().join("f")).unwrap();
            assert_eq!(data.len(), 128 << 10);
            assert!(data.iter().all(|&byte| byte == 1), "{procedure}");
        }
    }
}

/// A READ ahead that finds no memory is given up alone, as it is worth no more than what is there.
#[test]
fn reading_ahead_without_memory_drops_nothing_that_has_arrived() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 2 << 20]);
    fixture.close(file).unwrap();
    let files = [fixture.open(ino), fixture.open(ino)];
    for part in 0..4 {
        fixture.read(files[0], part * (16 << 10), 16 << 10);
    }
    let before = read_ahead(&fixture, &files);
    assert!(before[0] > 0);
    fixture.read(files[1], 0, 16 << 10);
    let reads = Rc::new(Cell::new(0));
    let seen = Rc::clone(&reads);
    fixture.server.plan(move |proc, _| match proc {
        nfs::Read::NUMBER => {
            seen.set(seen.get() + 1);
            match seen.get() {
                1 => Fault::None,
                _ => Fault::NoMemory,
            }
        }
        _ => Fault::None,
    });
    fixture.read(files[1], 16 << 10, 16 << 10);
    assert!(reads.get() > 1, "nothing was read ahead");
    assert_eq!(read_ahead(&fixture, &files)[0], before[0]);
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

/// Regression test: the new name was forgotten, and the kernel, which moves its own, does not look it up.
#[test]
fn a_file_that_is_renamed_and_removed_while_open_stays_also_if_others_change_the_directory() {
    let [one, two] = clients();
    let file = one.open_file(b"job.tmp");
    let (_, other) = two.create(b"foreign");
    two.close(other).unwrap();
    let version = || one.core.node(ROOT).unwrap().names_version.get();
    let before = version();
    // The reply shows the change.
    let (_, own) = one.create(b"own");
    one.close(own).unwrap();
    assert!(version() > before);
    one.rename(b"job.tmp", b"job").unwrap();
    one.removes_while_open(b"job", file);
    assert_eq!(one.names(), ["foreign", "own"]);
}

/// Regression test: both names were forgotten.
#[test]
fn a_file_that_could_not_be_renamed_stays_if_it_is_removed_while_open() {
    for renamed_then in [false, true] {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        fixture.fails(nfs::Rename::NUMBER, Status::ACCES);
        assert_eq!(fixture.rename(b"f", b"g"), Err(Errno::ACCESS));
        fixture.server.plan(|_, _| Fault::None);
        if renamed_then {
            fixture.rename(b"f", b"g").unwrap();
        }
        let name: &[u8] = if renamed_then { b"g" } else { b"f" };
        fixture.removes_while_open(name, file);
    }
}

/// Nor does an error of another call with its name.
#[test]
fn an_open_file_stays_if_it_is_removed_after_a_call_with_its_name_has_failed() {
    let (core, user) = (
        |it: &Fixture| Rc::clone(&it.core),
        |it: &Fixture| Rc::clone(&it.user),
    );
    let exist = Err(Errno::EXIST);
    let cases: [&dyn Fn(&Fixture); 4] = [
        &|it| {
            let made = it.run(core(it).mkdir(&user(it), ROOT, b"f", 0o755));
            assert_eq!(made.map(|_| ()), exist);
        },
        &|it| {
            let (ino, other) = it.create(b"other");
            it.close(other).unwrap();
            let linked = it.run(core(it).link(&user(it), ino, ROOT, b"f"));
            assert_eq!(linked.map(|_| ()), exist);
        },
        &|it| {
            let (_, other) = it.create(b"other");
            it.close(other).unwrap();
            it.fails(nfs::Rename::NUMBER, Status::ACCES);
            assert_eq!(it.rename(b"other", b"f"), Err(Errno::ACCESS));
        },
        &|it| {
            let ino = it.find(b"f").unwrap();
            it.run(core(it).link(&user(it), ino, ROOT, b"g")).unwrap();
            it.fails(nfs::Remove::NUMBER, Status::ACCES);
            assert_eq!(it.unlink(b"f"), Err(Errno::ACCESS));
            it.server.plan(|_, _| Fault::None);
            it.unlink(b"g").unwrap();
        },
    ];
    for case in cases {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        case(&fixture);
        fixture.server.plan(|_, _| Fault::None);
        fixture.removes_while_open(b"f", file);
    }
}

/// The kernel removes a name that it has for an open file, but another client has put another file there.
#[test]
fn a_file_that_has_taken_the_name_of_an_open_one_is_not_hidden_for_it() {
    let [one, two] = clients();
    let file = one.open_file(b"f");
    two.find(b"f").unwrap();
    two.rename(b"f", b"moved").unwrap();
    let (_, other) = two.create(b"f");
    two.close(other).unwrap();
    let (_, own) = one.create(b"own");
    one.close(own).unwrap();
    one.rename(b"f", b"g").unwrap();
    // It is the other file that has been renamed.
    let root = one.core.node(ROOT).unwrap();
    assert_eq!(root.known_name(b"g"), None);
    one.unlink(b"g").unwrap();
    assert_eq!(one.names(), ["moved", "own"]);
    // The open one gets a hidden name when its own name is removed.
    one.find(b"moved").unwrap();
    one.removes_while_open(b"moved", file);
}

/// Nor can the file have its name back. Without a name, its data would be lost.
#[test]
fn an_open_file_that_is_not_replaced_stays_even_under_its_hidden_name() {
    for (procedure, calls) in [(nfs::Rename::NUMBER, 1), (nfs::Lookup::NUMBER, 0)] {
        let fixture = fixture();
        let file = fixture.open_file(b"f");
        let (_, other) = fixture.create(b"g");
        fixture.close(other).unwrap();
        fixture.server.plan(move |proc, made| match proc {
            nfs::Link::NUMBER => Fault::Status(Status::NOTSUPP),
            nfs::Rename::NUMBER if made == 1 => Fault::Status(Status::ACCES),
            _ if proc == procedure && made >= calls => Fault::Status(Status::ACCES),
            _ => Fault::None,
        });
        assert_eq!(fixture.rename(b"g", b"f"), Err(Errno::ACCESS));
        fixture.close(file).unwrap();
        let mut names = fixture.names();
        names.sort_unstable();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with(b".nfs"), "{names:?}");
        assert_eq!(names[1], "g");
        assert_eq!(fixture.core.node(ROOT).unwrap().hides.get(), 0);
    }
}

/// The server has no hard links, so the file that is to be replaced is renamed before.
#[test]
fn an_open_file_keeps_its_name_if_it_cannot_be_replaced() {
    let fixture = fixture();
    let file = fixture.open_file(b"f");
    let (_, other) = fixture.create(b"g");
    fixture.close(other).unwrap();
    fixture.server.plan(|proc, made| match proc {
        nfs::Link::NUMBER => Fault::Status(Status::NOTSUPP),
        nfs::Rename::NUMBER if made == 1 => Fault::Status(Status::ACCES),
        _ => Fault::None,
    });
    assert_eq!(fixture.rename(b"g", b"f"), Err(Errno::ACCESS));
    fixture.close(file).unwrap();
    let mut names = fixture.names();
    names.sort_unstable();
    assert_eq!(names, ["f", "g"]);
}

/// The process that renames an open file onto another one is killed while the server does it.
#[test]
fn a_file_whose_renaming_is_cut_off_stays_if_it_is_removed_while_open() {
    let fixture = fixture();
    let (_, old) = fixture.create(b"g");
    fixture.close(old).unwrap();
    let file = fixture.open_file(b"f");
    fixture.server.plan(|proc, made| match proc {
        nfs::Rename::NUMBER if made == 0 => Fault::Status(Status::JUKEBOX),
        _ => Fault::None,
    });
    let core = &fixture.core;
    let rename = core.rename(&fixture.user, (ROOT, b"f"), (ROOT, b"g"));
    fixture.run(cut_off(rename, || fixture.calls::<nfs::Rename>() > 0));
    fixture.removes_while_open(b"g", file);
}

/// Another name keeps the file, so it need not be hidden.
#[test]
fn a_file_with_another_name_is_simply_removed_while_open() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture
        .run(fixture.core.link(&fixture.user, ino, ROOT, b"g"))
        .unwrap();
    fixture
        .run(fixture.core.unlink(&fixture.user, ROOT, b"f"))
        .unwrap();
    assert_eq!(fixture.names(), ["g"]);
    fixture.close(file).unwrap();
    assert_eq!(fixture.names(), ["g"]);
}

/// Regression test: while this client modified the file, attributes from a server whose clock had not moved were
/// not stored, and the number of links in the cache was that from before the other name was removed.
#[test]
fn an_open_file_whose_last_name_is_removed_during_a_write_stays_until_it_is_closed() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let one = client(&runtime, &server, &mount, 1);
    let two = client(&runtime, &server, &mount, 2);
    let file = one.open_file(b"f");
    let ino = one.find(b"f").unwrap();
    one.run(one.core.link(&one.user, ino, ROOT, b"g")).unwrap();
    one.unlink(b"g").unwrap();
    // The server has executed the write, and its reply has not come.
    let other = two.open(two.find(b"f").unwrap());
    two.write(other, 100, vec![6; 100]);
    two.close(other).unwrap();
    let node = one.core.node(ino).unwrap();
    let change = one.core.change(&node);
    one.unlink(b"f").unwrap();
    drop(change);
    assert_eq!(one.read(file, 0, 300).len(), 200);
    one.close(file).unwrap();
    assert_eq!(one.names(), [""; 0]);
}

#[test]
fn a_file_that_is_replaced_while_open_stays_until_it_is_closed() {
    let fixture = fixture();
    let (_, old) = fixture.create(b"old");
    fixture.write(old, 0, vec![1; 10]);
    let (_, new) = fixture.create(b"new");
    fixture.write(new, 0, vec![2; 20]);
    fixture.close(new).unwrap();
    let core = &fixture.core;
    fixture
        .run(core.rename(&fixture.user, (ROOT, b"new"), (ROOT, b"old")))
        .unwrap();
    assert_eq!(&fixture.read(old, 0, 50)[..], &[1; 10]);
    fixture.close(old).unwrap();
    assert_eq!(fixture.names(), ["old"]);
    let ino = fixture.find(b"old").unwrap();
    let file = fixture.open(ino);
    assert_eq!(&fixture.read(file, 0, 50)[..], &[2; 20]);
    fixture.close(file).unwrap();
}

#[test]
fn what_is_remembered_costs_no_call_and_an_open_costs_one() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    fixture.find(b"f");
    fixture.find(b"none");
    let file = fixture.open(ino);
    fixture.close(file).unwrap();
    let all = || {
        [
            fixture.calls::<nfs::Lookup>(),
            fixture.calls::<nfs::Getattr>(),
            fixture.calls::<nfs::Access>(),
        ]
    };
    let before = all();
    for _ in 0..10 {
        assert_eq!(fixture.find(b"f"), Some(ino));
        assert_eq!(fixture.find(b"none"), None);
        fixture
            .run(fixture.core.getattr(&fixture.user, ino))
            .unwrap();
    }
    assert_eq!(all(), before);
    let file = fixture.open(ino);
    fixture.close(file).unwrap();
    let [lookups, getattrs, accesses] = before;
    assert_eq!(all(), [lookups, getattrs + 1, accesses]);
}

/// Close-to-open consistency between two clients.
#[test]
fn an_open_shows_what_another_client_has_written_and_closed() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let seen = two.find(b"f").unwrap();
    let reader = two.open(seen);
    assert_eq!(two.read(reader, 0, 1000).len(), 100);
    two.close(reader).unwrap();

    let file = one.open(ino);
    one.write(file, 100, vec![2; 100]);
    one.close(file).unwrap();
    let opening = two.core.open(&two.user, 1, seen, WRITE);
    let opened = two.run(opening).unwrap();
    assert!(!opened.keep, "the kernel's pages are out of date");
    assert_eq!(two.told.0.borrow()[..], [seen]);
    assert_eq!(two.read(opened.file, 0, 1000).len(), 200);
    two.close(opened.file).unwrap();
    // Nobody has changed it since, this client's own writes do not count.
    let opening = two.core.open(&two.user, 1, seen, WRITE);
    let opened = two.run(opening).unwrap();
    assert!(opened.keep);
    two.write(opened.file, 0, vec![3; 300]);
    two.close(opened.file).unwrap();
    let opening = two.core.open(&two.user, 1, seen, WRITE);
    assert!(two.run(opening).unwrap().keep);
}

/// The kernel forgets pages only when its reads of them are answered.
#[test]
fn nobody_is_told_of_a_change_before_the_kernel_has_forgotten_the_old_data() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let file = one.open(ino);
    let (core, user) = (&one.core, &one.user);
    let change = |n: u8| {
        let other = two.open(two.find(b"f").unwrap());
        two.write(other, 0, vec![n + 2; 100]);
        two.close(other).unwrap();
        core.node(ino).unwrap().attributes.borrow_mut().expire();
    };
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    for n in 0..6u8 {
        change(n);
        one.told.0.borrow_mut().clear();
        one.told.1.borrow_mut().insert(ino);
        one.run(async {
            let mut request: LocalBoxFuture<'_, bool> = match n {
                0 => Box::pin(core.getattr(user, ino).map(|it| it.is_ok())),
                1 => Box::pin(core.lookup(user, 1, ROOT, b"f").map(|it| it.is_ok())),
                2 => Box::pin(core.open(user, 2, ino, WRITE).map(|it| it.is_ok())),
                3 => Box::pin(core.link(user, ino, ROOT, b"g").map(|it| it.is_ok())),
                4 => {
                    let setting = core.setattr(user, ino, None, mode.clone());
                    Box::pin(setting.map(|it| it.is_ok()))
                }
                _ => {
                    let creating = core.create(user, 3, ROOT, b"f", 0o644, WRITE);
                    Box::pin(creating.map(|it| it.is_ok()))
                }
            };
            for _ in 0..50 {
                assert!(poll!(&mut request).is_pending(), "{n}");
                turn().await;
            }
            assert_eq!(one.told.0.borrow()[..], [ino]);
            let data = core.read(file, 0, 100, false).await.unwrap();
            assert_eq!(&data[..], &[n + 2; 100]);
            one.told.1.borrow_mut().clear();
            core.invalidated.wake();
            assert!(request.await);
        });
    }
    // A listing does not wait, and tells the kernel nothing of the file.
    let trust = || {
        let listed = one.list_plus(ROOT);
        let f = listed.into_iter().find(|(name, _)| name == "f");
        f.expect("it exists").1
    };
    change(10);
    one.told.1.borrow_mut().insert(ino);
    assert_eq!(trust(), None);
    one.told.1.borrow_mut().clear();
    assert!(trust().is_some());
    // The kernel forgets pages only after the reply to a SETATTR of the size, and asks again.
    let same_size = SetAttributes {
        size: Some(100),
        ..SetAttributes::default()
    };
    let set = || one.run(core.setattr(user, ino, None, same_size.clone()));
    change(11);
    one.told.1.borrow_mut().insert(ino);
    assert_eq!(set().unwrap().trust, Duration::ZERO);
    one.told.1.borrow_mut().clear();
    assert!(!set().unwrap().trust.is_zero());
}

/// The reply to an open has no attributes: without a request, the kernel tells a program those that it has.
#[test]
fn an_open_ends_only_when_the_kernel_has_forgotten_old_attributes() {
    let [one, two] = clients();
    let (f, file) = one.create(b"f");
    let (core, user) = (&one.core, &one.user);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let setting = two
        .core
        .setattr(&two.user, two.find(b"f").unwrap(), None, mode);
    two.run(setting).unwrap();
    let (_, other) = two.create(b"g");
    two.close(other).unwrap();
    for ino in [f, ROOT] {
        one.told.3.borrow_mut().insert(ino);
        one.run(async {
            let mut request: LocalBoxFuture<'_, bool> = match ino {
                ROOT => Box::pin(core.opendir(user, 1, ROOT).map(|it| it.is_ok())),
                _ => Box::pin(core.open(user, 1, f, WRITE).map(|it| it.is_ok())),
            };
            for _ in 0..50 {
                assert!(poll!(&mut request).is_pending(), "{ino}");
                turn().await;
            }
            assert_eq!(one.told.2.borrow().last(), Some(&ino));
            // The kernel may wait for these, and forget nothing before.
            assert!(core.read(file, 0, 100, false).await.is_ok());
            let written = core.write(file, 0, Bytes::from(vec![1; 100]), WriteMode::default());
            assert_eq!(written.await, Ok(100));
            one.told.3.borrow_mut().clear();
            core.invalidated.wake();
            assert!(request.await);
        });
    }
    one.close(file).unwrap();
}

/// A program that has found a new name in a directory, and asks for the directory's attributes, gets new ones.
#[test]
fn a_listing_ends_only_when_the_kernel_has_forgotten_old_attributes_of_the_directory() {
    let (runtime, server, mount) = server();
    let one = client(&runtime, &server, &mount, 1);
    let two = client(&runtime, &server, &mount, 2);
    let core = &one.core;
    let opening = core.opendir(&one.user, 1, ROOT);
    let directory = one.run(opening).unwrap().number;
    let (_, other) = two.create(b"f");
    two.close(other).unwrap();
    one.told.3.borrow_mut().insert(ROOT);
    one.run(async {
        let mut listing = Box::pin(core.readdir(directory, 0, false, |_| true));
        for _ in 0..50 {
            assert!(poll!(&mut listing).is_pending());
            turn().await;
        }
        assert_eq!(one.told.2.borrow().last(), Some(&ROOT));
        one.told.3.borrow_mut().clear();
        core.invalidated.wake();
        listing.await.unwrap();
    });
    core.releasedir(directory);
}

/// The server does not answer a READ of one file, whose page the kernel therefore cannot forget.
#[test]
fn old_data_of_one_file_holds_up_no_request_for_another() {
    let [one, two] = clients();
    let inodes = [b"f", b"g"].map(|name| {
        let (ino, file) = one.create(name);
        one.close(file).unwrap();
        ino
    });
    let (core, user) = (&one.core, &one.user);
    for (ino, name) in inodes.into_iter().zip([b"f", b"g"]) {
        let other = two.open(two.find(name).unwrap());
        two.write(other, 0, vec![2; 100]);
        two.close(other).unwrap();
        core.node(ino).unwrap().attributes.borrow_mut().expire();
    }
    let [f, g] = inodes;
    one.told.1.borrow_mut().insert(f);
    one.run(async {
        let mut stuck = Box::pin(core.getattr(user, f));
        while one.told.0.borrow().is_empty() {
            assert!(poll!(&mut stuck).is_pending());
            turn().await;
        }
        let mut other = Box::pin(core.getattr(user, g));
        let mut size = None;
        for _ in 0..50 {
            if let Poll::Ready(stat) = poll!(&mut other) {
                size = Some(stat.unwrap().attributes.size);
                break;
            }
            turn().await;
        }
        assert_eq!(size, Some(100), "it waits for the other file");
        assert_eq!(one.told.0.borrow()[..], [f, g]);
        assert!(poll!(&mut stuck).is_pending());
        one.told.1.borrow_mut().clear();
        core.invalidated.wake();
        assert!(stuck.await.is_ok());
    });
}

/// The kernel takes the file for a new one, and does not truncate it.
#[test]
fn a_file_that_another_client_has_created_meanwhile_is_emptied_with_o_trunc() {
    let [one, two] = clients();
    assert_eq!(one.find(b"f"), None);
    let (ino, file) = two.create(b"f");
    two.write(file, 0, vec![b'x'; 100]);
    two.close(file).unwrap();
    let truncate = OpenMode {
        truncate: true,
        ..WRITE
    };
    let create = |mode| {
        let creating = one.core.create(&one.user, 1, ROOT, b"f", 0o644, mode);
        one.run(creating)
    };
    // Without O_TRUNC it stays as it is.
    let (found, opened) = create(WRITE).unwrap();
    assert_eq!(found.stat.unwrap().attributes.size, 100);
    assert_eq!(one.read(opened.file, 0, 200).len(), 100);
    one.close(opened.file).unwrap();

    // If it cannot be truncated, it is not opened.
    let setattr = Fault::Status(Status::NOSPC);
    let fails = move |proc, _| match proc == nfs::Setattr::NUMBER {
        true => setattr,
        false => Fault::None,
    };
    one.server.plan(fails);
    assert_eq!(create(truncate).map(|_| ()), Err(Errno::NOSPC));
    assert!(one.core.files.borrow().is_empty());
    one.server.plan(|_, _| Fault::None);

    let (found, opened) = create(truncate).unwrap();
    assert_eq!(found.stat.unwrap().attributes.size, 0);
    assert!(!opened.keep, "the kernel's pages are of what was cut");
    one.write(opened.file, 0, b"hi\n".to_vec());
    assert_eq!(&one.read(opened.file, 0, 200)[..], b"hi\n");
    one.close(opened.file).unwrap();
    assert_eq!(&two.read_anew(ino)[..], b"hi\n");
}

/// The kernel appends at the size that it knew before another client made the file longer.
#[test]
fn an_append_goes_behind_what_another_client_has_appended() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.append(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let seen = two.find(b"f").unwrap();
    two.close(two.open(seen)).unwrap();
    assert_eq!(one.told.0.borrow()[..], [0; 0]);

    let file = one.open(ino);
    one.append(file, 100, vec![2; 50]);
    one.close(file).unwrap();
    let file = two.open(seen);
    two.told.0.borrow_mut().clear();
    two.append(file, 100, vec![3; 30]);
    assert_eq!(two.told.0.borrow()[..], [seen], "pages have it elsewhere");
    // Neither of these is sent before the other: the first one is the end of the file.
    two.append(file, 180, vec![4; 20]);
    assert_eq!(two.told.0.borrow()[..], [seen]);
    two.close(file).unwrap();
    let expected = [&[1; 100][..], &[2; 50], &[3; 30], &[4; 20]].concat();
    assert_eq!(&two.read_anew(seen)[..], &expected[..]);
    assert_eq!(&one.read_anew(ino)[..], &expected[..]);
}

/// No kernel knows of what was written elsewhere while the file is open.
#[test]
fn an_append_asks_for_the_size_once_the_attributes_are_too_old() {
    let [one, mut two] = clients();
    two.options().attributes = AttributeTimes::NONE;
    let (ino, file) = one.create(b"f");
    let seen = two.find(b"f").unwrap();
    let other = two.open(seen);
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    two.append(other, 0, vec![2; 10]);
    two.close(other).unwrap();
    let expected = [&[1; 100][..], &[2; 10]].concat();
    assert_eq!(&one.read_anew(ino)[..], &expected[..]);
}

/// The kernel looks a name up before each open: what is remembered of the name does not stand in for
/// the attributes of the file.
#[test]
fn an_open_after_a_lookup_shows_what_another_client_has_written() {
    let (runtime, server, mount) = server();
    let one = client(&runtime, &server, &mount, 1);
    let mut two = client(&runtime, &server, &mount, 2);
    // Names expire before attributes.
    let times = &mut two.options().attributes;
    (times.directory_min, times.directory_max) = (Duration::ZERO, Duration::ZERO);
    let three = client(&runtime, &server, &mount, 3);
    // And the kernel keeps no names of this directory.
    let making = one.core.mkdir(&one.user, ROOT, b"d", 0o700);
    let d = one.run(making).unwrap().stat.unwrap().ino;
    let making = one.core.create(&one.user, 1, d, b"f", 0o644, WRITE);
    let (found, opened) = one.run(making).unwrap();
    let ino = found.stat.unwrap().ino;
    one.write(opened.file, 0, vec![1; 100]);
    one.close(opened.file).unwrap();

    for reader in [&two, &three] {
        let look_and_open = || {
            let directory = reader.find(b"d").unwrap();
            let looking = reader.core.lookup(&reader.user, 1, directory, b"f");
            let seen = reader.run(looking).unwrap().stat.unwrap().ino;
            let opening = reader.core.open(&reader.user, 1, seen, WRITE);
            let opened = reader.run(opening).unwrap();
            reader.close(opened.file).unwrap();
            opened.keep
        };
        look_and_open();
        assert!(look_and_open(), "nothing has changed");
        let file = one.open(ino);
        one.write(file, 0, vec![2; 100]);
        one.close(file).unwrap();
        let lookups = reader.calls::<nfs::Lookup>();
        assert!(!look_and_open(), "the kernel's pages are out of date");
        assert_eq!(reader.calls::<nfs::Lookup>(), lookups, "from memory");
    }
}

#[test]
fn a_name_that_another_client_has_replaced_is_looked_up_again() {
    let [one, two] = clients();
    let (_, file) = one.create(b"f");
    one.close(file).unwrap();
    let old = two.find(b"f").unwrap();
    one.run(one.core.unlink(&one.user, ROOT, b"f")).unwrap();
    let (_, file) = one.create(b"f");
    one.close(file).unwrap();
    let opening = two.core.open(&two.user, 1, old, WRITE);
    assert_eq!(two.run(opening), Err(Errno::STALE));
    // The kernel looks up the name again after that.
    let new = two.find(b"f").unwrap();
    assert_ne!(new, old);
    two.close(two.open(new)).unwrap();
}

/// The kernel walks along a name that it knows without a check of permissions.
#[test]
fn a_listing_of_a_private_directory_lets_the_kernel_keep_no_name() {
    let mut fixture = fixture();
    let times = &mut fixture.options().attributes;
    (times.file_min, times.file_max) = (Duration::from_secs(500), Duration::from_secs(500));
    let set_mode = |mode| SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    let core = &fixture.core;
    let made = fixture.run(core.mkdir(&fixture.user, ROOT, b"d", 0o700));
    let private = made.unwrap().stat.unwrap().ino;
    let making = core.create(&fixture.user, 1, private, b"f", 0o644, WRITE);
    let (_, opened) = fixture.run(making).unwrap();
    fixture.close(opened.file).unwrap();
    let f = Bytes::from_static(b"f");
    assert_eq!(fixture.list_plus(private), [(f.clone(), None)]);
    // Everybody may search it now. The name is used no longer than the directory's attributes are.
    let setting = core.setattr(&fixture.user, private, None, set_mode(0o711));
    fixture.run(setting).unwrap();
    let [(name, Some(trust))] = &fixture.list_plus(private)[..] else {
        panic!("the kernel may know it");
    };
    assert_eq!(*name, f);
    assert!(*trust <= fixture.core.options.attributes.directory_max);
    fixture.options().lookup_cache = LookupCache::None;
    assert_eq!(fixture.list_plus(private), [(f, None)]);
}

/// A server whose clock stands still says nothing of the order of two calls.
#[test]
fn a_size_is_never_smaller_than_what_was_written() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let fixture = client(&runtime, &server, &mount, 1);
    let (core, user) = (&fixture.core, &fixture.user);
    for round in 0..100u32 {
        let name = format!("f{round}").into_bytes();
        let (ino, file) = fixture.create(&name);
        let write = |at: u64| {
            let data = Bytes::from(vec![1; 64 << 10]);
            core.write(file, at, data, WriteMode::default())
        };
        // Two WRITEs are in flight at once, and a third one during the call that asks.
        let asked = fixture.run(async {
            write(0).await.unwrap();
            write(64 << 10).await.unwrap();
            core.flush(&core.node(ino).unwrap()).await;
            let (asked, found, written) = join3(
                core.getattr(user, ino),
                core.lookup(user, 1, ROOT, &name),
                write(0),
            )
            .await;
            written.unwrap();
            let found = found.unwrap().stat.unwrap();
            [asked.unwrap(), found].map(|stat| stat.attributes.size)
        });
        assert_eq!(asked, [128 << 10; 2], "round {round}");
        fixture.append(file, 128 << 10, vec![2; 10]);
        fixture.close(file).unwrap();
        assert_eq!(fixture.read_anew(ino).len(), (128 << 10) + 10);
        fixture.run(core.unlink(user, ROOT, &name)).unwrap();
    }
}

/// Data waits for the COMMIT while the size is asked for.
#[test]
fn a_size_counts_data_that_is_being_committed() {
    let (fixture, _exported) = on_disk();
    let (core, user) = (&fixture.core, &fixture.user);
    for round in 0..100u32 {
        let name = format!("f{round}").into_bytes();
        let (ino, file) = fixture.create(&name);
        fixture.write(file, 0, vec![1; 64 << 10]);
        fixture.write(file, 64 << 10, vec![2; 64 << 10]);
        let flushing = async { core.flush(&core.node(ino).unwrap()).await };
        fixture.run(flushing);
        // As if of the replies to the two WRITEs only the first one had been stored.
        let node = core.node(ino).unwrap();
        let early = Attributes {
            size: 64 << 10,
            ..node.attributes.borrow().get().clone()
        };
        core.learn(&node, early, core.begin());
        let stat = core.stat(&node);
        assert_eq!(stat.attributes.size, 128 << 10, "round {round}");
        let both = join(core.fsync(file), core.getattr(user, ino));
        let (synced, stat) = fixture.run(both);
        synced.unwrap();
        assert_eq!(stat.unwrap().attributes.size, 128 << 10, "round {round}");
        fixture.close(file).unwrap();
    }
}

#[test]
fn a_new_size_cuts_what_was_written_and_not_sent() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1000]);
    assert_eq!(fixture.truncate(ino, file, 10), 10);
    fixture.write(file, 20, vec![2; 5]);
    let expected = [&[1; 10][..], &[0; 10], &[2; 5]].concat();
    assert_eq!(&fixture.read(file, 0, 100)[..], &expected[..]);
    fixture.close(file).unwrap();
    assert_eq!(&fixture.read_anew(ino)[..], &expected[..]);
}

#[test]
fn too_much_unwritten_data_makes_writers_wait() {
    let mut fixture = fixture();
    fixture.options().unwritten = 256 << 10;
    fixture.options().attributes = AttributeTimes::NONE;
    let (ino, file) = fixture.create(b"f");
    for index in 0..64 {
        fixture.write(file, index * (64 << 10), vec![index as u8; 64 << 10]);
        let kept = fixture.core.unwritten.get();
        assert!(kept <= (256 << 10) + (64 << 10), "{kept}");
    }
    fixture.close(file).unwrap();
    let data = fixture.read_anew(ino);
    assert_eq!(data.len(), 64 * (64 << 10));
    assert!(
        data.chunks(64 << 10)
            .enumerate()
            .all(|(n, part)| part[5] == n as u8)
    );
}

/// A piece of one byte has a block of the pool, like a longer one.
#[test]
fn short_writes_count_for_the_memory_that_they_take() {
    let mut fixture = fixture();
    fixture.options().unwritten = 256 << 10;
    let (ino, file) = fixture.create(b"f");
    for at in 0..1000 {
        fixture.write(file, at, vec![at as u8]);
        let kept = fixture.core.unwritten.get();
        assert!(kept <= (256 << 10) + 4096, "{kept}");
    }
    assert!(fixture.calls::<nfs::Write>() > 0);
    fixture.close(file).unwrap();
    let expected: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    assert_eq!(&fixture.read_anew(ino)[..], &expected[..]);
}

/// Otherwise a program that never closes its file, such as a logger, would write for ever.
#[test]
fn a_writer_learns_that_the_server_is_full() {
    let fixture = fixture();
    let (_, file) = fixture.create(b"f");
    let write = |at: u64, mapped| {
        let mode = WriteMode {
            mapped,
            ..WriteMode::default()
        };
        let data = Bytes::from(vec![1; 64 << 10]);
        fixture.run(fixture.core.write(file, at, data, mode))
    };
    for (status, error) in [
        (Status::NOSPC, Errno::NOSPC),
        (Status::DQUOT, Errno::DQUOT),
        (Status::FBIG, Errno::FBIG),
    ] {
        fixture.fails(nfs::Write::NUMBER, status);
        // As much as is sent at once. The reply has come when the file has been flushed.
        write(0, false).unwrap();
        let node = fixture.core.file(file).unwrap();
        fixture.run(fixture.core.flush(&node.node));
        // Nobody would hear it from a write of mapped memory.
        assert_eq!(write(64 << 10, true), Ok(64 << 10));
        fixture.run(fixture.core.flush(&node.node));
        assert_eq!(write(64 << 10, false), Err(error));
        fixture.server.plan(|_, _| Fault::None);
        assert_eq!(write(64 << 10, false), Ok(64 << 10));
    }
    // Other errors wait for fsync or close.
    fixture.fails(nfs::Write::NUMBER, Status::IO);
    write(0, false).unwrap();
    let node = fixture.core.file(file).unwrap();
    fixture.run(fixture.core.flush(&node.node));
    assert_eq!(write(0, false), Ok(64 << 10));
    assert_eq!(fixture.close(file), Err(Errno::IO));
}

/// Regression test: of two threads that write with one open file, the second one got the error of the first
/// one's write, which succeeded.
#[test]
fn the_error_of_a_synchronous_write_is_told_to_that_write() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    let fails = |proc, made| match proc == nfs::Write::NUMBER && made == 0 {
        true => Fault::Status(Status::NOSPC),
        false => Fault::None,
    };
    fixture.server.plan(fails);
    let mode = WriteMode {
        through: true,
        ..WriteMode::default()
    };
    let core = &fixture.core;
    let write = |at| core.write(file, at, Bytes::from(vec![1; 4096]), mode);
    let node = core.node(ino).unwrap();
    fixture.run(async {
        let mut first = Box::pin(write(0));
        assert!(poll!(&mut first).is_pending());
        while node.write_error.get().serial == 0 {
            turn().await;
        }
        assert_eq!(write(4096).await, Ok(4096));
        assert_eq!(first.await, Err(Errno::NOSPC));
    });
    assert_eq!(fixture.close(file), Ok(()), "told twice");
}

/// The kernel truncates a file to the size that it believes after a write with O_DIRECT behind that has
/// failed.
#[test]
fn a_direct_write_that_fails_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    let write = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    assert_eq!(write(100), Err(Errno::NOSPC));
    assert_eq!(truncate(100), 1000, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 1000);
    // A program's own is obeyed, also after a failure of which the kernel made nothing.
    assert_eq!(truncate(1000), 1000);
    assert_eq!(write(0), Err(Errno::NOSPC));
    assert_eq!(truncate(50), 50);
    assert_eq!(one.read_anew(ino).len(), 50);
    two.server.plan(|_, _| Fault::None);
    assert_eq!(write(50), Ok(4096));
    assert_eq!(truncate(4146), 4146);
    assert_eq!(truncate(10), 10);
    assert_eq!(one.read_anew(ino).len(), 10);
}

/// A listing brings the new size here, but not to the kernel, which truncates the file to the old one.
#[test]
fn a_size_that_the_kernel_is_not_told_does_not_count_for_a_direct_write_that_fails() {
    let (runtime, server, mount) = server();
    let one = client(&runtime, &server, &mount, 1);
    let (ino, file) = one.create(b"f");
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let private = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let setting = one.core.setattr(&one.user, ROOT, None, private);
    one.run(setting).unwrap();
    let two = client(&runtime, &server, &mount, 2);
    let seen = two.find(b"f").unwrap();
    let direct = two.open(seen);
    let file = one.open(ino);
    one.write(file, 100, vec![1; 900]);
    one.close(file).unwrap();

    assert_eq!(two.list_plus(ROOT), [(Bytes::from("f"), None)]);
    let node = two.core.node(seen).unwrap();
    assert_eq!(node.attributes.borrow().get().size, 1000);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(two.write_direct(direct, 100, 4096), Err(Errno::NOSPC));
    assert_eq!(two.truncate(seen, direct, 100), 1000);
    assert_eq!(one.read_anew(ino).len(), 1000);
}

/// The kernel sends the parts of a long write at once, and takes all of it for failed if one fails.
#[test]
fn a_direct_write_that_fails_in_part_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let (sent, other_fails) = (two.calls::<nfs::Write>(), Rc::new(Cell::new(false)));
    let fails = Rc::clone(&other_fails);
    two.server.plan(move |proc, made| match proc {
        nfs::Write::NUMBER if made > sent => Fault::Status(match fails.get() {
            true => Status::NOSPC,
            false => Status::JUKEBOX,
        }),
        _ => Fault::None,
    });
    let mode = WriteMode {
        through: true,
        direct: true,
        ..WriteMode::default()
    };
    let part = |at| {
        let data = Bytes::from(vec![2; 4096]);
        Box::pin(two.core.write(direct, at, data, mode))
    };
    two.run(async {
        let (first, other) = select(part(100), part(4196)).await.factor_first();
        assert_eq!(first, Ok(4096));
        other_fails.set(true);
        assert_eq!(other.await, Err(Errno::NOSPC));
    });
    assert!(two.truncate(seen, direct, 100) > 1000);
    assert!(one.read_anew(ino).len() > 1000);
}

/// The first part has failed before the mount handles the second one.
#[test]
fn a_direct_write_whose_first_part_fails_early_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(100), Err(Errno::NOSPC));
    two.server.plan(|_, _| Fault::None);
    assert_eq!(part(4196), Ok(4096));
    assert!(truncate(100) > 1000, "the kernel's");
    assert!(one.read_anew(ino).len() > 1000);
    // A later write is one of its own, also where that one has ended.
    assert_eq!(part(8292), Ok(4096));
    assert_eq!(truncate(10), 10);
    assert_eq!(one.read_anew(ino).len(), 10);
}

/// The first part has succeeded before the mount handles the second one.
#[test]
fn a_direct_write_whose_last_part_fails_late_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at| two.write_direct(direct, at, 4096);
    let truncate = |size| two.truncate(seen, direct, size);
    assert_eq!(part(100), Ok(4096));
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(4196), Err(Errno::NOSPC));
    assert_eq!(truncate(100), 4196, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 4196);
    // A write that has ended comes before one of two parts.
    two.server.plan(|_, _| Fault::None);
    assert_eq!([part(4196), part(8292)], [Ok(4096); 2]);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(12388), Err(Errno::NOSPC));
    assert_eq!(truncate(8292), 12388, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 12388);
    // A program's own is obeyed.
    assert_eq!(truncate(8292), 8292);
    assert_eq!(one.read_anew(ino).len(), 8292);
}

/// The part that has failed before the mount handles the second one is not beyond the end of the file; the
/// write is.
#[test]
fn a_direct_write_that_fails_before_the_end_takes_nothing_from_other_clients() {
    let [one, two] = clients();
    let (ino, seen, direct) = one.appends_to_what_is_open_at(&two);

    let part = |at, len| two.write_direct(direct, at, len);
    let truncate = |size| two.truncate(seen, direct, size);
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(0, 50), Err(Errno::NOSPC));
    two.server.plan(|_, _| Fault::None);
    assert_eq!(part(50, 4096), Ok(4096));
    assert_eq!(truncate(100), 4146, "the kernel's");
    assert_eq!(one.read_anew(ino).len(), 4146);
    // The kernel makes nothing of a failure of a whole write there.
    let file = one.open(ino);
    one.write(file, 4146, vec![1; 854]);
    one.close(file).unwrap();
    two.fails(nfs::Write::NUMBER, Status::NOSPC);
    assert_eq!(part(0, 50), Err(Errno::NOSPC));
    assert_eq!(truncate(4146), 4146);
    assert_eq!(one.read_anew(ino).len(), 4146);
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

/// A LINK brings attributes, which may have come from another client's change.
#[test]
fn a_link_does_not_hide_what_another_client_has_written() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let reader = one.open(ino);
    assert_eq!(&one.read(reader, 0, 100)[..], &[1; 100][..]);
    one.close(reader).unwrap();

    let file = two.open(two.find(b"f").unwrap());
    two.write(file, 0, vec![2; 100]);
    two.close(file).unwrap();
    one.run(one.core.link(&one.user, ino, ROOT, b"g")).unwrap();
    assert_eq!(one.told.0.borrow()[..], [ino]);
    let mode = OpenMode {
        read: true,
        ..WRITE
    };
    let opened = one.run(one.core.open(&one.user, 1, ino, mode)).unwrap();
    assert!(!opened.keep, "the kernel's pages are out of date");
    one.close(opened.file).unwrap();
    // A LINK alone changes no data.
    one.told.0.borrow_mut().clear();
    one.run(one.core.link(&one.user, ino, ROOT, b"h")).unwrap();
    assert_eq!(one.told.0.borrow()[..], [0; 0]);
}

/// The kernel sends the parts of a large write with O_DIRECT at once. Each asks for the size, as the
/// attributes are too old, and the replies may come in another order.
#[test]
fn the_parts_of_an_append_stay_in_order() {
    let mut fixture = fixture();
    fixture.options().attributes = AttributeTimes::NONE;
    let (ino, file) = fixture.create(b"f");
    let mode = WriteMode {
        append: true,
        ..WriteMode::default()
    };
    let part = |n: u8| fixture.core.write(file, 0, Bytes::from(vec![n; 10]), mode);
    fixture.run(async {
        let mut first = Box::pin(part(1));
        let mut second = Box::pin(part(2));
        let mut third = Box::pin(part(3));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        // However long the first takes, the last waits for it.
        for _ in 0..100 {
            assert!(poll!(&mut third).is_pending());
            turn().await;
        }
        // A killed program does not keep its turn.
        drop(second);
        assert_eq!(join(third, first).await, (Ok(10), Ok(10)));
    });
    fixture.close(file).unwrap();
    assert_eq!(
        &fixture.read_anew(ino)[..],
        &[[1; 10], [3; 10]].concat()[..]
    );
}

/// An append that ends modifies nothing at the server by that.
#[test]
fn an_append_that_ends_lets_nobody_ask_for_the_size_again() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let one = client(&runtime, &server, &mount, 1);
    let two = client(&runtime, &server, &mount, 2);
    let (ino, file) = one.create(b"f");
    let other = two.open(two.find(b"f").unwrap());
    two.write(other, 0, vec![1; 100]);
    two.close(other).unwrap();
    // The server's clock stands still: while this client modifies the file, the order is not known.
    let node = one.core.node(ino).unwrap();
    node.attributes.borrow_mut().expire();
    let mode = WriteMode {
        append: true,
        ..WriteMode::default()
    };
    let append = || {
        let core = Rc::clone(&one.core);
        async move { core.write(file, 0, Bytes::from(vec![2; 10]), mode).await }
    };
    one.run(async {
        let change = one.core.change(&node);
        // In a task of its own, it goes on only when it is woken.
        let mut first = Box::pin(one.core.to_the_end(append()));
        let mut second = Box::pin(append());
        let mut wait = async || {
            for _ in 0..50 {
                assert!(poll!(&mut first).is_pending());
                turn().await;
            }
            one.calls::<nfs::Getattr>()
        };
        let asked = wait().await;
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert_eq!(wait().await, asked);
        drop(change);
        assert_eq!(first.await, Ok(10));
    });
    one.close(file).unwrap();
    assert_eq!(one.read_anew(ino).len(), 110);
}

/// Memory that is short is kept for READs that somebody waits for.
#[test]
fn a_read_whose_data_could_not_be_read_ahead_is_made_by_itself() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.write(file, 0, vec![1; 1 << 20]);
    fixture.close(file).unwrap();
    let file = fixture.open(ino);
    let begun = fixture.calls::<nfs::Read>();
    fixture.server.plan(move |proc, made| match proc {
        nfs::Read::NUMBER if made <= begun + 1 => Fault::NoMemory,
        _ => Fault::None,
    });
    let data = fixture.read(file, 0, 16 << 10);
    assert_eq!(&data[..], &[1; 16 << 10][..]);
    assert!(fixture.calls::<nfs::Read>() >= begun + 2);
}

#[test]
fn objects_that_the_kernel_forgets_leave_the_table() {
    let fixture = fixture();
    let (ino, file) = fixture.create(b"f");
    fixture.close(file).unwrap();
    fixture.find(b"f");
    assert_eq!(fixture.core.inodes.borrow().len(), 2);
    fixture.core.forget(ino, 2);
    assert_eq!(fixture.core.inodes.borrow().len(), 1);
    assert_eq!(fixture.core.node(ino).err(), Some(Errno::STALE));
}

/// Otherwise an `rmdir` right after a close would not wait until the hidden name is gone.
#[test]
fn a_directory_stays_in_the_table_while_it_has_a_hidden_file() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    let made = fixture.run(core.mkdir(user, ROOT, b"d", 0o755)).unwrap();
    let d = made.stat.unwrap().ino;
    let making = core.create(user, 1, d, b"f", 0o644, WRITE);
    let (_, opened) = fixture.run(making).unwrap();
    fixture.run(core.unlink(user, d, b"f")).unwrap();
    core.forget(d, 1);
    assert!(core.node(d).is_ok());
    fixture.close(opened.file).unwrap();
    assert_eq!(core.node(d).err(), Some(Errno::STALE));
}

/// The number of an inode is taken by a file of another file system, or by one that was removed.
#[test]
fn an_object_has_the_same_inode_number_in_every_reply() {
    let [fixture, two] = clients();
    let (fileid, file) = two.create(b"f");
    two.close(file).unwrap();
    let (core, user) = (&fixture.core, &fixture.user);
    let other = Attributes {
        fileid,
        ..Attributes::default()
    };
    let handle = FileHandle::new(&[9; 8]).unwrap();
    let (now, trust) = (Instant::now(), Duration::ZERO);
    let other = core.inodes.borrow_mut().add(handle, other, 0, now, trust);
    assert_eq!(other.ino, fileid);
    let ino = fixture.find(b"f").unwrap();
    assert_ne!(ino, fileid);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let set = fixture.run(core.setattr(user, ino, None, mode)).unwrap();
    let got = fixture.run(core.getattr(user, ino)).unwrap();
    assert_eq!([set.shown_ino(), got.shown_ino()], [ino; 2]);
    assert_eq!(got.attributes.fileid, fileid);
    let root = fixture.run(core.getattr(user, ROOT)).unwrap();
    assert_eq!(root.shown_ino(), root.attributes.fileid);
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

/// Programs believe the types that a listing tells them: `find` does not descend into what is no directory.
#[test]
fn a_listing_knows_the_type_of_every_entry() {
    let without = |handles| Fault::NoAttributes { handles };
    for (readdirplus, fault) in [
        (true, Fault::None),
        (false, Fault::None),
        (true, without(true)),
        (true, without(false)),
    ] {
        let fixture = fixture();
        fixture.core.readdirplus.set(readdirplus);
        fixture.server.plan(move |proc, _| match proc {
            nfs::Readdirplus::NUMBER => fault,
            _ => Fault::None,
        });
        fixture.create(b"file");
        let (core, user) = (&fixture.core, &fixture.user);
        fixture
            .run(core.mkdir(user, ROOT, b"below", 0o755))
            .unwrap();
        fixture
            .run(core.symlink(user, ROOT, b"link", b"file"))
            .unwrap();
        for plus in [true, false] {
            let directory = fixture.run(core.opendir(user, 1, ROOT)).unwrap().number;
            let mut types = BTreeMap::new();
            let listing = core.readdir(directory, 0, plus, |listed| {
                types.insert(Bytes::copy_from_slice(&listed.name.0), listed.file_type);
                true
            });
            fixture.run(listing).unwrap();
            core.releasedir(directory);
            let expected = [
                (".", FileType::Directory),
                ("..", FileType::Directory),
                ("below", FileType::Directory),
                ("file", FileType::Regular),
                ("link", FileType::Symlink),
            ];
            let expected = expected.map(|(name, file_type)| (Bytes::from(name), file_type));
            assert_eq!(types, expected.into(), "{readdirplus} {fault:?} {plus}");
        }
    }
}

/// The rest of a listing that was fetched before another client changed the directory.
#[test]
fn a_listing_from_before_a_change_is_not_taken_for_what_names_are_after_it() {
    let [one, two] = clients();
    let names = [b"a", b"b", b"c"];
    for name in names {
        let (_, file) = two.create(name);
        two.close(file).unwrap();
    }
    let core = &one.core;
    let opening = core.opendir(&one.user, 1, ROOT);
    let directory = one.run(opening).unwrap().number;
    let mut offset = 0;
    let mut kernel_takes = |count: usize| {
        let (from, mut taken) = (offset, 0);
        one.run(core.readdir(directory, from, true, |listed| {
            taken += 1;
            if taken > count {
                return false;
            }
            offset = listed.cookie;
            true
        }))
        .unwrap();
    };
    kernel_takes(1);
    let mut now = Vec::new();
    for name in names {
        two.run(two.core.unlink(&two.user, ROOT, name)).unwrap();
        let (ino, file) = two.create(name);
        two.close(file).unwrap();
        now.push(Some(ino));
    }
    let root = core.node(ROOT).unwrap();
    one.run(core.getattr_now(&one.user, &root)).unwrap();
    kernel_takes(100);
    core.releasedir(directory);
    let found: Vec<_> = names.iter().map(|name| one.find(*name)).collect();
    assert_eq!(found, now);
}

/// The rest of a listing that was fetched before this client itself removed and renamed what is in it.
#[test]
fn a_listing_does_not_bring_back_names_that_this_client_has_removed() {
    let fixture = fixture();
    let (core, user) = (&fixture.core, &fixture.user);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = fixture.create(name);
        fixture.close(file).unwrap();
    }
    let directory = fixture.run(core.opendir(user, 1, ROOT)).unwrap().number;
    let mut offset = 0;
    let mut kernel_takes = |count: usize| {
        let (from, mut objects) = (offset, BTreeMap::new());
        let mut taken = 0;
        let listing = core.readdir(directory, from, true, |listed| {
            taken += 1;
            if taken > count {
                return false;
            }
            offset = listed.cookie;
            objects.insert(
                Bytes::copy_from_slice(&listed.name.0),
                listed.node.is_some(),
            );
            true
        });
        fixture.run(listing).unwrap();
        objects
    };
    kernel_takes(1);
    fixture.run(core.unlink(user, ROOT, b"b")).unwrap();
    let renaming = core.rename(user, (ROOT, b"c"), (ROOT, b"d"));
    fixture.run(renaming).unwrap();
    let rest = kernel_takes(100);
    core.releasedir(directory);
    // Their names may be listed, but as what they are not any more.
    let has_object = |name: &'static str| rest.get(name.as_bytes()).copied();
    assert_eq!(has_object("a"), Some(true));
    assert_eq!([has_object("b"), has_object("c")], [Some(false); 2]);
    for (name, exists) in [(b"a", true), (b"b", false), (b"c", false), (b"d", true)] {
        assert_eq!(fixture.find(name).is_some(), exists, "{name:?}");
    }
}

/// A listing whose names the kernel may not keep gives it no references to the listed inodes.
#[test]
fn listed_objects_that_nobody_looks_up_leave_the_table() {
    let (runtime, server, mount) = server();
    let other = client(&runtime, &server, &mount, 2);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = other.create(name);
        other.close(file).unwrap();
    }
    let private = SetAttributes {
        mode: Some(0o700),
        ..SetAttributes::default()
    };
    let setting = other.core.setattr(&other.user, ROOT, None, private);
    other.run(setting).unwrap();
    let fixture = client(&runtime, &server, &mount, 1);
    let listed = fixture.list_plus(ROOT);
    assert!(listed.len() == 3 && listed.iter().all(|(_, trust)| trust.is_none()));
    let core = &fixture.core;
    let table = || core.inodes.borrow().len();
    assert_eq!(table(), 4);
    // What a program looks up at once needs no LOOKUP, and stays.
    let lookups = fixture.calls::<nfs::Lookup>();
    let found = fixture.find(b"b").unwrap();
    assert_eq!(fixture.calls::<nfs::Lookup>(), lookups);
    core.drop_unreferenced(Instant::now());
    assert_eq!(table(), 4);
    // A request that has found its object goes on to make a reference of the kernel.
    let a = core.node(ROOT).unwrap().known_name(b"a").flatten();
    let a = core.node(a.unwrap()).unwrap();
    a.attributes.borrow_mut().expire();
    drop(a);
    let getattrs = fixture.calls::<nfs::Getattr>();
    let later = Instant::now() + Duration::from_secs(6);
    let a = fixture.run(async {
        let mut find = Box::pin(core.lookup(&fixture.user, 1, ROOT, b"a"));
        while fixture.calls::<nfs::Getattr>() == getattrs {
            assert!(poll!(&mut find).is_pending(), "it asks for attributes");
            turn().await;
        }
        core.drop_unreferenced(later);
        find.await.unwrap().stat.unwrap().ino
    });
    assert!(core.node(a).is_ok());
    assert_eq!(table(), 3);
    for ino in [a, found] {
        core.forget(ino, 1);
    }
    assert_eq!(table(), 1);
}

/// Their types are asked for with a LOOKUP each, which puts them into the table.
#[test]
fn objects_that_are_listed_without_readdirplus_leave_the_table() {
    let (runtime, server, mount) = server();
    let other = client(&runtime, &server, &mount, 2);
    for name in [b"a", b"b", b"c"] {
        let (_, file) = other.create(name);
        other.close(file).unwrap();
    }
    let fixture = client(&runtime, &server, &mount, 1);
    let core = &fixture.core;
    core.readdirplus.set(false);
    assert_eq!(fixture.names(), ["a", "b", "c"]);
    assert_eq!(core.inodes.borrow().len(), 4);
    core.drop_unreferenced(Instant::now() + Duration::from_secs(6));
    assert_eq!(core.inodes.borrow().len(), 1);
}

/// Close-to-open consistency of a directory: opening it notices changes by others, as with Linux's client.
#[test]
fn the_kernel_forgets_a_listing_when_a_directory_is_opened_that_another_client_has_changed() {
    let [one, two] = clients();
    let keep = || {
        let opened = one.run(one.core.opendir(&one.user, 1, ROOT)).unwrap();
        one.core.releasedir(opened.number);
        opened.keep
    };
    assert_eq!([keep(), keep()], [false, true]);
    let (_, file) = two.create(b"new");
    two.close(file).unwrap();
    assert_eq!([keep(), keep()], [false, true]);
}

/// Runs the loop of a mount that is gone and whose server has sent this many replies whenever it is asked,
/// for so many ticks, which take no time. Returns whether the loop has ended.
fn ends(fixture: &Fixture, within: usize, replies: impl Fn() -> u64) -> bool {
    let queue = Queue::new();
    queue.close();
    let ticks = Cell::new(0);
    let tick = |_| {
        let (mut waited, ticks) = (false, &ticks);
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut waited, true) {
                ticks.set(ticks.get() + 1);
                return Poll::Ready(());
            }
            Poll::Pending
        })
    };
    let mut running = pin!(run(Rc::clone(&fixture.core), &queue, tick, replies));
    fixture
        .runtime
        .block_on(poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if ticks.get() > within => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }))
}

/// Regression test: the process of a hard mount whose server was down went on for ever after `umount --force`.
#[test]
fn a_mount_that_is_gone_waits_for_a_silent_server_only_to_save_data() {
    let jukebox = |fixture: &Fixture, number| {
        fixture.server.plan(move |proc, _| match proc {
            _ if proc == number => Fault::Status(Status::JUKEBOX),
            _ => Fault::None,
        });
    };
    let write = |fixture: &Fixture| {
        let (_, file) = fixture.create(b"file");
        fixture.write(file, 0, vec![7; 100]);
        assert_eq!(fixture.core.unsaved_files(), 1);
        file
    };
    // Data that is not on the server.
    let unsaved = fixture();
    write(&unsaved);
    jukebox(&unsaved, nfs::Write::NUMBER);
    assert!(!ends(&unsaved, 100, || 3));
    assert_eq!(unsaved.core.unsaved_files(), 1);
    // A server that answers.
    let answers = fixture();
    write(&answers);
    assert!(ends(&answers, 100, || 3));
    assert_eq!(answers.core.unsaved_files(), 0);
    // A request that nobody waits for any more.
    let left = fixture();
    left.core.spawn(std::future::pending());
    assert!(!ends(&left, 5, || 3));
    left.core.spawn(std::future::pending());
    assert!(ends(&left, 20, || 3));
}
