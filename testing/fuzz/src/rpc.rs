//! RPC call and reply headers, credentials included (RFC 5531, sections 8 to 10), and rpcbind's lists of
//! mappings (RFC 1833).

use bytes::Bytes;
use onc_rpc::rpcbind::decode_mappings;
use onc_rpc::{
    CallDecodeError, CallHeader, Credential, DecodeError, Decoder, Encoder, MAX_AUTH_BYTES,
    MAX_GIDS, MAX_MACHINE_NAME, Message, ReplyHeader, Segments, peek_xid,
};

/// Checks the header decoders. The first byte is the length of the segments into which the rest, a
/// message, is divided.
pub fn check(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else {
        return;
    };
    let whole = Message::from_payload(Bytes::copy_from_slice(bytes));
    let pieces = bytes.chunks(1 + usize::from(piece % 32));
    // Empty pieces too, as a gather list may hold.
    let pieces = pieces.flat_map(|piece| [Bytes::new(), Bytes::copy_from_slice(piece)]);
    let cut = Message::new(pieces.collect::<Segments>(), []);
    assert_eq!(cut.payload_len(), bytes.len() as u64);
    assert_eq!(peek_xid(&whole), peek_xid(&cut));
    call(&whole, &cut, bytes);
    reply(&whole, &cut, bytes);
    mappings(&whole, &cut, bytes);
}

/// The maximum number of heap bytes that decoding may hold: both bodies of `opaque_auth`, a machine
/// name, and their containers.
const MOST: usize = 2 * MAX_AUTH_BYTES as usize + MAX_MACHINE_NAME as usize + 512;

fn call(whole: &Message, cut: &Message, bytes: &[u8]) {
    let mut decoder = Decoder::new(whole);
    let decoded = crate::within(MOST, || CallHeader::decode(&mut decoder));
    let mut other = Decoder::new(cut);
    let same = crate::within(MOST, || CallHeader::decode(&mut other));
    assert_eq!(decoded, same, "a header depends on how its message is cut");
    assert_eq!(decoder.remaining(), other.remaining());
    match decoded {
        Ok(header) => {
            assert_eq!(peek_xid(whole), Some(header.xid));
            if let Credential::Sys(sys) = &header.cred {
                assert!(sys.machine_name.len() <= MAX_MACHINE_NAME as usize);
                assert!(sys.gids.len() <= MAX_GIDS as usize);
            }
            let again = header.encode();
            let used = bytes.len() - decoder.remaining() as usize;
            // AUTH_NONE's body is passed over, and round-up need not be zero on arrival.
            assert!(again.len() <= used && again.len() % 4 == 0);
            if header.cred != Credential::None {
                assert_eq!(again.len(), used);
            }
            let message = Message::from_payload(again.clone());
            let mut decoder = Decoder::new(&message);
            assert_eq!(CallHeader::decode(&mut decoder).as_ref(), Ok(&header));
            assert_eq!(decoder.finish(), Ok(()));
            assert_eq!(header.encode(), again);
        }
        // The answer that is due can be sent, and belongs to the call.
        Err(error) => match error.reply() {
            Some(answer) => {
                assert_eq!(peek_xid(whole), Some(answer.xid));
                round_trip(&answer);
            }
            None => assert!(matches!(error, CallDecodeError::NotACall(_))),
        },
    }
}

fn reply(whole: &Message, cut: &Message, bytes: &[u8]) {
    let mut decoder = Decoder::new(whole);
    let decoded = crate::within(MOST, || ReplyHeader::decode(&mut decoder));
    let mut other = Decoder::new(cut);
    let same = crate::within(MOST, || ReplyHeader::decode(&mut other));
    assert_eq!(decoded, same, "a header depends on how its message is cut");
    assert_eq!(decoder.remaining(), other.remaining());
    match decoded {
        Ok(header) => {
            let used = bytes.len() - decoder.remaining() as usize;
            assert_eq!(round_trip(&header), used);
        }
        Err(DecodeError::Truncated { wanted, left, .. }) => assert!(left < wanted),
        Err(_) => {}
    }
}

fn mappings(whole: &Message, cut: &Message, bytes: &[u8]) {
    // A mapping takes 24 bytes or more of the message, and 104 bytes in a vector that may double.
    let most = 16 * bytes.len() + 1024;
    let mut decoder = Decoder::new(whole);
    let decoded = crate::within(most, || decode_mappings(&mut decoder));
    let mut other = Decoder::new(cut);
    let same = crate::within(most, || decode_mappings(&mut other));
    assert_eq!(decoded, same, "a list depends on how its message is cut");
    let Ok(mappings) = decoded else { return };
    let mut out = Encoder::new();
    for mapping in &mappings {
        mapping.encode(out.bool(true));
    }
    out.bool(false);
    let message = out.finish();
    assert_eq!(
        message.payload_len(),
        bytes.len() as u64 - decoder.remaining()
    );
    assert_eq!(decode_mappings(&mut Decoder::new(&message)), Ok(mappings));
}

/// Checks that the header is encoded to a form that decodes to the same header. Returns its length
/// in bytes.
fn round_trip(header: &ReplyHeader) -> usize {
    let bytes = header.encode();
    let message = Message::from_payload(bytes.clone());
    let mut decoder = Decoder::new(&message);
    assert_eq!(ReplyHeader::decode(&mut decoder).as_ref(), Ok(header));
    assert_eq!(decoder.finish(), Ok(()));
    bytes.len()
}
