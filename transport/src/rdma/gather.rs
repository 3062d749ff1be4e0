//! Gather lists that are longer than the device takes.

use onc_rpc::Segments;
use rdma::{Pool, PoolExhausted};

/// Returns a gather list of at most `max` pieces. What is beyond them is copied into one piece from
/// `pool`, and its length is added to `copied`.
///
/// # Errors
/// [`PoolExhausted`]: there is no memory for the copy.
pub(super) fn shorten(
    mut gather: Segments,
    max: usize,
    pool: &Pool,
    copied: &mut u64,
) -> Result<Segments, PoolExhausted> {
    let max = max.max(1);
    if gather.len() > max {
        let tail: Segments = gather.drain(max - 1..).collect();
        let joined = pool.concat(&tail)?.freeze();
        *copied += joined.len() as u64;
        gather.push(joined);
    }
    Ok(gather)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn shortening_keeps_the_bytes_and_copies_only_the_tail(parts: Vec<Vec<u8>>, max: u8) -> bool {
            let whole = parts.concat();
            let gather: Segments = parts.into_iter().map(Bytes::from).collect();
            let (pool, max) = (Pool::new(1 << 20), usize::from(max % 8) + 1);
            let before: Vec<_> = gather.iter().map(|piece| (piece.as_ptr(), piece.len())).collect();
            let mut copied = 0;
            let Ok(short) = shorten(gather, max, &pool, &mut copied) else { return false };
            let moved = short.iter().filter(|piece| {
                !piece.is_empty() && !before.contains(&(piece.as_ptr(), piece.len()))
            });
            let moved: usize = moved.map(Bytes::len).sum();
            copied == moved as u64 && short.len() <= max && short.concat() == whole
        }
    }
}
