//! Tests of the map of unwritten data, against a model of a server that restarts.

use super::*;

const ALL: Range<u64> = 0..u64::MAX;

fn bytes(byte: u8, len: usize) -> Bytes {
    vec![byte; len].into()
}

fn same(a: &u8, b: &u8) -> bool {
    a == b
}

fn shown(dirty: &Dirty<u8>) -> Vec<(u64, usize, u8)> {
    let kept = dirty.kept(&ALL);
    kept.map(|(at, data)| (at, data.len(), data[0])).collect()
}

#[test]
fn newer_data_replaces_what_it_covers() {
    let mut dirty = Dirty::default();
    dirty.write(10, bytes(1, 10), 0);
    dirty.write(14, bytes(2, 2), 0);
    assert_eq!(shown(&dirty), [(10, 4, 1), (14, 2, 2), (16, 4, 1)]);
    dirty.write(0, bytes(3, 15), 0);
    assert_eq!(shown(&dirty), [(0, 15, 3), (15, 1, 2), (16, 4, 1)]);
    assert_eq!((dirty.dirty(), dirty.end()), (20, 20));
    // Each of the three pieces has a block of its own.
    assert_eq!(dirty.total(), 3 * 4096);
}

/// Regression test: a short remainder counted as little, but keeps the memory of all that was written at once. With
/// many of them, there was no memory left to send any.
#[test]
fn what_remains_of_overwritten_data_counts_with_the_memory_that_it_keeps() {
    const LONG: usize = 32 * 4096;
    let mut dirty = Dirty::default();
    for at in 0..10 {
        dirty.write(at * 4096, bytes(1, LONG), 0);
    }
    assert_eq!(dirty.total(), 10 * LONG);
    // Dividing data changes nothing.
    let batch = dirty.next_batch(11 * 4096, &ALL, same).unwrap();
    assert_eq!(dirty.total(), 10 * LONG);
    dirty.sent(batch.number, 9 * 4096, None);
    assert_eq!(dirty.total(), LONG);
    let mut front = Dirty::default();
    front.write(0, bytes(1, LONG), 0);
    front.write(0, bytes(2, LONG - 1), 0);
    assert_eq!(front.total(), LONG + LONG - 1);
}

#[test]
fn adjoining_pieces_of_one_user_are_one_write_and_no_two_writes_overlap() {
    let mut dirty = Dirty::default();
    dirty.write(0, bytes(1, 4), 0);
    dirty.write(4, bytes(2, 4), 0);
    dirty.write(8, bytes(3, 4), 7);
    let first = dirty.next_batch(100, &ALL, same).unwrap();
    assert_eq!((first.offset, first.len()), (0, 8));
    // Written again while the WRITE is in flight: it has to wait.
    dirty.write(6, bytes(4, 2), 0);
    let second = dirty.next_batch(100, &ALL, same).unwrap();
    assert_eq!((second.offset, second.len(), second.user), (8, 4, 7));
    assert!(dirty.next_batch(100, &ALL, same).is_none());
    dirty.sent(first.number, 8, None);
    let third = dirty.next_batch(100, &ALL, same).unwrap();
    assert_eq!((third.offset, third.len()), (6, 2));
    dirty.sent(second.number, 4, None);
    dirty.sent(third.number, 2, None);
    assert!(dirty.is_empty());
}

#[test]
fn a_short_write_leaves_the_rest_dirty() {
    let mut dirty = Dirty::default();
    dirty.write(0, bytes(1, 10), 0);
    let batch = dirty.next_batch(100, &ALL, same).unwrap();
    dirty.sent(batch.number, 3, Some([1; 8]));
    assert_eq!((dirty.dirty(), dirty.total()), (7, 2 * 4096));
    let batch = dirty.next_batch(100, &ALL, same).unwrap();
    assert_eq!((batch.offset, batch.len()), (3, 7));
}

#[test]
fn a_long_piece_is_cut_at_the_size_of_a_write() {
    let mut dirty = Dirty::default();
    dirty.write(5, bytes(1, 10), 0);
    let one = dirty.next_batch(4, &ALL, same).unwrap();
    let two = dirty.next_batch(4, &ALL, same).unwrap();
    let three = dirty.next_batch(4, &ALL, same).unwrap();
    let sizes = [&one, &two, &three].map(|batch| (batch.offset, batch.len()));
    assert_eq!(sizes, [(5, 4), (9, 4), (13, 2)]);
    assert_eq!(dirty.in_flight(), 3);
}

#[test]
fn only_a_commit_under_the_same_verifier_makes_data_safe() {
    let mut dirty = Dirty::default();
    dirty.write(0, bytes(1, 4), 0);
    dirty.write(100, bytes(2, 4), 0);
    let (a, b) = (
        dirty.next_batch(100, &ALL, same).unwrap(),
        dirty.next_batch(100, &ALL, same).unwrap(),
    );
    dirty.sent(a.number, 4, Some([1; 8]));
    let commit = dirty.now();
    // This reply comes after the COMMIT was sent, which need not cover it.
    dirty.sent(b.number, 4, Some([2; 8]));
    assert_eq!(dirty.committed(commit, &[2; 8]), 4);
    assert_eq!((dirty.dirty(), dirty.uncommitted_bytes()), (4, 4));
    assert_eq!(dirty.committed(dirty.now(), &[2; 8]), 0);
    assert_eq!(shown(&dirty), [(0, 4, 1)]);
}

/// Random writes, WRITEs that end in any order, short writes, failures of none, COMMITs, restarts: at
/// the end of a sync the server has what was written last, and a read sees it at any time.
#[test]
fn whatever_happens_the_last_write_wins() {
    const SIZE: usize = 200;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut dirty = Dirty::default();
        let mut model = vec![0u8; SIZE];
        // What is in the server's memory, and on its disk.
        let (mut server, mut disk) = (vec![0u8; SIZE], vec![0u8; SIZE]);
        let mut verifier = [0u8; 8];
        let mut flying: Vec<Batch<u8>> = Vec::new();
        let mut answered: Vec<(u64, u64, Verifier)> = Vec::new();
        for step in 0..400 {
            let draining = step > 300;
            match random.u32(0..10) {
                0..=3 if !draining => {
                    let at = random.usize(0..SIZE);
                    let len = random.usize(1..=(SIZE - at).min(40));
                    let byte = random.u8(1..);
                    model[at..at + len].fill(byte);
                    dirty.write(at as u64, bytes(byte, len), random.u8(0..2));
                }
                4 | 5 => flying.extend(dirty.next_batch(random.usize(1..64), &ALL, same)),
                6 if !flying.is_empty() => {
                    let batch = flying.swap_remove(random.usize(0..flying.len()));
                    let count = random.usize(1..=batch.len());
                    let at = batch.offset as usize;
                    server[at..at + count].copy_from_slice(&batch.data.concat()[..count]);
                    answered.push((batch.number, count as u64, verifier));
                }
                7 if !answered.is_empty() => {
                    let at = random.usize(0..answered.len());
                    let (number, count, under) = answered.swap_remove(at);
                    dirty.sent(number, count, Some(under));
                }
                8 => {
                    let sent = dirty.now();
                    disk.copy_from_slice(&server);
                    dirty.committed(sent, &verifier);
                }
                9 if !draining && random.u32(0..4) == 0 => {
                    server.copy_from_slice(&disk);
                    verifier[0] = verifier[0].wrapping_add(1);
                }
                _ => {}
            }
            let mut seen = server.clone();
            for (at, data) in dirty.kept(&(0..SIZE as u64)) {
                seen[at as usize..][..data.len()].copy_from_slice(&data);
            }
            assert_eq!(seen, model, "seed {seed}, step {step}");
            let ranges = |batch: &Batch<u8>| batch.range();
            for (index, one) in flying.iter().enumerate() {
                for two in &flying[index + 1..] {
                    let (one, two) = (ranges(one), ranges(two));
                    assert!(one.end <= two.start || two.end <= one.start, "seed {seed}");
                }
            }
        }
        for (number, count, under) in answered {
            dirty.sent(number, count, Some(under));
        }
        for batch in flying {
            dirty.sent(batch.number, 0, None);
        }
        while !dirty.is_empty() {
            while let Some(batch) = dirty.next_batch(64, &ALL, same) {
                let at = batch.offset as usize;
                server[at..at + batch.len()].copy_from_slice(&batch.data.concat());
                dirty.sent(batch.number, batch.len() as u64, Some(verifier));
            }
            disk.copy_from_slice(&server);
            dirty.committed(dirty.now(), &verifier);
        }
        assert_eq!(disk, model, "seed {seed}");
        assert_eq!((dirty.total(), dirty.dirty()), (0, 0));
    }
}
