//! Invalid calls, calls with invalid arguments (RFC 5531, RFC 1813), and more calls than credits
//! (RFC 8166, section 3.3.1).

use super::judged::judged;
use super::{memory, null, on};
use crate::End::{Closed, Lives, Reset};
use crate::client::{Case, Reply, Step, Step::*, case, denied, refused, status, success};
use crate::wire::Xdr;
use crate::wire::rpc::{self, Call};
use crate::wire::v1;

/// The XID of the invalid call.
const XID: u32 = 0x0bad;
/// `accept_stat` PROG_MISMATCH.
const PROG_MISMATCH: u32 = 2;
/// `accept_stat` PROC_UNAVAIL.
const PROC_UNAVAIL: u32 = 3;
/// `accept_stat` GARBAGE_ARGS.
const GARBAGE_ARGS: u32 = 4;
/// `nfsstat3` NFS3ERR_STALE.
const STALE: u32 = 70;
/// `nfsstat3` NFS3ERR_BADHANDLE.
const BADHANDLE: u32 = 10_001;
/// `nfsstat3` NFS3ERR_FBIG.
const FBIG: u32 = 27;

fn sent(call: &Call) -> Step {
    Send(v1::header(call.xid).with(&call.bytes()))
}

/// Returns a case with a call with its reply.
fn answered(name: &'static str, section: &'static str, call: Call, reply: Reply) -> Case {
    case(name, section, on(vec![sent(&call), Hear(reply)]), Lives)
}

/// Returns a case with a call of NFS by root with its reply.
fn nfs(name: &'static str, procedure: u32, args: Vec<u8>, reply: Reply) -> Case {
    let mut call = rpc::nfs(XID, procedure, args);
    call.credential = rpc::root();
    answered(name, "RFC 1813, 3.3", call, reply)
}

/// Returns a case with a message that is not a call, and ends its connection.
fn garbage(name: &'static str, payload: Vec<u8>) -> Case {
    let steps = vec![Send(v1::header(XID).with(&payload))];
    case(name, "RFC 5531, 9", on(steps), Closed)
}

/// Returns an `opaque_auth` with the given flavor, length and body.
fn auth(flavor: u32, length: u32, body: &[u8]) -> (u32, Vec<u8>) {
    (flavor, Xdr::new().word(length).raw(body).done())
}

pub(super) fn cases(file: &[u8]) -> Vec<Case> {
    let mut cases = judged(rpcrdma_conform::cases::calls);
    cases.extend(rpc_level());
    cases.extend(nfs_level(file));
    cases.extend(numbers(file));
    cases
}

fn rpc_level() -> Vec<Case> {
    let call = || rpc::null(XID);
    let whole = call().bytes();
    let garbage_args = || refused(XID, &[GARBAGE_ARGS]);
    let of = |procedure| Call {
        procedure,
        ..call()
    };
    let by = |credential| Call {
        credential,
        ..call()
    };
    let bad_cred = || denied(XID, &[1, 1]);
    vec![
        garbage("an XID and no more", whole[..4].to_vec()),
        garbage("a call cut off behind its version", whole[..20].to_vec()),
        case(
            "a call cut off behind its procedure",
            "RFC 5531, 9",
            on(vec![
                Send(v1::header(XID).with(&whole[..24])),
                Hear(bad_cred()),
            ]),
            Lives,
        ),
        garbage("a reply to a call never made", rpc::accepted(XID, 0, &[])),
        garbage(
            "a message that is neither call nor reply",
            Call { kind: 2, ..call() }.bytes(),
        ),
        garbage(
            "a message of kind 4294967295",
            Call {
                kind: u32::MAX,
                ..call()
            }
            .bytes(),
        ),
        answered(
            "NFS version 4",
            "RFC 5531, 9",
            of((rpc::NFS, 4, 0)),
            refused(XID, &[PROG_MISMATCH, 3, 3]),
        ),
        answered(
            "NFS version 2",
            "RFC 5531, 9",
            of((rpc::NFS, 2, 0)),
            refused(XID, &[PROG_MISMATCH, 3, 3]),
        ),
        answered(
            "MOUNT version 1",
            "RFC 5531, 9",
            of((rpc::MOUNT, 1, 0)),
            refused(XID, &[PROG_MISMATCH, 3, 3]),
        ),
        answered(
            "a procedure of MOUNT that there is not",
            "RFC 5531, 9",
            of((rpc::MOUNT, 3, 6)),
            refused(XID, &[PROC_UNAVAIL]),
        ),
        answered(
            "an unknown credential",
            "RFC 5531, 9",
            by(auth(6, 4, &[0; 4])),
            bad_cred(),
        ),
        answered(
            "a short hand nobody gave",
            "RFC 5531, 9",
            by(auth(2, 4, &[0; 4])),
            denied(XID, &[1, 2]),
        ),
        answered(
            "a credential of 401 bytes",
            "RFC 5531, 8.2",
            by(auth(1, 401, &[0; 404])),
            bad_cred(),
        ),
        answered(
            "a credential of 4 GiB",
            "RFC 5531, 8.2",
            by(auth(1, u32::MAX, &[])),
            bad_cred(),
        ),
        answered(
            "a credential cut off",
            "RFC 5531, 8.2",
            by(auth(1, 400, &[0; 100])),
            bad_cred(),
        ),
        answered(
            "AUTH_SYS of nothing",
            "RFC 5531, A",
            by(auth(1, 0, &[])),
            bad_cred(),
        ),
        answered(
            "AUTH_SYS with 17 groups",
            "RFC 5531, A",
            by({
                let body = Xdr::new().words(&[0, 0, 0, 0, 17]).words(&[0; 17]).done();
                auth(1, body.len() as u32, &body)
            }),
            bad_cred(),
        ),
        answered(
            "AUTH_SYS with 2^30 groups",
            "RFC 5531, A",
            by(auth(
                1,
                20,
                &Xdr::new().words(&[0, 0, 0, 0, 1 << 30]).done(),
            )),
            bad_cred(),
        ),
        answered(
            "AUTH_SYS with a name of 4 GiB",
            "RFC 5531, A",
            by(auth(
                1,
                20,
                &Xdr::new().words(&[0, u32::MAX, 0, 0, 0]).done(),
            )),
            bad_cred(),
        ),
        answered(
            "AUTH_SYS with more behind it",
            "RFC 5531, A",
            by(auth(1, 24, &Xdr::new().words(&[0; 6]).done())),
            bad_cred(),
        ),
        answered(
            "a verifier of 4 GiB",
            "RFC 5531, 8.2",
            Call {
                verifier: auth(0, u32::MAX, &[]),
                ..call()
            },
            denied(XID, &[1, 3]),
        ),
        answered(
            "a verifier of 401 bytes",
            "RFC 5531, 8.2",
            Call {
                verifier: auth(0, 401, &[0; 404]),
                ..call()
            },
            denied(XID, &[1, 3]),
        ),
        answered(
            "a call cut off behind its credential",
            "RFC 5531, 9",
            Call {
                verifier: (0, Vec::new()),
                ..call()
            },
            denied(XID, &[1, 3]),
        ),
        answered(
            "MNT of a path of 4 GiB",
            "RFC 1813, 5.2.1",
            Call {
                args: Xdr::new().word(u32::MAX).done(),
                ..of((rpc::MOUNT, 3, 1))
            },
            garbage_args(),
        ),
        answered(
            "MNT of a path longer than paths are",
            "RFC 1813, 5.2.1",
            Call {
                args: Xdr::new().opaque(&[b'/'; 1028]).done(),
                ..of((rpc::MOUNT, 3, 1))
            },
            garbage_args(),
        ),
    ]
}

fn nfs_level(file: &[u8]) -> Vec<Case> {
    let garbage = || refused(XID, &[GARBAGE_ARGS]);
    let bad_handle = || status(XID, BADHANDLE);
    // A handle of the right form may be one of another server key.
    let stale = || status(XID, STALE);
    let handle = |bytes: &[u8]| Xdr::new().opaque(bytes).done();
    let mut flipped = file.to_vec();
    flipped[file.len() / 2] ^= 1;
    let lookup = |length: u32, name: &[u8]| Xdr::new().opaque(file).word(length).raw(name).done();
    let write = |offset, count, length, data: &[u8]| {
        let out = Xdr::new()
            .opaque(file)
            .long(offset)
            .words(&[count, 2, length]);
        out.raw(data).done()
    };
    vec![
        nfs("GETATTR of nothing", 1, Vec::new(), garbage()),
        nfs(
            "a handle of 4 GiB",
            1,
            Xdr::new().word(u32::MAX).done(),
            garbage(),
        ),
        nfs("a handle of 68 bytes", 1, handle(&[0; 68]), garbage()),
        nfs(
            "a handle cut off",
            1,
            Xdr::new().word(64).raw(&[0; 32]).done(),
            garbage(),
        ),
        nfs("an empty handle", 1, handle(&[]), bad_handle()),
        nfs("a handle of zeroes", 1, handle(&[0; 32]), bad_handle()),
        nfs("a handle with one bit turned", 1, handle(&flipped), stale()),
        nfs(
            "a handle one byte short",
            1,
            handle(&file[..file.len() - 1]),
            stale(),
        ),
        nfs("a name of 4 GiB", 3, lookup(u32::MAX, b"name"), garbage()),
        nfs("a name cut off", 3, lookup(255, b"name"), garbage()),
        nfs(
            "a WRITE of 4 GiB",
            7,
            write(0, u32::MAX, u32::MAX, b"data"),
            garbage(),
        ),
        nfs(
            "a WRITE whose counts differ",
            7,
            write(0, 8, 4, b"data"),
            garbage(),
        ),
        nfs("a WRITE cut off", 7, write(0, 400, 400, b"data"), garbage()),
        nfs(
            "a WRITE of a kind of stability that there is not",
            7,
            {
                let out = Xdr::new().opaque(file).long(0).words(&[4, 3, 4]);
                out.raw(b"data").done()
            },
            garbage(),
        ),
        nfs(
            "a WRITE at the end of all files",
            7,
            write(u64::MAX - 1, 4, 4, b"data"),
            status(XID, FBIG),
        ),
        nfs(
            "SETATTR with a choice that there is not",
            2,
            Xdr::new().opaque(file).words(&[2, 0, 0, 0, 0, 0]).done(),
            garbage(),
        ),
        nfs(
            "READDIR of 4 GiB",
            16,
            {
                Xdr::new()
                    .opaque(file)
                    .long(0)
                    .long(0)
                    .word(u32::MAX)
                    .done()
            },
            status(XID, 20),
        ),
    ]
}

/// Returns the cases of XIDs and credits.
fn numbers(file: &[u8]) -> Vec<Case> {
    let chunk = memory(0, 8192);
    let write = |xid| super::client_reads::write(file, xid, &[chunk]);
    let asking = |credits| {
        let header = v1::Header {
            credits,
            ..v1::header(XID)
        };
        Send(header.with(&rpc::null(XID).bytes()))
    };
    let fetched = || Serve(chunk, crate::rig::content(5, 8192));
    vec![
        case(
            "an XID used again and again",
            "RFC 5531, 9",
            on(vec![Repeat(
                50,
                vec![Send(null(XID)), Hear(success(XID, &[]))],
            )]),
            Lives,
        ),
        case(
            "an XID used again before its call is answered",
            "RFC 5531, 9",
            on(vec![
                Burst(10, null(XID)),
                Repeat(10, vec![Hear(success(XID, &[]))]),
            ]),
            Lives,
        ),
        case(
            "a WRITE sent again",
            "RFC 5531, 8",
            on(vec![
                Send(write(0xd0b1e)),
                fetched(),
                Hear(success(0xd0b1e, &[0])),
                Send(write(0xd0b1e)),
                fetched(),
                Hear(success(0xd0b1e, &[0])),
            ]),
            Lives,
        ),
        case(
            "two WRITEs with one XID at a time",
            "RFC 5531, 8",
            on(vec![
                Send(write(0xd0b1f)),
                Send(write(0xd0b1f)),
                fetched(),
                fetched(),
                Hear(success(0xd0b1f, &[0])),
                Hear(success(0xd0b1f, &[0])),
            ]),
            Lives,
        ),
        case(
            "0 credits asked for",
            "RFC 8166, 3.3.1",
            on(vec![Repeat(20, vec![asking(0), Hear(success(XID, &[]))])]),
            Lives,
        ),
        case(
            "4294967295 credits asked for",
            "RFC 8166, 3.3.1",
            on(vec![Repeat(
                20,
                vec![asking(u32::MAX), Hear(success(XID, &[]))],
            )]),
            Lives,
        ),
        case(
            "as many calls at once as are granted",
            "RFC 8166, 3.3.1",
            on(vec![
                asking(u32::MAX),
                Hear(success(XID, &[])),
                Burst(16, null(1)),
                Repeat(16, vec![Hear(success(1, &[]))]),
            ]),
            Lives,
        ),
        case(
            "calls without end, and nobody takes the answers",
            "RFC 8166, 3.3.1",
            on(vec![Flood(200_000, null(1))]),
            Reset,
        )
        .costing(4 << 20),
        case(
            "bad headers without end, and nobody takes the answers",
            "RFC 8166, 4.5",
            on(vec![Flood(200_000, null(1)[..28].to_vec())]),
            Reset,
        )
        .costing(4 << 20),
        case(
            "messages to discard without end",
            "RFC 8166, 4.5",
            on(vec![Flood(5000, null(1)[..27].to_vec())]),
            Lives,
        ),
    ]
}
