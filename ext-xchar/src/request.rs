//! Requests of this side that the peer change its characteristics (sections 3.1, 4.2 and 4.3).

use std::collections::BTreeSet;

use rpcrdma_extension::Property;

use crate::{Characteristic, Peer, ReceiveBufferSize, Response, Update};

/// This side's requests, and the limit on message lengths that follows from them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// XID and list of the request that has no response yet.
    unanswered: Option<(u32, Vec<Property>)>,
    /// Characteristics for which an update is expected.
    pending: BTreeSet<u32>,
    /// A receive buffer size in bytes that was requested and may or may not be in effect. No longer
    /// message is sent.
    ceiling: Option<u32>,
}

impl Requests {
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    pub(crate) fn is_pending(&self, id: u32) -> bool {
        self.pending.contains(&id)
    }

    /// Records that a request was sent.
    pub(crate) fn sent(&mut self, xid: u32, want: Vec<Property>) {
        let sizes = want.iter().filter(|p| is_size(p));
        let sizes = sizes.filter_map(|p| ReceiveBufferSize::from_bytes(&p.value).ok());
        self.ceiling = sizes.chain(self.ceiling).min();
        self.unanswered = Some((xid, want));
    }

    /// Records the arrival of a response, or of an invalid one (`None`). Returns the
    /// characteristics that have changed, or `None` if no request has this XID.
    pub(crate) fn answered(
        &mut self,
        xid: u32,
        response: Option<&Response>,
    ) -> Option<Vec<Property>> {
        let (_, want) = self.unanswered.take_if(|(sent, _)| *sent == xid)?;
        let Some(response) = response.filter(|response| response.covers(want.len())) else {
            // It is unknown whether the peer uses the lower size, and no message will tell, so the
            // ceiling stays.
            return Some(Vec::new());
        };
        let mut changed = Vec::new();
        for (element, property) in want.into_iter().enumerate() {
            if response.pending.contains(element) {
                self.pending.insert(property.id);
                continue;
            }
            if is_size(&property) {
                self.ceiling = None;
            }
            if response.done.contains(element) {
                changed.push(property);
            }
        }
        Some(changed)
    }

    /// Records that the whole request was refused. Returns false if no request has this XID.
    pub(crate) fn refused(&mut self, xid: u32) -> bool {
        let Some((_, want)) = self.unanswered.take_if(|(sent, _)| *sent == xid) else {
            return false;
        };
        if want.iter().any(is_size) {
            self.ceiling = None;
        }
        true
    }

    /// Records the arrival of an update.
    pub(crate) fn updated(&mut self, update: &Update) {
        let id = update.now.id;
        if update.pending_cleared && self.pending.remove(&id) && id == ReceiveBufferSize::ID {
            self.ceiling = None;
        }
    }

    /// Returns the maximum length in bytes of a message to the peer.
    pub(crate) fn send_limit(&self, peer: &Peer) -> u32 {
        let size = peer.get::<ReceiveBufferSize>();
        self.ceiling.map_or(size, |ceiling| ceiling.min(size))
    }

    /// Returns the maximum length in bytes of a reply to a call that relied on the previous size.
    /// `None` while the peer may have changed the size without having said so.
    pub(crate) fn last_resort(&self, peer: &Peer) -> Option<u32> {
        let unanswered = self.unanswered.as_ref();
        if unanswered.is_some_and(|(_, want)| want.iter().any(is_size)) {
            return None;
        }
        match self.pending.contains(&ReceiveBufferSize::ID) {
            // The peer announces the new size when it is in effect.
            true => Some(peer.get::<ReceiveBufferSize>()),
            false => Some(self.send_limit(peer)),
        }
    }
}

fn is_size(property: &Property) -> bool {
    property.id == ReceiveBufferSize::ID
}
