//! Calls, from records to slices.
//!
//! A call is written when it has ended, or when the trace does: with all its parts, on the first of the lanes
//! of its track that was free for all that time.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use rdma::trace::{End, Event, Record, Track};

use crate::Procedure;
use crate::packets::{Annotation, Extras, PROCESS_TRACK, Packets, TrackId};
use crate::part::Part;
use crate::summary::Summary;

/// A track of records, with its tracks in the file.
struct Connection {
    about: Track,
    track: TrackId,
    /// Calls of each end, of which those of a lane do not overlap: its track, and the end of its last call.
    lanes: [Vec<(TrackId, u64)>; 2],
    /// The counters of credits in use and granted, with their last values, once there are any.
    credits: Option<[(TrackId, Option<u32>); 2]>,
}

/// A call that has not ended.
struct Call {
    name: Option<Procedure>,
    bytes: Option<u32>,
    /// When each part began. The next one ends it.
    parts: Vec<(u64, Part)>,
    /// Whether the message for this end arrived, or left: for arrows between the ends.
    arrived: Option<u64>,
}

type Key = (u32, End, u32);

/// The calls of a trace.
pub(crate) struct Calls {
    name: fn(Procedure) -> Option<&'static str>,
    /// The tracks that are not closed, by their numbers.
    connections: HashMap<u32, Connection>,
    open: HashMap<Key, Call>,
    /// The time of the last record.
    last: u64,
    pub(crate) summary: Summary,
}

impl Calls {
    pub(crate) fn new(name: fn(Procedure) -> Option<&'static str>) -> Self {
        Self {
            name,
            connections: HashMap::new(),
            open: HashMap::new(),
            last: 0,
            summary: Summary::default(),
        }
    }

    /// Returns whether there was any call.
    pub(crate) fn has_any(&self) -> bool {
        self.last > 0 || !self.open.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn open_tracks_and_calls(&self) -> (usize, usize) {
        (self.connections.len(), self.open.len())
    }

    /// Adds the track with this number.
    pub(crate) fn add(&mut self, packets: &mut Packets, number: u32, about: Track) {
        let Track { label, end, peer } = &about;
        let of = match end {
            End::Requester => "calls to",
            End::Responder => "calls of",
        };
        let gap = if label.is_empty() { "" } else { ": " };
        let name = format!("{label}{gap}{of} {peer}");
        let track = packets.track(PROCESS_TRACK, &name, false);
        let connection = Connection {
            about,
            track,
            lanes: [Vec::new(), Vec::new()],
            credits: None,
        };
        self.connections.insert(number, connection);
    }

    /// Forgets these tracks, whose numbers are sorted. Their calls that have not ended are written as
    /// [`Calls::finish`] writes them.
    pub(crate) fn close(&mut self, packets: &mut Packets, tracks: &[u32]) {
        let is_closed = |&(track, ..): &Key, _: &mut Call| tracks.binary_search(&track).is_ok();
        let open = self.open.extract_if(is_closed).collect();
        self.write_unfinished(packets, open, self.last);
        for track in tracks {
            self.connections.remove(track);
        }
    }

    /// Takes a record, whose time is `at` on the clock of the file.
    pub(crate) fn take(&mut self, packets: &mut Packets, record: &Record, at: u64) {
        self.last = self.last.max(at);
        let event = &record.event;
        let key = (record.track, event.end(), record.xid);
        if let Event::Called { .. } | Event::Arrived = event
            && self.connections.contains_key(&record.track)
        {
            let call = Call {
                name: None,
                bytes: None,
                parts: Vec::with_capacity(8),
                arrived: None,
            };
            if let Some(earlier) = self.open.insert(key, call) {
                self.write(packets, key, earlier, at, &[Annotation::Unfinished]);
            }
        }
        let Entry::Occupied(mut entry) = self.open.entry(key) else {
            return;
        };
        let call = entry.get_mut();
        match *event {
            Event::Called {
                program,
                version,
                procedure,
                bytes,
            } => {
                call.name = Some((program, version, procedure));
                call.bytes = Some(bytes);
            }
            Event::Handed {
                program,
                version,
                procedure,
            }
            | Event::Relayed {
                program,
                version,
                procedure,
            } => call.name = Some((program, version, procedure)),
            Event::Answered { .. } => call.arrived = Some(at),
            _ => {}
        }
        // Threads can record one call's events in another order than they read the clock.
        let at = call.parts.last().map_or(at, |&(since, _)| at.max(since));
        let next = Part::after(event);
        match next {
            Some(part) => {
                if call.parts.last().is_none_or(|&(_, last)| last != part) {
                    call.parts.push((at, part));
                }
            }
            None => {
                let call = entry.remove();
                let notes: &[_] = match event {
                    Event::Ended { failed: true } | Event::Dropped => &[Annotation::Failed],
                    _ => &[],
                };
                self.write(packets, key, call, at, notes);
            }
        }
        if let Event::Sent { in_flight, granted } | Event::Answered { in_flight, granted } = *event
            && granted > 0
        {
            self.count(packets, record.track, at, [in_flight, granted]);
        }
    }

    fn count(&mut self, packets: &mut Packets, track: u32, at: u64, now: [u32; 2]) {
        let Some(connection) = self.connections.get_mut(&track) else {
            return;
        };
        let parent = connection.track;
        let credits = connection.credits.get_or_insert_with(|| {
            ["credits in use", "credits granted"]
                .map(|name| (packets.track(parent, name, true), None))
        });
        for ((track, last), now) in credits.iter_mut().zip(now) {
            if last.replace(now) != Some(now) {
                packets.count(*track, at, now);
            }
        }
    }

    /// Writes the calls that have not ended, as if they ended at `at`, or with the last record.
    pub(crate) fn finish(&mut self, packets: &mut Packets, at: Option<u64>) {
        let at = at.map_or(self.last, |at| at.max(self.last));
        let open = self.open.drain().collect();
        self.write_unfinished(packets, open, at);
    }

    fn write_unfinished(&mut self, packets: &mut Packets, mut open: Vec<(Key, Call)>, at: u64) {
        open.sort_unstable_by_key(|&((track, _, xid), _)| (track, xid));
        for (key, call) in open {
            self.write(packets, key, call, at, &[Annotation::Unfinished]);
        }
    }

    fn write(
        &mut self,
        packets: &mut Packets,
        (track, end, xid): Key,
        call: Call,
        until: u64,
        notes: &[Annotation],
    ) {
        let (Some(connection), Some(&(since, _))) =
            (self.connections.get_mut(&track), call.parts.first())
        else {
            return;
        };
        let ends = call.parts.iter().skip(1).map(|&(at, _)| at);
        let ends = ends.chain([until]);
        let parts = call.parts.iter().zip(ends);
        let parts = parts.map(|(&(since, part), until)| (part, since, until.max(since)));
        let longest = self.summary.add(end, parts.clone());
        let name = match call.name {
            Some(procedure) => match (self.name)(procedure) {
                Some(known) => packets.name(known),
                None => {
                    let (program, version, procedure) = procedure;
                    packets.name(&format!(
                        "program {program} version {version} procedure {procedure}"
                    ))
                }
            },
            None => packets.name("call"),
        };
        let lane = lane(packets, connection, end, since, until);
        let mut annotations = vec![Annotation::Xid(xid), Annotation::Longest(longest)];
        annotations.extend(call.bytes.map(Annotation::Bytes));
        annotations.extend(notes);
        let [there, back] = flows(&connection.about, end, xid);
        let begun = Extras {
            flow: (end == End::Responder).then_some(there),
            annotations: &annotations,
        };
        packets.begin(lane, since, name, &begun);
        for (part, since, until) in parts {
            let remote = part == Part::Remote;
            // In the middle of a part that begins with the arrival, it would end that part's slice.
            if since < until {
                let extras = Extras {
                    flow: remote.then_some(there),
                    annotations: &[],
                };
                packets.begin(lane, since, crate::packets::Name::of(part), &extras);
                packets.end(lane, until);
            }
        }
        let back = Extras {
            flow: Some(back),
            annotations: &[],
        };
        match (end, call.arrived) {
            (End::Requester, Some(at)) => {
                let name = packets.name("reply arrived");
                packets.instant(lane, at, name, &back);
            }
            (End::Responder, _) if notes.is_empty() => {
                let name = packets.name("reply sent");
                packets.instant(lane, until, name, &back);
            }
            _ => {}
        }
        packets.end(lane, until.max(since));
    }
}

/// Returns a lane that is free from `since` on, and takes it until `until`.
fn lane(
    packets: &mut Packets,
    connection: &mut Connection,
    end: End,
    since: u64,
    until: u64,
) -> TrackId {
    let (lanes, name) = match (end, connection.about.end) {
        (End::Requester, End::Requester) | (End::Responder, End::Responder) => {
            (&mut connection.lanes[0], "calls")
        }
        _ => (&mut connection.lanes[1], "calls from server to client"),
    };
    if let Some((lane, last)) = lanes.iter_mut().find(|(_, last)| *last <= since) {
        *last = until;
        return *lane;
    }
    let lane = packets.track(connection.track, name, false);
    lanes.push((lane, until));
    lane
}

/// Returns the numbers of the arrows of a call, which both ends compute alike: for the call and its reply.
fn flows(about: &Track, end: End, xid: u32) -> [u64; 2] {
    [0_u8, 1].map(|message| {
        // Its keys are constants, so two processes compute the same.
        let mut hasher = DefaultHasher::new();
        let forward = about.end == end;
        (&*about.label, forward, xid, message).hash(&mut hasher);
        hasher.finish()
    })
}
