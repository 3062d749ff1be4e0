//! Tests of `conform` on this project's own server.

mod common;

use std::fs;

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, parse_block_le};
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
fn the_connections_of_cases_are_in_the_capture() {
    if !is_iwarp() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(["--memory=64M"]);
    let url = server.url(Proto::Rdma, "/memory");
    let file = dir.path().join("cases.pcapng");
    let name = file.to_str().unwrap();
    let words = [
        "conform",
        "--only",
        "rfc8166/4.5.1",
        &url,
        "--capture",
        name,
    ];
    let done = run(words).ok();
    assert!(done.stdout.contains("3 cases passed"), "{done:?}");
    let bytes = fs::read(&file).unwrap();
    let mut rest = &bytes[..];
    let mut connections = 0;
    while !rest.is_empty() {
        let (after, block) = parse_block_le(rest).expect("a damaged block");
        rest = after;
        if let Block::EnhancedPacket(packet) = block {
            // The flags of a TCP segment over IPv4: SYN alone.
            connections += usize::from(packet.packet_data()[14 + 20 + 13] == 2);
        }
    }
    // One for each case, and those that find out what the server speaks.
    assert!(connections >= 5, "{connections}");
    let again = run(words);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(again.stderr.contains("it exists"), "{again:?}");
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
