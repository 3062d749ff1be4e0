//! Short FPDUs as one piece of memory.

use rdma::WrId;
use smallvec::SmallVec;

use super::socket;

/// The maximum number of bytes of short FPDUs that wait together. Sends beyond them are queued as long ones are.
const MOST: usize = 16 << 10;

/// A short Send that is framed and not written to TCP.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    id: WrId,
    signaled: bool,
    /// Position in the bytes at which its FPDU begins.
    start: usize,
    /// Position at which it ends.
    end: usize,
}

/// Short Sends that are framed, in one piece, and not written to TCP: those that were posted in one turn of the
/// device's owner. A write of one piece costs less than one of several. Kept by their endpoint for the memory, which is
/// used again and again.
pub(super) struct ShortFpdus {
    bytes: Vec<u8>,
    /// Number of bytes that have been written to TCP.
    written: usize,
    sends: SmallVec<[Unsent; 2]>,
}

impl ShortFpdus {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(socket::SHORT),
            written: 0,
            sends: SmallVec::new(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether another FPDU of at most [`socket::SHORT`] bytes may be added.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() <= MOST - socket::SHORT
    }

    /// Returns the bytes that have not been written to TCP.
    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Adds an FPDU of this length. Returns its bytes, which are zero.
    #[inline]
    pub(super) fn add(&mut self, len: usize) -> &mut [u8] {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        &mut self.bytes[start..]
    }

    /// Returns where the next FPDU begins.
    #[inline]
    fn next(&self) -> usize {
        self.sends.last().map_or(0, |last| last.end)
    }

    /// Records that the FPDU that was added last is of this request.
    #[inline]
    pub(super) fn framed(&mut self, id: WrId, signaled: bool) {
        let (start, end) = (self.next(), self.bytes.len());
        self.sends.push(Unsent {
            id,
            signaled,
            start,
            end,
        });
    }

    /// Records that TCP took `n` bytes. Returns how many of them are of other FPDUs, behind these. Reports each request
    /// that is done, and whether it is signaled.
    #[inline]
    pub(super) fn sent(&mut self, n: usize, mut done: impl FnMut(WrId, bool)) -> usize {
        let here = n.min(self.bytes.len() - self.written);
        self.written += here;
        if self.written == self.bytes.len() {
            for send in &self.sends {
                done(send.id, send.signaled);
            }
            self.clear();
        } else {
            self.sent_partly(done);
        }
        n - here
    }

    #[cold]
    fn sent_partly(&mut self, mut done: impl FnMut(WrId, bool)) {
        let written = self.written;
        let whole = self.sends.iter().take_while(|send| send.end <= written);
        let whole = whole.count();
        for send in self.sends.drain(..whole) {
            done(send.id, send.signaled);
        }
    }

    /// Drops every FPDU of which nothing was written, because the stream ends. Reports all requests, the one that is
    /// partly written included.
    pub(super) fn cut(&mut self, mut unfinished: impl FnMut(WrId)) {
        let keep = match self.sends.first() {
            // The requests that are done have been removed, so this is the one of which a part may be written.
            Some(first) if first.start < self.written => first.end,
            Some(_) => self.written,
            // What is left after an earlier call.
            None => self.bytes.len(),
        };
        for send in self.sends.drain(..) {
            unfinished(send.id);
        }
        self.bytes.truncate(keep);
        if self.written == keep {
            self.clear();
        }
    }

    /// Drops everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
        self.written = 0;
    }

    /// Frees memory that more FPDUs needed than are framed now, and returns the number of bytes freed.
    pub(super) fn give_back(&mut self) -> usize {
        let before = self.bytes.capacity();
        self.bytes.shrink_to(socket::SHORT);
        before - self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    /// Returns FPDUs of these lengths, whose requests have the numbers from 0 on; each with odd number is signaled.
    fn fpdus(lengths: &[usize]) -> ShortFpdus {
        let mut short = ShortFpdus::new();
        for (id, len) in lengths.iter().enumerate() {
            short.add(*len).fill(id as u8);
            short.framed(WrId(id as u64), id % 2 == 1);
        }
        short
    }

    quickcheck! {
        /// However TCP takes the bytes, each request is done with its last byte, and no byte is lost.
        fn requests_are_done_with_their_last_byte(lengths: Vec<u8>, takes: Vec<u8>) -> bool {
            let lengths: Vec<usize> = lengths.into_iter().map(|len| usize::from(len) + 1).collect();
            let mut short = fpdus(&lengths);
            let all = short.unsent().to_vec();
            let (mut taken, mut done) = (0, 0);
            for take in takes.into_iter().map(usize::from).chain([usize::MAX]) {
                let here = take.min(all.len() - taken);
                assert_eq!(short.unsent(), &all[taken..]);
                let behind = short.sent(take, |id, signaled| {
                    assert_eq!((id, signaled), (WrId(done), done % 2 == 1));
                    done += 1;
                });
                assert_eq!(behind, take - here);
                taken += here;
                let mut end = 0;
                let ended = lengths.iter().take_while(|len| {
                    end += **len;
                    end <= taken
                });
                assert_eq!(done, ended.count() as u64);
            }
            short.is_empty() && done == lengths.len() as u64
        }

        /// When the stream ends, only what is left of an FPDU that TCP has begun to take is kept.
        fn a_cut_leaves_the_rest_of_one_fpdu(lengths: Vec<u8>, take: u16) -> bool {
            let lengths: Vec<usize> = lengths.into_iter().map(|len| usize::from(len) + 1).collect();
            let mut short = fpdus(&lengths);
            let all = short.unsent().to_vec();
            let taken = usize::from(take).min(all.len());
            let mut ended = 0;
            short.sent(taken, |_, _| ended += 1);
            let mut end = 0;
            let boundary = lengths.iter().find_map(|len| {
                let start = end;
                end += len;
                (start < taken && taken < end).then_some(end)
            });
            for _ in 0..2 {
                short.cut(|_| ended += 1);
                assert_eq!(short.unsent(), &all[taken..boundary.unwrap_or(taken)]);
            }
            ended == lengths.len()
        }
    }

    #[test]
    fn what_a_burst_needed_is_given_back() {
        let mut short = fpdus(&[100; 100]);
        short.sent(100 * 100, |_, _| {});
        assert!(short.give_back() > 8000);
        assert_eq!(short.give_back(), 0);
    }
}
