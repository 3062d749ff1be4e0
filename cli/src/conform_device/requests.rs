//! Requests of clients for connections, which wait until the judge takes them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rdma::RequestId;

/// Requests that wait, with their private data.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<VecDeque<(RequestId, Bytes)>>);

impl Requests {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(RequestId, Bytes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, request: RequestId, private: Bytes) {
        self.waiting().push_back((request, private));
    }

    pub(super) fn next(&self) -> Option<(RequestId, Bytes)> {
        self.waiting().pop_front()
    }
}
