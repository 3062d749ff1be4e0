//! Errors about messages of a call that was refused and is sent again.
//!
//! A responder that does not have a header type answers each message of that type, and what follows
//! it, with an error of its own (version-two-07, sections 7 and 7.1.3; drafts/errata-07.md, 56). The
//! first error has the call sent again under the same XID. The errors for its other messages must
//! not end the new call: its memory would be invalidated while the responder reads it. Responders
//! answer in order, so that as many errors are about the earlier messages as there were of them.

/// The errors that may still arrive about earlier messages of calls, by XID.
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

    /// Returns whether an error that has arrived is about an earlier message of the call.
    pub(super) fn take(&mut self, xid: u32) -> bool {
        let Some(at) = self.0.iter().position(|&(expected, _)| expected == xid) else {
            return false;
        };
        self.0[at].1 -= 1;
        if self.0[at].1 == 0 {
            self.0.swap_remove(at);
        }
        true
    }

    /// Expects no more errors for the call with this XID: it was replied to, or another call begins.
    #[inline]
    pub(super) fn forget(&mut self, xid: u32) {
        if !self.0.is_empty() {
            self.0.retain(|&(expected, _)| expected != xid);
        }
    }
}
