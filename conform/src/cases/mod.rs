//! The tables of cases. A new case is a new row, with the next number of its section.

mod arguments;
mod calls;
mod credits;
mod data;
mod floods;
mod headers;
mod inline;
mod lists;
mod nfs;
mod replay;
mod setup;
pub mod two;
pub mod wg;

pub use calls::cases as calls;
pub use headers::cases as headers;
pub use lists::cases as lists;

use crate::case::{Case, Ground, Step};
use crate::expect::Expect;
use crate::wire::mpa;

/// The address of the simplest case of ERR_CHUNK. The others are not tested if it fails.
pub const FIRST_ERR_CHUNK: &str = "rfc8166/4.5.2/1";

/// Returns all cases on this ground.
#[must_use]
pub fn all(ground: &Ground) -> Vec<Case> {
    [
        setup::cases(ground),
        headers(ground),
        lists(ground),
        calls(ground),
        credits::cases(ground),
        inline::cases(ground),
        data::cases(ground),
        replay::cases(ground),
        floods::cases(ground),
        wg::all(ground),
        two::all(ground),
    ]
    .concat()
}

/// Returns the steps on a connection with the usual private data: 4096 bytes in both directions, and
/// remote invalidation.
fn on(mut steps: Vec<Step>) -> Vec<Step> {
    steps.insert(0, Step::Connect(mpa::PRIVATE_DATA.to_vec()));
    steps
}

/// Returns the step that expects exactly this.
fn expect(expected: Expect) -> Step {
    Step::Expect(vec![expected])
}

/// Returns bytes that depend on a seed and on their position.
#[must_use]
pub fn content(seed: u32, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b1) | 1;
    let byte = |_| {
        // xorshift32
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..len).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::dialect::Dialect;

    fn cases() -> Vec<Case> {
        all(&Ground::without_files(7))
    }

    #[test]
    fn addresses_are_unique_and_bases_exist() {
        let all: Vec<String> = cases().iter().map(Case::address).collect();
        let unique: HashSet<&String> = all.iter().collect();
        for address in &all {
            let same = all.iter().filter(|it| *it == address).count();
            assert_eq!(same, 1, "{address}");
        }
        assert!(unique.len() >= 100, "only {} cases", unique.len());
        for (at, case) in cases().iter().enumerate() {
            if let Some(base) = &case.needs {
                let before = all[..at].iter().any(|it| it == base);
                assert!(
                    before,
                    "{} needs {base}, which is not before it",
                    case.address()
                );
            }
        }
    }

    #[test]
    fn addresses_are_written_as_documents_sections_and_numbers() {
        for case in cases() {
            let address = case.address();
            let parts: Vec<&str> = address.split('/').collect();
            let [document, section, number] = parts[..] else {
                panic!("{address}");
            };
            let number_of_rfc = document.strip_prefix("rfc").map(str::parse::<u32>);
            let is_known = match case.dialect {
                Dialect::One => number_of_rfc.is_some_and(|it| it.is_ok()),
                Dialect::Two => document == "rpcrdma2-01",
                Dialect::Wg => document == "rpcrdma2-07",
            };
            assert!(is_known, "{address}");
            assert!(section.split('.').all(|it| !it.is_empty()), "{address}");
            assert!(number.parse::<u32>().is_ok(), "{address}");
            assert!(
                !case.sends.ends_with('.') && !case.expects.ends_with('.'),
                "{address}"
            );
        }
    }

    /// `testing/hostile` performs these with its own fixture. Of version 1, it leaves out the memory that servers may
    /// read before they answer, as this project's server reads none of it, and waits before the last call.
    #[test]
    fn tables_that_are_shared_have_the_steps_that_are_performed_elsewhere() {
        let ground = Ground::without_files(7);
        let of_first = [headers(&ground), lists(&ground), calls(&ground)].concat();
        let of_wg = [
            wg::headers(&ground),
            wg::properties(&ground),
            wg::continued(&ground),
            wg::chunks(&ground),
            two::headers(&ground),
        ];
        for case in [of_first, of_wg.concat()].concat() {
            let plain = case.script[1..].iter().all(|it| match it {
                Step::Send(_) | Step::Expect(_) => true,
                Step::OfferAny(_) | Step::Unreadable(_) | Step::Quiet => {
                    case.dialect == Dialect::One
                }
                _ => false,
            });
            assert!(
                plain && matches!(case.script[0], Step::Connect(_)),
                "{}",
                case.address()
            );
        }
    }
}
