//! A small test extension that carries RPC messages by dividing them into pieces.
#![allow(dead_code, reason = "each test binary uses only a part of this module")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onc_rpc::{Message, Segments};
use rpcrdma_extension::{
    CallCandidate, CallToPlan, Cost, Extension, IncomingCall, IncomingReply, NotTransferred,
    Outbox, PeerError, Planned, ReceivedMessage, Refusal, ReplyCandidate, ReplyCandidates,
    ReplyToPlan, TransferMode, Transferred, Transmission, Transmissions,
};
use rpcrdma_v2::{CallChunks, Chunks, Direction, Reader};

/// Number from the range of unassigned operations.
pub(crate) const PIECE: u32 = 0x7fff_0010;
/// Sent in place of a piece's number to report that a call of several pieces was not accepted.
const NOT_TAKEN: u32 = u32::MAX;
/// Length of a piece in bytes. With its header, it fits every receive.
pub(crate) const LEN: u64 = 4000;

/// Divides messages into pieces. Each piece has its number and the number of pieces; in a call also
/// the maximum number of pieces of the reply.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    arriving: Vec<Bytes>,
    /// Whether the peer does not support this extension.
    refused: bool,
    /// Whether to refuse messages of several pieces, as soon as the first piece arrives.
    takes_one: bool,
}

#[derive(Clone, Debug)]
struct Cut {
    pieces: u32,
    reply_pieces: u32,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces, {} back", self.pieces, self.reply_pieces)
    }
}

fn pieces(len: u64) -> u32 {
    len.div_ceil(LEN) as u32
}

fn cut(message: &Message, plan: &dyn Planned) -> Transmissions {
    let cut: &Cut = plan.of().unwrap();
    let mut rest: VecDeque<Bytes> = message.gather(|_| true).into_iter().collect();
    let transmissions = (0..cut.pieces).map(|index| {
        let (mut payload, mut room) = (Segments::new(), LEN as usize);
        while room > 0
            && let Some(mut piece) = rest.pop_front()
        {
            let taken = piece.split_to(room.min(piece.len()));
            room -= taken.len();
            payload.push(taken);
            if !piece.is_empty() {
                rest.push_front(piece);
            }
        }
        let words = [index, cut.pieces, cut.reply_pieces];
        Transmission::new(
            PIECE,
            words.iter().flat_map(|word| word.to_be_bytes()).collect(),
            payload,
        )
    });
    transmissions.collect()
}

impl Cutter {
    /// Creates an extension that refuses messages of several pieces.
    pub(crate) fn of_one() -> Self {
        Self {
            takes_one: true,
            ..Self::default()
        }
    }
}

impl Extension for Cutter {
    fn name(&self) -> &'static str {
        "cutter"
    }

    fn numbers(&self) -> &[u32] {
        &[PIECE]
    }

    fn received(&mut self, op: &ReceivedMessage<'_>, out: &mut Outbox<'_>) -> Result<(), Refusal> {
        let mut info = Reader::new(op.delimited()?.0);
        let (index, count, reply_pieces) = (info.u32()?, info.u32()?, info.u32()?);
        info.end()?;
        if index == NOT_TAKEN {
            out.transferred(Transferred::Rejected {
                xid: op.xid,
                direction: Direction::Call,
                reason: "several pieces".to_owned(),
            });
            return Ok(());
        }
        if self.takes_one && count > 1 {
            if index == 0 {
                let words = [NOT_TAKEN, 0, 0].map(u32::to_be_bytes).concat();
                out.about(op.xid, Direction::Reply, PIECE, words.into());
            }
            return Ok(());
        }
        if index as usize == 0 {
            self.arriving.clear();
        }
        let mut skip = op.delimited()?.1;
        for piece in op.message {
            let begin = skip.min(piece.len());
            skip -= begin;
            if begin < piece.len() {
                self.arriving.push(piece.slice(begin..));
            }
        }
        if index + 1 < count {
            return Ok(());
        }
        let payload: Segments = std::mem::take(&mut self.arriving).into_iter().collect();
        let message = Message::new(payload, []);
        out.transferred(match op.direction {
            Direction::Call => Transferred::Call(IncomingCall {
                xid: op.xid,
                requested: op.credits,
                transmissions: count,
                message,
                chunks: CallChunks::default(),
                context: Box::new(reply_pieces),
            }),
            Direction::Reply => Transferred::Reply(IncomingReply {
                xid: op.xid,
                granted: op.credits,
                transmissions: count,
                message,
                writes: Default::default(),
            }),
        });
        Ok(())
    }

    fn transfer_mode(&mut self) -> Option<&mut dyn TransferMode> {
        Some(self)
    }
}

impl TransferMode for Cutter {
    fn plan_call(&self, call: &CallToPlan<'_>) -> Vec<CallCandidate> {
        let (len, back) = (call.shape.stream_len(), call.need.stream_len());
        let (count, reply_pieces) = (pieces(len), pieces(back));
        if self.refused || count > call.credits || reply_pieces - 1 > call.reservable {
            return Vec::new();
        }
        vec![CallCandidate {
            cost: Cost {
                transmissions: count,
                wire_bytes: len,
                receives: reply_pieces - 1,
                reply_transmissions: reply_pieces,
                reply_wire_bytes: back,
                ..Cost::default()
            },
            reads: Default::default(),
            write_chunks: Default::default(),
            reply_chunk: None,
            plan: Arc::new(Cut {
                pieces: count,
                reply_pieces,
            }),
        }]
    }

    fn send_call(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
        _: &Chunks,
    ) -> Result<Transmissions, NotTransferred> {
        Ok(cut(message, plan))
    }

    fn plan_reply(&mut self, reply: &ReplyToPlan<'_>) -> ReplyCandidates {
        let count = pieces(reply.shape.stream_len());
        let &most: &u32 = reply.context.downcast_ref().unwrap();
        if count > most {
            return ReplyCandidates::new();
        }
        ReplyCandidates::from_iter([ReplyCandidate {
            cost: Cost {
                transmissions: count,
                wire_bytes: reply.shape.stream_len(),
                ..Cost::default()
            },
            writes: Default::default(),
            plan: Arc::new(Cut {
                pieces: count,
                reply_pieces: 0,
            }),
        }])
    }

    fn send_reply(
        &mut self,
        _: u32,
        plan: &dyn Planned,
        message: &Message,
    ) -> Result<Transmissions, NotTransferred> {
        Ok(cut(message, plan))
    }

    fn call_refused(&mut self, _: u32, error: PeerError) {
        assert_eq!(error, PeerError::UnsupportedType);
        self.refused = true;
    }
}
