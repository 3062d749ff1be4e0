//! READ, WRITE and COMMIT, and their guarantees of stable storage.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use onc_rpc::Bulk;
use rustix::fs::Access as Wanted;
use rustix::io::{Errno, pread, pwritev};

use super::host::MAX_PIECES;
use super::*;

impl Served {
    /// Executes READ.
    pub(super) fn read_content(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        buf: &mut [u8],
    ) -> FsResult<Read> {
        let node = self.find(file)?;
        require_file(&node)?;
        let _as_caller = self.authority.impersonate(who)?;
        self.may_io(&node, who, Wanted::READ_OK)?;
        let content = self.content(&node, Purpose::Read)?;
        let wanted = buf.len();
        // Offsets that the host does not support are beyond the end of every file.
        let possible = host::MAX_OFFSET
            .saturating_sub(offset)
            .min(buf.len() as u64);
        let buf = &mut buf[..possible as usize];
        let count = self.read_by_either(&node, &content, offset, buf)?;
        let attributes = node.attributes();
        let attributes = attributes.inspect_err(|error| self.forget_if_gone(&node, *error))?;
        Ok(Read {
            count: count as u32,
            eof: is_end(offset, count, wanted, attributes.size),
            attributes,
        })
    }

    /// Executes WRITE.
    ///
    /// The attributes before the write are read just before it, and only other writes of this export
    /// are locked out. So a client cannot see that a local process, or a client of another export of
    /// the same files, wrote between the two. The Linux server omits them; without them, the
    /// Linux client takes every change for its own. With direct I/O, other writes are not locked out,
    /// and if there were any at the same time, the attributes are omitted as well.
    pub(super) fn write_content(
        &self,
        who: &Caller,
        file: &FileId,
        offset: u64,
        data: &Bulk,
        stable: Stable,
    ) -> Change<Written> {
        let mut written = None;
        let write = |node: &Arc<Node>, _: &Attributes, _: &mut Unstable| {
            require_file(node)?;
            self.may_io(node, who, Wanted::WRITE_OK)?;
            let _writing = node.begin_write();
            let content = self.content(node, Purpose::Write)?;
            let failures = node.failures();
            let end = offset.checked_add(data.len() as u64);
            if end.is_none_or(|end| end > host::MAX_OFFSET) {
                return Err(FsError::FileTooLarge);
            }
            let count = self.write_by_either(node, &content, offset, data)?;
            node.written();
            written = Some((Arc::clone(node), content, failures));
            Ok(count)
        };
        // Direct writes wait for the device, so they do not wait for one another.
        let mut change = match self.direct_io {
            Some(_) => self.change_beside(who, file, write),
            None => self.change(who, file, write),
        };
        // The sync runs without the file's lock: other writes can go on and share the wait.
        if let Some((node, content, failures)) = written
            && stable != Stable::Unstable
        {
            let synchronised = self.synchronise(&node, &content.fd, stable);
            // A failure since the write may have lost this call's data, even if it was reported to another
            // call's sync. It is reported here as well, because a client that asked for stable storage does
            // not check the verifier.
            if let Err(error) = synchronised {
                change.result = Err(error);
            } else if node.failures() != failures {
                change.result = Err(Errno::IO.into());
            }
            self.close_writable(&node);
        }
        Change {
            wcc: change.wcc,
            result: change.result.map(|count| Written {
                count: count as u32,
                committed: stable,
            }),
        }
    }

    /// Executes COMMIT. It syncs the whole file, because the host offers no safe way to sync less.
    pub(super) fn commit_content(
        &self,
        who: &Caller,
        file: &FileId,
        _offset: u64,
        _count: u32,
    ) -> Change<()> {
        let commit = |node: &Arc<Node>, _: &Attributes, unstable: &mut Unstable| {
            require_file(node)?;
            self.may_io(node, who, Wanted::WRITE_OK)?;
            unstable.push(Arc::clone(node));
            Ok(Arc::clone(node))
        };
        // It does not wait for direct writes, which wait for the device: it is for those that have ended.
        let change = match self.direct_io {
            Some(_) => self.change_beside(who, file, commit),
            None => self.change(who, file, commit),
        };
        let result = change.result.map(|node| self.close_writable(&node));
        Change {
            wcc: change.wcc,
            result,
        }
    }
}

/// Returns whether a READ at `offset` that got `count` of `wanted` bytes reached the end of the file, whose
/// size was determined after that.
pub(super) fn is_end(offset: u64, count: usize, wanted: usize, size: u64) -> bool {
    // The file may have grown since the host had no more bytes of it. A reply without data and without
    // the end makes clients report an error; knfsd reports the end as well (`nfsd_eof_on_read`).
    let nothing_left = count == 0 && wanted > 0;
    nothing_left || offset.saturating_add(count as u64) >= size
}

/// Checks that an object is a regular file, which can be read and written.
pub(super) fn require_file(node: &Node) -> FsResult<()> {
    match node.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(FsError::IsDirectory),
        _ => Err(FsError::Invalid),
    }
}

/// Reads up to the end of the file, or until `buf` is full.
pub(super) fn read_all(fd: &OwnedFd, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
    let mut count = 0;
    while count < buf.len() {
        match pread(fd, &mut buf[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(n) => count += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

/// Writes as much as possible without copying. Fails only if nothing could be written.
pub(super) fn write_all(
    fd: &OwnedFd,
    offset: u64,
    mut pieces: &mut [IoSlice<'_>],
) -> FsResult<usize> {
    let mut count = 0;
    while !pieces.is_empty() {
        let most = pieces.len().min(MAX_PIECES);
        match pwritev(fd, &pieces[..most], offset + count as u64) {
            Ok(0) => break,
            Ok(n) => {
                count += n;
                IoSlice::advance_slices(&mut pieces, n);
            }
            Err(Errno::INTR) => {}
            Err(_) if count > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_nothing_is_the_end_also_if_the_file_has_grown() {
        for (offset, count, wanted, size, end) in [
            (0, 10, 20, 10, true),
            (0, 10, 10, 11, false),
            (0, 10, 20, 11, false),
            (10, 0, 20, 10, true),
            // Another process wrote between the host's read and its answer about the size.
            (10, 0, 20, 11, true),
            (10, 0, 0, 11, false),
            (10, 0, 0, 10, true),
            (u64::MAX, 0, 1, 10, true),
        ] {
            let seen = is_end(offset, count, wanted, size);
            assert_eq!(seen, end, "{count} of {wanted} at {offset} of {size}");
        }
    }
}
