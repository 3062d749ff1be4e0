//! The NFS and MOUNT server: all procedures of both programs, over any file system and any
//! transport.
//!
//! Calls to a file system that does not block run on the server's own thread. Calls to one that
//! does run on a worker ([`ServiceOutcome::Later`]), except those that a first attempt on the
//! server's own thread answers without waiting ([`ServiceOutcome::Attempt`], `nonblocking.rs`). NULL
//! and MOUNT's lists are always answered at once.
//!
//! READ sends directly from the memory of a file if the file system holds it in memory and the
//! device can send from any memory. Otherwise the file system reads into memory from the
//! transport's pool, and the transport sends from that. WRITE passes the file system the slice of
//! the call that contains the data. So the server itself copies no file data.
#![expect(
    clippy::result_large_err,
    reason = "NFS sends attributes with failures, and they are on their way to be encoded"
)]

use std::sync::{Arc, Mutex};

use onc_rpc::{AcceptStatus, AuthStat, Credential, DecodeError, Decoder, Encoder, Message};
use rdma::IdMap;
use rpc_transport::{
    Attempted, ErrorReply, ProgramVersions, ReducedArguments, Request, Service, ServiceOutcome,
    ServiceReply,
};
use siphasher::sip::SipHasher13;

use crate::fs::{self, FileId};
use crate::proto::{
    Attributes, LinkArgs, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION, NfsResult,
    Procedure, RenameArgs, Status, Xdr, is_idempotent, mnt, nfs,
};
use crate::ulb::REDUCED_ARGUMENTS;
use call_context::CallContext;
use directory::ListingResult;
use handle::{ExportIdentity, HandleCodec};
use identity_policy::Peer;
use mount::Mounts;

mod call_context;
mod directory;
mod export;
mod file;
mod handle;
mod identity_policy;
mod make;
mod mount;
mod network;
mod nonblocking;
mod privileges;
mod spec;
#[cfg(test)]
mod tests;
mod users;

pub use export::{Export, ExportOptions, Squash};
pub use handle::{HandleKey, HandleKeyError};
pub use identity_policy::IdentityPolicy;
pub use network::{BadNetwork, Network};
pub use privileges::Privileges;
pub use spec::{ExportSpec, SpecError, overridden};

/// The maximum READ and WRITE, bytes. A longer READ returns less; a longer WRITE writes only this
/// much.
pub const MAX_TRANSFER: u32 = 1 << 20;
/// The maximum length of READDIR and READDIRPLUS results, bytes.
pub const MAX_LISTING: u32 = 1 << 20;
/// The length of READDIR results that the server recommends to clients, bytes.
pub const PREFERRED_LISTING: u32 = 64 << 10;

/// The reason why exports cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportsError {
    /// Two exports have the same path.
    #[error("{0:?} is exported twice")]
    Twice(String),
    /// Two exports have the same number in file handles, which is a hash. (The probability is 1 in
    /// 2^32.)
    #[error("{0:?} and {1:?} cannot be exported together: rename one")]
    Collision(String, String),
    /// Two exports have the same `fsid=`, which must be unique (exports(5)).
    #[error("{other:?} and {path:?} have the same fsid={fsid}: give one another number")]
    SameFsid {
        /// The number.
        fsid: u64,
        /// The path of the first export.
        other: String,
        /// The path of the second export.
        path: String,
    },
    /// An export has an empty path.
    #[error("an export has an empty path")]
    Empty,
    /// A path is too long for MOUNT (MNTPATHLEN).
    #[error("the path of export {0:?} is too long")]
    TooLong(String),
}

/// An export with its number in file handles.
#[derive(Debug)]
struct Exported {
    export: Export,
    /// The number, which is also the `fsid` of its objects. It depends only on the export's path
    /// and the identity of its root.
    number: u32,
    handles: HandleCodec,
}

impl Exported {
    /// Sets the `fsid` that clients see: each export is a file system of its own, and so is each
    /// one mounted in it.
    #[inline]
    fn to_client(&self, attributes: Attributes) -> Attributes {
        Attributes {
            fsid: self.fsid_to_client(attributes.fsid),
            ..attributes
        }
    }

    /// Returns the `fsid` that clients see in place of the file system's own.
    #[inline]
    fn fsid_to_client(&self, fsid: u64) -> u64 {
        let below = match fsid {
            0 => 0,
            mounted => SipHasher13::new().hash(&mounted.to_be_bytes()) << u32::BITS,
        };
        below | u64::from(self.number)
    }
}

/// State that the server's own thread and its workers share.
#[derive(Debug)]
struct Shared {
    exports: Vec<Exported>,
    /// Maps export numbers to indexes in `exports`.
    by_number: IdMap<u32, usize>,
    mounts: Mutex<Mounts>,
    policy: IdentityPolicy,
}

/// NFS version 3 and MOUNT version 3 (RFC 1813) over a set of exports. Clones serve the same
/// exports, for instance in several loops of one server.
#[derive(Debug)]
pub struct NfsServer {
    /// Every job holds a reference. The inner one is shared by all clones; the outer one is this
    /// clone's own, so that the calls of different loops do not count references in the same place.
    #[expect(
        clippy::redundant_allocation,
        reason = "the outer allocation is a count of references"
    )]
    shared: Arc<Arc<Shared>>,
}

impl Clone for NfsServer {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::new(Arc::clone(&self.shared)),
        }
    }
}

impl NfsServer {
    /// Creates a server of `exports`. File handles are authenticated with `key`: those made with
    /// another key are rejected.
    ///
    /// # Errors
    /// [`ExportsError`] if the exports cannot be distinguished.
    pub fn new(exports: Vec<Export>, key: HandleKey) -> Result<Self, ExportsError> {
        Self::with_policy(exports, key, IdentityPolicy::of_this_process())
    }

    /// Creates a server with the given policy on the identities that local users may claim.
    ///
    /// # Errors
    /// [`ExportsError`] if the exports cannot be distinguished.
    pub fn with_policy(
        exports: Vec<Export>,
        key: HandleKey,
        policy: IdentityPolicy,
    ) -> Result<Self, ExportsError> {
        let mut served: Vec<Exported> = Vec::new();
        let mut by_number = IdMap::default();
        for export in exports {
            let path = export.path.clone();
            let name = mount::normalise(path.as_bytes());
            if name.is_empty() && !path.starts_with('/') {
                return Err(ExportsError::Empty);
            }
            if path.len() > crate::proto::MAX_MOUNT_PATH as usize {
                return Err(ExportsError::TooLong(path));
            }
            let same = |other: &Exported| mount::normalise(other.export.path.as_bytes()) == name;
            if served.iter().any(same) {
                return Err(ExportsError::Twice(path));
            }
            // The number replaces the host's in file handles: file systems with the same one could
            // not be told apart.
            let numbered = |other: &&Exported| other.export.options.fsid == export.options.fsid;
            if let Some(fsid) = export.options.fsid
                && let Some(other) = served.iter().find(numbered)
            {
                let other = other.export.path.clone();
                return Err(ExportsError::SameFsid { fsid, other, path });
            }
            let identity = ExportIdentity::new(&name, &export.backend.root_identity());
            let number = identity.number();
            if let Some(other) = by_number.insert(number, served.len()) {
                let other = served[other].export.path.clone();
                return Err(ExportsError::Collision(other, path));
            }
            tracing::info!(path, options = %export.options, "exporting");
            let handles = HandleCodec::new(&key, identity);
            served.push(Exported {
                export,
                number,
                handles,
            });
        }
        // Each export is served with its own options alone, wherever it is mounted.
        let backends = || served.iter().map(|exported| &exported.export.backend);
        let roots: Vec<_> = backends().filter_map(|fs| fs.mounted_root()).collect();
        backends().for_each(|fs| fs.set_other_exports(&roots));
        Ok(Self {
            shared: Arc::new(Arc::new(Shared {
                exports: served,
                by_number,
                mounts: Mutex::default(),
                policy,
            })),
        })
    }
}

fn decode<P: Procedure>(request: &Request) -> Result<P::Args, DecodeError> {
    let mut input = request.args();
    let args = P::Args::decode(&mut input)?;
    input.items_used()?;
    Ok(args)
}

fn log_arguments<P: Procedure>(request: &Request, args: &P::Args) {
    tracing::trace!(peer = %request.peer, xid = request.xid, procedure = %P::NAME, ?args, "arguments");
}

/// Decodes the arguments of a procedure.
///
/// If they cannot be decoded, the RPC layer answers GARBAGE_ARGS. Bytes after them are ignored, as
/// by other servers. A bulk item at a position where the arguments have none is an error.
/// The log at trace level has the arguments, with names, offsets and handles.
fn arguments<P: Procedure>(request: &Request) -> Result<P::Args, ErrorReply> {
    let decoded = decode::<P>(request);
    if let Ok(args) = &decoded {
        log_arguments::<P>(request, args);
    }
    decoded.map_err(|error| {
        tracing::debug!(peer = %request.peer, xid = request.xid, procedure = %P::NAME, %error, "undecodable arguments (GARBAGE_ARGS)");
        ErrorReply::Accepted(AcceptStatus::GarbageArgs)
    })
}

fn encode(results: &impl Xdr) -> Message {
    let mut out = Encoder::new();
    results.encode(&mut out);
    out.finish()
}

/// Answers NULL of a program, which has no arguments to decode and does nothing.
fn null(request: &Request) -> ServiceReply {
    log_done(request, nfs::Null::NAME);
    Ok(Message::default())
}

/// Logs an executed call without its status: NULL, or a procedure of MOUNT.
fn log_done(request: &Request, procedure: &'static str) {
    let program = match request.prog {
        MOUNT_PROGRAM => "MOUNT",
        _ => "NFS",
    };
    tracing::debug!(peer = %request.peer, xid = request.xid, %program, %procedure, "done");
}

/// Answers a procedure of MOUNT as [`answer`] does, and logs it.
fn answer_mount<P: Procedure>(
    request: &Request,
    run: impl FnOnce(P::Args) -> Result<P::Results, ErrorReply>,
) -> ServiceReply {
    let reply = answer::<P>(request, run)?;
    log_done(request, P::NAME);
    Ok(reply)
}

/// Decodes the arguments of a procedure, executes it, and encodes its results.
fn answer<P: Procedure>(
    request: &Request,
    run: impl FnOnce(P::Args) -> Result<P::Results, ErrorReply>,
) -> ServiceReply {
    Ok(encode(&run(arguments::<P>(request)?)?))
}

/// Decodes the arguments of READDIR or READDIRPLUS and executes it. Its results are encoded while
/// the directory is read.
fn answer_listing<P: Procedure>(
    request: &Request,
    run: impl FnOnce(P::Args) -> ListingResult,
) -> ServiceReply {
    Ok(match run(arguments::<P>(request)?) {
        Ok(results) => results,
        Err(failed) => encode(&NfsResult::<(), _>::Err(failed)),
    })
}

/// Returns the peer that sent a call.
fn peer(request: &Request) -> Peer {
    Peer {
        address: request.peer,
        origin: request.origin,
    }
}

impl Shared {
    /// Returns the export with a number.
    fn export_of(&self, number: u32) -> Option<&Exported> {
        self.exports.get(*self.by_number.get(&number)?)
    }

    /// Returns whether a call of the NFS program can wait for a disk. All arguments start with a
    /// handle. Two procedures have a second one, whose attributes are part of the reply even if the
    /// call fails because the two are of different exports.
    ///
    /// The export's number is taken from the handle without a check of the MAC, which costs more
    /// than the rest of this decision: if the handle is forged, the call fails wherever it runs.
    fn blocks(&self, request: &Request) -> bool {
        let blocks = |number| {
            let exported = self.export_of(number);
            exported.is_some_and(|exported| exported.export.backend.blocks())
        };
        if handle::claimed_export(&mut request.args()).is_some_and(blocks) {
            return true;
        }
        let second = match request.proc {
            nfs::Link::NUMBER => LinkArgs::decode(&mut request.args()).map(|args| args.link.dir),
            nfs::Rename::NUMBER => RenameArgs::decode(&mut request.args()).map(|args| args.to.dir),
            _ => return false,
        };
        second.is_ok_and(|handle| handle::export_in(&handle).is_ok_and(blocks))
    }

    /// Returns the export with the root `mounted`, which is mounted at a placeholder directory in the
    /// export `above`, if it is to be visible there (`nohide`, or `crossmnt` of `above`) and this client
    /// may use it. Also returns its root and the root's attributes.
    fn visible_root(
        &self,
        above: &Exported,
        mounted: &FileId,
        peer: Peer,
    ) -> Option<(&Exported, FileId, Attributes)> {
        let found = self.exports.iter().find(|exported| {
            let export = &exported.export;
            (export.options.nohide || above.export.options.crossmnt)
                && export.backend.mounted_root().as_ref() == Some(mounted)
                && export.options.allows(peer.address.ip())
                && self.policy.admit(peer, &export.options).is_ok()
        })?;
        let root = found.export.backend.root();
        let attributes = found.export.backend.getattr(&root).ok()?;
        Some((found, root, attributes))
    }

    fn run(&self, mount: bool, request: &Request) -> ServiceReply {
        match mount {
            true => self.mount(request),
            false => self.nfs(request),
        }
    }

    fn nfs(&self, request: &Request) -> ServiceReply {
        let context = CallContext::new(self, request);
        macro_rules! dispatch {
            ($($procedure:ident => $run:ident,)*) => {
                match request.proc {
                    nfs::Null::NUMBER => null(request),
                    // Other servers also treat this as undecodable.
                    nfs::Write::NUMBER => answer::<nfs::Write>(request, |args| {
                        if args.data.0.len() != args.count as usize {
                            return Err(ErrorReply::Accepted(AcceptStatus::GarbageArgs));
                        }
                        Ok(context.traced(nfs::Write::NAME, || context.write(args)))
                    }),
                    nfs::Readdir::NUMBER => answer_listing::<nfs::Readdir>(request, |args| {
                        context.traced(nfs::Readdir::NAME, || context.readdir(args))
                    }),
                    nfs::Readdirplus::NUMBER => answer_listing::<nfs::Readdirplus>(request, |args| {
                        context.traced(nfs::Readdirplus::NAME, || context.readdirplus(args))
                    }),
                    $(nfs::$procedure::NUMBER => answer::<nfs::$procedure>(request, |args| {
                        Ok(context.traced(nfs::$procedure::NAME, || context.$run(args)))
                    }),)*
                    _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
                }
            };
        }
        dispatch! {
            Getattr => getattr,
            Setattr => setattr,
            Lookup => lookup,
            Access => access,
            Readlink => readlink,
            Read => read,
            Create => create,
            Mkdir => mkdir,
            Symlink => symlink,
            Mknod => mknod,
            Remove => remove,
            Rmdir => rmdir,
            Rename => rename,
            Link => link,
            Fsstat => fsstat,
            Fsinfo => fsinfo,
            Pathconf => pathconf,
            Commit => commit,
        }
    }

    fn mount(&self, request: &Request) -> ServiceReply {
        match request.proc {
            mnt::Null::NUMBER => null(request),
            mnt::Mount::NUMBER => answer_mount::<mnt::Mount>(request, |args| {
                let mounted = self.mnt(peer(request), &args.path);
                if mounted.is_ok() {
                    request.count_as_use();
                }
                Ok(mounted)
            }),
            mnt::Dump::NUMBER => answer_mount::<mnt::Dump>(request, |()| Ok(self.dump())),
            mnt::Unmount::NUMBER => answer_mount::<mnt::Unmount>(request, |args| {
                self.umnt(request.peer, &args.path);
                Ok(())
            }),
            mnt::UnmountAll::NUMBER => answer_mount::<mnt::UnmountAll>(request, |()| {
                self.umntall(request.peer);
                Ok(())
            }),
            mnt::Export::NUMBER => {
                answer_mount::<mnt::Export>(request, |()| Ok(self.export_list()))
            }
            _ => Err(ErrorReply::Accepted(AcceptStatus::ProcUnavail)),
        }
    }
}

/// Returns the job that answers a call on a worker.
#[expect(
    clippy::redundant_allocation,
    reason = "see the field of `NfsServer` of this type"
)]
fn job(
    shared: Arc<Arc<Shared>>,
    mount: bool,
    request: Request,
) -> Box<dyn FnOnce() -> ServiceReply + Send> {
    Box::new(move || {
        if rpc_transport::is_worker() {
            fs::directory::keep_identity();
        }
        shared.run(mount, &request)
    })
}

/// Has the thread keep the identity of a caller until the end of the batch of attempts that it
/// executes. A thread that executes no batch returns to its own after each operation.
fn keep_identity_in_batch() {
    if !fs::directory::keeps_identity()
        && rpc_transport::after_attempts(fs::directory::return_to_server)
    {
        fs::directory::keep_identity_in_batch();
    }
}

impl Service for NfsServer {
    fn programs(&self) -> &[ProgramVersions] {
        &[
            ProgramVersions {
                prog: NFS_PROGRAM,
                low: NFS_VERSION,
                high: NFS_VERSION,
            },
            ProgramVersions {
                prog: MOUNT_PROGRAM,
                low: MOUNT_VERSION,
                high: MOUNT_VERSION,
            },
        ]
    }

    fn call(&mut self, request: Request) -> ServiceOutcome {
        // RFC 5531, section 8.2: an unsupported flavor is an authentication error.
        if let Credential::Other { flavor, .. } = request.cred {
            tracing::debug!(peer = %request.peer, flavor, "unknown authentication flavor");
            return ServiceOutcome::Done(Err(ErrorReply::Auth(AuthStat::BAD_CRED)));
        }
        let mount = request.prog == MOUNT_PROGRAM;
        let later = match (mount, request.proc) {
            (true, mnt::Mount::NUMBER) => {
                let mut exports = self.shared.exports.iter();
                exports.any(|exported| exported.export.backend.blocks())
            }
            (true, _) | (false, nfs::Null::NUMBER) => false,
            (false, _) => self.shared.blocks(&request),
        };
        if !later {
            return ServiceOutcome::Done(self.shared.run(mount, &request));
        }
        let shared = Arc::clone(&self.shared);
        if mount || !shared.is_attempted(&request) {
            return ServiceOutcome::Later(job(shared, mount, request));
        }
        ServiceOutcome::Attempt(Box::new(move || {
            keep_identity_in_batch();
            match shared.attempt(&request) {
                Some(reply) => Attempted::Done(Ok(reply)),
                None => Attempted::Later(job(shared, mount, request)),
            }
        }))
    }

    fn remember_reply(&self, prog: u32, _: u32, proc: u32) -> bool {
        prog == NFS_PROGRAM && !is_idempotent(prog, proc)
    }

    fn reduced_arguments(&self) -> ReducedArguments {
        REDUCED_ARGUMENTS
    }

    /// All results of NFS begin with a status. A call that fails can have changed something, for
    /// example the first of several attributes, but nothing that its client was told is done.
    fn has_changed(&self, _: u32, _: u32, _: u32, results: &Message) -> bool {
        Decoder::new(results).u32() == Ok(Status::OK.0)
    }
}
