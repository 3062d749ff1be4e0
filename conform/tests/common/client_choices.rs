//! The judgement of clients that choose otherwise than this project's where the texts leave a choice, and of defects
//! that show in a few cases alone.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::time::Duration;

use rpcrdma_conform::report::{Entry, Report, Verdict};

use super::defective_client::{Defect, start};
use super::own_client::Own;

/// Judges a client by the cases of these addresses.
fn judged(mut client: Own, only: &[&str]) -> Report {
    let report = super::judged(&mut client, only);
    assert_eq!(report.untestable, None);
    report
}

/// Returns this project's client behind a relay.
fn behind(defect: Defect) -> Own {
    Own::behind(Box::new(move |judge| start(judge, defect)))
}

/// Returns the entry with this address.
fn entry<'a>(report: &'a Report, address: &str) -> &'a Entry {
    let found = report.entries.iter().find(|it| it.address == address);
    found.unwrap_or_else(|| panic!("{address} is not in {report:?}"))
}

#[test]
fn other_choices_are_no_deviations() {
    let choices = [Defect::NegotiatesAgain, Defect::Roomy, Defect::AsksBeyond];
    std::thread::scope(|scope| {
        let judging = choices.map(|choice| {
            let report = scope.spawn(move || judged(behind(choice), &["rpcrdma1"]));
            (choice, report)
        });
        for (choice, report) in judging {
            let report = report.join().unwrap();
            assert_eq!(report.status(true), 0, "{choice:?}");
            assert_eq!(report.tally(true).not_tested, 0, "{choice:?}");
        }
    });
}

/// The cases of READs that return half of what they ask for: data, and the rest.
const HALF: [&str; 2] = ["rfc8166/3.4.6.1/1001", "rfc1813/3.3.6/1001"];

#[test]
fn a_client_that_stops_at_a_short_read_breaks_a_should_alone() {
    let report = judged(Own::new().stopping_short(), &HALF);
    assert_eq!(entry(&report, HALF[0]).verdict, Verdict::Passed);
    let rest = &entry(&report, HALF[1]).verdict;
    assert!(matches!(rest, Verdict::Failed(_)), "{rest:?}");
    assert_eq!((report.status(false), report.status(true)), (0, 1));
}

#[test]
fn short_reads_say_nothing_about_a_client_without_write_chunks() {
    let report = judged(Own::new().reading(2048), &HALF);
    for address in HALF {
        let verdict = &entry(&report, address).verdict;
        assert!(
            matches!(verdict, Verdict::NotApplicable(_)),
            "{address}: {verdict:?}"
        );
    }
}

/// Such a client does nothing of the kind in WRITEs.
#[test]
fn a_client_that_fetches_results_is_found_in_reads() {
    let only = ["rfc8166/4.5.3/1001", "rfc8166/4.5.3/1002"];
    // Each READ ends the connection, so that the client gets nowhere.
    let client = behind(Defect::ReadsResults).waiting(Duration::from_secs(1));
    let report = judged(client, &only);
    assert_eq!(entry(&report, only[0]).verdict, Verdict::Passed);
    let reads = &entry(&report, only[1]).verdict;
    let expected = Verdict::Failed("an RDMA Read of the requester".into());
    assert_eq!(*reads, expected);
}

#[test]
fn a_client_that_ends_when_it_has_waited_long_enough_refuses_nothing() {
    let client = behind(Defect::DropsWrites).waiting(Duration::from_secs(2));
    let report = judged(client, &["rfc8166/8.1/1002"]);
    let verdict = &entry(&report, "rfc8166/8.1/1002").verdict;
    let Verdict::Failed(why) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(why.ends_with(" s, without a Terminate"), "{why}");
}
