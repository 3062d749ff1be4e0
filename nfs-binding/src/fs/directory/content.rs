//! READ, WRITE, COMMIT, and what is stable when.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, pread, pwrite};

use super::*;

impl DirectoryFs {
    /// READ.
    pub(super) fn read_content(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<Read> {
        let node = self.find(file)?.node;
        permission::require_io(&node.attributes()?, who, permission::READ)?;
        if node.file_type == FileType::Directory {
            return Err(FsError::IsDirectory);
        }
        let content = node.content(&self.files, false)?;
        // Offsets that the host does not have are beyond the end of every file.
        let possible = MAX_FILE_SIZE.saturating_sub(offset).min(buf.len() as u64);
        let buf = &mut buf[..possible as usize];
        let mut count = 0;
        while count < buf.len() {
            match pread(&content.fd, &mut buf[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let attributes = node.attributes()?;
        Ok(Read {
            count: count as u32,
            eof: offset.saturating_add(count as u64) >= attributes.size,
            attributes,
        })
    }

    /// WRITE.
    pub(super) fn write_content(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &[u8],
        stable: Stable,
    ) -> Change<Written> {
        let mut written = None;
        let mut change = self.change(file, |handle, now, _| {
            permission::require_io(now, who, permission::WRITE)?;
            let content = handle.node.content(&self.files, true)?;
            let end = offset.checked_add(data.len() as u64);
            if end.is_none_or(|end| end > MAX_FILE_SIZE) {
                return Err(FsError::FileTooLarge);
            }
            let count = write_all(&content.fd, offset, data)?;
            let mode = permission::without_set_id(now.mode);
            // The host takes them away itself unless the writer is privileged, as we are.
            if mode != now.mode && !who.is_root() && count > 0 {
                self.files.chmod(handle.node.as_fd(), mode)?;
            }
            written = Some((Arc::clone(&handle.node), content));
            Ok(count)
        });
        // Synchronised without holding the file: other writes can go on, and share the wait.
        if let Some((node, content)) = written
            && stable != Stable::Unstable
        {
            if let Err(error) = self.synchronise(&content.fd, stable) {
                change.result = Err(error);
            }
            node.close_writable();
        }
        Change {
            wcc: change.wcc,
            result: change.result.map(|count| Written {
                count: count as u32,
                committed: stable,
            }),
        }
    }

    /// COMMIT. The whole file is synchronised: the host offers no less that is safe.
    pub(super) fn commit_content(
        &self,
        who: &Caller,
        file: &FileId,
        _offset: u64,
        _count: u32,
    ) -> Change<()> {
        let change = self.change(file, |handle, now, unstable| {
            permission::require_io(now, who, permission::WRITE)?;
            if handle.node.file_type == FileType::Directory {
                return Err(FsError::IsDirectory);
            }
            handle.node.content(&self.files, false)?;
            unstable.push(Arc::clone(&handle.node));
            Ok(Arc::clone(&handle.node))
        });
        // The client is likely done with it.
        let result = change.result.map(|node| node.close_writable());
        Change {
            wcc: change.wcc,
            result,
        }
    }

    /// Brings a file's data, and as much of its attributes as asked for, to stable storage.
    fn synchronise(&self, fd: &OwnedFd, stable: Stable) -> FsResult<()> {
        let result = match stable {
            _ if !self.options.sync => Ok(()),
            Stable::Unstable => Ok(()),
            Stable::DataSync => rustix::fs::fdatasync(fd),
            Stable::FileSync => rustix::fs::fsync(fd),
        };
        result.map_err(|error| self.lost_writes(error))
    }

    /// Unstable writes may be lost: clients have to send them again, which another verifier tells
    /// them.
    fn lost_writes(&self, error: Errno) -> FsError {
        let changed =
            getrandom::u64().unwrap_or_else(|_| self.verifier.load(Ordering::Acquire) + 1);
        self.verifier.store(changed, Ordering::Release);
        tracing::error!(%error, "synchronising failed: unstable writes may be lost");
        error.into()
    }

    /// Brings files and their attributes, and the entries of directories, to stable storage.
    pub(super) fn make_stable(&self, nodes: &[Arc<Node>]) -> FsResult<()> {
        for node in nodes {
            if self.options.sync {
                let result = match node.file_type {
                    FileType::Regular | FileType::Directory => {
                        rustix::fs::fsync(&node.content(&self.files, false)?.fd)
                    }
                    // Nothing else can be opened without effects: the whole file system instead.
                    _ => rustix::fs::syncfs(&self.root.content(&self.files, false)?.fd),
                };
                result.map_err(|error| self.lost_writes(error))?;
            }
        }
        Ok(())
    }
}

/// Writes as much as can be; fails only when that is nothing.
fn write_all(fd: &OwnedFd, offset: u64, data: &[u8]) -> FsResult<usize> {
    let mut count = 0;
    while count < data.len() {
        match pwrite(fd, &data[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(n) => count += n,
            Err(Errno::INTR) => {}
            Err(_) if count > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}
