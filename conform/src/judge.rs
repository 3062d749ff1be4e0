//! Performance of many cases, one after the other.

use std::collections::HashMap;
use std::time::Instant;

use crate::case::Case;
use crate::dialect::Dialect;
use crate::report::{Entry, Report, Verdict};
use crate::run::{Failed, Server, alive, perform, speaks};
use crate::watch::Watcher;

/// Selection of cases.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Prefixes of addresses. If there are none, all cases are selected.
    pub only: Vec<String>,
    /// Prefixes of addresses of cases that are left out.
    pub skip: Vec<String>,
    /// Whether cases that could exhaust a server are selected.
    pub hostile: bool,
    /// Why some cases cannot be performed here, by their addresses. They are not applicable.
    pub unfit: HashMap<String, String>,
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
        self.chooses(address, group) && !self.skips(address, group)
    }

    /// Returns whether an address would be selected if none were left out.
    fn chooses(&self, address: &str, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|it| is_of(address, group, it))
    }

    /// Returns whether an address is among those that are left out.
    pub(crate) fn skips(&self, address: &str, group: &str) -> bool {
        self.skip.iter().any(|it| is_of(address, group, it))
    }

    /// Returns whether an address would be selected, but is left out.
    #[must_use]
    pub fn leaves_out(&self, address: &str, group: &str) -> bool {
        self.chooses(address, group) && self.skips(address, group)
    }
}

/// Returns whether `prefix` names a case: by the first components of its address, or of the group of its version.
#[must_use]
pub fn is_of(address: &str, group: &str, prefix: &str) -> bool {
    starts(address, prefix) || starts(group, prefix)
}

/// Returns whether a name consists of `prefix` and perhaps further components. `/`, `.` and `-` separate components, so
/// that `rpcrdma2` stands for `rpcrdma2-01` and `rpcrdma2-07`.
fn starts(name: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    let rest = name.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.', '-']))
}

/// Judges a server by the selected cases. `each` is called for each case as soon as it has ended; if it
/// returns false, the rest is not performed, and the report says so. Cases of a version that the server does not
/// speak are not performed; one entry stands for all of them. That entry is a failure if the server does not say that
/// it does not speak the version. A case that needs one that is left out is not performed either: by
/// [`Selection::skip`], or as it could exhaust a server.
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
    // Cases without which others are not tested, and why.
    let mut failed: HashMap<String, &str> = HashMap::new();
    let mut bases = Bases::new(cases, selection, server);
    for case in selected {
        let address = case.address();
        if let Some(why) = selection.unfit.get(&address) {
            let verdict = Verdict::NotApplicable(why.clone());
            let entry = Entry::new(case, verdict, 0.0, Vec::new());
            let goes_on = each(&entry);
            report.entries.push(entry);
            if !goes_on {
                break;
            }
            continue;
        }
        if let Some(base) = case.needs.as_deref() {
            let wrong = match failed.get(base) {
                Some(wrong) => Some(*wrong),
                None if report.entries.iter().any(|it| it.address == base) => None,
                None => bases.wrong(base),
            };
            if let Some(wrong) = wrong {
                failed.insert(address, "was not tested");
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
            failed.insert(address.clone(), "failed");
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

/// Cases that are not selected, or not performed yet, and that selected ones need. They are performed silently.
struct Bases<'a> {
    cases: HashMap<String, &'a Case>,
    selection: &'a Selection,
    server: &'a Server,
    /// Each case that was looked at, with what is wrong with it, if anything is.
    known: HashMap<&'a str, Option<&'static str>>,
}

impl<'a> Bases<'a> {
    fn new(cases: &'a [Case], selection: &'a Selection, server: &'a Server) -> Self {
        Self {
            cases: cases.iter().map(|case| (case.address(), case)).collect(),
            selection,
            server,
            known: HashMap::new(),
        }
    }

    /// Returns why a case that needs the one with this address is not tested, if it is not.
    fn wrong(&mut self, mut address: &'a str) -> Option<&'static str> {
        // Each needs the next one. Files can have chains of any length, so this is no recursion.
        let mut chain = Vec::new();
        let mut wrong = loop {
            if let Some(known) = self.known.get(address) {
                break *known;
            }
            let case = match self.performable(address) {
                Ok(case) => case,
                Err(known) => {
                    self.known.insert(address, known);
                    break known;
                }
            };
            // Until more is known. Files of cases can have some that need each other.
            self.known.insert(address, Some("needs itself"));
            chain.push((address, case));
            match case.needs.as_deref() {
                Some(needed) => address = needed,
                None => break None,
            }
        };
        while let Some((address, case)) = chain.pop() {
            wrong = match wrong {
                Some(_) => Some("was not tested"),
                None => self.performed(case),
            };
            self.known.insert(address, wrong);
        }
        wrong
    }

    /// Returns a case that is to be performed, unless one that it needs is wrong.
    ///
    /// # Errors
    /// The case is not performed. There is a reason if what it needs is wrong.
    fn performable(&self, address: &str) -> Result<&'a Case, Option<&'static str>> {
        let Some(case) = self.cases.get(address) else {
            return Err(Some("is the address of no case"));
        };
        if self.selection.skips(address, case.dialect.group()) {
            return Err(Some("was left out"));
        }
        if case.hostile && !self.selection.hostile {
            return Err(Some("could exhaust the server, and was left out"));
        }
        // Nothing is known of a case that cannot be performed here.
        match self.selection.unfit.contains_key(address) {
            true => Err(None),
            false => Ok(case),
        }
    }

    fn performed(&self, case: &Case) -> Option<&'static str> {
        match perform(case, self.server).result {
            Ok(()) | Err(Failed::NotApplicable(_)) => None,
            Err(Failed::Deviation(_) | Failed::Unreachable(_)) => Some("failed"),
        }
    }
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
        assert!(!starts("rfc8166/4.5.2/12", ""));
        let of_translated = "rpcrdma2-01/rfc8166-4.5.2/30";
        assert!(starts(of_translated, "rpcrdma2-01/rfc8166"));
        assert!(starts(of_translated, "rpcrdma2-01/rfc8166-4.5"));
        assert!(!starts(of_translated, "rpcrdma2-01/rfc8166-4.5.2/3"));
    }

    #[test]
    fn both_versions_2_have_a_common_prefix() {
        let of = |prefix| {
            Dialect::ALL.map(|dialect| is_of("xcharext-02/2.1/1001", dialect.group(), prefix))
        };
        assert_eq!(of("rpcrdma2"), [false, true, true]);
        assert_eq!(of("rpcrdma2-01"), [false, false, true]);
        assert_eq!(of("rpcrdma1"), [true, false, false]);
        assert_eq!(of("rpcrdma"), [false; 3]);
    }

    #[test]
    fn a_case_that_is_left_out_is_not_selected() {
        let selection = Selection {
            only: vec!["rfc8166".into()],
            skip: vec!["rfc8166/4.5".into()],
            ..Selection::default()
        };
        let of = |address| {
            let group = Dialect::One.group();
            (
                selection.names(address, group),
                selection.leaves_out(address, group),
            )
        };
        assert_eq!(of("rfc8166/4.2.1/1"), (true, false));
        assert_eq!(of("rfc8166/4.5.2/1"), (false, true));
        // It would not be selected without the other option either.
        assert_eq!(of("rfc8267/4/1"), (false, false));
        let all = Selection {
            skip: vec!["rpcrdma1".into()],
            ..Selection::default()
        };
        assert!(!all.names("rfc8166/4.2.1/1", Dialect::One.group()));
        assert!(all.names("rpcrdma2-07/6.1/1", Dialect::Wg.group()));
    }
}
