//! The rules of the documents that traffic is checked against.

mod carrier;
mod chunks;
mod form;
mod groups;
mod sequence;
mod working_group;

use crate::call::{At, ConnectionId};

/// Severity of breaking a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The documents say MUST, or the peer cannot go on.
    Error,
    /// The documents advise against it, or it is unusual.
    Warning,
    /// No rule is broken, but a reader wants to know of it.
    Note,
}

/// A rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name, for filters: as in the dissector where it is the same rule.
    pub id: &'static str,
    /// Severity of breaking it.
    pub severity: Severity,
    /// Document and section.
    pub section: &'static str,
    /// Description of the fault, as a sentence.
    pub sentence: &'static str,
}

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: &'static Rule,
    /// The connection.
    pub connection: ConnectionId,
    /// The packet with the last byte of what is wrong.
    pub at: At,
    /// The XID of the message or the call, if there is one.
    pub xid: Option<u32>,
    /// The values.
    pub detail: String,
}

/// Defines the rules of a group: a constant for each and the list of all.
macro_rules! rules {
    ($($name:ident = $severity:ident $id:literal, $section:literal, $sentence:literal;)*) => {
        $(
            #[doc = $sentence]
            pub(crate) static $name: $crate::rules::Rule = $crate::rules::Rule {
                id: $id,
                severity: $crate::rules::Severity::$severity,
                section: $section,
                sentence: $sentence,
            };
        )*

        /// The rules of this group.
        pub(super) static ALL: &[&$crate::rules::Rule] = &[$(&$name),*];
    };
}
use rules;

pub(crate) use {carrier::*, chunks::*, form::*, groups::*, sequence::*, working_group::*};

/// Returns all rules, by groups.
#[expect(unused_qualifications, reason = "each group has a list of this name")]
pub fn all() -> impl Iterator<Item = &'static Rule> {
    let groups = [
        carrier::ALL,
        form::ALL,
        sequence::ALL,
        chunks::ALL,
        groups::ALL,
        working_group::ALL,
    ];
    groups.into_iter().flatten().copied()
}
