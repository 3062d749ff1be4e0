//! From a server to this machine: what is in a file.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::fs::FileType as Kind;
use rustix::io::Errno;

use super::get::{Get, Item, in_the_way};
use super::local::{file_error, finish_file, set_len, write_at};
use super::{CopyError, Sparse};
use crate::client::{Object, Place, RpcClient};
use crate::proto::Attributes;

/// READs of one file in flight; the budget bounds their bytes.
const READS: usize = 16;
/// Zeroes become holes in units of this, bytes, at multiples of it: what file systems store.
const BLOCK: usize = 4096;
static ZEROES: [u8; BLOCK] = [0; BLOCK];

/// A file under way.
struct Target<'i> {
    fd: OwnedFd,
    item: &'i Item,
    object: &'i Object,
    /// Whether zeroes become holes.
    sparse: bool,
    /// Whether it is no longer as it was when it was listed.
    changed: Cell<bool>,
}

impl<C: RpcClient> Get<'_, C> {
    /// Copies a regular file.
    pub(super) async fn file(&self, item: &Item, object: &Object) -> Result<(), CopyError> {
        let attributes = &object.attributes;
        let target = Target {
            fd: self.open(item)?,
            item,
            object,
            sparse: match self.options.sparse {
                Sparse::Auto => attributes.used < attributes.size,
                Sparse::Always => true,
                Sparse::Never => false,
            },
            changed: Cell::new(false),
        };
        self.read_pieces(&target).await?;
        let path = || item.dir.info.local.path(item.local());
        if target.sparse || target.changed.get() {
            // Holes at the end are nothing that was written.
            set_len(&target.fd, attributes.size)
                .map_err(|error| file_error("writing", path(), error))?;
        }
        let kept = finish_file(&target.fd, &self.keep(attributes))
            .map_err(|error| file_error("setting attributes of", path(), error))?;
        self.note_owner(kept);
        self.ledger.count(|totals| totals.files += 1);
        if target.changed.get() {
            let path = item.at().display();
            self.ledger.problem(CopyError::Changed { path });
        }
        Ok(())
    }

    /// An empty file, its owner's alone until it is done. One that is there is emptied; anything
    /// else but a directory is replaced.
    fn open(&self, item: &Item) -> Result<OwnedFd, CopyError> {
        let (local, name) = (&item.dir.info.local, item.local());
        match local.create_file(name) {
            Err(Errno::EXIST) => {}
            outcome => return outcome.map_err(item.failed("creating")),
        }
        let stat = local.stat(name).map_err(item.failed("reading"))?;
        match stat.kind {
            Kind::RegularFile => local.empty_file(name).map_err(item.failed("writing")),
            Kind::Directory => Err(in_the_way(item, true)),
            _ => {
                self.make_way(item)?;
                local.create_file(name).map_err(item.failed("creating"))
            }
        }
    }

    async fn read_pieces(&self, target: &Target<'_>) -> Result<(), CopyError> {
        let rsize = u64::from(self.mount.limits().rsize);
        let size = target.object.attributes.size;
        let mut pieces = (0..size)
            .step_by(rsize as usize)
            .map(|start| start..size.min(start.saturating_add(rsize)));
        let mut reading = FuturesUnordered::new();
        loop {
            while reading.len() < READS
                // Past the end of a file that became shorter there is nothing to read.
                && !target.changed.get()
                && let Some(piece) = pieces.next()
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
    async fn read_piece(&self, target: &Target<'_>, piece: Range<u64>) -> Result<(), CopyError> {
        let at = target.item.at();
        let _part = self.budget.take((piece.end - piece.start) as usize).await;
        let mut offset = piece.start;
        while offset < piece.end {
            let count = (piece.end - offset) as u32;
            let file = target.object.handle;
            let ok = self.mount.read(file, offset, count, &at).await?;
            target.look(ok.attributes.as_ref());
            let data = &ok.data.0[..];
            target.write(data, offset)?;
            self.ledger
                .count(|totals| totals.bytes += data.len() as u64);
            offset += data.len() as u64;
            if ok.eof && offset < piece.end {
                target.changed.set(true);
                break;
            }
        }
        Ok(())
    }
}

impl Target<'_> {
    /// Compares the file's attributes with those that it was listed with.
    fn look(&self, now: Option<&Attributes>) {
        let then = &self.object.attributes;
        if now.is_some_and(|now| (now.size, now.mtime) != (then.size, then.mtime)) {
            self.changed.set(true);
        }
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<(), CopyError> {
        let written = match self.sparse {
            true => write_sparse(data, offset, |data, offset| {
                write_at(&self.fd, data, offset)
            }),
            false => write_at(&self.fd, data, offset),
        };
        let item = self.item;
        let path = || item.dir.info.local.path(item.local());
        written.map_err(|error| file_error("writing", path(), error))
    }
}

/// Writes `data` without the blocks in it that are all zeroes, in as few writes as that takes.
fn write_sparse<E>(
    data: &[u8],
    offset: u64,
    mut write: impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<(), E> {
    // Where what is not yet written starts, if that is not zeroes.
    let mut start = None;
    let mut at = 0;
    while at < data.len() {
        let to_boundary = BLOCK - ((offset + at as u64) % BLOCK as u64) as usize;
        let end = data.len().min(at + to_boundary);
        let zeroes = data[at..end] == ZEROES[..end - at];
        if !zeroes {
            start = start.or(Some(at));
        } else if let Some(from) = start.take() {
            write(&data[from..at], offset + from as u64)?;
        }
        at = end;
    }
    match start {
        Some(from) => write(&data[from..], offset + from as u64),
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
            write_sparse(&data, offset, |part, at| {
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
        let none = |_: &[u8], _| Err("written");
        assert_eq!(write_sparse(&[0; 3 * BLOCK + 7], 5, none), Ok(()));
    }
}
