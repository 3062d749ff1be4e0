//! Calls that have arrived and are not answered.

use std::collections::VecDeque;

use super::second::Request;
use crate::wire::v1::Header;

/// The most calls that wait for a reply.
const MOST_WAITING: usize = 1024;
/// The most bytes of calls that wait for a reply: eight calls of the longest inline threshold.
const MOST_BYTES: usize = 8 * (256 << 10);

/// A call that has arrived and is not answered.
pub(super) struct Waiting {
    pub(super) header: Header,
    /// The bytes behind the header.
    pub(super) behind: Vec<u8>,
    /// The length of the message, bytes.
    pub(super) length: usize,
    /// The handle that the reply may invalidate, in version-two-07 (6.5). Zero stands for none.
    pub(super) handle: u32,
    /// Whether items of the call were placed, in version-two-07.
    pub(super) is_placed: bool,
    /// The request, if the call came by ROPT_XMTREQ, in version-two-01.
    pub(super) request: Option<Request>,
}

/// Returns why no other call of this length may wait, if none may.
pub(super) fn overflow(waiting: &VecDeque<Waiting>, length: usize) -> Option<String> {
    let bytes: usize = waiting.iter().map(|it| it.length).sum();
    let has_room = waiting.len() < MOST_WAITING && bytes.saturating_add(length) <= MOST_BYTES;
    (!has_room)
        .then(|| format!("more than {MOST_WAITING} calls or {MOST_BYTES} bytes of calls wait"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1;

    #[test]
    fn calls_that_wait_are_bounded() {
        let most = |length: usize| {
            let mut waiting = VecDeque::new();
            while overflow(&waiting, length).is_none() {
                waiting.push_back(Waiting {
                    header: v1::header(7),
                    behind: Vec::new(),
                    length,
                    handle: 0,
                    is_placed: false,
                    request: None,
                });
            }
            waiting.len()
        };
        assert_eq!([256 << 10, 1 << 20].map(most), [8, 2]);
        assert_eq!(most(100), MOST_WAITING);
        assert_eq!(most(usize::MAX), 0);
    }
}
