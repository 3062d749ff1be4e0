//! Messages of a client of version-two-07: the rules that each keeps or breaks, and calls as they are complete.

use super::chunks::{call_chunk, segments};
use super::counts::Counts;
use super::properties::{Sizes, looked_at};
use crate::client::arrival::long_call;
use crate::client::call::Call;
use crate::client::placed::{Came, Joined, Placement, Target};
use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::v1::{Header, Segment};
use crate::wire::wg::{
    self, Arrived, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CALL_PLACED, CALL_PLACED_MIDDLE,
    CONNPROP_FINAL, CONNPROP_MIDDLE, ERROR, GRANT, PREFIX, REPLY_EXTERNAL, REPLY_INLINE, VERSION,
};

/// The longest first message (version-two-07, 4.3), bytes.
const FIRST: usize = 1024;
/// The longest continued call, bytes.
const LONGEST: usize = 1 << 20;
/// The shortest receives of a client for which this end can make replies, bytes.
const SHORTEST: usize = 128;

/// A message that came.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) enum Taken {
    /// One that nothing follows from.
    Nothing,
    /// A call that is complete: `rdma_inv_handle`, the header, and what is behind it.
    Call(u32, Header, Vec<u8>),
    /// A call by RDMA2_CALL_PLACED, with the placed items in the message.
    Placed(u32, Header, Vec<u8>),
    /// RDMA2_ERROR with this XID and this code.
    Error(u32, u32),
    /// One that is answered with this RDMA2_ERROR.
    Refused(Vec<u8>),
    /// One after which this end cannot go on.
    Unusable(String),
}

/// A continued call.
#[derive(Debug)]
struct Parts {
    xid: u32,
    /// The bytes that follow by the last message.
    remaining: u32,
    payload: Vec<u8>,
}

/// The exchange of the client's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    Nothing,
    Middle,
    Final,
}

/// State of one connection.
#[derive(Debug)]
pub(in crate::client) struct Wg {
    counts: Counts,
    /// The sizes that the client has announced.
    client: Sizes,
    /// The sizes that this end has announced.
    own: Sizes,
    exchange: Exchange,
    parts: Option<Parts>,
    placement: Placement,
    /// Whether this end has refused the version.
    pub(in crate::client) has_refused: bool,
}

impl Wg {
    pub(in crate::client) fn new() -> Self {
        Self {
            counts: Counts::new(),
            client: Sizes::defaults(),
            own: Sizes::defaults(),
            exchange: Exchange::Nothing,
            parts: None,
            placement: Placement::new(),
            has_refused: false,
        }
    }

    /// Returns the longest message that the client receives, bytes.
    pub(in crate::client) fn longest(&self) -> usize {
        self.client.receive.min(wg::INLINE)
    }

    /// Returns whether nothing was sent yet.
    pub(in crate::client) fn has_sent(&self) -> bool {
        self.counts.has_sent()
    }

    /// Counts a message that is not looked at.
    pub(in crate::client) fn count(&mut self) {
        self.counts.receive();
    }

    /// Returns whether the client can receive a message.
    pub(in crate::client) fn is_open(&self, message: &[u8]) -> bool {
        self.counts.is_open(message)
    }

    /// Returns whether the client can receive so many messages.
    pub(in crate::client) fn is_open_for(&self, messages: usize) -> bool {
        self.counts.is_open_for(messages)
    }

    /// Returns whether the client needs credits that no reply brings: it has none, or it is in the middle of a call and
    /// has less than half of those that are advertised.
    pub(in crate::client) fn needs_credit(&self, advertised: u32) -> bool {
        let left = i64::from(self.counts.left());
        left <= 0 || self.parts.is_some() && 2 * left < i64::from(advertised)
    }

    /// Returns a message as it is sent, with credits for so many messages more.
    pub(in crate::client) fn stamped(&mut self, message: &[u8], advertised: u32) -> Vec<u8> {
        self.counts.stamped(message, advertised)
    }

    /// Takes properties that this end announces.
    pub(in crate::client) fn announce(&mut self, message: &[u8]) {
        if let Some(properties) = wg::parse_properties(message) {
            self.own.take(&properties);
            self.placement.announce(&properties);
        }
    }

    /// Looks at a message. `awaits_no_error` says that nothing was sent that a client reports.
    pub(in crate::client) fn take(
        &mut self,
        findings: &mut Findings,
        message: &[u8],
        awaits_no_error: bool,
    ) -> Taken {
        self.counts.receive();
        self.length(findings, message.len());
        let mut from = Reader(message);
        let words = [(); 4].map(|()| from.word());
        let [Some(xid), Some(version), Some(credit), Some(htype)] = words else {
            let text = || format!("a message of {} bytes", message.len());
            findings.look(Rule::Header, false, text);
            return Taken::Nothing;
        };
        let is_kept = (version == VERSION) != self.has_refused;
        findings.look(Rule::Version, is_kept, || {
            format!("rdma_vers is {version} in a message with XID {xid:#x}")
        });
        if self.has_refused {
            return Taken::Unusable("what follows is no version-two-07".into());
        }
        if version != VERSION {
            let words = [xid, version, 0, ERROR, wg::ERR_VERS_MISMATCH];
            return Taken::Refused(crate::wire::v2::bytes(&words));
        }
        self.counts.take(findings, htype, credit);
        if !self.counts.has_sent() {
            let received = self.counts.received();
            findings.look(Rule::FirstMessage, received == 1, || {
                format!("{received} messages before the first of the server")
            });
        }
        if awaits_no_error && htype != ERROR {
            findings.look(Rule::Error, true, String::new);
        }
        self.placement.credit_limit(findings, credit);
        let is_call = matches!(
            htype,
            CALL_EXTERNAL..=CALL_INLINE | CALL_PLACED_MIDDLE | CALL_PLACED
        );
        let is_placed = is_call && self.placement.takes(findings, htype);
        let is_known = matches!(htype, ERROR..=CALL_INLINE) || is_placed;
        findings.look(Rule::HeaderType, is_known, || {
            format!("header type {htype:#x}")
        });
        if let Some(refused) = self.out_of_order(findings, xid, htype) {
            return refused;
        }
        match htype {
            GRANT => {
                findings.look(Rule::GrantXid, xid == 0, || {
                    format!("RDMA2_GRANT with XID {xid:#x}")
                });
                let length = message.len();
                findings.look(Rule::Header, length == PREFIX, || {
                    format!("RDMA2_GRANT of {length} bytes")
                });
                Taken::Nothing
            }
            ERROR => {
                let code = from.word().unwrap_or(0);
                findings.look(Rule::Error, !awaits_no_error, || {
                    let name = wg::error_name(code).unwrap_or("unknown");
                    format!("RDMA2_ERROR with code {code} ({name})")
                });
                Taken::Error(xid, code)
            }
            CONNPROP_MIDDLE | CONNPROP_FINAL => self.properties(findings, xid, htype, message),
            CALL_MIDDLE => self.part(findings, xid, from),
            CALL_INLINE | CALL_EXTERNAL => self.call(findings, xid, htype, message),
            CALL_PLACED_MIDDLE | CALL_PLACED => self.placed(findings, xid, htype, message),
            // To calls of this end, which expects no reply.
            REPLY_EXTERNAL..=REPLY_INLINE => Taken::Nothing,
            _ => Taken::Refused(wg::error(xid, &[wg::ERR_INVAL_HTYPE])),
        }
    }

    fn length(&self, findings: &mut Findings, length: usize) {
        let (rule, most) = match self.counts.received() {
            1 => (Rule::FirstLength, FIRST),
            _ => (Rule::Threshold, self.own.receive),
        };
        findings.look(rule, length <= most, || {
            format!("a message of {length} bytes, and at most {most} are received")
        });
    }

    /// Looks at the place of a message among those of properties and of a continued call.
    fn out_of_order(&mut self, findings: &mut Findings, xid: u32, htype: u32) -> Option<Taken> {
        let refused = || Some(Taken::Refused(wg::error(xid, &[wg::ERR_INVAL_CONT])));
        if matches!(htype, GRANT | ERROR) {
            return None;
        }
        let is_properties = matches!(htype, CONNPROP_MIDDLE | CONNPROP_FINAL);
        let kept = match self.exchange {
            Exchange::Nothing => true,
            Exchange::Middle => is_properties,
            Exchange::Final => !is_properties,
        };
        findings.look(Rule::PropertiesOnce, kept, || match is_properties {
            true => "properties after RDMA2_CONNPROP_FINAL".to_owned(),
            false => format!("header type {htype} after RDMA2_CONNPROP_MIDDLE"),
        });
        if !kept && is_properties {
            return refused();
        }
        if !kept {
            // A call after RDMA2_CONNPROP_MIDDLE is answered, so that nothing else fails for that.
            self.exchange = Exchange::Final;
        }
        if let Some(kept) = self.placement.is_next(findings, xid, htype) {
            return if kept { None } else { refused() };
        }
        let parts = self.parts.as_ref()?;
        let kept = parts.xid == xid && matches!(htype, CALL_MIDDLE | CALL_INLINE);
        findings.look(Rule::Continued, kept, || {
            let first = parts.xid;
            format!("header type {htype} with XID {xid:#x} between the messages of call {first:#x}")
        });
        if kept { None } else { refused() }
    }

    fn properties(
        &mut self,
        findings: &mut Findings,
        xid: u32,
        htype: u32,
        message: &[u8],
    ) -> Taken {
        let Some(properties) = looked_at(findings, message) else {
            return Taken::Refused(wg::error(xid, &[wg::ERR_BAD_XDR]));
        };
        self.exchange = match htype {
            CONNPROP_FINAL => Exchange::Final,
            _ => Exchange::Middle,
        };
        self.client.take(&properties);
        let are_last = htype == CONNPROP_FINAL;
        self.placement.properties(findings, &properties, are_last);
        match self.client.receive {
            0..SHORTEST => Taken::Unusable(format!(
                "the client has receives of {} bytes, which are too short for replies",
                self.client.receive
            )),
            _ => Taken::Nothing,
        }
    }

    fn part(&mut self, findings: &mut Findings, xid: u32, mut from: Reader<'_>) -> Taken {
        let remaining = from.word();
        let part = from.0;
        let Some(remaining) = remaining.filter(|_| part.len() >= 4) else {
            findings.look(Rule::Header, false, || {
                "RDMA2_CALL_MIDDLE without a payload".to_owned()
            });
            return Taken::Refused(wg::error(xid, &[wg::ERR_BAD_XDR]));
        };
        let parts = self.parts.get_or_insert_with(|| {
            let inside = Reader(part).word();
            findings.look(Rule::Xid, inside == Some(xid), || {
                format!("rdma_xid is {xid:#x}, and that of the RPC message {inside:x?}")
            });
            let whole = (part.len() as u64).saturating_add(u64::from(remaining));
            Parts {
                xid,
                remaining: u32::try_from(whole).unwrap_or(u32::MAX),
                payload: Vec::new(),
            }
        });
        let follow = u64::from(parts.remaining).checked_sub(part.len() as u64);
        let kept = remaining > 0 && follow == Some(u64::from(remaining));
        findings.look(Rule::Continued, kept, || {
            format!(
                "rdma_remaining is {remaining} after a message of which {follow:?} bytes follow"
            )
        });
        parts.remaining = remaining;
        parts.payload.extend(part);
        if parts.payload.len() > LONGEST {
            self.parts = None;
            return Taken::Refused(wg::error(xid, &[wg::ERR_SYSTEM]));
        }
        Taken::Nothing
    }

    fn placed(&mut self, findings: &mut Findings, xid: u32, htype: u32, message: &[u8]) -> Taken {
        // This message is counted already.
        let left = self.counts.left().saturating_add(1);
        let came = self
            .placement
            .message(findings, (xid, htype), message, left);
        match came {
            Came::Nothing => Taken::Nothing,
            Came::Call(Joined {
                handle,
                header,
                payload,
            }) => Taken::Placed(handle, header, payload),
            Came::Refused(code) => Taken::Refused(wg::error(xid, &[code])),
            Came::Unusable => Taken::Unusable("a placed call that cannot go on".into()),
        }
    }

    /// Returns the targets for a reply with placed data of this length, if the client wants it placed.
    pub(in crate::client) fn reply_targets(&self, length: usize) -> Vec<Target> {
        self.placement.reply_targets(length)
    }

    fn call(&mut self, findings: &mut Findings, xid: u32, htype: u32, message: &[u8]) -> Taken {
        let bad = || Taken::Refused(wg::error(xid, &[wg::ERR_BAD_XDR]));
        let parts = self.parts.take();
        let Some(Arrived::Last(handle, header, payload)) = wg::parse_call(message) else {
            let length = message.len();
            findings.look(Rule::Header, false, || {
                format!("a call of {length} bytes that cannot be parsed, with XID {xid:#x}")
            });
            return bad();
        };
        if !call_chunk(findings, htype, &header, message) {
            return bad();
        }
        // A header that differs when it is encoded again is no valid XDR.
        let again = wg::call_with(&header, handle, &payload);
        let again = wg::with_credit(again, wg::credit(message).unwrap_or_default());
        findings.look(Rule::Header, again == message, || {
            format!("a call with XID {xid:#x} whose header is no valid XDR")
        });
        if again != message {
            return bad();
        }
        let segments: Vec<Segment> = segments(&header).copied().collect();
        let is_named = handle == 0 || segments.iter().any(|it| it.handle == handle);
        findings.look(Rule::InvalidHandle, is_named, || {
            format!("rdma_inv_handle is {handle:#x}, which is not in the header")
        });
        self.segments(findings, &segments);
        if htype == CALL_EXTERNAL {
            long_call(findings, &header, &payload);
            return Taken::Call(handle, header, payload);
        }
        let payload = match parts {
            None => payload,
            Some(parts) => {
                let (follow, left) = (payload.len(), parts.remaining);
                findings.look(Rule::Continued, follow == left as usize, || {
                    format!("rdma_remaining is {left}, and {follow} bytes follow")
                });
                [parts.payload, payload].concat()
            }
        };
        let is_call = Call::new(header.clone(), payload.clone()).is_some();
        findings.look(Rule::Header, is_call, || {
            format!("RDMA2_CALL_INLINE with XID {xid:#x} and no RPC call")
        });
        match is_call {
            true => Taken::Call(handle, header, payload),
            false => bad(),
        }
    }

    fn segments(&self, findings: &mut Findings, segments: &[Segment]) {
        let (count, own) = (segments.len(), self.own);
        let longest = segments.iter().map(|it| it.length).max().unwrap_or(0);
        if count > 0 {
            let kept = count <= own.segments && longest <= own.segment;
            findings.look(Rule::Segments, kept, || {
                format!("{count} segments, the longest of {longest} bytes")
            });
        }
    }
}
