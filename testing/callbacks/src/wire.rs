//! Arguments and results.

use std::time::Duration;

use bytes::Bytes;
use onc_rpc::{DecodeError, Decoder, Encoder, Message};

/// Callbacks of one order at most.
pub const MAX_ORDERED: u32 = 1_000_000;
/// Bytes of data in a callback, or in the reply to one, at most.
pub const MAX_LEN: u32 = 1 << 20;

/// Callbacks outstanding of one order at most.
pub const MAX_AT_A_TIME: u32 = 4096;
/// Bytes of data in all of them together at most: the server holds them.
pub const MAX_BYTES_AT_A_TIME: u64 = 64 << 20;

/// What a client wants to be called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Callbacks, [`MAX_ORDERED`] at most.
    pub count: u32,
    /// How many of them at a time, [`MAX_AT_A_TIME`] at most.
    pub at_a_time: u32,
    /// Bytes of data in each, [`MAX_LEN`] at most, and [`MAX_BYTES_AT_A_TIME`] in those at a time.
    pub call_len: u32,
    /// Bytes of data in each reply, likewise.
    pub reply_len: u32,
    /// How long each reply may take; whole milliseconds.
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

/// What became of an order, as the server sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Callbacks begun.
    pub made: u32,
    /// Of them, those that were answered with the right data,
    pub answered: u32,
    /// those that were answered with other data,
    pub wrong: u32,
    /// and those that ended with an error.
    pub failed: u32,
    /// Nothing is outstanding, and no more will be made.
    pub done: bool,
}

impl Tally {
    /// Callbacks that have ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.answered + self.wrong + self.failed
    }
}

impl Order {
    /// Whether it keeps to the limits.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.count <= MAX_ORDERED
            && self.at_a_time <= MAX_AT_A_TIME
            && self.call_len <= MAX_LEN
            && self.reply_len <= MAX_LEN
            && u64::from(self.at_a_time) * u64::from(self.call_len) <= MAX_BYTES_AT_A_TIME
    }

    pub(crate) fn encode(&self, ticket: u32) -> Message {
        let millis = u32::try_from(self.limit.as_millis()).unwrap_or(u32::MAX);
        let mut args = Encoder::new();
        args.u32(ticket).u32(self.count).u32(self.at_a_time);
        args.u32(self.call_len).u32(self.reply_len).u32(millis);
        args.finish()
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<(u32, Self), DecodeError> {
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
    pub(crate) fn encode(&self) -> Message {
        let mut results = Encoder::new();
        results.u32(self.made).u32(self.answered).u32(self.wrong);
        results.u32(self.failed).bool(self.done);
        results.finish()
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            made: from.u32()?,
            answered: from.u32()?,
            wrong: from.u32()?,
            failed: from.u32()?,
            done: from.bool()?,
        })
    }
}

/// A callback's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) ticket: u32,
    /// From 1.
    pub(crate) number: u32,
    /// Bytes of data that the reply is to have.
    pub(crate) reply_len: u32,
    pub(crate) data: Bytes,
}

impl Ask {
    pub(crate) fn encode(self) -> Message {
        let mut args = Encoder::new();
        args.u32(self.ticket).u32(self.number).u32(self.reply_len);
        args.bulk(self.data);
        args.finish()
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            ticket: from.u32()?,
            number: from.u32()?,
            reply_len: from.u32()?,
            data: from.bulk(MAX_LEN)?.to_bytes(),
        })
    }
}

/// Data that depends on who it is for.
pub(crate) fn pattern(ticket: u32, number: u32, way: u8, len: u32) -> impl Iterator<Item = u8> {
    let mut state = (u64::from(ticket) << 32 | u64::from(number)) ^ u64::from(way) << 24 | 1;
    (0..len).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
}

/// Ways of [`pattern`].
pub(crate) const THERE: u8 = 1;
pub(crate) const BACK: u8 = 2;

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
