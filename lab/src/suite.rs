//! Test programs of a package of this workspace, built on the host to be run in the guest.
//!
//! They come as cargo makes them, without debugging information. A test that runs its package's own
//! command looks for it where cargo put it, so the guest is told that place: [`Suite::programs`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::cache;
use crate::command::Tool;
use crate::error::Error;
use crate::stop::Stop;

/// For building them from nothing, on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);
/// Where they are in the shared folder, package by package.
pub const FOLDER: &str = "tests";

/// What was built of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// Integration tests: their names in `tests/`, and the programs.
    pub tests: Vec<(String, PathBuf)>,
    /// The package's own programs, which tests run.
    pub programs: Vec<PathBuf>,
}

/// A line of what cargo says.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Suite {
    /// Builds it in the workspace of this folder.
    ///
    /// # Errors
    /// It cannot be built, or has no integration tests.
    pub fn build(workspace: &Path, package: &str, stop: &Stop) -> Result<Self, Error> {
        let said = Tool::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "test",
                "--no-run",
                "--locked",
                "--tests",
                "--package",
                package,
            ])
            .arg("--message-format=json-render-diagnostics")
            .folder(workspace)
            .limit(LIMIT)
            .run(stop)?;
        let suite = Self::read(&said);
        if suite.tests.is_empty() {
            return Err(Error::NoTests(package.to_owned()));
        }
        Ok(suite)
    }

    fn read(said: &str) -> Self {
        let mut suite = Self::default();
        for line in said.lines() {
            let Ok(message) = serde_json::from_str::<Message>(line) else {
                continue;
            };
            let (Some(path), Some(target)) = (message.executable, message.target) else {
                continue;
            };
            if message.reason != "compiler-artifact" {
                continue;
            }
            let is = |kind: &str| target.kind.iter().any(|word| word == kind);
            if is("test") {
                suite.tests.push((target.name, path));
            } else if is("bin") && path.file_name().is_some_and(|name| name == &*target.name) {
                // The tests of a program have its name and a hash.
                suite.programs.push(path);
            }
        }
        suite
    }

    /// Puts it into this folder: tests by their names, programs in `programs/` with a file `places`
    /// of their paths on the host.
    ///
    /// # Errors
    /// Something cannot be copied.
    pub fn copy(&self, folder: &Path, stop: &Stop) -> Result<(), Error> {
        let programs = folder.join("programs");
        fs::create_dir_all(&programs).map_err(Error::file(&programs))?;
        for (name, path) in &self.tests {
            strip(path, &folder.join(name), stop)?;
        }
        let mut places = String::new();
        for path in &self.programs {
            strip(
                path,
                &programs.join(path.file_name().unwrap_or_default()),
                stop,
            )?;
            places.push_str(&format!("{}\n", path.display()));
        }
        cache::write(&programs.join("places"), &places)
    }
}

fn strip(from: &Path, to: &Path, stop: &Stop) -> Result<(), Error> {
    let strip = Tool::new("strip").args(["--strip-debug", "-o"]);
    strip.arg(to).arg(from).run(stop).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_programs_are_told_apart() {
        let said = r#"
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"other"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"verbs"},"executable":"/t/deps/verbs-1"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"copy"},"executable":"/t/deps/copy-2"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"rpcrdma"},"executable":"/t/rpcrdma"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"rpcrdma"},"executable":"/t/deps/rpcrdma-3"}
{"reason":"build-finished","success":true}
"#;
        let wanted = Suite {
            tests: vec![("copy".to_owned(), "/t/deps/copy-2".into())],
            programs: vec!["/t/rpcrdma".into()],
        };
        assert_eq!(Suite::read(said), wanted);
    }

    #[test]
    fn what_is_copied_says_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let suite = Suite {
            tests: vec![("copy".to_owned(), program.clone())],
            programs: vec![program.clone()],
        };
        suite.copy(folder.path(), &Stop::new()).unwrap();
        assert!(folder.path().join("copy").is_file());
        let places = fs::read_to_string(folder.path().join("programs/places")).unwrap();
        assert_eq!(places, format!("{}\n", program.display()));
        let name = program.file_name().unwrap();
        assert!(folder.path().join("programs").join(name).is_file());
    }
}
