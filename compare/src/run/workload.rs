//! The commands of `--run`: one of the user's own, or a preset by its name.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::mem;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rpcrdma_setup::{Context, Failure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::preset::{Phase, Preset};
use crate::served::Task;

/// The number of lines of a failed command's output that are shown.
const LINES: usize = 20;
/// The maximum number of bytes of output that are read for that, from its end.
const TAIL: i64 = 16 << 10;

/// A preset that needs a program which may not be installed.
#[derive(Debug)]
struct Script {
    name: &'static str,
    /// Debian's package with the program, which is called like the preset.
    package: &'static str,
    /// The preparation, which is not timed.
    prepare: &'static str,
    run: &'static str,
}

const SCRIPTS: [Script; 3] = [
    Script {
        name: "fio",
        package: "fio",
        prepare: "fio --name=prepare --filename=data --rw=write --bs=128k --size=8m --end_fsync=1 --output=/dev/null",
        run: "fio --name=mixed --filename=data --rw=randrw --bs=4k --size=8m --io_size=1m --fsync=8 \
              --randrepeat=1 --allrandrepeat=1 --randseed=1 --output=/dev/null",
    },
    Script {
        name: "git",
        package: "git",
        prepare: "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
            git init -q origin && cd origin && i=0
            while [ $i -lt 48 ]; do
                mkdir -p d$((i % 6)) && seq $((i * 100)) $((i * 117 + 200)) >d$((i % 6))/f$i
                i=$((i + 1))
            done
            git add . && git -c user.name=n -c user.email=n@example.org commit -qm one",
        run: "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
            git clone -q --no-hardlinks origin copy && cd copy && git status --short &&
            for file in d*/f*1; do echo more >>$file; done &&
            git -c user.name=n -c user.email=n@example.org commit -qam two && git fsck --no-progress",
    },
    Script {
        name: "sqlite3",
        package: "sqlite3",
        prepare: "sqlite3 db 'create table t (a integer primary key, b blob)'",
        run: "i=0
            while [ $i -lt 24 ]; do
                echo \"begin; insert into t (b) values (randomblob(900)), (randomblob(300));
                    update t set b = randomblob(500) where a % 13 = $((i % 13)); commit;\"
                i=$((i + 1))
            done | sqlite3 db && [ \"$(sqlite3 db 'pragma integrity_check')\" = ok ]",
    },
];

/// The work that is repeated in mounts.
#[derive(Clone, Debug)]
pub(crate) enum Workload {
    /// A command for `/bin/sh`, and one that is run before it and is not timed.
    Shell {
        /// The preset's name, or the command.
        name: String,
        prepare: Option<String>,
        run: String,
    },
    /// Work of this program itself.
    Preset(Preset),
}

impl Workload {
    /// The names of all presets.
    pub(crate) fn presets() -> Vec<&'static str> {
        let own = Preset::ALL.iter().map(|preset| preset.name());
        own.chain(SCRIPTS.iter().map(|script| script.name))
            .collect()
    }

    /// Returns what `--run` and `--prepare` ask for.
    ///
    /// # Errors
    /// A preset's program is not installed, or a preset is given something to prepare.
    pub(crate) fn new(run: &str, prepare: Option<&str>) -> Result<Self, Failure> {
        let name = run.trim();
        if name.is_empty() {
            return Err(Failure::usage("--run: there is no command"));
        }
        let preset = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        let script = SCRIPTS.iter().find(|script| script.name == name);
        if prepare.is_some() && (preset.is_some() || script.is_some()) {
            let text = format!("--prepare: not with the preset {name}, which prepares itself");
            return Err(Failure::Usage(text));
        }
        if let Some(preset) = preset {
            return Ok(Self::Preset(preset));
        }
        let Some(script) = script else {
            return Ok(Self::Shell {
                name: run.to_owned(),
                prepare: prepare.map(str::to_owned),
                run: run.to_owned(),
            });
        };
        if !is_installed(script.name) {
            return Err(Failure::Work(format!(
                "--run {name}: the program {name} is not installed (Debian's package {}); \
                 the presets {} need no program",
                script.package,
                Preset::ALL.map(Preset::name).join(", ")
            )));
        }
        Ok(Self::Shell {
            name: name.to_owned(),
            prepare: Some(script.prepare.to_owned()),
            run: script.run.to_owned(),
        })
    }

    /// Returns the preset's name, or the command.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Shell { name, .. } => name,
            Self::Preset(preset) => preset.name(),
        }
    }

    /// Returns whether there is something to do before the timed part.
    pub(crate) fn prepares(&self) -> bool {
        match self {
            Self::Shell { prepare, .. } => prepare.is_some(),
            Self::Preset(_) => true,
        }
    }

    /// Runs one part in the directory `at`. `words` make this program carry out a [`Task`].
    ///
    /// # Errors
    /// The command cannot be started, or fails; the error then contains the end of its output.
    pub(crate) fn perform(&self, phase: Phase, at: &Path, words: &[String]) -> Result<(), Failure> {
        let mut command = match self {
            Self::Shell { prepare, run, .. } => {
                let mut shell = Command::new("/bin/sh");
                let line = match phase {
                    Phase::Prepare => prepare.as_deref().unwrap_or(":"),
                    Phase::Run => run,
                };
                shell.args(["-c", line]);
                shell
            }
            Self::Preset(preset) => {
                let task = Task::Preset(*preset, phase);
                let program = env::current_exe().context("cannot find this program's own file")?;
                let mut again = Command::new(program);
                let task = serde_json::to_string(&task).map_err(Failure::work)?;
                again.args(words).arg(task);
                again
            }
        };
        let mut said = tempfile::tempfile().context("cannot make a temporary file")?;
        let to_file = |file: &File| file.try_clone().context("cannot use a temporary file");
        command
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(to_file(&said)?)
            .stderr(to_file(&said)?);
        let status = run(&mut command).context("cannot start the command")?;
        match status.success() {
            true => Ok(()),
            false => Err(failed(phase, status, &mut said)),
        }
    }
}

/// The command that runs, for the thread that handles signals.
static RUNNING: Mutex<Running> = Mutex::new(Running::Nothing);

enum Running {
    Nothing,
    Command(Pid),
    /// A signal ends this process, which starts no more commands.
    Ending,
}

/// How long the failure of a command waits for a signal to this process: Ctrl-C reaches both, in any
/// order.
const SIGNALLED: Duration = Duration::from_millis(200);
/// How long a signal waits for a command that is being started, perhaps in a mount that does not answer.
const STARTING: Duration = Duration::from_secs(1);

/// Ends the command of `--run` that runs, with the processes that it has started by then, because a signal
/// ends this process. From then on, the thread that runs commands waits for the end of the process, so that
/// the failure of the command, which the signal has caused, is not reported.
///
/// The command stays in the process group of this process. In one of its own it would be a background job: it
/// would get no Ctrl-C, and SIGTTIN when it asks for a password.
pub fn end_command() {
    let deadline = Instant::now() + STARTING;
    let mut running = loop {
        match RUNNING.try_lock() {
            Ok(running) => break running,
            Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return,
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
        }
    };
    // The lock is held: the command is not reaped meanwhile, so its number is not another process's.
    if let Running::Command(command) = mem::replace(&mut *running, Running::Ending) {
        // Found before any of them ends, as the children of an ended process get another parent.
        let started = descendants(command);
        for process in [command].into_iter().chain(started) {
            // It may have ended by itself.
            let _ = kill_process(process, Signal::TERM);
        }
    }
}

/// Returns the descendants of a process. Those whose parent has ended have another one, and are not found.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = vec![of.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        found.extend(children.remove(process).unwrap_or_default());
        next += 1;
    }
    found
        .into_iter()
        .skip(1)
        .filter_map(Pid::from_raw)
        .collect()
}

/// Returns the number of a process's parent, from the text of `/proc/PID/stat`: proc_pid_stat(5). The
/// name before it is in parentheses, and may contain some itself.
fn parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a command to its end. Does not return if a signal ends this process meanwhile.
fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut running = unless_ending();
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    *running = Running::Command(pid);
    drop(running);
    // Without the lock, which the thread that handles signals needs, and without reaping the command.
    let ended = loop {
        match waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        ) {
            Err(Errno::INTR) => {}
            ended => break ended,
        }
    };
    if !matches!(&ended, Ok(Some(status)) if status.exit_status() == Some(0)) {
        thread::sleep(SIGNALLED);
    }
    let mut running = unless_ending();
    *running = Running::Nothing;
    ended?;
    child.wait()
}

/// Returns the command that runs. Does not return after [`end_command`].
fn unless_ending() -> MutexGuard<'static, Running> {
    loop {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*running, Running::Ending) {
            return running;
        }
        drop(running);
        thread::park();
    }
}

/// Returns the error for a command that failed, with the end of its output.
fn failed(phase: Phase, status: ExitStatus, said: &mut File) -> Failure {
    let what = match phase {
        Phase::Prepare => "what was to be prepared failed",
        Phase::Run => "the command failed",
    };
    match tail(said) {
        text if text.is_empty() => Failure::Work(format!("{what}: {status}; it printed nothing")),
        text => Failure::Work(format!("{what}: {status}; it printed\n{text}")),
    }
}

/// Returns the last lines of a file.
fn tail(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let begun = file
        .seek(SeekFrom::End(0))
        .and_then(|len| file.seek(SeekFrom::Start(len.saturating_sub(TAIL as u64))));
    if begun.and_then(|_| file.read_to_end(&mut bytes)).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Returns the processor time of all child processes that have ended and been waited for, and of
/// theirs, in nanoseconds.
pub(crate) fn children_cpu_ns() -> Result<u64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .context("cannot get the processor time of commands")?;
    let nanos = usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds();
    Ok(u64::try_from(nanos).unwrap_or(0))
}

fn is_installed(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|path| path.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_preset_and_everything_else_a_command() {
        let name =
            |run| Workload::new(run, None).map(|work| (work.name().to_owned(), work.prepares()));
        assert_eq!(name(" tree ").unwrap(), ("tree".to_owned(), true));
        assert_eq!(name("tree .").unwrap(), ("tree .".to_owned(), false));
        assert!(Workload::new("ls", Some("touch x")).unwrap().prepares());
        for (run, prepare) in [("", None), ("  ", None), ("random", Some("true"))] {
            let refused = Workload::new(run, prepare).unwrap_err();
            assert!(matches!(refused, Failure::Usage(_)), "{refused}");
        }
        let presets = Workload::presets();
        assert_eq!(presets, ["tree", "random", "log", "fio", "git", "sqlite3"]);
    }

    #[test]
    fn a_failed_command_is_reported_with_the_end_of_its_output() {
        let dir = tempfile::tempdir().unwrap();
        let fail = |run: &str| {
            let work = Workload::new(run, None).unwrap();
            work.perform(Phase::Run, dir.path(), &[])
                .unwrap_err()
                .to_string()
        };
        let said = fail("seq 100; echo oh >&2; exit 3");
        assert!(
            said.starts_with("the command failed: exit status: 3; it printed\n82\n"),
            "{said}"
        );
        assert!(said.ends_with("\n100\noh"), "{said}");
        assert!(fail("kill -9 $$").contains("signal: 9 (SIGKILL); it printed nothing"));
    }

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_name_is() {
        assert_eq!(parent("12 (sh) S 7 12 7 0 -1"), Some(7));
        assert_eq!(parent("12 (a) S 1 (b) R 9 12 7 0 -1"), Some(9));
        assert_eq!(parent(""), None);
    }

    #[test]
    fn processes_are_found_with_those_that_they_have_started() {
        let script = "sh -c 'sleep 1000; true' & wait";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", script])
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&shell);
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut found = Vec::new();
        while found.len() < 2 && Instant::now() < deadline {
            found = descendants(pid);
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(found.len(), 2);
        assert!(!found.contains(&pid));
        for process in found {
            kill_process(process, Signal::TERM).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn the_time_of_a_command_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let before = children_cpu_ns().unwrap();
        let work = Workload::new("i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done", None);
        work.unwrap().perform(Phase::Run, dir.path(), &[]).unwrap();
        assert!(children_cpu_ns().unwrap() > before);
    }
}
