//! Prediction of a whole Send for a receive of several buffers.
//!
//! Before the next message arrives, its length is unknown. The first buffer of a receive takes the
//! head of a message, and the others take data, which must not be copied. So a read between two
//! messages asks for no more than the first buffer holds, and a longer message costs a second read.
//! Connections that move data usually do so in messages of one length: after [`ENOUGH`] equal ones in
//! a row, the next read has the buffers of the next receive behind the staging buffer, with gaps for the headers of further segments ([`super::ahead`]), so that such a message
//! takes one read and all of its data arrives in its place.
//!
//! The header that has arrived decides, before anything else happens: if its segment is not as long
//! as predicted, all bytes behind the staging buffer are moved out of the receive again. That copies
//! them, but the prediction is given up then, and comes back only after further equal messages.

use super::ddp::{HeaderView, Placement};
use super::mpa;
use super::rdmap::{self, Opcode};

/// Number of equal messages in a row from which the next one is predicted.
const ENOUGH: u8 = 2;

/// The lengths of a Send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lengths {
    /// Payload of its first segment in bytes.
    pub(super) first: usize,
    /// Payload of all its segments in bytes.
    pub(super) total: usize,
}

/// The lengths of the last Sends.
#[derive(Debug, Default)]
pub(super) struct Pattern {
    last: Lengths,
    /// Number of messages in a row with these lengths, up to [`ENOUGH`].
    alike: u8,
}

impl Pattern {
    /// Returns the lengths that the next Send is expected to have.
    #[inline]
    pub(super) fn expected(&self) -> Option<Lengths> {
        (self.alike >= ENOUGH).then_some(self.last)
    }

    /// Records a Send that reached beyond the first buffer of its receive.
    pub(super) fn long(&mut self, lengths: Lengths) {
        if self.last != lengths {
            (self.last, self.alike) = (lengths, 0);
        }
        self.alike = ENOUGH.min(self.alike + 1);
    }

    /// Records a Send that the first buffer of its receive holds, or a prediction that was wrong.
    #[inline]
    pub(super) fn broken(&mut self) {
        self.alike = 0;
    }
}

/// Returns whether `staged` begins with the first segment of the Send with this sequence number, with a
/// payload of `first` bytes.
pub(super) fn begins_send(staged: &[u8], number: u32, first: usize) -> bool {
    let Some((length, rest)) = staged.split_first_chunk::<{ mpa::LENGTH_FIELD }>() else {
        return false;
    };
    let Some(header) = HeaderView::new(rest).and_then(|view| Some((view, view.to_header().ok()?)))
    else {
        return false;
    };
    let (view, header) = header;
    let sends = matches!(
        header.placement,
        Placement::Untagged {
            queue: rdmap::SEND_QUEUE,
            msn,
            offset: 0,
            ..
        } if msn == number
    ) && Opcode::from_control(header.ulp_control)
        .is_ok_and(|opcode| opcode.queue() == Some(rdmap::SEND_QUEUE));
    sends && usize::from(u16::from_be_bytes(*length)) == view.bytes().len() + first
}
