//! Cases that `rpcrdma conform` has for servers of any make, performed here with a bystander and bounds of
//! memory.

use super::on;
use crate::End::Lives;
use crate::client::{Case, Reply, Step, case};
use rpcrdma_conform::case as judge;
use rpcrdma_conform::expect::Expect;

/// The XID of the calls.
const XID: u32 = 0x0bad;

/// Converts a table of cases. What the project's own server must do is the first of the alternatives.
pub(super) fn judged(table: fn(&judge::Ground) -> Vec<judge::Case>) -> Vec<Case> {
    let cases = table(&judge::Ground::without_files(XID));
    cases.iter().map(converted).collect()
}

fn converted(judged: &judge::Case) -> Case {
    let steps = judged.script.iter().filter_map(step).collect();
    case(judged.sends.clone(), judged.section, on(steps), Lives)
}

/// Converts a step. The tables that are shared have no others: a test of theirs says so.
fn step(step: &judge::Step) -> Option<Step> {
    match step {
        judge::Step::Send(message) => Some(Step::Send(message.clone())),
        judge::Step::Expect(allowed) => match allowed.first()? {
            Expect::ErrVers(xid, version) => Some(Step::ErrVers(*xid, *version)),
            Expect::ErrChunk(xid) => Some(Step::ErrChunk(*xid)),
            Expect::Reply(reply) => Some(Step::Hear(Reply::of(reply))),
            Expect::Closed => None,
        },
        _ => None,
    }
}
