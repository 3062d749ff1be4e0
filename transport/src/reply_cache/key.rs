//! The identity of a call: what two transmissions of it have in common.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use onc_rpc::{AuthSys, CallHeader, Credential, Message};
use smallvec::SmallVec;

use super::shares::Client;
use crate::PeerOrigin;
use crate::host::Host;

/// The number of bytes at the beginning of the arguments, and at their end, that are compared as a
/// whole.
const ENDS: u64 = 256;
/// The number of words in between that are compared, at equal distances. A WRITE of 8 KiB differs
/// in one of them if it differs in 256 bytes in succession. To compare all of its data would make
/// the server's work for it a tenth more.
const WORDS: u64 = 32;
/// The length of such a word, bytes.
const WORD: u64 = 8;

/// The fields that identify a call. Two transmissions with the same key are the same call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    /// The hash of the other fields but `user`, computed once: a call's key is looked up six times
    /// or more, and hashing was a seventh of the server's own work for a WRITE.
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
    checksum: u64,
}

impl Hash for CallKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The hasher of tables whose keys hold their hash.
#[derive(Default)]
pub(super) struct Hashed(u64);

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

/// Keyed at random, so that no client can choose calls whose keys fall into the same place of a
/// table.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl CallKey {
    /// Computes the key of a call message whose arguments start at offset `args`.
    #[inline(never)]
    pub(crate) fn new(peer: IpAddr, header: &CallHeader, message: &Message, args: u64) -> Self {
        let len = message.stream_len();
        let checksum = content(identity(&header.cred), message, args, len);
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
            checksum,
            two(header.prog, header.vers),
            two(header.xid, header.proc),
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

    /// Returns program, version and procedure.
    pub(crate) fn procedure(&self) -> (u32, u32, u32) {
        (self.prog, self.vers, self.proc)
    }

    /// Returns the client in whose share the reply counts.
    pub(super) fn client(&self) -> Client {
        match self.user {
            Some(user) => Client::User(user),
            None => Client::Host(Host::new(self.peer)),
        }
    }

    /// Returns a number that chooses the part of the cache for this call. It differs between
    /// clients, and grows by one from call to call, so that calls are spread evenly over the parts.
    pub(super) fn spread(&self) -> u32 {
        let client = match self.peer {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
            }
        };
        client.wrapping_add(self.xid)
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
    let flavor = cred.flavor().to_be_bytes();
    let Credential::Sys(AuthSys {
        machine_name,
        uid,
        gid,
        gids,
        ..
    }) = cred
    else {
        return crc32c::crc32c(&flavor);
    };
    // In one piece, because each call of the checksum costs as much as many bytes.
    let mut ids: SmallVec<[u8; 96]> = SmallVec::from_slice(&flavor);
    for id in [uid, gid].into_iter().chain(gids) {
        ids.extend_from_slice(&id.to_be_bytes());
    }
    crc32c::crc32c_append(crc32c::crc32c(&ids), machine_name)
}

/// Appends the arguments, from the offset `args` of a message of `len` bytes, to a checksum. It is
/// about the XDR stream with all bulk data in place, so the same call has the same key whether its
/// data came inline or in chunks.
fn content(seed: u32, message: &Message, args: u64, len: u64) -> u64 {
    let mut parts = SmallVec::<[&[u8]; 8]>::new();
    message.for_each_piece(|part| parts.push(part));
    let mut stream = Stream::new(&parts);
    let head = len.min(args.saturating_add(ENDS));
    let tail = head.max(len.saturating_sub(ENDS));
    let first = stream.checksum(seed, args, head);
    let distance = ((tail - head) / WORDS).max(WORD);
    let words = stream.words(head, tail, distance);
    let whole = stream.checksum(first, tail, len);
    words ^ u64::from(whole)
}

/// Reads a message that consists of parts from its beginning to its end.
struct Stream<'m> {
    rest: &'m [&'m [u8]],
    /// The part under way, and its offset in the message.
    part: &'m [u8],
    at: u64,
}

impl<'m> Stream<'m> {
    fn new(parts: &'m [&'m [u8]]) -> Self {
        Self {
            rest: parts,
            part: &[],
            at: 0,
        }
    }

    /// Returns the rest, from an offset on, of the part that contains this offset; nothing if the
    /// offset is beyond the end of the message.
    fn from(&mut self, offset: u64) -> &'m [u8] {
        while self.at + self.part.len() as u64 <= offset
            && let Some((next, rest)) = self.rest.split_first()
        {
            self.at += self.part.len() as u64;
            (self.part, self.rest) = (next, rest);
        }
        self.part.get((offset - self.at) as usize..).unwrap_or(&[])
    }

    /// Appends the bytes from `start` to `end` to a checksum.
    fn checksum(&mut self, mut checksum: u32, mut start: u64, end: u64) -> u32 {
        while start < end {
            let part = self.from(start);
            let part = &part[..part.len().min((end - start) as usize)];
            if part.is_empty() {
                break;
            }
            checksum = crc32c::crc32c_append(checksum, part);
            start += part.len() as u64;
        }
        checksum
    }

    /// Returns a checksum of the words at every `distance` bytes from `start` on that are before
    /// `end`.
    fn words(&mut self, start: u64, end: u64, distance: u64) -> u64 {
        // An odd number without a pattern (that of `rustc-hash`).
        const SPREAD: u64 = 0xf135_7aea_2e62_a9c5;
        let mut checksum = 0_u64;
        let mut add = |word| {
            checksum = (checksum.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
        };
        let mut at = start;
        while at + WORD <= end {
            let part = self.from(at);
            let part = &part[..part.len().min((end - at) as usize)];
            let mut passed = 0;
            while let Some(word) = part.get(passed..).and_then(<[u8]>::first_chunk) {
                add(*word);
                passed += distance as usize;
            }
            if passed == 0 {
                add(self.divided_word(at));
                passed = distance as usize;
            }
            at += passed as u64;
        }
        checksum
    }

    /// Returns the word at an offset, which may be divided among several parts.
    #[cold]
    fn divided_word(&mut self, offset: u64) -> [u8; WORD as usize] {
        let mut word = [0; WORD as usize];
        for (place, offset) in word.iter_mut().zip(offset..) {
            *place = self.from(offset).first().copied().unwrap_or(0);
        }
        word
    }
}
