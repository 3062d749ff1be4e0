//! Reading a directory.
//!
//! Where a listing goes on is the server's to say, by a cookie, and so is where it ends. A broken or hostile
//! server can send its client round in a circle, or on for ever: a circle is noticed ([`Circle`]), and
//! entries are limited ([`MAX_ENTRIES`], and what a whole listing takes: [`MAX_KEPT`]).

use bytes::Bytes;

use super::error::{NfsError, Op, Place};
use super::mount::Mount;
use super::rpc::RpcClient;
use crate::proto::{EntryPlus, FileHandle, Name, ReaddirArgs, ReaddirplusArgs, Status, Verifier};

/// Most entries of one directory. File systems in use have directories of some ten millions at most.
pub const MAX_ENTRIES: u64 = 100_000_000;
/// Most memory that a directory takes that is read as a whole, bytes: some four million entries.
pub const MAX_KEPT: usize = 1 << 30;

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
    circle: Circle,
    /// Entries so far.
    entries: u64,
    /// Memory of the entries that are kept, bytes.
    kept: usize,
}

/// Notices that cookies repeat, with memory for one of them: Brent's algorithm. A server that answers the
/// same to the same cookie is found out at the latest when the listing has gone round three times.
#[derive(Debug, Default)]
struct Circle {
    /// The cookie that all that come are compared with.
    mark: Option<u64>,
    /// Cookies since the mark was set.
    steps: u64,
    /// After how many it is set anew; doubles each time.
    until: u64,
}

impl Circle {
    /// Whether this cookie has come before, as far as that is known.
    fn closes(&mut self, cookie: u64) -> bool {
        if self.mark == Some(cookie) {
            return true;
        }
        if self.steps == self.until {
            self.mark = Some(cookie);
            self.steps = 0;
            self.until = self.until.saturating_mul(2).max(1);
        }
        self.steps += 1;
        false
    }
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
            circle: Circle::default(),
            entries: 0,
            kept: 0,
        }
    }

    /// Reads a whole directory.
    ///
    /// # Errors
    /// See [`Listing::next`]; and [`NfsError::TooManyEntries`] for one that takes more than [`MAX_KEPT`].
    pub async fn list_all(
        &self,
        dir: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Vec<EntryPlus>, NfsError> {
        let mut listing = self.list(dir);
        let mut all = Vec::new();
        while let Some(entries) = listing.next(at).await? {
            listing.keep(&entries, at)?;
            all.extend(entries.into_iter().map(|entry| EntryPlus {
                // A copy: the name is a slice of a reply, which would be kept as a whole.
                name: Name(Bytes::copy_from_slice(&entry.name.0)),
                ..entry
            }));
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
    /// error: whoever used it could be led out of a directory. So are cookies that go round in a
    /// circle, and more than [`MAX_ENTRIES`].
    pub async fn next(
        &mut self,
        at: &(impl Place + ?Sized),
    ) -> Result<Option<Vec<EntryPlus>>, NfsError> {
        while !self.ended {
            let (mut entries, eof) = self.batch(at).await?;
            let problem = match entries.last() {
                Some(last) if last.cookie == self.cookie => "as a cookie comes twice in a row",
                // Where the listing goes on; of an end the cookie is of no interest.
                Some(last) if !eof && self.circle.closes(last.cookie) => {
                    "as its cookies go round in a circle"
                }
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
            self.entries = self.entries.saturating_add(entries.len() as u64);
            if self.entries > MAX_ENTRIES {
                return Err(self.too_many(at));
            }
            entries.retain(|entry| !matches!(&entry.name.0[..], b"." | b".."));
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }

    /// Counts entries that the caller keeps until the listing has ended.
    ///
    /// # Errors
    /// [`NfsError::TooManyEntries`] if all that are kept take more than [`MAX_KEPT`].
    pub fn keep(
        &mut self,
        entries: &[EntryPlus],
        at: &(impl Place + ?Sized),
    ) -> Result<(), NfsError> {
        let names: usize = entries.iter().map(|entry| entry.name.0.len()).sum();
        self.kept += size_of_val(entries) + names;
        match self.kept <= MAX_KEPT {
            true => Ok(()),
            false => Err(self.too_many(at)),
        }
    }

    fn too_many(&self, at: &(impl Place + ?Sized)) -> NfsError {
        NfsError::TooManyEntries {
            path: at.display(),
            entries: self.entries,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Cookies until a circle is noticed in those of a server that begins with `before` others.
    fn noticed_after(before: u64, around: u64) -> u64 {
        let mut circle = Circle::default();
        let cookies = (0..before).chain((0..around).cycle().map(|n| before + n));
        let closes = cookies
            .take(1 << 20)
            .position(|cookie| circle.closes(cookie));
        closes.expect("the circle is noticed") as u64 + 1
    }

    #[test]
    fn circles_are_noticed_soon() {
        for around in [1, 2, 3, 7, 64, 1000] {
            for before in [0, 1, 5, 100, 1025] {
                let after = noticed_after(before, around);
                assert!(after > before + around, "{before}, {around}: {after}");
                let most = 3 * (before + around) + 3;
                assert!(after <= most, "{before}, {around}: {after}");
            }
        }
    }

    #[test]
    fn cookies_that_do_not_repeat_are_no_circle() {
        let mut circle = Circle::default();
        let cookies = (0..200_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(cookies.into_iter().all(|cookie| !circle.closes(cookie)));
    }
}
