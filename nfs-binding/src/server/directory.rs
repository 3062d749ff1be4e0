//! LOOKUP, READDIR and READDIRPLUS.

use super::MAX_LISTING;
use super::session::Session;
use crate::proto::{
    Attributes, DirOpArgs, Entry, EntryPlus, LookupOk, LookupResult, Name, ReaddirArgs, ReaddirOk,
    ReaddirResult, ReaddirplusArgs, ReaddirplusOk, ReaddirplusResult, Status, Xdr,
};

/// Bytes of `READDIR3resok` and `READDIRPLUS3resok` around the entries: the directory's attributes,
/// the verifier, the end of the list, and whether it was the last.
const AROUND: u64 = 4 + Attributes::MAX_LEN as u64 + 8 + 4 + 4;

/// Room for entries in a reply.
struct Room {
    left: u64,
    taken: bool,
}

impl Room {
    /// In results of at most `count` bytes, of which the connection has `room` for so many.
    fn new(count: u32, room: usize) -> Result<Self, Status> {
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        u64::from(count.min(MAX_LISTING))
            .min(room)
            .checked_sub(AROUND)
            .map(|left| Self { left, taken: false })
            .ok_or(Status::TOOSMALL)
    }

    /// Whether an entry of `len` bytes fits; then it is taken.
    fn take(&mut self, len: u64) -> bool {
        match self.left.checked_sub(len) {
            Some(left) => {
                self.left = left;
                self.taken = true;
                true
            }
            None => false,
        }
    }

    /// An answer without entries, and without the end, would not get the client anywhere.
    fn check(&self, eof: bool) -> Result<(), Status> {
        if self.taken || eof {
            Ok(())
        } else {
            Err(Status::TOOSMALL)
        }
    }
}

impl Session<'_> {
    /// LOOKUP (RFC 1813, section 3.3.3).
    pub(super) fn lookup(&self, args: DirOpArgs) -> LookupResult {
        self.reading(&args.what.dir, |target| {
            let name = args.what.name.as_ref();
            let found = target.fs().lookup(&target.who, &target.id, name)?;
            let (object, attributes) = target.present(found.object);
            Ok(LookupOk {
                object,
                attributes: Some(attributes),
                dir_attributes: Some(target.own(found.directory)),
            })
        })
    }

    /// READDIR (section 3.3.16): results are at most `count` bytes.
    pub(super) fn readdir(&self, args: ReaddirArgs) -> ReaddirResult {
        self.reading(&args.dir, |target| {
            let mut room = Room::new(args.count, self.pool.room())?;
            let mut entries = Vec::new();
            let listing = target.fs().readdir(
                &target.who,
                &target.id,
                args.cookie,
                args.verifier,
                false,
                &mut |entry| {
                    let fits = room.take(Entry::wire_len(entry.name.len()));
                    if fits {
                        entries.push(Entry {
                            fileid: entry.fileid,
                            name: Name::from(entry.name),
                            cookie: entry.cookie,
                        });
                    }
                    fits
                },
            )?;
            room.check(listing.eof)?;
            Ok(ReaddirOk {
                dir_attributes: Some(target.own(listing.attributes)),
                verifier: listing.verifier,
                entries,
                eof: listing.eof,
            })
        })
    }

    /// READDIRPLUS (section 3.3.17): results are at most `max_count` bytes, of which at most
    /// `dir_count` are what READDIR would give of the entries. The first entry is given even if it
    /// is longer than `dir_count`, which some clients leave small.
    pub(super) fn readdirplus(&self, args: ReaddirplusArgs) -> ReaddirplusResult {
        self.reading(&args.dir, |target| {
            let mut room = Room::new(args.max_count, self.pool.room())?;
            let mut names = u64::from(args.dir_count);
            let mut entries = Vec::new();
            let listing = target.fs().readdir(
                &target.who,
                &target.id,
                args.cookie,
                args.verifier,
                true,
                &mut |entry| {
                    let len = Entry::wire_len(entry.name.len());
                    let first = entries.is_empty();
                    if len > names && !first {
                        return false;
                    }
                    let object = entry.object.clone().map(|object| target.present(object));
                    let (handle, attributes) = object.unzip();
                    let entry = EntryPlus {
                        fileid: entry.fileid,
                        name: Name::from(entry.name),
                        cookie: entry.cookie,
                        attributes,
                        handle,
                    };
                    let fits = room.take(entry.wire_len());
                    if fits {
                        names = names.saturating_sub(len);
                        entries.push(entry);
                    }
                    fits
                },
            )?;
            room.check(listing.eof)?;
            Ok(ReaddirplusOk {
                dir_attributes: Some(target.own(listing.attributes)),
                verifier: listing.verifier,
                entries,
                eof: listing.eof,
            })
        })
    }
}
