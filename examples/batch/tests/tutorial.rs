//! Tests that docs/tutorial.md, which explains this crate, names what is in it.

use std::fs;
use std::path::Path;

const SOURCE: &str = include_str!("../src/lib.rs");

/// Returns whether the source contains a name, and not only as a part of another.
fn is_in_source(name: &str) -> bool {
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    SOURCE.split(part).any(|word| word == name)
}

#[test]
fn every_name_in_the_tutorials_table_of_methods_is_in_the_source() {
    let tutorial = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    // The package of this crate comes without the tutorial.
    let Ok(tutorial) = fs::read_to_string(tutorial) else {
        return;
    };
    let (_, table) = tutorial
        .split_once("| method |")
        .expect("it has a table of methods");
    let mut seen = 0;
    for row in table.lines().take_while(|line| line.contains('|')) {
        let mut quoted = row.split('`').skip(1).step_by(2);
        // The other names in code style are of crates and files.
        let method = quoted.next();
        let others = quoted.filter(|name| name.contains("::") || name.contains("ROPT_"));
        for name in method.into_iter().chain(others) {
            let name = name.rsplit("::").next().unwrap_or(name);
            assert!(is_in_source(name), "{name} is not in src/lib.rs: {row}");
            seen += 1;
        }
    }
    assert!(seen >= 6, "only {seen} names were found");
}
