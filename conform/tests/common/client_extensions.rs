//! The judgement of clients by the cases of extensions: placement in version-two-07, characteristics and transmissions in
//! version-two-01.

#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy takes for none"
)]

use std::time::Duration;

use rpcrdma_conform::client::case::Case;
use rpcrdma_conform::client::cases;
use rpcrdma_conform::dialect::Dialect;

use super::defective_extensions::{Defect, start};
use super::own_client::Own;
use super::{failures, is_first_of_few, judged_by, passes_by};

/// Returns whether a case is of an extension.
pub fn is_of_extension(case: &Case) -> bool {
    let documents = ["send-placement-", "xcharext-", "rtrext-"];
    documents.iter().any(|it| case.section.starts_with(it))
}

#[test]
fn our_client_passes_every_case_of_placement() {
    let client = Own::new().with_features();
    passes_by(client, Dialect::Wg, is_of_extension, &[]);
}

#[test]
fn our_client_passes_every_case_of_the_extensions_of_2016() {
    let client = Own::new().with_features();
    passes_by(client, Dialect::Two, is_of_extension, &[]);
}

#[test]
fn planted_defects_of_extensions_are_found() {
    let (wg, two) = (Dialect::Wg, Dialect::Two);
    let rows = [
        (wg, Defect::LowersLimit, "send-placement-00/5.4/1001"),
        (wg, Defect::OldContent, "send-placement-00/5.2/1001"),
        (wg, Defect::WrongOffset, "send-placement-00/5.3/1002"),
        (wg, Defect::Miscounts, "send-placement-00/4.1/1001"),
        (wg, Defect::IgnoresSupport, "send-placement-00/3/1002"),
        (wg, Defect::IgnoresOffset, "send-placement-00/5.3/1004"),
        (two, Defect::BadBool, "xcharext-02/2.1/1001"),
        (two, Defect::IgnoresTransmissions, "rtrext-00/5.2/1001"),
        (two, Defect::WrongNumber, "rtrext-00/4.2/1001"),
        (two, Defect::SilentAboutOperation, "rpcrdma2-01/4.2.4/1001"),
    ];
    let all = cases::all();
    let of = |dialect| {
        let is_one = |it: &&Case| it.dialect == dialect;
        let is_extended =
            |it: &&Case| is_of_extension(it) || it.section.starts_with("version-two-01, 4");
        let of = all.iter().filter(is_one).filter(is_extended);
        of.cloned().collect::<Vec<Case>>()
    };
    std::thread::scope(|scope| {
        let judging = rows.map(|(dialect, defect, address)| {
            let between = Box::new(move |judge| start(judge, defect));
            let of = of(dialect);
            let found = scope.spawn(move || {
                // A message that is changed may be waited for in vain.
                let client = Own::behind(between)
                    .with_features()
                    .waiting(Duration::from_secs(2));
                failures(judged_by(&of, &mut { client }, &[]))
            });
            (format!("{defect:?}"), address, found)
        });
        for (defect, address, found) in judging {
            is_first_of_few(&defect, address, &found.join().unwrap());
        }
    });
}
