//! Tests of `conform` on this project's own server.

mod common;

use std::fs;

use serde_json::Value;

use common::{Proto, Server, is_iwarp, run};

#[test]
fn our_server_passes_and_nothing_is_left_in_its_export() {
    if !is_iwarp() {
        // The messages of the cases are iWARP's.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let url = server.url(Proto::Rdma, "/memory");
    let [junit, json] = ["report.xml", "report.json"].map(|name| dir.path().join(name));
    let words = [
        "conform",
        "--strict",
        "--hostile",
        &url,
        "--junit",
        junit.to_str().unwrap(),
    ];
    let done = run([&words[..], &["--json", json.to_str().unwrap()]].concat()).ok();
    let summary = done.stdout.lines().last().unwrap();
    assert!(summary.contains(" cases passed, 0 deviations"), "{summary}");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let entries = report["entries"].as_array().unwrap();
    assert!(entries.len() >= 100, "{}", entries.len());
    for entry in entries {
        let address = entry["address"].as_str().unwrap();
        assert!(done.stdout.contains(&format!(" {address} ")), "{address}");
    }
    let xml = fs::read_to_string(junit).unwrap();
    assert_eq!(xml.matches("<testcase ").count(), entries.len());
    assert!(!xml.contains("<failure"), "{xml}");
    let left = run(["ls", "-a", &url]).ok().stdout;
    assert_eq!(left, "", "left in the export");
}

#[test]
fn a_list_needs_no_server() {
    let list = run(["conform", "--list", "--only", "rfc8166/4.5.2"])
        .ok()
        .stdout;
    assert!(list.lines().count() >= 15, "{list}");
    assert!(
        list.lines().all(|line| line.starts_with("rfc8166/4.5.2/")),
        "{list}"
    );
    let none = run(["conform", "--list", "--only", "rfc1"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[test]
fn a_server_that_is_not_there_could_not_be_tested() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/export", listener.local_addr().unwrap());
    drop(listener);
    let done = run(["conform", &url]);
    assert_eq!(done.status.code(), Some(2), "{done:?}");
    assert!(done.stderr.starts_with("rpcrdma: "), "{done:?}");
}
