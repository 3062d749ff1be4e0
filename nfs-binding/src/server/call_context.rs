//! The context of one call: its peer and caller, and the objects that its handles refer to.

use std::time::Instant;

use onc_rpc::Credential;
use rdma::Pool;
use rpc_transport::Request;

use super::identity_policy::Peer;
use super::{Exported, Shared, handle};
use crate::fs::{Caller, FileId, FileSystem, FsError, ObjectRef};
use crate::proto::{Attributes, Failed, FileHandle, NfsResult, Status, WccData};

/// The context of a call that is being executed.
pub(super) struct CallContext<'a> {
    shared: &'a Shared,
    request: &'a Request,
    peer: Peer,
    xid: u32,
    credential: &'a Credential,
    /// Whether the call may wait for a file to be read that tells who its caller is.
    may_wait: bool,
    pub(super) pool: &'a Pool,
}

/// Returns the time if it is logged: otherwise the clock is not read.
fn started() -> Option<Instant> {
    tracing::enabled!(tracing::Level::DEBUG).then(Instant::now)
}

/// The object that a handle refers to, and the caller.
pub(super) struct Target<'a> {
    shared: &'a Shared,
    peer: Peer,
    pub(super) exported: &'a Exported,
    pub(super) id: FileId,
    pub(super) who: Caller,
}

impl<'a> CallContext<'a> {
    /// Creates the context of a call.
    pub(super) fn new(shared: &'a Shared, request: &'a Request) -> Self {
        Self {
            shared,
            request,
            peer: super::peer(request),
            xid: request.xid,
            credential: &request.cred,
            may_wait: true,
            pool: &request.pool,
        }
    }

    /// Creates the context of an attempt at a call, which must not wait.
    pub(super) fn of_attempt(shared: &'a Shared, request: &'a Request) -> Self {
        Self {
            may_wait: false,
            ..Self::new(shared, request)
        }
    }

    /// Runs a procedure and logs its result.
    pub(super) fn traced<T, F>(
        &self,
        procedure: &'static str,
        run: impl FnOnce() -> NfsResult<T, F>,
    ) -> NfsResult<T, F> {
        let started = started();
        let result = run();
        self.log_done(procedure, &result, started);
        result
    }

    /// Runs an attempt at a procedure, and logs its result if it has one.
    pub(super) fn traced_attempt<T, F>(
        &self,
        procedure: &'static str,
        run: impl FnOnce() -> Option<NfsResult<T, F>>,
    ) -> Option<NfsResult<T, F>> {
        let started = started();
        let result = run()?;
        self.log_done(procedure, &result, started);
        Some(result)
    }

    fn log_done<T, F>(
        &self,
        procedure: &'static str,
        result: &NfsResult<T, F>,
        started: Option<Instant>,
    ) {
        if let Some(started) = started {
            let status = result
                .as_ref()
                .map_or_else(|failed| failed.status, |_| Status::OK);
            let (peer, xid, took) = (self.peer.address, self.xid, started.elapsed());
            tracing::debug!(%peer, xid, procedure = %procedure, %status, ?took, "done");
        }
    }

    /// Resolves a handle.
    pub(super) fn target(&self, handle: &FileHandle) -> Result<Target<'a>, Status> {
        let number = handle::export_in(handle)?;
        let exported = self.shared.export_of(number).ok_or(Status::STALE)?;
        let id = exported.handles.open(handle)?;
        let options = &exported.export.options;
        if !options.allows(self.peer.address.ip()) {
            tracing::debug!(peer = %self.peer.address, path = exported.export.path, "not a client of it");
            return Err(Status::ACCES);
        }
        let policy = &self.shared.policy;
        let who = match self.may_wait {
            true => policy.caller(self.peer, self.credential, options),
            false => policy.caller_if_known(self.peer, self.credential, options),
        }?;
        self.request.count_as_use();
        Ok(Target {
            shared: self.shared,
            peer: self.peer,
            exported,
            id,
            who,
        })
    }

    /// Resolves a handle and runs a reading operation on it. Adds the object's attributes to a
    /// failure.
    pub(super) fn run_reading<T>(
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

    /// Resolves a handle for an operation that modifies the object. Fails on a read-only export.
    pub(super) fn resolve_writable(
        &self,
        handle: &FileHandle,
    ) -> Result<Target<'a>, Failed<WccData>> {
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
    /// Returns the file system.
    pub(super) fn fs(&self) -> &dyn FileSystem {
        &*self.exported.export.backend
    }

    /// Returns the object's attributes, if they can be read.
    pub(super) fn attributes(&self) -> Option<Attributes> {
        let attributes = self.fs().getattr(&self.id).ok()?;
        Some(self.to_client(attributes))
    }

    /// Converts attributes to those that clients see.
    pub(super) fn to_client(&self, attributes: Attributes) -> Attributes {
        self.exported.to_client(attributes)
    }

    /// Converts the attributes before and after a change to those that clients see.
    pub(super) fn own_wcc(&self, wcc: WccData) -> WccData {
        WccData {
            before: wcc.before,
            after: wcc.after.map(|attributes| self.to_client(attributes)),
        }
    }

    /// Returns the handle of an object.
    #[inline]
    pub(super) fn handle(&self, object: ObjectRef<'_>) -> FileHandle {
        self.exported.handles.issue(&object.id, object.mac)
    }

    /// Returns the handle and attributes of an object.
    pub(super) fn handle_and_attributes(&self, object: ObjectRef<'_>) -> (FileHandle, Attributes) {
        self.visible_instead(object).unwrap_or_else(|| {
            let attributes = self.to_client(object.attributes.clone());
            (self.handle(object), attributes)
        })
    }

    /// Returns the handle and attributes of the root of another export, if clients see that in place
    /// of the object.
    #[inline]
    pub(super) fn visible_instead(
        &self,
        object: ObjectRef<'_>,
    ) -> Option<(FileHandle, Attributes)> {
        self.visible_root(object.mounted?)
    }

    /// Returns the root of the export that is visible at a placeholder directory.
    #[cold]
    fn visible_root(&self, mounted: &FileId) -> Option<(FileHandle, Attributes)> {
        let shared = self.shared;
        let (found, root, attributes) = shared.visible_root(self.exported, mounted, self.peer)?;
        let handle = found.handles.issue(&root, None);
        Some((handle, found.to_client(attributes)))
    }

    /// Returns whether another handle refers to the same export.
    pub(super) fn same_export(&self, other: &Target<'_>) -> bool {
        self.exported.number == other.exported.number
    }
}

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        if let FsError::Host(errno) = error {
            rpcrdma_host::limited!(warn, %errno, "the host's file system failed");
        }
        error.status()
    }
}
