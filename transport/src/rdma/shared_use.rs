//! One connection's share of the receives that all connections have together.
//!
//! A message that fills more than a little of its receive stays there until the upper layer has done
//! with it, and a peer may have as many of those at a time as it has credits. So that none takes the
//! receives of all others, a connection may occupy as much of the common memory as is still free
//! (the rule of [`rpcrdma_host::Budget`]). Messages beyond that are copied out of their receives. The copies
//! are charged to an account of the connection without a guaranteed part
//! ([`Account::common`]): calls and replies of the connection keep what is guaranteed to
//! them, so that what was received is always executed, one call at a time at least. A connection that
//! holds no copies may always copy one message.
//!
//! If the connection's share is too small for a message, only the beginning of the message is passed on
//! ([`rpcrdma_connection::Event::ReceivedTruncated`]). If it is a part of a call in messages of an
//! extension, the extension refuses the call, and the peer sends it again by the base protocol: its
//! data then waits at the peer until there is memory to fetch it. Any other message ends the
//! connection. Flow control is no alternative: not taking further messages would also stop the Read
//! Responses behind them, and the calls that hold the memory may be waiting for those.
//!
//! A quarter of the memory for receives, like one of the common memory, is reserved for connections
//! that are proven ([`Account::prove`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Buf, Scatter};
use rpcrdma_connection::ReceiveStructure;
use rpcrdma_host::Account;

/// One part in this many of the memory for receives is reserved for messages of proven connections.
const PROVEN_PART: usize = 4;

/// The state of a connection with shared receives: the lengths that its peer was told, and the memory
/// that its messages hold.
#[derive(Debug)]
pub(super) struct SharedUse {
    structure: ReceiveStructure,
    /// Length of the longest message that the peer was ever allowed to send, bytes.
    allowed: usize,
    /// Length of the longest message that a receive of the pool can take, bytes.
    possible: usize,
    /// Whether to report that receives have been replaced.
    replaced: bool,
    /// Number of messages that have arrived completely.
    received: u64,
    /// Number of messages that the peer may have on their way: as many receives as a connection with
    /// its own would have posted.
    promised: u32,
    /// The memory that the connection's messages hold, at a server.
    held: Option<HeldMessages>,
}

/// The memory that the messages of one connection hold.
#[derive(Debug)]
struct HeldMessages {
    /// Memory of receives.
    in_place: InPlace,
    /// Copies.
    copies: Account,
}

impl SharedUse {
    /// Returns the state of a connection whose receives have this structure for its peer. The
    /// receives of the pool can take `possible` bytes. With the account of the connection, its messages
    /// are limited to its share.
    pub(super) fn new(
        structure: ReceiveStructure,
        possible: usize,
        account: Option<&Account>,
    ) -> Self {
        Self {
            allowed: structure.size(),
            structure,
            possible,
            replaced: false,
            received: 0,
            promised: 0,
            held: account.map(|account| HeldMessages {
                in_place: InPlace::default(),
                copies: account.common(),
            }),
        }
    }

    /// Records that a message of `len` bytes has arrived. Returns whether the peer may send one of
    /// that length.
    pub(super) fn arrived(&mut self, len: usize) -> bool {
        self.received += 1;
        len <= self.allowed
    }

    /// Records that the peer may have so many messages more on their way.
    pub(super) fn promise(&mut self, count: u32) {
        self.promised = self.promised.saturating_add(count);
    }

    /// Records that the peer may have so many messages fewer on their way.
    pub(super) fn withdraw(&mut self, count: u32) {
        self.promised = self.promised.saturating_sub(count);
    }

    /// Returns the number of messages that the peer may have on their way.
    pub(super) fn promised(&self) -> u32 {
        self.promised
    }

    /// Returns the number of messages that have arrived completely.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Sets the structure announced to the peer. [`SharedUse::replaced`] reports it at once, because
    /// every receive of the pool is long enough already.
    pub(super) fn set(&mut self, structure: ReceiveStructure) {
        debug_assert!(
            structure.size() <= self.possible,
            "receives that no peer could ask for"
        );
        self.allowed = self.allowed.max(structure.size()).min(self.possible);
        self.structure = structure;
        self.replaced = true;
    }

    /// Returns the structure set by [`SharedUse::set`], once.
    pub(super) fn replaced(&mut self) -> Option<ReceiveStructure> {
        std::mem::take(&mut self.replaced).then(|| self.structure.clone())
    }

    /// Returns whether a message may keep `bytes` of its receive, while `free` of the `limit` bytes
    /// for receives are free. A connection that has not shown that it makes progress
    /// ([`Account::is_proven`]) must leave one part in [`PROVEN_PART`] of them free.
    pub(super) fn may_keep(&self, bytes: usize, free: usize, limit: usize) -> bool {
        let Some(held) = &self.held else { return true };
        let reserved = match held.copies.is_proven() {
            true => 0,
            false => limit / PROVEN_PART,
        };
        let wanted = held.in_place.bytes().saturating_add(bytes);
        wanted <= free.saturating_sub(reserved)
    }

    /// Returns the counter of the memory that messages keep of their receives, at a server.
    pub(super) fn in_place(&self) -> Option<&InPlace> {
        self.held.as_ref().map(|held| &held.in_place)
    }

    /// Copies a message out of its receive, in a piece for each buffer that it reached. Returns
    /// `None` if the connection's share of the memory is used up.
    pub(super) fn copy(&self, receive: &Scatter) -> Option<Segments> {
        let account = self.held.as_ref().map(|held| &held.copies);
        if account.is_some_and(|copies| copies.held() > 0 && copies.room() < receive.len()) {
            return None;
        }
        let pieces = receive.pieces().filter(|piece| !piece.is_empty());
        let copies = pieces.map(|piece| {
            let copy = Bytes::copy_from_slice(piece);
            match account {
                Some(account) => account.hold(copy),
                None => copy,
            }
        });
        let mut message: Segments = copies.collect();
        if message.is_empty() {
            message.push(Bytes::new());
        }
        Some(message)
    }

    /// Returns whether copies of the connection's messages hold memory that others wait for.
    pub(super) fn blocks_others(&self) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.copies.blocks_others())
    }
}

/// The number of bytes that messages of one connection keep of receives. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct InPlace(Arc<AtomicUsize>);

impl InPlace {
    fn bytes(&self) -> usize {
        let Self(bytes) = self;
        bytes.load(Relaxed)
    }

    /// Returns a part of a receive as bytes that are counted until the last slice is dropped, on
    /// whatever thread.
    pub(super) fn freeze(&self, piece: Buf) -> Bytes {
        let Self(bytes) = self;
        let size = piece.block_size();
        bytes.fetch_add(size, Relaxed);
        Bytes::from_owner(Kept {
            piece,
            size,
            counter: self.clone(),
        })
    }
}

/// A part of a receive that a message keeps.
struct Kept {
    piece: Buf,
    size: usize,
    counter: InPlace,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let InPlace(bytes) = &self.counter;
        bytes.fetch_sub(self.size, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use rdma::Pool;
    use rpcrdma_host::Budget;

    use super::*;

    fn receive(pool: &Pool, len: usize) -> Scatter {
        pool.alloc(len).unwrap().into()
    }

    fn limited(budget: &Budget) -> SharedUse {
        SharedUse::new(ReceiveStructure::plain(4096), 4096, Some(&budget.account()))
    }

    #[test]
    fn messages_keep_as_much_as_is_free_and_count_until_their_last_slice_is_dropped() {
        let (pool, budget) = (Pool::new(1 << 20), Budget::new(1 << 20, 1));
        let shared = limited(&budget);
        assert!(shared.may_keep(8192, 8192, 0) && !shared.may_keep(8192, 8191, 0));
        let in_place = shared.in_place().unwrap();
        let whole = in_place.freeze(receive(&pool, 5000).into_first());
        let part = whole.slice(10..20);
        assert_eq!((in_place.bytes(), whole.len()), (8192, 5000));
        assert!(shared.may_keep(4096, 12_288, 0) && !shared.may_keep(4096, 12_287, 0));
        drop(whole);
        assert!(!shared.may_keep(1, 8192, 0));
        drop(part);
        assert_eq!((in_place.bytes(), pool.in_use()), (0, 0));
        let client = SharedUse::new(ReceiveStructure::plain(4096), 4096, None);
        assert!(client.may_keep(usize::MAX, 0, 4096) && client.in_place().is_none());
    }

    #[test]
    fn a_part_of_the_memory_for_receives_is_left_to_proven_connections() {
        let account = Budget::new(1 << 20, 1).account();
        let shared = SharedUse::new(ReceiveStructure::plain(4096), 4096, Some(&account));
        let (free, limit) = (20 << 10, 64 << 10);
        assert!(shared.may_keep(4096, free, limit) && !shared.may_keep(8192, free, limit));
        account.prove();
        assert!(shared.may_keep(free, free, limit) && !shared.may_keep(free + 1, free, limit));
    }

    #[test]
    fn copies_take_the_share_of_a_connection_and_one_is_always_taken() {
        let pool = Pool::new(1 << 20);
        let budget = Budget::new(256 << 10, 2);
        let shared = limited(&budget);
        let message = receive(&pool, 60_000);
        // Half of the budget is common, of which a connection gets three quarters at most, and no
        // more than is left of them.
        let first = shared.copy(&message).unwrap();
        assert_eq!(first.concat(), message.to_vec());
        assert!(shared.copy(&message).is_none());
        let other = limited(&budget);
        let second = other.copy(&message).expect("it holds nothing");
        assert!(shared.blocks_others() && other.blocks_others());
        assert_eq!(budget.account().room(), budget.guaranteed());
        drop((first, second));
        assert_eq!(budget.common_in_use(), 0);
        assert!(
            shared
                .copy(&receive(&pool, 0))
                .is_some_and(|empty| empty.len() == 1)
        );
    }

    #[test]
    fn a_peer_may_send_what_it_was_ever_allowed_to() {
        let mut shared = SharedUse::new(ReceiveStructure::plain(1024), 8192, None);
        assert!(shared.arrived(1024) && !shared.arrived(1025));
        shared.set(ReceiveStructure::plain(8192));
        assert_eq!(shared.replaced(), Some(ReceiveStructure::plain(8192)));
        assert_eq!(shared.replaced(), None);
        shared.set(ReceiveStructure::plain(2048));
        assert!(shared.arrived(8192) && !shared.arrived(8193));
        assert_eq!(shared.received(), 4);
    }
}
