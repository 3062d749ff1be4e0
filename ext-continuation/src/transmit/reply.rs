//! Transfer modes of replies to calls received by ROPT_XMTREQ (sections 5.2, 7.4 and 9.3).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use onc_rpc::padded;
use rpcrdma_ext_send_ddp::{
    Ability, DirectedItems, Direction, Handling, Location, PlacedItem, choose,
};
use rpcrdma_extension::layout::{Frame, Headers};
use rpcrdma_extension::{
    Cost, NotTransferred, ReplyCandidate, ReplyCandidates, ReplyToPlan, Transmissions,
};
use rpcrdma_v2::{WriteChunk, fill};
use smallvec::SmallVec;
use transfer_plan::Shape;

use crate::emit::{Arranged, PlacedItems};
use crate::operation::response_header;
use crate::operation::{EXPLICIT_LEN, PLACED_LEN, SEGMENT_LEN};
use crate::transmit::call::place;
use crate::transmit::replies::plural;
use crate::{Continuation, Response, Transmit, XMTRESP};

/// The part of a call that is kept until it is answered. That of a call without directions is
/// [`NoDirections`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyContext {
    /// The requester's directions for the items of the reply, in order.
    pub(crate) directions: DirectedItems,
    /// Number of additional receives that the requester has posted.
    pub(crate) reserved: u32,
}

/// The default [`ReplyContext`], in a box of which there is no allocation.
#[derive(Debug)]
pub(crate) struct NoDirections;

/// The outcome of a direction.
#[derive(Clone, Debug)]
enum Outcome {
    Placed,
    Written(WriteChunk),
    TooShort,
    NoItem,
}

/// The transfer plan of a reply.
#[derive(Debug)]
pub(crate) struct ReplyPlan {
    /// Treatment of each item.
    handling: SmallVec<[Handling; 1]>,
    /// Outcome of each direction, with the position and length in bytes of its item.
    outcomes: Vec<(Outcome, u32, u32)>,
    arranged: Arranged,
    /// The encoded operation (`rdma_optinfo`), cached when the first reply with this plan is sent. It is not
    /// cached if the length of the header required another layout.
    info: OnceLock<Bytes>,
}

/// The transfer modes that were offered for the last reply, with all that they depend on. They are
/// offered again for a reply that is alike, as most of a connection are. An announcement of the
/// peer discards them.
#[derive(Clone, Debug)]
pub(crate) struct LastReply {
    shape: Shape,
    context: ReplyContext,
    inline_send: u64,
    candidates: ReplyCandidates,
}

/// Length in bytes of a `xmddp_mitem` without a location: XMDTYPE_TOOSHORT or XMDTYPE_NOITEM.
const NOTHING_LEN: u64 = 12;

impl Transmit {
    /// Returns every transfer mode for a reply. There are two if the requester leaves the choice.
    pub(crate) fn reply_candidates(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        let none = ReplyContext::default();
        let context = match reply.context.downcast_ref::<ReplyContext>() {
            Some(context) => context,
            None if reply.context.is::<NoDirections>() => &none,
            None => return ReplyCandidates::new(),
        };
        let alike = |last: &&LastReply| {
            last.shape == *reply.shape
                && last.context == *context
                && last.inline_send == reply.limits.inline_send
        };
        if let Some(last) = self.last_reply.as_ref().filter(alike) {
            return last.candidates.clone();
        }
        let candidates = self.find_reply_candidates(reply, context);
        // The chunks of a call have other handles each time.
        let has_chunks = context
            .directions
            .iter()
            .any(|item| item.to.chunk().is_some());
        self.last_reply = (!has_chunks).then(|| LastReply {
            shape: reply.shape.clone(),
            context: context.clone(),
            inline_send: reply.limits.inline_send,
            candidates: candidates.clone(),
        });
        candidates
    }

    fn find_reply_candidates(
        &self,
        reply: &ReplyToPlan<'_>,
        context: &ReplyContext,
    ) -> ReplyCandidates {
        if !reply.shape.payload().is_multiple_of(4) {
            return ReplyCandidates::new();
        }
        let frame = self.send_frame(reply.limits.inline_send);
        let place = self.config.features.ddp.send && frame.can_place();
        let mut candidates = ReplyCandidates::new();
        let mut seen = None;
        let mut directions = context.directions.iter();
        let has_choice = directions.any(|item| matches!(item.to, Direction::Choice(_)));
        let preferences: &[bool] = match has_choice {
            true => &[false, true],
            false => &[false],
        };
        for &prefer_written in preferences {
            let ability = Ability {
                place,
                prefer_written,
            };
            let lens = reply.shape.items().iter().map(|item| item.len);
            let Ok(handling) = choose(lens, &context.directions, ability) else {
                continue;
            };
            if seen.as_ref() != Some(&handling) {
                candidates.extend(self.reply_candidate(reply, context, &frame, &handling));
                seen = Some(handling);
            }
        }
        candidates
    }

    fn reply_candidate(
        &self,
        reply: &ReplyToPlan<'_>,
        context: &ReplyContext,
        frame: &Frame,
        handling: &SmallVec<[Handling; 1]>,
    ) -> Option<ReplyCandidate> {
        let items = reply.shape.items();
        let (mut payload, mut unplaced) = (reply.shape.payload(), 0);
        let (mut placed, mut writes) = (PlacedItems::new(), SmallVec::new());
        let (mut items_len, mut chunk) = (4, 0);
        let mut outcomes = Vec::new();
        for (index, direction) in context.directions.iter().enumerate() {
            let offered = direction.to.chunk();
            let Some(item) = items.get(index) else {
                items_len += NOTHING_LEN;
                outcomes.push((Outcome::NoItem, 0, 0));
                continue;
            };
            let outcome = match (handling.get(index)?, offered) {
                (Handling::Placed, _) => {
                    items_len += PLACED_LEN;
                    Outcome::Placed
                }
                (Handling::Written, Some(offered)) => {
                    items_len += EXPLICIT_LEN + SEGMENT_LEN * offered.len() as u64;
                    writes.push((index, chunk));
                    Outcome::Written(fill(offered, item.len).ok()?)
                }
                _ => {
                    items_len += NOTHING_LEN;
                    Outcome::TooShort
                }
            };
            chunk += usize::from(offered.is_some());
            outcomes.push((outcome, item.position, u32::try_from(item.len).ok()?));
        }
        for (index, (item, how)) in items.iter().zip(handling).enumerate() {
            match how {
                Handling::InStream => {
                    payload += padded(item.len);
                    unplaced += item.len;
                }
                Handling::Placed => placed.push((index, item.len)),
                Handling::Written => {}
            }
        }
        let headers = Headers {
            first: response_header(items_len as usize),
            next: Continuation::HEADER_LEN,
        };
        let max = context
            .reserved
            .saturating_add(1)
            .min(self.config.max_reply_transmissions());
        let arranged = Arranged::new(frame.clone(), headers, payload, placed, max)?;
        Some(ReplyCandidate {
            cost: Cost {
                transmissions: arranged.count(),
                wire_bytes: arranged.wire_bytes(),
                unplaced,
                placed: u32::from(!arranged.placed.is_empty()),
                ..Cost::default()
            },
            writes,
            plan: Arc::new(ReplyPlan {
                handling: handling.clone(),
                outcomes,
                arranged,
                info: OnceLock::new(),
            }),
        })
    }

    /// Divides a reply into transmissions.
    pub(crate) fn transmit_reply(
        &mut self,
        xid: u32,
        plan: &ReplyPlan,
        message: &onc_rpc::Message,
    ) -> Result<Transmissions, NotTransferred> {
        let (info, arranged) = match plan.info.get() {
            Some(info) => (info.clone(), Cow::Borrowed(&plan.arranged)),
            None => plan.operation()?,
        };
        let in_stream = |index: usize| {
            let how = plan.handling.get(index);
            how.is_none_or(|&how| how == Handling::InStream)
        };
        let transmissions = arranged.emit(XMTRESP, info, message, in_stream)?;
        self.remember_reply(xid, arranged.count());
        Ok(transmissions)
    }
}

impl ReplyPlan {
    /// Returns the operation of the reply as XDR, and the layout of the reply.
    fn operation(&self) -> Result<(Bytes, Cow<'_, Arranged>), NotTransferred> {
        let item = |(outcome, position, length): &(Outcome, u32, u32)| PlacedItem {
            position: *position,
            length: *length,
            location: match outcome {
                Outcome::Placed => Location::Placed(Default::default()),
                Outcome::Written(chunk) => Location::Explicit(chunk.clone()),
                Outcome::TooShort => Location::TooShort,
                Outcome::NoItem => Location::NoItem,
            },
        };
        let mut response = Response {
            items: self.outcomes.iter().map(item).collect(),
            ..Response::default()
        };
        let arranged = self.arranged.with_header(response.header_len())?;
        place(&mut response.items, &arranged);
        response.count = arranged.count();
        response.payload = arranged.first_payload();
        let info = response.encode();
        if let Cow::Borrowed(_) = arranged {
            let _ = self.info.set(info.clone());
        }
        Ok((info, arranged))
    }
}

impl fmt::Display for ReplyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.arranged.count();
        write!(f, "reply: {count} transmission{}", plural(count))?;
        write!(f, " ({} B)", self.arranged.wire_bytes())?;
        write!(f, ", payload {} B", self.arranged.payload)?;
        for (index, how) in self.handling.iter().enumerate() {
            let how = match how {
                Handling::InStream => "in it",
                Handling::Placed => "placed",
                Handling::Written => "by RDMA Write",
            };
            write!(f, ", item {index} {how}")?;
        }
        let nothing = self.outcomes.iter();
        match nothing
            .filter(|(what, ..)| matches!(what, Outcome::NoItem))
            .count()
        {
            0 => Ok(()),
            count => write!(f, ", {count} without an item"),
        }
    }
}
