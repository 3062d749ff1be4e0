//! Findings of a judgement, as lines, JSON and JUnit's XML.

use std::borrow::Cow;
use std::fmt::Write;

use crate::about::About;
use crate::case::{Case, Level};
use crate::dialect::Dialect;
use crate::known::{Compared, Known};

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "why")]
pub enum Verdict {
    /// All that was expected came, and nothing else.
    Passed,
    /// Something else came, or nothing.
    Failed(String),
    /// A deviation that somebody knows already.
    Known(String),
    /// The case says nothing about this server.
    NotApplicable(String),
    /// A simpler case of the same rule failed.
    NotTested(String),
}

/// One case with its result.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Entry {
    /// The address.
    pub address: String,
    /// The section that decides.
    pub section: Cow<'static, str>,
    /// The level.
    pub level: Level,
    /// A sentence on what is sent.
    pub sends: String,
    /// A sentence on what must come.
    pub expects: Cow<'static, str>,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Seconds.
    pub seconds: f64,
    /// The messages of a failed case, with their octets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exchange: Vec<String>,
    /// The first and the last packet of a failed case in the capture, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<[u64; 2]>,
}

impl Entry {
    pub(crate) fn new(case: &Case, verdict: Verdict, seconds: f64, exchange: Vec<String>) -> Self {
        let failed = matches!(verdict, Verdict::Failed(_));
        Self {
            address: case.address(),
            section: case.section.clone(),
            level: case.level,
            sends: case.sends.clone(),
            expects: case.expects.clone(),
            verdict,
            seconds,
            exchange: if failed { exchange } else { Vec::new() },
            packets: None,
        }
    }
}

impl Entry {
    /// Returns the entry that stands for `count` cases of a version that the server does not speak.
    pub(crate) fn absent(dialect: Dialect, count: usize, verdict: Verdict) -> Self {
        Self {
            address: dialect.group().to_owned(),
            section: dialect.document().into(),
            level: Level::Must,
            sends: format!("all {count} cases"),
            expects: "replies".into(),
            verdict,
            seconds: 0.0,
            exchange: Vec::new(),
            packets: None,
        }
    }

    /// Marks a deviation if it is one of these.
    pub fn mark(&mut self, known: &Known) {
        if let Verdict::Failed(what) = &mut self.verdict
            && known.has(&self.address)
        {
            let what = std::mem::take(what);
            self.verdict = Verdict::Known(what);
        }
    }

    /// Returns the packets of a failed case, in words.
    fn packets(&self) -> Option<String> {
        let [first, last] = self.packets?;
        Some(format!("packets {first} to {last} of the capture"))
    }

    /// Returns the reason of the result, if it has one.
    #[must_use]
    pub fn why(&self) -> &str {
        match &self.verdict {
            Verdict::Passed => "",
            Verdict::Failed(why)
            | Verdict::Known(why)
            | Verdict::NotApplicable(why)
            | Verdict::NotTested(why) => why,
        }
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, level) = (&self.address, self.level);
        let (sends, expects) = (&self.sends, &self.expects);
        match &self.verdict {
            Verdict::Passed => write!(f, "ok      {address} {level}: {sends}: {expects}"),
            Verdict::NotApplicable(why) => write!(f, "n/a     {address} {level}: {sends}: {why}"),
            Verdict::NotTested(why) => write!(f, "skipped {address} {level}: {sends}: {why}"),
            Verdict::Known(what) => write!(f, "known   {address} {level}: {sends}: {what}"),
            Verdict::Failed(what) => {
                let section = &self.section;
                write!(
                    f,
                    "FAILED  {address} {level}: {sends}\n          expected: {expects} ({section})\n          {what}"
                )?;
                match self.packets() {
                    Some(packets) => write!(f, "\n          {packets}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The results of all cases.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Report {
    /// The circumstances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// The cases, in the order in which they were performed.
    pub entries: Vec<Entry>,
    /// Why no case could be performed.
    pub untestable: Option<String>,
    /// After which case the server was gone, or that somebody stopped. The cases after that are missing.
    pub lost: Option<String>,
    /// The number of cases that were left out by their addresses.
    pub left_out: usize,
    /// The comparison with known deviations, if there are any to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Compared>,
}

/// Numbers of cases by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Passed.
    pub passed: usize,
    /// Deviations that count.
    pub deviations: usize,
    /// Deviations from a SHOULD, which do not count.
    pub remarks: usize,
    /// Deviations that are known already.
    pub known: usize,
    /// Not applicable.
    pub not_applicable: usize,
    /// Not tested.
    pub not_tested: usize,
}

impl Report {
    /// Counts the results. If `strict`, a deviation from a SHOULD counts.
    #[must_use]
    pub fn tally(&self, strict: bool) -> Tally {
        let mut tally = Tally::default();
        for entry in &self.entries {
            *match &entry.verdict {
                Verdict::Passed => &mut tally.passed,
                Verdict::Failed(_) if counts(entry.level, strict) => &mut tally.deviations,
                Verdict::Failed(_) => &mut tally.remarks,
                Verdict::Known(_) => &mut tally.known,
                Verdict::NotApplicable(_) => &mut tally.not_applicable,
                Verdict::NotTested(_) => &mut tally.not_tested,
            } += 1;
        }
        tally
    }

    /// Compares the deviations with known ones, and marks those that are known.
    pub fn compare(&mut self, known: &Known, strict: bool) {
        for entry in &mut self.entries {
            entry.mark(known);
        }
        let is_new =
            |it: &&Entry| matches!(it.verdict, Verdict::Failed(_)) && counts(it.level, strict);
        let new = self.entries.iter().filter(is_new);
        let mut compared = Compared {
            new: new.map(|it| it.address.clone()).collect(),
            ..Compared::default()
        };
        for address in known.addresses() {
            let entry = self.entries.iter().find(|it| it.address == address);
            match entry.map(|it| &it.verdict) {
                Some(Verdict::Failed(_) | Verdict::Known(_)) => {}
                Some(Verdict::Passed) => compared.passed.push(address.to_owned()),
                Some(Verdict::NotApplicable(_) | Verdict::NotTested(_)) | None => {
                    compared.not_performed.push(address.to_owned());
                }
            }
        }
        self.known = Some(compared);
    }

    /// Returns whether the case of a known deviation has passed.
    fn is_known_no_more(&self, address: &str) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|it| it.passed.iter().any(|it| it == address))
    }

    /// Returns the exit status: 0 if nothing deviates, 1 if something does, 2 if nothing could be tested. Known
    /// deviations do not count, unless one of them has passed: that is 1, too.
    #[must_use]
    pub fn status(&self, strict: bool) -> u8 {
        let tally = self.tally(strict);
        let performed = tally.passed + tally.remarks + tally.known;
        let has_passed = |it: &Compared| !it.passed.is_empty();
        match () {
            () if tally.deviations > 0 || self.lost.is_some() => 1,
            () if self.known.as_ref().is_some_and(has_passed) => 1,
            () if self.untestable.is_some() || performed == 0 => 2,
            () => 0,
        }
    }

    /// Says in [`Report::untestable`] that no case was tested, if there is no other reason and none was.
    pub fn complete(&mut self, strict: bool) {
        let Some(first) = self.entries.first() else {
            return;
        };
        if self.untestable.is_none() && self.status(strict) == 2 {
            let (tally, why) = (self.tally(strict), first.why());
            let count = tally.not_applicable + tally.not_tested;
            self.untestable = Some(format!(
                "no case was tested: {count} not applicable or skipped, {} for example: {why}",
                first.address
            ));
        }
    }

    /// Returns the report in the XML of JUnit, as continuous integration reads it.
    #[must_use]
    pub fn junit(&self, strict: bool) -> String {
        let tally = self.tally(strict);
        let gone = self.untestable.iter().chain(&self.lost);
        let errors = gone.clone().count();
        let tests = self.entries.len() + errors;
        let skipped = tally.not_applicable + tally.not_tested + tally.remarks + tally.known;
        let known_no_more = self.known.as_ref().map_or(0, |it| it.passed.len());
        // The attribute has no time zone.
        let date = self.about.iter().map(|it| it.date.trim_end_matches('Z'));
        let timestamp = date.map(|it| format!(" timestamp=\"{}\"", escaped(it)));
        let mut out = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rpcrdma conform\" tests=\"{tests}\" \
             failures=\"{}\" errors=\"{errors}\" skipped=\"{skipped}\"{}>\n",
            tally.deviations + known_no_more,
            timestamp.collect::<String>()
        );
        out.push_str(&self.properties());
        for entry in &self.entries {
            let (group, _) = entry
                .address
                .rsplit_once('/')
                .unwrap_or((&entry.address, ""));
            let name = format!("{} {}: {}", entry.address, entry.level, entry.sends);
            let inner = match &entry.verdict {
                Verdict::Passed if self.is_known_no_more(&entry.address) => {
                    "<failure message=\"a known deviation that passes now\"/>".into()
                }
                Verdict::Passed => String::new(),
                Verdict::Known(what) => {
                    format!("<skipped message=\"known: {}\"/>", escaped(what))
                }
                Verdict::NotApplicable(why) | Verdict::NotTested(why) => {
                    format!("<skipped message=\"{}\"/>", escaped(why))
                }
                Verdict::Failed(what) if counts(entry.level, strict) => {
                    let mut lines = entry.exchange.clone();
                    lines.extend(entry.packets());
                    format!(
                        "<failure message=\"{}\">{}</failure>",
                        escaped(&format!("expected {}: {what}", entry.expects)),
                        escaped(&lines.join("\n"))
                    )
                }
                Verdict::Failed(what) => format!("<skipped message=\"{}\"/>", escaped(what)),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{inner}</testcase>",
                escaped(group),
                escaped(&name),
                entry.seconds
            );
        }
        for what in gone {
            let what = escaped(what);
            let _ = writeln!(
                out,
                "  <testcase name=\"server\"><error message=\"{what}\"/></testcase>"
            );
        }
        out.push_str("</testsuite>\n");
        out
    }

    /// Returns the circumstances in XML.
    fn properties(&self) -> String {
        let Some(about) = &self.about else {
            return String::new();
        };
        let one = |(name, value): (&str, String)| {
            let value = escaped(&value);
            format!("    <property name=\"{name}\" value=\"{value}\"/>\n")
        };
        let all: String = about.properties().into_iter().map(one).collect();
        format!("  <properties>\n{all}  </properties>\n")
    }
}

/// Returns whether a deviation of this level counts.
fn counts(level: Level, strict: bool) -> bool {
    strict || level != Level::Should
}

/// Returns text for XML. Characters that XML does not allow become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::case;

    fn entry(level: Level, verdict: Verdict) -> Entry {
        let case = case(
            "RFC 8166, 4.5",
            1,
            "a <message> & \"more\"",
            "nothing",
            Vec::new(),
        );
        Entry::new(&case.level(level), verdict, 0.25, vec!["sent 0".into()])
    }

    fn report(entries: Vec<Entry>) -> Report {
        Report {
            entries,
            ..Report::default()
        }
    }

    #[test]
    fn a_deviation_from_a_should_counts_only_if_strict() {
        let failed = || Verdict::Failed("silence".into());
        let should = report(vec![
            entry(Level::Should, failed()),
            entry(Level::Must, Verdict::Passed),
        ]);
        assert_eq!((should.status(false), should.status(true)), (0, 1));
        let must = report(vec![entry(Level::Must, failed())]);
        assert_eq!(must.status(false), 1);
        let nothing = report(vec![entry(
            Level::Must,
            Verdict::NotApplicable("no".into()),
        )]);
        assert_eq!(nothing.status(true), 2);
        assert_eq!(Report::default().status(false), 2);
    }

    #[test]
    fn a_report_says_why_no_case_was_tested() {
        let no = || entry(Level::Must, Verdict::NotApplicable("short receives".into()));
        let completed = |entries| {
            let mut report = report(entries);
            report.complete(false);
            (report.status(false), report.untestable)
        };
        let (status, why) = completed(vec![no(), no()]);
        let why = why.unwrap();
        assert_eq!(status, 2);
        assert!(why.contains("2 not applicable"), "{why}");
        assert!(
            why.ends_with("rfc8166/4.5/1 for example: short receives"),
            "{why}"
        );
        let passed = entry(Level::Must, Verdict::Passed);
        assert_eq!(completed(vec![no(), passed]), (0, None));
    }

    #[test]
    fn a_server_that_is_gone_is_a_deviation() {
        let mut gone = report(vec![entry(Level::Must, Verdict::Passed)]);
        gone.lost = Some("gone".into());
        assert_eq!(gone.status(false), 1);
        assert!(gone.junit(false).contains("errors=\"1\""));
    }

    #[test]
    fn known_deviations_do_not_count_until_one_passes() {
        let other = |verdict| Entry {
            address: "rfc8166/4.5/2".into(),
            ..entry(Level::Must, verdict)
        };
        let failed = || Verdict::Failed("silence".into());
        let compared = |entries, known: &str| {
            let mut report = report(entries);
            report.compare(&Known::parse(known).unwrap(), false);
            report
        };
        let both = "rfc8166/4.5/1\nrfc8166/4.5/2\nrfc8166/4.5/3";
        let fails = || vec![entry(Level::Must, failed()), other(failed())];
        let known = compared(fails(), both);
        assert_eq!(known.status(false), 0);
        assert_eq!(known.tally(false).known, 2);
        let at_all = known.known.as_ref().unwrap();
        assert_eq!(at_all.not_performed, ["rfc8166/4.5/3"]);
        assert!(
            known.entries[0]
                .to_string()
                .starts_with("known   rfc8166/4.5/1 ")
        );
        let xml = known.junit(false);
        assert!(
            xml.contains("failures=\"0\" errors=\"0\" skipped=\"2\""),
            "{xml}"
        );
        assert!(
            xml.contains("<skipped message=\"known: silence\"/>"),
            "{xml}"
        );

        let new = compared(fails(), "rfc8166/4.5/2");
        assert_eq!(new.status(false), 1);
        assert_eq!(new.known.unwrap().new, ["rfc8166/4.5/1"]);

        let mended = vec![entry(Level::Must, failed()), other(Verdict::Passed)];
        let mended = compared(mended, both);
        assert_eq!(mended.status(false), 1);
        let xml = mended.junit(false);
        assert!(
            xml.contains("failures=\"1\" errors=\"0\" skipped=\"1\""),
            "{xml}"
        );
        assert_eq!(mended.known.unwrap().passed, ["rfc8166/4.5/2"]);
    }

    #[test]
    fn a_known_deviation_from_a_should_is_known_although_it_does_not_count() {
        let should = |verdict| report(vec![entry(Level::Should, verdict)]);
        let known = Known::parse("rfc8166/4.5/1").unwrap();
        let mut fails = should(Verdict::Failed("silence".into()));
        fails.compare(&known, false);
        assert_eq!((fails.status(false), fails.tally(false).known), (0, 1));
        let mut passes = should(Verdict::Passed);
        passes.compare(&known, false);
        assert_eq!(passes.status(false), 1);
        // One that nobody knows is none of the deviations that count.
        let mut unknown = should(Verdict::Failed("silence".into()));
        unknown.compare(&Known::default(), false);
        assert_eq!(unknown.status(false), 0);
        assert!(unknown.known.unwrap().new.is_empty());
    }

    #[test]
    fn xml_says_what_was_judged_and_how() {
        let report = Report {
            about: Some(About {
                version: "1.2.3".into(),
                target: "nfs://host/a&b".into(),
                date: "2026-11-30T12:43:15Z".into(),
                skip: vec!["rfc8166/4.5".into(), "rfc8267".into()],
                ..About::default()
            }),
            untestable: Some("nobody listens".into()),
            ..Report::default()
        };
        let xml = report.junit(false);
        for part in [
            "tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" timestamp=\"2026-11-30T12:43:15\">",
            "<property name=\"target\" value=\"nfs://host/a&amp;b\"/>",
            "<property name=\"date\" value=\"2026-11-30T12:43:15Z\"/>",
            "<property name=\"skip\" value=\"rfc8267\"/>",
            "<error message=\"nobody listens\"/>",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }

    #[test]
    fn xml_is_escaped() {
        let xml = report(vec![entry(Level::Must, Verdict::Failed("\u{1}<".into()))]).junit(false);
        assert!(
            xml.contains("a &lt;message&gt; &amp; &quot;more&quot;"),
            "{xml}"
        );
        assert!(xml.contains("expected nothing: \u{fffd}&lt;"), "{xml}");
        assert!(xml.contains("classname=\"rfc8166/4.5\""), "{xml}");
    }
}
