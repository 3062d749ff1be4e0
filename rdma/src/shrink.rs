//! Memory of queues that grew in a burst of traffic.

use std::collections::VecDeque;

/// Number of elements for which a queue keeps its memory.
const KEPT: usize = 4;

/// Frees memory that a queue needed for more elements than it has now, and returns the number of bytes freed.
/// It allocates anew, so it is for a queue that has been quiet for a while. Memory for a few elements stays.
pub fn shrink<T>(queue: &mut VecDeque<T>) -> usize {
    let before = queue.capacity();
    queue.shrink_to(KEPT);
    let freed = before.saturating_sub(queue.capacity());
    freed.saturating_mul(size_of::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_few_elements_stays_and_that_for_more_goes() {
        let mut queue: VecDeque<u64> = (0..1000).collect();
        queue.drain(..990);
        assert!(shrink(&mut queue) >= 900 * 8);
        assert!(queue.iter().copied().eq(990..1000));
        queue.clear();
        assert!(shrink(&mut queue) > 0 && queue.capacity() >= KEPT);
        assert_eq!(shrink(&mut queue), 0);
        assert_eq!(shrink(&mut VecDeque::<u64>::new()), 0);
    }
}
