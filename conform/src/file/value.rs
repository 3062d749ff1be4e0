//! Values in case files: numbers, octets, RPC messages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::line::{Line, Wrong};
use crate::case::Ground;
use crate::pattern::Payload;
use crate::vocabulary::Vocabulary;
use crate::wire::v1::Segment;
use crate::wire::{Xdr, rpc};

/// The names of the procedures of NFS version 3, in the order of their numbers.
pub(super) const PROCEDURES: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
/// The most XIDs of one case.
const MOST_XIDS: usize = 1024;
/// The most bytes of one value.
pub(super) const LONGEST: usize = 1 << 20;

/// The things that values of one case refer to.
pub(super) struct Context<'a> {
    pub(super) ground: &'a Ground,
    pub(super) vocabulary: Arc<Vocabulary>,
    /// The memory that was offered, by its names.
    pub(super) memory: BTreeMap<String, Segment>,
    /// The XIDs of the case, by their numbers.
    xids: RefCell<Vec<u32>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(ground: &'a Ground, vocabulary: Arc<Vocabulary>) -> Self {
        Self {
            ground,
            vocabulary,
            memory: BTreeMap::new(),
            xids: RefCell::default(),
        }
    }

    /// Returns the XID with this number, from 1.
    pub(super) fn xid(&self, number: usize) -> Option<u32> {
        let mut xids = self.xids.borrow_mut();
        while xids.len() < number && number <= MOST_XIDS {
            xids.push(self.ground.xid());
        }
        xids.get(number.checked_sub(1)?).copied()
    }

    /// Returns memory by its name.
    pub(super) fn memory(&self, line: &Line<'_>, name: &str) -> Result<Segment, Wrong> {
        let found = self.memory.get(name).copied();
        found.ok_or_else(|| {
            let instead =
                format!("offer {name} 4096 octets, or room {name} 4096 octets, before it");
            line.wrong_at(name, format!("there is no memory {name}"), instead)
        })
    }

    /// Returns a number, or the value of a constant.
    pub(super) fn number(&self, word: &str) -> Option<u64> {
        let number = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        number.or_else(|| self.vocabulary.constant(word))
    }

    /// Returns the number that is one value of a field.
    pub(super) fn scalar(&self, line: &Line<'_>, words: &[&str]) -> Result<u64, Wrong> {
        let number = match words {
            ["xid", number] => {
                let number = number.parse().ok();
                number.and_then(|it| self.xid(it)).map(u64::from)
            }
            ["handle", name] => Some(self.memory(line, name)?.handle.into()),
            [word] => self.number(word),
            _ => None,
        };
        number.ok_or_else(|| {
            line.wrong_at(
                words.first().copied().unwrap_or_default(),
                format!("{} is no number", words.join(" ")),
                "a number (7, 0x51), a constant of the XDR files, xid 2, or handle NAME",
            )
        })
    }

    /// Returns octets, each word of the line a number of 32 bits or some octets.
    pub(super) fn octets(
        &self,
        line: &Line<'_>,
        words: &[&str],
        xid: u32,
    ) -> Result<Vec<u8>, Wrong> {
        let mut out = Vec::new();
        for word in words {
            let bytes = self.item(word, xid).ok_or_else(|| {
                line.wrong_at(
                    word,
                    format!("{word} is no value"),
                    "numbers of 32 bits, constants, octets in hexadecimal (x0a0b), text (\"abc\"), {x0a0b} or \
                     {\"abc\"} for opaque data with its length, {file}, {folder} or {xid}",
                )
            })?;
            out.extend(bytes);
            if out.len() > LONGEST {
                let what = format!("the value has more than {LONGEST} octets");
                return Err(line.wrong_at(word, what, "a shorter one"));
            }
        }
        Ok(out)
    }

    fn item(&self, word: &str, xid: u32) -> Option<Vec<u8>> {
        let opaque = |bytes: &[u8]| Some(Xdr::new().opaque(bytes).done());
        match word {
            "{file}" => return opaque(&self.ground.file),
            "{folder}" => return opaque(&self.ground.folder),
            "{xid}" => return Some(xid.to_be_bytes().to_vec()),
            _ => {}
        }
        if let Some(inner) = word.strip_prefix('{') {
            return opaque(&plain(inner.strip_suffix('}')?)?);
        }
        plain(word).or_else(|| {
            let number = u32::try_from(self.number(word)?).ok()?;
            Some(number.to_be_bytes().to_vec())
        })
    }

    /// Returns an RPC message: `call PROGRAM VERSION PROCEDURE ARGUMENTS`, `reply RESULT RESULTS`, or octets. `...` at
    /// the end stands for any more octets.
    pub(super) fn rpc(&self, line: &Line<'_>, words: &[&str], xid: u32) -> Result<Payload, Wrong> {
        let (words, more) = match words {
            [words @ .., "..."] => (words, true),
            words => (words, false),
        };
        let begins = match words {
            ["none"] => Vec::new(),
            ["call", rest @ ..] => self.call(line, rest, xid)?,
            ["reply", result, rest @ ..] => {
                let results = self.octets(line, rest, xid)?;
                let named = rpc::ACCEPT_STAT.iter().position(|it| it == result);
                let status = named.map(|it| it as u32);
                let number = || u32::try_from(self.number(result)?).ok();
                let status = status.or_else(number).ok_or_else(|| {
                    let what = format!("{result} is no result of a call");
                    line.wrong_at(
                        result,
                        what,
                        format!("one of {}", rpc::ACCEPT_STAT.join(", ")),
                    )
                })?;
                rpc::accepted(xid, status, &results)
            }
            [] => {
                let instead = "call NFS 3 NULL, reply SUCCESS, octets, or none";
                return Err(line.wrong("there is no RPC message", instead));
            }
            words => self.octets(line, words, xid)?,
        };
        Ok(Payload { begins, more })
    }

    fn call(&self, line: &Line<'_>, words: &[&str], xid: u32) -> Result<Vec<u8>, Wrong> {
        let wrong = || {
            line.wrong_at(
                words.first().copied().unwrap_or_default(),
                format!("call {} names no procedure", words.join(" ")),
                "call PROGRAM VERSION PROCEDURE and arguments, as call NFS 3 GETATTR {file}",
            )
        };
        let [program, version, procedure, arguments @ ..] = words else {
            return Err(wrong());
        };
        let word = |word: &str| u32::try_from(self.number(word)?).ok();
        let program = match *program {
            "NFS" => rpc::NFS,
            "MOUNT" => rpc::MOUNT,
            other => word(other).ok_or_else(wrong)?,
        };
        let version = word(version).ok_or_else(wrong)?;
        let named = match (program, version) {
            (rpc::NFS, 3) => PROCEDURES.iter().position(|it| it == procedure),
            _ => (*procedure == "NULL").then_some(0),
        };
        let named = named.map(|it| it as u32);
        let procedure = named.or_else(|| word(procedure)).ok_or_else(wrong)?;
        let call = rpc::Call {
            procedure: (program, version, procedure),
            credential: self.ground.credential(),
            ..rpc::nfs(xid, 0, self.octets(line, arguments, xid)?)
        };
        Ok(call.bytes())
    }
}

/// Returns the bytes of text in quotation marks, or of hexadecimal digits after an x.
fn plain(word: &str) -> Option<Vec<u8>> {
    let text = word.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    if let Some(text) = text {
        return Some(text.as_bytes().to_vec());
    }
    let digits = word.strip_prefix('x')?.as_bytes();
    if digits.is_empty() || digits.len() % 2 != 0 {
        return None;
    }
    let pair = |pair: &[u8]| {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        u8::try_from(digit(0)? << 4 | digit(1)?).ok()
    };
    digits.chunks(2).map(pair).collect()
}
