//! Checks MUSTS.md: the tests that it names exist, and every test named after a section is listed.

mod names;

fn is_after_section(name: &str) -> bool {
    let digit = |c: char| ('3'..='5').contains(&c);
    name.starts_with("rfc8797_s")
        || name
            .strip_prefix('s')
            .is_some_and(|rest| rest.starts_with(digit) && rest[1..].starts_with('_'))
}

#[test]
#[cfg_attr(miri, ignore = "reads the sources")]
fn the_list_of_requirements_and_the_tests_agree() {
    let list = names::List {
        folder: "v1",
        crates: &[
            "rpc",
            "v1",
            "transfer-plan",
            "connection",
            "transport",
            "nfs-binding",
            "rdma",
            "rdma/iwarp",
            "rdma/rdma-core",
            "rdma/sim",
        ],
        is_after_section,
        min: 51,
    };
    list.check();
}
