//! The extensions of one connection.

use std::any::Any;

use bytes::Bytes;

use super::action::Shared;
use super::{
    Action, Calls, ConnectionLimits, Extension, Operation, Outbox, Property, Refusal, Start,
    TransferMode,
};
use crate::{Answer, Body, Direction, ErrorBody, Header, Side};

/// Two extensions own the same `rdma_opttype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} both own operation {opttype}")]
pub struct DuplicateOpttype {
    /// The `rdma_opttype`.
    pub opttype: u32,
    /// Name of the extension that was added first.
    pub first: &'static str,
    /// Name of the extension that was added later.
    pub second: &'static str,
}

/// The outcome of routing a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The base protocol must handle the message: it is an RPC message, or an error about a call.
    Base,
    /// An extension has handled the message.
    Taken,
    /// The message is not handled, and this error must be sent.
    Refused(Answer),
    /// The message is discarded silently, for this reason.
    Discarded(Refusal),
}

/// The extensions of one connection. Routes operations to their owners and collects the requests of
/// all extensions.
#[derive(Debug)]
pub struct Extensions {
    side: Side,
    list: Vec<Box<dyn Extension>>,
    /// Each operation with the index of its owner.
    owners: Vec<(u32, usize)>,
    shared: Shared,
}

impl Extensions {
    /// Creates the set for a new connection. Operations that begin an exchange get XIDs from
    /// `first_xid` downwards, which must differ from the XIDs of this side's outstanding calls.
    ///
    /// # Errors
    /// [`DuplicateOpttype`] if two extensions own the same `rdma_opttype`.
    pub fn new(
        side: Side,
        first_xid: u32,
        list: Vec<Box<dyn Extension>>,
    ) -> Result<Self, DuplicateOpttype> {
        for (at, extension) in list.iter().enumerate() {
            for &opttype in extension.opttypes() {
                let mut earlier = list[..at].iter();
                if let Some(owner) = earlier.find(|earlier| earlier.opttypes().contains(&opttype)) {
                    return Err(DuplicateOpttype {
                        opttype,
                        first: owner.name(),
                        second: extension.name(),
                    });
                }
            }
        }
        let owners = list.iter().enumerate().flat_map(|(at, extension)| {
            let opttypes = extension.opttypes().iter();
            opttypes.map(move |&opttype| (opttype, at))
        });
        Ok(Self {
            side,
            owners: owners.collect(),
            list,
            shared: Shared::new(first_xid),
        })
    }

    /// Reports that the connection uses version 2 from now on. At the end that received the first
    /// version 2 message, `opened_by` is its header, and [`Extensions::received`] is called after
    /// this.
    pub fn connected(&mut self, opened_by: Option<&Header>) {
        let properties: Vec<Property> = self.list.iter().flat_map(|e| e.properties()).collect();
        let start = Start {
            side: self.side,
            opened_by,
            properties: &properties,
        };
        self.each(|extension, out| extension.connected(&start, out));
    }

    /// Returns the direction of an operation, if its owner knows it.
    #[must_use]
    pub fn direction(&self, opttype: u32) -> Option<Direction> {
        self.list[self.owner(opttype)?].direction(opttype)
    }

    /// Returns the index of the extension that owns an operation.
    fn owner(&self, opttype: u32) -> Option<usize> {
        let mut owners = self.owners.iter();
        owners
            .find(|(owned, _)| *owned == opttype)
            .map(|&(_, at)| at)
    }

    /// Returns whether no extension takes the value of this property for an invalid one.
    #[must_use]
    pub fn is_valid(&self, property: &Property) -> bool {
        self.list
            .iter()
            .all(|extension| extension.is_valid(property))
    }

    /// Routes a received message. `message` is the whole message, as slices of its receive
    /// segments; its header is `header` and ends at offset `payload_at`. Must be called for every
    /// message, in the order of arrival, before the message is handled otherwise.
    pub fn received(&mut self, header: &Header, message: &[Bytes], payload_at: usize) -> Routed {
        let owner = self.observed(header);
        let routed = match (&header.body, owner) {
            (Body::Msg(..) | Body::NoMsg(..), _) => Routed::Base,
            (Body::Error(error), _) => self.error(header.xid, *error),
            // Section 3.1: an unknown operation is refused whatever its direction.
            (Body::Optional(_), None) => Routed::Refused(Answer::invalid_option(header.xid)),
            (Body::Optional(optional), Some(owner)) => {
                let operation = Operation::new(header, optional, message, payload_at);
                let mut out = Outbox::new(&mut self.shared, owner);
                match self.list[owner].received(&operation, &mut out) {
                    Ok(()) => Routed::Taken,
                    Err(Refusal::Malformed(_)) => Routed::Refused(Answer::bad_header(header.xid)),
                    Err(Refusal::Unsupported) => {
                        Routed::Refused(Answer::invalid_option(header.xid))
                    }
                    Err(discard @ Refusal::Discard(_)) => Routed::Discarded(discard),
                }
            }
        };
        self.pass_on();
        routed
    }

    /// Lets the owner of a truncated operation refuse it ([`Extension::refuse_truncated`]). The parameters
    /// are those of [`Extensions::received`]. Returns false if the message is no operation, or its owner
    /// cannot refuse it.
    pub fn refuse_truncated(
        &mut self,
        header: &Header,
        message: &[Bytes],
        payload_at: usize,
    ) -> bool {
        let (Some(owner), Body::Optional(optional)) = (self.observed(header), &header.body) else {
            return false;
        };
        let operation = Operation::new(header, optional, message, payload_at);
        let mut out = Outbox::new(&mut self.shared, owner);
        let is_refused = self.list[owner].refuse_truncated(&operation, &mut out);
        self.pass_on();
        is_refused
    }

    /// Shows a message to all extensions but its owner. Returns the owner, if it is an operation and has
    /// one.
    fn observed(&mut self, header: &Header) -> Option<usize> {
        let owner = match &header.body {
            Body::Optional(optional) => self.owner(optional.opttype),
            _ => None,
        };
        for (at, extension) in self.list.iter_mut().enumerate() {
            if Some(at) != owner {
                extension.observed(header, &mut Outbox::new(&mut self.shared, at));
            }
        }
        owner
    }

    /// Routes an error to the extension that sent the operation, or to the base protocol.
    fn error(&mut self, xid: u32, error: ErrorBody) -> Routed {
        let Some(sender) = self.shared.take_sender(xid) else {
            return Routed::Base;
        };
        let mut out = Outbox::new(&mut self.shared, sender);
        self.list[sender].refused(xid, error, &mut out);
        Routed::Taken
    }

    /// Reports that an [`Action::ReplaceReceives`] has been completed.
    pub fn receives_replaced(&mut self, size: u32) {
        self.each(|extension, out| extension.receives_replaced(size, out));
    }

    /// Reports that the calls of an [`Action::AwaitReplies`] have been answered.
    pub fn replies_arrived(&mut self, calls: Calls) {
        self.each(|extension, out| extension.replies_arrived(calls, out));
    }

    /// Reports that the connection has ended.
    pub fn closed(&mut self) {
        self.list
            .iter_mut()
            .for_each(|extension| extension.closed());
        self.shared.actions.clear();
    }

    /// Returns whether there is a request for the engine.
    #[must_use]
    #[inline]
    pub fn has_action(&self) -> bool {
        !self.shared.actions.is_empty()
    }

    /// Returns the next request for the engine.
    pub fn next_action(&mut self) -> Option<Action> {
        self.shared.actions.pop_front()
    }

    /// Returns the current limits, from which transfer plans are made.
    #[must_use]
    pub fn limits(&self) -> ConnectionLimits {
        let mut limits = ConnectionLimits::default();
        for extension in &self.list {
            extension.limits(&mut limits);
        }
        limits
    }

    /// Returns whether every extension knows what the peer supports.
    #[must_use]
    pub fn know_peer(&self) -> bool {
        self.list.iter().all(|extension| extension.knows_peer())
    }

    /// Returns whether an extension holds a part of an RPC message.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.list.iter().any(|extension| extension.is_collecting())
    }

    /// Returns how many bytes of memory the parts of RPC messages take that extensions hold.
    #[must_use]
    pub fn collected_bytes(&self) -> usize {
        let each = self
            .list
            .iter()
            .map(|extension| extension.collected_bytes());
        each.fold(0, usize::saturating_add)
    }

    /// Returns the number of bytes of messages that extensions have copied.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let each = self.list.iter().map(|extension| extension.copied_bytes());
        each.sum()
    }

    /// Returns the extensions that carry RPC messages, each with its index for
    /// [`Extensions::transfer_mode`].
    pub fn transfer_modes(&mut self) -> impl Iterator<Item = (usize, &mut dyn TransferMode)> {
        let list = self.list.iter_mut().enumerate();
        list.filter_map(|(at, extension)| Some((at, extension.transfer_mode()?)))
    }

    /// Returns the extension with this index, if it carries RPC messages.
    pub fn transfer_mode(&mut self, number: usize) -> Option<&mut dyn TransferMode> {
        self.list.get_mut(number)?.transfer_mode()
    }

    /// Returns the extension of this type, so that the caller can use its own methods.
    #[must_use]
    pub fn find<T: Extension>(&self) -> Option<&T> {
        let mut list = self.list.iter();
        list.find_map(|extension| (&**extension as &dyn Any).downcast_ref())
    }

    /// Returns the extension of this type, to call methods that request nothing of the engine.
    #[must_use]
    pub fn find_mut<T: Extension>(&mut self) -> Option<&mut T> {
        let mut list = self.list.iter_mut();
        list.find_map(|extension| (&mut **extension as &mut dyn Any).downcast_mut())
    }

    /// Calls `act` with the extension of this type. Returns `None` if there is none.
    pub fn with<T: Extension, R>(
        &mut self,
        act: impl FnOnce(&mut T, &mut Outbox<'_>) -> R,
    ) -> Option<R> {
        let mut list = self.list.iter_mut().enumerate();
        let (at, found) = list.find_map(|(at, extension)| {
            let any: &mut dyn Any = &mut **extension;
            Some((at, any.downcast_mut::<T>()?))
        })?;
        let done = act(found, &mut Outbox::new(&mut self.shared, at));
        self.pass_on();
        Some(done)
    }

    fn each(&mut self, mut act: impl FnMut(&mut dyn Extension, &mut Outbox<'_>)) {
        for (at, extension) in self.list.iter_mut().enumerate() {
            act(&mut **extension, &mut Outbox::new(&mut self.shared, at));
        }
        self.pass_on();
    }

    /// Announces the queued properties to every other extension.
    fn pass_on(&mut self) {
        while let Some((by, property)) = self.shared.learnt.pop_front() {
            for (at, extension) in self.list.iter_mut().enumerate() {
                if at != by {
                    extension.property_received(&property, &mut Outbox::new(&mut self.shared, at));
                }
            }
        }
    }
}
