//! State that the connections of one performance share, and what is found.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::call::Call;
use super::case::{Act, Operation};
use super::export::Export;
use super::refusing::Refused;
use super::rules::{Findings, Rule};
use super::under_test::Progress;
use crate::dialect::Dialect;
use crate::exchange::Exchange;
use crate::watch::Watcher;
use crate::wire::v1::Header;

/// An answer that a client must give, in most cases an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) xid: u32,
    /// The codes that it may have.
    pub(super) codes: &'static [u32],
    /// Its description, where the codes are not those of version-two-07.
    pub(super) text: Option<&'static str>,
    /// Whether it was.
    pub(super) came: bool,
}

/// State that connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) findings: Findings,
    pub(super) export: Export,
    pub(super) exchange: Exchange,
    /// Whether the server has done what its act says.
    pub(super) acted: bool,
    /// The call that was not answered, and the number of its connection.
    pub(super) lost: Option<(usize, Call)>,
    /// The call that was answered by an error.
    pub(super) refused: Option<Call>,
    /// The form of that call in version-two-07, in which it must not come again. Others may be tried.
    pub(super) refused_form: Option<Header>,
    /// The call that was refused with placed items in version-two-07, or by ROPT_XMTREQ.
    pub(super) refused_placed: Option<Refused>,
    /// The answer that the client must give.
    pub(super) report: Option<Report>,
    /// The call that was waiting while another message came.
    pub(super) disturbed: Option<Call>,
    /// Whether a message of another version was refused, and none of the server's version has come since, on whatever
    /// connection.
    pub(super) other_version: bool,
    /// Whether a message of the server's version has come.
    pub(super) spoken: bool,
    /// The version of the first message. The outer `None` stands for no message.
    pub(super) first: Option<Option<Dialect>>,
    /// Whether a READ has come.
    pub(super) reading: bool,
    /// Whether the server has waited for more calls at once.
    pub(super) has_waited: bool,
    /// Whether a call was answered.
    pub(super) answered: bool,
    /// The reasons why connections were not set up.
    pub(super) not_set_up: Option<String>,
}

impl Shared {
    /// Returns whether calls at once are to be waited for: when READs come, and once, as a client may make none.
    pub(super) fn awaits_more(&self) -> bool {
        self.reading && !self.has_waited
    }

    /// Returns whether a call is the first in a form that is refused, and looks at those behind it on its connection.
    /// `all` is as in [`Refused::look`].
    pub(super) fn refuses(
        &mut self,
        connection: usize,
        xid: u32,
        has_form: bool,
        all: bool,
    ) -> bool {
        match &mut self.refused_placed {
            Some(refused) if refused.connection == connection => {
                refused.look(&mut self.findings, xid, has_form, all);
                false
            }
            None if has_form => {
                self.acted = true;
                self.refused_placed = Some(Refused::new(connection, xid));
                let rule = Rule::PlacedRefused;
                self.findings.look(rule, true, String::new);
                true
            }
            _ => false,
        }
    }
}

/// State that all connections of a performance share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) dialect: Dialect,
    pub(super) operation: Operation,
    pub(super) act: Act,
    pub(super) patience: Duration,
    pub(super) watcher: Option<Watcher>,
    shared: Mutex<Shared>,
    stop: Arc<AtomicBool>,
    /// Connections that were set up.
    set_up: AtomicUsize,
    /// Connections that have not ended.
    open: AtomicUsize,
}

impl Stage {
    pub(super) fn new(
        dialect: Dialect,
        operation: Operation,
        act: Act,
        patience: Duration,
        watcher: Option<Watcher>,
    ) -> Self {
        Self {
            dialect,
            operation,
            act,
            patience,
            watcher,
            shared: Mutex::new(Shared {
                findings: Findings::default(),
                export: Export::new(act == Act::Crowd),
                exchange: Exchange::default(),
                acted: false,
                lost: None,
                refused: None,
                refused_form: None,
                refused_placed: None,
                report: None,
                disturbed: None,
                other_version: false,
                spoken: false,
                first: None,
                reading: false,
                has_waited: false,
                answered: false,
                not_set_up: None,
            }),
            stop: Arc::default(),
            set_up: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        }
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the performance has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the flag that is set when the performance ends.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Ends the performance, and with it all connections.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns the state at the end.
    pub(super) fn into_shared(self) -> Shared {
        self.shared
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection that has begun or ended.
    pub(super) fn opened(&self, opened: bool) {
        match opened {
            true => self.open.fetch_add(1, Ordering::AcqRel),
            false => self.open.fetch_sub(1, Ordering::AcqRel),
        };
    }

    /// Counts a connection that was set up, and returns its number.
    pub(super) fn count(&self) -> usize {
        self.set_up.fetch_add(1, Ordering::AcqRel)
    }

    /// Returns how far the client is.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            connections: self.set_up.load(Ordering::Acquire),
            open: self.open.load(Ordering::Acquire),
            is_complete: self.is_complete(),
        }
    }

    /// Returns whether the operation was performed, as far as a server sees it.
    pub(super) fn is_complete(&self) -> bool {
        let shared = self.shared();
        match self.operation {
            Operation::Ping => shared.answered,
            Operation::Read => shared.export.unread().is_none(),
            Operation::Write => shared.export.is_written(),
            Operation::List => shared.export.listed,
        }
    }
}
