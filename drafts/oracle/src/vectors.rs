//! Writes test vectors for other implementations: values and damaged values about which both sides
//! agree. `drafts/vectors/README.md` describes the files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;

use bytes::Bytes;
use quickcheck::Gen;

use crate::damage::damage;
use crate::judge::{Agreement, hex, judge};
use crate::kind::{Kind, Refused};
use crate::program::Program;

/// The seed of the values, which makes the files reproducible.
const SEED: u64 = 20_160_603;
/// The maximum length of lists and byte strings.
const SIZE: usize = 12;
/// The maximum length of a vector, bytes.
const LONGEST: usize = 240;
/// The number of values of each type.
const VALUES: usize = 16;
/// The number of damaged values that are accepted, and of those that are rejected for each reason.
const DAMAGED: usize = 4;
/// The number of damaged values to choose from.
const TRIES: usize = 8_000;

/// Returns the content of a type's file.
///
/// # Errors
/// The C program ended, or disagrees.
pub fn file(kind: &Kind, program: &mut Program) -> io::Result<String> {
    let number = program.number(kind.xdr)?;
    let mut g = Gen::from_size_and_seed(SIZE, SEED);
    let mut rows = Vec::new();
    let mut seen = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut cases = Vec::new();
    for _ in 0..TRIES {
        let (bytes, _) = (kind.sample)(&mut g);
        let damaged = damage(&mut g, &bytes);
        cases.extend([bytes, damaged]);
    }
    for (at_once, cases) in cases.chunks(512).enumerate() {
        let answers = program.ask(number, cases)?;
        for (i, (bytes, there)) in cases.iter().zip(&answers).enumerate() {
            let here = (kind.read)(bytes);
            let verdict = judge(kind, bytes, here.clone(), there)
                .map_err(|why| io::Error::other(format!("{}: {}: {why}", kind.name, hex(bytes))))?;
            // Every second one is an undamaged value.
            let is_value = (at_once * 512 + i) % 2 == 0;
            let (group, most) = match (verdict, is_value) {
                (_, true) => ("value", VALUES),
                (Agreement::Accepted, _) => ("damaged", DAMAGED),
                (Agreement::Shortened, _) => ("shortened", DAMAGED),
                (Agreement::Refused, _) => ("form", DAMAGED),
                // The limits are this project's, so they are no test for others.
                (Agreement::Stricter(Refused::Limit), _) => continue,
                (Agreement::Stricter(refused), _) => (refused.name(), DAMAGED),
            };
            let count = counts.entry(group).or_default();
            if *count == most || bytes.len() > LONGEST || seen.contains(bytes) {
                continue;
            }
            *count += 1;
            seen.push(bytes.clone());
            rows.push(row(bytes, here, there.accepted));
        }
    }
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "{{\"format\": 1, \"kind\": \"{}\", \"type\": \"{}\", \"payload\": {}, \"vectors\": [",
        kind.name, kind.xdr, kind.has_payload
    );
    text.push_str(&rows.join(",\n"));
    text.push_str("\n]}\n");
    Ok(text)
}

fn row(bytes: &Bytes, here: Result<crate::kind::Read, Refused>, xdr: bool) -> String {
    let bytes_hex = hex(bytes);
    match here {
        Ok(read) => {
            let again = match read.again == bytes[..read.used] {
                true => String::new(),
                false => format!(", \"again\": \"{}\"", hex(&read.again)),
            };
            format!(
                "  {{\"bytes\": \"{bytes_hex}\", \"accept\": true, \"length\": {}{again}, \"value\": {}}}",
                read.used, read.json
            )
        }
        Err(refused) => format!(
            "  {{\"bytes\": \"{bytes_hex}\", \"accept\": false, \"reason\": \"{}\", \"xdr\": {xdr}}}",
            refused.name()
        ),
    }
}

/// Returns the answer to a line of the runner, which consists of a type's name and bytes in
/// hexadecimal (see `drafts/vectors/README.md`). Returns `None` if the line is invalid.
#[must_use]
pub fn answer(kinds: &[Kind], line: &str) -> Option<String> {
    let (xdr, text) = line.trim_end_matches(['\r', '\n']).split_once(' ')?;
    let kind = kinds.iter().find(|kind| kind.xdr == xdr)?;
    let digits = text.as_bytes().chunks_exact(2);
    if !digits.remainder().is_empty() {
        return None;
    }
    let bytes: Option<Vec<u8>> = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    Some(match (kind.read)(&bytes?.into()) {
        Ok(read) => format!("accept {} {} {}", read.used, hex(&read.again), read.json),
        Err(_) => "reject".to_owned(),
    })
}
