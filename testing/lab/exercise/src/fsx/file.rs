//! A file of a mounted file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, fadvise};
use vmap::{Flush, MapMut, Span};

use super::{Kind, Subject};

/// An open file, and the same file opened with `O_DIRECT`.
#[derive(Debug)]
pub struct MountedFile {
    path: PathBuf,
    file: File,
    direct: Option<File>,
}

impl MountedFile {
    /// Creates the file.
    ///
    /// # Errors
    /// The file exists or cannot be created, or the file system does not support `direct`.
    pub fn create(path: &Path, direct: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        let direct = direct.then(|| open_direct(path)).transpose()?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            direct,
        })
    }

    fn for_kind(&self, kind: Kind) -> &File {
        match (kind, &self.direct) {
            (Kind::DirectRead | Kind::DirectWrite, Some(direct)) => direct,
            _ => &self.file,
        }
    }

    fn map(&self, offset: usize, len: usize) -> io::Result<MapMut> {
        let mut options = MapMut::with_options();
        options.write().offset(offset).len(len);
        options.map(&self.file).map_err(io::Error::other)
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
}

impl Subject for MountedFile {
    fn read(&mut self, kind: Kind, offset: usize, len: usize) -> io::Result<Vec<u8>> {
        if kind == Kind::MapRead {
            return Ok(self.map(offset, len)?.to_vec());
        }
        let file = self.for_kind(kind);
        let mut bytes = vec![0; len];
        let mut got = 0;
        // Only the end of the file may end the reads early.
        while got < len {
            match file.read_at(&mut bytes[got..], (offset + got) as u64)? {
                0 => break,
                count => got += count,
            }
        }
        bytes.truncate(got);
        Ok(bytes)
    }

    fn write(&mut self, kind: Kind, offset: usize, bytes: &[u8]) -> io::Result<()> {
        if kind != Kind::MapWrite {
            return self.for_kind(kind).write_all_at(bytes, offset as u64);
        }
        let end = offset + bytes.len();
        if self.size()? < end as u64 {
            self.truncate(end)?;
        }
        let mut map = self.map(offset, bytes.len())?;
        map.copy_from_slice(bytes);
        // One in four, depending on the length, is synced at once; the others whenever the kernel
        // chooses.
        if map.len() % 4 == 0 {
            map.flush(&self.file, Flush::Sync)
                .map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) -> io::Result<()> {
        self.file.set_len(len as u64)
    }

    fn settle(&mut self, kind: Kind) -> io::Result<()> {
        match kind {
            Kind::Reopen => {
                let mut options = OpenOptions::new();
                self.file = options.read(true).write(true).open(&self.path)?;
                if self.direct.is_some() {
                    self.direct = Some(open_direct(&self.path)?);
                }
                Ok(())
            }
            Kind::Forget => {
                self.file.sync_all()?;
                Ok(fadvise(&self.file, 0, None, Advice::DontNeed)?)
            }
            _ => self.file.sync_all(),
        }
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
