//! Case files that are written from recorded exchanges.

mod call;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::load::{LONGEST, Vocabularies};
use super::{Error, parse};
use crate::case::Ground;
use crate::dialect::Dialect;
use crate::vocabulary::Vocabulary;
use crate::wire::{Reader, wg};
use call::{call_of, handle_of};
use text::{decoded, payload_of};

/// The most exchanges that are in progress, and the most messages of one.
const MOST_EXCHANGES: usize = 4096;
const MOST_MESSAGES: usize = 64;
/// The most octets of all messages that are kept.
const MOST_OCTETS: usize = 16 << 20;
/// The most cases that are written.
pub const MOST_CASES: usize = 64;
/// The most file handles that are known to be those of files. Others are written as those of folders.
const MOST_HANDLES: usize = 65_536;
/// NFS version 3's READ, WRITE and COMMIT, which are of files.
const OF_FILES: [u32; 3] = [6, 7, 21];

/// A message that was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The number of its last packet.
    pub packet: u64,
    /// The connection.
    pub connection: u32,
    /// The version.
    pub dialect: Dialect,
    /// Whether the client sent it.
    pub from_client: bool,
    /// The octets, from the header on.
    pub octets: Vec<u8>,
}

/// The number of messages, and of whole exchanges, that are not in the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Exchanges like one that is a case already.
    pub alike: u64,
    /// Exchanges of further kinds, which are left out because there are [`MOST_CASES`] cases.
    pub beyond: u64,
    /// Messages of no exchange that a case can have: without a reply, from server to client, whose RPC message is in
    /// memory, with credentials that another client cannot have, or longer than a file of cases may be.
    pub others: u64,
}

/// Cases that were made of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text of a file.
    pub text: String,
    /// The number of cases in it.
    pub cases: usize,
    /// Numbers of messages and exchanges that are not in it.
    pub left: Left,
}

/// Exchanges that have been recorded.
#[derive(Debug)]
pub struct Recording {
    vocabularies: Vocabularies,
    open: HashMap<(u32, u32), Vec<Recorded>>,
    whole: Vec<Vec<Recorded>>,
    /// The octets of all of these.
    octets: usize,
    /// Digests of the shapes of exchanges that are kept.
    seen: HashSet<u64>,
    /// File handles that READ, WRITE or COMMIT had.
    of_files: HashSet<Vec<u8>>,
    left: Left,
}

impl Recording {
    /// Begins a recording.
    #[must_use]
    pub fn new(vocabularies: Vocabularies) -> Self {
        Self {
            vocabularies,
            open: HashMap::new(),
            whole: Vec::new(),
            octets: 0,
            seen: HashSet::new(),
            of_files: HashSet::new(),
            left: Left::default(),
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// An XDR file has an error.
    pub fn take(&mut self, message: Recorded) -> Result<(), Error> {
        let vocabulary = self.vocabularies.of(message.dialect)?;
        let mut from = Reader(&message.octets);
        let words = [from.word(), from.word(), from.word(), from.word()];
        let [Some(xid), _, _, Some(number)] = words else {
            self.left.others += 1;
            return Ok(());
        };
        let is_of_connection =
            message.dialect == Dialect::Wg && (wg::GRANT..=wg::CONNPROP_FINAL).contains(&number);
        let Some((header, _)) = decoded(&vocabulary, &message.octets) else {
            self.left.others += 1;
            return Ok(());
        };
        if is_of_connection {
            return Ok(());
        }
        let key = (message.connection, xid);
        let known = self.open.get(&key).map_or(0, Vec::len);
        let is_last = !message.from_client && !header.name.ends_with("_MIDDLE");
        let is_possible = match message.from_client {
            true => known < MOST_MESSAGES && (known > 0 || self.open.len() < MOST_EXCHANGES),
            false => known > 0 && (known < MOST_MESSAGES || is_last),
        };
        let octets = self.octets + message.octets.len();
        if !is_possible || octets > MOST_OCTETS {
            // The exchange would lack a part.
            let parts = self.open.remove(&key).unwrap_or_default();
            self.octets -= octets_of(&parts);
            self.left.others += parts.len() as u64 + 1;
            return Ok(());
        }
        self.octets = octets;
        self.open.entry(key).or_default().push(message);
        if is_last && let Some(exchange) = self.open.remove(&key) {
            self.ended(&vocabulary, exchange);
        }
        Ok(())
    }

    /// Keeps an exchange unless there is one like it.
    fn ended(&mut self, vocabulary: &Vocabulary, exchange: Vec<Recorded>) {
        let octets = octets_of(&exchange);
        let calls = exchange.iter().take_while(|it| it.from_client);
        let payload: Vec<u8> = calls.flat_map(|it| payload_of(vocabulary, it)).collect();
        let Some(call) = call_of(&payload) else {
            self.octets -= octets;
            self.left.others += exchange.len() as u64;
            return;
        };
        if let (true, Some((handle, _))) = (OF_FILES.contains(&call.procedure), handle_of(&call))
            && self.of_files.len() < MOST_HANDLES
        {
            self.of_files.insert(handle.to_vec());
        }
        let mut shape = DefaultHasher::new();
        (call.program, call.version, call.procedure).hash(&mut shape);
        for message in &exchange {
            if let Some((header, fields)) = decoded(vocabulary, &message.octets) {
                (header.number, message.from_client).hash(&mut shape);
                let places = fields.fields.iter().map(|(place, _)| place);
                places.for_each(|place| place.hash(&mut shape));
            }
        }
        let shape = shape.finish();
        let count = match self.seen.contains(&shape) {
            true => &mut self.left.alike,
            false if self.whole.len() >= MOST_CASES => &mut self.left.beyond,
            false => {
                self.seen.insert(shape);
                self.whole.push(exchange);
                return;
            }
        };
        *count += 1;
        self.octets -= octets;
    }

    /// Returns the number of exchanges that are kept.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.open.len() + self.whole.len()
    }

    /// Returns a file with a case for each kind of exchange, and what is not in it. `document` begins their addresses,
    /// and `source` says where they come from. [`parse`] takes the file: an exchange that the language cannot express,
    /// or that makes the file longer than [`super::load()`] takes, is left out.
    ///
    /// # Errors
    /// An XDR file has an error.
    pub fn written(&self, document: &str, source: &str) -> Result<Written, Error> {
        let mut text = format!(
            "# Recorded: {source}. Handles of memory and of files, XIDs and credentials are those of the one who \
             replays it.\n"
        );
        let mut cases = 0;
        let mut left = self.left;
        left.others += self.open.values().map(|it| it.len() as u64).sum::<u64>();
        for exchange in &self.whole {
            let Some(first) = exchange.first() else {
                continue;
            };
            let vocabulary = self.vocabularies.of(first.dialect)?;
            let address = format!("{document}/0/{}", cases + 1);
            let case = text::case(&vocabulary, &self.of_files, &address, exchange);
            let case = case.filter(|case| {
                let fits = (text.len() + case.len()) as u64 <= LONGEST;
                let ground = Ground::without_files(1);
                fits && parse(document, case, &self.vocabularies, &ground).is_ok()
            });
            match case {
                Some(case) => {
                    text.push_str(&case);
                    cases += 1;
                }
                None => left.others += exchange.len() as u64,
            }
        }
        Ok(Written { text, cases, left })
    }
}

fn octets_of(exchange: &[Recorded]) -> usize {
    exchange.iter().map(|it| it.octets.len()).sum()
}
