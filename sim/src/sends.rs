//! An independent check of flow control that counts Sends, and of continued messages, from the
//! bytes on the wire (version-two-07, sections 4.2.1, 6.3 and 6.6.2).
//!
//! Each end counts the messages that it posts and takes. Its first words tell what a message is, so
//! nothing here depends on the engine, or on its codec except for the length of headers.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rdma_sim::End;
use rpcrdma_ext_wg_ddp::header_type::{
    CALL_PLACED, CALL_PLACED_MIDDLE, REPLY_PLACED, REPLY_PLACED_MIDDLE,
};

/// The value of `rdma_vers`.
const VERSION: u32 = 2;
const GRANT: u32 = 5;
const ERROR: u32 = 4;
const CONNPROP_MIDDLE: u32 = 6;
const CONNPROP_FINAL: u32 = 7;
const CALL_MIDDLE: u32 = 9;
const CALL_INLINE: u32 = 10;
const REPLY_MIDDLE: u32 = 12;
const REPLY_INLINE: u32 = 13;
/// The length of a grant, bytes. Header type 5 of 2016 is longer.
const GRANT_LEN: usize = 16;
/// The length of the header of a part that is not the last one, bytes.
const MIDDLE_LEN: usize = 20;

/// The first words of a message: XID, version, credit value, header type, and `rdma_remaining` if
/// the header type has it.
#[derive(Clone, Copy, Debug)]
struct Start {
    xid: u32,
    version: u32,
    credit: u32,
    header_type: u32,
    remaining: u32,
}

impl Start {
    fn of(message: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = message.get(4 * at..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*bytes))
        };
        Some(Self {
            xid: word(0)?,
            version: word(1)?,
            credit: word(2)?,
            header_type: word(3)?,
            remaining: word(4).unwrap_or_default(),
        })
    }
}

/// Returns whether a message can only be one of the working group's version 2. An error may be one
/// of either version 2.
pub(crate) fn is_wg(message: &[u8]) -> bool {
    Start::of(message).is_some_and(|start| {
        let grant = start.header_type == GRANT && message.len() == GRANT_LEN;
        start.version == VERSION && (start.header_type > GRANT || grant)
    })
}

/// Returns whether a message asks the peer whether it speaks the working group's version 2.
pub(crate) fn asks_for_wg(message: &[u8]) -> bool {
    let start = Start::of(message).filter(|_| is_wg(message));
    start.is_some_and(|start| matches!(start.header_type, CONNPROP_MIDDLE | CONNPROP_FINAL))
}

/// A message of which not all parts have been sent.
#[derive(Clone, Copy, Debug)]
struct Unfinished {
    xid: u32,
    /// The header types of the next parts: that of all but the last one, and that of the last one.
    parts: (u32, u32),
    /// The number of bytes that follow. Exchanges of properties have none, and placed messages
    /// count other bytes.
    remaining: Option<u32>,
}

/// One end of a connection. All counts are modulo 2^32.
#[derive(Debug)]
struct Account {
    is_wg: bool,
    sent: u32,
    taken: u32,
    /// The last limit that this end was told: it may send messages until it has sent so many.
    limit: u32,
    /// The last limit that this end told its peer.
    told: u32,
    /// The messages that it has taken beyond that limit, in order: whether each is a grant.
    beyond: VecDeque<bool>,
    unfinished: Option<Unfinished>,
}

/// All ends of connections that are established.
#[derive(Debug)]
pub(crate) struct Sends {
    /// The count at which connections begin.
    first: u32,
    /// Whether both ends have the working group's version 2.
    spoken: bool,
    accounts: BTreeMap<End, Account>,
}

impl Sends {
    pub(crate) fn new(first: u32, spoken: bool) -> Self {
        Self {
            first,
            spoken,
            accounts: BTreeMap::new(),
        }
    }

    /// Records that a connection was established.
    pub(crate) fn opened(&mut self, end: End) {
        // Until a message has told more, each end may send one (section 4.3).
        let one_more = self.first.wrapping_add(1);
        let account = Account {
            is_wg: false,
            sent: self.first,
            taken: self.first,
            limit: one_more,
            told: one_more,
            beyond: VecDeque::new(),
            unfinished: None,
        };
        self.accounts.insert(end, account);
    }

    /// Records that a connection has ended.
    pub(crate) fn over(&mut self, end: End) {
        self.accounts.remove(&end);
    }

    /// Records that a message of `len` bytes is sent, which begins with these. Returns `None` if
    /// the connection does not count Sends, and otherwise whether the message may be sent.
    pub(crate) fn sent(
        &mut self,
        end: End,
        message: &Bytes,
        len: usize,
    ) -> Option<Result<(), String>> {
        let (account, start) = self.account(end, message)?;
        let checked = account.count_sent(start);
        let checked = checked.and_then(|()| account.continued(start, message, len));
        Some(checked.map_err(|what| format!("{end} {what}")))
    }

    /// Records that a message is taken. Returns `None` if the connection does not count Sends, and
    /// otherwise whether the peer was allowed to send it.
    pub(crate) fn taken(&mut self, end: End, message: &Bytes) -> Option<Result<(), String>> {
        let (account, start) = self.account(end, message)?;
        let checked = account.count_taken(start);
        Some(checked.map_err(|what| format!("{end} {what}")))
    }

    fn account(&mut self, end: End, message: &Bytes) -> Option<(&mut Account, Start)> {
        let account = self.accounts.get_mut(&end)?;
        account.is_wg |= self.spoken && is_wg(message);
        let start = Start::of(message).filter(|_| account.is_wg)?;
        Some((account, start))
    }
}

/// Returns how far `a` is ahead of `b`; negative if it is behind.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

impl Account {
    /// Counts a message that is sent. Only a grant may be one beyond the limit: the receiver keeps
    /// a receive for it (section 4.2.1.1).
    fn count_sent(&mut self, start: Start) -> Result<(), String> {
        self.sent = self.sent.wrapping_add(1);
        let is_grant = start.header_type == GRANT;
        if ahead(self.sent, self.limit) > i32::from(is_grant) {
            return Err(format!(
                "sends message {}, a {}, where the limit is {}",
                self.sent,
                if is_grant { "grant" } else { "message" },
                self.limit
            ));
        }
        // What is on the way was sent by the limit that was told before.
        if ahead(start.credit, self.told) < 0 {
            return Err(format!(
                "lowers the limit of the peer from {} to {}",
                self.told, start.credit
            ));
        }
        if is_grant && start.credit == self.told {
            return Err(format!("grants {} again", start.credit));
        }
        self.told = start.credit;
        // A higher limit covers the first of the messages beyond the one before.
        let left = usize::try_from(ahead(self.taken, self.told)).unwrap_or(0);
        let covered = self.beyond.len().saturating_sub(left);
        self.beyond.drain(..covered);
        Ok(())
    }

    /// Counts a message that is taken. Beyond the limit, an end takes one grant and one surplus
    /// message: a peer that keeps to the letter of section 4.2.1 sends one (drafts/errata-07.md,
    /// 2).
    fn count_taken(&mut self, start: Start) -> Result<(), String> {
        self.taken = self.taken.wrapping_add(1);
        self.limit = start.credit;
        if ahead(self.taken, self.told) <= 0 {
            return Ok(());
        }
        self.beyond.push_back(start.header_type == GRANT);
        let ordinary = self.beyond.iter().filter(|is_grant| !**is_grant);
        match ordinary.count() > 1 || self.beyond.len() > 2 {
            true => Err(format!(
                "takes message {}, where the peer was told {}",
                self.taken, self.told
            )),
            false => Ok(()),
        }
    }

    /// Checks that nothing but grants and errors stands between the parts of a message, and that
    /// their lengths are as announced.
    fn continued(&mut self, start: Start, message: &Bytes, len: usize) -> Result<(), String> {
        let Start {
            xid,
            header_type,
            remaining,
            ..
        } = start;
        if matches!(header_type, GRANT | ERROR) {
            return Ok(());
        }
        let parts = match header_type {
            CONNPROP_MIDDLE | CONNPROP_FINAL => Some((CONNPROP_MIDDLE, CONNPROP_FINAL)),
            CALL_MIDDLE | CALL_INLINE => Some((CALL_MIDDLE, CALL_INLINE)),
            REPLY_MIDDLE | REPLY_INLINE => Some((REPLY_MIDDLE, REPLY_INLINE)),
            CALL_PLACED_MIDDLE | CALL_PLACED => Some((CALL_PLACED_MIDDLE, CALL_PLACED)),
            REPLY_PLACED_MIDDLE | REPLY_PLACED => Some((REPLY_PLACED_MIDDLE, REPLY_PLACED)),
            _ => None,
        };
        let payload = match header_type {
            CALL_MIDDLE | REPLY_MIDDLE => len.checked_sub(MIDDLE_LEN),
            CALL_INLINE | REPLY_INLINE => {
                let decoded = rpcrdma_v2_wg::Header::decode(message).ok();
                decoded.and_then(|(_, at)| len.checked_sub(at))
            }
            _ => Some(0),
        };
        let payload = payload.and_then(|len| u32::try_from(len).ok());
        let payload = payload.ok_or_else(|| format!("sends a bad part of {xid:#x}"))?;
        let before = self.unfinished.take();
        if let Some(before) = before {
            if before.xid != xid || Some(before.parts) != parts {
                return Err(format!(
                    "sends header type {header_type} for {xid:#x} between the parts of {:#x}",
                    before.xid
                ));
            }
            if let Some(expected) = before.remaining {
                let rest = match header_type {
                    CALL_MIDDLE | REPLY_MIDDLE => payload.checked_add(remaining),
                    _ => Some(payload),
                };
                if rest != Some(expected) {
                    return Err(format!(
                        "sends {payload} bytes of {xid:#x} of which {expected} were left"
                    ));
                }
            }
        }
        self.unfinished = match header_type {
            CONNPROP_MIDDLE | CALL_MIDDLE | REPLY_MIDDLE | CALL_PLACED_MIDDLE
            | REPLY_PLACED_MIDDLE => parts.map(|parts| Unfinished {
                xid,
                parts,
                remaining: matches!(header_type, CALL_MIDDLE | REPLY_MIDDLE).then_some(remaining),
            }),
            _ => None,
        };
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use rdma_sim::NodeId;

    /// A message with these fields, and a payload of this length.
    fn message(xid: u32, credit: u32, header_type: u32, rest: &[u32], payload: usize) -> Bytes {
        let words = [xid, VERSION, credit, header_type];
        let words = words.iter().chain(rest);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_be_bytes()).collect();
        bytes.resize(bytes.len() + payload, 0);
        bytes.into()
    }

    struct Tested {
        sends: Sends,
        end: End,
    }

    impl Tested {
        /// Returns an end of a connection that counts from `first`. It has sent its properties, and
        /// the peer has told it that it may send `limit` messages in all.
        fn new(first: u32, limit: u32) -> Self {
            let end = End {
                node: NodeId(0),
                qp: rdma::QpId(1),
            };
            let mut sends = Sends::new(first, true);
            sends.opened(end);
            let mut tested = Self { sends, end };
            tested
                .send(message(1, first.wrapping_add(2), CONNPROP_FINAL, &[0], 0))
                .unwrap();
            let properties = message(1, first.wrapping_add(limit), CONNPROP_FINAL, &[0], 0);
            tested.sends.taken(end, &properties).unwrap().unwrap();
            tested
        }

        fn send(&mut self, message: Bytes) -> Result<(), String> {
            self.sends.sent(self.end, &message, message.len()).unwrap()
        }
    }

    const ZEROES: [u32; 4] = [0; 4];

    #[test]
    fn only_a_grant_may_be_one_beyond_the_limit() {
        for first in [0, u32::MAX - 2, u32::MAX] {
            let credit = |told: u32| first.wrapping_add(told);
            let call = |told| message(7, credit(told), CALL_INLINE, &ZEROES, 8);
            let grant = |told| message(0, credit(told), GRANT, &[], 0);
            let mut tested = Tested::new(first, 3);
            assert_eq!(tested.send(call(2)), Ok(()));
            assert_eq!(tested.send(call(2)), Ok(()));
            assert_eq!(tested.send(grant(3)), Ok(()));
            assert!(tested.send(grant(4)).is_err());
            let mut tested = Tested::new(first, 2);
            assert_eq!(tested.send(call(2)), Ok(()));
            assert!(tested.send(call(2)).is_err());
        }
    }

    #[test]
    fn a_limit_is_not_lowered_nor_granted_again() {
        let grant = |told| message(0, told, GRANT, &[], 0);
        assert!(Tested::new(0, 9).send(grant(1)).is_err());
        assert!(Tested::new(0, 9).send(grant(2)).is_err());
        assert_eq!(Tested::new(0, 9).send(grant(3)), Ok(()));
    }

    /// The peer may send two messages. Beyond that, one grant and one other message are taken, in
    /// either order.
    #[test]
    fn the_peer_keeps_to_what_it_was_told() {
        let reply = || message(7, 9, REPLY_INLINE, &[0], 8);
        let grant = || message(0, 10, GRANT, &[], 0);
        let orders = [
            (vec![reply(), reply()], 1),
            (vec![reply(), grant(), reply()], 2),
            (vec![grant(), reply(), grant()], 2),
            (vec![reply(), grant(), grant()], 2),
        ];
        for (beyond, taken) in orders {
            let mut tested = Tested::new(0, 9);
            let end = tested.end;
            assert_eq!(tested.sends.taken(end, &reply()), Some(Ok(())));
            for (at, message) in beyond.iter().enumerate() {
                let checked = tested.sends.taken(end, message).unwrap();
                assert_eq!(checked.is_ok(), at < taken, "{at}");
            }
        }
        // A message that raises the limit covers what was taken before.
        let mut tested = Tested::new(0, 9);
        for _ in 0..3 {
            let end = tested.end;
            assert_eq!(tested.sends.taken(end, &reply()), Some(Ok(())));
            assert_eq!(tested.sends.taken(end, &reply()), Some(Ok(())));
            let told = tested.sends.accounts[&end].taken + 1;
            let told = message(9, told, CALL_INLINE, &ZEROES, 8);
            assert_eq!(tested.send(told), Ok(()));
        }
    }

    #[test]
    fn nothing_but_grants_and_errors_stands_between_the_parts_of_a_message() {
        let middle = |xid, remaining, payload| message(xid, 2, CALL_MIDDLE, &[remaining], payload);
        let last = |xid, payload| message(xid, 3, CALL_INLINE, &ZEROES, payload);
        let begun = || {
            let mut tested = Tested::new(0, 20);
            tested.send(middle(7, 100, 8)).unwrap();
            tested
        };
        let mut good = begun();
        assert_eq!(good.send(middle(7, 40, 60)), Ok(()));
        assert_eq!(good.send(message(0, 3, GRANT, &[], 0)), Ok(()));
        assert_eq!(good.send(message(9, 3, ERROR, &[2], 0)), Ok(()));
        assert_eq!(good.send(last(7, 40)), Ok(()));
        assert_eq!(good.send(last(8, 40)), Ok(()));
        let wrong = [
            last(8, 100),
            last(7, 96),
            middle(8, 40, 60),
            middle(7, 40, 56),
            message(7, 2, REPLY_MIDDLE, &[40], 60),
            message(7, 2, REPLY_INLINE, &[0], 100),
            message(9, 2, CONNPROP_FINAL, &[0], 0),
        ];
        for wrong in wrong {
            assert!(begun().send(wrong.clone()).is_err(), "{wrong:x?}");
        }
    }

    #[test]
    fn other_versions_do_not_count_sends() {
        let end = End {
            node: NodeId(0),
            qp: rdma::QpId(1),
        };
        let mut sends = Sends::new(0, true);
        sends.opened(end);
        let version_1 = Bytes::from_iter([7u32, 1, 9, 0, 0, 0, 0].map(u32::to_be_bytes).concat());
        assert_eq!(sends.sent(end, &version_1, 28), None);
        let optional = message(7, 9, 5, &[0, 0, 0], 0);
        assert_eq!(sends.sent(end, &optional, 28), None);
        // One end asks for what the other does not have.
        let mut sends = Sends::new(0, false);
        sends.opened(end);
        let properties = message(7, 9, CONNPROP_FINAL, &[0], 0);
        assert!(asks_for_wg(&properties) && !asks_for_wg(&optional));
        assert_eq!(sends.sent(end, &properties, 20), None);
    }
}
