//! The judgement of clients: this project's own passes, and planted defects are found.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy takes helpers of tests for no tests"
)]

#[path = "common/client_choices.rs"]
mod client_choices;
#[path = "common/defective_client.rs"]
mod defective_client;
#[path = "common/own_client.rs"]
mod own_client;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use rpcrdma_conform::client::case::Operation;
use rpcrdma_conform::client::cases;
use rpcrdma_conform::client::judge::judge;
use rpcrdma_conform::client::performance::Judge;
use rpcrdma_conform::client::under_test::{Client, Ended, Task};
use rpcrdma_conform::judge::Selection;
use rpcrdma_conform::report::{Report, Verdict};
use rpcrdma_conform::wire::{ddp, mpa, rpc, v1};

use defective_client::{Defect, start};
use own_client::Own;

/// The longest wait for something that a client must do at once.
const PATIENCE: Duration = Duration::from_secs(10);

fn judged(client: &mut dyn Client, only: &[&str]) -> Report {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let the_judge = Judge {
        listener: &listener,
        mount: None,
        patience: PATIENCE,
        watcher: None,
    };
    let selection = Selection {
        only: only.iter().map(|it| (*it).to_owned()).collect(),
        ..Selection::default()
    };
    let mut each = |entry: &_| {
        println!("{entry}");
        true
    };
    judge(&cases::all(), &selection, &the_judge, client, &mut each).unwrap()
}

#[test]
fn our_client_passes_every_case() {
    let report = judged(&mut Own::new(), &[]);
    assert_eq!(report.untestable, None);
    assert_eq!(report.entries.len(), cases::all().len());
    assert_eq!(report.status(true), 0);
    // It sends no long calls, speaks version 1 from the beginning, and has no call that is too long.
    let not_applicable: Vec<&str> = report
        .entries
        .iter()
        .filter(|it| matches!(it.verdict, Verdict::NotApplicable(_)))
        .map(|it| &it.address[..])
        .collect();
    let expected = [
        "rfc8166/4.2.4/1003",
        "rfc8166/4.5.1/1001",
        "rfc8166/3.5.3/1001",
    ];
    assert_eq!(not_applicable, expected);
}

/// Returns the addresses of the cases that fail for a client with this defect.
fn failed(defect: Defect) -> Vec<String> {
    let mut client = Own::behind(Box::new(move |judge| start(judge, defect)));
    let report = judged(&mut client, &[]);
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
        let judging = rows.map(|row| (row, scope.spawn(move || failed(row.0))));
        for ((defect, address), thread) in judging {
            let failed = thread.join().unwrap();
            println!("{defect:?}: {failed:?}");
            let first = failed.first().map(String::as_str);
            assert_eq!(first, Some(address), "{defect:?}: {failed:?}");
            assert!(failed.len() <= 10, "{defect:?}: {failed:?}");
        }
    });
}

/// A client that ends in another way than by a failure.
struct Ending(Own, Ended);

impl Client for Ending {
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
    fn perform(&mut self, task: &Task<'_>) -> Ended {
        match task.operation {
            Operation::Ping => self.0.perform(task),
            other => Ended::Unable(format!("no {other}")),
        }
    }
}

#[test]
fn what_a_client_cannot_do_is_not_applicable() {
    let report = judged(&mut Simple(Own::new()), &[]);
    let passed = report
        .entries
        .iter()
        .filter(|it| it.verdict == Verdict::Passed);
    assert_eq!(passed.count(), 3);
    assert_eq!(report.tally(true).deviations, 0);
    assert_eq!(report.entries[1].why(), "no read");
}

/// A client that sends its first message in pieces without end, or nonsense.
struct Odd(&'static [u8]);

impl Client for Odd {
    fn perform(&mut self, task: &Task<'_>) -> Ended {
        let mut stream = TcpStream::connect(task.address).unwrap();
        let frame = mpa::Frame::request().bytes();
        // The judge may have closed the connection already.
        drop(stream.write_all(&frame));
        drop(stream.write_all(self.0));
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
        while (task.progress)().connections == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
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
