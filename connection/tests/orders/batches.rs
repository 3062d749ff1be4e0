//! Property tests of calls and replies that are sent together.

use std::collections::HashSet;

use quickcheck::{TestResult, quickcheck};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::Side;

use crate::sim::Sim;
use crate::toy::Toy;
use crate::{failed, narrow};

/// Returns a simulation in which the server takes batches, some of them, or none, as `takes` says, and
/// both ends send them.
fn sim(wg: bool, seed: u64, sends: u8, takes: u8) -> Sim {
    let version = if wg { Version::TWO_WG } else { Version::TWO };
    let ours = Toy {
        sends: usize::from(sends % 9),
        ..Toy::default()
    };
    let configs = narrow(version, seed.is_multiple_of(2), |client, server| {
        ours.add(version, client);
        let takes = [Some(0), Some(3), None, Some(1000)][usize::from(takes) % 4];
        if let Some(takes) = takes {
            let theirs = Toy { takes, ..ours };
            theirs.add(version, server);
        }
    });
    let mut sim = Sim::new(configs, seed);
    sim.counts_messages = wg;
    sim
}

quickcheck! {
    /// Every call ends once with its own reply, whatever the server makes of batches.
    fn calls_that_are_sent_together_end_once_in_any_order(
        wg: bool,
        seed: u64,
        sends: u8,
        takes: u8
    ) -> TestResult {
        let mut sim = sim(wg, seed, sends, takes);
        for xid in 1..=60 {
            for _ in 0..sim.below(4) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[0, 3, 100], 3000);
        }
        sim.finish().map_or_else(failed, |()| TestResult::passed())
    }

    /// Calls are cancelled at any time, those of batches and of batches that are refused too: no cancelled
    /// call is reported, and no credit is lost.
    fn calls_that_are_sent_together_can_be_cancelled(
        wg: bool,
        seed: u64,
        sends: u8,
        takes: u8
    ) -> TestResult {
        // The server invalidates handles, so that those of cancelled calls stay valid.
        let mut sim = sim(wg, seed & !1, sends, takes);
        sim.cancels = true;
        let mut cancelled = HashSet::new();
        for xid in 1..=60 {
            for _ in 0..sim.below(4) {
                sim.step();
            }
            sim.call(Side::Client, xid, &[0, 3, 100], 0);
            let victim = 1 + sim.below(xid as usize) as u32;
            if sim.below(3) == 0 && !sim.has_ended(victim) {
                sim.client.connection.cancel(victim);
                cancelled.insert(victim);
            }
        }
        sim.step_all();
        let wrong = (1..=60).find(|xid| sim.has_ended(*xid) == cancelled.contains(xid));
        if let Some(xid) = wrong {
            return failed(format!("call {xid}: cancelled is {}", cancelled.contains(&xid)));
        }
        sim.forget_content();
        sim.left_over().map_or_else(TestResult::passed, failed)
    }
}
