//! Tests the guest's scripts with the host's parser, without a guest: checks need only a directory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcrdma_lab::protocol::{Check, Line, Outcome, Request};

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Creates a directory like the one that a guest shares with the host, with this lane.
fn share(lane: &str) -> tempfile::TempDir {
    let share = tempfile::tempdir().unwrap();
    let copy = |from: &Path, to: &Path| fs::copy(from, to).map(drop).unwrap();
    for name in ["out", "answers", "bin", "guest"] {
        fs::create_dir(share.path().join(name)).unwrap();
    }
    for entry in fs::read_dir(home().join("guest")).unwrap() {
        let entry = entry.unwrap();
        let to = share.path().join("guest").join(entry.file_name());
        copy(&entry.path(), &to);
    }
    fs::write(share.path().join("lane.sh"), lane).unwrap();
    fs::write(share.path().join("env.sh"), "LANE=test\nHOST=127.0.0.1\n").unwrap();
    share
}

/// Returns the command that runs the lane's script.
fn script(share: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .arg(share.join("guest/run.sh"))
        .env("LAB", share)
        .env("LAB_KMSG", share.join("kmsg"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    command
}

/// Returns the lane's output, and whether its script succeeded.
fn run(lane: &str) -> (Vec<Line>, bool) {
    let share = share(lane);
    let output = script(share.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(Line::parse).collect();
    (lines, output.status.success())
}

fn checks(lines: &[Line]) -> Vec<(&str, &Outcome)> {
    let checks = lines.iter().filter_map(|line| match line {
        Line::Check(Check { name, result }) => Some((name.as_str(), result)),
        _ => None,
    });
    checks.collect()
}

#[test]
fn checks_pass_fail_and_end_in_time() {
    let (lines, ended_well) = run("lane() {\n\
         check one 20 equal numbers 1 1\n\
         check part/two 20 two 'a b'\n\
         check three 20 equal numbers 1 2\n\
         check four 1 sleep 600\n\
         check five 20 early\n\
         skip six not here\n\
         }\n\
         two() { equal words \"$1\" 'a b'; }\n\
         early() { false; true; }\n");
    assert!(ended_well);
    let checks = checks(&lines);
    let [one, two, three, four, five, six] = checks[..] else {
        panic!("{lines:?}");
    };
    assert!(matches!(one, ("one", Outcome::Passed(_))));
    assert!(matches!(two, ("part/two", Outcome::Passed(_))));
    assert!(matches!(three, ("three", Outcome::Failed(_))));
    let ("four", Outcome::Failed(time)) = four else {
        panic!("{four:?}");
    };
    assert!((1..60).contains(&time.as_secs()), "{time:?}");
    // The first command that fails makes the check fail.
    assert!(matches!(five, ("five", Outcome::Failed(_))));
    assert_eq!(six, ("six", &Outcome::Skipped("not here".to_owned())));
    // The output of a check is shown when it failed.
    let shown = Line::Text("    numbers: '1' is not '2'".to_owned());
    assert!(lines.contains(&shown), "{lines:?}");
}

#[test]
fn a_check_whose_result_the_host_would_not_see_ends_the_lane() {
    let (lines, ended_well) =
        run("lane() { check a+b 20 true; check a=b 20 false; check c 20 true; }\n");
    assert!(!ended_well);
    let [
        ("a-b", Outcome::Passed(_)),
        ("lab/name-of-check", Outcome::Failed(_)),
    ] = checks(&lines)[..]
    else {
        panic!("{lines:?}");
    };
}

#[test]
fn a_lane_ends_with_what_it_needs() {
    let (lines, ended_well) = run("lane() { need a 20 false; check b 20 true; }\n");
    assert!(ended_well);
    assert!(matches!(checks(&lines)[..], [("a", Outcome::Failed(_))]));
}

#[test]
fn a_command_that_fails_outside_of_a_check_is_no_result() {
    let (lines, ended_well) =
        run("lane() { check a 20 true; no-such-command; check b 20 true; }\n");
    assert!(!ended_well);
    assert!(matches!(checks(&lines)[..], [("a", Outcome::Passed(_))]));
}

#[test]
fn the_host_is_asked_and_answers() {
    let share = share(
        "lane() { check asked 50 asks; }\n\
                       asks() { equal said \"$(host run client)\" hello; ! host kill client; }\n",
    );
    let mut child = script(share.path()).stdout(Stdio::piped()).spawn().unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let answers = share.path().join("answers");
    let mut lines = Vec::new();
    for line in std::io::BufRead::lines(output) {
        let line = Line::parse(&line.unwrap());
        if let Line::Ask(ask) = &line {
            assert_eq!(ask.name, "client");
            let status = match ask.request {
                Request::Run => {
                    fs::write(answers.join(format!("{}.out", ask.id)), "hello\n").unwrap();
                    "0\n"
                }
                _ => "125\n",
            };
            let part = answers.join("part");
            fs::write(&part, status).unwrap();
            fs::rename(&part, answers.join(&ask.id)).unwrap();
        }
        lines.push(line);
    }
    assert!(child.wait().unwrap().success());
    assert!(
        matches!(checks(&lines)[..], [("asked", Outcome::Passed(_))]),
        "{lines:?}"
    );
}

/// Returns whether a lane's check of the kernel's log passes with this output of `dmesg --decode`.
fn log_is_clean(check: &str, log: &str) -> bool {
    let lane = format!("lane() {{ check log 20 {check}; }}\n");
    let share = share(&lane);
    let programs = share.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let dmesg = programs.join("dmesg");
    let script_text = format!("#!/bin/sh\n[ $1 = --decode ] && cat <<'E'\n{log}\nE\n");
    let source = programs.join("source");
    fs::write(&source, script_text).unwrap();
    // Another process writes what is executed. If this one did, a child that another test is just
    // starting could have it open for writing, and executing it would fail with ETXTBSY.
    let mut install = Command::new("install");
    install.arg("--mode=755").arg(&source).arg(&dmesg);
    assert!(install.status().unwrap().success());
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let output = script(share.path()).env("PATH", path).output().unwrap();
    assert!(output.status.success());
    let mark = fs::read_to_string(share.path().join("kmsg")).unwrap();
    assert_eq!(mark, format!("<6>{MARK}\n"));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(Line::parse).collect();
    match checks(&lines)[..] {
        [("log", Outcome::Passed(_))] => true,
        [("log", Outcome::Failed(_))] => false,
        ref other => panic!("{other:?}"),
    }
}

const MARK: &str = "lab: the lane begins";

#[test]
fn the_kernels_log_is_judged_from_the_lanes_beginning() {
    let silent = "kern  :notice: [ 9.1] nfs: server 10.0.2.2 not responding, still trying";
    let allowed = "kernel_log_clean -e 'not responding, still trying$'";
    let mark = format!("user  :info  : [ 8.1] {MARK}");
    let early = "kern  :warn  : [ 0.1] early\nkern  :info  : [ 0.2] old Call Trace:";
    let log = |lines: &[&str]| lines.join("\n");
    let begun = |message: &str| log(&[early, &mark, message]);
    let plain = "kernel_log_clean";
    assert!(log_is_clean(plain, &begun("kern  :info  : [ 9.1] mounted")));
    assert!(log_is_clean(plain, &log(&[&mark])));
    assert!(
        !log_is_clean(plain, "kern  :info  : [ 9.1] mounted"),
        "no mark"
    );
    for level in ["warn  ", "err   ", "crit  ", "alert ", "emerg "] {
        assert!(!log_is_clean(
            plain,
            &begun(&format!("kern  :{level}: [ 9.1] mounted"))
        ));
    }
    // Errors that are not warnings, and warnings that a lane allows.
    assert!(!log_is_clean(
        plain,
        &begun("kern  :info  : [ 9.1] Call Trace:")
    ));
    assert!(!log_is_clean(plain, &begun(silent)));
    assert!(log_is_clean(allowed, &begun(silent)));
    // siw's own message: 0x11223344 in memory is 44 33 22 11, of which 33 22 11 came late.
    let crc =
        |got: &str| format!("kern  :warn  : [ 9.1] siw: crc error. in: {got}, own 11223344, op 3");
    for split in ["aabbcc11", "aabb1122", "aa112233"] {
        assert!(log_is_clean(plain, &begun(&crc(split))), "{split}");
    }
    for real in ["aabbccdd", "11aabbcc", "11223355"] {
        assert!(!log_is_clean(plain, &begun(&crc(real))), "{real}");
    }
    let told = "kern  :warn  : [ 9.2] siw: got TERMINATE. layer 2, type 0, code 2";
    assert!(!log_is_clean(plain, &begun(told)));
    assert!(log_is_clean(plain, &begun(&log(&[&crc("aabbcc11"), told]))));
    let worse = log(&[silent, "kern  :info  : [ 9.2] kernel BUG: here"]);
    assert!(!log_is_clean(allowed, &begun(&worse)));
}

#[test]
fn every_script_is_one() {
    for folder in ["guest", "lanes"] {
        for entry in fs::read_dir(home().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let status = Command::new("sh").arg("-n").arg(&path).status().unwrap();
            assert!(status.success(), "{}", path.display());
        }
    }
}
