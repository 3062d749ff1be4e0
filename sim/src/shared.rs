//! What all clients of a run share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::client::Tally;
use crate::exports::Exports;
use crate::history::History;
use crate::journal::Journal;
use crate::plan::Plan;

/// The pause before a client repeats a call that it needs to succeed.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
/// The maximum number of repetitions.
pub(crate) const TRIES: usize = 1_000;
/// The time after which a client's calls to an unreachable server fail: never while faults can
/// happen.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100_000);

/// State that all clients of a run share.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) server: std::net::SocketAddr,
    pub(crate) history: Rc<RefCell<History>>,
    pub(crate) journal: Rc<RefCell<Journal>>,
    pub(crate) tally: Rc<Tally>,
    /// The exports of the server.
    pub(crate) exports: Exports,
    /// The calls of clients that are not honest.
    pub(crate) guests: Rc<Tally>,
    /// All files that were created, by number, for the final check.
    pub(crate) files: Rc<RefCell<Vec<File>>>,
    /// The number of honest clients that have begun to connect.
    pub(crate) arrived: Cell<u32>,
}

/// A file that a client created.
pub(crate) struct File {
    pub(crate) number: u64,
    /// The number of the file's directory.
    pub(crate) dir: u64,
}
