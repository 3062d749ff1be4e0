//! The table of cases for clients. A new case is a new row, with the next number of its section from 1001 on.

mod calls;
mod extensions;
mod replies;
mod setup;
mod two;
mod wg;

use super::case::{Act, Case, Operation, Outcome};
use super::rules::Rule;
use crate::case::Level;
use crate::dialect::Dialect;

/// Returns all cases. Of each version, those of a plain server come first: cases with other acts need them.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        of_one(),
        wg::cases(),
        two::cases(&of_one()),
        extensions::cases(),
    ]
    .concat()
}

/// Returns the cases of version 1.
fn of_one() -> Vec<Case> {
    [calls::cases(), setup::cases(), replies::cases()].concat()
}

/// Returns a case of level MUST in which the server is plain, and looks at what a client sends.
fn sends(
    section: &'static str,
    number: u32,
    operation: Operation,
    does: &'static str,
    expects: &'static str,
    rules: &'static [Rule],
) -> Case {
    Case {
        dialect: Dialect::One,
        section,
        number,
        level: Level::Must,
        operation,
        act: Act::Honest,
        does,
        expects,
        rules,
        outcome: None,
    }
}

impl Case {
    /// Sets the version.
    fn speaking(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// Sets what the server does, and makes the client's operation succeed nevertheless.
    fn while_server(self, act: Act) -> Self {
        Self {
            act,
            outcome: Some(Outcome::Succeeds),
            ..self
        }
    }

    /// Sets what the server does. The client's operation may fail.
    fn may_fail(self, act: Act) -> Self {
        Self {
            act,
            outcome: Some(Outcome::Ends),
            ..self
        }
    }

    /// Looks at the rules alone, and not at the end of the operation.
    fn rules_alone(self) -> Self {
        Self {
            outcome: None,
            ..self
        }
    }

    /// Makes the level *robustness*.
    fn robustness(self) -> Self {
        self.level(Level::Robustness)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::case::Ground;

    #[test]
    fn addresses_are_unique_among_servers_and_clients() {
        let servers = crate::cases::all(&Ground::without_files(7));
        let mut seen: HashSet<String> = servers.iter().map(crate::case::Case::address).collect();
        for case in all() {
            assert!(seen.insert(case.address()), "{}", case.address());
            assert!(case.number > 1000, "{}", case.address());
            assert!(
                !case.does.ends_with('.') && !case.expects.ends_with('.'),
                "{}",
                case.address()
            );
            assert!(
                !case.rules.is_empty() || case.outcome.is_some(),
                "{} looks at nothing",
                case.address()
            );
        }
        for dialect in Dialect::ALL {
            let count = all().iter().filter(|it| it.dialect == dialect).count();
            assert!(count >= 40, "{dialect}: {count}");
        }
    }

    #[test]
    fn every_operation_has_one_plain_case_before_all_others_of_it() {
        let cases: Vec<Case> = all();
        let keys = Dialect::ALL.map(|dialect| Operation::ALL.map(|it| (dialect, it)));
        for (dialect, operation) in keys.concat() {
            let is_of = |it: &&Case| (it.dialect, it.operation) == (dialect, operation);
            let of = cases.iter().filter(is_of);
            let is_plain = |it: &&Case| it.act == Act::Honest && it.outcome.is_some();
            assert_eq!(of.clone().filter(is_plain).count(), 1, "{operation}");
            let first = of.clone().find(|it| it.outcome.is_some());
            assert_eq!(first.map(|it| it.act), Some(Act::Honest), "{operation}");
        }
    }
}
