//! The first difference between a received RPC message and an expected one, in words of RFC 5531, section 9.

use std::borrow::Cow;

use crate::wire::{Reader, rpc};

const REPLY_STAT: &[&str] = &["MSG_ACCEPTED", "MSG_DENIED"];
const REJECT_STAT: &[&str] = &["RPC_MISMATCH", "AUTH_ERROR"];
const AUTH_STAT: &[&str] = &[
    "AUTH_OK",
    "AUTH_BADCRED",
    "AUTH_REJECTEDCRED",
    "AUTH_BADVERF",
    "AUTH_REJECTEDVERF",
    "AUTH_TOOWEAK",
    "AUTH_INVALIDRESP",
    "AUTH_FAILED",
];
/// The words of a message up to its first variable part.
const OF_CALL: [&str; 6] = ["xid", "msg_type", "rpcvers", "prog", "vers", "proc"];
const OF_REPLY: [&str; 3] = ["xid", "msg_type", "reply_stat"];

/// Describes the first difference of a message that should begin with `begins`, and may go on only if `more`. Returns
/// `None` if there is no difference.
pub(crate) fn difference(is: &[u8], begins: &[u8], more: bool) -> Option<String> {
    let at = is.iter().zip(begins).position(|(is, wanted)| is != wanted);
    let at = at.unwrap_or(is.len().min(begins.len()));
    // Both are the same up to there, and so are their structures.
    let field = |message: &[u8]| field(message, at / 4);
    let what = what(begins);
    if at < is.len() && at < begins.len() {
        let Field { name, values } = field(is);
        let offset = at / 4 * 4;
        let [is, wanted] = [is, begins].map(|it| shown(&it[offset..], values));
        return Some(format!(
            "{what}: {name} (octet {offset}) is {is}, not {wanted}"
        ));
    }
    let (length, wanted) = (is.len(), begins.len());
    if length < wanted {
        let name = field(begins).name;
        let least = if more { "at least " } else { "" };
        return Some(format!(
            "{what} of {length} octets, not {least}{wanted}: {name} is missing"
        ));
    }
    (length > wanted && !more).then(|| {
        let Field { name, values } = field(is);
        let is = shown(&is[at / 4 * 4..], values);
        format!("{what} of {length} octets, not {wanted}: {name}, {is}, is too much")
    })
}

/// Describes a message that does not end with these octets. Returns `None` if it does.
pub(crate) fn difference_at_end(is: &[u8], ends: &[u8]) -> Option<String> {
    let Some(from) = is.len().checked_sub(ends.len()) else {
        let (length, least) = (is.len(), ends.len());
        let what = what(is);
        return Some(format!("{what} of {length} octets, not at least {least}"));
    };
    let mut pairs = is[from..].iter().zip(ends);
    let at = pairs.position(|(is, wanted)| is != wanted)? / 4 * 4;
    let [is_there, wanted] = [&is[from + at..], &ends[at..]].map(|it| shown(it, Values::None));
    Some(format!(
        "{} of {} octets, of which those from octet {} on are {is_there}, not {wanted}",
        what(is),
        is.len(),
        from + at
    ))
}

fn what(message: &[u8]) -> &'static str {
    match word(message, 1) {
        Some(rpc::REPLY) => "an RPC reply",
        Some(rpc::CALL) => "an RPC call",
        _ => "an RPC message",
    }
}

/// The names of a field's values.
#[derive(Clone, Copy)]
enum Values {
    None,
    /// Names of 0, 1, 2 and so on.
    From0(&'static [&'static str]),
    /// Names of `nfsstat3`, with which most results of NFS version 3 begin.
    Status,
}

/// A word of a message.
struct Field {
    name: Cow<'static, str>,
    values: Values,
}

impl Field {
    fn new(name: impl Into<Cow<'static, str>>, values: Values) -> Self {
        let name = name.into();
        Self { name, values }
    }

    fn plain(name: impl Into<Cow<'static, str>>) -> Self {
        Self::new(name, Values::None)
    }
}

fn word(message: &[u8], index: usize) -> Option<u32> {
    Reader(message.get(index.checked_mul(4)?..)?).word()
}

/// Returns the number of words of opaque data with this length.
fn words_of(length: Option<u32>) -> usize {
    length.map_or(0, |it| it.div_ceil(4) as usize)
}

/// Returns the field to which the word at `index` belongs, which the words before it determine.
fn field(message: &[u8], index: usize) -> Field {
    let word = |index| word(message, index);
    match word(1) {
        _ if index < 2 => Field::plain(OF_REPLY[index]),
        Some(rpc::CALL) => field_of_call(&word, index),
        Some(rpc::REPLY) => field_of_reply(&word, index),
        _ => Field::plain(format!("word {}", index + 1)),
    }
}

fn field_of_call(word: &dyn Fn(usize) -> Option<u32>, index: usize) -> Field {
    if let Some(name) = OF_CALL.get(index) {
        return Field::plain(*name);
    }
    let mut at = OF_CALL.len();
    for [flavor, length, body] in [
        ["credential flavor", "credential length", "credential"],
        ["verifier flavor", "verifier length", "verifier"],
    ] {
        let end = at.saturating_add(2 + words_of(word(at + 1)));
        match index - at {
            0 => return Field::plain(flavor),
            1 => return Field::plain(length),
            _ if index < end => return Field::plain(body),
            _ => at = end,
        }
    }
    Field::plain(format!("word {} of the arguments", index - at + 1))
}

fn field_of_reply(word: &dyn Fn(usize) -> Option<u32>, index: usize) -> Field {
    const FIRST: usize = OF_REPLY.len();
    if index < FIRST {
        return Field::new(OF_REPLY[index], Values::From0(REPLY_STAT));
    }
    if word(2) == Some(1) {
        return match (index - FIRST, word(FIRST)) {
            (0, _) => Field::new("reject_stat", Values::From0(REJECT_STAT)),
            (1, Some(1)) => Field::new("auth_stat", Values::From0(AUTH_STAT)),
            (1, Some(0)) => Field::plain("lowest RPC version"),
            (2, Some(0)) => Field::plain("highest RPC version"),
            (more, _) => Field::plain(format!("word {more} behind reject_stat")),
        };
    }
    let status = FIRST + 2 + words_of(word(FIRST + 1));
    match index {
        FIRST => Field::plain("verifier flavor"),
        _ if index == FIRST + 1 => Field::plain("verifier length"),
        _ if index < status => Field::plain("verifier"),
        _ if index == status => Field::new("accept_stat", Values::From0(&rpc::ACCEPT_STAT)),
        _ => match (index - status, word(status)) {
            (1, Some(0)) => Field::new("word 1 of the results", Values::Status),
            (more, Some(0)) => Field::plain(format!("word {more} of the results")),
            (1, Some(2)) => Field::plain("lowest program version"),
            (2, Some(2)) => Field::plain("highest program version"),
            (more, _) => Field::plain(format!("word {more} behind accept_stat")),
        },
    }
}

/// Returns the first word of these octets as a number, with its name if it has one. Fewer than four octets are shown as
/// they are.
fn shown(octets: &[u8], values: Values) -> String {
    let Some(number) = word(octets, 0) else {
        return format!("{octets:02x?}");
    };
    let name = match values {
        Values::None => None,
        Values::From0(names) => names.get(number as usize).copied(),
        Values::Status => rpc::status_name(number),
    };
    let digits = match number {
        0..=0xffff => number.to_string(),
        _ => format!("{number:#x}"),
    };
    match name {
        Some(name) => format!("{digits} ({name})"),
        None => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Xdr;

    fn words(words: &[u32]) -> Vec<u8> {
        Xdr::new().words(words).done()
    }

    #[track_caller]
    fn assert_differs(is: &[u32], begins: &[u32], expected: &str) {
        let found = difference(&words(is), &words(begins), false);
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let null = [7, 1, 0, 0, 0, 0];
        let with = |at: usize, value| {
            let mut words = null;
            words[at] = value;
            words
        };
        for (at, value, expected) in [
            (0, 0x1234_5678, "xid (octet 0) is 0x12345678, not 7"),
            (1, 0, "msg_type (octet 4) is 0, not 1"),
            (
                2,
                1,
                "reply_stat (octet 8) is 1 (MSG_DENIED), not 0 (MSG_ACCEPTED)",
            ),
            (3, 6, "verifier flavor (octet 12) is 6, not 0"),
            (
                5,
                4,
                "accept_stat (octet 20) is 4 (GARBAGE_ARGS), not 0 (SUCCESS)",
            ),
        ] {
            assert_differs(
                &with(at, value),
                &null,
                &format!("an RPC reply: {expected}"),
            );
        }
        let denied = [7, 1, 1, 1, 1];
        let expected =
            "an RPC reply: auth_stat (octet 16) is 5 (AUTH_TOOWEAK), not 1 (AUTH_BADCRED)";
        assert_differs(&[7, 1, 1, 1, 5], &denied, expected);
    }

    #[test]
    fn results_are_counted_behind_a_verifier_of_any_length() {
        let reply = |results: &[u32]| [&[7, 1, 0, 6, 6, 1, 2, 0][..], results].concat();
        let expected =
            "an RPC reply: word 1 of the results (octet 32) is 70 (NFS3ERR_STALE), not 0 (NFS3_OK)";
        assert_differs(&reply(&[70]), &reply(&[0]), expected);
        let expected = "an RPC reply: word 2 of the results (octet 36) is 9, not 1";
        assert_differs(&reply(&[0, 9]), &reply(&[0, 1]), expected);
        let expected = "an RPC reply of 32 octets, not 40: word 1 of the results is missing";
        assert_differs(&reply(&[]), &reply(&[0, 1]), expected);
        let expected = "an RPC reply of 40 octets, not 36: word 2 of the results, 1, is too much";
        assert_differs(&reply(&[0, 1]), &reply(&[0]), expected);
        let [long, short] = [reply(&[0, 1]), reply(&[0])].map(|it| words(&it));
        assert_eq!(difference(&long, &short, true), None);
        assert_eq!(difference(&short, &short, false), None);
    }

    #[test]
    fn the_end_is_compared_from_behind() {
        let reply = words(&[7, 1, 0, 0, 0, 0, 0, 5, 6]);
        assert_eq!(difference_at_end(&reply, &words(&[5, 6])), None);
        let found = difference_at_end(&reply, &words(&[5, 9])).unwrap();
        let expected = "an RPC reply of 36 octets, of which those from octet 32 on are 6, not 9";
        assert_eq!(found, expected);
        assert!(difference_at_end(&reply[..4], &words(&[5, 9])).is_some());
    }

    #[test]
    fn any_octets_can_be_compared() {
        // Lengths that no message has, and messages that end anywhere.
        let mut wild = words(&[7, 1, 0, 6, u32::MAX, 1]);
        for message in [
            words(&[7, 0, 2, 1, 1, 1, 6, u32::MAX, 0]),
            wild.clone(),
            vec![1; 7],
        ] {
            for end in 0..message.len() {
                assert!(difference(&message[..end], &message, false).is_some());
                assert!(difference(&message, &message[..end], false).is_some());
                let mut other = message.clone();
                other[end] ^= 1;
                assert!(difference(&other, &message, true).is_some());
                assert!(difference_at_end(&other, &message).is_some());
            }
        }
        wild.truncate(3);
        assert!(difference(&[], &wild, true).is_some());
    }
}
