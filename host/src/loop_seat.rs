//! The spread of connections over the loops of a server.
//!
//! Several loops accept connections from the same listening sockets. With a socket for each loop
//! (`SO_REUSEPORT`) the system would choose by a hash of the addresses, which for a few connections
//! often means the same loop for all. Here the loops agree: a loop accepts a connection only while no
//! other one has fewer ([`LoopSeat::accept`]), and otherwise tells the one that has fewest that there
//! may be something to accept. At the limit of all connections it is the turn of a loop that can close
//! an expendable one ([`LoopSeat::accept_within`]). With rdma-core one loop receives all connection
//! requests, and gives each to the loop that has fewest ([`LoopSeat::claim_least_loaded`]). All
//! listeners of all transports count together.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

type Wake = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Seat {
    /// Changed only under [`Balance::choice`].
    connections: AtomicUsize,
    /// The part of `connections` that is expendable ([`LoopClaim::set_expendable`]). Changed
    /// without the lock: a loop that is told to accept and has none left passes the turn on.
    expendable: AtomicUsize,
    /// The number of times that this loop was told to accept.
    turns: AtomicUsize,
    /// The number of times that this loop was told to accept in place of an expendable connection.
    /// Only listeners that use [`LoopSeat::accept_within`] read this counter. Others cannot close
    /// an expendable connection; they would pass the turn back, and two loops would wake each other
    /// for ever.
    turns_at_limit: AtomicUsize,
    wake: OnceLock<Wake>,
}

/// The loop that should accept a connection instead, and the reason.
enum Pass {
    /// The loop with the fewest connections.
    Fewest(usize),
    /// The loop with the most expendable connections.
    Expendable(usize),
}

struct Balance {
    seats: Box<[Seat]>,
    /// Held while a connection is accepted or assigned, or its claim is dropped. RPC calls do not take
    /// it.
    choice: Mutex<()>,
}

impl Balance {
    /// Returns the loop with the fewest connections, the first one of several.
    fn least(&self) -> usize {
        let connections = |at: &usize| self.seats[*at].connections.load(Ordering::Relaxed);
        (0..self.seats.len()).min_by_key(connections).unwrap_or(0)
    }

    /// Checks whether the loop `index` may accept a connection. Otherwise returns the loop that should.
    ///
    /// At the limit of all loops together, a connection is accepted in place of an expendable one,
    /// and only the loop of that one can close it. If there is none, the loop with the fewest
    /// connections accepts, as below the limit; the connection is then refused.
    fn may_accept(&self, index: usize, limit: usize) -> Result<(), Pass> {
        let expendable = |seat: &Seat| seat.expendable.load(Ordering::Relaxed);
        let total: usize = self.each_connections().sum();
        if total >= limit
            && let Some((most, _)) = (self.seats.iter().enumerate())
                .max_by_key(|(_, seat)| expendable(seat))
                .filter(|(_, seat)| expendable(seat) > 0)
        {
            return match expendable(&self.seats[index]) {
                0 => Err(Pass::Expendable(most)),
                _ => Ok(()),
            };
        }
        let least = self.least();
        let connections = |at: usize| self.seats[at].connections.load(Ordering::Relaxed);
        match connections(index) > connections(least) {
            true => Err(Pass::Fewest(least)),
            false => Ok(()),
        }
    }

    fn each_connections(&self) -> impl Iterator<Item = usize> {
        let seats = self.seats.iter();
        seats.map(|seat| seat.connections.load(Ordering::Relaxed))
    }

    fn choice(&self) -> std::sync::MutexGuard<'_, ()> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seat of one loop in the group of loops over which a server spreads its connections. Clones are
/// handles to the same seat.
#[derive(Clone)]
pub struct LoopSeat {
    balance: Arc<Balance>,
    index: usize,
}

impl LoopSeat {
    /// Creates the seats of a group of `loops` loops, at least one.
    #[must_use]
    pub fn all(loops: usize) -> Vec<Self> {
        let balance = Arc::new(Balance {
            seats: (0..loops.max(1)).map(|_| Seat::default()).collect(),
            choice: Mutex::new(()),
        });
        let seat = |index| Self {
            balance: Arc::clone(&balance),
            index,
        };
        (0..loops.max(1)).map(seat).collect()
    }

    /// Returns the number of this loop in its group, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Sets the function that makes this loop poll its listeners. Has an effect only once.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        // A second call has no effect.
        let _ = self.own().wake.set(Box::new(wake));
    }

    fn own(&self) -> &Seat {
        &self.balance.seats[self.index]
    }

    /// Accepts a connection with `accept`, unless another loop has fewer connections than this one:
    /// then that loop is told to accept, and the result is `None`. The connection counts until the
    /// claim is dropped. `accept` must not block, as no other loop accepts meanwhile.
    pub fn accept<T, E>(
        &self,
        accept: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<(T, LoopClaim), E>> {
        self.accept_within(usize::MAX, accept)
    }

    /// Accepts a connection like [`LoopSeat::accept`] while all loops together have fewer than `limit`
    /// connections. At the limit, only a loop with expendable connections accepts, as long as there
    /// is one: it closes one of these to stay within the limit. If there is none, the caller must
    /// refuse the connection.
    pub fn accept_within<T, E>(
        &self,
        limit: usize,
        accept: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<(T, LoopClaim), E>> {
        let choice = self.balance.choice();
        if let Err(pass) = self.balance.may_accept(self.index, limit) {
            drop(choice);
            self.pass(&pass);
            return None;
        }
        Some(accept().map(|accepted| {
            let mut claim = LoopClaim::new(self);
            claim.over_limit = self.connections_of_all() >= limit;
            self.own().connections.fetch_add(1, Ordering::Relaxed);
            (accepted, claim)
        }))
    }

    /// Counts a connection for the loop with the fewest connections among `seats`, the first on a tie,
    /// until the claim is dropped. Returns the loop's index in `seats`, or `None` if there are none.
    /// All must be of one group.
    pub fn claim_least_loaded<'a>(
        seats: impl Iterator<Item = &'a Self>,
    ) -> Option<(usize, LoopClaim)> {
        let mut seats = seats.enumerate().peekable();
        let choice = seats.peek()?.1.balance.choice();
        let (at, seat) = seats.min_by_key(|(_, seat)| seat.connections())?;
        seat.own().connections.fetch_add(1, Ordering::Relaxed);
        drop(choice);
        Some((at, LoopClaim::new(seat)))
    }

    /// Returns whether both are seats of the same group of loops.
    #[must_use]
    pub fn same_group(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.balance, &other.balance)
    }

    /// Returns whether [`LoopSeat::accept_within`] would accept a connection now. A loop that polls its
    /// listeners all the time, as all others do, asks this instead of telling another loop to
    /// accept: it does not know whether there is anything to accept.
    #[must_use]
    pub fn is_next_within(&self, limit: usize) -> bool {
        self.balance.may_accept(self.index, limit).is_ok()
    }

    fn pass(&self, pass: &Pass) {
        let seats = &self.balance.seats;
        let (seat, turns) = match *pass {
            Pass::Fewest(index) => (&seats[index], &seats[index].turns),
            Pass::Expendable(index) => (&seats[index], &seats[index].turns_at_limit),
        };
        // The number changes before the loop wakes up and reads it.
        turns.fetch_add(1, Ordering::SeqCst);
        if let Some(wake) = seat.wake.get() {
            wake();
        }
    }

    /// Returns how often this loop was told to accept because it has the fewest connections. A listener
    /// that uses [`LoopSeat::accept`] tries to accept when the number has changed.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.own().turns.load(Ordering::SeqCst)
    }

    /// Returns how often this loop was told to accept for any reason. A listener that uses
    /// [`LoopSeat::accept_within`] tries to accept when the number has changed.
    #[must_use]
    pub fn turns_within(&self) -> usize {
        let at_limit = self.own().turns_at_limit.load(Ordering::SeqCst);
        self.turns().wrapping_add(at_limit)
    }

    /// Returns the number of connections of this loop.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.own().connections.load(Ordering::Relaxed)
    }

    /// Returns the number of connections of all loops together, those that are being set up included.
    #[must_use]
    pub fn connections_of_all(&self) -> usize {
        self.balance.each_connections().sum()
    }
}

impl fmt::Debug for LoopSeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopSeat")
            .field("index", &self.index)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}

/// A connection that counts for a loop until this value is dropped.
#[derive(Debug)]
pub struct LoopClaim {
    seat: LoopSeat,
    expendable: bool,
    /// See [`LoopClaim::is_over_limit`].
    over_limit: bool,
}

impl LoopClaim {
    fn new(seat: &LoopSeat) -> Self {
        Self {
            seat: seat.clone(),
            expendable: false,
            over_limit: false,
        }
    }

    /// Returns whether the limit of [`LoopSeat::accept_within`] was reached before this connection: the
    /// caller closes another one in its favour, or refuses it.
    #[must_use]
    pub fn is_over_limit(&self) -> bool {
        self.over_limit
    }

    /// Sets whether the connection is expendable: the peer has not yet asked for anything, or the
    /// connection is over except for its last bytes, so that it may be closed in favour of another
    /// one.
    pub fn set_expendable(&mut self, on: bool) {
        if std::mem::replace(&mut self.expendable, on) != on {
            let expendable = &self.seat.own().expendable;
            match on {
                true => expendable.fetch_add(1, Ordering::Relaxed),
                false => expendable.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }
}

impl Drop for LoopClaim {
    fn drop(&mut self) {
        self.set_expendable(false);
        let _choice = self.seat.balance.choice();
        self.seat.own().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a connection if it is the turn of this loop.
    fn claim(seat: &LoopSeat) -> Option<LoopClaim> {
        claim_within(seat, usize::MAX)
    }

    fn claim_within(seat: &LoopSeat, limit: usize) -> Option<LoopClaim> {
        let accepted = seat.accept_within(limit, || Ok::<_, ()>(()))?;
        accepted.map(|((), claim)| claim).ok()
    }

    #[test]
    fn at_the_limit_the_loop_with_expendable_connections_accepts() {
        let seats = LoopSeat::all(3);
        let mut claims: Vec<LoopClaim> = seats.iter().cycle().take(6).filter_map(claim).collect();
        assert_eq!(claims.len(), 6);
        // Nothing can be closed: as below the limit, each may accept, and refuses.
        assert!(seats.iter().all(|seat| seat.is_next_within(6)));
        claims[5].set_expendable(true);
        let (first, last) = (&seats[0], &seats[2]);
        assert!(first.is_next_within(7) && !first.is_next_within(6) && last.is_next_within(6));
        let before = (last.turns(), last.turns_within());
        assert!(claim_within(first, 6).is_none());
        // Listeners that cannot close a connection are not told.
        let after = (last.turns(), last.turns_within());
        assert_eq!(after, (before.0, before.1 + 1));
        // It closes that connection after it has accepted another one.
        let last_claim = claim_within(last, 6).unwrap();
        assert!(last_claim.is_over_limit() && !claims[5].is_over_limit());
        claims.push(last_claim);
        claims.swap_remove(5);
        assert_eq!((last.connections(), first.connections_of_all()), (2, 6));
        assert!(seats.iter().all(|seat| seat.is_next_within(6)));
        // A connection whose peer has asked for something is not expendable any more.
        claims[0].set_expendable(true);
        assert!(!last.is_next_within(6));
        claims[0].set_expendable(false);
        assert!(last.is_next_within(6));
    }

    #[test]
    fn connections_go_where_there_are_fewest() {
        let seats = LoopSeat::all(3);
        let woken: Vec<Arc<AtomicUsize>> = (0..3).map(|_| Arc::default()).collect();
        for (seat, woken) in seats.iter().zip(&woken) {
            let woken = Arc::clone(woken);
            seat.set_wake(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            });
        }
        let counts = || seats.iter().map(LoopSeat::connections).collect::<Vec<_>>();
        let first = claim(&seats[2]).unwrap();
        assert!(claim(&seats[2]).is_none());
        // The loop that is not chosen tells the one that is.
        assert_eq!((seats[0].turns(), woken[0].load(Ordering::Relaxed)), (1, 1));
        let rest: Vec<LoopClaim> = (0..8)
            .map(|_| seats.iter().find_map(claim).unwrap())
            .collect();
        assert_eq!(counts(), [3, 3, 3]);
        drop(first);
        assert_eq!(counts(), [3, 3, 2]);
        let before = seats[2].turns();
        assert!(claim(&seats[0]).is_none() && claim(&seats[1]).is_none());
        assert_eq!(seats[2].turns(), before + 2);
        drop(rest);
        // What could not be accepted does not count.
        assert!(matches!(
            seats[1].accept(|| Err::<(), _>(())),
            Some(Err(()))
        ));
        assert_eq!(counts(), [0, 0, 0]);
    }

    #[test]
    fn a_loop_that_asks_whether_it_is_next_tells_nobody() {
        let seats = LoopSeat::all(2);
        let first = claim(&seats[0]).unwrap();
        assert!(!seats[0].is_next_within(usize::MAX) && seats[1].is_next_within(usize::MAX));
        let second = claim(&seats[1]).unwrap();
        assert!(seats[0].is_next_within(usize::MAX) && seats[1].is_next_within(usize::MAX));
        assert_eq!((seats[0].turns(), seats[1].turns()), (0, 0));
        drop((first, second));
    }

    #[test]
    fn a_listener_of_all_loops_chooses_the_one_with_the_fewest_connections() {
        let seats = LoopSeat::all(3);
        let choose = |of: &[LoopSeat]| LoopSeat::claim_least_loaded(of.iter()).unwrap();
        let accepted = claim(&seats[0]).unwrap();
        let (at, first) = choose(&seats);
        assert_eq!(at, 1);
        // A loop that does not listen on that address is not chosen.
        let (at, second) = choose(&seats[..2]);
        assert_eq!((at, seats[2].connections()), (0, 0));
        drop((accepted, second));
        assert_eq!(choose(&seats[..2]).0, 0);
        drop(first);
        assert_eq!(seats[0].connections_of_all(), 0);
        assert!(LoopSeat::claim_least_loaded(std::iter::empty()).is_none());
        assert!(seats[0].same_group(&seats[2]) && !seats[0].same_group(&LoopSeat::all(1)[0]));
    }

    #[test]
    fn a_single_loop_takes_everything() {
        let seats = LoopSeat::all(0);
        let claims: Vec<_> = (0..5).map(|_| claim(&seats[0]).unwrap()).collect();
        assert_eq!(
            (seats.len(), seats[0].connections(), seats[0].turns()),
            (1, 5, 0)
        );
        drop(claims);
    }

    #[test]
    fn threads_that_accept_at_the_same_time_share_evenly() {
        let seats = LoopSeat::all(4);
        let claims: Vec<Vec<LoopClaim>> = std::thread::scope(|scope| {
            let work = |seat: &LoopSeat| {
                let seat = seat.clone();
                move || {
                    (0..100_000)
                        .filter_map(|_| claim(&seat))
                        .take(250)
                        .collect::<Vec<_>>()
                }
            };
            let threads: Vec<_> = seats.iter().map(|seat| scope.spawn(work(seat))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let counts: Vec<usize> = claims.iter().map(Vec::len).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(most - least <= 1, "{counts:?}");
        for (seat, count) in seats.iter().zip(counts) {
            assert_eq!(seat.connections(), count);
        }
    }
}
