//! Case files and XDR files of `conform`: any text, and lines of words of the languages, so that what stands behind
//! the first line is reached.

use std::sync::OnceLock;

use rpcrdma_conform::case::{Case, Ground};
use rpcrdma_conform::dialect::Dialect;
use rpcrdma_conform::fields::{Values, decode, encode};
use rpcrdma_conform::file::{Error, Recorded, Recording, Vocabularies, parse};
use rpcrdma_conform::vocabulary::Vocabulary;

/// The most memory that a reader may take: all messages of a file may have 64 MiB, and are made one by one.
const MOST: usize = 96 << 20;
/// The lines that begin a case of each version.
const HEADS: [&str; 3] = [
    "case rfc8166/4/1 MUST\nsends x\nexpects y\n",
    "case rpcrdma2-07/4/1 MUST\nsends x\nexpects y\n",
    "case rpcrdma2-01/4/1 MUST\nsends x\nexpects y\n",
];
/// Words of case files. An input names them by a byte, and writes others after the byte 0xff.
const OF_CASES: &[&str] = &[
    "\n",
    "=",
    "--> ",
    "<-- ",
    "or <-- ",
    "case x-00/1/2 SHOULD",
    "speaks rpcrdma1",
    "sends",
    "expects",
    "needs",
    "hostile",
    "within 500ms",
    "closed",
    "nothing",
    "RDMA_MSG",
    "RDMA_NOMSG",
    "RDMA_ERROR",
    "RDMA_DONE",
    "RDMA2_CALL_INLINE",
    "RDMA2_CALL_EXTERNAL",
    "RDMA2_REPLY_INLINE",
    "RDMA2_CONNPROP_FINAL",
    "RDMA2_ERROR",
    "RDMA2_GRANT",
    "RDMA2_MSG",
    "99",
    "rpc",
    "call NFS 3 READ",
    "call NFS 3 NULL",
    "reply SUCCESS",
    "...",
    "{file}",
    "{folder}",
    "{xid}",
    "{\"a\"}",
    "{x0a}",
    "x0a0b",
    "\"b c\"",
    "\"",
    "#",
    "é",
    "rdma_xid",
    "rdma_vers",
    "rdma_credit",
    "rdma_err",
    "rdma_vers_low",
    "rdma_reads",
    "rdma_reads[0].rdma_handle",
    "rdma_reads[0]",
    "rdma_reads[4095].rdma_position",
    "rdma_writes[1].rdma_target[2].rdma_length",
    "rdma_reply.rdma_target[0]",
    "rdma_writes[0].rdma_target[0]",
    "rdma_props[1].rdma_data",
    "rdma_props",
    "rdma_inv_handle",
    "memory m",
    "handle m",
    "m",
    "offer m 64 octets",
    "room m 64 octets",
    "offer n",
    "holds m",
    "words",
    "none",
    "any",
    "end",
    "end-4",
    "end+2147483647",
    "1..2",
    "xid 2",
    "0",
    "4294967295",
    "0x51",
    "connect",
    "end lives or closes",
];
/// Words of XDR files.
const OF_XDR: &[&str] = &[
    "\n",
    " ",
    "struct",
    "union",
    "enum",
    "const",
    "typedef",
    "switch",
    "case",
    "default",
    "void",
    "unsigned",
    "int",
    "hyper",
    "uint32",
    "uint64",
    "bool",
    "opaque",
    "string",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "[",
    "]",
    "*",
    ";",
    ":",
    ",",
    "=",
    "/*",
    "*/",
    "0",
    "1",
    "0xffffff10",
    "4294967296",
    "a",
    "b",
    "c",
    "RDMA2_X",
    "RDMA2_Y",
    "rpcrdma2_hdr_x",
    "rpcrdma2_hdr_y",
    "rdma_htype",
    "rdma_rpc_first_word",
    "rdma_err",
];

/// Checks the readers. The first byte chooses the file and whether the rest names words.
pub fn check(data: &[u8]) {
    static KNOWN: OnceLock<Vocabularies> = OnceLock::new();
    let known = KNOWN.get_or_init(|| Vocabularies::new(&[]));
    let Some((&choice, rest)) = data.split_first() else {
        return;
    };
    let text = |words: &[&str]| match choice & 0x10 {
        0 => String::from_utf8_lossy(rest).into_owned(),
        _ => named(rest, words),
    };
    crate::within(MOST, || match choice & 0xf {
        0 => case_file(&text(OF_CASES), known),
        head @ 1..=3 => {
            let head = HEADS[usize::from(head) - 1];
            case_file(&(head.to_owned() + &text(OF_CASES)), known);
        }
        4 => capture(rest, known),
        _ => xdr_file(&text(OF_XDR), known),
    });
}

/// Returns the words that these bytes name.
fn named(mut bytes: &[u8], words: &[&str]) -> String {
    let mut text = String::new();
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        if *byte == 0xff {
            let (own, rest) = bytes.split_at(bytes.len().min(4));
            text.push_str(&String::from_utf8_lossy(own));
            bytes = rest;
        } else {
            text.push_str(words[usize::from(*byte) % words.len()]);
            text.push(' ');
        }
    }
    text
}

/// Checks that an error is at a place of the text.
fn is_within(text: &str, line: usize, column: usize) {
    let of_line = text.split('\n').nth(line - 1);
    let of_line = of_line.expect("an error names a line of the file");
    let columns = of_line.chars().count() + 1;
    assert!((1..=columns).contains(&column), "{column} of {of_line:?}");
}

fn read(text: &str, known: &Vocabularies) -> Result<Vec<Case>, Error> {
    parse("a.case", text, known, &Ground::without_files(7))
}

fn case_file(text: &str, known: &Vocabularies) {
    match read(text, known) {
        Ok(cases) => assert!(!cases.is_empty()),
        Err(error) => {
            assert!(!error.what.is_empty() && !error.instead.is_empty());
            if error.line > 0 {
                is_within(text, error.line, error.column);
            }
        }
    }
}

fn xdr_file(text: &str, known: &Vocabularies) {
    for dialect in Dialect::ALL {
        let of_project = known.of(dialect).expect("the files of the project");
        let mut vocabulary = Vocabulary::clone(&of_project);
        if let Err(error) = vocabulary.add(text) {
            // Names are as long in the text as in what is parsed, but for those of version-two-07.
            let is_same = dialect != Dialect::Wg || !text.to_ascii_lowercase().contains("2wg");
            if is_same {
                is_within(text, error.line, error.column);
            }
        }
        for header in vocabulary.headers().iter().rev().take(4) {
            let Ok(message) = encode(&vocabulary, header, &Values::new()) else {
                continue;
            };
            // What has no field set may have a discriminant that selects nothing, which is not decoded.
            if let Ok(decoded) = decode(&vocabulary, header, &message) {
                assert_eq!(decoded.rest, []);
            }
        }
    }
}

/// Checks that what is written of recorded messages is read.
fn capture(bytes: &[u8], known: &Vocabularies) {
    let mut recording = Recording::new(known.clone());
    // Each message begins with its length, its direction and its version.
    let mut rest = bytes;
    while let Some(([length, kind], after)) = rest.split_first_chunk() {
        let (octets, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        let message = Recorded {
            packet: 1,
            connection: u32::from(kind >> 4),
            dialect: Dialect::ALL[usize::from(kind & 3) % 3],
            from_client: kind & 4 == 0,
            octets: octets.to_vec(),
        };
        recording.take(message).expect("the files of the project");
    }
    let written = recording
        .written("x", "x")
        .expect("the files of the project");
    match read(&written.text, known) {
        Ok(cases) => assert_eq!(cases.len(), written.cases),
        Err(error) => assert_eq!(written.cases, 0, "{error}"),
    }
}
