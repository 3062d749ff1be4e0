//! The bindings of NFS versions 2 and 3 (RFC 8267, section 4) and of their auxiliary protocols
//! (section 5).

use onc_rpc::{DecodeError, Decoder};
use rpc_transport::ReplyRoom;

use crate::proto::{MOUNT_PROGRAM, NFS_PROGRAM, NFS_VERSION, Procedure, Xdr, mnt, nfs};
use crate::ulb::{Binding, MOUNT_LIST_ROOM};
use crate::v4::fields::Field::{Count, Fixed, Item, LinkItem, List, Opaque, Union, UpToCount};
use crate::v4::fields::{Field, Fields, NO_LIMIT};

/// A procedure as far as its binding needs it.
pub(super) struct Shape {
    /// The name.
    pub(super) name: &'static str,
    /// The arguments up to what is needed of them.
    pub(super) args: Fields,
    /// The results.
    pub(super) results: Fields,
    /// Whether executing it twice has the same effect as executing it once.
    pub(super) idempotent: bool,
}

/// Version 2 of NFS (RFC 1094).
pub(super) const NFS_V2: u32 = 2;
/// The program number of NFSACL, which has no public definition. Version 2 goes with version 2 of
/// NFS, version 3 with version 3.
const NFSACL_PROGRAM: u32 = 100_227;
/// The program number of NLM, the lock manager.
const NLM_PROGRAM: u32 = 100_021;
/// The program number of NSM, the status monitor.
const NSM_PROGRAM: u32 = 100_024;

const fn reads(name: &'static str, args: Fields, results: Fields) -> Shape {
    Shape {
        name,
        args,
        results,
        idempotent: true,
    }
}

const fn changes(name: &'static str, args: Fields, results: Fields) -> Shape {
    Shape {
        idempotent: false,
        ..reads(name, args, results)
    }
}

const ANY: Field = Opaque(NO_LIMIT);
/// The `post_op_attr` of version 3.
const POST_OP: Field = Union(&[(1, &[Fixed(84)])], &[]);
/// A value of version 3's `sattr3`, of four bytes or eight.
const SET_WORD: Field = Union(&[(1, &[Fixed(4)])], &[]);
const SET_SIZE: Field = Union(&[(1, &[Fixed(8)])], &[]);
const SET_TIME: Field = Union(&[(2, &[Fixed(8)])], &[]);
/// The arguments of version 3's procedures that are not reduced, and results that are not.
const NOTHING: Fields = &[];

/// The procedures of version 3 with DDP-eligible items. The length of all replies is that of
/// [`Binding`].
pub(super) fn v3(procedure: u32) -> Option<Shape> {
    Some(match procedure {
        nfs::Write::NUMBER => reads("WRITE", &[ANY, Fixed(16), Item], NOTHING),
        nfs::Symlink::NUMBER => reads(
            "SYMLINK",
            &[
                ANY, ANY, SET_WORD, SET_WORD, SET_WORD, SET_SIZE, SET_TIME, SET_TIME, Item,
            ],
            NOTHING,
        ),
        nfs::Read::NUMBER => reads(
            "READ",
            NOTHING,
            &[Union(&[(0, &[POST_OP, Fixed(8), Item])], &[])],
        ),
        nfs::Readlink::NUMBER => reads(
            "READLINK",
            NOTHING,
            &[Union(&[(0, &[POST_OP, LinkItem])], &[])],
        ),
        _ => return None,
    })
}

/// Returns the room for the reply to a call of NFS version 3 or MOUNT version 3, whose arguments
/// are next in `from`, or `None` if there is no such procedure.
pub(super) fn typed_room(
    program: u32,
    procedure: u32,
    from: &Decoder<'_>,
) -> Option<Result<ReplyRoom, DecodeError>> {
    fn room<P: Binding>(from: &Decoder<'_>) -> Result<ReplyRoom, DecodeError> {
        let args = P::Args::decode(&mut from.clone())?;
        Ok(P::reply_room(&args))
    }
    macro_rules! find {
        ($($procedure:ty),* $(,)?) => {
            match procedure {
                $(<$procedure as Procedure>::NUMBER => room::<$procedure>(from),)*
                _ => return None,
            }
        };
    }
    Some(match program {
        NFS_PROGRAM => find!(
            nfs::Null,
            nfs::Getattr,
            nfs::Setattr,
            nfs::Lookup,
            nfs::Access,
            nfs::Readlink,
            nfs::Read,
            nfs::Write,
            nfs::Create,
            nfs::Mkdir,
            nfs::Symlink,
            nfs::Mknod,
            nfs::Remove,
            nfs::Rmdir,
            nfs::Rename,
            nfs::Link,
            nfs::Readdir,
            nfs::Readdirplus,
            nfs::Fsstat,
            nfs::Fsinfo,
            nfs::Pathconf,
            nfs::Commit,
        ),
        MOUNT_PROGRAM => find!(
            mnt::Null,
            mnt::Mount,
            mnt::Dump,
            mnt::Unmount,
            mnt::UnmountAll,
            mnt::Export,
        ),
        _ => return None,
    })
}

/// The `fattr` of version 2.
const ATTRIBUTES_V2: Field = Fixed(68);
const ATTRSTAT: Fields = &[Union(&[(0, &[ATTRIBUTES_V2])], &[])];
const DIROPRES: Fields = &[Union(&[(0, &[Fixed(32), ATTRIBUTES_V2])], &[])];
const STAT: Fields = &[Fixed(4)];

/// The procedures of version 2. READ's count is limited to 8 KiB, and a path to 1 KiB, but servers
/// are known that do not keep to it.
static V2: [Shape; 18] = [
    reads("NULL", NOTHING, NOTHING),
    reads("GETATTR", NOTHING, ATTRSTAT),
    changes("SETATTR", NOTHING, ATTRSTAT),
    reads("ROOT", NOTHING, NOTHING),
    reads("LOOKUP", NOTHING, DIROPRES),
    reads("READLINK", NOTHING, &[Union(&[(0, &[LinkItem])], &[])]),
    reads(
        "READ",
        &[Fixed(32 + 4), Count],
        &[Union(&[(0, &[ATTRIBUTES_V2, Item])], &[])],
    ),
    reads("WRITECACHE", NOTHING, NOTHING),
    changes("WRITE", &[Fixed(32 + 12), Item], ATTRSTAT),
    changes("CREATE", NOTHING, DIROPRES),
    changes("REMOVE", NOTHING, STAT),
    changes("RENAME", NOTHING, STAT),
    changes("LINK", NOTHING, STAT),
    changes("SYMLINK", &[Fixed(32), ANY, Item], STAT),
    changes("MKDIR", NOTHING, DIROPRES),
    changes("RMDIR", NOTHING, STAT),
    reads(
        "READDIR",
        &[Fixed(32 + 4), Count],
        &[UpToCount(16, 1, NOTHING)],
    ),
    reads("STATFS", NOTHING, &[Union(&[(0, &[Fixed(20)])], &[])]),
];

/// The access control list of NFSACL. RFC 8267 (section 5.2) leaves its length to the limits of
/// clients; Linux's and Solaris' is 1024 entries.
const ACL: Field = List(1024, &[Fixed(12)]);

static NFSACL_V2: [Shape; 5] = [
    reads("NULL", NOTHING, NOTHING),
    reads(
        "GETACL",
        NOTHING,
        &[Union(
            &[(0, &[ATTRIBUTES_V2, Fixed(8), ACL, Fixed(4), ACL])],
            &[],
        )],
    ),
    changes("SETACL", NOTHING, ATTRSTAT),
    reads("GETATTR", NOTHING, ATTRSTAT),
    reads(
        "ACCESS",
        NOTHING,
        &[Union(&[(0, &[ATTRIBUTES_V2, Fixed(4)])], &[])],
    ),
];

static NFSACL_V3: [Shape; 3] = [
    reads("NULL", NOTHING, NOTHING),
    reads(
        "GETACL",
        NOTHING,
        &[Fixed(4), POST_OP, Fixed(8), ACL, Fixed(4), ACL],
    ),
    changes("SETACL", NOTHING, &[Fixed(4), POST_OP]),
];

/// The longest results of NLM: those of TEST, with a cookie, and the owner of another lock. Version
/// 4 has the longest offsets.
static NLM: Shape = changes(
    "a call",
    NOTHING,
    &[Opaque(1024), Fixed(4 + 8), Opaque(1024), Fixed(16)],
);
/// The longest results of NSM: a result and a state.
static NSM: Shape = changes("a call", NOTHING, &[Fixed(8)]);

/// The results of versions 1 and 2 of MOUNT, by procedure; a list has no limit.
static MOUNT_V1: [Shape; 6] = [
    reads("NULL", NOTHING, NOTHING),
    reads("MNT", NOTHING, &[Union(&[(0, &[Fixed(32)])], &[])]),
    reads("DUMP", NOTHING, &[Fixed(MOUNT_LIST_ROOM)]),
    reads("UMNT", NOTHING, NOTHING),
    reads("UMNTALL", NOTHING, NOTHING),
    reads("EXPORT", NOTHING, &[Fixed(MOUNT_LIST_ROOM)]),
];

/// Returns the shape of a procedure of NFS version 2, NFSACL, NLM, NSM or MOUNT versions 1 and 2,
/// or `None` if it is none of these.
pub(super) fn shape(program: u32, version: u32, procedure: u32) -> Option<&'static Shape> {
    let index = procedure as usize;
    match (program, version) {
        (NFS_PROGRAM, NFS_V2) => V2.get(index),
        (MOUNT_PROGRAM, 1 | 2) => MOUNT_V1.get(index),
        (NFSACL_PROGRAM, 2) => NFSACL_V2.get(index),
        (NFSACL_PROGRAM, 3) => NFSACL_V3.get(index),
        (NLM_PROGRAM, 1 | 3 | 4) if procedure < 24 => Some(&NLM),
        (NSM_PROGRAM, 1) if procedure < 7 => Some(&NSM),
        _ => None,
    }
}

/// Returns the results of a procedure of NFS version 2 or 3.
pub(super) fn results(version: u32, procedure: u32) -> Fields {
    let v3 = || v3(procedure).map(|shape| shape.results);
    let v2 = || shape(NFS_PROGRAM, version, procedure).map(|shape| shape.results);
    let results = if version == NFS_VERSION { v3() } else { v2() };
    results.unwrap_or(NOTHING)
}

/// Returns the number of DDP-eligible arguments of a procedure of these programs, or of version 3,
/// or `None` if it is none of these.
pub(super) fn eligible_arguments(program: u32, version: u32, procedure: u32) -> Option<u32> {
    let has_item = |args: Fields| args.iter().any(|field| matches!(field, Item));
    if let Some(shape) = shape(program, version, procedure) {
        return Some(u32::from(has_item(shape.args)));
    }
    match (program, version) {
        (NFS_PROGRAM, NFS_VERSION) => {
            crate::ulb::REDUCED_ARGUMENTS.most(program, version, procedure)
        }
        (MOUNT_PROGRAM, _) => crate::ulb::REDUCED_ARGUMENTS.most(program, version, procedure),
        _ => None,
    }
}

/// Returns the name of a program with its version, and of a procedure, as far as they are known.
pub(super) fn name(
    program: u32,
    version: u32,
    procedure: u32,
) -> Option<(&'static str, &'static str)> {
    let index = procedure as usize;
    let names = match (program, version) {
        (NFS_PROGRAM, NFS_VERSION) => ("NFSv3", *nfs::NAMES.get(index)?),
        (NFS_PROGRAM, 4) => ("NFSv4", *["NULL", "COMPOUND"].get(index)?),
        (MOUNT_PROGRAM, 3) => ("MOUNT", *mnt::NAMES.get(index)?),
        _ => {
            let called = match (program, version) {
                (NFS_PROGRAM, _) => "NFSv2",
                (MOUNT_PROGRAM, _) => "MOUNT",
                (NFSACL_PROGRAM, _) => "NFSACL",
                (NLM_PROGRAM, _) => "lock manager:",
                _ => "status monitor:",
            };
            (called, shape(program, version, procedure)?.name)
        }
    };
    Some(names)
}
