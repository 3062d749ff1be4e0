//! Cases of version-two-07.

mod calls;
mod placement;
mod properties;
mod replies;

use super::sends;
use crate::client::case::{Act, Case, Operation};
use crate::client::rules::Rule;
use crate::dialect::Dialect;

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let all = [
        calls::cases(),
        properties::cases(),
        replies::cases(),
        placement::cases(),
    ]
    .concat();
    all.into_iter()
        .map(|case| case.speaking(Dialect::Wg))
        .collect()
}

/// Returns a case of one rule that a client keeps while the server does what `act` says, whatever becomes of the
/// operation.
fn keeps(
    section: &'static str,
    number: u32,
    (operation, act): (Operation, Act),
    does: &'static str,
    expects: &'static str,
    rules: &'static [Rule],
) -> Case {
    let case = sends(section, number, operation, does, expects, rules);
    case.while_server(act).rules_alone()
}
