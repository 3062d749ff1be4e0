//! Tests that need no C: the XDR files can be parsed, their constants are those of the crates, the
//! vectors agree with the codecs, and the C code names every type.

use std::fs;
use std::path::Path;

use serde_json::Value;
use xdr_oracle::kind::made;
use xdr_oracle::list::{self, Cases, FILES};
use xdr_oracle::xdr::{Body, Shape, Specification, emit, emit_lua, of_files, parse};
use xdr_oracle::{check, constants, vectors};

/// The prefixes of constants that select the type of what is beside them, without the header types of
/// version 2 itself.
const NUMBERS: [&str; 6] = [
    "ROPT_",
    "XCHAR_",
    "RDMA2_CALL_",
    "RDMA2_REPLY_",
    "RDMA2_PROPID_",
    "RDMA2WG_PROPID_",
];

fn all() -> Specification {
    of_files().expect("the files are XDR")
}

#[test]
fn every_kind_is_of_a_type_that_the_files_define() {
    let all = all();
    for kind in list::kinds() {
        assert!(all.body(kind.xdr).is_some(), "{}: {}", kind.name, kind.xdr);
    }
}

#[test]
fn constants_are_those_of_the_crates() {
    assert_eq!(constants::differences(&all()), Vec::<String>::new());
}

#[test]
fn another_constant_is_found() {
    let mut all = all();
    all.constants.insert("ROPT_INITXCH".into(), 2);
    all.constants.insert("ROPT_NEW".into(), 9);
    all.constants.remove("XCHAR_BRS");
    let differences = constants::differences(&all);
    assert_eq!(
        differences,
        [
            "ROPT_INITXCH is 2 in XDR, 1 in its crate",
            "ROPT_NEW is compared with nothing",
            "XCHAR_BRS is no constant of the XDR files",
        ]
    );
}

/// A number that is missing in the row of its file would need no hostile case.
#[test]
fn numbers_that_need_cases_are_in_the_row_of_their_file() {
    let mut all = Specification::default();
    let mut seen = 0;
    for file in FILES {
        let before = all.constants.clone();
        parse(file.text, &mut all).expect("XDR");
        for name in all.constants.keys() {
            let selects = NUMBERS.iter().any(|prefix| name.starts_with(prefix));
            let is_range = name.starts_with("XCHAR_EXPERIMENTAL_");
            let own = !before.contains_key(name) && file.cases != Cases::None;
            if own && selects && !is_range {
                let known = file.codes.iter().any(|code| code.constant == name);
                assert!(known, "{name} is not in the row of {}", file.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} numbers were found");
}

/// The tables of the Wireshark dissector are what the XDR files say.
#[test]
fn the_dissector_s_tables_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wireshark/rpcrdma/xdr.lua");
    let committed = fs::read_to_string(path).expect("the dissector's tables");
    assert!(
        committed == emit_lua(&all(), FILES.iter().flat_map(|file| file.codes)),
        "run: drafts/generate"
    );
}

/// The lines are short enough for an Internet-Draft, which includes the files.
#[test]
fn lines_are_short() {
    for file in FILES {
        assert_eq!(check::lines(file.name, file.text), Vec::<String>::new());
    }
    let text = format!("/* {} */\n\n{:69}\n/* é */", "-".repeat(64), "");
    assert_eq!(
        check::lines("a.x", &text),
        [
            "a.x: line 1 has 70 columns; an Internet-Draft has 69 for it",
            "a.x: line 4 is not ASCII",
        ]
    );
}

rpcrdma_extension::xdr_struct! {
    /// The fields of a file of which another name is in the test.
    struct Deadline = "rpcrdma2_hdr_deadline" {
        deadline: u32 = "rdma_deadline",
    }
}

/// A field that only the file or only the codec has is told by its name.
#[test]
fn names_of_fields_are_compared_in_their_order() {
    assert_eq!(check::differences(&all()), Vec::<String>::new());
    let differences = |fields: &str| {
        let mut all = Specification::default();
        let text = format!("struct rpcrdma2_hdr_deadline {{ {fields} }};");
        parse(&text, &mut all).expect("is XDR");
        let kind = made::kind::<Deadline>("deadline", true);
        check::names("deadline.x", &all, &[kind])
    };
    let one = "unsigned int rdma_deadline;";
    assert_eq!(differences(one), Vec::<String>::new());
    assert_eq!(
        differences(&format!("{one} bool rdma_priority;")),
        [
            "deadline.x has rdma_deadline, rdma_priority in rpcrdma2_hdr_deadline; \
             Deadline has rdma_deadline"
        ]
    );
}

#[test]
fn the_language_is_read() {
    let mut spec = Specification::default();
    let text = "const A = 0x10; enum e { X = 1, Y = 2 }; /* ; */ typedef unsigned hyper w;\n\
                struct n { w v; n *next; };\n\
                union u switch (e which) { case X: opaque o<>; case Y: void; };";
    parse(text, &mut spec).expect("is XDR");
    assert_eq!(spec.constants["A"], 16);
    let (fields, next) = spec.linked("n").expect("a list");
    assert_eq!((fields.len(), next), (1, "next"));
    let Some(Body::Union(tag, arms)) = spec.body("u") else {
        panic!("a union");
    };
    assert_eq!((tag.name.as_str(), arms.len()), ("which", 2));
    assert_eq!(
        arms[0].1.as_ref().map(|field| field.shape),
        Some(Shape::Array)
    );
    assert!(emit(&spec).contains("static void show_n(const n *v)"));
}

#[test]
fn a_union_may_be_of_a_number_and_have_a_default() {
    let mut spec = Specification::default();
    let text = "const A = 1; typedef unsigned int code;\n\
                union u switch (code which) { case A: unsigned int v; default: void; };";
    parse(text, &mut spec).expect("is XDR");
    let Some(Body::Union(_, arms)) = spec.body("u") else {
        panic!("a union");
    };
    assert_eq!(arms[0].0, ["A"]);
    assert_eq!(arms[1], (vec![], None));
    let c = emit(&spec);
    assert_eq!(c.matches("\tdefault:").count(), 1, "{c}");
    assert!(emit_lua(&spec, []).contains("    default = false,"));
}

#[test]
fn opaque_data_may_have_a_fixed_length() {
    let mut spec = Specification::default();
    let text = "const LEN = 6; typedef opaque id[4]; struct s { opaque mark[LEN]; id of; };";
    parse(text, &mut spec).expect("is XDR");
    let Some(Body::Struct(fields)) = spec.body("s") else {
        panic!("a structure");
    };
    assert_eq!(
        [fields[0].shape, fields[1].shape],
        [Shape::Fixed(6), Shape::One]
    );
    let c = emit(&spec);
    assert!(c.contains("put_hex(*(&v->mark), 6);"), "{c}");
    assert!(c.contains("put_hex(*v, 4);"), "{c}");
    let lua = emit_lua(&spec, []);
    let field = "{ name = \"mark\", type = \"opaque\", shape = \"fixed\", length = 6 }";
    assert!(lua.contains(field), "{lua}");
}

#[test]
fn what_is_no_xdr_is_refused_with_its_line() {
    let error = |text: &str| {
        let error = parse(text, &mut Specification::default()).expect_err(text);
        format!("{}: {}", error.line, error.what)
    };
    assert_eq!(
        error("typedef xcharid uint32;"),
        "1: xcharid is not defined"
    );
    assert_eq!(error("const A = 1;\nconst A = 2;"), "2: A is defined twice");
    assert_eq!(
        error("struct s { unsigned int a; }"),
        "1: the file ends here"
    );
    assert_eq!(error("struct s { opaque a; };"), "1: opaque without length");
    assert_eq!(
        error("struct s { opaque a[0]; };"),
        "1: no length of opaque data"
    );
    assert_eq!(error("struct s { opaque a[N]; };"), "1: N is no number");
    assert_eq!(
        error("struct s { bool a[2]; };"),
        "1: a fixed length, but not of opaque"
    );
    assert_eq!(
        error("struct s { opaque *a[2]; };"),
        "1: a pointer to an array"
    );
    let union = "enum e { X = 1 };\nunion u switch (e w) {\ncase Z: void; };";
    assert_eq!(error(union), "3: Z is not of e");
    let union = "union u switch (unsigned int w) {\ncase Z: void; };";
    assert_eq!(error(union), "2: Z is not of the constants");
    let union = "union u switch (unsigned int w) {\ndefault: void; default: void; };";
    assert_eq!(error(union), "2: an arm after the default");
    let union = "union u switch (bool w) {\ndefault: void; };";
    assert_eq!(
        error(union),
        "1: a discriminant that is neither an enumeration nor a number"
    );
    assert_eq!(error("/* "), "1: a comment that does not end");
}

/// Detects a codec that changed alone: it would decode the committed vectors differently.
#[test]
fn the_vectors_are_read_as_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let kinds = list::kinds();
    let mut count = 0;
    for kind in &kinds {
        let file = folder.join(format!("{}.json", kind.name));
        let text = fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{}: {e}; run: drafts/generate", file.display()));
        let content: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(content["type"], kind.xdr);
        for vector in content["vectors"].as_array().expect("vectors") {
            let bytes = vector["bytes"].as_str().expect("bytes");
            let answer = vectors::answer(&kinds, &format!("{} {bytes}", kind.xdr)).expect(bytes);
            count += 1;
            if vector["accept"] == false {
                assert_eq!(answer, "reject", "{}: {vector}", kind.name);
                continue;
            }
            let mut words = answer.splitn(4, ' ');
            assert_eq!(words.next(), Some("accept"), "{}: {vector}", kind.name);
            assert_eq!(
                words.next(),
                Some(vector["length"].to_string().as_str()),
                "{vector}"
            );
            let used = vector["length"].as_u64().expect("length") as usize;
            let again = vector["again"].as_str().unwrap_or(&bytes[..2 * used]);
            assert_eq!(words.next(), Some(again), "{}: {vector}", kind.name);
            let value: Value = serde_json::from_str(words.next().expect("a value")).expect("JSON");
            assert_eq!(value, vector["value"], "{}", kind.name);
        }
    }
    assert!(count >= 300, "only {count} vectors");
}

#[test]
fn a_line_that_is_no_vector_has_no_answer() {
    let kinds = list::kinds();
    for line in [
        "",
        "xchrbsiz",
        "xchrbsiz 0",
        "xchrbsiz 0g",
        "xchrbsiz é0",
        "nothing 00",
    ] {
        assert_eq!(vectors::answer(&kinds, line), None, "{line}");
    }
    let answer = vectors::answer(&kinds, "xchrbsiz 00001000");
    assert_eq!(answer.as_deref(), Some("accept 4 00001000 4096"));
}
