//! Compares Debian's `tshark`'s decoding of a capture on the loopback interface with what this
//! project's code sent.
//!
//! A server and its clients run in this process, each over an iwarp device that records the
//! requests posted to it ([`rdma::middleware::Tapped`]). From these follow the values of every
//! RPC-over-RDMA, DDP, RDMAP, RPC and NFS field of the capture, in order. Needs root, for
//! `tcpdump`. An argument is a folder that keeps the captures. `--read FILE` checks only what the
//! dissector (`wireshark/`) shows of a capture of RoCE.
//!
//! The devices also write captures of their own, without root (`rdma-capture`): one of what the
//! server's device shows, and on each side one that middleware reconstructs. All have to be decoded
//! to the same fields, in packets that tshark has no complaint about.

#![forbid(unsafe_code)]

mod calls;
mod capture;
mod columns;
mod derive;
mod dissect;
mod dissector;
mod error;
mod expect;
mod own;
mod raw;
mod rpc;
mod scenario;
mod service;
mod verdict;

use std::path::Path;
use std::process::ExitCode;

use rpc_transport::rdma::Version;
use rpcrdma_protocols::RoundTripFeatures;

use crate::capture::Capture;
use crate::columns::{Columns, Direction};
use crate::error::Error;
use crate::expect::Expected;
use crate::own::Own;
use crate::scenario::{Form, Scenario, Stage};

/// The start of the private data (RFC 8797, section 4), in tshark's notation.
const PRIVATE_DATA_MAGIC: &str = "f6ab0e18";

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the report")]
fn main() -> ExitCode {
    let read = std::env::args_os().skip(1).collect::<Vec<_>>();
    let outcome = match &read[..] {
        [flag, file] if flag == "--read" => read_capture(Path::new(file)),
        [] => check(None),
        [folder] => check(Some(Path::new(folder))),
        _ => {
            eprintln!("wire-check [FOLDER], or wire-check --read FILE");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(report) => {
            for line in &report.lines {
                println!("{line}");
            }
            println!("{} checks, {} wrong", report.lines.len(), report.wrong);
            ExitCode::from(u8::from(report.wrong > 0))
        }
        Err(error) => {
            eprintln!("wire-check: {error}");
            ExitCode::from(2)
        }
    }
}

struct Report {
    lines: Vec<String>,
    wrong: usize,
}

impl Report {
    fn add(&mut self, right: bool, line: String) {
        self.wrong += usize::from(!right);
        self.lines.push(line);
    }

    /// Adds how many of `count` things of the dissector are right, and what is wrong with others.
    fn count(&mut self, what: &str, count: usize, wrong: &[String]) {
        for problem in wrong {
            self.add(false, format!("WRONG dissector: {what}: {problem}"));
        }
        let right = wrong.is_empty() && count > 0;
        let mark = if right { "ok" } else { "WRONG" };
        let problems = wrong.len();
        self.add(
            right,
            format!("{mark:<6}dissector: {what}: {count}, {problems} wrong"),
        );
    }
}

/// Checks what the dissector shows of a capture of RoCE.
fn read_capture(file: &Path) -> Result<Report, Error> {
    let mut report = Report {
        lines: Vec::new(),
        wrong: 0,
    };
    dissector::offline::check(file, &mut report)?;
    Ok(report)
}

/// Makes all checks. The captures stay in the folder, if there is one.
fn check(kept: Option<&Path>) -> Result<Report, Error> {
    let temporary = tempfile::tempdir().map_err(Error::ours("a folder for the capture"))?;
    let folder = kept.unwrap_or(temporary.path());
    let file = folder.join("loopback.pcap");

    // Stock tshark knows this version only.
    let own = Own::create(folder, "stock")?;
    let form = Form::Rdma(Version::ONE, RoundTripFeatures::default());
    let stage = Stage::set(form, Some(&own))?;
    let port = stage.address().port();
    let capture = Capture::start(port, &file)?;
    let scenario = stage.play();
    capture.stop()?;
    let scenario = scenario?;

    let sent = expected(&scenario, true)?;
    let mut decoded = dissect::dissect(&file, port)?;

    let mut report = Report {
        lines: Vec::new(),
        wrong: 0,
    };
    for direction in [Direction::Call, Direction::Reply] {
        for problem in derive::derive(&mut decoded, direction) {
            report.add(false, problem);
        }
    }
    for verdict in verdict::compare(&sent.columns, &decoded) {
        report.add(verdict.is_right(), verdict.to_string());
    }
    let facts = facts(&decoded, scenario.connections, sent.malformed, &file)?;
    for (what, wanted, found) in facts {
        let mark = if wanted == found { "ok" } else { "WRONG" };
        report.add(
            wanted == found,
            format!("{mark:<6}{what}: {found} of {wanted}"),
        );
    }
    // Middleware does not see the message by which an iWARP device begins.
    let beginning = [sent, expected(&scenario, false)?];
    for kind in own.finish()? {
        let sent = &beginning[usize::from(kind.is_reconstructed())];
        compare_own(&kind, sent, port, &mut report)?;
    }
    dissector::check(folder, &mut report)?;
    Ok(report)
}

/// Compares a capture that a device wrote with what was sent.
fn compare_own(
    file: &own::File,
    sent: &Expected,
    port: u16,
    report: &mut Report,
) -> Result<(), Error> {
    let name = file.name();
    let mut decoded = dissect::dissect(file.path(), port)?;
    for direction in [Direction::Call, Direction::Reply] {
        for problem in derive::derive(&mut decoded, direction) {
            report.add(false, format!("{problem} in {name}"));
        }
    }
    for verdict in verdict::compare(&sent.columns, &decoded) {
        report.add(verdict.is_right(), format!("{verdict} in {name}"));
    }
    let both = |field| {
        let calls = decoded.values(Direction::Call, field).iter();
        calls.chain(decoded.values(Direction::Reply, field))
    };
    let (good, bad) = dissect::checksums(file.path())?;
    let malformed = both("_ws.malformed").filter(|found| found.starts_with('['));
    let facts = [
        (
            "frames with a good CRC32c",
            both("iwarp_mpa.ulpdulength").count(),
            good,
        ),
        ("frames with a bad CRC32c", 0, bad),
        (
            "messages malformed for want of placed data",
            sent.malformed,
            malformed.count(),
        ),
        (
            "packets that tshark has a complaint about",
            0,
            dissect::complaints(file.path())?,
        ),
    ];
    for (what, wanted, found) in facts {
        let mark = if wanted == found { "ok" } else { "WRONG" };
        report.add(
            wanted == found,
            format!("{mark:<6}{what}: {found} of {wanted} in {name}"),
        );
    }
    Ok(())
}

/// Returns what was sent. `begins`: whether iWARP devices begin connections by a message of their
/// own.
fn expected(scenario: &Scenario, begins: bool) -> Result<Expected, Error> {
    let mut sent = Expected::new(begins);
    // Replies do not contain the procedure, so the calls come first.
    for direction in [Direction::Call, Direction::Reply] {
        for seen in scenario
            .seen
            .iter()
            .filter(|seen| seen.direction == direction)
        {
            sent.posted(direction, seen.connection, &seen.posted)?;
        }
    }
    Ok(sent)
}

/// Checks facts that the recorded requests do not show: connection setup, and tshark's complaints.
/// Returns descriptions with the expected and the actual number.
fn facts(
    decoded: &Columns,
    connections: usize,
    malformed: usize,
    file: &Path,
) -> Result<Vec<(&'static str, usize, usize)>, Error> {
    let both = |field| {
        let calls = decoded.values(Direction::Call, field).iter();
        calls.chain(decoded.values(Direction::Reply, field))
    };
    let count = |field, value: &str| both(field).filter(|found| *found == value).count();
    let messages = decoded.values(Direction::Call, "iwarp_mpa.rev").len();
    let (good, bad) = dissect::checksums(file)?;
    let frames = both("iwarp_mpa.ulpdulength").count();
    let complaints = both("_ws.malformed").filter(|found| found.starts_with('['));
    // The library's clients send private data (RFC 8797), the bare device does not.
    let private = both("iwarp_mpa.privatedata").filter(|data| data.contains(PRIVATE_DATA_MAGIC));
    Ok(vec![
        ("MPA requests", connections, messages),
        (
            "MPA set-up frames of revision 2",
            2 * connections,
            count("iwarp_mpa.rev", "2"),
        ),
        (
            "without markers",
            2 * connections,
            count("iwarp_mpa.marker_flag", "0"),
        ),
        (
            "with CRC",
            2 * connections,
            count("iwarp_mpa.crc_flag", "1"),
        ),
        ("private data of RFC 8797", 3, private.count()),
        ("frames with a good CRC32c", frames, good),
        ("frames with a bad CRC32c", 0, bad),
        (
            "messages malformed for want of placed data",
            malformed,
            complaints.count(),
        ),
    ])
}
