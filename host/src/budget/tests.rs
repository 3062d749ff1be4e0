use quickcheck::quickcheck;

use super::*;

const MIB: usize = 1 << 20;

/// Takes as much as the account allows, in pieces.
fn grab(account: &Account, piece: usize) -> usize {
    let mut taken = 0;
    while account.room() >= piece {
        account.charge(piece);
        taken += piece;
    }
    taken
}

#[test]
fn a_single_connection_gets_half_and_leaves_room_for_later_ones() {
    let budget = Budget::new(128 * MIB, 1024);
    assert_eq!(budget.guaranteed(), GUARANTEED);
    let accounts: Vec<Account> = (0..20).map(|_| budget.account()).collect();
    let taken: Vec<usize> = accounts
        .iter()
        .map(|account| grab(account, 64 << 10))
        .collect();
    // 64 MiB are common, of which unproven connections may have 48.
    assert!((23 * MIB..25 * MIB).contains(&taken[0]), "{taken:?}");
    assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
    assert!(taken[19] >= GUARANTEED, "{taken:?}");
    assert!(budget.is_short() && accounts[0].blocks_others());
    // A connection that holds nothing may have all that is left, and a proven one more than
    // that.
    let late = budget.account();
    let room = late.room();
    assert!(room >= GUARANTEED);
    late.prove();
    assert_eq!(late.room(), room + 16 * MIB);
    for (account, taken) in accounts.iter().zip(taken) {
        account.release(taken);
    }
    assert_eq!(budget.common_in_use(), 0);
}

#[test]
fn a_common_account_takes_common_memory_alone_and_leaves_what_is_guaranteed() {
    let budget = Budget::new(8 * MIB, 16);
    let own = budget.account();
    let further = own.common();
    assert_eq!((further.guaranteed(), further.beyond_guaranteed()), (0, 0));
    further.charge(100);
    assert_eq!(
        (further.beyond_guaranteed(), budget.common_in_use()),
        (100, 100)
    );
    let taken = grab(&further, 4096);
    // 7 MiB are common, of which unproven connections may have three quarters, and one a half of
    // that.
    assert!((2 * MIB..3 * MIB).contains(&taken), "{taken}");
    assert!(own.room() >= GUARANTEED);
    assert_eq!((own.held(), own.beyond_guaranteed()), (0, 0));
    let unproven = further.room();
    own.prove();
    assert!(further.is_proven() && further.room() > unproven);
    further.release(taken + 100);
    assert_eq!((further.held(), budget.common_in_use()), (0, 0));
}

#[test]
fn many_connections_cannot_take_the_guaranteed_memory_of_others() {
    let budget = Budget::new(8 * MIB, 16);
    let crowd: Vec<Account> = (0..15).map(|_| budget.account()).collect();
    for account in &crowd {
        account.prove();
    }
    let taken: usize = crowd.iter().map(|account| grab(account, 4096)).sum();
    let last = budget.account();
    assert!(last.room() >= GUARANTEED);
    assert!(taken + GUARANTEED <= budget.limit());
    // A buffer that is about to be replaced does not count.
    last.charge(GUARANTEED);
    assert!(last.room_without(GUARANTEED) >= GUARANTEED);
}

#[test]
fn held_bytes_count_until_their_last_slice_is_gone() {
    let account = Budget::new(MIB, 1).account();
    let held = account.hold(Bytes::from(vec![1; 100]));
    let slice = held.slice(..1);
    drop(held);
    assert_eq!(account.held(), 100 + PIECE);
    drop(slice);
    assert_eq!(account.held(), 0);
}

/// Checks what must hold of a part that no thread uses at present.
fn is_settled(part: &Part) -> bool {
    let (used, reserved) = (part.used(), part.reserved.load(Relaxed));
    used <= reserved && reserved - used <= 2 * part.shared.quantum
}

#[test]
fn calls_do_not_touch_what_all_parts_share() {
    let budget = Budget::new(128 * MIB, 64);
    let parts = [budget.part(), budget.part()];
    let busy = parts[0].account();
    busy.charge(GUARANTEED + MIB);
    let moved = || parts[0].part.moves.load(Relaxed);
    let before = moved();
    for _ in 0..1000 {
        busy.charge(PER_CALL);
        busy.charge(8 << 10);
        busy.release(8 << 10);
        busy.release(PER_CALL);
    }
    assert_eq!(moved(), before);
    // Still, connections of the other part do not get what is held here.
    let other = parts[1].account();
    assert!(grab(&other, 4096) < (128 * MIB - MIB) / 2);
    let (held, limit) = (budget.common_in_use(), budget.part.shared.common_limit);
    assert!(held <= limit, "{held}");
}

#[test]
fn two_parts_share_fairly_and_give_everything_back() {
    let budget = Budget::new(64 * MIB, 16);
    let limit = budget.part.shared.common_limit;
    let accounts: Vec<Account> = (0..4).map(|_| budget.part().account()).collect();
    accounts.iter().for_each(Account::prove);
    // Each takes a little in turn, as connections of different loops do.
    let mut taken = [0; 4];
    while let Some(at) = (0..4).find(|&at| {
        let most = taken.iter().max().is_some_and(|most| taken[at] < *most);
        (most || taken.iter().all(|each| *each == taken[at])) && accounts[at].room() >= 4096
    }) {
        accounts[at].charge(4096);
        taken[at] += 4096;
    }
    // As with one part, each of four ends with a fifth; a part may keep two quanta unused.
    let fifth = GUARANTEED + limit / 5;
    let unused = 3 * 2 * budget.part.shared.quantum;
    for each in taken {
        assert!(
            each <= fifth && each + unused + 8192 >= fifth,
            "{taken:?} {fifth}"
        );
    }
    assert!(budget.common_in_use() <= limit);
    for (account, taken) in accounts.iter().zip(taken) {
        account.release(taken);
        assert!(is_settled(&account.shared.part));
    }
    assert_eq!(budget.common_in_use(), 0);
    drop(accounts);
    assert_eq!(budget.part.shared.reserved.0.load(Relaxed), 0);
    assert_eq!(budget.part().part.shared.parts().len(), 2);
}

#[test]
fn parts_agree_with_the_budget_whatever_threads_do() {
    let budget = Budget::new(16 * MIB, 8);
    let parts = [budget.part(), budget.part()];
    std::thread::scope(|scope| {
        // Two threads for each account: a loop and a worker.
        let accounts = parts.each_ref().map(Budget::account);
        for at in 0..4 {
            let account = accounts[at / 2].clone();
            scope.spawn(move || {
                let mut held = Vec::new();
                for step in 0..20_000_usize {
                    let bytes = (step * 7919 + at * 104_729) % (200 << 10);
                    account.charge(bytes);
                    held.push(bytes);
                    if held.len() > 10 || step % 3 == 0 {
                        account.release(held.swap_remove(step % held.len()));
                    }
                }
                held.into_iter().for_each(|bytes| account.release(bytes));
            });
        }
    });
    assert_eq!(budget.common_in_use(), 0);
    let reserved = |part: &Budget| part.part.reserved.load(Relaxed);
    let sum = parts.iter().map(reserved).sum::<usize>();
    assert_eq!(sum, budget.part.shared.reserved.0.load(Relaxed));
    assert!(parts.iter().all(|part| is_settled(&part.part)));
}

quickcheck! {
    fn common_memory_is_the_sum_of_all_holdings_beyond_the_guarantee(steps: Vec<(u8, u32, bool)>) -> bool {
        let budget = Budget::new(64 * MIB, 4);
        let parts = [budget.part(), budget.part()];
        let mut charges: Vec<(Account, Charge)> = (0..4)
            .map(|at| {
                let account = parts[at % 2].account();
                (account.clone(), Charge::new(Some(account)))
            })
            .collect();
        for (who, bytes, more) in steps {
            let charge = &mut charges[usize::from(who % 4)].1;
            match more {
                true => charge.add(bytes as usize % MIB),
                false => charge.sub(bytes as usize % MIB),
            }
        }
        let over: usize = charges.iter().map(|(account, _)| account.beyond_guaranteed()).sum();
        let right = budget.common_in_use() == over
            && parts.iter().all(|part| is_settled(&part.part));
        drop(charges);
        right && budget.common_in_use() == 0
    }
}
