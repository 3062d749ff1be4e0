//! Items in the targets of a sequence of messages.

use super::layout::Target;
use crate::client::rules::{Findings, Rule};

/// A message of a sequence.
#[derive(Debug)]
pub(in crate::client) struct Part {
    pub(in crate::client) message: Vec<u8>,
    /// The bytes of its header and of its Payload stream.
    pub(in crate::client) head: usize,
    /// The ranges that items use.
    pub(in crate::client) used: Vec<(usize, usize)>,
}

impl Part {
    pub(in crate::client) fn new(message: &[u8], head: usize) -> Self {
        Self {
            message: message.to_vec(),
            head,
            used: Vec::new(),
        }
    }
}

/// Returns the bytes of an item, or why they are not in the targets that its entry names (send-placement-00, 5.5, steps
/// 5 and 6; rtrext-00, 7.3). `numbers` are those of these targets, in the order of the bytes.
pub(in crate::client) fn located(
    parts: &mut [Part],
    targets: &[Target],
    (length, mut offset): (usize, usize),
    numbers: impl IntoIterator<Item = usize>,
) -> Result<Vec<u8>, String> {
    let first = offset;
    let wrong = |what: &str| {
        Err(format!(
            "an item of {length} bytes at offset {first}: {what}"
        ))
    };
    if offset % 4 != 0 {
        return wrong("the offset is no multiple of four");
    }
    let mut left = length;
    let mut numbers = numbers.into_iter();
    let mut bytes = Vec::new();
    while left > 0 {
        let Some(number) = numbers.next() else {
            return wrong("its targets are too short");
        };
        let at = number.checked_div(targets.len());
        let Some(part) = at.and_then(|at| parts.get_mut(at)) else {
            return wrong("there is no such target");
        };
        let target = targets[number % targets.len()];
        if offset >= target.length {
            return wrong("the offset is behind the target");
        }
        let from = target.start + offset;
        let to = from + left.min(target.length - offset);
        if from < part.head {
            return wrong("header or Payload stream reach into it");
        }
        let Some(there) = part.message.get(from..to) else {
            return wrong("the message ends before it does");
        };
        if part.used.iter().any(|it| from < it.1 && it.0 < to) {
            return wrong("another item is there");
        }
        bytes.extend(there);
        part.used.push((from, to));
        left -= to - from;
        offset = 0;
    }
    Ok(bytes)
}

/// Looks at the octets of a message that belong to nothing, and at its end.
pub(in crate::client) fn padding(findings: &mut Findings, part: &mut Part) {
    part.used.sort_unstable();
    let mut from = part.head;
    let mut is_zero = true;
    for (start, end) in part.used.iter().copied() {
        let between = part.message.get(from..start).unwrap_or_default();
        is_zero &= between.iter().all(|it| *it == 0);
        from = end;
    }
    let rest = part.message.get(from..).unwrap_or_default();
    is_zero &= rest.iter().all(|it| *it == 0);
    findings.look(Rule::PlacedPadding, is_zero, || {
        "octets that are neither header, Payload stream nor data are not zero".to_owned()
    });
    findings.look(Rule::PlacedEnd, rest.is_empty(), || {
        format!("{} octets behind the last one of the data", rest.len())
    });
}
