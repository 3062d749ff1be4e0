//! Tests of the language, and of what is written in it.

use quickcheck::{Arbitrary, Gen, TestResult, quickcheck};

use super::*;
use crate::case::{End, Level, Step, opening};
use crate::expect::Expect;
use crate::wire::{rpc, v1, wg};
use crate::xdr::{Specification, parse as parse_xdr};

const XID: u32 = 7;
const HEAD: &str = "case rfc8166/4.5.2/900 SHOULD\nsends x\nexpects y\n";

fn ground() -> Ground {
    Ground::without_files(XID)
}

fn parsed(text: &str) -> Result<Vec<Case>, Error> {
    parse("a.case", text, &Vocabularies::new(&[]), &ground())
}

/// Returns the steps of one case of version 1 with these lines, without the opening.
fn steps(lines: &str) -> Vec<Step> {
    let cases = parsed(&format!("{HEAD}{lines}")).unwrap();
    let script = cases.into_iter().next().unwrap().script;
    script
        .into_iter()
        .skip(opening(Dialect::One).len())
        .collect()
}

fn error(lines: &str) -> String {
    parsed(&format!("{HEAD}{lines}")).unwrap_err().to_string()
}

#[test]
fn a_case_has_what_built_in_cases_have() {
    let text =
        format!("{HEAD}hostile\nneeds rfc8166/4.5.2/1\nend lives or closes\n--> RDMA_DONE\n");
    let [case] = &parsed(&text).unwrap()[..] else {
        panic!("one case");
    };
    assert_eq!(case.address(), "rfc8166/4.5.2/900");
    assert_eq!(
        (&*case.section, case.level),
        ("RFC 8166, 4.5.2", Level::Should)
    );
    assert_eq!((case.sends.as_str(), &*case.expects), ("x", "y"));
    assert_eq!(case.needs.as_deref(), Some("rfc8166/4.5.2/1"));
    assert!(case.hostile);
    assert_eq!((case.end, case.dialect), (End::LivesOrCloses, Dialect::One));
}

#[test]
fn a_message_has_the_octets_that_built_in_cases_send() {
    let call = rpc::Call {
        credential: ground().credential(),
        ..rpc::null(XID)
    };
    let expected = v1::header(XID).with(&call.bytes());
    let sent = steps("   --- RDMA_MSG ---->  # a comment\n     rpc = call NFS 3 NULL");
    assert_eq!(sent, [Step::Send(expected)]);
    // Words in the place of a list.
    let sent = steps("--> RDMA_MSG\nrdma_reads = words 2 0 0\n");
    let Some(Step::Send(message)) = sent.first() else {
        panic!("{sent:?}");
    };
    let words: Vec<u32> = message
        .chunks(4)
        .map(|it| u32::from_be_bytes(it.try_into().unwrap()))
        .collect();
    assert_eq!(words, [XID, 1, 8, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn expected_messages_have_alternatives_and_times() {
    let all = steps(
        "--> RDMA_MSG\n<-- RDMA_ERROR within 500ms\nrdma_err = ERR_CHUNK\nor <-- closed\n<-- nothing",
    );
    let [_, Step::Within(time, allowed), Step::Quiet] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(time.as_millis(), 500);
    let [Expect::Fields(pattern), Expect::Closed] = &allowed[..] else {
        panic!("{allowed:?}");
    };
    let check = |words: &[u32]| {
        let message = v1::error(XID, 1, words);
        pattern.check(None, &message)
    };
    assert_eq!(check(&[2]), Ok(()));
    let other = check(&[1, 1, 1]).unwrap_err();
    assert_eq!(
        other,
        "RDMA_ERROR: rdma_err is 1 (ERR_VERS), not 2 (ERR_CHUNK)"
    );
    assert_eq!(
        check(&[]).unwrap_err(),
        "RDMA_ERROR that cannot be read: the message ends before rdma_err"
    );
}

#[test]
fn memory_is_named_in_chunk_lists_and_compared() {
    let all = steps(
        "room data 8 octets\noffer more = 1 2\n--> RDMA_MSG\n rdma_writes[0].rdma_target[0] = memory data\n \
         rdma_reads[0] = memory more\n rdma_reads[0].rdma_position = 40\nholds data = {\"abc\"}",
    );
    let [
        Step::Room(room),
        Step::Offer(offer, content),
        Step::Send(message),
        Step::Holds(handle, bytes),
    ] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert_eq!(content, &[0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(
        (*handle, bytes.as_slice()),
        (room.handle, &b"\0\0\0\x03abc\0"[..])
    );
    let Some(v1::Message::Rpc(header, _)) = v1::parse(message) else {
        panic!("{message:x?}");
    };
    assert_eq!(header.reads, [(40, *offer)]);
    assert_eq!(header.writes, [[*room]]);
}

#[test]
fn positions_can_be_counted_from_the_end_of_the_rpc_message() {
    let sent = steps(
        "--> RDMA_MSG\nrdma_reads[0].rdma_position = end-4\nrdma_reads[1].rdma_position = end\nrpc = {xid} 1 2",
    );
    let Some(Step::Send(message)) = sent.first() else {
        panic!("{sent:?}");
    };
    let Some(v1::Message::Rpc(header, _)) = v1::parse(message) else {
        panic!("{message:x?}");
    };
    let positions: Vec<u32> = header.reads.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, [8, 12]);
    let said = error("--> RDMA_MSG\nrdma_reads[0].rdma_position = end-13\nrpc = {xid} 1 2");
    assert!(
        said.contains("is before the RPC message of 12 octets"),
        "{said}"
    );
    let said = error("--> RDMA_MSG\nrdma_reads[0].rdma_position = ending");
    assert!(
        said.contains("ending is no position; write end, "),
        "{said}"
    );
}

/// Returns the words of the only message that is sent.
fn sent(lines: &str) -> Vec<u32> {
    let all = steps(lines);
    let [Step::Send(message)] = &all[..] else {
        panic!("{all:?}");
    };
    let words = message.chunks(4);
    words
        .map(|it| u32::from_be_bytes(it.try_into().unwrap()))
        .collect()
}

#[test]
fn the_last_value_of_a_field_is_the_one_that_is_sent() {
    let position = |lines: &str| sent(&format!("--> RDMA_MSG\nrpc = {{xid}} 1\n{lines}"))[5];
    let (end, number) = (
        "rdma_reads[0].rdma_position = end\n",
        "rdma_reads[0].rdma_position = 4\n",
    );
    assert_eq!(position(end), 8);
    assert_eq!(position(&format!("{number}{end}")), 8);
    assert_eq!(position(&format!("{end}{number}")), 4);
    // An empty list has no element any more, wherever its position was counted from.
    let none = format!("{end}rdma_reads = none\n");
    let words = sent(&format!("--> RDMA_MSG\nrpc = {{xid}} 1\n{none}"));
    assert_eq!(words, [XID, 1, 8, 0, 0, 0, 0, XID, 1]);
}

#[test]
fn an_empty_list_leaves_fields_whose_names_begin_alike() {
    let xdr = "const RDMA2_X = 99; struct rpcrdma2_hdr_x { uint32 rdma_list<>; uint32 rdma_list_more<>; };";
    let text = "case rpcrdma2-07/1/1 MUST\nsends x\nexpects y\n--> RDMA2_X\nrdma_list[0] = 5\n\
                rdma_list_more[0] = 6\nrdma_list = none";
    let vocabularies = Vocabularies::new(&[("x.x".into(), xdr.into())]);
    let cases = parse("a.case", text, &vocabularies, &ground()).unwrap();
    let Some(Step::Send(message)) = cases[0].script.last() else {
        panic!("{:?}", cases[0].script);
    };
    assert_eq!(message[16..], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6]);
}

#[test]
fn memory_that_is_offered_has_a_limit_in_each_case() {
    let case = |number, lines: &str| {
        format!(
            "case x-00/1/{number} MUST\nspeaks rpcrdma1\nsends x\nexpects y\n{lines}\n--> RDMA_DONE\n"
        )
    };
    let most = "offer m 67108864 octets";
    // Two cases are not performed at the same time.
    let cases = parsed(&(case(1, most) + &case(2, most))).unwrap();
    assert_eq!(cases.len(), 2);
    // The content is made when it is offered.
    assert!(matches!(&cases[0].script[1], Step::OfferAny(segment) if segment.length == 64 << 20));
    for (lines, column) in [
        (format!("{most}\noffer n 1 octets"), 9),
        (format!("{most}\noffer n = 1"), 7),
    ] {
        let error = parsed(&case(1, &lines)).unwrap_err();
        assert_eq!((error.line, error.column), (6, column), "{error}");
        assert!(error.instead.ends_with("67108864 in one case"), "{error}");
    }
}

#[test]
fn a_word_that_begins_no_line_is_not_offered() {
    let [words, said] = ["sned", "section 4.5"].map(error);
    assert!(
        words.contains("write --> TYPE, ") && !words.contains("section"),
        "{words}"
    );
    assert!(said.contains("section stands in the address"), "{said}");
}

/// Each error names its line and column, what is wrong, and what to write.
#[test]
fn errors_say_what_to_write() {
    for (lines, begins) in [
        (
            "",
            "a.case:1:1: rfc8166/4.5.2/900 sends nothing; write --> TYPE",
        ),
        (
            "rdma_xid = 7",
            "a.case:4:1: rdma_xid belongs to no message; write --> TYPE",
        ),
        (
            "--> RDMA_MGS",
            "a.case:4:5: RDMA_MGS is no header type of RPC-over-RDMA version 1; write one of RDMA_MSG, ",
        ),
        (
            "--> RDMA_MSG\nrdma_xid = seven",
            "a.case:5:12: seven is no number; write a number (7, 0x51)",
        ),
        (
            "--> RDMA_MSG\nrdma_xid = 4294967296",
            "a.case:5:1: rdma_xid has 32 bits",
        ),
        (
            "--> RDMA_MSG\nrdma_reads = 7",
            "a.case:5:1: rdma_reads holds others; write rdma_reads = none, or its elements: rdma_reads[0].NAME",
        ),
        (
            "--> RDMA_MSG\nrdma_reads[0] = memory m",
            "a.case:5:24: there is no memory m; write offer m",
        ),
        (
            "--> RDMA_MSG\nrpc = call NFS",
            "a.case:5:12: call NFS names no procedure; write call PROGRAM",
        ),
        (
            "--> RDMA_MSG\nrpc = \"abc",
            "a.case:5:7: \"abc has no second quotation mark",
        ),
        (
            "--> RDMA_MSG within 2s",
            "a.case:4:1: --> RDMA_MSG within 2s is no message",
        ),
        (
            "<-- RDMA_MSG within 2h",
            "a.case:4:21: 2h is no time; write within 500ms",
        ),
        (
            "or <-- RDMA_MSG",
            "a.case:4:1: or stands for another message",
        ),
        (
            "offer m 99999999999 octets",
            "a.case:4:9: 99999999999 octets cannot be offered",
        ),
        (
            "room m 1 octets\nroom m 1 octets",
            "a.case:5:6: there is memory of this name already",
        ),
        (
            "--> RDMA_ERROR\nrdma_err = ERR_CHUNK\n rdma_vers_low = 3",
            "a.case:6:2: rdma_vrange.rdma_vers_low is not sent: other fields select another arm",
        ),
        (
            "end badly",
            "a.case:4:1: end badly is no end; write end lives",
        ),
        (
            "sned",
            "a.case:4:1: sned is no line of a case; write --> TYPE",
        ),
        (
            "speaks rpcrdma3",
            "a.case:4:8: rpcrdma3 is no version; write speaks rpcrdma1",
        ),
    ] {
        let error = error(lines);
        assert!(error.starts_with(begins), "{lines}: {error}");
    }
    for (text, begins) in [
        ("", "a.case: there is no case in it; write case "),
        (
            "--> RDMA_MSG",
            "a.case:1:1: --> before the first case; write case ",
        ),
        (
            "case rfc8166/4 MUST",
            "a.case:1:1: case rfc8166/4 MUST begins no case; write case DOCUMENT/",
        ),
        (
            "case RFC8166/4/1 MUST",
            "a.case:1:1: case RFC8166/4/1 MUST begins no case",
        ),
        (
            "case x-00/4/1 MUST\n--> 7",
            "a.case:2:1: x-00/4/1 does not say which version is spoken",
        ),
        (
            "case rfc8166/4/1 MUST\n--> 7",
            "a.case:1:1: rfc8166/4/1 has no line sends; write sends",
        ),
    ] {
        let error = parsed(text).unwrap_err().to_string();
        assert!(error.starts_with(begins), "{text}: {error}");
    }
}

/// Lines of the language with words in wrong places.
#[derive(Clone, Debug)]
struct Lines(String);

impl Arbitrary for Lines {
    fn arbitrary(g: &mut Gen) -> Self {
        const WORDS: &[&str] = &[
            "case",
            "rfc8166/4/1",
            "rpcrdma2-07/1/2",
            "x/1/1",
            "MUST",
            "speaks",
            "rpcrdma2-07",
            "sends",
            "expects",
            "-->",
            "<--",
            "or",
            "---",
            "closed",
            "nothing",
            "within",
            "2s",
            "RDMA_MSG",
            "RDMA_ERROR",
            "RDMA2_CALL_INLINE",
            "RDMA2_CONNPROP_FINAL",
            "99",
            "\n",
            "\n",
            "\n",
            "=",
            "=",
            "rpc",
            "call",
            "NFS",
            "3",
            "NULL",
            "reply",
            "SUCCESS",
            "...",
            "{file}",
            "{xid}",
            "{\"a\"}",
            "{",
            "x00",
            "x0",
            "\"",
            "#",
            "é",
            "rdma_reads[0].rdma_handle",
            "rdma_reads[4095].rdma_position",
            "rdma_reads",
            "rdma_xid",
            "rdma_props",
            "rdma_props[1].rdma_data",
            "rdma_reply",
            "memory",
            "handle",
            "m",
            "offer",
            "room",
            "octets",
            "holds",
            "words",
            "none",
            "any",
            "end",
            "end-2147483648",
            "1..2",
            "xid",
            "0",
            "4294967295",
            "18446744073709551615",
            "end",
            "lives",
            "connect",
        ];
        let count = usize::arbitrary(g) % 60;
        let mut text = match bool::arbitrary(g) {
            true => format!(
                "{HEAD}speaks rpcrdma{}\n",
                g.choose(&["1", "2-07", "2-01"]).unwrap_or(&"1")
            ),
            false => String::new(),
        };
        for _ in 0..count {
            text += g.choose(WORDS).unwrap_or(&"");
            text.push(' ');
        }
        Self(text)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.shrink().map(Self))
    }
}

quickcheck! {
    /// No file makes the parser panic, and each error names a line of the file.
    fn any_file_is_read_or_refused_with_its_line(lines: Lines) -> TestResult {
        match parsed(&lines.0) {
            Ok(cases) => TestResult::from_bool(!cases.is_empty()),
            Err(error) => {
                let line = lines.0.lines().nth(error.line.wrapping_sub(1)).unwrap_or_default();
                let is_there = error.line <= lines.0.lines().count();
                TestResult::from_bool(is_there && error.column <= line.chars().count().max(1))
            }
        }
    }

    fn any_text_is_read_or_refused(text: String) -> bool {
        let _ = parse_xdr(&text, &mut Specification::default());
        let _ = parsed(&format!("{HEAD}{text}"));
        // No line of it begins a case.
        parsed(&text).is_err()
    }

    /// Nothing that a server sends makes a comparison panic.
    fn any_message_is_compared(name: u8, octets: Vec<u8>, header: bool) -> bool {
        let vocabulary = Vocabularies::new(&[]).of(Dialect::Wg).unwrap();
        let headers = vocabulary.headers();
        let header_type = headers[usize::from(name) % headers.len()].clone();
        let message = match header {
            true => wg::message(XID, header_type.number, &[], &octets),
            false => octets,
        };
        let pattern = crate::pattern::Pattern { vocabulary, header: header_type, fields: Vec::new(), payload: None };
        let _ = pattern.check(None, &message);
        true
    }
}
