//! The receives that all connections of a driver share.
//!
//! On a device whose shared receive queues make senders wait (any but those of
//! [`WhenEmpty::EndsConnection`]), connections have no receives of their own. They take them from one pool,
//! a shared receive queue of the device. So memory follows traffic rather than the number of peers, and peers
//! may be promised more receives than are posted. All receives have one structure, long enough for each
//! version and for all lengths that a peer may ask for.
//!
//! # No receive waits for another
//!
//! While a connection waits for a receive, nothing behind the waiting message arrives, Read Responses
//! included. If posting a receive depended on something from a peer, the two could wait for each
//! other. So a consumed receive is replaced before its message is processed. If there is memory, a
//! new receive is posted and the message stays where it is. If not, or if the connection holds too
//! many already ([`super::shared_use`]), the message is copied out and its receive is posted again. Short
//! messages are always copied out, because that costs less than allocating another buffer. Messages
//! that arrived are therefore never in the way of those that follow, whether they are parts of
//! incomplete messages, calls whose data is fetched by RDMA Reads, or replies that a program keeps.
//!
//! # How many there are
//!
//! The number of posted receives begins small. It doubles when most of them are consumed before the
//! driver has had its turn, up to the number of messages that all peers together may have on their
//! way, and up to the limit in bytes, which covers posted receives, those that messages in progress
//! have taken, and those whose messages are still in use. It halves after each
//! interval in which a quarter of them would have been enough, with traffic or without. When the
//! last connection has ended, the queue and its memory are given back.
//!
//! On a device of [`WhenEmpty::MayEndConnection`], no sender should have to wait. There the number does not
//! follow traffic: a receive is posted for each message as soon as it is promised, within the limit in bytes
//! and the longest queue of the device. Beyond that, the grants of all connections are lowered; until that has its
//! effect, senders wait, and their connections may be lost.
//!
//! # Messages in progress
//!
//! A message in progress occupies a receive that has not completed. Only completed receives count as
//! consumed, so peers that begin messages and do not finish them cannot make the pool grow. The
//! receives they occupy are replaced, within the limit.
//!
//! # When receives are short
//!
//! Once messages take more than half of the memory, or too few receives are posted, a peer whose
//! message takes too long is ended ([`super::slow_senders`]), and answers of a server grant each
//! connection only its part of all receives.

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{Segments, total_len};
use rdma::{Attributes, Buf, Device, DeviceError, Pool, PoolExhausted, Scatter};
use rdma::{SharedReceivesId, Time, WhenEmpty};
use rpcrdma_connection::{BEYOND_CREDITS, REPOST_LATER, ReceiveStructure, receive_memory};
use rpcrdma_host::{Account, Budget};

use super::receive_buffers::{SparePieces, alloc, restore};
use super::shared_use::SharedUse;
use super::slow_senders::CHECK_EVERY;
use super::wr_id::shared_receive;

/// The least number of receives. [`REPOST_LATER`] of them may be missing while memory is exhausted.
const LEAST: usize = 2 * REPOST_LATER as usize;
/// The number of receives posted at first, and the least to which the number shrinks, if the limit
/// allows as many.
const START: usize = 16;
/// The pool is low when fewer than one part in this many of the intended receives are posted.
const LOW_PART: usize = 4;
/// The first piece of a message is copied out of its receive if it has up to this many bytes: all of a short
/// message, or what precedes placed data. The driver does not charge such copies to the connection: its credits
/// bound the number of messages, and the connection counts the parts of messages in several.
pub(super) const COPIED: usize = 1024;
/// Half of the receives suffice if at most one part in this many of them was consumed at a time.
const ENOUGH_PART: usize = 4;
/// Much of the memory is taken if that is more than one part in this many.
const TIGHT_PART: usize = 2;
/// The interval after which fewer receives are posted if they sufficed in it.
const SHRINK_EVERY: Duration = Duration::from_secs(1);
/// The interval at which posting is tried again while there is no memory for it.
const RETRY: Duration = Duration::from_millis(1);

/// The shared receives of a driver.
#[derive(Debug)]
pub(super) struct ReceivePool {
    id: SharedReceivesId,
    /// Number of receives posted so far, which is the number of the next one.
    numbered: u64,
    structure: ReceiveStructure,
    /// The memory of receives, charged to `account`.
    memory: Pool,
    /// Budget of `memory`: posted receives, and those whose messages are in use.
    account: Account,
    /// The maximum number of bytes charged to `account`.
    limit: usize,
    /// The most bytes that were charged to `account` at a time.
    taken: usize,
    /// The maximum number of posted receives.
    most: usize,
    /// The number of receives to be posted.
    target: usize,
    /// Number of consumed receives that are not replaced yet. [`REPOST_LATER`] while receives are missing, so
    /// that `replace` puts none off.
    to_repost: u32,
    /// Number of receives consumed since the last [`ReceivePool::fill`].
    consumed: usize,
    /// Whether the device has reported that the pool is low since the last [`ReceivePool::fill`].
    low: bool,
    /// Whether the device is armed to report [`rdma::Event::SharedReceivesLow`].
    armed: bool,
    /// Number of messages that all peers together may have in flight.
    promised: usize,
    /// Whether a receive is posted for each promised message ([`WhenEmpty::MayEndConnection`]).
    covers: bool,
    /// Whether a connection has ended since the last [`ReceivePool::fill`]. The device may have freed the
    /// receive that the connection had taken.
    ended: bool,
    /// The most receives consumed between two calls of [`ReceivePool::fill`], since `target` was last
    /// reconsidered.
    peak: usize,
    /// Whether much of the memory is taken by messages, or too few receives are posted, so that
    /// messages in progress may be in the way.
    tight: bool,
    /// The time at which the number of receives is considered next.
    shrink_at: Option<Time>,
    /// The expiry of the timer that is set.
    planned: Option<Time>,
    /// Pieces of consumed receives that can be posted again.
    spare: SparePieces,
    /// Number of bytes copied because there was no other memory.
    copied: u64,
}

/// A message that arrived in a shared receive.
#[derive(Debug)]
pub(super) enum Arrived {
    /// All of the message.
    Whole(Segments),
    /// Its beginning: there is no memory for the rest.
    Truncated(Bytes),
}

impl Arrived {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(message) => total_len(message),
            Self::Truncated(beginning) => beginning.len() as u64,
        }
    }
}

/// Copies the first bytes of a message: at most [`COPIED`], and at most its first piece. Like the copy of a
/// short message, it is not charged to the connection.
#[cold]
fn beginning(receive: &Scatter) -> Bytes {
    let first = receive.pieces().next().map_or(&[][..], |piece| piece);
    Bytes::copy_from_slice(&first[..first.len().min(COPIED)])
}

/// Returns whether the connections of a device with these attributes share receives. The device must
/// be able to make a sender wait while there is none: more may be promised to peers than is posted.
#[must_use]
pub fn shares_receives(attributes: &Attributes) -> bool {
    let ends = WhenEmpty::EndsConnection;
    let shared = attributes.shared_receives;
    shared.is_some_and(|shared| shared.when_empty != ends && shared.max_wr >= LEAST)
}

/// Returns the number of bytes that the least number of receives takes.
pub(super) fn least(structure: &ReceiveStructure) -> usize {
    receive_memory(structure).saturating_mul(LEAST)
}

impl ReceivePool {
    /// Creates the pool. Receives, posted or in use, take at most `limit` bytes, or what the least
    /// number of them takes.
    ///
    /// # Errors
    /// [`DeviceError::Limit`] if there is no memory for the least number of receives, or the error
    /// of the device.
    pub(super) fn new(
        device: &mut dyn Device,
        structure: ReceiveStructure,
        limit: usize,
    ) -> Result<Self, DeviceError> {
        let id = device.create_shared_receives()?;
        let shared = device.attributes().shared_receives;
        let account = Budget::new(limit, 1).account();
        let mut pool = Self {
            id,
            numbered: 0,
            structure,
            memory: device.pool().charged_to(&account),
            account,
            limit: 0,
            taken: 0,
            most: LEAST,
            target: LEAST,
            to_repost: 0,
            consumed: 0,
            low: false,
            armed: false,
            promised: 0,
            covers: shared.is_some_and(|one| one.when_empty == WhenEmpty::MayEndConnection),
            ended: false,
            peak: 0,
            tight: false,
            shrink_at: None,
            planned: None,
            spare: SparePieces::copying(COPIED),
            copied: 0,
        };
        pool.set_limit(device, limit);
        pool.fill(device);
        // So that the driver frees the pool if the connection that it was made for does not come about.
        pool.ended = true;
        if device.posted_shared_receives(id) < LEAST {
            pool.close(device)?;
            return Err(DeviceError::Limit("memory for receive buffers"));
        }
        Ok(pool)
    }

    /// Sets the maximum number of bytes that receives, posted or in use, take.
    pub(super) fn set_limit(&mut self, device: &dyn Device, limit: usize) {
        let each = receive_memory(&self.structure).max(1);
        self.limit = limit.max(least(&self.structure));
        let max_wr = device.attributes().shared_receives;
        let max_wr = max_wr.map_or(LEAST, |shared| shared.max_wr);
        self.most = (self.limit / each).clamp(LEAST, max_wr.max(LEAST));
        self.target = self.target.clamp(START.min(self.most), self.most);
    }

    /// Frees the queue and its receives.
    ///
    /// # Errors
    /// [`DeviceError::Bound`] if queue pairs that use it are left.
    pub(super) fn close(&self, device: &mut dyn Device) -> Result<(), DeviceError> {
        device.destroy_shared_receives(self.id)
    }

    pub(super) fn id(&self) -> SharedReceivesId {
        self.id
    }

    /// Returns the structure of all receives.
    pub(super) fn structure(&self) -> &ReceiveStructure {
        &self.structure
    }

    /// Returns the length in bytes of the longest message that a receive can take.
    pub(super) fn longest(&self) -> usize {
        self.structure.size()
    }

    /// Returns the bytes that receives take, posted or with messages that are in use.
    pub(super) fn held(&self) -> usize {
        self.account.held()
    }

    /// Returns the most bytes that receives took at a time, posted or with messages that were in use.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Returns the number of bytes copied out of receives: short messages, messages that could not stay in
    /// their receives, and the beginnings of those for which there was no memory.
    pub(super) fn copied(&self) -> u64 {
        self.copied + self.spare.copied()
    }

    /// Returns the message in a consumed receive, in a piece for each segment that it reached. The
    /// receive is replaced, now or by [`ReceivePool::fill`]. Returns the beginning alone if there is no
    /// memory for the message, because those of its connection hold too much.
    pub(super) fn received(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        connection: &SharedUse,
    ) -> Arrived {
        self.consumed += 1;
        let kept = self.spare.kept(&receive);
        // What messages of a client hold is not limited.
        let copies = connection.in_place().is_none() && self.spare.is_little_longer(&receive);
        if kept == 0 || copies {
            let message = match copies {
                true => self.spare.whole_message(receive),
                false => self.spare.message_in_place(receive, None),
            };
            // Its own buffers are spare now.
            self.replace(device);
            return Arrived::Whole(message);
        }
        let free = self.limit.saturating_sub(self.account.held());
        if !connection.may_keep(kept, free, self.limit) || !self.replace(device) {
            let arrived = match connection.copy(&receive) {
                Some(message) => Arrived::Whole(message),
                None => Arrived::Truncated(beginning(&receive)),
            };
            self.copied += arrived.len();
            self.put_back(device, receive);
            return arrived;
        }
        let in_place = connection.in_place();
        Arrived::Whole(self.spare.message_in_place(receive, in_place))
    }

    /// Posts a receive in place of a consumed one, unless that can wait for [`ReceivePool::fill`] or
    /// enough are posted. Returns whether there was memory for it.
    fn replace(&mut self, device: &mut dyn Device) -> bool {
        if self.to_repost < REPOST_LATER {
            self.to_repost += 1;
            return true;
        }
        if device.posted_shared_receives(self.id) >= self.target {
            return true;
        }
        let Ok(next) = self.alloc() else {
            return false;
        };
        self.post(device, next);
        true
    }

    /// Posts a consumed receive again whose content is not wanted.
    pub(super) fn ignore(&mut self, device: &mut dyn Device, receive: Scatter) {
        self.consumed += 1;
        self.put_back(device, receive);
    }

    /// Posts a consumed receive again, unless enough are posted.
    fn put_back(&mut self, device: &mut dyn Device, receive: Scatter) {
        match device.posted_shared_receives(self.id) < self.target {
            true => self.post_again(device, receive),
            false => drop(receive),
        }
    }

    /// Posts the buffers of a consumed receive again.
    fn post_again(&mut self, device: &mut dyn Device, receive: Scatter) {
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        if !restore(&self.structure, &mut pieces) {
            // The device has returned other buffers than it was given.
            rpcrdma_host::limited!(error, "a receive came back with other buffers");
            self.ended = true;
            return;
        }
        let first = pieces.remove(0);
        self.post(device, Scatter::new(first, pieces));
    }

    /// Allocates a receive, within the limit.
    fn alloc(&mut self) -> Result<Scatter, PoolExhausted> {
        let Self {
            structure,
            memory,
            account,
            limit,
            taken,
            spare,
            ..
        } = self;
        alloc(structure, spare, |len| {
            let in_use = account.held();
            let with_it = in_use + Pool::block_size(len);
            match with_it <= *limit {
                true => {
                    let allocated = memory.alloc(len)?;
                    *taken = with_it.max(*taken);
                    Ok(allocated)
                }
                false => Err(PoolExhausted {
                    wanted: len,
                    in_use,
                    limit: *limit,
                }),
            }
        })
    }

    /// Posts a receive. Returns false if the device did not take it.
    fn post(&mut self, device: &mut dyn Device, receive: Scatter) -> bool {
        let id = shared_receive(self.numbered);
        self.numbered += 1;
        match device.post_shared_receive(self.id, id, receive) {
            Ok(()) => true,
            Err((error, _)) => {
                rpcrdma_host::limited!(error, %error, "no receive can be posted to the shared queue");
                false
            }
        }
    }

    /// Records that few shared receives are left: the device has reported the event for that.
    pub(super) fn note_low(&mut self) {
        self.low = true;
        self.armed = false;
    }

    /// Adds `count` messages that a peer may send from now on. Posts receives for them at once if the pool
    /// covers all promised messages; otherwise only traffic makes the pool grow.
    pub(super) fn promise(&mut self, device: &mut dyn Device, count: u32) {
        self.promised = self.promised.saturating_add(count as usize);
        if self.covers {
            self.fill(device);
        }
    }

    /// Subtracts `count` messages that a peer may no longer send. The next [`ReceivePool::fill`] takes back
    /// receives that are not needed any more.
    pub(super) fn promise_fewer(&mut self, count: u32) {
        self.promised = self.promised.saturating_sub(count as usize);
    }

    /// Returns the number of receives that cover all promised messages. [`ReceivePool::replace`] leaves up to
    /// [`REPOST_LATER`] consumed receives unposted until the next [`ReceivePool::fill`].
    fn covering(&self) -> usize {
        self.promised.saturating_add(LEAST)
    }

    /// Returns the number of messages that all peers together may have in flight.
    pub(super) fn promised(&self) -> usize {
        self.promised
    }

    /// Records that a connection has ended. If a message was in progress on it, its receive is free
    /// again.
    pub(super) fn connection_ended(&mut self) {
        self.ended = true;
    }

    /// Returns whether [`ReceivePool::fill`] has something to do.
    #[inline]
    pub(super) fn wants_fill(&self) -> bool {
        let unplanned = self.tight && self.planned.is_none();
        self.to_repost > 0 || self.low || self.ended || !self.armed || unplanned
    }

    /// Returns whether receives are scarce: much of their memory is taken, or too few are posted. A
    /// message in progress, which holds a receive, may then be in the way of others.
    pub(super) fn is_tight(&self) -> bool {
        self.tight
    }

    /// Returns the maximum number of credits that each of so many connections should be granted.
    /// While receives are scarce or not all promised messages can be covered, this is an equal part
    /// of all receives; otherwise there is no limit.
    pub(super) fn credits(&self, connections: usize) -> u32 {
        let connections = connections.max(1);
        let part = if self.covers && self.covering() > self.most {
            let part = self.most.saturating_sub(LEAST) / connections;
            part.saturating_sub(BEYOND_CREDITS as usize)
        } else if self.tight {
            self.limit / receive_memory(&self.structure).max(1) / connections
        } else {
            return u32::MAX;
        };
        u32::try_from(part).unwrap_or(u32::MAX).max(1)
    }

    /// Sets the number of receives to be posted, posts receives up to it, as far as there is memory, and
    /// withdraws those beyond it.
    ///
    /// If the pool covers all promised messages, the number follows theirs. Otherwise it doubles if the device
    /// reported that the pool is low and at least half of the receives were consumed since the last call, up to
    /// the number of promised messages: more receives would never be used.
    pub(super) fn fill(&mut self, device: &mut dyn Device) {
        self.ended = false;
        let low = std::mem::take(&mut self.low) && self.consumed >= self.target / 2;
        if self.covers {
            let covering = self.covering().clamp(START.min(self.most), self.most);
            // The threshold for the device's report depends on the target.
            self.armed &= self.target == covering;
            self.target = covering;
        } else if low && self.target < self.most {
            let doubled = (self.target * 2).min(self.most);
            self.target = doubled.min(self.promised).max(self.target);
        }
        self.peak = self.peak.max(std::mem::take(&mut self.consumed));
        let mut posted = device.posted_shared_receives(self.id);
        while posted < self.target
            && let Ok(receive) = self.alloc()
            && self.post(device, receive)
        {
            posted += 1;
        }
        while posted > self.target
            && let Some(receive) = device.withdraw_shared_receive(self.id)
        {
            drop(receive);
            posted -= 1;
        }
        // While receives are missing, none may be replaced later: at this value `replace` allocates at
        // once or fails, and then the message is copied out and its receive posted again.
        self.to_repost = match posted < self.target {
            true => REPOST_LATER,
            false => 0,
        };
        if self.to_repost == 0 {
            self.spare.clear();
        }
        let below = (self.target / LOW_PART).max(1);
        if !self.armed && posted >= below {
            self.armed = device.arm_shared_receives(self.id, below).is_ok();
        }
        let taken = self.account.held();
        let taken = taken.saturating_sub(posted.saturating_mul(receive_memory(&self.structure)));
        self.tight = !self.armed || taken > self.limit / TIGHT_PART;
    }

    /// Returns the time at which [`ReceivePool::check`] must be called, if that changes the time
    /// that was returned last.
    pub(super) fn plan(&mut self, now: Time) -> Option<Time> {
        if self.target > START && !self.covers && self.shrink_at.is_none() {
            self.shrink_at = Some(now + SHRINK_EVERY);
        }
        let missing = self.covers && self.to_repost > 0;
        if self.armed && !missing && !self.tight && self.shrink_at.is_none() {
            return None;
        }
        let retry = (missing || !self.armed).then(|| now + RETRY);
        let look = self.tight.then(|| now + CHECK_EVERY);
        let times = [self.shrink_at, retry, look];
        let at = times.into_iter().flatten().min()?;
        let sooner = self.planned.is_none_or(|planned| at < planned);
        sooner.then(|| {
            self.planned = Some(at);
            at
        })
    }

    /// Posts what could not be posted before, and considers whether fewer receives are enough. Returns the number of
    /// bytes of those that are not needed any more.
    pub(super) fn check(&mut self, device: &mut dyn Device, now: Time) -> usize {
        let before = self.target;
        if self.planned.is_some_and(|planned| planned <= now) {
            self.planned = None;
        }
        if self.shrink_at.is_some_and(|at| at <= now) {
            self.shrink_at = None;
            if std::mem::take(&mut self.peak) <= self.target / ENOUGH_PART {
                self.target = (self.target / 2).max(START.min(self.most));
                // The threshold depends on the target.
                self.armed = false;
            }
        }
        let fewer = before - self.target;
        self.fill(device);
        fewer.saturating_mul(receive_memory(&self.structure))
    }
}
