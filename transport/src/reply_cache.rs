//! The duplicate request cache: executes each non-idempotent call only once.
//!
//! The cache holds RPC messages and no transport state, so a call that arrived over one connection
//! can be answered over another, even of another transport. Retransmissions come over new
//! connections, often from another port, so a client is identified by its address and its
//! credential.
//!
//! # Size
//!
//! A client whose connection broke asks again for the replies that it has not received, at most one
//! for each outstanding call. When it reconnects, the cache must still hold these. With the default limits of a server that is 1,024 connections
//! with 64 credits each: 65,536 replies. Meanwhile other clients go on calling, and evict older
//! entries. [`DEFAULT_ENTRIES`] is twice that number, so a client has at least two seconds to
//! reconnect while others make 30,000 non-idempotent calls per second. (Linux's server keeps
//! 16 times the square root of its number of pages, times the page size in KiB: as many with
//! 16 GiB, fewer with less.) [`DEFAULT_BYTES`] is the memory that as many replies to NFS calls take, at about
//! 250 bytes each; fewer replies fit if they are longer.
//!
//! # Shares
//!
//! No client can crowd the others out. A client is another host, or a user of this host. When the
//! cache is full, it evicts the oldest reply of a client that holds at least its fair share: of the
//! calling client if that does, and otherwise of another one. So a client with less than its fair
//! share loses no reply to others, and a client that is alone can use the whole cache.
//!
//! Replies to calls that have changed nothing ([`crate::Service::has_changed`]) are also kept: if a
//! REMOVE failed and the client has since created a file of that name, a late duplicate of the
//! REMOVE must not remove it. However, anybody can make a great many such calls, and such a
//! duplicate does no more than a call that arrives late. So their replies evict replies to calls
//! that have changed something only up to an eighth of the cache ([`OTHERS_PART`]); beyond that
//! they evict only each other. They are shared fairly among clients in the same way.
//!
//! # Calls that cannot be told apart
//!
//! The key does not contain the client's port, because a client that reconnects over RDMA cannot
//! keep its port (`nfs-ulb-v2`, section 3.3.2). So a call that agrees with an earlier one in all
//! fields of [`CallKey`], and arrives within [`MAX_AGE`], is answered as a retransmission, even if
//! another process sent it that happens to start with the same XID. Therefore clients have to start
//! with a random XID, as this crate's clients do. knfsd behaves alike over RDMA, where svcrdma sets
//! the port to 0; over TCP its key contains the port. Of the arguments,
//! beginning and end are compared, and words in between (`key.rs`), so that a WRITE of other data
//! is executed. `docs/reply-cache.md` compares the two servers.
//!
//! # Restarts
//!
//! The cache is memory, and lost with the process, as knfsd's is with the module. A call that was
//! executed before and is sent again after a restart is executed again. An idempotent call gives
//! the same result. For others the error reflects the first execution: MKDIR fails with EXIST,
//! REMOVE with NOENT. Clients expect that (this project's client checks whether the existing object
//! is the one it wanted). A cache on disk would cost a synchronous write for each change.
//!
//! # Age
//!
//! An entry that has not been used for [`MAX_AGE`] is dropped: a later call with the same XID is probably
//! another call. Most clients have given up by then. One that has been cut off for longer and goes on (a hard
//! mount) has its call executed again.
//!
//! # Loops
//!
//! A client that reconnects may reach another loop of the server than before, so all loops share the
//! cache. It is divided into parts, each with a lock of its own that is held for one look-up or one
//! reply, so loops rarely wait for one another. A retransmission of a call that another loop
//! executes waits for that loop's reply ([`Known::Elsewhere`]).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use onc_rpc::Message;
use rdma::Time;
use rpcrdma_host::{CountedMutex, LockCounter};
use slab::Slab;

mod key;
mod order;
mod shares;
#[cfg(test)]
mod tests;

pub(crate) use key::CallKey;

use key::Hashed;
use order::{Link, Linked, Order};
use shares::Shares;

/// The default maximum number of cached replies; see the module documentation.
pub(crate) const DEFAULT_ENTRIES: usize = 128 << 10;
/// The default memory limit of the cache, bytes.
pub(crate) const DEFAULT_BYTES: usize = 96 << 20;
/// The maximum time that an unused entry is kept. It exceeds the time for which a client tries to
/// reconnect ([`crate::ClientOptions::give_up_after`], 3 minutes by default) plus the time-out of a
/// retransmitted call (1 minute by default). A hard mount tries for ever, and its `timeo` may be 10 minutes:
/// most outages are shorter than this. Memory is bounded by the number and the size of the entries.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The replies to calls that have changed nothing may take this part of the entries, and of the
/// bytes, from the others.
const OTHERS_PART: usize = 8;
/// The number of the link that the list of all replies uses.
const BY_AGE: usize = 0;
/// The memory that an entry takes besides its reply, bytes: its slots in two tables, with their
/// slack.
const OVERHEAD: usize = 512;
/// The maximum number of parts.
const MOST_PARTS: usize = 16;
/// The minimum number of entries of a part, unless there is only one. With fewer, parts that happen
/// to be used more than others would hold noticeably fewer replies.
const LEAST_ENTRIES: usize = 1024;
/// The minimum memory of a part, unless there is only one, bytes. A reply that exceeds it is not
/// cached.
const LEAST_BYTES: usize = 1 << 20;

/// A retransmission at one loop that waits for the reply of a call that another loop executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// The number of the loop at which the retransmission arrived.
    pub(crate) member: usize,
    /// The number by which that loop knows it.
    pub(crate) ticket: usize,
}

/// The job of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobId {
    /// The number of the loop.
    pub(crate) member: usize,
    /// The loop's number for the job.
    pub(crate) job: usize,
}

/// The cache's answer to a lookup.
#[derive(Debug)]
pub(crate) enum Known {
    /// The call is new. It is marked as in progress.
    New,
    /// The call is being executed by this job of the loop that asks. The caller must answer the waiter
    /// of another loop, if there is one, with no reply.
    InProgress(usize, Option<Waiter>),
    /// The call is being executed by another loop, which will hand its reply to the one that asks.
    /// The caller must answer an earlier waiter with no reply.
    Elsewhere(Option<Waiter>),
    /// The call was executed. This is the reply, starting with its XID.
    Done(Message),
}

enum State {
    /// The call is being executed by this job, and the reply is for the waiter, if there is one.
    Running(JobId, Option<Waiter>),
    /// The call was executed. This is the number of its reply.
    Done(usize),
}

/// The reply to a call that was executed.
struct Done {
    key: CallKey,
    reply: Message,
    cost: usize,
    /// The time of the last use.
    at: Time,
    /// Whether the call has changed anything.
    changed: bool,
    /// The number of the client among those with replies of this kind.
    client: usize,
    links: [Link; 2],
}

impl Linked<2> for Done {
    fn links(&mut self) -> &mut [Link; 2] {
        &mut self.links
    }
}

/// Counts how often a loop waited for a part of a reply cache.
static CONTENDED: LockCounter = LockCounter::new("reply cache");

/// The duplicate request cache of all loops of a server; see the module documentation.
pub(crate) struct ReplyCache {
    parts: Box<[CountedMutex<Part>]>,
}

impl ReplyCache {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        let parts = MOST_PARTS
            .min(max_entries / LEAST_ENTRIES)
            .min(max_bytes / LEAST_BYTES)
            .max(1);
        let part = |_| {
            let part = Part::new(max_entries.div_ceil(parts), max_bytes / parts);
            CountedMutex::new(&CONTENDED, part)
        };
        Self {
            parts: (0..parts).map(part).collect(),
        }
    }

    /// Returns the part of a call. Clients number their calls in succession, so the calls of each
    /// are spread evenly.
    fn part(&self, key: &CallKey) -> std::sync::MutexGuard<'_, Part> {
        self.parts[key.spread() as usize % self.parts.len()].lock()
    }

    /// Looks up a call that `asking` received. A new call is marked as in progress as this job. If
    /// another loop is executing it, the reply is for the waiter `ticket` of the loop that asks.
    pub(crate) fn look_up(&self, key: CallKey, asking: JobId, ticket: usize, now: Time) -> Known {
        self.part(&key).look_up(key, asking, ticket, now)
    }

    /// Stores the reply of a call that was in progress, and whether the call has changed anything.
    /// Returns the waiter of another loop to which the reply must be handed, if there is one.
    pub(crate) fn finish(
        &self,
        key: CallKey,
        reply: Message,
        changed: bool,
        now: Time,
    ) -> Option<Waiter> {
        self.part(&key).finish(key, reply, changed, now)
    }

    /// Returns the number of cached replies, and the bytes of memory that they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        let each = self.parts.iter().map(|part| part.lock().size());
        each.fold((0, 0), |(entries, bytes), (more, long)| {
            (entries + more, bytes + long)
        })
    }

    /// Returns the maximum number of cached replies, and of bytes that they take.
    pub(crate) fn limits(&self) -> (usize, usize) {
        let each = self.parts.iter().map(|part| part.lock().limits());
        each.fold((0, 0), |(entries, bytes), (more, long)| {
            (entries + more, bytes + long)
        })
    }

    /// Forgets a call that was in progress and will not be executed, so that a retransmission is.
    /// Returns the waiter of another loop, which gets no reply, if there is one.
    pub(crate) fn abandon(&self, key: &CallKey) -> Option<Waiter> {
        match self.part(key).entries.remove(key) {
            Some(State::Running(_, waiter)) => waiter,
            _ => None,
        }
    }
}

/// A part of the cache. The number of replies and their bytes are limited, and shared among clients
/// as the module documentation says. Calls in progress are never evicted, because other limits of
/// the server bound their number.
struct Part {
    entries: HashMap<CallKey, State, BuildHasherDefault<Hashed>>,
    done: Slab<Done>,
    /// All replies, the least recently used first.
    order: Order<BY_AGE>,
    /// The replies to calls that have changed something, and to others.
    changes: Shares,
    others: Shares,
    max_entries: usize,
    max_bytes: usize,
}

impl Part {
    fn size(&self) -> (usize, usize) {
        (self.done.len(), self.changes.bytes + self.others.bytes)
    }

    fn limits(&self) -> (usize, usize) {
        (self.max_entries, self.max_bytes)
    }

    fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            entries: HashMap::default(),
            done: Slab::new(),
            order: Order::default(),
            changes: Shares::new(),
            others: Shares::new(),
            max_entries,
            max_bytes,
        }
    }

    fn look_up(&mut self, key: CallKey, asking: JobId, ticket: usize, now: Time) -> Known {
        self.forget_old(now);
        match self.entries.get_mut(&key) {
            None => {
                self.entries.insert(key, State::Running(asking, None));
                Known::New
            }
            Some(State::Running(running, waiter)) if running.member == asking.member => {
                Known::InProgress(running.job, waiter.take())
            }
            Some(State::Running(_, waiter)) => {
                let member = asking.member;
                Known::Elsewhere(waiter.replace(Waiter { member, ticket }))
            }
            Some(State::Done(number)) => {
                let number = *number;
                Known::Done(self.used(number, now))
            }
        }
    }

    /// Returns a reply, and makes it the most recently used one.
    #[cold]
    fn used(&mut self, number: usize, now: Time) -> Message {
        let done = &mut self.done[number];
        done.at = now;
        let (changed, client, reply) = (done.changed, done.client, done.reply.clone());
        self.order.remove(&mut self.done, number);
        self.order.push(&mut self.done, number);
        let shares = match changed {
            true => &mut self.changes,
            false => &mut self.others,
        };
        let own = shares.order(client);
        own.remove(&mut self.done, number);
        own.push(&mut self.done, number);
        reply
    }

    fn finish(&mut self, key: CallKey, reply: Message, changed: bool, now: Time) -> Option<Waiter> {
        let cost = OVERHEAD + usize::try_from(reply.stream_len()).unwrap_or(usize::MAX / 2);
        if cost > self.max_bytes {
            // Storing it would evict every other entry, and finally itself.
            return match self.entries.remove(&key) {
                Some(State::Running(_, waiter)) => waiter,
                _ => None,
            };
        }
        let shares = match changed {
            true => &mut self.changes,
            false => &mut self.others,
        };
        let client = shares.add(key.client(), cost);
        let number = self.done.insert(Done {
            key,
            reply,
            cost,
            at: now,
            changed,
            client,
            links: [Link::NONE; 2],
        });
        shares.order(client).push(&mut self.done, number);
        self.order.push(&mut self.done, number);
        let waiter = match self.entries.insert(key, State::Done(number)) {
            Some(State::Running(_, waiter)) => waiter,
            _ => None,
        };
        while self.changes.bytes + self.others.bytes > self.max_bytes
            || self.done.len() > self.max_entries
        {
            self.evict(changed, client);
        }
        waiter
    }

    /// Evicts one reply, to make room for the newest one, that of `client` to a call that has
    /// `changed` something or not.
    fn evict(&mut self, changed: bool, client: usize) {
        // Failing calls cost a client nothing, and it may make any number of them.
        let others = &self.others;
        let too_many = others.bytes > self.max_bytes / OTHERS_PART
            || others.entries > self.max_entries / OTHERS_PART;
        let of_changes = !too_many && self.changes.entries > 0;
        let newest = (changed == of_changes).then_some(client);
        let shares = match of_changes {
            true => &mut self.changes,
            false => &mut self.others,
        };
        if let Some(number) = shares.eldest(newest) {
            self.forget(number);
        }
    }

    /// Drops entries that are too old. Each lookup drops those that have expired since the last.
    fn forget_old(&mut self, now: Time) {
        while let Some(number) = self.order.first()
            && now - self.done[number].at > MAX_AGE
        {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: usize) {
        self.order.remove(&mut self.done, number);
        let Done {
            changed, client, ..
        } = self.done[number];
        let shares = match changed {
            true => &mut self.changes,
            false => &mut self.others,
        };
        shares.order(client).remove(&mut self.done, number);
        let Done { key, cost, .. } = self.done.remove(number);
        shares.subtract(client, cost);
        self.entries.remove(&key);
    }
}
