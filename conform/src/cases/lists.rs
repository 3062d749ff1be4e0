//! Invalid chunk lists (RFC 8166, sections 3.4, 4.2.4 and 4.5).

use super::{FIRST_ERR_CHUNK, expect, on};
use crate::case::{Case, Ground, Level, Step, case, memory};
use crate::expect::{Expect, refused, success};
use crate::wire::rpc;
use crate::wire::v1::{self, Header, MSG, NOMSG, Segment, segment};

/// The position of the arguments of a call without credentials, which is the end of NULL.
const END: u32 = rpc::CALL_HEADER;
/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;

const REFUSAL: &str = "RDMA_ERROR with ERR_CHUNK, no RDMA Read, and the next call is answered";
const NOT_DECODED: &str = "GARBAGE_ARGS or ERR_CHUNK, no RDMA Read, and the next call is answered";
const NOT_DECODED_IF_READ: &str = "GARBAGE_ARGS or ERR_CHUNK, and the next call is answered";
const UNREADABLE: &str = "ERR_CHUNK, or the end of the connection, before or after an RDMA Read";
const UNREADABLE_OR_NOT_DECODED: &str =
    "ERR_CHUNK or GARBAGE_ARGS, or the end of the connection, before or after an RDMA Read";
const UNUSED: &str = "ERR_CHUNK, or a reply with the chunks unused, and the next call is answered";

/// Makes the rows of one ground.
struct Rows<'a>(&'a Ground);

impl Rows<'_> {
    fn err_chunk(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        header: impl FnOnce(Header) -> Header,
        payload: bool,
    ) -> Case {
        let xid = self.0.xid();
        let null = rpc::null(xid).bytes();
        let payload: &[u8] = if payload { &null } else { &[] };
        let message = header(v1::header(xid)).with(payload);
        let steps = vec![Step::Send(message), expect(Expect::ErrChunk(xid))];
        case(section, number, sends, REFUSAL, on(steps)).needs(FIRST_ERR_CHUNK)
    }

    /// Returns a case with a NULL call with this Read list.
    fn reads(&self, number: u32, sends: &str, list: &[(u32, Segment)]) -> Case {
        let reads = list.to_vec();
        self.err_chunk(
            "RFC 8166, 3.4.5",
            number,
            sends,
            |it| Header { reads, ..it },
            true,
        )
    }

    /// Returns a case with a long call with this Read list.
    fn long(&self, number: u32, sends: &str, list: &[(u32, Segment)], payload: bool) -> Case {
        let change = |it| Header {
            procedure: NOMSG,
            reads: list.to_vec(),
            ..it
        };
        self.err_chunk("RFC 8166, 4.2.4", number, sends, change, payload)
    }

    /// Returns a case with a Read list that fits the header but not the call.
    fn garbage(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        reads: Vec<(u32, Segment)>,
    ) -> Case {
        let allowed = |xid| vec![not_decoded(xid), Expect::ErrChunk(xid)];
        let case = self.mismatch(section, number, sends, reads, allowed);
        case.level(Level::Should)
    }

    /// Returns a case like [`Self::garbage`] whose chunks are there: no section forbids to read them before the
    /// arguments are decoded, so that the answer alone matters.
    fn readable_garbage(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        reads: Vec<(u32, Segment)>,
    ) -> Case {
        let offers = reads.iter().map(|(_, segment)| Step::OfferAny(*segment));
        let offers: Vec<Step> = offers.collect();
        let mut case = self.garbage(section, number, sends, reads);
        // Behind the connection.
        case.script.splice(1..1, offers);
        Case {
            expects: NOT_DECODED_IF_READ.into(),
            ..case
        }
    }

    fn mismatch(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        reads: Vec<(u32, Segment)>,
        allowed: impl FnOnce(u32) -> Vec<Expect>,
    ) -> Case {
        let xid = self.0.xid();
        let header = Header {
            reads,
            ..v1::header(xid)
        };
        let steps = vec![
            Step::Send(header.with(&rpc::null(xid).bytes())),
            Step::Expect(allowed(xid)),
        ];
        case(section, number, sends, NOT_DECODED, on(steps))
    }

    /// Returns a case with a Read list that can be parsed, and fits no RPC message: ERR_CHUNK and GARBAGE_ARGS are both
    /// accepted, as no section names the error.
    fn unfit(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        reads: &[(u32, Segment)],
    ) -> Case {
        let allowed = |xid| vec![Expect::ErrChunk(xid), not_decoded(xid)];
        let case = self.mismatch(section, number, sends, reads.to_vec(), allowed);
        case.level(Level::Robustness).needs(FIRST_ERR_CHUNK)
    }

    /// Returns a case with more than any call can be in a Read list: a responder need not pull that, and can end the
    /// call with RDMA_ERROR (section 8.1.4).
    fn unreasonable(&self, number: u32, sends: &str, reads: &[(u32, Segment)]) -> Case {
        self.unfit("RFC 8166, 8.1.4", number, sends, reads)
    }

    /// Returns a case with a Read segment that passes the address space. Responders usually find out by an RDMA Read
    /// that a chunk is invalid, and that is fatal to the connection (section 4.5.3).
    fn unreadable(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        (procedure, position): (u32, u32),
    ) -> Case {
        let xid = self.0.xid();
        let header = Header {
            procedure,
            reads: vec![(position, wrapping())],
            ..v1::header(xid)
        };
        let mut allowed = vec![Expect::ErrChunk(xid), Expect::Closed];
        let (payload, expects) = match procedure {
            NOMSG => (Vec::new(), UNREADABLE),
            _ => {
                // The chunk does not fit the payload either.
                allowed.push(not_decoded(xid));
                (rpc::null(xid).bytes(), UNREADABLE_OR_NOT_DECODED)
            }
        };
        let steps = vec![
            Step::Unreadable(wrapping().handle),
            Step::Send(header.with(&payload)),
            Step::Expect(allowed),
        ];
        let case = case(section, number, sends, expects, on(steps));
        case.level(Level::Robustness)
            .may_close()
            .needs(FIRST_ERR_CHUNK)
    }

    /// Returns a case with a NULL call that offers memory that there cannot be. As the reply uses none of it, a
    /// server may look at it or not (sections 4.3.2.2 and 4.3.3).
    fn unusable(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        writes: &[&[Segment]],
        reply: Option<&[Segment]>,
    ) -> Case {
        let xid = self.0.xid();
        let list = |chunk: &&[Segment]| chunk.to_vec();
        let header = Header {
            writes: writes.iter().map(list).collect(),
            reply: reply.map(<[Segment]>::to_vec),
            ..v1::header(xid)
        };
        let unused = |chunk: &[Segment]| -> Vec<Segment> {
            let empty = chunk.iter().map(|it| Segment { length: 0, ..*it });
            empty.collect()
        };
        let returned: Vec<Vec<Segment>> = writes.iter().map(|it| unused(it)).collect();
        let returned: Vec<&[Segment]> = returned.iter().map(Vec::as_slice).collect();
        let mut answer = success(xid, &[]).returning(&returned);
        if let Some(chunk) = reply {
            answer = answer.with_chunk(&unused(chunk));
        }
        let steps = vec![
            Step::Send(header.with(&rpc::null(xid).bytes())),
            Step::Expect(vec![Expect::ErrChunk(xid), Expect::Reply(answer)]),
        ];
        let case = case(section, number, sends, UNUSED, on(steps));
        case.level(Level::Robustness).needs(FIRST_ERR_CHUNK)
    }
}

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    let rows = Rows(ground);
    [
        read_lists(&rows),
        other_lists(&rows),
        long_calls(&rows),
        beside_arguments(&rows),
    ]
    .concat()
}

fn not_decoded(xid: u32) -> Expect {
    Expect::Reply(refused(xid, &[GARBAGE_ARGS]))
}

fn all(length: u32) -> Segment {
    memory(0, length)
}

/// Memory that goes beyond the end of the address space.
fn wrapping() -> Segment {
    segment(0x5100_0000, 8, u64::MAX - 3)
}

fn read_lists(rows: &Rows<'_>) -> Vec<Case> {
    const READS: &str = "RFC 8166, 3.4.5";
    let many = |n: u32| (END + n * 4, all(u32::MAX));
    let many: Vec<(u32, Segment)> = (0..160).map(many).collect();
    let unfit = |number, sends, list: &[_]| rows.unfit(READS, number, sends, list);
    vec![
        rows.reads(1, "a position that is no multiple of four", &[(38, all(8))]),
        unfit(2, "a position behind the payload", &[(END + 4, all(8))]),
        unfit(3, "position 4294967292", &[(0xffff_fffc, all(8))]),
        rows.reads(4, "position 4294967295", &[(u32::MAX, all(8))]),
        unfit(
            5,
            "a second chunk behind the payload",
            &[(END, all(8)), (END + 12, all(8))],
        ),
        unfit(
            6,
            "chunks that overlap",
            &[(END, all(16)), (END + 8, all(8))],
        ),
        unfit(
            7,
            "chunks that overlap in their round-up",
            &[(END, all(5)), (END + 4, all(8))],
        ),
        unfit(
            8,
            "chunks that overlap, the last first",
            &[(END + 8, all(8)), (END, all(16))],
        ),
        unfit(9, "a chunk of 4 GiB", &[(END, all(u32::MAX))]),
        unfit(
            10,
            "a chunk of segments of 4 GiB together",
            &[(END, all(1 << 31)), (END, all(1 << 31))],
        ),
        rows.unreasonable(
            1,
            "a chunk of 160 segments of 4 GiB each",
            &[(END, all(u32::MAX)); 160],
        ),
        rows.unreasonable(2, "160 chunks of 4 GiB each", &many),
        rows.unreadable(
            READS,
            13,
            "a Read segment that passes the address space",
            (MSG, END),
        ),
        rows.reads(14, "a payload in two places", &[(0, all(40))])
            .level(Level::Robustness),
    ]
}

fn other_lists(rows: &Rows<'_>) -> Vec<Case> {
    vec![
        rows.unusable(
            "RFC 8166, 3.4.6",
            1,
            "a Write segment that passes the address space",
            &[&[wrapping()]],
            None,
        ),
        rows.unusable(
            "RFC 8166, 3.4.6",
            2,
            "a second Write chunk that passes the address space",
            &[&[all(8)], &[all(8), wrapping()]],
            None,
        ),
        rows.unusable(
            "RFC 8166, 3.5.3",
            1,
            "a Reply chunk that passes the address space",
            &[],
            Some(&[wrapping()]),
        ),
    ]
}

fn long_calls(rows: &Rows<'_>) -> Vec<Case> {
    let robust = |case: Case| case.level(Level::Robustness);
    let whole = 0xffff_fffc;
    vec![
        rows.long(10, "a long call without a chunk", &[], false),
        rows.long(
            11,
            "a long call without a chunk, and with a payload",
            &[],
            true,
        ),
        robust(rows.long(
            12,
            "a long call with a payload besides",
            &[(0, all(40))],
            true,
        )),
        rows.long(
            13,
            "a long call with another chunk only",
            &[(4, all(40))],
            false,
        ),
        robust(rows.long(14, "a long call of nothing", &[(0, all(0))], false)),
        robust(rows.long(15, "a long call of 41 bytes", &[(0, all(41))], false)),
        robust(rows.long(16, "a long call of 4 GiB", &[(0, all(whole))], false)),
        robust(rows.long(
            17,
            "a long call of 64 times 4 GiB",
            &[(0, all(whole)); 64],
            false,
        )),
        rows.unreadable(
            "RFC 8166, 4.2.4",
            18,
            "a long call that passes the address space",
            (NOMSG, 0),
        ),
        rows.err_chunk(
            "RFC 8166, 4.2.4",
            19,
            "a long call with a Write list alone",
            |it| Header {
                procedure: NOMSG,
                writes: vec![vec![all(40)]],
                ..it
            },
            false,
        ),
    ]
}

/// Chunks where the call has no argument that could be in them. NULL has none at all, so that its arguments can be
/// parsed whatever is in the chunk: no section requires an error.
fn beside_arguments(rows: &Rows<'_>) -> Vec<Case> {
    const PARSING: &str = "RFC 8166, 4.5.2";
    let robust = |case: Case| case.level(Level::Robustness);
    let three = (0..3).map(|at| (END + at * 0x1_0000, all(0x1_0000)));
    vec![
        robust(rows.readable_garbage(
            PARSING,
            30,
            "a chunk within the RPC header",
            vec![(4, all(8))],
        )),
        robust(rows.readable_garbage(
            PARSING,
            31,
            "a chunk where there are no arguments",
            vec![(END, all(8))],
        )),
        robust(rows.readable_garbage(
            "RFC 8166, 6.1",
            1,
            "three chunks of 64 KiB, none of which can be eligible",
            three.collect(),
        )),
        rows.garbage(
            "RFC 8166, 6.1",
            2,
            "empty segments in a Read list",
            vec![(END, all(0)); 100],
        ),
    ]
}
