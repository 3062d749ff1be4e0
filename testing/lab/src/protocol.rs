//! The output of a guest on the serial line of its lane, line by line.
//!
//! | line | meaning |
//! |---|---|
//! | `ok NAME SECONDS` | a check passed |
//! | `not ok NAME SECONDS` | a check failed |
//! | `skip NAME REASON` | a check was skipped, because this guest or version does not support it |
//! | `::lab up SECONDS` | user space was reached this long after power-on |
//! | `::lab ask ID VERB NAME WORD…` | the lane sends a request to the host: see [`Request`] |
//! | `::lab end STATUS SECONDS` | the lane's script ended this long after power-on |
//! | anything else | text for people |

use std::fmt;
use std::time::Duration;

/// The maximum length of a line, bytes. A longer one is split, so that a guest cannot fill the
/// host's memory.
pub const LONGEST_LINE: usize = 4096;
/// The prefix of the lab's own lines.
const MARK: &str = "::lab ";

/// A parsed line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// User space was reached, after this time.
    Up(Duration),
    /// The result of a check.
    Check(Check),
    /// A request to the host.
    Ask(Ask),
    /// The lane's script ended with this status, at this time of the guest's clock.
    End(i32, Duration),
    /// Text.
    Text(String),
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The name, unique in its lane; `lab/…` if the check is about the lab and not about the
    /// product.
    pub name: String,
    /// The result.
    pub result: Outcome,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The check passed, in this time.
    Passed(Duration),
    /// The check failed, after this time.
    Failed(Duration),
    /// The check was skipped, for this reason.
    Skipped(String),
}

/// A request of the guest to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The name of the file for the answer.
    pub id: String,
    /// The action.
    pub request: Request,
    /// The name of the process that the lane declares.
    pub name: String,
    /// The words that replace `{args}` in its command.
    pub words: Vec<String>,
}

/// An action of the host on a process that the lane declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start the process. The answer is sent when its ports accept connections.
    Start,
    /// End the process with SIGTERM. The answer is its exit status, when it has ended.
    Stop,
    /// End the process with SIGKILL. The answer is sent when it has ended.
    Kill,
    /// Run the process to its end. The answer is its exit status.
    Run,
}

impl Line {
    /// Parses a line.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        let line = line.trim_end();
        let understood = match line.strip_prefix(MARK) {
            Some(ours) => Self::mark(ours),
            None => Check::parse(line).map(Self::Check),
        };
        understood.unwrap_or_else(|| Self::Text(line.to_owned()))
    }

    fn mark(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let line = match words.next()? {
            "up" => Self::Up(seconds(words.next()?)?),
            "end" => Self::End(words.next()?.parse().ok()?, seconds(words.next()?)?),
            "ask" => Self::Ask(Ask {
                id: words.next().filter(|word| is_name(word))?.to_owned(),
                request: Request::parse(words.next()?)?,
                name: words.next().filter(|word| is_name(word))?.to_owned(),
                words: words.by_ref().map(str::to_owned).collect(),
            }),
            _ => return None,
        };
        words.next().is_none().then_some(line)
    }
}

impl Check {
    fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(' ')?;
        let (failed, rest) = match head {
            "ok" => (false, rest),
            "not" => (true, rest.strip_prefix("ok ")?),
            "skip" => {
                let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
                return is_path(name).then(|| Self {
                    name: name.to_owned(),
                    result: Outcome::Skipped(reason.trim().to_owned()),
                });
            }
            _ => return None,
        };
        let mut words = rest.split_whitespace();
        let name = words.next().filter(|word| is_path(word))?;
        let time = seconds(words.next()?)?;
        let result = if failed {
            Outcome::Failed(time)
        } else {
            Outcome::Passed(time)
        };
        words.next().is_none().then(|| Self {
            name: name.to_owned(),
            result,
        })
    }

    /// Returns whether the check is about the lab itself.
    #[must_use]
    pub fn is_of_lab(&self) -> bool {
        self.name.starts_with("lab/")
    }
}

impl Request {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "start" => Self::Start,
            "stop" => Self::Stop,
            "kill" => Self::Kill,
            "run" => Self::Run,
            _ => return None,
        })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Run => "run",
        })
    }
}

/// Parses seconds with decimals, which must be in the range of a duration.
fn seconds(word: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(word.parse().ok()?).ok()
}

/// Returns whether this is a valid name of a process, a port or a file.
#[must_use]
pub fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !word.is_empty() && word.len() <= 64 && !word.starts_with('.') && word.chars().all(plain)
}

/// Returns whether this is a valid name of a check: names separated by slashes.
fn is_path(word: &str) -> bool {
    word.split('/').all(is_name)
}

/// Splits a stream of bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Adds bytes. Returns the lines that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte == b'\n' || self.partial.len() >= LONGEST_LINE {
                lines.push(self.take());
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
        lines
    }

    /// Returns the incomplete last line.
    pub fn finish(mut self) -> Option<String> {
        (!self.partial.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.partial);
        let line = line.trim_end_matches('\r').to_owned();
        self.partial.clear();
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Line {
        Line::Text(line.to_owned())
    }

    #[test]
    fn checks() {
        let Line::Check(check) = Line::parse("ok rxe/nfs4.1 12.50\r") else {
            panic!("no check");
        };
        assert_eq!(check.name, "rxe/nfs4.1");
        assert_eq!(check.result, Outcome::Passed(Duration::from_millis(12_500)));
        assert!(!check.is_of_lab());
        let Line::Check(check) = Line::parse("not ok lab/siw 3") else {
            panic!("no check");
        };
        assert_eq!(check.result, Outcome::Failed(Duration::from_secs(3)));
        assert!(check.is_of_lab());
        let Line::Check(check) = Line::parse("skip v2/null no version 2") else {
            panic!("no check");
        };
        assert_eq!(check.result, Outcome::Skipped("no version 2".to_owned()));
    }

    #[test]
    fn what_only_looks_like_a_check_is_text() {
        for line in [
            "ok",
            "ok then",
            "ok a b",
            "ok a -1",
            "ok a nan",
            "ok a 1 more",
            "not ok",
            "not a 1",
            "ok ../a 1",
            "okay a 1",
            " ok a 1",
        ] {
            assert_eq!(Line::parse(line), text(line), "{line}");
        }
    }

    #[test]
    fn marks() {
        let up = Duration::from_millis(6_340);
        assert_eq!(Line::parse("::lab up 6.34"), Line::Up(up));
        assert_eq!(Line::parse("::lab end 1 6.34"), Line::End(1, up));
        let ask = Line::parse("::lab ask 12.345 kill serve");
        let wanted = Ask {
            id: "12.345".to_owned(),
            request: Request::Kill,
            name: "serve".to_owned(),
            words: Vec::new(),
        };
        assert_eq!(ask, Line::Ask(wanted));
        let Line::Ask(ask) = Line::parse("::lab ask 1 run get -o rsize=4096") else {
            panic!("no question");
        };
        assert_eq!(ask.words, ["-o", "rsize=4096"]);
        for line in [
            "::lab ask ../x kill serve",
            "::lab ask 1 burn serve",
            "::lab ask 1 kill",
            "::lab end",
            "::lab end 1",
            "::lab up soon",
            "::lab",
        ] {
            assert_eq!(Line::parse(line), text(line), "{line}");
        }
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let stream = b"one\r\ntwo\n\nthr\xffee";
        for cut in 0..stream.len() {
            let mut lines = Lines::default();
            let mut all = lines.feed(&stream[..cut]);
            all.extend(lines.feed(&stream[cut..]));
            all.extend(lines.finish());
            assert_eq!(all, ["one", "two", "", "thr\u{fffd}ee"], "{cut}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let mut lines = Lines::default();
        let whole = lines.feed(&vec![b'x'; 3 * LONGEST_LINE]);
        assert_eq!(whole.len(), 2);
        assert!(lines.partial.len() <= LONGEST_LINE);
    }
}
