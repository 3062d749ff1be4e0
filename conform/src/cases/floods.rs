//! Messages without end, which only `--hostile` sends.

use super::on;
use crate::case::{Case, Ground, Level, Step, case};
use crate::wire::rpc;
use crate::wire::v1::{self, DONE, Header};

/// More messages than any server grants credits.
const MANY: usize = 4096;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let xid = ground.xid();
    let null = rpc::null(xid).bytes();
    let short = v1::header(xid).with(&null)[..27].to_vec();
    let done = Header {
        procedure: DONE,
        ..v1::header(xid)
    };
    let row = |number, sends, message: Vec<u8>| {
        let script = on(vec![Step::Send(message); MANY]);
        let expects = "nothing or the end of the connection, and the next connection is served";
        let case = case("RFC 8166, 3.3.1", number, sends, expects, script);
        case.level(Level::Robustness).may_close().hostile()
    };
    vec![
        row(20, "27 bytes, 4096 times at once", short),
        row(21, "RDMA_DONE, 4096 times at once", done.with(&null)),
    ]
}
