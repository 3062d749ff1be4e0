//! Functions for messages in the pieces of memory in which they were received.

use bytes::{Buf as _, Bytes, BytesMut};
use onc_rpc::Segments;

/// The number of bytes of a message that are joined in a copy if its header exceeds the first
/// piece. No longer header is accepted.
const LONGEST_HEADER: usize = 256 << 10;

/// Decodes the header of a message with `decode`, which takes one piece and returns the header and
/// its length. Nearly all headers lie in the first piece, with something behind them; the pieces of
/// others are joined in a copy. `decode` may refuse bytes behind a header, so a header that fills
/// the first piece is decoded with them as well.
///
/// # Errors
/// The error of `decode`.
pub fn decode_header<H, E>(
    message: &Segments,
    decode: impl Fn(&Bytes) -> Result<(H, usize), E>,
) -> Result<(H, usize), E> {
    match &message[..] {
        [only] => decode(only),
        [first, ..] => match decode(first) {
            Ok((header, len)) if len < first.len() => Ok((header, len)),
            _ => decode(&joined(message)),
        },
        [] => decode(&Bytes::new()),
    }
}

/// Returns a copy of the beginning of a message, in one piece.
#[cold]
pub(crate) fn joined(message: &Segments) -> Bytes {
    let mut head = BytesMut::new();
    for piece in message {
        let room = LONGEST_HEADER - head.len();
        head.extend_from_slice(&piece[..piece.len().min(room)]);
    }
    head.freeze()
}

/// Removes the first `len` bytes of a message. At least one piece is left, which may be empty,
/// unless the message has fewer bytes; then nothing is left.
pub fn advance(message: &mut Segments, mut len: usize) {
    while let Some(first) = message.first_mut() {
        if len <= first.len() {
            first.advance(len);
            break;
        }
        len -= first.len();
        message.remove(0);
    }
    // The RPC message begins with the first piece, where its XID is looked for.
    if message.len() > 1 && message[0].is_empty() {
        message.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onc_rpc::total_len;
    use quickcheck::quickcheck;

    fn cut(whole: &Bytes, at: &[u8]) -> Segments {
        let mut rest = whole.clone();
        let mut pieces = Segments::new();
        for at in at {
            let at = usize::from(*at).min(rest.len());
            pieces.push(rest.split_to(at));
        }
        pieces.push(rest);
        pieces
    }

    quickcheck! {
        fn a_header_is_found_wherever_pieces_end(
            whole: Vec<u8>,
            at: Vec<u8>,
            header: u8,
            alone: bool
        ) -> bool {
            let whole = Bytes::from(whole);
            let header = usize::from(header);
            let decode = |bytes: &Bytes| match bytes.len() >= header {
                // Nothing may follow a header that stands alone.
                true if alone && bytes.len() > header => Err(bytes.len()),
                true => Ok((bytes.slice(..header), header)),
                false => Err(bytes.len()),
            };
            let mut pieces = cut(&whole, &at);
            match decode_header(&pieces, decode) {
                Err(len) => len == whole.len() && (header > len || alone && header < len),
                Ok((found, at)) => {
                    advance(&mut pieces, at);
                    found == whole[..at]
                        && pieces.concat() == whole[at..]
                        && total_len(&pieces) == (whole.len() - at) as u64
                        && !pieces.is_empty()
                }
            }
        }
    }
}
