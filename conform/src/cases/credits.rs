//! Credits (RFC 8166, section 3.3.1).

use super::{expect, on};
use crate::case::{Case, Ground, Level, Step, case};
use crate::expect::{Expect, success};
use crate::wire::rpc;
use crate::wire::v1::{self, Header};

const SECTION: &str = "RFC 8166, 3.3.1";
/// The address of the first case, without which the others say nothing new.
const FIRST: &str = "rfc8166/3.3.1/1";
/// More receives than any server posts for one connection.
const BACKED: u32 = 65_536;
/// The most calls that are made at once.
const AT_ONCE: u32 = 64;

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let asks = |credits| {
        let xid = ground.xid();
        let header = Header {
            credits,
            ..v1::header(xid)
        };
        let message = header.with(&rpc::null(xid).bytes());
        let reply = success(xid, &[]).granting(1..=BACKED);
        vec![Step::Send(message), expect(Expect::Reply(reply))]
    };
    let row =
        |number, sends: &str, expects, steps| case(SECTION, number, sends, expects, on(steps));
    let burst = [asks(AT_ONCE), vec![Step::Burst(AT_ONCE)]].concat();
    vec![
        row(
            1,
            "a call that asks for 8 credits",
            "a grant of at least one",
            asks(8),
        ),
        row(
            2,
            "a call that asks for 4294967295 credits",
            "a grant that receives can stand behind, at most 65536",
            asks(u32::MAX),
        )
        // The text binds a grant to receives, and sets no number.
        .needs(FIRST)
        .level(Level::Robustness),
        row(
            3,
            "a call that asks for no credit",
            "a grant of at least one",
            asks(0),
        )
        .needs(FIRST)
        .level(Level::Robustness),
        row(
            4,
            "as many calls at once as were granted, at most 64",
            "a reply to each",
            burst,
        )
        .needs(FIRST),
    ]
}
