//! Versions 2 and 3 of NFS, the auxiliary protocols, and programs of which nothing is known.

use super::*;
use crate::proto::{FileHandle, HandleArgs, ReadArgs, Xdr, nfs};
use crate::ulb;

/// Returns the call of a procedure with these arguments.
fn call(program: u32, version: u32, procedure: u32, args: impl Fn(&mut Out)) -> Out {
    let mut out = Out::default();
    call_header(&mut out, program, version, procedure);
    args(&mut out);
    out
}

fn reply(results: impl Fn(&mut Out)) -> Out {
    let mut out = Out::default();
    reply_header(&mut out);
    results(&mut out);
    out
}

/// Checks both messages of an exchange, and returns the room.
fn exchange(call: &Out, reply: &Out) -> ReplyRoom {
    let mut reducer = reducer();
    let reduced = forward(&mut reducer, call);
    assert_eq!(reduced.kind.whole, None, "{}", reduced.kind);
    assert_reduced(&reduced.message, call, MAX_ITEMS);
    let again = reducer.call(Direction::Forward, with_items(call, u16::MAX, at));
    assert_reduced(&again.message, call, MAX_ITEMS);
    let answer = reducer
        .reply(reduced.remembered, received(reply, &[]))
        .unwrap();
    assert_reduced(&answer, reply, MAX_ITEMS);
    let placed = with_items(reply, u16::MAX, |_| Position::InOrder);
    let answer = reducer.reply(reduced.remembered, placed).unwrap();
    assert_reduced(&answer, reply, MAX_ITEMS);
    assert!(answer.payload_len() - 24 <= u64::from(reduced.room.payload));
    for (item, &most) in answer.items().iter().zip(&reduced.room.items) {
        assert!(item.data.len() <= most as usize);
    }
    assert_eq!(answer.items().len(), reduced.room.items.len());
    reduced.room
}

#[test]
fn rfc8267_s4_version_3_is_bound_as_for_its_own_client() {
    let read = call(100_003, 3, 6, |out| {
        out.opaque(32).u64(0).u32(8192);
    });
    let results = reply(|out| {
        out.u32(0).u32(1).fixed(84).u32(5000).u32(1).item(5000);
    });
    let room = exchange(&read, &results);
    let args = ReadArgs {
        file: FileHandle::new(&[7; 32]).unwrap(),
        offset: 0,
        count: 8192,
    };
    assert_eq!(room, <nfs::Read as ulb::Binding>::reply_room(&args));
    assert!(room.idempotent);
    let failed = reply(|out| {
        out.u32(70).u32(0);
    });
    let mut reducer = reducer();
    let remembered = forward(&mut reducer, &read).remembered;
    let answer = reducer.reply(remembered, received(&failed, &[])).unwrap();
    assert_eq!(answer, received(&failed, &[]));

    let write = call(100_003, 3, 7, |out| {
        out.opaque(32).u64(0).u32(1001).u32(2).item(1001);
    });
    let written = reply(|out| {
        out.u32(0).u32(0).u32(0).fixed(16);
    });
    assert!(!exchange(&write, &written).idempotent);
    let symlink = call(100_003, 3, 10, |out| {
        out.opaque(32).opaque(9);
        // Mode, user, group, size and times: some of them.
        out.u32(1).u32(0o777).u32(0).u32(1).u32(7).u32(1).u64(3);
        out.u32(1).u32(2).u64(9).item(40);
    });
    exchange(
        &symlink,
        &reply(|out| {
            out.u32(13).u32(0).u32(0);
        }),
    );
    let readlink = call(100_003, 3, 5, |out| {
        out.opaque(32);
    });
    let room = exchange(
        &readlink,
        &reply(|out| {
            out.u32(0).u32(0).item(4095);
        }),
    );
    let args: HandleArgs = HandleArgs::decode(&mut onc_rpc::Decoder::new(&{
        let mut out = onc_rpc::Encoder::new();
        out.opaque(&[7; 32]);
        out.finish()
    }))
    .unwrap();
    assert_eq!(room, <nfs::Readlink as ulb::Binding>::reply_room(&args));
    // The count of READDIRPLUS limits its reply, but not beyond what a relay has room for.
    for (count, most) in [(4096, 4300), (u32::MAX, 5 << 20)] {
        let readdirplus = call(100_003, 3, 17, |out| {
            out.opaque(32).fixed(16).u32(512).u32(count);
        });
        let mut reducer = super::reducer();
        let room = forward(&mut reducer, &readdirplus).room;
        assert!(room.payload >= count.min(4 << 20) && room.payload < most);
    }
}

#[test]
fn rfc8267_s4_version_2_is_bound() {
    let read = call(100_003, 2, 6, |out| {
        out.fixed(32).u32(0).u32(4096).u32(0);
    });
    let room = exchange(
        &read,
        &reply(|out| {
            out.u32(0).fixed(68).item(4095);
        }),
    );
    assert_eq!(room.items[..], [4096]);
    let write = call(100_003, 2, 8, |out| {
        out.fixed(32 + 12).item(1000);
    });
    exchange(
        &write,
        &reply(|out| {
            out.u32(0).fixed(68);
        }),
    );
    let symlink = call(100_003, 2, 13, |out| {
        out.fixed(32).opaque(9).item(100).fixed(32);
    });
    exchange(
        &symlink,
        &reply(|out| {
            out.u32(0);
        }),
    );
    let readlink = call(100_003, 2, 5, |out| {
        out.fixed(32);
    });
    exchange(
        &readlink,
        &reply(|out| {
            out.u32(0).item(1023);
        }),
    );
    let readdir = call(100_003, 2, 16, |out| {
        out.fixed(32).u32(0).u32(4096);
    });
    assert!(
        exchange(
            &readdir,
            &reply(|out| {
                out.fixed(4096 - 8);
            })
        )
        .payload
            < 4200
    );
}

#[test]
fn rfc8267_s5_auxiliary_protocols_are_bound_and_have_no_items() {
    let acl = |out: &mut Out, entries: u32| {
        out.u32(entries).u32(entries).fixed(12 * entries as usize);
    };
    let getacl = call(100_227, 3, 1, |out| {
        out.opaque(32).u32(0xf);
    });
    let room = exchange(
        &getacl,
        &reply(|out| {
            out.u32(0).u32(1).fixed(84).u32(0xf);
            acl(out, 1024);
            acl(out, 1024);
        }),
    );
    assert!(room.payload < 32 << 10 && room.idempotent);
    let setacl = call(100_227, 3, 2, |out| {
        out.opaque(32).u32(1);
        acl(out, 9);
        acl(out, 0);
    });
    assert!(
        !exchange(
            &setacl,
            &reply(|out| {
                out.u32(0).u32(1).fixed(84);
            })
        )
        .idempotent
    );
    let v2 = call(100_227, 2, 1, |out| {
        out.fixed(32).u32(0xf);
    });
    exchange(
        &v2,
        &reply(|out| {
            out.u32(0).fixed(68).u32(0xf);
            acl(out, 3);
            acl(out, 1024);
        }),
    );
    // NLM4_TEST with another lock's owner; NSM's SM_STAT; MNT of version 1.
    let test = call(100_021, 4, 1, |out| {
        out.opaque(4)
            .u32(1)
            .opaque(9)
            .opaque(32)
            .opaque(9)
            .u32(7)
            .u64(0)
            .u64(1);
    });
    let room = exchange(
        &test,
        &reply(|out| {
            out.opaque(1024)
                .u32(1)
                .u32(1)
                .u32(7)
                .opaque(1024)
                .u64(0)
                .u64(1);
        }),
    );
    assert!(!room.idempotent && room.payload < 2200);
    let stat = call(100_024, 1, 1, |out| {
        out.opaque(9);
    });
    exchange(
        &stat,
        &reply(|out| {
            out.u32(0).u32(1);
        }),
    );
    let mount = call(100_005, 1, 1, |out| {
        out.opaque(9);
    });
    exchange(
        &mount,
        &reply(|out| {
            out.u32(0).fixed(32);
        }),
    );
    let mount = call(100_005, 3, 1, |out| {
        out.opaque(9);
    });
    exchange(
        &mount,
        &reply(|out| {
            out.u32(0).opaque(64).u32(1).u32(1);
        }),
    );
}

#[test]
fn what_has_no_binding_is_carried_whole_with_room_for_any_reply() {
    for (program, version, procedure) in [
        (100_000, 4, 3),
        (100_003, 3, 22),
        (100_003, 4, 2),
        (100_003, 5, 1),
        (100_227, 3, 9),
        (0x2000_0001, 1, 1),
    ] {
        let out = call(program, version, procedure, |out| {
            out.opaque(100);
        });
        let mut reducer = reducer();
        let reduced = forward(&mut reducer, &out);
        assert_eq!(reduced.kind.whole, Some(WholeReason::NoBinding));
        assert_eq!(reduced.message, received(&out, &[]));
        assert_eq!(reduced.room, ReplyRoom::new(DEFAULT_MAX_REPLY, []));
        let results = reply(|out| {
            out.opaque(9);
        });
        let answer = reducer
            .reply(reduced.remembered, received(&results, &[]))
            .unwrap();
        assert_eq!(answer, received(&results, &[]));
    }
    // What is no call at all.
    let reduced = reducer().call(
        Direction::Forward,
        Message::from_payload(vec![1; 40].into()),
    );
    assert_eq!(reduced.kind.whole, Some(WholeReason::Malformed));
}

#[test]
fn kinds_have_names() {
    let name = |program, version, procedure| {
        let kind = CallKind {
            program,
            version,
            procedure,
            ..CallKind::default()
        };
        kind.to_string()
    };
    assert_eq!(name(100_003, 3, 6), "NFSv3 READ");
    assert_eq!(name(100_003, 2, 6), "NFSv2 READ");
    assert_eq!(name(100_003, 4, 0), "NFSv4 NULL");
    assert_eq!(name(100_003, 4, 1), "NFSv4 COMPOUND");
    assert_eq!(name(100_003, 4, 2), "program 100003 v4 procedure 2");
    assert_eq!(name(100_005, 3, 1), "MOUNT MNT");
    assert_eq!(name(100_227, 3, 1), "NFSACL GETACL");
    assert_eq!(name(100_021, 4, 2), "lock manager: a call");
    assert_eq!(name(100_000, 4, 3), "program 100000 v4 procedure 3");
    assert_eq!(name(100_003, 3, 99), "program 100003 v3 procedure 99");
}

#[test]
fn a_responder_of_a_relay_takes_as_many_chunks_as_there_are_eligible_arguments() {
    for (program, version, procedure, most) in [
        (100_003, 4, 0, Some(0)),
        (100_003, 4, 1, Some(16)),
        (100_003, 3, 7, Some(1)),
        (100_003, 3, 6, Some(0)),
        (100_003, 2, 8, Some(1)),
        (100_003, 2, 6, Some(0)),
        (100_005, 3, 1, Some(0)),
        (100_227, 3, 2, Some(0)),
        (0x4000_0000, 1, 1, None),
    ] {
        assert_eq!(RELAYED_ARGUMENTS.most(program, version, procedure), most);
    }
    assert_eq!(RELAYED_ARGUMENTS.most_of_any(), Some(16));
}
