//! The shares of clients in the replies of one kind.

use std::collections::HashMap;
use std::hash::RandomState;

use slab::Slab;

use super::order::Order;
use crate::host::Host;

/// The number of the link that a client's list uses.
pub(super) const BY_CLIENT: usize = 1;

/// A client whose share is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// A user of this host, who can connect from many of its addresses.
    User(Option<u32>),
    /// Another host.
    Host(Host),
}

/// The replies of a client.
struct Share {
    client: Client,
    bytes: usize,
    order: Order<BY_CLIENT>,
}

/// The shares of all clients that have replies.
pub(super) struct Shares {
    shares: Slab<Share>,
    numbers: HashMap<Client, usize, RandomState>,
    /// The client that was looked up last, which is mostly the next one as well.
    last: Option<(Client, usize)>,
    /// The number of the client from which others have taken last.
    hand: usize,
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

impl Shares {
    pub(super) fn new() -> Self {
        Self {
            shares: Slab::new(),
            numbers: HashMap::default(),
            last: None,
            hand: 0,
            entries: 0,
            bytes: 0,
        }
    }

    /// Counts another reply of a client. Returns the client's number, which is valid until its last
    /// reply is gone.
    pub(super) fn add(&mut self, client: Client, cost: usize) -> usize {
        let number = match self.last {
            Some((last, number)) if last == client => number,
            _ => self.number(client),
        };
        self.entries += 1;
        self.bytes += cost;
        self.shares[number].bytes += cost;
        number
    }

    #[cold]
    fn number(&mut self, client: Client) -> usize {
        let number = *self.numbers.entry(client).or_insert_with(|| {
            self.shares.insert(Share {
                client,
                bytes: 0,
                order: Order::default(),
            })
        });
        self.last = Some((client, number));
        number
    }

    /// Subtracts a reply, which is in the client's list no longer.
    pub(super) fn subtract(&mut self, number: usize, cost: usize) {
        self.entries -= 1;
        self.bytes -= cost;
        let share = &mut self.shares[number];
        share.bytes -= cost;
        if share.order.first().is_none() {
            let Share { client, .. } = self.shares.remove(number);
            self.numbers.remove(&client);
            self.last = None;
        }
    }

    /// Returns a client's list of replies.
    pub(super) fn order(&mut self, number: usize) -> &mut Order<BY_CLIENT> {
        &mut self.shares[number].order
    }

    /// Returns the entry to evict, or `None` if there is no entry: the least recently used one of a
    /// client whose replies take at least the average. This is `newest`, the client of the newest
    /// reply, if its replies do. So a client with less than a fair share loses nothing to others.
    pub(super) fn eldest(&mut self, newest: Option<usize>) -> Option<usize> {
        let count = self.shares.len() as u64;
        let is_average = |share: &Share| share.bytes as u64 * count >= self.bytes as u64;
        let own = newest.filter(|&number| is_average(&self.shares[number]));
        let from = own.or_else(|| {
            // At least one client reaches the average. The search continues where the last one
            // ended, so that it takes few steps.
            let (end, hand) = (self.shares.capacity(), self.hand);
            let mut numbers = (hand..end).chain(0..hand.min(end));
            let found = numbers.find(|&number| self.shares.get(number).is_some_and(is_average));
            found.inspect(|&number| self.hand = number)
        });
        self.shares[from?].order.first()
    }
}
