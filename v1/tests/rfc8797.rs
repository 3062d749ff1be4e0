//! The requirements of RFC 8797. See MUSTS.md.

mod common;

use common::{chunk, read, reads};
use rpcrdma_v1::{Agreed, Chunks, MAX_INLINE, PRIVATE_DATA_LEN, PrivateData};

const FORMAT: [u8; PRIVATE_DATA_LEN] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 7];

#[test]
fn rfc8797_s4_the_format_has_these_bytes() {
    assert_eq!(PrivateData::new(4096, 8192, true).encode(), FORMAT);
    let data = PrivateData::find(&FORMAT).unwrap();
    assert_eq!((data.send_size(), data.receive_size()), (4096, 8192));
    assert!(data.remote_invalidation());
}

#[test]
fn rfc8797_s4_reserved_bits_are_sent_as_zero_and_ignored() {
    assert_eq!(PrivateData::new(1024, 1024, false).encode()[5], 0);
    assert_eq!(PrivateData::new(1024, 1024, true).encode()[5], 1);
    for reserved in 0..128 {
        for r in [0, 1] {
            let mut format = FORMAT;
            format[5] = reserved << 1 | r;
            let expected = PrivateData::new(4096, 8192, r == 1);
            assert_eq!(PrivateData::find(&format), Some(expected));
        }
    }
}

#[test]
fn rfc8797_s4_1_an_invalidated_handle_is_one_of_the_calls() {
    let call = Chunks {
        writes: [chunk(&[1, 2])].into_iter().collect(),
        reply: Some(chunk(&[3])),
        ..reads(&[read(4, 9, 1), read(4, 8, 1)])
    };
    assert_eq!(call.handles().collect::<Vec<_>>(), [9, 8, 1, 2, 1]);
    assert_eq!(Chunks::default().handles().count(), 0);
}

#[test]
fn rfc8797_s4_1_remote_invalidation_needs_both_sides() {
    let side = |r| Some(PrivateData::new(4096, 4096, r));
    let allowed = |client, server| Agreed::new(client, server).remote_invalidation;
    assert!(allowed(side(true), side(true)));
    assert!(!allowed(side(true), side(false)));
    assert!(!allowed(side(false), side(true)));
    assert!(!allowed(side(true), None));
    assert!(!allowed(None, side(true)));
}

#[test]
fn rfc8797_s4_2_sizes_are_in_kibibytes_less_one() {
    for (size, code, said) in [
        (1024, 0, 1024),
        (2047, 0, 1024),
        (2048, 1, 2048),
        (4096, 3, 4096),
        (MAX_INLINE, 255, MAX_INLINE),
        (MAX_INLINE + 1024, 255, MAX_INLINE),
        (u32::MAX, 255, MAX_INLINE),
        (0, 0, 1024),
    ] {
        let data = PrivateData::new(size, size, false);
        assert_eq!(data.encode()[6..], [code, code], "{size}");
        assert_eq!((data.send_size(), data.receive_size()), (said, said));
    }
}

#[test]
fn rfc8797_s4_2_a_threshold_is_the_smaller_of_senders_and_receivers() {
    let client = Some(PrivateData::new(4096, 16384, false));
    let server = Some(PrivateData::new(8192, 2048, false));
    let agreed = Agreed::new(client, server);
    assert_eq!((agreed.call_inline, agreed.reply_inline), (2048, 8192));
    let agreed = Agreed::new(server, client);
    assert_eq!((agreed.call_inline, agreed.reply_inline), (8192, 2048));
}

#[test]
fn rfc8797_s5_1_a_peer_without_private_data_has_the_defaults() {
    let other = Some(PrivateData::new(65536, 65536, true));
    for agreed in [Agreed::new(other, None), Agreed::new(None, other)] {
        assert_eq!((agreed.call_inline, agreed.reply_inline), (1024, 1024));
        assert!(!agreed.remote_invalidation);
    }
    let silent = PrivateData::default();
    assert_eq!(silent.encode()[5..], [0, 0, 0]);
}

#[test]
fn rfc8797_s5_2_the_format_is_found_at_any_offset() {
    for before in 0..9 {
        // An identifier whose start is repeated before it, and padding after it.
        let data = [&[0xf6; 9][..before], &FORMAT, &[0; 40]].concat();
        assert!(PrivateData::find(&data).is_some(), "after {before} bytes");
    }
}

#[test]
fn rfc8797_s5_2_without_the_identifier_there_is_no_private_data() {
    let mut other = FORMAT;
    other[3] ^= 1;
    for data in [&[][..], &[0; 56], &other, &FORMAT[1..]] {
        assert_eq!(PrivateData::find(data), None);
    }
}

#[test]
fn rfc8797_s5_2_another_version_or_a_part_of_it_is_no_private_data() {
    for version in [0, 2, 255] {
        let mut other = FORMAT;
        other[4] = version;
        assert_eq!(PrivateData::find(&other), None);
    }
    for len in 0..PRIVATE_DATA_LEN {
        assert_eq!(PrivateData::find(&FORMAT[..len]), None);
    }
}
