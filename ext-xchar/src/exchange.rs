//! An end's state on one connection.

use rpcrdma_v2::extension::{Calls, Outbox, Property, Start};
use rpcrdma_v2::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX, OPTIONAL_LEN};
use rpcrdma_v2::{Body, Header, Side};

use crate::codec::property_len;
use crate::receive_size::OwnSize;
use crate::request::Requests;
use crate::updates::Updates;
use crate::{
    BackwardRequestSupport, BackwardSupport, Characteristic, INITXCH, Init, Peer, REQXCH,
    ReceiveBufferSize, Registry, Request, Subset, Update,
};

/// What this end is like.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is understood.
    pub registry: Registry,
    /// Bytes of the receives that are posted at the beginning: [`DEFAULT_INLINE`] at least.
    pub receive_size: u32,
    /// Bytes up to which they are made longer when the peer asks.
    pub max_receive_size: u32,
    /// Longest message to send, whatever the peer can receive, bytes.
    pub max_send: u32,
    /// Whether a handle of a call may be invalidated by its reply, as far as this end is concerned.
    pub accept_invalidation: bool,
    /// Whether this end can send with invalidation.
    pub can_invalidate: bool,
    /// What this end takes in backward calls, if it is a client.
    pub backward: BackwardSupport,
}

/// Why something is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// The peer has not said yet what it is like.
    #[error("the peer has not said what it is like yet")]
    NotSettled,
    /// The peer does not know what it would have to.
    #[error("the peer does not support that operation")]
    NotSupported,
    /// Another change is under way; or the value is out of bounds, or what it is already.
    #[error("another change is under way, or the size is not possible")]
    NotPossible,
    /// The peer said that it would not change.
    #[error("characteristic {0} does not change")]
    Fixed(u32),
}

/// What the peer does about this extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// Not known yet.
    Unknown,
    /// It said what it is like.
    Yes,
    /// It answered with an error.
    No,
}

/// Transport characteristics of both ends of one connection.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) config: Config,
    pub(crate) size: OwnSize,
    pub(crate) peer: Peer,
    pub(crate) support: Support,
    /// The XID of this side's INITXCH, where it was no reply.
    pub(crate) init: Option<u32>,
    pub(crate) requests: Requests,
    /// The peer refused a request, or an update.
    pub(crate) no_requests: bool,
    pub(crate) no_updates: bool,
    pub(crate) updates: Updates,
    /// The XID of the update that tells of a new receive size, until the peer has understood it.
    pub(crate) size_update: Option<u32>,
}

impl Exchange {
    /// For a new connection.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        // Every receiver takes messages of this size (version-two-01, section 2.3).
        config.receive_size = config.receive_size.max(DEFAULT_INLINE);
        config.max_receive_size = config.max_receive_size.max(config.receive_size);
        let bounds = (DEFAULT_INLINE, config.max_receive_size);
        Self {
            size: OwnSize::new(config.receive_size, bounds),
            config,
            peer: Peer::default(),
            support: Support::Unknown,
            init: None,
            requests: Requests::default(),
            no_requests: false,
            no_updates: false,
            updates: Updates::default(),
            size_update: None,
        }
    }

    /// What the peer said.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What is understood here.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.config.registry
    }

    /// Whether the peer takes part: nothing while that is not known.
    #[must_use]
    pub fn supported(&self) -> Option<bool> {
        match self.support {
            Support::Unknown => None,
            Support::Yes => Some(true),
            Support::No => Some(false),
        }
    }

    /// Makes this side's receives longer, and lets the peer know when they are. They become shorter
    /// only when the peer asks (section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`].
    pub fn raise_receive_size(&mut self, to: u32, out: &mut Outbox<'_>) -> Result<(), NotChanged> {
        match self.support {
            Support::Unknown => return Err(NotChanged::NotSettled),
            Support::No => return Err(NotChanged::NotSupported),
            Support::Yes if self.no_updates => return Err(NotChanged::NotSupported),
            Support::Yes => {}
        }
        if !self.size.raise(to) {
            return Err(NotChanged::NotPossible);
        }
        out.replace_receives(to);
        Ok(())
    }

    /// Asks the peer to change (section 4.2). One request at a time; what becomes of it shows in
    /// [`Exchange::peer`]. A lower receive size is kept to from now on.
    ///
    /// # Errors
    /// [`NotChanged`]; nothing is sent.
    pub fn request(&mut self, want: Vec<Property>, out: &mut Outbox<'_>) -> Result<(), NotChanged> {
        match self.support {
            Support::Unknown => return Err(NotChanged::NotSettled),
            Support::No => return Err(NotChanged::NotSupported),
            Support::Yes if self.no_requests => return Err(NotChanged::NotSupported),
            Support::Yes => {}
        }
        if let Some(fixed) = want.iter().find(|property| self.peer.is_fixed(property.id)) {
            return Err(NotChanged::Fixed(fixed.id));
        }
        let under_way = want
            .iter()
            .any(|property| self.requests.is_pending(property.id));
        if self.requests.is_unanswered() || under_way || want.len() > crate::MAX_CHARACTERISTICS {
            return Err(NotChanged::NotPossible);
        }
        let info = Request { want }.encode();
        // Encoded and decoded again, the values share one allocation.
        let want = Request::decode(&info).map_or_else(|_| Vec::new(), |request| request.want);
        let xid = out.call(REQXCH, info);
        self.requests.sent(xid, want);
        out.limits_changed();
        Ok(())
    }

    pub(crate) fn send_init(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        // Only a client's support of backward calls means something (section 3.3).
        let is_told = |property: &&Property| {
            start.side == Side::Client || property.id != BackwardRequestSupport::ID
        };
        let mut init = Init::default();
        // A peer that is not known yet receives version 1's default at least (section 4.1).
        let mut room = FIRST_MESSAGE_MAX as usize - OPTIONAL_LEN - Init::LONGEST_EMPTY;
        for property in start.properties.iter().filter(is_told) {
            let len = property_len(property);
            if len > room || init.start.len() == crate::MAX_CHARACTERISTICS {
                // The rest is told later.
                self.updates.push(Update {
                    now: property.clone(),
                    pending_cleared: false,
                });
                continue;
            }
            room -= len;
            if property.id != ReceiveBufferSize::ID {
                init.no_change.add(init.start.len());
            }
            init.start.push(property.clone());
        }
        let info = init.encode();
        match start.opened_by {
            // A responder's answer to what the peer began with (version-two-01, sections 4.2.2 and
            // 5.1).
            Some(header) if is_init(header) => out.reply(header.xid, INITXCH, info),
            _ => self.init = Some(out.call(INITXCH, info)),
        }
    }

    /// A message arrived: an update may be sent.
    pub(crate) fn message_received(&mut self, out: &mut Outbox<'_>) {
        self.updates.message_received();
        self.send_updates(out);
    }

    pub(crate) fn send_updates(&mut self, out: &mut Outbox<'_>) {
        // A peer that is not known to take part gets none.
        if self.support != Support::Yes || self.no_updates {
            return;
        }
        let Some((xid, update)) = self.updates.send(out) else {
            return;
        };
        if update.now.id != ReceiveBufferSize::ID {
            return;
        }
        if update.pending_cleared {
            // Who asks for changes must support updates (section 4).
            self.size.understood();
            out.limits_changed();
        } else {
            self.size_update = Some(xid);
            out.await_replies(Calls::Next);
        }
    }

    pub(crate) fn tell_size(&mut self, size: u32, pending_cleared: bool, out: &mut Outbox<'_>) {
        let now = ReceiveBufferSize::property(&size);
        self.updates.push(Update {
            now,
            pending_cleared,
        });
        self.send_updates(out);
    }
}

fn is_init(header: &Header) -> bool {
    matches!(&header.body, Body::Optional(op) if op.opttype == INITXCH)
}

impl Init {
    /// Bytes of one without characteristics, with the longest subset there is.
    const LONGEST_EMPTY: usize = 4 + 4 + Subset::LONGEST;
}
