//! File handles: which export, which object, and proof that this server made it.

use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher24;

use crate::fs::FileId;
use crate::proto::FileHandle;

/// First byte of every handle: the layout below.
const LAYOUT: u8 = 1;
/// Where the export's number is, after the layout and three zero bytes.
const EXPORT: usize = 4;
/// Where the proof is.
const PROOF: usize = 8;
/// Where the file system's own id is.
const ID: usize = 16;

const _: () = assert!(ID + FileId::MAX_LEN == crate::proto::MAX_FILE_HANDLE as usize);

/// A secret that file handles are authenticated with, so that nobody can make one: not of an object
/// outside the export, nor of one it could not look up.
#[derive(Clone)]
pub struct HandleKey([u8; 16]);

/// A key could neither be had nor made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleKeyError {
    /// No randomness.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    /// The key's file cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a key.
    #[error("{} is not a key of 16 bytes", .0.display())]
    NotAKey(PathBuf),
}

impl HandleKey {
    /// A new key. Handles made with it are of no use after a restart.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn random() -> Result<Self, HandleKeyError> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(HandleKeyError::Random)?;
        Ok(Self(key))
    }

    /// A key from its bytes.
    #[must_use]
    pub fn from_bytes(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// The key in a file; makes it, readable by its owner alone, if there is none. With it, handles
    /// outlive the server.
    ///
    /// # Errors
    /// The file cannot be read or written, or is something else.
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, HandleKeyError> {
        let path = path.as_ref();
        let failed = |source| HandleKeyError::File {
            path: path.to_path_buf(),
            source,
        };
        match std::fs::File::open(path) {
            Ok(file) => {
                let mut key = Vec::new();
                file.take(17).read_to_end(&mut key).map_err(failed)?;
                key.try_into()
                    .map(Self)
                    .map_err(|_| HandleKeyError::NotAKey(path.to_path_buf()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Self::random()?;
                let mut options = std::fs::OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(failed)?;
                file.write_all(&key.0).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                Ok(key)
            }
            Err(error) => Err(failed(error)),
        }
    }
}

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(secret)")
    }
}

/// The number of an export in handles: a hash of its path, so that it does not depend on what else
/// is exported.
pub(super) fn export_number(path: &[u8]) -> u32 {
    SipHasher24::new().hash(path) as u32
}

/// Makes and checks handles.
#[derive(Debug)]
pub(super) struct HandleCodec {
    key: HandleKey,
}

impl HandleCodec {
    /// With this key.
    pub(super) fn new(key: &HandleKey) -> Self {
        Self { key: key.clone() }
    }

    /// The proof for what is in `handle` besides it.
    fn proof(&self, handle: &[u8]) -> [u8; 8] {
        let mut data = [0; 64 - 8];
        let len = handle.len() - (ID - PROOF);
        data[..PROOF].copy_from_slice(&handle[..PROOF]);
        data[PROOF..len].copy_from_slice(&handle[ID..]);
        SipHasher24::new_with_key(&self.key.0)
            .hash(&data[..len])
            .to_be_bytes()
    }

    /// The handle of an object.
    pub(super) fn seal(&self, export: u32, id: &FileId) -> FileHandle {
        let mut bytes = [0; 64];
        let id = id.as_bytes();
        bytes[0] = LAYOUT;
        bytes[EXPORT..PROOF].copy_from_slice(&export.to_be_bytes());
        bytes[ID..ID + id.len()].copy_from_slice(id);
        let handle = &mut bytes[..ID + id.len()];
        let proof = self.proof(handle);
        handle[PROOF..ID].copy_from_slice(&proof);
        FileHandle::new(handle).expect("at most 64 bytes")
    }

    /// Export and object of a handle; `None` if it was not made with this key.
    pub(super) fn open(&self, handle: &FileHandle) -> Option<(u32, FileId)> {
        let bytes = handle.as_bytes();
        if bytes.len() < ID || bytes[..EXPORT] != [LAYOUT, 0, 0, 0] {
            return None;
        }
        // In constant time: how many bytes are right is not to be told by how long it takes.
        let differs = self
            .proof(bytes)
            .iter()
            .zip(&bytes[PROOF..ID])
            .fold(0, |differs, (one, other)| differs | (one ^ other));
        if differs != 0 {
            return None;
        }
        let export = bytes[EXPORT..PROOF]
            .try_into()
            .map(u32::from_be_bytes)
            .ok()?;
        Some((export, FileId::new(&bytes[ID..])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_handles_are_taken() {
        let codec = HandleCodec::new(&HandleKey::from_bytes([7; 16]));
        for len in [0, 16, 48] {
            let id = FileId::new(&vec![3; len]).unwrap();
            let handle = codec.seal(99, &id);
            assert_eq!(codec.open(&handle), Some((99, id)));
            for at in 0..handle.as_bytes().len() {
                let mut bytes = handle.as_bytes().to_vec();
                bytes[at] ^= 1;
                assert_eq!(
                    codec.open(&FileHandle::new(&bytes).unwrap()),
                    None,
                    "byte {at}"
                );
            }
            let cut = &handle.as_bytes()[..handle.as_bytes().len() - 1];
            assert_eq!(codec.open(&FileHandle::new(cut).unwrap()), None);
            let other = HandleCodec::new(&HandleKey::from_bytes([8; 16]));
            assert_eq!(other.open(&handle), None);
        }
        assert_eq!(codec.open(&FileHandle::new(b"").unwrap()), None);
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
        let nowhere = dir.path().join("no/such/dir");
        let error = HandleKey::load_or_create(nowhere).unwrap_err();
        assert!(matches!(error, HandleKeyError::File { .. }));
    }
}
