//! Replies of a hostile server with placed data (version-two-07, appendix B).

use rpcrdma_conform::client::changes::placed;

use super::XID;
use super::scripts::*;
use crate::server::{Ask, Case, Outcome, Parts as Form, Step::*};
use crate::wire::rpc;
use crate::wire::v2::TARGET;
use crate::wire::wg::{
    self, CREDIT, ERR_BAD_XDR, ERR_INVAL_HTYPE, REPLY_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};

const PLACED: &str = "version-two-07, B.2";
/// The bytes of a READ that takes four targets.
const LONG: u32 = 200_000;

/// Returns the cases of replies with placed data.
pub(in crate::cases) fn cases() -> Vec<Case> {
    let with = |ask, name: &str, script| with(ask, name, PLACED, script).saying(placing());
    let mut cases = vec![
        with(Ask::Null, "control: NULL with placement", vec![]),
        with(Ask::Write, "control: WRITE with placement", vec![]),
        with(
            Ask::LongWrite(LONG),
            "control: a long WRITE with placement",
            vec![],
        ),
        with(
            Ask::Read,
            "control: placed data",
            vec![Hear, AnswerIn(Form::Placed)],
        ),
        with(Ask::LongRead(LONG), "control: placed data in four parts", {
            vec![Hear, AnswerIn(Form::Placed)]
        }),
        with(
            Ask::Read,
            "control: no placed data",
            vec![Hear, AnswerIn(Form::Continued)],
        ),
    ];
    // The client can send no other call until it is told more.
    let no_credit = with(
        Ask::Read,
        "rdma_credit of part 0 is 0",
        vec![
            Hear,
            Part(Form::Placed, vec![(0, 2, 0)]),
            Say(wg::grant(CREDIT)),
        ],
    );
    cases.push(no_credit.ending(Outcome::Refused));
    // The prefix, and the RPC message behind the header.
    let words = [
        (0, 0, "rdma_xid", XID, Nothing),
        (0, 1, "rdma_vers", 3, Nothing),
        (0, 3, "rdma_htype", 0xffff_ff05, Error(ERR_INVAL_HTYPE)),
        (0, 11, "xid", XID, Fails),
        (0, 12, "msg_type", 0, Fails),
    ];
    let mut fields = rows(Ask::Read, Form::Placed, PLACED, &words);
    // Those that `conform` judges clients by. What is whole is for the upper layer, for which its status suffices.
    for ask in [Ask::Read, Ask::LongRead(LONG)] {
        let parts = replied(ask, Form::Placed);
        let all = placed(&parts, TARGET as u32).expect("a correct reply");
        fields.extend(all.iter().map(|wrong| {
            let (part, word, value) = (wrong.part, &wrong.word, wrong.value);
            let name = format!("{} of part {part} ({ask:?}) is {value}", word.place);
            let change = (part, word.at / 4, value);
            let comes = if wrong.is_whole { Taken } else { Fails };
            changed(ask, Form::Placed, PLACED, name, change, comes)
        }));
    }
    cases.extend(fields.into_iter().map(|case| case.saying(placing())));
    let read =
        |name: &str, ask, change| fails(ask, Form::Placed, name, PLACED, change).saying(placing());
    cases.extend([
        read(
            "placed data without its last byte",
            Ask::Read,
            |_, parts| {
                parts[0].pop();
            },
        ),
        read("placed data that is not there", Ask::Read, |_, parts| {
            parts[0].truncate(1024)
        }),
        read("RDMA2_REPLY_PLACED of 16 bytes", Ask::Read, |_, parts| {
            parts[0].truncate(16)
        }),
        read(
            "RDMA2_REPLY_PLACED that breaks off",
            Ask::Read,
            |_, parts| parts[0].truncate(28),
        ),
        read(
            "RDMA2_REPLY_PLACED without its payload",
            Ask::Read,
            |_, parts| {
                parts[0].truncate(44);
            },
        ),
        read(
            "the second part of placed data missing",
            Ask::LongRead(LONG),
            |_, parts| {
                parts.remove(1);
            },
        ),
        read(
            "the last part of placed data alone",
            Ask::LongRead(LONG),
            |_, parts| {
                drop(parts.drain(..3));
            },
        ),
        read(
            "parts of placed data without their data",
            Ask::LongRead(LONG),
            |_, parts| {
                parts[1].truncate(28);
            },
        ),
        read(
            "a part of placed data twice",
            Ask::LongRead(LONG),
            |_, parts| {
                let again = parts[0].clone();
                parts.insert(1, again);
            },
        ),
        read(
            "RDMA2_REPLY_INLINE for the last part of placed data",
            Ask::LongRead(LONG),
            {
                |call, parts| {
                    parts[3] = wg::reply(call.header.xid, &rpc::accepted(call.header.xid, 5, &[]));
                }
            },
        ),
        read(
            "RDMA2_REPLY_MIDDLE among parts of placed data",
            Ask::LongRead(LONG),
            {
                |call, parts| {
                    parts[1] = wg::message(call.header.xid, REPLY_MIDDLE, &[4], &[0; 4]);
                }
            },
        ),
    ]);
    for (name, htype, fields) in [
        ("RDMA2_REPLY_PLACED", REPLY_PLACED, [0, 0, 24]),
        ("RDMA2_REPLY_PLACED_MIDDLE", REPLY_PLACED_MIDDLE, [1, 4, 24]),
    ] {
        let name = format!("{name} to a call never made");
        let message = wg::message(XID, htype, &fields, &rpc::accepted(XID, 0, &[]));
        let last = wg::message(XID, REPLY_PLACED, &[0, 0, 4], &[0; 4]);
        let script = vec![Hear, Say(message), Say(last), HearNothing];
        cases.push(with(Ask::Null, &name, script));
    }
    for (name, code) in [
        ("RDMA2_ERR_INVAL_HTYPE", ERR_INVAL_HTYPE),
        ("RDMA2_ERR_BAD_XDR", ERR_BAD_XDR),
    ] {
        // The client sends the call in another way (errata-07, 56).
        let name = format!("{name} to placed data");
        let script = vec![Hear, Refuse(vec![code]), Hear, Settled];
        cases.push(with(Ask::Write, &name, script));
    }
    cases
}

fn placing() -> Vec<u32> {
    wg::placing_properties()
}
