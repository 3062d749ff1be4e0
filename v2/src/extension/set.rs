//! The extensions of one connection.

use std::any::Any;

use bytes::Bytes;

use super::action::Shared;
use super::{
    Action, Calls, ConnectionLimits, Conveyor, Extension, Operation, Outbox, Property, Refusal,
    Start,
};
use crate::{Answer, Body, ErrorBody, Header, Side};

/// Two extensions own the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} both own operation {opttype}")]
pub struct OpttypeTaken {
    /// Which operation.
    pub opttype: u32,
    /// Who had it.
    pub first: &'static str,
    /// Who wants it.
    pub second: &'static str,
}

/// Who is in charge of a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The base: RPC messages, and errors that are for calls.
    Base,
    /// An extension, which has dealt with it.
    Taken,
    /// Nobody: this error is sent, and nothing else is done.
    Refused(Answer),
    /// Nobody: it is discarded silently, for this reason.
    Discarded(Refusal),
}

/// The extensions of one connection: routes operations to their owners, and collects what they want
/// done.
#[derive(Debug)]
pub struct Extensions {
    side: Side,
    list: Vec<Box<dyn Extension>>,
    shared: Shared,
}

impl Extensions {
    /// For a new connection. Operations that begin exchanges have XIDs from `first_xid` downwards,
    /// which must not be those of calls that this side has outstanding.
    ///
    /// # Errors
    /// [`OpttypeTaken`].
    pub fn new(
        side: Side,
        first_xid: u32,
        list: Vec<Box<dyn Extension>>,
    ) -> Result<Self, OpttypeTaken> {
        for (at, extension) in list.iter().enumerate() {
            for &opttype in extension.opttypes() {
                let mut earlier = list[..at].iter();
                if let Some(owner) = earlier.find(|earlier| earlier.opttypes().contains(&opttype)) {
                    return Err(OpttypeTaken {
                        opttype,
                        first: owner.name(),
                        second: extension.name(),
                    });
                }
            }
        }
        Ok(Self {
            side,
            list,
            shared: Shared::new(first_xid),
        })
    }

    /// The connection speaks version 2 from now on. `opened_by` is the header of the message that
    /// says so, at the end that received it; [`Extensions::received`] comes after this.
    pub fn connected(&mut self, opened_by: Option<&Header>) {
        let properties: Vec<Property> = self.list.iter().flat_map(|e| e.properties()).collect();
        let start = Start {
            side: self.side,
            opened_by,
            properties: &properties,
        };
        self.each(|extension, out| extension.connected(&start, out));
    }

    /// A message arrived, whose header is `header` and ends at `payload_at`. `message` is all of
    /// it, in the pieces of its receive buffer. To be called for every message, in the order of
    /// arrival, before anything else is done with it.
    pub fn received(&mut self, header: &Header, message: &[Bytes], payload_at: usize) -> Routed {
        let owner = match &header.body {
            Body::Optional(optional) => {
                let mut list = self.list.iter();
                list.position(|e| e.opttypes().contains(&optional.opttype))
            }
            _ => None,
        };
        for (at, extension) in self.list.iter_mut().enumerate() {
            if Some(at) != owner {
                extension.overheard(header, &mut Outbox::new(&mut self.shared, at));
            }
        }
        let routed = match (&header.body, owner) {
            (Body::Msg(..) | Body::NoMsg(..), _) => Routed::Base,
            (Body::Error(error), _) => self.error(header.xid, *error),
            // Section 3.1: whatever its direction.
            (Body::Optional(_), None) => Routed::Refused(Answer::invalid_option(header.xid)),
            (Body::Optional(optional), Some(owner)) => {
                let operation = Operation {
                    xid: header.xid,
                    direction: optional.direction,
                    credits: header.credits,
                    opttype: optional.opttype,
                    info: &optional.info,
                    message,
                    payload_at,
                };
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

    /// An error: for an extension's operation, or for a call.
    fn error(&mut self, xid: u32, error: ErrorBody) -> Routed {
        let Some(sender) = self.shared.take_sender(xid) else {
            return Routed::Base;
        };
        let mut out = Outbox::new(&mut self.shared, sender);
        self.list[sender].refused(xid, error, &mut out);
        Routed::Taken
    }

    /// Answers [`Action::ReplaceReceives`].
    pub fn receives_replaced(&mut self, size: u32) {
        self.each(|extension, out| extension.receives_replaced(size, out));
    }

    /// Answers [`Action::AwaitReplies`].
    pub fn replies_arrived(&mut self, calls: Calls) {
        self.each(|extension, out| extension.replies_arrived(calls, out));
    }

    /// The connection has ended.
    pub fn closed(&mut self) {
        self.list
            .iter_mut()
            .for_each(|extension| extension.closed());
        self.shared.actions.clear();
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.shared.actions.pop_front()
    }

    /// What conveyance plans go by at present.
    #[must_use]
    pub fn limits(&self) -> ConnectionLimits {
        let mut limits = ConnectionLimits::default();
        for extension in &self.list {
            extension.limits(&mut limits);
        }
        limits
    }

    /// Whether every extension knows by now what the peer supports.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.list.iter().all(|extension| extension.settled())
    }

    /// Whether some extension keeps a part of a message.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        self.list.iter().any(|extension| extension.is_collecting())
    }

    /// Those that carry RPC messages, with the number by which [`Extensions::conveyor`] finds them
    /// again.
    pub fn conveyors(&mut self) -> impl Iterator<Item = (usize, &mut dyn Conveyor)> {
        let list = self.list.iter_mut().enumerate();
        list.filter_map(|(at, extension)| Some((at, extension.conveyor()?)))
    }

    /// One of them.
    pub fn conveyor(&mut self, number: usize) -> Option<&mut dyn Conveyor> {
        self.list.get_mut(number)?.conveyor()
    }

    /// The extension of this type, to ask it something that only its own crate understands.
    #[must_use]
    pub fn find<T: Extension>(&self) -> Option<&T> {
        let mut list = self.list.iter();
        list.find_map(|extension| (&**extension as &dyn Any).downcast_ref())
    }

    /// Has the extension of this type do something that only its own crate understands. Nothing
    /// when there is none.
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

    /// Tells every extension what another one learnt.
    fn pass_on(&mut self) {
        while let Some((by, property)) = self.shared.learnt.pop_front() {
            for (at, extension) in self.list.iter_mut().enumerate() {
                if at != by {
                    extension.learnt(&property, &mut Outbox::new(&mut self.shared, at));
                }
            }
        }
    }
}
