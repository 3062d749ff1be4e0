//! The receives of a connection that has its own.
//!
//! Devices without shared receive queues, and those on which a message that finds no receive ends
//! its connection, serve every connection from a queue of its own: the credits that were granted
//! promise receives that are posted ([`super::receive_pool`] is the other way).

use std::collections::VecDeque;

use bytes::Bytes;
use onc_rpc::Segments;
use rdma::{Buf, Device, Pool, PoolExhausted, PostError, QpId, Scatter};
use rpcrdma_connection::{REPOST_LATER, ReceiveStructure};

use super::receive_buffers::{SparePieces, alloc, restore};
use super::wr_id::RECEIVE;

/// Allocates `count` receives of this structure, or none.
///
/// # Errors
/// [`PoolExhausted`]: there is no memory for all of them.
pub(super) fn alloc_all(
    pool: &Pool,
    structure: &ReceiveStructure,
    count: usize,
) -> Result<Vec<Scatter>, PoolExhausted> {
    let receives = (0..count).map(|_| {
        alloc(structure, &mut SparePieces::default(), |len| {
            pool.alloc(len)
        })
    });
    receives.collect()
}

/// The receives of one queue pair.
#[derive(Debug)]
pub(super) struct OwnReceives {
    qp: QpId,
    /// The structure of the receives that are posted from now on.
    structure: ReceiveStructure,
    /// Receives of this structure that are posted first. They were allocated before the queue pair was made.
    prepared: Vec<Scatter>,
    /// Number of posted receives.
    receives: u32,
    /// The structures of the posted receives, oldest first, each with the number of receives that
    /// have it. Empty while all have `structure`.
    mixed: VecDeque<(u32, ReceiveStructure)>,
    /// Whether to report when the last receive of an earlier structure has been consumed.
    replacing: bool,
    /// Pieces of consumed receives that can be posted again.
    spare: SparePieces,
    /// Number of consumed receives that have not been posted again yet.
    to_repost: u32,
    /// Number of receives that are posted and not needed any more.
    unneeded: u32,
    /// Whether the device has refused a receive: the connection is ending.
    ending: bool,
    /// Number of bytes copied out of receives that were needed at once.
    copied: u64,
}

impl OwnReceives {
    /// Returns the receives of a queue pair, of which none is posted yet. All have this structure;
    /// `prepared` is memory for the first ones.
    pub(super) fn new(qp: QpId, structure: ReceiveStructure, prepared: Vec<Scatter>) -> Self {
        Self {
            qp,
            structure,
            prepared,
            receives: 0,
            mixed: VecDeque::new(),
            replacing: false,
            spare: SparePieces::default(),
            to_repost: 0,
            unneeded: 0,
            ending: false,
            copied: 0,
        }
    }

    /// Returns the structure of the receives that are posted from now on.
    pub(super) fn structure(&self) -> &ReceiveStructure {
        &self.structure
    }

    /// Posts a receive that has the current structure, or `other`.
    fn post_receive(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        other: Option<ReceiveStructure>,
    ) {
        match device.post_receive(self.qp, RECEIVE, receive) {
            Ok(()) => {
                if other.is_some() || !self.mixed.is_empty() {
                    self.note_mixed(other);
                }
                self.receives += 1;
            }
            // The connection is ending, so no message will need the receive.
            Err((error @ (PostError::NotConnected | PostError::Unknown), _)) => {
                tracing::debug!(qp = self.qp.0, %error, "receive not posted");
                self.ending = true;
            }
            // The peer's credits promise the receive, and a message could find none.
            Err((error, _)) => {
                if !std::mem::replace(&mut self.ending, true) {
                    rpcrdma_host::limited!(error, qp = self.qp.0, %error, "no receive can be posted: ending the connection");
                    device.abort(self.qp);
                }
            }
        }
    }

    /// Records a receive that was posted while not all receives have the current structure.
    #[cold]
    fn note_mixed(&mut self, other: Option<ReceiveStructure>) {
        if self.mixed.is_empty() && self.receives > 0 {
            self.mixed
                .push_back((self.receives, self.structure.clone()));
        }
        let structure = other.unwrap_or_else(|| self.structure.clone());
        match self.mixed.back_mut() {
            Some((count, last)) if *last == structure => *count += 1,
            _ => self.mixed.push_back((1, structure)),
        }
    }

    /// Records that the oldest receive was consumed. Returns its structure while not all receives
    /// have the current one.
    fn used(&mut self) -> Option<ReceiveStructure> {
        self.receives = self.receives.saturating_sub(1);
        let (count, structure) = self.mixed.front_mut()?;
        *count = count.saturating_sub(1);
        let used = match *count {
            0 => self.mixed.pop_front().map(|(_, structure)| structure),
            _ => Some(structure.clone()),
        };
        self.forget_mixed();
        used
    }

    fn forget_mixed(&mut self) {
        let current = &self.structure;
        if self.mixed.iter().all(|(_, structure)| structure == current) {
            self.mixed.clear();
        }
    }

    /// Returns the message in a consumed receive, in a piece for each segment that it reached.
    /// Another receive is posted in its place, now or by [`OwnReceives::repost`].
    ///
    /// The peer's credits promise the receives, so one is posted even if the pool has no memory:
    /// then the message is copied out of its buffers, and those are posted again.
    pub(super) fn received(&mut self, device: &mut dyn Device, receive: Scatter) -> Segments {
        let structure = self.used();
        let keep = structure.is_none();
        if self.unneeded > 0 {
            self.unneeded -= 1;
            // No receive takes its place, so none needs its pieces.
            return self.spare.message(receive, false);
        }
        if self.to_repost < REPOST_LATER {
            self.to_repost += 1;
            return self.spare.message(receive, keep);
        }
        match alloc(&self.structure, &mut self.spare, |len| {
            device.pool().alloc(len)
        }) {
            Ok(next) => {
                self.post_receive(device, next, None);
                self.spare.message(receive, keep)
            }
            Err(_) => {
                let message = receive.to_vec();
                self.copied += message.len() as u64;
                self.repost_buffers(device, receive, structure);
                Segments::from_iter([Bytes::from(message)])
            }
        }
    }

    /// Posts the buffers of a consumed receive again, which has the current structure or `other`.
    #[cold]
    fn repost_buffers(
        &mut self,
        device: &mut dyn Device,
        receive: Scatter,
        other: Option<ReceiveStructure>,
    ) {
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        let other = if restore(&self.structure, &mut pieces) {
            None
        } else if let Some(other) = other.filter(|other| restore(other, &mut pieces)) {
            // It has the old structure, so receives are being replaced for longer.
            Some(other)
        } else {
            // The device has returned other buffers than it was given.
            rpcrdma_host::limited!(error, qp = self.qp.0, "no memory for a receive");
            return device.abort(self.qp);
        };
        let first = pieces.remove(0);
        self.post_receive(device, Scatter::new(first, pieces), other);
    }

    /// Posts `count` further receives, or none. Returns whether there was memory for all.
    pub(super) fn post(&mut self, device: &mut dyn Device, count: u32) -> bool {
        let there = self.unneeded.min(count);
        let wanted = (count - there) as usize;
        let mut receives = std::mem::take(&mut self.prepared);
        receives.truncate(wanted);
        // All or none: a call that is planned again must not be short of memory for that.
        let more = alloc_all(device.pool(), &self.structure, wanted - receives.len());
        let Ok(more) = more else {
            return false;
        };
        receives.extend(more);
        self.unneeded -= there;
        for receive in receives {
            self.post_receive(device, receive, None);
        }
        true
    }

    /// Stops the reposting of the next `count` consumed receives.
    pub(super) fn release(&mut self, count: u32) {
        self.unneeded += count;
    }

    /// Replaces every receive, after it has been consumed, by one of another structure.
    pub(super) fn set(&mut self, structure: ReceiveStructure) {
        let old = std::mem::replace(&mut self.structure, structure);
        if self.mixed.is_empty() && self.receives > 0 {
            self.mixed.push_back((self.receives, old));
        }
        self.forget_mixed();
        self.spare.clear();
        self.replacing = true;
    }

    /// Returns the new structure set by [`OwnReceives::set`], once, as soon as no posted
    /// receive has an older one.
    pub(super) fn replaced(&mut self) -> Option<ReceiveStructure> {
        let replaced = self.mixed.is_empty() && std::mem::take(&mut self.replacing);
        replaced.then(|| self.structure.clone())
    }

    /// Returns whether consumed receives have not been posted again yet.
    pub(super) fn has_to_repost(&self) -> bool {
        self.to_repost > 0
    }

    /// Posts receives in place of consumed ones, as far as there is memory.
    pub(super) fn repost(&mut self, device: &mut dyn Device) {
        while self.to_repost > 0 {
            let receive = alloc(&self.structure, &mut self.spare, |len| {
                device.pool().alloc(len)
            });
            let Ok(receive) = receive else { return };
            self.to_repost -= 1;
            self.post_receive(device, receive, None);
        }
    }

    /// Returns whether at least `messages` receives are posted, or the connection is ending anyway.
    pub(super) fn can_receive(&self, messages: u32) -> bool {
        self.ending || self.receives >= messages
    }

    /// Returns the number of bytes copied: short messages, and messages whose receives had to be
    /// posted again at once.
    pub(super) fn copied(&self) -> u64 {
        self.copied + self.spare.copied()
    }
}
