//! Tests that the tables of the working group's version 2 are complete: every header type, field,
//! property and error code in its XDR and in that of its extensions, as far as the list of XDR files asks
//! for it (`drafts/oracle/src/list.rs`), has cases, with a server under attack and with a client, as far as the
//! other end sends it. An addition to the XDR alone fails these tests; where that is a number of an
//! extension, it first fails a test of `xdr-oracle`, which wants it in that list. Names are not trusted:
//! the messages of the cases are decoded by the XDR.

use std::collections::{BTreeMap, BTreeSet};

use hostile::cases::{Case, TABLES};
use hostile::client;
use hostile::rig::Form;
use hostile::server::{self, Ask, Call, LEN};
use xdr_oracle::list::Role;

use crate::labels::{Xdr, extensions_of_wg};
use crate::messages::XID;

/// RDMA2_ERR_WRITE_RESOURCE, which the product never sends: a result that is longer than its chunk
/// stays in the payload (errata-07, 48).
const NEVER_SENT: u32 = 9;
/// The codes that a client sends: it takes no chunks, and has no limit of segments of its own.
const BY_CLIENTS: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 11, 100];

/// The words around the fields of a header type.
const BEFORE_AND_BEHIND: [&str; 5] = [
    "rdma_xid",
    "rdma_vers",
    "rdma_credit",
    "rdma_htype",
    "rdma_rpc_first_word",
];

/// The messages that hostile ends sent to one kind of victim, and those that it answered.
#[derive(Default)]
struct Seen {
    said: Vec<Vec<u32>>,
    heard: Vec<Vec<u32>>,
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

impl Seen {
    fn client(&mut self, steps: &[client::Step]) {
        for step in steps {
            match step {
                client::Step::Send(message)
                | client::Step::Burst(_, message)
                | client::Step::Flood(_, message) => self.said.push(words(message)),
                client::Step::HearWords(message, _) => self.heard.push(message.clone()),
                client::Step::Repeat(_, steps) => self.client(steps),
                _ => {}
            }
        }
    }

    fn server(&mut self, ask: Ask, steps: &[server::Step]) {
        let call = match ask {
            Ask::Read => Call::read(XID, LEN),
            Ask::LongRead(len) => Call::read(XID, len),
            _ => Call::null(XID),
        };
        for step in steps {
            match step {
                server::Step::Say(message) => self.said.push(words(message)),
                server::Step::Send(message) | server::Step::Burst(_, message) => {
                    self.said.push(words(&message(&Call::null(XID))));
                }
                server::Step::Refuse(words) => {
                    self.said.push([&[XID, 2, 0, 4], &words[..]].concat());
                }
                server::Step::Part(form, patches) => {
                    let parts = call.parts(*form, true);
                    let mut parts: Vec<Vec<u32>> = parts.iter().map(|part| words(part)).collect();
                    for (part, word, value) in patches {
                        parts[*part][*word] = *value;
                    }
                    self.said.extend(parts);
                }
                server::Step::AnswerIn(form) => {
                    let parts = call.parts(*form, false);
                    self.said.extend(parts.iter().map(|part| words(part)));
                }
                server::Step::HearWords(message) => self.heard.push(message.clone()),
                server::Step::HearRefusal(error) => {
                    self.heard.push([&[XID, 2, 0, 4], &error[..]].concat());
                }
                _ => {}
            }
        }
    }

    fn types(&self) -> BTreeSet<u32> {
        self.said
            .iter()
            .filter_map(|message| message.get(3).copied())
            .collect()
    }
}

/// Returns what was sent to servers and to clients.
fn seen() -> [Seen; 2] {
    let (mut to_servers, mut to_clients) = (Seen::default(), Seen::default());
    let tables = TABLES.iter().filter(|table| table.form == Form::Wg);
    for case in tables.flat_map(|table| (table.cases)(&[0; 32])) {
        match case {
            Case::Client(case) => to_servers.client(&case.script),
            Case::Server(case) => {
                to_clients
                    .said
                    .push([&[XID, 2, 0, 7][..], &case.said].concat());
                to_clients.server(case.ask, &case.script);
            }
        }
    }
    [to_servers, to_clients]
}

fn numbers(xdr: &Xdr, prefix: &str) -> BTreeSet<u32> {
    xdr.constants(prefix)
        .into_iter()
        .map(|(_, number)| number)
        .collect()
}

#[test]
fn every_header_type_of_the_working_group_is_sent_to_both_ends() {
    let xdr = Xdr::new();
    let mut types = BTreeSet::new();
    for name in ["ERROR", "GRANT", "CONNPROP_", "CALL_", "REPLY_"] {
        types.extend(numbers(&xdr, &format!("RDMA2WG_{name}")));
    }
    assert_eq!(types, (4..=13).collect());
    assert!(Xdr::placed_types().len() >= 4);
    types.extend(Xdr::placed_types());
    for seen in seen() {
        let sent = seen.types();
        let missing: Vec<_> = types.difference(&sent).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn every_error_code_of_the_working_group_is_said_and_heard() {
    let codes = numbers(&Xdr::new(), "RDMA2WG_ERR_");
    assert_eq!(codes.len(), 12);
    let of = |messages: &[Vec<u32>]| -> BTreeSet<u32> {
        let errors = messages.iter().filter(|message| message.get(3) == Some(&4));
        errors
            .filter_map(|message| message.get(4).copied())
            .collect()
    };
    let [servers, clients] = seen();
    for seen in [&servers, &clients] {
        let said = of(&seen.said);
        assert!(
            said.is_superset(&codes),
            "{:?}",
            codes.difference(&said).collect::<Vec<_>>()
        );
    }
    let sent: BTreeSet<u32> = codes
        .iter()
        .copied()
        .filter(|&code| code != NEVER_SENT)
        .collect();
    assert_eq!(of(&servers.heard), sent, "what servers answer");
    assert_eq!(of(&clients.heard), BY_CLIENTS.into(), "what clients answer");
}

#[test]
fn every_property_of_the_working_group_has_cases_at_both_ends() {
    let xdr = Xdr::new();
    let mut properties = numbers(&xdr, "RDMA2WG_PROPID_");
    assert_eq!(properties.len(), 6);
    properties.extend(extensions_of_wg(Role::Property).map(|code| code.value));
    assert!(properties.len() >= 9);
    for seen in seen() {
        let labelled = seen.said.iter().map(|message| xdr.label_wg(message));
        let words = labelled.flat_map(|labelled| labelled.words);
        let named = words.filter(|word| word.fields.last().is_some_and(|own| own == "rdma_which"));
        let told: BTreeSet<u32> = named.map(|word| word.value).collect();
        let missing: Vec<_> = properties.difference(&told).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

/// A field counts as attacked if messages have at least three values in it, among them the greatest one. The tables give
/// these to each field of their correct messages (`vary`). Two suffice in the prefix and in the first word of a message,
/// where few values are possible, and in messages to clients that no table varies.
#[test]
fn every_field_of_the_working_group_is_attacked() {
    let xdr = Xdr::new();
    assert!(xdr.wg.len() > 30, "{:?}", xdr.wg);
    // The clients of the cases take no chunks, and refuse these types by their number.
    let refused = ["hdr_call_external", "hdr_call_placed"];
    let not_sent = [&["hdr_reply"][..], &refused];
    let few = [
        "segment",
        "_list",
        "call_",
        "propval",
        "connprop",
        "hdr_reply_external",
    ];
    let not_varied = [&[][..], &few];
    for ((seen, not_sent), not_varied) in seen().into_iter().zip(not_sent).zip(not_varied) {
        let mut values: BTreeMap<(String, String), BTreeSet<u32>> = BTreeMap::new();
        for message in &seen.said {
            let labelled = xdr.label_wg(message);
            for word in labelled.words {
                if let Some(own) = word.fields.last() {
                    let field = (word.of, own.clone());
                    values.entry(field).or_default().insert(word.value);
                }
            }
        }
        let attacked = |of: &str, own: &str| {
            let field = (of.to_owned(), own.to_owned());
            let values = values.get(&field);
            let is_varied = !BEFORE_AND_BEHIND.contains(&own)
                && !not_varied.iter().any(|part| of.contains(part));
            values.is_some_and(|values| match is_varied {
                true => values.len() > 2 && values.contains(&u32::MAX),
                false => values.len() > 1,
            })
        };
        let mut missing = Vec::new();
        for (name, fields) in &xdr.wg {
            if !not_sent.iter().any(|not_sent| name.contains(not_sent)) {
                let own = fields.iter().filter(|field| !attacked(name, field));
                missing.extend(own.map(|field| format!("{name}: {field}")));
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }
}
