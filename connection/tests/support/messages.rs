//! RPC messages with known content. The tests of `transport` have them too.

use bytes::Bytes;
use onc_rpc::{Decoder, Encoder, Message};
use rpcrdma_connection::ReplyRoom;

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
