//! Procedures that create and remove names.

use super::call_context::{CallContext, Target};
use crate::fs::{Change, HowToCreate, Object, Special};
use crate::proto::{
    CreateArgs, CreateHow, CreateOk, CreateResult, DirOp, DirOpArgs, Failed, FileHandle, LinkArgs,
    LinkResult, LinkWcc, MkdirArgs, MknodArgs, MknodWhat, RemoveResult, RenameArgs, RenameResult,
    RenameWcc, Status, SymlinkArgs, WccData,
};

fn created(target: &Target<'_>, change: Change<Object>) -> CreateResult {
    let dir_wcc = target.own_wcc(change.wcc);
    match change.result {
        Ok(object) => {
            let (handle, attributes) = target.handle_and_attributes(object.borrowed());
            Ok(CreateOk {
                object: Some(handle),
                attributes: Some(attributes),
                dir_wcc,
            })
        }
        Err(error) => Err(Failed {
            status: error.into(),
            attributes: dir_wcc,
        }),
    }
}

fn removed(target: &Target<'_>, change: Change<()>) -> RemoveResult {
    let wcc = target.own_wcc(change.wcc);
    match change.result {
        Ok(()) => Ok(wcc),
        Err(error) => Err(Failed {
            status: error.into(),
            attributes: wcc,
        }),
    }
}

impl<'a> CallContext<'a> {
    /// Executes CREATE (RFC 1813, section 3.3.8).
    pub(super) fn create(&self, args: CreateArgs) -> CreateResult {
        let target = self.resolve_writable(&args.place.dir)?;
        let how = match args.how {
            CreateHow::Unchecked(set) => HowToCreate::Unchecked(set),
            CreateHow::Guarded(set) => HowToCreate::Guarded(set),
            CreateHow::Exclusive(verifier) => HowToCreate::Exclusive(verifier),
        };
        let name = args.place.name.as_ref();
        let change = target.fs().create(&target.who, &target.id, name, &how);
        created(&target, change)
    }

    /// Executes MKDIR (section 3.3.9).
    pub(super) fn mkdir(&self, args: MkdirArgs) -> CreateResult {
        let target = self.resolve_writable(&args.place.dir)?;
        let (name, set) = (args.place.name.as_ref(), &args.attributes);
        let change = target.fs().mkdir(&target.who, &target.id, name, set);
        created(&target, change)
    }

    /// Executes SYMLINK (section 3.3.10).
    pub(super) fn symlink(&self, args: SymlinkArgs) -> CreateResult {
        let target = self.resolve_writable(&args.place.dir)?;
        let (name, text) = (args.place.name.as_ref(), args.text.as_ref());
        let set = &args.attributes;
        let change = target
            .fs()
            .symlink(&target.who, &target.id, name, text, set);
        created(&target, change)
    }

    /// Executes MKNOD (section 3.3.11).
    pub(super) fn mknod(&self, args: MknodArgs) -> CreateResult {
        let target = self.resolve_writable(&args.place.dir)?;
        let (what, set) = match args.what {
            MknodWhat::Character(set, device) => (Special::Character(device), set),
            MknodWhat::Block(set, device) => (Special::Block(device), set),
            MknodWhat::Socket(set) => (Special::Socket, set),
            MknodWhat::Fifo(set) => (Special::Fifo, set),
            MknodWhat::Other(_) => {
                return Err(Failed {
                    status: Status::BADTYPE,
                    attributes: WccData {
                        before: None,
                        after: target.attributes(),
                    },
                });
            }
        };
        let name = args.place.name.as_ref();
        let change = target.fs().mknod(&target.who, &target.id, name, what, &set);
        created(&target, change)
    }

    /// Executes REMOVE (section 3.3.12).
    pub(super) fn remove(&self, args: DirOpArgs) -> RemoveResult {
        let target = self.resolve_writable(&args.what.dir)?;
        let name = args.what.name.as_ref();
        let change = target.fs().remove(&target.who, &target.id, name);
        removed(&target, change)
    }

    /// Executes RMDIR (section 3.3.13).
    pub(super) fn rmdir(&self, args: DirOpArgs) -> RemoveResult {
        let target = self.resolve_writable(&args.what.dir)?;
        let name = args.what.name.as_ref();
        let change = target.fs().rmdir(&target.who, &target.id, name);
        removed(&target, change)
    }

    /// Resolves two handles of one writable export. The error contains the status and the
    /// attributes of both objects, as far as they can be read.
    fn resolve_two(
        &self,
        one: &FileHandle,
        other: &FileHandle,
    ) -> Result<(Target<'a>, Target<'a>), Failed<[WccData; 2]>> {
        let both = [one, other].map(|handle| self.resolve_writable(handle));
        let failed = match &both {
            [Err(failed), _] | [_, Err(failed)] => failed.status,
            [Ok(one), Ok(other)] if !one.same_export(other) => Status::XDEV,
            _ => Status::OK,
        };
        match both {
            [Ok(one), Ok(other)] if failed == Status::OK => Ok((one, other)),
            both => Err(Failed {
                status: failed,
                attributes: both.map(|target| match target {
                    Ok(target) => WccData {
                        before: None,
                        after: target.attributes(),
                    },
                    Err(failed) => failed.attributes,
                }),
            }),
        }
    }

    /// Executes RENAME (section 3.3.14).
    pub(super) fn rename(&self, args: RenameArgs) -> RenameResult {
        let DirOp {
            dir: from_dir,
            name: from,
        } = args.from;
        let DirOp {
            dir: to_dir,
            name: to,
        } = args.to;
        let (source, target) = self.resolve_two(&from_dir, &to_dir).map_err(|failed| {
            let [from_dir, to_dir] = failed.attributes;
            Failed {
                status: failed.status,
                attributes: RenameWcc { from_dir, to_dir },
            }
        })?;
        let renamed = source.fs().rename(
            &source.who,
            &source.id,
            from.as_ref(),
            &target.id,
            to.as_ref(),
        );
        let wcc = RenameWcc {
            from_dir: source.own_wcc(renamed.from),
            to_dir: target.own_wcc(renamed.to),
        };
        match renamed.result {
            Ok(()) => Ok(wcc),
            Err(error) => Err(Failed {
                status: error.into(),
                attributes: wcc,
            }),
        }
    }

    /// Executes LINK (section 3.3.15).
    pub(super) fn link(&self, args: LinkArgs) -> LinkResult {
        let (object, dir) = self
            .resolve_two(&args.object, &args.link.dir)
            .map_err(|failed| {
                let [object, dir_wcc] = failed.attributes;
                Failed {
                    status: failed.status,
                    attributes: LinkWcc {
                        attributes: object.after,
                        dir_wcc,
                    },
                }
            })?;
        let name = args.link.name.as_ref();
        let change = dir.fs().link(&dir.who, &object.id, &dir.id, name);
        let dir_wcc = dir.own_wcc(change.wcc);
        match change.result {
            Ok(attributes) => Ok(LinkWcc {
                attributes: Some(object.to_client(attributes)),
                dir_wcc,
            }),
            Err(error) => Err(Failed {
                status: error.into(),
                attributes: LinkWcc {
                    attributes: object.attributes(),
                    dir_wcc,
                },
            }),
        }
    }
}
