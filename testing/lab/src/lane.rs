//! Lanes: scripts in `lanes/`, each with a header that declares its needs.
//!
//! ```text
//! #: about    our server under Linux's client
//! #: timeout  900
//! #: copy     rpcrdma
//! #: host     serve = {bin:rpcrdma} serve --listen 127.0.0.1:{port:serve} {share}/export
//! #: forward  20049
//! ```
//!
//! | field | meaning |
//! |---|---|
//! | `about` | one line for people |
//! | `control` | nothing of the product runs in it: every failure is the lab's |
//! | `timeout` | the time-out in seconds, from user space to the end |
//! | `copy` | a program built on the host, copied to a directory in the guest's path |
//! | `tests` | a package whose integration tests are built on the host and run in the guest |
//! | `host` | a process on the host that the guest can start, stop, kill or run, by name |
//! | `forward` | a TCP port of the guest that the host reaches as `127.0.0.1:{forward:N}` |
//! | `capture` | capture the traffic on the network device between guest and host |
//!
//! A command is split at blanks. `{bin:NAME}` is the path of a built program, `{lab}` that of this
//! one, `{port:NAME}` a free port of the host whose number the guest has in `$PORT_NAME`, `{share}`
//! the path of the shared directory, which is `/lab` in the guest. The word `{args}` is replaced by
//! the words of the lane's request.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::protocol::is_name;

/// The default time-out of a lane.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The prefix of header lines.
const MARK: &str = "#:";

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The name, which is that of its file.
    pub name: String,
    /// The path of the script.
    pub path: PathBuf,
    /// The description.
    pub about: String,
    /// Whether nothing of the product runs in it.
    pub control: bool,
    /// The time-out.
    pub timeout: Duration,
    /// The programs that are copied into the guest.
    pub copies: Vec<String>,
    /// The packages whose integration tests are built and copied into the guest.
    pub tests: Vec<String>,
    /// The processes on the host.
    pub hosts: Vec<Host>,
    /// The ports of the guest that are forwarded from the host.
    pub forwards: Vec<u16>,
    /// Whether traffic between guest and host is captured.
    pub capture: bool,
}

/// A process on the host that a lane declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The name in the lane.
    pub name: String,
    /// The program and its arguments.
    pub words: Vec<Vec<Piece>>,
}

/// A piece of a word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// The path of a program that was built on the host.
    Bin(String),
    /// A port of the host, chosen before the guest boots.
    Port(String),
    /// The port of the host that is forwarded to this port of the guest.
    Forward(u16),
    /// The path of the shared directory.
    Share,
    /// The path of this program.
    Lab,
    /// The words of the request, if any, as separate words.
    Args,
}

impl Host {
    /// Returns all pieces of its command.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.words.iter().flatten()
    }

    /// Returns the names of the host's ports in its command.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.pieces().filter_map(|piece| match piece {
            Piece::Port(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl Lane {
    /// Reads a lane's header.
    ///
    /// # Errors
    /// [`Error::File`], or [`Error::Lane`] with the invalid line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let stem = path.file_stem().unwrap_or_default();
        let mut lane = Self {
            name: stem.to_string_lossy().into_owned(),
            path: path.to_path_buf(),
            about: String::new(),
            control: false,
            timeout: TIMEOUT,
            copies: Vec::new(),
            tests: Vec::new(),
            hosts: Vec::new(),
            forwards: Vec::new(),
            capture: false,
        };
        let at = |line: usize| {
            move |problem| Error::Lane {
                path: path.to_path_buf(),
                line,
                problem,
            }
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(field) = line.strip_prefix(MARK) {
                let field = field.trim();
                let (name, value) = field.split_once(char::is_whitespace).unwrap_or((field, ""));
                lane.field(name, value.trim()).map_err(at(number + 1))?;
            }
        }
        lane.check().map_err(at(1))?;
        Ok(lane)
    }

    fn field(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "about" => self.about = value.to_owned(),
            "control" => self.control = true,
            "capture" => self.capture = true,
            "timeout" => {
                let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.ok_or("the time-out is no number of seconds")?;
                self.timeout = Duration::from_secs(seconds.into());
            }
            "copy" => {
                if !is_name(value) {
                    return Err(format!("`{value}` names no program"));
                }
                self.copies.push(value.to_owned());
            }
            "tests" => {
                if !is_name(value) {
                    return Err(format!("`{value}` names no package"));
                }
                self.tests.push(value.to_owned());
            }
            "forward" => {
                let port = value.parse().map_err(|_| format!("`{value}` is no port"))?;
                self.forwards.push(port);
            }
            "host" => {
                let (name, command) = value.split_once('=').ok_or("`host NAME = COMMAND`")?;
                let name = name.trim();
                if !is_name(name) {
                    return Err(format!("`{name}` names no process"));
                }
                let words: Result<Vec<_>, _> = command.split_whitespace().map(pieces).collect();
                let words = words?;
                if words.is_empty() {
                    return Err(format!("{name} has no command"));
                }
                self.hosts.push(Host {
                    name: name.to_owned(),
                    words,
                });
            }
            _ => return Err(format!("there is no field `{name}`")),
        }
        Ok(())
    }

    /// Checks conditions on the header as a whole.
    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            if !names.insert(&host.name) {
                return Err(format!("{} is declared twice", host.name));
            }
            for piece in host.pieces() {
                if let Piece::Forward(port) = piece
                    && !self.forwards.contains(port)
                {
                    return Err(format!("port {port} is not forwarded"));
                }
            }
        }
        Ok(())
    }

    /// Returns the names of the host's ports in the commands of all its processes.
    #[must_use]
    pub fn ports(&self) -> BTreeSet<String> {
        self.hosts
            .iter()
            .flat_map(Host::ports)
            .map(str::to_owned)
            .collect()
    }
}

/// Splits a word at its `{…}`.
fn pieces(word: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{') {
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        let (inside, after) = after
            .split_once('}')
            .ok_or(format!("`{word}` lacks a brace"))?;
        let odd = || format!("`{{{inside}}}` means nothing");
        pieces.push(match inside.split_once(':') {
            None if inside == "share" => Piece::Share,
            None if inside == "lab" => Piece::Lab,
            None if word == "{args}" => Piece::Args,
            Some(("bin", name)) if is_name(name) => Piece::Bin(name.to_owned()),
            Some(("port", name)) if is_variable(name) => Piece::Port(name.to_owned()),
            Some(("forward", port)) => Piece::Forward(port.parse().map_err(|_| odd())?),
            _ => return Err(odd()),
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Returns whether this can be part of a shell variable's name.
fn is_variable(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns all lanes in a directory, by name.
///
/// # Errors
/// The errors of [`Lane::read`].
pub fn all(folder: &Path) -> Result<Vec<Lane>, Error> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "sh") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Lane::read(path)).collect()
}

/// Returns the lane with this name.
///
/// # Errors
/// [`Error::NoLane`], and those of [`Lane::read`].
pub fn find(folder: &Path, name: &str) -> Result<Lane, Error> {
    let lanes = all(folder)?;
    let names: Vec<_> = lanes.iter().map(|lane| lane.name.clone()).collect();
    let found = lanes.into_iter().find(|lane| lane.name == name);
    found.ok_or_else(|| Error::NoLane {
        name: name.to_owned(),
        there: names.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Lane, Error> {
        Lane::parse(Path::new("lanes/peers.sh"), text)
    }

    #[test]
    fn a_header() {
        let lane = parse(
            "#!/bin/sh\n#: about  two words\n#: timeout 90\n#: copy rpcrdma\n#: tests rdma-iwarp\n#: capture\n\
             #: forward 20049\n# a comment\n\
             #: host serve = {bin:rpcrdma} serve --listen=127.0.0.1:{port:serve} {share}/x\n\
             #: host ask = {lab} {forward:20049} {args}\n\
             lane() { :; }\n",
        )
        .unwrap();
        assert_eq!(
            (lane.name.as_str(), lane.about.as_str()),
            ("peers", "two words")
        );
        assert_eq!(lane.timeout, Duration::from_secs(90));
        assert!(lane.capture && !lane.control);
        assert_eq!(lane.copies, ["rpcrdma"]);
        assert_eq!(lane.tests, ["rdma-iwarp"]);
        assert_eq!(lane.ports().into_iter().collect::<Vec<_>>(), ["serve"]);
        let serve = &lane.hosts[0];
        assert_eq!(serve.words.len(), 4);
        assert_eq!(serve.words[0], [Piece::Bin("rpcrdma".to_owned())]);
        let listen = Piece::Text("--listen=127.0.0.1:".to_owned());
        assert_eq!(serve.words[2], [listen, Piece::Port("serve".to_owned())]);
        assert_eq!(serve.words[3], [Piece::Share, Piece::Text("/x".to_owned())]);
        assert_eq!(lane.hosts[1].words[1], [Piece::Forward(20049)]);
        assert_eq!(lane.hosts[1].words[2], [Piece::Args]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (header, wanted) in [
            ("#: abuot x", "abuot"),
            ("#: timeout 0", "seconds"),
            ("#: timeout soon", "seconds"),
            ("#: copy ../x", "../x"),
            ("#: tests ../x", "../x"),
            ("#: forward 70000", "70000"),
            ("#: host serve", "COMMAND"),
            ("#: host serve =", "command"),
            ("#: host a = {what}", "{what}"),
            ("#: host a = {port:a", "brace"),
            ("#: host a = b={args}", "{args}"),
            ("#: host a = {port:a-b}", "{port:a-b}"),
        ] {
            let error = parse(&format!("#!/bin/sh\n{header}\n")).unwrap_err();
            let Error::Lane { line, problem, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(line, 2, "{header}");
            assert!(problem.contains(wanted), "{header}: {problem}");
        }
        assert!(parse("#: host a = b {forward:1}\n").is_err());
        assert!(parse("#: host a = b\n#: host a = c\n").is_err());
    }

    #[test]
    fn the_lanes_that_there_are_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lanes");
        let lanes = all(&folder).unwrap();
        assert!(
            lanes
                .iter()
                .any(|lane| lane.name == "control" && lane.control)
        );
        assert!(lanes.iter().all(|lane| !lane.about.is_empty()));
        let missing = find(&folder, "nonesuch").unwrap_err().to_string();
        assert!(missing.contains("control"), "{missing}");
    }
}
