//! Ladders of single calls: their times and counts are those that are measured.

use std::time::Duration;

use rpcrdma_ladder::{Arrow, ArrowKind, MarkKind, Side};
use rpcrdma_programs::workload::Op;
use rpcrdma_sim::{Setting, ladder, measure};

/// Returns the number of crossings on the way of the results: arrows that go on where others ended.
fn crossings(arrows: &[Arrow]) -> u32 {
    let mut critical: Vec<&Arrow> = arrows.iter().filter(|it| it.critical).collect();
    critical.sort_by_key(|arrow| arrow.start);
    let (mut side, mut count) = (Side::Left, 0);
    for arrow in critical {
        if arrow.from == side {
            (side, count) = (side.other(), count + 1);
        }
    }
    count
}

#[test]
fn a_ladder_has_the_counts_and_times_of_its_call() {
    for remote_invalidation in [false, true] {
        let mut setting = Setting::default();
        setting.requester.remote_invalidation = remote_invalidation;
        setting.responder.remote_invalidation = remote_invalidation;
        for op in [
            Op::Null,
            Op::Write(8192),
            Op::Read(8192),
            Op::Write(1 << 20),
            Op::Readdirplus(32 << 10),
        ] {
            let (measured, ladder) = ladder(&setting, &op).unwrap();
            assert_eq!(measured, measure(&setting, &op).unwrap(), "{op}");
            assert_eq!(ladder.took, measured.latency, "{op}");
            assert_eq!(
                f64::from(crossings(&ladder.arrows)) / 2.0,
                measured.round_trips,
                "{op}"
            );
            let marks = |kind, side| {
                ladder
                    .marks
                    .iter()
                    .filter(move |it| it.kind == kind && it.at == side)
            };
            let interrupts = [Side::Left, Side::Right]
                .map(|side| marks(MarkKind::Interrupt, side).count() as u32);
            assert_eq!(
                interrupts,
                [measured.requester_interrupts, measured.responder_interrupts],
                "{op}"
            );
            let registered = marks(MarkKind::Registration, Side::Left).count();
            assert_eq!(registered > 0, measured.registrations > 0, "{op}");
            let of = |kinds: &[ArrowKind]| {
                ladder
                    .arrows
                    .iter()
                    .filter(|it| kinds.contains(&it.kind))
                    .count() as u64
            };
            let both = measured.requester.sends + measured.responder.sends;
            assert_eq!(
                of(&[ArrowKind::Send, ArrowKind::SendWithInvalidate]),
                both,
                "{op}"
            );
            assert_eq!(
                of(&[ArrowKind::ReadRequest]),
                measured.responder.rdma_reads,
                "{op}"
            );
            assert_eq!(
                of(&[ArrowKind::ReadResponse]),
                measured.responder.rdma_reads,
                "{op}"
            );
            assert_eq!(
                of(&[ArrowKind::Write]),
                measured.responder.rdma_writes,
                "{op}"
            );
            // Each crossing takes the delay of the link, and what a message takes to leave.
            for arrow in &ladder.arrows {
                let travelled = arrow.end - arrow.start;
                assert!(travelled > Duration::from_micros(5), "{op}: {arrow:?}");
            }
            // The results are there when the last thing has ended.
            let marks = ladder.marks.iter().map(|it| it.end).max();
            assert!(marks.unwrap() <= ladder.took, "{op}: {:?}", ladder.marks);
        }
    }
}

#[test]
fn the_second_round_trip_is_that_of_the_rdma_read() {
    let (_, ladder) = ladder(&Setting::default(), &Op::Write(8192)).unwrap();
    let names: Vec<&str> = ladder.arrows.iter().map(|arrow| &*arrow.name).collect();
    assert_eq!(
        names,
        ["call, read chunk", "RDMA Read", "data of the Read", "reply"]
    );
    let trips: Vec<_> = ladder
        .marks
        .iter()
        .filter(|it| it.kind == MarkKind::RoundTrip)
        .collect();
    let [trip] = trips[..] else {
        panic!("{:?}", ladder.marks);
    };
    let [_, request, response, _] = &ladder.arrows[..] else {
        panic!("{names:?}");
    };
    assert_eq!(
        (trip.at, trip.start, trip.end),
        (Side::Right, request.start, response.end)
    );
    assert_eq!(ladder.totals[0], "2 round trips");
}
