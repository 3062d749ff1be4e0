//! ROPT_XMTREQ with each field changed (rtrext-00, sections 6, 7 and 9.2): items of the call,
//! placed or to be read, and the destinations of items of the reply.

use super::*;
use crate::cases::memory;
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

/// OPTXERR_BADPL, BADTBSN and BADOFF: a value, and the valid range.
const BADSEQ: u32 = 4;
const BADOFF: u32 = 6;
const BADTBSN: u32 = 7;
const BADPL: u32 = 8;

/// A request with its named words, and the payload.
#[derive(Clone)]
struct Request {
    fields: Fields,
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
    /// The reply.
    Good,
}

use self::Said::{Bad, Good, Report};

fn range(code: u32, value: u32, min: u32, max: u32) -> Said {
    Report(code, vec![value, min, max])
}

impl Request {
    /// Encodes the message, with data in its segment.
    fn message(&self) -> Vec<u8> {
        let mut message = v2::operation(XID, CALL, XMTREQ, &values(&self.fields), &self.payload);
        if !self.data.is_empty() {
            message.resize(HEAD, 0);
            message.extend(&self.data);
        }
        message
    }

    /// Returns the number of bytes behind the header.
    fn room(&self) -> u32 {
        (self.message().len() - OPERATION - 4 * self.fields.len()) as u32
    }

    /// Returns a case in which one field has another value.
    fn with(&self, at: usize, value: u32, said: &Said, good: &[Step]) -> Case {
        let mut changed = self.clone();
        changed.fields[at].1 = value;
        let (field, _) = self.fields[at];
        let mut script = vec![Send(changed.message())];
        match said {
            Bad => script.push(HearWords(v2::bad_header(XID), false)),
            Report(code, words) => {
                let info = [&[XID, CALL, 0, 0, *code], &words[..]].concat();
                script.push(HearWords(v2::report(XID, CALL, &info), false));
            }
            Good => script.extend(good.iter().cloned()),
        }
        let name = format!("{field} ({at}) is {value}");
        case(name, SECTION, on_second(script), Lives).costing(RECEIVES)
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

/// Returns a WRITE with its data placed.
fn write(file: &[u8], item: &[(&'static str, u32)]) -> Request {
    let payload = nfs(7, rpc::write_args(file, WRITTEN, LEN));
    let mut fields = vec![("optxrq_ddp", 1), ("xmdmi_disp", payload.len() as u32)];
    fields.push(("xmdmi_length", LEN));
    fields.extend(item);
    fields.extend([("optxrq_rsd", 0), ("optxrq_count", 1), ("optxrq_rsbuf", 0)]);
    fields.push(("optxrq_pslen", payload.len() as u32));
    Request {
        fields,
        payload,
        data: Vec::new(),
    }
}

fn write_placed(file: &[u8]) -> Request {
    let item = [
        ("xmdl_type", 2),
        ("xmdl_offset", 0),
        ("xmdl_bsnum", 1),
        ("xmdl_bsnum", 0),
    ];
    Request {
        data: content(3, LEN as usize),
        ..write(file, &item)
    }
}

fn placed(file: &[u8]) -> Vec<Case> {
    let request = write_placed(file);
    let (end, room) = (request.payload.len() as u32, request.room());
    let offset = |value| range(BADOFF, value, 8, end);
    let missing = || range(BADTBSN, 0, 0, 0);
    let sequence = |expected, found| Report(BADSEQ, vec![expected, found]);
    let rows = [
        (0, 1, Good),
        (0, 0, Bad),
        (0, 2, Bad),
        (0, 17, Bad),
        (0, u32::MAX, Bad),
        (1, 4, offset(4)),
        (1, end + 1, offset(end + 1)),
        (1, end + 4, offset(end + 4)),
        (1, u32::MAX, offset(u32::MAX)),
        (2, 0, range(BADTBSN, 1, 0, 0)),
        (2, LEN + 1, missing()),
        (2, TARGET, missing()),
        (2, TARGET + 1, range(BADTBSN, 1, 2, 1024)),
        (2, MOST, range(BADPL, MOST + end, 0, MOST)),
        (2, u32::MAX, range(BADPL, u32::MAX, 0, MOST)),
        (3, 0, Bad),
        (3, 1, Bad),
        (3, 3, Bad),
        (3, 4, Bad),
        (3, 5, Bad),
        (3, 6, Bad),
        (3, 7, Bad),
        (3, u32::MAX, Bad),
        (4, 2, range(BADOFF, 2, 0, TARGET - 1)),
        (4, 4, missing()),
        (4, TARGET, range(BADOFF, TARGET, 0, TARGET - 1)),
        (4, u32::MAX, range(BADOFF, u32::MAX, 0, TARGET - 1)),
        (5, 0, Bad),
        (5, 2, Bad),
        (5, 1025, Bad),
        (5, u32::MAX, Bad),
        (6, 1, range(BADTBSN, 1, 0, 0)),
        (6, u32::MAX, range(BADTBSN, u32::MAX, 0, 0)),
        (7, 1, Bad),
        (7, 17, Bad),
        (7, u32::MAX, Bad),
        (8, 0, sequence(1, 0)),
        (8, GRANT + 1, sequence(GRANT, GRANT + 1)),
        (8, u32::MAX, sequence(GRANT, u32::MAX)),
        (9, u32::MAX, Good),
        (10, 0, range(BADOFF, end, 8, 0)),
        (10, end - 1, range(BADPL, end - 1, 0, room)),
        (10, room, missing()),
        (10, room + 4, range(BADPL, room + 4, 0, room)),
        (10, u32::MAX, range(BADPL, u32::MAX, 0, room)),
    ];
    let good = answered();
    rows.iter()
        .map(|(at, value, said)| request.with(*at, *value, said, &good))
        .collect()
}

fn offered(memory: Segment) -> [(&'static str, u32); 4] {
    [
        ("rdma_handle", memory.handle),
        ("rdma_length", memory.length),
        ("rdma_offset", (memory.offset >> 32) as u32),
        ("rdma_offset", memory.offset as u32),
    ]
}

/// Returns the cases of a WRITE whose data the server reads (EXRW).
fn fetched(file: &[u8]) -> Vec<Case> {
    let source = memory(0, LEN);
    let item = [("xmdl_type", 1), ("xmdl_ex", 1)];
    let request = write(file, &[&item[..], &offered(source)].concat());
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
    let rows = [
        (3, 1, Good),
        (3, 2, Bad),
        (4, 0, Bad),
        (4, 2, Bad),
        (4, 513, Bad),
        (4, u32::MAX, Bad),
        (6, 0, Bad),
        (6, LEN - 4, Bad),
        (6, LEN + 4, Bad),
        (6, u32::MAX, Bad),
        (2, LEN - 4, Bad),
        (2, u32::MAX, Bad),
    ];
    let rows = rows.iter();
    let mut cases: Vec<Case> = rows
        .map(|(at, value, said)| request.with(*at, *value, said, &good))
        .collect();
    cases.push(request.with(5, source.handle + 1, &Good, &other));
    cases.push(request.with(8, source.offset as u32 + 4, &Good, &elsewhere));
    let mut wraps = request.clone();
    (wraps.fields[7].1, wraps.fields[8].1) = (u32::MAX, 0);
    cases.push(wraps.with(8, u32::MAX - 4, &Bad, &[]));
    cases
}

/// The bytes of READ results before the data and after it.
const HEADER: u32 = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// Returns a READ whose data may be placed as this direction says.
fn read(file: &[u8], item: &[(&'static str, u32)]) -> Request {
    let payload = nfs(6, rpc::read_args(file, READ, LEN));
    let mut fields = vec![
        ("optxrq_ddp", 0),
        ("optxrq_rsd", 1),
        ("xmdrsdr_begin", 0),
        ("xmdrsdr_end", payload.len() as u32),
        ("xmdrsds_items", 1),
        ("xmdrsdi_minlen", 0),
    ];
    fields.extend(item);
    fields.extend([("optxrq_count", 1), ("optxrq_rsbuf", 0)]);
    fields.push(("optxrq_pslen", payload.len() as u32));
    Request {
        fields,
        payload,
        data: Vec::new(),
    }
}

fn directions(file: &[u8]) -> Vec<Case> {
    // `LEN` bytes at the position of an item: in segment 0, or written.
    let placed = || transmitted(&[1, HEADER, LEN, 2, 0, 1, 0], HEADER);
    let sink = memory(0, LEN);
    let words = [
        sink.handle,
        LEN,
        (sink.offset >> 32) as u32,
        sink.offset as u32,
    ];
    let written = || {
        let item = [&[1, HEADER, LEN, 1, 1][..], &words].concat();
        let mut steps = transmitted(&item, HEADER);
        steps.push(PlacedLength(sink.handle, sink.offset, LEN as usize));
        steps
    };
    let rows = |request: &Request, good: &[Step], rows: &[(usize, u32, Said)]| {
        let row = |(at, value, said): &(usize, u32, Said)| request.with(*at, *value, said, good);
        rows.iter().map(row).collect::<Vec<Case>>()
    };
    let plain = read(file, &[("xmdrsdl_type", 2)]);
    let mut cases = rows(
        &plain,
        &placed(),
        &[
            (6, 2, Good),
            (1, 0, Bad),
            (1, 2, Bad),
            (1, 17, Bad),
            (1, u32::MAX, Bad),
            (2, plain.fields[3].1, Bad),
            (2, u32::MAX, Bad),
            (3, 0, Bad),
            (3, u32::MAX, Good),
            (4, 0, Bad),
            (4, 2, Bad),
            (4, 17, Bad),
            (4, u32::MAX, Bad),
            (5, LEN, Good),
            (6, 0, Bad),
            (6, 1, Bad),
            (6, 3, Bad),
            (6, 4, Bad),
            (6, 5, Bad),
            (6, 6, Bad),
            (6, u32::MAX, Bad),
            (8, u32::MAX, Good),
        ],
    );
    // An item shorter than the minimum length of its direction stays in the payload: XMDTYPE_TOOSHORT.
    let short = transmitted(&[1, HEADER, LEN, 5], HEADER + LEN);
    for least in [LEN + 1, u32::MAX] {
        cases.push(plain.with(5, least, &Good, &short));
    }
    for (kind, label) in [(1, "xmdrsdl_ex"), (3, "xmdrsdl_chex")] {
        let item = [("xmdrsdl_type", kind), (label, 1)];
        let request = read(file, &[&item[..], &offered(sink)].concat());
        let good = if kind == 1 { written() } else { placed() };
        cases.extend(rows(
            &request,
            &good,
            &[
                (7, 1, Good),
                (7, 0, Bad),
                (7, 2, Bad),
                (7, 513, Bad),
                (7, u32::MAX, Bad),
            ],
        ));
        let mut wraps = request.clone();
        (wraps.fields[10].1, wraps.fields[9].1) = (u32::MAX, u32::MAX);
        cases.push(wraps.with(11, u32::MAX - 1, &Bad, &[]));
    }
    let item = [
        ("xmdrsdl_type", 4),
        ("xmdrsdl_dsdov", LEN),
        ("xmdrsdl_bsex", 1),
    ];
    let request = read(file, &[&item[..], &offered(sink)].concat());
    cases.extend(rows(
        &request,
        &placed(),
        &[
            (7, u32::MAX, Good),
            (8, 0, Bad),
            (8, 2, Bad),
            (8, u32::MAX, Bad),
        ],
    ));
    cases.push(request.with(7, LEN, &Good, &placed()));
    cases.push(request.with(7, LEN - 1, &Good, &written()));
    cases.push(request.with(7, 0, &Good, &written()));
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
    let last = none.fields.len() - 1;
    (none.fields[3].1, none.fields[last].1) = {
        let len = none.payload.len() as u32;
        (len, len)
    };
    let mut steps = vec![Send(none.message())];
    steps.extend(answered());
    let mut cases = vec![all("a direction and no item", steps)];
    // Two directions, of which the second has memory that is not written to, and one item.
    let mut two = plain.clone();
    two.fields[4].1 = 2;
    let second = [
        ("xmdrsdi_minlen", 0),
        ("xmdrsdl_type", 1),
        ("xmdrsdl_ex", 1),
    ];
    let second = [&second[..], &offered(sink)].concat();
    two.fields.splice(7..7, second);
    let mut steps = vec![Send(two.message())];
    steps.extend(transmitted(&[2, HEADER, LEN, 2, 0, 1, 0, 0, 0, 6], HEADER));
    steps.push(PlacedLength(sink.handle, sink.offset, 0));
    cases.push(all("xmdl_type: XMDTYPE_NOITEM", steps));
    // An item that must stay in the stream, in a reply that takes two transmissions.
    let mut long = plain.clone();
    long.payload = nfs(6, rpc::read_args(file, 0, LONG));
    (long.fields[5].1, long.fields[8].1) = (u32::MAX, 3);
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
    let (whole, info) = (request.message(), values(&request.fields));
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
