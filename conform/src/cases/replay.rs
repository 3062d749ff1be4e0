//! Calls that are sent again on a new connection (RFC 1813, section 4.5).

use super::{expect, nfs};
use crate::case::{Case, Ground, Level, Step, case};
use crate::expect::{Expect, success};
use crate::wire::mpa::PRIVATE_DATA;
use crate::wire::v1;
use crate::wire::{Xdr, rpc};

/// `createmode3` GUARDED.
const GUARDED: u32 = 1;
/// `nfsstat3` NFS3ERR_EXIST.
const EXIST: u32 = 17;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let twice = |message: Vec<u8>, first: Expect, again: Vec<Expect>| {
        let connect = || Step::Connect(PRIVATE_DATA.to_vec());
        vec![
            connect(),
            Step::Send(message.clone()),
            expect(first),
            connect(),
            Step::Send(message),
            Step::Expect(again),
        ]
    };
    let null = {
        let xid = ground.xid();
        let message = v1::header(xid).with(&rpc::null(xid).bytes());
        let reply = || Expect::Reply(success(xid, &[]));
        twice(message, reply(), vec![reply()])
    };
    let create = |again: &[u32]| {
        let xid = ground.xid();
        let name = format!("again-{xid}");
        let args = Xdr::new().opaque(&ground.folder).opaque(name.as_bytes());
        let args = args.word(GUARDED).words(&[0; 6]).done();
        let message = v1::header(xid).with(&nfs::call(ground, xid, nfs::CREATE, args));
        let reply = |status: &u32| Expect::Reply(success(xid, &[*status]));
        twice(message, reply(&0), again.iter().map(reply).collect())
    };
    let row = |number, sends: &str, expects, script| {
        let case = case("RFC 1813, 4.5", number, sends, expects, script);
        case.level(Level::Robustness)
    };
    vec![
        row(
            1,
            "NULL, and the same octets on a new connection",
            "two replies",
            null,
        ),
        row(
            2,
            "CREATE, and the same octets on a new connection",
            "two replies, the second of which may say that the file exists",
            create(&[0, EXIST]),
        )
        .needs("rfc1813/4.5/1"),
        row(
            3,
            "CREATE, and the same octets on a new connection",
            "the same reply twice",
            create(&[0]),
        )
        // The section says that most servers have such a cache, not that one must.
        .level(Level::Should)
        .needs("rfc1813/4.5/2"),
    ]
}
