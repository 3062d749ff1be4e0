//! The generated tree that `compare` copies. It is the same in every run, and is checked after the
//! copy.

use std::fs;
use std::io;
use std::path::Path;

/// The number of directories of the tree below its root.
const DIRECTORIES: usize = 8;
/// The number of files and their size in each directory. As in source trees, most files are small,
/// and most bytes are in a few files.
const FILES: [(usize, usize); 4] = [(16, 700), (8, 6_000), (3, 50_000), (1, 1_500_000)];

/// The size of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The number of files and directories, including the root.
    pub(crate) entries: u64,
    /// The bytes in all files.
    pub(crate) bytes: u64,
}

/// Fills `data` with bytes that depend on their position, so that misplaced data is detected.
fn fill(data: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in data.chunks_mut(8) {
        // xorshift64: fast, and without a pattern.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Lists every file of the tree: its path below the root, its size and its seed.
fn files() -> impl Iterator<Item = (String, usize, u64)> {
    (0..DIRECTORIES).flat_map(|directory| {
        let sizes = FILES
            .into_iter()
            .flat_map(|(count, size)| (0..count).map(move |n| size + 13 * n));
        sizes.enumerate().map(move |(n, size)| {
            let seed = (directory * 1000 + n) as u64;
            (format!("d{directory}/f{n}"), size, seed)
        })
    })
}

/// Creates the tree at `root`, which must not exist yet.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn make(root: &Path) -> io::Result<Extent> {
    fs::create_dir(root)?;
    for directory in 0..DIRECTORIES {
        fs::create_dir(root.join(format!("d{directory}")))?;
    }
    let mut extent = Extent {
        entries: 1 + DIRECTORIES as u64,
        bytes: 0,
    };
    for (path, size, seed) in files() {
        let mut data = vec![0; size];
        fill(&mut data, seed);
        fs::write(root.join(path), data)?;
        extent.entries += 1;
        extent.bytes += size as u64;
    }
    Ok(extent)
}

/// Checks that `root` contains the tree, byte for byte.
///
/// # Errors
/// A difference, or the error of the operating system.
pub(crate) fn check(root: &Path) -> io::Result<()> {
    for (path, size, seed) in files() {
        let mut wanted = vec![0; size];
        fill(&mut wanted, seed);
        if fs::read(root.join(&path))? != wanted {
            let what = format!("{path} is not the file that was copied");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_and_a_missing_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tree");
        let extent = make(&root).unwrap();
        assert_eq!(extent.entries, 1 + 8 + 8 * 28);
        check(&root).unwrap();
        let file = root.join("d3/f20");
        let mut data = fs::read(&file).unwrap();
        data[77] ^= 1;
        fs::write(&file, &data).unwrap();
        assert!(check(&root).unwrap_err().to_string().contains("d3/f20"));
        data[77] ^= 1;
        fs::write(&file, &data).unwrap();
        check(&root).unwrap();
        fs::remove_file(root.join("d0/f0")).unwrap();
        assert!(check(&root).is_err());
    }
}
