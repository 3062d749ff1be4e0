//! Replies to calls by ROPT_XMTREQ (rtrext-00, 7.4 and 9.3).

use super::group::{Direction, EXRW, Request, TBSN};
use crate::client::answer::{Place, placed};
use crate::client::call::{Call, READ, total};
use crate::client::changes::{self, Wrong};
use crate::client::nfs::Results;
use crate::client::placed::Target;
use crate::wire::rpc;
use crate::wire::v1::Segment;
use crate::wire::v2::{self, OPERATION, REPLY, XMTRESP};

/// XMDTYPE_TOOSHORT and XMDTYPE_NOITEM.
const TOOSHORT: u32 = 5;
const NOITEM: u32 = 6;

/// A reply: the RDMA Writes before it, and the message.
pub(in crate::client) struct Reply {
    pub(in crate::client) places: Vec<Place>,
    pub(in crate::client) message: Vec<u8>,
    /// Set if Sends place its data.
    pub(in crate::client) is_placed: bool,
}

/// The way that data goes.
enum Way {
    Target(Target, u32),
    Memory(Vec<Segment>, Vec<Place>),
    Inline,
}

/// Returns the reply to a call by ROPT_XMTREQ, in one transmission of at most `longest` bytes, or `None` if it has no
/// place.
pub(in crate::client) fn transmitted(
    call: &Call,
    results: &Results,
    request: &Request,
    targets: &[Target],
    longest: usize,
) -> Option<Reply> {
    let xid = call.xid();
    let mut payload = rpc::accepted(xid, results.accepted, &results.head);
    let data = results
        .data
        .as_deref()
        .filter(|it| call.is(READ) && !it.is_empty());
    let mut info = vec![request.directions.len() as u32];
    let position = payload.len() as u32;
    let mut directions = request.directions.iter();
    let mut way = Way::Inline;
    if let (Some(data), Some(direction)) = (data, directions.next()) {
        way = chosen(direction, data, targets, payload.len());
        let length = data.len() as u32;
        match &way {
            Way::Target(_, number) => info.extend([position, length, TBSN, 0, 1, *number]),
            Way::Memory(segments, _) => {
                info.extend([position, length, EXRW, segments.len() as u32]);
                for it in segments {
                    let (high, low) = ((it.offset >> 32) as u32, it.offset as u32);
                    info.extend([it.handle, it.length, high, low]);
                }
            }
            Way::Inline => info.extend([0, 0, TOOSHORT]),
        }
    }
    for _ in directions {
        info.extend([0, 0, NOITEM]);
    }
    if let Way::Inline = way {
        payload.extend(results.data.iter().flatten());
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    info.extend([1, payload.len() as u32]);
    let mut message = v2::operation(xid, REPLY, XMTRESP, &info, &payload);
    let mut places = Vec::new();
    let is_placed = matches!(way, Way::Target(..));
    match way {
        Way::Target(target, _) if message.len() > target.start => return None,
        Way::Target(target, _) => {
            message.resize(target.start, 0);
            message.extend(data.unwrap_or_default());
        }
        Way::Memory(_, written) => places = written,
        Way::Inline => {}
    }
    (is_placed || message.len() <= longest).then_some(Reply {
        places,
        message,
        is_placed,
    })
}

fn chosen(direction: &Direction, data: &[u8], targets: &[Target], payload: usize) -> Way {
    if (data.len() as u64) < u64::from(direction.least) {
        return Way::Inline;
    }
    // The fixed words, one item, and the last two.
    let head = OPERATION + 4 * 9 + payload;
    let is_open = |it: &&Target| it.start >= head && it.length >= data.len();
    let target = (0..).zip(targets).find(|(_, it)| is_open(it));
    match (direction.kind, target) {
        (kind, Some((number, target))) if kind != EXRW => Way::Target(*target, number),
        _ if total(&direction.chunk) >= data.len() as u64 => {
            let mut places = Vec::new();
            let filled = placed(&direction.chunk, data, &mut places);
            Way::Memory(filled, places)
        }
        _ => Way::Inline,
    }
}

/// Changes a field of a reply with placed data to the value whose turn it is. `target` is the length of a target, bytes.
/// Returns false if that cannot be.
pub(in crate::client) fn spoil(reply: &mut Reply, name: &str, target: u32, count: usize) -> bool {
    spoilt(&reply.message, name, target, count)
        .map(|message| reply.message = message)
        .is_some()
}

fn spoilt(message: &[u8], name: &str, target: u32, count: usize) -> Option<Vec<u8>> {
    let info = v2::parse(message)?.info;
    let head = OPERATION + 4 * info.len();
    let room = u32::try_from(message.len().checked_sub(head)?).ok()?;
    let all = changes::response(&info, room, target)?;
    let wrong = Wrong::in_turn(&all, name, count)?;
    let mut changed = message.to_vec();
    wrong.put(changed.get_mut(OPERATION..)?).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1;
    use crate::wire::v2::parse;

    const TARGET: Target = Target {
        start: 1024,
        length: 65_536,
    };

    /// Returns the reply to a READ of so many bytes by a request with these words, which returns as many.
    fn reply(length: usize, info: &[u32]) -> Option<Reply> {
        let read = rpc::nfs(7, READ, rpc::read_args(&[1; 8], 0, 8192)).bytes();
        let call = Call::new(v1::header(7), read).unwrap();
        let results = Results {
            accepted: 0,
            head: vec![0; 104],
            data: Some(vec![9; length]),
        };
        let request = Request::decoded(info).unwrap();
        transmitted(&call, &results, &request, &[TARGET], 4096)
    }

    #[test]
    fn data_goes_the_way_of_its_direction() {
        let by_sends = [0, 1, 0, 100, 1, 0, TBSN, 1, 0, 100];
        let placed = reply(5000, &by_sends).unwrap();
        assert_eq!(placed.message.len(), 1024 + 5000);
        let info = parse(&placed.message).unwrap().info;
        assert_eq!(info, [1, 128, 5000, TBSN, 0, 1, 0, 1, 128]);
        let by_writes = [0, 1, 0, 100, 1, 0, EXRW, 1, 0x51, 8192, 0, 0, 1, 0, 100];
        let written = reply(5000, &by_writes).unwrap();
        assert_eq!(written.places, [(0x51, 0, vec![9; 5000])]);
        let info = parse(&written.message).unwrap().info;
        assert_eq!(info, [1, 128, 5000, EXRW, 1, 0x51, 5000, 0, 0, 1, 128]);
        // What is shorter than the direction says stays inline, and so does what has none.
        let least = [0, 1, 0, 100, 1, 101, TBSN, 1, 0, 100];
        let short = reply(100, &least).unwrap();
        assert_eq!(
            parse(&short.message).unwrap().info,
            [1, 0, 0, TOOSHORT, 1, 228]
        );
        let none = [0, 0, 1, 0, 100];
        assert!(!reply(100, &none).unwrap().is_placed);
        assert!(reply(5000, &none).is_none());
    }

    #[test]
    fn each_wrong_value_comes_in_its_turn() {
        let by_sends = [0, 1, 0, 100, 1, 0, TBSN, 1, 0, 100];
        let offset = |count| {
            let mut wrong = reply(5000, &by_sends).unwrap();
            let is_changed = spoil(&mut wrong, "xmdl_offset", 65_536, count);
            is_changed.then(|| parse(&wrong.message).unwrap().info[4])
        };
        let expected = [1, 2, 4, u32::MAX, 1].map(Some);
        assert_eq!([0, 1, 2, 3, 4].map(offset), expected);
        let mut right = reply(5000, &by_sends).unwrap();
        assert!(!spoil(&mut right, "none", 65_536, 0));
    }
}
