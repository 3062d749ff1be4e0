//! Statistics of a mount.
//!
//! The thread of the file system counts for itself, in cells. Another thread asks it for a copy by
//! a request like those of the kernel ([`StatisticsHandle`]).

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use rpc_transport::{Client, ClientStats, ProcedureCounts, TransportStatistics};

use crate::core::{Connect, Core, Task};
use crate::counts::{Count, RequestKind};
use crate::engine::Queue;

/// The counts of a mount since it was made, and what it holds.
#[derive(Clone, Debug, Default)]
pub struct MountStatistics {
    /// Requests of the kernel, in the order of [`RequestKind::ALL`].
    pub requests: Vec<u64>,
    /// Names that were looked up and known, with fresh attributes.
    pub names_known: u64,
    /// Names for which, or for whose attributes, the server was asked.
    pub names_asked: u64,
    /// Attributes that the kernel wanted and that were known.
    pub attributes_known: u64,
    /// Attributes that the kernel wanted and that the server was asked for.
    pub attributes_asked: u64,
    /// Bytes read that had been read ahead.
    pub read_ahead: u64,
    /// Bytes read that this mount had written.
    pub read_back: u64,
    /// Bytes read for which the request waited for the server.
    pub read_fetched: u64,
    /// The part of all these that was read with O_DIRECT.
    pub read_direct: u64,
    /// Bytes written.
    pub written: u64,
    /// The part of these that was written with O_DIRECT.
    pub written_direct: u64,
    /// Bytes in the replies to READ.
    pub server_read: u64,
    /// Bytes in calls of WRITE that were answered.
    pub server_written: u64,
    /// Calls that the server asked to repeat later (NFS3ERR_JUKEBOX).
    pub delays: u64,
    /// Files that were renamed because they were removed while open.
    pub hidden: u64,
    /// Bytes written that are not on the server's stable storage, and the most that there may be.
    pub unsaved: (u64, u64),
    /// Files with such bytes.
    pub unsaved_files: u64,
    /// Files and directories that the mount knows.
    pub objects: u64,
    /// Open files.
    pub open_files: u64,
    /// Bytes of file data that the mount has copied.
    pub copied: u64,
    /// The calls of the client, by procedure.
    pub procedures: Vec<ProcedureCounts>,
    /// The counters of the client.
    pub client: ClientStats,
    /// Calls that have not ended.
    pub pending_calls: u64,
    /// The transport of the client.
    pub transport: TransportStatistics,
}

impl MountStatistics {
    /// Returns the number of requests of a kind.
    #[must_use]
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.requests.get(kind as usize).copied().unwrap_or(0)
    }
}

impl<C: Connect> Core<C> {
    /// Returns what the file system itself has counted, and what it holds.
    pub(crate) fn statistics(&self) -> MountStatistics {
        let counts = &self.counts;
        MountStatistics {
            requests: counts.requests.iter().map(Count::get).collect(),
            names_known: counts.names_known.get(),
            names_asked: counts.names_asked.get(),
            attributes_known: counts.attributes_known.get(),
            attributes_asked: counts.attributes_asked.get(),
            read_ahead: counts.read_ahead.get(),
            read_back: counts.read_back.get(),
            read_fetched: counts.read_fetched.get(),
            read_direct: counts.read_direct.get(),
            written: counts.written.get(),
            written_direct: counts.written_direct.get(),
            server_read: counts.server_read.get(),
            server_written: counts.server_written.get(),
            delays: counts.delays.get(),
            hidden: u64::from(self.hidden.get()),
            unsaved: (self.unwritten.get() as u64, self.options.unwritten as u64),
            unsaved_files: self.unsaved_files() as u64,
            objects: self.inodes.borrow().all().count() as u64,
            open_files: self.files.borrow().len() as u64,
            copied: self.copies.bytes(),
            ..MountStatistics::default()
        }
    }
}

/// Asks a mount for its statistics, from any thread.
pub struct StatisticsHandle {
    queue: Arc<Queue<Client>>,
    /// The place of the answer to a question that was not answered in time. There is no other question
    /// before it is, so that a mount that stands still does not collect them.
    unanswered: Option<Receiver<MountStatistics>>,
}

impl StatisticsHandle {
    pub(crate) fn new(queue: &Arc<Queue<Client>>) -> Self {
        Self {
            queue: Arc::clone(queue),
            unanswered: None,
        }
    }

    /// Returns what the mount has counted and what it holds, or `None` if it has not answered `within` this
    /// time, for example because it has ended.
    #[must_use]
    pub fn ask(&mut self, within: Duration) -> Option<MountStatistics> {
        let earlier = self.unanswered.take();
        // An answer that has come since is old.
        let earlier = earlier.filter(|it| matches!(it.try_recv(), Err(TryRecvError::Empty)));
        let answer = earlier.or_else(|| self.question())?;
        match answer.recv_timeout(within) {
            Ok(found) => Some(found),
            Err(RecvTimeoutError::Timeout) => {
                self.unanswered = Some(answer);
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Asks, unless the mount has ended. Returns the place of the answer.
    fn question(&self) -> Option<Receiver<MountStatistics>> {
        let (asked, answer) = mpsc::channel();
        let question = Box::new(move |core: &Rc<Core<Client>>| {
            let client = &core.connect;
            let transport = core.observe.borrow();
            // Fails if nobody waits any more.
            let _ = asked.send(MountStatistics {
                procedures: client.procedures(),
                client: client.stats(),
                pending_calls: client.pending_calls() as u64,
                transport: transport.as_ref().map_or_else(Default::default, |it| it()),
                ..core.statistics()
            });
            let answered: Task = Box::pin(std::future::ready(()));
            answered
        });
        self.queue.try_push(question).then_some(answer)
    }
}

impl fmt::Debug for StatisticsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatisticsHandle").finish_non_exhaustive()
    }
}
