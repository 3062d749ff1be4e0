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
//! # Calls that cannot be told apart
//!
//! The key does not contain the client's port, because a client that reconnects over RDMA cannot
//! keep its port (`nfs-ulb-v2`, section 3.3.2). So a call that agrees with an earlier one in all
//! fields of [`CallKey`], and arrives within [`MAX_AGE`], is answered as a retransmission, even if
//! another process sent it that happens to start with the same XID. Therefore clients have to start
//! with a random XID, as this crate's clients do. knfsd behaves alike over RDMA, where svcrdma sets
//! the port to 0; over TCP its key contains the port. `docs/reply-cache.md` compares the two.
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

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use onc_rpc::{CallHeader, Credential, Message};
use rdma::{CountedMutex, LockCounter, Time};

use crate::PeerOrigin;

/// The default maximum number of cached replies; see the module documentation.
pub(crate) const DEFAULT_ENTRIES: usize = 128 << 10;
/// The default memory limit of the cache, bytes.
pub(crate) const DEFAULT_BYTES: usize = 96 << 20;
/// The maximum time that an unused entry is kept. It exceeds the time for which a client tries to
/// reconnect ([`crate::ClientOptions::give_up_after`], 3 minutes by default) plus the time-out of a
/// retransmitted call (1 minute by default). A hard mount tries for ever, and its `timeo` may be 10 minutes:
/// most outages are shorter than this. Memory is bounded by the number and the size of the entries.
const MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// The number of argument bytes that the checksum covers. It distinguishes different calls with the
/// same XID (from a client that restarted) without reading a whole WRITE.
const CHECKED: usize = 256;
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

/// The fields that identify a call. Two transmissions with the same key are the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    /// The hash of the other fields but `user`, computed once: a call's key is looked up six times or
    /// more, and hashing was a seventh of the server's own work for a WRITE.
    hash: u64,
    peer: IpAddr,
    /// The user who owns the client's socket, if the client is on this host (`None`: another host;
    /// `Some(None)`: unknown user). Without it, a local user who claims another user's identity
    /// could get, or put in place, the cached reply to that user's call.
    user: Option<Option<u32>>,
    xid: u32,
    prog: u32,
    vers: u32,
    proc: u32,
    len: u64,
    checksum: u32,
}

impl Hash for CallKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The hasher of tables whose keys hold their hash.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Keyed at random, so that no client can choose calls whose keys fall into the same place of a table.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl CallKey {
    /// Computes the key of a call message whose arguments start at offset `args`.
    #[inline(never)]
    pub(crate) fn new(peer: IpAddr, header: &CallHeader, message: &Message, args: u64) -> Self {
        // The checksum runs over the XDR stream with all bulk data in place, so the same call has
        // the same key whether its data came inline or in chunks.
        let (mut skip, mut left) = (args as usize, CHECKED);
        let mut checksum = identity(&header.cred);
        for part in message.gather(|_| true) {
            let from = skip.min(part.len());
            skip -= from;
            let n = left.min(part.len() - from);
            left -= n;
            checksum = crc32c::crc32c_append(checksum, &part[from..from + n]);
            if left == 0 {
                break;
            }
        }
        let len = message.stream_len();
        let address = match peer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let two = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let [high, low] = [64, 0].map(|shift| (address.to_bits() >> shift) as u64);
        // Words of one array, which the hasher takes as one piece.
        let words = [
            high,
            low,
            len,
            two(header.xid, checksum),
            two(header.prog, header.vers),
            u64::from(header.proc),
        ];
        Self {
            hash: HASHING.hash_one(words),
            peer,
            user: None,
            xid: header.xid,
            prog: header.prog,
            vers: header.vers,
            proc: header.proc,
            len,
            checksum,
        }
    }

    /// Adds the origin of the call to the key. Among other hosts, the transport makes no
    /// difference.
    pub(crate) fn with_origin(mut self, origin: PeerOrigin) -> Self {
        self.user = match origin {
            PeerOrigin::ThisHost { user } => Some(user),
            PeerOrigin::OverTcp | PeerOrigin::OverRdma => None,
        };
        self
    }
}

/// Returns a checksum of the caller's identity: users of one machine choose XIDs independently and
/// may choose the same. The stamp is left out, because some clients set a new one with each
/// transmission.
fn identity(cred: &Credential) -> u32 {
    let checksum = crc32c::crc32c(&cred.flavor().to_be_bytes());
    let Credential::Sys(sys) = cred else {
        return checksum;
    };
    let ids = [sys.uid, sys.gid]
        .into_iter()
        .chain(sys.gids.iter().copied());
    ids.fold(
        crc32c::crc32c_append(checksum, &sys.machine_name),
        |checksum, id| crc32c::crc32c_append(checksum, &id.to_be_bytes()),
    )
}

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
    Done {
        reply: Message,
        cost: usize,
        /// The entry's key in the order of use.
        used: u64,
        /// The time of the last use.
        at: Time,
    },
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
        let client = match key.peer {
            IpAddr::V4(address) => crc32c::crc32c(&address.octets()),
            IpAddr::V6(address) => crc32c::crc32c(&address.octets()),
        };
        self.parts[client.wrapping_add(key.xid) as usize % self.parts.len()].lock()
    }

    /// Looks up a call that `asking` received. A new call is marked as in progress as this job. If
    /// another loop is executing it, the reply is for the waiter `ticket` of the loop that asks.
    pub(crate) fn look_up(&self, key: CallKey, asking: JobId, ticket: usize, now: Time) -> Known {
        self.part(&key).look_up(key, asking, ticket, now)
    }

    /// Stores the reply of a call that was in progress. Returns the waiter of another loop to which
    /// the reply must be handed, if there is one.
    pub(crate) fn finish(&self, key: CallKey, reply: Message, now: Time) -> Option<Waiter> {
        self.part(&key).finish(key, reply, now)
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

/// A part of the cache. The number of finished entries and their bytes are limited: the least
/// recently used is evicted. Calls in progress are never evicted, because other limits of the
/// server bound their number.
struct Part {
    entries: HashMap<CallKey, State, BuildHasherDefault<Hashed>>,
    /// Finished entries, least recently used first.
    order: BTreeMap<u64, CallKey>,
    clock: u64,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
}

impl Part {
    fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            entries: HashMap::default(),
            order: BTreeMap::new(),
            clock: 0,
            bytes: 0,
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
            Some(State::Done {
                reply, used, at, ..
            }) => {
                self.order.remove(used);
                self.clock += 1;
                (*used, *at) = (self.clock, now);
                self.order.insert(self.clock, key);
                Known::Done(reply.clone())
            }
        }
    }

    fn finish(&mut self, key: CallKey, reply: Message, now: Time) -> Option<Waiter> {
        let waiter = match self.entries.get_mut(&key) {
            Some(State::Running(_, waiter)) => waiter.take(),
            _ => None,
        };
        let cost = OVERHEAD + usize::try_from(reply.stream_len()).unwrap_or(usize::MAX / 2);
        if cost > self.max_bytes {
            // Storing it would evict every other entry, and finally itself.
            self.entries.remove(&key);
            return waiter;
        }
        self.clock += 1;
        let used = self.clock;
        let done = State::Done {
            reply,
            cost,
            used,
            at: now,
        };
        self.entries.insert(key, done);
        self.bytes += cost;
        self.order.insert(used, key);
        while self.bytes > self.max_bytes || self.order.len() > self.max_entries {
            let Some((used, _)) = self.order.first_key_value() else {
                break;
            };
            self.forget(*used);
        }
        waiter
    }

    /// Drops entries that are too old. Each lookup drops those that have expired since the last.
    fn forget_old(&mut self, now: Time) {
        while let Some((used, key)) = self.order.first_key_value()
            && let Some(State::Done { at, .. }) = self.entries.get(key)
            && now - *at > MAX_AGE
        {
            self.forget(*used);
        }
    }

    fn forget(&mut self, used: u64) {
        if let Some(key) = self.order.remove(&used)
            && let Some(State::Done { cost, .. }) = self.entries.remove(&key)
        {
            self.bytes -= cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use onc_rpc::{AuthSys, Decoder, Encoder, Verifier};

    use super::*;

    const NOW: Time = Time::ZERO;

    fn call(xid: u32, args: Message) -> (CallHeader, Message, u64) {
        call_by(Credential::None, xid, args)
    }

    fn call_by(cred: Credential, xid: u32, args: Message) -> (CallHeader, Message, u64) {
        let header = CallHeader {
            xid,
            prog: 1,
            vers: 1,
            proc: 1,
            cred,
            verf: Verifier::default(),
        };
        let mut message = args;
        message.prepend(header.encode());
        let mut decoder = Decoder::new(&message);
        let header = CallHeader::decode(&mut decoder).unwrap();
        let at = decoder.position();
        (header, message, at)
    }

    fn key(xid: u32, args: &[u8]) -> CallKey {
        let mut encoder = Encoder::new();
        encoder.opaque(args);
        let (header, message, at) = call(xid, encoder.finish());
        CallKey::new(IpAddr::from([127, 0, 0, 1]), &header, &message, at)
    }

    fn reply(len: usize) -> Message {
        Message::from_payload(Bytes::from(vec![7; len]))
    }

    #[test]
    fn a_key_is_of_the_call_and_not_of_how_it_was_conveyed() {
        let data = Bytes::from(vec![5; 100]);
        let mut apart = Encoder::new();
        apart.u32(9).bulk(data.clone()).u32(10);
        let mut inline = Encoder::new();
        inline.u32(9).opaque(&data).u32(10);
        let peer = IpAddr::from([127, 0, 0, 1]);
        let [apart, inline] = [apart, inline].map(|encoder| {
            let (header, message, at) = call(1, encoder.finish());
            CallKey::new(peer, &header, &message, at)
        });
        assert_eq!(apart, inline);
        assert_ne!(key(1, b"one"), key(1, b"two"));
        assert_ne!(key(1, b"one"), key(2, b"one"));
        assert_ne!(key(1, &[0; 300]), key(1, &[0; 304]));
        let mut late = [0; 300];
        late[299] = 1;
        assert_eq!(
            key(1, &[0; 300]),
            key(1, &late),
            "only the beginning is read"
        );
    }

    #[test]
    fn users_of_one_machine_do_not_get_each_others_replies() {
        let key = |cred| {
            let mut args = Encoder::new();
            args.opaque(b"the same");
            let (header, message, at) = call_by(cred, 1, args.finish());
            CallKey::new(IpAddr::from([127, 0, 0, 1]), &header, &message, at)
        };
        let sys = AuthSys {
            stamp: 1,
            machine_name: "one".into(),
            uid: 10,
            gid: 20,
            gids: [30].into_iter().collect(),
        };
        let again = AuthSys {
            stamp: 2,
            ..sys.clone()
        };
        let same = key(Credential::Sys(sys.clone()));
        assert_eq!(same, key(Credential::Sys(again)));
        let others = [
            AuthSys {
                uid: 11,
                ..sys.clone()
            },
            AuthSys {
                gid: 21,
                ..sys.clone()
            },
            AuthSys {
                gids: [31].into_iter().collect(),
                ..sys.clone()
            },
            AuthSys {
                machine_name: "two".into(),
                ..sys
            },
        ];
        for other in others {
            assert_ne!(same, key(Credential::Sys(other)));
        }
        assert_ne!(same, key(Credential::None));
    }

    #[test]
    fn a_user_of_this_host_does_not_get_or_make_the_reply_to_a_call_that_claims_anothers_identity()
    {
        let this_host = |user| key(1, b"x").with_origin(PeerOrigin::ThisHost { user });
        let keys = [Some(0), Some(1000), None].map(this_host);
        assert_ne!(keys[0], keys[1]);
        assert_ne!(keys[0], keys[2]);
        let elsewhere = |origin| key(1, b"x").with_origin(origin);
        assert_ne!(keys[2], elsewhere(PeerOrigin::OverTcp));
        assert_eq!(
            elsewhere(PeerOrigin::OverRdma),
            elsewhere(PeerOrigin::OverTcp)
        );
    }

    #[test]
    fn a_call_is_new_then_in_progress_then_done() {
        let cache = ReplyCache::new(10, 1 << 20);
        let key = key(1, b"x");
        let look_up = |job| cache.look_up(key, JobId { member: 0, job }, 0, NOW);
        assert!(matches!(look_up(3), Known::New));
        assert!(matches!(look_up(4), Known::InProgress(3, None)));
        assert_eq!(cache.finish(key, reply(8), NOW), None);
        assert!(matches!(look_up(5), Known::Done(message) if message == reply(8)));
    }

    #[test]
    fn the_reply_of_another_loop_is_for_the_last_transmission() {
        let cache = ReplyCache::new(10, 1 << 20);
        let key = key(1, b"x");
        let look_up = |member, ticket| cache.look_up(key, JobId { member, job: 9 }, ticket, NOW);
        let waiter = |member, ticket| Waiter { member, ticket };
        assert!(matches!(look_up(0, 0), Known::New));
        assert!(matches!(look_up(1, 5), Known::Elsewhere(None)));
        // Of several retransmissions the last one is answered, wherever it arrived.
        assert!(
            matches!(look_up(2, 6), Known::Elsewhere(Some(earlier)) if earlier == waiter(1, 5))
        );
        assert!(
            matches!(look_up(0, 0), Known::InProgress(9, Some(earlier)) if earlier == waiter(2, 6))
        );
        assert!(matches!(look_up(1, 7), Known::Elsewhere(None)));
        assert_eq!(cache.finish(key, reply(8), NOW), Some(waiter(1, 7)));
        assert!(matches!(look_up(2, 8), Known::Done(_)));
        // The same holds for a reply that is too long to be stored.
        let cache = ReplyCache::new(10, 1000);
        for member in [0, 1] {
            cache.look_up(key, JobId { member, job: 1 }, 3, NOW);
        }
        assert_eq!(cache.finish(key, reply(8000), NOW), Some(waiter(1, 3)));
    }

    #[test]
    fn many_threads_agree_on_who_executes_a_call() {
        let cache = ReplyCache::new(64 << 10, 64 << 20);
        assert_eq!(cache.parts.len(), MOST_PARTS);
        let (calls, threads) = (2000, 4);
        let executed: usize = std::thread::scope(|scope| {
            let work = |member| {
                let cache = &cache;
                move || {
                    let mut executed = 0;
                    for xid in 0..calls {
                        let key = key(xid, b"x");
                        let asking = JobId { member, job: 1 };
                        if matches!(cache.look_up(key, asking, 0, NOW), Known::New) {
                            executed += 1;
                            cache.finish(key, reply(8), NOW);
                        }
                    }
                    executed
                }
            };
            let threads: Vec<_> = (0..threads).map(|at| scope.spawn(work(at))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(executed, calls as usize);
        let kept = cache.parts.iter().map(|part| part.lock().order.len());
        assert!(kept.clone().all(|kept| kept == calls as usize / MOST_PARTS));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Part::new(2, 1 << 20);
        let keys: Vec<_> = (0..3).map(|xid| key(xid, b"x")).collect();
        for key in &keys[..2] {
            look_up(&mut cache, *key, 0, NOW);
            cache.finish(*key, reply(8), NOW);
        }
        assert!(matches!(
            look_up(&mut cache, keys[0], 0, NOW),
            Known::Done(_)
        ));
        look_up(&mut cache, keys[2], 0, NOW);
        cache.finish(keys[2], reply(8), NOW);
        assert!(matches!(
            look_up(&mut cache, keys[0], 0, NOW),
            Known::Done(_)
        ));
        assert!(matches!(look_up(&mut cache, keys[1], 0, NOW), Known::New));
    }

    #[test]
    fn bytes_are_bounded_and_running_calls_stay() {
        let mut cache = Part::new(100, 3500);
        let running = key(1000, b"x");
        look_up(&mut cache, running, 77, NOW);
        for xid in 0..50 {
            look_up(&mut cache, key(xid, b"x"), 0, NOW);
            cache.finish(key(xid, b"x"), reply(1000), NOW);
            assert!(cache.bytes <= 3500);
        }
        assert_eq!(cache.order.len(), 2);
        assert_eq!(cache.entries.len(), 3);
        assert!(matches!(
            look_up(&mut cache, running, 0, NOW),
            Known::InProgress(77, None)
        ));
        // A reply that exceeds the limit by itself is not stored and evicts nothing.
        cache.finish(running, reply(5000), NOW);
        assert_eq!((cache.order.len(), cache.entries.len()), (2, 2));
        assert!(matches!(look_up(&mut cache, running, 0, NOW), Known::New));
    }

    #[test]
    fn what_is_old_is_forgotten_unless_it_was_asked_for() {
        let mut cache = Part::new(10, 1 << 20);
        let (old, asked, running) = (key(1, b"x"), key(2, b"x"), key(3, b"x"));
        for key in [old, asked] {
            look_up(&mut cache, key, 0, NOW);
            cache.finish(key, reply(8), NOW);
        }
        look_up(&mut cache, running, 7, NOW);
        let later = NOW + MAX_AGE;
        assert!(matches!(
            look_up(&mut cache, asked, 0, later),
            Known::Done(_)
        ));
        let late = later + Duration::from_secs(1);
        assert!(matches!(look_up(&mut cache, old, 0, late), Known::New));
        assert!(matches!(
            look_up(&mut cache, asked, 0, late),
            Known::Done(_)
        ));
        assert!(matches!(
            look_up(&mut cache, running, 0, late),
            Known::InProgress(7, None)
        ));
        cache.finish(old, reply(8), late);
        assert!(matches!(look_up(&mut cache, old, 0, late), Known::Done(_)));
        let much_later = late + MAX_AGE + Duration::from_secs(1);
        look_up(&mut cache, key(4, b"x"), 0, much_later);
        assert_eq!((cache.bytes, cache.order.len()), (0, 0));
        assert_eq!(cache.entries.len(), 2, "what runs stays");
    }

    /// Looks up a call in the only loop.
    fn look_up(cache: &mut Part, key: CallKey, job: usize, now: Time) -> Known {
        cache.look_up(key, JobId { member: 0, job }, 0, now)
    }

    /// Tests the claim of the module documentation about the default limits.
    #[test]
    fn the_default_limits_hold_the_replies_of_every_call_that_can_be_outstanding() {
        let options = crate::ServerOptions::default();
        let credits = crate::rdma::RdmaServerOptions::default().common.credits as usize;
        let outstanding = options.max_connections * credits;
        assert!(options.reply_cache_entries >= 2 * outstanding);
        let cache = ReplyCache::new(options.reply_cache_entries, options.reply_cache_bytes);
        for xid in 0..2 * outstanding as u32 {
            let key = key(xid, b"x");
            cache.look_up(key, JobId { member: 0, job: 0 }, 0, NOW);
            cache.finish(key, reply(250), NOW);
        }
        let kept = cache.parts.iter().map(|part| part.lock().order.len());
        assert_eq!(kept.sum::<usize>(), 2 * outstanding);
        // The overhead that is counted is at least what an entry takes in the tables.
        let entry = size_of::<(CallKey, State)>() + size_of::<(u64, CallKey)>();
        assert!(OVERHEAD >= entry, "{entry}");
    }
}
