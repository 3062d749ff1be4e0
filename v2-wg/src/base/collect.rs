//! The receiver of messages in several parts (sections 4.1, 6.3.6, 6.3.9 and 7.1.4).
//!
//! The parts of a message follow each other. Only a grant or an error may arrive between them
//! (drafts/errata-07.md). Without the grant, two ends that both run out of credits in the middle of
//! a message would wait for each other for ever.
//!
//! A part stays where it was received, unless it takes less than half of its receive: such a part is
//! copied, so that a message in many short parts does not hold a receive for each.

use onc_rpc::Segments;
use rpcrdma_chunks::Direction;
use rpcrdma_extension::{Following, Part, Reassembly};

use super::{Base, misplaced};
use crate::{Body, ErrorBody};

/// The payload of a message whose last or only part has arrived.
#[derive(Debug)]
pub struct Finished {
    /// The payload, in the pieces in which it was received.
    pub payload: Segments,
    /// Whether the message had several parts.
    pub continued: bool,
}

/// The reason why a part is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The part is answered with this error.
    #[error("{1}: {0}")]
    Answer(ErrorBody, &'static str),
    /// The part belongs to a message of which one was refused before, and is discarded silently.
    #[error("part of a message that was refused")]
    Discard,
}

const MISCOUNTED: &str = "rdma_remaining does not count the bytes that follow";

impl Base {
    /// Checks that a message may arrive between the parts of the peer's properties, or of another
    /// message. The order of the parts themselves is checked by [`Base::collect`] and
    /// [`Base::finish`]. A message that may not is passed to [`Base::refuse_misplaced`].
    ///
    /// # Errors
    /// [`Refused::Answer`]: it stands between the parts of another message, or between those of the
    /// peer's properties.
    pub fn admit(&self, body: &Body) -> Result<(), Refused> {
        let inside = match body {
            Body::Grant | Body::Error(_) => false,
            Body::Properties { .. } => self.collection.is_some(),
            Body::Middle { .. }
            | Body::Call {
                external: false, ..
            } => self.peer.is_incomplete(),
            Body::Reply {
                external: false, ..
            } => self.peer.is_incomplete(),
            Body::Call { .. } | Body::Reply { .. } => {
                self.collection.is_some() || self.peer.is_incomplete()
            }
        };
        match inside {
            true => Err(Refused::Answer(
                misplaced(),
                "message between the parts of another",
            )),
            false => Ok(()),
        }
    }

    /// Refuses a message that stands between the parts of another message, or of the peer's properties.
    /// If it is a part that others follow, those are discarded silently (section 7.1.4).
    pub fn refuse_misplaced(&mut self, body: &Body, xid: u32) -> Refused {
        let answer = Refused::Answer(misplaced(), "message between the parts of another");
        let (direction, last) = match *body {
            Body::Middle { direction, .. } => (direction, false),
            Body::Call {
                external: false, ..
            } => (Direction::Call, true),
            Body::Reply {
                external: false, ..
            } => (Direction::Reply, true),
            _ => return answer,
        };
        if self.refused.discard(direction, xid, last) {
            return Refused::Discard;
        }
        if !last {
            self.refused.add(direction, xid);
        }
        answer
    }

    /// Takes a part that others follow: `remaining` is its `rdma_remaining`.
    ///
    /// # Errors
    /// [`Refused`]: the part does not belong to the message whose parts have arrived, or the
    /// message would be too long. The message is given up.
    pub fn collect(
        &mut self,
        direction: Direction,
        xid: u32,
        remaining: u32,
        payload: Segments,
    ) -> Result<(), Refused> {
        if self.refused.discard(direction, xid, false) {
            return Err(Refused::Discard);
        }
        let (len, remaining) = (length(&payload), u64::from(remaining));
        let refused = match &mut self.collection {
            None if len + remaining > self.config.max_message => {
                Refused::Answer(ErrorBody::System, "message longer than allowed")
            }
            Some(begun) if !begun.is(direction, xid) => {
                Refused::Answer(misplaced(), "part between the parts of another message")
            }
            // The last part has a word of payload at least, so something has to remain.
            Some(_) if remaining == 0 => {
                self.collection = None;
                Refused::Answer(misplaced(), MISCOUNTED)
            }
            begun => {
                if begun.is_none() {
                    self.refused.clear();
                }
                let begun = begun
                    .get_or_insert_with(|| Reassembly::new(direction, xid).copying_short_parts());
                let following = Following {
                    messages: None,
                    bytes: Some(remaining),
                };
                let receive = self.config.properties.receive_size as usize;
                match begun.add(Part::payload(payload), following, receive) {
                    Ok(copied) => {
                        self.copied += copied;
                        return Ok(());
                    }
                    Err(_) => {
                        self.collection = None;
                        Refused::Answer(misplaced(), MISCOUNTED)
                    }
                }
            }
        };
        self.refused.add(direction, xid);
        Err(refused)
    }

    /// Takes the last or only part of a message and returns the whole payload.
    ///
    /// # Errors
    /// [`Refused`]: the part does not belong to the message whose parts have arrived.
    pub fn finish(
        &mut self,
        direction: Direction,
        xid: u32,
        payload: Segments,
    ) -> Result<Finished, Refused> {
        if self.refused.discard(direction, xid, true) {
            return Err(Refused::Discard);
        }
        let Some(begun) = self.collection.take() else {
            self.refused.clear();
            let continued = false;
            return Ok(Finished { payload, continued });
        };
        if !begun.is(direction, xid) {
            self.collection = Some(begun);
            let reason = "message between the parts of another";
            return Err(Refused::Answer(misplaced(), reason));
        }
        let checked = begun.check(length(&payload), Following::NOTHING);
        if checked.is_err() {
            return Err(Refused::Answer(misplaced(), MISCOUNTED));
        }
        let mut whole = begun.into_payload();
        whole.extend(payload);
        Ok(Finished {
            payload: whole,
            continued: true,
        })
    }

    /// Drops the collected parts of a message, because its next part cannot be used (section 7.1.4,
    /// drafts/errata-07.md), or because a message with its XID came that is no part of it. `last` says that
    /// this was the last part. If parts were collected and others still follow, those are discarded silently.
    pub fn lost_part(&mut self, direction: Direction, xid: u32, last: bool) {
        if last {
            self.refused.end(direction, xid);
        }
        let lost = self.collection.take_if(|begun| begun.is(direction, xid));
        if lost.is_some() {
            if !last {
                self.refused.add(direction, xid);
            }
        }
    }

    /// Forgets the messages of which a part was refused, because another message begins: no further part of
    /// those follows it (drafts/errata-07.md, 38).
    pub fn forget_refused(&mut self) {
        self.refused.clear();
    }
}

fn length(payload: &Segments) -> u64 {
    payload.iter().map(|piece| piece.len() as u64).sum()
}
