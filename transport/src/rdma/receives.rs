//! What receives are made of.

use std::sync::Arc;

use bytes::BytesMut;
use onc_rpc::Segments;
use rdma::{ALIGNMENT, Buf, Pool, PoolExhausted, Scatter};

use crate::options::HEADER_ROOM;

/// The shortest first segment, bytes: the fixed words of every version's header lie in it.
const LEAST_FIRST: u32 = 64;

/// A piece of every receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveSegment {
    /// Bytes.
    pub len: u32,
    /// Its first byte is at a multiple of this.
    pub align: u32,
    /// Bulk data may be placed into it (rtrext-00, section 4.3: `XMRSFLAG_DDP`).
    pub ddp: bool,
}

/// Of which segments every receive is made, in the order in which a message fills them. Cheap to
/// clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveStructure {
    segments: Arc<[ReceiveSegment]>,
}

/// Why receives cannot be made like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadStructure {
    /// There must be a segment.
    #[error("a receive without segments")]
    Empty,
    /// The first segment is too short for a message's fixed words.
    #[error("a receive's first segment of {0} bytes: {LEAST_FIRST} at least are possible")]
    First(u32),
    /// A segment must have bytes.
    #[error("a segment of a receive without bytes")]
    EmptySegment,
    /// Alignments are powers of two, up to a page.
    #[error("alignment of {0} bytes: powers of two up to {ALIGNMENT} are possible")]
    Alignment(u32),
}

impl ReceiveStructure {
    /// One piece of `len` bytes.
    #[must_use]
    pub fn plain(len: usize) -> Self {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let (align, ddp) = (1, false);
        Self {
            segments: Arc::new([ReceiveSegment { len, align, ddp }]),
        }
    }

    /// Of these segments.
    ///
    /// # Errors
    /// [`BadStructure`].
    pub fn new(segments: impl IntoIterator<Item = ReceiveSegment>) -> Result<Self, BadStructure> {
        let segments: Arc<[ReceiveSegment]> = segments.into_iter().collect();
        let first = segments.first().ok_or(BadStructure::Empty)?;
        if first.len < LEAST_FIRST {
            return Err(BadStructure::First(first.len));
        }
        for segment in segments.iter() {
            if segment.len == 0 {
                return Err(BadStructure::EmptySegment);
            }
            if !segment.align.is_power_of_two() || segment.align as usize > ALIGNMENT {
                return Err(BadStructure::Alignment(segment.align));
            }
        }
        Ok(Self { segments })
    }

    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[ReceiveSegment] {
        &self.segments
    }

    /// Bytes of the longest message that fits.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lengths().sum()
    }

    /// Bytes that a receive takes from the pool.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.lengths().map(Pool::block_size).sum()
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().map(|segment| segment.len as usize)
    }

    /// Memory for one receive.
    pub(super) fn alloc(&self, pool: &Pool) -> Result<Scatter, PoolExhausted> {
        self.alloc_with(pool, &mut Spare::default())
    }

    /// Memory for one receive, some of which may be lying around. Buffers of a pool begin at
    /// multiples of the largest possible alignment.
    pub(super) fn alloc_with(
        &self,
        pool: &Pool,
        spare: &mut Spare,
    ) -> Result<Scatter, PoolExhausted> {
        let mut piece = |(index, len)| match spare.take(index, len) {
            Some(buf) => Ok(buf),
            None => pool.alloc(len),
        };
        let mut lengths = self.lengths().enumerate();
        let first = piece(lengths.next().unwrap_or_default())?;
        if self.segments.len() == 1 {
            return Ok(first.into());
        }
        let rest: Vec<Buf> = lengths.map(piece).collect::<Result<_, _>>()?;
        Ok(Scatter::new(first, rest))
    }

    /// Makes a used receive whole again. False, and the receive is of no use, when it was not of
    /// this structure and cannot be, or somebody has a part of it.
    pub(super) fn restore(&self, pieces: &mut [Buf]) -> bool {
        pieces.len() == self.segments.len()
            && pieces.iter_mut().zip(self.lengths()).all(|(piece, len)| {
                piece.truncate(len);
                piece.len() == len || piece.regrow(len)
            })
    }
}

/// So many bytes of a receive's first piece are copied out of it rather than handed up in it.
const COPIED: usize = 256;

/// Pieces of receives that their messages do not need: those that they did not reach, and first ones
/// whose little content was copied out. That costs less than new memory from the pool, and receives
/// do not stay away for as long as somebody has a short message.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// With the number of their segment.
    pieces: Vec<(usize, Buf)>,
    /// Room for what is copied: one allocation for many messages.
    room: BytesMut,
    /// Bytes copied.
    copied: u64,
}

impl Spare {
    /// One for this segment.
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

    /// None is of use any more.
    pub(super) fn clear(&mut self) {
        self.pieces = Vec::new();
    }

    /// Bytes copied.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// The message in a receive, in the segments' order; pieces that it does not need stay here, if
    /// they are to be kept. There always is a first piece.
    pub(super) fn message(&mut self, receive: Scatter, keep: bool) -> Segments {
        let (first, rest) = receive.into_parts();
        let mut message = Segments::new();
        if keep && first.len() <= COPIED {
            if self.room.capacity() < first.len() {
                self.room.reserve(HEADER_ROOM);
            }
            self.room.extend_from_slice(&first);
            self.copied += first.len() as u64;
            message.push(self.room.split().freeze());
            self.pieces.push((0, first));
        } else {
            message.push(first.freeze());
        }
        for (index, piece) in rest.into_vec().into_iter().enumerate() {
            if !piece.is_empty() {
                message.push(piece.freeze());
            } else if keep {
                self.pieces.push((index + 1, piece));
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((structure.size(), structure.memory()), (66_660, 73_728));
        for _ in 0..3 {
            let receive = structure.alloc(&pool).unwrap();
            assert_eq!(lengths(&receive), [1024, 65_536, 100]);
            for (piece, segment) in receive.pieces().zip(structure.segments()) {
                assert_eq!(piece.as_ptr().addr() % segment.align as usize, 0);
            }
            assert_eq!(pool.in_use(), structure.memory());
        }
        let plain = ReceiveStructure::plain(5000);
        assert_eq!((plain.size(), plain.memory()), (5000, 8192));
        assert_eq!(plain.alloc(&pool).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let new = |segments: &[(u32, u32)]| {
            let segments = segments.iter().map(|&(len, align)| ReceiveSegment {
                len,
                align,
                ddp: false,
            });
            ReceiveStructure::new(segments).unwrap_err()
        };
        assert_eq!(new(&[]), BadStructure::Empty);
        assert_eq!(new(&[(63, 1)]), BadStructure::First(63));
        assert_eq!(new(&[(64, 1), (0, 1)]), BadStructure::EmptySegment);
        for align in [0, 3, 8192, u32::MAX] {
            assert_eq!(new(&[(64, 1), (1, align)]), BadStructure::Alignment(align));
        }
    }

    /// rtrext-00, section 4.3: bulk data is where it landed, a piece for each segment; what was not
    /// reached goes into the next receive.
    #[test]
    fn a_message_is_handed_up_where_it_is_and_the_rest_used_again() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(512, 1, false), (4096, 4096, true), (4096, 4096, true)]);
        let mut spare = Spare::default();
        for (len, held) in [(257, 1), (512, 1), (513, 2), (4608, 2), (4609, 3)] {
            let mut receive = structure.alloc_with(&pool, &mut spare).unwrap();
            let message: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(receive.fill(&message));
            let places: Vec<_> = receive.pieces().map(|piece| piece.as_ptr()).collect();
            let got = spare.message(receive, true);
            let starts: Vec<_> = got.iter().map(|piece| piece.as_ptr()).collect();
            assert_eq!(starts, places[..held], "of {len} bytes");
            assert_eq!(got.concat(), message);
            assert_eq!(
                pool.in_use(),
                structure.memory(),
                "the message and the spare pieces"
            );
            let next = structure.alloc_with(&pool, &mut spare).unwrap();
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

    /// A short message does not keep its receive away; bulk data behind a short beginning stays where
    /// it is all the same.
    #[test]
    fn little_is_copied_out_and_its_receive_used_again() {
        let pool = Pool::new(1 << 20);
        let structure = structure(&[(256, 1, false), (4096, 4096, true)]);
        let mut spare = Spare::default();
        let mut copied = 0;
        for len in [0, 1, 255, 256, 257, 4352] {
            let mut receive = structure.alloc_with(&pool, &mut spare).unwrap();
            let message: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(receive.fill(&message));
            let places: Vec<_> = receive.pieces().map(|piece| piece.as_ptr()).collect();
            let got = spare.message(receive, true);
            assert_eq!(got.concat(), message);
            copied += len.min(256);
            assert_eq!(spare.copied(), copied as u64);
            if let Some(bulk) = got.get(1) {
                assert_eq!(bulk.as_ptr(), places[1]);
            }
            let next = structure.alloc_with(&pool, &mut spare).unwrap();
            assert_eq!(lengths(&next), [256, 4096]);
            assert_eq!(next.pieces().next().unwrap().as_ptr(), places[0]);
            assert_eq!(got.concat(), message, "whatever becomes of the receive");
            drop((got, next));
        }
        // Of another structure than is wanted now: of no use.
        let mut receive = structure.alloc(&pool).unwrap();
        assert!(receive.fill(&[7; 9]));
        let got = spare.message(receive, false);
        assert_eq!((got.concat(), spare.copied()), (vec![7; 9], copied as u64));
        drop(got);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_used_receive_is_made_whole_again_in_its_own_structure_alone() {
        let pool = Pool::new(1 << 20);
        let own = structure(&[(64, 1, false), (4096, 4096, true)]);
        let mut receive = own.alloc(&pool).unwrap();
        assert!(receive.fill(&[7; 70]));
        let mut pieces: Vec<Buf> = receive.into_iter().collect();
        assert!(!ReceiveStructure::plain(64).restore(&mut pieces));
        assert!(!structure(&[(64, 1, false), (8192, 4096, true)]).restore(&mut pieces));
        assert!(own.restore(&mut pieces));
        assert_eq!((pieces[0].len(), pieces[1].len()), (64, 4096));
    }
}
