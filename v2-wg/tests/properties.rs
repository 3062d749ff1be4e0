//! Transport properties (section 5).

mod common;

use bytes::Bytes;
use common::words;
use quickcheck::{Arbitrary, Gen, quickcheck};
use rpcrdma_chunks::Side;
use rpcrdma_extension::{Action, Extensions};
use rpcrdma_v2_wg::base::{Base, Config};
use rpcrdma_v2_wg::limits::PREFIX_LEN;
use rpcrdma_v2_wg::{
    BadProperty, EXPERIMENTAL, Malformed, Properties, Property, ReverseSupport, header_type,
    property_id,
};

fn property(id: u32, value: &[u32]) -> Property {
    Property {
        id,
        value: words(value),
    }
}

const LEVELS: [ReverseSupport; 4] = [
    ReverseSupport::None,
    ReverseSupport::Simple,
    ReverseSupport::Continued,
    ReverseSupport::General,
];

#[derive(Clone, Debug)]
struct AnyProperties(Properties);

impl Arbitrary for AnyProperties {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(Properties {
            send_size: u32::arbitrary(g),
            receive_size: u32::arbitrary(g),
            segment_size: u32::arbitrary(g),
            segment_count: u32::arbitrary(g),
            reverse: LEVELS[usize::arbitrary(g) % LEVELS.len()],
            host_auth: Option::<Vec<u8>>::arbitrary(g).map(Bytes::from),
        })
    }
}

#[derive(Clone, Debug)]
struct AnyList(Vec<Property>);

impl Arbitrary for AnyList {
    fn arbitrary(g: &mut Gen) -> Self {
        let n = u8::arbitrary(g) % 5;
        Self((0..n).map(|_| common::any_property(g)).collect())
    }
}

quickcheck! {
    fn properties_round_trip(any: AnyProperties, before: AnyProperties) -> bool {
        let mut decoded = before.0;
        decoded.host_auth = None;
        decoded.apply(&any.0.encode()) == Ok(()) && decoded == any.0
    }

    fn the_order_of_properties_has_no_meaning(any: AnyProperties) -> bool {
        let (mut list, mut decoded) = (any.0.encode(), Properties::default());
        list.reverse();
        decoded.apply(&list) == Ok(()) && decoded == any.0
    }

    fn whatever_arrives_is_applied_as_a_whole_or_not_at_all(any: AnyProperties, list: AnyList) -> bool {
        let mut after = any.0.clone();
        after.apply(&list.0).is_ok() || after == any.0
    }
}

#[test]
fn wg_s5_2_properties_have_these_numbers_and_defaults() {
    let list = Properties::default().encode();
    let expected = [(1, 4096), (2, 4096), (3, 1_048_576), (4, 16), (5, 0)];
    assert_eq!(list, expected.map(|(id, value)| property(id, &[value])));
    let with = Properties {
        host_auth: Some(Bytes::from_static(b"abcde")),
        ..Properties::default()
    };
    let host_auth = property(6, &[5, 0x6162_6364, 0x6500_0000]);
    assert_eq!(with.encode().last(), Some(&host_auth));
}

#[test]
fn wg_s5_2_5_levels_of_reverse_direction_support_have_these_numbers() {
    for (number, level) in (0..).zip(LEVELS) {
        assert_eq!(level.number(), number);
        assert_eq!(ReverseSupport::from_number(number), Some(level));
    }
    assert_eq!(ReverseSupport::from_number(4), None);
    assert!(LEVELS.is_sorted(), "more support is greater");
}

#[test]
fn wg_s5_1_an_empty_value_is_the_default() {
    let mut properties = Properties {
        send_size: 1,
        receive_size: 2,
        segment_size: 3,
        segment_count: 4,
        reverse: ReverseSupport::General,
        host_auth: Some(Bytes::new()),
    };
    let empty: Vec<_> = (1..=6).map(|id| property(id, &[])).collect();
    assert_eq!(properties.apply(&empty), Ok(()));
    assert_eq!(properties, Properties::default());
}

#[test]
fn wg_s5_1_an_unknown_property_is_skipped() {
    let mut properties = Properties::default();
    let ids = [0, 7, 1000, *EXPERIMENTAL.start(), *EXPERIMENTAL.end()];
    let mut list: Vec<_> = ids.iter().map(|id| property(*id, &[1, 2, 3])).collect();
    list.push(property(property_id::RECEIVE_SIZE, &[8192]));
    assert_eq!(properties.apply(&list), Ok(()));
    let expected = Properties {
        receive_size: 8192,
        ..Properties::default()
    };
    assert_eq!(properties, expected);
}

#[test]
fn wg_s5_1_of_two_values_for_one_property_the_last_counts() {
    let mut properties = Properties::default();
    let list = [[8192], [16384]].map(|value| property(property_id::RECEIVE_SIZE, &value));
    assert_eq!(properties.apply(&list), Ok(()));
    assert_eq!(properties.receive_size, 16384);
}

#[test]
fn wg_s5_1_and_s7_2_2_a_value_of_another_type_is_bad_and_nothing_is_applied() {
    let bytes = |id, value: &'static [u8]| Property {
        id,
        value: Bytes::from_static(value),
    };
    let numbers = 1..=5;
    let short = numbers
        .clone()
        .map(|id| (bytes(id, b"abc"), Malformed::Truncated));
    let long = numbers.map(|id| (property(id, &[1, 2]), Malformed::Trailing(4)));
    let level = |value| Malformed::Enumeration("reverse-direction support", value);
    let others = [
        (property(5, &[4]), level(4)),
        (property(5, &[u32::MAX]), level(u32::MAX)),
        (bytes(6, b"abc"), Malformed::Truncated),
        (property(6, &[1]), Malformed::Truncated),
        (property(6, &[1, 1]), Malformed::RoundUp),
        (property(6, &[0, 0]), Malformed::Trailing(4)),
    ];
    for (bad, reason) in short.chain(long).chain(others) {
        let good = property(property_id::SEGMENT_COUNT, &[99]);
        for list in [[good.clone(), bad.clone()], [bad.clone(), good]] {
            let mut properties = Properties::default();
            let id = bad.id;
            let expected = Err(BadProperty { id, reason });
            assert_eq!(properties.apply(&list), expected, "{bad:?}");
            assert_eq!(properties, Properties::default(), "{bad:?}");
        }
    }
}

/// The value is the XDR of `opaque<>`, in a property whose value is `opaque<>`.
#[test]
fn wg_s5_2_6_host_authentication_has_two_lengths() {
    let host_auth = Some(Bytes::from_static(b"hello"));
    let own = Properties {
        host_auth,
        ..Properties::default()
    };
    let encoded = own.encode();
    let material = encoded.last().unwrap();
    assert_eq!(material.id, property_id::HOST_AUTH);
    assert_eq!(material.value[..], b"\0\0\0\x05hello\0\0\0"[..]);
    let mut read = Properties::default();
    assert_eq!(read.apply(&encoded), Ok(()));
    assert_eq!(read, own);
    // No octets are the same as no property.
    let none = Property {
        id: property_id::HOST_AUTH,
        value: Bytes::new(),
    };
    assert_eq!(read.apply(&[none]), Ok(()));
    assert_eq!(read.host_auth, None);
}

#[test]
fn wg_s6_3_3_all_parts_of_an_exchange_have_one_xid() {
    let properties = Properties {
        host_auth: Some(Bytes::from(vec![7; 3000])),
        ..Properties::default()
    };
    let config = Config {
        side: Side::Client,
        properties,
        offer_invalidation: true,
        can_invalidate: true,
        max_message: 1 << 20,
    };
    let mut extensions = Extensions::new(Side::Client, 77, vec![]).unwrap();
    extensions.with_version_outbox(|out| Base::new(config).announce(&[], out));
    let mut sent = Vec::new();
    while let Some(action) = extensions.next_action() {
        if let Action::Send(message) = action {
            // The first message of a client has 1024 bytes at most (section 4.3), and others 4096.
            let most = if sent.is_empty() { 1024 } else { 4096 };
            assert!(PREFIX_LEN + message.fields.len() <= most);
            sent.push((message.xid, message.number));
        }
    }
    let (middle, last) = (header_type::CONNPROP_MIDDLE, header_type::CONNPROP_FINAL);
    assert_eq!(sent, [(sent[0].0, middle), (sent[0].0, last)]);
}
