//! Tests that `compare` measures what the protocol requires, and prints what it measured.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Finished, Running, compare_costs, compare_device, compare_place, copy_program, is_iwarp,
    patience, rpcrdma,
};
use rustix::io::Errno;
use rustix::net::sockopt::tcp_congestion;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::Value;

/// A local user that is not in /etc/passwd.
const ANN: u32 = 12346;

/// Runs `compare`.
#[track_caller]
fn compare(args: &[&str]) -> Finished {
    let mut command = rpcrdma();
    command.arg("compare").args(compare_place()).args(args);
    // By default, only some of the variants.
    if !args.contains(&"--via") {
        command.args(["--via", "tcp,v1,v2"]);
    }
    command.args(compare_costs());
    Running::start(&mut command).finish()
}

/// Runs `compare` with `args` and returns its rows.
#[track_caller]
fn rows(args: &[&str]) -> Vec<Value> {
    let finished = compare(&[&["--json", "-"], args].concat()).ok();
    serde_json::from_str(&finished.stdout).expect("rows as JSON")
}

#[track_caller]
fn row<'a>(rows: &'a [Value], op: &str, size: Option<u64>, mode: &str) -> &'a Value {
    rows.iter()
        .find(|row| {
            row["op"] == op
                && row["size"].as_u64() == size
                && row["transfer_mode"] == mode
                && row["mode"] == "blocking"
        })
        .unwrap_or_else(|| panic!("no row for {op} {size:?} over {mode}"))
}

#[track_caller]
fn near(row: &Value, key: &str, wanted: f64, tolerance: f64) {
    let got = row[key].as_f64().unwrap_or(f64::NAN);
    assert!(
        (got - wanted).abs() <= tolerance,
        "{key} is {got}, not {wanted}: {row:#}"
    );
}

/// A size in bytes that exceeds all inline thresholds here, so that a chunk is needed, but is not
/// much longer, because emulation is slow.
const LONG: u64 = 16 << 10;
/// The size of long messages of other operations, in bytes.
const LONG_MESSAGE: u64 = 64 << 10;

#[test]
fn device_work_is_what_rfc_8166_prescribes() {
    // On other devices, other tests cover trees.
    let trees: &[_] = match is_iwarp() {
        true => &["put-tree", "get-tree"],
        false => &[],
    };
    let ops = "null,getattr,read,write,readdirplus,long-call,long-both";
    let ops = match trees.is_empty() {
        true => ops.to_owned(),
        false => format!("{ops},tree"),
    };
    let rows = rows(&[
        "--ops",
        &ops,
        "--count",
        "30",
        "--time",
        "10ms",
        "--no-trips",
        "--sizes",
        "1k,16k",
        "--via",
        "tcp,v1,v1-inv,v2",
    ]);
    // Call and reply are inline: one Send in each direction and nothing else.
    for (op, size) in [
        ("null", None),
        ("getattr", None),
        ("read", Some(1024)),
        ("write", Some(1024)),
    ] {
        let row = row(&rows, op, size, "v1");
        near(row, "sends", 2.0, 0.1);
        for key in [
            "rdma_reads",
            "rdma_writes",
            "registrations",
            "invalidations",
        ] {
            near(row, key, 0.0, 0.05);
        }
    }
    // A long READ: the responder writes to memory that was registered for that call.
    let read = row(&rows, "read", Some(LONG), "v1");
    near(read, "sends", 2.0, 0.1);
    near(read, "rdma_writes", 1.0, 0.1);
    near(read, "rdma_reads", 0.0, 0.05);
    // A long WRITE: the responder reads from it.
    let write = row(&rows, "write", Some(LONG), "v1");
    near(write, "rdma_reads", 1.0, 0.1);
    near(write, "rdma_writes", 0.0, 0.05);
    // The number of invalidations does not depend on which side invalidates.
    let inv = |op| row(&rows, op, Some(LONG), "v1-inv");
    // Long calls and replies: a Position Zero Read chunk, and a Reply chunk.
    let call = row(&rows, "long-call", Some(LONG_MESSAGE), "v1");
    near(call, "rdma_reads", 1.0, 0.1);
    near(call, "rdma_writes", 0.0, 0.05);
    let reply = row(&rows, "readdirplus", Some(LONG_MESSAGE), "v1");
    near(reply, "rdma_reads", 0.0, 0.05);
    near(reply, "rdma_writes", 1.0, 0.1);
    let both = row(&rows, "long-both", Some(LONG_MESSAGE), "v1");
    near(both, "registrations", 2.0, 0.1);
    for row in [read, write, inv("read"), inv("write"), call, reply] {
        near(row, "registrations", 1.0, 0.1);
        near(row, "invalidations", 1.0, 0.1);
        match compare_device().starts_with("verbs") {
            true => assert!(row["wire_bytes"].is_null(), "{row:#}"),
            false => assert!(row["wire_bytes"].as_f64() > row["size"].as_f64(), "{row:#}"),
        }
        assert_eq!(row["device"], compare_device());
    }
    for row in &rows {
        assert_eq!(
            row["sends"].is_null(),
            row["transfer_mode"] == "tcp",
            "{row:#}"
        );
        assert!(row["p50_us"].as_f64().unwrap() <= row["p99_us"].as_f64().unwrap());
        assert!(row["cpu_us"].as_f64().unwrap() > 0.0, "{row:#}");
        assert!(row["round_trips"].is_null());
    }
    for op in trees {
        for conveyance in ["tcp", "v1", "v2"] {
            let tree = rows
                .iter()
                .find(|row| row["op"] == *op && row["transfer_mode"] == conveyance);
            assert!(tree.unwrap()["mib_per_s"].as_f64().unwrap() > 0.0);
        }
    }
}

/// Measures operations over a link on which each message takes 10 ms until the times tell the wanted round trips:
/// operation, size, transfer mode, and trips. `ops` is the options for the operations. Returns the rows.
///
/// A round trip of 20 ms exceeds the disturbances of a busy machine, which once made one of 10 ms 5.7 ms longer. Beside
/// several builds all calls of a row have taken twice as long: then it is measured again.
#[track_caller]
fn rows_with_trips(ops: &[&str], wanted: &[(&str, Option<u64>, &str, f64)]) -> Vec<Value> {
    let short = ["--count", "7", "--time", "10ms", "--delay", "10ms"];
    let measured = || rows(&[ops, &short].concat());
    let mut wrong = Vec::new();
    let is_right = |rows: &Vec<Value>| {
        let before = wrong.len();
        for &(op, size, conveyance, trips) in wanted {
            let got = row(rows, op, size, conveyance)["round_trips"].as_f64();
            if got.is_none_or(|got| (got - trips).abs() > 0.3) {
                wrong.push(format!("{op} by {conveyance}: {got:?}, not {trips}"));
            }
        }
        wrong.len() == before
    };
    let Some(rows) = (0..3).map(|_| measured()).find(is_right) else {
        panic!("no measurement of three shows the round trips: {wrong:#?}");
    };
    // Values measured in blocking mode do not appear in busy rows.
    for row in &rows {
        let is_busy = row["mode"] == "busy";
        assert_eq!(row["round_trips_error"].is_null(), is_busy, "{row:#}");
        assert!(!is_busy || row["round_trips"].is_null(), "{row:#}");
        if let Some(error) = row["round_trips_error"].as_f64() {
            assert_eq!(row["round_trips"].is_null(), error > 0.25, "{row:#}");
        }
    }
    rows
}

// These two wait most of the time, and longer than other tests: they run at the same time.

#[test]
fn a_call_without_data_takes_the_time_of_one_round_trip() {
    let wanted = ["tcp", "v1", "v2"].map(|conveyance| ("null", None, conveyance, 1.0));
    let rows = rows_with_trips(&["--ops", "null"], &wanted);
    assert!(rows.iter().any(|row| row["mode"] == "busy"), "{rows:#?}");
}

#[test]
fn a_call_with_data_takes_the_time_of_its_round_trips() {
    let size = Some(64 << 10);
    let mut wanted = vec![("write", size, "tcp", 1.0)];
    // The responder has to read the data that it writes.
    wanted.push(("write", size, "v1", 2.0));
    wanted.extend(["tcp", "v1", "v2"].map(|conveyance| ("read", size, conveyance, 1.0)));
    rows_with_trips(&["--ops", "read,write", "--sizes", "64k"], &wanted);
}

#[test]
fn tables_fit_the_terminal_and_plans_are_explained() {
    let finished = compare(&[
        "--ops",
        "null,write",
        "--sizes",
        "64k",
        "--count",
        "10",
        "--time",
        "10ms",
        "--no-trips",
        "--explain",
    ])
    .ok();
    let tables = finished
        .stdout
        .lines()
        .take_while(|line| !line.contains(": call"));
    // The source of a costs file is printed once, in full.
    let (file, tables): (Vec<_>, Vec<_>) = tables.partition(|line| line.starts_with("file: "));
    assert!(file.len() <= 1, "{file:?}");
    for line in tables {
        assert!(line.chars().count() <= 120, "{line}");
    }
    let plan = finished
        .stdout
        .lines()
        .find(|line| line.starts_with("write 64 KiB, v1: "));
    let plan = plan.unwrap_or_else(|| panic!("no plan in {}", finished.stdout));
    assert!(plan.contains("read chunk"), "{plan}");
}

/// Rows contain their conditions: as requested, and as actually used.
#[test]
fn rows_tell_their_conditions() {
    let null = [
        "--ops",
        "null",
        "--count",
        "5",
        "--time",
        "5ms",
        "--no-trips",
    ];
    let iwarp = compare_device() == "iwarp";
    let plain = rows(&null);
    let (tcp, v1) = (
        row(&plain, "null", None, "tcp"),
        row(&plain, "null", None, "v1"),
    );
    assert!(v1["rate_bits_per_s"].is_null());
    assert_eq!(v1["crc"].as_bool(), iwarp.then_some(false));
    assert!(v1["registration"].is_string(), "{v1:#}");
    assert!(
        tcp["crc"].is_null() && tcp["registration"].is_null(),
        "{tcp:#}"
    );
    // The system's own choice is never taken: bbr is the default of some.
    let usual = tcp["congestion_control"].as_str().unwrap();
    assert!(["cubic", "reno"].contains(&usual), "{tcp:#}");
    assert_eq!(v1["congestion_control"].as_str(), iwarp.then_some(usual));
    // Two different processors, or none if there are not two.
    let (client, server) = (&v1["processor_requester"], &v1["processor_responder"]);
    assert_eq!(client.is_null(), server.is_null());
    assert!(client.is_null() || client != server, "{v1:#}");

    let other = [
        "--rate",
        "1g",
        "--no-pin",
        "--inline",
        "16k",
        "--congestion",
        "reno",
    ];
    // Only iWARP frames have a CRC.
    let crc: &[&str] = if iwarp { &["--crc", "on"] } else { &[] };
    let other = rows(&[&null[..], &other, crc].concat());
    let v1 = row(&other, "null", None, "v1");
    assert_eq!(v1["inline_bytes"], 4096);
    assert_eq!(row(&other, "null", None, "v2")["inline_bytes"], 16384);
    assert!(row(&other, "null", None, "tcp")["inline_bytes"].is_null());
    assert_eq!(
        row(&other, "null", None, "tcp")["congestion_control"],
        "reno"
    );
    assert_eq!(v1["rate_bits_per_s"], 1_000_000_000);
    assert_eq!(v1["crc"].as_bool(), iwarp.then_some(true));
    assert!(v1["processor_requester"].is_null() && v1["processor_responder"].is_null());
}

#[test]
fn json_goes_to_a_file_that_is_tried_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.json");
    let args = [
        "--ops",
        "null",
        "--count",
        "5",
        "--time",
        "5ms",
        "--no-trips",
        "--json",
    ];
    let finished = compare(&[&args[..], &[file.to_str().unwrap()]].concat()).ok();
    assert!(finished.stdout.contains("p50"), "{}", finished.stdout);
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(rows.iter().any(|row| row["transfer_mode"] == "v1"));
    compare(&[&args[..], &["/no/such/directory/rows.json"]].concat())
        .fails_with(&["/no/such/directory"]);
    // The existing file is not touched until there is something to write, and is then replaced
    // completely.
    let long = vec![b'x'; 1 << 20];
    fs::write(&file, &long).unwrap();
    let both = [
        file.to_str().unwrap(),
        "--html",
        "/no/such/directory/x.html",
    ];
    compare(&[&args[..], &both[..]].concat()).fails_with(&["/no/such/directory"]);
    assert_eq!(fs::read(&file).unwrap(), long);
    // Nor does a new one appear before.
    let new = dir.path().join("new.json");
    let both = [new.to_str().unwrap(), both[1], both[2]];
    compare(&[&args[..], &both[..]].concat()).fails_with(&["/no/such/directory"]);
    assert!(!new.exists());
    compare(&[&args[..], &[file.to_str().unwrap()]].concat()).ok();
    let again: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(again.len(), rows.len());
}

/// The command gets each delay. Because it delays nothing, which every operation shows, that is an
/// error.
#[test]
fn the_network_is_told_what_to_delay() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let command = format!("echo $1 >> {}", told.display());
    let args = ["--ops", "null", "--count", "9", "--time", "5ms"];
    // With a delay, latencies show it, and without one, the round trips over its links do.
    for (delay, first) in [("50ms", &["50ms"][..]), ("0", &["0ms", "1ms"])] {
        let more = ["--delay", delay, "--set-delay", &command];
        let said = ["--set-delay", "null took", "does not delay this traffic"];
        compare(&[&args[..], &more].concat()).fails_with(&said);
        let text = fs::read_to_string(&told).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.starts_with(first) && lines.ends_with(&["0ms"]),
            "{text}"
        );
        fs::remove_file(&told).unwrap();
    }
    compare(&[&args[..], &["--set-delay", "exit 3"]].concat()).fails_with(&["--set-delay", "3"]);
}

/// Remote invalidation saves the client an interrupt and the wait for it. In a simulation the
/// saving is exact.
#[test]
fn remote_invalidation_saves_an_interrupt() {
    let mut command = rpcrdma();
    let args = ["compare", "--device", "sim", "--json", "-"];
    let args = [&args[..], &["--ops", "read,readdirplus,long-both"]].concat();
    command
        .args(args)
        .args(["--sizes", "64k", "--via", "v1,v1-inv"]);
    let finished = Running::start(&mut command).finish().ok();
    let rows: Vec<Value> = serde_json::from_str(&finished.stdout).expect("rows as JSON");
    assert_eq!(rows.len(), 6, "{rows:#?}");
    for op in ["read", "readdirplus"] {
        let (plain, remote) = (
            row(&rows, op, Some(65536), "v1"),
            row(&rows, op, Some(65536), "v1-inv"),
        );
        assert_eq!(plain["interrupts_requester"], 2.0);
        assert_eq!(remote["interrupts_requester"], 1.0);
        assert!(remote["p50_us"].as_f64() < plain["p50_us"].as_f64());
        assert_eq!(remote["inline_bytes"], 4096);
    }
    // The server invalidates one of two handles, the client invalidates the other.
    let both = row(&rows, "long-both", Some(65536), "v1-inv");
    assert_eq!(
        (&both["registrations"], &both["round_trips"]),
        (&2.0.into(), &2.0.into())
    );
}

/// The default features take what is cheapest on the device: on a software device, a long READ goes
/// through a chunk, as several Sends wake their receiver more than once; a WRITE is placed, which
/// spares a round trip. `--costs` decides otherwise.
#[test]
fn the_costs_of_the_class_of_the_device_decide() {
    if !is_iwarp() {
        return;
    }
    const LONG: u64 = 256 << 10;
    let registrations = |costs: &[&str]| {
        let args = [
            "--ops",
            "read,write",
            "--sizes",
            "256k",
            "--via",
            "v2-ddp-cont",
        ];
        let fast = ["--count", "9", "--no-trips", "--no-pin"];
        let rows = rows(&[&args[..], &fast, costs].concat());
        ["read", "write"]
            .map(|op| row(&rows, op, Some(LONG), "v2-ddp-cont")["registrations"].clone())
    };
    assert_eq!(registrations(&[]), [1.0, 0.0]);
    assert_eq!(registrations(&["--costs", "registration=1ms"]), [0.0, 0.0]);
    assert_eq!(
        registrations(&["--costs", "read-turnaround=0,interrupt=0,group=1ms"]),
        [1.0, 1.0]
    );
}

/// The predictions of `explain` are right for nine operations of ten.
#[test]
fn predictions_come_true_in_the_simulation() {
    let mut command = rpcrdma();
    command.args([
        "compare",
        "--device",
        "sim",
        "--check-explain",
        "--sizes",
        "1k,8k,1M",
    ]);
    let finished = Running::start(&mut command).finish().ok();
    assert!(
        finished.stdout.contains("explain predicts"),
        "{}",
        finished.stdout
    );
}

/// The figures in README.md are those of the command that it names.
#[test]
fn the_readme_says_what_is_counted_in_the_simulation() {
    let mut command = rpcrdma();
    command.args(["compare", "--device", "sim", "--json", "-"]);
    command.args(["--ops", "write", "--sizes", "8k"]);
    let finished = Running::start(&mut command).finish().ok();
    let rows: Vec<Value> = serde_json::from_str(&finished.stdout).expect("rows as JSON");
    let mut seen = 0;
    let readme = include_str!("../../README.md");
    let (table, _) = readme.split_once("<!-- end of figures -->").unwrap();
    for line in table.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", conveyance, figures @ .., ""] = &cells[..] else {
            continue;
        };
        let name = conveyance.split('`').nth(1);
        let Some(row) = rows
            .iter()
            .find(|row| name.is_some_and(|name| row["transfer_mode"] == name))
        else {
            continue;
        };
        let counted = [
            "round_trips",
            "interrupts_requester",
            "interrupts_responder",
            "registrations",
            "rdma_reads",
        ];
        let counted = counted.map(|key| row[key].as_f64().unwrap().to_string());
        let time = format!("{:.0}", row["p50_us"].as_f64().unwrap());
        assert_eq!(figures, [&counted[..], &[time]].concat(), "{line}");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Returns the processes whose parent is `parent`.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("a list of processes");
    let numbers = processes.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    });
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line == format!("PPid:\t{parent}"))
    };
    numbers.filter(is_child).collect()
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("a process that can be killed");
        self.0.wait().expect("a child process");
    }
}

#[test]
fn the_servers_of_a_comparison_that_is_killed_end() {
    let mut command = rpcrdma();
    command.args([
        "compare",
        "--busy-poll",
        "--via",
        "tcp,v1,v2",
        "--ops",
        "null",
        "--time",
        "1s",
    ]);
    command.args(compare_place()).args(compare_costs());
    let comparison = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let deadline = Instant::now() + patience();
    // All but the one that is measured are stopped.
    let stopped = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ")
    };
    let servers = loop {
        let servers = children(comparison.0.id());
        if servers.len() >= 3 && servers.iter().any(stopped) {
            break servers;
        }
        assert!(Instant::now() < deadline, "{servers:?}");
        thread::sleep(Duration::from_millis(10));
    };
    drop(comparison);
    // A process that has ended may wait for its new parent.
    let runs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while servers.iter().any(runs) {
        assert!(Instant::now() < deadline, "{servers:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Without options, TCP and version 1 as Linux uses it are measured; the latter is the baseline. Each
/// ratio has an interval, and each row the distribution of its latencies.
#[test]
fn by_default_linux_own_way_is_the_baseline_and_ratios_have_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.json");
    let mut command = rpcrdma();
    command
        .args(["compare", "--time", "30ms", "--json"])
        .arg(&file);
    command.args(compare_place()).args(compare_costs());
    let finished = Running::start(&mut command).finish().ok();
    assert!(finished.stdout.contains("x v1-inv"), "{finished:#?}");
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    // Version 1 has receives as long as version 2, too: otherwise these could be all that version 2 gains.
    let said = finished.stdout.replace('\n', " ");
    let beside = "Compared with v1-long, ";
    let memory = "9 KiB by v1-inv (1.2 MiB + 630 KiB; a call takes 1 receive, so 64 calls fit at a time), 4 KiB \
                  by v2-cont (536 KiB + 280 KiB; a call takes 3 receives, so 21 calls fit at a time). Receives of 65K take 8.5 MiB + 4.4 MiB.";
    for part in [
        beside,
        memory,
        "one call at a time, WRITEs unstable",
        " x 2 ms slept",
    ] {
        assert!(said.contains(part), "no {part:?}: {finished:#?}");
    }
    // A READ is beside version 1 with long receives as well, not only the WRITE, which looks better.
    let (_, said_beside) = said.split_once(beside).unwrap();
    let (said_beside, _) = said_beside.split_once("shows placement alone").unwrap();
    for op in ["READ", "WRITE"] {
        assert!(
            said_beside.contains(&format!("8 KiB {op} takes ")),
            "{said_beside}"
        );
    }
    // All of it is seen at once. What other work disturbed, and what is slower, takes more words.
    let longer = ["DISTURBED", "takes longer for", "wakes both ends"];
    let most = 45 + 2 * longer.iter().filter(|part| said.contains(**part)).count();
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert!(lines.len() <= most, "{} lines: {finished:#?}", lines.len());
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{finished:#?}");
    for mode in ["tcp", "v1-inv", "v1-long", "v2-cont", "v2-ddp-cont"] {
        for (op, size) in [
            ("null", None),
            ("read", Some(8192)),
            ("write", Some(1 << 20)),
        ] {
            let row = row(&rows, op, size, mode);
            assert_eq!(row["baseline"], "v1-inv");
            for ratio in ["baseline_ratio", "tcp_baseline_ratio"] {
                let ends = &row[format!("{ratio}_interval")];
                let [low, ratio, high] =
                    [&ends[0], &row[ratio], &ends[1]].map(|value| value.as_f64().unwrap());
                assert!(low <= ratio && ratio <= high, "{row:#}");
            }
            for point in row["latency_over_delay"].as_array().unwrap() {
                let ends = &point["baseline_ratio_interval"];
                assert!(
                    ends[0].as_f64() <= point["baseline_ratio"].as_f64(),
                    "{row:#}"
                );
                assert!(
                    ends[1].as_f64() >= point["baseline_ratio"].as_f64(),
                    "{row:#}"
                );
            }
            let [p50, p99, p999] = ["p50_us", "p99_us", "p999_us"].map(|key| row[key].as_f64());
            assert!(p50.is_some() && p50 <= p99 && p99 <= p999, "{row:#}");
            // How every histogram in this encoding begins.
            let histogram = row["histogram"].as_str().unwrap();
            assert!(histogram.starts_with("HISTFAAA"), "{histogram}");
            // For one release, with the names that the keys had before.
            assert_eq!(row["conveyance"], row["transfer_mode"]);
            assert_eq!(row["floor_ratio"], row["tcp_baseline_ratio"]);
        }
    }
}

/// Each figure is a file with the conditions of the measurement, beside its data.
#[test]
fn figures_are_files_with_their_conditions_and_data() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("new").join("figures");
    let mut command = rpcrdma();
    command.args(["compare", "--device", "sim", "--full", "--figures"]);
    let finished = Running::start(command.arg(&folder)).finish().ok();
    let conditions = finished.stdout.lines().next().unwrap();
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let svg: Vec<&String> = names.iter().filter(|name| name.ends_with(".svg")).collect();
    assert_eq!(names.len(), 2 * svg.len(), "{names:?}");
    let over_delay: Vec<&&String> = svg.iter().filter(|name| name.contains("delay")).collect();
    // The short and the long READ and WRITE, and nothing else.
    assert_eq!(over_delay.len(), 4, "{names:?}");
    assert!(
        over_delay
            .iter()
            .all(|name| name.starts_with("read") || name.starts_with("write"))
    );
    // Ladders have other data (tests/ladder.rs).
    for name in svg.into_iter().filter(|name| !name.contains("ladder")) {
        let figure = fs::read_to_string(folder.join(name)).unwrap();
        let data = fs::read_to_string(folder.join(name).with_extension("tsv")).unwrap();
        assert!(figure.ends_with("</svg>\n") && figure.contains("command: rpcrdma compare"));
        assert!(data.contains(&format!("# {conditions}")), "{data}");
        let lines: Vec<&str> = data.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines[0].starts_with("transfer_mode\t"), "{data}");
        assert!(lines.len() > 4, "{data}");
        assert!(
            lines.iter().all(|line| line.split('\t').count() == 3),
            "{data}"
        );
    }
    // A folder that cannot be is told of before anything is measured.
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let mut command = rpcrdma();
    command
        .args(["compare", "--figures"])
        .arg(file.join("figures"));
    Running::start(&mut command)
        .finish()
        .fails_with(&["cannot create"]);
}

/// A run is tested against a saved one, in words and by its exit status.
#[test]
fn a_run_is_tested_against_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("then.json");
    let against = |args: &[&str]| {
        let mut command = rpcrdma();
        command
            .arg("compare")
            .args(args)
            .arg("--against")
            .arg(&file);
        Running::start(&mut command).finish()
    };
    let save = |args: &[&str]| {
        let mut command = rpcrdma();
        command.arg("compare").args(args).arg("--json").arg(&file);
        Running::start(&mut command).finish().ok();
    };
    let change = |key: &str, factor: f64| {
        let mut rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        rows[0][key] = (rows[0][key].as_f64().unwrap() * factor).into();
        fs::write(&file, serde_json::to_vec(&rows).unwrap()).unwrap();
    };
    let simulated = ["--device", "sim", "--ops", "write", "--sizes", "8k"];
    let simulated = [&simulated[..], &["--via", "v1-inv,v2-ddp"]].concat();
    save(&simulated);
    let same = against(&simulated).ok();
    let said = "Of 2 rows: none slower; none faster; none not tested; none costing more.";
    assert!(same.stdout.contains(said), "{same:#?}");
    change("p50_us", 0.9);
    against(&simulated).fails_with(&["--against", "1 slower (write 8 KiB v1-inv)"]);
    save(&simulated);
    change("rdma_reads", 0.0);
    against(&simulated).fails_with(&["none slower", "1 costing more (write 8 KiB v1-inv)"]);
    save(&["--device", "sim", "--ops", "read", "--via", "v1-inv"]);
    against(&simulated).fails_with(&["no row could be tested"]);

    // What was measured is tested by intervals. However wide a load makes them, a billion times is
    // more than chance.
    let place = compare_place();
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let measured = [
        "--ops",
        "null",
        "--via",
        "v1-inv",
        "--time",
        "50ms",
        "--no-trips",
    ];
    let measured = [&measured[..], &place].concat();
    save(&measured);
    for key in ["tcp_baseline_ratio", "p50_us"] {
        change(key, 1e-9);
    }
    let mut rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (key, ends) in [
        ("tcp_baseline_ratio", "tcp_baseline_ratio_interval"),
        ("p50_us", "p50_interval_us"),
    ] {
        let value = rows[0][key].clone();
        rows[0][ends] = Value::Array(vec![value.clone(), value]);
    }
    fs::write(&file, serde_json::to_vec(&rows).unwrap()).unwrap();
    against(&measured).fails_with(&["1 slower (null v1-inv)"]);
}

/// Returns the list of processors that a process may use, as the system says it.
fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap_or_default().trim().to_owned()
}

/// Returns the congestion control of each TCP connection of a process; `None` if the system does not
/// let this process look.
fn congestion_of_connections(pid: u32) -> Option<Vec<String>> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let number = entry.ok()?.file_name();
        let number = number.to_str()?.parse().ok()?;
        let copy = match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
            Ok(copy) => copy,
            Err(Errno::BADF) => continue,
            Err(_) => return None,
        };
        let is_connected = rustix::net::getpeername(&copy).is_ok();
        found.extend(tcp_congestion(&copy).ok().filter(|_| is_connected));
    }
    Some(found)
}

/// The conditions that are printed and written are held against what the system says of the processes
/// and their sockets while they run.
#[test]
fn conditions_are_those_that_the_system_reports() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rows.json");
    let mut command = rpcrdma();
    command.args([
        "compare", "--via", "tcp,v1", "--ops", "null", "--time", "200ms",
    ]);
    command.args(["--no-trips", "--congestion", "reno", "--json"]);
    command
        .arg(&file)
        .args(compare_place())
        .args(compare_costs());
    let comparison = Running::start(&mut command);
    let deadline = Instant::now() + patience();
    // The echo process of the TCP baseline, and one for each transport, which are all connected.
    let connections = if is_iwarp() { 3 } else { 2 };
    let (servers, sockets) = loop {
        let servers = children(comparison.pid());
        let sockets = congestion_of_connections(comparison.pid());
        let enough = sockets.as_ref().is_none_or(|all| all.len() >= connections);
        if servers.len() == 3 && enough {
            break (servers, sockets);
        }
        assert!(Instant::now() < deadline, "{servers:?} {sockets:?}");
        thread::sleep(Duration::from_millis(10));
    };
    match sockets {
        Some(sockets) => {
            let of_servers = servers
                .iter()
                .filter_map(|&pid| congestion_of_connections(pid));
            let mut all = of_servers.flatten().chain(sockets);
            assert!(all.all(|name| name == "reno"));
        }
        None => eprintln!("left out: this process may not look at sockets of another"),
    }
    let client = allowed(comparison.pid());
    let server = allowed(servers[0]);
    assert!(servers.iter().all(|&pid| allowed(pid) == server));
    let finished = comparison.finish().ok();

    let system = |path: &str| fs::read_to_string(path).unwrap();
    let kernel = format!("Linux {}", system("/proc/sys/kernel/osrelease").trim());
    let processors = system("/proc/cpuinfo");
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map(|(_, model)| model);
    let usable = rustix::thread::sched_getaffinity(None).unwrap().count();
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let v1 = row(&rows, "null", None, "v1");
    assert_eq!(v1["kernel"], kernel);
    assert_eq!(v1["processors"], usable);
    if model.is_some() {
        assert_eq!(v1["processor"].as_str(), model);
    }
    let said = finished.stdout.replace('\n', " ");
    let mut parts = vec![
        kernel,
        "TCP congestion control reno; no delay added.".to_owned(),
    ];
    parts.extend(model.map(str::to_owned));
    match usable {
        1 => parts.extend(["1 processor", "; nothing pinned to a processor"].map(str::to_owned)),
        count => parts.extend([
            format!("{count} processors"),
            format!("; client pinned to processor {client}, servers to {server}"),
        ]),
    }
    // A flag that every hypervisor for x86 sets.
    let is_virtual = processors
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if is_virtual {
        parts.push(", virtual machine (".to_owned());
        assert_eq!(v1["virtual_machine"], true);
    }
    parts.push(format!(
        "{}, {}",
        v1["date"].as_str().unwrap(),
        v1["kernel"].as_str().unwrap()
    ));
    if is_iwarp() {
        let device = "device iwarp (software iWARP in user space over kernel TCP, CRC off)";
        parts.push(device.to_owned());
        assert_eq!(v1["loopback"], true);
        assert!(v1["delayed_by"].is_null(), "{v1:#}");
        parts.push("over the loopback interface".to_owned());
    }
    if usable > 1 {
        assert_eq!(v1["processor_requester"].to_string(), client);
        assert_eq!(v1["processor_responder"].to_string(), server);
    }
    for part in parts {
        assert!(said.contains(&part), "no {part:?} in {said}");
    }
}

/// Without an option, a user who may not choose cubic measures with reno, which is what rows and text say
/// and what the sockets have, whatever the system gives to connections by default. What was asked for and
/// is refused is an error.
#[test]
fn an_ordinary_user_is_told_the_congestion_control_that_was_granted() {
    if !rustix::process::geteuid().is_root() || !is_iwarp() {
        eprintln!("left out: it runs as root, over iwarp, and starts the command as another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("rpcrdma");
    copy_program(&program);
    let file = dir.path().join("rows.json");
    fs::write(&file, "").unwrap();
    chown(&file, Some(ANN), Some(ANN)).unwrap();
    let as_ann = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.uid(ANN).gid(ANN).current_dir("/").arg("compare");
        command.args(["--via", "tcp,v1", "--ops", "null", "--no-trips"]);
        command.args(args).args(compare_place());
        Running::start(command.args(compare_costs()))
    };
    let list = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let list = fs::read_to_string(list).unwrap();
    let allows = |name: &str| list.split_whitespace().any(|allowed| allowed == name);
    let granted = if allows("cubic") { "cubic" } else { "reno" };

    let comparison = as_ann(&["--time", "200ms", "--json", file.to_str().unwrap()]);
    let deadline = Instant::now() + patience();
    let sockets = loop {
        // Those of this process and of its servers; all three connections exist before any is measured.
        let all = [&[comparison.pid()][..], &children(comparison.pid())].concat();
        let of_each = all.iter().filter_map(|&pid| congestion_of_connections(pid));
        let sockets: Vec<String> = of_each.flatten().collect();
        if sockets.len() >= 6 {
            break sockets;
        }
        assert!(Instant::now() < deadline, "{sockets:?}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(sockets.iter().all(|name| name == granted), "{sockets:?}");
    let said = comparison.finish().ok().stdout.replace('\n', " ");
    assert!(
        said.contains(&format!("TCP congestion control {granted};")),
        "{said}"
    );
    let rows: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(
        rows.iter().all(|row| row["congestion_control"] == granted),
        "{rows:#?}"
    );

    let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = fs::read_to_string(available).unwrap();
    let Some(refused) = available.split_whitespace().find(|name| !allows(name)) else {
        eprintln!("left out: every user may choose every congestion control here");
        return;
    };
    let finished = as_ann(&["--time", "20ms", "--congestion", refused]).finish();
    finished.fails_with(&[
        refused,
        "only privileged processes",
        "tcp_allowed_congestion_control",
    ]);
}

/// The commit is one of this repository, if the program was built from one.
#[test]
fn the_commit_of_the_build_is_that_of_the_sources() {
    let version = Running::start(rpcrdma().arg("--version"))
        .finish()
        .ok()
        .stdout;
    let (_, commit) = version.split_once("(commit ").expect(&version);
    let commit = commit.trim_end().trim_end_matches(')');
    if commit == "unknown" {
        eprintln!("left out: built without a repository: {version}");
        return;
    }
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(words);
        git.stderr(Stdio::null()).stdout(Stdio::null()).status()
    };
    let object = commit.trim_end_matches("-modified");
    match git(&["rev-parse", "HEAD"]) {
        Ok(status) if status.success() => {
            let found = git(&["cat-file", "-e", &format!("{object}^{{commit}}")]);
            assert!(found.unwrap().success(), "{commit}");
        }
        _ => eprintln!("left out: no git, or no repository that this user may read"),
    }
    let args = ["--device", "sim", "--ops", "null", "--via", "v1"];
    let args = [&["compare"], &args[..]].concat();
    let finished = Running::start(rpcrdma().args(args)).finish().ok();
    let said = format!(", commit {commit}, ");
    assert!(finished.stdout.contains(&said), "{}", finished.stdout);
}

/// Regression test: without a terminal, nothing said for minutes what was being measured.
#[test]
fn each_step_is_a_line_on_standard_error_without_a_terminal() {
    let finished = compare(&["--ops", "null,getattr", "--time", "20ms", "--no-trips"]).ok();
    let steps: Vec<_> = finished.stderr.lines().collect();
    for (step, what) in [(1, "null"), (2, "getattr")] {
        let said = format!("measuring {what} (step {step} of ");
        assert!(
            steps.iter().any(|line| line.starts_with(&said)),
            "{finished:#?}"
        );
    }
}
