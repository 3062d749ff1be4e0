//! Operations on names while files are open, and other operations of programs on names and
//! attributes.
//!
//! An NFSv3 server does not know open files: if a file is unlinked while it is open, the client
//! renames it, and removes it when it is closed. A program must see the same as on a local file
//! system.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Access, access};

use crate::Failure;

/// The number of entries of a directory that is removed while it is listed: more than a READDIR
/// reply can hold.
const MANY: usize = 500;
/// The longest time until a client has removed a file for good that was unlinked while it was open.
const REMOVED: Duration = Duration::from_secs(10);

type Part = fn(&Path) -> Result<(), Failure>;

/// The parts of the exercise, by name.
const PARTS: [(&str, Part); 9] = [
    ("unlink an open file", unlink_open),
    ("rename an open file", rename_open),
    ("rename over an open file", rename_over_open),
    ("move folders", move_folders),
    ("count links", count_links),
    ("remove while listing", remove_while_listing),
    ("create exclusively", create_exclusively),
    ("append by two", append_by_two),
    ("set attributes", set_attributes),
];

/// Runs all parts in a new directory, which is removed afterwards.
///
/// # Errors
/// The first difference from a local file system.
pub fn run(folder: &Path) -> Result<(), Failure> {
    for (name, part) in PARTS {
        fs::create_dir(folder).map_err(Failure::at("make", folder))?;
        part(folder).map_err(|failure| failure.within(name))?;
        empty(folder).map_err(|failure| failure.within(name))?;
        // Fails if the part left an entry.
        fs::remove_dir(folder)
            .map_err(|error| Failure::at("remove", folder)(error).within(name))?;
    }
    Ok(())
}

fn holds<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), Failure> {
    if found == wanted {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{what}: {found:?}, wanted {wanted:?}"
    )))
}

/// Checks that a part has left nothing. Linux's client renames an open file that is unlinked to `.nfs...`, and
/// removes that in the background after the last close.
fn empty(folder: &Path) -> Result<(), Failure> {
    let until = Instant::now() + REMOVED;
    loop {
        let entries = fs::read_dir(folder).map_err(Failure::at("list", folder))?;
        let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        let in_background = names
            .iter()
            .all(|name| name.as_bytes().starts_with(b".nfs"));
        if names.is_empty() || !in_background || Instant::now() > until {
            return holds("left over", names, Vec::new());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::at("write", path))
}

fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(Failure::at("read", path))
}

fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::rename(from, to).map_err(Failure::at("rename", from))
}

fn unlink(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(Failure::at("unlink", path))
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(Failure::at("open", path))
}

fn all(file: &mut File) -> Result<String, Failure> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.read_to_string(&mut text))
        .map_err(|error| Failure::new(format!("read an open file: {error}")))?;
    Ok(text)
}

fn unlink_open(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("file");
    put(&path, "before")?;
    let mut file = open(&path)?;
    unlink(&path)?;
    holds("it is there", path.exists(), false)?;
    holds("read", all(&mut file)?, "before".to_owned())?;
    file.write_all(b" and after")
        .map_err(Failure::at("write", &path))?;
    file.sync_all().map_err(Failure::at("sync", &path))?;
    holds("read", all(&mut file)?, "before and after".to_owned())?;
    // The name is free.
    put(&path, "another")?;
    holds("read", all(&mut file)?, "before and after".to_owned())?;
    drop(file);
    holds("the other", text(&path)?, "another".to_owned())?;
    unlink(&path)
}

fn rename_open(folder: &Path) -> Result<(), Failure> {
    let (one, two) = (folder.join("one"), folder.join("two"));
    put(&one, "text")?;
    let mut file = open(&one)?;
    rename(&one, &two)?;
    holds("the old name is there", one.exists(), false)?;
    holds("read", all(&mut file)?, "text".to_owned())?;
    file.write_all(b" more")
        .map_err(Failure::at("write", &two))?;
    file.sync_all().map_err(Failure::at("sync", &two))?;
    holds("by its new name", text(&two)?, "text more".to_owned())?;
    drop(file);
    unlink(&two)
}

fn rename_over_open(folder: &Path) -> Result<(), Failure> {
    let (one, two) = (folder.join("one"), folder.join("two"));
    put(&one, "first")?;
    put(&two, "second")?;
    let mut second = open(&two)?;
    rename(&one, &two)?;
    holds("the old one, open", all(&mut second)?, "second".to_owned())?;
    holds("by name", text(&two)?, "first".to_owned())?;
    drop(second);
    unlink(&two)
}

fn move_folders(folder: &Path) -> Result<(), Failure> {
    let [a, b] = ["a", "b"].map(|name| folder.join(name));
    for path in [&a, &b, &a.join("inner")] {
        fs::create_dir(path).map_err(Failure::at("make", path))?;
    }
    put(&a.join("inner/file"), "deep")?;
    rename(&a.join("inner"), &b.join("moved"))?;
    holds("deep", text(&b.join("moved/file"))?, "deep".to_owned())?;
    // Its `..` leads to its new parent.
    let up = fs::metadata(b.join("moved/..")).map_err(Failure::at("look at", &b))?;
    let there = fs::metadata(&b).map_err(Failure::at("look at", &b))?;
    holds("its parent", up.ino(), there.ino())?;
    let error = fs::rename(&b, b.join("moved/b")).map_err(|error| error.kind());
    holds("into itself", error, Err(ErrorKind::InvalidInput))?;
    let error = fs::remove_dir(&b).map_err(|error| error.kind());
    holds("not empty", error, Err(ErrorKind::DirectoryNotEmpty))?;
    // An empty directory is replaced.
    rename(&b.join("moved"), &a)?;
    holds("deep", text(&a.join("file"))?, "deep".to_owned())?;
    fs::remove_dir_all(&a).map_err(Failure::at("remove", &a))?;
    fs::remove_dir(&b).map_err(Failure::at("remove", &b))
}

fn count_links(folder: &Path) -> Result<(), Failure> {
    let (one, two) = (folder.join("one"), folder.join("two"));
    put(&one, "text")?;
    fs::hard_link(&one, &two).map_err(Failure::at("link", &two))?;
    let meta = |path: &Path| fs::metadata(path).map_err(Failure::at("look at", path));
    holds("links", meta(&one)?.nlink(), 2)?;
    holds("the same", meta(&one)?.ino(), meta(&two)?.ino())?;
    let error = fs::hard_link(&one, &two).map_err(|error| error.kind());
    holds("over a name", error, Err(ErrorKind::AlreadyExists))?;
    unlink(&one)?;
    holds("links", meta(&two)?.nlink(), 1)?;
    holds("text", text(&two)?, "text".to_owned())?;
    unlink(&two)
}

fn remove_while_listing(folder: &Path) -> Result<(), Failure> {
    for number in 0..MANY {
        let path = folder.join(format!("a name that fills the reply {number}"));
        File::create_new(&path).map_err(Failure::at("make", &path))?;
    }
    let mut seen = 0;
    for entry in fs::read_dir(folder).map_err(Failure::at("list", folder))? {
        unlink(&entry.map_err(Failure::at("list", folder))?.path())?;
        seen += 1;
    }
    holds("entries", seen, MANY)
}

fn create_exclusively(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("file");
    let file = File::create_new(&path).map_err(Failure::at("make", &path))?;
    let again = File::create_new(&path)
        .map(drop)
        .map_err(|error| error.kind());
    holds("again", again, Err(ErrorKind::AlreadyExists))?;
    // The times contain the verifier of the call until the client sets them.
    let meta = file.metadata().map_err(Failure::at("look at", &path))?;
    let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
    let is_new = age.is_none_or(|age| age < Duration::from_secs(3600));
    holds("it is new", is_new, true)?;
    holds("size", meta.len(), 0)?;
    unlink(&path)
}

fn append_by_two(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("log");
    let appender = || {
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.map_err(Failure::at("open", &path))
    };
    let mut files = [appender()?, appender()?];
    let mut wanted = String::new();
    for number in 0..50 {
        let line = format!("line {number}\n");
        files[number % 2]
            .write_all(line.as_bytes())
            .map_err(Failure::at("write", &path))?;
        wanted.push_str(&line);
    }
    holds("lines", text(&path)?, wanted)?;
    unlink(&path)
}

fn set_attributes(folder: &Path) -> Result<(), Failure> {
    let path = folder.join("file");
    put(&path, "0123456789")?;
    let file = open(&path)?;
    let meta = || fs::metadata(&path).map_err(Failure::at("look at", &path));
    let changed = meta()?.ctime();
    fs::set_permissions(&path, Permissions::from_mode(0o640))
        .map_err(Failure::at("set the mode of", &path))?;
    holds("mode", meta()?.mode() & 0o7777, 0o640)?;
    holds("changed again", meta()?.ctime() >= changed, true)?;
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
    file.set_modified(time)
        .map_err(Failure::at("set the time of", &path))?;
    holds("time", meta()?.modified().ok(), Some(time))?;
    file.set_len(4).map_err(Failure::at("truncate", &path))?;
    holds("size", meta()?.len(), 4)?;
    holds("a new time", meta()?.modified().ok() > Some(time), true)?;
    file.set_len(6).map_err(Failure::at("lengthen", &path))?;
    let mut bytes = [1; 6];
    file.read_exact_at(&mut bytes, 0)
        .map_err(Failure::at("read", &path))?;
    holds("bytes", &bytes, b"0123\0\0")?;
    access(&path, Access::READ_OK).map_err(Failure::at("ask for access to", &path))?;
    // Not even root may execute a file without any execute permission.
    holds("executable", access(&path, Access::EXEC_OK).is_ok(), false)?;
    unlink(&path)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_local_file_system_is_as_it_should_be() {
        let folder = tempfile::tempdir().unwrap();
        super::run(&folder.path().join("work")).unwrap();
    }

    #[test]
    fn what_is_left_over_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".nfs1"), "").unwrap();
        let told = super::empty(folder.path()).unwrap_err().to_string();
        assert!(told.contains(".nfs1"), "{told}");
    }
}
