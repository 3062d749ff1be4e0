//! A message of a case: its type, its fields, and the RPC message behind them.

use std::time::Duration;

use super::line::{Line, Wrong};
use super::value::Context;
use crate::dialect::Dialect;
use crate::fields::{self, Form, Setting, Values};
use crate::pattern::{Pattern, Wanted};
use crate::vocabulary::{FIXED, HeaderType, Vocabulary};
use crate::wire::wg;

/// The longest time that a line may give a message.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

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
    /// Places of positions, with their distances from the end of the RPC message behind the header.
    from_end: Vec<(String, i64)>,
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
        let header = vocabulary.header(name).or_else(|| unnamed(name));
        let header = header.ok_or_else(|| {
            let known = vocabulary.headers().into_iter().map(|it| it.name);
            line.wrong(
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
            from_end: Vec::new(),
            wanted: Vec::new(),
            rpc: None,
        })
    }

    /// Takes `FIELD = VALUE`.
    pub(super) fn set(
        &mut self,
        context: &Context<'a>,
        line: Line<'a>,
        field: &str,
        value: &[&'a str],
    ) -> Result<(), Wrong> {
        if field == "rpc" {
            self.rpc = Some((line, value.to_vec()));
            return Ok(());
        }
        let vocabulary = &context.vocabulary;
        let found = fields::find(vocabulary, &self.header, field);
        let place = found.map_err(|no| line.wrong(no.what, no.instead))?;
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
                    line.wrong(format!("{field} is no segment"), instead)
                })?;
                self.put(at.name, Setting::Number(number));
            }
            return Ok(());
        }
        if let ["words", words @ ..] = value
            && self.sends
        {
            let raw = context.octets(&line, words, xid)?;
            self.put(place.name, Setting::Raw(raw));
            return Ok(());
        }
        let form = place.node.form(vocabulary);
        if let (Form::Word, [word], true) = (form, value, self.sends)
            && let Some(distance) = word.strip_prefix("end")
        {
            let distance: i32 = match distance {
                "" => 0,
                signed => signed.parse().map_err(|_| {
                    line.wrong(format!("{word} is no position"), "end, end-8, or end+4096")
                })?,
            };
            self.from_end.push((place.name, distance.into()));
            return Ok(());
        }
        match (form, value) {
            (Form::List(_) | Form::Optional(_) | Form::Array(_), ["none"]) => {
                let at = place.name;
                match self.sends {
                    // Nothing is there unless it is set.
                    true => self.values.retain(|name, _| !name.starts_with(&at)),
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
                    return Err(line.wrong(what, "a number up to 4294967295"));
                }
                self.put(place.name, Setting::Number(number));
                Ok(())
            }
            (Form::Opaque | Form::Fixed(_), value) => {
                let octets = context.octets(&line, value, xid)?;
                self.put(place.name, Setting::Octets(octets));
                Ok(())
            }
            (Form::Struct(_) | Form::Union(..), _) => {
                let members = place.node.members(vocabulary);
                let names = members.iter().map(|(name, _)| format!("{field}.{name}"));
                let instead = names.collect::<Vec<_>>().join(" = ..., ") + " = ...";
                Err(line.wrong(format!("{field} has fields of its own"), instead))
            }
            (Form::List(_) | Form::Optional(_) | Form::Array(_), _) => {
                let instead = match form {
                    Form::Optional(_) => {
                        format!("{field} = none, or its fields: {field}.NAME = ...")
                    }
                    _ => format!("{field} = none, or its elements: {field}[0].NAME = ..."),
                };
                Err(line.wrong(format!("{field} holds others"), instead))
            }
        }
    }

    fn put(&mut self, place: String, setting: Setting) {
        if self.sends {
            self.values.insert(place, setting);
            return;
        }
        let wanted = match setting {
            Setting::Number(number) => Wanted::Number(number..=number),
            Setting::Octets(octets) | Setting::Raw(octets) => Wanted::Octets(octets),
        };
        self.wanted.push((place, Some(wanted)));
    }

    /// Sets a number, if nothing else is set.
    fn default(&mut self, place: &str, number: u32) {
        let number = u64::from(number);
        if self.sends {
            let place = self.values.entry(place.to_owned());
            place.or_insert(Setting::Number(number));
        } else if !self.wanted.iter().any(|(name, _)| name == place) {
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
    pub(super) fn encode(mut self, context: &Context<'a>) -> Result<(u32, Vec<u8>), Wrong> {
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
                return Err(line.wrong("a message that is sent has a length", instead));
            }
            payload = rpc.begins;
        }
        for (place, distance) in std::mem::take(&mut self.from_end) {
            let position = i64::try_from(payload.len()).ok();
            let position = position.and_then(|it| u32::try_from(it.checked_add(distance)?).ok());
            let position = position.ok_or_else(|| {
                let octets = payload.len();
                let what = format!("{place} is before the RPC message of {octets} octets");
                self.line.wrong(what, "end, or less before it")
            })?;
            self.values.insert(place, Setting::Number(position.into()));
        }
        let encoded = fields::encode(&vocabulary, &self.header, &self.values);
        let mut message =
            encoded.map_err(|what| self.line.wrong(what, "fewer or shorter fields"))?;
        message.extend(payload);
        Ok((xid, message))
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
            line.wrong(
                format!("{text} is no time"),
                "within 500ms, or within 2s, up to 600s",
            )
        })
}
