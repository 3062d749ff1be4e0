//! What this side asks the peer to change (sections 3.1, 4.2 and 4.3).

use std::collections::BTreeSet;

use rpcrdma_v2::extension::Property;

use crate::{Characteristic, Peer, ReceiveBufferSize, Response, Update};

/// Requests of this side, and the limit on what it sends that follows from them.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The one that has no response yet.
    unanswered: Option<(u32, Vec<Property>)>,
    /// Characteristics that an update is to come for.
    pending: BTreeSet<u32>,
    /// A receive buffer size that was asked for, while the peer may or may not have it. Nothing
    /// longer is sent.
    ceiling: Option<u32>,
}

impl Requests {
    pub(crate) fn is_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    pub(crate) fn is_pending(&self, id: u32) -> bool {
        self.pending.contains(&id)
    }

    /// A request was sent.
    pub(crate) fn sent(&mut self, xid: u32, want: Vec<Property>) {
        let sizes = want.iter().filter(|p| is_size(p));
        let sizes = sizes.filter_map(|p| ReceiveBufferSize::from_bytes(&p.value).ok());
        self.ceiling = sizes.chain(self.ceiling).min();
        self.unanswered = Some((xid, want));
    }

    /// A response arrived, or (nothing) one that cannot be understood. Gives what has changed;
    /// nothing if there is no such request.
    pub(crate) fn answered(
        &mut self,
        xid: u32,
        response: Option<&Response>,
    ) -> Option<Vec<Property>> {
        let (_, want) = self.unanswered.take_if(|(sent, _)| *sent == xid)?;
        let Some(response) = response.filter(|response| response.covers(want.len())) else {
            // Whether the peer has the lower size is not known, and never will be: the ceiling
            // stays.
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

    /// The request was refused as a whole. False: there is no such request.
    pub(crate) fn refused(&mut self, xid: u32) -> bool {
        let Some((_, want)) = self.unanswered.take_if(|(sent, _)| *sent == xid) else {
            return false;
        };
        if want.iter().any(is_size) {
            self.ceiling = None;
        }
        true
    }

    /// An update arrived.
    pub(crate) fn updated(&mut self, update: &Update) {
        let id = update.now.id;
        if update.pending_cleared && self.pending.remove(&id) && id == ReceiveBufferSize::ID {
            self.ceiling = None;
        }
    }

    /// Longest message that may be sent.
    pub(crate) fn send_limit(&self, peer: &Peer) -> u32 {
        let size = peer.get::<ReceiveBufferSize>();
        self.ceiling.map_or(size, |ceiling| ceiling.min(size))
    }

    /// Longest reply to a call that counted on the size before. Nothing while the peer may have
    /// changed it already and has not said so.
    pub(crate) fn last_resort(&self, peer: &Peer) -> Option<u32> {
        let unanswered = self.unanswered.as_ref();
        if unanswered.is_some_and(|(_, want)| want.iter().any(is_size)) {
            return None;
        }
        match self.pending.contains(&ReceiveBufferSize::ID) {
            // It says so when it has.
            true => Some(peer.get::<ReceiveBufferSize>()),
            false => Some(self.send_limit(peer)),
        }
    }
}

fn is_size(property: &Property) -> bool {
    property.id == ReceiveBufferSize::ID
}
