//! Calls, from records to slices.
//!
//! A call is written when it has ended, or when the trace does: with all its parts, on the first of the lanes
//! of its track that was free for all that time.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use rdma::IdMap;
use rdma::trace::{End, Event, Record, Track};
use smallvec::{SmallVec, smallvec};

use crate::Procedure;
use crate::packets::{Annotation, Extras, FileTrack, Name, Packets};
use crate::part::Part;
use crate::summary::Summary;

/// A track of records, with its tracks in the file.
struct Connection {
    end: End,
    track: FileTrack,
    /// Seeds of the numbers of arrows: for calls of this end, and for those in the reverse direction.
    flows: [u64; 2],
    /// Lanes of these two kinds of calls, which do not overlap within one: the track, and the end of the last call.
    lanes: [Vec<(FileTrack, u64)>; 2],
    /// The counters of credits in use and granted, with their last values, once there are any.
    credits: Option<[(FileTrack, Option<u32>); 2]>,
}

/// A call that has not ended.
struct Call {
    name: Option<Procedure>,
    bytes: Option<u32>,
    /// When each part began. The next one ends it.
    parts: SmallVec<[(u64, Part); 8]>,
    /// Whether the message for this end arrived, or left: for arrows between the ends.
    arrived: Option<u64>,
}

/// The XID of a call, below the number of its track.
type Key = u64;

fn key(track: u32, xid: u32) -> Key {
    u64::from(track) << u32::BITS | u64::from(xid)
}

/// Returns the number of the track.
fn track_of(key: Key) -> u32 {
    (key >> u32::BITS) as u32
}

/// The calls of a trace.
pub(crate) struct Calls {
    name: fn(Procedure) -> Option<&'static str>,
    /// The tracks that are not closed, by their numbers.
    connections: IdMap<u32, Connection>,
    /// The calls of each end that have not ended. Peers choose XIDs.
    open: [HashMap<Key, Call>; 2],
    /// The time of the last record.
    last: u64,
    pub(crate) summary: Summary,
}

impl Calls {
    pub(crate) fn new(name: fn(Procedure) -> Option<&'static str>) -> Self {
        Self {
            name,
            connections: IdMap::default(),
            open: Default::default(),
            last: 0,
            summary: Summary::default(),
        }
    }

    /// Returns whether there was any call.
    pub(crate) fn has_any(&self) -> bool {
        self.last > 0 || self.open.iter().any(|open| !open.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn open_tracks_and_calls(&self) -> (usize, usize) {
        (
            self.connections.len(),
            self.open[0].len() + self.open[1].len(),
        )
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
        let connection = Connection {
            end: *end,
            track: packets.track(None, &name, false),
            flows: flows(&about),
            lanes: [Vec::new(), Vec::new()],
            credits: None,
        };
        self.connections.insert(number, connection);
    }

    /// Forgets these tracks, whose numbers are sorted. Their calls that have not ended are written as
    /// [`Calls::finish`] writes them.
    pub(crate) fn close(&mut self, packets: &mut Packets, tracks: &[u32]) {
        let is_closed = |&key: &Key, _: &mut Call| tracks.binary_search(&track_of(key)).is_ok();
        let open = (self.open)
            .each_mut()
            .map(|of_end| of_end.extract_if(is_closed).collect());
        self.write_unfinished(packets, open, self.last);
        for track in tracks {
            self.connections.remove(track);
        }
    }

    /// Takes a record, whose time is `at` on the clock of the file.
    pub(crate) fn take(&mut self, packets: &mut Packets, record: &Record, at: u64) {
        self.last = self.last.max(at);
        let event = &record.event;
        let (key, end) = (key(record.track, record.xid), event.end());
        let begun = match *event {
            Event::Called {
                program,
                version,
                procedure,
                bytes,
            } => (Some((program, version, procedure)), Some(bytes)),
            Event::Arrived => (None, None),
            _ => return self.go_on(packets, record, at),
        };
        if !self.connections.contains_key(&record.track) {
            return;
        }
        let (name, bytes) = begun;
        let call = Call {
            name,
            bytes,
            parts: smallvec![(at, Part::Other)],
            arrived: None,
        };
        if let Some(earlier) = self.open[end as usize].insert(key, call) {
            self.write(
                packets,
                (end, key),
                earlier,
                at,
                Some(Annotation::Unfinished),
            );
        }
    }

    /// Takes a record of a call that was begun.
    fn go_on(&mut self, packets: &mut Packets, record: &Record, at: u64) {
        let event = &record.event;
        let (key, end) = (key(record.track, record.xid), event.end());
        let Entry::Occupied(mut entry) = self.open[end as usize].entry(key) else {
            return;
        };
        let call = entry.get_mut();
        match *event {
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
        match Part::after(event) {
            Some(part) => {
                if call.parts.last().is_none_or(|&(_, last)| last != part) {
                    call.parts.push((at, part));
                }
            }
            None => {
                let call = entry.remove();
                let failed = matches!(event, Event::Ended { failed: true } | Event::Dropped);
                let outcome = failed.then_some(Annotation::Failed);
                self.write(packets, (end, key), call, at, outcome);
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
        let parent = &connection.track;
        let credits = connection.credits.get_or_insert_with(|| {
            ["credits in use", "credits granted"]
                .map(|name| (packets.track(Some(parent), name, true), None))
        });
        for ((track, last), now) in credits.iter_mut().zip(now) {
            if last.replace(now) != Some(now) {
                packets.count(track, at, now);
            }
        }
    }

    /// Writes the calls that have not ended, as if they ended at `at`, or with the last record.
    pub(crate) fn finish(&mut self, packets: &mut Packets, at: Option<u64>) {
        let at = at.map_or(self.last, |at| at.max(self.last));
        let open = (self.open)
            .each_mut()
            .map(|of_end| of_end.drain().collect());
        self.write_unfinished(packets, open, at);
    }

    fn write_unfinished(&mut self, packets: &mut Packets, open: [Vec<(Key, Call)>; 2], at: u64) {
        for (mut open, end) in open.into_iter().zip([End::Requester, End::Responder]) {
            open.sort_unstable_by_key(|&(key, _)| key);
            for (key, call) in open {
                self.write(packets, (end, key), call, at, Some(Annotation::Unfinished));
            }
        }
    }

    fn write(
        &mut self,
        packets: &mut Packets,
        (end, key): (End, Key),
        call: Call,
        until: u64,
        outcome: Option<Annotation>,
    ) {
        let track = track_of(key);
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
            Some(procedure) => packets.procedure(procedure, self.name),
            None => Name::CALL,
        };
        let reverse = usize::from(connection.end != end);
        let xid = key as u32;
        let [there, back] = [0, 1].map(|message| flow(connection.flows[reverse], xid, message));
        let lane = connection.lane(packets, reverse, since, until);
        let annotations = [
            Some(Annotation::Xid(xid)),
            Some(Annotation::Longest(longest)),
            call.bytes.map(Annotation::Bytes),
            outcome,
        ];
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
                packets.begin(lane, since, Name::of(part), &extras);
                packets.end(lane, until);
            }
        }
        let back = Extras {
            flow: Some(back),
            annotations: &[],
        };
        match (end, call.arrived) {
            (End::Requester, Some(at)) => {
                packets.instant(lane, at, Name::REPLY_ARRIVED, &back);
            }
            (End::Responder, _) if outcome.is_none() => {
                packets.instant(lane, until, Name::REPLY_SENT, &back);
            }
            _ => {}
        }
        packets.end(lane, until.max(since));
    }
}

impl Connection {
    /// Returns a lane that is free from `since` on, and takes it until `until`.
    fn lane(
        &mut self,
        packets: &mut Packets,
        reverse: usize,
        since: u64,
        until: u64,
    ) -> &FileTrack {
        let lanes = &mut self.lanes[reverse];
        let free = lanes.iter().position(|(_, last)| *last <= since);
        let at = free.unwrap_or_else(|| {
            let name = ["calls", "calls from server to client"][reverse];
            lanes.push((packets.track(Some(&self.track), name, false), 0));
            lanes.len() - 1
        });
        let (lane, last) = &mut lanes[at];
        *last = until;
        lane
    }
}

/// Returns numbers for calls of a track's end, and in the reverse direction, which both ends compute alike.
fn flows(about: &Track) -> [u64; 2] {
    [true, false].map(|forward| {
        // Its keys are constants, so two processes compute the same.
        let mut hasher = DefaultHasher::new();
        (&*about.label, forward).hash(&mut hasher);
        hasher.finish()
    })
}

/// Returns the number of the arrow of a call (0) or its reply (1): the finalizer of SplitMix64, which takes
/// different numbers to different ones.
fn flow(calls: u64, xid: u32, message: u64) -> u64 {
    let mut mixed = calls ^ (u64::from(xid) << 1 | message);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
