//! Round trips, from time alone: what an operation takes longer over a longer link, in round
//! trips of the added length.

use std::time::Duration;

use crate::compare::latency::Latency;
use crate::compare::op::Op;
use crate::compare::rig::Budget;
use crate::compare::rows::Row;
use crate::compare::set::{self, Setting};
use crate::failure::Failure;

/// The shorter link's delay each way, when none was asked for.
pub(crate) const DELAY: Duration = Duration::from_millis(1);
/// Calls per operation and link. Their median counts, and the link takes most of their time.
const COUNT: u32 = 15;

/// Median latencies over a link: operation, conveyance, microseconds.
type Medians = Vec<(Op, &'static str, f64)>;

/// Measures `ops` over links of the setting's delay and of twice that, and enters the slope into `rows`.
///
/// # Errors
/// An operation failed.
pub(crate) fn measure(setting: Setting<'_>, ops: &[Op], rows: &mut [Row]) -> Result<(), Failure> {
    let delay = setting.delay;
    let near = medians(&setting, ops)?;
    let twice = Setting {
        delay: delay * 2,
        ..setting
    };
    let far = medians(&twice, ops)?;
    for ((op, conveyance, near), (_, _, far)) in near.into_iter().zip(far) {
        let matching = rows.iter_mut().filter(|row| {
            (row.op, row.size, row.conveyance) == (op.name(), op.size().map(u64::from), conveyance)
        });
        for row in matching {
            row.round_trips = Some(slope(near, far, delay));
        }
    }
    Ok(())
}

/// Each way becomes longer by `delay`, a round trip by twice that.
fn slope(near_us: f64, far_us: f64, delay: Duration) -> f64 {
    (far_us - near_us) / (2.0 * delay.as_secs_f64() * 1e6)
}

fn medians(setting: &Setting<'_>, ops: &[Op]) -> Result<Medians, Failure> {
    let (args, mode) = (setting.args, setting.mode);
    let mut rigs = set::rigs(setting)?;
    let budget = Budget {
        time: Duration::ZERO,
        count: Some(args.count.unwrap_or(COUNT).min(COUNT)),
    };
    let mut out = Medians::new();
    for rig in &mut rigs {
        if mode.is_busy() {
            rig.resume()?;
        }
        for &op in ops {
            let mut latency = Latency::new();
            rig.one_at_a_time(op, budget, &mut latency)?;
            out.extend(latency.p50_us().map(|p50| (op, rig.conveyance, p50)));
        }
        if mode.is_busy() {
            rig.pause()?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_round_trips_take_four_times_the_added_delay() {
        let ms = Duration::from_millis;
        // 2 round trips and 150 µs of work, over 1 ms and over 2 ms each way.
        assert_eq!(slope(4150.0, 8150.0, ms(1)), 2.0);
        assert_eq!(slope(2050.0, 4050.0, ms(1)), 1.0);
    }
}
