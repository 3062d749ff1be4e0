//! Encoding and decoding of operations: each of them byte by byte, and arbitrary input from a peer.

mod common;

use bytes::Bytes;
use common::{property, words};
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_ext_xchar::{Init, MAX_CHARACTERISTICS, Request, Response, Subset, Update};
use rpcrdma_extension::Property;
use rpcrdma_v2::Malformed;

#[derive(Clone, Debug)]
struct AnyProperty(Property);

impl Arbitrary for AnyProperty {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(Property {
            id: u32::arbitrary(g) >> (u8::arbitrary(g) % 32),
            value: Vec::<u8>::arbitrary(g).into(),
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct AnySubset(Subset);

impl Arbitrary for AnySubset {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(Subset::new(
            Vec::<u8>::arbitrary(g).into_iter().map(usize::from),
        ))
    }
}

fn list(any: Vec<AnyProperty>) -> Vec<Property> {
    let any = any.into_iter().take(MAX_CHARACTERISTICS);
    any.map(|any| any.0).collect()
}

/// Checks that decoding does not panic and that decoded values are encoded to the same bytes.
fn decodes_to_the_same_bytes(bytes: &Bytes) -> bool {
    let init = Init::decode(bytes).is_ok_and(|init| {
        init.encode().len() > bytes.len() || Init::decode(&init.encode()) != Ok(init)
    });
    let request = Request::decode(bytes).is_ok_and(|request| request.encode() != bytes);
    let update = Update::decode(bytes).is_ok_and(|update| update.encode() != bytes);
    let response = Response::decode(bytes)
        .is_ok_and(|response| Response::decode(&response.encode()) != Ok(response));
    init || request || update || response
}

fn flip(bytes: &[u8], flips: &[usize]) -> Bytes {
    let mut bytes = bytes.to_vec();
    for flip in flips {
        let bit = flip % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Bytes::from(bytes)
}

quickcheck! {
    fn operations_round_trip(any: Vec<AnyProperty>, some: AnySubset, others: AnySubset, done: bool) -> bool {
        let start = list(any);
        let init = Init { start: start.clone(), no_change: some.0 };
        let now = start.first().cloned().unwrap_or(property(1, &[4096]));
        let request = Request { want: start };
        let response = Response { done: some.0, rejected: others.0, pending: some.0.or(others.0) };
        let update = Update { now, pending_cleared: done };
        init.encode().len() == init.encoded_len()
            && Init::decode(&init.encode()) == Ok(init)
            && Request::decode(&request.encode()) == Ok(request)
            && Response::decode(&response.encode()) == Ok(response)
            && Update::decode(&update.encode()) == Ok(update)
    }

    fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) -> bool {
        !decodes_to_the_same_bytes(&bytes.into())
    }

    // Small words are more likely to be valid field values.
    fn arbitrary_words_do_not_panic(any: Vec<u8>) -> bool {
        let any: Vec<u32> = any.into_iter().map(|word| u32::from(word % 5)).collect();
        !decodes_to_the_same_bytes(&words(&any))
    }

    fn flipped_bits_do_not_panic(any: Vec<AnyProperty>, some: AnySubset, flips: Vec<usize>) -> bool {
        let init = Init { start: list(any), no_change: some.0 };
        let request = Request { want: init.start.clone() };
        let response = Response { done: some.0, rejected: some.0, pending: Subset::all(9) };
        let all = [init.encode(), request.encode(), response.encode()];
        !all.iter().any(|bytes| decodes_to_the_same_bytes(&flip(bytes, &flips)))
    }

    fn an_operation_cut_short_is_an_error(any: Vec<AnyProperty>, some: AnySubset, at: usize) -> bool {
        let init = Init { start: list(any), no_change: some.0 };
        let bytes = init.encode();
        let update = Update { now: property(9, &[1, 2]), pending_cleared: true }.encode();
        Init::decode(&bytes.slice(..at % bytes.len())).is_err()
            && Update::decode(&update.slice(..at % update.len())).is_err()
    }

    fn xchar_s2_1_a_subset_is_its_elements(elements: Vec<u8>) -> bool {
        let elements: Vec<usize> = elements.into_iter().map(|n| usize::from(n) % 64).collect();
        let subset = Subset::new(elements.iter().copied());
        (0..70).all(|n| subset.contains(n) == elements.contains(&n))
    }
}

#[test]
fn xchar_s4_1_initxch_has_these_bytes() {
    let start = vec![
        property(1, &[8192]),
        Property {
            id: 0xffff_ff00,
            value: Bytes::from_static(b"abcde"),
        },
        property(2, &[1]),
    ];
    let init = Init {
        start,
        no_change: Subset::new([1, 2]),
    };
    let abcd = u32::from_be_bytes(*b"abcd");
    let list = [3, 1, 4, 8192, 0xffff_ff00, 5, abcd, 0x6500_0000, 2, 4, 1];
    let subset = [1, 0b110];
    assert_eq!(init.encode(), words(&[&list[..], &subset].concat()));
}

#[test]
fn xchar_s4_2_reqxch_has_these_bytes() {
    let want = vec![property(1, &[4096])];
    let request = Request { want };
    assert_eq!(request.encode(), words(&[1, 1, 4, 4096]));
}

#[test]
fn xchar_s4_3_respxch_has_these_bytes() {
    let response = Response {
        done: Subset::new([0, 33]),
        rejected: Subset::default(),
        pending: Subset::new([2]),
    };
    assert_eq!(response.encode(), words(&[2, 1, 2, 0, 1, 4]));
}

#[test]
fn xchar_s4_4_updxch_has_these_bytes() {
    let update = Update {
        now: property(1, &[16384]),
        pending_cleared: true,
    };
    assert_eq!(update.encode(), words(&[1, 4, 16384, 1]));
}

#[test]
fn xchar_s2_1_bit_n_is_in_word_n_div_32_and_missing_words_are_zero() {
    let decode = |all: &[u32]| Response::decode(&words(all)).map(|response| response.done);
    assert_eq!(decode(&[0, 0, 0]), Ok(Subset::default()));
    let two = [2, 1 << 31, 1, 0, 0];
    assert_eq!(decode(&two), Ok(Subset::new([31, 32])));
    // More words than any list needs, first without a bit set and then with one.
    assert_eq!(decode(&[4, 1, 0, 0, 0, 0, 0]), Ok(Subset::new([0])));
    let beyond = Malformed::TooMany("characteristics in a subset");
    assert_eq!(decode(&[3, 0, 0, 1, 0, 0]), Err(beyond));
    assert_eq!(decode(&[u32::MAX, 0, 0]), Err(Malformed::Truncated));
}

#[test]
fn a_count_is_checked_before_memory_is_allocated() {
    let too_many = Err(Malformed::TooMany("characteristics"));
    assert_eq!(Request::decode(&words(&[u32::MAX, 0])), too_many);
    assert_eq!(Request::decode(&words(&[65, 0])), too_many);
    let promised = Request::decode(&words(&[64, 0]));
    assert_eq!(promised, Err(Malformed::Truncated));
    for len in [5, u32::MAX - 2, u32::MAX] {
        let longer = Request::decode(&words(&[1, 9, len, 0]));
        assert_eq!(longer, Err(Malformed::Truncated));
    }
}

#[test]
fn nothing_follows_an_operation() {
    let trailing = Err(Malformed::Trailing(4));
    assert_eq!(Request::decode(&words(&[0, 0])), trailing);
    let response = Response::decode(&words(&[0, 0, 0, 0]));
    assert_eq!(response, Err(Malformed::Trailing(4)));
}

#[test]
fn xchar_s4_3_a_response_says_one_thing_of_each() {
    let response = |done: &[usize], rejected: &[usize], pending: &[usize]| Response {
        done: Subset::new(done.iter().copied()),
        rejected: Subset::new(rejected.iter().copied()),
        pending: Subset::new(pending.iter().copied()),
    };
    assert!(response(&[0], &[2], &[1]).covers(3));
    assert!(response(&[], &[], &[]).covers(0));
    for bad in [
        response(&[0], &[2], &[]),
        response(&[0, 1], &[1], &[2]),
        response(&[0], &[1], &[1, 2]),
        response(&[0, 2], &[1], &[2]),
        response(&[0, 1, 2, 3], &[], &[]),
    ] {
        assert!(!bad.covers(3), "{bad:?}");
    }
}
