//! Reuses memory from one seed to the next. A seed's pools look new, but the system need not clear
//! their pages each time, which would take a third of the time.

use std::cell::RefCell;

use rdma::Pool;

/// The maximum number of pools that each thread keeps.
const KEEP: usize = 8;

thread_local! {
    static KEPT: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// The pools of one seed.
#[derive(Debug, Default)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    /// Returns a pool with this limit.
    pub(crate) fn take(&mut self, limit: usize) -> Pool {
        let kept = KEPT.with_borrow_mut(Vec::pop);
        let pool = kept.and_then(|kept| kept.renewed(limit));
        let pool = pool.unwrap_or_else(|| Pool::new(limit));
        self.0.push(pool.clone());
        pool
    }

    /// Returns the pools for reuse after a seed, when all its users are gone. A pool with buffers
    /// still in use is not reused.
    pub(crate) fn give_back(self) {
        KEPT.with_borrow_mut(|kept| {
            let room = KEEP.saturating_sub(kept.len());
            kept.extend(
                self.0
                    .into_iter()
                    .filter_map(|pool| pool.renewed(0))
                    .take(room),
            );
        });
    }
}
