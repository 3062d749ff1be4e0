//! Tests of `--capture`: the file is whole however the command ends, and each connection is in it.
//! The tests of what Wireshark shows of such files are in `testing/wire-check`.

mod common;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Proto, Running, Server, options, patience, rpcrdma, run};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, parse_block_le};

/// The SYN flag alone, as in the first segment of a connection.
const SYN: u8 = 0x02;

/// The contents of a capture.
#[derive(Debug)]
struct Content {
    /// Number of connections.
    connections: usize,
    packets: usize,
    /// The time of the last packet, nanoseconds since 1970.
    last: u64,
    /// Length of the longest packet that is kept, bytes.
    longest: usize,
}

/// Reads a capture, which must consist of whole blocks.
#[track_caller]
fn content(path: &Path) -> Content {
    let bytes = fs::read(path).expect("a file");
    let mut rest = &bytes[..];
    let mut content = Content {
        connections: 0,
        packets: 0,
        last: 0,
        longest: 0,
    };
    while !rest.is_empty() {
        let (after, block) = parse_block_le(rest).expect("a damaged block");
        rest = after;
        if let Block::EnhancedPacket(packet) = block {
            let frame = packet.packet_data();
            let flags = match frame[12..14] {
                [0x08, 0x00] => frame[14 + 20 + 13],
                _ => frame[14 + 40 + 13],
            };
            content.connections += usize::from(flags == SYN);
            content.packets += 1;
            content.last = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            content.longest = content.longest.max(frame.len());
        }
    }
    content
}

/// An RPC call of WRITE behind its XID: a call of version 2 of RPC, for procedure 7 of NFS 3.
const WRITE: [u8; 20] = [
    0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 7,
];

/// Returns the times between WRITEs and their replies in a capture of IPv4, in milliseconds.
fn write_times(path: &Path) -> Vec<f64> {
    /// Lengths of headers in bytes: Ethernet and IPv4; TCP; the length of an FPDU and DDP's header of
    /// a Send.
    const TCP_AT: usize = 14 + 20;
    const TCP: usize = 20;
    const SEND: usize = 2 + 18;
    let bytes = fs::read(path).expect("a file");
    let mut rest = &bytes[..];
    let (mut calls, mut took) = (HashMap::new(), Vec::new());
    let mut client = None;
    while !rest.is_empty() {
        let (after, block) = parse_block_le(rest).expect("a damaged block");
        rest = after;
        let Block::EnhancedPacket(packet) = block else {
            continue;
        };
        let frame = packet.packet_data();
        let port = [frame[TCP_AT], frame[TCP_AT + 1]];
        if frame[TCP_AT + 13] == SYN {
            client = Some(port);
        }
        // The first segment of an untagged message on queue 0, which are Sends.
        let Some(fpdu) = frame.get(TCP_AT + TCP..).filter(|fpdu| fpdu.len() > SEND) else {
            continue;
        };
        let sent = fpdu[2] & 0x80 == 0 && fpdu[8..12] == [0; 4] && fpdu[16..20] == [0; 4];
        if !sent || fpdu.starts_with(b"MPA") {
            continue;
        }
        let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        let (xid, message) = fpdu[SEND..].split_at(4);
        if client == Some(port) {
            if message.windows(WRITE.len()).any(|bytes| bytes == WRITE) {
                calls.insert(xid.to_vec(), time);
            }
        } else if let Some(called) = calls.remove(xid) {
            took.push((time - called) as f64 / 1e6);
        }
    }
    assert!(calls.is_empty(), "{calls:?}");
    took
}

fn text(path: &Path) -> String {
    path.to_str().expect("a name in UTF-8").to_owned()
}

#[test]
fn client_and_server_capture_the_same_connections() {
    let folder = tempfile::tempdir().unwrap();
    let [put, get, serve] = ["put", "get", "serve"].map(|name| folder.path().join(name));
    let server = Server::start(["--memory", ":insecure", "--capture", &text(&serve)]);
    let (file, back) = (folder.path().join("file"), folder.path().join("back"));
    fs::write(&file, vec![7; 3_000_000]).unwrap();
    let url = server.url(Proto::Rdma, "/memory/file");
    let [o, plain] = options(Proto::Rdma, "rpcrdma=1");
    run([
        "put",
        &o,
        &plain,
        "--capture",
        &text(&put),
        &text(&file),
        &url,
    ])
    .ok();
    let [o, double] = options(Proto::Rdma, "nconnect=2");
    let (at, to) = (text(&get), text(&back));
    let short = ["--snap", "256"];
    run([
        &["get", &o, &double, "--capture", &at][..],
        &short,
        &[&url, &to],
    ]
    .concat())
    .ok();
    let (put, get) = (content(&put), content(&get));
    assert_eq!((put.connections, get.connections), (1, 2));
    assert!(put.longest > 1000, "{put:?}");
    assert_eq!(get.longest, 256);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let last = Duration::from_nanos(get.last);
    assert!(last <= now && now - last < patience(), "{last:?} {now:?}");
    assert!(server.terminate().success());
    assert_eq!(content(&serve).connections, 3);
}

/// The times in a capture, as Wireshark shows them, are those of the call and its round trips.
#[test]
fn captures_of_a_delayed_link_show_the_time_of_each_end() {
    /// Milliseconds each way.
    const DELAY: u32 = 5;
    for (version, client, server) in [("rpcrdma=1", 4.0, 2.0), ("rpcrdma=2", 2.0, 0.0)] {
        let folder = tempfile::tempdir().unwrap();
        let [ping, serve] = ["ping", "serve"].map(|name| folder.path().join(name));
        let delay = format!("{DELAY}ms");
        let of_server = ["--memory", ":insecure", "--delay", &delay, "--capture"];
        let serving = Server::start([&of_server[..], &[&text(&serve)]].concat());
        let url = serving.url(Proto::Rdma, "/memory");
        let [o, with] = options(Proto::Rdma, version);
        let writes = ["ping", "--op", "write", "-s", "8k", "-c", "30"];
        let capture = ["--delay", &delay, "--capture", &text(&ping)];
        run([&writes[..], &[&o, &with], &capture, &[&url]].concat()).ok();
        assert!(serving.terminate().success());
        for (path, delays) in [(ping, client), (serve, server)] {
            let took = write_times(&path);
            assert!(took.len() >= 30, "{took:?}");
            // Other work on the machine delays the end of a call, or that a call is noticed.
            let wanted = delays * f64::from(DELAY);
            let near = |took: &f64| (took - wanted).abs() < 0.05 * client * f64::from(DELAY);
            assert!(
                took.iter().filter(|took| near(took)).count() >= 3,
                "{version}: {took:?} ms at {path:?} instead of {wanted}"
            );
        }
    }
}

#[test]
fn a_capture_is_whole_after_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ping.pcapng");
    let server = Server::start(["--memory"]);
    let [o, with] = options(Proto::Rdma, "rpcrdma=1");
    let target = server.rdma.to_string();
    let mut command = rpcrdma();
    command.args(["ping", &o, &with, "-c", "100000000", "--capture"]);
    let pinging = Running::start(command.arg(&file).arg(&target));
    // Packets are written before a buffer is full.
    let start = Instant::now();
    while fs::metadata(&file).map_or(0, |meta| meta.len()) < 20_000 {
        assert!(start.elapsed() < patience(), "nothing is written");
        thread::sleep(Duration::from_millis(20));
    }
    pinging.interrupt();
    let finished = pinging.finish().ok();
    assert!(finished.stdout.contains("median"), "{finished:?}");
    let content = content(&file);
    assert_eq!(content.connections, 1);
    assert!(content.packets > 100, "{content:?}");
}

/// Regression test: a server with exports has no mask for new files.
#[test]
fn a_capture_of_a_server_is_for_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.pcapng");
    let export = common::export("data", folder.path(), "ro");
    let args = ["--export", &export, "--capture", file.to_str().unwrap()];
    let server = Server::start(args);
    assert!(server.terminate().success());
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn a_capture_is_whole_after_the_terminal_of_a_server_is_closed() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    if u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap() & 1 != 0 {
        eprintln!("SIGHUP is ignored here (by nohup?), and the server would ignore it as well");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.pcapng");
    let server = Server::start(["--memory", "--capture", file.to_str().unwrap()]);
    let target = server.rdma.to_string();
    let [o, with] = options(Proto::Rdma, "");
    run(["ping", &o, &with, "-c", "5", &target]).ok();
    // The signal follows the calls at once: their last packets may not be in the file yet.
    assert!(server.end_by(rustix::process::Signal::HUP).success());
    assert_eq!(content(&file).connections, 1);
}

/// The user corrects what the error says, and repeats the command with the same file.
#[test]
fn a_command_that_fails_before_it_connects_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.pcapng");
    let server = Server::start(["--memory"]);
    let port = server.rdma.port().to_string();
    let serve = [
        "serve",
        "--memory",
        "--port",
        &port,
        "--capture",
        file.to_str().unwrap(),
    ];
    let failed = run(serve);
    assert!(failed.stderr.contains("in use"), "{failed:?}");
    assert!(!file.exists());
    let target = server.rdma.to_string();
    let [o, with] = options(Proto::Rdma, "");
    let ping = [
        "ping",
        &o,
        &with,
        "-c",
        "1",
        "--capture",
        file.to_str().unwrap(),
        &target,
    ];
    run(ping).ok();
    assert_eq!(content(&file).connections, 1);
    // A file with packets stays.
    fs::remove_file(&file).unwrap();
    let url = format!("nfs://{target}/no-export/file");
    let folder = folder.path().to_str().unwrap();
    let capture = ["--capture", file.to_str().unwrap()];
    let failed = run([&["get", &o, &with][..], &capture, &[&url, folder]].concat());
    assert!(!failed.status.success(), "{failed:?}");
    assert_eq!(content(&file).connections, 1);
}

/// While a client still waits for its server, there is no operation that a signal could interrupt.
#[test]
fn a_capture_is_whole_after_ctrl_c_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("get.pcapng");
    // It accepts connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/export", silent.local_addr().unwrap());
    let mut command = rpcrdma();
    let getting = Running::start(command.args(["get", "--capture"]).arg(&file).arg(url));
    let start = Instant::now();
    while fs::metadata(&file).map_or(0, |meta| meta.len()) == 0 {
        assert!(start.elapsed() < patience(), "nothing is written");
        thread::sleep(Duration::from_millis(5));
    }
    // Long enough for the request to be sent, and too short for it to be written.
    thread::sleep(Duration::from_millis(200));
    getting.interrupt();
    let finished = getting.finish();
    assert_eq!(finished.status.signal(), Some(2), "{finished:?}");
    assert!(content(&file).packets >= 4, "the handshake and the request");
}

#[test]
fn a_file_that_cannot_be_is_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::write(&taken, "precious").unwrap();
    let (taken_text, missing) = (text(&taken), text(&folder.path().join("no").join("file")));
    // Nobody is there, which would be another failure.
    for command in [
        &["ping", "127.0.0.1:1"][..],
        &["get", "nfs://127.0.0.1:1/x", "."],
        &["put", "/dev/null", "nfs://127.0.0.1:1/x"],
        &["serve", "--memory", "--port", "0", "--tcp-port", "0"],
        &["compare", "--time", "1ms"],
        &["sim", "--seed", "1"],
    ] {
        let with = |file: &str| run([command, &["--capture", file]].concat());
        with(&taken_text).fails_with(&[
            "--capture",
            "taken: it exists: choose another name, or remove it",
        ]);
        with(&missing).fails_with(&["--capture", "no/file", "no such file"]);
    }
    assert_eq!(fs::read(&taken).unwrap(), b"precious");
}

/// A script must notice. What was captured before is whole.
#[test]
fn a_file_that_cannot_grow_fails_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.pcapng");
    // The limit stands for a full disk. 32 or 64 KiB: the unit depends on the shell.
    let mut command = common::rpcrdma_limited("-f 64");
    command.args(["sim", "--seed", "0", "--capture"]).arg(&file);
    let finished = Running::start(&mut command).finish();
    assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
    assert!(
        finished.stderr.contains("cannot be written"),
        "{finished:#?}"
    );
    assert!(finished.stdout.contains("seed 0:"), "{finished:#?}");
    let length = fs::metadata(&file).unwrap().len();
    assert!(length <= 64 * 1024, "{length}");
    content(&file);
}

#[test]
fn errors_in_the_arguments_come_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = text(&folder.path().join("new"));
    for (args, said) in [
        (
            &["ping", "-o", "proto=tcp", "localhost", "--capture", &file][..],
            "proto=tcp",
        ),
        (
            &["compare", "--device", "sim", "--capture", &file],
            "sim --seed",
        ),
        (&["sim", "--seeds", "0..2", "--capture", &file], "--seed"),
        (&["ping", "host:port", "--capture", &file], "is not a port"),
        (
            &["ping", "--op", "read", "localhost", "--capture", &file],
            "--op read needs",
        ),
        (
            &[
                "ping",
                "--callbacks",
                "-s",
                "1G",
                "localhost",
                "--capture",
                &file,
            ],
            "-s:",
        ),
        (
            &["put", "-", "nfs://localhost/x/", "--capture", &file],
            "standard input has no name",
        ),
        (
            &[
                "serve",
                "--memory",
                "--registration",
                "windows",
                "--capture",
                &file,
            ],
            "registration windows",
        ),
        (&["ping", "localhost", "--capture", "-"], "write ./-"),
        (&["ping", "localhost", "--snap", "256"], "--capture <FILE>"),
        (
            &["serve", "--memory", "--capture-size", "1M"],
            "--capture <FILE>",
        ),
    ] {
        let finished = run(args.iter().copied());
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.stderr.contains(said), "{finished:?}");
    }
    assert!(!Path::new(&file).exists());
}

#[test]
fn a_simulation_is_captured_and_runs_as_without() {
    let folder = tempfile::tempdir().unwrap();
    let plain = run(["sim", "--seed", "7", "--explain"]).ok();
    let capture = |name: &str, size: &str| {
        let file = folder.path().join(name);
        let args = ["sim", "--seed", "7", "--explain", "--capture", &text(&file)];
        let limit = ["--capture-size", size];
        let finished = run([&args[..], &limit].concat()).ok();
        assert_eq!(finished.stdout, plain.stdout);
        (finished.stderr, fs::read(&file).unwrap(), content(&file))
    };
    let (said, bytes, whole) = capture("first", "1G");
    assert_eq!(said, "");
    assert!(whole.connections > 1 && whole.packets > 50, "{whole:?}");
    // Virtual time begins in 1970.
    assert!(whole.last < 3_600_000_000_000, "{whole:?}");
    assert!(
        bytes == capture("second", "1G").1,
        "another capture of the same seed"
    );
    let (said, bytes, cut) = capture("third", "8k");
    assert_eq!(
        said.matches("its maximum of 8192 bytes").count(),
        1,
        "{said}"
    );
    assert!(
        bytes.len() <= 8192 && (5..whole.packets).contains(&cut.packets),
        "{cut:?}"
    );
}

#[test]
fn a_comparison_captures_its_clients() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("compare.pcapng");
    let args = [
        "compare",
        "--via",
        "tcp,v1,v2",
        "--ops",
        "null",
        "--time",
        "5ms",
    ];
    let more = ["--no-trips", "--count", "5", "--capture", &text(&file)];
    run([&args[..], &more].concat()).ok();
    // Sleeping and spinning, of two variants; TCP is not captured.
    assert_eq!(content(&file).connections, 4);
}
