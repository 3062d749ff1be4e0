//! The cache directory with downloads, build results and logs.
//!
//! A *step* of the build has a directory and a *key*: a text that names everything the step is made
//! from. The key is stored beside the result. The step is current if the stored key is equal,
//! character by character. So a key needs no hash, and `diff` shows why a step is built again.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The name of the file with a step's key.
const KEY: &str = "key";

/// The cache directory.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// A lock that keeps other labs from working in the cache directory.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing the file unlocks it")] File);

impl Cache {
    /// Creates the directory if it does not exist.
    ///
    /// # Errors
    /// [`Error::CachePath`], or [`Error::File`] if the directory cannot be created.
    pub fn new(root: &Path) -> Result<Self, Error> {
        let root = std::path::absolute(root).map_err(Error::file(root))?;
        let misread = |c: char| c.is_whitespace() || matches!(c, ',' | ':' | '"' | '\'');
        if root.to_str().is_none_or(|path| path.contains(misread)) {
            return Err(Error::CachePath(root));
        }
        fs::create_dir_all(&root).map_err(Error::file(&root))?;
        Ok(Self { root })
    }

    /// Locks the cache directory for this process.
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

    /// Returns the path of a file or directory in the cache.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Returns the directory of a step's results.
    #[must_use]
    pub fn step(&self, name: &str) -> PathBuf {
        self.root.join("steps").join(name)
    }

    /// Returns whether the step was built with this key.
    #[must_use]
    pub fn is_current(&self, name: &str, key: &str) -> bool {
        fs::read_to_string(self.step(name).join(KEY)).is_ok_and(|built_from| built_from == key)
    }

    /// Builds a step: `work` fills a new directory, which replaces the old one only when it is
    /// complete. An interrupted build leaves no result that looks complete.
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

/// Removes a directory with everything in it, if it exists.
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

/// Writes a file, and creates its directory.
///
/// # Errors
/// [`Error::File`].
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
    }
    fs::write(path, text).map_err(Error::file(path))
}

/// Reads a text file.
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
        // Files of the failed build are not part of the next.
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
