//! The loops of one server, and what they share.
//!
//! A server can have several loops ([`Server`] is one), each on a thread of its own with transports
//! of its own, so that it uses several processors. The loops of a [`ServerGroup`] share the reply
//! cache and the limit on connections ([`super::admission`]). A call is executed by the loop at
//! which it arrives first. If its retransmission arrives at another loop meanwhile, the executing
//! loop hands over the reply.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use onc_rpc::Message;
use rdma::Time;
use rpcrdma_host::{CountedMutex, LockCounter, LoopSeat};

use super::places::Places;
use super::{Running, Server, ServerOptions, has_changed};
use crate::backchannel::ConnKey;
use crate::dispatch::answer;
use crate::poll_loop::Wake;
use crate::reply_cache::{ReplyCache, Waiter};

/// Counts how often a loop waited for the mailbox of another one.
static CONTENDED: LockCounter = LockCounter::new("mailboxes of loops");

/// The answer to a call that arrived at one loop and was executed by another: the reply, or none if
/// a later transmission of the call gets it.
struct Handed {
    ticket: usize,
    reply: Option<Message>,
}

/// Messages from other loops to one loop.
struct Mailbox {
    /// The replies that other loops have handed over.
    handed: CountedMutex<Vec<Handed>>,
    /// The connections that are to make room for others, and whether there are any.
    making_room: CountedMutex<Vec<ConnKey>>,
    makes_room: AtomicBool,
    /// The questions of other threads, and whether there are any.
    asked: CountedMutex<Vec<Question>>,
    is_asked: AtomicBool,
    /// The loop, once it exists.
    wake: OnceLock<Arc<Wake>>,
}

/// The maximum number of questions that wait for a loop.
const QUESTIONS: usize = 16;

/// A question of another thread, which the loop answers between two turns.
pub(super) type Question = Box<dyn FnOnce(&Server) + Send>;

pub(super) struct Shared {
    pub(super) cache: ReplyCache,
    seats: Vec<LoopSeat>,
    mailboxes: Box<[Mailbox]>,
    pub(super) places: Places,
}

impl Shared {
    /// Has a loop answer a question.
    pub(super) fn ask(&self, member: usize, question: Question) {
        let mailbox = &self.mailboxes[member];
        let mut asked = mailbox.asked.lock();
        if asked.len() >= QUESTIONS {
            // The loop has ended, or nobody waits for these answers any more.
            asked.clear();
        }
        asked.push(question);
        drop(asked);
        // As in `make_room`.
        mailbox.is_asked.store(true, Relaxed);
        mailbox.wake();
    }

    /// Tells a loop to close a connection that makes room for another one.
    pub(super) fn make_room(&self, member: usize, place: ConnKey) {
        let mailbox = &self.mailboxes[member];
        mailbox.making_room.lock().push(place);
        // After the push, and before the wake-up, with which the loop looks at it.
        mailbox.makes_room.store(true, Relaxed);
        mailbox.wake();
    }
}

impl Mailbox {
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }
}

/// The loops of one server. Clones are handles to the same group.
#[derive(Clone)]
pub struct ServerGroup {
    pub(super) shared: Arc<Shared>,
}

impl ServerGroup {
    /// Creates a group for `loops` loops, at least one, with the reply cache and the limit on
    /// connections of `options`.
    #[must_use]
    pub fn new(loops: usize, options: &ServerOptions) -> Self {
        let mailbox = |_| Mailbox {
            handed: CountedMutex::new(&CONTENDED, Vec::new()),
            making_room: CountedMutex::new(&CONTENDED, Vec::new()),
            makes_room: AtomicBool::new(false),
            asked: CountedMutex::new(&CONTENDED, Vec::new()),
            is_asked: AtomicBool::new(false),
            wake: OnceLock::new(),
        };
        let cache = ReplyCache::new(options.reply_cache_entries, options.reply_cache_bytes);
        Self {
            shared: Arc::new(Shared {
                cache,
                seats: LoopSeat::all(loops),
                mailboxes: (0..loops.max(1)).map(mailbox).collect(),
                places: Places::new(options.max_connections),
            }),
        }
    }

    /// Returns the place of a loop among the others, for the transports of this loop that listen on
    /// the same sockets as those of others ([`crate::TcpOptions::seat`]).
    ///
    /// # Panics
    /// If the group has no such loop.
    #[must_use]
    pub fn seat(&self, index: usize) -> LoopSeat {
        self.shared.seats[index].clone()
    }

    /// Returns the number of loops.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.shared.mailboxes.len()
    }
}

impl std::fmt::Debug for ServerGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerGroup")
            .field("loops", &self.loops())
            .field("connections", &self.shared.places.taken())
            .finish_non_exhaustive()
    }
}

/// A loop's membership in its group.
pub(super) struct Member {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl Member {
    /// Joins `group` as loop `index`. Other loops call `wake` when they hand over a reply.
    ///
    /// # Panics
    /// If the group has no such loop, or another one has joined as it: a mistake of the program.
    pub(super) fn join(group: &ServerGroup, index: usize, wake: &Arc<Wake>) -> Self {
        let shared = Arc::clone(&group.shared);
        let joined = shared.mailboxes[index].wake.set(Arc::clone(wake));
        assert!(joined.is_ok(), "loop {index} of a server exists already");
        let wake = Arc::clone(wake);
        shared.seats[index].set_wake(move || wake.wake());
        Self { shared, index }
    }

    /// Hands a reply, or its absence, to the loop at which a transmission arrived.
    fn hand(&self, waiter: Waiter, reply: Option<Message>) {
        let mailbox = &self.shared.mailboxes[waiter.member];
        let ticket = waiter.ticket;
        mailbox.handed.lock().push(Handed { ticket, reply });
        mailbox.wake();
    }

    /// Returns the questions that this loop was asked since the last call.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mailbox = &self.shared.mailboxes[self.index];
        // As in `making_room`.
        if !mailbox.is_asked.load(Relaxed) {
            return Vec::new();
        }
        mailbox.is_asked.store(false, Relaxed);
        std::mem::take(&mut *mailbox.asked.lock())
    }

    /// Returns the connections of this loop that were told to make room since the last call.
    pub(super) fn making_room(&self) -> Vec<ConnKey> {
        let mailbox = &self.shared.mailboxes[self.index];
        // Without a lock, because a loop asks whenever it is woken.
        if !mailbox.makes_room.load(Relaxed) {
            return Vec::new();
        }
        // Before the list is taken: what is added to it later sets the flag again.
        mailbox.makes_room.store(false, Relaxed);
        std::mem::take(&mut *mailbox.making_room.lock())
    }
}

impl Server {
    /// Gives the replies of all started jobs to the reply cache and to the loops that wait for them,
    /// and removes the others from the cache. Nothing is sent: the loop's connections end with it.
    pub(super) fn leave_calls(&mut self) {
        let now = self.poll_loop.clock().now();
        self.workers.close();
        let mut done = std::mem::take(&mut self.done);
        self.workers.take_done(&mut done);
        for (id, reply) in done {
            if let Some(Running { xid, key, .. }) = self.running.try_remove(id)
                && let Some(key) = key
            {
                let changed = has_changed(&*self.service, &key, &reply);
                let message = answer(xid, reply, &mut BytesMut::new());
                let cache = &self.member.shared.cache;
                let waiter = cache.finish(key, message.clone(), changed, now);
                if let Some(waiter) = waiter {
                    self.member.hand(waiter, Some(message));
                }
            }
        }
        for Running { key, .. } in self.running.drain() {
            let waiter = key.and_then(|key| self.member.shared.cache.abandon(&key));
            if let Some(waiter) = waiter {
                self.member.hand(waiter, None);
            }
        }
    }

    /// Returns the number of replies that other loops have handed to this one and that it has not
    /// taken. A simulation finds a missing wake-up by it.
    #[must_use]
    pub fn handed_replies(&self) -> usize {
        let mailbox = &self.member.shared.mailboxes[self.member.index];
        mailbox.handed.lock().len()
    }

    /// Takes the replies that other loops have handed to this one, and sends them.
    pub(super) fn take_handed(&mut self, now: Time) {
        let handed = std::mem::take(
            &mut *self.member.shared.mailboxes[self.member.index]
                .handed
                .lock(),
        );
        for Handed { ticket, reply } in handed {
            self.answer_waiting(ticket, reply, now);
        }
    }

    fn answer_waiting(&mut self, ticket: usize, reply: Option<Message>, now: Time) {
        if let Some(origin) = self.waiting.try_remove(ticket) {
            self.call_ended(origin, now);
            self.reply(origin, reply, now);
        }
    }

    /// Answers a transmission that waited for a reply: with the reply, or with none if a later
    /// transmission gets it.
    pub(super) fn answer_waiter(&mut self, waiter: Waiter, reply: Option<Message>, now: Time) {
        match waiter.member == self.member.index {
            true => self.answer_waiting(waiter.ticket, reply, now),
            false => self.member.hand(waiter, reply),
        }
    }
}
