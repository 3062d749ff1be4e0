//! Reading directories.
//!
//! The server decides with cookies where a listing continues and when it ends. A broken or hostile
//! server can send its client round in circles or on for ever. The client detects circles
//! ([`CookieCircle`]), limits the number of entries ([`MAX_ENTRIES`]) and the memory of a listing that is
//! read as a whole ([`MAX_KEPT`]).

use super::error::{NfsError, Op, Place};
use super::mount::Mount;
use super::rpc::RpcClient;
use crate::proto::{EntryPlus, FileHandle, ReaddirArgs, ReaddirplusArgs, Status, Verifier};

/// The maximum number of entries of one directory. Real file systems have directories of some ten
/// million entries at most.
pub const MAX_ENTRIES: u64 = 100_000_000;
/// The maximum memory of a directory that is read as a whole, bytes: some four million entries.
pub const MAX_KEPT: usize = 1 << 30;

/// A directory listing in progress, read one reply at a time.
#[derive(Debug)]
pub struct Listing<'m, C> {
    mount: &'m Mount<C>,
    dir: FileHandle,
    cookie: u64,
    verifier: Verifier,
    /// Whether this listing uses READDIRPLUS. A listing does not switch between the procedures,
    /// because their cookies may differ in meaning.
    plus: bool,
    ended: bool,
    circle: CookieCircle,
    /// The number of entries received so far.
    entries: u64,
    /// The memory of the entries that are kept, bytes.
    kept: usize,
}

/// Detects repeating cookies with memory for a single one (Brent's algorithm). A server that
/// returns the same entries for the same cookie is detected after three rounds at the latest.
#[derive(Debug, Default)]
pub struct CookieCircle {
    /// The cookie that later ones are compared with.
    mark: Option<u64>,
    /// The number of cookies since the mark was set.
    steps: u64,
    /// The number of cookies after which the mark is set again. It doubles each time.
    until: u64,
}

impl CookieCircle {
    /// Returns whether this cookie equals the mark, and so closes a circle.
    pub fn closes(&mut self, cookie: u64) -> bool {
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
    /// Starts to read a directory with READDIRPLUS, or with READDIR if the options exclude
    /// READDIRPLUS or the server does not support it.
    pub fn list(&self, dir: FileHandle) -> Listing<'_, C> {
        Listing {
            mount: self,
            dir,
            cookie: 0,
            verifier: Verifier::default(),
            plus: self.readdirplus.get(),
            ended: false,
            circle: CookieCircle::default(),
            entries: 0,
            kept: 0,
        }
    }

    /// Reads a whole directory.
    ///
    /// # Errors
    /// The errors of [`Listing::next`], and [`NfsError::TooManyEntries`] for a directory that takes
    /// more than [`MAX_KEPT`].
    pub async fn list_all(
        &self,
        dir: FileHandle,
        at: &(impl Place + ?Sized),
    ) -> Result<Vec<EntryPlus>, NfsError> {
        let mut listing = self.list(dir);
        let mut all = Vec::new();
        while let Some(entries) = listing.next(at).await? {
            listing.keep(&entries, at)?;
            all.extend(entries);
        }
        Ok(all)
    }
}

impl<C: RpcClient> Listing<'_, C> {
    /// Reads the next entries, without `.` and `..`; `None` after the last. Handles and attributes
    /// may be missing: a server need not supply them, and READDIR never does.
    ///
    /// # Errors
    /// See [`NfsError`]. An invalid name (empty, or with a `/` or a zero byte) is an error, because
    /// a caller that used it could be led out of the directory. Cookies that go round in a circle
    /// and more than [`MAX_ENTRIES`] entries are errors as well.
    pub async fn next(
        &mut self,
        at: &(impl Place + ?Sized),
    ) -> Result<Option<Vec<EntryPlus>>, NfsError> {
        while !self.ended {
            let (mut entries, eof) = self.batch(at).await?;
            let problem = match entries.last() {
                Some(last) if last.cookie == self.cookie => "as a cookie comes twice in a row",
                // The cookie is where the listing continues. The last one, at the end, does not
                // matter.
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

    /// Counts entries that the caller keeps until the end of the listing.
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

/// Returns whether the bytes can be one component of a path.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of cookies until a circle of `around` cookies after `before` others is
    /// detected.
    fn noticed_after(before: u64, around: u64) -> u64 {
        let mut circle = CookieCircle::default();
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
        let mut circle = CookieCircle::default();
        let cookies = (0..200_000u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(cookies.into_iter().all(|cookie| !circle.closes(cookie)));
    }
}
