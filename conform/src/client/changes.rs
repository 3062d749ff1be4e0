//! Wrong values for the fields of replies that place data, made from the `.x` files: the cases here, and whoever else
//! attacks clients, make replies of them.

use crate::dialect::Dialect;
use crate::fields::{Limits, Word, changes, words, words_of};
use crate::vocabulary::Vocabulary;
use crate::wire::{v2, wg};

/// A wrong value of a word of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The message of the reply, from zero.
    pub part: usize,
    /// The word and its right value. Its position is in the message, or, for ROPT_XMTRESP, in the operation's
    /// information.
    pub word: Word<'static>,
    /// The wrong value.
    pub value: u32,
    /// Set if the reply is well-formed nevertheless, with an item that is shorter, or elsewhere in the results, or with
    /// a word more behind it: its upper layer alone can refuse it.
    pub is_whole: bool,
    /// The section whose rule forbids the value. Without one, the document leaves it to clients what they make of the
    /// reply, and a client that takes it is not to blame.
    pub forbidden: Option<&'static str>,
}

impl Wrong {
    /// Returns whether this is a value of this field, or of one of its elements.
    #[must_use]
    pub fn is_of(&self, field: &str) -> bool {
        self.word.field().split('[').next() == Some(field)
    }

    /// Returns the value of a field whose turn it is after `count` others, of those that a rule forbids: no client may
    /// take them.
    pub(crate) fn in_turn<'a>(all: &'a [Self], field: &str, count: usize) -> Option<&'a Self> {
        let firm = all
            .iter()
            .filter(|it| it.is_of(field) && it.forbidden.is_some());
        let firm: Vec<&Self> = firm.collect();
        firm.get(count.checked_rem(firm.len())?).copied()
    }

    /// Puts the value into the bytes that have the word. Returns false if they end before it.
    #[must_use]
    pub fn put(&self, bytes: &mut [u8]) -> bool {
        let at = self.word.at;
        let word = bytes.get_mut(at..at.saturating_add(4));
        word.map(|word| word.copy_from_slice(&self.value.to_be_bytes()))
            .is_some()
    }
}

fn wrong(
    part: usize,
    words: &[Word<'static>],
    limits: Limits<'_>,
    is_whole: impl Fn(&Word<'_>, u32) -> bool,
    forbidden: impl Fn(&Word<'_>, u32) -> Option<&'static str>,
) -> Option<Vec<Wrong>> {
    let all = changes(words, limits).ok()?.into_iter();
    let made = all.map(|(word, value)| {
        let is_whole = is_whole(word, value);
        Wrong {
            part,
            word: word.clone(),
            value,
            is_whole,
            forbidden: forbidden(word, value).filter(|_| !is_whole),
        }
    });
    Some(made.collect())
}

/// The section about the messages of placed replies, which rules out each value that is not whole.
const PLACED: &str = "send-placement-00, 4.3";
const PLACED_MIDDLE: &str = "send-placement-00, 4.4";

/// Returns whether an item has another place in a Payload stream that is none by its form.
fn is_elsewhere(right: u32, value: u32) -> bool {
    value < right && value >= 8 && value.is_multiple_of(4)
}

/// Returns wrong values of the fields behind the prefix of a reply with one placed item, in targets of this many octets
/// (send-placement-00, 4.3 and 4.4): RDMA2_REPLY_PLACED, which other messages may precede. `None` if these messages are
/// no such reply.
#[must_use]
pub fn placed(messages: &[Vec<u8>], target: u32) -> Option<Vec<Wrong>> {
    let vocabulary = Vocabulary::shared(Dialect::Wg).ok()?;
    let mut all = Vec::new();
    for (part, message) in messages.iter().enumerate() {
        let htype = wg::htype(message)?;
        let header = vocabulary.header_of(htype)?;
        let mut words = words(vocabulary, header, message).ok()?;
        let words = words.split_off(wg::PREFIX / 4);
        // The first message alone has no length to agree with.
        let is_padded = |word: &Word<'_>, value: u32| {
            let is_more = Some(value) == word.value.checked_add(4);
            part == 0 && word.field() == "rdma_payload_length" && is_more
        };
        let value = |name| {
            words
                .iter()
                .find(|word| word.is_called(name))
                .map(|it| it.value)
        };
        all.extend(match htype {
            wg::REPLY_PLACED => {
                let near = value("rdma_position")?.saturating_sub(2);
                let limits: Limits<'_> = &[
                    ("rdma_placed", &[17]),
                    ("rdma_position", &[4, near]),
                    ("rdma_length", &[target, target.saturating_add(1)]),
                    ("rdma_offset", &[target]),
                ];
                let is_whole = |word: &Word<'_>, value: u32| match word.field() {
                    "rdma_position" => is_elsewhere(word.value, value),
                    "rdma_length" => value != 0 && value < word.value,
                    _ => is_padded(word, value),
                };
                wrong(part, &words, limits, is_whole, |_, _| Some(PLACED))
            }
            wg::REPLY_PLACED_MIDDLE => {
                let limits: Limits<'_> = &[("rdma_messages", &[128])];
                let forbidden = |_: &Word<'_>, _| Some(PLACED_MIDDLE);
                wrong(part, &words, limits, is_padded, forbidden)
            }
            _ => None,
        }?);
    }
    Some(all)
}

/// Returns wrong values of the fields of ROPT_XMTRESP with placed items (rtrext-00, 9.3). `info` is the operation's
/// information, `room` the bytes behind it, and `target` the bytes of each target. `None` if this is no such
/// information.
#[must_use]
pub fn response(info: &[u32], room: u32, target: u32) -> Option<Vec<Wrong>> {
    let vocabulary = Vocabulary::shared(Dialect::Two).ok()?;
    let words = words_of(vocabulary, "optxmt_resp", &v2::bytes(info)).ok()?;
    let limits: Limits<'_> = &[
        ("xmdmi_disp", &[4]),
        ("xmdmi_length", &[target.saturating_add(1)]),
        ("xmdl_offset", &[2]),
        (
            "optxrs_pslen",
            &[room, room.saturating_add(4), u32::MAX - 3],
        ),
    ];
    let is_whole = |word: &Word<'_>, value: u32| match word.field() {
        "xmdmi_disp" => is_elsewhere(word.value, value),
        "xmdmi_length" => value != 0 && value < word.value,
        "optxrs_pslen" => Some(value) == word.value.checked_add(4),
        _ => false,
    };
    let payload = words.iter().find(|word| word.is_called("optxrs_pslen"))?;
    let ends = (payload.value, room);
    wrong(0, &words, limits, is_whole, |word, value| {
        forbidden(word, value, ends)
    })
}

/// Returns the section of rtrext-00 whose rule forbids this value in a response with one item in one segment, whose
/// transmission ends with the item. `payload` is the length of the Payload stream, and `room` that of all that is
/// behind the operation's information, bytes.
fn forbidden(word: &Word<'_>, value: u32, (payload, room): (u32, u32)) -> Option<&'static str> {
    let right = word.value;
    match word.field() {
        // "In all cases, each xmddp_rsdloc sent as part of a request has a corresponding xmddp_loc in the associated
        // response".
        "optxrs_ddp" => Some("rtrext-00, 7.4"),
        // Behind the end of the stream. A place within it where no item can be has no error, and a client may go by the
        // order of the items (drafts/errata.md, rtr 7.3 and 7.4).
        "xmdmi_disp" => (value > payload).then_some("rtrext-00, 7.3"),
        // More than came. Nothing says that an item has a byte, or how many segments go with a length.
        "xmdmi_length" => (value > right).then_some("rtrext-00, 7.3"),
        // The types of tables 1 and 2. Each other one has other fields, or none, so that these are no XDR any more.
        "xmdl_type" => Some("rtrext-00, 6.2"),
        // The item goes beyond what came, as its segment ends there.
        "xmdl_offset" => Some("rtrext-00, 7.3"),
        // Another number of segments makes other fields of those behind it.
        "xmdl_bsnum" => Some("rtrext-00, 9.3"),
        // Segments have the numbers of the receives' segments, in order.
        "xmdl_bsnum[0]" => Some("rtrext-00, 6.2"),
        // The others are still to come, or there is no room for them (5.2). Nothing says what no transmission means.
        "optxrs_count" => (value > right).then_some("rtrext-00, 4.2"),
        // Beyond the message (9.5), or too short for its results. Nothing forbids bytes behind them.
        "optxrs_pslen" if value > room => Some("rtrext-00, 9.5"),
        "optxrs_pslen" => (value < right).then_some("rtrext-00, 9.3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the places and the values of those that no client may take.
    fn firm(all: &[Wrong]) -> Vec<(usize, &str, u32)> {
        let firm = all.iter().filter(|wrong| wrong.forbidden.is_some());
        firm.map(|wrong| (wrong.part, wrong.word.field(), wrong.value))
            .collect()
    }

    #[test]
    fn every_field_of_a_placed_reply_has_wrong_values() {
        let middle = wg::message(7, wg::REPLY_PLACED_MIDDLE, &[1, 64, 64], &[0; 64]);
        let fields = [0, 1, 128, 8192, 1, 0, 64];
        let last = wg::message(7, wg::REPLY_PLACED, &fields, &[0; 64]);
        let all = placed(&[middle.clone(), last.clone()], 65_536).unwrap();
        let top = u32::MAX;
        for expected in [
            (0, "rdma_messages", 0),
            (0, "rdma_messages", 128),
            (0, "rdma_remaining", 68),
            (0, "rdma_payload_length", top),
            (1, "rdma_writes[0]", 1),
            (1, "rdma_placed", 17),
            (1, "rdma_position", 126),
            (1, "rdma_length", 65_537),
            (1, "rdma_segment", 0),
            (1, "rdma_offset", 65_536),
            (1, "rdma_payload_length", 68),
        ] {
            assert!(firm(&all).contains(&expected), "{expected:?}");
        }
        for wrong in &all {
            let message = [&middle, &last][wrong.part];
            let mut changed = message.clone();
            assert!(wrong.put(&mut changed) && changed != *message, "{wrong:?}");
        }
        // These are whole, though the item is not the right one.
        let whole = all.iter().filter(|wrong| wrong.is_whole);
        let whole: Vec<(&str, u32)> = whole.map(|it| (it.word.field(), it.value)).collect();
        let lengths = [1, 8188, 8191].map(|value| ("rdma_length", value));
        let others = [("rdma_payload_length", 68), ("rdma_position", 124)];
        assert_eq!(whole, [&others[..], &lengths].concat());
        let one = wg::message(
            7,
            wg::REPLY_PLACED,
            &[0, 1, 128, 8192, 0, 0, 128],
            &[0; 128],
        );
        let more = ("rdma_payload_length", 132);
        let all = placed(&[one], 65_536).unwrap();
        assert!(
            all.iter()
                .any(|it| it.is_whole && (it.word.field(), it.value) == more)
        );
        // No such replies.
        assert_eq!(placed(&[last[..40].to_vec()], 65_536), None);
        assert_eq!(placed(&[wg::grant(3)], 65_536), None);
    }

    #[test]
    fn every_field_of_a_response_has_wrong_values() {
        let all = response(&[1, 128, 8192, 2, 0, 1, 0, 1, 128], 9152, 65_536).unwrap();
        let top = u32::MAX;
        for expected in [
            (0, "optxrs_ddp", 0),
            (0, "xmdmi_disp", 132),
            (0, "xmdmi_length", 65_537),
            (0, "xmdl_type", 6),
            (0, "xmdl_offset", 2),
            (0, "xmdl_bsnum", 0),
            (0, "xmdl_bsnum[0]", 1),
            (0, "optxrs_count", 2),
            (0, "optxrs_pslen", top - 3),
        ] {
            assert!(firm(&all).contains(&expected), "{expected:?}");
        }
        assert!(all.iter().all(|wrong| wrong.value != wrong.word.value));
        assert_eq!(all.iter().filter(|it| it.is_of("xmdl_bsnum")).count(), 6);
        let whole: Vec<u32> = all
            .iter()
            .filter(|it| it.is_whole)
            .map(|it| it.value)
            .collect();
        assert_eq!(whole, [124, 1, 8188, 8191, 132]);
        // No rule says what a client makes of these.
        let left = all
            .iter()
            .filter(|it| !it.is_whole && it.forbidden.is_none());
        let left: Vec<(&str, u32)> = left.map(|it| (it.word.field(), it.value)).collect();
        let disp = [0, 1, 4, 127].map(|value| ("xmdmi_disp", value));
        let others = [
            ("xmdmi_length", 0),
            ("optxrs_count", 0),
            ("optxrs_pslen", 129),
            ("optxrs_pslen", 9152),
        ];
        assert_eq!(left, [&disp[..], &others].concat());
        assert_eq!(response(&[1, 128], 9152, 65_536), None);
    }
}
