//! The data of one file that is not on the server's stable storage: a map from offsets to pieces,
//! without I/O.
//!
//! A piece is *dirty* until a WRITE for it is sent, *sending* until the reply, and *uncommitted* until
//! a COMMIT whose verifier equals that of the WRITE (RFC 1813, section 3.3.21). Until then its bytes
//! are kept: if the server restarts, they are written again. Pieces never overlap: newer data replaces
//! what it covers, whatever its state.
//!
//! Two WRITEs of overlapping ranges are never in flight at once, because a server may execute them in
//! any order.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use nfs_binding::proto::Verifier;
use rdma::ALIGNMENT;

/// The state of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Dirty,
    /// The number of the WRITE.
    Sending(u64),
    /// The server's verifier, and the serial number of the WRITE's reply.
    Uncommitted(Verifier, u64),
}

#[derive(Clone, Debug)]
struct Piece<U> {
    data: Bytes,
    /// The user who wrote the data, on whose behalf it is sent.
    user: U,
    /// The serial number of the write.
    serial: u64,
    state: State,
    /// The memory that it takes, bytes. What remains of a longer piece keeps all of that piece's memory.
    memory: usize,
}

impl<U: Clone> Piece<U> {
    /// Takes what is behind `at` out as a piece of its own, with memory for as much. This piece keeps the rest of the
    /// memory. If either is empty, the other one has all of it.
    fn split_off(&mut self, at: usize) -> Self {
        let data = self.data.split_off(at);
        let (front, behind) = (memory_of(&self.data), memory_of(&data));
        let memory = match (self.data.is_empty(), data.is_empty()) {
            (_, true) => 0,
            (true, false) => std::mem::take(&mut self.memory),
            (false, false) => {
                self.memory = self.memory.saturating_sub(behind).max(front);
                behind
            }
        };
        Self {
            data,
            memory,
            ..self.clone()
        }
    }
}

/// Data for one WRITE.
#[derive(Debug)]
pub(crate) struct Batch<U> {
    /// The number by which the outcome is reported.
    pub(crate) number: u64,
    /// The offset of the first byte.
    pub(crate) offset: u64,
    /// The bytes.
    pub(crate) data: Vec<Bytes>,
    /// On whose behalf it is sent.
    pub(crate) user: U,
}

impl<U> Batch<U> {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len() as u64
    }
}

/// Returns the memory that written data takes, bytes. However short it is, it has a block of the pool.
fn memory_of(data: &Bytes) -> usize {
    data.len().max(ALIGNMENT)
}

/// The data of a file that is not on stable storage.
#[derive(Debug)]
pub(crate) struct Dirty<U> {
    /// By offset.
    pieces: BTreeMap<u64, Piece<U>>,
    /// The WRITEs in flight.
    sending: Vec<(u64, Range<u64>)>,
    /// Numbers of writes, WRITEs and replies.
    serial: u64,
    dirty: usize,
    total: usize,
}

impl<U> Default for Dirty<U> {
    fn default() -> Self {
        Self {
            pieces: BTreeMap::new(),
            sending: Vec::new(),
            serial: 0,
            dirty: 0,
            total: 0,
        }
    }
}

impl<U: Clone> Dirty<U> {
    /// Returns whether all data is on stable storage.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.sending.is_empty()
    }

    /// Returns the number of bytes that no WRITE has been sent for.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    /// Returns how much memory the data takes that is kept, in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of WRITEs in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.sending.len()
    }

    /// Returns the serial number of the last event, for [`Dirty::is_written`] and
    /// [`Dirty::is_committed`].
    pub(crate) fn now(&self) -> u64 {
        self.serial
    }

    /// Returns the end of the last piece that the server may not have yet.
    pub(crate) fn end(&self) -> u64 {
        let unsent = |piece: &Piece<U>| !matches!(piece.state, State::Uncommitted(..));
        let last = self.pieces.iter().rev().find(|(_, piece)| unsent(piece));
        last.map_or(0, |(start, piece)| start + piece.data.len() as u64)
    }

    /// Returns the end of the last piece that is kept, whatever its state: zero if there is none.
    pub(crate) fn kept_end(&self) -> u64 {
        let last = self.pieces.last_key_value();
        last.map_or(0, |(start, piece)| start + piece.data.len() as u64)
    }

    fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn insert(&mut self, start: u64, piece: Piece<U>) {
        self.total += piece.memory;
        if piece.state == State::Dirty {
            self.dirty += piece.data.len();
        }
        self.pieces.insert(start, piece);
    }

    fn remove(&mut self, start: u64) -> Option<Piece<U>> {
        let piece = self.pieces.remove(&start)?;
        self.total -= piece.memory;
        if piece.state == State::Dirty {
            self.dirty -= piece.data.len();
        }
        Some(piece)
    }

    /// Removes a range from all pieces.
    fn clear(&mut self, range: &Range<u64>) {
        let first = self.pieces.range(..=range.start).next_back();
        let first = first.map_or(range.start, |(start, _)| *start);
        let touched: Vec<u64> = self
            .pieces
            .range(first..range.end)
            .filter(|(start, piece)| *start + piece.data.len() as u64 > range.start)
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let Some(mut piece) = self.remove(start) else {
                continue;
            };
            let end = start + piece.data.len() as u64;
            if start >= range.start {
                if end > range.end {
                    piece.data = piece.data.split_off((range.end - start) as usize);
                    self.insert(range.end, piece);
                }
                continue;
            }
            if end > range.end {
                let behind = piece.split_off((range.end - start) as usize);
                self.insert(range.end, behind);
            }
            piece.data.truncate((range.start - start) as usize);
            self.insert(start, piece);
        }
    }

    /// Records a write.
    pub(crate) fn write(&mut self, offset: u64, data: Bytes, user: U) {
        if data.is_empty() {
            return;
        }
        self.clear(&(offset..offset + data.len() as u64));
        let serial = self.next();
        let (state, memory) = (State::Dirty, memory_of(&data));
        self.insert(
            offset,
            Piece {
                data,
                user,
                serial,
                state,
                memory,
            },
        );
    }

    /// Returns data for the next WRITE of at most `most` bytes: dirty pieces of one user that adjoin,
    /// within `within`, none of which overlaps with a WRITE in flight.
    pub(crate) fn next_batch(
        &mut self,
        most: usize,
        within: &Range<u64>,
        same: impl Fn(&U, &U) -> bool,
    ) -> Option<Batch<U>> {
        let from = self.pieces.range(..=within.start).next_back();
        let from = from.map_or(within.start, |(start, _)| *start);
        let free = |range: Range<u64>| {
            let overlaps =
                |(_, other): &(u64, Range<u64>)| other.start < range.end && range.start < other.end;
            !self.sending.iter().any(overlaps)
        };
        let range_of = |start: u64, piece: &Piece<U>| start..start + piece.data.len() as u64;
        let (offset, first) = self
            .pieces
            .range(from..within.end)
            .map(|(start, piece)| (*start, piece))
            .find(|(start, piece)| {
                piece.state == State::Dirty
                    && range_of(*start, piece).end > within.start
                    && free(range_of(*start, piece))
            })?;
        let user = first.user.clone();
        let mut taken = Vec::new();
        let mut end = offset;
        let mut len = 0;
        for (start, piece) in self.pieces.range(offset..within.end) {
            let joins = *start == end
                && piece.state == State::Dirty
                && same(&piece.user, &user)
                && free(range_of(*start, piece));
            if !joins || len >= most {
                break;
            }
            taken.push(*start);
            len += piece.data.len();
            end = range_of(*start, piece).end;
        }
        let number = self.next();
        let mut data = Vec::with_capacity(taken.len());
        let mut room = most;
        for start in taken {
            let Some(mut piece) = self.remove(start) else {
                continue;
            };
            if piece.data.len() > room {
                let rest = piece.split_off(room);
                self.insert(start + room as u64, rest);
            }
            room -= piece.data.len();
            data.push(piece.data.clone());
            if !piece.data.is_empty() {
                piece.state = State::Sending(number);
                self.insert(start, piece);
            }
        }
        let batch = Batch {
            number,
            offset,
            data,
            user,
        };
        self.sending.push((number, batch.range()));
        Some(batch)
    }

    /// Records that the first `count` bytes of a WRITE were written: on stable storage, or under the
    /// given verifier. The rest is dirty again.
    pub(crate) fn sent(&mut self, number: u64, count: u64, uncommitted: Option<Verifier>) {
        let Some(range) = self.end_write(number) else {
            return;
        };
        let serial = self.next();
        let written = range.start..range.start + count;
        for start in self.of_write(number, &range) {
            let Some(mut piece) = self.remove(start) else {
                continue;
            };
            let inside = written
                .end
                .saturating_sub(start)
                .min(piece.data.len() as u64);
            let mut rest = piece.split_off(inside as usize);
            if !rest.data.is_empty() {
                rest.state = State::Dirty;
                self.insert(start + inside, rest);
            }
            if let Some(verifier) = uncommitted
                && !piece.data.is_empty()
            {
                piece.state = State::Uncommitted(verifier, serial);
                self.insert(start, piece);
            }
        }
    }

    /// Forgets the data of a WRITE that failed.
    pub(crate) fn failed(&mut self, number: u64) {
        if let Some(range) = self.end_write(number) {
            for start in self.of_write(number, &range) {
                self.remove(start);
            }
        }
    }

    fn end_write(&mut self, number: u64) -> Option<Range<u64>> {
        let at = self
            .sending
            .iter()
            .position(|(other, _)| *other == number)?;
        Some(self.sending.swap_remove(at).1)
    }

    /// Returns the offsets of the pieces of a WRITE that no newer data has replaced.
    fn of_write(&self, number: u64, range: &Range<u64>) -> Vec<u64> {
        self.pieces
            .range(range.clone())
            .filter(|(_, piece)| piece.state == State::Sending(number))
            .map(|(start, _)| *start)
            .collect()
    }

    /// Returns whether the server has the data of all writes up to `serial` in `range`, or newer data
    /// or a failure has replaced it.
    pub(crate) fn is_written(&self, serial: u64, range: &Range<u64>) -> bool {
        let from = self.pieces.range(..=range.start).next_back();
        let from = from.map_or(range.start, |(start, _)| *start);
        !self.pieces.range(from..range.end).any(|(start, piece)| {
            piece.serial <= serial
                && !matches!(piece.state, State::Uncommitted(..))
                && start + piece.data.len() as u64 > range.start
        })
    }

    /// Returns whether all that was written up to `serial` is on stable storage.
    pub(crate) fn is_committed(&self, serial: u64) -> bool {
        !self.pieces.values().any(|piece| piece.serial <= serial)
    }

    /// Returns whether a COMMIT would be of use, and on whose behalf.
    pub(crate) fn uncommitted(&self) -> Option<U> {
        let mut pieces = self.pieces.values();
        let piece = pieces.find(|piece| matches!(piece.state, State::Uncommitted(..)))?;
        Some(piece.user.clone())
    }

    /// Returns a user who has written data that is kept.
    pub(crate) fn any_user(&self) -> Option<U> {
        self.pieces.values().next().map(|piece| piece.user.clone())
    }

    /// Forgets the data that a failed COMMIT, sent when [`Dirty::now`] was `sent`, was for.
    pub(crate) fn give_up(&mut self, sent: u64) {
        let concerned: Vec<u64> = self
            .pieces
            .iter()
            .filter(
                |(_, piece)| matches!(piece.state, State::Uncommitted(_, reply) if reply <= sent),
            )
            .map(|(start, _)| *start)
            .collect();
        for start in concerned {
            self.remove(start);
        }
    }

    /// Returns the number of bytes that wait for a COMMIT.
    #[cfg(test)]
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        let waiting = |piece: &&Piece<U>| matches!(piece.state, State::Uncommitted(..));
        let pieces = self.pieces.values().filter(waiting);
        pieces.map(|piece| piece.data.len()).sum()
    }

    /// Records the reply to a COMMIT that was sent when [`Dirty::now`] was `sent`. Data of other
    /// verifiers may be lost, and is dirty again. Returns the number of such bytes.
    pub(crate) fn committed(&mut self, sent: u64, verifier: &Verifier) -> usize {
        let concerned: Vec<(u64, bool)> = self
            .pieces
            .iter()
            .filter_map(|(start, piece)| match piece.state {
                State::Uncommitted(under, reply) if reply <= sent => {
                    Some((*start, under == *verifier))
                }
                _ => None,
            })
            .collect();
        let mut again = 0;
        for (start, safe) in concerned {
            if let Some(mut piece) = self.remove(start)
                && !safe
            {
                again += piece.data.len();
                piece.state = State::Dirty;
                self.insert(start, piece);
            }
        }
        again
    }

    /// Returns whether a range has data that is kept.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.kept(range).next().is_some()
    }

    /// Returns the kept data of a range, each piece with its offset.
    pub(crate) fn kept(
        &self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (u64, Bytes)> + use<'_, U> {
        let from = self.pieces.range(..=range.start).next_back();
        let from = from.map_or(range.start, |(start, _)| *start);
        let range = range.clone();
        self.pieces
            .range(from..range.end.max(from))
            .filter_map(move |(&start, piece)| {
                let end = start + piece.data.len() as u64;
                let (from, to) = (start.max(range.start), end.min(range.end));
                (from < to).then(|| {
                    let slice = (from - start) as usize..(to - start) as usize;
                    (from, piece.data.slice(slice))
                })
            })
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
