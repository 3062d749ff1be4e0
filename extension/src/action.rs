//! Requests of extensions to the engine that drives the connection.

use std::collections::VecDeque;

use bytes::Bytes;

use rpcrdma_chunks::Direction;

use crate::{Property, Transferred};

/// A request of an extension. The engine carries out requests in the order given.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each message, and most actions are messages"
)]
pub enum Action {
    /// Send this message, with the credits that its direction requests or grants. It carries no RPC
    /// message and takes no credit where calls are counted.
    Send(OutgoingMessage),
    /// Replace each posted receive, when it completes, by one of this size. Call
    /// [`super::Extensions::receives_replaced`] when the last receive of the old size has been
    /// consumed.
    ReplaceReceives {
        /// New size of a receive in bytes.
        size: u32,
    },
    /// Call [`super::Extensions::replies_arrived`] when these calls have been answered.
    AwaitReplies(Calls),
    /// The limits may have changed: repeat the planning of calls that have not been sent.
    LimitsChanged,
    /// An extension received an RPC message, or a report about one.
    Transferred {
        /// Index of the extension, for [`super::Extensions::transfer_mode`].
        by: usize,
        /// The message or report.
        transferred: Transferred,
    },
}

/// A set of calls of this end, whose answers an extension can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calls {
    /// All calls that were sent before now or planned but not sent yet, including cancelled ones.
    /// If there are none, they count as answered at once.
    Earlier,
    /// The next call to be sent. By the time it is answered, everything that the peer sent about
    /// earlier messages has arrived. At an end that makes no calls it counts as answered at once.
    Next,
}

/// A message of an extension without payload, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// XID of the message.
    pub xid: u32,
    /// Direction of the message: a call requests the credits of this side as a requester, and a reply
    /// grants those that it has as a responder.
    pub direction: Direction,
    /// Number of the message.
    pub number: u32,
    /// The fields of the message as XDR.
    pub fields: Bytes,
}

/// Maximum number of sent messages to remember, with their senders, in order to route an error
/// from the peer. The oldest is forgotten first.
const REMEMBERED: usize = 16;

/// State that all extensions of a connection share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) actions: VecDeque<Action>,
    /// Properties that were announced but not passed on yet, with the index of the announcing
    /// extension; `None` is the version.
    pub(super) learnt: VecDeque<(Option<usize>, Property)>,
    /// Whether the message that is being received has further parts.
    pub(super) parts_follow: bool,
    /// Whether the message that is being received has displaced one in parts of the same extension.
    pub(super) parts_displaced: bool,
    /// Whether the message that was received last completed an RPC message.
    pub(super) delivered: bool,
    next_xid: u32,
    /// XIDs of sent messages, with the index of the extension that sent each; `None` is the version.
    sent: VecDeque<(u32, Option<usize>)>,
}

impl Shared {
    pub(super) fn new(first_xid: u32) -> Self {
        Self {
            actions: VecDeque::new(),
            learnt: VecDeque::new(),
            parts_follow: false,
            parts_displaced: false,
            delivered: false,
            next_xid: first_xid,
            sent: VecDeque::new(),
        }
    }

    /// Removes the messages that were delivered after the first `actions` actions, because the message that
    /// carried them is refused.
    #[cold]
    pub(super) fn take_back_deliveries(&mut self, actions: usize) {
        let mut at = 0;
        self.actions.retain(|action| {
            at += 1;
            let is_delivery = match action {
                Action::Transferred { transferred, .. } => {
                    !matches!(transferred, Transferred::Rejected { .. })
                }
                _ => false,
            };
            at <= actions || !is_delivery
        });
        self.delivered = false;
    }

    /// Returns an XID of this side for a message that answers none of the peer.
    pub(super) fn next_xid(&mut self) -> u32 {
        let xid = self.next_xid;
        // Counted downwards, because the XIDs of RPC calls are counted upwards.
        self.next_xid = xid.wrapping_sub(1);
        xid
    }

    /// Returns the extension that sent the message with this XID, or `Some(None)` if it was the
    /// version. Forgets the message, which must not be answered twice.
    pub(super) fn take_sender(&mut self, xid: u32) -> Option<Option<usize>> {
        let at = self.sent.iter().position(|(sent, _)| *sent == xid)?;
        self.sent.remove(at).map(|(_, sender)| sender)
    }
}

/// Queue to which an extension, or the version itself, writes its requests.
#[derive(Debug)]
pub struct Outbox<'a> {
    shared: &'a mut Shared,
    /// Index of the extension; `None` is the version.
    sender: Option<usize>,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(shared: &'a mut Shared, extension: usize) -> Self {
        let sender = Some(extension);
        Self { shared, sender }
    }

    pub(super) fn of_version(shared: &'a mut Shared) -> Self {
        let sender = None;
        Self { shared, sender }
    }

    /// Says that further parts of the message that is being received follow, for which the extension
    /// waits.
    pub fn parts_follow(&mut self) {
        self.shared.parts_follow = true;
    }

    /// Says that the message that is being received is not a further part of the one for which the extension
    /// waited, and that the extension has dropped the parts that it held. It has to say so where the two can have
    /// the same direction and XID.
    pub fn parts_displaced(&mut self) {
        self.shared.parts_displaced = true;
    }

    /// Sends a message without payload that begins an exchange or stands alone. Its direction is
    /// CALL, and its XID is taken from this side's XID space. Returns the XID.
    pub fn call(&mut self, number: u32, fields: Bytes) -> u32 {
        let xid = self.shared.next_xid();
        if self.shared.sent.len() == REMEMBERED {
            self.shared.sent.pop_front();
        }
        self.shared.sent.push_back((xid, self.sender));
        self.send(xid, Direction::Call, number, fields);
        xid
    }

    /// Sends a message without payload that answers the one with this XID. Its direction is
    /// REPLY.
    pub fn reply(&mut self, xid: u32, number: u32, fields: Bytes) {
        self.send(xid, Direction::Reply, number, fields);
    }

    /// Sends a message without payload that refers to a message with this XID, of either
    /// direction, for example to report an error in it. An answer is not expected.
    pub fn about(&mut self, xid: u32, direction: Direction, number: u32, fields: Bytes) {
        self.send(xid, direction, number, fields);
    }

    fn send(&mut self, xid: u32, direction: Direction, number: u32, fields: Bytes) {
        let message = OutgoingMessage {
            xid,
            direction,
            number,
            fields,
        };
        self.shared.actions.push_back(Action::Send(message));
    }

    /// Records that the message with this XID was answered. A later error with this XID is then
    /// about a call, and not about a message of the extension.
    pub fn answered(&mut self, xid: u32) {
        let _ = self.shared.take_sender(xid);
    }

    /// Replaces the posted receives: see [`Action::ReplaceReceives`].
    pub fn replace_receives(&mut self, size: u32) {
        let action = Action::ReplaceReceives { size };
        self.shared.actions.push_back(action);
    }

    /// Requests a notification when calls have been answered: see [`Action::AwaitReplies`].
    pub fn await_replies(&mut self, calls: Calls) {
        self.shared.actions.push_back(Action::AwaitReplies(calls));
    }

    /// Announces that the limits have changed: see [`Action::LimitsChanged`].
    pub fn limits_changed(&mut self) {
        self.shared.actions.push_back(Action::LimitsChanged);
    }

    /// Passes a property of the peer on to the other extensions of this connection.
    pub fn share_property(&mut self, property: Property) {
        self.shared.learnt.push_back((self.sender, property));
    }

    /// Delivers an RPC message that arrived in messages of the extension, or a report about one. If
    /// a message carries several RPC messages, this is called for each of them.
    pub fn transferred(&mut self, transferred: Transferred) {
        // A version hands its own RPC messages over itself.
        let Some(by) = self.sender else {
            return;
        };
        self.shared.delivered |= !matches!(transferred, Transferred::Rejected { .. });
        let action = Action::Transferred { by, transferred };
        self.shared.actions.push_back(action);
    }
}
