//! What extensions want done.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Conveyed, Property};
use crate::{Body, Direction, Header, Optional};

/// What the engine must do, in the order given.
#[derive(Debug)]
pub enum Action {
    /// Send this operation, with the credits that its direction asks for or grants. It carries no
    /// RPC message and takes no credit.
    Send(OutgoingOperation),
    /// Replace every receive that is posted, as each is used, by one of this size, bytes. When the
    /// last old one is gone, [`super::Extensions::receives_replaced`] answers.
    ReplaceReceives {
        /// Bytes.
        size: u32,
    },
    /// Say with [`super::Extensions::replies_arrived`] when these calls are answered.
    AwaitReplies(Calls),
    /// The limits may have changed: plan what waits again.
    LimitsChanged,
    /// An extension received an RPC message, or word of one.
    Conveyed {
        /// The number by which [`super::Extensions::conveyor`] finds it.
        by: usize,
        /// What it received.
        conveyed: Box<Conveyed>,
    },
}

/// Some of the calls that this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calls {
    /// All that were sent up to now and those that were planned but are not sent yet, also when
    /// nobody waits for them any more. None counts as answered.
    Earlier,
    /// The next that will be sent. What the peer had to say about anything before it, it has said
    /// by the time it answers.
    Next,
}

/// An operation without payload, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingOperation {
    /// `rdma_xid`.
    pub xid: u32,
    /// The rest of its header.
    pub optional: Optional,
}

impl OutgoingOperation {
    /// Its header, with these credits: those this side asks for as a requester if it is a call,
    /// those it grants as a responder if it is a reply.
    #[must_use]
    pub fn header(self, credits: u32) -> Header {
        Header {
            xid: self.xid,
            credits,
            body: Body::Optional(self.optional),
        }
    }
}

/// Operations that may still be answered with an error, and who sent them. Older ones are
/// forgotten: the peer had its chance.
const REMEMBERED: usize = 16;

/// What all extensions of a connection have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) actions: VecDeque<Action>,
    /// What was learnt and is not passed on yet, and by whom.
    pub(super) learnt: VecDeque<(usize, Property)>,
    next_xid: u32,
    sent: VecDeque<(u32, usize)>,
}

impl Shared {
    pub(super) fn new(first_xid: u32) -> Self {
        Self {
            actions: VecDeque::new(),
            learnt: VecDeque::new(),
            next_xid: first_xid,
            sent: VecDeque::new(),
        }
    }

    /// Whose call this XID was. It is not to be answered twice.
    pub(super) fn take_sender(&mut self, xid: u32) -> Option<usize> {
        let at = self.sent.iter().position(|(sent, _)| *sent == xid)?;
        self.sent.remove(at).map(|(_, sender)| sender)
    }
}

/// Where an extension writes what it wants done.
#[derive(Debug)]
pub struct Outbox<'a> {
    shared: &'a mut Shared,
    extension: usize,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(shared: &'a mut Shared, extension: usize) -> Self {
        Self { shared, extension }
    }

    /// Sends an operation without payload that begins an exchange, or that is one by itself: a
    /// requester's, so a CALL with an XID of this side's (section 4.2.2). Returns the XID.
    pub fn call(&mut self, opttype: u32, info: Bytes) -> u32 {
        let xid = self.shared.next_xid;
        // Downwards, away from the XIDs of calls, which are counted upwards.
        self.shared.next_xid = xid.wrapping_sub(1);
        if self.shared.sent.len() == REMEMBERED {
            self.shared.sent.pop_front();
        }
        self.shared.sent.push_back((xid, self.extension));
        self.send(xid, Direction::Call, opttype, info);
        xid
    }

    /// Sends an operation without payload that answers the one with this XID: a responder's, so a
    /// REPLY.
    pub fn reply(&mut self, xid: u32, opttype: u32, info: Bytes) {
        self.send(xid, Direction::Reply, opttype, info);
    }

    /// Sends an operation without payload that is about a message with this XID, of either
    /// direction: word of what is wrong with it, say. Nothing is remembered of it.
    pub fn about(&mut self, xid: u32, direction: Direction, opttype: u32, info: Bytes) {
        self.send(xid, direction, opttype, info);
    }

    fn send(&mut self, xid: u32, direction: Direction, opttype: u32, info: Bytes) {
        let optional = Optional {
            direction,
            opttype,
            info,
        };
        let operation = OutgoingOperation { xid, optional };
        self.shared.actions.push_back(Action::Send(operation));
    }

    /// An operation with this XID was answered: an error for it would be a mistake.
    pub fn answered(&mut self, xid: u32) {
        let _ = self.shared.take_sender(xid);
    }

    /// Replaces the receives: see [`Action::ReplaceReceives`].
    pub fn replace_receives(&mut self, size: u32) {
        let action = Action::ReplaceReceives { size };
        self.shared.actions.push_back(action);
    }

    /// Asks to be told when calls are answered: see [`Action::AwaitReplies`].
    pub fn await_replies(&mut self, calls: Calls) {
        self.shared.actions.push_back(Action::AwaitReplies(calls));
    }

    /// The limits are others now: see [`Action::LimitsChanged`].
    pub fn limits_changed(&mut self) {
        self.shared.actions.push_back(Action::LimitsChanged);
    }

    /// Tells the other extensions of this connection something about the peer.
    pub fn learnt(&mut self, property: Property) {
        self.shared.learnt.push_back((self.extension, property));
    }

    /// Hands over an RPC message that arrived in operations, or word of one.
    pub fn conveyed(&mut self, conveyed: Conveyed) {
        let by = self.extension;
        let conveyed = Box::new(conveyed);
        let action = Action::Conveyed { by, conveyed };
        self.shared.actions.push_back(action);
    }
}
