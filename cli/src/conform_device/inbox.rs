//! Things that have come on a connection, between the thread of the device and that of the script.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpcrdma_conform::stream::Gone;

/// The most bytes of memory for messages that nobody has looked at. Floods of cases are answered by less.
const MOST_KEPT: usize = 64 << 20;
/// The bytes that an entry costs beside its octets: its place in the queue, and what the allocator adds.
const ENTRY: usize = 128;

/// Something that has come.
#[derive(Debug)]
pub(super) enum Came {
    /// A message, and the script's handle that it invalidates.
    Message(Vec<u8>, Option<u32>),
    /// The data of an RDMA Read, and the handle of its sink in the script.
    Response(u32, Vec<u8>),
}

impl Came {
    /// Returns the memory that it costs, bytes.
    fn cost(&self) -> usize {
        match self {
            Self::Message(bytes, _) | Self::Response(_, bytes) => bytes.len() + ENTRY,
        }
    }
}

/// State of a connection, as the script sees it.
#[derive(Debug, Default)]
pub(super) struct State {
    came: VecDeque<Came>,
    /// The memory that `came` costs, bytes.
    kept: usize,
    /// The private data of the other end, or why the connection was not set up.
    pub(super) set_up: Option<Result<Vec<u8>, String>>,
    /// The end of the connection, or the reason why nothing more is heard.
    pub(super) end: Option<Gone>,
    /// Whether a request or a receive could not be posted, or the send queue stayed full.
    pub(super) failed: bool,
    /// Requests that wait for room in the send queue.
    pub(super) unsent: usize,
    /// Rooms that were taken back because the script asked for them, with their content, or why it cannot be seen.
    pub(super) rooms: HashMap<u32, Result<Vec<u8>, String>>,
}

impl State {
    /// Returns what came first.
    pub(super) fn next(&mut self) -> Option<Came> {
        let next = self.came.pop_front()?;
        self.kept -= next.cost();
        Some(next)
    }

    /// Returns whether something can be heard: what has come, or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.came.is_empty() || self.end.is_some()
    }

    /// Adds something that has come.
    pub(super) fn add(&mut self, came: Came) {
        if self.end.is_some() {
            return;
        }
        self.kept += came.cost();
        self.came.push_back(came);
        if self.kept > MOST_KEPT {
            let most = MOST_KEPT >> 20;
            let text = format!("more than {most} MiB of messages that nothing asked for");
            self.end = Some(Gone::Nonsense(text));
        }
    }
}

/// The inbox of a connection.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Inbox {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes whoever waits for a change.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until this is so, or for this time. Returns whether it is so.
    pub(super) fn wait(&self, time: Duration, is_so: impl Fn(&State) -> bool) -> bool {
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| !is_so(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        is_so(&state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_sends_without_end_is_not_kept() {
        for length in [1, 4096, 1 << 20] {
            let inbox = Inbox::default();
            let most = MOST_KEPT / (length + ENTRY) + 1;
            for _ in 0..most + 2 {
                inbox.change(|it| it.add(Came::Message(vec![0; length], None)));
            }
            let mut state = inbox.state();
            assert!(matches!(state.end, Some(Gone::Nonsense(_))));
            let kept = std::iter::from_fn(|| state.next()).count();
            assert_eq!((kept, state.kept), (most, 0));
        }
        assert!(size_of::<Came>() <= ENTRY / 2);
    }
}
