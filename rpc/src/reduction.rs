//! Items of a received message held apart, or put back.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::message::{BulkItem, Message, Position};
use crate::{Bulk, DecodeError, Decoder, Segments, pad, padded};

/// A walk through a message that somebody else made, which finds its DDP-eligible opaque data, to
/// hold it apart. Nothing is copied: items are slices of the message.
///
/// ```
/// use bytes::Bytes;
/// use onc_rpc::{Message, Position, Reduction};
///
/// // A word, and opaque data of five bytes.
/// let message = Message::from_payload(Bytes::from_static(b"\0\0\0\x07\0\0\0\x05hello\0\0\0"));
/// let mut reduction = Reduction::new(&message);
/// reduction.decoder().u32()?;
/// reduction.eligible(true)?;
/// let reduced = reduction.finish()?.expect("something was held apart");
/// assert_eq!(reduced.payload_len(), 8);
/// assert_eq!(reduced.items()[0].position, Position::At(8));
/// assert_eq!(reduced.items()[0].data, b"hello"[..]);
/// # Ok::<_, onc_rpc::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Reduction<'m> {
    message: &'m Message,
    decoder: Decoder<'m>,
    found: SmallVec<[Found<'m>; 2]>,
    /// Bytes of the stream that were passed in items, round-up included.
    in_items: u64,
    /// Number of items to hold apart.
    apart: usize,
    /// Whether the finished message differs from the one received.
    changed: bool,
}

/// Opaque data that is to be moved or that was received apart.
#[derive(Debug)]
struct Found<'m> {
    /// Offset of its first byte in the whole stream.
    position: u32,
    /// Offset in the payload as it was received.
    payload_at: u64,
    len: u32,
    /// The item in which it was received.
    item: Option<&'m BulkItem>,
    /// Whether it is an item of the finished message.
    apart: bool,
}

impl<'m> Reduction<'m> {
    /// Creates a walk that is at the start of `message`.
    #[must_use]
    pub fn new(message: &'m Message) -> Self {
        Self {
            message,
            decoder: Decoder::new(message),
            found: SmallVec::new(),
            in_items: 0,
            apart: 0,
            changed: false,
        }
    }

    /// Returns the decoder of everything that is not DDP-eligible.
    #[inline]
    pub fn decoder(&mut self) -> &mut Decoder<'m> {
        &mut self.decoder
    }

    /// Returns the number of items that are to be held apart so far.
    #[must_use]
    pub fn items(&self) -> usize {
        self.apart
    }

    /// Passes DDP-eligible opaque data, and returns its length. It will be an item of the finished
    /// message if `apart` is true and it is not empty, and in the payload otherwise, however it was
    /// received.
    ///
    /// # Errors
    /// [`DecodeError`] as [`Decoder::bulk`].
    pub fn eligible(&mut self, apart: bool) -> Result<u32, DecodeError> {
        let (len, item, is_clean) = self.decoder.skip_bulk()?;
        let whole = padded(u64::from(len));
        let position = self.decoder.position() - whole;
        let payload_at = position - self.in_items;
        let wanted = match item {
            None => false,
            Some(item) => {
                self.in_items += whole;
                item.position == Position::At(position as u32)
                    && item.data.len() == len as usize
                    && len > 0
            }
        };
        let (apart, position) = match u32::try_from(position) {
            // The stream stays as it was, also where the round-up is not what it should be.
            Ok(position) => (apart && len > 0 && is_clean, position),
            // No position can be said of it.
            Err(_) => (false, u32::MAX),
        };
        if item.is_some() || apart {
            self.changed |= wanted != apart;
            self.apart += usize::from(apart);
            self.found.push(Found {
                position,
                payload_at,
                len,
                item,
                apart,
            });
        }
        Ok(len)
    }

    /// Returns the message with its items held apart, each with a position, or `None` if it is so
    /// already. What lies behind the last value that was decoded stays as it is.
    ///
    /// # Errors
    /// [`DecodeError`] if an item was received that no eligible data has claimed.
    pub fn finish(self) -> Result<Option<Message>, DecodeError> {
        self.decoder.items_used()?;
        // Unused write chunks may be left over.
        if !self.changed && self.apart == self.message.items().len() {
            return Ok(None);
        }
        let mut from = Pieces::new(self.message.payload());
        let mut payload = Segments::new();
        let mut items: SmallVec<[BulkItem; 2]> = SmallVec::new();
        for found in self.found {
            let mut data = match found.item {
                Some(item) => item.data.clone(),
                None => {
                    from.copy(found.payload_at, &mut payload);
                    let end = found.payload_at + u64::from(found.len);
                    let mut data = Bulk::new();
                    from.copy(end, &mut data);
                    from.skip(pad(u64::from(found.len)));
                    data
                }
            };
            if found.apart {
                data.truncate(found.len as usize);
                let position = Position::At(found.position);
                items.push(BulkItem { position, data });
            } else if !data.is_empty() {
                from.copy(found.payload_at, &mut payload);
                let round_up = pad(data.len() as u64) as usize;
                payload.extend(data.into_segments());
                if round_up > 0 {
                    payload.push(Bytes::from_static(&[0; 4][..round_up]));
                }
            }
        }
        from.copy(u64::MAX, &mut payload);
        let extras = self.message.extras().clone();
        Ok(Some(Message::new(payload, items).with_extras(extras)))
    }
}

/// The pieces of a payload, from front to back.
struct Pieces<'m> {
    left: std::slice::Iter<'m, Bytes>,
    current: Bytes,
    /// Offset of `current` in the payload.
    at: u64,
}

impl<'m> Pieces<'m> {
    fn new(payload: &'m Segments) -> Self {
        Self {
            left: payload.iter(),
            current: Bytes::new(),
            at: 0,
        }
    }

    /// Returns the next piece, which ends at `end` or before, or `None` if there is none.
    fn next(&mut self, end: u64) -> Option<Bytes> {
        while self.current.is_empty() {
            self.current = self.left.next()?.clone();
        }
        let len = end.saturating_sub(self.at);
        if len == 0 {
            return None;
        }
        let len = len.min(self.current.len() as u64);
        self.at += len;
        Some(self.current.split_to(len as usize))
    }

    /// Appends the pieces up to offset `end`.
    fn copy(&mut self, end: u64, out: &mut impl Extend<Bytes>) {
        out.extend(std::iter::from_fn(|| self.next(end)));
    }

    fn skip(&mut self, len: u64) {
        let end = self.at + len;
        while self.next(end).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::Encoder;

    /// Opaque values, each after a word; those at even indices are DDP-eligible.
    fn stream(values: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Encoder::new();
        for value in values {
            out.u32(7).opaque(value);
        }
        out.into_bytes().to_vec()
    }

    /// Walks such a stream and holds apart what `apart` says.
    fn reduce(message: &Message, values: usize, apart: u8) -> Result<Option<Message>, DecodeError> {
        let mut reduction = Reduction::new(message);
        for index in 0..values {
            reduction.decoder().u32()?;
            if index % 2 == 0 {
                reduction.eligible(apart >> (index / 2 % 8) & 1 == 1)?;
            } else {
                reduction.decoder().skip_opaque()?;
            }
        }
        reduction.finish()
    }

    /// Divides the payload into pieces of these lengths, and puts empty pieces between them.
    fn divided(stream: &[u8], lengths: &[u8]) -> Segments {
        let mut rest = stream;
        let mut out = Segments::new();
        for &len in lengths {
            let (piece, behind) = rest.split_at(usize::from(len).min(rest.len()));
            out.push(Bytes::copy_from_slice(piece));
            rest = behind;
        }
        out.push(Bytes::copy_from_slice(rest));
        out
    }

    quickcheck! {
        fn what_is_held_apart_is_the_same_stream(
            values: Vec<Vec<u8>>, lengths: Vec<u8>, apart: u8, again: u8
        ) -> bool {
            let whole = stream(&values);
            let message = Message::without_items(divided(&whole, &lengths));
            let reduced = reduce(&message, values.len(), apart).unwrap();
            let reduced = reduced.unwrap_or(message);
            let count = values.iter().enumerate().filter(|(index, value)| {
                index % 2 == 0 && !value.is_empty() && apart >> (index / 2 % 8) & 1 == 1
            });
            assert_eq!(reduced.items().len(), count.count());
            assert_eq!(reduced.gather(|_| true).concat(), whole);
            // The same for one that was received with items, and for items without positions.
            let other = reduce(&reduced, values.len(), again).unwrap().unwrap_or(reduced.clone());
            assert_eq!(other.gather(|_| true).concat(), whole);
            let in_order = reduced.items().iter().map(|item| BulkItem {
                position: Position::InOrder,
                data: item.data.clone(),
            });
            let placed = Message::new(reduced.payload().clone(), in_order);
            // A chunk is for the next item that is not empty, so no item may be left out before it.
            let eligible = values.iter().step_by(2).filter(|value| !value.is_empty());
            if reduced.items().len() == eligible.count() {
                let other = reduce(&placed, values.len(), again).unwrap().unwrap_or(placed);
                assert_eq!(other.gather(|_| true).concat(), whole);
            }
            true
        }
    }

    #[test]
    fn a_message_that_is_right_already_is_not_made_again() {
        let whole = stream(&[vec![1; 9], vec![2; 3]]);
        let message = Message::from_payload(whole.into());
        let reduced = reduce(&message, 2, 1).unwrap().unwrap();
        assert_eq!(reduced.items().len(), 1);
        assert_eq!(reduce(&reduced, 2, 1).unwrap(), None);
        assert_eq!(reduce(&message, 2, 0).unwrap(), None);
        let back = reduce(&reduced, 2, 0).unwrap().unwrap();
        assert!(back.items().is_empty());
        assert_eq!(back.payload().concat(), message.payload().concat());
    }

    /// An item has no round-up of its own, so one that is not zeroes would be lost.
    #[test]
    fn an_item_with_a_round_up_that_is_not_zeroes_stays_in_the_payload() {
        let mut whole = stream(&[vec![1; 9]]);
        whole[4 + 4 + 9] = 3;
        let message = Message::from_payload(whole.into());
        assert_eq!(reduce(&message, 1, 1).unwrap(), None);
    }

    #[test]
    fn a_round_up_of_an_item_that_is_not_zeroes_is_found_in_any_of_its_pieces() {
        for (round_up, stays) in [([0xff, 0, 0], true), ([0; 3], false)] {
            let mut whole = vec![0, 0, 0, 7, 0, 0, 0, 1];
            let pieces = [5].into_iter().chain(round_up);
            let data = pieces.map(|byte| Bytes::from(vec![byte])).collect();
            let position = Position::At(8);
            let message = Message::new(divided(&whole, &[]), [BulkItem { position, data }]);
            let reduced = reduce(&message, 1, 1).unwrap().unwrap();
            assert_eq!(reduced.items().is_empty(), stays, "{round_up:?}");
            whole.push(5);
            whole.extend(round_up);
            assert_eq!(reduced.gather(|_| true).concat(), whole);
        }
    }

    #[test]
    fn an_unused_chunk_is_dropped_and_a_stray_item_is_an_error() {
        let whole = stream(&[vec![], vec![2; 3]]);
        let with = |position, data: &'static [u8]| {
            let data = data.into();
            Message::new(divided(&whole, &[]), [BulkItem { position, data }])
        };
        let unused = with(Position::InOrder, b"");
        let reduced = reduce(&unused, 2, 1).unwrap().unwrap();
        assert_eq!(reduced, Message::from_payload(whole.clone().into()));
        let stray = with(Position::At(12), b"stray");
        assert!(matches!(
            reduce(&stray, 2, 1),
            Err(DecodeError::StrayBulk(12))
        ));
        let left = with(Position::InOrder, b"left");
        assert!(matches!(
            reduce(&left, 2, 1),
            Err(DecodeError::UnclaimedBulk(4))
        ));
    }
}
