//! Functions that cut memory into segments and join it again. They copy nothing, except where a
//! function says so and counts it.

use bytes::Bytes;
use onc_rpc::{Bulk, Segments};
use rdma::{Buf, Pool, PoolExhausted};
use smallvec::SmallVec;

/// Cuts a buffer into pieces of at most `max` bytes.
pub(crate) fn cut(buf: Buf, max: u64) -> SmallVec<[Buf; 2]> {
    let max = usize::try_from(max).unwrap_or(usize::MAX).max(1);
    let mut pieces = SmallVec::new();
    let mut rest = buf;
    while rest.len() > max {
        let next = rest.split_off(max);
        pieces.push(std::mem::replace(&mut rest, next));
    }
    pieces.push(rest);
    pieces
}

/// Cuts bytes into pieces of at most `max` bytes. Empty input gives one empty piece.
pub(crate) fn slices(bytes: &Bytes, max: u64) -> impl Iterator<Item = Bytes> {
    let max = usize::try_from(max).unwrap_or(usize::MAX).max(1);
    let count = bytes.len().div_ceil(max).max(1);
    (0..count).map(move |n| bytes.slice(n * max..bytes.len().min((n + 1) * max)))
}

/// Returns the first `len` bytes of `pieces`. Pieces that were cut from one buffer and lie side by
/// side become one again.
pub(crate) fn gathered(pieces: impl IntoIterator<Item = Buf>, len: u64) -> Bulk {
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    let mut bulk = Bulk::new();
    let mut whole: Option<Buf> = None;
    for mut piece in pieces {
        piece.truncate(left);
        left -= piece.len();
        whole = match whole.take() {
            None => Some(piece),
            Some(mut before) => match before.unsplit(piece) {
                Ok(()) => Some(before),
                Err(piece) => {
                    bulk.push(before.freeze());
                    Some(piece)
                }
            },
        };
        if left == 0 {
            break;
        }
    }
    bulk.extend(whole.map(Buf::freeze));
    bulk
}

/// Returns a gather list as one piece. A list of several pieces is copied into memory from `pool`,
/// and its length is added to `copied`.
///
/// # Errors
/// [`PoolExhausted`]: there is no memory for the copy.
pub(crate) fn flatten(
    gather: &Segments,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Bytes, PoolExhausted> {
    if let [only] = &gather[..] {
        return Ok(only.clone());
    }
    let joined = pool.concat(gather)?.freeze();
    *copied += joined.len() as u64;
    Ok(joined)
}

/// Removes and returns the first `len` bytes of a gather list.
pub(crate) fn split_front(gather: &mut Segments, mut len: usize) -> Segments {
    let mut taken = Segments::new();
    let mut whole = 0;
    for piece in gather.iter_mut() {
        if len == 0 {
            break;
        }
        if piece.len() <= len {
            len -= piece.len();
            whole += 1;
            taken.push(std::mem::take(piece));
        } else {
            taken.push(piece.split_to(len));
            len = 0;
        }
    }
    gather.drain(..whole);
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    fn pieces(pool: &Pool, len: usize, max: u64) -> SmallVec<[Buf; 2]> {
        let mut buf = pool.alloc(len).unwrap();
        for (n, byte) in buf.iter_mut().enumerate() {
            *byte = n as u8;
        }
        cut(buf, max)
    }

    quickcheck! {
        fn cut_and_joined_is_the_same_memory(len: u16, max: u16, used: u16) -> bool {
            let pool = Pool::new(1 << 20);
            let (len, max) = (usize::from(len), u64::from(max) + 1);
            let used = usize::from(used) % (len + 1);
            let pieces = pieces(&pool, len, max);
            let start = pieces[0].as_ptr();
            let short = pieces.iter().all(|piece| piece.len() as u64 <= max);
            let joined = gathered(pieces, used as u64);
            let expected: Vec<u8> = (0..used).map(|n| n as u8).collect();
            let in_place = match joined.pieces() {
                [] => used == 0,
                [only] => only.as_ptr() == start,
                _ => false,
            };
            let content = joined == expected;
            drop(joined);
            short && content && in_place && pool.in_use() == 0
        }

        fn slices_are_the_whole(content: Vec<u8>, max: u8) -> bool {
            let bytes = Bytes::from(content);
            let max = u64::from(max) + 1;
            let slices: Vec<Bytes> = slices(&bytes, max).collect();
            slices.concat() == bytes
                && slices.iter().all(|slice| slice.len() as u64 <= max)
                && !slices.is_empty()
        }

        fn taking_loses_nothing(parts: Vec<Vec<u8>>, at: u16) -> bool {
            let whole = parts.concat();
            let mut rest: Segments = parts.into_iter().map(Bytes::from).collect();
            let at = usize::from(at) % (whole.len() + 1);
            let head = split_front(&mut rest, at);
            let head_ok = head.concat() == whole[..at];
            head_ok && rest.concat() == whole[at..]
        }
    }

    #[test]
    fn pieces_of_different_memory_stay_apart_and_where_they_are() {
        let pool = Pool::new(1 << 20);
        let (mut first, mut second) = (pool.alloc(3).unwrap(), pool.alloc(5).unwrap());
        first.fill(1);
        second.fill(2);
        let starts = [first.as_ptr(), second.as_ptr()];
        let joined = gathered([first, second], 7);
        assert_eq!(joined, [1, 1, 1, 2, 2, 2, 2][..]);
        let found: Vec<_> = joined.pieces().iter().map(|piece| piece.as_ptr()).collect();
        assert_eq!(found, starts);
    }
}
