//! Invalid transport headers (RFC 8166, sections 4.2 and 4.5).

use super::{FIRST_ERR_CHUNK, expect, on};
use crate::case::{Case, Ground, Level, Step, case};
use crate::expect::Expect;
use crate::wire::v1::{self, DONE, ERR_CHUNK, ERR_VERS, Header, MSG, MSGP, NOMSG};
use crate::wire::{Xdr, rpc};

const SILENCE: &str = "nothing, and the next call is answered";
const REFUSAL: &str = "RDMA_ERROR with ERR_CHUNK, and the next call is answered";

/// A segment as long as a NULL call: its handle, its length, and its offset.
const SEGMENT: [u32; 4] = [0x5100_0000, rpc::CALL_HEADER, 1, 0];

/// The XID of one case, and messages with it.
struct Messages(u32);

impl Messages {
    /// Encodes the four fixed fields, followed by these words.
    fn words(&self, procedure: u32, words: &[u32]) -> Vec<u8> {
        let out = Xdr::new().words(&[self.0, 1, 8, procedure]);
        out.words(words).done()
    }

    fn null(&self) -> Vec<u8> {
        v1::header(self.0).with(&rpc::null(self.0).bytes())
    }

    fn procedure(&self, procedure: u32) -> Vec<u8> {
        let header = Header {
            procedure,
            ..v1::header(self.0)
        };
        header.with(&rpc::null(self.0).bytes())
    }
}

/// Makes the rows of one ground.
struct Rows<'a>(&'a Ground);

impl Rows<'_> {
    /// Returns a case with a message that is silently discarded. An error about it could come behind the reply to the
    /// next call, so that call waits for a moment.
    fn discarded(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        message: impl FnOnce(&Messages) -> Vec<u8>,
    ) -> Case {
        let message = message(&Messages(self.0.xid()));
        case(
            section,
            number,
            sends,
            SILENCE,
            on(vec![Step::Send(message), Step::Quiet]),
        )
    }

    /// Returns a case with a message that is answered with ERR_CHUNK.
    fn err_chunk(
        &self,
        section: &'static str,
        number: u32,
        sends: &str,
        message: impl FnOnce(&Messages) -> Vec<u8>,
    ) -> Case {
        let xid = self.0.xid();
        let steps = vec![
            Step::Send(message(&Messages(xid))),
            expect(Expect::ErrChunk(xid)),
        ];
        let case = case(section, number, sends, REFUSAL, on(steps));
        match case.address() == FIRST_ERR_CHUNK {
            true => case,
            false => case.needs(FIRST_ERR_CHUNK),
        }
    }

    fn version(&self, number: u32, sends: &str, version: u32) -> Case {
        let xid = self.0.xid();
        let header = Header {
            version,
            ..v1::header(xid)
        };
        let message = header.with(&rpc::null(xid).bytes());
        let steps = vec![Step::Send(message), expect(Expect::ErrVers(xid, version))];
        let expects = "RDMA_ERROR with ERR_VERS, the XID and the version of the call, and a range of versions without it";
        case("RFC 8166, 4.5.1", number, sends, expects, on(steps))
    }
}

/// Returns the cases.
#[must_use]
pub fn cases(ground: &Ground) -> Vec<Case> {
    let rows = Rows(ground);
    [versions(&rows), short(&rows), errors(&rows), parsing(&rows)].concat()
}

fn versions(rows: &Rows<'_>) -> Vec<Case> {
    vec![
        rows.version(1, "version 3", 3),
        // No version 0 exists, so that no responder supports it: section 4.5.1 makes no exception.
        rows.version(2, "version 0", 0).needs("rfc8166/4.5.1/1"),
        rows.version(3, "version 4294967295", u32::MAX)
            .needs("rfc8166/4.5.1/1"),
    ]
}

/// Messages that are shorter than any header of a call.
fn short(rows: &Rows<'_>) -> Vec<Case> {
    let cut = |number, sends, length: usize| {
        rows.discarded("RFC 8166, 4.5", number, sends, |it| {
            it.null()[..length].to_vec()
        })
    };
    vec![
        cut(1, "one byte", 1),
        cut(2, "an XID alone", 4),
        cut(3, "15 bytes", 15),
        cut(4, "16 bytes", 16),
        cut(5, "27 bytes", 27),
    ]
}

/// RDMA_ERROR and other procedures that no requester sends.
fn errors(rows: &Rows<'_>) -> Vec<Case> {
    let error = |section, number, sends, version, words: &[u32]| {
        rows.discarded(section, number, sends, |it| v1::error(it.0, version, words))
    };
    vec![
        error(
            "RFC 8166, 4.2.4",
            1,
            "ERR_VERS from a requester",
            1,
            &[ERR_VERS, 1, 1],
        ),
        error(
            "RFC 8166, 4.2.4",
            2,
            "ERR_CHUNK from a requester",
            1,
            &[ERR_CHUNK],
        ),
        error(
            "RFC 8166, 4.5",
            6,
            "an error that there is not",
            1,
            &[77, 0, 0],
        ),
        error(
            "RFC 8166, 4.5",
            7,
            "ERR_VERS without its versions",
            1,
            &[ERR_VERS],
        ),
        // Number 8 was 16 bytes, which is number 4.
        error(
            "RFC 8166, 4.5",
            9,
            "an error of version 2",
            2,
            &[ERR_VERS, 1, 1],
        )
        .level(Level::Robustness),
        rows.discarded("RFC 8166, 4.6.2", 1, "RDMA_DONE", |it| it.procedure(DONE)),
    ]
}

/// Headers that cannot be parsed (RFC 8166, section 4.5.2).
fn parsing(rows: &Rows<'_>) -> Vec<Case> {
    const PARSING: &str = "RFC 8166, 4.5.2";
    let words = |number, sends, procedure, words: &[u32]| {
        rows.err_chunk(PARSING, number, sends, |it| it.words(procedure, words))
    };
    let before_null = |number, sends, words: &[u32]| {
        rows.err_chunk(PARSING, number, sends, |it| {
            let header = it.words(MSG, words);
            [header, rpc::null(it.0).bytes()].concat()
        })
    };
    let endless: Vec<u32> = [vec![0], [1, 0].repeat(400)].concat();
    vec![
        rows.err_chunk(PARSING, 1, "procedure 5", |it| it.procedure(5)),
        rows.err_chunk(PARSING, 2, "procedure 4294967295", |it| {
            it.procedure(u32::MAX)
        }),
        // Nothing but the word that says that an item is present is wrong in these: the message goes on as if that
        // were one. A Read list that NULL could have is that of a long call.
        words(
            3,
            "a Read list that goes on with 2",
            NOMSG,
            &[&[2, 0][..], &SEGMENT, &[0, 0, 0]].concat(),
        ),
        words(
            4,
            "a Read list that goes on with 4294967295",
            NOMSG,
            &[&[u32::MAX, 0][..], &SEGMENT, &[0, 0, 0]].concat(),
        ),
        before_null(
            5,
            "a Write list that goes on with 2",
            &[&[0, 2, 1][..], &SEGMENT, &[0, 0]].concat(),
        ),
        before_null(
            6,
            "a Reply chunk that is present with 2",
            &[&[0, 0, 2, 1][..], &SEGMENT].concat(),
        ),
        words(
            7,
            "a Read list that ends in a segment",
            MSG,
            &[1, 40, 0x51, 8],
        ),
        words(
            8,
            "a Read list that does not end",
            MSG,
            &[1, 40, 0x51, 8, 0, 0],
        ),
        words(
            9,
            "a Write list that does not end",
            MSG,
            &[0, 1, 1, 0x51, 8, 0, 0],
        ),
        words(
            10,
            "a Write chunk of 4294967295 segments",
            MSG,
            &[0, 1, u32::MAX, 0],
        ),
        words(
            11,
            "a Write chunk of 2^28 segments",
            MSG,
            &[0, 1, 1 << 28, 0],
        ),
        words(
            12,
            "a Write chunk of 512 segments that are not there",
            MSG,
            &[0, 1, 512, 0],
        ),
        words(
            13,
            "a Reply chunk of 4294967295 segments",
            MSG,
            &[0, 0, 1, u32::MAX],
        ),
        words(
            14,
            "a Reply chunk of 2^28 segments",
            NOMSG,
            &[0, 0, 1, 1 << 28],
        ),
        words(15, "a header of ones", MSG, &[1; 1000]),
        words(
            16,
            "empty Write chunks, and no end of the list",
            MSG,
            &endless,
        ),
        // The header is whole; no section names an error for a payload that is missing.
        rows.err_chunk(PARSING, 17, "a header alone", |it| it.null()[..28].to_vec())
            .level(Level::Robustness),
        // The text contradicts itself, so no level of the text fits: section 4.5.2 has this among the errors that are
        // answered (MUST), and section 4.2.1 lets a receiver ignore the second XID (MAY).
        rows.err_chunk("RFC 8166, 4.2.1", 1, "the XID of another call", |it| {
            let other = it.0.wrapping_add(0x1000_0000);
            v1::header(it.0).with(&rpc::null(other).bytes())
        })
        .level(Level::Robustness),
        rows.err_chunk("RFC 8166, 4.2.1", 2, "a header and half an XID", |it| {
            it.null()[..30].to_vec()
        })
        .level(Level::Robustness),
        rows.err_chunk("RFC 8166, 4.6.1", 1, "RDMA_MSGP", |it| it.procedure(MSGP))
            .level(Level::Should),
    ]
}
