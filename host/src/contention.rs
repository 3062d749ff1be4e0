//! Locks that count how often a thread had to wait for them.
//!
//! Threads that serve calls side by side must not all take the same lock. Whether they do cannot be
//! read off a profile of two processors, but it can be counted: a lock of this module is first
//! tried, and only if another thread holds it, the thread that waits adds one to a counter. So the
//! count costs nothing where there is no contention. All locks for one purpose (the parts of a
//! table, the files of a file system) share a [`LockCounter`].
//!
//! Poisoning is ignored: what these locks guard is consistent after a panic, because their users
//! check before they modify.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{
    LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    TryLockError, TryLockResult,
};

/// All counters that have counted something.
static COUNTERS: Mutex<Vec<&'static LockCounter>> = Mutex::new(Vec::new());

/// The number of times that threads waited for the locks of one purpose.
#[derive(Debug)]
pub struct LockCounter {
    purpose: &'static str,
    contended: AtomicU64,
}

impl LockCounter {
    /// Creates a counter, for a `static`.
    #[must_use]
    pub const fn new(purpose: &'static str) -> Self {
        Self {
            purpose,
            contended: AtomicU64::new(0),
        }
    }

    /// Returns how often a thread found one of the locks held by another one.
    #[must_use]
    pub fn contended(&self) -> u64 {
        self.contended.load(Relaxed)
    }

    /// Returns the guard that `tried` has, or else counts and waits for that of `lock`. A thread that
    /// panicked while it held a lock leaves it usable.
    fn hold<G>(&'static self, tried: TryLockResult<G>, lock: impl FnOnce() -> LockResult<G>) -> G {
        match tried {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.count();
                lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    #[cold]
    fn count(&'static self) {
        if self.contended.fetch_add(1, Relaxed) == 0 {
            let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
            counters.push(self);
        }
    }
}

/// Returns the purposes of all locks that threads of this process have waited for, with the number
/// of times, in alphabetical order. Purposes that are not listed were never waited for.
#[must_use]
pub fn contended_locks() -> Vec<(&'static str, u64)> {
    let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut list: Vec<_> = counters
        .iter()
        .map(|counter| (counter.purpose, counter.contended()))
        .collect();
    list.sort_unstable();
    list
}

/// A mutex whose contention is counted.
#[derive(Debug)]
pub struct CountedMutex<T> {
    counter: &'static LockCounter,
    mutex: Mutex<T>,
}

impl<T> CountedMutex<T> {
    /// Creates a mutex that counts with `counter`.
    pub const fn new(counter: &'static LockCounter, value: T) -> Self {
        Self {
            counter,
            mutex: Mutex::new(value),
        }
    }

    /// Locks the mutex if it is free within some hundred instructions, for a thread that must not wait
    /// for one that holds the lock while it is blocked. Counts nothing.
    pub fn lock_soon(&self) -> Option<MutexGuard<'_, T>> {
        const TRIES: u32 = 64;
        for _ in 0..TRIES {
            match self.mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }

    /// Locks the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mutex = &self.mutex;
        self.counter.hold(mutex.try_lock(), || mutex.lock())
    }
}

/// A readers-writer lock whose contention is counted. Readers do not wait for one another, and are
/// not counted unless they wait for a writer.
#[derive(Debug)]
pub struct CountedRwLock<T> {
    counter: &'static LockCounter,
    lock: RwLock<T>,
}

impl<T> CountedRwLock<T> {
    /// Creates a lock that counts with `counter`.
    pub const fn new(counter: &'static LockCounter, value: T) -> Self {
        Self {
            counter,
            lock: RwLock::new(value),
        }
    }

    /// Returns whether nobody holds the lock just now, for a thread that should not wait for it. Counts
    /// nothing.
    pub fn is_free(&self) -> bool {
        !matches!(self.lock.try_write(), Err(TryLockError::WouldBlock))
    }

    /// Locks for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let lock = &self.lock;
        self.counter.hold(lock.try_read(), || lock.read())
    }

    /// Locks for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let lock = &self.lock;
        self.counter.hold(lock.try_write(), || lock.write())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Waits until `counter` is at least `count`, which another thread brings about.
    fn until(counter: &LockCounter, count: u64) {
        let begun = std::time::Instant::now();
        while counter.contended() < count {
            assert!(begun.elapsed().as_secs() < 60, "{count} waits were counted");
            thread::yield_now();
        }
    }

    #[test]
    fn only_a_thread_that_waits_is_counted() {
        static COUNTER: LockCounter = LockCounter::new("a test of mutexes");
        let mutex = CountedMutex::new(&COUNTER, 0);
        for _ in 0..3 {
            *mutex.lock() += 1;
        }
        assert_eq!(COUNTER.contended(), 0);
        assert!(
            contended_locks()
                .iter()
                .all(|(name, _)| *name != COUNTER.purpose)
        );
        let held = mutex.lock();
        thread::scope(|scope| {
            let other = scope.spawn(|| *mutex.lock());
            until(&COUNTER, 1);
            drop(held);
            assert_eq!(other.join().unwrap(), 3);
        });
        assert!(contended_locks().contains(&(COUNTER.purpose, 1)));
    }

    #[test]
    fn a_lock_that_another_thread_holds_is_not_waited_for() {
        static COUNTER: LockCounter = LockCounter::new("a test of threads that must not wait");
        let mutex = CountedMutex::new(&COUNTER, 0);
        let held = mutex.lock();
        assert!(mutex.lock_soon().is_none());
        drop(held);
        assert!(mutex.lock_soon().is_some());
        assert_eq!(COUNTER.contended(), 0);
    }

    #[test]
    fn readers_wait_for_writers_only() {
        static COUNTER: LockCounter = LockCounter::new("a test of readers and writers");
        let lock = CountedRwLock::new(&COUNTER, 7);
        let read = lock.read();
        thread::scope(|scope| {
            assert_eq!(scope.spawn(|| *lock.read()).join().unwrap(), 7);
            assert_eq!(COUNTER.contended(), 0);
            let writer = scope.spawn(|| *lock.write() = 8);
            until(&COUNTER, 1);
            drop(read);
            writer.join().unwrap();
            let held = lock.write();
            let reader = scope.spawn(|| *lock.read());
            until(&COUNTER, 2);
            drop(held);
            assert_eq!(reader.join().unwrap(), 8);
        });
    }

    #[test]
    fn a_panic_of_its_holder_does_not_make_a_lock_unusable() {
        static COUNTER: LockCounter = LockCounter::new("a test of poisoning");
        let (mutex, lock) = (
            CountedMutex::new(&COUNTER, 1),
            CountedRwLock::new(&COUNTER, 2),
        );
        thread::scope(|scope| {
            let died = scope.spawn(|| {
                let _held = (mutex.lock(), lock.write());
                panic!("on purpose");
            });
            assert!(died.join().is_err());
        });
        assert_eq!((*mutex.lock(), *lock.read()), (1, 2));
        *lock.write() += 1;
        assert_eq!((*lock.read(), COUNTER.contended()), (3, 0));
    }
}
