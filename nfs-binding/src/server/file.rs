//! Procedures on one object or its file system.

use bytes::Bytes;
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
const LONG_READ: u32 = 32 << 10;
/// The recommended multiple of READ and WRITE lengths: a page.
const MULTIPLE: u32 = 4096;

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
            let room = self.pool.room_for(count as usize);
            count = count.min(u32::try_from(room).unwrap_or(count));
            let mut buf = self.pool.alloc(count as usize).map_err(|error| {
                rdma::limited!(warn, %error, "READ deferred");
                FsError::Later
            })?;
            let read = target
                .fs()
                .read(&target.who, &target.id, args.offset, &mut buf)?;
            buf.truncate(read.count as usize);
            Ok(ok(read, buf.freeze().into()))
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
