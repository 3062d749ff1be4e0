//! Procedures on one object or its file system.

use std::ops::Range;

use bytes::{Buf as _, Bytes};
use onc_rpc::Bulk;

use super::call_context::CallContext;
use super::{MAX_TRANSFER, PREFERRED_LISTING};
use crate::fs::{FsError, Read};
use crate::proto::{
    Access, AccessArgs, AccessOk, AccessResult, CommitArgs, CommitOk, CommitResult, Failed,
    FsinfoOk, FsinfoResult, FsstatOk, FsstatResult, GetattrResult, HandleArgs, LinkText,
    PathconfOk, PathconfResult, ReadArgs, ReadOk, ReadResult, ReadlinkOk, ReadlinkResult,
    SetattrArgs, SetattrResult, Status, WriteArgs, WriteOk, WriteResult,
};

/// For READs longer than this, the server first checks how much data there is, to avoid allocating
/// more memory for the reply than needed.
pub(super) const LONG_READ: u32 = 32 << 10;
/// The recommended multiple of READ and WRITE lengths: a page.
const MULTIPLE: u32 = 4096;

/// The range that a READ reads from the file system: what is requested, enlarged to whole units of
/// the file system ([`crate::fs::FileSystem::read_unit`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: u64,
    len: usize,
    /// The number of bytes before those that are requested.
    before: usize,
    /// The number of bytes that are requested, or fewer if there is little room.
    count: usize,
}

impl Span {
    /// Returns the range for `count` bytes at `offset`. `room_for` says for how much of a length
    /// there is memory.
    fn new(offset: u64, count: u32, unit: u32, room_for: impl Fn(usize) -> usize) -> Self {
        let as_requested = |len: usize| Self {
            offset,
            len,
            before: 0,
            count: len,
        };
        let (count, unit) = (count as usize, unit as usize);
        // The remainder is less than the unit.
        let before = (offset % unit as u64) as usize;
        let len = (before + count).next_multiple_of(unit);
        let room = room_for(len);
        let len = len.min(room - room % unit);
        // What is requested may take no more room than there is, when whole units take more.
        if len <= before && count > 0 {
            return as_requested(room_for(count));
        }
        Self {
            offset: offset - before as u64,
            len,
            before,
            count: count.min(len.saturating_sub(before)),
        }
    }

    /// Returns the result for the bytes that are requested, and their range, from the result for
    /// the whole range.
    fn requested(self, read: Read) -> (Read, Range<usize>) {
        let all = read.count as usize;
        let count = all.saturating_sub(self.before).min(self.count);
        // Without data, a short read has found the end, even if the file has grown since.
        let is_last = self.before + count >= all;
        let read = Read {
            // It is no more than the count of the whole range.
            count: count as u32,
            eof: is_last && (read.eof || count == 0 && self.count > 0),
            ..read
        };
        (read, self.before.min(all)..self.before.min(all) + count)
    }
}

impl CallContext<'_> {
    /// Executes GETATTR (RFC 1813, section 3.3.1).
    pub(super) fn getattr(&self, args: HandleArgs) -> GetattrResult {
        let target = self.target(&args.object)?;
        match target.fs().getattr(&target.id) {
            Ok(attributes) => Ok(target.to_client(attributes)),
            Err(error) => Err(Status::from(error).into()),
        }
    }

    /// Executes SETATTR (section 3.3.2).
    pub(super) fn setattr(&self, args: SetattrArgs) -> SetattrResult {
        let target = self.resolve_writable(&args.object)?;
        let change = target
            .fs()
            .setattr(&target.who, &target.id, &args.attributes, args.guard);
        let wcc = target.own_wcc(change.wcc);
        match change.result {
            Ok(()) => Ok(wcc),
            Err(error) => Err(Failed {
                status: error.into(),
                attributes: wcc,
            }),
        }
    }

    /// Executes ACCESS (section 3.3.4).
    pub(super) fn access(&self, args: AccessArgs) -> AccessResult {
        self.run_reading(&args.object, |target| {
            let (mut access, attributes) =
                target.fs().access(&target.who, &target.id, args.access)?;
            if target.exported.export.options.read_only {
                access -= Access::MODIFY | Access::EXTEND | Access::DELETE;
            }
            Ok(AccessOk {
                attributes: Some(target.to_client(attributes)),
                access,
            })
        })
    }

    /// Executes READLINK (section 3.3.5).
    pub(super) fn readlink(&self, args: HandleArgs) -> ReadlinkResult {
        self.run_reading(&args.object, |target| {
            let (text, attributes) = target.fs().readlink(&target.who, &target.id)?;
            Ok(ReadlinkOk {
                attributes: Some(target.to_client(attributes)),
                text: LinkText(Bytes::from(text)),
            })
        })
    }

    /// Executes READ (section 3.3.6).
    pub(super) fn read(&self, args: ReadArgs) -> ReadResult {
        self.run_reading(&args.file, |target| {
            let mut count = args.count.min(MAX_TRANSFER);
            let ok = |read: Read, data: Bulk| ReadOk {
                attributes: Some(target.to_client(read.attributes)),
                count: read.count,
                eof: read.eof,
                data: data.into(),
            };
            // A device that needs registered memory would copy data that lies in other memory.
            if !self.pool.is_registered()
                && let Some((read, data)) =
                    target
                        .fs()
                        .read_shared(&target.who, &target.id, args.offset, count)?
            {
                return Ok(ok(read, data));
            }
            if count > LONG_READ {
                let size = target.fs().getattr(&target.id)?.size;
                let left = size.saturating_sub(args.offset);
                // At least one byte is read, because the file may be growing, and the end must be
                // detected.
                count = count.min(u32::try_from(left).unwrap_or(count).max(1));
            }
            // A connection that uses much of the shared memory gets less data per READ, and asks
            // again.
            let unit = target.fs().read_unit(&target.id)?;
            let span = Span::new(args.offset, count, unit, |len| self.pool.room_for(len));
            let mut buf = self.pool.alloc(span.len).map_err(|error| {
                rpcrdma_host::limited!(warn, %error, "READ deferred");
                FsError::Later
            })?;
            let read = target
                .fs()
                .read(&target.who, &target.id, span.offset, &mut buf)?;
            let (read, part) = span.requested(read);
            buf.truncate(part.end);
            let mut data = buf.freeze();
            if part.start > 0 {
                data.advance(part.start);
            }
            Ok(ok(read, data.into()))
        })
    }

    /// Executes WRITE (section 3.3.7). The caller has already checked that `count` equals the
    /// length of the data.
    pub(super) fn write(&self, args: WriteArgs) -> WriteResult {
        let target = self.resolve_writable(&args.file)?;
        let mut data = args.data.0;
        data.truncate(MAX_TRANSFER as usize);
        // The verifier is read before the data is written: a later loss of data changes the
        // verifier of a later reply.
        let verifier = target.fs().write_verifier();
        let change = target
            .fs()
            .write(&target.who, &target.id, args.offset, &data, args.stable);
        let wcc = target.own_wcc(change.wcc);
        match change.result {
            Ok(written) => Ok(WriteOk {
                wcc,
                count: written.count,
                committed: written.committed,
                verifier,
            }),
            Err(error) => Err(Failed {
                status: error.into(),
                attributes: wcc,
            }),
        }
    }

    /// Executes COMMIT (section 3.3.21).
    pub(super) fn commit(&self, args: CommitArgs) -> CommitResult {
        let target = self.resolve_writable(&args.file)?;
        let change = target
            .fs()
            .commit(&target.who, &target.id, args.offset, args.count);
        let wcc = target.own_wcc(change.wcc);
        match change.result {
            // The verifier is read after the sync, so that it reflects any loss.
            Ok(()) => Ok(CommitOk {
                wcc,
                verifier: target.fs().write_verifier(),
            }),
            Err(error) => Err(Failed {
                status: error.into(),
                attributes: wcc,
            }),
        }
    }

    /// Executes FSSTAT (section 3.3.18).
    pub(super) fn fsstat(&self, args: HandleArgs) -> FsstatResult {
        self.run_reading(&args.object, |target| {
            let space = target.fs().space(&target.who, &target.id)?;
            Ok(FsstatOk {
                attributes: target.attributes(),
                total_bytes: space.total_bytes,
                free_bytes: space.free_bytes,
                available_bytes: space.available_bytes,
                total_files: space.total_files,
                free_files: space.free_files,
                available_files: space.available_files,
                invariant_seconds: 0,
            })
        })
    }

    /// Executes FSINFO (section 3.3.19).
    pub(super) fn fsinfo(&self, args: HandleArgs) -> FsinfoResult {
        self.run_reading(&args.object, |target| {
            let abilities = target.fs().abilities(&target.id)?;
            Ok(FsinfoOk {
                attributes: target.attributes(),
                read_max: MAX_TRANSFER,
                read_preferred: MAX_TRANSFER,
                read_multiple: MULTIPLE,
                write_max: MAX_TRANSFER,
                write_preferred: MAX_TRANSFER,
                write_multiple: MULTIPLE,
                readdir_preferred: PREFERRED_LISTING,
                max_file_size: abilities.max_file_size,
                time_delta: abilities.time_delta,
                properties: abilities.properties,
            })
        })
    }

    /// Executes PATHCONF (section 3.3.20).
    pub(super) fn pathconf(&self, args: HandleArgs) -> PathconfResult {
        self.run_reading(&args.object, |target| {
            let rules = target.fs().name_rules(&target.id)?;
            Ok(PathconfOk {
                attributes: target.attributes(),
                link_max: rules.link_max,
                name_max: rules.name_max,
                no_trunc: rules.no_trunc,
                chown_restricted: rules.chown_restricted,
                case_insensitive: rules.case_insensitive,
                case_preserving: rules.case_preserving,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_enlarged_to_whole_units_and_cut_again() {
        let span = |offset, count, unit| {
            let span = Span::new(offset, count, unit, |len| len);
            (span.offset, span.len, span.before, span.count)
        };
        assert_eq!(span(10, 20, 1), (10, 20, 0, 20));
        assert_eq!(span(10, 0, 1), (10, 0, 0, 0));
        assert_eq!(span(4096, 8192, 4096), (4096, 8192, 0, 8192));
        assert_eq!(span(4096, 8193, 4096), (4096, 12_288, 0, 8193));
        assert_eq!(span(4095, 2, 4096), (0, 8192, 4095, 2));
        assert_eq!(span(8191, 1, 4096), (4096, 4096, 4095, 1));
        let last = u64::MAX;
        assert_eq!(span(last, 1, 4096), (last - 4095, 4096, 4095, 1));
    }

    #[test]
    fn a_read_without_room_for_whole_units_gets_what_there_is_room_for() {
        let span = |offset, count, room: usize| {
            let span = Span::new(offset, count, 4096, |len| len.min(room));
            (span.offset, span.len, span.before, span.count)
        };
        assert_eq!(span(0, 65_536, 10_000), (0, 8192, 0, 8192));
        assert_eq!(span(100, 65_536, 10_000), (0, 8192, 100, 8092));
        assert_eq!(span(100, 65_536, 4000), (100, 4000, 0, 4000));
    }

    #[test]
    fn the_end_of_a_file_is_told_of_the_requested_part() {
        let cut = |offset, count, (all, eof)| {
            let span = Span::new(offset, count, 4096, |len| len);
            let read = Read {
                count: all,
                eof,
                attributes: crate::proto::Attributes::default(),
            };
            let (read, part) = span.requested(read);
            (part, read.count, read.eof)
        };
        // A file of 5,000 bytes.
        assert_eq!(cut(0, 5000, (5000, true)), (0..5000, 5000, true));
        assert_eq!(cut(0, 4999, (5000, true)), (0..4999, 4999, false));
        assert_eq!(cut(10, 4990, (5000, true)), (10..5000, 4990, true));
        assert_eq!(cut(4999, 100, (904, true)), (903..904, 1, true));
        assert_eq!(cut(5000, 100, (904, true)), (904..904, 0, true));
        // Nothing was left when it was read, and the file has grown since.
        assert_eq!(cut(5000, 100, (904, false)), (904..904, 0, true));
        assert_eq!(cut(0, 100, (4096, false)), (0..100, 100, false));
    }
}
