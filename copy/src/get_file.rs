//! Copies the content of files from a server to this machine.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nfs_binding::client::{Object, Place, RpcClient};
use nfs_binding::escape::escape;
use nfs_binding::proto::Attributes;
use rustix::fs::FileType as Kind;
use rustix::io::Errno;

use super::get::{Get, Item, in_the_way, keep_device};
use super::ledger::Ledger;
use super::local::{file_error, finish_file, set_len, sync, write_at};
use super::temporary::under_temporary_name;
use super::{CopyError, Sparse};

/// The maximum number of READs of one file in flight. The budget limits their bytes.
const READS: usize = 16;
/// The unit and alignment of holes in bytes: the block size of common file systems.
const BLOCK: usize = 4096;
static ZEROES: [u8; BLOCK] = [0; BLOCK];

/// A file that is being copied under a temporary name. Dropping it removes the file, unless it was
/// renamed to its final name.
struct Partial<'i, 'l> {
    fd: OwnedFd,
    item: &'i Item,
    ledger: &'l Ledger<'l>,
    /// The number of bytes that were counted as transferred.
    counted: Cell<u64>,
    /// The temporary name. `None` after the rename.
    temporary: Option<Vec<u8>>,
}

impl Partial<'_, '_> {
    /// Renames the file to its final name and replaces an existing one.
    fn put_in_place(mut self) -> Result<(), CopyError> {
        let item = self.item;
        if let Some(temporary) = &self.temporary {
            let renamed = item.dir.info.local.rename(temporary, item.local());
            renamed.map_err(|error| match error {
                // Another process created it meanwhile.
                Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => in_the_way(item, true),
                error => item.failed("naming")(error),
            })?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Partial<'_, '_> {
    fn drop(&mut self) {
        if self.temporary.is_some() {
            let removed = self.counted.get();
            self.ledger.count(|totals| totals.bytes_removed += removed);
        }
        if let Some(temporary) = &self.temporary
            && let Err(error) = self.item.dir.info.local.remove(temporary)
        {
            let path = self.item.dir.info.local.path(temporary);
            let path = escape(path.as_os_str().as_bytes());
            tracing::warn!(%path, %error, "cannot remove an incomplete file");
        }
    }
}

/// The state of a file that is being read from the server.
struct Target<'i, 'l> {
    partial: Partial<'i, 'l>,
    item: &'i Item,
    object: &'i Object,
    /// Whether zeroes become holes.
    sparse: bool,
    /// Whether the file has changed on the server since it was listed.
    changed: Cell<bool>,
    /// The number of bytes to copy: the size in the listing, or less if a READ found the end before.
    len: Cell<u64>,
}

impl<'a, C: RpcClient> Get<'a, C> {
    /// Copies a regular file.
    pub(super) async fn file(&self, item: &Item, object: &Object) -> Result<(), CopyError> {
        let _open = self.open_files.take(1).await;
        let attributes = &object.attributes;
        let target = Target {
            partial: self.open(item, object).await?,
            item,
            object,
            sparse: match self.options.sparse {
                Sparse::Auto => attributes.used < attributes.size,
                Sparse::Always => true,
                Sparse::Never => false,
            },
            changed: Cell::new(false),
            len: Cell::new(attributes.size),
        };
        self.ledger.count(|totals| totals.begun += attributes.size);
        self.read_pieces(&target).await?;
        let path = || item.dir.info.local.path(item.local());
        if target.sparse || target.changed.get() {
            // Sets the length: a hole at the end was not written, and pieces beyond the new end of a file
            // that became shorter may have been.
            set_len(&target.partial.fd, target.len.get())
                .map_err(|error| file_error("writing", path(), error))?;
        }
        let kept = finish_file(&target.partial.fd, &self.keep(attributes))
            .map_err(|error| file_error("setting attributes of", path(), error))?;
        // The file is synced before it gets its name: after a power cut, no name may refer to a
        // file without content.
        sync(&target.partial.fd).map_err(|error| file_error("writing", path(), error))?;
        let changed = target.changed.get();
        target.partial.put_in_place()?;
        self.sync_name(item);
        self.note_lost(kept);
        self.ledger.entry(true);
        if changed {
            let path = item.at().display();
            self.ledger.problem(CopyError::Changed { path });
        }
        Ok(())
    }

    /// Creates an empty file under a temporary name, accessible only by its owner until it is
    /// complete. Fails before anything is read if the file cannot get its final name.
    async fn open<'i>(
        &self,
        item: &'i Item,
        object: &Object,
    ) -> Result<Partial<'i, 'a>, CopyError> {
        let (local, name) = (&item.dir.info.local, item.local());
        match local.stat(name) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(item.failed("creating")(error)),
            Ok(there) if there.kind == Kind::Directory => return Err(in_the_way(item, true)),
            Ok(there) => {
                // Nor must `get … /dev/stdout` replace that link.
                let leads_to_one = || local.stat_target(name).is_ok_and(|to| to.is_special());
                keep_device(item, there.is_special() || leads_to_one())?;
                if self.is_same(item, object, || local.stat(name).ok()).await? {
                    let path = item.at().display();
                    return Err(CopyError::Same { path });
                }
            }
        }
        let (fd, temporary) = under_temporary_name(name, |temporary| local.create_file(temporary))
            .map_err(item.failed("creating"))?;
        let temporary = Some(temporary);
        Ok(Partial {
            fd,
            item,
            ledger: self.ledger,
            counted: Cell::new(0),
            temporary,
        })
    }

    async fn read_pieces(&self, target: &Target<'_, '_>) -> Result<(), CopyError> {
        let rsize = u64::from(self.mount.limits().rsize);
        let size = target.object.attributes.size;
        let mut pieces = (0..size)
            .step_by(rsize as usize)
            .map(|start| start..size.min(start.saturating_add(rsize)));
        let mut reading = FuturesUnordered::new();
        loop {
            while reading.len() < READS
                && let Some(piece) = pieces.next()
                // Beyond the end of a file that became shorter, there is nothing to read.
                && piece.start < target.len.get()
            {
                reading.push(self.read_piece(target, piece));
            }
            match reading.next().await {
                Some(outcome) => outcome?,
                None => return Ok(()),
            }
        }
    }

    /// Reads one piece, in as many READs as the server needs, and writes it to the local file.
    async fn read_piece(
        &self,
        target: &Target<'_, '_>,
        piece: Range<u64>,
    ) -> Result<(), CopyError> {
        let at = target.item.at();
        let _part = self.budget.take((piece.end - piece.start) as usize).await;
        let mut offset = piece.start;
        while offset < piece.end {
            let count = (piece.end - offset) as u32;
            let file = target.object.handle;
            let ok = self.mount.read(file, offset, count, &at).await?;
            target.look(ok.attributes.as_ref());
            let data = &ok.data.0;
            target.write(data.pieces(), offset)?;
            let len = data.len() as u64;
            let counted = &target.partial.counted;
            counted.set(counted.get() + len);
            self.ledger.count(|totals| totals.bytes += len);
            offset += data.len() as u64;
            if ok.eof && offset < piece.end {
                target.changed.set(true);
                target.len.set(target.len.get().min(offset));
                break;
            }
        }
        Ok(())
    }
}

impl Target<'_, '_> {
    /// Compares the file's attributes with those from the listing, and records a change.
    fn look(&self, now: Option<&Attributes>) {
        let then = &self.object.attributes;
        if now.is_some_and(|now| (now.size, now.mtime) != (then.size, then.mtime)) {
            self.changed.set(true);
        }
    }

    /// Writes the pieces without copying them.
    fn write(&self, data: &[Bytes], offset: u64) -> Result<(), CopyError> {
        let fd = &self.partial.fd;
        let written = match self.sparse {
            true => {
                let mut start = offset;
                data.iter().try_for_each(|piece| {
                    write_sparse(piece, start, |range, offset| {
                        write_at(fd, &[piece.slice(range)], offset)
                    })?;
                    start += piece.len() as u64;
                    Ok(())
                })
            }
            false => write_at(fd, data, offset),
        };
        let item = self.item;
        let path = || item.dir.info.local.path(item.local());
        written.map_err(|error| file_error("writing", path(), error))
    }
}

/// Writes `data` without its blocks that contain only zeroes, in as few writes as possible. `write`
/// gets a range of `data` and its offset in the file.
fn write_sparse<E>(
    data: &[u8],
    offset: u64,
    mut write: impl FnMut(Range<usize>, u64) -> Result<(), E>,
) -> Result<(), E> {
    // The start of the data that is not yet written and not zero.
    let mut start = None;
    let mut at = 0;
    while at < data.len() {
        let to_boundary = BLOCK - ((offset + at as u64) % BLOCK as u64) as usize;
        let end = data.len().min(at + to_boundary);
        let zeroes = data[at..end] == ZEROES[..end - at];
        if !zeroes {
            start = start.or(Some(at));
        } else if let Some(from) = start.take() {
            write(from..at, offset + from as u64)?;
        }
        at = end;
    }
    match start {
        Some(from) => write(from..data.len(), offset + from as u64),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn what_is_left_out_is_whole_blocks_of_zeroes(
            runs: Vec<(bool, u16)>, offset: u16
        ) -> bool {
            let data: Vec<u8> = runs
                .iter()
                .flat_map(|&(zero, len)| vec![u8::from(!zero); usize::from(len) % 9000])
                .collect();
            let offset = u64::from(offset);
            let mut file = vec![0; offset as usize + data.len()];
            let mut written = 0;
            let mut last_end = 0;
            write_sparse(&data, offset, |range, at| {
                let part = &data[range];
                assert!(at == offset || at % BLOCK as u64 == 0, "starts at a block");
                assert!(at > last_end || last_end == 0, "adjoining parts are one");
                last_end = at + part.len() as u64;
                let at = at as usize;
                file[at..at + part.len()].copy_from_slice(part);
                written += part.len();
                Ok::<_, ()>(())
            })
            .unwrap();
            file[offset as usize..] == data && (written <= data.len())
        }
    }

    #[test]
    fn zeroes_alone_are_not_written() {
        let none = |_: Range<usize>, _| Err("written");
        assert_eq!(write_sparse(&[0; 3 * BLOCK + 7], 5, none), Ok(()));
    }
}
