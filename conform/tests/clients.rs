//! The judgement of clients: this project's own passes, and planted defects are found.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

#[path = "common/client_choices.rs"]
mod client_choices;
#[path = "common/client_extensions.rs"]
mod client_extensions;
#[path = "common/defective_client.rs"]
mod defective_client;
#[path = "common/defective_extensions.rs"]
mod defective_extensions;
#[path = "common/defective_wg_client.rs"]
mod defective_wg_client;
#[path = "common/messages.rs"]
mod messages;
#[path = "common/own_client.rs"]
mod own_client;
#[path = "common/relay.rs"]
mod relay;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rpc_transport::rdma::{Choice, Version};
use rpcrdma_conform::client::case::{Act, Case, Operation};
use rpcrdma_conform::client::cases;
use rpcrdma_conform::client::judge::judge;
use rpcrdma_conform::client::performance::Judge;
use rpcrdma_conform::client::under_test::{Client, Ended, Task};
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_conform::judge::Selection;
use rpcrdma_conform::report::{Entry, Report, Verdict};
use rpcrdma_conform::wire::{ddp, mpa, rpc, v1};

use client_extensions::is_of_extension;
use defective_client::{Defect, start};
use own_client::Own;

/// The longest wait for something that a client must do at once.
const PATIENCE: Duration = Duration::from_secs(10);

fn judged(client: &mut dyn Client, only: &[&str]) -> Report {
    judged_by(&cases::all(), client, only)
}

fn judged_by(cases: &[Case], client: &mut dyn Client, only: &[&str]) -> Report {
    let selection = Selection {
        only: only.iter().map(|it| (*it).to_owned()).collect(),
        ..Selection::default()
    };
    judged_in(cases, client, &selection)
}

fn judged_in(cases: &[Case], client: &mut dyn Client, selection: &Selection) -> Report {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let the_judge = Judge {
        listener: &listener,
        mount: None,
        patience: PATIENCE,
        watcher: None,
    };
    let mut each = |entry: &_| {
        println!("{entry}");
        true
    };
    judge(cases, selection, &the_judge, client, &mut each).unwrap()
}

/// Judges this project's client by all cases of a version without those of its extensions, and compares those that are
/// not applicable.
fn passes(client: Own, dialect: Dialect, expected: &[&str]) {
    passes_by(client, dialect, |it| !is_of_extension(it), expected);
}

fn passes_by(mut client: Own, dialect: Dialect, is_one: impl Fn(&Case) -> bool, expected: &[&str]) {
    let all = cases::all().into_iter();
    let of: Vec<Case> = all
        .filter(|it| it.dialect == dialect)
        .filter(is_one)
        .collect();
    let report = judged_by(&of, &mut client, &[]);
    assert_eq!(report.untestable, None);
    assert_eq!(report.entries.len(), of.len());
    assert_eq!(report.status(true), 0);
    let not_applicable: Vec<&str> = report
        .entries
        .iter()
        .filter(|it| matches!(it.verdict, Verdict::NotApplicable(_)))
        .map(|it| &it.address[..])
        .collect();
    assert_eq!(not_applicable, expected);
    assert_eq!(report.tally(true).not_tested, 0);
}

#[test]
fn our_client_passes_every_case_of_version_1() {
    // It sends no long calls, speaks version 1 from the beginning, and has no call that is too long.
    let not_applicable = [
        "rfc8166/4.2.4/1003",
        "rfc8166/4.5.1/1001",
        "rfc8166/3.5.3/1001",
    ];
    passes(Own::new(), Dialect::One, &not_applicable);
}

#[test]
fn our_client_passes_every_case_of_version_two_07_with_chunks() {
    let client = Own::new().preferring_chunks();
    passes(client, Dialect::Wg, &NOT_WITH_CHUNKS);
}

/// Cases of what a client that prefers chunks never does.
const NOT_WITH_CHUNKS: [&str; 3] = [
    "rpcrdma2-07/6.3.5/1001",
    "rpcrdma2-07/6.3.2/1001",
    "rpcrdma2-07/4.5.3/1001",
];

#[test]
fn our_client_passes_every_case_of_version_two_07() {
    // By the usual estimates, it continues calls and replies of these lengths.
    let with_chunks = [
        "rpcrdma2-07/4.4.2/1001",
        "rpcrdma2-07/4.5.1/1001",
        "rpcrdma2-07/4.5.1/1002",
        "rpcrdma2-07/6.3.7/1003",
        "rpcrdma2-07/4.5.3.1/1001",
        "rpcrdma2-07/4.5.3.1/1002",
        "rpcrdma2-07/4.5.2/1001",
        "rpcrdma2-07/4.5.2.4/1001",
        "rpcrdma2-07/4.5.3/1001",
        "rpcrdma2-07/5.2.3/1001",
        "rpcrdma2-07/5.2.4/1001",
        "rpcrdma2-07/4.5.2.1/1001",
        "rpcrdma2-07/6.5/1002",
        "rpcrdma2-07/6.5/1003",
        "rpcrdma2-07/11.1.3/1001",
        "rpcrdma2-07/11.1/1001",
        "rpcrdma2-07/11.1/1002",
        "rpcrdma2-07/11.1/1003",
    ];
    passes(
        Own::new(),
        Dialect::Wg,
        &[&NOT_WITH_CHUNKS[..2], &with_chunks].concat(),
    );
}

#[test]
fn our_client_passes_every_case_of_version_two_01() {
    let not_applicable = [
        "rpcrdma2-01/rfc8166-4.2.4/1003",
        "rpcrdma2-01/rfc8166-3.5.3/1001",
    ];
    passes(Own::new(), Dialect::Two, &not_applicable);
}

/// Returns the verdicts of a client that is not told a version, as one letter for each version.
fn spoken(choice: Choice) -> String {
    let only = [
        "rfc8166/3.5.1",
        "rpcrdma2-07/6.6.1/1001",
        "rpcrdma2-01/rfc8166-3.5.1",
    ];
    let report = judged(&mut Own::new().speaking(choice), &only);
    assert_eq!(report.untestable, None);
    let letter = |entry: &Entry| match &entry.verdict {
        Verdict::Passed => 'p',
        Verdict::NotApplicable(why) if why.starts_with("the client does not speak RPC") => 'n',
        other => panic!("{}: {other:?}", entry.address),
    };
    report.entries.iter().map(letter).collect()
}

#[test]
fn what_a_client_does_not_speak_is_not_applicable() {
    assert_eq!(spoken(Choice::Only(Version::ONE)), "pnn");
    assert_eq!(spoken(Choice::Only(Version::TWO_WG)), "npn");
    assert_eq!(spoken(Choice::Only(Version::TWO)), "nnp");
    assert_eq!(spoken(Choice::Auto), "ppp");
    let mut client = Own::new().speaking(Choice::Only(Version::ONE));
    let report = judged(&mut client, &[Dialect::Wg.group()]);
    assert_eq!(report.status(false), 2);
    let why = report.untestable.unwrap();
    assert!(why.contains("begins with RPC-over-RDMA version 1"), "{why}");
}

/// Returns the addresses of the cases of a version that fail for a client behind a relay.
fn failed(dialect: Dialect, mut client: Own) -> Vec<String> {
    failures(judged(&mut client, &[dialect.group()]))
}

/// Returns the addresses of the cases that failed.
fn failures(report: Report) -> Vec<String> {
    assert_eq!(report.untestable, None);
    let failed = report
        .entries
        .into_iter()
        .filter(|it| matches!(it.verdict, Verdict::Failed(_)));
    failed.map(|it| it.address).collect()
}

/// Each defect is found by this case first, and by at most ten.
#[test]
fn planted_defects_are_found() {
    let rows = [
        (Defect::IgnoresGrant, "rfc8166/3.3.1/1001"),
        (Defect::AsksForOne, "rfc8166/3.3.1/1003"),
        (Defect::PaddedWriteChunk, "rfc8166/3.4.6.2/1001"),
        (Defect::IgnoresLengths, "rfc8166/3.4.6.1/1001"),
        (Defect::UnalignedPosition, "rfc8166/3.4.5/1001"),
        (Defect::WrongPosition, "rfc8166/3.4.5/1002"),
        (Defect::WrongVersionAgain, "rfc8166/4.2.2/1002"),
        (Defect::OtherXidAgain, "rfc5531/5/1001"),
        (Defect::OtherXid, "rfc8166/4.2.1/1001"),
        (Defect::NoReplyChunk, "rfc8166/4.3.3/1002"),
        (Defect::ReservedFlag, "rfc8797/4/1001"),
        (Defect::MemoryStays, "rfc8166/4.4.1/1001"),
        (Defect::TakesUnoffered, "rfc8166/4.5/1007"),
        (Defect::RepeatsRefused, "rfc8166/4.5/1009"),
    ];
    // Judgements wait more than they compute.
    std::thread::scope(|scope| {
        let judging = rows.map(|(defect, address)| {
            let between = Box::new(move |judge| start(judge, defect));
            let found = scope.spawn(move || failed(Dialect::One, Own::behind(between)));
            (format!("{defect:?}"), address, found)
        });
        for (defect, address, found) in judging {
            is_first_of_few(&defect, address, &found.join().unwrap());
        }
    });
}

/// Checks that a defect is found by this case first, and by at most ten.
fn is_first_of_few(defect: &str, address: &str, failed: &[String]) {
    println!("{defect}: {failed:?}");
    let first = failed.first().map(String::as_str);
    assert_eq!(first, Some(address), "{defect}: {failed:?}");
    assert!(failed.len() <= 10, "{defect}: {failed:?}");
}

#[test]
fn planted_defects_of_version_two_07_are_found() {
    use defective_wg_client::Defect;
    let rows = [
        (Defect::IgnoresCredits, "rpcrdma2-07/4.2.1/1002"),
        (Defect::HighCredit, "rpcrdma2-07/4.2.1/1004"),
        (Defect::OtherXid, "rpcrdma2-07/6.3.7/1002"),
        (Defect::ShortProperty, "rpcrdma2-07/5.1/1001"),
        (Defect::NoFinal, "rpcrdma2-07/6.3.4/1001"),
        (Defect::IgnoresReceives, "rpcrdma2-07/5.2.2/1001"),
        (Defect::IgnoresSegments, "rpcrdma2-07/5.2.3/1001"),
        (Defect::AppliesRefused, "rpcrdma2-07/7.2.2/1001"),
        (Defect::OtherHandle, "rpcrdma2-07/6.5/1001"),
        (Defect::PaddedWriteChunk, "rpcrdma2-07/4.5.2.4/1001"),
        (Defect::IgnoresLengths, "rpcrdma2-07/4.5.2.1/1001"),
        (Defect::UnalignedPosition, "rpcrdma2-07/4.5.1/1001"),
        (Defect::WrongPosition, "rpcrdma2-07/4.5.1/1002"),
        (Defect::Silent, "rpcrdma2-07/7.2.2/1001"),
    ];
    std::thread::scope(|scope| {
        let judging = rows.map(|(defect, address)| {
            let between = Box::new(move |judge| defective_wg_client::start(judge, defect));
            let found = scope.spawn(move || {
                let started = Instant::now();
                let client = Own::behind(between);
                // Long messages without chunks are those that depend on the size of receives.
                let failed = match defect {
                    Defect::IgnoresReceives => failed(Dialect::Wg, client),
                    _ => failed(Dialect::Wg, client.preferring_chunks()),
                };
                println!("{defect:?}: {:?}", started.elapsed());
                failed
            });
            (format!("{defect:?}"), address, found)
        });
        for (defect, address, found) in judging {
            is_first_of_few(&defect, address, &found.join().unwrap());
        }
    });
}

/// A client that ends in another way than by a failure.
struct Ending(Own, Ended);

impl Client for Ending {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        match self.0.perform(task) {
            Ended::Failed(_) => self.1.clone(),
            other => other,
        }
    }
}

#[test]
fn a_crash_or_a_hang_after_a_lost_connection_is_found() {
    let verdicts = |ended| {
        let own = Own::behind(Box::new(|judge| start(judge, Defect::StaysAway)));
        let mut client = Ending(own.waiting(Duration::from_secs(1)), ended);
        let report = judged(&mut client, &["rfc5531/5/1001", "rfc5531/5/1002"]);
        assert_eq!(report.untestable, None);
        report.entries.into_iter().map(|it| it.verdict)
    };
    let crash = Ended::Crashed("signal 11".into());
    for (ended, fails) in [
        (crash, true),
        (Ended::Late, true),
        // That it must try again, no text says.
        (Ended::Failed("EIO".into()), false),
    ] {
        for verdict in verdicts(ended.clone()) {
            let is_expected = match fails {
                true => matches!(verdict, Verdict::Failed(_)),
                false => matches!(verdict, Verdict::NotApplicable(_)),
            };
            assert!(is_expected, "{ended:?}: {verdict:?}");
        }
    }
}

/// A client that does nothing.
struct Idle;

impl Client for Idle {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, _: &Task<'_>) -> Ended {
        Ended::Failed("no such command".into())
    }
}

#[test]
fn a_client_that_does_not_connect_cannot_be_tested() {
    let report = judged(&mut Idle, &[]);
    assert_eq!(report.status(false), 2);
    let why = report.untestable.unwrap();
    assert!(why.ends_with("ping: no such command"), "{why}");
}

/// A client that can ping alone.
struct Simple(Own);

impl Client for Simple {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        match task.operation {
            Operation::Ping => self.0.perform(task),
            other => Ended::Unable(format!("no {other}")),
        }
    }
}

#[test]
fn what_a_client_cannot_do_is_not_applicable() {
    let report = judged(&mut Simple(Own::new()), &[Dialect::One.group()]);
    let passed = report
        .entries
        .iter()
        .filter(|it| it.verdict == Verdict::Passed);
    assert_eq!(passed.count(), 3);
    assert_eq!(report.tally(true).deviations, 0);
    assert_eq!(report.entries[1].why(), "no read");
}

/// Waits until the judge has accepted a connection.
fn await_connection(task: &Task<'_>) {
    let until = Instant::now() + PATIENCE;
    while (task.progress)().connections == 0 {
        assert!(Instant::now() < until, "no connection is accepted");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that performs nothing.
struct Never;

impl Client for Never {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        panic!("{} is performed", task.operation);
    }
}

#[test]
fn a_case_whose_plain_case_is_left_out_is_not_performed() {
    let all = cases::all();
    let of_read = |it: &&Case| (it.dialect, it.operation) == (Dialect::One, Operation::Read);
    let is_plain = |it: &&Case| it.act == Act::Honest && it.outcome.is_some();
    let plain = all.iter().filter(of_read).find(is_plain).unwrap();
    let other = all.iter().filter(of_read).find(|it| it.act != Act::Honest);
    let selection = Selection {
        only: vec![other.unwrap().address()],
        skip: vec![plain.address()],
        ..Selection::default()
    };
    let report = judged_in(&all, &mut Never, &selection);
    let expected = Verdict::NotTested(format!("{} was left out", plain.address()));
    assert_eq!(report.entries.len(), 1);
    assert_eq!(report.entries[0].verdict, expected);
    assert_eq!(report.status(true), 2);
}

/// A client that sends its first message in pieces without end, or nonsense.
struct Odd(&'static [u8]);

impl Client for Odd {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        let mut stream = TcpStream::connect(task.address).unwrap();
        let frame = mpa::Frame::request().bytes();
        // The judge may have closed the connection already.
        drop(stream.write_all(&frame));
        drop(stream.write_all(self.0));
        // Beside a load, it may take the judge longer to accept a connection than it waits for one.
        await_connection(task);
        Ended::Unknown
    }
}

#[test]
fn octets_that_are_no_messages_do_no_harm() {
    for bytes in [&[][..], &[0xff; 300], &[0, 3, 1, 2, 3, 0, 0, 0, 0, 0]] {
        let report = judged(&mut Odd(bytes), &["rfc8166/3.5.1", "rfc8166/4.2.2/1001"]);
        assert_eq!(report.status(false), 1, "{bytes:?}");
    }
}

/// A client that goes on sending when its operation has ended, and reads nothing.
struct Flood(fn(u32) -> Vec<u8>);

impl Client for Flood {
    fn is_told(&self, _: Operation) -> bool {
        true
    }

    fn perform(&mut self, task: &Task<'_>) -> Ended {
        let mut stream = TcpStream::connect(task.address).unwrap();
        stream.write_all(&mpa::Frame::request().bytes()).unwrap();
        let ulpdu = self.0;
        std::thread::spawn(move || {
            // Many at once, so that the judge never waits for the next one.
            for first in (1..).step_by(64) {
                let some = (first..first + 64).map(|msn| mpa::fpdu(&ulpdu(msn), false));
                if stream
                    .write_all(&some.collect::<Vec<_>>().concat())
                    .is_err()
                {
                    return;
                }
            }
        });
        await_connection(task);
        Ended::Unknown
    }
}

#[test]
fn a_client_that_never_stops_does_not_outlast_its_performance() {
    let writes = |_: u32| ddp::Tagged::write(1, 0, &[]).ulpdu();
    let calls = |msn: u32| {
        let call = v1::header(msn).with(&rpc::null(msn).bytes());
        ddp::Untagged::send(msn, &call).ulpdu()
    };
    let (tell, told) = mpsc::channel();
    for ulpdu in [writes as fn(u32) -> Vec<u8>, calls] {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let report = judged(&mut Flood(ulpdu), &["rfc8166/3.5.1"]);
            tell.send(report.entries.len()).unwrap();
        });
    }
    for _ in 0..2 {
        let cases = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(cases > 0);
    }
}
