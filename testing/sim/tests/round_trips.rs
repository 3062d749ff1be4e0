//! What calls cost where bulk data is placed by Sends and messages are continued, counted: a round
//! trip and an interrupt on each side, and nothing else (rtrext-00, sections 3 and 4).

use std::time::Duration;

use rpc_transport::rdma::{RoundTripFeatures, Version};
use rpcrdma_sim::{Measured, Operation, Setting, measure};

/// Messages without bulk data are copied out of their receives, bytes.
const SHORT: u64 = 512;

/// Both ends with these features.
fn setting(features: &str) -> Setting {
    let features: RoundTripFeatures = features.parse().expect("features");
    let mut setting = Setting {
        version: Version::Two,
        ..Setting::default()
    };
    setting.requester.features = features;
    setting.responder.features = features;
    setting
}

fn counted(features: &str, operation: Operation) -> Measured {
    measure(&setting(features), operation).expect("version 2 does all of these")
}

/// One round trip, and nothing registered, invalidated, read or written; as many Sends each way.
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
        assert!(end.copied_bytes < SHORT, "{end:?}");
    }
}

/// Interrupts on the way of the reply, of client and server.
fn interrupts(measured: &Measured) -> (u32, u32) {
    (measured.requester_interrupts, measured.responder_interrupts)
}

#[test]
fn a_write_of_eight_kilobytes_is_a_round_trip_and_an_interrupt_a_side() {
    for features in ["ddp", "ddp+cont"] {
        let write = counted(features, Operation::Write(8192));
        one_round_trip(&write, 1, 1);
        assert_eq!(interrupts(&write), (1, 1));
    }
}

#[test]
fn a_read_of_eight_kilobytes_is_the_same() {
    for features in ["ddp", "ddp+cont"] {
        let read = counted(features, Operation::Read(8192));
        one_round_trip(&read, 1, 1);
        assert_eq!(interrupts(&read), (1, 1));
    }
}

#[test]
fn a_mebibyte_goes_either_way_in_sixteen_sends() {
    let write = counted("ddp+cont", Operation::Write(1 << 20));
    one_round_trip(&write, 16, 1);
    assert_eq!(interrupts(&write), (1, 1));
    let read = counted("ddp+cont", Operation::Read(1 << 20));
    one_round_trip(&read, 1, 16);
    assert_eq!(interrupts(&read), (1, 1));
}

#[test]
fn a_long_call_and_a_long_reply_are_continued() {
    let (call, reply) = (65_536, 65_536);
    let long = counted("cont", Operation::Long { call, reply });
    // Receives of 4 KiB. The last of them find their hosts woken by earlier ones, and not yet at work.
    one_round_trip(&long, 17, 17);
    assert_eq!(interrupts(&long), (1, 1));
}

/// A mebibyte takes a round trip, and the time that its bytes take on the link.
#[test]
fn what_is_left_is_the_delay_and_the_bytes() {
    for operation in [Operation::Write(1 << 20), Operation::Read(1 << 20)] {
        let mut setting = setting("ddp+cont");
        let costs = &mut setting.costs;
        costs.post = Duration::ZERO;
        costs.completion = Duration::ZERO;
        costs.delay = Duration::from_millis(1);
        costs.rate = 1_000_000_000;
        // Dearer than the padding that placement by Sends takes at this rate.
        costs.register = Duration::from_millis(1);
        setting.interrupt = Duration::ZERO;
        let measured = measure(&setting, operation).expect("it can be done");
        let bytes = measured.requester.wire_bytes_sent + measured.responder.wire_bytes_sent;
        let expected = Duration::from_millis(2) + Duration::from_nanos(bytes);
        assert_eq!(measured.latency, expected, "{measured:?}");
    }
}

/// What is copied on the way to a device is counted: a long call of version 1 is put together in memory
/// that can be registered, and its reply lies in such memory.
#[test]
fn copies_are_counted_on_both_sides() {
    let long = Operation::Long {
        call: 65_536,
        reply: 65_536,
    };
    let measured = measure(&Setting::default(), long).expect("version 1 does it");
    let copied = measured.requester.copied_bytes;
    assert!((65_536..70_000).contains(&copied), "{measured:?}");
    assert!(measured.responder.copied_bytes < SHORT, "{measured:?}");
}
