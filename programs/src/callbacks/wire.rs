//! Arguments and results of the two programs.

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{DecodeError, Decoder, Encoder, Message};

/// The maximum number of callbacks of one order.
pub const MAX_ORDERED: u32 = 1_000_000;
/// The maximum number of data bytes in a callback, or in the reply to one.
pub const MAX_LEN: u32 = 1 << 20;

/// The maximum number of outstanding callbacks of one order.
pub const MAX_AT_A_TIME: u32 = 4096;
/// The maximum number of data bytes in all outstanding callbacks of an order, which the server
/// holds in memory.
pub const MAX_BYTES_AT_A_TIME: u64 = 64 << 20;

/// The parameters of the callbacks that a client orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The number of callbacks, at most [`MAX_ORDERED`].
    pub count: u32,
    /// The number of concurrent callbacks, at most [`MAX_AT_A_TIME`].
    pub at_a_time: u32,
    /// The data bytes in each callback: at most [`MAX_LEN`], and at most [`MAX_BYTES_AT_A_TIME`] in
    /// all concurrent ones.
    pub call_len: u32,
    /// The data bytes in each reply: at most [`MAX_LEN`], and at most [`MAX_BYTES_AT_A_TIME`] in
    /// all concurrent ones.
    pub reply_len: u32,
    /// The time-out of each reply, in whole milliseconds.
    pub limit: Duration,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            count: 1,
            at_a_time: 1,
            call_len: 0,
            reply_len: 0,
            limit: Duration::from_secs(10),
        }
    }
}

/// The results of an order, as seen by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of callbacks that were started.
    pub made: u32,
    /// The number of callbacks that were answered with the right data.
    pub answered: u32,
    /// The number of callbacks that were answered with other data.
    pub wrong: u32,
    /// The number of callbacks that ended with an error.
    pub failed: u32,
    /// Whether no callback is outstanding and no more will be made.
    pub done: bool,
}

impl Tally {
    /// Returns the number of callbacks that have ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.answered + self.wrong + self.failed
    }
}

impl Order {
    /// Returns whether the order is within the limits.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.count <= MAX_ORDERED
            && self.at_a_time <= MAX_AT_A_TIME
            && self.call_len <= MAX_LEN
            && self.reply_len <= MAX_LEN
            && u64::from(self.at_a_time) * u64::from(self.call_len) <= MAX_BYTES_AT_A_TIME
    }

    pub(super) fn encode(&self, ticket: u32) -> Message {
        let millis = u32::try_from(self.limit.as_millis()).unwrap_or(u32::MAX);
        let mut args = Encoder::new();
        args.u32(ticket).u32(self.count).u32(self.at_a_time);
        args.u32(self.call_len).u32(self.reply_len).u32(millis);
        args.finish()
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<(u32, Self), DecodeError> {
        let ticket = from.u32()?;
        let order = Self {
            count: from.u32()?,
            at_a_time: from.u32()?,
            call_len: from.u32()?,
            reply_len: from.u32()?,
            limit: Duration::from_millis(u64::from(from.u32()?)),
        };
        Ok((ticket, order))
    }
}

impl Tally {
    pub(super) fn encode(&self) -> Message {
        let mut results = Encoder::new();
        results.u32(self.made).u32(self.answered).u32(self.wrong);
        results.u32(self.failed).bool(self.done);
        results.finish()
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            made: from.u32()?,
            answered: from.u32()?,
            wrong: from.u32()?,
            failed: from.u32()?,
            done: from.bool()?,
        })
    }
}

/// The arguments of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) ticket: u32,
    /// The number of the callback, from 1.
    pub(super) number: u32,
    /// The number of data bytes in the reply.
    pub(super) reply_len: u32,
    pub(super) data: Bytes,
}

impl Ask {
    pub(super) fn encode(self) -> Message {
        let mut args = Encoder::new();
        args.u32(self.ticket).u32(self.number).u32(self.reply_len);
        args.bulk(self.data);
        args.finish()
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            ticket: from.u32()?,
            number: from.u32()?,
            reply_len: from.u32()?,
            data: from.bulk(MAX_LEN)?.to_bytes(),
        })
    }
}

/// Data that depends on ticket, number and direction: what both ends fill in, and look for.
pub(super) struct Pattern(u64);

impl Pattern {
    pub(super) fn new(ticket: u32, number: u32, way: u8) -> Self {
        Self((u64::from(ticket) << 32 | u64::from(number)) ^ u64::from(way) << 24 | 1)
    }

    /// Returns the next eight bytes.
    fn next(&mut self) -> [u8; 8] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.to_le_bytes()
    }

    pub(super) fn fill(mut self, data: &mut [u8]) {
        for place in data.chunks_mut(8) {
            place.copy_from_slice(&self.next()[..place.len()]);
        }
    }

    /// Returns whether `data` is this pattern, as far as it goes.
    pub(super) fn begins_with(mut self, data: &[u8]) -> bool {
        data.chunks(8)
            .all(|chunk| *chunk == self.next()[..chunk.len()])
    }
}

/// The directions of a [`Pattern`].
pub(super) const THERE: u8 = 1;
pub(super) const BACK: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_makes_the_server_hold_no_more_than_a_bound() {
        let order = |at_a_time, call_len| Order {
            count: MAX_ORDERED,
            at_a_time,
            call_len,
            ..Order::default()
        };
        assert!(order(1000, 200).is_possible());
        assert!(order(64, MAX_LEN).is_possible());
        assert!(!order(65, MAX_LEN).is_possible());
        assert!(order(MAX_AT_A_TIME, 0).is_possible());
        assert!(!order(MAX_AT_A_TIME + 1, 0).is_possible());
    }
}
