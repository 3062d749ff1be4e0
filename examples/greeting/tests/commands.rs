//! The program has what this crate adds in every command.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

use greeting::Greet;
use onc_rpc::Message;
use rpc_transport::{Call, Client, ClientOptions, Runtime, TcpClient, TcpOptions};
use rpcrdma_programs::workload::{Calls, Failed, Prepared, Server as Place};
use serde_json::Value;

fn greeting(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greeting"));
    command
        .args(words)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    greeting(words).output().unwrap()
}

/// Returns what a command writes to standard output, and to standard error; it has to succeed.
fn said(words: &[&str]) -> (String, String) {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// Returns what is said of an error in the arguments.
fn refused(words: &[&str]) -> String {
    let output = run(words);
    assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A server, which ends with the test.
struct Server {
    process: Child,
    /// Host and port for RDMA, and for TCP.
    place: String,
    tcp: String,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let place = ["serve", "-v", "--memory", "--port", "0", "--tcp-port", "0"];
        let mut command = greeting(&place);
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut listening = |by: &str| {
            loop {
                let line = lines.next().unwrap().unwrap();
                if let Some(place) = line.strip_prefix(by) {
                    break place.split(' ').next().unwrap().to_owned();
                }
            }
        };
        Self {
            place: listening("listening rdma "),
            tcp: listening("listening tcp "),
            process,
        }
    }

    /// Ends the server, and returns its log.
    fn log(mut self) -> String {
        self.process.kill().unwrap();
        let mut log = String::new();
        let mut errors = self.process.stderr.take().unwrap();
        errors.read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

/// A server has the program beside NFS where it is told so. Each of its threads has it.
#[test]
fn a_server_serves_the_program() {
    let call = |server: &Server| {
        let runtime = Runtime::new().unwrap();
        let port = Rc::new(RefCell::new(TcpClient::new(TcpOptions::default())));
        let address = server.tcp.parse().unwrap();
        runtime.block_on(async {
            let options = ClientOptions::default();
            let client = Client::connect(&runtime, address, port, options).await;
            let client = client.unwrap();
            let prepared = Prepared::new(&Greet, Place::new(&client, None, 0))
                .await
                .unwrap();
            for number in 0..4 {
                prepared.perform(&client, number).await?;
            }
            let greet = Greet.call(0);
            let null = Call {
                proc: 0,
                ..greet.clone()
            };
            client.call(null).await.unwrap();
            let other = Call {
                proc: 2,
                ..greet.clone()
            };
            let short = Call {
                args: Message::default(),
                ..greet
            };
            for (wrong, said) in [(other, "ProcUnavail"), (short, "GarbageArgs")] {
                let refused = client.call(wrong).await.unwrap_err();
                assert!(format!("{refused:?}").contains(said), "{refused:?}");
            }
            Ok::<_, Failed>(())
        })
    };
    for callbacks in [&[][..], &["--callbacks"]] {
        let served = ["--program", "greet", "--threads", "2"];
        call(&Server::start(&[&served[..], callbacks].concat())).unwrap();
    }
    let missing = call(&Server::start(&[])).unwrap_err();
    assert!(missing.why.contains("program"), "{missing}");
    for wrong in [&["greet", "--program", "greet"][..], &["gret"]] {
        refused(&[&["serve", "--memory", "--program"][..], wrong].concat());
    }
}

/// Returns the transfer modes of the rows.
fn modes(words: &[&str]) -> Vec<String> {
    let (rows, _) = said(words);
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let rows = rows["rows"].as_array().or(rows.as_array()).unwrap();
    let mode = |row: &Value| row["transfer_mode"].as_str().unwrap().to_owned();
    rows.iter().map(mode).collect()
}

#[test]
fn compare_has_rows_by_the_clock_and_in_the_simulation() {
    let via = "wg,wg+greeting,wg-ddp+greeting";
    let all = ["compare", "--ops", "null", "--json", "-", "--via", via];
    for how in [
        &["--device", "sim", "--set", "greeting-length=512"][..],
        &["--count", "9", "--no-trips", "--credits", "half"],
    ] {
        let modes = modes(&[&all[..], how].concat());
        for mode in via.split(',') {
            assert!(modes.iter().any(|it| it == mode), "{how:?}: {modes:?}");
        }
    }
}

#[test]
fn both_ends_have_the_extension_if_they_are_told_so() {
    let server = Server::start(&[
        "--features",
        "ddp+greeting",
        "--set",
        "greeting-length=5",
        "--credits",
        "half",
    ]);
    let ping =
        |words: &[&str]| said(&[&["ping", "-v", "-c", "3", &server.place][..], words].concat());
    let (_, log) = ping(&["--features", "greeting", "--set", "greeting-length=7"]);
    assert!(
        log.contains("the peer has sent a greeting bytes=5"),
        "{log}"
    );
    for without in [&[][..], &["-o", "features=ddp"], &["-o", "rpcrdma=1"]] {
        let (_, log) = ping(without);
        assert!(!log.contains("greeting"), "{log}");
    }
    let log = server.log();
    let greetings = log
        .lines()
        .filter(|line| line.contains("has sent a greeting"));
    let greetings: Vec<&str> = greetings.collect();
    assert_eq!(greetings.len(), 1, "{log}");
    assert!(greetings[0].ends_with("bytes=7"), "{log}");
}

#[test]
fn seeds_run_with_the_additions() {
    let how = [
        "--with",
        "greeting",
        "--credits",
        "half",
        "--set",
        "credits=8",
    ];
    let (found, _) = said(&[&["sim", "--seeds", "0..24", "--rpcrdma", "2wg"][..], &how].concat());
    assert!(found.contains("no violation"), "{found}");
}

#[test]
fn help_and_errors_say_what_there_is() {
    let (help, _) = said(&["serve", "--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in [
        "greeting (each end greets the other)",
        "half (half of that)",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    for command in ["serve", "ping", "put", "mount", "compare", "sim", "explain"] {
        let (settings, _) = said(&[command, "--set", "help"]);
        for setting in ["greeting-length=1 B to 512 B", "credits=1 to 16384"] {
            assert!(settings.contains(setting), "{command}: {settings}");
        }
    }
    for (words, wanted) in [
        (
            &["ping", "localhost", "--set", "greeting-length=513"][..],
            "write 1 B to 512 B",
        ),
        (
            &["serve", "--memory", "--features", "greting"],
            "write none, ddp, cont, greeting, or several",
        ),
        (
            &["ls", "nfs://localhost/x", "-o", "features=greting"],
            "greeting",
        ),
        (
            &["serve", "--memory", "--credits", "quarter"],
            "there are: all, half",
        ),
        (
            &["compare", "--via", "wg+greting"],
            "no feature \"greting\"",
        ),
    ] {
        let refused = refused(words);
        assert!(refused.contains(wanted), "{words:?}: {refused}");
    }
}

/// The program's own calls are rows like those of NFS, also with several in flight.
#[test]
fn calls_of_ones_own_are_measured_by_the_clock_and_in_the_simulation() {
    let ask = |words: &[&str]| -> Vec<Value> {
        let asked = [
            "compare",
            "--json",
            "-",
            "--ops",
            "greet,null",
            "--via",
            "v1-inv,wg",
        ];
        let (rows, _) = said(&[&asked[..], words].concat());
        serde_json::from_str(&rows).unwrap()
    };
    for rows in [
        ask(&["--device", "sim"]),
        ask(&["--time", "10ms", "--no-trips"]),
        ask(&["--device", "sim", "--in-flight", "4"]),
        ask(&["--in-flight", "4", "--clients", "2", "--time", "20ms"]),
    ] {
        let own: Vec<_> = rows.iter().filter(|row| row["op"] == "greet").collect();
        assert_eq!(own.len(), 2, "{rows:#?}");
        for row in own {
            assert!(
                (row["sends"].as_f64().unwrap() - 2.0).abs() < 0.3,
                "{row:#}"
            );
            assert!(row["p50_us"].as_f64().is_some(), "{row:#}");
        }
    }
    let unknown = refused(&["compare", "--ops", "goodbye"]);
    assert!(unknown.contains("greet"), "{unknown}");
    // Without the program there is no such operation.
    assert!(refused(&["compare", "--ops", "hallo"]).contains("invalid value"));
}
