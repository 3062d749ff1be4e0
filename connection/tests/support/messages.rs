//! RPC messages with known content, and decoding of messages on the wire.

use bytes::Bytes;
use onc_rpc::{Decoder, Encoder, Message};
use rpcrdma_chunks::Chunks;
use rpcrdma_connection::ReplyRoom;
use rpcrdma_v2::Direction;

/// Returns a call with this XID, number of words, and bulk items.
pub fn message(xid: u32, words: usize, items: &[Bytes]) -> Message {
    typed(xid, onc_rpc::CALL, words, items)
}

/// Returns a reply with the same content as [`message`] has.
pub fn reply(xid: u32, words: usize, items: &[Bytes]) -> Message {
    typed(xid, onc_rpc::REPLY, words, items)
}

fn typed(xid: u32, msg_type: u32, words: usize, items: &[Bytes]) -> Message {
    let mut encoder = Encoder::new();
    encoder.u32(xid);
    encoder.u32(msg_type);
    encoder.u32((words as u32) << 8 | items.len() as u32);
    for n in 0..words {
        encoder.u32(n as u32);
    }
    for item in items {
        encoder.bulk(item.clone());
    }
    encoder.u32(0xe0f);
    encoder.finish()
}

/// Returns the XID, the number of words and the items of a [`message`] or a [`reply`], and checks
/// its content.
pub fn open(message: &Message) -> (u32, usize, Vec<Bytes>) {
    let mut decoder = Decoder::new(message);
    let xid = decoder.u32().unwrap();
    decoder.u32().unwrap();
    let counts = decoder.u32().unwrap();
    let words = (counts >> 8) as usize;
    for n in 0..words {
        assert_eq!(decoder.u32().unwrap(), n as u32);
    }
    let items = (0..counts & 0xff)
        .map(|_| decoder.bulk(u32::MAX).unwrap().to_bytes())
        .collect();
    assert_eq!(decoder.u32().unwrap(), 0xe0f);
    decoder.finish().unwrap();
    (xid, words, items)
}

/// Returns bytes that depend on `seed` and on their position.
pub fn data(seed: u32, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b1) | 1;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(byte).collect::<Vec<u8>>().into()
}

/// Returns the room that a [`reply`] with this number of words and items of these lengths needs,
/// less the 24 bytes of an RPC reply header.
pub fn room(words: usize, items: &[usize]) -> ReplyRoom {
    ReplyRoom {
        payload: (16 + 4 * words + 4 * items.len()).saturating_sub(24) as u32,
        items: items.iter().map(|&len| len as u32).collect(),
        idempotent: false,
    }
}

/// Returns the bytes of a message without items.
pub fn bytes(message: &Message) -> Vec<u8> {
    message.gather(|_| true).concat()
}

/// A decoded message on the wire.
#[derive(Clone, Debug)]
pub struct Seen {
    pub version: u32,
    pub xid: u32,
    pub credits: u32,
    /// The chunk lists; `None` for errors and operations.
    pub chunks: Option<Chunks>,
    /// Whether the message is an error.
    pub error: bool,
    /// The direction in the header, in version 2 only.
    pub direction: Option<Direction>,
    /// Whether the message is an operation of an extension.
    pub optional: bool,
    /// The offset of the payload, in bytes.
    pub payload_at: usize,
}

impl Seen {
    /// Decodes a message that a connection sent. Returns `None` for an error in another version
    /// than the connection speaks.
    #[track_caller]
    pub fn new(bytes: &Bytes) -> Option<Self> {
        let version = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
        if version == 1 {
            let decoded = rpcrdma_v1::Header::decode(bytes);
            // RDMA2_ERR_VERS_MISMATCH has the version of the message that it answers.
            if decoded.is_err() && bytes[12..20] == [0, 0, 0, 4, 0, 0, 0, 11] {
                return None;
            }
            let (header, payload_at) = decoded.unwrap();
            let error = matches!(header.body, rpcrdma_v1::Body::Error(_));
            return Some(Self {
                version,
                xid: header.xid,
                credits: header.credits,
                chunks: match header.body {
                    rpcrdma_v1::Body::Msg(chunks) | rpcrdma_v1::Body::NoMsg(chunks) => Some(chunks),
                    rpcrdma_v1::Body::Error(_) => None,
                },
                error,
                direction: None,
                optional: false,
                payload_at,
            });
        }
        let header_type = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        // Both versions 2 have errors with the same header type, and the codes of one of 2016 are
        // fewer.
        let only_wg = || rpcrdma_v2::Header::decode(bytes).is_err();
        let is_wg = match header_type {
            4 => only_wg(),
            5 => bytes.len() < 28,
            _ => header_type > 5,
        };
        if version != 2 {
            return None;
        }
        if rpcrdma_v2_wg::EXPERIMENTAL.contains(&header_type) {
            let prefix = rpcrdma_v2_wg::Prefix::peek(bytes).unwrap();
            return Some(Self {
                version,
                xid: prefix.xid,
                credits: prefix.credit,
                chunks: None,
                error: false,
                direction: None,
                optional: true,
                payload_at: rpcrdma_v2_wg::limits::PREFIX_LEN,
            });
        }
        if is_wg {
            let (header, payload_at) = rpcrdma_v2_wg::Header::decode(bytes).unwrap();
            return Some(Self {
                version,
                xid: header.xid,
                credits: header.credit,
                chunks: header.body.chunks().cloned(),
                error: matches!(header.body, rpcrdma_v2_wg::Body::Error(_)),
                direction: header.body.direction(),
                optional: false,
                payload_at,
            });
        }
        let (header, payload_at) = rpcrdma_v2::Header::decode(bytes).unwrap();
        Some(Self {
            version,
            xid: header.xid,
            credits: header.credits,
            chunks: header.chunks().cloned(),
            error: matches!(header.body, rpcrdma_v2::Body::Error(_)),
            direction: Some(header.direction()),
            optional: matches!(header.body, rpcrdma_v2::Body::Optional(_)),
            payload_at,
        })
    }
}
