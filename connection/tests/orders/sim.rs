//! A simulation of two connections whose devices and network choose the next event at random.

use std::collections::{HashMap, HashSet};

use bytes::{Bytes, BytesMut};
use rpcrdma_connection::Config;
use rpcrdma_v2::Side;

use crate::support::{Endpoint, Pair, Posted, Seen, data, message, open, reply, room};

/// Two connections that face each other.
pub(crate) struct Sim {
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    random: u64,
    /// Whether the grants to the client are replaced by small ones, including zero.
    pub(crate) tamper: bool,
    /// Whether the client's calls are checked against its grant. Every call must then be one Send.
    pub(crate) counts_credits: bool,
    /// Whether the version counts messages, so that the number of those that may arrive varies.
    pub(crate) counts_messages: bool,
    granted: u32,
    /// The XIDs of the client's calls that were sent and not answered.
    outstanding: HashSet<u32>,
    counted: usize,
    /// The XIDs of the client's calls.
    xids: HashSet<u32>,
    /// The words and items of each call, which its reply must have, by the end that made it (true
    /// for the client) and its XID.
    expected: HashMap<(bool, u32), (usize, Vec<Bytes>)>,
    /// Whether calls are cancelled, of which the peer is not informed.
    pub(crate) cancels: bool,
    /// Whether the peer accessed invalidated memory, which ends the connection.
    pub(crate) lost: bool,
    /// The number of changes of receive sizes.
    pub(crate) changes: usize,
    sizes: [usize; 2],
}

impl Sim {
    /// Returns an established connection without calls.
    pub(crate) fn new(configs: (Config, Config), seed: u64) -> Self {
        let Pair { client, server, .. } = Pair::new(configs);
        let sizes = [&client, &server].map(|end| end.receives[0].size());
        let (counted, granted) = (client.sent.len(), 1);
        let mut sim = Self {
            client,
            server,
            random: seed | 1,
            tamper: false,
            counts_credits: false,
            counts_messages: false,
            granted,
            outstanding: HashSet::new(),
            counted,
            xids: HashSet::new(),
            expected: HashMap::new(),
            cancels: false,
            lost: false,
            changes: 0,
            sizes,
        };
        // What the ends told each other at the beginning of version 2 grants credits as well.
        for (bytes, _) in sim.server.sent.clone() {
            sim.note_grant(&bytes);
        }
        sim
    }

    /// Returns a random number below `n`, or zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % n.max(1)
    }

    fn end(&mut self, client: bool) -> &mut Endpoint {
        match client {
            true => &mut self.client,
            false => &mut self.server,
        }
    }

    /// Makes a call with one of these numbers of words, and with items of at most `longest` bytes.
    pub(crate) fn call(&mut self, from: Side, xid: u32, words: &[usize], longest: usize) {
        let client = from == Side::Client;
        let words = words[self.below(words.len())];
        let lens = self.lengths(longest);
        let seed = xid + if client { 0 } else { 1000 };
        let items: Vec<Bytes> = lens.iter().map(|&len| data(seed, len)).collect();
        let call = message(xid, words, &items);
        self.end(client).call(call, &room(words, &lens));
        if client {
            self.xids.insert(xid);
        }
        self.expected.insert((client, xid), (words, items));
    }

    /// Returns random lengths of the items of a call.
    fn lengths(&mut self, longest: usize) -> Vec<usize> {
        let count = [0, 0, 1, 1, 2][self.below(5)];
        let kinds = [0, 1, 7, 500, 1000, 3000, longest];
        let len = |at: usize| kinds[at].min(longest);
        (0..count).map(|_| len(self.below(kinds.len()))).collect()
    }

    /// Sets the number of free entries in the client's send queue to a few, or zero.
    pub(crate) fn some_room(&mut self) {
        self.client.room = self.below(3);
    }

    /// Makes one end enlarge its receives, or ask the peer for another receive size, if that is
    /// possible at present.
    pub(crate) fn resize(&mut self) {
        let sizes = [4096, 4500, 6000, 9000, 16_384, 32_768];
        let size = sizes[self.below(sizes.len())];
        let client = self.below(2) == 0;
        let raise = self.below(2) == 0;
        let connection = &mut self.end(client).connection;
        let _ = match raise {
            true => connection.raise_receive_size(size),
            false => connection.request_receive_size(size),
        };
    }

    /// Collects and checks the actions of both ends.
    pub(crate) fn collect(&mut self) {
        self.client.poll();
        self.server.poll();
        for end in [&self.client, &self.server] {
            if let Some(reason) = &end.closed {
                panic!("closed: {reason}");
            }
        }
        assert!(self.server.most_reads <= 3, "more RDMA Reads than agreed");
        // All of them may arrive before the peer posts a receive again.
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            assert!(
                from.sends_under_way() <= to.receives.len(),
                "more messages than receives"
            );
        }
        self.count_calls();
        self.count_changes();
    }

    fn count_calls(&mut self) {
        let new: Vec<Bytes> = self.client.sent[self.counted..]
            .iter()
            .map(|(bytes, _)| bytes.clone())
            .collect();
        self.counted = self.client.sent.len();
        if !self.counts_credits {
            return;
        }
        for seen in new.iter().filter_map(Seen::new) {
            if !seen.optional && !seen.error && self.xids.contains(&seen.xid) {
                assert!(self.outstanding.insert(seen.xid), "a call was sent twice");
                assert!(
                    self.outstanding.len() <= self.granted.max(1) as usize,
                    "more calls than granted"
                );
            }
        }
    }

    fn count_changes(&mut self) {
        for (at, client) in [true, false].into_iter().enumerate() {
            let last = self.end(client).receives.back();
            if let Some(size) = last.map(|receive| receive.size())
                && size != self.sizes[at]
            {
                self.sizes[at] = size;
                self.changes += 1;
            }
        }
    }

    fn note_grant(&mut self, bytes: &Bytes) {
        if let Some(seen) = Seen::new(bytes) {
            self.granted = seen.credits;
        }
    }

    /// Executes one random event. Returns false if there is none.
    pub(crate) fn step(&mut self) -> bool {
        if self.lost {
            return false;
        }
        self.collect();
        let first = self.below(14);
        let happened = (0..14).any(|n| {
            let what = (first + n) % 14;
            self.happen(what / 2, what.is_multiple_of(2))
        });
        self.collect();
        happened && !self.lost
    }

    /// Ends the connection after an access to invalidated memory. Panics unless a call was
    /// cancelled whose memory was invalidated at once, which is so where the responder does not
    /// invalidate any.
    fn lose(&mut self, why: &str) {
        let options = [&self.client, &self.server].map(|end| &end.config.options);
        let remote = options.iter().all(|options| options.remote_invalidation);
        assert!(self.cancels && !remote, "{why}");
        self.lost = true;
    }

    /// Executes events until there are none.
    pub(crate) fn step_all(&mut self) {
        while self.step() {}
    }

    fn happen(&mut self, what: usize, client: bool) -> bool {
        let counts = {
            let end = self.end(client);
            [
                end.registering.len(),
                end.invalidating.len(),
                end.posting.len(),
                end.reads.len(),
                end.posted.len().min(1),
                end.delivered.len(),
                0,
            ]
        };
        if counts[what] == 0 {
            return false;
        }
        let at = self.below(counts[what]);
        match what {
            0 => self.end(client).register(at),
            1 => self.end(client).invalidate(at),
            2 => self.end(client).post(at),
            3 => self.read(client, at),
            4 => self.carry(client),
            _ => {
                let end = self.end(client);
                let (id, call) = end.delivered.remove(at).unwrap();
                let (xid, words, items) = open(&call);
                end.reply(id, Some(reply(xid, words, &items)));
            }
        }
        true
    }

    fn read(&mut self, client: bool, at: usize) {
        let mut read = self.end(client).reads.swap_remove(at);
        let len = read.sink.len();
        let found = self.end(!client).remote_read(read.stag, read.offset, len);
        let Some(found) = found else {
            return self.lose("an RDMA Read of memory that is gone");
        };
        read.sink.copy_from_slice(&found);
        self.end(client).read_done(read);
    }

    fn carry(&mut self, from_client: bool) {
        match self.end(from_client).posted.pop_front() {
            Some(Posted::Write(bytes, stag, offset)) => {
                let written = self.end(!from_client).remote_write(stag, offset, &bytes);
                if written.is_none() {
                    self.lose("an RDMA Write to memory that is gone");
                }
            }
            Some(Posted::Send(bytes, invalidate)) => {
                let bytes = match from_client {
                    true => bytes,
                    false => self.answer(&bytes),
                };
                let received = self.end(!from_client).receive(&bytes, invalidate);
                if received.is_none() {
                    self.lose("a Send invalidates a handle that is not valid");
                }
            }
            None => {}
        }
    }

    /// Records the credits that a message of the server grants, after replacing them if `tamper` is
    /// set.
    fn answer(&mut self, bytes: &Bytes) -> Bytes {
        let mut bytes = BytesMut::from(&bytes[..]);
        if self.tamper {
            let grant = self.below(5) as u32;
            bytes[8..12].copy_from_slice(&grant.to_be_bytes());
        }
        let bytes = bytes.freeze();
        self.note_grant(&bytes);
        if let Some(seen) = Seen::new(&bytes)
            && !seen.optional
        {
            self.outstanding.remove(&seen.xid);
        }
        bytes
    }

    /// Returns whether a call of the client's has ended.
    pub(crate) fn has_ended(&self, xid: u32) -> bool {
        let mut ended = self.client.finished.iter();
        ended.any(|(other, _)| *other == xid)
    }

    /// Executes all events, and checks that every call ended with its reply and that nothing is
    /// left.
    ///
    /// # Errors
    /// A call did not end with its reply, or something is left.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.step_all();
        for ((client, xid), want) in std::mem::take(&mut self.expected) {
            let finished = self.end(client).finished.iter();
            let ended = finished.clone().find(|(other, _)| *other == xid);
            match ended {
                Some((_, Ok(reply))) if open(reply) == (xid, want.0, want.1) => {}
                other => return Err(format!("call {xid} of the client's ({client}): {other:?}")),
            }
        }
        self.forget_content();
        match self.left_over() {
            None => Ok(()),
            Some(left) => Err(left),
        }
    }

    /// Releases the memory of all results.
    pub(crate) fn forget_content(&mut self) {
        for end in [&mut self.client, &mut self.server] {
            for (_, result) in &mut end.finished {
                *result = Ok(message(0, 0, &[]));
            }
            end.delivered.clear();
        }
    }

    /// Returns a description of memory or work that is left after the last event.
    pub(crate) fn left_over(&mut self) -> Option<String> {
        let credits = [&self.client, &self.server].map(|end| {
            let counters = end.connection.responder_counters();
            let most = counters.map_or(0, |counters| counters.most_outstanding);
            (end.config.credits, most)
        });
        let server = credits[1];
        if server.1 > server.0 {
            return Some(format!(
                "{} calls where {} were granted",
                server.1, server.0
            ));
        }
        if self.counts_credits && !self.outstanding.is_empty() {
            return Some(format!("{:?} were not answered", self.outstanding));
        }
        let own = |end: &Endpoint| end.connection.expected_messages();
        let expected = (own(&self.client), own(&self.server));
        let idle = (self.client.config.callbacks, self.server.config.credits);
        if expected != idle && !self.counts_messages {
            return Some(format!("{expected:?} messages are expected, not {idle:?}"));
        }
        for end in [&self.client, &self.server] {
            let connection = &end.connection;
            let left = (
                connection.unfinished_calls(),
                connection.unanswered_calls(),
                end.registered.len(),
                end.pool.in_use(),
            );
            if left != (0, 0, 0, 0) || connection.waits_for_memory() {
                return Some(format!(
                    "calls, calls of the peer, handles, bytes: {left:?}"
                ));
            }
        }
        None
    }
}
