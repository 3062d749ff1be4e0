//! Directory trees for tests: creates one with everything that is easily lost, and compares two.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// Returns pseudo-random bytes.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

fn file(path: &Path, len: usize, seed: u64, mode: u32) {
    fs::write(path, noise(len, seed)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Creates a tree at `root`: file sizes around every boundary, a file with holes, modes, times to
/// the nanosecond, symbolic links (one of them dangling), unusual names, a directory of many
/// entries, empty and nested directories.
pub fn make(root: &Path) {
    make_of(root, 500, &[1 << 20, (3 << 20) + 5], 20 << 20);
}

/// Creates a similar tree with a smaller directory, one file that is longer than a single call can
/// carry, and a smaller hole, for tests that copy it many times.
pub fn make_small(root: &Path) {
    make_of(root, 20, &[(1 << 20) + 5], 512 << 10);
}

fn make_of(root: &Path, entries: usize, long: &[usize], holes_len: u64) {
    fs::create_dir(root).unwrap();
    let short = [0, 1, 3, 4, 1023, 4095, 4096, 4097, 65536];
    for (seed, &len) in short.iter().chain(long).enumerate() {
        file(&root.join(format!("size-{len}")), len, seed as u64, 0o644);
    }
    let mut holes = File::create(root.join("holes")).unwrap();
    holes.write_all(&noise(5000, 77)).unwrap();
    holes.seek(SeekFrom::Start(holes_len / 2)).unwrap();
    holes.write_all(&noise(5000, 78)).unwrap();
    holes.set_len(holes_len).unwrap();
    drop(holes);

    for mode in [0o600, 0o755, 0o444, 0o711] {
        file(
            &root.join(format!("mode-{mode:o}")),
            100,
            u64::from(mode),
            mode,
        );
    }
    symlink("size-4096", root.join("link")).unwrap();
    symlink("nowhere/at all", root.join("dangling")).unwrap();

    let names = root.join("names");
    fs::create_dir(&names).unwrap();
    file(&names.join("n".repeat(255)), 10, 1, 0o644);
    file(&names.join("grüße, 世界"), 10, 2, 0o644);
    file(
        &names.join(OsStr::from_bytes(b"not utf-8 \xff\xfe")),
        10,
        3,
        0o644,
    );
    file(&names.join(" two words and a % ? # "), 10, 4, 0o644);

    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for index in 0..entries {
        file(
            &many.join(format!("file-{index:04}")),
            index * 7,
            index as u64,
            0o640,
        );
    }
    fs::create_dir_all(root.join("a/b/c/d/e")).unwrap();
    file(&root.join("a/b/c/d/e/leaf"), 12345, 9, 0o644);
    fs::create_dir(root.join("empty")).unwrap();
    fs::set_permissions(root.join("empty"), Permissions::from_mode(0o700)).unwrap();

    // Deepest first, because a change in a directory changes its time.
    for (index, path) in paths(root).into_iter().rev().enumerate() {
        set_mtime(
            &path,
            1_000_000_000 + index as i64 * 1000,
            123_456_789 + index as i64,
        );
    }
}

/// Creates a flat tree of `count` files of `len` bytes, whose copy takes a while.
pub fn make_flat(root: &Path, count: usize, len: usize) {
    fs::create_dir(root).unwrap();
    for index in 0..count {
        file(&root.join(format!("f{index}")), len, index as u64, 0o644);
    }
}

/// Returns `root` and everything below it, parents before children.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut out = vec![root.to_owned()];
    let mut at = 0;
    while at < out.len() {
        if fs::symlink_metadata(&out[at]).unwrap().is_dir() {
            let entries = fs::read_dir(&out[at]).unwrap();
            let mut children: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            children.sort();
            out.extend(children);
        }
        at += 1;
    }
    out
}

/// The properties that must survive a copy.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    mtime: (i64, i64),
    content: Vec<u8>,
}

fn describe(root: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut out = BTreeMap::new();
    for path in paths(root) {
        let meta = fs::symlink_metadata(&path).unwrap();
        let kind = meta.file_type();
        let (kind, content) = if kind.is_dir() {
            ("directory", Vec::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            ("link", target.as_os_str().as_bytes().to_vec())
        } else {
            ("file", fs::read(&path).unwrap())
        };
        let entry = Entry {
            // The mode of a symbolic link has no meaning.
            mode: if kind == "link" { 0 } else { meta.mode() },
            kind,
            mtime: (meta.mtime(), meta.mtime_nsec()),
            content,
        };
        out.insert(path.strip_prefix(root).unwrap().to_owned(), entry);
    }
    out
}

/// Asserts that two trees have the same names, types, modes, times, contents and link targets.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (describe(left), describe(right));
    for path in left.keys().chain(right.keys()) {
        let (Some(a), Some(b)) = (left.get(path), right.get(path)) else {
            panic!("{} is in one tree only", path.display());
        };
        assert_eq!((a.kind, a.mode), (b.kind, b.mode), "{}", path.display());
        assert_eq!(a.mtime, b.mtime, "{}", path.display());
        assert_eq!(a.content.len(), b.content.len(), "{}", path.display());
        // Finding the position byte by byte takes long in emulation, so equality is checked first.
        if a.content != b.content {
            let differs = a.content.iter().zip(&b.content).position(|(a, b)| a != b);
            panic!("{} differs from byte {differs:?} on", path.display());
        }
    }
}

/// Returns the disk space below `root`, bytes.
pub fn disk_usage(root: &Path) -> u64 {
    paths(root)
        .iter()
        .map(|path| fs::symlink_metadata(path).unwrap().blocks() * 512)
        .sum()
}
