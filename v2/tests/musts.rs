//! Checks MUSTS.md: the tests that it names exist, and every test named after a section is listed.

#[path = "../../v1/tests/names/mod.rs"]
mod names;

#[test]
fn the_list_of_requirements_and_the_tests_agree() {
    let list = names::List {
        folder: "v2",
        crates: &[
            "v2",
            "ext-xchar",
            "ext-continuation",
            "negotiation",
            "connection",
            "transport",
        ],
        is_after_section: |name| name.starts_with("v2_s") || name.starts_with("rfc8167_s"),
        min: 30,
    };
    list.check();
}
