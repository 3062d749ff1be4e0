//! The upper-layer binding of RFC 8267: the DDP-eligible data items, and the maximum size of
//! replies.
//!
//! DDP-eligible in NFS version 3 (section 4) are only the file data of WRITE's arguments and READ's
//! results, and the path of SYMLINK's arguments and READLINK's results. They are
//! [`Data`](crate::proto::Data) and [`LinkText`](crate::proto::LinkText), which encode themselves
//! as bulk items. MOUNT has none.
//!
//! Reply size estimates (sections 3 and 4.1) are computed from the longest encoding of the results'
//! types and, where a call limits its reply, from the call. No procedure of NFS version 3 needs a
//! retry with a larger reply buffer.

use rpc_transport::{ReducedArguments, ReplyRoom};

use crate::proto::{
    Attributes, HandleArgs, MAX_PATH, MOUNT_PROGRAM, MOUNT_VERSION, NFS_PROGRAM, NFS_VERSION,
    Procedure, ReadArgs, ReaddirArgs, ReaddirplusArgs, Status, Verifier, Xdr, is_idempotent, mnt,
    nfs,
};

/// The arguments that may be reduced: the data of WRITE, and the path of SYMLINK (RFC 8267, section
/// 4). Other procedures of NFS version 3 have none, nor has MOUNT (section 5).
pub const REDUCED_ARGUMENTS: ReducedArguments =
    ReducedArguments::new(|program, version, procedure| {
        let known = match (program, version) {
            (NFS_PROGRAM, NFS_VERSION) => nfs::NAMES.len(),
            (MOUNT_PROGRAM, MOUNT_VERSION) => mnt::NAMES.len(),
            _ => 0,
        };
        if procedure as usize >= known {
            return None;
        }
        let eligible = [nfs::Write::NUMBER, nfs::Symlink::NUMBER];
        Some(u32::from(
            program == NFS_PROGRAM && eligible.contains(&procedure),
        ))
    })
    .with_most_of_any(1);

/// The reply size for MOUNT's EXPORT and DUMP, which the protocol does not bound, bytes. RFC 8267
/// (section 5.1) sends MOUNT over TCP, where replies need no estimate; this value is used if it is
/// sent over RDMA nevertheless. A list that does not fit fails with ERR_CHUNK.
pub const MOUNT_LIST_ROOM: u32 = 64 << 10;

/// The bytes of a READDIR reply beyond the count of the call. RFC 1813 applies the count to the
/// whole `READDIR3resok` but not to the status before it. Linux servers apply it to the entries
/// alone, not to the attributes and the verifier before them.
const READDIR_FIXED: u32 =
    Status::MAX_LEN + <Option<Attributes> as Xdr>::MAX_LEN + Verifier::MAX_LEN;

/// A procedure whose reply size is known before the call is made.
pub trait Binding: Procedure {
    /// Returns the maximum size of the reply to a call with these arguments.
    /// If a responder says that the reply is longer all the same, a procedure that is idempotent is
    /// called again (version-two-07, section 6.6.4).
    fn reply_room(args: &Self::Args) -> ReplyRoom;
}

/// Returns the size of results without DDP-eligible items.
fn payload<P: Procedure>(payload: u32) -> ReplyRoom {
    ReplyRoom {
        payload,
        items: Default::default(),
        idempotent: is_idempotent(P::PROGRAM, P::NUMBER),
    }
}

/// Returns the size of results with one DDP-eligible item of at most `item` bytes.
fn with_item<P: Procedure>(payload: u32, item: u32) -> ReplyRoom {
    ReplyRoom {
        items: [item].into_iter().collect(),
        ..self::payload::<P>(payload)
    }
}

macro_rules! bounded {
    ($($procedure:ty),* $(,)?) => {$(
        impl Binding for $procedure {
            fn reply_room(_: &Self::Args) -> ReplyRoom {
                payload::<Self>(<Self as Procedure>::Results::MAX_LEN)
            }
        }
    )*};
}

bounded!(
    nfs::Null,
    nfs::Getattr,
    nfs::Setattr,
    nfs::Lookup,
    nfs::Access,
    nfs::Write,
    nfs::Create,
    nfs::Mkdir,
    nfs::Symlink,
    nfs::Mknod,
    nfs::Remove,
    nfs::Rmdir,
    nfs::Rename,
    nfs::Link,
    nfs::Fsstat,
    nfs::Fsinfo,
    nfs::Pathconf,
    nfs::Commit,
    mnt::Null,
    mnt::Mount,
    mnt::Unmount,
    mnt::UnmountAll,
);

impl Binding for nfs::Read {
    fn reply_room(args: &ReadArgs) -> ReplyRoom {
        with_item::<Self>(<Self as Procedure>::Results::MAX_LEN, args.count)
    }
}

impl Binding for nfs::Readlink {
    fn reply_room(_: &HandleArgs) -> ReplyRoom {
        with_item::<Self>(<Self as Procedure>::Results::MAX_LEN, MAX_PATH)
    }
}

impl Binding for nfs::Readdir {
    fn reply_room(args: &ReaddirArgs) -> ReplyRoom {
        payload::<Self>(READDIR_FIXED.saturating_add(args.count))
    }
}

impl Binding for nfs::Readdirplus {
    fn reply_room(args: &ReaddirplusArgs) -> ReplyRoom {
        payload::<Self>(READDIR_FIXED.saturating_add(args.max_count))
    }
}

impl Binding for mnt::Export {
    fn reply_room((): &()) -> ReplyRoom {
        payload::<Self>(MOUNT_LIST_ROOM)
    }
}

impl Binding for mnt::Dump {
    fn reply_room((): &()) -> ReplyRoom {
        payload::<Self>(MOUNT_LIST_ROOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8267, section 4: the data of WRITE and the path of SYMLINK. What is not known here is
    /// not limited: the RPC layer refuses it.
    #[test]
    fn s6_1_only_write_and_symlink_have_an_argument_that_may_be_reduced() {
        for number in 0..30 {
            let eligible = u32::from([7, 10].contains(&number));
            let nfs = REDUCED_ARGUMENTS.most(NFS_PROGRAM, NFS_VERSION, number);
            assert_eq!(nfs, (number < 22).then_some(eligible), "{number}");
            let mount = REDUCED_ARGUMENTS.most(MOUNT_PROGRAM, MOUNT_VERSION, number);
            assert_eq!(mount, (number < 6).then_some(0), "{number}");
            for (program, version) in [(NFS_PROGRAM, 4), (MOUNT_PROGRAM, 1), (100_000, 3)] {
                assert_eq!(REDUCED_ARGUMENTS.most(program, version, number), None);
            }
        }
        assert_eq!(REDUCED_ARGUMENTS.most_of_any(), Some(1));
    }
}
