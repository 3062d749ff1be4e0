//! Tests that the tables are complete: every field, characteristic, operation and error code in the
//! XDR of xcharext-02 and rtrext-00 (`drafts/xdr`) has a case of version 2. An addition to one of
//! them only fails the test. Names are not trusted: the messages of a case are decoded by the XDR
//! and compared with correct ones, and the field in the case's name must be the one that differs.

mod labels;
mod messages;
mod wg;

use std::collections::BTreeSet;

use hostile::cases::{Case, TABLES};
use hostile::rig::Form;
use hostile::server::Ask;
use hostile::wire::v2;

use labels::{Word, Xdr};
use messages::{Messages, Operation, transmissions};

/// `rdma_opttype` of ROPT_XMTERR.
const XMTERR: u32 = 8;
/// The number of words up to which a message counts as similar to a correct one. A message without
/// a similar one is compared with the correct one that shares its longest prefix.
const ALIKE: usize = 3;

/// XCHAR_EXPERIMENTAL_FIRST, from which on numbers are unassigned.
const EXPERIMENTAL: u32 = 4_294_967_040;

/// Returns every case of version 2.
fn cases() -> Vec<Case> {
    let tables = TABLES.iter().filter(|table| table.form == Form::Second);
    tables.flat_map(|table| (table.cases)(&[0; 32])).collect()
}

/// Returns whether a name contains this word, and not only as a part of another.
fn names(name: &str, word: &str) -> bool {
    let part = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    name.split(part).any(|found| found == word)
}

/// Returns the number behind the last of these words.
fn number_behind(name: &str, word: &str) -> Option<u32> {
    let (_, behind) = name.rsplit_once(word)?;
    let end = behind.find(|c: char| !c.is_ascii_digit());
    let (number, rest) = behind.split_at(end.unwrap_or(behind.len()));
    // The base of a power is not the number.
    number.parse().ok().filter(|_| !rest.starts_with('^'))
}

/// The specifications, and operations that are correct by them.
struct Judge {
    xdr: Xdr,
    right: Vec<(Operation, Vec<Word>)>,
}

impl Judge {
    fn new(cases: &[Case]) -> Self {
        let xdr = Xdr::new();
        let said = cases.iter().map(Messages::of);
        let right = said.filter(Messages::are_right).flat_map(|case| case.said);
        let honest = [Ask::Read, Ask::LongRead(200_000)].map(transmissions);
        let mut all = Vec::new();
        for operation in right.chain(honest.into_iter().flatten()) {
            let labelled = xdr.label(operation.opttype, &operation.info);
            if let Some(labelled) = labelled.filter(|labelled| labelled.bad.is_none()) {
                all.push((operation, labelled.words));
            }
        }
        Self { xdr, right: all }
    }

    /// Returns the fields in which a case differs from correct messages: lists of fields, innermost
    /// last. A correct message does not count, unless the whole case is correct.
    fn touched(&self, case: &Messages) -> Vec<Vec<String>> {
        let opening = v2::everything();
        let is_lie = |said: &&Operation| match case.are_right() {
            true => said.info != opening,
            false => !self.right.iter().any(|(right, _)| right == *said),
        };
        let lies = case.said.iter().filter(is_lie);
        let lies = lies.flat_map(|said| self.differs(said, case.are_right()));
        let instead = case.instead.iter();
        lies.chain(instead.flat_map(|(right, said)| self.changed(right, said)))
            .collect()
    }

    /// Returns the fields in which an operation differs from one of the same length.
    fn changed(&self, right: &Operation, said: &Operation) -> Vec<Vec<String>> {
        let labelled = self.xdr.label(right.opttype, &right.info);
        let words = labelled.map_or_else(Vec::new, |labelled| labelled.words);
        let pairs = words.into_iter().zip(&said.info);
        let changed = pairs.filter(|(word, said)| word.value != **said);
        changed.map(|(word, _)| word.fields).collect()
    }

    /// Returns the fields in which an operation differs from the most similar correct ones or, if
    /// it is correct itself, from any. Includes a deviation from the XDR.
    fn differs(&self, said: &Operation, is_right: bool) -> Vec<Vec<String>> {
        let Some(labelled) = self.xdr.label(said.opttype, &said.info) else {
            return Vec::new();
        };
        let right = self.right.iter().filter(|(right, _)| {
            let same = right.opttype == said.opttype;
            same && right.info != said.info
        });
        let (mut alike, mut begins) = (Vec::new(), Vec::new());
        let (mut fewest, mut longest) = (ALIKE, 0);
        for (right, words) in right {
            let differ = |at: &usize| right.info.get(*at) != said.info.get(*at);
            let most = right.info.len().max(said.info.len());
            let places: Vec<usize> = (0..most).filter(differ).collect();
            // If values determine what follows them, the same word can belong to different fields.
            let fields = |at: usize| {
                let both = [words.get(at), labelled.words.get(at)];
                both.into_iter().flatten().map(|word| word.fields.clone())
            };
            if right.info.len() == said.info.len() && places.len() <= fewest {
                if places.len() < fewest && !is_right {
                    alike.clear();
                    fewest = places.len();
                }
                alike.extend(places.iter().flat_map(|&at| fields(at)));
            }
            if places[0] >= longest {
                if places[0] > longest && !is_right {
                    begins.clear();
                    longest = places[0];
                }
                begins.extend(fields(places[0]));
            }
        }
        if is_right {
            alike.append(&mut begins);
        }
        let mut touched = if alike.is_empty() { begins } else { alike };
        touched.extend(labelled.bad);
        touched
    }

    /// Returns the words that are sent and received in a case.
    fn words(&self, case: &Messages) -> Vec<Word> {
        let all = case.said.iter().chain(&case.heard);
        let labelled = all.filter_map(|op| self.xdr.label(op.opttype, &op.info));
        labelled.flat_map(|labelled| labelled.words).collect()
    }

    /// Returns the fields and values that the case's name contains and its messages do not.
    fn missing(&self, name: &str, case: &Messages) -> Vec<String> {
        let mut missing = Vec::new();
        let words = self.words(case);
        let has = |field: &str, value: u32| {
            let mut within = words.iter().filter(|word| word.value == value);
            within.any(|word| word.fields.iter().any(|within| within == field))
        };
        let mut constants = Vec::new();
        for (field, prefix) in [("xmdl_type", "XMDTYPE_"), ("optxe_which", "OPTXERR_")] {
            let all = self.xdr.constants(prefix).into_iter();
            for (constant, value) in all.filter(|(constant, _)| names(name, constant)) {
                constants.push(field);
                if !has(field, value) {
                    missing.push(constant);
                }
            }
        }
        for (operation, number) in self.xdr.constants("ROPT_") {
            let mut all = case.said.iter();
            if name.starts_with(&operation) && !all.any(|op| op.opttype == number) {
                missing.push(operation);
            }
        }
        let touched = self.touched(case);
        let characteristics = self.xdr.constants("XCHAR_").into_iter();
        let fields = self.xdr.fields.iter().cloned();
        let wanted: Vec<String> = fields
            .chain(characteristics.map(|(name, _)| name))
            .filter(|field| names(name, field) && !constants.contains(&&**field))
            .collect();
        let mut is_right = name.starts_with("control");
        if let (Some(value), false) = (number_behind(name, " is "), wanted.is_empty()) {
            // Structures of the base protocol are in operations as well.
            let is_other = |own: &String| !self.xdr.fields.contains(own) && names(name, own);
            let is_own = |own: &String| wanted.contains(own) || is_other(own);
            let own = |word: &Word| word.fields.last().is_some_and(is_own);
            match words.iter().any(|word| word.value == value && own(word)) {
                // The value may be the correct one.
                true => is_right |= case.are_right(),
                false => missing.push(format!("{value}")),
            }
        } else if let Some(value) = number_behind(name, " of ")
            && !wanted.iter().all(|field| has(field, value))
        {
            missing.push(format!("{value}"));
        }
        let is_touched = |field: &String| touched.iter().flatten().any(|within| within == field);
        missing.extend(
            wanted
                .into_iter()
                .filter(|field| !is_right && !is_touched(field)),
        );
        missing
    }
}

#[test]
fn every_field_and_characteristic_has_a_case() {
    let cases = cases();
    let judge = Judge::new(&cases);
    let fields = &judge.xdr.fields;
    assert!(fields.len() > 45, "{fields:?}");
    let (mut wanted, mut without_top) = (fields.clone(), fields.clone());
    let mut characteristics = judge.xdr.constants("XCHAR_");
    // Experimental numbers and those of the example extension are unassigned.
    characteristics.retain(|(_, number)| *number < EXPERIMENTAL);
    assert_eq!(characteristics.len(), 7);
    let mut values = BTreeSet::new();
    for case in cases.iter().map(Messages::of) {
        for touched in judge.touched(&case) {
            if let Some(own) = touched.last() {
                wanted.remove(own);
            }
            characteristics.retain(|(name, _)| !touched.contains(name));
        }
        for word in judge.words(&Messages::saying(case.said.clone())) {
            if let Some(own) = word.fields.last().filter(|_| word.value == u32::MAX) {
                without_top.remove(own);
            }
        }
        let types = judge.words(&case).into_iter();
        let types = types.filter(|word| word.fields.last().is_some_and(|own| own == "xmdl_type"));
        values.extend(types.map(|word| word.value));
    }
    assert!(wanted.is_empty(), "without a case: {wanted:?}");
    // The tables give the greatest number to each field of their correct operations (`vary`).
    assert!(
        without_top.is_empty(),
        "never {}: {without_top:?}",
        u32::MAX
    );
    assert!(
        characteristics.is_empty(),
        "without a case: {characteristics:?}"
    );
    let types: BTreeSet<u32> = judge
        .xdr
        .constants("XMDTYPE_")
        .iter()
        .map(|(_, n)| *n)
        .collect();
    assert!(values.is_superset(&types), "said or heard: {values:?}");
}

#[test]
fn what_a_case_is_called_after_is_what_it_does() {
    let cases = cases();
    let judge = Judge::new(&cases);
    let wrong = |case: &Case| {
        let missing = judge.missing(case.name(), &Messages::of(case));
        (!missing.is_empty()).then(|| format!("{}: {missing:?}", case.name()))
    };
    let wrong: Vec<String> = cases.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Tests that the previous test can fail: with the messages of other cases, or with correct ones,
/// no case with a field in its name passes.
#[test]
fn a_case_that_is_gutted_or_has_another_name_is_found() {
    let cases = cases();
    let judge = Judge::new(&cases);
    let called = |name: &str| cases.iter().find(|case| case.name() == name);
    let messages = |name: &str| Messages::of(called(name).expect(name));
    let right = Messages::saying(judge.right.iter().map(|(right, _)| right.clone()).collect());
    let other = messages("optxc_xnum is 0");
    for name in [
        "WRITE with placed data: optxrq_ddp[0].xmdmi_disp is 4",
        "WRITE with placed data: optxrq_ddp[0].xmdmi_where.xmdl_tbsn.xmdl_offset is 2",
        "WRITE with placed data: optxrq_pslen is 0",
        "optxc_pslen is 1",
        "xchv_data cut off",
        "optxrs_count is 0",
        "optxe_lead is 2",
        "OPTXERR_BADOFF about Write",
        "xmdl_type: XMDTYPE_NOITEM",
        "XCHAR_RBSTRUCT: xmrbuf_groups[0].xmrgrp_info.xmrseg_align is 3",
        "ROPT_XMTERR cut off",
    ] {
        assert_eq!(judge.missing(name, &messages(name)), [""; 0], "{name}");
        assert_ne!(judge.missing(name, &other), [""; 0], "{name}");
        assert_ne!(judge.missing(name, &Messages::default()), [""; 0], "{name}");
    }
    for name in [
        "WRITE with placed data: optxrq_ddp[0].xmdmi_disp is 4",
        "optxc_pslen is 1",
        "optxe_lead is 2",
    ] {
        assert_ne!(judge.missing(name, &right), [""; 0], "{name}");
    }
}

/// The operations and error codes that hostile ends sent, and the codes that they received.
#[derive(Default)]
struct Seen {
    operations: BTreeSet<u32>,
    said: BTreeSet<u32>,
    heard: BTreeSet<u32>,
}

impl Seen {
    fn see(&mut self, xdr: &Xdr, case: &Messages) {
        self.operations
            .extend(case.said.iter().map(|said| said.opttype));
        for (seen, operations) in [(&mut self.said, &case.said), (&mut self.heard, &case.heard)] {
            let reports = operations.iter().filter(|op| op.opttype == XMTERR);
            let words = reports.filter_map(|op| xdr.label(op.opttype, &op.info));
            let words = words.flat_map(|labelled| labelled.words);
            let is_code = |word: &Word| word.fields.last().is_some_and(|own| own == "optxe_which");
            seen.extend(words.filter(is_code).map(|word| word.value));
        }
    }
}

#[test]
fn every_operation_and_error_code_is_said_and_heard_at_both_ends() {
    let xdr = Xdr::new();
    let numbers = |prefix| -> BTreeSet<u32> {
        let all = xdr.constants(prefix).into_iter();
        all.map(|(_, number)| number).collect()
    };
    let (mut operations, codes) = (numbers("ROPT_"), numbers("OPTXERR_"));
    operations.retain(|&number| number < EXPERIMENTAL);
    assert_eq!((operations.len(), codes.len()), (8, 8));
    let (mut to_server, mut to_client) = (Seen::default(), Seen::default());
    for case in cases() {
        let to = match case {
            Case::Client(_) => &mut to_server,
            Case::Server(_) => &mut to_client,
        };
        to.see(&xdr, &Messages::of(&case));
    }
    for (seen, victim) in [(to_server, "server"), (to_client, "client")] {
        assert!(
            seen.operations.is_superset(&operations),
            "{victim}: {:?}",
            seen.operations
        );
        assert_eq!(seen.heard, codes, "what a {victim} reports");
        assert!(
            seen.said.is_superset(&codes),
            "what a {victim} is told: {:?}",
            seen.said
        );
    }
}
