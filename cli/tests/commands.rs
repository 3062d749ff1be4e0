//! Tests of the commands' output, and of starting and stopping the server.

mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use common::{
    BOTH, Proto, Running, Server, export, is_iwarp, options, patience, rpcrdma, run, tree,
};

#[test]
fn help_shows_the_usual_examples_and_every_command() {
    let help = run(["--help"]).ok().stdout;
    for word in [
        "compare",
        "serve",
        "put -r",
        "get -r",
        "ping",
        "proto=tcp",
        "--delay 1ms",
    ] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    assert!(!help.contains("child"));
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn serve_says_what_and_where_and_ends_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let by_name = export("pub", dir.path(), "ro");
    let by_path = dir.path().to_str().unwrap();
    let server = Server::start(["--export", &by_name, "--export", by_path, "--memory=16M"]);
    let exports: Vec<&String> = server
        .lines
        .iter()
        .filter(|line| line.starts_with("export "))
        .collect();
    assert_eq!(exports.len(), 3, "{:?}", server.lines);
    assert!(exports[0].starts_with("export /pub ") && exports[0].contains("ro"));
    assert!(exports[1].starts_with(&format!("export {by_path} ")));
    assert!(
        exports[2].starts_with("export /memory ") && exports[2].contains(" in memory, at most ")
    );
    for proto in BOTH {
        let url = server.url(proto, "");
        let server = url.trim_start_matches("nfs://");
        let args = [
            &["exports".to_owned(), server.to_owned()][..],
            &options(proto, ""),
        ]
        .concat();
        let listed = run(args).ok().stdout;
        for path in ["/pub", by_path, "/memory"] {
            assert!(
                listed.lines().any(|line| line.starts_with(path)),
                "{path}: {listed}"
            );
        }
    }
    assert!(server.terminate().success());
}

#[test]
fn several_threads_serve_one_export_over_both_transports() {
    let dir = tempfile::tempdir().unwrap();
    let shared = export("data", dir.path(), "no_root_squash");
    let server = Server::start(["--export", &shared, "--memory=64M", "--threads", "3"]);
    let listening = server
        .lines
        .iter()
        .filter(|line| line.starts_with("listening "));
    assert_eq!(listening.count(), 2, "{:?}", server.lines);
    let text = "some text, ".repeat(100_000);
    fs::write(dir.path().join("original"), &text).unwrap();
    for (proto, export) in [
        (BOTH[0], "data"),
        (BOTH[1], "data"),
        (BOTH[0], "memory"),
        (BOTH[1], "memory"),
    ] {
        let with = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            run([&args[..], &options(proto, "nconnect=4")].concat())
                .ok()
                .stdout
        };
        let from = dir.path().join("original");
        let copy = dir.path().join(format!("{export}-{}", proto.name()));
        let url = server.url(proto, &format!("/{export}/there"));
        with(&["put", from.to_str().unwrap(), &url]);
        with(&["get", &url, copy.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(copy).unwrap(), text);
        with(&["rm", &url]);
    }
    assert!(server.terminate().success());
}

/// Regression test: NULL over TCP was not logged, and lines lacked the peer or the XID, or showed values as
/// Rust's `Debug` does.
#[test]
fn a_server_logs_every_call_with_its_peer_and_xid() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut command = rpcrdma();
    command
        .env_remove("RUST_LOG")
        .stderr(fs::File::create(&log).unwrap());
    let server = Server::start_command(command, 0, 0, ["--memory", "-vv"]);
    for proto in BOTH {
        let address = match proto {
            Proto::Rdma => server.rdma.to_string(),
            Proto::Tcp => server.tcp.to_string(),
        };
        let mut ping = rpcrdma();
        ping.args(["ping", "-c", "1", &address])
            .args(options(proto, ""));
        Running::start(&mut ping).finish().ok();
        let ls = ["ls", &server.url(proto, "/memory")].map(str::to_owned);
        let mut list = rpcrdma();
        list.args(ls).args(options(proto, ""));
        Running::start(&mut list).finish().ok();
    }
    assert!(server.terminate().success());
    let said = fs::read_to_string(&log).unwrap();
    let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    // Two calls of each ping: one is for warming up.
    assert_eq!(count("procedure=NULL"), 4, "{said}");
    assert_eq!(count("procedure=MNT"), 2, "{said}");
    assert!(count("DEBUG reply ") > 2, "{said}");
    for line in said.lines() {
        let of_call = line.contains(" done ") || line.contains(" reply ");
        let complete = line.contains(" peer=") && line.contains(" xid=");
        assert!(complete || !of_call, "{line}");
        assert!(!line.contains("Some(") && !line.contains(" {"), "{line}");
    }
}

#[test]
fn every_processor_has_a_thread_unless_an_option_wants_one() {
    // No host has this address, so the server ends after it has said how many threads it makes.
    let said = |args: &[&str]| {
        let serve = ["-v", "serve", "--memory", "--listen", "192.0.2.1"];
        let more = ["--memory-limit", "4g", "--device", "iwarp"];
        let failed = run([&serve[..], &more, args].concat());
        assert_eq!(failed.status.code(), Some(1), "{failed:#?}");
        failed.stderr
    };
    // 4,096 descriptors, Linux's hard limit, are enough for 64 threads.
    let processors = thread::available_parallelism().unwrap().get().min(64);
    let expected = format!("serve connections threads={processors}");
    assert!(said(&[]).contains(&expected), "{}", said(&[]));
    assert!(said(&["--threads", "3"]).contains("threads=3"));
    let one = said(&["--rate", "1g"]);
    assert!(one.contains("one thread serves all connections") && one.contains("--rate"));
}

#[test]
fn threads_that_cannot_be_are_refused() {
    for (args, word) in [
        (&["--threads", "2", "--rate", "1g"][..], "--rate"),
        (&["--threads", "0"], "auto"),
    ] {
        let failed = run([&["serve", "--memory"][..], args].concat());
        assert_eq!(failed.status.code(), Some(2), "{failed:#?}");
        assert!(failed.stderr.contains(word), "{failed:#?}");
    }
}

#[test]
fn files_are_listed_shown_made_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b"), "hello").unwrap();
    std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        let with = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            run([&args[..], &options(proto, "")].concat()).ok().stdout
        };
        let url = |path: &str| server.url(proto, path);
        assert_eq!(with(&["ls", &url("/data")]), "a\nb\n");
        let long = with(&["ls", "-l", &url("/data")]);
        let lines: Vec<&str> = long.lines().collect();
        assert!(
            lines[0].starts_with('l') && lines[0].ends_with("a -> b"),
            "{long}"
        );
        assert!(
            lines[1].starts_with("-rw") && lines[1].contains(" 5 "),
            "{long}"
        );
        assert!(lines.iter().all(|line| line.contains(" UTC ")), "{long}");
        let stat = with(&["stat", &url("/data/b")]);
        let times = stat.lines().filter(|line| line.ends_with(" UTC")).count();
        assert_eq!(times, 3, "{stat}");
        assert!(
            stat.contains("regular file") && stat.contains("size: 5"),
            "{stat}"
        );
        assert_eq!(with(&["cat", &url("/data/a")]), "hello");
        with(&["mkdir", "-p", &url("/data/x/y/z")]);
        with(&["mkdir", "-p", &url("/data/x/y")]);
        assert!(dir.path().join("x/y/z").is_dir());
        fs::write(dir.path().join("x/y/file"), "x").unwrap();
        with(&["rm", "-r", &url("/data/x")]);
        assert!(!dir.path().join("x").exists());
        with(&["rm", "-f", &url("/data/x")]);
    }
}

#[test]
fn exports_are_asked_for_where_mount_is() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| ["--export".to_owned(), export(name, dir.path(), "")];
    let (nfs, mountd) = (Server::start(of("one")), Server::start(of("two")));
    let list = |options: &str| {
        let server = format!("{}:{}", nfs.rdma.ip(), nfs.rdma.port());
        run(["exports", "-o", options, &server]).ok().stdout
    };
    let place = options(Proto::Rdma, "")[1].clone();
    assert_eq!(list(&place), "/one  everyone\n");
    let (rdma, tcp) = (mountd.rdma.port(), mountd.tcp.port());
    for elsewhere in [
        format!("mountport={rdma}"),
        format!("mountproto=tcp,mountport={tcp}"),
        format!("mounthost={},mountport={rdma}", mountd.rdma.ip()),
    ] {
        let options = format!("{place},{elsewhere}");
        assert_eq!(list(&options), "/two  everyone\n", "{elsewhere}");
    }
}

#[test]
fn cat_writes_a_long_file_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let content = tree::noise((9 << 20) + 77, 5);
    fs::write(dir.path().join("long"), &content).unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        let mut child = rpcrdma()
            .arg("cat")
            .args(options(proto, "rsize=65536"))
            .args([
                server.url(proto, "/data/long"),
                server.url(proto, "/data/empty"),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut got = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(got == content, "{} bytes of {}", got.len(), content.len());
    }
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("long"), tree::noise(4 << 20, 5)).unwrap();
    let server = Server::of(dir.path());
    let mut child = rpcrdma()
        .args([
            "cat",
            &server.url(Proto::Tcp, "/data/long"),
            "-o",
            "proto=tcp",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn serve_takes_a_name_for_its_address_and_a_size_as_a_word() {
    if !is_iwarp() {
        // No verbs device has that address.
        return;
    }
    let server = Server::start(["--listen", "localhost", "--memory", "64m"]);
    assert!(server.rdma.ip().is_loopback());
    let space = server.url(Proto::Tcp, "/memory");
    run(["ls", "-o", "proto=tcp", &space]).ok();
    assert!(server.terminate().success());
}

/// `timeout` signals a process and then its group. Two signals of one kind may become one, so this
/// sends two kinds.
#[test]
fn serve_ends_properly_when_it_is_signalled_twice_at_once() {
    for _ in 0..5 {
        let server = Server::start(["--memory"]);
        let pid = i32::try_from(server.pid()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = server.terminate();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn ping_says_what_it_has_when_it_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    let mut command = rpcrdma();
    command
        .args(["ping", "--op", "write", "-c", "1000000", "-D", "1ms"])
        .args(options(Proto::Rdma, ""));
    let mut ping = Running::start(command.arg(server.url(Proto::Rdma, "/data")));
    let files = || fs::read_dir(dir.path()).unwrap().count();
    let start = Instant::now();
    while files() == 0 {
        assert!(ping.is_running() && start.elapsed() < patience());
        thread::sleep(Duration::from_millis(5));
    }
    // The first hundred calls are for warming up, which takes seconds on an emulated machine.
    thread::sleep(patience() / 30);
    ping.interrupt();
    let finished = ping.finish().ok();
    let mut lines = finished.stdout.lines();
    let counted = lines.find(|line| line.contains(" x write"));
    let counted = counted.unwrap_or_default();
    assert!(
        !counted.is_empty() && !counted.contains("1000000 x"),
        "{finished:#?}"
    );
    assert!(finished.stdout.contains("median"), "{finished:#?}");
    assert_eq!(files(), 0, "the scratch file is gone");
}

/// A process of another host can have the same number, and a user a file of any name.
#[test]
fn ping_writes_to_no_file_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    // `exec` keeps the number of the process.
    let script = r#"echo precious > "$0/.rpcrdma-ping-$$"; exec "$@""#;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(dir.path());
    command.arg(rpcrdma().get_program());
    command.args(["ping", "--op", "write", "-c", "1"]);
    command.args(options(Proto::Tcp, ""));
    command.arg(server.url(Proto::Tcp, "/data"));
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{status}");
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(fs::read(files[0].path()).unwrap(), b"precious\n");
}

/// A client's threads have names of their own, by which this test sees them.
#[test]
fn connections_are_driven_by_as_many_threads_as_the_mount_options_say() {
    if !is_iwarp() {
        return;
    }
    let server = Server::start(["--memory"]);
    for proto in BOTH {
        let mut command = rpcrdma();
        command
            .args(["ping", "--op", "getattr", "-c", "1000000"])
            .args(options(proto, "nconnect=3,threads=2"));
        let mut ping = Running::start(command.arg(server.url(proto, "/memory")));
        let named = |pid: u32| {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
            let names = tasks.flatten().flat_map(name);
            names.filter(|name| name.starts_with("rpc-client-")).count()
        };
        let start = Instant::now();
        while named(ping.pid()) < 2 {
            assert!(ping.is_running() && start.elapsed() < patience());
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(50));
        assert_eq!(named(ping.pid()), 2);
        ping.kill();
    }
}

#[test]
fn ping_prints_statistics_and_a_histogram_that_adds_up() {
    let server = Server::start(["--memory=16M"]);
    for proto in BOTH {
        let address = server.url(proto, "");
        let address = address.trim_start_matches("nfs://").to_owned();
        let args = ["ping", "-c", "50", "-H", &address].map(str::to_owned);
        let text = run([&args[..], &options(proto, "")].concat()).ok().stdout;
        for word in ["min", "median", "p99", "max"] {
            assert!(text.contains(word), "{text}");
        }
        let bars = text.lines().filter_map(|line| line.strip_prefix('<'));
        let counts = bars.map(|bar| {
            bar.split_whitespace()
                .nth(2)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        assert_eq!(counts.sum::<u64>(), 50, "{text}");

        let url = server.url(proto, "/memory");
        let call = |more: &[&str]| {
            let args = [&["ping", "-c", "10", &url, "--op"], more].concat();
            let args: Vec<_> = args.into_iter().map(str::to_owned).collect();
            run([&args[..], &options(proto, "")].concat())
        };
        call(&["getattr"]).ok();
        call(&["write"]).ok();
        // A WRITE of no bytes is a call as well, and takes a while.
        let text = call(&["write", "-s", "0"]).ok().stdout;
        assert!(
            text.contains(" of 0 bytes") && !text.contains("min 0.0 "),
            "{text}"
        );
        call(&["write", "-s", "4M"]).fails_with(&["the most that ping moves with one call is"]);
        let ls = ["ls".to_owned(), "-a".to_owned(), url];
        let listed = [&ls[..], &options(proto, "")].concat();
        assert_eq!(run(listed).ok().stdout, "", "the scratch file is gone");
    }
}

#[test]
fn devices_are_listed_with_what_is_missing() {
    let text = run(["devices"]).ok().stdout;
    let own = text.lines().find(|line| line.starts_with("iwarp "));
    assert!(own.is_some_and(|line| line.ends_with("ready")), "{text}");
    let json = run(["devices", "--json"]).ok().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["devices"][0]["device"], "iwarp");
    assert_eq!(json["devices"][0]["usable"], true);
    for problem in json["problems"].as_array().unwrap() {
        let problem = problem.as_str().unwrap();
        assert!(text.contains(problem), "{problem} is not in\n{text}");
    }
    // The list and the attempt to open a verbs device agree.
    let devices = json["devices"].as_array().unwrap();
    let usable = |device: &&Value| device["usable"] == true;
    if devices.iter().filter(usable).count() == 1 {
        assert!(text.contains("No verbs device can be used here"), "{text}");
        let args = [
            "serve",
            "--memory",
            "--device",
            "verbs",
            "--port",
            "0",
            "--tcp-port",
            "0",
        ];
        let refused = run(args).fails_with(&["device verbs"]);
        // There is one piece of advice: the error's own, or a reference to the list.
        let advice = refused.stderr.replace("(os error", "").matches('(').count();
        assert!(advice <= 1, "{}", refused.stderr);
        if let Some(library) = json["libraries"]["problem"].as_str() {
            assert!(library.contains(".so"), "{library}");
            assert!(refused.stderr.contains(library), "{refused:#?}");
        }
    }
}

#[test]
fn devices_that_are_not_there_are_usage_errors() {
    for args in [
        &["serve", "--memory", "--device", "rxe0"][..],
        &["serve", "--memory", "--registration", "windows"],
        &["serve", "--memory", "--registration", "often"],
        &["ls", "-o", "device=sim", "nfs://server/export"],
        &["ping", "-o", "registration=windows", "127.0.0.1"],
        &["compare", "--device", "verbs:"],
    ] {
        let finished = run(args);
        assert_eq!(finished.status.code(), Some(2), "{args:?}: {finished:#?}");
    }
}

#[test]
fn explain_names_all_ways_and_marks_the_one_that_is_taken() {
    let explain = |args: &[&str]| run([&["explain"], args].concat()).ok().stdout;
    let one = explain(&["-o", "rpcrdma=1", "write:8192", "null"]);
    assert!(one.contains("write 8 KiB, version 1"), "{one}");
    assert!(
        one.contains("by read chunk") && one.contains("1 turn-around,"),
        "{one}"
    );
    let taken = |text: &str| text.lines().filter(|line| line.starts_with("->")).count();
    assert_eq!(taken(&one), 2, "{one}");
    // An additional round trip costs the link's delay.
    let far = explain(&["-o", "rpcrdma=1", "--delay", "1ms", "write:8192"]);
    let cost = far.lines().find(|line| line.starts_with("->")).unwrap();
    let cost: f64 = cost.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((4000.0..4100.0).contains(&cost), "{far}");
    // Where the one that is taken is not the cheapest, the reason is said.
    let why = |registration: &str| {
        let costs = format!("interrupt=20us,registration={registration}");
        explain(&["-o", "rpcrdma=2", "--costs", &costs, "read:4k", "null"])
    };
    let (free, dear) = (why("0"), why("9us"));
    let said = |text: &str, fewer: &str| {
        let reason = format!("within 2 % of the cheapest, with fewer {fewer}");
        text.matches(&reason).count()
    };
    let of = |text: &str| (said(text, "registrations"), said(text, "bytes to copy"));
    assert_eq!((of(&free), of(&dear)), ((1, 0), (0, 1)), "{free}{dear}");
    // A delay among the costs is that of the link.
    let noted = |costs: &str| {
        let args = ["explain", "--delay", "1ms", "--costs", costs, "null"];
        run(args).ok().stderr
    };
    let note = noted("link-delay=3us");
    assert!(note.contains("the link-delay of --costs, 3us,"), "{note}");
    assert_eq!(noted("call=3us"), "");
    // Assumptions about the peer are shown only where they matter.
    assert!(!one.contains("features"), "{one}");
    let less = explain(&["-o", "features=cont", "--server-features", "ddp", "null"]);
    let said = "null, version 2wg of RPC-over-RDMA, features cont here and ddp at the server:";
    assert!(less.contains(said), "{less}");
    // version-two-07 has a chunk of its own for what is a read chunk at position zero in other versions.
    let long = |options: &str| explain(&["-o", options, "long-call:64k"]);
    let (old, new) = (
        long("rpcrdma=2,features=none"),
        long("rpcrdma=2wg,features=none"),
    );
    assert!(old.contains("by position-zero read chunk ("), "{old}");
    assert!(new.contains("call: payload by call chunk ("), "{new}");
    assert!(!new.contains("position-zero"), "{new}");
    for wrong in [&["sing"][..], &["write:0"], &["-o", "tcp", "null"], &[]] {
        let finished = run([&["explain"], wrong].concat());
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
    }
}

#[test]
fn explain_goes_by_the_options_that_matter_and_takes_no_others() {
    let explain = |args: &[&str]| run([&["explain"], args].concat());
    let sizes = explain(&[
        "-o",
        "rsize=65536,wsize=4096",
        "read:1M",
        "write:10k",
        "write:4k",
    ]);
    let sizes = sizes.ok().stdout;
    for said in [
        "read 64 KiB, the first of 16 calls for 1 MiB, version 2",
        "write 4 KiB, the first of 3 calls for 10 KiB, version 2",
        "write 4 KiB, version 2",
    ] {
        assert!(sizes.contains(said), "{said}: {sizes}");
    }
    let known = explain(&["-o", "rdma,nolock,actimeo=3,nconnect=1,hard", "null"]);
    known.ok();
    for (args, named) in [
        (&["-o", "port=20050"][..], "port="),
        (&["-o", "nconnect=4"], "nconnect="),
        (&["-o", "device=verbs"], "device="),
        (&["-o", "proto=rdma6"], "proto=rdma6"),
        (&["-o", "soft"], "soft"),
        (&["-o", "timeo=10"], "timeo="),
        (&["--busy-poll"], "--busy-poll"),
        (
            &["-o", "rpcrdma=1", "--server-features", "ddp"],
            "--server-features",
        ),
        (&["-o", "rsize=4096", "write", "readdirplus"], "rsize="),
        (&["-o", "wsize=4096", "read"], "wsize="),
        (&["-o", "rsize=4096,wsize=4096", "read"], "wsize="),
    ] {
        let finished = explain(&[args, &["null"]].concat());
        assert_eq!(finished.status.code(), Some(2), "{args:?}: {finished:#?}");
        let begins = format!("rpcrdma: {named}: ");
        assert!(finished.stderr.starts_with(&begins), "{finished:#?}");
    }
    explain(&["-o", "rpcrdma=1", "--server-features", "none", "null"]).ok();
    // The client's sizes are those of the server unless it has its own.
    for (options, trips) in [
        (&["-o", "rpcrdma=1"][..], 1),
        (&["-o", "rpcrdma=1", "--inline", "16k"], 0),
        (&["-o", "rpcrdma=1,inline=4k", "--inline", "16k"], 1),
        (&["-o", "rpcrdma=1,inline=16k:4k", "--inline", "16k"], 0),
        (&["-o", "rpcrdma=1,inline=16k"], 1),
    ] {
        let said = explain(&[options, &["write:8k"]].concat()).ok().stdout;
        let found = said.matches("1 turn-around").count();
        assert_eq!(found, trips, "{options:?}: {said}");
    }
    explain(&["-o", "rsize=4096,wsize=4096", "read", "write"]).ok();
}

#[test]
fn compare_says_what_its_simulation_is_like_and_keeps_the_order() {
    let help = run(["compare", "--help"]).ok().stdout;
    let words: Vec<&str> = help.split_whitespace().collect();
    for said in [
        ["link-delay", "5us"],
        ["rate", "100g"],
        ["interrupt", "2us"],
    ] {
        let is_said = words.windows(2).any(|words| words == said);
        assert!(is_said, "{said:?}: {help}");
    }
    let args = [
        "compare",
        "--device",
        "sim",
        "--json",
        "-",
        "--ops",
        "read,null",
        "--sizes",
    ];
    let args = [&args[..], &["8k,1k", "--via", "v2,v1"]].concat();
    let json = run(args).ok().stdout;
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let found: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            (text("op"), row["size"].as_u64(), text("transfer_mode"))
        })
        .collect();
    let wanted = [("read", Some(8192)), ("read", Some(1024)), ("null", None)];
    let wanted: Vec<_> = wanted
        .into_iter()
        .flat_map(|(op, size)| [(op, size, "v2"), (op, size, "v1")])
        .collect();
    assert_eq!(found, wanted);
}

/// Copies decide between placement and longer receives, and so do the other costs.
#[test]
fn the_costs_of_the_simulation_are_options_and_are_printed() {
    let args = [
        "compare",
        "--device",
        "sim",
        "--full",
        "--ops",
        "read",
        "--sizes",
        "16k",
        "--inline",
        "32k",
        "--via",
        "v2,v2-ddp",
        "--costs",
    ];
    let compared = |costs: &str| run([&args[..], &[costs]].concat());
    let times = |costs: &str| -> Vec<f64> {
        let json = run([&args[..], &[costs, "--json", "-"]].concat())
            .ok()
            .stdout;
        let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
        rows.iter()
            .map(|row| row["p50_us"].as_f64().unwrap())
            .collect()
    };
    let free = times("receiver-copy-rate=unlimited");
    let dear = times("receiver-copy-rate=8g");
    assert!(dear[0] > free[0] + 16.0, "{dear:?} {free:?}");
    assert!(dear[1] < free[1] + 2.0, "{dear:?} {free:?}");
    let cold = times("receiver-copy-rate-cold=8g,cache=cold");
    assert_eq!(cold, dear);
    let far = times("link-delay=1ms,interrupt=0");
    assert!((2000.0..2010.0).contains(&far[0]), "{far:?}");
    let printed = compared("post=1us").ok().stdout.replace('\n', " ");
    assert!(printed.contains("post=1us, completion=200ns"), "{printed}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.json");
    fs::write(&file, r#"{"receiver-copy-rate": "8g"}"#).unwrap();
    assert_eq!(times(file.to_str().unwrap()), dear);
    for (costs, said) in [
        (
            "per-message=1us",
            "`per-message` is no cost of the simulation",
        ),
        ("post=5", "post: "),
        ("/no/file", "/no/file: neither"),
    ] {
        let refused = compared(costs);
        assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
        assert!(refused.stderr.contains(said), "{refused:#?}");
    }
    let twice = run([&args[..], &["link-delay=1ms", "--delay", "1ms"]].concat());
    assert_eq!(twice.status.code(), Some(2), "{twice:#?}");
    assert!(
        twice.stderr.contains("--delay: not with link-delay"),
        "{twice:#?}"
    );
}

#[test]
fn compare_without_options_prints_the_answer_alone() {
    let answer = run(["compare", "--device", "sim"]).ok().stdout;
    let lines: Vec<&str> = answer.lines().collect();
    assert!(lines.len() <= 40, "{answer}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{answer}"
    );
    // Ten rows: NULL, and READ and WRITE of two sizes, by version 1 as Linux uses it and by version 2.
    let named = |line: &&&str| {
        ["null ", "read ", "write "]
            .iter()
            .any(|op| line.starts_with(op))
    };
    let rows = |via: &str| {
        let rows = lines.iter().filter(named);
        rows.filter(|line| line.split_whitespace().any(|word| word == via))
            .count()
    };
    assert_eq!((rows("v1-inv"), rows("v2-ddp-cont")), (5, 5), "{answer}");
    let sentences = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        sentences.contains(
            "An 8 KiB WRITE takes 2 round trips by v1-inv, 1 by v1-long, v2-ddp-cont and v2-cont."
        ),
        "{answer}"
    );
    assert!(sentences.contains("Compared with v1-long, "), "{answer}");
    let full = run(["compare", "--device", "sim", "--full"]).ok().stdout;
    assert!(full.contains("v2-cont") && full.contains("long-both"));
    assert!(full.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn explain_says_where_costs_come_from_and_the_server_is_told_of() {
    let explain = |args: &[&str]| run([&["explain", "-o", "rpcrdma=2"], args].concat());
    let default = explain(&["write:8k"]).ok().stdout;
    assert!(
        default.contains("item 0 placed") && default.contains("default"),
        "{default}"
    );
    // The device has costs of its own, which others replace.
    let of_device = |text: &str| {
        text.lines()
            .any(|l| l.starts_with("rate ") && l.contains(" device "))
    };
    assert!(of_device(&default), "{default}");
    let long = explain(&["read:256k"]).ok().stdout;
    let taken = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("->"))
            .collect::<String>()
    };
    assert!(taken(&long).contains("RDMA operation"), "{long}");
    let dear = explain(&["--costs", "registration=1ms,rate=100g", "read:256k"])
        .ok()
        .stdout;
    assert!(
        !taken(&dear).contains("RDMA operation") && !of_device(&dear),
        "{dear}"
    );
    let none = explain(&["--server-features", "none", "write:8k"])
        .ok()
        .stdout;
    assert!(!none.contains("placed"), "{none}");
    // Over a link that is slower than any copy, the padding of placement costs more.
    let cheap = "per-message=1ms,rate=1m,read-rate=1m";
    let other = explain(&["--costs", cheap, "write:8k"]).ok().stdout;
    let taken = other
        .lines()
        .skip_while(|line| !line.starts_with("->"))
        .nth(1);
    assert!(taken.unwrap().contains("item 0 in it"), "{other}");
    assert!(
        other.contains("--costs") && other.contains("1000.000 µs"),
        "{other}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("costs.json");
    fs::write(&file, r#"{"source": "measured", "interrupt": "7us"}"#).unwrap();
    let from_file = explain(&["--costs", file.to_str().unwrap(), "null"])
        .ok()
        .stdout;
    let source = format!("\nfile: {}: measured\n", file.display());
    assert!(from_file.contains(&source), "{from_file}");
    let interrupt = from_file
        .lines()
        .find(|line| line.starts_with("interrupt "));
    let interrupt: Vec<_> = interrupt.unwrap().split_whitespace().rev().collect();
    assert_eq!(interrupt[..3], ["µs", "7.000", "file"], "{from_file}");
    for (costs, what) in [
        ("speed=1g", "no cost"),
        ("rate=1us", "rate"),
        ("/no/such/file", "neither"),
    ] {
        let finished = explain(&["--costs", costs, "null"]);
        assert_eq!(finished.status.code(), Some(2), "{finished:#?}");
        assert!(finished.stderr.contains(what), "{finished:#?}");
    }
}

#[test]
fn options_that_would_have_no_effect_are_refused() {
    for (args, what) in [
        (
            &["ls", "-o", "proto=tcp,features=ddp", "nfs://server/x"][..],
            "features",
        ),
        (
            &[
                "ls",
                "-o",
                "proto=tcp",
                "--costs",
                "call=1us",
                "nfs://server/x",
            ],
            "--costs",
        ),
        (
            &[
                "ping",
                "-o",
                "rsize=4096",
                "--op",
                "write",
                "nfs://server/x",
            ],
            "rsize=: ping --op write reads nothing",
        ),
        (
            &["ping", "-o", "wsize=4096", "server"],
            "wsize=: ping --op null writes nothing",
        ),
        (
            &["ping", "-o", "mountport=7", "server"],
            "mountport=: ping --op null mounts nothing",
        ),
        (
            &["ping", "-o", "mounthost=here", "--callbacks", "server"],
            "mounthost=: ping --callbacks mounts nothing",
        ),
        (
            &["exports", "-o", "rsize=4096", "server"],
            "rsize=: exports reads nothing",
        ),
        (
            &["exports", "-o", "wsize=4096", "server"],
            "wsize=: exports writes nothing",
        ),
        (
            &["serve", "--memory", "--rpcrdma", "1", "--features", "ddp"],
            "version 2",
        ),
        (
            &["compare", "--via", "v1,v2,v1"],
            "--via: v1 is there twice",
        ),
        (
            &["compare", "--ops", "read,read"],
            "--ops: read is there twice",
        ),
        (
            &["compare", "--sizes", "8k,1k,8192"],
            "--sizes: 8 KiB is there twice",
        ),
        (&["compare", "--sizes", "17M"], "--sizes"),
        (
            &["compare", "--device", "sim", "--sizes", "16M"],
            "16 calls in flight",
        ),
        (&["compare", "--device", "sim", "--crc", "on"], "--crc"),
        (
            &["compare", "--device", "verbs", "--crc", "on"],
            "--crc: only for device iwarp",
        ),
        (
            &["compare", "--via", "tcp", "--crc", "on"],
            "--crc: only for NFS over RDMA",
        ),
        (
            &["serve", "--memory", "--device", "verbs:x", "--crc", "off"],
            "--crc: only for device iwarp, and --device is verbs:x",
        ),
        (&["compare", "--device", "sim", "--count", "3"], "--count"),
        (&["compare", "--device", "sim", "--no-pin"], "--no-pin"),
        (&["compare", "--device", "sim", "--no-trips"], "--no-trips"),
        (&["compare", "--device", "sim", "--time", "1s"], "--time"),
        (
            &["compare", "--full", "--device", "sim", "--time", "1s"],
            "--time",
        ),
        (
            &["compare", "--json", "-", "--explain"],
            "--explain: not with --json -",
        ),
        (
            &["compare", "--json", "-", "--reference", "/dev/null"],
            "--reference: not with --json -",
        ),
        (
            &["compare", "--device", "sim", "--address", "::1"],
            "--address",
        ),
        (
            &["compare", "--device", "sim", "--via", "tcp"],
            "TCP is not simulated",
        ),
        (
            &["compare", "--device", "sim", "--via", "v1,tcp"],
            "TCP is not simulated",
        ),
        (
            &["compare", "--device", "sim", "--ops", "null,tree"],
            "copies of trees are not simulated",
        ),
    ] {
        let finished = run(args);
        assert_eq!(finished.status.code(), Some(2), "{args:?}: {finished:#?}");
        assert!(finished.stderr.contains(what), "{args:?}: {finished:#?}");
    }
    let judged = run([
        "compare",
        "--device",
        "sim",
        "--ops",
        "null",
        "--via",
        "v1",
        "--json",
        "-",
        "--check-explain",
    ]);
    assert_eq!(judged.status.code(), Some(1), "{judged:#?}");
}

#[test]
fn a_server_calls_a_client_that_asks_for_it() {
    let ping = |server: &Server, proto, more: &str| {
        let url = server.url(proto, "");
        let args = ["ping", "--callbacks", "-c", "20", "-s", "9000", &url];
        run(args
            .map(str::to_owned)
            .into_iter()
            .chain(options(proto, more)))
    };
    let server = Server::start(["--memory", "--callbacks"]);
    let several = [Proto::Rdma, Proto::Tcp].map(|proto| (proto, "nconnect=4,threads=2"));
    let several = several.into_iter().filter(|_| is_iwarp());
    let each = [
        (Proto::Rdma, "rpcrdma=1"),
        (Proto::Rdma, "rpcrdma=2"),
        (Proto::Tcp, ""),
    ];
    for (proto, more) in each.into_iter().chain(several) {
        let pinged = ping(&server, proto, more).ok().stdout;
        assert!(
            pinged.contains("20 answered, 0 answered wrongly"),
            "{pinged}"
        );
        assert!(
            pinged.contains("came here 20, 0 of them more than once"),
            "{pinged}"
        );
    }
    let silent = Server::start(["--memory"]);
    let finished = ping(&silent, Proto::Rdma, "");
    assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
    assert!(
        finished.stderr.contains("serve --callbacks"),
        "{finished:#?}"
    );
}

/// Each process is a client of its own with the same address. The server must not mistake calls of
/// one for retransmissions of another's.
#[test]
fn the_last_of_two_options_counts_and_a_note_names_the_other() {
    let url = "nfs://no-such-host.invalid/x";
    let twice = run(["ls", "-o", "rsize=4096,ro", "-o", "rsize=8192", url]);
    let said = "rpcrdma: note: mount option rsize=4096 is overridden by rsize=8192\n";
    assert!(twice.stderr.starts_with(said), "{twice:#?}");
    let once = run(["ls", "-o", "rsize=4096,ro,rsize=4096", url]);
    assert!(!once.stderr.contains("note"), "{once:#?}");
    let no = "192.0.2.1";
    let dir = tempfile::tempdir().unwrap();
    let export = format!("x={}:ro,rw", dir.path().display());
    let memory = "--memory=1M:sync,async";
    let served = run(["serve", memory, "--export", &export, "--listen", no]);
    for said in [
        format!("rpcrdma: note: --export {export}: option ro is overridden by rw\n"),
        "rpcrdma: note: --memory: option sync is overridden by async\n".to_owned(),
    ] {
        assert!(served.stderr.contains(&said), "{served:#?}");
    }
    let [a, b] = ["a", "b"].map(|name| format!("{name}={}:fsid=9", dir.path().display()));
    let same = run(["serve", "--export", &a, "--export", &b, "--listen", no]);
    assert_eq!(same.status.code(), Some(2), "{same:#?}");
    assert!(same.stderr.contains("have the same fsid=9"), "{same:#?}");
}

#[test]
fn what_is_made_again_after_it_was_removed_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::of(dir.path());
    for proto in BOTH {
        for _ in 0..3 {
            for (command, there) in [("mkdir", true), ("rm", false)] {
                let url = server.url(proto, "/data/new");
                let mut args = vec![command.to_owned(), url];
                if command == "rm" {
                    args.push("-r".to_owned());
                }
                run([&args[..], &options(proto, "")].concat()).ok();
                assert_eq!(dir.path().join("new").is_dir(), there);
            }
        }
    }
}
