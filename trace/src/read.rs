//! Reading trace files, as far as [`TraceFile`](crate::TraceFile) writes them.

use std::collections::HashMap;

/// A call in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of the track of its connection or client.
    pub track: String,
    /// The name of the procedure.
    pub name: String,
    /// The XID.
    pub xid: u64,
    /// The name of its longest part.
    pub longest: String,
    /// Its end, if it is not with results.
    pub end: Option<String>,
    /// When it began and ended, nanoseconds.
    pub time: (u64, u64),
    /// Its parts, with their times.
    pub parts: Vec<(String, u64, u64)>,
    /// The arrows that begin or end here.
    pub flows: Vec<u64>,
}

impl Call {
    /// Returns the time of all parts with this name, nanoseconds.
    #[must_use]
    pub fn time_of(&self, part: &str) -> u64 {
        let parts = self.parts.iter().filter(|(name, ..)| name == part);
        parts.map(|(_, since, until)| until - since).sum()
    }
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The calls, in the order of their beginnings.
    pub calls: Vec<Call>,
    /// The values of counters: the names of connection and counter, the time and the value.
    pub counts: Vec<(String, String, u64, u64)>,
    /// The names of the processes.
    pub processes: Vec<String>,
}

/// The bytes are not a trace of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a trace file that this program writes")]
pub struct Malformed;

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
                Value::Number(u64::from_le_bytes(bytes))
            }
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(len)?)
            }
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Calls `take` with each field of a message: its number and its value.
    fn each(
        bytes: &'a [u8],
        mut take: impl FnMut(u64, Value<'a>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let mut fields = Self(bytes);
        while let Some((field, value)) = fields.next()? {
            take(field, value)?;
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Malformed)
}

#[derive(Default)]
struct Track {
    name: String,
    parent: u64,
}

/// The kinds of events (`TrackEvent.Type`).
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNT: u64 = 4;

#[derive(Default)]
struct Event {
    at: u64,
    kind: u64,
    track: u64,
    name: u64,
    count: u64,
    flows: Vec<u64>,
    numbers: Vec<(u64, u64)>,
    texts: Vec<(u64, String)>,
}

#[derive(Default)]
struct Reader {
    tracks: HashMap<u64, Track>,
    processes: Vec<String>,
    names: HashMap<(u64, u64), String>,
    notes: HashMap<(u64, u64), String>,
    /// Each with its sequence.
    events: Vec<(u64, Event)>,
}

/// Reads a trace, or several one after the other.
///
/// # Errors
/// [`Malformed`]: it is another file, or ends in the middle of a packet.
pub fn read(bytes: &[u8]) -> Result<Contents, Malformed> {
    let mut reader = Reader::default();
    Fields::each(bytes, |field, value| match (field, value) {
        (1, Value::Bytes(packet)) => reader.packet(packet),
        _ => Err(Malformed),
    })?;
    reader.contents()
}

impl Reader {
    fn packet(&mut self, packet: &[u8]) -> Result<(), Malformed> {
        let (mut at, mut sequence) = (0, 0);
        let (mut event, mut data) = (None, None);
        Fields::each(packet, |field, value| {
            match (field, value) {
                (8, Value::Number(time)) => at = time,
                (10, Value::Number(number)) => sequence = number,
                (11, Value::Bytes(bytes)) => event = Some(bytes),
                (12, Value::Bytes(bytes)) => data = Some(bytes),
                (60, Value::Bytes(bytes)) => self.track(bytes)?,
                _ => {}
            }
            Ok(())
        })?;
        if let Some(data) = data {
            self.intern(sequence, data)?;
        }
        if let Some(event) = event {
            self.event(sequence, at, event)?;
        }
        Ok(())
    }

    fn track(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (mut uuid, mut track) = (0, Track::default());
        Fields::each(bytes, |field, value| {
            match (field, value) {
                (1, Value::Number(number)) => uuid = number,
                (2, Value::Bytes(bytes)) => track.name = text(bytes)?,
                (3, Value::Bytes(process)) => Fields::each(process, |field, value| {
                    if let (6, Value::Bytes(name)) = (field, value) {
                        self.processes.push(text(name)?);
                    }
                    Ok(())
                })?,
                (5, Value::Number(number)) => track.parent = number,
                _ => {}
            }
            Ok(())
        })?;
        self.tracks.insert(uuid, track);
        Ok(())
    }

    fn intern(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), Malformed> {
        Fields::each(bytes, |kind, value| {
            let Value::Bytes(entry) = value else {
                return Err(Malformed);
            };
            let (mut iid, mut name) = (0, String::new());
            Fields::each(entry, |field, value| {
                match (field, value) {
                    (1, Value::Number(number)) => iid = number,
                    (2, Value::Bytes(bytes)) => name = text(bytes)?,
                    _ => {}
                }
                Ok(())
            })?;
            let names = match kind {
                2 => &mut self.names,
                3 => &mut self.notes,
                _ => return Err(Malformed),
            };
            names.insert((sequence, iid), name);
            Ok(())
        })
    }

    fn event(&mut self, sequence: u64, at: u64, bytes: &[u8]) -> Result<(), Malformed> {
        let mut event = Event {
            at,
            ..Event::default()
        };
        Fields::each(bytes, |field, value| {
            match (field, value) {
                (4, Value::Bytes(note)) => {
                    let mut name = 0;
                    Fields::each(note, |field, value| {
                        match (field, value) {
                            (1, Value::Number(iid)) => name = iid,
                            (3, Value::Number(number)) => event.numbers.push((name, number)),
                            (6, Value::Bytes(bytes)) => event.texts.push((name, text(bytes)?)),
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                (9, Value::Number(kind)) => event.kind = kind,
                (10, Value::Number(iid)) => event.name = iid,
                (11, Value::Number(uuid)) => event.track = uuid,
                (30, Value::Number(count)) => event.count = count,
                (47, Value::Number(flow)) => event.flows.push(flow),
                _ => {}
            }
            Ok(())
        })?;
        self.events.push((sequence, event));
        Ok(())
    }

    fn parent_of(&self, track: u64) -> Result<String, Malformed> {
        let parent = self.tracks.get(&track).ok_or(Malformed)?.parent;
        Ok(self.tracks.get(&parent).ok_or(Malformed)?.name.clone())
    }

    fn contents(mut self) -> Result<Contents, Malformed> {
        let mut events = std::mem::take(&mut self.events);
        // Stable, as Perfetto sorts them: events at the same time stay in the order of the file.
        events.sort_by_key(|(_, event)| event.at);
        let mut contents = Contents {
            processes: std::mem::take(&mut self.processes),
            ..Contents::default()
        };
        // The calls of each track that have begun and not ended, with the beginning of the present part.
        let mut open: HashMap<u64, (usize, Option<(String, u64)>)> = HashMap::new();
        for (sequence, event) in events {
            let name = self.names.get(&(sequence, event.name)).cloned();
            let at = event.at;
            match (event.kind, open.get_mut(&event.track)) {
                (COUNT, _) => {
                    let counter = self.tracks.get(&event.track).ok_or(Malformed)?.name.clone();
                    let of = self.parent_of(event.track)?;
                    contents.counts.push((of, counter, at, event.count));
                }
                (BEGIN, None) => {
                    let note = |wanted: &str| {
                        let texts = event.texts.iter();
                        let named =
                            |iid: &u64| self.notes.get(&(sequence, *iid)).map(String::as_str);
                        let mut found = texts.filter(|(iid, _)| named(iid) == Some(wanted));
                        found.next().map(|(_, text)| text.clone())
                    };
                    open.insert(event.track, (contents.calls.len(), None));
                    contents.calls.push(Call {
                        track: self.parent_of(event.track)?,
                        name: name.ok_or(Malformed)?,
                        xid: event.numbers.first().map_or(0, |(_, number)| *number),
                        longest: note("longest part").unwrap_or_default(),
                        end: note("end"),
                        time: (at, at),
                        parts: Vec::new(),
                        flows: event.flows,
                    });
                }
                (BEGIN, Some((call, part @ None))) => {
                    *part = Some((name.ok_or(Malformed)?, at));
                    contents.calls[*call].flows.extend(event.flows);
                }
                (END, Some((call, part @ Some(_)))) => {
                    let (name, since) = part.take().ok_or(Malformed)?;
                    contents.calls[*call].parts.push((name, since, at));
                }
                (END, Some((call, None))) => {
                    contents.calls[*call].time.1 = at;
                    open.remove(&event.track);
                }
                (BEGIN | END, _) => return Err(Malformed),
                // Instants are the ends of arrows.
                (_, Some((call, _))) => contents.calls[*call].flows.extend(event.flows),
                _ => return Err(Malformed),
            }
        }
        match open.is_empty() {
            true => Ok(contents),
            false => Err(Malformed),
        }
    }
}
