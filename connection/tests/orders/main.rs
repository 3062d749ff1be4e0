//! Property tests of a client's and a server's connection over devices that execute actions in
//! random order.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../sent_batches/toy.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod toy;

mod batches;
mod sim;

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use quickcheck::{TestResult, quickcheck};
use rpcrdma_chunks::{Chunks, ReadSegment, Segment, WriteChunk};
use rpcrdma_connection::dialect::{Dialect, Outgoing, VersionOne, VersionTwo, VersionTwoWg};
use rpcrdma_connection::{CallbackOptions, Config, Options};
use rpcrdma_negotiation::Version;
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_v2::{Direction, Side};
use support::{configs_with, data, message, room};
use transfer_plan::ChunkCounts;

use crate::sim::Sim;

fn version(two: bool) -> Version {
    match two {
        true => Version::TWO,
        false => Version::ONE,
    }
}

/// Returns configurations with few credits, short segments and little memory for fetched chunks, so
/// that calls have to wait.
fn narrow(
    version: Version,
    invalidation: bool,
    change: impl FnOnce(&mut Options, &mut Options),
) -> (Config, Config) {
    let (client, mut server) = configs_with(version, |client, server| {
        (client.credits, server.credits) = (16, 8);
        server.outbound_reads = 3;
        server.remote_invalidation = invalidation;
        for options in [&mut *client, &mut *server] {
            (options.inline_send, options.inline_receive) = (1024, 1024);
            (options.max_segment, options.max_message) = (3000, 1 << 20);
        }
        change(client, server);
    });
    server.max_fetched = 20_000;
    (client, server)
}

/// Enables calls from server to client.
fn both_ways(client: &mut Options, server: &mut Options, chunks: bool) {
    let callbacks = |credits| CallbackOptions { credits, chunks };
    (client.callbacks, server.callbacks) = (callbacks(4), callbacks(6));
}

fn failed(error: String) -> TestResult {
    TestResult::error(error)
}

quickcheck! {
    /// Credits are respected; every call ends once with its own reply, after its memory was
    /// invalidated; and no memory is left.
    fn every_call_ends_once_in_any_order(two: bool, seed: u64, tamper: bool) -> TestResult {
        let mut sim = Sim::new(narrow(version(two), seed.is_multiple_of(2), |_, _| {}), seed);
        sim.tamper = tamper;
        sim.counts_credits = true;
        for xid in 1..=40 {
            for _ in 0..sim.below(8) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[0, 3, 200, 1000], 7001);
        }
        sim.finish().map_or_else(failed, |()| TestResult::passed())
    }

    /// Calls in both directions end once with their own replies in any order, although both ends
    /// use the same XIDs.
    fn calls_in_both_directions_end_once_in_any_order(two: bool, seed: u64) -> TestResult {
        let configs = narrow(version(two), seed.is_multiple_of(2), |client, server| {
            both_ways(client, server, true);
        });
        let mut sim = Sim::new(configs, seed);
        // A server calls no client that it has not heard of.
        sim.call(Side::Client, 1, &[0], 0);
        sim.step_all();
        for xid in 2..=30 {
            for _ in 0..sim.below(12) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[0, 3, 200, 1000], 7001);
            sim.call(Side::Server, xid, &[0, 3, 200, 1000], 7001);
        }
        sim.finish().map_or_else(failed, |()| TestResult::passed())
    }

    /// Calls end once with their own replies in any order with placement and continuation, for any
    /// features of the two ends.
    fn continued_messages_end_once_in_any_order(seed: u64, ours: u8, theirs: u8) -> TestResult {
        let features = |at: u8| -> RoundTripFeatures {
            let all = ["none", "ddp", "cont", "ddp+cont", "ddp+cont"];
            all[usize::from(at) % all.len()].parse().unwrap()
        };
        let configs = narrow(Version::TWO, seed.is_multiple_of(2), |client, server| {
            client.protocols = rpcrdma_protocols::standard(&features(ours));
            server.protocols = rpcrdma_protocols::standard(&features(theirs));
            (client.credits, server.credits) = (32, 32);
        });
        let mut sim = Sim::new(configs, seed);
        for xid in 1..=30 {
            for _ in 0..sim.below(12) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[0, 3, 200, 1000, 3000], 20_000);
        }
        sim.finish().map_or_else(failed, |()| TestResult::passed())
    }

    /// The receive sizes of both ends change while calls wait, are registered, sent and answered:
    /// no message is longer than the receive that it consumes, and every call ends with its reply.
    fn limits_change_at_any_time_and_nothing_is_lost(seed: u64, continued: bool) -> TestResult {
        let configs = narrow(Version::TWO, seed.is_multiple_of(2), |client, server| {
            for options in [client, server] {
                (options.inline_send, options.credits) = (32 << 10, 4);
                if continued {
                    options.protocols = rpcrdma_protocols::standard(&"cont".parse().unwrap());
                    options.credits = 8;
                }
            }
        });
        let mut sim = Sim::new(configs, seed);
        // Long enough for several Sends of the longest length.
        let longest = if continued { 40_000 } else { 7001 };
        for xid in 1..=80 {
            for _ in 0..sim.below(8) {
                sim.step();
                if sim.below(4) == 0 {
                    sim.some_room();
                    sim.resize();
                }
            }
            sim.some_room();
            sim.call(Side::Client, xid, &[0, 3, 200, 240, 1000, 2000, 4000], longest);
        }
        sim.client.room = usize::MAX;
        // A change ends when each posted receive was replaced after a message had consumed it, and when an update,
        // which may have to wait for a message of the peer, has told it. So some more calls follow.
        let mut finished = sim.finish();
        for xid in 81..=110 {
            if finished.is_ok() {
                sim.call(Side::Client, xid, &[0], 0);
                finished = sim.finish();
            }
        }
        if let Err(error) = finished {
            return failed(error);
        }
        // A change that had not ended would stand in the way of another one.
        for end in [&mut sim.client, &mut sim.server] {
            if let Err(error) = end.connection.request_receive_size(5000) {
                return failed(format!("a change did not end: {error:?}"));
            }
        }
        match sim.changes {
            0 => failed("no size was changed".to_owned()),
            _ => TestResult::passed(),
        }
    }

    /// Calls are cancelled at any time, and in the end the connection is lost at any time: no
    /// cancelled call is reported, no credit is used twice, no memory is lost.
    fn cancelling_and_losing_the_connection_leave_nothing(
        two: bool,
        seed: u64,
        stop: u16
    ) -> TestResult {
        let mut sim = Sim::new(narrow(version(two), seed.is_multiple_of(2), |_, _| {}), seed);
        sim.counts_credits = true;
        let mut cancelled = HashSet::new();
        for xid in 1..=30 {
            for _ in 0..sim.below(10) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[2], 7001);
            if sim.below(3) == 0 {
                let victim = 1 + sim.below(xid as usize) as u32;
                if !sim.has_ended(victim) {
                    sim.client.connection.cancel(victim);
                    cancelled.insert(victim);
                    sim.cancels = true;
                }
            }
        }
        let mut steps = usize::from(stop % 600);
        while steps > 0 && sim.step() {
            steps -= 1;
        }
        if let Some(xid) = cancelled.iter().find(|xid| sim.has_ended(**xid)) {
            return failed(format!("cancelled call {xid} ended"));
        }
        if steps > 0 && !sim.lost {
            let missing = (1..=30).find(|xid| !sim.has_ended(*xid) && !cancelled.contains(xid));
            if let Some(xid) = missing {
                return failed(format!("call {xid} has not ended"));
            }
            sim.forget_content();
            if let Some(left) = sim.left_over() {
                return failed(format!("everything has happened, and there is left: {left}"));
            }
        }
        let pools = [sim.client.pool.clone(), sim.server.pool.clone()];
        drop(sim);
        TestResult::from_bool(pools.iter().all(|pool| pool.in_use() == 0))
    }

    /// A connection that is lost reports the replies that had arrived, and nothing more of its calls: they are
    /// over with it.
    fn a_connection_that_is_lost_reports_only_replies_that_had_arrived(two: bool, seed: u64, steps: u8) -> TestResult {
        let mut sim = Sim::new(narrow(version(two), true, |_, _| {}), seed);
        for xid in 1..=20 {
            sim.call(Side::Client, xid, &[0, 1000], 7001);
        }
        for _ in 0..steps {
            sim.step();
        }
        sim.collect();
        for end in [&mut sim.client, &mut sim.server] {
            let (sent, finished) = (end.sent.len(), end.finished.len());
            let [asked, posted] = [end.registering.len(), end.posted.len()];
            end.close();
            let expected = end.connection.unfinished_calls();
            end.poll();
            if (end.sent.len(), end.registering.len(), end.posted.len()) != (sent, asked, posted) {
                return failed("it still wants something of its device".to_owned());
            }
            if end.finished.len() != finished + expected {
                return failed(format!("{expected} replies were to be reported"));
            }
            // The answers to what it asked for before come too late.
            while !end.registering.is_empty() {
                end.register(0);
            }
            while !end.posting.is_empty() {
                end.post(0);
            }
            while let Some(read) = end.reads.pop() {
                end.read_done(read);
            }
            while let Some((id, _)) = end.delivered.pop_front() {
                end.reply(id, None);
            }
            if let Some(action) = end.connection.poll_action(usize::MAX) {
                return failed(format!("it still wants: {action:?}"));
            }
            let connection = &end.connection;
            let left = (connection.unfinished_calls(), connection.unanswered_calls());
            if left != (0, 0) || connection.waits_for_memory() {
                return failed(format!("calls, calls of the peer: {left:?}"));
            }
            // What the device still has of it goes with the device.
            end.posted.clear();
            end.sent.clear();
            end.registered.clear();
            end.invalidated_remotely.clear();
        }
        sim.forget_content();
        let pools = [&sim.client, &sim.server].map(|end| end.pool.in_use());
        match pools {
            [0, 0] => TestResult::passed(),
            left => failed(format!("bytes of the pools that the connections hold: {left:?}")),
        }
    }

    /// Arbitrary or almost valid messages from a peer cause no panic and no allocation of memory.
    fn arbitrary_messages_do_no_harm(
        two: bool,
        noise: Vec<u8>,
        flips: Vec<(u16, u8)>
    ) -> TestResult {
        let mut sim = Sim::new(narrow(version(two), true, |_, _| {}), 4);
        let items = [data(1, 4000)];
        sim.client.call(message(1, 2, &items), &room(2, &[4000]));
        sim.client.run();
        let Some((call, _)) = sim.client.sent.last().cloned() else {
            return failed("no call was sent".to_owned());
        };
        let mut call = call.to_vec();
        for (at, bits) in flips {
            let at = usize::from(at) % call.len();
            call[at] ^= bits;
        }
        let before = sim.client.pool.in_use();
        let noise: Vec<u8> = noise.into_iter().take(1024).collect();
        for bytes in [Bytes::from(noise), Bytes::from(call)] {
            for end in [&mut sim.server, &mut sim.client] {
                end.receive(&bytes, None);
                end.poll();
                if let Some(reason) = &end.closed {
                    return failed(format!("closed: {reason}"));
                }
            }
        }
        // Chunks of the longest message, once for each of the two.
        let fetched = sim.server.pool.in_use();
        TestResult::from_bool(sim.client.pool.in_use() <= before && fetched <= 4 << 20)
    }

    /// The header length that plans assume is exactly the encoded length, for all combinations of
    /// chunk lists.
    fn header_lengths_are_those_of_the_encoder(
        reads: u8,
        writes: Vec<u8>,
        reply: Option<u8>
    ) -> bool {
        let segment = Segment { handle: 1, length: 2, offset: 3 };
        let chunk = |len: u8| -> WriteChunk { (0..len).map(|_| segment).collect() };
        let counts = ChunkCounts {
            read_segments: u64::from(reads),
            write_chunks: writes.len() as u64,
            write_segments: writes.iter().map(|&len| u64::from(len)).sum(),
            reply_segments: reply.map(u64::from),
            position_zero: false,
        };
        let chunks = Chunks {
            reads: (0..reads).map(|_| ReadSegment { position: 8, segment }).collect(),
            writes: writes.into_iter().map(chunk).collect(),
            reply: reply.map(chunk),
        };
        let dialects: [&dyn Dialect; 3] = [&VersionOne, &VersionTwo, &VersionTwoWg];
        dialects.into_iter().all(|dialect| [true, false].into_iter().all(|inline| {
            let mut out = BytesMut::new();
            let returned = dialect.encode(&mut out, Outgoing {
                xid: 1,
                credits: 1,
                direction: Direction::Call,
                inline,
                chunks: chunks.clone(),
                may_be_invalidated: false,
            });
            let counts = ChunkCounts { position_zero: !inline, ..counts };
            out.len() as u64 == dialect.header_len()(&counts) && returned == chunks
        }))
    }
}
