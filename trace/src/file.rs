//! The file, and the buffers before it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma::Time;
use rdma::trace::{Record, Sink, Track};
use rustix::time::{ClockId, clock_gettime};

use crate::Procedure;
use crate::calls::Calls;
use crate::packets::Packets;
use crate::summary::Summary;

/// The number of buffers that threads record into. A track has one of them.
const SHARDS: usize = 16;
/// The number of records of a buffer.
const RECORDS: usize = 4096;
/// The number of full buffers of a shard that may wait to be written.
const FULL: usize = 32;
/// The number of bytes that are written together.
const WRITE: usize = 256 << 10;
/// The number of bits of the number of a random sequence.
const SEQUENCE_BITS: u32 = 24;

/// Description of a file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The process, as the viewer names it.
    pub process: String,
    /// Whether the times are virtual. Otherwise they are those of the monotonic clock, and the file has those
    /// of the system's boot clock, by which files of several processes can be joined.
    pub virtual_time: bool,
    /// The maximum length, bytes. What comes later is left out.
    pub size: u64,
    /// Returns the names of procedures.
    pub name: fn(Procedure) -> Option<&'static str>,
}

/// The reason why a file has an end before the calls.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The file has its maximum length.
    #[error("stopped: the file has reached its maximum length")]
    Full,
    /// The file could not be written.
    #[error("stopped: {0}")]
    Failed(#[from] io::Error),
}

/// A trace file. Clones are the same file.
#[derive(Clone)]
pub struct TraceFile(Arc<Inner>);

struct Inner {
    shards: [Mutex<Shard>; SHARDS],
    tracks: Mutex<Tracks>,
    writer: Mutex<Writer>,
    stopped: AtomicBool,
}

/// Records that were not written yet, oldest first: those of full buffers, and those of the last one.
#[derive(Default)]
struct Shard {
    full: Vec<Vec<Record>>,
    last: Vec<Record>,
    lost: u64,
}

#[derive(Default)]
struct Tracks {
    count: u32,
    new: Vec<(u32, Track)>,
    closed: Vec<u32>,
}

struct Writer {
    file: File,
    options: Options,
    /// Nanoseconds that are added to a time.
    offset: u64,
    written: u64,
    packets: Packets,
    calls: Calls,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves records in order.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for TraceFile {
    fn open(&self, track: Track) -> u32 {
        let mut tracks = lock(&self.0.tracks);
        let number = tracks.count;
        tracks.count += 1;
        // Nobody writes any more.
        if !self.0.stopped.load(Ordering::Relaxed) {
            tracks.new.push((number, track));
        }
        number
    }

    fn close(&self, track: u32) {
        if !self.0.stopped.load(Ordering::Relaxed) {
            lock(&self.0.tracks).closed.push(track);
        }
    }

    #[inline]
    fn record(&self, record: Record) {
        let mut shard = lock(&self.0.shards[record.track as usize % SHARDS]);
        if shard.last.len() == shard.last.capacity() {
            self.next_buffer(&mut shard);
        }
        if shard.last.len() < shard.last.capacity() {
            shard.last.push(record);
        }
    }
}

impl TraceFile {
    /// Creates the file.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn create(path: &Path, options: Options) -> io::Result<Self> {
        // Addresses and names of procedures are nobody else's business.
        let mut new = OpenOptions::new();
        let file = new.write(true).create_new(true).mode(0o600).open(path)?;
        let (offset, sequence, pid) = match options.virtual_time {
            // The same run writes the same bytes.
            true => (0, 1, 1),
            false => (boot_offset(), random()?, std::process::id()),
        };
        let writer = Writer {
            file,
            offset,
            written: 0,
            packets: Packets::new(sequence, pid, &options.process),
            calls: Calls::new(options.name),
            options,
        };
        Ok(Self(Arc::new(Inner {
            shards: Default::default(),
            tracks: Mutex::default(),
            writer: Mutex::new(writer),
            stopped: AtomicBool::new(false),
        })))
    }

    /// Returns the file as what takes records.
    #[must_use]
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    /// Puts a full buffer away, unless too many wait.
    #[cold]
    fn next_buffer(&self, shard: &mut Shard) {
        if self.0.stopped.load(Ordering::Relaxed) {
            return;
        }
        if shard.full.len() >= FULL {
            shard.lost += 1;
            return;
        }
        let next = Vec::with_capacity(RECORDS);
        let full = std::mem::replace(&mut shard.last, next);
        if !full.is_empty() {
            shard.full.push(full);
        }
    }

    /// Writes the calls that have ended. To be called several times a second by a thread of its own.
    ///
    /// # Errors
    /// The file takes no more. This is said once.
    pub fn flush(&self) -> Result<(), Stopped> {
        self.write(|_| {}).map(drop)
    }

    /// Writes all that was recorded: calls that have not ended, too, which end at `now` or, if that is
    /// unknown, with the last event. Returns the sums of all calls.
    ///
    /// # Errors
    /// The file does not take all.
    pub fn finish(&self, now: Option<Time>) -> Result<Summary, Stopped> {
        self.write(|writer| {
            let now = now.map(|now| now.as_nanos().saturating_add(writer.offset));
            writer.calls.finish(&mut writer.packets, now);
        })
    }

    /// Returns whether no call was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_written = lock(&self.0.writer).calls.has_any();
        let recorded = |shard: &Shard| !shard.last.is_empty() || !shard.full.is_empty();
        !is_written && !self.0.shards.iter().any(|shard| recorded(&lock(shard)))
    }

    fn write(&self, last: impl FnOnce(&mut Writer)) -> Result<Summary, Stopped> {
        let mut writer = lock(&self.0.writer);
        let writer = &mut *writer;
        // The records of a closed track are there before it is closed.
        let mut closed = std::mem::take(&mut lock(&self.0.tracks).closed);
        for shard in &self.0.shards {
            let (full, rest) = {
                let mut shard = lock(shard);
                writer.calls.summary.lost += std::mem::take(&mut shard.lost);
                let rest = match shard.last.is_empty() {
                    true => Vec::new(),
                    false => std::mem::replace(&mut shard.last, Vec::with_capacity(RECORDS)),
                };
                (std::mem::take(&mut shard.full), rest)
            };
            // A track is there before its records.
            for (number, track) in std::mem::take(&mut lock(&self.0.tracks).new) {
                writer.calls.add(&mut writer.packets, number, track);
            }
            for record in full.iter().flatten().chain(&rest) {
                let at = record.at.as_nanos().saturating_add(writer.offset);
                writer.calls.take(&mut writer.packets, record, at);
                if writer.packets.out.0.len() >= WRITE {
                    writer.put(&self.0.stopped)?;
                }
            }
        }
        if !closed.is_empty() {
            closed.sort_unstable();
            writer.calls.close(&mut writer.packets, &closed);
        }
        last(writer);
        writer.put(&self.0.stopped)?;
        Ok(writer.calls.summary.clone())
    }
}

impl Writer {
    /// Writes what is encoded, unless the file would become too long. Whole packets are written, so that the
    /// file is valid however the process ends.
    fn put(&mut self, stopped: &AtomicBool) -> Result<(), Stopped> {
        let encoded = std::mem::take(&mut self.packets.out.0);
        if encoded.is_empty() || stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        let len = self.written + encoded.len() as u64;
        if len > self.options.size {
            stopped.store(true, Ordering::Relaxed);
            return Err(Stopped::Full);
        }
        if let Err(error) = self.file.write_all(&encoded) {
            stopped.store(true, Ordering::Relaxed);
            return Err(error.into());
        }
        self.written = len;
        self.packets.out.0 = encoded;
        self.packets.out.0.clear();
        Ok(())
    }
}

impl fmt::Debug for TraceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceFile").finish_non_exhaustive()
    }
}

/// Returns what has to be added to a time of the monotonic clock for one of the boot clock, which Perfetto
/// uses, nanoseconds. They differ by the time that the system was suspended.
fn boot_offset() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    // Never negative.
    let boot = (boot.tv_sec as u64).saturating_mul(1_000_000_000) + boot.tv_nsec as u64;
    boot.saturating_sub(Time::now().as_nanos())
}

/// Returns a number that other files do not have.
fn random() -> io::Result<u32> {
    let random = getrandom::u32().map_err(io::Error::other)?;
    Ok((random >> (u32::BITS - SEQUENCE_BITS)).max(2))
}

#[cfg(test)]
mod tests {
    use rdma::Clock;
    use rdma::trace::{End, Event, Trace};

    use super::*;

    fn traced(size: u64) -> (tempfile::TempDir, TraceFile, Trace) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            process: "test".to_owned(),
            virtual_time: true,
            size,
            name: |_| None,
        };
        let file = TraceFile::create(&dir.path().join("trace"), options).unwrap();
        let trace = Trace::new(file.sink(), Clock::simulated());
        (dir, file, trace)
    }

    fn peer() -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, 1).into()
    }

    #[test]
    fn what_is_known_of_a_track_is_forgotten_when_it_ends() {
        let (dir, file, trace) = traced(1 << 20);
        let open = |file: &TraceFile| lock(&file.0.writer).calls.open_tracks_and_calls();
        for round in 0..100 {
            let tracer = trace.open(End::Responder, peer());
            let clone = tracer.clone();
            tracer.record(round, Event::Arrived);
            drop(tracer);
            file.flush().unwrap();
            assert_eq!(open(&file), (1, 1), "a clone is left");
            // Its last call has not ended.
            clone.record(round, Event::Replied);
            clone.record(round + 1, Event::Arrived);
            drop(clone);
            file.flush().unwrap();
            assert_eq!(open(&file), (0, 0));
        }
        // It may have begun and ended since the last flush.
        trace.open(End::Responder, peer()).record(1, Event::Arrived);
        let summary = file.finish(None).unwrap();
        assert_eq!(open(&file), (0, 0));
        assert_eq!(summary.of(End::Responder).calls, 201);
        let written = std::fs::read(dir.path().join("trace")).unwrap();
        let calls = crate::read::read(&written).unwrap().calls;
        assert_eq!(calls.len(), 201);
    }

    #[test]
    fn a_file_that_takes_no_more_keeps_no_tracks() {
        let (_dir, file, trace) = traced(1);
        assert!(matches!(file.flush(), Err(Stopped::Full)));
        for _ in 0..100 {
            drop(trace.open(End::Responder, peer()));
        }
        let tracks = lock(&file.0.tracks);
        assert_eq!((tracks.new.len(), tracks.closed.len()), (0, 0));
    }
}
