//! The receiver of messages in several parts (sections 4.1, 6.3.6, 6.3.9 and 7.1.4).
//!
//! Which message may come where, and which parts are refused, is decided before ([`crate::RefusedMessages`]).
//!
//! A part stays where it was received, unless it takes less than half of its receive: such a part is
//! copied, so that a message in many short parts does not hold a receive for each.

use onc_rpc::{Segments, total_len};
use rpcrdma_chunks::Direction;
use rpcrdma_extension::{Following, Part, PeerError, Reassembly, Refusal};

use super::Base;

const MISCOUNTED: Refusal = Refusal::Answer(
    PeerError::Continuation,
    "rdma_remaining does not count the bytes that follow",
);
const TOO_LONG: Refusal = Refusal::Answer(PeerError::System, "message longer than allowed");

impl Base {
    /// Returns direction and XID of the message of which parts have arrived, if there is one.
    #[must_use]
    pub fn collecting(&self) -> Option<(Direction, u32)> {
        self.collection.as_ref().map(Reassembly::id)
    }

    /// Takes a part that others follow: `remaining` is its `rdma_remaining`. It begins a message, or
    /// belongs to the one of which parts have arrived.
    ///
    /// # Errors
    /// [`Refusal::Answer`]: the counts do not agree, or the message would be too long. The message is
    /// given up.
    pub fn collect(
        &mut self,
        direction: Direction,
        xid: u32,
        remaining: u32,
        payload: Segments,
    ) -> Result<(), Refusal> {
        let (len, remaining) = (total_len(&payload), u64::from(remaining));
        let mut begun = match self.collection.take() {
            // The last part has a word of payload at least, so something has to remain.
            _ if remaining == 0 => return Err(MISCOUNTED),
            None if len + remaining > self.config.max_message => return Err(TOO_LONG),
            None => Reassembly::new(direction, xid).copying_short_parts(),
            Some(begun) => begun,
        };
        let following = Following {
            messages: None,
            bytes: Some(remaining),
        };
        let receive = self.config.properties.receive_size as usize;
        let added = begun.add(Part::payload(payload), following, receive);
        self.copied += added.map_err(|_| MISCOUNTED)?;
        self.collection = Some(begun);
        Ok(())
    }

    /// Takes the last or only part of a message and returns the whole payload.
    ///
    /// # Errors
    /// [`Refusal::Answer`]: the part is not as long as the one before it says. The message is given
    /// up.
    pub fn finish(&mut self, payload: Segments) -> Result<Segments, Refusal> {
        let Some(begun) = self.collection.take() else {
            return Ok(payload);
        };
        let checked = begun.check(total_len(&payload), Following::NOTHING);
        checked.map_err(|_| MISCOUNTED)?;
        let mut whole = begun.into_payload();
        whole.extend(payload);
        Ok(whole)
    }

    /// Drops the parts of the message that is incomplete.
    pub fn parts_lost(&mut self) {
        self.collection = None;
    }
}
