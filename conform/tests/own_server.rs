//! The judgement of this project's own server.

mod common;

use std::time::Duration;

use rpcrdma_conform::cases;
use rpcrdma_conform::judge::{Selection, judge};
use rpcrdma_conform::report::Verdict;
use rpcrdma_conform::run::Server;

use common::Served;

#[test]
fn our_server_passes_every_case() {
    for inline in [4096, 65_536] {
        let served = Served::start(inline);
        let cases = cases::all(&served.ground());
        let server = Server {
            address: served.address,
            patience: Duration::from_secs(30),
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
        // Long receives take all messages; with the usual ones, two WRITEs are too long.
        let not_applicable = report.entries.iter();
        let not_applicable =
            not_applicable.filter(|it| matches!(it.verdict, Verdict::NotApplicable(_)));
        assert_eq!(not_applicable.count(), if inline == 4096 { 2 } else { 0 });
    }
}

#[test]
fn a_port_without_a_server_cannot_be_tested() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let patience = Duration::from_secs(5);
    let ground = rpcrdma_conform::case::Ground::without_files(1);
    let server = Server { address, patience };
    let report = judge(
        &cases::all(&ground),
        &Selection::default(),
        &server,
        &mut |_| true,
    );
    assert!(report.untestable.is_some());
    assert_eq!(report.status(false), 2);
}
