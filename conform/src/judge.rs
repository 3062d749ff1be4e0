//! Performance of many cases, one after the other.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use crate::case::Case;
use crate::dialect::Dialect;
use crate::report::{Entry, Report, Verdict};
use crate::run::{Failed, Server, alive, perform, speaks};
use crate::watch::Watcher;

/// Selection of cases, and what counts.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Prefixes of addresses. If there are none, all cases are selected.
    pub only: Vec<String>,
    /// Whether cases that could exhaust a server are selected.
    pub hostile: bool,
}

impl Selection {
    /// Returns whether a case is selected.
    #[must_use]
    pub fn has(&self, case: &Case) -> bool {
        (self.hostile || !case.hostile) && self.names(&case.address(), case.dialect.group())
    }

    /// Returns whether an address is selected. Reports name all cases of a version by their group.
    #[must_use]
    pub fn names(&self, address: &str, group: &str) -> bool {
        let names = |it: &str| starts(address, it) || it.trim_end_matches('/') == group;
        self.only.is_empty() || self.only.iter().any(|it| names(it))
    }
}

/// Returns whether an address is, or is below, the one that `prefix` names.
fn starts(address: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    let rest = address.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}

/// Judges a server by the selected cases. `each` is called for each case as soon as it has ended; if it
/// returns false, the rest is not performed, and the report says so. Cases of a version that the server does not
/// speak are not performed; one entry stands for all of them. That entry is a failure if the server does not say that
/// it does not speak the version.
pub fn judge(
    cases: &[Case],
    selection: &Selection,
    server: &Server,
    each: &mut dyn FnMut(&Entry) -> bool,
) -> Report {
    let mut report = Report::default();
    let mut selected: Vec<&Case> = cases.iter().filter(|case| selection.has(case)).collect();
    let mut absent: Vec<Entry> = Vec::new();
    // Versions in which the plain call is answered.
    let mut answered = Vec::new();
    for dialect in Dialect::ALL {
        let count = selected.iter().filter(|it| it.dialect == dialect).count();
        if count == 0 {
            continue;
        }
        match speaks(server, dialect) {
            Ok(()) if alive(server, dialect).is_ok() => answered.push(dialect),
            Ok(()) => {}
            Err(Failed::NotApplicable(why)) => {
                selected.retain(|case| case.dialect != dialect);
                let verdict = Verdict::NotApplicable(why);
                absent.push(Entry::absent(dialect, count, verdict));
            }
            Err(Failed::Deviation(what)) => {
                selected.retain(|case| case.dialect != dialect);
                let verdict = Verdict::Failed(format!("no answer to NULL over {dialect}: {what}"));
                absent.push(Entry::absent(dialect, count, verdict));
            }
            Err(other @ Failed::Unreachable(_)) => {
                report.untestable = Some(format!("NULL over {dialect}: {other}"));
                return report;
            }
        }
    }
    if selected.is_empty() {
        let why = absent.iter().map(|entry| entry.why().to_owned());
        report.untestable = Some(why.collect::<Vec<_>>().join("; "));
        return report;
    }
    for entry in absent {
        let goes_on = each(&entry);
        report.entries.push(entry);
        if !goes_on {
            return report;
        }
    }
    let mut failed: HashSet<String> = HashSet::new();
    // Bases that are not selected are performed silently where a selected case depends on them.
    let mut bases: HashMap<&str, Option<&str>> = HashMap::new();
    for case in selected {
        let address = case.address();
        if let Some(base) = case.needs.as_deref() {
            let wrong = match failed.contains(base) {
                true => Some("failed"),
                false if report.entries.iter().any(|it| it.address == base) => None,
                false => *bases.entry(base).or_insert_with(|| {
                    let base = cases.iter().find(|it| it.address() == base);
                    match base.map(|it| perform(it, server).result) {
                        Some(Ok(())) => None,
                        Some(Err(_)) => Some("failed"),
                        None => Some("is the address of no case"),
                    }
                }),
            };
            if let Some(wrong) = wrong {
                failed.insert(address);
                let verdict = Verdict::NotTested(format!("{base} {wrong}"));
                let entry = Entry::new(case, verdict, 0.0, Vec::new());
                let goes_on = each(&entry);
                report.entries.push(entry);
                if !goes_on {
                    break;
                }
                continue;
            }
        }
        let packets = || server.watcher.as_ref().map_or(0, Watcher::packets);
        let (started, before) = (Instant::now(), packets());
        let performed = perform(case, server);
        let seconds = started.elapsed().as_secs_f64();
        let after = packets();
        let verdict = match performed.result {
            Ok(()) => Verdict::Passed,
            Err(Failed::NotApplicable(why)) => Verdict::NotApplicable(why),
            Err(Failed::Deviation(what) | Failed::Unreachable(what)) => Verdict::Failed(what),
        };
        let is_bad = matches!(verdict, Verdict::Failed(_));
        let mut entry = Entry::new(case, verdict, seconds, performed.exchange);
        if is_bad && after > before {
            entry.packets = Some([before + 1, after]);
        }
        let goes_on = each(&entry);
        report.entries.push(entry);
        if is_bad {
            failed.insert(address.clone());
        }
        let is_there = || match answered.contains(&case.dialect) {
            true => alive(server, case.dialect),
            false => speaks(server, case.dialect),
        };
        if (is_bad || case.hostile)
            && let Err(gone) = is_there()
        {
            report.lost = Some(format!(
                "after {address}, the server does not answer any more: {gone}"
            ));
            break;
        }
        if !goes_on {
            break;
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_a_part_of_an_address_ends() {
        assert!(starts("rfc8166/4.5.2/12", "rfc8166"));
        assert!(starts("rfc8166/4.5.2/12", "rfc8166/4"));
        assert!(starts("rfc8166/4.5.2/12", "rfc8166/4.5.2/"));
        assert!(starts("rfc8166/4.5.2/12", "rfc8166/4.5.2/12"));
        assert!(!starts("rfc8166/4.5.2/12", "rfc8166/4.5.2/1"));
        assert!(!starts("rfc8166/4.5.2/12", "rfc81"));
    }
}
