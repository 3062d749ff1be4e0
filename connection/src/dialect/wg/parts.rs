//! Messages in several parts: which may come where, and what becomes of the parts of a refused one
//! (sections 6.3.6, 6.3.9 and 7.1.4; drafts/errata-07.md, 38).
//!
//! The parts of a message follow each other, whether they are the base protocol's or an extension's.
//! Only a grant or an error may arrive between them. Without the grant, two ends that both run out of
//! credits in the middle of a message would wait for each other for ever. The messages with a peer's
//! properties follow each other in the same way.
//!
//! One error answers all parts of a message. The further ones are discarded silently, until the last
//! has arrived, or until another message begins.

use rpcrdma_chunks::Direction;
use rpcrdma_extension::{PeerError, Refusal};
use rpcrdma_v2_wg::base::Base;
use rpcrdma_v2_wg::{Body, MessageId, Owner};

use super::WgSession;

/// Position of a message among those that carry one RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Nowhere: messages of this type carry a whole RPC message, or none.
    None,
    /// A part that others follow.
    Further,
    /// The last or only part.
    Last,
}

impl Part {
    pub(super) fn of(body: &Body) -> Self {
        match body {
            Body::Middle { .. } => Self::Further,
            Body::Call { external, .. } | Body::Reply { external, .. } if !external => Self::Last,
            _ => Self::None,
        }
    }
}

impl WgSession {
    /// Returns the message of which some parts have arrived and others are still to come.
    pub(super) fn part_in_progress(&self) -> Option<MessageId> {
        let of_base = self.base.collecting().map(|(direction, xid)| MessageId {
            owner: Owner::Base,
            direction,
            xid,
        });
        let of_extension = || {
            let begun = self.extensions.in_progress()?;
            Some(MessageId {
                owner: Owner::Extension(begun.by),
                direction: begun.direction,
                xid: begun.xid,
            })
        };
        of_base.or_else(of_extension)
    }

    /// Returns whether the connection has begun, no message in several parts and no exchange of
    /// properties is incomplete, and no further parts of a refused message are expected. Then no rule
    /// of this module concerns a message in one part.
    pub(super) fn is_between_messages(&self) -> bool {
        self.extensions.has_begun()
            && self.part_in_progress().is_none()
            && !self.base.exchange_is_incomplete()
            && self.refused.is_empty()
    }

    /// Returns whether a message of the base protocol, which is this part, may arrive now as far as
    /// extensions and properties are concerned.
    pub(super) fn base_part_may_arrive(&self, part: Part) -> bool {
        part != Part::None
            && self.extensions.in_progress().is_none()
            && !self.base.exchange_is_incomplete()
    }

    /// Checks that a message of `owner` may arrive now: not between the parts of another message, nor
    /// between those of the peer's properties. `direction` is unknown for header types that nobody owns.
    ///
    /// # Errors
    /// [`Refusal::Answer`], or [`Refusal::Discard`] for a part of a message that was refused before. If
    /// the message that it interrupts has its XID, that is given up as well: one error answers all parts
    /// with an XID, whichever types they have.
    pub(super) fn check_may_arrive(
        &mut self,
        owner: Option<Owner>,
        direction: Option<Direction>,
        xid: u32,
        part: Part,
    ) -> Result<(), Refusal> {
        let begun = self.part_in_progress();
        let it = owner.zip(direction).map(|(owner, direction)| MessageId {
            owner,
            direction,
            xid,
        });
        let goes_on = begun.is_some() && begun == it && part != Part::None;
        if goes_on || begun.is_none() && !self.base.exchange_is_incomplete() {
            return Ok(());
        }
        let discards =
            part != Part::None && it.is_some_and(|it| self.refused.discard(it, part == Part::Last));
        // One error answers a whole message. The parts that follow would each get another one.
        if let Some(it) = it
            && part == Part::Further
            && !discards
        {
            self.refused.add(it);
        }
        // The last part of the message that it interrupts is still to come. An error about a header type that
        // nobody owns is one about a call for its receiver, which may send the call with this XID once more.
        self.give_up_parts(direction.unwrap_or(Direction::Call), xid, false);
        Err(match discards {
            true => DISCARDED,
            false => Refusal::Answer(
                PeerError::Continuation,
                "message between the parts of another",
            ),
        })
    }

    /// Discards a part of a message that was refused before.
    ///
    /// # Errors
    /// [`Refusal::Discard`].
    pub(super) fn check_not_refused(&mut self, it: MessageId, last: bool) -> Result<(), Refusal> {
        match self.refused.discard(it, last) {
            true => Err(DISCARDED),
            false => Ok(()),
        }
    }

    /// Records that a message has begun. No further part of those that were refused follows it.
    pub(super) fn message_began(&mut self) {
        self.refused.clear();
    }

    /// Records that a part of a message was refused. Unless it is the `last`, others follow, and are
    /// discarded.
    pub(super) fn part_refused(&mut self, it: MessageId, last: bool) {
        if !last {
            self.refused.add(it);
        }
    }

    /// Abandons the message with this direction and XID, if parts of it have arrived: its next part
    /// cannot be used, or a message with its XID came that is no part of it. `last` says that this was
    /// the last part of a message of the base protocol.
    pub(super) fn give_up_parts(&mut self, direction: Direction, xid: u32, last: bool) {
        // Nothing of it can follow, so that the same XID may be used again.
        if last {
            self.refused.end(MessageId {
                owner: Owner::Base,
                direction,
                xid,
            });
        }
        let begun = self.part_in_progress();
        let Some(begun) = begun.filter(|it| (it.direction, it.xid) == (direction, xid)) else {
            return;
        };
        match begun.owner {
            Owner::Base => self.base.parts_lost(),
            Owner::Extension(_) => self.extensions.give_up_parts(),
        }
        // Its other parts are under way. They must not begin a message of their own.
        if !(last && begun.owner == Owner::Base) {
            self.refused.add(begun);
        }
    }

    /// Records that a message with properties is refused ([`Base::lost_properties`]). `last` says that
    /// it is RDMA2_CONNPROP_FINAL.
    pub(super) fn lost_properties(&mut self, last: bool) {
        let between_parts = self.part_in_progress().is_some();
        let is_open = self.base.peer().is_none();
        let base: &mut Base = &mut self.base;
        self.extensions
            .with_version_outbox(|out| base.lost_properties(last, between_parts, out));
        if is_open {
            self.extensions.peer_properties_refused();
        }
    }
}

const DISCARDED: Refusal = Refusal::Discard("part of a message that was refused");
