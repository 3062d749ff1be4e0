//! The memory of the parts of an incomplete message.

use rpcrdma_host::{Account, Charge};

/// The memory of the parts of an incomplete message, charged to the account of the connection.
///
/// The driver may count the receives that the parts are in as well, or the copies of those
/// ([`Config::longest_uncounted`](crate::Config::longest_uncounted)). So one message of a connection at a time is charged
/// twice, which the time-out of messages in several parts limits.
#[derive(Debug)]
pub(crate) struct Collected {
    account: Option<Account>,
    charge: Charge,
    /// Bytes of the charge that are memory of receives.
    receives: usize,
    /// The part of these that the driver counts as well.
    counted: usize,
}

impl Collected {
    pub(crate) fn new(account: Option<Account>) -> Self {
        Self {
            charge: Charge::new(account.clone()),
            account,
            receives: 0,
            counted: 0,
        }
    }

    /// Records that the parts take so many bytes now, `copies` of which are not memory of receives. `counts` says that
    /// the driver counts the memory of the message that was received last. Returns false if there is no memory for
    /// more.
    ///
    /// Calls in progress may take all memory that the connection can have, and release it when they are answered. A
    /// message that has begun cannot wait for that. If they were counted, the peer would lose the connection because of
    /// calls for which it was granted credits, and the replies with it. It would make the same calls over the next
    /// connection, and might never get a reply. So only what other connections hold counts, and the guaranteed memory
    /// of this one as far as its calls use it. All connections together can hold more than the budget, by no more than
    /// the calls of one of them hold beyond its guaranteed memory.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize, copies: usize, counts: bool) -> bool {
        let receives = bytes.saturating_sub(copies);
        if counts {
            self.counted += receives.saturating_sub(self.receives);
        }
        self.receives = receives;
        self.counted = self.counted.min(receives);
        bytes == self.charge.bytes() || self.change(bytes)
    }

    /// Ends the charge, because the message is complete or given up. Returns the bytes that nobody counts from now on:
    /// those that the driver does not.
    #[inline]
    pub(crate) fn release(&mut self) -> usize {
        match self.charge.bytes() {
            0 => 0,
            bytes => {
                self.charge.sub(bytes);
                self.receives = 0;
                bytes.saturating_sub(std::mem::take(&mut self.counted))
            }
        }
    }

    fn change(&mut self, bytes: usize) -> bool {
        let before = self.charge.bytes();
        let (more, less) = (bytes.saturating_sub(before), before.saturating_sub(bytes));
        let fits = more == 0
            || self.account.as_ref().is_none_or(|account| {
                let of_calls = account.held().saturating_sub(before);
                account.room_without(of_calls.saturating_sub(account.guaranteed())) >= more
            });
        self.charge.add(more);
        self.charge.sub(less);
        fits
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_host::Budget;

    use super::*;

    const CONNECTIONS: usize = 100;
    /// Bytes of a part.
    const PART: usize = 1000;

    /// A connection with calls in progress, and a message of which parts arrive.
    struct Busy {
        account: Account,
        calls: Charge,
        parts: Collected,
    }

    impl Busy {
        fn new(budget: &Budget) -> Self {
            let account = budget.account();
            let mut calls = Charge::new(Some(account.clone()));
            calls.add(account.guaranteed());
            Self {
                parts: Collected::new(Some(account.clone())),
                account,
                calls,
            }
        }

        fn part_arrives(&mut self) -> bool {
            let before = self.parts.charge.bytes();
            let fits = self.parts.set(before + PART, 0, false);
            if !fits {
                assert!(self.parts.set(before, 0, false), "fewer always fit");
            }
            fits
        }
    }

    /// The calls of one connection may hold all common memory, or those of none.
    #[test]
    fn parts_of_all_connections_exceed_the_budget_by_no_more_than_the_calls_of_one() {
        for has_greedy in [false, true] {
            let budget = Budget::new(2 << 20, CONNECTIONS);
            let mut all: Vec<Busy> = (0..CONNECTIONS).map(|_| Busy::new(&budget)).collect();
            let greedy = &mut all[CONNECTIONS / 2];
            let beyond = match has_greedy {
                true => greedy.account.room(),
                false => 0,
            };
            greedy.calls.add(beyond);
            // Each message goes on as long as it can.
            let mut goes_on = true;
            while std::mem::take(&mut goes_on) {
                for connection in &mut all {
                    goes_on |= connection.part_arrives();
                }
            }
            let held: usize = all.iter().map(|connection| connection.account.held()).sum();
            let most = budget.limit() + beyond;
            assert!(held <= most, "{held} bytes held, {most} expected");
            let parts = |connection: &Busy| connection.parts.charge.bytes();
            match has_greedy {
                true => assert!(parts(&all[CONNECTIONS / 2]) > 0),
                false => assert!(all.iter().all(|connection| parts(connection) > 0)),
            }
            drop(all);
            assert_eq!(budget.common_in_use(), 0);
        }
    }
}
