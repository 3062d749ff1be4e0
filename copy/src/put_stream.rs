//! Writing a stream of unknown length to a file on a server.

use std::cell::Cell;
use std::io;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use nfs_binding::client::{Mount, NfsError, Object, Place, RpcClient};
use nfs_binding::proto::{FileType, SetAttributes, Status};
use rdma::{Buf, Pool};

use super::ledger::Ledger;
use super::put::{Item, Put};
use super::put_file::{Content, Counted, PERMISSIONS, Source, Unfinished};
use super::{CopyError, CopyOptions, Report, Totals};

/// The maximum number of pieces of the stream, each for one WRITE, that are kept in memory until
/// they are on stable storage: a stream cannot be read again if the server restarts.
const PIECES: usize = 16;

/// Writes `content` to the file `remote`, a path from the export's root whose parent exists. The
/// file is on stable storage at the end. An existing regular file is truncated and keeps its
/// permissions; a new one gets `mode`. Other objects are treated as by [`put`](super::put).
/// `progress` is called after each WRITE.
///
/// An error of the stream ends the copy: what came before is on the server, and the file is
/// reported as unfinished.
pub async fn put_stream<C: RpcClient, S>(
    mount: &Mount<C>,
    pool: &Pool,
    content: S,
    mode: u32,
    remote: &[u8],
    options: &CopyOptions,
    progress: &mut dyn FnMut(&Totals),
) -> Report
where
    S: Stream<Item = io::Result<Vec<u8>>> + Unpin,
{
    let ledger = Ledger::new(progress);
    let put = Put::new(mount, pool, options, &ledger);
    let work = async {
        if let Err(error) = put.stream(content, mode, remote).await {
            ledger.problem(error);
        }
    };
    ledger.run(&options.interrupt, work).await;
    put.remove_leftovers().await;
    ledger.report()
}

impl<C: RpcClient> Put<'_, C> {
    async fn stream<S>(&self, content: S, mode: u32, remote: &[u8]) -> Result<(), CopyError>
    where
        S: Stream<Item = io::Result<Vec<u8>>> + Unpin,
    {
        if nfs_binding::client::components(remote).next().is_none() {
            return Err(CopyError::InTheWay {
                path: b"".as_slice().into(),
                is_directory: true,
            });
        }
        let item = self.root_item(b"-", remote).await?;
        let existing = self.existing_mode(&item).await?;
        let mode = existing.unwrap_or(mode);
        let mut unfinished = Unfinished::new(self.ledger, &item);
        let counted = Counted::default();
        let filled = self
            .fill_from(&mut unfinished, content, mode, &counted)
            .await;
        if let Err(error) = &filled {
            // The permissions of a file that was there before would go with it.
            let is_new = existing.is_none();
            self.give_up(&mut unfinished, error, is_new, &counted).await;
        }
        let file = filled?;
        if file.attributes.mode & PERMISSIONS != mode {
            // The server did not set it in CREATE.
            let attributes = SetAttributes {
                mode: Some(mode),
                ..SetAttributes::default()
            };
            let at = item.dir.at(item.name());
            self.mount.setattr(file.handle, attributes, &at).await?;
        }
        unfinished.done();
        self.ledger.entry(true);
        Ok(())
    }

    /// Makes the file with `mode`, and writes a stream to it.
    async fn fill_from<S>(
        &self,
        unfinished: &mut Unfinished<'_, '_>,
        content: S,
        mode: u32,
        counted: &Counted,
    ) -> Result<Object, CopyError>
    where
        S: Stream<Item = io::Result<Vec<u8>>> + Unpin,
    {
        let item = unfinished.item();
        let at = item.dir.at(item.name());
        let file = self.make_file(unfinished, mode, None).await?;
        let mut stream = Pieces::new(self, content);
        let mut source = Source {
            content: Content::Memory(0, Vec::new()),
            size: 0,
            item,
            remote: file.handle,
            short: Cell::new(false),
            counted,
        };
        loop {
            let start = source.size;
            let window = stream.window(at.display()).await?;
            source.size += window.iter().map(|piece| piece.len() as u64).sum::<u64>();
            if source.size == start {
                break;
            }
            source.content = Content::Memory(start, window);
            let part = start..source.size;
            self.write_window(&source, std::slice::from_ref(&part))
                .await?;
        }
        Ok(file)
    }

    /// Returns the permissions of the regular file that exists there, if there is one.
    async fn existing_mode(&self, item: &Item) -> Result<Option<u32>, NfsError> {
        let at = item.dir.at(item.name());
        let found = self
            .mount
            .lookup(item.dir.info.remote, item.name(), &at)
            .await;
        match found {
            Ok(there) => {
                let regular = there.attributes.file_type == FileType::Regular;
                Ok(regular.then_some(there.attributes.mode & PERMISSIONS))
            }
            Err(error) if error.status() == Some(Status::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The stream in pieces for one WRITE each.
struct Pieces<'p, S> {
    content: S,
    pool: &'p Pool,
    wsize: usize,
    /// The maximum number of pieces in a window.
    pieces: usize,
    /// Data that was read from the stream and is in no piece yet.
    rest: Bytes,
}

impl<'p, S: Stream<Item = io::Result<Vec<u8>>> + Unpin> Pieces<'p, S> {
    fn new<C: RpcClient>(put: &'p Put<'_, C>, content: S) -> Self {
        let wsize = put.mount.limits().wsize as usize;
        Self {
            content,
            pool: put.pool,
            wsize,
            pieces: (put.bytes_in_flight() / wsize).clamp(1, PIECES),
            rest: Bytes::new(),
        }
    }

    /// Returns the next pieces. All but the last of the stream have the size of a WRITE; none are
    /// returned at its end.
    async fn window(
        &mut self,
        path: nfs_binding::client::DisplayPath,
    ) -> Result<Vec<Bytes>, CopyError> {
        let mut window = Vec::new();
        while window.len() < self.pieces {
            let memory = self.pool.alloc(self.wsize);
            let mut piece = memory.map_err(|source| CopyError::Memory {
                path: path.clone(),
                source,
            })?;
            let len = self.fill(&mut piece).await?;
            piece.truncate(len);
            if len > 0 {
                window.push(piece.freeze());
            }
            if len < self.wsize {
                break;
            }
        }
        Ok(window)
    }

    /// Fills the piece, unless the stream ends before. Returns its length.
    async fn fill(&mut self, piece: &mut Buf) -> Result<usize, CopyError> {
        let mut len = 0;
        while len < piece.len() {
            if self.rest.is_empty() {
                match self.content.next().await {
                    None => break,
                    Some(Ok(read)) => self.rest = read.into(),
                    Some(Err(source)) => {
                        return Err(CopyError::Local {
                            doing: "reading",
                            path: "standard input".into(),
                            source,
                        });
                    }
                }
            }
            let take = self.rest.len().min(piece.len() - len);
            piece[len..len + take].copy_from_slice(&self.rest.split_to(take));
            len += take;
        }
        Ok(len)
    }
}
