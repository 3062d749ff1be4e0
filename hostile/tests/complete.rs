//! That the tables leave nothing out: every field, characteristic, operation and error code in the XDR
//! of xcharext-02 and rtrext-00 (`drafts/xdr`) has a case of version 2. What is added to the one and not
//! to the other fails here.

use std::collections::{BTreeMap, BTreeSet};

use hostile::cases::{Case, TABLES};
use hostile::rig::Form;
use hostile::{client, server};

const SOURCES: [&str; 2] = [
    include_str!("../../drafts/xdr/xchar.x"),
    include_str!("../../drafts/xdr/rtr.x"),
];
/// `rdma_opttype` of ROPT_XMTERR.
const XMTERR: u32 = 8;

/// Every case of version 2.
fn cases() -> Vec<Case> {
    let tables = TABLES.iter().filter(|table| table.form == Form::Second);
    tables.flat_map(|table| (table.cases)(&[0; 32])).collect()
}

/// Declarations without their comments.
fn source() -> String {
    let text = SOURCES.concat();
    let parts = text.split("/*");
    let outside = parts.map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest));
    outside.collect()
}

/// Names of fields that are not structures or unions themselves, whose own fields stand for them.
fn fields(source: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        text.split_whitespace()
            .nth(1)
            .unwrap_or_default()
            .to_owned()
    };
    let mut composed = BTreeSet::new();
    let mut found = Vec::new();
    let mut inside = false;
    for line in source.lines() {
        let line = line.trim_end();
        let begins = line.starts_with("struct ") || line.starts_with("union ");
        if begins {
            composed.insert(word(line));
            inside = true;
        }
        if line == "};" {
            inside = false;
        }
        if let Some((_, switch)) = line.split_once("switch (") {
            let name = switch.trim_end_matches(") {");
            found.push(("enum".to_owned(), word(name)));
        } else if inside && line.ends_with(';') && !line.ends_with("void;") {
            // Types can be two words.
            let mut words = line.trim_end_matches(';').split_whitespace().rev();
            let (name, of) = (words.next(), words.next());
            found.push((
                of.unwrap_or_default().to_owned(),
                name.unwrap_or_default().to_owned(),
            ));
        }
    }
    let single = |(of, name): (String, String)| {
        let several = name.ends_with("<>") || name.starts_with('*');
        let plain = name.trim_matches(['*', '<', '>']).to_owned();
        (several || !composed.contains(&of)).then_some(plain)
    };
    found.into_iter().filter_map(single).collect()
}

/// Constants whose names begin like this, and their values.
fn constants(source: &str, prefix: &str) -> BTreeMap<String, u32> {
    let one = |line: &str| {
        let line = line.trim().trim_start_matches("const ");
        let (name, value) = line.trim_end_matches([';', ',']).split_once('=')?;
        let name = name.trim();
        let value = value.trim().parse().ok()?;
        name.starts_with(prefix).then(|| (name.to_owned(), value))
    };
    source.lines().filter_map(one).collect()
}

/// Whether a name has this word in it, and not only as a part of another.
fn names(name: &str, word: &str) -> bool {
    let part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    name.split(part).any(|found| found == word)
}

fn words(message: &[u8]) -> Vec<u32> {
    let words = message.chunks_exact(4).map(|word| word.try_into());
    words.flatten().map(u32::from_be_bytes).collect()
}

/// The operation that a message is, and its words.
fn operation(message: &[u32]) -> Option<u32> {
    match message {
        [_, 2, _, 5, _, opttype, ..] => Some(*opttype),
        _ => None,
    }
}

/// The code of ROPT_XMTERR's information.
fn code(info: &[u32]) -> Option<u32> {
    match info {
        [_, _, _, 0, code, ..] | [_, _, _, 1, _, _, _, code, ..] => Some(*code),
        _ => None,
    }
}

/// Operations and error codes that were said, and codes that were heard, by hostile ends.
#[derive(Default)]
struct Seen {
    operations: BTreeSet<u32>,
    said: BTreeSet<u32>,
    heard: BTreeSet<u32>,
}

impl Seen {
    fn say(&mut self, message: &[u8]) {
        let message = words(message);
        if let Some(opttype) = operation(&message) {
            self.operations.insert(opttype);
            if opttype == XMTERR {
                self.said.extend(message.get(7..).and_then(code));
            }
        }
    }

    fn hear(&mut self, message: &[u32]) {
        if operation(message) == Some(XMTERR) {
            self.heard.extend(message.get(7..).and_then(code));
        }
    }

    fn client(&mut self, steps: &[client::Step]) {
        for step in steps {
            match step {
                client::Step::Send(message) => self.say(message),
                client::Step::HearWords(message, _) => self.hear(message),
                client::Step::Repeat(_, steps) => self.client(steps),
                _ => {}
            }
        }
    }

    fn server(&mut self, steps: &[server::Step]) {
        for step in steps {
            match step {
                server::Step::Say(message) => self.say(message),
                server::Step::HearWords(message) => self.hear(message),
                server::Step::HearReport(_, _, fault) => self.heard.extend(fault.first()),
                server::Step::HearBadXid(_) => drop(self.heard.insert(5)),
                server::Step::Reject(info) => {
                    self.said.extend(code(&[&[0, 0], &info[..]].concat()));
                }
                server::Step::Patched(_) => drop(self.operations.insert(6)),
                _ => {}
            }
        }
    }
}

#[test]
fn every_field_and_characteristic_has_a_case() {
    let (source, cases) = (source(), cases());
    let fields = fields(&source);
    assert!(fields.len() > 45, "{fields:?}");
    let mut characteristics = constants(&source, "XCHAR_");
    characteristics.retain(|name, _| !name.starts_with("XCHAR_EXPERIMENTAL"));
    assert_eq!(characteristics.len(), 7);
    let mut wanted: Vec<&str> = fields.iter().map(String::as_str).collect();
    wanted.extend(characteristics.keys().map(String::as_str));
    wanted.extend(["XMDTYPE_TOOSHORT", "XMDTYPE_NOITEM"]);
    wanted.retain(|word| !cases.iter().any(|case| names(case.name(), word)));
    assert!(wanted.is_empty(), "without a case: {wanted:?}");
}

#[test]
fn every_operation_and_error_code_is_said_and_heard_at_both_ends() {
    let source = source();
    let operations: BTreeSet<u32> = constants(&source, "ROPT_").into_values().collect();
    let codes: BTreeSet<u32> = constants(&source, "OPTXERR_").into_values().collect();
    assert_eq!((operations.len(), codes.len()), (8, 8));
    let (mut to_server, mut to_client) = (Seen::default(), Seen::default());
    for case in cases() {
        match case {
            Case::Client(case) => to_server.client(&case.script),
            Case::Server(case) => to_client.server(&case.script),
        }
    }
    for (seen, victim) in [(to_server, "server"), (to_client, "client")] {
        assert!(
            seen.operations.is_superset(&operations),
            "{victim}: {:?}",
            seen.operations
        );
        assert_eq!(seen.heard, codes, "what a {victim} reports");
        assert!(
            seen.said.is_superset(&codes),
            "what a {victim} is told: {:?}",
            seen.said
        );
    }
}
