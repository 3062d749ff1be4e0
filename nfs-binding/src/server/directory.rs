//! LOOKUP, READDIR and READDIRPLUS.

use onc_rpc::Message;

use super::call_context::CallContext;
use super::{MAX_LISTING, PREFERRED_LISTING};
use crate::proto::{
    AFTER_ENTRIES, Attributes, DirOpArgs, Entry, EntryEncoder, EntryPlus, ListedObject, LookupOk,
    LookupResult, NfsResult, ReaddirArgs, ReaddirplusArgs, Status, Xdr,
};

/// Encoded results of READDIR or READDIRPLUS, or the failure.
pub(super) type ListingResult = NfsResult<Message, Option<Attributes>>;

/// The bytes of `READDIR3resok` and `READDIRPLUS3resok` besides the entries: the directory's
/// attributes, the verifier, the end of the list, and the eof flag.
const AROUND: u64 = 4 + Attributes::MAX_LEN as u64 + 8 + AFTER_ENTRIES;

/// The space for entries in a reply.
struct Room {
    left: u64,
    taken: bool,
}

impl Room {
    /// Computes the space in results of at most `count` bytes, on a connection that has `room`
    /// bytes of memory left.
    fn new(count: u32, room: usize) -> Result<Self, Status> {
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        u64::from(count.min(MAX_LISTING))
            .min(room)
            .checked_sub(AROUND)
            .map(|left| Self { left, taken: false })
            .ok_or(Status::TOOSMALL)
    }

    /// Returns the initial capacity of the buffer, bytes. The buffer grows with the listing, so a large
    /// `count` costs memory only if there are as many entries.
    fn capacity(&self) -> usize {
        (self.left + AFTER_ENTRIES).min(u64::from(PREFERRED_LISTING)) as usize
    }

    /// Returns whether an entry of `len` bytes fits, and if so reserves its space.
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

    /// Fails if the reply has neither entries nor the end of the directory, because the client
    /// could not continue.
    fn check(&self, eof: bool) -> Result<(), Status> {
        if self.taken || eof {
            Ok(())
        } else {
            Err(Status::TOOSMALL)
        }
    }
}

impl CallContext<'_> {
    /// Executes LOOKUP (RFC 1813, section 3.3.3).
    pub(super) fn lookup(&self, args: DirOpArgs) -> LookupResult {
        self.run_reading(&args.what.dir, |target| {
            let name = args.what.name.as_ref();
            let found = target.fs().lookup(&target.who, &target.id, name)?;
            let (object, attributes) = target.handle_and_attributes(found.object.borrowed());
            Ok(LookupOk {
                object,
                attributes: Some(attributes),
                dir_attributes: Some(target.to_client(found.directory)),
            })
        })
    }

    /// Executes READDIR (section 3.3.16). The results have at most `count` bytes.
    pub(super) fn readdir(&self, args: ReaddirArgs) -> ListingResult {
        self.run_reading(&args.dir, |target| {
            let mut room = Room::new(args.count, self.pool.room())?;
            let mut entries = EntryEncoder::new(room.capacity());
            let listing = target.fs().readdir(
                &target.who,
                &target.id,
                args.cookie,
                args.verifier,
                false,
                &mut |entry| {
                    let fits = room.take(Entry::wire_len(entry.name.len()));
                    if fits {
                        entries.entry(entry.fileid, entry.name, entry.cookie);
                    }
                    fits
                },
            )?;
            room.check(listing.eof)?;
            let attributes = Some(target.to_client(listing.attributes));
            Ok(entries.finish(attributes, &listing.verifier, listing.eof))
        })
    }

    /// Executes READDIRPLUS (section 3.3.17). The results have at most `max_count` bytes, and the
    /// part of the entries that READDIR would return has at most `dir_count`. The first entry is
    /// returned even if it exceeds `dir_count`, which some clients set too low.
    pub(super) fn readdirplus(&self, args: ReaddirplusArgs) -> ListingResult {
        self.run_reading(&args.dir, |target| {
            let mut room = Room::new(args.max_count, self.pool.room())?;
            let mut names = u64::from(args.dir_count);
            let mut entries = EntryEncoder::new(room.capacity());
            let listing = target.fs().readdir(
                &target.who,
                &target.id,
                args.cookie,
                args.verifier,
                true,
                &mut |entry| {
                    let len = Entry::wire_len(entry.name.len());
                    let first = !room.taken;
                    if len > names && !first {
                        return false;
                    }
                    let instead = entry
                        .object
                        .and_then(|object| target.visible_instead(object));
                    let object = match (&instead, entry.object) {
                        (Some((handle, attributes)), _) => Some(ListedObject {
                            handle: *handle,
                            attributes,
                            fsid: attributes.fsid,
                        }),
                        (None, Some(object)) => Some(ListedObject {
                            handle: target.handle(object),
                            attributes: object.attributes,
                            fsid: target.exported.fsid_to_client(object.attributes.fsid),
                        }),
                        (None, None) => None,
                    };
                    let handle = object.as_ref().map(ListedObject::handle_len);
                    let whole = EntryPlus::wire_len_of(entry.name.len(), object.is_some(), handle);
                    let fits = room.take(whole);
                    if fits {
                        names = names.saturating_sub(len);
                        entries.entry_plus(entry.fileid, entry.name, entry.cookie, object);
                    }
                    fits
                },
            )?;
            room.check(listing.eof)?;
            let attributes = Some(target.to_client(listing.attributes));
            Ok(entries.finish(attributes, &listing.verifier, listing.eof))
        })
    }
}
