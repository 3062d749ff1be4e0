//! Memory for one seed after the other. A seed's pools are as new ones, but the system need not clear
//! their pages each time, which would take a third of the time.

use std::cell::RefCell;

use rdma::Pool;

/// Pools kept by each thread.
const KEEP: usize = 8;

thread_local! {
    static KEPT: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// The pools of one seed.
#[derive(Debug, Default)]
pub(crate) struct Pools(Vec<Pool>);

impl Pools {
    /// A pool with this limit.
    pub(crate) fn take(&mut self, limit: usize) -> Pool {
        let kept = KEPT.with_borrow_mut(Vec::pop);
        let pool = kept.and_then(|kept| kept.renewed(limit));
        let pool = pool.unwrap_or_else(|| Pool::new(limit));
        self.0.push(pool.clone());
        pool
    }

    /// The seed is over, and everything that used them is gone. A pool that has buffers out all the
    /// same is not used again.
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
