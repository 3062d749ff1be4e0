//! Errors about messages of a call that was refused and is sent again.
//!
//! A responder that does not know the header type of a call's first messages answers every message
//! of the call with an error (version-two-07, sections 7 and 7.1.3; drafts/errata-07.md, 56). After
//! the first error, the call is sent again under the same XID. The errors about the other messages
//! of the first attempt must not end the new call, because its memory would be invalidated while
//! the responder reads it. A responder answers in order. So if `n` messages of the first attempt
//! were sent, the next `n - 1` errors are about them.

/// For calls that are sent again: how many errors about the messages of the first attempt may still
/// arrive, by XID.
#[derive(Debug, Default)]
pub(super) struct EarlierErrors(Vec<(u32, u32)>);

impl EarlierErrors {
    /// Expects `count` more errors about messages of the call with this XID that were sent so far.
    pub(super) fn expect(&mut self, xid: u32, count: u32) {
        self.forget(xid);
        if count > 0 {
            self.0.push((xid, count));
        }
    }

    /// Returns whether an error that has arrived for this XID is about the first attempt of a call.
    /// Such an error is counted, and must not end the call.
    pub(super) fn take_expected(&mut self, xid: u32) -> bool {
        let Some(at) = self.0.iter().position(|&(expected, _)| expected == xid) else {
            return false;
        };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
        true
    }

    /// Expects no more errors about first attempts with this XID: the call was replied to, or
    /// another call begins.
    #[inline]
    pub(super) fn forget(&mut self, xid: u32) {
        if !self.0.is_empty() {
            self.0.retain(|&(expected, _)| expected != xid);
        }
    }
}
