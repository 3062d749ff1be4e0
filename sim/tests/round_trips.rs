//! Tests of the costs of calls whose bulk data is placed by Sends or whose messages are continued:
//! one round trip and one interrupt on each side, and nothing else (rtrext-00, sections 3 and 4).

use std::time::Duration;

use rpc_transport::rdma::Version;
use rpcrdma_programs::workload::Op;
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_sim::{CopyCosts, Measured, Setting, measure};

/// The length up to which messages without bulk data are copied out of their receives, bytes.
const SHORT: u64 = 1024;

/// Returns settings with these features at both ends.
fn setting(features: &str) -> Setting {
    let features: RoundTripFeatures = features.parse().expect("features");
    let mut setting = Setting {
        version: Version::TWO,
        ..Setting::default()
    };
    setting.requester.protocols = rpcrdma_protocols::standard(&features);
    setting.responder.protocols = rpcrdma_protocols::standard(&features);
    setting
}

fn counted(features: &str, op: Op) -> Measured {
    measure(&setting(features), &op).expect("version 2 does all of these")
}

/// Checks that a call took one round trip, these numbers of Sends in each direction, and no
/// registration, invalidation, RDMA Read or Write.
fn one_round_trip(measured: &Measured, call: u64, reply: u64) {
    assert_eq!(measured.round_trips, 1.0, "{measured:?}");
    assert_eq!((measured.registrations, measured.invalidations), (0, 0));
    assert_eq!(
        (measured.requester.sends, measured.responder.sends),
        (call, reply)
    );
    for end in [&measured.requester, &measured.responder] {
        assert_eq!((end.rdma_reads, end.rdma_writes), (0, 0), "{end:?}");
        assert_eq!(
            (end.registrations, end.local_invalidations),
            (0, 0),
            "{end:?}"
        );
        assert_eq!(
            (end.sends_with_invalidate, end.remote_invalidations),
            (0, 0),
            "{end:?}"
        );
        // What precedes placed data is copied out of its receive.
        assert!(end.copied_bytes <= SHORT * end.receives, "{end:?}");
    }
}

/// Returns the interrupts along the path of the reply, of client and server.
fn interrupts(measured: &Measured) -> (u32, u32) {
    (measured.requester_interrupts, measured.responder_interrupts)
}

#[test]
fn a_write_of_eight_kilobytes_is_a_round_trip_and_an_interrupt_a_side() {
    for features in ["ddp", "ddp+cont"] {
        let write = counted(features, Op::Write(8192));
        one_round_trip(&write, 1, 1);
        assert_eq!(interrupts(&write), (1, 1));
    }
}

#[test]
fn a_read_of_eight_kilobytes_is_the_same() {
    for features in ["ddp", "ddp+cont"] {
        let read = counted(features, Op::Read(8192));
        one_round_trip(&read, 1, 1);
        assert_eq!(interrupts(&read), (1, 1));
    }
}

#[test]
fn a_mebibyte_goes_either_way_in_sixteen_sends() {
    let write = counted("ddp+cont", Op::Write(1 << 20));
    one_round_trip(&write, 16, 1);
    assert_eq!(interrupts(&write), (1, 1));
    let read = counted("ddp+cont", Op::Read(1 << 20));
    one_round_trip(&read, 1, 16);
    assert_eq!(interrupts(&read), (1, 1));
}

#[test]
fn a_long_call_and_a_long_reply_are_continued() {
    let long = counted("cont", Op::LongBoth(65_536));
    // Receive buffers of 4 KiB. When the last messages arrive, earlier ones have already woken the
    // hosts, which have not started to work.
    one_round_trip(&long, 17, 17);
    assert_eq!(interrupts(&long), (1, 1));
}

/// Checks that a mebibyte takes a round trip and the transmission time of its bytes.
#[test]
fn what_is_left_is_the_delay_and_the_bytes() {
    for operation in [Op::Write(1 << 20), Op::Read(1 << 20)] {
        let mut setting = setting("ddp+cont");
        let costs = &mut setting.costs;
        costs.post = Duration::ZERO;
        costs.completion = Duration::ZERO;
        costs.set_delay(Duration::from_millis(1));
        costs.set_rate(1_000_000_000);
        // This is more expensive than the padding of placement by Sends at this rate.
        costs.register = Duration::from_millis(1);
        setting.interrupt = Duration::ZERO;
        setting.copies = CopyCosts::NONE;
        let measured = measure(&setting, &operation).expect("it can be done");
        let bytes = measured.requester.wire_bytes_sent + measured.responder.wire_bytes_sent;
        let expected = Duration::from_millis(2) + Duration::from_nanos(bytes);
        assert_eq!(measured.latency, expected, "{measured:?}");
    }
}

/// Checks that copies on the way to a device are counted: a long call of version 1 is assembled in
/// memory that can be registered, and its reply arrives in such memory.
#[test]
fn copies_are_counted_on_both_sides() {
    let long = Op::LongBoth(65_536);
    let measured = measure(&Setting::default(), &long).expect("version 1 does it");
    let copied = measured.requester.copied_bytes;
    assert!((65_536..70_000).contains(&copied), "{measured:?}");
    assert!(measured.responder.copied_bytes < SHORT, "{measured:?}");
}
