//! Cases in files are performed on this project's own server.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;

use std::time::Duration;

use rpcrdma_conform::case::Ground;
use rpcrdma_conform::file::{Vocabularies, load, parse};
use rpcrdma_conform::judge::{Selection, judge};
use rpcrdma_conform::report::Verdict;
use rpcrdma_conform::run::Server;

use common::Served;

/// Returns the verdict of each case of a text.
fn verdicts(text: &str) -> Vec<Verdict> {
    verdicts_of(text, &Selection::default())
}

/// Returns the verdicts of the selected cases of a text.
fn verdicts_of(text: &str, selection: &Selection) -> Vec<Verdict> {
    let served = Served::start(4096);
    let server = Server {
        address: served.address,
        patience: Duration::from_secs(30),
        watcher: None,
        dial: None,
    };
    let vocabularies = Vocabularies::new(&[]);
    let cases = parse("a.case", text, &vocabularies, &served.ground()).unwrap();
    let report = judge(&cases, selection, &server, &mut |_| true);
    assert_eq!(report.untestable, None);
    let verdicts = report.entries.into_iter();
    verdicts.map(|entry| entry.verdict).collect()
}

#[test]
fn what_must_come_in_time_and_does_not_is_a_deviation() {
    let text = "
        case rfc8166/4.6.2/900 MUST
        sends RDMA_DONE
        expects a reply, which there is not
        --> RDMA_DONE
        <-- RDMA_MSG within 300ms

        case rfc8166/4.6.2/901 MUST
        sends RDMA_DONE
        expects silence
        --> RDMA_DONE
        <-- nothing";
    let why = "within 300ms: nothing came in time";
    assert_eq!(
        verdicts(text),
        [Verdict::Failed(why.into()), Verdict::Passed]
    );
}

#[test]
fn messages_that_other_cases_pass_over_can_be_expected() {
    let text = "
        case rpcrdma2-07/6.3.4/900 MUST
        sends a NULL call
        expects the server's properties and the reply
        --> RDMA2_CALL_INLINE
            rpc = call NFS 3 NULL
        <-- RDMA2_CONNPROP_FINAL
            rdma_props[0].rdma_which = 1..6
        <-- RDMA2_REPLY_INLINE
            rdma_writes = none
            rpc = reply SUCCESS

        case rpcrdma2-07/6.3.4/901 MUST
        sends a NULL call
        expects a reply with another result
        --> RDMA2_CALL_INLINE
            rpc = call NFS 3 NULL
        <-- RDMA2_REPLY_INLINE
            rpc = reply PROC_UNAVAIL";
    let [Verdict::Passed, Verdict::Failed(why)] = &verdicts(text)[..] else {
        panic!("not passed and failed");
    };
    let difference = "RDMA2_REPLY_INLINE with an RPC reply: accept_stat (octet 20) is 0 (SUCCESS), not 3 (PROC_UNAVAIL)";
    assert!(why.ends_with(difference), "{why}");
}

#[test]
fn a_case_whose_base_is_missing_is_not_tested() {
    let text = "
        case rfc8166/4.6.2/900 MUST
        needs rfc8166/4.6.2/1
        sends RDMA_DONE
        expects silence
        --> RDMA_DONE
        <-- nothing";
    let why = "rfc8166/4.6.2/1 is the address of no case";
    assert_eq!(verdicts(text), [Verdict::NotTested(why.into())]);
}

/// Returns a case with this number and these lines, which fails if the server sends nothing.
fn failing(number: u32, lines: &str) -> String {
    let sends = "sends RDMA_DONE\nexpects a reply, which there is not";
    let what = "--> RDMA_DONE\n<-- RDMA_MSG within 300ms";
    format!("case rfc8166/4.6.2/{number} MUST\n{lines}\n{sends}\n{what}\n\n")
}

/// Such a case is performed with `--hostile` alone.
#[test]
fn a_case_whose_base_could_exhaust_a_server_is_not_tested() {
    let text = failing(900, "hostile") + &failing(901, "needs rfc8166/4.6.2/900");
    let why = "rfc8166/4.6.2/900 could exhaust the server, and was left out";
    assert_eq!(verdicts(&text), [Verdict::NotTested(why.into())]);
}

/// Bases that are not selected are performed, if the cases that they need themselves did not fail.
#[test]
fn a_base_whose_own_base_fails_is_not_performed() {
    let first = failing(900, "");
    let second = failing(901, "needs rfc8166/4.6.2/900");
    let third = failing(902, "needs rfc8166/4.6.2/901");
    let only = Selection {
        only: vec!["rfc8166/4.6.2/902".into()],
        ..Selection::default()
    };
    let not_tested = |it: &str| Verdict::NotTested(format!("rfc8166/4.6.2/{it}"));
    let verdicts = verdicts_of(&(first + &second + &third), &only);
    assert_eq!(verdicts, [not_tested("901 was not tested")]);
    // Two that need each other, and one that needs itself.
    let other = failing(900, "needs rfc8166/4.6.2/901");
    let verdicts = verdicts_of(&(other + &second), &Selection::default());
    let each = ["901 was not tested", "900 was not tested"];
    assert_eq!(verdicts, each.map(not_tested));
    let itself = failing(900, "needs rfc8166/4.6.2/900");
    let verdicts = verdicts_of(&itself, &Selection::default());
    assert_eq!(verdicts, [not_tested("900 was not tested")]);
}

/// Regression test: a file in which each of many cases needs the next one overflowed the stack.
#[test]
fn a_chain_of_bases_may_have_any_length() {
    const CASES: u32 = 20_000;
    let needing = |number: u32| failing(number, &format!("needs rfc8166/4.6.2/{}", number + 1));
    let first = Selection {
        only: vec!["rfc8166/4.6.2/1".into()],
        ..Selection::default()
    };
    let mut text: String = (1..=CASES).map(needing).collect();
    // The last one of the chain is the only one that is performed.
    text += &failing(CASES + 1, "");
    let why = "rfc8166/4.6.2/2 was not tested";
    assert_eq!(verdicts_of(&text, &first), [Verdict::NotTested(why.into())]);
}

#[test]
fn a_file_with_a_case_whose_base_is_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &str| {
        let path = dir.path().join(name);
        let text =
            format!("sends RDMA_DONE\nexpects silence\n{lines}\n--> RDMA_DONE\n<-- nothing\n");
        let number = 900 + name.len();
        std::fs::write(&path, format!("case rfc8166/4.6.2/{number} MUST\n{text}")).unwrap();
        path
    };
    let first = write("a.case", "needs rfc8166/4.6.2/907.");
    let second = write("bc.case", "");
    let loaded = |paths: &[&std::path::PathBuf]| {
        let paths: Vec<_> = paths.iter().map(|it| (*it).clone()).collect();
        load(
            &paths,
            &Vocabularies::new(&[]),
            &Ground::without_files(1),
            &[],
        )
    };
    // Another file may have it.
    assert_eq!(loaded(&[&first, &second]).unwrap().len(), 2);
    let error = loaded(&[&first]).unwrap_err();
    assert_eq!((error.line, error.column), (4, 7), "{error}");
    assert!(
        error.what.ends_with("907 is the address of no case"),
        "{error}"
    );
}

#[test]
fn more_files_than_are_read_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..=1024 {
        let path = dir.path().join(format!("{number}.case"));
        std::fs::write(
            path,
            format!("case rfc8166/4.6.2/{number} MUST\nsends x\nexpects y\n--> RDMA_DONE"),
        )
        .unwrap();
    }
    let loaded = || {
        let ground = Ground::without_files(1);
        load(&[dir.path().into()], &Vocabularies::new(&[]), &ground, &[])
    };
    let error = loaded().unwrap_err();
    assert_eq!(error.what, "it has more than 1024 files NAME.case");
    std::fs::remove_file(dir.path().join("1024.case")).unwrap();
    assert_eq!(loaded().unwrap().len(), 1024);
}

/// A call in two messages, each with a credit of the server, and a call in memory.
#[test]
fn calls_in_parts_and_in_memory_are_answered() {
    let text = "
        case rpcrdma2-07/6.3.6/900 MUST
        sends a NULL call in two messages
        expects one reply
        --> RDMA2_CALL_MIDDLE
            rdma_remaining = 28
            rpc = {xid} 0 2
        --> RDMA2_CALL_INLINE
            rpc = 100003 3 0 0 0 0 0
        <-- RDMA2_REPLY_INLINE
            rpc = reply SUCCESS

        case rfc8166/3.5.3/900 MUST
        sends GETATTR as a long call
        expects NFS3_OK
        offer message = call NFS 3 GETATTR {file}
        --> RDMA_NOMSG
            rdma_reads[0].rdma_position = 0
            rdma_reads[0] = memory message
        <-- RDMA_MSG
            rdma_credit = 1..4294967295
            rpc = reply SUCCESS 0 ...";
    assert_eq!(verdicts(text), [Verdict::Passed, Verdict::Passed]);
}
