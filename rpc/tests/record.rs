//! Record marking: the same records are returned, however the stream is fragmented and received.

use bytes::{BufMut, Bytes, BytesMut};
use onc_rpc::record::{MAX_FRAGMENT, MAX_FRAGMENTS, RecordError, RecordReader, Want, header};
use quickcheck::{TestResult, quickcheck};

const MAX: u32 = 1 << 20;

fn fragment(out: &mut BytesMut, data: &[u8], last: bool) {
    out.put_u32(data.len() as u32 | u32::from(last) << 31);
    out.put_slice(data);
}

/// Appends a record in fragments divided at these offsets, some of them empty.
fn fragments(out: &mut BytesMut, record: &[u8], at: &[usize]) {
    let mut at: Vec<usize> = at.iter().map(|at| at % (record.len() + 1)).collect();
    at.sort_unstable();
    let mut from = 0;
    for to in at {
        fragment(out, &record[from..to], false);
        from = to;
    }
    fragment(out, &record[from..], true);
}

quickcheck! {
    fn records_come_out_as_they_went_in(
        records: Vec<(Vec<u8>, Vec<usize>)>,
        arrivals: Vec<u8>
    ) -> TestResult {
        if records.iter().any(|(record, _)| record.is_empty()) {
            return TestResult::discard();
        }
        let mut stream = BytesMut::new();
        for (record, at) in &records {
            fragments(&mut stream, record, at);
        }
        let mut stream = stream.freeze();
        let mut reader = RecordReader::new(MAX);
        let mut got = Vec::new();
        let mut arrivals = arrivals.into_iter();
        while !stream.is_empty() {
            let n = arrivals.next().map_or(stream.len(), usize::from).min(stream.len());
            let mut arrived = stream.split_to(n);
            while let Some(record) = reader.feed(&mut arrived).unwrap() {
                got.push(record.concat());
            }
            assert!(arrived.is_empty());
        }
        let expected: Vec<_> = records.into_iter().map(|(record, _)| record).collect();
        TestResult::from_bool(got == expected && reader.at_boundary())
    }

    fn arbitrary_streams_do_not_panic_and_keep_to_the_limit(stream: Vec<u8>) -> bool {
        let mut reader = RecordReader::new(16);
        let mut stream = Bytes::from(stream);
        loop {
            match reader.feed(&mut stream) {
                Ok(Some(record)) if record.concat().len() <= 16 => {}
                Ok(Some(_)) => return false,
                Ok(None) => return stream.is_empty(),
                Err(_) => return true,
            }
        }
    }
}

#[test]
fn a_header_says_length_and_last() {
    assert_eq!(header(0x0102), Ok([0x80, 0, 1, 2]));
    assert_eq!(header(u64::from(MAX_FRAGMENT)), Ok([0xff; 4]));
    assert_eq!(header(0), Err(RecordError::Empty));
    let max = u64::from(MAX_FRAGMENT);
    for len in [max + 1, (1 << 32) + 1] {
        assert_eq!(header(len), Err(RecordError::TooLong { len, max }));
    }
}

#[test]
fn a_body_that_is_received_in_one_piece_is_not_copied() {
    let mut reader = RecordReader::new(MAX);
    assert_eq!(reader.want(), Want::Header(4));
    assert_eq!(reader.header(&[0x80, 0]), Ok(2));
    assert_eq!(reader.want(), Want::Header(2));
    assert!(!reader.at_boundary());
    assert_eq!(reader.header(&[0, 8, 9, 9]), Ok(2));
    assert_eq!(reader.want(), Want::Body { len: 8, last: true });
    let data = Bytes::from(vec![5; 11]);
    let mut rest = data.clone();
    reader.body(&mut rest);
    assert_eq!(rest.len(), 3);
    assert_eq!(reader.want(), Want::Take);
    let record = reader.take().unwrap();
    assert_eq!((record.len(), record[0].len()), (1, 8));
    assert_eq!(record[0].as_ptr(), data.as_ptr());
    assert!(reader.at_boundary());
}

#[test]
fn long_pieces_are_not_copied_and_short_ones_are_joined() {
    // Miri takes a minute for that many.
    let pieces: u64 = if cfg!(miri) { 1_000 } else { 50_000 };
    let mut reader = RecordReader::new(MAX);
    reader.header(&header(50_000 + pieces).unwrap()).unwrap();
    let long = Bytes::from(vec![1; 50_000]);
    reader.body(&mut long.clone());
    for _ in 0..pieces {
        reader.body(&mut Bytes::from_static(&[2]));
    }
    let record = reader.take().unwrap();
    assert_eq!(record[0].as_ptr(), long.as_ptr());
    let len: u64 = record.iter().map(|piece| piece.len() as u64).sum();
    assert_eq!(len, 50_000 + pieces);
    assert!(record.len() <= 2, "{} segments", record.len());
}

#[test]
fn a_record_over_the_limit_is_refused_by_its_header() {
    let too_long = |len| Err(RecordError::TooLong { len, max: 10 });
    let mut reader = RecordReader::new(10);
    assert_eq!(reader.header(&[0x80, 0, 0, 11]), too_long(11));
    let mut reader = RecordReader::new(10);
    let mut stream = Bytes::from_static(&[0, 0, 0, 6, 1, 2, 3, 4, 5, 6, 0x80, 0, 0, 5]);
    assert_eq!(reader.feed(&mut stream), too_long(11).map(|_: usize| None));
}

#[test]
fn lengths_of_fragments_do_not_wrap() {
    let mut reader = RecordReader::new(u32::MAX);
    let max = MAX_FRAGMENT as usize;
    assert_eq!(reader.header(&[0x7f, 0xff, 0xff, 0xff]), Ok(4));
    assert_eq!(
        reader.want(),
        Want::Body {
            len: max,
            last: false
        }
    );
}

#[test]
fn empty_fragments_are_taken_and_a_flood_of_them_is_not() {
    let mut stream = BytesMut::new();
    fragment(&mut stream, b"", false);
    fragment(&mut stream, b"abcd", false);
    fragment(&mut stream, b"", true);
    let mut reader = RecordReader::new(MAX);
    let record = reader.feed(&mut stream.freeze()).unwrap().unwrap();
    assert_eq!(record.concat(), b"abcd");

    for _ in 0..MAX_FRAGMENTS {
        assert_eq!(reader.header(&[0; 4]), Ok(4));
    }
    assert_eq!(reader.header(&[0; 4]), Err(RecordError::TooManyFragments));
}

#[test]
fn an_empty_record_is_refused() {
    let mut reader = RecordReader::new(MAX);
    assert_eq!(reader.header(&[0x80, 0, 0, 0]), Err(RecordError::Empty));
}
