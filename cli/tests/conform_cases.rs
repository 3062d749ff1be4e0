//! Tests of `conform --cases` and `conform --from`: cases in files, and those made of captures.
#![allow(
    clippy::unwrap_used,
    reason = "a test may panic; the lint exempts test functions, but not their helpers"
)]

mod common;

use std::fs;

use common::conform::{judged, write};
use common::{Proto, Server, is_iwarp, run};

/// The mount of Linux's client (6.12, siw) up to its first READ of 8 KiB, as the lab captured it on Linux's server.
const LINUX: &str = "tests/conform_cases/linux-siw-nfs3-read.pcap";
const PAGE: &str = include_str!("../../docs/conform-cases.md");

/// Returns the block of the page that begins with this line.
fn block(begins: &str) -> &'static str {
    let mut blocks = PAGE.split("```text\n").skip(1);
    let block = blocks.find(|block| block.starts_with(begins));
    let (block, _) = block.and_then(|it| it.split_once("```")).unwrap();
    block
}

#[test]
fn a_capture_of_linux_s_client_becomes_cases_that_our_server_passes() {
    if !is_iwarp() {
        // The messages of the cases are iWARP's.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = run(["conform", "--from", LINUX]).ok();
    assert!(
        made.stdout.contains("rpc = call NFS 3 READ {file}"),
        "{made:?}"
    );
    assert!(
        made.stdout
            .contains("rdma_writes[0].rdma_target[0] = memory m1"),
        "{made:?}"
    );
    assert!(made.stderr.contains(" cases; left out: "), "{made:?}");
    let file = write(dir.path(), "linux.case", &made.stdout);
    let server = Server::start(["--memory=64M"]);
    let done = judged(&server, &["--cases", &file]).ok();
    let count = made.stdout.matches("\ncase ").count();
    assert!(count >= 6, "{made:?}");
    let summary = format!("{count} cases passed, 0 deviations");
    assert!(done.stdout.contains(&summary), "{done:?}");
    // Edited, the same case finds that the server does otherwise.
    let edited = made
        .stdout
        .replace("rpc = reply SUCCESS", "rpc = reply PROC_UNAVAIL");
    let file = write(dir.path(), "edited.case", &edited);
    let done = judged(&server, &["--cases", &file]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
}

#[test]
fn a_capture_of_our_own_traffic_becomes_cases_that_our_server_passes() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let source = write(dir.path(), "source", &"x".repeat(6000));
    for (version, features) in [
        ("1", ""),
        ("2", ",features=none"),
        ("2wg", ",features=none"),
    ] {
        let capture = dir.path().join(format!("own-{version}.pcapng"));
        let capture = capture.to_str().unwrap();
        let url = server.url(Proto::Rdma, &format!("/memory/{version}"));
        let options = format!("rpcrdma={version}{features}");
        run(["put", "-o", &options, "--capture", capture, &source, &url]).ok();
        let made = run(["conform", "--from", capture]).ok();
        // WRITE has its data in a Read chunk, whose position moves with the length of credential and handle. In
        // draft -07 it comes in several messages.
        let written = match version {
            "2wg" => "--- RDMA2_CALL_MIDDLE",
            _ => "rdma_position = end\n",
        };
        assert!(made.stdout.contains(written), "{made:?}");
        let file = write(dir.path(), &format!("own-{version}.case"), &made.stdout);
        let done = judged(&server, &["--cases", &file]);
        assert!(
            done.status.success(),
            "{version}: {done:?}\n{}",
            made.stdout
        );
    }
}

/// Whatever a file is called, what `--from` writes is what `--cases` takes.
#[test]
fn what_is_made_of_a_capture_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "version-two-07.pcap",
        "A b, c.d.pcap",
        ".pcap",
        "rfc8166.pcap",
    ] {
        let capture = dir.path().join(name);
        fs::copy(LINUX, &capture).unwrap();
        let made = run(["conform", "--from", capture.to_str().unwrap()]).ok();
        let count = made.stdout.matches("\ncase ").count();
        assert!(count >= 6, "{name}: {made:?}");
        assert!(
            made.stderr
                .contains(&format!(": {count} cases; left out: ")),
            "{made:?}"
        );
        let file = write(dir.path(), "made.case", &made.stdout);
        let listed = run(["conform", "--list", "--cases", &file]).ok();
        assert_eq!(listed.stdout.lines().count(), count, "{name}: {listed:?}");
    }
}

#[test]
fn the_examples_of_the_page_are_red_and_green() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let xdr = write(dir.path(), "hint.x", block("const RDMA2_CALL_HINT"));
    let red = write(dir.path(), "hint.case", block("case hint-00/3.1/1 MUST"));
    let words = ["--xdr", &xdr, "--cases", &red];
    // The server does not know this header type.
    let done = judged(&server, &words);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let expected = "received an RDMA2_ERROR of ERR_INVAL_HTYPE, not RDMA2_REPLY_INLINE";
    assert!(done.stdout.contains(expected), "{done:?}");
    let listed = run(["conform", "--list", "--xdr", &xdr, "--cases", &red])
        .ok()
        .stdout;
    assert!(listed.starts_with("hint-00/3.1/1 MUST: "), "{listed}");
    assert_eq!(listed.lines().count(), 1, "{listed}");
    // A folder has several files, and the built-in cases can be performed beside them.
    write(
        dir.path(),
        "read.case",
        block("case my-server/1/1 robustness"),
    );
    write(
        dir.path(),
        "first.case",
        block("case rpcrdma2-07/6.1/901 MUST"),
    );
    let folder = dir.path().to_str().unwrap();
    let words = ["--xdr", &xdr, "--cases", folder, "--built-in"];
    let only = ["--only", "my-server", "--only", "rpcrdma2-07/6.1"];
    let done = judged(&server, &[&words[..], &only].concat()).ok();
    assert!(done.stdout.contains("ok      my-server/1/1 "), "{done:?}");
    assert!(
        done.stdout.contains("ok      rpcrdma2-07/6.1/901 "),
        "{done:?}"
    );
    assert!(
        done.stdout.contains("ok      rpcrdma2-07/6.1/1 "),
        "{done:?}"
    );
}

#[test]
fn errors_name_file_line_and_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let case = block("case hint-00/3.1/1 MUST").replace("rdma_hint", "rdma_hnit");
    let file = write(dir.path(), "hint.case", &case);
    let xdr = write(dir.path(), "hint.x", block("const RDMA2_CALL_HINT"));
    let refused = |words: &[&str]| {
        let done = run([&["conform", "--list"], words].concat());
        assert_eq!(done.status.code(), Some(2), "{done:?}");
        assert!(!done.stderr.contains("panicked"), "{done:?}");
        done.stderr
    };
    let said = refused(&["--cases", &file, "--xdr", &xdr]);
    let line = 1 + case
        .lines()
        .position(|it| it.contains("rdma_hnit"))
        .unwrap();
    let expected =
        format!("{file}:{line}:11: RDMA2_CALL_HINT has no field rdma_hnit here; write one of ");
    assert!(said.contains(&expected), "{said}");
    // Without its XDR file, the header type is not known.
    let said = refused(&["--cases", &file]);
    assert!(
        said.contains("RDMA2_CALL_HINT is no header type of "),
        "{said}"
    );
    assert!(said.contains("--xdr FILE"), "{said}");
    let broken = write(dir.path(), "broken.x", "struct s {\n unknown a;\n};");
    let said = refused(&["--cases", &file, "--xdr", &broken]);
    assert!(
        said.contains("broken.x:2:2: unknown is not defined; write "),
        "{said}"
    );
    let said = refused(&["--cases", &file, "--cases", &file, "--xdr", &xdr]);
    assert!(said.contains("has no field"), "{said}");
    let empty = tempfile::tempdir().unwrap();
    let said = refused(&["--cases", empty.path().to_str().unwrap()]);
    assert!(
        said.contains("no name of a file in it ends in .case"),
        "{said}"
    );
    let said = refused(&["--xdr", &xdr]);
    assert!(said.contains("--cases or --from"), "{said}");
    let same = write(
        dir.path(),
        "same.case",
        &block("case rpcrdma2-07/6.1/901 MUST").replace("901", "1"),
    );
    let said = refused(&["--cases", &same, "--built-in"]);
    assert!(
        said.contains("rpcrdma2-07/6.1/1 is also the address of a built-in case"),
        "{said}"
    );
    // The base of a case is one of the files', or built in.
    let needs = format!(
        "{}needs rfc8166/4.5.2/1\n",
        block("case rpcrdma2-07/6.1/901 MUST")
    );
    let needs = write(dir.path(), "needs.case", &needs);
    let said = refused(&["--cases", &needs]);
    assert!(
        said.contains("rfc8166/4.5.2/1 is the address of no case; write "),
        "{said}"
    );
    run(["conform", "--list", "--cases", &needs, "--built-in"]).ok();
    let none = run(["conform", "--from", &file]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}
