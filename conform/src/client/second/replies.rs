//! Replies to calls by ROPT_XMTREQ (rtrext-00, 7.4 and 9.3).

use super::group::{BYSIZE, Direction, EXRW, Request, TBSN};
use super::spread::{Used, spread};
use crate::client::answer::{Place, placed};
use crate::client::call::{Call, READ, total};
use crate::client::changes::{self, Wrong};
use crate::client::nfs::Results;
use crate::client::placed::Target;
use crate::wire::rpc;
use crate::wire::v1::Segment;
use crate::wire::v2::{self, OPERATION, REPLY, XMTCONT, XMTRESP};

/// XMDTYPE_TOOSHORT and XMDTYPE_NOITEM.
const TOOSHORT: u32 = 5;
const NOITEM: u32 = 6;
/// The header of ROPT_XMTCONT, bytes.
const CONTINUATION: usize = OPERATION + 12;
/// The most transmissions of a reply. This end has told it as its limit.
const MOST: u32 = 64;

/// A reply: the RDMA Writes before it, and its transmissions.
pub(in crate::client) struct Reply {
    pub(in crate::client) places: Vec<Place>,
    /// The first transmission, ROPT_XMTRESP.
    pub(in crate::client) message: Vec<u8>,
    /// The others, ROPT_XMTCONT.
    pub(in crate::client) rest: Vec<Vec<u8>>,
    /// Set if Sends place its data.
    pub(in crate::client) is_placed: bool,
    /// The length of the target that has all of the data, if there is one, and the reply has one transmission with no
    /// other item.
    pub(in crate::client) target: Option<u32>,
}

/// Returns the reply to a call by ROPT_XMTREQ, in transmissions of at most `longest` bytes, or `None` if it has no
/// place.
pub(in crate::client) fn transmitted(
    call: &Call,
    results: &Results,
    request: &Request,
    targets: &[Target],
    longest: usize,
) -> Option<Reply> {
    // Data of no byte uses up no direction.
    let data = results.data.as_deref();
    let data = data.filter(|it| call.is(READ) && !it.is_empty());
    let form = Form {
        xid: call.xid(),
        results: rpc::accepted(call.xid(), results.accepted, &results.head),
        data: data.unwrap_or_default(),
        directions: &request.directions,
        targets,
        longest,
    };
    // `optxrq_rsbuf` counts all transmissions by 5.2, and those behind the first one by 4.3. What both allow comes first.
    let reserved = request.reserved;
    let counts = [reserved.max(1), reserved.saturating_add(1)];
    counts.iter().find_map(|most| form.reply((*most).min(MOST)))
}

/// The parts of a reply.
struct Form<'a> {
    xid: u32,
    /// The RPC message without the data.
    results: Vec<u8>,
    data: &'a [u8],
    directions: &'a [Direction],
    targets: &'a [Target],
    longest: usize,
}

impl Form<'_> {
    /// Returns the reply in at most so many transmissions.
    fn reply(&self, most: u32) -> Option<Reply> {
        let direction = self.directions.first().filter(|_| !self.data.is_empty());
        let length = self.data.len() as u64;
        let Some(direction) = direction.filter(|it| length >= u64::from(it.least)) else {
            return self.inline(most);
        };
        let in_targets = || match direction.kind {
            EXRW => None,
            _ => self.in_targets(most),
        };
        let in_memory = || self.in_memory(direction);
        // With BYSIZE, this is the longest item that Sends place (`drafts/errata.md`).
        let is_written = direction.kind == BYSIZE && length > u64::from(direction.longest_placed);
        let directed = match is_written {
            true => in_memory().or_else(in_targets),
            false => in_targets().or_else(in_memory),
        };
        directed.or_else(|| self.inline(most))
    }

    /// Returns the information of ROPT_XMTRESP. `item` stands behind the position and the length of the data.
    fn info(&self, item: &[u32], count: u32, payload: usize) -> Vec<u32> {
        let mut info = vec![self.directions.len() as u32];
        let mut unused = self.directions.len();
        if !item.is_empty() {
            info.extend([self.results.len() as u32, self.data.len() as u32]);
            info.extend(item);
            unused = unused.saturating_sub(1);
        }
        for _ in 0..unused {
            info.extend([0, 0, NOITEM]);
        }
        info.extend([count, payload as u32]);
        info
    }

    fn first(&self, info: &[u32], payload: &[u8]) -> Vec<u8> {
        v2::operation(self.xid, REPLY, XMTRESP, info, payload)
    }

    fn continuation(&self, number: usize, payload: &[u8]) -> Vec<u8> {
        let info = [number as u32, XMTRESP, payload.len() as u32];
        v2::operation(self.xid, REPLY, XMTCONT, &info, payload)
    }

    /// Returns the reply with its data in targets.
    fn in_targets(&self, most: u32) -> Option<Reply> {
        let payload = self.results.len();
        let head = |count: usize| {
            let item = vec![0; 3 + count];
            OPERATION + 4 * self.info(&item, 0, 0).len() + payload
        };
        let heads = (&head as &dyn Fn(usize) -> usize, CONTINUATION);
        let used = spread(self.targets, heads, most as usize, self.data.len())?;
        let count = used.last()?.transmission + 1;
        let mut item = vec![TBSN, 0, used.len() as u32];
        item.extend(used.iter().map(|it| it.number(self.targets) as u32));
        let info = self.info(&item, count as u32, payload);
        let mut messages = vec![self.first(&info, &self.results)];
        messages.extend((1..count).map(|number| self.continuation(number, &[])));
        let mut left = self.data;
        for Used {
            transmission,
            start,
            length,
            ..
        } in used.iter().copied()
        {
            let message = messages.get_mut(transmission)?;
            let (now, later) = left.split_at_checked(length)?;
            message.resize(start, 0);
            message.extend(now);
            left = later;
        }
        let rest = messages.split_off(1);
        let message = messages.pop()?;
        let is_one = rest.is_empty() && used.len() == 1 && self.directions.len() == 1;
        let first = self.targets.get(used.first()?.target)?;
        // The client need not receive longer ones, whatever its structure says.
        let is_short = [&message]
            .into_iter()
            .chain(&rest)
            .all(|it| it.len() <= self.longest);
        is_short.then_some(Reply {
            places: Vec::new(),
            message,
            rest,
            is_placed: true,
            target: u32::try_from(first.length).ok().filter(|_| is_one),
        })
    }

    /// Returns the reply with its data in the memory of a direction.
    fn in_memory(&self, direction: &Direction) -> Option<Reply> {
        if total(&direction.chunk) < self.data.len() as u64 {
            return None;
        }
        let mut places = Vec::new();
        let filled: Vec<Segment> = placed(&direction.chunk, self.data, &mut places);
        let mut item = vec![EXRW, filled.len() as u32];
        for it in filled {
            let (high, low) = ((it.offset >> 32) as u32, it.offset as u32);
            item.extend([it.handle, it.length, high, low]);
        }
        let info = self.info(&item, 1, self.results.len());
        let message = self.first(&info, &self.results);
        (message.len() <= self.longest).then_some(Reply {
            places,
            message,
            rest: Vec::new(),
            is_placed: false,
            target: None,
        })
    }

    /// Returns the reply with its data in the payload.
    fn inline(&self, most: u32) -> Option<Reply> {
        let has_item = !self.data.is_empty() && !self.directions.is_empty();
        let item: &[u32] = if has_item { &[TOOSHORT] } else { &[] };
        let mut payload = [&self.results, self.data].concat();
        payload.resize(payload.len().next_multiple_of(4), 0);
        let head = OPERATION + 4 * self.info(item, 0, 0).len();
        // In words, as XDR has it.
        let room = |head: usize| self.longest.checked_sub(head).map(|it| it & !3);
        let (now, later) = payload.split_at(payload.len().min(room(head)?));
        let parts: Vec<&[u8]> = match room(CONTINUATION).filter(|it| *it > 0) {
            Some(room) => later.chunks(room).collect(),
            None if later.is_empty() => Vec::new(),
            None => return None,
        };
        let count = u32::try_from(parts.len()).ok()?.checked_add(1)?;
        let info = self.info(item, count, now.len());
        let numbered = parts.iter().enumerate();
        (count <= most).then(|| Reply {
            places: Vec::new(),
            message: self.first(&info, now),
            rest: numbered
                .map(|(at, part)| self.continuation(at + 1, part))
                .collect(),
            is_placed: false,
            target: None,
        })
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

    /// Returns the reply to a READ that returns so many bytes, by a request with these words.
    fn reply_in(length: usize, info: &[u32], targets: &[Target]) -> Option<Reply> {
        let read = rpc::nfs(7, READ, rpc::read_args(&[1; 8], 0, 8192)).bytes();
        let call = Call::new(v1::header(7), read).unwrap();
        let results = Results {
            accepted: 0,
            head: vec![0; 104],
            data: Some((0..length).map(|it| it as u8).collect()),
        };
        let request = Request::decoded(info).unwrap();
        let longest = targets.last().map_or(4096, |it| it.start + it.length);
        transmitted(&call, &results, &request, targets, longest)
    }

    fn reply(length: usize, info: &[u32]) -> Option<Reply> {
        reply_in(length, info, &[TARGET])
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
        let data: Vec<u8> = (0..5000).map(|it| it as u8).collect();
        assert_eq!(written.places, [(0x51, 0, data)]);
        let info = parse(&written.message).unwrap().info;
        assert_eq!(info, [1, 128, 5000, EXRW, 1, 0x51, 5000, 0, 0, 1, 128]);
        // What is shorter than the direction says stays inline, and so does what has none.
        let least = [0, 1, 0, 100, 1, 101, TBSN, 1, 0, 100];
        let short = reply(100, &least).unwrap();
        assert_eq!(
            parse(&short.message).unwrap().info,
            [1, 128, 100, TOOSHORT, 1, 228]
        );
        let none = [0, 0, 1, 0, 100];
        assert!(!reply(100, &none).unwrap().is_placed);
        assert!(reply_in(5000, &none, &[]).is_none());
        // Data of no byte is no item.
        let empty = reply(0, &by_sends).unwrap();
        assert_eq!(
            parse(&empty.message).unwrap().info,
            [1, 0, 0, NOITEM, 1, 128]
        );
    }

    #[test]
    fn a_direction_by_size_says_which_data_is_written() {
        let by_size = |longest| {
            let chunk = [1, 0x51, 8192, 0, 0];
            let direction = [0, 1, 0, 100, 1, 0, BYSIZE, longest];
            [&direction[..], &chunk, &[1, 0, 100]].concat()
        };
        assert!(reply(5000, &by_size(5000)).unwrap().is_placed);
        let longer = reply(5000, &by_size(4999)).unwrap();
        assert!(!longer.is_placed && longer.places.len() == 1);
    }

    /// A target of 4096 bytes.
    const SHORT: Target = Target {
        start: 1024,
        length: 4096,
    };

    #[test]
    fn data_takes_as_many_transmissions_as_are_reserved_for() {
        let by_sends = |reserved| [0, 1, 0, 100, 1, 0, TBSN, 1, reserved, 100];
        let placed = reply_in(8192, &by_sends(2), &[SHORT]).unwrap();
        assert_eq!(placed.rest.len(), 1);
        assert!(placed.is_placed && placed.target.is_none());
        let info = parse(&placed.message).unwrap().info;
        assert_eq!(info, [1, 128, 8192, TBSN, 0, 2, 0, 1, 2, 128]);
        let last = parse(&placed.rest[0]).unwrap();
        assert_eq!(
            (last.opttype, &last.info[..]),
            (XMTCONT, &[1, XMTRESP, 0][..])
        );
        let data = [&placed.message[1024..], &placed.rest[0][1024..]].concat();
        assert!(data.iter().zip(0_usize..).all(|(it, at)| *it == at as u8));
        assert_eq!(data.len(), 8192);
        // By 4.3, one is reserved for beside the first.
        assert!(reply_in(8192, &by_sends(1), &[SHORT]).is_some());
        assert!(reply_in(8192, &by_sends(0), &[SHORT]).is_none());
        // Two targets in one message need no other.
        let second = Target {
            start: 5120,
            length: 4096,
        };
        let one = reply_in(8192, &by_sends(0), &[SHORT, second]).unwrap();
        let info = parse(&one.message).unwrap().info;
        assert_eq!(info, [1, 128, 8192, TBSN, 0, 2, 0, 1, 1, 128]);
        assert!(one.rest.is_empty() && one.target.is_none());
    }

    #[test]
    fn a_payload_takes_as_many_transmissions_as_are_reserved_for() {
        let none = |reserved| [0, 0, 1, reserved, 100];
        let inline = reply_in(8191, &none(3), &[]).unwrap();
        let first = parse(&inline.message).unwrap();
        assert_eq!(first.info[..2], [0, 3]);
        assert_eq!(first.info[2] as usize, first.rest.len());
        let mut payload = first.rest;
        for (part, number) in inline.rest.iter().zip(1..) {
            let part = parse(part).unwrap();
            let length = part.rest.len() as u32;
            assert_eq!(part.info, [number, XMTRESP, length]);
            payload.extend(part.rest);
        }
        assert_eq!(payload.len(), 128 + 8192);
        let messages = [&inline.message].into_iter().chain(&inline.rest);
        assert!(messages.clone().count() == 3 && messages.clone().all(|it| it.len() <= 4096));
        assert!(reply_in(8191, &none(1), &[]).is_none());
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
