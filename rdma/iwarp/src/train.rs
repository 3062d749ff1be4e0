//! Prediction of RDMA Writes that follow one another, each with short Sends behind it.
//!
//! A peer that answers several calls together writes the result of each one to the memory that the call
//! offered, and sends a reply behind it. Only the header of an RDMA Write says where its payload belongs, so
//! without a prediction each of them takes a read of its own. But calls that are alike have results and
//! replies of equal lengths, and most are answered in the order in which their memory was registered. So
//! after some RDMA Writes of one length, at equal distances, each at the beginning of the region that was
//! registered behind that of the one before, one read takes many ([`super::ahead`]): [payload][gap][payload]...,
//! where a gap is the trailer of one, the Sends behind it, and the header of the next one.
//!
//! Each header is checked when it has arrived. If it is not the predicted one, what lies behind it is moved out
//! again before anything else happens. That copies it, so twice as many RDMA Writes have to be alike before the
//! next prediction.

use super::ddp;
use super::mpa;

/// Number of RDMA Writes in a row, like the one before them, from which the next one is predicted, at first and
/// after many wrong predictions.
const ENOUGH: u8 = 2;
const MOST_ENOUGH: u8 = 64;
/// Length in bytes of `ULPDU_Length` and the header of an RDMA Write.
pub(super) const HEADER: usize = mpa::LENGTH_FIELD + ddp::TAGGED;
/// Maximum length in bytes of a gap.
pub(super) const LONGEST_GAP: usize = 640;

/// An RDMA Write of one segment, to the beginning of a region to which the peer had written nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Number of the region, in the order of registration.
    pub(super) region: u64,
    /// Length of the region in bytes.
    pub(super) room: usize,
    /// Length of the payload in bytes.
    pub(super) payload: usize,
}

impl Write {
    /// Returns the number of bytes from the end of the payload to the end of the FPDU.
    fn trailer(self) -> usize {
        mpa::padding(ddp::TAGGED + self.payload) + mpa::CRC_FIELD
    }
}

/// RDMA Writes that are expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// The last one, which the others are like.
    pub(super) last: Write,
    /// Number of bytes between the payloads of two of them.
    pub(super) gap: usize,
}

/// The last RDMA Writes.
#[derive(Debug)]
pub(super) struct Train {
    /// The last one, if nothing but Sends has arrived since.
    last: Option<Write>,
    /// Number of bytes of the FPDUs of these Sends.
    sends: usize,
    /// Number of bytes between the payloads of the last two.
    gap: usize,
    /// Number of RDMA Writes in a row that are like the one before.
    alike: u8,
    /// Number of them from which the next one is predicted.
    enough: u8,
}

impl Default for Train {
    fn default() -> Self {
        Self {
            last: None,
            sends: 0,
            gap: 0,
            alike: 0,
            enough: ENOUGH,
        }
    }
}

impl Train {
    /// Records a segment that is not of a Send: an RDMA Write, or something else.
    pub(super) fn arrived(&mut self, write: Option<Write>) {
        let alike = match (self.last, write) {
            (Some(last), Some(write)) => {
                let gap = self.gap_behind(last);
                let next = Write {
                    region: last.region + 1,
                    ..last
                };
                std::mem::replace(&mut self.gap, gap) == gap && write == next
            }
            _ => false,
        };
        self.alike = match alike {
            true => self.alike.saturating_add(1),
            false => 0,
        };
        (self.last, self.sends) = (write, 0);
    }

    /// Records a Send of one segment.
    #[inline]
    pub(super) fn sent(&mut self, payload: usize) {
        if self.last.is_some() {
            let ulpdu = ddp::UNTAGGED + payload;
            let fpdu = mpa::LENGTH_FIELD + ulpdu + mpa::padding(ulpdu) + mpa::CRC_FIELD;
            self.sends = self.sends.saturating_add(fpdu);
        }
    }

    /// Returns what is expected behind the last RDMA Write.
    #[inline]
    pub(super) fn expected(&self) -> Option<Expected> {
        if self.alike < self.enough || self.gap > LONGEST_GAP {
            return None;
        }
        let gap = self.gap;
        self.last.map(|last| Expected { last, gap })
    }

    /// Returns whether the next FPDU is expected to be an RDMA Write.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        let due = |it: Expected| self.gap_behind(it.last) == it.gap;
        self.expected().is_some_and(due)
    }

    /// Returns the number of bytes from the end of a payload to the next one, behind the Sends so far.
    fn gap_behind(&self, last: Write) -> usize {
        (last.trailer() + HEADER).saturating_add(self.sends)
    }

    /// Records a prediction that was right.
    pub(super) fn right(&mut self) {
        self.enough = ENOUGH.max(self.enough - 1);
    }

    /// Records a prediction that was wrong.
    #[cold]
    pub(super) fn wrong(&mut self) {
        self.alike = 0;
        self.enough = MOST_ENOUGH.min(2 * self.enough);
    }
}
