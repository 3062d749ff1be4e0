//! The exchange of transport characteristics (xcharext-02, sections 2 to 5; rtrext-00, section 8),
//! with each field invalid.

use rpcrdma_conform::fields::Kind;

use super::*;
use crate::cases::vary::{Limits, changes, with_word, words_of};
use crate::client::Case;
use crate::wire::v2::{REPLY, REQXCH, RESPXCH, UPDXCH};

const VALUES: &str = "xcharext-02, 2.1";
const INITS: &str = "xcharext-02, 5.2";
const REQUESTS: &str = "xcharext-02, 5.3";
const RESPONSES: &str = "xcharext-02, 5.4";
const UPDATES: &str = "xcharext-02, 5.5";
const STRUCTURES: &str = "rtrext-00, 8.3";

/// Returns a case with this ROPT_INITXCH as the first message, and the server's answer after its
/// own ROPT_INITXCH.
fn init(name: impl Into<String>, section: &'static str, info: &[u32], bad: bool) -> Case {
    let message = v2::operation(XID, CALL, INITXCH, info, &[]);
    let answer = bad.then(|| HearWords(v2::bad_header(XID), false));
    let script = beginning(message, answer.into_iter().collect());
    client::case(name, section, script, Lives).costing(RECEIVES)
}

/// The server's answer to an operation.
#[derive(Clone, Copy)]
enum Answer {
    Nothing,
    /// RDMA2_ERR_BAD_HEADER.
    Bad,
    /// ROPT_RESPXCH: the subsets of the request's elements that were done, rejected, and are pending.
    Response([u32; 3]),
}

use self::Answer::{Bad, Nothing, Response};

/// A description, direction and type of an operation in the middle of a connection, its words, and the answer.
type Row = (&'static str, (u32, u32), &'static [u32], Answer);

impl Answer {
    fn words(self) -> Option<Vec<u32>> {
        let subsets = match self {
            Nothing => return None,
            Bad => return Some(v2::bad_header(XID)),
            Response(subsets) => subsets,
        };
        let mut info = Vec::new();
        for subset in subsets {
            match subset {
                0 => info.push(0),
                bits => info.extend([1, bits]),
            }
        }
        let len = 4 * info.len() as u32;
        let header = [XID, v2::VERSION, 0, v2::OPTIONAL, REPLY, RESPXCH, len];
        Some([&header[..], &info].concat())
    }
}

/// Characteristics of one word: name, number, type in the XDR, a correct value, and the section.
const NUMBERS: [(&str, u32, &str, u32, &str); 6] = [
    ("XCHAR_RBSIZ", 1, "xchrbsiz", 4096, "xcharext-02, 3.1"),
    ("XCHAR_REQREMINV", 2, "xchrreqrem", 0, "xcharext-02, 3.2"),
    ("XCHAR_BRS", 3, "xchrbrs", 0, "xcharext-02, 3.3"),
    ("XCHAR_RTRSUPP", 4, "xchrrtrs", 7, "rtrext-00, 8.2"),
    ("XCHAR_REQRXLIM", 6, "xchrqrxl", 16, "rtrext-00, 8.4"),
    ("XCHAR_RESPSXLIM", 7, "xchrssxl", 64, "rtrext-00, 8.5"),
];

/// Returns the cases of characteristics with each value that is tried for their types, and with other lengths. A number
/// may be any.
fn numbers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (constant, id, of, right, section) in NUMBERS {
        let words = words_of(of, &[right]);
        for (word, value) in changes(&words, &[]) {
            let is_bad = match word.kind {
                Kind::Truth => value > 1,
                Kind::Choice(values) => values.iter().all(|(_, number)| *number != value),
                _ => false,
            };
            let name = format!("xchv_data: {constant} of {value}");
            cases.push(init(name, section, &[1, id, 4, value, 0], is_bad));
        }
        let empty = format!("xchv_data: {constant}, empty");
        cases.push(init(empty, section, &[1, id, 0, 0], true));
        let twice = format!("xchv_data: {constant}, eight bytes");
        cases.push(init(twice, section, &[1, id, 8, right, right, 0], true));
    }
    cases
}

/// The type of an operation's words in the XDR, the section, direction and type, and correct words.
type Right = (&'static str, &'static str, (u32, u32), &'static [u32]);

/// Returns the cases of operations in the middle of a connection, with each value that is tried in each of their words.
fn operations() -> Vec<Case> {
    let rights: [Right; 3] = [
        ("optinfo_reqxch", REQUESTS, (CALL, REQXCH), &[0]),
        ("optinfo_respxch", RESPONSES, (REPLY, RESPXCH), &[0, 0, 0]),
        ("optinfo_updxch", UPDATES, (CALL, UPDXCH), &[99, 4, 9, 0]),
    ];
    let mut cases = Vec::new();
    for (of, section, (direction, opttype), right) in rights {
        let words = words_of(of, right);
        for (word, value) in changes(&words, &[]) {
            let is_bad = match word.field() {
                "optreqxch_want" | "xchv_data" => true,
                "optupdxch_pendclr" => value > 1,
                _ => false,
            };
            let info = with_word(right, word, value);
            let message = v2::operation(XID, direction, opttype, &info, &[]);
            let answer = if is_bad { Bad } else { Nothing };
            let name = format!("{} is {value}", word.place);
            let answers = answer.words().into_iter().collect();
            cases.push(row(name, section, vec![message], answers));
        }
    }
    cases
}

/// Returns the cases of the lists of ROPT_INITXCH: the words, and whether they cannot be decoded.
fn inits() -> Vec<Case> {
    let all = v2::everything();
    let unknown: Vec<u32> = (0..64).flat_map(|n| [1000 + n, 4, n]).collect();
    let unknown = [&[64][..], &unknown, &[0]].concat();
    let lists: [(&str, &[u32], bool); 11] = [
        ("control: optixch_start of all", &all, false),
        ("control: optixch_start of none", &[0, 0], false),
        ("nothing at all", &[], true),
        ("optixch_start of 65", &[65, 0], true),
        ("optixch_start of 4294967295", &[u32::MAX, 0], true),
        ("optixch_start of 64, unknown all", &unknown, false),
        (
            "optixch_start twice the same",
            &[2, 99, 4, 1, 99, 4, 2, 0],
            false,
        ),
        ("optixch_nochg cut off", &[0], true),
        ("optixch_nochg with a word more", &[0, 0, 0], true),
        (
            "optixch_nochg of more than there are",
            &[0, 1, u32::MAX],
            false,
        ),
        ("optixch_nochg of 2^30 words", &[0, 1 << 30], true),
    ];
    let values: [(&str, &[u32], bool); 4] = [
        (
            "xchv_which unknown, and experimental",
            &[2, 99, 4, 7, 0xffff_ff01, 0, 0],
            false,
        ),
        (
            "xchv_which 0 and 4294967295",
            &[2, 0, 0, u32::MAX, 4, 7, 0],
            false,
        ),
        ("xchv_data cut off", &[1, 1, 4], true),
        (
            "xchv_data of 4294967295 bytes",
            &[1, 99, u32::MAX, 0, 0],
            true,
        ),
    ];
    let there = "optixch_nochg with words that are not there";
    let mut cases = vec![init(there, INITS, &[0, 3, 0, 0], true)];
    cases.extend(lists.map(|(name, info, bad)| init(name, INITS, info, bad)));
    cases.extend(values.map(|(name, info, bad)| init(name, VALUES, info, bad)));
    cases
}

pub(in crate::cases) fn cases() -> Vec<Case> {
    let (update, request, answer) = ((CALL, UPDXCH), (CALL, REQXCH), (REPLY, RESPXCH));
    let requests: [Row; 12] = [
        (
            "control: optreqxch_want nothing",
            request,
            &[0],
            Response([0, 0, 0]),
        ),
        (
            "optreqxch_want what nobody knows",
            request,
            &[2, 99, 0, 4_294_967_040, 0],
            Response([0, 0b11, 0]),
        ),
        (
            "optreqxch_want that calls are taken",
            request,
            &[1, 3, 4, 2],
            Response([0, 1, 0]),
        ),
        (
            "optreqxch_want other buffers",
            request,
            &[1, 5, 24, 8192, 1, 1, 8192, 1, 0],
            Response([0, 1, 0]),
        ),
        (
            "optreqxch_want a size of 4294967295",
            request,
            &[1, 1, 4, u32::MAX],
            Response([0, 1, 0]),
        ),
        ("optreqxch_want cut off", request, &[1, 1, 4], Bad),
        (
            "optreqxch_want nothing, not even a count",
            request,
            &[],
            Bad,
        ),
        ("optreqxch_want 65", request, &[65, 0], Bad),
        ("optreqxch_want and a word more", request, &[0, 0], Bad),
        ("optreqxch_want a bool of 7", request, &[1, 2, 4, 7], Bad),
        (
            "optreqxch_want a size of eight bytes",
            request,
            &[1, 1, 8, 4096, 4096],
            Bad,
        ),
        ("ROPT_REQXCH in a reply", (REPLY, REQXCH), &[0], Nothing),
    ];
    let responses: [Row; 5] = [
        (
            "optrespxch_done to no request",
            answer,
            &[1, 1, 0, 0],
            Nothing,
        ),
        (
            "optrespxch_rej to no request",
            answer,
            &[0, 1, 1, 0],
            Nothing,
        ),
        (
            "optrespxch_pend to no request",
            answer,
            &[0, 0, 1, 1],
            Nothing,
        ),
        ("optrespxch_done cut off", answer, &[1], Nothing),
        ("ROPT_RESPXCH in a call", (CALL, RESPXCH), &[0, 0, 0], Bad),
    ];
    let updates: [Row; 9] = [
        (
            "control: optupdxch_now unknown",
            update,
            &[99, 4, 9, 0],
            Nothing,
        ),
        ("optupdxch_now a size of 0", update, &[1, 4, 0, 0], Nothing),
        (
            "optupdxch_now a size of 4294967295",
            update,
            &[1, 4, u32::MAX, 0],
            Nothing,
        ),
        ("optupdxch_now a bool of 9", update, &[2, 4, 9, 0], Bad),
        (
            "optupdxch_now calls of kind 9",
            (REPLY, UPDXCH),
            &[3, 4, 9, 0],
            Bad,
        ),
        ("optupdxch_now cut off", update, &[], Bad),
        ("optupdxch_pendclr left out", update, &[1, 4, 8192], Bad),
        ("optupdxch_pendclr of 2", update, &[1, 4, 8192, 2], Bad),
        (
            "optupdxch_pendclr of nothing pending",
            update,
            &[1, 4, 8192, 1],
            Nothing,
        ),
    ];
    let again: [Row; 2] = [
        (
            "ROPT_INITXCH again, as a reply",
            (REPLY, INITXCH),
            &[0, 0],
            Nothing,
        ),
        ("ROPT_INITXCH again, malformed", (CALL, INITXCH), &[0], Bad),
    ];
    let said = |section: &'static str, rows: &[Row]| -> Vec<Case> {
        let row = |&(name, (direction, opttype), info, answer): &Row| {
            let message = v2::operation(XID, direction, opttype, info, &[]);
            row(
                name,
                section,
                vec![message],
                answer.words().into_iter().collect(),
            )
        };
        rows.iter().map(row).collect()
    };
    let mut cases = [inits(), numbers(), operations()].concat();
    cases.extend(said(REQUESTS, &requests));
    cases.extend(said(RESPONSES, &responses));
    cases.extend(said(UPDATES, &updates));
    cases.extend(said(INITS, &again));
    let all = v2::operation(XID, CALL, INITXCH, &v2::everything(), &[]);
    cases.push(row("ROPT_INITXCH again", INITS, vec![all], vec![]));
    cases.extend(structures());
    cases.push(
        client::case(
            "a thousand updates",
            UPDATES,
            on_second(vec![Repeat(
                250,
                vec![
                    Repeat(
                        4,
                        vec![Send(v2::operation(XID, CALL, UPDXCH, &[99, 4, 9, 0], &[]))],
                    ),
                    Send(v2::plain(7, CALL, &crate::wire::rpc::null(7).bytes())),
                    HearWords(v2::success(7, &[]), false),
                ],
            )]),
            Lives,
        )
        .costing(RECEIVES),
    );
    cases
}

/// Returns the cases of XCHAR_RBSTRUCT with each field changed. A structure of the right form is no
/// error; it is not used if it makes no sense.
fn structures() -> Vec<Case> {
    let right = [66_560, 2, 1, 1024, 1, 0, 1, 65_536, 4096, 1];
    let words = words_of("xchrrbs", &right);
    let limits: Limits<'_> = &[("xmrseg_align", &[3])];
    let cases = changes(&words, limits).into_iter().map(|(word, value)| {
        let mut info = vec![2, 4, 4, 7, 5, 4 * right.len() as u32];
        info.extend(with_word(&right, word, value));
        info.push(0);
        let name = format!("XCHAR_RBSTRUCT: {} is {value}", word.place);
        init(name, STRUCTURES, &info, word.field() == "xmrbuf_groups")
    });
    cases.collect()
}
