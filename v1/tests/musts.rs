//! MUSTS.md is true: the tests that it names exist, and tests named after a section are in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Crates whose tests MUSTS.md may name.
const CRATES: [&str; 5] = ["rpc", "v1", "conveyance", "transport", "nfs-binding"];

fn is_name(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a test is named after a section of one of the documents.
fn is_after_section(name: &str) -> bool {
    let digit = |c: char| ('3'..='5').contains(&c);
    name.starts_with("rfc8797_s")
        || name
            .strip_prefix('s')
            .is_some_and(|rest| rest.starts_with(digit) && rest[1..].starts_with('_'))
}

fn functions(dir: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let after_fn = text.split("fn ").skip(1);
            let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
            found.extend(
                after_fn
                    .filter_map(|rest| rest.split(end).next())
                    .map(str::to_owned),
            );
        }
    }
}

#[test]
fn the_list_of_requirements_and_the_tests_agree() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(here.join("MUSTS.md")).unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| "));
    let listed: BTreeSet<&str> = rows
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|word| is_name(word) && word.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    let mut tests = BTreeSet::new();
    for name in CRATES {
        for part in ["src", "tests"] {
            functions(&here.join("..").join(name).join(part), &mut tests);
        }
    }
    let missing: Vec<_> = listed
        .iter()
        .filter(|name| !tests.contains(**name))
        .collect();
    assert!(
        missing.is_empty() && listed.len() > 50,
        "no such tests: {missing:#?}"
    );
    let unlisted: Vec<_> = tests
        .iter()
        .filter(|name| is_after_section(name) && !listed.contains(name.as_str()))
        .collect();
    assert!(unlisted.is_empty(), "not in MUSTS.md: {unlisted:#?}");
}
