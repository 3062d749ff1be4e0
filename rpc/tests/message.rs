//! XDR streams with bulk items kept apart: decoding returns the encoded values, however the payload
//! is divided.

use std::io::Read;

use bytes::Bytes;
use onc_rpc::{Bulk, BulkItem, DecodeError, Decoder, Encoder, Message, Position, Segments, padded};
use quickcheck::{Arbitrary, Gen, quickcheck};

const MAX: u32 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    U32(u32),
    I32(i32),
    U64(u64),
    Bool(bool),
    Fixed(Vec<u8>),
    Opaque(Vec<u8>),
    Bulk(Vec<u8>),
    Words([u8; WORDS]),
    /// Opaque data of at most [`SHORT`] bytes.
    Short(Vec<u8>),
}

/// The length of a structure that is encoded as a whole, bytes.
const WORDS: usize = 12;
/// The length of the array that short opaque data is decoded into, bytes.
const SHORT: usize = 10;

impl Arbitrary for Value {
    fn arbitrary(g: &mut Gen) -> Self {
        match u8::arbitrary(g) % 9 {
            0 => Self::U32(u32::arbitrary(g)),
            1 => Self::I32(i32::arbitrary(g)),
            2 => Self::U64(u64::arbitrary(g)),
            3 => Self::Bool(bool::arbitrary(g)),
            4 => Self::Fixed(Vec::arbitrary(g)),
            5 => Self::Opaque(Vec::arbitrary(g)),
            6 => Self::Words(std::array::from_fn(|_| u8::arbitrary(g))),
            7 => {
                let mut short = Vec::arbitrary(g);
                short.truncate(SHORT);
                Self::Short(short)
            }
            _ => Self::Bulk(Vec::arbitrary(g)),
        }
    }
}

impl Value {
    fn encode(&self, out: &mut Encoder, apart: bool) {
        match self {
            Self::U32(v) => out.u32(*v),
            Self::I32(v) => out.i32(*v),
            Self::U64(v) => out.u64(*v),
            Self::Bool(v) => out.bool(*v),
            Self::Fixed(v) => out.opaque_fixed(v),
            Self::Bulk(v) if apart => out.bulk(Bytes::copy_from_slice(v)),
            Self::Opaque(v) | Self::Bulk(v) | Self::Short(v) => out.opaque(v),
            Self::Words(v) if v[0] % 2 == 0 => out.words(v),
            Self::Words(v) => {
                out.zeroed(WORDS).copy_from_slice(v);
                out
            }
        };
    }

    /// Decodes a value of the same type.
    fn decode(&self, from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(match self {
            Self::U32(_) => Self::U32(from.u32()?),
            Self::I32(_) => Self::I32(from.i32()?),
            Self::U64(_) => Self::U64(from.u64()?),
            Self::Bool(_) => Self::Bool(from.bool()?),
            Self::Fixed(v) => Self::Fixed(from.opaque_fixed(v.len())?.to_vec()),
            Self::Opaque(_) => Self::Opaque(from.opaque(MAX)?.to_vec()),
            Self::Bulk(_) => Self::Bulk(from.bulk(MAX)?.to_bytes().to_vec()),
            Self::Words(_) => Self::Words(from.words()?),
            Self::Short(_) => {
                let (len, array) = from.opaque_array::<SHORT>()?;
                assert_eq!(array[len..], [0; SHORT][len..]);
                Self::Short(array[..len].to_vec())
            }
        })
    }
}

fn encode(values: &[Value], apart: bool) -> Message {
    let mut out = Encoder::new();
    for value in values {
        value.encode(&mut out, apart);
    }
    out.finish()
}

/// Returns the stream as a peer without chunks would send it.
fn plain(values: &[Value]) -> Vec<u8> {
    encode(values, false).payload().concat()
}

fn decode(like: &[Value], message: &Message) -> Result<Vec<Value>, DecodeError> {
    let mut from = Decoder::new(message);
    let values = like
        .iter()
        .map(|v| v.decode(&mut from))
        .collect::<Result<_, _>>()?;
    from.finish()?;
    Ok(values)
}

/// Divides the payload at these offsets, which may repeat, so that segments may be empty.
fn cut(payload: &[u8], at: &[usize]) -> Segments {
    let mut at: Vec<usize> = at.iter().map(|at| at % (payload.len() + 1)).collect();
    at.sort_unstable();
    at.push(payload.len());
    let mut from = 0;
    let mut piece =
        |to: usize| Bytes::copy_from_slice(&payload[std::mem::replace(&mut from, to)..to]);
    at.into_iter().map(&mut piece).collect()
}

/// Returns the whole stream from its pieces, none of which may be empty.
fn pieces(message: &Message) -> Vec<u8> {
    let mut all = Vec::new();
    message.for_each_piece(|piece| {
        assert!(!piece.is_empty());
        all.extend_from_slice(piece);
    });
    all
}

quickcheck! {
    fn values_decode_however_the_payload_is_divided(values: Vec<Value>, at: Vec<usize>) -> bool {
        let message = encode(&values, true);
        let cut = cut(&message.payload().concat(), &at);
        let message = Message::new(cut, message.items().iter().cloned());
        decode(&values, &message) == Ok(values)
    }

    fn gathering_all_items_gives_the_plain_stream(values: Vec<Value>, at: Vec<usize>) -> bool {
        let message = encode(&values, true);
        let cut = cut(&message.payload().concat(), &at);
        let message = Message::new(cut, message.items().iter().cloned());
        let plain = plain(&values);
        message.stream_len() == plain.len() as u64
            && message.gather(|_| true).concat() == plain
            && pieces(&message) == plain
    }

    fn gathering_some_items_leaves_the_positions_of_the_others_right(
        values: Vec<Value>,
        inline: Vec<bool>
    ) -> bool {
        let message = encode(&values, true);
        let inline = |index: usize| inline.get(index).copied().unwrap_or(false);
        let apart = message.items().iter().enumerate();
        let apart = apart.filter(|(index, _)| !inline(*index)).map(|(_, item)| item.clone());
        let some = Message::new(message.gather(inline), apart);
        some.gather(|_| true).concat() == plain(&values) && decode(&values, &some) == Ok(values)
    }

    fn positions_are_those_of_the_unreduced_stream(values: Vec<Value>) -> bool {
        let (message, plain) = (encode(&values, true), plain(&values));
        message.items().iter().all(|item| {
            let Position::At(at) = item.position else { return false };
            let at = at as usize;
            let len = u32::from_be_bytes(plain[at - 4..at].try_into().unwrap()) as usize;
            item.data == plain[at..at + len]
        })
    }

    fn items_in_order_are_taken_by_the_values_they_belong_to(values: Vec<Value>) -> bool {
        let message = encode(&values, true);
        let unplaced = message.items().iter().map(|item| BulkItem {
            position: Position::InOrder,
            data: item.data.clone(),
        });
        let message = Message::new(message.payload().clone(), unplaced);
        decode(&values, &message) == Ok(values)
    }

    fn decoding_goes_on_where_it_stopped(values: Vec<Value>, stop: usize) -> bool {
        let message = encode(&values, true);
        let (first, rest) = values.split_at(stop % (values.len() + 1));
        let mut from = Decoder::new(&message);
        for value in first {
            value.decode(&mut from).unwrap();
        }
        let mut from = Decoder::at(&message, from.cursor());
        rest.iter().all(|value| value.decode(&mut from).as_ref() == Ok(value))
            && from.finish() == Ok(())
    }

    fn a_prepended_header_moves_the_items(values: Vec<Value>, header: Vec<u32>) -> bool {
        let header: Vec<Value> = header.into_iter().map(Value::U32).collect();
        let mut message = encode(&values, true);
        message.prepend(Bytes::from(plain(&header)));
        let all = [header, values].concat();
        message.gather(|_| true).concat() == plain(&all) && decode(&all, &message) == Ok(all)
    }

    fn arbitrary_bytes_do_not_panic(like: Vec<Value>, payload: Vec<u8>, at: Vec<usize>) -> bool {
        let message = Message::new(cut(&payload, &at), []);
        // If everything decodes, the encoded values have the length of the payload.
        decode(&like, &message).is_ok_and(|values| plain(&values).len() == payload.len())
            || decode(&like, &message).is_err()
    }

    fn flipped_bits_and_moved_items_do_not_panic(
        values: Vec<Value>,
        flips: Vec<usize>,
        moves: Vec<u32>
    ) -> bool {
        let message = encode(&values, true);
        let mut payload = message.payload().concat();
        let bits = payload.len() * 8;
        for flip in flips.iter().filter(|_| bits > 0) {
            payload[flip % bits / 8] ^= 1 << (flip % 8);
        }
        let mut items = message.items().to_vec();
        for (item, to) in items.iter_mut().zip(moves) {
            item.position = Position::At(to);
        }
        let items_len: usize = items.iter().map(|item| padded(item.data.len() as u64) as usize).sum();
        let broken = Message::new(cut(&payload, &flips), items);
        // Decoded data is never longer than the input.
        let gathered = broken.gather(|_| true).concat();
        if pieces(&broken) != gathered {
            return false;
        }
        let gathered = gathered.len();
        let decoded = decode(&values, &broken).map_or(0, |values| plain(&values).len());
        gathered == payload.len() + items_len && decoded <= gathered
    }

    fn reading_gives_the_payload(payload: Vec<u8>, at: Vec<usize>) -> bool {
        let message = Message::new(cut(&payload, &at), []);
        let mut read = Vec::new();
        Decoder::new(&message).read_to_end(&mut read).unwrap();
        read == payload
    }
}

fn item(position: Position, data: &'static [u8]) -> BulkItem {
    BulkItem {
        position,
        data: data.into(),
    }
}

fn words(words: &[u32]) -> Segments {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Segments::from_iter([Bytes::from(bytes)])
}

#[test]
fn opaque_data_in_one_segment_is_not_copied() {
    let mut out = Encoder::new();
    out.u32(1)
        .opaque(b"inline")
        .bulk(Bytes::from_static(b"apart"));
    let message = out.finish();
    let inline = message.payload()[0].slice(8..14);
    let mut from = Decoder::new(&message);
    assert_eq!(from.u32(), Ok(1));
    assert_eq!(from.opaque(6).unwrap().as_ptr(), inline.as_ptr());
    let apart = from.bulk(5).unwrap();
    assert_eq!(
        apart.pieces()[0].as_ptr(),
        message.items()[0].data.pieces()[0].as_ptr()
    );
    assert_eq!(from.position(), message.stream_len());
}

#[test]
fn opaque_data_is_copied_only_if_it_crosses_the_end_of_a_segment() {
    let message = Message::from_payload(Bytes::from_static(b"\0\0\0\x08abcdefgh"));
    let whole = message.payload()[0].clone();
    let opaque = Decoder::new(&message).opaque(8).unwrap();
    assert_eq!(opaque.as_ptr(), whole[4..].as_ptr());
    let cut = Segments::from_iter([whole.slice(..8), whole.slice(8..)]);
    let message = Message::new(cut, []);
    assert_eq!(Decoder::new(&message).opaque(8).unwrap(), opaque);
}

#[test]
fn opaque_data_longer_than_its_array_is_an_error() {
    let message = Message::from_payload(Bytes::from_static(b"\0\0\0\x09abcdefghi\0\0\0"));
    let long = DecodeError::TooLong { len: 9, max: 8 };
    assert_eq!(Decoder::new(&message).opaque_array::<8>(), Err(long));
    let (len, array) = Decoder::new(&message).opaque_array().unwrap();
    assert_eq!((len, array), (9, *b"abcdefghi\0\0"));
    let cut = Message::from_payload(Bytes::from_static(b"\0\0\0\x04abc"));
    let truncated = DecodeError::Truncated {
        at: 4,
        wanted: 4,
        left: 3,
    };
    assert_eq!(Decoder::new(&cut).opaque_array::<8>(), Err(truncated));
}

#[test]
fn bytes_ahead_are_in_one_piece_up_to_the_end_of_a_segment() {
    let segments = [words(&[1, 2]), words(&[3])].into_iter().flatten();
    let payload: Segments = segments.collect();
    let message = Message::without_items(payload.clone());
    let mut input = Decoder::new(&message);
    assert_eq!(input.in_one_piece(), [0, 0, 0, 1, 0, 0, 0, 2]);
    input.pass(4);
    assert_eq!(input.u32(), Ok(2));
    assert_eq!(
        (input.in_one_piece(), input.position()),
        (&[0, 0, 0, 3][..], 8)
    );
    input.pass(4);
    assert_eq!((input.in_one_piece(), input.finish()), (&[][..], Ok(())));
    // What lies before a bulk item is decoded step by step, so that none is passed over.
    let apart = Message::new(payload, [item(Position::At(8), b"data")]);
    assert!(Decoder::new(&apart).in_one_piece().is_empty());
}

#[test]
fn an_empty_opaque_at_the_end_is_decoded() {
    for payload in [
        Segments::new(),
        Segments::from_iter([Bytes::new(), Bytes::new()]),
    ] {
        let message = Message::new(payload, []);
        let mut from = Decoder::new(&message);
        assert_eq!(from.opaque_fixed(0), Ok(Bytes::new()));
        assert_eq!(from.remaining(), 0);
        let wanted = DecodeError::Truncated {
            at: 0,
            wanted: 4,
            left: 0,
        };
        assert_eq!(from.u32(), Err(wanted));
    }
}

#[test]
fn missing_round_up_is_an_error() {
    let message = Message::from_payload(Bytes::from_static(&[0, 0, 0, 1, 7]));
    let wanted = DecodeError::Truncated {
        at: 4,
        wanted: 4,
        left: 1,
    };
    assert_eq!(Decoder::new(&message).opaque(8), Err(wanted));
}

#[test]
fn lengths_are_checked_before_they_are_used() {
    let message = Message::new(words(&[u32::MAX]), []);
    let too_long = DecodeError::TooLong {
        len: u64::from(u32::MAX),
        max: 8,
    };
    assert_eq!(Decoder::new(&message).opaque(8), Err(too_long));
    // The round-up of a length does not wrap to zero either.
    let wanted = DecodeError::Truncated {
        at: 4,
        wanted: 1 << 32,
        left: 0,
    };
    assert_eq!(Decoder::new(&message).opaque(u32::MAX), Err(wanted));
}

#[test]
fn an_item_may_come_with_its_round_up_and_with_no_other_length() {
    for (data, ok) in [
        (&b"abcde"[..], true),
        (b"abcde\0\0\0", true),
        (b"abcde\0", false),
        (b"abcd", false),
    ] {
        let message = Message::new(words(&[5, 9]), [item(Position::At(4), data)]);
        let mut from = Decoder::new(&message);
        let got = from.bulk(100);
        if ok {
            assert_eq!(got.unwrap(), &b"abcde"[..]);
            assert_eq!(from.position(), 12);
            assert_eq!(from.u32(), Ok(9));
            assert_eq!(from.finish(), Ok(()));
        } else {
            let got_len = data.len() as u64;
            let error = DecodeError::BulkLength {
                expected: 5,
                got: got_len,
            };
            assert_eq!(got, Err(error));
        }
    }
}

/// RFC 8166, section 6.1.
#[test]
fn an_item_in_place_of_data_that_is_not_eligible_is_an_error() {
    let message = Message::new(words(&[4, 9]), [item(Position::At(4), b"abcd")]);
    let stray = Err(DecodeError::StrayBulk(4));
    assert_eq!(Decoder::new(&message).opaque(4), stray);
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
    assert_eq!((from.u32(), from.finish()), (Ok(9), Ok(())));
}

#[test]
fn an_item_at_a_position_without_opaque_data_is_an_error() {
    let message = Message::new(words(&[1, 2, 0]), [item(Position::At(4), b"abcd")]);
    let mut from = Decoder::new(&message);
    assert_eq!((from.u32(), from.u32()), (Ok(1), Ok(2)));
    assert_eq!(from.items_used(), Err(DecodeError::StrayBulk(4)));
    assert_eq!(from.opaque(4), Err(DecodeError::StrayBulk(4)));
    assert_eq!(from.finish(), Err(DecodeError::StrayBulk(4)));
}

#[test]
fn an_unclaimed_item_is_an_error_but_an_unused_chunk_is_not() {
    let used = Message::new(words(&[1]), [item(Position::InOrder, b"abcd")]);
    let mut from = Decoder::new(&used);
    assert_eq!(from.u32(), Ok(1));
    assert_eq!(from.finish(), Err(DecodeError::UnclaimedBulk(4)));
    let unused = Message::new(words(&[1]), [item(Position::InOrder, b"")]);
    let mut from = Decoder::new(&unused);
    assert_eq!(from.u32(), Ok(1));
    assert_eq!(from.finish(), Ok(()));
}

/// RFC 8166, section 6.1: a responder leaves data in the payload although there was a chunk for it.
#[test]
fn an_item_beside_the_unused_chunk_for_it_is_an_error() {
    let payload = || words(&[4, 0x6162_6364, 4]);
    let unused = || item(Position::InOrder, b"");
    let not_reduced = Err(DecodeError::NotReduced(4));
    for items in [
        vec![unused()],
        vec![unused(), item(Position::InOrder, b"efgh")],
    ] {
        let message = Message::new(payload(), items);
        assert_eq!(Decoder::new(&message).bulk(4), not_reduced);
    }
    // The first item used its chunk, and the second did not.
    let message = Message::new(
        words(&[4, 4, 0x6566_6768]),
        [item(Position::InOrder, b"abcd"), unused()],
    );
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
    assert_eq!(from.bulk(4), not_reduced);
    // If there are no more chunks, the item is in the payload.
    let message = Message::new(
        words(&[4, 4, 0x6566_6768]),
        [item(Position::InOrder, b"abcd")],
    );
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
    assert_eq!(from.bulk(4).unwrap(), b"efgh"[..]);
    assert_eq!(from.finish(), Ok(()));
}

/// version-two-07, section 6.6.4.
#[test]
fn an_item_may_be_inline_if_its_chunk_was_too_short() {
    let unused = || item(Position::InOrderOrInline, b"");
    let message = Message::new(words(&[4, 0x6162_6364]), [unused()]);
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
    assert_eq!(from.finish(), Ok(()));
    // Each item consumes its own chunk, used or not.
    let used = item(Position::InOrderOrInline, b"efgh");
    let message = Message::new(words(&[4, 0x6162_6364, 4]), [unused(), used]);
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
    assert_eq!(from.bulk(4).unwrap(), b"efgh"[..]);
    assert_eq!(from.finish(), Ok(()));
}

/// RFC 8166 does not say whether an empty opaque consumes a chunk, so both are accepted.
#[test]
fn an_empty_item_may_or_may_not_consume_a_chunk() {
    let (unused, used) = (
        item(Position::InOrder, b""),
        item(Position::InOrder, b"abcd"),
    );
    for items in [[unused.clone(), used.clone()], [used, unused]] {
        let message = Message::new(words(&[0, 4]), items);
        let mut from = Decoder::new(&message);
        assert_eq!(from.bulk(4).unwrap(), Bytes::new());
        assert_eq!(from.bulk(4).unwrap(), b"abcd"[..]);
        assert_eq!(from.finish(), Ok(()));
    }
}

#[test]
fn an_empty_item_leaves_its_chunk_to_the_next() {
    let message = Message::new(words(&[0, 4]), [item(Position::InOrder, b"abcd")]);
    let mut from = Decoder::new(&message);
    assert_eq!(from.bulk(4).unwrap(), Bytes::new());
    assert_eq!(from.bulk(4).unwrap(), &b"abcd"[..]);
}

#[test]
fn left_over_payload_is_an_error() {
    let message = Message::new(words(&[1, 2]), []);
    let mut from = Decoder::new(&message);
    assert_eq!(from.u32(), Ok(1));
    assert_eq!(from.finish(), Err(DecodeError::Trailing(4)));
}

#[test]
fn booleans_are_zero_or_one() {
    let message = Message::new(words(&[0, 1, 2]), []);
    let mut from = Decoder::new(&message);
    assert_eq!((from.bool(), from.bool()), (Ok(false), Ok(true)));
    assert!(matches!(
        from.bool(),
        Err(DecodeError::Invalid { value: 2, .. })
    ));
}

#[test]
#[should_panic(expected = "under 4 GiB")]
fn a_position_does_not_wrap() {
    let mut message = Message::new(words(&[4]), [item(Position::At(u32::MAX - 3), b"abcd")]);
    message.prepend(Bytes::from_static(&[0; 4]));
}

/// Divides a stream into segments of `cut` bytes.
fn in_pieces(whole: &[u8], cut: usize) -> Segments {
    whole.chunks(cut).map(Bytes::copy_from_slice).collect()
}

/// Wherever a segment ends, within an integer, a length, an item or its round-up, the values are
/// the same, and bulk data is returned without a copy.
#[test]
fn pieces_may_end_anywhere_and_bulk_data_stays_where_it_is() {
    let data: Vec<u8> = (0..37).collect();
    let mut out = Encoder::new();
    out.u32(0x0102_0304)
        .u64(0x1112_1314_1516_1718)
        .bulk(data.clone())
        .bool(true)
        .opaque(b"odd");
    let whole = out.finish().gather(|_| true).concat();
    for cut in 1..=whole.len() {
        let payload = in_pieces(&whole, cut);
        let memory: Vec<_> = payload.iter().map(|piece| piece.as_ptr_range()).collect();
        let message = Message::new(payload, []);
        let mut from = Decoder::new(&message);
        assert_eq!(from.u32(), Ok(0x0102_0304));
        assert_eq!(from.u64(), Ok(0x1112_1314_1516_1718));
        let found = from.bulk(37).unwrap();
        assert_eq!(found, data);
        for piece in found.pieces() {
            let range = piece.as_ptr_range();
            let in_place = |from: &std::ops::Range<*const u8>| {
                from.start <= range.start && range.end <= from.end
            };
            assert!(memory.iter().any(in_place), "copied, in pieces of {cut}");
        }
        assert_eq!(from.bool(), Ok(true));
        assert_eq!(from.opaque(3).unwrap(), b"odd"[..]);
        from.finish().unwrap();
    }
}

#[test]
fn an_item_in_several_pieces_is_not_copied() {
    let pieces = [&b"one"[..], b"", b"two", b"th"].map(Bytes::from_static);
    let data: Bulk = pieces.iter().cloned().collect();
    assert_eq!((data.len(), data.pieces().len()), (8, 3));
    let mut out = Encoder::new();
    out.bulk(data.clone()).u32(7);
    let message = out.finish();
    let mut from = Decoder::new(&message);
    let taken = from.bulk(8).unwrap();
    assert_eq!(taken, data);
    let starts = |bulk: &Bulk| {
        let starts = bulk.pieces().iter().map(|piece| piece.as_ptr());
        starts.collect::<Vec<_>>()
    };
    assert_eq!(starts(&taken), starts(&data));
    assert_eq!(from.u32(), Ok(7));
    let gathered = message.gather(|_| true);
    assert_eq!(gathered.concat(), b"\0\0\0\x08onetwoth\0\0\0\x07");
    let sent = gathered.iter().map(|piece| piece.as_ptr());
    assert!(
        starts(&data)
            .iter()
            .all(|start| sent.clone().any(|sent| sent == *start))
    );
    // An item with its round-up, divided within the round-up.
    for cut in 1..8 {
        let padded = Bytes::from_static(b"12345\0\0\0");
        let data: Bulk = [padded.slice(..cut), padded.slice(cut..)]
            .into_iter()
            .collect();
        let position = Position::At(4);
        let message = Message::new(words(&[5]), [BulkItem { position, data }]);
        let mut from = Decoder::new(&message);
        assert_eq!(from.bulk(5).unwrap(), b"12345"[..]);
        from.finish().unwrap();
    }
}

quickcheck! {
    fn bulk_items_are_compared_by_content(a: Vec<Vec<u8>>, b: Vec<Vec<u8>>, len: usize) -> bool {
        let bulk = |pieces: &[Vec<u8>]| -> Bulk { pieces.iter().cloned().map(Bytes::from).collect() };
        let (one, other) = (bulk(&a), bulk(&b));
        let (whole, other_whole) = (a.concat(), b.concat());
        let mut cut = one.clone();
        let len = len % (whole.len() + 2);
        cut.truncate(len);
        let in_one = Bulk::from(whole.clone());
        one == whole
            && one == in_one
            && one.len() == whole.len()
            && one.is_empty() == whole.is_empty()
            && (one == other) == (whole == other_whole)
            && cut == whole[..len.min(whole.len())]
            && cut.pieces().iter().all(|piece| !piece.is_empty())
            && one.to_bytes() == whole
    }
}

/// Values of different types are kept beside each other, and only those who hold the message see them.
#[test]
fn values_accompany_a_message_through_headers_and_clones() {
    let mut message = Message::from_payload(Bytes::from_static(b"args"));
    assert!(message.extras().is_empty());
    let without = message.clone();
    message.extras_mut().insert(7_u32);
    message.extras_mut().insert("a name");
    message.prepend(Bytes::from_static(b"head"));
    let clone = message.clone();
    message.extras_mut().insert(8_u32);
    for (message, number) in [(&message, 8), (&clone, 7)] {
        assert_eq!(message.extras().get::<u32>(), Some(&number));
        assert_eq!(message.extras().get::<&str>(), Some(&"a name"));
        assert_eq!(message.extras().get::<u64>(), None);
    }
    assert!(without.extras().is_empty());
    let moved = without.clone().with_extras(clone.extras().clone());
    assert_eq!(moved.extras().get::<u32>(), Some(&7));
    // They are no part of the stream.
    assert_eq!(moved, without);
    assert_eq!(size_of_val(message.extras()), size_of::<usize>());
}
