//! Calls that extensions may convey.
//!
//! A call that one plain Send carries, both ways, is none of theirs. Any other is set aside until
//! the conversation has asked every extension for a way and has [chosen](Requester::planned) the
//! [cheapest](conveyance::CostModel::cheapest), the base's own plan among them. What extensions are to
//! know comes out as [`Notice`]s.

use std::collections::VecDeque;

use conveyance::{CallPlan, Limits, ReplyNeed, Shape};
use onc_rpc::Message;
use rpcrdma_chunks::Chunks;
use rpcrdma_negotiation::Version;
use rpcrdma_v2::extension::{
    CallCandidate, CallToPlan, IncomingReply, NotConveyed, Planned, Transmissions,
};
use rpcrdma_v2::{Body, Direction, ErrorBody, Header, Optional};

use super::super::wire;
use super::call::{Ended, Phase, Waiting};
use super::registration::Role;
use super::{Requester, RequesterAction};
use crate::CallError;

/// A call for which ways are looked for.
#[derive(Debug)]
struct Sought {
    call: Waiting,
    shape: Shape,
    /// The base's way, if it has one.
    base: Option<CallPlan>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Conveying {
    /// Further receives that may be posted for replies, at a time.
    most_receives: u32,
    /// Those that are.
    receives: u32,
    sought: Option<Sought>,
    notices: VecDeque<Notice>,
}

/// What to look for ways for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// For extensions.
    pub(crate) call: CallToPlan<'a>,
    /// The base's way, if it has one.
    pub(crate) base: Option<&'a CallPlan>,
    /// Whether the responder may end a registration with its reply.
    pub(crate) may_invalidate: bool,
}

/// The cheapest way.
#[derive(Debug)]
pub(crate) enum Chosen {
    /// The base's.
    Base,
    /// In operations of this extension.
    Extension(usize, CallCandidate),
}

/// A call to lay out; [`Requester::laid_out`] answers.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    /// Which extension.
    pub(crate) by: usize,
    pub(crate) xid: u32,
    pub(crate) plan: Box<dyn Planned>,
    pub(crate) message: &'a Message,
    /// The memory that was registered for it.
    pub(crate) chunks: Chunks,
}

/// What an extension is to be told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notice {
    /// A call that it laid out has ended.
    Ended { by: usize, xid: u32 },
    /// A call that it laid out was answered with an error of the base's.
    Refused {
        by: usize,
        xid: u32,
        error: ErrorBody,
    },
}

impl Requester {
    /// Extensions may convey calls from now on, with replies in up to so many transmissions more
    /// than there are calls: as many receives can be posted beyond those of credits.
    pub fn convey(&mut self, receives: u32) {
        self.conveying = Some(Box::new(Conveying {
            most_receives: receives,
            receives: 0,
            sought: None,
            notices: VecDeque::new(),
        }));
    }

    /// Whether a way is looked for, for some call.
    pub(super) fn asks(&self) -> bool {
        let conveying = self.conveying.as_ref();
        conveying.is_some_and(|conveying| conveying.sought.is_some())
    }

    pub(super) fn ask(&mut self, call: Waiting, shape: Shape, base: Option<CallPlan>) {
        if let Some(conveying) = &mut self.conveying {
            conveying.sought = Some(Sought { call, shape, base });
        }
    }

    /// Nobody wants this call any more. Whether it was the one that is asked for.
    pub(super) fn forget_sought(&mut self, xid: u32) -> bool {
        let Some(conveying) = &mut self.conveying else {
            return false;
        };
        let found = conveying.sought.take_if(|sought| sought.call.xid == xid);
        found.is_some()
    }

    /// Limits have changed: what was asked for is looked at anew.
    pub(super) fn ask_again(&mut self) {
        if let Some(conveying) = &mut self.conveying
            && let Some(sought) = conveying.sought.take()
        {
            self.waiting.push_front(sought.call);
        }
    }

    /// A call for which ways are looked for; [`Requester::planned`] answers.
    pub(crate) fn asked<'a>(&'a self, limits: &'a Limits) -> Option<Asked<'a>> {
        let sought = self.conveying.as_ref()?.sought.as_ref()?;
        let base = sought.base.as_ref();
        Some(self.what_if(&sought.shape, &sought.call.need, base, limits))
    }

    /// The same for a call that is not there.
    pub(crate) fn what_if<'a>(
        &'a self,
        shape: &'a Shape,
        need: &'a ReplyNeed,
        base: Option<&'a CallPlan>,
        limits: &'a Limits,
    ) -> Asked<'a> {
        let spare =
            |conveying: &Conveying| conveying.most_receives.saturating_sub(conveying.receives);
        Asked {
            call: CallToPlan {
                shape,
                need,
                limits,
                credits: self.unclaimed(),
                reservable: self.conveying.as_deref().map_or(0, spare),
            },
            base,
            may_invalidate: self.may_be_invalidated,
        }
    }

    /// The limits of the connection, once it is made.
    pub(crate) fn limits(&self) -> Option<Limits> {
        self.limits
    }

    /// How the call that was asked about is to go.
    pub(crate) fn planned(&mut self, chosen: Chosen) {
        let (Some(conveying), Some(limits)) = (&mut self.conveying, self.limits) else {
            return;
        };
        let Some(Sought { call, base, .. }) = conveying.sought.take() else {
            return;
        };
        match (chosen, base) {
            (Chosen::Extension(by, candidate), _) => self.admit_candidate(call, by, candidate),
            (Chosen::Base, Some(plan)) => self.admit_planned(call, &plan, &limits),
            // It says why.
            (Chosen::Base, None) => self.admit(call.barred(), &limits),
        }
    }

    /// Further receives are posted for a call's reply.
    pub(super) fn reserved_receives(&mut self, receives: u32) {
        if let Some(conveying) = &mut self.conveying {
            conveying.receives += receives;
        }
    }

    /// They are not needed any more, or never were posted.
    pub(super) fn released_receives(&mut self, receives: u32) {
        if let Some(conveying) = &mut self.conveying {
            conveying.receives = conveying.receives.saturating_sub(receives);
        }
    }

    /// The call whose turn it is to be sent is an extension's. False: it will not be sent like
    /// this.
    pub(super) fn hold(&mut self, key: usize) -> bool {
        // What is held comes back with the answer to a call that is still to be sent, maybe this one.
        let most = self.credits.limit() - self.credits.held();
        if self.calls[key].transmissions() <= most {
            return true;
        }
        // The grant was lowered.
        if let Some(source) = self.calls[key].source() {
            self.unready(key, Ended::Again(Box::new(source)));
        }
        false
    }

    /// The call, to go in another way.
    pub(super) fn otherwise(&mut self, key: usize) {
        let source = self.calls[key].source();
        let ended = source.map_or(Ended::Dropped, |source| {
            Ended::Again(Box::new(source.barred()))
        });
        self.end(key, ended);
    }

    /// Whether the conversation has something to answer.
    pub(crate) fn wants_answer(&self) -> bool {
        self.asks() || self.held().is_some()
    }

    /// The call whose turn it is, if it is an extension's that can be laid out and sent.
    fn held(&self) -> Option<usize> {
        let &key = self.ready.front()?;
        let call = &self.calls[key];
        let planned = call.by_extension.as_ref()?.plan.is_some();
        let can_go = call.transmissions() <= self.credits.available() && self.has_room();
        (planned && can_go).then_some(key)
    }

    /// A call that is to be laid out, and then sent; [`Requester::laid_out`] answers.
    pub(crate) fn layout(&mut self) -> Option<Layout<'_>> {
        let key = self.held()?;
        let chunks = self.calls[key].offered();
        let call = &mut self.calls[key];
        let how = call.by_extension.as_mut()?;
        Some(Layout {
            by: how.by,
            xid: call.xid,
            plan: how.plan.take()?,
            message: &how.source.message,
            chunks,
        })
    }

    /// How that call is laid out: it goes out, nothing between its transmissions.
    pub(crate) fn laid_out(&mut self, result: Result<Transmissions, NotConveyed>) {
        let Some(key) = self.ready.pop_front() else {
            return;
        };
        let xid = self.calls[key].xid;
        match result {
            Ok(transmissions) => self.send_group(key, transmissions),
            Err(error) => {
                tracing::debug!(xid, %error, "call goes another way");
                self.otherwise(key);
            }
        }
    }

    fn send_group(&mut self, key: usize, transmissions: Transmissions) {
        let call = &mut self.calls[key];
        let planned = call.transmissions();
        let count = u32::try_from(transmissions.len()).unwrap_or(u32::MAX);
        if count == 0 || count > planned {
            tracing::error!(count, planned, "not laid out as planned");
            return self.otherwise(key);
        }
        self.preparing -= planned;
        if let Some(how) = &mut call.by_extension {
            how.transmissions = count;
        }
        call.phase = Phase::Sent(call.offered());
        let xid = call.xid;
        self.go(key);
        let credits = self.credits.requested();
        for transmission in transmissions {
            let body = Body::Optional(Optional {
                direction: Direction::Call,
                opttype: transmission.opttype,
                info: transmission.info,
            });
            let mut gather = transmission.payload;
            gather.insert(0, Header { xid, credits, body }.encode());
            self.actions.push_back(RequesterAction::Send { gather });
        }
    }

    /// A reply arrived in operations of an extension.
    pub(crate) fn conveyed(&mut self, by: usize, reply: IncomingReply) {
        let xid = reply.xid;
        let Some(key) = self.sent_call(xid) else {
            return self.unknown(xid);
        };
        let call = &self.calls[key];
        if call.by_extension.as_ref().is_none_or(|how| how.by != by) {
            return self.discard(&"a reply in operations to a call that was not sent in them");
        }
        let written = reply.writes.iter().enumerate();
        let mut written = written.filter_map(|(chunk, written)| Some((chunk, (*written)?.len)));
        let fits = written.all(|(chunk, len)| len <= call.room(Role::Write(chunk)));
        let belongs = wire::belongs(Version::Two, xid, Direction::Reply, &reply.message);
        if let Err(error) = belongs {
            return self.discard(&error);
        }
        let ended = match fits {
            true => Ended::Conveyed(reply.message, reply.writes),
            false => Ended::Failed(CallError::Protocol(
                "the server says that it wrote more than there was room for".to_owned(),
            )),
        };
        self.replied(key, Some(reply.granted), ended);
    }

    /// The responder could not use what was sent for this call.
    pub(crate) fn rejected(&mut self, xid: u32, reason: &str) {
        let Some(key) = self.sent_call(xid) else {
            return self.unknown(xid);
        };
        rdma::limited!(warn, xid, reason, "call goes another way");
        let again = self.again(key);
        self.replied(key, None, again);
    }

    /// What comes of a call of an extension's that it could not carry.
    pub(super) fn again(&mut self, key: usize) -> Ended {
        match self.calls[key].source() {
            Some(source) => Ended::Again(Box::new(source.barred())),
            None => Ended::Failed(CallError::Protocol(
                "the server refused an operation that was not sent".to_owned(),
            )),
        }
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        if let Some(conveying) = &mut self.conveying {
            conveying.notices.push_back(notice);
        }
    }

    /// What an extension is to be told next.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.conveying.as_mut()?.notices.pop_front()
    }
}
