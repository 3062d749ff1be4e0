//! The extensions of one connection.

use std::any::Any;

use rpcrdma_chunks::{Direction, Side};

use crate::action::Shared;
use crate::{
    Action, AgreedFeatures, Batching, Calls, ConnectionLimits, Extension, Heard, NotChanged,
    Outbox, PeerError, Property, ReceiveChange, ReceivedMessage, Refusal, Start, TransferMode,
};

/// Two extensions own messages with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} both own message {number}")]
pub struct DuplicateNumber {
    /// The number.
    pub number: u32,
    /// Name of the extension that was added first.
    pub first: &'static str,
    /// Name of the extension that was added later.
    pub second: &'static str,
}

/// The extensions of one connection. Routes messages to their owners and collects the requests of
/// all extensions.
#[derive(Debug)]
pub struct Extensions {
    side: Side,
    list: Vec<Box<dyn Extension>>,
    /// Each number with the index of its owner.
    owners: Vec<(u32, usize)>,
    /// Whether any extension observes messages of others.
    observed: bool,
    /// Whether the extensions know that the connection has begun.
    begun: bool,
    /// The message in several parts of which an extension holds the beginning.
    in_progress: Option<InProgress>,
    /// Number of messages of which parts were here, and that were given up.
    given_up: u64,
    shared: Shared,
}

/// A message in several parts, some of which have arrived while others are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InProgress {
    /// Index of the extension that holds the parts.
    pub by: usize,
    /// Direction of the message.
    pub direction: Direction,
    /// XID of the message.
    pub xid: u32,
}

/// The message that an error of the peer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorAbout {
    /// A call, or nothing that this end has sent.
    Call,
    /// A message of an extension, which has been told.
    Extension,
    /// A message that the version itself has sent by its [`Outbox`].
    Version,
}

impl Extensions {
    /// Creates the set for a new connection. Messages that begin an exchange get XIDs from
    /// `first_xid` downwards, which must differ from the XIDs of this side's outstanding calls.
    ///
    /// # Errors
    /// [`DuplicateNumber`] if two extensions own messages with the same number.
    pub fn new(
        side: Side,
        first_xid: u32,
        list: Vec<Box<dyn Extension>>,
    ) -> Result<Self, DuplicateNumber> {
        for (at, extension) in list.iter().enumerate() {
            for &number in extension.numbers() {
                let mut earlier = list[..at].iter();
                if let Some(owner) = earlier.find(|earlier| earlier.numbers().contains(&number)) {
                    return Err(DuplicateNumber {
                        number,
                        first: owner.name(),
                        second: extension.name(),
                    });
                }
            }
        }
        let owners = list.iter().enumerate().flat_map(|(at, extension)| {
            let numbers = extension.numbers().iter();
            numbers.map(move |&number| (number, at))
        });
        Ok(Self {
            side,
            owners: owners.collect(),
            observed: list.iter().any(|extension| extension.observes()),
            list,
            begun: false,
            in_progress: None,
            given_up: 0,
            shared: Shared::new(first_xid),
        })
    }

    /// Reports that the connection uses the version from now on. Call it before the first message
    /// is sent. If the peer has sent the first message, that is `opened_by`; pass it to
    /// [`Extensions::received`] or [`Extensions::heard`] after this. Later calls have no effect.
    pub fn connected(&mut self, opened_by: Option<Heard>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let properties = self.properties();
        let start = Start {
            side: self.side,
            opened_by,
            properties: &properties,
        };
        self.for_each_extension(|extension, out| extension.connected(&start, out));
    }

    /// Returns whether the connection uses the version already.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns the properties of this side, from all extensions.
    #[must_use]
    pub fn properties(&self) -> Vec<Property> {
        self.list.iter().flat_map(|e| e.properties()).collect()
    }

    /// Calls `act` with an outbox by which the version itself sends messages and passes on
    /// properties of the peer.
    pub fn with_version_outbox<R>(&mut self, act: impl FnOnce(&mut Outbox<'_>) -> R) -> R {
        let done = act(&mut Outbox::of_version(&mut self.shared));
        self.share_learnt();
        done
    }

    /// Returns an XID for a message of this side that the engine sends for an extension, and whose errors
    /// it handles itself. It is none that another message of an extension of this side has.
    pub fn own_xid(&mut self) -> u32 {
        self.shared.next_xid()
    }

    /// Returns the direction of messages with this number, if their owner knows it.
    #[must_use]
    pub fn direction(&self, number: u32) -> Option<Direction> {
        self.list[self.owner(number)?].direction(number)
    }

    /// Returns whether a message with this number is the last or only part of what it belongs to.
    #[must_use]
    pub fn is_last_part(&self, number: u32) -> bool {
        let owner = self.owner(number);
        owner.is_none_or(|owner| self.list[owner].is_last_part(number))
    }

    /// Returns the index of the extension that owns a number.
    #[must_use]
    pub fn owner(&self, number: u32) -> Option<usize> {
        let mut owners = self.owners.iter();
        owners
            .find(|(owned, _)| *owned == number)
            .map(|&(_, at)| at)
    }

    /// Returns whether every extension accepts the value of this property.
    #[must_use]
    pub fn is_valid(&self, property: &Property) -> bool {
        self.list
            .iter()
            .all(|extension| extension.is_valid(property))
    }

    /// Passes a received message of an extension to its owner. This, [`Extensions::heard`] or
    /// [`Extensions::failed`] must be called for every message, in the order of arrival, before the
    /// message is handled otherwise.
    ///
    /// The version has checked by its rules that the message may come now. A message of another
    /// owner than that of the message in progress ends the latter.
    ///
    /// # Errors
    /// [`Refusal`]: the message is not executed. If no extension owns the number, it is
    /// [`Refusal::Unsupported`], whatever the direction (version-two-01, section 3.1).
    pub fn received(&mut self, message: &ReceivedMessage<'_>) -> Result<(), Refusal> {
        let owner = self.owner(message.number);
        self.show_to_others(&message.heard(), owner);
        if self
            .in_progress
            .is_some_and(|begun| Some(begun.by) != owner)
        {
            self.give_up_parts();
        }
        let Some(owner) = owner else {
            return Err(Refusal::Unsupported);
        };
        self.shared.parts_follow = false;
        self.shared.parts_displaced = false;
        self.shared.delivered = false;
        let before = self.shared.actions.len();
        let mut out = Outbox::new(&mut self.shared, owner);
        let done = self.list[owner].received(message, &mut out);
        if done.is_err() {
            self.shared.take_back_deliveries(before);
        }
        let it = InProgress {
            by: owner,
            direction: message.direction,
            xid: message.xid,
        };
        if self.shared.parts_displaced && self.in_progress.take().is_some() {
            // The extension has dropped them, and may hold parts of another message with the same XID.
            self.given_up += 1;
        }
        // Refused, or displaced by another message of the same extension.
        if (self.in_progress).is_some_and(|begun| done.is_err() || begun != it) {
            self.give_up_parts();
        }
        self.in_progress = (done.is_ok() && self.shared.parts_follow).then_some(it);
        self.share_learnt();
        done
    }

    /// Returns the message in several parts of which an extension holds the beginning.
    #[must_use]
    pub fn in_progress(&self) -> Option<InProgress> {
        self.in_progress
    }

    /// Gives up the message in progress, if there is one: its extension drops the parts.
    pub fn give_up_parts(&mut self) {
        if let Some(begun) = self.in_progress.take() {
            self.given_up += 1;
            self.list[begun.by].parts_lost(begun.direction, begun.xid);
        }
    }

    /// Returns how many messages have been given up of which extensions held parts. It never decreases.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Lets the extension that holds parts of a message refuse it ([`Extension::refuse_parts`]). Returns false
    /// if none does, or if it cannot refuse it.
    pub fn refuse_parts(&mut self) -> bool {
        let is_refused = self.in_progress.is_some_and(|begun| {
            let mut out = Outbox::new(&mut self.shared, begun.by);
            self.list[begun.by].refuse_parts(&mut out)
        });
        if is_refused {
            self.give_up_parts();
        }
        self.share_learnt();
        is_refused
    }

    /// Lets the owner of a truncated message refuse it ([`Extension::refuse_truncated`]). Returns
    /// false if it has no owner, or if its owner cannot refuse it.
    pub fn refuse_truncated(&mut self, message: &ReceivedMessage<'_>) -> bool {
        let owner = self.owner(message.number);
        self.show_to_others(&message.heard(), owner);
        let is_refused = owner.is_some_and(|owner| {
            let mut out = Outbox::new(&mut self.shared, owner);
            self.list[owner].refuse_truncated(message, &mut out)
        });
        if is_refused
            || self
                .in_progress
                .is_some_and(|begun| Some(begun.by) != owner)
        {
            self.give_up_parts();
        }
        self.share_learnt();
        is_refused
    }

    /// Returns whether any extension observes messages, so that [`Extensions::heard`] has an effect.
    #[must_use]
    #[inline]
    pub fn are_observed(&self) -> bool {
        self.observed
    }

    /// Shows a message of the version itself to all extensions. Each message must be passed to
    /// this, to [`Extensions::received`] or to [`Extensions::failed`].
    pub fn heard(&mut self, heard: &Heard) {
        self.show_to_others(heard, None);
        self.share_learnt();
    }

    /// Passes an error to the extension that sent the message that it is about. All extensions see
    /// the message.
    pub fn failed(&mut self, heard: &Heard, error: PeerError) -> ErrorAbout {
        self.show_to_others(heard, None);
        let about = match self.shared.take_sender(heard.xid) {
            None => ErrorAbout::Call,
            Some(None) => ErrorAbout::Version,
            Some(Some(sender)) => {
                let mut out = Outbox::new(&mut self.shared, sender);
                self.list[sender].refused(heard.xid, error, &mut out);
                ErrorAbout::Extension
            }
        };
        self.share_learnt();
        about
    }

    /// Reports that the peer refused a message with properties of this end.
    pub fn own_properties_refused(&mut self) {
        self.for_each_extension(|extension, out| extension.own_properties_refused(out));
    }

    /// Reports that this end refused a message with properties of the peer.
    pub fn peer_properties_refused(&mut self) {
        self.for_each_extension(|extension, out| extension.peer_properties_refused(out));
    }

    /// Shows a message to all extensions but its owner.
    fn show_to_others(&mut self, heard: &Heard, owner: Option<usize>) {
        if !self.observed {
            return;
        }
        for (at, extension) in self.list.iter_mut().enumerate() {
            if Some(at) != owner {
                extension.observed(heard, &mut Outbox::new(&mut self.shared, at));
            }
        }
    }

    /// Reports that an [`Action::ReplaceReceives`] has been completed.
    pub fn receives_replaced(&mut self, size: u32) {
        self.for_each_extension(|extension, out| extension.receives_replaced(size, out));
    }

    /// Reports that the calls of an [`Action::AwaitReplies`] have been answered.
    pub fn replies_arrived(&mut self, calls: Calls) {
        self.for_each_extension(|extension, out| extension.replies_arrived(calls, out));
    }

    /// Reports that the connection has ended.
    pub fn closed(&mut self) {
        self.list
            .iter_mut()
            .for_each(|extension| extension.closed());
        self.in_progress = None;
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
        self.adjust_limits(&mut limits);
        limits
    }

    /// Changes the limits that the version has set, in the order of the extensions, to what they
    /// know of the connection.
    pub fn adjust_limits(&self, limits: &mut ConnectionLimits) {
        for extension in &self.list {
            extension.limits(limits);
        }
    }

    /// Adds the features of the extensions to those of the version.
    pub fn agreed(&self, agreed: &mut AgreedFeatures) {
        for extension in &self.list {
            extension.agreed(self.side, agreed);
        }
    }

    /// Returns whether every extension knows by now what the peer supports.
    #[must_use]
    pub fn all_know_peer(&self) -> bool {
        self.list.iter().all(|extension| extension.knows_peer())
    }

    /// Returns how many bytes of memory the parts of the message in progress take.
    #[must_use]
    pub fn collected_bytes(&self) -> usize {
        let begun = self.in_progress;
        begun.map_or(0, |begun| self.list[begun.by].collected_bytes())
    }

    /// Returns the number of bytes of messages that extensions have copied.
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        let each = self.list.iter().map(|extension| extension.copied_bytes());
        each.sum()
    }

    /// Returns whether the last message of an extension has completed an RPC message.
    #[must_use]
    pub fn has_delivered(&self) -> bool {
        self.shared.delivered
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

    /// Returns the extensions that send several RPC messages together, each with its index for
    /// [`Extensions::batching`].
    pub fn all_batching(&mut self) -> impl Iterator<Item = (usize, &mut dyn Batching)> {
        let list = self.list.iter_mut().enumerate();
        list.filter_map(|(at, extension)| Some((at, extension.batching()?)))
    }

    /// Returns the extension with this index, if it sends several RPC messages together.
    pub fn batching(&mut self, number: usize) -> Option<&mut dyn Batching> {
        self.list.get_mut(number)?.batching()
    }

    /// Returns the extension of this type, for programs and tests that drive extensions without a
    /// connection. Connections know no extension by its type.
    #[must_use]
    pub fn find<T: Extension>(&self) -> Option<&T> {
        let mut list = self.list.iter();
        list.find_map(|extension| (&**extension as &dyn Any).downcast_ref())
    }

    /// Calls `act` with the extension of this type, for the users of [`Extensions::find`]. Returns
    /// `None` if there is none.
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
        self.share_learnt();
        Some(done)
    }

    /// Starts a change of the length of receives, by the extension that negotiates it.
    ///
    /// # Errors
    /// [`NotChanged`], with the reason: [`NotChanged::NotSupported`] if no extension does.
    pub fn change_receives(&mut self, change: ReceiveChange) -> Result<(), NotChanged> {
        let mut done = Err(NotChanged::NotSupported);
        for (at, extension) in self.list.iter_mut().enumerate() {
            done = extension.change_receives(change, &mut Outbox::new(&mut self.shared, at));
            if done != Err(NotChanged::NotSupported) {
                break;
            }
        }
        self.share_learnt();
        done
    }

    fn for_each_extension(&mut self, mut act: impl FnMut(&mut dyn Extension, &mut Outbox<'_>)) {
        for (at, extension) in self.list.iter_mut().enumerate() {
            act(&mut **extension, &mut Outbox::new(&mut self.shared, at));
        }
        self.share_learnt();
    }

    /// Announces the queued properties to every other extension.
    fn share_learnt(&mut self) {
        while let Some((by, property)) = self.shared.learnt.pop_front() {
            for (at, extension) in self.list.iter_mut().enumerate() {
                if Some(at) != by {
                    extension.property_received(&property, &mut Outbox::new(&mut self.shared, at));
                }
            }
        }
    }
}
