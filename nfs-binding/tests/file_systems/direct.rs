//! Tests of direct I/O on file systems of their own: what they ask for, what they refuse, and what they
//! do when they are full.

use nfs_binding::fs::DirectIoBytes;
use rdma::Pool;

use super::*;

fn direct() -> DirectoryOptions {
    DirectoryOptions {
        direct_io: true,
        ..DirectoryOptions::default()
    }
}

/// Returns data at an address whose remainder modulo a page is `at`.
fn placed(pool: &Pool, fill: u8, len: usize, at: usize) -> Bulk {
    let mut buf = pool.alloc(at + len).unwrap();
    buf[at..].fill(fill);
    buf.freeze().slice(at..).into()
}

/// Returns what was written directly and what was not.
fn written(bytes: DirectIoBytes) -> [u64; 3] {
    let DirectIoBytes {
        written_in_place,
        written_copied,
        written_buffered,
        ..
    } = bytes;
    [written_in_place, written_copied, written_buffered]
}

/// Writes and reads a file of the export `directory/export`, which has direct I/O.
fn write_and_read(directory: &Path) {
    let export = directory.join("export");
    fs::write(export.join("f"), b"").unwrap();
    let fs = open(&export, direct());
    let file = look_up(&fs, "f").id;
    let pool = Pool::new(16 << 20);
    let mut expected = Vec::new();
    for (fill, len, at) in [(1, 65_536, 0), (2, 8192, 1), (3, 70_000, 0)] {
        let data = placed(&pool, fill, len, at);
        let offset = expected.len() as u64;
        let change = fs.write(&Caller::root(), &file, offset, &data, Stable::FileSync);
        assert_eq!(change.result.unwrap().count as usize, len);
        expected.resize(expected.len() + len, fill);
        assert_eq!(fs::read(export.join("f")).unwrap(), expected);
    }
    assert_eq!(
        written(fs.direct_io().unwrap()),
        [65_536 + 69_632, 8192, 368]
    );
    let mut buf = pool.alloc(expected.len().next_multiple_of(4096)).unwrap();
    let read = fs.read(&Caller::root(), &file, 0, &mut buf).unwrap();
    assert!(read.eof && buf[..read.count as usize] == expected[..]);
    let bytes = fs.direct_io().unwrap();
    assert_eq!(
        (bytes.read_direct, bytes.read_buffered),
        (expected.len() as u64, 0)
    );
}

#[test]
fn ext4_with_small_blocks_is_written_directly() {
    let setup = "truncate -s 64M image; mkfs.ext4 -q -b 1024 image; mkdir export; \
         mount -o loop image export";
    mounted(
        "direct::ext4_with_small_blocks_is_written_directly",
        setup,
        write_and_read,
    );
}

#[test]
fn xfs_on_a_device_with_large_sectors_is_written_directly() {
    let setup = "truncate -s 400M image; mkdir export; \
         losetup -b 4096 -f --show image > device; mkfs.xfs -q $(cat device); \
         mount $(cat device) export; losetup -d $(cat device)";
    mounted(
        "direct::xfs_on_a_device_with_large_sectors_is_written_directly",
        setup,
        write_and_read,
    );
}

/// ramfs has no direct I/O: what clients do works nevertheless.
#[test]
fn a_file_system_that_refuses_is_served_through_the_page_cache() {
    let name = "direct::a_file_system_that_refuses_is_served_through_the_page_cache";
    mounted(
        name,
        "mkdir export; mount -t ramfs ramfs export",
        |directory| {
            let export = directory.join("export");
            fs::write(export.join("f"), b"").unwrap();
            let options = DirectoryOptions {
                inode_reuse: true,
                ..direct()
            };
            let fs = open(&export, options);
            let file = look_up(&fs, "f").id;
            let pool = Pool::new(1 << 20);
            let data = placed(&pool, 7, 65_536, 0);
            let change = fs.write(&Caller::root(), &file, 0, &data, Stable::FileSync);
            assert_eq!(change.result.unwrap().count, 65_536);
            let mut buf = pool.alloc(65_536).unwrap();
            let read = fs.read(&Caller::root(), &file, 0, &mut buf).unwrap();
            assert!(read.count == 65_536 && buf.iter().all(|&byte| byte == 7));
            assert_eq!(written(fs.direct_io().unwrap()), [0, 0, 65_536]);
            assert_eq!(fs.direct_io().unwrap().read_buffered, 65_536);
        },
    );
}

/// A WRITE that does not fit is reported, and what was confirmed before is there.
#[test]
fn a_full_file_system_is_reported_to_who_writes() {
    let name = "direct::a_full_file_system_is_reported_to_who_writes";
    let setup = "truncate -s 16M image; mkfs.ext4 -q image; mkdir export; \
         mount -o loop image export";
    mounted(name, setup, |directory| {
        let export = directory.join("export");
        let fs = open(&export, direct());
        let pool = Pool::new(16 << 20);
        for (name, at) in [("placed", 0), ("elsewhere", 1)] {
            fs::write(export.join(name), b"").unwrap();
            let file = look_up(&fs, name).id;
            let data = placed(&pool, 7, 1 << 20, at);
            let mut confirmed = 0;
            let error = loop {
                let change = fs.write(&Caller::root(), &file, confirmed, &data, Stable::FileSync);
                match change.result {
                    Ok(written) => confirmed += u64::from(written.count),
                    Err(error) => break error,
                }
                assert!(confirmed < 16 << 20);
            };
            assert_eq!(error, FsError::NoSpace);
            let content = fs::read(export.join(name)).unwrap();
            assert!(
                confirmed > 0 && content.len() as u64 >= confirmed,
                "{confirmed}"
            );
            assert!(content[..confirmed as usize].iter().all(|&byte| byte == 7));
            fs::remove_file(export.join(name)).unwrap();
            settled(&fs, &file).unwrap_err();
        }
    });
}
