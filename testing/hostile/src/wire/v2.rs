//! RPC-over-RDMA version 2 headers (version-two-01, sections 3 and 4), and the operations of its
//! extensions, word by word.
//!
//! The chunk lists and the rules on them are those of version 1. So a script of version 1 serves
//! version 2 as well, put into the other form on its way ([`from_first`]).

use super::v1::{self, ERROR, Header, NOMSG};
use super::{Reader, Xdr};

/// `rdma_vers`.
pub const VERSION: u32 = 2;
/// `rdma_proc` RDMA2_OPTIONAL.
pub const OPTIONAL: u32 = 5;
/// Direction of a call.
pub const CALL: u32 = 0;
/// Direction of a reply.
pub const REPLY: u32 = 1;
/// `rdma_err` RDMA2_ERR_VERS.
pub const ERR_VERS: u32 = 1;
/// `rdma_err` RDMA2_ERR_BAD_HEADER.
pub const ERR_BAD_HEADER: u32 = 2;
/// `rdma_err` RDMA2_ERR_INVAL_OPTION.
pub const ERR_INVAL_OPTION: u32 = 3;

/// `rdma_opttype` of xcharext-02, section 5.
pub const INITXCH: u32 = 1;
/// ROPT_REQXCH.
pub const REQXCH: u32 = 2;
/// ROPT_RESPXCH.
pub const RESPXCH: u32 = 3;
/// ROPT_UPDXCH.
pub const UPDXCH: u32 = 4;
/// `rdma_opttype` of rtrext-00, section 9.
pub const XMTREQ: u32 = 5;
/// ROPT_XMTRESP.
pub const XMTRESP: u32 = 6;
/// ROPT_XMTCONT.
pub const XMTCONT: u32 = 7;
/// ROPT_XMTERR.
pub const XMTERR: u32 = 8;

/// Credits that a hostile end asks for, or grants.
pub const CREDITS: u32 = 8;
/// Bytes of the fixed fields.
const FIXED: usize = 16;
/// Bytes of the header of an operation, without its information.
pub const OPERATION: usize = 28;
/// How receives are made up of both ends here: so many bytes, and so many more for bulk data.
pub const HEAD: usize = 1024;
/// Bytes of the segment for bulk data.
pub const TARGET: usize = 65_536;

/// These words.
#[must_use]
pub fn bytes(words: &[u32]) -> Vec<u8> {
    Xdr::new().words(words).done()
}

/// A message of version 2 with chunk lists, and what follows them.
#[must_use]
pub fn with(header: &Header, direction: u32, payload: &[u8]) -> Vec<u8> {
    let first = Header {
        version: 1,
        ..header.clone()
    };
    from_first(&first.with(payload), direction)
}

/// The same without chunks.
#[must_use]
pub fn plain(xid: u32, direction: u32, payload: &[u8]) -> Vec<u8> {
    with(&v1::header(xid), direction, payload)
}

/// An operation of an extension, with this information and what follows it.
#[must_use]
pub fn operation(xid: u32, direction: u32, opttype: u32, info: &[u32], rest: &[u8]) -> Vec<u8> {
    let out = Xdr::new().words(&[xid, VERSION, CREDITS, OPTIONAL, direction, opttype]);
    let out = out.word(4 * info.len() as u32).words(info);
    out.raw(rest).done()
}

/// Characteristics of an end that has everything of rtrext-00, and receives like those of the
/// product: words of ROPT_INITXCH.
#[must_use]
pub fn everything() -> Vec<u32> {
    let (head, target) = (HEAD as u32, TARGET as u32);
    let mut said = vec![5];
    said.extend([1, 4, head + target]);
    said.extend([4, 4, 7]);
    said.extend([5, 40, head + target, 2, 1, head, 1, 0, 1, target, 4096, 1]);
    said.extend([6, 4, 16]);
    said.extend([7, 4, 64]);
    said.push(0);
    said
}

/// What a message of version 1 is in version 2. One that is too short to say its version, or says
/// another, stays as it is.
#[must_use]
pub fn from_first(message: &[u8], direction: u32) -> Vec<u8> {
    let Some((fixed, rest)) = message.split_at_checked(FIXED) else {
        return message.to_vec();
    };
    let mut from = Reader(fixed);
    let words = [from.word(), from.word(), from.word(), from.word()];
    let [xid, version, credits, procedure] = words.map(Option::unwrap_or_default);
    if version != 1 {
        return message.to_vec();
    }
    let out = Xdr::new().words(&[xid, VERSION, credits, procedure]);
    let out = match procedure {
        ERROR => out,
        _ => out.word(direction),
    };
    out.raw(rest).done()
}

/// The other way round. Nothing: it is no message of version 2, or one that version 1 does not have,
/// or of the other direction.
#[must_use]
pub fn to_first(message: &[u8], direction: u32) -> Option<Vec<u8>> {
    let mut from = Reader(message);
    let (xid, version) = (from.word()?, from.word()?);
    let (credits, procedure) = (from.word()?, from.word()?);
    let told = match procedure {
        ERROR => direction,
        _ => from.word()?,
    };
    let known = version == VERSION && told == direction;
    let out = Xdr::new().words(&[xid, 1, credits, procedure]).raw(from.0);
    (known && (procedure <= NOMSG || procedure == ERROR)).then(|| out.done())
}

/// An operation that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `rdma_xid`.
    pub xid: u32,
    /// `rdma_optdir`.
    pub direction: u32,
    /// `rdma_opttype`.
    pub opttype: u32,
    /// `rdma_optinfo`.
    pub info: Vec<u32>,
    /// What follows.
    pub rest: Vec<u8>,
}

/// Takes an operation apart. Nothing: it is none.
#[must_use]
pub fn parse(message: &[u8]) -> Option<Operation> {
    let mut from = Reader(message);
    let (xid, version, _, procedure) = (from.word()?, from.word()?, from.word()?, from.word()?);
    let (direction, opttype, len) = (from.word()?, from.word()?, from.word()? as usize);
    let mut info = Reader(from.take(len)?);
    (version == VERSION && procedure == OPTIONAL).then(|| Operation {
        xid,
        direction,
        opttype,
        info: std::iter::from_fn(|| info.word()).collect(),
        rest: from.0.to_vec(),
    })
}

/// Compares a message of version 2 with these words, but for its credits, of which there must be one
/// and not more than `most`. More may follow if it says so.
#[must_use]
pub fn is(message: &[u8], words: &[u32], more: bool, most: u32) -> bool {
    const CREDIT: std::ops::Range<usize> = 8..12;
    let mut expected = bytes(words);
    let Some(credits) = message.get(CREDIT) else {
        return false;
    };
    let granted = Reader(credits).word().unwrap_or_default();
    expected[CREDIT].copy_from_slice(credits);
    let same = message == expected || more && message.starts_with(&expected);
    same && (1..=most).contains(&granted)
}

/// RDMA2_ERROR with BAD_HEADER, in words.
#[must_use]
pub fn bad_header(xid: u32) -> Vec<u32> {
    vec![xid, VERSION, 0, ERROR, ERR_BAD_HEADER]
}

/// RDMA2_ERROR with INVAL_OPTION, in words.
#[must_use]
pub fn invalid_option(xid: u32) -> Vec<u32> {
    vec![xid, VERSION, 0, ERROR, ERR_INVAL_OPTION]
}

/// RDMA2_ERROR with the versions that are spoken, in that version's header, in words.
#[must_use]
pub fn err_vers(xid: u32, version: u32, spoken: [u32; 2]) -> Vec<u32> {
    vec![xid, version, 0, ERROR, ERR_VERS, spoken[0], spoken[1]]
}

/// ROPT_XMTERR to a message in that direction, in words.
#[must_use]
pub fn report(xid: u32, direction: u32, info: &[u32]) -> Vec<u32> {
    let len = 4 * info.len() as u32;
    [
        &[xid, VERSION, 0, OPTIONAL, 1 - direction, XMTERR, len],
        info,
    ]
    .concat()
}

/// A reply by RDMA2_MSG without chunks: MSG_ACCEPTED, SUCCESS, and results that begin like this. In
/// words.
#[must_use]
pub fn success(xid: u32, results: &[u32]) -> Vec<u32> {
    let header = [xid, VERSION, 0, 0, REPLY, 0, 0, 0];
    [&header[..], &[xid, 1, 0, 0, 0, 0], results].concat()
}
