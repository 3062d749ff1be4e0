//! Planted defects are found, each by cases of the right section, and by few.

#![allow(
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

mod common;
#[path = "common/defective.rs"]
mod defective;
#[path = "common/defective_two.rs"]
mod defective_two;
#[path = "common/relay.rs"]
mod relay;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rpcrdma_conform::case::Ground;
use rpcrdma_conform::cases;
use rpcrdma_conform::judge::{Selection, judge};
use rpcrdma_conform::report::{Report, Verdict};
use rpcrdma_conform::run::Server;
use rpcrdma_conform::watch::{Watch, Watcher};
use rpcrdma_protocols::{RoundTripFeatures, standard};

use common::Served;
use defective::Defect;

/// The wait for a message that a defect swallows, and longer than any other takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A wait where nothing has to come.
const SHORT: Duration = Duration::from_millis(500);

/// Judges a server with this defect, and returns the addresses of the cases that fail.
fn found(defect: Defect, patience: Duration) -> Vec<String> {
    let served = Served::start(65_536);
    let address = defective::start(served.address, defect);
    let (all, name) = (Selection::default(), format!("{defect:?}"));
    failed(&served, address, &all, patience, &name)
}

/// Judges what is at this address, behind which a server is, and returns the addresses of the cases that fail.
fn failed(
    served: &Served,
    address: SocketAddr,
    selection: &Selection,
    patience: Duration,
    defect: &str,
) -> Vec<String> {
    let server = Server {
        address,
        patience,
        watcher: None,
        dial: None,
    };
    let cases = cases::all(&served.ground());
    let report = judge(&cases, selection, &server, &mut |_| true);
    assert_eq!(report.untestable, None, "{defect}");
    assert_eq!(report.lost, None, "{defect}");
    let failed = report
        .entries
        .into_iter()
        .filter(|it| matches!(it.verdict, Verdict::Failed(_)));
    failed.map(|it| it.address).collect()
}

/// Checks that the case with this address finds a defect, that the first one that does is of its section, and that at
/// most ten do.
fn is_found(defect: Defect, address: &str) -> Result<(), String> {
    // Eight cases wait in vain.
    let patience = match defect {
        Defect::WgNoError => Duration::from_millis(2500),
        _ => PATIENCE,
    };
    names(&found(defect, patience), address).map_err(|what| format!("{defect:?}: {what}"))
}

/// Checks that a case is among those that failed, that the first of these is of its section, and that they are at most
/// ten.
fn names(failed: &[String], address: &str) -> Result<(), String> {
    let section = address.rsplit_once('/').unwrap().0;
    let is_right = failed.iter().any(|it| it == address)
        && failed.len() <= 10
        && failed[0].starts_with(section);
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "{address} was wanted first of at most ten, not {failed:?}"
        )),
    }
}

/// All at the same time, as failing cases wait for messages that do not come.
#[test]
fn each_defect_is_found_by_a_case_of_its_section() {
    let wanted = [
        (Defect::ZeroGrant, "rfc8166/3.3.1/1"),
        (Defect::UnclampedGrant, "rfc8166/3.3.1/2"),
        (Defect::LongReplyChunk, "rfc8166/4.3.3/2"),
        (Defect::LongNull, "rfc8166/4.3.3/1"),
        (Defect::InlineCut, "rfc8166/3.5.1/5"),
        (Defect::LostReply, "rfc1813/4.5/2"),
        (Defect::OfferedLengths, "rfc8166/3.4.6/10"),
        (Defect::Padding, "rfc8166/3.4.6.2/1"),
        (Defect::NoErrChunk, "rfc8166/4.5.2/1"),
        (Defect::AnyPresent, "rfc8166/4.5.2/3"),
        (Defect::WgZeroGrant, "rpcrdma2-07/4.2.1.1/1"),
        (Defect::WgUnbackedGrant, "rpcrdma2-07/4.2.1/1"),
        (Defect::WgDeafToGrants, "rpcrdma2-07/4.2.1/3"),
        (Defect::WgLimitIgnored, "rpcrdma2-07/4.2.1/3"),
        (Defect::WgNoError, "rpcrdma2-07/6.1/1"),
        (Defect::WgWrongError, "rpcrdma2-07/6.3.4/2"),
    ];
    let wrong: Vec<String> = thread::scope(|scope| {
        let judged = wanted.map(|(defect, by)| scope.spawn(move || is_found(defect, by)));
        let judged = judged.into_iter().map(|it| it.join().unwrap());
        judged.filter_map(Result::err).collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
}

/// Defects of version 2 of 2016, in front of a server with all its extensions.
#[test]
fn each_defect_of_the_version_of_2016_is_found_by_a_case_of_its_section() {
    use defective_two::Defect;
    let wanted = [
        (Defect::ZeroGrant, "rpcrdma2-01/rfc8166-3.3.1/1"),
        (Defect::NoInvalidOption, "rpcrdma2-01/3.1/1"),
        (Defect::WrongError, "rpcrdma2-01/4.2/1"),
        (Defect::UnknownIsError, "rpcrdma2-01/xcharext-2.1/1"),
        (Defect::RejectedIsDone, "rpcrdma2-01/xcharext-4.3/1"),
        (Defect::SizeIgnored, "rpcrdma2-01/xcharext-3.1/1"),
        (Defect::NoReports, "rpcrdma2-01/rtrext-9.5/1"),
        (Defect::ReportsSwapped, "rpcrdma2-01/rtrext-9.5/2"),
        (Defect::LengthIgnored, "rpcrdma2-01/rtrext-9.4/2"),
        (Defect::GivenUpIsExecuted, "rpcrdma2-01/rtrext-4.2/1"),
        (Defect::CountsOthers, "rpcrdma2-01/rtrext-9.3/1"),
        (Defect::NumbersFromZero, "rpcrdma2-01/rtrext-9.4/3"),
        (Defect::PlacedCut, "rpcrdma2-01/rtrext-7.3/1"),
        (Defect::PlacedReplyCut, "rpcrdma2-01/rtrext-7.4/1"),
    ];
    let selection = Selection {
        only: vec!["rpcrdma2-01".into()],
        ..Selection::default()
    };
    let is_found = |defect, address: &str| {
        let served = Served::with(4096, |options| {
            options.common.protocols = standard(&RoundTripFeatures::ALL);
        });
        let relay = defective_two::start(served.address, defect);
        let name = format!("{defect:?}");
        let failed = failed(&served, relay.address(), &selection, PATIENCE, &name);
        names(&failed, address).map_err(|what| format!("{name}: {what}"))
    };
    let wrong: Vec<String> = thread::scope(|scope| {
        let is_found = &is_found;
        let judged = wanted.map(|(defect, by)| scope.spawn(move || is_found(defect, by)));
        let judged = judged.into_iter().map(|it| it.join().unwrap());
        judged.filter_map(Result::err).collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_server_that_chooses_otherwise_where_it_may_passes() {
    assert_eq!(found(Defect::OtherChoices, PATIENCE), Vec::<String>::new());
}

/// Bytes of connections, of which each call is a packet.
#[derive(Default)]
struct Counted {
    packets: u64,
}

impl Watch for Counted {
    fn bytes(&mut self, _: u64, ends: [SocketAddr; 2], _: bool, bytes: &[u8]) {
        assert!(!bytes.is_empty() && ends[0] != ends[1]);
        self.packets += 1;
    }

    fn ended(&mut self, _: u64) {
        self.packets += 1;
    }

    fn packets(&self) -> u64 {
        self.packets
    }
}

/// Judges a server with this defect by the cases of these addresses.
fn judged(defect: Defect, only: &[&str], patience: Duration) -> Report {
    let served = Served::start(65_536);
    let server = Server {
        address: defective::start(served.address, defect),
        patience,
        watcher: None,
        dial: None,
    };
    let selection = Selection {
        only: only.iter().map(|it| (*it).to_owned()).collect(),
        ..Selection::default()
    };
    let (done, report) = mpsc::channel();
    thread::spawn(move || {
        let cases = cases::all(&Ground::without_files(0x1000));
        let report = judge(&cases, &selection, &server, &mut |_| true);
        // Nobody waits any more for one that has taken too long.
        drop(done.send(report));
    });
    let report = report.recv_timeout(Duration::from_secs(120));
    report.unwrap_or_else(|_| panic!("{defect:?}: the judgement does not end"))
}

#[test]
fn messages_without_end_end_no_step_but_the_case() {
    let endless = [
        Defect::WgEndlessGrants,
        Defect::WgEndlessProperties,
        Defect::WgEndlessParts,
        Defect::WgEndlessReplies,
    ];
    let reports = thread::scope(|scope| {
        let judge = |defect| judged(defect, &["rpcrdma2-07/4.2.1.1/1"], SHORT);
        let judged = endless.map(|defect| (defect, scope.spawn(move || judge(defect))));
        judged.map(|(defect, it)| (defect, it.join().unwrap()))
    });
    for (defect, report) in reports {
        let [entry] = &report.entries[..] else {
            panic!("{defect:?}: {report:?}");
        };
        assert!(
            matches!(entry.verdict, Verdict::Failed(_)),
            "{defect:?}: {entry:?}"
        );
    }
}

#[test]
fn failed_cases_name_their_packets() {
    let served = Served::start(4096);
    let server = Server {
        address: defective::start(served.address, Defect::Padding),
        patience: PATIENCE,
        watcher: Some(Watcher::new(Box::<Counted>::default())),
        dial: None,
    };
    let selection = Selection {
        only: vec!["rfc8166/3.4.6.2".into(), "rfc8166/4.3.2".into()],
        ..Selection::default()
    };
    let cases = cases::all(&served.ground());
    let report = judge(&cases, &selection, &server, &mut |_| true);
    let mut last = 0;
    for entry in &report.entries {
        assert_eq!(
            entry.packets.is_some(),
            matches!(entry.verdict, Verdict::Failed(_)),
            "{entry}"
        );
        if let Some([first, end]) = entry.packets {
            assert!(last < first && first < end, "{entry}");
            last = end;
        }
    }
    assert!(last > 0);
}

#[test]
fn a_version_whose_calls_are_not_answered_is_not_absent() {
    let report = judged(
        Defect::Mute,
        &["rpcrdma1", "rpcrdma2-07/4.2.1.1/1"],
        PATIENCE,
    );
    let [first, second] = &report.entries[..] else {
        panic!("{report:?}");
    };
    assert_eq!(first.address, "rpcrdma1");
    assert!(matches!(first.verdict, Verdict::Failed(_)), "{first:?}");
    assert_eq!(second.verdict, Verdict::Passed);
    assert_eq!(report.status(false), 1);
    // Where no version is spoken, nothing can be tested.
    let report = judged(Defect::Mute, &["rpcrdma1"], SHORT);
    assert!(report.untestable.is_some(), "{report:?}");
    assert_eq!(report.status(false), 2);
}

#[test]
fn a_server_with_room_for_one_message_keeps_the_limits_of_credits() {
    let only = [
        "rpcrdma2-07/4.2.1.1/1",
        "rpcrdma2-07/4.2.1/1",
        "rpcrdma2-07/4.2.1/2",
        "rpcrdma2-07/4.2.1/3",
        "rpcrdma2-07/4.2.1/4",
        "rpcrdma2-07/4.2.1/5",
    ];
    let report = judged(Defect::WgOneCredit, &only, PATIENCE);
    let passed = report.entries.iter();
    let passed = passed.filter(|it| it.verdict == Verdict::Passed);
    assert_eq!(passed.count(), only.len(), "{report:?}");
}
