//! Runs a lane in a guest, from an empty run directory to a report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use crate::build::Built;
use crate::build::pins::Pins;
use crate::cache::{self, Cache};
use crate::command::{Tool, tail};
use crate::error::Error;
use crate::lane::{Lane, Piece};
use crate::log::{Log, Screen};
use crate::machine::{self, Machine, Spec};
use crate::ports;
use crate::protocol::{Check, Line};
use crate::report::{self, Report, Row, Verdict};
use crate::service::{self, Meaning, Services};
use crate::stop::Stop;
use crate::suite::{self, Suite};
use crate::versions;
use crate::watch::{Clock, Ending, Watch};

/// The maximum delay until signals and processes of the host are noticed.
const LOOK: Duration = Duration::from_millis(50);
/// The number of bytes of the console that are shown when a guest does not come up, or dies.
const CONSOLE: usize = 3000;

/// The parameters of a lane's run.
#[derive(Debug)]
pub struct Order<'a> {
    /// The cache directory, with the guest and the logs.
    pub cache: &'a Cache,
    /// The packages of the guest.
    pub pins: &'a Pins,
    /// The lane.
    pub lane: &'a Lane,
    /// The directory of the guest's scripts.
    pub scripts: &'a Path,
    /// The workspace with the packages whose tests a lane runs.
    pub workspace: &'a Path,
    /// The time-out, if it differs from the lane's own.
    pub timeout: Option<Duration>,
    /// Whether to keep logs even if the lane passed.
    pub keep: bool,
    /// The programs by name. Others are searched for beside this program.
    pub bins: BTreeMap<String, PathBuf>,
    /// The log's output to standard output.
    pub screen: Screen,
    /// The number of processors of the guest ([`machine::processors`]).
    pub processors: usize,
    /// The handle that can end the run early.
    pub stop: &'a Stop,
}

/// Runs a lane. Returns a report however it ends, and writes it to `results/LANE.json`. Logs stay
/// in `logs/LANE-TIME` unless the lane passed.
///
/// # Errors
/// An error that prevents the run.
pub fn run(order: &Order<'_>) -> Result<Report, Error> {
    let started = Tool::new("date")
        .args(["-u", "+%Y%m%d-%H%M%S"])
        .run(order.stop)?;
    let name = format!("{}-{}", order.lane.name, started.trim());
    let folder = order.cache.path("logs").join(name);
    let meaning = prepare(order, &folder)?;
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let log = Log::with_file(order.screen.clone(), &folder.join("lane.log"))?;
    let suites = suites(order, &log)?;
    log.say(format!("lane {}: {}", order.lane.name, order.lane.about));
    for (name, version) in versions::of(order.pins) {
        log.say(format!("{name} {version}"));
    }
    log.say(format!("processors {}", order.processors));
    let report = boots(order, &meaning, &suites, &folder, &log)?;
    let json = serde_json::to_string_pretty(&report).unwrap_or_default() + "\n";
    let results = order.cache.path("results").join(&report.lane);
    cache::write(&results.with_extension("json"), &json)?;
    cache::write(&folder.join("report.json"), &json)?;
    keep_results(&meaning.share, &results)?;
    log.say(report.summary());
    if report.verdict == Verdict::Passed && !order.keep {
        cache::remove(&folder)?;
    } else {
        // Programs are large, and still exist where they were copied from.
        for name in ["bin", suite::FOLDER] {
            cache::remove(&meaning.share.join(name))?;
        }
        log.say(format!("logs: {}", folder.display()));
    }
    Ok(report)
}

/// The directory, below the shared one, of files that a lane wants to be kept in any case.
const RESULTS: &str = "out/results";

/// Keeps the lane's files in a directory with its name beside its report.
fn keep_results(share: &Path, folder: &Path) -> Result<(), Error> {
    cache::remove(folder)?;
    let from = share.join(RESULTS);
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    for entry in fs::read_dir(&from).map_err(Error::file(&from))? {
        let entry = entry.map_err(Error::file(&from))?;
        let to = folder.join(entry.file_name());
        fs::copy(entry.path(), &to).map_err(Error::file(&to))?;
    }
    Ok(())
}

/// Boots the guest with a shell on this terminal instead of the lane's script. The lane's programs
/// and functions are available; its processes on the host are not.
///
/// # Errors
/// An error that prevents the start.
pub fn shell(order: &Order<'_>) -> Result<(), Error> {
    let folder = order.cache.path("logs").join("shell");
    cache::remove(&folder)?;
    let meaning = prepare(order, &folder)?;
    share(
        order,
        &meaning,
        &suites(order, &Log::new(order.screen.clone()))?,
        "LAB_SHELL=1\n",
    )?;
    let spec = Spec {
        built: &Built::of(order.cache),
        share: &meaning.share,
        console: &folder.join("console.log"),
        forwards: &[],
        capture: None,
        processors: order.processors,
    };
    spec.on_terminal()?;
    if order.keep {
        Ok(())
    } else {
        cache::remove(&folder)
    }
}

/// Boots the guest until it comes up, and determines the verdict.
fn boots(
    order: &Order<'_>,
    meaning: &Meaning,
    suites: &BTreeMap<String, Suite>,
    folder: &Path,
    log: &Log,
) -> Result<Report, Error> {
    let built = Built::of(order.cache);
    let (console, capture) = (folder.join("console.log"), folder.join("guest-net.pcap"));
    let forwards = meaning.forwards.iter();
    let forwards: Vec<_> = forwards.map(|(guest, host)| (*host, *guest)).collect();
    let spec = Spec {
        built: &built,
        share: &meaning.share,
        console: &console,
        forwards: &forwards,
        capture: order.lane.capture.then_some(&capture),
        processors: order.processors,
    };
    let mut boots = 0;
    let (ending, run) = loop {
        boots += 1;
        share(order, meaning, suites, "")?;
        let machine = spec.start(&folder.join("qemu.log"))?;
        let (ending, run) = watch(order, meaning, machine, log)?;
        if matches!(ending, Ending::NeverUp | Ending::Died | Ending::TimedOut) {
            for name in ["qemu.log", "console.log"] {
                let text = fs::read(folder.join(name)).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                if !text.trim().is_empty() {
                    log.say(format!("{name} ends:\n{}", tail(&text, CONSOLE)));
                }
            }
        }
        if !ending.boots_again(boots) {
            break (ending, run);
        }
        log.say("the guest did not reach user space; booting again");
        let kept = folder.join(format!("console-{boots}.log"));
        fs::rename(&console, &kept).map_err(Error::file(&console))?;
    };
    let (verdict, because) = report::judge(order.lane.control, ending, &run.checks, run.clock_rate);
    Ok(Report {
        lane: order.lane.name.clone(),
        verdict,
        because,
        boots,
        boot_seconds: run.boot.map(|time| report::rounded(time.as_secs_f64())),
        clock_rate: run.clock_rate.map(report::rounded),
        seconds: report::rounded(log.elapsed().as_secs_f64()),
        checks: run.checks.iter().map(Row::from).collect(),
        versions: versions::of(order.pins),
    })
}

/// The events of one boot.
#[derive(Debug, Default)]
struct Run {
    boot: Option<Duration>,
    clock: Option<Clock>,
    clock_rate: Option<f64>,
    checks: Vec<Check>,
}

/// Follows a guest until it ends, it times out, or the lab is interrupted.
fn watch(
    order: &Order<'_>,
    meaning: &Meaning,
    mut machine: Machine,
    log: &Log,
) -> Result<(Ending, Run), Error> {
    let begun = log.elapsed();
    let mut watch = Watch::new(begun, order.timeout.unwrap_or(order.lane.timeout));
    let mut services = Services::new(&order.lane.hosts, meaning);
    let mut run = Run::default();
    loop {
        let now = log.elapsed();
        if order.stop.is_raised() {
            return Ok((Ending::Interrupted, run));
        }
        if let Some(ending) = watch.expired(now) {
            machine.kill();
            return Ok((ending, run));
        }
        services.poll(now, log)?;
        let line = match machine.lines.recv_timeout(LOOK.min(watch.patience(now))) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok((watch.machine_ended(), run)),
        };
        let now = log.elapsed();
        match Line::parse(&line) {
            Line::Up(uptime) => {
                watch.up(now);
                run.boot = Some(now - begun);
                run.clock = Some(Clock::new(uptime, now));
                log.say("user space is reached");
            }
            Line::Check(check) => {
                log.say(&line);
                run.checks.push(check);
            }
            Line::Ask(ask) => services.ask(now, &ask, log)?,
            Line::End(status, uptime) => {
                watch.script_ended(now, status);
                run.clock_rate = run.clock.and_then(|clock| clock.rate(uptime, now));
            }
            Line::Text(text) => log.say(format!("  {text}")),
        }
    }
}

/// Determines programs and ports before anything is started.
fn prepare(order: &Order<'_>, folder: &Path) -> Result<Meaning, Error> {
    let lane = order.lane;
    let lab = std::env::current_exe().map_err(Error::system("this program's path"))?;
    let mut bins = BTreeMap::new();
    let named = lane.hosts.iter().flat_map(|host| host.pieces());
    let named = named.filter_map(|piece| match piece {
        Piece::Bin(name) => Some(name),
        _ => None,
    });
    for name in named.chain(&lane.copies) {
        let path = order.bins.get(name).cloned();
        let path = path.unwrap_or_else(|| lab.with_file_name(name));
        if !path.is_file() {
            return Err(Error::NoProgram(path));
        }
        bins.insert(name.clone(), path);
    }
    for host in &lane.hosts {
        if let Some([Piece::Text(command)]) = host.words.first().map(Vec::as_slice)
            && !is_installed(command)
        {
            return Err(Error::NoCommand(command.clone()));
        }
    }
    let names = lane.ports();
    let mut free = ports::free(names.len() + lane.forwards.len())?.into_iter();
    Ok(Meaning {
        bins,
        ports: names.into_iter().zip(free.by_ref()).collect(),
        forwards: lane.forwards.iter().copied().zip(free).collect(),
        share: folder.join("share"),
        lab,
    })
}

/// Returns whether a command of the host exists: as a path, or as a name in the search path.
fn is_installed(command: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // Joining a directory and an absolute path returns the latter.
    std::env::split_paths(&paths).any(|folder| folder.join(command).is_file())
}

/// Builds the tests that the lane runs, by package.
fn suites(order: &Order<'_>, log: &Log) -> Result<BTreeMap<String, Suite>, Error> {
    let packages = order.lane.tests.iter();
    let built = packages.map(|package| {
        log.say(format!("building the tests of {package}"));
        let suite = Suite::build(order.workspace, package, order.stop)?;
        Ok((package.clone(), suite))
    });
    built.collect()
}

/// Creates the shared directory anew, so that a failed boot does not affect the next.
fn share(
    order: &Order<'_>,
    meaning: &Meaning,
    suites: &BTreeMap<String, Suite>,
    more: &str,
) -> Result<(), Error> {
    let share = &meaning.share;
    cache::remove(share)?;
    for name in ["bin", "guest", "out", service::ANSWERS] {
        let folder = share.join(name);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    }
    let copy = |from: &Path, to: &Path| fs::copy(from, to).map_err(Error::file(from)).map(drop);
    copy(&order.lane.path, &share.join("lane.sh"))?;
    for entry in fs::read_dir(order.scripts).map_err(Error::file(order.scripts))? {
        let entry = entry.map_err(Error::file(order.scripts))?;
        copy(&entry.path(), &share.join("guest").join(entry.file_name()))?;
    }
    for name in &order.lane.copies {
        if let Some(path) = meaning.bins.get(name) {
            copy(path, &share.join("bin").join(name))?;
        }
    }
    for (package, suite) in suites {
        suite.copy(&share.join(suite::FOLDER).join(package), order.stop)?;
    }
    let environment = environment(order.lane, meaning) + more;
    cache::write(&share.join("env.sh"), &environment)
}

/// Returns the parameters for the guest, as assignments of a shell.
fn environment(lane: &Lane, meaning: &Meaning) -> String {
    let mut text = format!("LANE={}\nHOST={}\n", lane.name, machine::HOST);
    for (name, port) in &meaning.ports {
        text.push_str(&format!("PORT_{name}={port}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` with an order for a lane with this header, in a directory of its own.
    fn ordered<T>(header: &str, test: impl FnOnce(&Order<'_>, &Path) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(&folder.path().join("cache")).unwrap();
        let script = folder.path().join("peers.sh");
        fs::write(&script, header).unwrap();
        let scripts = folder.path().join("guest");
        cache::write(&scripts.join("lib.sh"), "# lib").unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "binary").unwrap();
        let pins = Pins {
            release: "6.12".to_owned(),
            qemu: Vec::new(),
            kernel: Vec::new(),
            guest: Vec::new(),
            guest_names: Vec::new(),
        };
        let order = Order {
            cache: &cache,
            pins: &pins,
            lane: &Lane::read(&script).unwrap(),
            scripts: &scripts,
            workspace: folder.path(),
            timeout: None,
            keep: false,
            bins: [("rpcrdma".to_owned(), program)].into(),
            screen: Screen::Off,
            processors: 1,
            stop: &Stop::new(),
        };
        test(&order, folder.path())
    }

    #[test]
    fn the_guest_gets_scripts_programs_and_ports_and_nothing_of_the_boot_before() {
        let header = "#: copy rpcrdma\n#: host s = {bin:rpcrdma} {port:serve}\n#: forward 7\n";
        ordered(header, |order, folder| {
            let meaning = prepare(order, &folder.join("run")).unwrap();
            let share = folder.join("run/share");
            cache::write(&share.join("out/old"), "").unwrap();
            super::share(order, &meaning, &BTreeMap::new(), "MORE=1\n").unwrap();
            assert!(!share.join("out/old").exists() && share.join("out").is_dir());
            assert_eq!(
                fs::read_to_string(share.join("bin/rpcrdma")).unwrap(),
                "binary"
            );
            assert!(share.join("lane.sh").exists() && share.join("guest/lib.sh").exists());
            let environment = fs::read_to_string(share.join("env.sh")).unwrap();
            let port = meaning.ports["serve"];
            assert!(environment.contains(&format!("PORT_serve={port}\n")));
            assert!(environment.contains("LANE=peers\n") && environment.ends_with("MORE=1\n"));
            assert_ne!(meaning.forwards[&7], port);
        });
    }

    #[test]
    fn a_command_that_is_not_installed_is_named() {
        let lane =
            |command: &str| format!("#: host first = rm x\n#: host decode = {command} -r x\n");
        for command in ["no-such-command", "/no/such/command"] {
            ordered(&lane(command), |order, folder| {
                let error = prepare(order, folder).unwrap_err();
                assert!(
                    matches!(&error, Error::NoCommand(name) if name == command),
                    "{error}"
                );
            });
        }
        for command in ["sh", "/bin/sh"] {
            ordered(&lane(command), |order, folder| {
                prepare(order, folder).unwrap();
            });
        }
    }

    #[test]
    fn results_are_kept_and_those_of_the_run_before_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (share, kept) = (
            folder.path().join("share"),
            folder.path().join("results/verbs"),
        );
        cache::write(&share.join(RESULTS).join("compare.html"), "<html>").unwrap();
        keep_results(&share, &kept).unwrap();
        assert_eq!(
            fs::read_to_string(kept.join("compare.html")).unwrap(),
            "<html>"
        );
        cache::remove(&share).unwrap();
        keep_results(&share, &kept).unwrap();
        assert!(!kept.exists());
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        ordered("#: copy no-such-program\n", |order, folder| {
            let error = prepare(order, folder).unwrap_err();
            let is_named =
                matches!(&error, Error::NoProgram(path) if path.ends_with("no-such-program"));
            assert!(is_named, "{error}");
        });
    }
}
