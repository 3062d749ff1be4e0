//! Judgement of a client by many performances.

use std::sync::atomic::{AtomicBool, Ordering};

use super::case::{Act, Case, Operation, Outcome};
use super::mountd;
use super::performance::{AtEnd, Judge, Performed, perform};
use super::rules::Rule;
use super::under_test::{Client, Ended};
use crate::dialect::Dialect;
use crate::endpoint::Listen;
use crate::judge::Selection;
use crate::report::{Entry, Report, Verdict};

/// Judges a client by the selected cases. `each` is called for each case as soon as it has ended; if it returns false,
/// that case is not in the report, and the rest is not performed. Cases whose operation the client cannot perform with
/// a plain server are not tested, nor are those for which the case of that is left out. Those of a version that the
/// client does not speak are not applicable.
///
/// # Errors
/// The listener cannot be used.
pub fn judge(
    cases: &[Case],
    selection: &Selection,
    judge: &Judge<'_>,
    client: &mut dyn Client,
    each: &mut dyn FnMut(&Entry) -> bool,
) -> std::io::Result<Report> {
    judge.listener.begin()?;
    if let Some(listener) = judge.mount {
        listener.set_nonblocking(true)?;
    }
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let has_ended = &has_ended;
        if let Some(listener) = judge.mount {
            scope.spawn(move || mountd::serve(listener, &|| has_ended.load(Ordering::Acquire)));
        }
        let _end = AtEnd(|| has_ended.store(true, Ordering::Release));
        judged(cases, selection, judge, client, each)
    })
}

fn judged(
    cases: &[Case],
    selection: &Selection,
    judge: &Judge<'_>,
    client: &mut dyn Client,
    each: &mut dyn FnMut(&Entry) -> bool,
) -> std::io::Result<Report> {
    let mut report = Report::default();
    let mut performances = Performances {
        judge,
        client,
        done: Vec::new(),
        unspoken: Vec::new(),
    };
    let selected = cases
        .iter()
        .filter(|case| selection.names(&case.address(), case.dialect.group()));
    for case in selected {
        let is_plain = |it: &&Case| {
            (it.dialect, it.operation) == (case.dialect, case.operation)
                && it.act == Act::Honest
                && it.outcome.is_some()
        };
        let base = cases.iter().find(is_plain);
        let is_left_out = |it: &&Case| selection.skips(&it.address(), it.dialect.group());
        let left_out = base.filter(|_| case.act != Act::Honest).filter(is_left_out);
        let unspoken = match (left_out, unfit(case, judge.listener)) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(why),
            (None, None) => performances.unspoken(case)?,
        };
        let entry = match (left_out, unspoken) {
            (Some(base), _) => {
                let why = format!("{} was left out", base.address());
                not_performed(case, Verdict::NotTested(why))
            }
            (None, Some(why)) => not_performed(case, Verdict::NotApplicable(why)),
            (None, None) => {
                let plain = performances.of(case.dialect, case.operation, Act::Honest)?;
                let is_unable = matches!(plain.ended, Ended::Unable(_));
                if !plain.connected && !is_unable && report.entries.is_empty() {
                    report.untestable = Some(no_connection(case.operation, plain));
                    return Ok(report);
                }
                let is_bad = !is_unable && outcome(Outcome::Succeeds, plain).is_some();
                match base.filter(|_| is_bad && case.act != Act::Honest) {
                    Some(base) => {
                        let why = format!("{} failed", base.address());
                        entry(case, Verdict::NotTested(why), plain)
                    }
                    None if is_unable => entry(case, verdict(case, plain), plain),
                    None => {
                        let done = performances.of(case.dialect, case.operation, case.act)?;
                        entry(case, verdict(case, done), done)
                    }
                }
            }
        };
        if !each(&entry) {
            return Ok(report);
        }
        report.entries.push(entry);
    }
    // A version can be unspoken where the client is told it, and where it is not, for the same reason.
    let mut whys: Vec<String> = Vec::new();
    for (_, why) in performances.unspoken {
        if !whys.contains(&why) {
            whys.push(why);
        }
    }
    let is_absent = |it: &Entry| whys.iter().any(|why| why == it.why());
    if !whys.is_empty() && report.entries.iter().all(is_absent) {
        report.untestable = Some(whys.join("; "));
    }
    Ok(report)
}

/// The performances so far.
struct Performances<'j> {
    judge: &'j Judge<'j>,
    client: &'j mut dyn Client,
    done: Vec<((Dialect, Operation, Act), Performed)>,
    /// The versions that the client does not speak where it is told the version, and where it is not, and how it has
    /// shown that.
    unspoken: Vec<((Dialect, bool), String)>,
}

impl Performances<'_> {
    /// Returns the performance of an operation with an act, after performing it if that is the first time.
    fn of(
        &mut self,
        dialect: Dialect,
        operation: Operation,
        act: Act,
    ) -> std::io::Result<&Performed> {
        let key = (dialect, operation, act);
        let at = match self.done.iter().position(|(it, _)| *it == key) {
            Some(at) => at,
            None => {
                let performed = perform(self.judge, dialect, operation, act, self.client)?;
                self.done.push((key, performed));
                self.done.len() - 1
            }
        };
        Ok(&self.done[at].1)
    }

    /// Returns why the client does not speak the version of a case, if it has shown that.
    fn unspoken(&mut self, case: &Case) -> std::io::Result<Option<String>> {
        let own = case.dialect;
        let is_told = self.client.is_told(case.operation);
        let key = (own, is_told);
        if let Some((_, why)) = self.unspoken.iter().find(|(it, _)| *it == key) {
            return Ok(Some(why.clone()));
        }
        // A client that begins with version 1 does not try another, unless it is told to.
        let mut others = self.done.iter();
        let begins = others.find_map(|((_, operation, _), it)| {
            let is_like_it = self.client.is_told(*operation) == is_told;
            it.first.filter(|_| is_like_it)
        });
        let is_fixed = begins == Some(Dialect::One) && !is_told;
        let other = match is_fixed && own != Dialect::One {
            true => begins,
            false => {
                let plain = self.of(own, case.operation, Act::Honest)?;
                plain.speaks_other
            }
        };
        let why = other.map(|other| {
            format!("the client does not speak {own}: it begins with {other}, and tries no other")
        });
        self.unspoken.extend(why.clone().map(|why| (key, why)));
        Ok(why)
    }
}

/// Returns why a case cannot be performed by this listener, if it cannot.
fn unfit(case: &Case, listener: &dyn Listen) -> Option<String> {
    let hidden = case.rules.contains(&Rule::Framing);
    let hidden = hidden.then(|| listener.hides_headers()).flatten();
    hidden.or_else(|| match case.act {
        Act::Private(private) => listener.refuses_private_data(private.len()),
        _ => None,
    })
}

/// Returns the entry of a case that is not performed.
fn not_performed(case: &Case, verdict: Verdict) -> Entry {
    Entry {
        address: case.address(),
        section: case.section.into(),
        level: case.level,
        sends: sentence(case),
        expects: case.expects.into(),
        verdict,
        seconds: 0.0,
        exchange: Vec::new(),
        packets: None,
    }
}

/// Returns what happens in a case, as a noun phrase.
fn sentence(case: &Case) -> String {
    match case.act {
        Act::Honest => case.does.to_owned(),
        _ => format!("{} ({})", case.does, case.operation),
    }
}

/// Returns the reason why a client could not be looked at.
fn no_connection(operation: Operation, done: &Performed) -> String {
    let why = done.not_set_up.clone().or_else(|| match &done.ended {
        Ended::Failed(why) | Ended::Crashed(why) => Some(why.clone()),
        Ended::Late => Some("it did not end in time".into()),
        Ended::Succeeded(_) | Ended::Unknown | Ended::Unable(_) => None,
    });
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    format!("the client made no connection for the operation {operation}{why}")
}

/// Returns why an operation did not end as it must, if it did not.
fn outcome(expected: Outcome, done: &Performed) -> Option<String> {
    match (&done.ended, expected) {
        (Ended::Crashed(how), _) => Some(format!("the client has crashed: {how}")),
        (Ended::Late, _) => Some("the client did not end in time".into()),
        (Ended::Failed(why), Outcome::Succeeds) => Some(format!("the client failed: {why}")),
        (_, Outcome::Succeeds) => done.incomplete.clone(),
        (_, Outcome::Ends) => None,
    }
}

fn verdict(case: &Case, done: &Performed) -> Verdict {
    if let Ended::Unable(why) = &done.ended {
        return Verdict::NotApplicable(why.clone());
    }
    if !done.connected {
        return Verdict::Failed(no_connection(case.operation, done));
    }
    let broken = |rule: &Rule| done.findings.broken(*rule);
    if let Some(what) = case.rules.iter().find_map(broken) {
        return Verdict::Failed(what.to_owned());
    }
    let end = case.outcome.and_then(|expected| outcome(expected, done));
    // A crash or a hang may be why nothing more was seen.
    let is_worst = matches!(done.ended, Ended::Crashed(_) | Ended::Late);
    // That an operation outlives its connection, no text says; it must outlive fewer credits.
    let is_decided = is_worst || case.act == Act::Lower && done.acted;
    if let Some(what) = end.clone().filter(|_| is_decided) {
        return Verdict::Failed(what);
    }
    let looked = case.rules.iter().any(|rule| done.findings.looked(*rule));
    let plain = case.act == Act::Honest && case.outcome.is_some();
    if !done.acted || !plain && !case.rules.is_empty() && !looked {
        return Verdict::NotApplicable("nothing was seen that this case looks at".into());
    }
    match end {
        Some(what) => Verdict::Failed(what),
        None => Verdict::Passed,
    }
}

fn entry(case: &Case, verdict: Verdict, done: &Performed) -> Entry {
    let is_bad = matches!(verdict, Verdict::Failed(_));
    Entry {
        address: case.address(),
        section: case.section.into(),
        level: case.level,
        sends: sentence(case),
        expects: case.expects.into(),
        verdict,
        seconds: done.seconds,
        exchange: if is_bad {
            done.exchange.clone()
        } else {
            Vec::new()
        },
        packets: done.packets.filter(|_| is_bad),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::case::Level;
    use crate::client::rules::Findings;
    use crate::client::under_test::Task;
    use crate::wire::{ddp, mpa, rpc, v1, wg};

    fn done(findings: Findings, ended: Ended) -> Performed {
        Performed {
            findings,
            exchange: Vec::new(),
            acted: true,
            ended,
            incomplete: None,
            connected: true,
            speaks_other: None,
            first: None,
            not_set_up: None,
            seconds: 0.0,
            packets: None,
        }
    }

    fn case(rules: &'static [Rule], outcome: Option<Outcome>) -> Case {
        Case {
            dialect: Dialect::One,
            section: "RFC 8166, 4.5",
            number: 1,
            level: Level::Must,
            operation: Operation::Read,
            act: Act::Twice,
            does: "the reply twice",
            expects: "nothing",
            rules,
            outcome,
        }
    }

    #[test]
    fn a_rule_that_nothing_was_looked_at_for_is_not_applicable() {
        let case = case(&[Rule::Credits], None);
        let nothing = done(Findings::default(), Ended::Unknown);
        assert!(matches!(
            verdict(&case, &nothing),
            Verdict::NotApplicable(_)
        ));
        let mut findings = Findings::default();
        findings.look(Rule::Credits, true, String::new);
        assert_eq!(
            verdict(&case, &done(findings.clone(), Ended::Late)),
            Verdict::Passed
        );
        findings.look(Rule::Credits, false, || "nine calls".into());
        let failed = Verdict::Failed("nine calls".into());
        assert_eq!(verdict(&case, &done(findings, Ended::Unknown)), failed);
    }

    #[test]
    fn a_crash_fails_where_any_end_is_allowed() {
        let case = case(&[], Some(Outcome::Ends));
        let ended = |ended| verdict(&case, &done(Findings::default(), ended));
        assert_eq!(ended(Ended::Failed("ERR_CHUNK".into())), Verdict::Passed);
        assert!(matches!(
            ended(Ended::Crashed("signal 11".into())),
            Verdict::Failed(_)
        ));
        assert!(matches!(ended(Ended::Late), Verdict::Failed(_)));
    }

    #[test]
    fn a_crash_fails_where_nothing_was_looked_at() {
        let case = case(&[Rule::Again], Some(Outcome::Succeeds));
        let verdict = |acted, ended| {
            let findings = Findings::default();
            let done = Performed {
                acted,
                ..done(findings, ended)
            };
            verdict(&case, &done)
        };
        for acted in [false, true] {
            let crashed = verdict(acted, Ended::Crashed("signal 11".into()));
            assert!(matches!(crashed, Verdict::Failed(_)), "{crashed:?}");
            let late = verdict(acted, Ended::Late);
            assert!(matches!(late, Verdict::Failed(_)), "{late:?}");
            let failed = verdict(acted, Ended::Failed("EIO".into()));
            assert!(matches!(failed, Verdict::NotApplicable(_)), "{failed:?}");
        }
    }

    /// A client that is told the version when it pings, and begins with version 1 when it reads.
    struct Told;

    impl Client for Told {
        fn is_told(&self, operation: Operation) -> bool {
            operation == Operation::Ping
        }

        fn perform(&mut self, task: &Task<'_>) -> Ended {
            let message = match (task.operation, task.dialect) {
                (Operation::Ping, Dialect::Wg) => wg::introduction(&wg::plain_properties()),
                _ => v1::header(7).with(&rpc::null(7).bytes()),
            };
            let mut stream = TcpStream::connect(task.address).unwrap();
            stream.write_all(&mpa::Frame::request().bytes()).unwrap();
            let send = ddp::Untagged::send(1, &message).ulpdu();
            stream.write_all(&mpa::fpdu(&send, false)).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            while (task.progress)().connections == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ended::Failed("it does no more".into())
        }
    }

    /// Judges a client by the plain cases of these versions and operations.
    fn judged(client: &mut dyn Client, plain: &[(Dialect, Operation)]) -> Report {
        let all = crate::client::cases::all();
        let of = |wanted: &(Dialect, Operation)| {
            let mut all = all.iter();
            let found =
                all.find(|it| (it.dialect, it.operation) == *wanted && it.act == Act::Honest);
            found.unwrap().clone()
        };
        let cases: Vec<Case> = plain.iter().map(of).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let its = Judge {
            listener: &listener,
            mount: None,
            patience: Duration::from_secs(5),
            watcher: None,
        };
        let report = judge(&cases, &Selection::default(), &its, client, &mut |_| true);
        report.unwrap()
    }

    #[test]
    fn a_version_that_one_operation_does_not_speak_is_judged_in_others() {
        let plain = [Operation::Read, Operation::Ping].map(|it| (Dialect::Wg, it));
        let report = judged(&mut Told, &plain);
        let [read, ping] = &report.entries[..] else {
            panic!("{report:?}");
        };
        assert!(read.why().contains("it begins with"), "{read:?}");
        assert!(!ping.why().contains("it begins with"), "{ping:?}");
    }

    #[test]
    fn each_reason_why_nothing_could_be_tested_is_said_once() {
        // The first one is that of a client that is not told the version, and of one that is.
        let plain = [
            (Dialect::Two, Operation::Read),
            (Dialect::Wg, Operation::Read),
            (Dialect::Two, Operation::Ping),
        ];
        let report = judged(&mut Told, &plain);
        let why = |dialect| {
            format!(
                "the client does not speak {dialect}: it begins with {}, and tries no other",
                Dialect::One
            )
        };
        let both = format!("{}; {}", why(Dialect::Two), why(Dialect::Wg));
        assert_eq!(report.untestable, Some(both));
    }

    #[test]
    fn an_operation_that_fewer_credits_end_has_failed() {
        let case = Case {
            act: Act::Lower,
            ..case(&[Rule::LoweredCredits], Some(Outcome::Succeeds))
        };
        let verdict = |acted, ended, incomplete: Option<&str>| {
            let done = Performed {
                acted,
                incomplete: incomplete.map(str::to_owned),
                ..done(Findings::default(), ended)
            };
            matches!(verdict(&case, &done), Verdict::Failed(_))
        };
        let failed = || Ended::Failed("EIO".into());
        assert!(verdict(true, failed(), None));
        assert!(verdict(true, Ended::Unknown, Some("not the whole file")));
        assert!(!verdict(true, Ended::Unknown, None));
        assert!(!verdict(false, failed(), None));
    }
}
