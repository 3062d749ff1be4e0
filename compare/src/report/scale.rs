//! Axes of figures: mapping of values to positions, and tick values.

/// An axis of a figure, which maps values to positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// The positions of the two ends.
    from: f64,
    to: f64,
}

/// The approximate number of ticks on a linear axis.
const TICKS: f64 = 5.0;
/// The smallest value on a logarithmic axis.
const LEAST: f64 = 1e-3;

impl Scale {
    /// Returns a linear axis from zero to a round value that is at least the greatest of `values`.
    pub(crate) fn linear(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(most);
        Self {
            low: 0.0,
            high: ((most / step).ceil() * step).max(step),
            logarithmic: false,
            from,
            to,
        }
    }

    /// Returns a logarithmic axis that contains all of `values`, with some margin.
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, LEAST), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let low = low.clamp(LEAST, high);
        Self {
            low: low / 1.3,
            high: high * 1.3,
            logarithmic: true,
            from,
            to,
        }
    }

    /// Returns the position of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value.max(LEAST) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + part * (self.to - self.from)
    }

    /// Returns the round values at which ticks are drawn.
    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = step(self.high);
            let count = (self.high / step).round() as u32;
            return (0..=count).map(|n| f64::from(n) * step).collect();
        }
        let mut ticks = Vec::new();
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = match decades {
            wide if wide > 4.0 => &[1.0],
            medium if medium > 1.6 => &[1.0, 3.0],
            _ => &[1.0, 2.0, 5.0],
        };
        let mut decade = 10f64.powf(self.low.log10().floor());
        while decade <= self.high {
            let values = steps.iter().map(|step| step * decade);
            ticks.extend(values.filter(|value| (self.low..=self.high).contains(value)));
            decade *= 10.0;
        }
        ticks
    }
}

/// Returns a round tick interval for the greatest value.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let rough = most / TICKS;
    let decade = 10f64.powf(rough.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    round
        .into_iter()
        .find(|&step| step >= rough * 0.999)
        .unwrap_or(rough)
}

/// Formats a value for a tick.
pub(crate) fn show(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.995 => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        medium if medium < 99.5 => {
            let text = format!("{value:.1}");
            text.trim_end_matches(".0").to_owned()
        }
        large if large < 99_950.0 => format!("{value:.0}"),
        large if large < 999_500.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_where_they_are_drawn_and_ticks_are_between() {
        let linear = Scale::linear([3.0, 17.0].into_iter(), 0.0, 100.0);
        assert_eq!((linear.at(0.0), linear.at(20.0)), (0.0, 100.0));
        assert_eq!(linear.ticks(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        let log = Scale::logarithmic([10.0, 1000.0].into_iter(), 100.0, 0.0);
        assert!(log.at(10.0) < 100.0 && log.at(1000.0) > 0.0);
        let middle = log.at(100.0);
        assert!((middle - 50.0).abs() < 1e-9, "{middle}");
        assert_eq!(log.ticks(), [10.0, 30.0, 100.0, 300.0, 1000.0]);
    }

    #[test]
    fn nothing_and_nonsense_make_an_axis_too() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![f64::INFINITY, -4.0]] {
            for scale in [
                Scale::linear(values.iter().copied(), 0.0, 1.0),
                Scale::logarithmic(values.iter().copied(), 0.0, 1.0),
            ] {
                assert!(scale.at(1.0).is_finite(), "{values:?} {scale:?}");
                assert!(scale.ticks().len() < 20);
            }
        }
    }

    #[test]
    fn values_are_short() {
        let shown = [0.0, 0.05, 1.0, 12.5, 250.0, 123_456.0, 2_500_000.0].map(show);
        assert_eq!(shown, ["0", "0.05", "1", "12.5", "250", "123k", "2.5M"]);
    }
}
