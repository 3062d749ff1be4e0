//! Runs the comparison with many values of every type.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::{BufMut, Bytes, BytesMut};
use quickcheck::{Arbitrary, Gen};

use crate::damage::damage;
use crate::judge::{Agreement, Disagreement, hex, judge};
use crate::kind::{Kind, Refused};
use crate::program::Program;
use crate::xdr::Specification;

/// The number of values in one request.
const AT_ONCE: u64 = 256;
/// The maximum length of lists and byte strings that quickcheck generates.
const SIZE: usize = 40;
/// The maximum number of stored disagreements for each type.
const KEPT: usize = 5;

/// The results for one type.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of values that were compared, encoded both here and in C.
    pub values: u64,
    /// The number of damaged values that both accept.
    pub accepted: u64,
    /// The number of damaged values that both reject.
    pub refused: u64,
    /// The number of damaged values with superfluous zero words.
    pub shortened: u64,
    /// The number of damaged values that a rule beyond XDR forbids, by the rule's name.
    pub stricter: BTreeMap<&'static str, u64>,
    /// Values about which the two sides disagree, with the reason.
    pub disagreements: Vec<(String, Disagreement)>,
    /// The number of disagreements.
    pub disagreed: u64,
}

impl Tally {
    fn add(&mut self, bytes: &Bytes, is_value: bool, verdict: Result<Agreement, Disagreement>) {
        match verdict {
            Ok(Agreement::Accepted) if is_value => self.values += 1,
            Ok(Agreement::Accepted) => self.accepted += 1,
            Ok(Agreement::Refused) if !is_value => self.refused += 1,
            Ok(Agreement::Shortened) if !is_value => self.shortened += 1,
            Ok(Agreement::Stricter(refused)) if !is_value => {
                *self.stricter.entry(refused.name()).or_default() += 1;
            }
            // A value that was generated here must be accepted.
            Ok(_) => self.disagree(bytes, Disagreement::OnlyThere(Refused::Form, String::new())),
            Err(why) => self.disagree(bytes, why),
        }
    }

    fn disagree(&mut self, bytes: &Bytes, why: Disagreement) {
        self.disagreed += 1;
        if self.disagreements.len() < KEPT {
            self.disagreements.push((hex(bytes), why));
        }
    }
}

/// Compares `count` values of a type, and as many damaged ones.
fn one(program: &mut Program, kind: &Kind, count: u64, seed: u64) -> io::Result<Tally> {
    let number = program.number(kind.xdr)?;
    let mut g = Gen::from_size_and_seed(SIZE, seed);
    let mut tally = Tally::default();
    let mut left = count;
    while left > 0 {
        let mut cases = Vec::new();
        let mut jsons = Vec::new();
        for _ in 0..left.min(AT_ONCE) {
            let (bytes, json) = (kind.sample)(&mut g);
            let mut message = BytesMut::from(&bytes[..]);
            if kind.has_payload && bool::arbitrary(&mut g) {
                message.put_slice(&Vec::<u8>::arbitrary(&mut g));
            }
            cases.push(message.freeze());
            cases.push(damage(&mut g, &bytes));
            jsons.push(json);
            left -= 1;
        }
        let answers = program.ask(number, &cases)?;
        for (i, (bytes, there)) in cases.iter().zip(&answers).enumerate() {
            let is_value = i % 2 == 0;
            let mut verdict = judge(kind, bytes, (kind.read)(bytes), there);
            if is_value && verdict.is_ok() && there.json != jsons[i / 2] {
                verdict = Err(Disagreement::Values(
                    jsons[i / 2].clone(),
                    there.json.clone(),
                ));
            }
            tally.add(bytes, is_value, verdict);
        }
    }
    Ok(tally)
}

/// Compares `count` values of each type, and as many damaged ones, with one C program per
/// processor.
///
/// # Errors
/// A program cannot be started, or ended.
pub fn run(
    program: &Path,
    all: &Specification,
    kinds: &[Kind],
    count: u64,
    seed: u64,
) -> io::Result<Vec<Tally>> {
    let next = AtomicUsize::new(0);
    let tallies = Mutex::new(vec![Tally::default(); kinds.len()]);
    let work = || -> io::Result<()> {
        let mut program = Program::start(program, all)?;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(kind) = kinds.get(i) else {
                return Ok(());
            };
            let tally = one(&mut program, kind, count, seed.wrapping_add(i as u64))?;
            if let Ok(mut tallies) = tallies.lock() {
                tallies[i] = tally;
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(_) => Err(io::Error::other("a worker panicked")),
            })
    })?;
    tallies
        .into_inner()
        .map_err(|_| io::Error::other("a worker panicked"))
}
