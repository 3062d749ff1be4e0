//! ROPT_XMTREQ with each field changed (rtrext-00, sections 6, 7 and 9.2): items of the call,
//! placed or to be read, and the destinations of items of the reply.

use rpcrdma_conform::fields::Word;

use super::*;
use crate::cases::vary::{Limits, called, changes, with_word, words_of};
use crate::cases::{memory, segment_words as words};
use crate::client::{Case, case};
use crate::rig::content;
use crate::wire::rpc;
use crate::wire::v1::Segment;
use crate::wire::v2::{HEAD, OPERATION, REPLY, XMTREQ, XMTRESP};

const SECTION: &str = "rtrext-00, 9.2";
const DIRECTIONS: &str = "rtrext-00, 7.4";

/// The number of data bytes of a WRITE and of a READ.
const LEN: u32 = 4096;
/// The file offset of WRITEs; `READ`: that of READs. Other cases use the same file.
const WRITTEN: u64 = 1 << 20;
const READ: u64 = 4096;
/// The server's maximum message length (`rig::SERVER`), and the space of its buffers for bulk data.
const MOST: u32 = 256 << 10;
const TARGET: u32 = 65_536;

/// `accept_stat` GARBAGE_ARGS (RFC 5531, section 9).
const GARBAGE_ARGS: u32 = 4;
/// OPTXERR_BADPL, BADTBSN and BADOFF: a value, and the valid range.
const BADSEQ: u32 = 4;
const BADOFF: u32 = 6;
const BADTBSN: u32 = 7;
const BADPL: u32 = 8;

/// A request: the words of ROPT_XMTREQ, the payload, and data behind it.
#[derive(Clone)]
struct Request {
    /// The request, in words.
    name: &'static str,
    info: Vec<u32>,
    payload: Vec<u8>,
    data: Vec<u8>,
}

/// The result of a request.
#[derive(Clone)]
enum Said {
    /// RDMA2_ERR_BAD_HEADER.
    Bad,
    /// ROPT_XMTERR with this code and these words.
    Report(u32, Vec<u32>),
    /// A reply with GARBAGE_ARGS: the message is whole, and what is in it is not.
    Garbage,
    /// The reply.
    Good,
}

use self::Said::{Bad, Garbage, Good, Report};

fn range(code: u32, value: u32, min: u32, max: u32) -> Said {
    Report(code, vec![value, min, max])
}

impl Request {
    /// Encodes the message, with data in its segment.
    fn message(&self) -> Vec<u8> {
        let mut message = v2::operation(XID, CALL, XMTREQ, &self.info, &self.payload);
        if !self.data.is_empty() {
            message.resize(HEAD, 0);
            message.extend(&self.data);
        }
        message
    }

    /// Returns the number of bytes behind the header.
    fn room(&self) -> u32 {
        (self.message().len() - OPERATION - 4 * self.info.len()) as u32
    }

    fn words(&self) -> Vec<Word<'static>> {
        words_of("optxmt_req", &self.info)
    }

    /// Returns the value of a field.
    fn value(&self, field: &str) -> u32 {
        called(&self.words(), field).value
    }

    /// Returns the request with another value in a field.
    fn set(&self, field: &str, value: u32) -> Self {
        let info = with_word(&self.info, called(&self.words(), field), value);
        Self {
            info,
            ..self.clone()
        }
    }

    fn saying(&self, name: String, said: &Said, good: &[Step]) -> Case {
        let mut script = vec![Send(self.message())];
        match said {
            Bad => script.push(HearWords(v2::bad_header(XID), false)),
            Report(code, words) => {
                let info = [&[XID, CALL, 0, 0, *code], &words[..]].concat();
                script.push(HearWords(v2::report(XID, CALL, &info), false));
            }
            Garbage => {
                let mut reply = v2::success(XID, &[]);
                if let Some(status) = reply.last_mut() {
                    *status = GARBAGE_ARGS;
                }
                script.push(HearWords(reply, false));
            }
            Good => script.extend(good.iter().cloned()),
        }
        case(name, SECTION, on_second(script), Lives).costing(RECEIVES)
    }

    /// Returns the case of the correct request.
    fn control(&self, good: &[Step]) -> Case {
        self.saying(format!("control: {}", self.name), &Good, good)
    }

    /// Returns a case in which one field has another value.
    fn with(&self, field: &str, value: u32, said: &Said, good: &[Step]) -> Case {
        self.changed(called(&self.words(), field), value, said, good)
    }

    fn changed(&self, word: &Word<'_>, value: u32, said: &Said, good: &[Step]) -> Case {
        let changed = Self {
            info: with_word(&self.info, word, value),
            ..self.clone()
        };
        let name = format!("{}: {} is {value}", self.name, word.place);
        changed.saying(name, said, good)
    }

    /// Returns the cases in which one field has each value that is tried in its place. `said` tells what comes of it, by
    /// the field's name without what is around it; if nothing, other cases have the field.
    fn varied(
        &self,
        limits: Limits<'_>,
        good: &[Step],
        said: impl Fn(&str, u32) -> Option<Said>,
    ) -> Vec<Case> {
        let words = self.words();
        let case = |(word, value): (&Word<'_>, u32)| {
            let said = said(word.field(), value)?;
            Some(self.changed(word, value, &said, good))
        };
        changes(&words, limits)
            .into_iter()
            .filter_map(case)
            .collect()
    }
}

fn nfs(procedure: u32, args: Vec<u8>) -> Vec<u8> {
    let mut call = rpc::nfs(XID, procedure, args);
    call.credential = rpc::root();
    call.bytes()
}

/// Returns the steps that expect the results of a call in an RDMA2_MSG.
fn answered() -> Vec<Step> {
    vec![HearWords(v2::success(XID, &[0]), true)]
}

/// Expects ROPT_XMTRESP with these items in one transmission, and a payload of this length.
fn transmitted(items: &[u32], payload: u32) -> Vec<Step> {
    let len = 4 * (items.len() as u32 + 2);
    let header = [XID, v2::VERSION, 0, v2::OPTIONAL, REPLY, XMTRESP, len];
    let rest = [1, payload, XID, 1, 0, 0, 0, 0, 0];
    vec![HearWords([&header[..], items, &rest].concat(), true)]
}

pub(in crate::cases) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = placed(file);
    cases.extend(fetched(file));
    cases.extend(directions(file));
    cases.extend(forms(file));
    cases
}

/// Returns a WRITE with an item in this place.
fn write(name: &'static str, file: &[u8], place: &[u32]) -> Request {
    let payload = nfs(7, rpc::write_args(file, WRITTEN, LEN));
    let len = payload.len() as u32;
    Request {
        name,
        info: [&[1, len, LEN][..], place, &[0, 1, 0, len]].concat(),
        payload,
        data: Vec::new(),
    }
}

fn write_placed(file: &[u8]) -> Request {
    Request {
        data: content(3, LEN as usize),
        ..write("WRITE with placed data", file, &[2, 0, 1, 0])
    }
}

fn placed(file: &[u8]) -> Vec<Case> {
    let request = write_placed(file);
    let (end, room) = (request.payload.len() as u32, request.room());
    let missing = || range(BADTBSN, 0, 0, 0);
    let limits: Limits<'_> = &[
        ("optxrq_ddp", &[17]),
        ("xmdmi_disp", &[4]),
        ("xmdmi_length", &[TARGET, TARGET + 1, MOST]),
        ("xmdl_offset", &[2, TARGET]),
        ("xmdl_bsnum", &[1025]),
        ("optxrq_rsd", &[17]),
        ("optxrq_count", &[GRANT + 1]),
        ("optxrq_pslen", &[room, room + 4]),
    ];
    let said = |field: &str, value: u32| {
        Some(match field {
            "xmdmi_disp" if value == end - 4 => Garbage,
            "xmdmi_disp" => range(BADOFF, value, 8, end),
            "xmdmi_length" => match value {
                0 => range(BADTBSN, 1, 0, 0),
                1..LEN => Garbage,
                LEN..=TARGET => missing(),
                MOST.. => range(BADPL, value.saturating_add(end), 0, MOST),
                _ => range(BADTBSN, 1, 2, 1024),
            },
            "xmdl_offset" if value == 4 => missing(),
            "xmdl_offset" => range(BADOFF, value, 0, TARGET - 1),
            "xmdl_bsnum[0]" => range(BADTBSN, value, 0, 0),
            "optxrq_count" => match value {
                0 => Report(BADSEQ, vec![1, 0]),
                // Others follow.
                1..=GRANT => return None,
                _ => Report(BADSEQ, vec![GRANT, value]),
            },
            "optxrq_rsbuf" => Good,
            "optxrq_pslen" if value == room => missing(),
            // What is behind the arguments is not looked at.
            "optxrq_pslen" if value == end + 4 => Good,
            "optxrq_pslen" if value == 0 || value == end - 4 => range(BADOFF, end, 8, value),
            "optxrq_pslen" => range(BADPL, value, 0, room),
            _ => Bad,
        })
    };
    let good = answered();
    let mut cases = vec![request.control(&good)];
    cases.extend(request.varied(limits, &good, said));
    cases
}

/// Returns the cases of a WRITE whose data the server reads (EXRW).
fn fetched(file: &[u8]) -> Vec<Case> {
    let source = memory(0, LEN);
    let place = [&[1, 1][..], &words(source)].concat();
    let request = write("WRITE with data to be read", file, &place);
    let data = content(4, LEN as usize);
    let serve = |segment| {
        let mut steps = vec![Serve(segment, data.clone())];
        steps.extend(answered());
        steps
    };
    let good = serve(source);
    let other = serve(Segment {
        handle: source.handle + 1,
        ..source
    });
    let elsewhere = serve(Segment {
        offset: source.offset + 4,
        ..source
    });
    let mut cases = vec![request.control(&good)];
    let limits: Limits<'_> = &[("xmdl_ex", &[513])];
    cases.extend(request.varied(limits, &good, |field, value| match field {
        // The memory has the round-up, as that of a read chunk may (rtrext-00, 7.3).
        "xmdmi_length" if value == LEN - 1 => Some(Good),
        "xmdmi_length" | "xmdl_type" | "xmdl_ex" | "rdma_length" => Some(Bad),
        _ => None,
    }));
    cases.push(request.with("rdma_handle", source.handle + 1, &Good, &other));
    cases.push(request.with("rdma_offset", source.offset as u32 + 4, &Good, &elsewhere));
    let wraps = request.set("rdma_offset.upper", u32::MAX);
    cases.push(wraps.with("rdma_offset", u32::MAX - 4, &Bad, &[]));
    cases
}

/// The bytes of READ results before the data and after it.
const HEADER: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// Returns a READ whose data may be placed as this direction says.
fn read(name: &'static str, file: &[u8], direction: &[u32]) -> Request {
    let payload = nfs(6, rpc::read_args(file, READ, LEN));
    let len = payload.len() as u32;
    Request {
        name,
        info: [&[0, 1, 0, len, 1, 0][..], direction, &[1, 0, len]].concat(),
        payload,
        data: Vec::new(),
    }
}

fn directions(file: &[u8]) -> Vec<Case> {
    // `LEN` bytes at the position of an item: in segment 0, or written.
    let placed = || transmitted(&[1, HEADER, LEN, 2, 0, 1, 0], HEADER);
    let sink = memory(0, LEN);
    let written = || {
        let item = [&[1, HEADER, LEN, 1, 1][..], &words(sink)].concat();
        let mut steps = transmitted(&item, HEADER);
        steps.push(PlacedLength(sink.handle, sink.offset, LEN as usize));
        steps
    };
    let plain = read("READ with a direction", file, &[2]);
    let end = plain.value("xmdrsdr_end");
    let limits: Limits<'_> = &[
        ("optxrq_rsd", &[17]),
        ("xmdrsdr_begin", &[end]),
        ("xmdrsds_items", &[17]),
        ("xmdrsdi_minlen", &[LEN]),
    ];
    let mut cases = vec![plain.control(&placed())];
    cases.extend(plain.varied(limits, &placed(), |field, value| match field {
        "optxrq_rsd" | "xmdrsds_items" | "xmdrsdl_type" => Some(Bad),
        "xmdrsdr_begin" if value >= end => Some(Bad),
        "xmdrsdr_end" if value == 0 => Some(Bad),
        "xmdrsdr_end" if value == u32::MAX => Some(Good),
        "xmdrsdi_minlen" if value <= LEN => Some(Good),
        "optxrq_rsbuf" => Some(Good),
        _ => None,
    }));
    // An item shorter than the minimum length of its direction stays in the payload: XMDTYPE_TOOSHORT.
    let short = transmitted(&[1, HEADER, LEN, 5], HEADER + LEN);
    for least in [LEN + 1, u32::MAX] {
        cases.push(plain.with("xmdrsdi_minlen", least, &Good, &short));
    }
    let kinds = [
        (1, "READ with memory for its data", written()),
        (3, "READ with a choice", placed()),
    ];
    for (kind, name, good) in kinds {
        let request = read(name, file, &[&[kind, 1][..], &words(sink)].concat());
        let limits: Limits<'_> = &[("xmdrsdl_ex", &[513])];
        cases.push(request.control(&good));
        cases.extend(request.varied(limits, &[], |field, _| {
            (field == "xmdrsdl_ex").then_some(Bad)
        }));
        let wraps = request.set("rdma_offset.upper", u32::MAX);
        let wraps = wraps.set("rdma_length", u32::MAX);
        cases.push(wraps.with("rdma_offset", u32::MAX - 1, &Bad, &[]));
    }
    let direction = [&[4, LEN, 1][..], &words(sink)].concat();
    let request = read("READ with a choice by size", file, &direction);
    cases.extend(request.varied(&[], &[], |field, _| {
        (field == "xmdrsdl_bsex").then_some(Bad)
    }));
    cases.push(request.control(&placed()));
    cases.push(request.with("xmdrsdl_dsdov", u32::MAX, &Good, &placed()));
    for over in [LEN - 1, 0] {
        cases.push(request.with("xmdrsdl_dsdov", over, &Good, &written()));
    }
    cases.extend(outcomes(file, &plain, sink));
    cases
}

/// Returns the cases of directions that were not used: XMDTYPE_TOOSHORT and XMDTYPE_NOITEM.
fn outcomes(file: &[u8], plain: &Request, sink: Segment) -> Vec<Case> {
    /// More bytes than one transmission carries.
    const LONG: u32 = 96 << 10;
    let script = |steps| on_second(steps);
    let all = |name: &str, steps| case(name, DIRECTIONS, script(steps), Lives).costing(RECEIVES);
    // GETATTR has no item, so the direction has no effect.
    let mut none = plain.clone();
    none.payload = nfs(1, crate::wire::Xdr::new().opaque(file).done());
    let len = none.payload.len() as u32;
    let none = none.set("xmdrsdr_end", len).set("optxrq_pslen", len);
    let mut steps = vec![Send(none.message())];
    steps.extend(answered());
    let mut cases = vec![all("a direction and no item", steps)];
    // Two directions, of which the second has memory that is not written to, and one item.
    let mut two = plain.set("xmdrsds_items", 2);
    let second = [&[0, 1, 1][..], &words(sink)].concat();
    two.info.splice(7..7, second);
    let mut steps = vec![Send(two.message())];
    steps.extend(transmitted(&[2, HEADER, LEN, 2, 0, 1, 0, 0, 0, 6], HEADER));
    steps.push(PlacedLength(sink.handle, sink.offset, 0));
    cases.push(all("xmdl_type: XMDTYPE_NOITEM", steps));
    // An item that must stay in the stream, in a reply that takes two transmissions.
    let mut long = plain.set("xmdrsdi_minlen", u32::MAX).set("optxrq_rsbuf", 3);
    long.payload = nfs(6, rpc::read_args(file, 0, LONG));
    let extend = Request {
        payload: nfs(7, rpc::write_args(file, WRITTEN, LEN)),
        ..write_placed(file)
    };
    let mut steps = vec![Send(extend.message())];
    steps.extend(answered());
    steps.push(Send(long.message()));
    let info = [1, HEADER, LONG, 5, 2];
    let header = [XID, v2::VERSION, 0, v2::OPTIONAL, REPLY, XMTRESP, 24];
    steps.push(HearWords([&header[..], &info].concat(), true));
    steps.push(HearOperation(v2::XMTCONT));
    cases.push(all("xmdl_type: XMDTYPE_TOOSHORT", steps));
    cases
}

/// Returns the cases of requests whose form is invalid as a whole.
fn forms(file: &[u8]) -> Vec<Case> {
    let request = write_placed(file);
    let (whole, info) = (request.message(), request.info.clone());
    let rest = whole[OPERATION + 4 * info.len()..].to_vec();
    let again = |info: &[u32]| v2::operation(XID, CALL, XMTREQ, info, &rest);
    let less = &info[..info.len() - 1];
    let more = [&info[..], &[0]].concat();
    let short = |len: usize| v2::operation(XID, CALL, XMTREQ, &info, &rest[..len]);
    let end = request.payload.len();
    let report = |code: u32, words: &[u32]| {
        v2::report(XID, CALL, &[&[XID, CALL, 0, 0, code], words].concat())
    };
    let mut other = whole.clone();
    other[OPERATION + 4 * info.len() + 3] ^= 1;
    let mut reply = whole.clone();
    reply[OPERATION + 4 * info.len() + 7] = 1;
    vec![
        bad_header(
            "ROPT_XMTREQ of nothing",
            SECTION,
            v2::operation(XID, CALL, XMTREQ, &[], &[]),
        ),
        bad_header("ROPT_XMTREQ with a word less", SECTION, again(less)),
        bad_header("ROPT_XMTREQ with a word more", SECTION, again(&more)),
        bad_header("ROPT_XMTREQ in a reply", SECTION, {
            v2::operation(XID, REPLY, XMTREQ, &info, &rest)
        }),
        discarded(
            "ROPT_XMTRESP to a server that has called nobody",
            "rtrext-00, 9.3",
            v2::operation(
                XID,
                REPLY,
                XMTRESP,
                &[0, 1, 24],
                &rpc::accepted(XID, 0, &[]),
            ),
        ),
        discarded(
            "ROPT_XMTRESP in a call",
            "rtrext-00, 9.3",
            v2::operation(XID, CALL, XMTRESP, &[0, 1, 0], &[]),
        ),
        discarded(
            "ROPT_XMTRESP of nothing",
            "rtrext-00, 9.3",
            v2::operation(XID, REPLY, XMTRESP, &[], &[]),
        ),
        bad_header("ROPT_XMTREQ with another XID inside", SECTION, other),
        bad_header("ROPT_XMTREQ with a reply inside", SECTION, reply),
        row("ROPT_XMTREQ alone", SECTION, vec![short(0)], {
            vec![report(BADPL, &[end as u32, 0, 0])]
        }),
        row("ROPT_XMTREQ without its data", SECTION, vec![short(end)], {
            vec![report(BADTBSN, &[0, 0, 0])]
        }),
        row(
            "ROPT_XMTREQ without the last byte of its data",
            SECTION,
            vec![whole[..whole.len() - 1].to_vec()],
            vec![report(BADTBSN, &[0, 0, 0])],
        ),
    ]
}
