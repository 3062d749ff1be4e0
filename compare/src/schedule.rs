//! How long a comparison takes: an estimate from the options before it starts, which is scaled by
//! the time that the steps before have taken.

use std::fmt;
use std::time::{Duration, Instant};

/// The time that one step takes beyond the time for its figures, as a part of that: calls that are
/// not timed, and the last call of each turn.
const BEYOND: f64 = 0.3;
/// The bounds of the ratio by which the estimates are scaled. A single step may be disturbed, and
/// short steps say little about long ones.
const SCALE: (f64, f64) = (0.5, 4.0);

/// The steps of a comparison, with the estimated time of each.
pub(crate) struct Schedule<'a> {
    steps: Vec<(String, Duration)>,
    next: usize,
    begun: Instant,
    show: &'a dyn Fn(&dyn fmt::Display),
}

impl<'a> Schedule<'a> {
    /// Returns a schedule without steps. `show` shows the user what is being measured.
    pub(crate) fn new(show: &'a dyn Fn(&dyn fmt::Display)) -> Self {
        Self {
            steps: Vec::new(),
            next: 0,
            begun: Instant::now(),
            show,
        }
    }

    /// Adds a step that takes about `time`.
    pub(crate) fn add(&mut self, what: impl fmt::Display, time: Duration) {
        self.steps.push((what.to_string(), time));
    }

    /// Adds a step that measures `figures` figures for `time` each.
    pub(crate) fn add_figures(&mut self, what: impl fmt::Display, figures: usize, time: Duration) {
        self.add(what, time.mul_f64(figures as f64 * (1.0 + BEYOND)));
    }

    /// Shows that the next step begins, and how long the rest takes.
    pub(crate) fn begin_next(&mut self) {
        let Some((what, _)) = self.steps.get(self.next) else {
            return;
        };
        let left = show_time(self.left(self.begun.elapsed()));
        let (number, all) = (self.next + 1, self.steps.len());
        (self.show)(&format_args!(
            "{what} (step {number} of {all}, about {left} left)"
        ));
        self.next += 1;
    }

    /// Returns the estimated time of the steps that have not begun, `elapsed` after the first one
    /// began.
    fn left(&self, elapsed: Duration) -> Duration {
        let time = |steps: &[(String, Duration)]| steps.iter().map(|(_, time)| *time).sum();
        let (before, after) = self.steps.split_at(self.next);
        let (planned, left): (Duration, Duration) = (time(before), time(after));
        match planned.is_zero() {
            true => left,
            false => {
                let scale = elapsed.as_secs_f64() / planned.as_secs_f64();
                left.mul_f64(scale.clamp(SCALE.0, SCALE.1))
            }
        }
    }
}

/// Formats a time for a progress message: seconds, or from two minutes on minutes and tens of seconds.
/// Whole minutes would be the same in most steps of a comparison that takes three.
fn show_time(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => {
            let tens = seconds.div_ceil(10);
            match (tens / 6, tens % 6 * 10) {
                (minutes, 0) => format!("{minutes} min"),
                (minutes, seconds) => format!("{minutes} min {seconds} s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_step_says_what_it_is_and_how_long_the_rest_takes() {
        let shown = RefCell::new(Vec::new());
        let show = |what: &dyn fmt::Display| shown.borrow_mut().push(what.to_string());
        let mut schedule = Schedule::new(&show);
        schedule.add("first", Duration::from_secs(10));
        schedule.add_figures("second", 2, Duration::from_secs(100));
        schedule.begin_next();
        schedule.begin_next();
        schedule.begin_next();
        let shown = shown.borrow();
        // The second is shown at once, so all goes faster than planned, as far as that counts.
        assert_eq!(
            shown[..],
            [
                "first (step 1 of 2, about 4 min 30 s left)",
                "second (step 2 of 2, about 2 min 10 s left)",
            ]
        );
    }

    #[test]
    fn the_rest_takes_as_much_longer_as_the_steps_before_did() {
        let mut schedule = Schedule::new(&|_| ());
        schedule.add("first", Duration::from_secs(10));
        schedule.add("second", Duration::from_secs(20));
        assert_eq!(schedule.left(Duration::ZERO), Duration::from_secs(30));
        schedule.next = 1;
        for (elapsed, left) in [(15, 30), (10, 20), (1, 10), (1000, 80)] {
            let left = Duration::from_secs(left);
            assert_eq!(schedule.left(Duration::from_secs(elapsed)), left);
        }
    }

    #[test]
    fn times_are_seconds_or_minutes() {
        let show = |millis| show_time(Duration::from_millis(millis));
        assert_eq!(
            [1, 119_000, 120_000, 121_000, 175_000].map(show),
            ["1 s", "119 s", "2 min", "2 min 10 s", "3 min"]
        );
    }
}
