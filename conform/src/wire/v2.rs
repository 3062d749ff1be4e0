//! RPC-over-RDMA version 2 headers (version-two-01, sections 3 and 4), and the operations of its
//! extensions, word by word.
//!
//! The chunk lists and their rules are those of version 1. So a script of version 1 can be
//! translated to version 2 ([`from_first`]).

use super::v1::{self, ERROR, Header, NOMSG};
use super::{Reader, Xdr};

/// `rdma_vers`.
pub const VERSION: u32 = 2;
/// `rdma_proc` RDMA2_OPTIONAL.
pub const OPTIONAL: u32 = 5;
/// The direction of a call.
pub const CALL: u32 = 0;
/// The direction of a reply.
pub const REPLY: u32 = 1;
/// `rdma_err` RDMA2_ERR_VERS.
pub const ERR_VERS: u32 = 1;
/// `rdma_err` RDMA2_ERR_BAD_HEADER.
pub const ERR_BAD_HEADER: u32 = 2;
/// `rdma_err` RDMA2_ERR_INVAL_OPTION.
pub const ERR_INVAL_OPTION: u32 = 3;

/// The `rdma_opttype` of ROPT_INITXCH (xcharext-02, section 5).
pub const INITXCH: u32 = 1;
/// The `rdma_opttype` of ROPT_REQXCH.
pub const REQXCH: u32 = 2;
/// The `rdma_opttype` of ROPT_RESPXCH.
pub const RESPXCH: u32 = 3;
/// The `rdma_opttype` of ROPT_UPDXCH.
pub const UPDXCH: u32 = 4;
/// The `rdma_opttype` of ROPT_XMTREQ (rtrext-00, section 9).
pub const XMTREQ: u32 = 5;
/// The `rdma_opttype` of ROPT_XMTRESP.
pub const XMTRESP: u32 = 6;
/// The `rdma_opttype` of ROPT_XMTCONT.
pub const XMTCONT: u32 = 7;
/// The `rdma_opttype` of ROPT_XMTERR.
pub const XMTERR: u32 = 8;

/// The `xchv_which` of XCHAR_RBSIZ (xcharext-02, section 3).
pub const RBSIZ: u32 = 1;
/// The `xchv_which` of XCHAR_RTRSUPP (rtrext-00, section 8).
pub const RTRSUPP: u32 = 4;
/// The `xchv_which` of XCHAR_RBSTRUCT.
pub const RBSTRUCT: u32 = 5;
/// The `xchv_which` of XCHAR_REQRXLIM.
pub const REQRXLIM: u32 = 6;
/// The `xchv_which` of XCHAR_RESPSXLIM.
pub const RESPSXLIM: u32 = 7;

/// The inline threshold of both directions (section 2.3), bytes.
pub const INLINE: usize = 4096;
/// The credits that a hostile end requests or grants.
pub const CREDITS: u32 = 8;
/// The bytes of the fixed fields.
const FIXED: usize = 16;
/// The bytes of an operation's header without its information.
pub const OPERATION: usize = 28;
/// The structure of receive buffers of both ends: the bytes before the segment for bulk data.
pub const HEAD: usize = 1024;
/// The bytes of the segment for bulk data.
pub const TARGET: usize = 65_536;

/// Encodes words.
#[must_use]
pub fn bytes(words: &[u32]) -> Vec<u8> {
    Xdr::new().words(words).done()
}

/// Encodes a message of version 2 with chunk lists and payload.
#[must_use]
pub fn with(header: &Header, direction: u32, payload: &[u8]) -> Vec<u8> {
    let first = Header {
        version: 1,
        ..header.clone()
    };
    from_first(&first.with(payload), direction)
}

/// Encodes a message of version 2 without chunks.
#[must_use]
pub fn plain(xid: u32, direction: u32, payload: &[u8]) -> Vec<u8> {
    with(&v1::header(xid), direction, payload)
}

/// Encodes an operation of an extension with this information, followed by `rest`.
#[must_use]
pub fn operation(xid: u32, direction: u32, opttype: u32, info: &[u32], rest: &[u8]) -> Vec<u8> {
    let out = Xdr::new().words(&[xid, VERSION, CREDITS, OPTIONAL, direction, opttype]);
    let out = out.word(4 * info.len() as u32).words(info);
    out.raw(rest).done()
}

/// Returns the characteristics of an end that supports all of rtrext-00 and has the product's
/// receive buffers, in words of ROPT_INITXCH.
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

/// Translates a message of version 1 to version 2. A message that is too short to contain its
/// version, or has another version, is returned unchanged.
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

/// Translates a message of version 2 to version 1. Returns `None` if it is not of version 2, does
/// not exist in version 1, or has the other direction.
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
    /// The bytes that follow.
    pub rest: Vec<u8>,
}

/// Returns the name of an `rdma_opttype`.
#[must_use]
pub fn operation_name(opttype: u32) -> String {
    let name = match opttype {
        INITXCH => "ROPT_INITXCH",
        REQXCH => "ROPT_REQXCH",
        RESPXCH => "ROPT_RESPXCH",
        UPDXCH => "ROPT_UPDXCH",
        XMTREQ => "ROPT_XMTREQ",
        XMTRESP => "ROPT_XMTRESP",
        XMTCONT => "ROPT_XMTCONT",
        XMTERR => "ROPT_XMTERR",
        other => return format!("operation {other}"),
    };
    name.to_owned()
}

/// Decodes an operation. Returns `None` if the message is not one.
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

/// Compares a message of version 2 with these words, except for its credits, which must be from 1
/// to `most`. `more` allows further words.
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

/// Returns the words of RDMA2_ERROR with BAD_HEADER.
#[must_use]
pub fn bad_header(xid: u32) -> Vec<u32> {
    vec![xid, VERSION, 0, ERROR, ERR_BAD_HEADER]
}

/// Returns the words of RDMA2_ERROR with INVAL_OPTION.
#[must_use]
pub fn invalid_option(xid: u32) -> Vec<u32> {
    vec![xid, VERSION, 0, ERROR, ERR_INVAL_OPTION]
}

/// Returns the words of RDMA2_ERROR with the range of supported versions, in the header of
/// `version`.
#[must_use]
pub fn err_vers(xid: u32, version: u32, spoken: [u32; 2]) -> Vec<u32> {
    vec![xid, version, 0, ERROR, ERR_VERS, spoken[0], spoken[1]]
}

/// Returns the words of ROPT_XMTERR about a message with this direction.
#[must_use]
pub fn report(xid: u32, direction: u32, info: &[u32]) -> Vec<u32> {
    let len = 4 * info.len() as u32;
    [
        &[xid, VERSION, 0, OPTIONAL, 1 - direction, XMTERR, len],
        info,
    ]
    .concat()
}

/// Returns the words of a reply by RDMA2_MSG without chunks: MSG_ACCEPTED, SUCCESS, and results
/// that begin with `results`.
#[must_use]
pub fn success(xid: u32, results: &[u32]) -> Vec<u32> {
    let header = [xid, VERSION, 0, 0, REPLY, 0, 0, 0];
    [&header[..], &[xid, 1, 0, 0, 0, 0], results].concat()
}
