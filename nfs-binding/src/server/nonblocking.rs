//! Attempts to answer calls on the thread that serves all connections, without waiting for a disk.
//!
//! An attempt that does not succeed has no effect, and a worker executes the whole call. That includes all
//! failures, which are rare: but for a name that does not exist. Some calls to a file system that is in memory
//! alone are executed as a worker executes them, with their failures.

use onc_rpc::Message;
use rpc_transport::Request;

use super::call_context::{CallContext, Target};
use super::file::LONG_READ;
use super::{Shared, decode, encode, handle, log_arguments};
use crate::fs::NonBlocking;
use crate::proto::{
    Access, AccessArgs, AccessOk, AccessResult, CommitArgs, CommitResult, DirOpArgs, Failed,
    FileHandle, FsstatResult, GetattrResult, HandleArgs, LookupOk, LookupResult, Procedure,
    ReadArgs, ReadOk, ReadResult, ReadlinkResult, Status, WriteArgs, WriteResult, nfs,
};

fn answer<P: Procedure>(
    request: &Request,
    run: impl FnOnce(&P::Args) -> Option<P::Results>,
) -> Option<Message> {
    let args = decode::<P>(request).ok()?;
    let results = run(&args)?;
    log_arguments::<P>(request, &args);
    Some(encode(&results))
}

impl Shared {
    /// Returns whether an attempt can answer a call, which is one of the NFS program.
    pub(super) fn is_attempted(&self, request: &Request) -> bool {
        match request.proc {
            nfs::Getattr::NUMBER => true,
            nfs::Lookup::NUMBER | nfs::Access::NUMBER | nfs::Read::NUMBER => {
                !request.keeps_credentials() || self.keeps_credentials(request)
            }
            nfs::Readlink::NUMBER
            | nfs::Write::NUMBER
            | nfs::Fsstat::NUMBER
            | nfs::Commit::NUMBER => {
                self.is_in_memory(request)
                    && (!request.keeps_credentials() || self.keeps_credentials(request))
            }
            _ => false,
        }
    }

    /// Returns the file system of the handle that a call begins with.
    fn claimed_file_system(&self, request: &Request) -> Option<&dyn NonBlocking> {
        let number = handle::claimed_export(&mut request.args())?;
        self.export_of(number)?.export.backend.nonblocking()
    }

    /// Returns whether an attempt at a call of a user leaves the thread its credentials.
    #[cold]
    fn keeps_credentials(&self, request: &Request) -> bool {
        let fs = self.claimed_file_system(request);
        fs.is_some_and(|fs| !fs.changes_credentials())
    }

    /// Returns whether all of the call's file system is in memory.
    fn is_in_memory(&self, request: &Request) -> bool {
        let fs = self.claimed_file_system(request);
        fs.is_some_and(NonBlocking::is_in_memory)
    }

    /// Tries to execute a call of the NFS program without waiting. Returns the results, or `None` if a
    /// worker has to execute it.
    pub(super) fn attempt(&self, request: &Request) -> Option<Message> {
        let context = CallContext::of_attempt(self, request);
        macro_rules! dispatch {
            ($($procedure:ident => $run:ident,)*) => {
                match request.proc {
                    $(nfs::$procedure::NUMBER => answer::<nfs::$procedure>(request, |args| {
                        context.traced_attempt(nfs::$procedure::NAME, || context.$run(args))
                    }),)*
                    _ => None,
                }
            };
        }
        dispatch! {
            Getattr => attempt_getattr,
            Lookup => attempt_lookup,
            Access => attempt_access,
            Read => attempt_read,
            Readlink => attempt_readlink,
            Write => attempt_write,
            Fsstat => attempt_fsstat,
            Commit => attempt_commit,
        }
    }
}

impl Target<'_> {
    fn nonblocking(&self) -> Option<&dyn NonBlocking> {
        self.fs().nonblocking()
    }
}

impl CallContext<'_> {
    /// Executes a call as a worker does, if its object is open and all of its file system is in memory.
    fn in_memory<T>(&self, object: &FileHandle, run: impl FnOnce() -> T) -> Option<T> {
        let target = self.target(object).ok()?;
        let fs = target.nonblocking()?;
        (fs.is_in_memory() && fs.is_open(&target.id)).then(run)
    }

    fn attempt_readlink(&self, args: &HandleArgs) -> Option<ReadlinkResult> {
        self.in_memory(&args.object, || self.readlink(args.clone()))
    }

    /// Tries to execute WRITE. As with READ, longer ones are left to a worker; and so are those whose
    /// data is not as long as they say.
    fn attempt_write(&self, args: &WriteArgs) -> Option<WriteResult> {
        let is_short = args.count <= LONG_READ && args.data.0.len() == args.count as usize;
        is_short.then(|| self.in_memory(&args.file, || self.write(args.clone())))?
    }

    fn attempt_fsstat(&self, args: &HandleArgs) -> Option<FsstatResult> {
        self.in_memory(&args.object, || self.fsstat(args.clone()))
    }

    fn attempt_commit(&self, args: &CommitArgs) -> Option<CommitResult> {
        self.in_memory(&args.file, || self.commit(*args))
    }

    fn attempt_getattr(&self, args: &HandleArgs) -> Option<GetattrResult> {
        let target = self.target(&args.object).ok()?;
        let attributes = target.nonblocking()?.getattr(&target.id)?;
        Some(Ok(target.to_client(attributes)))
    }

    fn attempt_lookup(&self, args: &DirOpArgs) -> Option<LookupResult> {
        let target = self.target(&args.what.dir).ok()?;
        let (fs, name) = (target.nonblocking()?, args.what.name.as_ref());
        Some(match fs.lookup(&target.who, &target.id, name)? {
            Ok(found) => {
                let (object, attributes) = target.handle_and_attributes(found.object.borrowed());
                Ok(LookupOk {
                    object,
                    attributes: Some(attributes),
                    dir_attributes: Some(target.to_client(found.directory)),
                })
            }
            Err(error) => Err(Failed {
                status: Status::from(error),
                attributes: Some(target.to_client(fs.getattr(&target.id)?)),
            }),
        })
    }

    fn attempt_access(&self, args: &AccessArgs) -> Option<AccessResult> {
        let target = self.target(&args.object).ok()?;
        let fs = target.nonblocking()?;
        let (mut access, attributes) = fs.access(&target.who, &target.id, args.access)?;
        if target.exported.export.options.read_only {
            access -= Access::MODIFY | Access::EXTEND | Access::DELETE;
        }
        Some(Ok(AccessOk {
            attributes: Some(target.to_client(attributes)),
            access,
        }))
    }

    /// Tries to execute READ. Longer ones are left to a worker in any case: while one copied its data,
    /// all other calls would wait.
    fn attempt_read(&self, args: &ReadArgs) -> Option<ReadResult> {
        if args.count > LONG_READ {
            return None;
        }
        let target = self.target(&args.file).ok()?;
        let fs = target.nonblocking()?;
        let room = self.pool.room_for(args.count as usize);
        let count = args.count.min(u32::try_from(room).unwrap_or(args.count));
        let mut buf = self.pool.alloc(count as usize).ok()?;
        let read = fs.read(&target.who, &target.id, args.offset, &mut buf)?;
        buf.truncate(read.count as usize);
        Some(Ok(ReadOk {
            attributes: Some(target.to_client(read.attributes)),
            count: read.count,
            eof: read.eof,
            data: buf.freeze().into(),
        }))
    }
}
