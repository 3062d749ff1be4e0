//! Compares a list of requirements (MUSTS.md) with the tests that it names. Shared by every crate
//! that has such a list.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A list of requirements, MUSTS.md beside a crate's manifest, and the place of its tests.
pub(crate) struct List {
    /// The crate's folder.
    pub(crate) folder: &'static str,
    /// Folders of the crates whose tests the list may name.
    pub(crate) crates: &'static [&'static str],
    /// Returns whether a test's name begins with a section of one of the documents.
    pub(crate) is_after_section: fn(&str) -> bool,
    /// Minimum number of tests that the list must name.
    pub(crate) min: usize,
}

fn is_name(word: &str) -> bool {
    word.contains('_')
        && word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
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

impl List {
    /// Checks that names in code style are of existing tests, that names in double quotes, which
    /// stand for tests still to be written, are not, and that every test named after a section is
    /// in the list.
    pub(crate) fn check(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let list = fs::read_to_string(root.join(self.folder).join("MUSTS.md")).unwrap_or_default();
        let rows = || list.lines().filter(|line| line.starts_with("| "));
        let between = |quote: char| -> BTreeSet<&str> {
            let words = rows().flat_map(|row| row.split(quote).skip(1).step_by(2));
            words.filter(|word| is_name(word)).collect()
        };
        let (listed, to_come) = (between('`'), between('"'));
        let mut tests = BTreeSet::new();
        for name in self.crates {
            for part in ["src", "tests"] {
                functions(&root.join(name).join(part), &mut tests);
            }
        }
        let missing: Vec<_> = listed
            .iter()
            .filter(|name| !tests.contains(**name))
            .collect();
        assert!(missing.is_empty(), "no such tests: {missing:#?}");
        assert!(listed.len() >= self.min, "only {} tests", listed.len());
        let there: Vec<_> = to_come
            .iter()
            .filter(|name| tests.contains(**name))
            .collect();
        assert!(there.is_empty(), "listed as to come, but there: {there:#?}");
        let unlisted: Vec<_> = tests
            .iter()
            .filter(|name| (self.is_after_section)(name) && !listed.contains(name.as_str()))
            .collect();
        assert!(unlisted.is_empty(), "not in MUSTS.md: {unlisted:#?}");
    }
}
