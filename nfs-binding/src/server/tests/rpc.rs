//! Tests of the service's RPC-level results.

use bytes::Bytes;
use onc_rpc::{BulkItem, Position};

use super::*;
use crate::proto::ReadArgs;

#[test]
fn null_does_nothing() {
    for mut rig in [Fixture::memory(), Fixture::directory()] {
        rig.blocks = false;
        rig.call::<nfs::Null>(&());
        rig.call::<mnt::Null>(&());
    }
}

#[test]
fn programs_are_those_of_rfc_1813() {
    let rig = Fixture::memory();
    let programs = rig.server.programs();
    let programs = programs
        .iter()
        .map(|program| (program.prog, program.low, program.high));
    assert_eq!(
        programs.collect::<Vec<_>>(),
        [(100_003, 3, 3), (100_005, 3, 3)]
    );
}

#[test]
fn unknown_procedures_are_unavailable() {
    let mut rig = Fixture::memory();
    for (prog, proc) in [
        (NFS_PROGRAM, 22),
        (NFS_PROGRAM, u32::MAX),
        (MOUNT_PROGRAM, 6),
    ] {
        let denial = rig.raw(prog, proc, Message::default()).unwrap_err();
        assert_eq!(denial, ErrorReply::Accepted(AcceptStatus::ProcUnavail));
    }
}

#[test]
fn every_procedure_refuses_garbage() {
    /// The procedures whose only argument is a handle.
    const HANDLE_ALONE: [u32; 5] = [
        nfs::Getattr::NUMBER,
        nfs::Readlink::NUMBER,
        nfs::Fsstat::NUMBER,
        nfs::Fsinfo::NUMBER,
        nfs::Pathconf::NUMBER,
    ];
    /// The procedures whose further arguments are numbers of any value.
    const HANDLE_AND_NUMBERS: [u32; 5] = [
        nfs::Access::NUMBER,
        nfs::Read::NUMBER,
        nfs::Readdir::NUMBER,
        nfs::Readdirplus::NUMBER,
        nfs::Commit::NUMBER,
    ];
    let mut rig = Fixture::memory();
    let mut handle = Encoder::new();
    rig.root().encode(&mut handle);
    let handle = handle.finish().payload().concat();
    let ones = [0xff; 64];
    for proc in 1..nfs::NAMES.len() as u32 {
        let name = nfs::NAMES[proc as usize];
        let alone = HANDLE_ALONE.contains(&proc);
        let numbers = HANDLE_AND_NUMBERS.contains(&proc);
        for (args, decodable) in [
            (vec![], false),
            (ones.to_vec(), false),
            (handle[..handle.len() - 4].to_vec(), false),
            (handle.clone(), alone),
            ([&handle[..], &ones].concat(), alone || numbers),
        ] {
            let len = args.len();
            let reply = rig.raw(NFS_PROGRAM, proc, Message::from_payload(args.into()));
            let garbage = ErrorReply::Accepted(AcceptStatus::GarbageArgs);
            let expected = if decodable { None } else { Some(garbage) };
            assert_eq!(reply.err(), expected, "{name}: {len} bytes");
        }
    }
    for proc in [mnt::Mount::NUMBER, mnt::Unmount::NUMBER] {
        let args = Message::from_payload(Bytes::from_static(&[0xff; 64]));
        let denial = rig.raw(MOUNT_PROGRAM, proc, args).unwrap_err();
        assert_eq!(denial, ErrorReply::Accepted(AcceptStatus::GarbageArgs));
    }
}

/// No message from a peer makes the server panic.
#[test]
fn arbitrary_arguments_are_survived() {
    fn check(calls: Vec<(bool, u8, Vec<u8>)>) -> bool {
        let mut rig = Fixture::memory();
        let root = rig.root();
        for (nfs, proc, garbage) in calls {
            let mut out = Encoder::new();
            if nfs {
                root.encode(&mut out);
            }
            std::io::Write::write_all(&mut out, &garbage).unwrap();
            let prog = if nfs { NFS_PROGRAM } else { MOUNT_PROGRAM };
            let _ = rig.raw(prog, u32::from(proc % 24), out.finish());
        }
        rig.attributes(root).nlink >= 2
    }
    quickcheck::quickcheck(check as fn(Vec<(bool, u8, Vec<u8>)>) -> bool);
}

#[test]
fn bulk_data_where_there_is_none_is_garbage() {
    let mut rig = Fixture::memory();
    let file = rig.root();
    let mut out = Encoder::new();
    let args = ReadArgs {
        file,
        offset: 0,
        count: 1,
    };
    args.encode(&mut out);
    out.bulk(Bytes::from_static(b"stray"));
    let denial = rig
        .raw(NFS_PROGRAM, nfs::Read::NUMBER, out.finish())
        .unwrap_err();
    assert_eq!(denial, ErrorReply::Accepted(AcceptStatus::GarbageArgs));
}

/// RFC 8166, section 6.1: a call with a reduced item that is not DDP-eligible is not processed.
#[test]
fn s6_1_a_call_with_a_reduced_name_is_garbage() {
    let mut rig = Fixture::memory();
    let (dir, name) = (rig.root(), Name::from(b"name".as_slice()));
    let what = DirOp { dir, name };
    let mut out = Encoder::new();
    DirOpArgs { what }.encode(&mut out);
    let whole = Bytes::from(out.finish().payload().concat());
    let at = whole.len() - 4;
    let item = BulkItem {
        position: Position::At(at as u32),
        data: whole.slice(at..).into(),
    };
    let reduced = Message::new([whole.slice(..at)].into_iter().collect(), [item]);
    let denial = rig
        .raw(NFS_PROGRAM, nfs::Lookup::NUMBER, reduced)
        .unwrap_err();
    assert_eq!(denial, ErrorReply::Accepted(AcceptStatus::GarbageArgs));
    let unreduced = Message::from_payload(whole);
    assert!(rig.raw(NFS_PROGRAM, nfs::Lookup::NUMBER, unreduced).is_ok());
}

#[test]
fn other_flavors_are_refused() {
    let mut rig = Fixture::memory();
    rig.credential = Credential::Other {
        flavor: 6,
        body: Bytes::new(),
    };
    let denial = rig.raw(NFS_PROGRAM, 0, Message::default()).unwrap_err();
    assert_eq!(denial, ErrorReply::Auth(AuthStat::BAD_CRED));
}

#[test]
fn replies_of_what_is_not_repeatable_are_kept() {
    let rig = Fixture::memory();
    let kept: Vec<_> = (0..22)
        .filter(|&proc| rig.server.remember_reply(NFS_PROGRAM, 3, proc))
        .map(|proc| nfs::NAMES[proc as usize])
        .collect();
    let expected = [
        "SETATTR", "WRITE", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME",
        "LINK",
    ];
    assert_eq!(kept, expected);
    assert!(!(0..6).any(|proc| rig.server.remember_reply(MOUNT_PROGRAM, 3, proc)));
}

/// The replies to calls that fail leave the reply cache first.
#[test]
fn calls_that_fail_have_changed_nothing() {
    let mut rig = Fixture::memory();
    let root = rig.root();
    let mut changed = |proc| {
        let mut args = Encoder::new();
        root.encode(&mut args);
        args.opaque(b"name");
        if proc == nfs::Mkdir::NUMBER {
            SetAttributes::default().encode(&mut args);
        }
        let results = rig.raw(NFS_PROGRAM, proc, args.finish()).unwrap();
        rig.server.has_changed(NFS_PROGRAM, 3, proc, &results)
    };
    assert!(!changed(nfs::Rmdir::NUMBER));
    assert!(changed(nfs::Mkdir::NUMBER) && !changed(nfs::Mkdir::NUMBER));
    assert!(changed(nfs::Rmdir::NUMBER));
}
