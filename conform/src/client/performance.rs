//! One performance: a client performs an operation while the server does what an act says.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::case::{Act, Operation};
use super::connection::Connection;
use super::export::to_write;
use super::rules::{Findings, Rule};
use super::stage::Stage;
use super::under_test::{Client, Ended, Task};
use crate::dialect::Dialect;
use crate::endpoint::{Incoming, Listen};
use crate::watch::Watcher;
use crate::wire::wg;

/// The time between two looks for a connection.
const GLANCE: Duration = Duration::from_millis(5);
/// The longest wait for connections to end after the client has.
const DRAIN: Duration = Duration::from_secs(2);
/// The most connections at a time.
const MOST: usize = 64;

/// The server for clients.
#[derive(Debug)]
pub struct Judge<'a> {
    /// The listener for connections.
    pub listener: &'a dyn Listen,
    /// The listener for MOUNT over TCP, for clients that mount by it.
    pub mount: Option<&'a TcpListener>,
    /// The longest wait for something that the client must do at once.
    pub patience: Duration,
    /// The observer of all connections.
    pub watcher: Option<Watcher>,
}

/// A function that is called when this is dropped: threads end also if a client panics.
pub(super) struct AtEnd<F: Fn()>(pub(super) F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A performance that has ended.
#[derive(Debug)]
pub(super) struct Performed {
    pub(super) findings: Findings,
    /// The messages, in lines.
    pub(super) exchange: Vec<String>,
    /// Whether the server has done what its act says.
    pub(super) acted: bool,
    /// The end of the client's operation.
    pub(super) ended: Ended,
    /// Why the operation is not complete by what the server saw and by what the client showed.
    pub(super) incomplete: Option<String>,
    /// Whether a connection was set up.
    pub(super) connected: bool,
    /// The version of the client's first message, if that was another one than the server's, and none of the server's
    /// came later.
    pub(super) speaks_other: Option<Dialect>,
    /// The version of the client's first message, if it tells one.
    pub(super) first: Option<Dialect>,
    /// Why a connection was not set up.
    pub(super) not_set_up: Option<String>,
    /// Seconds.
    pub(super) seconds: f64,
    /// The packets of the capture, if it has any of this performance.
    pub(super) packets: Option<[u64; 2]>,
}

/// Has a client perform an operation while the server does what `act` says. The listener must not block.
pub(super) fn perform(
    judge: &Judge<'_>,
    dialect: Dialect,
    operation: Operation,
    act: Act,
    client: &mut dyn Client,
) -> std::io::Result<Performed> {
    let (listener, watcher) = (judge.listener, judge.watcher.as_ref());
    let address = listener.address()?;
    let stage = Stage::new(dialect, operation, act, judge.patience, watcher.cloned());
    let packets = || watcher.map_or(0, Watcher::packets);
    let (started, before) = (Instant::now(), packets());
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stage.has_ended() {
                match listener.request() {
                    Ok(Some(request)) if stage.progress().open < MOST => {
                        stage.opened(true);
                        scope.spawn(|| serve(&stage, request));
                    }
                    // One connection too many is closed.
                    Ok(Some(_)) => {}
                    Ok(None) => std::thread::sleep(GLANCE),
                    Err(error) => {
                        if !is_of_no_connection(&error) {
                            let why = || format!("no connection can be accepted: {error}");
                            stage.shared().not_set_up.get_or_insert_with(why);
                        }
                        std::thread::sleep(GLANCE);
                    }
                }
            }
        });
        let _end = AtEnd(|| stage.end());
        let content = to_write();
        let progress = || stage.progress();
        let ended = client.perform(&Task {
            dialect,
            operation,
            address,
            closes: matches!(act, Act::Close | Act::Reset | Act::RefuseVersion),
            content: &content,
            progress: &progress,
        });
        // A connection may wait to be accepted.
        std::thread::sleep(2 * GLANCE);
        let end = Instant::now() + DRAIN;
        while stage.progress().open > 0 && Instant::now() < end {
            std::thread::sleep(GLANCE);
        }
        ended
    });
    let seconds = started.elapsed().as_secs_f64();
    let incomplete = incomplete(&stage, &ended);
    let after = packets();
    let connected = stage.progress().connections > 0;
    let mut shared = stage.into_shared();
    if operation == Operation::Read {
        let unread = shared.export.unread();
        shared.findings.look(Rule::Covered, unread.is_none(), || {
            format!("byte {} of the file was not read", unread.unwrap_or(0))
        });
        if let Ended::Succeeded(Some(output)) = &ended {
            let wrong = wrong_byte(output, &shared.export.content);
            shared.findings.look(Rule::Content, wrong.is_none(), || {
                format!(
                    "byte {} of what the client shows is wrong",
                    wrong.unwrap_or(0)
                )
            });
        }
    }
    if act.answers_wrong() && shared.acted {
        let wrong = match &ended {
            Ended::Succeeded(Some(output)) => Some(wrong_byte(output, &shared.export.content)),
            Ended::Failed(_) => Some(None),
            // Nothing shows whether it has taken wrong data.
            _ => None,
        };
        if let Some(wrong) = wrong {
            shared.findings.look(Rule::Untaken, wrong.is_none(), || {
                let at = wrong.unwrap_or(0);
                format!(
                    "byte {at} of what the client shows is that of a reply that cannot be processed"
                )
            });
        }
    }
    if let Some(report) = shared.report {
        shared.findings.look(Rule::Reported, report.came, || {
            if let Some(text) = report.text {
                return format!("no {text} came");
            }
            let names = report.codes.iter().filter_map(|code| wg::error_name(*code));
            let names: Vec<&str> = names.collect();
            format!("no RDMA2_ERROR with {} came", names.join(" or "))
        });
    }
    if dialect == Dialect::One && shared.other_version {
        for rule in [Rule::OtherVersion, Rule::VersionAgain] {
            shared.findings.look(rule, false, || {
                "no message of version 1 came after ERR_VERS for versions 1 to 1".to_owned()
            });
        }
    }
    // What is looked at in every message needs no act of the server.
    let always = matches!(act, Act::Honest | Act::Private(_) | Act::Grant(_));
    let first = shared.first.flatten();
    Ok(Performed {
        findings: shared.findings,
        exchange: shared.exchange.lines(),
        acted: shared.acted || always && connected,
        ended,
        incomplete,
        connected,
        speaks_other: first.filter(|it| *it != dialect && !shared.spoken),
        first,
        not_set_up: shared.not_set_up,
        seconds,
        packets: (after > before).then_some([before + 1, after]),
    })
}

/// Returns whether an error of accepting says no more than that there is no connection, or not any more.
fn is_of_no_connection(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

/// Returns the place of the first byte that is not the file's. The beginning of the file has none.
fn wrong_byte(shown: &[u8], content: &[u8]) -> Option<usize> {
    let differs = shown.iter().zip(content).position(|(a, b)| a != b);
    let beyond = (shown.len() > content.len()).then_some(content.len());
    differs.or(beyond)
}

/// Returns why an operation was not performed, if it was not.
fn incomplete(stage: &Stage, ended: &Ended) -> Option<String> {
    let what = match stage.operation {
        Operation::Ping => "no call was answered",
        Operation::Read => "the client has not read the whole file",
        Operation::Write => "the client has not written what it was to write",
        Operation::List => "the client has not listed the whole folder",
    };
    if !stage.is_complete() {
        return Some(what.to_owned());
    }
    let Ended::Succeeded(Some(output)) = ended else {
        return None;
    };
    let shared = stage.shared();
    match stage.operation {
        Operation::Ping | Operation::Write => None,
        Operation::Read => {
            let content = &shared.export.content;
            let (shown, length) = (output.len(), content.len());
            match wrong_byte(output, content) {
                Some(at) => Some(format!("byte {at} of what the client shows is wrong")),
                None if shown == length => None,
                None => Some(format!(
                    "the client shows {shown} bytes, and the file has {length}"
                )),
            }
        }
        Operation::List => {
            let names = &shared.export.names;
            let is_shown = |name: &str| output.windows(name.len()).any(|it| it == name.as_bytes());
            let missing = names.iter().find(|name| !is_shown(name))?;
            Some(format!("the client does not show {missing}"))
        }
    }
}

/// Serves one connection.
fn serve(stage: &Stage, request: Box<dyn Incoming>) {
    match Connection::set_up(stage, request) {
        Ok(mut connection) => connection.serve(),
        Err(why) => {
            let mut shared = stage.shared();
            shared.exchange.text(why.clone());
            shared.not_set_up.get_or_insert(why);
        }
    }
    stage.opened(false);
}
