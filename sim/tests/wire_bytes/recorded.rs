//! The recorded exchanges, in files beside this test.

use std::path::PathBuf;

/// The environment variable that makes the test write the files instead of comparing them.
const RECORD: &str = "RECORD";

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire_bytes/recorded");
    PathBuf::from(folder).join(format!("{name}.txt"))
}

/// Compares an exchange with the recorded one of that name.
///
/// # Panics
/// The exchanges differ, or none is recorded.
pub(crate) fn check(name: &str, found: &str) {
    let path = path(name);
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path);
    let expected = expected.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if let Some(difference) = difference(&expected, found) {
        panic!(
            "The bytes of this exchange have changed: {}, {difference}\n\n\
             If they were meant to change, record them anew and look at the difference:\n    \
             {RECORD}=1 cargo test -p rpcrdma-sim --test wire_bytes && git diff\n",
            path.display()
        );
    }
}

/// Describes the first line that differs.
pub(crate) fn difference(expected: &str, found: &str) -> Option<String> {
    const END: &str = "(the end of the record)";
    let (mut expected, mut found) = (expected.lines(), found.lines());
    let mut step = "";
    for number in 1.. {
        let pair = match (expected.next(), found.next()) {
            (None, None) => return None,
            (was, is) => (was.unwrap_or(END), is.unwrap_or(END)),
        };
        if pair.0 == pair.1 {
            step = pair.0.strip_prefix("## ").unwrap_or(step);
            continue;
        }
        let words = pair.0.split(' ').zip(pair.1.split(' '));
        let same = words.take_while(|(was, is)| was == is);
        let same: usize = same.map(|(word, _)| word.len() + 1).sum();
        return Some(format!(
            "line {number}, in step {step:?}:\n\nexpected: {}\nfound:    {}\n          {}^",
            pair.0,
            pair.1,
            " ".repeat(same)
        ));
    }
    None
}
