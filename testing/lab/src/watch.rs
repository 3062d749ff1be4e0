//! Decides when to give up on a guest, and whether to boot it again. The time is passed in.

use std::time::Duration;

/// The maximum number of boots.
pub const BOOTS: u32 = 3;
/// The time-out for reaching user space. It takes 6 s on an idle machine.
pub const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// The time-out for QEMU to end after the lane's script.
pub const END_LIMIT: Duration = Duration::from_secs(20);

/// The ending of a boot of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The lane's script ended with this status.
    Finished(i32),
    /// The lane timed out.
    TimedOut,
    /// The machine ended after user space was reached, and before the script.
    Died,
    /// User space was not reached.
    NeverUp,
    /// The lab was interrupted.
    Interrupted,
}

impl Ending {
    /// Returns whether to boot the guest again, which is possible because nothing of the lane has
    /// run.
    #[must_use]
    pub fn boots_again(self, boots: u32) -> bool {
        self == Self::NeverUp && boots < BOOTS
    }
}

/// The state of a guest.
#[derive(Debug)]
pub struct Watch {
    lane_limit: Duration,
    deadline: Duration,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Booting,
    Running,
    Ended(i32),
}

impl Watch {
    /// Creates the state of a guest that is started now. All times count from the same moment.
    #[must_use]
    pub fn new(now: Duration, lane_limit: Duration) -> Self {
        Self {
            lane_limit,
            deadline: now + BOOT_LIMIT,
            stage: Stage::Booting,
        }
    }

    /// Records that user space was reached. The lane's time-out starts.
    pub fn up(&mut self, now: Duration) {
        if self.stage == Stage::Booting {
            self.stage = Stage::Running;
            self.deadline = now + self.lane_limit;
        }
    }

    /// Records that the lane's script ended with this status.
    pub fn script_ended(&mut self, now: Duration, status: i32) {
        if self.stage == Stage::Running {
            self.stage = Stage::Ended(status);
            self.deadline = now + END_LIMIT;
        }
    }

    /// Returns the ending of a machine that has ended by itself.
    #[must_use]
    pub fn machine_ended(&self) -> Ending {
        match self.stage {
            Stage::Booting => Ending::NeverUp,
            Stage::Running => Ending::Died,
            Stage::Ended(status) => Ending::Finished(status),
        }
    }

    /// Returns the ending if a time-out has expired and the machine must be killed.
    #[must_use]
    pub fn expired(&self, now: Duration) -> Option<Ending> {
        (now >= self.deadline).then(|| match self.stage {
            Stage::Running => Ending::TimedOut,
            _ => self.machine_ended(),
        })
    }

    /// Returns how long to wait for output of the guest.
    #[must_use]
    pub fn patience(&self, now: Duration) -> Duration {
        self.deadline.saturating_sub(now)
    }
}

/// Compares the guest's clock with the host's. On a busy host the guest's kernel can calibrate its
/// processor wrongly at boot, and then all its time-outs and delays are wrong.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    guest: Duration,
    host: Duration,
}

/// The minimum time for determining a clock's rate, because lines arrive with a delay.
const CLOCK_SPAN: Duration = Duration::from_secs(5);
/// The maximum relative deviation of a clock's rate.
const CLOCK_SLACK: f64 = 0.15;

impl Clock {
    /// Records the values of both clocks at the start of the measurement.
    #[must_use]
    pub fn new(guest: Duration, host: Duration) -> Self {
        Self { guest, host }
    }

    /// Returns the rate of the guest's clock relative to the host's, or `None` if too little time
    /// has passed.
    #[must_use]
    pub fn rate(&self, guest: Duration, host: Duration) -> Option<f64> {
        let host = host.saturating_sub(self.host);
        let guest = guest.saturating_sub(self.guest);
        (host >= CLOCK_SPAN).then(|| guest.as_secs_f64() / host.as_secs_f64())
    }

    /// Returns whether this rate is acceptable.
    #[must_use]
    pub fn is_right(rate: f64) -> bool {
        (rate - 1.0).abs() <= CLOCK_SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Duration = Duration::from_secs(600);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_guest_that_never_comes_up_is_booted_again_but_not_for_ever() {
        let watch = Watch::new(at(10), LANE);
        assert_eq!(watch.expired(at(10) + BOOT_LIMIT - at(1)), None);
        assert_eq!(watch.expired(at(10) + BOOT_LIMIT), Some(Ending::NeverUp));
        assert_eq!(watch.machine_ended(), Ending::NeverUp);
        assert!(Ending::NeverUp.boots_again(1) && Ending::NeverUp.boots_again(BOOTS - 1));
        assert!(!Ending::NeverUp.boots_again(BOOTS));
    }

    #[test]
    fn a_lane_that_began_is_never_begun_again() {
        for ending in [
            Ending::Finished(0),
            Ending::TimedOut,
            Ending::Died,
            Ending::Interrupted,
        ] {
            assert!(!ending.boots_again(1), "{ending:?}");
        }
    }

    #[test]
    fn the_lane_has_its_time_from_user_space_on() {
        let mut watch = Watch::new(at(0), LANE);
        watch.up(at(80));
        assert_eq!(watch.patience(at(80)), LANE);
        assert_eq!(watch.expired(at(100)), None);
        // A repeated report does not extend the time-out.
        watch.up(at(600));
        assert_eq!(watch.expired(at(680)), Some(Ending::TimedOut));
        assert_eq!(watch.machine_ended(), Ending::Died);
    }

    #[test]
    fn a_machine_that_does_not_end_loses_no_result() {
        let mut watch = Watch::new(at(0), LANE);
        watch.up(at(8));
        watch.script_ended(at(20), 1);
        assert_eq!(watch.expired(at(20)), None);
        assert_eq!(watch.expired(at(20) + END_LIMIT), Some(Ending::Finished(1)));
        assert_eq!(watch.machine_ended(), Ending::Finished(1));
    }

    #[test]
    fn a_script_cannot_end_before_it_began() {
        let mut watch = Watch::new(at(0), LANE);
        watch.script_ended(at(1), 0);
        assert_eq!(watch.machine_ended(), Ending::NeverUp);
    }

    #[test]
    fn a_clock_that_runs_too_fast_is_noticed() {
        let clock = Clock::new(at(6), at(20));
        assert_eq!(clock.rate(at(8), at(22)), None);
        assert_eq!(clock.rate(at(16), at(30)), Some(1.0));
        assert_eq!(clock.rate(at(34), at(30)), Some(2.8));
        assert!(Clock::is_right(1.1) && Clock::is_right(0.9));
        assert!(!Clock::is_right(2.8) && !Clock::is_right(0.36));
    }
}
