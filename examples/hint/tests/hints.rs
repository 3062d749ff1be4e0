//! Hints arrive where both ends have the extension, and calls without them everywhere.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use hint::{Hint, Queue, URGENT};
use rpc_transport::{Call, Reply, Service};
use rpcrdma::{Version, Workload};
use rpcrdma_programs::workload::{Calls, Failed, Pace, Prepare, Server};
use rpcrdma_sim::{Load, Setting, load};
use serde_json::Value;

/// The calls of [`Queue`], with the hints that the service saw.
#[derive(Clone, Debug, Default)]
struct Observed(Arc<Mutex<Vec<(u64, u32)>>>);

impl Workload for Observed {
    fn name(&self) -> &'static str {
        "observed"
    }

    fn service(&self) -> Option<Box<dyn Service>> {
        Workload::service(&Queue)
    }

    fn prepare<'a>(&'a self, _: Server<'a>) -> Prepare<'a> {
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Calls>) })
    }
}

impl Calls for Observed {
    fn name(&self) -> &'static str {
        "WAIT"
    }

    fn call(&self, number: u64) -> Call {
        Calls::call(&Queue, number)
    }

    fn check(&self, number: u64, reply: &Reply) -> Result<(), Failed> {
        let seen = reply.results().u32().unwrap();
        self.0.lock().unwrap().push((number, seen));
        Ok(())
    }
}

/// Returns the hints that the service saw of 96 calls in this version, between a client and a server
/// with these default hints, or without the extension.
fn seen(version: Version, ends: [Option<Hint>; 2]) -> Vec<(u64, u32)> {
    let mut setting = Setting {
        version,
        ..Setting::default()
    };
    for (end, hints) in [&mut setting.requester, &mut setting.responder]
        .into_iter()
        .zip(ends)
    {
        if let Some(default) = hints {
            end.protocols = hint::extend(end.protocols.clone(), default);
        }
    }
    let of = Load {
        clients: 1,
        pace: Pace::InFlight(8),
        operations: 96,
    };
    let observed = Observed::default();
    load(&setting, &observed, &of).unwrap();
    let seen = observed.0.lock().unwrap();
    seen.clone()
}

const NO_DEFAULT: Option<Hint> = Some(Hint(0));

#[test]
fn the_service_sees_what_the_caller_gave() {
    let Hint(urgent) = URGENT;
    for others in [0, 7] {
        let seen = seen(Version::TWO_WG, [Some(Hint(others)), NO_DEFAULT]);
        // With those that only warm up.
        assert!(seen.len() > 96, "{seen:?}");
        for (number, hint) in seen {
            let given = if number % 3 == 0 { others } else { urgent };
            assert_eq!(hint, given, "call {number}");
        }
    }
}

#[test]
fn where_nobody_carries_hints_the_service_sees_none() {
    let both = [NO_DEFAULT; 2];
    for (version, ends) in [
        (Version::ONE, both),
        (Version::TWO, both),
        (Version::TWO_WG, [NO_DEFAULT, None]),
        (Version::TWO_WG, [None, NO_DEFAULT]),
    ] {
        let seen = seen(version, ends);
        assert!(seen.len() > 96, "{version} {ends:?}: {seen:?}");
        assert!(
            seen.iter().all(|(_, hint)| *hint == 0),
            "{version} {ends:?}"
        );
    }
}

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hint"));
    command.args(words).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Returns what a command writes; it has to succeed.
fn said(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Two calls in three are twelve octets shorter than in the version itself, whose header of a call has
/// empty lists of chunks. Nothing else differs.
#[test]
fn compare_shows_what_a_hint_costs() {
    let words = "compare --device sim --ops queue --via wg,wg+hint --in-flight 6 --json -";
    let rows = said(&words.split(' ').collect::<Vec<_>>());
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    let of = |row: usize, key: &str| rows[row][key].as_f64().unwrap();
    assert_eq!(rows[1]["transfer_mode"], "wg+hint");
    assert_eq!(of(0, "sends"), of(1, "sends"));
    let more = of(1, "wire_bytes") - of(0, "wire_bytes");
    let octets = -12.0 * 2.0 / 3.0;
    assert!((more - octets).abs() < 0.1, "{more}");
}

#[test]
fn the_figure_of_the_readme_is_what_the_program_prints() {
    let words = "compare --device sim --ops queue --via wg,wg+hint --in-flight 16";
    let readme = include_str!("../README.md");
    assert!(readme.contains(words));
    let printed = said(&words.split(' ').collect::<Vec<_>>());
    let mut parts = printed.split("\n\n");
    let times = parts.find(|part| part.starts_with("op ")).unwrap();
    assert!(readme.contains(times), "{printed}");
}

/// By the clock, calls that are urgent do not wait for those that are not.
#[test]
fn compare_has_rows_by_the_clock() {
    let words = "compare --ops queue --via v1,wg,wg+hint --in-flight 64 --time 50ms --json -";
    let rows = said(&words.split(' ').collect::<Vec<_>>());
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let p50: Vec<f64> = rows
        .iter()
        .map(|row| row["p50_us"].as_f64().unwrap())
        .collect();
    // The median is that of an urgent call. Without hints it waits for a worker behind calls of 100 us.
    let [_, plain, hinted] = p50[..] else {
        panic!("{rows:#?}");
    };
    assert!(hinted < plain, "{hinted} {plain}");
}

#[test]
fn seeds_run_with_hints() {
    for hints in [&[][..], &["--set", "hint=7"]] {
        let words = [
            "sim",
            "--seeds",
            "0..16",
            "--rpcrdma",
            "2wg",
            "--with",
            "hint",
        ];
        let found = said(&[&words[..], hints].concat());
        assert!(found.contains("no violation"), "{found}");
    }
}

/// A server, which ends with the test.
struct Served {
    process: Child,
    /// Host and port.
    place: String,
}

impl Served {
    fn start(words: &[&str]) -> Self {
        let place = ["serve", "--memory", "--port", "0", "--tcp-port", "0"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_hint"));
        command.args(place).args(words).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let place = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(place) = line.strip_prefix("listening rdma ") {
                break place.split(' ').next().unwrap().to_owned();
            }
        };
        Self { process, place }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// The case that docs/conform-cases.md shows for this header type: a server without it fails, one with it passes.
#[test]
fn the_case_of_the_page_tells_a_server_with_hints_from_one_without() {
    let page = include_str!("../../../docs/conform-cases.md");
    let block = |begins: &str| {
        let mut blocks = page.split("```text\n").skip(1);
        let block = blocks.find(|block| block.starts_with(begins)).unwrap();
        block.split("```").next().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let xdr = write("hint.x", block("const RDMA2_CALL_HINT"));
    let case = write("hint.case", block("case hint-00/3.1/1 MUST"));
    for (features, status, line) in [
        (&[][..], 1, "FAILED  hint-00/3.1/1 MUST"),
        (&["--features", "hint"], 0, "ok      hint-00/3.1/1 MUST"),
    ] {
        let server = Served::start(features);
        let url = format!("nfs://{}/memory", server.place);
        let done = run(&["conform", "--xdr", &xdr, "--cases", &case, &url]);
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.status.code(), Some(status), "{done:?}");
        assert!(said.contains(line), "{done:?}");
    }
}
