//! Calls that are encoded once, and replies that are checked without decoding them.
//!
//! A load generator that encodes each call and decodes each reply needs as much processor time as
//! the server that it measures. Calls of one operation differ in their XID and their offset only,
//! so both are put into a copy of the encoded call.

use bytes::Bytes;
use nfs_binding::proto::{
    FileHandle, HandleArgs, NFS_PROGRAM, NFS_VERSION, ReadArgs, Stable, Status, WriteArgs, Xdr,
};
use onc_rpc::{
    CallHeader, Credential, Decoder, Encoder, Message, REPLY, ReplyBody, ReplyHeader, Verifier,
    padded, record,
};
use rpcrdma_setup::{Context, Failure};

use super::op::Op;

/// The bytes of `fattr3` (RFC 1813, section 2.6).
const ATTRIBUTES: usize = 84;
/// The bytes of `wcc_attr` (section 2.6).
const WCC_ATTRIBUTES: usize = 24;

/// A call as it is sent over TCP: record mark, RPC header and arguments.
pub(super) struct CallTemplate {
    op: Op,
    record: Vec<u8>,
}

impl CallTemplate {
    /// Encodes a call of `op` on `file`. WRITE writes `data`.
    pub(super) fn new(
        op: Op,
        file: FileHandle,
        credential: &Credential,
        data: &Bytes,
    ) -> Result<Self, Failure> {
        let mut args = Encoder::new();
        match op {
            Op::Getattr => HandleArgs { object: file }.encode(&mut args),
            Op::Read => ReadArgs {
                file,
                offset: 0,
                count: op.size(),
            }
            .encode(&mut args),
            Op::Write => WriteArgs {
                file,
                offset: 0,
                count: op.size(),
                stable: Stable::Unstable,
                data: data.clone().into(),
            }
            .encode(&mut args),
        }
        let mut message = args.finish();
        let header = CallHeader {
            xid: 0,
            prog: NFS_PROGRAM,
            vers: NFS_VERSION,
            proc: op.number(),
            cred: credential.clone(),
            verf: Verifier::default(),
        };
        message.prepend(header.encode());
        let mark = record::header(message.stream_len()).context(op.procedure())?;
        let mut record = mark.to_vec();
        for part in message.gather(|_| true) {
            record.extend_from_slice(&part);
        }
        Ok(Self { op, record })
    }

    /// Returns the operation.
    pub(super) fn op(&self) -> Op {
        self.op
    }

    /// Appends the call with this XID and this offset in the file.
    pub(super) fn append(&self, out: &mut Vec<u8>, xid: u32, offset: u64) {
        let start = out.len();
        out.extend_from_slice(&self.record);
        let call = &mut out[start..];
        call[record::HEADER_LEN..][..4].copy_from_slice(&xid.to_be_bytes());
        // The offset is followed by the count in READ, and by count, stable_how, and the length and
        // bytes of the data in WRITE.
        let after = match self.op {
            Op::Getattr => return,
            Op::Read => 4,
            Op::Write => 12 + padded(u64::from(self.op.size())) as usize,
        };
        let at = call.len() - after - 8;
        call[at..at + 8].copy_from_slice(&offset.to_be_bytes());
    }
}

/// Returns the XID of a reply.
pub(super) fn reply_xid(reply: &[u8]) -> Option<u32> {
    word(reply, 0)
}

/// Checks that a call of `op` succeeded and moved all bytes.
///
/// # Errors
/// What is wrong with the reply.
pub(super) fn check_reply(op: Op, reply: &[u8]) -> Result<(), String> {
    // At byte 4 are REPLY and MSG_ACCEPTED, at byte 12 flavor and length of the verifier, and
    // accept_stat follows the verifier (RFC 5531, section 9).
    let verifier = word(reply, 16).map_or(0, |len| padded(u64::from(len)) as usize);
    let results = verifier.saturating_add(24);
    let accepted = (word(reply, 4), word(reply, 8)) == (Some(REPLY), Some(0));
    if !accepted || word(reply, results - 4) != Some(0) {
        return Err(refusal(reply));
    }
    let results = reply.get(results..).unwrap_or_default();
    match word(results, 0) {
        Some(0) => {}
        Some(status) => return Err(Status(status).to_string()),
        None => return Err("a reply without results".to_owned()),
    }
    let moved = moved(op, results).ok_or_else(|| "results that are cut off".to_owned())?;
    match moved == op.size() {
        true => Ok(()),
        false => Err(format!("{moved} bytes moved of {}", op.size())),
    }
}

/// Returns the bytes of file data that a successful call moved. `None`: the results are too short.
fn moved(op: Op, results: &[u8]) -> Option<u32> {
    // Status, then for each optional part a word that says whether it is there (section 2.6).
    let optional = |at: usize, len: usize| match word(results, at)? {
        0 => Some(at + 4),
        _ => Some(at + 4 + len),
    };
    match op {
        Op::Getattr => (results.len() == 4 + ATTRIBUTES).then_some(0),
        Op::Read => {
            let at = optional(4, ATTRIBUTES)?;
            let (count, len) = (word(results, at)?, word(results, at + 8)?);
            let data = results.get(at + 12..)?;
            (count == len && data.len() as u64 == padded(u64::from(len))).then_some(count)
        }
        Op::Write => word(results, optional(optional(4, WCC_ATTRIBUTES)?, ATTRIBUTES)?),
    }
}

/// Describes a reply with which a server refuses a call, or a message that is no reply.
fn refusal(reply: &[u8]) -> String {
    let message = Message::from_payload(Bytes::copy_from_slice(reply));
    match ReplyHeader::decode(&mut Decoder::new(&message)) {
        Ok(header) => match header.body {
            ReplyBody::Accepted { status, .. } => status.to_string(),
            ReplyBody::AuthError(status) => format!("authentication error: {status}"),
            ReplyBody::RpcMismatch { low, high } => {
                format!("the server speaks RPC versions {low} to {high}")
            }
        },
        Err(error) => format!("a message that is no reply: {error}"),
    }
}

/// Returns the word at byte `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use nfs_binding::proto::{Procedure, nfs};
    use onc_rpc::AcceptStatus;

    use super::super::op::WRITE_SIZE;
    use super::*;

    fn template(op: Op) -> CallTemplate {
        let file = FileHandle::new(b"a handle of 21 bytes!").unwrap();
        let data = Bytes::from(vec![9; WRITE_SIZE as usize]);
        CallTemplate::new(op, file, &Credential::None, &data).unwrap()
    }

    /// Decodes a call as a server does.
    fn decoded<P: Procedure>(record: &[u8]) -> (u32, P::Args) {
        let len = record.len() - 4;
        assert_eq!(record[..4], record::header(len as u64).unwrap());
        let message = Message::from_payload(Bytes::copy_from_slice(&record[4..]));
        let mut decoder = Decoder::new(&message);
        let header = CallHeader::decode(&mut decoder).unwrap();
        assert_eq!(
            (header.prog, header.vers, header.proc),
            (P::PROGRAM, P::VERSION, P::NUMBER)
        );
        let args = P::Args::decode(&mut decoder).unwrap();
        decoder.finish().unwrap();
        (header.xid, args)
    }

    #[test]
    fn a_server_decodes_calls_with_their_xid_and_offset() {
        let mut out = b"before".to_vec();
        template(Op::Read).append(&mut out, 0x0102_0304, 8192);
        let (xid, args) = decoded::<nfs::Read>(&out[6..]);
        assert_eq!((xid, args.offset, args.count), (0x0102_0304, 8192, 4096));

        let mut out = Vec::new();
        template(Op::Write).append(&mut out, 5, 1 << 33);
        let (xid, args) = decoded::<nfs::Write>(&out);
        assert_eq!((xid, args.offset, args.count), (5, 1 << 33, 8192));
        assert_eq!(args.data.0.to_bytes(), vec![9; 8192]);

        let mut out = Vec::new();
        template(Op::Getattr).append(&mut out, 6, 77);
        let (xid, args) = decoded::<nfs::Getattr>(&out);
        assert_eq!((xid, args.object.as_bytes().len()), (6, 21));
    }

    /// A reply with results.
    fn reply(results: &[u8]) -> Vec<u8> {
        let header = ReplyHeader::accepted(1, AcceptStatus::Success);
        [&header.encode(), results].concat()
    }

    #[test]
    fn replies_count_only_if_everything_moved() {
        let words = |words: &[u32]| {
            words
                .iter()
                .flat_map(|w| w.to_be_bytes())
                .collect::<Vec<_>>()
        };
        let read = |len: u32, data: usize| {
            let mut results = words(&[0, 1]);
            results.extend([0; ATTRIBUTES]);
            results.extend(words(&[len, 0, len]));
            results.extend(vec![1; data]);
            reply(&results)
        };
        assert_eq!(check_reply(Op::Read, &read(4096, 4096)), Ok(()));
        assert_eq!(reply_xid(&read(4096, 4096)), Some(1));
        let short = check_reply(Op::Read, &read(4092, 4092)).unwrap_err();
        assert_eq!(short, "4092 bytes moved of 4096");
        assert!(check_reply(Op::Read, &read(4096, 4092)).is_err());

        let wcc: Vec<u8> = [words(&[0, 1]), vec![0; WCC_ATTRIBUTES], words(&[0])].concat();
        let write = |count: u32| reply(&[wcc.clone(), words(&[count, 0, 0, 0])].concat());
        assert_eq!(check_reply(Op::Write, &write(8192)), Ok(()));
        assert!(check_reply(Op::Write, &write(4096)).is_err());

        let attributes = [words(&[0]), vec![0; ATTRIBUTES]].concat();
        assert_eq!(check_reply(Op::Getattr, &reply(&attributes)), Ok(()));
        assert!(check_reply(Op::Getattr, &reply(&attributes[..80])).is_err());
    }

    #[test]
    fn what_a_server_refuses_is_said() {
        let stale = check_reply(Op::Getattr, &reply(&70u32.to_be_bytes())).unwrap_err();
        assert!(stale.contains("STALE"), "{stale}");
        let header = ReplyHeader::accepted(1, AcceptStatus::SystemErr).encode();
        let refused = check_reply(Op::Read, &header).unwrap_err();
        assert_eq!(refused, AcceptStatus::SystemErr.to_string());
        let body = ReplyBody::AuthError(onc_rpc::AuthStat::TOO_WEAK);
        let denied = ReplyHeader { xid: 1, body }.encode();
        let refused = check_reply(Op::Read, &denied).unwrap_err();
        assert!(refused.contains("authentication"), "{refused}");
        for cut in [0, 3, 8, 20, 24] {
            assert!(
                check_reply(Op::Write, &reply(&[0; 8])[..cut]).is_err(),
                "{cut}"
            );
        }
    }
}
