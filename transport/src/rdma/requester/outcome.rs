//! What a responder sent, and what becomes of the calls that it is for.

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rdma::Stag;
use rpcrdma_chunks::{Chunks, ReturnedChunks};
use rpcrdma_negotiation::Version;
use rpcrdma_v2::ErrorBody;

use super::super::wire::{BadReply, FromResponder, PeerError, Plain, Returned};
use super::call::{Ended, Phase};
use super::{Notice, Requester, RequesterAction};
use crate::CallError;

impl Requester {
    /// A message arrived, in one piece. `invalidated` is the handle that its sender invalidated
    /// with it.
    pub fn received(&mut self, message: Bytes, invalidated: Option<Stag>) {
        self.received_in(Segments::from_iter([message]), invalidated);
    }

    /// A message arrived, in these pieces.
    pub fn received_in(&mut self, mut message: Segments, invalidated: Option<Stag>) {
        if self.version == Version::One
            && let Some(plain) = Plain::take(&mut message, u64::MAX)
        {
            return self.take_plain(plain, message, invalidated);
        }
        self.take(FromResponder::decode(self.version, message), invalidated);
    }

    /// The same of a plain one, whose header was taken off.
    pub(crate) fn take_plain(
        &mut self,
        plain: Plain,
        payload: Segments,
        invalidated: Option<Stag>,
    ) {
        let xid = plain.xid;
        let answered = self.by_xid.get(&xid).copied();
        let answered = answered.filter(|&key| self.calls[key].is_plain() && invalidated.is_none());
        let Some(key) = answered else {
            let reply = FromResponder::plain(self.version, plain, payload);
            return self.take(Ok(reply), invalidated);
        };
        self.credits
            .arrived(self.in_doubt.answered(self.calls[key].place));
        self.credits.replied(plain.credits);
        self.expected = self.expected.saturating_sub(1);
        self.awaited.answered(key);
        self.calls.remove(key);
        self.by_xid.remove(&xid);
        let message = Message::without_items(payload);
        self.actions
            .push_back(RequesterAction::Deliver { xid, message });
    }

    /// The same of one whose header was read, or was found to be none.
    pub(crate) fn take(
        &mut self,
        reply: Result<FromResponder, BadReply>,
        invalidated: Option<Stag>,
    ) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.invalidated(None, invalidated);
                return self.discard(&error);
            }
        };
        let xid = reply.xid;
        let Some(key) = self.sent_call(xid) else {
            self.invalidated(None, invalidated);
            return self.unknown(xid);
        };
        self.invalidated(Some(key), invalidated);
        let granted = reply.granted;
        let Phase::Sent(offered) = &self.calls[key].phase else {
            return;
        };
        let by_extension = self.calls[key].by_extension.as_ref().map(|how| how.by);
        // A plain reply to operations says nothing of chunks: none is used.
        let none = Chunks::default();
        let offered = match by_extension.is_some() && reply.is_plain() {
            true => &none,
            false => offered,
        };
        let (returned, message) = match reply.check(offered) {
            Ok(checked) => checked,
            Err(error) => return self.discard(&error),
        };
        if let Returned::Error(PeerError::Version { low, high }) = returned {
            self.version_refused = Some((low, high));
        }
        let option = matches!(returned, Returned::Error(PeerError::Option));
        if option && by_extension.is_none() && self.calls[key].barred {
            return self.discard(&"one more error for operations that were refused before");
        }
        let refused = match returned {
            Returned::Error(PeerError::Option) => Some(ErrorBody::InvalidOption),
            Returned::Error(PeerError::Chunk) => Some(ErrorBody::BadHeader),
            _ => None,
        };
        let ended = match (by_extension, refused) {
            (Some(by), Some(error)) => {
                rdma::limited!(warn, xid, %error, "call in operations refused, it goes another way");
                self.notice(Notice::Refused { by, xid, error });
                self.again(key)
            }
            _ => ended(self.version, returned, message),
        };
        self.replied(key, Some(granted), ended);
    }

    /// The sent call that an answer with this XID is for.
    pub(super) fn sent_call(&self, xid: u32) -> Option<usize> {
        let found = self.by_xid.get(&xid).copied();
        let sent = |key: &usize| matches!(self.calls[*key].phase, Phase::Sent(_));
        found.filter(sent).or_else(|| self.cancelled_call(xid))
    }

    pub(super) fn unknown(&mut self, xid: u32) {
        self.counters.unknown_xid += 1;
        tracing::debug!(xid, "reply to no call");
    }

    /// A call is answered, with this grant if it is to be acted upon: its credits are free.
    pub(super) fn replied(&mut self, key: usize, granted: Option<u32>, ended: Ended) {
        let call = &self.calls[key];
        // Whatever was sent before a call has arrived when the call is answered.
        self.credits.arrived(self.in_doubt.answered(call.place));
        match ended {
            // A whole reply answers a whole call.
            Ended::Reply { .. } | Ended::Conveyed(..) => {
                self.credits.replied_group(call.transmissions(), granted);
            }
            // The first of its transmissions may be what is answered.
            _ => {
                let held = self.credits.refused_group(call.transmissions(), granted);
                self.in_doubt.refused(held);
            }
        }
        self.expected = self.expected.saturating_sub(call.replies());
        if self.calls[key].cancelled {
            self.counters.cancelled_replies += 1;
            self.cancelled.retain(|&cancelled| cancelled != key);
            self.end(key, Ended::Dropped);
        } else {
            self.end(key, ended);
        }
    }

    /// A message that is not to be acted upon (RFC 8166, section 4.5).
    pub(crate) fn discard(&mut self, why: &dyn std::fmt::Display) {
        self.counters.discarded += 1;
        rdma::limited!(warn, %why, "message from the responder discarded");
    }

    fn cancelled_call(&self, xid: u32) -> Option<usize> {
        let found = self.cancelled.iter();
        found.copied().find(|&key| self.calls[key].xid == xid)
    }

    /// The responder invalidated a handle with a message that is for nobody here.
    pub(crate) fn taken(&mut self, invalidated: Option<Stag>) {
        self.invalidated(None, invalidated);
    }

    /// What was there for a call of an extension's can go.
    fn let_go(&mut self, xid: u32, by: usize, laid_out: bool, receives: u32) {
        if laid_out {
            self.notice(Notice::Ended { by, xid });
        }
        if receives > 0 {
            self.released_receives(receives);
            self.actions
                .push_back(RequesterAction::Release { receives });
        }
    }

    /// Lets go of a call, and tells its outcome.
    pub(super) fn tell(&mut self, key: usize, ended: Ended) {
        let mut call = self.calls.remove(key);
        let xid = call.xid;
        if self.by_xid.get(&xid) == Some(&key) {
            self.by_xid.remove(&xid);
        }
        if let Some(how) = &call.by_extension {
            self.let_go(xid, how.by, how.plan.is_none(), how.receives);
        }
        if let Ended::Again(call) = ended {
            return self.waiting.push_front(*call);
        }
        match call.finish(self.version, ended) {
            None => {}
            Some(Ok(message)) => {
                self.actions
                    .push_back(RequesterAction::Deliver { xid, message });
            }
            Some(Err(error)) => self.actions.push_back(RequesterAction::Fail { xid, error }),
        }
    }
}

/// What a reply means for its call.
fn ended(version: Version, returned: Returned, message: Message) -> Ended {
    let error = match returned {
        Returned::Reply(ReturnedChunks { writes, long }) => {
            return Ended::Reply {
                message,
                writes,
                long,
            };
        }
        Returned::Error(error) => error,
    };
    Ended::Failed(match error {
        PeerError::Chunk => CallError::Chunk(
            "the header or a chunk could not be used, or the reply was longer than the room \
             offered for it"
                .to_owned(),
        ),
        PeerError::Version { low, high } => CallError::Protocol(format!(
            "no version in common: the server speaks RPC-over-RDMA {}, this call was version {version}",
            rpcrdma_negotiation::show_versions(low, high)
        )),
        PeerError::Option => {
            CallError::Protocol("the server took a call for an unknown operation".to_owned())
        }
    })
}
