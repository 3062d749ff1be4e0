//! Record marking (RFC 5531, section 11).

use bytes::Bytes;
use onc_rpc::record::{HEADER_LEN, MAX_FRAGMENTS, RecordError, RecordReader, header};

/// The maximum length of a record, in bytes.
const MAX_RECORD: u32 = 2048;

/// Checks the record reader. The first byte is the length of the pieces in which the rest, a byte
/// stream, arrives.
pub fn check(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else {
        return;
    };
    let whole = read(stream, stream.len());
    assert_eq!(
        read(stream, 1 + usize::from(piece)),
        whole,
        "records depend on how the stream is cut"
    );
    assert_eq!(reference(stream), whole);
    for record in &whole.0 {
        let word = header(record.len() as u64).expect("a record is neither empty nor too long");
        let mut one = word.to_vec();
        one.extend_from_slice(record);
        assert_eq!(read(&one, one.len()), (vec![record.clone()], None));
    }
}

type Outcome = (Vec<Vec<u8>>, Option<RecordError>);

/// Reads a stream in pieces of `piece` bytes with the real reader.
fn read(stream: &[u8], piece: usize) -> Outcome {
    let mut reader = RecordReader::new(MAX_RECORD);
    let mut records = Vec::new();
    // A record is held once, its pieces and their descriptions beside it.
    let most = 1 << 17;
    crate::within(most, || {
        for bytes in stream.chunks(piece.max(1)) {
            let mut bytes = Bytes::copy_from_slice(bytes);
            loop {
                match reader.feed(&mut bytes) {
                    Ok(Some(record)) => records.push(record.concat()),
                    Ok(None) => break,
                    Err(error) => return (std::mem::take(&mut records), Some(error)),
                }
            }
            assert!(bytes.is_empty(), "bytes left that no record took");
        }
        (std::mem::take(&mut records), None)
    })
}

/// Reads the stream with a simple reference implementation of RFC 5531, section 11.
fn reference(mut stream: &[u8]) -> Outcome {
    let mut records = Vec::new();
    let (mut record, mut claimed, mut fragments) = (Vec::new(), 0u64, 0);
    while let Some((word, rest)) = stream.split_first_chunk::<HEADER_LEN>() {
        let word = u32::from_be_bytes(*word);
        let (len, last) = (word & 0x7fff_ffff, word >> 31 == 1);
        claimed += u64::from(len);
        fragments += 1;
        if claimed > u64::from(MAX_RECORD) {
            let (len, max) = (claimed, u64::from(MAX_RECORD));
            return (records, Some(RecordError::TooLong { len, max }));
        }
        if fragments > MAX_FRAGMENTS {
            return (records, Some(RecordError::TooManyFragments));
        }
        if last && claimed == 0 {
            return (records, Some(RecordError::Empty));
        }
        let here = rest.len().min(len as usize);
        record.extend_from_slice(&rest[..here]);
        stream = &rest[here..];
        if here < len as usize {
            break;
        }
        if last {
            records.push(std::mem::take(&mut record));
            (claimed, fragments) = (0, 0);
        }
    }
    (records, None)
}
