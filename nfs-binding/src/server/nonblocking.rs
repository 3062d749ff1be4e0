//! Attempts to answer calls on the thread that serves all connections, without waiting for a disk.
//!
//! An attempt that does not succeed has no effect, and a worker executes the whole call. That includes all
//! failures, which are rare: but for a name that does not exist.

use onc_rpc::Message;
use rpc_transport::Request;

use super::call_context::{CallContext, Target};
use super::file::LONG_READ;
use super::{Shared, decode, encode, handle, log_arguments};
use crate::fs::NonBlocking;
use crate::proto::{
    Access, AccessArgs, AccessOk, AccessResult, DirOpArgs, Failed, GetattrResult, HandleArgs,
    LookupOk, LookupResult, Procedure, ReadArgs, ReadOk, ReadResult, Status, nfs,
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
            _ => false,
        }
    }

    /// Returns whether an attempt at a call of a user leaves the thread its credentials.
    #[cold]
    fn keeps_credentials(&self, request: &Request) -> bool {
        let number = handle::claimed_export(&mut request.args());
        let exported = number.and_then(|number| self.export_of(number));
        let fs = exported.and_then(|exported| exported.export.backend.nonblocking());
        fs.is_some_and(|fs| !fs.changes_credentials())
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
        }
    }
}

impl Target<'_> {
    fn nonblocking(&self) -> Option<&dyn NonBlocking> {
        self.fs().nonblocking()
    }
}

impl CallContext<'_> {
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
