//! Tests that docs/tutorial.md, which explains the crate that `drafts/new` makes, names what is in it.

use std::fs;
use std::path::Path;

/// Returns whether the source contains a name, and not only as a part of another.
fn is_in_source(source: &str, name: &str) -> bool {
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    source.split(part).any(|word| word == name)
}

#[test]
fn every_method_in_the_tutorial_is_in_the_crate_that_is_made() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The package of this crate comes without them.
    let (Ok(tutorial), Ok(source)) = (
        fs::read_to_string(root.join("docs/tutorial.md")),
        fs::read_to_string(root.join("drafts/template/crate/src/lib.rs")),
    ) else {
        return;
    };
    let (_, table) = tutorial
        .split_once("| method |")
        .expect("it has a table of methods");
    let mut seen = 0;
    for row in table.lines().take_while(|line| line.contains('|')) {
        for name in row.split('`').skip(1).step_by(2) {
            if name.contains('-') {
                // A command.
                continue;
            }
            assert!(
                is_in_source(&source, name),
                "{name} is not in the crate: {row}"
            );
            seen += 1;
        }
    }
    assert!(seen >= 8, "only {seen} names were found");
}
