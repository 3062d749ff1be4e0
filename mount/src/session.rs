//! A mount from its beginning to its end.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, INodeNo, MountOption, Session, SessionACL};
use nfs_binding::client::{ClientAs, Mount, NfsUrl, Object};
use nfs_binding::proto::FileType;
use onc_rpc::{AuthSys, Credential};
use rdma::Pool;
use rpc_transport::{Client, EncodedCredential, StatusOf, TransportStatistics};
use rustix::fs::{AtFlags, CWD, StatxFlags, statfs, statx};
use rustix::mount::{UnmountFlags, unmount};

use crate::bridge::Bridge;
use crate::copies::Copies;
use crate::core::{Connect, Core, Parts};
use crate::engine::{Queue, run};
use crate::error::{CONNECTIONS, DEVICE, MountError};
use crate::mount_table::{self, MountEntry, TYPE};
use crate::notifications::Notify;
use crate::options::Options;
use crate::remount;
use crate::statistics::StatisticsHandle;

/// The number of threads that read requests from the kernel and pass them on. One, so that requests keep
/// their order: the kernel does not wait for the answer to RELEASE, and a REMOVE handled before it would
/// find the file still open and hide it.
const READERS: usize = 1;
/// The minimum (a page) and the maximum (the kernel's limit) of a write request, bytes.
const MAX_WRITE: (u32, u32) = (4096, 1 << 20);
/// The flag of statx(2) that asks for a number of the mount that is not used again (Linux 6.8).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

impl Connect for Client {
    type As = ClientAs;

    fn of(&self, credential: &AuthSys) -> ClientAs {
        let credential = Credential::Sys(credential.clone());
        ClientAs {
            client: self.clone(),
            // AUTH_SYS has a maximum length that is always within the limit.
            credential: EncodedCredential::new(&credential)
                .unwrap_or_else(|_| unreachable!("an AUTH_SYS credential fits a call")),
        }
    }
}

/// A mounted export. It works while [`Mounted::run`] does.
pub struct Mounted {
    client: Client,
    core: Rc<Core<Client>>,
    queue: Arc<Queue<Client>>,
    copies: Copies,
    session: BackgroundSession,
    path: PathBuf,
    /// See [`mount_id`].
    id: Option<u64>,
}

/// Mounts what `root` is, a directory of the export, at a directory of this machine.
///
/// Removes a dead mount first, if a killed program of this kind has left one there. Fails if the same export is
/// mounted there already, as Linux's NFS client does: one unmount would then seem to have no effect. Another
/// export may be mounted over it.
///
/// # Errors
/// See [`MountError`].
pub fn mount(
    export: &Mount<Client>,
    root: Object,
    pool: &Pool,
    at: &Path,
    options: &Options,
) -> Result<Mounted, MountError> {
    let path = prepare(at)?;
    let source = source_name(options);
    match mount_table::find(&path) {
        Ok(Some(entry)) if entry.is_ours() && is_same_source(&entry.source, &source) => {
            return Err(MountError::AlreadyMounted {
                path,
                source_name: source,
            });
        }
        _ => {}
    }
    if root.attributes.file_type != FileType::Directory {
        return Err(MountError::NotDirectory(source.into()));
    }
    let client = export.nfs().rpc().clone();
    let limits = export.limits();
    let (min, max) = MAX_WRITE;
    let queue = Arc::new(Queue::new());
    let copies = Copies::default();
    let bridge = Bridge::<Client> {
        queue: Arc::clone(&queue),
        pool: pool.clone(),
        copies: copies.clone(),
        max_write: limits.wsize.clamp(min, max),
        block: 1 << limits.wsize.clamp(min, max).ilog2(),
    };
    let failed = |source: io::Error| MountError::Mount {
        path: path.clone(),
        source,
    };
    let session = Session::new(bridge, &path, &config(options)).map_err(|error| {
        match rustix::process::geteuid().is_root() || has_helper() {
            false => MountError::NoHelper,
            true => failed(error),
        }
    })?;
    // Before the first request is answered, so that nobody gets in without.
    remount::complete(&path, options)?;
    read_ahead_whole(&path, limits.rsize);
    let id = mount_id(&path);
    let notifier = session.notifier();
    let invalidate = move |ino, offset, len| notifier.inval_inode(INodeNo(ino), offset, len);
    let kernel = Notify::start(invalidate, &queue).map_err(failed)?;
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|error| failed(io::Error::other(error)))?;
    let core = Core::new(Parts {
        connect: client.clone(),
        options: Options {
            unwritten: options.unwritten.min(pool.limit() / 4),
            read_ahead: options.read_ahead.min(pool.limit() / 4),
            ..options.clone()
        },
        limits,
        readdirplus: options.readdirplus,
        kernel: Box::new(kernel),
        pool: pool.clone(),
        copies: copies.clone(),
        root: root.handle,
        root_attributes: root.attributes,
        random: u32::from_ne_bytes(random),
    });
    let session = session.spawn().map_err(failed)?;
    Ok(Mounted {
        client,
        core,
        queue,
        copies,
        session,
        path,
        id,
    })
}

impl Mounted {
    /// Serves the mount until it is unmounted. Then all written data is on the server's stable
    /// storage.
    ///
    /// # Errors
    /// The error of FUSE's device.
    pub fn run(self) -> Result<(), MountError> {
        let runtime = self.client.runtime().clone();
        runtime.block_on(self.serve())
    }

    /// Does what [`Mounted::run`] does, as a future of the client's runtime, so that a program can do
    /// something else beside it. The future must be polled whenever it is woken: programs that use the
    /// mount wait for it, and so would this program if it used the mount on the same thread.
    ///
    /// # Errors
    /// The error of FUSE's device.
    pub async fn serve(self) -> Result<(), MountError> {
        let runtime = self.client.runtime().clone();
        let sleep = |duration| runtime.sleep(duration);
        let replies = || self.client.stats().replies;
        run(self.core, &self.queue, sleep, replies).await;
        let path = self.path;
        join(self.session, &path, self.id).map_err(|source| MountError::Mount { path, source })
    }

    /// Returns the counter of the bytes of file data that the mount copies. The transport counts the bytes that
    /// it copies itself.
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.copies.clone()
    }

    /// Has [`MountStatistics`](crate::MountStatistics) show what `transport` tells, which is called on the thread
    /// that serves the mount, and counts the calls of the client from now on. `status` says how results begin.
    /// Returns what other threads ask.
    pub fn observe(
        &self,
        status: StatusOf,
        transport: impl Fn() -> TransportStatistics + 'static,
    ) -> StatisticsHandle {
        self.client.count_calls(status);
        self.core.observe.replace(Some(Box::new(transport)));
        StatisticsHandle::new(&self.queue)
    }

    /// Returns the directory that the export is mounted at.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Waits for the end of the session of a mount at `path`, and removes the mount if it is still there.
///
/// # Errors
/// The error of FUSE's device.
fn join(session: BackgroundSession, path: &Path, id: Option<u64>) -> io::Result<()> {
    let mut session = ManuallyDrop::new(session);
    // `BackgroundSession::join` would drop the session, and its guard cannot be moved out: a thread that has
    // ended takes its place.
    let ended = thread::Builder::new().spawn(|| Ok(()))?;
    let outcome = std::mem::replace(&mut session.guard, ended).join();
    let outcome =
        outcome.unwrap_or_else(|_| Err(io::Error::other("the reader of requests panicked")));
    if outcome.is_err() {
        drop(ManuallyDrop::into_inner(session));
        return outcome;
    }
    // POLLERR on the device means that the mount is gone, but fuser 0.18 takes POLLERR for the sign of a mount.
    // Dropping the session of a mount that is gone would therefore unmount whatever else is mounted at the
    // directory by then. The session is leaked instead, which costs a descriptor. Requests end in the same way
    // after an abort, which leaves a dead mount.
    if is_still_there(path, id)
        && is_dead(path)
        && let Err(error) = umount(path, Umount::Lazy)
    {
        tracing::warn!(%error, "a dead mount is left behind");
    }
    Ok(())
}

/// Checks that something can be mounted at a directory, and cleans up a dead mount there.
fn prepare(at: &Path) -> Result<PathBuf, MountError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    if device.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return Err(MountError::DeviceRefused);
    }
    let mount_point = |source: io::Error| {
        let path = at.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => MountError::NoMountPoint(path),
            _ => MountError::MountPoint { path, source },
        }
    };
    let path = mount_table::absolute(at).map_err(mount_point)?;
    if is_dead(&path) {
        let ours = mount_table::find(&path).map_err(mount_point)?;
        if ours.is_some_and(|entry| entry.is_ours()) {
            tracing::warn!(path = %path.display(), "a dead mount is cleaned up");
            umount(&path, Umount::Lazy)?;
        }
    }
    match path.metadata().map_err(mount_point)?.is_dir() {
        true => Ok(path),
        false => Err(MountError::NotDirectory(path)),
    }
}

/// Lets the kernel read ahead in requests as long as a READ, instead of 128 KiB, if this process may: only
/// root may. Each request costs the same time, however long it is, so with 1 MiB this process takes a third
/// less of a processor.
fn read_ahead_whole(path: &Path, rsize: u32) {
    let entry = mount_table::find(path);
    let Some(entry) = entry.ok().flatten().filter(MountEntry::is_ours) else {
        return;
    };
    let file = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
    if let Err(error) = std::fs::write(&file, (rsize >> 10).to_string()) {
        tracing::debug!(file, %error, "the kernel reads ahead less");
    }
}

/// Returns the unique ID of the mount at a directory (`STATX_MNT_ID_UNIQUE`). Before Linux 6.8 it
/// returns the mount ID, which the kernel may reuse. Sends no request to the process that serves
/// the mount.
fn mount_id(path: &Path) -> Option<u64> {
    let unique = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let either = StatxFlags::MNT_ID | unique;
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, either).ok()?;
    (found.stx_mask & either.bits() != 0).then_some(found.stx_mnt_id)
}

/// Returns whether the mount with this ID may still be at its directory after its session has
/// ended. Sends no request to another mount that has taken its place: even a request for its state
/// would keep it from being unmounted meanwhile.
fn is_still_there(path: &Path, id: Option<u64>) -> bool {
    let entry = mount_table::find(path).ok().flatten();
    entry.is_some_and(|entry| entry.is_ours()) && mount_id(path) == id
}

/// Returns whether nobody serves the mount at a directory any more. Attributes of the directory may still be in
/// the kernel's cache; the state of a file system is not.
fn is_dead(path: &Path) -> bool {
    statfs(path).is_err_and(|error| error == rustix::io::Errno::NOTCONN)
}

fn has_helper() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|path| path.join("fusermount3").exists());
    found || Path::new("/bin/fusermount3").exists()
}

/// Returns what the table of mounts shows as the source. Commas separate options, also where fusermount3 gets
/// them.
fn source_name(options: &Options) -> String {
    options.source.replace(',', "_")
}

/// Returns whether two sources are the same export of the same server: a URL and `SERVER:/PATH` may be.
fn is_same_source(mounted: &OsStr, source: &str) -> bool {
    let url = |source: &str| source.parse::<NfsUrl>().ok();
    let mounted = mounted.to_str();
    let urls = mounted.and_then(url).zip(url(source));
    mounted == Some(source) || urls.is_some_and(|(mounted, source)| mounted == source)
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(READERS);
    config.acl = match options.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    let flag = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    config.mount_options = vec![
        MountOption::FSName(source_name(options)),
        flag(options.read_only, MountOption::RO, MountOption::RW),
        flag(options.set_id, MountOption::Suid, MountOption::NoSuid),
        flag(options.devices, MountOption::Dev, MountOption::NoDev),
        flag(options.execute, MountOption::Exec, MountOption::NoExec),
        MountOption::NoAtime,
        MountOption::CUSTOM(format!("subtype={}", TYPE.trim_start_matches("fuse."))),
    ];
    if options.default_permissions {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config
}

/// How something is unmounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Umount {
    /// Unmounts only if nothing uses the mount.
    #[default]
    Idle,
    /// Detaches the mount from the directory tree now; it ends when nothing uses it any more.
    Lazy,
    /// Makes waiting requests fail, and unmounts. For users other than root, `fusectl` has to be mounted,
    /// as most systems have it.
    Force,
    /// Makes waiting requests fail like [`Umount::Force`], and detaches a mount that stays in use like
    /// [`Umount::Lazy`].
    ForceLazy,
}

impl Umount {
    fn forces(self) -> bool {
        matches!(self, Self::Force | Self::ForceLazy)
    }
}

/// Unmounts what a program of this kind has mounted at a directory, also if that program is gone.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::Busy`], [`MountError::NoAbort`], [`MountError::NoHelper`], or
/// [`MountError::MountPoint`].
pub fn umount(at: &Path, how: Umount) -> Result<(), MountError> {
    let mount_point = |source| MountError::MountPoint {
        path: at.to_owned(),
        source,
    };
    let entry = mount_table::ours_at(at)?;
    let path = entry.path.clone();
    let flags = match how {
        Umount::Idle => UnmountFlags::NOFOLLOW,
        Umount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        Umount::Force | Umount::ForceLazy => UnmountFlags::NOFOLLOW | UnmountFlags::FORCE,
    };
    let start = Instant::now();
    let mut unmounted = unmount(&path, flags);
    // Programs whose requests have been made to fail need a moment to leave.
    while how.forces() && unmounted == Err(rustix::io::Errno::BUSY) && start.elapsed() < LEAVING {
        thread::sleep(LOOK_AGAIN);
        // Otherwise what is mounted below it would be unmounted.
        if is_gone_after(how, &entry).map_err(mount_point)? {
            return Ok(());
        }
        unmounted = unmount(&path, flags);
    }
    if how == Umount::ForceLazy && unmounted == Err(rustix::io::Errno::BUSY) {
        unmounted = unmount(&path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
    match unmounted {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::Busy { path }),
        Err(rustix::io::Errno::PERM) => with_helper(&entry, how),
        Err(_) if is_gone_after(how, &entry).map_err(mount_point)? => Ok(()),
        Err(error) => Err(mount_point(error.into())),
    }
}

/// Returns whether a mount whose requests were made to fail is not there any more: its process ends then,
/// and may have unmounted it first.
fn is_gone_after(how: Umount, entry: &MountEntry) -> io::Result<bool> {
    let is_there = |now: MountEntry| now.device == entry.device;
    Ok(how.forces() && !mount_table::find(&entry.path)?.is_some_and(is_there))
}

/// How long `--force` waits for programs to leave after their requests have failed.
const LEAVING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Unmounts with the helper that ordinary users have.
fn with_helper(entry: &MountEntry, how: Umount) -> Result<(), MountError> {
    let path = &*entry.path;
    if how.forces() {
        // The helper can only unmount lazily, which leaves programs waiting.
        abort(Path::new(CONNECTIONS), entry).map_err(|source| MountError::NoAbort {
            path: path.to_owned(),
            source,
        })?;
    }
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u");
    if how != Umount::Idle {
        command.arg("-z");
    }
    let output = match command.arg("--").arg(path).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(MountError::NoHelper),
        output => output,
    };
    let mount_point = |source| MountError::MountPoint {
        path: path.to_owned(),
        source,
    };
    let output = output.map_err(mount_point)?;
    if output.status.success() {
        return Ok(());
    }
    if is_gone_after(how, entry).map_err(mount_point)? {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match said.contains("busy") {
        true => Err(MountError::Busy {
            path: path.to_owned(),
        }),
        false => Err(mount_point(io::Error::other(said))),
    }
}

/// Makes all requests of a mount fail, those that wait and those to come, by its file in FUSE's control
/// file system, which belongs to the user who has mounted.
fn abort(connections: &Path, entry: &MountEntry) -> io::Result<()> {
    let minor = entry.device.strip_prefix("0:");
    let minor: u32 = minor
        .and_then(|minor| minor.parse().ok())
        .ok_or(io::ErrorKind::NotFound)?;
    let file = connections.join(minor.to_string()).join("abort");
    // Not created: where it is missing, the control file system is not mounted, or the mount is gone.
    let mut file = OpenOptions::new().write(true).open(file)?;
    file.write_all(b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_a_path_of_a_server_are_one_source() {
        let same = |mounted: &str, source| is_same_source(mounted.as_ref(), source);
        assert!(same("h:/x", "nfs://h/x") && same("nfs://h/x", "h:/x"));
        assert!(same("[::1]:/x y", "nfs://[::1]/x%20y"));
        assert!(same("of another program", "of another program"));
        assert!(!same("h:/x", "nfs://h/y") && !same("h:/x", "nfs://g/x"));
        assert!(!same("nfs://h:1/x", "nfs://h:2/x") && !same("h:/x", "nfs://h:2/x"));
    }

    #[test]
    fn a_mount_is_aborted_by_the_number_of_its_device() {
        let connections = tempfile::tempdir().unwrap();
        let at = |device: &str| {
            let entry = MountEntry {
                path: "/mnt".into(),
                device: device.to_owned(),
                file_system: TYPE.to_owned(),
                source: "nfs://h/x".into(),
                options: Vec::new(),
            };
            abort(connections.path(), &entry).map_err(|error| error.kind())
        };
        let file = connections.path().join("57/abort");
        std::fs::create_dir(connections.path().join("57")).unwrap();
        // Nothing is made where the control file system is not mounted.
        assert_eq!(at("0:57"), Err(io::ErrorKind::NotFound));
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        assert_eq!(at("8:57"), Err(io::ErrorKind::NotFound));
        assert_eq!(at("0:57/../57"), Err(io::ErrorKind::NotFound));
        assert_eq!(at("0:58"), Err(io::ErrorKind::NotFound));
        assert_eq!(std::fs::read(&file).unwrap(), b"");
        assert_eq!(at("0:57"), Ok(()));
        assert_eq!(std::fs::read(&file).unwrap(), b"1");
    }
}
