//! State of one connection of the working group's version 2 (version-two-07): the credits of the server, the
//! sizes that both ends have told, and replies in several messages. Cases do not name these.

use std::collections::HashMap;

use crate::expect::Received;
use crate::wire::Reader;
use crate::wire::wg::{
    self, CALL_EXTERNAL, CALL_INLINE, CONNPROP_FINAL, CONNPROP_MIDDLE, GRANT, INLINE, PREFIX,
    REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, VERSION, parse_properties, parse_reply,
};

/// The property with the size of receives.
const RBSIZ: u32 = 2;
/// The longest reply that is kept, bytes, and the most messages of one. No case asks for more than 64 KiB.
const LONGEST_REPLY: usize = 1 << 20;
const MOST_PARTS: usize = 4096;
/// The longest first message of a client (section 4.3), bytes.
const FIRST: usize = 1024;

/// A message of a reply that others follow.
#[derive(Debug)]
struct Part {
    xid: u32,
    /// `rdma_remaining`.
    remaining: u32,
    payload: Vec<u8>,
}

/// State of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionWg {
    /// The last credit limit that the server told. Every connection begins with one credit (section 4.3).
    limit: u32,
    /// The number of messages received.
    received: u32,
    /// The longest message that the server receives, bytes.
    receive: usize,
    /// The longest reply that this end has said that it receives, bytes.
    own_receive: usize,
    /// Whether the server has sent its last properties.
    told: bool,
    /// `rdma_inv_handle` of the calls that have one, by their XIDs.
    handles: HashMap<u32, u32>,
    /// The messages so far of a reply that is not complete.
    parts: Vec<Part>,
    /// The number of these that the script has looked at.
    looked_at: usize,
    /// Of the last complete reply, `rdma_remaining` of each message but the last, and the number of bytes that
    /// did follow it.
    counts: Vec<(u32, usize)>,
}

impl ConnectionWg {
    pub(crate) fn new() -> Self {
        Self {
            limit: 1,
            received: 0,
            receive: FIRST,
            own_receive: INLINE,
            told: false,
            handles: HashMap::new(),
            parts: Vec::new(),
            looked_at: 0,
            counts: Vec::new(),
        }
    }

    /// Returns how many further messages the server can receive, after `sent` messages.
    pub(crate) fn credits(&self, sent: u32) -> u32 {
        let ahead = self.limit.wrapping_sub(sent);
        // Half of the range is behind the count: a limit that was taken back (section 4.2.1).
        if ahead < 1 << 31 { ahead } else { 0 }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Returns the longest message that may be sent, bytes.
    pub(crate) fn longest(&self) -> usize {
        self.receive
    }

    pub(crate) fn has_properties(&self) -> bool {
        self.told
    }

    /// Records a message that is sent.
    pub(crate) fn sends(&mut self, message: &[u8]) {
        self.handles.extend(invalidation(message));
        if let Some(CONNPROP_MIDDLE | CONNPROP_FINAL) = header_type(message) {
            let size = receive_size(message);
            self.own_receive = size.unwrap_or(self.own_receive);
        }
    }

    /// Takes a message that has come. Returns it if it is for the script, a reply as soon as all of its messages
    /// have come.
    ///
    /// # Errors
    /// The message breaks a rule that holds in every case.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        invalidated: Option<u32>,
    ) -> Result<Option<Received>, String> {
        let other = || Ok(Some(Received::Other(bytes.to_vec())));
        if self.received == 0 {
            // The version is known, and so is its default size.
            self.receive = self.receive.max(INLINE);
        }
        self.received = self.received.wrapping_add(1);
        let mut from = Reader(bytes);
        let words = [from.word(), from.word(), from.word(), from.word()];
        let [Some(xid), Some(version), Some(credit), Some(htype)] = words else {
            return other();
        };
        self.limit = credit;
        let is_reply =
            version == VERSION && matches!(htype, REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE);
        if let Some(handle) = invalidated
            && !(is_reply && self.handles.get(&xid) == Some(&handle))
        {
            return Err(format!(
                "handle {handle:#x} is invalidated, which is not that of the call (version-two-07, 6.5)"
            ));
        }
        if is_reply && bytes.len() > self.own_receive {
            return Err(format!(
                "a Send of {} bytes, and this client receives {} (version-two-07, 4.2.2)",
                bytes.len(),
                self.own_receive
            ));
        }
        match htype {
            _ if version != VERSION => other(),
            GRANT if bytes.len() == PREFIX && xid == 0 => Ok(None),
            GRANT if bytes.len() == PREFIX => Err(format!(
                "RDMA2_GRANT with XID {xid:#x} instead of zero (version-two-07, 6.3.2)"
            )),
            CONNPROP_MIDDLE | CONNPROP_FINAL => self.properties(bytes, htype).map(|()| None),
            REPLY_MIDDLE => self.part(xid, from),
            REPLY_INLINE | REPLY_EXTERNAL => match parse_reply(bytes) {
                Some((header, payload)) => {
                    let payload = self.whole(xid, htype, payload)?;
                    Ok(Some(Received::Rpc(header, payload)))
                }
                None => other(),
            },
            _ => other(),
        }
    }

    fn properties(&mut self, bytes: &[u8], htype: u32) -> Result<(), String> {
        if self.told {
            let text = "properties after RDMA2_CONNPROP_FINAL (version-two-07, 6.3.4)";
            return Err(text.into());
        }
        if parse_properties(bytes).is_none() {
            return Err("properties that cannot be decoded (version-two-07, 5.1)".into());
        }
        if let Some(size) = receive_size(bytes) {
            self.receive = size;
        }
        self.told = htype == CONNPROP_FINAL;
        Ok(())
    }

    fn part(&mut self, xid: u32, mut from: Reader<'_>) -> Result<Option<Received>, String> {
        let Some(remaining) = from.word().filter(|_| from.0.len() >= 4) else {
            return Err("RDMA2_REPLY_MIDDLE without a payload (version-two-07, 6.3.9)".into());
        };
        if self.parts.first().is_some_and(|first| first.xid != xid) {
            return Err(interleaved());
        }
        let kept: usize = self.parts.iter().map(|part| part.payload.len()).sum();
        if self.parts.len() >= MOST_PARTS || kept + from.0.len() > LONGEST_REPLY {
            return Err(format!(
                "a reply of more than {MOST_PARTS} messages, or {LONGEST_REPLY} bytes, and no end of it"
            ));
        }
        self.parts.push(Part {
            xid,
            remaining,
            payload: from.0.to_vec(),
        });
        Ok(None)
    }

    /// Records that the script looks at a message that has come. Only those of the reply that is not complete count.
    pub(crate) fn looks_at_part(&mut self, message: &[u8]) {
        let xid = Reader(message).word();
        let is_part = wg::htype(message) == Some(REPLY_MIDDLE)
            && self.parts.first().is_some_and(|it| Some(it.xid) == xid);
        if is_part {
            self.looked_at += 1;
        }
    }

    /// Returns whether a reply that is not complete has messages that the script has not looked at.
    pub(crate) fn has_other_parts(&self) -> bool {
        self.parts.len() > self.looked_at
    }

    /// Returns the payload of a reply of which this is the last or only message.
    fn whole(&mut self, xid: u32, htype: u32, last: Vec<u8>) -> Result<Vec<u8>, String> {
        let parts = std::mem::take(&mut self.parts);
        self.looked_at = 0;
        let is_part = |part: &Part| part.xid == xid && htype == REPLY_INLINE;
        if !parts.iter().all(is_part) {
            return Err(interleaved());
        }
        let whole: usize = parts.iter().map(|part| part.payload.len()).sum();
        let (whole, mut sent) = (whole + last.len(), 0);
        self.counts.clear();
        let mut payload = Vec::new();
        for part in parts {
            sent += part.payload.len();
            self.counts.push((part.remaining, whole - sent));
            payload.extend(part.payload);
        }
        payload.extend(last);
        Ok(payload)
    }

    /// Checks that the last reply came in several messages, with the right counts of what remains.
    pub(crate) fn counted(&self) -> Result<(), String> {
        if self.counts.is_empty() {
            return Err("the reply came in one message".into());
        }
        match self
            .counts
            .iter()
            .find(|(told, follow)| *told as usize != *follow)
        {
            None => Ok(()),
            Some((told, follow)) => Err(format!(
                "rdma_remaining is {told}, and {follow} bytes follow (version-two-07, 6.3.9)"
            )),
        }
    }
}

/// Returns the header type of a message of this version.
fn header_type(message: &[u8]) -> Option<u32> {
    let mut from = Reader(message);
    let words = [from.word(), from.word(), from.word(), from.word()];
    match words {
        [Some(_), Some(VERSION), _, htype] => htype,
        _ => None,
    }
}

/// Returns the XID of a call whose reply may invalidate a handle, and the handle.
pub(crate) fn invalidation(message: &[u8]) -> Option<(u32, u32)> {
    let Some(CALL_INLINE | CALL_EXTERNAL) = header_type(message) else {
        return None;
    };
    let handle = Reader(message.get(PREFIX..)?).word()?;
    (handle != 0).then_some((Reader(message).word()?, handle))
}

fn interleaved() -> String {
    "a reply between the messages of another (version-two-07, 4.1)".into()
}

/// Returns the size of receives that properties tell. An empty value is the default.
fn receive_size(message: &[u8]) -> Option<usize> {
    let all = parse_properties(message)?;
    let (_, value) = all.iter().rev().find(|(which, _)| *which == RBSIZ)?;
    match value.first_chunk() {
        Some(size) if value.len() == 4 => usize::try_from(u32::from_be_bytes(*size)).ok(),
        None if value.is_empty() => Some(INLINE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(xid: u32, remaining: u32, payload: &[u8]) -> Vec<u8> {
        wg::message(xid, REPLY_MIDDLE, &[remaining], payload)
    }

    #[test]
    fn a_limit_that_is_behind_what_was_sent_allows_nothing() {
        let mut connection = ConnectionWg::new();
        assert_eq!((connection.credits(0), connection.credits(1)), (1, 0));
        connection.take(&wg::grant(3), None).unwrap();
        assert_eq!((connection.credits(1), connection.credits(5)), (2, 0));
        connection.take(&wg::grant(2), None).unwrap();
        assert_eq!(connection.credits(u32::MAX), 3);
        assert_eq!(connection.received(), 2);
    }

    #[test]
    fn a_reply_in_two_messages_is_one_and_its_counts_are_compared() {
        for (told, right) in [(4, true), (8, false)] {
            let mut connection = ConnectionWg::new();
            let first = middle(7, told, &[0, 0, 0, 7]);
            assert_eq!(connection.take(&first, None), Ok(None));
            let whole = connection.take(&wg::reply(7, &[1, 2, 3, 4]), None).unwrap();
            let Some(Received::Rpc(header, payload)) = whole else {
                panic!("{whole:?}");
            };
            assert_eq!((header.xid, header.version), (7, 2));
            assert_eq!(payload, [0, 0, 0, 7, 1, 2, 3, 4]);
            assert_eq!(connection.counted().is_ok(), right);
        }
    }

    #[test]
    fn a_reply_that_does_not_end_is_not_kept() {
        for (length, most) in [(4, MOST_PARTS), (4000, LONGEST_REPLY / 4000)] {
            let mut connection = ConnectionWg::new();
            let part = middle(7, u32::MAX, &vec![0; length]);
            for _ in 0..most {
                assert_eq!(connection.take(&part, None), Ok(None));
            }
            assert!(connection.take(&part, None).is_err());
        }
    }

    #[test]
    fn what_breaks_a_rule_of_every_case_is_an_error() {
        let mut connection = ConnectionWg::new();
        assert!(connection.take(&middle(7, 8, &[0; 4]), None).is_ok());
        assert!(connection.take(&wg::reply(8, &[0; 8]), None).is_err());
        assert!(connection.take(&wg::reply(9, &[0; 4096]), None).is_err());
        // Only the handle of a call, and only by its reply.
        connection.sends(&wg::message(3, CALL_INLINE, &[0x51, 0, 0, 0], &[0; 4]));
        assert!(connection.take(&wg::reply(3, &[0; 8]), Some(0x52)).is_err());
        assert!(connection.take(&wg::error(3, &[2]), Some(0x51)).is_err());
        assert!(connection.take(&wg::reply(3, &[0; 8]), Some(0x51)).is_ok());
        assert!(
            connection
                .take(&wg::message(3, GRANT, &[], &[]), None)
                .is_err()
        );
        let last = wg::introduction(&[0]);
        assert_eq!(connection.take(&last, None), Ok(None));
        assert!(connection.has_properties());
        assert!(connection.take(&last, None).is_err());
    }

    #[test]
    fn messages_of_a_client_have_1024_bytes_at_first_and_then_what_the_server_receives() {
        let mut connection = ConnectionWg::new();
        assert_eq!(connection.longest(), 1024);
        connection.take(&wg::grant(9), None).unwrap();
        assert_eq!(connection.longest(), 4096);
        let sizes = wg::introduction(&wg::set(&[(2, 65_536)]));
        connection.take(&sizes, None).unwrap();
        assert_eq!(connection.longest(), 65_536);
    }
}
