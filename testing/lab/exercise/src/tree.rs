//! A tree of files of all kinds for copying, and a listing of everything that a copy has to keep.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, chmod, chownat};
use rustix::fs::{mknodat, utimensat};

use crate::Failure;
use crate::content::{bytes, sum, sum_of_file};

/// File sizes at and around limits: empty, less than a word, inline thresholds, pages, segments,
/// rsize.
const SIZES: [usize; 16] = [
    0, 1, 3, 4, 700, 1000, 3900, 4095, 4096, 4097, 8192, 10_001, 65_536, 65_537, 131_072, 300_007,
];
/// One file in this many has a random size up to the second number, bytes.
const LARGE: (usize, usize) = (100, 3 << 20);
/// The number of files per directory, small enough that a thousand files need a tree.
const PER_FOLDER: usize = 40;
/// The modes, including some of files that only root may read. If an ordinary user creates the
/// tree, its owner may read all files, because they could not be copied otherwise.
const MODES: [u32; 7] = [0o644, 0o600, 0o755, 0o444, 0o000, 0o4755, 0o2710];
const OWNER_READS: u32 = 0o400;
/// The modification times are spread over this many seconds, starting at [`OLDEST`].
const YEARS: u64 = 1_500_000_000;
/// A time in 1985, in seconds since 1970.
const OLDEST: u64 = 473_385_600;

/// Creates a tree of `count` files and other objects: nested directories, an empty one, unusual and
/// long names, symbolic and hard links, a pipe. If root creates it, owners are set, and some files
/// are not readable by their owner.
///
/// # Errors
/// The directory exists, or something cannot be created.
pub fn make(folder: &Path, count: usize, seed: u64) -> Result<(), Failure> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut folders = vec![folder.to_path_buf()];
    fs::create_dir(folder).map_err(Failure::at("make", folder))?;
    for number in 0..count {
        if number % PER_FOLDER == 0 && number > 0 {
            let parent = &folders[rng.usize(..folders.len())];
            let path = parent.join(format!("folder {number}"));
            fs::create_dir(&path).map_err(Failure::at("make", &path))?;
            folders.push(path);
        }
        let parent = folders.last().map_or(folder, PathBuf::as_path);
        let path = parent.join(name(number));
        let size = match number % LARGE.0 {
            LAST if LAST + 1 == LARGE.0 => rng.usize(..LARGE.1),
            _ => SIZES[number % SIZES.len()],
        };
        file(&path, size, &mut rng)?;
        links(parent, &path, number)?;
    }
    let (empty, pipe) = (folder.join("empty"), folder.join("pipe"));
    fs::create_dir(&empty).map_err(Failure::at("make", &empty))?;
    stamp(&empty, &mut rng, 0o1777)?;
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o640), 0)
        .map_err(Failure::at("make", &pipe))?;
    stamp(&pipe, &mut rng, 0o640)?;
    // Innermost directories first, because creating an entry changes the directory's time.
    for path in folders.iter().rev() {
        stamp(path, &mut rng, 0o755)?;
    }
    Ok(())
}

/// The last of every hundred files ([`LARGE`]).
const LAST: usize = LARGE.0 - 1;

fn name(number: usize) -> String {
    match number % 97 {
        5 => format!("with blanks and 'quotes' {number}"),
        6 => format!("ünïcödé-{number}"),
        7 => format!("{}{number}", "long".repeat(60)),
        8 => format!("-{number}"),
        9 => format!(".hidden {number}"),
        _ => format!("file{number}"),
    }
}

fn file(path: &Path, size: usize, rng: &mut fastrand::Rng) -> Result<(), Failure> {
    let mut file = File::create(path).map_err(Failure::at("make", path))?;
    file.write_all(&bytes(rng.u64(..), size))
        .map_err(Failure::at("write", path))?;
    let mut mode = MODES[rng.usize(..MODES.len())];
    if !rustix::process::geteuid().is_root() {
        mode |= OWNER_READS;
    }
    stamp(path, rng, mode)
}

/// Sets owner, mode and time.
fn stamp(path: &Path, rng: &mut fastrand::Rng, mode: u32) -> Result<(), Failure> {
    let (uid, gid) = (rng.u32(0..3) * 1000, rng.u32(0..3) * 100);
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(Failure::at("give away", path))?;
    }
    chmod(path, Mode::from_raw_mode(mode)).map_err(Failure::at("set the mode of", path))?;
    set_time(path, OLDEST + rng.u64(..YEARS), rng.u32(..1_000_000_000))
}

fn set_time(path: &Path, seconds: u64, nanoseconds: u32) -> Result<(), Failure> {
    let time = Timespec {
        tv_sec: seconds.try_into().unwrap_or_default(),
        tv_nsec: nanoseconds.into(),
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(Failure::at("set the time of", path))
}

/// Creates a symbolic or hard link to some files.
fn links(parent: &Path, path: &Path, number: usize) -> Result<(), Failure> {
    match number % 50 {
        10 => {
            let link = parent.join(format!("link{number}"));
            let target = path.file_name().map(PathBuf::from).unwrap_or_default();
            symlink(target, &link).map_err(Failure::at("link", &link))?;
            set_time(&link, OLDEST, 123_456_789)
        }
        20 => {
            let link = parent.join(format!("dangling{number}"));
            symlink("no/such/file", &link).map_err(Failure::at("link", &link))?;
            set_time(&link, OLDEST + 1, 1)
        }
        30 => {
            let link = parent.join(format!("hard{number}"));
            fs::hard_link(path, &link).map_err(Failure::at("link", &link))
        }
        _ => Ok(()),
    }
}

/// Lists everything that a copy of a tree keeps, one line for each entry, sorted by name: kind,
/// mode, owner, size, links, modification time to the nanosecond, and the content's checksum or the
/// link's target.
///
/// # Errors
/// Something cannot be read.
pub fn list(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).map_err(Failure::at("look at", &path))?;
        let kind = meta.file_type();
        let (what, content) = if kind.is_dir() {
            for entry in fs::read_dir(&path).map_err(Failure::at("list", &path))? {
                left.push(entry.map_err(Failure::at("list", &path))?.path());
            }
            ("folder", String::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(Failure::at("read", &path))?;
            ("link", target.to_string_lossy().into_owned())
        } else if kind.is_file() {
            ("file", sum_of_file(&path)?)
        } else {
            ("other", String::new())
        };
        let name = path.strip_prefix(folder).unwrap_or(&path);
        // Link count and size of a directory depend on the file system.
        let (size, links) = match what {
            "folder" => (0, 0),
            _ => (meta.size(), meta.nlink()),
        };
        let time = format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
        lines.push(format!(
            "{} {what} {:o} {}:{} {size} {links} {time} {content}",
            name.as_os_str().as_bytes().escape_ascii(),
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid(),
        ));
    }
    lines.sort();
    Ok(lines)
}

/// Returns the checksum of the lines of [`list`].
#[must_use]
pub fn sum_of_list(lines: &[String]) -> String {
    sum(lines.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Writes directly to stderr, because `eprintln!` is captured while a test succeeds.
    fn say_what_is_left_out() {
        if !rustix::process::geteuid().is_root() {
            let text =
                b"left out, for it needs root: owners, and files that their owner may not read\n";
            std::io::stderr().write_all(text).unwrap();
        }
    }

    fn sum_of(folder: &Path) -> String {
        sum_of_list(&list(folder).unwrap())
    }

    #[test]
    fn a_copy_is_the_same_and_any_change_shows() {
        say_what_is_left_out();
        let folder = tempfile::tempdir().unwrap();
        let (tree, copy) = (folder.path().join("tree"), folder.path().join("copy"));
        make(&tree, 120, 3).unwrap();
        let status = Command::new("cp").arg("-a").args([&tree, &copy]).status();
        assert!(status.unwrap().success());
        let wanted = sum_of(&tree);
        assert_eq!(sum_of(&copy), wanted);
        let path = copy.join("file1");
        let meta = fs::metadata(&path).unwrap();
        set_time(&path, OLDEST, 1).unwrap();
        assert_ne!(sum_of(&copy), wanted, "time");
        let time = (
            meta.mtime().try_into().unwrap(),
            meta.mtime_nsec().try_into().unwrap(),
        );
        set_time(&path, time.0, time.1).unwrap();
        assert_eq!(sum_of(&copy), wanted);
        chmod(&path, Mode::from_raw_mode(0o611)).unwrap();
        assert_ne!(sum_of(&copy), wanted, "mode");
    }

    #[test]
    fn a_seed_makes_the_same_tree() {
        let folder = tempfile::tempdir().unwrap();
        let trees = ["one", "two", "three"].map(|name| folder.path().join(name));
        for (tree, seed) in trees.iter().zip([3, 3, 4]) {
            make(tree, 60, seed).unwrap();
        }
        let sums = trees.map(|tree| sum_of(&tree));
        assert_eq!(sums[0], sums[1]);
        assert_ne!(sums[0], sums[2]);
    }
}
