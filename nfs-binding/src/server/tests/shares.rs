//! Tests of a connection that has used up its share of the memory for replies.

use onc_rpc::Bulk;
use rpcrdma_host::{Account, Budget, PER_CALL};

use super::*;
use crate::proto::{Data, ReadArgs, ReaddirplusArgs, Stable, WriteArgs};

const MIB: usize = 1 << 20;

/// Returns a server and an account that has used up its share, which its calls are charged to.
fn poor() -> (Fixture, Account) {
    let mut rig = Fixture::directory();
    let account = Budget::new(4 * MIB, 1).account();
    account.charge(3 * MIB);
    rig.pool = rig.pool.charged_to(&account);
    (rig, account)
}

#[test]
fn a_read_gives_less_and_the_rest_when_it_is_asked_for() {
    let (mut rig, account) = poor();
    let root = rig.root();
    let file = rig.create(root, "f");
    let content: Vec<u8> = (0..MIB).map(|at| (at >> 4) as u8).collect();
    let write = WriteArgs {
        file,
        offset: 0,
        count: MIB as u32,
        stable: Stable::Unstable,
        data: Data(Bulk::copy_from(&content)),
    };
    assert_eq!(rig.call::<nfs::Write>(&write).unwrap().count as usize, MIB);
    let mut offset = 0;
    let mut seen = Vec::new();
    while seen.len() < MIB {
        let read = ReadArgs {
            file,
            offset,
            count: MIB as u32,
        };
        let ok = rig.call::<nfs::Read>(&read).unwrap();
        assert_eq!(ok.count as usize, PER_CALL);
        offset += u64::from(ok.count);
        assert_eq!(ok.eof, seen.len() + ok.count as usize == MIB);
        seen.extend_from_slice(&ok.data.0.to_bytes());
    }
    assert_eq!(seen, content);
    // When memory is free again, the whole data is returned at once.
    account.release(3 * MIB);
    let read = ReadArgs {
        file,
        offset: 0,
        count: MIB as u32,
    };
    assert_eq!(rig.call::<nfs::Read>(&read).unwrap().count as usize, MIB);
}

#[test]
fn a_listing_gives_fewer_entries() {
    let (mut rig, account) = poor();
    let root = rig.root();
    for file in 0..300 {
        rig.create(root, &format!("{file:0200}"));
    }
    let list = ReaddirplusArgs {
        dir: root,
        cookie: 0,
        verifier: [0; 8],
        dir_count: MIB as u32,
        max_count: MIB as u32,
    };
    let poor = rig.call::<nfs::Readdirplus>(&list).unwrap();
    assert!(!poor.eof && !poor.entries.is_empty());
    account.release(3 * MIB);
    let rich = rig.call::<nfs::Readdirplus>(&list).unwrap();
    assert!(rich.eof && rich.entries.len() > poor.entries.len());
}
