//! RPC messages (RFC 5531, section 9), and the few NFS version 3 arguments and results (RFC 1813)
//! that they carry here.

use super::Xdr;

/// The program number of NFS.
pub const NFS: u32 = 100_003;
/// The program number of MOUNT.
pub const MOUNT: u32 = 100_005;
/// `msg_type` CALL.
pub const CALL: u32 = 0;
/// `msg_type` REPLY.
pub const REPLY: u32 = 1;

/// The names of `accept_stat`, by number.
pub const ACCEPT_STAT: [&str; 6] = [
    "SUCCESS",
    "PROG_UNAVAIL",
    "PROG_MISMATCH",
    "PROC_UNAVAIL",
    "GARBAGE_ARGS",
    "SYSTEM_ERR",
];

/// Returns the name of an `nfsstat3` (RFC 1813, section 2.6).
#[must_use]
pub fn status_name(status: u32) -> Option<&'static str> {
    Some(match status {
        0 => "NFS3_OK",
        1 => "NFS3ERR_PERM",
        2 => "NFS3ERR_NOENT",
        5 => "NFS3ERR_IO",
        6 => "NFS3ERR_NXIO",
        13 => "NFS3ERR_ACCES",
        17 => "NFS3ERR_EXIST",
        18 => "NFS3ERR_XDEV",
        19 => "NFS3ERR_NODEV",
        20 => "NFS3ERR_NOTDIR",
        21 => "NFS3ERR_ISDIR",
        22 => "NFS3ERR_INVAL",
        27 => "NFS3ERR_FBIG",
        28 => "NFS3ERR_NOSPC",
        30 => "NFS3ERR_ROFS",
        31 => "NFS3ERR_MLINK",
        63 => "NFS3ERR_NAMETOOLONG",
        66 => "NFS3ERR_NOTEMPTY",
        69 => "NFS3ERR_DQUOT",
        70 => "NFS3ERR_STALE",
        71 => "NFS3ERR_REMOTE",
        10_001 => "NFS3ERR_BADHANDLE",
        10_002 => "NFS3ERR_NOT_SYNC",
        10_003 => "NFS3ERR_BAD_COOKIE",
        10_004 => "NFS3ERR_NOTSUPP",
        10_005 => "NFS3ERR_TOOSMALL",
        10_006 => "NFS3ERR_SERVERFAULT",
        10_007 => "NFS3ERR_BADTYPE",
        10_008 => "NFS3ERR_JUKEBOX",
        _ => return None,
    })
}

/// An RPC call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The transaction id.
    pub xid: u32,
    /// `msg_type`.
    pub kind: u32,
    /// RPC version.
    pub rpc: u32,
    /// The program, version and procedure.
    pub procedure: (u32, u32, u32),
    /// The flavor and body of the credential. The body is encoded, including its length word.
    pub credential: (u32, Vec<u8>),
    /// The flavor and body of the verifier. The body is encoded, including its length word.
    pub verifier: (u32, Vec<u8>),
    /// Arguments.
    pub args: Vec<u8>,
}

/// Returns a call of an NFS procedure with AUTH_NONE.
#[must_use]
pub fn nfs(xid: u32, procedure: u32, args: Vec<u8>) -> Call {
    Call {
        xid,
        kind: CALL,
        rpc: 2,
        procedure: (NFS, 3, procedure),
        credential: (0, vec![0; 4]),
        verifier: (0, vec![0; 4]),
        args,
    }
}

/// Returns a NULL call.
#[must_use]
pub fn null(xid: u32) -> Call {
    nfs(xid, 0, Vec::new())
}

/// The bytes of a call before its arguments.
pub const CALL_HEADER: u32 = 40;

impl Call {
    /// Encodes the message.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (program, version, procedure) = self.procedure;
        let out = Xdr::new().words(&[self.xid, self.kind, self.rpc]);
        let out = out.words(&[program, version, procedure]);
        let out = out.word(self.credential.0).raw(&self.credential.1);
        let out = out.word(self.verifier.0).raw(&self.verifier.1);
        out.raw(&self.args).done()
    }
}

/// Returns AUTH_SYS for root: flavor and body, for [`Call::credential`].
#[must_use]
pub fn root() -> (u32, Vec<u8>) {
    let body = Xdr::new().word(0).opaque(b"peer").words(&[0, 0, 0]).done();
    (1, Xdr::new().opaque(&body).done())
}

/// Returns the arguments of READ.
#[must_use]
pub fn read_args(file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    Xdr::new().opaque(file).long(offset).word(count).done()
}

/// Returns the arguments of WRITE up to the length of its data (the reduced form).
#[must_use]
pub fn write_args(file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    const FILE_SYNC: u32 = 2;
    let out = Xdr::new().opaque(file).long(offset);
    out.word(count).word(FILE_SYNC).word(count).done()
}

/// Returns MSG_ACCEPTED with an empty verifier and this status, followed by `rest`.
#[must_use]
pub fn accepted(xid: u32, status: u32, rest: &[u8]) -> Vec<u8> {
    let out = Xdr::new().words(&[xid, REPLY, 0, 0, 0, status]);
    out.raw(rest).done()
}
