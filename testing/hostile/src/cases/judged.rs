//! Cases that `rpcrdma conform` has for servers of any make, performed here with a bystander and bounds of
//! memory. What the project's own server must do is the first of the alternatives.

use super::{on, second, wg};
use crate::End::{self, Lives};
use crate::client::{Case, Reply, Step, case};
use crate::wire::v2;
use crate::wire::wg::{ERROR, success, unsupported};
use rpcrdma_conform::case as judge;
use rpcrdma_conform::expect::{self, Expect};

/// The XID of the calls.
const XID: u32 = 0x0bad;

/// Converts a table of cases of version 1.
pub(super) fn judged(table: fn(&judge::Ground) -> Vec<judge::Case>) -> Vec<Case> {
    let cases = table(&judge::Ground::without_files(XID));
    cases.iter().map(converted).collect()
}

fn converted(judged: &judge::Case) -> Case {
    let steps = judged.script.iter().filter_map(step).collect();
    case(
        judged.sends.clone(),
        judged.section.clone(),
        on(steps),
        Lives,
    )
}

/// Converts a step. The other steps of the tables that are shared, which a test of theirs lists, are memory that this
/// project's server does not read, and silence, which the call at the end shows.
fn step(step: &judge::Step) -> Option<Step> {
    match step {
        judge::Step::Send(message) => Some(Step::Send(message.clone())),
        judge::Step::Expect(allowed) => match allowed.first()? {
            Expect::ErrVers(xid, version) => Some(Step::ErrVers(*xid, *version)),
            Expect::ErrChunk(xid) => Some(Step::ErrChunk(*xid)),
            Expect::Reply(reply) => Some(Step::Hear(Reply::of(reply))),
            Expect::Error(..) | Expect::Fields(_) | Expect::Operation(_) | Expect::Closed => None,
        },
        _ => None,
    }
}

/// Converts a table of cases of version 2.
pub(super) fn judged_second(table: fn(&judge::Ground) -> Vec<judge::Case>) -> Vec<Case> {
    let cases = table(&judge::Ground::without_files(XID));
    cases.iter().filter_map(converted_second).collect()
}

/// Converts a case. Its script begins with a connection and a call, after whose header the server tells its
/// characteristics.
fn converted_second(judged: &judge::Case) -> Option<Case> {
    let [judge::Step::Connect(_), judge::Step::Send(first), rest @ ..] = &judged.script[..] else {
        return None;
    };
    let rest = rest.iter().filter_map(step_second).collect();
    let script = second::beginning(first.clone(), rest);
    let case = case(judged.sends.clone(), judged.section.clone(), script, Lives);
    Some(case.costing(second::RECEIVES))
}

fn step_second(step: &judge::Step) -> Option<Step> {
    match step {
        judge::Step::Send(message) => Some(Step::Send(message.clone())),
        judge::Step::Expect(allowed) => {
            let words = match allowed.first()? {
                Expect::ErrVers(xid, version) => v2::err_vers(*xid, *version, [2, 2]),
                Expect::Error(xid, version, error) => {
                    let error: Option<Vec<u32>> = error.iter().copied().collect();
                    [vec![*xid, *version, 0, ERROR], error?].concat()
                }
                Expect::Reply(reply) => {
                    let header = &v2::success(reply.xid, &[])[..9];
                    [header, &reply.words].concat()
                }
                Expect::ErrChunk(_) | Expect::Fields(_) | Expect::Operation(_) | Expect::Closed => {
                    return None;
                }
            };
            Some(Step::HearWords(words, false))
        }
        _ => None,
    }
}

/// Converts a table of cases of the working group's version 2, which read this file.
pub(super) fn judged_wg(table: fn(&judge::Ground) -> Vec<judge::Case>, file: &[u8]) -> Vec<Case> {
    let ground = judge::Ground::new(file.to_vec(), file.to_vec(), (0, 0), XID);
    table(&ground).iter().filter_map(converted_wg).collect()
}

/// Converts a case. Its script begins with a connection and the client's first message.
fn converted_wg(judged: &judge::Case) -> Option<Case> {
    let [judge::Step::Connect(_), judge::Step::Send(first), rest @ ..] = &judged.script[..] else {
        return None;
    };
    let script = wg::beginning(first.clone(), rest.iter().map(step_wg).collect());
    let end = match judged.end {
        judge::End::Lives | judge::End::LivesOrCloses => Lives,
        judge::End::Incomplete => End::Left,
    };
    let case = case(judged.sends.clone(), judged.section.clone(), script, end);
    Some(case.costing(wg::RECEIVES))
}

/// Converts a step.
///
/// # Panics
/// There is no such step here, or an expected word is free: the case would test less than it says.
fn step_wg(step: &judge::Step) -> Step {
    let allowed = match step {
        judge::Step::Send(message) => return Step::Send(message.clone()),
        judge::Step::Expect(allowed) => allowed,
        other => panic!("a step that the shared tables do not have: {other:?}"),
    };
    match allowed.first() {
        Some(Expect::ErrVers(xid, version)) => {
            let words = [vec![*xid, *version, 0, ERROR], unsupported()].concat();
            Step::HearWords(words, false)
        }
        Some(Expect::Error(xid, version, error)) => {
            let free = || panic!("an error with free words: {error:?}");
            let error = error.iter().map(|word| word.unwrap_or_else(free));
            let words = [*xid, *version, 0, ERROR].into_iter().chain(error);
            Step::HearWords(words.collect(), false)
        }
        Some(Expect::Reply(reply)) => heard(reply),
        other => panic!("an expectation that the shared tables do not have: {other:?}"),
    }
}

/// Returns the step that expects a reply. Results come in one message or in several.
fn heard(reply: &expect::Reply) -> Step {
    match reply.more {
        true => Step::HearParts(reply.xid, vec![0]),
        false => {
            let header = &success(reply.xid, &[])[..6];
            let words = [header, &reply.words].concat();
            Step::HearWords(words, false)
        }
    }
}
