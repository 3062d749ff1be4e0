use rpcrdma_host::Budget;

use super::*;

#[test]
fn what_is_given_back_is_free_memory_alone() {
    let pool = Pool::new(1 << 20);
    let mut used = pool.alloc(5000).unwrap();
    used.fill(7);
    drop((pool.alloc(100).unwrap(), pool.alloc(70_000).unwrap()));
    assert_eq!(pool.shared.state().kept, 4096 + (128 << 10));
    pool.give_back();
    assert_eq!(pool.shared.state().kept, 0);
    assert_eq!(pool.in_use(), 8192);
    assert!(used.iter().all(|&byte| byte == 7));
    drop(used);
    pool.give_back();
    assert_eq!(pool.shared.state().kept, 0);
    assert_eq!(pool.alloc(100).unwrap().len(), 100);
}

#[test]
fn pieces_are_disjoint_and_join_in_order_only() {
    let pool = Pool::new(1 << 20);
    let mut first = pool.alloc(10).unwrap();
    let mut second = first.split_off(4);
    let third = second.split_off(3);
    first.fill(1);
    second.fill(2);
    let third = first.unsplit(third).unwrap_err();
    first.unsplit(second).unwrap();
    first.unsplit(third).unwrap();
    assert_eq!(first.len(), 10);
    assert_eq!(first[..7], [1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn a_renewed_pool_is_like_a_new_one_but_reuses_the_memory() {
    let pool = Pool::new(1 << 20);
    let mut first = pool.alloc(5000).unwrap();
    first.fill(7);
    let other = pool.clone();
    drop(first);
    assert!(pool.renewed(1).is_none(), "another handle is left");
    let buf = other.alloc(1).unwrap();
    assert!(other.renewed(1).is_none(), "a buffer is left");
    drop(buf);
    let pool = Pool::new(1 << 20);
    for len in [5000, 1 << 20] {
        pool.alloc(len).unwrap().fill(9);
    }
    let pool = pool.renewed(8192).unwrap();
    assert_eq!((pool.in_use(), pool.limit()), (0, 8192));
    assert!(pool.alloc(8193).is_err());
    let again = pool.alloc(5000).unwrap();
    assert!(again.iter().all(|&byte| byte == 0));
    assert!(pool.alloc(1).is_err(), "all of it is in use");
}

#[test]
fn only_a_sole_owner_grows_again_and_only_within_its_block() {
    let pool = Pool::new(1 << 20);
    let mut buf = pool.alloc(5000).unwrap();
    buf.truncate(10);
    assert!(!buf.regrow(9), "that would be truncation");
    assert!(!buf.regrow(8193));
    assert!(buf.regrow(5000));
    assert_eq!(buf.len(), 5000);
    let rest = buf.split_off(100);
    buf.truncate(10);
    assert!(!buf.regrow(100), "the rest of the block is somebody's");
    drop(rest);
    assert!(buf.regrow(8192));
    let mut tail = buf.split_off(8000);
    drop(buf);
    assert!(!tail.regrow(193));
    assert!(tail.regrow(192));
}

#[test]
fn memory_comes_back_when_the_last_slice_goes() {
    let pool = Pool::new(8192);
    let mut buf = pool.alloc(5000).unwrap();
    assert_eq!(pool.in_use(), 8192);
    assert_eq!(pool.alloc(1).unwrap_err().in_use, 8192);
    buf.truncate(100);
    let bytes = buf.freeze();
    let tail = bytes.slice(50..);
    drop(bytes);
    assert_eq!(pool.in_use(), 8192);
    drop(tail);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn memory_returns_to_the_pool_from_other_threads() {
    let pool = Pool::new(1 << 20);
    let (give, take) = std::sync::mpsc::channel::<Bytes>();
    let reader = std::thread::spawn(move || {
        let sum = |bytes: Bytes| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        take.into_iter().map(sum).sum::<u64>()
    });
    for n in 0..20 {
        let mut left = pool.alloc(100).unwrap();
        let mut right = left.split_off(40);
        left.fill(n);
        right.fill(1);
        give.send(left.freeze()).unwrap();
        give.send(right.freeze()).unwrap();
    }
    drop(give);
    assert_eq!(reader.join().unwrap(), 40 * 190 + 20 * 60);
    assert_eq!(pool.in_use(), 0);
}

/// Records what the pool reports, and refuses memory longer than `most`, or more than `total`.
#[derive(Default)]
struct Notes {
    most: usize,
    total: Option<usize>,
    known: Mutex<Vec<(usize, usize)>>,
}

impl Registrar for Notes {
    fn obtained(&self, start: NonNull<u8>, len: usize) -> bool {
        let mut known = self.known.lock().unwrap();
        known.push((start.as_ptr() as usize, len));
        let all: usize = known.iter().map(|(_, len)| len).sum();
        let fits = len <= self.most && self.total.is_none_or(|total| all <= total);
        fits || known.pop().is_none()
    }

    fn released(&self, start: NonNull<u8>) -> bool {
        let mut known = self.known.lock().unwrap();
        let start = start.as_ptr() as usize;
        let at = known.iter().position(|&(known, _)| known == start);
        at.map(|at| known.remove(at)).is_some()
    }
}

#[test]
fn a_registrar_knows_all_memory_and_small_blocks_together() {
    let notes = Arc::new(Notes {
        most: 16 << 20,
        ..Notes::default()
    });
    let pool = Pool::with_registrar(usize::MAX, notes.clone());
    let lens = [1, 4096, 5000, 1 << 20, ARENA, (9 << 20) + 1];
    let bufs: Vec<Buf> = lens.map(|len| pool.alloc(len).unwrap()).into();
    for buf in &bufs {
        let known = notes.known.lock().unwrap();
        let (start, end) = (buf.as_ptr() as usize, buf.as_ptr() as usize + buf.len());
        let covers = |&(from, len): &(usize, usize)| from <= start && end <= from + len;
        assert_eq!(known.iter().filter(|one| covers(one)).count(), 1);
    }
    let mut starts: Vec<usize> = bufs.iter().map(|buf| buf.as_ptr() as usize).collect();
    starts.dedup();
    assert_eq!(starts.len(), lens.len());
    // 4 KiB twice, 8 KiB and 1 MiB blocks use one arena per size; the others are separate.
    assert_eq!(notes.known.lock().unwrap().len(), 5);
    drop(bufs);
    assert_eq!(
        notes.known.lock().unwrap().len(),
        4,
        "the odd one is not kept"
    );
    drop(pool);
    assert!(notes.known.lock().unwrap().is_empty());
}

#[test]
fn memory_that_the_registrar_refuses_is_not_handed_out() {
    let notes = Arc::new(Notes {
        most: ARENA,
        ..Notes::default()
    });
    let pool = Pool::with_registrar(usize::MAX, notes);
    assert!(pool.is_registered() && !Pool::new(usize::MAX).is_registered());
    assert_eq!(pool.alloc(8 << 20).unwrap_err().in_use, 0);
    assert_eq!(pool.in_use(), 0);
    assert!(pool.alloc(100).is_ok());
}

#[test]
fn memory_that_would_be_refused_is_not_obtained() {
    /// Accepts no more than an arena, and expects no other memory.
    struct Unwilling;

    impl Registrar for Unwilling {
        fn accepts(&self, len: usize) -> bool {
            len <= ARENA
        }

        fn obtained(&self, _: NonNull<u8>, len: usize) -> bool {
            assert_eq!(len, ARENA);
            true
        }

        fn released(&self, _: NonNull<u8>) -> bool {
            true
        }
    }

    let pool = Pool::with_registrar(usize::MAX, Arc::new(Unwilling));
    assert_eq!(pool.alloc(2 * ARENA).unwrap_err().in_use, 0);
    assert!(pool.alloc(100).is_ok());
}

#[test]
fn an_idle_arena_is_divided_anew_before_the_limit_is_passed() {
    let notes = Arc::new(Notes {
        most: ARENA,
        ..Notes::default()
    });
    let pool = Pool::with_registrar(2 * ARENA, notes.clone());
    let take = |len: usize, count: usize| -> Vec<Buf> {
        (0..count).map(|_| pool.alloc(len).unwrap()).collect()
    };
    drop(take(4096, 2 * ARENA / 4096));
    assert_eq!(notes.known.lock().unwrap().len(), 2);
    let mut long = take(1 << 20, 4);
    assert!(pool.alloc(1).is_err());
    let mut starts: Vec<usize> = long.iter().map(|buf| buf.as_ptr() as usize).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 1 << 20));
    long[0].fill(7);
    long.truncate(2);
    let short = take(4096, ARENA / 4096);
    assert!(long[0][..] == vec![7; 1 << 20]);
    assert!(
        short
            .iter()
            .all(|buf| !long[0].as_ptr_range().contains(&buf.as_ptr()))
    );
    assert_eq!(notes.known.lock().unwrap().len(), 2);
    drop((long, short));
    pool.give_back();
    assert_eq!(notes.known.lock().unwrap().len(), 0);
    assert_eq!(take(1, 1).len(), 1);
}

/// Regression test: after a vain search the pool did not look again before it had obtained another arena, but
/// longer blocks need none, so all of them came in addition to the idle arenas.
#[test]
fn idle_arenas_make_room_for_longer_blocks_after_a_vain_search() {
    let notes = Arc::new(Notes {
        most: usize::MAX,
        ..Notes::default()
    });
    let pool = Pool::with_registrar(3 * ARENA, notes.clone());
    let short = [4096, 8192].map(|len| pool.alloc(len).unwrap());
    // A block was returned, so the pool searches.
    drop(pool.alloc(4096).unwrap());
    // The second one is more than the limit, and of both arenas a block is in use.
    let long = [ARENA; 2].map(|len| pool.alloc(len).unwrap());
    assert_eq!(notes.known.lock().unwrap().len(), 4);
    assert!(pool.shared.state().look_at > 3 * ARENA);
    drop(short);
    let third = pool.alloc(ARENA).unwrap();
    assert_eq!(notes.known.lock().unwrap().len(), 3);
    drop((long, third));
}

#[test]
fn the_free_lists_are_searched_again_only_when_a_block_was_returned() {
    let notes = Arc::new(Notes {
        most: usize::MAX,
        total: Some(ARENA),
        ..Notes::default()
    });
    let pool = Pool::with_registrar(usize::MAX, notes);
    let short = [(); 2].map(|()| pool.alloc(4096).unwrap());
    let [first, second] = short;
    drop(first);
    assert!(pool.alloc(8192).is_err());
    assert!(!pool.shared.state().returned, "a block is in use");
    assert!(pool.alloc(8192).is_err());
    drop(second);
    assert!(pool.shared.state().returned);
    assert!(pool.alloc(8192).is_ok());
}

#[test]
fn free_memory_makes_room_for_memory_that_is_refused() {
    let notes = Arc::new(Notes {
        most: usize::MAX,
        total: Some(2 * ARENA),
        ..Notes::default()
    });
    let pool = Pool::with_registrar(usize::MAX, notes.clone());
    drop(pool.alloc(100).unwrap());
    drop(pool.alloc(ARENA).unwrap());
    assert_eq!(notes.known.lock().unwrap().len(), 2);
    // The idle arena and the free block are returned.
    drop(pool.alloc(2 * ARENA).unwrap());
    assert_eq!(notes.known.lock().unwrap().len(), 1);
    // Now the other way round.
    let short = pool.alloc(100).unwrap();
    assert_eq!(notes.known.lock().unwrap().len(), 1);
    assert!(pool.alloc(2 * ARENA).is_err());
    // The arena in use is not lost.
    drop(short);
    assert!(pool.alloc(2 * ARENA).is_ok());
    let state = pool.shared.state();
    assert_eq!((state.whole, state.arenas.len()), (2 * ARENA, 0));
}

#[test]
fn the_pool_keeps_no_more_memory_than_its_limit() {
    let pool = Pool::keeping(usize::MAX, 3 << 16);
    let bufs: Vec<Buf> = (0..4).map(|_| pool.alloc(1 << 16).unwrap()).collect();
    let addresses: Vec<_> = bufs.iter().map(|buf| buf.as_ptr()).collect();
    drop(bufs);
    drop(pool.alloc(4096).unwrap());
    let kept = pool.shared.state().kept;
    assert_eq!(kept, 3 << 16);
    let again: Vec<Buf> = (0..3).map(|_| pool.alloc(1 << 16).unwrap()).collect();
    assert!(again.iter().all(|buf| addresses.contains(&buf.as_ptr())));
    assert_eq!(pool.shared.state().kept, 0);
}

#[test]
fn blocks_are_reused_and_odd_lengths_are_not_refused() {
    let pool = Pool::new(usize::MAX);
    let first = pool.alloc(1 << 16).unwrap();
    let address = first.as_ptr();
    drop(first);
    assert_eq!(pool.alloc((1 << 16) - 5).unwrap().as_ptr(), address);
    assert_eq!(pool.alloc((9 << 20) + 1).unwrap().len(), (9 << 20) + 1);
    assert_eq!(pool.alloc(0).unwrap().len(), 0);
    assert!(Pool::new(1 << 30).alloc(usize::MAX).is_err());
}

#[test]
fn buffers_count_for_their_account_until_their_last_slice_is_gone() {
    let (pool, budget) = (Pool::new(1 << 20), Budget::new(1 << 20, 1));
    let account = budget.account();
    let charged = pool.charged_to(&account);
    assert_eq!(pool.room(), usize::MAX, "nobody's buffers have no share");
    let mut buf = charged.alloc(5000).unwrap();
    let other = pool.alloc(5000).unwrap();
    assert_eq!(account.held(), 8192);
    let tail = buf.split_off(10).freeze();
    drop((buf, other));
    assert_eq!(account.held(), 8192);
    drop(tail);
    assert_eq!((account.held(), pool.in_use()), (0, 0));
}
