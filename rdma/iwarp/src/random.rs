//! Unpredictable handles and offsets.

use std::io;

/// Number of random bytes fetched at once, so that one system call serves many handles.
const BATCH: usize = 512;

/// A source of numbers that a peer cannot predict (RFC 5040, section 8.1.1, point 8).
pub(super) struct Random {
    bytes: Box<[u8; BATCH]>,
    used: usize,
}

impl Random {
    pub(super) fn new() -> Self {
        Self {
            bytes: Box::new([0; BATCH]),
            used: BATCH,
        }
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        if BATCH - self.used < N {
            getrandom::fill(&mut self.bytes[..])
                .map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
            self.used = 0;
        }
        let mut out = [0; N];
        let next = &mut self.bytes[self.used..self.used + N];
        out.copy_from_slice(next);
        // Erased, so that handles in use cannot be found here.
        next.fill(0);
        self.used += N;
        Ok(out)
    }

    /// Returns 32 random bits.
    pub(super) fn handle(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    /// Returns a tagged offset for the start of a region: page-aligned like a real address, with 51
    /// random bits, and so far from the end of the 64-bit range that no region wraps.
    pub(super) fn base(&mut self) -> io::Result<u64> {
        const WITHIN: u64 = i64::MAX as u64 & !0xfff;
        Ok(u64::from_be_bytes(self.take()?) & WITHIN)
    }
}
