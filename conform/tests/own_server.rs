//! The judgement of this project's own server.

mod common;

use std::time::Duration;

use rpc_transport::rdma::{Version, Versions};
use rpcrdma_conform::cases;
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_conform::judge::{Selection, judge};
use rpcrdma_conform::report::{Report, Verdict};
use rpcrdma_conform::run::{Failed, Server, speaks};
use rpcrdma_protocols::{RoundTripFeatures, standard};

use common::Served;

#[test]
fn our_server_passes_every_case() {
    for inline in [4096, 65_536] {
        let served = Served::start(inline);
        let cases = cases::all(&served.ground());
        let server = Server {
            address: served.address,
            patience: Duration::from_secs(30),
            watcher: None,
            dial: None,
        };
        let mut each = |entry: &_| {
            println!("{entry}");
            true
        };
        let selection = Selection {
            hostile: true,
            ..Selection::default()
        };
        let report = judge(&cases, &selection, &server, &mut each);
        assert_eq!(report.untestable, None);
        assert_eq!(report.lost, None);
        assert_eq!(report.status(true), 0, "receives of {inline}");
        assert_eq!(report.entries.len(), cases.len());
        // Long receives take all messages; with the usual ones, two WRITEs are too long. Without its features, nothing
        // of rtrext-00 applies.
        let left_out = not_applicable(&report).into_iter();
        let (of_rtrext, others): (Vec<&str>, Vec<&str>) =
            left_out.partition(|it| it.contains("/rtrext-"));
        assert_eq!(of_rtrext.len(), 11);
        let too_long = if inline == 4096 { 2 } else { 0 };
        assert_eq!(others.len(), too_long, "{others:?}");
    }
}

/// Returns the addresses of the cases that did not apply.
fn not_applicable(report: &Report) -> Vec<&str> {
    let entries = report.entries.iter();
    let entries = entries.filter(|it| matches!(it.verdict, Verdict::NotApplicable(_)));
    entries.map(|it| &*it.address).collect()
}

#[test]
fn our_server_with_all_features_passes_every_case_of_the_version_of_2016() {
    let served = Served::with(4096, |options| {
        options.common.protocols = standard(&RoundTripFeatures::ALL);
    });
    let cases = cases::all(&served.ground());
    let server = Server {
        address: served.address,
        patience: Duration::from_secs(30),
        watcher: None,
        dial: None,
    };
    let selection = Selection {
        only: vec!["rpcrdma2-01".into()],
        hostile: true,
        ..Selection::default()
    };
    let mut each = |entry: &_| {
        println!("{entry}");
        true
    };
    let report = judge(&cases, &selection, &server, &mut each);
    assert_eq!(
        (report.untestable.as_ref(), report.lost.as_ref()),
        (None, None)
    );
    assert_eq!(report.status(true), 0);
    assert_eq!(not_applicable(&report), Vec::<&str>::new());
}

#[test]
fn a_version_that_is_not_spoken_is_said_once() {
    let served = Served::with(4096, |options| {
        options.versions = Versions::only(Version::ONE);
    });
    let cases = cases::all(&served.ground());
    let server = Server {
        address: served.address,
        patience: Duration::from_secs(30),
        watcher: None,
        dial: None,
    };
    let report = judge(&cases, &Selection::default(), &server, &mut |_| true);
    assert_eq!(report.status(true), 0);
    let is_first = |it: &&rpcrdma_conform::case::Case| it.dialect == Dialect::One && !it.hostile;
    let of_first = cases.iter().filter(is_first).count();
    assert_eq!(report.entries.len(), of_first + 2);
    let absent = &report.entries[0];
    assert_eq!(absent.address, "rpcrdma2-07");
    assert_eq!(report.entries[1].address, "rpcrdma2-01");
    assert!(
        report.entries[1]
            .why()
            .ends_with("ERR_VERS, versions 1 to 1")
    );
    let why = "RPC-over-RDMA version 2 of version-two-07 is not spoken: an RDMA2_ERROR of ERR_VERS, versions 1 to 1";
    assert_eq!(absent.verdict, Verdict::NotApplicable(why.into()));
    // With no other case selected, nothing can be tested.
    let only = Selection {
        only: vec!["rpcrdma2-07".into()],
        ..Selection::default()
    };
    let report = judge(&cases, &only, &server, &mut |_| true);
    assert_eq!(report.status(true), 2);
    assert_eq!(report.untestable.as_deref(), Some(why));
}

#[test]
fn a_port_without_a_server_cannot_be_tested() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let patience = Duration::from_secs(5);
    let ground = rpcrdma_conform::case::Ground::without_files(1);
    let server = Server {
        address,
        patience,
        watcher: None,
        dial: None,
    };
    let report = judge(
        &cases::all(&ground),
        &Selection::default(),
        &server,
        &mut |_| true,
    );
    assert!(report.untestable.is_some());
    assert_eq!(report.status(false), 2);
}

#[test]
fn the_two_versions_2_are_told_apart() {
    for (version, own) in [(Version::TWO, Dialect::Two), (Version::TWO_WG, Dialect::Wg)] {
        let served = Served::with(4096, move |options| {
            options.versions = Versions::only(version);
        });
        let server = Server {
            address: served.address,
            patience: Duration::from_secs(30),
            watcher: None,
            dial: None,
        };
        for dialect in Dialect::ALL {
            let spoken = speaks(&server, dialect);
            match dialect == own {
                true => assert!(spoken.is_ok(), "{dialect}: {spoken:?}"),
                false => assert!(
                    matches!(spoken, Err(Failed::NotApplicable(_))),
                    "{dialect} of {own}: {spoken:?}"
                ),
            }
        }
    }
}
