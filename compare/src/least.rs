//! The least receives with which an operation takes one round trip.
//!
//! Longer receives alone spare version 1 the RDMA Read of a WRITE, and message continuation spares
//! it with short ones. What that takes in memory is asked of the code that plans transfers, in a
//! simulation, and not of a formula.

use std::sync::Arc;

use rpcrdma_programs::workload::Workload;
use rpcrdma_setup::units::show_size;
use rpcrdma_setup::{Context, Failure};
use rpcrdma_sim::measure;

use crate::options::{INLINE, OpName, Options};
use crate::rows::{Least, Row};
use crate::simulated::configured;
use crate::variant::Variant;

/// The size of the WRITE that the first sentence is about, if it was measured: a small file, and
/// more than fits into the receives of version 1.
pub(crate) const USUAL_SIZE: u64 = 8 << 10;

/// Adds to the rows of the usual WRITE, by version 1 as Linux uses it and by version 2 with
/// continuation, the least receives with which it takes one round trip.
///
/// # Errors
/// The operation cannot be simulated.
pub(crate) fn add(
    options: &Options,
    ops: &[Arc<dyn Workload>],
    rows: &mut [Row],
) -> Result<(), Failure> {
    let usual = ops.iter().map(|op| &**op);
    let usual = usual.filter(|op| op.name() == OpName::Write.name());
    let mut usual = usual.filter(|op| op.size().map(u64::from) == Some(USUAL_SIZE));
    let (Some(op), true) = (usual.next_back(), options.receives.is_empty()) else {
        return Ok(());
    };
    for via in [Variant::V1Inv, Variant::V2Cont] {
        let mut of_mode: Vec<&mut Row> = rows
            .iter_mut()
            .filter(|row| (row.op, row.conveyance) == (op.name(), via.name()))
            .filter(|row| row.size == Some(USUAL_SIZE))
            .collect();
        if of_mode.is_empty() {
            continue;
        }
        let least = find(options, op, via)?;
        of_mode
            .iter_mut()
            .for_each(|row| row.least_receives = least);
    }
    Ok(())
}

/// Returns the least receives with which `op` takes one round trip by `via`, if any of the permitted
/// lengths does.
fn find(options: &Options, op: &dyn Workload, via: Variant) -> Result<Option<Least>, Failure> {
    let step = *INLINE.start() as usize;
    let lengths: Vec<u32> = INLINE
        .step_by(step)
        .filter(|&length| via.can_have(length))
        .collect();
    let with = |length: u32| {
        let options = Options {
            receives: vec![length],
            ..options.clone()
        };
        let Some(setting) = configured(&options, via)? else {
            return Ok(None);
        };
        let what = measure(&setting, op);
        let what = what.context(format_args!(
            "{op} with receives of {}",
            show_size(length.into())
        ))?;
        Ok::<_, Failure>((what.round_trips < 1.5).then_some(Least {
            length,
            credits: setting.responder.credits,
            taken: u32::try_from(what.requester.sends).unwrap_or(u32::MAX),
            requester: what.requester_receives,
            responder: what.responder_receives,
        }))
    };
    // Longer receives never take more round trips, so the boundary is found by halving.
    let (mut found, mut low, mut high) = (None, 0, lengths.len());
    while low < high {
        let middle = low.midpoint(high);
        match with(lengths[middle])? {
            Some(least) => (found, high) = (Some(least), middle),
            None => low = middle + 1,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_programs::workload::Op;

    #[test]
    fn the_least_receives_are_those_of_the_first_length_that_spares_the_rdma_read() {
        let options = Options::default();
        let op = Op::Write(8 << 10);
        let trips = |via: Variant, length: u32| {
            let options = Options {
                receives: vec![length],
                ..options.clone()
            };
            let setting = configured(&options, via).unwrap().unwrap();
            measure(&setting, &op).unwrap().round_trips
        };
        let least = find(&options, &op, Variant::V1Inv).unwrap().unwrap();
        assert_eq!(trips(Variant::V1Inv, least.length), 1.0);
        assert_eq!(trips(Variant::V1Inv, least.length - 1024), 2.0);
        assert!(u64::from(least.length) > USUAL_SIZE);
        // Receives of version 2 cannot be shorter.
        let continued = find(&options, &op, Variant::V2Cont).unwrap().unwrap();
        assert_eq!(continued.length, 4096);
        assert_eq!(continued.requester % 4096, 0);
        assert!(continued.requester > continued.responder);
        // All of the WRITE is in one receive, or 8 KiB and the headers are in three of 4 KiB.
        assert_eq!([least, continued].map(|found| found.taken), [1, 3]);
        assert_eq!([least, continued].map(|found| found.credits), [64, 64]);
        // 1 MiB takes two round trips with every length that version 1 can have.
        assert_eq!(
            find(&options, &Op::Write(1 << 20), Variant::V1Inv).unwrap(),
            None
        );
    }
}
