//! The tree that `compare` copies: generated, the same in every run, and checked after the copy.

use std::fs;
use std::io;
use std::path::Path;

/// Directories of the tree below its root.
const DIRECTORIES: usize = 8;
/// Files and their sizes in each directory: as in source trees, most are small and most bytes are
/// in a few.
const FILES: [(usize, usize); 4] = [(16, 700), (8, 6_000), (3, 50_000), (1, 1_500_000)];

/// What the tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Files and directories, the root included.
    pub(crate) entries: u64,
    /// Bytes in all files.
    pub(crate) bytes: u64,
}

/// Bytes that depend on their place, so that none can be taken for another.
fn fill(data: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in data.chunks_mut(8) {
        // xorshift64: fast, and not a pattern that anything would find.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Every file of the tree: its path below the root, its size and its seed.
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

/// Makes the tree at `root`, which does not exist yet.
///
/// # Errors
/// What the operating system refused.
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

/// Checks that `root` holds the tree, byte for byte.
///
/// # Errors
/// What differs, or what the operating system refused.
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
