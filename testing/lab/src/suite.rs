//! Integration tests of a package of this workspace, built on the host and run in the guest:
//! cargo's test programs without debugging information. The lane tells them by environment
//! variables which devices and commands to use.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::command::Tool;
use crate::error::Error;
use crate::stop::Stop;

/// The time-out of a build from nothing on a busy machine.
const LIMIT: Duration = Duration::from_secs(1200);
/// The subdirectory of the test programs in the shared directory, with one directory per package.
pub const FOLDER: &str = "tests";

/// The integration tests of a package: their names in `tests/`, and the programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite(Vec<(String, PathBuf)>);

/// A message in cargo's output.
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
    /// Builds the tests in the given workspace.
    ///
    /// # Errors
    /// They cannot be built, or there are none.
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
        if suite.0.is_empty() {
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
            if target.kind == ["test"] {
                suite.0.push((target.name, path));
            }
        }
        suite
    }

    /// Copies the programs into a directory, by their names.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn copy(&self, folder: &Path, stop: &Stop) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        self.0
            .iter()
            .try_for_each(|(name, path)| strip(path, &folder.join(name), stop))
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
    fn only_integration_tests_are_taken() {
        let said = r#"
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"other"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"iwarp"},"executable":"/t/iwarp-1"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"copy"},"executable":"/t/copy-2"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"rpcrdma"},"executable":"/t/rpcrdma"}
{"reason":"build-finished","success":true}
"#;
        let wanted = Suite(vec![("copy".to_owned(), "/t/copy-2".into())]);
        assert_eq!(Suite::read(said), wanted);
    }

    #[test]
    fn programs_are_copied_by_the_names_of_their_tests() {
        let folder = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let suite = Suite(vec![("copy".to_owned(), program.clone())]);
        suite.copy(folder.path(), &Stop::new()).unwrap();
        let copied = fs::metadata(folder.path().join("copy")).unwrap().len();
        let len = fs::metadata(program).unwrap().len();
        assert!(copied > 0 && copied < len, "{copied} of {len}");
    }
}
