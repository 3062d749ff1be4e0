//! Messages of a client of version-two-07: the rules that each keeps or breaks, and calls as they are complete.

use super::chunks::{call_chunk, segments};
use super::counts::Counts;
use super::properties::{Sizes, looked_at};
use crate::client::arrival::long_call;
use crate::client::call::Call;
use crate::client::rules::{Findings, Rule};
use crate::wire::Reader;
use crate::wire::v1::{Header, Segment};
use crate::wire::wg::{
    self, Arrived, CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE, ERROR,
    GRANT, PREFIX, REPLY_EXTERNAL, REPLY_INLINE, VERSION,
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
        let is_known = matches!(htype, ERROR..=CALL_INLINE);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1::segment;
    use crate::wire::{rpc, v1};

    /// A connection whose properties are exchanged.
    fn begun() -> (Wg, Findings) {
        let (mut wg, mut findings) = (Wg::new(), Findings::default());
        let own = wg::introduction(&wg::plain_properties());
        assert_eq!(wg.take(&mut findings, &own, true), Taken::Nothing);
        wg.announce(&own);
        wg.stamped(&own, 16);
        (wg, findings)
    }

    fn broken(findings: &Findings) -> Vec<Rule> {
        let rules = [
            Rule::Header,
            Rule::Version,
            Rule::Xid,
            Rule::FirstMessage,
            Rule::Threshold,
            Rule::HeaderType,
            Rule::Properties,
            Rule::PropertiesOnce,
            Rule::Continued,
            Rule::CallChunk,
            Rule::InvalidHandle,
            Rule::Segments,
            Rule::GrantXid,
            Rule::Error,
            Rule::NoMsg,
        ];
        let is_broken = |rule: &Rule| findings.broken(*rule).is_some();
        rules.into_iter().filter(is_broken).collect()
    }

    fn after(message: &[u8]) -> Vec<Rule> {
        let (mut wg, mut findings) = begun();
        wg.take(&mut findings, message, true);
        broken(&findings)
    }

    #[test]
    fn each_rule_is_broken_alone() {
        let null = rpc::null(7).bytes();
        let with = |header: Header, handle| wg::call_with(&header, handle, &null);
        let reads = |reads: &[(u32, Segment)]| Header {
            reads: reads.to_vec(),
            ..v1::header(7)
        };
        assert_eq!(after(&wg::call(7, &null)), []);
        assert_eq!(after(&with(reads(&[(4, segment(9, 8, 0))]), 9)), []);
        let zero = with(reads(&[(0, segment(9, 8, 0))]), 9);
        assert_eq!(after(&zero), [Rule::CallChunk]);
        let other = with(reads(&[(4, segment(9, 8, 0))]), 8);
        assert_eq!(after(&other), [Rule::InvalidHandle]);
        let long = with(reads(&[(4, segment(9, 2 << 20, 0))]), 0);
        assert_eq!(after(&long), [Rule::Segments]);
        let many = with(reads(&[(4, segment(9, 8, 0)); 17]), 0);
        assert_eq!(after(&many), [Rule::Segments]);
        let mut third = wg::call(7, &null);
        third[20..24].copy_from_slice(&[0, 0, 0, 2]);
        assert_eq!(after(&third), [Rule::Header]);
        assert_eq!(
            after(&wg::call(7, &[0; 5000])),
            [Rule::Header, Rule::Threshold]
        );
        assert_eq!(after(&wg::message(7, 99, &[], &[])), [Rule::HeaderType]);
        assert_eq!(after(&wg::reply(7, &[0; 24])), [Rule::HeaderType]);
        assert_eq!(after(&wg::message(7, GRANT, &[], &[])), [Rule::GrantXid]);
        assert_eq!(after(&wg::error(7, &[2])), [Rule::Error]);
        assert_eq!(after(&wg::introduction(&[0])), [Rule::PropertiesOnce]);
        assert_eq!(after(&v1::header(7).with(&null)), [Rule::Version]);
        assert_eq!(after(&wg::call(7, &null)[..20]), [Rule::Header]);
    }

    #[test]
    fn an_external_call_has_a_call_chunk_of_position_zero() {
        let external = |reads: &[(u32, Segment)], rest: &[u8]| {
            let header = Header {
                procedure: v1::NOMSG,
                reads: reads.to_vec(),
                ..v1::header(7)
            };
            wg::call_with(&header, 0, rest)
        };
        assert_eq!(after(&external(&[(0, segment(9, 40, 0))], &[])), []);
        let rest = external(&[(0, segment(9, 40, 0))], &[0; 4]);
        assert_eq!(after(&rest), [Rule::NoMsg]);
        assert_eq!(after(&external(&[], &[])), [Rule::NoMsg]);
        // The position of the Call chunk's only segment.
        let mut moved = external(&[(0, segment(9, 40, 0))], &[]);
        moved[24..28].copy_from_slice(&[0, 0, 0, 4]);
        assert_eq!(after(&moved), [Rule::CallChunk]);
    }

    #[test]
    fn a_continued_call_is_whole_with_its_last_message() {
        let null = rpc::null(7).bytes();
        let middle = |remaining, part: &[u8]| wg::message(7, CALL_MIDDLE, &[remaining], part);
        let (mut wg, mut findings) = begun();
        wg.take(&mut findings, &middle(24, &null[..16]), true);
        assert!(!wg.needs_credit(16) && wg.needs_credit(64));
        // RDMA2_GRANT may stand between.
        wg.take(&mut findings, &wg::grant(99), true);
        let last = wg.take(&mut findings, &wg::call(7, &null[16..]), true);
        assert_eq!(last, Taken::Call(0, v1::header(7), null.clone()));
        assert_eq!(broken(&findings), []);
        let (mut wg, mut findings) = begun();
        wg.take(&mut findings, &middle(40, &null[..16]), true);
        let other = wg.take(&mut findings, &wg::call(8, &rpc::null(8).bytes()), true);
        assert_eq!(other, Taken::Refused(wg::error(8, &[wg::ERR_INVAL_CONT])));
        assert_eq!(broken(&findings), [Rule::Continued]);
        let (mut wg, mut findings) = begun();
        wg.take(&mut findings, &middle(40, &null[..16]), true);
        wg.take(&mut findings, &wg::call(7, &null[16..]), true);
        assert_eq!(broken(&findings), [Rule::Continued]);
    }

    #[test]
    fn a_second_message_before_an_answer_is_too_early() {
        let (mut wg, mut findings) = (Wg::new(), Findings::default());
        let first = wg::introduction(&wg::set(&[(2, 64)]));
        assert!(matches!(
            wg.take(&mut findings, &first, true),
            Taken::Unusable(_)
        ));
        assert_eq!(broken(&findings), []);
        wg.take(&mut findings, &wg::call(7, &rpc::null(7).bytes()), true);
        assert_eq!(broken(&findings), [Rule::FirstMessage]);
    }
}
