//! Memory that a script offers. The device chooses other handles and offsets than the script, so those in messages are
//! replaced in both directions.

use bytes::Bytes;
use rdma::{Region, RemoteSegment, Stag};
use rpcrdma_conform::wire::v1::Segment;

/// The octets of a segment in a message: handle, length, offset (RFC 8166, section 3.4.3, and the drafts of version 2).
const SEGMENT: usize = 16;
/// The octets of a handle.
const WORD: usize = 4;
/// The place of a handle that a reply may invalidate, in the working group's version 2. No version has a segment there.
const INVALIDATED: usize = 16;

/// The use of a registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other end may read it.
    Source,
    /// The other end may write it.
    Room,
    /// The script names its handle and offers no memory: nothing but the handle can be used.
    Guard,
}

/// A registered memory.
#[derive(Debug)]
pub(super) struct Memory {
    /// The segment in the script.
    script: Segment,
    /// The segment of the device.
    pub(super) real: RemoteSegment,
    pub(super) kind: Kind,
    /// The memory after it was taken back, of a room.
    pub(super) content: Option<Vec<u8>>,
    /// Whether it was taken back.
    pub(super) is_taken_back: bool,
}

/// The memory that one connection offers.
#[derive(Debug, Default)]
pub(super) struct Offered(Vec<Memory>);

/// Returns the octet that a room has at this place before anything is written there.
pub(super) fn filler(at: usize) -> u8 {
    // The highest octet of the product. Neighbours always differ, and no longer run looks like text, zeros or a pattern
    // of the cases.
    let mixed = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 ^ 0x5a
}

/// Returns the beginning of a room up to the last octet that differs from [`filler`], or `expected` octets if that is
/// more: the last octets written can have the values of the filler. Returns nothing if no octet differs.
pub(super) fn written(content: &[u8], expected: usize) -> Vec<u8> {
    let changed = content
        .iter()
        .enumerate()
        .rposition(|(at, octet)| *octet != filler(at));
    let length = changed.map_or(0, |at| at + 1);
    // If nothing differs, nothing was written: results of cases never equal the filler.
    let length = match length {
        0 => 0,
        length => length.max(expected).min(content.len()),
    };
    content[..length].to_vec()
}

fn word(message: &[u8], at: usize) -> Option<u32> {
    let octets = message.get(at..at.checked_add(WORD)?)?;
    Some(u32::from_be_bytes(octets.try_into().ok()?))
}

fn long(message: &[u8], at: usize) -> Option<u64> {
    let octets = message.get(at..at.checked_add(8)?)?;
    Some(u64::from_be_bytes(octets.try_into().ok()?))
}

/// Writes octets at a place that is within the message.
fn put(message: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = message.get_mut(at..at + octets.len()) {
        place.copy_from_slice(octets);
    }
}

impl Offered {
    /// Returns whether there is memory with this handle.
    pub(super) fn has_handle(&self, handle: u32) -> bool {
        self.0.iter().any(|it| it.script.handle == handle)
    }

    /// Returns whether memory with this handle and offset, and at least this length, is offered.
    pub(super) fn has(&self, segment: &Segment) -> bool {
        let is_same = |it: &Memory| {
            it.kind != Kind::Guard
                && !it.is_taken_back
                && it.script.handle == segment.handle
                && it.script.offset == segment.offset
                && it.script.length >= segment.length
        };
        self.0.iter().any(is_same)
    }

    pub(super) fn add(&mut self, script: Segment, real: RemoteSegment, kind: Kind) {
        self.0.push(Memory {
            script,
            real,
            kind,
            content: None,
            is_taken_back: false,
        });
    }

    /// Returns the memory that the script offers by a handle.
    pub(super) fn of_script(&self, handle: u32) -> Option<&Memory> {
        let is_it = |it: &&Memory| it.script.handle == handle && it.kind != Kind::Guard;
        self.0.iter().rfind(is_it)
    }

    /// Marks memory as taken back, after either end has invalidated it, and keeps the content of a room. Returns its
    /// handle in the script.
    pub(super) fn taken_back(&mut self, stag: Stag, region: &Region) -> Option<u32> {
        let memory = self
            .0
            .iter_mut()
            .find(|it| it.real.stag == stag && !it.is_taken_back)?;
        memory.is_taken_back = true;
        if let Region::RemoteWrite(buf) = region {
            memory.content = Some(buf.to_vec());
        }
        Some(memory.script.handle)
    }

    /// Returns a message of the script with the device's handles and offsets. Every aligned word that equals an offered
    /// handle is replaced, and the offset behind it if it lies in that memory.
    pub(super) fn outgoing(&self, message: &[u8]) -> Bytes {
        let mut out = message.to_vec();
        for at in (0..message.len()).step_by(WORD) {
            let Some(handle) = word(message, at) else {
                break;
            };
            let of_handle = |it: &&Memory| it.script.handle == handle;
            let Some(memory) = self.0.iter().rfind(of_handle) else {
                continue;
            };
            // Numbers can be like a handle that no script has chosen for memory.
            if memory.kind == Kind::Guard && long(message, at + 8) != Some(memory.script.offset) {
                continue;
            }
            put(&mut out, at, &memory.real.stag.0.to_be_bytes());
            if at == INVALIDATED {
                continue;
            }
            let inside = long(message, at + 8)
                .and_then(|offset| offset.checked_sub(memory.script.offset))
                .filter(|it| *it <= u64::from(memory.script.length));
            if let Some(inside) = inside {
                let offset = memory.real.offset.wrapping_add(inside);
                put(&mut out, at + 8, &offset.to_be_bytes());
            }
        }
        out.into()
    }

    /// Returns a message of the other end with the script's handles and offsets. A handle is replaced only together
    /// with an offset in the same memory.
    pub(super) fn incoming(&self, mut message: Vec<u8>) -> Vec<u8> {
        let mut at = 0;
        while at + SEGMENT <= message.len() {
            let (Some(handle), Some(offset)) = (word(&message, at), long(&message, at + 8)) else {
                break;
            };
            // The whole memory of a device can have one handle. The end of one memory can be the beginning of another.
            let inside = |it: &Memory| offset.checked_sub(it.real.offset);
            let of_handle = |it: &&Memory| it.real.stag.0 == handle;
            let mut all = self.0.iter().rev().filter(of_handle);
            let begins = all
                .clone()
                .find(|it| inside(it).is_some_and(|at| at < u64::from(it.real.length)));
            let found = begins.or_else(|| {
                all.find(|it| inside(it).is_some_and(|at| at <= it.real.length.into()))
            });
            match found {
                Some(memory) => {
                    let offset = offset.wrapping_sub(memory.real.offset);
                    let offset = memory.script.offset.wrapping_add(offset);
                    let handle = memory.script.handle;
                    put(&mut message, at, &handle.to_be_bytes());
                    put(&mut message, at + 8, &offset.to_be_bytes());
                    at += SEGMENT;
                }
                None => at += WORD,
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use rpcrdma_conform::wire::v1::segment;

    use super::*;

    fn offered() -> Offered {
        let mut offered = Offered::default();
        for (n, at) in [(1, 0x1000), (2, 0x2000)] {
            let real = RemoteSegment {
                stag: Stag(0x77),
                length: 0x1000,
                offset: at,
            };
            offered.add(segment(0x5100_0000 + n, 0x1000, 1 << 32), real, Kind::Room);
        }
        offered
    }

    fn octets(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|it| it.to_be_bytes()).collect()
    }

    #[test]
    fn segments_of_a_script_are_exchanged_for_those_of_the_device_and_back() {
        let offered = offered();
        let script = octets(&[7, 1, 0x5100_0002, 8, 1, 0x10, 0, 0x5100_0001, 16, 1, 0]);
        let real = octets(&[7, 1, 0x77, 8, 0, 0x2010, 0, 0x77, 16, 0, 0x1000]);
        assert_eq!(offered.outgoing(&script), real);
        assert_eq!(offered.incoming(real), script);
    }

    #[test]
    fn memory_can_be_offered_after_a_message_has_named_its_handle() {
        let mut offered = Offered::default();
        let (script, real) = (segment(0x5100_0001, 8, 16), |stag| RemoteSegment {
            stag: Stag(stag),
            length: 8,
            offset: 0,
        });
        offered.add(script, real(1), Kind::Guard);
        assert!(offered.has_handle(script.handle));
        assert!(!offered.has(&script));
        offered.add(script, real(2), Kind::Source);
        assert!(offered.has(&script));
        let message = octets(&[0x5100_0001, 8, 0, 16]);
        assert_eq!(offered.outgoing(&message), octets(&[2, 8, 0, 0]));
        let invalidated = Region::RemoteRead(Bytes::new());
        assert_eq!(
            offered.taken_back(Stag(2), &invalidated),
            Some(script.handle)
        );
        assert!(!offered.has(&script));
    }

    #[test]
    fn a_handle_alone_is_exchanged_and_what_is_not_offered_stays() {
        let offered = offered();
        // Behind the handle to be invalidated, the words of lists are like an offset.
        let script = octets(&[7, 2, 9, 1, 0x5100_0001, 0, 1, 1, 0x5100_0003, 8, 1, 0]);
        let real = octets(&[7, 2, 9, 1, 0x77, 0, 1, 1, 0x5100_0003, 8, 1, 0]);
        assert_eq!(offered.outgoing(&script), real);
        // Numbers that are like a handle, without an offset of the memory behind them.
        let numbers = octets(&[0x77, 0x77, 0x77, 0x77, 0x77, 0, 0]);
        assert_eq!(offered.incoming(numbers.clone()), numbers);
        // Octets behind the last whole word.
        assert_eq!(offered.outgoing(&[0x51, 0, 0]), &[0x51, 0, 0][..]);
    }

    #[test]
    fn a_handle_without_memory_is_exchanged_in_its_segment_alone() {
        let mut offered = Offered::default();
        let real = RemoteSegment {
            stag: Stag(0x77),
            length: 0,
            offset: 1 << 32,
        };
        offered.add(segment(7, 0, 1 << 32), real, Kind::Guard);
        let script = octets(&[7, 1, 7, 0, 1, 0, 7, 8]);
        let sent = octets(&[7, 1, 0x77, 0, 1, 0, 7, 8]);
        assert_eq!(offered.outgoing(&script), sent);
        assert_eq!(offered.incoming(sent), script);
    }

    #[test]
    fn what_was_written_is_told_from_what_was_there() {
        let fresh: Vec<u8> = (0..4096).map(filler).collect();
        assert_eq!(written(&fresh, 0), b"");
        assert_eq!(written(&fresh, 4096), b"");
        let mut content = fresh.clone();
        content[..8].copy_from_slice(b"conform\0");
        assert_eq!(written(&content, 8), b"conform\0");
        // More than is expected is told.
        assert_eq!(written(&content, 2), b"conform\0");
        content[3000] = !content[3000];
        assert_eq!(written(&content, 8).len(), 3001);
        // The last octet has the value that it had before.
        let mut content = fresh.clone();
        content[..9].copy_from_slice(b"conform\0\0");
        content[9] = filler(9);
        assert_eq!(written(&content, 10), content[..10]);
    }
}
