//! Requests that read directories. The reply is filled while the directory is read.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use fuser::{FileHandle, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};
use rustix::io::Errno;

use super::{Bridge, Fails, GENERATION, nothing};
use crate::convert::{attr, kind};
use crate::core::{Connect, Core, UserOf};
use crate::counts::RequestKind;

impl<C: Connect> Bridge<C> {
    /// Answers READDIR: names and numbers.
    pub(super) fn list(
        &self,
        request: &Request,
        directory: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (reply, pid) = (Listing(reply), request.pid());
        let work = async move |core: Rc<Core<C>>, _: UserOf<C>| Ok(core);
        let answer = move |reply: Listing<ReplyDirectory>, core: Rc<Core<C>>| {
            let inner = Rc::clone(&core);
            core.spawn(async move {
                let Listing(mut reply) = reply;
                let listing = inner.readdir(directory.0, offset, false, |listed| {
                    let kind = kind(listed.file_type);
                    let ino = INodeNo(listed.fileid);
                    !reply.add(ino, listed.cookie, kind, OsStr::from_bytes(&listed.name.0))
                });
                match inner.interrupts.unless_killed(pid, listing).await {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.fail(error),
                }
            });
        };
        self.submit(RequestKind::Readdir, request, reply, work, answer);
    }

    /// Answers READDIRPLUS: with attributes, as far as the kernel may use them and the names.
    pub(super) fn list_plus(
        &self,
        request: &Request,
        directory: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (reply, pid) = (Listing(reply), request.pid());
        let block = self.block;
        let work = async move |core: Rc<Core<C>>, _: UserOf<C>| Ok(core);
        let answer = move |reply: Listing<ReplyDirectoryPlus>, core: Rc<Core<C>>| {
            let inner = Rc::clone(&core);
            core.spawn(async move {
                let Listing(mut reply) = reply;
                let listing = inner.readdir(directory.0, offset, true, |listed| {
                    let name = OsStr::from_bytes(&listed.name.0);
                    let known = listed.node.as_ref().zip(listed.stat.as_ref());
                    let (ino, trust, attr) = match known {
                        Some((node, stat)) => (node.ino, stat.trust, attr(stat, node.ino, block)),
                        // An entry without an object: the kernel looks it up if need be.
                        None => {
                            let mut stat = nothing();
                            stat.attributes.file_type = listed.file_type;
                            (0, stat.trust, attr(&stat, listed.fileid, block))
                        }
                    };
                    let ino = INodeNo(ino);
                    let full = reply.add(ino, listed.cookie, name, &trust, &attr, GENERATION);
                    if let (Some((node, _)), false) = (known, full) {
                        node.lookups.set(node.lookups.get() + 1);
                    }
                    !full
                });
                match inner.interrupts.unless_killed(pid, listing).await {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.fail(error),
                }
            });
        };
        self.submit(RequestKind::Readdirplus, request, reply, work, answer);
    }
}

/// A reply that is filled while the directory is read.
struct Listing<R>(R);

impl<R: Fails> Fails for Listing<R> {
    fn fail(self, error: Errno) {
        self.0.fail(error);
    }
}
