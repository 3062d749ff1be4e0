//! One call: who asks, from where, and what the handles in it stand for.

use std::time::Instant;

use onc_rpc::Credential;
use rdma::Pool;
use rpc_transport::Request;

use super::trust::Peer;
use super::{Exported, Shared};
use crate::fs::{Caller, FileId, FileSystem, FsError, Object};
use crate::proto::{Attributes, Failed, FileHandle, NfsResult, Status, WccData};

/// A call that is being answered.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    peer: Peer,
    credential: &'a Credential,
    pub(super) pool: &'a Pool,
}

/// What a handle stands for, and for whom.
pub(super) struct Target<'a> {
    shared: &'a Shared,
    peer: Peer,
    pub(super) exported: &'a Exported,
    pub(super) id: FileId,
    pub(super) who: Caller,
}

impl<'a> Session<'a> {
    /// For a call.
    pub(super) fn new(shared: &'a Shared, request: &'a Request) -> Self {
        Self {
            shared,
            peer: super::peer(request),
            credential: &request.cred,
            pool: &request.pool,
        }
    }

    /// Notes what a procedure did.
    pub(super) fn traced<T, F>(
        &self,
        procedure: &'static str,
        run: impl FnOnce() -> NfsResult<T, F>,
    ) -> NfsResult<T, F> {
        // Nobody is to wait for the clock unless it is looked at.
        let started = tracing::enabled!(tracing::Level::DEBUG).then(Instant::now);
        let result = run();
        if let Some(started) = started {
            let status = result
                .as_ref()
                .map_or_else(|failed| failed.status, |_| Status::OK);
            let (peer, took) = (self.peer.address, started.elapsed());
            tracing::debug!(%peer, procedure, %status, ?took, "done");
        }
        result
    }

    /// What a handle stands for.
    pub(super) fn target(&self, handle: &FileHandle) -> Result<Target<'a>, Status> {
        let (number, id) = self.shared.handles.open(handle)?;
        let place = self.shared.by_number.get(&number).ok_or(Status::STALE)?;
        let exported = self.shared.exports.get(*place).ok_or(Status::STALE)?;
        let options = &exported.export.options;
        if !options.allows(self.peer.address.ip()) {
            tracing::debug!(peer = %self.peer.address, path = exported.export.path, "not a client of it");
            return Err(Status::ACCES);
        }
        Ok(Target {
            shared: self.shared,
            peer: self.peer,
            exported,
            id,
            who: self
                .shared
                .trust
                .caller(self.peer, self.credential, options)?,
        })
    }

    /// The same, for an operation that reads: runs it, and completes its failure with the object's
    /// attributes.
    pub(super) fn reading<T>(
        &self,
        handle: &FileHandle,
        read: impl FnOnce(&Target<'a>) -> Result<T, Status>,
    ) -> NfsResult<T, Option<Attributes>> {
        let target = self.target(handle)?;
        read(&target).map_err(|status| Failed {
            status,
            attributes: target.attributes(),
        })
    }

    /// The same, for an operation that changes the object: refuses it on a read-only export.
    pub(super) fn changing(&self, handle: &FileHandle) -> Result<Target<'a>, Failed<WccData>> {
        let target = self.target(handle)?;
        if target.exported.export.options.read_only {
            return Err(Failed {
                status: Status::ROFS,
                attributes: WccData {
                    before: None,
                    after: target.attributes(),
                },
            });
        }
        Ok(target)
    }
}

impl Target<'_> {
    /// The file system.
    pub(super) fn fs(&self) -> &dyn FileSystem {
        &*self.exported.export.backend
    }

    /// The object's attributes, if it has any.
    pub(super) fn attributes(&self) -> Option<Attributes> {
        let attributes = self.fs().getattr(&self.id).ok()?;
        Some(self.own(attributes))
    }

    /// Attributes as clients see them.
    pub(super) fn own(&self, attributes: Attributes) -> Attributes {
        self.exported.own(attributes)
    }

    /// The same, before and after a change.
    pub(super) fn own_wcc(&self, wcc: WccData) -> WccData {
        WccData {
            before: wcc.before,
            after: wcc.after.map(|attributes| self.own(attributes)),
        }
    }

    /// The handle of an object.
    pub(super) fn handle(&self, id: &FileId) -> FileHandle {
        self.shared.handles.seal(self.exported.number, id)
    }

    /// Handle and attributes of an object.
    pub(super) fn present(&self, object: Object) -> (FileHandle, Attributes) {
        object
            .mounted
            .and_then(|mounted| self.unhidden(&mounted))
            .unwrap_or_else(|| (self.handle(&object.id), self.own(object.attributes)))
    }

    /// The root of the export whose directory is mounted where an empty directory would stand, if
    /// that is to be seen there (`nohide`, or `crossmnt` of this export) and is for this client.
    fn unhidden(&self, mounted: &FileId) -> Option<(FileHandle, Attributes)> {
        let found = self.shared.exports.iter().find(|exported| {
            let export = &exported.export;
            (export.options.nohide || self.exported.export.options.crossmnt)
                && export.backend.mounted_root().as_ref() == Some(mounted)
                && export.options.allows(self.peer.address.ip())
                && self.shared.trust.admit(self.peer, &export.options).is_ok()
        })?;
        let root = found.export.backend.root();
        let attributes = found.export.backend.getattr(&root).ok()?;
        let handle = self.shared.handles.seal(found.number, &root);
        Some((handle, found.own(attributes)))
    }

    /// Whether another handle is of the same export.
    pub(super) fn same_export(&self, other: &Target<'_>) -> bool {
        self.exported.number == other.exported.number
    }
}

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        if let FsError::Host(errno) = error {
            rdma::limited!(warn, %errno, "the host's file system failed");
        }
        error.status()
    }
}
