//! Tests of [`super::arrival`].

use super::arrival::{Taken, Wg};
use crate::client::rules::{Findings, Rule};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, Segment, segment};
use crate::wire::wg::{self, CALL_MIDDLE, GRANT};

/// A connection whose properties are exchanged.
fn begun() -> (Wg, Findings) {
    let (mut wg, mut findings) = (Wg::new(), Findings::default());
    let own = wg::introduction(&wg::plain_properties());
    assert_eq!(wg.take(&mut findings, &own, true), Taken::Nothing);
    wg.announce(&own);
    wg.stamped(&own, 16);
    (wg, findings)
}

fn broken(findings: &Findings) -> Vec<Rule> {
    let rules = [
        Rule::Header,
        Rule::Version,
        Rule::Xid,
        Rule::FirstMessage,
        Rule::Threshold,
        Rule::HeaderType,
        Rule::Properties,
        Rule::PropertiesOnce,
        Rule::Continued,
        Rule::CallChunk,
        Rule::InvalidHandle,
        Rule::Segments,
        Rule::GrantXid,
        Rule::Error,
        Rule::NoMsg,
    ];
    let is_broken = |rule: &Rule| findings.broken(*rule).is_some();
    rules.into_iter().filter(is_broken).collect()
}

fn after(message: &[u8]) -> Vec<Rule> {
    let (mut wg, mut findings) = begun();
    wg.take(&mut findings, message, true);
    broken(&findings)
}

#[test]
fn each_rule_is_broken_alone() {
    let null = rpc::null(7).bytes();
    let with = |header: Header, handle| wg::call_with(&header, handle, &null);
    let reads = |reads: &[(u32, Segment)]| Header {
        reads: reads.to_vec(),
        ..v1::header(7)
    };
    assert_eq!(after(&wg::call(7, &null)), []);
    assert_eq!(after(&with(reads(&[(4, segment(9, 8, 0))]), 9)), []);
    let zero = with(reads(&[(0, segment(9, 8, 0))]), 9);
    assert_eq!(after(&zero), [Rule::CallChunk]);
    let other = with(reads(&[(4, segment(9, 8, 0))]), 8);
    assert_eq!(after(&other), [Rule::InvalidHandle]);
    let long = with(reads(&[(4, segment(9, 2 << 20, 0))]), 0);
    assert_eq!(after(&long), [Rule::Segments]);
    let many = with(reads(&[(4, segment(9, 8, 0)); 17]), 0);
    assert_eq!(after(&many), [Rule::Segments]);
    let mut third = wg::call(7, &null);
    third[20..24].copy_from_slice(&[0, 0, 0, 2]);
    assert_eq!(after(&third), [Rule::Header]);
    assert_eq!(
        after(&wg::call(7, &[0; 5000])),
        [Rule::Header, Rule::Threshold]
    );
    assert_eq!(after(&wg::message(7, 99, &[], &[])), [Rule::HeaderType]);
    assert_eq!(after(&wg::reply(7, &[0; 24])), [Rule::HeaderType]);
    assert_eq!(after(&wg::message(7, GRANT, &[], &[])), [Rule::GrantXid]);
    assert_eq!(after(&wg::error(7, &[2])), [Rule::Error]);
    assert_eq!(after(&wg::introduction(&[0])), [Rule::PropertiesOnce]);
    assert_eq!(after(&v1::header(7).with(&null)), [Rule::Version]);
    assert_eq!(after(&wg::call(7, &null)[..20]), [Rule::Header]);
}

#[test]
fn an_external_call_has_a_call_chunk_of_position_zero() {
    let external = |reads: &[(u32, Segment)], rest: &[u8]| {
        let header = Header {
            procedure: v1::NOMSG,
            reads: reads.to_vec(),
            ..v1::header(7)
        };
        wg::call_with(&header, 0, rest)
    };
    assert_eq!(after(&external(&[(0, segment(9, 40, 0))], &[])), []);
    let rest = external(&[(0, segment(9, 40, 0))], &[0; 4]);
    assert_eq!(after(&rest), [Rule::NoMsg]);
    assert_eq!(after(&external(&[], &[])), [Rule::NoMsg]);
    // The position of the Call chunk's only segment.
    let mut moved = external(&[(0, segment(9, 40, 0))], &[]);
    moved[24..28].copy_from_slice(&[0, 0, 0, 4]);
    assert_eq!(after(&moved), [Rule::CallChunk]);
}

#[test]
fn a_continued_call_is_whole_with_its_last_message() {
    let null = rpc::null(7).bytes();
    let middle = |remaining, part: &[u8]| wg::message(7, CALL_MIDDLE, &[remaining], part);
    let (mut wg, mut findings) = begun();
    wg.take(&mut findings, &middle(24, &null[..16]), true);
    assert!(!wg.needs_credit(16) && wg.needs_credit(64));
    // RDMA2_GRANT may stand between.
    wg.take(&mut findings, &wg::grant(99), true);
    let last = wg.take(&mut findings, &wg::call(7, &null[16..]), true);
    assert_eq!(last, Taken::Call(0, v1::header(7), null.clone()));
    assert_eq!(broken(&findings), []);
    let (mut wg, mut findings) = begun();
    wg.take(&mut findings, &middle(40, &null[..16]), true);
    let other = wg.take(&mut findings, &wg::call(8, &rpc::null(8).bytes()), true);
    assert_eq!(other, Taken::Refused(wg::error(8, &[wg::ERR_INVAL_CONT])));
    assert_eq!(broken(&findings), [Rule::Continued]);
    let (mut wg, mut findings) = begun();
    wg.take(&mut findings, &middle(40, &null[..16]), true);
    wg.take(&mut findings, &wg::call(7, &null[16..]), true);
    assert_eq!(broken(&findings), [Rule::Continued]);
}

#[test]
fn a_second_message_before_an_answer_is_too_early() {
    let (mut wg, mut findings) = (Wg::new(), Findings::default());
    let first = wg::introduction(&wg::set(&[(2, 64)]));
    assert!(matches!(
        wg.take(&mut findings, &first, true),
        Taken::Unusable(_)
    ));
    assert_eq!(broken(&findings), []);
    wg.take(&mut findings, &wg::call(7, &rpc::null(7).bytes()), true);
    assert_eq!(broken(&findings), [Rule::FirstMessage]);
}
