//! Runs commands on the host, all with a time-out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;
use crate::stop::Stop;

/// The default time-out.
const LIMIT: Duration = Duration::from_secs(60);
/// The number of bytes of a command's output that an error contains.
const SAID: usize = 2000;
/// The maximum size of a command's standard output that is kept, bytes: more than apt prints about
/// any package list.
const MOST_OUTPUT: u64 = 64 << 20;
/// The maximum interval at which a running command is polled.
const LOOK: Duration = Duration::from_millis(50);

/// A command to run to its end.
#[derive(Debug)]
pub struct Tool {
    command: Command,
    name: String,
    limit: Duration,
    output: Option<File>,
}

impl Tool {
    /// Creates a command in the C locale, so that its output can be parsed.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("PATH", path())
            .stdin(Stdio::null())
            .process_group(0);
        Self {
            command,
            name: program.to_string_lossy().into_owned(),
            limit: LIMIT,
            output: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env(name, value.into());
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the time-out.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the file for standard input.
    #[must_use]
    pub fn input(mut self, file: File) -> Self {
        self.command.stdin(file);
        self
    }

    /// Sets the file for standard output, which [`Tool::run`] then does not return.
    #[must_use]
    pub fn output(mut self, file: File) -> Self {
        self.output = Some(file);
        self
    }

    /// Runs the command and returns its standard output.
    ///
    /// # Errors
    /// The command cannot be started, fails, takes too long, or the lab is interrupted. In the last
    /// two cases the whole process group has been killed.
    pub fn run(mut self, stop: &Stop) -> Result<String, Error> {
        let scratch = || tempfile::tempfile().map_err(Error::system("a temporary file"));
        let share = |file: &File| file.try_clone().map_err(Error::system("a file handle"));
        let mut errors = scratch()?;
        let mut output = match self.output.take() {
            Some(file) => file,
            None => scratch()?,
        };
        self.command.stdout(share(&output)?).stderr(share(&errors)?);
        stop.check()?;
        let mut child = self.command.spawn().map_err(|source| Error::Start {
            program: self.name.clone(),
            source,
        })?;
        let status = wait(&mut child, self.limit, stop);
        let said = |errors: &mut File, output: &mut File| {
            let both = text(errors) + &text(output);
            tail(&both, SAID).to_owned()
        };
        match status? {
            Some(status) if status.success() => Ok(text(&mut output)),
            Some(status) => Err(Error::Command {
                said: said(&mut errors, &mut output),
                program: self.name,
                status: status.to_string(),
            }),
            None => Err(Error::TimedOut {
                said: said(&mut errors, &mut output),
                program: self.name,
                limit: self.limit,
            }),
        }
    }
}

/// Returns the search path of programs, with the directories of root's programs, which are missing
/// after a plain `su`.
fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Waits for a child that leads its process group. Returns `None` after killing the group on a
/// time-out.
fn wait(child: &mut Child, limit: Duration, stop: &Stop) -> Result<Option<ExitStatus>, Error> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().map_err(Error::system("wait"))? {
            return Ok(Some(status));
        }
        if stop.is_raised() {
            kill_group(child);
            return Err(Error::Interrupted);
        }
        if start.elapsed() >= limit {
            kill_group(child);
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
}

/// Kills the process group of a child that this process started as its leader, and reaps the child.
pub fn kill_group(child: &mut Child) {
    // After reaping, the child's process id may belong to another process.
    if let Ok(None) = child.try_wait() {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = child.wait();
    }
}

/// Returns the text of a file from its beginning, or an empty text if it cannot be read (the caller
/// may have opened it for writing only).
fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(0)).is_ok() {
        let _ = file.take(MOST_OUTPUT).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the end of a text, starting at the beginning of a line if possible.
#[must_use]
pub fn tail(text: &str, most: usize) -> &str {
    let text = text.trim_end();
    if text.len() <= most {
        return text;
    }
    let wanted = text.len() - most;
    let start = (wanted..text.len()).find(|at| text.is_char_boundary(*at));
    let end = &text[start.unwrap_or(text.len())..];
    end.find('\n').map_or(end, |at| &end[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Tool {
        Tool::new("sh").args(["-c", script])
    }

    #[test]
    fn output_is_returned_and_failure_tells_what_was_said() {
        let stop = Stop::new();
        assert_eq!(shell("echo yes; echo no >&2").run(&stop).unwrap(), "yes\n");
        let error = shell("echo why >&2; exit 7").run(&stop).unwrap_err();
        let Error::Command { said, status, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(said, "why");
        assert!(status.contains('7'));
    }

    #[test]
    fn time_is_up_for_the_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let begun = Instant::now();
        let limit = Duration::from_secs(2);
        let error = shell(&script).limit(limit).run(&Stop::new()).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let pid = std::fs::read_to_string(file).unwrap();
        // It is killed with its parent, which takes some time: afterwards it is gone, or a zombie
        // that is not reaped yet.
        let stat = format!("/proc/{}/stat", pid.trim());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it lives on");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_interrupt_ends_a_command() {
        let stop = Stop::new();
        stop.raise();
        assert!(matches!(
            shell("sleep 600").run(&stop),
            Err(Error::Interrupted)
        ));
    }

    #[test]
    fn input_and_output_can_be_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        std::fs::write(&path, "b\na\n").unwrap();
        let sorted = folder.path().join("sorted");
        Tool::new("sort")
            .input(File::open(&path).unwrap())
            .output(File::create(&sorted).unwrap())
            .run(&Stop::new())
            .unwrap();
        assert_eq!(std::fs::read_to_string(sorted).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_tail_starts_with_a_line() {
        assert_eq!(tail("one\ntwo\nthree\n", 8), "three");
        assert_eq!(tail("one\n", 8), "one");
        assert_eq!(tail("ééééé", 3), "é");
    }
}
