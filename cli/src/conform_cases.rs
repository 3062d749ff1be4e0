//! Cases of `conform` that are in files, and those that are written from captures.

use std::fs::File;
use std::path::Path;

use rpcrdma_conform::case::{Case, Ground};
use rpcrdma_conform::cases;
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_conform::file::{Error, MOST_CASES, Recorded, Recording, Vocabularies, Written, load};
use rpcrdma_reading::{At, Connection, Side, Sink, Version};
use rpcrdma_setup::Failure;
use rpcrdma_setup::units::count;

use crate::args::ConformArgs;
use crate::{lint, output};

/// Returns the cases that are performed on this ground: the built-in ones, those of files, or both.
pub(crate) fn all(args: &ConformArgs, ground: &Ground) -> Result<Vec<Case>, Failure> {
    if args.cases.is_empty() {
        return Ok(cases::all(ground));
    }
    let vocabularies = Vocabularies::read(&args.xdr).map_err(wrong)?;
    let mut all = match args.built_in {
        true => cases::all(ground),
        false => Vec::new(),
    };
    let own = load(&args.cases, &vocabularies, ground, &all).map_err(wrong)?;
    all.extend(own);
    Ok(all)
}

fn wrong(error: Error) -> Failure {
    Failure::Usage(error.to_string())
}

/// Prints cases that are made of a capture.
///
/// # Errors
/// The capture cannot be read, or no case can be made of it.
pub(crate) fn from(args: &ConformArgs, capture: &Path) -> Result<(), Failure> {
    let name = capture.display();
    let unreadable = |error: &dyn std::fmt::Display| Failure::Usage(format!("{name}: {error}"));
    let file = File::open(capture).map_err(|error| unreadable(&error))?;
    let vocabularies = Vocabularies::read(&args.xdr).map_err(wrong)?;
    let mut sink = Recorder {
        recording: Recording::new(vocabularies),
        result: Ok(()),
    };
    let summary = rpcrdma_reading::read(file, &mut sink).map_err(|error| unreadable(&error))?;
    sink.result.map_err(wrong)?;
    let stem = capture.file_stem().unwrap_or_default().to_string_lossy();
    let document = format!("captured-{}", small(&stem));
    let source = capture.file_name().unwrap_or_default().to_string_lossy();
    let written = sink.recording.written(&document, &small(&source));
    let Written { text, cases, left } = written.map_err(wrong)?;
    let cut = lint::not_to_the_end(&summary);
    if cases == 0 {
        let why = match summary.connections {
            0 => lint::NO_CONNECTION,
            _ => "no call in it can be made again, and has a reply.",
        };
        let cut = cut.map(|it| format!(" {it}")).unwrap_or_default();
        return Err(Failure::work(format_args!("{name}: {why}{cut}")));
    }
    output::line(text.trim_end())?;
    let beyond = match left.beyond {
        0 => String::new(),
        more => {
            let more = count(more, "exchange", "exchanges");
            format!("{more} of other kinds (at most {MOST_CASES} cases are made), ")
        }
    };
    output::complain(format_args!(
        "{name}: {}; left out: {} like one of these, {beyond}and {} without a call that can be made again, or without \
         a reply.{}",
        count(cases as u64, "case", "cases"),
        count(left.alike, "exchange", "exchanges"),
        count(left.others, "message", "messages"),
        cut.map(|it| format!(" {it}")).unwrap_or_default()
    ));
    Ok(())
}

/// Returns a name as an address can have it.
fn small(name: &str) -> String {
    let letter = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') => c,
        _ => '-',
    };
    name.chars().take(64).map(letter).collect()
}

/// Passes the messages of a capture on.
struct Recorder {
    recording: Recording,
    result: Result<(), Error>,
}

impl Sink for Recorder {
    fn sent(&mut self, connection: &Connection, from: Side, at: At, octets: &[u8]) {
        let dialect = match connection.version {
            Some(Version::One) => Dialect::One,
            Some(Version::Two) => Dialect::Two,
            Some(Version::TwoWg) => Dialect::Wg,
            None => return,
        };
        let message = Recorded {
            packet: at.packet,
            connection: connection.id.0,
            dialect,
            from_client: from == Side::Client,
            octets: octets.to_vec(),
        };
        if self.result.is_ok() {
            self.result = self.recording.take(message);
        }
    }
}
