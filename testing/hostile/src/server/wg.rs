//! Calls and replies of the working group's version 2 (version-two-07), and of its extension for data
//! placement.

use super::{Call, DATA_SEED, Parts};
use crate::rig::content;
use crate::wire::rpc;
use crate::wire::v1::{self, NOMSG};
use crate::wire::v2::{HEAD, TARGET};
use crate::wire::wg::{self, Arrived, REPLY_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE};
use crate::{Wrong, wrong};

/// The bytes of READ results before the data: RPC header, status, no attributes, count, eof,
/// length.
const RESULTS: usize = 24 + 20;

/// Returns the parts of a reply with placed data: the first target begins in the first part, which
/// has the payload.
fn placed_parts(xid: u32, payload: &[u8], data: &[u8]) -> Vec<Vec<u8>> {
    let count = data.len().div_ceil(TARGET).max(1);
    let items: Vec<u32> = match data.len() as u32 {
        0 => vec![0],
        len => vec![1, RESULTS as u32, len, 0, 0],
    };
    let part = |number: usize| {
        let left = (count - 1 - number) as u32;
        let payload = if number == 0 { payload } else { &[] };
        let here = payload.len() as u32;
        let mut part = match left {
            0 => {
                let fields = [&[0], &items[..], &[here]].concat();
                wg::message(xid, REPLY_PLACED, &fields, payload)
            }
            _ => wg::message(xid, REPLY_PLACED_MIDDLE, &[left, 0, here], payload),
        };
        if let Some(target) = data.chunks(TARGET).nth(number) {
            part.resize(HEAD, 0);
            part.extend(target);
        }
        part
    };
    (0..count).map(part).collect()
}

/// Returns the parts of a reply without chunks: three, or more if these are too long.
fn continued(xid: u32, payload: &[u8]) -> Vec<Vec<u8>> {
    let room = wg::INLINE - wg::PREFIX - 4;
    let len = ((payload.len() / 3) & !3).clamp(4, room);
    let mut parts = Vec::new();
    let mut rest = payload;
    while rest.len() > room || parts.len() < 2 {
        let (now, later) = rest.split_at(len.min(rest.len()));
        let remaining = later.len() as u32;
        parts.push(wg::message(xid, REPLY_MIDDLE, &[remaining], now));
        rest = later;
    }
    parts.push(wg::reply(xid, rest));
    parts
}

/// The parts of a call that have arrived.
#[derive(Debug, Default)]
pub(super) struct Begun {
    payload: Vec<u8>,
    /// The targets of all parts, one after the other.
    targets: Vec<u8>,
}

impl Call {
    /// Decodes a message of the working group's version 2. `begun` has the parts before it. Returns
    /// `None` if other parts follow.
    pub(super) fn parse_wg(bytes: &[u8], begun: &mut Begun) -> Result<Option<Self>, Wrong> {
        let strange = || wrong(format!("no call but {bytes:x?}"));
        let targets = bytes.get(HEAD..).unwrap_or_default();
        let (mut header, payload, placed) = match wg::parse_call(bytes).ok_or_else(strange)? {
            Arrived::Middle(_, part) => {
                begun.payload.extend(part);
                return Ok(None);
            }
            Arrived::PlacedMiddle(part) => {
                begun.payload.extend(part);
                begun.targets.extend(targets);
                return Ok(None);
            }
            Arrived::Last(_, header, rest) => {
                let begun = std::mem::take(begun);
                (header, [begun.payload, rest].concat(), None)
            }
            Arrived::Placed(call) => {
                let mut begun = std::mem::take(begun);
                begun.targets.extend(targets);
                let mut data = Vec::new();
                for [_, len, segment, offset] in call.items {
                    let from = segment as usize * TARGET + offset as usize;
                    let there = begun.targets.get(from..from + len as usize);
                    data.extend(there.ok_or_else(strange)?);
                }
                let payload = [begun.payload, call.payload].concat();
                (call.header, payload, Some(data))
            }
        };
        if header.procedure == NOMSG {
            return Err(wrong("a call in a call chunk, which no case asks for"));
        }
        header.version = 1;
        let mut call = Self::parse(&header.with(&payload))?;
        call.placed = placed;
        Ok(Some(call))
    }

    /// Returns the reply in parts. If `poisoned`, its content is wrong, so that accepting it is
    /// detected.
    #[must_use]
    pub fn parts(&self, form: Parts, poisoned: bool) -> Vec<Vec<u8>> {
        let xid = self.header.xid;
        let mut plain = self.clone();
        if form != Parts::Plain {
            plain.header = v1::header(xid);
        }
        let mut answer = plain.answer(0);
        if form == Parts::Placed {
            let mut data = Vec::new();
            if self.procedure == (rpc::NFS, 6) {
                answer.payload.truncate(RESULTS);
                data = content(DATA_SEED, self.last_word() as usize);
            }
            answer.places = vec![(0, 0, data)];
        }
        if poisoned {
            answer.poison();
        }
        match form {
            Parts::Plain => wg::reply_parts(&answer.header, &answer.payload),
            Parts::Continued => continued(xid, &answer.payload),
            Parts::Placed => placed_parts(xid, &answer.payload, &answer.places[0].2),
        }
    }
}
