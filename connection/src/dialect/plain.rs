//! Plain messages: a header without chunks, followed by the RPC message. Most messages are plain.
//! They need no plan, no memory and no registration, so both ends have a shortcut for them; a
//! message that is not recognized here is handled in the general way.
//!
//! `transfer_plan::needs_no_chunks` tells beforehand that a message is plain (a property test
//! compares it with `plan_call`), and a received header without chunks is recognized by its words.
//! The long way finds all errors, so the short one needs none. The log contains the plan in both
//! cases.

use bytes::Buf as _;
use onc_rpc::{Segments, total_len};
use rpcrdma_chunks::{Direction, FIXED_LEN, Fixed, proc};

use super::Receiver;

/// Length of a plain header of version 1, bytes: the fixed fields and three empty lists.
const V1_HEADER: usize = 28;
/// Length of a plain header of version 1 and of the RPC message's XID, bytes.
const V1_START: usize = V1_HEADER + 4;
/// Length of a plain header of version 2, which has the direction as well, bytes.
const V2_HEADER: usize = 32;
/// Length of the empty lists in a plain header of version 2, bytes.
const V2_LISTS: usize = 12;
/// The fields of a plain message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The XID.
    pub xid: u32,
    /// The credits that a call requests or a reply grants.
    pub credits: u32,
}

impl Plain {
    /// Removes the header of a message and returns its fields, if it is a plain header in the
    /// format of version 1 with this `version` number, its XID is that of the RPC message (RFC
    /// 8166, section 4.2.1), and that message has at most `max` bytes. Otherwise returns `None` and
    /// changes nothing.
    pub fn take_from(message: &mut Segments, version: u32, max: u64) -> Option<Self> {
        let len = total_len(message);
        let first = message.first_mut()?;
        let start = first.first_chunk::<V1_START>()?;
        let word = |at: usize| {
            u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]])
        };
        // `first_chunk` has shown that `len` is no less than the header.
        let plain = word(4) == version
            && word(12) == proc::MSG
            && start[16..V1_HEADER] == [0; 12]
            && word(V1_HEADER) == word(0)
            && len - V1_HEADER as u64 <= max;
        let (xid, credits) = (word(0), word(8));
        if !plain {
            return None;
        }
        first.advance(V1_HEADER);
        Some(Self { xid, credits })
    }

    /// Returns the same fields if the RPC message behind the header has their XID and this direction
    /// (version-two-01, section 4.2.2; version-two-07, section 7.2), and at most `max` bytes.
    #[must_use]
    pub fn matching(self, direction: Direction, payload: &Segments, max: u64) -> Option<Self> {
        let matches = self.begins(payload.first()?, direction) && total_len(payload) <= max;
        matches.then_some(self)
    }

    /// Removes the header of a message and returns its direction and fields, if it is a plain header
    /// of version 2, its XID and direction are those of the RPC message (version-two-01, section
    /// 4.2.2), and `receiver` takes it. Otherwise returns `None` and changes nothing.
    pub(super) fn take_v2(
        message: &mut Segments,
        receiver: &Receiver,
    ) -> Option<(Direction, Self)> {
        let first = message.first()?;
        let fixed = Fixed::peek(first)?;
        let direction = first.get(FIXED_LEN..)?.first_chunk::<4>()?;
        let direction = Direction::from_number(u32::from_be_bytes(*direction))?;
        if fixed.version != rpcrdma_v2::VERSION || fixed.procedure != proc::MSG {
            return None;
        }
        let lists_at = V2_HEADER - V2_LISTS;
        Self::take_after::<V2_LISTS>(message, fixed, lists_at, direction, receiver)
    }

    /// Removes a header that ends with `ZEROES` bytes behind the first `at`, and returns its direction
    /// and fields, if these bytes are zero (empty lists, and no handle), the RPC message has this
    /// direction and the XID of `fixed`, and `receiver` takes it.
    #[inline]
    pub(super) fn take_after<const ZEROES: usize>(
        message: &mut Segments,
        fixed: Fixed,
        at: usize,
        direction: Direction,
        receiver: &Receiver,
    ) -> Option<(Direction, Self)> {
        let header = at + ZEROES;
        let len = total_len(message);
        let first = message.first_mut()?;
        let (lists, rpc) = first.get(at..)?.split_first_chunk::<ZEROES>()?;
        let (taken, max) = match direction {
            Direction::Call => (receiver.takes_calls, receiver.max_call),
            Direction::Reply => (receiver.makes_calls, u64::MAX),
        };
        let plain = Self {
            xid: fixed.xid,
            credits: fixed.credits,
        };
        let is_plain = *lists == [0; ZEROES]
            && plain.begins(rpc, direction)
            && taken
            // The first piece holds the header, so `len` is no less.
            && len - header as u64 <= max;
        if !is_plain {
            return None;
        }
        first.advance(header);
        Some((direction, plain))
    }

    /// Returns whether an RPC message begins with this XID and direction.
    #[inline]
    fn begins(self, rpc: &[u8], direction: Direction) -> bool {
        let own = u64::from(self.xid) << 32 | u64::from(direction.number());
        let start = rpc.first_chunk::<8>();
        start.is_some_and(|start| u64::from_be_bytes(*start) == own)
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use onc_rpc::put_words;
    use quickcheck::quickcheck;
    use rpcrdma_chunks::{Chunks, Side};
    use rpcrdma_v2::{Body, Header};

    use super::*;
    use crate::dialect::{Dialect, VersionOne, VersionTwo, VersionTwoWg};

    fn encode(dialect: &dyn Dialect, direction: Direction, plain: Plain) -> Bytes {
        let mut out = BytesMut::new();
        dialect.encode_plain(&mut out, direction, plain);
        out.freeze()
    }

    fn wg_body(direction: Direction) -> rpcrdma_v2_wg::Body {
        let (external, chunks) = (false, Chunks::default());
        match direction {
            Direction::Call => rpcrdma_v2_wg::Body::Call {
                external,
                inv_handle: 0,
                chunks,
            },
            Direction::Reply => rpcrdma_v2_wg::Body::Reply { external, chunks },
        }
    }

    fn rpc(xid: u32, direction: Direction, len: u8) -> Bytes {
        let mut rpc = BytesMut::new();
        put_words(&mut rpc, [xid, direction.number()]);
        rpc.extend_from_slice(&vec![7; usize::from(len)]);
        rpc.freeze()
    }

    fn receiver(max_call: u64) -> Receiver {
        Receiver {
            side: Side::Server,
            takes_calls: true,
            makes_calls: false,
            max_call,
        }
    }

    quickcheck! {
        fn headers_are_those_of_the_codecs(xid: u32, credits: u32, call: bool) -> bool {
            let direction = if call { Direction::Call } else { Direction::Reply };
            let plain = Plain { xid, credits };
            let one = rpcrdma_v1::Header {
                xid,
                credits,
                body: rpcrdma_v1::Body::Msg(Chunks::default()),
            };
            let body = Body::Msg(direction, Chunks::default());
            let two = Header { xid, credits, body };
            let wg = rpcrdma_v2_wg::Header { xid, credit: credits, body: wg_body(direction) };
            encode(&VersionOne, direction, plain) == one.encode()
                && encode(&VersionTwo, direction, plain) == two.encode()
                && encode(&VersionTwoWg, direction, plain) == wg.encode()
        }

        fn encoded_headers_are_recognized(xid: u32, credits: u32, len: u8, short: bool) -> bool {
            let direction = Direction::Call;
            let (plain, rpc) = (Plain { xid, credits }, rpc(xid, direction, len));
            let max = rpc.len() as u64 - u64::from(short);
            let message = |dialect: &dyn Dialect| {
                let header = encode(dialect, direction, plain);
                Segments::from_iter([[header, rpc.clone()].concat().into()])
            };
            let (mut one, mut two) = (message(&VersionOne), message(&VersionTwo));
            let mut wg = message(&VersionTwoWg);
            let whole = (one.clone(), two.clone(), wg.clone());
            let taken = Plain::take_from(&mut one, 1, max);
            let taken_v2 = Plain::take_v2(&mut two, &receiver(max));
            let taken_wg = Plain::take_wg(&mut wg, &receiver(max));
            let matching = plain.matching(direction, &Segments::from_iter([rpc.clone()]), max);
            matching == (!short).then_some(plain)
                && match short {
                    true => {
                        (taken, taken_v2, taken_wg) == (None, None, None) && (one, two, wg) == whole
                    }
                    false => {
                        taken == Some(plain)
                            && taken_v2 == Some((direction, plain))
                            && taken_wg == taken_v2
                            && one.concat() == rpc
                            && two.concat() == rpc
                            && wg.concat() == rpc
                    }
                }
        }

        /// The codec decodes every recognized plain header to the same fields.
        fn nothing_else_is_recognized(words: Vec<u8>, at: u8, value: u32) -> bool {
            let (mut room, xid) = (BytesMut::new(), 9);
            put_words(&mut room, [xid, 1, 5, 0, 0, 0, 0, xid, 0]);
            room.extend_from_slice(&words);
            let at = usize::from(at) % 9 * 4;
            room[at..at + 4].copy_from_slice(&value.to_be_bytes());
            let whole = room.freeze();
            let mut message = Segments::from_iter([whole.clone()]);
            let Some(plain) = Plain::take_from(&mut message, 1, u64::MAX) else {
                return message[0] == whole;
            };
            let (header, payload_at) = rpcrdma_v1::Header::decode(&whole).unwrap();
            let chunks = rpcrdma_v1::Body::Msg(Chunks::default());
            (header.xid, header.credits, header.body) == (plain.xid, plain.credits, chunks)
                && message[0] == whole[payload_at..]
        }

        /// Words that are not those of a plain header are left to the decoder of version 2.
        fn nothing_else_is_recognized_in_version_2(words: Vec<u8>, at: u8, value: u32) -> bool {
            let (mut room, xid) = (BytesMut::new(), 9);
            put_words(&mut room, [xid, 2, 5, 0, 0, 0, 0, 0, xid, 0]);
            room.extend_from_slice(&words);
            let at = usize::from(at) % 10 * 4;
            room[at..at + 4].copy_from_slice(&value.to_be_bytes());
            let whole = room.freeze();
            let mut message = Segments::from_iter([whole.clone()]);
            let Some((direction, plain)) = Plain::take_v2(&mut message, &receiver(u64::MAX)) else {
                return message[0] == whole;
            };
            let (header, payload_at) = Header::decode(&whole).unwrap();
            let body = Body::Msg(Direction::Call, Chunks::default());
            (header.xid, header.credits, header.body) == (plain.xid, plain.credits, body)
                && direction == Direction::Call
                && message[0] == whole[payload_at..]
        }

        /// Words that are not those of a plain header are left to the decoder of the working group's version 2.
        fn nothing_else_is_recognized_in_the_working_groups_version(
            words: Vec<u8>,
            reply: bool,
            at: u8,
            value: u32
        ) -> bool {
            let direction = if reply { Direction::Reply } else { Direction::Call };
            let header = encode(&VersionTwoWg, direction, Plain { xid: 9, credits: 5 });
            let mut room = BytesMut::from(header);
            put_words(&mut room, [9, direction.number()]);
            let at = usize::from(at) % (room.len() / 4) * 4;
            room[at..at + 4].copy_from_slice(&value.to_be_bytes());
            room.extend_from_slice(&words);
            let whole = room.freeze();
            let mut message = Segments::from_iter([whole.clone()]);
            let receiver = Receiver { makes_calls: true, ..receiver(u64::MAX) };
            let Some((direction, plain)) = Plain::take_wg(&mut message, &receiver) else {
                return message[0] == whole;
            };
            let (header, payload_at) = rpcrdma_v2_wg::Header::decode(&whole).unwrap();
            (header.xid, header.credit, header.body) == (plain.xid, plain.credits, wg_body(direction))
                && message[0] == whole[payload_at..]
        }
    }

    #[test]
    fn another_xid_or_direction_inside_goes_the_long_way() {
        for (xid, inside, takes_calls, plain) in [
            (7, Direction::Call, true, true),
            (8, Direction::Call, true, false),
            (7, Direction::Reply, true, false),
            (7, Direction::Call, false, false),
        ] {
            let header = encode(&VersionTwo, Direction::Call, Plain { xid: 7, credits: 3 });
            let whole: Bytes = [header, rpc(xid, inside, 0)].concat().into();
            let mut message = Segments::from_iter([whole]);
            let receiver = Receiver {
                takes_calls,
                ..receiver(u64::MAX)
            };
            let found = Plain::take_v2(&mut message, &receiver);
            assert_eq!(found.is_some(), plain, "{xid} {inside} {takes_calls}");
            let header = encode(&VersionTwoWg, Direction::Call, Plain { xid: 7, credits: 3 });
            let mut message = Segments::from_iter([[header, rpc(xid, inside, 0)].concat().into()]);
            let found = Plain::take_wg(&mut message, &receiver);
            assert_eq!(found.is_some(), plain, "{xid} {inside} {takes_calls}");
            let payload = Segments::from_iter([rpc(xid, inside, 0)]);
            let found = Plain { xid: 7, credits: 3 }.matching(Direction::Call, &payload, u64::MAX);
            assert_eq!(found.is_some(), plain || !takes_calls, "{xid} {inside}");
        }
    }
}
