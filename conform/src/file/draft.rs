//! A case that is being read.

use std::sync::Arc;

use super::line::{Line, Wrong};
use super::message::{Budget, Message};
use super::value::Context;
use crate::case::{Case, End, Ground, Level, Step, address_of, opening};
use crate::dialect::Dialect;
use crate::expect::Expect;
use crate::vocabulary::Vocabulary;
use crate::wire::v1::{Segment, segment};

/// The tagged offset of all memory, and the distance between the handles of two.
const OFFSET: u64 = 0x1_0000_0000;
const HANDLES: usize = 0x100;
/// The most memories of one case, and the most octets that it offers: the memory that its performance takes.
const MOST_MEMORY: usize = 4096;
const MOST_OFFERED: usize = 64 << 20;

/// A case up to the line that was read last.
pub(super) struct Draft<'a> {
    line: Line<'a>,
    ground: &'a Ground,
    address: String,
    number: u32,
    level: Level,
    dialect: Option<Dialect>,
    section: String,
    sends: Option<String>,
    expects: Option<String>,
    needs: Option<String>,
    hostile: bool,
    end: End,
    context: Option<Context<'a>>,
    script: Vec<Step>,
    /// The message whose fields are being read.
    message: Option<Message<'a>>,
    /// The XID of the last message that was sent.
    last_xid: Option<u32>,
    /// The octets of memory that are offered so far.
    offered: usize,
    /// The rest of the file's budget.
    budget: Budget,
}

impl<'a> Draft<'a> {
    /// Begins a case by its line `case ADDRESS LEVEL`.
    pub(super) fn begin(line: Line<'a>, ground: &'a Ground, budget: Budget) -> Result<Self, Wrong> {
        const INSTEAD: &str = "case DOCUMENT/SECTION/NUMBER LEVEL in small letters, as case rpcrdma2-07/6.1/901 MUST \
             (or SHOULD, or robustness)";
        let wrong = || line.wrong(format!("{} begins no case", line.text), INSTEAD);
        let words = line.words()?;
        let [_, address, level] = words[..] else {
            return Err(wrong());
        };
        let level = [Level::Must, Level::Should, Level::Robustness]
            .into_iter()
            .find(|it| it.to_string() == level)
            .ok_or_else(wrong)?;
        let parts: Vec<&str> = address.split('/').collect();
        let [document, section, number] = parts[..] else {
            return Err(wrong());
        };
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let of_rfc = document
            .strip_prefix("rfc")
            .filter(|it| it.parse::<u32>().is_ok());
        let name = match (document, of_rfc) {
            ("rpcrdma2-07", _) => "version-two-07".to_owned(),
            ("rpcrdma2-01", _) => "version-two-01".to_owned(),
            (_, Some(digits)) => format!("RFC {digits}"),
            _ => document.to_owned(),
        };
        let section = format!("{name}, {section}");
        // The address in reports is made of the section.
        if document.is_empty() || address_of(&section, number) != address {
            return Err(wrong());
        }
        let dialect = Dialect::ALL.into_iter().find(|it| it.group() == document);
        let dialect = dialect.or_else(|| of_rfc.map(|_| Dialect::One));
        Ok(Self {
            line,
            ground,
            address: address.to_owned(),
            number,
            level,
            dialect,
            section,
            sends: None,
            expects: None,
            needs: None,
            hostile: false,
            end: End::Lives,
            context: None,
            script: Vec::new(),
            message: None,
            last_xid: None,
            offered: 0,
            budget,
        })
    }

    /// Takes a line that says something of the case. Returns false if the line is another one.
    pub(super) fn told(&mut self, line: Line<'a>, first: &str) -> bool {
        let text = || line.rest().trim_end_matches('.').to_owned();
        match first {
            "sends" => self.sends = Some(text()),
            "expects" => self.expects = Some(text()),
            "needs" => self.needs = Some(line.address().to_owned()),
            "hostile" => self.hostile = true,
            _ => return false,
        }
        true
    }

    /// Sets the version.
    pub(super) fn speak(&mut self, line: Line<'a>, dialect: Dialect) -> Result<(), Wrong> {
        if self.context.is_some() {
            let instead = "speaks before the first step";
            return Err(line.wrong("the version changes within the case", instead));
        }
        self.dialect = Some(dialect);
        Ok(())
    }

    pub(super) fn dialect(&self, line: Line<'a>) -> Result<Dialect, Wrong> {
        self.dialect.ok_or_else(|| {
            let what = format!("{} does not say which version is spoken", self.address);
            line.wrong(
                what,
                "speaks rpcrdma1, speaks rpcrdma2-07 or speaks rpcrdma2-01 before it",
            )
        })
    }

    /// Takes a step, or a field of one.
    pub(super) fn step(
        &mut self,
        line: Line<'a>,
        words: &[&'a str],
        vocabulary: &Arc<Vocabulary>,
    ) -> Result<(), Wrong> {
        let ground = self.ground;
        let context = self
            .context
            .get_or_insert_with(|| Context::new(ground, vocabulary.clone()));
        if let [field, "=", value @ ..] = words {
            let Some(message) = &mut self.message else {
                let what = format!("{field} belongs to no message");
                return Err(line.wrong(what, "--> TYPE or <-- TYPE before it"));
            };
            return message.set(context, line, field, value);
        }
        self.end_message()?;
        if is_arrow(words) {
            return self.arrow(line, words, vocabulary);
        }
        let dialect = vocabulary.dialect();
        if self.script.is_empty() && words.first() != Some(&"connect") {
            self.script = opening(dialect);
        }
        let wrong = |what: String, instead: &str| Err(line.wrong(what, instead));
        match words {
            ["connect"] => self.script.extend(opening(dialect)),
            ["connect", private @ ..] => {
                let private = self.octets(line, private)?;
                if private.len() > 512 {
                    let what = format!("{} octets of private data", private.len());
                    return wrong(what, "connect and at most 512 octets, as connect xf6ab0e18");
                }
                self.script.push(Step::Connect(private));
            }
            ["offer", name, length, "octets"] => {
                let length = self.offered(line, length, length.parse().ok())?;
                let segment = self.remember(line, name, length)?;
                self.script.push(Step::OfferAny(segment));
            }
            ["offer", name, "=", value @ ..] => {
                let bytes = self.rpc(line, value)?;
                self.offered(line, name, Some(bytes.len()))?;
                let segment = self.remember(line, name, bytes.len())?;
                self.script.push(Step::Offer(segment, bytes));
            }
            ["room", name, length, "octets"] => {
                let length = length
                    .parse::<usize>()
                    .ok()
                    .filter(|it| *it <= u32::MAX as usize);
                let Some(length) = length else {
                    return wrong(
                        format!("{} is no length", line.rest()),
                        "room NAME 4096 octets",
                    );
                };
                let segment = self.remember(line, name, length)?;
                self.script.push(Step::Room(segment));
            }
            ["holds", name, "=", value @ ..] => {
                let bytes = self.rpc(line, value)?;
                let handle = self.known(line, name)?.handle;
                self.script.push(Step::Holds(handle, bytes));
            }
            ["end", "lives"] => self.end = End::Lives,
            ["end", "lives", "or", "closes"] => self.end = End::LivesOrCloses,
            ["end", "incomplete"] => self.end = End::Incomplete,
            ["end", ..] => {
                let instead = "end lives, end lives or closes, or end incomplete";
                return wrong(format!("{} is no end", line.text), instead);
            }
            ["section", ..] => {
                let instead = "the section in the address of the case";
                return wrong("section stands in the address".into(), instead);
            }
            _ => {
                let what = format!("{} is no line of a case", line.text);
                return wrong(what, super::WORDS);
            }
        }
        Ok(())
    }

    /// Takes the beginning of a message, or what stands for one.
    fn arrow(
        &mut self,
        line: Line<'a>,
        words: &[&'a str],
        vocabulary: &Arc<Vocabulary>,
    ) -> Result<(), Wrong> {
        if self.script.is_empty() {
            self.script = opening(vocabulary.dialect());
        }
        let or = words.first() == Some(&"or");
        let (arrow, rest): (Vec<&str>, Vec<&str>) =
            words[usize::from(or)..].iter().partition(|it| is_line(it));
        let rest = &rest[..];
        let sends = arrow.iter().any(|it| it.ends_with('>'));
        if sends == arrow.iter().any(|it| it.starts_with('<')) {
            let what = format!("{} has no point, or two", arrow.join(" "));
            return Err(line.wrong(what, "--> to send, or <-- to expect"));
        }
        let expected = match rest {
            ["closed"] if !sends => Some(Expect::Closed),
            ["nothing"] if !sends && !or => {
                self.script.push(Step::Quiet);
                return Ok(());
            }
            _ => None,
        };
        if or && (sends || !matches!(self.script.last(), Some(Step::Expect(_) | Step::Within(..))))
        {
            let what = "or stands for another message that may come instead of the one before";
            return Err(line.wrong(
                what,
                "or <-- TYPE directly after a message that is expected",
            ));
        }
        match expected {
            Some(expected) => self.expect(expected, or, None),
            None => {
                let message = Message::begin(line, rest, sends, or, vocabulary)?;
                self.message = Some(message);
            }
        }
        Ok(())
    }

    fn expect(&mut self, expected: Expect, or: bool, within: Option<std::time::Duration>) {
        if let Some(Step::Expect(allowed) | Step::Within(_, allowed)) = self.script.last_mut()
            && or
        {
            allowed.push(expected);
            return;
        }
        let allowed = vec![expected];
        self.script.push(match within {
            None => Step::Expect(allowed),
            Some(time) => Step::Within(time, allowed),
        });
    }

    /// Adds the message whose fields have been read.
    fn end_message(&mut self) -> Result<(), Wrong> {
        let (Some(message), Some(context)) = (self.message.take(), &self.context) else {
            return Ok(());
        };
        if message.sends {
            let (xid, bytes) = message.encode(context, &mut self.budget)?;
            self.last_xid = Some(xid);
            self.script.push(Step::Send(bytes));
            return Ok(());
        }
        let (or, within) = (message.or, message.within);
        let pattern = message.pattern(context, self.last_xid)?;
        self.expect(Expect::Fields(Box::new(pattern)), or, within);
        Ok(())
    }

    fn context(&self, line: Line<'a>) -> Result<&Context<'a>, Wrong> {
        let context = self.context.as_ref();
        context.ok_or_else(|| line.wrong("a step before the version is known", "speaks before it"))
    }

    fn octets(&self, line: Line<'a>, words: &[&str]) -> Result<Vec<u8>, Wrong> {
        self.context(line)?.octets(&line, words, self.xid(line)?)
    }

    fn rpc(&self, line: Line<'a>, words: &[&str]) -> Result<Vec<u8>, Wrong> {
        let payload = self.context(line)?.rpc(&line, words, self.xid(line)?)?;
        match payload.more {
            false => Ok(payload.begins),
            true => Err(line.wrong("memory has a length", "all octets, and no ...")),
        }
    }

    /// Returns the XID of values outside of messages: that of the first call.
    fn xid(&self, line: Line<'a>) -> Result<u32, Wrong> {
        Ok(self.context(line)?.xid(1).unwrap_or_default())
    }

    fn known(&self, line: Line<'a>, name: &str) -> Result<Segment, Wrong> {
        self.context(line)?.memory(&line, name)
    }

    /// Counts memory that the case offers, and returns its length. An error is at `word`.
    fn offered(
        &mut self,
        line: Line<'a>,
        word: &str,
        length: Option<usize>,
    ) -> Result<usize, Wrong> {
        let all = length.and_then(|it| self.offered.checked_add(it));
        match (length, all.filter(|it| *it <= MOST_OFFERED)) {
            (Some(length), Some(all)) => {
                self.offered = all;
                Ok(length)
            }
            _ => {
                let length = length.map_or_else(|| word.to_owned(), |it| it.to_string());
                let what = format!("{length} octets cannot be offered");
                let instead =
                    format!("offer NAME 4096 octets, and at most {MOST_OFFERED} in one case");
                Err(line.wrong_at(word, what, instead))
            }
        }
    }

    /// Gives memory a name.
    fn remember(&mut self, line: Line<'a>, name: &str, length: usize) -> Result<Segment, Wrong> {
        let wrong = |what: &str| Err(line.wrong_at(name, what, "another name"));
        let Some(context) = &mut self.context else {
            return wrong("a step before the version is known");
        };
        let count = context.memory.len();
        if count >= MOST_MEMORY {
            return wrong("there are too many memories");
        }
        let handle = 0x5100_0001 + (count * HANDLES) as u32;
        let segment = segment(handle, length as u32, OFFSET);
        match context.memory.insert(name.to_owned(), segment) {
            None => Ok(segment),
            Some(_) => wrong("there is memory of this name already"),
        }
    }

    /// Returns the whole case, and what is left of the file's budget.
    pub(super) fn finish(mut self) -> Result<(Case, Budget), Wrong> {
        self.end_message()?;
        let line = self.line;
        let dialect = self.dialect(line)?;
        let missing = |what: &str| {
            let instead = format!("{what} and a few words, in a line after case");
            line.wrong(format!("{} has no line {what}", self.address), instead)
        };
        if self.script.is_empty() {
            let what = format!("{} sends nothing", self.address);
            return Err(line.wrong(what, "--> TYPE and its fields"));
        }
        let sends = self.sends.clone().ok_or_else(|| missing("sends"))?;
        let expects = self.expects.clone().ok_or_else(|| missing("expects"))?;
        let case = Case {
            dialect,
            section: self.section.into(),
            number: self.number,
            level: self.level,
            sends,
            expects: expects.into(),
            needs: self.needs.map(Into::into),
            hostile: self.hostile,
            script: self.script,
            end: self.end,
        };
        Ok((case, self.budget))
    }
}

/// Returns whether a word is part of an arrow.
fn is_line(word: &str) -> bool {
    word.len() >= 2 && word.contains('-') && word.chars().all(|it| matches!(it, '-' | '<' | '>'))
}

fn is_arrow(words: &[&str]) -> bool {
    let words = match words {
        ["or", rest @ ..] => rest,
        words => words,
    };
    words.first().is_some_and(|it| is_line(it))
}
