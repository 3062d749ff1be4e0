//! Errors about messages of a call that was refused and is sent again.
//!
//! A responder that does not know the header type of a call's first messages answers every message
//! of the call with an error (version-two-07, sections 7 and 7.1.3; drafts/errata-07.md, 56). After
//! the first error, the call is sent again under the same XID. The errors about the other messages
//! of the first attempt must not end the new call, because its memory would be invalidated while
//! the responder reads it. A responder answers in order. So if `n` messages of the first attempt
//! were sent, the next `n - 1` errors are about them.
//!
//! If all these messages have types of an extension, the responder may also know the types, and answer
//! the whole call with one error. Errors with another code are then about the new call.

use crate::dialect::PeerError;

/// For calls that are sent again: the errors about messages of the first attempt that may still arrive.
#[derive(Debug, Default)]
pub(super) struct EarlierErrors(Vec<Expected>);

#[derive(Debug)]
struct Expected {
    xid: u32,
    /// The maximum number of errors.
    count: u32,
    /// Whether all of them say that the header type is not supported.
    about_types: bool,
}

impl EarlierErrors {
    /// Expects up to `count` more errors about messages of the call with this XID that were sent so far. If
    /// these are `about_types`, they are [`PeerError::UnsupportedType`].
    pub(super) fn expect(&mut self, xid: u32, count: u32, about_types: bool) {
        self.forget(xid);
        if count > 0 {
            self.0.push(Expected {
                xid,
                count,
                about_types,
            });
        }
    }

    /// Returns whether an error that has arrived for this XID is about the first attempt of a call.
    /// Such an error is counted, and must not end the call.
    pub(super) fn take_expected(&mut self, xid: u32, error: PeerError) -> bool {
        let Some(at) = self.0.iter().position(|expected| expected.xid == xid) else {
            return false;
        };
        if self.0[at].about_types && error != PeerError::UnsupportedType {
            return false;
        }
        self.0[at].count -= 1;
        if self.0[at].count == 0 {
            self.0.swap_remove(at);
        }
        true
    }

    /// Expects no more errors about first attempts with this XID: the call was replied to, or
    /// another call begins.
    #[inline]
    pub(super) fn forget(&mut self, xid: u32) {
        if !self.0.is_empty() {
            self.0.retain(|expected| expected.xid != xid);
        }
    }
}
