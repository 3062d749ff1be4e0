//! Concurrent writers: each writes to a file of its own, and all to a shared one, record by record.
//! The expected content follows from the seed, so that another process can check it, later, or on
//! the server.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::Failure;
use crate::content::{bytes, difference};

/// The length of a record of the shared file in bytes. It does not divide the page size, so that
/// pages are shared as well.
const RECORD: usize = 1009;
/// The maximum length of a write, bytes.
const MOST: usize = 200_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The seed of contents and order.
    pub seed: u64,
    /// The number of concurrent writers.
    pub count: usize,
    /// The number of bytes that each writer writes to its own file.
    pub size: usize,
    /// The number of records that each writes to the shared file.
    pub records: usize,
}

impl Order {
    fn own(&self, writer: usize) -> Vec<u8> {
        bytes(self.seed.wrapping_add(writer as u64 + 1), self.size)
    }

    fn record(&self, number: usize) -> Vec<u8> {
        bytes(self.seed.wrapping_add(1_000_000 + number as u64), RECORD)
    }
}

fn own_path(folder: &Path, writer: usize) -> PathBuf {
    folder.join(format!("writer-{writer}"))
}

/// Writes everything to a new directory, and syncs it.
///
/// # Errors
/// The first error of any writer.
pub fn write(folder: &Path, order: &Order) -> Result<(), Failure> {
    fs::create_dir(folder).map_err(Failure::at("make", folder))?;
    let shared = folder.join("shared");
    File::create_new(&shared).map_err(Failure::at("make", &shared))?;
    thread::scope(|scope| {
        let writers: Vec<_> = (0..order.count)
            .map(|writer| {
                let shared = &shared;
                scope.spawn(move || one(folder, shared, order, writer))
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| {
                writer
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new("a writer died")))
            })
            .collect::<Result<Vec<()>, _>>()
    })?;
    Ok(())
}

fn one(folder: &Path, shared: &Path, order: &Order, writer: usize) -> Result<(), Failure> {
    let mut rng = fastrand::Rng::with_seed(order.seed ^ writer as u64);
    let path = own_path(folder, writer);
    let own = File::create_new(&path).map_err(Failure::at("make", &path))?;
    let common = OpenOptions::new().write(true).open(shared);
    let common = common.map_err(Failure::at("open", shared))?;
    let content = order.own(writer);
    // The pieces, including the records, are written in random order.
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < content.len() {
        let len = rng.usize(1..=MOST).min(content.len() - at);
        pieces.push((at, len));
        at += len;
    }
    rng.shuffle(&mut pieces);
    let mut records: Vec<_> = (0..order.records)
        .map(|n| n * order.count + writer)
        .collect();
    rng.shuffle(&mut records);
    let per_piece = records.len().div_ceil(pieces.len().max(1));
    let mut records = records.into_iter();
    for (at, len) in pieces {
        own.write_all_at(&content[at..at + len], at as u64)
            .map_err(Failure::at("write", &path))?;
        for number in records.by_ref().take(per_piece) {
            common
                .write_all_at(&order.record(number), (number * RECORD) as u64)
                .map_err(Failure::at("write", shared))?;
        }
    }
    own.sync_all().map_err(Failure::at("sync", &path))?;
    common.sync_all().map_err(Failure::at("sync", shared))
}

/// Compares the files with what was written.
///
/// # Errors
/// The first difference.
pub fn check(folder: &Path, order: &Order) -> Result<(), Failure> {
    for writer in 0..order.count {
        same(&own_path(folder, writer), &order.own(writer))?;
    }
    let records = 0..order.records * order.count;
    let shared: Vec<u8> = records.flat_map(|number| order.record(number)).collect();
    same(&folder.join("shared"), &shared)
}

fn same(path: &Path, wanted: &[u8]) -> Result<(), Failure> {
    let found = fs::read(path).map_err(Failure::at("read", path))?;
    match difference(wanted, &found) {
        None => Ok(()),
        Some((_, text)) => Err(Failure::new(text).within(path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        seed: 9,
        count: 4,
        size: 300_000,
        records: 50,
    };

    #[test]
    fn what_was_written_is_there_and_a_byte_less_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("work");
        write(&folder, &ORDER).unwrap();
        check(&folder, &ORDER).unwrap();
        let shared = OpenOptions::new()
            .write(true)
            .open(folder.join("shared"))
            .unwrap();
        let byte = bytes(ORDER.seed + 1_000_000, 1)[0];
        shared.write_all_at(&[!byte], 0).unwrap();
        let told = check(&folder, &ORDER).unwrap_err().to_string();
        assert!(
            told.contains("shared") && told.contains("the first at 0"),
            "{told}"
        );
    }
}
