//! Checks MUSTS.md: the tests that it names exist, and every test named after a section is listed.

#[path = "../../v1/tests/names/mod.rs"]
mod names;

#[test]
fn the_list_of_requirements_and_the_tests_agree() {
    let list = names::List {
        folder: "v2-wg",
        crates: &[
            "v2-wg",
            "drafts/oracle",
            "rpc",
            "v1",
            "transfer-plan",
            "nfs-binding",
            "negotiation",
            "connection",
            "transport",
        ],
        is_after_section: |name| name.starts_with("wg_s"),
        min: 50,
    };
    list.check();
}
