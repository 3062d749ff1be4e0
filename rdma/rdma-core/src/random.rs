//! Random bits for handles, read in blocks.

use std::io;

const BUFFER: usize = 64;

/// A source of random bits.
pub(super) struct Keys {
    bytes: [u8; BUFFER],
    used: usize,
}

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; BUFFER],
            used: BUFFER,
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        if self.used == BUFFER {
            getrandom::fill(&mut self.bytes).map_err(io::Error::other)?;
            self.used = 0;
        }
        let byte = self.bytes[self.used];
        self.used += 1;
        Ok(byte)
    }

    /// Returns a random key for a window that last had the key `old`. The key differs from `old`,
    /// so that the last handle becomes invalid.
    pub(super) fn key(&mut self, old: u8) -> io::Result<u8> {
        loop {
            let key = self.byte()?;
            if key != old {
                return Ok(key);
            }
        }
    }

    /// Returns a random handle.
    pub(super) fn handle(&mut self) -> io::Result<u32> {
        let bytes = [self.byte()?, self.byte()?, self.byte()?, self.byte()?];
        Ok(u32::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_never_keeps_its_key() {
        let mut keys = Keys::new();
        assert!((0..10_000).all(|_| keys.key(7).unwrap() != 7));
    }

    #[test]
    fn random_keys_take_every_value_but_the_old_one() {
        let mut keys = Keys::new();
        let mut seen = [false; 256];
        for _ in 0..20_000 {
            seen[usize::from(keys.key(255).unwrap())] = true;
        }
        assert_eq!(seen.iter().filter(|&&seen| seen).count(), 255);
    }
}
