//! READDIR cookies that last, for file systems whose own do not.
//!
//! A client goes on with a listing at a cookie, perhaps in the middle of an earlier reply, and
//! minutes later. Most file systems have cookies (`d_off` of getdents64(2)) that still mean the
//! same place then. But on an overlay, in FUSE, on SMB, and on tmpfs before Linux 6.6, among others
//! ([`host::cookies_last`]), a cookie can be the number of an entry, perhaps in a list that exists only
//! as long as the directory is open. When
//! entries are removed, the numbers of the later ones change with the next list, so that a listing
//! that goes on there leaves entries out, and `rm -r` leaves files behind.
//!
//! Keeping the directory open between calls would not be enough: a client can go on after a reply
//! that reached the end, removing a tree can take long, and an open directory keeps the
//! host from unmounting the file system all that time, and two clients may go on at the same number in different lists.
//!
//! Here, the cookie of an entry is a keyed hash of its name, and entries come in the order of their
//! cookies. Nothing is remembered between calls. In return, each call reads the whole directory.

use std::collections::BinaryHeap;
use std::os::fd::AsFd;

use super::host::{self, Listed};
use super::key::IdentityKey;
use crate::fs::{FsError, FsResult};

/// The maximum number of entries that one pass over a directory collects, at up to about 300 bytes
/// each (more in FUSE, whose names may be longer). A reply with more takes another pass.
pub(super) const AT_ONCE: usize = 8 << 10;
/// The cookies of `.` and `..`, which come first as with other file systems.
const DOTS: [u64; 2] = [1, 2];
/// The highest cookie. Some clients keep cookies in signed numbers.
const MAX: u64 = i64::MAX as u64;

/// A collected entry, ordered by cookie.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    cookie: u64,
    name: Box<[u8]>,
    ino: u64,
}

/// Returns the cookie of an entry. Two names have the same one with a probability of 2^-63; if a reply
/// or a pass over the directory then ends between them, the second is left out.
fn cookie_of(name: &[u8], key: &IdentityKey) -> u64 {
    match name {
        b"." => DOTS[0],
        b".." => DOTS[1],
        _ => (key.hash_name(name) & MAX).max(DOTS[1] + 1),
    }
}

/// Lists a directory that was just opened, in the order of its entries' cookies, from `cookie` (0: the start) until
/// `take` returns false. Collects up to `at_once` entries in each pass over the directory. Returns
/// whether the end was reached.
pub(super) fn list(
    dir: impl AsFd,
    mut cookie: u64,
    key: &IdentityKey,
    at_once: usize,
    mut take: impl FnMut(&Listed<'_>) -> FsResult<bool>,
) -> FsResult<bool> {
    if cookie > MAX {
        return Err(FsError::BadCookie);
    }
    loop {
        let mut entries = lowest(&dir, cookie, key, at_once)?;
        let rest = entries.len() < at_once;
        // A list of the host that changes meanwhile can contain an entry twice.
        entries.dedup_by(|one, other| one.name == other.name);
        for entry in entries {
            cookie = entry.cookie;
            let listed = Listed {
                name: &entry.name,
                ino: entry.ino,
                cookie,
            };
            if !take(&listed)? {
                return Ok(false);
            }
        }
        if rest {
            return Ok(true);
        }
        // Not before the first pass: some FUSE directories can only be read from their start, once.
        host::rewind(&dir)?;
    }
}

/// Returns the `at_once` entries with the lowest cookies above `after`, in order.
fn lowest(dir: impl AsFd, after: u64, key: &IdentityKey, at_once: usize) -> FsResult<Vec<Entry>> {
    let mut entries = BinaryHeap::new();
    host::list(&dir, 0, |entry| {
        let cookie = cookie_of(entry.name, key);
        let is_full = entries.len() == at_once;
        let highest = entries.peek().map(|entry: &Entry| entry.cookie);
        if cookie <= after || (is_full && highest.is_some_and(|highest| highest <= cookie)) {
            return Ok(true);
        }
        if is_full {
            entries.pop();
        }
        entries.push(Entry {
            cookie,
            name: entry.name.into(),
            ino: entry.ino,
        });
        Ok(true)
    })?;
    Ok(entries.into_sorted_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;

    use super::*;

    const KEY: IdentityKey = IdentityKey::from_bytes([3; 16]);

    /// Entries that exist all the time are listed exactly once, whatever else is added or removed,
    /// in replies and passes of any size.
    #[test]
    fn a_listing_goes_on_after_changes() {
        for (in_reply, at_once) in [(10, AT_ONCE), (10, 7), (7, 10), (1, 1), (1000, 9)] {
            let host = tempfile::tempdir().unwrap();
            let create = |name: String| File::create(host.path().join(name)).unwrap();
            for number in 0..100 {
                create(format!("stays {number}"));
                create(format!("goes {number}"));
            }
            let (mut names, mut cookie) = (Vec::new(), 0);
            for piece in 0.. {
                // Every call opens the directory.
                let dir = File::open(host.path()).unwrap();
                let mut taken = 0;
                let eof = list(&dir, cookie, &KEY, at_once, |entry| {
                    let room = taken < in_reply;
                    if room {
                        assert!(entry.cookie > cookie);
                        (taken, cookie) = (taken + 1, entry.cookie);
                        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
                    }
                    Ok(room)
                });
                if eof.unwrap() {
                    break;
                }
                create(format!("comes {piece}"));
                let _ = std::fs::remove_file(host.path().join(format!("goes {piece}")));
            }
            assert_eq!(names[..2], [".", ".."]);
            let stayed = names.iter().filter(|name| name.starts_with("stays"));
            assert_eq!(stayed.clone().count(), 100, "{in_reply} {at_once}");
            assert_eq!(stayed.collect::<BTreeSet<_>>().len(), 100);
        }
    }

    #[test]
    fn a_cookie_beyond_all_is_refused() {
        let host = tempfile::tempdir().unwrap();
        let dir = File::open(host.path()).unwrap();
        let from = |cookie| list(&dir, cookie, &KEY, AT_ONCE, |_| Ok(true));
        assert_eq!(from(MAX), Ok(true));
        assert_eq!(from(MAX + 1), Err(FsError::BadCookie));
    }
}
