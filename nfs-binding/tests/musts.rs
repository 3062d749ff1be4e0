//! Checks MUSTS.md: the tests that it names exist, and every test named after a section is listed.

#[path = "../../v1/tests/names/mod.rs"]
mod names;

#[test]
fn the_list_of_requirements_and_the_tests_agree() {
    let list = names::List {
        folder: "nfs-binding",
        crates: &["nfs-binding", "v1", "connection", "transport"],
        is_after_section: |name| name.starts_with("rfc8267_s"),
        min: 20,
    };
    list.check();
}
