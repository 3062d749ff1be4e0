//! Invalid RPC and NFS replies of a hostile server (RFC 5531, RFC 1813), and silence.

use crate::End::{Lives, Reset};
use crate::server::{Answer, Ask, Case, Outcome, Step::*, case};
use crate::wire::Xdr;
use crate::wire::rpc;

/// Returns a case with an RPC reply that determines how the call ends.
fn rpc(name: &'static str, outcome: Outcome, lie: fn(&mut Answer)) -> Case {
    let case = case(
        name,
        "RFC 5531, 9",
        Ask::Null,
        vec![Hear, Answer(lie)],
        Lives,
    );
    case.ending(outcome).relayed(outcome)
}

/// Returns a case with results that determine how the call ends.
fn nfs(name: &'static str, ask: Ask, outcome: Outcome, lie: fn(&mut Answer)) -> Case {
    let case = case(name, "RFC 1813, 3.3", ask, vec![Hear, Answer(lie)], Lives);
    case.ending(outcome).relayed(outcome)
}

/// Replaces the reply with its XID and these words.
fn words(answer: &mut Answer, words: &[u32]) {
    answer.payload = Xdr::new().word(answer.header.xid).words(words).done();
}

/// Replaces the reply with MSG_ACCEPTED, SUCCESS, and these words.
fn results(answer: &mut Answer, words: &[u32]) {
    let words = Xdr::new().words(words).done();
    answer.payload = rpc::accepted(answer.header.xid, 0, &words);
}

pub(super) fn cases() -> Vec<Case> {
    use Outcome::{Nonsense, Protocol, Refused, Status, TimedOut};
    vec![
        // An XID has a meaning only with the message type behind it, and only a reply is matched
        // with a call (RFC 8167, section 2.4). The first of these messages is a call of the server,
        // which may have the same XID; the next two are no messages, and their credits do not count
        // either (section 4.1). None answers the call or returns its credit; the call times out,
        // and the connection with it.
        rpc("an answer that is a call", TimedOut, |a| {
            words(a, &[0, 2, 100_003, 3, 0, 0, 0, 0, 0])
        }),
        rpc("an answer that is neither", TimedOut, |a| {
            words(a, &[2, 0, 0, 0, 0])
        }),
        rpc("an XID and no more", TimedOut, |a| words(a, &[])),
        rpc("an answer cut off", Protocol, |a| words(a, &[1, 0, 0])),
        rpc("neither accepted nor denied", Protocol, |a| {
            words(a, &[1, 2, 0, 0, 0])
        }),
        rpc("a verifier of 4 GiB", Protocol, |a| {
            words(a, &[1, 0, 0, u32::MAX, 0])
        }),
        rpc("a verifier of 404 bytes", Protocol, |a| {
            let mut all = vec![1, 0, 0, 404];
            all.extend([0; 102]);
            words(a, &all);
        }),
        rpc("a verifier cut off", Protocol, |a| {
            words(a, &[1, 0, 0, 400, 0])
        }),
        rpc("accepted, with a status that there is not", Protocol, |a| {
            words(a, &[1, 0, 0, 0, 6])
        }),
        rpc("denied, for a reason that there is not", Protocol, |a| {
            words(a, &[1, 1, 2, 0, 0])
        }),
        rpc("PROG_MISMATCH cut off", Protocol, |a| {
            words(a, &[1, 0, 0, 0, 2, 4])
        }),
        rpc("PROG_UNAVAIL", Refused, |a| words(a, &[1, 0, 0, 0, 1])),
        rpc("PROG_MISMATCH for versions 9 to 2", Refused, |a| {
            words(a, &[1, 0, 0, 0, 2, 9, 2])
        }),
        rpc("PROC_UNAVAIL", Refused, |a| words(a, &[1, 0, 0, 0, 3])),
        rpc("GARBAGE_ARGS", Refused, |a| words(a, &[1, 0, 0, 0, 4])),
        rpc("SYSTEM_ERR", Refused, |a| words(a, &[1, 0, 0, 0, 5])),
        rpc("RPC_MISMATCH", Refused, |a| words(a, &[1, 1, 0, 3, 4])),
        rpc("AUTH_ERROR of a kind that there is not", Refused, |a| {
            words(a, &[1, 1, 1, 4711])
        }),
        rpc("results where there are none", Protocol, |a| {
            results(a, &[0; 100])
        }),
        nfs("a status that there is not", Ask::Read, Status(4711), |a| {
            a.header.writes.clear();
            results(a, &[4711, 0]);
        }),
        nfs(
            "a failure, and data in the chunk all the same",
            Ask::Read,
            Protocol,
            |a| {
                results(a, &[5, 0]);
            },
        )
        // The gateway cannot put the data where the message has it.
        .relayed(Refused),
        nfs(
            "a failure without its attributes",
            Ask::Read,
            Protocol,
            |a| {
                a.header.writes.clear();
                results(a, &[5]);
            },
        ),
        nfs(
            "attributes that are there twice over",
            Ask::Read,
            Protocol,
            |a| {
                results(a, &[0, 2, 8192, 1, 8192]);
            },
        ),
        nfs("data of 4 GiB", Ask::Read, Protocol, |a| {
            results(a, &[0, 0, 8192, 1, u32::MAX])
        })
        .relayed(Refused),
        nfs("data of 4 GiB inline", Ask::Read, Protocol, |a| {
            a.header.writes.clear();
            results(a, &[0, 0, 8192, 1, u32::MAX, 1, 2, 3]);
        }),
        nfs("more data than was asked for", Ask::Read, Nonsense, |a| {
            results(a, &[0, 0, 8193, 1, 8192]);
        }),
        nfs("less data than it says", Ask::Read, Nonsense, |a| {
            results(a, &[0, 0, 4096, 1, 8192]);
        }),
        nfs("no data, and no end", Ask::Read, Nonsense, |a| {
            a.header.writes.clear();
            results(a, &[0, 0, 0, 0, 0]);
        }),
        // RFC 8166, section 6.1.
        nfs("data inline instead", Ask::Read, Protocol, |a| {
            // The part of it that fits inline; the chunk is unused.
            let data = crate::rig::content(crate::server::DATA_SEED, 8192);
            a.places.clear();
            a.header.writes.clear();
            let all = Xdr::new()
                .words(&[0, 0, 1024, 1])
                .opaque(&data[..1024])
                .done();
            a.payload = rpc::accepted(a.header.xid, 0, &all);
        })
        // To a client over TCP, where all data is inline, less is returned than it asked for.
        .relayed(Nonsense),
        nfs("more written than was sent", Ask::Write, Nonsense, |a| {
            results(a, &[0, 0, 0, u32::MAX, 2, 5, 5]);
        }),
        nfs("nothing written, and no error", Ask::Write, Nonsense, |a| {
            results(a, &[0, 0, 0, 0, 2, 5, 5]);
        }),
        nfs(
            "written, and not where it is safe",
            Ask::Write,
            Nonsense,
            |a| {
                results(a, &[0, 0, 0, 8192, 0, 5, 5]);
            },
        ),
        nfs(
            "written, to a stability that there is not",
            Ask::Write,
            Protocol,
            |a| {
                results(a, &[0, 0, 0, 8192, 3, 5, 5]);
            },
        ),
        nfs("a listing that never ends", Ask::List, Nonsense, |a| {
            listing(a, &[0, 0])
        }),
        // Each reply is valid on its own: an entry with another cookie than the previous one. RFC
        // 1813, section 3.3.16, leaves the handling to the client.
        case(
            "cookies that go round in a circle of two",
            "RFC 1813, 3.3.16",
            Ask::List,
            (0..CIRCLE)
                .flat_map(|n| [Hear, Answer(around(n))])
                .collect(),
            Lives,
        )
        .ending(Nonsense),
        nfs("a name of 4 GiB", Ask::List, Protocol, |a| {
            listing(a, &[1, 0, 7, u32::MAX])
        }),
        nfs("an entry that leads upwards", Ask::List, Nonsense, |a| {
            listing(a, &[1, 0, 7, 4, u32::from_be_bytes(*b"../x"), 0, 1, 0, 1]);
        }),
        nfs("a list that goes on with 2", Ask::List, Protocol, |a| {
            listing(a, &[2, 0, 7])
        }),
        nfs("entries without end", Ask::List, Protocol, |a| {
            listing(
                a,
                &[1, 0, 7, 1, u32::from_be_bytes(*b"a\0\0\0"), 0, 1].repeat(100),
            );
        }),
        case(
            "silence instead of an answer",
            "RFC 5531, 4",
            Ask::Null,
            vec![Hear],
            Reset,
        )
        .ending(TimedOut),
        case(
            "silence in the middle of an answer",
            "RFC 5531, 4",
            Ask::Null,
            vec![Hear, Bytes(vec![0, 60, 0x41, 0x43, 0, 0])],
            Reset,
        )
        .ending(TimedOut),
    ]
}

/// The number of replies after which the client has detected a circle of two.
const CIRCLE: usize = 4;

/// Returns a listing of one entry, whose cookie is alternately 1 and 2, without an end.
fn around(answer: usize) -> fn(&mut Answer) {
    match answer % 2 {
        0 => |a| {
            listing(
                a,
                &[1, 0, 7, 1, u32::from_be_bytes(*b"a\0\0\0"), 0, 1, 0, 0],
            )
        },
        _ => |a| {
            listing(
                a,
                &[1, 0, 8, 1, u32::from_be_bytes(*b"b\0\0\0"), 0, 2, 0, 0],
            )
        },
    }
}

/// Sets a reply to READDIR: status, attributes, cookie verifier, and these words.
fn listing(answer: &mut Answer, words: &[u32]) {
    let all = Xdr::new().words(&[0, 0, 0, 0]).words(words).done();
    let message = rpc::accepted(answer.header.xid, 0, &all);
    let length = message.len() as u32;
    for (n, segment) in answer.header.reply.iter_mut().flatten().enumerate() {
        segment.length = if n == 0 { length } else { 0 };
    }
    answer.places.truncate(1);
    answer.places[0].2 = message;
}
