//! Reading a directory.

use super::error::{NfsError, Op, Place};
use super::mount::Mount;
use super::rpc::RpcClient;
use crate::proto::{EntryPlus, FileHandle, ReaddirArgs, ReaddirplusArgs, Status, Verifier};

/// A directory as it is read, one reply at a time.
#[derive(Debug)]
pub struct Listing<'m, C> {
    mount: &'m Mount<C>,
    dir: FileHandle,
    cookie: u64,
    verifier: Verifier,
    /// Whether this listing goes by READDIRPLUS. It stays as it began: cookies need not mean the
    /// same to both procedures.
    plus: bool,
    ended: bool,
}

impl<C: RpcClient> Mount<C> {
    /// Starts to read a directory: READDIRPLUS, or READDIR where the options or the server do not
    /// have that.
    pub fn list(&self, dir: FileHandle) -> Listing<'_, C> {
        Listing {
            mount: self,
            dir,
            cookie: 0,
            verifier: Verifier::default(),
            plus: self.readdirplus.get(),
            ended: false,
        }
    }

    /// Reads a whole directory.
    ///
    /// # Errors
    /// See [`Listing::next`].
    pub async fn list_all(
        &self,
        dir: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Vec<EntryPlus>, NfsError> {
        let mut listing = self.list(dir);
        let mut all = Vec::new();
        while let Some(entries) = listing.next(at).await? {
            all.extend(entries);
        }
        Ok(all)
    }
}

impl<C: RpcClient> Listing<'_, C> {
    /// The next entries, without `.` and `..`; `None` after the last. Handles and attributes may
    /// be missing: a server need not give them, and READDIR does not.
    ///
    /// An entry's name is a slice of the reply: who keeps names for long copies them.
    ///
    /// # Errors
    /// See [`NfsError`]. A name that cannot be one (empty, or with a `/` or a zero byte) is an
    /// error: whoever used it could be led out of a directory.
    pub async fn next(
        &mut self,
        at: &(impl Place + ?Sized),
    ) -> Result<Option<Vec<EntryPlus>>, NfsError> {
        while !self.ended {
            let (mut entries, eof) = self.batch(at).await?;
            let problem = match entries.last() {
                Some(last) if last.cookie == self.cookie => "as a cookie comes twice in a row",
                None if !eof => "as there are neither entries nor an end",
                _ if entries.iter().any(|entry| !is_name(&entry.name.0)) => {
                    "as a name is empty or has a slash or zero in it"
                }
                _ => "",
            };
            if !problem.is_empty() {
                return Err(self.mount.nonsense(Op::List, at, problem));
            }
            if let Some(last) = entries.last() {
                self.cookie = last.cookie;
            }
            self.ended = eof;
            entries.retain(|entry| !matches!(&entry.name.0[..], b"." | b".."));
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }

    async fn batch(
        &mut self,
        at: &(impl Place + ?Sized),
    ) -> Result<(Vec<EntryPlus>, bool), NfsError> {
        if self.plus {
            match self.batch_plus(at).await {
                Err(error) if error.status() == Some(Status::NOTSUPP) && self.cookie == 0 => {
                    self.plus = false;
                    self.mount.readdirplus.set(false);
                }
                outcome => return outcome,
            }
        }
        let args = ReaddirArgs {
            dir: self.dir,
            cookie: self.cookie,
            verifier: self.verifier,
            count: self.mount.limits.list,
        };
        let call = || self.mount.nfs.readdir(&args);
        let ok = self.mount.patiently(Op::List, at, call).await?;
        self.verifier = ok.verifier;
        let entries = ok.entries.into_iter().map(|entry| EntryPlus {
            fileid: entry.fileid,
            name: entry.name,
            cookie: entry.cookie,
            attributes: None,
            handle: None,
        });
        Ok((entries.collect(), ok.eof))
    }

    async fn batch_plus(
        &mut self,
        at: &(impl Place + ?Sized),
    ) -> Result<(Vec<EntryPlus>, bool), NfsError> {
        let args = ReaddirplusArgs {
            dir: self.dir,
            cookie: self.cookie,
            verifier: self.verifier,
            dir_count: self.mount.limits.list,
            max_count: self.mount.limits.list,
        };
        let call = || self.mount.nfs.readdirplus(&args);
        let ok = self.mount.patiently(Op::List, at, call).await?;
        self.verifier = ok.verifier;
        Ok((ok.entries, ok.eof))
    }
}

/// Whether bytes can be one component of a path.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && !name.contains(&0)
}
