//! Tests of the costs of calls, counted from the events of each call. The figures of version 1 are
//! those of the round-trip issues document, section 2.2.

use std::time::Duration;

use rpcrdma_programs::workload::Op;
use rpcrdma_sim::{CopyCosts, Measured, Setting, measure};

fn version_1(op: Op) -> Measured {
    measure(&Setting::default(), &op).expect("version 1 does all of these")
}

#[test]
fn null_is_one_round_trip_and_one_interrupt_on_each_side() {
    let null = version_1(Op::Null);
    assert_eq!(null.round_trips, 1.0);
    assert_eq!(null.requester_interrupts, 1);
    assert_eq!(null.responder_interrupts, 1);
    assert_eq!(null.registrations, 0);
    assert_eq!((null.requester.sends, null.responder.sends), (1, 1));
}

#[test]
fn a_read_is_the_same_and_one_registration() {
    let read = version_1(Op::Read(8192));
    assert_eq!(read.round_trips, 1.0);
    assert_eq!(read.requester_interrupts, 1);
    assert_eq!(read.responder_interrupts, 1);
    assert_eq!(read.registrations, 1);
    assert_eq!(read.invalidations, 0, "the reply invalidates");
    assert_eq!(read.responder.rdma_writes, 1);
}

#[test]
fn a_write_by_read_chunk_is_two_round_trips_and_two_responder_interrupts() {
    let write = version_1(Op::Write(8192));
    assert_eq!(write.round_trips, 2.0);
    assert_eq!(write.requester_interrupts, 1);
    assert_eq!(write.responder_interrupts, 2);
    assert_eq!(write.registrations, 1);
    assert_eq!(write.responder.rdma_reads, 1);
}

#[test]
fn a_short_write_goes_inline() {
    let write = version_1(Op::Write(100));
    assert_eq!(write.round_trips, 1.0);
    assert_eq!((write.registrations, write.responder.rdma_reads), (0, 0));
}

#[test]
fn without_remote_invalidation_the_requester_waits_once_more() {
    let mut setting = Setting::default();
    setting.responder.remote_invalidation = false;
    let read = measure(&setting, &Op::Read(8192)).unwrap();
    assert_eq!(read.round_trips, 1.0);
    assert_eq!((read.invalidations, read.requester_interrupts), (1, 2));
}

/// Returns a setting in which nothing takes time but the delay of the link.
fn link_alone() -> Setting {
    let mut setting = Setting::default();
    let costs = &mut setting.costs;
    costs.post = Duration::ZERO;
    costs.completion = Duration::ZERO;
    costs.register = Duration::ZERO;
    costs.register_page = Duration::ZERO;
    costs.read_response = Duration::ZERO;
    costs.set_rate(u64::MAX);
    setting.interrupt = Duration::ZERO;
    setting.copies = CopyCosts::NONE;
    setting
}

/// A call goes up, and its reply down. Version 1 reads the data of a WRITE in between.
#[test]
fn a_call_takes_the_delays_of_the_directions_that_it_goes() {
    let mut setting = link_alone();
    setting.costs.up.delay = Duration::from_micros(300);
    setting.costs.down.delay = Duration::from_micros(40);
    for (operation, micros) in [(Op::Null, 340), (Op::Write(8192), 680)] {
        let measured = measure(&setting, &operation).unwrap();
        assert_eq!(
            measured.latency,
            Duration::from_micros(micros),
            "{operation}"
        );
    }
    // The bytes of a READ go down.
    setting.costs.down.rate = 1_000_000;
    let slow_down = measure(&setting, &Op::Read(8192)).unwrap().latency;
    (setting.costs.up.rate, setting.costs.down.rate) = (1_000_000, u64::MAX);
    let slow_up = measure(&setting, &Op::Read(8192)).unwrap().latency;
    assert!(slow_down > Duration::from_micros(340 + 8192));
    assert!(slow_up < Duration::from_micros(340 + 1000));
}

/// Checks counts against times: with all other costs at 0, the delay shows the number of
/// traversals, and the interrupt latency the number of interrupts.
#[test]
fn time_agrees_with_what_was_counted() {
    let mut setting = link_alone();
    setting.costs.set_delay(Duration::from_micros(100));
    setting.interrupt = Duration::from_micros(7);
    for operation in [
        Op::Null,
        Op::Read(8192),
        Op::Write(8192),
        Op::Write(1 << 20),
    ] {
        let measured = measure(&setting, &operation).unwrap();
        let interrupts = measured.requester_interrupts + measured.responder_interrupts;
        let expected = measured.round_trips * 200.0 + f64::from(interrupts) * 7.0;
        let took = measured.latency.as_nanos() as f64 / 1000.0;
        assert!(
            (took - expected).abs() < 0.01,
            "{operation:?}: {measured:?}"
        );
    }
}
