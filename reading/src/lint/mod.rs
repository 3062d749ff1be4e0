//! The rules that a capture breaks, what it costs needlessly, and what other ways of moving its calls
//! would have saved.

mod needless;
mod savings;

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use transfer_plan::CostModel;

pub use self::needless::Advice;
pub use self::savings::{Alternative, Counts, Savings};
use crate::call::{At, Call, Connection, ConnectionId, Outcome};
use crate::rules::{self, Breach, Severity};
use crate::sink::{Lost, Sink};

/// Something that occurs in a capture, with the first places.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its name.
    pub id: &'static str,
    /// Severity; `None` for a needless cost.
    pub severity: Option<&'static str>,
    /// Document and section.
    pub section: &'static str,
    /// Description, as a sentence.
    pub sentence: &'static str,
    /// Settings that avoid it: the option of this project, and that of Linux.
    pub instead: Option<&'static str>,
    /// Number of times.
    pub count: u64,
    /// The first places, in the order of the capture.
    pub places: Vec<Place>,
}

/// A place in the capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The packet.
    pub packet: u64,
    /// The connection.
    pub connection: u32,
    /// The XID of the call, if there is one.
    pub xid: Option<u32>,
    /// The values.
    pub detail: String,
}

/// All that is found in a capture.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The rules that are broken, the gravest first.
    pub broken: Vec<Finding>,
    /// Findings that are no errors, but of which a reader wants to know.
    pub notes: Vec<Finding>,
    /// Needless costs, the most frequent first.
    pub needless: Vec<Finding>,
    /// Work of the calls, and of other ways of moving them.
    pub savings: Savings,
    /// Number of calls that ended, and of those that did not.
    pub calls: u64,
    /// Number of calls without a reply.
    pub unanswered: u64,
    /// Number of places where the capture lacks something, with the first reason.
    pub lost: u64,
    /// The first reason why something is missing.
    pub first_lost: Option<String>,
}

impl Report {
    /// Returns whether a rule is broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Collects findings from the calls of a capture.
#[derive(Debug)]
pub struct Lint {
    places: usize,
    found: HashMap<&'static str, Found>,
    savings: savings::Collector,
    told: HashSet<(ConnectionId, &'static str)>,
    calls: u64,
    unanswered: u64,
    lost: u64,
    first_lost: Option<String>,
}

#[derive(Debug, Default)]
struct Found {
    count: u64,
    places: Vec<Place>,
}

impl Lint {
    /// Creates a collector that keeps the first `places` places of each finding and prices work by
    /// `costs`.
    #[must_use]
    pub fn new(places: usize, costs: &CostModel) -> Self {
        Self {
            places,
            found: HashMap::new(),
            savings: savings::Collector::new(costs),
            told: HashSet::new(),
            calls: 0,
            unanswered: 0,
            lost: 0,
            first_lost: None,
        }
    }

    fn find(&mut self, id: &'static str, place: Place) {
        let found = self.found.entry(id).or_default();
        found.count += 1;
        // Calls come in the order of their ends, and places are shown in that of the capture.
        let index = found.places.partition_point(|it| it.packet <= place.packet);
        if index < self.places {
            found.places.insert(index, place);
            found.places.truncate(self.places);
        }
    }

    fn advise(
        &mut self,
        advice: &'static Advice,
        connection: ConnectionId,
        place: (At, Option<u32>),
        detail: String,
    ) {
        let place = Place {
            packet: place.0.packet,
            connection: connection.0,
            xid: place.1,
            detail,
        };
        self.find(advice.id, place);
    }

    /// Returns what was found.
    #[must_use]
    pub fn report(mut self) -> Report {
        let mut broken = Vec::new();
        let mut notes = Vec::new();
        for rule in rules::all() {
            let Some(Found { count, places }) = self.found.remove(rule.id) else {
                continue;
            };
            let (severity, list) = match rule.severity {
                Severity::Error => ("error", &mut broken),
                Severity::Warning => ("warning", &mut broken),
                Severity::Note => ("note", &mut notes),
            };
            list.push((
                rule.severity,
                Finding {
                    id: rule.id,
                    severity: Some(severity),
                    section: rule.section,
                    sentence: rule.sentence,
                    instead: None,
                    count,
                    places,
                },
            ));
        }
        // The sort keeps the order of the table among equals.
        broken.sort_by_key(|(severity, _)| *severity);
        let mut needless = Vec::new();
        for advice in needless::ALL {
            if let Some(Found { count, places }) = self.found.remove(advice.id) {
                needless.push(Finding {
                    id: advice.id,
                    severity: None,
                    section: advice.section,
                    sentence: advice.sentence,
                    instead: Some(advice.instead),
                    count,
                    places,
                });
            }
        }
        needless.sort_by_key(|finding| std::cmp::Reverse(finding.count));
        let plain = |list: Vec<(Severity, Finding)>| list.into_iter().map(|(_, it)| it).collect();
        Report {
            broken: plain(broken),
            notes: plain(notes),
            needless,
            savings: self.savings.savings(),
            calls: self.calls,
            unanswered: self.unanswered,
            lost: self.lost,
            first_lost: self.first_lost,
        }
    }
}

impl Sink for Lint {
    fn call(&mut self, connection: &Connection, call: Call) {
        self.calls += 1;
        if call.outcome == Outcome::Unanswered {
            self.unanswered += 1;
        }
        self.needless(connection, &call);
        self.savings.add(connection, &call);
    }

    fn breach(&mut self, _: &Connection, breach: Breach) {
        let place = Place {
            packet: breach.at.packet,
            connection: breach.connection.0,
            xid: breach.xid,
            detail: breach.detail,
        };
        self.find(breach.rule.id, place);
    }

    fn lost(&mut self, connection: &Connection, lost: Lost) {
        self.lost += 1;
        let Lost { at, reason } = lost;
        self.first_lost.get_or_insert_with(|| {
            let (connection, packet) = (connection.id.0, at.packet);
            format!("connection {connection}, before packet {packet}: {reason}")
        });
    }
}
