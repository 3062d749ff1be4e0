//! The folder in which the lab keeps what it downloads, builds and logs.
//!
//! A *step* of the build has a folder and a *key*: a text that names everything the step is made
//! from. The key is kept beside the result, and the step is current if it is equal, letter for
//! letter. So a key needs no hash, and `diff` says why something is built again.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Name of the file with a step's key.
const KEY: &str = "key";

/// The cache folder.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// While it lives, no other lab works in the cache folder.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl Cache {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// [`Error::CachePath`], or [`Error::File`] when the folder cannot be made.
    pub fn new(root: &Path) -> Result<Self, Error> {
        let root = std::path::absolute(root).map_err(Error::file(root))?;
        let misread = |c: char| c.is_whitespace() || matches!(c, ',' | ':' | '"' | '\'');
        if root.to_str().is_none_or(|path| path.contains(misread)) {
            return Err(Error::CachePath(root));
        }
        fs::create_dir_all(&root).map_err(Error::file(&root))?;
        Ok(Self { root })
    }

    /// Takes the cache folder for this process.
    ///
    /// # Errors
    /// [`Error::Busy`], or [`Error::File`].
    pub fn lock(&self) -> Result<Lock, Error> {
        let path = self.root.join("lock");
        let file = File::create(&path).map_err(Error::file(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(Error::Busy(self.root.clone())),
            Err(TryLockError::Error(source)) => Err(Error::File { path, source }),
        }
    }

    /// A file or folder in the cache folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where a step's results are.
    #[must_use]
    pub fn step(&self, name: &str) -> PathBuf {
        self.root.join("steps").join(name)
    }

    /// Whether the step was built from what this key names.
    #[must_use]
    pub fn is_current(&self, name: &str, key: &str) -> bool {
        fs::read_to_string(self.step(name).join(KEY)).is_ok_and(|built_from| built_from == key)
    }

    /// Builds a step: `work` fills a new folder, which takes the place of the old one only when it
    /// is complete. An interrupted build leaves nothing that looks finished.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::File`].
    pub fn build(
        &self,
        name: &str,
        key: &str,
        work: impl FnOnce(&Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let done = self.step(name);
        let new = self.step(&format!("{name}.new"));
        remove(&new)?;
        fs::create_dir_all(&new).map_err(Error::file(&new))?;
        work(&new)?;
        write(&new.join(KEY), key)?;
        remove(&done)?;
        fs::rename(&new, &done).map_err(Error::file(&done))
    }
}

/// Removes a folder, if it is there, with all that is in it.
///
/// # Errors
/// [`Error::File`].
pub fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file(folder)(error))
        }
        _ => Ok(()),
    }
}

/// Writes a file, and makes the folder that it is in.
///
/// # Errors
/// [`Error::File`].
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    fs::write(path, text).map_err(Error::file(path))
}

/// Reads a file of text.
///
/// # Errors
/// [`Error::File`].
pub fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path()).unwrap();
        (folder, cache)
    }

    #[test]
    fn a_step_is_current_until_its_key_changes() {
        let (_folder, cache) = cache();
        assert!(!cache.is_current("siw", "a"));
        cache
            .build("siw", "a", |to| write(&to.join("siw.ko"), "x"))
            .unwrap();
        assert!(cache.is_current("siw", "a"));
        assert!(!cache.is_current("siw", "a "));
        assert!(!cache.is_current("siw", "b"));
    }

    #[test]
    fn a_failed_build_leaves_the_old_result() {
        let (_folder, cache) = cache();
        let file = cache.step("siw").join("siw.ko");
        cache
            .build("siw", "a", |to| write(&to.join("siw.ko"), "old"))
            .unwrap();
        let failed = cache.build("siw", "b", |to| {
            write(&to.join("siw.ko"), "half")?;
            Err(Error::Interrupted)
        });
        assert!(failed.is_err());
        assert_eq!(read(&file).unwrap(), "old");
        assert!(cache.is_current("siw", "a") && !cache.is_current("siw", "b"));
        // What the failed one left behind does not leak into the next.
        cache.build("siw", "c", |_| Ok(())).unwrap();
        assert!(cache.is_current("siw", "c") && !file.exists());
    }

    #[test]
    fn one_lab_at_a_time() {
        let (_folder, cache) = cache();
        let lock = cache.lock().unwrap();
        assert!(matches!(cache.lock(), Err(Error::Busy(_))));
        drop(lock);
        cache.lock().unwrap();
    }

    #[test]
    fn paths_that_qemu_would_misread_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a,b", "a b", "a:b"] {
            let refused = Cache::new(&folder.path().join(name));
            assert!(matches!(refused, Err(Error::CachePath(_))), "{name}");
        }
    }
}
