//! The packets of a trace, as Perfetto's `trace_packet.proto` and `track_event.proto` define them.

use std::collections::HashMap;

use crate::part::Part;
use crate::proto::Buffer;

/// Numbers of fields and enumerators. `testing/perfetto/check.py` compares what is written with the published schema.
mod field {
    /// `Trace`.
    pub(super) const PACKET: u32 = 1;

    /// `TracePacket`.
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;

    /// `TrackDescriptor`.
    pub(super) const UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const PROCESS: u32 = 3;
    pub(super) const PARENT_UUID: u32 = 5;
    pub(super) const COUNTER: u32 = 8;

    /// `ProcessDescriptor`.
    pub(super) const PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;

    /// `CounterDescriptor`.
    pub(super) const UNIT: u32 = 3;

    /// `TrackEvent`.
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK_UUID: u32 = 11;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const FLOW_IDS: u32 = 47;

    /// `DebugAnnotation`.
    pub(super) const ANNOTATION_NAME_IID: u32 = 1;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_STRING: u32 = 6;

    /// `InternedData`.
    pub(super) const EVENT_NAMES: u32 = 2;
    pub(super) const ANNOTATION_NAMES: u32 = 3;

    /// `EventName` and `DebugAnnotationName`.
    pub(super) const IID: u32 = 1;
    pub(super) const NAME: u32 = 2;
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// `CounterDescriptor.Unit`.
const UNIT_COUNT: u64 = 2;
/// `TracePacket.SequenceFlags`.
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;

/// The track of the process; all others have higher numbers.
pub(crate) const PROCESS_TRACK: u64 = 0;
/// The number of bits of a track's identifier that its number within the file takes. The sequence has
/// the 24 above.
const TRACK_BITS: u32 = 40;

/// A track of the file.
pub(crate) type TrackId = u64;

/// An interned name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u64);

impl Name {
    /// Returns the name of a part, which is always interned.
    pub(crate) const fn of(part: Part) -> Self {
        Self(part.index() as u64 + 1)
    }
}

/// An annotation of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Annotation {
    Xid(u32),
    Bytes(u32),
    Longest(Part),
    Unfinished,
    Failed,
}

/// The names of annotations, of which each has the number of its place, from 1.
const ANNOTATIONS: [&str; 4] = ["XID", "bytes of arguments", "longest part", "end"];

/// Flow and annotations of an event.
#[derive(Default)]
pub(crate) struct Extras<'a> {
    pub(crate) flow: Option<u64>,
    pub(crate) annotations: &'a [Annotation],
}

/// The packets of one file, of which all are one sequence.
pub(crate) struct Packets {
    pub(crate) out: Buffer,
    sequence: u64,
    names: HashMap<String, Name>,
    tracks: u64,
}

impl Packets {
    /// Begins a sequence, with the track of the process. `sequence` tells it from those of other files that
    /// this one may be joined with.
    pub(crate) fn new(sequence: u32, pid: u32, process: &str) -> Self {
        let mut packets = Self {
            out: Buffer::default(),
            sequence: u64::from(sequence),
            names: HashMap::new(),
            tracks: PROCESS_TRACK + 1,
        };
        packets.packet(|packet| {
            packet.uint(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(field::INTERNED_DATA, |data| {
                for part in Part::ALL {
                    intern(data, field::EVENT_NAMES, Name::of(part).0, part.name());
                }
                for (name, iid) in ANNOTATIONS.iter().zip(1..) {
                    intern(data, field::ANNOTATION_NAMES, iid, name);
                }
            });
        });
        let uuid = packets.uuid(PROCESS_TRACK);
        packets.packet(|packet| {
            packet.message(field::TRACK_DESCRIPTOR, |track| {
                track.uint(field::UUID, uuid);
                track.message(field::PROCESS, |it| {
                    it.uint(field::PID, u64::from(pid));
                    it.string(field::PROCESS_NAME, process);
                });
            });
        });
        packets
    }

    fn packet(&mut self, fill: impl FnOnce(&mut Buffer)) {
        let sequence = self.sequence;
        self.out.message(field::PACKET, |packet| {
            packet.uint(field::SEQUENCE_ID, sequence);
            fill(packet);
        });
    }

    fn uuid(&self, track: TrackId) -> u64 {
        self.sequence << TRACK_BITS | track
    }

    /// Adds a track below another one; one of counts if it is a counter.
    pub(crate) fn track(&mut self, parent: TrackId, name: &str, counter: bool) -> TrackId {
        let track = self.tracks;
        self.tracks += 1;
        let (uuid, parent) = (self.uuid(track), self.uuid(parent));
        self.packet(|packet| {
            packet.message(field::TRACK_DESCRIPTOR, |it| {
                it.uint(field::UUID, uuid);
                it.string(field::TRACK_NAME, name);
                it.uint(field::PARENT_UUID, parent);
                if counter {
                    it.message(field::COUNTER, |counter| {
                        counter.uint(field::UNIT, UNIT_COUNT);
                    });
                }
            });
        });
        track
    }

    /// Returns the number of a name, which is written when it is first used.
    pub(crate) fn name(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        let iid = (Part::ALL.len() + self.names.len()) as u64 + 1;
        self.packet(|packet| {
            packet.uint(field::SEQUENCE_FLAGS, NEEDS_STATE);
            packet.message(field::INTERNED_DATA, |data| {
                intern(data, field::EVENT_NAMES, iid, name);
            });
        });
        self.names.insert(name.to_owned(), Name(iid));
        Name(iid)
    }

    fn event(&mut self, track: TrackId, at: u64, kind: u64, fill: impl FnOnce(&mut Buffer)) {
        let uuid = self.uuid(track);
        self.packet(|packet| {
            packet.uint(field::TIMESTAMP, at);
            packet.uint(field::SEQUENCE_FLAGS, NEEDS_STATE);
            packet.message(field::TRACK_EVENT, |event| {
                event.uint(field::TYPE, kind);
                event.uint(field::TRACK_UUID, uuid);
                fill(event);
            });
        });
    }

    /// Begins a slice.
    pub(crate) fn begin(&mut self, track: TrackId, at: u64, name: Name, extras: &Extras<'_>) {
        self.event(track, at, SLICE_BEGIN, |event| named(event, name, extras));
    }

    /// Ends the last slice of a track that was begun.
    pub(crate) fn end(&mut self, track: TrackId, at: u64) {
        self.event(track, at, SLICE_END, |_| {});
    }

    /// Adds an event without duration.
    pub(crate) fn instant(&mut self, track: TrackId, at: u64, name: Name, extras: &Extras<'_>) {
        self.event(track, at, INSTANT, |event| named(event, name, extras));
    }

    /// Sets a counter.
    pub(crate) fn count(&mut self, track: TrackId, at: u64, value: u32) {
        self.event(track, at, COUNTER, |event| {
            event.uint(field::COUNTER_VALUE, u64::from(value));
        });
    }
}

fn intern(data: &mut Buffer, kind: u32, iid: u64, name: &str) {
    data.message(kind, |entry| {
        entry.uint(field::IID, iid);
        entry.string(field::NAME, name);
    });
}

fn named(event: &mut Buffer, name: Name, extras: &Extras<'_>) {
    event.uint(field::NAME_IID, name.0);
    for annotation in extras.annotations {
        event.message(field::ANNOTATION, |it| {
            let mut put = |iid| it.uint(field::ANNOTATION_NAME_IID, iid);
            match annotation {
                Annotation::Xid(xid) => {
                    put(1);
                    it.uint(field::ANNOTATION_UINT, u64::from(*xid));
                }
                Annotation::Bytes(bytes) => {
                    put(2);
                    it.uint(field::ANNOTATION_UINT, u64::from(*bytes));
                }
                Annotation::Longest(part) => {
                    put(3);
                    it.string(field::ANNOTATION_STRING, part.name());
                }
                Annotation::Unfinished => {
                    put(4);
                    it.string(field::ANNOTATION_STRING, "not within this trace");
                }
                Annotation::Failed => {
                    put(4);
                    it.string(field::ANNOTATION_STRING, "without results");
                }
            }
        });
    }
    if let Some(flow) = extras.flow {
        event.fixed64(field::FLOW_IDS, flow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that runs for long has a track for each connection.
    #[test]
    fn identifiers_of_many_tracks_are_all_different() {
        let last = (1 << 24) - 1;
        let uuid = |sequence, track| Packets::new(sequence, 1, "one").uuid(track);
        let mut uuids = Vec::new();
        for sequence in [1, 2, 3, last - 1, last] {
            for track in [PROCESS_TRACK, 1, 1 << 20, 1 << 21, (1 << 40) - 1] {
                uuids.push(uuid(sequence, track));
            }
        }
        let count = uuids.len();
        uuids.sort_unstable();
        uuids.dedup();
        assert_eq!(uuids.len(), count);
    }
}
