//! Tests of structures that `xdr_struct!` defines: their encoding by RFC 4506, and what is none.

use bytes::Bytes;
use quickcheck::quickcheck;
use rpcrdma_chunks::Malformed;
use rpcrdma_extension::xdr::{Shown, Structure, Xdr};
use rpcrdma_extension::xdr_struct;

xdr_struct! {
    /// A structure in another one.
    struct Inner = "inner" {
        /// A field.
        small: u32 = "in_small",
    }
}

xdr_struct! {
    /// A field of each type.
    struct All = "all" {
        /// `unsigned hyper`.
        wide: u64 = "all_wide",
        /// `bool`.
        flag: bool = "all_flag",
        /// `opaque`.
        text: Bytes = "all_text",
        /// Fixed opaque data.
        mark: [u8; 6] = "all_mark",
        /// An array.
        list: Vec<Inner> = "all_list",
        /// Optional data.
        maybe: Option<Inner> = "all_maybe",
    }
}

/// Returns numbers that depend on a seed alone.
fn numbers(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u32
    }
}

fn example() -> All {
    All {
        wide: 1 << 40,
        flag: true,
        text: Bytes::from_static(b"abcde"),
        mark: *b"fixed!",
        list: vec![Inner { small: 3 }, Inner { small: 4 }],
        maybe: Some(Inner { small: 5 }),
    }
}

#[test]
fn fields_are_encoded_in_their_order() {
    let words = [
        &[0, 0, 1, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 1],
        &[0, 0, 0, 5],
        b"abcde\0\0\0",
        b"fixed!\0\0",
        &[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4],
        &[0, 0, 0, 1, 0, 0, 0, 5],
    ];
    assert_eq!(example().encode(), words.concat());
    assert_eq!(All::decode(&words.concat()), Ok(example()));
    assert_eq!(All::NAME, "all");
}

#[test]
fn a_value_is_shown_by_the_names_of_its_fields() {
    let inner = |small| Shown::Fields(vec![("in_small", Shown::Number(small))]);
    let shown = Shown::Fields(vec![
        ("all_wide", Shown::Wide(1 << 40)),
        ("all_flag", Shown::Boolean(true)),
        ("all_text", Shown::Bytes(Bytes::from_static(b"abcde"))),
        ("all_mark", Shown::Bytes(Bytes::from_static(b"fixed!"))),
        ("all_list", Shown::List(vec![inner(3), inner(4)])),
        ("all_maybe", Shown::Optional(Some(Box::new(inner(5))))),
    ]);
    assert_eq!(example().show(), shown);
}

/// The count of an array is a number of the peer: nothing is allocated for elements that are not there.
#[test]
fn an_array_that_is_not_there_is_refused() {
    let mut bytes = All::default().encode().to_vec();
    bytes[24..28].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(All::decode(&bytes), Err(Malformed::Truncated));
}

#[test]
fn fixed_opaque_data_are_filled_up_with_zeros() {
    let mut bytes = example().encode().to_vec();
    let mark = bytes.windows(6).position(|at| at == b"fixed!").unwrap();
    bytes[mark + 7] = 1;
    assert_eq!(All::decode(&bytes), Err(Malformed::RoundUp));
    bytes.truncate(mark + 7);
    assert_eq!(All::decode(&bytes), Err(Malformed::Truncated));
}

quickcheck! {
    fn every_value_comes_back(seed: u64) -> bool {
        let value = All::arbitrary(&mut numbers(seed));
        All::decode(&value.encode()) == Ok(value)
    }

    fn a_value_cut_short_is_an_error(seed: u64, at: usize) -> bool {
        let bytes = All::arbitrary(&mut numbers(seed)).encode();
        All::decode(&bytes[..at % bytes.len()]).is_err()
    }

    fn what_is_decoded_is_encoded_as_it_came(seed: u64, at: usize, byte: u8) -> bool {
        let mut bytes = All::arbitrary(&mut numbers(seed)).encode().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        All::decode(&bytes).map_or(true, |value| value.encode() == bytes)
    }
}
