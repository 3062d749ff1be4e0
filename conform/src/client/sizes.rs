//! Sizes of replies, by which chunks are judged (RFC 8166, 3.4.6 and 4.3.3).

use super::call::{Call, READ, total};
use super::nfs::LONGEST_READ;
use crate::wire::v1::Segment;

/// The fixed fields and three empty lists.
pub(super) const HEADER: u64 = 28;
/// An accepted reply with an empty verifier, and the status of the procedure.
const ACCEPTED: u64 = 24 + 4;
/// Attributes that are present, `count`, `eof` and the length of the data in the results of READ.
const READ_FIXED: u64 = 4 + 84 + 4 + 4 + 4;

/// Returns the bytes of a Write list with these chunks, less the word that ends it.
fn write_list(writes: &[Vec<Segment>]) -> u64 {
    let chunk = |it: &Vec<Segment>| 8 + 16 * it.len() as u64;
    writes.iter().map(chunk).fold(0, u64::saturating_add)
}

/// Returns the bytes that a READ of this count can return: not more than the server's `rtmax` (RFC 1813, 3.3.19).
pub(super) fn longest_data(count: u32) -> u64 {
    u64::from(count.min(LONGEST_READ))
}

/// Returns the bytes of the longest reply without what is in the Write list, if the call tells.
pub(super) fn longest_reply(call: &Call) -> Option<u64> {
    let count = call.count()?;
    if !call.is(READ) {
        // The limit of READDIR and READDIRPLUS is that of the whole result.
        return Some((ACCEPTED + u64::from(count)).next_multiple_of(4));
    }
    let data = match data_room(call) {
        Some(_) => 0,
        None => longest_data(count).next_multiple_of(4),
    };
    Some(ACCEPTED + READ_FIXED + data)
}

/// Returns the bytes of the first Write chunk, if it is not empty (RFC 8166, 4.3.2.3).
pub(super) fn data_room(call: &Call) -> Option<u64> {
    let chunk = call.header.writes.first()?;
    (!chunk.is_empty()).then(|| total(chunk))
}

/// Returns whether a reply of `payload` bytes fits into a Send of `threshold` bytes, with the Write list and without
/// a Reply chunk.
pub(super) fn fits_inline(call: &Call, payload: u64, threshold: usize) -> bool {
    let header = HEADER + write_list(&call.header.writes);
    header + payload <= threshold as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::rpc;
    use crate::wire::v1::{Header, header, segment};

    #[test]
    fn data_is_part_of_a_reply_where_no_chunk_takes_it() {
        let read = rpc::nfs(7, READ, rpc::read_args(&[1; 8], 0, 4096)).bytes();
        let plain = Call::new(header(7), read.clone()).unwrap();
        assert_eq!(longest_reply(&plain), Some(128 + 4096));
        let beyond = rpc::nfs(7, READ, rpc::read_args(&[1; 8], 0, 65_536)).bytes();
        let beyond = Call::new(header(7), beyond).unwrap();
        assert_eq!(longest_reply(&beyond), Some(128 + 8192));
        assert!(!fits_inline(&plain, 128 + 4096, 4096));
        let with_chunk = Header {
            writes: vec![vec![segment(1, 4096, 0)]],
            ..header(7)
        };
        let call = Call::new(with_chunk, read).unwrap();
        assert_eq!(longest_reply(&call), Some(128));
        assert!(fits_inline(&call, 128, 28 + 24 + 128));
        assert!(!fits_inline(&call, 128, 28 + 24 + 127));
    }
}
