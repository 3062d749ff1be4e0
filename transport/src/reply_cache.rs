//! The duplicate-request cache: executes what must not be executed twice once.
//!
//! It holds RPC messages and nothing of a transport, so a call that arrived over one connection is
//! answered over another, of another transport even. Retransmissions come over new connections,
//! from another port often: the client is known by its address and by whom it calls for.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use onc_rpc::{CallHeader, Credential, Message};

/// How much of the arguments goes into the checksum, bytes: tells different calls with the same
/// XID apart (a client that started anew) without reading a whole WRITE.
const CHECKED: usize = 256;
/// What an entry costs beside its reply, bytes.
const OVERHEAD: usize = 256;

/// What makes two transmissions the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    peer: IpAddr,
    xid: u32,
    prog: u32,
    vers: u32,
    proc: u32,
    len: u64,
    checksum: u32,
}

impl CallKey {
    /// Of a call message whose arguments start at offset `args`.
    pub(crate) fn new(peer: IpAddr, header: &CallHeader, message: &Message, args: u64) -> Self {
        // In stream order with all bulk spliced in, so that the same call has the same key
        // whichever way its bytes were conveyed.
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
        Self {
            peer,
            xid: header.xid,
            prog: header.prog,
            vers: header.vers,
            proc: header.proc,
            len: message.stream_len(),
            checksum,
        }
    }
}

/// A checksum of who calls: users of one machine are clients of their own, who may come to choose
/// the same XID. Without the stamp, which some clients set anew with each transmission.
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

/// What the cache knows of a call.
#[derive(Debug)]
pub(crate) enum Known {
    /// Nothing: it is new, and in progress from now on.
    New,
    /// It is being executed, as this job.
    InProgress(usize),
    /// It was executed; the reply, from its XID on.
    Done(Message),
}

enum State {
    /// The job that executes it.
    Running(usize),
    Done {
        reply: Message,
        cost: usize,
        /// Its place in the order of use.
        used: u64,
    },
}

/// See the module. Bounded in entries and in bytes; what was not used for longest goes first. Calls
/// in progress are bounded by the server's other limits, and stay.
pub(crate) struct ReplyCache {
    entries: HashMap<CallKey, State>,
    /// Finished entries, the least recently used first.
    order: BTreeMap<u64, CallKey>,
    clock: u64,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
}

impl ReplyCache {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            bytes: 0,
            max_entries,
            max_bytes,
        }
    }

    /// What is known of a call. A new one is in progress as `job` from now on.
    pub(crate) fn look_up(&mut self, key: CallKey, job: usize) -> Known {
        match self.entries.get_mut(&key) {
            None => {
                self.entries.insert(key, State::Running(job));
                Known::New
            }
            Some(State::Running(job)) => Known::InProgress(*job),
            Some(State::Done { reply, used, .. }) => {
                self.order.remove(used);
                self.clock += 1;
                *used = self.clock;
                self.order.insert(self.clock, key);
                Known::Done(reply.clone())
            }
        }
    }

    /// A call that was in progress, and is finished once, has its reply.
    pub(crate) fn finish(&mut self, key: CallKey, reply: Message) {
        let cost = OVERHEAD + usize::try_from(reply.stream_len()).unwrap_or(usize::MAX / 2);
        if cost > self.max_bytes {
            // Keeping it would cost every other entry, and then itself.
            self.entries.remove(&key);
            return;
        }
        self.clock += 1;
        let used = self.clock;
        let done = State::Done { reply, cost, used };
        self.entries.insert(key, done);
        self.bytes += cost;
        self.order.insert(used, key);
        while self.bytes > self.max_bytes || self.order.len() > self.max_entries {
            let Some((_, key)) = self.order.pop_first() else {
                break;
            };
            if let Some(State::Done { cost, .. }) = self.entries.remove(&key) {
                self.bytes -= cost;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use onc_rpc::{AuthSys, Decoder, Encoder, Verifier};

    use super::*;

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
    fn a_call_is_new_then_in_progress_then_done() {
        let mut cache = ReplyCache::new(10, 1 << 20);
        let key = key(1, b"x");
        assert!(matches!(cache.look_up(key, 3), Known::New));
        assert!(matches!(cache.look_up(key, 4), Known::InProgress(3)));
        cache.finish(key, reply(8));
        assert!(matches!(cache.look_up(key, 5), Known::Done(message) if message == reply(8)));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = ReplyCache::new(2, 1 << 20);
        let keys: Vec<_> = (0..3).map(|xid| key(xid, b"x")).collect();
        for key in &keys[..2] {
            cache.look_up(*key, 0);
            cache.finish(*key, reply(8));
        }
        assert!(matches!(cache.look_up(keys[0], 0), Known::Done(_)));
        cache.look_up(keys[2], 0);
        cache.finish(keys[2], reply(8));
        assert!(matches!(cache.look_up(keys[0], 0), Known::Done(_)));
        assert!(matches!(cache.look_up(keys[1], 0), Known::New));
    }

    #[test]
    fn bytes_are_bounded_and_running_calls_stay() {
        let mut cache = ReplyCache::new(100, 3000);
        let running = key(1000, b"x");
        cache.look_up(running, 77);
        for xid in 0..50 {
            cache.look_up(key(xid, b"x"), 0);
            cache.finish(key(xid, b"x"), reply(1000));
            assert!(cache.bytes <= 3000);
        }
        assert_eq!(cache.order.len(), 2);
        assert_eq!(cache.entries.len(), 3);
        assert!(matches!(cache.look_up(running, 0), Known::InProgress(77)));
        // A reply that is over the limit by itself is not kept, and costs nobody his place.
        cache.finish(running, reply(5000));
        assert_eq!((cache.order.len(), cache.entries.len()), (2, 2));
        assert!(matches!(cache.look_up(running, 0), Known::New));
    }
}
