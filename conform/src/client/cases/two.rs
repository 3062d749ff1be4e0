//! Cases of version-two-01: those of version 1 whose rules it takes over. Their addresses name the section of RFC 8166
//! behind the document, as those of servers do.

use crate::client::case::{Act, Case, Stray};
use crate::dialect::Dialect;

/// Sections of version 1, and these cases' own sections.
const SECTIONS: [(&str, &str); 26] = [
    ("RFC 1813, 3.3.6", "version-two-01, rfc1813-3.3.6"),
    ("RFC 5040, 4", "version-two-01, rfc5040-4"),
    ("RFC 5531, 5", "version-two-01, rfc5531-5"),
    ("RFC 5531, 9", "version-two-01, rfc5531-9"),
    ("RFC 8166, 3.3.1", "version-two-01, rfc8166-3.3.1"),
    ("RFC 8166, 3.3.3", "version-two-01, rfc8166-3.3.3"),
    ("RFC 8166, 3.4.2", "version-two-01, rfc8166-3.4.2"),
    ("RFC 8166, 3.4.5", "version-two-01, rfc8166-3.4.5"),
    ("RFC 8166, 3.4.5.2", "version-two-01, rfc8166-3.4.5.2"),
    ("RFC 8166, 3.4.6", "version-two-01, rfc8166-3.4.6"),
    ("RFC 8166, 3.4.6.1", "version-two-01, rfc8166-3.4.6.1"),
    ("RFC 8166, 3.4.6.2", "version-two-01, rfc8166-3.4.6.2"),
    ("RFC 8166, 3.5.1", "version-two-01, rfc8166-3.5.1"),
    ("RFC 8166, 3.5.3", "version-two-01, rfc8166-3.5.3"),
    ("RFC 8166, 4", "version-two-01, rfc8166-4"),
    ("RFC 8166, 4.2.1", "version-two-01, rfc8166-4.2.1"),
    ("RFC 8166, 4.2.2", "version-two-01, rfc8166-4.2.2"),
    ("RFC 8166, 4.2.4", "version-two-01, rfc8166-4.2.4"),
    ("RFC 8166, 4.3.1", "version-two-01, rfc8166-4.3.1"),
    ("RFC 8166, 4.3.2", "version-two-01, rfc8166-4.3.2"),
    ("RFC 8166, 4.3.2.2", "version-two-01, rfc8166-4.3.2.2"),
    ("RFC 8166, 4.3.3", "version-two-01, rfc8166-4.3.3"),
    ("RFC 8166, 4.4.1", "version-two-01, rfc8166-4.4.1"),
    ("RFC 8166, 4.5", "version-two-01, rfc8166-4.5"),
    ("RFC 8166, 4.5.3", "version-two-01, rfc8166-4.5.3"),
    ("RFC 8166, 8.1", "version-two-01, rfc8166-8.1"),
];

/// Returns the cases.
pub(super) fn cases(of_one: &[Case]) -> Vec<Case> {
    of_one.iter().filter_map(translated).collect()
}

/// Translates a case, unless it is about private data, about messages that this version has not, or of a section that is
/// not listed.
fn translated(of_one: &Case) -> Option<Case> {
    let (_, section) = SECTIONS
        .iter()
        .find(|(first, _)| *first == of_one.section)?;
    if matches!(
        of_one.act,
        Act::Private(_) | Act::Stray(Stray::OtherVersion | Stray::Msgp | Stray::Done)
    ) {
        return None;
    }
    let case = Case {
        section,
        does: named(of_one.does),
        expects: named(of_one.expects),
        ..of_one.clone()
    };
    Some(case.speaking(Dialect::Two))
}

/// Returns a phrase with the names of this version.
fn named(of_one: &'static str) -> &'static str {
    match of_one {
        "RDMA_NOMSG" => "RDMA2_NOMSG",
        "no RDMA_ERROR" => "no RDMA2_ERROR",
        "one in all messages of a connection after the first that has it" => {
            "two in all messages of a connection after the first that has it"
        }
        "version one on the next connection, at the latest after ERR_VERS" => {
            "version two on the next connection, at the latest after an error about the version"
        }
        "ERR_CHUNK with an XID that no call has" => "BAD_HEADER with an XID that no call has",
        "ERR_CHUNK instead of a READ's reply" => "BAD_HEADER instead of a READ's reply",
        "ERR_CHUNK instead of a WRITE's reply" => "BAD_HEADER instead of a WRITE's reply",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::of_one;
    use super::*;

    #[test]
    fn no_case_names_what_only_version_1_has() {
        let all = cases(&of_one());
        for case in &all {
            for text in [case.does, case.expects] {
                let is_old = ["ERR_CHUNK", "RDMA_", "version 1", " one, at"]
                    .iter()
                    .any(|old| text.contains(old));
                assert!(!is_old, "{}: {text}", case.address());
            }
        }
        let used = |section: &str| all.iter().any(|case| case.section == section);
        let unused: Vec<_> = SECTIONS.iter().filter(|(_, it)| !used(it)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
