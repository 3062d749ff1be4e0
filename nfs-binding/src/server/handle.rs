//! File handles: the export, the object, and a MAC that proves that this server issued the handle.

use std::fmt;
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use onc_rpc::Decoder;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{self, Hasher128};

use crate::fs::directory::IdentityKey;
use crate::fs::{FileId, HandleMac};
use crate::proto::{FileHandle, Status};

/// The first byte of every handle: the version of the layout.
const LAYOUT: u8 = 1;
/// The offset of the export's number, after the version and three zero bytes.
const EXPORT: usize = 4;
/// The offset of the MAC.
const MAC: usize = 8;
/// The offset of the file system's own id.
const ID: usize = 16;

const _: () = assert!(ID + FileId::MAX_LEN == crate::proto::MAX_FILE_HANDLE as usize);

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;
/// The maximum number of attempts to load or create the key. An attempt fails if another server
/// creates the file meanwhile, and the next one if another process removes it again.
const ATTEMPTS: u32 = 10;

/// The length of a key, bytes.
const KEY_LEN: usize = 16;

/// The secret key that authenticates file handles, so that nobody can forge one: neither of an
/// object outside the export, nor of an object that they could not look up.
#[derive(Clone)]
pub struct HandleKey([u8; KEY_LEN]);

/// The reason why the key could be neither loaded nor created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleKeyError {
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    /// The key file cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The key file is empty, as after a power cut.
    #[error(
        "{} is empty, and should hold a key of 16 bytes: put it back from a backup, or remove the file and \
         a new key is made, with which the handles that clients have are stale", .0.display()
    )]
    Empty(PathBuf),
    /// Users other than its owner can access the key file.
    #[error(
        "{path} has mode {mode:04o}, and others than its owner can access the key and forge \
         the handle of any file: remove it, and a new key is made; or, if nobody has read it, chmod 600 \
         {path}", path = path.display()
    )]
    NotSecret {
        /// The file.
        path: PathBuf,
        /// The permission bits.
        mode: u32,
    },
    /// The key file belongs to another user.
    #[error(
        "{} belongs to uid {uid}, and the server runs as uid {us}: it has to be the server's own or root's",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The owner.
        uid: u32,
        /// The user of the server.
        us: u32,
    },
    /// The file does not contain a key.
    #[error("{} is not a key of {KEY_LEN} bytes: name another file, or one that does not exist yet", .0.display())]
    NotAKey(PathBuf),
}

impl HandleKey {
    /// Creates a random key. Handles made with it become invalid at a restart.
    ///
    /// # Errors
    /// [`HandleKeyError::Random`] if the system has no random numbers.
    pub fn random() -> Result<Self, HandleKeyError> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(HandleKeyError::Random)?;
        Ok(Self(key))
    }

    /// Derives the key for identities that do not fit into a handle and are hashed. It differs from
    /// the key of the MAC.
    pub(super) fn identity_key(&self) -> IdentityKey {
        let [low, high] = [1_u8, 2].map(|half| SipHasher24::new_with_key(&self.0).hash(&[half]));
        let both = (u128::from(high) << u64::BITS) | u128::from(low);
        IdentityKey::from_bytes(both.to_be_bytes())
    }

    /// Creates a key from its bytes.
    #[must_use]
    pub fn from_bytes(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// Loads the key from a file. If there is none, creates the file, readable only by its owner.
    /// With a stored key, handles survive a restart of the server. If several servers create the
    /// file at the same time, one succeeds and all use its key.
    ///
    /// # Errors
    /// [`HandleKeyError`] if the file cannot be read or written, does not contain a key, or is
    /// accessible by other users: whoever knows the key can forge the handle of any file.
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, HandleKeyError> {
        let path = path.as_ref();
        let failed = |source: Errno| HandleKeyError::File {
            path: path.to_path_buf(),
            source: source.into(),
        };
        for _ in 0..ATTEMPTS {
            match Self::load(path) {
                Err(HandleKeyError::File { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                outcome => return outcome,
            }
            let key = Self::random()?;
            match key.store(path) {
                Ok(()) => return Ok(key),
                // Another server was faster: use its key.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    fn load(path: &Path) -> Result<Self, HandleKeyError> {
        let owned = || path.to_path_buf();
        let failed = |source| HandleKeyError::File {
            path: owned(),
            source,
        };
        // The open must not block on a pipe.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty());
        let file = std::fs::File::from(file.map_err(|error| failed(error.into()))?);
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(HandleKeyError::NotAKey(owned()));
        }
        // First, so that a file which is not a key at all is not called an exposed one.
        if meta.len() != 0 && meta.len() != KEY_LEN as u64 {
            return Err(HandleKeyError::NotAKey(owned()));
        }
        let us = rustix::process::geteuid().as_raw();
        if meta.uid() != us && meta.uid() != 0 {
            return Err(HandleKeyError::Owner {
                path: owned(),
                uid: meta.uid(),
                us,
            });
        }
        let mode = meta.mode() & 0o7777;
        if mode & OTHERS != 0 {
            let path = owned();
            return Err(HandleKeyError::NotSecret { path, mode });
        }
        let mut key = Vec::new();
        // Reads one byte more than a key has, to detect longer files.
        file.take(KEY_LEN as u64 + 1)
            .read_to_end(&mut key)
            .map_err(failed)?;
        if key.is_empty() {
            return Err(HandleKeyError::Empty(owned()));
        }
        key.try_into()
            .map(Self)
            .map_err(|_| HandleKeyError::NotAKey(owned()))
    }

    /// Writes the key to a temporary file, syncs it, and renames it to `path`.
    ///
    /// # Errors
    /// `EEXIST` if `path` exists: it is never replaced.
    fn store(&self, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let folder = rustix::fs::open(above, flags, Mode::empty())?;
        let random = getrandom::u32().map_err(|_| Errno::IO)?;
        let mut temporary = std::ffi::OsString::from(".handle-key.");
        temporary.push(format!("{random:08x}"));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&folder, &temporary, flags, mode)?;
        let named = self.write_to(file).and_then(|()| {
            match renameat_with(&folder, &temporary, &folder, name, RenameFlags::NOREPLACE) {
                // Not all file systems support this flag.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::linkat(&folder, &temporary, &folder, name, AtFlags::empty())?;
                    rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty())
                }
                outcome => outcome,
            }
        });
        match named {
            Ok(()) => match rustix::fs::fsync(&folder) {
                Err(Errno::INVAL) => Ok(()),
                outcome => outcome,
            },
            Err(error) => {
                // Removing the temporary file is best effort: the error that matters is the earlier
                // one.
                let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
                Err(error)
            }
        }
    }

    fn write_to(&self, file: OwnedFd) -> Result<(), Errno> {
        let mut file = std::fs::File::from(file);
        let written = file.write_all(&self.0).and_then(|()| file.sync_all());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleKey(secret)")
    }
}

/// The identity of an export: a hash of its path and of the identity of its root directory
/// ([`FileSystem::root_identity`](crate::fs::FileSystem::root_identity)). It does not depend on the
/// other exports.
///
/// The root is part of it because a file system finds an object anywhere in it, also outside the
/// exported directory. So handles end when the path is given to another directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportIdentity([u8; 16]);

impl ExportIdentity {
    /// Creates the identity of an export from its normalised path and its root's identity.
    pub(super) fn new(path: &[u8], root: &[u8]) -> Self {
        let mut hasher = sip128::SipHasher24::new();
        // The length keeps a longer path apart from a longer identity.
        hasher.write(&(path.len() as u64).to_be_bytes());
        hasher.write(path);
        hasher.write(root);
        Self(hasher.finish128().as_bytes())
    }

    /// Returns the number of the export in handles.
    pub(super) fn number(self) -> u32 {
        let [one, two, three, four, ..] = self.0;
        u32::from_be_bytes([one, two, three, four])
    }
}

/// Returns the number of the export in the handle that the arguments of a call begin with. Whether
/// this server issued the handle is not checked.
pub(super) fn claimed_export(args: &mut Decoder<'_>) -> Option<u32> {
    let head: [u8; 4 + MAC] = args.words().ok()?;
    let (_, export) = head.split_last_chunk()?;
    Some(u32::from_be_bytes(*export))
}

/// The reason why a handle is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleError {
    /// The handle does not have the form of this program's handles (NFS3ERR_BADHANDLE).
    Malformed,
    /// The handle has the right form but was not made with this key, but probably by a server with
    /// another one. The client has to look up the file again, as with knfsd (NFS3ERR_STALE).
    OtherKey,
}

impl From<HandleError> for Status {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Malformed => Self::BADHANDLE,
            HandleError::OtherKey => Self::STALE,
        }
    }
}

/// Returns the number of the export in a handle. Whether this server issued the handle is not
/// checked.
///
/// # Errors
/// [`HandleError::Malformed`] if the handle does not have the form of this program's handles.
pub(super) fn export_in(handle: &FileHandle) -> Result<u32, HandleError> {
    match handle.as_bytes().first_chunk::<ID>() {
        Some(&[LAYOUT, 0, 0, 0, one, two, three, four, ..]) => {
            Ok(u32::from_be_bytes([one, two, three, four]))
        }
        _ => Err(HandleError::Malformed),
    }
}

/// Creates and checks the handles of one export.
pub(super) struct HandleCodec {
    /// The bytes before the MAC. They are the same in all handles of the export.
    head: [u8; MAC],
    /// The state of the MAC after these bytes and the export's identity, so that they are not
    /// hashed for each handle.
    begun: SipHasher24,
    /// The number by which a [`HandleMac`] knows this codec. No other of this process has it, also not one
    /// of the same export with another key.
    issuer: u64,
    /// The number of handles that were opened.
    #[cfg(test)]
    pub(super) opened: AtomicUsize,
}

impl fmt::Debug for HandleCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleCodec(secret)")
    }
}

impl HandleCodec {
    /// Creates a codec for an export.
    pub(super) fn new(key: &HandleKey, identity: ExportIdentity) -> Self {
        static ISSUERS: AtomicU64 = AtomicU64::new(1);
        let mut head = [0; MAC];
        head[0] = LAYOUT;
        head[EXPORT..].copy_from_slice(&identity.number().to_be_bytes());
        let mut begun = SipHasher24::new_with_key(&key.0);
        begun.write(&head);
        // The number alone has 32 bits: one in 2^32 other roots would have the same.
        begun.write(&identity.0);
        Self {
            head,
            begun,
            issuer: ISSUERS.fetch_add(1, Ordering::Relaxed),
            #[cfg(test)]
            opened: Default::default(),
        }
    }

    /// Computes the MAC of a handle over `head`, the export's identity and the object's file id.
    fn mac(&self, id: &FileId) -> u64 {
        let mut hasher = self.begun;
        // Hashing whole words avoids the hasher's byte buffer. The MAC is the same.
        let (words, rest) = id.as_bytes().as_chunks();
        for word in words {
            hasher.write_u64(u64::from_ne_bytes(*word));
        }
        hasher.write(rest);
        hasher.finish()
    }

    /// Creates the handle of an object, with the MAC that the file system keeps with the object, if it
    /// does.
    #[inline]
    pub(super) fn issue(&self, id: &FileId, kept: Option<&HandleMac>) -> FileHandle {
        let mut bytes = [0; ID + FileId::MAX_LEN];
        bytes[..MAC].copy_from_slice(&self.head);
        let mac = || self.mac(id);
        let mac = kept.map_or_else(mac, |kept| kept.of_issuer(self.issuer, mac));
        bytes[MAC..ID].copy_from_slice(&mac.to_be_bytes());
        bytes[ID..].copy_from_slice(id.padded());
        FileHandle::from_array(ID + id.as_bytes().len(), bytes)
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// [`HandleError`] if the handle was not made with this key for this export.
    pub(super) fn open(&self, handle: &FileHandle) -> Result<FileId, HandleError> {
        #[cfg(test)]
        self.opened.fetch_add(1, Ordering::Relaxed);
        let bytes = handle.as_bytes();
        let id = bytes.get(ID..).and_then(FileId::new);
        let id = id.ok_or(HandleError::Malformed)?;
        // The comparison takes constant time, so that its duration does not reveal how many bytes
        // are right.
        let differs = self
            .head
            .iter()
            .chain(&self.mac(&id).to_be_bytes())
            .zip(bytes)
            .fold(0, |differs, (one, other)| differs | (one ^ other));
        match differs {
            0 => Ok(id),
            _ => Err(HandleError::OtherKey),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns an identity with this number.
    fn identity(number: u32, rest: u8) -> ExportIdentity {
        let mut bytes = [rest; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        ExportIdentity(bytes)
    }

    #[test]
    fn an_export_is_its_path_and_its_root() {
        let numbers = [("a", "root"), ("b", "root"), ("a", "other"), ("aroot", "")]
            .map(|(path, root)| ExportIdentity::new(path.as_bytes(), root.as_bytes()).number());
        for (at, number) in numbers.iter().enumerate() {
            assert!(!numbers[..at].contains(number), "{numbers:?}");
        }
        let again = ExportIdentity::new(b"a", b"root");
        assert_eq!(again.number(), numbers[0]);
    }

    #[test]
    fn only_own_handles_are_taken() {
        let key = HandleKey::from_bytes([7; 16]);
        let codec = HandleCodec::new(&key, identity(99, 1));
        let opened = |codec: &HandleCodec, handle: &FileHandle| {
            export_in(handle).and_then(|export| Ok((export, codec.open(handle)?)))
        };
        for len in [0, 16, 48] {
            let id = FileId::new(&vec![3; len]).unwrap();
            let kept = HandleMac::default();
            let handle = codec.issue(&id, Some(&kept));
            assert_eq!(opened(&codec, &handle), Ok((99, id)));
            for at in 0..handle.as_bytes().len() {
                let mut bytes = handle.as_bytes().to_vec();
                bytes[at] ^= 1;
                let error = match at < EXPORT {
                    true => HandleError::Malformed,
                    false => HandleError::OtherKey,
                };
                let changed = FileHandle::new(&bytes).unwrap();
                assert_eq!(opened(&codec, &changed), Err(error), "byte {at}");
            }
            let cut = &handle.as_bytes()[..handle.as_bytes().len() - 1];
            let error = match len {
                0 => HandleError::Malformed,
                _ => HandleError::OtherKey,
            };
            assert_eq!(opened(&codec, &FileHandle::new(cut).unwrap()), Err(error));
            for (key, export) in [(8, (99, 1)), (7, (98, 1)), (7, (99, 2))] {
                let key = HandleKey::from_bytes([key; 16]);
                let other = HandleCodec::new(&key, identity(export.0, export.1));
                assert_eq!(opened(&other, &handle), Err(HandleError::OtherKey));
                // An object that two servers or exports have keeps the MAC of one of them at a time.
                let others = other.issue(&id, Some(&kept));
                assert_eq!(opened(&other, &others), Ok((export.0, id)));
                assert_eq!(codec.issue(&id, Some(&kept)), handle);
            }
        }
        for garbage in [&b""[..], &[0xff; 64], &[0; 32]] {
            let garbage = FileHandle::new(garbage).unwrap();
            assert_eq!(opened(&codec, &garbage), Err(HandleError::Malformed));
        }
    }

    /// Handles that clients keep stay valid with later releases: the MAC is SipHash-2-4 over all bytes
    /// but its own, with the export's identity in its place.
    #[test]
    fn the_mac_is_that_of_the_whole_handle() {
        let export = identity(99, 1);
        let codec = HandleCodec::new(&HandleKey::from_bytes([7; 16]), export);
        for len in [0, 5, 16, 48] {
            let id = FileId::new(&vec![3; len]).unwrap();
            let handle = codec.issue(&id, None);
            let kept = HandleMac::default();
            for _ in 0..2 {
                assert_eq!(codec.issue(&id, Some(&kept)), handle);
            }
            let (head, rest) = handle.as_bytes().split_at(MAC);
            let (mac, id) = rest.split_at(ID - MAC);
            let whole = SipHasher24::new_with_key(&[7; 16]).hash(&[head, &export.0, id].concat());
            assert_eq!(mac, whole.to_be_bytes());
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let made = HandleKey::load_or_create(&path).unwrap();
        assert_eq!(HandleKey::load_or_create(&path).unwrap().0, made.0);
        std::fs::write(&path, b"too short").unwrap();
        let error = HandleKey::load_or_create(&path).unwrap_err();
        assert!(error.to_string().contains("not a key"), "{error}");
        std::fs::write(&path, b"").unwrap();
        let error = HandleKey::load_or_create(&path).unwrap_err();
        assert!(matches!(error, HandleKeyError::Empty(_)), "{error}");
        assert!(error.to_string().contains("remove the file"), "{error}");
        let nowhere = dir.path().join("no/such/dir");
        let error = HandleKey::load_or_create(nowhere).unwrap_err();
        assert!(matches!(error, HandleKeyError::File { .. }));
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "nothing but the key: {names:?}");
    }

    #[test]
    fn a_key_that_is_not_its_owners_alone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        HandleKey::load_or_create(&path).unwrap();
        let set = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for mode in [0o644, 0o640, 0o620, 0o601, 0o660] {
            set(mode);
            let error = HandleKey::load_or_create(&path).unwrap_err();
            assert!(matches!(error, HandleKeyError::NotSecret { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        for mode in [0o600, 0o400] {
            set(mode);
            HandleKey::load_or_create(&path).unwrap();
        }
        // A file that was named by mistake should not be removed.
        let hosts = dir.path().join("hosts");
        std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
        let error = HandleKey::load_or_create(&hosts).unwrap_err();
        assert!(matches!(error, HandleKeyError::NotAKey(_)), "{error}");
        if !rustix::process::geteuid().is_root() {
            let line = b"left out, for it needs root: a key that belongs to somebody else\n";
            io::stderr().write_all(line).unwrap();
            return;
        }
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let error = HandleKey::load_or_create(&path).unwrap_err();
        assert!(
            matches!(error, HandleKeyError::Owner { uid: 1234, .. }),
            "{error}"
        );
    }

    #[test]
    fn servers_that_start_at_once_have_one_key() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("key");
            let start = std::sync::Barrier::new(8);
            let keys = std::thread::scope(|scope| {
                let servers = [(); 8].map(|()| {
                    scope.spawn(|| {
                        start.wait();
                        HandleKey::load_or_create(&path).unwrap().0
                    })
                });
                servers.map(|server| server.join().unwrap())
            });
            assert_eq!(keys, [keys[0]; 8]);
            assert_eq!(HandleKey::load_or_create(&path).unwrap().0, keys[0]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
