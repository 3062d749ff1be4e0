//! Private data of connections of version 1 (RFC 8797).

/// The inline threshold of a peer that says none (RFC 8166, section 3.3.3), bytes.
const DEFAULT_RECEIVE: usize = 1024;

/// Returns the flags, the send size and the receive size that private data tells (RFC 8797, section 5.2).
pub(crate) fn settings(private: &[u8]) -> Option<[u8; 3]> {
    const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
    let found = private.windows(8).find(|it| it.starts_with(&MAGIC));
    match found {
        Some(&[_, _, _, _, 1, flags, send, receive]) => Some([flags, send, receive]),
        _ => None,
    }
}

/// Returns the send size that private data tells (RFC 8797, section 4.2), bytes.
pub(crate) fn send_size(private: &[u8]) -> usize {
    settings(private).map_or(DEFAULT_RECEIVE, |[_, send, _]| {
        (usize::from(send) + 1) * 1024
    })
}

/// Returns the receive size that private data tells (RFC 8797, section 4.2), bytes.
pub(crate) fn receive_size(private: &[u8]) -> usize {
    // In units of 1024 bytes, less one.
    settings(private).map_or(DEFAULT_RECEIVE, |[.., receive]| {
        (usize::from(receive) + 1) * 1024
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mpa;

    #[test]
    fn the_receive_size_is_found_at_any_offset_of_private_data() {
        assert_eq!(receive_size(&[]), 1024);
        assert_eq!(receive_size(&mpa::PRIVATE_DATA), 4096);
        let shifted = [&[9, 0xf6][..], &[0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 15]].concat();
        assert_eq!(receive_size(&shifted), 16384);
        assert_eq!(receive_size(&[0xf6, 0xab, 0x0e, 0x18, 2, 0, 0, 15]), 1024);
    }
}
