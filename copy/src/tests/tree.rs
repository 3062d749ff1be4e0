//! Creates a tree of unusual files and compares trees. Also used by the tests that run a server of
//! their own.
#![allow(unreachable_pub, missing_docs, reason = "used in two crates")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mknodat, utimensat};
use tempfile::TempDir;

/// Returns whether the tests run as root, who may read and write regardless of the mode. If not, a
/// line on stderr says what is skipped.
pub fn is_root(otherwise: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        // `eprintln!` is captured while a test succeeds.
        let line = format!("left out, for it needs root: {otherwise}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    root
}

/// A temporary directory. It is removed at the end even if an ordinary user has created unwritable
/// directories in it.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        make_writable(self.path());
    }
}

/// Makes every file and directory of a tree writable by its owner, so that an ordinary user can
/// empty or overwrite it. Does as much as can be done: it runs in a destructor, where a panic would
/// end all tests.
pub fn make_writable(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if !meta.is_dir() && !meta.is_file() {
        return;
    }
    if meta.mode() & 0o200 == 0 {
        let mode = meta.mode() | if meta.is_dir() { 0o700 } else { 0o200 };
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
    if meta.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            make_writable(&entry.path());
        }
    }
}

/// The attributes of an object that a copy keeps.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    content: Content,
    /// The first of the object's names, if it has several.
    same_as: Option<PathBuf>,
}

#[derive(PartialEq, Eq)]
pub enum Content {
    Data(Vec<u8>),
    Link(Vec<u8>),
    Nothing,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Data(data) => write!(f, "Data({} bytes, {:08x})", data.len(), sum(data)),
            Self::Link(text) => write!(f, "Link({})", text.escape_ascii()),
            Self::Nothing => write!(f, "Nothing"),
        }
    }
}

fn sum(data: &[u8]) -> u32 {
    data.iter()
        .fold(0, |sum: u32, &byte| sum.rotate_left(5) ^ u32::from(byte))
}

/// Returns everything that a copy keeps of a tree.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, Kept> {
    let mut tree = BTreeMap::new();
    let mut seen = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    let mut found = Vec::new();
    // Joining an empty path would add a slash at the end.
    let full = |path: &Path| match path.as_os_str().is_empty() {
        true => root.to_path_buf(),
        false => root.join(path),
    };
    while let Some(path) = todo.pop() {
        let full = full(&path);
        if fs::symlink_metadata(&full).unwrap().is_dir() {
            let entries = fs::read_dir(&full).unwrap();
            todo.extend(entries.map(|entry| path.join(entry.unwrap().file_name())));
        }
        found.push(path);
    }
    found.sort();
    for path in found {
        let full = full(&path);
        let meta = fs::symlink_metadata(&full).unwrap();
        let file_type = meta.file_type();
        let content = if file_type.is_symlink() {
            Content::Link(fs::read_link(&full).unwrap().into_os_string().into_vec())
        } else if file_type.is_file() {
            Content::Data(fs::read(&full).unwrap())
        } else {
            Content::Nothing
        };
        let first = seen
            .entry((meta.dev(), meta.ino()))
            .or_insert_with(|| path.clone());
        let same_as = (*first != path).then(|| first.clone());
        let kept = Kept {
            // The mode of a symbolic link has no meaning.
            mode: if file_type.is_symlink() {
                0
            } else {
                meta.mode()
            },
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            content,
            same_as,
        };
        tree.insert(path, kept);
    }
    tree
}

#[track_caller]
pub fn same_trees(left: &Path, right: &Path) {
    let (left, right) = (snapshot(left), snapshot(right));
    for (path, kept) in &left {
        assert_eq!(Some(kept), right.get(path), "{}", path.display());
    }
    assert_eq!(left.len(), right.len());
}

pub fn set_mtime(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn pattern(len: usize) -> Vec<u8> {
    // The period is prime, so a piece in the wrong place is detected.
    (0..len).map(|at| (at % 251) as u8 + 1).collect()
}

/// Creates a tree of unusual files. Only root can read one of them; if an ordinary user creates the
/// tree, its owner may read it too.
pub fn make_odd_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    for len in [0, 1, 4095, 4096, 4097, 100_000, 300_001] {
        fs::write(root.join(format!("len-{len}")), pattern(len)).unwrap();
    }
    let unreadable = match is_root("a file that its owner may not read") {
        true => 0o000,
        false => 0o400,
    };
    for (name, mode) in [("read-only", 0o444), ("suid", 0o4755), ("none", unreadable)] {
        let path = root.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    let names = root.join("names");
    fs::create_dir(&names).unwrap();
    let odd: [&[u8]; 6] = [
        b"\xff\xfe\x80",
        b"new\nline",
        b"-rf",
        b" ",
        b"...",
        "ünïcode\u{301}".as_bytes(),
    ];
    for name in odd {
        fs::write(names.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(names.join("n".repeat(255)), "long").unwrap();

    let links = root.join("links");
    fs::create_dir(&links).unwrap();
    symlink("nowhere", links.join("dangling")).unwrap();
    symlink("/etc/passwd", links.join("absolute")).unwrap();
    symlink("../names", links.join("relative")).unwrap();
    symlink(OsStr::from_bytes(b"\xfe/\xff"), links.join("bytes")).unwrap();
    symlink("x/".repeat(1500), links.join("long")).unwrap();
    set_mtime(&links.join("dangling"), 1_000_000_000, 7);

    let hard = root.join("hard");
    fs::create_dir_all(hard.join("below")).unwrap();
    fs::write(hard.join("one"), pattern(9000)).unwrap();
    for name in ["two", "below/three", "below/four"] {
        fs::hard_link(hard.join("one"), hard.join(name)).unwrap();
    }
    mknodat(
        CWD,
        hard.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    fs::hard_link(hard.join("fifo"), hard.join("fifo too")).unwrap();
    let socket = rustix::fs::FileType::Socket;
    mknodat(CWD, hard.join("socket"), socket, Mode::RWXU, 0).unwrap();

    let sparse = root.join("sparse");
    fs::create_dir(&sparse).unwrap();
    let middle = fs::File::create(sparse.join("middle")).unwrap();
    middle.write_all_at(&pattern(10_000), 1 << 20).unwrap();
    middle.write_all_at(b"x", (2 << 20) + 5).unwrap();
    middle.set_len(3 << 20).unwrap();
    let all = fs::File::create(sparse.join("all")).unwrap();
    all.set_len(5 << 20).unwrap();
    fs::write(sparse.join("zeroes"), vec![0; 50_000]).unwrap();

    let mut deep = root.join("deep");
    for level in 0..60 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "bottom").unwrap();

    let locked = root.join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(locked.join("file"), "in a read-only directory").unwrap();
    set_mtime(&locked.join("file"), 1_234_567_890, 123_456_789);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    set_mtime(&locked, 1, 999_999_999);
    set_mtime(root, i64::from(u32::MAX), 1);
}
