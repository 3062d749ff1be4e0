//! Tests of direct I/O: what is written and read is right beside buffered I/O by other programs, and
//! goes the way that its alignment allows.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use bytes::Bytes;
use rdma::Pool;
use rustix::fs::OFlags;

use super::*;

/// The size of the file that is written to, bytes: more than a few pages, and not a whole number.
const SIZE: usize = 100_000;

/// A served directory with direct I/O, and a file in it.
struct Direct {
    fixture: Fixture,
    file: FileId,
    /// The same file on the host, without direct I/O.
    host: File,
    pool: Pool,
    /// Whether the file system has direct I/O.
    supported: bool,
}

fn direct() -> Direct {
    let mut fixture = Fixture::directory();
    fixture.options.direct_io = true;
    fixture.restart();
    let file = fixture.create(&fixture.root(), b"f");
    let path = fixture.host.as_ref().unwrap().path().join("f");
    let open = |flags: OFlags| {
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(flags.bits().cast_signed()).open(&path)
    };
    Direct {
        host: open(OFlags::empty()).unwrap(),
        supported: open(OFlags::DIRECT).is_ok(),
        pool: Pool::new(64 << 20),
        fixture,
        file,
    }
}

impl Direct {
    /// Returns whether the file system has direct I/O. Otherwise, says that the test is left out, or a part
    /// of it.
    fn is_supported(&self) -> bool {
        if !self.supported {
            left_out("a file system with direct I/O for temporary files");
        }
        self.supported
    }

    /// Returns data in memory whose address has the remainder `at` modulo a page.
    fn placed(&self, data: &[u8], at: usize) -> Bytes {
        let mut buf = self.pool.alloc(at + data.len()).unwrap();
        buf[at..].copy_from_slice(data);
        buf.freeze().slice(at..)
    }

    fn write(&self, offset: u64, data: &Bulk, stable: Stable) -> Change<Written> {
        let change = self
            .fixture
            .fs
            .write(&root(), &self.file, offset, data, stable);
        let written = change.result.as_ref().unwrap();
        assert_eq!(written.count as usize, data.len());
        change
    }

    /// Reads into memory whose address has the remainder `at` modulo a page.
    fn read(&self, offset: u64, len: usize, at: usize) -> Vec<u8> {
        let mut buf = self.pool.alloc(at + len).unwrap();
        let buf = &mut buf[at..];
        let read = self
            .fixture
            .fs
            .read(&root(), &self.file, offset, buf)
            .unwrap();
        buf[..read.count as usize].to_vec()
    }

    fn bytes(&self) -> DirectIoBytes {
        self.fixture.fs.direct_io().unwrap()
    }

    /// Returns the content as a program on the host reads it.
    fn on_host(&self) -> Vec<u8> {
        let mut content = vec![0; self.host.metadata().unwrap().len() as usize];
        self.host.read_exact_at(&mut content, 0).unwrap();
        content
    }
}

/// Writes `data` at `offset` of a file with this content.
fn overlay(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
}

#[test]
fn whole_pages_are_written_from_where_they_are_and_the_rest_through_the_cache() {
    let direct = direct();
    if !direct.is_supported() {
        return;
    }
    let data: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    let page = |n: usize| n * 4096;
    // Where in the file, how much, at which address; and what goes in place, from a copy, and
    // through the cache.
    for (offset, len, at, expected) in [
        (0, page(2), 0, [page(2), 0, 0]),
        (page(1), page(4), 0, [page(4), 0, 0]),
        (0, page(1), 3, [0, page(1), 0]),
        (0, page(2) + 10, 0, [page(2), 0, 10]),
        // What follows the head is aligned in memory as it is in the file.
        (10, page(2), 10, [page(1), 0, page(1)]),
        (10, page(2), 11, [0, page(1), page(1)]),
        (page(1) - 1, page(1) + 2, page(1) - 1, [page(1), 0, 2]),
        (10, 100, 0, [0, 0, 100]),
        (page(1), page(1) - 1, 0, [0, 0, page(1) - 1]),
    ] {
        let before = direct.bytes();
        let piece = direct.placed(&data[..len], at);
        direct.write(offset as u64, &piece.into(), Stable::Unstable);
        let after = direct.bytes();
        let went = [
            after.written_in_place - before.written_in_place,
            after.written_copied - before.written_copied,
            after.written_buffered - before.written_buffered,
        ];
        assert_eq!(went, expected.map(|n| n as u64), "{len} at {offset}, {at}");
        let seen = direct.on_host();
        assert_eq!(seen[offset..offset + len], data[..len], "{len} at {offset}");
    }
    // Several pieces, of which the last is not aligned in memory.
    let mut pieces = Bulk::from(direct.placed(&data[..4096], 0));
    pieces.push(direct.placed(&data[4096..8192], 0));
    direct.write(0, &pieces, Stable::Unstable);
    let before = direct.bytes();
    pieces.push(direct.placed(&data[8192..12_288], 1));
    direct.write(0, &pieces, Stable::FileSync);
    assert_eq!(
        direct.bytes().written_copied,
        before.written_copied + 12_288
    );
    assert_eq!(direct.on_host()[..12_288], data[..12_288]);
}

#[test]
fn reads_are_direct_if_they_are_aligned_and_stop_at_the_end() {
    let direct = direct();
    if !direct.is_supported() {
        return;
    }
    assert_eq!(direct.fixture.fs.read_unit(&direct.file), Ok(4096));
    let data: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
    direct.host.write_all_at(&data, 0).unwrap();
    for (offset, len, at, is_direct) in [
        (0, 8192, 0, true),
        (8192, 4096, 0, true),
        (8192, 8192, 0, true),
        (12_288, 4096, 0, true),
        (0, 8192, 7, false),
        (0, 100, 0, false),
        (100, 4096, 0, false),
    ] {
        let before = direct.bytes();
        let got = direct.read(offset as u64, len, at);
        let end = (offset + len).min(data.len());
        assert_eq!(got, data[offset.min(end)..end], "{len} at {offset}");
        let after = direct.bytes();
        let went = [
            after.read_direct - before.read_direct,
            after.read_buffered - before.read_buffered,
        ];
        let expected = match is_direct {
            true => [got.len() as u64, 0],
            false => [0, got.len() as u64],
        };
        assert_eq!(went, expected, "{len} at {offset}, {at}");
    }
}

/// Random writes, reads and truncations, by the server and by a program on the host, compared with a
/// model.
#[test]
fn direct_and_buffered_io_of_one_file_see_each_other() {
    let direct = direct();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let mut content = Vec::new();
    for step in 0..3000 {
        // Half of the offsets and lengths are of whole pages.
        let aligned = |n: usize, whole: bool| if whole { n & !4095 } else { n };
        let offset = aligned(random(SIZE), random(2) == 0);
        let len = aligned(1 + random(30_000), random(2) == 0);
        let at = if random(2) == 0 { 0 } else { random(4096) };
        let data: Vec<u8> = (0..len).map(|n| (n ^ (step * 31)) as u8).collect();
        match random(12) {
            0..4 if len > 0 => {
                let cut = random(len + 1);
                let cut = if random(2) == 0 { cut & !4095 } else { cut };
                let mut pieces = Bulk::from(direct.placed(&data[..cut], at));
                pieces.push(direct.placed(&data[cut..], if random(2) == 0 { 0 } else { at }));
                let stable = match random(8) {
                    0 => Stable::DataSync,
                    _ => Stable::Unstable,
                };
                direct.write(offset as u64, &pieces, stable);
                overlay(&mut content, offset, &data);
            }
            4..6 if len > 0 => {
                direct.host.write_all_at(&data, offset as u64).unwrap();
                overlay(&mut content, offset, &data);
            }
            6 => {
                direct.fixture.set(&direct.file, size(offset as u64));
                content.resize(offset, 0);
            }
            7 => assert_eq!(direct.on_host(), content, "step {step}"),
            _ => {
                let end = (offset + len).min(content.len());
                let expected = &content[offset.min(end)..end];
                assert_eq!(direct.read(offset as u64, len, at), expected, "step {step}");
            }
        }
        assert_eq!(
            direct.fixture.attributes(&direct.file).size,
            content.len() as u64
        );
    }
    assert_eq!(direct.on_host(), content);
    if direct.is_supported() {
        let bytes = direct.bytes();
        let counts = [
            bytes.written_in_place,
            bytes.written_copied,
            bytes.written_buffered,
            bytes.read_direct,
            bytes.read_buffered,
        ];
        assert!(counts.iter().all(|&bytes| bytes > 0), "{bytes:?}");
    }
}

/// Neighbours write ranges that meet within pages, at the same time. Nobody's data may be lost, as it
/// would be if one of them read a page, changed its part and wrote the page back.
#[test]
fn writes_at_the_same_time_that_share_pages_lose_nothing() {
    const WRITERS: usize = 4;
    const LEN: usize = 4096 * 3 + 1000;
    let direct = direct();
    if !direct.is_supported() {
        return;
    }
    let (fs, file) = (&direct.fixture.fs, &direct.file);
    for round in 0..50_u8 {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let data = direct.placed(&[round ^ writer as u8; LEN], writer % 2);
                scope.spawn(move || {
                    let offset = (writer * LEN) as u64;
                    let change = fs.write(&root(), file, offset, &data.into(), Stable::Unstable);
                    assert_eq!(change.result.unwrap().count as usize, LEN);
                });
            }
        });
        for (writer, part) in direct.on_host().chunks(LEN).enumerate() {
            let expected = round ^ writer as u8;
            assert!(
                part.iter().all(|&byte| byte == expected),
                "{round}, {writer}"
            );
        }
    }
}

/// A lone write has exact attributes before and after; buffered writes of other exports always do.
#[test]
fn a_lone_write_has_the_attributes_before_it() {
    let direct = direct();
    if !direct.is_supported() {
        return;
    }
    let data = direct.placed(&[1; 8192], 0);
    for _ in 0..2 {
        let change = direct.write(0, &data.clone().into(), Stable::Unstable);
        assert!(change.wcc.before.is_some() && change.wcc.after.is_some());
    }
}
