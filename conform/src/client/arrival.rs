//! Rules that a message of a client keeps or breaks by itself.

use super::call::{Call, SYMLINK, WRITE, total};
use super::rules::{Findings, Rule};
use super::sizes::{data_room, fits_inline, longest_data, longest_reply};
use crate::wire::Reader;
use crate::wire::mpa;
use crate::wire::v1::{self, Header};

/// Looks at private data (RFC 8797, 4).
pub(super) fn private_data(findings: &mut Findings, private: &[u8]) {
    const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
    let found = private.windows(4).position(|it| it == MAGIC);
    // Without the identifier, it is private data of another format, or none.
    let Some(at) = found else {
        return;
    };
    let kept = matches!(private.get(at..at + 8), Some([_, _, _, _, 1, 0 | 1, _, _]));
    findings.look(Rule::PrivateData, kept, || {
        format!("private data {:02x?}", &private[at..])
    });
}

/// The sizes that apply to a connection, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Messages of the client.
    pub(super) calls: usize,
    /// Messages of the server.
    pub(super) replies: usize,
}

impl Thresholds {
    /// Returns the same size for both directions.
    pub(super) fn of(size: usize) -> Self {
        Self {
            calls: size,
            replies: size,
        }
    }
}

/// Looks at the length and the fixed fields of a message. Returns the header with what follows it, or what this server
/// answers instead of a reply, if anything.
pub(super) fn fixed_fields(
    findings: &mut Findings,
    message: &[u8],
    thresholds: Thresholds,
    has_spoken_one: bool,
) -> Result<(Header, Vec<u8>), Option<Vec<u8>>> {
    let length = message.len();
    findings.look(Rule::Threshold, length <= thresholds.calls, || {
        format!(
            "a message of {length} bytes, and the inline threshold is {}",
            thresholds.calls
        )
    });
    let mut from = Reader(message);
    let words = [(); 4].map(|()| from.word());
    let [Some(xid), Some(version), Some(_), Some(procedure)] = words else {
        findings.look(Rule::Header, false, || {
            format!("a message of {length} bytes")
        });
        return Err(None);
    };
    // Whether the client speaks other versions is not judged, as long as it has not heard of one.
    if version != 1 && !has_spoken_one {
        return Err(Some(refusal(xid, version)));
    }
    findings.look(Rule::Version, version == 1, || {
        format!("rdma_vers is {version} in a message with XID {xid:#x}")
    });
    if version != 1 {
        return Err(Some(refusal(xid, version)));
    }
    let obsolete = matches!(procedure, v1::MSGP | v1::DONE);
    findings.look(Rule::Obsolete, !obsolete, || {
        format!("procedure {procedure}, which is obsolete")
    });
    findings.look(Rule::Error, procedure != v1::ERROR, || {
        "RDMA_ERROR of a requester".to_owned()
    });
    if obsolete || procedure == v1::ERROR {
        return Err(None);
    }
    match v1::parse(message) {
        Some(v1::Message::Rpc(header, payload)) => {
            findings.look(Rule::Header, true, String::new);
            Ok((header, payload))
        }
        _ => {
            findings.look(Rule::Header, false, || {
                format!("a message of {length} bytes that cannot be parsed, with XID {xid:#x}")
            });
            Err(Some(v1::error(xid, version, &[v1::ERR_CHUNK])))
        }
    }
}

/// Returns the answer to another version.
fn refusal(xid: u32, version: u32) -> Vec<u8> {
    v1::error(xid, version, &[v1::ERR_VERS, 1, 1])
}

/// Looks at the chunks of a call that arrived whole.
pub(super) fn chunks(findings: &mut Findings, call: &Call, thresholds: Thresholds) {
    let xid = call.xid();
    let inside = call.header.xid;
    findings.look(Rule::Xid, inside == xid, || {
        format!("rdma_xid is {inside:#x}, and that of the RPC message {xid:#x}")
    });
    read_list(findings, call);
    write_chunk(findings, call);
    if let Some(longest) = longest_reply(call)
        && !fits_inline(call, longest, thresholds.replies)
    {
        let room = call.header.reply.as_ref().map(total);
        let text = || {
            let reply = format!(
                "the reply can have {longest} bytes, the inline threshold is {}",
                thresholds.replies
            );
            match room {
                Some(room) => format!("{reply}, and the Reply chunk has {room}"),
                None => format!("{reply}, and there is no Reply chunk"),
            }
        };
        findings.look(Rule::ReplyRoom, room >= Some(longest), text);
    }
}

/// Looks at the Write chunk of a READ.
fn write_chunk(findings: &mut Findings, call: &Call) {
    let (Some(room), Some(asked)) = (data_room(call), call.count()) else {
        return;
    };
    if !call.is(super::call::READ) {
        return;
    }
    let text = || format!("a Write chunk of {room} bytes for a READ of {asked}");
    findings.look(Rule::WriteRoom, room >= longest_data(asked), text);
    let asked = u64::from(asked);
    if asked % 4 != 0 {
        // More room than that has another reason, such as whole pages.
        let is_round_up = room == asked.next_multiple_of(4);
        findings.look(Rule::WriteRoundUp, !is_round_up, text);
    }
}

/// Looks at the Read list of a call.
fn read_list(findings: &mut Findings, call: &Call) {
    let reduced = call.reduced();
    let Some((position, _)) = reduced.first().copied() else {
        return;
    };
    for (position, _) in &reduced {
        findings.look(Rule::Aligned, position % 4 == 0, || {
            format!("a Read chunk at position {position}")
        });
    }
    let (program, version, procedure) = call.procedure;
    let is_one = reduced.iter().all(|it| it.0 == position);
    let is_eligible = is_one && (call.is(WRITE) || call.is(SYMLINK));
    findings.look(Rule::Eligible, is_eligible, || {
        let positions: Vec<u32> = reduced.iter().map(|it| it.0).collect();
        format!(
            "Read chunks at {positions:?} in a call of program {program}, version {version}, procedure {procedure}"
        )
    });
    let Some((at, length)) = call.data() else {
        return;
    };
    // An unaligned position is judged above.
    if position % 4 == 0 {
        findings.look(Rule::Position, position as usize == at, || {
            format!("a Read chunk at position {position}, and the data begins at {at}")
        });
    }
    let (room, length) = (
        total(reduced.iter().map(|(_, segment)| segment)),
        u64::from(length),
    );
    let padded = length.next_multiple_of(4);
    let text = || format!("a Read chunk of {room} bytes for data of {length}");
    findings.look(Rule::ReadLength, room == length || room == padded, text);
    findings.look(Rule::ReadRoundUp, room != padded || room == length, text);
}

/// Looks at RDMA_NOMSG before its message is fetched.
pub(super) fn long_call(findings: &mut Findings, header: &Header, behind: &[u8]) {
    let message = header.reads.iter().filter(|(position, _)| *position == 0);
    let message: Vec<_> = message.map(|(_, segment)| *segment).collect();
    let (has_chunk, inline) = (!message.is_empty(), behind.len());
    findings.look(Rule::NoMsg, has_chunk && inline == 0, || match has_chunk {
        true => format!("RDMA_NOMSG with {inline} bytes behind the header"),
        false => "RDMA_NOMSG without a position-zero Read chunk".to_owned(),
    });
    if has_chunk {
        let length = total(&message);
        findings.look(Rule::LongRoundUp, length % 4 == 0, || {
            format!("a position-zero Read chunk of {length} bytes")
        });
    }
}

/// Returns the sizes that apply between two peers with this private data (RFC 8797, 4.2). A client that says nothing has
/// not said how much it sends: the receives of the server bound its messages (RFC 8166, 3.5.3).
pub(super) fn thresholds(client: &[u8], server: &[u8]) -> Thresholds {
    use crate::private_data::{receive_size, send_size, settings};
    let said = settings(client).map(|_| send_size(client));
    Thresholds {
        calls: said.unwrap_or(usize::MAX).min(receive_size(server)),
        replies: send_size(server).min(receive_size(client)),
    }
}

/// Returns whether this private data says that remote invalidation is supported (RFC 8797, 4.1).
pub(super) fn invalidates(private: &[u8]) -> bool {
    crate::private_data::settings(private).is_some_and(|[flags, ..]| flags & 1 != 0)
}

/// The private data of an honest server.
pub(super) const USUAL: &[u8] = &mpa::PRIVATE_DATA;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;
    use crate::wire::v1::{header, segment};

    /// The rules that a WRITE of 6001 bytes with this Read list breaks.
    fn broken(reads: &[(u32, v1::Segment)]) -> Vec<Rule> {
        let payload = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, 6001)).bytes();
        let header = Header {
            reads: reads.to_vec(),
            ..header(7)
        };
        let call = Call::new(header, payload).unwrap();
        let mut findings = Findings::default();
        let sizes = thresholds(USUAL, USUAL);
        chunks(&mut findings, &call, sizes);
        let rules = [
            Rule::Aligned,
            Rule::Position,
            Rule::ReadLength,
            Rule::ReadRoundUp,
            Rule::Eligible,
        ];
        let is_broken = |rule: &Rule| findings.broken(*rule).is_some();
        rules.into_iter().filter(is_broken).collect()
    }

    #[test]
    fn each_rule_of_read_chunks_is_broken_alone() {
        let at = rpc::nfs(7, WRITE, rpc::write_args(&[1; 8], 0, 6001)).bytes();
        let at = at.len() as u32;
        let whole = |length| segment(1, length, 0);
        assert_eq!(broken(&[(at, whole(6001))]), []);
        assert_eq!(
            broken(&[(at, whole(6000)), (at, whole(1))]),
            [],
            "two segments"
        );
        assert_eq!(broken(&[(at, whole(6004))]), [Rule::ReadRoundUp]);
        assert_eq!(broken(&[(at, whole(6008))]), [Rule::ReadLength]);
        assert_eq!(broken(&[(at + 4, whole(6001))]), [Rule::Position]);
        assert_eq!(broken(&[(at + 1, whole(6001))]), [Rule::Aligned]);
        let two = [(at, whole(6001)), (at + 8, whole(4))];
        assert!(broken(&two).contains(&Rule::Eligible));
    }

    #[test]
    fn the_room_of_a_read_is_for_what_it_can_return() {
        let broken = |count, room| {
            let payload = rpc::nfs(
                7,
                crate::client::call::READ,
                rpc::read_args(&[1; 8], 0, count),
            );
            let header = Header {
                writes: vec![vec![segment(1, room, 0)]],
                ..header(7)
            };
            let call = Call::new(header, payload.bytes()).unwrap();
            let mut findings = Findings::default();
            chunks(&mut findings, &call, thresholds(USUAL, USUAL));
            let rules = [Rule::WriteRoom, Rule::WriteRoundUp];
            rules.map(|rule| findings.broken(rule).is_some())
        };
        assert_eq!(broken(6001, 6001), [false, false]);
        assert_eq!(broken(6001, 6000), [true, false]);
        assert_eq!(broken(6001, 6004), [false, true]);
        // A whole page; a count that needs no round-up; a count above rtmax.
        assert_eq!(broken(6001, 8192), [false, false]);
        assert_eq!(broken(6000, 6004), [false, false]);
        assert_eq!(broken(65_536, 8192), [false, false]);
        assert_eq!(broken(65_536, 8191), [true, false]);
    }

    #[test]
    fn a_client_that_says_nothing_is_bound_by_the_receives_of_the_server() {
        let long = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 255, 255];
        let calls = |client: &[u8], server: &[u8]| thresholds(client, server).calls;
        assert_eq!(calls(&[], &long), 256 << 10);
        assert_eq!(calls(USUAL, &long), 4096);
        assert_eq!(calls(&[], USUAL), 4096);
        assert_eq!(calls(&[], &[]), 1024);
        assert_eq!(thresholds(&[], &long).replies, 1024);
    }

    #[test]
    fn private_data_of_another_format_is_not_judged() {
        let mut findings = Findings::default();
        private_data(&mut findings, &[1, 2, 3]);
        assert!(!findings.looked(Rule::PrivateData));
        private_data(&mut findings, USUAL);
        assert!(findings.looked(Rule::PrivateData));
        assert_eq!(findings.broken(Rule::PrivateData), None);
        private_data(&mut findings, &[0xf6, 0xab, 0x0e, 0x18, 1, 2, 3, 3]);
        assert!(findings.broken(Rule::PrivateData).is_some());
    }
}
