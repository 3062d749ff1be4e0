//! Cases of version 1 whose messages are the same in version 2 but for their headers.

use std::borrow::Cow;

use super::{FIRST, FIRST_BAD_HEADER, bad_header};
use crate::case::{Case, Ground, Step, opening};
use crate::cases::{calls, credits, data, inline, lists};
use crate::dialect::Dialect;
use crate::expect::Expect;
use crate::wire::v2;

/// Sections of version 1, and these cases' own sections.
const SECTIONS: [(&str, &str); 16] = [
    ("RFC 5531, 9", "version-two-01, rfc5531-9"),
    ("RFC 8166, 3.3.1", "version-two-01, rfc8166-3.3.1"),
    ("RFC 8166, 3.4.5", "version-two-01, rfc8166-3.4.5"),
    ("RFC 8166, 3.4.5.2", "version-two-01, rfc8166-3.4.5.2"),
    ("RFC 8166, 3.4.6", "version-two-01, rfc8166-3.4.6"),
    ("RFC 8166, 3.4.6.2", "version-two-01, rfc8166-3.4.6.2"),
    ("RFC 8166, 3.5.1", "version-two-01, rfc8166-3.5.1"),
    ("RFC 8166, 3.5.3", "version-two-01, rfc8166-3.5.3"),
    ("RFC 8166, 4.2.4", "version-two-01, rfc8166-4.2.4"),
    ("RFC 8166, 4.3.2", "version-two-01, rfc8166-4.3.2"),
    ("RFC 8166, 4.3.2.2", "version-two-01, rfc8166-4.3.2.2"),
    ("RFC 8166, 4.3.2.3", "version-two-01, rfc8166-4.3.2.3"),
    ("RFC 8166, 4.3.3", "version-two-01, rfc8166-4.3.3"),
    ("RFC 8166, 4.5.2", "version-two-01, rfc8166-4.5.2"),
    ("RFC 8166, 6.1", "version-two-01, rfc8166-6.1"),
    ("RFC 8166, 8.1.4", "version-two-01, rfc8166-8.1.4"),
];

/// Returns the cases.
pub(super) fn cases(ground: &Ground) -> Vec<Case> {
    let of_first = [
        lists(ground),
        calls(ground),
        credits::cases(ground),
        data::cases(ground),
        inline::cases(ground),
    ];
    of_first.concat().iter().filter_map(translated).collect()
}

/// Translates a case, unless it is about private data, longer than messages of version 2 can be, or of a section
/// that is not listed.
fn translated(of_first: &Case) -> Option<Case> {
    let (_, section) = SECTIONS
        .iter()
        .find(|(first, _)| *first == of_first.section)?;
    let address = of_first.address();
    let about_thresholds = ["rfc8166/3.5.1/5", "rfc8166/3.5.1/6", "rfc8166/4.2.4/30"];
    if about_thresholds.contains(&&*address) {
        return None;
    }
    let mut script = Vec::new();
    for step in &of_first.script {
        match step {
            Step::Connect(_) => script.extend(opening(Dialect::Two)),
            Step::Send(message) => script.push(Step::Send(v2::from_first(message, v2::CALL))),
            Step::Expect(allowed) => {
                script.push(Step::Expect(allowed.iter().map(expected).collect()));
            }
            other => script.push(other.clone()),
        }
    }
    let needs = match of_first.needs.as_deref() {
        None => FIRST,
        Some("rfc8166/3.3.1/1") => "rpcrdma2-01/rfc8166-3.3.1/1",
        Some("rfc8166/4.3.2/1") => "rpcrdma2-01/rfc8166-4.3.2/1",
        Some("rfc8166/4.3.3/1") => "rpcrdma2-01/rfc8166-4.3.3/1",
        // That of ERR_CHUNK.
        Some(_) => FIRST_BAD_HEADER,
    };
    let case = Case {
        section: (*section).into(),
        script,
        expects: expects(of_first),
        ..of_first.clone()
    };
    Some(case.speaking(Dialect::Two).needs(needs))
}

fn expected(of_first: &Expect) -> Expect {
    match of_first {
        Expect::ErrChunk(xid) => bad_header(*xid),
        other => other.clone(),
    }
}

/// Returns the sentence of what must come, with the name that the error has here.
fn expects(of_first: &Case) -> Cow<'static, str> {
    let text = &of_first.expects;
    match text.contains("ERR_CHUNK") {
        true => text
            .replace("RDMA_ERROR with ERR_CHUNK", "RDMA2_ERROR with BAD_HEADER")
            .replace("ERR_CHUNK", "BAD_HEADER")
            .into(),
        false => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_case_names_an_error_of_version_1() {
        let all = cases(&Ground::without_files(7));
        assert!(all.len() > 60, "{}", all.len());
        for case in &all {
            let names = ["ERR_CHUNK", "RDMA_ERROR"];
            let is_of_first = names.iter().any(|it| case.expects.contains(it));
            assert!(!is_of_first, "{}", case.address());
        }
        let used = |section: &str| all.iter().any(|case| case.section == section);
        let unused: Vec<_> = SECTIONS.iter().filter(|(_, it)| !used(it)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
