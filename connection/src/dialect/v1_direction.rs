//! Determines whether a message of version 1 is a call or a reply. The header does not contain the
//! direction; it follows from the RPC message, or from the chunk list that contains the RPC message
//! (RFC 8167, section 4.1).

use onc_rpc::Segments;
use rpcrdma_chunks::Direction;

use super::pieces;

/// The index of `rdma_proc` among the fixed words, and how many of these there are (RFC 8166,
/// section 4.1).
const PROC_AT: usize = 3;
const FIXED: usize = 4;
/// Values of `rdma_proc`.
const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;
/// Number of 32-bit words of a segment; a read list entry has one more, its position.
const SEGMENT: usize = 4;
const READ_SEGMENT: usize = 1 + SEGMENT;

/// Reads the words of a message, one after the other.
struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<u32> {
        let word = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += 4;
        Some(u32::from_be_bytes(*word))
    }

    fn skip(&mut self, words: usize) -> Option<()> {
        self.at = self.at.checked_add(words.checked_mul(4)?)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    /// Skips the segments of a write chunk or a reply chunk.
    fn skip_chunk(&mut self) -> Option<()> {
        let segments = usize::try_from(self.next()?).ok()?;
        self.skip(segments.checked_mul(SEGMENT)?)
    }
}

/// Returns whether a message is a call or a reply, or `None` if it is neither; the credits of such
/// a message count for neither direction (RFC 8167, section 4.1).
///
/// An RDMA_ERROR is a reply. An inline payload says itself what it is. A payload in a read chunk is
/// a call, and one in a reply chunk is a reply.
pub(super) fn direction(message: &Segments) -> Option<Direction> {
    let (first, rest) = message.split_first()?;
    let found = direction_in(first);
    // A header that does not lie in the first piece alone is joined in a copy.
    found.or_else(|| (!rest.is_empty()).then(|| direction_in(&pieces::joined(message)))?)
}

fn direction_in(message: &[u8]) -> Option<Direction> {
    let mut words = Words {
        bytes: message,
        at: 0,
    };
    words.skip(PROC_AT)?;
    let procedure = words.next()?;
    if procedure == ERROR {
        return Some(Direction::Reply);
    }
    debug_assert_eq!(words.at, 4 * FIXED);
    let mut reads = false;
    while words.next()? != 0 {
        reads = true;
        words.skip(READ_SEGMENT)?;
    }
    while words.next()? != 0 {
        words.skip_chunk()?;
    }
    let reply_chunk = words.next()? != 0;
    if reply_chunk {
        words.skip_chunk()?;
    }
    match procedure {
        MSG => {
            let _xid = words.next()?;
            match words.next()? {
                onc_rpc::CALL => Some(Direction::Call),
                onc_rpc::REPLY => Some(Direction::Reply),
                _ => None,
            }
        }
        NOMSG if reads => Some(Direction::Call),
        NOMSG if reply_chunk => Some(Direction::Reply),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use quickcheck::quickcheck;
    use rpcrdma_chunks::{Chunks, ReadSegment, Segment, WriteChunk};
    use rpcrdma_v1::{Body, ErrorBody, Header};

    use super::*;

    fn message(body: Body, payload: &[u32]) -> Bytes {
        let header = Header {
            xid: 7,
            credits: 3,
            body,
        };
        let mut bytes = BytesMut::from(&header.encode()[..]);
        for word in payload {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.freeze()
    }

    fn chunks(reads: usize, writes: usize, reply: bool) -> Chunks {
        let segment = Segment {
            handle: 1,
            length: 2,
            offset: 3,
        };
        Chunks {
            reads: (0..reads)
                .map(|_| ReadSegment {
                    position: 0,
                    segment,
                })
                .collect(),
            writes: (0..writes)
                .map(|n| WriteChunk::from_iter((0..n).map(|_| segment)))
                .collect(),
            reply: reply.then(|| WriteChunk::from_iter([segment])),
        }
    }

    quickcheck! {
        fn a_payload_says_which_way_it_goes_behind_any_chunks(
            reads: u8, writes: u8, reply: bool, kind: u32
        ) -> bool {
            let lists = chunks(usize::from(reads % 4), usize::from(writes % 4), reply);
            let found = direction_in(&message(Body::Msg(lists), &[7, kind % 4]));
            found == match kind % 4 {
                0 => Some(Direction::Call),
                1 => Some(Direction::Reply),
                _ => None,
            }
        }

        fn pieces_say_what_the_whole_does(reads: u8, at: usize) -> bool {
            let whole = message(Body::Msg(chunks(usize::from(reads % 4), 2, true)), &[7, 1]);
            let (first, second) = whole.split_at(at % whole.len());
            let pieces = [first, second].map(Bytes::copy_from_slice);
            direction(&pieces.into_iter().collect()) == Some(Direction::Reply)
        }

        fn any_bytes_have_a_direction_or_none(bytes: Vec<u8>) -> bool {
            let _ = direction_in(&bytes);
            true
        }

        fn what_is_cut_off_has_none(reads: u8, writes: u8, cut: usize) -> bool {
            let lists = chunks(usize::from(reads % 4), usize::from(writes % 4), true);
            let whole = message(Body::Msg(lists), &[7, 0]);
            direction_in(&whole[..cut % whole.len()]).is_none()
        }
    }

    #[test]
    fn a_payload_in_a_chunk_goes_the_way_that_the_chunk_does() {
        let long = |reads, reply| direction_in(&message(Body::NoMsg(chunks(reads, 0, reply)), &[]));
        assert_eq!(long(1, false), Some(Direction::Call));
        assert_eq!(long(1, true), Some(Direction::Call));
        assert_eq!(long(0, true), Some(Direction::Reply));
        assert_eq!(long(0, false), None);
        let error = message(Body::Error(ErrorBody::Chunk), &[]);
        assert_eq!(direction_in(&error), Some(Direction::Reply));
    }
}
