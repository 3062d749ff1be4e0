//! Plain messages: a header without chunks, and behind it the RPC message. Most are, and all that the
//! engine does for chunks, plans, memory and registrations, is nothing to them: they go past it, on
//! both sides and in both directions. What is not recognised here is no error; it goes the long way.

use bytes::{Buf as _, Bytes, BytesMut};
use onc_rpc::{Segments, put_words};
use rpcrdma_chunks::proc;
use rpcrdma_negotiation::Version;
use rpcrdma_v2::{Body, Direction, Header};

use super::pieces;

/// Bytes of a plain header of version 1: the fixed fields, and three empty lists.
const V1_HEADER: usize = 28;
/// Bytes of a plain header and of the RPC message's XID.
const V1_START: usize = V1_HEADER + 4;

/// What a plain message's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) xid: u32,
    /// Those that are asked for in a call, or granted in a reply.
    pub(crate) credits: u32,
}

impl Plain {
    /// Takes the header off a message of version 1 if it is plain, its XID that of the RPC message (RFC
    /// 8166, section 4.2.1), and that message not longer than `max`.
    pub(crate) fn take(message: &mut Segments, max: u64) -> Option<Self> {
        let len = pieces::length(message);
        let first = message.first_mut()?;
        let start = first.first_chunk::<V1_START>()?;
        let word = |at: usize| {
            u32::from_be_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]])
        };
        let plain = word(4) == rpcrdma_v1::VERSION
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

    /// The same of a message of version 2 whose header was read: XID and direction must be those of
    /// the RPC message (version-two-01, section 4.2.2).
    pub(crate) fn of(header: &Header, payload: &Segments, max: u64) -> Option<Self> {
        let Body::Msg(direction, chunks) = &header.body else {
            return None;
        };
        let start = payload.first()?.first_chunk::<8>()?;
        let own = u64::from(header.xid) << 32 | u64::from(direction.number());
        let plain = chunks.is_empty()
            && u64::from_be_bytes(*start) == own
            && pieces::length(payload) <= max;
        let (xid, credits) = (header.xid, header.credits);
        plain.then_some(Self { xid, credits })
    }

    /// Its header, made in `room`.
    pub(crate) fn encode(
        self,
        version: Version,
        direction: Direction,
        room: &mut BytesMut,
    ) -> Bytes {
        let Self { xid, credits } = self;
        // As much as either takes, and as [`BytesMut::reserve`] does at once.
        room.reserve(V1_START);
        match version {
            Version::One => {
                put_words(
                    room,
                    [xid, rpcrdma_v1::VERSION, credits, proc::MSG, 0, 0, 0],
                );
            }
            Version::Two => put_words(
                room,
                [
                    xid,
                    rpcrdma_v2::VERSION,
                    credits,
                    proc::MSG,
                    direction.number(),
                    0,
                    0,
                    0,
                ],
            ),
        }
        room.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;
    use rpcrdma_chunks::Chunks;

    fn rpc(xid: u32, direction: Direction, len: u8) -> Bytes {
        let mut rpc = BytesMut::new();
        put_words(&mut rpc, [xid, direction.number()]);
        rpc.extend_from_slice(&vec![7; usize::from(len)]);
        rpc.freeze()
    }

    quickcheck! {
        fn headers_are_those_of_the_codecs(xid: u32, credits: u32, call: bool) -> bool {
            let direction = if call { Direction::Call } else { Direction::Reply };
            let plain = Plain { xid, credits };
            let mut room = BytesMut::new();
            let one = rpcrdma_v1::Header {
                xid,
                credits,
                body: rpcrdma_v1::Body::Msg(Chunks::default()),
            };
            let body = Body::Msg(direction, Chunks::default());
            let two = Header { xid, credits, body };
            plain.encode(Version::One, direction, &mut room) == one.encode()
                && plain.encode(Version::Two, direction, &mut room) == two.encode()
        }

        fn what_was_encoded_is_recognised(xid: u32, credits: u32, len: u8, short: bool) -> bool {
            let direction = Direction::Reply;
            let (plain, rpc) = (Plain { xid, credits }, rpc(xid, direction, len));
            let max = rpc.len() as u64 - u64::from(short);
            let mut message = BytesMut::new();
            let header = plain.encode(Version::One, direction, &mut BytesMut::new());
            message.extend_from_slice(&header);
            message.extend_from_slice(&rpc);
            let mut message = Segments::from_iter([message.freeze()]);
            let taken = Plain::take(&mut message, max);
            let left = taken.map_or(rpc.len() + header.len(), |_| rpc.len());
            let body = Body::Msg(direction, Chunks::default());
            let of = Plain::of(&Header { xid, credits, body }, &Segments::from_iter([rpc]), max);
            let expected = (!short).then_some(plain);
            taken == expected && of == expected && message[0].len() == left
        }

        /// Whatever is recognised, the codec reads in the same way.
        fn nothing_else_is_recognised(words: Vec<u8>, at: u8, value: u32) -> bool {
            let (mut room, xid) = (BytesMut::new(), 9);
            put_words(&mut room, [xid, 1, 5, 0, 0, 0, 0, xid, 0]);
            room.extend_from_slice(&words);
            let at = usize::from(at) % 9 * 4;
            room[at..at + 4].copy_from_slice(&value.to_be_bytes());
            let whole = room.freeze();
            let mut message = Segments::from_iter([whole.clone()]);
            let Some(plain) = Plain::take(&mut message, u64::MAX) else {
                return message[0] == whole;
            };
            let (header, payload_at) = rpcrdma_v1::Header::decode(&whole).unwrap();
            let chunks = rpcrdma_v1::Body::Msg(Chunks::default());
            (header.xid, header.credits, header.body) == (plain.xid, plain.credits, chunks)
                && message[0] == whole[payload_at..]
        }
    }

    #[test]
    fn another_xid_or_direction_inside_goes_the_long_way() {
        let payload = Segments::from_iter([rpc(7, Direction::Call, 0)]);
        for (xid, direction, plain) in [
            (7, Direction::Call, true),
            (8, Direction::Call, false),
            (7, Direction::Reply, false),
        ] {
            let body = Body::Msg(direction, Chunks::default());
            let credits = 3;
            let found = Plain::of(&Header { xid, credits, body }, &payload, u64::MAX);
            assert_eq!(found.is_some(), plain, "{xid} {direction}");
        }
    }
}
