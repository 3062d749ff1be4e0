//! The packets of a trace, as Perfetto's `trace_packet.proto` and `track_event.proto` define them.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::Procedure;
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

/// The number of the track of the process; all others have higher ones.
const PROCESS_TRACK: u64 = 0;
/// The number of bits of a track's identifier that its number within the file takes. The sequence has
/// the 24 above.
const TRACK_BITS: u32 = 40;

/// The most bytes of a field that is a number: two of its tag, and ten.
const NUMBER: usize = 12;

/// A track of the file.
#[derive(Clone, Debug)]
pub(crate) struct FileTrack {
    uuid: u64,
    /// The field of an event that names it, encoded.
    of_event: SmallVec<[u8; NUMBER]>,
}

/// An interned name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u64);

impl Name {
    /// A call whose procedure is not known.
    pub(crate) const CALL: Self = Self(Part::ALL.len() as u64 + 1);
    pub(crate) const REPLY_ARRIVED: Self = Self(Self::CALL.0 + 1);
    pub(crate) const REPLY_SENT: Self = Self(Self::CALL.0 + 2);
    /// These, in their order.
    const MOMENTS: [&str; 3] = ["call", "reply arrived", "reply sent"];
    /// The first one of a procedure.
    const PROCEDURE: u64 = Self::CALL.0 + 3;

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
    pub(crate) annotations: &'a [Option<Annotation>],
}

/// The packets of one file, of which all are one sequence.
pub(crate) struct Packets {
    pub(crate) out: Buffer,
    sequence: u64,
    /// The fields with which each event begins, encoded.
    of_event: Vec<u8>,
    procedures: HashMap<Procedure, Name>,
    /// The number of the next track.
    tracks: u64,
}

impl Packets {
    /// Begins a sequence, with the track of the process. `sequence` tells it from those of other files that
    /// this one may be joined with.
    pub(crate) fn new(sequence: u32, pid: u32, process: &str) -> Self {
        let sequence = u64::from(sequence);
        let mut of_event = Buffer::default();
        of_event.uint(field::SEQUENCE_ID, sequence);
        of_event.uint(field::SEQUENCE_FLAGS, NEEDS_STATE);
        let mut packets = Self {
            out: Buffer::default(),
            sequence,
            of_event: of_event.0,
            procedures: HashMap::new(),
            tracks: PROCESS_TRACK + 1,
        };
        packets.packet(|packet| {
            packet.uint(field::SEQUENCE_FLAGS, STATE_CLEARED);
            packet.message(field::INTERNED_DATA, |data| {
                for part in Part::ALL {
                    intern(data, field::EVENT_NAMES, Name::of(part).0, part.name());
                }
                for (name, iid) in Name::MOMENTS.iter().zip(Name::CALL.0..) {
                    intern(data, field::EVENT_NAMES, iid, name);
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

    fn uuid(&self, track: u64) -> u64 {
        self.sequence << TRACK_BITS | track
    }

    /// Adds a track below another one, or below that of the process; one of counts if it is a counter.
    pub(crate) fn track(
        &mut self,
        parent: Option<&FileTrack>,
        name: &str,
        counter: bool,
    ) -> FileTrack {
        let uuid = self.uuid(self.tracks);
        self.tracks += 1;
        let parent = parent.map_or(self.uuid(PROCESS_TRACK), |parent| parent.uuid);
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
        let mut of_event = Buffer::default();
        of_event.uint(field::TRACK_UUID, uuid);
        FileTrack {
            uuid,
            of_event: SmallVec::from_slice(&of_event.0),
        }
    }

    /// Returns the name of a procedure: `known`, or its numbers. It is written when it is first used.
    pub(crate) fn procedure(
        &mut self,
        procedure: Procedure,
        known: fn(Procedure) -> Option<&'static str>,
    ) -> Name {
        if let Some(name) = self.procedures.get(&procedure) {
            return *name;
        }
        let name = Name(Name::PROCEDURE + self.procedures.len() as u64);
        let text = known(procedure).map_or_else(
            || {
                let (program, version, number) = procedure;
                format!("program {program} version {version} procedure {number}")
            },
            str::to_owned,
        );
        self.packet(|packet| {
            packet.uint(field::SEQUENCE_FLAGS, NEEDS_STATE);
            packet.message(field::INTERNED_DATA, |data| {
                intern(data, field::EVENT_NAMES, name.0, &text);
            });
        });
        self.procedures.insert(procedure, name);
        name
    }

    #[inline]
    fn event(&mut self, track: &FileTrack, at: u64, kind: u64, fill: impl FnOnce(&mut Buffer)) {
        let Self { out, of_event, .. } = self;
        out.message(field::PACKET, |packet| {
            packet.encoded(of_event);
            packet.uint(field::TIMESTAMP, at);
            packet.message(field::TRACK_EVENT, |event| {
                event.uint(field::TYPE, kind);
                event.encoded(&track.of_event);
                fill(event);
            });
        });
    }

    /// Begins a slice.
    pub(crate) fn begin(&mut self, track: &FileTrack, at: u64, name: Name, extras: &Extras<'_>) {
        self.event(track, at, SLICE_BEGIN, |event| named(event, name, extras));
    }

    /// Ends the last slice of a track that was begun.
    pub(crate) fn end(&mut self, track: &FileTrack, at: u64) {
        self.event(track, at, SLICE_END, |_| {});
    }

    /// Adds an event without duration.
    pub(crate) fn instant(&mut self, track: &FileTrack, at: u64, name: Name, extras: &Extras<'_>) {
        self.event(track, at, INSTANT, |event| named(event, name, extras));
    }

    /// Sets a counter.
    pub(crate) fn count(&mut self, track: &FileTrack, at: u64, value: u32) {
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
    for annotation in extras.annotations.iter().flatten() {
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
