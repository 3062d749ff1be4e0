//! The answer to the set-up frame of a client (RFC 5044, 7; RFC 6581).

use crate::wire::mpa::{self, Frame};

/// Returns the answer to an initiator's frame.
pub(super) fn reply_frame(request: &Frame, private: &[u8]) -> Frame {
    let asks_for_markers = request.flags & mpa::MARKERS != 0;
    let mut flags = request.flags & (mpa::CRC | mpa::ENHANCED);
    if asks_for_markers {
        flags |= mpa::REJECT;
    }
    // A client that begins peer-to-peer says which first message it can send (RFC 6581, section 9).
    let depths = request.depths.map(|(inbound, outbound)| {
        let begins = match () {
            () if inbound & mpa::PEER_TO_PEER == 0 => (0, 0),
            () if outbound & mpa::RTR_WRITE != 0 => (mpa::PEER_TO_PEER, mpa::RTR_WRITE),
            () => (mpa::PEER_TO_PEER, mpa::RTR_READ),
        };
        (16 | begins.0, 16 | begins.1)
    });
    Frame {
        key: mpa::REPLY_KEY,
        flags,
        revision: request.revision,
        length: None,
        depths,
        private: private.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_up_is_answered_as_it_was_asked_for() {
        let plain = Frame {
            flags: mpa::CRC,
            revision: 1,
            depths: None,
            ..Frame::request()
        };
        let reply = reply_frame(&plain, &[]);
        assert_eq!(
            (reply.flags, reply.revision, reply.depths),
            (mpa::CRC, 1, None)
        );
        let peer_to_peer = Frame {
            depths: Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ)),
            ..Frame::request()
        };
        let reply = reply_frame(&peer_to_peer, &[]);
        let depths = Some((16 | mpa::PEER_TO_PEER, 16 | mpa::RTR_READ));
        assert_eq!((reply.flags, reply.depths), (mpa::ENHANCED, depths));
        let markers = Frame {
            flags: mpa::MARKERS,
            ..Frame::request()
        };
        assert_ne!(reply_frame(&markers, &[]).flags & mpa::REJECT, 0);
    }
}
