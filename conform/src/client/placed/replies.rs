//! Properties of a server that places data, and its placed replies (send-placement-00, 3, 4.3, 4.4 and 5).

use super::layout::{Element, Target};
use crate::client::case::Placing;
use crate::client::changes::{self, Wrong};
use crate::wire::rpc;
use crate::wire::wg::{
    self, CONNPROP_FINAL, CONNPROP_MIDDLE, INTRODUCTION, PREFIX, REPLY_PLACED, REPLY_PLACED_MIDDLE,
    STRUCTURE, SUPPORT, introduction, set,
};

/// The support of a responder for placed calls, and for placed results.
const CALLS: u32 = 1;
const RESULTS: u32 = 2;
/// The usual receive buffers: one segment for headers, and one target.
const USUAL: [Element; 2] = [[1, 1024, 1, 0], [1, 65_536, 4096, 1]];
/// Eight short targets in a buffer.
const SHORT: [Element; 2] = [[1, 1024, 1, 0], [8, 1024, 1024, 1]];
/// One short target in a buffer, so that a call takes several.
const ONE_SHORT: [Element; 2] = [[1, 1024, 1, 0], [1, 4096, 4096, 1]];
/// The usual receive buffers, with flags that there are not.
const OTHER_FLAGS: [Element; 2] = [[1, 1024, 1, 0xffff_fffe], [1, 65_536, 4096, u32::MAX]];
/// SYSTEM_ERR: a client that takes the reply fails.
const SYSTEM_ERR: u32 = 5;
/// Bits of an XID that make it one that no call has.
const OTHER: u32 = 0x5a5a_0000;
/// The headers of a middle message, and of a last one with one item and no Write chunk, bytes.
const MIDDLE: usize = PREFIX + 12;
const LAST: usize = PREFIX + 4 + 4 + 16 + 4;
/// The most messages of a reply.
const MOST: usize = 64;

/// Returns the messages with the properties of the server.
pub(in crate::client) fn announcements(placing: Placing) -> Vec<Vec<u8>> {
    let all = CALLS | RESULTS;
    let words = match placing {
        Placing::ShortTargets => properties(9216, &SHORT, all),
        Placing::OneShortTarget => properties(5120, &ONE_SHORT, all),
        Placing::OtherBits => properties(66_560, &OTHER_FLAGS, u32::MAX),
        Placing::OtherLength => properties(66_564, &USUAL, all),
        Placing::ResultsAlone => properties(66_560, &USUAL, RESULTS),
        Placing::Withdrawn => {
            let first = properties(66_560, &USUAL, all);
            let last = set(&[(SUPPORT, RESULTS)]);
            return vec![
                wg::message(INTRODUCTION, CONNPROP_MIDDLE, &first, &[]),
                wg::message(INTRODUCTION, CONNPROP_FINAL, &last, &[]),
            ];
        }
        _ => properties(66_560, &USUAL, all),
    };
    vec![introduction(&words)]
}

fn properties(receive: u32, structure: &[Element], support: u32) -> Vec<u32> {
    let mut words = set(&[
        (1, 1 << 20),
        (2, receive),
        (3, 1 << 20),
        (4, 16),
        (5, 0),
        (SUPPORT, support),
    ]);
    words[0] += 1;
    let count = structure.len() as u32;
    words.extend([STRUCTURE, 4 + 16 * count, count]);
    words.extend(structure.concat());
    words
}

/// Returns a placed reply to a call that there is not.
pub(in crate::client) fn stray(xid: u32) -> Vec<u8> {
    let xid = xid ^ OTHER;
    let payload = rpc::accepted(xid, SYSTEM_ERR, &[]);
    let fields = [0, 0, payload.len() as u32];
    wg::message(xid, REPLY_PLACED, &fields, &payload)
}

/// Returns a reply with this data placed, in messages. `payload` is the reduced Payload stream. There is none if it has
/// no place. `count` is the number of replies before it in which a field was changed.
pub(in crate::client) fn placed_messages(
    placing: Placing,
    xid: u32,
    (payload, data): (&[u8], &[u8]),
    targets: &[Target],
    count: usize,
) -> Option<Vec<Vec<u8>>> {
    let form = Form {
        lead: match placing {
            // Half of the Payload stream, in words.
            Placing::Parts | Placing::Granting | Placing::SequenceField(_) => {
                Some((payload.len() / 2) & !3)
            }
            _ => None,
        },
        offset: match placing {
            Placing::Offset => 4,
            _ => 0,
        },
        padding: match placing {
            Placing::Padded => 0xa5,
            _ => 0,
        },
    };
    let mut messages = form.messages(xid, payload, data, targets)?;
    let name = match placing {
        Placing::Field(name) if messages.len() == 1 => name,
        Placing::SequenceField(name) if messages.len() > 1 => name,
        Placing::Field(_) | Placing::SequenceField(_) => return None,
        _ => return Some(messages),
    };
    let target = u32::try_from(targets.first()?.length).ok()?;
    let all = changes::placed(&messages, target)?;
    let wrong = Wrong::in_turn(&all, name, count)?;
    let is_put = wrong.put(messages.get_mut(wrong.part)?);
    is_put.then_some(messages)
}

/// The form of a placed reply.
struct Form {
    /// The bytes of the Payload stream in a message of their own before the others.
    lead: Option<usize>,
    /// The offset of the item in its target.
    offset: usize,
    /// The octets that belong to nothing.
    padding: u8,
}

impl Form {
    /// Returns the messages.
    fn messages(
        &self,
        xid: u32,
        payload: &[u8],
        data: &[u8],
        targets: &[Target],
    ) -> Option<Vec<Vec<u8>>> {
        let parts: Vec<&[u8]> = match self.lead {
            Some(at) => payload.split_at_checked(at).map(|it| vec![it.0, it.1])?,
            None => vec![payload],
        };
        (parts.len()..=MOST).find_map(|total| self.in_messages(total, xid, &parts, data, targets))
    }

    /// Returns the messages if there are so many of them.
    fn in_messages(
        &self,
        total: usize,
        xid: u32,
        parts: &[&[u8]],
        data: &[u8],
        targets: &[Target],
    ) -> Option<Vec<Vec<u8>>> {
        // The places of the data: message, first octet, bytes.
        let mut places = Vec::new();
        let mut first = None;
        let mut left = data;
        for message in parts.len() - 1..total {
            let header = if message + 1 == total { LAST } else { MIDDLE };
            let head = header + parts.get(message).map_or(0, |it| it.len());
            for (number, target) in targets.iter().enumerate() {
                let offset = if first.is_none() { self.offset } else { 0 };
                if left.is_empty() || target.start < head && first.is_none() {
                    continue;
                }
                if target.start < head || offset >= target.length {
                    return None;
                }
                let now = left.len().min(target.length - offset);
                first = first.or(Some(message * targets.len() + number));
                places.push((message, target.start + offset, &left[..now]));
                left = &left[now..];
            }
        }
        let first = u32::try_from(first?).ok().filter(|_| left.is_empty())?;
        let position: usize = parts.iter().map(|it| it.len()).sum();
        let mut sent = 0;
        let mut messages = Vec::new();
        for number in 0..total {
            let part = parts.get(number).copied().unwrap_or_default();
            sent += part.len();
            let (here, remaining) = (part.len() as u32, (position - sent) as u32);
            let follow = (total - 1 - number) as u32;
            let mut message = match follow {
                0 => {
                    let (at, length) = (position as u32, data.len() as u32);
                    let fields = [0, 1, at, length, first, self.offset as u32, here];
                    wg::message(xid, REPLY_PLACED, &fields, part)
                }
                _ => wg::message(xid, REPLY_PLACED_MIDDLE, &[follow, remaining, here], part),
            };
            for (_, start, bytes) in places.iter().filter(|it| it.0 == number) {
                message.resize(*start, self.padding);
                message.extend(*bytes);
            }
            messages.push(message);
        }
        Some(messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v2::bytes;

    const TARGET: Target = Target {
        start: 1024,
        length: 4096,
    };

    fn lengths(placing: Placing, data: &[u8]) -> Vec<usize> {
        let messages = placed_messages(placing, 7, (&[0; 128], data), &[TARGET], 0);
        messages.unwrap().iter().map(Vec::len).collect()
    }

    #[test]
    fn data_fills_targets_one_after_the_other() {
        let data = vec![9; 6001];
        assert_eq!(lengths(Placing::Plain, &data), [5120, 1024 + 1905]);
        assert_eq!(lengths(Placing::Offset, &data), [5120, 1024 + 1909]);
        // The first message has a part of the Payload stream alone.
        let parts = lengths(Placing::Parts, &data);
        assert_eq!(parts, [16 + 12 + 64, 5120, 1024 + 1905]);
        let one = placed_messages(Placing::Padded, 7, (&[0; 128], &data[..100]), &[TARGET], 0);
        let one = one.unwrap().remove(0);
        let head = [0, 1, 128, 100, 0, 0, 128];
        assert_eq!(one[16..44], bytes(&head));
        assert_eq!(one[44 + 128..1024], [0xa5; 1024 - 44 - 128]);
        assert_eq!(one[1024..], data[..100]);
        assert_eq!(
            placed_messages(Placing::Plain, 7, (&[0; 128], &data), &[], 0),
            None
        );
    }

    #[test]
    fn each_wrong_value_comes_in_its_turn() {
        let message = |count| {
            let reply = (&[0; 128][..], &[9; 100][..]);
            placed_messages(Placing::Field("rdma_offset"), 7, reply, &[TARGET], count)
                .unwrap()
                .remove(0)
        };
        let offsets: Vec<_> = (0..5)
            .map(|count| message(count)[36..40].to_vec())
            .collect();
        let expected = [1, 4, 4096, u32::MAX, 1].map(|it| bytes(&[it]));
        assert_eq!(offsets, expected);
        let none = placed_messages(Placing::Field("none"), 7, (&[0; 8], &[9; 8]), &[TARGET], 0);
        assert_eq!(none, None);
    }

    #[test]
    fn announced_segments_fill_the_receives_but_in_one_case() {
        use super::super::told::Told;
        use crate::wire::wg::parse_properties;
        for (placing, takes) in [
            (Placing::Plain, true),
            (Placing::ShortTargets, true),
            (Placing::OneShortTarget, true),
            (Placing::OtherBits, true),
            (Placing::OtherLength, false),
            (Placing::ResultsAlone, false),
            (Placing::Withdrawn, false),
        ] {
            let mut told = Told::nothing();
            for message in announcements(placing) {
                told.take(&parse_properties(&message).unwrap());
            }
            let mut client = Told::nothing();
            client.take(&[(1, vec![0, 0x10, 0, 0])]);
            assert_eq!(told.takes_calls(&client), takes, "{placing:?}");
        }
    }
}
