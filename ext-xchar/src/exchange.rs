//! The state of one end of a connection.

use rpcrdma_chunks::Side;
use rpcrdma_extension::{Calls, Kind, NotChanged, Outbox, Property, Start};
use rpcrdma_v2::limits::{DEFAULT_INLINE, FIRST_MESSAGE_MAX, OPTIONAL_LEN};

use crate::codec::property_len;
use crate::receive_size::OwnSize;
use crate::request::Requests;
use crate::updates::Updates;
use crate::{
    BackwardRequestSupport, BackwardSupport, Characteristic, INITXCH, Init, Peer, REQXCH,
    ReceiveBufferSize, Registry, Request, Subset, Update,
};

/// The configuration of this end.
#[derive(Clone, Debug)]
pub struct Config {
    /// The characteristics that this end understands.
    pub registry: Registry,
    /// Length in bytes of the receives posted when the connection begins, at least
    /// [`DEFAULT_INLINE`].
    pub receive_size: u32,
    /// Maximum length in bytes to which receives are enlarged when the peer asks.
    pub max_receive_size: u32,
    /// Maximum length in bytes of a message to the peer, whatever the peer can receive.
    pub max_send: u32,
    /// Whether this end allows replies to invalidate the handles of its calls.
    pub accept_invalidation: bool,
    /// Whether this end can use Send With Invalidate.
    pub can_invalidate: bool,
    /// This end's support for reverse-direction calls, if it is a client.
    pub backward: BackwardSupport,
}

/// The peer's support for this extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// It is not known yet whether the peer supports the exchange.
    Unknown,
    /// The peer announced its characteristics.
    Yes,
    /// The peer answered with an error.
    No,
}

/// The transport characteristics of both ends of one connection.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) config: Config,
    pub(crate) size: OwnSize,
    pub(crate) peer: Peer,
    pub(crate) support: Support,
    /// XID of this side's INITXCH, unless it was sent as a reply.
    pub(crate) init: Option<u32>,
    pub(crate) requests: Requests,
    /// Whether the peer does not support requests.
    pub(crate) no_requests: bool,
    /// Whether the peer has made a request, so that it supports updates (section 4).
    pub(crate) takes_updates: bool,
    /// Whether the peer does not support updates.
    pub(crate) no_updates: bool,
    pub(crate) updates: Updates,
    /// XID of the update that announces a new receive size, until the peer has understood it.
    pub(crate) size_update: Option<u32>,
}

impl Exchange {
    /// Creates the state for a new connection.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        // Every receiver accepts messages of this size (version-two-01, section 2.3).
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
            takes_updates: false,
            no_updates: false,
            updates: Updates::default(),
            size_update: None,
        }
    }

    /// Returns the peer's characteristics.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns whether the peer supports this extension, or `None` while that is not known.
    #[must_use]
    pub fn supported(&self) -> Option<bool> {
        match self.support {
            Support::Unknown => None,
            Support::Yes => Some(true),
            Support::No => Some(false),
        }
    }

    /// Enlarges this side's receives, and announces the new size when all of them have it. Receives
    /// are made shorter only when the peer asks (section 3.1).
    ///
    /// # Errors
    /// [`NotChanged`], with the reason.
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
        // The reply that shows that an earlier announcement was understood says nothing about the new one.
        self.size_update = None;
        out.replace_receives(to);
        Ok(())
    }

    /// Asks the peer to change characteristics (section 4.2). Only one request can be outstanding;
    /// its outcome appears in [`Exchange::peer`]. This side keeps to a requested lower receive size
    /// at once.
    ///
    /// # Errors
    /// [`NotChanged`], with the reason. Nothing is sent.
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
        // Encoding and decoding the list makes all values share one allocation.
        let want = Request::decode(&info).map_or_else(|_| Vec::new(), |request| request.want);
        let xid = out.call(REQXCH, info);
        self.requests.sent(xid, want);
        out.limits_changed();
        Ok(())
    }

    pub(crate) fn send_init(&mut self, start: &Start<'_>, out: &mut Outbox<'_>) {
        // Support for reverse-direction calls has a meaning only for a client (section 3.3).
        let is_told = |property: &&Property| {
            start.side == Side::Client || property.id != BackwardRequestSupport::ID
        };
        let mut init = Init::default();
        // A peer that is not known yet receives at least version 1's default size (section 4.1).
        let mut room = FIRST_MESSAGE_MAX as usize - OPTIONAL_LEN - Init::LONGEST_EMPTY;
        for property in start.properties.iter().filter(is_told) {
            let len = property_len(property);
            if len > room || init.start.len() == crate::MAX_CHARACTERISTICS {
                // Characteristics that do not fit are announced later by updates.
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
            // The reply to the peer's first operation, as responder (version-two-01, sections 4.2.2
            // and 5.1).
            Some(heard) if heard.kind == Kind::Extension(INITXCH) => {
                out.reply(heard.xid, INITXCH, info);
            }
            _ => self.init = Some(out.call(INITXCH, info)),
        }
    }

    /// Records that a message of the peer has arrived, and sends an update if one waits. Between
    /// two messages of the peer at most one update is sent, for which the peer has a receive.
    pub(crate) fn message_received(&mut self, out: &mut Outbox<'_>) {
        self.updates.message_received();
        self.send_updates(out);
    }

    pub(crate) fn send_updates(&mut self, out: &mut Outbox<'_>) {
        // Updates are sent only to a peer that is known to support the extension.
        if self.support != Support::Yes || self.no_updates {
            return;
        }
        let Some((xid, update)) = self.updates.send(out) else {
            return;
        };
        if update.now.id != ReceiveBufferSize::ID {
            return;
        }
        if self.takes_updates {
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

impl Init {
    /// Length in bytes of an operation without characteristics but with the longest possible
    /// subset.
    const LONGEST_EMPTY: usize = 4 + 4 + Subset::LONGEST;
}
