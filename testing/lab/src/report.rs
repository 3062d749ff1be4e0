//! The result of a lane, for people, for programs, and as an exit status.

use serde::Serialize;

use crate::protocol::{Check, Outcome};
use crate::watch::{Clock, Ending};

/// The verdict on the product, as far as this run can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check passed.
    Passed,
    /// The lab itself failed, so nothing is known about the product.
    Lab,
    /// A check of the product failed, or the product hung or killed the guest. Among several lanes,
    /// this verdict prevails.
    Failed,
    /// The lab was interrupted.
    Interrupted,
}

impl Verdict {
    /// Returns the exit status of the command.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::Lab => 3,
            // The exit status in a shell of a command that SIGINT ended.
            Self::Interrupted => 130,
        }
    }
}

/// The result of a check, as written for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The check's name.
    pub name: String,
    /// The result: `ok`, `not ok` or `skip`.
    pub result: &'static str,
    /// The duration in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The reason why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&Check> for Row {
    fn from(check: &Check) -> Self {
        let (result, seconds, reason) = match &check.result {
            Outcome::Passed(time) => ("ok", Some(time.as_secs_f64()), None),
            Outcome::Failed(time) => ("not ok", Some(time.as_secs_f64()), None),
            Outcome::Skipped(reason) => ("skip", None, Some(reason.clone())),
        };
        Self {
            name: check.name.clone(),
            result,
            seconds,
            reason,
        }
    }
}

impl Row {
    /// Returns the duration in seconds, and 0 for a skipped check.
    fn time(&self) -> f64 {
        self.seconds.unwrap_or_default()
    }
}

/// The number of the slowest checks that are shown.
const SLOWEST: usize = 5;

/// The result of a lane.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The lane.
    pub lane: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict, unless all checks passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The number of boots.
    pub boots: u32,
    /// The time from the last boot to user space, seconds.
    pub boot_seconds: Option<f64>,
    /// The rate of the guest's clock relative to the host's.
    pub clock_rate: Option<f64>,
    /// The time from the first boot to the end, seconds.
    pub seconds: f64,
    /// All checks, in the order in which they ended.
    pub checks: Vec<Row>,
    /// The versions of the guest's parts.
    pub versions: Vec<(String, String)>,
}

/// Determines the verdict of a run from its end and its checks. Failures count as the lab's in a
/// control lane, in which nothing of the product runs; from the first failure of a check whose name
/// starts with `lab/`; and in a guest whose clock is wrong.
#[must_use]
pub fn judge(
    is_control: bool,
    ending: Ending,
    checks: &[Check],
    clock_rate: Option<f64>,
) -> (Verdict, Option<String>) {
    let (verdict, because) = judge_checks(is_control, ending, checks);
    match (verdict, clock_rate) {
        (Verdict::Failed, Some(rate)) if !Clock::is_right(rate) => {
            let because = because.unwrap_or_default();
            let clock = format!("the guest's clock went {rate:.2} times as fast; {because}");
            (Verdict::Lab, Some(clock))
        }
        _ => (verdict, because),
    }
}

fn judge_checks(is_control: bool, ending: Ending, checks: &[Check]) -> (Verdict, Option<String>) {
    let theirs = if is_control {
        Verdict::Lab
    } else {
        Verdict::Failed
    };
    let failed: Vec<_> = checks
        .iter()
        .filter(|check| matches!(check.result, Outcome::Failed(_)))
        .collect();
    let is_skipped = |check: &Check| matches!(check.result, Outcome::Skipped(_));
    let names = |checks: &[&Check]| {
        let names: Vec<_> = checks.iter().map(|check| check.name.as_str()).collect();
        names.join(", ")
    };
    // Failures after the lab failed are meaningless; those before it count.
    let first_of_lab = failed.iter().position(|check| check.is_of_lab());
    let (before, since) = failed.split_at(first_of_lab.unwrap_or(failed.len()));
    let (verdict, because) = match ending {
        Ending::Interrupted => return (Verdict::Interrupted, None),
        Ending::NeverUp => (
            Verdict::Lab,
            "the guest did not reach user space".to_owned(),
        ),
        _ if !since.is_empty() && !before.is_empty() => {
            let because = format!("{} failed, then the lab", names(before));
            (theirs, because)
        }
        _ if !since.is_empty() => {
            let of_lab: Vec<_> = since.iter().copied().filter(|c| c.is_of_lab()).collect();
            (Verdict::Lab, format!("{} failed", names(&of_lab)))
        }
        Ending::TimedOut => (theirs, "the lane took too long".to_owned()),
        Ending::Died => (theirs, "the guest died".to_owned()),
        Ending::Finished(_) if !before.is_empty() => (theirs, format!("{} failed", names(before))),
        Ending::Finished(0) if checks.iter().all(is_skipped) => {
            (Verdict::Lab, "the lane checked nothing".to_owned())
        }
        Ending::Finished(0) => return (Verdict::Passed, None),
        Ending::Finished(status) => {
            let because = format!("the lane's script ended with status {status}");
            (Verdict::Lab, because)
        }
    };
    (verdict, Some(because))
}

impl Report {
    /// Formats a summary for people: one line per check that did not pass, the slowest checks, and
    /// one line for the whole.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let mut count = [0; 3];
        for row in &self.checks {
            count[match row.result {
                "ok" => 0,
                "not ok" => 1,
                _ => 2,
            }] += 1;
            if row.result != "ok" {
                let reason = row.reason.as_deref().unwrap_or_default();
                text.push_str(&format!("{:<7} {} {reason}\n", row.result, row.name));
            }
        }
        let mut slow: Vec<_> = self
            .checks
            .iter()
            .filter(|row| row.seconds > Some(1.0))
            .collect();
        slow.sort_by(|one, other| f64::total_cmp(&other.time(), &one.time()));
        slow.truncate(SLOWEST);
        for row in slow {
            text.push_str(&format!("{:>7.1} s {}\n", row.time(), row.name));
        }
        let boot = match self.boot_seconds {
            Some(seconds) => format!("{} boot(s), {seconds:.1} s to user space", self.boots),
            None => format!("{} boot(s)", self.boots),
        };
        let [passed, failed, skipped] = count;
        text.push_str(&format!(
            "lane {}: {passed} passed, {failed} failed, {skipped} skipped in {:.0} s ({boot})\n",
            self.lane, self.seconds
        ));
        let verdict = match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Lab => "LAB FAILURE, which says nothing of the product",
            Verdict::Interrupted => "interrupted",
        };
        text.push_str(&format!("lane {}: {verdict}", self.lane));
        if let Some(because) = &self.because {
            text.push_str(&format!(": {because}"));
        }
        text
    }
}

/// Rounds to two decimals, which is the precision of the measurements.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Line;

    fn checks(lines: &[&str]) -> Vec<Check> {
        let check = |line: &&str| match Line::parse(line) {
            Line::Check(check) => check,
            other => panic!("{other:?}"),
        };
        lines.iter().map(check).collect()
    }

    fn verdict(control: bool, ending: Ending, lines: &[&str]) -> Verdict {
        judge(control, ending, &checks(lines), Some(1.0)).0
    }

    #[test]
    fn a_failed_check_is_the_products_unless_it_is_the_labs() {
        let end = Ending::Finished(1);
        assert_eq!(
            verdict(false, end, &["ok a 1", "not ok b 1"]),
            Verdict::Failed
        );
        assert_eq!(verdict(true, end, &["ok a 1", "not ok b 1"]), Verdict::Lab);
    }

    #[test]
    fn what_fails_after_the_lab_failed_says_nothing() {
        let judged = |ending, lines: &[&str]| {
            let (verdict, because) = judge(false, ending, &checks(lines), None);
            (verdict, because.unwrap())
        };
        let lab_first = ["not ok lab/siw 1", "not ok b 1", "not ok lab/rxe 1"];
        let product_first = ["not ok b 1", "not ok lab/siw 1", "not ok c 1"];
        for end in [Ending::Finished(0), Ending::Died, Ending::TimedOut] {
            let labs = (Verdict::Lab, "lab/siw, lab/rxe failed".to_owned());
            assert_eq!(judged(end, &lab_first), labs);
            let products = (Verdict::Failed, "b failed, then the lab".to_owned());
            assert_eq!(judged(end, &product_first), products);
        }
        assert_eq!(
            verdict(true, Ending::Finished(0), &product_first),
            Verdict::Lab
        );
    }

    #[test]
    fn time_outs_of_a_wrong_clock_say_nothing() {
        let verdict =
            |lines: &[&str], rate| judge(false, Ending::Finished(0), &checks(lines), rate).0;
        assert_eq!(verdict(&["not ok a 1"], Some(2.8)), Verdict::Lab);
        assert_eq!(verdict(&["not ok a 1"], Some(1.02)), Verdict::Failed);
        assert_eq!(verdict(&["not ok a 1"], None), Verdict::Failed);
        assert_eq!(verdict(&["ok a 1"], Some(2.8)), Verdict::Passed);
    }

    /// The verdict of several lanes is that of the worst.
    #[test]
    fn what_is_worse_is_greater() {
        let mut all = [
            Verdict::Interrupted,
            Verdict::Failed,
            Verdict::Passed,
            Verdict::Lab,
        ];
        all.sort();
        assert_eq!(all.map(Verdict::exit_status), [0, 3, 1, 130]);
    }

    #[test]
    fn only_a_whole_run_passes() {
        let ok = ["ok a 1", "skip b not here"];
        assert_eq!(verdict(false, Ending::Finished(0), &ok), Verdict::Passed);
        assert_eq!(verdict(false, Ending::Finished(0), &[]), Verdict::Lab);
        let skipped = ["skip a not here", "skip b not here"];
        assert_eq!(verdict(false, Ending::Finished(0), &skipped), Verdict::Lab);
        assert_eq!(verdict(false, Ending::Finished(2), &ok), Verdict::Lab);
        assert_eq!(verdict(false, Ending::TimedOut, &ok), Verdict::Failed);
        assert_eq!(verdict(true, Ending::TimedOut, &ok), Verdict::Lab);
        assert_eq!(verdict(false, Ending::Died, &ok), Verdict::Failed);
        assert_eq!(verdict(false, Ending::NeverUp, &[]), Verdict::Lab);
        assert_eq!(
            verdict(false, Ending::Interrupted, &ok),
            Verdict::Interrupted
        );
    }

    #[test]
    fn statuses_tell_failures_apart() {
        let all = [Verdict::Passed, Verdict::Failed, Verdict::Lab];
        assert_eq!(all.map(Verdict::exit_status), [0, 1, 3]);
    }

    #[test]
    fn a_report_for_programs() {
        let checks = checks(&["ok a 1.5", "not ok b 2", "skip c why not"]);
        let report = Report {
            lane: "peers".to_owned(),
            verdict: Verdict::Failed,
            because: Some("b failed".to_owned()),
            boots: 1,
            boot_seconds: Some(6.5),
            clock_rate: None,
            seconds: 30.0,
            checks: checks.iter().map(Row::from).collect(),
            versions: vec![("qemu".to_owned(), "10".to_owned())],
        };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["verdict"], "failed");
        assert_eq!(json["checks"][0]["seconds"], 1.5);
        assert_eq!(json["checks"][1]["result"], "not ok");
        assert_eq!(json["checks"][2]["reason"], "why not");
        let summary = report.summary();
        assert!(
            summary.contains("1 passed, 1 failed, 1 skipped in 30 s"),
            "{summary}"
        );
        // The slowest is first.
        let times = [summary.find("2.0 s b"), summary.find("1.5 s a")];
        assert!(times[0].is_some() && times[0] < times[1], "{summary}");
        assert!(
            summary.ends_with("lane peers: FAILED: b failed"),
            "{summary}"
        );
    }
}
