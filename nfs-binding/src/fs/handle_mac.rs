//! The MAC of an object's handle, kept with the object.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The MAC in the file handle of one object. A file system that has its objects in memory keeps one
/// in each, so that a server computes the MAC once and not for each listing.
///
/// It holds the MAC of one issuer of handles at a time, because exports and servers have different ones. The
/// second word is the exclusive or of the MAC and the issuer's number. Where a thread finds the words of two
/// issuers that store at the same time, that yields the number of neither, unless their MACs are equal, and
/// the thread computes the MAC. So no thread waits for another.
#[derive(Default)]
pub struct HandleMac {
    mac: AtomicU64,
    mac_xor_issuer: AtomicU64,
}

impl HandleMac {
    /// Returns the MAC that `issuer` computes by `compute`, which is called only if this is not the MAC
    /// that is held. The number of an issuer is not 0, and no other issuer of this process has it.
    #[inline]
    pub(crate) fn of_issuer(&self, issuer: u64, compute: impl FnOnce() -> u64) -> u64 {
        let held = self.mac.load(Relaxed);
        if held ^ self.mac_xor_issuer.load(Relaxed) == issuer {
            return held;
        }
        let mac = compute();
        self.mac.store(mac, Relaxed);
        self.mac_xor_issuer.store(mac ^ issuer, Relaxed);
        mac
    }
}

impl fmt::Debug for HandleMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandleMac(secret)")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_mac_is_computed_once_for_each_issuer_in_turn() {
        let (mac, computed) = (HandleMac::default(), Cell::new(0));
        let get = |issuer: u64| {
            mac.of_issuer(issuer, || {
                computed.set(computed.get() + 1);
                issuer * 1000
            })
        };
        for _ in 0..3 {
            assert_eq!((get(1), computed.get()), (1000, 1));
        }
        for turn in 0..3 {
            assert_eq!((get(2), computed.get()), (2000, 2 + 2 * turn));
            assert_eq!((get(1), computed.get()), (1000, 3 + 2 * turn));
        }
    }

    #[test]
    fn threads_of_several_issuers_get_no_macs_of_others() {
        let mac = HandleMac::default();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for issuer in 1..=4_u64 {
                let (mac, start) = (&mac, &start);
                scope.spawn(move || {
                    let own = issuer.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    start.wait();
                    for _ in 0..50_000 {
                        assert_eq!(mac.of_issuer(issuer, || own), own);
                    }
                });
            }
        });
    }
}
