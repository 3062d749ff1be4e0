//! The buffers of receives, and what is copied out of them.
//!
//! A short first piece of a message is copied out of its receive, as network drivers do: up to 256
//! bytes, or 1,024 of a shared receive. The copy costs less than taking a buffer from the pool and giving it
//! back, and the receive can be posted again at once. The copy is counted (`copied_bytes`). So it is with a whole reply
//! in a shared receive that is a little longer than the first piece, whose end would occupy a long second one.

use bytes::BytesMut;
use onc_rpc::Segments;
use rdma::{Buf, PoolExhausted, Scatter};
use rpcrdma_connection::ReceiveStructure;

use super::shared_use::InPlace;
use crate::options::HEADER_ROOM;

/// Allocates one receive. Takes each piece from `spare` if it has one for that segment, and from `allocate`
/// otherwise. Alignment needs no care: buffers of a pool begin at multiples of the largest possible one.
///
/// # Errors
/// [`PoolExhausted`]: the error of `allocate`.
pub(super) fn alloc(
    structure: &ReceiveStructure,
    spare: &mut SparePieces,
    mut allocate: impl FnMut(usize) -> Result<Buf, PoolExhausted>,
) -> Result<Scatter, PoolExhausted> {
    let mut piece = |(index, len)| match spare.take(index, len) {
        Some(buf) => Ok(buf),
        None => allocate(len),
    };
    let mut lengths = structure.lengths().enumerate();
    let mut receive = Scatter::from(piece(lengths.next().unwrap_or_default())?);
    for length in lengths {
        receive.push(piece(length)?);
    }
    Ok(receive)
}

/// Restores the full lengths of the pieces of a consumed receive. Returns false if the receive has
/// another structure, or if somebody still holds a part of it: then it cannot be posted again.
pub(super) fn restore(structure: &ReceiveStructure, pieces: &mut [Buf]) -> bool {
    pieces.len() == structure.segments().len()
        && pieces
            .iter_mut()
            .zip(structure.lengths())
            .all(|(piece, len)| {
                piece.truncate(len);
                piece.len() == len || piece.regrow(len)
            })
}

/// The maximum length, in bytes, of a first piece that is copied out of its receive, unless
/// [`SparePieces::copying`] says otherwise.
const COPIED: usize = 256;

/// A message with fewer bytes than these behind its first piece is only a little longer than that.
const LITTLE: usize = 512;

/// Pieces of consumed receives that can be posted again: pieces that the message did not reach, and first
/// pieces whose short content was copied out. Reusing them costs less than allocating from the pool. Because
/// short messages are copied, a program that keeps one does not occupy a receive.
#[derive(Debug)]
pub(super) struct SparePieces {
    /// The maximum length, in bytes, of a first piece that is copied.
    most_copied: usize,
    /// Each piece with the index of its segment.
    pieces: Vec<(usize, Buf)>,
    /// The memory that short messages are copied into: one allocation for many of them.
    room: BytesMut,
    /// The number of bytes copied.
    copied: u64,
}

impl Default for SparePieces {
    fn default() -> Self {
        Self::copying(COPIED)
    }
}

impl SparePieces {
    /// Creates an empty list. The first piece of a message is copied if it has at most `most_copied` bytes.
    pub(super) fn copying(most_copied: usize) -> Self {
        Self {
            most_copied,
            pieces: Vec::new(),
            room: BytesMut::new(),
            copied: 0,
        }
    }

    /// Removes and returns a piece for the segment with this index, `len` bytes long, if there is
    /// one.
    fn take(&mut self, index: usize, len: usize) -> Option<Buf> {
        if self.pieces.is_empty() {
            return None;
        }
        let at = self
            .pieces
            .iter()
            .position(|(number, _)| *number == index)?;
        let (_, mut buf) = self.pieces.swap_remove(at);
        (buf.len() == len || buf.regrow(len)).then_some(buf)
    }

    /// Returns all pieces to the pool. Called when none is needed, or when the structure of receives
    /// changes.
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Returns the number of bytes copied.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns the number of bytes of the receive's memory that the message will occupy until it is dropped:
    /// the blocks of all pieces that hold data, except a first piece short enough to be copied.
    pub(super) fn kept(&self, receive: &Scatter) -> usize {
        let mut pieces = receive.pieces();
        let first = pieces.next().filter(|first| first.len() > self.most_copied);
        let rest = pieces.filter(|piece| !piece.is_empty());
        first.into_iter().chain(rest).map(Buf::block_size).sum()
    }

    /// Returns whether the message in a consumed receive is a little longer than a first piece that would be copied.
    #[inline]
    pub(super) fn is_little_longer(&self, receive: &Scatter) -> bool {
        let Some(head) = receive.head() else {
            return false;
        };
        head <= self.most_copied && (1..LITTLE).contains(&(receive.len() - head))
    }

    /// Copies the whole message out of a consumed receive, and keeps all pieces as spare ones.
    pub(super) fn whole_message(&mut self, receive: Scatter) -> Segments {
        let len = receive.len();
        if self.room.capacity() < len {
            self.room.reserve(HEADER_ROOM);
        }
        for (index, piece) in receive.into_iter().enumerate() {
            self.room.extend_from_slice(&piece);
            self.pieces.push((index, piece));
        }
        self.copied += len as u64;
        Segments::from_iter([self.room.split().freeze()])
    }

    /// Returns the message in a consumed receive, in the order of its segments. With `keep`, a short first
    /// piece is copied, and pieces that the message does not need are kept as spare ones. The message has at
    /// least one piece.
    pub(super) fn message(&mut self, receive: Scatter, keep: bool) -> Segments {
        self.take_message(receive, keep, None)
    }

    /// Returns the message in a consumed receive as [`SparePieces::message`] does, and keeps spare
    /// pieces. What the message keeps of the receive is counted by `in_place`, if there is a counter.
    pub(super) fn message_in_place(
        &mut self,
        receive: Scatter,
        in_place: Option<&InPlace>,
    ) -> Segments {
        self.take_message(receive, true, in_place)
    }

    fn take_message(
        &mut self,
        receive: Scatter,
        keep: bool,
        in_place: Option<&InPlace>,
    ) -> Segments {
        let freeze = |piece: Buf| match in_place {
            Some(in_place) => in_place.freeze(piece),
            None => piece.freeze(),
        };
        let (first, rest) = receive.into_parts();
        let mut message = Segments::new();
        if keep && first.len() <= self.most_copied {
            if self.room.capacity() < first.len() {
                self.room.reserve(HEADER_ROOM);
            }
            self.room.extend_from_slice(&first);
            self.copied += first.len() as u64;
            message.push(self.room.split().freeze());
            self.pieces.push((0, first));
        } else {
            message.push(freeze(first));
        }
        for (index, piece) in rest.into_iter().enumerate() {
            if !piece.is_empty() {
                message.push(freeze(piece));
            } else if keep {
                self.pieces.push((index + 1, piece));
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use rdma::Pool;
    use rpcrdma_connection::{ReceiveSegment, receive_memory};

    use super::alloc as alloc_by;
    use super::*;

    fn alloc(
        structure: &ReceiveStructure,
        pool: &Pool,
        spare: &mut SparePieces,
    ) -> Result<Scatter, PoolExhausted> {
        alloc_by(structure, spare, |len| pool.alloc(len))
    }

    fn structure(segments: &[(u32, u32, bool)]) -> ReceiveStructure {
        let segments = segments.iter();
        let segments = segments.map(|&(len, align, ddp)| ReceiveSegment { len, align, ddp });
        ReceiveStructure::new(segments).unwrap()
    }

    fn lengths(receive: &Scatter) -> Vec<usize> {
        receive.pieces().map(|piece| piece.len()).collect()
    }

    #[test]
    fn receives_are_made_as_the_structure_says() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(1024, 4, false), (65_536, 4096, true), (100, 64, false)]);
        assert_eq!(
            (structure.size(), receive_memory(&structure)),
            (66_660, 73_728)
        );
        for _ in 0..3 {
            let receive = alloc(&structure, &pool, &mut SparePieces::default()).unwrap();
            assert_eq!(lengths(&receive), [1024, 65_536, 100]);
            for (piece, segment) in receive.pieces().zip(structure.segments()) {
                assert_eq!(piece.as_ptr().addr() % segment.align as usize, 0);
            }
            assert_eq!(pool.in_use(), receive_memory(&structure));
        }
        let plain = ReceiveStructure::plain(5000);
        assert_eq!((plain.size(), receive_memory(&plain)), (5000, 8192));
        assert_eq!(
            alloc(&plain, &pool, &mut SparePieces::default())
                .unwrap()
                .count(),
            1
        );
    }

    /// rtrext-00, section 4.3: a message is returned without a copy, in one piece for each segment
    /// that it reached. The segments that it did not reach are used for the next receive.
    #[test]
    fn a_message_is_handed_up_where_it_is_and_the_rest_used_again() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(512, 1, false), (4096, 4096, true), (4096, 4096, true)]);
        let mut spare = SparePieces::default();
        for (len, held) in [(257, 1), (512, 1), (513, 2), (4608, 2), (4609, 3)] {
            let mut receive = alloc(&structure, &pool, &mut spare).unwrap();
            let message: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(receive.fill(&message));
            let places: Vec<_> = receive.pieces().map(|piece| piece.as_ptr()).collect();
            let kept: usize = receive.pieces().take(held).map(Buf::block_size).sum();
            assert_eq!(spare.kept(&receive), kept, "of {len} bytes");
            let got = spare.message(receive, true);
            let starts: Vec<_> = got.iter().map(|piece| piece.as_ptr()).collect();
            assert_eq!(starts, places[..held], "of {len} bytes");
            assert_eq!(got.concat(), message);
            assert_eq!(
                pool.in_use(),
                receive_memory(&structure),
                "the message and the spare pieces"
            );
            let next = alloc(&structure, &pool, &mut spare).unwrap();
            assert_eq!(lengths(&next), [512, 4096, 4096]);
            let again: Vec<_> = next.pieces().map(|piece| piece.as_ptr()).collect();
            assert_eq!(
                again[held..],
                places[held..],
                "another piece than the unused one"
            );
            drop((got, next));
            assert_eq!(pool.in_use(), 0);
        }
    }

    /// A short message is copied, and its receive is posted again. Bulk data behind a short first
    /// piece is not copied.
    #[test]
    fn little_is_copied_out_and_its_receive_used_again() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(256, 1, false), (4096, 4096, true)]);
        let mut spare = SparePieces::default();
        let mut copied = 0;
        for len in [0, 1, 255, 256, 257, 4352] {
            let mut receive = alloc(&structure, &pool, &mut spare).unwrap();
            let message: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(receive.fill(&message));
            let places: Vec<_> = receive.pieces().map(|piece| piece.as_ptr()).collect();
            let kept = match len {
                0..=256 => 0,
                _ => 4096,
            };
            assert_eq!(spare.kept(&receive), kept, "of {len} bytes");
            let got = spare.message(receive, true);
            assert_eq!(got.concat(), message);
            copied += len.min(256);
            assert_eq!(spare.copied(), copied as u64);
            if let Some(bulk) = got.get(1) {
                assert_eq!(bulk.as_ptr(), places[1]);
            }
            let next = alloc(&structure, &pool, &mut spare).unwrap();
            assert_eq!(lengths(&next), [256, 4096]);
            assert_eq!(next.pieces().next().unwrap().as_ptr(), places[0]);
            assert_eq!(got.concat(), message, "whatever becomes of the receive");
            drop((got, next));
        }
        // Of another structure than is wanted now: of no use.
        let mut receive = alloc(&structure, &pool, &mut SparePieces::default()).unwrap();
        assert!(receive.fill(&[7; 9]));
        let got = spare.message(receive, false);
        assert_eq!((got.concat(), spare.copied()), (vec![7; 9], copied as u64));
        drop(got);
        assert_eq!(pool.in_use(), 0);
    }

    /// A reply that is a little longer than the first piece occupies no second one, which is much longer.
    #[test]
    fn a_message_a_little_longer_than_the_first_piece_is_copied_as_a_whole() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(1024, 1, false), (65_536, 4096, true)]);
        let mut spare = SparePieces::copying(1024);
        for (len, little) in [(1024, false), (1025, true), (1535, true), (1536, false)] {
            let mut receive = alloc(&structure, &pool, &mut spare).unwrap();
            let message: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(receive.fill(&message));
            assert_eq!(spare.is_little_longer(&receive), little, "of {len} bytes");
            if little {
                let before = spare.copied();
                let places: Vec<_> = receive.pieces().map(|piece| piece.as_ptr()).collect();
                let got = spare.whole_message(receive);
                assert_eq!((got.len(), got.concat()), (1, message));
                assert_eq!(spare.copied() - before, len as u64);
                let next = alloc(&structure, &pool, &mut spare).unwrap();
                assert_eq!(lengths(&next), [1024, 65_536]);
                let again: Vec<_> = next.pieces().map(|piece| piece.as_ptr()).collect();
                assert_eq!(again, places);
            }
        }
        // A shorter first piece would not be copied either.
        let mut receive = alloc(&structure, &pool, &mut SparePieces::default()).unwrap();
        assert!(receive.fill(&[7; 1100]));
        assert!(!SparePieces::default().is_little_longer(&receive));
        let mut plain = Scatter::from(pool.alloc(4096).unwrap());
        assert!(plain.fill(&[7; 1100]));
        assert!(!spare.is_little_longer(&plain));
    }

    #[test]
    fn a_used_receive_is_made_whole_again_in_its_own_structure_alone() {
        let pool = Pool::new(1 << 20);
        let own = structure(&[(64, 1, false), (4096, 4096, true)]);
        let mut receive = alloc(&own, &pool, &mut SparePieces::default()).unwrap();
        assert!(receive.fill(&[7; 70]));
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        assert!(!restore(&ReceiveStructure::plain(64), &mut pieces));
        assert!(!restore(
            &structure(&[(64, 1, false), (8192, 4096, true)]),
            &mut pieces
        ));
        assert!(restore(&own, &mut pieces));
        assert_eq!((pieces[0].len(), pieces[1].len()), (64, 4096));
    }
}
