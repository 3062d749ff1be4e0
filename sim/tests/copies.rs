//! Tests of the costs of copies: data that Sends place needs none, data in a longer receive is
//! copied by its receiver, and a long call of version 1 by its sender.

use std::time::Duration;

use rpc_transport::rdma::Version;
use rpcrdma_programs::workload::Op;
use rpcrdma_protocols::RoundTripFeatures;
use rpcrdma_sim::{Cache, CopyCosts, CopyRate, Measured, Setting, measure};

/// The length up to which messages are copied out of their receives, bytes.
const SHORT: u64 = 1024;
const LEN: u32 = 16 << 10;

/// Returns settings of version 2 with these features and receives of 32 KiB.
fn setting(features: &str) -> Setting {
    let features: RoundTripFeatures = features.parse().expect("features");
    let mut setting = Setting {
        version: Version::TWO,
        ..Setting::default()
    };
    for end in [&mut setting.requester, &mut setting.responder] {
        end.protocols = rpcrdma_protocols::standard(&features);
        (end.inline_send, end.inline_receive) = (32 << 10, 32 << 10);
    }
    setting
}

fn measured(setting: &Setting, op: Op) -> Measured {
    measure(setting, &op).expect("it can be done")
}

#[test]
fn the_receiver_copies_what_is_not_placed() {
    for operation in [Op::Read(LEN), Op::Write(LEN)] {
        let inline = measured(&setting("none"), operation);
        assert_eq!(inline.registrations, 0, "it is in the receive");
        assert_eq!(inline.copied.unplaced, u64::from(LEN), "{operation:?}");
        let placed = measured(&setting("ddp"), operation);
        assert_eq!(placed.registrations, 0);
        assert_eq!(placed.copied.unplaced, 0, "{operation:?}");
        assert!(placed.copied.after_receiving <= 2 * SHORT, "{placed:?}");
        let chunk = measured(&Setting::default(), operation);
        assert_eq!((chunk.registrations, chunk.copied.unplaced), (1, 0));
    }
}

/// Checks the time of copies against that of the same call without: 16 KiB take 1.6 µs at 10 GB/s.
#[test]
fn copies_take_the_time_of_their_side_and_of_the_cache() {
    let free = Setting {
        copies: CopyCosts::NONE,
        ..setting("none")
    };
    let extra = |cache, operation| {
        let copies = CopyCosts {
            receiver: CopyRate {
                warm: 10_000_000_000,
                cold: 1_000_000_000,
            },
            cache,
            ..CopyCosts::NONE
        };
        let base = free.clone();
        let with = measured(&Setting { copies, ..base }, operation);
        let bytes = with.copied.after_receiving;
        (with.latency - measured(&free, operation).latency, bytes)
    };
    for operation in [Op::Read(LEN), Op::Write(LEN)] {
        let (warm, bytes) = extra(Cache::Warm, operation);
        assert_eq!(warm, Duration::from_nanos(bytes.div_ceil(10)));
        assert!((u64::from(LEN)..u64::from(LEN) + 2 * SHORT).contains(&bytes));
        let (cold, bytes) = extra(Cache::Cold, operation);
        assert_eq!(cold, Duration::from_nanos(bytes));
    }
    // A long call of version 1 is assembled by its sender, and arrives where it belongs.
    let long = Op::LongCall(65_536);
    let sender = CopyRate {
        warm: 1_000_000_000,
        cold: 1,
    };
    let of_version_1 = |copies| {
        let setting = Setting {
            copies,
            ..Setting::default()
        };
        measured(&setting, long)
    };
    let free = of_version_1(CopyCosts::NONE);
    let dear = of_version_1(CopyCosts {
        sender,
        ..CopyCosts::NONE
    });
    assert!((65_536..66_000).contains(&dear.copied.before_sending));
    let nanos = Duration::from_nanos(dear.copied.before_sending);
    assert_eq!(dear.latency, free.latency + nanos);
}

/// Checks that the ends price copies as the simulation does: they place data that receives have
/// room for, unless copies cost nothing.
#[test]
fn placement_wins_against_longer_receives_where_copies_are_dear() {
    let latency = |features: &str, receiver| {
        let copies = CopyCosts {
            receiver: CopyRate {
                warm: receiver,
                cold: receiver,
            },
            ..CopyCosts::default()
        };
        let setting = Setting {
            copies,
            ..setting(features)
        };
        measured(&setting, Op::Read(LEN)).latency
    };
    let slow = 2_000_000_000;
    assert!(latency("ddp", slow) < latency("none", slow));
    let free = u64::MAX;
    assert!(latency("ddp", free) >= latency("none", free));
}
