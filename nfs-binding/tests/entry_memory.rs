//! Tests that names in the memory file system take no more memory than they count for.
//!
//! This is the only test of its program, because it measures what the whole process allocates, and it
//! runs without the usual harness, whose thread allocates as well.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "the output of the program")]

use nfs_binding::fs::memory::MemoryFs;
use nfs_binding::fs::{Caller, FileSystem, HowToCreate};
use nfs_binding::proto::SetAttributes;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Numbers of names: as many as a table of 2^14 slots holds, which are 7/8 of them, and a few more.
const NAMES: [u32; 2] = [14_336, 15_000];

/// Hard links are the cheapest names, because their object counts once. Their names are short here, so that
/// they add little to what counts.
fn main() {
    for names in NAMES {
        check_names(names);
    }
    println!("test names_take_no_more_memory_than_they_count_for ... ok");
}

#[track_caller]
fn check_names(most: u32) {
    let fs = MemoryFs::new(1 << 30).unwrap();
    let (who, root) = (Caller::root(), fs.root());
    let how = HowToCreate::Guarded(SetAttributes::default());
    let file = fs.create(&who, &root, b"file", &how).result.unwrap().id;
    let made = fs.mkdir(&who, &root, b"dir", &SetAttributes::default());
    let dir = made.result.unwrap().id;
    let (used, allocated) = (fs.used(), MEMORY.current_usage());
    let check = |step: &str, number: u32, names: u64| {
        let counted = fs.used() - used;
        let taken = MEMORY.current_usage().saturating_sub(allocated) as u64;
        // A few names share what the smallest tables take.
        assert!(
            taken <= counted + 512,
            "{step} {number}: {names} names take {taken} bytes and count for {counted}"
        );
    };
    let name = |number: u32| format!("{number:x}");
    let mut names = 0;
    for number in 0..most {
        let linked = fs.link(&who, &file, &dir, name(number).as_bytes());
        linked.result.unwrap();
        names += 1;
        check("after adding", number, names);
    }
    // Names that are removed from the whole directory leave half-empty tables.
    for every in [2, 3, 5, 7, 1] {
        for number in (0..most).filter(|number| every == 1 || number % every != 0) {
            if fs
                .remove(&who, &dir, name(number).as_bytes())
                .result
                .is_ok()
            {
                names -= 1;
            }
            check("after removing", number, names);
        }
    }
    assert_eq!((names, fs.used()), (0, used));
    let left = MEMORY.current_usage().saturating_sub(allocated);
    assert_eq!(left, 0, "bytes of an empty directory");
}
