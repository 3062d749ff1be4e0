//! Tests of procedures on one object.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use onc_rpc::Bulk;
use rdma::Registrar;

use super::*;
use crate::proto::{
    Access, AccessArgs, CommitArgs, Data, ReadArgs, ReadOk, ReaddirArgs, RenameArgs, SetTime,
    SetattrArgs, Stable, SymlinkArgs, WriteArgs,
};

on_both! {
    a_handle_is_opened_once,
    read_and_write,
    reads_are_sent_from_memory_that_the_device_knows,
    reads_are_sent_from_where_a_file_lies,
    long_transfers_are_cut,
    a_count_that_is_not_the_datas,
    attributes_and_guards,
    access_and_readlink,
    commit,
    file_system_figures,
    failures_carry_attributes,
}

fn write(file: FileHandle, offset: u64, data: &[u8]) -> WriteArgs {
    WriteArgs {
        file,
        offset,
        count: data.len() as u32,
        stable: Stable::Unstable,
        data: Data(Bulk::copy_from(data)),
    }
}

fn read(file: FileHandle, offset: u64, count: u32) -> ReadArgs {
    ReadArgs {
        file,
        offset,
        count,
    }
}

fn read_and_write(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    let written = rig.call::<nfs::Write>(&write(file, 3, b"hello")).unwrap();
    assert_eq!(written.count, 5);
    assert_eq!(written.wcc.before.unwrap().size, 0);
    assert_eq!(written.wcc.after.unwrap().size, 8);
    let ok = rig.call::<nfs::Read>(&read(file, 0, 100)).unwrap();
    assert_eq!((ok.count, ok.eof), (8, true));
    assert_eq!(ok.data, b"\0\0\0hello".into());
    let attributes = ok.attributes.unwrap();
    assert_eq!(attributes.size, 8);
    assert_eq!(attributes.fsid, rig.attributes(root).fsid);
    let ok = rig.call::<nfs::Read>(&read(file, 4, 2)).unwrap();
    assert_eq!((ok.data, ok.eof), (b"el".into(), false));
    for (offset, count) in [(8, 10), (u64::MAX, 10), (0, 0)] {
        let ok = rig.call::<nfs::Read>(&read(file, offset, count)).unwrap();
        assert_eq!((ok.count, ok.eof), (0, offset != 0));
    }
}

/// A call decodes its handle and checks the MAC once, whichever thread executes it. A call with two
/// handles does so for each. (A call that could not be answered without waiting is executed anew.)
fn a_handle_is_opened_once(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    // The first check of an access may have to wait.
    rig.call::<nfs::Read>(&read(file, 0, 1)).unwrap();
    let opened = |rig: &Fixture| {
        rig.server.shared.exports[0]
            .handles
            .opened
            .load(Ordering::Relaxed)
    };
    macro_rules! opens {
        ($($procedure:ident $handles:literal $args:expr;)*) => {
            $(
                let before = opened(&rig);
                rig.call::<nfs::$procedure>(&$args).unwrap();
                assert_eq!(opened(&rig) - before, $handles, "{}", nfs::$procedure::NAME);
            )*
        };
    }
    opens! {
        Getattr 1 HandleArgs { object: file };
        Lookup 1 what(root, "f");
        Read 1 read(file, 0, 100);
        Read 1 read(file, 0, 100_000);
        Write 1 write(file, 0, b"hello");
        Commit 1 CommitArgs { file, offset: 0, count: 0 };
        Readdir 1 ReaddirArgs { dir: root, cookie: 0, verifier: [0; 8], count: 4096 };
        Rename 2 RenameArgs { from: at(root, "f"), to: at(root, "g") };
    }
}

/// A registrar that accepts all memory of a pool.
struct AnyMemory;

impl Registrar for AnyMemory {
    fn obtained(&self, _: NonNull<u8>, _: usize) -> bool {
        true
    }

    fn released(&self, _: NonNull<u8>) -> bool {
        true
    }
}

/// READ without copying: data that is being sent does not change when the file is written
/// meanwhile. A file that is not in memory is read into memory of the pool.
fn reads_are_sent_from_where_a_file_lies(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    rig.call::<nfs::Write>(&write(file, 0, &[7; 100_000]))
        .unwrap();
    let first = rig.call::<nfs::Read>(&read(file, 0, 1 << 20)).unwrap();
    let second = rig.call::<nfs::Read>(&read(file, 0, 1 << 20)).unwrap();
    let starts = |ok: &ReadOk| ok.data.0.pieces()[0].as_ptr();
    assert_eq!(starts(&first) == starts(&second), !rig.blocks);
    assert_eq!(rig.pool.in_use() == 0, !rig.blocks);
    rig.call::<nfs::Write>(&write(file, 0, &[8; 100_000]))
        .unwrap();
    assert_eq!(first.data, Bulk::from(vec![7; 100_000]).into());
    let third = rig.call::<nfs::Read>(&read(file, 0, 1 << 20)).unwrap();
    assert_eq!(third.data, Bulk::from(vec![8; 100_000]).into());
    assert_eq!((third.count, third.eof), (100_000, true));
}

/// If the device needs registered memory, the data of a READ lies in the memory that the file
/// system read into, and the server keeps no reference to it.
fn reads_are_sent_from_memory_that_the_device_knows(mut rig: Fixture) {
    rig.pool = Pool::with_registrar(1 << 20, Arc::new(AnyMemory));
    let root = rig.root();
    let file = rig.create(root, "f");
    let data = vec![7; 100_000];
    rig.call::<nfs::Write>(&write(file, 0, &data)).unwrap();
    let mut out = Encoder::new();
    read(file, 0, 1 << 20).encode(&mut out);
    let reply = rig
        .raw(NFS_PROGRAM, nfs::Read::NUMBER, out.finish())
        .unwrap();
    assert_eq!(reply.items().len(), 1, "held apart");
    assert_eq!(reply.items()[0].data, Bytes::from(data));
    assert_eq!(
        rig.pool.in_use(),
        128 << 10,
        "no more than the file is long"
    );
    drop(reply);
    assert_eq!(rig.pool.in_use(), 0);
    rig.pool = Pool::with_registrar(4096, Arc::new(AnyMemory));
    let late = rig.call::<nfs::Read>(&read(file, 0, 100_000));
    assert_eq!(status(late), Status::JUKEBOX);
}

fn long_transfers_are_cut(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    let data = vec![1; (1 << 20) + 5];
    let written = rig.call::<nfs::Write>(&write(file, 0, &data)).unwrap();
    assert_eq!(written.count, 1 << 20);
    rig.call::<nfs::Write>(&write(file, 1 << 20, b"more"))
        .unwrap();
    let ok = rig.call::<nfs::Read>(&read(file, 0, u32::MAX)).unwrap();
    assert_eq!((ok.count, ok.eof), (1 << 20, false));
    assert_eq!(ok.data.0.len(), 1 << 20);
}

fn a_count_that_is_not_the_datas(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    for count in [0, 4, 6, u32::MAX] {
        let args = WriteArgs {
            count,
            ..write(file, 0, b"hello")
        };
        let denial = rig.try_call::<nfs::Write>(&args).unwrap_err();
        assert_eq!(denial, ErrorReply::Accepted(AcceptStatus::GarbageArgs));
    }
    assert_eq!(rig.attributes(file).size, 0);
}

fn attributes_and_guards(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    let before = rig.attributes(file);
    let time = crate::proto::NfsTime {
        seconds: 5,
        nanos: 6,
    };
    let mut args = SetattrArgs {
        object: file,
        attributes: SetAttributes {
            size: Some(10),
            mtime: SetTime::To(time),
            ..mode(0o600)
        },
        guard: Some(time),
    };
    let refused = rig.call::<nfs::Setattr>(&args).unwrap_err();
    assert_eq!(refused.status, Status::NOT_SYNC);
    assert_eq!(refused.attributes.after.unwrap(), before);
    args.guard = Some(before.ctime);
    let wcc = rig.call::<nfs::Setattr>(&args).unwrap();
    assert_eq!(wcc.before.unwrap().size, 0);
    let after = rig.attributes(file);
    assert_eq!(wcc.after.unwrap(), after);
    assert_eq!((after.size, after.mode, after.mtime), (10, 0o600, time));
}

fn access_and_readlink(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    let args = AccessArgs {
        object: file,
        access: Access::READ | Access::MODIFY,
    };
    let ok = rig.call::<nfs::Access>(&args).unwrap();
    assert_eq!(ok.access, Access::READ | Access::MODIFY);
    rig.credential = user(1000);
    let ok = rig.call::<nfs::Access>(&args).unwrap();
    assert_eq!(ok.access, Access::READ);
    rig.credential = user(0);
    let link = SymlinkArgs {
        place: at(root, "l"),
        attributes: SetAttributes::default(),
        text: crate::proto::LinkText::from(&b"../else\xff"[..]),
    };
    let object = rig.call::<nfs::Symlink>(&link).unwrap().object.unwrap();
    let ok = rig.call::<nfs::Readlink>(&HandleArgs { object }).unwrap();
    assert_eq!(ok.text, link.text);
    // Targets that are too long for the host are decoded, so that the client learns why they are refused.
    for len in [4096, 4097, 8192] {
        let link = SymlinkArgs {
            place: at(root, "long"),
            attributes: SetAttributes::default(),
            text: crate::proto::LinkText::from(&vec![b'x'; len][..]),
        };
        let made = rig.call::<nfs::Symlink>(&link);
        assert_eq!(status(made), Status::NAMETOOLONG, "{len}");
    }
    let refused = rig.call::<nfs::Readlink>(&HandleArgs { object: file });
    let refused = refused.unwrap_err();
    assert_eq!(refused.status, Status::INVAL);
    assert_eq!(refused.attributes.unwrap(), rig.attributes(file));
}

fn commit(mut rig: Fixture) {
    let root = rig.root();
    let file = rig.create(root, "f");
    let mut verifier = None;
    for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
        let args = WriteArgs {
            stable,
            ..write(file, 0, b"data")
        };
        let written = rig.call::<nfs::Write>(&args).unwrap();
        assert!(written.committed as u32 >= stable as u32);
        assert_eq!(*verifier.get_or_insert(written.verifier), written.verifier);
    }
    let args = CommitArgs {
        file,
        offset: 0,
        count: 0,
    };
    let ok = rig.call::<nfs::Commit>(&args).unwrap();
    assert_eq!(Some(ok.verifier), verifier);
    assert_eq!(ok.wcc.after.unwrap().size, 4);
}

fn file_system_figures(mut rig: Fixture) {
    let object = rig.root();
    let args = HandleArgs { object };
    let stat = rig.call::<nfs::Fsstat>(&args).unwrap();
    assert!(stat.total_bytes >= stat.free_bytes && stat.free_bytes > 0);
    assert!(stat.attributes.is_some());
    let info = rig.call::<nfs::Fsinfo>(&args).unwrap();
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
    assert!(info.read_preferred <= info.read_max);
    // The maximum offset, or the maximum of the host's file system.
    assert!((1 << 40..=i64::MAX as u64).contains(&info.max_file_size));
    let conf = rig.call::<nfs::Pathconf>(&args).unwrap();
    assert_eq!(conf.name_max, 255);
    assert!(conf.no_trunc && conf.case_preserving && !conf.case_insensitive);
}

fn failures_carry_attributes(mut rig: Fixture) {
    let root = rig.root();
    let dir = rig.mkdir(root, "d");
    let refused = rig.call::<nfs::Read>(&read(dir, 0, 10)).unwrap_err();
    assert_eq!(refused.status, Status::ISDIR);
    assert_eq!(refused.attributes.unwrap(), rig.attributes(dir));
    let refused = rig.call::<nfs::Write>(&write(dir, 0, b"x")).unwrap_err();
    assert_eq!(refused.status, Status::ISDIR);
    assert_eq!(
        refused.attributes.after.unwrap().fsid,
        rig.attributes(dir).fsid
    );
    assert!(refused.attributes.before.is_some());
    let file = rig.create(root, "f");
    rig.credential = user(1000);
    let refused = rig.call::<nfs::Write>(&write(file, 0, b"x")).unwrap_err();
    assert_eq!(refused.status, Status::ACCES);
}
