//! Performs operations with several in flight, or at the times at which they arrive.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use nfs_binding::client::RpcClient;

use super::{Failed, Prepared};

/// The maximum number of operations that are in flight or wait while operations arrive at a rate. A
/// greater number shows that they arrive faster than they end.
pub const MOST_WAITING: usize = 1 << 16;

/// The times at which operations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A closed loop: so many operations are in flight, and the next one begins when one ends.
    InFlight(u32),
    /// An open loop: so many operations begin in a second, on the average, whether others have ended
    /// or not. The times between them are random (exponentially distributed), and the same for the
    /// same seed in each run. The latency of an operation is counted from its time, also if it
    /// begins later.
    Arrivals(f64),
}

/// The end of beginning operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many.
    Count(u64),
    /// After this time.
    Elapsed(Duration),
}

impl Until {
    fn is_over(self, begun: u64, elapsed: Duration) -> bool {
        match self {
            Self::Count(count) => begun >= count,
            Self::Elapsed(time) => begun > 0 && elapsed >= time,
        }
    }
}

/// Performs operations of a workload by one client, and waits until all have ended. `seed` determines
/// the times between arrivals. `now` is the time since any moment. `record` is called with the latency of each operation. Returns the number
/// of operations.
///
/// # Errors
/// A call fails, or operations arrive faster than they end.
pub async fn drive(
    rpc: &impl RpcClient,
    prepared: &Prepared,
    (pace, until): (Pace, Until),
    seed: u64,
    now: &impl Fn() -> Duration,
    mut record: impl FnMut(Duration),
) -> Result<u64, Failed> {
    let begin = now();
    let mut begun = 0;
    let perform = |number: u64, from: Duration| async move {
        prepared.perform(rpc, number).await?;
        Ok::<_, Failed>(now().saturating_sub(from))
    };
    let mut flying = FuturesUnordered::new();
    match pace {
        Pace::InFlight(most) => {
            let most = u64::from(most.max(1));
            let is_over = |begun| until.is_over(begun, now().saturating_sub(begin));
            while begun < most && !is_over(begun) {
                flying.push(perform(begun, now()));
                begun += 1;
            }
            while let Some(ended) = flying.next().await {
                record(ended?);
                if !is_over(begun) {
                    flying.push(perform(begun, now()));
                    begun += 1;
                }
            }
        }
        Pace::Arrivals(rate) => {
            let mut gaps = Gaps::new(seed, rate);
            let mut at = begin + gaps.next();
            while !until.is_over(begun, at.saturating_sub(begin)) {
                loop {
                    let left = at.saturating_sub(now());
                    if left.is_zero() {
                        break;
                    }
                    let sleep = pin!(rpc.sleep(left));
                    match ended_before(&mut flying, sleep).await {
                        Some(ended) => record(ended?),
                        None => break,
                    }
                }
                if flying.len() >= MOST_WAITING {
                    let why =
                        format!("{MOST_WAITING} operations wait: they arrive faster than they end");
                    return Err(Failed::new("arrivals", why));
                }
                flying.push(perform(begun, at));
                begun += 1;
                at += gaps.next();
                // This one begins now, and not when the next one has arrived.
                for ended in ended_so_far(&mut flying).await {
                    record(ended?);
                }
            }
            while let Some(ended) = flying.next().await {
                record(ended?);
            }
        }
    }
    Ok(begun)
}

/// Begins operations that have not begun. Returns the results of those that have ended.
async fn ended_so_far<T>(flying: &mut FuturesUnordered<impl Future<Output = T>>) -> Vec<T> {
    let mut all = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(Some(ended)) = flying.poll_next_unpin(cx) {
            all.push(ended);
        }
        Poll::Ready(())
    })
    .await;
    all
}

/// Returns the result of the next operation that ends before `sleep`, or `None` if none does.
async fn ended_before<T>(
    flying: &mut FuturesUnordered<impl Future<Output = T>>,
    sleep: impl Future<Output = ()> + Unpin,
) -> Option<T> {
    if flying.is_empty() {
        sleep.await;
        return None;
    }
    match select(flying.next(), sleep).await {
        Either::Left((ended, _)) => ended,
        Either::Right(((), _)) => None,
    }
}

/// Random times between arrivals.
struct Gaps {
    state: u64,
    mean: f64,
}

impl Gaps {
    /// Begins a sequence of its own for each seed.
    fn new(seed: u64, rate: f64) -> Self {
        Self {
            state: seed,
            mean: 1.0 / rate.max(1e-9),
        }
    }

    /// Returns the next time. The numbers are those of SplitMix64.
    fn next(&mut self) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // In (0, 1], with 53 random bits.
        let uniform = ((mixed >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Duration::try_from_secs_f64(-uniform.ln() * self.mean).unwrap_or(Duration::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_their_rate_and_are_the_same_each_time() {
        let times = |seed| {
            let mut gaps = Gaps::new(seed, 1000.0);
            (0..10_000).map(|_| gaps.next()).collect::<Vec<_>>()
        };
        let all: Duration = times(0).iter().sum();
        assert!((9.5..10.5).contains(&all.as_secs_f64()), "{all:?}");
        assert_eq!(times(3), times(3));
        assert_ne!(times(3), times(4));
        assert_ne!(times(3), times(1 << 32 | 3));
    }
}
