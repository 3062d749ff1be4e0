//! The scale of time: linear where everything can be told apart, and otherwise with long pauses cut
//! short.

use std::time::Duration;

/// Maps times to positions.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Times in nanoseconds with their positions, both ascending.
    points: Vec<(u64, f64)>,
    /// Positions for each nanosecond beyond the last point.
    slope: f64,
    /// Whether equal times have equal lengths everywhere.
    pub(crate) is_linear: bool,
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Scale {
    /// Returns a scale on which `longest` has this length.
    pub(crate) fn linear(longest: Duration, length: f64) -> Self {
        Self {
            points: vec![(0, 0.0)],
            slope: length / nanos(longest).max(1) as f64,
            is_linear: true,
        }
    }

    /// Returns a scale on which different times are at least `least` apart, and times that follow one
    /// another at most `most`. In between, `length` stands for all of the time.
    pub(crate) fn squeezed(
        times: impl Iterator<Item = Duration>,
        length: f64,
        (least, most): (f64, f64),
    ) -> Self {
        let mut times: Vec<u64> = times.map(nanos).collect();
        times.sort_unstable();
        times.dedup();
        let slope = length / times.last().copied().unwrap_or(0).max(1) as f64;
        let (mut points, mut at, mut before) = (Vec::new(), 0.0, 0);
        for time in times {
            if !points.is_empty() {
                at += ((time - before) as f64 * slope).clamp(least, most);
            }
            points.push((time, at));
            before = time;
        }
        if points.is_empty() {
            points.push((0, 0.0));
        }
        Self {
            points,
            slope,
            is_linear: false,
        }
    }

    /// Returns the position of a time.
    pub(crate) fn at(&self, time: Duration) -> f64 {
        let time = nanos(time);
        let after = self.points.partition_point(|(known, _)| *known <= time);
        let (before, at) = match after.checked_sub(1) {
            Some(index) => self.points[index],
            None => return 0.0,
        };
        let passed = (time - before) as f64;
        match self.points.get(after) {
            Some(&(next, there)) => at + (there - at) * passed / (next - before) as f64,
            None => at + passed * self.slope,
        }
    }

    /// Returns times for an axis, at least `apart` from one another: round ones on a linear scale, and
    /// otherwise those at which something happens.
    pub(crate) fn ticks(&self, longest: Duration, apart: f64) -> Vec<Duration> {
        let all: Vec<Duration> = match self.is_linear {
            true => {
                let step = round_up((apart / self.slope).min(1e18));
                let count = nanos(longest) / step;
                (0..=count.min(1_000))
                    .map(|n| Duration::from_nanos(n * step))
                    .collect()
            }
            false => self
                .points
                .iter()
                .map(|(time, _)| Duration::from_nanos(*time))
                .collect(),
        };
        let mut ticks: Vec<Duration> = Vec::new();
        for time in all.into_iter().filter(|time| *time <= longest) {
            let free = |last: &Duration| self.at(time) - self.at(*last) >= apart;
            if ticks.last().is_none_or(free) {
                ticks.push(time);
            }
        }
        ticks
    }
}

/// Returns the least of 1, 2 and 5 times a power of ten that is not below `nanos`.
pub(crate) fn round_up(nanos: f64) -> u64 {
    let mut power = 1_u64;
    loop {
        for step in [1, 2, 5] {
            let step = power.saturating_mul(step);
            if step as f64 >= nanos || step == u64::MAX {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_cut_short() {
        let us = Duration::from_micros;
        let times = [0, 1, 2, 10_000, 10_001].map(us);
        let scale = Scale::squeezed(times.into_iter(), 100.0, (10.0, 40.0));
        assert_eq!(
            times.map(|time| scale.at(time)),
            [0.0, 10.0, 20.0, 60.0, 70.0]
        );
        assert_eq!(scale.at(us(5_001)), 40.0);
        assert_eq!(scale.ticks(us(10_001), 15.0), [0, 2, 10_000].map(us));
    }

    #[test]
    fn ticks_of_a_linear_scale_are_round() {
        let scale = Scale::linear(Duration::from_nanos(29_131), 460.0);
        let ticks = scale.ticks(Duration::from_nanos(29_131), 40.0);
        assert_eq!(ticks, [0, 5, 10, 15, 20, 25].map(Duration::from_micros));
        assert_eq!(
            [round_up(0.2), round_up(3.0), round_up(1_001.0)],
            [1, 5, 2_000]
        );
    }
}
