//! Calls that no program of the server can perform (RFC 5531, section 9).

use super::{expect, on};
use crate::case::{Case, Ground, Step, case};
use crate::expect::{Expect, Reply, denied, refused};
use crate::wire::rpc::{self, Call};
use crate::wire::v1;

/// `accept_stat` PROG_UNAVAIL.
const PROG_UNAVAIL: u32 = 1;
/// `accept_stat` PROC_UNAVAIL.
const PROC_UNAVAIL: u32 = 3;

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    let row =
        |number, sends, expects, change: &dyn Fn(Call) -> Call, reply: &dyn Fn(u32) -> Reply| {
            let xid = ground.xid();
            let call = change(rpc::null(xid));
            let message = v1::header(xid).with(&call.bytes());
            let steps = vec![Step::Send(message), expect(Expect::Reply(reply(xid)))];
            case("RFC 5531, 9", number, sends, expects, on(steps))
        };
    let of = |procedure| move |call| Call { procedure, ..call };
    let mismatch = |xid| denied(xid, &[0, 2, 2]);
    let no_program = |xid| refused(xid, &[PROG_UNAVAIL]);
    let no_procedure = |xid| refused(xid, &[PROC_UNAVAIL]);
    vec![
        row(
            1,
            "RPC version 3",
            "RPC_MISMATCH, versions 2 to 2",
            &|it| Call { rpc: 3, ..it },
            &mismatch,
        ),
        row(
            2,
            "RPC version 0",
            "RPC_MISMATCH, versions 2 to 2",
            &|it| Call { rpc: 0, ..it },
            &mismatch,
        ),
        row(
            3,
            "an unknown program",
            "PROG_UNAVAIL",
            &of((400_122, 3, 0)),
            &no_program,
        ),
        row(
            4,
            "program 4294967295",
            "PROG_UNAVAIL",
            &of((u32::MAX, 3, 0)),
            &no_program,
        ),
        row(
            5,
            "procedure 22",
            "PROC_UNAVAIL",
            &of((rpc::NFS, 3, 22)),
            &no_procedure,
        ),
        row(
            6,
            "procedure 4294967295",
            "PROC_UNAVAIL",
            &of((rpc::NFS, 3, u32::MAX)),
            &no_procedure,
        ),
    ]
}
