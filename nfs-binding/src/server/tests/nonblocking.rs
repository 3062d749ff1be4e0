//! Tests of calls that are answered on the thread that serves all connections, without waiting.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use linux_file_handle::file_ids;
use rpc_transport::PeerOrigin;
use rustix::fs::Advice;

use super::*;
use crate::fs::tests::privileged;
use crate::proto::{Access, AccessArgs, CommitArgs, ReadArgs, Stable, WriteArgs};

/// Where a call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Loop,
    Worker,
}

/// A server of a directory of the host.
struct Directory {
    rig: Fixture,
    host: tempfile::TempDir,
    root: FileHandle,
}

impl Directory {
    /// Serves a new directory in `parent`. Returns `None` if that is not in a file system that the loop
    /// reads from.
    fn in_directory(parent: &Path, options: &str) -> Option<Self> {
        let host = tempfile::tempdir_in(parent).ok()?;
        let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
        let is_local = fs.nonblocking().unwrap().getattr(&fs.root()).is_some();
        fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
        let mut rig = Fixture::new(vec![export("/m", Arc::new(fs), options)]);
        let root = rig.root();
        let served = Self { rig, host, root };
        if !is_local {
            eprintln!(
                "left out, for a file system that is not known to answer at once: {parent:?}"
            );
        }
        is_local.then_some(served)
    }

    /// Serves directories in memory and on the disk.
    fn all(options: &str) -> impl Iterator<Item = Self> {
        let temporary = std::env::temp_dir();
        let parents = [Path::new("/dev/shm").to_owned(), temporary];
        parents
            .into_iter()
            .filter_map(move |parent| Self::in_directory(&parent, options))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.host.path().join(name)
    }

    /// Executes a call, and returns who did so.
    fn call<P: Procedure>(&mut self, args: &P::Args) -> (By, P::Results) {
        let mut out = Encoder::new();
        args.encode(&mut out);
        let request = self.rig.request(P::PROGRAM, P::NUMBER, out.finish());
        let before = file_ids();
        let (by, reply) = match self.rig.server.call(request) {
            ServiceOutcome::Done(_) => panic!("the file system can block"),
            ServiceOutcome::Later(job) => (By::Worker, job()),
            ServiceOutcome::Attempt(attempt) => match attempt() {
                Attempted::Done(reply) => (By::Loop, reply),
                Attempted::Later(job) => (By::Worker, job()),
            },
        };
        // This thread executes no batch of attempts.
        assert_eq!(file_ids(), before);
        let reply = reply.unwrap();
        (by, P::Results::decode(&mut Decoder::new(&reply)).unwrap())
    }

    fn look_up(&mut self, name: &str) -> (By, Result<FileHandle, Status>) {
        let (by, found) = self.call::<nfs::Lookup>(&what(self.root, name));
        (
            by,
            found.map(|ok| ok.object).map_err(|failed| failed.status),
        )
    }

    fn read(&mut self, file: FileHandle, offset: u64, count: u32) -> (By, Result<Vec<u8>, Status>) {
        let args = ReadArgs {
            file,
            offset,
            count,
        };
        let (by, read) = self.call::<nfs::Read>(&args);
        let read = read.map_err(|failed| failed.status);
        (by, read.map(|ok| ok.data.0.to_bytes().to_vec()))
    }

    fn access(&mut self, object: FileHandle) -> (By, Access) {
        let access = Access::READ | Access::MODIFY;
        let (by, answer) = self.call::<nfs::Access>(&AccessArgs { object, access });
        (by, answer.unwrap().access)
    }

    fn attributes(&mut self, object: FileHandle) -> (By, Result<Attributes, Status>) {
        let (by, got) = self.call::<nfs::Getattr>(&HandleArgs { object });
        (by, got.map_err(|failed| failed.status))
    }
}

#[test]
fn what_is_in_memory_is_answered_on_the_loop() {
    for mut served in Directory::all("") {
        let data: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        fs::write(served.path("f"), &data).unwrap();
        assert_eq!(served.attributes(served.root).0, By::Loop);
        let (by, file) = served.look_up("f");
        let file = file.unwrap();
        assert_eq!(by, By::Loop, "the host has just made it");
        let (by, attributes) = served.attributes(file);
        assert_eq!((by, attributes.unwrap().size), (By::Loop, 10_000));
        // The first check of permission may have to read from the disk, and the file has to be opened.
        assert_eq!(served.read(file, 0, 4096).0, By::Worker);
        for (offset, count) in [
            (0, 4096),
            (4096, 4096),
            (8192, 4096),
            (10_000, 1),
            (20_000, 9),
        ] {
            let (by, got) = served.read(file, offset, count);
            let from = data.len().min(offset as usize);
            let until = data.len().min(from + count as usize);
            assert_eq!((by, got.unwrap()), (By::Loop, data[from..until].to_vec()));
        }
        assert_eq!(
            served.access(file),
            (By::Loop, Access::READ | Access::MODIFY)
        );
        let (by, got) = served.read(file, 0, 100_000);
        assert_eq!(
            (by, got.unwrap().len()),
            (By::Worker, 10_000),
            "it may take long"
        );
        assert_eq!(served.look_up("f"), (By::Loop, Ok(file)));
        // Changes of the host show at once.
        fs::write(served.path("f"), b"other").unwrap();
        assert_eq!(served.read(file, 0, 100), (By::Loop, Ok(b"other".to_vec())));
        let (by, attributes) = served.attributes(file);
        assert_eq!((by, attributes.unwrap().size), (By::Loop, 5));
        fs::remove_file(served.path("f")).unwrap();
        // That a name does not exist is known only after it was looked for.
        for name in ["none", "f"] {
            assert_eq!(served.look_up(name).1, Err(Status::NOENT));
            assert_eq!(served.look_up(name), (By::Loop, Err(Status::NOENT)));
        }
        for _ in 0..2 {
            assert_eq!(served.attributes(file), (By::Worker, Err(Status::STALE)));
            assert_eq!(served.read(file, 0, 10), (By::Worker, Err(Status::STALE)));
        }
    }
}

#[test]
fn data_that_is_not_in_memory_is_read_by_a_worker() {
    let temporary = std::env::temp_dir();
    let Some(mut served) = Directory::in_directory(&temporary, "") else {
        return;
    };
    fs::write(served.path("f"), [1; 64 << 10]).unwrap();
    let host = File::open(served.path("f")).unwrap();
    host.sync_all().unwrap();
    let file = served.look_up("f").1.unwrap();
    served.read(file, 0, 4096).1.unwrap();
    assert_eq!(served.read(file, 0, 4096).0, By::Loop);
    rustix::fs::fadvise(&host, 0, None, Advice::DontNeed).unwrap();
    let by = served.read(file, 0, 4096).0;
    if by == By::Loop {
        eprintln!("left out, for files stay in memory here (tmpfs): {temporary:?}");
        return;
    }
    // More may be missing, and each attempt would cost the loop time.
    for nth in 0..8 {
        assert_eq!(served.read(file, 0, 4096).0, By::Worker, "{nth}");
    }
    assert_eq!(
        served.read(file, 0, 4096),
        (By::Loop, Ok(vec![1; 4096])),
        "it was read in"
    );
}

/// In a file system in memory, so are short calls that change no names.
#[test]
fn short_calls_to_a_directory_in_memory_are_answered_on_the_loop() {
    for mut served in Directory::all("") {
        let is_in_memory = served.host.path().starts_with("/dev/shm");
        let by = if is_in_memory { By::Loop } else { By::Worker };
        fs::write(served.path("f"), b"").unwrap();
        std::os::unix::fs::symlink("target", served.path("link")).unwrap();
        let file = served.look_up("f").1.unwrap();
        let object = served.look_up("link").1.unwrap();
        let mut written = Vec::new();
        for (len, stable, by) in [
            (0, Stable::FileSync, by),
            (5, Stable::Unstable, by),
            (4096, Stable::DataSync, by),
            (32 << 10, Stable::FileSync, by),
            ((32 << 10) + 1, Stable::Unstable, By::Worker),
        ] {
            let (offset, data) = (written.len() as u64, vec![len as u8; len]);
            written.extend_from_slice(&data);
            let args = WriteArgs {
                file,
                offset,
                count: len as u32,
                stable,
                data: data.into(),
            };
            let (written_by, result) = served.call::<nfs::Write>(&args);
            let ok = result.unwrap();
            assert_eq!(
                (written_by, ok.count, ok.committed),
                (by, len as u32, stable)
            );
            let sizes = (ok.wcc.before.unwrap().size, ok.wcc.after.unwrap().size);
            assert_eq!(sizes, (offset, written.len() as u64));
        }
        assert_eq!(fs::read(served.path("f")).unwrap(), written);
        let (committed_by, committed) = served.call::<nfs::Commit>(&CommitArgs {
            file,
            offset: 0,
            count: 0,
        });
        assert_eq!((committed_by, committed.is_ok()), (by, true));
        let (read_by, link) = served.call::<nfs::Readlink>(&HandleArgs { object });
        assert_eq!((read_by, &link.unwrap().text.0[..]), (by, &b"target"[..]));
        let object = served.root;
        let (asked_by, space) = served.call::<nfs::Fsstat>(&HandleArgs { object });
        assert_eq!((asked_by, space.unwrap().total_bytes > 0), (by, true));
        // A failure is a result as well: nothing was changed, and a worker would come to the same.
        let args = |offset, file| WriteArgs {
            file,
            offset,
            count: 1,
            stable: Stable::Unstable,
            data: b"x".to_vec().into(),
        };
        for (args, expected) in [
            (args(u64::MAX, file), Status::FBIG),
            (args(0, served.root), Status::ISDIR),
        ] {
            let (refused_by, result) = served.call::<nfs::Write>(&args);
            let status = result.unwrap_err().status;
            assert_eq!((refused_by, status), (by, expected));
        }
        // Closing a file that was removed frees its memory, and what is not open may have to be searched for.
        fs::remove_file(served.path("f")).unwrap();
        for _ in 0..2 {
            let (refused_by, result) = served.call::<nfs::Write>(&args(0, file));
            let status = result.unwrap_err().status;
            assert_eq!((refused_by, status), (By::Worker, Status::STALE));
        }
    }
}

/// On the loop, too, each call is executed as its caller.
#[test]
fn calls_on_the_loop_have_the_rights_of_their_callers() {
    if !privileged() {
        return;
    }
    for mut served in Directory::all("root_squash,anonuid=7,anongid=8") {
        fs::write(served.path("private"), b"private").unwrap();
        chown(served.path("private"), Some(1001), Some(1001)).unwrap();
        fs::set_permissions(served.path("private"), Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(served.path("closed")).unwrap();
        chown(served.path("closed"), Some(1001), Some(1001)).unwrap();
        fs::write(served.path("closed/f"), b"").unwrap();
        served.rig.credential = user(1001);
        let (file, closed) = (served.look_up("private").1, served.look_up("closed").1);
        let (file, closed) = (file.unwrap(), closed.unwrap());
        let found = |served: &mut Directory| {
            let (by, found) = served.call::<nfs::Lookup>(&what(closed, "f"));
            (by, status(found))
        };
        let set = |mode| {
            let permissions = Permissions::from_mode(mode);
            fs::set_permissions(served.path("closed"), permissions).unwrap();
        };
        set(0o700);
        served.read(file, 0, 10).1.unwrap();
        let both = Access::READ | Access::MODIFY;
        for _ in 0..3 {
            served.rig.credential = user(1001);
            assert_eq!(
                served.read(file, 0, 10),
                (By::Loop, Ok(b"private".to_vec()))
            );
            assert_eq!(served.access(file), (By::Loop, both));
            assert_eq!(found(&mut served), (By::Loop, Status::OK));
            // Another user, and root, who is another one as well here.
            for uid in [1002, 0] {
                served.rig.credential = user(uid);
                assert_eq!(served.read(file, 0, 10), (By::Worker, Err(Status::ACCES)));
                assert_eq!(served.access(file).1, Access::empty());
                assert_eq!(found(&mut served), (By::Worker, Status::ACCES));
            }
        }
        // The anonymous user's access ends with the permission, also on the loop.
        fs::set_permissions(served.path("private"), Permissions::from_mode(0o604)).unwrap();
        served.rig.credential = user(0);
        assert_eq!(
            served.read(file, 0, 10),
            (By::Loop, Ok(b"private".to_vec()))
        );
        fs::set_permissions(served.path("private"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(served.read(file, 0, 10), (By::Worker, Err(Status::ACCES)));
    }
}

/// The kernel reads an access control list from the disk when it first needs it: not for the owner.
#[test]
fn a_worker_makes_the_first_check_for_others_than_the_owner() {
    if !privileged() {
        return;
    }
    for mut served in Directory::all("") {
        let is_in_memory = served.host.path().starts_with("/dev/shm");
        fs::write(served.path("f"), b"data").unwrap();
        chown(served.path("f"), Some(1001), Some(1001)).unwrap();
        served.rig.credential = user(1001);
        let file = served.look_up("f").1.unwrap();
        let mut by = |uid| {
            served.rig.credential = user(uid);
            let (read_by, data) = served.read(file, 0, 10);
            assert_eq!(data, Ok(b"data".to_vec()));
            read_by
        };
        assert_eq!([1001, 1001].map(&mut by), [By::Worker, By::Loop]);
        let first = if is_in_memory { By::Loop } else { By::Worker };
        assert_eq!([1002, 1002].map(&mut by), [first, By::Loop]);
        assert_eq!([1003, 1001, 1002].map(&mut by), [By::Loop; 3]);
        // The owner's check does not undo that the kernel knows the list.
        served.rig.credential = user(1001);
        assert_eq!(served.access(file).0, By::Loop);
        served.rig.credential = user(1002);
        assert_eq!(served.read(file, 0, 10).0, By::Loop);
        // A former owner is checked as others are.
        fs::write(served.path("g"), b"data").unwrap();
        chown(served.path("g"), Some(1001), Some(1001)).unwrap();
        served.rig.credential = user(1001);
        let given = served.look_up("g").1.unwrap();
        served.read(given, 0, 10).1.unwrap();
        assert_eq!(served.read(given, 0, 10).0, By::Loop);
        chown(served.path("g"), Some(1002), Some(1002)).unwrap();
        assert_eq!(served.access(given).0, first);
    }
}

/// A file system that is not known to answer at once, like one in FUSE, is asked by workers alone.
#[test]
fn other_file_systems_are_asked_by_workers() {
    let proc = DirectoryOptions {
        inode_reuse: true,
        ..DirectoryOptions::default()
    };
    let fs = DirectoryFs::open("/proc", proc).unwrap();
    let mut rig = Fixture::new(vec![export("/m", Arc::new(fs), "")]);
    let object = rig.root();
    let mut args = Encoder::new();
    HandleArgs { object }.encode(&mut args);
    let request = rig.request(NFS_PROGRAM, nfs::Getattr::NUMBER, args.finish());
    match rig.server.call(request) {
        ServiceOutcome::Attempt(attempt) => assert!(matches!(attempt(), Attempted::Later(_))),
        _ => panic!("GETATTR is attempted"),
    }
}

/// The groups of a user of this host are in files, which are read again after a while.
#[test]
fn a_worker_finds_the_groups_of_a_local_user() {
    let host = tempfile::tempdir_in("/dev/shm").unwrap();
    let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
    let mut rig = Fixture::new(vec![export("/m", Arc::new(fs), "")]);
    let object = rig.root();
    let backend = Arc::clone(&rig.server.shared.exports[0].export.backend);
    let policy = IdentityPolicy::of_user(0);
    rig.server = NfsServer::with_policy(vec![export("/m", backend, "")], key(), policy).unwrap();
    rig.credential = user(4711);
    let mut is_answered_at_once = || {
        let mut args = Encoder::new();
        HandleArgs { object }.encode(&mut args);
        let request = rig.request(NFS_PROGRAM, nfs::Getattr::NUMBER, args.finish());
        let user = Some(4711);
        let request = request.from_origin(PeerOrigin::ThisHost { user });
        let ServiceOutcome::Attempt(attempt) = rig.server.call(request) else {
            panic!("GETATTR is attempted");
        };
        match attempt() {
            Attempted::Done(reply) => reply.map(|_| true),
            Attempted::Later(job) => job().map(|_| false),
        }
    };
    assert_eq!(
        [(); 2].map(|()| is_answered_at_once()),
        [Ok(false), Ok(true)]
    );
}

/// A verbs device does not work any more after its thread has been another user, even for a while.
#[test]
fn a_loop_that_keeps_its_credentials_attempts_no_call_that_changes_them() {
    let is_root = rustix::process::geteuid().is_root();
    let host = tempfile::tempdir().unwrap();
    let fs = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
    let mut rig = Fixture::new(vec![export("/m", Arc::new(fs), "")]);
    let object = rig.root();
    let mut is_attempted = |proc, args: &dyn Fn(&mut Encoder), keeps| {
        let mut out = Encoder::new();
        args(&mut out);
        let request = rig.request(NFS_PROGRAM, proc, out.finish());
        let request = request.on_thread_that_keeps_credentials(keeps);
        matches!(rig.server.call(request), ServiceOutcome::Attempt(_))
    };
    let handle = HandleArgs { object };
    let access = AccessArgs {
        object,
        access: Access::READ,
    };
    let read = ReadArgs {
        file: object,
        offset: 0,
        count: 1,
    };
    let what = what(object, "f");
    for keeps in [false, true] {
        let mut attempted = |proc, args: &dyn Fn(&mut Encoder)| is_attempted(proc, args, keeps);
        assert!(attempted(nfs::Getattr::NUMBER, &|out| handle.encode(out)));
        let expected = !keeps || !is_root;
        let lookup = attempted(nfs::Lookup::NUMBER, &|out| what.encode(out));
        let access = attempted(nfs::Access::NUMBER, &|out| access.encode(out));
        let read = attempted(nfs::Read::NUMBER, &|out| read.encode(out));
        assert_eq!([lookup, access, read], [expected; 3], "{keeps}");
    }
}

/// A file system that does not block is not made to wait for workers by one that does.
#[test]
fn calls_to_a_file_system_in_memory_are_no_attempts() {
    let host = tempfile::tempdir().unwrap();
    let blocking = DirectoryFs::open(host.path(), DirectoryOptions::default()).unwrap();
    let mut rig = Fixture::new(vec![
        export("/m", memory(), ""),
        export("/d", Arc::new(blocking), ""),
    ]);
    for (path, later) in [("/m", false), ("/d", true)] {
        let object = rig.mount(path).unwrap();
        assert_eq!(rig.is_later::<nfs::Getattr>(&HandleArgs { object }), later);
    }
}
