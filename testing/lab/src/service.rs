//! Processes on the host that a lane declares and the guest controls: a server that the guest
//! mounts, and kills during its work; or a client that works on the guest's server.
//!
//! The guest sends requests on its serial line ([`Ask`]) and finds the answer, an exit status, in a
//! file of the shared directory. Only processes that the lane's header declares can be started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::kill_group;
use crate::error::Error;
use crate::lane::{Host, Piece};
use crate::log::Log;
use crate::ports;
use crate::protocol::{Ask, Request};

/// The time-out for a process to listen on its ports, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(30);
/// The answer if the lab cannot do what is requested: the status that timeout(1) uses for its own
/// failures.
const CANNOT: i32 = 125;
/// The subdirectory for answers in the shared directory.
pub const ANSWERS: &str = "answers";

/// The values of `{…}` in a lane's commands.
#[derive(Clone, Debug, Default)]
pub struct Meaning {
    /// The programs, by name.
    pub bins: BTreeMap<String, PathBuf>,
    /// The ports of the host, by name.
    pub ports: BTreeMap<String, u16>,
    /// The ports of the host, by the guest's port that they are forwarded to.
    pub forwards: BTreeMap<u16, u16>,
    /// The shared folder.
    pub share: PathBuf,
    /// The path of this program.
    pub lab: PathBuf,
}

impl Meaning {
    /// Returns a process's program and arguments, with `args` in place of `{args}`. Returns `None`
    /// if a value is missing, which does not happen for a prepared lane, or if the command has no
    /// place for the words.
    #[must_use]
    pub fn command(&self, host: &Host, args: &[String]) -> Option<Vec<OsString>> {
        let mut words = Vec::new();
        let mut has_place = args.is_empty();
        for word in &host.words {
            if *word == [Piece::Args] {
                has_place = true;
                words.extend(args.iter().map(OsString::from));
            } else {
                words.push(self.word(word)?);
            }
        }
        has_place.then_some(words)
    }

    fn word(&self, pieces: &[Piece]) -> Option<OsString> {
        let mut word = OsString::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => word.push(text),
                Piece::Bin(name) => word.push(self.bins.get(name)?),
                Piece::Port(name) => word.push(self.ports.get(name)?.to_string()),
                Piece::Forward(port) => word.push(self.forwards.get(port)?.to_string()),
                Piece::Share => word.push(&self.share),
                Piece::Lab => word.push(&self.lab),
                Piece::Args => return None,
            }
        }
        Some(word)
    }
}

/// A process that a request started, with its pending request.
#[derive(Debug)]
struct Process {
    child: Child,
    /// The pending request, with the time of its time-out.
    waiting: Option<(String, Request, Duration)>,
    /// The ports that it must listen on.
    ports: Vec<u16>,
}

/// All processes of a lane.
#[derive(Debug)]
pub struct Services<'a> {
    hosts: &'a [Host],
    meaning: &'a Meaning,
    running: BTreeMap<String, Process>,
}

impl<'a> Services<'a> {
    /// Creates a manager without processes.
    #[must_use]
    pub fn new(hosts: &'a [Host], meaning: &'a Meaning) -> Self {
        Self {
            hosts,
            meaning,
            running: BTreeMap::new(),
        }
    }

    /// Performs a request of the guest, or begins to.
    ///
    /// # Errors
    /// An answer cannot be written.
    pub fn ask(&mut self, now: Duration, ask: &Ask, log: &Log) -> Result<(), Error> {
        log.say(format!("host: {} {}", ask.request, ask.name));
        match ask.request {
            Request::Start | Request::Run => {
                // Ends a process that outlived the check which started it.
                self.end(&ask.name);
                match self.spawn(now, ask) {
                    Ok(process) => {
                        self.running.insert(ask.name.clone(), process);
                        Ok(())
                    }
                    Err(why) => {
                        log.say(format!("host: {}: {why}", ask.name));
                        self.answer(&ask.id, CANNOT)
                    }
                }
            }
            Request::Kill => {
                let status = if self.end(&ask.name) { 0 } else { CANNOT };
                self.answer(&ask.id, status)
            }
            Request::Stop => match self.running.get_mut(&ask.name) {
                Some(process) => {
                    terminate(&mut process.child);
                    process.waiting = Some((ask.id.clone(), Request::Stop, now + PATIENCE));
                    Ok(())
                }
                None => self.answer(&ask.id, CANNOT),
            },
        }
    }

    /// Answers the requests that are complete by now.
    ///
    /// # Errors
    /// An answer cannot be written, or the state of a process cannot be read.
    pub fn poll(&mut self, now: Duration, log: &Log) -> Result<(), Error> {
        let mut answers = Vec::new();
        let mut ended = Vec::new();
        let wait = Error::system("the state of a process");
        let mut states = Vec::new();
        for (name, process) in &mut self.running {
            states.push((name.clone(), process.child.try_wait()));
        }
        let states: Result<Vec<_>, _> = states
            .into_iter()
            .map(|(name, state)| state.map(|state| (name, state)))
            .collect();
        for (name, exit) in states.map_err(wait)? {
            let Some(process) = self.running.get_mut(&name) else {
                continue;
            };
            if let Some(exit) = exit {
                let asked = process.waiting.take();
                match asked {
                    Some((id, Request::Run | Request::Stop, _)) => {
                        answers.push((id, status(exit)));
                    }
                    Some((id, ..)) => {
                        log.say(format!("host: {name} did not start ({exit})"));
                        answers.push((id, CANNOT));
                    }
                    None => log.say(format!("host: {name} ended ({exit})")),
                }
                ended.push(name);
                continue;
            }
            let Some((id, request, deadline)) = process.waiting.take() else {
                continue;
            };
            let is_late = now >= deadline;
            match request {
                Request::Start if listens(&process.ports) => answers.push((id, 0)),
                Request::Start | Request::Stop if is_late => {
                    log.say(format!("host: {name} did not {request} in time"));
                    kill_group(&mut process.child);
                    answers.push((id, CANNOT));
                    ended.push(name);
                }
                // The guest or the lane's time-out ends the wait.
                _ => process.waiting = Some((id, request, deadline)),
            }
        }
        for name in ended {
            self.running.remove(&name);
        }
        answers
            .into_iter()
            .try_for_each(|(id, status)| self.answer(&id, status))
    }

    /// Returns whether an answer is pending.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.running
            .values()
            .any(|process| process.waiting.is_some())
    }

    /// Kills a process if it is running.
    fn end(&mut self, name: &str) -> bool {
        let process = self.running.remove(name);
        process.is_some_and(|mut process| {
            kill_group(&mut process.child);
            true
        })
    }

    fn spawn(&self, now: Duration, ask: &Ask) -> Result<Process, String> {
        let host = self.hosts.iter().find(|host| host.name == ask.name);
        let host = host.ok_or("the lane declares no such process")?;
        let words = self
            .meaning
            .command(host, &ask.words)
            .ok_or("a part of its command has no meaning, or there is no place for words")?;
        let said = |error: std::io::Error| error.to_string();
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.meaning.share.join(format!("host-{}.log", host.name)))
            .map_err(said)?;
        let output = match ask.request {
            Request::Run => File::create(self.answers().join(format!("{}.out", ask.id))),
            _ => errors.try_clone(),
        };
        // The process ends with the lab in any case.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(&words)
            .stdin(Stdio::null())
            .stdout(output.map_err(said)?)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(said)?;
        let ports = host
            .ports()
            .filter_map(|name| self.meaning.ports.get(name).copied());
        Ok(Process {
            child,
            waiting: Some((ask.id.clone(), ask.request, now + PATIENCE)),
            ports: ports.collect(),
        })
    }

    fn answers(&self) -> PathBuf {
        self.meaning.share.join(ANSWERS)
    }

    /// Writes an answer atomically.
    fn answer(&self, id: &str, status: i32) -> Result<(), Error> {
        let partial: &Path = &self.answers().join(format!("{id}.part"));
        let whole = self.answers().join(id);
        fs::write(partial, format!("{status}\n")).map_err(Error::file(partial))?;
        fs::rename(partial, &whole).map_err(Error::file(&whole))
    }
}

impl Drop for Services<'_> {
    fn drop(&mut self) {
        for process in self.running.values_mut() {
            kill_group(&mut process.child);
        }
    }
}

fn listens(wanted: &[u16]) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let listening = ports::listening();
    wanted.iter().all(|port| listening.contains(port))
}

fn terminate(child: &mut Child) {
    // After reaping, the child's process id may belong to another process.
    if let Ok(None) = child.try_wait()
        && let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
    {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Returns an exit status as in a shell.
fn status(exit: ExitStatus) -> i32 {
    let signal = exit.signal().map(|signal| 128 + signal);
    exit.code().or(signal).unwrap_or(CANNOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn text(word: &str) -> Vec<Piece> {
        vec![Piece::Text(word.to_owned())]
    }

    fn host(name: &str, words: &[&str]) -> Host {
        Host {
            name: name.to_owned(),
            words: words.iter().map(|word| text(word)).collect(),
        }
    }

    fn ask(id: &str, request: Request, name: &str) -> Ask {
        Ask {
            id: id.to_owned(),
            request,
            name: name.to_owned(),
            words: Vec::new(),
        }
    }

    struct Room {
        folder: tempfile::TempDir,
        meaning: Meaning,
        begun: Instant,
        log: Log,
    }

    impl Room {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join(ANSWERS)).unwrap();
            let meaning = Meaning {
                share: folder.path().to_path_buf(),
                ..Meaning::default()
            };
            Self {
                folder,
                meaning,
                begun: Instant::now(),
                log: Log::new(crate::log::Screen::Off),
            }
        }

        /// Waits for the answer.
        fn answer(&self, services: &mut Services<'_>, id: &str) -> i32 {
            let file = self.folder.path().join(ANSWERS).join(id);
            loop {
                services.poll(self.begun.elapsed(), &self.log).unwrap();
                if let Ok(text) = fs::read_to_string(&file) {
                    return text.trim().parse().unwrap();
                }
                assert!(self.begun.elapsed() < PATIENCE * 2, "no answer {id}");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn words_get_their_meaning() {
        let mut meaning = Room::new().meaning;
        meaning
            .bins
            .insert("rpcrdma".to_owned(), "/b/rpcrdma".into());
        meaning.ports.insert("serve".to_owned(), 4000);
        meaning.forwards.insert(20049, 4001);
        let mut host = host("serve", &[]);
        host.words = vec![
            vec![Piece::Bin("rpcrdma".to_owned())],
            vec![
                Piece::Text("--port=".to_owned()),
                Piece::Port("serve".to_owned()),
            ],
            vec![Piece::Forward(20049)],
        ];
        assert_eq!(
            meaning.command(&host, &[]).unwrap(),
            ["/b/rpcrdma", "--port=4000", "4001"]
        );
        let args = ["-o".to_owned(), "rsize=4096".to_owned()];
        assert_eq!(meaning.command(&host, &args), None, "no place for words");
        host.words.insert(1, vec![Piece::Args]);
        let wanted = ["/b/rpcrdma", "-o", "rsize=4096", "--port=4000", "4001"];
        assert_eq!(meaning.command(&host, &args).unwrap(), wanted);
        assert_eq!(meaning.command(&host, &[]).unwrap().len(), 3);
        host.words.push(vec![Piece::Forward(1)]);
        assert_eq!(meaning.command(&host, &[]), None);
    }

    #[test]
    fn what_is_run_answers_with_its_status_and_output() {
        let room = Room::new();
        let hosts = [host("fail", &["sh", "-c", "echo said; exit 9"])];
        let mut services = Services::new(&hosts, &room.meaning);
        let run = ask("1.5", Request::Run, "fail");
        services.ask(Duration::ZERO, &run, &room.log).unwrap();
        assert_eq!(room.answer(&mut services, "1.5"), 9);
        let out = room.folder.path().join(ANSWERS).join("1.5.out");
        assert_eq!(fs::read_to_string(out).unwrap(), "said\n");
        assert!(!services.is_waiting());
    }

    #[test]
    fn a_process_is_started_stopped_and_killed() {
        let room = Room::new();
        // Without `exec`, SIGTERM would leave the sleep process, which `kill` also ends.
        let hosts = [host("nap", &["sleep", "600"])];
        let mut services = Services::new(&hosts, &room.meaning);
        let zero = Duration::ZERO;
        services
            .ask(zero, &ask("1", Request::Start, "nap"), &room.log)
            .unwrap();
        assert_eq!(room.answer(&mut services, "1"), 0);
        services
            .ask(zero, &ask("2", Request::Stop, "nap"), &room.log)
            .unwrap();
        assert_eq!(room.answer(&mut services, "2"), 128 + 15);
        services
            .ask(zero, &ask("3", Request::Kill, "nap"), &room.log)
            .unwrap();
        assert_eq!(room.answer(&mut services, "3"), CANNOT);
        services
            .ask(zero, &ask("4", Request::Start, "nap"), &room.log)
            .unwrap();
        assert_eq!(room.answer(&mut services, "4"), 0);
        services
            .ask(zero, &ask("5", Request::Kill, "nap"), &room.log)
            .unwrap();
        assert_eq!(room.answer(&mut services, "5"), 0);
    }

    #[test]
    fn a_server_that_ends_before_it_listens_did_not_start() {
        let mut room = Room::new();
        room.meaning.ports.insert("p".to_owned(), 1);
        let mut early = host("early", &["true"]);
        early.words.push(vec![Piece::Port("p".to_owned())]);
        let hosts = [early];
        let mut services = Services::new(&hosts, &room.meaning);
        let start = ask("1", Request::Start, "early");
        services.ask(Duration::ZERO, &start, &room.log).unwrap();
        assert_eq!(room.answer(&mut services, "1"), CANNOT);
    }

    #[test]
    fn a_server_that_never_listens_is_given_up_and_killed() {
        let mut room = Room::new();
        room.meaning.ports.insert("p".to_owned(), 1);
        let mut deaf = host("deaf", &["sh", "-c", "sleep 600"]);
        deaf.words.push(vec![Piece::Port("p".to_owned())]);
        let hosts = [deaf];
        let mut services = Services::new(&hosts, &room.meaning);
        let start = ask("1", Request::Start, "deaf");
        services.ask(Duration::ZERO, &start, &room.log).unwrap();
        services
            .poll(PATIENCE - Duration::from_secs(1), &room.log)
            .unwrap();
        assert!(services.is_waiting());
        services.poll(PATIENCE, &room.log).unwrap();
        assert!(!services.is_waiting());
        assert_eq!(room.answer(&mut services, "1"), CANNOT);
    }

    #[test]
    fn only_what_is_declared_can_be_started() {
        let room = Room::new();
        let mut services = Services::new(&[], &room.meaning);
        let start = ask("1", Request::Start, "sh");
        services.ask(Duration::ZERO, &start, &room.log).unwrap();
        assert_eq!(room.answer(&mut services, "1"), CANNOT);
    }
}
