//! Tests of ladders: those of README.md and docs/, and those that commands draw.

mod common;

use std::fs;

use serde_json::Value;

use common::{Proto, Running, Server, options, rpcrdma, run};

const README_SVG: &str = include_str!("../../docs/write-8k.svg");
const PAGE: &str = include_str!("../../docs/ladders.md");
const README: &str = include_str!("../../README.md");

/// The ladders that README.md and docs/ladders.md show are what the command of figures/published.py draws, and
/// their times and counts are those of the rows that it prints.
#[test]
fn the_published_ladders_are_what_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = rpcrdma();
    command.args([
        "compare", "--device", "sim", "--ops", "write", "--sizes", "8k",
    ]);
    let modes = "v1-inv,v2-cont,v2-ddp-cont";
    command.args(["--via", modes, "--json", "-", "--figures"]);
    let finished = Running::start(command.arg(dir.path())).finish().ok();
    let rows: Vec<Value> = serde_json::from_str(&finished.stdout).expect("rows as JSON");
    let drawn = |name: &str| fs::read_to_string(dir.path().join(name)).expect(name);

    let (svg, text) = (
        drawn("write-8-kib-ladder.svg"),
        drawn("write-8-kib-ladder.txt"),
    );
    let anew = "`figures/make ladder` draws it anew";
    assert!(
        svg == README_SVG,
        "docs/write-8k.svg is not what is drawn: {anew}"
    );
    let (_, page) = PAGE.split_once("```text\n").expect("a block of text");
    let (page, _) = page.split_once("```").expect("its end");
    assert_eq!(page, text, "docs/ladders.md: {anew}");
    assert!(
        README.contains("(docs/write-8k.svg)"),
        "README.md does not show it"
    );

    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(!text.contains("not to scale") && !svg.contains("not to scale"));
    for row in &rows {
        let figure = |key: &str| row[key].as_f64().expect(key);
        let plural = |count: f64, one: &str| match count {
            0.0 => format!("no {one}"),
            1.0 => format!("1 {one}"),
            count => format!("{count} {one}s"),
        };
        let mut wanted = vec![
            row["transfer_mode"].as_str().unwrap().to_owned(),
            format!("{:.1} µs", figure("p50_us")),
            plural(figure("round_trips"), "round trip"),
            format!(
                "interrupts: client {}, server {}",
                figure("interrupts_requester"),
                figure("interrupts_responder")
            ),
            plural(figure("registrations"), "registration"),
        ];
        if figure("rdma_reads") > 0.0 {
            wanted[4] = format!(
                "{}, {}",
                wanted[4],
                plural(figure("rdma_reads"), "RDMA Read")
            );
        }
        for words in &wanted {
            assert!(text.contains(words), "{words}: {text}");
            assert!(
                svg.contains(&format!(">{words}<")),
                "{words} in the SVG file"
            );
        }
    }
    // Of the three, only version 1 takes a second round trip, which is named.
    assert_eq!(svg.matches(">one more round trip<").count(), 1);
    assert_eq!(
        (
            text.matches("RDMA Read, ").count(),
            text.matches("2 round trips").count()
        ),
        (1, 1)
    );

    // What is for drafts has neither colours nor letters beyond ASCII.
    let (svg, text) = (
        drawn("write-8-kib-ladder-plain.svg"),
        drawn("write-8-kib-ladder-plain.txt"),
    );
    assert!(!svg.contains("class=") && !svg.contains("<style"), "{svg}");
    assert!(
        text.is_ascii() && text.lines().all(|line| line.len() <= 69),
        "{text}"
    );
}

#[test]
fn explain_draws_ladders_with_the_costs_that_it_shows() {
    let explain = |args: &[&str]| run([&["explain"], args].concat()).ok().stdout;
    let options = [
        "-o",
        "rpcrdma=1",
        "--costs",
        "link-delay=1ms,interrupt=7us,rate=unlimited",
    ];
    let text = explain(&[&options[..], &["--ladder", "write:8k", "null"]].concat());
    assert!(
        text.contains("by read chunk"),
        "the explanation is there as well: {text}"
    );
    for words in [
        "write 8 KiB",
        "2 round trips",
        "1 round trip",
        "one call at a time",
        "RDMA Read",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (_, text) = text.split_once("\nVersion 1 of RPC-over-RDMA\n").unwrap();
    // Two round trips over a link of 1 ms take 4 ms, and one takes 2 ms.
    assert!(
        text.contains("4.03 ms") && text.contains("2.02 ms"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let svg = explain(&[&options[..], &["--ladder=svg", "write:8k"]].concat());
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    for words in [">one more round trip<", ">2 round trips<"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    let refused = run(["explain", "--ladder=png", "null"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn the_report_of_a_simulation_has_the_ladders_of_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    let mut command = rpcrdma();
    command.args([
        "compare",
        "--device",
        "sim",
        "--ops",
        "read,null",
        "--sizes",
        "4k",
        "--html",
    ]);
    Running::start(command.arg(&file)).finish().ok();
    let page = fs::read_to_string(&file).unwrap();
    assert!(page.contains("<h2>One call, step by step</h2>"));
    for title in ["One READ of 4 KiB", "One NULL"] {
        assert!(
            page.contains(&format!("<summary>{title}</summary>")),
            "{title}"
        );
    }
}

/// A capture of this project's client shows a READ and a WRITE by version 1, with the round trip of the RDMA Read.
#[test]
fn calls_of_a_capture_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (local, file) = (at("local"), at("all.pcapng"));
    fs::write(&local, vec![7; 40_000]).unwrap();
    let server = Server::start(["--memory", ":insecure"]);
    let [o, with] = options(Proto::Rdma, "rpcrdma=1,wsize=8192");
    let url = server.url(Proto::Rdma, "/memory/");
    let put = ["put", &o, &with, "--capture", &file, &local, &url];
    run(put).ok();
    let drawn = |args: &[&str]| run([&["ladder"], args, &[&file]].concat());
    let writes = drawn(&["--procedure", "write", "--count", "2"]).ok().stdout;
    assert_eq!(writes.matches("NFS3 WRITE").count(), 2, "{writes}");
    let in_one_line = writes.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "call, read chunk",
        "RDMA Read, of 8 KiB",
        "data of the Read",
        "reply",
        "2 round trips",
        "1 registration, 1 RDMA Read",
        "3 more follow:",
    ] {
        assert!(in_one_line.contains(words), "{words}: {writes}");
    }
    assert!(
        writes.lines().all(|line| line.chars().count() <= 100),
        "{writes}"
    );
    let svg = drawn(&["--slowest", "-c", "1", "--svg"]).ok().stdout;
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    // A file that is cut off is drawn as far as it goes.
    let (whole, cut, empty) = (fs::read(&file).unwrap(), at("cut.pcapng"), at("empty.pcap"));
    fs::write(&cut, &whole[..whole.len() - 3]).unwrap();
    let first = run(["ladder", "-c", "1", &cut]).ok().stdout;
    assert!(
        first.contains("Not read to the end: the file ends within a block"),
        "{first}"
    );
    let refused = run(["ladder", "--procedure", "SYMLINK", &cut]);
    refused.fails_with(&["it has no such call", "Not read to the end"]);
    // What there is not, and what is no capture.
    drawn(&["--procedure", "SYMLINK"]).fails_with(&["it has no such call"]);
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];
    fs::write(&empty, header.map(u32::to_le_bytes).concat()).unwrap();
    run(["ladder", &empty]).fails_with(&["No packet of RPC-over-RDMA was found"]);
    run(["ladder", &local]).fails_with(&[&local]);
}
