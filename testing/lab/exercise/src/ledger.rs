//! Checks that data acknowledged by fsync survives a crash of the server. A writer keeps a ledger
//! of the acknowledged data on another disk, and a checker compares files with the ledger.
//!
//! | line of the ledger | meaning |
//! |---|---|
//! | `write FILE OFFSET LEN SEED` | is about to write; may be lost, wholly or in part |
//! | `synced FILE` | all writes to this file so far are promised |
//!
//! If a server crashes between two writes and the next fsync, the client must send both again,
//! because the restarted server has another write verifier.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::content::bytes;

/// The maximum length of a write, bytes.
const MOST: usize = 30_000;
/// The size of the files, bytes.
const SIZE: usize = 400_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of writes.
    pub count: u64,
    /// The number of files.
    pub files: u64,
    /// A pause after each fsync, so that the server can crash during the run.
    pub pause: Duration,
}

/// Writes, syncs and records, with new files in an existing directory. The ledger is created anew.
/// Everything is synced at the end. Returns the longest time that a call to the file system took.
///
/// # Errors
/// The first call that fails.
pub fn write(folder: &Path, ledger: &Path, order: &Order) -> Result<Duration, Failure> {
    let mut longest = Duration::ZERO;
    let mut begun = Instant::now();
    let mut rng = fastrand::Rng::with_seed(order.seed);
    let mut notes = File::create(ledger).map_err(Failure::at("make", ledger))?;
    let mut note = |line: String| {
        let line = line + "\n";
        notes
            .write_all(line.as_bytes())
            .map_err(Failure::at("write", ledger))
    };
    let mut files = BTreeMap::new();
    for number in 0..order.count {
        // Files are created one after the other, so that some are created after the server has
        // crashed.
        let made = (number * order.files / order.count + 1).min(order.files);
        let name = rng.u64(..made);
        let path = file_path(folder, name);
        let file = match files.entry(name) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).open(&path);
                entry.insert(file.map_err(Failure::at("make", &path))?)
            }
        };
        let (offset, seed) = (rng.usize(..SIZE - MOST), rng.u64(..));
        let len = rng.usize(1..=MOST);
        longest = longest.max(begun.elapsed());
        note(format!("write {name} {offset} {len} {seed}"))?;
        begun = Instant::now();
        file.write_all_at(&bytes(seed, len), offset as u64)
            .map_err(Failure::at("write", &path))?;
        if rng.u8(..3) > 0 {
            file.sync_all().map_err(Failure::at("sync", &path))?;
            longest = longest.max(begun.elapsed());
            note(format!("synced {name}"))?;
            thread::sleep(order.pause);
            begun = Instant::now();
        }
    }
    for (name, file) in files {
        let path = file_path(folder, name);
        file.sync_all().map_err(Failure::at("sync", &path))?;
        longest = longest.max(begun.elapsed());
        note(format!("synced {name}"))?;
        begun = Instant::now();
    }
    Ok(longest)
}

fn file_path(folder: &Path, name: u64) -> PathBuf {
    folder.join(format!("ledger-{name}"))
}

/// The knowledge about a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The byte must have this value.
    Promised(u8),
    /// The byte may have been changed by a write that was not synced.
    Open,
}

/// The content of a file according to the ledger.
#[derive(Debug, Default)]
struct Account {
    bytes: Vec<Known>,
    /// The writes since the last sync.
    open: Vec<(usize, Vec<u8>)>,
    is_synced: bool,
}

impl Account {
    fn set(&mut self, offset: usize, bytes: impl ExactSizeIterator<Item = Known>) {
        let end = offset + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, Known::Promised(0));
        }
        for (slot, known) in self.bytes[offset..end].iter_mut().zip(bytes) {
            *slot = known;
        }
    }

    fn sync(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.open) {
            self.set(offset, bytes.into_iter().map(Known::Promised));
        }
        self.is_synced = true;
    }
}

/// Compares files with the ledger of their writer. Returns the number of acknowledged writes.
///
/// # Errors
/// The first acknowledged byte with another value, with its file and offset; or a ledger that
/// cannot be read, or contains no acknowledged write.
pub fn check(folder: &Path, ledger: &Path) -> Result<u64, Failure> {
    let text = fs::read_to_string(ledger).map_err(Failure::at("read", ledger))?;
    let (mut accounts, mut promised) = (BTreeMap::<u64, Account>::new(), 0);
    // An incomplete last line was not acted on.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let odd = || Failure::new(format!("the ledger says `{line}`"));
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let name = number(1).ok_or_else(odd)?;
        let account = accounts.entry(name).or_default();
        match words[0] {
            "write" => {
                let offset = number(2).and_then(|offset| usize::try_from(offset).ok());
                let len = number(3).and_then(|len| usize::try_from(len).ok());
                let (offset, len) = (offset.ok_or_else(odd)?, len.ok_or_else(odd)?);
                account
                    .open
                    .push((offset, bytes(number(4).ok_or_else(odd)?, len)));
            }
            "synced" => {
                promised += account.open.len() as u64;
                account.sync();
            }
            _ => return Err(odd()),
        }
    }
    if promised == 0 {
        return Err(Failure::new("the ledger promises nothing"));
    }
    for (name, mut account) in accounts {
        let promised_len = account.bytes.len();
        for (offset, bytes) in std::mem::take(&mut account.open) {
            account.set(offset, bytes.into_iter().map(|_| Known::Open));
        }
        if account.is_synced {
            compare(&file_path(folder, name), &account.bytes, promised_len)?;
        }
    }
    Ok(promised)
}

fn compare(path: &Path, wanted: &[Known], promised_len: usize) -> Result<(), Failure> {
    let found = fs::read(path).map_err(Failure::at("read", path))?;
    if found.len() < promised_len || found.len() > wanted.len() {
        let sizes = format!("{promised_len} to {}", wanted.len());
        let text = format!("{} bytes, {sizes} were wanted", found.len());
        return Err(Failure::new(text).within(path.display()));
    }
    let wrong = wanted
        .iter()
        .zip(&found)
        .position(|(known, found)| match known {
            Known::Promised(byte) => byte != found,
            Known::Open => false,
        });
    match wrong {
        None => Ok(()),
        Some(at) => {
            let text = format!(
                "byte {at} is {:#04x}, {:?} was synced",
                found[at], wanted[at]
            );
            Err(Failure::new(text).within(path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order {
        seed: 5,
        count: 200,
        files: 4,
        pause: Duration::ZERO,
    };

    #[test]
    fn a_whole_ledger_is_kept_and_a_lost_write_shows() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        write(folder.path(), &ledger, &ORDER).unwrap();
        assert_eq!(check(folder.path(), &ledger).unwrap(), ORDER.count);
        let text = fs::read_to_string(&ledger).unwrap();
        let last = text
            .lines()
            .rfind(|line| line.starts_with("write"))
            .unwrap();
        let words: Vec<_> = last.split(' ').collect();
        let path = file_path(folder.path(), words[1].parse().unwrap());
        let offset: usize = words[2].parse().unwrap();
        let mut content = fs::read(&path).unwrap();
        content[offset] ^= 1;
        fs::write(&path, content).unwrap();
        let told = check(folder.path(), &ledger).unwrap_err().to_string();
        assert!(told.contains(&format!("byte {offset}")), "{told}");
    }

    #[test]
    fn what_was_not_synced_may_be_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        let note = "write 0 0 8 1\nsynced 0\nwrite 0 4 8 2\nsynced";
        fs::write(&ledger, note).unwrap();
        let path = file_path(folder.path(), 0);
        let (one, two) = (bytes(1, 8), bytes(2, 8));
        for content in [
            one.clone(),
            [&one[..4], &two].concat(),
            [&one[..4], &two[..5]].concat(),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(check(folder.path(), &ledger).unwrap(), 1);
        }
        for content in [
            two.clone(),
            one[..7].to_vec(),
            [&one[..4], &two, &two].concat(),
        ] {
            fs::write(&path, content).unwrap();
            assert!(check(folder.path(), &ledger).is_err());
        }
    }
}
