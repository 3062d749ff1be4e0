//! MUSTS.md is true: the tests that it names exist, and tests named after a section are in it.

#[path = "../../v1/tests/names/mod.rs"]
mod names;

#[test]
fn the_list_of_requirements_and_the_tests_agree() {
    let list = names::List {
        folder: "ext-continuation",
        crates: &["ext-continuation", "ext-send-ddp", "transport"],
        is_after_section: |name| name.starts_with("rtr_s"),
        min: 40,
    };
    list.check();
}
