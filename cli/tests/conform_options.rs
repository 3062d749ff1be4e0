//! Tests of the options of `conform` that select cases, compare deviations with known ones, and keep from harm; and of
//! the reports.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use common::conform::{judged, write};
use common::{Finished, Proto, Server, export, is_iwarp, rpcrdma, run};

/// Cases of which a server passes one.
const CASES: &str = "\
case rpcrdma2-07/6.1/901 MUST
sends header type 99
expects RDMA2_ERROR with INVAL_HTYPE
    --- 99 ----------------------------->
          rpc = call NFS 3 NULL
    <-- RDMA2_ERROR ---------------------
          rdma_err = RDMA2_ERR_INVAL_HTYPE

case rpcrdma2-07/6.1/902 MUST
sends header type 99
expects RDMA2_ERROR with BAD_XDR
    --- 99 ----------------------------->
          rpc = call NFS 3 NULL
    <-- RDMA2_ERROR ---------------------
          rdma_err = RDMA2_ERR_BAD_XDR
";
const PASSES: &str = "rpcrdma2-07/6.1/901";
const FAILS: &str = "rpcrdma2-07/6.1/902";

fn json(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the last line.
#[track_caller]
fn summary(done: &Finished) -> &str {
    done.stdout.lines().last().unwrap()
}

#[test]
fn cases_are_left_out_and_counted() {
    if !is_iwarp() {
        // The messages of the cases are iWARP's.
        return;
    }
    let server = Server::start(["--memory=64M"]);
    let only = ["--only", "rfc8166/4.5.1", "--only", "rfc8166/3.3.1/1"];
    let with = |words: &[&str]| judged(&server, &[&only, words].concat());
    let done = with(&["--skip", "rfc8166/4.5.1/2", "--skip", "rfc8166/3.3.1"]).ok();
    let end = ": 2 cases passed, 0 deviations, 2 left out (--skip)";
    assert!(summary(&done).ends_with(end), "{done:?}");
    assert!(!done.stdout.contains(" rfc8166/4.5.1/2 "), "{done:?}");
    // The others need this one, which may be what disturbs the server.
    let done = with(&["--skip", "rfc8166/4.5.1/1"]).ok();
    let why = ": rfc8166/4.5.1/1 was left out";
    for number in [2, 3] {
        let begins = format!("skipped rfc8166/4.5.1/{number} ");
        let mut lines = done.stdout.lines();
        assert!(
            lines.any(|it| it.starts_with(&begins) && it.ends_with(why)),
            "{done:?}"
        );
    }
    let end = ": 1 case passed, 0 deviations, 2 skipped, as a simpler case failed or was left out, 1 left out (--skip)";
    assert!(summary(&done).ends_with(end), "{done:?}");
}

#[test]
fn cases_of_clients_are_left_out() {
    if !is_iwarp() {
        return;
    }
    let listen = [
        "conform",
        "--listen",
        "127.0.0.1:0",
        "--loopback",
        "--run",
        "own",
    ];
    let words = ["--only", "rfc8166/4.2", "--skip", "rfc8166/4.2.2/1001"];
    let done = run([&listen[..], &words].concat()).ok();
    assert!(!done.stdout.contains(" rfc8166/4.2.2/1001 "), "{done:?}");
    assert!(
        summary(&done).ends_with(", 1 left out (--skip)"),
        "{done:?}"
    );
    let list = ["conform", "--list", "--listen", "127.0.0.1:0"];
    let listed = run([&list[..], &words].concat()).ok().stdout;
    assert!(!listed.contains("rfc8166/4.2.2/1001 "), "{listed}");
    assert!(listed.contains("rfc8166/4.2.1/1001 "), "{listed}");
}

#[test]
fn an_address_of_no_case_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |words: &[&str], what: &str| {
        let done = run([&["conform"], words, &["nfs://127.0.0.1:9/none"]].concat());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stderr.contains(what), "{done:?}");
    };
    let no_case = "no case has such an address";
    let skipped = format!("--skip rfc8166/4.5.99: {no_case}");
    refused(&["--skip", "rfc8166/4.5.99"], &skipped);
    // One of two, whose other has cases.
    let words = ["--only", "rfc8166/4.5.2", "--only", "rfc8166/4.52"];
    refused(&words, &format!("--only rfc8166/4.52: {no_case}"));
    let words = ["--only", "rfc8166/4.5.2", "--skip", "rfc8166/4.5"];
    refused(&words, "--skip: no case is left");
    // What to type instead.
    let there = "--list --only rfc8166 shows those that there are";
    refused(&["--only", "rfc8166/4.5.99"], there);
    let documents = "rfc8797, rpcrdma1, rpcrdma2-01, rpcrdma2-07";
    refused(&["--only", "rpcrdma3"], documents);
    let of_client = "type rpcrdma conform --listen ADDR:PORT --run COMMAND --only ";
    for address in ["rfc8166/4.2.1/1001", "send-placement-00", "rfc5040"] {
        refused(&["--only", address], &format!("{of_client}{address} "));
    }
    let cases = write(dir.path(), "mine.case", CASES);
    let words = ["--cases", &cases, "--only", "rfc8166/4.5"];
    refused(&words, "--built-in");
    let known = write(
        dir.path(),
        "known",
        "# theirs\nrfc8166/4.5.2/1\nrfc8166/4.5.2\n",
    );
    refused(
        &["--known", &known],
        "rfc8166/4.5.2: no case has this address",
    );
    let known = write(dir.path(), "known", "rfc8166/4.5.2/1 rfc8166/4.5.2/2\n");
    refused(&["--known", &known], "line 1: ");
    let missing = dir.path().join("missing");
    let why = "missing: there is no such file; it lists the addresses of known deviations";
    refused(&["--known", missing.to_str().unwrap()], why);
}

#[test]
fn a_list_has_what_the_other_options_select() {
    let listed = |words: &[&str]| {
        let list = run([&["conform", "--list"], words].concat()).ok().stdout;
        let address = |line: &str| line.split(' ').next().unwrap().to_owned();
        list.lines().map(address).collect::<Vec<_>>()
    };
    let is_of_client = |address: &String| {
        let number = address.rsplit('/').next().unwrap();
        number.parse::<u32>().unwrap() > 1000
    };
    let all = listed(&[]);
    let [of_servers, of_clients] =
        [&["nfs://192.0.2.1/none"][..], &["--listen", "192.0.2.1:1"]].map(listed);
    assert!(!of_servers.iter().any(is_of_client));
    assert!(of_clients.iter().all(is_of_client));
    assert_eq!([of_servers, of_clients].concat(), all);
    // A prefix that both drafts of version 2 share, and one that ends within a section's name.
    let both = listed(&["--only", "rpcrdma2", "nfs://192.0.2.1/none"]);
    for begins in ["rpcrdma2-01/", "rpcrdma2-07/"] {
        assert!(both.iter().any(|it| it.starts_with(begins)), "{begins}");
    }
    assert!(both.iter().all(|it| it.starts_with("rpcrdma2-")));
    let by_reference = listed(&["--only", "rpcrdma2-01/rfc8166"]);
    let begins = "rpcrdma2-01/rfc8166-";
    assert!(by_reference.iter().all(|it| it.starts_with(begins)));
}

#[test]
fn known_deviations_pass_until_they_change() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let cases = write(dir.path(), "mine.case", CASES);
    let [junit, report] = ["report.xml", "report.json"].map(|name| dir.path().join(name));
    let [junit, report] = [&junit, &report].map(|path| path.to_str().unwrap());
    let with = |known: &str| {
        let known = write(dir.path(), "known", known);
        let words = ["--cases", &cases, "--known", &known];
        judged(
            &server,
            &[&words[..], &["--junit", junit, "--json", report]].concat(),
        )
    };
    // The last one is not among the cases that are performed.
    let done = with(&format!("{FAILS} # ours\n\nrfc8166/4.5.2/1\n")).ok();
    assert!(
        done.stdout.contains(&format!("known   {FAILS} MUST: ")),
        "{done:?}"
    );
    let missing = "\nknown deviations that were not tested: rfc8166/4.5.2/1\n";
    assert!(done.stdout.contains(missing), "{done:?}");
    let end = ": 1 case passed, 0 deviations, 1 known";
    assert!(summary(&done).ends_with(end), "{done:?}");
    let found = json(report);
    assert_eq!(found["entries"][1]["verdict"], "known", "{found:#?}");
    assert!(found["entries"][1]["exchange"].is_array(), "{found:#?}");
    assert_eq!(found["known"]["not_performed"][0], "rfc8166/4.5.2/1");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("failures=\"0\" errors=\"0\" skipped=\"1\""),
        "{xml}"
    );
    assert!(xml.contains("<skipped message=\"known: "), "{xml}");

    let new = with("");
    assert_eq!(new.status.code(), Some(1), "{new:?}");
    assert!(
        new.stdout.contains(&format!("\nnew deviations: {FAILS}\n")),
        "{new:?}"
    );
    assert!(new.stdout.contains(&format!("FAILED  {FAILS} ")), "{new:?}");

    let mended = with(&format!("{PASSES}\n{FAILS}\n"));
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    let line = format!("\nknown deviations that pass now: {PASSES}\n");
    assert!(mended.stdout.contains(&line), "{mended:?}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("failures=\"1\" errors=\"0\" skipped=\"1\""),
        "{xml}"
    );
}

#[test]
fn reports_say_what_was_judged_when_and_how() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let [junit, report] = ["report.xml", "report.json"].map(|name| dir.path().join(name));
    let [junit, report] = [&junit, &report].map(|path| path.to_str().unwrap());
    let words = [
        "--strict",
        "--only",
        "rfc8166/4.5.1",
        "--skip",
        "rfc8166/4.5.1/2",
    ];
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    judged(
        &server,
        &[&words[..], &["--junit", junit, "--json", report]].concat(),
    )
    .ok();
    let about = &json(report)["about"];
    assert_eq!(about["target"], server.url(Proto::Rdma, "/memory"));
    assert_eq!(about["strict"], true);
    assert_eq!(about["hostile"], false);
    assert_eq!(about["read_only"], false);
    assert_eq!(about["timeout"], 10.0);
    assert_eq!(about["only"][0], "rfc8166/4.5.1");
    assert_eq!(about["skip"][0], "rfc8166/4.5.1/2");
    let version = run(["--version"]).ok().stdout;
    let version = version.trim().strip_prefix("rpcrdma ").unwrap().to_owned();
    assert_eq!(about["version"], version.as_str());
    let date = about["date"].as_str().unwrap();
    let until = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut shown = (started.as_secs()..=until.as_secs()).map(|seconds| {
        let date = rpcrdma_setup::units::show_date(seconds);
        format!("{}Z", date.replace(' ', "T"))
    });
    assert!(shown.any(|it| it == date), "{date}");
    let xml = fs::read_to_string(junit).unwrap();
    let timestamp = format!(" timestamp=\"{}\"", date.trim_end_matches('Z'));
    assert!(xml.contains(&timestamp), "{xml}");
    for (name, value) in [
        ("version", &*version),
        ("strict", "true"),
        ("skip", "rfc8166/4.5.1/2"),
    ] {
        let property = format!("<property name=\"{name}\" value=\"{value}\"/>");
        assert!(xml.contains(&property), "{property}: {xml}");
    }
}

#[test]
fn reports_say_that_nothing_could_be_tested() {
    let dir = tempfile::tempdir().unwrap();
    let reported = |words: &[&str], target: &str, why: &str| {
        let [junit, report] = ["report.xml", "report.json"].map(|name| dir.path().join(name));
        // What another run has left.
        fs::write(&junit, "<testsuite/>").unwrap();
        fs::write(&report, "{}").unwrap();
        let [junit, report] = [&junit, &report].map(|path| path.to_str().unwrap());
        let files = ["conform", "--junit", junit, "--json", report];
        let done = run([&files[..], words].concat());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(done.stderr.contains(why), "{done:?}");
        let report = json(report);
        let untestable = report["untestable"].as_str().unwrap();
        assert!(untestable.contains(why), "{untestable}");
        assert_eq!(report["about"]["target"], target);
        assert_eq!(report["entries"].as_array().unwrap().len(), 0);
        let xml = fs::read_to_string(junit).unwrap();
        assert!(
            xml.contains("tests=\"1\" failures=\"0\" errors=\"1\""),
            "{xml}"
        );
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Somebody else listens there.
    let place = address.to_string();
    let words = ["--listen", &place, "--run", "own"];
    reported(&words, &format!("client at {place}"), &place);
    // Nobody listens at the end of a connection.
    let connected = std::net::TcpStream::connect(address).unwrap();
    let place = connected.local_addr().unwrap().to_string();
    let url = format!("nfs://{place}/export");
    reported(&[&url], &url, &place);
    if is_iwarp() {
        let server = Server::start(["--memory=1M"]);
        let url = server.url(Proto::Rdma, "/none");
        reported(&[&url], &url, "/none");
    }
}

#[test]
fn a_reader_that_has_gone_ends_no_judgement() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cases = write(dir.path(), "two.cases", CASES);
    let report = write(dir.path(), "report.json", "");
    let server = Server::start(["--memory=1M"]);
    let url = server.url(Proto::Rdma, "/memory");
    for (only, expected) in [(PASSES, 0), (FAILS, 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut conform = rpcrdma();
        conform.args(["conform", "--timeout", "10s", "--cases", &cases]);
        conform.args(["--only", only, "--json", &report, &url]);
        conform.stdout(writer).stderr(Stdio::piped());
        let done = conform.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(expected), "{done:?}");
        let entries = json(&report)["entries"].clone();
        assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
    }
}

/// Names, contents and times of a tree, without the times of reading.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>, [i64; 4])> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let of = fs::metadata(&path).unwrap();
        let times = [of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()];
        let content = match of.is_dir() {
            true => {
                let entries = fs::read_dir(&path).unwrap();
                todo.extend(entries.map(|it| it.unwrap().path()));
                Vec::new()
            }
            false => fs::read(&path).unwrap(),
        };
        found.push((path, content, times));
    }
    found.sort();
    found
}

/// Returns the number of cases that have passed.
#[track_caller]
fn passed(done: &Finished) -> usize {
    let (_, rest) = summary(done).split_once(": ").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn an_export_that_must_not_be_written_is_judged_and_unchanged() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..20_000_u32).map(|it| (it % 251) as u8).collect();
    fs::write(dir.path().join("a-long-file"), &content).unwrap();
    fs::write(dir.path().join("a-short-file"), "short").unwrap();
    fs::create_dir(dir.path().join("a-folder")).unwrap();
    let before = tree(dir.path());
    let [read_only, writable] = ["ro,no_root_squash", "no_root_squash"]
        .map(|options| Server::start(["--export", &export("data", dir.path(), options)]));
    let judge = |server: &Server, only| {
        let url = server.url(Proto::Rdma, "/data");
        let words = ["conform", "--read-only", "--strict", "--loopback"];
        run([&words[..], &["--only", only, &url]].concat()).ok()
    };
    // Judgements wait more than they compute. The rest of the second server's cases would be the same again.
    let rows = [
        (&read_only, "rpcrdma1", 105),
        (&read_only, "rpcrdma2-07", 380),
        (&read_only, "rpcrdma2-01", 145),
        (&writable, "rpcrdma1", 105),
    ];
    let judged = thread::scope(|scope| {
        let judging = rows.map(|(server, only, least)| {
            let done = scope.spawn(move || judge(server, only));
            (only, least, done)
        });
        judging.map(|(only, least, done)| (only, least, done.join().unwrap()))
    });
    assert_eq!(tree(dir.path()), before);
    for (only, least, done) in judged {
        let found = summary(&done);
        assert!(found.contains(" cases passed, 0 deviations, "), "{found}");
        assert!(passed(&done) >= least, "{found}");
        let reads = "cases read a-long-file";
        assert!(done.stderr.contains(reads), "{}", done.stderr);
        let has = |begins: &str| done.stdout.lines().any(|line| line.starts_with(begins));
        if only == "rpcrdma1" {
            // READ by a Write chunk, and by a Reply chunk; WRITE.
            assert!(has("ok      rfc8166/4.3.2/1 "), "{}", done.stdout);
            assert!(has("ok      rfc8166/3.5.3/10 "), "{}", done.stdout);
            assert!(has("n/a     rfc8166/3.4.5/20 "), "{}", done.stdout);
        }
    }
}

#[test]
fn an_export_without_a_file_is_judged_by_cases_that_need_none() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--export", &export("data", dir.path(), "ro,no_root_squash")]);
    let url = server.url(Proto::Rdma, "/data");
    let words = ["--only", "rfc8166/4.3.2", "--only", "rfc8166/4.5.1"];
    let done = run([&["conform", "--read-only", &url], &words[..]].concat()).ok();
    let needs = ": it needs a file, and the folder has no regular file ";
    assert!(done.stdout.contains(needs), "{done:?}");
    assert!(done.stdout.contains("ok      rfc8166/4.5.1/1 "), "{done:?}");
    let advice = "name a folder with a file that this user may read, of 16 KiB or more";
    assert!(done.stderr.contains(advice), "{done:?}");
    let done = run(["conform", "--read-only", &url, "--only", "rfc8166/4.3.2/1"]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    let why = ": no case was tested: ";
    assert!(done.stderr.contains(why), "{done:?}");
    // Without the option, nothing can be tested there.
    let done = run(["conform", &url]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(done.stderr.contains("--read-only performs"), "{done:?}");
}

#[test]
fn addresses_beside_the_loopback_interface_are_refused() {
    let refused = |words: &[&str], what: &str| {
        let done = run([&["conform", "--loopback"], words].concat());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        let expected = format!("--loopback: {what} is refused: ");
        assert!(done.stderr.contains(&expected), "{done:?}");
    };
    // Addresses and names of documentation (RFC 5737, RFC 6761).
    refused(&["nfs://192.0.2.1/export"], "the server 192.0.2.1");
    refused(
        &["nfs://server.invalid/export"],
        "the server server.invalid",
    );
    let words = ["-o", "mounthost=192.0.2.2", "nfs://127.0.0.1/export"];
    refused(&words, "mounthost 192.0.2.2");
    refused(&["--listen", "0.0.0.0:0"], "--listen 0.0.0.0:0");
    refused(&["--listen", "192.0.2.1:20049"], "--listen 192.0.2.1:20049");
}

#[test]
fn the_help_fits_into_100_columns() {
    let help = run(["conform", "--help"]).ok().stdout;
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for option in [
        "--skip <ADDRESS>",
        "--known <FILE>",
        "--read-only",
        "--loopback",
    ] {
        assert!(help.contains(option), "{option}: {help}");
    }
    // All that addresses begin with.
    let list = run(["conform", "--list"]).ok().stdout;
    for line in list.lines() {
        let (document, _) = line.split_once('/').unwrap();
        assert!(help.contains(&format!(" {document}")), "{document}: {help}");
    }
    for of_version in ["rpcrdma1", "rpcrdma2"] {
        assert!(help.contains(&format!(" {of_version} ")), "{help}");
    }
}
