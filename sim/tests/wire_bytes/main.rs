//! Records the bytes of fixed exchanges between a complete client and a complete server on the wire
//! of the simulated device: every Send with its transport header, every RDMA Read and Write,
//! private data, and the end of connections. The tests compare them with files in `recorded/`,
//! which have a line for each, so a test fails when a change of the connection engine changes what
//! peers see.
//!
//! Handles and XIDs follow from a seed, and the order of events from the bytes on the wire
//! (`world.rs`). Within a step, each direction of a connection is recorded separately, and a step
//! begins only when the previous one is over.
//!
//! After an intended change on the wire, record the files again: `RECORD=1 cargo test -p
//! rpcrdma-sim --test wire_bytes`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod recorded;
mod service;
mod show;
mod steps;
mod wire_recorder;
mod world;

use rpc_transport::rdma::{
    CallbackOptions, Choice, RdmaClientOptions, RdmaOptions, RdmaServerOptions, Version, Versions,
};

use self::world::{Desk, Ends, exchange};

/// The credits that the server grants: fewer than the concurrent calls.
const CREDITS: u32 = 4;
/// The maximum number of outstanding callbacks.
const CALLBACKS: u32 = 2;

/// Returns the options of two ends with this version; `both` changes the options of each end.
fn ends(version: Version, both: impl Fn(&mut RdmaOptions)) -> Ends {
    let mut ends = Ends {
        client: RdmaClientOptions {
            version: Choice::Only(version),
            ..RdmaClientOptions::new(rpcrdma_protocols::base())
        },
        server: RdmaServerOptions {
            versions: Versions::only(version),
            ..RdmaServerOptions::new(rpcrdma_protocols::base())
        },
        callbacks: false,
    };
    ends.client.common.credits = 16;
    ends.server.common.credits = CREDITS;
    for common in [&mut ends.client.common, &mut ends.server.common] {
        both(common);
    }
    ends
}

/// Returns the options of two ends of version 2 with these features, in the notation of `-o
/// features=`.
fn with_features(features: &str) -> Ends {
    ends(Version::TWO, |common| {
        common.protocols = rpcrdma_protocols::standard(&features.parse().unwrap());
    })
}

fn calling_back(version: Version, chunks: bool) -> Ends {
    let mut ends = ends(version, |common| {
        common.callbacks = CallbackOptions {
            credits: CALLBACKS,
            chunks,
        };
    });
    ends.callbacks = true;
    ends
}

async fn few(desk: Desk) {
    steps::few(&desk).await;
}

async fn short_callbacks(desk: Desk) {
    steps::callbacks(&desk, &[100]).await;
}

async fn long_callbacks(desk: Desk) {
    steps::callbacks(&desk, &[100, 8192, 65_539]).await;
}

fn all_calls(name: &str, ends: &Ends) {
    recorded::check(name, &exchange(ends, steps::all));
}

fn few_calls(name: &str, ends: &Ends) {
    recorded::check(name, &exchange(ends, few));
}

#[test]
fn version_1() {
    let ends = ends(Version::ONE, |common| common.remote_invalidation = false);
    all_calls("v1", &ends);
}

#[test]
fn version_1_with_remote_invalidation() {
    all_calls("v1-invalidation", &ends(Version::ONE, |_| {}));
}

#[test]
fn version_1_without_private_data() {
    let ends = ends(Version::ONE, |common| common.private_data = false);
    few_calls("v1-no-private-data", &ends);
}

#[test]
fn version_1_with_chunks_of_several_segments() {
    let ends = ends(Version::ONE, |common| common.max_segment = 256 << 10);
    few_calls("v1-segments", &ends);
}

#[test]
fn version_2_without_features() {
    all_calls("v2", &with_features("none"));
}

#[test]
fn version_2_with_placed_data() {
    all_calls("v2-ddp", &with_features("ddp"));
}

#[test]
fn version_2_with_continuation() {
    all_calls("v2-cont", &with_features("cont"));
}

#[test]
fn version_2_with_placed_data_and_continuation() {
    all_calls("v2-ddp-cont", &with_features("ddp+cont"));
}

#[test]
fn version_2_with_chunks_of_several_segments() {
    let ends = ends(Version::TWO, |common| common.max_segment = 256 << 10);
    few_calls("v2-segments", &ends);
}

#[test]
fn version_2_with_features_of_the_server_alone() {
    let mut ends = with_features("none");
    ends.server.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    few_calls("v2-server-alone", &ends);
}

#[test]
fn version_2_with_features_of_the_client_alone() {
    let mut ends = with_features("none");
    ends.client.common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    few_calls("v2-client-alone", &ends);
}

#[test]
fn version_2_with_half_of_each_feature() {
    let mut ends = with_features("ddp:send+cont:receive");
    ends.client.common.protocols =
        rpcrdma_protocols::standard(&"ddp:receive+cont:send".parse().unwrap());
    few_calls("v2-halves", &ends);
}

#[test]
fn version_2_with_receives_that_change() {
    let ends = ends(Version::TWO, |common| {
        common.credits = 2;
        common.inline_send = 32 << 10;
    });
    recorded::check("v2-resized", &exchange(&ends, steps::resized));
}

#[test]
fn any_version_to_a_server_of_version_1() {
    let mut ends = ends(Version::ONE, |_| {});
    ends.client.version = Choice::Auto;
    few_calls("auto-to-v1", &ends);
}

#[test]
fn any_version_to_a_server_of_2016() {
    let mut ends = ends(Version::TWO, |_| {});
    ends.client.version = Choice::Auto;
    ends.server.versions = Versions::only(Version::ONE).with(Version::TWO);
    few_calls("auto-to-2016", &ends);
}

#[test]
fn callbacks_of_version_1() {
    let ends = calling_back(Version::ONE, false);
    recorded::check("v1-callbacks", &exchange(&ends, short_callbacks));
}

#[test]
fn callbacks_of_version_1_with_chunks() {
    let ends = calling_back(Version::ONE, true);
    recorded::check("v1-callbacks-chunks", &exchange(&ends, long_callbacks));
}

#[test]
fn callbacks_of_version_2() {
    let ends = calling_back(Version::TWO, false);
    recorded::check("v2-callbacks", &exchange(&ends, short_callbacks));
}

#[test]
fn callbacks_of_version_2_with_chunks() {
    let ends = calling_back(Version::TWO, true);
    recorded::check("v2-callbacks-chunks", &exchange(&ends, long_callbacks));
}

#[test]
fn callbacks_of_version_2_with_all_features() {
    let mut ends = calling_back(Version::TWO, true);
    for common in [&mut ends.client.common, &mut ends.server.common] {
        common.protocols = rpcrdma_protocols::standard(&"ddp+cont".parse().unwrap());
    }
    recorded::check("v2-callbacks-ddp-cont", &exchange(&ends, long_callbacks));
}

#[test]
fn an_exchange_is_the_same_each_time() {
    for features in ["none", "ddp+cont"] {
        let ends = with_features(features);
        let (once, again) = (exchange(&ends, steps::all), exchange(&ends, steps::all));
        assert_eq!(recorded::difference(&once, &again), None);
    }
}

#[test]
fn a_difference_is_shown_with_its_step() {
    let expected = "\n## NULL\n1 client send 4: 00 01\n";
    let found = "\n## NULL\n1 client send 4: 00 02\n";
    assert_eq!(recorded::difference(expected, expected), None);
    let shown = recorded::difference(expected, found).unwrap();
    assert!(shown.starts_with("line 3, in step \"NULL\":"), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let column = lines[4].find('^').unwrap();
    assert_eq!((&lines[2][column..], &lines[3][column..]), ("01", "02"));
    let longer = format!("{expected}1 client close\n");
    let shown = recorded::difference(expected, &longer).unwrap();
    assert!(shown.contains("found:    1 client close"), "{shown}");
}
