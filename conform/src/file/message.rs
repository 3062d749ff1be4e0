//! A message of a case: its type, its fields, and the RPC message behind them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::line::{Line, Wrong};
use super::value::Context;
use crate::dialect::Dialect;
use crate::fields::{self, Form, Setting, Values, is_below};
use crate::pattern::{Pattern, Wanted};
use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::wire::wg;

/// The most fields, and the most octets, of all messages that the cases of one file send.
const MOST_FIELDS: usize = 1 << 22;
const MOST_OCTETS: usize = 64 << 20;
/// The longest time that a line may give a message.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Steps of encoding and octets that the messages of a file may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    steps: usize,
    octets: usize,
}

impl Budget {
    pub(super) fn of_file() -> Self {
        Self {
            steps: MOST_FIELDS,
            octets: MOST_OCTETS,
        }
    }
}

/// A message whose lines are being read.
pub(super) struct Message<'a> {
    line: Line<'a>,
    header: HeaderType,
    /// Whether it is sent, or expected.
    pub(super) sends: bool,
    /// Whether it may come instead of the one before.
    pub(super) or: bool,
    /// The time in which it must come.
    pub(super) within: Option<Duration>,
    values: Values,
    /// Places of positions, with their distances from the end of the RPC message behind the header. None of them is
    /// among the values.
    from_end: BTreeMap<String, i64>,
    /// Where each place of a message that is sent was set.
    set_by: BTreeMap<String, (Line<'a>, &'a str)>,
    wanted: Vec<(String, Option<Wanted>)>,
    rpc: Option<(Line<'a>, Vec<&'a str>)>,
}

impl<'a> Message<'a> {
    /// Begins a message by the words of its line without the arrow.
    pub(super) fn begin(
        line: Line<'a>,
        words: &[&'a str],
        sends: bool,
        or: bool,
        vocabulary: &Vocabulary,
    ) -> Result<Self, Wrong> {
        let (name, within) = match words {
            [name] => (name, None),
            [name, "within", time] if !sends && !or => (name, Some(duration(line, time)?)),
            _ => {
                let instead = "--> TYPE, <-- TYPE, <-- TYPE within 500ms, or <-- TYPE after another, <-- closed, or \
                     <-- nothing";
                return Err(line.wrong(format!("{} is no message", line.text), instead));
            }
        };
        let header = vocabulary.header(name).cloned();
        let header = header.or_else(|| unnamed(name)).ok_or_else(|| {
            let known = vocabulary.headers().iter().map(|it| it.name.as_str());
            line.wrong_at(
                name,
                format!("{name} is no header type of {}", vocabulary.dialect()),
                format!(
                    "one of {}; its number; or give --xdr FILE with const {name} = NUMBER; and a structure that is \
                     called after it, as rpcrdma2_hdr_call_inline after RDMA2_CALL_INLINE",
                    known.collect::<Vec<_>>().join(", ")
                ),
            )
        })?;
        Ok(Self {
            line,
            header,
            sends,
            or,
            within,
            values: Values::new(),
            from_end: BTreeMap::new(),
            set_by: BTreeMap::new(),
            wanted: Vec::new(),
            rpc: None,
        })
    }

    /// Takes `FIELD = VALUE`.
    pub(super) fn set(
        &mut self,
        context: &Context<'a>,
        line: Line<'a>,
        field: &'a str,
        value: &[&'a str],
    ) -> Result<(), Wrong> {
        if field == "rpc" {
            self.rpc = Some((line, value.to_vec()));
            return Ok(());
        }
        let vocabulary = &context.vocabulary;
        let found = fields::find(vocabulary, &self.header, field);
        let place = found.map_err(|no| line.wrong_at(field, no.what, no.instead))?;
        let by = (line, field);
        let xid = context.xid(1).unwrap_or_default();
        if let ["memory", name] = value {
            let segment = context.memory(&line, name)?;
            for (name, number) in [
                ("rdma_handle", u64::from(segment.handle)),
                ("rdma_length", u64::from(segment.length)),
                ("rdma_offset", segment.offset),
            ] {
                let at = fields::find(vocabulary, &self.header, &format!("{field}.{name}"));
                let at = at.map_err(|_| {
                    let instead = format!("the place of a segment, as {field}.rdma_target");
                    line.wrong_at(field, format!("{field} is no segment"), instead)
                })?;
                self.put(by, at.name, Setting::Number(number));
            }
            return Ok(());
        }
        if let ["words", words @ ..] = value
            && self.sends
        {
            let raw = context.octets(&line, words, xid)?;
            self.put(by, place.name, Setting::Raw(raw));
            return Ok(());
        }
        let form = place.node.form(vocabulary);
        if let (Form::Word, [word], true) = (form, value, self.sends)
            && let Some(distance) = word.strip_prefix("end")
        {
            let distance: i32 = match distance {
                "" => 0,
                signed => signed.parse().map_err(|_| {
                    let what = format!("{word} is no position");
                    line.wrong_at(word, what, "end, end-8, or end+4096")
                })?,
            };
            self.values.remove(&place.name);
            self.set_by.insert(place.name.clone(), by);
            self.from_end.insert(place.name, distance.into());
            return Ok(());
        }
        match (form, value) {
            (Form::List(_) | Form::Optional(_) | Form::Array(_), ["none"]) => {
                let at = place.name;
                match self.sends {
                    // Nothing is there unless it is set.
                    true => self.unset(&at),
                    false => self.wanted.push((at, Some(Wanted::None))),
                }
                Ok(())
            }
            (Form::Word | Form::Long, ["any"]) if !self.sends => {
                self.wanted.push((place.name, None));
                Ok(())
            }
            (Form::Word | Form::Long, [range]) if !self.sends && range.contains("..") => {
                let (least, most) = range.split_once("..").unwrap_or((range, range));
                let range = context.scalar(&line, &[least])?..=context.scalar(&line, &[most])?;
                let wanted = Some(Wanted::Number(range));
                self.wanted.push((place.name, wanted));
                Ok(())
            }
            (Form::Word | Form::Long, value) => {
                let number = context.scalar(&line, value)?;
                if form == Form::Word && number > u64::from(u32::MAX) {
                    let what = format!("{field} has 32 bits, and {number} has more");
                    return Err(line.wrong_at(field, what, "a number up to 4294967295"));
                }
                self.put(by, place.name, Setting::Number(number));
                Ok(())
            }
            (Form::Opaque | Form::Fixed(_), value) => {
                let octets = context.octets(&line, value, xid)?;
                self.put(by, place.name, Setting::Octets(octets));
                Ok(())
            }
            (Form::Struct(_) | Form::Union(..), _) => {
                let members = place.node.members(vocabulary);
                let names = members.iter().map(|(name, _)| format!("{field}.{name}"));
                let instead = names.collect::<Vec<_>>().join(" = ..., ") + " = ...";
                Err(line.wrong_at(field, format!("{field} has fields of its own"), instead))
            }
            (Form::List(_) | Form::Optional(_) | Form::Array(_), _) => {
                let instead = match form {
                    Form::Optional(_) => {
                        format!("{field} = none, or its fields: {field}.NAME = ...")
                    }
                    _ => format!("{field} = none, or its elements: {field}[0].NAME = ..."),
                };
                Err(line.wrong_at(field, format!("{field} holds others"), instead))
            }
        }
    }

    /// Takes a value of a place. It takes the place of one before.
    fn put(&mut self, by: (Line<'a>, &'a str), place: String, setting: Setting) {
        if self.sends {
            self.from_end.remove(&place);
            self.set_by.insert(place.clone(), by);
            self.values.insert(place, setting);
            return;
        }
        let wanted = match setting {
            Setting::Number(number) => Wanted::Number(number..=number),
            Setting::Octets(octets) | Setting::Raw(octets) => Wanted::Octets(octets),
        };
        self.wanted.push((place, Some(wanted)));
    }

    /// Forgets what is set at a place and within it.
    fn unset(&mut self, place: &str) {
        self.values.retain(|it, _| !is_below(it, place));
        self.from_end.retain(|it, _| !is_below(it, place));
    }

    /// Sets a number, if nothing else is set.
    fn default(&mut self, place: &str, number: u32) {
        let number = u64::from(number);
        if self.sends && !self.from_end.contains_key(place) {
            let place = self.values.entry(place.to_owned());
            place.or_insert(Setting::Number(number));
        } else if !self.sends && !self.wanted.iter().any(|(name, _)| name == place) {
            let wanted = Some(Wanted::Number(number..=number));
            self.wanted.push((place.to_owned(), wanted));
        }
    }

    /// Returns the XID that is set.
    fn xid(&self) -> Option<u32> {
        match self.values.get(FIXED[0]) {
            Some(Setting::Number(number)) => u32::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the XID and the octets of a message that is sent.
    pub(super) fn encode(
        mut self,
        context: &Context<'a>,
        budget: &mut Budget,
    ) -> Result<(u32, Vec<u8>), Wrong> {
        let vocabulary = context.vocabulary.clone();
        let first = context.xid(1).unwrap_or_default();
        let [xid, version, credit] = FIXED;
        self.default(xid, first);
        self.default(version, vocabulary.dialect().version());
        self.default(credit, vocabulary.credit());
        self.default(vocabulary.selector(), self.header.number);
        let xid = self.xid().unwrap_or(first);
        let mut payload = Vec::new();
        if let Some((line, words)) = &self.rpc {
            let rpc = context.rpc(line, words, xid)?;
            if rpc.more {
                let instead = "all octets, and no ...";
                let what = "a message that is sent has a length";
                let at = words.last().copied().unwrap_or_default();
                return Err(line.wrong_at(at, what, instead));
            }
            payload = rpc.begins;
        }
        for (place, distance) in std::mem::take(&mut self.from_end) {
            let position = i64::try_from(payload.len()).ok();
            let position = position.and_then(|it| u32::try_from(it.checked_add(distance)?).ok());
            let position = position.ok_or_else(|| {
                let octets = payload.len();
                let what = format!("{place} is before the RPC message of {octets} octets");
                self.wrong(&place, what, "end, or less before it")
            })?;
            self.values.insert(place, Setting::Number(position.into()));
        }
        let (header, values) = (&self.header, &self.values);
        let encoded = fields::encode_within(&vocabulary, header, values, &mut budget.steps);
        let mut message = encoded.map_err(|error| {
            let instead = "fewer or shorter fields, or words in the place of the whole";
            self.wrong(&error.place, error.what.clone(), instead)
        })?;
        message.extend(payload);
        budget.octets = budget.octets.checked_sub(message.len()).ok_or_else(|| {
            let what = format!("the messages of the file have more than {MOST_OCTETS} octets");
            self.line.wrong(what, "several shorter files")
        })?;
        Ok((xid, message))
    }

    /// Returns an error about a place, at the line that sets it, if there is one.
    fn wrong(&self, place: &str, what: String, instead: &str) -> Wrong {
        match self.set_by.get(place) {
            Some((line, field)) => line.wrong_at(field, what, instead),
            None => self.line.wrong(what, instead),
        }
    }

    /// Returns what is compared of a message that is expected. Unless the case sets its XID, it is that of the last
    /// message that was sent; messages of the connection itself in -07 have no such default.
    pub(super) fn pattern(
        mut self,
        context: &Context<'a>,
        last_xid: Option<u32>,
    ) -> Result<Pattern, Wrong> {
        let vocabulary = context.vocabulary.clone();
        let [xid, version, _] = FIXED;
        self.default(version, vocabulary.dialect().version());
        let of_connection = vocabulary.dialect() == Dialect::Wg
            && (wg::GRANT..=wg::CONNPROP_FINAL).contains(&self.header.number);
        if let Some(last) = last_xid.filter(|_| !of_connection) {
            self.default(xid, last);
        }
        let mut wanted_xid = last_xid.unwrap_or_default();
        for (place, wanted) in &self.wanted {
            if let (true, Some(Wanted::Number(range))) = (place == xid, wanted) {
                wanted_xid = u32::try_from(*range.start()).unwrap_or_default();
            }
        }
        let payload = match &self.rpc {
            Some((line, words)) => Some(context.rpc(line, words, wanted_xid)?),
            None => None,
        };
        let fields = self.wanted.into_iter();
        let fields = fields.filter_map(|(place, wanted)| Some((place, wanted?)));
        Ok(Pattern {
            vocabulary,
            header: self.header,
            fields: fields.collect(),
            payload,
        })
    }
}

/// Returns a header type without a name, by its number.
fn unnamed(number: &str) -> Option<HeaderType> {
    let parsed = match number.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    Some(HeaderType {
        name: format!("header type {number}"),
        number: parsed.ok()?,
        fields: None,
    })
}

fn duration(line: Line<'_>, text: &str) -> Result<Duration, Wrong> {
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s').unwrap_or_default(), 1000),
    };
    let millis = digits.parse::<u64>().ok();
    let time = millis.and_then(|it| it.checked_mul(unit));
    let time = time.map(Duration::from_millis);
    time.filter(|it| !it.is_zero() && *it <= LONGEST_WAIT)
        .ok_or_else(|| {
            line.wrong_at(
                text,
                format!("{text} is no time"),
                "within 500ms, or within 2s, up to 600s",
            )
        })
}
