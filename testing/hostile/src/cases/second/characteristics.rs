//! The exchange of transport characteristics (xcharext-02, sections 2 to 5; rtrext-00, section 8),
//! with each field invalid.

use super::*;
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

/// Returns a case that sends an operation in the middle of a connection and expects this single
/// answer.
fn said(
    name: &'static str,
    section: &'static str,
    (direction, opttype): (u32, u32),
    info: &[u32],
    answer: Option<Vec<u32>>,
) -> Case {
    let message = v2::operation(XID, direction, opttype, info, &[]);
    row(name, section, vec![message], answer.into_iter().collect())
}

/// Returns the words of ROPT_RESPXCH: the subsets of the request's elements that were done,
/// rejected, and are pending.
fn response(subsets: [u32; 3]) -> Option<Vec<u32>> {
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

pub(in crate::cases) fn cases() -> Vec<Case> {
    let bad = || Some(v2::bad_header(XID));
    let (update, request, answer) = ((CALL, UPDXCH), (CALL, REQXCH), (REPLY, RESPXCH));
    let mut cases = vec![
        init(
            "control: optixch_start of all",
            INITS,
            &v2::everything(),
            false,
        ),
        init("control: optixch_start of none", INITS, &[0, 0], false),
        init("nothing at all", INITS, &[], true),
        init("optixch_start of 65", INITS, &[65, 0], true),
        init("optixch_start of 4294967295", INITS, &[u32::MAX, 0], true),
        init(
            "optixch_start of 64, unknown all",
            INITS,
            &{
                let mut many = vec![64];
                (0..64).for_each(|n| many.extend([1000 + n, 4, n]));
                many.push(0);
                many
            },
            false,
        ),
        init(
            "optixch_start twice the same",
            INITS,
            &[2, 99, 4, 1, 99, 4, 2, 0],
            false,
        ),
        init("optixch_nochg cut off", INITS, &[0], true),
        init("optixch_nochg with a word more", INITS, &[0, 0, 0], true),
        init(
            "optixch_nochg of more than there are",
            INITS,
            &[0, 1, u32::MAX],
            false,
        ),
        init(
            "optixch_nochg with words that are not there",
            INITS,
            &[0, 3, 0, 0],
            true,
        ),
        init("optixch_nochg of 2^30 words", INITS, &[0, 1 << 30], true),
        init(
            "xchv_which unknown, and experimental",
            VALUES,
            &[2, 99, 4, 7, 0xffff_ff01, 0, 0],
            false,
        ),
        init(
            "xchv_which 0 and 4294967295",
            VALUES,
            &[2, 0, 0, u32::MAX, 4, 7, 0],
            false,
        ),
        init("xchv_data cut off", VALUES, &[1, 1, 4], true),
        init(
            "xchv_data of 4294967295 bytes",
            VALUES,
            &[1, 99, u32::MAX, 0, 0],
            true,
        ),
        init("xchv_data of the size, empty", VALUES, &[1, 1, 0, 0], true),
        init(
            "xchv_data of the size, eight bytes",
            VALUES,
            &[1, 1, 8, 4096, 0, 0],
            true,
        ),
        init(
            "xchv_data: XCHAR_RBSIZ of 0",
            "xcharext-02, 3.1",
            &[1, 1, 4, 0, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_RBSIZ of 4294967295",
            "xcharext-02, 3.1",
            &[1, 1, 4, u32::MAX, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_REQREMINV of 2",
            "xcharext-02, 3.2",
            &[1, 2, 4, 2, 0],
            true,
        ),
        init(
            "xchv_data: XCHAR_BRS of 3",
            "xcharext-02, 3.3",
            &[1, 3, 4, 3, 0],
            true,
        ),
        init(
            "xchv_data: XCHAR_RTRSUPP of all bits",
            "rtrext-00, 8.2",
            &[1, 4, 4, u32::MAX, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_RTRSUPP of eight bytes",
            "rtrext-00, 8.2",
            &[1, 4, 8, 7, 7, 0],
            true,
        ),
        init(
            "xchv_data: XCHAR_REQRXLIM of 0",
            "rtrext-00, 8.4",
            &[1, 6, 4, 0, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_REQRXLIM of 4294967295",
            "rtrext-00, 8.4",
            &[1, 6, 4, u32::MAX, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_REQRXLIM, empty",
            "rtrext-00, 8.4",
            &[1, 6, 0, 0],
            true,
        ),
        init(
            "xchv_data: XCHAR_RESPSXLIM of 0",
            "rtrext-00, 8.5",
            &[1, 7, 4, 0, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_RESPSXLIM of 4294967295",
            "rtrext-00, 8.5",
            &[1, 7, 4, u32::MAX, 0],
            false,
        ),
        init(
            "xchv_data: XCHAR_RESPSXLIM, empty",
            "rtrext-00, 8.5",
            &[1, 7, 0, 0],
            true,
        ),
        // Cases of requests.
        said(
            "control: optreqxch_want nothing",
            REQUESTS,
            request,
            &[0],
            response([0, 0, 0]),
        ),
        said(
            "optreqxch_want what nobody knows",
            REQUESTS,
            request,
            &[2, 99, 0, 4_294_967_040, 0],
            response([0, 0b11, 0]),
        ),
        said(
            "optreqxch_want that calls are taken",
            REQUESTS,
            request,
            &[1, 3, 4, 2],
            response([0, 1, 0]),
        ),
        said(
            "optreqxch_want other buffers",
            REQUESTS,
            request,
            &[1, 5, 24, 8192, 1, 1, 8192, 1, 0],
            response([0, 1, 0]),
        ),
        said(
            "optreqxch_want a size of 4294967295",
            REQUESTS,
            request,
            &[1, 1, 4, u32::MAX],
            response([0, 1, 0]),
        ),
        said(
            "optreqxch_want cut off",
            REQUESTS,
            request,
            &[1, 1, 4],
            bad(),
        ),
        said(
            "optreqxch_want nothing, not even a count",
            REQUESTS,
            request,
            &[],
            bad(),
        ),
        said("optreqxch_want 65", REQUESTS, request, &[65, 0], bad()),
        said(
            "optreqxch_want and a word more",
            REQUESTS,
            request,
            &[0, 0],
            bad(),
        ),
        said(
            "optreqxch_want a bool of 7",
            REQUESTS,
            request,
            &[1, 2, 4, 7],
            bad(),
        ),
        said(
            "optreqxch_want a size of eight bytes",
            REQUESTS,
            request,
            &[1, 1, 8, 4096, 4096],
            bad(),
        ),
        said(
            "ROPT_REQXCH in a reply",
            REQUESTS,
            (REPLY, REQXCH),
            &[0],
            None,
        ),
        // Cases of responses.
        said(
            "optrespxch_done to no request",
            RESPONSES,
            answer,
            &[1, 1, 0, 0],
            None,
        ),
        said(
            "optrespxch_rej to no request",
            RESPONSES,
            answer,
            &[0, 1, 1, 0],
            None,
        ),
        said(
            "optrespxch_pend to no request",
            RESPONSES,
            answer,
            &[0, 0, 1, 1],
            None,
        ),
        said("optrespxch_done cut off", RESPONSES, answer, &[1], None),
        said(
            "ROPT_RESPXCH in a call",
            RESPONSES,
            (CALL, RESPXCH),
            &[0, 0, 0],
            bad(),
        ),
        // Cases of updates.
        said(
            "control: optupdxch_now unknown",
            UPDATES,
            update,
            &[99, 4, 9, 0],
            None,
        ),
        said(
            "optupdxch_now a size of 0",
            UPDATES,
            update,
            &[1, 4, 0, 0],
            None,
        ),
        said(
            "optupdxch_now a size of 4294967295",
            UPDATES,
            update,
            &[1, 4, u32::MAX, 0],
            None,
        ),
        said(
            "optupdxch_now a bool of 9",
            UPDATES,
            update,
            &[2, 4, 9, 0],
            bad(),
        ),
        said(
            "optupdxch_now calls of kind 9",
            UPDATES,
            (REPLY, UPDXCH),
            &[3, 4, 9, 0],
            bad(),
        ),
        said("optupdxch_now cut off", UPDATES, update, &[], bad()),
        said(
            "optupdxch_pendclr left out",
            UPDATES,
            update,
            &[1, 4, 8192],
            bad(),
        ),
        said(
            "optupdxch_pendclr of 2",
            UPDATES,
            update,
            &[1, 4, 8192, 2],
            bad(),
        ),
        said(
            "optupdxch_pendclr of nothing pending",
            UPDATES,
            update,
            &[1, 4, 8192, 1],
            None,
        ),
        // Repetitions.
        said(
            "ROPT_INITXCH again",
            INITS,
            (CALL, INITXCH),
            &v2::everything(),
            None,
        ),
        said(
            "ROPT_INITXCH again, as a reply",
            INITS,
            (REPLY, INITXCH),
            &[0, 0],
            None,
        ),
        said(
            "ROPT_INITXCH again, malformed",
            INITS,
            (CALL, INITXCH),
            &[0],
            bad(),
        ),
    ];
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
    let fields: Fields = vec![
        ("xmrbuf_length", 66_560),
        ("xmrbuf_groups", 2),
        ("xmrgrp_count", 1),
        ("xmrseg_length", 1024),
        ("xmrseg_align", 1),
        ("xmrseg_flags", 0),
        ("xmrgrp_count", 1),
        ("xmrseg_length", 65_536),
        ("xmrseg_align", 4096),
        ("xmrseg_flags", 1),
    ];
    let rows = [
        (0, 0, false),
        (0, 1, false),
        (0, u32::MAX, false),
        (1, 0, true),
        (1, 1, true),
        (1, 3, true),
        (1, u32::MAX, true),
        (2, 0, false),
        (2, 2, false),
        (2, u32::MAX, false),
        (3, 0, false),
        (3, u32::MAX, false),
        (4, 0, false),
        (4, 3, false),
        (4, u32::MAX, false),
        (5, 1, false),
        (5, u32::MAX, false),
        (6, 0, false),
        (6, u32::MAX, false),
        (7, 0, false),
        (7, u32::MAX, false),
        (8, 0, false),
        (8, u32::MAX, false),
        (9, 0, false),
        (9, u32::MAX, false),
    ];
    let case = |(at, value, bad): (usize, u32, bool)| {
        let mut changed = fields.clone();
        changed[at].1 = value;
        let len = 4 * fields.len() as u32;
        let mut info = vec![2, 4, 4, 7, 5, len];
        info.extend(values(&changed));
        info.push(0);
        init(
            format!("XCHAR_RBSTRUCT: {} ({at}) is {value}", fields[at].0),
            STRUCTURES,
            &info,
            bad,
        )
    };
    rows.map(case).into()
}
